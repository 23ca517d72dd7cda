"""Ground costs and the losses computed by POT and geomloss."""

import pytest
import torch
from geomloss import SamplesLoss
from scipy.optimize import linear_sum_assignment

from sklearn_dpgen.ot import entropic_loss, sinkhorn, sinkhorn_divergence
from sklearn_dpgen.ot._losses import wasserstein_loss
from sklearn_dpgen.ot._problem import pairwise_cost


def points(n, d=2, seed=0):
    return torch.randn(n, d, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


@pytest.mark.parametrize("p", [1, 2])
@pytest.mark.parametrize("d", [1, 3])
def test_pairwise_cost(p, d):
    X, Y = points(6, d).requires_grad_(), points(5, d, seed=1).requires_grad_()
    expected = (X[:, None] - Y).abs().pow(p).sum(-1)
    torch.testing.assert_close(pairwise_cost(X, Y, p), expected)
    assert torch.autograd.gradcheck(lambda x, y: pairwise_cost(x, y, p), (X, Y))


def test_squared_cost_far_from_the_origin():
    X, Y = points(6).float() + 1000, points(5, seed=1).float() + 1000
    expected = (X[:, None] - Y).square().sum(-1)
    torch.testing.assert_close(pairwise_cost(X, Y, 2), expected, rtol=1e-4, atol=1e-4)
    assert (pairwise_cost(X, X, 2) >= 0).all()


@pytest.mark.parametrize("p", [1, 2])
def test_wasserstein_is_the_best_assignment(p):
    X, Y = points(20), points(20, seed=1)
    cost = (X[:, None] - Y).abs().pow(p).sum(-1)
    expected = cost[linear_sum_assignment(cost)].mean()
    torch.testing.assert_close(wasserstein_loss(X, Y, p), expected)


@pytest.mark.parametrize("p", [1, 2])
def test_wasserstein_gradient(p):
    X, Y = points(5).requires_grad_(), points(3, seed=1).requires_grad_()
    assert torch.autograd.gradcheck(lambda x, y: wasserstein_loss(x, y, p), (X, Y))


@pytest.mark.slow
def test_wasserstein_of_many_points_and_of_float32():
    X = points(1500).float()
    shift = torch.tensor([2.0, -1.0])
    torch.testing.assert_close(wasserstein_loss(X, X + shift, 2), torch.tensor(5.0))
    torch.testing.assert_close(wasserstein_loss(X, X + shift, 1), torch.tensor(3.0))


def definition(X, Y, p, reg):
    def transport(A, B):
        return entropic_loss(pairwise_cost(A, B, p), reg=reg, tol=1e-10, n_iter=20000)

    return transport(X, Y) - transport(X, X) / 2 - transport(Y, Y) / 2


@pytest.mark.parametrize(("p", "reg"), [(1, 0.5), (1, 5.0), (2, 1.0), (2, 10.0)])
def test_sinkhorn_divergence_is_its_definition(p, reg):
    X, Y = points(40).requires_grad_(), points(30, seed=1) + 0.5
    expected = definition(X, Y, p, reg)
    value = sinkhorn_divergence(X, Y, p, reg=reg, scaling=0.99)
    torch.testing.assert_close(value, expected, rtol=1e-3, atol=1e-4)
    (expected_gradient,) = torch.autograd.grad(expected, X)
    (gradient,) = torch.autograd.grad(value, X)
    scale = expected_gradient.abs().max().item()
    torch.testing.assert_close(gradient, expected_gradient, rtol=0, atol=2e-2 * scale)


@pytest.mark.parametrize("p", [1, 2])
def test_sinkhorn_divergence_is_not_what_geomloss_does_by_default(p):
    X, Y = points(40), points(30, seed=1) + 0.5
    naive = SamplesLoss("sinkhorn", p=p, blur=1.0, scaling=0.99)(X, Y)
    expected = definition(X, Y, p, 1.0)
    assert abs(naive - expected) > 0.1 * expected


def test_sinkhorn_divergence_degenerate_and_without_gradient():
    X = points(1).repeat(4, 1)
    assert sinkhorn_divergence(X, X, 1).item() == pytest.approx(0, abs=1e-12)
    with torch.no_grad():
        value = sinkhorn_divergence(X.requires_grad_(), X + 2)
        assert not torch.is_grad_enabled()
    assert not value.requires_grad
    assert value.item() == pytest.approx(8)


def test_debiasing_is_what_makes_it_vanish_on_equal_clouds():
    X = points(30)
    assert sinkhorn_divergence(X, X, 2).item() == pytest.approx(0, abs=1e-9)
    assert sinkhorn(pairwise_cost(X, X, 2)).value > 0.5


@pytest.mark.parametrize("loss", [wasserstein_loss, sinkhorn_divergence])
def test_invalid_arguments(loss):
    X = points(4)
    with pytest.raises(ValueError, match="p must be 1 or 2"):
        loss(X, X, 3)
    with pytest.raises(ValueError, match="agree in dimension"):
        loss(X, X.float(), 2)
