"""Marginals: exact counts, also over blocks of records, the list of marginals, and weights."""

import itertools
import math

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from sklearn_dpgen.preprocessing import TabularEncoder
from sklearn_dpgen.schema import Categorical, Numeric, Schema
from sklearn_dpgen.tables import _marginals
from sklearn_dpgen.tables._column_trees import MAX_LEAVES, ColumnTree
from sklearn_dpgen.tables._marginals import (
    MAX_BLOCKS,
    ColumnBlocks,
    Marginal,
    all_pairs,
    check_memory,
    expand_marginals,
    marginal_counts,
    marginal_weight,
    target_columns,
)

SIZES = [3, 2, 4, 2]
NAMES = list("abcd")
ALL = [tuple(c) for k in (1, 2, 3) for c in itertools.combinations(range(4), k)] + [
    (2, 0),
    (3, 1, 2),
]


def records(n=200, seed=0):
    """Return the codes of each column, in the smallest unsigned dtype."""
    rng = np.random.default_rng(seed)
    return [rng.integers(size, size=n).astype(np.uint8) for size in SIZES]


def whole(*marginals):
    """Return marginals of whole columns: a group a block."""
    return [Marginal(columns, tuple(np.arange(SIZES[j]) for j in columns)) for columns in marginals]


def naive(codes, columns, groups=None):
    groups = groups or [np.arange(SIZES[column]) for column in columns]
    table = np.zeros([part.max() + 1 for part in groups])
    for row in zip(*(codes[column] for column in columns), strict=True):
        table[tuple(part[code] for part, code in zip(groups, row, strict=True))] += 1
    return table


def test_counts_are_those_of_every_record():
    codes = records()
    for columns, table in zip(ALL, marginal_counts(codes, whole(*ALL)), strict=True):
        assert table.dtype == np.float64
        assert_array_equal(table, naive(codes, columns))


def test_counts_of_groups_are_sums_of_counts():
    """The same column may be in other groups in another table of the same call."""
    codes = records()
    halves, rest = np.array([0, 0, 1, 1]), np.array([0, 1, 1, 1])
    groups = [(np.arange(3), halves), (np.arange(3), rest), (np.zeros(3, dtype=int), halves)]
    marginals = [Marginal((0, 2), part) for part in groups]
    assert [part.shape for part in marginals] == [(3, 2), (3, 2), (1, 2)]
    assert [part.n_cells for part in marginals] == [6, 6, 2]
    for part, table in zip(marginals, marginal_counts(codes, marginals), strict=True):
        assert_array_equal(table, naive(codes, (0, 2), part.groups))


def test_slices_are_blocks_of_the_second_moment():
    codes = records()
    X = np.hstack([np.eye(size)[column] for size, column in zip(SIZES, codes, strict=True)])
    parts = [slice(stop - size, stop) for size, stop in zip(SIZES, np.cumsum(SIZES), strict=True)]
    G = X.T @ X
    for (a, b), table in zip(
        all_pairs(4), marginal_counts(codes, whole(*all_pairs(4))), strict=True
    ):
        assert_array_equal(table, G[parts[a], parts[b]])
    singles = marginal_counts(codes, whole(*((i,) for i in range(4))))
    assert_array_equal(np.concatenate(singles), np.diag(G))


def change(count, n_trials=20):
    """Return the largest l2 change of tables of all kinds, if a record is put in."""
    largest = 0.0
    for row in range(n_trials):
        codes = records()
        fewer = [np.delete(column, row) for column in codes]
        tables = [count(given, whole(*ALL)) for given in (codes, fewer)]
        changes = [np.sum((one - two) ** 2) for one, two in zip(*tables, strict=True)]
        largest = max(largest, math.sqrt(sum(changes)))
    return largest


def test_a_record_adds_one_to_one_cell_of_each():
    assert change(marginal_counts) == pytest.approx(math.sqrt(len(ALL)))

    def twice(codes, marginals):
        return marginal_counts([np.tile(column, 2) for column in codes], marginals)

    assert change(twice) > 1.9 * math.sqrt(len(ALL))


@pytest.mark.parametrize("block", [1, 7, 1000])
def test_counts_add_up_over_blocks_and_chunks(monkeypatch, block):
    codes, exact = records(), marginal_counts(records(), whole(*ALL))
    monkeypatch.setattr(_marginals, "_BLOCK", block)
    cuts = [slice(31), slice(31, 31), slice(31, None)]
    parts = [marginal_counts([column[cut] for column in codes], whole(*ALL)) for cut in cuts]
    for table, pieces in zip(exact, zip(*parts, strict=True), strict=True):
        assert_array_equal(table, sum(pieces))


