"""Gaussian releases of the sums of bounded feature vectors over each class."""

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike

from sklearn_dpgen.accounting._calibration import check_delta_size
from sklearn_dpgen.accounting._profiles import PrivacyProfile
from sklearn_dpgen.domains import Ball
from sklearn_dpgen.domains._base import array_namespace, like
from sklearn_dpgen.exceptions import PublicRuntimeError, PublicTypeError, PublicValueError
from sklearn_dpgen.mechanisms._sequence import (
    CentralMechanism,
    CentralRun,
    GaussianSequenceMechanism,
)
from sklearn_dpgen.utils._random import NoiseSource
from sklearn_dpgen.utils._validation import (
    check_count,
    check_delta,
    check_epsilon,
    check_positive,
    set_fields,
)

if TYPE_CHECKING:
    import torch

__all__ = [
    "BallMeans",
    "BallMoments",
    "BoundedFeatures",
    "ClassSumMechanism",
    "ClassSumRun",
    "ClassSums",
]

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
        set_fields(self, weight=check_positive(self.weight, "weight"))

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


@dataclass(frozen=True)
class ClassSums:
    """Query of the class sums of feature vectors, and of class counts, as one vector.

    Parameters
    ----------
    features : BoundedFeatures
    n_samples : int
        Number of records, public.
    n_classes : int, default=1
    labels : {"public", "private"} or None, default=None
        Whether neighbours may differ in the label. Required for more than one class.
    with_counts : bool, default=False
        Whether the class counts are released too, in the same vector. For private labels.

    Attributes
    ----------
    sensitivity : float
        Largest l2 distance of the vectors of neighbours.
    count_weight : float
        Weight a of the counts; 0 without counts.

    Notes
    -----
    Neighbours: one record is replaced, by one of the same class if labels are public. With r the
    radius and Δ the diameter of the features, another record of the same class moves the sum of
    that class by at most Δ. Another label moves two classes, from (φ, a) to (0, 0) and from (0, 0)
    to (φ', a): at most √2 √(r² + a²) in total. The sensitivity is the larger of the two; counts
    with a² ≤ Δ²/2 − r² are free.

    The mean of a class is the ratio of its sum and count: for p features the bound of its error is
    proportional to Δ²(p + r²/a²). Beyond the free a this is smallest at a² = r²/√p, so a is the
    larger of the two.

    Sums are exact: the rounding error of the features is added to r, and twice to Δ. The sums are
    then converted to doubles, and scaled by public numbers. Together they have a norm of at most
    n √(r² + a²), and each operation has a relative error of 2⁻⁵³: 2⁻⁵⁰ of that norm is added to
    the sensitivity.
    """

    features: BoundedFeatures
    n_samples: int
    n_classes: int = 1
    _: KW_ONLY
    labels: str | None = None
    with_counts: bool = False
    count_weight: float = field(init=False)
    sensitivity: float = field(init=False)

    def __post_init__(self):
        if not isinstance(self.features, BoundedFeatures):
            raise PublicTypeError(
                f"features must be BoundedFeatures, got {type(self.features).__name__}."
            )
        n_samples = check_count(self.n_samples, "n_samples")
        n_classes = check_count(self.n_classes, "n_classes")
        if self.labels not in ("public", "private") and (n_classes > 1 or self.labels is not None):
            raise PublicValueError(f"labels must be 'public' or 'private', got {self.labels!r}.")
        if self.with_counts and self.labels != "private":
            raise PublicValueError(
                "with_counts must be False for public labels, whose counts are public."
            )
        width = self.features.n_features_out
        if n_samples > self.features.most_samples:
            raise PublicValueError(
                f"n_samples must be at most {self.features.most_samples} for exact sums, got "
                f"{n_samples}."
            )
        radius = self.features.radius + self.features.rounding
        sensitivity = self.features.diameter + 2 * self.features.rounding
        weight = 0.0
        if self.with_counts:
            free = max(0.0, sensitivity**2 / 2 - radius**2)
            weight = math.sqrt(max(free, radius**2 / math.sqrt(width)))
        norm = math.hypot(radius, weight)
        if self.labels == "private":
            sensitivity = max(sensitivity, math.sqrt(2) * norm)
        set_fields(
            self,
            n_samples=n_samples,
            n_classes=n_classes,
            count_weight=weight,
            # The margin covers the rounding of the operations above, and of those on the sums.
            sensitivity=sensitivity * (1 + 2.0**-49) + n_samples * norm * 2.0**-50,
        )

    @property
    def size(self) -> int:
        """Number of entries of the vector."""
        return self.n_classes * (self.features.n_features_out + self.with_counts)

    def vector(self, X: "Sequence | np.ndarray | torch.Tensor", codes: np.ndarray) -> np.ndarray:
        """Return the vector of private records, for a mechanism to release.

        Parameters
        ----------
        X : array or tensor of shape (n_samples, ...)
            Records as ``features`` takes them; passed in parts.
        codes : ndarray of int of shape (n_samples,)
            Class of each record, from 0.

        Returns
        -------
        ndarray of float64 of shape (size,)
        """
        if len(X) != self.n_samples or len(codes) != self.n_samples:
            raise PublicValueError(f"X and codes must have {self.n_samples} records.")
        vector = self.features.class_sums(X, codes, self.n_classes)
        if self.with_counts:
            counts = np.bincount(codes, minlength=self.n_classes).astype(np.float64)
            vector = np.column_stack([vector, self.count_weight * counts])
        return vector.ravel()

    def split(self, vector: np.ndarray) -> tuple[np.ndarray, np.ndarray | None]:
        """Return the sums and the counts of a released vector.

        Parameters
        ----------
        vector : ndarray of shape (size,)

        Returns
        -------
        sums : ndarray of shape (n_classes, n_features_out)
        counts : ndarray of shape (n_classes,) or None
        """
        rows = vector.reshape(self.n_classes, -1)
        width = self.features.n_features_out
        return rows[:, :width], rows[:, width] / self.count_weight if self.with_counts else None


