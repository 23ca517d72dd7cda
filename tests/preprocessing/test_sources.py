"""Tables of any kind: opened without a look at a record, and read as the same blocks."""

import os

import numpy as np
import pandas as pd
import pytest
from source_tables import (
    COLUMNS,
    EXPECTED,
    FRAME,
    HALVES,
    NAMES,
    TABLE,
    WIDE,
    N,
    Stream,
    codes_of,
    dataset,
    duck,
    folder,
    nw,
    pa,
    polars,
    rows,
    small_blocks,
    written,
)

from sklearn_dpgen.preprocessing._reader import column_names, has_no_names, read_blocks
from sklearn_dpgen.preprocessing._sources import open_named, open_source
from sklearn_dpgen.utils._frames import frame_kind

small_blocks = pytest.fixture(autouse=True)(small_blocks)


# Of each kind: (a function of a folder, order kept, names known, kind, once only, rows known).
KINDS = {
    "pandas": (lambda _: FRAME, True, NAMES, "pandas", False, N),
    "another order": (lambda _: FRAME[NAMES[::-1]], True, NAMES[::-1], "pandas", False, N),
    "list": (lambda _: HALVES, True, None, "pandas", False, None),
    "tuple of tables": (
        lambda _: tuple(TABLE.slice(*cut) for cut in ((0, 9), (9, 0), (9, 191))),
        True,
        None,
        "pyarrow",
        False,
        None,
    ),
    "generator": (lambda _: (part for part in HALVES), True, None, "pandas", True, None),
    "iterator": (lambda _: iter(HALVES), True, None, "pandas", True, None),
    "table": (lambda _: TABLE, True, NAMES, "pyarrow", False, N),
    "chunked table": (
        lambda _: pa.concat_tables([TABLE[:11], TABLE[11:150], TABLE[150:]]),
        True,
        NAMES,
        "pyarrow",
        False,
        N,
    ),
    "reader": (lambda _: TABLE.to_reader(60), True, NAMES, "pyarrow", True, None),
    "batch": (
        lambda _: TABLE.combine_chunks().to_batches()[0],
        True,
        NAMES,
        "pyarrow",
        False,
        N,
    ),
    "stream": (lambda _: Stream(), True, None, "pyarrow", False, None),
    "data set": (
        lambda d: dataset.dataset([str(p) for p in written(d)]),
        True,
        [*NAMES[::-1], "secret", "other"],
        "pyarrow",
        False,
        N,
    ),
    "polars": (lambda _: polars(), True, NAMES, "polars", False, N),
    "polars in chunks": (
        lambda _: [polars(part) for part in (FRAME[:70], FRAME[70:])],
        True,
        None,
        "polars",
        False,
        None,
    ),
    "lazy polars": (
        lambda _: polars(WIDE).lazy(),
        False,
        [*NAMES[::-1], "secret", "other"],
        "polars",
        False,
        None,
    ),
    "duckdb": (
        lambda _: duck(WIDE),
        True,
        [*NAMES[::-1], "secret", "other"],
        "pyarrow",
        False,
        None,
    ),
    "narwhals of pandas": (
        lambda _: nw.from_native(FRAME, eager_only=True),
        True,
        NAMES,
        "pandas",
        False,
        N,
    ),
    "narwhals of arrow": (
        lambda _: nw.from_native(TABLE, eager_only=True),
        True,
        NAMES,
        "pyarrow",
        False,
        N,
    ),
    "narwhals of polars": (
        lambda _: nw.from_native(polars(WIDE).lazy()),
        False,
        [*NAMES[::-1], "secret", "other"],
        "polars",
        False,
        None,
    ),
    "narwhals of duckdb": (
        lambda _: nw.from_native(duck(WIDE)),
        True,
        [*NAMES[::-1], "secret", "other"],
        "pyarrow",
        False,
        None,
    ),
}
FILES = {
    "paths": lambda d: written(d),
    "texts": lambda d: [str(path) for path in written(d)],
    "tuple of paths": lambda d: tuple(written(d, ending="pq")),
    "glob": lambda d: written(d) and str(d / "part-*.parquet"),
    "glob of paths": lambda d: written(d) and d / "*.parquet",
    "folders below": lambda d: written(folder(d / "a" / "b")) and str(d / "**" / "*.parquet"),
    "folder": lambda d: written(d) and d,
    "folders": lambda d: [
        written(folder(d / name), part) and d / name
        for name, part in (("one", WIDE[:150]), ("two", WIDE[150:]))
    ],
    "folder and file": lambda d: [
        written(folder(d / "one"), WIDE[:150]) and d / "one",
        *written(folder(d / "two"), WIDE[150:])[:1],
    ],
    "feather": lambda d: written(d, ending="feather"),
    "arrow": lambda d: written(d, ending="arrow"),
    "csv": lambda d: written(d, ending="csv"),
    "packed csv": lambda d: written(d, ending="csv.gz"),
    "capitals": lambda d: written(d, ending="CSV"),
}
# Those that do not tell how many records they hold.
UNCOUNTED = ("feather", "arrow", "csv", "packed csv", "capitals")
FILES = {
    name: (
        make,
        True,
        [*NAMES[::-1], "secret", "other"],
        "pandas",
        False,
        None if name in UNCOUNTED else N,
    )
    for name, make in FILES.items()
}


