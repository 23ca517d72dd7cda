"""Noisy counts and sums by group: distributions of scores, and means of outcomes."""

from dataclasses import dataclass

import numpy as np

from sklearn_dpgen.ot._barycenter import BarycenterMaps, LineLaw

__all__ = [
    "count_halves",
    "first_split_noise",
    "group_sizes",
    "kept_part",
    "maps_of_halves",
    "maps_of_scores",
    "outcome_sums",
]

# Shares of the squared budget of the counts, up to a factor: the first split of [0, 1], and each
# finer one. The split of a small group exceeds the noise in the first split, or in none.
_FIRST_SPLIT, _OTHER_SPLITS = 6.0, 1.0
# Evidence that noise alone exceeds in one of 20 groups: 95 percent quantile of χ² with one degree.
_EXPLAINED = 3.841
# Tilts that are compared: at 8, the upper half of the ranks has 55 times the mass of the lower.
_TILTS = np.linspace(-8, 8, 321)
# Variance of a share that is uniform on [0, 1].
_UNIFORM = 1 / 12
# Mass that is spread evenly over all bins.
_LEAST = 1e-6
# Variances of a group's share q of one of two halves, in units of q (1 - q); the first is none.
_SPREADS = np.concatenate([[0.0], np.geomspace(1e-4, 1, 41)])
# Ranks between which distributions are compared for a shift: tails are mostly noise.
_CENTRE = np.linspace(0.1, 0.9, 81)


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
    """Return the maps to the barycentre, from noisy counts alone.

    A group has the distribution of all groups together but for a shift, and for a change of shape,
    each as far as the counts support it. What known noise and sampling explain moves nothing.

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
    counts = _levels(vector, n_groups, n_levels)
    noise = noise_scale / _weights(n_levels)
    sizes = np.maximum(group_sizes(vector, n_groups, n_levels), 1.0)
    smooth = _smooth_shares([count.sum(axis=0) for count in counts], sizes, noise)
    if n_groups == 1:
        return BarycenterMaps([_law(smooth)], sizes)
    pooled = _descend(
        lambda level, _: _left_share(np.maximum(counts[level].sum(axis=0), 0.0) + 1e-9), n_levels
    )
    tilts = _splits(_tilted(pooled, _TILTS[:, None]))
    laws = []
    for group in range(n_groups):
        contrasts = _Contrasts([count[group] for count in counts], sizes, group, noise)
        laws.append(_group_law(pooled, smooth, tilts, contrasts))
    return BarycenterMaps(laws, sizes)


def kept_part(evidence):
    """Return the part of an estimated difference that is kept, in [0, 1).

    Positive-part shrinkage: nothing up to the 95 percent quantile of the evidence without a
    difference, as a test would find nothing, and nearly all where the evidence is overwhelming.

    Parameters
    ----------
    evidence : float
        Twice the logarithm of the likelihood ratio: the squared z-score of a normal estimate.

    Returns
    -------
    float
    """
    return max(0.0, 1.0 - _EXPLAINED / max(evidence, _EXPLAINED))


@dataclass(frozen=True)
class _Contrasts:
    """Comparison of the noisy halves of a group with the shares of all groups.

    Parameters
    ----------
    halves : list of ndarray of shape (2 ** level, 2)
    sizes : ndarray of shape (n_groups,)
    group : int
    noise : ndarray of shape (n_levels,)
        Standard deviation of the noise on a count of each level.
    """

    halves: list
    sizes: np.ndarray
    group: int
    noise: np.ndarray

    @property
    def size(self):
        return self.sizes[self.group]

    def excess(self, level, split):
        """Return (1 - q) left - q right, of mean 0 in a group whose share of the left is q."""
        left, both = self.halves[level][:, 0], self.halves[level].sum(axis=1)
        return left - split * both

    def variance(self, level, split, mass):
        """Return the variance of the excess over the noisy share of all groups.

        That share includes the noise and the rows of the group, and the noise of the others.
        """
        part = self.size / self.sizes.sum()
        noisy = (1 - 2 * part + len(self.sizes) * part**2) * self.noise[level] ** 2
        sampled = (1 - part) * self.size * mass * split * (1 - split)
        return noisy * ((1 - split) ** 2 + split**2) + sampled

    def tilt_evidence(self, reference):
        """Return the squared z-score of a tilt by ranks: Wilcoxon's test, on noisy counts."""
        score = information = 0.0
        for level, (split, mass) in enumerate(reference):
            # The mean ranks of both halves are mass / 2 apart.
            slope = split * (1 - split) * mass**2 / 2
            variance = self.variance(level, split, mass)
            score += (slope * self.excess(level, split) / variance).sum()
            information += (slope**2 / variance).sum()
        # Where all rows are in one bin, there is no information.
        return score**2 / max(information, 1e-300)

    def misfit(self, splits, reference, spreads=0.0):
        """Return minus twice the log-likelihood of splits, up to a constant.

        Variances are those of ``reference``, so that splits are compared by one measure.
        """
        total = 0.0
        for level, (split, mass) in enumerate(reference):
            differing = spreads * split * (1 - split) * (self.size * mass) ** 2
            variance = self.variance(level, split, mass) + differing
            squares = self.excess(level, splits[level][0]) ** 2 / variance
            total = total + (np.log(variance) + squares).sum(axis=-1)
        return total


