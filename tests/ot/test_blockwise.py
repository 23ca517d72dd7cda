"""The linear-memory solver against the dense one."""

import math

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from sklearn_dpgen.ot import entropic_loss, sinkhorn
from sklearn_dpgen.ot._blockwise import entropic_loss_blockwise, sinkhorn_blockwise
from sklearn_dpgen.ot._problem import pairwise_cost


def points(n, d=2, seed=0, dtype=torch.float64):
    return torch.randn(n, d, generator=torch.Generator().manual_seed(seed), dtype=dtype)


def weights(n, seed):
    a = torch.rand(n, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    a[:3] = 0
    return a / a.sum()


def l1(X, Y):
    return pairwise_cost(X, Y, 1)


class LargestTensor(TorchDispatchMode):
    """Records the most entries of any tensor that an operation returns."""

    entries = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        for tensor in out if isinstance(out, tuple | list) else (out,):
            if isinstance(tensor, torch.Tensor):
                self.entries = max(self.entries, tensor.numel())
        return out


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("block_entries", [1, 700, 10**6])
def test_same_as_dense(weighted, block_entries):
    X, Y = points(40), points(30, seed=1)
    a, b = (weights(40, 2), weights(30, 3)) if weighted else (None, None)
    options = {"reg": 0.3, "tol": 1e-11, "n_iter": 20000}
    dense = sinkhorn(l1(X, Y), a, b, **options)
    blocks = sinkhorn_blockwise(X, Y, l1, a, b, block_entries=block_entries, **options)
    shift = dense.f[5] - blocks.f[5]
    torch.testing.assert_close(blocks.f + shift, dense.f)
    torch.testing.assert_close(blocks.g - shift, dense.g)
    assert blocks.value == pytest.approx(dense.value, abs=1e-9)
    assert blocks.marginal_error <= 1e-11


def test_marginals_before_convergence():
    X, Y = points(40), points(30, seed=1)
    result = sinkhorn_blockwise(X, Y, l1, reg=0.05, tol=0, n_iter=6, block_entries=90)
    plan = ((result.f[:, None] + result.g - l1(X, Y)) / 0.05).exp() / (40 * 30)
    assert result.n_iter == 6
    assert result.marginal_error > 0.01
    assert result.marginal_error == pytest.approx((plan.sum(1) - 1 / 40).abs().sum().item())
    torch.testing.assert_close(plan.sum(0), torch.full_like(result.g, 1 / 30))


@pytest.mark.slow
def test_float32_with_a_spread_beyond_the_range_of_the_kernel():
    X, Y = points(50, dtype=torch.float32), points(40, seed=1, dtype=torch.float32)
    options = {"reg": 0.01, "tol": 1e-4, "n_iter": 5000}
    assert (torch.exp(-l1(X, Y) / 0.01) == 0).all(1).any()
    dense = sinkhorn(l1(X, Y).double(), **options)
    blocks = sinkhorn_blockwise(X, Y, l1, block_entries=200, **options)
    assert blocks.f.dtype == torch.float32
    assert blocks.marginal_error <= 1e-4
    assert blocks.value == pytest.approx(dense.value, abs=1e-4)


@pytest.mark.parametrize("weighted", [False, True])
def test_gradient_same_as_dense(weighted):
    X, Y = points(30).requires_grad_(), points(25, seed=1)
    a, b = (weights(30, 2), weights(25, 3)) if weighted else (None, None)
    options = {"reg": 0.5, "tol": 1e-10}
    dense = entropic_loss(l1(X, Y), a, b, **options)
    (expected,) = torch.autograd.grad(2 * dense, X)
    loss = entropic_loss_blockwise(X, Y, l1, a, b, block_entries=100, **options)
    (gradient,) = torch.autograd.grad(2 * loss, X)
    torch.testing.assert_close(loss, dense)
    torch.testing.assert_close(gradient, expected)


@pytest.mark.slow
def test_gradcheck():
    X, Y = points(5).requires_grad_(), points(4, seed=1)

    def loss(X):
        return entropic_loss_blockwise(
            X, Y, lambda x, y: pairwise_cost(x, y, 2), tol=1e-13, block_entries=8
        )

    assert torch.autograd.gradcheck(loss, (X,))


def test_no_large_tensor_is_allocated():
    n, m, block_entries = 600, 500, 4000
    X, Y = points(n).requires_grad_(), points(m, seed=1)
    shapes = []

    def cost(X_block, Y_block):
        shapes.append((len(X_block), len(Y_block)))
        return l1(X_block, Y_block)

    with LargestTensor() as mode:
        entropic_loss_blockwise(X, Y, cost, n_iter=3, block_entries=block_entries).backward()
    assert mode.entries <= block_entries
    assert max(rows * columns for rows, columns in shapes) <= block_entries
    assert sum(rows for rows, _ in shapes) % n == 0
    with LargestTensor() as mode:
        entropic_loss(l1(X, Y), n_iter=3)
    assert mode.entries == n * m


@pytest.mark.slow
def test_twenty_thousand_points():
    X, Y = points(20000, dtype=torch.float32), points(20000, seed=1, dtype=torch.float32)
    X.requires_grad_()
    with LargestTensor() as mode:
        loss = entropic_loss_blockwise(X, Y, l1, tol=1e-2)
        loss.backward()
    assert mode.entries <= 2**20
    assert torch.isfinite(X.grad).all()
    # Two samples of one law: the loss is close to that of smaller samples.
    small = sinkhorn(l1(points(2000, seed=2), points(2000, seed=3)))
    assert loss.item() == pytest.approx(small.value, abs=0.05)


def test_invalid_arguments():
    X, Y = points(4), points(3)
    with pytest.raises(ValueError, match="finite costs"):
        sinkhorn_blockwise(X, Y, lambda x, y: l1(x, y) * math.nan)
    with pytest.raises(ValueError, match=r"shape \(4, 3\)"):
        sinkhorn_blockwise(X, Y, lambda x, y: l1(x, y).t())
    with pytest.raises(ValueError, match="block_entries"):
        sinkhorn_blockwise(X, Y, l1, block_entries=0)
    with pytest.raises(ValueError, match="agree in dimension"):
        sinkhorn_blockwise(X, points(3, d=5), l1)
    with pytest.raises(ValueError, match="X must have shape"):
        sinkhorn_blockwise(X[:0], Y, l1)
    with pytest.raises(TypeError, match="Y must be"):
        sinkhorn_blockwise(X, Y.numpy(), l1)
    tiny = torch.full((20,), 1e-44)
    tiny[0] = 1
    cloud = points(20, dtype=torch.float32)
    with pytest.raises(RuntimeError, match="weights are too small"):
        sinkhorn_blockwise(cloud, cloud.flip(0), l1, tiny, tiny.flip(0), reg=1e-3)
