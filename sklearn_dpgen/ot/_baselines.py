"""Losses that do not deconvolve, to compare with: exact transport and its debiased relaxation."""

import numpy as np
import torch

from sklearn_dpgen.ot._costs import check_exponent, pairwise_cost
from sklearn_dpgen.ot._problem import check_points

from ..utils._validation import check_positive

__all__ = ["sinkhorn_divergence", "wasserstein_loss"]


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
    # The default iteration limit of the network simplex is too low from a few thousand points.
    plan = ot.emd(
        np.full(n, 1 / n),
        np.full(m, 1 / m),
        cost.cpu().numpy().astype(np.float64),
        numItermax=10**8,
    )
    # A vertex of the polytope has at most n + m - 1 entries: no dense matrix in the graph.
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
        slower and more accurate. At 0.9 the error is a few percent where ``reg`` is a hundredth
        of the largest cost, and far less above.

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
    # geomloss switches gradients on and leaves them on.
    with torch.set_grad_enabled(torch.is_grad_enabled()):
        value = loss(X, Y)
    return value if torch.is_grad_enabled() else value.detach()
