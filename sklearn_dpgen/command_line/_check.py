"""The command check: what of a schema is not valid, and what of a table does not fit it."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from sklearn_dpgen.command_line._console import CommandError, Console, describe
from sklearn_dpgen.command_line._faults import Finder
from sklearn_dpgen.command_line._files import (
    files_of,
    identifiers_of,
    in_folder,
    in_format,
    private_files,
    public_files,
    public_tables,
    read_schema,
    table_columns,
)
from sklearn_dpgen.command_line._options import (
    add_command,
    add_named_tables,
    add_public,
    add_tables,
    by_name,
    check_public,
    check_rules,
    with_options,
)
from sklearn_dpgen.exceptions import PublicError, PublicValueError

if TYPE_CHECKING:
    from sklearn_dpgen.schema import RelationalSchema, Schema

__all__ = ["add_to"]

_PRIVATE = (
    "PRIVATE: these are exact counts of the records. Do not publish them, and do not choose bounds "
    "or categories by them."
)
_VALUES = "The texts in quotes are values of the table."
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
_CHECK = """\
Check a schema, and whether a table fits it.

Without a table, only the schema is read, and the output is public. With a table, the output counts
the values of each column that do not fit. It is PRIVATE: the counts are exact, for people who may
see the table.

The exit code is 1 if the schema is not valid, or if a fit would stop at the table: undeclared
labels, values of another type, missing values. Numbers and dates outside their bounds are clipped
by a fit, and other numbers rounded where integers are declared: they are counted, and are no
failure. Columns that the schema does not declare are listed; a fit does not read them. Repeated
identifiers are counted: if they identify persons, protect each person with all of their rows by
--unit, here and in the fit, or declare a relational schema. Rows that break a rule of the
schema are counted, and are no failure; no synthetic row breaks it, so that a wrong rule makes wrong
shares.

With --public the output says which columns of a public table align with the schema, and how many of
their cells are not known, because the schema does not declare them. That is no failure, and public.

Of a relational schema, name each table by --table. Repeated and missing keys, rows without a
parent, ties of the index and persons with more rows than max_rows are counted too, and are no
failure. Rules between its columns are not checked. The tables are read as a whole.

Each fault has its first lines, or rows in a file without lines. The usual causes, such as a decimal
comma, are found from the values, with the line of the schema or the command that mends them: for
you, if the codebook agrees. No other value is shown without --show-values.
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
    """Add the command."""
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
        "--show-values",
        action="store_true",
        help="show the commonest texts that do not fit; PRIVATE: they are values of the table",
    )
    check.add_argument(
        "--unit",
        metavar="COLUMN",
        help="column that identifies persons: an identifier of the schema, or not declared there",
    )
    add_public(check)


def run_check(arguments, console: Console) -> int:
    """Check a schema, and a table."""
    files = files_of(arguments.table)
    tables = {name: files_of(paths) for name, paths in by_name(arguments.tables).items()}
    public_files(arguments.public)
    try:
        files, tables = in_folder(arguments.schema, files, tables)
        schema = read_schema(arguments.schema, tables)
        check_rules(schema)
    except CommandError as error:
        fault = str(error)
        return console.result(fault, {"schema": arguments.schema, "fault": fault}, ok=False)
    schema = with_options(schema, arguments)
    check_public(arguments)
    public = public_tables(arguments.public, arguments.public_weights, schema)
    if public is not None:
        console.say("Reading the public table.")
    from sklearn_dpgen.schema import Schema

    if not isinstance(schema, Schema):
        private = private_files(schema, files, tables)
        return _run_check_tables(
            arguments.schema, schema, private, public, console, arguments.show_values
        )
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
    found = _check_table(files, schema, arguments.unit, arguments.show_values)
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
    from sklearn_dpgen.preprocessing._sources import open_source

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
        names = open_source(public.source, None).names
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


def _run_check_tables(path, schema, tables, public, console, show_values):
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
    found = _check_tables(tables, schema, show_values)
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


def _check_tables(tables, schema: "RelationalSchema", show_values: bool) -> dict:
    """Find the values, keys and rows that do not fit a relational schema, by table."""
    found, frames = {}, {}
    for name, files in tables.items():
        table = schema[name]
        columns = dict.fromkeys(table.keys) | dict(table.schema)
        found[name] = _nothing_found()
        files = in_format(files, table.schema.form)
        try:
            names = table_columns(files, columns, None)
            found[name], frames[name] = _read_table(files, table, columns, show_values)
            others = [column for column in names if column not in columns]
            found[name] |= {"undeclared_columns": others}
        except CommandError:
            raise
        except (ValueError, FileNotFoundError) as error:
            found[name]["fault"] = describe(error)
    if len(frames) < len(tables):
        return found
    for name, counts in schema.check(frames).items():
        own, keys = found[name], schema[name].keys
        for column, row in counts.iterrows():
            faults = {str(fault): int(n) for fault, n in row.items() if n}
            if column in keys:
                parent = schema[name].foreign_key.get(column)
                is_public = parent is not None and schema[parent].frame is not None
                words = _PUBLIC_KEY_FAULTS if is_public else _KEY_FAULTS
                faults = {words.get(fault, fault): n for fault, n in faults.items()}
                places = own["places"].get(column, {})
                if "null" in places and "null" in words:
                    places[words["null"]] = places.pop("null")
            own["faults"] |= {column: faults} if faults else {}
    return found


