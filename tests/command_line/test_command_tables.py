"""check and draft-schema of tables with keys: one file for each table, and nothing guessed."""

import pandas as pd
import pytest
import yaml

from sklearn_dpgen.schema import RelationalSchema

HOSPITAL = """\
tables:
  patients:
    columns:
      sex: {type: categorical, categories: [f, m]}
    primary_key: patient
  visits:
    columns:
      day: {type: datetime, low: '2020-01-01', high: '2024-12-31', resolution: D}
      cost: {type: numeric, low: 0, high: 5000}
    foreign_key: {patient: patients}
    sequence_index: day
    max_rows: 2
    ties: false
"""
WARDS = """\
  wards:
    columns:
      beds: {type: numeric, low: 0, high: 100}
    primary_key: ward
    public: true
"""
PANEL = """\
tables:
  survey:
    columns:
      sex: {type: categorical, categories: [f, m]}
      year: {type: numeric, low: 2010, high: 2020, integer: true}
    primary_key: person
    sequence_index: year
    max_rows: 2
    static: [sex]
"""
BOTH = ("--table", "patients=patients.csv", "--table", "visits=visits.csv")


@pytest.fixture
def hospital(folder):
    """Two tables that fit their relational schema."""
    (folder / "hospital.yaml").write_text(HOSPITAL)
    patients = pd.DataFrame({"patient": [1, 2, 3], "sex": ["f", "m", "f"]})
    days = ["2020-01-01", "2020-01-02", "2020-01-01"]
    visits = pd.DataFrame({"patient": [1, 1, 3], "day": days, "cost": 7.5, "note": "secret"})
    for name, table in {"patients": patients, "visits": visits}.items():
        table.to_csv(f"{name}.csv", index=False)
        table.to_parquet(f"{name}.parquet")
    return folder


def test_a_relational_schema_alone(run, hospital):
    done = run("check", "hospital.yaml", "--json")
    assert (done.code, done.json["n_columns"], done.json["n_tables"]) == (0, 3, 2)
    assert "private" not in done.json
    assert "of 3 columns in 2 tables" in run("check", "hospital.yaml").out


@pytest.mark.parametrize("form", ["csv", "parquet"])
def test_tables_that_fit(run, hospital, form):
    tables = [text.replace("csv", form) for text in BOTH]
    done = run("check", "hospital.yaml", *tables, "--json")
    assert (done.code, done.json["private"]) == (0, True)
    empty = {"fault": None, "faults": {}, "places": {}, "hints": []}
    empty |= {"undeclared_columns": [], "repeated_keys": []}
    assert done.json["tables"] == {
        "patients": empty | {"n_rows": 3},
        "visits": empty | {"undeclared_columns": ["note"], "n_rows": 3},
    }
    text = run("check", "hospital.yaml", *tables).out
    assert text.startswith("PRIVATE: these are exact counts")
    assert "The tables fit the schema.\n" in text
    assert "secret" not in text


def test_keys_and_rows_are_counted_and_stop_no_fit(run, hospital):
    (hospital / "patients.csv").write_text("patient,sex\n1,f\n1,m\n2,f\n,m\n")
    rows = ["1,2020-01-01,1", "1,2020-01-01,-2", "1,2020-01-03,3", "9,2020-01-01,4", ",2020-01-01,"]
    (hospital / "visits.csv").write_text("\n".join(["patient,day,cost", *rows[:4]]))
    done = run("check", "hospital.yaml", *BOTH, "--json")
    assert done.code == 0
    assert {name: table["faults"] for name, table in done.json["tables"].items()} == {
        "patients": {"patient": {"repeated": 2, "missing_key": 1}},
        "visits": {
            "patient": {"orphan": 1, "over_max_rows": 1},
            "day": {"tied": 2},
            "cost": {"outside_bounds": 1},
        },
    }
    text = run("check", "hospital.yaml", *BOTH).out
    assert "'patient': 1 value without a row in the parent table; a fit drops these rows\n" in text
    assert "The tables fit the schema, but for the above." in text
    # The twin: a missing value of a column stops a fit.
    (hospital / "visits.csv").write_text("\n".join(["patient,day,cost", *rows]))
    done = run("check", "hospital.yaml", *BOTH)
    assert done.code == 1
    assert "'cost': 1 value missing in a column that is not declared nullable  STOPS" in done.out
    assert "The tables do not fit the schema." in done.out


