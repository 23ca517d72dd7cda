"""Public tables beside private ones, aligned by the schema of the private one."""

import datetime
import hashlib
import json
import math
import os
import re
from collections import Counter, deque
from collections.abc import Mapping
from contextlib import contextmanager
from dataclasses import KW_ONLY, dataclass, field
from decimal import Decimal
from functools import cached_property, partial
from itertools import chain
from numbers import Real
from typing import Any, Self

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike

from sklearn_dpgen.engines._tables import is_engine_table
from sklearn_dpgen.exceptions import (
    PublicError,
    PublicTypeError,
    PublicValueError,
    UnusedPublicTableWarning,
)
from sklearn_dpgen.ledger._unit import joined_ids
from sklearn_dpgen.preprocessing._files import have_common_file, open_files
from sklearn_dpgen.preprocessing._reader import read_blocks, to_pandas
from sklearn_dpgen.preprocessing._sources import Source, is_paths, open_named
from sklearn_dpgen.preprocessing._tabular import TabularEncoder, check_categories
from sklearn_dpgen.schema import Datetime, Numeric, Schema
from sklearn_dpgen.schema._binned import Binned
from sklearn_dpgen.schema._column import IntervalColumn, MadeUpColumn
from sklearn_dpgen.schema._csv import in_format
from sklearn_dpgen.utils._urls import is_url
from sklearn_dpgen.utils._validation import (
    HasMethods,
    check_array,
    check_fits,
    check_is_fitted,
    warn_user,
)

__all__ = [
    "PUBLIC_TABLE",
    "PublicRows",
    "PublicTable",
    "check_other_files",
    "as_public_table",
    "declared_public",
    "read_public_array",
]

# Further rows add nothing to the marginals of a prior.
_MOST_ROWS = 1_000_000
# States of cells: not declared, missing without being nullable, a value, a declared null, or an
# interval of values that is still to be spread.
_UNKNOWN, _MISSING, _VALUE, _NULL, _INTERVAL = np.arange(5, dtype=np.int8)
_MOST_DIGITS = 40

_NUMBER = r"[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?"
_PERIOD = r"\d{4}(?:-\d{2}(?:-\d{2})?|-?Q[1-4])?"
_IS_NUMBER = re.compile(_NUMBER)
_IS_INFINITE = re.compile(r"[-+]?inf(inity)?", re.IGNORECASE)
_NUMBERS = re.compile(rf"({_NUMBER})\s*(?:-|–|to)\s*({_NUMBER})")
_PERIODS = re.compile(rf"({_PERIOD})(?:\s*(?:/|–|to|\s-\s)\s*({_PERIOD}))?")
_BRACKETS = re.compile(r"([\[(])\s*([^,;]+?)\s*[,;]\s*([^,;]+?)\s*([\])])")
_FROM = re.compile(r"(>=|>|≥)\s*([^=].*)|(.+?)\s*(?:\+|and over|or more)")
_UNTIL = re.compile(r"(<=|<|≤|under)\s*([^=].*)", re.IGNORECASE)
_SIDES = {"[]": "both", "[)": "left", "(]": "right", "()": "neither"}


