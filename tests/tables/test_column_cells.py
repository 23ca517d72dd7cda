"""The cells that noisy counts of a column tell of, and the shares in them."""

import numpy as np
import pytest
from column_tables import (
    FULL,
    checked_cells,
    even,
    groups,
    leaf_shares,
    node_counts,
    noisy,
    place,
    reproducibly,
    widths,
)
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal

from sklearn_dpgen.tables._column_trees import MAX_LEAVES, ColumnTree

# All columns.


@pytest.mark.slow
@reproducibly
@given(
    st.integers(2, 5000),
    st.booleans(),
    st.sampled_from(["any", "few", "heaps", "none", "null"]),
    st.sampled_from([0.0, 1e-9, 1e-3, 1.0, 100.0, 1e9]),
    st.booleans(),
    st.integers(0, 2**32 - 1),
)
def test_cells_of_any_column(n_values, nullable, kind, noise_scale, is_known, seed):
    rng = np.random.default_rng(seed)
    tree = ColumnTree(n_values, nullable=nullable, anchor=int(rng.integers(n_values)))
    codes = {
        "any": rng.integers(n_values + nullable, size=3000),
        "few": np.minimum(rng.exponential(n_values / 20, size=40).astype(int), n_values - 1),
        "heaps": rng.choice(rng.integers(n_values, size=60), size=5000),
        "none": np.zeros(0, dtype=int),
        "null": np.full(70, n_values - 1 + nullable),
    }[kind]
    counts = noisy(node_counts(tree, codes), noise_scale, seed)
    n_records = float(max(len(codes), 1)) if is_known else None
    starts, shares, _ = checked_cells(tree, counts, noise_scale, n_records)
    if noise_scale == 0 and len(codes):
        # A cell has the records in it, but for parts of even intervals.
        binned = np.bincount(tree.bins(starts)[codes], minlength=len(shares)) / len(codes)
        missing = np.append(0, np.cumsum(shares - binned))
        # Intervals of the top level have theirs. Of 40 records chance explains much within them.
        assert_allclose(missing[np.searchsorted(starts, tree.stages[0][0])], 0, atol=1e-9)
        assert kind == "few" or np.abs(missing).max() < 0.05
        if len(tree.stages) <= 2:
            # Each interval of the top level is split into its values.
            assert_allclose(shares, binned, atol=1e-9)


def test_cells_are_post_processing():
    """Nothing but the noisy counts is looked at: the same give the same."""
    tree = ColumnTree(3000, nullable=True)
    counts = noisy(node_counts(tree, even(500, 3000)), 10.0, 0)
    for first, second in zip(tree.cells(counts, 10.0), tree.cells(counts, 10.0), strict=True):
        assert_array_equal(first, second)


@pytest.mark.parametrize("noise_scale", [0.0, 1.0, 40.0, 1000.0])
@pytest.mark.parametrize("n_values", [2, 12, 32, 33, 100, 128])
def test_small_columns_have_a_cell_a_value(n_values, noise_scale):
    tree = ColumnTree(n_values)
    codes = np.random.default_rng(0).integers(n_values, size=20_000)
    counts = noisy(node_counts(tree, codes), noise_scale, 1)
    starts, shares, _ = checked_cells(tree, counts, noise_scale, 20_000.0)
    assert_array_equal(starts, np.arange(n_values))
    if noise_scale == 0:
        assert_allclose(shares, np.bincount(codes) / 20_000)


@pytest.mark.parametrize("noise_scale", [0.0, 1.0, 30.0, 300.0])
@pytest.mark.parametrize("kind", ["even", "decreasing", "few"])
def test_groups_of_about_the_same_mass_can_be_made(kind, noise_scale):
    """Of an even law too, though nothing shows in it."""
    rng = np.random.default_rng(0)
    codes = {
        "even": even(200_000),
        "decreasing": np.minimum(rng.exponential(3000, size=200_000), MAX_LEAVES - 1).astype(int),
        "few": rng.integers(MAX_LEAVES, size=700),
    }[kind]
    counts = noisy(node_counts(FULL, codes), noise_scale, 2)
    starts, shares, _ = checked_cells(FULL, counts, noise_scale, float(len(codes)))
    heavy = (shares > 1.01 / 64) & (widths(starts) > 1)
    assert not heavy.any()
    masses = groups(starts, shares, MAX_LEAVES, 32)
    assert len(masses) == 32
    assert masses.max() < 1.6 / 32
    if kind == "even":
        assert len(starts) >= 64


