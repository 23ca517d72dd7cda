"""What the evolution samplers do with bad input: they say which, and what to do."""

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_array_equal
from scipy.sparse import csr_array
from sklearn.exceptions import NotFittedError

from sklearn_dpgen.domains import Box
from sklearn_dpgen.evolution import (
    EuclideanVariation,
)
from sklearn_dpgen.schema import Categorical, Numeric, Schema

SAMPLERS = ["evolution", "measure"]
samplers = pytest.mark.parametrize("name", SAMPLERS)
BOX = Box(-2, 2, n_features=3)


# Parameters.

COMMON = [
    ({"epsilon": 0}, "'epsilon' parameter"),
    ({"delta": 1.0}, "'delta' parameter"),
    ({"delta": "small"}, "'delta' parameter"),
    ({"labels": "secret"}, "'labels' parameter"),
    ({"votes__histogram": "geometric"}, "'histogram' parameter"),
    ({"votes__postprocess": "clip"}, "'postprocess' parameter"),
    ({"votes__threshold": -0.1}, "'threshold' parameter"),
    ({"metric": "chebyshev"}, "'metric' parameter"),
    ({"domain": 3}, "'domain' parameter"),
    ({"domain": Box(0, 1, n_features=4)}, "domain has 4 features, X has 3 features"),
    ({"classes": ["a"]}, "classes must be at least two, got 1 class"),
    ({"classes": ["a", "b", "a"]}, "classes must be distinct"),
    ({"classes": ["a", None]}, "classes holds labels that are missing"),
    ({"classes": ["a", "c"]}, "y holds labels that are missing or not among the classes"),
    ({"label_proportions": [1.0]}, "one share a class, 2"),
    ({"label_proportions": [0.5, 0.6]}, "sum to 1"),
    ({"label_proportions": [-0.5, 1.5]}, "non-negative"),
]
OF_EVOLUTION = [
    ({"n_samples": 0}, "'n_samples' parameter"),
    ({"n_iter": 0}, "'n_iter' parameter"),
    ({"n_iter": 2.5}, "'n_iter' parameter"),
    ({"votes__variant": "fast"}, "'variant' parameter"),
    ({"schedule": "linear"}, "'schedule' parameter"),
    ({"smoothing": 1.5}, "'smoothing' parameter"),
    ({"embedding": 3}, "'embedding' parameter"),
    ({"interface": 3}, "'interface' parameter"),
    ({"domain": None}, "schema or domain"),
    ({"schema": Schema({"a": Numeric(0, 1)})}, "either schema or domain"),
    ({"schedule": "theory", "epsilon": np.inf}, "needs a finite epsilon"),
    (
        {"schedule": "theory", "domain": None, "interface": EuclideanVariation(BOX)},
        "needs a domain",
    ),
]
OF_MEASURE = [
    ({"n_points": 0}, "'n_points' parameter"),
    ({"support": "tree"}, "'support' parameter"),
    ({"metric": "cosine"}, "'metric' parameter"),
    ({"domain": None}, "needs a domain"),
]


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [(name, *case) for name in SAMPLERS for case in COMMON]
    + [("evolution", *case) for case in OF_EVOLUTION]
    + [("measure", *case) for case in OF_MEASURE],
    ids=str,
)
def test_errors_of_parameters(sampler_of, labelled, name, options, message):
    with pytest.raises(ValueError, match=message):
        sampler_of(name, **options).fit(labelled.X, labelled.y)


@samplers
@pytest.mark.parametrize(
    ("y", "public", "private"),
    [
        (["a"] * 60, "at least two, got 1 class", None),
        ([None] + ["a", "b"] * 29 + ["a"], "y holds labels that are missing", "missing or not"),
        ([np.nan] + [0, 1] * 29 + [0], "y holds labels that are missing", "missing or not"),
        (["a", "b"], "y must hold 60 labels", "y must hold 60 labels"),
        (np.linspace(0, 1, 60), "Unknown label type", "not among the classes"),
        (np.zeros((60, 2)), "1d array", "1d array"),
    ],
    ids=["one", "None", "NaN", "short", "continuous", "wide"],
)
def test_errors_of_labels(sampler_of, labelled, name, y, public, private):
    with pytest.raises(ValueError, match=public):
        sampler_of(name).fit(labelled.X, y)
    sampler = sampler_of(name, labels="private", classes=["a", "b"])
    if private is None:
        # Which of the declared classes occur is private.
        assert_array_equal(sampler.fit(labelled.X, y).classes_, ["a", "b"])
        return
    with pytest.raises(ValueError, match=private):
        sampler.fit(labelled.X, y)


