"""check: what of a table does not fit is counted, and told apart by whether a fit would stop."""

import pandas as pd
import pytest


def test_a_schema_alone(run):
    done = run("check", "schema.yaml", "--json")
    assert done.code == 0
    assert done.json == {
        "command": "check",
        "ok": True,
        "schema": "schema.yaml",
        "n_columns": 3,
        "warnings": [],
    }


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("age: {type: numeric, low: 1}", "missing ['high']"),
        ("age: {type: numeric, low: 3, high: 2}", "low must be smaller"),
        ("age: {type: number, low: 1, high: 2}", "type must be one of"),
        ("age: {type: numeric, low: '...', high: 2}", "is a draft: declare 'age' (low)"),
        ("age: {type: categorical, categories: [true, 1]}", "must be distinct"),
        ("- age", "must map column names"),
        ("age: 3", "Column 'age'"),
        ("", "must map column names"),
        ("age: [", "must be valid YAML: see line"),
        ("a: {type: categorical, categories: [x]}", "At least one column must be neither constant"),
    ],
)
def test_a_schema_that_is_none(run, folder, text, said):
    (folder / "schema.yaml").write_text(text, encoding="utf-8")
    done = run("check", "schema.yaml", "--json")
    assert done.code == 1
    assert not done.json["ok"]
    assert said in done.json["fault"]
    done = run("check", "schema.yaml", "table.csv")
    assert done.code == 1
    assert said in done.out


def test_a_schema_of_json(run, folder):
    text = '{"age": {"type": "numeric", "low": 0, "high": 99}}'
    (folder / "schema.json").write_text(text, encoding="utf-8")
    assert run("check", "schema.json", "table.csv").code == 0
    (folder / "schema.json").write_text(text[:-3], encoding="utf-8")
    assert "must be valid JSON: see line 1" in run("check", "schema.json").out


@pytest.mark.parametrize("form", ["csv", "parquet"])
def test_a_table_that_fits(run, form):
    done = run("check", "schema.yaml", f"table.{form}", "--json")
    assert done.code == 0
    assert done.json["faults"] == {}
    assert done.json["n_rows"] == 200
    assert done.json["private"] is True
    assert done.json["note"].startswith("PRIVATE: these are exact counts")
    assert run("check", "schema.yaml", "table.csv").out.startswith(done.json["note"])


@pytest.mark.parametrize("form", ["csv", "parquet"])
def test_what_is_clipped_is_shown_and_no_failure(run, form):
    table = pd.DataFrame({"age": [17.0, 31.5, 200.0], "smoker": [None, "no", "yes"], "grade": 1})
    write = table.to_csv if form == "csv" else table.to_parquet
    write(f"table.{form}", index=False)
    done = run("check", "schema.yaml", f"table.{form}", "--json")
    assert done.code == 0
    assert done.json["faults"] == {"age": {"outside_bounds": 2, "not_integer": 1}}


def test_what_stops_a_fit(run):
    smokers = ["no", "pipe", "pipe"]
    table = pd.DataFrame({"age": [31, 32, 33], "smoker": smokers, "grade": [1, 2, None]})
    table.to_parquet("table.parquet")
    done = run("check", "schema.yaml", "table.parquet", "--json")
    assert done.code == 1
    assert done.json["faults"] == {"smoker": {"undeclared": 2}, "grade": {"null": 1}}
    text = run("check", "schema.yaml", "table.parquet").out
    assert "'smoker': 2 values not among the declared labels  STOPS A FIT" in text
    assert "pipe" not in text


def test_texts_among_numbers_are_counted_by_column(run, folder):
    rows = ["31,no,1", "thirty,no,2", "n/a,no,two", ",no,", "33,,3", "17,yes,9"]
    (folder / "table.csv").write_text("age,smoker,grade\n" + "\n".join(rows), encoding="utf-8")
    done = run("check", "schema.yaml", "table.csv", "--json")
    assert done.code == 1
    assert done.json["fault"] is None
    assert done.json["faults"] == {
        "age": {"outside_bounds": 1, "null": 1, "unreadable": 2},
        "grade": {"undeclared": 2, "null": 1},
    }


