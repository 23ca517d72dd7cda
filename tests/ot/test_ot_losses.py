"""Envelope gradients, and the likelihood as semi-relaxed transport."""

import math

import pytest
import torch

from sklearn_dpgen.ot import entropic_loss, sinkhorn
from sklearn_dpgen.ot._losses import likelihood_loss


def rand(*shape, seed=0):
    return torch.rand(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


@pytest.mark.parametrize("weighted", [False, True])
def test_entropic_gradient_is_exact(weighted):
    cost = (8 * rand(5, 4)).requires_grad_()
    a = b = None
    if weighted:
        a, b = rand(5, seed=1), rand(4, seed=2)
        a[2] = 0
        a, b = a / a.sum(), b / b.sum()
    options = {"reg": 0.7, "tol": 1e-13, "n_iter": 5000}
    assert torch.autograd.gradcheck(lambda c: entropic_loss(c, a, b, **options), (cost,))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_entropic_gradient_is_the_plan_also_before_convergence(dtype):
    cost = (20 * rand(30, 20)).to(dtype).requires_grad_()
    loss = entropic_loss(cost, n_iter=3)
    assert loss.shape == ()
    assert loss.dtype == dtype
    (3 * loss).backward()
    result = sinkhorn(cost, n_iter=3)
    assert result.marginal_error > 1e-3
    assert torch.equal(cost.grad, 3 * result.plan)
    assert loss.item() == pytest.approx(result.value)


def test_entropic_loss_trains_points_through_a_cost():
    X, Y = rand(40, 2).requires_grad_(), rand(50, 2, seed=1) + 3
    for _ in range(60):
        loss = entropic_loss((X[:, None] - Y).square().sum(-1), reg=0.1)
        (gradient,) = torch.autograd.grad(loss, X)
        X = (X.detach() - 10 * gradient).requires_grad_()
    torch.testing.assert_close(X.mean(0), Y.mean(0), atol=1e-2, rtol=0)


def test_likelihood_is_the_semi_relaxed_value():
    log_likelihood = -10 * rand(7, 5)
    value = likelihood_loss(log_likelihood)

    def objective(conditional):
        """<pi, C> + KL(pi | a x b) for pi with column sums 1/5 and the given conditionals."""
        terms = conditional * (conditional.log() + math.log(7) - log_likelihood)
        return (terms.sum(0) / 5).sum()

    best = torch.softmax(log_likelihood, 0)
    torch.testing.assert_close(objective(best), value)
    for seed in range(20):
        other = best * (0.5 + rand(7, 5, seed=seed))
        assert objective(other / other.sum(0)) > value


def test_likelihood_is_a_lower_bound_and_sharp_when_the_rows_balance():
    for seed in range(10):
        cost = 10 * rand(9, 6, seed=seed)
        assert likelihood_loss(-cost) < sinkhorn(cost, tol=1e-9).value
    # A circulant matrix has balanced posteriors: dropping the row constraint changes nothing.
    row = 10 * rand(8)
    circulant = torch.stack([row.roll(k) for k in range(8)])
    assert likelihood_loss(-circulant).item() == pytest.approx(sinkhorn(circulant).value)


def test_likelihood_gradient_and_impossible_pairs():
    log_likelihood = (-5 * rand(4, 3)).requires_grad_()
    assert torch.autograd.gradcheck(likelihood_loss, (log_likelihood,))
    # A perfect mechanism: records seen only from their own component.
    exact = torch.full((3, 3), -math.inf).fill_diagonal_(0.0).requires_grad_()
    loss = likelihood_loss(exact)
    loss.backward()
    assert loss.item() == pytest.approx(math.log(3))
    torch.testing.assert_close(exact.grad, -torch.eye(3) / 3)


@pytest.mark.parametrize("shape", [(3,), (0, 3), (3, 0)])
def test_likelihood_needs_a_matrix(shape):
    with pytest.raises(ValueError, match="log_likelihood must have shape"):
        likelihood_loss(torch.zeros(shape))
