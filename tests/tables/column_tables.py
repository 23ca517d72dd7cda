"""Trees of columns, and counts on them."""

import itertools

import numpy as np
from hypothesis import settings
from numpy.testing import assert_allclose, assert_array_equal

from sklearn_dpgen.tables._column_trees import MAX_CELLS, MAX_LEAVES, ColumnTree

reproducibly = settings(deadline=None, max_examples=60, derandomize=True)
FULL = ColumnTree(MAX_LEAVES)
# Values, nullable, anchor.
SMALL = [
    (2, True, 0),
    (7, False, 3),
    (32, False, 0),
    (33, True, 0),
    (64, False, 63),
    (67, True, 20),
    (300, False, 150),
    (330, False, -1700),
    (100, True, 1 << 40),
    (700, True, 7),
    (1500, False, 0),
]


def interval(leaf, anchor, base):
    """Return the interval that holds a leaf, by the definition: so many in a power of two."""
    distance = abs(leaf - anchor)
    power = distance.bit_length() - 1
    part = (distance - 2**power) * base // 2**power if distance else 0
    return np.sign(leaf - anchor), power, part


def intervals(n_values, anchor, base):
    """Return the (first, last) leaf of each interval of a level."""
    found = itertools.groupby(range(n_values), lambda leaf: interval(leaf, anchor, base))
    groups = [list(group) for _, group in found]
    return [(group[0], group[-1]) for group in groups]


def nodes(n_values, nullable, anchor=0, is_flat=False):
    """Return the (first, last) leaf of each cell, by the definition; null is the leaf after all."""
    levels = [[(leaf, leaf) for leaf in range(n_values)]]
    if not is_flat and n_values > 32:
        sizes = [len(intervals(n_values, anchor, 2**k)) for k in range(40)]
        base = 2 ** (sum(size <= 24 for size in sizes) - 1)
        top = intervals(n_values, anchor, base)
        if max(last - first for first, last in top) >= 128:
            levels.append(intervals(n_values, anchor, 16 * base))
        levels.append(top)
    null = [(n_values, n_values)] * nullable
    return [cell for level in levels for cell in level + null], len(levels)


def node_counts(tree, codes):
    """Return the counts of all nodes, from the leaf of each record."""
    n_leaves = tree.n_values + tree.nullable
    leaves = np.bincount(codes, minlength=n_leaves).astype(np.float64)
    assert len(leaves) == n_leaves
    return tree.counts(leaves)


def incidence(tree):
    """Return the counts of a record at each leaf, in rows."""
    leaves = range(tree.n_values + tree.nullable)
    return np.array([node_counts(tree, np.array([leaf])) for leaf in leaves])


def even(n_records, n_values=MAX_LEAVES):
    return np.arange(n_records) * n_values // n_records


def noisy(counts, noise_scale, seed):
    return counts + noise_scale * np.random.default_rng(seed).normal(size=counts.shape)


def total(tree, counts):
    levels, nulls, _ = tree.estimate(counts)
    return levels[-1].sum() + nulls.sum()


def checked_cells(tree, counts, noise_scale, n_records=None):
    """Return the cells, after a look at what holds of all cells."""
    before = counts.copy()
    starts, shares, variances = tree.cells(counts, noise_scale, n_records)
    assert_array_equal(counts, before)
    assert starts[0] == 0
    assert starts[-1] < tree.n_values
    assert (np.diff(starts) > 0).all()
    assert 2 <= len(starts) <= (tree.n_values if tree.n_levels == 1 else MAX_CELLS)
    assert len(starts) + tree.nullable <= tree.n_bins
    if tree.n_values <= MAX_CELLS:
        assert_array_equal(starts, np.arange(tree.n_values))
    assert shares.shape == variances.shape == (len(starts) + tree.nullable,)
    assert (shares >= 0).all()
    assert (variances >= 0).all()
    assert_allclose(shares.sum(), 1, rtol=1e-9)
    return starts, shares, variances


def widths(starts, n_values=MAX_LEAVES):
    return np.diff(np.append(starts, n_values))


def place(starts, leaf):
    """Return the cell that holds a leaf."""
    return np.searchsorted(starts, leaf, side="right") - 1


def leaf_shares(tree, starts, shares):
    """Return the share of each leaf."""
    sizes = widths(starts, tree.n_values)
    return np.repeat(shares[: len(starts)] / sizes, sizes)


def groups(starts, shares, n_values, n_groups):
    """Return the shares of groups of neighbouring cells, as even as their cells let them be."""
    below = np.append(0, np.cumsum(shares[: len(starts)]))
    cuts = np.searchsorted(below, below[-1] * np.arange(1, n_groups) / n_groups)
    return np.diff(below[np.unique([0, *cuts, len(below) - 1])])
