"""Schemas of other formats: what is read, what becomes a gap or a note, and round trips."""

import json

import pandas as pd
import pytest
import yaml
from declared_columns import columns as any_columns
from declared_columns import reproducibly
from hypothesis import given
from hypothesis import strategies as st

from sklearn_dpgen.exceptions import PublicTypeError, PublicValueError
from sklearn_dpgen.schema import (
    Categorical,
    Datetime,
    Identifier,
    Numeric,
    OpenCategorical,
    Ordinal,
    RelationalSchema,
    Schema,
    Table,
    _export,
    export_schema,
)
from sklearn_dpgen.schema._csvw import tr35_of
from sklearn_dpgen.schema._drafts import RelationalDraft
from sklearn_dpgen.schema._exchange import read_exchange
from sklearn_dpgen.schema._export import export_notes
from sklearn_dpgen.schema._schema import SchemaDraft

FORMATS = ("csvw", "frictionless")

CSVW = {
    "@context": ["http://www.w3.org/ns/csvw", {"@language": "en"}],
    "url": "https://example.org/tree-ops.csv",
    "dialect": {"delimiter": ";", "encoding": "latin1", "trim": True},
    "tableSchema": {
        "null": ["", "NA"],
        "columns": [
            {"name": "GID", "titles": ["GID", "Generic id"], "datatype": "string"},
            {"name": "street", "titles": {"en": "On Street"}, "lang": "en"},
            {
                "titles": "species",
                "dc:title": "Species",
                "required": True,
                "datatype": {"base": "string", "format": "^(oak|ash \\(F\\.\\))$"},
            },
            {
                "titles": "trimmed",
                "datatype": {
                    "base": "date",
                    "format": "M/d/yyyy",
                    "minimum": "1/31/2010",
                    "maximum": "2020-12-31",
                },
            },
            {
                "titles": "height",
                "datatype": {
                    "base": "decimal",
                    "format": {"decimalChar": ",", "groupChar": "."},
                    "minInclusive": "0,5",
                    "maxExclusive": "1.000",
                },
            },
            {"titles": "year", "datatype": {"base": "gYear", "minimum": 1900, "maximum": "2000"}},
            {"titles": "protected", "datatype": {"base": "boolean", "format": "Y|N"}},
            {"titles": "tags", "separator": " "},
            {"titles": "shape", "datatype": "json"},
            {"titles": "code", "datatype": {"base": "string", "format": "[A-Z]{3}"}},
            {"titles": "seen", "datatype": {"base": "dateTime", "format": "yyyy-MM-dd HH:mm"}},
            {"virtual": True, "name": "kind", "valueUrl": "ex:tree"},
        ],
        "primaryKey": "GID",
    },
}

PACKAGE = {
    "$schema": "https://datapackage.org/profiles/2.0/datapackage.json",
    "name": "hospital",
    "resources": [
        {
            "name": "patients",
            "path": "patients.csv",
            "encoding": "iso-8859-15",
            "dialect": {"delimiter": "\t", "commentChar": "#"},
            "schema": {
                "fields": [
                    {"name": "patient", "type": "string"},
                    {
                        "name": "smoker",
                        "type": "boolean",
                        "trueValues": ["yes"],
                        "falseValues": ["no"],
                        "constraints": {"required": True},
                    },
                    {
                        "name": "born",
                        "type": "date",
                        "format": "%d.%m.%Y",
                        "constraints": {"minimum": "01.01.1900", "maximum": "2020-12-31"},
                    },
                ],
                "missingValues": ["", {"value": "-9", "label": "refused"}],
                "primaryKey": ["patient"],
            },
        },
        {
            "name": "visits",
            "path": "visits.csv",
            "schema": {
                "fields": [
                    {"name": "visit", "type": "integer"},
                    {"name": "patient", "type": "string"},
                    {
                        "name": "cost",
                        "type": "number",
                        "decimalChar": ",",
                        "bareNumber": False,
                        "constraints": {"exclusiveMinimum": 0, "maximum": "5000,5"},
                    },
                    {"name": "at", "type": "geopoint"},
                    {"name": "ward", "type": "string", "constraints": {"maxLength": 3}},
                    {"name": "key", "type": "string", "format": "uuid"},
                ],
                "primaryKey": "visit",
                "foreignKeys": [
                    {
                        "fields": ["patient"],
                        "reference": {"resource": "patients", "fields": ["patient"]},
                    }
                ],
            },
        },
        {"name": "readme", "path": "readme.md"},
    ],
}

