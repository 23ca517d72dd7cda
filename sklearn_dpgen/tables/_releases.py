"""Noisy counts of single columns and of marginals, and the selection of the marginals."""

import itertools
import math
from dataclasses import dataclass
from functools import reduce

import numpy as np
from sklearn.isotonic import IsotonicRegression

from sklearn_dpgen.persistence._declarations import Array, demand, saved, tuple_of
from sklearn_dpgen.preprocessing import TabularEncoder
from sklearn_dpgen.schema import Datetime, Numeric
from sklearn_dpgen.schema._binned import Binned
from sklearn_dpgen.tables._column_trees import MAX_LEAVES, ColumnCells, ColumnTree
from sklearn_dpgen.tables._marginals import group_sums
from sklearn_dpgen.tables._privacy_plan import CELLS, affordable_cells, affordable_marginals
from sklearn_dpgen.tables._records import with_bins
from sklearn_dpgen.utils._validation import Integral

__all__ = [
    "Measurements",
    "NoisyMarginal",
    "column_trees",
    "fine_encoder",
    "measure_columns",
    "measure_rounds",
    "noise_factors",
    "release_marginals",
    "release_singles",
    "scores",
    "total_records",
]


def noise_factors(weights, n_levels=1):
    """Return the noise of a count of each table, over that of the vector of all.

    Parameters
    ----------
    weights : ndarray of shape (m,)
        Positive.
    n_levels : int or array-like of shape (m,), default=1
        How often each table counts a record.

    Returns
    -------
    ndarray of shape (m,)
        √(Σ l w²) / w: tables over them are a vector to which a record adds one of l2 norm 1.
    """
    return np.sqrt((np.asarray(n_levels) * weights**2).sum()) / weights


def release_singles(leaves, trees, weights, release):
    """Release the counts of single columns, on all levels of their trees, as one vector.

    Parameters
    ----------
    leaves : sequence of ndarray
        Exact counts of the leaves of each tree, in which a record adds one to one.
    trees : sequence of ColumnTree
    weights : ndarray of shape (p,)
        Positive; the noise of a column is in proportion to the inverse.
    release : callable
        From a vector to which a record adds one of l2 norm 1, to one with noise.

    Returns
    -------
    counts : list of ndarray
        Of each tree, with noise.
    factors : ndarray of shape (p,)
        The noise of a count over that of the vector.
    """
    factors = noise_factors(weights, [tree.n_levels for tree in trees])
    exact = [tree.counts(c) / f for f, tree, c in zip(factors, trees, leaves, strict=True)]
    noisy = release(np.concatenate(exact))
    stops = np.cumsum([len(part) for part in exact])
    counts = [part * f for part, f in zip(np.split(noisy, stops[:-1]), factors, strict=True)]
    return counts, factors


def release_marginals(tables, weights, release):
    """Release tables as one vector.

    Parameters
    ----------
    tables : sequence of ndarray
        Exact counts, in each of which a record adds one to one cell.
    weights : ndarray of shape (m,)
        Positive; the noise of a table is in proportion to the inverse.
    release : callable
        From a vector to which a record adds one of l2 norm 1, to one with noise.

    Returns
    -------
    tables : list of ndarray
        With noise.
    factors : ndarray of shape (m,)
        The noise of a cell over that of the vector.
    """
    factors = noise_factors(weights)
    noisy = release(np.concatenate([t.ravel() / f for f, t in zip(factors, tables, strict=True)]))
    stops = np.cumsum([table.size for table in tables])
    parts = np.split(noisy, stops[:-1])
    released = [
        (part * factor).reshape(table.shape)
        for part, factor, table in zip(parts, factors, tables, strict=True)
    ]
    return released, factors


def total_records(counts, trees, factors):
    """Return an estimate of the number of records, at least 1, from counts of single columns.

    Parameters
    ----------
    counts : sequence of ndarray
        Of each tree, with noise.
    trees : sequence of ColumnTree
    factors : ndarray of shape (p,)
        Relative scales of their noise.

    Returns
    -------
    float
    """
    totals, variances = [], []
    for noisy, tree, factor in zip(counts, trees, factors, strict=True):
        levels, nulls, variance = tree.estimate(noisy)
        totals.append(levels[-1].sum() + nulls.sum())
        variances.append(variance * factor**2)
    return max(1.0, float(np.average(totals, weights=1 / np.array(variances))))


# In leaves: from there all distances are about the same.
_FAR = 1 << 40