@pytest.mark.slow
def test_codes_of_a_byte_count_in_tables_of_more_cells():
    codes = [np.array([255, 255, 3], dtype=np.uint8)] * 3
    (table,) = marginal_counts(codes, [Marginal((0, 1, 2), (np.arange(256),) * 3)])
    assert table[255, 255, 255] == 2
    assert table[3, 3, 3] == 1
    assert table.sum() == 3


@pytest.mark.parametrize(
    ("codes", "columns", "message"),
    [([[0], [2]], (1,), "blocks"), ([[-1], [0]], (0,), "blocks"), ([[0], [0]], (0, 0), "distinct")]
    + [([[0], [0]], (), "one to seven"), ([[0], [0]], (0, 1, 0, 1), "one to seven")],
    ids=str,
)
def test_what_cannot_be_counted(codes, columns, message):
    part = Marginal(columns, (np.arange(2),) * len(columns))
    with pytest.raises(ValueError, match=message):
        marginal_counts([np.array(column) for column in codes], [part])


def test_which_slices_there_are():
    assert expand_marginals("pairs", NAMES) == "pairs"
    assert expand_marginals("auto", ["a"]) == "auto"
    # Columns ascending; single columns are counted anyway.
    listed = [("c", "a"), ("b",), ("d", "a", "b")]
    assert expand_marginals(listed, NAMES) == [(0, 2), (0, 1, 3)]
    assert expand_marginals([("a",)], ["a"]) == []


@pytest.mark.parametrize(
    ("marginals", "message"),
    [([("a", "z")], r"schema, got \['z'\]"), ([("a", "b"), ("b", "a")], "distinct")]
    + [([("a", "a")], "distinct"), ([tuple("abcdefgh")], "one to seven")]
    + [(["ab"], "tuples"), ([()], "one to seven"), ([["a", "b"]], "tuples")],
    ids=str,
)
def test_slices_that_are_none(marginals, message):
    with pytest.raises(ValueError, match=message):
        expand_marginals(marginals, NAMES)


def test_pairs_of_one_column_are_none():
    with pytest.raises(ValueError, match="at least two columns"):
        expand_marginals("pairs", ["a"])


def test_which_columns_are_targets():
    assert target_columns(None, NAMES) == []
    assert target_columns("c", NAMES) == [2]
    assert target_columns(["d", "a"], NAMES) == target_columns(("d", "a"), NAMES) == [3, 0]


@pytest.mark.parametrize(
    ("target", "message"),
    [
        ("z", r"\['z'\]"),
        (["a", "z"], r"\['z'\]"),
        (["a", "a"], "distinct"),
        ([("a",)], "must name columns of the schema"),
    ],
    ids=str,
)
def test_targets_that_are_none(target, message):
    with pytest.raises(ValueError, match=message):
        target_columns(target, NAMES)


def test_weights_are_those_of_tuples_or_products_of_columns():
    singles, pairs = [(j,) for j in range(4)], all_pairs(4)
    plain = marginal_weight(NAMES, None)
    assert [plain(columns) for columns in singles + pairs] == [1.0] * 10
    weight = marginal_weight(NAMES, {"a": 2, ("d", "c"): 5.0, ("b",): 3})
    assert [weight(columns) for columns in singles] == [2, 3, 1, 1]
    assert [weight(columns) for columns in pairs] == [6, 2, 2, 3, 3, 5]
    heavy = marginal_weight(NAMES, dict.fromkeys(NAMES, 1e6))
    assert_allclose([heavy((2,)), heavy((0, 1, 3))], [1e6, 1e18])
    light = marginal_weight(NAMES, dict.fromkeys(NAMES, np.float32(1e-6) * 2))
    assert light((0, 1, 3)) ** 2 > 0


@pytest.mark.parametrize(
    ("workload", "message"),
    [({"z": 1}, "'z'"), ({("a", "z"): 1}, "z"), ({"a": 0}, "positive"), ({"a": "x"}, "positive")]
    + [({"a": math.inf}, "positive"), ({"a": math.nan}, "positive"), ({"a": True}, "positive")]
    + [({"a": 1e200}, "from 1e-6 to 1e6"), ({("a", "b"): 1e-200}, "from 1e-6 to 1e6")]
    + [
        ({("a", "b"): 1, ("b", "a"): 2}, "each marginal once"),
        ({tuple("abcdefgh"): 2}, "one to seven"),
    ]
    + [({"a": 1, ("a",): 1}, "each marginal once")],
    ids=str,
)
def test_workloads_that_are_none(workload, message):
    with pytest.raises(ValueError, match=message):
        marginal_weight(NAMES, workload)


