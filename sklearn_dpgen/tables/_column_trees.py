"""Hierarchical noisy histograms of single columns, and cells at the resolution of the noise."""

import itertools
from functools import cached_property
from typing import NamedTuple

import numpy as np
from scipy.interpolate import PchipInterpolator
from scipy.special import ndtr

from sklearn_dpgen.tables._column_counts import interval_counts, posterior_counts

__all__ = [
    "MAX_CELLS",
    "MAX_LEAVES",
    "ColumnCells",
    "ColumnTree",
    "joined_cells",
]

# The most cells of an ordered column. A column of no more values has a cell for each value.
MAX_CELLS = 192
# The most spikes: cells of a single leaf with far more records than their neighbours.
_MAX_SPIKES = 40
# The largest share of any other cell, so that cells can be grouped into 32 nearly equal groups.
_LARGEST = 1 / 96
# The false discovery rate of spikes.
_FALSE_SPIKES = 0.1
# Minus the logarithm of the familywise error rate of the test for uneven intervals.
_RARE = 2.0
# An upper bound on the rounding error of a sum, relative to the number of records.
_ROUNDING = 1e-9


def hierarchy_counts(tree, noisy, noise_scale, n_records):
    """Return counts of the leaves of a hierarchy of labels, and their variances.

    Parameters
    ----------
    tree : ColumnTree
        Of labels.
    noisy : ndarray of shape (tree.n_cells,)
    noise_scale : float
    n_records : float
        Sum of the counts.

    Returns
    -------
    counts, variances : ndarray of shape (tree.n_values,)
        Where leaves are below the noise, they share the count of their group evenly. Variances are
        scaled to add up to no more than that of the widest group.

    Notes
    -----
    From the leaves up, the count of a node is averaged with the sum of its children by precision,
    as in :meth:`ColumnTree.estimate`. From the widest groups down, the children of a node are
    estimated by :func:`posterior_counts`, with the estimated count of the node as their sum.
    """
    best, relative = tree.summed_up(tree._split(noisy))
    totals, spread = np.array([float(n_records)]), np.array([np.inf])
    for level in range(tree.n_levels - 1, -1, -1):
        is_top = level == tree.n_levels - 1
        parents = np.zeros(len(best[level]), dtype=np.int64) if is_top else tree.parents[level]
        scales = noise_scale * np.sqrt(relative[level])
        own = scales, totals, parents, tree.widths[level]
        totals, variances = posterior_counts(best[level], *own)
        sums = np.bincount(parents, weights=variances)
        share = np.minimum(spread / np.maximum(sums, 1e-300), 1)
        spread = variances * share[parents]
    return totals, spread


def ordered_cells(tree, noisy, noise_scale, n_records):
    """Return the cells of an ordered column, and estimates of their counts.

    Parameters
    ----------
    tree : ColumnTree
        Tree of at least two levels.
    noisy : ndarray of shape (tree.n_cells,)
    noise_scale : float
    n_records : float
        Sum of the counts.

    Returns
    -------
    starts : ndarray of int of shape (k,)
        The first leaf of each cell.
    counts : ndarray of shape (k + nullable,)
    variances : ndarray of shape (k + nullable,)
    """
    levels, nulls, _ = tree.estimate(noisy)
    nulls = np.clip(nulls, 0, n_records)
    total = n_records - nulls.sum()
    spikes, excess = _spikes(tree, levels, noise_scale)
    counts, occupied = interval_counts(levels[-1], noise_scale, total, tree.sides, tree.base)
    # A spike in an interval that is not occupied is noise, the largest of many leaves.
    nodes = np.searchsorted(tree.levels[-1], spikes, side="right") - 1
    spikes, excess, nodes = (v[occupied[nodes]] for v in (spikes, excess, nodes))
    if len(spikes):
        sums = np.bincount(nodes, weights=excess, minlength=len(counts))
        excess = excess * np.minimum(counts / np.maximum(sums, 1), 1)[nodes]
        rest = levels[-1] - np.bincount(nodes, weights=excess, minlength=len(counts))
        total_rest = total - excess.sum()
        counts, _ = interval_counts(rest, noise_scale, total_rest, tree.sides, tree.base)
    starts, pieces = _pieces(tree, levels[0], counts, spikes, excess, noise_scale)
    # A piece has a fraction of the noise of its interval, and a spike the noise of its leaf.
    nodes = np.searchsorted(tree.levels[-1], starts, side="right") - 1
    noise = np.maximum(pieces / np.maximum(counts, 1e-9 * (1 + n_records))[nodes], 1 / 16)
    starts, counts, noise = _cells(
        tree.n_values, tree.anchor, starts, pieces, noise, spikes, excess
    )
    counts, variances = np.append(counts, nulls), np.append(noise, 1 / tree.n_levels)
    return starts, counts, variances[: len(counts)] * noise_scale**2


