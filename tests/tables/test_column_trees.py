"""Trees of columns: counts, and their least squares."""

import itertools

import numpy as np
import pytest
from column_tables import (
    FULL,
    SMALL,
    incidence,
    node_counts,
    nodes,
    reproducibly,
    total,
)
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal

from sklearn_dpgen.tables._column_trees import MAX_CELLS, MAX_LEAVES, ColumnTree

# Counts.


@pytest.mark.parametrize("is_flat", [False, True])
@pytest.mark.parametrize(("n_values", "nullable", "anchor"), SMALL)
def test_a_cell_counts_the_records_at_its_leaves(n_values, nullable, anchor, is_flat):
    tree = ColumnTree(n_values, nullable=nullable, is_flat=is_flat, anchor=anchor)
    cells, n_levels = nodes(n_values, nullable, anchor, is_flat)
    assert (tree.n_levels, tree.n_cells) == (n_levels, len(cells))
    codes = np.random.default_rng(0).integers(n_values + nullable, size=500)
    expected = [((codes >= first) & (codes <= last)).sum() for first, last in cells]
    counts = node_counts(tree, codes)
    assert counts.dtype == np.float64
    assert_array_equal(counts, expected)
    assert_array_equal(node_counts(tree, codes[:0]), np.zeros(len(cells)))


def adds_one_a_level(tree, n_levels, codes):
    """Whether every record adds one to exactly one cell of each of so many levels."""
    null_cells = tree.nullable * np.ones(n_levels, dtype=int)
    sizes = [len(level) for level in tree.levels] + null_cells
    stops = np.cumsum(sizes)
    for code in codes:
        added = node_counts(tree, np.array([code]))
        if set(added) - {0.0, 1.0} or not np.isclose(np.linalg.norm(added), np.sqrt(n_levels)):
            return False
        if [part.sum() for part in np.split(added, stops[:-1])] != [1.0] * n_levels:
            return False
    return True


@pytest.mark.slow
@reproducibly
@given(st.integers(2, 5000), st.booleans(), st.booleans(), st.integers(0, 2**32 - 1))
def test_a_record_adds_one_to_one_cell_of_each_level(n_values, nullable, is_flat, seed):
    rng = np.random.default_rng(seed)
    anchor = int(rng.integers(n_values))
    tree = ColumnTree(n_values, nullable=nullable, is_flat=is_flat, anchor=anchor)
    n_codes = n_values + nullable
    codes = rng.integers(n_codes, size=30)
    assert adds_one_a_level(tree, tree.n_levels, np.append(codes, [0, n_values - 1, n_codes - 1]))
    # Counts of disjoint sets of records add up.
    both = node_counts(tree, codes[:11]) + node_counts(tree, codes[11:])
    assert_array_equal(node_counts(tree, codes), both)
    # Replacing a record moves it by at most √(2 levels).
    moved = np.append(codes[1:], rng.integers(n_codes))
    assert np.linalg.norm(node_counts(tree, moved) - both) <= np.sqrt(2 * tree.n_levels) + 1e-12
    # Weighted records too, as of persons.
    weights = rng.integers(8, size=n_codes) / 8
    assert_allclose(tree.counts(weights).sum(), tree.n_levels * weights.sum())


class ForgetsNulls(ColumnTree):
    def counts(self, leaves):
        counts = super().counts(leaves)
        counts[-1] = 0
        return counts


class CountsTwice(ColumnTree):
    def counts(self, leaves):
        counts = super().counts(leaves)
        counts[self.n_values] += leaves[0]
        return counts


@pytest.mark.parametrize("broken", [ForgetsNulls, CountsTwice])
def test_the_check_catches_a_record_that_counts_otherwise(broken):
    codes = np.array([0, 50, 100])
    assert adds_one_a_level(ColumnTree(100, nullable=True), 2, codes)
    assert not adds_one_a_level(ColumnTree(100, nullable=True), 1, codes)
    assert not adds_one_a_level(broken(100, nullable=True), 2, codes)