@pytest.mark.parametrize("name", [*KINDS, *FILES])
def test_every_kind_gives_the_same_records(name, tmp_path):
    make, keeps_order, names, kind, is_once, n_rows = (KINDS | FILES)[name]
    X = make(tmp_path)
    source = open_source(X, COLUMNS)
    assert (source.names, frame_kind(X), source.is_once) == (names, kind, is_once)
    assert (source.n_rows, source.has_names) == (n_rows, True)
    assert source.is_projected == (names is not None and "secret" in names)
    # Nothing was read of what can be read once.
    assert sorted(column_names(X, COLUMNS)) == sorted(NAMES)
    assert not has_no_names(X)
    for _ in range(1 if is_once else 2):
        codes = codes_of(X)
        assert rows(codes) == rows(EXPECTED)
        if keeps_order:
            np.testing.assert_array_equal(codes, EXPECTED)
    if is_once:
        assert len(codes_of(X)) == 0


def test_the_names_are_in_the_order_of_a_source():
    assert column_names(FRAME[NAMES[::-1]], COLUMNS) == NAMES[::-1]
    assert column_names(polars(WIDE).lazy(), COLUMNS) == NAMES[::-1]
    assert column_names(iter(HALVES), COLUMNS) == NAMES


@pytest.mark.parametrize("convert", [np.asarray, lambda rows: rows.tolist(), tuple])
def test_rows_have_places(convert):
    numbers = {"x": COLUMNS["age"], "y": COLUMNS["level"]}
    array = np.column_stack([FRAME["age"], FRAME["level"]])
    X = convert(array)
    source = open_source(X, numbers)
    assert (source.names, frame_kind(X), source.has_names) == (None, "pandas", False)
    assert (source.n_rows, source.is_once) == (N, False)
    assert has_no_names(X)
    assert open_named(X, numbers) is None
    np.testing.assert_array_equal(codes_of(X, numbers), EXPECTED[:, [0, 3]])
    with pytest.raises(ValueError, match="X has 2 features, but .* expecting 6"):
        open_source(X, COLUMNS)


def test_rows_of_objects():
    np.testing.assert_array_equal(codes_of(FRAME.to_numpy(dtype=object)), EXPECTED)


# Columns.

IN_MEMORY = {
    "pandas": lambda frame: frame,
    "list": lambda frame: [frame[NAMES][:9], frame[9:]] if set(frame) >= set(NAMES) else [frame],
    "table": lambda frame: pa.Table.from_pandas(frame, preserve_index=False),
    "reader": lambda frame: pa.Table.from_pandas(frame, preserve_index=False).to_reader(),
    "polars": polars,
}


@pytest.mark.parametrize("name", IN_MEMORY)
def test_columns_of_frames_are_the_declared_ones(name):
    make = IN_MEMORY[name]
    with pytest.raises(ValueError, match=r"each once: unknown \['secret', 'other'\]"):
        codes_of(make(WIDE))
    with pytest.raises(ValueError, match=r"each once: missing \['job'\]\.$"):
        codes_of(make(FRAME.drop(columns="job")))


