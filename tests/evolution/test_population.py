"""Populations: predicted slices, the loss and its gradient, the descent, and conditions."""

import numpy as np
import pandas as pd
import pytest
import torch
from numpy.testing import assert_allclose, assert_array_equal

from sklearn_dpgen.domains import OneHot, Product
from sklearn_dpgen.evolution import _population
from sklearn_dpgen.evolution._conditions import condition_values, draw_equal, restrict_rows
from sklearn_dpgen.evolution._marginals import ProductMixture
from sklearn_dpgen.evolution._population import Population, SliceLoss, predicted_slices
from sklearn_dpgen.evolution._slices import all_pairs, slice_counts
from sklearn_dpgen.preprocessing import TabularEncoder
from sklearn_dpgen.schema import Categorical, Datetime, Numeric, Schema

SIZES = [3, 2, 4, 2]
SLICES = [(0,), (1,), (2,), (3,), (0, 1), (2, 0), (1, 3), (0, 1, 2), (3, 2, 1)]
WEIGHTS = [1.0, 0.5, 2.0, 1.0, 3.0, 0.7, 1.0, 2.0, 0.3]
PARTS = [slice(stop - size, stop) for size, stop in zip(SIZES, np.cumsum(SIZES), strict=True)]
CPU = torch.device("cpu")


def soft_rows(n=7, seed=0):
    rng = np.random.default_rng(seed)
    return np.hstack([rng.dirichlet(np.full(size, 0.5), size=n) for size in SIZES])


def noisy_tables(slices=SLICES, seed=1):
    rng = np.random.default_rng(seed)
    return [rng.normal(size=[SIZES[column] for column in columns]) for columns in slices]


def naive_slice(P, columns):
    blocks = [P[:, PARTS[column]] for column in columns]
    letters = "abc"[: len(columns)]
    inputs = ",".join(f"n{letter}" for letter in letters)
    return np.einsum(f"{inputs}->{letters}", *blocks) / len(P)


def naive_loss(P, slices, tables, weights):
    return sum(
        weight * ((naive_slice(P, columns) - table) ** 2).sum()
        for columns, table, weight in zip(slices, tables, weights, strict=True)
    )


def evaluated(P, slices=SLICES, tables=None, weights=WEIGHTS):
    tables = noisy_tables() if tables is None else tables
    loss = SliceLoss(SIZES, slices, tables, weights, CPU)
    value, gradient = loss(torch.tensor(np.ascontiguousarray(P.T), dtype=torch.float32))
    return value.item(), gradient.numpy().T


def test_slices_of_hard_rows_are_their_counts():
    rng = np.random.default_rng(0)
    codes = np.column_stack([rng.integers(size, size=50) for size in SIZES])
    P = np.hstack([np.eye(size)[column] for size, column in zip(SIZES, codes.T, strict=True)])
    counts = slice_counts(codes, SIZES, SLICES)
    for found, table in zip(predicted_slices(P, SIZES, SLICES), counts, strict=True):
        assert_allclose(found, table / 50, rtol=0, atol=1e-15)
    assert evaluated(P, tables=[table / 50 for table in counts])[0] < 1e-12


def test_slices_of_soft_rows():
    P = soft_rows()
    for columns, found in zip(SLICES, predicted_slices(P, SIZES, SLICES), strict=True):
        assert_allclose(found, naive_slice(P, columns), atol=1e-14)
    torch.set_grad_enabled(True)
    assert_array_equal(predicted_slices(torch.tensor(P), SIZES, [(0, 1)])[0].shape, (3, 2))


@pytest.mark.parametrize("block", [1, 30, 1 << 20])
@pytest.mark.parametrize("part", [slice(None), slice(4), slice(4, 7), slice(7, None)], ids=str)
def test_the_loss_and_its_gradient(monkeypatch, block, part):
    monkeypatch.setattr(_population, "_BLOCK", block)
    P, tables = soft_rows(), noisy_tables()
    given = SLICES[part], tables[part], WEIGHTS[part]
    value, gradient = evaluated(P, *given)
    assert value == pytest.approx(naive_loss(P, *given), rel=1e-5)
    numerical = np.zeros_like(P)
    for where in np.ndindex(P.shape):
        for sign in (1, -1):
            moved = P.copy()
            moved[where] += sign * 1e-4
            numerical[where] += sign * naive_loss(moved, *given) / 2e-4
    assert_allclose(gradient, numerical, atol=1e-5)