@dataclass(frozen=True, eq=False)
class PublicTable:
    """A public table with some of the columns of a private one, and weights of its rows.

    An earlier release, or a public-use sample of a census. It serves as a prior and is not
    protected, so it must not be made from the private records, except by releases that are paid
    for.

    Parameters
    ----------
    source : DataFrame, path or other source of records
        As the ``X`` of `fit`: a frame of pandas or Polars, a table or data set of pyarrow, or one
        or several paths of Parquet, CSV or Arrow files. It is read anew by each fit, and held by
        reference: copies and clones share it.
    weights : str or None, default=None
        The column of survey weights, finite and not negative, or None for equal weights.

    Notes
    -----
    Columns are matched by name, in any order; those that the schema lacks are ignored, and so are
    identifiers. A cell is *known* if it can be read as its column declares, in any dtype: codes may
    be texts such as "1", and dates texts in ISO 8601. Numbers and dates out of bounds are clipped,
    as those of private records are. An undeclared label, or a null in a column that is not
    nullable, is not known.

    A number or date may be given as an interval: a pandas Interval or Period, or a text such as
    "[30, 40)", "30-39", "under 5", "90+" or "2001-05". The rows of an interval are spread evenly
    over the values of the column that it contains, by a fixed seed; of one that exceeds a bound,
    over those within it.

    Of more than 1,000,000 rows every second, fourth, ... is kept. Rows of weight zero, and those
    without a known cell, are dropped.

    Examples
    --------
    >>> import pandas as pd
    >>> from sklearn_dpgen.preprocessing import PublicTable
    >>> from sklearn_dpgen.schema import Categorical, Numeric, Schema
    >>> schema = Schema({"age": Numeric(0, 100, integer=True), "sex": Categorical(["f", "m"])})
    >>> census = pd.DataFrame({"sex": ["f", "m", "x"], "w": [20.0, 10.0, 30.0]})
    >>> rows = PublicTable(census, weights="w").read(schema)
    >>> rows.names, rows.frame["sex"].tolist(), rows.weights.tolist()
    (['sex'], ['f', 'm'], [1.3333333333333333, 0.6666666666666666])
    """

    source: Any
    _: KW_ONLY
    weights: str | None = None

    def __post_init__(self):
        if self.weights is not None and not isinstance(self.weights, str):
            raise PublicTypeError(
                "weights must be the name of a column or None, got a "
                f"{type(self.weights).__name__}."
            )
        if self.source is None or isinstance(self.source, PublicTable):
            raise PublicTypeError(
                f"source must be a table or its path, got {type(self.source).__name__}."
            )

        sources = self.source if isinstance(self.source, list | tuple) else [self.source]
        if any(map(is_url, sources)):
            raise PublicTypeError(
                "source must be a table or its path: a table of a database may change. Export it."
            )

    def __repr__(self):
        is_file = is_paths(self.source)
        source = repr(self.source) if is_file else f"<{type(self.source).__name__}>"
        weights = "" if self.weights is None else f", weights={self.weights!r}"
        return f"PublicTable({source}{weights})"

    def __copy__(self) -> Self:
        return self

    def __deepcopy__(self, memo: dict) -> Self:
        # Clones of an estimator share the table, which is never changed.
        return self

    def read(self, schema: Schema) -> "PublicRows":
        """Read the rows, aligned by a schema.

        Parameters
        ----------
        schema : Schema
            Of the private table.

        Returns
        -------
        PublicRows

        Raises
        ------
        PublicTypeError
            The source has no named columns, or can be read only once.
        PublicValueError
            No column of the schema is there, a column is there twice, no row has a known cell, or a
            weight is missing, negative or infinite.

        Warns
        -----
        UnusedPublicTableWarning
            A column has no known cell, and counts as lacking.
        """
        if not isinstance(schema, Schema):
            raise PublicTypeError(f"schema must be a Schema, got {type(schema).__name__}.")
        return self._read(schema)

    def _read(self, schema, keys=()):
        """Read the rows with those of some keys that the table has.

        All rows that have a weight are then kept, as others may refer to them.
        """
        columns = {n: c for n, c in schema.items() if not isinstance(c, MadeUpColumn)}
        names, blocks, finish = self._open(columns, keys)
        found = {name: columns[name] for name in columns if name in names}
        keys = [key for key in keys if key in names]
        reader = _Reader(found, self.weights, keys)
        stride, n_rows = 1, 0
        for block in blocks:
            # Row numbers that are multiples of the stride are kept.
            reader.read(to_pandas(block).iloc[-n_rows % stride :: stride])
            n_rows += len(block)
            while reader.n_rows > _MOST_ROWS and not keys:
                stride *= 2
                reader.halve()
        if not n_rows:
            raise PublicValueError("public must have rows, got none.")
        return reader.rows(schema, finish())

    def _open(self, columns, keys):
        """Return the names of the columns to read, blocks of rows, and a function for the hash."""
        X = self.source
        # Texts of files are kept, and read later; but a declared label such as "None" is no null.
        declared = {
            name: column if _has_texts(column) else None for name, column in columns.items()
        }
        others = dict.fromkeys([*keys, *([] if self.weights is None else [self.weights])])
        declared = others | declared
        if is_engine_table(X):
            raise PublicTypeError(
                f"public must be in memory or in files, got a {type(X).__name__}: collect it."
            )
        with _named():
            source = open_named(X, declared)
        if source is None:
            raise PublicTypeError(
                f"public must be a table with named columns, got {type(X).__name__}."
            )
        if source.is_once:
            raise PublicTypeError(
                "public must be readable by several fits, got a source that can be read once: "
                f"{type(X).__name__}."
            )
        if source.names is None:
            # The columns of chunks are those of the first one.
            parts = _named_parts(source.parts([]))
            first = next(parts, pd.DataFrame())
            given, parts = _names_of(first), chain([first], parts)
        else:
            given = source.names
            parts = source.parts([n for n in declared if n in given] if is_paths(X) else given)
        names = self._check_names(given, declared, columns)
        if is_paths(X):
            files = open_files([X] if isinstance(X, str | os.PathLike) else X, declared).files
            finish = partial(_hash_files, files)
        else:
            digest = _Digest()
            parts, finish = digest.of_parts(parts), digest.finish
        selected = Source(lambda names: (_select(part, names) for part in parts))
        return names, _named_parts(read_blocks(selected, names)), finish

    def _check_names(self, given, declared, columns):
        """Return the columns to read, of those that the table has."""
        if self.weights is not None and self.weights not in given:
            raise PublicValueError(
                f"weights must be a column of the public table, got {self.weights!r}."
            )
        if not any(name in given for name in columns):
            raise PublicValueError(
                f"public must have a column of the schema, {[*columns]}, got {[*given]}."
            )
        twice = [name for name in declared if list(given).count(name) > 1]
        if twice:
            raise PublicValueError(f"public must have each column once, got several {twice}.")
        return [name for name in declared if name in given]


