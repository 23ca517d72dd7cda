"""Gaussian releases of the sums of bounded feature vectors over each class."""

import math
from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from sklearn_dpgen.accounting._checks import check_count, check_delta_size
from sklearn_dpgen.exceptions import PublicRuntimeError, PublicTypeError, PublicValueError
from sklearn_dpgen.mechanisms._bounded_features import BoundedFeatures
from sklearn_dpgen.mechanisms._sequence import GaussianSequenceMechanism
from sklearn_dpgen.utils._random import NoiseSource
from sklearn_dpgen.utils._validation import check_delta, check_epsilon

if TYPE_CHECKING:
    import torch

__all__ = ["ClassSumMechanism", "ClassSumRun", "ClassSums"]


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
        for name, value in (
            ("n_samples", n_samples),
            ("n_classes", n_classes),
            ("count_weight", weight),
            # The margin covers the rounding of the operations above, and of those on the sums.
            ("sensitivity", sensitivity * (1 + 2.0**-49) + n_samples * norm * 2.0**-50),
        ):
            object.__setattr__(self, name, value)

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
class ClassSumMechanism:
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
        for name, value in (
            ("queries", tuple(self.queries)),
            ("shares", mechanism.shares),
            ("epsilon", epsilon),
            ("delta", delta),
            ("_mechanism", mechanism),
        ):
            object.__setattr__(self, name, value)

    @property
    def noise_scales(self) -> tuple[float, ...]:
        """Noise σ on each entry of the vector of each query."""
        scales = zip(self._mechanism.noise_scales, self.queries, strict=True)
        return tuple(scale * query.sensitivity for scale, query in scales)

    @property
    def noise_multiplier(self) -> float:
        """Noise multiplier of all releases together."""
        return self.report_fields()["noise_multiplier"]

    def report_fields(self) -> dict:
        """Return the fields of a PrivacyReport that this mechanism determines.

        Returns
        -------
        dict
            As in :class:`GaussianSequenceMechanism`, in units of the sensitivities.
        """
        return self._mechanism.report_fields()

    def run(self) -> "ClassSumRun":
        """Return the releases of this mechanism, to be used once.

        Returns
        -------
        ClassSumRun
        """
        return ClassSumRun(self)


class ClassSumRun:
    """The releases of one ClassSumMechanism, in order.

    Parameters
    ----------
    mechanism : ClassSumMechanism
    """

    def __init__(self, mechanism: ClassSumMechanism) -> None:
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
