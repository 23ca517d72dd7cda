"""Entropic optimal transport between weighted sets, from a dense cost matrix."""

import math
from dataclasses import dataclass

import torch
from numpy.typing import ArrayLike

from sklearn_dpgen.exceptions import PublicTypeError, PublicValueError
from sklearn_dpgen.ot._problem import (
    DTYPES,
    LN2,
    DualPotentials,
    check_solver,
    check_weights,
    range_error,
    softmin,
)
from sklearn_dpgen.utils._threads import threads_for

__all__ = ["SinkhornResult", "sinkhorn"]

# Largest number of iterations between two checks of the marginals and of the range of scalings.
# The first checks are after 1, 2, 3, 4, 6, ... iterations, which suffice for easy problems.
CHECK_EVERY = 10


@dataclass(frozen=True, eq=False)
class SinkhornResult(DualPotentials):
    """Dual potentials together with the dense transport plan.

    Attributes
    ----------
    plan : Tensor of shape (n, m)
        ``a_i b_j exp((f_i + g_j - C_ij) / reg)``.

    See Also
    --------
    DualPotentials : The other attributes.
    """

    plan: torch.Tensor


@torch.no_grad()
def sinkhorn(
    cost: torch.Tensor,
    a: ArrayLike | None = None,
    b: ArrayLike | None = None,
    *,
    reg: float = 1.0,
    n_iter: int = 1000,
    tol: float = 1e-3,
) -> SinkhornResult:
    r"""Solve entropic optimal transport for an arbitrary cost matrix.

    .. math:: S(C) = \min_{\pi \in \Pi(a, b)} \langle \pi, C \rangle
              + \mathrm{reg} \, \mathrm{KL}(\pi \,|\, a \otimes b)

    Parameters
    ----------
    cost : Tensor of shape (n, m)
        Finite ground cost, float32 or float64, of any sign. No gradient is tracked.
    a : array-like of shape (n,), default=None
        Row weights, non-negative with sum 1; uniform if None. Zeros are allowed.
    b : array-like of shape (m,), default=None
        Column weights, likewise.
    reg : float, default=1.0
        Regularization, in units of the cost.
    n_iter : int, default=1000
        Largest number of iterations. Reaching it raises no error; see ``marginal_error``.
    tol : float, default=1e-3
        Stop once the l1 error of the row marginal is at most this. In float32 the error levels
        off around 1e-6. With 0, exactly ``n_iter`` iterations are done unless the error is 0.

    Returns
    -------
    SinkhornResult
        Potentials, plan, value and marginal error.

    Raises
    ------
    PublicValueError
        If the cost is not finite, also after division by ``reg``, or an option is invalid.
    PublicRuntimeError
        If weights are so small that not even a freshly normalized kernel fits the dtype.

    Notes
    -----
    Scaling iterations [1]_ on the kernel :math:`2^{\varphi_i + \psi_j - C_ij / (reg \ln 2)}`: two
    matrix-vector products each, in base 2 because ``exp2`` is cheaper. Subtracting row, then
    column minima leaves a 1 in every row and column of the first kernel, so no row underflows at
    the start. Large scalings are absorbed into the potentials [2]_. If one leaves the range of the
    dtype, the iterations since the last absorption are repeated in the log domain, where the row
    sums of the normalized kernel are between the smallest weight and its inverse.

    References
    ----------
    .. [1] M. Cuturi, "Sinkhorn distances: lightspeed computation of optimal transport", 2013.
    .. [2] B. Schmitzer, "Stabilized sparse scaling algorithms for entropy regularized transport
       problems", 2019, Algorithm 2.
    """
    scale = check_solver(reg, n_iter, tol)
    _check_cost(cost)
    with threads_for(cost.numel()):
        _check_range(cost, scale)
        uniform = a is None and b is None
        a = check_weights(a, cost.shape[0], "a", cost)
        b = check_weights(b, cost.shape[1], "b", cost)
        if not uniform and not ((a > 0).all() and (b > 0).all()):
            return _solve_on_support(cost, a, b, scale, n_iter, tol)
        return _solve(cost, a, b, scale, n_iter, tol)


def _check_cost(cost):
    if not isinstance(cost, torch.Tensor) or cost.dtype not in DTYPES:
        raise PublicTypeError("cost must be a float32 or float64 tensor.")
    if cost.ndim != 2 or cost.numel() == 0:
        raise PublicValueError(
            f"cost must have shape (n, m) with n, m > 0, got {tuple(cost.shape)}."
        )


def _check_range(cost, scale):
    extremes = torch.stack((cost.amin(), cost.amax())).abs().max().item()
    if not math.isfinite(extremes):
        raise PublicValueError("cost must be finite.")
    # Sums of a few terms of this size occur in the solver.
    if not extremes * scale < torch.finfo(cost.dtype).max / 8:
        raise PublicValueError(f"cost / reg overflows {cost.dtype}; rescale the cost or raise reg.")


