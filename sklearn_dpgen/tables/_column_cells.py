"""What noisy counts of a single column tell: shares that are not negative, and cells for them."""

import numpy as np
from scipy.special import gammaln, ndtr

__all__ = ["MAX_CELLS", "ordered_cells", "posterior_counts"]

# Cells that come of an ordered column at most; one of so few values has a cell a value.
MAX_CELLS = 192
# Cells of a single leaf among them, that stand out from their neighbours.
_MAX_HEAPS = 40
# No other cell has a larger share: 32 groups of about the same can be made of them.
_LARGEST = 1 / 96
# The rate of false ones among what is taken for heaps.
_FALSE_HEAPS = 0.1
# Standard errors of a sum of squares beyond which an interval is not even.
_UNEVEN = 3.0
# From one interval to the next, outwards, the most that is left where noise hides the counts.
_DECAY = 0.6
# In standard errors, a count that the prior leaves as it is.
_CLEAR = 8.0
# Of the posterior: where it is integrated, in a unit interval, and the shapes of the prior.
_PLACES = (np.arange(48) + 0.5) / 48
_SHAPES = np.geomspace(0.03, 100, 16)
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
    counts = _top_counts(levels[-1], noise_scale, n_records - nulls.sum())
    heaps, excess = _heaps(tree, levels, noise_scale)
    starts, pieces = _pieces(tree, levels, counts, heaps, excess, noise_scale)
    # Heaps that take more than their interval has leave it empty.
    if pieces.sum() + excess.sum() > 0:
        scale = (n_records - nulls.sum()) / (pieces.sum() + excess.sum())
        pieces, excess = pieces * scale, excess * scale
    starts, counts = _cells(tree.n_values, tree.anchor, starts, pieces, heaps, excess)
    counts = np.append(counts, nulls)
    return starts, counts, np.full(len(counts), noise_scale**2)


def _top_counts(noisy, noise_scale, total):
    """Return the counts of the widest intervals, with what noise hides beyond others decaying."""
    if noise_scale == 0:
        return _with_sum(np.maximum(noisy, 0), np.zeros(len(noisy)), total)
    occupied = _occupied(noisy / noise_scale)
    counts = np.maximum(
        _outwards(noisy, noise_scale, occupied),
        _outwards(noisy[::-1], noise_scale, occupied[::-1])[::-1],
    )
    return _with_sum(counts, np.where(occupied, 1.0, 0.0), total)


def _occupied(ratios):
    """Return which of a row of intervals hold records, by their counts over standard errors.

    The likeliest runs: one costs as much as the largest of as many draws of noise, and each
    interval in it two.
    """
    entry = (np.sqrt(2 * np.log(len(ratios) + 1)) + 0.5) ** 2
    inside, outside, came = -np.inf, 0.0, []
    for gain in np.maximum(ratios, 0) ** 2 - 2:
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


def _outwards(noisy, noise_scale, occupied):
    """Return counts, those after occupied intervals by their noise and a prior that decays.

    It is exponential, with a mean that falls as the two counts before did.
    """
    counts = np.where(occupied, np.maximum(noisy, 0), 0.0)
    for i in np.flatnonzero(~occupied):
        if i == 0 or counts[i - 1] == 0:
            continue
        before = counts[i - 2] if i > 1 else 0.0
        ratio = min(_DECAY, counts[i - 1] / before) if before > 0 else _DECAY
        counts[i] = _exponential_posterior(noisy[i], noise_scale, ratio * counts[i - 1])
    return counts


def _exponential_posterior(noisy, noise_scale, mean):
    """Return the posterior mean under an exponential prior with this mean."""
    if mean < 1e-3 * noise_scale:
        return mean
    z = (noisy - noise_scale**2 / mean) / noise_scale
    if z < -20:
        return -noise_scale / z
    return noise_scale * (z + np.exp(-0.5 * z**2) / np.sqrt(2 * np.pi) / ndtr(z))


def _heaps(tree, levels, noise_scale):
    """Return the leaves that stand out from the interval around them, and by how many records."""
    level = max(1, tree.n_levels - 2)
    nodes = np.searchsorted(tree.levels[level], tree.levels[0], side="right") - 1
    others = tree.widths[level][nodes] - 1
    around = np.maximum((levels[level][nodes] - levels[0]) / np.maximum(others, 1), 0)
    # Noise of a variance v is much like that of v more records, which are a sample.
    rounding = _ROUNDING * (1 + abs(levels[-1].sum()))
    tested = np.flatnonzero((others > 0) & (levels[0] > around + 2 * noise_scale + 0.5))
    seen, expected = (v[tested] + noise_scale**2 + rounding for v in (levels[0] - 0.5, around))
    z = np.sqrt(2 * np.maximum(seen * np.log(seen / expected) - (seen - expected), 0))
    order = np.argsort(-z)
    limits = _FALSE_HEAPS * np.arange(1, len(z) + 1) / tree.n_values
    (passed,) = np.nonzero(ndtr(-z[order]) <= limits)
    heaps = tested[order[: passed[-1] + 1 if len(passed) else 0]]
    excess = (levels[0] - around)[heaps]
    largest = np.sort(np.argsort(-excess, kind="stable")[:_MAX_HEAPS])
    largest = largest[np.argsort(heaps[largest])]
    return heaps[largest], excess[largest]


