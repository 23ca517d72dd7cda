"""The commands draft-schema and check: draft a schema, and check a table against it."""

import io
import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sklearn_dpgen.command_line._console import CommandError, Console, describe
from sklearn_dpgen.command_line._files import (
    check_new_file,
    files_of,
    identifiers_of,
    parse,
    private_files,
    public_files,
    public_tables,
    read_frame,
    read_schema,
    read_text,
    table_columns,
    write_text,
)
from sklearn_dpgen.command_line._options import (
    add_command,
    add_named_tables,
    add_overwrite,
    add_public,
    add_tables,
    by_name,
    check_public,
)
from sklearn_dpgen.exceptions import PublicError, PublicValueError

if TYPE_CHECKING:
    from sklearn_dpgen.schema import RelationalSchema, Schema

__all__ = ["add_to"]

_DRAFT = """\
Draft a schema, to be completed and reviewed by hand.

From a table, only the names of the columns are taken, and the types that Parquet, Feather and Arrow
files declare. Bounds, categories and whether numbers are integers are never taken: what occurs in
the records is private, and a schema is public. CSV files declare no types. Where a name is plain,
such as birth_date or postcode, a type is suggested. The draft has '...' wherever you have to
declare something, and no command accepts it before that.

From a codebook (--codebook, or a JSON or YAML file), bounds and categories are taken as well. A
codebook is a data dictionary with one row per column and at least the fields name and type, or the
metadata of a table in another format: a Table Schema or data package of Frictionless, CSV on the
Web, metadata of the SDV, or of SmartNoise SQL. Metadata of several tables give a relational schema.
The content is taken as public. Many codebooks list the smallest and the largest value that
occurred: those are private, so replace them.

If persons have several rows, in one table or in several with keys, name the tables by --table: the
draft is then a relational schema. Keys are never guessed.
"""
_DRAFT_EXAMPLES = """\
  sklearn-dpgen draft-schema patients.csv --out schema.yaml
  sklearn-dpgen draft-schema patients.parquet --out schema.yaml
  sklearn-dpgen draft-schema dictionary.csv --codebook --out schema.yaml
  sklearn-dpgen draft-schema datapackage.json --out schema.yaml
  sklearn-dpgen draft-schema --table patients=patients.csv --table visits=visits.csv --out all.yaml
"""
_HEAD = """\
# A draft. Review each line, and replace each '...' by public knowledge, such as the questionnaire,
# the codes of a form or the law, not by what is in the table: a schema is published with releases.
#
#   numeric            low, high; integer: true; step
#   datetime           low, high, such as 2020-01-31; resolution: D for days
#   categorical        categories: [no, yes], or categories_from: codes.txt; hierarchy: [1, 3]
#   ordinal            categories: [1, 2, 3]
#   open_categorical   labels that nobody can list, such as towns: a fit discovers the frequent ones
#   identifier         never learned, and numbered in synthetic rows
#
# nullable: true where values may be missing. A number that is a code is a category. Remove columns
# that need no synthetic counterpart.
"""
_ONE_TABLE = """\
#
# If persons have several rows: name their identifier by --unit{examples}, or draft a
# relational schema with --table NAME=FILE.
"""
_TABLES = """\
#
# Keys are not modelled: remove them from 'columns', and from each table what does not apply:
#
#   primary_key     the column that identifies a row, or in one long table a person
#   foreign_key     {patient: patients}: the column with the keys of a parent, and that table
#   sequence_index  the column that orders the rows of a parent row, such as a date
#   max_rows        public bound of the rows of a parent row that are modelled
#   static          in one long table, the columns that are the same in all rows of a person
#   ties: false     two rows of a parent row never have the same sequence_index
#   public: true    a public table, such as a list of hospitals: its file is not protected
"""
_KEYS = ("primary_key", "foreign_key", "sequence_index", "max_rows", "static")
_LOOKED_AT = {
    False: "Names and declared types were read, and no record.",
    True: "The codebook was read, and no table.",
}
_TABLE_NOTE = (
    "The draft holds the names of the columns and the types that the file declares, and no value. "
    "CSV files declare no types, and the first line is taken as the names: review them."
)
_CODEBOOK_NOTE = (
    "The content of the codebook is taken as public. If its bounds or categories are those that "
    "occurred in the table, they are private: replace them."
)
_PRIVATE = (
    "PRIVATE: these are exact counts of the records. Do not publish them, and do not choose bounds "
    "or categories by them."
)
_EXPORT = """\
Write a schema as metadata in another format, which other tools read.

Frictionless: the descriptor of a data package, datapackage.json. CSVW: metadata of CSV on the Web.
What these cannot express, such as the order of labels or max_rows, is listed, and is in the notes
of the file. The files of public tables are named by --table.
"""
_EXPORT_EXAMPLES = """\
  sklearn-dpgen export-schema schema.yaml --to frictionless --out datapackage.json
  sklearn-dpgen export-schema schema.yaml --to csvw --out schema-metadata.json
"""
# What each fault means, and whether a fit stops at it.
_FAULTS = {
    "outside_bounds": ("outside the declared bounds; a fit clips them", False),
    "undeclared": ("not among the declared labels", True),
    "null": ("missing in a column that is not declared nullable", True),
    "not_integer": ("not integers; a fit rounds them", False),
    "unreadable": ("of another type than declared", True),
    "unnamed": ("missing, but --unit must identify a person in every row", True),
    "repeated": ("shared with other rows", False),
}
# Those of the keys and rows of a relational schema.
_ROW_FAULTS = {
    "missing_key": ("missing in a key; a fit drops these rows", False),
    "orphan": ("without a row in the parent table; a fit drops these rows", False),
    "missing_public": ("missing in the key of a public table", True),
    "orphan_public": ("not among the keys of the public table", True),
    "tied": ("shared with other rows of the parent row, but ties are excluded", False),
    "over_max_rows": ("with more rows than max_rows", False),
    "changing": ("declared static, but changing between the rows of a person", False),
}
# The faults of keys, by those that RelationalSchema.check counts. A key of a public table is a
# category, which must be declared.
_KEY_FAULTS = {"null": "missing_key"}
_PUBLIC_KEY_FAULTS = {"null": "missing_public", "orphan": "orphan_public"}
_JSON_SCHEMA = """\
Write the JSON Schema of schema files.

Editors with a YAML language server complete and check a schema by it, if the first line of the
file is "# yaml-language-server: $schema=FILE".
"""
_JSON_SCHEMA_EXAMPLES = """\
  sklearn-dpgen json-schema --out words.json
"""
_CHECK = """\
Check a schema, and whether a table fits it.

Without a table, only the schema is read, and the output is public. With a table, the output counts
the values of each column that do not fit, and never shows one. These counts are PRIVATE: they are
exact, for people who may see the table.

The exit code is 1 if the schema is not valid, or if a fit would stop at the table: undeclared
labels, values of another type, missing values. Numbers and dates outside their bounds are clipped
by a fit, and other numbers rounded where integers are declared: they are counted, and are no
failure. Columns that the schema does not declare are listed; a fit does not read them. Repeated
identifiers are counted: if they identify persons, protect each person with all of their rows by
--unit, here and in the fit, or declare a relational schema.

With --public the output says which columns of a public table align with the schema, and how many of
their cells are not known, because the schema does not declare them. That is no failure, and public.

Of a relational schema, name each table by --table. Repeated and missing keys, rows without a
parent, ties of the index and persons with more rows than max_rows are counted too, and are no
failure. The tables are read as a whole.
"""
_CHECK_EXAMPLES = """\
  sklearn-dpgen check schema.yaml
  sklearn-dpgen check schema.yaml patients.csv
  sklearn-dpgen check schema.yaml 'part-*.parquet' --json
  sklearn-dpgen check all.yaml --table patients=patients.csv --table visits=visits.csv
  sklearn-dpgen check schema.yaml --public census.csv
"""
# An object that no column declares.
_NO_VALUE = object()


