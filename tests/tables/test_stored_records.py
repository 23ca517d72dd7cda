"""Records that are counted again and again: from codes and from where they are, the same."""

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_array_equal
from record_tables import (
    ENCODER,
    FRAME,
    MAPS,
    ONCE,
    PERSONS,
    SLICES,
    SOURCES,
    UNITS,
    Stream,
    as_they_come,
    assert_same,
    counts,
    frame_of,
    small_blocks,
    stored,
    units,
)
from sampler_tables import SCHEMA, hasten, make

from sklearn_dpgen.preprocessing import TabularEncoder
from sklearn_dpgen.schema import Categorical, Schema
from sklearn_dpgen.tables import _joint_counts, _records, _table_counter
from sklearn_dpgen.tables._marginals import marginal_counts
from sklearn_dpgen.tables._records import StoredRecords, StreamedRecords, encode_codes, open_records
from sklearn_dpgen.tables._table_counter import CodeCounter

hasten = pytest.fixture(autouse=True)(hasten)
pytestmark = pytest.mark.filterwarnings("ignore::sklearn_dpgen.exceptions.NoisyCountsWarning")
small_blocks = pytest.fixture(autouse=True)(small_blocks)


def test_counts_are_those_of_slices():
    records = stored()
    codes = encode_codes(FRAME, ENCODER).columns
    blocks = [part[c] for part, c in zip(MAPS, codes, strict=True)]
    expected = marginal_counts(blocks, SLICES)
    assert_same(counts(records)[2:], [expected, expected[:2]])


@units
@pytest.mark.parametrize("is_many", [False, True])
def test_joint_tables_are_planned_for_many_records_and_counts_are_the_same(
    monkeypatch, unit, most, is_many
):
    planned, cover = [], _joint_counts.cover_tables
    expected = counts(stored(unit, most))
    for module in (_joint_counts, _table_counter):
        monkeypatch.setattr(module, "MANY_ROWS", len(frame_of(unit)) + (not is_many))
    monkeypatch.setattr(
        _joint_counts, "cover_tables", lambda *args: planned.append(0) or cover(*args)
    )
    assert_same(counts(stored(unit, most)), expected)
    assert bool(planned) == is_many


def test_weights_are_those_of_persons():
    for most in (None, 2):
        records = stored("who", most)
        sizes = PERSONS.groupby("who")["who"].transform("size").to_numpy()
        each = np.floor(np.minimum((most or 1) * 2**23 / sizes, 2**23)) / 2**23
        job = FRAME["job"].map(SCHEMA["job"].labels.index)
        assert_array_equal(records.counts([(2,)])[0], np.bincount(job, each, minlength=3))
        assert records.n_records == PERSONS["who"].nunique()


@pytest.mark.slow
@units
@pytest.mark.parametrize(
    "n_jobs",
    [
        None,
        2,
        pytest.param(1, marks=pytest.mark.slow),
        pytest.param(-1, marks=pytest.mark.slow),
    ],
)
@pytest.mark.parametrize("name", SOURCES)
def test_streams_give_the_counts_of_codes(tmp_path, name, n_jobs, unit, most):
    X = SOURCES[name](frame_of(unit), tmp_path)
    expected = counts(stored(unit, most))
    streamed = StreamedRecords(X, ENCODER, unit, most, n_jobs=n_jobs)
    assert_same(counts(streamed), expected)
    assert streamed.n_records == stored(unit, most).n_records
    held = open_records(X, ENCODER, unit=unit, most=most, n_jobs=n_jobs)
    assert isinstance(held, StoredRecords)
    assert_same(counts(held), expected)


def test_states_of_threads_are_added_once(monkeypatch):
    expected, add = counts(stored()), CodeCounter.add_state

    def differs():
        found = counts(stored(n_jobs=2))
        return not all(map(np.array_equal, found[1], expected[1]))

    assert not differs()
    monkeypatch.setattr(CodeCounter, "add_state", lambda self, s: add(add(self, s), s))
    assert differs()


def test_records_are_held_in_as_few_bytes_as_their_blocks_take():
    records = stored("who")
    assert [part.itemsize for part in records._codes] == [1, 1, 1, 1, 2]
    records.use_blocks(MAPS)
    assert [part.itemsize for part in records._codes] == [1] * 5
    assert records._weights.dtype == np.int32
    wide = TabularEncoder(Schema({"x": Categorical(range(70_000)), "y": SCHEMA["job"]})).fit()
    frame = pd.DataFrame({"x": [0, 69_999], "y": ["nurse", "pilot"]})
    records = StoredRecords(encode_codes(frame, wide))
    for size, dtype in ((256, np.uint8), (257, np.uint16), (70_000, np.uint32)):
        records.use_blocks([np.minimum(np.arange(70_000), size - 1), np.arange(3)])
        assert records._codes[0].dtype == dtype
        assert records.counts([(0,)])[0][[0, -1]].tolist() == [1, 1]
        records = StoredRecords(encode_codes(frame, wide))


