"""The commands draft-schema and json-schema: draft a schema, and describe schema files."""

import io
import json
import os
import re
import textwrap
from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from sklearn_dpgen.command_line._console import CommandError, Console
from sklearn_dpgen.command_line._files import (
    check_new_file,
    files_of,
    in_format,
    output_ending,
    parse,
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
the records is private, and a schema is public. CSV files declare no types. The draft has '...'
wherever you have to declare something, and no command accepts it before that.

From a codebook (--codebook, or a JSON or YAML file), bounds and categories are taken as well. A
codebook is a data dictionary with one row per column and at least the fields name and type, or a
Table Schema. Its content is taken as public. Many codebooks list the smallest and the largest value
that occurred: those are private, so replace them.

If persons have several rows, in one table or in several with keys, name the tables by --table, or
give a folder that has one file of each table: the draft is then a relational schema. Keys are never
guessed.
"""
_DRAFT_EXAMPLES = """\
  sklearn-dpgen draft-schema patients.csv --out schema.yaml
  sklearn-dpgen draft-schema patients.parquet --out schema.yaml
  sklearn-dpgen draft-schema dictionary.csv --codebook --out schema.yaml
  sklearn-dpgen draft-schema tableschema.json --out schema.yaml
  sklearn-dpgen draft-schema --table patients=patients.csv --table visits=visits.csv --out all.yaml
  sklearn-dpgen draft-schema hospital/ --out hospital.yaml
"""
_HEAD = """\
# A draft. Review every line: a schema is public, and is published with each release.
#
# Replace each '...' by public knowledge: the questionnaire, the range of an instrument, the codes
# of a form, the law. Do not take it from the table.
#
#   type: numeric      low, high; integer: true or false; step; nullable: true if values may be
#                      missing
#   type: datetime     low, high, such as 2020-01-31; resolution: D for days
#   type: categorical  categories: [no, yes]; for many labels categories_from: codes.txt  (one a
#                      line); hierarchy: [1, 3]  (prefixes)
#   type: ordinal      categories: [1, 2, 3]
#   type: open_categorical   labels that nobody can list, such as towns: a fit discovers those of
#                      many rows, and the label 'other' replaces all others
#   type: identifier   never learned; synthetic rows are numbered; --unit may name it
#
# A number that is a code is a category. Remove columns that need no synthetic counterpart, such as
# names, or declare them as identifiers.
"""
_ONE_TABLE = """\
#
# With the columns under 'columns:', the table may have further words, such as unit: patient,
# rules: [admitted <= discharged], delimiter: ";", encoding: cp1252, public: census.csv
#
# If persons have several rows, a relational schema synthesizes them together: draft it with
# --table NAME=FILE.
"""
_TABLES = """\
#
# Remove from 'columns' the keys, which are not modelled, and from each table what does not apply:
#
#   primary_key     the column that identifies a row, or in one long table a person
#   foreign_key     {patient: patients}: the column with the keys of a parent, and that table
#   sequence_index  the column that orders the rows of a parent row, such as a date
#   max_rows        public bound of the rows of a parent row that are modelled
#   static          in one long table, the columns that are the same in all rows of a person
#
# Add what applies:
#
#   ties: false     two rows of a parent row never have the same sequence_index
#   public: true    a public table, such as a list of hospitals: its file is not protected
#   rules           [admitted <= discharged, patients.born <= admitted]; also delimiter, encoding
"""
_KEYS = ("primary_key", "foreign_key", "sequence_index", "max_rows", "static")
_TABLE_NOTE = (
    "The draft holds the names of the columns and the types that the file declares, and no value. "
    "CSV files declare no types, and the first line is taken as the names: review them."
)
_CODEBOOK_NOTE = (
    "The content of the codebook is taken as public. If its bounds or categories are those that "
    "occurred in the table, they are private: replace them."
)
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
    options = (arguments.codebook, arguments.encoding)
    if not tables:
        draft, is_codebook, words = _draft_of(arguments.source, *options)
        columns = draft.to_yaml()
        if words:
            columns = f"{words}columns:\n{textwrap.indent(columns, '  ')}"
        text, missing = f"{_ONE_TABLE}\n{columns}", draft.missing
        n_columns = len(draft.declaration)
    else:
        drafts = {name: _draft_of(paths, *options) for name, paths in tables.items()}
        is_codebook = any(is_codebook for _, is_codebook, _ in drafts.values())
        only = {name: draft for name, (draft, *_) in drafts.items()}
        text, missing = _relational_draft(only, {name: own[-1] for name, own in drafts.items()})
        n_columns = sum(len(draft.declaration) for draft in only.values())
    write_text(out, _HEAD + text)
    console.warn(_CODEBOOK_NOTE if is_codebook else _TABLE_NOTE)
    lines = [f"Wrote a draft of {n_columns} columns to {out}."]
    if missing:
        lines.append("Declare, from public knowledge alone:")
        lines += [f"  {name!r}: {', '.join(fields)}" for name, fields in missing.items()]
    lines.append(f"Review the draft, then run: sklearn-dpgen check {out}")
    found = {name: [*fields] for name, fields in missing.items()}
    document = {"out": str(out), "n_columns": n_columns, "missing": found}
    return console.result("\n".join(lines), document)


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
    """Return the draft of a table, whether it is from a codebook, and YAML of the file's format."""
    is_codebook = is_codebook or source[0].lower().endswith((".json", ".yaml", ".yml"))
    if is_codebook and len(source) > 1:
        raise CommandError("A codebook must be one file.")
    if is_codebook:
        return _from_codebook(source[0]), True, ""
    form = _format_of(files_of(source), encoding)
    words = {"delimiter": form.delimiter, "encoding": form.encoding}
    words = {k: v for k, v in words.items() if v != {"delimiter": ",", "encoding": "utf-8"}[k]}
    from sklearn_dpgen.schema._texts import dump_yaml

    return _from_table(source, form), False, dump_yaml(words) if words else ""


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


def _relational_draft(drafts, words):
    """Return the YAML of a relational schema, and what is missing in it."""
    from sklearn_dpgen.schema._codebook import GAP
    from sklearn_dpgen.schema._texts import dump_yaml

    # One table has no parent, and static columns are those of one long table.
    fields = [name for name in _KEYS if name != ("static" if len(drafts) > 1 else "foreign_key")]
    names = [name for draft in drafts.values() for name in draft.declaration]
    shared = [name for name in dict.fromkeys(names) if names.count(name) > 1]
    text = _TABLES + (f"#\n# Columns in several tables: {shared}\n" if shared else "")
    text += "\ntables:\n"
    missing = {}
    for name, draft in drafts.items():
        keys = dump_yaml(dict.fromkeys(fields, GAP))
        columns = textwrap.indent(draft.to_yaml(), "  ")
        head = dump_yaml({name: None}).replace(" null", "")
        own = f"{words[name]}columns:\n{columns}{keys}"
        text += textwrap.indent(head + textwrap.indent(own, "  "), "  ")
        missing[name] = fields
        missing |= {f"{name}.{column}": gaps for column, gaps in draft.missing.items()}
    return text, missing


def _from_table(paths: Sequence[str], form: "CsvFormat"):
    """Return a draft from the column names, and the types that files declare."""
    paths = in_format(files_of(paths), form)
    from sklearn_dpgen.preprocessing._files import open_files
    from sklearn_dpgen.schema import Schema
    from sklearn_dpgen.schema._codebook import GAP
    from sklearn_dpgen.schema._schema import SchemaDraft

    files = open_files(paths, None)
    for path in paths[1:]:
        if set(_names_of(open_files([path], None))) != set(_names_of(files)):
            raise CommandError(
                "The files of one table must have the same columns. If they are several tables, "
                "name each by --table NAME=FILE."
            )
    if hasattr(files, "names"):
        _check_names(files.names)
        return SchemaDraft({name: {"type": GAP} for name in files.names})
    # Columns without values, and times of day, are categorical.
    types = {
        field.name: "string"
        if re.match("null|time(32|64)|duration", str(field.type))
        else str(field.type)
        for field in files.schema
    }
    # A fraction or a missing value turns integers into floats, so this type would reveal it.
    return SchemaDraft(
        {
            name: entry | ({"integer": GAP} if entry["type"] == "numeric" else {})
            for name, entry in Schema.draft(types).declaration.items()
        }
    )


def _names_of(files):
    return files.names if hasattr(files, "names") else files.schema.names


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
