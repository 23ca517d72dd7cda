"""The commands draft-schema and json-schema: draft a schema, and describe schema files."""

import io
import json
import os
import re
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from sklearn_dpgen.command_line._console import CommandError, Console
from sklearn_dpgen.command_line._files import (
    check_new_file,
    files_of,
    in_format,
    output_ending,
    parse,
    read_schema,
    read_text,
    split_ending,
    write_text,
)
from sklearn_dpgen.command_line._options import (
    add_command,
    add_named_tables,
    add_overwrite,
    by_name,
)
from sklearn_dpgen.exceptions import PublicValueError

if TYPE_CHECKING:
    from sklearn_dpgen.schema._csv import CsvFormat

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

If persons have several rows, in one table or in several with keys, name the tables by --table, or
give a folder that has one file of each table: the draft is then a relational schema. Keys are never
guessed.
"""
_DRAFT_EXAMPLES = """\
  sklearn-dpgen draft-schema patients.csv --out schema.yaml
  sklearn-dpgen draft-schema patients.parquet --out schema.yaml
  sklearn-dpgen draft-schema dictionary.csv --codebook --out schema.yaml
  sklearn-dpgen draft-schema datapackage.json --out schema.yaml
  sklearn-dpgen draft-schema --table patients=patients.csv --table visits=visits.csv --out all.yaml
  sklearn-dpgen draft-schema hospital/ --out hospital.yaml
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
# With the columns under 'columns:', the table may have further words, such as unit: patient,
# rules: [admitted <= discharged], delimiter: ";", encoding: cp1252, public: census.csv
#
# If persons have several rows: name their identifier by unit{examples}, or draft a
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
#   rules           [admitted <= discharged, patients.born <= admitted]; also delimiter, encoding
"""
_KEYS = ("primary_key", "foreign_key", "sequence_index", "max_rows", "static")
_LOOKED_AT = {
    False: "Names and declared types were read, and no record.",
    True: "The codebook was read, and no table.",
}
_TABLE_NOTE = "The draft holds the names of the columns{}, and no value{}: review them."
# By format: what holds the names, a part of it, and what would be published in place of names.
_PLACES = {
    ".csv": ("first line of the file", "field", "A CSV file needs a header; without one, "),
    ".tsv": ("first line of the file", "field", "A TSV file needs a header; without one, "),
    ".xlsx": ("first row of the sheet", "cell", "A sheet needs a row of names; without one, "),
    ".jsonl": ("keys of the first JSON record", "key", "With values as keys, "),
}
_MONTHS = "jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec"
# No name, but a value: a number or a date in digits, a date with a time or the name of a month, a
# time or duration, or a truth value.
_VALUES = {
    "is a number": r"[\s\d.,:/+-]*|[+-]?[\d.,]*\d[.,]?e[+-]?\d+",
    "is a date": r"\d{1,4}[-/.]\d{1,2}[-/.]\d{1,4}[\sT].*"
    rf"|(\w+,?\s+)?\d{{1,2}}[.\s-]+({_MONTHS})[a-z]*[.,]?[\s-]+\d{{2,4}}(\s.*)?"
    rf"|({_MONTHS})[a-z]*[.]?\s+\d{{1,2}},\s*\d{{4}}(\s.*)?",
    "is a time": r"\d{1,2}:\d{2}(:\d{2}([.,]\d+)?)?\s*([ap]\.?m\.?|z|[+-]\d{2}:?\d{2})"
    r"|-?\d+ days?,? .*",
    "is a truth value": "true|false",
}
_CODEBOOK_NOTE = (
    "The content of the codebook is taken as public. If its bounds or categories are those that "
    "occurred in the table, they are private: replace them."
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
_JSON_SCHEMA = """\
Write the JSON Schema of schema files.