def test_a_pair_counted_twice_is_another_loss():
    """What a sum over both halves of a symmetric matrix would do, were it not halved."""
    P, tables = soft_rows(), noisy_tables()
    doubled = [weight * (1 + (len(c) == 2)) for c, weight in zip(SLICES, WEIGHTS, strict=True)]
    value, gradient = evaluated(P)
    twice, steeper = evaluated(P, weights=doubled)
    assert value == pytest.approx(naive_loss(P, SLICES, tables, WEIGHTS), rel=1e-5)
    assert twice > 1.1 * naive_loss(P, SLICES, tables, WEIGHTS)
    assert abs(steeper - gradient).max() > 0.1 * abs(gradient).max()


def test_the_descent_follows_the_gradient_of_the_logits():
    P, tables = soft_rows(), noisy_tables()
    loss = SliceLoss(SIZES, SLICES, tables, WEIGHTS, CPU)
    population = Population([np.full(size, 1 / size) for size in SIZES], 7, torch.Generator(), CPU)
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
        patch.setattr(_population, "descend", spy)
        population.fit(loss, max_iter=1, learning_rate=1.0)
    (found, (gradient,)) = seen[0]
    assert found == pytest.approx(value.item())
    assert_allclose(gradient * max(WEIGHTS) / 7, expected, atol=1e-6)


def test_exact_pairs_are_recovered():
    rng = np.random.default_rng(0)
    codes = np.column_stack(
        [rng.integers(3, size=400), rng.integers(2, size=400), np.zeros((400, 2))]
    )
    codes = codes.astype(int)
    codes[:, 2] = codes[:, 0] + codes[:, 1]
    slices = all_pairs(4)
    tables = [table / 400 for table in slice_counts(codes, SIZES, slices)]
    marginals = [np.bincount(codes[:, i], minlength=s) / 400 for i, s in enumerate(SIZES)]

    def error(tables):
        population = Population(marginals, 60, torch.Generator().manual_seed(0), CPU)
        loss = SliceLoss(SIZES, slices, tables, [1.0] * 6, CPU)
        result = population.fit(loss, max_iter=400, learning_rate=0.3)
        assert result.n_iter == 400
        found = predicted_slices(population.probabilities(), SIZES, slices)
        return max(np.abs(f - t).max() for f, t in zip(found, tables, strict=True)), result

    exact, result = error(tables)
    assert exact < 5e-3
    assert result.loss_curve[-1] < 1e-3 * result.loss_curve[0]
    # Tables that no law has are not reached.
    assert error([tables[0][::-1], *tables[1:]])[0] > 2e-2


def test_a_fit_goes_on_from_where_it_stands():
    tables = predicted_slices(soft_rows(200), SIZES, SLICES)
    loss = SliceLoss(SIZES, SLICES, tables, WEIGHTS, CPU)
    population = Population(tables[:4], 30, torch.Generator().manual_seed(0), CPU)
    start = population.probabilities()
    assert start.shape == (30, 11)
    first = population.fit(loss, max_iter=60, learning_rate=0.3).loss_curve
    second = population.fit(loss, max_iter=2, learning_rate=1e-3).loss_curve
    assert second[0] < 0.2 * first[0]
    assert_allclose(second[0], first[-1], rtol=0.1)
    rows = population.probabilities()
    assert_allclose([rows[:, part].sum(axis=1) for part in PARTS], 1)
    assert np.abs(rows - start).max() > 0.1


def test_rows_start_around_noisy_marginals():
    shares = [np.array([0.7, -0.2, 0.4]), np.array([0.9, 0.1])]
    rows = Population(shares, 4000, torch.Generator().manual_seed(0), CPU).probabilities()
    assert rows[:, 1].max() < 1e-3
    assert abs(rows[:, 3].mean() - 0.85) < 0.05
    assert rows.std(axis=0)[[0, 2, 3]].min() > 0.05


# Conditions.

