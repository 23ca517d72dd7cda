"""PrivateMixtureSampler: tables and labels, what it learns, bad input."""

import math
import pickle

import numpy as np
import pandas as pd
import pytest
from mixture_tables import (
    PAIR,
    SCHEMA,
    X,
    Y,
    kinds,
    make,
    parts,
    quick,
    same,
    train,
)
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import clone
from sklearn.exceptions import NotFittedError

from sklearn_dpgen.schema import Categorical, Schema
from sklearn_dpgen.tables import PrivateMixtureSampler, _mixture_evolution

quick = pytest.fixture(autouse=True)(quick)

# An estimator.


@kinds
def test_clone_parameters_and_pickle(kind):
    sampler = make(3.0)
    before = repr(sampler.get_params())
    train(sampler, kind)
    assert repr(sampler.get_params()) == before
    copy = clone(sampler)
    assert not hasattr(copy, "privacy_")
    assert same(train(copy, kind), sampler)
    loaded = pickle.loads(pickle.dumps(sampler))
    assert loaded.privacy_ == sampler.privacy_
    assert loaded.sample(9, random_state=0).equals(sampler.sample(9, random_state=0))
    assert not same(train(copy.set_params(epsilon=5.0), kind), sampler)
    assert (copy.privacy_.epsilon, sampler.privacy_.epsilon) == (5.0, 3.0)


def test_fits_and_samples_follow_their_seeds():
    sampler = make().fit(X)
    assert same(sampler, make().fit(X))
    assert not same(sampler, make(random_state=1).fit(X))
    assert not same(*(make(random_state=None).fit(X) for _ in "ab"))
    state = np.random.RandomState(0)  # noqa: NPY002
    assert not same(*(make(random_state=state).fit(X) for _ in "ab"))
    drawn = sampler.sample(30, random_state=0)
    assert drawn.equals(sampler.sample(30, random_state=0))
    assert not drawn.equals(sampler.sample(30, random_state=1))
    assert not sampler.sample(30).equals(sampler.sample(30))
    assert sampler.sample().shape == (1, 5)


def test_a_fit_forgets_the_one_before():
    sampler = make()
    with pytest.raises(NotFittedError):
        sampler.sample()
    sampler.fit(X, Y).fit(X)
    assert not hasattr(sampler, "classes_")
    assert not hasattr(sampler, "label_proportions_")
    assert len(sampler.laws_) == 1
    with pytest.raises(ValueError, match="'pay'"):
        sampler.fit(X.drop(columns="pay"))
    with pytest.raises(NotFittedError):
        sampler.sample()


def test_records_come_back_as_declared():
    frame = X[["day", "job", "age", "level", "pay"]].set_index(np.arange(60) + 7)
    frame["job"] = frame["job"].astype("category")
    sampler = make(np.inf).fit(frame)
    assert sampler.n_features_in_ == 5
    assert_array_equal(sampler.feature_names_in_, frame.columns)
    drawn = sampler.sample(500, random_state=0)
    assert drawn.dtypes.to_dict() == {name: SCHEMA[name].dtype for name in frame}
    assert drawn.index.equals(pd.RangeIndex(500))
    assert drawn["age"].between(0, 100).all()
    assert drawn["day"].between("2020-01-01", "2020-12-31").all()
    assert abs(drawn["pay"].isna().mean() - X["pay"].isna().mean()) < 5 * 0.5 / math.sqrt(500)
    assert not drawn.drop(columns="pay").isna().any().any()
    rows = make().fit(X.to_numpy().tolist()).sample(2)
    assert list(rows.columns) == list(SCHEMA)


# Labels.


def test_types_of_labels():
    expected = make().fit(X, Y)
    for equal in (Y.tolist(), pd.Series(Y, index=range(9, 69)), pd.Categorical(Y)):
        assert same(make().fit(X, equal), expected)
    of_bools = make(classes=[False, True]).fit(X, Y == "b")
    assert same(of_bools, expected)
    assert of_bools.sample_labels(2).dtype == bool


def shown_classes(y):
    """Return the classes that a fit without declared ones shows, or the error that it ends in."""
    try:
        return tuple(make(classes=None).fit(X, y).classes_)
    except ValueError as error:
        return str(error)


