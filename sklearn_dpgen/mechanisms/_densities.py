"""Log-densities of the mechanisms as (n_x, n_y) matrices, differentiable in the first argument."""

import math

__all__ = [
    "discrete_log_likelihood",
    "gaussian_log_likelihood",
    "laplace_log_likelihood",
    "log_weight",
    "noise_variance",
]


def noise_variance(scale, kind):
    """Return the variance of "laplace" or "gaussian" noise of a scale."""
    return (2 if kind == "laplace" else 1) * scale**2


def laplace_log_likelihood(X, Y, scale):
    """Sum over features of log Laplace(y - x; scale).

    Parameters
    ----------
    X : tensor of shape (n_x, n_features)
    Y : tensor of shape (n_y, n_features)
    scale : tensor, scalar or of shape (n_features,)

    Returns
    -------
    tensor of shape (n_x, n_y)
    """
    import torch

    log_constant = torch.log(2 * scale).expand(X.shape[1]).sum()
    X, Y = _standardized(X, Y, scale)
    return -torch.cdist(X, Y, p=1) - log_constant


def gaussian_log_likelihood(X, Y, scale):
    """Sum over features of log N(y - x; 0, scale²); the shapes are those of the Laplace one."""
    import torch

    log_constant = (torch.log(scale) + 0.5 * math.log(2 * math.pi)).expand(X.shape[1]).sum()
    X, Y = _standardized(X, Y, scale)
    # -|x-y|²/2 as one product of augmented vectors: a single pass over the matrix.
    left = torch.cat([X, -0.5 * X.square().sum(1, keepdim=True), torch.ones_like(X[:, :1])], dim=1)
    right = torch.cat(
        [Y, torch.ones_like(Y[:, :1]), -0.5 * Y.square().sum(1, keepdim=True) - log_constant], dim=1
    )
    return left @ right.T


def _standardized(X, Y, scale):
    """Return both in units of the noise, shifted alike to stay accurate in single precision."""
    shift = Y.mean(dim=0, keepdim=True)
    return (X - shift) / scale, (Y - shift) / scale


def discrete_log_likelihood(S, Y, table):
    """Log-probability of released categories under a mixture of the raw ones.

    Parameters
    ----------
    S : tensor of shape (n_x, k)
        Weights of the raw categories: log p(y|s) = log sum_c s_c p(y|c).
    Y : tensor of shape (n_y, k)
        Released categories, one-hot.
    table : tensor of shape (k, k)
        ``table[c, y] = p(y|c)``, positive.

    Returns
    -------
    tensor of shape (n_x, n_y)
    """
    return (S @ table).log() @ Y.T


def log_weight(weight):
    """Logarithm that is -inf with no gradient, not NaN, where a weight is zero."""
    positive = weight > 0
    return weight.masked_fill(~positive, 1.0).log().masked_fill(~positive, -math.inf)
