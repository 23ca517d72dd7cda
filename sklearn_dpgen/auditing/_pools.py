"""Records, and persons with their rows, of which neighbouring tables consist."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from sklearn.utils import check_random_state

from sklearn_dpgen.exceptions import PublicValueError
from sklearn_dpgen.ledger._unit import joined_ids, told_apart
from sklearn_dpgen.schema import RelationalSchema
from sklearn_dpgen.utils._validation import take_rows

__all__ = ["LinkedTables", "PersonPool", "Pool", "Table", "extreme_records", "nasty_persons"]

_OUTSIDE = 1e3
_MOST_CORNERS = 12


@dataclass(frozen=True, eq=False)
class Table:
    """A table: indices into the records, the labels and the sensitive features of a pool.

    A record is a row, or a person with all rows.
    """

    rows: np.ndarray
    labels: np.ndarray
    sides: np.ndarray

    def replaced(self, position: int, row: int, label: int, side: int) -> "Table":
        """Return the table with another record at one position."""
        arrays = [array.copy() for array in (self.rows, self.labels, self.sides)]
        for array, index in zip(arrays, (row, label, side), strict=True):
            array[position] = index
        return Table(*arrays)

    def without(self, position: int | np.ndarray) -> "Table":
        """Return the table without the records at some positions."""
        arrays = (self.rows, self.labels, self.sides)
        return Table(*(np.delete(array, position) for array in arrays))


class Pool:
    """Records of which tables consist: the given ones, then candidates.

    Parameters
    ----------
    X : array-like
    y, sides : array-like or None
        Labels and sensitive features of the given table.
    candidates : like X
        Records that may replace given ones.
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
        """Add a record with some values changed to the pool, and return its index."""
        given = self.X.iloc[: self.n] if isinstance(self.X, pd.DataFrame) else self.X[: self.n]
        return int(self._append(_varied(take_rows(self.X, [row]), given, rng))[0])

    def given(self) -> Table:
        """Return the given table."""
        return Table(*[np.arange(self.n)] * 3)

    def arrays(self, table: Table) -> tuple:
        """Return X, y and the sensitive features of a table."""
        X = take_rows(self.X, table.rows)
        if isinstance(X, pd.DataFrame):
            X = X.reset_index(drop=True)
        return X, _taken(self.y, table.labels), _taken(self.sides, table.sides)


# Numbers of rows of a person.
_N_ROWS = (1, 2, 3, 500)
_N_MIXED = 4