@pytest.mark.parametrize(
    "make",
    [polars, lambda frame: polars(frame).lazy(), duck, lambda frame: nw.from_native(duck(frame))],
    ids=["eager", "lazy", "duckdb", "narwhals"],
)
def test_columns_of_queries_are_the_declared_ones(make):
    with pytest.raises(ValueError, match=r"missing \['job'\]"):
        codes_of(make(FRAME.drop(columns="job")))


@pytest.mark.parametrize("ending", ["parquet", "csv", "feather"])
def test_columns_of_files_are_the_declared_ones(tmp_path, ending):
    paths = written(tmp_path, WIDE.drop(columns="job"), ending)
    for call in (codes_of, lambda X: column_names(X, COLUMNS)):
        with pytest.raises(ValueError, match=r"missing \['job'\]"):
            call(paths)


def test_a_column_that_is_there_twice():
    twice = pd.concat([FRAME, FRAME[["age"]]], axis=1)
    table = pa.Table.from_arrays([*TABLE.columns, TABLE.column(0)], names=[*NAMES, "age"])
    for X in (twice, table, [table]):
        with pytest.raises(ValueError, match=r"more than once \['age'\]"):
            codes_of(X)
    table = pa.Table.from_arrays(
        [*TABLE.columns, TABLE.column(0), TABLE.column(0)], names=[*NAMES, "no", "no"]
    )
    with pytest.raises(ValueError, match=r"more than once \['no'\]"):
        codes_of(dataset.dataset(table))


# What is no table.


@pytest.mark.parametrize("X", [3, None, b"secret-7", {"age": [1]}], ids=str)
def test_what_is_no_table(X):
    with pytest.raises((TypeError, ValueError)) as caught:
        codes_of(X)
    assert "secret" not in str(caught.value)


def test_parts_of_data_sets_are_no_tables(tmp_path):
    dataset = pytest.importorskip("pyarrow.dataset")
    FRAME.to_parquet(tmp_path / "a.parquet")
    data = dataset.dataset(tmp_path / "a.parquet")
    for X in (data.scanner(), next(data.get_fragments())):
        with pytest.raises(TypeError, match=f"X must be a table.*got {type(X).__name__}"):
            codes_of(X)


@pytest.mark.parametrize("chunk", [[[1, 2]], "secret-7.csv", np.zeros((2, 6)), 3], ids=str)
def test_chunks_are_frames(chunk):
    with pytest.raises(TypeError, match="Chunks of X must be data frames, got") as caught:
        codes_of(iter([FRAME, chunk]))
    assert "secret" not in str(caught.value)


def test_chunks_that_can_be_read_once_make_a_list_that_can():
    for chunks in ([TABLE.to_reader()], [FRAME, TABLE.to_reader()], (TABLE.to_reader(), FRAME)):
        assert open_source(chunks, COLUMNS).is_once
    assert not open_source([FRAME, TABLE], COLUMNS).is_once


def test_chunks_may_be_of_any_kind(tmp_path):
    parts = [FRAME[:50], pa.Table.from_pandas(FRAME[50:90], preserve_index=False)]
    parts += [polars(FRAME[90:130]), duck(FRAME[130:])]
    np.testing.assert_array_equal(codes_of(parts), EXPECTED)
    np.testing.assert_array_equal(codes_of(iter(parts)), EXPECTED)
    assert os.listdir(tmp_path) == []


def test_parts_without_records_give_no_blocks():
    empty = FRAME[:0]
    for X in (empty, [empty, empty], TABLE[:0], TABLE[:0].to_reader(), polars(empty), duck(empty)):
        assert list(read_blocks(open_source(X, COLUMNS), NAMES)) == []
    for X in (empty, TABLE[:0], polars(empty)):
        with pytest.raises(ValueError, match="0 sample"):
            column_names(X, COLUMNS)


@pytest.mark.parametrize("n", [1, 36, 37, 38, 73, 74, 75])
def test_blocks_that_end_where_a_table_does(n):
    """They hold 37 records: none is lost or read twice at an edge."""
    for X in (FRAME[:n], TABLE[:n], [TABLE[:n]], FRAME[NAMES][:n].to_numpy(dtype=object)):
        assert sum(map(len, read_blocks(open_source(X, COLUMNS), NAMES))) == n
