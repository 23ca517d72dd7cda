"""Exact mergeable counts of records in marginals, with weights for the rows of persons."""

import copy
import itertools
import math
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Self

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike

from sklearn_dpgen.exceptions import PublicValueError
from sklearn_dpgen.ledger._unit import check_alike, joined_ids, told_apart
from sklearn_dpgen.preprocessing import TabularEncoder
from sklearn_dpgen.preprocessing._coder import RecordCoder
from sklearn_dpgen.preprocessing._reader import column_of, read_blocks
from sklearn_dpgen.preprocessing._sources import open_source
from sklearn_dpgen.preprocessing._tabular import check_categories
from sklearn_dpgen.schema._column import Column
from sklearn_dpgen.tables._marginals import MAX_COLUMNS
from sklearn_dpgen.utils._validation import check_is_fitted

if TYPE_CHECKING:
    import pyarrow

__all__ = [
    "WHOLE",
    "CodeCounter",
    "CountLayout",
    "LabelCounter",
    "PersonRows",
    "RowWeights",
    "TableCounter",
    "weights_of",
]

# The integer weight of a person that counts once. Sums over 2^30 persons are exact in doubles.
WHOLE = 1 << 23
# The most rows of a person, whose total weight then fits in 64 bits.
_MOST = 1 << 39
# Entries of series that are pending before they are summed.
_PENDING = 1 << 20


