"""Files: read as they are declared, and what of them cannot be read is not shown."""

import shutil
from pathlib import Path

import pandas as pd
import pytest
from source_tables import (
    COLUMNS,
    FRAME,
    NAMES,
    WIDE,
    N,
    codes_of,
    duck,
    feather,
    folder,
    pa,
    parquet,
    polars,
    small_blocks,
    written,
)

from sklearn_dpgen.preprocessing import _files, _reader, _sources
from sklearn_dpgen.preprocessing._reader import (
    column_names,
    column_of,
    map_blocks,
    read_blocks,
    to_pandas,
)
from sklearn_dpgen.preprocessing._sources import open_source
from sklearn_dpgen.schema import Categorical, Datetime, Numeric, Ordinal
from sklearn_dpgen.schema._binned import bin_column

small_blocks = pytest.fixture(autouse=True)(small_blocks)


def test_a_file_of_texts_is_read_as_declared(tmp_path):
    """Whatever its first values look like."""
    path = tmp_path / "table.csv"
    columns = {
        "a": Categorical(["1", "2", "01", "NA"]),
        "b": Categorical(["x", "y"], nullable=True),
        "c": Ordinal([1, 2.5]),
        "d": Categorical([2**53 + 1, 2**53 + 2]),
        "e": bin_column("e", Datetime("2020-01-01", "2020-12-31", resolution="D"), 12),
        "f": Categorical([True, False]),
        "g": bin_column("g", Numeric(0, 1, nullable=True), 4),
    }
    lines = [
        ",".join(columns),
        "01,x,1,9007199254740993,2020-01-01,true,0.1",
        "1,,2.5,9007199254740994,2020-12-31T12:00,false,",
        "NA,null,1.0,9007199254740994,2020-07-01,1,NaN",
    ]
    path.write_text("\n".join(lines))
    expected = [[2, 0, 0, 0, 0, 0, 0], [0, 2, 1, 1, 11, 1, 4], [3, 2, 0, 1, 5, 0, 4]]
    assert codes_of(path, columns).tolist() == expected


def test_ids_in_a_file_of_texts_stay_texts(tmp_path):
    path = tmp_path / "table.csv"
    path.write_text("who,age\n007,3\n7,4\nx-1,5\n1e3,6\n")
    columns = {"age": COLUMNS["age"], "who": None}
    found = [_reader.column_of(block, "who") for block in map_blocks(lambda b: b, path, columns)]
    assert pd.concat(found).tolist() == ["007", "7", "x-1", "1e3"]


@pytest.mark.parametrize(
    ("X", "error", "message"),
    [
        ("nowhere/secret-7.csv", FileNotFoundError, "not there: 'nowhere/secret-7.csv'"),
        (["nowhere/*.parquet"], FileNotFoundError, "not there"),
        (["a.csv", "b.parquet"], ValueError, "of one format"),
        (Path("table.docx"), ValueError, "with an ending of .parquet"),
        ("secret-7, a text", ValueError, "must be the path of a table"),
        ("", ValueError, "must be the path of a table"),
        (["secret-7", "b"], ValueError, "must be the path of a table"),
        ("secret-7.csv.txt", ValueError, "must be the path of a table"),
    ],
    ids=str,
)
def test_what_is_no_file(X, error, message):
    for call in (lambda X: open_source(X, COLUMNS), lambda X: column_names(X, COLUMNS)):
        with pytest.raises(error, match=message) as caught:
            call(X)
        # A text that is no path may be a record.
        assert error is FileNotFoundError or "secret" not in str(caught.value)
        assert caught.value.__context__ is None


def shown(error):
    """Return all that an error and those behind it show."""
    texts = []
    while error is not None:
        texts += [str(error), repr(error.args)]
        error = error.__cause__ or error.__context__
    return " ".join(texts)


def broken_csv(folder):
    path, (name, bad) = folder / "table.csv", ("age", "secret-7")
    FRAME.assign(**{name: [*FRAME[name][:-1], bad]}).to_csv(path, index=False)
    return path


def ragged_csv(folder):
    path = folder / "table.csv"
    path.write_text(FRAME.to_csv(index=False) + "secret-7,1,2\n")
    return path


def broken_text(folder):
    path = folder / "table.csv"
    text = FRAME.assign(job="nurse").to_csv(index=False).encode()
    path.write_bytes(text[:-30].rsplit(b"\n", 1)[0] + b"\n5,1,\xffsecret-7,1,True,2020-01-01\n")
    return path