def test_a_fit_stops_at_keys_that_a_public_table_lacks(run, hospital):
    declared = HOSPITAL.replace("{patient: patients}", "{patient: patients, ward: wards}")
    (hospital / "hospital.yaml").write_text(declared + WARDS)
    (hospital / "wards.csv").write_text("ward,beds\nA,10\nB,20\n")
    tables = (*BOTH, "--table", "wards=wards.csv")
    head, rows = "patient,day,cost,ward\n", ["1,2020-01-01,1,A", "3,2020-01-01,1,B"]
    (hospital / "visits.csv").write_text(head + "\n".join(rows))
    assert run("check", "hospital.yaml", *tables).code == 0
    (hospital / "visits.csv").write_text(head + "\n".join([*rows, "1,2020-01-02,1,C"]))
    done = run("check", "hospital.yaml", *tables)
    assert done.code == 1
    assert "'ward': 1 value not among the keys of the public table  STOPS A FIT" in done.out
    (hospital / "visits.csv").write_text(head + "\n".join([*rows, "1,2020-01-02,1,"]))
    done = run("check", "hospital.yaml", *tables)
    assert done.code == 1
    assert "'ward': 1 value missing in the key of a public table  STOPS A FIT" in done.out


@pytest.mark.parametrize("form", ["csv", "parquet"])
def test_a_draft_of_one_table_refuses_files_of_two(run, hospital, form):
    files = [f"patients.{form}", f"visits.{form}"]
    done = run("draft-schema", *files, "--out", "draft.yaml")
    assert done.code == 2
    assert "name each by --table" in done.err
    assert not (hospital / "draft.yaml").exists()
    (hospital / f"more.{form}").write_bytes((hospital / files[1]).read_bytes())
    assert run("draft-schema", files[1], f"more.{form}", "--out", "draft.yaml").code == 0


def test_texts_among_numbers_are_counted(run, hospital):
    (hospital / "visits.csv").write_text("patient,day,cost\n1,2020-01-01,secret\n1,x,2\n")
    done = run("check", "hospital.yaml", *BOTH, "--json")
    assert done.code == 1
    faults = {"day": {"unreadable": 1}, "cost": {"unreadable": 1}}
    assert done.json["tables"]["visits"]["faults"] == faults
    assert "secret" not in done.all


def test_a_table_that_cannot_be_read(run, hospital):
    (hospital / "visits.csv").write_text("31,2020-01-01,secret\n")
    done = run("check", "hospital.yaml", *BOTH, "--json")
    assert done.code == 1
    assert "missing ['patient', 'day', 'cost']" in done.json["tables"]["visits"]["fault"]
    assert "secret" not in done.all


def test_several_files_of_a_table(run, hospital):
    pd.read_csv("visits.csv").to_csv("visits-2.csv", index=False)
    second = ("--table", "visits=visits-2.csv")
    done = run("check", "hospital.yaml", *BOTH, *second, "--json")
    assert done.json["tables"]["visits"]["faults"]["day"] == {"tied": 6}
    wildcard = run("check", "hospital.yaml", *BOTH[:2], "--table", "visits=visits*.csv", "--json")
    assert wildcard.json == done.json


