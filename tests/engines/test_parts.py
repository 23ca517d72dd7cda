"""Parts that are merged in any order, each once, and tables that are known by their class."""

import operator
import pickle
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sklearn_dpgen.engines._parts import check_columns, count_part, finish, merge_parts, require
from sklearn_dpgen.engines._tables import engine_columns, is_engine_table, map_reduce
from sklearn_dpgen.exceptions import PublicTypeError, PublicValueError


def merge_in_any_order(draw, packed, merge):
    """Merge by a tree that is drawn, whose leaves are shuffled."""
    packed = draw(st.permutations(packed))
    while len(packed) > 1 and draw(st.booleans()):
        n = draw(st.integers(1, len(packed)))
        packed = [*packed[n:], merge_parts(merge, packed[:n])]
    return packed


def count(pieces):
    return np.array([sum(map(len, pieces)), 1], np.int64)


def add(a, b):
    a += b
    return a


SIZES = st.lists(st.lists(st.integers(0, 5), max_size=3), max_size=12)


@given(SIZES, st.booleans(), st.data())
def test_any_tree_of_merges_gives_the_sum(sizes, in_tasks, data):
    parts = [("b" * (i % 2), i // 2) if in_tasks else i for i in range(len(sizes))]
    packed = [
        count_part(count, part, [[None] * n for n in pieces])
        for part, pieces in zip(parts, sizes, strict=True)
    ]
    packed = merge_in_any_order(data.draw, packed, add)
    expected = [sum(map(sum, sizes)), max(len(sizes), 1)]
    assert finish(count, add, packed).tolist() == expected
    assert finish(count, add, packed, len(sizes)).tolist() == expected


@given(st.lists(st.integers(0, 5), min_size=1, max_size=9), st.data())
def test_a_part_that_is_there_twice_is_refused(sizes, data):
    packed = [count_part(count, i, [[None] * n]) for i, n in enumerate(sizes)]
    assert finish(count, add, packed)[0] == sum(sizes)
    twice = merge_in_any_order(data.draw, [*packed, data.draw(st.sampled_from(packed))], add)
    # Nobody would see it in what is merged.
    assert pickle.loads(merge_parts(add, twice))[1][1] == len(sizes) + 1
    with pytest.raises(RuntimeError, match="each part of X exactly once, and did not"):
        finish(count, add, twice)


def test_a_part_that_is_missing_is_refused():
    packed = [count_part(count, i, [[None]]) for i in range(5)]
    with pytest.raises(RuntimeError, match="each part of X exactly once, and did not"):
        finish(count, add, packed[:2] + packed[3:])
    with pytest.raises(RuntimeError, match="each part of X exactly once, and did not"):
        finish(count, add, packed[:4], 5)
    with pytest.raises(RuntimeError, match="each part of X exactly once, and did not"):
        finish(count, add, [], 1)


def test_pieces_without_records_are_left_out():
    sizes = map_sizes([[], [1], [], [1, 2]])
    assert sizes == [1, 2]
    assert map_sizes([[]]) == map_sizes([]) == []


def map_sizes(pieces):
    return pickle.loads(count_part(lambda pieces: [*map(len, pieces)], 0, pieces))[1]


def fail(pieces):
    raise PublicTypeError(f"{len(next(pieces))} is a bad number of records.")


@given(st.permutations(range(4)))
def test_the_error_is_that_of_the_first_part(order):
    packed = [count_part(fail if i else count, i, [[None] * i, [None]]) for i in range(4)]
    packed = [packed[i] for i in order]
    with pytest.raises(TypeError, match="^1 is a bad"):
        finish(fail, operator.add, [merge_parts(add, packed[:3]), *packed[3:]])


def test_errors_of_no_part():
    with pytest.raises(ValueError, match="^Found no record.$"):
        finish(complain, add, [])


def complain(pieces):
    raise PublicValueError("Found no record.")


def test_only_a_public_error_keeps_its_message():
    def of_another(pieces):
        raise ValueError("secret")

    with pytest.raises(ValueError, match=r"^A part of X cannot be read: ValueError\.$"):
        finish(of_another, add, [])


def test_columns_are_there_once():
    check_columns(["a", "b", "b"], ["a"])
    with pytest.raises(ValueError, match=r"once: \['b', 'c'\]"):
        check_columns(["a", "b", "b"], ["c", "b"][::-1])


def test_what_is_not_installed_names_its_extra():
    assert require("pickle", "spark") is pickle
    with pytest.raises(ImportError, match=r"needs nowhere.*sklearn-dpgen\[spark\]") as caught:
        require("nowhere.at_all", "spark")
    assert caught.value.__context__ is None


def make_fake(module, **members):
    return type("Table", (), {"__module__": module, **members})()


@pytest.mark.parametrize(
    ("module", "message"),
    [
        ("dask.bag.core", "partitions or an array if it is of dask, got Table"),
        ("dask_expr._collection", "if it is of dask, got Table"),
        ("pyspark.pandas.frame", r"pyspark.sql.DataFrame .* got pyspark.pandas.frame.Table"),
        ("ray", "ray.data.Dataset if it is of Ray, got Table"),
    ],
)
def test_what_is_no_table_of_an_engine_is_refused(module, message):
    X = make_fake(module)
    assert is_engine_table(X)
    with pytest.raises(TypeError, match=message):
        engine_columns(X)


@pytest.mark.parametrize("X", [None, [1], np.zeros((2, 2)), make_fake("daskalos.frame")])
def test_what_is_of_no_engine_is_refused(X):
    assert not is_engine_table(X)
    with pytest.raises(TypeError, match="of dask, Spark or Ray, got"):
        engine_columns(X)
    with pytest.raises(TypeError, match="of dask, Spark or Ray, got"):
        map_reduce(count, add, X)


def test_no_engine_is_imported_to_know_a_table():
    code = """
import sys
from sklearn_dpgen.engines._tables import is_engine_table
Table = type("DataFrame", (), {"__module__": "pyspark.sql.classic.dataframe"})
assert is_engine_table(type("Mine", (Table,), {})())
assert not is_engine_table([])
assert not {"dask", "pyspark", "ray", "pyarrow"} & set(sys.modules)
"""
    subprocess.run([sys.executable, "-c", code], check=True)
