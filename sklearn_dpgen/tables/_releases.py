"""Release of noisy counts of columns and marginals, and private selection of marginals."""

import itertools
import math
from dataclasses import dataclass
from functools import reduce

import numpy as np
from scipy.optimize import isotonic_regression
from scipy.special import log_ndtr

from sklearn_dpgen.persistence._declarations import Array, demand, saved, tuple_of
from sklearn_dpgen.preprocessing import TabularEncoder
from sklearn_dpgen.schema import Datetime, Numeric
from sklearn_dpgen.schema._binned import Binned
from sklearn_dpgen.tables._column_trees import MAX_LEAVES, ColumnCells, ColumnTree
from sklearn_dpgen.tables._marginals import group_sums
from sklearn_dpgen.tables._privacy_plan import (
    FINER,
    affordable_cells,
    affordable_interactions,
    affordable_pairs,
    are_interactions_few,
    target_share,
)
from sklearn_dpgen.tables._public_columns import public_cells
from sklearn_dpgen.tables._records import with_bins
from sklearn_dpgen.utils._validation import Integral

__all__ = [
    "Measurements",
    "NoisyMarginal",
    "column_factors",
    "column_trees",
    "fine_encoder",
    "measure_columns",
    "measure_rounds",
    "noise_factors",
    "release_marginals",
    "release_singles",
    "scores",
    "total_records",
    "with_label_counts",
]


def noise_factors(weights, n_levels=1):
    """Return the noise of the counts of each table, relative to the noise of the released vector.

    Parameters
    ----------
    weights : ndarray of shape (m,)
        Positive.
    n_levels : int or array-like of shape (m,), default=1
        The number of counts of a record in each table.

    Returns
    -------
    ndarray of shape (m,)
        √(Σ l w²) / w. A record adds a vector of l2 norm 1 to tables divided by these factors.
    """
    return np.sqrt((np.asarray(n_levels) * weights**2).sum()) / weights


def column_factors(weights, trees):
    """Return the noise of the counts of single columns, relative to that of the released vector.

    Parameters
    ----------
    weights : ndarray of shape (p,)
        Positive weights of the columns, which are multiplied by those of their trees.
    trees : sequence of ColumnTree

    Returns
    -------
    ndarray of shape (p,)
        As :func:`noise_factors`.
    """
    own = np.array([tree.weight for tree in trees])
    return noise_factors(weights * own, [tree.n_levels for tree in trees])


def release_singles(leaves, trees, weights, release):
    """Release the counts of single columns on all levels of their trees, as one vector.

    Parameters
    ----------
    leaves : sequence of ndarray
        Exact counts of the leaves of each tree, to one of which a record adds one.
    trees : sequence of ColumnTree
    weights : ndarray of shape (p,)
        Positive weights of the columns, as for :func:`column_factors`.
    release : callable
        Mechanism that adds noise to a vector, to which a record adds a vector of l2 norm 1.

    Returns
    -------
    counts : list of ndarray
        Noisy counts of each tree.
    factors : ndarray of shape (p,)
        The noise of the counts of each tree, relative to the noise of the vector.
    """
    factors = column_factors(weights, trees)
    exact = [tree.counts(own) for tree, own in zip(trees, leaves, strict=True)]
    return _release_scaled(exact, factors, release), factors


def release_marginals(tables, weights, release):
    """Release marginals as one vector.

    Parameters
    ----------
    tables : sequence of ndarray
        Exact counts, to one cell of each of which a record adds one.
    weights : ndarray of shape (m,)
        Positive weights, inversely proportional to the noise of the tables.
    release : callable
        Mechanism, as for :func:`release_singles`.

    Returns
    -------
    tables : list of ndarray
        Noisy counts.
    factors : ndarray of shape (m,)
        The noise of the cells of each table, relative to the noise of the vector.
    """
    factors = noise_factors(weights)
    return _release_scaled(tables, factors, release), factors


