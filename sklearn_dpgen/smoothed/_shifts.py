"""What a released mean says of the shift: other shares of the classes, or other records.

Everything here is post-processing of a release, or reads public records alone.
"""

import math
from dataclasses import dataclass

import numpy as np
from scipy.optimize import nnls

__all__ = ["Shift", "explain"]

# Share of the variance of a column that is added to it, so that no column counts for too much.
_RIDGE = 0.05
# A residual is that of other shares of classes if it is within that many standard deviations of
# sampling and noise, or below the smallest squared distance that matters.
_DEVIATIONS = 3.0
_NEGLIGIBLE = 0.02
# From this squared distance on the target lies elsewhere than the source, and a map pays off.
_ELSEWHERE = 1.0
# Shares within the root of this number of standard deviations of those of the source are the same.
_CAUTION = 4.0
# Least estimated share of a class, in units of its share of the source.
_LEAST_SHARE = 0.05
# Weight of the rule that shares add up to 1.
_HEAVY = 1e4


@dataclass(frozen=True)
class Shift:
    """The shift from a public source to a target of which a mean was released.

    Parameters
    ----------
    kind : {"labels", "map", "none"}
        "labels" if other shares of the classes explain the released mean, "map" if it is far from
        what they explain, "none" between.
    shares : ndarray of shape (n_classes,)
        Shares of the classes in the target, if they explain the mean, otherwise in the source.
    residual : float
        Squared distance of the released mean to the nearest one of other shares, less what is
        expected of sampling and noise, in units of the variances within classes.
    """

    kind: str
    shares: np.ndarray
    residual: float


def explain(records, labels, n_classes, mean, spread, n_samples):
    """Explain a released mean by the source.

    Parameters
    ----------
    records : ndarray of shape (m, d)
        Records of the source, as those of the target were released.
    labels : ndarray of int of shape (m,)
        Each class has a record.
    n_classes : int
    mean : ndarray of shape (d,)
        Released mean of the target.
    spread : float
        Standard deviation of the noise on its entries.
    n_samples : int
        Number of records of the target.

    Returns
    -------
    Shift

    Notes
    -----
    If only the shares w of the classes differ, the mean of any function of a record is that of the
    source with these shares: the released mean is M w, M the means of the classes, but for
    sampling and noise. So w minimizes the squared distance of M w to the released mean, in the
    metric of the covariance within classes and of the noise. By the number of record pairs that
    they stand for, the squared residual is about chi-squared, of d degrees of freedom at most.
    Shares are shrunk to those of the source in proportion to their own error.

    The covariance is that of the records themselves, and fits them too well where there are few for
    many columns. What a record that it was not computed from would have takes the place of
    Hotelling's factor, as columns have a ridge, and need not be normal.
    """
    d, prior = records.shape[1], np.bincount(labels, minlength=n_classes) / len(labels)
    means = np.stack([records[labels == code].mean(axis=0) for code in range(n_classes)])
    within = records - means[labels]
    pairs = 1 / (1 / n_samples + 1 / len(records))
    noise = pairs * spread**2
    covariance = within.T @ within / len(records) + noise * np.eye(d)
    covariance += _RIDGE * np.diag(records.var(axis=0))
    values, vectors = np.linalg.eigh(covariance)
    # Directions without variance, and without noise, are not looked at.
    seen = values > 1e-9 * max(values[-1], np.finfo(np.float64).tiny)
    root = vectors[:, seen] / np.sqrt(values[seen])
    factor = _optimism(within @ root, noise * (root**2).sum(), n_classes)
    root /= math.sqrt(factor)
    target, own = mean @ root, means @ root
    shares = nnls(
        np.vstack([own.T, np.full(n_classes, _HEAVY)]), np.append(target, _HEAVY), maxiter=10_000
    )[0]
    shares /= shares.sum()
    whole, left = (float(((target - w @ own) ** 2).sum()) for w in (prior, shares))
    residual = left - seen.sum() / pairs
    tolerance = max(_DEVIATIONS * math.sqrt(2 * factor * seen.sum()) / pairs, _NEGLIGIBLE)
    if residual > tolerance:
        return Shift("map" if residual > _ELSEWHERE else "none", prior, residual)
    gain = pairs * max(0.0, whole - left)
    least = _CAUTION * (n_classes - 1)
    kept = 1 - least / gain if gain > least else 0.0
    shares = np.maximum(prior + kept * (shares - prior), _LEAST_SHARE * prior)
    return Shift("labels", shares / shares.sum(), residual)


def _optimism(whitened, of_noise, n_classes):
    """Return by how much the squared norm of a new record exceeds the number of columns, or 1.

    Parameters
    ----------
    whitened : ndarray of shape (m, d)
        Records less the means of their classes, in the metric of their own covariance.
    of_noise : float
        Expected squared norm of the noise in this metric, which is known and not estimated.
    n_classes : int

    Returns
    -------
    float
    """
    m, d = whitened.shape
    lengths = (whitened**2).sum(axis=1)
    # Sherman and Morrison: the length in the covariance of all other records.
    left_out = lengths / np.maximum(1 - lengths / m, 1e-3)
    free = m / max(1, m - n_classes)
    return max(1.0, (free * left_out.mean() + of_noise) / max(1, d))