def weights_of(n_rows, most=None):
    """Return the weight of each row of a person, as a multiple of 2^-23, rounded down.

    Parameters
    ----------
    n_rows : ndarray of int
        The number of rows of the person.
    most : int or None, default=None
        Bound on the total weight of a person, whose rows have weight at most 1; None for 1.

    Returns
    -------
    ndarray of int64
        Multiples of 2^-23.
    """
    n_rows = np.asarray(n_rows, dtype=np.int64)
    most = 1 if most is None else min(most, _MOST)
    return np.minimum(most * WHOLE // n_rows, WHOLE)


class PersonRows:
    """Mergeable counts of the rows of each person.

    Parameters
    ----------
    unit : str
        Name of the column with the person of each row.
    """

    def __init__(self, unit):
        self.unit = unit
        self._pending, self._n_pending = [], 0

    def count_block(self, block):
        """Count the rows of a block."""
        codes, ids = told_apart(column_of(block, self.unit), self.unit)
        return self.add(pd.Series(np.bincount(codes), index=pd.Index(ids)))

    def add(self, rows):
        """Add a series of numbers of rows, indexed by person."""
        if len(rows) == 0:
            return self
        self._pending.append(rows)
        self._n_pending += len(rows)
        if self._n_pending > max(_PENDING, 2 * len(self._pending[0])):
            self.rows()
        return self

    def rows(self):
        """Return the series of numbers of rows, indexed by person."""
        if len(self._pending) > 1:
            for rows in self._pending[1:]:
                check_alike([self._pending[0].index[0], rows.index[0]], self.unit)
            codes, ids = pd.factorize(joined_ids([rows.index for rows in self._pending]))
            total = np.zeros(len(ids), dtype=np.int64)
            np.add.at(total, codes, np.concatenate([rows.to_numpy() for rows in self._pending]))
            self._pending = [pd.Series(total, index=ids)]
            self._n_pending = 0
        return self._pending[0] if self._pending else pd.Series(dtype=np.int64)


class LabelCounter:
    """Mergeable counts of all labels of open columns, which are private.

    Parameters
    ----------
    columns : mapping of str to OpenCategorical

    Attributes
    ----------
    n_rows : int
        Number of rows counted.
    """

    def __init__(self, columns):
        self.columns, self.n_rows = dict(columns), 0
        # Null is None.
        self._counts: dict[str, Counter] = {name: Counter() for name in columns}

    def count_block(self, block):
        """Count the labels of a block."""
        for name, column in self.columns.items():
            codes, labels = column.read_labels(column_of(block, name))
            counts = np.bincount(codes, minlength=len(labels) + 1).tolist()
            found = zip([*labels, None], counts, strict=True)
            self._counts[name].update({label: count for label, count in found if count})
        self.n_rows += len(block)

    def merge(self, other):
        """Add the counts of another counter, and return self."""
        for name, counts in self._counts.items():
            counts.update(other._counts[name])
        self.n_rows += other.n_rows
        return self

    def labels(self):
        """Return the counts of all labels of each column but ``other`` and null."""
        return {
            name: {v: n for v, n in counts.items() if v not in (None, self.columns[name].other)}
            for name, counts in self._counts.items()
        }

    def categories(self, name, column):
        """Return the counts of the categories of a column with known labels, as floats."""
        counts = self._counts[name]
        known = [counts[label] for label in column.labels[:-1]]
        null = [counts[None]] if column.nullable else []
        return np.array([*known, self.n_rows - sum(known) - sum(null), *null], dtype=np.float64)


class RowWeights:
    """Weights of rows, by the number of rows of their person.

    Parameters
    ----------
    unit : str
        Name of the column with the person of each row.
    rows : Series of int
        Numbers of rows, indexed by person.
    most : int or None
        As for :func:`weights_of`.

    Attributes
    ----------
    values : ndarray of int64 of shape (n_persons,)
        The weight of each row of a person.
    """

    def __init__(self, unit, rows, most=None):
        self.unit = unit
        self._ids, self.values = rows.index, weights_of(rows.to_numpy(), most)
        self._index()

    def __setstate__(self, state):
        vars(self).update(state)
        self._index()

    def _index(self):
        """Look up an id, so that pandas builds its hash table before threads share it."""
        self._ids.get_indexer(self._ids[:1])

    @property
    def n_persons(self):
        """The number of persons."""
        return len(self._ids)

    def is_like(self, other):
        """Return whether persons, their order and their weights are equal."""
        is_equal = self.unit == other.unit and np.array_equal(self.values, other.values)
        return is_equal and self._ids.equals(other._ids)

    def persons(self, block):
        """Return the index of the person of each row of a block."""
        ids = pd.Index(column_of(block, self.unit))
        if ids.dtype != self._ids.dtype or ids.dtype == object:
            # As objects, since common dtypes are floats, in which integers above 2^53 are equal.
            ids = joined_ids([ids, self._ids[:0]])
        indices = self._ids.get_indexer(ids)
        if (indices < 0).any():
            raise PublicValueError(
                f"X has changed: column {self.unit!r} must not have new persons in a later count."
            )
        return indices


# Tables of at most so many cells are counted at the finest groups that any of them needs, and
# grouped in the end, so that columns are mapped once and tables share counts.
_FINE = 1 << 14
# For fewer rows, counting each table takes no longer than planning or grouping joint tables.
MANY_ROWS = 1 << 16


class CountLayout:
    """Plan that counts grouped tables from few mapped columns.

    Parameters
    ----------
    sizes : list of int
        The number of categories of each column.
    tables : list of tuple of int
        Columns of each table.
    groups : sequence of tuple of ndarray or None
        For each table and each of its columns, the group of each category; None for no groups.
    n_rows : int or None, default=None
        Approximate number of rows; None for many. It changes the speed, not the counts.

    Attributes
    ----------
    counted : tuple
        The sizes of the mapped columns, and the tables over them, for :class:`JointCounts`.

    Raises
    ------
    ValueError
        Groups that do not cover the categories.

    Notes
    -----
    For many rows, a column is mapped to the coarsest common refinement of its groups. Tables that
    would have too many cells, and all tables of few rows, are counted in their own groups.
    """

    def __init__(self, sizes, tables, groups, n_rows=None):
        self.n_rows = n_rows
        if groups is None:
            every = [np.arange(size) for size in sizes]
            groups = [tuple(every[j] for j in columns) for columns in tables]
        used = _distinct_groups(sizes, tables, groups)
        is_many = n_rows is None or n_rows >= MANY_ROWS
        finest = _common_refinements(sizes, used) if is_many else []
        self._maps: list = []
        self._results: list = []
        known: dict = {}
        counted: dict = {}
        for columns, own in zip(tables, groups, strict=True):
            maps = [used[j, id(g)] for j, g in zip(columns, own, strict=True)]
            last = []
            if is_many:
                fine = [finest[j] for j in columns]
                if _n_cells(fine) <= max(_FINE, _n_cells(maps)):
                    last = [_coarser(*pair) for pair in zip(fine, maps, strict=True)]
                    maps = fine
            mapped = [self._place(known, j, g) for j, g in zip(columns, maps, strict=True)]
            key = tuple(sorted(mapped))
            table = counted.setdefault(key, len(counted))
            self._results.append((table, tuple(map(key.index, mapped)), last))
        self.counted = [int(g.max()) + 1 for _, g in self._maps], list(counted)

    def _place(self, known, column, groups):
        """Return the index of a mapped column, a new one if it is not known."""
        if (column, id(groups)) not in known:
            # Maps of one dtype are equal if their bytes are.
            place = known.setdefault((column, groups.tobytes()), len(self._maps))
            known[column, id(groups)] = place
            if place == len(self._maps):
                small = groups.astype(np.min_scalar_type(int(groups.max())))
                self._maps.append((column, small))
        return known[column, id(groups)]

    def mapped(self, codes):
        """Map the categories of records to the cells of the mapped columns.

        Parameters
        ----------
        codes : sequence of ndarray of unsigned int of shape (n,)

        Returns
        -------
        list of ndarray of unsigned int of shape (n,)

        Raises
        ------
        IndexError
            Codes that are not categories.
        """
        return [
            codes[column] if _is_identity(groups) else groups[codes[column]]
            for column, groups in self._maps
        ]

    def tables(self, counts):
        """Return the grouped tables from the counted ones."""
        tables = []
        for i, axes, groups in self._results:
            table = counts[i].transpose(axes)
            for axis, own in enumerate(groups):
                table = _summed(table, axis, own)
            tables.append(table)
        return tables

    def is_like(self, other):
        """Return whether another layout counts the same cells."""
        if self.counted != other.counted or len(self._results) != len(other._results):
            return False
        return all(
            mine[0] == theirs[0] and np.array_equal(mine[1], theirs[1])
            for mine, theirs in zip(self._maps, other._maps, strict=True)
        )


def _distinct_groups(sizes, tables, groups):
    """Return the groups of each array of each column as int64, after checking them.

    Keys are the column and the identity of the array, since many tables have the same arrays.
    """
    pairs = zip(itertools.chain(*tables), itertools.chain(*groups), strict=True)
    used = {(column, id(g)): np.asarray(g) for column, g in pairs}
    for (column, _), g in used.items():
        is_map = g.shape == (sizes[column],) and g.dtype.kind in "iu"
        if not is_map or g.min() < 0:
            raise PublicValueError("groups must give each category of a column a group, from 0.")
    return {key: g.astype(np.int64, copy=False) for key, g in used.items()}


def _common_refinements(sizes, used):
    """Return the coarsest common refinement of all groups of each column."""
    refinements = [np.zeros(size, dtype=np.int64) for size in sizes]
    for (column, _), g in used.items():
        cells = refinements[column]
        if cells.max(initial=0) < len(cells) - 1:
            # Products stay below (number of cells) x (number of groups).
            cells = np.unique(cells * (int(g.max()) + 1) + g, return_inverse=True)[1]
            refinements[column] = cells
    return refinements


def _n_cells(maps):
    """Return the number of cells of a table with these maps."""
    return math.prod(int(groups.max()) + 1 for groups in maps)


def _is_identity(groups):
    """Return whether each category has a group of its own, in order."""
    return len(groups) == int(groups[-1]) + 1 and bool((groups == np.arange(len(groups))).all())


def _coarser(cells, groups):
    """Return the group of each cell."""
    group_of_cell = np.empty(int(cells.max()) + 1, dtype=np.int64)
    group_of_cell[cells] = groups
    return group_of_cell


def _summed(table, axis, groups):
    """Sum the entries of an axis by groups."""
    if _is_identity(groups):
        return table
    table = np.moveaxis(table, axis, 0)
    sums = np.zeros((int(groups.max()) + 1, *table.shape[1:]), dtype=table.dtype)
    np.add.at(sums, groups, table)
    return np.moveaxis(sums, 0, axis)


class CodeCounter:
    """Exact counts of encoded records in marginals.

    Parameters
    ----------
    layout : CountLayout
    n_persons : int, default=0
        Number of persons whose rows are counted too, if rows have weights.

    Attributes
    ----------
    n_rows : int
        Number of rows counted.
    rows_seen : ndarray of int64 of shape (n_persons,)
        Number of rows counted of each person.
    """

    def __init__(self, layout: CountLayout, n_persons: int = 0) -> None:
        self._layout = layout
        self._start(n_persons)

    def _start(self, n_persons):
        from sklearn_dpgen.tables._joint_counts import JointCounts

        self._counts = JointCounts(*self._layout.counted, self._layout.n_rows)
        self.n_rows, self.rows_seen = 0, np.zeros(n_persons, dtype=np.int64)

    def count_codes(self, codes: list[np.ndarray], weights: np.ndarray | None = None) -> Self:
        """Count records by their categories.

        Parameters
        ----------
        codes : list of ndarray of unsigned int of shape (n,)
            Categories in each column of the layout.
        weights : ndarray of int64 of shape (n,) or None, default=None
            Weights of the records; None for 1.

        Returns
        -------
        self
        """
        self._counts.add(self._layout.mapped(codes), weights)
        self.n_rows += len(codes[0])
        return self

    def fresh(self) -> Self:
        """Return an empty counter of the same tables."""
        other = copy.copy(self)
        other._start(len(self.rows_seen))
        return other

    def state(self) -> np.ndarray:
        """Return all counts as one vector of int64; vectors of disjoint records are additive."""
        return np.concatenate([[np.int64(self.n_rows)], self.rows_seen, self._counts.vector])

    def add_state(self, state: np.ndarray) -> Self:
        """Add the state of another counter of the same tables, or a sum of states."""
        stop = 1 + len(self.rows_seen)
        self.n_rows += int(state[0])
        self.rows_seen += state[1:stop]
        self._counts.vector += state[stop:]
        return self

    def tables(self) -> list[np.ndarray]:
        """Return the counts of each table, with one axis per column, as ndarrays of int64."""
        return self._layout.tables(self._counts.finish())


class TableCounter(CodeCounter):
    """Exact mergeable counts of records in one- to seven-way marginals.

    A record adds one, or its weight, to one cell of each table. Counts are integers, so counts of
    disjoint sets of records from several threads, processes or machines can be merged exactly in
    any order. Counts are not private: noise must be added before they are released.

    Parameters
    ----------
    encoder : TabularEncoder
        Fitted, with bins for all numbers and dates.
    tables : sequence of tuple of str
        The one to seven columns of each table, in the order of its axes.
    groups : sequence of tuple of ndarray of int or None, default=None
        For each table and each of its columns, the group of each category: its index along the
        axis, from 0. None for no groups.
    weights : RowWeights or None, default=None
        Weights of rows by person; None for 1.

    Attributes
    ----------
    n_rows : int
        Number of rows counted.

    Notes
    -----
    To m tables a record adds a vector of l2 norm √m, and replacing it changes them by at most
    √(2m). The counts of each part must be merged once: see :mod:`sklearn_dpgen.engines`.

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
            is_table = (
                isinstance(columns, tuple) and 1 <= len({*columns}) == len(columns) <= MAX_COLUMNS
            )
            if not is_table or not {*columns} <= {*names}:
                raise PublicValueError(
                    "tables must hold tuples of one to seven distinct columns of the encoder, got "
                    f"{columns!r}."
                )
        sizes = [column.n_categories for column in self._columns.values()]
        indices = [tuple(map(names.index, columns)) for columns in tables]
        self._coder = RecordCoder(self._columns)
        super().__init__(
            CountLayout(sizes, indices, groups), 0 if weights is None else weights.n_persons
        )

    def count(self, X: ArrayLike) -> Self:
        """Count the records of a table.

        Parameters
        ----------
        X : data frame, array-like, Arrow stream, files or other table
            A table as for :meth:`TableSampler.fit`, except those of dask, Spark and Ray.

        Returns
        -------
        self

        Raises
        ------
        ValueError
            Records that do not fit the schema. Earlier blocks of 65536 records are then counted,
            and their block is not.
        """
        for block in read_blocks(open_source(X, self.columns), self.names):
            self.count_block(block)
        return self

    @property
    def columns(self) -> dict[str, Column | None]:
        """The columns that are read, by name; None for that of the unit."""
        unit = {} if self._weights is None else {self._weights.unit: None}
        return self._columns | unit

    @property
    def names(self) -> list[str]:
        """Names of the columns that are read."""
        return list(self.columns)

    def count_block(self, block: "pd.DataFrame | pyarrow.RecordBatch") -> Self:
        """Count a block of records: a pandas or Arrow frame with the columns ``names``."""
        codes = self._coder.codes(block)
        if self._weights is None:
            return self.count_codes(codes)
        persons = self._weights.persons(block)
        np.add.at(self.rows_seen, persons, 1)
        return self.count_codes(codes, self._weights.values[persons])

    def merge(self, other: Self) -> Self:
        """Add the counts of another counter of the same tables.

        Parameters
        ----------
        other : TableCounter

        Returns
        -------
        self

        Raises
        ------
        ValueError
            A counter of other tables, or this counter, whose records would count twice.
        """
        if other is self or not isinstance(other, TableCounter) or not self._is_like(other):
            raise PublicValueError("other must be another counter of the same tables.")
        return self.add_state(other.state())

    def _is_like(self, other):
        """Return whether another counter has the same tables, columns and weights."""
        mine, theirs = self._weights, other._weights
        is_like = mine is theirs or (mine and theirs and mine.is_like(theirs))
        is_like = is_like and self._columns == other._columns
        return is_like and self._layout.is_like(other._layout)

    def finish(self) -> np.ndarray:
        """Return the counts of all tables, concatenated to one vector of int64."""
        return np.concatenate([table.ravel() for table in self.tables()])