def _release_scaled(arrays, factors, release):
    """Release arrays, divided by their factors, as one vector, and scale them back."""
    noisy = release(np.concatenate([a.ravel() / f for a, f in zip(arrays, factors, strict=True)]))
    stops = np.cumsum([a.size for a in arrays])
    return [
        (counts * f).reshape(a.shape)
        for counts, f, a in zip(np.split(noisy, stops[:-1]), factors, arrays, strict=True)
    ]


def total_records(counts, trees, factors):
    """Estimate the number of records, at least 1, from noisy counts of single columns.

    Parameters
    ----------
    counts : sequence of ndarray
        Noisy counts of each tree.
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


# Distance in leaves beyond which all leaves of a column are equally far.
_FAR = 1 << 40


def fine_encoder(schema, n_bins):
    """Return an unfitted encoder with the finest bins, and the columns whose bins are private.

    Parameters
    ----------
    schema : Schema
    n_bins : "auto", int or mapping
        Public bins of numbers and dates; bins of other columns are derived from noisy counts.

    Returns
    -------
    encoder : TabularEncoder
    binned : list of str
    """
    ordered = [name for name, c in schema.items() if isinstance(c, Numeric | Datetime)]
    if isinstance(n_bins, Integral):
        return TabularEncoder(schema, n_bins=dict.fromkeys(ordered, n_bins)), []
    given = {} if n_bins == "auto" else n_bins
    binned = [name for name in ordered if name not in given]
    return TabularEncoder(schema, n_bins=dict.fromkeys(binned, MAX_LEAVES) | given), binned


def column_trees(encoder, binned):
    """Return the ColumnTree of each column.

    Parameters
    ----------
    encoder : TabularEncoder
        Fitted, from :func:`fine_encoder`.
    binned : list of str
        Columns whose bins are derived from noisy counts. Trees of the others are flat, but for
        declared hierarchies of labels.
    """
    return [
        ColumnTree(column.n_bins, nullable=column.nullable, anchor=_anchor(column))
        if name in binned
        else ColumnTree(column.domain.n_features, is_flat=True, groups=column.groups)
        for name, column in encoder.columns_.items()
    ]


def _anchor(binned):
    """Return the leaf of zero, possibly out of bounds, or a very distant leaf for dates."""
    column, n_bins = binned.column, binned.n_bins
    if isinstance(column, Datetime):
        return -_FAR
    low, high = column._bounds
    if low <= 0 <= high:
        edges = np.array(binned.edges[:-1])
        return int(np.searchsorted(edges, column.to_unit(0.0), side="right") - 1)
    leaves = -low / (high - low) * n_bins
    return round(min(max(leaves, -_FAR), _FAR))


def measure_columns(
    leaves, encoder, trees, weights, noise_scale, release, *, n_records=None, public=None
):
    """Release the counts of each column, and derive bins at the resolution of the noise.

    Parameters
    ----------
    leaves : mapping of int to ndarray
        Exact counts of the leaves of each column that is not constant, by its index.
    encoder : TabularEncoder
        Fitted, from :func:`fine_encoder`.
    trees : list of ColumnTree
    weights : ndarray of shape (p,)
        Positive weights of the columns.
    noise_scale : float
        Standard deviation of the noise of the released vector.
    release : callable
        Mechanism, as for :func:`release_singles`.
    n_records : float or None, default=None
        The public number of records; None estimates it.
    public : list of ndarray or None, default=None
        The counts of the leaves of each column in a public table.

    Returns
    -------
    cells : list of ColumnCells
        Cells of each column.
    n_records : float
        The public or estimated number of records.
    encoder : TabularEncoder
        Fitted, with these cells as bins.
    bins : list of ndarray of int
        For each column, the cell of each leaf, then of null.
    marginals : list of NoisyMarginal
        The released counts, a marginal for each level of each column.
    """
    # Constant columns are public, so they are not released.
    measured, measured_trees = sorted(leaves), [trees[j] for j in sorted(leaves)]
    exact = [leaves[j] for j in measured]
    counts, factors = release_singles(exact, measured_trees, weights[measured], release)
    if n_records is None:
        n_records = total_records(counts, measured_trees, factors)
    cells = [ColumnCells(np.zeros(1, dtype=np.int64), np.ones(1), np.zeros(1))] * len(trees)
    for j, noisy, factor in zip(measured, counts, factors, strict=True):
        own = noisy, noise_scale * factor, n_records
        found = public and public_cells(trees[j], *own, public[j])
        cells[j] = found or trees[j].cells(*own)
    names = list(encoder.columns_)
    marginals = [
        NoisyMarginal((names[j],), (groups,), sums, noise_scale * factor * np.sqrt(sizes))
        for j, noisy, factor in zip(measured, counts, factors, strict=True)
        for groups, sums, sizes in trees[j].tables(noisy, cells[j].starts)
    ]
    edges = {
        name: column if tree.is_flat else column.merged(own.starts)
        for (name, column), tree, own in zip(encoder.columns_.items(), trees, cells, strict=True)
        if isinstance(column, Binned)
    }
    bins = [tree.bins(own.starts) for tree, own in zip(trees, cells, strict=True)]
    return cells, n_records, with_bins(encoder, edges), bins, marginals


def with_label_counts(cells, noisy, noise_scale, threshold, n_records):
    """Improve the shares of an open column by the noisy counts of its discovery.

    Parameters
    ----------
    cells : ColumnCells
        Shares of the labels, then of ``other``, and of null.
    noisy : ndarray of shape (n_labels,)
        Noisy counts of the discovered labels, all at least the threshold.
    noise_scale : float
        Standard deviation of their noise; positive.
    threshold : float
    n_records : float

    Returns
    -------
    ColumnCells

    Notes
    -----
    Given the count c of a label that was discovered, its noisy count y has a normal distribution
    truncated at τ, of density φ((y − c)/σ) / (σ Φ((c − τ)/σ)). The prior of c is normal, with the
    estimate of later counts; the new estimate is the mode, which is less biased than the mean.
    Shares of other categories change in proportion.
    """
    n = len(noisy)
    means, spreads = cells.shares[:n] * n_records, np.sqrt(cells.variances[:n]) * n_records
    grid = np.maximum(means[:, None] + spreads[:, None] * np.linspace(-6, 6, 241), 0)
    logs = -0.5 * ((grid - means[:, None]) / np.maximum(spreads[:, None], _TINY)) ** 2
    logs -= 0.5 * ((noisy[:, None] - grid) / noise_scale) ** 2
    logs -= log_ndtr((grid - threshold) / noise_scale)
    weights = np.exp(logs - logs.max(axis=1, keepdims=True))
    weights /= weights.sum(axis=1, keepdims=True)
    counts = np.take_along_axis(grid, logs.argmax(axis=1)[:, None], axis=1)[:, 0]
    middles = (weights * grid).sum(axis=1, keepdims=True)
    shares, variances = cells.shares.copy(), cells.variances.copy()
    shares[:n] = counts / n_records
    variances[:n] = (weights * (grid - middles) ** 2).sum(axis=1) / n_records**2
    rest = shares[n:].sum()
    if rest > 0:
        shares[n:] *= max(1 - shares[:n].sum(), 0) / rest
    return cells._replace(shares=shares / shares.sum(), variances=variances)


@saved
@dataclass(frozen=True)
class NoisyMarginal:
    """A released marginal: noisy counts over one to seven columns.

    Attributes
    ----------
    columns : tuple of str
        One axis each.
    groups : tuple of ndarray of int
        For each column, the group of each category: its index along the axis. Categories are
        labels in the order of the schema, or bins, then null.
    counts : ndarray
        Noisy numbers of records in the cells, which may be negative.
    noise_scale : float or ndarray
        Standard deviation of the noise of each cell; 0 without noise.
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