def _pieces(tree, levels, counts, heaps, excess, noise_scale):
    """Return intervals in which records, but for heaps, may lie evenly, and how many.

    The widest intervals are always split; a part of them where it is uneven beyond noise.
    """
    leaves = np.zeros(tree.n_values)
    leaves[heaps] = excess
    counts = np.maximum(counts - np.add.reduceat(leaves, tree.levels[-1]), 0)
    is_open, starts, pieces = np.ones(len(counts), dtype=bool), [], []
    for level in range(tree.n_levels - 2, -1, -1):
        parents, always = tree.parents[level], level == tree.n_levels - 2
        rest = levels[level] - np.add.reduceat(leaves, tree.levels[level])
        children, is_uneven = _children(parents, counts, rest, tree.widths[level], noise_scale)
        is_split = is_open & (is_uneven | always)
        starts.append(tree.levels[level + 1][is_open & ~is_split])
        pieces.append(counts[is_open & ~is_split])
        counts, is_open = children, is_split[parents]
    starts.append(tree.levels[0][is_open])
    pieces.append(counts[is_open])
    starts, pieces = np.concatenate(starts), np.concatenate(pieces)
    order = np.argsort(starts)
    return starts[order], pieces[order]


def _children(parents, totals, noisy, widths, noise_scale):
    """Return the counts of the children of intervals, shrunk towards even ones, which add up.

    And which intervals are uneven beyond noise. By as much as the gaps are noise they shrink
    (James and Stein, "Estimation with quadratic loss", 1961).
    """
    n = len(totals)
    sizes = np.bincount(parents, minlength=n)
    width = np.bincount(parents, weights=widths, minlength=n)
    even = totals[parents] * widths / width[parents]
    lacks = (totals - np.bincount(parents, weights=noisy, minlength=n)) / sizes
    gaps = noisy + lacks[parents] - even
    squares = np.bincount(parents, weights=gaps**2, minlength=n)
    free = np.maximum(sizes - 1, 1)
    # Records are a sample too: those of an even law are Poisson.
    noise = noise_scale**2
    errors = 2 * free * noise**2 + totals * (4 * noise + 2 * totals / free + 1)
    limits = free * noise + totals + _UNEVEN * np.sqrt(errors)
    is_uneven = squares > limits + (_ROUNDING * totals.sum()) ** 2
    noise *= np.maximum(free - 2, 0.5)
    kept = np.maximum(1 - noise / np.maximum(squares, noise + 1e-300), 0)
    return _not_negative(parents, totals, even + kept[parents] * gaps), is_uneven


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


def _cells(n_values, anchor, starts, pieces, heaps, excess):
    """Return at most 192 cells of pieces and heaps, and their counts."""
    edges = np.append(starts, n_values)
    sums = np.append(0, np.cumsum(pieces))
    cuts = np.unique(np.concatenate([starts, heaps, heaps + 1]))
    if n_values <= MAX_CELLS:
        cuts = np.arange(n_values)
    cuts = cuts[cuts < n_values]
    counts = np.diff(np.interp(np.append(cuts, n_values), edges, sums))
    is_heap = np.isin(cuts, heaps)
    counts[is_heap] += excess
    if n_values <= MAX_CELLS:
        return cuts, counts
    # Of a run of empty cells one is enough; of nothing but empty ones two.
    is_empty = counts == 0
    kept = ~(is_empty & np.append(False, is_empty[:-1]))
    kept[-1] |= kept.sum() == 1
    cuts, counts, is_heap = cuts[kept], counts[kept], is_heap[kept]
    largest = _LARGEST * counts.sum()
    while True:
        cells = _merged(n_values, anchor, cuts, counts, is_heap, largest)
        if _parts(n_values, *cells, largest).sum() <= MAX_CELLS:
            return _cut(n_values, *cells, largest)
        largest *= 2


def _parts(n_values, starts, counts, is_heap, largest):
    """Return into how many parts each cell is to be cut, so that none is heavy."""
    widths = np.diff(np.append(starts, n_values))
    parts = np.ceil(counts / largest - _ROUNDING) if largest > 0 else np.ones(len(counts))
    return np.where(is_heap, 1, np.clip(parts, 1, widths)).astype(np.int64)


def _merged(n_values, anchor, starts, counts, is_heap, largest):
    """Merge light neighbours until there is room for all, the cheapest first.

    Those on two sides of the anchor, such as losses and gains, stay apart. The price is the mass
    that moves, and what it adds to the variance.
    """
    spread = _variance(np.append(starts, n_values), counts)
    while _parts(n_values, starts, counts, is_heap, largest).sum() > MAX_CELLS:
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
        (merged,) = np.nonzero(lowest if lowest.any() else np.arange(len(costs)) == costs.argmin())
        counts = counts.copy()
        counts[merged] += counts[merged + 1]
        starts, counts, is_heap = (np.delete(v, merged + 1) for v in (starts, counts, is_heap))
    return starts, counts, is_heap


def _variance(edges, counts):
    """Return the variance of the leaves of records, at least 1."""
    middles, total = (edges[:-1] + edges[1:]) / 2, counts.sum()
    if total <= 0:
        return 1.0
    mean = counts @ middles / total
    return max(1.0, float(counts @ ((middles - mean) ** 2 + np.diff(edges) ** 2 / 12) / total))


def _cut(n_values, starts, counts, is_heap, largest):
    """Cut heavy cells into even parts."""
    widths = np.diff(np.append(starts, n_values))
    parts = _parts(n_values, starts, counts, is_heap, largest)
    index = np.arange(parts.sum()) - np.repeat(np.cumsum(parts) - parts, parts)
    starts, counts, widths, parts = (np.repeat(v, parts) for v in (starts, counts, widths, parts))
    first, stop = index * widths // parts, (index + 1) * widths // parts
    return starts + first, counts * (stop - first) / widths