@contextmanager
def _named():
    """Say in errors of a reader, whose subject is X, that the table is the public one."""
    try:
        yield
    except PublicError as error:
        raise type(error)(f"The public table cannot be read: {error}") from error


def _named_parts(parts):
    with _named():
        yield from parts


def as_public_table(public: object) -> PublicTable | None:
    """Return the value of a parameter ``public`` as a PublicTable; None stays None."""
    return public if public is None or isinstance(public, PublicTable) else PublicTable(public)


def check_other_files(public: object, X: object) -> None:
    """Raise an error if a public table has a file of the private one, which would not be protected.

    Parameters
    ----------
    public : PublicTable, table, path or None
        A value of the parameter, which may be no table at all.
    X : object
        A private table. That of another kind than files is not looked at.
    """
    source: Any = public.source if isinstance(public, PublicTable) else public
    listed: list[Any] = [own if isinstance(own, list | tuple) else [own] for own in (source, X)]
    if is_paths(source) and is_paths(X) and have_common_file(*listed):
        raise PublicValueError("public must be another file than the private table.")


def declared_public(schema: Any) -> PublicTable | None:
    """Return the public table that a schema declares, in the format of its files, or None."""
    if not isinstance(schema, Schema) or not schema.public:
        return None
    return PublicTable(in_format(schema.public_files, schema.form))


def read_public_array(
    public: object, n_features: int, labels: ArrayLike | None = None
) -> tuple[np.ndarray, str]:
    """Return public records of a domain, and their SHA-256.

    Parameters
    ----------
    public : array-like or frame of shape (n, n_features)
    n_features : int
    labels : array-like of shape (n,) or None, default=None
        Only hashed.

    Returns
    -------
    X : ndarray of float64 of shape (n, n_features)
    sha256 : str
        Of the values of ``X``, column by column, and of the labels as texts.

    Raises
    ------
    PublicTypeError
        A table or path, whose columns only a schema can align.
    PublicValueError
        The records have another number of features.
    """
    if isinstance(public, PublicTable) or is_paths(public):
        raise PublicTypeError(
            "public must be an array of records if there is no schema, got a "
            f"{'PublicTable' if isinstance(public, PublicTable) else 'path'}."
        )
    X = check_array(public, dtype=np.float64)
    if X.shape[1] != n_features:
        raise PublicValueError(
            f"public must have {n_features} features, as the records have, got {X.shape[1]}."
        )
    parts = [pd.DataFrame(X)]
    if labels is not None:
        parts.append(pd.DataFrame({"labels": np.asarray(labels, dtype=object).ravel()}))
    digest = _Digest()
    deque(digest.of_parts(parts), maxlen=0)
    return X, digest.finish()


