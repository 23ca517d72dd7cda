"""Noisy moments and histograms of projections: what they say of a distance to a public sample.

Everything here is post-processing of a release, or reads public records alone.
"""

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch
from scipy import sparse
from scipy.fft import dct, idct
from scipy.stats import t as student

from sklearn_dpgen.domains import Ball
from sklearn_dpgen.mechanisms import BallMeans, BallMoments, ClassSums
from sklearn_dpgen.ot import random_directions
from sklearn_dpgen.utils._random import on_grid

__all__ = [
    "NoisyHistograms",
    "PublicSample",
    "cell_edges",
    "cells_of",
    "moment_query",
    "visibility",
]

# Up to this number of features all second moments are released, beyond it the mean square alone.
_MOST_MOMENTS = 32
# Weight of second moments relative to first ones. At 1 they raise the noise on means by 6 percent.
_WEIGHT = 1.0
# Share of the cells of a projection that are equally wide; the others have equal shares of Y.
_EQUAL_WIDTH = 0.1
# Points by which the distribution of a projection of public records is represented.
_N_POINTS = 512
_FILL = 4
# Directions, beside those with a histogram, on which the affine part of a distance is averaged.
_MORE_DIRECTIONS = 200
_LEAST_VARIANCE = 1e-4
# Distributions from which an interval is made, and releases that are simulated of each.
_WORLDS = (0.0, 0.5, 1.0, 1.5, 2.5)
_N_WORLD = 59
_TINY = 1e-12


def moment_query(radius, n_features, n_samples):
    """Return the query of the moments of records in a ball around the origin."""
    ball = Ball(radius, n_features=n_features)
    few = ball.n_features <= _MOST_MOMENTS
    return ClassSums(BallMoments(ball, _WEIGHT) if few else BallMeans(ball), n_samples)


def cell_edges(projected, radius, n_cells):
    """Return the inner edges of the cells of each projection, from public records.

    Parameters
    ----------
    projected : ndarray of shape (m, k)
        Projections of public records, in [-radius, radius].
    radius : float
    n_cells : int

    Returns
    -------
    ndarray of shape (k, n_cells - 1)
        Quantiles of a mixture of the public records and a uniform distribution. One that is at a
        public value is moved half way to the next, so that equal values, which a map moves by a
        little, stay in their cell.
    """
    n_equal = max(2, round(_EQUAL_WIDTH / (1 - _EQUAL_WIDTH) * len(projected)))
    uniform = np.linspace(-radius, radius, n_equal)[:, None]
    mixture = np.vstack([projected, np.broadcast_to(uniform, (n_equal, projected.shape[1]))])
    levels = np.arange(1, n_cells) / n_cells
    quantiles, tolerance = np.quantile(mixture, levels, axis=0).T, 1e-9 * radius
    found = []
    for column, inner in zip(projected.T, quantiles, strict=True):
        # Projections of equal records may differ in their last bits.
        values = np.append(np.unique(np.rint(column / tolerance)) * tolerance, radius)
        i = np.searchsorted(values, inner - 2 * tolerance).clip(max=len(values) - 2)
        is_value = np.abs(values[i] - inner) <= 2 * tolerance
        found.append(np.sort(np.where(is_value, (values[i] + values[i + 1]) / 2, inner)))
    return np.array(found)


def visibility(Y, U, edges, n_samples, scale):
    """Return how far two small changes of public records stand out in their noisy histograms.

    Each column is moved by 0.05 of its standard deviation, or stretched by 5 percent. Where records
    have few distinct values, fine cells that many of them leave or enter show more than smooth
    distributions let expect.

    Returns
    -------
    float
        Of the less visible change, the mean of the better of two statistics over its standard
        deviation, approximately.
    """
    k, n_cells = len(edges), edges.shape[1] + 1
    center, spread = Y.mean(axis=0), Y.std(axis=0)
    before, *after = (
        shares_of(Z @ U.T, edges) for Z in (Y, Y + 0.05 * spread, center + 1.05 * (Y - center))
    )
    rate, found = 1 / n_samples + 1 / len(Y), []
    noise, bridge = variances(before, rate, scale)
    for shares in after:
        change = shares - before
        cells = (change**2 / noise).sum() / math.sqrt(2 * k * (n_cells - 1))
        below = np.cumsum(change, axis=1)[:, :-1]
        # The statistic of Anderson and Darling has mean 1 and standard deviation 0.76.
        found.append(max(cells, math.sqrt(k) * np.mean(below**2 / bridge) / 0.76))
    return min(found)