# Heaps.


@pytest.mark.parametrize("leaf", [0, 1, 5, 4095, 4096, 70_001, MAX_LEAVES - 1])
def test_a_constant_column_has_a_cell_of_its_value(leaf):
    starts, shares, _ = checked_cells(FULL, node_counts(FULL, np.full(1000, leaf)), 0.0)
    assert_array_equal(starts, sorted({0, leaf, min(leaf + 1, MAX_LEAVES - 1)} & {*starts}))
    assert_allclose(shares, starts == leaf, atol=1e-6)
    assert widths(starts)[place(starts, leaf)] == 1


@pytest.mark.slow
def test_a_heap_in_an_even_law_is_found_without_noise():
    rng = np.random.default_rng(0)
    for leaf in rng.integers(5000, MAX_LEAVES, size=10):
        counts = node_counts(FULL, np.append(np.arange(MAX_LEAVES), np.full(15, leaf)))
        starts, shares, _ = checked_cells(FULL, counts, 0.0)
        assert widths(starts)[place(starts, leaf)] == 1
        assert shares[place(starts, leaf)] * (MAX_LEAVES + 15) == pytest.approx(16)
        # Two records are no heap: of as many leaves, many have more by chance.
        counts = node_counts(FULL, np.append(np.arange(MAX_LEAVES), leaf))
        starts, _, _ = checked_cells(FULL, counts, 0.0)
        assert widths(starts)[place(starts, leaf)] > 1


@pytest.mark.parametrize("noise_scale", [0.0, 10.0, 40.0])
def test_heaps_come_back_within_noise(noise_scale):
    rng = np.random.default_rng(1)
    leaves = rng.choice(np.arange(5000, MAX_LEAVES), size=12, replace=False)
    counts = node_counts(FULL, np.append(np.repeat(leaves, 500), even(6000)))
    counts = noisy(counts, noise_scale, 0)
    starts, shares, variances = checked_cells(FULL, counts, noise_scale, 12_000.0)
    places = place(starts, leaves)
    assert_array_equal(widths(starts)[places], 1)
    assert_allclose(shares[places] * 12_000, 500, atol=4 * noise_scale + 12)
    assert_allclose(variances[places], (noise_scale / 12_000) ** 2, rtol=0.5)


def false_heaps(noise_scale, n_draws):
    """Return how many single leaves noise of scale 10 makes far out in an even law, on average."""
    counts, found = node_counts(FULL, even(20_000)), []
    for seed in range(n_draws):
        starts, _, _ = FULL.cells(noisy(counts, 10.0, seed), noise_scale, 20_000.0)
        found.append((widths(starts)[starts > 2000] == 1).sum())
    return np.mean(found)


@pytest.mark.slow
def test_noise_seldom_makes_heaps():
    """The rate of false ones is a tenth, where all are false: one in ten draws has some."""
    assert false_heaps(10.0, 30) < 0.1 + 5 * np.sqrt(0.1 / 30)
    # Noise that is larger than stated would.
    assert false_heaps(7.0, 3) > 3


def test_the_largest_heaps_are_found_among_many():
    """Of what would give too many cells, what matters most is kept."""
    rng = np.random.default_rng(2)
    leaves = rng.choice(np.arange(5000, MAX_LEAVES), size=810, replace=False)
    counts = node_counts(FULL, np.repeat(leaves, [20_000] * 10 + [200] * 800))
    for noise_scale in (0.0, 5.0):
        starts, shares, _ = checked_cells(FULL, noisy(counts, noise_scale, 0), noise_scale)
        places = place(starts, leaves[:10])
        assert_array_equal(starts[places], leaves[:10])
        assert_allclose(shares[places] * 360_000, 20_000, atol=6 * noise_scale + 3)


# Tails, scales, and what noise hides.


def money(n_records, mean, seed=0):
    """Return amounts of a wide range in leaves of 10 each."""
    rng = np.random.default_rng(seed)
    amounts = rng.lognormal(np.log(mean) - 0.5, 1, size=n_records) / 10
    return np.minimum(amounts, MAX_LEAVES - 1).astype(int)


def law_mean(starts, shares):
    ends = np.append(starts, MAX_LEAVES)
    return shares[: len(starts)] @ ((ends[:-1] + ends[1:] - 1) / 2)


def even_mean(tree, counts):
    """Return the mean that the counts of 64 even intervals tell of, those below 0 left out."""
    sums = np.add.reduceat(counts[: tree.n_values], np.arange(0, tree.n_values, 2048))
    sums = np.maximum(sums, 0)
    return sums @ (np.arange(64) + 0.5) * 2048 / sums.sum()