def _spikes(tree, levels, noise_scale):
    """Return the leaves that are spikes in their interval, and the records of their excess."""
    level = max(1, tree.n_levels - 2)
    nodes = np.searchsorted(tree.levels[level], tree.levels[0], side="right") - 1
    others = tree.widths[level][nodes] - 1
    around = np.maximum((levels[level][nodes] - levels[0]) / np.maximum(others, 1), 0)
    # A leaf must exceed both neighbours, so that a dense region is not a row of spikes.
    beside = np.pad(levels[0], 1)
    highest = np.maximum(around, np.maximum(beside[:-2], beside[2:]))
    # Gaussian noise of variance v is treated as Poisson noise of v further records.
    rounding = _ROUNDING * (1 + abs(levels[-1].sum()))
    tested = np.flatnonzero((others > 0) & (levels[0] > highest + 2 * noise_scale + 0.5))
    seen, expected = (v[tested] + noise_scale**2 + rounding for v in (levels[0] - 0.5, highest))
    z = np.sqrt(2 * np.maximum(seen * np.log(seen / expected) - (seen - expected), 0))
    # The procedure of Benjamini and Hochberg controls the false discovery rate.
    order = np.argsort(-z)
    limits = _FALSE_SPIKES * np.arange(1, len(z) + 1) / tree.n_values
    (passed,) = np.nonzero(ndtr(-z[order]) <= limits)
    spikes = tested[order[: passed[-1] + 1 if len(passed) else 0]]
    excess = (levels[0] - around)[spikes]
    largest = np.sort(np.argsort(-excess, kind="stable")[:_MAX_SPIKES])
    largest = largest[np.argsort(spikes[largest])]
    return spikes[largest], excess[largest]


def _pieces(tree, leaves, counts, spikes, excess, noise_scale):
    """Return intervals with a nearly uniform distribution apart from spikes, and their counts.

    Intervals of the top level are always split; others where they are uneven at any depth.
    """
    leaves = leaves.copy()
    leaves[spikes] -= excess
    noisy = [np.add.reduceat(leaves, stage) for stage, _ in tree.stages]
    parents = [
        np.searchsorted(above, below, side="right") - 1
        for (above, _), (below, _) in itertools.pairwise(tree.stages)
    ]
    noise = [noise_scale**2 * sizes for _, sizes in tree.stages]
    widths = [np.diff(np.append(stage, tree.n_values)) for stage, _ in tree.stages]
    uneven = [np.zeros(tree.n_values, dtype=bool)]
    for i in range(len(parents) - 1, -1, -1):
        is_uneven = _is_uneven(parents[i], noisy[i], noisy[i + 1], widths[i + 1], noise[i + 1])
        uneven.append(is_uneven | (np.bincount(parents[i], weights=uneven[-1]) > 0))
    uneven[-1][:] = True
    is_open, starts, pieces = uneven[-1], [], []
    for i, above in enumerate(parents):
        is_split = is_open & uneven[-1 - i]
        starts.append(tree.stages[i][0][is_open & ~is_split])
        pieces.append(counts[is_open & ~is_split])
        expected = widths[i + 1].astype(np.float64)
        if i == 0 and noise_scale > 0:
            expected = _between(above, counts, expected)
        counts = _children(above, counts, noisy[i + 1], expected, noise[i + 1])
        is_open = is_split[above]
    starts, pieces = (
        np.concatenate(v) for v in ([*starts, np.flatnonzero(is_open)], [*pieces, counts[is_open]])
    )
    order = np.argsort(starts)
    return starts[order], pieces[order]


