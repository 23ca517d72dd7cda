"""Synthetic rows whose weights make them count as the noisy tables did."""

import math

import numpy as np
import pandas as pd
from scipy.linalg import cho_factor, cho_solve, solve_triangular
from scipy.optimize import minimize
from scipy.sparse import csr_array

from sklearn_dpgen.schema import Numeric
from sklearn_dpgen.schema._binned import Binned
from sklearn_dpgen.schema._column import MadeUpColumn
from sklearn_dpgen.tables._records import encode_codes
from sklearn_dpgen.utils._random import split_random_state

__all__ = ["Calibration"]

# By how much law and population may differ in what no table tells of: the variance of the density
# of one relative to the other, of which a part goes with 1/n, and a part is of cells and of what is
# not counted.
_UNSEEN, _UNSEEN_LEAST = 100.0, 0.01
# Noise of counts that are without, in records: of rounding.
_ROUNDING = 0.1
# Of a share; with less, float64 does not tell tables apart that agree.
_LEAST_NOISE = 1e-7
# Of tables beside those of the columns, cells that are cheap; of these, more take minutes.
_CHEAP_CELLS, _MOST_CELLS = 2000, 10_000
_MAX_STEPS = 40
# Rows in each interval that may be hidden, and the part of their share that tables begin with.
_N_HIDDEN, _HIDDEN = 20, 0.1
# Standard deviations of noise beyond which an interval is known to hold records.
_CLEAR = 3.0


