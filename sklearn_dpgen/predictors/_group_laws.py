"""The laws of scores by group: of rows that are public or synthetic, or from noisy counts."""

import numpy as np

from sklearn_dpgen.ot import BarycenterMaps, LineLaw

__all__ = ["count_halves", "first_split_noise", "group_sizes", "maps_of_halves", "maps_of_scores"]

# Of the squared budget of the counts, parts of the split of [0, 1] in two and of each finer one:
# that of a small group is told from noise there, or nowhere.
_FIRST_SPLIT, _OTHER_SPLITS = 6.0, 1.0
# Variance between groups of the share q of one of two halves, in units of q (1 - q).
_SPREAD = 0.25


def maps_of_scores(scores, codes, n_groups):
    """Return the maps to the barycentre of the scores of each group, weighted by their rows.

    A group without rows has the law of all.
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
        What is beyond 0 and 1 is moved there, and what is no number to 0.
    codes : ndarray of int of shape (n,)
    n_groups : int
    n_levels : int
        How often halves are taken: 2 ** n_levels bins on the last level.

    Returns
    -------
    ndarray of float64
        The counts of each level, weighted: a row is in one cell of each, and the squares of its
        weights sum to 1. So the l2 sensitivity is 1 where a row is added or removed, and √2 where
        it is replaced by another of any group: two vectors of norm 1 without a negative entry have
        ‖u − v‖² = 2 − 2⟨u, v⟩ ≤ 2.
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
    """Return the maps to the barycentre of noisy counts.

    In each half of each level, the split of a group is drawn to that of all groups together, as the
    best linear estimate of one that spreads about it does: by the part that noise and sampling have
    in the variance of what is counted. A group of few rows is told apart as coarsely as noise
    allows, or treated as all are.

    Parameters
    ----------
    vector : ndarray
        As of :func:`count_halves`, released.
    n_groups, n_levels : int
    noise_scale : float
        Standard deviation of the noise on its entries.

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
        # The noisy (1 - q) left - q right, of mean 0 where the group is split as all are.
        excess = (count[..., 0] - split * count.sum(axis=2)) / rows
        noisy = (noise_scale / weight / rows) ** 2 * ((1 - split) ** 2 + split**2)
        explained = noisy + split * (1 - split) / rows
        spread = _SPREAD * split * (1 - split)
        kept = spread / (spread + explained)
        left = np.clip(split + kept * excess, 0.0, 1.0)
        shares = np.stack([shares * left, shares * (1 - left)], axis=2).reshape(n_groups, -1)
    edges = np.linspace(0, 1, 2**n_levels + 1)
    return BarycenterMaps([LineLaw.from_counts(edges, share) for share in shares], sizes)