def fine_encoder(schema, n_bins):
    """Return an encoder into the finest cells, not fitted, and the columns with bins to find.

    Parameters
    ----------
    schema : Schema
    n_bins : "auto", int or mapping
        Public bins of numbers and dates; those not named are found.

    Returns
    -------
    encoder : TabularEncoder
    found : list of str
    """
    ordered = [name for name, c in schema.items() if isinstance(c, Numeric | Datetime)]
    if isinstance(n_bins, Integral):
        return TabularEncoder(schema, n_bins=dict.fromkeys(ordered, n_bins)), []
    given = {} if n_bins == "auto" else n_bins
    found = [name for name in ordered if name not in given]
    return TabularEncoder(schema, n_bins=dict.fromkeys(found, MAX_LEAVES) | given), found


def column_trees(encoder, found):
    """Return the tree that each column is counted on.

    Parameters
    ----------
    encoder : TabularEncoder
        Fitted, of :func:`fine_encoder`.
    found : list of str
        Columns with bins to find; the others are flat.
    """
    return [
        ColumnTree(column.n_bins, nullable=column.nullable, anchor=_anchor(column))
        if name in found
        else ColumnTree(column.domain.n_features, is_flat=True)
        for name, column in encoder.columns_.items()
    ]


def _anchor(binned):
    """Return the leaf of zero, which may be outside; of dates one that is far from all."""
    column, n_bins = binned.column, binned.n_bins
    if isinstance(column, Datetime):
        return -_FAR
    low, high = column._bounds
    if low <= 0 <= high:
        edges = np.array(binned.edges[:-1])
        return int(np.searchsorted(edges, column.to_unit(0.0), side="right") - 1)
    leaves = -low / (high - low) * n_bins
    return round(min(max(leaves, -_FAR), _FAR))


def measure_columns(leaves, encoder, trees, weights, noise_scale, release, *, n_records=None):
    """Release the counts of each column, and find the cells that they tell of.

    Parameters
    ----------
    leaves : mapping of int to ndarray
        Exact counts of the leaves of each column but constants, by its place.
    encoder : TabularEncoder
        Fitted, of :func:`fine_encoder`.
    trees : list of ColumnTree
    weights : ndarray of shape (p,)
        Positive.
    noise_scale : float
        Of the release.
    release : callable
        From a vector to which a record adds one of l2 norm 1, to one with noise.
    n_records : float or None, default=None
        The public number of records; None estimates it from the noisy counts.

    Returns
    -------
    cells : list of ColumnCells
        Of each column.
    n_records : float
        As given, or estimated.
    encoder : TabularEncoder
        Fitted, with these cells as bins.
    bins : list of ndarray of int
        The cell of each leaf, then of null, of each column.
    marginals : list of NoisyMarginal
        What was released, a table a level.
    """
    # What is known of a constant need not be paid for.
    measured, told = sorted(leaves), [trees[j] for j in sorted(leaves)]
    exact = [leaves[j] for j in measured]
    counts, factors = release_singles(exact, told, weights[measured], release)
    if n_records is None:
        n_records = total_records(counts, told, factors)
    cells = [ColumnCells(np.zeros(1, dtype=np.int64), np.ones(1), np.zeros(1))] * len(trees)
    for j, noisy, factor in zip(measured, counts, factors, strict=True):
        cells[j] = trees[j].cells(noisy, noise_scale * factor, n_records)
    names = list(encoder.columns_)
    marginals = [
        NoisyMarginal((names[j],), (groups,), sums, noise_scale * factor * np.sqrt(sizes))
        for j, noisy, factor in zip(measured, counts, factors, strict=True)
        for groups, sums, sizes in trees[j].tables(noisy, cells[j].starts)
    ]
    edges = {
        name: column if tree.is_flat else column.merged(found.starts)
        for (name, column), tree, found in zip(encoder.columns_.items(), trees, cells, strict=True)
        if isinstance(column, Binned)
    }
    bins = [tree.bins(found.starts) for tree, found in zip(trees, cells, strict=True)]
    return cells, n_records, with_bins(encoder, edges), bins, marginals


@saved
@dataclass(frozen=True)
class NoisyMarginal:
    """A released table of noisy counts over a few columns.

    Attributes
    ----------
    columns : tuple of str
        An axis each.
    groups : tuple of ndarray of int
        For each column the group of each of its categories: an entry of the axis.
    counts : ndarray
        Noisy numbers of records in the cells, which may be negative. Categories are in the order
        of the schema, then bins, then null.
    noise_scale : float or ndarray
        Standard deviation of the noise of a cell, 0 without noise.
    """

    _saved_state = {
        "columns": tuple[str, ...],
        "groups": tuple_of(Array("i", 1, low=0)),
        "counts": Array("f"),
        "noise_scale": (float, Array("f", low=0)),
    }

    columns: tuple[str, ...]
    groups: tuple[np.ndarray, ...]
    counts: np.ndarray
    noise_scale: float | np.ndarray

    def _check_saved_state(self):
        shape = self.counts.shape
        n_columns = len(self.columns)
        demand(n_columns == len(self.groups) == len(shape) > 0, "A marginal has other columns.")
        for groups, size in zip(self.groups, shape, strict=True):
            demand(not groups.size or int(groups.max()) < size, "A marginal has other groups.")
        demand(np.shape(self.noise_scale) in ((), shape), "A marginal has noise of another shape.")


