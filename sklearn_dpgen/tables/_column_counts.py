"""Estimates of counts from noisy ones: of labels, and of ordered intervals."""

import numpy as np
from scipy.optimize import nnls
from scipy.special import gammaln

__all__ = ["interval_counts", "posterior_counts"]

# Counts beyond so many standard errors are kept as they are, without the prior of categories.
_CLEAR = 8.0
# Quadrature nodes of the posterior in the unit interval, and the shapes of the gamma prior.
_NODES = (np.arange(48) + 0.5) / 48
_SHAPES = np.geomspace(0.03, 100, 16)
# The squared standard errors that an interval needs to count as occupied.
_PENALTY = 3.0
# The least fall of the slope of log-counts from one power of two to the next beyond the largest
# count. It is that of a lognormal distribution of scale 1.3, and ends tails that consist of noise.
_BEND = 0.3
_MAX_STEPS = 15
# Counts of which the nodes of all are in memory.
_ROWS = 1 << 13
# An upper bound on the rounding error of a sum, relative to the number of records.
_ROUNDING = 1e-9
# The largest log-count, relative to the largest noisy count.
_MAX_LOG = 3.0


def posterior_counts(noisy, noise_scale, totals, parents=None, widths=None):
    """Return posterior mean counts of unordered categories from noisy counts.

    Parameters
    ----------
    noisy : ndarray of shape (k,)
    noise_scale : float or ndarray of shape (k,)
        Standard deviation of the noise of a count.
    totals : float or ndarray of shape (m,)
        Sum of the counts, or of those of each parent.
    parents : ndarray of int of shape (k,), default=None
        The parent of each category; None for a single one.
    widths : ndarray of shape (k,), default=None
        Positive; the expected counts are in proportion to them. None for equal ones.

    Returns
    -------
    counts : ndarray of shape (k,)
        Not negative; positive if there is noise.
    variances : ndarray of shape (k,)

    Notes
    -----
    The prior is a gamma distribution of maximum evidence (empirical Bayes), whose mean is an even
    share of the sum of a parent. Counts far above the noise are left out of it. The residual of a
    sum is distributed by the variances.
    """
    totals = np.atleast_1d(totals)
    parents = np.zeros(len(noisy), dtype=np.int64) if parents is None else parents
    widths = np.ones(len(noisy)) if widths is None else widths
    scales = np.broadcast_to(np.asarray(noise_scale, dtype=np.float64), noisy.shape)
    means, variances = np.maximum(noisy, 0.0), scales**2
    small = noisy < _CLEAR * scales
    # An only child has the count of its parent.
    small &= np.bincount(parents, minlength=len(totals))[parents] > 1
    if small.any():
        own, n = parents[small], len(totals)
        rest = totals - np.bincount(parents[~small], weights=noisy[~small], minlength=n)
        mean = rest[own] * widths[small] / np.bincount(own, weights=widths[small])[own]
        mean = np.maximum(mean, 1e-3 * scales[small])
        means[small], variances[small] = _gamma_posterior(noisy[small], scales[small], mean)
    return _with_sums(means, variances, totals, parents), variances


def _gamma_posterior(*given):
    """Return posterior means and variances under gamma priors of one shape.

    Parameters
    ----------
    noisy, noise_scales, means : ndarray of shape (k,)
        Noisy counts and their noise, and the means of the prior.
    """
    rows = [slice(i, i + _ROWS) for i in range(0, len(given[0]), _ROWS)]
    parts = [[values[own, None] for values in given] for own in rows]
    evidence = np.zeros(len(_SHAPES))
    for part in parts:
        nodes = _nodes(*part)
        evidence += [_joint(nodes, shape)[1] for shape in _SHAPES]
    shape, found = _SHAPES[np.argmax(evidence)], []
    for part in parts:
        nodes = _nodes(*part)
        weights, x = _joint(nodes, shape)[0], nodes[0]
        mean = (weights * x).sum(axis=1)
        found.append((mean, np.maximum((weights * x**2).sum(axis=1) - mean**2, 0)))
    posterior_means, variances = map(np.concatenate, zip(*found, strict=True))
    return posterior_means, variances


