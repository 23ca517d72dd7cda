"""draft-schema: names and types, never a value, and nothing that is taken for a schema unseen."""

import datetime
import json
import os

import pandas as pd
import pytest
import yaml

from sklearn_dpgen.schema import Schema, json_schema
from sklearn_dpgen.schema._schema import SchemaDraft

TABLE = pd.DataFrame(
    {
        "n": [41, 42],
        "x": [41.5, 43.5],
        "t": ["secret-a", "secret-b"],
        "d": pd.to_datetime(["1999-04-01", "1999-04-02"]),
        "b": [True, False],
        "c": pd.Categorical(["secret-c", "secret-d"]),
        "empty": pd.Series([None, None], dtype=object),
    }
)
DICTIONARY = """\
variable,type,min,max,values,label
age,integer,18,100,,age at entry
smoker,string,,,"no, yes",
income,number,0,,,
"""


@pytest.mark.parametrize("form", ["csv", "parquet", "feather"])
def test_of_a_table_names_and_types_alone(run, form):
    if form == "csv":
        TABLE.to_csv("t.csv", index=False)
    else:
        getattr(TABLE, f"to_{form}")(f"t.{form}")
    done = run("draft-schema", f"t.{form}", "--out", "draft.yaml", "--json")
    assert done.code == 0, done.err
    with open("draft.yaml", encoding="utf-8") as file:
        text = file.read()
    draft = yaml.safe_load(text)
    if form == "csv":
        assert draft == {name: {"type": "..."} for name in TABLE}
        assert done.json["missing"] == {name: ["type"] for name in TABLE}
    else:
        assert {name: entry["type"] for name, entry in draft.items()} == {
            "n": "numeric",
            "x": "numeric",
            "t": "categorical",
            "d": "datetime",
            "b": "categorical",
            "c": "categorical",
            "empty": "categorical",
        }
        gaps = dict.fromkeys(("low", "high", "integer"), "...")
        assert draft["n"] == draft["x"] == {"type": "numeric", **gaps}
        assert done.json["missing"]["d"] == ["low", "high"]
    for value in ("41", "42", "43.5", "secret", "1999"):
        assert value not in text + done.all
    assert "Review each line" in text
    assert "review them" in done.json["warnings"][0]
    # No command takes a draft for a schema.
    assert run("check", "draft.yaml").code == 1
    assert "is a draft" in run("plan", "--schema", "draft.yaml", "--rows", 9, "--epsilon", 1).err


@pytest.mark.parametrize("form", ["csv", "parquet"])
def test_a_plain_name_suggests_a_type(run, folder, form):
    """The draft is that of the names: what the columns hold decides nothing."""
    names = ["patient_id", "plz", "Geburtsdatum", "income", "comment", "town"]
    rows = {
        "csv": [dict.fromkeys(names, "a"), dict.fromkeys(names, "b")],
        "parquet": [
            {"patient_id": 7, "plz": 501, "Geburtsdatum": "31.1.2020", "income": 1.5}
            | {"comment": "a", "town": "b"}
        ],
    }[form]
    frame = pd.DataFrame(rows)
    frame.to_csv("t.csv", index=False) if form == "csv" else frame.to_parquet("t.parquet")
    done = run("draft-schema", f"t.{form}", "--out", "draft.yaml", "--json")
    assert done.code == 0, done.err
    text = (folder / "draft.yaml").read_text(encoding="utf-8")
    draft = yaml.safe_load(text)
    bounds = {"low": "...", "high": "..."}
    integer = {} if form == "csv" else {"integer": "..."}
    town = {"type": "..."} if form == "csv" else {"type": "categorical", "categories": "..."}
    assert draft == {
        "patient_id": {"type": "identifier"},
        # Where a file has a number, the name says that it is a code.
        "plz": {"type": "categorical", "categories": "..."},
        "Geburtsdatum": {"type": "datetime", **bounds, "resolution": "D"},
        "income": {"type": "numeric", **bounds, **integer},
        "comment": {"type": "..."},
        "town": town,
    }
    assert done.json["suggested"] == {
        name: draft[name]["type"] for name in ("patient_id", "plz", "Geburtsdatum", "income")
    }
    assert "unit (perhaps patient_id)" in text
    assert "# by its name a postcode" in text
    assert run("check", "draft.yaml").code == 1