def _is_uneven(parents, totals, noisy, widths, noise):
    """Return the mask of the intervals whose children differ significantly from uniform counts."""
    sizes = np.bincount(parents)
    free = np.maximum(sizes - 1, 1)
    even = (totals / np.bincount(parents, weights=widths))[parents] * widths
    squares = np.bincount(parents, weights=(noisy - even) ** 2)
    noise = np.bincount(parents, weights=noise) / sizes
    # Records are a sample: counts of a uniform distribution are Poisson.
    many = np.maximum(totals, 0)
    errors = 2 * free * noise**2 + many * (4 * noise + 2 * many / free + 1)
    # Tail bound of sums of squares (Laurent and Massart, 2000, Lemma 1), for all intervals at once.
    rare = np.log(len(sizes)) + _RARE
    limits = free * noise + many + np.sqrt(2 * rare * errors) + 2 * rare * (noise + many / free)
    return squares > limits + (_ROUNDING * (1 + many.sum())) ** 2


def _between(parents, counts, widths):
    """Return expected counts of children, by monotone interpolation of cumulative counts."""
    inner = np.append(0, np.cumsum(widths))
    outer = np.append(0, np.cumsum(np.bincount(parents, weights=widths)))
    counts = counts + 1e-6 * (1 + counts.sum())
    sums = PchipInterpolator(outer, np.append(0, np.cumsum(counts)))
    return np.maximum(np.diff(sums(inner)), 0) + _ROUNDING * widths


def _children(parents, totals, noisy, expected, noise):
    """Return counts of children, with the sums of their parents, by James-Stein shrinkage.

    Noisy counts are shrunk towards expected ones.
    """
    sizes = np.bincount(parents)
    expected = (totals / np.bincount(parents, weights=expected))[parents] * expected
    missing = (totals - np.bincount(parents, weights=noisy)) / sizes
    residuals = noisy + missing[parents] - expected
    squares = np.bincount(parents, weights=residuals**2)
    noise = np.bincount(parents, weights=noise) / sizes * np.maximum(sizes - 3, 0.5)
    kept = np.maximum(1 - noise / np.maximum(squares, noise + 1e-300), 0)
    return _not_negative(parents, totals, expected + kept[parents] * residuals)


def _not_negative(parents, totals, counts):
    """Project counts on those that are not negative and have the sums of their parents."""
    n, (left,) = len(totals), np.nonzero(counts > 0)
    found = counts[left]
    for _ in range(50):
        own = parents[left]
        sums = np.bincount(own, weights=found, minlength=n)
        missing = (totals - sums) / np.maximum(np.bincount(own, minlength=n), 1)
        found = found + missing[own]
        if (found >= 0).all():
            break
        left, found = left[found > 0], found[found > 0]
    counts = np.zeros(len(parents))
    counts[left] = np.maximum(found, 0)
    return counts


# A leaf of a known distribution is a spike if it has so many times the records of the leaves near
# it, and at least this share of all.
_SPIKE, _NEAR, _LEAST_SPIKE = 4.0, 4, 0.003


def joined_cells(tree, counts, variances, n_records, is_seen):
    """Return the starts of at most 192 cells of leaves whose counts are known at each leaf.

    Parameters
    ----------
    tree : ColumnTree
        Of at least two levels.
    counts : ndarray of shape (tree.n_values,)
    variances : ndarray of shape (tree.n_values,)
    n_records : float
    is_seen : ndarray of bool of shape (tree.n_values,)
        Whether a leaf may have a cell of its own; others are in the interval above them.

    Returns
    -------
    ndarray of int
    """
    near = np.convolve(counts, np.ones(2 * _NEAR + 1), "same")
    around = (near - counts) / (2 * _NEAR)
    (spikes,) = np.nonzero((counts > _SPIKE * around) & (counts > _LEAST_SPIKE * n_records))
    spikes = np.sort(spikes[np.argsort(-counts[spikes])[:_MAX_SPIKES]])
    excess = (counts - around)[spikes]
    body = counts.copy()
    body[spikes] -= excess
    is_start = is_seen | np.append(True, is_seen[:-1])
    is_start[tree.levels[1]] = True
    (starts,) = np.nonzero(is_start)
    body, variances = np.add.reduceat(body, starts), np.add.reduceat(variances, starts)
    return _cells(tree.n_values, tree.anchor, starts, body, variances, spikes, excess)[0]


