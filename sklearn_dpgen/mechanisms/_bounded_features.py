"""Public maps of single records to vectors of bounded norm, which enforce their bounds."""

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

__all__ = ["BallMeans", "BallMoments", "BoundedFeatures", "PositiveFeatures", "clip_positive"]

# A few hundred units in the last place of a double, where a dozen operations take one each.
_ROUNDING = 1 + 2.0**-44
# Vectors are rounded to multiples of this before they are added up.
_GRID = 2.0**-32
# Entries in memory at a time.
_CHUNK = 1 << 22
# Points of a ball are rounded to multiples of this, and so their products to its square.
_POINT_GRID = 2.0**-18


class BoundedFeatures(ABC):
    """Base class of public feature maps of bounded norm, of each record by itself.

    Attributes
    ----------
    n_features_out : int
        Width of a vector.
    radius : float
        At least the l2 norm of every vector that ``transform`` returns, whatever it is given.
    diameter : float
        At least the l2 distance of any two of them, of one call or of different ones.

    Notes
    -----
    What is released of the vectors gets noise in proportion to these two numbers, so ``transform``
    has to enforce them: it clips, and does not trust its input. A row of its result depends on no
    other row of its input.

    Sums are exact, in any order: vectors are rounded to a grid first, and their sums on it are
    integers of 64 bits.
    """

    if TYPE_CHECKING:
        # Fields in some maps, properties in others.
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
        """Largest l2 norm of what rounding adds to a vector before it is summed."""
        return math.sqrt(self.n_features_out) * _GRID / 2

    @property
    def most_samples(self) -> int:
        """Number of vectors up to which sums are exact."""
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
            At most ``most_samples`` records; ``transform`` gets them in parts.
        codes : ndarray of int of shape (n,)
            The class of each, from 0.
        n_classes : int

        Returns
        -------
        ndarray of float64 of shape (n_classes, n_features_out)
        """
        sums = np.zeros((n_classes, self.n_features_out), dtype=np.int64)
        classes = np.eye(n_classes)
        # A double holds the sum of so many rows exactly.
        most = min(_CHUNK // self.n_features_out, 2.0**53 * _GRID / self.radius)
        step = max(1, int(most))
        for start in range(0, len(X), step):
            V = self.transform(X[start : start + step])
            members = like(classes[codes[start : start + step]], V)
            sums += _integers(members.T @ array_namespace(V).round(V / _GRID))
        return sums * _GRID


class PositiveFeatures(BoundedFeatures):
    """Base class of maps to non-negative vectors of norm at most 1, at most √2 apart.

    A subclass has ``n_features_out`` and ``features``, of any precision.
    """

    radius = 1.0
    # Rounded up.
    diameter = math.nextafter(math.sqrt(2), 2)

    @abstractmethod
    def features(self, X: "ArrayLike | torch.Tensor") -> "np.ndarray | torch.Tensor":
        """Return the vectors before they are clipped, of each record by itself.

        Parameters
        ----------
        X : array-like or tensor of shape (n, ...)

        Returns
        -------
        ndarray or tensor of shape (n, n_features_out)
        """

    def transform(self, X: "ArrayLike | torch.Tensor") -> "np.ndarray | torch.Tensor":
        return clip_positive(self.features(X))


def clip_positive(F: "np.ndarray | torch.Tensor") -> "np.ndarray | torch.Tensor":
    """Return rows without their negative entries, scaled down to an l2 norm of at most 1.

    Parameters
    ----------
    F : ndarray or tensor of shape (n, d)
        NaN counts as zero.

    Returns
    -------
    ndarray or tensor of float64 of shape (n, d)
        Their norms are at most 1, and so any two at most √2 apart, in exact arithmetic: rows are
        clipped in double precision, whatever they were computed in, and rounded inwards.
    """
    xp = array_namespace(F)
    F = np.asarray(F, dtype=np.float64) if isinstance(F, np.ndarray) else F.double()
    F = xp.where(F > 0, F, xp.zeros_like(F))
    return Ball(1.0, n_features=F.shape[1]).project(F)


@dataclass(frozen=True)
class BallMeans(BoundedFeatures):
    """First moments and the mean square: φ(u) = (u, ‖u‖²/√2) of u = (x - center) / R in the ball.

    Parameters
    ----------
    ball : Ball
        Of p = 2. Records outside are moved to its nearest point.

    Notes
    -----
    The radius is √(3/2). The diameter is 2, that of the ball: the mean square is free. For norms
    a ≥ b the squared distance is at most (a + b)² + (a² − b²)²/2, which grows with a, so a = 1, and
    then with b, up to 4: see :ref:`sensitivity of moments <moments_sensitivity>`.
    """

    ball: Ball

    def __post_init__(self):
        _check_ball(self.ball)

    @property
    def n_features_out(self) -> int:
        """Width of a vector: one more than that of a record."""
        return self.ball.n_features + 1

    @property
    def radius(self) -> float:
        """Largest norm, attained on the sphere, rounded up."""
        return math.sqrt(1.5) * _ROUNDING

    @property
    def diameter(self) -> float:
        """Largest distance, that of opposite points of the sphere, rounded up."""
        return 2.0 * _ROUNDING

    def transform(self, X: ArrayLike) -> np.ndarray:
        U = self.ball.project(np.asarray(X, dtype=np.float64)) - self.ball.center
        U /= self.ball.radius
        # A rounding error out of the unit ball is taken back.
        U /= np.linalg.norm(U, axis=1, keepdims=True).clip(1.0)
        return np.column_stack([U, (U**2).sum(axis=1) / math.sqrt(2)])

    def moments(self, V: ArrayLike) -> tuple[np.ndarray, np.ndarray]:
        """Return sums of u and of ‖u‖² from sums of φ(u), with noise or without.

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

    The entries of vech off the diagonal have a factor √2, so that its norm is the Frobenius norm of
    the matrix; by rows of the upper triangle.

    Parameters
    ----------
    ball : Ball
        Of p = 2. Records outside are moved to its nearest point.
    weight : float, default=1.5
        w, of the second moments beside the first.

    Notes
    -----
    Points are rounded to multiples of 2⁻¹⁸ of the radius, within the ball, so that their sums and
    those of their products are exact.

    The radius is √(1 + w²). The squared diameter is 2 + 2w² + 1/(2w²), or 4 where w² < 1/2: see
    :ref:`sensitivity of moments <moments_sensitivity>`.
    """

    ball: Ball
    weight: float = 1.5

    def __post_init__(self):
        _check_ball(self.ball)
        object.__setattr__(self, "weight", check_positive(self.weight, "weight"))

    @property
    def n_features_in(self) -> int:
        """Width of a record."""
        return self.ball.n_features

    @property
    def n_features_out(self) -> int:
        """Width of a vector: d + d (d + 1) / 2 of d features."""
        return self.n_features_in * (self.n_features_in + 3) // 2

    @property
    def radius(self) -> float:
        """Largest norm, attained on the sphere, rounded up."""
        return math.hypot(1, self.weight) * _ROUNDING

    @property
    def diameter(self) -> float:
        """Largest distance, attained on the sphere for two features or more, rounded up."""
        square = self.weight**2
        return math.sqrt(2 + 2 * square + 0.5 / square if square >= 0.5 else 4.0) * _ROUNDING

    @property
    def rounding(self) -> float:
        """None is added to a vector: points are rounded within the ball."""
        return 0.0

    @property
    def most_samples(self) -> int:
        """Number of vectors up to which sums are exact."""
        return int(2.0**62 * _POINT_GRID**2)

    def transform(self, X: ArrayLike) -> np.ndarray:
        # By columns: products of whole rows are faster than of entries.
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
        # A double holds the sum of so many products exactly.
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
        """Return points of the unit ball as integers, multiples of a grid."""
        U = self.ball.project(np.asarray(X, dtype=np.float64)) - self.ball.center
        U /= self.ball.radius
        # Rounding moves a point by half of this at most.
        margin = math.sqrt(self.n_features_in) * _POINT_GRID
        norms = np.linalg.norm(U, axis=1, keepdims=True)
        U *= (1 - margin) / norms.clip(1 - margin)
        return np.rint(U / _POINT_GRID)

    def moments(self, V: ArrayLike) -> tuple[np.ndarray, np.ndarray]:
        """Return sums of u and of u uᵀ from sums of φ(u), with noise or without.

        Parameters
        ----------
        V : array-like of shape (..., n_features_out)

        Returns
        -------
        first : ndarray of shape (..., d)
        second : ndarray of shape (..., d, d)
            Symmetric. Where the entries of ``V`` have independent noise of scale s, those of the
            matrix have s / w on the diagonal and s / (√2 w) off it, independent but for the
            symmetry: a law that is the same in every basis.
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
        raise PublicValueError("ball must be a Ball of p = 2.")


def _integers(sums):
    if array_namespace(sums) is not np:
        from sklearn_dpgen.utils._torch import as_array

        sums = as_array(sums)
    return sums.astype(np.int64)
