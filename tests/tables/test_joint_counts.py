"""Joint counts: those of every record, bit for bit, however records are split and weighed."""

import copy
import itertools
import math
import pickle
import sys

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_array_equal

from sklearn_dpgen.tables import _joint_counts
from sklearn_dpgen.tables._joint_counts import JointCoder, JointCounts, cover_tables

MIXED = (2, 2, 2, 1, 3, 5, 9, 12, 16, 42, 96)
PAIRS = tuple(itertools.combinations(range(len(MIXED)), 2))


def records(sizes, n, seed=0):
    """Return codes in the smallest dtypes; the last category of each column is among them."""
    rng = np.random.default_rng(seed)
    codes = [rng.integers(s, size=n).astype(np.min_scalar_type(s - 1)) for s in sizes]
    for column, size in zip(codes, sizes, strict=True):
        column[:1] = size - 1
    return codes


def oracle(codes, sizes, tables, weights=None):
    """Return the tables, a record at a time where there are weights, in Python's integers."""
    found = []
    for table in tables:
        counts = np.zeros([sizes[j] for j in table], dtype=object)
        for i in range(len(codes[table[0]])):
            counts[tuple(codes[j][i] for j in table)] += 1 if weights is None else int(weights[i])
        found.append(counts.astype(np.int64))
    return found


def fast_oracle(codes, sizes, tables):
    shapes = [tuple(sizes[j] for j in table) for table in tables]
    cells = [
        np.ravel_multi_index([codes[j].astype(np.int64) for j in table], shape)
        for table, shape in zip(tables, shapes, strict=True)
    ]
    return [
        np.bincount(c, minlength=math.prod(shape)).reshape(shape)
        for c, shape in zip(cells, shapes, strict=True)
    ]


def assert_same(found, expected):
    assert len(found) == len(expected)
    for table, other in zip(found, expected, strict=True):
        assert table.dtype == np.int64
        assert_array_equal(table, other)


@st.composite
def cases(draw):
    sizes = tuple(draw(st.lists(st.sampled_from([1, 2, 3, 7, 40, 257]), min_size=1, max_size=6)))
    subsets = [t for k in (1, 2, 3) for t in itertools.combinations(range(len(sizes)), k)]
    subsets = [t for t in subsets if math.prod(sizes[j] for j in t) <= 1 << 17]
    tables = draw(st.lists(st.sampled_from(subsets), max_size=8))
    n = draw(st.integers(0, 60))
    cuts = sorted(draw(st.lists(st.integers(0, n), max_size=3)))
    weights = None
    if draw(st.booleans()):
        values = st.integers(0, (1 << 27) - 1)
        weights = np.array(draw(st.lists(values, min_size=n, max_size=n)), dtype=np.int64)
    return sizes, tables, records(sizes, n, draw(st.integers(0, 99))), weights, [0, *cuts, n]


@pytest.mark.slow
@settings(max_examples=150, deadline=None)
@given(cases(), st.sampled_from([1, 7, 1 << 15]))
def test_counts_are_those_of_every_record_however_split(case, n_rows):
    sizes, tables, codes, weights, cuts = case
    whole = JointCounts(sizes, tables).add(codes, weights)
    assert_same(whole.finish(), oracle(codes, sizes, tables, weights))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_joint_counts, "_ROWS", n_rows)
        parts, other = JointCounts(sizes, tables), JointCounts(sizes, tables)
        for i, (a, b) in enumerate(itertools.pairwise(cuts)):
            part = [column[a:b] for column in codes]
            (other if i % 2 else parts).add(part, None if weights is None else weights[a:b])
    assert_array_equal(parts.vector + other.vector, whole.vector)


@pytest.mark.parametrize("n", [1, 100, 32767, 32768, 32769, 100_000])
def test_all_pairs_of_many_records(n):
    codes = records(MIXED, n)
    counts = JointCounts(MIXED, PAIRS).add(codes)
    assert_same(counts.finish(), fast_oracle(codes, MIXED, PAIRS))
    assert len(counts.blocks) < len(PAIRS) / 2


@pytest.mark.parametrize("size", [2, 8, 16, 32, 64, 181, 182, 256])
def test_pairs_on_both_sides_of_every_way_of_counting(size):
    sizes, pairs = (size,) * 6, tuple(itertools.combinations(range(6), 2))
    codes = records(sizes, 40_000)
    assert_same(JointCounts(sizes, pairs).add(codes).finish(), fast_oracle(codes, sizes, pairs))


