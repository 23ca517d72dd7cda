"""Clipped sums of per-sample Jacobians: gradients of known sensitivity."""

import math

import torch

from sklearn_dpgen.nn._jacobian import linearize
from sklearn_dpgen.utils._validation import check_positive

__all__ = ["ClippedJacobianSum", "clip_weights", "norm_clip_factors", "spectral_clip_factors"]

# Below it, a product with a weight of at most 1 may leave the normal numbers of float32, whose
# rounding could exceed the bound.
_SMALLEST = torch.finfo(torch.float32).tiny / torch.finfo(torch.float32).eps

# Samples at a time: enough for efficient products, few enough for the cache.
_BLOCK = 1024


def spectral_clip_factors(gram, bound):
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


def norm_clip_factors(squared_norms, bound):
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


def clip_weights(gram, W, bound, *, clipping="spectral"):
    """Return weights that clip the Jacobians they are applied to.

    Parameters
    ----------
    gram : Tensor of shape (n, d, d)
        J_i J_i^T of each Jacobian.
    W : Tensor of shape (n, d)
        Weights.
    bound : float
        Largest spectral norm of a clipped Jacobian.
    clipping : {"spectral", "componentwise"}, default="spectral"
        Whether a Jacobian is scaled by its spectral norm, or each of its rows (the gradient of an
        output) is clipped to bound / sqrt(d): Remark A.2 of the paper on private sliced
        Wasserstein gradients, which may clip up to sqrt(d) times more than needed.

    Returns
    -------
    Tensor of shape (n, d)
        W' with sum_i J_i^T W'_i = sum_i clip(J_i)^T W_i. Zero in the rows where W or the Gram
        matrix is not finite.
    """
    bound = check_positive(bound, "bound")
    if W.shape != gram.shape[:2]:
        raise ValueError(
            f"The weights must have the shape {tuple(gram.shape[:2])} of the module's outputs, got "
            f"{tuple(W.shape)}."
        )
    if clipping == "spectral":
        factors = spectral_clip_factors(gram, bound)[:, None]
    elif clipping == "componentwise":
        diagonal = gram.diagonal(dim1=1, dim2=2)
        factors = norm_clip_factors(diagonal, bound / math.sqrt(gram.shape[1]))
    else:
        raise ValueError(f"clipping must be 'spectral' or 'componentwise', got {clipping!r}.")
    finite = gram.flatten(1).isfinite().all(1) & W.isfinite().all(1)
    return torch.where(finite[:, None], (factors * W).to(W.dtype), 0)


class ClippedJacobianSum:
    """A weighted sum of clipped per-sample Jacobians that knows its sensitivity.

    It maps samples x_i and weights w_i to sum_i clip(J_i)^T w_i, J_i being the Jacobian of
    module(x_i) in the parameters, and clip scaling it to spectral norm at most ``bound``. A sample
    whose features, Jacobian or weight are not finite contributes zero.

    Parameters
    ----------
    module : torch.nn.Module
        See :func:`linearize`.
    bound : float
        Largest spectral norm of a Jacobian, declared without looking at the samples.
    clipping : {"spectral", "componentwise"}, default="spectral"
        See :func:`clip_weights`.
    chunk_size : int, default=256
        See :func:`linearize`.
    """

    def __init__(self, module, bound, *, clipping="spectral", chunk_size=256):
        self.module = module
        self.bound = check_positive(bound, "bound")
        self.clipping = clipping
        self.chunk_size = chunk_size

    def __call__(self, X, weights):
        """Return the clipped sum.

        Parameters
        ----------
        X : Tensor of shape (n, ...)
            Samples.
        weights : Tensor of shape (n, d)
            A weight for each output of each sample; a row that is not finite counts as zero.

        Returns
        -------
        list of Tensor
            One for each parameter that requires grad, in the order of ``module.parameters()``.
        """
        total = None
        for block in zip(X.split(_BLOCK), weights.split(_BLOCK), strict=True):
            part = self._block_sum(*block)
            total = part if total is None else [a + b for a, b in zip(total, part, strict=True)]
        return total

    def _block_sum(self, X, weights):
        jacobians = linearize(self.module, X, chunk_size=self.chunk_size)
        clipped = clip_weights(jacobians.gram(), weights, self.bound, clipping=self.clipping)
        return jacobians.weighted_sum(clipped)

    def sensitivity(self, weight_bound):
        """Return the l2 sensitivity of the sum for given weights of the other samples.

        Two inputs are neighbours if they have the same number of samples and differ in one: in its
        features and in its own weight. The weights of all others are the same in both; where they
        depend on the replaced sample, that dependence has to be added.

        Parameters
        ----------
        weight_bound : float
            Largest l2 norm of a sample's weight, which the caller ensures.

        Returns
        -------
        float
            2 * bound * weight_bound, attained by opposite Jacobians of full norm.
        """
        return 2 * self.bound * check_positive(weight_bound, "weight_bound")