def add_to(commands) -> None:
    """Add the commands."""
    draft = add_command(
        commands,
        "draft-schema",
        run_draft,
        summary="draft a schema to complete by hand",
        text=_DRAFT,
        examples=_DRAFT_EXAMPLES,
    )
    draft.add_argument(
        "source",
        nargs="*",
        metavar="FILE",
        help="one or more files of one table (Parquet, CSV, Feather, Arrow), or a codebook",
    )
    draft.add_argument(
        "--codebook", action="store_true", help="the file is a codebook, not a table"
    )
    add_named_tables(draft)
    draft.add_argument("--out", required=True, metavar="FILE", help="YAML file to write")
    add_overwrite(draft)

    words = add_command(
        commands,
        "json-schema",
        run_json_schema,
        summary="write the JSON Schema of schema files, for editors",
        text=_JSON_SCHEMA,
        examples=_JSON_SCHEMA_EXAMPLES,
    )
    words.add_argument("--out", required=True, metavar="FILE", help="JSON file to write")
    add_overwrite(words)

    export = add_command(
        commands,
        "export-schema",
        run_export,
        summary="write a schema in a format of other tools",
        text=_EXPORT,
        examples=_EXPORT_EXAMPLES,
    )
    export.add_argument("schema", metavar="SCHEMA", help="schema, in YAML or JSON")
    export.add_argument(
        "--to", required=True, choices=("csvw", "frictionless"), help="format of the file"
    )
    export.add_argument(
        "--name", metavar="TABLE", help="name of the table; by default that of the schema file"
    )
    add_named_tables(export)
    export.add_argument("--out", required=True, metavar="FILE", help="JSON file to write")
    add_overwrite(export)

    check = add_command(
        commands,
        "check",
        run_check,
        summary="check a schema, and whether a table fits it",
        text=_CHECK,
        examples=_CHECK_EXAMPLES,
    )
    check.add_argument("schema", metavar="SCHEMA", help="schema of the table, in YAML or JSON")
    add_tables(check, nargs="*")
    add_named_tables(check)
    check.add_argument(
        "--unit",
        metavar="COLUMN",
        help="column that identifies persons: an identifier of the schema, or not declared there",
    )
    add_public(check)