SDV = {
    "METADATA_SPEC_VERSION": "V1",
    "tables": {
        "hotels": {
            "primary_key": "hotel_id",
            "columns": {
                "hotel_id": {"sdtype": "id", "regex_format": "HID_[0-9]{3}"},
                "class": {"sdtype": "categorical", "order": ["low", "high"]},
                "rating": {"sdtype": "numerical"},
            },
        },
        "guests": {
            "primary_key": "guest_email",
            "columns": {
                "guest_email": {"sdtype": "email", "pii": True},
                "hotel_id": {"sdtype": "id"},
                "checkin_date": {"sdtype": "datetime", "datetime_format": "%d %b %Y"},
                "left_at": {"sdtype": "datetime", "datetime_format": "%Y-%m-%d %H:%M"},
                "room_type": {"sdtype": "categorical"},
                "has_rewards": {"sdtype": "boolean"},
                "nights": {"sdtype": "numerical", "computer_representation": "Int8"},
                "billing_address": {"sdtype": "address"},
                "home_city": {"sdtype": "city", "pii": False},
            },
            "column_relationships": [{"type": "address", "column_names": ["billing_address"]}],
        },
    },
    "relationships": [
        {
            "parent_table_name": "hotels",
            "parent_primary_key": "hotel_id",
            "child_table_name": "guests",
            "child_foreign_key": "hotel_id",
        }
    ],
}

SMARTNOISE = """\
"":
  MySchema:
    MyTable:
      max_ids: 3
      rows: 1000
      clamp_counts: true
      user_id: {private_id: True, type: int}
      age: {type: int, lower: 0, upper: 100, nullable: False}
      income: {type: float, lower: 0, sensitivity: 9}
      '"home town"': {type: string, missing_value: none}
      married: {type: boolean}
      seen: {type: datetime}
      other: {type: unknown}
"""


def parsed(document):
    """Return a document as a file holds it."""
    return json.loads(json.dumps(document))


def all_texts(draft):
    """Return the notes and remarks of a draft as one text."""
    tables = draft.tables.values() if isinstance(draft, RelationalDraft) else [draft]
    return "\n".join(text for t in tables for text in [*t.notes.values(), *t.remarks])


def declared(draft):
    """Return the declarations of a draft without texts, and without how a file is written."""
    words = ("format", "decimal", "thousands", "description")
    return {
        name: {word: value for word, value in entry.items() if word not in words}
        for name, entry in draft.declaration.items()
    }


def assert_says(draft, *texts):
    """Check that each text is in a comment of the draft, or a value of its declarations."""
    shown = all_texts(draft) + draft.to_yaml()
    for text in texts:
        assert text in shown


def assert_file(draft, **words):
    """Check that each word of a file is declared, or in a remark on the table."""
    for word, value in words.items():
        is_said = any(repr(value) in remark for remark in draft.remarks)
        assert draft.words.get(word) == value or is_said


def test_csvw():
    draft = Schema.draft(parsed(CSVW))
    assert isinstance(draft, SchemaDraft)
    nulls = {"nullable": True, "missing": ["NA"]}
    assert declared(draft) == {
        "GID": {"type": "identifier"},
        "On Street": {"type": "categorical", "categories": "...", **nulls},
        "species": {"type": "categorical", "categories": ["oak", "ash (F.)"]},
        "trimmed": {
            "type": "datetime",
            "low": "2010-01-31",
            "high": "2020-12-31",
            "resolution": "D",
            **nulls,
        },
        "height": {"type": "numeric", "low": 0.5, "high": 1000, **nulls},
        "year": {"type": "numeric", "low": 1900, "high": 2000, "integer": True, **nulls},
        "protected": {"type": "categorical", "categories": ["N", "Y"], **nulls},
        "tags": {"type": "..."},
        "shape": {"type": "..."},
        "code": {"type": "categorical", "categories": "...", **nulls},
        "seen": {"type": "datetime", "low": "...", "high": "...", "resolution": "min", **nulls},
    }
    assert_file(draft, delimiter=";", encoding="latin1")
    assert_says(draft, "'kind'", "trim", "%m/%d/%Y", "','", "high itself")
    assert_says(draft, "Species", "lists, separated by ' '", "'json'", "[A-Z]{3}", "%Y-%m-%d %H:%M")
    with pytest.raises(ValueError, match="lacks public declarations of columns 'On Street'"):
        draft.to_schema()


