"""Tables in TSV, JSON lines, Excel and SQL: read as CSV and Parquet are, and no secret is shown."""

import bz2
import datetime
import gzip
import json
import sqlite3
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace

import numpy as np
import pandas as pd
import pytest

from sklearn_dpgen.preprocessing import (
    CsvFile,
    PublicTable,
    TabularEncoder,
    _databases,
    _json_lines,
)
from sklearn_dpgen.preprocessing._databases import DatabaseTable, database_file
from sklearn_dpgen.preprocessing._files import open_files
from sklearn_dpgen.preprocessing._reader import map_frames, numbered_frames
from sklearn_dpgen.preprocessing._workbooks import Workbooks
from sklearn_dpgen.schema import Categorical, Datetime, Numeric, Schema
from sklearn_dpgen.utils._urls import is_url

pytest.importorskip("pyarrow.dataset")

SCHEMA = Schema(
    {
        "code": Categorical(["00501", "00502"], nullable=True),
        "age": Numeric(0, 100, integer=True),
        "when": Datetime("2010-01-01", "2022-12-31", resolution="D"),
    }
)
# What is in no message.
SECRET = "hunter2"


def made_up(n=300):
    rng = np.random.default_rng(0)
    days = pd.to_datetime("2012-03-04") + pd.to_timedelta(rng.integers(0, 900, n), "D")
    return pd.DataFrame(
        {
            "code": rng.choice(np.array(["00501", "00502", None], dtype=object), n),
            "age": rng.integers(0, 100, n),
            "when": days.strftime("%Y-%m-%d").astype(object),
            "note": "a",
        }
    )


def as_lines(table):
    values = table.astype(object)
    records = values.where(values.notna(), None).to_dict("records")
    return "".join(json.dumps(record) + "\n" for record in records).encode()


def write_sqlite(table, path, name="visits"):
    connection = sqlite3.connect(path)
    table.to_sql(name, connection, index=False)
    connection.close()


def write_duckdb(table, path):
    duckdb = pytest.importorskip("duckdb")
    with duckdb.connect(str(path)) as connection:
        connection.register("given", table)
        connection.execute(
            'CREATE TABLE visits AS SELECT * REPLACE (CAST("when" AS DATE) AS "when") FROM given'
        )


@pytest.fixture(
    params=["tsv", "tsv.gz", "jsonl", "ndjson", "jsonl.bz2", "sqlite", "duckdb", "xlsx"]
)
def stored(request, tmp_path):
    """A table in one of the formats, and its source."""
    table, path = made_up(), tmp_path / f"table.{request.param}"
    kind, _, packed = request.param.partition(".")
    pack = {"gz": gzip.compress, "bz2": bz2.compress}.get(packed, bytes)
    if kind == "tsv":
        path.write_bytes(pack(table.to_csv(sep="\t", index=False).encode()))
    elif kind in ("jsonl", "ndjson"):
        path.write_bytes(pack(as_lines(table)))
    elif kind == "xlsx":
        pytest.importorskip("openpyxl")
        table.to_excel(path, index=False)
    else:
        {"sqlite": write_sqlite, "duckdb": write_duckdb}[kind](table, path)
        return table, f"{kind}:///{path}::visits"
    return table, path


def test_each_format_is_encoded_as_a_frame(stored):
    table, source = stored
    expected = TabularEncoder(SCHEMA).fit_transform(table[[*SCHEMA]])
    np.testing.assert_array_equal(TabularEncoder(SCHEMA).fit_transform(source), expected)


def test_each_format_has_its_names_and_places(stored):
    table, source = stored
    assert open_files([source], None).names == [*table]
    places = [places for _, places, _ in numbered_frames([source], dict(SCHEMA))]
    first = 1 if "::" in str(source) or ".jsonl" in str(source) or "ndjson" in str(source) else 2
    assert np.concatenate(places).tolist() == [*range(first, first + len(table))]