def _read_table(files, table, columns, show_values):
    """Return what does not fit the columns of a table, and its records as one frame."""
    import pandas as pd

    finder = Finder(table.schema, table.keys, show_values=show_values)
    frames = list(_frames_of(files, columns, finder))
    frame = pd.concat(frames, ignore_index=True) if frames else pd.DataFrame(columns=[*columns])
    found = _nothing_found() | finder.found() | {"faults": {}, "n_rows": len(frame)}
    return found | ({"unchecked_rules": True} if table.rules else {}), frame


def _text_of_tables(found, stops):
    lines = [_banner(*found.values())]
    for name, table in found.items():
        lines += ["", f"Table {name!r}:", *_lines(table, is_relational=True)]
    has_faults = any(table["faults"] for table in found.values())
    fit = "fit the schema, but for the above." if has_faults else "fit the schema."
    return "\n".join([*lines, "", "The tables " + ("do not fit the schema." if stops else fit)])


def _text(found, stops):
    lines = [_banner(found), "", *_lines(found)]
    if stops:
        return "\n".join([*lines, "The table does not fit the schema."])
    changes = {name for faults in found["faults"].values() for name in faults} - {"repeated"}
    clipped = ", after clipping and rounding" if changes else ""
    return "\n".join([*lines, f"The table fits the schema{clipped}."])


def _banner(*found):
    has_values = any("values" in table for table in found)
    return f"{_PRIVATE} {_VALUES}" if has_values else _PRIVATE


def _lines(found, is_relational=False):
    """Return the lines of what was found in one table."""
    lines = [] if found["fault"] is None else [found["fault"]]
    own_hints: dict[str, list] = {}
    other_hints: list[dict] = []
    for hint in found["hints"]:
        is_own = len(hint["columns"]) == 1 and hint["where"] != "shell"
        (own_hints.setdefault(hint["columns"][0], []) if is_own else other_hints).append(hint)
    for column, faults in found["faults"].items():
        for name, count in faults.items():
            values = "value" if count == 1 else "values"
            words, stops = (_FAULTS | _ROW_FAULTS)[name]
            stop = "  STOPS A FIT" if stops else ""
            lines.append(f"{column!r}: {count} {values} {words}{stop}")
            if places := found["places"].get(column, {}).get(name):
                lines.append(f"  {_places_text(places, count)}")
            if values := found.get("values", {}).get(column, {}).get(name):
                shown = ", ".join(f"{value['text']!r} ({value['count']})" for value in values)
                lines.append(f"  commonest: {shown}")
            if name == "repeated" and not is_relational:
                lines.append(
                    f"  If {column!r} identifies persons, a fit protects each row by itself; "
                    f"--unit {column} protects each person."
                )
        lines += [line for hint in own_hints.get(column, ()) for line in _hint_lines(hint)]
    for hint in other_hints:
        lines += _hint_lines(hint)
    for rule in found.get("rules", ()):
        if count := rule["count"]:
            rows = "row breaks" if count == 1 else "rows break"
            lines.append(f"{count} {rows} the rule {rule['rule']!r}; no synthetic row does")
            lines.append(f"  {_places_text(rule['places'], count)}")
    if found.get("unchecked_rules"):
        lines.append("Its rules were not checked.")
    if any(hint["where"] == "schema" for hint in found["hints"]):
        lines.append("If the codebook agrees, add the indented lines to the columns in the schema.")
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


def _places_text(places, count):
    """Return the first places of a fault in words; the file is named if there are several."""
    by_file: dict[str, list] = {}
    for place in places:
        by_file.setdefault(place.get("file"), []).append(place)
    parts = []
    for path, own in by_file.items():
        (word,) = own[0].keys() - {"file"}
        numbers = ", ".join(str(place[word]) for place in own)
        of_file = "" if path is None else f" of {path}"
        parts.append(f"{word}{'s' if len(own) > 1 else ''} {numbers}{of_file}")
    more = count - len(places)
    return "; ".join(parts) + (f" and {more} more" if more > 0 else "")


