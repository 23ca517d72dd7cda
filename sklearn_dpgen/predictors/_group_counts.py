"""Noisy counts and sums by group: distributions of scores, and means of outcomes."""

import numpy as np
import pandas as pd
from scipy.special import ndtri

from sklearn_dpgen.ot._barycenter import BarycenterMaps, LineLaw

__all__ = [
    "count_halves",
    "first_split_noise",
    "group_sizes",
    "maps_of_halves",
    "maps_of_scores",
    "mean_intervals",
    "outcome_sums",
]

# Shares of the squared budget of the counts, up to a factor: the first split of [0, 1], and each
# finer one. The split of a small group exceeds the noise in the first split, or in none.
_FIRST_SPLIT, _OTHER_SPLITS = 6.0, 1.0
# Variance between groups of the share q of one of two halves, in units of q (1 - q).
_SPREAD = 0.25
# Grid on which the ends of an interval are searched.
_CANDIDATES = np.linspace(0, 1, 2001)


def maps_of_scores(scores, codes, n_groups):
    """Return the maps of the scores of each group to their barycentre, weighted by group sizes.

    A group without rows has the distribution of all rows.
    """
    laws = [
        LineLaw.from_sample(scores[codes == code] if np.any(codes == code) else scores)
        for code in range(n_groups)
    ]
    return BarycenterMaps(laws, np.maximum(np.bincount(codes, minlength=n_groups), 1))


def count_halves(scores, codes, n_groups, n_levels):
    """Count scores by group in halves of [0, 1], in halves of these, and so on.

    Parameters
    ----------
    scores : ndarray of shape (n,)
        Clipped to [0, 1]; NaN counts as 0.
    codes : ndarray of int of shape (n,)
        Group of each row.
    n_groups : int
    n_levels : int
        Number of levels; the last one has 2 ** n_levels bins.

    Returns
    -------
    ndarray of float64
        The weighted counts of each level. A row is in one cell of each level, and the squares of
        its weights sum to 1. The l2 sensitivity is therefore 1 if a row is added or removed, and
        √2 if it is replaced by a row of any group: two vectors of norm 1 without a negative entry
        have ‖u − v‖² = 2 − 2⟨u, v⟩ ≤ 2.
    """
    scores = np.clip(np.nan_to_num(scores, nan=0.0), 0.0, 1.0)
    bins = np.minimum((scores * 2**n_levels).astype(np.int64), 2**n_levels - 1)
    levels = []
    for level, weight in enumerate(_weights(n_levels), 1):
        cells = codes * 2**level + (bins >> (n_levels - level))
        levels.append(weight * np.bincount(cells, minlength=n_groups * 2**level))
    return np.concatenate(levels)


def _weights(n_levels):
    shares = np.full(n_levels, _OTHER_SPLITS)
    shares[0] = _FIRST_SPLIT
    return np.sqrt(shares / shares.sum())


def _levels(vector, n_groups, n_levels):
    """Return the counts of each level, by group, parent and half."""
    sizes = [n_groups * 2**level for level in range(1, n_levels + 1)]
    parts = np.split(vector, np.cumsum(sizes)[:-1])
    weights = _weights(n_levels)
    return [
        (part / weight).reshape(n_groups, -1, 2)
        for part, weight in zip(parts, weights, strict=True)
    ]


def group_sizes(vector, n_groups, n_levels):
    """Return the noisy number of rows of each group."""
    return _levels(vector, n_groups, n_levels)[0].sum(axis=(1, 2))


def first_split_noise(noise_scale, n_levels):
    """Return the standard deviation of the noise on the halves of [0, 1]."""
    return noise_scale / _weights(n_levels)[0]


