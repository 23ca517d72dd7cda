"""Several tables differ by noise and chance, and one rule combines what they tell."""

import copy
import itertools
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose
from scipy.stats import t as student

from sklearn_dpgen.inference import combine_estimates, estimate_means, sample_tables
from sklearn_dpgen.inference._calibration import Calibration
from sklearn_dpgen.schema import Categorical, Numeric, Schema
from sklearn_dpgen.tables import TableSampler

SCHEMA = Schema({"x": Numeric(0, 20, integer=True), "y": Categorical(["no", "yes"])})


def records(n, seed=0):
    rng = np.random.default_rng(seed)
    x = np.clip(rng.poisson(5, size=n), 0, 20)
    return pd.DataFrame({"x": x, "y": np.where(rng.uniform(size=n) < x / 20, "yes", "no")})


def fitted(n=2000, epsilon=0.5, seed=0):
    options = {"schema": SCHEMA, "population_size": 2000, "random_state": seed}
    return TableSampler(epsilon, 1e-6, **options).fit(records(n, seed))


@pytest.fixture(scope="module")
def sampler():
    return fitted()


def test_tables_are_of_the_columns_and_of_as_many_rows(sampler):
    tables = list(sample_tables(sampler, 3, random_state=0))
    assert [table.shape for table in tables] == [(2000, 2)] * 3
    assert all(table.dtypes.equals(sampler.sample(1).dtypes) for table in tables)
    (one, other) = sample_tables(sampler, 2, columns=["y"], n_samples=70, random_state=0)
    assert list(one.columns) == ["y"]
    assert len(other) == 70
    again = list(sample_tables(sampler, 3, random_state=0))
    for first, second in zip(tables, again, strict=True):
        pd.testing.assert_frame_equal(first, second)


def test_tables_without_a_seed_are_others_each_time(sampler):
    one, other = (next(sample_tables(sampler, 2)) for _ in range(2))
    assert not one.equals(other)
    estimates = {float(estimate_means(sampler, "x", random_state=None).iloc[0, 0]) for _ in "ab"}
    assert len(estimates) == 2


def test_tables_are_drawn_one_by_one(sampler):
    many = sample_tables(sampler, 10**9, random_state=0)
    assert len(list(itertools.islice(many, 2))) == 2


@pytest.mark.slow
def test_tables_differ_by_what_is_not_known():
    """Their spread is the error that the estimate of one mean has, in closed form."""
    ratios = []
    for seed in range(6):
        # With less noise the error has little beside what is counted.
        sampler = fitted(epsilon=2.0, seed=seed)
        means = [table["x"].mean() for table in sample_tables(sampler, 60, random_state=0)]
        error = estimate_means(sampler, "x")["std_error"].item()
        ratios.append(np.std(means, ddof=1) / error)
    # 0.85 to 1.15 is four standard errors; an allowance for what is not counted is in one alone.
    assert 0.8 < np.mean(ratios) < 1.15


@pytest.mark.slow
def test_rows_of_one_distribution_differ_by_chance_alone():
    sampler = fitted(seed=5)
    means = [table["x"].mean() for table in sample_tables(sampler, 60, random_state=0)]
    alone = [sampler.sample(2000, random_state=seed)["x"].mean() for seed in range(60)]
    assert np.std(alone, ddof=1) < 0.6 * np.std(means, ddof=1)


def test_positive_weights_count_as_the_others_do():
    """Both follow the same tables, and where counts are large they hardly differ."""
    rng, n = np.random.default_rng(0), 20_000
    first = rng.integers(4, size=n)
    columns = {f"c{j}": (first + rng.integers(3, size=n)) % 4 for j in range(5)}
    schema = Schema({name: Categorical(range(4)) for name in columns})
    options = {"schema": schema, "population_size": 2000, "random_state": 0}
    fitted = TableSampler(1.0, 1e-6, **options).fit(pd.DataFrame(columns))
    rows = Calibration(fitted, list(schema), n_rows=5000, random_state=0)
    error = np.sqrt(0.25 / n)
    positive, linear = rows.positive_weights(), rows.weights()
    assert positive.min() > 0
    assert_allclose([positive.sum(), linear.sum()], 1)
    for name, label in itertools.product(schema, range(4)):
        for other in ("c0", "c3"):
            here = (rows.frame[name] == label) & (rows.frame[other] == 1)
            assert abs(positive @ here - linear @ here) < 0.3 * error


