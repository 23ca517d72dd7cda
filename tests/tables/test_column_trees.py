"""Counts of a column on a tree: what a record adds, least squares, and the bins they tell of."""

import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from scipy.stats import norm

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


# Counts.


@pytest.mark.parametrize("is_flat", [False, True])
@pytest.mark.parametrize(("n_values", "nullable"), SMALL)
def test_a_cell_counts_the_records_at_its_leaves(n_values, nullable, is_flat):
    tree = ColumnTree(n_values, nullable=nullable, is_flat=is_flat)
    cells, n_levels = nodes(n_values, nullable, is_flat)
    assert (tree.n_levels, tree.n_cells) == (n_levels, len(cells))
    codes = np.random.default_rng(0).integers(n_values + nullable, size=500)
    expected = [((codes >= first) & (codes <= last)).sum() for first, last in cells]
    counts = tree.counts(codes)
    assert counts.dtype == np.float64
    assert_array_equal(counts, expected)
    for dtype in (np.uint8, np.uint16, np.uint32, np.int32):
        if n_values + nullable <= 256 or dtype != np.uint8:
            assert_array_equal(tree.counts(codes.astype(dtype)), expected)
    assert_array_equal(tree.counts(codes[:0]), np.zeros(len(cells)))


def adds_one_a_level(tree, n_levels, codes):
    """Whether every record adds one to exactly one cell of each of so many levels."""
    null_cells = tree.nullable * np.ones(n_levels, dtype=int)
    sizes = [len(level) for level in tree.levels] + null_cells
    stops = np.cumsum(sizes)
    for code in codes:
        added = tree.counts(np.array([code]))
        if set(added) - {0.0, 1.0} or not np.isclose(np.linalg.norm(added), np.sqrt(n_levels)):
            return False
        if [part.sum() for part in np.split(added, stops[:-1])] != [1.0] * n_levels:
            return False
    return True


@reproducibly
@given(st.integers(2, 5000), st.booleans(), st.booleans(), st.integers(0, 2**32 - 1))
def test_a_record_adds_one_to_one_cell_of_each_level(n_values, nullable, is_flat, seed):
    tree = ColumnTree(n_values, nullable=nullable, is_flat=is_flat)
    n_codes = n_values + nullable
    rng = np.random.default_rng(seed)
    codes = rng.integers(n_codes, size=30)
    assert adds_one_a_level(tree, tree.n_levels, np.append(codes, [0, n_values - 1, n_codes - 1]))
    # Counts of disjoint sets of records add up.
    both = tree.counts(codes[:11]) + tree.counts(codes[11:])
    assert_array_equal(tree.counts(codes), both)
    # Replacing a record moves it by at most √(2 levels).
    moved = np.append(codes[1:], rng.integers(n_codes))
    assert np.linalg.norm(tree.counts(moved) - both) <= np.sqrt(2 * tree.n_levels) + 1e-12
    with pytest.raises(ValueError, match="codes must be among the leaves"):
        tree.counts(np.append(codes, n_codes))
    with pytest.raises(ValueError, match="codes must be among the leaves"):
        tree.counts(np.append(codes, -1))


class ForgetsNulls(ColumnTree):
    def counts(self, codes):
        counts = super().counts(codes)
        counts[-1] = 0
        return counts


class CountsTwice(ColumnTree):
    def counts(self, codes):
        counts = super().counts(codes)
        counts[self.n_values] += (codes == 0).sum()
        return counts


@pytest.mark.parametrize("broken", [ForgetsNulls, CountsTwice])
def test_the_check_catches_a_record_that_counts_otherwise(broken):
    codes = np.array([0, 50, 100])
    assert adds_one_a_level(ColumnTree(100, nullable=True), 2, codes)
    assert not adds_one_a_level(ColumnTree(100, nullable=True), 1, codes)
    assert not adds_one_a_level(broken(100, nullable=True), 2, codes)