def test_the_levels_of_the_largest_tree():
    assert [len(level) for level in FULL.levels] == [131_072, 224, 18]
    assert FULL.n_cells == 131_314
    assert FULL.n_bins == MAX_CELLS
    # The anchor is alone, and what is beside it: a column may be mostly zero.
    assert [list(level[:3]) for level in FULL.levels] == [[0, 1, 2]] * 3
    # Far from it all intervals are alike.
    assert {*ColumnTree(MAX_LEAVES, anchor=-(1 << 40)).widths[-1]} == {8192}
    sizes = (32, 33, 300, 3000)
    assert [ColumnTree(n).n_levels for n in sizes] == [1, 2, 2, 3]


def test_the_sides_of_the_anchor():
    tree = ColumnTree(300, anchor=150)
    (at,) = np.nonzero(tree.sides == 0)
    assert tree.levels[-1][at] == [150]
    assert tree.widths[-1][at] == [1]
    assert (np.diff(tree.sides) >= 0).all()
    assert {*tree.sides} == {-1, 0, 1}
    assert {*ColumnTree(300, anchor=-5).sides} == {1}
    assert {*ColumnTree(300, anchor=300).sides} == {-1}


def test_a_stage_sums_no_more_than_16_of_the_next():
    """Sums of nodes, where a level has many more of them than the one above."""
    for tree in (FULL, ColumnTree(1500), ColumnTree(70), ColumnTree(MAX_LEAVES, anchor=-9000)):
        starts = [stage for stage, _ in tree.stages]
        assert_array_equal(starts[0], tree.levels[-1])
        assert_array_equal(starts[-1], tree.levels[0])
        for above, below in itertools.pairwise(starts):
            assert {*above} <= {*below}
            assert np.diff(np.append(np.searchsorted(below, above), len(below))).max() <= 16
        levels = {len(level) for level in tree.levels}
        for stage, sizes in tree.stages:
            summed = next(level for level in tree.levels[::-1] if {*stage} <= {*level})
            expected = np.diff(np.append(np.searchsorted(summed, stage), len(summed)))
            assert_array_equal(sizes, expected)
            assert (sizes == 1).all() == (len(stage) in levels)

    assert ColumnTree(5, nullable=True).n_bins == 6
    assert ColumnTree(100, nullable=True).n_bins == 101
    assert ColumnTree(500, is_flat=True, nullable=True).n_bins == 501
    assert ColumnTree(500, is_flat=True).n_levels == 1


# Least squares.


@pytest.mark.parametrize(("n_values", "nullable", "anchor"), SMALL[:-2])
def test_the_estimate_is_that_of_least_squares(n_values, nullable, anchor):
    tree = ColumnTree(n_values, nullable=nullable, anchor=anchor)
    design = incidence(tree).T
    given = np.random.default_rng(1).normal(10, 30, size=tree.n_cells)
    solution = np.linalg.lstsq(design, given, rcond=None)[0]
    levels, nulls, variance = tree.estimate(given)
    assert_allclose(levels[0], solution[:n_values], atol=1e-9)
    assert_allclose(nulls, solution[n_values:], atol=1e-9)
    assert nulls.shape == (int(nullable),)
    # The nodes of each level are the sums of those below.
    for level, starts in zip(levels, tree.levels, strict=True):
        assert_allclose(level, np.add.reduceat(solution[:n_values], starts), atol=1e-8)
    # The variance of the sum of all, 1ᵀ (AᵀA)⁻¹ 1.
    exact = np.linalg.inv(design.T @ design).sum()
    assert variance == pytest.approx(exact, rel=1e-9)
    # One level alone is unbiased too, and says less.
    if tree.n_levels > 1:
        assert np.abs(given[:n_values] - solution[:n_values]).max() > 1
        assert exact < 0.99 * (len(levels[-1]) + nullable)