def test_memory_is_counted_before_it_is_taken():
    check_memory(NAMES, [ColumnTree(MAX_LEAVES)] * 4, 20_000)
    with pytest.raises(ValueError, match=r"GiB.*'b' is counted in the most cells, 131072"):
        check_memory(["a", "b"], [ColumnTree(2), ColumnTree(MAX_LEAVES, is_flat=True)], 2 * 10**6)
    # Of rows or of cells too many.
    names = [str(i) for i in range(1000)]
    check_memory(names, [ColumnTree(20)] * 1000, 20_000)
    for n_values, n_rows in ((20, 10**6), (100_000, 2)):
        with pytest.raises(ValueError, match="GiB"):
            check_memory(names, [ColumnTree(n_values, is_flat=True)] * 1000, n_rows)


# Blocks, and the groups of them that a marginal has.


def test_slices_have_as_many_cells_as_are_asked_for():
    rng = np.random.default_rng(0)
    shares = [rng.dirichlet(np.ones(k)) for k in (3, 40, 200, 500)]
    blocks = ColumnBlocks(shares, [False, True, True, False], [0] * 4, [0] * 4)
    assert blocks.sizes == [3, 40, MAX_BLOCKS, MAX_BLOCKS]
    for columns in all_pairs(4) + [(0, 1, 2), (1, 2, 3)]:
        for n_cells in (0.5, 4, 17.3, 100, 1e9):
            part = blocks.marginal(columns, n_cells)
            assert part.columns == columns
            assert part.n_cells <= max(n_cells, 2 ** len(columns))
            assert all(2 <= k <= blocks.sizes[j] for j, k in zip(columns, part.shape, strict=True))
            for j, groups in zip(columns, part.groups, strict=True):
                assert groups.shape == (blocks.sizes[j],)
                assert_array_equal(np.unique(groups), np.arange(groups.max() + 1))
    assert blocks.marginal((1, 2), 1e9).shape == (40, MAX_BLOCKS)
    # Alike groups are one object: they are found once.
    assert blocks.marginal((1, 2), 64).groups[0] is blocks.marginal((1, 3), 64).groups[0]
    # Of ordered columns alone there may be finer groups: 1.6 times 8, and no more than 40 blocks.
    assert blocks.marginal((1, 2), 64, finer=1.6).shape == (12, 12)
    assert blocks.marginal((1, 2), 900, finer=1.6).shape == (40, 48)
    assert blocks.marginal((1, 3), 64, finer=1.6).shape == blocks.marginal((1, 3), 64).shape


@pytest.mark.parametrize("n_cells", [6, 9, 30, 400])
def test_nulls_have_a_group_of_their_own(n_cells):
    shares = [np.full(100, 0.01), np.append(np.full(99, 0.9 / 99), 0.1)]
    blocks = ColumnBlocks(shares, [True, True], [0, 1], [0, 0])
    groups = blocks.marginal((0, 1), n_cells).groups[1]
    is_alone = (groups == groups[-1]).sum() == 1
    # Of two groups none is left for them.
    assert is_alone == (groups.max() >= 2)
    assert blocks.blocks[1][-1] not in blocks.blocks[1][:-1]


def test_zero_among_numbers_of_both_signs_begins_a_group():
    schema = Schema(
        {"both": Numeric(-10, 30), "above": Numeric(0, 30), "k": Categorical(["x", "y"])}
    )
    encoder = TabularEncoder(schema, n_bins=40).fit()
    rng = np.random.default_rng(0)
    shares = [rng.dirichlet(np.full(40, 3.0)), rng.dirichlet(np.ones(40)), np.array([0.5, 0.5])]
    blocks = ColumnBlocks.of(encoder, shares)
    for n_cells in (4, 9, 20, 64):
        groups, _ = blocks.marginal((0, 1), n_cells).groups
        # Bins have the width of one.
        assert groups[9] < groups[10]
    even = ColumnBlocks(shares, [True, True, False], [0] * 3, [0] * 3)
    assert any(np.ptp(even.marginal((0, 1), k).groups[0][9:11]) == 0 for k in (4, 9, 20, 64))
