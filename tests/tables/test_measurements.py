"""What is released of a table, and what was measured so far."""

import numpy as np
import pytest
from column_tables import node_counts
from hypothesis import given
from hypothesis import strategies as st
from measured_tables import (
    NAMES,
    PAIRS,
    SIZES,
    TREES,
    Seen,
    blocks_of,
    cells_of,
    leaves_of,
    measurements_of,
    records,
    reproducibly,
    vector_of_marginals,
    vector_of_singles,
    whole,
)
from numpy.testing import assert_allclose, assert_array_equal

from sklearn_dpgen.tables._column_trees import ColumnTree
from sklearn_dpgen.tables._marginals import Marginal, marginal_counts
from sklearn_dpgen.tables._releases import (
    Measurements,
    release_marginals,
    release_singles,
    total_records,
)

# Single columns.


def test_exact_single_columns_come_back():
    codes, weights = records(300), np.array([1.0, 2.0, 0.5, 3.0])
    counts, factors = release_singles(leaves_of(codes), TREES, weights, Seen())
    for found, tree, column in zip(counts, TREES, codes, strict=True):
        assert_allclose(found, node_counts(tree, column), rtol=1e-12)
    # The noise of a column is in proportion to the inverse of its weight.
    assert_allclose(factors * weights, factors[0])
    levels = np.array([tree.n_levels for tree in TREES])
    assert levels.tolist() == [3, 2, 1, 1]
    assert (levels / factors**2).sum() == pytest.approx(1)


def test_many_labels_have_less_noise():
    """The cube root of 256 / 32 is 2, of 20000 / 32 more than 3, and of 12 / 32 less than 1."""
    trees = [ColumnTree(n, is_flat=True) for n in (256, 20_000, 12)] + [ColumnTree(20_000)]
    leaves = [np.ones(tree.n_values) for tree in trees]
    _, factors = release_singles(leaves, trees, np.ones(4), Seen())
    total = 2**2 + 3**2 + 1 + 3  # the last has three levels
    assert_allclose(factors**2, [total / 2**2, total / 3**2, total, total])


WEIGHTS = st.lists(st.floats(1e-6, 1e6), min_size=4, max_size=4).map(np.array)


@reproducibly
@given(WEIGHTS, st.integers(0, 2**32 - 1))
def test_a_record_adds_a_vector_of_norm_one(weights, seed):
    codes = records(6, seed)
    rows = [vector_of_singles([column[i : i + 1] for column in codes], weights) for i in range(6)]
    assert_allclose(np.linalg.norm(rows, axis=1), 1, rtol=1e-12)
    assert_allclose(vector_of_singles(codes, weights), np.sum(rows, axis=0), rtol=1e-9)
    replaced = [
        np.append(column[1:], new) for column, new in zip(codes, (5000, 3, 1, 12), strict=True)
    ]
    change = vector_of_singles(replaced, weights) - vector_of_singles(codes, weights)
    assert np.linalg.norm(change) <= np.sqrt(2) * (1 + 1e-12)


def test_a_tree_that_counts_each_level_at_full_weight_is_caught(monkeypatch):
    """What would be released, were the levels of a tree not paid for."""
    one = [column[:1] for column in records(1)]
    monkeypatch.setattr(ColumnTree, "n_levels", 1)
    assert np.linalg.norm(vector_of_singles(one, np.ones(4))) == pytest.approx(np.sqrt(7 / 4))


def test_the_noise_of_singles_is_what_the_factors_say():
    rng, n_draws = np.random.default_rng(0), 40
    codes, weights = records(50), np.array([1.0, 2.0, 0.5, 3.0])
    squares, exact = [], [node_counts(tree, c) for tree, c in zip(TREES, codes, strict=True)]
    for _ in range(n_draws):
        counts, factors = release_singles(
            leaves_of(codes), TREES, weights, lambda v: v + rng.normal(size=v.shape)
        )
        squares.append([np.mean((a - b) ** 2) for a, b in zip(counts, exact, strict=True)])
    n_cells = np.array([tree.n_cells for tree in TREES])
    assert (
        np.abs(np.mean(squares, axis=0) / factors**2 - 1) < 5 * np.sqrt(2 / n_draws / n_cells)
    ).all()


# Marginals.


