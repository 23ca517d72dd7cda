"""Public tables beside private ones, aligned by the schema of the private one."""

import datetime
import hashlib
import os
import re
from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass, field
from decimal import Decimal
from functools import cached_property, partial
from itertools import chain
from numbers import Real
from typing import Any, Self

import numpy as np
import pandas as pd
from sklearn.utils._param_validation import HasMethods

from sklearn_dpgen.engines._tables import is_engine_table
from sklearn_dpgen.exceptions import PublicTypeError, PublicValueError
from sklearn_dpgen.preprocessing._files import open_files
from sklearn_dpgen.preprocessing._reader import read_blocks, to_pandas
from sklearn_dpgen.preprocessing._sources import Source, is_paths, open_named
from sklearn_dpgen.preprocessing._tabular import TabularEncoder, check_categories
from sklearn_dpgen.schema import Datetime, Numeric, Schema
from sklearn_dpgen.schema._binned import Binned
from sklearn_dpgen.schema._column import Column, IntervalColumn, MadeUpColumn
from sklearn_dpgen.utils._validation import check_is_fitted, warn_user

__all__ = ["PUBLIC_TABLE", "PublicRows", "PublicTable", "as_public_table"]

# Further rows add nothing to the marginals of a prior.
_MOST_ROWS = 1_000_000
# Rows that are aligned at once.
_BLOCK = 1 << 16

_NUMBER = r"[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?"
_PERIOD = r"\d{4}(?:-\d{2}(?:-\d{2})?|-?Q[1-4])?"
_IS_NUMBER = re.compile(_NUMBER)
_IS_INFINITE = re.compile(r"[-+]?inf(inity)?", re.IGNORECASE)
_NUMBERS = re.compile(rf"({_NUMBER})\s*(?:-|–|to)\s*({_NUMBER})")
_PERIODS = re.compile(rf"({_PERIOD})(?:\s*(?:/|–|to|\s-\s)\s*({_PERIOD}))?")
_BRACKETS = re.compile(r"([\[(])\s*([^,;]+?)\s*[,;]\s*([^,;]+?)\s*([\])])")
_FROM = re.compile(r"(>=|>|≥)\s*([^=+].*)|([^<>=+]+?)\s*\+")
_UNTIL = re.compile(r"(<=|<|≤)\s*([^=].*)")
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
    "[30, 40)", "30-39", "90+" or "2001-05". The rows of an interval are spread evenly over the
    values of the column that it contains, by a fixed seed.

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

    def __repr__(self):
        source = self.source if is_paths(self.source) else type(self.source)
        weights = "" if self.weights is None else f", weights={self.weights!r}"
        return f"PublicTable({source!r}{weights})"

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
        UserWarning
            A column has no known cell, and counts as lacking.
        """
        columns = {n: c for n, c in schema.items() if not isinstance(c, MadeUpColumn)}
        names, blocks, sha256 = self._open(columns)
        reader = _Reader({name: columns[name] for name in columns if name in names}, self.weights)
        stride, n_rows = 1, 0
        for block in blocks:
            # Row numbers that are multiples of the stride are kept.
            reader.read(to_pandas(block).iloc[-n_rows % stride :: stride])
            n_rows += len(block)
            while reader.n_rows > _MOST_ROWS:
                stride *= 2
                reader.halve()
        if not n_rows:
            raise PublicValueError("public must have rows, got none.")
        return reader.rows(schema, sha256())

    def _open(self, columns):
        """Return the names of the columns to read, blocks of rows, and a function for the hash."""
        X = self.source
        # Texts of files are kept, and read later; but a declared label such as "None" is no null.
        declared = {
            name: column if _has_texts(column) else None for name, column in columns.items()
        }
        declared = declared if self.weights is None else {self.weights: None} | declared
        if is_engine_table(X):
            raise PublicTypeError(
                f"public must be in memory or in files, got a {type(X).__name__}: collect it."
            )
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
        digest = hashlib.sha256()
        if source.names is None:
            # The columns of chunks are those of the first one.
            parts = source.parts([])
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
            parts, finish = _hashed(parts, digest), digest.hexdigest
        selected = Source(lambda names: (_select(part, names) for part in parts))
        return names, read_blocks(selected, names), finish

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


def as_public_table(public: object) -> PublicTable | None:
    """Return the value of a parameter ``public`` as a PublicTable; None stays None.

    Raises
    ------
    PublicTypeError
        The value is not a table, nor its path.
    """
    return public if public is None or isinstance(public, PublicTable) else PublicTable(public)


# Constraint of a parameter ``public``, a table or its path; ``as_public_table`` reads it.
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
        Of the bytes of the files, one after another; otherwise of the text of the table as CSV
        with a header, commas and Unix line breaks, as pandas writes it.
    cells : dict of str to (ndarray, ndarray)
        Of each column the values as it reads them, and the mask of nulls.
    """

    schema: Schema
    weights: np.ndarray = field(repr=False)
    known: np.ndarray = field(repr=False)
    sha256: str
    cells: Mapping[str, tuple[np.ndarray, np.ndarray]] = field(repr=False)

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
        for place, (name, column) in enumerate(encoder.columns_.items()):
            if name not in self.cells or isinstance(column, MadeUpColumn):
                continue
            declared = column.column if isinstance(column, Binned) else column
            if declared != self.schema[name]:
                raise PublicValueError(
                    f"encoder must declare column {name!r} as the schema of the rows does."
                )
            known = self.known[:, self.names.index(name)]
            codes[known, place] = column._codes(*self.cells[name])[known]
        return codes