def test_missing_columns_are_named(stored):
    columns = dict(SCHEMA) | {"Age ": Numeric(0, 1)}
    with pytest.raises(ValueError, match="Age "):
        list(map_frames(lambda frame: frame, stored[1], columns))


# JSON lines.


def lines(path, text, names=("a",)):
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    frames = list(map_frames(lambda frame: frame, path, dict.fromkeys(names)))
    return pd.concat(frames)["a"].tolist()


def test_values_of_json_keep_their_types(tmp_path):
    text = '\ufeff{"a": "00501"}\r\n\r\n{"a": 501, "b": 1}\n{"a": null}\n{"b": 2}\n{"a": true}'
    assert lines(tmp_path / "t.jsonl", text) == ["00501", 501, None, None, True]
    found = [*numbered_frames([tmp_path / "t.jsonl"], {"a": None})]
    assert np.concatenate([places for _, places, _ in found]).tolist() == [1, 3, 4, 5, 6]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (f'{{"a": 1}}\n{{"a": "{SECRET}}}\n', "line 2 "),
        (f'{{"a": 1}}\n\n["{SECRET}"]\n', "line 3 "),
        (f'{{"a": 1}}\n{{"a": "{SECRET}\xe9"}}'.encode("latin-1"), "line 2 "),
        (f'{{"a": 1}}\n{{"a": ["{SECRET}"]}}\n', "line 2 of .* has a list or an object"),
        ("[" * 100_000, "line 1 "),
        (f'{{"b": "{SECRET}"}}\n', r"no record of one has \['a'\]"),
    ],
    ids=["cut", "list", "encoding", "nested", "deep", "missing"],
)
def test_what_is_no_json_line_is_refused_with_its_line(tmp_path, text, said):
    with pytest.raises(ValueError, match=said) as caught:
        lines(tmp_path / "t.jsonl", text)
    assert SECRET not in str(caught.value)
    assert caught.value.__context__ is None


@pytest.mark.parametrize("size", [3, 64, 1 << 22])
def test_blocks_of_json_lines_hold_the_same_records(tmp_path, monkeypatch, size):
    monkeypatch.setattr(_json_lines, "_BLOCK", size)
    text = "".join(json.dumps({"a": "x" * i}) + "\n" * (1 + i % 3) for i in range(60))
    assert lines(tmp_path / "t.jsonl", text) == ["x" * i for i in range(60)]
    found = [*numbered_frames([tmp_path / "t.jsonl"], {"a": None})]
    numbers = np.concatenate([places for _, places, _ in found])
    expected = [i for i, line in enumerate(text.split("\n"), 1) if line]
    assert numbers.tolist() == expected


def test_a_record_of_json_moves_no_other(tmp_path):
    """Types that are inferred from all records would make 501.0 of 501 beside 1.5."""
    for other in ("1.5", "null", '"x"', "true"):
        found = lines(tmp_path / "t.jsonl", f'{{"a": 9007199254740993}}\n{{"a": {other}}}\n')
        assert found[0] == 9007199254740993
        assert type(found[0]) is int


# TSV.


def test_tabs_are_the_delimiter_of_tsv_files(tmp_path):
    path = tmp_path / "t.tsv"
    path.write_bytes(b'a\tb\n"x\ty"\t1,5\n')
    (frame,) = map_frames(lambda frame: frame, path, {"a": None, "b": None})
    assert frame.to_numpy().tolist() == [["x\ty", "1,5"]]
    path.write_bytes("a\tb\nö\t1\n".encode("cp1252"))
    (frame,) = map_frames(lambda frame: frame, CsvFile(path, encoding="cp1252"), {"a": None})
    assert frame["a"].tolist() == ["ö"]
    # Negative twin: with another ending, tabs are refused.
    path.rename(tmp_path / "t.csv")
    with pytest.raises(ValueError, match="have tabs"):
        list(map_frames(lambda frame: frame, tmp_path / "t.csv", {"a": None, "b": None}))


