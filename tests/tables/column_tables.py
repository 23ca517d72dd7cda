"""Trees of columns, and counts on them."""

import numpy as np
from hypothesis import settings
from numpy.testing import assert_allclose, assert_array_equal

from sklearn_dpgen.tables._column_trees import MAX_BINS, MAX_LEAVES, ColumnTree

reproducibly = settings(deadline=None, max_examples=60, derandomize=True)
FULL = ColumnTree(MAX_LEAVES)
SMALL = [(2, True), (7, False), (32, False), (33, True), (64, False), (67, True), (300, False)]


def nodes(n_values, nullable, is_flat=False):
    """Return the (first, last) leaf of each cell, by the definition; null is the leaf after all."""
    widths = [1]
    while not is_flat and n_values > 32 and -(-n_values // widths[-1]) > 32:
        widths.append(8 * widths[-1])
    cells = []
    for width in widths:
        firsts = range(0, n_values, width)
        cells += [(first, min(first + width, n_values) - 1) for first in firsts]
        cells += [(n_values, n_values)] * nullable
    return cells, len(widths)


def incidence(tree):
    """Return the counts of a record at each leaf, in rows."""
    leaves = range(tree.n_values + tree.nullable)
    return np.array([tree.counts(np.array([leaf])) for leaf in leaves])


def even(n_records, n_values=MAX_LEAVES):
    return np.arange(n_records) * n_values // n_records


def noisy(counts, noise_scale, seed):
    return counts + noise_scale * np.random.default_rng(seed).normal(size=counts.shape)


def total(tree, counts):
    levels, nulls, _ = tree.estimate(counts)
    return levels[-1].sum() + nulls.sum()


def checked_bins(tree, counts, noise_scale):
    """Return the bins, after a look at what holds of all bins."""
    before = counts.copy()
    starts, tables, variances = tree.bins(counts, noise_scale)
    assert_array_equal(counts, before)
    assert starts[0] == 0
    assert starts[-1] < tree.n_values
    assert (np.diff(starts) > 0).all()
    assert 2 <= len(starts) <= min(tree.n_values, MAX_BINS)
    assert len(starts) + tree.nullable <= tree.n_bins
    assert tables.shape == variances.shape == (len(starts) + tree.nullable,)
    assert (variances > 0).all()
    largest = np.abs(counts).max()
    assert_allclose(tables.sum(), total(tree, counts), rtol=1e-9, atol=1e-9 * (1 + largest))
    return starts, tables, variances


def width_at(starts, leaf, n_values=MAX_LEAVES):
    """Return the width of the bin that holds a leaf."""
    place = np.searchsorted(starts, leaf, side="right") - 1
    return np.diff(np.append(starts, n_values))[place]
