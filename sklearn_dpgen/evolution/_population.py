"""Populations of soft records, descended until their slices fit."""

import numpy as np
import torch

from sklearn_dpgen.nn import descend
from sklearn_dpgen.utils._torch import as_array, as_tensor

__all__ = [
    "Population",
    "SliceLoss",
    "predicted_slices",
]

# Entries of what is computed at a time, beside the population itself.
_BLOCK = 1 << 22
# Standard deviation of the logits at the start: rows must differ, for equal ones would stay equal.
_SPREAD = 1.0
# What a category weighs at least at the start, as a share.
_FLOOR = 1e-6


def predicted_slices(P, sizes, slices):
    """Return the slices of a population: expected shares of the records in each cell.

    Parameters
    ----------
    P : array-like or tensor of shape (n_rows, sum(sizes))
        A row holds probabilities of the categories of each column, which are independent given the
        row; all rows have the same share.
    sizes : sequence of int
        Categories of each column.
    slices : sequence of tuple of int
        One to three columns each.

    Returns
    -------
    list of ndarray of float64
        P_aᵀ P_b / n_rows of columns a and b; an axis a column.
    """
    blocks = torch.split(as_tensor(P, dtype=torch.float64).T, list(sizes))
    n_rows = blocks[0].shape[1]
    ones = torch.ones(1, n_rows, dtype=torch.float64)
    tables = []
    for columns in slices:
        *first, last = (blocks[column] for column in columns)
        joint = ones
        for block in first:
            joint = (joint[:, None] * block).flatten(0, 1)
        shape = [sizes[column] for column in columns]
        tables.append(as_array(joint @ last.T / n_rows).reshape(shape))
    return tables