def test_triples_and_single_columns_share_the_joint_tables():
    tables = [t for k in (1, 2, 3) for t in itertools.combinations(range(9), k)]
    codes = records(MIXED, 3000)
    counts = JointCounts(MIXED, tables).add(codes)
    assert_same(counts.finish(), fast_oracle(codes, MIXED, tables))
    assert len(counts.blocks) < 25


@pytest.mark.parametrize("place", [0, 1])
@pytest.mark.parametrize("size", [32767, 32768, 32769, 65535, 65536, 65537, 131072])
def test_wide_columns(size, place):
    sizes, tables = [2, 3], [(0,), (1,), (0, 1), (1, 2), (0, 1, 2)]
    sizes.insert(place, size)
    codes = records(sizes, 5000)
    counts = JointCounts(sizes, tables).add(codes)
    assert_same(counts.finish(), fast_oracle(codes, sizes, tables))


def test_the_cells_of_16_bit_codes_are_all_reached():
    sizes = (256, 256, 2)
    codes = [np.repeat(np.arange(256), 256), np.tile(np.arange(256), 256)]
    codes = [column.astype(np.uint8) for column in codes] + [np.zeros(1 << 16, np.uint8)]
    (table,) = JointCounts(sizes, [(0, 1)]).add(codes).finish()
    assert (table == 1).all()


def test_columns_of_no_table_may_be_absent_and_tables_none():
    codes = records((3, 4, 5), 50)
    counts = JointCounts((3, 4, 5), [(0, 2)]).add([codes[0], None, codes[2]])
    assert_same(counts.finish(), fast_oracle(codes, (3, 4, 5), [(0, 2)]))
    assert JointCounts((3,), []).add([None]).finish() == []


def test_sums_of_heavy_weights_are_exact():
    """2**26 and 2**27 - 1 over so many records that floats of 53 bits would be rounded."""
    n, sizes, tables = 50_000, (2, 3), [(0,), (0, 1)]
    codes = records(sizes, n)
    weights = np.full(n, (1 << 27) - 1)
    weights[::2] = 1 << 26
    counts = JointCounts(sizes, tables).add(codes, weights)
    assert_same(counts.finish(), [
        np.array([int(weights[codes[0] == a].sum()) for a in range(2)]),
        np.array([
            [int(weights[(codes[0] == a) & (codes[1] == b)].sum()) for b in range(3)]
            for a in range(2)
        ]),
    ])  # fmt: skip
    # As after 2**34 more records, in Python's integers.
    before = counts.vector.copy()
    for _ in range(18):
        counts.vector += counts.vector.copy()
    assert counts.vector.tolist() == [int(v) << 18 for v in before.tolist()]
    assert max(counts.vector.tolist()) > 1 << 53
    # One record more: a float would not change.
    largest = counts.finish()[0].max()
    assert np.float64(largest) + 1 == np.float64(largest)
    counts.add([column[:1] for column in codes], np.array([1]))
    assert int(counts.vector.sum()) == (sum(before.tolist()) << 18) + len(counts.blocks)


def test_weights_of_one_count():
    codes = records(MIXED, 40_000)
    plain, weighed = JointCounts(MIXED, PAIRS).add(codes), JointCounts(MIXED, PAIRS)
    assert_array_equal(weighed.add(codes, np.ones(40_000, np.int64)).vector, plain.vector)


@pytest.mark.slow
@given(st.permutations(range(5)), st.integers(1, 4))
def test_vectors_add_in_any_order(order, cut):
    parts = [JointCounts(MIXED[:5], PAIRS[:3]).add(records(MIXED, 30, seed)) for seed in range(5)]
    vectors = [part.vector for part in parts]
    left = sum(vectors[i] for i in order[:cut]) + sum(vectors[i] for i in order[cut:])
    assert_array_equal(left, sum(vectors))


def test_pickled_counters_go_on():
    codes = records(MIXED, 40_000)
    counts = JointCounts(MIXED, PAIRS).add(codes)
    sent = pickle.dumps(counts)
    # Neither records nor their codes travel.
    assert len(sent) < 8 * len(counts.vector) + 20_000
    other = pickle.loads(sent).add(codes)
    assert_array_equal(other.vector, 2 * counts.vector)


def test_the_records_are_not_touched_and_may_be_read_only_or_strided():
    codes = records(MIXED, 2000)
    kept = copy.deepcopy(codes)
    for column in codes:
        column.flags.writeable = False
    weights = np.arange(2000)
    weights.flags.writeable = False
    JointCounts(MIXED, PAIRS).add(codes).add(codes, weights)
    assert_same(codes[:0], kept[:0])
    for column, other in zip(codes, kept, strict=True):
        assert_array_equal(column, other)
    halves = [column[::2] for column in codes]
    assert_same(JointCounts(MIXED, PAIRS).add(halves).finish(), fast_oracle(halves, MIXED, PAIRS))


