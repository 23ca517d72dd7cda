"""draft-schema: a schema to be completed, from names and types or from a codebook."""

import re
from collections.abc import Sequence

from sklearn_dpgen.command_line._console import Console
from sklearn_dpgen.command_line._errors import CommandError
from sklearn_dpgen.command_line._files import check_new_file, parse, read_text, write_text
from sklearn_dpgen.command_line._options import add_command, add_overwrite
from sklearn_dpgen.command_line._tables import files_of

__all__ = ["add_to"]

_TEXT = """\
Draft a schema, to be completed and reviewed by hand.

Of a table only the names of its columns are taken, and the types that a file of Parquet, Feather or
Arrow states; never a bound or a category, nor whether numbers are integers: what occurs in the
records is private, and a schema is public. A file of CSV states no types. The draft has '...'
wherever something is to be declared, and no command accepts it before that is done.

Of a codebook (--codebook, or a file of JSON or YAML) bounds and categories are taken as well. A
codebook is a data dictionary with a row for each column, with at least the fields name and type,
or a Table Schema. What it says is taken as public. Many codebooks print the smallest and the
largest value that occurred: these are private, and no bounds.
"""
_EXAMPLES = """\
  sklearn-dpgen draft-schema patients.csv --out schema.yaml
  sklearn-dpgen draft-schema patients.parquet --out schema.yaml
  sklearn-dpgen draft-schema dictionary.csv --codebook --out schema.yaml
  sklearn-dpgen draft-schema tableschema.json --out schema.yaml
"""
_HEAD = """\
# A draft. Review every line: what is written here is public, and is published with each release.
#
# Replace each '...' by what is known before anyone looks at the records: from the questionnaire,
# the range of an instrument, the law, the codes of a form. Never by what occurs in the table.
#
#   type: numeric      low, high; integer: true or false; step; nullable: true where values may be
#                      missing
#   type: datetime     low, high, such as '2020-01-31'; resolution: D for days
#   type: categorical  categories: ['no', 'yes']  (quote labels that are texts)
#   type: ordinal      values: [1, 2, 3]
#   type: identifier   never learned; synthetic rows are numbered; --unit may name it
#
# A number that is a code is a category. Take columns out that need no synthetic twin, such as
# names, or declare them as identifiers.
"""
_TABLE_NOTE = (
    "The draft holds the names of the columns and the types that a file states, and no value. A "
    "file of CSV states no types, and its first line is taken as the names: review them."
)
_CODEBOOK_NOTE = (
    "What the codebook says is taken as public. If its bounds are the smallest and the largest "
    "value that occurred, or its categories those that occurred, they are private: replace them."
)


def add_to(commands) -> None:
    """Add the command."""
    parser = add_command(
        commands,
        "draft-schema",
        run,
        summary="draft a schema, to be completed by hand",
        text=_TEXT,
        examples=_EXAMPLES,
    )
    parser.add_argument(
        "source",
        nargs="+",
        metavar="FILE",
        help="a table (Parquet, CSV, Feather, Arrow; several files of one), or a codebook",
    )
    parser.add_argument(
        "--codebook", action="store_true", help="the file is a codebook, not a table"
    )
    parser.add_argument("--out", required=True, metavar="FILE", help="YAML to be written")
    add_overwrite(parser)


def run(arguments, console: Console) -> int:
    """Run the command."""
    if not arguments.out.lower().endswith((".yaml", ".yml")):
        raise CommandError(f"--out {arguments.out} must have an ending of .yaml or .yml.")
    out = check_new_file(arguments.out, overwrite=arguments.overwrite)
    source = arguments.source
    of_codebook = arguments.codebook or source[0].lower().endswith((".json", ".yaml", ".yml"))
    if of_codebook and len(source) > 1:
        raise CommandError("A codebook is one file.")
    draft = _from_codebook(source[0]) if of_codebook else _from_table(source)
    write_text(out, f"{_HEAD}\n{draft.to_yaml()}")
    console.warn(_CODEBOOK_NOTE if of_codebook else _TABLE_NOTE)
    missing = {name: list(fields) for name, fields in draft.missing.items()}
    lines = [f"Wrote a draft of {len(draft.declaration)} columns to {out}."]
    if missing:
        lines.append("To be declared, from public knowledge alone:")
        lines += [f"  {name!r}: {', '.join(fields)}" for name, fields in missing.items()]
    lines.append("Review all of it, then: sklearn-dpgen check " + str(out))
    document = {"out": str(out), "n_columns": len(draft.declaration), "missing": missing}
    return console.result("\n".join(lines), document)


def _from_table(paths: Sequence[str]):
    """Draft from names of columns, and from the types that files state."""
    paths = files_of(paths)
    from sklearn_dpgen.preprocessing._csv import CsvFiles
    from sklearn_dpgen.preprocessing._files import open_files
    from sklearn_dpgen.schema import Schema, SchemaDraft
    from sklearn_dpgen.schema._draft import GAP

    files = open_files(paths, None)
    if isinstance(files, CsvFiles):
        _check_names(files.names)
        return SchemaDraft({name: {"type": GAP} for name in files.names})
    # Of columns without a value, and of times of day, labels are to be declared.
    types = {
        field.name: "string"
        if re.match("null|time(32|64)|duration", str(field.type))
        else str(field.type)
        for field in files.schema
    }
    # One number with a fraction, or one that is missing, makes integers floats.
    return SchemaDraft(
        {
            name: entry | ({"integer": GAP} if entry["type"] == "numeric" else {})
            for name, entry in Schema.draft(types).declaration.items()
        }
    )


def _check_names(names):
    """Refuse the first line of a file of CSV that holds no names, or those of a codebook."""
    # By their places: in a file without a header they are values.
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
                "The first line of the file does not look like names of columns: field "
                f"{i + 1} {fault}. A file of CSV needs a header; without one, the first record "
                "would be published as names."
            )
    if _is_dictionary(names):
        raise CommandError(
            "The file has the fields name and type, as a codebook: --codebook reads it as one. If "
            "it is a table of records, rename these columns."
        )


def _is_dictionary(names):
    from sklearn_dpgen.schema._codebook import _SYNONYMS

    fields = {_SYNONYMS.get(name.strip().lower()) for name in names}
    return {"name", "type"} <= fields and None not in fields


def _from_codebook(path):
    """Draft from a data dictionary or a Table Schema."""
    is_json = path.lower().endswith((".json", ".yaml", ".yml"))
    if not is_json and not path.lower().endswith(".csv"):
        raise CommandError("A codebook is a file of CSV, JSON or YAML.")
    text = read_text(path, "codebook")
    import pandas as pd

    from sklearn_dpgen.schema import Schema

    if is_json:
        return Schema.draft(parse(text, path))
    from sklearn_dpgen.preprocessing._csv import CsvFiles

    # Other delimiters are named.
    CsvFiles([path], None)
    try:
        import io

        codebook = pd.read_csv(io.StringIO(text))
    except ValueError:
        codebook = None
    if codebook is None:
        raise CommandError(
            f"{path} is no table of CSV: its rows differ in how many fields they have."
        )
    return Schema.draft(codebook)
