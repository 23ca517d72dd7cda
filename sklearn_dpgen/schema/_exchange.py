"""Schemas of other formats: CSVW, Frictionless, the SDV and SmartNoise, as tables to draft from.

Each reader is a pure function of a document, from which no data are read.
"""

import re
from collections.abc import Callable, Mapping
from inspect import signature
from typing import Any

from sklearn_dpgen.exceptions import PublicValueError
from sklearn_dpgen.schema._codebook import GAP
from sklearn_dpgen.schema._csvw import is_csvw, read_csvw
from sklearn_dpgen.schema._imported import (
    TABLE_WORDS,
    Imported,
    identifier,
    is_identifier,
    mapping,
    mappings,
    new_row,
    resolution_of,
    set_bounds,
    set_file,
    set_notes,
    set_primary_key,
    texts,
    unused,
    words_of,
)
from sklearn_dpgen.schema._schema import Schema

__all__ = ["read_exchange"]


def read_exchange(document: Any) -> tuple[dict[str, Imported], bool] | None:
    """Read the metadata of a table or of several, in a format that their content shows.

    Parameters
    ----------
    document : object
        The content of a JSON or YAML file.

    Returns
    -------
    tables : dict of str to Imported
    is_relational : bool
        Whether the tables have keys, and need a relational schema.

    None is returned for other documents.

    Raises
    ------
    PublicValueError
        The document has not the form of its format.
    """
    if not isinstance(document, Mapping):
        return None
    for is_format, read in _FORMATS:
        if is_format(document):
            tables = read(document)
            break
    else:
        return None
    if not tables:
        raise PublicValueError("The document declares no table with columns.")
    is_panel = any("max_rows" in table.keys for table in tables.values())
    is_relational = len(tables) > 1 or is_panel
    if len(tables) > 1:
        _link(tables)
    for table in tables.values():
        _set_keys(table, is_relational)
        # The keys of a relational schema declare its persons.
        taken = {*signature(Schema).parameters} - ({"unit"} if is_relational else set())
        for word in [word for word in table.words if word not in taken]:
            table.remarks.append(TABLE_WORDS[word].format(table.words.pop(word)))
    return tables, is_relational


def _link(tables):
    """Set the foreign keys of tables whose references are those of a relational schema."""
    linked = set()
    for name, table in tables.items():
        for columns, parent, others in table.references:
            what = f"The foreign key {columns} refers to {parent!r}"
            if parent not in tables:
                table.remarks.append(f"{what}, which is not declared.")
            elif parent == name:
                table.remarks.append(f"{what} itself, and is not expressed.")
            elif len(columns) != 1 or len(others) != 1:
                table.remarks.append(f"{what} by several columns, and is not expressed.")
            elif tables[parent].keys.setdefault("primary_key", others[0]) != others[0]:
                table.remarks.append(f"{what} by {others[0]!r}, which is not its primary key.")
            else:
                table.keys.setdefault("foreign_key", {})[columns[0]] = parent
                linked |= {name, parent}
        foreign = table.keys.get("foreign_key", {})
        if foreign:
            table.keys["max_rows"] = GAP
        if len(foreign) > 1:
            table.remarks.append(
                f"One of {sorted({*foreign.values()})} can be private. Declare others public: true."
            )
    for name, table in tables.items():
        if name not in linked:
            table.remarks.append(
                "No key links this table: draft it by itself, or declare its foreign_key."
            )
        if table.keys.get("primary_key") in table.keys.get("foreign_key", {}):
            key = table.keys.pop("primary_key")
            table.remarks.append(f"{key!r} is the primary and a foreign key: join both tables.")


def _set_keys(table, is_relational):
    """Take the keys of a table from its columns, or declare them as identifiers."""
    foreign = [*table.keys.get("foreign_key", {})]
    primary = [table.keys["primary_key"]] if "primary_key" in table.keys else []
    keys = [*primary, *foreign]
    if is_relational:
        table.rows = [row for row in table.rows if row["name"] not in keys]
        if not table.rows:
            table.remarks.append("No column but keys: remove the table.")
        return
    for i, row in enumerate(table.rows):
        if row["name"] in keys:
            table.rows[i] = identifier(row, "primary key: never learned")
    for columns, parent, _ in table.references:
        table.remarks.append(f"The foreign key {columns} refers to {parent!r}, another table.")


# Frictionless ------------------------------------------------------------------------------------

