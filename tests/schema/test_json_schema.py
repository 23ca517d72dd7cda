"""The JSON Schema of schema files: it knows their words, and accepts what a schema writes."""

import inspect
import json
from dataclasses import MISSING, fields, replace

import pandas as pd
import pytest

from sklearn_dpgen.schema import (
    Categorical,
    Datetime,
    FunctionalDependency,
    Identifier,
    Implication,
    Numeric,
    OpenCategorical,
    Ordinal,
    RelationalSchema,
    Schema,
    Table,
    json_schema,
)

COLUMNS = Schema(
    {
        "age": Numeric(0, 120, integer=True, missing=[-999, "unknown"]),
        "wage": Numeric(0, 1e5, step=0.5, nullable=True),
        "code": Categorical(["A01", "A02", "B20"], hierarchy=[1]),
        "group": Categorical(["x", "y"], hierarchy={"x": ["g"], "y": ["h"]}),
        "flag": Categorical([True, False]),
        "grade": Ordinal([1, 2, 3]),
        "town": OpenCategorical(max_labels=50),
        "day": Datetime("2020-01-01", "2021-01-01", resolution="D"),
        "at": Datetime("2020-01-01T00:00", "2021-01-01T00:00", resolution="min", zone="UTC"),
        "id": Identifier(prefix="P"),
    }
)
VISITS = Schema({"day": Datetime("2020-01-01", "2021-01-01", resolution="D"), "n": Numeric(0, 9)})
TABLES = RelationalSchema(
    {
        "people": Table(Schema({"age": Numeric(0, 9)}), primary_key="id"),
        "visits": Table(
            VISITS,
            foreign_key={"id": "people"},
            sequence_index="day",
            max_rows=5,
            ties=False,
            aggregates=["n"],
        ),
        "wards": Table(
            Schema({"beds": Numeric(0, 99)}),
            primary_key="ward",
            frame=pd.DataFrame({"ward": ["a", "b"], "beds": [1.0, 2.0]}),
        ),
    }
)
CLASSES = {
    "numeric": Numeric,
    "categorical": Categorical,
    "open_categorical": OpenCategorical,
    "ordinal": Ordinal,
    "datetime": Datetime,
    "identifier": Identifier,
}


def errors(declaration):
    """Return what a validator says of a declaration."""
    validators = pytest.importorskip("jsonschema")
    validator = validators.Draft202012Validator(json_schema())
    # As an editor reads it: lists and plain values.
    return [*validator.iter_errors(json.loads(json.dumps(declaration)))]


@pytest.mark.parametrize("name", CLASSES)
def test_the_words_of_a_column_are_its_parameters(name):
    found, known = json_schema()["$defs"][name], fields(CLASSES[name])
    more = {"categorical": {"categories_from"}, "open_categorical": {"categories_from"}}
    more["ordinal"] = {"categories_from", "values"}
    assert {*found["properties"]} == {"type", *(f.name for f in known), *more.get(name, ())}
    needed = {f.name for f in known if f.default is MISSING} - {"categories"}
    assert {*found["required"]} == {"type", *needed}
    assert not found["additionalProperties"]


def test_the_words_of_a_table_are_its_parameters():
    found = json_schema()["$defs"]["table"]
    known = {field.name for field in fields(Table)} - {"schema", "frame"}
    assert {*found["properties"]} == {"columns", "public", "delimiter", "encoding", *known}


def test_the_words_beside_columns_are_parameters_of_a_schema():
    found, known = json_schema()["$defs"]["one_table"], inspect.signature(Schema).parameters
    assert {*found["properties"]} == {*known}


def test_it_is_a_valid_json_schema():
    validators = pytest.importorskip("jsonschema")
    validators.Draft202012Validator.check_schema(json_schema())
    assert json.loads(json.dumps(json_schema())) == json_schema()


LONG = COLUMNS._with(
    unit="id",
    rules=[
        "age < 18 => code == 'A01'",
        FunctionalDependency("grade", "flag", {True: 1, False: 2}),
        FunctionalDependency("group", "code", {"A01": "x"}),
        Implication({"code": "A01", "day": pd.Timestamp("2020-02-01")}, {"age": pd.Interval(0, 9)}),
    ],
    delimiter=";",
    encoding="cp1252",
    public="census.csv",
)
RULED = RelationalSchema(
    {
        "people": TABLES["people"],
        "visits": replace(TABLES["visits"], rules=["previous.n <= n", "people.age == 1 => n == 2"]),
        "wards": TABLES["wards"],
    }
)


@pytest.mark.parametrize(
    "schema", [COLUMNS, TABLES, LONG, RULED], ids=["columns", "tables", "long", "ruled"]
)
def test_what_a_schema_writes_is_accepted(schema):
    assert not errors(schema.to_dict())


@pytest.mark.parametrize(
    "column",
    [
        {"type": "categorical", "categories_from": "codes.txt"},
        {"type": "ordinal", "values": [1, 2]},
        {"type": "open_categorical"},
    ],
)
def test_other_ways_to_declare_are_accepted(column):
    assert not errors({"a": column})


@pytest.mark.parametrize(
    "column",
    [
        {"type": "numeric", "low": 0},
        {"type": "numeric", "low": 0, "high": 1, "hihg": 2},
        {"type": "numeric", "low": "0", "high": 1},
        {"type": "numeric", "low": 0, "high": 1, "step": 0},
        {"type": "number", "low": 0, "high": 1},
        {"type": "categorical"},
        {"type": "categorical", "categories": "A"},
        {"type": "categorical", "categories": ["A", "A"]},
        {"type": "categorical", "categories": ["A"], "categories_from": "codes.txt"},
        {"type": "datetime", "low": "2020-01-01", "high": "2021-01-01", "resolution": "week"},
        {"low": 0, "high": 1},
        "numeric",
    ],
    ids=str,
)
def test_what_a_schema_refuses_is_refused(column):
    assert errors({"a": column})
    with pytest.raises(ValueError, match="^Column .a.: "):
        Schema.from_dict({"a": column, "b": {"type": "numeric", "low": 0, "high": 1}})


def test_tables_need_columns_and_no_other_words():
    people = TABLES.to_dict()["tables"]["people"]
    for table in ({}, people | {"key": "id"}, people | {"max_rows": 0}):
        assert errors({"tables": {"people": table}})