class SliceLoss:
    """Squared distance of the slices of a population from given tables, and its gradient.

    Σ_c ω_c ‖slice_c(P) − t_c‖²: up to a constant, minus the log likelihood of t_c under Gaussian
    noise of variance 1 / (2 ω_c) a cell.

    Parameters
    ----------
    sizes : sequence of int
        Categories of each column.
    slices : sequence of tuple of int
        One to three distinct columns each.
    tables : sequence of ndarray
        Of shares, an axis a column; with noise they may be negative.
    weights : sequence of float
        ω_c, one a slice.
    device : torch.device

    Notes
    -----
    All pairs are one product of matrices, D² n_rows for D categories, and their gradient is another
    one; triples take d_a d_b d_c n_rows twice. Beside the population there are two matrices of
    shape (D, D), and blocks of 16 MB.
    """

    def __init__(self, sizes, slices, tables, weights, device):
        self._device = device
        stops = np.cumsum(sizes)
        self.parts = [
            slice(int(stop - size), int(stop)) for stop, size in zip(stops, sizes, strict=True)
        ]
        width = int(stops[-1])
        self.scale = max(weights)
        one_way, pairs = self._zeros(2, width), None
        self._triples = []
        for columns, table, weight in zip(slices, tables, weights, strict=True):
            parts = [self.parts[column] for column in columns]
            table = as_tensor(table, device=device)
            if len(parts) == 1:
                self._add(one_way, parts[0], table, weight)
            elif len(parts) == 2:
                pairs = self._zeros(2, width, width) if pairs is None else pairs
                self._add(pairs, tuple(parts), table, weight)
                self._add(pairs, tuple(parts[::-1]), table.T, weight)
            else:
                self._triples.append((parts, table.flatten(0, 1), weight))
        (self._one_weights, self._one_way), self._pairs = one_way, pairs

    def __call__(self, P):
        """Return the loss and its gradient.

        Parameters
        ----------
        P : tensor of float32 of shape (D, n_rows)
            The population, a row of it in each column here, so that blocks are contiguous.

        Returns
        -------
        loss : tensor
        gradient : tensor of shape (D, n_rows)
        """
        n_rows = P.shape[1]
        error = P.mean(dim=1) - self._one_way
        slope = self._one_weights * error
        loss = torch.dot(slope, error)
        if self._pairs is None:
            gradient = slope[:, None].expand(P.shape).clone()
        else:
            gradient = torch.empty_like(P)
            rows = max(1, _BLOCK // len(P))
            for start in range(0, len(P), rows):
                part = slice(start, start + rows)
                # Each pair is there twice, with its transpose.
                weights, targets = self._pairs[:, part]
                error = torch.addmm(targets, P[part], P.T, beta=-1, alpha=1 / n_rows)
                pull = weights * error
                loss = loss + 0.5 * torch.dot(pull.flatten(), error.flatten())
                torch.addmm(slope[part, None], pull, P, out=gradient[part])
        for parts, targets, weight in self._triples:
            loss = loss + self._triple(P, gradient, parts, targets, weight)
        return loss, gradient.mul_(2 / n_rows)

    def _triple(self, P, gradient, parts, targets, weight):
        """Return the loss of three columns, and add half its gradient times the rows."""
        first, second, third = parts
        size, n_rows = second.stop - second.start, P.shape[1]
        loss = self._zeros()
        count = max(1, _BLOCK // (size * n_rows))
        for start in range(first.start, first.stop, count):
            part = slice(start, min(start + count, first.stop))
            joint = (P[part, None] * P[second]).flatten(0, 1)
            cells = slice((part.start - first.start) * size, (part.stop - first.start) * size)
            error = torch.addmm(targets[cells], joint, P[third].T, beta=-1, alpha=1 / n_rows)
            loss = loss + weight * error.square().sum()
            gradient[third].addmm_(error.T, joint, alpha=weight)
            pull = weight * (error @ P[third]).unflatten(0, (-1, size))
            gradient[part].add_((pull * P[second]).sum(dim=1))
            gradient[second].add_((pull * P[part, None]).sum(dim=0))
        return loss

    def _zeros(self, *shape):
        return torch.zeros(shape, device=self._device)

    @staticmethod
    def _add(both, where, table, weight):
        both[0][where] = weight
        both[1][where] = table


class Population(torch.nn.Module):
    """Rows of soft categories, the softmax of free logits a block.

    Parameters
    ----------
    marginals : sequence of array-like of shape (size,)
        Shares of the categories of each column, which may be noisy: rows start around them.
    n_rows : int
    generator : torch.Generator of the CPU
        Draws how the rows differ at the start.
    device : torch.device
    """

    def __init__(self, marginals, n_rows, generator, device):
        super().__init__()
        self.sizes = [len(shares) for shares in marginals]
        shares = np.concatenate([np.asarray(part, dtype=np.float64) for part in marginals])
        center = as_tensor(np.log(np.maximum(shares, _FLOOR)))
        noise = torch.randn(len(center), n_rows, generator=generator)
        logits = (center[:, None] + _SPREAD * noise).to(device)
        self.logits = torch.nn.Parameter(logits)
        blocks = torch.repeat_interleave(torch.tensor(self.sizes)).to(device)
        self.register_buffer("_blocks", blocks)

    def forward(self):
        """Return the probabilities, a tensor of shape (sum(sizes), n_rows)."""
        return torch.cat([part.softmax(dim=0) for part in self.logits.split(self.sizes)])

    def probabilities(self):
        """Return the probabilities, an array of float64 of shape (n_rows, sum(sizes))."""
        with torch.no_grad():
            P = torch.cat([part.softmax(dim=0) for part in self.logits.double().split(self.sizes)])
        return np.ascontiguousarray(as_array(P).T)

    def fit(self, loss, *, max_iter, learning_rate, verbose=0, name="fit"):
        """Descend a loss from where the rows stand.

        Parameters
        ----------
        loss : SliceLoss
        max_iter : int
        learning_rate : float
            Peak rate of Adam, in logits a step.
        verbose : int, default=0
        name : str, default="fit"
            Of the progress bar.

        Returns
        -------
        TrainingResult
        """
        # A factor is no matter to Adam, unless gradients come near its floor of 1e-8.
        factor = self.logits.shape[1] / loss.scale

        def gradient_fn(step):
            with torch.no_grad():
                P = self()
                value, slope = loss(P)
                slope.mul_(P)
                sums = slope.new_zeros(len(self.sizes), slope.shape[1])
                sums.index_add_(0, self._blocks, slope)
                slope.addcmul_(P, sums[self._blocks], value=-1)
                return value.item(), [slope.mul_(factor)]

        return descend(
            self,
            gradient_fn,
            max_iter=max_iter,
            learning_rate=learning_rate,
            verbose=verbose,
            name=name,
        )
