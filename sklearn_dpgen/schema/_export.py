"""Schemas as metadata of CSV on the Web, and as a data package."""

import re
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

from sklearn_dpgen.exceptions import PublicTypeError, PublicValueError
from sklearn_dpgen.schema._column import given_as
from sklearn_dpgen.schema._csvw import tr35_of
from sklearn_dpgen.schema._relational import RelationalSchema
from sklearn_dpgen.schema._schema import Schema, is_long

__all__ = ["FORMATS", "export_notes", "export_schema"]

_IDENTIFIER = "http://schema.org/identifier"
# What both formats express of a table.
_OF_TABLES = ("columns", "primary_key", "references", "delimiter", "encoding")
_PANEL = "primary_key of a panel"
_PROFILE = "https://datapackage.org/profiles/2.0"
# Marks that have a meaning in a regular expression of ECMAScript.
_SYNTAX = re.compile(r"([\^$\\.*+?()\[\]{}|/])")


def export_schema(
    schema: Schema | RelationalSchema, to: str, *, name: str = "table"
) -> dict[str, Any]:
    """Return a schema as metadata in another format, to write as JSON.

    Parameters
    ----------
    schema : Schema or RelationalSchema
    to : {"csvw", "frictionless"}
        Metadata of CSV on the Web [1]_, or the descriptor of a data package [2]_.
    name : str, default="table"
        The name of the table of a ``Schema``. Tables are in CSV files of their names.

    Returns
    -------
    dict
        Its ``notes`` say what the format cannot express, such as the order of labels or
        ``max_rows``. `Schema.draft` reads it, with these notes as comments.

    Raises
    ------
    PublicTypeError, PublicValueError
        A parameter is invalid.

    Notes
    -----
    The columns of identifiers have the type http://schema.org/identifier. A data package expresses
    all bounds, labels and codes. CSVW has no lists of labels: texts are the alternatives of a
    regular expression, and other labels are written as texts. In both, ``step``, ``zone``,
    resolutions other than days and seconds, and hierarchies become notes.

    References
    ----------
    .. [1] W3C, "Metadata Vocabulary for Tabular Data", 2015.
    .. [2] Frictionless Data, "Data Package", version 2.

    Examples
    --------
    >>> from sklearn_dpgen.schema import Numeric, Schema, export_schema
    >>> package = export_schema(Schema({"age": Numeric(0, 120)}), "frictionless", name="people")
    >>> package["resources"][0]["schema"]["fields"][0]["constraints"]
    {'required': True, 'minimum': 0, 'maximum': 120}
    >>> Schema.draft(package).to_schema()["age"].high
    120
    """
    if not isinstance(schema, Schema | RelationalSchema):
        raise PublicTypeError(
            f"schema must be a Schema or a RelationalSchema, got {given_as(schema)}."
        )
    if not isinstance(to, str) or to not in FORMATS:
        raise PublicValueError(f"to must be one of {[*FORMATS]}, got {given_as(to)}.")
    if not isinstance(name, str) or not name:
        raise PublicValueError(f"name must be the name of a table, got {given_as(name)}.")
    if isinstance(schema, Schema):
        # The files of a public table are no part of what others read.
        declaration = schema._with(public=()).to_dict()
        tables = {name: declaration if is_long(declaration) else {"columns": declaration}}
    else:
        tables = schema.to_dict()["tables"]
        for entry in tables.values():
            _add_keys(entry, tables)
    return FORMATS[to](tables)


def export_notes(document: Mapping) -> list[str]:
    """Return what an exported schema could not express, as texts with the places."""
    found = []
    for table in document.get("resources") or document.get("tables") or [document]:
        for note in table.get("notes", ()):
            column = note.get("column", note.get("dc:subject"))
            text = note.get("note", note.get("dc:description"))
            found.append(text if column is None else f"{column!r}: {text}")
    return found


