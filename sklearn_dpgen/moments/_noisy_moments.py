"""Two releases of class-wise moments: means and spreads, then second moments about those means."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import cast

import numpy as np
from scipy.stats import chi2

from sklearn_dpgen.accounting import calibrate_noise_multiplier
from sklearn_dpgen.domains import Ball
from sklearn_dpgen.mechanisms import BallMeans, BallMoments, ClassSums

__all__ = ["MOMENT_SHARES", "NoisyMoments", "automatic_weight", "moment_queries", "release_moments"]

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
        From :func:`moment_queries`.
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
