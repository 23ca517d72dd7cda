"""The simulated tables of the benchmarks whose target depends on many columns at once."""

import itertools
import sys
from pathlib import Path

import numpy as np
import pytest
from numpy.testing import assert_array_equal
from sklearn.tree import DecisionTreeClassifier

import sklearn_dpgen

BENCHMARKS = Path(sklearn_dpgen.__file__).parents[1] / "benchmarks"
pytestmark = pytest.mark.skipif(not BENCHMARKS.exists(), reason="needs a checkout, not a wheel")


@pytest.fixture
def dense(monkeypatch):
    monkeypatch.setattr(sys, "path", [str(BENCHMARKS), *sys.path])
    return pytest.importorskip("_dense_tables")


def most_dependent(table, columns):
    """Return the largest deviation of the mean target in a cell, in standard errors."""
    cells = table.train.groupby(list(columns))[table.target]
    return (np.abs(cells.mean() - 0.5) * 2 * np.sqrt(cells.size())).max()


@pytest.mark.parametrize("order", [4, 5, 6])
def test_a_parity_is_seen_in_all_of_its_columns_alone(dense, order):
    table = dense.dense_table(f"parity of {order}", seed=1)
    assert len(table.relevant) == order
    total = table.train[list(table.relevant)].sum(axis=1)
    assert_array_equal(table.train[table.target], total % 2)
    for columns in itertools.combinations(table.relevant, order - 1):
        assert most_dependent(table, columns) < 5
    assert most_dependent(table, table.relevant) > 15


@pytest.mark.parametrize("order", [4, 5, 6])
def test_a_tree_has_its_depth_and_its_columns(dense, order):
    table = dense.dense_table(f"tree of {order}", seed=1)
    chosen = list(table.relevant)
    X, y = table.train[chosen], table.train[table.target]
    deep = DecisionTreeClassifier(random_state=0).fit(X, y)
    assert deep.score(table.test[chosen], table.test[table.target]) > 0.995
    # Its labels are a function of these columns, and of fewer cuts they are not.
    assert (y.groupby([X[name] for name in chosen]).nunique() == 1).all()
    flat = DecisionTreeClassifier(max_depth=order - 2, random_state=0).fit(X, y)
    assert flat.score(X, y) < 0.99


@pytest.mark.parametrize("kind", ["parity", "tree"])
def test_noise_flips_labels_of_the_same_table(dense, kind):
    clean, noisy = (dense.dense_table(f"{kind} of 4{end}") for end in ("", ", noise 0.05"))
    for part in ("train", "test"):
        one, other = getattr(clean, part), getattr(noisy, part)
        assert_array_equal(one.drop(columns="y"), other.drop(columns="y"))
        flipped = (one["y"] != other["y"]).to_numpy()
        assert abs(flipped.mean() - 0.05) < 5 * np.sqrt(0.05 * 0.95 / len(flipped))
    assert (clean.accuracy, noisy.accuracy) == (1, 0.95)


def test_seeds_that_choose_settings_are_not_reported(dense):
    assert not set(dense.CHOOSE) & set(dense.REPORT)
    first, other = (dense.dense_table("tree of 5", seed=seed) for seed in (0, 100))
    assert not first.train.equals(other.train)


@pytest.mark.parametrize("name", ["parity of 11", "parity of 0", "tree", "forest of 4"])
def test_other_names_are_refused(dense, name):
    with pytest.raises(ValueError, match="name must be as"):
        dense.dense_table(name)