class Calibration:
    """Rows of a fitted law, and the noisy tables of their columns.

    Parameters
    ----------
    sampler : TableSampler
        Fitted.
    columns : collection of str
        Of the analysis.
    n_rows : int
    random_state : int, RandomState or None

    Notes
    -----
    Rows r of the law, of the share ω_r each, are in the cells A_r of the tables; m are the noisy
    shares of these, of the variances Σ. A score ψ has under the population about the mean

        ω·ψ + Cov(ψ, A) M⁻¹ (m - ω·A),  M = Cov(A) + Σ / κ,

    the regression estimator of survey sampling (Särndal, Swensson and Wretman, "Model assisted
    survey sampling", 1992), with the law as the model. The law may be shrunken or biased: what the
    tables tell of is put right. It is the best linear one where the population differs from the law
    by errors of the rows, of the variance κ q_r. The shares q are ω, and of single columns not less
    in an interval than its noise: the law may have lost what noise hides. Further rows with ω_r = 0
    stand for that.
    """

    def __init__(self, sampler, columns, *, n_rows, random_state):
        encoder = sampler.encoder_
        # Codes are in the order of the schema, which may be another than that of the records.
        places = {name: j for j, name in enumerate(encoder.columns_)}
        made_up = [name for name in columns if isinstance(encoder.columns_[name], MadeUpColumn)]
        if made_up:
            raise ValueError(f"Estimates are of columns that were measured, not of {made_up}.")
        # In an order that does not hang on how names are hashed.
        columns = sorted(columns, key=places.__getitem__)
        (seed,) = split_random_state(random_state, 1)
        rng = np.random.default_rng(seed)
        self.n_records = sampler.n_records_
        self.unseen = max(_UNSEEN / self.n_records, _UNSEEN_LEAST)
        tables = _tables(sampler, set(columns))
        frame = sampler._rows(None).sample(n_rows, rng, most=n_rows)
        codes = np.column_stack(encode_codes(frame, encoder).columns).astype(np.int64)
        hidden, shares = _hidden_rows(codes, sampler, columns, rng)
        codes = np.concatenate([codes, hidden])
        self._unclear = _unclear(codes, sampler, columns)
        self._law = np.append(np.full(n_rows, 1 / n_rows), np.zeros(len(hidden)))
        self._prior = np.append(self._law[:n_rows], shares)
        added = encoder.decode_codes(hidden, rng=rng)
        rules, self.kept = sampler._rules_, np.ones(len(codes), dtype=bool)
        if rules is not None:
            self.kept[n_rows:] = rules.project(added)
        self.frame = pd.concat([frame, added], ignore_index=True)
        self._bins = _bins(self.frame, codes, encoder, columns)

        cells, start = np.empty((len(codes), len(tables)), dtype=np.int64), 0
        for i, table in enumerate(tables):
            groups = [
                groups[codes[:, places[name]]]
                for name, groups in zip(table.columns, table.groups, strict=True)
            ]
            cells[:, i] = start + np.ravel_multi_index(groups, table.counts.shape)
            start += table.counts.size
        edges = np.arange(0, cells.size + 1, len(tables))
        shape = len(codes), start
        self._cells = csr_array((np.ones(cells.size), cells.ravel(), edges), shape=shape)
        scales = [np.broadcast_to(t.noise_scale, t.counts.shape).ravel() for t in tables]
        noise = np.concatenate(scales) / self.n_records
        self._variances = np.maximum(noise, max(_ROUNDING / self.n_records, _LEAST_NOISE)) ** 2
        noisy = np.concatenate([table.counts.ravel() for table in tables]) / self.n_records
        self.gaps = noisy - self._cells.T @ self._law
        total = self._prior.sum()
        self._center = self._cells.T @ self._prior / total
        covariance = (self._cells.T @ (self._cells * self._prior[:, None])).toarray()
        covariance -= total * np.outer(self._center, self._center)
        covariance[np.diag_indices(start)] += self._variances / self.unseen
        self._factor = cho_factor(covariance, overwrite_a=True, check_finite=False)

    def weights(self):
        """Return a weight of each row, of sum 1; some may be negative, as counts are."""
        loads = cho_solve(self._factor, self.gaps)
        return self._law + self._prior * (self._cells @ loads - self._center @ loads)

    def positive_weights(self, gaps=None):
        """Return positive weights of sum 1, by exponential tilting: near to the others if small.

        ``gaps`` are in the place of those of the tables.
        They minimize the relative entropy to the law, plus the squares of what is left of the gaps
        in units of Σ / κ; by the dual, whose curvature is about M.
        """
        gaps = self.gaps if gaps is None else gaps
        factor, is_lower = self._factor
        base = np.maximum(self._law, _HIDDEN * self._prior)
        base /= base.sum()
        spread, means = self._variances / self.unseen, self._cells.T @ self._law + gaps

        def turned(vector, *, back=False):
            trans = int(is_lower != back)
            return solve_triangular(factor, vector, lower=is_lower, trans=trans, check_finite=False)

        def tilted(loads):
            scores = self._cells @ loads
            highest = scores.max()
            found = base * np.exp(scores - highest)
            return found / found.sum(), highest + math.log(found.sum())

        def dual(vector):
            loads = turned(vector)
            weights, value = tilted(loads)
            slope = self._cells.T @ weights - means + spread * loads
            value += (spread * loads / 2 - means) @ loads
            return value, turned(slope, back=True)

        options = {"maxiter": _MAX_STEPS}
        found = minimize(dual, np.zeros(len(gaps)), jac=True, method="L-BFGS-B", options=options)
        return tilted(turned(found.x))[0]

    def drawn_gaps(self, rng):
        """Return gaps with once more the noise of the tables, and the chance of a sample."""
        noise = np.sqrt(self._variances) * rng.standard_normal(len(self.gaps))
        chance = np.sqrt(self._law / self.n_records) * rng.standard_normal(len(self._law))
        chance -= self._law * chance.sum()
        return self.gaps + noise + self._cells.T @ chance

    def variances(self, influences):
        """Return variances of estimates, which part tables tell of, and which part noise may hide.

        Parameters
        ----------
        influences : ndarray of shape (n, k)
            What a row adds to each of k estimates, were it in place of all: the influence function.

        Returns
        -------
        variances : ndarray of shape (k,)
            Of noise, of the records as a sample, of what no table tells of, and of where values
            lie in their bins.
        measured : ndarray of shape (k,)
            The share of the variance of influences that is a sum over cells of the tables.
        hidden : ndarray of shape (k,)
            The share of it that is of rows in intervals whose records noise may hide.
        """
        total = self._prior.sum()
        influences = influences - self._prior @ influences / total
        scaled = self._cells.T @ (influences * self._prior[:, None])
        loads = cho_solve(self._factor, scaled)
        told = self._cells @ loads - self._center @ loads
        noise, seen = self._variances @ loads**2, self._prior @ told**2
        every, unseen = self._prior @ influences**2, self._prior @ (influences - told) ** 2
        measured = 1 - np.divide(unseen, every, out=np.zeros(len(every)), where=every > 0)
        binned = sum(
            (self._of_bins(bins, values, influences) for bins, values in self._bins),
            np.zeros(len(every)),
        )
        lost = (self._prior * self._unclear) @ influences**2
        hidden = np.divide(lost, every, out=np.zeros(len(every)), where=every > 0)
        variances = noise + seen / self.n_records + self.unseen * unseen + binned
        return variances, measured, hidden

    def _of_bins(self, bins, values, influences):
        """Return what the place of values in their bins may change: by a standard deviation each.

        Of the influence, the part that is linear in the values of a bin; what chance makes of that
        in so many rows is taken off.
        """
        shares, counts = np.bincount(bins, self._prior), np.bincount(bins)
        spread = np.bincount(bins, self._prior * values**2)
        kept = (spread > 1e-12 * shares) & (counts > 1)
        found = np.zeros(influences.shape[1])
        for i, one in enumerate(influences.T):
            slopes = np.bincount(bins, self._prior * values * one)[kept]
            means = np.bincount(bins, self._prior * one)[kept] / shares[kept]
            squares = np.bincount(bins, self._prior * one**2)[kept] - shares[kept] * means**2
            chance = shares[kept] * squares / counts[kept]
            found[i] = max((shares[kept] * slopes**2 / spread[kept] - chance).sum(), 0)
        return found


