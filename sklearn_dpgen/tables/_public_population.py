"""Public rows beside a population: completed by it, reweighted and combined by answers."""

from typing import NamedTuple

import numpy as np
import torch
from scipy.optimize import minimize
from scipy.special import log_softmax, logsumexp, softmax

from sklearn_dpgen.tables._answer_fit import coverages, log_likelihoods
from sklearn_dpgen.tables._distributions import resampled
from sklearn_dpgen.utils._random import split_random_state
from sklearn_dpgen.utils._torch import as_tensor

__all__ = ["PublicPopulation", "completed", "mixture_share", "reweighted"]

# The most public rows, and answers that reweight them: a table of both is held in float32.
_MOST_ROWS, _MOST_ANSWERS = 2000, 30_000
_MAX_ITER = 60
# Points of a midpoint rule.
_N_SHARES = 200
# Prior odds against the public cells of columns that may be wrong where others are right.
_DOUBT = 3
_TINY, _LEAST_WEIGHT = 1e-12, 1e-3


class Mixture(NamedTuple):
    """Rows of category probabilities, (n_rows, D), and their shares, (n_rows,)."""

    P: np.ndarray
    shares: np.ndarray


class PublicPopulation:
    """Combines a population with the rows of a public table, by answers alone.

    Parameters
    ----------
    fit : AnswerFit
    mechanism : JointRandomizedResponse
        Fitted.
    codes : ndarray of int of shape (n, n_columns)
        Of the public rows; -1 for unknown cells.
    weights : ndarray of shape (n,)
        Of the public rows.
    doubted : sequence of int
        Columns whose public cells may be wrong where others are right, such as a target.
    strength : float
        Weight of the public weights against the log-likelihood of all answers, in nats.
    seed : int or None
    """

    def __init__(self, fit, mechanism, codes, weights, doubted, strength, seed):
        self._fit, self._mechanism, self._strength = fit, mechanism, strength
        row_seed, self._half_seed, self._fit_seed, self._seed = split_random_state(seed, 4)
        rng = np.random.default_rng(row_seed)
        codes = codes[resampled(weights, min(len(codes), _MOST_ROWS), rng)]
        self._sizes = [c.domain.n_features for c in mechanism.encoder_.columns_.values()]
        self._tables = [codes]
        if len(doubted):
            without = codes.copy()
            without[:, list(doubted)] = -1
            self._tables.append(without)

    def __call__(self, encoded, P, n_iter):
        """Return the mixture of a population and the public rows.

        Parameters
        ----------
        encoded : ndarray of shape (n, width)
            Answers.
        P : ndarray of shape (n_rows, D)
            The population that was fitted to them.
        n_iter : int
            Number of steps of that fit.

        Returns
        -------
        Mixture
        """
        if len(encoded) < 2:
            return Mixture(P, np.full(len(P), 1 / len(P)))
        weights = mixture_weights(self._cross_fitted(encoded, max(1, n_iter // 2)))
        parts = self._parts(encoded, P)
        # Rows of no weight would be drawn hardly ever, and fill the file.
        kept = [(w, part) for w, part in zip(weights, parts, strict=True) if w > _LEAST_WEIGHT]
        shares = np.concatenate([w * part.shares for w, part in kept])
        return Mixture(np.vstack([part.P for _, part in kept]), shares / shares.sum())

    def _cross_fitted(self, encoded, n_iter):
        """Return the log-likelihoods of answers by what was fitted to the other half of them."""
        order = np.random.default_rng(self._half_seed).permutation(len(encoded))
        halves = np.array_split(encoded[order], 2)
        scores = []
        for trained, held_out in (halves, halves[::-1]):
            P, _ = self._fit(trained, self._fit_seed, max_iter=n_iter)
            parts = self._parts(trained, P)
            scores.append(np.column_stack([self._scores(held_out, *part) for part in parts]))
        return np.vstack(scores)

    def _parts(self, encoded, P):
        """Return the population, the same with other single columns, and mixtures of public rows.

        The single columns are those of the reweighted public table, so that the two populations and
        the public rows differ in their dependence.
        """
        rng = np.random.default_rng(self._seed)
        encoded = encoded[rng.permutation(len(encoded))[:_MOST_ANSWERS]]
        equal = np.full(len(P), 1 / len(P))
        parts = [Mixture(P, equal)]
        for codes in self._tables:
            rows = completed(codes, parts[:2][-1].P, self._sizes, rng)
            covered, floor = coverages(self._mechanism, encoded, self._tensor(rows))
            shares = reweighted(covered, floor, self._strength / len(encoded))
            if len(parts) == 1:
                parts.append(Mixture(tilted(P, shares @ rows, self._sizes), equal))
            parts.append(Mixture(rows, shares))
        return parts

    def _scores(self, encoded, P, shares):
        shares = as_tensor(shares, device=self._fit.device)
        return log_likelihoods(self._mechanism, encoded, self._tensor(P), shares).cpu().numpy()

    def _tensor(self, P):
        return as_tensor(np.ascontiguousarray(P.T), device=self._fit.device)


def completed(codes, P, sizes, rng):
    """Return rows with the known cells of a table, and the others from a population.

    For each row of the table a row of the population is drawn, given the known cells, whose
    probabilities stand for the other cells. So unknown columns depend on each other, and on known
    ones, as they do in the population.

    Parameters
    ----------
    codes : ndarray of int of shape (n, n_columns)
        -1 for unknown cells.
    P : ndarray of shape (n_rows, D)
    sizes : sequence of int
        Categories of each column.
    rng : numpy.random.Generator

    Returns
    -------
    ndarray of shape (n, D)
    """
    starts = np.cumsum([0, *sizes])[:-1]
    logs = np.log(np.maximum(P, _TINY)).T
    given = rng.gumbel(size=(len(codes), len(P)))
    for column, start in zip(codes.T, starts, strict=True):
        known = np.flatnonzero(column >= 0)
        given[known] += logs[start + column[known]]
    rows = P[given.argmax(axis=1)]
    for column, start, size in zip(codes.T, starts, sizes, strict=True):
        known = np.flatnonzero(column >= 0)
        rows[known, start : start + size] = np.eye(size)[column[known]]
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
        for _ in range(_MAX_ITER):
            block = block * ((mean + _TINY) / block.mean(axis=0))
            block /= block.sum(axis=1, keepdims=True)
        blocks.append(block)
    return np.hstack(blocks)


def reweighted(covered, floor, strength):
    """Return the shares of rows that explain answers, near equal ones.

    Minimizes -mean_i log(floor + Σ_r w_r K_ir) + strength · KL(w ‖ uniform).

    Parameters
    ----------
    covered : tensor of shape (n, n_rows)
        K, from `coverages`.
    floor : float
    strength : float

    Returns
    -------
    ndarray of shape (n_rows,)
    """
    n, n_rows = covered.shape

    def objective(logits):
        logits = torch.from_numpy(logits)
        logs = torch.log_softmax(logits, 0)
        shares = logs.exp()
        odds = floor + covered @ shares.to(covered)
        divergence = (shares * logs).sum() + np.log(n_rows)
        value = -odds.log().mean(dtype=torch.float64).item() + strength * divergence.item()
        slope = -(covered.T @ (1 / odds)).double().cpu() / n + strength * logs
        slope = shares * (slope - (shares * slope).sum())
        # In units in which the first step of the solver is neither tiny nor huge.
        return value * n_rows, slope.numpy() * n_rows

    options = {"maxiter": _MAX_ITER}
    found = minimize(objective, np.zeros(n_rows), jac=True, method="L-BFGS-B", options=options)
    return softmax(found.x)


def mixture_weights(scores):
    """Return the weights of two populations, and one or more mixtures of public rows.

    Both groups are averaged by posterior probabilities, which are nearly 0 or 1 where the answers
    decide; prior odds are 1 to 3 against the first mixture of public rows. The groups are mixed
    with the posterior mean of their shares, since neither need be right.

    Parameters
    ----------
    scores : ndarray of shape (n, 2 + n_public)
        Log-likelihoods of answers, in nats, from fits to other answers.

    Returns
    -------
    ndarray of shape (2 + n_public,)
    """
    groups = scores[:, :2], scores[:, 2:]
    # A right target from the population costs less than a wrong one from the public table.
    doubt = np.zeros(groups[1].shape[1])
    doubt[0] = np.log(_DOUBT)
    logs = [log_softmax(groups[0].sum(axis=0)), log_softmax(groups[1].sum(axis=0) - doubt)]
    alone, public = (
        logsumexp(group + log, axis=1) for group, log in zip(groups, logs, strict=True)
    )
    share = mixture_share(alone, public)
    odds = np.exp(logs[0]), np.exp(logs[1])
    return np.concatenate([(1 - share) * odds[0], share * odds[1]])


def mixture_share(alone, public):
    """Return the posterior mean of the share of the second part of a mixture of two.

    The prior is uniform in [0, 1], so that answers that do not decide give each part one half.

    Parameters
    ----------
    alone, public : ndarray of shape (n,)
        Log-likelihoods of each answer, in nats.

    Returns
    -------
    float
    """
    shares = (np.arange(_N_SHARES) + 0.5) / _N_SHARES
    scores = np.array(
        [np.logaddexp(alone + np.log1p(-s), public + np.log(s)).sum() for s in shares]
    )
    return float(softmax(scores) @ shares)