def test_truth_values_of_text(run, folder):
    (folder / "schema.yaml").write_text(
        "ok: {type: categorical, categories: [false, true]}\na: {type: numeric, low: 0, high: 9}"
    )
    (folder / "table.csv").write_text("ok,a\ntrue,1\nFalse,2\nmaybe,3\n1,x\n")
    done = run("check", "schema.yaml", "table.csv", "--json")
    assert done.json["faults"] == {"ok": {"undeclared": 1}, "a": {"unreadable": 1}}


@pytest.mark.parametrize("form", ["csv", "parquet"])
def test_undeclared_columns_are_listed(run, form):
    table = pd.read_csv("table.csv").assign(ward="A", who=range(200))
    getattr(table, f"to_{form}")(f"table.{form}", index=False)
    done = run("check", "schema.yaml", f"table.{form}", "--unit", "who", "--json")
    assert done.code == 0
    assert done.json["undeclared_columns"] == ["ward"]
    text = run("check", "schema.yaml", f"table.{form}").out
    assert "Not in the schema, and not read by a fit: 'ward', 'who'" in text
    assert "The table fits the schema." in text


def test_where_a_declared_column_is_missing_the_others_are_not_named(run):
    """The first line may then be a record of a file without a header."""
    table = pd.read_csv("table.csv").rename(columns={"grade": "secret"})
    table.to_csv("table.csv", index=False)
    done = run("check", "schema.yaml", "table.csv")
    assert done.code == 1
    assert "missing ['grade']" in done.out
    assert "secret" not in done.all
    # Other letters of a declared name are offered.
    table.rename(columns={"secret": "Grade"}).to_csv("table.csv", index=False)
    assert "The table has 'grade' as 'Grade'" in run("check", "schema.yaml", "table.csv").out


def test_rows_of_other_lengths(run, folder):
    with open("table.csv", "a", encoding="utf-8") as file:
        file.write("1,2,3,4\n")
    done = run("check", "schema.yaml", "table.csv")
    assert done.code == 1
    assert "the record in line 202 of 'table.csv' has 4, and the header 3" in done.out


def test_a_unit(run):
    table = pd.read_csv("table.csv")
    table.assign(who="x").to_csv("persons.csv", index=False)
    assert run("check", "schema.yaml", "persons.csv", "--unit", "who").code == 0
    done = run("check", "schema.yaml", "table.csv", "--unit", "who")
    assert done.code == 2
    assert "--unit must be a column of the table, got 'who'" in done.err
    done = run("check", "schema.yaml", "table.csv", "--unit", "age")
    assert done.code == 2
    assert "must be an identifier of the schema" in done.err


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("schema.yaml", "none.csv"), "There is no table none.csv"),
        (("schema.yaml", "table.docx"), "must have one of the endings"),
        (("none.yaml",), "none.yaml"),
        (("table.csv",), "one of the endings .yaml"),
    ],
)
def test_wrong_use(run, arguments, said):
    done = run("check", *arguments)
    assert done.code == 2 if "schema.yaml" in arguments else done.code in (1, 2)
    assert said in done.all


@pytest.fixture
def visits(run, folder):
    """A table of persons with one to three rows each, 20 of them with more than one."""
    (folder / "visits.yaml").write_text(
        "patient: {type: identifier}\ngrade: {type: ordinal, values: [1, 2, 3]}\n"
    )
    ids = [*range(10), *sorted([*range(10, 30)] * 2), 10]
    pd.DataFrame({"patient": ids, "grade": [1, 2, 3] * 17}).to_csv("visits.csv", index=False)
    pd.read_csv("visits.csv").to_parquet("visits.parquet", index=False)
    return folder


@pytest.mark.parametrize("form", ["csv", "parquet"])
def test_identifiers_that_are_repeated_are_counted(run, visits, form):
    done = run("check", "visits.yaml", f"visits.{form}", "--json")
    assert done.code == 0
    assert done.json["faults"] == {"patient": {"repeated": 41}}
    done = run("check", "visits.yaml", f"visits.{form}")
    assert "--unit patient protects each person" in done.out
    assert "The table fits the schema." in done.out
    # The twins: with the unit nothing is said, nor where each is there once.
    done = run("check", "visits.yaml", f"visits.{form}", "--unit", "patient", "--json")
    assert (done.code, done.json["faults"]) == (0, {})
    table = pd.read_csv("visits.csv").drop_duplicates("patient")
    table.to_csv("once.csv", index=False)
    assert run("check", "visits.yaml", "once.csv", "--json").json["faults"] == {}