# Bounds on the ratio of noise to signal of an interaction.
_LEAST, _MOST = 0.01, 100.0
# The strongest dependence in a marginal: of two equal columns with two equally frequent labels.
_STRONGEST = 0.25
# Pseudo-records of each term, for the sampling errors of records and of the rows of a fit.
_SAMPLING = 0.2


class Measurements:
    """Released marginals, with estimates of the shares of each column.

    Parameters
    ----------
    names : list of str
        Names of all columns.
    cells : list of ColumnCells
        Cells of each column, with estimated shares.
    n_records : float
        The public or estimated number of records.
    blocks : ColumnBlocks

    Attributes
    ----------
    marginals : list of NoisyMarginal
    tables : list of NoisyTable
        The same marginals with ridges.
    expected : list of ndarray
        Their expected shares from earlier releases.
    totals : list of float
        The number of records in each.
    """

    def __init__(self, names, cells, n_records, blocks):
        self._names, self.n_records, self.blocks = names, n_records, blocks
        self._shares = [own.shares for own in cells]
        self._variances = [own.variances for own in cells]
        self.marginals, self.tables, self.expected, self.totals = [], [], [], []
        # The places of each distinct marginal in these lists.
        self._places: dict[tuple, list[int]] = {}

    def shares(self, column):
        """Return estimates of the shares of the categories of a column, from all releases."""
        shares = np.maximum(self._shares[column], 0)
        # With much noise, all shares may be 0.
        return shares / shares.sum() if shares.any() else np.full(len(shares), 1 / len(shares))

    def block_shares(self, column):
        """Return estimates of the shares of the blocks of a column."""
        return group_sums(self.shares(column), self.blocks.blocks[column])

    def balance(self, column):
        """Return the Gini impurity of a column relative to that of equally frequent blocks."""
        shares = self.block_shares(column)
        return (1 - (shares**2).sum()) / (1 - 1 / len(shares)) if len(shares) > 1 else 1.0

    def block_variances(self, column):
        """Return approximate variances of the shares of the blocks of a column."""
        return group_sums(self._variances[column], self.blocks.blocks[column])

    def independent(self, marginals, n_records=None):
        """Return the expected counts of marginals under independence of columns."""
        n_records = self.n_records if n_records is None else n_records
        used = {j for marginal in marginals for j in marginal.columns}
        shares = {j: self.block_shares(j) for j in used}
        return [
            n_records
            * reduce(
                np.multiply.outer,
                [group_sums(shares[j], g) for j, g in zip(m.columns, m.groups, strict=True)],
            )
            for m in marginals
        ]

    def add(self, marginal, counts, noise_scale, expected, *, n_records=None, learned=None):
        """Add a released marginal.

        Parameters
        ----------
        marginal : Marginal
        counts : ndarray
            Noisy counts.
        noise_scale : float
            Standard deviation of the noise of a cell, 0 without noise.
        expected : ndarray
            Expected counts from earlier releases. Ridges of the term are the ratio of the noise to
            the residual beyond the noise.
        n_records : float or None, default=None
            The number of records that are counted, if it differs from that of all records.
        learned : collection of int or None, default=None
            Columns whose shares the marginal improves; None for all.
        """
        from sklearn_dpgen.tables._log_linear_fit import NoisyTable, cosines

        n_records = self.n_records if n_records is None else n_records
        shares, noise = counts / n_records, noise_scale / n_records
        names = tuple(self._names[j] for j in marginal.columns)
        own = zip(marginal.columns, marginal.groups, strict=True)
        groups = [g[self.blocks.blocks[j]] for j, g in own]
        self.marginals.append(NoisyMarginal(names, tuple(groups), counts, noise_scale))
        self.expected.append(expected / expected.sum())
        self.totals.append(n_records)
        self.tables.append(NoisyTable(marginal.columns, marginal.groups, shares, 0.0))
        # All releases of a marginal have one term each, with an equal part of the logit.
        key = (marginal.columns, *(cells.tobytes() for cells in marginal.groups))
        places = self._places.setdefault(key, [])
        places.append(len(self.tables) - 1)
        mean, spread = self.combined(places)
        residuals = cosines(mean - self.expected[places[0]])
        ridges = _ridges(residuals, self.blocks.frequencies(marginal), spread)
        self.set_term(places, ridges + _SAMPLING / n_records)
        for axis, (column, cells) in enumerate(zip(marginal.columns, groups, strict=True)):
            if learned is not None and column not in learned:
                continue
            others = tuple(i for i in range(counts.ndim) if i != axis)
            spread = noise**2 * counts.size / counts.shape[axis]
            self.learn(column, cells, shares.sum(axis=others), spread)

    def distinct(self):
        """Return the places of each distinct marginal, which may be released several times."""
        return list(self._places.values())

    def combined(self, places):
        """Return the shares of a marginal that is released several times, and their noise."""
        released, n_records = [self.marginals[i] for i in places], self.totals[places[0]]
        if not all(one.noise_scale for one in released):
            return released[-1].counts / n_records, 0.0
        precisions = np.array([one.noise_scale**-2.0 for one in released])
        counts = sum(p * one.counts for p, one in zip(precisions, released, strict=True))
        noise = precisions.sum() ** -0.5
        return counts / precisions.sum() / n_records, noise / n_records

    def set_term(self, places, ridges):
        """Set the shares, their noise and the ridges of the terms of a marginal."""
        shares, noise = self.combined(places)
        for i in places:
            self.tables[i].shares, self.tables[i].noise = shares, noise
            # Each of k equal terms has a k-th of the logit, and so a k-th of the penalty.
            self.tables[i].ridges = len(places) * np.broadcast_to(ridges, shares.shape)

    def learn(self, column, groups, sums, variance):
        """Update the shares of a column by noisy sums of groups of them (Kalman filter)."""
        shares, variances = self._shares[column], self._variances[column]
        known, spread = group_sums(shares, groups), group_sums(variances, groups)
        gain = spread / np.maximum(spread + variance, 1e-300)
        updated = np.maximum(known + gain * (sums - known), 0)
        # Shares change in proportion, so that noise of a group does not fill its empty tail.
        # A share that is almost 0 stays so: its factor could exceed all floats.
        factors = np.divide(updated, known, out=np.ones(len(known)), where=known > _EMPTY)
        self._shares[column] = shares * factors[groups]
        self._variances[column] = variances * (1 - gain)[groups]