def test_counts_that_chose_the_cells_are_left_out():
    """Of single columns the coarsest alone: in finer ones what stands out was looked for."""
    rng, n = np.random.default_rng(0), 3000
    frame = pd.DataFrame({"x": rng.gamma(2, 3, n), "y": rng.choice(["no", "yes"], n)})
    schema = Schema({"x": Numeric(0, 1000), "y": Categorical(["no", "yes"])})
    options = {"schema": schema, "population_size": 2000, "random_state": 0}
    fitted = TableSampler(1.0, 1e-6, **options).fit(frame)
    fine, *_, coarse = [t for t in fitted.one_way_marginals_ if t.columns == ("x",)]
    assert fine.counts.size > coarse.counts.size
    found = {}
    for name, moved in (("none", None), ("fine", fine), ("coarse", coarse)):
        other = copy.copy(fitted)
        other.one_way_marginals_ = [
            replace(t, counts=t.counts + 100.0 * np.arange(t.counts.size)) if t is moved else t
            for t in fitted.one_way_marginals_
        ]
        found[name] = estimate_means(other, "x")["estimate"].item()
    assert found["fine"] == found["none"]
    assert abs(found["coarse"] - found["none"]) > 0.1


@pytest.mark.slow
@pytest.mark.xfail(
    reason="Of 100 other fits the intervals of level 0.95 hold 81, and held 85 before single "
    "columns had more of the budget: errors beside the noise are not in them.",
    strict=False,
)
def test_intervals_hold_what_they_should():
    truth = records(1_000_000, seed=99)["x"].mean()
    held = 0
    for seed in range(20):
        tables = sample_tables(fitted(seed=seed), 10, n_rows=4000, random_state=seed)
        found = combine_estimates([[table["x"].mean()] for table in tables])
        held += int(found["low"].item() <= truth <= found["high"].item())
    # Of 20 intervals of level 0.95, fewer than 16 hold it once in four hundred times.
    assert held >= 16


def test_the_rule():
    results = np.array([[1.0, 10.0], [2.0, 10.0], [6.0, 13.0]])
    found = combine_estimates(results, confidence_level=0.9)
    assert_allclose(found["estimate"], [3, 11])
    errors = np.sqrt(4 / 3 * np.array([7, 3]))
    assert_allclose(found["std_error"], errors)
    assert_allclose(found["high"] - found["estimate"], student.ppf(0.95, 2) * errors)
    assert_allclose(found["estimate"] - found["low"], student.ppf(0.95, 2) * errors)


def test_series_name_what_is_estimated():
    found = combine_estimates([pd.Series({"a": 1.0, "b": 2.0}), pd.Series({"a": 2.0, "b": 2.0})])
    assert found.index.tolist() == ["a", "b"]


@pytest.mark.parametrize(("epsilon", "is_promised"), [(0.5, False), (10.0, True)])
def test_means_of_tails_below_the_noise_are_not_promised(epsilon, is_promised):
    sampler = fitted(epsilon=epsilon)
    tables = sample_tables(sampler, 2, random_state=0)
    results = [
        pd.Series({"x": table["x"].mean(), "yes": (table["y"] == "yes").mean()}) for table in tables
    ]
    assert estimate_means(sampler, "x")["promised"].tolist() == [is_promised]
    assert tables.promised.to_dict() == {"x": is_promised}
    found = combine_estimates(results, tables=tables)
    assert found["promised"].tolist() == [is_promised] * 2
    # Tables without numbers have no tails.
    tables = sample_tables(sampler, 2, columns=["y"], random_state=0)
    shares = [[(table["y"] == "yes").mean()] for table in tables]
    assert combine_estimates(shares, tables=tables)["promised"].all()
    assert "promised" not in combine_estimates(shares)


@pytest.mark.parametrize("results", [[[1.0]], [[1.0], [np.nan]], []], ids=["one", "nan", "none"])
def test_results_must_be_several_and_finite(results):
    with pytest.raises(ValueError, match="estimates must be finite, and of at least two tables"):
        combine_estimates(results)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"n_tables": 1}, "n_tables"),
        ({"n_samples": 0}, "n_samples"),
        ({"n_rows": 5}, "n_rows"),
        ({"columns": ["z"]}, "columns must be columns of the schema"),
    ],
)
def test_errors_come_before_a_table(sampler, options, message):
    with pytest.raises(ValueError, match=message):
        sample_tables(sampler, **options)
