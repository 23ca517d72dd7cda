"""Means and covariances by class: two releases, the second about the means of the first."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
from numpy.typing import ArrayLike
from scipy.stats import chi2

from sklearn_dpgen.accounting import (
    Bound,
    Event,
    PrivacyReport,
    calibrate_noise_multiplier,
)
from sklearn_dpgen.accounting._wording import count_words, number_words
from sklearn_dpgen.domains import Ball
from sklearn_dpgen.exceptions import PublicValueError
from sklearn_dpgen.mechanisms._class_sums import (
    BallMeans,
    BallMoments,
    ClassSumMechanism,
    ClassSums,
)
from sklearn_dpgen.utils._normal_laws import PublicMoments, denoised_covariances, shrunk_means
from sklearn_dpgen.utils._random import ROUNDING, NoiseSource
from sklearn_dpgen.utils._validation import check_fits, warn_user

__all__ = [
    "MOMENT_SHARES",
    "MomentPlan",
    "NoisyMoments",
    "automatic_weight",
    "moment_queries",
    "price_moments",
    "release_moments",
]

# Shares of the budget. Errors of the released means are corrected by the second release.
MOMENT_SHARES = (0.1, 0.9)
# Weight of second moments relative to first ones, if their noise is not too large.
_WEIGHT = 2.0
# Smallest and largest radius of the residuals of a class, relative to that of all records.
_LEAST, _LARGEST = 0.1, 2.0
# Largest factor by which a covariance is increased for residuals that were projected.
_LARGEST_GAIN = 2.0
# Largest number of directions assumed to share the variance of a class in the tail of residuals.
_DIRECTIONS = 10


@dataclass(frozen=True)
class NoisyMoments:
    """The released moments of each class.

    Parameters
    ----------
    means : ndarray of shape (n_classes, d)
    covariances : ndarray of shape (n_classes, d, d)
        Symmetric, with noise.
    spreads : ndarray of shape (n_classes,)
        Standard deviation of the noise on off-diagonal entries of a covariance; it is √2 times
        that on the diagonal.
    mean_spreads : ndarray of shape (n_classes,)
        About the standard deviation of the error of the entries of a mean.
    counts : ndarray of shape (n_classes,) or None
        Noisy class sizes, at least one half; None if they are public.
    """

    means: np.ndarray
    covariances: np.ndarray
    spreads: np.ndarray
    mean_spreads: np.ndarray
    counts: np.ndarray | None


def moment_queries(
    ball: Ball,
    n_samples: int,
    n_classes: int,
    *,
    labels: str,
    with_counts: bool,
    weight: float = _WEIGHT,
) -> tuple[ClassSums, ClassSums]:
    """Return the feature maps whose class sums are the two releases.

    Parameters
    ----------
    ball : Ball
        Records outside are projected on it.
    n_samples, n_classes : int
    labels : {"public", "private"}
    with_counts : bool
        As in :class:`~sklearn_dpgen.mechanisms.ClassSums`.
    weight : float, default=2.0
        Weight of second moments relative to first ones.

    Returns
    -------
    tuple of two ClassSums
        Their shares of the budget are ``MOMENT_SHARES``.
    """
    residuals = BallMoments(Ball(1.0, n_features=ball.n_features), weight)
    return (
        ClassSums(BallMeans(ball), n_samples, n_classes, labels=labels, with_counts=with_counts),
        ClassSums(residuals, n_samples, n_classes, labels=labels),
    )


def automatic_weight(d: int, n_samples: int, n_classes: int, epsilon: float, delta: float) -> float:
    """Return the weight of second moments relative to first ones, from public quantities.

    Up to √½ second moments are free, as the sensitivity of first moments alone is as large. A
    larger weight pays off if the covariances of classes exceed their noise.

    Parameters
    ----------
    d, n_samples, n_classes : int
    epsilon, delta : float

    Returns
    -------
    float
        2.0; or √½ if the noise on the covariance of a class of mean size is larger than a quarter
        of its trace, in Frobenius norm.
    """
    multiplier = calibrate_noise_multiplier(epsilon, delta) / math.sqrt(MOMENT_SHARES[1])
    sensitivity = BallMoments(Ball(1.0, n_features=d), _WEIGHT).diameter
    scale = multiplier * sensitivity * n_classes / n_samples
    return math.sqrt(0.5) if d * scale / (math.sqrt(2) * _WEIGHT) > 0.25 else _WEIGHT


def release_moments(
    queries: Sequence[ClassSums],
    scales: Sequence[float],
    release: Callable[[ClassSums, np.ndarray, np.ndarray], tuple[np.ndarray, np.ndarray | None]],
    X: np.ndarray,
    codes: np.ndarray,
    sizes: np.ndarray,
) -> NoisyMoments:
    """Release the class-wise moments in two steps.

    The first release gives means, mean squares and counts, and so the typical distance of records
    of a class to its mean. The second is of the residuals, projected on a ball of about that size:
    a larger radius has more noise, a smaller one more bias.

    Parameters
    ----------
    queries : tuple of two ClassSums
        From ``moment_queries``.
    scales : tuple of two float
        Standard deviation of the noise on the sums.
    release : callable
        ``release(query, X, codes)`` returns noisy sums and counts, of the planned cost.
    X : ndarray of shape (n, d)
    codes : ndarray of int of shape (n,)
    sizes : ndarray of shape (n_classes,)
        Public class sizes; not read if noisy ones are released.

    Returns
    -------
    NoisyMoments
    """
    (coarse, fine), (coarse_scale, fine_scale) = queries, scales
    of_means, of_moments = cast(BallMeans, coarse.features), cast(BallMoments, fine.features)
    ball = of_means.ball
    sums, counts = release(coarse, X, codes)
    if counts is not None:
        # Noisy class sizes are at least half a record.
        counts = sizes = counts.clip(0.5)
    first, square = of_means.moments(sums / sizes[:, None])
    d = first.shape[1]
    # Means are shrunk to zero in proportion to their noise (James and Stein).
    square_of_mean, noise_of_mean = (first**2).sum(axis=1), d * (coarse_scale / sizes) ** 2
    kept = (1 - noise_of_mean / square_of_mean.clip(1e-300)).clip(0)
    first *= kept[:, None]
    # The mean square of residuals about a mean with remaining noise.
    variance = square - kept * square_of_mean + kept * noise_of_mean
    scale = fine_scale / (np.sqrt(2) * of_moments.weight * sizes)
    lengths = np.sqrt(variance.clip(0)) * _relative_radius(d, d * scale)
    radii = ball.radius * lengths.clip(_LEAST, _LARGEST)
    first /= np.linalg.norm(first, axis=1, keepdims=True).clip(1)
    means = ball.center + ball.radius * first

    residuals = (ball.project(X) - means[codes]) / radii[codes, None]
    sums, _ = release(fine, residuals, codes)
    first, second = of_moments.moments(sums / sizes[:, None])
    noise = (fine_scale / sizes)[:, None, None] ** 2 * np.eye(d)
    squares = first[:, :, None] * first[:, None, :] - noise
    covariances = (second - squares) * (radii**2)[:, None, None]
    # Projected residuals lack spread, which the first release has measured.
    traces = np.trace(covariances, axis1=1, axis2=2)
    known = ball.radius**2 * (square - (square_of_mean - noise_of_mean).clip(0))
    gains = (known / traces.clip(1e-300)).clip(1, _LARGEST_GAIN)
    # The second release corrects the first means, but for the error of the sizes and for what the
    # projection takes off.
    missed = 1 - 1 / np.sqrt(gains)
    if counts is not None:
        missed = np.hypot(missed, coarse_scale / (coarse.count_weight * sizes))
    mean_spreads = np.hypot(
        fine_scale / sizes * radii, ball.radius * coarse_scale / sizes * missed.clip(0, 1)
    )
    return NoisyMoments(
        ball.project(means + radii[:, None] * first),
        covariances * gains[:, None, None],
        scale * radii**2 * gains,
        mean_spreads,
        counts,
    )


def _relative_radius(d, noise):
    """Return the radius for residuals relative to their root mean square.

    Parameters
    ----------
    d : int
    noise : ndarray
        Frobenius norm of the noise on second moments of residuals in the unit ball.

    Notes
    -----
    A larger radius has more noise, by its square, and fewer residuals outside. The sum of noise
    and bias is smallest if the share outside is proportional to the noise.
    """
    directions = min(d, _DIRECTIONS)
    outside = (3 * noise).clip(1e-300, 0.3)
    return np.sqrt(chi2.isf(outside, directions) / directions)


@dataclass(frozen=True)
class MomentPlan:
    """The plan of the two releases of moments by class.

    Parameters
    ----------
    mechanism : ClassSumMechanism
    sizes : ndarray of shape (n_classes,)
        Public sizes of the classes, or their public approximation.
    """

    mechanism: ClassSumMechanism
    sizes: np.ndarray

    def report(self, name: str, noise: str, **fields: Any) -> PrivacyReport:
        """Return the report of an estimator.

        Parameters
        ----------
        name : str
            Name of the estimator.
        noise : str
            Source of its noise.
        **fields
            Further fields of the report.

        Returns
        -------
        PrivacyReport
        """
        means, _ = self.mechanism.queries
        events = ["class_means", "class_sizes", "second_moments"]
        if not means.with_counts:
            events.remove("class_sizes")
        radius = cast(BallMeans, means.features).ball.radius
        epsilon = self.mechanism.epsilon
        n_values = sum(query.size for query in self.mechanism.queries)
        return PrivacyReport(
            name=name,
            events=tuple(map(Event, events)),
            epsilon=epsilon,
            delta=self.mechanism.delta if np.isfinite(epsilon) else 0.0,
            norm="l2",
            bounds=(Bound("ball_radius", radius), Bound("own_sensitivities")),
            split=dict(zip(("means", "second moments"), self.mechanism.shares, strict=True)),
            precision=self.precision(),
            rounding=n_values * ROUNDING if np.isfinite(epsilon) else 0.0,
            noise_source=noise,
            caveats=("earlier_embeddings", "floating_point"),
            **self.mechanism.report_fields(),
            **fields,
        )

    def precision(self) -> dict[str, str]:
        """Return the precision of the moments of the smallest class, in words."""
        (coarse, fine), smallest = self.mechanism.queries, float(self.sizes.min())
        if self.mechanism.noise_scales[0] == 0:
            return {"mean of a feature": "exact: there is no noise"}
        of_means, of_moments = cast(BallMeans, coarse.features), cast(BallMoments, fine.features)
        ball, smallest = of_means.ball, max(smallest, 1.0)
        of_class = " in the smallest class" if len(self.sizes) > 1 else ""
        # The noise of a mean is corrected by the second release, of the residuals about it.
        scales = np.array(self.mechanism.noise_scales) / smallest
        mean = ball.radius * min(scales)
        words = {
            "mean of a feature": (
                f"± {number_words(mean)}, that is {number_words(50 * mean / ball.radius)} percent "
                f"of the width of the domain{of_class}"
            ),
            "covariance of two features": (
                f"± {number_words(100 * scales[1] / (math.sqrt(2) * of_moments.weight))} "
                f"percent of the squared radius of the residuals{of_class}"
            ),
        }
        if coarse.with_counts:
            scale = self.mechanism.noise_scales[0] / coarse.count_weight
            words["records of a class"] = count_words([scale], coarse.n_samples)
        return words

    def measure(self, X: np.ndarray, codes: np.ndarray, noise: NoiseSource) -> NoisyMoments:
        """Release the moments, and return them as they are.

        Parameters
        ----------
        X : ndarray of shape (n_samples, d)
        codes : ndarray of int of shape (n_samples,)
        noise : NoiseSource

        Returns
        -------
        NoisyMoments
        """
        mechanism, run = self.mechanism, self.mechanism.run()

        def release(query, X, codes):
            return run.release(X, codes, noise)

        return release_moments(
            mechanism.queries, mechanism.noise_scales, release, X, codes, self.sizes
        )

    def release(
        self,
        X: np.ndarray,
        codes: np.ndarray,
        noise: NoiseSource,
        public: PublicMoments | None = None,
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Release the moments, and remove the effect of noise on covariances.

        Parameters
        ----------
        X : ndarray of shape (n_samples, d)
        codes : ndarray of int of shape (n_samples,)
        noise : NoiseSource
        public : PublicMoments or None, default=None
            Moments of public records, towards which the released ones are shrunk.

        Returns
        -------
        means : ndarray of shape (n_classes, d)
        covariances : ndarray of shape (n_classes, d, d)
            Positive definite.
        sizes : ndarray of shape (n_classes,)
            Sizes of the classes: noisy if they are released, otherwise the public ones.
        """
        moments = self.measure(X, codes, noise)
        means, prior = moments.means, None
        if public is not None:
            means = shrunk_means(means, moments.mean_spreads, public)
            # With classes, covariances of smaller squared error made worse training data for
            # classifiers, so labelled public records give none.
            prior = public.covariance if len(public.means) == 1 else None
        covariances = denoised_covariances(moments.covariances, moments.spreads, prior)
        sizes = self.sizes if moments.counts is None else moments.counts
        return means, covariances, sizes