def _ridges(residuals, frequencies, noise):
    """Return ridges of the cosine coefficients of logits: noise over signal, per cell.

    For a cell of probability p whose logit has prior variance τ², noise of variance s² in its
    share requires a ridge of s² / (p τ²), and the residual estimates p² τ². Dependence is mostly
    of low frequency, so the squared residuals are assumed to decrease with the product of
    frequencies, and are smoothed by isotonic regression.
    """
    # Coefficients that are constant along all axes but one belong to single columns.
    is_free = reduce(np.add.outer, [np.minimum(turns, 1) for turns in frequencies]) > 1
    products = reduce(np.multiply.outer, [turns + 1 for turns in frequencies])[is_free]
    if not is_free.any():
        return np.full(residuals.shape, _MOST / residuals.size)
    total = is_free.sum() * noise**2
    _, places, sizes = np.unique(products, return_inverse=True, return_counts=True)
    means = np.bincount(places, weights=residuals[is_free] ** 2) / sizes
    squares = isotonic_regression(means, weights=sizes, increasing=False).x[places]
    signal = squares - noise**2
    ratios = np.full(len(squares), _MOST)
    np.divide(noise**2, signal, out=ratios, where=signal > noise**2 / _MOST)
    ridges = np.full(residuals.shape, ratios.min())
    ridges[is_free] = ratios
    return np.maximum(ridges, max(total / _STRONGEST, _LEAST)) / residuals.size