class PersonPool:
    """Persons of which tables consist: the given ones, then candidates.

    It has the interface of `Pool`, whose records are persons: to replace or to remove one changes
    all rows of the person, in all tables.

    Parameters
    ----------
    X : data frame, or mapping of str to data frame
        One table or several ones, each with the column of the unit.
    y, sides : array-like or None
        Labels and sensitive features of the rows of the first table.
    candidates : like X
        Persons that may replace given ones.
    unit : str
        Column that identifies persons.

    Raises
    ------
    PublicTypeError, PublicValueError
        A table lacks the column, or its values do not identify persons.
    """

    def __init__(self, X: Any, y: Any, sides: Any, candidates: Any, unit: str) -> None:
        self._is_single = isinstance(X, pd.DataFrame)
        tables, rows = _by_person(X, unit)
        self.n = len(rows)
        self._rows = rows
        self._tables = tables
        self._given = dict(tables)
        self._layouts = {name: _layout(table, unit) for name, table in _named(X).items()}
        self._most = {name: max(len(own[name]) for own in rows) for name in tables}
        self._y, self._sides = y, sides
        first = next(iter(tables))
        # The rows of the first table that each given person has, to which labels belong.
        self._owned = [own[first] for own in rows]
        starts = np.array([own[0] if len(own) else 0 for own in self._owned])
        self.y, self.sides = (
            None if values is None else np.asarray(values)[starts] for values in (y, sides)
        )
        added, rows = _by_person(candidates, unit)
        self.candidates = np.array([self._append(added, own) for own in rows])

    def _append(self, tables, rows):
        """Add a person with some rows of other tables, and return its index."""
        own = {}
        for name, table in self._tables.items():
            start = len(table)
            own[name] = np.arange(start, start + len(rows[name]))
            if len(rows[name]):
                chosen = tables[name].iloc[rows[name]]
                self._tables[name] = pd.concat([table, chosen], ignore_index=True)
        self._rows.append(own)
        return len(self._rows) - 1

    def varied(self, person: int, rng: np.random.RandomState) -> int:
        """Add a person with other rows in one table to the pool, and return its index."""
        own = dict(self._rows[person])
        name = list(own)[rng.randint(len(own))]
        given, rows = self._given[name], own[name]
        tables = dict(self._tables)
        if not len(rows):
            rows = rng.randint(len(given), size=1)
        changed = rng.randint(len(rows))
        if given.shape[1] and rng.uniform() < 0.7:
            table: pd.DataFrame = tables[name]
            record: pd.DataFrame = _varied(table.iloc[[rows[changed]]], given, rng)
            tables[name] = pd.concat([table, record], ignore_index=True)
            # One row, half of them, or all: equal rows add up, and draws choose among others.
            share = (0, 0.5, 1)[rng.randint(3)]
            is_kept = rng.uniform(size=len(rows)) >= share
            is_kept[changed] = False
            rows = np.where(is_kept, rows, len(table))
        if self._most[name] > 1:
            rows = np.resize(rows, rng.choice([len(rows), *_N_ROWS]))
        return self._append(tables, own | {name: rows})

    def mixed(self, rng: np.random.RandomState) -> int:
        """Add a person with some given rows to the pool, and return its index."""
        own = {}
        for name, given in self._given.items():
            own[name] = rng.randint(len(given), size=1 if self._most[name] <= 1 else _N_MIXED)
        return self._append(self._tables, own)

    def given(self) -> Table:
        """Return the given table."""
        return Table(*[np.arange(self.n)] * 3)

    def arrays(self, table: Table) -> tuple:
        """Return X, y and the sensitive features of a table.

        Persons come first in the order of the table, which is that of their codes, so that equal
        draws are for equal persons on neighbours. Other rows of a person are anywhere after that.
        """
        X, places = {}, []
        for name, pooled in self._tables.items():
            parts = [self._rows[person][name] for person in table.rows]
            n_rows = np.array([len(part) for part in parts])
            owners = np.repeat(np.arange(len(parts)), n_rows)
            turns = np.arange(len(owners)) - np.repeat(np.cumsum(n_rows) - n_rows, n_rows)
            later = (len(parts) - owners) * (turns * _GOLDEN % 1)
            order = np.argsort(owners + later, kind="stable")
            frame = pooled.iloc[np.concatenate(parts)[order]].reset_index(drop=True)
            X[name] = self._layouts[name](frame, owners[order])
            places.append((n_rows, order))
        n_rows, order = places[0]
        y, sides = (
            _taken(values, self._places(indices, n_rows)[order]) if values is not None else None
            for values, indices in ((self._y, table.labels), (self._sides, table.sides))
        )
        return next(iter(X.values())) if self._is_single else X, y, sides

    def _places(self, indices, n_rows):
        """Return positions of labels of the given persons, repeated for as many rows as wanted."""
        pairs = zip(indices, n_rows, strict=True)
        return np.concatenate([np.resize(self._owned[index], n) for index, n in pairs])


# Multiples of it, modulo 1, fill the unit interval evenly.
_GOLDEN = (5**0.5 - 1) / 2


def _named(X):
    return {"": X} if isinstance(X, pd.DataFrame) else dict(X)


def _by_person(X, unit):
    """Return the tables without ids, and for each person the positions of rows in each table."""
    tables = _named(X)
    for name, table in tables.items():
        if unit not in table.columns:
            of_table = f" in table {name!r}" if name else ""
            raise PublicValueError(f"X must have column {unit!r} of unit{of_table}, got none.")
    # Texts and numbers are refused, also in different tables.
    codes, found = told_apart(joined_ids([table[unit] for table in tables.values()]), unit)
    rows: list[dict] = [{} for _ in found]
    for name, own in zip(tables, np.split(codes, _ends(tables.values())), strict=True):
        order = np.argsort(own, kind="stable")
        ends = np.cumsum(np.bincount(own, minlength=len(found)))[:-1]
        for person, positions in zip(rows, np.split(order, ends), strict=True):
            person[name] = positions
    return {name: table.drop(columns=unit) for name, table in tables.items()}, rows


