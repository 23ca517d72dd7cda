"""Votes against a brute-force search in float64, for every backend."""

import sys

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse import csr_array
from sklearn.preprocessing import StandardScaler
from votes_reference import CASES, brute_force, check, clouds, distances, normal

from sklearn_dpgen.evolution._votes import nearest_neighbor_votes


@pytest.mark.parametrize("memory", [0.001, 0.1, 256])
@pytest.mark.parametrize(("n", "m", "d"), [(200, 1, 3), (50, 2, 1), (300, 700, 5), (100, 1000, 17)])
@pytest.mark.parametrize(("metric", "backend"), CASES)
def test_same_as_brute_force(metric, backend, n, m, d, memory):
    check(normal(n, d), normal(m, d, 1), metric, backend=backend, memory=memory)


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@given(clouds(), st.sampled_from(CASES), st.sampled_from([0.001, 0.02, 256]))
def test_ties(cloud, case, memory):
    check(*cloud, case[0], backend=case[1], memory=memory)


@pytest.mark.parametrize(("metric", "backend"), CASES)
def test_first_of_equal_candidates_gets_the_votes(metric, backend):
    V = normal(300, 3, 1)
    V[7] = 0.0
    twice = np.concatenate((V, V, -np.where(V == 0, 0.0, -V)))
    votes = nearest_neighbor_votes(normal(500, 3), twice, metric=metric, backend=backend)
    np.testing.assert_array_equal(votes[:300], brute_force(normal(500, 3), V, metric))
    assert not votes[300:].any()


@pytest.mark.parametrize("power", [-1060, -664, 664, 1020])
@pytest.mark.parametrize(("metric", "backend"), CASES)
def test_scales(metric, backend, power):
    # Powers of two change no digit, but squares of these would all be zero or infinite.
    X, V = normal(100, 3).astype(np.float16), normal(600, 3, 1).astype(np.float16)
    X, V = X.astype(np.float64), V.astype(np.float64)
    votes = nearest_neighbor_votes(
        np.ldexp(X, power), np.ldexp(V, power), metric=metric, backend=backend
    )
    if power == -1060:  # there digits are lost
        X, V = (np.ldexp(np.ldexp(x, power), -power) for x in (X, V))
    np.testing.assert_array_equal(votes, brute_force(X, V, metric))


@pytest.mark.parametrize("shift", [1e3, 1e9, 1e13, 1e20, 1e200])
@pytest.mark.parametrize("backend", ["torch", "tree"])
@pytest.mark.parametrize("metric", ["l2", "l1"])
def test_candidates_far_from_records(metric, backend, shift):
    X, V = normal(40, 4), normal(500, 4, 1)
    V[::3] += np.float64(shift) * np.array([0.0, 1.0, 0.0, -1.0])
    power = int(np.log2(shift))
    found = nearest_neighbor_votes(X + shift, V, metric=metric, backend=backend)
    expected = brute_force(np.ldexp(X + shift, -power), np.ldexp(V, -power), metric)
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("backend", ["torch", "tree"])
@pytest.mark.parametrize("metric", ["l2", "l1"])
def test_whole_range_of_floats(metric, backend):
    V = np.ldexp(np.linspace(-1, 1, 701), 1023)[:, None] * np.ones(3)
    X = np.ldexp(np.random.default_rng(0).uniform(-1.9, 1.9, (300, 3)), 1023)
    votes = nearest_neighbor_votes(X, V, metric=metric, backend=backend)
    expected = brute_force(np.ldexp(X, -1023), np.ldexp(V, -1023), metric)
    np.testing.assert_array_equal(votes, expected)


@pytest.mark.parametrize(("metric", "backend"), CASES)
def test_float32_votes_like_float64(metric, backend):
    X, V = normal(300, 3).astype(np.float32), normal(400, 3, 1).astype(np.float32)
    for records, candidates in ((X, V), (X.astype(np.float64), V), (X, V.astype(np.float64))):
        check(records, candidates, metric, backend=backend)


@pytest.mark.slow
def test_faiss_gives_the_same_votes():
    pytest.importorskip("faiss")
    check(normal(300, 8), normal(400, 8, 1), "l2", backend="faiss")
    check(normal(300, 8, scale=1e-9, shift=1), normal(400, 8, 1, 1e-9, 1), "l2", backend="faiss")
    grid = np.random.default_rng(0).integers(0, 3, (500, 4))
    check(grid[:200], grid[200:], "l2", backend="faiss", memory=0.01)


def test_faiss_that_is_missing(monkeypatch):
    monkeypatch.setitem(sys.modules, "faiss", None)
    with pytest.raises(ImportError, match=r"sklearn-dpgen\[faiss\]"):
        nearest_neighbor_votes(normal(3, 2), normal(3, 2), backend="faiss")


# What the guarantee rests on.


@settings(max_examples=20, deadline=None)
@given(clouds(), st.sampled_from(CASES), st.integers(0, 2**32 - 1))
def test_replacing_a_record_moves_one_vote(cloud, case, seed):
    X, V = cloud
    options = {"metric": case[0], "backend": case[1]}
    votes = nearest_neighbor_votes(X, V, **options)
    rng = np.random.default_rng(seed)
    other = X.copy()
    other[rng.integers(len(X))] = 3 * rng.standard_normal(X.shape[1])
    change = nearest_neighbor_votes(other, V, **options) - votes
    assert sorted(change[change != 0].tolist()) in ([], [-1, 1])
    assert votes.sum() == len(X)


# Metrics and embeddings.