def run_draft(arguments, console: Console) -> int:
    """Draft a schema."""
    if not arguments.out.lower().endswith((".yaml", ".yml")):
        raise CommandError(f"--out must have the ending .yaml or .yml, got {arguments.out}.")
    out = check_new_file(arguments.out, overwrite=arguments.overwrite)
    if bool(arguments.source) == bool(arguments.tables):
        raise CommandError("Give either the files of one table, or each table by --table.")
    tables = by_name(arguments.tables) if arguments.tables else {"": arguments.source}
    found = {name: _draft_of(paths, arguments.codebook) for name, paths in tables.items()}
    is_codebook = any(is_codebook for _, is_codebook in found.values())
    from sklearn_dpgen.schema._codebook import GAP
    from sklearn_dpgen.schema._drafts import RelationalDraft

    if not arguments.tables:
        draft, _ = found[""]
    else:
        only = {name: draft for name, (draft, _) in found.items()}
        if any(isinstance(draft, RelationalDraft) for draft in only.values()):
            raise CommandError("Metadata of several tables must be given alone, without --table.")
        # One table has no parent, and static columns are those of one long table.
        missing = [key for key in _KEYS if key != ("static" if len(only) > 1 else "foreign_key")]
        draft = RelationalDraft(only, {name: dict.fromkeys(missing, GAP) for name in only})
    is_relational = isinstance(draft, RelationalDraft)
    drafts = draft.tables if is_relational else {"": draft}
    write_text(out, _HEAD + _advice(drafts, is_relational) + "\n" + draft.to_yaml())
    console.warn(_CODEBOOK_NOTE if is_codebook else _TABLE_NOTE)
    n_columns = sum(len(own.declaration) for own in drafts.values())
    lines = [f"Wrote a draft of {n_columns} columns to {out}.", _LOOKED_AT[is_codebook]]
    suggested = {} if is_codebook else _suggested(drafts)
    if suggested:
        lines.append("Suggested by names alone:")
        lines += [f"  {name!r}: {kind}" for name, kind in suggested.items()]
    if draft.missing:
        lines.append("Declare, from public knowledge alone:")
        lines += [f"  {name!r}: {', '.join(fields)}" for name, fields in draft.missing.items()]
    lines.append(f"Review the draft, then run: sklearn-dpgen check {out}")
    gaps = {name: [*fields] for name, fields in draft.missing.items()}
    document = {"out": str(out), "n_columns": n_columns, "suggested": suggested, "missing": gaps}
    return console.result("\n".join(lines), document)