def _ends(tables):
    return np.cumsum([len(table) for table in tables])[:-1]


def _layout(table, unit):
    """Return a function that gives rows the ids and the dtypes of a table."""
    position, dtypes = table.columns.get_loc(unit), table.drop(columns=unit).dtypes
    is_number = pd.api.types.is_integer_dtype(table[unit])

    def laid_out(frame, owners):
        # Nulls of candidates change dtypes, also of tables without them.
        casts = {
            name: dtype
            for name, dtype in dtypes.items()
            if frame[name].dtype != dtype and frame[name].notna().all()
        }
        frame = frame.astype(casts)
        ids = owners if is_number else [f"person {owner}" for owner in owners]
        frame.insert(position, unit, ids)
        return frame

    return laid_out


class LinkedTables:
    """Tables with keys as tables that each have the column of the unit, and back.

    A row whose parent is not in the root has the number of its parent row among those of the person
    instead of its key. This link is varied as other columns are.

    Parameters
    ----------
    schema : RelationalSchema
    tables : mapping of str to data frame
        Given tables, for the order of columns and the kinds of keys.
    """

    def __init__(self, schema: RelationalSchema, tables: Mapping) -> None:
        self._schema = schema
        self._unit = schema[schema.root].primary_key
        self._columns = {name: list(tables[name]) for name in schema.order}
        self._texts = {
            name: not pd.api.types.is_integer_dtype(tables[name][key])
            for name in schema.order
            if (key := schema[name].primary_key) is not None
        }

    @classmethod
    def of(cls, estimator: Any, X: Any) -> "LinkedTables | None":
        """Return the tables with keys of an estimator, or None for other tables."""
        schema = getattr(estimator, "schema", None)
        if not isinstance(X, Mapping) or not isinstance(schema, RelationalSchema):
            return None
        return cls(schema, X) if len(schema.order) > 1 else None

    def flatten(self, tables: Mapping) -> dict:
        """Return tables with the column of the unit, and links, without rows of nobody."""
        found: dict = {}
        # The person of each key of a table, and the number of its row among those of the person.
        known: dict = {}
        for name, parent in self._with_parents():
            frame, key = tables[name], self._schema[name].primary_key
            if parent is not None:
                foreign = frame[self._schema.parent_key(name)]
                persons, numbers = known[parent]
                frame = frame.drop(columns=foreign.name)
                frame.insert(0, self._unit, foreign.map(persons).to_numpy())
                if parent != self._schema.root:
                    frame[_LINK] = foreign.map(numbers).to_numpy()
                frame = frame[frame[self._unit].notna()]
            if key is not None:
                rows = frame.drop_duplicates(key).set_index(key, drop=False)
                person = rows[self._unit]
                known[name] = person, person.groupby(person.to_numpy()).cumcount()
                if parent is not None:
                    frame = frame.drop(columns=key)
            found[name] = frame.astype({_LINK: int}) if _LINK in frame else frame
        return found

    def spread(self, tables: Mapping) -> dict:
        """Return tables in which the rows of a person have the rows above in turn."""
        turns = {n: t.groupby(self._unit).cumcount() for n, t in tables.items() if _LINK in t}
        return {n: t.assign(**{_LINK: turns[n]}) if n in turns else t for n, t in tables.items()}

    def rebuild(self, tables: Mapping) -> dict:
        """Return tables with keys, which are the numbers of rows."""
        found: dict = {}
        for name, parent in self._with_parents():
            frame, key = tables[name].copy(), self._schema[name].primary_key
            foreign = self._schema.parent_key(name)
            if parent == self._schema.root:
                frame[foreign] = frame[self._unit]
            elif parent is not None:
                frame[foreign] = self._keys(parent, self._parent_rows(frame, tables[parent]))
            if key is not None and parent is not None:
                frame[key] = self._keys(name, np.arange(len(frame)))
            found[name] = frame[self._columns[name]]
        return found

    def _with_parents(self):
        return [(name, self._schema.parent(name)) for name in self._schema.order]

    def _keys(self, name, numbers):
        """Return the keys of rows of a table."""
        return [f"row {n}" for n in numbers] if self._texts[name] else numbers

    def _parent_rows(self, frame, above):
        """Return the row above each row; the number after the last one if the person has none."""
        rows = above.groupby(self._unit, sort=False).indices
        none = np.array([len(above)])
        owned = [rows.get(person, none) for person in frame[self._unit]]
        pairs = zip(owned, frame[_LINK], strict=True)
        return np.array([own[link % len(own)] for own, link in pairs], dtype=np.int64)


