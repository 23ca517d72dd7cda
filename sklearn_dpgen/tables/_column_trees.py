"""Noisy counts of single columns on trees of intervals, and the cells that they support."""

import itertools
from functools import cached_property
from typing import NamedTuple

import numpy as np
from scipy.interpolate import PchipInterpolator
from scipy.optimize import nnls
from scipy.special import gammaln, ndtr

__all__ = [
    "MAX_CELLS",
    "MAX_LEAVES",
    "ColumnCells",
    "ColumnTree",
    "interval_counts",
    "posterior_counts",
]

# In standard errors, a count that the prior of categories leaves as it is.
_CLEAR = 8.0
# Where the posterior is integrated, in a unit interval, and the shapes of the gamma prior.
_PLACES = (np.arange(48) + 0.5) / 48
_SHAPES = np.geomspace(0.03, 100, 16)
# The square of standard errors beyond which an interval beside others holds records.
_PRICE = 3.0
# By how much slopes of logarithms fall at least, from one power of two to the next beyond the
# largest count: a lognormal law of a scale of 1.3, so that noise makes no tail that never ends.
_BEND = 0.3
_MAX_STEPS = 15
_MOST = 3.0
# Relative to all records, rounding is below this.
_ROUNDING = 1e-9


def posterior_counts(noisy, noise_scale, n_records):
    """Return the counts of categories, in no order, from noisy ones.

    Parameters
    ----------
    noisy : ndarray of shape (k,)
    noise_scale : float
        Standard deviation of the noise of each.
    n_records : float
        What they add up to.

    Returns
    -------
    counts : ndarray of shape (k,)
        Not negative; positive if there is noise.
    variances : ndarray of shape (k,)

    Notes
    -----
    Posterior means under a gamma prior whose shape is the likeliest (empirical Bayes). What is far
    beyond the noise is no part of it. What the sum lacks is shared out by the variances.
    """
    means, variances = np.maximum(noisy, 0.0), np.full(len(noisy), noise_scale**2)
    small = noisy < _CLEAR * noise_scale
    if small.any():
        mean = (n_records - noisy[~small].sum()) / small.sum()
        mean = max(mean, 1e-3 * noise_scale)
        means[small], variances[small] = _gamma_posterior(noisy[small], noise_scale, mean)
    return _with_sum(means, variances, n_records), variances


def _gamma_posterior(noisy, noise_scale, mean):
    """Return posterior means and variances under a gamma prior with this mean."""
    starts = np.maximum(noisy - 6 * noise_scale, 0)[:, None]
    spans = np.maximum(noisy + 6 * noise_scale, 3 * noise_scale)[:, None] - starts
    # Near 0 the prior may have a pole.
    powers = np.where(starts > 0, 1, 4)
    x = starts + spans * _PLACES**powers
    logs = np.log(x)
    fixed = -0.5 * ((noisy[:, None] - x) / noise_scale) ** 2 - logs
    fixed += np.log(powers * spans) + (powers - 1) * np.log(_PLACES)
    most = -np.inf
    for shape in _SHAPES:
        joint = fixed + shape * (logs - x / mean + np.log(shape / mean)) - gammaln(shape)
        top = joint.max(axis=1, keepdims=True)
        joint = np.exp(joint - top)
        sums = joint.sum(axis=1, keepdims=True)
        evidence = (np.log(sums) + top).sum()
        if evidence > most:
            most, weights = evidence, joint / sums
    means = (weights * x).sum(axis=1)
    return means, np.maximum((weights * x**2).sum(axis=1) - means**2, 0)


def _with_sum(counts, variances, total):
    """Return counts that add up, moved by their variances, none below a tenth of what it was."""
    least, spread = 0.1 * counts, variances.sum()
    for _ in range(20):
        gap = total - counts.sum()
        if spread == 0 or abs(gap) <= _ROUNDING * total:
            break
        counts = np.maximum(counts + gap * variances / spread, least)
    if counts.sum() > 0:
        return counts * (total / counts.sum())
    return np.full(len(counts), total / len(counts))


