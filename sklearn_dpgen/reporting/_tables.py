"""The two tables of a report: of one schema, and of no more rows than are compared."""

import datetime
import math
from collections.abc import Mapping

import numpy as np
import pandas as pd
from pandas.api import types
from sklearn.utils import check_random_state

from sklearn_dpgen.exceptions import PublicTypeError, PublicValueError
from sklearn_dpgen.schema import Categorical, Datetime, Numeric, Ordinal, Schema
from sklearn_dpgen.schema._made_up import MadeUpColumn
from sklearn_dpgen.utils._frames import as_pandas

__all__ = [
    "check_table",
    "compared",
    "kind_of",
    "observed_schema",
    "read_table",
    "subsample",
]

# A column of texts of which so many are distinct holds names, or what somebody wrote.
_MOST_LABELS = 1000
_SECOND = datetime.timedelta(seconds=1)


def read_table(X, label):
    """Return a data frame, or raise TypeError."""
    frame = as_pandas(X)
    if not isinstance(frame, pd.DataFrame):
        raise PublicTypeError(f"{label} must be a data frame, got {type(X).__name__}.")
    if not frame.columns.is_unique:
        raise PublicValueError(f"{label} has a column twice.")
    return frame.set_axis([str(name) for name in frame.columns], axis=1)


def observed_schema(real, synthetic):
    """Read a schema off two tables, to compare them: it is as private as they are.

    Parameters
    ----------
    real, synthetic : DataFrame

    Returns
    -------
    schema : Schema or None
        Of the columns of both that vary; None where there is none.
    left_out : list of str
        Columns of texts that are hardly ever the same, or of a single value.
    """
    columns, left_out = {}, []
    for name in real.columns:
        if name not in synthetic.columns:
            continue
        column = _observed_column(real[name], synthetic[name])
        if column is None or column.is_constant:
            left_out.append(name)
        else:
            columns[name] = column
    return Schema(columns) if columns else None, left_out


def _observed_column(first, second):
    """Return the declaration of all values that occur; None of too many texts, or of no value."""
    nullable = bool(first.isna().any() or second.isna().any())
    known = [part.dropna() for part in (first, second)]
    kinds = [
        "date" if types.is_datetime64_any_dtype(part.dtype)
        else "number" if types.is_numeric_dtype(part.dtype) and not types.is_bool_dtype(part.dtype)
        else "label"
        for part in (first, second)
    ]  # fmt: skip
    if kinds[0] == kinds[1] != "label" and any(map(len, known)):
        low, high = (f(f(part) for part in known if len(part)) for f in (min, max))
        if low < high and kinds[0] == "number" and math.isfinite(float(high) - float(low)):
            is_integer = all(_are_integers(part) for part in known)
            ends = (int(low), int(high)) if is_integer else (float(low), float(high))
            return Numeric(*ends, integer=is_integer, nullable=nullable)
        if low < high and kinds[0] == "date":
            ends = pd.Timestamp(low).floor("s"), pd.Timestamp(high).floor("s") + _SECOND
            return Datetime(*ends, nullable=nullable)
    labels = pd.unique(pd.concat([part.astype(object) for part in known], ignore_index=True))
    labels = [v.item() if isinstance(v, np.generic) else v for v in labels]
    if not 0 < len(labels) <= _MOST_LABELS:
        return None
    if not all(type(v) in (bool, int, float, str) and _is_finite(v) for v in labels):
        return None
    ordered = sorted(labels, key=lambda v: (type(v).__name__, v))
    return Categorical(ordered, nullable=nullable)


def _are_integers(values):
    numbers = values.to_numpy(dtype=np.float64)
    return bool((numbers == np.rint(numbers)).all() and (np.abs(numbers) < 2**53).all())


def _is_finite(value):
    return not isinstance(value, float) or math.isfinite(value)


def compared(schema):
    """Return the part of a schema that says something of records: neither keys nor constants."""
    kept = {
        name: column
        for name, column in schema.items()
        if not isinstance(column, MadeUpColumn) and not column.is_constant
    }
    return Schema(kept)


def subsample(frame, most, random_state):
    """Return at most so many rows in random order, so that the first of them are a sample too."""
    rows = check_random_state(random_state).permutation(len(frame))[:most]
    return frame.iloc[rows].reset_index(drop=True)


def check_table(frame, schema, label):
    """Raise ValueError where values do not fit the declaration; the message tells no value."""
    missing = [name for name in schema if name not in frame.columns]
    if missing:
        raise PublicValueError(f"{label} lacks columns of the schema: {missing}.")
    if len(frame) == 0:
        raise PublicValueError(f"{label} has no rows.")
    faults = schema.check(frame)[["undeclared", "null", "unreadable"]]
    for name, row in faults[faults.sum(axis=1) > 0].iterrows():
        found = " and ".join(fault for fault, count in row.items() if count)
        raise PublicValueError(
            f"{label} does not fit the schema: column {name!r} has {found} values."
        )


def kind_of(column):
    """Return what a column holds, in a word."""
    names: Mapping = {Numeric: "number", Datetime: "date", Ordinal: "ordered", Categorical: "label"}
    return names.get(type(column), "label")
