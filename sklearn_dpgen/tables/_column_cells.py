"""What noisy counts of a single column tell: shares that are not negative, and cells for them."""

import itertools

import numpy as np
from scipy.interpolate import PchipInterpolator
from scipy.special import ndtr

from sklearn_dpgen.tables._column_counts import interval_counts

__all__ = ["MAX_CELLS", "ordered_cells"]

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
# Relative to all records, rounding is below this.
_ROUNDING = 1e-9


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
