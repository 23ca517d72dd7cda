"""Which categories are counted together: the tables of all records, however they are grouped."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_array_equal

from sklearn_dpgen.tables import _table_counter
from sklearn_dpgen.tables._table_counter import CodeCounter, CountLayout

quick = settings(deadline=None, max_examples=120, derandomize=True)


def records(sizes, n, seed=0):
    rng = np.random.default_rng(seed)
    return [rng.integers(s, size=n).astype(np.min_scalar_type(s - 1)) for s in sizes]


def oracle(codes, tables, groups, weights=None):
    """Return the tables in their groups, counted one by one."""
    found = []
    for columns, parts in zip(tables, groups, strict=True):
        table = np.zeros([int(max(part)) + 1 for part in parts], dtype=np.int64)
        cells = tuple(np.asarray(p)[codes[j]] for j, p in zip(columns, parts, strict=True))
        np.add.at(table, cells, 1 if weights is None else weights)
        found.append(table)
    return found


def counted(layout, codes, weights=None):
    return CodeCounter(layout).count_codes(codes, weights).tables()


def assert_same(found, expected):
    assert len(found) == len(expected)
    for one, two in zip(found, expected, strict=True):
        assert one.dtype == np.int64
        assert_array_equal(one, two)


@st.composite
def cases(draw):
    sizes = draw(st.lists(st.integers(1, 7), min_size=1, max_size=4))
    places = range(len(sizes))
    subsets = [t for k in (1, 2, 3) for t in itertools.permutations(places, k)]
    tables = draw(st.lists(st.sampled_from(subsets), max_size=6))
    groups = [
        tuple(
            np.array(draw(st.lists(st.integers(0, 4), min_size=sizes[j], max_size=sizes[j])))
            for j in columns
        )
        for columns in tables
    ]
    return sizes, tables, groups, draw(st.booleans()), draw(st.integers(0, 99))


@pytest.mark.slow
@quick
@given(cases(), st.sampled_from([0, 1, 8, 1 << 14]))
def test_tables_are_those_of_all_records(case, fine):
    """In groups in any order, some of them empty, and of any columns in any order."""
    sizes, tables, groups, is_weighted, seed = case
    codes = records(sizes, 40, seed)
    weights = np.random.default_rng(seed).integers(1 << 20, size=40) if is_weighted else None
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_table_counter, "_FINE", fine)
        layout = CountLayout(sizes, tables, groups)
    assert_same(counted(layout, codes, weights), oracle(codes, tables, groups, weights))


@pytest.mark.slow
@quick
@given(st.lists(st.integers(1, 300), min_size=1, max_size=3), st.integers(0, 99))
def test_categories_by_themselves(sizes, seed):
    tables = [t for k in (1, 2) for t in itertools.permutations(range(len(sizes)), k)]
    codes, whole = records(sizes, 30, seed), [[np.arange(sizes[j]) for j in t] for t in tables]
    layout = CountLayout(sizes, tables, None)
    assert_same(counted(layout, codes), oracle(codes, tables, whole))


def test_what_is_counted_is_as_coarse_as_all_groups_let_it_be():
    halves, thirds = np.arange(12) // 6, np.arange(12) // 4
    layout = CountLayout([12, 2], [(0,), (0, 1)], [(halves,), (thirds, np.arange(2))])
    # Of 12 categories, 4 cells: before 4, 6, 8, and the rest.
    assert layout.counted == ([4, 2], [(0,), (0, 1)])
    same = CountLayout([12, 2], [(0, 1), (1, 0)], [(thirds, np.arange(2)), (np.arange(2), thirds)])
    assert same.counted == ([3, 2], [(0, 1)])


def test_a_table_of_too_many_cells_is_counted_in_its_own_groups():
    fine, coarse = np.arange(1000), np.arange(1000) // 100
    tables = [(0,), (1,), (0, 1)]
    groups = [(fine,), (fine,), (coarse, coarse)]
    layout = CountLayout([1000, 1000], tables, groups)
    sizes, counted_tables = layout.counted
    assert [math.prod(sizes[j] for j in t) for t in counted_tables] == [1000, 1000, 100]
    codes = records([1000, 1000], 500)
    assert_same(counted(layout, codes), oracle(codes, tables, groups))


def test_the_cells_are_in_the_smallest_dtype():
    groups = [(np.arange(70_000) // 300,), (np.arange(300),)]
    layout = CountLayout([70_000, 300], [(0,), (1,)], groups)
    codes = records([70_000, 300], 10)
    assert [part.dtype for part in layout.mapped(codes)] == [np.uint8, np.uint16]


@pytest.mark.parametrize(
    "groups",
    [
        np.zeros(3, int),
        np.zeros(5, int),
        np.zeros((2, 2), int),
        np.zeros(4),
        np.array([0, 1, -1, 2]),
    ]
    + [np.zeros(0, int)],
    ids=str,
)
def test_groups_that_do_not_cover_the_categories(groups):
    with pytest.raises(ValueError, match="groups must give each category of a column a group"):
        CountLayout([4], [(0,)], [(groups,)])


def test_codes_that_are_no_categories_are_not_counted():
    for groups in (None, [(np.array([0, 0, 1]),)]):
        counter = CodeCounter(CountLayout([3], [(0,)], groups))
        with pytest.raises((ValueError, IndexError)):
            counter.count_codes([np.array([0, 1, 3], dtype=np.uint8)])
        assert counter.tables()[0].sum() == counter.n_rows == 0


def test_layouts_that_count_the_same():
    halves = np.arange(6) // 3
    first = CountLayout([6, 2], [(0, 1)], [(halves, np.arange(2))])
    again = CountLayout([6, 2], [(0, 1)], [(halves.astype(np.uint8), np.arange(2))])
    assert first.is_like(again)
    for other in (
        CountLayout([6, 2], [(0,)], [(halves,)]),
        CountLayout([6, 2], [(0, 1)], [(np.arange(6) // 4, np.arange(2))]),
        CountLayout([6, 2], [(0, 1)], None),
        CountLayout([6, 2], [(0, 1)] * 2, [(halves, np.arange(2))] * 2),
        CountLayout([6, 6], [(1, 0)], [(halves, np.arange(6) % 2)]),
    ):
        assert not first.is_like(other)
        assert not other.is_like(first)


def test_state_is_a_vector_that_adds_up():
    layout = CountLayout([3, 4], [(0, 1), (1,)], None)
    codes, owners = records([3, 4], 50), np.arange(50) % 7
    whole, parts = CodeCounter(layout, 7), [CodeCounter(layout, 7) for _ in range(3)]
    whole.count_codes(codes)
    whole.rows_seen += np.bincount(owners)
    for i, part in enumerate(parts):
        part.count_codes([column[i::3] for column in codes])
        part.rows_seen += np.bincount(owners[i::3], minlength=7)
    total = sum(part.state() for part in parts)
    assert total.dtype == np.int64
    assert_array_equal(total, whole.state())
    fresh = whole.fresh()
    assert not fresh.state().any()
    fresh.add_state(total)
    assert (fresh.n_rows, fresh.rows_seen.tolist()) == (50, np.bincount(owners).tolist())
    assert_same(fresh.tables(), whole.tables())
    assert whole.n_rows == 50
