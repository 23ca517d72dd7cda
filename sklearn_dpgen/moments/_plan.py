"""The plan of class-wise moments: what is released, what it costs, and the laws that follow."""

import pickle
import warnings
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from sklearn_dpgen.accounting import PrivacyReport
from sklearn_dpgen.accounting._report import FLOATING_POINT
from sklearn_dpgen.domains import Ball
from sklearn_dpgen.mechanisms import ClassSumMechanism
from sklearn_dpgen.moments._noisy_moments import (
    MOMENT_SHARES,
    automatic_weight,
    moment_queries,
    release_moments,
)
from sklearn_dpgen.moments._normal_laws import denoised_covariances
from sklearn_dpgen.utils._random import NoiseSource, noise_source
from sklearn_dpgen.utils._validation import check_fits

__all__ = ["MomentPlan", "plan_moments"]

_CAVEATS = (
    "Whatever was fitted on the same records before, such as a scaler or an embedding, is not paid "
    "for here.",
    FLOATING_POINT,
)


@dataclass(frozen=True)
class MomentPlan:
    """Two releases of class-wise moments, to be made once.

    Parameters
    ----------
    mechanism : ClassSumMechanism
    sizes : ndarray of shape (n_classes,)
        What is publicly known of the sizes of the classes.
    """

    mechanism: ClassSumMechanism
    sizes: np.ndarray

    def noises(
        self, seed: int | None, name: str, X: np.ndarray, codes: np.ndarray
    ) -> list[NoiseSource]:
        """Return a source of noise for each release; a seeded one is for that release alone.

        Parameters
        ----------
        seed : int or None
            None for the operating system's entropy.
        name : str
            Of the estimator.
        X, codes : ndarray
            As of :meth:`release`.

        Returns
        -------
        list of two NoiseSource
        """
        context = [name, pickle.dumps(self.mechanism), self.sizes, np.ascontiguousarray(X), codes]
        return [noise_source(seed, context=[*context, str(part)]) for part in range(2)]

    def report(
        self, name: str, noise: NoiseSource, *, neighbouring: str, public: Sequence[str]
    ) -> PrivacyReport:
        """Return the report of an estimator.

        Parameters
        ----------
        name : str
            Of the estimator.
        noise : NoiseSource
            Of the releases.
        neighbouring : str
            The relation.
        public : sequence of str
            What the guarantee takes as public.

        Returns
        -------
        PrivacyReport
        """
        means, _ = self.mechanism.queries
        counts = ", with the class sizes" if means.with_counts else ""
        epsilon = self.mechanism.epsilon
        return PrivacyReport(
            mechanism=f"{name}: means by class{counts}, then second moments about them",
            epsilon=epsilon,
            delta=self.mechanism.delta if np.isfinite(epsilon) else 0.0,
            neighbouring=neighbouring,
            public=tuple(public),
            sensitivity_source=(
                "l2; each release over its own sensitivity, of records in a ball of radius "
                f"{means.features.ball.radius:g}"
            ),
            noise_source=noise.description,
            caveats=_CAVEATS,
            **self.mechanism.report_fields(),
        )

    def release(
        self, X: np.ndarray, codes: np.ndarray, noises: Sequence[NoiseSource]
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Make the releases, and take off covariances what is noise.

        Parameters
        ----------
        X : ndarray of shape (n_samples, d)
        codes : ndarray of int of shape (n_samples,)
        noises : list of two NoiseSource

        Returns
        -------
        means : ndarray of shape (n_classes, d)
        covariances : ndarray of shape (n_classes, d, d)
            Positive definite.
        sizes : ndarray of shape (n_classes,)
            Of the classes: noisy where they are released, else what is publicly known.
        """
        run, sources = self.mechanism.run(), iter(noises)

        def release(query, X, codes):
            return run.release(X, codes, next(sources))

        mechanism = self.mechanism
        moments = release_moments(
            mechanism.queries, mechanism.noise_scales, release, X, codes, self.sizes
        )
        covariances = denoised_covariances(moments.covariances, moments.spreads)
        sizes = self.sizes if moments.counts is None else moments.counts
        return moments.means, covariances, sizes


def plan_moments(
    ball: Ball,
    codes: np.ndarray,
    n_classes: int,
    *,
    labels: str,
    label_proportions: ArrayLike | None,
    epsilon: float,
    delta: float,
    weight: float | str = "auto",
) -> MomentPlan:
    """Price moments by class, and warn where their noise hides them.

    Parameters
    ----------
    ball : Ball
        Public. Records outside are moved to it.
    codes : ndarray of int of shape (n_samples,)
        Their number is read, and with public labels the sizes of the classes.
    n_classes : int
        1 without labels, which are public then.
    labels : {"public", "private"}
    label_proportions : array-like of shape (n_classes,) or None
        Public ones; without them private class sizes are released.
    epsilon, delta : float
        The whole budget.
    weight : float or "auto", default="auto"
        Of second moments beside first ones. "auto" is that of :class:`MomentSampler`.

    Returns
    -------
    MomentPlan
    """
    d = ball.n_features
    sizes = _public_sizes(codes, n_classes, labels, label_proportions)
    # Sums, noise, and some three matrices a class.
    check_fits(64 * n_classes * d * (d + 3) // 2, f"Moments of {d} columns")
    if weight == "auto":
        weight = automatic_weight(d, len(codes), n_classes, epsilon, delta)
    queries = moment_queries(
        ball,
        len(codes),
        n_classes,
        labels=labels,
        with_counts=labels == "private" and label_proportions is None,
        weight=weight,
    )
    mechanism = ClassSumMechanism(queries, MOMENT_SHARES, epsilon=epsilon, delta=delta)
    _warn_of_noise(mechanism, float(sizes.min()))
    return MomentPlan(mechanism, sizes)


def _public_sizes(codes, n_classes, labels, label_proportions):
    """Return what is publicly known of the number of records of each class."""
    if labels == "public":
        sizes = np.bincount(codes, minlength=n_classes).astype(np.float64)
        if sizes.min() == 0:
            raise ValueError("With public labels every class of classes needs a record.")
        return sizes
    if label_proportions is None:
        return np.full(n_classes, len(codes) / n_classes)
    # As noisy sizes are, kept at half a record.
    return (len(codes) * np.asarray(label_proportions, dtype=np.float64)).clip(0.5)


def _warn_of_noise(mechanism, smallest):
    """Warn where the mean of a class of public size would be noise alone."""
    width = mechanism.queries[0].features.ball.n_features
    noise = mechanism.noise_scales[0] * np.sqrt(width) / smallest
    if noise > 1:
        warnings.warn(
            f"The noise on the mean of a class is {noise:.2g} times the radius of the domain: it "
            f"says little about the records. Here epsilon={mechanism.epsilon:g}, {width} columns "
            f"and {smallest:.0f} records in the smallest class; a larger epsilon, fewer columns "
            "or more records would help.",
            UserWarning,
            stacklevel=6,
        )
