"""Slices: exact counts, over blocks of records too, which slices there are, and their weights."""

import itertools
import math
from types import SimpleNamespace

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from sklearn_dpgen.tables import _slices
from sklearn_dpgen.tables._slices import (
    all_pairs,
    check_memory,
    expand_slices,
    slice_cells,
    slice_counts,
    slice_weights,
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


def naive(codes, columns):
    table = np.zeros([SIZES[column] for column in columns])
    for row in zip(*(codes[column] for column in columns), strict=True):
        table[row] += 1
    return table


def test_counts_are_those_of_every_record():
    codes = records()
    for columns, table in zip(ALL, slice_counts(codes, SIZES, ALL), strict=True):
        assert table.dtype == np.float64
        assert_array_equal(table, naive(codes, columns))


def test_slices_are_blocks_of_the_second_moment():
    codes = records()
    X = np.hstack([np.eye(size)[column] for size, column in zip(SIZES, codes, strict=True)])
    parts = [slice(stop - size, stop) for size, stop in zip(SIZES, np.cumsum(SIZES), strict=True)]
    G = X.T @ X
    for (a, b), table in zip(all_pairs(4), slice_counts(codes, SIZES, all_pairs(4)), strict=True):
        assert_array_equal(table, G[parts[a], parts[b]])
    singles = slice_counts(codes, SIZES, [(i,) for i in range(4)])
    assert_array_equal(np.concatenate(singles), np.diag(G))


def change(count, n_trials=20):
    """Return the largest l2 change of tables of all kinds, if a record is put in."""
    largest = 0.0
    for row in range(n_trials):
        codes = records()
        fewer = [np.delete(column, row) for column in codes]
        tables = [count(given, SIZES, ALL) for given in (codes, fewer)]
        changes = [np.sum((one - two) ** 2) for one, two in zip(*tables, strict=True)]
        largest = max(largest, math.sqrt(sum(changes)))
    return largest


def test_a_record_adds_one_to_one_cell_of_each():
    assert change(slice_counts) == pytest.approx(math.sqrt(len(ALL)))

    def twice(codes, sizes, slices):
        return slice_counts([np.tile(column, 2) for column in codes], sizes, slices)

    assert change(twice) > 1.9 * math.sqrt(len(ALL))


@pytest.mark.parametrize("block", [1, 7, 1000])
def test_counts_add_up_over_blocks_and_chunks(monkeypatch, block):
    codes, whole = records(), slice_counts(records(), SIZES, ALL)
    monkeypatch.setattr(_slices, "_BLOCK", block)
    cuts = [slice(31), slice(31, 31), slice(31, None)]
    parts = [slice_counts([column[cut] for column in codes], SIZES, ALL) for cut in cuts]
    for table, pieces in zip(whole, zip(*parts, strict=True), strict=True):
        assert_array_equal(table, sum(pieces))


def test_codes_of_a_byte_count_in_tables_of_more_cells():
    codes = [np.array([255, 255, 3], dtype=np.uint8)] * 3
    (table,) = slice_counts(codes, [256] * 3, [(0, 1, 2)])
    assert table[255, 255, 255] == 2
    assert table[3, 3, 3] == 1
    assert table.sum() == 3


@pytest.mark.parametrize(
    ("codes", "slices", "message"),
    [([[0], [2]], [(0,)], "categories"), ([[-1], [0]], [(0,)], "categories")]
    + [([[0]], [(0,)], "one category a column"), ([[0], [0, 1]], [(0,)], "one category a column")]
    + [([[0], [0]], [(0, 0)], "distinct"), ([[0], [0]], [()], "one to three")]
    + [([[0], [0]], [(0, 1, 0, 1)], "one to three")],
    ids=str,
)
def test_what_cannot_be_counted(codes, slices, message):
    with pytest.raises(ValueError, match=message):
        slice_counts([np.array(column) for column in codes], [2, 2], slices)


def test_which_slices_there_are():
    singles = [(0,), (1,), (2,), (3,)]
    for kind in ("pairs", "adaptive"):
        pairs = list(itertools.combinations(range(4), 2))
        assert expand_slices(kind, NAMES) == singles + pairs
    # Of a single column there is nothing to select.
    assert expand_slices("adaptive", ["a"]) == [(0,)]
    assert expand_slices([("c", "a"), ("b",), ("d", "a", "b")], NAMES) == [
        *singles,
        (2, 0),
        (3, 0, 1),
    ]
    assert expand_slices([("a",)], ["a"]) == [(0,)]
    assert slice_cells(SIZES, [(1,), (0, 2), (3, 2, 0)]) == [2, 12, 24]
    assert slice_cells(np.array([2**40] * 3, dtype=np.int64), [(0, 1, 2)]) == [2**120]


@pytest.mark.parametrize(
    ("slices", "message"),
    [([("a", "z")], r"does not: \['z'\]"), ([("a", "b"), ("b", "a")], "distinct")]
    + [([("a", "a")], "distinct"), ([("a", "b", "c", "d")], "one to three")]
    + [(["ab"], "tuples"), ([()], "one to three"), ([["a", "b"]], "tuples")],
    ids=str,
)
def test_slices_that_are_none(slices, message):
    with pytest.raises(ValueError, match=message):
        expand_slices(slices, NAMES)


def test_pairs_of_one_column_are_none():
    with pytest.raises(ValueError, match="at least two columns"):
        expand_slices("pairs", ["a"])


def test_weights_are_those_of_tuples_or_products_of_columns():
    slices = expand_slices("adaptive", NAMES)
    assert_array_equal(slice_weights(slices, NAMES, None), np.ones(10))
    weights = slice_weights(slices, NAMES, {"a": 2, ("d", "c"): 5.0, ("b",): 3})
    assert_allclose(weights[:4], [2, 3, 1, 1])
    assert_allclose(weights[4:], [6, 2, 2, 3, 3, 5])
    triples = expand_slices([("a", "b", "d")], NAMES)
    heavy = dict.fromkeys(NAMES, 1e6)
    assert_allclose(slice_weights(triples, NAMES, heavy), [1e6] * 4 + [1e18])
    light = dict.fromkeys(NAMES, np.float32(1e-6) * 2)
    assert (slice_weights(triples, NAMES, light) ** 2 > 0).all()


@pytest.mark.parametrize(
    ("workload", "message"),
    [({"z": 1}, "'z'"), ({("a", "z"): 1}, "z"), ({"a": 0}, "positive"), ({"a": "x"}, "positive")]
    + [({"a": math.inf}, "positive"), ({"a": math.nan}, "positive"), ({"a": True}, "positive")]
    + [({"a": 1e200}, "from 1e-6 to 1e6"), ({("a", "b"): 1e-200}, "from 1e-6 to 1e6")]
    + [({("a", "b"): 1, ("b", "a"): 2}, "each once"), ({("a", "b", "c"): 2}, "no slices")]
    + [({"a": 1, ("a",): 1}, "each once")],
    ids=str,
)
def test_workloads_that_are_none(workload, message):
    with pytest.raises(ValueError, match=message):
        slice_weights(expand_slices("pairs", NAMES), NAMES, workload)


def test_memory_is_counted_before_it_is_taken():
    def trees(*sizes, n_cells=None):
        return [SimpleNamespace(n_bins=size, n_cells=n_cells or size) for size in sizes]

    names = [str(i) for i in range(100)]
    check_memory(names, trees(*[20] * 100), expand_slices("pairs", names), 2000)
    with pytest.raises(ValueError, match=r"1\.5 GiB.*'b' has the most categories, 10000"):
        check_memory(["a", "b"], trees(2, 10_000), [(0,), (1,), (0, 1)], 3400)
    with pytest.raises(ValueError, match="GiB"):
        check_memory(list("abc"), trees(*[1000] * 3), [(0, 1, 2)], 2)
    # Counts of single columns may be many more than their bins.
    with pytest.raises(ValueError, match="GiB"):
        check_memory(names, trees(*[20] * 100, n_cells=500_000), [(0,)], 2)
