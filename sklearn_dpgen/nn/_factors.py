"""Factors that clip vectors and Jacobians."""

import torch

from sklearn_dpgen.utils._validation import check_positive

__all__ = ["norm_clip_factors", "spectral_clip_factors"]

# Below it, a product with a weight of at most 1 may leave the normal numbers of float32, whose
# rounding could exceed the bound.
_SMALLEST = torch.finfo(torch.float32).tiny / torch.finfo(torch.float32).eps


def spectral_clip_factors(gram: torch.Tensor, bound: float) -> torch.Tensor:
    """Return the factors that clip Jacobians to a spectral norm.

    Parameters
    ----------
    gram : Tensor of shape (n, d, d)
        J_i J_i^T of each Jacobian.
    bound : float
        Largest spectral norm.

    Returns
    -------
    Tensor of shape (n,)
        min(1, bound / ||J_i||_2) in float64; 0 where the Gram matrix is not finite.
    """
    return norm_clip_factors(_largest_eigenvalues(gram.double()), bound)


def norm_clip_factors(squared_norms: torch.Tensor, bound: float) -> torch.Tensor:
    """Return the factors that clip vectors to an l2 norm.

    Parameters
    ----------
    squared_norms : Tensor
        Squared l2 norm of each vector.
    bound : float
        Largest l2 norm.

    Returns
    -------
    Tensor of the same shape
        min(1, bound / norm) in float64; 0 where the norm is not finite.
    """
    bound = check_positive(bound, "bound")
    # A rounded eigenvalue may lie below zero.
    factors = (bound / squared_norms.double().clamp_min(0).sqrt()).clamp_max(1)
    return torch.where(factors >= _SMALLEST, factors, 0)


def _largest_eigenvalues(gram):
    """Return the largest eigenvalue of each matrix, not finite where the matrix is not."""
    d = gram.shape[1]
    if d == 1:
        return gram[:, 0, 0]
    if d == 2:
        a, b, c = gram[:, 0, 0], gram[:, 1, 0], gram[:, 1, 1]
        return (a + c) / 2 + torch.hypot((a - c) / 2, b)
    finite = gram.flatten(1).isfinite().all(1)
    largest = torch.linalg.eigvalsh(torch.where(finite[:, None, None], gram, 0))[:, -1]
    return torch.where(finite, largest, torch.inf)
