"""Calibration of synthetic rows: weights under which they reproduce the noisy marginals."""

import math

import numpy as np
import pandas as pd
from scipy.linalg import cho_factor, cho_solve, solve_triangular
from scipy.optimize import minimize
from scipy.sparse import csr_array

from sklearn_dpgen.exceptions import PublicValueError
from sklearn_dpgen.schema import Numeric
from sklearn_dpgen.schema._binned import Binned
from sklearn_dpgen.schema._column import MadeUpColumn
from sklearn_dpgen.tables._records import encode_codes
from sklearn_dpgen.utils._random import split_random_state

__all__ = ["Calibration"]

# Relative variance κ allowed for the difference of model and population in directions that no
# marginal measures: a part that falls as 1/n, and a constant part for differences within cells.
_UNSEEN, _UNSEEN_LEAST = 100.0, 0.01
# Least noise of counts, in records, for marginals without noise: rounding.
_ROUNDING = 0.1
# Least noise of a share; below, consistent marginals are not distinguishable in float64.
_LEAST_NOISE = 1e-7
# Marginals with further columns are added while they have few cells. Above the limit on all
# cells a factorization takes minutes.
_CHEAP_CELLS, _MOST_CELLS = 2000, 10_000
_MAX_STEPS = 40
# Rows added per group of hidden records, and the factor of their share in the base weights.
_N_HIDDEN, _HIDDEN = 20, 0.1
# Standard deviations of noise above which a count shows that its interval has records.
_CLEAR = 3.0


class Calibration:
    """Rows of a fitted model, calibrated to the noisy marginals of their columns.

    Parameters
    ----------
    sampler : TableSampler
        Fitted.
    columns : collection of str
        Columns of the analysis.
    n_rows : int
    random_state : int, RandomState or None

    Notes
    -----
    Rows r of the model have shares ω_r and are in the cells A_r of the marginals, whose noisy
    shares m have variances Σ. The estimated population mean of a score ψ is

        ω·ψ + Cov(ψ, A) M⁻¹ (m - ω·A),  M = Cov(A) + Σ / κ,

    the model-assisted regression estimator of survey sampling [1]_. It corrects a shrunken or
    biased model in all directions that the marginals measure. It is the best linear estimator if
    the population differs from the model by independent errors of the rows, of variance κ q_r. The
    shares q are ω, but in an interval of a single column at least its noise, as the model may have
    lost records below the noise. Further rows with ω_r = 0 represent these.

    References
    ----------
    .. [1] C.-E. Särndal, B. Swensson, J. Wretman, "Model assisted survey sampling", 1992.
    """

    def __init__(self, sampler, columns, *, n_rows, random_state):
        encoder = sampler.encoder_
        # Codes are in the order of the schema, which may differ from the order of the records.
        places = {name: j for j, name in enumerate(encoder.columns_)}
        made_up = [name for name in columns if isinstance(encoder.columns_[name], MadeUpColumn)]
        if made_up:
            raise PublicValueError(f"columns must be measured, got {made_up}, which are computed.")
        # Sorted, as the order of a set depends on the hashes of names.
        columns = sorted(columns, key=places.__getitem__)
        (seed,) = split_random_state(random_state, 1)
        rng = np.random.default_rng(seed)
        self.n_records = sampler.n_records_
        self.unseen = max(_UNSEEN / self.n_records, _UNSEEN_LEAST)
        tables = _tables(sampler, set(columns))
        frame = sampler._record_sampler(None).sample(n_rows, rng, most=n_rows)
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
        """Return a weight of each row, with sum 1; some may be negative, as noisy counts are."""
        loads = cho_solve(self._factor, self.gaps)
        return self._law + self._prior * (self._cells @ loads - self._center @ loads)

    def positive_weights(self, gaps=None):
        """Return positive weights with sum 1, by exponential tilting.

        They minimize the relative entropy to the model plus the squared residuals of the marginals
        in units of Σ / κ. For small residuals they approximate :meth:`weights`. ``gaps`` replaces
        the residuals of the released marginals. The dual is solved, whose curvature is about M.
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
        """Return residuals with one more draw of the noise and of the sampling error."""
        noise = np.sqrt(self._variances) * rng.standard_normal(len(self.gaps))
        chance = np.sqrt(self._law / self.n_records) * rng.standard_normal(len(self._law))
        chance -= self._law * chance.sum()
        return self.gaps + noise + self._cells.T @ chance

    def variances(self, influences):
        """Return variances of estimates, and their measured and hidden shares.

        Parameters
        ----------
        influences : ndarray of shape (n, k)
            Influence function of each of k estimates, at each row.

        Returns
        -------
        variances : ndarray of shape (k,)
            Sum of the variances by noise, by sampling, in unmeasured directions, and by the
            position of values in their bins.
        measured : ndarray of shape (k,)
            Share of the variance of influences that is a sum over cells of the marginals.
        hidden : ndarray of shape (k,)
            Share of it in rows of intervals whose counts are below the noise.
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
        """Return the variance that the unknown position of values in their bins may add.

        It is the variance of the part of the influence that is linear in the values of a bin,
        minus its expectation by chance in the given number of rows.
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
    """Return the position, groups, counts and noise of the coarsest marginal of each column."""
    places = {name: j for j, name in enumerate(sampler.encoder_.columns_)}
    tables = {table.columns[0]: table for table in sampler.one_way_marginals_}
    found = [(places[name], tables[name]) for name in columns if name in tables]
    return [(j, table.groups[0], table.counts, table.noise_scale) for j, table in found]


def _hidden_rows(codes, sampler, columns, rng):
    """Return rows in groups of single columns that are below the noise, and the shares of these.

    These groups have a share in the model that is less than their noise. The values of the other
    columns are those of random rows.
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
    """Return a mask of the rows in an interval of a column whose count is below the noise."""
    binned = [n for n in columns if isinstance(sampler.encoder_.columns_[n], Binned)]
    found = np.zeros(len(codes), dtype=bool)
    for place, groups, counts, noise in _coarsest(sampler, binned):
        found |= (counts < _CLEAR * noise)[groups[codes[:, place]]]
    return found