@dataclass(frozen=True)
class ClassSumMechanism(CentralMechanism):
    """Gaussian releases of :class:`ClassSums`, one after another, with shares of one budget.

    Parameters
    ----------
    queries : sequence of ClassSums
        Queries of the same records. The feature vectors of a later query may depend on earlier
        releases; its features bound them in any case.
    shares : sequence of float
        One positive number per query, as in :class:`GaussianSequenceMechanism`.
    epsilon : float
        Privacy budget of all releases together, in nats; ``inf`` adds no noise.
    delta : float
        In (0, 1).

    Attributes
    ----------
    noise_scales : tuple of float
        Noise σ on each entry of the vector of each query.

    Notes
    -----
    A vector is divided by its sensitivity, so that all sensitivities are 1.
    """

    queries: Sequence[ClassSums]
    shares: Sequence[float]
    _: KW_ONLY
    epsilon: float
    delta: float
    _mechanism: GaussianSequenceMechanism = field(init=False, repr=False)

    def __post_init__(self):
        if len(self.queries) != len(self.shares):
            raise PublicValueError("shares must hold one number per query.")
        if len({(query.n_samples, query.n_classes, query.labels) for query in self.queries}) > 1:
            raise PublicValueError("queries must have equal n_samples, n_classes and labels.")
        epsilon, delta = check_epsilon(self.epsilon), check_delta(self.delta)
        if math.isfinite(epsilon):
            check_delta_size(delta, self.queries[0].n_samples)
        mechanism = GaussianSequenceMechanism(1.0, self.shares, epsilon, delta)
        set_fields(
            self,
            queries=tuple(self.queries),
            shares=mechanism.shares,
            epsilon=epsilon,
            delta=delta,
            _mechanism=mechanism,
        )

    @property
    def noise_scales(self) -> tuple[float, ...]:
        """Noise σ on each entry of the vector of each query."""
        scales = zip(self._mechanism.noise_scales, self.queries, strict=True)
        return tuple(scale * query.sensitivity for scale, query in scales)

    @property
    def noise_multiplier(self) -> float:
        """Noise multiplier of all releases together."""
        return self._mechanism.noise_multiplier

    @property
    def releases(self) -> tuple[tuple[PrivacyProfile, int], ...]:
        return self._mechanism.releases

    def report_fields(self) -> dict:
        # In units of the sensitivities.
        return self._mechanism.report_fields()

    def run(self) -> "ClassSumRun":
        return ClassSumRun(self)


class ClassSumRun(CentralRun):
    """The releases of one ClassSumMechanism, in order."""

    def __init__(self, mechanism: ClassSumMechanism) -> None:
        super().__init__(mechanism)
        self._queries = list(mechanism.queries)
        self._run = mechanism._mechanism.run()

    def release(
        self,
        X: "Sequence | np.ndarray | torch.Tensor",
        codes: np.ndarray,
        noise: NoiseSource,
    ) -> tuple[np.ndarray, np.ndarray | None]:
        """Return noisy sums and counts of the next query.

        Parameters
        ----------
        X : array or tensor of shape (n_samples, ...)
            Input of the features for each record: a function of the record, its class and earlier
            releases.
        codes : ndarray of int of shape (n_samples,)
            Class of each record, from 0.
        noise : NoiseSource
            Anybody who can predict it voids the guarantee.

        Returns
        -------
        sums : ndarray of shape (n_classes, n_features_out)
            With noise σ on each entry.
        counts : ndarray of shape (n_classes,) or None
            With noise σ / a; None unless the query includes them.

        Raises
        ------
        PublicRuntimeError
            There are more releases than planned.
        """
        if not self._queries:
            raise PublicRuntimeError(
                "All releases that the privacy budget paid for were made: no more."
            )
        query = self._queries.pop(0)
        vector = query.vector(X, codes) / query.sensitivity
        return query.split(query.sensitivity * self._run.release(vector, noise))
