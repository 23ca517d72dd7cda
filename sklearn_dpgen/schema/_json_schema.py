"""The JSON Schema of schema files, made from the declarations of columns and tables."""

from dataclasses import MISSING, fields
from typing import Any

from sklearn_dpgen.schema._csv import DELIMITERS
from sklearn_dpgen.schema._dates import RESOLUTIONS
from sklearn_dpgen.schema._relational import Table
from sklearn_dpgen.schema._rule_entries import RULES
from sklearn_dpgen.schema._schema import TABLE_WORDS, TYPES

__all__ = ["json_schema"]

_LABEL = {"type": ["boolean", "integer", "number", "string"]}
_TEXTS = {"type": "array", "items": {"type": "string"}}
# For each word of a file what it holds, and what an editor shows beside it.
_WORDS: dict[str, dict[str, Any]] = {
    "low": {"type": "number", "description": "Smallest value, from public knowledge."},
    "high": {"type": "number", "description": "Largest value, from public knowledge."},
    "step": {
        "type": ["number", "null"],
        "exclusiveMinimum": 0,
        "description": "Values are low plus multiples of it.",
    },
    "integer": {"type": "boolean", "description": "Whether values are integers."},
    "nullable": {"type": "boolean", "description": "Whether values may be missing."},
    "missing": {
        "type": "array",
        "items": {"type": ["integer", "number", "string"]},
        "description": "Codes that mean null, such as -999.",
    },
    "categories": {
        "type": ["array", "null"],
        "items": _LABEL,
        "uniqueItems": True,
        "description": "All labels that can occur, whether or not they do.",
    },
    "categories_from": {
        "type": "string",
        "description": "A public text file in this folder, with one label a line.",
    },
    "hierarchy": {
        "type": ["array", "object", "null"],
        "items": {"type": ["integer", "array"]},
        "additionalProperties": _TEXTS,
        "description": "Lengths of prefixes that name groups, or the groups of each label.",
    },
    "other": {"type": "string", "description": "The label of all labels that are too rare."},
    "max_length": {"type": "integer", "description": "Longer texts count as other."},
    "max_labels": {"type": "integer", "description": "Most labels that are discovered."},
    "resolution": {
        "enum": ["min", *RESOLUTIONS],
        "description": "D for days, h, min, s, ms or us.",
    },
    "zone": {"type": ["string", "null"], "description": "Time zone, such as Europe/Oslo."},
    "prefix": {"type": ["string", "null"], "description": "Of the numbers of synthetic rows."},
    "primary_key": {"type": ["string", "null"], "description": "Column that identifies a row."},
    "foreign_key": {
        "type": ["object", "null"],
        "additionalProperties": {"type": "string"},
        "description": "For a column with keys of another table its name.",
    },
    "sequence_index": {
        "type": ["string", "null"],
        "description": "Column that orders the rows of a parent row.",
    },
    "max_rows": {
        "type": ["integer", "null"],
        "minimum": 1,
        "description": "Public bound of the rows of a parent row that are modelled.",
    },
    "static": {**_TEXTS, "description": "Columns that are the same in all rows of a person."},
    "ties": {
        "type": "boolean",
        "description": "Whether rows of a parent row may have the same sequence_index.",
    },
    "aggregates": {**_TEXTS, "description": "Columns whose aggregates link tables."},
    "unit": {
        "type": ["string", "null"],
        "description": "Column that identifies persons, who are protected with all of their rows.",
    },
    "rules": {
        "type": "array",
        "items": {"$ref": "#/$defs/rule"},
        "description": "Public rules of every row, such as 'admitted <= discharged'.",
    },
    "delimiter": {"enum": [*DELIMITERS], "description": "Of the fields of CSV files."},
    "encoding": {"type": "string", "description": "Of CSV files, such as cp1252."},
    "public": {
        "type": ["string", "array"],
        "items": {"type": "string"},
        "description": "A public table in this folder, from which a fit starts.",
    },
}
_VALUES = {"type": "object", "minProperties": 1, "description": "For columns their values."}
# For each word of a rule what it holds.
_RULE_WORDS: dict[str, dict[str, Any]] = {
    **{word: {"type": "string"} for word in ("low", "high", "total", "column")},
    "strict": {"type": "boolean"},
    "given": {"type": ["string", "array"], "items": {"type": "string"}},
    "then": _VALUES,
    "parts": {**_TEXTS, "minItems": 2},
    "mapping": {
        "type": ["object", "array"],
        "items": {"type": "array", "minItems": 2, "maxItems": 2},
        "description": "The value of column for each value of given, or a list of such pairs.",
    },
}
_DATES = {
    "low": {"type": "string", "description": "Earliest time, such as 2020-01-31."},
    "high": {"type": "string", "description": "Latest time, such as 2024-12-31."},
}
_DRAFT = "https://json-schema.org/draft/2020-12/schema"