def _advice(drafts, is_relational):
    """Return the end of the head of a draft, on tables with several rows of a person."""
    if is_relational:
        names = [name for draft in drafts.values() for name in draft.declaration]
        shared = [name for name in dict.fromkeys(names) if names.count(name) > 1]
        return _TABLES + (f"#\n# Columns in several tables: {shared}\n" if shared else "")
    (draft,) = drafts.values()
    keys = [n for n, entry in draft.declaration.items() if entry["type"] == "identifier"]
    return _ONE_TABLE.format(examples=f" (perhaps {', '.join(keys[:3])})" if keys else "")


def _suggested(drafts):
    """Return the types of the columns that have them by their names, as these have notes."""
    return {
        f"{table}.{name}" if table else name: draft.declaration[name]["type"]
        for table, draft in drafts.items()
        for name in draft.notes
        if draft.declaration[name]["type"] != "..."
    }


def run_export(arguments, console: Console) -> int:
    """Write a schema as metadata in another format."""
    if not arguments.out.lower().endswith(".json"):
        raise CommandError(f"--out must have the ending .json, got {arguments.out}.")
    out = check_new_file(arguments.out, overwrite=arguments.overwrite)
    tables = {name: files_of(paths) for name, paths in by_name(arguments.tables).items()}
    schema = read_schema(arguments.schema, tables)
    from sklearn_dpgen.schema import export_schema
    from sklearn_dpgen.schema._export import export_notes

    name = arguments.name or Path(arguments.schema).stem
    document = export_schema(schema, arguments.to, name=name)
    write_text(out, json.dumps(document, indent=2, allow_nan=False) + "\n")
    notes = export_notes(document)
    lines = [f"Wrote {arguments.to} metadata to {out}."]
    lines += (
        ["Not expressed by the format, but noted:", *(f"  {n}" for n in notes)] if notes else []
    )
    return console.result("\n".join(lines), {"out": str(out), "notes": notes})


def run_json_schema(arguments, console: Console) -> int:
    """Write the JSON Schema of schema files."""
    from sklearn_dpgen.schema import json_schema

    if not arguments.out.lower().endswith(".json"):
        raise CommandError(f"--out must have the ending .json, got {arguments.out}.")
    out = check_new_file(arguments.out, overwrite=arguments.overwrite)
    write_text(out, json.dumps(json_schema(), indent=2) + "\n")
    return console.result(f"Wrote the JSON Schema of schema files to {out}.", {"out": str(out)})


def _draft_of(source, is_codebook):
    """Return the draft of a table, and whether it was drafted from a codebook."""
    is_codebook = is_codebook or source[0].lower().endswith((".json", ".yaml", ".yml"))
    if is_codebook and len(source) > 1:
        raise CommandError("A codebook must be one file.")
    return (_from_codebook(source[0]) if is_codebook else _from_table(source)), is_codebook


def _from_table(paths: Sequence[str]):
    """Return a draft from the column names, and the types that files declare."""
    paths = files_of(paths)
    from sklearn_dpgen.preprocessing._files import CsvFiles, open_files
    from sklearn_dpgen.schema import Schema
    from sklearn_dpgen.schema._codebook import GAP

    files = open_files(paths, None)
    for path in paths[1:]:
        if set(_names_of(open_files([path], None))) != set(_names_of(files)):
            raise CommandError(
                "The files of one table must have the same columns. If they are several tables, "
                "name each by --table NAME=FILE."
            )
    if isinstance(files, CsvFiles):
        _check_names(files.names)
        return _with_suggestions({name: {"type": GAP} for name in files.names})
    # Columns without values, and times of day, are categorical.
    types = {
        field.name: "string"
        if re.match("null|time(32|64)|duration", str(field.type))
        else str(field.type)
        for field in files.schema
    }
    # A fraction or a missing value turns integers into floats, so this type would reveal it.
    return _with_suggestions(
        {
            name: entry | ({"integer": GAP} if entry["type"] == "numeric" else {})
            for name, entry in Schema.draft(types).declaration.items()
        }
    )