NEIGHBOURS = {
    "a fraction": "36.5,no,3",
    "a text": "none,no,3",
    "a missing number": ",no,3",
}


@pytest.mark.parametrize("other", NEIGHBOURS.values(), ids=NEIGHBOURS)
def test_a_record_decides_nothing(run, folder, other):
    """Of a file without types not even the type, of one with types not whether it is integers."""

    def drafts(draft):
        found = []
        for row in ("36,no,3", other):
            text = f"age,smoker,grade\n31,yes,1\n{row}\n"
            (folder / "t.csv").write_text(text, encoding="utf-8")
            found.append(draft("t.csv"))
        return found

    def drafted(path):
        assert run("draft-schema", path, "--out", "draft.yaml", "--overwrite").code == 0
        return (folder / "draft.yaml").read_text(encoding="utf-8")

    def guessed(path):
        return Schema.draft(pd.read_csv(path).dtypes).to_yaml()

    one, two = drafts(drafted)
    assert one == two
    # Negative twin: a guess from the records tells the neighbours apart.
    one, two = drafts(guessed)
    assert one != two


def test_an_integer_is_declared_and_not_taken_from_a_type(run, folder):
    texts = []
    for ages in ([31, 36], [31, 36.5], [31, None]):
        pd.DataFrame({"age": ages}).to_parquet("t.parquet")
        assert run("draft-schema", "t.parquet", "--out", "draft.yaml", "--overwrite").code == 0
        texts.append((folder / "draft.yaml").read_text(encoding="utf-8"))
    assert len({*texts}) == 1
    assert "integer: '...'" in texts[0]
    # Negative twin: the types of the three frames.
    drafts = [Schema.draft(pd.DataFrame({"age": a}).dtypes) for a in ([31, 36], [31, 36.5])]
    assert drafts[0].to_yaml() != drafts[1].to_yaml()


def test_a_draft_without_types_is_code_too():
    draft = SchemaDraft({"age": {"type": "..."}, "n": {"type": "numeric", "low": 0, "high": 1}})
    assert draft.missing == {"age": ("type",)}
    assert '"age": ...,  # declare type' in draft.to_code()
    assert "import Numeric, Schema" in draft.to_code()


VALUES = [
    "31,no,1",
    "a,,b",
    "1.5,a,b",
    "1.5E-3,a,b",
    "2020-01-01,a,b",
    "2020-01-01T10:00Z,a,b",
    "a,2020-01-01T00:00:00+01:00,b",
    "a,b,31 Jan 2020",
    "a,b,Fri 31-Jan-20 10:00",
    "a,10:30 pm,b",
    "a,b,True",
    "false,b,c",
]


@pytest.mark.parametrize("names", VALUES)
def test_a_table_without_a_header_is_refused(run, folder, names):
    (folder / "t.csv").write_text(f"{names}\n32,yes,2\n")
    done = run("draft-schema", "t.csv", "--out", "draft.yaml")
    assert done.code == 2
    assert "needs a header" in done.err
    assert names not in done.all
    assert not (folder / "draft.yaml").exists()


def test_names_that_resemble_values_are_names(run, folder):
    names = "day 1,true_label,Jan 2020,E2,1st visit,may,10th,no,yes"
    (folder / "t.csv").write_text(f"{names}\n{'1,' * 8}1\n")
    done = run("draft-schema", "t.csv", "--out", "draft.yaml")
    assert done.code == 0, done.err
    draft = yaml.safe_load((folder / "draft.yaml").read_text(encoding="utf-8"))
    assert [*draft] == names.split(",")


