"""Codes of records in five columns, and the vectors that are released of them."""

import numpy as np
from hypothesis import settings

from sklearn_dpgen.tables._column_trees import ColumnTree
from sklearn_dpgen.tables._releases import release_singles, release_slices
from sklearn_dpgen.tables._slices import all_pairs

reproducibly = settings(deadline=None, max_examples=40, derandomize=True)
SIZES = [3, 2, 4, 2, 5]
NAMES = ["a", "b", "c", "d", "e"]
PAIRS = all_pairs(5)
TREES = [
    ColumnTree(5000, nullable=True),
    ColumnTree(40),
    ColumnTree(7, is_flat=True),
    ColumnTree(12, nullable=True),
]


def records(n, seed=0, sizes=None):
    rng = np.random.default_rng(seed)
    sizes = [tree.n_values + tree.nullable for tree in TREES] if sizes is None else sizes
    return [rng.integers(size, size=n) for size in sizes]


class Seen:
    """A release without noise, that keeps what it is given."""

    def __init__(self):
        self.vectors = []

    def __call__(self, vector):
        self.vectors.append(vector.copy())
        return vector.copy()


def vector_of_singles(codes, weights, trees=TREES):
    seen = Seen()
    release_singles(codes, trees, weights, seen)
    (vector,) = seen.vectors
    return vector


def vector_of_slices(tables, weights):
    seen = Seen()
    release_slices(tables, weights, seen)
    (vector,) = seen.vectors
    return vector


def add_singles(measured, noise_scale):
    rng = np.random.default_rng(0)
    tables = [rng.normal(50, 9, size=size) for size in SIZES]
    spreads = [2.0, rng.uniform(1, 3, size=2), np.float64(1), 1.0, rng.uniform(1, 3, size=5)]
    measured.add([(i,) for i in range(5)], tables, spreads, noise_scale)
    return tables, spreads
