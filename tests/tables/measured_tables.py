"""Codes of records in five columns, and the vectors that are released of them."""

import numpy as np
from hypothesis import settings

from sklearn_dpgen.tables._column_trees import ColumnCells, ColumnTree
from sklearn_dpgen.tables._marginals import ColumnBlocks, Marginal, all_pairs
from sklearn_dpgen.tables._releases import Measurements, release_marginals, release_singles

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


def leaves_of(codes, trees=TREES):
    """Return the exact counts of the leaves of each column."""
    pairs = zip(codes, trees, strict=True)
    return [np.bincount(c, minlength=t.n_values + t.nullable).astype(float) for c, t in pairs]


class Seen:
    """A release without noise, that keeps what it is given."""

    def __init__(self):
        self.vectors = []

    def __call__(self, vector):
        self.vectors.append(vector.copy())
        return vector.copy()


def vector_of_singles(codes, weights, trees=TREES):
    seen = Seen()
    release_singles(leaves_of(codes, trees), trees, weights, seen)
    (vector,) = seen.vectors
    return vector


def vector_of_marginals(tables, weights):
    seen = Seen()
    release_marginals(tables, weights, seen)
    (vector,) = seen.vectors
    return vector


def whole(*marginals, sizes=SIZES):
    """Return marginals of whole columns: a group a block."""
    return [Marginal(columns, tuple(np.arange(sizes[j]) for j in columns)) for columns in marginals]


def cells_of(codes, sizes=SIZES):
    """Return what exact counts of single columns tell."""
    found = []
    for column, size in zip(codes, sizes, strict=True):
        shares = np.bincount(column, minlength=size) / len(column)
        found.append(ColumnCells(np.arange(size), shares, np.full(size, 1e-4)))
    return found


def blocks_of(cells, *, is_ordered=False):
    """Return blocks of columns: a category each."""
    n = len(cells)
    return ColumnBlocks([part.shares for part in cells], [is_ordered] * n, [0] * n, [0] * n)


def measurements_of(codes, sizes=SIZES, **options):
    """Return what was measured when single columns alone were, without noise."""
    cells = cells_of(codes, sizes)
    blocks = blocks_of(cells, **options)
    return Measurements(NAMES[: len(sizes)], cells, float(len(codes[0])), blocks)