# Constraint of a parameter ``public``: a PublicTable, or a source of one.
PUBLIC_TABLE: list = [
    None,
    PublicTable,
    os.PathLike,
    HasMethods("__iter__"),
    HasMethods("__arrow_c_stream__"),
    HasMethods("scanner"),
    HasMethods("collect"),
]


@dataclass(frozen=True, eq=False)
class PublicRows:
    """The rows of a public table, aligned by a schema; made by :meth:`PublicTable.read`.

    Parameters
    ----------
    schema : Schema
    weights : ndarray of shape (n,)
        Positive, with mean 1.
    known : ndarray of bool of shape (n, n_names)
        Whether a cell holds a declared value, or a declared null.
    sha256 : str
        SHA-256 of the bytes of the files, one after another. Of other sources, of the names and
        values of all columns, in their order and dtypes.
    cells : dict of str to (ndarray, ndarray)
        Of each column the values as it reads them, and the mask of nulls.
    keys : dict of str to Series, default={}
        Values of the key columns that are read beside those of the schema.
    """

    schema: Schema = field(repr=False)
    weights: np.ndarray = field(repr=False)
    known: np.ndarray = field(repr=False)
    sha256: str
    cells: Mapping[str, tuple[np.ndarray, np.ndarray]] = field(repr=False)
    keys: Mapping[str, pd.Series] = field(default_factory=dict, repr=False)

    @property
    def names(self) -> list[str]:
        """The columns of the schema that the public table has, in the order of the schema."""
        return list(self.cells)

    @cached_property
    def frame(self) -> pd.DataFrame:
        """The cells in the dtypes of the schema, on its grids; those not known are missing.

        Where cells are missing, integers are float64 and truth values are objects.
        """
        known = dict(zip(self.cells, self.known.T, strict=True))
        return pd.DataFrame(
            {
                name: _decoded(self.schema[name], *cells).where(known[name])
                for name, cells in self.cells.items()
            }
        )

    def codes(self, encoder: TabularEncoder) -> np.ndarray:
        """Return the category or bin of each cell.

        Parameters
        ----------
        encoder : TabularEncoder
            Fitted, with all columns of the schema, and any bins for numbers and dates.

        Returns
        -------
        ndarray of int64 of shape (n, n_columns)
            Columns in the order of the schema. -1 for cells that are not known, and for columns
            that the public table lacks.

        Raises
        ------
        PublicValueError
            A column has no bins, or is declared otherwise than in the schema.
        """
        check_is_fitted(encoder)
        check_categories(encoder)
        codes = np.full((len(self.weights), len(encoder.columns_)), -1)
        places = {name: place for place, name in enumerate(encoder.columns_)}
        for name, column, known in self._columns(encoder):
            codes[known, places[name]] = column._codes(*self.cells[name])[known]
        return codes

    def encode(self, encoder: TabularEncoder) -> np.ndarray:
        """Return the rows as points of the domain of an encoder.

        Parameters
        ----------
        encoder : TabularEncoder
            As of :meth:`codes`, with or without bins.

        Returns
        -------
        ndarray of float64 of shape (n, domain_.n_features)
            NaN in all features of cells that are not known.

        Raises
        ------
        PublicValueError
            A column is declared otherwise than in the schema.
        """
        check_is_fitted(encoder)
        shape = len(self.weights), encoder.domain_.n_features
        # The points, and as many numbers of who reads them.
        check_fits(16 * math.prod(shape), f"public: {shape[0]} encoded rows")
        points = np.full(shape, np.nan)
        for name, column, known in self._columns(encoder):
            points[known, encoder.blocks_[name]] = column._encode(*self.cells[name])[known]
        return points

    def _columns(self, encoder):
        """Yield the name, the column of an encoder, and the known cells of each shared column."""
        known = dict(zip(self.cells, self.known.T, strict=True))
        for name, column in encoder.columns_.items():
            if name not in self.cells or isinstance(column, MadeUpColumn):
                continue
            declared = column.column if isinstance(column, Binned) else column
            if declared != self.schema[name]:
                raise PublicValueError(
                    f"encoder must declare column {name!r} as the schema of the rows does."
                )
            yield name, column, known[name]