def test_zero_rows_are_at_the_same_cosine_distance_from_all():
    V = np.array([[-1.0, 0.0], [0.0, 0.0], [1.0, 1.0]])
    X = np.array([[0.0, 0.0], [-0.0, 0.0], [1.0, 0.0], [0.5, -1.0]])
    votes = nearest_neighbor_votes(X, V, metric="cosine")
    # The last record is at an obtuse angle to both others, and at distance 1 from zero.
    np.testing.assert_array_equal(votes, [2, 1, 1])


def test_callable_metric():
    X, V = normal(300, 4), normal(50, 4, 1)
    calls = []

    def metric(x, v):
        assert x.dtype == v.dtype == np.float64
        calls.append(len(x))
        return distances(x, v, "l2")

    votes = nearest_neighbor_votes(X, V, metric=metric, memory=0.01)
    np.testing.assert_array_equal(votes, brute_force(X, V))
    assert len(calls) > 10
    assert sum(calls) == 300
    tied = nearest_neighbor_votes(X, V, metric=lambda x, v: torch.zeros(len(x), len(v)))
    np.testing.assert_array_equal(tied, [300] + 49 * [0])


@pytest.mark.parametrize(
    ("result", "message"),
    [
        (lambda x, v: np.full((len(x), len(v)), np.nan), "finite"),
        (lambda x, v: np.full((len(x), len(v)), np.inf), "finite"),
        (lambda x, v: np.full((len(x), len(v)), "a"), "finite real"),
        (lambda x, v: np.zeros((len(v), len(x))), "one distance for each pair of rows"),
        (lambda x, v: np.zeros(len(x)), r"must return one distance for each pair of rows"),
    ],
)
def test_metric_that_returns_no_distances(result, message):
    with pytest.raises(ValueError, match=message):
        nearest_neighbor_votes(normal(9, 2), normal(5, 2, 1), metric=result)


@pytest.mark.parametrize("metric", ["l2", lambda x, v: distances(x, v, "l2")])
def test_embedding(metric):
    X, V = normal(200, 4, 0, 3.0), normal(40, 4, 1)
    scaler = StandardScaler().fit(V * np.arange(1, 5))
    expected = brute_force(scaler.transform(X), scaler.transform(V))
    for embedding in (scaler, scaler.transform):
        votes = nearest_neighbor_votes(X, V, metric=metric, embedding=embedding, memory=0.01)
        np.testing.assert_array_equal(votes, expected)
    narrow = nearest_neighbor_votes(X, V, metric=metric, embedding=lambda x: torch.tensor(x[:, :1]))
    np.testing.assert_array_equal(narrow, brute_force(X[:, :1], V[:, :1]))


@pytest.mark.parametrize(
    ("embedding", "message"),
    [
        (lambda x: x[:1], r"embedding\(V\) must have one row for each record"),
        (lambda x: x * np.nan, r"embedding\(V\) contains NaN"),
        (lambda x: x[:, : 1 + (len(x) == 5)], r"embedding\(X\) has 1 features"),
    ],
)
def test_embedding_that_does_not_fit(embedding, message):
    with pytest.raises(ValueError, match=message):
        nearest_neighbor_votes(normal(9, 3), normal(5, 3, 1), embedding=embedding)


# Inputs.


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"metric": "l3"}, "metric must be"),
        ({"backend": "brute"}, "backend must be"),
        ({"metric": "cosine", "backend": "tree"}, "'tree' does not take"),
        ({"metric": "l1", "backend": "faiss"}, "'faiss' takes"),
        ({"metric": np.subtract.outer, "backend": "tree"}, "callable metric"),
        ({"memory": 0}, "memory must be positive"),
        ({"V": np.empty((0, 2))}, "at least one candidate"),
        ({"V": np.ones((3, 5))}, "X has 2 features, V has 5"),
        ({"V": np.full((3, 2), np.nan)}, "V contains NaN or infinity"),
        ({"X": np.full((3, 2), np.inf)}, "X contains NaN or infinity"),
        ({"X": np.ones(3)}, "Expected 2D array"),
        ({"X": np.float64(3)}, "two dimensions"),
        ({"X": [["a", "b"]]}, "could not convert"),
    ],
)
def test_value_errors(options, message):
    with pytest.raises(ValueError, match=message):
        nearest_neighbor_votes(**{"X": normal(4, 2), "V": normal(3, 2, 1), **options})


@pytest.mark.parametrize("X", [csr_array(np.eye(2)), "ab", 3, {"a": 1}])
def test_type_errors(X):
    with pytest.raises(TypeError):
        nearest_neighbor_votes(X, np.eye(2))


def test_errors_show_no_record():
    for X in ([["731", "b"]], [[731.5, np.nan]], np.array([731.5])):
        with pytest.raises(ValueError) as error:  # noqa: PT011
            nearest_neighbor_votes(X, np.eye(2))
        assert "731" not in str(error.value)


def test_kinds_of_tables():
    X, V = np.random.default_rng(0).integers(0, 9, (60, 2)), normal(20, 2, 1, 4, 4)
    for table in (X, X.tolist(), pd.DataFrame(X), torch.tensor(X), X.astype(object), X.T.copy().T):
        check(table, V, "l2", memory=0.001)
    assert nearest_neighbor_votes(X[:0], V).tolist() == [0] * 20


def test_inputs_and_threads_are_left_alone():
    X, V = normal(500, 5, scale=1e30), normal(600, 5, 1)
    before, threads = (X.copy(), V.copy()), torch.get_num_threads()
    for metric in ("l2", "l1", "cosine"):
        nearest_neighbor_votes(X, V, metric=metric, backend="torch")
    np.testing.assert_array_equal(X, before[0])
    np.testing.assert_array_equal(V, before[1])
    assert torch.get_num_threads() == threads
