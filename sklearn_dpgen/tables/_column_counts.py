"""Counts that are not negative, from noisy ones: of categories in no order, and of intervals."""

import numpy as np
from scipy.optimize import nnls
from scipy.special import gammaln

__all__ = ["interval_counts", "posterior_counts"]

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