@reproducibly
@given(st.lists(st.floats(1e-6, 1e6), min_size=1, max_size=10), st.integers(0, 2**32 - 1))
def test_released_slices(weights, seed):
    weights, marginals = np.array(weights), [*PAIRS[:8], (0, 1, 2), (4, 2, 3)][: len(weights)]
    codes = records(5, seed, SIZES)
    marginals = whole(*marginals)
    tables = marginal_counts(codes, marginals)
    found, factors = release_marginals(tables, weights, Seen())
    for ours, theirs in zip(found, tables, strict=True):
        assert_allclose(ours, theirs, rtol=1e-12)
        assert ours.shape == theirs.shape
    assert_allclose(factors * weights, factors[0] * weights[0], rtol=1e-9)
    one = marginal_counts([column[:1] for column in codes], marginals)
    assert np.linalg.norm(vector_of_marginals(one, weights)) == pytest.approx(1)
    assert np.sum(1 / factors**2) == pytest.approx(1)


def test_the_noise_of_slices_is_what_the_factors_say():
    rng, n_draws = np.random.default_rng(0), 400
    tables, weights = marginal_counts(records(60, sizes=SIZES), whole(*PAIRS)), np.arange(1.0, 11.0)
    squares = []
    for _ in range(n_draws):
        found, factors = release_marginals(
            tables, weights, lambda vector: vector + 3 * rng.normal(size=vector.shape)
        )
        squares.append([np.mean((a - b) ** 2) for a, b in zip(found, tables, strict=True)])
    ratios = np.mean(squares, axis=0) / (3 * factors) ** 2
    spread = 5 * np.sqrt(2 / n_draws / np.array([table.size for table in tables]))
    assert (np.abs(ratios - 1) < spread).all()
    assert not (np.abs(ratios / 2 - 1) < spread).any()


# The number of records.


@pytest.mark.slow
def test_the_number_of_records_is_estimated():
    codes, n_draws = records(900), 800
    rng, factors = np.random.default_rng(0), np.array([2.0, 1.0, 3.0, 8.0])
    exact = [node_counts(tree, c) for tree, c in zip(TREES, codes, strict=True)]
    assert total_records(exact, TREES, factors) == pytest.approx(900)
    variances = [tree.estimate(np.zeros(tree.n_cells))[2] for tree in TREES] * factors**2
    best = 1 / (1 / variances).sum()
    errors = []
    for _ in range(n_draws):
        noise = [f * rng.normal(size=len(c)) for f, c in zip(factors, exact, strict=True)]
        noisy = [a + b for a, b in zip(exact, noise, strict=True)]
        errors.append(total_records(noisy, TREES, factors) - 900)
    spread = 5 * np.sqrt(2 / n_draws)
    assert abs(np.mean(np.square(errors)) / best - 1) < spread
    assert abs(np.mean(errors)) < 5 * np.sqrt(best / n_draws)
    # The plain mean of the columns, or their best one, has more noise.
    assert best < 0.9 * variances.min()
    assert best < 0.5 * variances.mean() / 4
    assert total_records([-count for count in exact], TREES, factors) == 1.0


# What was measured.


def noisy(codes, columns, scale, seed=0):
    (part,) = whole(columns)
    (table,) = marginal_counts(codes, [part])
    return part, table + scale * np.random.default_rng(seed).normal(size=table.shape)


def test_what_was_released_is_kept():
    codes = records(200, sizes=SIZES)
    measured = measurements_of(codes)
    for seed, columns in enumerate([(1, 3), (0, 2, 4)]):
        part, counts = noisy(codes, columns, 3.0, seed)
        (expected,) = measured.independent([part])
        measured.add(part, counts, 3.0, expected)
        kept, fitted = measured.marginals[-1], measured.tables[-1]
        assert kept.columns == tuple(NAMES[j] for j in columns)
        assert_array_equal(kept.counts, counts)
        assert kept.noise_scale == 3.0
        for groups, j in zip(kept.groups, columns, strict=True):
            # Of categories, where a marginal is of blocks.
            assert_array_equal(groups, measured.blocks.blocks[j])
        assert fitted.columns == columns
        assert_allclose(fitted.shares, counts / 200)
        assert ((fitted.ridges > 0) & (fitted.ridges < np.inf)).all()
    assert len(measured.marginals) == len(measured.tables) == 2


