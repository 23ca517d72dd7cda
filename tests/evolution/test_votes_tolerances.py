"""Searches in low precision: their tolerances, and what a wrong one would do."""

import pickle

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from votes_reference import check, clouds, distances, normal, unit

from sklearn_dpgen.evolution import _low_precision_scores, _nearest_candidates
from sklearn_dpgen.evolution._nearest_candidates import TorchSearch

LEVELS = [torch.bfloat16, torch.float32, torch.float64]


def only(monkeypatch, *dtypes):
    """Let the search use these precisions alone before the last one, whatever the machine."""

    monkeypatch.setattr(TorchSearch, "_precisions", [*dtypes, torch.float64])


@pytest.mark.parametrize("dtype", LEVELS)
@pytest.mark.parametrize("metric", ["l2", "cosine"])
@settings(max_examples=25, deadline=None)
@given(cloud=clouds())
def test_every_precision_leaves_the_nearest(metric, dtype, cloud):
    with pytest.MonkeyPatch.context() as patch:
        only(patch, dtype)
        check(*cloud, metric, backend="torch")


# Twins: searches with a fault that the comparison above must find.


def near_ties():
    """Return records and candidates that float32 cannot tell apart, and exact ties."""
    rng = np.random.default_rng(0)
    V = rng.integers(0, 4, (600, 3)) + 1e-9 * rng.integers(0, 2, (600, 3))
    return rng.integers(0, 7, (200, 3)) / 2, V


def largest_of_tied(self, X, rows, candidates):
    found = np.empty(len(X), np.int64)
    gaps = _nearest_candidates.direct_distances(
        X[rows], self.V[candidates], self.metric, self.largest
    )
    for i in np.lexsort((candidates, -gaps, rows)):
        found[rows[i]] = candidates[i]
    return found


def first_kept(self, X, rows, candidates):
    found = np.empty(len(X), np.int64)
    found[rows[::-1]] = candidates[::-1]
    return found


@pytest.mark.parametrize("backend", ["torch", "tree"])
@pytest.mark.parametrize("fault", [largest_of_tied, first_kept])
def test_wrong_decision_of_ties_is_found(monkeypatch, fault, backend):
    check(*near_ties(), "l2", backend=backend)
    monkeypatch.setattr(TorchSearch, "_decide", fault)
    with pytest.raises(AssertionError):
        check(*near_ties(), "l2", backend=backend)


def test_decision_in_float32_is_found(monkeypatch):
    direct = _nearest_candidates.direct_distances

    def rounded(X, V, metric, largest):
        return direct(X.astype(np.float32), V.astype(np.float32), metric, largest)

    monkeypatch.setattr(_nearest_candidates, "direct_distances", rounded)
    with pytest.raises(AssertionError):
        check(*near_ties(), "l2", backend="torch")


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
def test_precision_without_tolerance_is_found(monkeypatch, dtype):
    only(monkeypatch, dtype)
    original = _low_precision_scores.Level.records

    def without(self, *coordinates):
        records = original(self, *coordinates)
        return _low_precision_scores.Records(records.points, 0 * records.error)

    if dtype == torch.float32:
        X, V, metric = normal(1000, 16), normal(1000, 16, 1), "l2"
        V = np.concatenate((V, V + 1e-9 * normal(1000, 16, 2)))
    else:
        # One candidate is rounded up wherever it counts, and a slightly better one down.
        step, better = 2.0**-11, 131.49 + (np.arange(200) < 6)
        V = -1 - np.random.default_rng(0).random((65, 201))
        V[0, :200], V[64, :200] = 131.51 * step, better * step
        for i in (0, 64):
            V[i, 200] = np.sqrt(1 - np.square(V[i, :200]).sum())
        X, metric = np.ones((40, 201)), "cosine"
        X[:, 200] = np.linspace(-3, 3, 40)
    check(X, V, metric, backend="torch", memory=4)
    monkeypatch.setattr(_low_precision_scores.Level, "records", without)
    with pytest.raises(AssertionError):
        check(X, V, metric, backend="torch", memory=4)


# Tolerances.