LAW = ProductMixture(
    Product([OneHot(2), OneHot(3)]),
    np.array([0.25, 0.75]),
    np.array([[0.5, 0.5, 0.2, 0.8, 0.0], [0.9, 0.1, 0.0, 0.5, 0.5]]),
)


def joint(law):
    return np.einsum("n,na,nb->ab", law.shares, law.probabilities[:, :2], law.probabilities[:, 2:])


def test_a_condition_is_that_of_the_joint_law():
    whole = joint(LAW)
    for rows, columns in (([1], [0, 1, 2]), ([0, 1], [2]), ([0], [0, 2]), ([1], [0])):
        law = restrict_rows(LAW, [(slice(0, 2), rows), (slice(2, 5), columns)])
        expected = np.zeros_like(whole)
        expected[np.ix_(rows, columns)] = whole[np.ix_(rows, columns)]
        assert_allclose(joint(law), expected / expected.sum())
        assert law.shares.sum() == pytest.approx(1)
        assert_allclose(law.probabilities[:, 2:].sum(axis=1), 1)
    assert restrict_rows(LAW, []).shares is not None
    assert_allclose(joint(restrict_rows(LAW, [])), whole)


def test_an_impossible_condition_has_no_law():
    law = ProductMixture(LAW.domain, np.ones(1), np.array([[1.0, 0.0, 1e-10, 0.5, 0.5 - 1e-10]]))
    assert restrict_rows(law, [(slice(0, 2), [1])]) is None
    assert restrict_rows(law, [(slice(2, 5), [0])]) is None
    assert restrict_rows(law, [(slice(0, 2), [0])]) is not None


def test_equal_positions_are_drawn_alike():
    codes, rng = np.array([3, 1, 3, 2]), np.random.default_rng(0)
    places = draw_equal(codes, np.repeat([1, 3], [10, 4000]), rng)
    assert set(places[:10]) == {1}
    assert abs((places[10:] == 0).mean() - 0.5) < 5 * 0.5 / np.sqrt(4000)
    assert set(places[10:]) == {0, 2}


SCHEMA = Schema(
    {
        "age": Numeric(0, 100, integer=True),
        "pay": Numeric(0, 1, nullable=True),
        "job": Categorical(["baker", "nurse"]),
        "day": Datetime("2020-01-01", "2020-12-31", resolution="D"),
    }
)
ENCODER = TabularEncoder(SCHEMA, bins=4).fit()
DAY = pd.Timestamp("2020-02-29")


def test_values_of_conditions():
    given = {"age": [30, np.int64(99)], "pay": [0.3, None], "job": "nurse", "day": [DAY]}
    found = condition_values(ENCODER, given)
    assert {name: list(codes) for name, (codes, _) in found.items()} == {
        "age": [1, 3],
        "pay": [1, 4],
        "job": [1],
        "day": [0],
    }
    for name, (_, values) in found.items():
        assert values.dtype == ENCODER.dtypes_[name]
    assert list(found["age"][1]) == [30, 99]
    assert_allclose(found["pay"][1], [0.3, np.nan])
    assert list(found["day"][1]) == [DAY]
    assert list(condition_values(ENCODER, {"day": DAY.tz_localize("UTC")})["day"][1]) == [DAY]
    assert condition_values(ENCODER, None) == condition_values(ENCODER, {}) == {}


@pytest.mark.parametrize(
    ("conditions", "message"),
    [({"salary": 3}, "'salary'"), ({"age": 101}, "'age' hold a value"), ({"age": -1}, "'age'")]
    + [({"age": 30.5}, "'age'"), ({"age": "old"}, "'age'"), ({"age": None}, "'age'")]
    + [
        ({"job": "pilot"}, "'job'"),
        ({"job": []}, "'job' are impossible"),
        ({"age": [3, 101]}, "'age'"),
    ]
    + [
        ({"day": DAY + pd.Timedelta(12, "h")}, "'day'"),
        ({"day": pd.Timestamp("2031-01-01")}, "'day'"),
    ]
    + [({"pay": np.inf}, "'pay'"), (["job"], "map columns to values")],
    ids=str,
)
def test_conditions_that_nothing_declares(conditions, message):
    with pytest.raises(ValueError, match=message):
        condition_values(ENCODER, conditions)
