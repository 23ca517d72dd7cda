"""How well records fit a schema; the result is not private."""

import pandas as pd

from sklearn_dpgen.exceptions import PublicTypeError, PublicValueError
from sklearn_dpgen.schema._interval import IntervalColumn
from sklearn_dpgen.utils._frames import as_pandas

__all__ = ["check_records"]

_FAULTS = ("outside_bounds", "undeclared", "null", "not_integer", "unreadable")


def check_records(schema, frame):
    """Count by column the values that do not fit a declaration; see :meth:`Schema.check`."""
    frame = as_pandas(frame)
    if not isinstance(frame, pd.DataFrame):
        raise PublicTypeError(f"check takes a data frame, got {type(frame).__name__}.")
    missing = [name for name in schema if name not in frame.columns]
    twice = list(frame.columns[frame.columns.duplicated()].unique())
    faults = {"missing": missing, "more than once": twice}
    if any(faults.values()):
        words = ", ".join(f"{fault} {found}" for fault, found in faults.items() if found)
        raise PublicValueError(
            f"The columns of the schema must be in the frame, each once: {words}."
        )
    counts = {name: _count(column, frame[name]) for name, column in schema.items()}
    return pd.DataFrame.from_dict(counts, orient="index", columns=list(_FAULTS))


def _count(column, series):
    values, bad, null = column._read_quietly(series)
    found = {"null": 0 if column.nullable else int(null.sum())}
    if isinstance(column, IntervalColumn):
        found |= column._count_faults(values[~null & ~bad]) | {"unreadable": int(bad.sum())}
    else:
        found["undeclared"] = int(bad.sum())
    return [found.get(fault, 0) for fault in _FAULTS]