_FRICTIONLESS_TYPES = {
    "string": "string",
    "number": "number",
    "integer": "integer",
    "boolean": "boolean",
    "date": "date",
    "datetime": "datetime",
    "year": "integer",
    "any": "any",
}
_FRICTIONLESS_FIELD = (
    "name type format title description constraints missingValues categories categoriesOrdered "
    "ordered example examples rdfType bareNumber groupChar decimalChar trueValues falseValues"
)
_FRICTIONLESS_CONSTRAINTS = "required minimum maximum exclusiveMinimum exclusiveMaximum enum"


def _is_frictionless(document):
    return any(isinstance(document.get(word), list) for word in ("resources", "fields"))


def _read_frictionless(document):
    if isinstance(document.get("fields"), list):
        return {"table": _frictionless_table({}, document)}
    tables: dict[str, Imported] = {}
    others = []
    for resource in mappings(document["resources"], "resources"):
        name = str(resource.get("name"))
        if "schema" not in resource:
            others.append(name)
            continue
        if name in tables:
            raise PublicValueError(f"Names of resources must be distinct, got {name!r} twice.")
        schema = mapping(resource["schema"], f"The schema of the resource {name!r}")
        tables[name] = _frictionless_table(resource, schema)
    for name, table in tables.items():
        table.remarks += [f"The resources {others} have no schema."] if others else []
        # A reference without a resource, or to an empty name, is one to the table itself.
        table.references = [
            (own, parent or name, columns) for own, parent, columns in table.references
        ]
    return tables


def _frictionless_table(resource, schema):
    codes = schema.get("missingValues")
    if not isinstance(schema.get("fields"), list):
        raise PublicValueError("A table schema must have a list of fields.")
    table = Imported([_frictionless_row(item, codes) for item in schema["fields"]])
    set_notes(table, resource.get("notes"), "column", "note")
    keys = texts(schema.get("primaryKey"))
    set_primary_key(table, keys)
    for key in mappings(schema.get("foreignKeys", []), "foreignKeys"):
        reference = mapping(key.get("reference"), "The reference of a foreign key")
        own, others = texts(key.get("fields")), texts(reference.get("fields"))
        parent = reference.get("resource")
        table.references.append((own, parent if parent is None else str(parent), others))
    dialect = resource.get("dialect")
    dialect = dialect if isinstance(dialect, Mapping) else {}
    set_file(table, dialect, resource.get("encoding"))
    plain = ("delimiter", "header", "doubleQuote", "lineTerminator", "quoteChar", "$schema")
    others = {k: v for k, v in dialect.items() if k not in plain or (k == "header" and not v)}
    table.remarks += [f"In the dialect, {note}." for note in unused(others, "")]
    if "uniqueKeys" in schema:
        table.remarks.append("uniqueKeys are not expressed.")
    if "data" in resource:
        table.remarks.append("The data in the file are not read.")
    return table


def _frictionless_row(item, codes):
    """Return a field of a Table Schema as a row of a data dictionary."""
    if not isinstance(item, Mapping):
        raise PublicValueError("The fields of a table schema must be mappings.")
    constraints = item.get("constraints")
    constraints = constraints if isinstance(constraints, Mapping) else {}
    given = item.get("type", "any")
    kind = _FRICTIONLESS_TYPES.get(given) if isinstance(given, str) else None
    pattern = item.get("format", "default")
    values = _bare(item.get("categories", constraints.get("enum")))
    missing = _bare(item.get("missingValues", codes))
    missing = [code for code in missing if code != ""] if isinstance(missing, list) else None
    row = new_row(
        item.get("name"), kind or GAP, label=item.get("title"), description=item.get("description")
    )
    notes, words = row["notes"], row["words"]
    if kind is None:
        notes.append(f"{given!r} of a Table Schema has no counterpart")
    if kind == "string" and pattern == "uuid" or is_identifier(item.get("rdfType")):
        return identifier(row, "an identifier: never learned")
    if kind is None:
        return row
    # A field that is not required may be null.
    row |= {"required": constraints.get("required", False), "missing": missing or None}
    row |= {"values": values, "ordered": item.get("categoriesOrdered", item.get("ordered"))}
    if kind == "boolean":
        labels = [texts(item.get(word)) for word in ("falseValues", "trueValues")]
        if any(labels) and values is None:
            row |= {"type": "string", "values": (labels[0] or ["false"]) + (labels[1] or ["true"])}
    elif kind in ("number", "integer"):
        marks = {"decimal": item.get("decimalChar"), "thousands": item.get("groupChar")}
        words |= words_of(marks)
        if item.get("bareNumber") is False:
            notes.append("other characters around numbers, such as a currency (bareNumber)")
    elif kind in ("date", "datetime"):
        if isinstance(pattern, str) and "%" in pattern:
            words["format"] = pattern
            if kind == "datetime":
                row["resolution"] = resolution_of(pattern)
        elif pattern == "any":
            notes.append("dates are written in any way: write them in ISO 8601")
    elif pattern != "default":
        notes.append(f"texts of the format {pattern!r}")
    bounds = {"low": constraints.get("minimum"), "high": constraints.get("maximum")}
    for end, word in (("low", "exclusiveMinimum"), ("high", "exclusiveMaximum")):
        if word in constraints and bounds[end] is None:
            bounds[end] = constraints[word]
            notes.append(f"{end} itself is excluded")
    set_bounds(row, bounds)
    strict = {k: v for k, v in constraints.items() if v is not False}
    notes += unused(item, _FRICTIONLESS_FIELD) + unused(strict, _FRICTIONLESS_CONSTRAINTS)
    return row


