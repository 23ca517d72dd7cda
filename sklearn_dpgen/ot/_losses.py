"""Training losses from costs or log-likelihoods, and baselines without deconvolution."""

import math

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch.autograd.function import once_differentiable

from sklearn_dpgen.exceptions import PublicValueError
from sklearn_dpgen.ot._problem import LN2, check_exponent, check_points, pairwise_cost
from sklearn_dpgen.ot._sinkhorn import sinkhorn
from sklearn_dpgen.utils._validation import check_positive

__all__ = ["entropic_loss", "likelihood_loss", "sinkhorn_divergence", "wasserstein_loss"]


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
    (Reshetova, Chen and Özgür, 2024, Algorithm 1).

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
        Entry (i, j) is log p(y_j | x_i) in nats; -inf if y_j is impossible given x_i.

    Returns
    -------
    Tensor of shape ()
        The loss in nats per record, differentiable.

    Raises
    ------
    PublicValueError
        If the matrix is empty or not two-dimensional.
    """
    if log_likelihood.ndim != 2 or log_likelihood.numel() == 0:
        raise PublicValueError(
            f"log_likelihood must have shape (n, m) with n, m > 0, got "
            f"{tuple(log_likelihood.shape)}."
        )
    return _LikelihoodLoss.apply(log_likelihood)


class _LikelihoodLoss(torch.autograd.Function):
    """Likelihood loss with one exponential, kept for the gradient: the posterior weights."""

    @staticmethod
    def forward(ctx, log_likelihood):
        n, m = log_likelihood.shape
        # exp2 is cheaper than exp. A record that is impossible everywhere has an infinite loss.
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


def wasserstein_loss(X: torch.Tensor, Y: torch.Tensor, p: int = 2) -> torch.Tensor:
    r"""Unregularized transport cost between uniform point clouds, solved exactly by POT.

    Parameters
    ----------
    X : Tensor of shape (n, d)
        Points.
    Y : Tensor of shape (m, d)
        Points of the same dtype and device.
    p : {1, 2}, default=2
        The ground cost is :math:`\|x - y\|_1` for 1 and :math:`\|x - y\|_2^2` for 2.

    Returns
    -------
    Tensor of shape ()
        :math:`W_p^p`. Its gradient, in both arguments, holds the optimal plan fixed (envelope
        theorem).
    """
    import ot

    with torch.no_grad():
        cost = pairwise_cost(X, Y, p)
    n, m = cost.shape
    # The default iteration limit of the network simplex is too low for some thousand points.
    plan = ot.emd(
        np.full(n, 1 / n),
        np.full(m, 1 / m),
        cost.cpu().numpy().astype(np.float64),
        numItermax=10**8,
    )
    # A vertex of the polytope has at most n + m - 1 entries, so the graph holds no dense matrix.
    rows, columns = (torch.from_numpy(index).to(X.device) for index in plan.nonzero())
    mass = torch.from_numpy(plan[plan != 0]).to(X)
    return mass @ (X[rows] - Y[columns]).abs().pow(p).sum(1)


def sinkhorn_divergence(
    X: torch.Tensor, Y: torch.Tensor, p: int = 2, *, reg: float = 1.0, scaling: float = 0.9
) -> torch.Tensor:
    r"""Debiased Sinkhorn divergence between uniform point clouds, computed by geomloss.

    :math:`S(X, Y) - S(X, X) / 2 - S(Y, Y) / 2`, with the ground cost and the units of
    :func:`sinkhorn`. This is not what ``geomloss.SamplesLoss(p=p)`` computes by default: its costs
    are the Euclidean norm for ``p=1`` and *half* the squared norm for ``p=2``.

    Parameters
    ----------
    X : Tensor of shape (n, d)
        Points.
    Y : Tensor of shape (m, d)
        Points of the same dtype and device.
    p : {1, 2}, default=2
        The ground cost is :math:`\|x - y\|_1` for 1 and :math:`\|x - y\|_2^2` for 2.
    reg : float, default=1.0
        Regularization, in units of the cost.
    scaling : float in (0, 1), default=0.9
        Ratio of successive blurs in the annealing, geomloss's only control of accuracy: larger is
        slower and more accurate. At 0.9 the error is a few percent if ``reg`` is a hundredth of
        the largest cost, and far less for larger ``reg``.

    Returns
    -------
    Tensor of shape ()
        The divergence, differentiable in both arguments.
    """
    from geomloss import SamplesLoss

    check_points(X, Y)
    check_exponent(p)
    blur = check_positive(reg, "reg") ** (1 / p)
    with torch.no_grad():
        span = torch.cat((X, Y)).aminmax(dim=0)
        diameter = torch.linalg.vector_norm(span.max - span.min, ord=p).item()
    loss = SamplesLoss(
        "sinkhorn",
        p=p,
        blur=blur,
        diameter=max(diameter, blur),
        scaling=scaling,
        cost=lambda x, y: pairwise_cost(x[0], y[0], p)[None],
        backend="tensorized",
    )
    # geomloss enables gradients and does not restore the mode.
    with torch.set_grad_enabled(torch.is_grad_enabled()):
        value = loss(X, Y)
    return value if torch.is_grad_enabled() else value.detach()
