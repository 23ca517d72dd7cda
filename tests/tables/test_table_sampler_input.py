"""TableSampler: input that is refused, small tables, and what is warned of and shown."""

import warnings
from contextlib import nullcontext
from functools import partial

import numpy as np
import pandas as pd
import pytest
from sampler_tables import LARGE, NAMES, SCHEMA, hasten, law_parts, make, table

from sklearn_dpgen.exceptions import NoisyCountsWarning
from sklearn_dpgen.schema import Categorical, Schema
from sklearn_dpgen.tables import (
    _table_sampler,
)

X = table()
relations = pytest.mark.parametrize("neighbours", ["replace_one", "add_or_remove"])
hasten = pytest.fixture(autouse=True)(hasten)


# Bad input.


@pytest.fixture
def unread(monkeypatch):
    def read(*args, **options):
        raise AssertionError("A record was read.")

    monkeypatch.setattr(_table_sampler, "open_records", read)


@pytest.mark.parametrize(
    ("options", "message"),
    [({name: 0}, f"{name!r} parameter") for name in ("epsilon", "delta", "max_iter")]
    + [({"population_size": 0}, "'population_size' parameter")]
    + [({"neighbours": "none"}, "'neighbours' parameter"), ({"schema": None}, "'schema'")]
    + [({"marginals": "triples"}, "'marginals' parameter"), ({"marginals": [("age", "z")]}, "z")]
    + [({"marginals": ["age"]}, "tuples of one to seven"), ({"n_bins": 1}, "'n_bins' parameter")]
    + [({"n_bins": {"salary": 3}}, "salary"), ({"n_bins": {"job": 3}}, "'job' must be numeric")]
    + [({"n_bins": {"age": [0, 50]}}, "'age': bin"), ({"workload": {"salary": 2}}, "salary")]
    + [({"workload": "job"}, "'workload' parameter"), ({"workload": {"job": -1}}, "positive")]
    + [({"schema": Schema({"age": SCHEMA["age"]})}, "at least two columns")]
    + [({"target": "salary"}, "salary"), ({"target": ["job", "job"]}, "distinct")]
    + [({"target": 3}, "'target' parameter"), ({"n_bins": "few"}, "'n_bins' parameter")]
    + [({"population_size": 2 * 10**6}, "GiB.*'pay' is counted in the most cells, 5")],
    ids=lambda value: str(value)[:60],
)
def test_errors_before_a_record_is_read(unread, options, message):
    with pytest.raises(ValueError, match=message):
        make(**({"population_size": 2000} | options)).fit(X)


@pytest.mark.parametrize("kind", [pd.DataFrame, pd.DataFrame.to_numpy])
def test_a_label_beside_the_table_is_told_where_it_belongs(unread, kind):
    apart = kind(X.drop(columns="job"))
    with pytest.raises(ValueError, match="pass labels as a column of X.*SyntheticDataClassifier"):
        make(target="job").fit(apart, X["job"])
    # What is beside a table that has it is ignored, as scikit-learn's tools pass it.
    with pytest.raises(AssertionError, match="A record was read"):
        make(target="job").fit(X, X["job"])
    with pytest.raises(ValueError, match=r"missing \['job'\]|expecting") as raised:
        make(target="job").fit(apart)
    assert "y is not read" not in str(raised.value)


def test_four_thousand_labels():
    schema = Schema({"city": Categorical(range(4000)), "job": SCHEMA["job"]})
    frame = pd.DataFrame({"city": [3, 9] * 2000, "job": ["baker", "pilot"] * 2000})
    drawn = make(np.inf, schema=schema).fit(frame).sample(100, random_state=0)
    assert drawn["city"].isin([3, 9]).all()
    noisy = make(20.0, schema=schema, **LARGE).fit(frame).sample(1000, random_state=0)
    found = noisy[noisy["city"].isin([3, 9])]
    assert len(found) > 900
    assert ((found["city"] == 3) == (found["job"] == "baker")).mean() > 0.9


def test_errors_of_records_and_samples():
    for wrong, message in ((X[:0], "0 sample"), (X.assign(z=1), "unknown")):
        with pytest.raises(ValueError, match=message):
            make().fit(wrong)
    with pytest.raises(ValueError, match="2D array"):
        make().fit(X["age"].to_numpy())
    sampler = make().fit(X)
    with pytest.raises(ValueError, match="n_samples"):
        sampler.sample(0)


def noisy(epsilon):
    return pytest.warns(NoisyCountsWarning) if epsilon < 0.1 else nullcontext()


