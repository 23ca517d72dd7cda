"""What a schema file declares beside columns: rules, unit, format and public table."""

import copy
import json
import pickle
import traceback
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest

from sklearn_dpgen.schema import (
    Categorical,
    Datetime,
    FunctionalDependency,
    Identifier,
    Implication,
    Inequality,
    Numeric,
    OpenCategorical,
    RelationalSchema,
    Schema,
    Sum,
    Table,
    read_schema,
)

DAY = Datetime("2020-01-01", "2024-12-31", resolution="D")
AMOUNT = Numeric(0, 100, integer=True)
COLUMNS = {
    "patient": Identifier(),
    "admitted": DAY,
    "discharged": DAY,
    "age": Numeric(0, 120, integer=True),
    "status": Categorical(["single", "married"], nullable=True),
    "a": AMOUNT,
    "length of stay": AMOUNT,
    "total": Numeric(0, 200, integer=True),
}
TEXT = """\
unit: patient
rules:
  - admitted <= discharged
  - age < 18 => status == 'single'
  - total == a + `length of stay`
  - {type: functional_dependency, column: status, given: age, mapping: [[17, single], [30, null]]}
delimiter: ";"
encoding: cp1252
public: census.csv
columns:
""" + "".join(f"  {line}\n" for line in Schema(COLUMNS).to_yaml().splitlines())
RULES = (
    Inequality("admitted", "discharged"),
    Implication({"age": [pd.Interval(0.0, 18, closed="left")]}, {"status": ["single"]}),
    Sum("total", ["a", "length of stay"]),
    FunctionalDependency("status", "age", {17: "single", 30: None}),
)


def whole():
    return Schema.from_yaml(TEXT, folder=".")


def test_a_file_states_what_an_object_is_given():
    schema = whole()
    assert schema == Schema(
        COLUMNS,
        unit="patient",
        rules=RULES,
        delimiter=";",
        encoding="cp1252",
        public="census.csv",
    )
    assert schema.rules == RULES
    assert (schema.unit, schema.delimiter, schema.encoding) == ("patient", ";", "cp1252")
    assert schema.public == ("census.csv",)


@pytest.mark.parametrize("form", ["yaml", "json", "dict"])
def test_what_is_written_is_read_as_equal(form):
    schema = whole()
    read, write = getattr(Schema, f"from_{form}"), getattr(schema, f"to_{form}")
    again = read(write(), folder=".")
    assert again == schema
    assert hash(again) == hash(schema)
    for twin in (copy.copy(schema), copy.deepcopy(schema), pickle.loads(pickle.dumps(schema))):
        assert twin == schema


def test_the_flat_form_stays_where_there_is_nothing_else():
    assert [*Schema(COLUMNS).to_dict()] == [*COLUMNS]
    # A column may have the name of a word.
    named = Schema(dict.fromkeys(("columns", "rules", "unit", "public"), AMOUNT))
    assert Schema.from_yaml(named.to_yaml()) == named
    both = Schema({"columns": AMOUNT, "b": AMOUNT}, unit="id")
    assert Schema.from_yaml(both.to_yaml()) == both


@pytest.mark.parametrize(
    "change",
    [
        {"unit": None},
        {"unit": "person"},
        {"rules": ()},
        {"rules": RULES[:2]},
        {"delimiter": ","},
        {"encoding": "utf-8"},
        {"public": ()},
    ],
    ids=str,
)
def test_each_word_counts_for_equality(change):
    schema = whole()
    assert schema._with(**change) != schema
    assert schema._with() == schema


RULES_OF_ALL_KINDS = [
    Inequality("a", "length of stay", strict=True),
    Implication({"age": 30}, {"status": None}),
    Implication({"age": [30, 40], "a": [1]}, {"status": ["single", None]}),
    Implication(
        {"admitted": [pd.Interval(pd.Timestamp("2021-01-01"), pd.Timestamp("2022-01-01"))]},
        {"a": [pd.Interval(0, 50, closed="both"), 70]},
    ),
    Implication(
        {"admitted": pd.Timestamp("2021-01-01")}, {"a": [pd.Interval(1, 2, closed="neither")]}
    ),
    FunctionalDependency("status", ["age", "a"], {(1, 2): "single"}),
]


