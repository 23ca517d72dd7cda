"""Counts of what does not fit a schema, of files of any size."""

from collections.abc import Sequence

import pandas as pd

from sklearn_dpgen.command_line._errors import describe
from sklearn_dpgen.preprocessing._files import _type, require
from sklearn_dpgen.preprocessing._reader import map_frames
from sklearn_dpgen.schema import Schema

__all__ = ["check_table"]

# An object that no column declares.
_NO_VALUE = object()
# How the errors of files that are broken begin.
_NOT_READ = "The table could not be read"
_UNREADABLE = (
    "The files cannot be read as one table: a row has another number of fields than the header, a "
    "quote is not closed, a text is not in UTF-8, or a file is cut off."
)


def check_table(files: Sequence[str], schema: Schema, unit: str | None = None) -> dict:
    """Count what does not fit, block by block.

    Parameters
    ----------
    files : sequence of str
    schema : Schema
    unit : str or None
        A further column that must be there.

    Returns
    -------
    dict
        "fault", what keeps the files from being read, or None; "faults", by column and by kind how
        many values do not fit; "n_rows". No value of the table.
    """
    beside = {} if unit is None else {unit: None}
    try:
        return _counted(files, schema, dict(schema) | beside)
    except (ValueError, FileNotFoundError) as error:
        fault = describe(error)
    # A single text among numbers keeps a file of CSV from being read as declared: read texts.
    try:
        typed = _typed(schema)
        columns = {name: None if name in typed else schema[name] for name in schema}
        return _counted(files, schema, columns | beside, typed)
    except (ValueError, FileNotFoundError) as error:
        if describe(error).startswith(_NOT_READ) and fault.startswith(_NOT_READ):
            fault = _UNREADABLE
    return {"fault": fault, "faults": {}, "n_rows": None}


def _counted(files, schema, columns, typed=frozenset()):
    total, n_rows = None, 0
    for counts, n in map_frames(lambda frame: _counts(frame, schema, typed), [*files], columns):
        total = counts if total is None else total + counts
        n_rows += n
    if total is None:
        raise ValueError("The table has no rows.")
    faults = {
        column: {kind: int(n) for kind, n in row.items() if n} for column, row in total.iterrows()
    }
    return {
        "fault": None,
        "faults": {column: row for column, row in faults.items() if row},
        "n_rows": n_rows,
    }


def _counts(frame, schema, typed):
    parsed = {name: _parsed(frame[name], schema[name]) for name in typed}
    return schema.check(frame.assign(**parsed)), len(frame)


def _typed(schema):
    """Return the columns that texts are not left as they are for."""
    text = require("pyarrow").string()
    return {name for name, column in schema.items() if _type(column) != text}


def _parsed(texts, column):
    """Return texts as a file of CSV is read; what cannot be is no value of any column."""
    null = texts.isna()
    if _type(column) == require("pyarrow").bool_():
        values = texts.str.lower().map({"true": True, "1": True, "false": False, "0": False})
    else:
        values = pd.to_numeric(texts, errors="coerce")
    return values.astype(object).where(null | values.notna(), _NO_VALUE)