def _bare(values):
    """Return a list of values without their labels."""
    if not isinstance(values, list):
        return values
    return [value.get("value") if isinstance(value, Mapping) else value for value in values]


# Synthetic Data Vault ----------------------------------------------------------------------------

_SDV_TABLE = (
    "METADATA_SPEC_VERSION columns primary_key alternate_keys sequence_key sequence_index "
    "column_relationships"
)


def _is_sdv(document):
    tables = document.get("tables")
    tables = tables.values() if isinstance(tables, Mapping) else [document]
    columns = [t.get("columns") for t in tables if isinstance(t, Mapping)]
    return bool(columns) and any(
        isinstance(column, Mapping) and "sdtype" in column
        for found in columns
        if isinstance(found, Mapping)
        for column in found.values()
    )


def _read_sdv(document):
    given = document.get("tables", {"table": document})
    tables = {name: _sdv_table(mapping(item, f"Table {name!r}")) for name, item in given.items()}
    for link in mappings(document.get("relationships", []), "relationships"):
        child, parent = str(link.get("child_table_name")), str(link.get("parent_table_name"))
        if child not in tables:
            raise PublicValueError("relationships must name tables of the metadata.")
        key, other = texts(link.get("child_foreign_key")), texts(link.get("parent_primary_key"))
        tables[child].references.append((key, parent, other))
    return tables


def _sdv_table(item):
    columns = mapping(item.get("columns"), "columns")
    table = Imported([_sdv_row(name, column) for name, column in columns.items()])
    set_primary_key(table, texts(item.get("primary_key")))
    table.remarks.append(
        "The SDV does not say where values may be missing: add nullable: true to such columns."
    )
    person = texts(item.get("sequence_key"))
    if len(person) == 1:
        # Rows of a person in one long table. Without an index they have no order.
        table.keys = {"primary_key": person[0], "max_rows": GAP}
        if isinstance(item.get("sequence_index"), str):
            table.keys["sequence_index"] = item["sequence_index"]
    if item.get("alternate_keys"):
        table.remarks.append(f"Alternate keys are {item['alternate_keys']}.")
    if item.get("column_relationships"):
        table.remarks.append("column_relationships are not expressed: see constraints.")
    table.remarks += [f"Of the table, {note}." for note in unused(item, _SDV_TABLE)]
    return table


def _sdv_row(name, column):
    """Return a column of SDV metadata as a row of a data dictionary."""
    column = mapping(column, f"Column {name!r}")
    kind = column.get("sdtype")
    row = new_row(name, "categorical")
    notes, words = row["notes"], row["words"]
    known = "sdtype pii"
    detected = [w for w in column if str(w).startswith("range_") or w == "decimal_places"]
    if detected:
        # Version 2 of the metadata has them, by default those of the rows.
        known += " " + " ".join(detected)
        notes.append(f"{', '.join(detected)} not taken: the SDV detects them from the rows")
    if kind == "numerical":
        known += " computer_representation"
        stored = str(column.get("computer_representation", ""))
        row["type"] = "integer" if "Int" in stored else "number"
        notes += [] if stored else ["integer: true, if all are integers"]
    elif kind == "datetime":
        known += " datetime_format"
        row["type"] = "datetime"
        pattern = column.get("datetime_format")
        if isinstance(pattern, str):
            row["resolution"] = resolution_of(pattern)
            if pattern not in ("%Y-%m-%d", "%Y-%m-%d %H:%M:%S", "%Y-%m-%dT%H:%M:%S"):
                words["format"] = pattern
    elif kind == "boolean":
        row["type"] = "boolean"
    elif kind in ("categorical", "ordinal"):
        known += " order order_by"
        ordered = kind == "ordinal" or "order" in column or "order_by" in column
        row |= {"type": "ordinal" if ordered else "categorical", "values": column.get("order")}
    elif kind == "id":
        known += " regex_format"
        row = identifier(row, "an id: never learned")
        if "regex_format" in column:
            row["notes"].append(f"as {column['regex_format']!r}")
        notes = row["notes"]
    elif column.get("pii", True) is False:
        row["type"] = "open"
        notes.append(f"sdtype {kind!r}: categorical, if the labels are public")
    else:
        row = identifier(row, f"sdtype {kind!r}: numbered; remove it if not needed")
        notes = row["notes"]
    notes += unused(column, known)
    return row


