"""Tables in TSV, JSON lines, Excel and SQL: what commands read, write and hide."""

import json
import sqlite3
import sys
import textwrap
from pathlib import Path
from types import ModuleType

import pandas as pd
import pytest

from sklearn_dpgen.command_line._console import without_credentials
from sklearn_dpgen.command_line._files import write_table

FIT = ("--schema", "codes.yaml", "--epsilon", 5)
SCHEMA = """\
code: {type: categorical, categories: ['00501', '00502'], nullable: true}
age: {type: numeric, low: 0, high: 100, integer: true, nullable: true}
when: {type: datetime, low: 2010-01-01, high: 2022-12-31, resolution: D}
"""
SECRET = "hunter2"


def made_up(n=400):
    ages = [None if i % 9 == 0 else i % 101 for i in range(n)]
    codes = ["00501" if i % 3 else "00502" for i in range(n)]
    return pd.DataFrame({"code": codes, "age": ages, "when": "2012-03-04"}).astype(object)


@pytest.fixture
def codes(run, folder):
    """The files of a table in each format, and its schema."""
    (folder / "codes.yaml").write_text(SCHEMA, encoding="utf-8")
    table = made_up()
    table.to_csv("codes.tsv", sep="\t", index=False)
    records = table.where(table.notna(), None).to_dict("records")
    (folder / "codes.jsonl").write_text("\n".join(map(json.dumps, records)), encoding="utf-8")
    connection = sqlite3.connect("codes.db")
    table.to_sql("visits", connection, index=False)
    connection.close()
    return folder


READ = {
    ".tsv": lambda path: pd.read_csv(path, sep="\t", dtype={"code": str}),
    ".jsonl": lambda path: pd.DataFrame(map(json.loads, Path(path).read_text().splitlines())),
    ".parquet": pd.read_parquet,
}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("table", "ending"),
    [("codes.tsv", ".tsv"), ("codes.jsonl", ".jsonl"), ("sqlite:///codes.db::visits", ".parquet")],
)
def test_synthetic_rows_have_the_format_of_the_table(run, codes, table, ending):
    assert run("check", "codes.yaml", table, "--json").json["faults"] == {}
    done = run("synthesize", table, *FIT, "--out", "out", "--json")
    assert (done.code, done.json["rows"]) == (0, 400)
    rows = READ[ending](f"out/synthetic{ending}")
    assert {*rows["code"].dropna()} == {"00501", "00502"}
    ages = rows["age"].dropna()
    assert (len(rows), (ages == ages.round()).all()) == (400, True)
    # The rows are a table of the schema themselves.
    assert run("check", "codes.yaml", f"out/synthetic{ending}").code == 0
    listed = json.loads((codes / "out" / "release.json").read_text())
    assert f"synthetic{ending}" in [file["name"] for file in listed["files"]]
    assert run("verify", "out").code == 0


@pytest.mark.slow
def test_samples_have_the_format_of_their_ending(run, codes):
    run("synthesize", "codes.tsv", *FIT, "--out", "out")
    for name in ("a.tsv", "a.tsv.gz", "a.jsonl", "a.ndjson", "a.jsonl.bz2", "a.csv"):
        assert run("sample", "out/model.safetensors", "--rows", 50, "--out", name).code == 0
        found = run("check", "codes.yaml", name, "--json").json
        assert (found["n_rows"], found["faults"]) == (50, {})
    done = run("sample", "out/model.safetensors", "--rows", 5, "--out", "sqlite:///codes.db::x")
    assert (done.code, "not a URL" in done.err) == (2, True)


def test_faults_have_the_line_of_each_format(run, codes):
    table = made_up(60)
    table.loc[[7, 30], "code"] = "00503"
    table.to_csv("codes.tsv", sep="\t", index=False)
    records = table.where(table.notna(), None).to_dict("records")
    (codes / "codes.jsonl").write_text("\n\n".join(map(json.dumps, records)), encoding="utf-8")
    connection = sqlite3.connect("codes.db")
    table.to_sql("other", connection, index=False)
    connection.close()
    for name, places in {
        "codes.tsv": [{"line": 9}, {"line": 32}],
        "codes.jsonl": [{"line": 15}, {"line": 61}],
        "sqlite:///codes.db::other": [{"row": 8}, {"row": 31}],
    }.items():
        found = run("check", "codes.yaml", name, "--json").json
        assert found["places"] == {"code": {"undeclared": places}}


def test_codes_that_a_spreadsheet_made_numbers(run, codes):
    records = [
        {"code": 501, "age": 1, "when": 40972},
        {"code": "00501", "age": 1, "when": "2012-03-04"},
    ]
    (codes / "codes.jsonl").write_text("\n".join(map(json.dumps, records)), encoding="utf-8")
    done = run("check", "codes.yaml", "codes.jsonl")
    assert done.code == 1
    assert "a spreadsheet may have turned codes into numbers" in done.out
    assert "1 is a day number of a spreadsheet" in done.out
    assert "501" not in done.out
    assert "40972" not in done.out