def _nodes(noisy, noise_scale, mean):
    """Return nodes, their logarithms, the log-likelihoods with the weights of nodes, and means."""
    starts = np.maximum(noisy - 6 * noise_scale, 0)
    spans = np.maximum(noisy + 6 * noise_scale, 3 * noise_scale) - starts
    # Nodes are denser near 0, where the prior may have a pole.
    powers = np.where(starts > 0, 1, 4)
    x = starts + spans * _NODES**powers
    logs = np.log(x)
    fixed = -0.5 * ((noisy - x) / noise_scale) ** 2 - logs
    fixed += np.log(powers * spans) + (powers - 1) * np.log(_NODES)
    return x, logs, fixed, mean


def _joint(nodes, shape):
    """Return the posterior weights of nodes, and the log-evidence of a shape of the prior."""
    x, logs, fixed, mean = nodes
    joint = fixed + shape * (logs - x / mean + np.log(shape / mean)) - gammaln(shape)
    top = joint.max(axis=1, keepdims=True)
    joint = np.exp(joint - top)
    sums = joint.sum(axis=1, keepdims=True)
    return joint / sums, (np.log(sums) + top).sum()


def _with_sums(counts, variances, totals, parents):
    """Scale counts to the sums of parents by variances, none to less than a tenth of its value."""

    def summed(values):
        return np.bincount(parents, weights=values, minlength=len(totals))

    least, spread = 0.1 * counts, summed(variances)
    for _ in range(20):
        residual = totals - summed(counts)
        is_off = (np.abs(residual) > _ROUNDING * totals) & (spread > 0)
        if not is_off.any():
            break
        shift = np.divide(residual, spread, out=np.zeros(len(totals)), where=is_off)
        counts = np.maximum(counts + shift[parents] * variances, least)
    sums, sizes = summed(counts), np.bincount(parents, minlength=len(totals))
    ratios = np.divide(totals, sums, out=np.zeros(len(totals)), where=sums > 0)
    even = np.where(sums > 0, 0.0, totals / np.maximum(sizes, 1))
    return counts * ratios[parents] + even[parents]


def _with_sum(counts, variances, total):
    return _with_sums(counts, variances, np.array([total]), np.zeros(len(counts), dtype=np.int64))


def interval_counts(noisy, noise_scale, total, sides, base):
    """Return smoothed counts of ordered intervals from noisy counts.

    Parameters
    ----------
    noisy : ndarray of shape (k,)
    noise_scale : float
        Standard deviation of the noise of a count.
    total : float
        Sum of the counts.
    sides : ndarray of int of shape (k,)
        -1, 0 or 1 for an interval before the anchor, of the anchor alone, or after it.
    base : int
        Number of intervals per power of two of the distance from the anchor.

    Returns
    -------
    counts : ndarray of shape (k,)
        Not negative.
    occupied : ndarray of bool of shape (k,)
        Whether an interval is significantly above the noise.

    Notes
    -----
    Each run of occupied intervals and its surroundings get the nearest log-concave counts, which
    need no parameter and extrapolate the decay of the tails. Occupied intervals are then shrunk
    from the noisy counts towards these (James and Stein, "Estimation with quadratic loss", 1961).
    """
    if noise_scale == 0:
        return _with_sum(np.maximum(noisy, 0), np.zeros(len(noisy)), total), noisy > 0
    occupied = _occupied(noisy / noise_scale)
    counts = np.empty(len(noisy))
    for segment in _segments(occupied, sides):
        others = occupied.copy()
        others[segment] = False
        rest = total - noisy[others].sum()
        rest_scale = noise_scale * np.sqrt(max(others.sum(), 0.01))
        bend, order = _BEND / base**2, slice(None, None, -1 if sides[segment[0]] < 0 else 1)
        segment = segment[order]
        counts[segment] = _log_concave(noisy[segment], noise_scale, rest, rest_scale, bend)
    residuals = noisy - counts
    noise = max(occupied.sum() - 3, 0.5) * noise_scale**2
    kept = max(1 - noise / max((residuals[occupied] ** 2).sum(), noise), 0)
    least = 0.1 * np.minimum(counts, noise_scale)
    most = np.where(occupied, np.inf, np.maximum(noisy, 0) + noise_scale)
    shrunk = np.maximum(counts + kept * residuals, least)
    counts = np.where(occupied, shrunk, np.minimum(counts, most))
    return _with_sum(counts, occupied.astype(np.float64), total), occupied