def _add_keys(entry, tables):
    """Add the keys of a table to its columns, and express what the formats have in common."""
    primary, foreign = entry.get("primary_key"), entry.get("foreign_key", {})
    keys = [key for key in (primary, *foreign) if key is not None]
    columns = {key: entry["columns"].get(key, {"type": "identifier"}) for key in keys}
    entry["columns"] = columns | entry["columns"]
    if primary is not None and not foreign and "max_rows" in entry:
        # Its values repeat, so that it is no primary key in another format.
        entry[_PANEL] = entry.pop("primary_key")
    entry["references"] = {
        column: (parent, tables[parent].get("primary_key", tables[parent].get(_PANEL)))
        for column, parent in entry.pop("foreign_key", {}).items()
    }


def _left(entry, expressed):
    """Return notes on the words of a declaration that a format does not express."""
    notes = []
    for word, value in entry.items():
        if word in expressed:
            continue
        text = f"{word}: {value}"
        notes.append(text if len(text) <= 200 else f"{word} is not expressed")
    return notes


def _kind_of(entry):
    """Return the type of a column that both formats have, and its labels."""
    kind = entry["type"]
    labels = entry.get("categories")
    if kind == "numeric":
        return "integer" if entry.get("integer") else "number", None
    if kind == "datetime":
        is_date = entry.get("resolution") == "D" and "zone" not in entry
        return "date" if is_date else "datetime", None
    if kind == "identifier" or labels is None or kind == "open_categorical":
        return "string", None
    types = {type(label) for label in labels}
    if types == {bool} and list(labels) == [False, True]:
        return "boolean", labels
    if types == {str}:
        return "string", labels
    if types == {int}:
        return "integer", labels
    is_decimal = types == {float} and not all(label.is_integer() for label in labels)
    return "number" if is_decimal else "any", labels


def _bounds_of(entry, kind):
    """Return the bounds of a number or a date as a format writes them."""
    if entry["type"] not in ("numeric", "datetime"):
        return {}
    bounds = {"minimum": entry["low"], "maximum": entry["high"]}
    if kind == "date":
        return {word: value.partition("T")[0] for word, value in bounds.items()}
    if kind == "datetime" and "zone" in entry:
        return {word: f"{value}Z" for word, value in bounds.items()}
    return bounds


def _expressed(entry, kind):
    """Return the words of a column that both formats express."""
    words = {"type", "low", "high", "integer", "nullable", "missing", "description"}
    words |= {"decimal", "thousands"}
    if kind == "date" or entry.get("resolution") == "s":
        words.add("resolution")
    if entry.get("zone") == "UTC":
        words.add("zone")
    return words


def _given(entry, **names):
    """Return the words of a declaration under their names in another format."""
    return {name: entry[word] for word, name in names.items() if word in entry}


def _codes_of(entry):
    codes = entry.get("missing", [])
    return ["", *(str(code) for code in codes)] if codes else []


def _file_of(name):
    """Return the path of a table, relative to the metadata."""
    # A tilde, which is safe in a URL, may not begin a path of a data package.
    return f"{quote(name, safe='').replace('~', '%7E')}.csv"


def _frictionless(tables):
    resources = []
    for name, entry in tables.items():
        fields, notes = [], []
        for column, own in entry["columns"].items():
            item, left = _frictionless_field(column, own)
            fields.append(item)
            notes += [{"column": column, "note": note} for note in left]
        schema: dict[str, Any] = {"fields": fields}
        if "primary_key" in entry:
            schema["primaryKey"] = [entry["primary_key"]]
        keys = [
            {"fields": [column], "reference": {"resource": parent, "fields": [key]}}
            for column, (parent, key) in entry.get("references", {}).items()
        ]
        schema |= {"foreignKeys": keys} if keys else {}
        resource = {"name": name, "type": "table", "path": _file_of(name), "schema": schema}
        resource |= _given(entry, encoding="encoding")
        dialect = _given(entry, delimiter="delimiter")
        resource |= {"dialect": dialect} if dialect else {}
        notes += [{"note": note} for note in _left(entry, _OF_TABLES)]
        resources.append(resource | ({"notes": notes} if notes else {}))
    return {"$schema": f"{_PROFILE}/datapackage.json", "resources": resources}


