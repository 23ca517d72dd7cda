"""Populations of soft records, descended until a loss is small."""

import numpy as np
import torch

from sklearn_dpgen.nn._training import descend
from sklearn_dpgen.utils._torch import as_array

__all__ = ["Population"]

# Standard deviation of the logits at the start: rows must differ, for equal ones would stay equal.
_SPREAD = 0.3


class Population(torch.nn.Module):
    """Rows of soft categories, the softmax of free logits a block.

    Parameters
    ----------
    sizes : sequence of int
        Categories of each column: rows start around even shares.
    n_rows : int
    generator : torch.Generator of the CPU
        Draws how the rows differ at the start.
    device : torch.device
    """

    def __init__(self, sizes, n_rows, generator, device):
        super().__init__()
        self.sizes = list(sizes)
        noise = torch.randn(sum(self.sizes), n_rows, generator=generator)
        self.logits = torch.nn.Parameter((_SPREAD * noise).to(device))

    @torch.no_grad()
    def forward(self, dtype=torch.float32):
        """Return the probabilities, a tensor of shape (sum(sizes), n_rows)."""
        P = torch.empty_like(self.logits, dtype=dtype)
        for logits, out in zip(self.logits.split(self.sizes), P.split(self.sizes), strict=True):
            torch.softmax(logits, 0, dtype=dtype, out=out)
        return P

    def probabilities(self):
        """Return the probabilities, an array of float64 of shape (n_rows, sum(sizes))."""
        return np.ascontiguousarray(as_array(self(torch.float64)).T)

    def fit(self, loss, *, max_iter, learning_rate, stop=None, verbose=0, name="fit"):
        """Descend a loss from where the rows stand.

        Parameters
        ----------
        loss : callable
            ``loss(P)`` returns a loss and its gradient by P, of shape (sum(sizes), n_rows);
            ``loss.scale`` is about the size of its weights.
        max_iter : int
        learning_rate : float
            Peak rate of Adam, in logits a step.
        stop : callable, default=None
            ``stop(step)`` is asked after each step; where it is true, none follows.
        verbose : int, default=0
        name : str, default="fit"
            Of the progress bar.

        Returns
        -------
        TrainingResult
        """
        n_rows = self.logits.shape[1]
        # A factor is no matter to Adam, unless gradients come near its floor of 1e-8.
        factor = n_rows / loss.scale

        def gradient_fn(step):
            P = self()
            value, slope = loss(P)
            slope.mul_(P)
            for rows, part in zip(P.split(self.sizes), slope.split(self.sizes), strict=True):
                part.addcmul_(rows, part.sum(dim=0), value=-1)
            return value.item(), [slope.mul_(factor)]

        return descend(
            self,
            gradient_fn,
            max_iter=max_iter,
            learning_rate=learning_rate,
            stop=stop,
            verbose=verbose,
            name=name,
        )