def test_drafts_have_the_names_of_each_format(run, codes):
    for i, table in enumerate(("codes.tsv", "codes.jsonl", "sqlite:///codes.db::visits")):
        done = run("draft-schema", table, "--out", f"draft-{i}.yaml", "--json")
        # By the names alone, which are the same in each.
        gaps = {"code": ["categories"], "age": ["low", "high", "integer"], "when": ["type"]}
        assert done.json["missing"] == gaps


@pytest.mark.slow
def test_several_tables_of_a_database(run, codes):
    (codes / "tables.yaml").write_text(
        "tables:\n"
        "  persons: {columns: {sex: {type: categorical, categories: [f, m]}}, primary_key: who}\n"
        "  stays:\n"
        "    columns: {days: {type: numeric, low: 0, high: 9, integer: true}}\n"
        "    foreign_key: {who: persons}\n    max_rows: 3\n"
    )
    connection = sqlite3.connect("codes.db")
    persons = pd.DataFrame({"who": range(200), "sex": ["f", "m"] * 100})
    persons.to_sql("persons", connection, index=False)
    stays = pd.DataFrame(
        {"who": [i // 2 for i in range(400)], "days": [i % 10 for i in range(400)]}
    )
    stays.to_sql("stays", connection, index=False)
    connection.close()
    url = "sqlite:///codes.db::"
    options = ("--table", f"persons={url}persons", "--table", f"stays={url}stays")
    assert run("check", "tables.yaml", *options).code == 0
    done = run("synthesize", "--schema", "tables.yaml", "--epsilon", 5, *options, "--out", "out")
    assert done.code == 0
    assert len(pd.read_parquet("out/synthetic-persons.parquet")) == 200


def test_the_file_of_a_database_is_never_replaced(run, codes):
    (codes / "out").mkdir()
    (codes / "codes.db").rename(codes / "out" / "synthetic.parquet")
    table = "sqlite:///out/synthetic.parquet::visits"
    done = run("synthesize", table, *FIT, "--out", "out", "--overwrite")
    assert (done.code, "would replace the input" in done.err) == (2, True)


@pytest.mark.parametrize("ending", [".tsv", ".jsonl", ".jsonl.gz"])
def test_values_that_are_written_are_read_again(tmp_path, ending):
    frame = pd.DataFrame(
        {
            "text": ["a\tb", 'x"y', "ü\n"],
            "number": [0.1 + 0.2, 1e-17, 5.0],
            "integer": pd.array([1, None, 2**60], dtype="Int64"),
            "when": pd.to_datetime(["2012-03-04 05:06:07", None, "2012-03-04 00:00:00"]).as_unit(
                "us"
            ),
            "zone": pd.to_datetime(["2012-03-04"] * 3).tz_localize("Europe/Paris"),
            "flag": [True, False, True],
        }
    )
    path = tmp_path / f"t{ending}"
    write_table(frame, path, ending)
    from sklearn_dpgen.preprocessing._reader import map_frames

    (found,) = map_frames(lambda frame: frame, path, dict.fromkeys(frame))
    assert found["text"].tolist() == frame["text"].tolist()
    assert [*map(float, found["number"])] == frame["number"].tolist()
    assert [None if pd.isna(x) else int(x) for x in found["integer"]] == [1, None, 2**60]
    assert pd.Timestamp(found["when"][0]) == frame["when"][0]
    assert pd.isna(found["when"][1])
    assert pd.Timestamp(found["zone"][2]) == frame["zone"][2]
    assert [str(x) for x in found["flag"]] == ["True", "False", "True"]


@pytest.mark.slow
def test_without_openpyxl_nothing_is_spent(run, codes, monkeypatch):
    monkeypatch.setitem(sys.modules, "openpyxl", None)
    (codes / "codes.xlsx").touch()
    for arguments in (
        ("check", "codes.yaml", "codes.xlsx"),
        ("synthesize", "codes.xlsx", *FIT, "--out", "out"),
    ):
        done = run(*arguments)
        assert done.code in (1, 2)
        assert "sklearn-dpgen[excel]" in done.all
        assert not (codes / "out").exists()
    run("synthesize", "codes.tsv", *FIT, "--out", "out")
    done = run("sample", "out/model.safetensors", "--rows", 5, "--out", "more.xlsx")
    assert (done.code, "sklearn-dpgen[excel]" in done.err) == (2, True)


@pytest.mark.slow
def test_a_workbook_is_written_and_read(run, codes):
    pytest.importorskip("openpyxl")
    made_up().to_excel("codes.xlsx", index=False)
    assert run("check", "codes.yaml", "codes.xlsx").code == 0
    assert run("synthesize", "codes.xlsx", *FIT, "--out", "out").code == 0
    assert {*pd.read_excel("out/synthetic.xlsx", dtype=object)["code"].dropna()} <= {
        "00501",
        "00502",
    }
    assert run("check", "codes.yaml", "out/synthetic.xlsx").code == 0
    done = run("sample", "out/model.safetensors", "--rows", 2**20, "--out", "more.xlsx")
    assert (done.code, "must have fewer than 1048576 rows" in done.err) == (2, True)


# Passwords.

URL = f"postgresql://ann:{SECRET}@host/db::visits"
USES = {
    "check": ("check", "codes.yaml", URL),
    "synthesize": ("synthesize", URL, *FIT, "--out", "out"),
    "draft": ("draft-schema", URL, "--out", "draft.yaml"),
    "no table": ("check", "codes.yaml", f"postgresql://ann:{SECRET}@host/db"),
    "named": ("check", "codes.yaml", "--table", f"visits={URL}"),
    "not named": ("check", "codes.yaml", "--table", f"postgresql://u:{SECRET}@h/db?mode=x::y"),
    "parameter": ("check", "codes.yaml", "--table", f"postgresql://h/db?password={SECRET}::y"),
    "tail": ("check", "codes.yaml", f"postgresql://h/db?user=u&password=abc::{SECRET}"),
    "one slash": ("check", "codes.yaml", URL.replace("//", "/")),
    "one slash, named": ("check", "codes.yaml", "--table", f"visits={URL}".replace("//", "/")),
    "one slash, not named": ("check", "codes.yaml", "--table", f"p:/u:{SECRET}@h/db?mode=x::y"),
    "one slash, out": ("synthesize", "codes.tsv", *FIT, "--out", URL.replace("//", "/")),
    "one slash, public": ("check", "codes.yaml", "--public", URL.replace("//", "/")),
    "one slash, schema": ("check", URL.replace("//", "/"), "codes.tsv"),
    "public of the schema": ("check", "url.yaml", "codes.tsv"),
    "plan": ("plan", "--schema", "url.yaml", "--rows", 5, "--epsilon", 1),
    "fit": ("synthesize", "codes.tsv", "--schema", "url.yaml", "--epsilon", 9, "--out", "out"),
    "public": ("check", "codes.yaml", "--public", URL),
    "unknown": ("plan", "--schema", "codes.yaml", "--rows", 5, "--epsilon", 1, URL),
    "out": ("sample", "model.safetensors", "--rows", 5, "--out", URL),
    "folder": ("synthesize", "codes.tsv", *FIT, "--out", URL),
}


@pytest.mark.parametrize("has_driver", [False, True])
@pytest.mark.parametrize("use", USES)
def test_no_output_has_the_password_of_a_url(run, codes, monkeypatch, use, has_driver):
    module = ModuleType("sqlalchemy")

    def create_engine(url, **_):
        raise RuntimeError(f"cannot connect to {url}")

    module.create_engine = create_engine
    text = (codes / "codes.yaml").read_text(encoding="utf-8")
    words = f"public: {URL}\ncolumns:\n" + textwrap.indent(text, "  ")
    (codes / "url.yaml").write_text(words, encoding="utf-8")
    monkeypatch.setitem(sys.modules, "sqlalchemy", module if has_driver else None)
    for more in ((), ("--json",)):
        done = run(*USES[use], *more)
        assert done.code in (1, 2)
        assert SECRET not in done.all
        assert done.all


@pytest.mark.slow
def test_no_file_of_a_release_has_the_password(run, codes, monkeypatch):
    """The server is pretended by a file of SQLite, so that the fit succeeds."""
    from sklearn_dpgen.preprocessing import _databases

    opened = []

    def open_server(url):
        opened.append(url)
        return _databases._open_sqlite("codes.db")

    monkeypatch.setattr(_databases, "_open_server", open_server)
    budget = ("--epsilon", 9, "--delta", 1e-4)
    run("ledger", "init", "codes.ledger", "--dataset", "codes", *budget)
    done = run(
        *("synthesize", URL, *FIT, "--ledger", "codes.ledger", "--out", "out"),
        "--not-private-report",
    )
    assert done.code == 0
    written = [path for path in codes.rglob("*") if path.is_file()]
    assert {"release.json", "report.html", "card.md", "codes.ledger"} <= {p.name for p in written}
    for path in written:
        assert SECRET.encode() not in path.read_bytes()
    assert SECRET not in done.all
    # The twin: the password went to the server.
    assert opened
    assert all(SECRET in url for url in opened)


@pytest.mark.parametrize(
    ("text", "hidden"),
    [
        ("got 'postgresql://u:p@h/db' x@y", "got 'postgresql://***@h/db' x@y"),
        ("a://u:p/@:q@h/db::t, b", "a://***@h/db::t, b"),
        ("a://h/db?password=p&x=1::t b", "a://h/db?*** b"),
        ('{"out": "a://u:p@h/db?p"}', '{"out": "a://***@h/db?***"}'),
        ("no table postgresql:/u:p@h/db?x=y", "no table postgresql:/***@h/db?***"),
        ("in C:/data/a@b?c", "in C:/data/a@b?c"),
        ("see https://example.org/page.", "see https://example.org/page."),
        ("a mail to x@y.org", "a mail to x@y.org"),
    ],
)
def test_texts_without_credentials(text, hidden):
    assert without_credentials(text) == hidden
