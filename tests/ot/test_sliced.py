"""Sliced transport: the matrix R written out, POT, closed forms, and the paths of the sort."""

import math

import hypothesis.strategies as st
import numpy as np
import ot
import pytest
import torch
from hypothesis import given, settings
from torch.utils._python_dispatch import TorchDispatchMode

from sklearn_dpgen.ot import (
    _sliced,
    random_directions,
    sliced_wasserstein,
    sliced_wasserstein2_gradient,
)
from sklearn_dpgen.ot._sliced import wasserstein2_gradient

DTYPES = [torch.float32, torch.float64]
SIZES = [(1, 1), (1, 7), (7, 1), (5, 5), (6, 3), (4, 12), (7, 5), (8, 12), (20, 21)]


def points(n, d=3, seed=0, dtype=torch.float64):
    return torch.randn(n, d, generator=torch.Generator().manual_seed(seed), dtype=dtype)


def line(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def directions(k, d=3, seed=9, dtype=torch.float64):
    return random_directions(k, d, generator=torch.Generator().manual_seed(seed), dtype=dtype)


def overlap_matrix(n, m):
    """R of the definition: entry (i, j) is |(i/n, (i+1)/n] ∩ (j/m, (j+1)/m]|."""
    i, j = np.arange(n)[:, None], np.arange(m)
    shared = np.minimum((i + 1) * m, (j + 1) * n) - np.maximum(i * m, j * n)
    return torch.from_numpy(np.maximum(shared, 0) / (n * m))


def ranks(values):
    order = sorted(range(len(values)), key=lambda i: (values[i].item(), i))
    return torch.tensor(order).argsort()


def dense(U, V, p=2):
    """Value and gradients on the line, from the n x m plan."""
    plan = overlap_matrix(len(U), len(V))[ranks(U)][:, ranks(V)]
    gap = U[:, None] - V
    slope = plan * p * gap.abs().pow(p - 1) * gap.sign()
    return (plan * gap.abs().pow(p)).sum(), slope.sum(1), -slope.sum(0)


class LargestTensor(TorchDispatchMode):
    """Records the most entries of any tensor that an operation returns."""

    entries = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        for tensor in out if isinstance(out, tuple | list) else (out,):
            if isinstance(tensor, torch.Tensor):
                self.entries = max(self.entries, tensor.numel())
        return out


@settings(max_examples=60, deadline=None)
@given(n=st.integers(1, 40), m=st.integers(1, 40))
def test_overlaps_are_the_rows_of_the_matrix(n, m):
    index, weight = _sliced._overlaps(n, m, torch.empty(0, dtype=torch.float64))
    rows = torch.zeros(n, m, dtype=torch.float64).scatter_add_(1, index.T, weight.T)
    torch.testing.assert_close(rows, n * overlap_matrix(n, m), rtol=1e-14, atol=1e-14)
    assert index.numel() < 2 * n + m
    assert weight[-1].max() > 0  # some rank needs them all


@pytest.mark.parametrize(("n", "m"), SIZES)
def test_line_gradient_is_that_of_the_dense_plan(n, m):
    U, V = line(n), line(m, seed=1) + 0.3
    _, *expected = dense(U, V)
    torch.testing.assert_close(wasserstein2_gradient(U, V), tuple(expected))


@pytest.mark.parametrize("p", [1, 1.5, 2, 3])
@pytest.mark.parametrize(("n", "m"), SIZES)
def test_value_and_gradient_are_means_over_the_directions(n, m, p):
    X, Y, theta = points(n).requires_grad_(), points(m, seed=1).requires_grad_(), directions(5)
    value = sliced_wasserstein(X, Y, directions=theta, p=p)
    gradients = torch.autograd.grad(value, (X, Y))
    lines = [dense(X.detach() @ t, Y.detach() @ t, p) for t in theta]
    torch.testing.assert_close(value, torch.stack([v for v, _, _ in lines]).mean())
    for side, gradient in enumerate(gradients, start=1):
        expected = torch.stack([a[side] for a in lines]).T @ theta / 5
        torch.testing.assert_close(gradient, expected)


@pytest.mark.parametrize("p", [1, 2, 3])
@pytest.mark.parametrize(("n", "m"), [(30, 30), (30, 20), (20, 31)])
def test_agrees_with_pot(n, m, p):
    X, Y, theta = points(n), points(m, seed=1) + 0.5, directions(10)
    expected = ot.sliced_wasserstein_distance(X, Y, projections=theta.T, p=p) ** p
    torch.testing.assert_close(sliced_wasserstein(X, Y, directions=theta, p=p), expected)
    (expected,) = ot.wasserstein_1d(X[:, :1], Y[:, :1], p=p)
    torch.testing.assert_close(sliced_wasserstein(X[:, :1], Y[:, :1], p=p), expected)


@pytest.mark.parametrize(("n", "m"), [(30, 30), (30, 20)])
def test_gradient_agrees_with_that_of_pot(n, m):
    X, Y, theta = points(n).requires_grad_(), points(m, seed=1).requires_grad_(), directions(10)
    value = ot.sliced_wasserstein_distance(X, Y, projections=theta.T, p=2) ** 2
    expected = torch.autograd.grad(value, (X, Y))
    _, *gradients = sliced_wasserstein2_gradient(X, Y, theta)
    torch.testing.assert_close(tuple(gradients), expected)


@pytest.mark.parametrize("p", [1, 1.5, 2, 3])
@pytest.mark.parametrize(("n", "m"), [(5, 5), (5, 3), (3, 6), (1, 4)])
def test_gradcheck(n, m, p):
    X, Y, theta = points(n).requires_grad_(), points(m, seed=1).requires_grad_(), directions(4)
    assert torch.autograd.gradcheck(
        lambda x, y: sliced_wasserstein(x, y, directions=theta, p=p), (X, Y)
    )


def test_backward_scales_and_only_what_needs_a_gradient_gets_one():
    X, Y, theta = points(6).requires_grad_(), points(4, seed=1), directions(3).requires_grad_()
    loss = sliced_wasserstein(X, Y, directions=theta)
    (3 * loss).backward()
    value, dX, _ = sliced_wasserstein2_gradient(X, Y, theta)
    assert torch.equal(loss, value)
    torch.testing.assert_close(X.grad, 3 * dX)
    assert Y.grad is None
    assert theta.grad is None
    assert not value.requires_grad
    assert not dX.requires_grad


@pytest.mark.parametrize("n", [3, 50000])
@pytest.mark.parametrize("dtype", DTYPES)
def test_ties_go_by_index(n, dtype):
    V = torch.arange(1, n + 1, dtype=dtype)
    zeros = torch.zeros(n, dtype=dtype)
    zeros[1::2] = -0.0
    dU, dV = wasserstein2_gradient(zeros, V)
    torch.testing.assert_close(dU, -2 / n * V)
    torch.testing.assert_close(dV, 2 / n * V)
    shuffled = torch.randperm(n, generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(wasserstein2_gradient(zeros, V[shuffled])[0], dU)


def awkward(rows, n, dtype, seed):
    """Rows with ties, both zeros, infinities, and the least and largest numbers."""
    generator = torch.Generator().manual_seed(seed)
    values = torch.randn(rows, n, generator=generator, dtype=dtype)
    info = torch.finfo(dtype)
    special = [0.0, -0.0, math.inf, -math.inf, 1.0, -1.0, info.tiny / 4, info.max, -info.max]
    special = torch.tensor([*special, -info.tiny / 4], dtype=dtype)
    where = torch.randint(len(special), (rows, n), generator=generator)
    return torch.where(torch.rand(rows, n, generator=generator) < 0.3, special[where], values)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("rows", "n"), [(1, 40000), (2, 32768), (33, 1000), (256, 128), (8, 4000)])
def test_argsort_is_stable(rows, n, dtype):
    U = awkward(rows, n, dtype, seed=rows)
    expected = np.argsort(U.numpy(), axis=1, kind="stable")
    np.testing.assert_array_equal(_sliced._argsort(U).numpy(), expected)
    strided = U.t().contiguous().t()
    np.testing.assert_array_equal(_sliced._argsort(strided).numpy(), expected)


@settings(max_examples=60, deadline=None)
@given(
    n=st.integers(1, 9),
    m=st.integers(1, 9),
    batch=st.lists(st.integers(0, 3), max_size=3),
    dtype=st.sampled_from(DTYPES),
    levels=st.integers(1, 20),
    scale=st.sampled_from([1e-15, 1.0, 1e15]),
    radix=st.booleans(),
)
def test_batches_are_loops(n, m, batch, dtype, levels, scale, radix):
    U, V = line(*batch, n), line(*batch, m, seed=1)
    # Few levels make ties.
    U, V = ((scale * (levels * W).round() / levels).to(dtype) for W in (U, V))
    with pytest.MonkeyPatch.context() as patch:
        if radix:
            patch.setattr(_sliced, "RADIX_ENTRIES", 4)
        dU, dV = wasserstein2_gradient(U, V)
    assert (dU.shape, dV.shape, dU.dtype, dV.dtype) == (U.shape, V.shape, dtype, dtype)
    rows = zip(*(W.reshape(-1, W.shape[-1]) for W in (U, V, dU, dV)), strict=True)
    for u, v, du, dv in rows:
        _, *expected = dense(u.double(), v.double())
        for gradient, other in zip((du, dv), expected, strict=True):
            atol = 1e-5 * scale if dtype == torch.float32 else 1e-13 * scale
            torch.testing.assert_close(gradient.double(), other, rtol=0, atol=atol)


def test_strided_and_expanded_inputs_are_read_only():
    U, V = line(7, 4).t(), line(5, seed=1).expand(4, 5)
    before = U.clone(), V.clone()
    dU, dV = wasserstein2_gradient(U, V)
    for row in range(4):
        expected = wasserstein2_gradient(U[row].contiguous(), V[row].contiguous())
        torch.testing.assert_close((dU[row], dV[row]), expected)
    assert torch.equal(U, before[0])
    assert torch.equal(V, before[1])


@pytest.mark.parametrize(("n", "m"), [(40, 40), (40, 25)])
@pytest.mark.parametrize(("chunk_entries", "radix_entries"), [(1, 1), (300, 2**15), (2**21, 64)])
def test_chunks_change_nothing(n, m, chunk_entries, radix_entries, monkeypatch):
    X, Y, theta = points(n), points(m, seed=1), directions(17)
    expected = sliced_wasserstein2_gradient(X, Y, theta)
    monkeypatch.setattr(_sliced, "CHUNK_ENTRIES", chunk_entries)
    monkeypatch.setattr(_sliced, "MIN_CHUNK_ROWS", 2)
    monkeypatch.setattr(_sliced, "RADIX_ENTRIES", radix_entries)
    torch.testing.assert_close(sliced_wasserstein2_gradient(X, Y, theta), expected)


@pytest.mark.parametrize(("n", "m"), [(9, 9), (9, 6), (4, 7)])
def test_symmetries(n, m):
    X, Y, theta = points(n), points(m, seed=1), directions(6)
    value, dX, dY = sliced_wasserstein2_gradient(X, Y, theta)
    torch.testing.assert_close(dX.sum(0), -dY.sum(0))

    shift = torch.tensor([3.0, -2.0, 5.0], dtype=torch.float64)
    moved = sliced_wasserstein2_gradient(X + shift, Y + shift, theta)
    torch.testing.assert_close(moved, (value, dX, dY))
    scaled = sliced_wasserstein2_gradient(-3 * X, -3 * Y, theta)
    torch.testing.assert_close(scaled, (9 * value, -3 * dX, -3 * dY))
    torch.testing.assert_close(sliced_wasserstein2_gradient(Y, X, theta), (value, dY, dX))

    order = torch.randperm(n, generator=torch.Generator().manual_seed(0))
    permuted = sliced_wasserstein2_gradient(X[order], Y, theta)
    torch.testing.assert_close(permuted, (value, dX[order], dY))
    # Repeating every point of both changes no law.
    repeated = sliced_wasserstein2_gradient(X.repeat(2, 1), Y.repeat(3, 1), theta)
    torch.testing.assert_close(repeated[0], value)

    rotation = directions(3)
    turned = sliced_wasserstein2_gradient(X @ rotation.T, Y @ rotation.T, theta @ rotation.T)
    torch.testing.assert_close(turned, (value, dX @ rotation.T, dY @ rotation.T))


def test_a_shifted_cloud_in_complete_blocks_has_a_closed_form():
    X, shift = points(30), torch.tensor([1.0, -2.0, 0.5], dtype=torch.float64)
    for k in (3, 12):
        value, dX, dY = sliced_wasserstein2_gradient(X, X + shift, directions(k))
        torch.testing.assert_close(value, shift.square().sum() / 3)
        torch.testing.assert_close(dX, -2 / 90 * shift.expand(30, 3))
        torch.testing.assert_close(dY, -dX)


def test_a_step_of_the_gradient_transports_the_line():
    U, V = line(50), 2 * line(50, seed=1) + 3
    dU, _ = wasserstein2_gradient(U, V)
    moved = U - 25 * dU
    torch.testing.assert_close(moved.sort().values, V.sort().values)
    assert torch.equal(moved.argsort(), U.argsort())


def test_more_short_rows_than_one_sort_takes():
    U, V = line(600, 100), line(600, 100, seed=1)
    moved = U - 50 * wasserstein2_gradient(U, V)[0]
    torch.testing.assert_close(moved.sort().values, V.sort().values)
    torch.testing.assert_close(moved.argsort(), U.argsort())


@pytest.mark.parametrize(("n", "m"), [(50000, 50000), (50000, 30000), (40000, 10), (1, 40000)])
def test_single_precision(n, m):
    X, Y, theta = points(n), points(m, seed=1) + 0.5, directions(2)
    expected = sliced_wasserstein2_gradient(X, Y, theta)
    single = sliced_wasserstein2_gradient(X.float(), Y.float(), theta.float())
    assert all(tensor.dtype == torch.float32 for tensor in single)
    assert single[0].item() == pytest.approx(expected[0].item(), rel=3e-6)
    # A rounded projection swaps ranks of neighbours: gradients agree up to gaps between values.
    for gradient, other, size in zip(single[1:], expected[1:], (n, m), strict=True):
        typical = (size * (gradient - other)).abs().mean()
        assert typical < 2e-6 * (size * other).abs().max()


@pytest.mark.parametrize(("n", "m"), [(200000, 200000), (200000, 130000), (1, 200000), (200000, 3)])
def test_memory_is_linear(n, m):
    X, Y = points(n, 2, dtype=torch.float32), points(m, 2, seed=1, dtype=torch.float32)
    with LargestTensor() as mode:
        sliced_wasserstein2_gradient(X, Y, directions(1, 2, dtype=torch.float32))
    assert mode.entries < 3 * max(n, m)
    with LargestTensor() as mode:
        sliced_wasserstein2_gradient(X, Y, directions(20, 2, dtype=torch.float32))
    assert mode.entries <= max(_sliced.CHUNK_ENTRIES, 3 * max(n, m))


@settings(max_examples=60, deadline=None)
@given(
    n=st.integers(1, 12),
    m=st.integers(1, 12),
    d=st.integers(1, 4),
    k=st.integers(1, 6),
    p=st.sampled_from([1, 1.5, 2, 4]),
    dtype=st.sampled_from(DTYPES),
    constant=st.booleans(),
)
def test_shapes_and_bounds(n, m, d, k, p, dtype, constant):
    X, Y = points(n, d, dtype=dtype), points(m, d, seed=1, dtype=dtype)
    if constant:
        X, Y = torch.zeros_like(X), torch.ones_like(Y)
    X.requires_grad_()
    theta = directions(k, d, dtype=dtype)
    value = sliced_wasserstein(X, Y, directions=theta, p=p)
    value.backward()
    assert value.shape == ()
    assert value.dtype == X.grad.dtype == dtype
    assert X.grad.shape == X.shape
    assert torch.isfinite(X.grad).all()
    assert 0 <= value <= (theta @ (X[:, None] - Y).detach().flatten(0, 1).T).abs().max() ** p * 1.01
    if constant:
        expected = theta.sum(1).abs().pow(p).mean()
        torch.testing.assert_close(value.detach(), expected)
    assert sliced_wasserstein(X, X, directions=theta, p=p) == 0


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("m", [5, 4, 40000])
def test_points_that_are_not_finite_give_no_finite_value(bad, m):
    X, Y = points(5), points(m, seed=1)
    X[2, 1] = bad
    value, dX, _ = sliced_wasserstein2_gradient(X, Y, directions(4))
    assert not torch.isfinite(value)
    assert not torch.isfinite(dX[2]).all()


def test_directions_drawn():
    X, Y = points(8), points(6, seed=1)

    def value(seed, **options):
        generator = torch.Generator().manual_seed(seed)
        return sliced_wasserstein(X, Y, generator=generator, **options)

    before = torch.get_rng_state()
    theta = directions(7, seed=3)
    assert value(3, n_projections=7) == sliced_wasserstein(X, Y, directions=theta)
    assert value(3) == value(3) != value(4)
    assert sliced_wasserstein(X, Y) != sliced_wasserstein(X, Y)
    assert torch.equal(torch.get_rng_state(), before)
    one = value(0, n_projections=3 * 400)
    torch.testing.assert_close(one, value(1, n_projections=3 * 400), rtol=0.05, atol=0)
    # On the line there is one direction.
    x, y = X[:, :1], Y[:, :1]
    assert sliced_wasserstein(x, y, n_projections=30) == sliced_wasserstein(x, y)


def test_invalid_points():
    X, theta = points(4), directions(2)
    for call in (
        lambda X, Y: sliced_wasserstein(X, Y),
        lambda X, Y: sliced_wasserstein2_gradient(X, Y, theta),
    ):
        with pytest.raises(ValueError, match="agree in dimension"):
            call(X, points(4, 2))
        with pytest.raises(ValueError, match="agree in dimension, dtype"):
            call(X, X.float())
        with pytest.raises(ValueError, match="X must have shape"):
            call(X[:0], X)
        with pytest.raises(ValueError, match="Y must have shape"):
            call(X, X[0])
        with pytest.raises(TypeError, match="Y must be a float32 or float64"):
            call(X, X.half())
    with pytest.raises(ValueError, match="n_features must be a positive integer"):
        sliced_wasserstein(X[:, :0], X[:, :0])


def test_invalid_options():
    X, theta = points(4), directions(2)
    for bad in (0.5, 0, -1.0, math.inf, math.nan):
        with pytest.raises(ValueError, match="p must be"):
            sliced_wasserstein(X, X, p=bad)
    with pytest.raises(TypeError, match="p must be"):
        sliced_wasserstein(X, X, p="2")
    with pytest.raises(ValueError, match="n_projections must be"):
        sliced_wasserstein(X, X, n_projections=0)
    for bad in (theta[0], theta[:, :2], theta[:0], theta.float(), theta.numpy(), theta.T):
        for call in (
            lambda bad: sliced_wasserstein(X, X, directions=bad),
            lambda bad: sliced_wasserstein2_gradient(X, X, bad),
        ):
            with pytest.raises(ValueError, match=r"directions must be a tensor of shape \(k, 3\)"):
                call(bad)
    for bad in (2 * theta, 0 * theta, math.nan * theta, (1 + 1e-4) * theta):
        with pytest.raises(ValueError, match="rows of unit norm"):
            sliced_wasserstein(X, X, directions=bad)


def test_invalid_values_on_the_line():
    U = line(4)
    with pytest.raises(ValueError, match="U must have shape"):
        wasserstein2_gradient(U[:0], U)
    with pytest.raises(ValueError, match="V must have shape"):
        wasserstein2_gradient(U, U[0])
    with pytest.raises(ValueError, match="agree in batch shape"):
        wasserstein2_gradient(line(2, 4), line(3, 4))
    with pytest.raises(ValueError, match="agree in batch shape"):
        wasserstein2_gradient(U, line(1, 4))
    with pytest.raises(ValueError, match="dtype"):
        wasserstein2_gradient(U, U.float())
    for bad in (U.numpy(), U.long(), U.half()):
        with pytest.raises(TypeError, match="V must be a float32 or float64"):
            wasserstein2_gradient(U, bad)


@pytest.mark.gpu
@pytest.mark.parametrize("p", [1, 2, 3])
@pytest.mark.parametrize(("n", "m"), [(3000, 3000), (3000, 2000), (7, 50000)])
def test_gpu_agrees_with_cpu(n, m, p):
    X, Y, theta = points(n), points(m, seed=1), directions(11)
    results = []
    for device in ("cpu", "cuda"):
        x, y = X.to(device).requires_grad_(), Y.to(device).requires_grad_()
        value = sliced_wasserstein(x, y, directions=theta.to(device), p=p)
        value.backward()
        assert value.device == x.grad.device == x.device
        results.append((value.detach().cpu(), x.grad.cpu(), y.grad.cpu()))
    torch.testing.assert_close(*results)
    zeros, V = torch.zeros(n, device="cuda"), torch.arange(n, dtype=torch.float32, device="cuda")
    torch.testing.assert_close(wasserstein2_gradient(zeros, V)[0], -2 / n * V)
    assert sliced_wasserstein(X.cuda(), Y.cuda()).is_cuda