# An interaction counts at most by so much more, and at least by so much less, than its noise says.
_LEAST, _MOST = 0.01, 100.0
# No table of columns tells more of their dependence: two even ones of two labels that are equal.
_STRONGEST = 0.25
# Pseudo-records of each term: records are a sample, and rows of a fit are too.
_CHANCE = 0.2


class Measurements:
    """What was released of a table so far.

    Parameters
    ----------
    names : list of str
        Of all columns.
    cells : list of ColumnCells
        What the counts of each column tell.
    n_records : float
        Number of records, or an estimate of it.
    blocks : ColumnBlocks
    """

    def __init__(self, names, cells, n_records, blocks):
        self._names, self.n_records, self.blocks = names, n_records, blocks
        self._shares = [part.shares for part in cells]
        self._variances = [part.variances for part in cells]
        self.marginals, self.tables = [], []

    def shares(self, column):
        """Return the shares of the categories of a column, by all that was released."""
        shares = np.maximum(self._shares[column], 0)
        # Noise may leave nothing of them.
        return shares / shares.sum() if shares.any() else np.full(len(shares), 1 / len(shares))

    def block_shares(self, column):
        """Return the shares of its blocks."""
        return group_sums(self.shares(column), self.blocks.blocks[column])

    def block_variances(self, column):
        """Return about the variances of the shares of its blocks, by noise."""
        return group_sums(self._variances[column], self.blocks.blocks[column])

    def independent(self, marginals):
        """Return the counts of marginals that there would be if columns were independent."""
        shares = [self.block_shares(j) for j in range(len(self._names))]
        return [
            self.n_records
            * reduce(
                np.multiply.outer,
                [group_sums(shares[j], g) for j, g in zip(part.columns, part.groups, strict=True)],
            )
            for part in marginals
        ]

    def add(self, part, counts, noise_scale, expected):
        """Add a table.

        Parameters
        ----------
        part : Marginal
        counts : ndarray
            With noise.
        noise_scale : float
            Standard deviation of the noise of a cell, 0 without noise.
        expected : ndarray
            Counts by what was released before: how far the table is from them, beyond the noise,
            tells how much its terms may say.
        """
        from sklearn_dpgen.tables._log_linear_fit import NoisyTable, cosines

        shares, noise = counts / self.n_records, noise_scale / self.n_records
        names = tuple(self._names[j] for j in part.columns)
        groups = [g[self.blocks.blocks[j]] for j, g in zip(part.columns, part.groups, strict=True)]
        self.marginals.append(NoisyMarginal(names, tuple(groups), counts, noise_scale))
        gaps = cosines(shares - expected / expected.sum())
        ridges = _ridges(gaps, self.blocks.frequencies(part), noise) + _CHANCE / self.n_records
        self.tables.append(NoisyTable(part.columns, part.groups, shares, ridges))
        for axis, (column, cells) in enumerate(zip(part.columns, groups, strict=True)):
            others = tuple(i for i in range(counts.ndim) if i != axis)
            spread = noise**2 * counts.size / counts.shape[axis]
            self._learn(column, cells, shares.sum(axis=others), spread)

    def _learn(self, column, groups, sums, variance):
        """Improve the shares of a column by sums of groups of them, as a Kalman filter does."""
        shares, variances = self._shares[column], self._variances[column]
        known, spread = group_sums(shares, groups), group_sums(variances, groups)
        gain = spread / np.maximum(spread + variance, 1e-300)
        better = np.maximum(known + gain * (sums - known), 0)
        # In proportion: a tail that is known to be empty is not filled by the noise of its group.
        factors = np.divide(better, known, out=np.ones(len(known)), where=known > 0)
        self._shares[column] = shares * factors[groups]
        self._variances[column] = variances * (1 - gain)[groups]


def _ridges(gaps, frequencies, noise):
    """Return the ridges of the logits of a table, by cosines: noise over signal, over its cells.

    Of a cell of probability p whose logit has the prior variance τ², noise of variance s² in its
    share asks for s² / (p τ²); the table tells of p² τ². Dependence is mostly of low frequency, as
    what grows with something else: its squares fall with the product of frequencies, and what is
    left beyond the noise is told apart from it the better.
    """
    # What turns along one axis alone is known from elsewhere.
    is_free = reduce(np.add.outer, [np.minimum(turns, 1) for turns in frequencies]) > 1
    products = reduce(np.multiply.outer, [turns + 1 for turns in frequencies])[is_free]
    if not is_free.any():
        return np.full(gaps.shape, _MOST / gaps.size)
    total = is_free.sum() * noise**2
    squares = IsotonicRegression(increasing=False).fit_transform(products, gaps[is_free] ** 2)
    signal = squares - noise**2
    ratios = np.full(len(squares), _MOST)
    np.divide(noise**2, signal, out=ratios, where=signal > noise**2 / _MOST)
    ridges = np.full(gaps.shape, ratios.min())
    ridges[is_free] = ratios
    return np.maximum(ridges, max(total / _STRONGEST, _LEAST)) / gaps.size


