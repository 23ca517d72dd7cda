"""The bins that noisy counts on a tree tell of."""

import numpy as np
import pytest
from column_tables import (
    FULL,
    checked_bins,
    even,
    noisy,
    reproducibly,
    width_at,
)
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from scipy.stats import norm

from sklearn_dpgen.tables._column_trees import MAX_BINS, MAX_LEAVES, ColumnTree


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


def test_there_are_no_more_bins_where_every_leaf_differs():
    """All leaves distinct, so that every node is split and as much as possible is merged."""
    rng = np.random.default_rng(0)
    leaves = rng.permutation(MAX_LEAVES) * 1e3
    counts = np.concatenate([np.add.reduceat(leaves, level) for level in FULL.levels])
    for noise_scale in (0.0, 1.0):
        starts, _, _ = FULL.bins(counts, noise_scale)
        assert len(starts) == MAX_BINS
    assert MAX_BINS == 32