def is_finite(sampler):
    return all(np.isfinite(part).all() for part in law_parts(sampler))


@relations
@pytest.mark.parametrize("epsilon", [1e-6, np.inf])
@pytest.mark.parametrize(
    "options",
    [{"marginals": [("age",)]}, {"population_size": 2}, {"n_bins": 2}, {"max_iter": 1}]
    + [{"workload": {"age": 1e6}}, {"marginals": [("age", "job", "day")]}, {"marginals": "auto"}]
    + [{"marginals": "auto", "target": NAMES}, {"marginals": "auto", "target": "pay"}],
    ids=str,
)
def test_extreme_settings(neighbours, epsilon, options):
    with noisy(epsilon):
        sampler = make(epsilon, neighbours=neighbours, **options).fit(X)
    assert is_finite(sampler)
    assert sampler.n_records_ >= 1
    assert sampler.sample(3).shape == (3, 5)


@relations
@pytest.mark.parametrize("marginals", ["auto", [("only",)]])
def test_a_single_column(neighbours, marginals):
    one = Schema({"only": Categorical(["x", "y"], nullable=True)})
    frame = pd.DataFrame({"only": ["x"] * 300 + [None] * 100})
    sampler = make(schema=one, marginals=marginals, neighbours=neighbours).fit(frame)
    drawn = sampler.sample(4000, random_state=0)["only"]
    assert (drawn == "x").mean() == pytest.approx(0.75, abs=0.05)
    assert drawn.isna().mean() == pytest.approx(0.25, abs=0.05)
    assert (sampler.privacy_.n_releases, sampler.marginals_) == (1, [])


@relations
@pytest.mark.parametrize("target", [None, "pay"])
def test_two_columns(neighbours, target):
    two = Schema({name: SCHEMA[name] for name in ("pay", "job")})
    sampler = make(schema=two, marginals="auto", target=target, neighbours=neighbours)
    sampler.fit(X[["pay", "job"]])
    assert [part.columns for part in sampler.marginals_] == [("pay", "job")]
    assert sampler.sample(5).shape == (5, 2)


@relations
@pytest.mark.parametrize("epsilon", [1.0, np.inf])
def test_small_tables(neighbours, epsilon):
    for frame in (X[:1], pd.concat([X[:1]] * 20)):
        # Where there is no noise none is warned of.
        with pytest.warns(NoisyCountsWarning) if epsilon < np.inf else nullcontext():
            sampler = make(epsilon, neighbours=neighbours, marginals="auto").fit(frame)
        assert sampler.sample(50).shape == (50, 5)
        assert is_finite(sampler)


def test_nulls_are_learned_with_what_goes_with_them():
    frame = X.assign(job=np.where(X["pay"].isna(), "nurse", "baker"))
    sampler = make(np.inf, marginals=[("pay", "job")], **LARGE).fit(frame)
    drawn = sampler.sample(4000, random_state=0)
    assert drawn["pay"].isna().mean() == pytest.approx(frame["pay"].isna().mean(), abs=0.04)
    assert (drawn["pay"].isna() == (drawn["job"] == "nurse")).mean() > 0.98


# Too few records.


def warned(sampler, frame):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        sampler.fit(frame)
    return [str(one.message) for one in caught if one.category is NoisyCountsWarning]


@relations
def test_noise_that_leaves_nothing_is_warned_of(neighbours):
    fit = partial(make, marginals="auto", neighbours=neighbours)
    (message,) = warned(fit(0.1), X)
    assert "hardly depend on the records" in message
    assert "epsilon=0.1 and about" in message
    if neighbours == "replace_one":
        assert "600 records" in message
    assert not warned(fit(8.0), X)


def test_the_warning_comes_before_a_release_where_the_number_is_public(released):
    """And after it where it is not: made an error, it stops the fit there."""
    for neighbours, n_released in (("replace_one", 0), ("add_or_remove", 1)):
        released.clear()
        sampler = make(0.1, marginals="auto", neighbours=neighbours)
        with pytest.raises(NoisyCountsWarning):
            sampler.fit(X)
        assert len(released) == n_released
        assert sampler.privacy_.epsilon == 0.1
        assert not hasattr(sampler, "law_")


def test_progress_is_shown_if_asked_for(capsys):
    make(marginals="auto", verbose=0).fit(X)
    assert capsys.readouterr().err == ""
    make(marginals="auto", verbose=1).fit(X)
    assert "TableSampler" in capsys.readouterr().err