def test_tables_are_no_views_of_the_counter():
    counts = JointCounts((3, 4), [(0, 1)]).add(records((3, 4), 10))
    counts.finish()[0][:] = -1
    assert counts.finish()[0].sum() == 10


def code_out_of_range(column, size):
    codes = records(MIXED, 70_000)
    codes[column] = codes[column].astype(np.uint16)
    codes[column][-1] = size
    return codes


@pytest.mark.parametrize("column", range(len(MIXED)))
def test_codes_that_are_no_category_are_refused_and_nothing_counted(column):
    counts = JointCounts(MIXED, PAIRS)
    codes = code_out_of_range(column, MIXED[column])
    with pytest.raises(ValueError, match=rf"column {column} must be below {MIXED[column]}\."):
        counts.add(codes)
    assert not counts.vector.any()


def test_unchecked_codes_would_count_in_cells_of_others(monkeypatch):
    """The negative twin: one record would count where its columns do not say."""
    monkeypatch.setattr(
        _joint_counts, "_check_codes", lambda codes, sizes, used: [codes[j] for j in used]
    )
    codes = [np.array([0], np.uint8), np.array([4], np.uint8)]
    (table,) = JointCounts((2, 4), [(0, 1)]).add(codes).finish()
    assert table[1, 0] == 1


@pytest.mark.parametrize(
    "change",
    [
        lambda column: column.astype(np.int64),
        lambda column: column.astype(np.float32),
        lambda column: column[:-1],
        lambda column: column[:, None],
        lambda column: column.tolist(),
        lambda column: None,
    ],
)
def test_codes_of_other_kinds_are_refused(change):
    counts, codes = JointCounts((3, 4), [(0, 1)]), records((3, 4), 10)
    codes[1] = change(codes[1])
    with pytest.raises(ValueError, match="codes of column 1 must be"):
        counts.add(codes)
    assert not counts.vector.any()


@pytest.mark.parametrize(
    "weights",
    [
        [1] * 10,
        np.ones(10),
        np.ones(9, int),
        np.full(10, -1),
        np.full(10, 1 << 27),
        np.ones((10, 1), int),
    ],
)
def test_weights_of_other_kinds_are_refused(weights):
    counts = JointCounts((3, 4), [(0, 1)])
    with pytest.raises(ValueError, match="weights must be"):
        counts.add(records((3, 4), 10), weights)
    assert not counts.vector.any()


@pytest.mark.parametrize(
    ("sizes", "table"),
    [
        ((2, 0), (0,)),
        ((2, 2), (1, 0)),
        ((2, 2), (0, 0)),
        ((2, 2), (2,)),
        ((2, 2), (-1,)),
        ((2,), ()),
    ],
)
def test_other_tables_are_refused(sizes, table):
    with pytest.raises(ValueError, match="must"):
        JointCounts(sizes, [table])


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_covers_hold_all_tables_in_bounded_cells(data):
    sizes = tuple(data.draw(st.lists(st.integers(1, 300), min_size=3, max_size=12)))
    subsets = [t for k in (1, 2, 3) for t in itertools.combinations(range(len(sizes)), k)]
    tables = tuple(data.draw(st.lists(st.sampled_from(subsets), min_size=1, max_size=60)))
    holders = cover_tables(sizes, tables)
    assert {*holders} == {*tables}
    assert all({*table} <= {*block} for table, block in holders.items())
    cells = {block: math.prod(sizes[j] for j in block) for block in holders.values()}
    own = {table: math.prod(sizes[j] for j in table) for table in holders}
    largest = {block: max(own[t] for t in tables if holders[t] == block) for block in cells}
    assert all(n <= max(1 << 13, largest[block]) for block, n in cells.items())
    asked = sum(own.values())
    assert sum(cells.values()) <= asked + (1 << 22)
    assert len(cells) <= len({*tables})


def test_joint_tables_keep_to_the_cells_that_are_left(monkeypatch):
    """With room for two joint tables of 8**4 cells, the others hold the pairs themselves."""
    pairs = tuple(itertools.combinations(range(40), 2))
    cover_tables.cache_clear()
    monkeypatch.setattr(_joint_counts, "_EXTRA_CELLS", 2 * 8**4)
    sizes = [8 ** len(block) for block in {*cover_tables((8,) * 40, pairs).values()}]
    cover_tables.cache_clear()
    assert 2 <= sizes.count(8**4) <= 3
    assert sum(sizes) <= len(pairs) * 8**2 + 2 * 8**4