@pytest.mark.parametrize("rule", RULES_OF_ALL_KINDS, ids=str)
@pytest.mark.parametrize("form", ["yaml", "json"])
def test_a_rule_of_any_kind_is_written_and_read(rule, form):
    schema = Schema(COLUMNS, rules=[rule])
    again = getattr(Schema, f"from_{form}")(getattr(schema, f"to_{form}")())
    # A time may be written as its text, which a rule takes too.
    same = [
        str(r).replace("Timestamp('2021-01-01 00:00:00')", "'2021-01-01T00:00:00'")
        for r in (again.rules[0], rule)
    ]
    assert again == schema or same[0] == same[1]


def test_a_text_is_written_where_one_says_the_same():
    rules = [r for r in Schema(COLUMNS, rules=RULES).to_dict()["rules"] if isinstance(r, str)]
    assert rules == [
        "admitted <= discharged",
        "age < 18 => status == 'single'",
        "total == a + `length of stay`",
    ]


WRONG = {
    "an unknown word": ({"rule": []}, "did you mean 'rules'"),
    "no list": ({"rules": "a <= age"}, "rules must be a list"),
    "an unknown column": ({"rules": ["a <= b"]}, r"rules\[0\] 'a <= b': 'b' is no column"),
    "another form": ({"rules": ["a * 2"]}, r"rules\[0\] must be 'a <= b'"),
    "code": ({"rules": ["a <= age", "__import__('os').x()"]}, r"rules\[1\]"),
    "an unknown type": ({"rules": [{"type": "ordering"}]}, r"rules\[0\]: type must be one of"),
    "a missing word": ({"rules": [{"type": "sum", "total": "a"}]}, r"missing \['parts'\]"),
    "a column of a mapping": (
        {"rules": [{"type": "inequality", "low": "a", "high": "c"}]},
        r"rules\[0\]: 'c' is no column",
    ),
    "a learned unit": ({"unit": "age"}, "unit must be an identifier or no column"),
    "two delimiters": ({"delimiter": ";;"}, "delimiter must be one of"),
    "an encoding": ({"encoding": "klingon"}, "encoding must be a text encoding"),
    "escapes": ({"encoding": "utf-7"}, "encoding must be a text encoding without escapes"),
    "a label without its character": (
        {
            "encoding": "ascii",
            "columns": {"ward": {"type": "categorical", "categories": ["Süd", "Nord"]}},
        },
        "encoding must have all characters",
    ),
    "a path that leads out": ({"public": "../census.csv"}, "public must be in the folder"),
    "an absolute path": ({"public": ["/etc/passwd"]}, "public must be in the folder"),
}


SECRET = "hunter2"
URLS = {
    "a URL": f"postgresql://u:{SECRET}@h/db::t",
    "one slash": f"postgresql:/u:{SECRET}@h/db::t",
    "a parameter": ["census.csv", f"mysql+driver://h/db?password={SECRET}::t"],
    "a path": Path(f"postgresql://u:{SECRET}@h/db"),
    "a file": [f"sqlite:///{SECRET}.db::t", 3],
    "a blank": f" postgresql://u:{SECRET}@h/db::t",
}


@pytest.mark.parametrize("public", URLS.values(), ids=URLS)
def test_public_is_no_url_and_none_is_shown(public, tmp_path):
    with pytest.raises(ValueError, match="public must be a file, not a URL") as caught:
        Schema(COLUMNS, public=public)
    assert SECRET not in "".join(traceback.format_exception(caught.value))
    given = public if isinstance(public, list) else str(public)
    text = json.dumps({"columns": Schema(COLUMNS).to_dict(), "public": given})
    (tmp_path / "schema.json").write_text(text, encoding="utf-8")
    for read in (
        lambda: Schema.from_json(text, folder=tmp_path),
        lambda: Schema.from_yaml(text, folder=tmp_path),
        lambda: read_schema(tmp_path / "schema.json"),
    ):
        with pytest.raises(ValueError, match="not a URL") as caught:
            read()
        assert SECRET not in str(caught.value)
    # The twin: what a schema holds is in all that it writes.
    schema = Schema(COLUMNS, public=f"{SECRET}.csv")
    for shown in (repr(schema), schema.to_yaml(), schema.to_json(), str(schema.public_files)):
        assert SECRET in shown
    Schema(COLUMNS, public=["C:/data/census.csv", "folder/census.csv"])


@pytest.mark.parametrize(("words", "fault"), WRONG.values(), ids=WRONG)
def test_wrong_declarations_are_refused(words, fault):
    declaration = {"columns": Schema(COLUMNS).to_dict()} | words
    with pytest.raises((ValueError, TypeError), match=fault):
        Schema.from_dict(declaration, folder=".")