@samplers
@pytest.mark.parametrize(
    ("options", "message"),
    [({"classes": ["a"]}, "at least two"), ({"classes": [["a", "b"]]}, "classes")]
    + [({"classes": [0, np.nan]}, "missing"), ({"label_proportions": [-1.0, 2.0]}, "non-negative")]
    + [({"label_proportions": [np.nan, 1.0]}, "non-negative")],
    ids=str,
)
def test_nonsense_about_labels_is_refused_without_them_too(sampler_of, name, options, message):
    with pytest.raises(ValueError, match=message):
        sampler_of(name, **options).fit(np.zeros((60, 3)))


@samplers
@pytest.mark.parametrize(
    ("X", "message"),
    [
        (np.zeros(5), "2D array|two dimensions"),
        (np.zeros((0, 3)), "0 sample"),
        (np.zeros((5, 0)), "0 feature"),
        (csr_array(np.eye(3)), "[Ss]parse"),
        (np.full((4, 3), np.nan), "NaN"),
        (np.full((4, 3), 1j), "Complex"),
    ],
    ids=["1-D", "empty", "flat", "sparse", "NaN", "complex"],
)
def test_errors_of_records(sampler_of, name, X, message):
    with pytest.raises((ValueError, TypeError), match=message):
        sampler_of(name).fit(X)


@samplers
def test_errors_of_dask_arrays(sampler_of, labelled, name):
    dask_array = pytest.importorskip("dask.array")
    X = dask_array.from_array(labelled.X, chunks=20)
    for wrong, message in (
        (X[:, 0], "two dimensions"),
        (X[X[:, 0] > 0], "known sizes"),
        (X[:0], "0 sample"),
        (X[:, :2], "domain has 3 features, X has 2"),
    ):
        with pytest.raises(ValueError, match=message):
            sampler_of(name).fit(wrong)
    if name == "evolution":
        schema = Schema({name: Numeric(-2, 2) for name in "abc"})
        with pytest.raises(TypeError, match="schema takes a data frame"):
            sampler_of(name, schema=schema, domain=None).fit(X)


@samplers
def test_errors_of_samples(sampler_of, labelled, name):
    sampler = sampler_of(name)
    with pytest.raises(NotFittedError):
        sampler.sample()
    with pytest.raises(NotFittedError):
        sampler.sample_labels()
    sampler.fit(labelled.X, labelled.y)
    for wrong in ("z", ["a", "z"], np.nan, 3, [None, "a"]):
        with pytest.raises(ValueError, match="not among the classes"):
            sampler.sample(2, y=wrong)
    with pytest.raises(ValueError, match="y must hold 2 labels, one a record, got 3"):
        sampler.sample(2, y=["a", "b", "a"])
    for wrong in (0, -1, 2.0, True, "3"):
        with pytest.raises(ValueError, match="n_samples must be an integer of at least 1"):
            sampler.sample(wrong)
    sampler.fit(labelled.X)
    with pytest.raises(ValueError, match="after a fit with labels"):
        sampler.sample(2, y="a")
    with pytest.raises(ValueError, match="needs a fit with labels"):
        sampler.sample_labels(2)


# Metrics.


def manhattan(X, V):
    return abs(X[:, None] - V[None]).sum(axis=-1)


def test_the_cosine_is_no_distance_to_project_in(sampler_of, labelled, released):
    """Refused from public quantities alone, before anything is released."""
    sampler = sampler_of("evolution", metric="cosine", votes__postprocess="bounded_lipschitz")
    with pytest.raises(ValueError, match="cosine"):
        sampler.fit(labelled.X)
    assert not released


@samplers
@pytest.mark.parametrize(
    ("metric", "message"),
    [
        (lambda X, V: manhattan(X, V) * np.nan, "finite real distances"),
        (lambda X, V: manhattan(X, V) + np.inf, "finite real distances"),
        (
            lambda X, V: manhattan(X, V)[:, :1],
            "must return one distance for each pair of rows",
        ),
        (lambda X, V: manhattan(X, V).astype(str), "finite real distances"),
    ],
    ids=["NaN", "inf", "shape", "text"],
)
def test_metrics_that_are_no_metrics(sampler_of, labelled, name, metric, message):
    with pytest.raises(ValueError, match=message):
        sampler_of(name, metric=metric, votes__postprocess="simplex").fit(labelled.X)


def test_embeddings_of_another_shape(sampler_of, labelled):
    for embedding, message in (
        (lambda X: X[:, 0], "2D array|two dimensions"),
        (lambda X: X[1:], "must have one row for each record"),
        (lambda X: X * np.nan, "NaN"),
    ):
        with pytest.raises(ValueError, match=message):
            sampler_of("evolution", embedding=embedding).fit(labelled.X)