@pytest.mark.parametrize(
    ("metric", "dtype"), [(m, t) for m in ("l2", "cosine") for t in LEVELS] + [("l1", LEVELS[-1])]
)
@pytest.mark.parametrize("shift", [0.0, 30.0])
def test_errors_are_within_their_bounds(metric, dtype, shift):
    X, V = normal(50, 40, 0, 1.0, shift), normal(300, 40, 1)
    if metric == "cosine":
        X, V = unit(X), unit(V)
    frame = _low_precision_scores.Frame(V, metric)
    level = _low_precision_scores.Level(frame, np.arange(300), dtype, torch.device("cpu"))
    records = level.records(*frame(X))
    # The product as float64 has it, of the factors as this precision has them: what is left is
    # the rounding of the factors, by far the most in bfloat16.
    scores = level.scores(
        level.candidates.double(), records.points.double().T, torch.empty(320, 50).double()
    )[:300].numpy()
    exact = distances(X, V, metric).T / (2 if metric == "l2" else 1)
    if metric != "cosine":
        exact = np.ldexp(exact, -frame._spread - frame._exponent)
        if metric == "l2":
            exact = np.ldexp(exact, -frame._spread - frame._exponent)
    # Scores have a constant of the record on top.
    gaps = (scores + exact) - (scores + exact)[:1]
    bounds = 2 * records.error.numpy()
    assert (np.abs(gaps) <= bounds).all()
    if dtype == torch.bfloat16:
        assert np.abs(gaps).max() > bounds.max() / 50


def keeps_what_may_be_nearest():
    """Whether each block within two errors of the best score survives, as scores are stored.

    Scores are sums of few bits, exact in float32: what moves them is how bfloat16 stores them.
    """
    n_blocks, n = 64, 4000
    V = np.ones((_low_precision_scores.BLOCK * n_blocks, 4))
    # Half of the blocks are far off.
    steps = np.where(np.arange(n_blocks) < 32, -0.5, np.arange(n_blocks) * 2.0**-14)
    V[:, 0] = np.repeat(steps, _low_precision_scores.BLOCK)
    parts = np.random.default_rng(0).integers(128, size=(n, 3)) * 2.0 ** np.array([-7, -14, -21])
    points = torch.from_numpy(np.column_stack([np.ones(n), parts, np.ones((n, 2))])).bfloat16()
    error = torch.full((n,), 2.0**-13, dtype=torch.float64)
    frame = _low_precision_scores.Frame(V, "cosine")
    level = _low_precision_scores.Level(
        frame, np.arange(len(V)), torch.bfloat16, torch.device("cpu")
    )
    kept = np.zeros((n, n_blocks), dtype=bool)
    blocks, rows = level.surviving(_low_precision_scores.Records(points, error), 2**24)
    kept[rows, blocks] = True
    scores = 1 + parts.sum(axis=1)[:, None] + steps
    may_be_nearest = scores >= scores.max(axis=1, keepdims=True) - 2.0**-12
    assert not kept[:, :32].any()
    return bool(kept[may_be_nearest].all())


def test_scores_are_stored_with_a_margin(monkeypatch):
    assert keeps_what_may_be_nearest()
    power = torch.ldexp
    for share in (0.0, 0.5, 0.9):
        monkeypatch.setattr(torch, "ldexp", lambda *args, s=share: s * power(*args))
        assert not keeps_what_may_be_nearest()


def test_low_precision_is_given_up_where_it_tells_nothing():
    V = normal(2000, 4, scale=1e-6) + np.eye(4)[np.arange(2000) % 4]
    search = TorchSearch(V, "l2", memory=2**20, device=torch.device("cpu"))
    search.nearest(V[:200])
    assert search._n_given_up > 0
    assert pickle.loads(pickle.dumps(search))._n_given_up == search._n_given_up


def test_rounded_products_are_not_trusted(monkeypatch):
    assert _nearest_candidates.product_is_exact(18, torch.device("cpu"))
    product = torch.mm

    def rounded(a, b, **options):
        return product(a.bfloat16().float(), b.bfloat16().float(), **options)

    monkeypatch.setattr(torch, "mm", rounded)
    assert not _nearest_candidates.product_is_exact(18, torch.device("cpu"))


@pytest.mark.gpu
@pytest.mark.parametrize("metric", ["l2", "l1", "cosine"])
def test_device(metric):
    X, V = normal(500, 6), normal(700, 6, 1)
    check(X, V, metric, device="cuda")
    check(*near_ties(), metric, device="cuda")
