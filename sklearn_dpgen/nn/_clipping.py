"""Clipped sums of per-sample Jacobians: gradients of known sensitivity."""

import math

import torch

from sklearn_dpgen.nn._factors import norm_clip_factors, spectral_clip_factors
from sklearn_dpgen.nn._jacobian import linearize
from sklearn_dpgen.utils._validation import check_positive

__all__ = ["ClippedJacobianSum", "clip_weights"]

# Samples at a time: enough for efficient products, few enough for the cache.
_BLOCK = 1024


def clip_weights(
    gram: torch.Tensor, W: torch.Tensor, bound: float, *, clipping: str = "spectral"
) -> torch.Tensor:
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

    def __init__(
        self,
        module: torch.nn.Module,
        bound: float,
        *,
        clipping: str = "spectral",
        chunk_size: int = 256,
    ) -> None:
        self.module = module
        self.bound = check_positive(bound, "bound")
        self.clipping = clipping
        self.chunk_size = chunk_size

    def __call__(self, X: torch.Tensor, weights: torch.Tensor) -> list[torch.Tensor]:
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
        first, *others = zip(X.split(_BLOCK), weights.split(_BLOCK), strict=True)
        total = self._block_sum(*first)
        for block in others:
            part = self._block_sum(*block)
            total = [a + b for a, b in zip(total, part, strict=True)]
        return total

    def _block_sum(self, X, weights):
        jacobians = linearize(self.module, X, chunk_size=self.chunk_size)
        clipped = clip_weights(jacobians.gram(), weights, self.bound, clipping=self.clipping)
        return jacobians.weighted_sum(clipped)

    def sensitivity(self, weight_bound: float) -> float:
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