# Candidates whose expected counts are computed at a time, and cells of those that are counted.
_BLOCK, _CELLS = 64, 1 << 24


def measure_rounds(count, plan, weight, measured, *, predict, run, noise):
    """Select and release tables, round by round, and add them to what was measured.

    Parameters
    ----------
    count : callable
        From marginals to their exact counts.
    plan : MarginalsPlan
    weight : callable
        The public positive weight of a tuple of columns.
    measured : Measurements
    predict : callable
        From marginals to their expected counts, by all that was measured so far.
    run : GaussianSequenceRun
        Of the plan, after its first release.
    noise : NoiseSource
    """
    n, first = measured.n_records, ()
    done: set = set()
    _, *noise_scales = plan.mechanism.noise_scales
    for number, (part, scale) in enumerate(zip(plan.rounds, noise_scales, strict=True)):
        candidates = [columns for columns in part.candidates if columns not in done]
        n_affordable = affordable_marginals(n, scale, CELLS[len(candidates[0])])
        n_chosen = len(candidates)
        if part.n_selected is not None:
            n_chosen = min(n_chosen, part.n_selected, max(n_affordable, int(number == 0)))
        if number and 2 * n_affordable < n_chosen or not n_chosen:
            # Far too few records, which may not have been known when this was paid for: once more
            # the first. Where half of the tables are clear, all of them are with fewer cells.
            candidates = first
            n_chosen = len(candidates)
        weights = np.array([weight(columns) for columns in candidates])
        is_choice = n_chosen < len(candidates)
        if is_choice:
            even = affordable_cells(n, scale * math.sqrt(n_chosen))
            marginals = [measured.blocks.marginal(columns, even) for columns in candidates]
            relative, spread = weights / weights.max(), scale * math.sqrt(n_chosen)
            found = _all_scores(count, marginals, relative, spread, predict)
            chosen = run.select(found, noise, count=n_chosen)
            candidates, weights = [candidates[i] for i in chosen], weights[chosen]
        spreads = scale * noise_factors(weights)
        marginals = [
            measured.blocks.marginal(columns, affordable_cells(n, spread))
            for columns, spread in zip(candidates, spreads, strict=True)
        ]
        expected = predict(marginals) if is_choice else measured.independent(marginals)
        tables, _ = release_marginals(
            count(marginals), weights, lambda vector: run.release(vector, noise)
        )
        for one in zip(marginals, tables, spreads, expected, strict=True):
            measured.add(*one)
        done.update(candidates)
        first = first or candidates


def _all_scores(count, marginals, weights, noise_scale, predict):
    """Return the scores of marginals, of so many at a time as fit in memory."""
    # Each is a pass over the records.
    passes = np.cumsum([part.n_cells for part in marginals]) // _CELLS
    found = []
    for first, last in _runs(passes):
        tables = count(marginals[first:last])
        for start in range(first, last, _BLOCK):
            part = slice(start, min(start + _BLOCK, last))
            exact = tables[part.start - first : part.stop - first]
            found.append(scores(exact, predict(marginals[part]), weights[part], noise_scale))
    return np.concatenate(found)


def _runs(labels):
    """Return the first and the last place, and one, of each run of equal labels."""
    edges = np.flatnonzero(np.diff(labels, prepend=-1, append=-1))
    return list(itertools.pairwise(edges.tolist()))


def scores(tables, expected, weights, noise_scale):
    """Return how far tables are from those expected, beyond their noise.

    Parameters
    ----------
    tables : sequence of ndarray
        Exact counts.
    expected : sequence of ndarray
        Known counts.
    weights : ndarray of shape (m,)
        In (0, 1].
    noise_scale : float
        Standard deviation of the noise of a cell, if it is measured.

    Returns
    -------
    ndarray of float64 of shape (m,)
        w (‖table − expected‖₁ − √(2/π) Σ √(σ² + expected)): what noise and chance make of it is
        taken off, which is known. Changes by at most 1 if a record is added or removed, by 2 if
        one is replaced.
    """
    return np.array(
        [
            w * (np.abs(t - e).sum() - _MEAN * np.sqrt(noise_scale**2 + np.maximum(e, 0)).sum())
            for w, t, e in zip(weights, tables, expected, strict=True)
        ]
    )


# Of the modulus of a standard normal variable.
_MEAN = math.sqrt(2 / math.pi)