# Excel.


class FakeBook:
    """What openpyxl gives of a workbook."""

    def __init__(self, *sheets):
        self.worksheets = [
            SimpleNamespace(iter_rows=lambda values_only, rows=rows: iter(rows)) for rows in sheets
        ]
        self.is_closed = False

    def close(self):
        self.is_closed = True


@pytest.fixture
def workbook(monkeypatch, tmp_path):
    """Return a function that makes a workbook of sheets, or of an error."""

    def make(*sheets, error=None):
        book, path = FakeBook(*sheets), tmp_path / "t.xlsx"

        def load_workbook(given, *, read_only, data_only):
            assert (given, read_only, data_only) == (str(path), True, True)
            if error is not None:
                raise error
            return book

        module = ModuleType("openpyxl")
        module.load_workbook = load_workbook
        monkeypatch.setitem(sys.modules, "openpyxl", module)
        path.touch()
        return path, book

    return make


DAY = datetime.datetime(2012, 3, 4)
SHEET = [
    ("code", "age", "when", None, None),
    ("00501", 31, DAY),
    (501, 32.0, 40972, "x", None),
    (None, None, None),
    (None, 33, DAY, None, None),
    ("", 33, DAY, None, None),
]


def test_cells_are_read_as_they_are_stored(workbook):
    """A code that was stored as a number has lost its zeros: it is refused, and never guessed."""
    path, book = workbook(SHEET)
    found = [*numbered_frames([path], dict(SCHEMA))]
    assert np.concatenate([places for _, places, _ in found]).tolist() == [2, 3, 5, 6]
    frame = pd.concat([frame for *_, frame in found])
    assert frame["code"].tolist() == ["00501", 501, None, ""]
    assert frame["when"].tolist() == [DAY, 40972, DAY, DAY]
    assert book.is_closed
    counts = SCHEMA.check(frame)
    assert counts["undeclared"]["code"] == 2
    assert counts["unreadable"]["when"] == 1
    with pytest.raises(ValueError, match="Column 'code'"):
        TabularEncoder(SCHEMA).fit_transform(path)
    # The twin: texts and dates are read.
    path, _ = workbook([SHEET[0], SHEET[1], SHEET[4]])
    assert TabularEncoder(SCHEMA).fit_transform(path).shape[0] == 2


def broken_rows():
    yield ("code", "age", "when")
    raise ValueError(SECRET)


@pytest.mark.parametrize(
    ("sheets", "error", "said"),
    [
        ((SHEET, SHEET), None, "has 2: save that of the table"),
        ((), None, "has 0"),
        (([(None, None)],), None, "the names of the columns in its first row"),
        (([],), None, "the names of the columns in its first row"),
        ((), ValueError(SECRET), "is none, or is damaged"),
    ],
)
def test_other_workbooks_are_refused(workbook, sheets, error, said):
    path, _ = workbook(*sheets, error=error)
    with pytest.raises(ValueError, match=said) as caught:
        Workbooks([str(path)])
    assert caught.value.__context__ is None
    assert SECRET not in str(caught.value)


def test_a_damaged_sheet_shows_no_value(workbook):
    path, book = workbook([])
    book.worksheets[0].iter_rows = lambda values_only: broken_rows()
    files = Workbooks([str(path)])
    with pytest.raises(ValueError, match="is damaged") as caught:
        list(files.read(["age"]))
    assert SECRET not in str(caught.value)
    assert caught.value.__context__ is None


def test_without_openpyxl_the_extra_is_named(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "openpyxl", None)
    (tmp_path / "t.xlsx").touch()
    with pytest.raises(ImportError, match=r"sklearn-dpgen\[excel\]"):
        TabularEncoder(SCHEMA).fit(tmp_path / "t.xlsx")


# Databases.