class _Reader:
    """Reads blocks of a public table, cell by cell, into arrays."""

    def __init__(self, columns, weights, keys=()):
        self._cells = {name: _CellReader(column) for name, column in columns.items()}
        self._name, self._weights, self.n_rows = weights, [], 0
        self._keys: dict[str, list] = {key: [] for key in keys}

    def read(self, frame):
        self.n_rows += len(frame)
        if self._name is not None:
            self._weights.append(_weights(self._name, frame[self._name]))
        for name, cells in self._cells.items():
            cells.read(frame[name])
        for key, parts in self._keys.items():
            parts.append(frame[key])

    def halve(self):
        """Keep every second row."""
        for cells in self._cells.values():
            cells.halve()
        self._weights = [np.concatenate(self._weights)[::2]] if self._weights else []
        self.n_rows = (self.n_rows + 1) // 2

    def rows(self, schema, sha256):
        """Return all rows that have a weight and a known cell."""
        weights = np.concatenate(self._weights) if self._weights else np.ones(self.n_rows)
        if not weights.any():
            raise PublicValueError(
                f"Column {self._name!r} must hold weights, and one of them must be positive."
            )
        # The sum of large weights could overflow; a power of two is exact.
        weights = np.ldexp(weights, -np.frexp(weights.max())[1])
        cells, known, unread = {}, [], {}
        for seed, (name, reader) in enumerate(self._cells.items()):
            values, states = reader.finish(seed)
            is_known = (states == _VALUE) | (states == _NULL)
            if (is_known & (weights > 0)).any():
                cells[name] = values, states == _NULL
                known.append(is_known)
            else:
                unread[name] = (states == _MISSING).all()
        if not cells:
            raise PublicValueError(
                "public must have a cell that the schema declares: none is in the columns "
                f"{[*unread]}."
            )
        for name, is_missing in unread.items():
            rule = "is missing but not nullable." if is_missing else schema[name]._rule
            warn_user(
                f"Column {name!r} of the public table has no known cell, and is left out: it "
                f"{rule}",
                UnusedPublicTableWarning,
            )
        known = np.column_stack(known)
        kept = weights > 0 if self._keys else known.any(axis=1) & (weights > 0)
        weights = weights[kept]
        cells = {name: tuple(part[kept] for part in parts) for name, parts in cells.items()}
        keys = {key: pd.Series(joined_ids(parts))[kept] for key, parts in self._keys.items()}
        return PublicRows(schema, weights / weights.mean(), known[kept], sha256, cells, keys)