def test_paths_need_a_folder():
    with pytest.raises(ValueError, match="pass the folder"):
        Schema.from_dict({"columns": Schema(COLUMNS).to_dict(), "public": "census.csv"})


def test_a_public_table_is_in_the_folder_of_the_schema(tmp_path):
    (tmp_path / "schema.yaml").write_text(TEXT, encoding="utf-8")
    schema = read_schema(tmp_path / "schema.yaml")
    assert schema.public_files == [str(tmp_path / "census.csv")]
    assert schema == whole()


def test_a_draft_of_the_long_form_names_its_gaps(tmp_path):
    (tmp_path / "draft.yaml").write_text("unit: '...'\ncolumns:\n  a: {type: '...'}\n")
    with pytest.raises(ValueError, match=r"declare unit, 'a' \(type\)"):
        read_schema(tmp_path / "draft.yaml")


def test_known_labels_keep_the_declarations_of_the_table():
    schema = Schema({"town": OpenCategorical(), "a": AMOUNT}, unit="id", delimiter=";")
    known = schema.with_labels({"town": ["Oslo"]})
    assert (known.unit, known.delimiter) == ("id", ";")


# Tables with keys.

HOSPITAL = """\
tables:
  patients:
    columns:
      born: {type: datetime, low: 2020-01-01, high: 2024-12-31, resolution: D}
      sex: {type: categorical, categories: [f, m]}
    primary_key: patient
  stays:
    delimiter: ";"
    rules:
      - admitted <= discharged
      - previous.discharged < admitted
      - patients.born <= admitted
      - patients.sex == 'm' => ward != 'birth'
    columns:
      admitted: {type: datetime, low: 2020-01-01, high: 2024-12-31, resolution: D}
      discharged: {type: datetime, low: 2020-01-01, high: 2024-12-31, resolution: D}
      ward: {type: categorical, categories: [birth, other]}
    foreign_key: {patient: patients}
    sequence_index: admitted
    max_rows: 5
"""
STAYS = (
    Inequality("admitted", "discharged"),
    Inequality("previous.discharged", "admitted", strict=True),
    Inequality("patients.born", "admitted"),
    Implication({"patients.sex": ["m"]}, {"ward": ["other"]}),
)


def test_rules_of_tables_name_rows_above_and_before():
    schema = RelationalSchema.from_yaml(HOSPITAL)
    assert schema.rules == {"stays": STAYS}
    assert schema["stays"].schema.delimiter == ";"
    assert RelationalSchema.from_yaml(schema.to_yaml()) == schema
    assert RelationalSchema.from_json(schema.to_json()) == schema
    written = schema.to_dict()["tables"]["stays"]["rules"]
    assert written[:3] == [
        "admitted <= discharged",
        "previous.discharged < admitted",
        "patients.born <= admitted",
    ]
    without = replace(schema["stays"], rules=())
    assert RelationalSchema({"patients": schema["patients"], "stays": without}) != schema


@pytest.mark.parametrize(
    ("rule", "fault"),
    [
        ("sex == 'f' => ward == 'other'", None),
        ("born <= discharge", r"Table 'stays': rules\[0\] .*'discharge' is no column"),
        ("wards.beds <= admitted", r"'wards.beds' is no column"),
        ("previous.born <= admitted", r"'previous.born' is no column"),
    ],
)
def test_rules_of_tables_are_checked(rule, fault):
    schema = RelationalSchema.from_yaml(HOSPITAL)
    tables = dict(schema) | {"stays": replace(schema["stays"], rules=[rule])}
    if fault is None:
        # A name that one table above has needs no prefix.
        (found,) = RelationalSchema(tables).rules["stays"]
        assert [*found.given] == ["patients.sex"]
    else:
        with pytest.raises(ValueError, match=fault):
            RelationalSchema(tables)


def test_a_panel_reads_its_rules_itself():
    columns = Schema({"year": AMOUNT, "a": AMOUNT, "b": AMOUNT})
    panel = Table(
        columns, primary_key="id", sequence_index="year", max_rows=3, rules=["previous.a <= b"]
    )
    assert panel.rules == (Inequality("previous.a", "b"),)


def test_words_of_a_schema_that_a_table_has_itself_are_refused():
    for word in ({"unit": "id"}, {"rules": ["a <= b"]}, {"public": "census.csv"}):
        columns = Schema({"a": AMOUNT, "b": AMOUNT}, **word)
        with pytest.raises(ValueError, match=f"schema must have no {next(iter(word))}"):
            Table(columns, primary_key="id")