def test_independent_columns_have_products_of_shares():
    codes = records(200, sizes=SIZES)
    measured = measurements_of(codes)
    shares = [np.bincount(c, minlength=k) / 200 for c, k in zip(codes, SIZES, strict=True)]
    pair, triple = measured.independent(whole((0, 3), (1, 2, 4)))
    assert_allclose(pair, 200 * np.outer(shares[0], shares[3]))
    assert_allclose(triple, 200 * np.einsum("a,b,c", *(shares[j] for j in (1, 2, 4))))
    grouped = Marginal((0, 2), (np.array([0, 1, 1]), np.array([0, 0, 1, 1])))
    (table,) = measured.independent([grouped])
    first, second = np.add.reduceat(shares[0], [0, 1]), np.add.reduceat(shares[2], [0, 2])
    assert_allclose(table, 200 * np.outer(first, second))


def test_tables_tell_of_their_columns():
    """The shares of a column move to what tables say, the less the more noise these have."""
    codes = records(2000, sizes=SIZES)
    exact = cells_of(codes)
    wrong = [part._replace(shares=np.roll(part.shares, 1)) for part in exact]

    def error(scale):
        measured = Measurements(NAMES, wrong, 2000.0, blocks_of(wrong))
        for j in range(4):
            part, counts = noisy(codes, (j, 4), scale, seed=j)
            measured.add(part, counts, scale, measured.independent([part])[0])
        assert_allclose([measured.shares(j).sum() for j in range(5)], 1)
        assert min(measured.shares(j).min() for j in range(5)) >= 0
        return sum(np.abs(measured.shares(j) - exact[j].shares).sum() for j in range(5))

    before = sum(np.abs(a.shares - b.shares).sum() for a, b in zip(exact, wrong, strict=True))
    assert error(0.0) < 1e-6
    assert error(1.0) < error(30.0) < before
    assert error(1e6) == pytest.approx(before, rel=1e-2)


def test_shares_stay_finite_after_a_group_is_almost_empty():
    """Noise may push a group to almost 0, and its update would then exceed all floats."""
    codes = records(2000, sizes=SIZES)
    cells = cells_of(codes)
    almost_empty = np.full(len(cells[0].shares), 1e-320)
    almost_empty[-1] = 1
    spread = np.full(len(almost_empty), 1e-4)
    cells[0] = cells[0]._replace(shares=almost_empty, variances=spread)
    measured = Measurements(NAMES, cells, 2000.0, blocks_of(cells_of(codes)))
    part, counts = noisy(codes, (0, 4), 1.0, seed=0)
    measured.add(part, counts, 1.0, measured.independent([part])[0])
    shares = measured.shares(0)
    assert np.isfinite(shares).all()
    assert_allclose(shares.sum(), 1)


def test_what_tables_tell_is_weighed_by_their_precisions():
    """Each sum over the other column has the noise of all of its cells."""
    codes = records(2000, sizes=SIZES)
    measured = measurements_of(codes)
    told, precisions = [measured.shares(2)], [1 / 1e-4]
    for other, noise in ((4, 0.003), (1, 0.01), (3, 0.002)):
        shares = np.roll(measured.shares(2), other)
        (part,) = whole(tuple(sorted((2, other))))
        counts = np.outer(shares, measured.shares(other)) * 2000
        counts = counts if other > 2 else counts.T
        measured.add(part, counts, 2000 * noise, counts)
        told.append(shares)
        precisions.append(1 / (noise**2 * SIZES[other]))
        assert_allclose(measured.shares(2), np.average(told, axis=0, weights=precisions))


def test_shares_of_which_noise_leaves_nothing_are_even():
    codes = records(200, sizes=SIZES)
    measured = measurements_of(codes)
    (part,) = whole((0, 1))
    measured.add(part, np.full((3, 2), -1e9), 1e-3, measured.independent([part])[0])
    assert_allclose(measured.shares(0), 1 / 3)
    assert_allclose(measured.block_shares(1), 1 / 2)


def test_the_ridge_is_noise_over_signal():
    """Strong dependence is hardly shrunk, and what is noise alone as much as there is."""
    rng = np.random.default_rng(0)
    weak = [rng.integers(4, size=4000), rng.integers(4, size=4000)]
    strong = [weak[0], weak[0]]
    ridges = {}
    for name, codes in (("weak", weak), ("strong", strong)):
        (part,) = whole((0, 1), sizes=[4, 4])
        (table,) = marginal_counts(codes, [part])
        for scale in (0.0, 5.0, 500.0):
            measured = measurements_of(codes, [4, 4])
            counts = table + scale * rng.normal(size=table.shape)
            measured.add(part, counts, scale, measured.independent([part])[0])
            ridges[name, scale] = measured.tables[0].ridges[1:, 1:]
    assert (ridges["strong", 0.0] <= ridges["strong", 5.0]).all()
    assert (ridges["strong", 5.0] < ridges["strong", 500.0]).all()
    assert (ridges["strong", 5.0] < 0.1 * ridges["weak", 500.0]).all()