def _cells(n_values, anchor, starts, pieces, noise, spikes, excess):
    """Return the starts of at most 192 cells of pieces and spikes, their counts and noise."""
    edges = np.append(starts, n_values)
    cuts = np.unique(np.concatenate([starts, spikes, spikes + 1]))
    if n_values <= MAX_CELLS:
        cuts = np.arange(n_values)
    cuts = cuts[cuts < n_values]
    counts, noise = (
        np.diff(np.interp(np.append(cuts, n_values), edges, np.append(0, np.cumsum(v))))
        for v in (pieces, noise)
    )
    is_spike = np.isin(cuts, spikes)
    counts[is_spike] += excess
    noise[is_spike] = 1
    if n_values <= MAX_CELLS:
        return cuts, counts, noise
    # A run of empty cells is merged into one; if all cells are empty, two are left.
    is_empty = counts <= _ROUNDING * counts.sum()
    is_merged = is_empty & np.append(False, is_empty[:-1]) & (cuts != anchor)
    is_merged[-1] &= not is_merged[1:].all()
    cells = _merge((cuts, counts, noise, is_spike), np.flatnonzero(is_merged))
    largest = _LARGEST * counts.sum()
    while True:
        cells = _merged(n_values, anchor, cells, largest)
        if _n_parts(n_values, cells, largest).sum() <= MAX_CELLS:
            return _cut(n_values, cells, largest)
        largest *= 2


def _merge(cells, which):
    """Merge cells with their predecessors."""
    starts, counts, noise, is_spike = cells
    kept = np.delete(np.arange(len(starts)), which)
    counts, noise = (np.add.reduceat(v, kept) for v in (counts, noise))
    return starts[kept], counts, noise, is_spike[kept]


def _n_parts(n_values, cells, largest):
    """Return the number of equal parts of each cell that keep each below the largest count."""
    starts, counts, _, is_spike = cells
    widths = np.diff(np.append(starts, n_values))
    n_parts = np.ceil(counts / largest - _ROUNDING) if largest > 0 else np.ones(len(counts))
    return np.where(is_spike, 1, np.clip(n_parts, 1, widths)).astype(np.int64)


def _merged(n_values, anchor, cells, largest):
    """Merge small adjacent cells until there are at most 192 after heavy cells are cut.

    Cells on two sides of the anchor, such as losses and gains, stay separate. The cost of a merger
    is the mass that it moves, weighted by the change of the variance.
    """
    spread = _variance(np.append(cells[0], n_values), cells[1])
    while _n_parts(n_values, cells, largest).sum() > MAX_CELLS:
        starts, counts, _, is_spike = cells
        widths = np.diff(np.append(starts, n_values)).astype(np.float64)
        wide, both = widths[:-1] + widths[1:], counts[:-1] + counts[1:]
        can_merge = ~(is_spike[:-1] | is_spike[1:]) & (both <= largest) & (starts[1:] != anchor)
        if not can_merge.any():
            break
        moved = np.abs(counts[:-1] * widths[1:] - counts[1:] * widths[:-1]) / wide
        costs = np.where(can_merge, moved * (1 + wide**2 / spread), np.inf)
        # Many disjoint pairs are merged at once, all from the cheapest fifth.
        left, right = np.append(np.inf, costs[:-1]), np.append(costs[1:], np.inf)
        lowest = (costs < left) & (costs <= right) & (costs <= np.quantile(costs[can_merge], 0.2))
        if not lowest.any():
            lowest = np.arange(len(costs)) == costs.argmin()
        cells = _merge(cells, np.flatnonzero(lowest) + 1)
    return cells


def _variance(edges, counts):
    """Return the variance of the leaf index of a record, at least 1."""
    middles, total = (edges[:-1] + edges[1:]) / 2, counts.sum()
    if total <= 0:
        return 1.0
    mean = counts @ middles / total
    return max(1.0, float(counts @ ((middles - mean) ** 2 + np.diff(edges) ** 2 / 12) / total))


