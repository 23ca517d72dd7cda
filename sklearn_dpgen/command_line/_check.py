"""check: is a schema valid, and does a table fit it."""

from sklearn_dpgen.command_line._console import Console
from sklearn_dpgen.command_line._errors import CommandError
from sklearn_dpgen.command_line._files import read_schema
from sklearn_dpgen.command_line._options import add_command
from sklearn_dpgen.command_line._tables import add_tables, files_of

__all__ = ["add_to"]

_FOR_CURATORS = (
    "FOR WHOEVER MAY SEE THE TABLE ALONE: these counts are of the private records, without noise. "
    "Do not publish them. Do not take a bound or a category from them: look it up."
)
# What each fault means, and whether a fit stops at it.
_FAULTS = {
    "outside_bounds": ("outside of the declared bounds: they will be clipped", False),
    "undeclared": ("that are no declared label", True),
    "null": ("missing, in a column that is not declared nullable", True),
    "not_integer": ("no integers, as declared: they will be rounded", False),
    "unreadable": ("of another type than declared", True),
    "unnamed": ("that name no person, as --unit does in every row", True),
    "repeated": ("in rows whose identifier is there twice or more", False),
}
_TEXT = """\
Check a schema, and whether a table fits it.

Without a table only the schema is read, and what is said is public. With one, counts by column are
shown of the values that do not fit, never a value. These counts are private: they are of the
records, without noise, for whoever may see the table alone.

The exit code is 1 where the schema is not valid, or where a fit of the table would stop: labels
that are not declared, values of another type, missing ones. Numbers and dates outside of their
bounds are clipped, and numbers rounded that are declared as integers: these are shown, and are no
failure. Identifiers that are there several times are counted: where they name persons, protect each
with all of their rows by --unit, here and in a fit.
"""
_EXAMPLES = """\
  sklearn-dpgen check schema.yaml
  sklearn-dpgen check schema.yaml patients.csv
  sklearn-dpgen check schema.yaml 'part-*.parquet' --json
"""


def add_to(commands) -> None:
    """Add the command."""
    parser = add_command(
        commands,
        "check",
        run,
        summary="is a schema valid, and does a table fit it",
        text=_TEXT,
        examples=_EXAMPLES,
    )
    parser.add_argument("schema", metavar="SCHEMA", help="YAML or JSON")
    add_tables(parser, nargs="*")
    parser.add_argument(
        "--unit",
        metavar="COLUMN",
        help="a column that says whose row each is: an identifier of the schema, or one beside it",
    )


def run(arguments, console: Console) -> int:
    """Run the command."""
    files = files_of(arguments.table)
    unit = arguments.unit
    try:
        schema = read_schema(arguments.schema)
    except CommandError as error:
        return console.result(
            str(error), {"schema": arguments.schema, "fault": str(error)}, ok=False
        )
    document = {"schema": arguments.schema, "n_columns": len(schema)}
    valid = f"{arguments.schema} is a valid schema of {len(schema)} columns."
    if not files:
        return console.result(valid, document)
    from sklearn_dpgen.command_line._table_check import check_table, identifiers_of

    if unit in schema and unit not in identifiers_of(schema):
        raise CommandError(
            f"--unit {unit} is a column of the schema: declare it as an identifier, or leave it "
            "out there."
        )
    console.say(valid)
    console.say("Reading the table.")
    found = check_table(files, schema, unit)
    document |= {"private": True, "note": _FOR_CURATORS} | found
    stops = found["fault"] is not None or any(
        count
        for faults in found["faults"].values()
        for name, count in faults.items()
        if _FAULTS[name][1]
    )
    return console.result(_text(found, stops), document, ok=not stops)


def _text(found, stops):
    lines = [_FOR_CURATORS, ""]
    if found["fault"] is not None:
        lines.append(found["fault"])
    for column, faults in found["faults"].items():
        for name, count in faults.items():
            values = "value" if count == 1 else "values"
            stop = "  STOPS A FIT" if _FAULTS[name][1] else ""
            lines.append(f"{column!r}: {count} {values} {_FAULTS[name][0]}{stop}")
            if name == "repeated":
                lines.append(
                    f"  Where {column!r} names persons, a fit protects each row, and no person as "
                    f"a whole: --unit {column} does."
                )
    if found["n_rows"] is not None:
        lines.append(f"{found['n_rows']} rows read.")
    if stops:
        return "\n".join([*lines, "The table does not fit the schema."])
    changes = {name for faults in found["faults"].values() for name in faults} - {"repeated"}
    clipped = ", after clipping and rounding" if changes else ""
    return "\n".join([*lines, f"The table fits the schema{clipped}."])