@pytest.mark.parametrize("moved", [0.0, 0.1])
def test_the_ridge_of_a_known_gap(moved):
    """Of the gap beyond sums of single columns, less what noise adds to it on average."""
    n, noise, gap = 1000.0, 0.01, 0.02
    codes = records(2000, sizes=[4, 4])
    measured = measurements_of(codes, [4, 4])
    measured.n_records = n
    (part,) = whole((0, 1), sizes=[4, 4])
    (expected,) = measured.independent([part])
    signs = np.array([1, -1, 1, -1])
    rows = moved * np.array([1, -2, 3, -2])[:, None]
    shares = expected / n + gap * np.outer(signs, signs) + rows
    # Rows of a law give expected counts, whatever these add up to.
    measured.add(part, n * shares, n * noise, 3 * expected)
    total = 9 * noise**2
    ratio = total / (16 * gap**2 - total)
    assert_allclose(measured.tables[0].ridges, ratio / 16 + 0.2 / n)


def test_slow_dependence_is_told_from_noise():
    """What grows with another column has a small ridge, and what turns faster that of noise."""
    rng, n = np.random.default_rng(0), 10_000
    first = rng.integers(8, size=n)
    codes = [first, np.clip(first + rng.integers(-6, 7, size=n), 0, 7)]
    (part,) = whole((0, 1), sizes=[8, 8])
    (table,) = marginal_counts(codes, [part])
    ridges = {}
    for is_ordered in (True, False):
        measured = measurements_of(codes, [8, 8], is_ordered=is_ordered)
        counts = table + 60 * np.random.default_rng(1).normal(size=table.shape)
        measured.add(part, counts, 60.0, measured.independent([part])[0])
        ridges[is_ordered] = measured.tables[0].ridges
    slow, fast = ridges[True][1, 1], ridges[True][5:, 5:]
    even = ridges[False][1:, 1:]
    assert_allclose(even, even[0, 0])
    assert slow < 0.3 * even[0, 0]
    assert (fast > 2 * even[0, 0]).all()


@pytest.mark.parametrize("scale", [1e5, 1e8])
def test_noise_beyond_all_records_leaves_no_interaction(scale):
    """What little weight leaves of a table makes up no dependence, however it falls."""
    codes, rng = records(200, sizes=SIZES), np.random.default_rng(0)
    for columns in [(1, 3), (0, 2), (1, 2, 3)] * 10:
        measured = measurements_of(codes)
        (part,) = whole(columns)
        (table,) = marginal_counts(codes, [part])
        counts = table + scale * rng.normal(size=table.shape)
        measured.add(part, counts, scale, measured.independent([part])[0])
        (fitted,) = measured.tables
        # About the logits that follow.
        assert np.abs(fitted.shares).max() / fitted.ridges.min() < 0.05


def test_releases_of_a_marginal_are_one_that_is_as_precise_as_all():
    """Their terms add up to that of their mean, weighted by precision, with its ridge."""
    codes = records(300, sizes=SIZES)
    scales = (4.0, 10.0, 2.0)
    measured, alone = measurements_of(codes), measurements_of(codes)
    (expected,) = measured.independent(whole((0, 2)))
    released = []
    for seed, scale in enumerate(scales):
        part, counts = noisy(codes, (0, 2), scale, seed)
        released.append(counts)
        measured.add(part, counts, scale, expected, learned=())
        # Another marginal between them has a term of its own.
        measured.add(*noisy(codes, (1, 3), 1.0), 1.0, measured.independent(whole((1, 3)))[0])
    precisions = np.array(scales) ** -2
    mean = np.average(released, axis=0, weights=precisions)
    alone.add(part, mean, precisions.sum() ** -0.5, expected, learned=())
    (one,) = alone.tables
    assert measured.distinct() == [[0, 2, 4], [1, 3, 5]]
    for i in (0, 2, 4):
        assert_allclose(measured.tables[i].shares, one.shares)
        # With three equal terms of a third of the logit each, three times the penalty is the same.
        assert_allclose(measured.tables[i].ridges, 3 * one.ridges)
    kept = [measured.marginals[i] for i in (0, 2, 4)]
    for marginal, counts, scale in zip(kept, released, scales, strict=True):
        assert_array_equal(marginal.counts, counts)
        assert marginal.noise_scale == scale