# The most candidates with expected counts, and the most cells with exact counts, in memory.
_BLOCK, _CELLS = 64, 1 << 24


# The least part of a round's budget that is worth a release of the pairs of targets.
_LEAST_REPEATED = 0.05


def measure_rounds(count, plan, weight, measured, *, predict, run, noise, targets=(), public=None):
    """Select and release marginals in rounds, and add them to the measurements.

    A round whose marginals are not affordable repeats those of the first round. If the first round
    has the pairs of targets and a value of a target is rare, rounds of other pairs repeat the
    marginals of the first round with a part of their budget.

    Parameters
    ----------
    count : callable
        Function of marginals that returns their exact counts.
    plan : MarginalsPlan
    weight : callable
        The public positive weight of a tuple of columns.
    measured : Measurements
    predict : callable
        Function of marginals that returns their expected counts, from all releases so far.
    run : GaussianSequenceRun
        Run of the mechanism of the plan, after its first release.
    noise : NoiseSource
    targets : collection of int, default=()
    public : PublicPrior or None, default=None
        Learns from each round. Later marginals are then expected as it predicts them.
    """
    n, first = measured.n_records, None
    done: set = set()
    _, *noise_scales = plan.count_scales
    rounds = list(zip(plan.rounds, noise_scales, strict=True))
    numbers = [_n_released(n, *own, is_first=own is rounds[0]) for own in rounds]
    shares = _first_shares(measured, rounds, numbers, targets)
    # The marginals of the first round have groups that all rounds with them afford together.
    combined = sum(
        share * max(scale, _TINY) ** -2.0 for share, scale in zip(shares, noise_scales, strict=True)
    )
    is_repeated = sum(map(bool, shares)) > 1
    for (planned, scale), number, share in zip(rounds, numbers, shares, strict=True):
        marginals: list = []
        weights, is_choice = np.empty(0), False
        if number:
            candidates = [columns for columns in planned.candidates if columns not in done]
            is_selection = planned.n_selected and planned.kind == "interactions"
            if is_selection and are_interactions_few(n, scale):
                # Two groups of each column are too coarse for more than three of them.
                candidates = [columns for columns in candidates if len(columns) == 3]
            weights = np.array([weight(columns) for columns in candidates])
            is_choice = number < len(candidates)
            # The noise of one marginal with what the first ones leave of the budget.
            own = scale / math.sqrt(1 - share) if first else scale
        if is_choice:
            spread = own * math.sqrt(number)
            n_cells = affordable_cells(n, spread)
            marginals = [measured.blocks.marginal(columns, n_cells) for columns in candidates]
            values = _all_scores(count, marginals, weights / weights.max(), spread, predict)
            chosen = run.select(values, noise, count=number)
            candidates, weights = [candidates[i] for i in chosen], weights[chosen]
        if number:
            factors = noise_factors(weights)
            known = combined**-0.5 if is_repeated and first is None else own
            # Pairs with a target keep fewer groups, whose cells a classifier sees.
            finer = FINER if planned.kind == "pairs" and not planned.is_of(targets) else 1.0
            marginals = [
                measured.blocks.marginal(columns, affordable_cells(n, known * factor), finer=finer)
                for columns, factor in zip(candidates, factors, strict=True)
            ]
            done.update(candidates)
        if first is None:
            first = marginals, weights
        elif share:
            # Both parts have norm one, so a record still adds a vector of norm one.
            repeated, again = first
            rest = weights / float(np.linalg.norm(weights)) if len(weights) else weights
            again = again / float(np.linalg.norm(again))
            marginals = [*marginals, *repeated]
            weights = np.append(math.sqrt(1 - share) * rest, math.sqrt(share) * again)
        # What a public table expects of pairs is known without a fit.
        is_interaction = any(len(marginal.columns) > 2 for marginal in marginals)
        is_predicted = is_choice or (public is not None and is_interaction)
        expected = predict(marginals) if is_predicted else measured.independent(marginals)
        tables, factors = release_marginals(
            count(marginals), weights, lambda vector: run.release(vector, noise)
        )
        for released in zip(marginals, tables, scale * factors, expected, strict=True):
            measured.add(*released)
        if public is not None:
            public.relate(measured)


