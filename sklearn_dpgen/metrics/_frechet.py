"""The Fréchet distance, as in FID."""

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from sklearn_dpgen.metrics._transport import check_point_clouds

__all__ = ["frechet_distance"]


def frechet_distance(
    X: Any, Y: Any, *, feature_extractor: Callable[[Any], ArrayLike] | None = None
) -> float:
    r"""Fréchet distance between Gaussians fitted to two samples, the formula of FID.

    .. math::
        \|m_X - m_Y\|^2 + \operatorname{tr}\bigl(C_X + C_Y - 2 (C_X C_Y)^{1/2}\bigr)

    with the means and the unbiased covariances of the features. Following the FID literature
    this is the *square* of the 2-Wasserstein distance between the two Gaussians. With Inception
    features it is FID itself.

    Parameters
    ----------
    X : array-like of shape (n, d), or whatever ``feature_extractor`` takes
    Y : array-like of shape (m, d), or whatever ``feature_extractor`` takes
    feature_extractor : callable or None, default=None
        Maps X, and then Y, to an array of features of shape (n, d). None takes X and Y as
        the features.

    Returns
    -------
    float
        At least 0.

    Notes
    -----
    With centred features A (n, d), so that C = AᵀA / (n - 1), the trace of the square root is
    the nuclear norm of A_X A_Yᵀ, up to the scales. It needs no square root of a matrix that may
    be singular or not symmetric, loses no digits to squaring, and is real by construction. The
    triangular factors of the A stand in for them.

    References
    ----------
    Heusel et al. (2017). GANs trained by a two time-scale update rule converge to a local Nash
    equilibrium, eq. (6). Dowson and Landau (1982) for Gaussians.
    """
    if feature_extractor is not None:
        X, Y = feature_extractor(X), feature_extractor(Y)
    X, Y = check_point_clouds(X, Y, min_samples=2)
    shift = X.mean(axis=0) - Y.mean(axis=0)
    factor_X, factor_Y = _covariance_factor(X), _covariance_factor(Y)
    spread = (
        np.sum(factor_X**2)
        + np.sum(factor_Y**2)
        - 2 * np.linalg.norm(factor_X @ factor_Y.T, ord="nuc")
    )
    return float(shift @ shift + max(spread, 0.0))


def _covariance_factor(X):
    """Return R with RᵀR the unbiased covariance of X, in at most d rows."""
    return np.linalg.qr(X - X.mean(axis=0), mode="r") / np.sqrt(len(X) - 1)
