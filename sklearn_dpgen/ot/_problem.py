"""Ground costs, and the checks, units and results shared by the solvers."""

import math
from dataclasses import dataclass
from numbers import Integral, Real

import torch

from sklearn_dpgen.exceptions import PublicRuntimeError, PublicTypeError, PublicValueError
from sklearn_dpgen.utils._validation import check_positive

__all__ = [
    "DTYPES",
    "DualPotentials",
    "LN2",
    "check_points",
    "check_solver",
    "check_weights",
    "pairwise_cost",
    "range_error",
    "softmin",
]

DTYPES = (torch.float32, torch.float64)
LN2 = math.log(2)


@dataclass(frozen=True, eq=False)
class DualPotentials:
    """Dual solution of an entropic optimal transport problem.

    Attributes
    ----------
    f : Tensor of shape (n,)
        Potential of the rows, in units of the cost. For zero weights it is the extension
        ``-reg * log(sum_j b_j exp((g_j - C_ij) / reg))``.
    g : Tensor of shape (m,)
        Potential of the columns, likewise.
    n_iter : int
        Number of full iterations (a row update followed by a column update).
    marginal_error : float
        l1 distance between the row sums of the plan and ``a``. The column sums are ``b``, up to
        rounding. It exceeds the tolerance if and only if ``n_iter`` was reached.
    value : float
        Dual objective ``<a, f> + <b, g>``: a lower bound of the entropic transport value, and
        equal to it at convergence.
    """

    f: torch.Tensor
    g: torch.Tensor
    n_iter: int
    marginal_error: float
    value: float


def check_solver(reg, n_iter, tol):
    """Check solver options; return the factor from cost units to bits, 1 / (reg ln 2)."""
    reg = check_positive(reg, "reg")
    if isinstance(n_iter, bool) or not isinstance(n_iter, Integral) or n_iter < 1:
        raise PublicValueError(f"n_iter must be a positive integer, got {n_iter!r}.")
    if not isinstance(tol, Real) or not float(tol) >= 0:
        raise PublicValueError(f"tol must be a non-negative number, got {tol!r}.")
    return 1 / (reg * LN2)


def check_points(X, Y):
    """Check that two point clouds have a common dimension, dtype and device."""
    for points, name in ((X, "X"), (Y, "Y")):
        if not isinstance(points, torch.Tensor) or points.dtype not in DTYPES:
            raise PublicTypeError(f"{name} must be a float32 or float64 tensor.")
        if points.ndim != 2 or len(points) == 0:
            raise PublicValueError(f"{name} must have shape (n, d) with n > 0.")
    if (X.shape[1], X.dtype, X.device) != (Y.shape[1], Y.dtype, Y.device):
        raise PublicValueError("X and Y must agree in dimension, dtype and device.")


def check_weights(weights, size, name, like):
    """Return probability weights of shape (size,), uniform for None, in the dtype of ``like``."""
    if weights is None:
        return like.new_full((size,), 1 / size)
    weights = torch.as_tensor(weights, dtype=like.dtype, device=like.device).detach()
    if weights.shape != (size,):
        raise PublicValueError(f"{name} must have shape ({size},), got {tuple(weights.shape)}.")
    if not (torch.isfinite(weights) & (weights >= 0)).all():
        raise PublicValueError(f"{name} must be finite and non-negative.")
    total = weights.sum(dtype=torch.float64)
    if abs(total.item() - 1) > 1e-3:
        raise PublicValueError(f"{name} must sum to 1.")
    return weights / total


def range_error(dtype):
    """Return the error for scalings that leave the range of ``dtype`` despite stabilization."""
    return PublicRuntimeError(
        f"Sinkhorn left the range of {dtype}: the weights are too small. Use float64, or set "
        "negligible weights to zero."
    )


def softmin(cost, weights, potential, scale):
    """Return the extension ``-reg log sum_j w_j exp((h_j - C_ij) / reg)`` along dimension 1."""
    unit = scale * LN2
    return torch.logsumexp(weights.log() + (potential - cost) * unit, 1) / -unit


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
    # Centering reduces the cancellation in the expanded square.
    center = Y.detach().mean(0)
    X, Y = X - center, Y - center
    squares = X.square().sum(1)[:, None] + Y.square().sum(1)
    return torch.addmm(squares, X, Y.t(), alpha=-2).clamp_min(0)


def check_exponent(p):
    """Check the exponent of the ground cost."""
    if p not in (1, 2):
        raise PublicValueError(f"p must be 1 or 2, got {p!r}.")