def _coarsest(sampler, columns):
    """Return place, groups, noisy counts and their noise in the coarsest table of each column."""
    places = {name: j for j, name in enumerate(sampler.encoder_.columns_)}
    tables = {table.columns[0]: table for table in sampler.one_way_marginals_}
    found = [(places[name], tables[name]) for name in columns if name in tables]
    return [(j, table.groups[0], table.counts, table.noise_scale) for j, table in found]


def _hidden_rows(codes, sampler, columns, rng):
    """Return rows in what noise may hide of single columns, and their shares.

    Of each group of a column whose share is less than its noise. Other columns are as in any rows.
    """
    rows, shares = [codes[:0]], [np.zeros(0)]
    for place, groups, _, noise in _coarsest(sampler, columns):
        noise = noise / sampler.n_records_
        found = np.bincount(groups[codes[:, place]], minlength=len(noise)) / len(codes)
        for group in np.flatnonzero(found < noise):
            added = codes[rng.integers(len(codes), size=_N_HIDDEN)]
            added[:, place] = rng.choice(np.flatnonzero(groups == group), size=_N_HIDDEN)
            rows.append(added)
            shares.append(np.full(_N_HIDDEN, (noise[group] - found[group]) / _N_HIDDEN))
    return np.concatenate(rows), np.concatenate(shares)


def _unclear(codes, sampler, columns):
    """Return which rows are in an interval of a column whose noisy count is near to its noise."""
    binned = [n for n in columns if isinstance(sampler.encoder_.columns_[n], Binned)]
    found = np.zeros(len(codes), dtype=bool)
    for place, groups, counts, noise in _coarsest(sampler, binned):
        found |= (counts < _CLEAR * noise)[groups[codes[:, place]]]
    return found


def _bins(frame, codes, encoder, columns):
    """Return the bin of each row and its value, less the mean of the bin, of columns of numbers."""
    found = []
    for place, (name, column) in enumerate(encoder.columns_.items()):
        if name in columns and isinstance(column, Binned) and isinstance(column.column, Numeric):
            values = frame[name].to_numpy(dtype=np.float64, na_value=0.0)
            sums = np.bincount(codes[:, place], values)
            means = sums / np.maximum(np.bincount(codes[:, place]), 1)
            found.append((codes[:, place], values - means[codes[:, place]]))
    return found


def _unselected(marginals):
    """Return the coarsest table of each single column.

    By the counts of finer ones its cells were found, such as values that stand out: the more of
    them the more noise they had.
    """
    return list({table.columns[0]: table for table in marginals}.values())


def _tables(sampler, columns):
    """Return the released tables of columns, and those that hold one of them, while cheap."""
    found = [*_unselected(sampler.one_way_marginals_), *sampler.marginals_]
    kept = [table for table in found if columns.issuperset(table.columns)]
    if not kept:
        raise ValueError(f"No table tells of {sorted(columns)}: a constant is not measured.")
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