def _with_suggestions(declaration):
    """Return the draft of a table, with types and notes for the columns whose names are plain."""
    from sklearn_dpgen.schema._codebook import GAP
    from sklearn_dpgen.schema._names import suggest
    from sklearn_dpgen.schema._schema import SchemaDraft

    notes = {}
    for name, entry in declaration.items():
        found = suggest(name, None if entry["type"] == GAP else entry["type"])
        if found is not None:
            # What a file declares stays, where the name agrees.
            declaration[name] = (
                entry if entry["type"] == found.entry["type"] != GAP else found.entry
            )
            notes[name] = found.note
    return SchemaDraft(declaration, notes)


def _names_of(files):
    from sklearn_dpgen.preprocessing._files import CsvFiles

    return files.names if isinstance(files, CsvFiles) else files.schema.names


def _check_names(names):
    """Raise CommandError if the first line of a CSV file is no header, or that of a codebook."""
    # The message names fields by their positions: without a header they are private values.
    for i, name in enumerate(names):
        fault = (
            f"has the name of field {names.index(name) + 1}"
            if name in names[:i]
            else "is empty"
            if not name.strip()
            else "is a number"
        )
        if name in names[:i] or re.fullmatch(r"[\s\d.,:/eE+-]*", name):
            raise CommandError(
                "The first line of the file must hold the names of the columns: field "
                f"{i + 1} {fault}. A CSV file needs a header; without one, the first record would "
                "be published as names."
            )
    if _is_dictionary(names):
        raise CommandError(
            "The file has the fields name and type, like a codebook: use --codebook to read it as "
            "one. If it is a table of records, rename these columns."
        )


def _is_dictionary(names):
    from sklearn_dpgen.schema._codebook import _SYNONYMS

    fields = {_SYNONYMS.get(name.strip().lower()) for name in names}
    return {"name", "type"} <= fields and None not in fields


def _from_codebook(path):
    """Return a draft from a data dictionary or a Table Schema."""
    is_json = path.lower().endswith((".json", ".yaml", ".yml"))
    if not is_json and not path.lower().endswith(".csv"):
        raise CommandError("A codebook must be a CSV, JSON or YAML file.")
    text = read_text(path, "codebook")
    import pandas as pd

    from sklearn_dpgen.schema import Schema

    if is_json:
        return Schema.draft(parse(text, path))
    from sklearn_dpgen.preprocessing._files import CsvFiles

    # Raises an error that names another separator.
    CsvFiles([path], None)
    try:
        codebook = pd.read_csv(io.StringIO(text))
    except ValueError:
        codebook = None
    if codebook is None:
        raise CommandError(f"All rows of {path} must have the same number of fields.")
    return Schema.draft(codebook)


def run_check(arguments, console: Console) -> int:
    """Check a schema, and a table."""
    files = files_of(arguments.table)
    tables = {name: files_of(paths) for name, paths in by_name(arguments.tables).items()}
    check_public(arguments)
    public_files(arguments.public)
    try:
        schema = read_schema(arguments.schema, tables)
    except CommandError as error:
        fault = str(error)
        return console.result(fault, {"schema": arguments.schema, "fault": fault}, ok=False)
    public = public_tables(arguments.public, arguments.public_weights, schema)
    if public is not None:
        console.say("Reading the public table.")
    from sklearn_dpgen.schema import Schema

    if not isinstance(schema, Schema):
        if arguments.unit is not None:
            raise CommandError("--unit must be left out: a relational schema declares its persons.")
        private = private_files(schema, files, tables)
        return _run_check_tables(arguments.schema, schema, private, public, console)
    if tables:
        raise CommandError("--table must be left out: the schema is that of one table.")
    document = {"schema": arguments.schema, "n_columns": len(schema)}
    valid = f"{arguments.schema} is a valid schema of {len(schema)} columns."
    lines, ok = [], True
    if public is not None:
        document["public"] = checked = _check_public_table(public, schema)
        lines, ok = _lines_of_public(checked), checked["fault"] is None
    if not files:
        return console.result("\n".join([valid, *lines]), document, ok=ok)
    console.say(valid)
    console.say("Reading the table.")
    found = _check_table(files, schema, arguments.unit)
    document |= {"private": True, "note": _PRIVATE} | found
    stops = _stops(found)
    text = "\n".join([_text(found, stops), *lines])
    return console.result(text, document, ok=ok and not stops)