def _first_shares(measured, rounds, numbers, targets):
    """Return the share of each round's budget that the marginals of the first round have.

    It is all of a round without affordable marginals, and half of one that affords few
    interactions. Rounds of other pairs give the pairs of targets what they lack of their least
    share of the budget of all pairs.
    """
    shares = [float(not number or not i) for i, number in enumerate(numbers)]
    for i, (planned, scale) in enumerate(rounds):
        is_later = numbers[i] and i and planned.kind == "interactions"
        if is_later and are_interactions_few(measured.n_records, scale):
            shares[i] = 0.5
    targets = {*targets}
    others = [
        i
        for i, (planned, _) in enumerate(rounds)
        if numbers[i] and planned.kind == "pairs" and not planned.is_of(targets)
    ]
    if not targets or 0 in others or not others:
        return shares
    budgets = np.array([max(scale, _TINY) ** -2.0 for _, scale in rounds])
    given, rest = budgets @ shares, budgets[others].sum()
    least = target_share(min(measured.balance(column) for column in targets))
    lacking = min((least * (given + rest) - given) / rest, 1.0)
    if lacking > _LEAST_REPEATED:
        for i in others:
            shares[i] = float(lacking)
    return shares


def _n_released(n_records, planned, noise_scale, *, is_first):
    """Return how many marginals of a round are released, 0 if those of the first round are instead.

    An unknown number of records may turn out too small for the planned marginals. If half of them
    are affordable, all are released, with fewer cells.
    """
    affordable = affordable_pairs if planned.kind == "pairs" else affordable_interactions
    n_affordable = affordable(n_records, noise_scale)
    number = len(planned.candidates)
    if planned.n_selected is not None:
        number = min(number, planned.n_selected, max(n_affordable, int(is_first)))
    return number if is_first or 2 * n_affordable >= number else 0