def _frictionless_field(name, entry):
    """Return a field of a Table Schema, and what it does not express."""
    kind, labels = _kind_of(entry)
    expressed = _expressed(entry, kind) | {"format"}
    item: dict[str, Any] = {"name": name, "type": kind} | _given(
        entry,
        description="description",
        format="format",
        decimal="decimalChar",
        thousands="groupChar",
    )
    if entry["type"] == "identifier":
        return item | {"rdfType": _IDENTIFIER}, _left(entry, expressed)
    constraints: dict[str, Any] = {"required": not entry.get("nullable", False)}
    item["constraints"] = constraints | _bounds_of(entry, kind)
    if _codes_of(entry):
        item["missingValues"] = _codes_of(entry)
    left = []
    if labels is not None:
        expressed.add("categories")
        is_ordinal = entry["type"] == "ordinal"
        if is_ordinal and kind in ("string", "integer"):
            item |= {"categories": labels, "categoriesOrdered": True}
        elif kind != "boolean" or is_ordinal:
            item["constraints"]["enum"] = labels
            # Fields may have properties of their own.
            item |= {"categoriesOrdered": True} if is_ordinal else {}
    elif entry["type"] == "open_categorical":
        left.append("open_categorical: labels that are not known")
    return item, left + _left(entry, expressed)


def _csvw(tables):
    found = []
    for name, entry in tables.items():
        columns, notes = [], []
        for column, own in entry["columns"].items():
            item, left = _csvw_column(column, own)
            columns.append(item)
            notes += [{"dc:subject": column, "dc:description": note} for note in left]
        schema: dict[str, Any] = {"columns": columns}
        if "primary_key" in entry:
            schema["primaryKey"] = _variable(entry["primary_key"])
        keys = [
            {
                "columnReference": _variable(column),
                "reference": {"resource": _file_of(parent), "columnReference": _variable(key)},
            }
            for column, (parent, key) in entry.get("references", {}).items()
        ]
        schema |= {"foreignKeys": keys} if keys else {}
        notes += [{"dc:description": note} for note in _left(entry, _OF_TABLES)]
        table = {"url": _file_of(name), "tableSchema": schema}
        dialect = _given(entry, delimiter="delimiter", encoding="encoding")
        table |= {"dialect": dialect} if dialect else {}
        found.append(table | ({"notes": notes} if notes else {}))
    context = {"@context": "http://www.w3.org/ns/csvw"}
    return context | ({"tables": found} if len(found) > 1 else found[0])


def _csvw_column(name, entry):
    """Return a column of CSVW, and what it does not express."""
    kind, labels = _kind_of(entry)
    expressed = _expressed(entry, kind)
    item: dict[str, Any] = {"name": _variable(name), "titles": name}
    item |= _given(entry, description="dc:description")
    if entry["type"] == "identifier":
        return item | {"propertyUrl": _IDENTIFIER}, _left(entry, expressed)
    left = []
    datatype: dict[str, Any] = {"base": "dateTime" if kind == "datetime" else kind}
    datatype |= _bounds_of(entry, kind)
    marks = _given(entry, decimal="decimalChar", thousands="groupChar")
    pattern = tr35_of(entry["format"]) if "format" in entry else None
    if marks or pattern is not None:
        datatype["format"] = marks or pattern
        expressed.add("format")
    if labels is not None:
        expressed.add("categories")
        if kind != "boolean":
            datatype = {"base": "string", "format": _alternation([str(v) for v in labels])}
            left += ["labels are not texts"] if kind != "string" else []
        left += ["ordinal: the labels are in their order"] if entry["type"] == "ordinal" else []
    elif entry["type"] == "open_categorical":
        left.append("open_categorical: labels that are not known")
    item |= {"datatype": datatype, "required": not entry.get("nullable", False)}
    if _codes_of(entry):
        item["null"] = _codes_of(entry)
    return item, left + _left(entry, expressed)


def _alternation(labels):
    texts = [_SYNTAX.sub(r"\\\1", label) for label in labels]
    return f"^({'|'.join(texts)})$"


def _variable(name):
    """Return the name of a column as one of a variable of a URI template."""
    marked = re.sub(r"[^A-Za-z0-9_]", lambda found: _percent(found[0]), name)
    return f"%5F{marked[1:]}" if marked.startswith("_") else marked


def _percent(mark):
    return "".join(f"%{byte:02X}" for byte in mark.encode())


FORMATS = {"csvw": _csvw, "frictionless": _frictionless}