def maps_of_halves(vector, n_groups, n_levels, noise_scale):
    """Return the maps to the barycentre, from noisy counts.

    In each half of each level, the split of a group is shrunk towards that of all groups together.
    The factor is the share of noise and sampling in the variance of the counts, which gives the
    best linear estimate; a small group is mapped as all rows are.

    Parameters
    ----------
    vector : ndarray
        The released counts of :func:`count_halves`.
    n_groups, n_levels : int
    noise_scale : float
        Standard deviation of the noise on each entry.

    Returns
    -------
    BarycenterMaps
    """
    sizes = np.maximum(group_sizes(vector, n_groups, n_levels), 1.0)
    shares = np.ones((n_groups, 1))
    counts = zip(_levels(vector, n_groups, n_levels), _weights(n_levels), strict=True)
    for count, weight in counts:
        pooled = np.maximum(count.sum(axis=0), 0.0) + 1e-9
        split = pooled[:, 0] / pooled.sum(axis=1)
        rows = np.maximum(sizes[:, None] * shares, 1e-9)
        # (1 - q) left - q right has mean 0 if the group is split as all groups are.
        excess = (count[..., 0] - split * count.sum(axis=2)) / rows
        noisy = (noise_scale / weight / rows) ** 2 * ((1 - split) ** 2 + split**2)
        explained = noisy + split * (1 - split) / rows
        spread = _SPREAD * split * (1 - split)
        kept = spread / (spread + explained)
        left = np.clip(split + kept * excess, 0.0, 1.0)
        shares = np.stack([shares * left, shares * (1 - left)], axis=2).reshape(n_groups, -1)
    edges = np.linspace(0, 1, 2**n_levels + 1)
    return BarycenterMaps([LineLaw.from_counts(edges, share) for share in shares], sizes)


def outcome_sums(outcomes, codes, n_groups):
    """Return the sums of an outcome z in [0, 1] and of 1 - z, by group.

    Parameters
    ----------
    outcomes : ndarray of shape (n,)
        Clipped to [0, 1]; NaN counts as 0.
    codes : ndarray of int of shape (n,)
        Group of each row.
    n_groups : int

    Returns
    -------
    ndarray of shape (2 * n_groups,)
        First the sums of z. A row adds (z, 1 - z) to one group, which has an l2 norm of at most 1
        and no negative entry. The l2 sensitivity is 1 if a row is added or removed, and √2 if it
        is replaced by a row of any group.
    """
    outcomes = np.clip(np.nan_to_num(outcomes, nan=0.0), 0.0, 1.0)
    sums = [np.bincount(codes, weights=z, minlength=n_groups) for z in (outcomes, 1 - outcomes)]
    return np.concatenate(sums)


def mean_intervals(sums, noise_scale, groups, level=0.95):
    """Return the mean of each group, with a confidence interval for the population mean.

    The interval holds each r for which the noisy (1 - r) Σ z - r Σ (1 - z), of mean 0 at the
    population mean, is within the quantile of its normal noise and of sampling with the largest
    variance of an outcome, r (1 - r).

    Parameters
    ----------
    sums : ndarray of shape (2 * n_groups,)
        The released sums of :func:`outcome_sums`.
    noise_scale : float
        Standard deviation of the noise on each sum.
    groups : list
    level : float, default=0.95
        Confidence level.

    Returns
    -------
    DataFrame
        Indexed by group: "mean" in [0, 1], "low", "high", and "n_rows", the noisy size.
    """
    ones, zeros = sums.reshape(2, -1)
    sizes = ones + zeros
    means = np.clip(ones / np.maximum(sizes, 1.0), 0.0, 1.0)
    r = _CANDIDATES[:, None]
    spread = noise_scale**2 * ((1 - r) ** 2 + r**2) + np.maximum(sizes, 0.0) * r * (1 - r)
    reach = ndtri((1 + level) / 2) * np.sqrt(spread) + 1e-9
    inside = np.abs((1 - r) * ones - r * zeros) <= reach
    rows = [_CANDIDATES[column] if column.any() else _CANDIDATES for column in inside.T]
    return pd.DataFrame(
        {
            "mean": means,
            "low": np.minimum([found.min() for found in rows], means),
            "high": np.maximum([found.max() for found in rows], means),
            "n_rows": sizes,
        },
        index=pd.Index(groups, name="group", tupleize_cols=False),
    )
