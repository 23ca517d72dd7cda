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
from sklearn_dpgen.mechanisms._bounded_features import BallMeans, BallMoments
from sklearn_dpgen.mechanisms._class_sums import ClassSumMechanism, ClassSums
from sklearn_dpgen.utils._normal_laws import denoised_covariances
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

# Of the budget for the means: what they are wrong by is made up for by the second release.
MOMENT_SHARES = (0.1, 0.9)
# Of second moments beside first ones, where they are worth it.
_WEIGHT = 2.0
# Of the residuals of a class, over the radius of all records.
_LEAST, _LARGEST = 0.1, 2.0
# Of a covariance, for residuals that were cut.
_LARGEST_GAIN = 2.0
# Directions to share the variance of a class, at most, when it is said how rare long residuals are.
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
        Standard deviation of the noise on an entry of a covariance off the diagonal; √2 times
        that on it.
    counts : ndarray of shape (n_classes,) or None
        Noisy class sizes, at least one half; None where they are public.
    """

    means: np.ndarray
    covariances: np.ndarray
    spreads: np.ndarray
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
    """Return the feature maps that the two releases sum over each class.

    Parameters
    ----------
    ball : Ball
        In which records lie; those outside are moved to it.
    n_samples, n_classes : int
    labels : {"public", "private"}
    with_counts : bool
        As of :class:`~sklearn_dpgen.mechanisms.ClassSums`.
    weight : float, default=2.0
        Of second moments beside first ones.

    Returns
    -------
    tuple of two ClassSums
        To be paid for in the ratio of ``MOMENT_SHARES``.
    """
    residuals = BallMoments(Ball(1.0, n_features=ball.n_features), weight)
    return (
        ClassSums(BallMeans(ball), n_samples, n_classes, labels=labels, with_counts=with_counts),
        ClassSums(residuals, n_samples, n_classes, labels=labels),
    )


def automatic_weight(d: int, n_samples: int, n_classes: int, epsilon: float, delta: float) -> float:
    """Return the weight of second moments, from public quantities.

    Up to √½ they are free, as the sensitivity of first moments alone is as large. More than that
    pays off where covariances of classes stand out from their noise.

    Parameters
    ----------
    d, n_samples, n_classes : int
    epsilon, delta : float

    Returns
    -------
    float
        2.0; or √½ where the noise on the covariance of a class of mean size is larger than a
        quarter of its trace, in Frobenius norm.
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
    """Make the two releases of moments.

    The first one gives means, mean squares and counts. They tell how far records of a class
    are from its mean. The second one is of the residuals, in a ball that leaves out few of them
    where there is little noise: it costs noise to take in long residuals, and bias to cut them.

    Parameters
    ----------
    queries : tuple of two ClassSums
        From ``moment_queries``.
    scales : tuple of two float
        Standard deviation of the noise on the sums.
    release : callable
        ``release(query, X, codes)`` gives noisy sums and counts, and spends what was paid for.
    X : ndarray of shape (n, d)
    codes : ndarray of int of shape (n,)
    sizes : ndarray of shape (n_classes,)
        Public class sizes; not read where noisy ones are released.

    Returns
    -------
    NoisyMoments
    """
    (coarse, fine), (coarse_scale, fine_scale) = queries, scales
    of_means, of_moments = cast(BallMeans, coarse.features), cast(BallMoments, fine.features)
    ball = of_means.ball
    sums, counts = release(coarse, X, codes)
    if counts is not None:
        # A class that noise takes below half a record is kept at that.
        counts = sizes = counts.clip(0.5)
    first, square = of_means.moments(sums / sizes[:, None])
    d = first.shape[1]
    # Where they are noise, means are none (James and Stein), and residuals the records themselves.
    square_of_mean, noise_of_mean = (first**2).sum(axis=1), d * (coarse_scale / sizes) ** 2
    kept = (1 - noise_of_mean / square_of_mean.clip(1e-300)).clip(0)
    first *= kept[:, None]
    # The mean square of residuals about a mean that is wrong by what noise is left in it.
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
    # Residuals that were cut lack spread, and how much of it there is was released before.
    traces = np.trace(covariances, axis1=1, axis2=2)
    known = ball.radius**2 * (square - (square_of_mean - noise_of_mean).clip(0))
    gains = (known / traces.clip(1e-300)).clip(1, _LARGEST_GAIN)
    return NoisyMoments(
        ball.project(means + radii[:, None] * first),
        covariances * gains[:, None, None],
        scale * radii**2 * gains,
        counts,
    )