def _solve(cost, a, b, scale, n_iter, tol):
    """Solve for positive weights."""
    # Entries lost to underflow are negligible as long as scalings are below this, in bits.
    max_drift = -math.log2(torch.finfo(cost.dtype).tiny) / 4
    state = _AbsorbedKernel(cost, a, b, scale)
    done = absorbed = 0
    while True:
        error, drift = state.status()
        if not math.isfinite(error + drift):
            if done == absorbed:
                raise range_error(cost.dtype)
            state.absorb(*state.log_domain_potentials(done - absorbed))
            absorbed = done
        elif drift > max_drift:
            state.absorb(*state.potentials())
            absorbed = done
        elif error <= tol or done == n_iter:
            return state.result(done, error)
        else:
            steps = min(max(1, done // 2), CHECK_EVERY, n_iter - done)
            state.iterate(steps)
            done += steps


class _AbsorbedKernel:
    """The kernel 2^(phi_i + psi_j - scale * C_ij) with weighted scalings.

    Between calls the scaled columns sum to ``b``, and ``row_product`` is K @ bv, used by the
    marginal check and by the next row update. Potentials are in bits.
    """

    def __init__(self, cost, a, b, scale):
        self.cost, self.scale, self.n = cost, scale, len(a)
        self.weights = torch.cat((a, b))
        self.scaled = torch.empty_like(self.weights)
        self.a, self.b = self.weights.split((len(a), len(b)))
        self.au, self.bv = self.scaled.split((len(a), len(b)))
        self.row_product, self.column_product = torch.empty_like(a), torch.empty_like(b)

        self.phi = cost.amin(1).mul_(scale)
        self.kernel = torch.add(self.phi[:, None], cost, alpha=-scale)
        self.psi = -self.kernel.amax(0)
        self.kernel.add_(self.psi).exp2_()
        self._normalize_columns()

    def _normalize_columns(self):
        self.au.copy_(self.a)
        torch.mv(self.kernel.t(), self.au, out=self.column_product)
        torch.div(self.b, self.column_product, out=self.bv)
        torch.mv(self.kernel, self.bv, out=self.row_product)

    def iterate(self, steps):
        kernel, transposed = self.kernel, self.kernel.t()
        a, b, au, bv = self.a, self.b, self.au, self.bv
        row_product, column_product = self.row_product, self.column_product
        for _ in range(steps):
            torch.div(a, row_product, out=au)
            torch.mv(transposed, au, out=column_product)
            torch.div(b, column_product, out=bv)
            torch.mv(kernel, bv, out=row_product)

    def status(self):
        """Return the l1 error of the row marginal and the largest scaling in absolute bits."""
        error = torch.dist(self.au * self.row_product, self.a, 1)
        drift = torch.div(self.scaled, self.weights).log2_().abs_().max()
        return torch.stack((error, drift)).tolist()

    def potentials(self):
        """Return the potentials with the scalings absorbed, in float64."""
        scalings = (self.scaled / self.weights).log2_().double()
        return self.phi + scalings[: self.n], self.psi + scalings[self.n :]

    def log_domain_potentials(self, steps):
        """Return the potentials ``steps`` iterations after the last absorption."""
        cost, unit = self.cost, self.scale * LN2
        log_a, log_b = self.a.log(), self.b.log()
        f, g = self.phi * LN2, self.psi * LN2
        for _ in range(steps):
            f = -torch.logsumexp((log_b + g) - cost * unit, 1)
            g = -torch.logsumexp((log_a + f)[:, None] - cost * unit, 0)
        return f / LN2, g / LN2

    def absorb(self, phi, psi):
        """Rebuild the kernel around the given potentials."""
        self.phi, self.psi = phi.to(self.cost.dtype), psi.to(self.cost.dtype)
        torch.mul(self.cost, -self.scale, out=self.kernel)
        self.kernel.add_(self.phi[:, None]).add_(self.psi).exp2_()
        self._normalize_columns()

    def result(self, n_iter, error):
        """Return the result; the plan reuses the memory of the kernel."""
        phi, psi = self.potentials()
        value = (self.a.double() @ phi + self.b.double() @ psi).item() / self.scale
        return SinkhornResult(
            f=(phi / self.scale).to(self.cost.dtype),
            g=(psi / self.scale).to(self.cost.dtype),
            n_iter=n_iter,
            marginal_error=error,
            value=value,
            plan=self.kernel.mul_(self.au[:, None]).mul_(self.bv),
        )


def _solve_on_support(cost, a, b, scale, n_iter, tol):
    rows, columns = a > 0, b > 0
    part = _solve(cost[rows][:, columns], a[rows], b[columns], scale, n_iter, tol)
    f, g, plan = torch.empty_like(a), torch.empty_like(b), torch.zeros_like(cost)
    f[rows], g[columns] = part.f, part.g
    f[~rows] = softmin(cost[~rows][:, columns], b[columns], part.g, scale)
    g[~columns] = softmin(cost[rows][:, ~columns].t(), a[rows], part.f, scale)
    plan[rows.nonzero(), columns.nonzero().t()] = part.plan
    return SinkhornResult(f, g, part.n_iter, part.marginal_error, part.value, plan)