def test_the_levels_of_the_largest_tree():
    assert [len(level) for level in FULL.levels] == [MAX_LEAVES // 8**i for i in range(5)]
    assert FULL.n_cells == 149_792
    assert FULL.n_bins == MAX_BINS
    assert ColumnTree(5, nullable=True).n_bins == 6
    assert ColumnTree(500, is_flat=True, nullable=True).n_bins == 501
    assert ColumnTree(500, is_flat=True).n_levels == 1


# Least squares.


@pytest.mark.parametrize(("n_values", "nullable"), SMALL)
def test_the_estimate_is_that_of_least_squares(n_values, nullable):
    tree = ColumnTree(n_values, nullable=nullable)
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
    counts = tree.counts(codes)
    levels, nulls, variance = tree.estimate(counts)
    stacked = [np.append(level, nulls) for level in levels]
    assert_allclose(np.concatenate(stacked), counts, atol=1e-9)
    assert 0 < variance <= len(levels[-1]) + nullable
    noise = rng.normal(size=tree.n_cells)
    levels, _, _ = tree.estimate(counts + noise)
    for level, starts in zip(levels, tree.levels, strict=True):
        assert_allclose(level, np.add.reduceat(levels[0], starts), atol=1e-8)


def test_the_variance_of_the_total_by_simulation():
    tree, n_draws = ColumnTree(700, nullable=True), 3000
    rng = np.random.default_rng(0)
    totals = [total(tree, rng.normal(size=tree.n_cells)) for _ in range(n_draws)]
    variance = tree.estimate(np.zeros(tree.n_cells))[2]
    spread = 5 * np.sqrt(2 / n_draws)
    assert abs(np.mean(np.square(totals)) / variance - 1) < spread
    # Of the top level alone, or with a null that is counted once, it is another.
    for wrong in (len(tree.levels[-1]) + 1, 2 * variance, variance + 1 - 1 / tree.n_levels):
        assert abs(np.mean(np.square(totals)) / wrong - 1) > spread / 2


# Bins.


@pytest.mark.parametrize("leaf", [0, 1, 5, 4095, 4096, 70_001, MAX_LEAVES - 1])
def test_a_constant_column_has_a_bin_of_its_value(leaf):
    starts, tables, _ = checked_bins(FULL, FULL.counts(np.full(1000, leaf)), 0.0)
    assert_array_equal(starts, sorted({0, leaf, min(leaf + 1, MAX_LEAVES - 1)} & {*starts}))
    assert width_at(starts, leaf) == 1
    expected = np.where(starts == leaf, 1000, 0)
    assert_allclose(tables, expected, atol=1e-6)


def test_an_atom_in_an_even_law_is_found_without_noise():
    rng = np.random.default_rng(0)
    for leaf in rng.integers(MAX_LEAVES, size=10):
        counts = FULL.counts(np.append(np.arange(MAX_LEAVES), np.full(15, leaf)))
        starts, tables, _ = checked_bins(FULL, counts, 0.0)
        place = np.searchsorted(starts, leaf)
        assert len(starts) <= 3
        assert starts[place] == leaf
        assert width_at(starts, leaf) == 1
        assert tables[place] == pytest.approx(16)
        # Two records are no atom: of as many leaves, many have more by chance.
        counts = FULL.counts(np.append(np.arange(MAX_LEAVES), leaf))
        assert len(checked_bins(FULL, counts, 0.0)[0]) == 2


def test_atoms_are_found_without_noise():
    rng = np.random.default_rng(1)
    leaves = rng.choice(MAX_LEAVES, size=12, replace=False)
    counts = FULL.counts(np.append(np.repeat(leaves, 500), even(3000)))
    starts, tables, _ = checked_bins(FULL, counts, 0.0)
    assert {*leaves} <= {*starts}
    assert [width_at(starts, leaf) for leaf in leaves] == [1] * 12
    assert (tables[np.searchsorted(starts, leaves)] >= 500 - 1e-6).all()


@pytest.mark.parametrize(("n_records", "noise_scale"), [(0, 10.0), (50_000, 10.0), (1000, 1e-3)])
def test_an_even_law_has_few_bins(n_records, noise_scale):
    counts = np.concatenate(FULL.widths) * (n_records / MAX_LEAVES)
    found = [
        len(checked_bins(FULL, noisy(counts, noise_scale, seed), noise_scale)[0])
        for seed in range(20)
    ]
    assert np.mean(found) < 2.6
    assert max(found) <= 8


@pytest.mark.parametrize("noise_scale", [0.0, 1.0, 10.0, 50.0])
def test_a_sample_of_an_even_law_has_few_bins(noise_scale):
    """Chance is not taken for structure, though the noise would let it be seen."""
    found = []
    for seed in range(15):
        codes = np.random.default_rng(seed).integers(MAX_LEAVES, size=50_000)
        counts = noisy(FULL.counts(codes), noise_scale, seed)
        found.append(len(checked_bins(FULL, counts, noise_scale)[0]))
    assert np.mean(found) < 7
    assert max(found) <= 16


def test_an_even_law_is_not_split():
    """Nor is its last interval, which is narrower."""
    for n_values in (33, 40, 41, 500, 513, 4097, MAX_LEAVES - 7):
        tree = ColumnTree(n_values)
        counts = np.concatenate(tree.widths) * 1000 / 3
        levels, _, _ = tree.estimate(counts)
        starts, pieces = tree._pieces(
            np.split(counts, np.cumsum([len(s) for s in levels])[:-1]), levels, 0.0
        )
        assert_array_equal(starts, tree.levels[-1])
        assert_allclose(pieces, tree.widths[-1] * 1000 / 3)


def false_splits(noise_scale, n_draws):
    """Return how often noise of scale 10 makes a bin that is deep in the tree."""
    tree = ColumnTree(MAX_LEAVES // 8)
    draws = (noisy(np.zeros(tree.n_cells), 10.0, seed) for seed in range(n_draws))
    return np.mean([(tree.bins(draw, noise_scale)[0] % 512 != 0).any() for draw in draws])


def test_noise_seldom_splits_an_interval():
    """By the union bound over three levels fewer than one in ten draws; some are merged again."""
    n_nodes, n_draws = np.array([256, 2048, 16_384]), 250
    bound = (2 * n_nodes * norm.sf(np.sqrt(2 * np.log(n_nodes)) + 0.5)).sum()
    assert bound < 0.1
    found = false_splits(10.0, n_draws)
    assert found < bound + 5 * np.sqrt(bound * (1 - bound) / n_draws)
    # Noise that is larger than stated would.
    assert false_splits(7.0, 40) > 0.5


def test_atoms_beyond_the_noise_are_found():
    counts, n_draws, found = FULL.counts(even(20_000)), 30, {}
    for size in (0, 6, 8):
        widths = []
        for seed in range(n_draws):
            leaf = np.random.default_rng(1000 + seed).integers(MAX_LEAVES)
            atom = FULL.counts(np.full(size * 10, leaf))
            starts, _, _ = checked_bins(FULL, noisy(counts + atom, 10.0, seed), 10.0)
            widths.append(width_at(starts, leaf))
        found[size] = np.array(widths)
    # A share of 1/8 of it is expected in its place already: 5.25 standard errors are left.
    assert np.mean(found[6] <= 8) > 0.6
    assert np.mean(found[6] <= 64) > 0.85
    assert np.mean(found[8] == 1) > 0.85
    assert np.mean(found[0] <= 64) < 0.1


def test_the_largest_atoms_are_found_among_many():
    """Of what would give more than 32 bins, what matters most is kept."""
    rng = np.random.default_rng(2)
    leaves = rng.choice(MAX_LEAVES, size=810, replace=False)
    counts = FULL.counts(np.repeat(leaves, [20_000] * 10 + [200] * 800))
    for noise_scale in (0.0, 5.0):
        starts, tables, _ = checked_bins(FULL, noisy(counts, noise_scale, 0), noise_scale)
        assert len(starts) == MAX_BINS
        places = np.searchsorted(starts, leaves[:10])
        assert_array_equal(starts[places], leaves[:10])
        assert_allclose(tables[places], 20_000, atol=6 * noise_scale + 1e-6)


def test_an_atom_in_a_large_even_law_is_found():
    """Of 1e9 records 5000: ten times more than chance, and far more than rounding."""
    leaves = np.full(MAX_LEAVES, 1e9 / MAX_LEAVES)
    leaves[70_001] += 5000
    counts = np.concatenate([np.add.reduceat(leaves, level) for level in FULL.levels])
    for noise_scale in (0.0, 100.0):
        starts, _, _ = checked_bins(FULL, noisy(counts, noise_scale, 0), noise_scale)
        assert width_at(starts, 70_001) == 1


def densities(starts, tables, n_values):
    return tables / np.diff(np.append(starts, n_values))


def test_a_decreasing_density_is_followed():
    shares = (np.arange(20_000) + 0.5) / 20_000
    codes = np.minimum(-12_000 * np.log(shares), MAX_LEAVES - 1).astype(int)
    counts = FULL.counts(codes)
    for noise_scale, n_least in ((0.0, 15), (1.0, 15), (10.0, 10), (50.0, 6)):
        starts, tables, _ = checked_bins(FULL, noisy(counts, noise_scale, 0), noise_scale)
        assert len(starts) >= n_least
        # The distribution function within the bins is nearly that of the records.
        at = np.linspace(0, MAX_LEAVES, 400)
        stops = np.append(starts, MAX_LEAVES)
        ours = np.interp(at, stops, np.append(0, tables.cumsum()))
        exact = np.searchsorted(np.sort(codes), at)
        assert np.abs(ours - exact).max() < 0.03 * 20_000 + 10 * noise_scale
        if noise_scale == 10.0:
            rates = densities(starts, tables, MAX_LEAVES)
            large = tables > 20 * noise_scale
            assert (np.diff(rates[large]) < 0).all()


def test_small_columns_keep_their_values_apart():
    for n_values in (2, 3, 20, 32):
        tree = ColumnTree(n_values)
        counts = 1000.0 * (1 + np.arange(n_values) % 3)
        for noise_scale in (0.0, 1.0):
            starts, tables, variances = checked_bins(
                tree, noisy(counts, noise_scale, 1), noise_scale
            )
            assert_array_equal(starts, np.arange(n_values))
            assert_allclose(tables, counts, atol=5)
            assert_array_equal(variances, 1)
        # Alike, they are one, or two at least.
        assert len(checked_bins(tree, np.full(n_values, 7.0), 0.0)[0]) == 2


def test_a_flat_column_has_a_bin_of_each_leaf():
    for n_values, nullable in ((2, False), (500, True)):
        tree = ColumnTree(n_values, nullable=nullable, is_flat=True)
        given = np.random.default_rng(0).normal(size=n_values + nullable)
        starts, tables, variances = tree.bins(given, 3.0)
        assert_array_equal(starts, np.arange(n_values))
        assert_array_equal(tables, given)
        assert_array_equal(variances, np.ones(n_values + nullable))


@pytest.mark.parametrize("noise_scale", [0.0, 1.0, 300.0])
def test_nulls_stay_apart(noise_scale):
    tree = ColumnTree(5000, nullable=True)
    exact = tree.counts(np.append(np.full(900, 5000), even(100, 5000)))
    starts, tables, variances = checked_bins(tree, noisy(exact, noise_scale, 3), noise_scale)
    assert tables[-1] == pytest.approx(900, abs=5 * noise_scale / np.sqrt(tree.n_levels))
    assert variances[-1] == 1 / tree.n_levels
    # All are null.
    alone = tree.counts(np.full(900, 5000))
    starts, tables, _ = checked_bins(tree, noisy(alone, noise_scale, 3), noise_scale)
    assert len(starts) <= 6
    if noise_scale == 0:
        assert_array_equal(tables, [0, 0, 900])


@pytest.mark.parametrize("leaf", [0, 17, 4999])
def test_one_record(leaf):
    tree = ColumnTree(5000)
    counts = tree.counts(np.array([leaf]))
    starts, tables, _ = checked_bins(tree, counts, 0.0)
    place = np.searchsorted(starts, leaf, side="right") - 1
    assert tables[place] == pytest.approx(1)
    assert len(starts) <= 3
    for noise_scale in (1e-3, 1.0, 100.0):
        noised = noisy(counts, noise_scale, 0)
        assert len(checked_bins(tree, noised, noise_scale)[0]) < 12


@pytest.mark.parametrize("noise_scale", [0.0, 1e-6, 1.0, 1e3])
def test_huge_counts(noise_scale):
    rng = np.random.default_rng(0)
    leaves = np.full(MAX_LEAVES, 1e9)
    leaves[[3, 90_000]] += 1e12
    counts = np.concatenate([np.add.reduceat(leaves, level) for level in FULL.levels])
    starts, tables, _ = checked_bins(
        FULL, counts + noise_scale * rng.normal(size=counts.size), noise_scale
    )
    assert {3, 4, 90_000, 90_001} <= {*starts}
    assert len(starts) <= 12
    assert_allclose(tables[np.searchsorted(starts, [3, 90_000])], 1e12 + 1e9, rtol=1e-6)
    # Rounding is not taken for structure.
    tilted = np.concatenate([width * (1e9 / 3) for width in FULL.widths])
    assert len(checked_bins(FULL, tilted * 1.1, 0.0)[0]) == 2


@reproducibly
@given(
    st.integers(2, 5000),
    st.booleans(),
    st.sampled_from(["any", "few", "atoms", "none"]),
    st.sampled_from([0.0, 1e-9, 1e-3, 1.0, 100.0, 1e9]),
    st.integers(0, 2**32 - 1),
)
def test_bins_of_any_column(n_values, nullable, kind, noise_scale, seed):
    tree, rng = ColumnTree(n_values, nullable=nullable), np.random.default_rng(seed)
    codes = {
        "any": rng.integers(n_values + nullable, size=3000),
        "few": np.minimum(rng.exponential(n_values / 20, size=40).astype(int), n_values - 1),
        "atoms": rng.choice(rng.integers(n_values, size=60), size=5000),
        "none": np.zeros(0, dtype=int),
    }[kind]
    counts = noisy(tree.counts(codes), noise_scale, seed)
    starts, tables, variances = checked_bins(tree, counts, noise_scale)
    if noise_scale == 0:
        # A bin has the records in it.
        binned = np.bincount(tree.bin_codes(codes, starts), minlength=len(tables))
        assert_allclose(tables, binned, atol=1e-6)


def test_bins_are_found_at_once():
    """All leaves distinct, so that every node is split and as much as possible is merged."""
    rng = np.random.default_rng(0)
    leaves = rng.permutation(MAX_LEAVES) * 1e3
    counts = np.concatenate([np.add.reduceat(leaves, level) for level in FULL.levels])
    for noise_scale in (0.0, 1.0):
        start = time.process_time()
        starts, _, _ = FULL.bins(counts, noise_scale)
        assert time.process_time() - start < 0.2
        assert len(starts) == MAX_BINS
    assert MAX_BINS == 32


# Bins of records.


@reproducibly
@given(st.integers(2, 5000), st.booleans(), st.integers(0, 2**32 - 1))
def test_the_bins_of_records(n_values, nullable, seed):
    tree, rng = ColumnTree(n_values, nullable=nullable), np.random.default_rng(seed)
    inner = rng.choice(np.arange(1, n_values), size=min(n_values - 1, 31), replace=False)
    starts = np.append(0, np.sort(inner))
    codes = rng.integers(n_values + nullable, size=200).astype(np.uint16)
    binned = tree.bin_codes(codes, starts)
    expected = [len(starts) if c == n_values else (starts <= c).sum() - 1 for c in codes.tolist()]
    assert binned.dtype == np.uint8
    assert_array_equal(binned, expected)
    # The starts are those of their bins, and what is just before is in another.
    assert_array_equal(tree.bin_codes(starts, starts), np.arange(len(starts)))
    assert_array_equal(tree.bin_codes(starts[1:] - 1, starts), np.arange(len(starts) - 1))
    if nullable:
        assert tree.bin_codes(np.array([n_values]), starts) == [len(starts)]


def test_the_dtype_of_bins():
    for n_values, nullable, dtype in ((256, False, np.uint16), (255, True, np.uint8)):
        tree = ColumnTree(n_values, nullable=nullable, is_flat=True)
        starts, codes = tree.levels[0], np.arange(n_values + nullable, dtype=np.uint32)
        assert_array_equal(tree.bin_codes(codes, starts), codes)
        assert tree.bin_codes(codes, starts).dtype == dtype
    tree = ColumnTree(70_000, is_flat=True)
    assert tree.bin_codes(np.array([69_999]), tree.levels[0]) == [69_999]


# Variances.


def law(kind, n_values):
    rng = np.random.default_rng(0)
    return {
        "none": np.zeros(0, dtype=int),
        "even": even(20_000, n_values),
        "atoms": np.append(even(5000, n_values), np.repeat([3, 100, 1000, 1001], 600)),
        "decreasing": np.minimum(rng.exponential(200, size=20_000), n_values - 1).astype(int),
    }[kind]


def spreads(tree, starts, n_draws, seed):
    """Return the variances of the counts in fixed bins, by simulation."""
    rng = np.random.default_rng(seed)
    sums = []
    for _ in range(n_draws):
        levels, nulls, _ = tree.estimate(rng.normal(size=tree.n_cells))
        sums.append(np.append(np.add.reduceat(levels[0], starts), nulls))
    return np.mean(np.square(sums), axis=0)


@pytest.mark.parametrize("kind", ["none", "even", "atoms", "decreasing"])
def test_the_variances_in_fixed_bins_are_at_most_those_stated(kind):
    tree, n_draws = ColumnTree(2048, nullable=True), 600
    counts, spread = tree.counts(law(kind, 2048)), 5 * np.sqrt(2 / n_draws)
    ratios = []
    for seed in range(4):
        starts, _, stated = checked_bins(tree, noisy(counts, 10.0, seed), 10.0)
        ratios.append(spreads(tree, starts, n_draws, seed) / stated)
    ratios = np.concatenate(ratios)
    assert (ratios < 1 + spread).all()
    # About: but for bins of many pieces, which are known better.
    assert np.median(ratios) > 0.6
    assert ratios.min() > 0.1
    # Half of what is stated would be too little.
    assert (2 * ratios > 1 + spread).mean() > 0.5


def test_the_stated_variances_hold_exactly_by_linear_algebra():
    tree, rng = ColumnTree(300), np.random.default_rng(0)
    covariance = np.linalg.inv(incidence(tree).T.T @ incidence(tree).T)
    # Whatever is summed: leaves correlate negatively, and a node has variance 1 at most.
    assert (covariance - np.diag(np.diag(covariance)) <= 1e-12).all()
    for start, stop in nodes(300, False)[0]:
        assert covariance[start : stop + 1, start : stop + 1].sum() <= 1 + 1e-12
    counts = tree.counts(rng.choice(rng.integers(300, size=9), size=3000))
    starts, _, stated = tree.bins(noisy(counts, 5.0, 0), 5.0)
    member = np.repeat(np.eye(len(starts)), np.diff(np.append(starts, 300)), axis=0)
    assert (np.diag(member.T @ covariance @ member) <= stated + 1e-9).all()
