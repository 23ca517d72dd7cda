"""Populations: the descent of a loss."""

from itertools import combinations

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose

from sklearn_dpgen.tables import _answer_fit
from sklearn_dpgen.tables._answer_fit import Population

SIZES = [3, 2, 4, 2]
SLICES = [(0,), (1,), (2,), (3,), (0, 1), (2, 0), (1, 3), (0, 1, 2), (3, 2, 1)]
WEIGHTS = [1.0, 0.5, 2.0, 1.0, 3.0, 0.7, 1.0, 2.0, 0.3]
PARTS = [slice(stop - size, stop) for size, stop in zip(SIZES, np.cumsum(SIZES), strict=True)]
CPU = torch.device("cpu")


def soft_rows(n=7, seed=0):
    rng = np.random.default_rng(seed)
    return np.hstack([rng.dirichlet(np.full(size, 0.5), size=n) for size in SIZES])


def noisy_tables(marginals=SLICES, seed=1):
    rng = np.random.default_rng(seed)
    return [rng.normal(size=[SIZES[column] for column in columns]) for columns in marginals]


def tables_of(P, marginals=SLICES):
    """Return the expected shares of the cells of marginals, of rows of shape (n, 11)."""
    P, letters = torch.as_tensor(P), "abc"
    found = []
    for columns in marginals:
        axes = letters[: len(columns)]
        inputs = ",".join(f"n{letter}" for letter in axes)
        blocks = [P[:, PARTS[column]] for column in columns]
        found.append(torch.einsum(f"{inputs}->{axes}", *blocks) / len(P))
    return found


class SliceLoss:
    """Weighted squared distance of the marginals of a population from tables."""

    def __init__(self, marginals, tables, weights):
        self.scale, self._slices, self._weights = max(weights), marginals, weights
        self._tables = [torch.tensor(np.ascontiguousarray(table)) for table in tables]

    @torch.enable_grad()
    def __call__(self, P):
        P = P.detach().requires_grad_()
        found = zip(tables_of(P.T, self._slices), self._tables, self._weights, strict=True)
        loss = sum(weight * (ours - table).square().sum() for ours, table, weight in found)
        return loss.detach(), *torch.autograd.grad(loss, P)


def test_the_descent_follows_the_gradient_of_the_logits():
    P, tables = soft_rows(), noisy_tables()
    loss = SliceLoss(SLICES, tables, WEIGHTS)
    population = Population(SIZES, 7, torch.Generator(), CPU)
    with torch.no_grad():
        population.logits.copy_(torch.tensor(np.log(P.T)))
    logits = population.logits.detach().clone().requires_grad_()
    rows = torch.cat([part.softmax(dim=0) for part in logits.split(SIZES)])
    assert_allclose(rows.detach().T, P, atol=1e-6)
    value, slope = loss(rows.detach())
    (expected,) = torch.autograd.grad(rows, logits, slope)
    seen = []

    def spy(module, gradient_fn, **options):
        seen.append(gradient_fn(0))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_answer_fit, "descend", spy)
        population.fit(loss, max_iter=1, learning_rate=1.0)
    (found, (gradient,)) = seen[0]
    assert found == pytest.approx(value.item())
    assert_allclose(gradient * max(WEIGHTS) / 7, expected, atol=1e-6)


@pytest.mark.slow
def test_exact_pairs_are_recovered():
    rng = np.random.default_rng(0)
    codes = [rng.integers(3, size=400), rng.integers(2, size=400)]
    codes += [codes[0] + codes[1], np.zeros(400, dtype=int)]
    marginals = list(combinations(range(4), 2))
    hard = np.hstack([np.eye(size)[column] for size, column in zip(SIZES, codes, strict=True)])
    tables = [table.numpy() for table in tables_of(hard, marginals)]

    def error(tables):
        population = Population(SIZES, 60, torch.Generator().manual_seed(0), CPU)
        loss = SliceLoss(marginals, tables, [1.0] * 6)
        result = population.fit(loss, max_iter=500, learning_rate=0.3)
        assert result.n_iter == 500
        found = tables_of(population.probabilities(), marginals)
        return max(np.abs(f.numpy() - t).max() for f, t in zip(found, tables, strict=True)), result

    exact, result = error(tables)
    assert exact < 5e-3
    assert result.loss_curve[-1] < 1e-3 * result.loss_curve[0]
    # Tables that no law has are not reached.
    assert error([tables[0][::-1], *tables[1:]])[0] > 2e-2


def test_a_fit_goes_on_from_where_it_stands():
    tables = [table.numpy() for table in tables_of(soft_rows(200))]
    loss = SliceLoss(SLICES, tables, WEIGHTS)
    population = Population(SIZES, 30, torch.Generator().manual_seed(0), CPU)
    start = population.probabilities()
    assert start.shape == (30, 11)
    first = population.fit(loss, max_iter=60, learning_rate=0.3).loss_curve
    second = population.fit(loss, max_iter=2, learning_rate=1e-3).loss_curve
    assert second[0] < 0.2 * first[0]
    assert_allclose(second[0], first[-1], rtol=0.1)
    rows = population.probabilities()
    assert_allclose([rows[:, part].sum(axis=1) for part in PARTS], 1)
    assert np.abs(rows - start).max() > 0.1


def test_rows_start_around_even_shares():
    rows = Population([3, 2, 1], 4000, torch.Generator().manual_seed(0), CPU).probabilities()
    assert_allclose(rows.mean(axis=0), [1 / 3] * 3 + [1 / 2] * 2 + [1], atol=0.01)
    assert rows.std(axis=0)[:5].min() > 0.03