@pytest.mark.parametrize("form", ["csv", "parquet"])
def test_rows_that_name_no_person_stop_a_fit(run, visits, form):
    table = pd.read_csv("visits.csv").astype({"patient": "Int64"})
    table.loc[:5, "patient"] = pd.NA
    getattr(table, f"to_{form}")(f"some.{form}", index=False)
    done = run("check", "visits.yaml", f"some.{form}", "--unit", "patient", "--json")
    assert (done.code, done.json["faults"]) == (1, {"patient": {"unnamed": 6}})
    done = run("check", "visits.yaml", f"some.{form}", "--unit", "patient")
    assert "'patient': 6 values missing, but --unit" in done.out
    fit = ("synthesize", f"some.{form}", "--schema", "visits.yaml", "--epsilon", "1", "--out", "a")
    refused = run(*fit, "--unit", "patient")
    assert refused.code == 2
    assert "must name a person in every row" in refused.err
    # The twin: without the unit the column is not read.
    assert run("check", "visits.yaml", f"some.{form}").code == 0


def test_identifiers_are_compared_across_files(run, visits):
    table = pd.read_csv("visits.csv").drop_duplicates("patient")
    for name in ("part-1.csv", "part-2.csv"):
        table.to_csv(name, index=False)
    done = run("check", "visits.yaml", "part-*.csv", "--json")
    assert done.json["faults"] == {"patient": {"repeated": 60}}


@pytest.mark.slow
def test_a_fit_says_who_is_protected_by_the_identifiers(run, visits):
    fit = ("synthesize", "visits.csv", "--schema", "visits.yaml", "--epsilon", "1", "--json")
    whole, rows = run(*fit, "--unit", "patient", "--out", "a"), run(*fit, "--out", "b")
    assert (whole.code, rows.code) == (0, 0)
    assert (whole.json["report"]["unit"], rows.json["report"]["unit"]) == ("patient", None)
    assert (whole.json["rows"], rows.json["rows"]) == (30, 51)
    assert pd.read_csv("a/synthetic.csv")["patient"].tolist() == list(range(30))
    assert "--unit patient protects them as a whole" in rows.err
    assert "protects them as a whole" not in whole.err
    card = (visits / "a" / "card.md").read_text()
    assert "each person, with all records that have one value in patient" in card
    assert "number of persons | 30" in card.replace("\\", "")
    card = (visits / "b" / "card.md").read_text()
    assert "A person with several records is not protected as a whole" in card


HIERARCHY = "code: {type: categorical, categories_from: codes.txt, hierarchy: [1]}\n"


@pytest.mark.slow
def test_labels_of_a_file_beside_the_schema(run, folder):
    (folder / "public").mkdir()
    (folder / "public" / "schema.yaml").write_text(HIERARCHY, encoding="utf-8")
    (folder / "public" / "codes.txt").write_text("A1\nB1\nA2\n", encoding="utf-8")
    codes = ["A1", "B1", "C1"] * 20
    pd.DataFrame({"code": codes}).to_csv("codes.csv", index=False)
    done = run("check", "public/schema.yaml", "codes.csv", "--json")
    assert done.json["faults"] == {"code": {"undeclared": 20}}
    pd.DataFrame({"code": codes}).replace("C1", "A2").to_csv("codes.csv", index=False)
    budget = ("--epsilon", 3, "--delta", 1e-5)
    assert run("plan", "--schema", "public/schema.yaml", "--rows", 60, *budget).code == 0
    done = run("synthesize", "codes.csv", "--schema", "public/schema.yaml", *budget, "--out", "out")
    assert done.code == 0
    assert set(pd.read_csv("out/synthetic.csv")["code"]) <= {"A1", "A2", "B1"}
    # The model has the labels, and needs no file.
    (folder / "public" / "codes.txt").unlink()
    done = run("sample", "out/model.safetensors", "--rows", 5, "--out", "more.csv")
    assert done.code == 0
    assert len(pd.read_csv("more.csv")) == 5