def _group_law(pooled, smooth, tilts, contrasts):
    """Return the distribution of a group, between two estimates.

    Both start from the tilt that fits best, ``exp(tilt * rank)``. One is the distribution of all
    groups, moved by as much as the tilt moves its centre: this brings the means of the groups
    together, whatever their shapes are. The other is the tilted distribution with halves changed
    one by one; it counts as far as it fits better. A group is compared with the shares of all
    groups as they are, since these contain its noise, and ``smooth`` shares are used.
    """
    reference = _splits(pooled)
    best = contrasts.misfit(tilts, reference).argmin()
    tilt = kept_part(contrasts.tilt_evidence(reference)) * _TILTS[best]
    tilted, smooth_tilted = _splits(_tilted(pooled, tilt)), _splits(_tilted(smooth, tilt))
    misfits = contrasts.misfit(tilted, tilted, _SPREADS[:, None])
    best = misfits.argmin()
    evidence = misfits[0] - misfits[best]
    spread = kept_part(evidence) * _SPREADS[best]

    law = _law(smooth)
    shift = np.mean(_law(_tilted(smooth, tilt)).quantile(_CENTRE) - law.quantile(_CENTRE))
    shifted = LineLaw(law.points + shift, law.levels)
    below = shifted.level(np.linspace(0, 1, len(smooth) + 1))
    # Scores that leave [0, 1] are clipped, into the first or the last bin.
    below[[0, -1]] = 0.0, 1.0
    reference = _splits(smooth)
    evidence += contrasts.misfit(_splits(np.diff(below)), reference)
    evidence -= contrasts.misfit(smooth_tilted, reference)
    kept = kept_part(evidence)
    moved = LineLaw(np.clip(shifted.points, 0.0, 1.0), law.levels)
    if kept == 0:
        return moved
    own = _law(_changed_shares(tilted, smooth_tilted, spread, contrasts))
    levels = np.union1d(moved.levels, own.levels)
    return LineLaw((1 - kept) * moved.quantile(levels) + kept * own.quantile(levels), levels)


def _changed_shares(tilted, smooth_tilted, spread, contrasts):
    """Return the masses of bins with halves changed as in the best linear estimate."""

    def left_share(level, shares):
        (split, _), (smooth_split, _) = tilted[level], smooth_tilted[level]
        rows = np.maximum(contrasts.size * shares, 1e-9)
        differing = spread * split * (1 - split) * rows**2
        variance = np.maximum(contrasts.variance(level, split, shares), 1e-300)
        kept = differing / (differing + variance)
        change = kept * contrasts.excess(level, split) / rows
        return np.clip(smooth_split + change, 0.0, 1.0)

    return _descend(left_share, len(tilted))


def _smooth_shares(halves, sizes, noise):
    """Return the masses of the bins of all groups, with shares of halves shrunk towards 1/2.

    The shrinkage is the best linear one for shares that are uniform on [0, 1].
    """
    n_rows, n_groups = sizes.sum(), len(sizes)

    def left_share(level, shares):
        rows = np.maximum(n_rows * shares, 1e-9)
        excess = (halves[level][:, 0] - halves[level][:, 1]) / 2 / rows
        explained = n_groups * noise[level] ** 2 / 2 / rows**2 + 1 / 4 / rows
        kept = _UNIFORM / (_UNIFORM + explained)
        return np.clip(0.5 + kept * excess, 0.0, 1.0)

    shares = _descend(left_share, len(halves))
    # In an empty bin scores have no ranks of their own, and any map would be as good.
    return (1 - _LEAST) * shares + _LEAST / len(shares)


def _tilted(masses, tilt):
    """Return masses multiplied by a function of their ranks, which no outlier changes much."""
    ranks = np.cumsum(masses) - masses / 2
    return masses * np.exp(tilt * (ranks - 0.5))


def _law(masses):
    return LineLaw.from_counts(np.linspace(0, 1, len(masses) + 1), masses)


def _descend(left_share, n_levels):
    """Return the masses of the bins, from the share of the left half in each half."""
    shares = np.ones(1)
    for level in range(n_levels):
        left = left_share(level, shares)
        shares = np.stack([shares * left, shares * (1 - left)], axis=1).ravel()
    return shares


def _splits(masses):
    """Return for each level the share of the left half, and the share of both in the total."""
    total = masses.sum(axis=-1, keepdims=True)
    splits = []
    for level in range(int(np.log2(masses.shape[-1]))):
        halves = masses.reshape(*masses.shape[:-1], 2**level, 2, -1).sum(axis=-1)
        splits.append((_left_share(halves), halves.sum(axis=-1) / total))
    return splits


def _left_share(halves):
    return halves[..., 0] / np.maximum(halves.sum(axis=-1), 1e-300)


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
