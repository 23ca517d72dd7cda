"""The cheapest deconvolution: the mean and the covariance of privatized records, less the noise."""

import numpy as np

__all__ = ["moment_deconvolution"]


def moment_deconvolution(mechanism, Y, n_samples, seed):
    """Draw from the normal law of these moments, projected on the domain.

    Parameters
    ----------
    mechanism : LaplaceMechanism or GaussianMechanism
        Fitted.
    Y : ndarray of shape (n, d)
        Privatized records.
    n_samples : int
    seed : int

    Returns
    -------
    ndarray of shape (n_samples, d)
    """
    variance = mechanism.scale_**2 * (2 if mechanism.cost_norm == 1 else 1)
    covariance = np.cov(Y, rowvar=False) - variance * np.eye(Y.shape[1])
    values, vectors = np.linalg.eigh(covariance)
    root = vectors * np.sqrt(values.clip(0))
    normal = np.random.default_rng(seed).normal(size=(n_samples, Y.shape[1]))
    return mechanism.domain_.project(np.mean(Y, axis=0) + normal @ root.T)
