"""TableCounter: the same counts bit for bit, however and wherever a table is cut."""

import doctest
import itertools
import pickle
from concurrent.futures import ThreadPoolExecutor
from functools import reduce

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_array_equal
from sampler_tables import JOBS, NAMES, SCHEMA, bin_of, table
from sklearn.exceptions import NotFittedError

from sklearn_dpgen.preprocessing import TabularEncoder, _reader
from sklearn_dpgen.schema import Categorical, Schema
from sklearn_dpgen.tables import TableCounter, _table_counter
from sklearn_dpgen.tables._table_counter import WHOLE, PersonRows, RowWeights

quick = settings(deadline=None, max_examples=30, derandomize=True)
FRAME = table(300)
BINS = {"age": 4, "pay": 4, "day": 4}
ENCODER = TabularEncoder(SCHEMA, n_bins=BINS).fit()
TABLES = [*itertools.combinations(NAMES, 2), ("job",), ("level", "pay", "age")]
PERSONS = FRAME.assign(who=[f"secret-{i * i % 90}" for i in range(300)])


def counter(tables=TABLES, groups=None, **options):
    return TableCounter(ENCODER, tables, groups, **options)


def oracle(frame, tables=TABLES, weights=1):
    """Return the counts of each table, one after another."""
    found = []
    for columns in tables:
        sizes = [ENCODER.columns_[name].n_categories for name in columns]
        counts = np.zeros(sizes, dtype=np.int64)
        np.add.at(counts, tuple(bin_of(frame, name) for name in columns), weights)
        found.append(counts.ravel())
    return np.concatenate(found)


WHOLE_COUNTS = counter().count(FRAME).finish()


def test_counts_are_those_of_every_record():
    assert WHOLE_COUNTS.dtype == np.int64
    assert_array_equal(WHOLE_COUNTS, oracle(FRAME))
    for columns in TABLES:
        assert_array_equal(counter([columns]).count(FRAME).finish(), oracle(FRAME, [columns]))
    assert counter([]).count(FRAME).n_rows == 300


@pytest.mark.slow
@quick
@given(st.lists(st.integers(0, 300), max_size=5), st.randoms(use_true_random=False))
def test_parts_add_up_in_any_order(cuts, random):
    cuts = sorted([0, *cuts, 300])
    parts = [FRAME[a:b] for a, b in itertools.pairwise(cuts)]
    random.shuffle(parts)
    counters = [counter().count(part) for part in parts]
    assert_array_equal(reduce(TableCounter.merge, counters).finish(), WHOLE_COUNTS)
    # Associative: the last two first.
    counters = [pickle.loads(pickle.dumps(counter().count(part))) for part in parts]
    while len(counters) > 1:
        last = counters.pop()
        counters[-1] = counters[-1].merge(last)
    assert_array_equal(counters[0].finish(), WHOLE_COUNTS)
    assert counters[0].n_rows == 300
    one = counter()
    for part in parts:
        assert one.count(part) is one
    assert_array_equal(one.finish(), WHOLE_COUNTS)


def test_a_part_that_is_merged_twice_would_be_seen():
    parts = [counter().count(part) for part in (FRAME[:100], FRAME[100:])]
    twice = parts[0].merge(parts[1]).merge(parts[1])
    assert not np.array_equal(twice.finish(), WHOLE_COUNTS)
    assert twice.n_rows == 500


def test_merging_changes_self_alone():
    first, second = counter().count(FRAME[:100]), counter().count(FRAME[100:])
    before = second.finish()
    assert first.merge(second) is first
    assert_array_equal(second.finish(), before)
    # What is finished may go on.
    assert_array_equal(first.finish(), first.count(FRAME[:0]).finish())


def kinds(frame):
    pa, pl = pytest.importorskip("pyarrow"), pytest.importorskip("polars")
    arrow = pa.Table.from_pandas(frame, preserve_index=False)
    yield from (
        frame,
        frame[frame.columns[::-1]],
        [frame[:9], frame[9:]],
        arrow,
        pl.from_arrow(arrow),
    )
    yield from (arrow.to_reader(50), pl.from_arrow(arrow).lazy(), iter(arrow.to_batches(40)))
    dictionary = arrow.set_column(2, "job", arrow.column("job").dictionary_encode())
    yield from (dictionary, frame.astype({"job": "category", "age": "Int64", "level": "uint8"}))


def test_every_kind_of_table_gives_the_same():
    for X in kinds(FRAME):
        assert_array_equal(counter().count(X).finish(), WHOLE_COUNTS)
    rows = FRAME.to_numpy(dtype=object)
    assert_array_equal(counter().count(rows).finish(), WHOLE_COUNTS)


