"""Neighbouring tables, made of the rows of one pool, and extreme records to make them of."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from sklearn.utils import _safe_indexing, check_random_state

__all__ = ["Pool", "Table", "extreme_records"]

_OUTSIDE = 1e3
_MOST_CORNERS = 12


@dataclass(frozen=True, eq=False)
class Table:
    """A table as indices of rows of a pool, of its labels, and of its sensitive features."""

    rows: np.ndarray
    labels: np.ndarray
    sides: np.ndarray

    def replaced(self, place: int, row: int, label: int, side: int) -> "Table":
        """Return the table with another record in one place."""
        parts = [part.copy() for part in (self.rows, self.labels, self.sides)]
        for part, index in zip(parts, (row, label, side), strict=True):
            part[place] = index
        return Table(*parts)

    def without(self, place: int) -> "Table":
        """Return the table with one record less."""
        return Table(*(np.delete(part, place) for part in (self.rows, self.labels, self.sides)))


class Pool:
    """The records that tables are made of: those given, then candidates.

    Parameters
    ----------
    X, y, sides : array-like, or None but for the first
        The table that is given.
    candidates : like X
    """

    def __init__(self, X: Any, y: Any, sides: Any, candidates: Any) -> None:
        self.n = len(X)
        self.X = X
        self.candidates = self._append(candidates)
        self.y, self.sides = y, sides

    def _append(self, records):
        if isinstance(self.X, pd.DataFrame):
            self.X = pd.concat([self.X, records], ignore_index=True)
        else:
            self.X = np.concatenate([self.X, np.asarray(records, dtype=self.X.dtype)])
        return np.arange(len(self.X) - len(records), len(self.X))

    def varied(self, row: int, rng: np.random.RandomState) -> int:
        """Return a new record: one of the pool with some of its values changed."""
        record = _safe_indexing(self.X, [row]).copy()
        is_frame = isinstance(record, pd.DataFrame)
        width = record.shape[1]
        changed = rng.uniform(size=width) < max(0.3, 1 / width)
        changed[rng.randint(width)] = True
        for j in np.flatnonzero(changed):
            column = self.X.iloc[: self.n, j] if is_frame else pd.Series(self.X[: self.n, j])
            value = _any_value(column, rng)
            if is_frame:
                record.isetitem(j, pd.Series([value], index=record.index).astype(column.dtype))
            else:
                record[0, j] = value
        return int(self._append(record)[0])

    def given(self) -> Table:
        """Return the table that was given."""
        return Table(*[np.arange(self.n)] * 3)

    def parts(self, table: Table) -> tuple:
        """Return X, y and the sensitive features of a table."""
        X = _safe_indexing(self.X, table.rows)
        if isinstance(X, pd.DataFrame):
            X = X.reset_index(drop=True)
        return X, _taken(self.y, table.labels), _taken(self.sides, table.sides)


def _taken(values, indices):
    if values is None:
        return None
    values = _safe_indexing(values, indices)
    return values.reset_index(drop=True) if isinstance(values, pd.Series) else values


def extreme_records(X: Any, random_state: object = None) -> Any:
    """Return records at the corners of the ranges of X, and far outside of them.

    Parameters
    ----------
    X : data frame or ndarray
    random_state : int, RandomState or None

    Returns
    -------
    like X
    """
    rng = check_random_state(random_state)
    frame = pd.DataFrame(X) if not isinstance(X, pd.DataFrame) else X
    columns = [_extremes(frame[name]) for name in frame]
    corners = _corners([inner for inner, _ in columns], rng)
    middle = tuple(
        column.median() if _is_continuous(column) else column.iloc[0]
        for column in (frame[name] for name in frame)
    )
    outside = _corners([outer for _, outer in columns], rng)
    chosen = list(dict.fromkeys([*corners, middle, *outside]))
    made = pd.DataFrame(
        {
            name: pd.Series([row[j] for row in chosen]).astype(frame[name].dtype)
            for j, name in enumerate(frame)
        }
    )
    return made if isinstance(X, pd.DataFrame) else made.to_numpy()


def _extremes(column):
    """Return the extreme values of a column, and what lies far outside where it is of numbers."""
    if pd.api.types.is_numeric_dtype(column) and not pd.api.types.is_bool_dtype(column):
        low, high = column.min(), column.max()
        width = (high - low) or 1
        far = [low - _OUTSIDE * width, high + _OUTSIDE * width]
        if pd.api.types.is_integer_dtype(column) or column.nunique() <= 2:
            far = [low, high]
        return [low, high], far
    values = list(pd.unique(column))[:4]
    return values, values


def _any_value(column, rng):
    """Return a value of a column, of its range, or not far beyond."""
    if rng.uniform() < 0.3 or not _is_continuous(column):
        return column.iloc[rng.randint(len(column))]
    low, high = column.min(), column.max()
    beyond = rng.choice([0.0, 0.25, 1.0]) * (high - low)
    return rng.uniform(low - beyond, high + beyond)


def _is_continuous(column):
    return pd.api.types.is_float_dtype(column) and column.nunique() > 2


def _corners(values, rng):
    total = np.prod([len(v) for v in values], dtype=float)
    if total <= _MOST_CORNERS:
        grid = np.stack(np.meshgrid(*[np.arange(len(v)) for v in values], indexing="ij"), -1)
        picks = grid.reshape(-1, len(values))
    else:
        ends = np.array([[0] * len(values), [len(v) - 1 for v in values]])
        drawn = [rng.randint(len(v), size=_MOST_CORNERS - 2) for v in values]
        picks = np.concatenate([ends, np.stack(drawn, axis=1)])
    return [tuple(v[i] for v, i in zip(values, pick, strict=True)) for pick in picks]