def _relative_radius(d, noise):
    """Return the radius for residuals, over the root of their mean square.

    Parameters
    ----------
    d : int
    noise : ndarray
        Frobenius norm of the noise on second moments of residuals in the unit ball.

    Notes
    -----
    With the radius grow the noise, as its square, and the share of residuals in the ball. At the
    least sum of noise and bias the share outside is in proportion to the noise.
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
        What is publicly known of the sizes of the classes.
    """

    mechanism: ClassSumMechanism
    sizes: np.ndarray

    def report(self, name: str, noise: str, **fields: Any) -> PrivacyReport:
        """Return the report of an estimator.

        Parameters
        ----------
        name : str
            Of the estimator.
        noise : str
            Where its noise comes from.
        **fields
            Fields of the report that the plan does not determine.

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
        """Return in words how precise the moments of the smallest class are."""
        (coarse, fine), smallest = self.mechanism.queries, float(self.sizes.min())
        if self.mechanism.noise_scales[0] == 0:
            return {"mean of a feature": "exact: there is no noise"}
        of_means, of_moments = cast(BallMeans, coarse.features), cast(BallMoments, fine.features)
        ball, smallest = of_means.ball, max(smallest, 1.0)
        of_class = " in the smallest class" if len(self.sizes) > 1 else ""
        # The residuals about a mean are released once more, and make up for its noise.
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

    def release(
        self, X: np.ndarray, codes: np.ndarray, noise: NoiseSource
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Make the releases, and take off covariances what is noise.

        Parameters
        ----------
        X : ndarray of shape (n_samples, d)
        codes : ndarray of int of shape (n_samples,)
        noise : NoiseSource

        Returns
        -------
        means : ndarray of shape (n_classes, d)
        covariances : ndarray of shape (n_classes, d, d)
            Positive definite.
        sizes : ndarray of shape (n_classes,)
            Of the classes: noisy where they are released, else what is publicly known.
        """
        run = self.mechanism.run()

        def release(query, X, codes):
            return run.release(X, codes, noise)

        mechanism = self.mechanism
        moments = release_moments(
            mechanism.queries, mechanism.noise_scales, release, X, codes, self.sizes
        )
        covariances = denoised_covariances(moments.covariances, moments.spreads)
        sizes = self.sizes if moments.counts is None else moments.counts
        return moments.means, covariances, sizes


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
    """Price moments by class from public numbers, and warn where their noise hides them.

    Parameters
    ----------
    ball : Ball
        Public. Records outside are moved to it.
    n_samples : int
    n_classes : int
        1 without labels, which are public then.
    class_sizes : array-like of shape (n_classes,) or None
        With public labels. None are private ones.
    label_proportions : array-like of shape (n_classes,) or None
        Public ones; without them private class sizes are released.
    epsilon, delta : float
        The whole budget.
    weight : float or "auto", default="auto"
        Of second moments beside first ones. "auto" is :func:`automatic_weight`.

    Returns
    -------
    MomentPlan
    """
    d, labels = ball.n_features, "private" if class_sizes is None else "public"
    sizes = _public_sizes(n_samples, n_classes, class_sizes, label_proportions)
    # Sums, noise, and some three matrices a class.
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
    """Return what is publicly known of the number of records of each class."""
    if class_sizes is not None:
        sizes = np.asarray(class_sizes, dtype=np.float64)
        if sizes.min() <= 0:
            raise PublicValueError("With public labels every class of classes needs a record.")
        return sizes
    if label_proportions is None:
        return np.full(n_classes, n_samples / n_classes)
    # As noisy sizes are, kept at half a record.
    return (n_samples * np.asarray(label_proportions, dtype=np.float64)).clip(0.5)


def _warn_of_noise(mechanism, smallest):
    """Warn where the mean of a class of public size would be noise alone."""
    width = mechanism.queries[0].features.ball.n_features
    noise = mechanism.noise_scales[0] * np.sqrt(width) / smallest
    if noise > 1:
        warn_user(
            f"The noise on the mean of a class is {noise:.2g} times the radius of the domain: it "
            f"says little about the records. Here epsilon={mechanism.epsilon:g}, {width} columns "
            f"and {smallest:.0f} records in the smallest class; a larger epsilon, fewer columns "
            "or more records would help.",
            UserWarning,
        )
