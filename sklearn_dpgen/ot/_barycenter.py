"""Distributions on the line, their Wasserstein barycentre, and the monotone maps to it."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import ArrayLike

__all__ = ["BarycenterMaps", "LineLaw"]


@dataclass(frozen=True)
class LineLaw:
    """A distribution on the line, given by points of its piecewise linear quantile function.

    Parameters
    ----------
    points : ndarray of shape (m,)
        In increasing order.
    levels : ndarray of shape (m,)
        In [0, 1], in increasing order: the probability below each point, plus half of its mass.
    """

    points: np.ndarray
    levels: np.ndarray

    @classmethod
    def from_sample(cls, values: ArrayLike) -> "LineLaw":
        """Return the empirical distribution of a sample; equal values are one point.

        Parameters
        ----------
        values : array-like of shape (n,)

        Returns
        -------
        LineLaw
        """
        points, counts = np.unique(values, return_counts=True)
        return cls(points, (np.cumsum(counts) - counts / 2) / counts.sum())

    @classmethod
    def from_counts(cls, edges: ArrayLike, counts: ArrayLike) -> "LineLaw":
        """Return the distribution with given masses that is uniform within bins.

        Parameters
        ----------
        edges : array-like of shape (m + 1,)
            In increasing order.
        counts : array-like of shape (m,)
            Non-negative, with a positive sum.

        Returns
        -------
        LineLaw
        """
        below = np.concatenate([[0.0], np.cumsum(counts, dtype=np.float64)])
        return cls(np.asarray(edges, dtype=np.float64), below / below[-1])

    def quantile(self, levels: ArrayLike) -> np.ndarray:
        """Return the quantiles of levels in [0, 1].

        Parameters
        ----------
        levels : array-like

        Returns
        -------
        ndarray of the same shape
        """
        return np.interp(np.asarray(levels), self.levels, self.points)

    def level(self, values: ArrayLike) -> np.ndarray:
        """Return the probability below each value.

        Parameters
        ----------
        values : array-like

        Returns
        -------
        ndarray of the same shape
        """
        return np.interp(np.asarray(values), self.points, self.levels)


@dataclass(frozen=True)
class BarycenterMaps:
    """Monotone maps of several distributions on the line to their 2-Wasserstein barycentre.

    The barycentre minimizes the weighted mean of the squared distances to the distributions. On
    the line its quantile function is the weighted mean of theirs, and each map to it is monotone.
    A map of strength t moves a distribution along its geodesic, and multiplies all distances
    between the distributions by 1 - t.

    Parameters
    ----------
    laws : sequence of LineLaw
        The distributions.
    weights : array-like of shape (n_laws,)
        Positive; normalized to sum 1.

    References
    ----------
    Chzhen, Denis, Hebiri, Oneto, Pontil (2020). Fair regression with Wasserstein barycenters.
    """

    laws: Sequence[LineLaw]
    weights: ArrayLike
    barycenter: LineLaw = field(init=False)

    def __post_init__(self):
        weights = np.asarray(self.weights, dtype=np.float64)
        levels = np.unique(np.concatenate([[0.0, 1.0], *(law.levels for law in self.laws)]))
        points = sum(
            weight * law.quantile(levels)
            for weight, law in zip(weights / weights.sum(), self.laws, strict=True)
        )
        object.__setattr__(self, "weights", weights / weights.sum())
        object.__setattr__(self, "barycenter", LineLaw(points, levels))

    def transport(self, values: ArrayLike, codes: ArrayLike, strength: float = 1.0) -> np.ndarray:
        """Move values towards the barycentre.

        Parameters
        ----------
        values : array-like of shape (n,)
        codes : array-like of int of shape (n,)
            Index of the distribution of each value.
        strength : float, default=1.0
            Fraction of the way to the barycentre, in [0, 1].

        Returns
        -------
        ndarray of shape (n,)
        """
        moved = np.array(values, dtype=np.float64)
        codes = np.asarray(codes)
        for code, law in enumerate(self.laws):
            rows = codes == code
            target = self.barycenter.quantile(law.level(moved[rows]))
            moved[rows] += strength * (target - moved[rows])
        return moved

    def transport_mixed(
        self, values: ArrayLike, weights: ArrayLike, strength: float = 1.0
    ) -> np.ndarray:
        """Move values whose distribution is known only by its probabilities.

        Parameters
        ----------
        values : array-like of shape (n,)
        weights : array-like of shape (n, n_laws)
            Probability that a value belongs to each distribution.
        strength : float, default=1.0
            Fraction of the way to the weighted mean of the values of all maps, in [0, 1].

        Returns
        -------
        ndarray of shape (n,)
        """
        values, weights = np.asarray(values, dtype=np.float64), np.asarray(weights)
        targets = (self.barycenter.quantile(law.level(values)) for law in self.laws)
        mean = sum(weight * target for weight, target in zip(weights.T, targets, strict=True))
        return values + strength * (mean - values)

    def shrink(self, values: ArrayLike, strength: float = 1.0) -> np.ndarray:
        """Move values towards the mean of the barycentre, whichever distribution they are of.

        This too multiplies all distances between the distributions by 1 - t.

        Parameters
        ----------
        values : array-like of shape (n,)
        strength : float, default=1.0
            Fraction t of the way to the mean, in [0, 1].

        Returns
        -------
        ndarray of shape (n,)
        """
        mean = np.trapezoid(self.barycenter.points, self.barycenter.levels)
        return np.asarray(values, dtype=np.float64) * (1 - strength) + strength * mean

    def rates_above(self, threshold: float, strength: float = 1.0) -> np.ndarray:
        """Return the probability above a threshold after the map, for each distribution.

        Parameters
        ----------
        threshold : float
        strength : float, default=1.0

        Returns
        -------
        ndarray of shape (n_laws,)
        """
        levels = self.barycenter.levels
        moved = [
            (1 - strength) * law.quantile(levels) + strength * self.barycenter.points
            for law in self.laws
        ]
        return np.array([1 - np.interp(threshold, points, levels) for points in moved])

    def largest_distance(self) -> float:
        """Return the largest 2-Wasserstein distance between two of the distributions.

        Returns
        -------
        float
            In the units of the values.
        """
        levels = self.barycenter.levels
        points = np.stack([law.quantile(levels) for law in self.laws])
        gaps = points[:, None] - points[None]
        # Differences are linear between levels, so Simpson's rule integrates squares exactly.
        first, last = gaps[..., :-1], gaps[..., 1:]
        squares = (first**2 + first * last + last**2) / 3
        return float(np.sqrt((squares * np.diff(levels)).sum(axis=-1).max()))