@pytest.mark.parametrize("value", [31, True, datetime.datetime(2020, 1, 1, 10), datetime.time(9)])
def test_a_sheet_without_names_is_refused(run, folder, value):
    pytest.importorskip("openpyxl")
    pd.DataFrame([["secret", value], ["b", "c"]]).to_excel("t.xlsx", header=False, index=False)
    done = run("draft-schema", "t.xlsx", "--out", "draft.yaml")
    assert done.code == 2
    assert "The first row of the sheet must hold the names of the columns: cell 2 is a" in done.err
    assert not any(text in done.all for text in ("secret", "31", "True", "2020", "09", "CSV"))


@pytest.mark.parametrize("key", ["1201", "2020-01-01T10:00Z", "true"])
def test_keys_of_records_that_are_values_are_refused(run, folder, key):
    (folder / "t.jsonl").write_text(json.dumps({"secret": 1, key: 5}), encoding="utf-8")
    done = run("draft-schema", "t.jsonl", "--out", "draft.yaml")
    assert done.code == 2
    place = "The keys of the first JSON record must hold the names of the columns: key 2 is a"
    assert place in done.err
    assert not any(text in done.all for text in ("secret", key + ".", "CSV"))


WARNED = {
    "csv": "first line of the file",
    "tsv": "first line of the file",
    "xlsx": "first row of the sheet",
    "jsonl": "keys of the first JSON record",
    "parquet": "types that the file declares",
}


@pytest.mark.parametrize("form", WARNED)
def test_the_warning_of_a_draft_speaks_of_the_format(run, folder, form):
    table = pd.DataFrame({"Alice Smith": ["a"], "Paris": ["b"]})
    if form == "xlsx":
        pytest.importorskip("openpyxl")
        table.to_excel("t.xlsx", index=False)
    elif form == "jsonl":
        table.to_json("t.jsonl", orient="records", lines=True)
    elif form == "parquet":
        table.to_parquet("t.parquet")
    else:
        table.to_csv(f"t.{form}", index=False, sep="," if form == "csv" else "\t")
    done = run("draft-schema", f"t.{form}", "--out", "draft.yaml", "--json")
    # Words cannot be told from names.
    assert done.code == 0, done.err
    (warning,) = done.json["warnings"]
    assert {text for text in WARNED.values() if text in warning} == {WARNED[form]}
    assert "review them" in warning


@pytest.mark.parametrize("mark", [";", "\t", "|"])
def test_another_format_is_declared(run, folder, mark):
    # A name may hold a comma.
    text = f"a{mark}größe{mark}cm, inch\n1{mark}2{mark}3\n"
    (folder / "t.csv").write_text(text, encoding="cp1252")
    done = run("draft-schema", "t.csv", "--out", "draft.yaml", "--encoding", "cp1252")
    assert done.code == 0, done.err
    found = yaml.safe_load((folder / "draft.yaml").read_text(encoding="utf-8"))
    assert (found["delimiter"], found["encoding"]) == (mark, "cp1252")
    assert [*found["columns"]] == ["a", "größe", "cm, inch"]
    # Completed, it reads the file.
    text = (folder / "draft.yaml").read_text(encoding="utf-8")
    number = "type: numeric\n    low: 0\n    high: 9"
    (folder / "t.yaml").write_text(text.replace("type: '...'", number), encoding="utf-8")
    done = run("check", "t.yaml", "t.csv", "--json")
    assert done.code == 0, done.out
    assert done.json["n_rows"] == 1
    # The twin: by the default encoding the header is refused.
    done = run("draft-schema", "t.csv", "--out", "other.yaml")
    assert done.code == 2
    assert "must be in UTF-8" in done.err


def test_the_tables_of_a_folder(run, folder):
    os.mkdir("tables")
    (folder / "tables/people.csv").write_text("id;sex\n1;f\n")
    (folder / "tables/visits.csv").write_text("id,cost\n1,2\n")
    (folder / "tables/notes.txt").write_text("x")
    done = run("draft-schema", "tables", "--out", "draft.yaml")
    assert done.code == 0, done.err
    found = yaml.safe_load((folder / "draft.yaml").read_text(encoding="utf-8"))["tables"]
    assert {name: [*own["columns"]] for name, own in found.items()} == {
        "people": ["id", "sex"],
        "visits": ["id", "cost"],
    }
    assert found["people"]["delimiter"] == ";"
    assert "delimiter" not in found["visits"]
    (folder / "tables/people.parquet").write_text("")
    done = run("draft-schema", "tables", "--out", "other.yaml")
    assert done.code == 2
    assert "must have one file people.*: it has people.csv, people.parquet" in done.err
    os.mkdir("empty")
    assert "must have tables" in run("draft-schema", "empty", "--out", "other.yaml").err