# Interfaces.


class Odd:
    """An interface that changes what another one returns."""

    def __init__(self, change, *, of="random"):
        self.inner, self.change, self.of = EuclideanVariation(BOX), change, of

    def random(self, n, rng):
        X = self.inner.random(n, rng)
        return self.change(X) if self.of == "random" else X

    def vary(self, X, rng, degree):
        if self.of == "random":
            return X
        X = self.inner.vary(X, rng, degree)
        return self.change(X) if self.of == "vary" else X

    def decode(self, X):
        return self.change(X) if self.of == "decode" else X


WRONG = [
    (lambda X: None, "Odd must return .* candidates, got None"),
    (lambda X: X[:, 0], "Odd must return candidates as an array of two dimensions, got 1"),
    (lambda X: X[:, :2], "features"),
    (lambda X: np.hstack([X, X]), "features"),
    (lambda X: np.vstack([X, X]), r"must return \d+ candidates, got \d+"),
    (lambda X: X * np.nan, "must return finite candidates"),
    (lambda X: X + 50, "must return candidates in the domain"),
    (lambda X: X.astype(str) + "z", "must return candidates as an array of numbers"),
    (lambda X: [None] * len(X), "finite candidates|as an array of numbers|dimensions"),
]


@pytest.mark.parametrize("of", ["random", "vary", "decode"])
@pytest.mark.parametrize(
    ("change", "message"),
    WRONG,
    ids=["None", "1-D", "narrow", "wide", "many", "NaN", "outside", "text", "Nones"],
)
def test_interfaces_that_return_something_else(sampler_of, labelled, change, message, of):
    with pytest.raises(ValueError, match=message):
        sampler_of("evolution", interface=Odd(change, of=of)).fit(labelled.X)


@pytest.mark.parametrize("of", ["random", "vary", "decode"])
def test_interfaces_may_return_lists_and_other_dtypes(sampler_of, labelled, same, of):
    expected, listed = (
        sampler_of("evolution", interface=Odd(change, of=of)).fit(labelled.X)
        for change in (np.asarray, np.ndarray.tolist)
    )
    assert same(listed, expected)
    single = Odd(lambda X: X.astype(np.float32), of=of)
    assert sampler_of("evolution", interface=single).fit(labelled.X).sample(3).dtype == np.float64


def test_without_a_domain_widths_are_still_those_of_the_records(sampler_of, labelled):
    sampler = sampler_of("evolution", domain=None, interface=EuclideanVariation(BOX))
    sampler.fit(3 * labelled.X)
    assert not hasattr(sampler, "domain_")
    assert sampler.sample(4).shape == (4, 3)
    narrow = Odd(lambda X: X[:, :2], of="decode")
    with pytest.raises(ValueError, match="Odd must return candidates of 3 features, got 2"):
        sampler_of("evolution", domain=None, interface=narrow).fit(labelled.X)


def test_equal_candidates_share_no_noise(sampler_of, labelled):
    def same_again(X):
        return np.repeat(X[:1], len(X), axis=0)

    for interface in (Odd(same_again), Odd(np.zeros_like, of="vary")):
        sampler = sampler_of("evolution", interface=interface).fit(labelled.X)
        for step in sampler.history_:
            found = step[0].candidates
            assert len(np.unique(found, axis=0)) == len(found)
    single = sampler_of("evolution", interface=Odd(np.zeros_like)).fit(labelled.X)
    assert len(single.history_[0][0].candidates) <= 25


# Tables.


def test_tables_that_do_not_fit_the_schema(sampler_of):
    schema = Schema({"age": Numeric(0, 100), "job": Categorical(["baker", "nurse"])})
    table = pd.DataFrame({"age": [1.0, 2.0], "job": ["baker", "nurse"]})
    sampler = sampler_of("evolution", schema=schema, domain=None)
    for wrong, column in (
        (table.drop(columns="job"), "job"),
        (table.assign(job=["baker", "pilot"]), "job"),
        (table.assign(extra=1.0), "extra"),
        (table.assign(age=[1.0, np.nan]), "age"),
    ):
        with pytest.raises(ValueError, match=column):
            sampler.fit(wrong)
    with pytest.raises((TypeError, ValueError), match="Column|schema"):
        sampler.fit(np.zeros((3, 2)))
    with pytest.raises(ValueError, match="EuclideanVariation must return candidates in the domain"):
        sampler_of("evolution", schema=schema, domain=None, interface=EuclideanVariation(BOX)).fit(
            table
        )