def cut(ending):
    def make(folder):
        path = written(folder, FRAME.assign(job="secret-7"), ending)[0]
        path.write_bytes(path.read_bytes()[: -path.stat().st_size // 3])
        return path

    make.__name__ = f"cut_{ending}"
    return make


def scrambled(ending):
    """A file of which the ends are as they were."""

    def make(folder):
        path = written(folder, FRAME.assign(job=[f"secret-{i}" for i in range(N)]), ending)[0]
        data = bytearray(path.read_bytes())
        data[40:1200] = bytes(255 - byte for byte in data[40:1200])
        path.write_bytes(data)
        return path

    make.__name__ = f"scrambled_{ending}"
    return make


def other_types(folder):
    """Files of which the second has texts where the first has numbers."""
    paths = written(folder, FRAME)
    parquet.write_table(pa.table({n: pa.array(["secret-7"] * 3) for n in NAMES}), paths[1])
    return paths


def bad_query(folder):
    duckdb = pytest.importorskip("duckdb")
    assert duckdb
    relation = duck(FRAME.assign(job="secret-7"))
    return relation.project("cast(job as int) as age, pay, job, level, smoker, day")


def bad_plan(folder):
    pl = pytest.importorskip("polars")
    frame = polars(FRAME.assign(job="secret-7")).lazy()
    return frame.with_columns(age=pl.col("job").cast(pl.Int64))


UNREADABLE = [broken_csv, ragged_csv, broken_text, other_types, bad_query, bad_plan]
UNREADABLE += [cut(e) for e in ("parquet", "feather", "csv.gz")]
UNREADABLE += [scrambled(e) for e in ("parquet", "feather", "csv.gz")]


@pytest.mark.parametrize("make", UNREADABLE, ids=lambda make: make.__name__)
def test_what_cannot_be_read_is_not_shown(make, tmp_path):
    X = make(tmp_path)
    with pytest.raises(ValueError, match=r"A CSV file|A file must|The table|Column") as caught:
        codes_of(X)
    assert "secret" not in shown(caught.value)
    assert caught.value.__context__ is None


@pytest.mark.parametrize("make", [other_types, bad_query, bad_plan], ids=lambda make: make.__name__)
def test_what_engines_say_would_be_seen(monkeypatch, make, tmp_path):
    for module in (_files, _sources):
        monkeypatch.setattr(module, "read_quietly", lambda function, *a, **k: function(*a, **k))
    with pytest.raises(Exception, match="table|Column|secret") as caught:
        codes_of(make(tmp_path))
    assert "secret" in shown(caught.value)


def test_the_place_of_a_bad_cell(tmp_path):
    with pytest.raises(ValueError, match=r"Column 'age' must hold numbers, got .*table\.csv"):
        codes_of(broken_csv(tmp_path))


def test_errors_of_a_stream_are_its_own():
    """What the code of the caller raises is theirs."""

    def stream():
        yield FRAME
        raise OSError("The disk is gone.")

    with pytest.raises(OSError, match="The disk is gone"):
        codes_of(stream())


# Files that are named more than once, or are not alike.


def n_rows(X, columns=COLUMNS):
    return sum(map(len, read_blocks(open_source(X, columns), list(columns))))


def test_a_file_is_read_once(tmp_path):
    # What engines write are folders with the ending of a file, which wildcards find as well.
    first, second = map(str, written(folder(tmp_path / "table.parquet")))
    link = tmp_path / "link.parquet"
    link.symlink_to(first)
    hard = tmp_path / "hard.parquet"
    hard.hardlink_to(first)
    for X in (
        [str(hard), first, second],
        f"{tmp_path}/**/*.parquet",
        [first, second, first],
        [str(tmp_path / "table.parquet"), second],
        [str(link), str(tmp_path / "table.parquet")],
        [first, second, f"{tmp_path}/./table.parquet/part-1.parquet"],
    ):
        assert n_rows(X) == N
    # Negative twin: files of the same records are two.
    copy = shutil.copy(first, tmp_path / "copy.parquet")
    assert n_rows([first, second, copy]) > N


@pytest.mark.parametrize("ending", ["parquet", "csv", "feather"])
def test_each_file_has_the_columns(tmp_path, ending):
    """Arrow would read nulls, which a column may have."""
    one, _ = written(folder(tmp_path / "a"), FRAME, ending)
    _, without = written(folder(tmp_path / "b"), FRAME.drop(columns="job"), ending)
    _, more = written(folder(tmp_path / "c"), WIDE, ending)
    with pytest.raises(ValueError, match=r"one lacks \['job'\]"):
        n_rows([one, without])
    assert n_rows([one, more]) == N
    assert n_rows([one, without], {"age": COLUMNS["age"]}) == N


@pytest.mark.parametrize("ending", ["parquet", "feather"])
def test_what_was_an_index_is_a_column(tmp_path, ending):
    """Pandas writes beside the columns which of them were an index."""
    table = pa.Table.from_pandas(FRAME.set_index("age"))
    path = tmp_path / f"table.{ending}"
    {"parquet": parquet.write_table, "feather": feather.write_feather}[ending](table, path)
    for X in (path, table):
        blocks = list(read_blocks(open_source(X, COLUMNS), NAMES))
        assert all(list(to_pandas(block).columns) == NAMES for block in blocks)
        ages = [age for block in blocks for age in column_of(block, "age")]
        assert ages == FRAME["age"].tolist()