def _cut(n_values, cells, largest):
    """Cut heavy cells into parts of equal width."""
    n_parts = _n_parts(n_values, cells, largest)
    widths = np.diff(np.append(cells[0], n_values))
    index = np.arange(n_parts.sum()) - np.repeat(np.cumsum(n_parts) - n_parts, n_parts)
    starts, counts, noise, widths, n_parts = (
        np.repeat(v, n_parts) for v in (*cells[:3], widths, n_parts)
    )
    first, stop = index * widths // n_parts, (index + 1) * widths // n_parts
    return starts + first, counts * (stop - first) / widths, noise * (stop - first) / widths


# The most leaves of a column.
MAX_LEAVES = 1 << 17
# The most values of an ordered column of one level.
_FLAT = 32
# The most intervals of the top level, and the most children of each.
_TOP, _BRANCHES = 24, 16
# The weight of a level of a hierarchy of labels, relative to the level below.
_LESS = 0.6
# Labels from which a column has more weight than others, and the largest weight.
_MANY, _HEAVIEST = 32, 3.0
# The widest interval of a top level without another level between it and the leaves.
_WIDEST = 128


class ColumnCells(NamedTuple):
    """Cells of a single column, with estimates of their shares.

    Attributes
    ----------
    starts : ndarray of int of shape (n_cells,)
        The first leaf of each cell, ascending from 0; records are uniform in a cell.
    shares : ndarray of shape (n_cells + nullable,)
        Shares of the records in the cells, then of null: not negative, of sum 1.
    variances : ndarray of shape (n_cells + nullable,)
        Approximate variances of the shares.
    """

    starts: np.ndarray
    shares: np.ndarray
    variances: np.ndarray