@pytest.mark.parametrize("mean", [500, 5000, 50_000])
def test_the_mean_of_money_at_small_counts(mean):
    """A scale far below the range, and noise of a fiftieth of all records a count."""
    gaps, others = [], []
    for seed in range(5):
        codes = money(3000, mean, seed)
        counts = noisy(node_counts(FULL, codes), 40.0, seed)
        starts, shares, _ = checked_cells(FULL, counts, 40.0, 3000.0)
        gaps.append((law_mean(starts, shares) - codes.mean()) / codes.std())
        others.append((even_mean(FULL, counts) - codes.mean()) / codes.std())
    assert np.abs(gaps).max() < 0.2
    assert np.abs(others).min() > 1


def test_what_lies_beyond_all_records_stays_empty():
    """Noise of a far interval is not taken for records."""
    for seed in range(10):
        counts = noisy(node_counts(FULL, money(3000, 500, seed)), 40.0, seed)
        starts, shares, _ = checked_cells(FULL, counts, 40.0, 3000.0)
        assert leaf_shares(FULL, starts, shares)[20_000:].sum() < 1e-3


@pytest.mark.parametrize("noise_scale", [0.0, 1.0, 10.0])
def test_a_decreasing_density_is_followed(noise_scale):
    shares = (np.arange(20_000) + 0.5) / 20_000
    codes = np.minimum(-12_000 * np.log(shares), MAX_LEAVES - 1).astype(int)
    counts = noisy(node_counts(FULL, codes), noise_scale, 0)
    starts, shares, _ = checked_cells(FULL, counts, noise_scale, 20_000.0)
    ours = np.cumsum(leaf_shares(FULL, starts, shares))
    exact = np.searchsorted(np.sort(codes), np.arange(MAX_LEAVES), side="right") / 20_000
    assert np.abs(ours - exact).max() < 0.01 + 3 * noise_scale / 20_000


@pytest.mark.parametrize("noise_scale", [0.0, 1.0, 30.0])
def test_nulls_stay_apart(noise_scale):
    tree = ColumnTree(5000, nullable=True)
    exact = node_counts(tree, np.append(np.full(900, 5000), even(100, 5000)))
    _, shares, _ = checked_cells(tree, noisy(exact, noise_scale, 3), noise_scale, 1000.0)
    assert shares[-1] * 1000 == pytest.approx(900, abs=5 * noise_scale / 2)
    # All are null.
    alone = node_counts(tree, np.full(900, 5000))
    starts, shares, _ = checked_cells(tree, alone, 0.0)
    assert_array_equal(shares[:-1], 0)
    assert shares[-1] == 1


@pytest.mark.parametrize("leaf", [0, 17, 4999])
def test_one_record(leaf):
    tree = ColumnTree(5000)
    counts = node_counts(tree, np.array([leaf]))
    starts, shares, _ = checked_cells(tree, counts, 0.0)
    assert shares[place(starts, leaf)] == pytest.approx(1)
    for noise_scale in (1e-3, 1.0, 100.0):
        checked_cells(tree, noisy(counts, noise_scale, 0), noise_scale, 1.0)


@pytest.mark.parametrize("noise_scale", [0.0, 1e-6, 1.0, 1e3])
def test_huge_counts(noise_scale):
    rng = np.random.default_rng(0)
    leaves = np.full(MAX_LEAVES, 1e9)
    leaves[[40_000, 90_000]] += 1e12
    counts = np.concatenate([np.add.reduceat(leaves, level) for level in FULL.levels])
    counts = counts + noise_scale * rng.normal(size=counts.size)
    starts, shares, _ = checked_cells(FULL, counts, noise_scale)
    assert {40_000, 40_001, 90_000, 90_001} <= {*starts}
    found = shares[place(starts, [40_000, 90_000])] * leaves.sum()
    assert_allclose(found, 1e12 + 1e9, rtol=1e-6)


@pytest.mark.parametrize(("n_values", "nullable"), [(2, False), (500, True)])
def test_a_flat_column_has_a_cell_of_each_leaf(n_values, nullable):
    tree = ColumnTree(n_values, nullable=nullable, is_flat=True)
    counts = np.random.default_rng(0).normal(size=n_values + nullable)
    starts, shares, _ = checked_cells(tree, counts, 3.0)
    assert_array_equal(starts, np.arange(n_values))
    assert (shares > 0).all()
