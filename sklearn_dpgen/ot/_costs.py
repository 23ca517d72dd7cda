"""Ground costs between point clouds."""

import torch

from sklearn_dpgen.ot._problem import check_points

__all__ = ["pairwise_cost"]


def pairwise_cost(X: torch.Tensor, Y: torch.Tensor, p: int) -> torch.Tensor:
    """Ground cost of the Laplace (p=1) or the Gaussian (p=2) mechanism, without its scale.

    Parameters
    ----------
    X : Tensor of shape (n, d)
        Points.
    Y : Tensor of shape (m, d)
        Points of the same dtype and device.
    p : {1, 2}
        1 for the l1 norm of x - y, 2 for the *squared* Euclidean norm.

    Returns
    -------
    Tensor of shape (n, m)
        The costs, differentiable in both arguments.
    """
    check_points(X, Y)
    check_exponent(p)
    if p == 1:
        return torch.cdist(X, Y, p=1)
    # Centering keeps the cancellation in the expanded square small.
    center = Y.detach().mean(0)
    X, Y = X - center, Y - center
    squares = X.square().sum(1)[:, None] + Y.square().sum(1)
    return torch.addmm(squares, X, Y.t(), alpha=-2).clamp_min(0)


def check_exponent(p):
    """Check the exponent of the ground cost."""
    if p not in (1, 2):
        raise ValueError(f"p must be 1 or 2, got {p!r}.")
