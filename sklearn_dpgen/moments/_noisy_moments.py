"""Two releases of class-wise moments: means and spreads, then second moments about the means."""

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
    counts : ndarray of shape (n_classes,) or None
        Noisy class sizes, at least one half; None if they are public.
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
        From :func:`moment_queries`.
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
    return NoisyMoments(
        ball.project(means + radii[:, None] * first),
        covariances * gains[:, None, None],
        scale * radii**2 * gains,
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
