"""The map that takes one normal law to another: optimal transport in closed form."""

import numpy as np

__all__ = ["normal_map"]

# Of the mean variance of the source, added to both covariances: directions without any have no map.
_RIDGE = 0.02


def normal_map(source, target):
    """Return the linear part of the optimal map between normal laws.

    Parameters
    ----------
    source, target : ndarray of shape (d, d)
        Covariances, positive semidefinite.

    Returns
    -------
    ndarray of shape (d, d)
        Symmetric, T with T source T = target, both with a little of the identity added.

    References
    ----------
    G. Peyré, M. Cuturi, "Computational optimal transport", 2019, Remark 2.31.
    """
    ridge = _RIDGE * max(np.trace(source) / len(source), np.finfo(np.float64).tiny)
    source, target = (C + ridge * np.eye(len(C)) for C in (source, target))
    values, vectors = np.linalg.eigh(source)
    root, inverse = ((vectors * values**power) @ vectors.T for power in (0.5, -0.5))
    values, vectors = np.linalg.eigh(root @ target @ root)
    return inverse @ (vectors * np.sqrt(values.clip(0))) @ vectors.T @ inverse
