"""Synthetic rows whose weights make them count as the noisy tables did."""

import math

import numpy as np
from scipy.linalg import cho_factor, cho_solve, solve_triangular
from scipy.optimize import minimize
from scipy.sparse import csr_array

from sklearn_dpgen.utils._random import split_random_state

__all__ = ["Calibration"]

# By how much law and population may differ in what no table tells of: the variance of the density
# of one relative to the other, of which a part goes with 1/n, and a part is of cells and of what is
# not counted.
_UNSEEN, _UNSEEN_LEAST = 100.0, 0.01
# Noise of counts that are without, in records: of rounding.
_ROUNDING = 0.1
# Of tables beside those of the columns, cells that are cheap; of these, more take minutes.
_CHEAP_CELLS, _MOST_CELLS = 2000, 10_000
_MAX_STEPS = 40


class Calibration:
    """Rows of a fitted law, and the noisy tables of their columns.

    Parameters
    ----------
    sampler : SlicedMeasureSampler
        Fitted.
    columns : collection of str
        The tables that are of these columns alone count.
    n_rows : int
    random_state : int, RandomState or None

    Notes
    -----
    Rows r of the law P, in cells A_r of the tables, whose shares are p = E A under it; m are the
    noisy shares, of the variances Σ. A score ψ of rows has under the population the mean

        E ψ + E[ψ (A - p)] M⁻¹ (m - p),  M = Cov(A) + Σ / κ,

    the regression estimator of survey sampling (Särndal, Swensson and Wretman, "Model assisted
    survey sampling", 1992), with the law as the model. The law may be shrunken or biased: what the
    tables tell of is put right. Where P differs from the population by a random density of the
    variance κ, it is the best linear one.
    """

    def __init__(self, sampler, columns, *, n_rows, random_state):
        names = list(sampler.feature_names_in_)
        (seed,) = split_random_state(random_state, 1)
        rng = np.random.default_rng(seed)
        self.n_records = sampler.n_records_
        self.unseen = max(_UNSEEN / self.n_records, _UNSEEN_LEAST)
        tables = _tables(sampler, set(columns))
        sizes = [table.counts.size for table in tables]
        codes = sampler.law_.sample(n_rows, rng)
        self.frame = sampler.encoder_.decode_codes(codes, rng=rng)
        places = {name: j for j, name in enumerate(names)}
        cells = np.empty((n_rows, len(tables)), dtype=np.int64)
        start = 0
        for i, table in enumerate(tables):
            shape = np.shape(table.counts)
            groups = [
                g[codes[:, places[c]]] for c, g in zip(table.columns, table.groups, strict=True)
            ]
            cells[:, i] = start + np.ravel_multi_index(groups, shape)
            start += sizes[i]
        edges = np.arange(0, cells.size + 1, len(tables))
        self._cells = csr_array((np.ones(cells.size), cells.ravel(), edges), shape=(n_rows, start))
        scales = [np.broadcast_to(t.noise_scale, t.counts.shape).ravel() for t in tables]
        self._variances = np.maximum(np.concatenate(scales), _ROUNDING) ** 2 / self.n_records**2
        noisy = np.concatenate([np.ravel(table.counts) for table in tables]) / self.n_records
        self._means = self._cells.mean(axis=0)
        self._gaps = noisy - self._means
        covariance = (self._cells.T @ self._cells).toarray() / n_rows
        covariance -= np.outer(self._means, self._means)
        covariance[np.diag_indices(start)] += self._variances / self.unseen
        self._factor = cho_factor(covariance, overwrite_a=True, check_finite=False)

    @property
    def n_rows(self):
        """Number of rows."""
        return self._cells.shape[0]

    def weights(self):
        """Return a weight of each row, of mean 1; some may be negative, as counts are."""
        found = cho_solve(self._factor, self._gaps)
        return 1 + self._cells @ found - self._means @ found

    def positive_weights(self, gaps):
        """Return positive weights of mean 1, by exponential tilting: near to the others if small.

        They minimize the relative entropy to the law, plus the squares of what is left of the gaps
        in units of Σ / κ; by the dual, whose curvature is about M.
        """
        factor, is_lower = self._factor
        spread, means = self._variances / self.unseen, self._means + gaps

        def turned(vector, *, back=False):
            trans = int(is_lower == back)
            return solve_triangular(factor, vector, lower=is_lower, trans=trans, check_finite=False)

        def tilted(loads):
            scores = self._cells @ loads
            highest = scores.max()
            found = np.exp(scores - highest)
            return found / found.mean(), highest + math.log(found.mean())

        def dual(vector):
            loads = turned(vector)
            weights, value = tilted(loads)
            slope = self._cells.T @ weights / self.n_rows - means + spread * loads
            value += (spread * loads / 2 - means) @ loads
            return value, turned(slope, back=True)

        options = {"maxiter": _MAX_STEPS}
        found = minimize(dual, np.zeros(len(gaps)), jac=True, method="L-BFGS-B", options=options)
        return tilted(turned(found.x))[0]

    def drawn_gaps(self, rng):
        """Return gaps with once more the noise of the tables, and the chance of a sample."""
        noise = np.sqrt(self._variances) * rng.standard_normal(len(self._means))
        chance = rng.standard_normal(self.n_rows) / math.sqrt(self.n_rows * self.n_records)
        chance -= chance.mean()
        return self._gaps + noise + self._cells.T @ chance

    def variances(self, influences):
        """Return the variance of estimates, and which part the tables tell of.

        Parameters
        ----------
        influences : ndarray of shape (n_rows, k)
            What a row adds to each of k estimates, were it in place of all: the influence function.

        Returns
        -------
        variances : ndarray of shape (k,)
            Of noise, of the records as a sample, and of what no table tells of.
        measured : ndarray of shape (k,)
            The share of the variance of influences that is a sum over cells of the tables.
        """
        influences = influences - influences.mean(axis=0)
        loads = cho_solve(self._factor, self._cells.T @ influences / self.n_rows)
        told = self._cells @ loads
        told -= told.mean(axis=0)
        noise = self._variances @ loads**2
        total, seen = (influences**2).mean(axis=0), (told**2).mean(axis=0)
        unseen = ((influences - told) ** 2).mean(axis=0)
        measured = 1 - np.divide(unseen, total, out=np.zeros(len(total)), where=total > 0)
        return noise + seen / self.n_records + self.unseen * unseen, measured


def _tables(sampler, columns):
    """Return the released tables of columns, and those that hold one of them, while cheap."""
    found = [*sampler.marginals_, *sampler.slices_]
    kept = [table for table in found if columns.issuperset(table.columns)]
    n_cells = sum(table.counts.size for table in kept)
    if n_cells > _MOST_CELLS:
        raise ValueError(
            f"columns: the tables of these {len(columns)} columns have {n_cells} cells, more than "
            f"{_MOST_CELLS}: name those columns alone that the analysis is of."
        )
    for table in found:
        if columns.intersection(table.columns) and not columns.issuperset(table.columns):
            n_cells += table.counts.size
            if n_cells > _CHEAP_CELLS:
                break
            kept.append(table)
    return kept
