"""What is released of a table, and what was measured so far."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from measured_tables import (
    NAMES,
    PAIRS,
    SIZES,
    TREES,
    Seen,
    add_singles,
    records,
    reproducibly,
    vector_of_singles,
    vector_of_slices,
)
from numpy.testing import assert_allclose, assert_array_equal

from sklearn_dpgen.tables._column_trees import ColumnTree
from sklearn_dpgen.tables._measurements import Measurements
from sklearn_dpgen.tables._releases import release_singles, release_slices, total_records
from sklearn_dpgen.tables._slices import slice_counts

# Single columns.


def test_exact_single_columns_come_back():
    codes, weights = records(300), np.array([1.0, 2.0, 0.5, 3.0])
    counts, factors = release_singles(codes, TREES, weights, Seen())
    for found, tree, column in zip(counts, TREES, codes, strict=True):
        assert_allclose(found, tree.counts(column), rtol=1e-12)
    # The noise of a column is in proportion to the inverse of its weight.
    assert_allclose(factors * weights, factors[0])
    levels = np.array([tree.n_levels for tree in TREES])
    assert levels.tolist() == [3, 2, 1, 1]
    assert (levels / factors**2).sum() == pytest.approx(1)


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
    squares, exact = [], [tree.counts(c) for tree, c in zip(TREES, codes, strict=True)]
    for _ in range(n_draws):
        counts, factors = release_singles(
            codes, TREES, weights, lambda vector: vector + rng.normal(size=vector.shape)
        )
        squares.append([np.mean((a - b) ** 2) for a, b in zip(counts, exact, strict=True)])
    n_cells = np.array([tree.n_cells for tree in TREES])
    assert (
        np.abs(np.mean(squares, axis=0) / factors**2 - 1) < 5 * np.sqrt(2 / n_draws / n_cells)
    ).all()


# Slices.


@reproducibly
@given(st.lists(st.floats(1e-6, 1e6), min_size=1, max_size=10), st.integers(0, 2**32 - 1))
def test_released_slices(weights, seed):
    weights, slices = np.array(weights), [*PAIRS[:8], (0, 1, 2), (4, 2, 3)][: len(weights)]
    codes = records(5, seed, SIZES)
    tables = slice_counts(codes, SIZES, slices)
    found, factors = release_slices(tables, weights, Seen())
    for ours, theirs in zip(found, tables, strict=True):
        assert_allclose(ours, theirs, rtol=1e-12)
        assert ours.shape == theirs.shape
    assert_allclose(factors * weights, factors[0] * weights[0], rtol=1e-9)
    one = slice_counts([column[:1] for column in codes], SIZES, slices)
    assert np.linalg.norm(vector_of_slices(one, weights)) == pytest.approx(1)
    assert np.sum(1 / factors**2) == pytest.approx(1)


def test_the_noise_of_slices_is_what_the_factors_say():
    rng, n_draws = np.random.default_rng(0), 400
    tables, weights = slice_counts(records(60, sizes=SIZES), SIZES, PAIRS), np.arange(1.0, 11.0)
    squares = []
    for _ in range(n_draws):
        found, factors = release_slices(
            tables, weights, lambda vector: vector + 3 * rng.normal(size=vector.shape)
        )
        squares.append([np.mean((a - b) ** 2) for a, b in zip(found, tables, strict=True)])
    ratios = np.mean(squares, axis=0) / (3 * factors) ** 2
    spread = 5 * np.sqrt(2 / n_draws / np.array([table.size for table in tables]))
    assert (np.abs(ratios - 1) < spread).all()
    assert not (np.abs(ratios / 2 - 1) < spread).any()


# The number of records.


def test_the_number_of_records_is_estimated():
    codes, n_draws = records(900), 800
    rng, factors = np.random.default_rng(0), np.array([2.0, 1.0, 3.0, 8.0])
    exact = [tree.counts(c) for tree, c in zip(TREES, codes, strict=True)]
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


@pytest.mark.parametrize("noise_scale", [4.0, 0.0])
def test_measurements(noise_scale):
    measured, rng = Measurements(NAMES, SIZES, 200.0), np.random.default_rng(1)
    tables, spreads = add_singles(measured, noise_scale)
    pairs = [(3, 1), (0, 4)]
    more = [rng.normal(20, 5, size=[SIZES[i] for i in pair]) for pair in pairs]
    measured.add(pairs, more, np.array([1.5, 0.5]), 2 * noise_scale)
    assert [part.columns for part in measured.slices[4:]] == [("e",), ("d", "b"), ("a", "e")]
    for part, table in zip(measured.slices, [*tables, *more], strict=True):
        assert_array_equal(part.counts, table)
    assert_allclose(measured.slices[1].noise_scale, noise_scale * spreads[1])
    assert measured.slices[5].noise_scale == 3 * noise_scale
    assert len(measured.singles) == 5
    for shares, table in zip(measured.singles, tables, strict=True):
        assert_allclose(shares, table / 200)
    assert measured.n_cells == sum(SIZES) + 4 + 15
    # The loss is the squared distance in variances, a cell; the variances are relative without.
    P = np.hstack([rng.dirichlet(np.ones(size), size=7) for size in SIZES])
    blocks = np.split(P, np.cumsum(SIZES)[:-1], axis=1)
    total = 0.0
    scales = [spread * (noise_scale or 1.0) for spread in spreads]
    for block, table, scale in zip(blocks, tables, scales, strict=True):
        total += (((200 * block.mean(axis=0) - table) / scale) ** 2).sum()
    for (i, j), table, spread in zip(pairs, more, (1.5, 0.5), strict=True):
        scale = spread * (2 * noise_scale or 1.0)
        total += (((200 * blocks[i].T @ blocks[j] / 7 - table) / scale) ** 2).sum()
    loss, _ = measured.loss(torch.device("cpu"))(torch.tensor(P.T.copy(), dtype=torch.float32))
    assert loss.item() == pytest.approx(total / measured.n_cells, rel=1e-5)