def test_what_is_a_url():
    assert is_url("sqlite:///t.db::x")
    assert is_url("postgresql+psycopg://u:p@h/db::x")
    assert not is_url("a::b.csv")
    assert is_url(Path("postgresql+psycopg://u:p@h/db::x"))
    assert not is_url("C:\\t.csv")
    assert not is_url("C:/t.csv")
    assert not is_url("folder/t.csv")
    assert not is_url(3)
    assert database_file("sqlite:////data/t.db::x") == "/data/t.db"
    assert database_file("duckdb:///t.db::x") == "t.db"
    assert database_file("postgresql://h/db::x") is None


def test_names_of_tables_and_columns_are_quoted(tmp_path):
    table = pd.DataFrame({'a"b': [1, None], "c; d": ["x", "y"]})
    write_sqlite(table, tmp_path / "t.db", 'my "table"; --')
    source = DatabaseTable(f'sqlite:///{tmp_path}/t.db::my "table"; --')
    assert source.names == [*table]
    frames = list(source.read(["c; d", 'a"b']))
    assert frames[0].to_numpy().tolist() == [["x", 1.0], ["y", None]]


def test_a_database_is_read_in_blocks_and_not_changed(tmp_path, monkeypatch):
    monkeypatch.setattr(_databases, "_BLOCK", 100)
    write_sqlite(made_up(), tmp_path / "t.db")
    before = (tmp_path / "t.db").read_bytes()
    parts = list(DatabaseTable(f"sqlite:///{tmp_path}/t.db::visits").read_numbered(["age"]))
    assert [len(frame) for *_, frame in parts] == [100, 100, 100]
    assert parts[-1][1].tolist() == [*range(201, 301)]
    assert (tmp_path / "t.db").read_bytes() == before
    assert [path.name for path in tmp_path.iterdir()] == ["t.db"]


@pytest.mark.parametrize(
    "url",
    [
        f"postgresql://u:{SECRET}@h/db",
        f"postgresql://u:a::{SECRET}@h/db",
        f"postgresql://u:a@h/db?password=x::{SECRET}@h",
        f"sqlite:///t.db?key={SECRET}::visits",
        f"sqlite://{SECRET}::visits",
        f"postgresql://h/db?user=u&password=abc::{SECRET}",
        f"postgresql://u:a@h/db?sslkey=abc::{SECRET}",
        f"postgresql://u:abc::{SECRET}",
        f"postgresql:/u:{SECRET}@h/db::visits",
        f"postgresql:/u:{SECRET}@h/db",
        f" postgresql://u:a?b::{SECRET}",
        Path(f"postgresql://u:{SECRET}@h/db::visits"),
        CsvFile(Path(f"postgresql://u:{SECRET}@h/db::visits")),
        f"duckdb:///t.db?token={SECRET}::visits",
    ],
)
def test_urls_that_are_refused_are_not_shown(url):
    with pytest.raises(ValueError, match="DATABASE::TABLE") as caught:
        TabularEncoder(SCHEMA).fit_transform(url)
    assert SECRET not in str(caught.value)


def test_missing_databases_and_tables(tmp_path):
    with pytest.raises(FileNotFoundError, match="not there"):
        DatabaseTable("sqlite:///none.db::visits")
    write_sqlite(made_up(), tmp_path / "t.db")
    with pytest.raises(
        ValueError, match="The table 'x' of the sqlite database must exist"
    ) as caught:
        DatabaseTable(f"sqlite:///{tmp_path}/t.db::x")
    assert caught.value.__context__ is None
    (tmp_path / "t.db").write_text("no database " * 100)
    with pytest.raises(ValueError, match="raised DatabaseError"):
        DatabaseTable(f"sqlite:///{tmp_path}/t.db::visits")


