"""Entropic optimal transport between point clouds, in memory linear in their sizes."""

import math
from collections.abc import Callable
from numbers import Integral

import torch
from numpy.typing import ArrayLike
from torch.autograd.function import once_differentiable

from sklearn_dpgen.exceptions import PublicValueError
from sklearn_dpgen.ot._problem import (
    DualPotentials,
    check_points,
    check_solver,
    check_weights,
    range_error,
    softmin,
)
from sklearn_dpgen.utils._threads import threads_for

__all__ = ["entropic_loss_blockwise", "sinkhorn_blockwise"]


@torch.no_grad()
def sinkhorn_blockwise(
    X: torch.Tensor,
    Y: torch.Tensor,
    cost_fn: Callable[[torch.Tensor, torch.Tensor], torch.Tensor],
    a: ArrayLike | None = None,
    b: ArrayLike | None = None,
    *,
    reg: float = 1.0,
    n_iter: int = 1000,
    tol: float = 1e-3,
    block_entries: int = 2**20,
) -> DualPotentials:
    """Solve entropic optimal transport without ever holding the cost matrix.

    Parameters
    ----------
    X : Tensor of shape (n, d)
        Points of the rows, float32 or float64.
    Y : Tensor of shape (m, d)
        Points of the columns, of the same dtype and device.
    cost_fn : callable
        ``cost_fn(X_block, Y_block)`` returns the finite costs between two blocks of points, of
        shape (len(X_block), len(Y_block)).
    a, b, reg, n_iter, tol
        As in :func:`sinkhorn`.
    block_entries : int, default=2**20
        Largest number of cost entries held at once. A block has at least one row, or m entries.

    Returns
    -------
    DualPotentials
        The same potentials as :func:`sinkhorn`, up to the tolerance.

    Raises
    ------
    PublicValueError
        If a block of costs is not finite or has the wrong shape, or an option is invalid.
    PublicRuntimeError
        If weights are so small that a scaling leaves the range of the dtype.

    Notes
    -----
    This is the iteration of :func:`sinkhorn` with the potentials absorbed in each step. A block of
    rows is evaluated once per iteration: after its row update it contributes to the column sums.
    All scalings of an iteration are between the smallest weight and its inverse, as rows or
    columns of the kernel have just been normalized.
    """
    check_points(X, Y)
    scale = check_solver(reg, n_iter, tol)
    _check_block_entries(block_entries)
    a = check_weights(a, len(X), "a", X)
    b = check_weights(b, len(Y), "b", X)
    with threads_for(len(X) * len(Y)):
        return _solve_on_support(X, Y, cost_fn, a, b, scale, n_iter, tol, block_entries)


def entropic_loss_blockwise(
    X: torch.Tensor,
    Y: torch.Tensor,
    cost_fn: Callable[[torch.Tensor, torch.Tensor], torch.Tensor],
    a: ArrayLike | None = None,
    b: ArrayLike | None = None,
    *,
    reg: float = 1.0,
    n_iter: int = 1000,
    tol: float = 1e-3,
    block_entries: int = 2**20,
) -> torch.Tensor:
    """Entropic transport value between point clouds, differentiable in X, in linear memory.

    Parameters
    ----------
    X, Y, cost_fn, a, b, reg, n_iter, tol, block_entries
        As in ``sinkhorn_blockwise``; ``cost_fn`` is differentiable in its first argument.

    Returns
    -------
    Tensor of shape ()
        The dual objective. The gradient in X holds the plan fixed (envelope theorem) and is
        accumulated block by block; Y, the weights and the parameters of ``cost_fn`` get none.
    """
    return _EntropicLossBlockwise.apply(X, Y, cost_fn, a, b, reg, n_iter, tol, block_entries)


class _EntropicLossBlockwise(torch.autograd.Function):
    @staticmethod
    def forward(ctx, X, Y, cost_fn, a, b, reg, n_iter, tol, block_entries):
        options = {"reg": reg, "n_iter": n_iter, "tol": tol, "block_entries": block_entries}
        result = sinkhorn_blockwise(X, Y, cost_fn, a, b, **options)
        a, b = check_weights(a, len(X), "a", X), check_weights(b, len(Y), "b", X)
        ctx.save_for_backward(X, Y, a, b, result.f, result.g)
        ctx.cost_fn, ctx.reg, ctx.block_entries = cost_fn, reg, block_entries
        return X.new_tensor(result.value)

    @staticmethod
    @once_differentiable
    def backward(ctx, grad_output):
        X, Y, a, b, f, g = ctx.saved_tensors
        gradient = torch.empty_like(X)
        for rows in _row_blocks(len(X), len(Y), ctx.block_entries):
            with torch.enable_grad():
                X_block = X[rows].detach().requires_grad_()
                cost = _cost(ctx.cost_fn, X_block, Y)
            exponent = (f[rows, None] - cost.detach()).add_(g).div_(ctx.reg)
            plan = exponent.exp_().mul_(a[rows, None]).mul_(b)
            (gradient[rows],) = torch.autograd.grad(cost, X_block, plan * grad_output)
        return gradient, *[None] * 8