def test_labels_need_declared_classes(monkeypatch, released):
    """A lone rare label is that of one record: without a declaration it would be published."""
    rare = np.where(np.arange(60) == 7, "c", Y)
    assert shown_classes(Y) == shown_classes(rare)
    assert "need classes" in shown_classes(Y)
    assert not released
    # The twin: the classes that occur.
    monkeypatch.setattr(PrivateMixtureSampler, "_check_label_parameters", lambda self, y: None)
    assert [shown_classes(Y), shown_classes(rare)] == [("a", "b"), ("a", "b", "c")]


def test_records_of_a_wanted_class():
    def jobs(y):
        return np.where(y == "a", "pilot", "baker")

    sampler = make(np.inf).fit(X.assign(job=jobs(Y)), Y)
    assert_array_equal(sampler.classes_, ["a", "b"])
    assert_allclose(sampler.label_proportions_, [1 / 3, 2 / 3])
    for y in ("a", np.array(["a", "b", "b"] * 10)):
        assert_array_equal(sampler.sample(30, y=y)["job"], np.broadcast_to(jobs(y), 30))
    labels = sampler.sample_labels(2000, random_state=0)
    assert_array_equal(labels, sampler.sample_labels(2000, random_state=0))
    for drawn in (jobs(labels), sampler.sample(2000, random_state=0)["job"]):
        assert abs((drawn == "pilot").mean() - 1 / 3) < 5 * math.sqrt(2 / 9 / 2000)
    declared = make(classes=["b", "a"], label_proportions=[1.0, 0.0]).fit(X, Y)
    assert set(declared.sample_labels(50)) == {"a"}


def test_class_sizes_are_those_of_noisy_counts():
    """A class is as large as its columns say together: their mean, of the least variance."""
    fits = [make(2.0, random_state=seed, n_cells=1, n_iter=1).fit(X, Y) for seed in range(40)]
    shares = np.array([fit.label_proportions_[0] for fit in fits])
    scale = fits[0].privacy_.noise_scale["release 3"] * math.sqrt(5)
    precision = (1 / np.array([4, 5, 3, 3, 4])).sum() / scale**2
    spread = math.hypot(1 / 3, 2 / 3) / 60 / math.sqrt(precision)
    assert abs(shares.mean() - 1 / 3) < 5 * spread / math.sqrt(40)
    # To first order in the noise.
    assert 0.6 < shares.std() / spread < 1.5


# What is learned.


def test_without_noise_tables_of_one_and_two_columns_are_learned():
    rng = np.random.default_rng(0)
    a, b = rng.integers(4, size=(2, 1500))
    codes = np.column_stack([a, np.where(rng.uniform(size=1500) < 0.9, a, b)])
    frame = pd.DataFrame(np.array(list("wxyz"), dtype=object)[codes], columns=["a", "b"])
    spread = 5 * 0.5 / math.sqrt(4000)

    def error(epsilon, n_cells, *columns, seed=0):
        options = {"schema": PAIR, "n_candidates": 16, "random_state": seed}
        sampler = make(epsilon, n_cells=n_cells, **options).fit(frame)
        drawn = sampler.sample(4000, random_state=1)
        tables = [f.groupby(list(columns)).size() / len(f) for f in (drawn, frame)]
        return tables[0].sub(tables[1], fill_value=0).abs().max()

    for n_cells in (1, 4):
        assert max(error(np.inf, n_cells, name) for name in "ab") < spread
    assert error(np.inf, 4, "a", "b") < spread
    # Noise leads about one run in thirty astray.
    assert np.median([error(3.0, 4, "a", "b", seed=seed) for seed in range(3)]) < 2 * spread
    # One cell has independent columns.
    assert error(np.inf, 1, "a", "b") > 3 * spread


def test_cells_without_records_have_no_share():
    sampler = make(np.inf, n_cells=32).fit(X.assign(job="baker"), Y)
    assert (sampler.sample(500, random_state=0)["job"] == "baker").all()
    assert_allclose(sampler.label_proportions_, [1 / 3, 2 / 3])


def test_cells_do_not_make_a_class_larger():
    """The size of a class is estimated without bias, where it is well above its noise."""
    records = np.eye(8)[[1] * 200] + np.eye(8)[[5] * 200]
    counts = _mixture_evolution.marginal_counts(records, np.zeros(200, dtype=int), 16, PAIR.domain)
    rng, scale = np.random.default_rng(0), 6.0
    noisy = counts + scale * rng.normal(size=(200, len(counts)))
    sizes = [_mixture_evolution.estimate_mixture(row, scale, PAIR.domain)[0] for row in noisy]
    # 16 cells; the mean of two columns, each the sum of four counts with noise √2 of the scale.
    spread = scale * math.sqrt(16 * 4 * 2 / 2)
    assert abs(np.mean(sizes) - 200) < 5 * spread / math.sqrt(200)