def test_other_files_are_not_read(run, folder):
    (folder / "codes.txt").write_text("A1\nA1\n", encoding="utf-8")
    (folder / "schema.yaml").write_text(HIERARCHY, encoding="utf-8")
    done = run("check", "schema.yaml")
    assert (done.code, "distinct" in done.all, "A1" in done.all) == (1, True, False)
    (folder / "public").mkdir()
    text = HIERARCHY.replace("codes.txt", "../codes.txt")
    (folder / "public" / "schema.yaml").write_text(text, encoding="utf-8")
    done = run("check", "public/schema.yaml")
    assert done.code == 1
    assert "in the folder of the schema" in done.all


RULES = """\
columns:
  start: {type: datetime, low: 2020-01-01, high: 2024-12-31, resolution: D, nullable: true}
  end: {type: datetime, low: 2020-01-01, high: 2024-12-31, resolution: D}
  a: {type: numeric, low: 0, high: 9, integer: true}
  b: {type: numeric, low: 0, high: 9, integer: true}
  c: {type: numeric, low: 0, high: 18, integer: true}
  sex: {type: categorical, categories: [f, m]}
  pregnant: {type: categorical, categories: ["no", "yes"], nullable: true}
rules: [start <= end, c == a + b, sex == 'm' => pregnant == 'no']
"""


@pytest.mark.parametrize("form", ["csv", "parquet"])
def test_rows_that_break_rules_are_counted(run, folder, form):
    (folder / "schema.yaml").write_text(RULES, encoding="utf-8")
    table = pd.DataFrame(
        [
            ("2021-01-01", "2021-02-01", 1, 2, 3, "f", "yes"),
            ("2021-03-01", "2021-02-01", 1, 2, 4, "m", "no"),
            (None, "2021-02-01", 1, 2, 3, "m", "yes"),
            ("2021-03-01", "2021-03-01", 9, 9, 18, "m", None),
            ("2022-03-01", "2021-03-01", 0, 0, 1, "f", "no"),
        ],
        columns=["start", "end", "a", "b", "c", "sex", "pregnant"],
    )
    first = 2 if form == "csv" else 1
    write = table.to_csv if form == "csv" else table.to_parquet
    write(f"table.{form}", index=False)
    done = run("check", "schema.yaml", f"table.{form}", "--json")
    assert done.code == 0
    assert done.json["private"]
    found = [(rule["count"], [*rule["places"]]) for rule in done.json["rules"]]
    word = "line" if form == "csv" else "row"
    expected = [(2, [1, 4]), (2, [1, 4]), (1, [2])]
    assert found == [(n, [{word: p + first} for p in places]) for n, places in expected]
    text = run("check", "schema.yaml", f"table.{form}").out
    assert "2 rows break the rule 'start <= end'; no synthetic row does" in text
    assert "1 row breaks the rule" in text
    # The twin: the rules hold, and nothing is said.
    write_kept = table.iloc[[0]].to_csv if form == "csv" else table.iloc[[0]].to_parquet
    write_kept(f"table.{form}", index=False)
    assert "the rule" not in run("check", "schema.yaml", f"table.{form}").out


def test_values_that_are_not_read_break_no_rule(run, folder):
    (folder / "schema.yaml").write_text(RULES, encoding="utf-8")
    rows = "start,end,a,b,c,sex,pregnant\nx,2021-01-01,1,x,3,z,yes\n"
    (folder / "table.csv").write_text(rows, encoding="utf-8")
    done = run("check", "schema.yaml", "table.csv", "--json")
    assert [rule["count"] for rule in done.json["rules"]] == [0, 0, 0]


def test_a_folder_of_other_files_is_no_table(run, folder):
    (folder / "both").mkdir()
    (folder / "parts").mkdir()
    table = pd.read_csv("table.csv")
    for i in range(2):
        table.to_csv(f"both/t{i}.csv", index=False)
        pd.read_parquet("table.parquet").to_parquet(f"parts/t{i}.parquet")
    done = run("check", "schema.yaml", "both")
    assert done.code != 0
    assert "both is a folder: a schema of one table needs a file" in done.all
    # The twin: parts of one table.
    assert run("check", "schema.yaml", "parts", "--json").json["n_rows"] == 400
