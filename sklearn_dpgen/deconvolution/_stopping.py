"""Held-out privatized records: which weights explain them best, and when to stop."""

import math
from dataclasses import replace

import torch
from torch.optim.swa_utils import AveragedModel

from sklearn_dpgen.deconvolution._training import settle_normalization

__all__ = ["HeldOutScore", "hold_out"]

_CHECK_EVERY = 50
# To tell two trainings apart takes many; to see one turn does not.
_N_RANKED, _N_WATCHED = 50_000, 5_000


def hold_out(Y, fraction, generator):
    """Part encoded privatized records at random into those to train on and those to score.

    Parameters
    ----------
    Y : tensor of shape (n, n_features)
    fraction : float
        Share of the scored ones, of which there is at least one, and at most 50000.
    generator : torch.Generator
        On the device of ``Y``.

    Returns
    -------
    trained, scored : tensors
        A single record serves as both.
    """
    n_scored = min(max(1, round(fraction * len(Y))), _N_RANKED)
    if n_scored >= len(Y):
        return Y, Y
    order = torch.randperm(len(Y), generator=generator, device=Y.device)
    return Y[order[n_scored:]], Y[order[:n_scored]]


class HeldOutScore:
    """The likelihood of held-out records: ranks trainings, and says when to stop one.

    Parameters
    ----------
    Y : tensor of shape (n, n_features)
        Encoded privatized records that are not trained on.
    n_iter_no_change : int or None
        Steps without a gain of ``tol`` after which to stop; None never stops.
    tol : float
        In nats a record.

    Attributes
    ----------
    n_best : int
        Number of steps at the last gain.
    stopped : bool
    """

    def __init__(self, Y, *, n_iter_no_change, tol):
        self._Y = Y if n_iter_no_change is None else Y[:_N_WATCHED]
        self._tol = tol
        self._n_iter_no_change = n_iter_no_change
        self._best, self.n_best, self.stopped = -math.inf, 0, False

    def watch(self, model):
        """Return the function by which the training of a model asks whether to stop."""
        if self._n_iter_no_change is None:
            return None
        # One step's weights are as good as chance: those since the last check are averaged.
        average = AveragedModel(model.module)
        averaged = replace(model, module=average.module)

        def stop(step):
            average.update_parameters(model.module)
            n_steps = step + 1
            if n_steps % _CHECK_EVERY == 0:
                settle_normalization(averaged)
                score = self._score(averaged)
                average.n_averaged.zero_()
                if score > self._best + self._tol:
                    self._best, self.n_best = score, n_steps
                self.stopped = n_steps - self.n_best >= self._n_iter_no_change
            return self.stopped

        return stop

    def of(self, model):
        """Return the best score of a training that was stopped, or that of its result."""
        return self._best if self.stopped else self._score(model)

    def _score(self, model):
        model.module.eval()
        return model.log_likelihood(self._Y).mean().item()