class ColumnTree:
    """Hierarchy of one column: intervals whose widths grow from an anchor, or groups of labels.

    Parameters
    ----------
    n_values : int
        Number of leaves: values in order, or narrow bins.
    nullable : bool, default=False
        Whether there is a further category for null, outside all intervals.
    is_flat : bool, default=False
        Whether there are no intervals, as for categories and declared bins. Each leaf has a cell.
    groups : sequence of ndarray of int of shape (n_values,), default=()
        The group of each leaf of a flat tree at each further level, from the widest down:
        ascending from 0, and nested.
    anchor : int, default=0
        The leaf from which distances are measured; it may be outside of the bounds. Widths of
        intervals are proportional to the distance, so that no scale has to be declared: there are
        ``base`` intervals per power of two, and 16 times as many on a level below wide ones.

    Attributes
    ----------
    levels : list of ndarray of int
        The first leaf of each node of each level, from the leaves up.
    weight : float
        Weight of the counts of the column among those of others. The summed error of k counts with
        noise σ is proportional to k σ, and that of all columns least, for a given Σ 1/σ², if σ is
        proportional to k^(-1/3). It is 1 up to 32 labels, at most 3, and 1 for intervals, whose
        cells are as wide as the noise demands.
    weights : ndarray of shape (n_levels,)
        Factors of the counts of each level, with squares of sum ``n_levels``. They are 1 for
        intervals. Wider groups of labels have more records, and need less precision.
    """

    def __init__(self, n_values, *, nullable=False, is_flat=False, groups=(), anchor=0):
        self.n_values, self.nullable, self.is_flat = n_values, nullable, is_flat
        self.anchor, self.base = anchor, 1
        self.levels = [np.arange(n_values)]
        self.levels += [np.flatnonzero(np.diff(own, prepend=-1)) for own in groups[::-1]]
        weights = _LESS ** np.arange(len(self.levels))
        self.weights = weights * np.sqrt(len(self.levels) / (weights**2).sum())
        self.weight = 1.0
        if is_flat:
            self.weight = min(max(n_values / _MANY, 1.0) ** (1 / 3), _HEAVIEST)
        if is_flat or n_values <= _FLAT:
            return
        while len(finer := _intervals(n_values, anchor, 2 * self.base)) <= _TOP:
            if len(finer) == n_values:
                break
            self.base *= 2
        self.levels.append(_intervals(n_values, anchor, self.base))
        if self.widths[-1].max() > _WIDEST:
            self.levels.insert(1, _intervals(n_values, anchor, _BRANCHES * self.base))
        self.weights = np.ones(self.n_levels)

    @cached_property
    def sides(self):
        """-1, 0 or 1 for each node of the top level: before, at or after the anchor."""
        starts, stops = self.levels[-1], np.append(self.levels[-1][1:], self.n_values)
        return np.where(stops <= self.anchor, -1, np.where(starts > self.anchor, 1, 0))

    @property
    def n_levels(self):
        """Number of levels, and of counts of a record."""
        return len(self.levels)

    @property
    def widths(self):
        """The number of leaves of each node of each level."""
        return [np.diff(np.append(starts, self.n_values)) for starts in self.levels]

    @cached_property
    def stages(self):
        """Levels from the top, with partial sums in between where nodes have many children.

        Each stage is a pair: the first leaf of each entry, and its number of nodes.
        """
        stages = [(self.levels[0], np.ones(self.n_values))]
        for below, above in itertools.pairwise(self.levels):
            children = np.diff(np.append(np.searchsorted(below, above), len(below)))
            ranks = np.arange(len(below)) - np.repeat(np.cumsum(children) - children, children)
            step = _BRANCHES
            while step < children.max():
                (firsts,) = np.nonzero(ranks % step == 0)
                stages.append((below[firsts], np.diff(np.append(firsts, len(below))) * 1.0))
                step *= _BRANCHES
            stages.append((above, np.ones(len(above))))
        return stages[::-1]

    @cached_property
    def parents(self):
        """The parent of each node, for each level but the top."""
        pairs = itertools.pairwise(self.levels)
        return [np.searchsorted(above, below, side="right") - 1 for below, above in pairs]

    @property
    def n_bins(self):
        """The largest number of cells of :meth:`cells`, null included."""
        is_fine = self.is_flat or self.n_levels == 1
        n_cells = self.n_values if is_fine else min(self.n_values, MAX_CELLS)
        return n_cells + self.nullable

    @property
    def n_cells(self):
        """Length of :meth:`counts`."""
        return sum(map(len, self.levels)) + self.nullable * self.n_levels

    def counts(self, leaves):
        """Return the counts of all nodes, level by level.

        Parameters
        ----------
        leaves : ndarray of shape (n_values + nullable,)
            Exact counts of the leaves, then of null.

        Returns
        -------
        ndarray of float64 of shape (n_cells,)
            Multiplied by ``weights``. A record adds the weight of the level to one cell of each
            level, a node or null: a vector of l2 norm √n_levels.
        """
        leaves, nulls = np.split(leaves, [self.n_values])
        sums = [
            weight * np.append(np.add.reduceat(leaves, starts), nulls)
            for weight, starts in zip(self.weights, self.levels, strict=True)
        ]
        return np.concatenate(sums)

    def bins(self, starts):
        """Return the bin of each leaf, then of null, from the first leaf of each bin."""
        widths = np.diff(np.append(starts, self.n_values))
        bins = np.repeat(np.arange(len(starts)), widths)
        return np.append(bins, np.full(int(self.nullable), len(starts)))

    def estimate(self, noisy):
        """Return least-squares counts that are consistent over the tree.

        Parameters
        ----------
        noisy : ndarray of shape (n_cells,)
            Released counts with independent noise of equal variance.

        Returns
        -------
        levels : list of ndarray
            The counts of the nodes of each level.
        nulls : ndarray of shape (1,) or (0,)
        total_variance : float
            Variance of the sum of all records, relative to that of one cell.

        Notes
        -----
        Two sweeps, up and down (Hay, Rastogi, Miklau and Suciu, "Boosting the accuracy of
        differentially private histograms through consistency", 2010).
        """
        given = self._split(noisy)
        nulls = np.stack([level[len(s) :] for level, s in zip(given, self.levels, strict=True)])
        best, variances = self.summed_up(
            [level[: len(s)] for level, s in zip(given, self.levels, strict=True)]
        )
        for level in range(self.n_levels - 2, -1, -1):
            parents = self.parents[level]
            residuals = best[level + 1] - np.bincount(parents, weights=best[level])
            spread = np.bincount(parents, weights=variances[level])
            best[level] = best[level] + residuals[parents] * variances[level] / spread[parents]
        total = variances[-1].sum() + nulls.shape[1] / self.n_levels
        return best, nulls.mean(axis=0), float(total)

    def summed_up(self, given):
        """Return the best counts of nodes by those of their subtrees, and relative variances."""
        own = self.weights**-2
        best, variances = [given[0]], [np.full(self.n_values, own[0])]
        for counts, parents, noise in zip(given[1:], self.parents, own[1:], strict=True):
            below = np.bincount(parents, weights=best[-1])
            spread = np.bincount(parents, weights=variances[-1])
            best.append((counts * spread + below * noise) / (spread + noise))
            variances.append(spread * noise / (spread + noise))
        return best, variances

    def cells(self, noisy, noise_scale, n_records=None):
        """Return cells at the finest resolution the noise supports, with their shares.

        A column of labels, of one level, or of at most 192 leaves, has a cell for each leaf; others
        have at most 192 cells. No cell of several leaves has much more than 1/96 of the records.

        Parameters
        ----------
        noisy : ndarray of shape (n_cells,)
        noise_scale : float
            Standard deviation of the noise of a cell.
        n_records : float or None, default=None
            The number of records; None estimates it.

        Returns
        -------
        ColumnCells
        """
        if n_records is None:
            levels, nulls, _ = self.estimate(noisy)
            n_records = max(1.0, float(levels[-1].sum() + nulls.sum()))
        if self.n_levels == 1:
            starts = self.levels[0]
            counts, variances = posterior_counts(noisy, noise_scale, n_records)
        elif self.is_flat:
            starts = self.levels[0]
            counts, variances = hierarchy_counts(self, noisy, noise_scale, n_records)
        else:
            starts, counts, variances = ordered_cells(self, noisy, noise_scale, n_records)
        return ColumnCells(starts, counts / counts.sum(), variances / n_records**2)

    def tables(self, noisy, starts):
        """Return the noisy counts of groups of cells, a table for each level.

        Parameters
        ----------
        noisy : ndarray of shape (n_cells,)
        starts : ndarray of int of shape (k,)
            The first leaf of each cell.

        Returns
        -------
        list of tuple of ndarray
            For each level: the group of each cell, then of null, separated at the common edges of
            cells and nodes; the noisy counts of groups; and their variances, in units of that of
            a released count.
        """
        tables = []
        for level, given, weight in zip(self.levels, self._split(noisy), self.weights, strict=True):
            firsts = np.searchsorted(level, starts)
            is_edge = level[np.minimum(firsts, len(level) - 1)] == starts
            edges, firsts = starts[is_edge], firsts[is_edge]
            groups = np.cumsum(is_edge) - 1
            counts = np.add.reduceat(given[: len(level)], firsts)
            sizes = np.diff(np.append(firsts, len(level)))
            if self.nullable:
                groups = np.append(groups, len(edges))
                counts, sizes = np.append(counts, given[-1]), np.append(sizes, 1)
            tables.append((groups, counts, sizes / weight**2))
        return tables

    def _split(self, noisy):
        """Return the noisy counts of each level."""
        stops = np.cumsum([len(starts) + self.nullable for starts in self.levels])
        levels = np.split(noisy, stops[:-1])
        return [level / weight for level, weight in zip(levels, self.weights, strict=True)]


def _intervals(n_values, anchor, base):
    """Return the first leaves of intervals, ``base`` per power of two of the distance."""
    starts = [np.array([0, anchor])]
    for sign, first, last in (
        (1, -anchor, n_values - 1 - anchor),
        (-1, anchor - n_values + 1, anchor),
    ):
        for power in range(max(last, 0).bit_length()):
            low, step = 1 << power, max((1 << power) // base, 1)
            start = low + max(first - low, 0) // step * step
            distances = np.arange(start, min(2 * low, last + 1), step)
            # Before the anchor, an interval starts at its largest distance.
            starts.append(anchor + distances if sign > 0 else anchor + 1 - distances)
    starts = np.unique(np.concatenate(starts))
    return starts[(starts >= 0) & (starts < n_values)]