@pytest.mark.slow
def test_blocks_do_not_matter(monkeypatch):
    for size in (1, 7, 299):
        monkeypatch.setattr(_reader, "_BLOCK", size)
        assert_array_equal(counter().count(FRAME).finish(), WHOLE_COUNTS)


def test_threads_count_parts():
    with ThreadPoolExecutor(4) as executor:
        parts = executor.map(lambda i: counter().count(FRAME[i::10]), range(10))
        assert_array_equal(reduce(TableCounter.merge, parts).finish(), WHOLE_COUNTS)


def test_groups_of_categories():
    """Axes are groups; those of the same table may differ."""
    jobs, ages = np.array([1, 0, 1]), np.array([0, 0, 1, 1])
    tables = [("job", "age"), ("job", "age"), ("age",)]
    groups = [(jobs, ages), (np.arange(3), ages), (np.arange(4),)]
    found = counter(tables, groups).count(FRAME).finish()
    fine = oracle(FRAME, [("job", "age")]).reshape(3, 4)
    second = fine[:, :2].sum(axis=1), fine[:, 2:].sum(axis=1)
    second = np.column_stack(second)
    first = np.array([second[1], second[0] + second[2]])
    assert_array_equal(found, [*first.ravel(), *second.ravel(), *fine.sum(axis=0)])


# Persons.


def weights(most=None, rows=None):
    rows = PersonRows("who").count_block(PERSONS[["who"]]).rows() if rows is None else rows
    return RowWeights("who", rows, most)