@pytest.mark.parametrize(
    "place",
    [
        "h",
        "h/db",
        "h:5432/db",
        "[::1]:5432/db",
        "/db",
        "u@h/db",
        "u:a/b:c@h:1/db",
        "u:a@b@[::1]/db",
    ],
)
def test_urls_of_servers_are_taken(place, monkeypatch):
    opened = []
    monkeypatch.setattr(_databases, "_open_server", opened.append)
    with pytest.raises(ValueError, match="'s.visits' of the postgresql database"):
        DatabaseTable(f"PostgreSQL+psycopg://{place}::s.visits")
    assert opened == [f"PostgreSQL+psycopg://{place}"]


def test_one_table_at_a_time_and_no_public_one(tmp_path):
    write_sqlite(made_up(), tmp_path / "t.db")
    url = f"sqlite:///{tmp_path}/t.db::visits"
    with pytest.raises(ValueError, match="one table of a database"):
        TabularEncoder(SCHEMA).fit_transform([url, url])
    for source in (url, [url], Path(url), CsvFile(url)):
        with pytest.raises(TypeError, match="may change"):
            PublicTable(source)


class FakeEngine:
    """What SQLAlchemy gives of a database, here one of SQLite."""

    def __init__(self, path, error):
        self._connection, self._error = sqlite3.connect(path), error
        preparer = SimpleNamespace(quote_identifier=_databases._quoted)
        self.dialect = SimpleNamespace(identifier_preparer=preparer)
        self.is_disposed = False

    def connect(self):
        if self._error is not None:
            raise self._error
        return self

    def execution_options(self, *, stream_results):
        assert stream_results
        return self

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._connection.close()

    def execute(self, query):
        cursor = self._connection.execute(query)
        names = [column[0] for column in cursor.description]
        return SimpleNamespace(keys=lambda: names, fetchmany=cursor.fetchmany)

    def dispose(self):
        self.is_disposed = True


@pytest.fixture
def server(tmp_path, monkeypatch):
    """Return a function that makes SQLAlchemy connect to a database, or fail."""
    write_sqlite(made_up(), tmp_path / "t.db")

    def make(error=None):
        engines = []

        def create_engine(url, *, hide_parameters):
            assert hide_parameters
            assert url == f"postgresql+psycopg://ann:{SECRET}@host/db"
            engines.append(FakeEngine(tmp_path / "t.db", error))
            return engines[-1]

        module = ModuleType("sqlalchemy")
        module.create_engine, module.text = create_engine, lambda text: text
        monkeypatch.setitem(sys.modules, "sqlalchemy", module)
        return engines

    return make


SERVER = f"postgresql+psycopg://ann:{SECRET}@host/db::visits"


def test_a_server_is_read_through_sqlalchemy(server):
    engines = server()
    expected = TabularEncoder(SCHEMA).fit_transform(made_up()[[*SCHEMA]])
    np.testing.assert_array_equal(TabularEncoder(SCHEMA).fit_transform(SERVER), expected)
    assert engines
    assert all(engine.is_disposed for engine in engines)


def test_a_failing_server_shows_neither_url_nor_value(server):
    server(RuntimeError(f"could not connect to {SERVER}"))
    with pytest.raises(ValueError, match="'visits' of the postgresql database") as caught:
        TabularEncoder(SCHEMA).fit_transform(SERVER)
    # The twin: the error itself has the password.
    assert caught.value.__context__ is None
    assert SECRET not in str(caught.value)
    assert "RuntimeError" in str(caught.value)


def test_without_sqlalchemy_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "sqlalchemy", None)
    with pytest.raises(ImportError, match=r"sklearn-dpgen\[sql\]") as caught:
        TabularEncoder(SCHEMA).fit_transform(SERVER)
    assert SECRET not in str(caught.value)


def test_sqlalchemy_itself(tmp_path):
    pytest.importorskip("sqlalchemy")
    write_sqlite(made_up(), tmp_path / "t.db")
    with _databases._open_server(f"sqlite:///{tmp_path}/t.db") as (quote, execute):
        names, blocks = execute(f"SELECT {quote('age')} FROM {quote('visits')}")
        assert names == ["age"]
        assert sum(map(len, blocks)) == 300