class _Reader:
    """Reads blocks of a public table, cell by cell, into arrays."""

    def __init__(self, columns, weights):
        self._cells = {name: _CellReader(column) for name, column in columns.items()}
        self._name, self._weights, self.n_rows = weights, [], 0

    def read(self, frame):
        self.n_rows += len(frame)
        if self._name is not None:
            self._weights.append(_weights(self._name, frame[self._name]))
        for name, cells in self._cells.items():
            cells.read(frame[name])

    def halve(self):
        """Keep every second row."""
        for cells in self._cells.values():
            cells.parts = [[np.concatenate(p)[::2] for p in zip(*cells.parts, strict=True)]]
        self._weights = [np.concatenate(self._weights)[::2]] if self._weights else []
        self.n_rows = (self.n_rows + 1) // 2

    def rows(self, schema, sha256):
        """Return all rows that have a weight and a known cell."""
        weights = np.concatenate(self._weights) if self._weights else np.ones(self.n_rows)
        if not weights.any():
            raise PublicValueError(
                f"Column {self._name!r} must hold weights, and one of them must be positive."
            )
        # The sum of large weights could overflow.
        weights = weights / weights.max()
        cells, known, unread = {}, [], []
        for seed, (name, reader) in enumerate(self._cells.items()):
            values, null, is_known = reader.finish(seed)
            if not (is_known & (weights > 0)).any():
                unread.append(name)
                continue
            cells[name], known = (values, null), [*known, is_known]
        if not cells:
            raise PublicValueError(
                "public must have a cell that the schema declares: none is in the columns "
                f"{unread}."
            )
        for name in unread:
            column = schema[name]
            is_null = not self._cells[name].has_values
            rule = "has missing values but is not nullable." if is_null else column._rule
            warn_user(
                f"Column {name!r} of the public table has no known cell, and is left out: it {rule}"
            )
        known = np.column_stack(known)
        kept = known.any(axis=1) & (weights > 0)
        weights = weights[kept]
        cells = {name: tuple(part[kept] for part in parts) for name, parts in cells.items()}
        return PublicRows(schema, weights / weights.mean(), known[kept], sha256, cells)


