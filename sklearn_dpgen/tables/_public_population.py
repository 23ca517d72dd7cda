"""A public table as the prior of a population: its rows, of which records copy each column."""

import math

import numpy as np
import torch
from scipy.optimize import minimize

from sklearn_dpgen.tables._answer_fit import answer_batches
from sklearn_dpgen.tables._distributions import resampled
from sklearn_dpgen.tables._marginals import ColumnBlocks
from sklearn_dpgen.tables._public_columns import shifted
from sklearn_dpgen.tables._public_prior import (
    N_GROUPS,
    dependence_sums,
    kept_columns,
    n_effective,
    reliabilities,
    tilted_weights,
)
from sklearn_dpgen.utils._random import split_random_state
from sklearn_dpgen.utils._torch import as_array, as_tensor

__all__ = ["N_ROWS", "PublicPopulation", "agreed", "completed", "tilted"]

# Rows of the population, public rows that are weighted, and rows and answers that tell how far
# columns agree.
N_ROWS, _MOST_WEIGHTED, _MOST_COMPARED, _MOST_ANSWERS = 2000, 10_000, 300, 20_000
# Steps of the last fit, relative to those of the population, which starts from noise.
_STEPS = 0.05
# The prior of full agreement, in nats of the likelihood, and options of that fit.
_AGREEMENT, _OPTIONS = 10.0, {"maxfun": 25, "ftol": 1e-6}
# Rounds of proportional fitting.
_ROUNDS = 60
# Floors of variances and shares, weight of released shares beside public ones, and a tiny number.
_FLOOR, _RARE, _TINY = 1e-6, 1e-4, 1e-12


class PublicPopulation:
    """Fits a population to answers with the rows of a public table as its prior.

    Parameters
    ----------
    fit : AnswerFit
    mechanism : JointRandomizedResponse
        Fitted.
    codes : ndarray of int of shape (n, n_columns)
        Of the public rows; -1 for unknown cells.
    weights : ndarray of shape (n,)
        Of the public rows.
    strength : float
        Weight of the prior against the log-likelihood of all answers, in nats.
    seed : int or None
    """

    def __init__(self, fit, mechanism, codes, weights, strength, seed):
        self._fit, self._mechanism, self._strength = fit, mechanism, strength
        row_seed, self._fit_seed = split_random_state(seed, 2)
        self._rng = np.random.default_rng(row_seed)
        n_rows = min(len(codes), _MOST_WEIGHTED)
        self._codes = codes[resampled(weights, n_rows, self._rng)]
        self._sizes = [c.domain.n_features for c in mechanism.encoder_.columns_.values()]

    def __call__(self, encoded, P, n_iter):
        """Return the rows of the population, of equal shares.

        Parameters
        ----------
        encoded : ndarray of shape (n, width)
            Answers.
        P : ndarray of shape (n_rows, D)
            A population that was fitted to them without the public table.
        n_iter : int
            Number of steps of that fit.

        Returns
        -------
        ndarray of shape (N_ROWS, D)
        """
        codes, sizes = self._codes, self._sizes
        released = np.split(P.mean(axis=0), np.cumsum(sizes)[:-1])
        variances = self._variances(len(encoded))
        equal = np.full(len(codes), 1 / len(codes))
        weights = tilted_weights(codes, equal, released, variances)
        public = [_shares(c, weights, s) for c, s in zip(codes.T, released, strict=True)]
        kept = self._kept(encoded, weights, public)
        size = n_effective(weights)
        columns = zip(released, variances, public, strict=True)
        means = np.concatenate([_posterior(*column, size) for column in columns])
        drawn = codes[resampled(weights, N_ROWS, self._rng)]
        rows = completed(drawn, tilted(P, means, sizes), sizes, kept, self._rng)
        start, n_steps = tilted(rows, means, sizes), max(1, round(_STEPS * n_iter))
        options = {"start": start, "prior": self._strength, "max_iter": n_steps}
        return self._fit(encoded, self._fit_seed, **options)[0]

    def _variances(self, n_answers):
        """Return about the variance of the share of each category, estimated from answers alone."""
        variations = np.diag(self._mechanism.expected_variation(n_answers))
        # Infinite for columns that are never asked.
        found = np.minimum(2 * math.pi * (variations / self._sizes) ** 2, 1.0) + _FLOOR
        return [np.full(size, v) for size, v in zip(self._sizes, found, strict=True)]

    def _kept(self, encoded, weights, public):
        """Return the probability with which a record copies each column of its public row."""
        blocks = ColumnBlocks.of(self._mechanism.encoder_, public)
        groups = [blocks.marginal((j,), N_GROUPS).groups[0][b] for j, b in enumerate(blocks.blocks)]
        size = n_effective(weights)
        signal, total = dependence_sums(self._codes, weights, groups, size)
        reliable = reliabilities(signal, total, size)
        drawn = self._codes[resampled(weights, _MOST_COMPARED, self._rng)]
        base = np.concatenate(public)
        copies = completed(drawn, base[None], self._sizes, np.ones(len(groups)), self._rng)
        answers = encoded[self._rng.permutation(len(encoded))[:_MOST_ANSWERS]]
        batches = list(answer_batches(self._mechanism, answers, self._fit.device))
        columns, base = (as_tensor(v, device=self._fit.device) for v in (copies.T.copy(), base))
        most = kept_columns(np.ones(len(groups)), reliable)
        return kept_columns(agreed(batches, columns, base, self._sizes, most), reliable)