def _all_scores(count, marginals, weights, noise_scale, predict):
    """Return the scores of marginals, computed in chunks that fit in memory."""
    # Each pass over the records counts several marginals.
    passes = np.cumsum([marginal.n_cells for marginal in marginals]) // _CELLS
    values = []
    for first, last in _runs(passes):
        tables = count(marginals[first:last])
        for start in range(first, last, _BLOCK):
            chunk = slice(start, min(start + _BLOCK, last))
            exact = tables[chunk.start - first : chunk.stop - first]
            values.append(scores(exact, predict(marginals[chunk]), weights[chunk], noise_scale))
    return np.concatenate(values)


def _runs(labels):
    """Return the start and stop of each run of equal labels."""
    edges = np.flatnonzero(np.diff(labels, prepend=-1, append=-1))
    return list(itertools.pairwise(edges.tolist()))


def scores(tables, expected, weights, noise_scale):
    """Return the l1 distances of tables from expected ones, less their expectation under noise.

    Parameters
    ----------
    tables : sequence of ndarray
        Exact counts.
    expected : sequence of ndarray
        Expected counts, which are public.
    weights : ndarray of shape (m,)
        Weights in (0, 1].
    noise_scale : float
        Standard deviation of the noise of a cell, if the table is released.

    Returns
    -------
    ndarray of float64 of shape (m,)
        w (‖table − expected‖₁ − √(2/π) Σ √(σ² + expected)). The subtracted term is public: the
        mean distance by noise and sampling alone. A score changes by at most 1 if a record is
        added or removed, and by at most 2 if one is replaced.
    """
    return np.array(
        [
            w * (np.abs(t - e).sum() - _MEAN * np.sqrt(noise_scale**2 + np.maximum(e, 0)).sum())
            for w, t, e in zip(weights, tables, expected, strict=True)
        ]
    )


# The largest share that counts as 0, and the least noise that is divided by.
_EMPTY = _TINY = 1e-12
# The mean modulus of a standard normal variable.
_MEAN = math.sqrt(2 / math.pi)