def shares_of(projected, edges):
    cells, n_cells = cells_of(projected, edges), edges.shape[1] + 1
    counts = [np.bincount(column, minlength=n_cells) for column in cells.T]
    return np.array(counts) / len(projected)


def variances(shares, rate, scale):
    """Return the variances of differences of shares, and of cumulative shares."""
    n_cells = shares.shape[1]
    below, steps = np.cumsum(shares, axis=1)[:, :-1].clip(0, 1), np.arange(1, n_cells)
    noise = scale**2 * steps * (n_cells - steps) / n_cells
    found = rate * shares * (1 - shares) + scale**2, rate * below * (1 - below) + noise
    return tuple(variance.clip(_TINY) for variance in found)


def cells_of(projected, edges):
    """Return the cell of each projection, as an array of shape (n, k)."""
    columns = (
        np.searchsorted(inner, column) for column, inner in zip(projected.T, edges, strict=True)
    )
    return np.stack(list(columns), axis=1)


@dataclass(frozen=True, eq=False)
class PublicSample:
    """Public records as a release of histograms sees them."""

    centered: np.ndarray
    projected: np.ndarray
    features: np.ndarray
    cells: np.ndarray
    n_cells: int

    def __len__(self):
        return len(self.projected)

    @cached_property
    def moments(self):
        return self.features.mean(axis=0)

    @cached_property
    def more_directions(self):
        d = self.centered.shape[1]
        generator = torch.Generator().manual_seed(0)
        k = d * math.ceil(_MORE_DIRECTIONS / d)
        return random_directions(k, d, generator=generator, dtype=torch.float64).numpy()

    @cached_property
    def more_projected(self):
        """Return projections of some of the records, of shape (at most _N_POINTS, directions)."""
        rows = np.linspace(0, len(self) - 1, min(len(self), _N_POINTS)).astype(int)
        return self.centered[rows] @ self.more_directions.T

    @cached_property
    def more_variances(self):
        projected = self.centered @ self.more_directions.T
        return projected.var(axis=0)

    @cached_property
    def one_hot(self):
        """Return the cells as indicators, of shape (m, k n_cells)."""
        m, k = self.cells.shape
        columns = (self.cells + self.n_cells * np.arange(k)).ravel()
        rows = np.arange(0, m * k + 1, k)
        return sparse.csr_matrix((np.ones(m * k), columns, rows), shape=(m, k * self.n_cells))

    @cached_property
    def shares(self):
        k = self.cells.shape[1]
        return np.asarray(self.one_hot.mean(axis=0)).reshape(k, self.n_cells)

    @cached_property
    def ordered(self):
        return np.sort(self.projected, axis=0).T

    @cached_property
    def points(self):
        """Return quantiles of each projection, of shape (k, n_points)."""
        n_points = min(_N_POINTS, len(self))
        levels = (np.arange(n_points) + 0.5) / n_points
        return np.quantile(self.ordered, levels, axis=1, method="inverted_cdf").T