class _CellReader:
    """Reads the cells of one column: the values as the column reads them, and their states."""

    def __init__(self, column: Any) -> None:
        self._column = column
        self.parts: list = []
        # Intervals get numbers in their order of appearance.
        self._intervals: dict = {}
        keys = [_key(label) for label in getattr(column, "labels", ())]
        n_equal = Counter(keys)
        self._places = {key: i for i, key in enumerate(keys) if n_equal[key] == 1}

    def read(self, series):
        if series.dtype.kind in "fiuM":
            # As private records are read, so that a table that fits gets the same codes.
            values, bad, null = self._column._read_quietly(series)
            if not bad.any():
                self.parts.append([values, np.where(null, self._null, _VALUE)])
                return
        # A cell is read by its value alone, so the distinct ones suffice.
        places, distinct = _distinct(series)
        distinct = [*distinct, None]
        if isinstance(self._column, Numeric) and not self._column.has_words:
            distinct = list(map(_as_number, distinct))
        values, bad, null = self._column._read_quietly(pd.Series(distinct, dtype=object))
        states = np.where(null, self._null, _VALUE)
        for i in np.flatnonzero(bad & ~null):
            values[i], states[i] = self._found(distinct[i])
        self.parts.append([values[places], states[places]])

    @property
    def _null(self):
        return _NULL if self._column.nullable else _MISSING

    def _found(self, value):
        """Return the value or the number of the interval of a cell of another type, and a state."""
        try:
            if isinstance(self._column, Numeric):
                found = _numbers(value)
            elif isinstance(self._column, Datetime):
                found = _moments(value)
            else:
                found = self._places.get(_key(value))
        except (TypeError, ValueError, ArithmeticError):
            found = None
        if isinstance(found, pd.Interval):
            return self._intervals.setdefault(found, len(self._intervals)), _INTERVAL
        return (0, _UNKNOWN) if found is None else (found, _VALUE)

    def halve(self):
        """Keep every second cell."""
        values, states = map(np.concatenate, zip(*self.parts, strict=True))
        self.parts = [[values[::2], states[::2]]]

    def finish(self, seed):
        """Return all values, with intervals spread, and the states."""
        values, states = map(np.concatenate, zip(*self.parts, strict=True))
        if self._intervals:
            self._spread(values, states, np.random.default_rng(seed))
        # Any number that can be decoded stands for a cell without a value.
        values[states != _VALUE] = 0
        return values, states

    def _spread(self, values, states, rng):
        """Spread the rows of each interval evenly over the values that it contains."""
        grid = Binned(self._column, (-1.0, 1.0))
        starts, stops = grid.interval_places([*self._intervals])
        # All of an interval that is beyond a bound is clipped to it, as a value is.
        is_above, is_below = starts == grid.n_places, stops == 0
        starts, stops = starts - is_above, stops + is_below
        # In random order within each interval, so that two columns are spread independently.
        rows = rng.permutation(np.flatnonzero(states == _INTERVAL))
        rows = rows[np.argsort(values[rows], kind="stable")]
        number = values[rows].astype(np.int64)
        counts = np.bincount(number, minlength=len(starts))
        ranks = np.arange(len(rows)) - (np.cumsum(counts) - counts)[number]
        sizes = (stops - starts)[number]
        steps = np.floor((ranks + 0.5) / counts[number] * sizes).astype(np.int64)
        places = starts[number] + np.minimum(steps, sizes - 1)
        # No value of a grid may lie in an interval.
        has_values = sizes > 0
        states[rows] = np.where(has_values, _VALUE, _UNKNOWN)
        spread = grid.decode_places(places[has_values])
        values[rows[has_values]] = self._column._read_quietly(spread)[0]


def _distinct(series):
    """Return the places of values among the distinct ones, -1 for nulls, and these."""
    try:
        places, distinct = pd.factorize(series)
        return places, distinct.astype(object)
    except (TypeError, NotImplementedError, ArithmeticError):
        # For example, a value is unhashable.
        return np.arange(len(series)), series.astype(object).to_numpy()


def _key(value):
    """Return what equal labels of other types share: a number, or a text without outer blanks."""
    text = str(value).strip()
    text = {"true": "1", "false": "0"}.get(text.lower(), text)
    # As short as those of numbers are, as longer ones may overflow.
    is_number = _IS_NUMBER.fullmatch(text) and len(text) <= _MOST_DIGITS
    return Decimal(text) if is_number else text


def _as_number(value):
    """Return a truth value, or a text of a number, as a float; other values unchanged."""
    if isinstance(value, str):
        text = value.strip()
        return float(text) if _IS_NUMBER.fullmatch(text) or _IS_INFINITE.fullmatch(text) else value
    return float(value) if isinstance(value, bool | np.bool_) else value


def _numbers(value):
    """Return an interval of numbers; None or an error if it is none."""
    if isinstance(value, pd.Interval):
        return pd.Interval(float(value.left), float(value.right), value.closed)
    text = str(value).strip()
    found = _NUMBERS.fullmatch(text)
    return _interval(text, float) if found is None else _between(*map(float, found.groups()))


def _moments(value):
    """Return an interval of dates; None or an error if it is none."""
    if isinstance(value, pd.Interval):
        return _between(_stamp(value.left), _stamp(value.right), value.closed)
    if isinstance(value, pd.Period):
        return _between(_stamp(value.start_time), _stamp(value.end_time))
    text = str(value).strip()
    # Both ends are included: the whole of the last day, month, quarter or year.
    found = _PERIODS.fullmatch(text)
    # A year beside a null is a float.
    found = found or _PERIODS.fullmatch(text.removesuffix(".0"))
    if found is None:
        return _interval(text, _stamp)
    first, last = (pd.Period(end) for end in (found[1], found[2] or found[1]))
    return _between(_stamp(first.start_time), _stamp(last.end_time))