def test_csvw_tables_with_keys():
    group = {
        "@context": "http://www.w3.org/ns/csvw",
        "tables": [
            {
                "url": "countries.csv",
                "tableSchema": {
                    "columns": [
                        {"name": "code", "titles": "country code"},
                        {"titles": "eu", "datatype": "boolean", "required": True},
                    ],
                    "primaryKey": ["code"],
                },
            },
            {
                "url": "slices.csv",
                "tableSchema": {
                    "columns": [
                        {"name": "ref", "titles": "country"},
                        {"titles": "n", "datatype": {"base": "int", "minimum": 0, "maximum": 9}},
                    ],
                    "foreignKeys": [
                        {
                            "columnReference": ["ref"],
                            "reference": {"resource": "countries.csv", "columnReference": "code"},
                        }
                    ],
                },
            },
        ],
    }
    draft = Schema.draft(group)
    assert draft.missing == {"slices": ("max_rows",)}
    assert draft.declaration["tables"]["slices"]["foreign_key"] == {"country": "countries"}
    draft.keys["slices"]["max_rows"] = 20
    schema = draft.to_schema()
    assert schema["countries"].primary_key == "country code"
    assert schema["slices"].schema["n"] == Numeric(0, 9, integer=True, nullable=True)
    assert RelationalSchema.from_yaml(draft.to_yaml()) == schema
    names = {}
    exec(draft.to_code(), names)
    assert names["schema"] == schema


def test_a_data_package():
    draft = Schema.draft(parsed(PACKAGE))
    assert isinstance(draft, RelationalDraft)
    assert draft.missing == {
        "visits": ("max_rows",),
        "visits.at": ("type",),
        "visits.ward": ("categories",),
    }
    tables = draft.declaration["tables"]
    assert tables["patients"]["primary_key"] == "patient"
    assert tables["visits"]["foreign_key"] == {"patient": "patients"}
    entries = declared(draft.tables["patients"])
    assert entries["smoker"] == {"type": "categorical", "categories": ["no", "yes"]}
    assert entries["born"]["low"] == "1900-01-01"
    assert entries["born"]["missing"] == ["-9"]
    cost = declared(draft.tables["visits"])["cost"]
    assert cost == {"type": "numeric", "low": 0, "high": 5000.5, "nullable": True}
    assert draft.tables["visits"].declaration["key"] == {"type": "identifier"}
    assert_says(draft, "%d.%m.%Y", "','", "low itself is excluded", "currency", "'geopoint'")
    assert_says(draft, "maxLength", "commentChar", "readme")
    assert_file(draft.tables["patients"], delimiter="\t", encoding="iso-8859-15")
    for text in (draft.to_yaml(), draft.to_code()):
        assert "..." in text
    with pytest.raises(ValueError, match=r"'visits' \(max_rows\)"):
        draft.to_schema()
    with pytest.raises(ValueError, match=r"'at': type must be one of"):
        RelationalSchema.from_yaml(draft.to_yaml())


def test_sdv():
    draft = Schema.draft(parsed(SDV))
    tables = draft.declaration["tables"]
    assert tables["hotels"] == {
        "columns": {
            "class": {"type": "ordinal", "categories": ["low", "high"]},
            "rating": {"type": "numeric", "low": "...", "high": "..."},
        },
        "primary_key": "hotel_id",
    }
    guests = declared(draft.tables["guests"])
    bounds = {"low": "...", "high": "..."}
    assert guests == {
        "checkin_date": {"type": "datetime", **bounds, "resolution": "D"},
        "left_at": {"type": "datetime", **bounds, "resolution": "min"},
        "room_type": {"type": "categorical", "categories": "..."},
        "has_rewards": {"type": "categorical", "categories": [False, True]},
        "nights": {"type": "numeric", **bounds, "integer": True},
        "billing_address": {"type": "identifier"},
        "home_city": {"type": "open_categorical"},
    }
    assert draft.keys["guests"] == {
        "primary_key": "guest_email",
        "foreign_key": {"hotel_id": "hotels"},
        "max_rows": "...",
    }
    assert_says(draft, "nullable: true", "%d %b %Y", "sdtype 'address'", "column_relationships")


def test_sdv_of_one_table_and_of_sequences():
    guests = SDV["tables"]["guests"] | {"METADATA_SPEC_VERSION": "SINGLE_TABLE_V1"}
    draft = Schema.draft(guests)
    assert draft.declaration["guest_email"] == {"type": "identifier"}
    assert draft.declaration["nights"]["integer"] is True
    columns = {
        "person": {"sdtype": "id"},
        "day": {"sdtype": "datetime", "datetime_format": "%Y-%m-%d"},
        "weight": {"sdtype": "numerical", "computer_representation": "Float"},
    }
    panel = Schema.draft({"columns": columns, "sequence_key": "person", "sequence_index": "day"})
    assert panel.keys["table"] == {
        "primary_key": "person",
        "max_rows": "...",
        "sequence_index": "day",
    }
    assert [*panel.tables["table"].declaration] == ["day", "weight"]


