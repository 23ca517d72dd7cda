"""The dense entropic solver: closed forms, range, errors."""

import dataclasses
import math

import hypothesis.strategies as st
import numpy as np
import ot
import pytest
import torch
from hypothesis import given, settings

from sklearn_dpgen.ot import _sinkhorn, sinkhorn

DTYPES = [torch.float32, torch.float64]


def rand(*shape, seed=0):
    return torch.rand(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def uniform(n):
    return torch.full((n,), 1 / n, dtype=torch.float64)


def log_domain(cost, a, b, tol=1e-7, n_iter=20000):
    """The textbook algorithm, in float64: plan and dual value."""
    cost, log_a, log_b = cost.double(), a.log(), b.log()
    g = torch.zeros_like(b)
    for k in range(n_iter):
        f = -torch.logsumexp(log_b + g - cost, 1)
        g = -torch.logsumexp((log_a + f)[:, None] - cost, 0)
        if k % 50 == 0:
            plan = ((log_a + f)[:, None] + (log_b + g) - cost).exp()
            if (plan.sum(1) - a).abs().sum() < tol:
                return plan, (a @ f + b @ g).item()
    raise AssertionError("the reference did not converge")


def assert_same(result, plan, value, atol=1e-4):
    # In total variation: the entries are all below the tolerance.
    assert (result.plan.double() - plan).abs().sum() < atol
    assert abs(result.value - value) < atol


@pytest.mark.parametrize("dtype", DTYPES)
def test_two_by_two_closed_form(dtype):
    c, reg = 1.7, 0.6
    cost = torch.tensor([[0, c], [c, 0]], dtype=dtype)
    result = sinkhorn(cost, reg=reg, tol=1e-6)
    weight = 1 / (1 + math.exp(-c / reg))
    expected = torch.tensor([[weight, 1 - weight], [1 - weight, weight]], dtype=dtype) / 2
    torch.testing.assert_close(result.plan, expected)
    assert result.value == pytest.approx(-reg * math.log((1 + math.exp(-c / reg)) / 2), rel=1e-6)
    assert result.plan.dtype == result.f.dtype == result.g.dtype == dtype


def test_separable_cost_needs_no_iteration():
    f, g = 800 * rand(7, seed=1) - 400, 800 * rand(5, seed=2)
    result = sinkhorn(f[:, None] + g)
    assert result.n_iter == 0
    torch.testing.assert_close(result.plan, torch.full((7, 5), 1 / 35, dtype=torch.float64))
    assert result.value == pytest.approx((f.mean() + g.mean()).item())
    torch.testing.assert_close(result.f - result.f[0], f - f[0])


@pytest.mark.parametrize("shape", [(1, 1), (1, 6), (6, 1)])
def test_dirac_against_anything(shape):
    cost = 1000 * rand(*shape)
    result = sinkhorn(cost)
    torch.testing.assert_close(result.plan, torch.ones_like(cost) / cost.numel())
    assert result.value == pytest.approx(cost.mean().item())


def test_agrees_with_pot():
    cost, a, b = 10 * rand(30, 20), rand(30, seed=1) + 0.1, rand(20, seed=2) + 0.1
    a, b = a / a.sum(), b / b.sum()
    plan = ot.bregman.sinkhorn_log(a.numpy(), b.numpy(), cost.numpy(), 0.7, stopThr=1e-12)
    result = sinkhorn(cost, a, b, reg=0.7, tol=1e-12, n_iter=10000)
    np.testing.assert_allclose(result.plan.numpy(), plan, atol=1e-11)
    # pi = a b exp((f + g - C) / reg) and the value is the primal objective.
    density = ((result.f[:, None] + result.g - cost) / 0.7).exp()
    torch.testing.assert_close(result.plan, a[:, None] * b * density)
    primal = (result.plan * (cost + 0.7 * density.log())).sum()
    assert result.value == pytest.approx(primal.item(), abs=1e-10)


def test_marginal_error_is_the_row_error_of_the_plan():
    cost = 30 * rand(40, 30)
    result = sinkhorn(cost, n_iter=3, tol=0)
    assert result.n_iter == 3
    error = (result.plan.sum(1) - 1 / 40).abs().sum().item()
    assert error > 0.01
    assert result.marginal_error == pytest.approx(error)
    torch.testing.assert_close(result.plan.sum(0), uniform(30))
    converged = sinkhorn(cost, n_iter=5000, tol=1e-8)
    assert converged.marginal_error <= 1e-8
    assert converged.n_iter < 5000
    assert result.value < converged.value  # a dual lower bound before convergence


def test_iterations_are_sinkhorn_iterations():
    cost = 5 * rand(20, 30)
    g = sinkhorn(cost, n_iter=4, tol=0).g
    for k in (5, 17, 30):
        expected = g
        for _ in range(k - 4):
            f = -torch.logsumexp(expected - cost, 1) + math.log(30)
            expected = -torch.logsumexp(f[:, None] - cost, 0) + math.log(20)
        result = sinkhorn(cost, n_iter=k, tol=0)
        torch.testing.assert_close(result.g, expected)


SPREADS = {
    "rows": lambda n, m: 600 * rand(n, 1, seed=1) + 5 * rand(n, m),
    "columns": lambda n, m: 600 * rand(1, m, seed=1) + 5 * rand(n, m),
    "negative": lambda n, m: -600 * rand(n, 1) - 600 * rand(1, m) + 5 * rand(n, m),
    "random": lambda n, m: 600 * rand(n, m),
    "squares": lambda n, m: 700 * (rand(n, 1, seed=1) - rand(1, m, seed=2)) ** 2,
    "clusters": lambda n, m: (
        1000 * ((rand(n, 1, seed=1) > 0.5) ^ (rand(1, m, seed=2) > 0.5)) + 5 * rand(n, m)
    ),
}


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("name", SPREADS)
def test_agrees_with_the_log_domain_when_the_kernel_underflows(name, weighted, dtype):
    cost = SPREADS[name](30, 25).to(dtype)
    assert cost.max() - cost.min() > 500
    a, b = uniform(30), uniform(25)
    if weighted:
        a, b = rand(30, seed=3) ** 6 + 1e-4, rand(25, seed=4) ** 6 + 1e-4
        a, b = a / a.sum(), b / b.sum()
    result = sinkhorn(cost, a, b, tol=2e-6, n_iter=20000)
    assert_same(result, *log_domain(cost, a, b))


def test_rows_that_underflow_entirely_without_absorption():
    cost = SPREADS["rows"](30, 25).float() + 200
    kernel = torch.exp(-cost)
    assert (kernel == 0).all()  # the plain algorithm divides zero by zero
    result = sinkhorn(cost, tol=1e-6)
    assert_same(result, *log_domain(cost, uniform(30), uniform(25)))


@pytest.fixture
def takeovers(monkeypatch):
    """Lengths of the log-domain takeovers."""
    steps = []
    original = _sinkhorn._AbsorbedKernel.log_domain_potentials

    def spy(self, n):
        steps.append(n)
        return original(self, n)

    monkeypatch.setattr(_sinkhorn._AbsorbedKernel, "log_domain_potentials", spy)
    return steps


def test_log_domain_takes_over_between_rare_checks(takeovers, monkeypatch):
    cost = SPREADS["clusters"](30, 25).float()
    plan, value = log_domain(cost, uniform(30), uniform(25))
    assert_same(sinkhorn(cost, tol=1e-6, n_iter=20000), plan, value)
    assert not takeovers
    monkeypatch.setattr(_sinkhorn, "CHECK_EVERY", 10**6)
    result = sinkhorn(cost, tol=1e-6, n_iter=20000)
    assert takeovers
    assert_same(result, plan, value)


def test_log_domain_takes_over_for_small_weights(takeovers):
    a = torch.logspace(0, -6, 20, dtype=torch.float64)
    a /= a.sum()
    cost = (3000 * rand(20, 20)).float()
    result = sinkhorn(cost, a, a.flip(0), tol=2e-7, n_iter=20000)
    assert takeovers
    assert_same(result, *log_domain(cost, a, a.flip(0), tol=1e-8))


def test_weights_below_the_range_raise():
    a = torch.full((20,), 1e-44)
    a[0] = 1
    with pytest.raises(RuntimeError, match="weights are too small"):
        sinkhorn(1000 * rand(20, 20).float(), a, a.flip(0))
    assert math.isfinite(sinkhorn(1000 * rand(20, 20), a, a.flip(0)).value)


def test_zero_weights():
    cost = 20 * rand(8, 6)
    a, b = rand(8, seed=1), rand(6, seed=2)
    a[[0, 5]] = 0
    b[3] = 0
    a, b = a / a.sum(), b / b.sum()
    rows, columns = a > 0, b > 0
    cost[0] += 5000  # a zero weight must not disturb the minima that the others start from
    result = sinkhorn(cost, a, b, tol=1e-12)
    part = sinkhorn(cost[rows][:, columns], a[rows], b[columns], tol=1e-12)
    torch.testing.assert_close(result.plan[rows][:, columns], part.plan)
    assert result.plan[~rows].abs().sum() + result.plan[:, ~columns].abs().sum() == 0
    assert result.value == part.value
    # The optimality conditions extend to points of zero weight.
    f = -torch.logsumexp(b.log() + result.g - cost, 1)
    g = -torch.logsumexp((a.log() + result.f)[:, None] - cost, 0)
    torch.testing.assert_close(result.f, f)
    torch.testing.assert_close(result.g, g)


def test_transposition_scaling_and_layout():
    cost = 10 * rand(12, 9)
    result = sinkhorn(cost, tol=1e-12)
    transposed = sinkhorn(cost.t(), tol=1e-12)
    torch.testing.assert_close(transposed.plan, result.plan.t())
    assert transposed.value == pytest.approx(result.value)
    scaled = sinkhorn(100 * cost, reg=100, tol=1e-12)
    assert scaled.value == pytest.approx(100 * result.value)
    strided = torch.zeros(24, 27, dtype=torch.float64)[::2, ::3].copy_(cost)
    torch.testing.assert_close(sinkhorn(strided, tol=1e-12).plan, result.plan)


def test_result_is_frozen_and_input_untouched():
    cost = rand(4, 3).requires_grad_()
    before = cost.detach().clone()
    result = sinkhorn(cost)
    assert not result.plan.requires_grad
    assert not result.f.requires_grad
    assert torch.equal(cost.detach(), before)
    with pytest.raises(dataclasses.FrozenInstanceError):
        result.value = 0.0


@settings(max_examples=60, deadline=None)
@given(
    n=st.integers(1, 12),
    m=st.integers(1, 12),
    dtype=st.sampled_from(DTYPES),
    scale=st.sampled_from([0.0, 1e-6, 1.0, 100.0, 1e4]),
    sparsity=st.sampled_from([0.0, 0.5]),
    ties=st.booleans(),
    seed=st.integers(0, 10**6),
)
def test_always_finite_and_between_its_bounds(n, m, dtype, scale, sparsity, ties, seed):
    cost = scale * (rand(n, m, seed=seed) - 0.5)
    if ties:
        cost = torch.round(cost, decimals=1)
    a, b = rand(n, seed=seed + 1) + 0.01, rand(m, seed=seed + 2) + 0.01
    a[1:][rand(n - 1, seed=seed) < sparsity] = 0
    b[1:][rand(m - 1, seed=seed) < sparsity] = 0
    a, b = a / a.sum(), b / b.sum()
    result = sinkhorn(cost.to(dtype), a, b, n_iter=50)
    for tensor in (result.f, result.g, result.plan):
        assert torch.isfinite(tensor).all()
    assert (result.plan >= 0).all()
    torch.testing.assert_close(result.plan.sum(0), b.to(dtype), rtol=1e-4, atol=1e-6)
    # The product plan is feasible; KL is non-negative.
    slack = 1e-4 * max(1, scale)
    assert result.value <= (a @ cost @ b).item() + slack
    if result.marginal_error <= 1e-3:
        assert result.value >= cost.min().item() - slack


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_cost_must_be_finite(bad):
    cost = rand(4, 3)
    cost[2, 1] = bad
    with pytest.raises(ValueError, match="cost must be finite"):
        sinkhorn(cost)


def test_invalid_arguments():
    cost = rand(4, 3)
    with pytest.raises(ValueError, match="cost / reg overflows"):
        sinkhorn(1e30 * cost.float(), reg=1e-9)
    with pytest.raises(ValueError, match="shape"):
        sinkhorn(cost[0])
    with pytest.raises(ValueError, match="shape"):
        sinkhorn(cost[:0])
    with pytest.raises(TypeError, match="float32 or float64"):
        sinkhorn(cost.half())
    with pytest.raises(TypeError, match="float32 or float64"):
        sinkhorn(cost.numpy())
    for reg in (0, -1.0, math.nan, math.inf):
        with pytest.raises(ValueError, match="reg must be"):
            sinkhorn(cost, reg=reg)
    for n_iter in (0, 2.5, True):
        with pytest.raises(ValueError, match="n_iter must be"):
            sinkhorn(cost, n_iter=n_iter)
    for tol in (-1e-3, math.nan, "small"):
        with pytest.raises(ValueError, match="tol must be"):
            sinkhorn(cost, tol=tol)
    with pytest.raises(ValueError, match=r"a must have shape \(4,\)"):
        sinkhorn(cost, uniform(3))
    with pytest.raises(ValueError, match="b must sum to 1"):
        sinkhorn(cost, None, 2 * uniform(3))
    for bad in (-0.5, math.nan, math.inf):
        with pytest.raises(ValueError, match="b must be finite and non-negative"):
            sinkhorn(cost, None, torch.tensor([bad, 1.0, 0.5]))


@pytest.mark.gpu
def test_gpu_agrees_with_cpu():
    cost = SPREADS["squares"](300, 200).float()
    expected = sinkhorn(cost, tol=1e-5, n_iter=20000)
    result = sinkhorn(cost.cuda(), tol=1e-5, n_iter=20000)
    assert_same(result, expected.plan.double().cuda(), expected.value, atol=1e-3)
