"""How many columns are asked, and what is expected of the answers."""

import itertools

import numpy as np
import pandas as pd
import pytest
from joint_cases import SCHEMA
from local_privacy import log_likelihood, vertices

from sklearn_dpgen.mechanisms import JointRandomizedResponse
from sklearn_dpgen.schema import Categorical, Schema

SIZES = 4, 2, 7, 3, 2
MIXED = Schema({name: Categorical(range(k)) for name, k in zip("abcde", SIZES, strict=True)})


def variation(schema, epsilon, n=1000, **options):
    fitted = JointRandomizedResponse(epsilon, schema=schema, **options).fit()
    return fitted.expected_variation(n)


def errors_of_pairs(schema, epsilon, always=(), weights=None):
    """Return what the documented rule compares, of all numbers that can be asked."""
    weight = pd.Series({name: (weights or {}).get(name, 1.0) for name in schema})
    total = {}
    for n_asked in range(max(2, len(always) + 1), len(schema) + 1):
        options = {"n_asked": n_asked, "always": always, "weights": weights}
        try:
            table = variation(schema, epsilon, **options)
        except ValueError:
            break
        pairs = [
            (a, b)
            for a, b in itertools.combinations(schema, 2)
            if not always or a in always or b in always
        ]
        total[n_asked] = sum(table.loc[a, b] * weight[a] * weight[b] for a, b in pairs)
    return total


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 4.0, 6.0, 8.0, 10.0])
@pytest.mark.parametrize(
    "options",
    [{}, {"always": ["c"]}, {"always": ["a", "b"]}, {"weights": {"a": 5.0, "c": 0.2}}],
    ids=["equal", "one always", "two always", "weights"],
)
def test_the_number_is_that_of_the_least_expected_error_of_pairs(epsilon, options):
    fitted = JointRandomizedResponse(epsilon, schema=MIXED, **options).fit()
    errors = errors_of_pairs(MIXED, epsilon, **options)
    assert len(errors) > 1
    # Both are sums over drawn questions.
    best = {n_asked for n_asked, error in errors.items() if error < 1.03 * min(errors.values())}
    assert fitted.n_asked_ in best
    assert len(best) < len(errors)


def test_more_is_asked_with_larger_budgets():
    numbers = [
        JointRandomizedResponse(epsilon, schema=MIXED).fit().n_asked_
        for epsilon in (1e-50, 0.1, 1.0, 3.0, 7.0, 10.0, 1e5, np.inf)
    ]
    assert numbers == sorted(numbers)
    assert numbers[:3] == [2] * 3
    assert numbers[-1] == 5


def test_a_seed_of_the_mechanism_is_no_matter():
    tables = [variation(MIXED, 1.0, random_state=seed) for seed in (None, 0, 1)]
    for table in tables[1:]:
        pd.testing.assert_frame_equal(table, tables[0])


def estimates(schema, epsilon, n_questions, **options):
    """Return questions with all answers to them, and what an unbiased estimate adds for each.

    Returns
    -------
    probabilities : list of ndarray of shape (n_answers,)
        Of each question, where the records are even.
    values : list of ndarray of shape (n_answers, *sizes)
        Estimates of the shares of all records from one answer.
    """
    fitted = JointRandomizedResponse(epsilon, schema=schema, random_state=0, **options).fit()
    corners = vertices(fitted.domain_)
    sizes = [len(column.categories) for column in schema.values()]
    first = pd.DataFrame(np.zeros((n_questions, len(schema)), dtype=int), columns=list(schema))
    tables = []
    for row in fitted.encode_release(fitted.transform(first)):
        (K,) = fitted.questions(row[None]).n_cells
        Y = np.repeat(row[None], K, axis=0)
        Y[:, 0] = np.arange(K)
        tables.append(np.exp(log_likelihood(fitted, corners, Y)))
    covers = [table > (table.max(axis=0) + table.min(axis=0)) / 2 for table in tables]
    # How often an answer covers the record that gives it, and any other one.
    both = np.mean([P @ cover.T for P, cover in zip(tables, covers, strict=True)], axis=0)
    right = np.diag(both).mean()
    wrong = both[~np.eye(len(both), dtype=bool)].mean()
    values = [((cover - wrong) / (right - wrong)).T.reshape(-1, *sizes) for cover in covers]
    return [table.mean(axis=0) for table in tables], values


def variation_of_estimates(probabilities, values, kept, n):
    """Return the mean total variation of n answers, by the normal law, of the table of axes."""
    moments = []
    for p, value in zip(probabilities, values, strict=True):
        summed = value.sum(axis=tuple(i for i in range(1, value.ndim) if i not in kept))
        moments.append([np.tensordot(p, summed**power, axes=1) for power in (1, 2)])
    mean, square = np.mean(moments, axis=0)
    np.testing.assert_allclose(mean, 1 / mean.size, rtol=0.1)
    return np.sqrt((square - mean**2) / n * 2 / np.pi).sum() / 2