def test_covers_of_fifteen_columns():
    """Designs: 35 triples hold the 105 pairs of 15 points once each."""
    pairs = tuple(itertools.combinations(range(15), 2))
    assert len({*cover_tables((16,) * 15, pairs).values()}) == 35
    assert len({*cover_tables((2,) * 15, pairs).values()}) == 3
    assert len({*cover_tables((8,) * 15, pairs).values()}) <= 21
    assert cover_tables((96,) * 15, pairs) == {pair: pair for pair in pairs}


def test_covers_depend_on_the_arguments_alone():
    pairs = tuple(itertools.combinations(range(len(MIXED)), 2))
    first = cover_tables(MIXED, pairs)
    cover_tables.cache_clear()
    assert cover_tables(MIXED, pairs) == first


@pytest.mark.parametrize("is_weighted", [False, True])
@pytest.mark.parametrize(
    ("n_rows", "is_planned"), [(None, True), (1 << 16, True), ((1 << 16) - 1, False), (0, False)]
)
def test_joint_tables_are_planned_for_many_records_and_counts_are_the_same(
    monkeypatch, n_rows, is_planned, is_weighted
):
    planned, tables = [], [t for k in (1, 2, 3) for t in itertools.combinations(range(9), k)]
    codes = records(MIXED, 1000)
    weights = np.arange(1000) << 16 if is_weighted else None

    def cover(sizes, tables):
        planned.append(tables)
        return cover_tables(sizes, tables)

    monkeypatch.setattr(_joint_counts, "cover_tables", cover)
    counts = JointCounts(MIXED, tables, n_rows).add(codes, weights)
    assert bool(planned) == is_planned
    assert (len(counts.blocks) < len(tables) / 4) == is_planned
    expected = oracle(codes, MIXED, tables, weights)
    assert_same(counts.finish(), expected)
    # The negative twin: a table that is not summed over the columns that it lacks.
    if is_planned:
        counts._holders = dict.fromkeys(tables, counts.blocks[-1])
        with pytest.raises((AssertionError, ValueError)):
            assert_same(counts.finish(), expected)


@settings(max_examples=100, deadline=None)
@given(st.data())
def test_joint_codes_are_those_of_the_columns(data):
    """Whatever is shared or written in place: each table finds its codes when its turn comes."""
    sizes = tuple(data.draw(st.lists(st.sampled_from([1, 2, 3, 50, 300]), min_size=2, max_size=6)))
    columns = st.lists(
        st.integers(0, len(sizes) - 1), min_size=1, max_size=len(sizes), unique=True
    ).map(lambda block: tuple(sorted(block)))
    blocks = data.draw(st.lists(columns, min_size=1, max_size=8))
    codes, coder = records(sizes, 20), JointCoder(sizes, blocks)
    joint = coder.codes([codes[j] for j in coder.columns])
    for block, found in zip(blocks, joint, strict=True):
        shape = [sizes[j] for j in block]
        expected = np.ravel_multi_index([codes[j].astype(np.int64) for j in block], shape)
        assert_array_equal(found.array, expected)


@pytest.mark.parametrize("n", [40, 40_000])
@pytest.mark.parametrize("is_weighed", [False, True])
def test_counts_without_pytorch_are_the_same(monkeypatch, n, is_weighed):
    codes = records(MIXED, n)
    weights = np.random.default_rng(0).integers(0, 9, size=n) if is_weighed else None
    tables = (*PAIRS, (0, 4, 5, 9), (9, 10))
    found = {}
    for name, module in (("numpy", None), ("torch", torch)):
        monkeypatch.setattr(_joint_counts, "_loaded_torch", lambda n_rows, module=module: module)
        # Joint tables, of both widths of codes.
        counter = JointCounts(MIXED, tables, n_rows=10**6).add(codes, weights)
        assert (counter._coder._buffers[0].tensor is None) == (module is None)
        found[name] = counter.finish()
    for table, counts, others in zip(tables, found["numpy"], found["torch"], strict=True):
        assert_array_equal(counts, others)
        shape = [MIXED[j] for j in table]
        expected = np.zeros(shape, dtype=np.int64)
        np.add.at(expected, tuple(codes[j] for j in table), 1 if weights is None else weights)
        assert_array_equal(counts, expected)


def test_pytorch_counts_if_it_is_loaded_or_worth_loading(monkeypatch):
    assert _joint_counts._loaded_torch(100) is torch
    monkeypatch.delitem(sys.modules, "torch")
    assert _joint_counts._loaded_torch(100) is None
    # In place of an import, which PyTorch allows once.
    monkeypatch.setitem(sys.modules, "torch", torch)
    for n_rows in (None, 10**8):
        assert _joint_counts._loaded_torch(n_rows) is torch