def test_parts_of_one_table_in_a_folder(run, folder):
    os.mkdir("parts")
    for part in ("a", "b"):
        pd.DataFrame({"age": [1.0], "sex": ["f"]}).to_parquet(f"parts/{part}.parquet")
    done = run("draft-schema", "parts", "--out", "draft.yaml")
    assert done.code == 0, done.err
    found = yaml.safe_load((folder / "draft.yaml").read_text(encoding="utf-8"))
    assert [*found] == ["age", "sex"]


def test_two_columns_of_one_name(run, folder):
    (folder / "t.csv").write_text("n,secret,secret\n1,2,3\n")
    done = run("draft-schema", "t.csv", "--out", "draft.yaml")
    assert done.code == 2
    assert "field 3 has the name of field 2" in done.err
    # In a file without a header they are values.
    assert "secret" not in done.err


def test_a_codebook(run, folder):
    (folder / "codes.csv").write_text(DICTIONARY, encoding="utf-8")
    done = run("draft-schema", "codes.csv", "--out", "draft.yaml")
    assert done.code == 2
    assert "--codebook" in done.err
    done = run("draft-schema", "codes.csv", "--codebook", "--out", "draft.yaml")
    assert done.code == 0
    assert "'income': high" in done.out
    assert "those that occurred" in done.err
    text = (folder / "draft.yaml").read_text(encoding="utf-8")
    assert yaml.safe_load(text)["age"]["high"] == 100
    assert "description: age at entry" in text
    (folder / "draft.yaml").write_text(text.replace("high: '...'", "high: 1000000"))
    assert run("check", "draft.yaml").code == 0


def test_a_table_schema(run, folder):
    fields = [{"name": "age", "type": "integer", "constraints": {"minimum": 0, "maximum": 9}}]
    (folder / "codes.json").write_text(json.dumps({"fields": fields}))
    done = run("draft-schema", "codes.json", "--out", "draft.yaml", "--json")
    assert done.code == 0
    assert done.json["missing"] == {}
    assert run("check", "draft.yaml").code == 0


PACKAGE = {
    "resources": [
        {
            "name": "patients",
            "path": "patients.csv",
            "schema": {
                "fields": [{"name": "id"}, {"name": "smoker", "type": "boolean"}],
                "primaryKey": "id",
            },
        },
        {
            "name": "visits",
            "path": "visits.csv",
            "schema": {
                "fields": [
                    {"name": "patient"},
                    {
                        "name": "cost",
                        "type": "number",
                        "constraints": {"minimum": 0, "maximum": 50},
                    },
                ],
                "foreignKeys": [
                    {"fields": "patient", "reference": {"resource": "patients", "fields": "id"}}
                ],
            },
        },
    ]
}


def test_metadata_of_several_tables(run, folder):
    (folder / "datapackage.json").write_text(json.dumps(PACKAGE))
    done = run("draft-schema", "datapackage.json", "--out", "draft.yaml", "--json")
    assert done.code == 0, done.err
    assert done.json["missing"] == {"visits": ["max_rows"]}
    assert done.json["n_columns"] == 2
    assert "those that occurred" in done.json["warnings"][0]
    text = (folder / "draft.yaml").read_text(encoding="utf-8")
    (folder / "all.yaml").write_text(text.replace("max_rows: '...'", "max_rows: 9"))
    assert run("check", "all.yaml").code == 0
    done = run("draft-schema", "--table", "a=datapackage.json", "--out", "b.yaml")
    assert done.code == 2
    assert "must be given alone" in done.err