def test_ranges_that_the_sdv_detects_are_not_taken():
    """Version 2 of the metadata holds the extremes and the labels of the rows."""

    def metadata(largest):
        age = {"sdtype": "numerical", "range_min": 18, "range_max": largest, "decimal_places": 0}
        level = {"sdtype": "ordinal", "range_values": [1, largest], "range_is_nullable": False}
        table = {"columns": {"age": age, "level": level}}
        return {"METADATA_SPEC_VERSION": "V2", "tables": {"people": table}}

    def careless(document):
        column = document["tables"]["people"]["columns"]["age"]
        bounds = {"min": column["range_min"], "max": column["range_max"]}
        return Schema.draft([{"name": "age", "type": "integer", **bounds}])

    def tells(draft):
        return draft(metadata(96)).to_yaml() != draft(metadata(97)).to_yaml()

    assert not tells(Schema.draft)
    assert tells(careless)
    draft = Schema.draft(metadata(97))
    assert draft.missing == {"age": ("low", "high"), "level": ("categories",)}
    assert_says(draft, "range_max, decimal_places not taken", "range_values, range_is_nullable")


def test_smartnoise():
    draft = Schema.draft(yaml.safe_load(SMARTNOISE))
    assert draft.declaration == {
        "user_id": {"type": "identifier"},
        "age": {"type": "numeric", "low": 0, "high": 100, "integer": True},
        "income": {"type": "numeric", "low": 0, "high": "...", "nullable": True},
        "home town": {"type": "categorical", "categories": "...", "nullable": True},
        "married": {"type": "categorical", "categories": [False, True], "nullable": True},
        "seen": {"type": "datetime", "low": "...", "high": "...", "nullable": True},
    }
    assert_file(draft, unit="user_id")
    assert_says(draft, "max_ids: 3", "rows", "clamp_counts", "sensitivity")
    assert_says(draft, "'other' has the type unknown", "missing_value")


def test_smartnoise_tables_without_keys():
    table = {"user_id": {"type": "int", "private_id": True}, "x": {"type": "boolean"}}
    draft = Schema.draft({"": {"S": {"a": {**table, "row_privacy": True}, "b": table}}})
    assert [*draft.tables] == ["a", "b"]
    assert_says(draft, "No key links this table", "row_privacy")


@pytest.mark.parametrize(
    ("document", "error"),
    [
        ({"resources": []}, "declares no table"),
        ({"resources": ["patients"]}, "resources must be a list of mappings"),
        (
            {"resources": [{"name": "a", "schema": "a.json"}]},
            "schema of the resource 'a' must be a",
        ),
        ({"resources": [{"name": "a", "schema": {"fields": 3}}]}, "must have a list of fields"),
        ({"resources": [{"name": "a", "schema": {"fields": []}}] * 2}, "distinct, got 'a' twice"),
        ({"tableSchema": {"columns": []}}, "must have the url"),
        ({"url": "a.csv", "tableSchema": "a.json"}, "tableSchema must be a mapping"),
        ({"url": "a.csv", "tableSchema": {"columns": {}}}, "columns must be a list"),
        ({"url": "a.csv", "tableSchema": {"columns": [{}]}}, "name of column None must be a"),
        ({"url": "a.csv", "tableSchema": {}}, "has no columns"),
        (
            {"columns": {"a": {"sdtype": "id"}, "b": 3}},
            "Column 'b' must be a mapping",
        ),
        ({**SDV, "relationships": [{"child_table_name": "x"}]}, "must name tables"),
        (
            {"fields": [{"name": "a", "type": "integer", "constraints": {"minimum": "few"}}]},
            "'a': 'few' is not a finite number",
        ),
    ],
)
def test_another_form_is_refused(document, error):
    with pytest.raises(ValueError, match=error):
        Schema.draft(document)


JUNK = [None, -1.5, True, "x", [], ["x"], {"x": 1}]


def places(document, path=()):
    """Yield the path of each part of a document."""
    yield path
    if isinstance(document, dict | list):
        for key in document if isinstance(document, dict) else range(len(document)):
            yield from places(document[key], (*path, key))


def replaced(document, path, junk):
    if not path:
        return junk
    copy = dict(document) if isinstance(document, dict) else list(document)
    copy[path[0]] = replaced(document[path[0]], path[1:], junk)
    return copy