def _occupied(ratios):
    """Return the mask of the occupied intervals, by their counts in standard errors.

    The runs are the likeliest ones under a penalty for each run, which is the expected maximum of
    the noise, and a penalty for each interval.
    """
    entry = (np.sqrt(2 * np.log(len(ratios) + 1)) + 0.5) ** 2
    inside, outside, back = -np.inf, 0.0, []
    for gain in np.maximum(ratios, 0) ** 2 - _PENALTY:
        back.append((outside - entry > inside, inside > outside))
        inside, outside = max(inside, outside - entry) + gain, max(outside, inside)
    # Trace the optimal states of this dynamic programme backwards.
    is_inside, occupied = inside > outside, np.zeros(len(ratios), dtype=bool)
    for i in range(len(ratios) - 1, -1, -1):
        occupied[i] = is_inside
        entered, left = back[i]
        is_inside = not entered if is_inside else left
    if not occupied.any():
        occupied[np.argmax(ratios)] = True
    return occupied


def _segments(occupied, sides):
    """Return index arrays that split the intervals, with at most one occupied run in each."""
    segments = []
    for side in (-1, 0, 1):
        (indices,) = np.nonzero(sides == side)
        inside = occupied[indices]
        starts = np.flatnonzero(inside & ~np.append(False, inside[:-1]))
        ends = np.flatnonzero(inside & ~np.append(inside[1:], False))
        segments += np.split(indices, (ends[:-1] + starts[1:] + 1) // 2)
    return [segment for segment in segments if len(segment)]


def _log_concave(noisy, noise_scale, total, total_scale, bend):
    """Return the nearest log-concave counts, by the Gauss-Newton method.

    Their sum is fitted to ``total``, whose standard error is ``total_scale``. Beyond the largest
    count, slopes of log-counts fall by at least ``bend`` from each interval to the next.
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
    # Log-counts are concave where no coefficient of these columns is negative.
    design = np.column_stack([np.ones(n), -np.ones(n), k, -k, falls])

    def curve(w):
        return np.exp(np.minimum(design @ w + fixed, _MAX_LOG))

    def loss(fitted):
        return (((fitted - y) / error) ** 2).sum() + ((fitted.sum() - total) / total_error) ** 2

    seen = np.maximum(y, error / 3)
    w = nnls(design * seen[:, None], (np.log(seen) - fixed) * seen)[0]
    fitted, least = curve(w), loss(curve(w))
    for _ in range(_MAX_STEPS):
        weights = np.maximum(fitted, 1e-6) / error
        steps = np.clip((y - fitted) / np.maximum(fitted, 1e-9), -2, 2)
        slopes = fitted @ design / total_error
        target = slopes @ w + (total - fitted.sum()) / total_error
        rows = np.vstack([design * weights[:, None], slopes])
        try:
            new = nnls(rows, np.append((design @ w + steps) * weights, target))[0]
        except RuntimeError:
            break
        for step in (1.0, 0.5, 0.25, 0.1, 0.03):
            tried = curve(w + step * (new - w))
            if loss(tried) < least:
                break
        else:
            break
        gain, w, fitted = least - loss(tried), w + step * (new - w), tried
        least -= gain
        if gain < 2e-3:
            break
    return scale * fitted