def _solve_on_support(X, Y, cost_fn, a, b, scale, n_iter, tol, block_entries):
    rows, columns = a > 0, b > 0
    if rows.all() and columns.all():
        return _solve(X, Y, cost_fn, a, b, scale, n_iter, tol, block_entries)

    part = _solve(
        X[rows], Y[columns], cost_fn, a[rows], b[columns], scale, n_iter, tol, block_entries
    )
    f, g = torch.empty_like(a), torch.empty_like(b)
    f[rows], g[columns] = part.f, part.g

    def from_columns(X_block):
        return softmin(_cost(cost_fn, X_block, Y[columns]), b[columns], part.g, scale)

    def from_rows(Y_block):
        return softmin(_cost(cost_fn, X[rows], Y_block).t(), a[rows], part.f, scale)

    f[~rows] = _concatenate(from_columns, X[~rows], len(part.g), block_entries)
    g[~columns] = _concatenate(from_rows, Y[~columns], len(part.f), block_entries)
    return DualPotentials(f, g, part.n_iter, part.marginal_error, part.value)


def _solve(X, Y, cost_fn, a, b, scale, n_iter, tol, block_entries):
    """Solve for positive weights."""
    blocks = list(_row_blocks(len(X), len(Y), block_entries))
    # Subtracting row, then column minima leaves an entry 1 in each row and column of the kernel.
    phi, psi = torch.empty_like(a), torch.full_like(b, math.inf)
    for rows in blocks:
        cost = _cost(cost_fn, X[rows], Y) * scale
        if not torch.isfinite(cost).all():
            raise PublicValueError("cost_fn must return finite costs, also after division by reg.")
        phi[rows] = cost.amin(1)
        torch.minimum(psi, cost.sub_(phi[rows, None]).amin(0), out=psi)

    # Pass k computes the error of iteration k - 1. Before the first pass the columns are not
    # normalized, and the error is meaningless.
    for done in range(n_iter + 1):
        row_sums, column_sums = torch.empty_like(a), torch.zeros_like(b)
        for rows in blocks:
            kernel = torch.mul(_cost(cost_fn, X[rows], Y), -scale)
            kernel.add_(phi[rows, None]).add_(psi).exp2_()
            torch.mv(kernel, b, out=row_sums[rows])
            column_sums.addmv_(kernel.t(), a[rows] / row_sums[rows])
        row_steps, column_steps = row_sums.log2(), column_sums.log2()
        error = torch.dist(a * row_sums, a, 1)
        error, total = torch.stack((error, row_steps.sum() + column_steps.sum())).tolist()
        if not math.isfinite(error + total):
            raise range_error(X.dtype)
        if done > 0 and (error <= tol or done == n_iter):
            break
        phi -= row_steps
        psi -= column_steps
    value = (a.double() @ phi.double() + b.double() @ psi.double()).item() / scale
    return DualPotentials(phi / scale, psi / scale, done, error, value)


def _check_block_entries(block_entries):
    if not isinstance(block_entries, Integral) or block_entries < 1:
        raise PublicValueError(f"block_entries must be a positive integer, got {block_entries!r}.")


def _row_blocks(n, m, block_entries):
    size = max(1, block_entries // m)
    return (slice(start, min(start + size, n)) for start in range(0, n, size))


def _cost(cost_fn, X_block, Y_block):
    cost = cost_fn(X_block, Y_block)
    if cost.shape != (len(X_block), len(Y_block)):
        raise PublicValueError(
            f"cost_fn must return shape {(len(X_block), len(Y_block))}, got {tuple(cost.shape)}."
        )
    return cost


def _concatenate(function, points, width, block_entries):
    blocks = _row_blocks(len(points), width, block_entries)
    return torch.cat([function(points[rows]) for rows in blocks] or [points.new_empty(0)])
