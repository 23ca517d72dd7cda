"""Counts of what does not fit a schema, of files of any size."""

from collections.abc import Sequence

import numpy as np
import pandas as pd

from sklearn_dpgen.command_line._errors import describe
from sklearn_dpgen.preprocessing._csv import text_type
from sklearn_dpgen.preprocessing._files import require
from sklearn_dpgen.preprocessing._reader import map_frames
from sklearn_dpgen.schema import Identifier, Schema

__all__ = ["check_table", "identifiers_of"]

# An object that no column declares.
_NO_VALUE = object()


def check_table(files: Sequence[str], schema: Schema, unit: str | None = None) -> dict:
    """Count what does not fit, block by block.

    Parameters
    ----------
    files : sequence of str
    schema : Schema
    unit : str or None
        A column that must be there, of the schema or beside it.

    Returns
    -------
    dict
        "fault", what keeps the files from being read, or None; "faults", by column and by kind how
        many values do not fit, or stand in a row whose identifier is there again; "n_rows". No
        value of the table.
    """
    beside = {} if unit is None else {unit: None}
    try:
        return _counted(files, schema, dict(schema) | beside, unit)
    except (ValueError, FileNotFoundError):
        pass
    # A single text among numbers keeps a file of CSV from being read as declared: read texts.
    try:
        typed = _typed(schema)
        columns = {name: None if name in typed else schema[name] for name in schema}
        return _counted(files, schema, columns | beside, unit, typed)
    except (ValueError, FileNotFoundError) as error:
        fault = describe(error)
    return {"fault": fault, "faults": {}, "n_rows": None}


def _counted(files, schema, columns, unit, typed=frozenset()):
    total, n_rows = None, 0
    # Of a unit it is known that persons have several rows.
    names = [name for name in identifiers_of(schema) if name != unit]
    hashes: dict[str, list] = {name: [] for name in names}

    n_unnamed = 0

    def counts_of(frame):
        hashes = {name: _hashes(frame[name]) for name in names}
        nulls = 0 if unit is None else int(frame[unit].isna().sum())
        return _counts(frame, schema, typed), len(frame), hashes, nulls

    for counts, n, own, nulls in map_frames(counts_of, [*files], columns):
        total = counts if total is None else total + counts
        n_unnamed += nulls
        n_rows += n
        for name in names:
            hashes[name].append(own[name])
    if total is None:
        raise ValueError("The table has no rows.")
    faults = {
        column: {kind: int(n) for kind, n in row.items() if n} for column, row in total.iterrows()
    }
    for name in names:
        times = np.unique(np.concatenate(hashes[name]), return_counts=True)[1]
        if (times > 1).any():
            faults[name]["repeated"] = int(times[times > 1].sum())
    if n_unnamed:
        faults.setdefault(unit, {})["unnamed"] = n_unnamed
    return {
        "fault": None,
        "faults": {column: row for column, row in faults.items() if row},
        "n_rows": n_rows,
    }


def _counts(frame, schema, typed):
    parsed = {name: _parsed(frame[name], schema[name]) for name in typed}
    return schema.check(frame.assign(**parsed))


def identifiers_of(schema: Schema) -> list[str]:
    """Return the columns that are declared as identifiers."""
    return [name for name, column in schema.items() if isinstance(column, Identifier)]


def _hashes(ids):
    """Return a number of 64 bits for each identifier that is not null."""
    return pd.util.hash_array(ids.dropna().astype(str).to_numpy(dtype=object))


def _typed(schema):
    """Return the columns that texts are not left as they are for."""
    text = require("pyarrow").string()
    return {name for name, column in schema.items() if text_type(column) != text}


def _parsed(texts, column):
    """Return texts as a file of CSV is read; what cannot be is no value of any column."""
    null = texts.isna()
    if text_type(column) == require("pyarrow").bool_():
        values = texts.str.lower().map({"true": True, "1": True, "false": False, "0": False})
    else:
        values = pd.to_numeric(texts, errors="coerce")
    return values.astype(object).where(null | values.notna(), _NO_VALUE)