# SmartNoise --------------------------------------------------------------------------------------

_SMARTNOISE_TYPES = {
    "int": "integer",
    "float": "number",
    "string": "string",
    "boolean": "boolean",
    "datetime": "datetime",
    "unknown": None,
}
_SMARTNOISE_COLUMN = "name type private_id lower upper nullable missing_value"
_SMARTNOISE_QUERIES = "sample_max_ids censor_dims clamp_counts clamp_columns use_dpsu"


def _is_smartnoise(document):
    tables = [
        table
        for schemas in document.values()
        if isinstance(schemas, Mapping)
        for group in schemas.values()
        if isinstance(group, Mapping)
        for table in group.values()
    ]
    return bool(tables) and all(isinstance(t, Mapping) and _smartnoise_columns(t) for t in tables)


def _smartnoise_columns(table):
    """Return the columns among the options of a table."""
    return {
        name: column
        for name, column in table.items()
        if isinstance(column, Mapping)
        and isinstance(column.get("type"), str)
        and column["type"] in _SMARTNOISE_TYPES
    }


def _read_smartnoise(document):
    tables = {}
    for schemas in document.values():
        for group in schemas.values() if isinstance(schemas, Mapping) else ():
            for name, item in group.items() if isinstance(group, Mapping) else ():
                name = _unquoted(name)
                if name in tables:
                    raise PublicValueError(f"Tables must have distinct names, got {name!r} twice.")
                tables[name] = _smartnoise_table(item)
    return tables


def _unquoted(name):
    return re.sub(r'^(["`\[])(.*)["`\]]$', r"\2", str(name))


def _smartnoise_table(item):
    columns = _smartnoise_columns(item)
    options = {word: value for word, value in item.items() if word not in columns}
    table = Imported([])
    persons = []
    for name, column in columns.items():
        name = _unquoted(name)
        kind = _SMARTNOISE_TYPES[column["type"]]
        if kind is None:
            table.remarks.append(f"{name!r} has the type unknown, and is left out.")
            continue
        row = new_row(name, kind)
        notes = row["notes"]
        notes += unused(column, _SMARTNOISE_COLUMN)
        if column.get("private_id") is True:
            persons.append(name)
            table.rows.append(identifier(row, "private_id: the person, for unit"))
            continue
        row["nullable"] = column.get("nullable", True)
        bounds = {"low": column.get("lower"), "high": column.get("upper")}
        if kind in ("integer", "number"):
            row |= {end: value for end, value in bounds.items() if value is not None}
        elif any(value is not None for value in bounds.values()):
            notes.append("bounds are valid for numbers only")
        if column.get("missing_value") is not None:
            row["nullable"] = True
            notes.append("SmartNoise replaces nulls by missing_value; here they are learned")
        table.rows.append(row)
    if len(persons) == 1:
        table.words["unit"] = persons[0]
    elif persons:
        table.remarks.append(f"Persons are identified by several columns, {persons}.")
    if "max_ids" in options:
        table.remarks.append(
            f"max_ids: {options['max_ids']!r} rows of a person at most; unit protects any number."
        )
    if options.get("row_privacy") is True:
        table.remarks.append("row_privacy: each row is a person, as in a fit without unit.")
    if any(word in options for word in _SMARTNOISE_QUERIES.split()):
        table.remarks.append("Options of queries, such as clamp_counts, have no counterpart.")
    table.remarks += [
        f"Of the table, {note}."
        for note in unused(options, f"max_ids row_privacy {_SMARTNOISE_QUERIES}")
    ]
    return table


_FORMATS: tuple[tuple[Callable, Callable], ...] = (
    (_is_frictionless, _read_frictionless),
    (_is_sdv, _read_sdv),
    (is_csvw, read_csvw),
    (_is_smartnoise, _read_smartnoise),
)