@reproducibly
@given(st.integers(2, 5000), st.booleans(), st.integers(0, 2**32 - 1))
def test_exact_counts_are_their_own_estimate(n_values, nullable, seed):
    tree = ColumnTree(n_values, nullable=nullable)
    rng = np.random.default_rng(seed)
    codes = rng.integers(n_values + nullable, size=1000)
    counts = node_counts(tree, codes)
    levels, nulls, variance = tree.estimate(counts)
    stacked = [np.append(level, nulls) for level in levels]
    assert_allclose(np.concatenate(stacked), counts, atol=1e-9)
    assert 0 < variance <= len(levels[-1]) + nullable
    noise = rng.normal(size=tree.n_cells)
    levels, _, _ = tree.estimate(counts + noise)
    for level, starts in zip(levels, tree.levels, strict=True):
        assert_allclose(level, np.add.reduceat(levels[0], starts), atol=1e-8)


@pytest.mark.slow
def test_the_variance_of_the_total_by_simulation():
    tree, n_draws = ColumnTree(40, nullable=True), 12_000
    rng = np.random.default_rng(0)
    totals = [total(tree, rng.normal(size=tree.n_cells)) for _ in range(n_draws)]
    variance = tree.estimate(np.zeros(tree.n_cells))[2]
    spread = 5 * np.sqrt(2 / n_draws)
    assert abs(np.mean(np.square(totals)) / variance - 1) < spread
    # Of the top level alone, or with a null that is counted once, it is another.
    for wrong in (len(tree.levels[-1]) + 1, 2 * variance, variance + 1 - 1 / tree.n_levels):
        assert abs(np.mean(np.square(totals)) / wrong - 1) > spread / 2


# Cells of records.


@reproducibly
@given(st.integers(2, 5000), st.booleans(), st.integers(0, 2**32 - 1))
def test_the_cells_of_records(n_values, nullable, seed):
    tree, rng = ColumnTree(n_values, nullable=nullable), np.random.default_rng(seed)
    inner = rng.choice(np.arange(1, n_values), size=min(n_values - 1, 31), replace=False)
    starts = np.append(0, np.sort(inner))
    bins = tree.bins(starts)
    assert bins.shape == (n_values + nullable,)
    codes = rng.integers(n_values + nullable, size=200).astype(np.uint16)
    expected = [len(starts) if c == n_values else (starts <= c).sum() - 1 for c in codes.tolist()]
    assert_array_equal(bins[codes], expected)
    # The starts are those of their bins, and what is just before is in another.
    assert_array_equal(bins[starts], np.arange(len(starts)))
    assert_array_equal(bins[starts[1:] - 1], np.arange(len(starts) - 1))
    if nullable:
        assert bins[n_values] == len(starts)


@pytest.mark.parametrize("nullable", [False, True])
@pytest.mark.parametrize("n_values", [40, 300, 5000])
def test_the_groups_of_cells_that_each_level_counts(n_values, nullable):
    """A group begins where both a cell and a node do, and sums the nodes up to the next."""
    tree, rng = ColumnTree(n_values, nullable=nullable), np.random.default_rng(n_values)
    starts = np.append(0, np.sort(rng.choice(np.arange(1, n_values), 30, replace=False)))
    noisy = rng.normal(size=tree.n_cells)
    found, stop = tree.tables(noisy, starts), 0
    assert len(found) == tree.n_levels
    for level, (groups, counts, sizes) in zip(tree.levels, found, strict=True):
        edges = sorted({*level.tolist()} & {*starts.tolist()})
        cells = [sum(edge <= start for edge in edges) - 1 for start in starts.tolist()]
        nodes = [sum(edge <= first for edge in edges) - 1 for first in level.tolist()]
        if nullable:
            cells, nodes = [*cells, len(edges)], [*nodes, len(edges)]
        given, stop = noisy[stop : stop + len(nodes)], stop + len(nodes)
        assert_array_equal(groups, cells)
        assert_array_equal(sizes, np.bincount(nodes))
        assert_allclose(counts, np.bincount(nodes, weights=given), atol=1e-9)


def test_a_leaf_a_cell():
    for n_values, nullable in ((256, False), (255, True), (70_000, False)):
        tree = ColumnTree(n_values, nullable=nullable, is_flat=True)
        assert_array_equal(tree.bins(tree.levels[0]), np.arange(n_values + nullable))
