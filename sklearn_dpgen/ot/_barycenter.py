"""Laws on the line, their Wasserstein barycentre, and the monotone maps towards it."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import ArrayLike

__all__ = ["BarycenterMaps", "LineLaw"]


@dataclass(frozen=True)
class LineLaw:
    """A distribution on the line, by points of its piecewise linear quantile function.

    Parameters
    ----------
    points : ndarray of shape (m,)
        In increasing order.
    levels : ndarray of shape (m,)
        In [0, 1], in increasing order: the share of the law below each point, and of a point that
        has mass one half of it.
    """

    points: np.ndarray
    levels: np.ndarray

    @classmethod
    def from_sample(cls, values: ArrayLike) -> "LineLaw":
        """Return the law of a sample; equal values are one point.

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
        """Return the law that is uniform within bins.

        Parameters
        ----------
        edges : array-like of shape (m + 1,)
            In increasing order.
        counts : array-like of shape (m,)
            None of them negative, and one positive.

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
        """Return the share of the law below each value.

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
    """Monotone maps of several laws on the line to their 2-Wasserstein barycentre.

    The barycentre minimizes the weighted mean of the squared distances to the laws. On the line
    its quantile function is the weighted mean of theirs, and the map of a law is the only monotone
    one. A part of the way t moves each law along its geodesic: then all distances between the laws
    are (1 - t) of what they were.

    Parameters
    ----------
    laws : sequence of LineLaw
    weights : array-like of shape (n_laws,)
        Positive; they are scaled to a sum of one.

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
            Which law each value is of.
        strength : float, default=1.0
            Part of the way, in [0, 1].

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
        """Move values of laws that are known by their probabilities alone.

        Parameters
        ----------
        values : array-like of shape (n,)
        weights : array-like of shape (n, n_laws)
            The probability that each value is of each law.
        strength : float, default=1.0
            Part of the way to the mean of where the maps of all laws lead, in [0, 1].

        Returns
        -------
        ndarray of shape (n,)
        """
        values, weights = np.asarray(values, dtype=np.float64), np.asarray(weights)
        targets = (self.barycenter.quantile(law.level(values)) for law in self.laws)
        mean = sum(weight * target for weight, target in zip(weights.T, targets, strict=True))
        return values + strength * (mean - values)

    def rates_above(self, threshold: float, strength: float = 1.0) -> np.ndarray:
        """Return the share of each law above a threshold, after a part of the way.

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
        """Return the largest 2-Wasserstein distance between two of the laws.

        Returns
        -------
        float
            In the units of the values.
        """
        levels = self.barycenter.levels
        points = np.stack([law.quantile(levels) for law in self.laws])
        gaps = points[:, None] - points[None]
        # Gaps are linear between levels, and the integral of their squares is by Simpson's rule.
        first, last = gaps[..., :-1], gaps[..., 1:]
        squares = (first**2 + first * last + last**2) / 3
        return float(np.sqrt((squares * np.diff(levels)).sum(axis=-1).max()))
