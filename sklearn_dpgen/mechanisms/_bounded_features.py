"""Feature maps with an enforced norm bound, for class sums of known sensitivity."""

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike

from sklearn_dpgen.domains import Ball
from sklearn_dpgen.domains._base import array_namespace, like
from sklearn_dpgen.exceptions import PublicValueError
from sklearn_dpgen.utils._validation import check_positive

if TYPE_CHECKING:
    import torch

__all__ = ["BallMeans", "BallMoments", "BoundedFeatures"]

# A few hundred units in the last place of a double; about twelve operations lose one each.
_ROUNDING = 1 + 2.0**-44
# Vectors are rounded to multiples of this before summation.
_GRID = 2.0**-32
# Largest number of entries in memory.
_CHUNK = 1 << 22
# Points of a ball are rounded to multiples of this, and their products to multiples of its square.
_POINT_GRID = 2.0**-18


class BoundedFeatures(ABC):
    """Base class of public feature maps of bounded norm, applied record by record.

    Attributes
    ----------
    n_features_out : int
        Length of a vector.
    radius : float
        Upper bound on the l2 norm of every vector that ``transform`` returns, for any input.
    diameter : float
        Upper bound on the l2 distance of any two of them, in one call or in different ones.

    Notes
    -----
    The noise on released sums is proportional to these two numbers, so ``transform`` must enforce
    them by clipping, for any input. A row of its result depends on no other row of its input.

    Sums are exact, in any order: vectors are rounded to a grid first, on which their sums are
    64-bit integers.
    """

    if TYPE_CHECKING:
        # A field in some maps, a property in others.
        @property
        @abstractmethod
        def n_features_out(self) -> int: ...

        @property
        @abstractmethod
        def radius(self) -> float: ...

        @property
        @abstractmethod
        def diameter(self) -> float: ...

    @property
    def rounding(self) -> float:
        """Largest l2 norm of the rounding error of a vector before summation."""
        return math.sqrt(self.n_features_out) * _GRID / 2

    @property
    def most_samples(self) -> int:
        """Largest number of vectors with exact sums."""
        return int(2.0**62 * _GRID / self.radius)

    @abstractmethod
    def transform(self, X: "ArrayLike | torch.Tensor") -> "np.ndarray | torch.Tensor":
        """Return the vectors of records.

        Parameters
        ----------
        X : array-like or tensor of shape (n, ...)
            Private records.

        Returns
        -------
        ndarray or tensor of float64 of shape (n, n_features_out)
        """

    def class_sums(
        self, X: "Sequence | np.ndarray | torch.Tensor", codes: np.ndarray, n_classes: int
    ) -> np.ndarray:
        """Return the sums of the vectors over the records of each class: private, without noise.

        Parameters
        ----------
        X : array or tensor of shape (n, ...)
            At most ``most_samples`` private records; ``transform`` gets them in parts.
        codes : ndarray of int of shape (n,)
            Class of each record, from 0.
        n_classes : int

        Returns
        -------
        ndarray of float64 of shape (n_classes, n_features_out)
        """
        sums = np.zeros((n_classes, self.n_features_out), dtype=np.int64)
        classes = np.eye(n_classes)
        # A double holds the sum of this number of rows exactly.
        most = min(_CHUNK // self.n_features_out, 2.0**53 * _GRID / self.radius)
        step = max(1, int(most))
        for start in range(0, len(X), step):
            V = self.transform(X[start : start + step])
            members = like(classes[codes[start : start + step]], V)
            sums += _integers(members.T @ array_namespace(V).round(V / _GRID))
        return sums * _GRID


@dataclass(frozen=True)
class BallMeans(BoundedFeatures):
    """First moments and the mean square: φ(u) = (u, ‖u‖²/√2) of u = (x - center) / R in the ball.

    Parameters
    ----------
    ball : Ball
        Ball with p = 2. Records outside are projected on it.

    Notes
    -----
    The radius is √(3/2). The diameter is 2, that of the ball, so the mean square is free. For norms
    a ≥ b the squared distance is at most (a + b)² + (a² − b²)²/2. It grows with a, so a = 1, and
    then with b, up to 4: see :ref:`sensitivity of moments <moments_sensitivity>`.
    """

    ball: Ball

    def __post_init__(self):
        _check_ball(self.ball)

    @property
    def n_features_out(self) -> int:
        """Length of a vector: one more than the number of features."""
        return self.ball.n_features + 1

    @property
    def radius(self) -> float:
        """Largest norm, attained on the sphere, rounded up."""
        return math.sqrt(1.5) * _ROUNDING

    @property
    def diameter(self) -> float:
        """Largest distance, of opposite points on the sphere, rounded up."""
        return 2.0 * _ROUNDING

    def transform(self, X: ArrayLike) -> np.ndarray:
        U = self.ball.project(np.asarray(X, dtype=np.float64)) - self.ball.center
        U /= self.ball.radius
        # A norm above 1 by rounding is corrected.
        U /= np.linalg.norm(U, axis=1, keepdims=True).clip(1.0)
        return np.column_stack([U, (U**2).sum(axis=1) / math.sqrt(2)])

    def moments(self, V: ArrayLike) -> tuple[np.ndarray, np.ndarray]:
        """Return sums of u and of ‖u‖² from sums of φ(u), also from noisy sums.

        Parameters
        ----------
        V : array-like of shape (..., n_features_out)

        Returns
        -------
        first : ndarray of shape (..., d)
        square : ndarray of shape (...)
            With √2 times the noise of an entry of ``V``.
        """
        V = np.asarray(V)
        return V[..., :-1], math.sqrt(2) * V[..., -1]


@dataclass(frozen=True)
class BallMoments(BoundedFeatures):
    """First and second moments: φ(u) = (u, w vech(u uᵀ)) of u = (x - center) / R in the unit ball.

    Off-diagonal entries of vech have a factor √2, so that its norm is the Frobenius norm of the
    matrix; entries are by rows of the upper triangle.

    Parameters
    ----------
    ball : Ball
        Ball with p = 2. Records outside are projected on it.
    weight : float, default=1.5
        Weight w of the second moments relative to the first.

    Notes
    -----
    Points are rounded to multiples of 2⁻¹⁸ of the radius, within the ball, so that sums of points
    and of products are exact.

    The radius is √(1 + w²). The squared diameter is 2 + 2w² + 1/(2w²), or 4 for w² < 1/2: see
    :ref:`sensitivity of moments <moments_sensitivity>`.
    """

    ball: Ball
    weight: float = 1.5

    def __post_init__(self):
        _check_ball(self.ball)
        object.__setattr__(self, "weight", check_positive(self.weight, "weight"))

    @property
    def n_features_in(self) -> int:
        """Number of features of a record."""
        return self.ball.n_features

    @property
    def n_features_out(self) -> int:
        """Length of a vector: d + d (d + 1) / 2 for d features."""
        return self.n_features_in * (self.n_features_in + 3) // 2

    @property
    def radius(self) -> float:
        """Largest norm, attained on the sphere, rounded up."""
        return math.hypot(1, self.weight) * _ROUNDING

    @property
    def diameter(self) -> float:
        """Largest distance, attained on the sphere for at least two features, rounded up."""
        square = self.weight**2
        return math.sqrt(2 + 2 * square + 0.5 / square if square >= 0.5 else 4.0) * _ROUNDING

    @property
    def rounding(self) -> float:
        """Zero, as points are rounded within the ball before the vectors are made."""
        return 0.0

    @property
    def most_samples(self) -> int:
        """Largest number of vectors with exact sums."""
        return int(2.0**62 * _POINT_GRID**2)

    def transform(self, X: ArrayLike) -> np.ndarray:
        # Products of whole columns are faster than products of entries.
        U = np.ascontiguousarray(_POINT_GRID * self._multiples(X).T)
        (rows, columns), factors = self._triangle
        V = U[rows]
        V *= U[columns]
        V *= factors[:, None]
        return np.vstack([U, V]).T

    def class_sums(
        self, X: "Sequence | np.ndarray | torch.Tensor", codes: np.ndarray, n_classes: int
    ) -> np.ndarray:
        """Return the sums over the records of each class, by matrix products."""
        d = self.n_features_in
        first = np.zeros((n_classes, d), dtype=np.int64)
        second = np.zeros((n_classes, d, d), dtype=np.int64)
        # A double holds the sum of this number of products exactly.
        step = max(1, min(_CHUNK // d, int(2.0**53 * _POINT_GRID**2)))
        for start in range(0, len(X), step):
            U = self._multiples(X[start : start + step])
            for code in range(n_classes):
                own = U[codes[start : start + step] == code]
                first[code] += own.sum(axis=0).astype(np.int64)
                second[code] += (own.T @ own).astype(np.int64)
        (rows, columns), factors = self._triangle
        second = second[:, rows, columns] * _POINT_GRID**2 * factors
        return np.hstack([first * _POINT_GRID, second])

    def _multiples(self, X):
        """Return points of the unit ball as integer multiples of a grid."""
        U = self.ball.project(np.asarray(X, dtype=np.float64)) - self.ball.center
        U /= self.ball.radius
        # Rounding moves a point by at most half of this.
        margin = math.sqrt(self.n_features_in) * _POINT_GRID
        norms = np.linalg.norm(U, axis=1, keepdims=True)
        U *= (1 - margin) / norms.clip(1 - margin)
        return np.rint(U / _POINT_GRID)

    def moments(self, V: ArrayLike) -> tuple[np.ndarray, np.ndarray]:
        """Return sums of u and of u uᵀ from sums of φ(u), also from noisy sums.

        Parameters
        ----------
        V : array-like of shape (..., n_features_out)

        Returns
        -------
        first : ndarray of shape (..., d)
        second : ndarray of shape (..., d, d)
            Symmetric. If the entries of ``V`` have independent noise of scale s, those of the
            matrix have s / w on the diagonal and s / (√2 w) off it, independent except for the
            symmetry: a distribution that is the same in every basis.
        """
        V, d = np.asarray(V), self.n_features_in
        (rows, columns), factors = self._triangle
        second = np.zeros((*V.shape[:-1], d, d))
        second[..., rows, columns] = V[..., d:] / factors
        second[..., columns, rows] = second[..., rows, columns]
        return V[..., :d], second

    @cached_property
    def _triangle(self):
        rows, columns = np.triu_indices(self.n_features_in)
        factors = self.weight * np.where(rows == columns, 1.0, math.sqrt(2))
        return (rows, columns), factors


def _check_ball(ball):
    if not isinstance(ball, Ball) or ball.p != 2:
        raise PublicValueError("ball must be a Ball with p = 2.")


def _integers(sums):
    if array_namespace(sums) is not np:
        from sklearn_dpgen.utils._torch import as_array

        sums = as_array(sums)
    return sums.astype(np.int64)
