"""Slices: exact counts, over blocks of records too, which slices there are, and their weights."""

import itertools
import math

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from sklearn_dpgen.evolution import _slices
from sklearn_dpgen.evolution._slices import (
    all_pairs,
    block_codes,
    check_memory,
    count_records,
    expand_slices,
    slice_cells,
    slice_counts,
    slice_weights,
)
from sklearn_dpgen.preprocessing import TabularEncoder
from sklearn_dpgen.schema import Categorical, Numeric, Schema

SIZES = [3, 2, 4, 2]
NAMES = list("abcd")
ALL = [tuple(c) for k in (1, 2, 3) for c in itertools.combinations(range(4), k)] + [
    (2, 0),
    (3, 1, 2),
]


def records(n=200, seed=0):
    rng = np.random.default_rng(seed)
    return np.column_stack([rng.integers(size, size=n) for size in SIZES])


def naive(codes, columns):
    table = np.zeros([SIZES[column] for column in columns])
    for row in codes:
        table[tuple(row[list(columns)])] += 1
    return table


def test_counts_are_those_of_every_record():
    codes = records()
    for columns, table in zip(ALL, slice_counts(codes, SIZES, ALL), strict=True):
        assert_array_equal(table, naive(codes, columns))


def test_slices_are_blocks_of_the_second_moment():
    codes = records()
    X = np.hstack([np.eye(size)[column] for size, column in zip(SIZES, codes.T, strict=True)])
    parts = [slice(stop - size, stop) for size, stop in zip(SIZES, np.cumsum(SIZES), strict=True)]
    assert_array_equal(block_codes(X, parts), codes)
    G = X.T @ X
    for (a, b), table in zip(all_pairs(4), slice_counts(codes, SIZES, all_pairs(4)), strict=True):
        assert_array_equal(table, G[parts[a], parts[b]])
    singles = slice_counts(codes, SIZES, [(i,) for i in range(4)])
    assert_array_equal(np.concatenate(singles), np.diag(G))


@pytest.mark.parametrize("block", [1, 7, 1000])
def test_counts_add_up_over_blocks_and_chunks(monkeypatch, block):
    codes, whole = records(), slice_counts(records(), SIZES, ALL)
    monkeypatch.setattr(_slices, "_BLOCK", block)
    parts = [slice_counts(part, SIZES, ALL) for part in (codes[:31], codes[31:31], codes[31:])]
    for table, pieces in zip(whole, zip(*parts, strict=True), strict=True):
        assert_array_equal(table, sum(pieces))


def test_whatever_a_record_holds_it_has_one_category_a_block():
    X = np.array([[0, 0, 9.0, -1], [np.inf, 1, 0.2, 0.2]])
    assert_array_equal(block_codes(X, [slice(0, 2), slice(2, 4)]), [[0, 0], [0, 0]])


@pytest.mark.parametrize("entries", [1, 40, 1 << 20])
def test_records_are_encoded_by_blocks(monkeypatch, entries):
    monkeypatch.setattr(_slices, "_ENTRIES", entries)
    schema = Schema({"x": Numeric(0, 4), "y": Categorical(["u", "v"])})
    frame = pd.DataFrame({"y": ["u", "v", "v", "u", "v"], "x": [0.5, 9.0, 3.5, -2.0, 2.0]})
    encoder = TabularEncoder(schema, bins=4).fit(frame)
    x, both = count_records(frame.set_index(np.arange(5) + 9), encoder, [(0,), (0, 1)])
    assert_array_equal(x, [2, 0, 1, 2])
    assert_array_equal(both, [[2, 0], [0, 0], [0, 1], [0, 2]])
    rows = frame[["x", "y"]].to_numpy().tolist()
    assert_array_equal(count_records(rows, TabularEncoder(schema, bins=4).fit(rows), [(0,)])[0], x)


@pytest.mark.parametrize(
    ("codes", "slices", "message"),
    [([[0, 2]], [(0,)], "categories"), ([[-1, 0]], [(0,)], "categories")]
    + [([[0]], [(0,)], "one category a column"), ([[0, 0]], [(0, 0)], "distinct")]
    + [([[0, 0]], [()], "one to three"), ([[0, 0]], [(0, 1, 0, 1)], "one to three")],
    ids=str,
)
def test_what_cannot_be_counted(codes, slices, message):
    with pytest.raises(ValueError, match=message):
        slice_counts(np.array(codes), [2, 2], slices)


def test_which_slices_there_are():
    singles = [(0,), (1,), (2,), (3,)]
    assert expand_slices("pairs", NAMES) == singles + list(itertools.combinations(range(4), 2))
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


def test_weights_share_the_budget():
    slices = expand_slices("pairs", NAMES)
    weights = slice_weights(slices, NAMES, None, 0.1)
    assert (weights**2).sum() == pytest.approx(10)
    assert_allclose(weights[:4] ** 2, 0.1 * 10 / 4)
    assert_allclose(weights[4:] ** 2, 0.9 * 10 / 6)
    workload = {"a": 2, ("d", "c"): 5.0}
    weights = slice_weights(slices, NAMES, workload, 0.1)
    assert (weights**2).sum() == pytest.approx(10)
    assert_allclose(weights[:4] / weights[1], [2, 1, 1, 1])
    assert (weights[:4] ** 2).sum() == pytest.approx(1)
    assert_allclose(weights[4:] / weights[7], [2, 2, 2, 1, 1, 5])
    assert_allclose(slice_weights([(0,), (1,)], ["a", "b"], {"a": 3}, 0.1), np.sqrt([1.8, 0.2]))


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
        slice_weights(expand_slices("pairs", NAMES), NAMES, workload, 0.1)


def test_memory_is_counted_before_it_is_taken():
    check_memory([str(i) for i in range(100)], [20] * 100, expand_slices("pairs", range(100)), 2000)
    with pytest.raises(ValueError, match=r"1\.6 GiB.*'b' has the most categories, 10000"):
        check_memory(["a", "b"], [2, 10_000], [(0,), (1,), (0, 1)], 2000)
    with pytest.raises(ValueError, match="GiB"):
        check_memory(list("abc"), [1000] * 3, [(0, 1, 2)], 2)