def json_schema() -> dict[str, Any]:
    """Return the JSON Schema of a file that declares a table, or tables with keys.

    Editors complete and check a schema file by it. It knows the words and the types of their
    values; what else a declaration must fulfil, such as bounds in order, is checked when the file
    is read.

    Returns
    -------
    dict
        For the draft 2020-12 of JSON Schema.

    Examples
    --------
    >>> from sklearn_dpgen.schema import json_schema
    >>> sorted(json_schema()["$defs"]["numeric"]["properties"])
    ['high', 'integer', 'low', 'missing', 'nullable', 'step', 'type']
    """
    columns = {
        "type": "object",
        "minProperties": 1,
        "additionalProperties": {"$ref": "#/$defs/column"},
    }
    tables = {
        "type": "object",
        "required": ["tables"],
        "additionalProperties": False,
        "properties": {
            "tables": {
                "type": "object",
                "minProperties": 1,
                "additionalProperties": {"$ref": "#/$defs/table"},
            }
        },
    }
    choices = [
        {
            "if": {"properties": {"type": {"const": name}}, "required": ["type"]},
            "then": {"$ref": f"#/$defs/{name}"},
        }
        for name in TYPES
    ]
    column = {
        "type": "object",
        "required": ["type"],
        "properties": {"type": {"enum": [*TYPES]}},
        "allOf": choices,
    }
    # Beside the columns, which are then under a key of their own.
    table = {
        "type": "object",
        "required": ["columns"],
        "additionalProperties": False,
        "properties": {"columns": {"$ref": "#/$defs/columns"}}
        | {word: _WORDS[word] for word in TABLE_WORDS},
    }
    rule = {"anyOf": [{"type": "string"}, *(_rule(*item) for item in RULES.items())]}
    definitions = {name: _column(name, kind) for name, kind in TYPES.items()}
    return {
        "$schema": _DRAFT,
        "title": "Schema of a table, or of tables with keys",
        "anyOf": [{"$ref": f"#/$defs/{name}"} for name in ("columns", "one_table", "tables")],
        "$defs": {"columns": columns, "one_table": table, "tables": tables, "table": _table()}
        | {"column": column, "rule": rule}
        | definitions,
    }


def _column(name, kind):
    words = _WORDS | (_DATES if name == "datetime" else {})
    known = fields(kind)
    properties = {"type": {"const": name}} | {field.name: words[field.name] for field in known}
    required = [field.name for field in known if field.default is MISSING]
    found: dict[str, Any] = {"type": "object", "additionalProperties": False}
    if "categories" in properties:
        properties["categories_from"] = words["categories_from"]
        if "categories" in required:
            required.remove("categories")
            found["oneOf"] = [{"required": [word]} for word in ("categories", "categories_from")]
        if name == "ordinal":
            # The word of earlier releases.
            properties["values"] = words["categories"]
            found["oneOf"].append({"required": ["values"]})
    return found | {"properties": properties, "required": ["type", *required]}


def _rule(name, kind):
    known = fields(kind)
    words = _RULE_WORDS | ({"given": _VALUES} if name == "implication" else {})
    properties = {"type": {"const": name}} | {field.name: words[field.name] for field in known}
    required = [field.name for field in known if field.default is MISSING]
    found: dict[str, Any] = {"type": "object", "additionalProperties": False}
    return found | {"properties": properties, "required": ["type", *required]}


def _table():
    names = [field.name for field in fields(Table) if field.name not in ("schema", "frame")]
    names += ["delimiter", "encoding"]
    properties = {name: _WORDS[name] for name in names} | {
        "columns": {"$ref": "#/$defs/columns"},
        "public": {"type": "boolean", "description": "Whether the rows are public."},
    }
    return {
        "type": "object",
        "additionalProperties": False,
        "properties": properties,
        "required": ["columns"],
    }
