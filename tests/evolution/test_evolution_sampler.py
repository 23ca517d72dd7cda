"""The evolution samplers in pipelines and searches, their seeds, records and labels."""

from functools import partial

import numpy as np
import ot
import pandas as pd
import pytest
from evolution_laws import learner, two_clusters
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import FunctionTransformer

SAMPLERS = ["evolution", "measure"]
samplers = pytest.mark.parametrize("name", SAMPLERS)


@samplers
def test_in_a_pipeline(sampler_of, labelled, same, name):
    steps = [("shift", FunctionTransformer(lambda X: X / 2)), ("make", sampler_of(name))]
    shifted = Pipeline(steps).fit(labelled.X, labelled.y)
    direct = sampler_of(name).fit(labelled.X / 2, labelled.y)
    assert same(shifted["make"], direct)


def nearness(sampler, X, y=None):
    return -ot.emd2([], [], ot.dist(sampler.sample(100, random_state=0), X, metric="euclidean"))


@samplers
def test_search_and_validation_with_a_score_of_ones_own(sampler_of, labelled, name):
    X = labelled.X / 4 + 1
    search = GridSearchCV(
        sampler_of(name), {"epsilon": [0.05, np.inf]}, scoring=nearness, cv=2, error_score="raise"
    )
    search.fit(X)
    assert search.best_params_ == {"epsilon": np.inf}
    assert search.best_estimator_.privacy_.epsilon == np.inf
    scores = cross_val_score(sampler_of(name), X, scoring=nearness, cv=2, error_score="raise")
    assert np.isfinite(scores).all()


@samplers
def test_fits_and_samples_follow_their_seeds(sampler_of, labelled, same, name):
    sampler = sampler_of(name).fit(labelled.X)
    assert same(sampler, sampler_of(name).fit(labelled.X))
    assert not same(sampler, sampler_of(name, random_state=1).fit(labelled.X))
    first, second = (sampler_of(name, random_state=None).fit(labelled.X) for _ in "ab")
    assert not same(first, second)
    # A RandomState goes on.
    state = np.random.RandomState(0)  # noqa: NPY002
    first, second = (sampler_of(name, random_state=state).fit(labelled.X) for _ in "ab")
    assert not same(first, second)
    drawn = sampler.sample(50, random_state=0)
    assert_array_equal(drawn, sampler.sample(50, random_state=0))
    assert not np.array_equal(drawn, sampler.sample(50, random_state=1))
    assert not np.array_equal(sampler.sample(50), sampler.sample(50))
    assert sampler.sample().shape == (1, 3)
    assert sampler.domain_.contains(drawn).all()


@samplers
def test_samples_are_candidates_by_their_weights(sampler_of, labelled, name):
    sampler = sampler_of(name, epsilon=20.0).fit(labelled.X)
    (candidates,), (weights,) = sampler.candidates_, sampler.weights_
    assert weights.sum() == pytest.approx(1)
    assert (weights >= 0).all()
    n = 20_000
    drawn = sampler.sample(n, random_state=0)
    found = (drawn[:, None] == candidates[None]).all(axis=2)
    assert (found.sum(axis=1) == 1).all()
    spread = np.sqrt(weights * (1 - weights) / n)
    assert (abs(found.mean(axis=0) - weights) <= 5 * spread + 1e-12).all()


@pytest.mark.parametrize(
    "as_given", [np.ndarray.tolist, np.asfortranarray, pd.DataFrame, lambda X: X.astype(np.int64)]
)
@samplers
def test_types_of_records(sampler_of, labelled, same, name, as_given):
    X = np.round(labelled.X) + 0.0
    given = as_given(X)
    if isinstance(given, pd.DataFrame):
        given.columns = ["a", "b", "c"]
    sampler = sampler_of(name).fit(given, labelled.y)
    assert same(sampler, sampler_of(name).fit(X, labelled.y))
    assert hasattr(sampler, "feature_names_in_") == isinstance(given, pd.DataFrame)
    made = sampler.sample(2, random_state=0)
    assert_array_equal(made, sampler_of(name).fit(X, labelled.y).sample(2, random_state=0))
    if isinstance(given, pd.DataFrame):
        assert made.columns.tolist() == ["a", "b", "c"]
        assert (made.dtypes == np.float64).all()
    else:
        assert isinstance(made, np.ndarray)


@samplers
@pytest.mark.parametrize("kind", ["public", "private"])
def test_dask_arrays_are_as_arrays(sampler_of, labelled, same, name, kind):
    dask_array = pytest.importorskip("dask.array")
    labelled.X *= 2  # some records lie outside of the domain
    fit = partial(sampler_of, name, labels=kind, classes=["a", "b"])
    expected = fit().fit(labelled.X, labelled.y)
    lazy = dask_array.from_array(labelled.y, chunks=9)
    for chunks, y in ((60, labelled.y), ((11, 2), lazy)):
        X = dask_array.from_array(labelled.X, chunks=chunks)
        assert same(fit().fit(X, y), expected)
    single = dask_array.from_array(labelled.X.astype(np.float32), chunks=13)
    assert same(sampler_of(name).fit(single), sampler_of(name).fit(labelled.X.astype(np.float32)))
    sampler = sampler_of(name).fit(dask_array.from_array(labelled.X, chunks=13))
    assert sampler.n_features_in_ == 3
    assert isinstance(sampler.sample(2), np.ndarray)