def _check_public_table(public, schema):
    """Return the number of cells of a public table that are not known, by column.

    Returns
    -------
    dict
        "fault" is the reason why a fit cannot use the table, or None. "unknown" has the columns
        that align; "unread" are those without a known cell, and "lacking" those of the schema that
        the table lacks. "n_rows" is the number of rows that a fit uses.
    """
    from sklearn_dpgen.preprocessing._files import open_files

    found: dict[str, Any] = {
        "fault": None,
        "sha256": None,
        "n_rows": None,
        "unknown": {},
        "unread": [],
        "lacking": [],
    }
    try:
        rows = public.read(schema)
        names = _names_of(open_files(public.source, None))
    except PublicError as error:
        return found | {"fault": describe(error)}
    others = [n for n in schema if n not in rows.names and n not in identifiers_of(schema)]
    unknown = (~rows.known).sum(axis=0).tolist()
    return found | {
        "sha256": rows.sha256,
        "n_rows": len(rows.weights),
        "unknown": dict(zip(rows.names, unknown, strict=True)),
        "unread": [n for n in others if n in names],
        "lacking": [n for n in others if n not in names],
    }


def _lines_of_public(found, name=None):
    """Return the lines of what was found in a public table, of a relational schema by name."""
    of_name = "" if name is None else f" of {name!r}"
    if found["fault"] is not None:
        return ["", found["fault"], f"A fit cannot use the public table{of_name}."]
    lines = ["", f"Public table{of_name}: {found['n_rows']} rows, SHA-256 {found['sha256']}."]
    lines += [f"{name!r}: aligned; cells not known: {n}" for name, n in found["unknown"].items()]
    lines += [f"{name!r}: no cell is known, so it is not used" for name in found["unread"]]
    return lines + [f"{name!r}: not in the public table" for name in found["lacking"]]


def _run_check_tables(path, schema, tables, public, console):
    """Check a relational schema, the private tables, and the public ones beside them."""
    n_columns = sum(len(table.schema) for table in schema.values())
    document = {"schema": path, "n_columns": n_columns, "n_tables": len(schema)}
    valid = f"{path} is a valid schema of {n_columns} columns in {len(schema)} tables."
    lines, ok = [], True
    if public is not None:
        checked = {n: _check_public_table(table, schema[n].schema) for n, table in public.items()}
        document["public"] = checked
        lines = [line for name, own in checked.items() for line in _lines_of_public(own, name)]
        ok = all(own["fault"] is None for own in checked.values())
        if ok and (fault := _fault_of_links(public, schema)):
            document["fault"], ok = fault, False
            lines += ["", fault, "A fit cannot use the public tables."]
    if not tables:
        return console.result("\n".join([valid, *lines]), document, ok=ok)
    console.say(valid)
    console.say("Reading the tables.")
    found = _check_tables(tables, schema)
    document |= {"private": True, "note": _PRIVATE, "tables": found}
    stops = any(map(_stops, found.values()))
    text = "\n".join([_text_of_tables(found, stops), *lines])
    return console.result(text, document, ok=ok and not stops)


def _fault_of_links(public, schema):
    """Return why public tables cannot be linked by their keys, or None; warn as a fit does."""
    from sklearn_dpgen.tables import RelationalSampler

    try:
        # The number of persons is then not read.
        RelationalSampler(schema=schema, public=public, neighbours="add_or_remove").plan()
    except PublicError as error:
        return describe(error)
    return None