@pytest.mark.parametrize("most", [None, 3])
def test_rows_weigh_what_their_person_lets_them(most):
    size = PERSONS.groupby("who")["who"].transform("size").to_numpy()
    each = np.minimum((most or 1) * WHOLE // size, WHOLE)
    one = counter(weights=weights(most)).count(PERSONS)
    assert_array_equal(one.finish(), oracle(FRAME, weights=each))
    assert one.rows_seen.sum() == one.n_rows == 300
    parts = [PERSONS[i::3] for i in range(3)]
    merged = reduce(
        TableCounter.merge, [counter(weights=weights(most)).count(part) for part in parts]
    )
    assert_array_equal(merged.finish(), one.finish())
    assert_array_equal(merged.rows_seen, one.rows_seen)
    for X in kinds(PERSONS):
        assert_array_equal(counter(weights=weights(most)).count(X).finish(), one.finish())


def test_persons_who_were_not_there_are_refused():
    one = counter(weights=weights())
    other = PERSONS.assign(who=["secret-new", *PERSONS["who"][1:]])
    for X in kinds(other):
        with pytest.raises(ValueError, match="column 'who' must not have new persons") as caught:
            one.count(X)
        assert "secret" not in str(caught.value)
    assert one.n_rows == 0


def test_rows_of_persons_are_counted_over_parts():
    whole = PERSONS["who"].value_counts()
    for who in (PERSONS[["who"]], PERSONS[["who"]].astype("category")):
        parts = [PersonRows("who").count_block(who[i::4]).rows() for i in range(4)]
        rows = reduce(PersonRows.add, parts, PersonRows("who")).rows()
        assert rows.index.is_unique
        assert rows.to_dict() == whole.to_dict()


def test_ids_of_categories_that_no_row_has():
    """Chunks of one file share its categories, of which a chunk has some."""
    who = PERSONS["who"].astype(pd.CategoricalDtype(["nobody", *PERSONS["who"].unique()]))
    for parts in ([who], [who[:100], who[100:]]):
        one = PersonRows("who")
        for part in parts:
            one.count_block(part.to_frame())
        rows = one.rows()
        assert {str(k): int(v) for k, v in rows.items()} == PERSONS["who"].value_counts().to_dict()
        frame = PERSONS.assign(who=who)
        found = counter(weights=RowWeights("who", rows)).count(frame).finish()
        assert_array_equal(found, counter(weights=weights()).count(PERSONS).finish())


def test_many_ids_are_added_up_as_they_come(monkeypatch):
    from sklearn_dpgen.tables import _table_counter

    monkeypatch.setattr(_table_counter, "_PENDING", 5)
    one = PersonRows("who")
    for i in range(300):
        one.count_block(PERSONS[["who"]][i : i + 1])
    assert one.rows().to_dict() == PERSONS["who"].value_counts().to_dict()


def test_ids_of_several_types_are_refused():
    one = PersonRows("who").count_block(pd.DataFrame({"who": [5, 6]}))
    with pytest.raises(ValueError, match="'who' of unit mixes texts"):
        one.count_block(pd.DataFrame({"who": ["5"]})).rows()


# What is refused.


@pytest.mark.parametrize(
    "tables",
    [
        ["job"],
        [("job", "job")],
        [()],
        [("job", "town")],
        [tuple("abcdefgh")],
        [["job"]],
    ],
    ids=str,
)
def test_tables_of_no_columns(tables):
    with pytest.raises(ValueError, match="tuples of one to seven distinct columns"):
        counter(tables)


def test_encoders_that_do_not_fit():
    with pytest.raises(NotFittedError):
        TableCounter(TabularEncoder(SCHEMA, n_bins=BINS), TABLES)
    with pytest.raises(ValueError, match="bins"):
        TableCounter(TabularEncoder(SCHEMA, n_bins={"age": 4}).fit(), TABLES)


def other_bins():
    edges = [0.0, 1.0, 2.0, 3.0, 10.0]
    return TableCounter(TabularEncoder(SCHEMA, n_bins=BINS | {"pay": edges}).fit(), TABLES)


def other_labels():
    schema = Schema(dict(SCHEMA) | {"job": Categorical(JOBS[::-1])})
    return TableCounter(TabularEncoder(schema, n_bins=BINS).fit(), TABLES)


OTHERS = {
    "other tables": lambda: counter(TABLES[:-1]),
    "another order": lambda: counter(TABLES[::-1]),
    "other groups": lambda: counter([("job",)], [(np.array([0, 0, 1]),)]),
    "other bins": other_bins,
    "other labels": other_labels,
    "persons": lambda: counter(weights=weights()),
    "no counter": lambda: WHOLE_COUNTS,
}


@pytest.mark.parametrize("name", OTHERS)
def test_counters_of_other_tables_are_not_merged(name):
    one, other = counter().count(FRAME), OTHERS[name]()
    with pytest.raises(ValueError, match="other must be another counter of the same tables"):
        one.merge(other)
    assert_array_equal(one.finish(), WHOLE_COUNTS)
    assert one.n_rows == 300
    if hasattr(other, "merge"):
        with pytest.raises(ValueError, match="other must be another counter of the same tables"):
            other.merge(one)


@pytest.mark.parametrize(
    "other",
    [lambda: weights(2), lambda: weights(rows=pd.Series([1, 2], index=["a", "b"]))]
    + [lambda: weights(rows=weights_in_another_order())],
)
def test_counters_of_other_persons_are_not_merged(other):
    one = counter(weights=weights()).count(PERSONS)
    with pytest.raises(ValueError, match="other must be another counter of the same tables"):
        one.merge(counter(weights=other()))
    assert one.n_rows == 300


def test_a_counter_is_not_merged_with_itself():
    one = counter().count(FRAME)
    with pytest.raises(ValueError, match="another counter"):
        one.merge(one)
    assert_array_equal(one.finish(), WHOLE_COUNTS)
    assert_array_equal(one.merge(counter().count(FRAME)).finish(), 2 * WHOLE_COUNTS)


def weights_in_another_order():
    return PersonRows("who").count_block(PERSONS[["who"]]).rows()[::-1]


def test_of_a_block_with_a_fault_nothing_is_counted(monkeypatch):
    monkeypatch.setattr(_reader, "_BLOCK", 100)
    frame = FRAME.astype({"job": object})
    frame.loc[250, "job"] = "secret"
    one = counter()
    with pytest.raises(ValueError, match="'job' holds a value outside") as caught:
        one.count(frame)
    assert "secret" not in str(caught.value)
    assert_array_equal(one.finish(), oracle(FRAME[:200]))
    persons = counter(weights=weights())
    with pytest.raises(ValueError, match="'job' holds a value outside"):
        persons.count(frame.assign(who=PERSONS["who"]))
    assert persons.rows_seen.sum() == persons.n_rows == 200


def test_a_counter_holds_no_record():
    one = counter().count(FRAME)
    other = counter()
    other.n_rows = 300
    assert len(pickle.dumps(one)) == len(pickle.dumps(other))


def test_the_example():
    found = doctest.DocTestFinder().find(TableCounter, globs={})
    runner = doctest.DocTestRunner()
    assert sum(runner.run(part).attempted for part in found) >= 8
    assert runner.failures == 0
    assert _table_counter.__all__ == [
        "WHOLE",
        "CodeCounter",
        "CountLayout",
        "LabelCounter",
        "PersonRows",
        "RowWeights",
        "TableCounter",
        "weights_of",
    ]