@pytest.mark.slow
@pytest.mark.parametrize("document", [CSVW, PACKAGE, SDV, yaml.safe_load(SMARTNOISE)])
def test_a_document_with_any_mistake_is_read_or_refused(document):
    """Without another error, whose message the command line would not show."""
    n_refused = 0
    for path in [*places(document)][1:]:
        for junk in JUNK:
            try:
                text = Schema.draft(replaced(document, path, junk)).to_yaml()
            except (PublicValueError, PublicTypeError):
                n_refused += 1
            else:
                assert "type: " in text
    assert n_refused


def test_references_that_cannot_be_keys_are_remarks():
    def table(name, *keys, primary=None):
        fields = [{"name": n, "type": "boolean"} for n in ("id", "a", "b")]
        schema = {"fields": fields, "foreignKeys": list(keys)}
        schema |= {} if primary is None else {"primaryKey": primary}
        return {"name": name, "path": f"{name}.csv", "schema": schema}

    def key(own, resource, others):
        return {"fields": own, "reference": {"resource": resource, "fields": others}}

    package = {
        "resources": [
            table("p", key("a", "", "id"), key("a", "gone", "id"), primary="id"),
            table(
                "c",
                key("a", "p", "id"),
                key("b", "q", "id"),
                key(["a", "b"], "p", ["a", "b"]),
                key("b", "p", "b"),
                primary=["id", "a"],
            ),
            table("q", primary="id"),
            table("d", key("id", "p", "id"), primary="id"),
            table("alone"),
        ]
    }
    draft = Schema.draft(package)
    assert draft.keys["c"] == {"foreign_key": {"a": "p", "b": "q"}, "max_rows": "..."}
    assert draft.keys["d"] == {"foreign_key": {"id": "p"}, "max_rows": "..."}
    remarks = {name: " ".join(t.remarks) for name, t in draft.tables.items()}
    assert "itself" in remarks["p"]
    assert "not declared" in remarks["p"]
    for text in ("several columns", "not its primary key", "['id', 'a']", "public: true"):
        assert text in remarks["c"]
    assert "join both tables" in remarks["d"]
    assert "No key links" in remarks["alone"]


def test_a_table_of_keys_alone():
    package = parsed(PACKAGE)
    package["resources"][0]["schema"]["fields"] = [{"name": "patient", "type": "string"}]
    draft = Schema.draft(package)
    assert_says(draft, "No column but keys")
    assert yaml.safe_load(draft.to_yaml())["tables"]["patients"]["columns"] == {}


def test_records_in_a_document_are_not_read():
    """A data package may hold its data, and examples."""

    def package(value):
        field = {"name": "age", "type": "integer", "example": value}
        resource = {"name": "a", "data": [{"age": value}], "schema": {"fields": [field]}}
        return {"resources": [resource]}

    def tells(draft):
        return draft(package(31)).to_yaml() != draft(package(32)).to_yaml()

    def careless(document):
        ages = [row["age"] for row in document["resources"][0]["data"]]
        field = {"name": "age", "type": "integer"}
        bounds = {"minimum": min(ages) - 1, "maximum": max(ages)}
        return Schema.draft({"fields": [field | {"constraints": bounds}]})

    assert not tells(Schema.draft)
    assert_says(Schema.draft(package(31)), "data in the file are not read")
    assert tells(careless)


def test_comments_are_one_line():
    field = {"name": "x", "type": "boolean", "a\nimport os": 1}
    note = {"note": "a\nraise KeyError\u2028y: 1"}
    package = {"resources": [{"name": "a", "schema": {"fields": [field]}, "notes": [note]}]}
    draft = Schema.draft(package)
    schema = Schema({"x": Categorical([False, True], nullable=True)})
    assert Schema.from_yaml(draft.to_yaml()) == schema
    names = {}
    exec(draft.to_code(), names)
    assert names["schema"] == schema