# Labels.


@samplers
@pytest.mark.parametrize("kind", ["public", "private"])
def test_types_of_labels(sampler_of, labelled, same, name, kind):
    declared = {"labels": kind, "classes": ["a", "b"]}
    expected = sampler_of(name, **declared).fit(labelled.X, labelled.y)
    for equal in (
        labelled.y.tolist(),
        pd.Series(labelled.y, index=range(7, 67)),
        pd.Series(labelled.y).astype("category"),
        labelled.y.astype(object),
    ):
        assert same(sampler_of(name, **declared).fit(labelled.X, equal), expected)
    # Seeded noise depends on the declared classes: those of other types are compared without.
    options = {"labels": kind, "epsilon": np.inf}
    expected = sampler_of(name, classes=["a", "b"], **options).fit(labelled.X, labelled.y)
    for equal, classes in (
        (labelled.y.tolist(), ["a", "b"]),
        (labelled.y == "b", [False, True]),
        ((labelled.y == "b").astype(float), [0, 1]),
        (pd.Series(labelled.y, index=range(7, 67)), ["a", "b"]),
        (pd.Series(labelled.y).astype("category"), ["b", "a"]),
        (labelled.y.astype(object), ["a", "b"]),
    ):
        assert same(sampler_of(name, classes=classes, **options).fit(labelled.X, equal), expected)


@samplers
@pytest.mark.parametrize(
    ("kind", "epsilon"), [("public", 2.0), ("private", 2.0), ("private", np.inf)]
)
def test_classes_have_their_records(name, kind, epsilon):
    X, y = two_clusters(4000)
    options = {"n_points": 200} if name == "measure" else {}
    options |= {"classes": ["low", "up"]}
    sampler = learner(name, epsilon, labels=kind, **options).fit(X, y)
    assert_allclose(sampler.label_proportions_, [0.25, 0.75], atol=0.05)
    for label in ("low", "up"):
        made = sampler.sample(1000, y=label, random_state=0)
        assert_allclose(made.mean(axis=0), X[y == label].mean(axis=0), atol=0.1)
        assert_allclose(made.std(axis=0), [0.1, 0.1], atol=0.12)


@samplers
def test_labels_of_a_sample(name):
    X, y = two_clusters(800)
    options = {"n_points": 200} if name == "measure" else {}
    sampler = learner(name, np.inf, **options).fit(X, y)
    low = sampler.sample(50, y="low", random_state=0)
    assert_array_equal(sampler.sample(50, y=["low"] * 50, random_state=0), low)
    mixed = sampler.sample(50, y=np.array(["low", "up"] * 25), random_state=0)
    assert (low[:, 0] < 0).all()
    assert (mixed[::2, 0] < 0).all()
    assert (mixed[1::2, 0] > 0).all()
    # None draws them by their proportions, as sample_labels does with the same seed.
    spread = 5 * np.sqrt(0.25 * 0.75 / 4000)
    drawn = sampler.sample(4000, random_state=0)
    assert abs((drawn[:, 0] < 0).mean() - 0.25) < spread
    labels = sampler.sample_labels(4000, random_state=0)
    assert set(labels) == {"low", "up"}
    assert abs((labels == "low").mean() - 0.25) < spread
    assert_array_equal(labels, sampler.sample_labels(4000, random_state=0))
    assert sampler.sample_labels().shape == (1,)


@samplers
def test_declared_classes_and_proportions(sampler_of, labelled, name):
    sampler = sampler_of(name, classes=["b", "a"], label_proportions=[1.0, 0.0])
    for kind in ("public", "private"):
        sampler.set_params(labels=kind).fit(labelled.X, labelled.y)
        # Sorted, and the proportions are in that order.
        assert_array_equal(sampler.classes_, ["a", "b"])
        assert_array_equal(sampler.label_proportions_, [1, 0])
        assert set(sampler.sample_labels(50)) == {"a"}
        assert len(sampler.candidates_) == len(sampler.weights_) == 2


@samplers
@pytest.mark.parametrize("kind", ["public", "private"])
def test_wanted_proportions_do_not_change_a_class(name, kind):
    """Proportions other than those of the records are how labels are drawn, and no more."""
    X, y = two_clusters(4000)
    options = {"n_points": 200} if name == "measure" else {}
    options |= {"classes": ["low", "up"], "label_proportions": [0.9, 0.1]}
    sampler = learner(name, 5.0, labels=kind, **options)
    sampler.fit(X, y)
    for label in ("low", "up"):
        made = sampler.sample(1000, y=label, random_state=0)
        assert_allclose(made.mean(axis=0), X[y == label].mean(axis=0), atol=0.1)


@samplers
def test_a_fit_forgets_the_one_before(sampler_of, labelled, name):
    sampler = sampler_of(name).fit(labelled.X, labelled.y)
    sampler.fit(labelled.X)
    assert not hasattr(sampler, "classes_")
    assert not hasattr(sampler, "label_proportions_")
    assert sampler.sample(3).shape == (3, 3)
    assert len(sampler.candidates_) == 1
    with pytest.raises(ValueError, match="width|features"):
        sampler.fit(labelled.X[:, :2])
    with pytest.raises(NotFittedError):
        sampler.sample()