@pytest.mark.parametrize("to", ["csvw", "frictionless"])
def test_an_export_and_its_draft(run, folder, to):
    done = run("export-schema", "schema.yaml", "--to", to, "--out", "other.json", "--json")
    assert done.code == 0, done.err
    expected = ["'grade': labels are not texts", "'grade': ordinal: the labels are in their order"]
    assert done.json["notes"] == (expected if to == "csvw" else [])
    assert run("draft-schema", "other.json", "--out", "back.yaml").code == 0
    draft = yaml.safe_load((folder / "back.yaml").read_text(encoding="utf-8"))
    schema = Schema.from_yaml((folder / "schema.yaml").read_text(encoding="utf-8"))
    drafted = Schema.from_dict(draft)
    assert [n for n in schema if drafted[n] != schema[n]] == (["grade"] if to == "csvw" else [])
    done = run("export-schema", "schema.yaml", "--to", to, "--out", "other.json")
    assert done.code == 2
    assert "--overwrite" in done.err
    assert "ending .json" in run("export-schema", "schema.yaml", "--to", to, "--out", "a.yaml").err


def test_an_export_of_tables(run, folder):
    tables = {
        "patients": {
            "columns": {"smoker": {"type": "categorical", "categories": ["no", "yes"]}},
            "primary_key": "id",
        },
        "wards": {
            "columns": {"beds": {"type": "numeric", "low": 0, "high": 99}},
            "primary_key": "ward",
            "public": True,
        },
        "visits": {
            "columns": {"cost": {"type": "numeric", "low": 0, "high": 9}},
            "foreign_key": {"patient": "patients", "ward": "wards"},
            "max_rows": 5,
        },
    }
    (folder / "all.json").write_text(json.dumps({"tables": tables}))
    (folder / "wards.csv").write_text("ward,beds\na,3\n")
    export = ("export-schema", "all.json", "--to", "csvw", "--out", "all-metadata.json")
    assert "--table wards=FILE" in run(*export).err
    done = run(*export, "--table", "wards=wards.csv")
    assert done.code == 0, done.err
    assert "max_rows: 5" in done.out
    document = json.loads((folder / "all-metadata.json").read_text())
    assert [table["url"] for table in document["tables"]] == [f"{name}.csv" for name in tables]


def test_records_are_no_codebook(run):
    done = run("draft-schema", "table.csv", "--codebook", "--out", "draft.yaml")
    assert done.code == 2
    assert "A table of records is refused" in done.err


def test_a_file_is_not_replaced_unasked(run, folder):
    (folder / "draft.yaml").write_text("mine")
    draft = ("draft-schema", "table.csv", "--out")
    assert run(*draft, "draft.yaml").code == 2
    assert (folder / "draft.yaml").read_text() == "mine"
    assert run(*draft, "draft.yaml", "--overwrite").code == 0
    assert "the ending .yaml" in run(*draft, "table.csv", "--overwrite").err
    assert "no folder" in run(*draft, "none/draft.yaml").err


def test_the_json_schema_of_schema_files(run):
    done = run("json-schema", "--out", "words.json", "--json")
    assert done.code == 0, done.err
    with open("words.json", encoding="utf-8") as file:
        assert json.load(file) == json_schema()
    assert done.json["out"] == "words.json"
    assert run("json-schema", "--out", "words.json").code == 2
    assert run("json-schema", "--out", "words.json", "--overwrite").code == 0
    assert run("json-schema", "--out", "words.yaml").code == 2


def test_what_metadata_say_and_a_draft_does_not_declare_is_listed(run, folder):
    """Without this a release of an exported schema would protect rows for persons."""
    (folder / "own.yaml").write_text(
        "unit: who\ncolumns:\n  who: {type: identifier}\n  age: {type: numeric, low: 0, high: 99}\n"
    )
    assert run("export-schema", "own.yaml", "--to", "frictionless", "--out", "p.json").code == 0
    done = run("draft-schema", "p.json", "--out", "again.yaml")
    assert "Noted in comments, and not declared:\n" in done.out
    assert "  unit: who\n" in done.out
    # Of a table, notes are suggestions by names.
    assert "Noted in comments" not in run("draft-schema", "table.csv", "--out", "t.yaml").out