def agreed(batches, copies, base, sizes, most):
    """Return how far answers confirm that records copy the columns of public rows.

    A row has the mixture of its category and of the shares of the column, with κ_j = a_j m_j of the
    category. Minimizes -Σ_i log p(y_i | κ) + 5 Σ_j (1 - a_j)² over a in [0, 1].

    Parameters
    ----------
    batches : list of AnswerBatch
    copies : tensor of shape (D, n_rows)
        The public rows.
    base : tensor of shape (D,)
        Shares of the categories of each column.
    sizes : sequence of int
        Categories of each column.
    most : ndarray of shape (n_columns,)
        m, the largest probabilities of copying.

    Returns
    -------
    ndarray of shape (n_columns,)
        a; 1 for columns of which answers tell nothing.
    """
    base = base[:, None]
    gaps, columns = copies - base, np.repeat(np.arange(len(sizes)), sizes)

    def objective(a):
        kept = as_tensor(np.repeat(a * most, sizes), device=base.device)[:, None]
        value, slope = _AGREEMENT * ((1 - a) ** 2).sum() / 2, _AGREEMENT * (a - 1)
        for batch in batches:
            logs, gradient = batch(base + kept * gaps)
            pull = as_array((gradient * gaps).sum(dim=1)).astype(np.float64)
            value -= logs.sum(dtype=torch.float64).item()
            slope = slope + len(logs) * most * np.bincount(columns, pull)
        # In units in which the curvature is at least one.
        return value / _AGREEMENT, slope / _AGREEMENT

    found = minimize(
        objective,
        np.ones(len(sizes)),
        jac=True,
        method="L-BFGS-B",
        bounds=[(0, 1)] * len(sizes),
        options=_OPTIONS,
    )
    return found.x


def completed(codes, P, sizes, kept, rng):
    """Return rows that have cells of a table in part, and the others from a population.

    For each row of the table a row of the population is drawn given its known cells, each of which
    counts as far as it is kept. So what is not kept depends on the other cells as it does in the
    population.

    Parameters
    ----------
    codes : ndarray of int of shape (n, n_columns)
        -1 for unknown cells.
    P : ndarray of shape (n_rows, D)
    sizes : sequence of int
        Categories of each column.
    kept : ndarray of shape (n_columns,)
        Probability of a known cell, beside that of the row of the population.
    rng : numpy.random.Generator

    Returns
    -------
    ndarray of shape (n, D)
    """
    starts = np.cumsum([0, *sizes])[:-1]
    ratios = (P / np.maximum(P.mean(axis=0), _TINY)).T
    given = rng.gumbel(size=(len(codes), len(P)))
    columns = list(zip(codes.T, starts, sizes, kept, strict=True))
    for column, start, _, share in columns:
        known = np.flatnonzero(column >= 0)
        odds = share * ratios[start + column[known]] + (1 - share)
        given[known] += np.log(np.maximum(odds, _TINY))
    rows = P[given.argmax(axis=1)]
    for column, start, size, share in columns:
        known = np.flatnonzero(column >= 0)
        rows[known, start : start + size] *= 1 - share
        rows[known, start + column[known]] += share
    return rows


def tilted(P, means, sizes):
    """Return rows of which the mean is given, with each row's logits shifted by the same amounts.

    Parameters
    ----------
    P : ndarray of shape (n_rows, D)
    means : ndarray of shape (D,)
        Of each category; they sum to one in each column.
    sizes : sequence of int
        Categories of each column.

    Returns
    -------
    ndarray of shape (n_rows, D)
    """
    blocks = []
    ends = np.cumsum(sizes)[:-1]
    for block, mean in zip(np.split(P, ends, axis=1), np.split(means, ends), strict=True):
        block = np.maximum(block, _TINY)
        # Proportional fitting, of rows that sum to one in turn with the mean.
        for _ in range(_ROUNDS):
            block = block * ((mean + _TINY) / block.mean(axis=0))
            block /= block.sum(axis=1, keepdims=True)
        blocks.append(block)
    return np.hstack(blocks)


def _shares(codes, weights, released):
    """Return the shares of the categories of a column in public rows, which are positive."""
    known = codes >= 0
    found = np.bincount(codes[known], weights[known], minlength=len(released)) + _RARE * released
    return found / found.sum()


def _posterior(released, variances, public, n_rows):
    """Return the posterior means of shares from answers and of those in so many public rows."""
    _, means, _ = shifted(released, variances, public, public * (1 - public) / n_rows)
    means = np.maximum(means, _FLOOR)
    return means / means.sum()