Editors with a YAML language server complete and check a schema by it, if the first line of the
file is "# yaml-language-server: $schema=FILE".
"""
_JSON_SCHEMA_EXAMPLES = """\
  sklearn-dpgen json-schema --out words.json
"""


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
        help="one or more files of one table (Parquet, CSV, Feather, Arrow), a folder with one "
        "file of each of several tables, or a codebook",
    )
    draft.add_argument(
        "--codebook", action="store_true", help="the file is a codebook, not a table"
    )
    add_named_tables(draft)
    draft.add_argument(
        "--encoding",
        default="utf-8",
        metavar="NAME",
        help="encoding of CSV files, such as cp1252, for the draft (default: %(default)s)",
    )
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


def run_draft(arguments, console: Console) -> int:
    """Draft a schema."""
    if not arguments.out.lower().endswith((".yaml", ".yml")):
        raise CommandError(f"--out must have the ending .yaml or .yml, got {arguments.out}.")
    out = check_new_file(arguments.out, overwrite=arguments.overwrite)
    if bool(arguments.source) == bool(arguments.tables):
        raise CommandError("Give either the files of one table, or each table by --table.")
    tables = by_name(arguments.tables)
    if not arguments.codebook and len(arguments.source) == 1:
        tables = _tables_in(arguments.source[0]) or tables
    given = tables or {"": arguments.source}
    options = (arguments.codebook, arguments.encoding)
    found = {name: _draft_of(paths, *options) for name, paths in given.items()}
    is_codebook = any(is_codebook for _, is_codebook in found.values())
    from sklearn_dpgen.schema._codebook import GAP
    from sklearn_dpgen.schema._drafts import RelationalDraft

    if not tables:
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
    console.warn(_CODEBOOK_NOTE if is_codebook else _table_note(*given.values()))
    n_columns = sum(len(own.declaration) for own in drafts.values())
    lines = [f"Wrote a draft of {n_columns} columns to {out}.", _LOOKED_AT[is_codebook]]
    suggested = {} if is_codebook else _suggested(drafts)
    if suggested:
        lines.append("Suggested by names alone:")
        lines += [f"  {name!r}: {kind}" for name, kind in suggested.items()]
    if draft.missing:
        lines.append("Declare, from public knowledge alone:")
        lines += [f"  {name!r}: {', '.join(fields)}" for name, fields in draft.missing.items()]
    noted = _noted(drafts) if is_codebook else []
    if noted:
        lines += ["Noted in comments, and not declared:", *(f"  {note}" for note in noted)]
    lines.append(f"Review the draft, then run: sklearn-dpgen check {out}")
    gaps = {name: [*fields] for name, fields in draft.missing.items()}
    document = {"out": str(out), "n_columns": n_columns, "suggested": suggested, "missing": gaps}
    document["noted"] = noted
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


def _noted(drafts):
    """Return what metadata say and a draft does not declare, such as who is protected."""
    found = []
    for table, draft in drafts.items():
        place = f"{table}: " if table else ""
        found += [f"{place}{remark}" for remark in draft.remarks]
        found += [f"{place}{name!r}: {note}" for name, note in draft.notes.items()]
    return found


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


def _tables_in(path):
    """Return the files of the tables of a folder by name; none for a file, or the files of one."""
    if not os.path.isdir(path):
        return {}
    names: dict[str, list[str]] = {}
    for entry in sorted(os.listdir(path)):
        with suppress(StopIteration):
            names.setdefault(split_ending(entry)[0], []).append(os.path.join(path, entry))
    files = [file for own in names.values() for file in own]
    if not files:
        raise CommandError(f"The folder {path} must have tables, and has none.")
    if all(output_ending(file) == ".parquet" for file in files):
        from sklearn_dpgen.preprocessing._files import open_files

        # Parts of one table have its columns.
        if len({frozenset(_names_of(open_files([file], None))) for file in files}) == 1:
            return {}
    for name, own in names.items():
        if len(own) > 1:
            found = ", ".join(map(os.path.basename, own))
            raise CommandError(f"The folder {path} must have one file {name}.*: it has {found}.")
    return names


def _draft_of(source, is_codebook, encoding):
    """Return the draft of a table, and whether it was drafted from a codebook."""
    is_codebook = is_codebook or source[0].lower().endswith((".json", ".yaml", ".yml"))
    if is_codebook and len(source) > 1:
        raise CommandError("A codebook must be one file.")
    if is_codebook:
        return _from_codebook(source[0]), True
    return _from_table(source, _format_of(files_of(source), encoding)), False


def _format_of(files, encoding):
    """Return the format of CSV files, with the delimiter by which the header has most names."""
    from sklearn_dpgen.preprocessing._files import CsvFiles, open_files
    from sklearn_dpgen.schema._csv import DELIMITERS, CsvFormat

    n_names = {CsvFormat(encoding=encoding): 1}
    if output_ending(files[0]).startswith(".csv"):
        for form in (CsvFormat(delimiter, encoding) for delimiter in DELIMITERS):
            with suppress(PublicValueError):
                opened = open_files(in_format(files[:1], form), None)
                n_names[form] = len(opened.names) if isinstance(opened, CsvFiles) else 1
    return max(n_names, key=n_names.__getitem__)


def _place_of(path):
    """Return what holds the names of a table, in its format; None if they are declared as such."""
    ending = "" if "://" in path else output_ending(path)
    return next((place for form, place in _PLACES.items() if ending.startswith(form)), None)


def _table_note(*tables):
    """Return the warning of a draft of tables, each of which is a list of files."""
    places = {_place_of(path): path for paths in tables for path in files_of(paths)}
    holders = [place[0] for place in places if place is not None]
    types = " and the types that the file declares" if None in places else ""
    where = " and the ".join(dict.fromkeys(holders))
    taken = f", if the {where} holds names alone, for any text passes as one" if holders else ""
    return _TABLE_NOTE.format(types, taken)


def _from_table(paths: Sequence[str], form: "CsvFormat"):
    """Return a draft from the column names, and the types that files declare."""
    paths = in_format(files_of(paths), form)
    from sklearn_dpgen.preprocessing._files import open_files
    from sklearn_dpgen.schema import Schema
    from sklearn_dpgen.schema._codebook import GAP

    files = open_files(paths, None)
    for path in paths[1:]:
        if set(_names_of(open_files([path], None))) != set(_names_of(files)):
            raise CommandError(
                "The files of one table must have the same columns. If they are several tables, "
                "name each by --table NAME=FILE."
            )
    if hasattr(files, "names"):
        _check_names(files.names, _place_of(os.fspath(paths[0])))
        return _with_suggestions({name: {"type": GAP} for name in files.names}, form)
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


def _with_suggestions(declaration, form=None):
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
    words = {}
    if form is not None:
        own = {"delimiter": form.delimiter, "encoding": form.encoding}
        plain = {"delimiter": ",", "encoding": "utf-8"}
        words = {word: value for word, value in own.items() if value != plain[word]}
    return SchemaDraft(declaration, notes, words=words)


def _names_of(files):
    return files.names if hasattr(files, "names") else files.schema.names


def _check_names(names, place):
    """Raise CommandError if a table has values in the place of names, or is a codebook."""
    where, part, without = place or ("table", "column", "")
    # The message names fields by their positions: without a header they are private values.
    for i, name in enumerate(names):
        faults = [
            fault for fault, form in _VALUES.items() if re.fullmatch(form, name.strip(), re.I)
        ]
        if not name.strip():
            faults = ["is empty"]
        if name in names[:i]:
            faults = [f"has the name of {part} {names.index(name) + 1}"]
        if faults:
            end = f" {without}a record would be published as names." if without else ""
            raise CommandError(
                f"The {where} must hold the names of the columns: {part} {i + 1} {faults[0]}.{end}"
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