class _CellReader:
    """Reads the cells of one column: values, nulls, whether they are known, and intervals."""

    def __init__(self, column: Column) -> None:
        self._column = column
        self.parts: list = []
        self.has_values = False
        # Intervals get numbers in their order of appearance.
        self._intervals: dict = {}
        labels = getattr(column, "labels", ())
        keys = [_key(label) for label in labels]
        self._places = {key: i for i, key in enumerate(keys) if keys.count(key) == 1}

    def read(self, series):
        # First as a private record is read, so that a table that fits gets the same codes.
        values, bad, null = self._column._read_quietly(series)
        values, known = np.array(values), ~bad & (~null | self._column.nullable)
        interval = np.full(len(values), -1)
        rest = np.flatnonzero(bad & ~null)
        self.has_values |= not null.all()
        if len(rest):
            places, distinct = _distinct(series.iloc[rest].astype(object))
            found = [self._found(value) for value in distinct]
            numbers = [self._number(f) if isinstance(f, pd.Interval) else -1 for f in found]
            is_value = np.array([isinstance(f, Real) for f in found])[places]
            plain = np.array([f if isinstance(f, Real) else 0 for f in found], values.dtype)
            values[rest] = plain[places]
            interval[rest] = np.array(numbers)[places]
            known[rest] = is_value
        self.parts.append([values, null, known, interval])

    def _number(self, interval):
        return self._intervals.setdefault(interval, len(self._intervals))

    def _found(self, value):
        """Return a value as the column reads it, an interval of values, or None."""
        try:
            if isinstance(self._column, Numeric):
                return _number_or_interval(value)
            if isinstance(self._column, Datetime):
                return _moments(value)
            return self._places.get(_key(value))
        except (TypeError, ValueError, ArithmeticError):
            return None

    def finish(self, seed):
        """Return all values, nulls and whether they are known, with intervals spread."""
        values, null, known, interval = (np.concatenate(p) for p in zip(*self.parts, strict=True))
        if self._intervals:
            self._spread(values, known, interval, seed)
        # Values that are not known are arbitrary, but can be decoded.
        values[~known], null = 0, null & known
        return values, null, known

    def _spread(self, values, known, interval, seed):
        """Spread the rows of each interval evenly over the values that it contains."""
        rng = np.random.default_rng(seed)
        column = self._column
        grid = Binned(column, (-1.0, 1.0))
        starts, stops = grid.interval_places([*self._intervals])
        # An interval beyond a bound is clipped to it, as a value is.
        starts = np.minimum(starts, grid.n_places - 1)
        stops = np.where(stops == 0, 1, np.where(starts == grid.n_places - 1, starts + 1, stops))
        rows = np.argsort(interval, kind="stable")
        ends = np.searchsorted(interval[rows], np.arange(len(starts) + 1))
        for start, stop, first, last in zip(starts, stops, ends[:-1], ends[1:], strict=True):
            n, n_values = last - first, stop - start
            if n == 0 or n_values <= 0:
                continue
            shares = (rng.permutation(n) + 0.5) / n
            places = np.minimum(start + (shares * n_values).astype(np.int64), stop - 1)
            members = rows[first:last]
            values[members] = column._read_quietly(grid.decode_places(places))[0]
            known[members] = True


def _distinct(series):
    """Return the places of values among the distinct ones, and these."""
    try:
        return pd.factorize(series)
    except TypeError:  # A value is unhashable.
        return np.arange(len(series)), series.to_numpy()


def _key(value):
    """Return what equal labels of other types share: a number, or a text without outer blanks."""
    text = str(value).strip()
    text = {"true": "1", "false": "0"}.get(text.lower(), text)
    return Decimal(text) if _IS_NUMBER.fullmatch(text) else text


def _number_or_interval(value):
    """Return a number, or an interval of numbers; None or an error if it is neither."""
    if isinstance(value, pd.Interval):
        return pd.Interval(float(value.left), float(value.right), value.closed)
    if isinstance(value, bool | np.bool_):
        return float(value)
    if not isinstance(value, str):
        return None
    text = value.strip()
    if _IS_NUMBER.fullmatch(text) or _IS_INFINITE.fullmatch(text):
        return float(text)
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
        return _between(end("-inf"), end(found[2]), "neither" if found[1] == "<" else "both")
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
            f"{series[bad].iloc[0]!r}."
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


def _hashed(parts, digest):
    """Yield parts, after updating a hash by their text as CSV."""
    header = True
    for part in parts:
        text = to_pandas(part).to_csv(index=False, header=header, lineterminator="\n")
        digest.update(text.encode())
        header = False
        yield part


def _hash_files(paths):
    digest = hashlib.sha256()
    for path in paths:
        with open(path, "rb") as file:
            while block := file.read(1 << 20):
                digest.update(block)
    return digest.hexdigest()