def price_moments(
    ball: Ball,
    n_samples: int,
    n_classes: int,
    *,
    class_sizes: ArrayLike | None,
    label_proportions: ArrayLike | None,
    epsilon: float,
    delta: float,
    weight: float | str = "auto",
) -> MomentPlan:
    """Calibrate the release of moments by class, and warn if noise hides them.

    Parameters
    ----------
    ball : Ball
        Public; records outside are projected on it.
    n_samples : int
    n_classes : int
        1 without labels.
    class_sizes : array-like of shape (n_classes,) or None
        Public class sizes; None if labels are private.
    label_proportions : array-like of shape (n_classes,) or None
        Public shares of the classes; None releases the sizes if labels are private.
    epsilon, delta : float
        Budget of the fit.
    weight : float or "auto", default="auto"
        Weight of second moments relative to first ones; "auto" is :func:`automatic_weight`.

    Returns
    -------
    MomentPlan
    """
    d, labels = ball.n_features, "private" if class_sizes is None else "public"
    sizes = _public_sizes(n_samples, n_classes, class_sizes, label_proportions)
    # Memory for the sums, the noise, and about three matrices per class.
    check_fits(64 * n_classes * d * (d + 3) // 2, f"Moments of {d} columns")
    if weight == "auto":
        weight = automatic_weight(d, n_samples, n_classes, epsilon, delta)
    queries = moment_queries(
        ball,
        n_samples,
        n_classes,
        labels=labels,
        with_counts=labels == "private" and label_proportions is None,
        weight=float(weight),
    )
    mechanism = ClassSumMechanism(queries, MOMENT_SHARES, epsilon=epsilon, delta=delta)
    _warn_of_noise(mechanism, float(sizes.min()))
    return MomentPlan(mechanism, sizes)


def _public_sizes(n_samples, n_classes, class_sizes, label_proportions):
    """Return the public sizes of the classes, or their public approximation."""
    if class_sizes is not None:
        sizes = np.asarray(class_sizes, dtype=np.float64)
        if sizes.min() <= 0:
            raise PublicValueError("classes must each have a record if labels are public.")
        return sizes
    if label_proportions is None:
        return np.full(n_classes, n_samples / n_classes)
    # At least half a record, as noisy sizes are.
    return (n_samples * np.asarray(label_proportions, dtype=np.float64)).clip(0.5)


def _warn_of_noise(mechanism, smallest):
    """Warn if the noise on the mean of a class of public size exceeds its signal."""
    width = mechanism.queries[0].features.ball.n_features
    noise = mechanism.noise_scales[0] * np.sqrt(width) / smallest
    if noise > 1:
        warn_user(
            f"The noise on the mean of a class is {noise:.2g} times the radius of the domain, so "
            f"the mean has almost no information. Here epsilon={mechanism.epsilon:g}, {width} "
            f"columns and {smallest:.0f} records in the smallest class. Use a larger epsilon, "
            "fewer columns or more records.",
            UserWarning,
        )
