"""draft-schema: names and types, never a value, and nothing that is taken for a schema unseen."""

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
    assert "Review every line" in text
    assert "review them" in done.json["warnings"][0]
    # No command takes a draft for a schema.
    assert run("check", "draft.yaml").code == 1
    assert "is a draft" in run("plan", "--schema", "draft.yaml", "--rows", 9, "--epsilon", 1).err


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


@pytest.mark.parametrize("names", ["31,no,1", "a,,b", "1.5,a,b", "2020-01-01,a,b"])
def test_a_table_without_a_header_is_refused(run, folder, names):
    (folder / "t.csv").write_text(f"{names}\n32,yes,2\n")
    done = run("draft-schema", "t.csv", "--out", "draft.yaml")
    assert done.code == 2
    assert "needs a header" in done.err
    assert names not in done.all
    assert not (folder / "draft.yaml").exists()


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
    assert "# age at entry" in text
    (folder / "draft.yaml").write_text(text.replace("high: '...'", "high: 1000000"))
    assert run("check", "draft.yaml").code == 0


def test_a_table_schema(run, folder):
    fields = [{"name": "age", "type": "integer", "constraints": {"minimum": 0, "maximum": 9}}]
    (folder / "codes.json").write_text(json.dumps({"fields": fields}))
    done = run("draft-schema", "codes.json", "--out", "draft.yaml", "--json")
    assert done.code == 0
    assert done.json["missing"] == {}
    assert run("check", "draft.yaml").code == 0


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
