"""The plan of class-wise moments: releases, cost and precision."""

import math
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
from numpy.typing import ArrayLike

from sklearn_dpgen.accounting import Bound, Event, PrivacyReport
from sklearn_dpgen.accounting._wording import count_words, number_words
from sklearn_dpgen.domains import Ball
from sklearn_dpgen.exceptions import PublicValueError
from sklearn_dpgen.mechanisms import BallMeans, BallMoments, ClassSumMechanism
from sklearn_dpgen.moments._noisy_moments import (
    MOMENT_SHARES,
    automatic_weight,
    moment_queries,
    release_moments,
)
from sklearn_dpgen.moments._normal_laws import denoised_covariances
from sklearn_dpgen.utils._random import ROUNDING, NoiseSource
from sklearn_dpgen.utils._validation import check_fits, warn_user

__all__ = ["MomentPlan", "price_moments"]


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

    def release(
        self, X: np.ndarray, codes: np.ndarray, noise: NoiseSource
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Release the moments, and remove the effect of noise on covariances.

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
            Sizes of the classes: noisy if they are released, otherwise the public ones.
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
        Weight of second moments relative to first ones; "auto" as in :class:`MomentSampler`.

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