def _stamp(value):
    """Return a date in UTC; infinity is beyond all dates."""
    if isinstance(value, str) and _IS_INFINITE.fullmatch(value):
        value = datetime.datetime.min if value.startswith("-") else datetime.datetime.max
    elif isinstance(value, str):
        value = datetime.datetime.fromisoformat(value)
    elif isinstance(value, Real):
        raise PublicTypeError("A date must not be a number.")
    stamp = pd.Timestamp(value)
    return stamp.tz_localize("UTC") if stamp.tz is None else stamp.tz_convert("UTC")


def _interval(text, end):
    """Return the interval of a text; None or an error if it is none."""
    if found := _BRACKETS.fullmatch(text):
        first, low, high, last = found.groups()
        return _between(end(low), end(high), _SIDES[first + last])
    if found := _FROM.fullmatch(text):
        closed = "neither" if found[1] == ">" else "both"
        return _between(end(found[2] or found[3]), end("inf"), closed)
    if found := _UNTIL.fullmatch(text):
        closed = "both" if found[1] in ("<=", "≤") else "neither"
        return _between(end("-inf"), end(found[2]), closed)
    return None


def _between(low, high, closed="both"):
    return pd.Interval(low, high, closed)


def _decoded(column, values, null):
    """Return cells in the dtype of a column, clipped and on its grid if there is one."""
    if isinstance(column, Numeric) and column.n_steps is None:
        return pd.Series(np.where(null, np.nan, np.clip(values, *column._bounds)))
    if isinstance(column, IntervalColumn):
        return column._decode(column._encode(values, null), None)
    return column._values(column._codes(values, null), None)


def _weights(name, series):
    values = pd.to_numeric(series, errors="coerce").to_numpy(dtype=np.float64, na_value=np.nan)
    bad = ~(np.isfinite(values) & (values >= 0))
    if bad.any():
        raise PublicValueError(
            f"Column {name!r} must hold weights, finite and not negative, got "
            f"{series[bad].tolist()[0]!r}."
        )
    return values


def _has_texts(column):
    return any(isinstance(label, str) for label in getattr(column, "labels", ()))


def _names_of(part):
    return list(part.columns) if isinstance(part, pd.DataFrame) else part.schema.names


def _select(part, names):
    """Return the given columns of a part, without those that it lacks."""
    given = _names_of(part)
    names = [name for name in names if name in given]
    return part[names] if isinstance(part, pd.DataFrame) else part.select(names)


class _Digest:
    """A hash of the names and values of columns, in their order and that of the rows."""

    def __init__(self) -> None:
        self._columns: dict = {}

    def of_parts(self, parts):
        """Yield parts, after the hash is updated by each."""
        for part in parts:
            frame = to_pandas(part)
            for place, name in enumerate(frame.columns):
                kind, content = _bytes_of(frame.iloc[:, place])
                found = self._columns.setdefault((place, str(name), kind), hashlib.sha256())
                found.update(content)
            yield part

    def finish(self):
        found = [[*column, digest.hexdigest()] for column, digest in self._columns.items()]
        return hashlib.sha256(json.dumps(found).encode()).hexdigest()


def _bytes_of(series):
    """Return a kind of values, and these as bytes: numbers as such, others as texts."""
    values = series.to_numpy()
    if values.dtype.kind in "biufM":
        values = values.astype(values.dtype.newbyteorder("<"))
        return values.dtype.str, values.tobytes()
    places, distinct = _distinct(series)
    texts = [f"{len(text)}:{text}".encode(errors="surrogatepass") for text in map(str, distinct)]
    return "text", b"".join(np.array([*texts, b"null"], dtype=object)[places])


def _hash_files(paths):
    digest = hashlib.sha256()
    for path in paths:
        with open(path, "rb") as file:
            while block := file.read(1 << 20):
                digest.update(block)
    return digest.hexdigest()