def interval_counts(noisy, noise_scale, total, sides, base):
    """Return the counts of intervals in order, from noisy ones.

    Parameters
    ----------
    noisy : ndarray of shape (k,)
    noise_scale : float
        Standard deviation of the noise of each.
    total : float
        What they add up to.
    sides : ndarray of int of shape (k,)
        -1, 0 or 1: whether an interval is before the anchor, holds it alone, or is after it.
    base : int
        How many intervals are in a power of two of distances from the anchor.

    Returns
    -------
    counts : ndarray of shape (k,)
        Not negative.
    occupied : ndarray of bool of shape (k,)
        Which intervals hold records beyond doubt.

    Notes
    -----
    Around each run of occupied intervals the nearest log-concave counts, which need no parameter
    and let tails decay as they begin to; the occupied ones then move as far from it towards what
    is seen as this differs beyond noise (James and Stein, "Estimation with quadratic loss", 1961).
    """
    if noise_scale == 0:
        return _with_sum(np.maximum(noisy, 0), np.zeros(len(noisy)), total), noisy > 0
    occupied = _occupied(noisy / noise_scale)
    counts = np.empty(len(noisy))
    for part in _segments(occupied, sides):
        others = occupied.copy()
        others[part] = False
        rest = total - noisy[others].sum()
        rest_scale = noise_scale * np.sqrt(max(others.sum(), 0.01))
        bend, order = _BEND / base**2, slice(None, None, -1 if sides[part[0]] < 0 else 1)
        part = part[order]
        counts[part] = _log_concave(noisy[part], noise_scale, rest, rest_scale, bend)
    gaps = noisy - counts
    noise = max(occupied.sum() - 3, 0.5) * noise_scale**2
    kept = max(1 - noise / max((gaps[occupied] ** 2).sum(), noise), 0)
    least = 0.1 * np.minimum(counts, noise_scale)
    most = np.where(occupied, np.inf, np.maximum(noisy, 0) + noise_scale)
    counts = np.where(occupied, np.maximum(counts + kept * gaps, least), np.minimum(counts, most))
    return _with_sum(counts, occupied.astype(np.float64), total), occupied


def _occupied(ratios):
    """Return which of a row of intervals hold records, by their counts over standard errors.

    The likeliest runs: one costs as much as the largest of as many draws of noise is, beside what
    each interval does.
    """
    entry = (np.sqrt(2 * np.log(len(ratios) + 1)) + 0.5) ** 2
    inside, outside, came = -np.inf, 0.0, []
    for gain in np.maximum(ratios, 0) ** 2 - _PRICE:
        came.append((outside - entry > inside, inside > outside))
        inside, outside = max(inside, outside - entry) + gain, max(outside, inside)
    is_inside, found = inside > outside, np.zeros(len(ratios), dtype=bool)
    for i in range(len(ratios) - 1, -1, -1):
        found[i] = is_inside
        entered, left = came[i]
        is_inside = not entered if is_inside else left
    if not found.any():
        found[np.argmax(ratios)] = True
    return found


