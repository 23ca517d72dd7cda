"""Exact counts of records over any parts of them, weighted so that each person counts once."""

import copy
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Self

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike

from sklearn_dpgen.exceptions import PublicValueError
from sklearn_dpgen.ledger._unit import check_alike, told_apart
from sklearn_dpgen.preprocessing import TabularEncoder
from sklearn_dpgen.preprocessing._coder import RecordCoder
from sklearn_dpgen.preprocessing._reader import column_of, read_blocks
from sklearn_dpgen.preprocessing._sources import open_source
from sklearn_dpgen.preprocessing._tabular import check_categories
from sklearn_dpgen.schema._column import Column
from sklearn_dpgen.utils._validation import check_is_fitted

if TYPE_CHECKING:
    import pyarrow

__all__ = [
    "WHOLE",
    "CodeCounter",
    "CountLayout",
    "PersonRows",
    "RowWeights",
    "TableCounter",
    "weights_of",
]

# What weighs 1. Sums over 2^30 persons are exact in doubles.
WHOLE = 1 << 23
# Rows of a person, at most: in units of 1 over 2^23 they fit in 64 bits.
_MOST = 1 << 39
# Distinct ids that are held before they are added up.
_PENDING = 1 << 20


def weights_of(n_rows, most=None):
    """Return what each row of a person weighs, in units of 1 over 2^23, rounded down.

    Parameters
    ----------
    n_rows : ndarray of int
        The number of rows of the person.
    most : int or None, default=None
        What the rows of a person weigh at most, each of them 1 at most. None: 1 together.

    Returns
    -------
    ndarray of int64
        All rows of a person weigh ``most`` together at most, or 1.
    """
    n_rows = np.asarray(n_rows, dtype=np.int64)
    most = 1 if most is None else min(most, _MOST)
    return np.minimum(most * WHOLE // n_rows, WHOLE)


class PersonRows:
    """The number of rows of each person, counted over any parts of a table.

    Parameters
    ----------
    unit : str
        Name of the column that tells whose row each is.
    """

    def __init__(self, unit):
        self.unit = unit
        self._parts, self._n_pending = [], 0

    def count_block(self, block):
        """Count a block of records with the column of the unit."""
        codes, found = told_apart(column_of(block, self.unit), self.unit)
        return self.add(pd.Series(np.bincount(codes), index=pd.Index(found)))

    def add(self, rows):
        """Add numbers of rows, a series of them by the ids of persons."""
        if len(rows) == 0:
            return self
        self._parts.append(rows)
        self._n_pending += len(rows)
        if self._n_pending > max(_PENDING, 2 * len(self._parts[0])):
            self.rows()
        return self

    def rows(self):
        """Return the number of rows of each person, a series by their ids."""
        if len(self._parts) > 1:
            for part in self._parts[1:]:
                check_alike([self._parts[0].index[0], part.index[0]], self.unit)
            self._parts = [pd.concat(self._parts).groupby(level=0, sort=False, observed=True).sum()]
            self._n_pending = 0
        return self._parts[0] if self._parts else pd.Series(dtype=np.int64)


class RowWeights:
    """The weight of each row of a table, by the number of rows of its person.

    Parameters
    ----------
    unit : str
        Name of the column that tells whose row each is.
    rows : Series of int
        By the ids of all persons.
    most : int or None
        As of :func:`weights_of`.

    Attributes
    ----------
    values : ndarray of int64 of shape (n_persons,)
        What each row of a person weighs.
    """

    def __init__(self, unit, rows, most=None):
        self.unit = unit
        self._ids, self.values = rows.index, weights_of(rows.to_numpy(), most)
        self._index()

    def __setstate__(self, state):
        vars(self).update(state)
        self._index()

    def _index(self):
        """Look up a first id, by which pandas makes what threads then share."""
        self._ids.get_indexer(self._ids[:1])

    @property
    def n_persons(self):
        """The number of persons."""
        return len(self._ids)

    def is_like(self, other):
        """Return whether others are of the same persons, in the same order."""
        is_same = self.unit == other.unit and np.array_equal(self.values, other.values)
        return is_same and self._ids.equals(other._ids)

    def persons(self, block):
        """Return the place of the person of each row of a block."""
        places = self._ids.get_indexer(pd.Index(column_of(block, self.unit)))
        if (places < 0).any():
            raise PublicValueError(
                f"X has changed: column {self.unit!r} names persons that were not there before."
            )
        return places


# Tables of so many cells at most are counted as finely as any of them needs, and grouped at the
# end: columns are mapped once, and tables share counts.
_FINE = 1 << 14


class CountLayout:
    """Which categories are counted together, and what tables are made of these counts.

    Parameters
    ----------
    sizes : list of int
        The number of categories of each column.
    tables : list of tuple of int
        Columns of each.
    groups : sequence of tuple of ndarray or None
        For each table, and each of its columns, the group of each category. None for each category
        by itself.

    Attributes
    ----------
    counted : tuple
        The number of cells of each mapped column, and the tables of these: what
        :class:`JointCounts` takes.

    Raises
    ------
    ValueError
        Groups that do not cover the categories.

    Notes
    -----
    The cells of a column are the coarsest that all of its groups are made of. A table that would
    have too many of them is counted in its own groups.
    """

    def __init__(self, sizes, tables, groups):
        if groups is None:
            groups = [tuple(np.arange(sizes[j]) for j in columns) for columns in tables]
        groups = [tuple(map(np.asarray, parts)) for parts in groups]
        _check_groups(sizes, tables, groups)
        # Of one dtype, as they are told apart by their bytes.
        groups = [tuple(part.astype(np.int64, copy=False) for part in parts) for parts in groups]
        cells = _cells(sizes, tables, groups)
        self._maps: list = []
        self._results: list = []
        places: dict = {}
        counted: dict = {}
        for columns, parts in zip(tables, groups, strict=True):
            finest = [cells[j] for j in columns]
            is_fine = _n_cells(finest) <= max(_FINE, _n_cells(parts))
            mapped = [
                self._place(places, j, part)
                for j, part in zip(columns, finest if is_fine else parts, strict=True)
            ]
            order = np.argsort(mapped)
            key = tuple(mapped[i] for i in order)
            last = [_coarser(*pair) for pair in zip(finest, parts, strict=True)] if is_fine else []
            table = counted.setdefault(key, len(counted))
            self._results.append((table, tuple(np.argsort(order).tolist()), last))
        self.counted = [int(part.max()) + 1 for _, part in self._maps], list(counted)

    def _place(self, places, column, groups):
        """Return the place of a mapped column, a new one if there is none like it."""
        key = column, groups.tobytes()
        if key not in places:
            places[key] = len(self._maps)
            small = groups.astype(np.min_scalar_type(int(groups.max())))
            self._maps.append((column, small))
        return places[key]

    def mapped(self, codes):
        """Return the cells of records in the mapped columns, from their categories.

        Parameters
        ----------
        codes : sequence of ndarray of unsigned int of shape (n,)

        Returns
        -------
        list of ndarray of unsigned int of shape (n,)

        Raises
        ------
        IndexError
            Codes that are no categories.
        """
        return [
            codes[column] if _is_identity(groups) else groups[codes[column]]
            for column, groups in self._maps
        ]

    def tables(self, counts):
        """Return the tables in their groups, from those that were counted."""
        found = []
        for place, axes, groups in self._results:
            table = counts[place].transpose(axes)
            for axis, part in enumerate(groups):
                table = _summed(table, axis, part)
            found.append(table)
        return found

    def is_like(self, other):
        """Return whether another layout counts the same."""
        if self.counted != other.counted or len(self._results) != len(other._results):
            return False
        return all(
            mine[0] == theirs[0] and np.array_equal(mine[1], theirs[1])
            for mine, theirs in zip(self._maps, other._maps, strict=True)
        )


def _check_groups(sizes, tables, groups):
    for columns, parts in zip(tables, groups, strict=True):
        for column, part in zip(columns, parts, strict=True):
            is_map = part.shape == (sizes[column],) and part.dtype.kind in "iu"
            if not is_map or part.min() < 0:
                raise PublicValueError(
                    "groups must give each category of a column a group, from 0."
                )


def _cells(sizes, tables, groups):
    """Return, for each column, the coarsest groups of categories that all of its groups are of."""
    given: list[dict] = [{} for _ in sizes]
    for columns, parts in zip(tables, groups, strict=True):
        for column, part in zip(columns, parts, strict=True):
            given[column][part.tobytes()] = part
    found = []
    for size, maps in zip(sizes, given, strict=True):
        cells = np.zeros(size, dtype=np.int64)
        for part in maps.values():
            if cells.max(initial=0) == size - 1:
                break
            # No larger than (number of cells) x (number of groups).
            cells = np.unique(cells * (int(part.max()) + 1) + part, return_inverse=True)[1]
        found.append(cells)
    return found


def _n_cells(maps):
    return math.prod(int(part.max()) + 1 for part in maps)


def _is_identity(groups):
    return len(groups) == int(groups[-1]) + 1 and bool((groups == np.arange(len(groups))).all())


def _coarser(cells, groups):
    """Return the group of each cell."""
    found = np.empty(int(cells.max()) + 1, dtype=np.int64)
    found[cells] = groups
    return found


def _summed(table, axis, groups):
    """Return a table with the entries of an axis summed in groups."""
    if _is_identity(groups):
        return table
    table = np.moveaxis(table, axis, 0)
    sums = np.zeros((int(groups.max()) + 1, *table.shape[1:]), dtype=table.dtype)
    np.add.at(sums, groups, table)
    return np.moveaxis(sums, 0, axis)


class CodeCounter:
    """Exact counts of codes in tables.

    Parameters
    ----------
    layout : CountLayout
    n_persons : int, default=0
        Of whom the rows are counted too, where rows have weights.
    n_expected : int or None, default=None
        About how many rows will be counted, as of :class:`JointCounts`.

    Attributes
    ----------
    n_rows : int
        How many were counted.
    rows_seen : ndarray of int64 of shape (n_persons,)
        How many of each person.
    """

    def __init__(
        self, layout: CountLayout, n_persons: int = 0, n_expected: int | None = None
    ) -> None:
        self._layout, self._n_expected = layout, n_expected
        self._start(n_persons)

    def _start(self, n_persons):
        from sklearn_dpgen.tables._joint_counts import JointCounts

        self._counts = JointCounts(*self._layout.counted, self._n_expected)
        self.n_rows, self.rows_seen = 0, np.zeros(n_persons, dtype=np.int64)

    def count_codes(self, codes: list[np.ndarray], weights: np.ndarray | None = None) -> Self:
        """Count records by their categories.

        Parameters
        ----------
        codes : list of ndarray of unsigned int of shape (n,)
            One a column of the layout.
        weights : ndarray of int64 of shape (n,) or None, default=None
            What each adds; None for 1.

        Returns
        -------
        self
        """
        self._counts.add(self._layout.mapped(codes), weights)
        self.n_rows += len(codes[0])
        return self

    def fresh(self) -> Self:
        """Return a counter of the same tables that has counted nothing."""
        other = copy.copy(self)
        other._start(len(self.rows_seen))
        return other

    def state(self) -> np.ndarray:
        """Return all that was counted as one vector of int64: states of parts are to be added."""
        return np.concatenate([[np.int64(self.n_rows)], self.rows_seen, self._counts.vector])

    def add_state(self, state: np.ndarray) -> Self:
        """Add the state of another counter of the same tables, or a sum of such."""
        stop = 1 + len(self.rows_seen)
        self.n_rows += int(state[0])
        self.rows_seen += state[1:stop]
        self._counts.vector += state[stop:]
        return self

    def tables(self) -> list[np.ndarray]:
        """Return the counts of each table, an axis a column, as ndarrays of int64."""
        return self._layout.tables(self._counts.finish())


class TableCounter(CodeCounter):
    """Exact counts of records in the cells of tables of one to three columns.

    A record adds one to one cell of each table, or its weight. Counts are integers: those of parts
    of a table add up to those of the whole, bit for bit, however and wherever it was cut. So parts
    may be counted by several threads, processes or machines, and merged in any order. Counts are
    not private: they are what noise is added to.

    Parameters
    ----------
    encoder : TabularEncoder
        Fitted, with bins for all numbers and dates: it says which category a value is in.
    tables : sequence of tuple of str
        The columns of each table, one to three, in the order of its axes.
    groups : sequence of tuple of ndarray of int or None, default=None
        For each table, and each of its columns, the group of each category: an entry of the axis,
        from 0. None counts each category by itself.
    weights : RowWeights or None, default=None
        What a row adds, by the person it is of; None for 1.

    Attributes
    ----------
    n_rows : int
        How many were counted.

    Notes
    -----
    To m tables a record adds a vector of l2 norm √m: replacing one changes them by √(2m) at most.
    Whoever merges must merge the counts of each part once: see :mod:`sklearn_dpgen.engines`.

    Examples
    --------
    >>> import pandas as pd
    >>> from sklearn_dpgen.preprocessing import TabularEncoder
    >>> from sklearn_dpgen.schema import Categorical, Numeric, Schema
    >>> from sklearn_dpgen.tables import TableCounter
    >>> schema = Schema({"age": Numeric(0, 100), "smoker": Categorical(["no", "yes"])})
    >>> frame = pd.DataFrame({"age": [20, 70, 80], "smoker": ["no", "no", "yes"]})
    >>> encoder = TabularEncoder(schema, n_bins=2).fit()
    >>> first = TableCounter(encoder, [("age", "smoker")]).count(frame[:2])
    >>> second = TableCounter(encoder, [("age", "smoker")]).count(frame[2:])
    >>> first.merge(second).finish()
    array([1, 0, 1, 1])
    """

    def __init__(
        self,
        encoder: TabularEncoder,
        tables: Sequence[tuple[str, ...]],
        groups: Sequence[tuple[np.ndarray, ...]] | None = None,
        *,
        weights: RowWeights | None = None,
    ) -> None:
        check_is_fitted(encoder)
        check_categories(encoder)
        self._columns, self._weights = encoder.columns_, weights
        names = list(self._columns)
        for columns in tables:
            is_table = isinstance(columns, tuple) and 1 <= len({*columns}) == len(columns) <= 3
            if not is_table or not {*columns} <= {*names}:
                raise PublicValueError(
                    "tables must hold tuples of one to three distinct columns of the encoder, got "
                    f"{columns!r}."
                )
        sizes = [column.n_categories for column in self._columns.values()]
        places = [tuple(map(names.index, columns)) for columns in tables]
        self._coder = RecordCoder(self._columns)
        super().__init__(
            CountLayout(sizes, places, groups), 0 if weights is None else weights.n_persons
        )

    def count(self, X: ArrayLike) -> Self:
        """Count the records of a table.

        Parameters
        ----------
        X : data frame, array-like, Arrow stream, files or other table
            As of :meth:`TableSampler.fit`, but for tables of dask, Spark and Ray.

        Returns
        -------
        self

        Raises
        ------
        ValueError
            Records that do not fit the schema. Nothing of the block of at most 65536 records that
            they are in is counted then; what came before it is.
        """
        for block in read_blocks(open_source(X, self.columns), self.names):
            self.count_block(block)
        return self

    @property
    def columns(self) -> dict[str, Column | None]:
        """The columns that are read: of the encoder, and None for that of the unit."""
        unit = {} if self._weights is None else {self._weights.unit: None}
        return self._columns | unit

    @property
    def names(self) -> list[str]:
        """The names of the columns that are read."""
        return list(self.columns)

    def count_block(self, block: "pd.DataFrame | pyarrow.RecordBatch") -> Self:
        """Count a block of records with the columns ``names``, a frame of pandas or Arrow."""
        codes = self._coder.codes(block)
        if self._weights is None:
            return self.count_codes(codes)
        persons = self._weights.persons(block)
        np.add.at(self.rows_seen, persons, 1)
        return self.count_codes(codes, self._weights.values[persons])

    def merge(self, other: Self) -> Self:
        """Add what another counter of the same tables has counted.

        Parameters
        ----------
        other : TableCounter

        Returns
        -------
        self

        Raises
        ------
        ValueError
            A counter of other tables, or itself: records would count twice.
        """
        if other is self or not isinstance(other, TableCounter) or not self._is_like(other):
            raise PublicValueError("merge takes a counter of the same tables, and not itself.")
        return self.add_state(other.state())

    def _is_like(self, other):
        """Return whether another counts the same, by the same columns and weights."""
        mine, theirs = self._weights, other._weights
        is_like = mine is theirs or (mine and theirs and mine.is_like(theirs))
        is_like = is_like and self._columns == other._columns
        return is_like and self._layout.is_like(other._layout)

    def finish(self) -> np.ndarray:
        """Return the counts of all tables, one after another, as one vector of int64."""
        return np.concatenate([table.ravel() for table in self.tables()])
