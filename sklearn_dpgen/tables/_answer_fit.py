"""Populations that are fitted to joint answers, and how many steps of it held-out ones reward."""

import math
from dataclasses import dataclass

import numpy as np
import torch

from sklearn_dpgen.tables._answer_loss import AnswerLoss, log_likelihoods
from sklearn_dpgen.tables._population import Population
from sklearn_dpgen.utils._random import split_random_state, torch_generator

__all__ = ["AnswerFit", "split_answers"]

_CHECK_EVERY = 25
# Passes over the answers in as many steps, where the batches may be so large or small.
_PASSES, _STEPS, _SMALLEST, _LARGEST = 16, 400, 1000, 16_000
# Held-out answers: to tell two fits apart takes many.
_MOST_HELD_OUT = 50_000


@dataclass(frozen=True)
class WatchedRun:
    """The best mean log-likelihood of held-out answers in a fit, and the steps to it."""

    score: float
    n_best: int


class AnswerFit:
    """What all fits of one estimator have in common: call it with answers and a seed.

    Parameters
    ----------
    mechanism : JointRandomizedResponse
        Fitted.
    n_rows : int
        Of the population.
    prior : float
        See `AnswerLoss`.
    batch_size : "auto" or int
    max_iter : int
    learning_rate : float
    device : torch.device
    **progress
        ``verbose`` and ``name`` of the progress bar.
    """

    def __init__(
        self, mechanism, *, n_rows, prior, batch_size, max_iter, learning_rate, device, **progress
    ):
        self._mechanism, self._n_rows, self._prior = mechanism, n_rows, prior
        self._batch_size, self._max_iter, self._device = batch_size, max_iter, device
        self._options = {"learning_rate": learning_rate} | progress

    def __call__(self, encoded, seed, *, max_iter=None, stop=None):
        """Fit a population to answers.

        Parameters
        ----------
        encoded : ndarray of shape (n, width)
        seed : int or None
        max_iter : int, optional
            Other than that of all fits.
        stop : callable, optional
            Of a population and a step: whether to stop after it.

        Returns
        -------
        P : ndarray of float64 of shape (n_rows, D)
        result : TrainingResult
        """
        start_seed, batch_seed = split_random_state(seed, 2)
        sizes = [c.domain.n_features for c in self._mechanism.encoder_.columns_.values()]
        population = Population(sizes, self._n_rows, torch_generator(start_seed), self._device)
        rng = np.random.default_rng(batch_seed)
        size = self._size(len(encoded))
        loss = AnswerLoss(self._mechanism, encoded, self._prior, size, rng, self._device)
        result = population.fit(
            loss,
            max_iter=max_iter or self._max_iter,
            stop=None if stop is None else lambda step: stop(population, step),
            **self._options,
        )
        return population.probabilities(), result

    def watched(self, trained, held_out, seed, patience, tol):
        """Fit to some answers and score others as it goes.

        Parameters
        ----------
        trained, held_out : ndarray of shape (n, width)
        seed : int or None
        patience : int or None
            Steps without a gain of ``tol`` nats after which to stop; None goes to the end.
        tol : float

        Returns
        -------
        WatchedRun
        """
        best, n_best = -math.inf, 0

        def stop(population, step):
            nonlocal best, n_best
            n_steps, is_last = step + 1, step + 1 == self._max_iter
            if not is_last and (patience is None or n_steps % _CHECK_EVERY):
                return False
            score = self._score(population(), held_out)
            if score > best + tol:
                best, n_best = score, n_steps
            return is_last or n_steps - n_best >= patience

        self(trained, seed, stop=stop)
        return WatchedRun(best, n_best)

    def _score(self, P, held_out):
        with torch.no_grad():
            return log_likelihoods(self._mechanism, held_out, P).mean().item()

    def _size(self, n_answers):
        if self._batch_size != "auto":
            return self._batch_size
        return int(np.clip(_PASSES * n_answers / _STEPS, _SMALLEST, _LARGEST))


def split_answers(encoded, fraction, seed):
    """Part answers at random into those to fit and those to score, of which there is at least one.

    A single answer serves as both.
    """
    n_held_out = min(max(1, round(fraction * len(encoded))), _MOST_HELD_OUT)
    if n_held_out >= len(encoded):
        return encoded, encoded
    order = np.random.default_rng(seed).permutation(len(encoded))
    return encoded[order[n_held_out:]], encoded[order[:n_held_out]]