# The fields of the formats that an export uses, as they are documented.
TEXTS = {"type": "array", "items": {"type": "string"}}
BOUND = {"type": ["number", "string"]}
TYPES = ["string", "number", "integer", "boolean", "date", "datetime", "any"]
CSVW_TYPES = ["string", "number", "integer", "boolean", "date", "dateTime"]
NAME = {"type": "string", "minLength": 1}
FIELD = {
    "type": "object",
    "required": ["name", "type"],
    "additionalProperties": False,
    "properties": {
        "name": NAME,
        "type": {"enum": TYPES},
        "missingValues": TEXTS,
        "rdfType": {"type": "string", "pattern": "^http"},
        "categories": {"type": "array", "items": {"type": ["string", "integer"]}, "minItems": 1},
        "categoriesOrdered": {"type": "boolean"},
        "constraints": {
            "type": "object",
            "additionalProperties": False,
            "properties": {
                "required": {"type": "boolean"},
                "minimum": BOUND,
                "maximum": BOUND,
                "enum": {"type": "array", "minItems": 1, "uniqueItems": True},
            },
        },
    },
    # Text and truth values have no order.
    "if": {"properties": {"type": {"enum": ["string", "boolean", "any"]}}},
    "then": {"properties": {"constraints": {"not": {"required": ["minimum"]}}}},
}
DATA_PACKAGE = {
    "type": "object",
    "required": ["resources"],
    "properties": {
        "$schema": {"const": "https://datapackage.org/profiles/2.0/datapackage.json"},
        "resources": {
            "type": "array",
            "minItems": 1,
            "items": {
                "type": "object",
                "required": ["name", "path", "schema"],
                "properties": {
                    "name": NAME,
                    "type": {"const": "table"},
                    # A relative path, which leaves no folder.
                    "path": {"type": "string", "pattern": r"^[^./~][^/\\]*$"},
                    "schema": {
                        "type": "object",
                        "required": ["fields"],
                        "additionalProperties": False,
                        "properties": {
                            "fields": {"type": "array", "minItems": 1, "items": FIELD},
                            "primaryKey": TEXTS,
                            "foreignKeys": {
                                "type": "array",
                                "items": {
                                    "required": ["fields", "reference"],
                                    "properties": {
                                        "fields": TEXTS,
                                        "reference": {
                                            "required": ["resource", "fields"],
                                            "properties": {"resource": NAME, "fields": TEXTS},
                                        },
                                    },
                                },
                            },
                        },
                    },
                },
            },
        },
    },
}
# The name of a variable of a URI template, RFC 6570; those that begin with _ are reserved.
VARIABLE = {
    "type": "string",
    "pattern": r"^([A-Za-z0-9]|%[0-9A-F]{2})([A-Za-z0-9_]|%[0-9A-F]{2})*$",
}
CSVW_TABLE = {
    "required": ["url", "tableSchema"],
    "properties": {
        "url": {"type": "string", "pattern": r"^[^/]+\.csv$"},
        "notes": {"type": "array", "items": {"required": ["dc:description"]}},
        "tableSchema": {
            "additionalProperties": False,
            "properties": {
                "columns": {
                    "type": "array",
                    "minItems": 1,
                    "items": {
                        "type": "object",
                        "required": ["name", "titles"],
                        "additionalProperties": False,
                        "properties": {
                            "name": VARIABLE,
                            "titles": NAME,
                            "null": TEXTS,
                            "required": {"type": "boolean"},
                            "propertyUrl": {"type": "string"},
                            "datatype": {
                                "type": "object",
                                "additionalProperties": False,
                                "properties": {
                                    "base": {"enum": CSVW_TYPES},
                                    "minimum": BOUND,
                                    "maximum": BOUND,
                                    "format": {"type": "string"},
                                },
                            },
                        },
                    },
                },
                "primaryKey": VARIABLE,
                "foreignKeys": {
                    "type": "array",
                    "items": {
                        "required": ["columnReference", "reference"],
                        "properties": {
                            "columnReference": VARIABLE,
                            "reference": {
                                "required": ["resource", "columnReference"],
                                "properties": {"columnReference": VARIABLE},
                            },
                        },
                    },
                },
            },
        },
    },
}
CSVW_DOCUMENT = {
    "required": ["@context"],
    "properties": {"@context": {"const": "http://www.w3.org/ns/csvw"}},
    "if": {"required": ["tables"]},
    "then": {"properties": {"tables": {"type": "array", "items": CSVW_TABLE}}},
    "else": CSVW_TABLE,
}
DOCUMENTED = {"frictionless": DATA_PACKAGE, "csvw": CSVW_DOCUMENT}


def exported(schema, to, **options):
    """Return an exported schema as a file holds it, checked by the fields of its format."""
    document = parsed(export_schema(schema, to, **options))
    validators = pytest.importorskip("jsonschema")
    validators.Draft202012Validator(DOCUMENTED[to]).validate(document)
    return document


def dates():
    def build(day, n, null, codes, is_day):
        low = pd.Timestamp(day)
        high = low + pd.Timedelta(n, "D" if is_day else "s")
        resolution = "D" if is_day else "s"
        return Datetime(low, high, resolution=resolution, nullable=null, missing=codes)

    day = st.dates(pd.Timestamp("1900-01-01").date(), pd.Timestamp("2100-01-01").date())
    codes = st.lists(st.sampled_from(["unknown", "-999", "."]), unique=True)
    return st.builds(build, day, st.integers(1, 10**4), st.booleans(), codes, st.booleans())


