"""Training losses from a matrix of costs or log-likelihoods."""

import math

import torch
from numpy.typing import ArrayLike
from torch.autograd.function import once_differentiable

from sklearn_dpgen.ot._problem import LN2
from sklearn_dpgen.ot._sinkhorn import sinkhorn

__all__ = ["entropic_loss", "likelihood_loss"]


def entropic_loss(
    cost: torch.Tensor,
    a: ArrayLike | None = None,
    b: ArrayLike | None = None,
    *,
    reg: float = 1.0,
    n_iter: int = 1000,
    tol: float = 1e-3,
) -> torch.Tensor:
    """Entropic transport value of a cost matrix, differentiable in the cost.

    With ``reg=1`` and ``cost[i, j] = -log p(y_j | x_i)`` it is the loss of entropic deconvolution
    (Algorithm 1 of the paper).

    Parameters
    ----------
    cost : Tensor of shape (n, m)
        Ground cost, with or without gradient.
    a, b, reg, n_iter, tol
        As in :func:`sinkhorn`; weights get no gradient.

    Returns
    -------
    Tensor of shape ()
        The dual objective. Its gradient is the transport plan (envelope theorem): the iterations
        are not differentiated. There is no second derivative.

    See Also
    --------
    entropic_loss_blockwise : The same with memory linear in n + m.
    """
    return _EntropicLoss.apply(cost, a, b, reg, n_iter, tol)


class _EntropicLoss(torch.autograd.Function):
    @staticmethod
    def forward(ctx, cost, a, b, reg, n_iter, tol):
        result = sinkhorn(cost, a, b, reg=reg, n_iter=n_iter, tol=tol)
        ctx.save_for_backward(result.plan)
        return cost.new_tensor(result.value)

    @staticmethod
    @once_differentiable
    def backward(ctx, grad_output):
        (plan,) = ctx.saved_tensors
        return plan * grad_output, None, None, None, None, None


def likelihood_loss(log_likelihood: torch.Tensor) -> torch.Tensor:
    r"""Negative mean log-likelihood of records under a uniform mixture of components.

    .. math:: -\frac1m \sum_j \log \frac1n \sum_i p(y_j \mid x_i)

    This is entropic transport at ``reg=1`` and cost :math:`-\log p(y_j | x_i)` with the constraint
    on the marginal of x dropped. It never exceeds :func:`entropic_loss`, and in the realizable case
    has the same minimizer (Rigollet and Weed, 2018).

    Parameters
    ----------
    log_likelihood : Tensor of shape (n, m)
        Entry (i, j) is log p(y_j | x_i) in nats; -inf where y_j is impossible from x_i.

    Returns
    -------
    Tensor of shape ()
        The loss in nats a record, differentiable.

    Raises
    ------
    ValueError
        If the matrix is empty or not a matrix.
    """
    if log_likelihood.ndim != 2 or log_likelihood.numel() == 0:
        raise ValueError("log_likelihood must have shape (n, m) with n, m > 0.")
    return _LikelihoodLoss.apply(log_likelihood)


class _LikelihoodLoss(torch.autograd.Function):
    """One exponential, kept for the gradient: the posterior weights of the components."""

    @staticmethod
    def forward(ctx, log_likelihood):
        n, m = log_likelihood.shape
        # exp2 is the cheaper exponential. A record impossible everywhere has an infinite loss.
        top = log_likelihood.amax(0).clamp_min(torch.finfo(log_likelihood.dtype).min)
        weights = log_likelihood.sub(top).mul_(1 / LN2).exp2_()
        total = weights.sum(0)
        ctx.save_for_backward(weights, total)
        return math.log(n) - (top + total.log()).mean()

    @staticmethod
    @once_differentiable
    def backward(ctx, grad_output):
        weights, total = ctx.saved_tensors
        return weights * (-grad_output / (total * weights.shape[1]))