def test_a_panel_needs_no_name(run, folder):
    (folder / "survey.yaml").write_text(PANEL)
    rows = ["1,f,2010", "1,m,2011", "1,f,2012", "2,m,2010"]
    (folder / "survey.csv").write_text("\n".join(["person,sex,year", *rows]))
    done = run("check", "survey.yaml", "survey.csv", "--json")
    assert done.code == 0
    assert done.json["tables"]["survey"]["faults"] == {
        "sex": {"changing": 1},
        "person": {"over_max_rows": 1},
    }
    named = run("check", "survey.yaml", "--table", "survey=survey.csv", "--json")
    assert named.json == done.json


def test_public_tables_are_given_by_files(run, hospital):
    text = HOSPITAL.replace("{patient: patients}", "{patient: patients, ward: wards}")
    (hospital / "hospital.yaml").write_text(text + WARDS)
    done = run("check", "hospital.yaml")
    assert done.code == 1
    assert "--table wards=FILE must give the rows of the public table 'wards'" in done.out
    (hospital / "wards.csv").write_text("ward,beds\n1,10\n2,20\n")
    public = ("--table", "wards=wards.csv")
    assert run("check", "hospital.yaml", *public).code == 0
    table = pd.read_csv("visits.csv").assign(ward=[1, 3, 2])
    table.to_csv("visits.csv", index=False)
    done = run("check", "hospital.yaml", *BOTH, *public, "--json")
    assert done.json["tables"]["visits"]["faults"] == {"ward": {"orphan_public": 1}}
    assert list(done.json["tables"]) == ["patients", "visits"]
    (hospital / "hospital.yaml").write_text(text + WARDS.replace("primary_key: ward", "ties: true"))
    done = run("check", "hospital.yaml", *public)
    assert "Table 'wards': A public table, with a frame, must have primary_key" in done.out


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("hospital.yaml", "visits.csv"), "must name the table of each file: ['patients', 'visi"),
        (("hospital.yaml", *BOTH[:2]), "--table must give each private table, and ['visits'] are"),
        (("hospital.yaml", *BOTH, "--table", "x=visits.csv"), "must name tables of the schema"),
        (("hospital.yaml", "--table", "visits.csv"), "must be NAME=FILE, got 'visits.csv'"),
        (("hospital.yaml", "--table", "visits=none.csv"), "There is no table none.csv"),
        (("hospital.yaml", *BOTH, "--unit", "patient"), "--unit must be left out"),
        (("schema.yaml", *BOTH), "--table must be left out: the schema is that of one table"),
    ],
)
def test_wrong_use(run, hospital, arguments, said):
    done = run("check", *arguments)
    assert done.code == 2
    assert said in done.err


@pytest.mark.parametrize("unit", [(), ("--unit", "who")])
def test_a_repeated_key_of_one_table_points_to_the_relational_schema(run, folder, unit):
    (folder / "schema.yaml").write_text(
        "who: {type: identifier}\na: {type: numeric, low: 0, high: 9}"
    )
    (folder / "table.csv").write_text("who,a\n1,1\n1,2\n2,3\n")
    done = run("check", "schema.yaml", "table.csv", *unit, "--json")
    assert (done.code, done.json["repeated_keys"]) == (0, ["who"])
    hint = "Several rows share a value of 'who': a relational schema"
    assert hint in run("check", "schema.yaml", "table.csv", *unit).out
    # The twin: without repetition nothing is said.
    (folder / "table.csv").write_text("who,a\n1,1\n3,2\n2,3\n")
    done = run("check", "schema.yaml", "table.csv", *unit, "--json")
    assert (done.code, done.json["repeated_keys"]) == (0, [])
    assert hint not in run("check", "schema.yaml", "table.csv", *unit).out


def test_a_repeated_unit_that_is_not_declared_is_noticed(run, folder):
    pd.read_csv("table.csv").assign(who=1).to_csv("table.csv", index=False)
    done = run("check", "schema.yaml", "table.csv", "--unit", "who", "--json")
    assert (done.code, done.json["repeated_keys"], done.json["faults"]) == (0, ["who"], {})


