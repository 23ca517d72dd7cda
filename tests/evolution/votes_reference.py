"""Votes by brute force in float64, and clouds of points to compare them on."""

import numpy as np
from hypothesis import strategies as st

from sklearn_dpgen.evolution._votes import nearest_neighbor_votes

CASES = [
    ("l2", "torch"),
    ("l2", "tree"),
    ("l1", "torch"),
    ("l1", "tree"),
    ("cosine", "torch"),
    ("l2", "auto"),
]


def distances(X, V, metric):
    """Return all distances; sums run over the features in their order."""
    X, V = np.asarray(X, np.float64), np.asarray(V, np.float64)
    if metric == "cosine":
        X, V = unit(X), unit(V)
        return -np.cumsum(X[:, None] * V, axis=2)[:, :, -1]
    differences = X[:, None] - V
    terms = np.square(differences) if metric == "l2" else np.abs(differences)
    return np.cumsum(terms, axis=2)[:, :, -1]


def unit(X):
    norms = np.sqrt(np.cumsum(X * X, axis=1)[:, -1:])
    return X / np.where(norms > 0, norms, 1)


def brute_force(X, V, metric="l2"):
    return np.bincount(distances(X, V, metric).argmin(axis=1), minlength=len(V))


def normal(n, d, seed=0, scale=1.0, shift=0.0):
    return shift + scale * np.random.default_rng(seed).standard_normal((n, d))


def check(X, V, metric, **options):
    votes = nearest_neighbor_votes(X, V, metric=metric, **options)
    assert votes.dtype == np.int64
    assert votes.sum() == len(X)
    np.testing.assert_array_equal(votes, brute_force(X, V, metric))


@st.composite
def clouds(draw):
    """Draw records and candidates: on a coarse grid, where many tie, or nearly so."""
    d, n, m = draw(st.integers(1, 5)), draw(st.integers(1, 40)), draw(st.integers(1, 400))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    size = draw(st.integers(1, 4))
    X, V = rng.integers(-size, size + 1, (n, d)), rng.integers(-size, size + 1, (m, d))
    X, V = X.astype(np.float64), V.astype(np.float64)
    jitter = draw(st.sampled_from([0.0, 1e-16, 1e-12, 1e-7, 1e-3]))
    X += jitter * rng.standard_normal((n, d)) * rng.integers(0, 2, (n, 1))
    V += jitter * rng.standard_normal((m, d)) * rng.integers(0, 2, (m, 1))
    X, V = X / draw(st.sampled_from([1, 2, 10])), V / draw(st.sampled_from([1, 2, 10]))
    shift = draw(st.sampled_from([0.0, 0.1, 1e6]))
    return X + shift, V + shift
