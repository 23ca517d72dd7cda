"""What the workers of an engine run in the tests: they import this module."""

import os
import pickle
from pathlib import Path

import numpy as np
import pandas as pd

from sklearn_dpgen.exceptions import PublicValueError

NUMBERS = ["count", "a.b"]
LAST = 1000


def make_frame(n_rows=60):
    """Return records whose sums tell which of them were counted, and how often."""
    rows = np.arange(n_rows)
    return pd.DataFrame(
        {"a.b": 1 << (rows % 20), "count": rows % 7, "person": [f"p{i % 5}" for i in rows]}
    )


def as_pandas(piece):
    assert len(piece) > 0
    return piece.to_pandas() if hasattr(piece, "to_pandas") else piece


def total(pieces):
    """Return the number of records and the sums of the two columns of numbers."""
    out = np.zeros(3, np.int64)
    for piece in map(as_pandas, pieces):
        out += [len(piece), piece["count"].sum(), piece["a.b"].sum()]
    return out


def add(a, b):
    """Add in place, as both are copies."""
    a += b
    return a


def rows_of_persons(pieces):
    persons = [person for piece in pieces for person in as_pandas(piece)["person"]]
    return pd.Series(1, index=persons, dtype=np.int64).groupby(level=0).sum()


def sum_of_persons(a, b):
    return pd.concat([a, b]).groupby(level=0).sum()


def names_of_columns(pieces):
    return {tuple(as_pandas(piece).columns) for piece in pieces}


def union(a, b):
    return a | b


def raise_of_a_value(kind, pieces):
    """Raise while an error that shows a value is handled, as a careless function would."""
    for piece in map(as_pandas, pieces):
        try:
            int(f"secret of {piece['person'].iloc[0]}")
        except ValueError:
            raise kind("Column 'person' holds what is no number.")  # noqa: B904
    return 0


def report_a_value(pieces):
    for piece in map(as_pandas, pieces):
        raise ArithmeticError(f"secret of {piece['person'].iloc[0]}")
    return 0


def decode(pieces):
    for _ in pieces:
        b"\xffsecret".decode("utf-8")
    return 0


def pick_first(pieces):
    """Read one piece, and leave the others."""
    return len(next(pieces, ""))


def fail_to_merge(a, b):
    raise PublicValueError("The columns of two parts differ.")


def total_and_die(folder, pieces):
    """Count, leave the sums in a file, and the first time die with the worker that has LAST."""
    out, has_last = np.zeros(3, np.int64), False
    for piece in map(as_pandas, pieces):
        out += total([piece])
        has_last |= LAST in piece["count"].tolist()
    with open(Path(folder, "seen"), "ab") as file:
        file.write(pickle.dumps(out))
    if has_last and not Path(folder, "died").exists():
        Path(folder, "died").touch()
        os._exit(1)
    return out


def read_seen(folder):
    """Return the sum of what was left in the file, as of an accumulator."""
    out = np.zeros(3, np.int64)
    with open(Path(folder, "seen"), "rb") as file:
        while file.peek(1):
            out += pickle.load(file)
    return out