def drafted(run, folder, *tables):
    done = run("draft-schema", *tables, "--out", "draft.yaml", "--overwrite", "--json")
    assert done.code == 0, done.err
    return done.json, (folder / "draft.yaml").read_text(encoding="utf-8")


def test_a_draft_of_tables_leaves_the_keys_to_declare(run, hospital):
    document, text = drafted(run, hospital, *BOTH)
    draft = yaml.safe_load(text)["tables"]
    keys = ["primary_key", "foreign_key", "sequence_index", "max_rows"]
    assert {name: [*entry] for name, entry in draft.items()} == {
        "patients": ["columns", *keys],
        "visits": ["columns", *keys],
    }
    columns = {name: {"type": "..."} for name in ("patient", "day", "cost", "note")}
    # By its name.
    columns["cost"] = {"type": "numeric", "low": "...", "high": "..."}
    assert draft["visits"]["columns"] == columns
    assert document["n_columns"] == 6
    assert document["missing"]["patients"] == keys
    assert document["missing"]["visits.day"] == ["type"]
    assert "# Columns in several tables: ['patient']" in text
    assert "secret" not in text
    done = run("check", "draft.yaml", *BOTH)
    assert done.code == 1
    assert "is a draft: declare 'patients' (primary_key, foreign_key, sequence_in" in done.out
    assert "'visits.day' (type)" in done.out


def test_a_draft_of_one_table_may_be_a_panel(run, folder):
    _, text = drafted(run, folder, "--table", "a: 'b=table.parquet")
    entry = yaml.safe_load(text)["tables"]["a: 'b"]
    assert [*entry] == ["columns", "primary_key", "sequence_index", "max_rows", "static"]
    assert entry["columns"]["age"] == {
        "type": "numeric",
        **dict.fromkeys(("low", "high", "integer"), "..."),
    }
    _, text = drafted(run, folder, "table.csv")
    assert "tables" not in yaml.safe_load(text)
    assert "--table NAME=FILE" in text


def test_a_draft_of_codebooks(run, folder):
    (folder / "a.csv").write_text("name,type,min,max,label\nage,integer,0,100,in years\n")
    (folder / "b.csv").write_text('name,type,values\nkind,string,"x, y"\n')
    document, text = drafted(run, folder, "--codebook", "--table", "a=a.csv", "--table", "b=b.csv")
    assert "        description: in years\n" in text
    assert {*document["missing"]} == {"a", "b"}
    draft = yaml.safe_load(text)["tables"]
    keys = {"a": {"primary_key": "who"}, "b": {"foreign_key": {"who": "a"}, "max_rows": 5}}
    tables = {name: {"columns": draft[name]["columns"]} | keys[name] for name in keys}
    schema = RelationalSchema.from_dict({"tables": tables})
    assert (schema.root, schema.children("a"), schema["b"].max_rows) == ("a", ["b"], 5)


def test_records_decide_nothing_in_a_draft_of_tables(run, hospital):
    """Whether a key repeats is private, and no reason to take a column for a key."""

    def guessed():
        frame = pd.read_csv("visits.csv")
        return "patient" if frame["patient"].duplicated().any() else None

    drafts, guesses = [], []
    for ids in ([1, 1, 3], [1, 2, 3]):
        pd.read_csv("visits.csv").assign(patient=ids).to_csv("visits.csv", index=False)
        drafts.append(drafted(run, hospital, *BOTH))
        guesses.append(guessed())
    assert drafts[0] == drafts[1]
    # Negative twin: a guess from the records tells the neighbours apart.
    assert guesses[0] != guesses[1]


@pytest.mark.parametrize("arguments", [(), ("table.csv", "--table", "a=table.csv")])
def test_a_draft_is_of_files_or_of_tables(run, folder, arguments):
    done = run("draft-schema", *arguments, "--out", "draft.yaml")
    assert done.code == 2
    assert "Give either the files of one table, or each table by --table" in done.err
