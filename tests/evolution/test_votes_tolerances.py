"""Searches in low precision: their tolerances, and what a wrong one would do."""

import pickle

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from votes_reference import check, clouds, distances, normal, unit

from sklearn_dpgen.evolution import _nearest_candidates
from sklearn_dpgen.evolution._nearest_candidates import Frame, ProductSearch, Scores

PRECISIONS = [torch.float32, torch.float64]
CPU = torch.device("cpu")


def in_float64(monkeypatch):
    """Let the search use float64 alone, as where products of float32 are rounded."""
    monkeypatch.setattr(_nearest_candidates, "product_is_exact", lambda *args: False)


@pytest.mark.parametrize("dtype", PRECISIONS)
@pytest.mark.parametrize("metric", ["l2", "l1", "cosine"])
@settings(max_examples=25, deadline=None)
@given(cloud=clouds())
def test_every_precision_leaves_the_nearest(metric, dtype, cloud):
    with pytest.MonkeyPatch.context() as patch:
        if dtype == torch.float64:
            in_float64(patch)
        check(*cloud, metric, backend="torch")


@st.composite
def near_bisectors(draw):
    """Draw records that are, up to a few units in the last place, as near to two candidates."""
    d, n, m = draw(st.sampled_from([1, 2, 16, 40])), draw(st.integers(1, 40)), 70
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    V = rng.standard_normal((m, d)) * 2.0 ** draw(st.integers(-3, 3))
    # Some candidates are copies of others, moved by less than float32 or float64 resolves.
    step = draw(st.sampled_from([2.0**-52, 2.0**-40, 2.0**-24]))
    V[m // 2 :] = V[: m // 2] * (1 + step * rng.integers(-2, 3, (m // 2, d)))
    left, right = V[rng.integers(m, size=n)], V[rng.integers(m, size=n)]
    X = (left + right) / 2
    return X * (1 + 2.0**-52 * rng.integers(-2, 3, (n, d))), V[rng.permutation(m)]


@pytest.mark.parametrize("metric", ["l2", "l1", "cosine"])
@settings(max_examples=40, deadline=None)
@given(cloud=near_bisectors(), shift=st.sampled_from([0.0, 1.0, 1e5]))
def test_near_ties_are_decided_as_in_float64(metric, cloud, shift):
    X, V = cloud
    check(X + shift, V + shift, metric, backend="torch", memory=0.5)


# Twins: searches with a fault that the comparison above must find.


def near_ties():
    """Return records and candidates that float32 cannot tell apart, and exact ties."""
    rng = np.random.default_rng(0)
    V = rng.integers(0, 4, (600, 3)) + 1e-9 * rng.integers(0, 2, (600, 3))
    return rng.integers(0, 7, (200, 3)) / 2, V


def largest_of_tied(self, X, waiting, found):
    rows, candidates = map(np.concatenate, zip(*waiting, strict=True))
    gaps = _nearest_candidates.direct_distances(
        X[rows], self.V[candidates], self.metric, self.largest
    )
    for i in np.lexsort((candidates, -gaps, rows)):
        found[rows[i]] = candidates[i]


def first_kept(self, X, waiting, found):
    rows, candidates = map(np.concatenate, zip(*waiting, strict=True))
    found[rows[::-1]] = candidates[::-1]


@pytest.mark.parametrize("backend", ["torch", "tree"])
@pytest.mark.parametrize("fault", [largest_of_tied, first_kept])
def test_wrong_decision_of_ties_is_found(monkeypatch, fault, backend):
    check(*near_ties(), "l2", backend=backend)
    monkeypatch.setattr(ProductSearch, "_decide", fault)
    with pytest.raises(AssertionError):
        check(*near_ties(), "l2", backend=backend)


def test_decision_in_float32_is_found(monkeypatch):
    direct = _nearest_candidates.direct_distances

    def rounded(X, V, metric, largest):
        return direct(X.astype(np.float32), V.astype(np.float32), metric, largest)

    monkeypatch.setattr(_nearest_candidates, "direct_distances", rounded)
    with pytest.raises(AssertionError):
        check(*near_ties(), "l2", backend="torch")


@pytest.mark.slow
def test_precision_without_tolerance_is_found(monkeypatch):
    X, V = normal(1000, 16), normal(1000, 16, 1)
    V = np.concatenate((V, V + 1e-9 * normal(1000, 16, 2)))
    check(X, V, "l2", backend="torch", memory=4)
    original = Scores.records

    def without(self, *coordinates):
        points, error = original(self, *coordinates)
        return points, 0 * error

    monkeypatch.setattr(Scores, "records", without)
    with pytest.raises(AssertionError):
        check(X, V, "l2", backend="torch", memory=4)


# Tolerances.


@pytest.mark.parametrize("metric", ["l2", "l1", "cosine"])
@pytest.mark.parametrize("dtype", PRECISIONS)
@pytest.mark.parametrize("shift", [0.0, 30.0])
def test_errors_are_within_their_bounds(metric, dtype, shift):
    X, V = normal(50, 40, 0, 1.0, shift), normal(300, 40, 1)
    if metric == "cosine":
        X, V = unit(X), unit(V)
    frame = Frame(V, metric)
    level = Scores(frame, dtype, CPU)
    points, error = level.records(*frame(X))
    if metric == "l1":
        scores = -torch.cdist(level.candidates, points, p=1)[:300].double().numpy()
    else:
        scores = (level.candidates @ points.T)[:300].double().numpy()
    exact = distances(X, V, metric).T / (2 if metric == "l2" else 1)
    if metric != "cosine":
        exact = np.ldexp(exact, -frame._spread - frame._exponent)
        if metric == "l2":
            exact = np.ldexp(exact, -frame._spread - frame._exponent)
    # Scores of "l2" have a constant of the record on top.
    gaps = (scores + exact) - (scores + exact)[:1]
    bounds = 2 * error.numpy()
    assert (np.abs(gaps) <= bounds).all()
    # A bound of a thousandth would not hold.
    assert np.abs(gaps).max() > bounds.max() / 1000


def test_float64_comes_in_where_float32_rules_out_too_little():
    V = normal(2000, 4, scale=1e-8) + np.eye(4)[np.arange(2000) % 4]
    search = ProductSearch(V, "l2", memory=2**20, device=CPU)
    found = search.nearest(V[:200])
    assert torch.float64 in search._scores
    np.testing.assert_array_equal(found, distances(V[:200], V, "l2").argmin(axis=1))
    assert not pickle.loads(pickle.dumps(search))._scores
    far_apart = ProductSearch(normal(2000, 4), "l2", memory=2**20, device=CPU)
    far_apart.nearest(normal(200, 4, 1))
    assert torch.float64 not in far_apart._scores


def test_rounded_products_are_not_trusted(monkeypatch):
    assert _nearest_candidates.product_is_exact(18, CPU)
    product = torch.mm

    def rounded(a, b, **options):
        return product(a.bfloat16().float(), b.bfloat16().float(), **options)

    monkeypatch.setattr(torch, "mm", rounded)
    assert not _nearest_candidates.product_is_exact(18, CPU)


@pytest.mark.gpu
@pytest.mark.parametrize("metric", ["l2", "l1", "cosine"])
def test_device(metric):
    X, V = normal(500, 6), normal(700, 6, 1)
    check(X, V, metric, device="cuda")
    check(*near_ties(), metric, device="cuda")