def _stops(found):
    """Return whether a fit would stop at a table."""
    faults = {name for column in found["faults"].values() for name in column}
    return found["fault"] is not None or any((_FAULTS | _ROW_FAULTS)[name][1] for name in faults)


def _check_tables(tables, schema: "RelationalSchema") -> dict:
    """Count the values, keys and rows that do not fit a relational schema, by table."""
    found, frames = {}, {}
    for name, files in tables.items():
        table = schema[name]
        columns = dict.fromkeys(table.keys) | dict(table.schema)
        found[name] = _nothing_found()
        try:
            names = table_columns(files, columns, None)
            frames[name] = _read_leniently(files, columns)
            others = [column for column in names if column not in columns]
            found[name] |= {"undeclared_columns": others, "n_rows": len(frames[name])}
        except CommandError:
            raise
        except (ValueError, FileNotFoundError) as error:
            found[name]["fault"] = describe(error)
    if len(frames) < len(tables):
        return found
    for name, counts in schema.check(frames).items():
        keys = schema[name].keys
        for column, row in counts.iterrows():
            faults = {str(fault): int(n) for fault, n in row.items() if n}
            if column in keys:
                parent = schema[name].foreign_key.get(column)
                is_public = parent is not None and schema[parent].frame is not None
                words = _PUBLIC_KEY_FAULTS if is_public else _KEY_FAULTS
                faults = {words.get(fault, fault): n for fault, n in faults.items()}
            found[name]["faults"] |= {column: faults} if faults else {}
    return found


def _read_leniently(files, columns):
    """Read columns of files; values of CSV files that are of no declared type are kept too."""
    try:
        return read_frame(files, columns)
    except (ValueError, FileNotFoundError):
        typed = _typed(columns)
        texts = {name: None if name in typed else column for name, column in columns.items()}
        frame = read_frame(files, texts)
        return frame.assign(**{name: _parsed(frame[name], columns[name]) for name in typed})


def _text_of_tables(found, stops):
    lines = [_PRIVATE]
    for name, table in found.items():
        lines += ["", f"Table {name!r}:", *_lines(table, is_relational=True)]
    has_faults = any(table["faults"] for table in found.values())
    fit = "fit the schema, but for the above." if has_faults else "fit the schema."
    return "\n".join([*lines, "", "The tables " + ("do not fit the schema." if stops else fit)])


def _text(found, stops):
    lines = [_PRIVATE, "", *_lines(found)]
    if stops:
        return "\n".join([*lines, "The table does not fit the schema."])
    changes = {name for faults in found["faults"].values() for name in faults} - {"repeated"}
    clipped = ", after clipping and rounding" if changes else ""
    return "\n".join([*lines, f"The table fits the schema{clipped}."])


def _lines(found, is_relational=False):
    """Return the lines of what was found in one table."""
    lines = [] if found["fault"] is None else [found["fault"]]
    for column, faults in found["faults"].items():
        for name, count in faults.items():
            values = "value" if count == 1 else "values"
            words, stops = (_FAULTS | _ROW_FAULTS)[name]
            stop = "  STOPS A FIT" if stops else ""
            lines.append(f"{column!r}: {count} {values} {words}{stop}")
            if name == "repeated" and not is_relational:
                lines.append(
                    f"  If {column!r} identifies persons, a fit protects each row by itself; "
                    f"--unit {column} protects each person."
                )
    if found.get("repeated_keys"):
        names = ", ".join(map(repr, found["repeated_keys"]))
        lines.append(
            f"Several rows share a value of {names}: a relational schema, with tables, models the "
            "rows of a person together."
        )
    if found["undeclared_columns"]:
        names = ", ".join(map(repr, found["undeclared_columns"]))
        lines.append(f"Not in the schema, and not read by a fit: {names}")
    if found["n_rows"] is not None:
        lines.append(f"{found['n_rows']} rows read.")
    return lines


def _nothing_found() -> dict[str, Any]:
    return {"fault": None, "faults": {}, "undeclared_columns": [], "n_rows": None}