# Bad input.


@pytest.mark.parametrize(
    ("options", "message"),
    [({name: 0}, f"{name!r} parameter") for name in ("epsilon", "n_candidates", "n_iter")]
    + [({"bins": bins}, "'bins' parameter") for bins in (0, 2.5, [2, 3])]
    + [({"bins": {"age": 3}}, "Column 'pay' needs bins"), ({"bins": {"salary": 3}}, "salary")]
    + [({"bins": {"job": 3}}, "'job' has categories"), ({"bins": {"age": [0, 50]}}, "'age': bin")]
    + [({"schema": None}, "'schema' parameter"), ({"n_cells": "many"}, "'n_cells' parameter")]
    + [({"classes": ["a"]}, "at least two"), ({"label_proportions": [0.5, 0.6]}, "sum to 1")],
    ids=str,
)
def test_errors_of_parameters(released, options, message):
    with pytest.raises(ValueError, match=message):
        make(**options).fit(X, Y)
    assert not released


def test_errors_of_records_and_samples():
    for y, message in ((["c"] * 60, "not among"), (Y[:5], "y must hold 60"), (X, "1d array")):
        with pytest.raises(ValueError, match=message):
            make().fit(X, y)
    for wrong, message in ((X[:0], "0 sample"), (X.assign(z=1), "unknown"), (Y, "2D array")):
        with pytest.raises(ValueError, match=message):
            make().fit(wrong)
    sampler = make().fit(X, Y)
    for wrong in ("z", ["a", "z"], np.nan):
        with pytest.raises(ValueError, match="not among the classes"):
            sampler.sample(2, y=wrong)
    with pytest.raises(ValueError, match="n_samples"):
        sampler.sample(0)
    with pytest.raises(ValueError, match="after a fit with labels"):
        sampler.fit(X).sample(2, y="a")


@kinds
@pytest.mark.parametrize("epsilon", [1e-6, np.inf])
@pytest.mark.parametrize(
    "options",
    [{"n_candidates": 1}, {"n_iter": 12}, {"n_cells": 9}, {"n_cells": "auto"}]
    + [{"bins": {"age": [0, 30, 100], "pay": 3, "day": 2}}, {"classes": ["a", "b", "c"]}],
    ids=str,
)
def test_extreme_settings(kind, epsilon, options):
    sampler = train(make(epsilon, **options), kind)
    assert np.isfinite(np.concatenate([np.ravel(part) for part in parts(sampler)])).all()
    for label in getattr(sampler, "classes_", [None]):
        assert sampler.sample(3, y=label).shape == (3, 5)


@pytest.mark.parametrize("epsilon", [1.0, np.inf])
def test_small_tables(epsilon):
    one = Schema({"only": Categorical(["x"], nullable=True)})
    sampler = make(epsilon, schema=one).fit(pd.DataFrame({"only": ["x"] * 30}))
    assert sampler.sample(5).shape == (5, 1)
    for frame in (X[:1], pd.concat([X[:1]] * 20)):
        drawn = make(epsilon, n_cells=1).fit(frame).sample(5)
        assert len(drawn) == 5
        assert epsilon < np.inf or (drawn["job"] == X["job"][0]).all()


def test_the_label_may_be_a_column_too():
    schema = Schema({**SCHEMA, "y": Categorical(["a", "b"])})
    sampler = make(np.inf, schema=schema, n_cells=1).fit(X.assign(y=Y), Y)
    assert set(sampler.sample(20, y="a")["y"]) == {"a"}


@pytest.mark.parametrize("labels", [None, Y])
def test_chunks_are_one_table(labels):
    """Also of which the number of records is known only after they are read."""
    whole = make().fit(X, labels)
    for chunks in ([X[:90], X[90:]], iter([X[:90], X[90:]])):
        assert same(make().fit(chunks, labels), whole)


def test_a_table_of_arrow_is_one():
    pyarrow = pytest.importorskip("pyarrow")
    table = pyarrow.Table.from_pandas(X, preserve_index=False)
    assert same(make().fit(table).set_output(transform="pandas"), make().fit(X))