def _bins(frame, codes, encoder, columns):
    """Return, per numeric column, the bin of each row and its value minus the mean of the bin."""
    found = []
    for place, (name, column) in enumerate(encoder.columns_.items()):
        if name in columns and isinstance(column, Binned) and isinstance(column.column, Numeric):
            values = frame[name].to_numpy(dtype=np.float64, na_value=0.0)
            sums = np.bincount(codes[:, place], values)
            means = sums / np.maximum(np.bincount(codes[:, place]), 1)
            found.append((codes[:, place], values - means[codes[:, place]]))
    return found


def _unselected(marginals):
    """Return the coarsest marginal of each single column.

    Cells of finer marginals were selected by the counts themselves, for example frequent values,
    so the noise of these counts is biased upwards.
    """
    return list({table.columns[0]: table for table in marginals}.values())


def _tables(sampler, columns):
    """Return the marginals of columns, and those with one of the columns that have few cells."""
    found = [*_unselected(sampler.one_way_marginals_), *sampler.marginals_]
    kept = [table for table in found if columns.issuperset(table.columns)]
    if not kept:
        raise PublicValueError(f"columns must be measured, got the constants {sorted(columns)}.")
    n_cells = sum(table.counts.size for table in kept)
    if n_cells > _MOST_CELLS:
        raise PublicValueError(
            f"columns must have marginals of at most {_MOST_CELLS} cells, got {n_cells} for "
            f"{len(columns)} columns. Name only the columns of the analysis."
        )
    for table in found:
        if columns.intersection(table.columns) and not columns.issuperset(table.columns):
            n_cells += table.counts.size
            if n_cells > _CHEAP_CELLS:
                break
            kept.append(table)
    return kept