def test_a_stream_holds_no_record(monkeypatch):
    monkeypatch.setattr(_records, "encode_codes", None)
    streamed = open_records(FRAME, ENCODER, store="none")
    counts(streamed)
    held = [part for part in vars(streamed).values() if isinstance(part, np.ndarray | list)]
    assert all(len(part) != 500 for part in held if part is not MAPS)


# Chunks that differ.


@pytest.mark.slow
@units
@pytest.mark.parametrize("n_jobs", [1, 2])
def test_chunks_of_other_types(unit, most, n_jobs):
    frame, expected = frame_of(unit), counts(stored(unit, most))
    X = Stream(lambda i: as_they_come(frame))
    assert_same(counts(StreamedRecords(X, ENCODER, unit, most, n_jobs=n_jobs)), expected)
    held = open_records(X, ENCODER, store="codes", unit=unit, most=most)
    assert_same(counts(held), expected)


# Whole fits.


def parts_of(sampler):
    return [
        (part.columns, [g.tolist() for g in part.groups], part.counts.tolist())
        for part in (*sampler.one_way_marginals_, *sampler.marginals_)
    ]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("unit", "most", "n_bins"),
    [(None, None, "auto"), (None, None, 4), *((*u, 4) for u in UNITS[1:])],
)
def test_fits_are_the_same_wherever_records_are(tmp_path, unit, most, n_bins):
    weights = "equal" if most is None else "rows"
    options = {"unit": unit, "unit_weights": weights, "max_rows": most, "n_bins": n_bins}
    options |= {"marginals": "auto" if n_bins == "auto" else "pairs"}
    frame = frame_of(unit)
    expected = make(**options).fit(frame)
    makers = SOURCES | {"other types": lambda frame, _: Stream(lambda i: as_they_come(frame))}
    for number, (name, source) in enumerate(makers.items()):
        for store in ("codes", "none"):
            n_jobs = [None, 2, -1][number % 3]
            fit = make(store=store, n_jobs=n_jobs, **options).fit(source(frame, tmp_path))
            assert parts_of(fit) == parts_of(expected), (name, store)
            assert fit.privacy_ == expected.privacy_
    for name, source in ONCE.items():
        fit = make(store="codes", n_jobs=2, **options).fit(source(frame, tmp_path))
        assert parts_of(fit) == parts_of(expected), name


@pytest.mark.slow
@units
def test_a_frame_of_dask_is_counted_where_it_is(monkeypatch, unit, most):
    dask = pytest.importorskip("dask.dataframe")
    frame, weights = frame_of(unit), "equal" if most is None else "rows"
    options = {"unit": unit, "unit_weights": weights, "max_rows": most, "marginals": "pairs"}
    expected = make(**options).fit(frame)
    X = dask.from_pandas(frame, npartitions=3)
    assert parts_of(make(store="codes", **options).fit(X)) == parts_of(expected)
    # Else no code of it comes back.
    monkeypatch.setattr(_records, "encode_codes", None)
    for store in ("auto", "none"):
        fit = make(store=store, **options).fit(X)
        assert parts_of(fit) == parts_of(expected)
        assert fit.privacy_ == expected.privacy_


@pytest.mark.parametrize("options", [{"store": "all"}, {"n_jobs": 1.5}, {"n_jobs": 0}], ids=str)
def test_parameters_that_are_none(options):
    with pytest.raises(ValueError, match=next(iter(options))):
        make(**options).fit(FRAME)


def test_progress_is_shown_by_rows(capsys):
    make(store="none", verbose=1).fit(FRAME)
    assert "rows read and counted" in capsys.readouterr().err
    make(store="none", verbose=0).fit(FRAME)
    assert "rows" not in capsys.readouterr().err


def test_what_would_take_much_memory_is_left_where_it_is(monkeypatch):
    frame = FRAME[:50]
    assert isinstance(open_records(frame, ENCODER), StoredRecords)
    monkeypatch.setattr(_records, "_MOST_BYTES", 50)
    assert isinstance(open_records(frame, ENCODER), StreamedRecords)
    # Of chunks it is not known, and an array that is read once cannot be left.
    assert isinstance(open_records([frame[:25], frame[25:]], ENCODER), StoredRecords)
    assert isinstance(open_records(frame, ENCODER, store="codes"), StoredRecords)