def names():
    return st.text(min_size=1, max_size=8).filter(lambda name: name.strip())


def schemas(column):
    def is_modelled(columns):
        return not all(column.is_constant for column in columns.values())

    return st.dictionaries(names(), column, min_size=1, max_size=5).filter(is_modelled).map(Schema)


@pytest.mark.slow
@reproducibly
@given(schemas(st.one_of(any_columns(), dates(), st.just(Identifier()))), names())
def test_data_packages_round_trip(schema, name):
    document = exported(schema, "frictionless", name=name)
    assert export_notes(document) == []
    drafted = Schema.draft(document).to_schema()
    assert drafted == schema
    for column, own in schema.items():
        if isinstance(own, Categorical | Ordinal):
            # True, 1 and 1.0 are equal, and still not the same label.
            assert [*map(type, drafted[column].labels)] == [*map(type, own.labels)]


def csvw_columns():
    texts = st.lists(st.text(max_size=5), min_size=1, max_size=4, unique=True)
    numbers = any_columns().filter(lambda column: isinstance(column, Numeric))
    return st.one_of(
        numbers,
        dates(),
        st.just(Identifier()),
        st.builds(Categorical, texts, nullable=st.booleans()),
        st.builds(Categorical, st.just([False, True]), nullable=st.booleans()),
    )


@pytest.mark.slow
@reproducibly
@given(schemas(csvw_columns()), names())
def test_csvw_round_trips(schema, name):
    document = exported(schema, "csvw", name=name)
    assert export_notes(document) == []
    assert Schema.draft(document).to_schema() == schema


RICH = Schema(
    {
        "x": Numeric(0, 10, step=0.5, missing=[-9]),
        "town": OpenCategorical(max_labels=7),
        "grade": Ordinal(["low", "high"]),
        "code": Categorical([1, 2]),
        "icd": Categorical(["A1", "A2", "B1"], hierarchy=[1]),
        "seen": Datetime("2020-01-01T00:00Z", "2021-01-01T00:00Z", zone="Europe/Oslo"),
        "utc": Datetime("2020-01-01T00:00Z", "2021-01-01T00:00Z", resolution="h"),
        "who": Identifier("patient "),
    }
)


@pytest.mark.parametrize("to", FORMATS)
def test_what_a_format_cannot_express_is_a_note(to):
    document = exported(RICH, to)
    notes = export_notes(document)
    said = [
        "'x': step: 0.5",
        "'town': max_labels: 7",
        "'town': open_categorical: labels that are not known",
        "'icd': hierarchy: [1]",
        "'seen': zone: Europe/Oslo",
        "'utc': resolution: h",
        "'who': prefix: patient ",
    ]
    if to == "csvw":
        said += ["'grade': ordinal: the labels are in their order", "'code': labels are not texts"]
    assert sorted(notes) == sorted(said)
    # They are comments of a draft, which differs in nothing else.
    draft = Schema.draft(document)
    assert_says(draft, *(note.partition("': ")[2].strip() for note in notes))
    assert draft.missing == {"town": ("categories",)}
    assert draft.declaration["utc"]["low"] == "2020-01-01T00:00:00+00:00"
    assert draft.declaration["x"]["missing"] == ["-9"]


@pytest.mark.parametrize("to", FORMATS)
def test_how_a_file_is_written_is_expressed(to):
    """Words of declarations under their names in a format, and back."""
    columns = {
        "x": {"type": "numeric", "low": 0, "high": 9, "decimal": ",", "thousands": "."},
        "day": {"type": "datetime", "low": "2020-01-01T00:00:00", "high": "2021-01-01T00:00:00"}
        | {"resolution": "D", "format": "%d.%m.%Y", "description": "of admission"},
    }
    table = {"columns": columns, "delimiter": ";", "encoding": "cp1252"}
    document = parsed(_export.FORMATS[to]({"people": table}))
    assert export_notes(document) == []
    assert_file(Schema.draft(document), delimiter=";", encoding="cp1252")
    tables, _ = read_exchange(document)
    (found,) = tables.values()
    assert found.rows[0]["words"] == {"decimal": ",", "thousands": "."}
    assert found.rows[1]["words"] == {"format": "%d.%m.%Y"}
    assert found.rows[1]["description"] == "of admission"