@dataclass(frozen=True, eq=False)
class NoisyHistograms:
    """Noisy moments of records in a ball, and shares of records in cells of their projections."""

    n_samples: int
    query: ClassSums
    directions: np.ndarray
    edges: np.ndarray
    moments: np.ndarray
    shares: np.ndarray
    moment_scale: float
    share_scale: float

    @property
    def n_cells(self) -> int:
        return self.edges.shape[1] + 1

    @property
    def features(self) -> Any:
        """The feature map of the moments, `BallMoments` or `BallMeans`."""
        return self.query.features

    def public_sample(self, centered):
        """Return records of the domain, less its center, as a PublicSample."""
        projected = centered @ self.directions.T
        cells = cells_of(projected, self.edges)
        features = self.features.transform(centered)
        return PublicSample(centered, projected, features, cells, self.n_cells)

    # ---- distance ----

    def distance(self, sample, p, moments=None, shares=None, exact=False):
        """Return the sliced W_p distance to public records, without the bias of the noise."""
        of_map, costs = self._costs(sample, p, moments, shares, exact)
        return max(0.0, of_map + float(np.mean(costs))) ** (1 / p)

    def _costs(self, sample, p, moments=None, shares=None, exact=False):
        """Return the mean p-th power of an affine map, and what histograms add by direction."""
        moments = self.moments if moments is None else moments
        shares = self.shares if shares is None else shares
        scales = (0.0, 0.0) if exact else (self.moment_scale, self.share_scale)
        affine = self._affine(sample, moments, scales[0])
        own, centers, factors = affine(self.directions)
        radius = self.features.ball.radius
        template = self._template_shares(sample, own, centers, factors)
        residuals = shrunk(shares - template, scales[1])
        lines = centers[:, None] + factors[:, None] * (sample.points - own[:, None])
        fitted = on_simplex(template + residuals)
        costs = []
        for j, (points, moved) in enumerate(zip(sample.points, lines, strict=True)):
            positions, weights = self._reweighted(moved, self.edges[j], fitted[j], radius)
            # Of the mean the moments have less noise. Where records have few values, a shift is in
            # the shares and in the moved points, and would count twice.
            positions += moved.mean() - weights @ positions / weights.sum()
            cost = line_cost(positions, weights, points, p)
            costs.append(cost - np.mean(np.abs(moved - points) ** p))
        # The affine part on many directions, what histograms add on those that have one.
        own, centers, factors = affine(sample.more_directions)
        if p == 2:
            costs_of_map = (centers - own) ** 2 + (factors - 1) ** 2 * sample.more_variances
        else:
            moved = centers - own + (factors - 1) * (sample.more_projected - own)
            costs_of_map = np.abs(moved) ** p
        return float(costs_of_map.mean()), np.array(costs)

    def _affine(self, sample, moments, scale):
        """Return a function of directions, to the map of public records to the moments.

        It returns the mean of the public records, that after the map, and the ratio of standard
        deviations.
        """
        features, radius = self.features, self.features.ball.radius
        (mean, square), (own, own_square) = map(features.moments, (moments, sample.moments))
        d, step = len(mean), mean - own
        kept = kept_share(step, d * scale**2) * step
        if isinstance(features, BallMeans):
            change = square - own_square - 2 * step @ own
            noise = 2 * scale**2 + 4 * scale**2 * (own @ own)
            change *= kept_share(change, _caution(1) * noise)
            # The total variance alone is known: all directions have its relative change.
            totals = own_square - own @ own, change - kept @ kept
            before, change = (total / d * np.eye(d) for total in totals)
        else:
            cross = np.outer(step, own)
            change = square - own_square - cross - cross.T
            noise = d * (d + 1) / 2 * (scale / features.weight) ** 2
            noise += 2 * (d + 1) * scale**2 * (own @ own)
            change = kept_share(change, _caution(d * (d + 1) / 2) * noise) * change
            before = own_square - np.outer(own, own)
            change -= np.outer(kept, kept)

        def on(U):
            old, new = (np.einsum("ji,ik,jk->j", U, C, U) for C in (before, change))
            ratios = np.where(old > _TINY, 1 + new / old.clip(_TINY), 1.0)
            factors = np.sqrt(ratios.clip(_LEAST_VARIANCE))
            return radius * U @ own, radius * U @ (own + kept), factors

        return on

    def _template_shares(self, sample, own, centers, factors):
        """Return the shares in the cells of public records after the affine map."""
        back = own[:, None] + (self.edges - centers[:, None]) / factors[:, None]
        below = [
            np.searchsorted(line, inner, side="right")
            for line, inner in zip(sample.ordered, back, strict=True)
        ]
        below = np.array(below) / len(sample)
        return np.diff(below, axis=1, prepend=0.0, append=1.0)

    def _reweighted(self, moved, edges, shares, radius):
        """Return points and weights with the given shares in the cells."""
        cells = np.searchsorted(edges, moved)
        counts = np.bincount(cells, minlength=len(shares))
        weights = shares[cells] / counts[cells]
        empty = np.flatnonzero((counts == 0) & (shares > 0))
        if not len(empty):
            return moved.copy(), weights
        bounds = np.concatenate([[-radius], edges, [radius]])
        low, high = bounds[empty, None], bounds[empty + 1, None]
        filled = low + (high - low) * (np.arange(_FILL) + 0.5) / _FILL
        positions = np.concatenate([moved, filled.ravel()])
        weights = np.concatenate([weights, np.repeat(shares[empty] / _FILL, _FILL)])
        order = np.argsort(positions, kind="stable")
        return positions[order], weights[order]

    # ---- test and interval ----

    def null_releases(self, sample, n_draws, generator, resampled):
        """Simulate differences of releases of records drawn from public ones to these.

        Returns
        -------
        moments : ndarray of shape (n_draws, n_features_out)
        shares : ndarray of shape (n_draws, k, n_cells)
        """
        m, even = len(sample), np.full(len(sample), 1 / len(sample))
        moments, shares = [], []
        step = max(1, (1 << 22) // m)
        for start in range(0, n_draws, step):
            size = min(step, n_draws - start)
            weights = generator.multinomial(self.n_samples, even, size) / self.n_samples
            weights -= generator.multinomial(m, even, size) / m if resampled else 1 / m
            moments.append(weights @ sample.features)
            shares.append((sample.one_hot.T @ weights.T).T)
        moments = self._noisy(np.vstack(moments), self.moment_scale, generator)
        shares = self._noisy(np.vstack(shares), self.share_scale, generator)
        return moments, shares.reshape(n_draws, *self.shares.shape)

    def _noisy(self, values, scale, generator):
        if scale == 0:
            return values
        return on_grid(values + scale * generator.standard_normal(values.shape), scale)

    def statistics(self, sample, moments, shares, resampled):
        """Return the statistics of differences, of shape (n_draws, 4)."""
        rate = 1 / self.n_samples + (1 / len(sample) if resampled else 0)
        central, features = self._central(sample, moments), self._central(sample, sample.features)
        d = self.directions.shape[1]
        covariance = rate * np.atleast_2d(np.cov(features.T, bias=True))
        noise = self._central(sample, self.moment_scale * np.eye(moments.shape[1]))
        covariance += noise.T @ noise
        ridge = 1e-12 * np.trace(covariance) / len(covariance) + _TINY**2
        covariance += ridge * np.eye(len(covariance))
        parts = [
            quadratic(central[:, part], covariance[part, part])
            for part in (slice(d), slice(d, None))
        ]
        shares = shares - shares.mean(axis=2, keepdims=True)
        noise, bridge = variances(sample.shares, rate, self.share_scale)
        below = np.cumsum(shares, axis=2)[:, :, :-1]
        parts.append((below**2 / bridge).sum(axis=(1, 2)))
        parts.append((shares**2 / noise).sum(axis=(1, 2)))
        return np.stack(parts, axis=1)

    def _central(self, sample, rows):
        """Return sums of moments as moments about the mean of public records."""
        features = self.features
        own, _ = features.moments(sample.moments)
        d = len(own)
        first = rows[:, :d]
        if isinstance(features, BallMeans):
            return np.column_stack([first, rows[:, d:] - math.sqrt(2) * (first @ own)[:, None]])
        i, j = np.triu_indices(d)
        factors = features.weight * np.where(i == j, 1.0, math.sqrt(2))
        cross = first[:, i] * own[j] + first[:, j] * own[i]
        return np.column_stack([first, rows[:, d:] - factors * cross])

    def pvalue(self, sample, n_draws, generator, resampled):
        moments, shares = self.null_releases(sample, n_draws, generator, resampled)
        moments = np.vstack([self.moments - sample.moments, moments])
        shares = np.concatenate([(self.shares - sample.shares)[None], shares])
        # The release and simulated ones are computed in different orders: without noise they may be
        # equal but for rounding, and are ties then.
        found = np.cbrt(np.round(self.statistics(sample, moments, shares, resampled), 9))
        spread = found.std(axis=0)
        scores = (found - found.mean(axis=0)) / np.where(spread > 1e-6, spread, 1)
        scores = (scores.clip(0) ** 2).sum(axis=1)
        return float((scores >= scores[0] * (1 - 1e-6) - 1e-6).mean())

    def null_distances(self, sample, p, n_draws, generator):
        """Return distances of releases of records drawn from public ones."""
        moments, shares = self.null_releases(sample, n_draws, generator, resampled=False)
        pairs = zip(moments + sample.moments, shares + sample.shares, strict=True)
        return np.array([self.distance(sample, p, *pair) for pair in pairs])

    def interval(self, sample, p, distance, level, generator):
        """Return the distances at which the observed one is not among the most extreme.

        They belong to distributions on a line through that of the public records and the release.
        The interval is widened by that of the mean of what histograms add, over directions.
        """
        worlds = [self._world(sample, p, t, level, generator) for t in _WORLDS]
        quantiles = np.array(worlds)
        true, low, high = np.maximum.accumulate(quantiles, axis=0).T
        lower = np.interp(distance, high, true) if distance > high[0] else 0.0
        last = np.flatnonzero(low <= distance)
        i = last[-1] if len(last) else 0
        upper = true[i]
        if len(last) and i + 1 < len(true):
            upper += (true[i + 1] - true[i]) * (distance - low[i]) / (low[i + 1] - low[i])
        _, costs = self._costs(sample, p)
        spread = 0.0
        if len(costs) > 1:
            quantile = student.ppf((1 + level) / 2, len(costs) - 1)
            spread = quantile * costs.std(ddof=1) / math.sqrt(len(costs))
        lower = max(0.0, min(lower, distance) ** p - spread) ** (1 / p)
        return float(lower), float((max(upper, distance) ** p + spread) ** (1 / p))

    def _world(self, sample, p, t, level, generator):
        """Return a distance, and two quantiles of what releases with this distance have."""
        moments = sample.moments + t * (self.moments - sample.moments)
        shares = on_simplex(sample.shares + t * (self.shares - sample.shares))
        true = self.distance(sample, p, moments, shares, exact=True)
        found = [
            self.distance(
                sample,
                p,
                self._noisy(moments, self.moment_scale, generator),
                self._noisy(shares, self.share_scale, generator),
            )
            for _ in range(_N_WORLD)
        ]
        return (true, *np.quantile(found, [(1 - level) / 2, (1 + level) / 2]))


def quadratic(rows, covariance):
    """Return the squared Mahalanobis norms of rows."""
    solved = np.linalg.solve(covariance, rows.T)
    return (rows.T * solved).sum(axis=0)


def _caution(size):
    """Return the squared norm of noise that is rarely exceeded, relative to its mean.

    A few numbers exceed the mean often; a wrong spread makes a bad model of the records, and what
    it lacks is still seen in the shares.
    """
    return 1 + 2 * math.sqrt(2 / size)


def kept_share(difference, noise):
    """Return the factor after which a noisy difference has the squared norm it had without."""
    square = float(np.sum(np.square(difference)))
    return math.sqrt(max(0.0, 1 - noise / square)) if square > 0 else 0.0


def shrunk(differences, scale):
    """Return differences of shares, frequencies in octaves scaled to their norms without noise."""
    frequencies = dct(differences, norm="ortho", axis=1)
    frequencies[:, 0] = 0
    start = 1
    while start < frequencies.shape[1]:
        octave = frequencies[:, start : 2 * start]
        octave *= kept_share(octave, octave.size * scale**2)
        start *= 2
    return idct(frequencies, norm="ortho", axis=1)


def on_simplex(rows):
    """Return the nearest points, in Euclidean distance, that are non-negative and sum to 1."""
    ordered = -np.sort(-rows, axis=1)
    excess = (np.cumsum(ordered, axis=1) - 1) / np.arange(1, rows.shape[1] + 1)
    last = (ordered > excess).sum(axis=1) - 1
    return (rows - excess[np.arange(len(rows)), last][:, None]).clip(0)


def line_cost(positions, weights, points, p):
    """Return W_p^p of ordered points with weights, and ordered ones of equal weight."""
    first = np.cumsum(weights)
    first /= first[-1]
    second = np.arange(1, len(points) + 1) / len(points)
    levels = np.sort(np.concatenate([first, second]))
    middle = levels - np.diff(levels, prepend=0.0) / 2
    i = np.searchsorted(first, middle).clip(max=len(positions) - 1)
    j = np.searchsorted(second, middle).clip(max=len(points) - 1)
    return np.abs(positions[i] - points[j]) ** p @ np.diff(levels, prepend=0.0)