def _segments(occupied, sides):
    """Return the indices of parts of a row with one run of occupied intervals each at most."""
    parts = []
    for side in (-1, 0, 1):
        (where,) = np.nonzero(sides == side)
        inside = occupied[where]
        starts = np.flatnonzero(inside & ~np.append(False, inside[:-1]))
        ends = np.flatnonzero(inside & ~np.append(inside[1:], False))
        parts += np.split(where, (ends[:-1] + starts[1:] + 1) // 2)
    return [part for part in parts if len(part)]


def _log_concave(noisy, noise_scale, total, total_scale, bend):
    """Return the nearest counts the logarithms of which are concave, by Gauss and Newton.

    Near ``total`` too, in units of ``total_scale``. Beyond the largest count slopes fall by
    ``bend`` at least from each interval to the next.
    """
    n = len(noisy)
    if n == 1:
        return np.maximum(noisy, 0)
    scale = max(noisy.max(), noise_scale)
    y, error = noisy / scale, noise_scale / scale
    total, total_error = max(total / scale, 0.1 * error), total_scale / scale
    k = np.arange(n, dtype=np.float64) - np.argmax(noisy)
    fixed = -0.5 * bend * np.maximum(k, 0) ** 2
    inner = k[1:-1]
    falls = -np.maximum(np.where(inner >= 0, k[:, None] - inner, inner - k[:, None]), 0)
    # Of these coefficients none is negative.
    design = np.column_stack([np.ones(n), -np.ones(n), k, -k, falls])

    def law(w):
        return np.exp(np.minimum(design @ w + fixed, _MOST))

    def loss(law):
        return (((law - y) / error) ** 2).sum() + ((law.sum() - total) / total_error) ** 2

    seen = np.maximum(y, error / 3)
    w = nnls(design * seen[:, None], (np.log(seen) - fixed) * seen)[0]
    found, least = law(w), loss(law(w))
    for _ in range(_MAX_STEPS):
        weights = np.maximum(found, 1e-6) / error
        steps = np.clip((y - found) / np.maximum(found, 1e-9), -2, 2)
        slopes = found @ design / total_error
        target = slopes @ w + (total - found.sum()) / total_error
        rows = np.vstack([design * weights[:, None], slopes])
        try:
            new = nnls(rows, np.append((design @ w + steps) * weights, target))[0]
        except RuntimeError:
            break
        for step in (1.0, 0.5, 0.25, 0.1, 0.03):
            tried = law(w + step * (new - w))
            if loss(tried) < least:
                break
        else:
            break
        gain, w, found = least - loss(tried), w + step * (new - w), tried
        least -= gain
        if gain < 2e-3:
            break
    return scale * found


# Cells that come of an ordered column at most; one of so few values has a cell a value.
MAX_CELLS = 192
# Cells of a single leaf among them, that stand out from their neighbours.
_MAX_HEAPS = 40
# No other cell has a larger share: 32 groups of about the same can be made of them.
_LARGEST = 1 / 96
# The rate of false ones among what is taken for heaps.
_FALSE_HEAPS = 0.1
# Minus the logarithm of the rate at which one of all even intervals is taken for uneven.
_RARE = 2.0


def ordered_cells(tree, noisy, noise_scale, n_records):
    """Return the cells of a column with intervals, and the counts that noisy ones tell of.

    Parameters
    ----------
    tree : ColumnTree
        Of two levels at least.
    noisy : ndarray of shape (tree.n_cells,)
    noise_scale : float
    n_records : float
        What the counts add up to.

    Returns
    -------
    starts : ndarray of int of shape (n_found,)
        The first leaf of each cell.
    counts : ndarray of shape (n_found + nullable,)
    variances : ndarray of shape (n_found + nullable,)
    """
    levels, nulls, _ = tree.estimate(noisy)
    nulls = np.clip(nulls, 0, n_records)
    total = n_records - nulls.sum()
    heaps, excess = _heaps(tree, levels, noise_scale)
    counts, occupied = interval_counts(levels[-1], noise_scale, total, tree.sides, tree.base)
    # Noise at one leaf of many is no heap far from all others.
    nodes = np.searchsorted(tree.levels[-1], heaps, side="right") - 1
    heaps, excess, nodes = (v[occupied[nodes]] for v in (heaps, excess, nodes))
    if len(heaps):
        sums = np.bincount(nodes, weights=excess, minlength=len(counts))
        excess = excess * np.minimum(counts / np.maximum(sums, 1), 1)[nodes]
        rest = levels[-1] - np.bincount(nodes, weights=excess, minlength=len(counts))
        total_rest = total - excess.sum()
        counts, _ = interval_counts(rest, noise_scale, total_rest, tree.sides, tree.base)
    starts, pieces = _pieces(tree, levels[0], counts, heaps, excess, noise_scale)
    # A piece has a part of the noise of its interval, and a heap its own.
    nodes = np.searchsorted(tree.levels[-1], starts, side="right") - 1
    parts = np.maximum(pieces / np.maximum(counts, 1e-9 * (1 + n_records))[nodes], 1 / 16)
    starts, counts, parts = _cells(tree.n_values, tree.anchor, starts, pieces, parts, heaps, excess)
    counts, variances = np.append(counts, nulls), np.append(parts, 1 / tree.n_levels)
    return starts, counts, variances[: len(counts)] * noise_scale**2


def _heaps(tree, levels, noise_scale):
    """Return the leaves that stand out from the interval around them, and by how many records."""
    level = max(1, tree.n_levels - 2)
    nodes = np.searchsorted(tree.levels[level], tree.levels[0], side="right") - 1
    others = tree.widths[level][nodes] - 1
    around = np.maximum((levels[level][nodes] - levels[0]) / np.maximum(others, 1), 0)
    # Where neighbours stand out too, it is by all of them.
    beside = np.pad(levels[0], 1)
    highest = np.maximum(around, np.maximum(beside[:-2], beside[2:]))
    # Noise of a variance v is much like that of v more records, which are a sample.
    rounding = _ROUNDING * (1 + abs(levels[-1].sum()))
    tested = np.flatnonzero((others > 0) & (levels[0] > highest + 2 * noise_scale + 0.5))
    seen, expected = (v[tested] + noise_scale**2 + rounding for v in (levels[0] - 0.5, highest))
    z = np.sqrt(2 * np.maximum(seen * np.log(seen / expected) - (seen - expected), 0))
    order = np.argsort(-z)
    limits = _FALSE_HEAPS * np.arange(1, len(z) + 1) / tree.n_values
    (passed,) = np.nonzero(ndtr(-z[order]) <= limits)
    heaps = tested[order[: passed[-1] + 1 if len(passed) else 0]]
    excess = (levels[0] - around)[heaps]
    largest = np.sort(np.argsort(-excess, kind="stable")[:_MAX_HEAPS])
    largest = largest[np.argsort(heaps[largest])]
    return heaps[largest], excess[largest]


def _pieces(tree, leaves, counts, heaps, excess, noise_scale):
    """Return intervals in which records, but for heaps, may lie evenly, and how many.

    The widest intervals are always split; a part of one where it is uneven, at any depth.
    """
    leaves = leaves.copy()
    leaves[heaps] -= excess
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
    """Return in which intervals the counts of children differ by more than noise and chance do."""
    sizes = np.bincount(parents)
    free = np.maximum(sizes - 1, 1)
    even = (totals / np.bincount(parents, weights=widths))[parents] * widths
    squares = np.bincount(parents, weights=(noisy - even) ** 2)
    noise = np.bincount(parents, weights=noise) / sizes
    # Records are a sample too: those of an even law are Poisson.
    many = np.maximum(totals, 0)
    errors = 2 * free * noise**2 + many * (4 * noise + 2 * many / free + 1)
    # Of as many sums of squares hardly one is larger (Laurent and Massart, 2000, Lemma 1).
    rare = np.log(len(sizes)) + _RARE
    limits = free * noise + many + np.sqrt(2 * rare * errors) + 2 * rare * (noise + many / free)
    return squares > limits + (_ROUNDING * (1 + many.sum())) ** 2


def _between(parents, counts, widths):
    """Return expected counts of children: a smooth increasing curve runs through the sums."""
    inner = np.append(0, np.cumsum(widths))
    outer = np.append(0, np.cumsum(np.bincount(parents, weights=widths)))
    counts = counts + 1e-6 * (1 + counts.sum())
    sums = PchipInterpolator(outer, np.append(0, np.cumsum(counts)))
    return np.maximum(np.diff(sums(inner)), 0) + _ROUNDING * widths


def _children(parents, totals, noisy, expected, noise):
    """Return counts of the children of intervals that add up, between noisy and expected ones.

    What noise there is makes them shrink towards these (James and Stein, "Estimation with
    quadratic loss", 1961).
    """
    sizes = np.bincount(parents)
    expected = (totals / np.bincount(parents, weights=expected))[parents] * expected
    lacks = (totals - np.bincount(parents, weights=noisy)) / sizes
    gaps = noisy + lacks[parents] - expected
    squares = np.bincount(parents, weights=gaps**2)
    noise = np.bincount(parents, weights=noise) / sizes * np.maximum(sizes - 3, 0.5)
    kept = np.maximum(1 - noise / np.maximum(squares, noise + 1e-300), 0)
    return _not_negative(parents, totals, expected + kept[parents] * gaps)


def _not_negative(parents, totals, counts):
    """Return the nearest counts that are not negative and add up to those of the parents."""
    n, positive = len(totals), counts > 0
    for _ in range(50):
        sizes = np.bincount(parents, weights=positive, minlength=n)
        sums = np.bincount(parents, weights=np.where(positive, counts, 0), minlength=n)
        lacks = (totals - sums) / np.maximum(sizes, 1)
        counts = np.where(positive, counts + lacks[parents], 0)
        if (counts >= 0).all():
            break
        positive = counts > 0
    return np.maximum(counts, 0)


def _cells(n_values, anchor, starts, pieces, parts, heaps, excess):
    """Return at most 192 cells of pieces and heaps, their counts and parts of noise."""
    edges = np.append(starts, n_values)
    cuts = np.unique(np.concatenate([starts, heaps, heaps + 1]))
    if n_values <= MAX_CELLS:
        cuts = np.arange(n_values)
    cuts = cuts[cuts < n_values]
    counts, parts = (
        np.diff(np.interp(np.append(cuts, n_values), edges, np.append(0, np.cumsum(v))))
        for v in (pieces, parts)
    )
    is_heap = np.isin(cuts, heaps)
    counts[is_heap] += excess
    parts[is_heap] = 1
    if n_values <= MAX_CELLS:
        return cuts, counts, parts
    # Of a run of empty cells one is enough; of nothing but empty ones two.
    is_empty = counts <= _ROUNDING * counts.sum()
    is_merged = is_empty & np.append(False, is_empty[:-1]) & (cuts != anchor)
    is_merged[-1] &= not is_merged[1:].all()
    cells = _merge((cuts, counts, parts, is_heap), np.flatnonzero(is_merged))
    largest = _LARGEST * counts.sum()
    while True:
        cells = _merged(n_values, anchor, cells, largest)
        if _pieces_of(n_values, cells, largest).sum() <= MAX_CELLS:
            return _cut(n_values, cells, largest)
        largest *= 2


def _merge(cells, which):
    """Merge cells with those before them."""
    starts, counts, parts, is_heap = cells
    kept = np.delete(np.arange(len(starts)), which)
    counts, parts = (np.add.reduceat(v, kept) for v in (counts, parts))
    return starts[kept], counts, parts, is_heap[kept]


def _pieces_of(n_values, cells, largest):
    """Return into how many parts each cell is to be cut, so that none is heavy."""
    starts, counts, _, is_heap = cells
    widths = np.diff(np.append(starts, n_values))
    n_parts = np.ceil(counts / largest - _ROUNDING) if largest > 0 else np.ones(len(counts))
    return np.where(is_heap, 1, np.clip(n_parts, 1, widths)).astype(np.int64)


def _merged(n_values, anchor, cells, largest):
    """Merge light neighbours until there is room for all, the cheapest first.

    Those on two sides of the anchor, such as losses and gains, stay apart. The price is the mass
    that moves, and what it adds to the variance.
    """
    spread = _variance(np.append(cells[0], n_values), cells[1])
    while _pieces_of(n_values, cells, largest).sum() > MAX_CELLS:
        starts, counts, _, is_heap = cells
        widths = np.diff(np.append(starts, n_values)).astype(np.float64)
        wide, both = widths[:-1] + widths[1:], counts[:-1] + counts[1:]
        can = ~(is_heap[:-1] | is_heap[1:]) & (both <= largest) & (starts[1:] != anchor)
        if not can.any():
            break
        moved = np.abs(counts[:-1] * widths[1:] - counts[1:] * widths[:-1]) / wide
        costs = np.where(can, moved * (1 + wide**2 / spread), np.inf)
        # Disjoint pairs, of the cheapest fifth.
        left, right = np.append(np.inf, costs[:-1]), np.append(costs[1:], np.inf)
        lowest = (costs < left) & (costs <= right) & (costs <= np.quantile(costs[can], 0.2))
        if not lowest.any():
            lowest = np.arange(len(costs)) == costs.argmin()
        cells = _merge(cells, np.flatnonzero(lowest) + 1)
    return cells


def _variance(edges, counts):
    """Return the variance of the leaves of records, at least 1."""
    middles, total = (edges[:-1] + edges[1:]) / 2, counts.sum()
    if total <= 0:
        return 1.0
    mean = counts @ middles / total
    return max(1.0, float(counts @ ((middles - mean) ** 2 + np.diff(edges) ** 2 / 12) / total))


def _cut(n_values, cells, largest):
    """Cut heavy cells into even parts."""
    n_parts = _pieces_of(n_values, cells, largest)
    widths = np.diff(np.append(cells[0], n_values))
    index = np.arange(n_parts.sum()) - np.repeat(np.cumsum(n_parts) - n_parts, n_parts)
    starts, counts, parts, widths, n_parts = (
        np.repeat(v, n_parts) for v in (*cells[:3], widths, n_parts)
    )
    first, stop = index * widths // n_parts, (index + 1) * widths // n_parts
    return starts + first, counts * (stop - first) / widths, parts * (stop - first) / widths


# Values that are told apart at most.
MAX_LEAVES = 1 << 17
# A column of so few values has one level.
_FLAT = 32
# Intervals of the top level at most, and of each of them in the next.
_TOP, _BRANCHES = 24, 16
# Without another level below, intervals of the top level are no wider.
_WIDEST = 128


class ColumnCells(NamedTuple):
    """What is known of a single column.

    Attributes
    ----------
    starts : ndarray of int of shape (n_cells,)
        The first leaf of each cell, ascending from 0; in a cell, all leaves are alike.
    shares : ndarray of shape (n_cells + nullable,)
        Of the records in the cells, then in null: not negative, of sum 1.
    variances : ndarray of shape (n_cells + nullable,)
        Of the shares, about.
    """

    starts: np.ndarray
    shares: np.ndarray
    variances: np.ndarray


class ColumnTree:
    """The values of one column in order, and intervals of them, the wider the farther from one.

    Parameters
    ----------
    n_values : int
        The finest cells, the leaves: values in order, or narrow bins.
    nullable : bool, default=False
        Whether there is one more category after them, which belongs to no interval.
    is_flat : bool, default=False
        Whether there are no intervals: of categories, or of bins that are given.
    anchor : int, default=0
        The leaf that distances are from, which may be outside. The widths of intervals are in
        proportion to them, so that a scale need not be declared: there are ``base`` of them in a
        power of two, and 16 times as many on a level below, if they are wide.
    """

    def __init__(self, n_values, *, nullable=False, is_flat=False, anchor=0):
        self.n_values, self.nullable, self.is_flat = n_values, nullable, is_flat
        self.anchor, self.base = anchor, 1
        self.levels = [np.arange(n_values)]
        if is_flat or n_values <= _FLAT:
            return
        while len(finer := _intervals(n_values, anchor, 2 * self.base)) <= _TOP:
            if len(finer) == n_values:
                break
            self.base *= 2
        self.levels.append(_intervals(n_values, anchor, self.base))
        if self.widths[-1].max() > _WIDEST:
            self.levels.insert(1, _intervals(n_values, anchor, _BRANCHES * self.base))

    @cached_property
    def sides(self):
        """-1, 0 or 1 for each node of the top level: before, at or after the anchor."""
        starts, stops = self.levels[-1], np.append(self.levels[-1][1:], self.n_values)
        return np.where(stops <= self.anchor, -1, np.where(starts > self.anchor, 1, 0))

    @property
    def n_levels(self):
        """How often a record is counted."""
        return len(self.levels)

    @property
    def widths(self):
        """The number of leaves of each node of each level."""
        return [np.diff(np.append(starts, self.n_values)) for starts in self.levels]

    @cached_property
    def stages(self):
        """The levels from the top, and sums in between where nodes have many children.

        Of each the first leaves, and how many nodes of a level are summed.
        """
        found = [(self.levels[0], np.ones(self.n_values))]
        for below, above in itertools.pairwise(self.levels):
            children = np.diff(np.append(np.searchsorted(below, above), len(below)))
            places = np.arange(len(below)) - np.repeat(np.cumsum(children) - children, children)
            step = _BRANCHES
            while step < children.max():
                (firsts,) = np.nonzero(places % step == 0)
                found.append((below[firsts], np.diff(np.append(firsts, len(below))) * 1.0))
                step *= _BRANCHES
            found.append((above, np.ones(len(above))))
        return found[::-1]

    @cached_property
    def parents(self):
        """For each level but the last the node above, of each node."""
        pairs = itertools.pairwise(self.levels)
        return [np.searchsorted(above, below, side="right") - 1 for below, above in pairs]

    @property
    def n_bins(self):
        """The number of cells, and of nulls, that :meth:`cells` gives at most."""
        most = self.n_values if self.n_levels == 1 else min(self.n_values, MAX_CELLS)
        return most + self.nullable

    @property
    def n_cells(self):
        """Entries of :meth:`counts`."""
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
            A record adds one to one cell a level, be it a node or the null: a vector of l2 norm
            √n_levels.
        """
        leaves, nulls = np.split(leaves, [self.n_values])
        sums = [np.append(np.add.reduceat(leaves, starts), nulls) for starts in self.levels]
        return np.concatenate(sums)

    def bins(self, starts):
        """Return the bin of each leaf, then of null, from the first leaf of each bin."""
        widths = np.diff(np.append(starts, self.n_values))
        bins = np.repeat(np.arange(len(starts)), widths)
        return np.append(bins, np.full(int(self.nullable), len(starts)))

    def estimate(self, noisy):
        """Return the counts of least squares that add up over the tree.

        Parameters
        ----------
        noisy : ndarray of shape (n_cells,)
            Counts with independent noise of one variance.

        Returns
        -------
        levels : list of ndarray
            The counts of the nodes of each level.
        nulls : ndarray of shape (1,) or (0,)
        total_variance : float
            Of the sum of all, relative to that of one cell.

        Notes
        -----
        Two sweeps, up and down (Hay, Rastogi, Miklau and Suciu, "Boosting the accuracy of
        differentially private histograms through consistency", 2010).
        """
        given = self._split(noisy)
        nulls = np.stack([part[len(s) :] for part, s in zip(given, self.levels, strict=True)])
        given = [part[: len(s)] for part, s in zip(given, self.levels, strict=True)]
        best, variances = [given[0]], [np.ones(self.n_values)]
        for part, parents in zip(given[1:], self.parents, strict=True):
            below = np.bincount(parents, weights=best[-1])
            spread = np.bincount(parents, weights=variances[-1])
            best.append((part * spread + below) / (spread + 1))
            variances.append(spread / (spread + 1))
        for level in range(self.n_levels - 2, -1, -1):
            parents = self.parents[level]
            gaps = best[level + 1] - np.bincount(parents, weights=best[level])
            spread = np.bincount(parents, weights=variances[level])
            best[level] = best[level] + gaps[parents] * variances[level] / spread[parents]
        total = variances[-1].sum() + nulls.shape[1] / self.n_levels
        return best, nulls.mean(axis=0), float(total)

    def cells(self, noisy, noise_scale, n_records=None):
        """Return cells, and the shares of records in them, for all that the noise lets see.

        A column of one level has a cell for each leaf, and so has any of at most 192; others have
        at most 192 cells. No interval of several leaves has much more than 1/96 of the records.

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
        else:
            starts, counts, variances = ordered_cells(self, noisy, noise_scale, n_records)
        return ColumnCells(starts, counts / counts.sum(), variances / n_records**2)

    def tables(self, noisy, starts):
        """Return what the counts of each level tell of cells, one level after another.

        Parameters
        ----------
        noisy : ndarray of shape (n_cells,)
        starts : ndarray of int of shape (n_found,)
            The first leaf of each cell.

        Returns
        -------
        list of tuple of ndarray
            Of each level the group of each cell, then of null, where an edge between groups is one
            of cells and of nodes; the noisy counts of groups; and the number of nodes in them.
        """
        found = []
        for level, given in zip(self.levels, self._split(noisy), strict=True):
            firsts = np.searchsorted(level, starts)
            is_edge = level[np.minimum(firsts, len(level) - 1)] == starts
            edges, firsts = starts[is_edge], firsts[is_edge]
            groups = np.cumsum(is_edge) - 1
            counts = np.add.reduceat(given[: len(level)], firsts)
            sizes = np.diff(np.append(firsts, len(level)))
            if self.nullable:
                groups = np.append(groups, len(edges))
                counts, sizes = np.append(counts, given[-1]), np.append(sizes, 1)
            found.append((groups, counts, sizes))
        return found

    def _split(self, noisy):
        stops = np.cumsum([len(starts) + self.nullable for starts in self.levels])
        return np.split(noisy, stops[:-1])


def _intervals(n_values, anchor, base):
    """Return the first leaves of intervals, so many in each power of two of distances."""
    parts = [np.array([0, anchor])]
    for sign, first, last in (
        (1, -anchor, n_values - 1 - anchor),
        (-1, anchor - n_values + 1, anchor),
    ):
        for power in range(max(last, 0).bit_length()):
            low, step = 1 << power, max((1 << power) // base, 1)
            start = low + max(first - low, 0) // step * step
            distances = np.arange(start, min(2 * low, last + 1), step)
            # Before the anchor, an interval starts where its distances end.
            parts.append(anchor + distances if sign > 0 else anchor + 1 - distances)
    starts = np.unique(np.concatenate(parts))
    return starts[(starts >= 0) & (starts < n_values)]
