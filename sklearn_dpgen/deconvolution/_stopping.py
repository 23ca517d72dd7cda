"""Held-out privatized records: which weights explain them best, and when to stop."""

import copy
import math
from dataclasses import replace

import torch
from torch.optim.swa_utils import AveragedModel, update_bn

from sklearn_dpgen.deconvolution._model import score_latents

__all__ = ["HeldOutScore", "hold_out", "settle_normalization"]

_CHECK_EVERY = 50
# So many records tell two generators apart that a person could.
_N_SCORED_RECORDS = 50_000
_N_WATCHED_RECORDS = 5_000
_N_NORMALIZED = 512


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
    n_scored = min(max(1, round(fraction * len(Y))), _N_SCORED_RECORDS)
    if n_scored >= len(Y):
        return Y, Y
    order = torch.randperm(len(Y), generator=generator, device=Y.device)
    return Y[order[n_scored:]], Y[order[:n_scored]]


class HeldOutScore:
    """Watches a training by the likelihood of held-out records, and keeps the best weights.

    A candidate is the average of the weights over the steps since the last check.

    Parameters
    ----------
    model : GeneratorModel
        The one that is trained.
    Y : tensor of shape (n, n_features)
        Encoded privatized records that it is not trained on.
    n_iter_no_change : int
        Steps without a gain of ``tol`` after which to stop.
    tol : float
        In nats a record.
    """

    def __init__(self, model, Y, *, n_iter_no_change, tol):
        self._model = model
        self._watched = Y[:_N_WATCHED_RECORDS]
        self._n_checks = math.ceil(n_iter_no_change / _CHECK_EVERY)
        self._tol = tol
        self._average = AveragedModel(model.module)
        self._to_beat, self._n_without = -math.inf, 0
        self._best, self._weights = -math.inf, None

    @torch.no_grad()
    def stop(self, step):
        """Take a step into account; return whether it should be the last one."""
        self._average.update_parameters(self._model.module)
        if (step + 1) % _CHECK_EVERY:
            return False
        score = self._consider(self._average.module)
        self._average.n_averaged.zero_()
        self._n_without += 1
        if score > self._to_beat + self._tol:
            self._to_beat, self._n_without = score, 0
        return self._n_without >= self._n_checks

    def restore(self):
        """Give the module its best weights, of which those that it has now are candidates."""
        self._consider(self._model.module)
        self._model.module.load_state_dict(self._weights)

    def _consider(self, module):
        settle_normalization(module, self._model.latent_dim)
        model = replace(self._model, module=module.eval())
        score = model.log_likelihood(self._watched).mean().item()
        if self._weights is None or score > self._best:
            self._best, self._weights = score, copy.deepcopy(module.state_dict())
        return score


def settle_normalization(module, latent_dim):
    """Give batch normalizations the statistics of the weights as they are now, averaged ones."""
    device = next(module.parameters()).device
    update_bn(score_latents(latent_dim).to(device).split(_N_NORMALIZED), module)