def _check_table(files: Sequence[str], schema: "Schema", unit: str | None) -> dict:
    """Count the values that do not fit a schema, block by block.

    Returns
    -------
    dict
        "fault" is the reason why the files cannot be read, or None. "faults" has the number of
        values by column and type of fault. "undeclared_columns" are the names of other columns.
        "repeated_keys" are the identifiers and the unit, if rows share a value. "n_rows" is the
        number of rows. No value of the table is returned.
    """
    # Each label fits a column that is open.
    schema = schema.with_labels(dict.fromkeys(schema.open_columns, ()))
    found = _nothing_found() | {"repeated_keys": []}
    beside = {} if unit is None else {unit: None}
    try:
        names = table_columns(files, schema, unit)
        try:
            found |= _counts_of(files, schema, dict(schema) | beside, unit)
        except (ValueError, FileNotFoundError):
            # A text among numbers prevents reading a CSV file by its types: read all as texts.
            typed = _typed(schema)
            columns = {name: None if name in typed else schema[name] for name in schema}
            found |= _counts_of(files, schema, columns | beside, unit, typed)
    except CommandError:
        raise
    except (ValueError, FileNotFoundError) as error:
        return found | {"fault": describe(error)}
    # All declared columns exist, so the first line is a header and not a record.
    others = [name for name in names if name not in schema and name != unit]
    return found | {"undeclared_columns": others}


def _counts_of(files, schema, columns, unit, typed=frozenset()):
    import numpy as np

    from sklearn_dpgen.preprocessing._reader import map_frames

    names = list(dict.fromkeys([*identifiers_of(schema), *([] if unit is None else [unit])]))

    def counts_of(frame):
        hashes = {name: _hashes(frame[name]) for name in names}
        nulls = 0 if unit is None else int(frame[unit].isna().sum())
        parsed = {name: _parsed(frame[name], schema[name]) for name in typed}
        return schema.check(frame.assign(**parsed)), len(frame), hashes, nulls

    total, n_rows, n_unnamed = None, 0, 0
    hashes: dict[str, list] = {name: [] for name in names}
    for counts, n, own, nulls in map_frames(counts_of, [*files], columns):
        total = counts if total is None else total + counts
        n_rows, n_unnamed = n_rows + n, n_unnamed + nulls
        for name in names:
            hashes[name].append(own[name])
    if total is None:
        raise PublicValueError("The table has no rows.")
    faults = {
        column: {name: int(n) for name, n in row.items() if n} for column, row in total.iterrows()
    }
    repeated = []
    for name in names:
        times = np.unique(np.concatenate(hashes[name]), return_counts=True)[1]
        if (times > 1).any():
            repeated.append(name)
            # A unit is expected to repeat.
            if name != unit:
                faults[name]["repeated"] = int(times[times > 1].sum())
    if n_unnamed:
        faults.setdefault(unit, {})["unnamed"] = n_unnamed
    faults = {column: row for column, row in faults.items() if row}
    return {"faults": faults, "repeated_keys": repeated, "n_rows": n_rows}


def _hashes(ids):
    """Return a hash of 64 bits for each identifier that is not null."""
    import pandas as pd

    return pd.util.hash_array(ids.dropna().astype(str).to_numpy(dtype=object))


def _typed(schema):
    """Return the columns that a CSV file is not read as texts for."""
    from sklearn_dpgen.preprocessing._files import require, text_type

    text = require("pyarrow").string()
    return {name for name, column in schema.items() if text_type(column) != text}


def _parsed(texts, column):
    """Return the values of texts of a CSV file; invalid texts become ``_NO_VALUE``."""
    import pandas as pd

    from sklearn_dpgen.preprocessing._files import require, text_type

    null = texts.isna() | column._nulls(texts)
    if text_type(column) == require("pyarrow").bool_():
        values = texts.str.lower().map({"true": True, "1": True, "false": False, "0": False})
    else:
        values = pd.to_numeric(texts, errors="coerce")
    return values.astype(object).where(null | values.notna(), _NO_VALUE)