# The column of links to rows above.
_LINK = "number of the row above"


def nasty_persons(
    X: Any, unit: str, *, n_rows: int = 500, random_state: object = None
) -> pd.DataFrame | dict:
    """Return persons that change releases most, or that break their code, as a table like X.

    Persons have equal rows: one, two or many, at the corners of the ranges, far outside of them, or
    null. One has a row at each corner. In a table where each given person has one row at most, the
    persons have one too, and in the other tables of several ones a person has no rows.

    Parameters
    ----------
    X : data frame, or mapping of str to data frame
        With the column of the unit in each.
    unit : str
        Column that identifies persons.
    n_rows : int, default=500
        Largest number of rows of a person.
    random_state : int, RandomState or None

    Returns
    -------
    like X
    """
    rng = check_random_state(random_state)
    tables, given = _by_person(X, unit)
    singles = {name for name in tables if max(len(own[name]) for own in given) <= 1}
    records = {
        # A table of ids alone, such as one of parents without columns, has equal rows.
        name: extreme_records(table, rng) if table.shape[1] else table.iloc[:1]
        for name, table in tables.items()
    }
    corners, highest, null = max(map(len, records.values())), -2, -1
    # The audit begins with the first and the last.
    specs = [[0] * n_rows, [0], [0] * 2, *([j] for j in range(1, corners)), [*range(corners)]]
    specs += [[null], [null] * n_rows]
    if singles and len(singles) < len(tables):
        specs.append([])
    specs.append([highest] * n_rows)
    made = {}
    for name, own in records.items():
        # A row of nulls follows the highest record.
        frame = own.reset_index(drop=True).reindex(range(len(own) + 1))
        kept = [[*spec, 0][:1] if name in singles else spec for spec in specs]
        places = [j if j < 0 else j % len(own) for spec in kept for j in spec]
        made[name] = frame.iloc[places].reset_index(drop=True)
        made[name].insert(0, unit, np.repeat(np.arange(len(kept)), [len(spec) for spec in kept]))
    return made[""] if isinstance(X, pd.DataFrame) else made


def _taken(values, indices):
    if values is None:
        return None
    values = take_rows(values, indices)
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
    # The ends, which are compared first, are opposite corners.
    chosen = list(dict.fromkeys([corners[0], middle, *corners, *outside]))
    made = pd.DataFrame(
        {
            name: pd.Series([row[j] for row in chosen]).astype(frame[name].dtype)
            for j, name in enumerate(frame)
        }
    )
    return made if isinstance(X, pd.DataFrame) else made.to_numpy()


def _varied(record, given, rng):
    """Return a record with some values changed.

    Parameters
    ----------
    record : data frame or ndarray of one row
    given : like record
        Rows with the values to choose from.
    """
    record = record.copy()
    is_frame = isinstance(record, pd.DataFrame)
    width = record.shape[1]
    changed = rng.uniform(size=width) < max(0.3, 1 / width)
    changed[rng.randint(width)] = True
    for j in np.flatnonzero(changed):
        column = given.iloc[:, j] if is_frame else pd.Series(given[:, j])
        value = _any_value(column, rng)
        if is_frame:
            record.isetitem(j, pd.Series([value], index=record.index).astype(column.dtype))
        else:
            record[0, j] = value
    return record


def _extremes(column):
    """Return the extreme values of a column, and for numbers values far outside of them."""
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
    """Return a value of a column, within its range, or a little outside."""
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