def test_a_draft_with_words_of_a_table():
    declaration = {"x": {"type": "numeric", "low": 0, "high": 9}}
    draft = SchemaDraft(declaration, {"x": "a note"}, ["a remark"], {"delimiter": ";"})
    assert yaml.safe_load(draft.to_yaml()) == {"delimiter": ";", "columns": declaration}
    assert draft.to_yaml().startswith("# a remark\ndelimiter: ;\ncolumns:\n  # a note\n  x:\n")
    assert draft.to_code().endswith('}, delimiter=";")')
    tables = RelationalDraft({"a": draft}, {"a": {"primary_key": "id"}})
    table = {"delimiter": ";", "columns": declaration, "primary_key": "id"}
    assert tables.declaration == yaml.safe_load(tables.to_yaml()) == {"tables": {"a": table}}
    assert '}, delimiter=";"),' in tables.to_code()


@pytest.mark.parametrize(
    ("pattern", "other"),
    [
        ("%Y-%m-%dT%H:%M:%S", "yyyy-MM-ddTHH:mm:ss"),
        ("%d/%m/%Y", "dd/MM/yyyy"),
        ("%d %b %Y", None),
        ("%Y%%", None),
        ("day %d", None),
    ],
)
def test_patterns_of_dates(pattern, other):
    assert tr35_of(pattern) == other


HOSPITAL = RelationalSchema(
    {
        "patients": Table(Schema({"smoker": Categorical(["no", "yes"])}), primary_key="patient id"),
        "wards": Table(
            Schema({"beds": Numeric(0, 99, integer=True)}),
            primary_key="ward",
            frame=pd.DataFrame({"ward": ["a", "b"], "beds": [3, 4]}),
        ),
        "visits": Table(
            Schema({"cost": Numeric(0, 5000), "day": Numeric(0, 365, integer=True)}),
            foreign_key={"patient id": "patients", "ward": "wards"},
            sequence_index="day",
            max_rows=50,
            ties=False,
        ),
    }
)


@pytest.mark.parametrize("to", FORMATS)
def test_tables_with_keys_round_trip(to):
    document = exported(HOSPITAL, to)
    # The rows of a public table stay where they are.
    assert '"a"' not in json.dumps(document)
    assert export_notes(document) == [
        "public: True",
        "sequence_index: day",
        "max_rows: 50",
        "ties: False",
    ]
    draft = Schema.draft(document)
    assert draft.keys["visits"]["foreign_key"] == {"patient id": "patients", "ward": "wards"}
    assert draft.missing == {"visits": ("max_rows",)}
    draft.keys["wards"]["public"] = True
    draft.keys["visits"] |= {"max_rows": 50, "sequence_index": "day", "ties": False}
    assert draft.to_schema({"wards": HOSPITAL["wards"].frame}) == HOSPITAL


@pytest.mark.parametrize("to", FORMATS)
def test_the_key_of_a_panel_is_no_primary_key_elsewhere(to):
    columns = Schema({"sex": Categorical(["f", "m"]), "x": Numeric(0, 1)})
    panel = Table(columns, primary_key="id", max_rows=9, static=["sex"])
    document = exported(RelationalSchema({"people": panel}), to)
    assert "primaryKey" not in json.dumps(document)
    assert "primary_key of a panel: id" in export_notes(document)
    assert Schema.draft(document).declaration["id"] == {"type": "identifier"}


def test_parameters_of_an_export():
    schema = Schema({"x": Numeric(0, 1)})
    with pytest.raises(TypeError, match="schema must be a Schema"):
        export_schema({"x": Numeric(0, 1)}, "csvw")
    with pytest.raises(ValueError, match="to must be one of"):
        export_schema(schema, "sdv")
    with pytest.raises(ValueError, match="name must be the name of a table"):
        export_schema(schema, "csvw", name="")


@pytest.mark.parametrize("to", ["frictionless", "csvw"])
def test_words_of_a_table_and_of_its_texts_go_both_ways(to):
    columns = {
        "id": Identifier(),
        "cost": Numeric(0, 1000, decimal=",", thousands=".", description="of a stay"),
        "born": Datetime("1900-01-01", "2020-12-31", resolution="D", format="%d/%m/%Y"),
    }
    schema = Schema(columns, unit="id", delimiter=";", encoding="cp1252")
    document = export_schema(schema, to, name="stays")
    draft = Schema.draft(document)
    assert draft.words == {"delimiter": ";", "encoding": "cp1252"}
    assert draft.declaration["cost"] == schema.to_dict()["columns"]["cost"]
    # Who is protected has no word in another format.
    assert "unit: id" in export_notes(document)
    assert draft.to_schema() == Schema(columns, delimiter=";", encoding="cp1252")