@pytest.mark.slow
@pytest.mark.parametrize("epsilon", [0.7, 2.0, 5.0])
def test_expected_variation_of_whole_columns_is_that_of_unbiased_estimates(epsilon):
    schema, n = Schema({"a": Categorical(range(3)), "b": Categorical(range(4))}), 2000
    answers = estimates(schema, epsilon, 400, n_asked=2)
    expected, other = (variation(schema, epsilon, k, n_asked=2) for k in (n, 1.3 * n))
    # A mean over 400 questions but for the pair, of which each one tells the same.
    cells = {(1, 2): (("a", "b"), 1e-9), (1,): (("a", "a"), 0.05), (2,): (("b", "b"), 0.05)}
    for kept, (cell, tolerance) in cells.items():
        found = variation_of_estimates(*answers, kept, n)
        assert found == pytest.approx(expected.loc[cell], rel=tolerance)
        assert found != pytest.approx(other.loc[cell], rel=tolerance)


@pytest.mark.parametrize(("epsilon", "k"), [(0.5, 32), (2.5, 52)])
def test_expected_variation_of_grouped_columns_is_that_of_unbiased_estimates(epsilon, k):
    # The limits are 16 and 26 cells: groups of two.
    schema = Schema({"a": Categorical(range(k))})
    found = variation_of_estimates(*estimates(schema, epsilon, 60, n_asked=1), (1,), 1000)
    assert found == pytest.approx(variation(schema, epsilon).loc["a", "a"], rel=0.05)
    half = Schema({"a": Categorical(range(k // 2))})
    assert found != pytest.approx(variation(half, epsilon).loc["a", "a"], rel=0.05)


def test_the_error_of_simulated_people_is_the_expected_one():
    schema, n, repeats = Schema({"a": Categorical(range(3)), "b": Categorical(range(4))}), 400, 50
    rng = np.random.default_rng(0)
    columns = {name: rng.integers(k, size=n * repeats) for name, k in (("a", 3), ("b", 4))}
    fitted = JointRandomizedResponse(3.0, schema=schema, n_asked=2, random_state=0).fit()
    Y = fitted.encode_release(fitted.transform(pd.DataFrame(columns)))
    log_p = log_likelihood(fitted, vertices(fitted.domain_), Y)
    covers = log_p > (log_p.max(axis=0) + log_p.min(axis=0)) / 2
    own = np.arange(12)[:, None] == 4 * columns["a"] + columns["b"]
    right, wrong = covers[own].mean(), covers[~own].mean()
    shares = (covers.reshape(12, repeats, n).mean(axis=2) - wrong) / (right - wrong)
    errors = abs(shares - 1 / 12).sum(axis=0) / 2
    expected = fitted.expected_variation(n).loc["a", "b"]
    tolerance = 4 * errors.std(ddof=1) / np.sqrt(repeats)
    assert abs(errors.mean() - expected) < tolerance
    assert tolerance < 0.15 * expected


def test_variation_falls_with_the_root_of_the_people():
    few, many = (variation(MIXED, 2.0, n) for n in (100, 40_000))
    pd.testing.assert_frame_equal(few, 20 * many)
    assert list(few.columns) == list(few.index) == list(MIXED)
    np.testing.assert_allclose(few, few.T, rtol=1e-12)
    # A pair holds both of its columns.
    diagonal = np.diag(few)
    assert (few.to_numpy() >= np.maximum(diagonal, diagonal[:, None]) * (1 - 1e-12)).all()


def test_what_is_never_asked_together_is_infinite():
    one = variation(SCHEMA, 1.0, n_asked=1)
    np.testing.assert_array_equal(np.isinf(one), ~np.eye(3, dtype=bool))
    star = variation(SCHEMA, 1.0, n_asked=2, always=["b"])
    assert np.isinf(star.loc["a", "c"])
    assert np.isfinite(star.loc["b"]).all()
    alone = variation(SCHEMA, 1.0, n_asked=1, always=["b"])
    np.testing.assert_array_equal(np.isfinite(alone).sum(), [0, 1, 0])
    assert np.isfinite(variation(SCHEMA, 1.0, n_asked=2)).all(axis=None)


def test_columns_of_always_and_of_large_weight_are_learned_better():
    plain = variation(MIXED, 1.0, n_asked=2)
    for options in ({"always": ["c"]}, {"weights": {"c": 5.0}}):
        other = variation(MIXED, 1.0, n_asked=2, **options)
        assert other.loc["c", "c"] < 0.9 * plain.loc["c", "c"]
        assert other.loc["a", "b"] > plain.loc["a", "b"]


@pytest.mark.slow
@pytest.mark.parametrize("epsilon", [0.5, 8.0])
def test_wide_tables(epsilon):
    schema = Schema({f"c{i:02}": Categorical(range(2 + i % 9)) for i in range(100)})
    fitted = JointRandomizedResponse(epsilon, schema=schema, random_state=0).fit()
    assert 2 <= fitted.n_asked_ <= 8
    table = fitted.expected_variation(10**6)
    assert np.isfinite(table).all(axis=None)
    # Pairs of columns of the same sizes differ by what was drawn alone.
    of_size = table.to_numpy()[0::9, 1::9]
    assert of_size.std() < 0.12 * of_size.mean()
    X = pd.DataFrame(np.zeros((200, 100), dtype=int), columns=list(schema))
    Y = fitted.transform(X)
    assert fitted.encode_release(Y).shape == (200, 4 + fitted.n_asked_)