def _hint_lines(hint):
    """Return the lines that say what probably mends values."""
    names = ", ".join(map(repr, hint["columns"]))
    if hint["where"] == "shell":
        return [f"{names}: {hint['cause']}. This writes a mended file:", f"  {hint['mends'][0]}"]
    if len(hint["columns"]) > 1:
        return [f"{names}: {hint['cause']}."]
    if hint["where"] is None:
        return [f"  {hint['cause']}."]
    lines = [f"  {hint['cause']}:"]
    for i, mend in enumerate(hint["mends"]):
        lines += ["  or"] if i else []
        lines += [f"    {line}" for line in mend.split("\n")]
    return lines


def _nothing_found() -> dict[str, Any]:
    return {
        "fault": None,
        "faults": {},
        "places": {},
        "hints": [],
        "undeclared_columns": [],
        "n_rows": None,
    }


def _check_table(files: Sequence[str], schema: "Schema", unit: str | None, show_values) -> dict:
    """Find the values that do not fit a schema, block by block.

    Returns
    -------
    dict
        "fault" is the reason why the files cannot be read, or None. "faults" has the number of
        values by column and type of fault, "places" the first lines or rows of each, and "hints"
        what probably mends them. "undeclared_columns" are the names of other columns.
        "repeated_keys" are the identifiers and the unit, if rows share a value. "n_rows" is the
        number of rows. Values of the table are returned with ``show_values`` alone, as "values".
    """
    # Each label fits a column that is open.
    schema = schema.with_labels(dict.fromkeys(schema.open_columns, ()))
    found = _nothing_found() | {"repeated_keys": []}
    files = in_format(files, schema.form)
    beside = {} if unit is None else {unit: None}
    try:
        names = table_columns(files, schema, unit)
        finder = Finder(
            schema,
            [] if unit is None else [unit],
            ids=dict.fromkeys([*identifiers_of(schema), *beside]),
            show_values=show_values,
        )
        n_rows = sum(map(len, _frames_of(files, dict(schema) | beside, finder)))
        if n_rows == 0:
            raise PublicValueError("The table has no rows.")
        found |= finder.found() | {"n_rows": n_rows}
    except CommandError:
        raise
    except (ValueError, FileNotFoundError) as error:
        return found | {"fault": describe(error)}
    if unit in found["faults"]:
        # A unit is expected to repeat.
        found["faults"][unit].pop("repeated", None)
        found["places"][unit].pop("repeated", None)
    for names_of in (found["faults"], found["places"]):
        if unit in names_of and "null" in names_of[unit]:
            names_of[unit]["unnamed"] = names_of[unit].pop("null")
    found["faults"] = {name: own for name, own in found["faults"].items() if own}
    # All declared columns exist, so the first line is a header and not a record.
    others = [name for name in names if name not in schema and name != unit]
    return found | {"undeclared_columns": others}


def _frames_of(files, columns, finder):
    """Yield the records of files as a fit reads them, and show them to a finder of faults.

    A text among numbers stops the reading of a CSV file by its types, so its columns are read as
    texts and parsed here.
    """
    from sklearn_dpgen.preprocessing._files import CsvFiles, open_files
    from sklearn_dpgen.preprocessing._reader import numbered_frames

    source = open_files([*files], columns)
    is_csv, word = isinstance(source, CsvFiles), getattr(source, "place", "row")
    typed = _typed(columns) if is_csv else set()
    texts = {name: None if name in typed else column for name, column in columns.items()}
    for path, places, raw in numbered_frames([*files], texts):
        frame = raw.assign(**{name: _parsed(raw[name], columns[name]) for name in typed})
        finder.look(path, word, places, raw, frame)
        yield frame


def _typed(schema):
    """Return the columns that a CSV file is not read as texts for."""
    from sklearn_dpgen.preprocessing._files import require, text_type

    text = require("pyarrow").string()
    return {name for name, column in schema.items() if text_type(column) != text}


def _parsed(texts, column):
    """Return the values of texts of a CSV file; invalid texts become ``_NO_VALUE``."""
    import pandas as pd

    from sklearn_dpgen.preprocessing._files import require, text_type

    pyarrow = require("pyarrow.compute")
    null = texts.isna() | column._nulls(texts)
    kind = text_type(column)
    # As a fit reads them; integers beyond 2**53 stay exact.
    given = pyarrow.array(texts.where(~null, None), type=pyarrow.string(), from_pandas=True)
    try:
        cast = pyarrow.compute.cast(pyarrow.compute.utf8_trim_whitespace(given), kind)
        return pd.Series(cast.to_pandas(integer_object_nulls=True), index=texts.index)
    except pyarrow.ArrowException:
        pass
    if kind == pyarrow.bool_():
        values = texts.str.lower().map({"true": True, "1": True, "false": False, "0": False})
    else:
        values = pd.to_numeric(texts, errors="coerce")
    return values.astype(object).where(null | values.notna(), _NO_VALUE)
