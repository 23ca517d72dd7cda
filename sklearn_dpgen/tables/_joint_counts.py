"""Exact counts of many small tables, which are grouped into few joint ones for many records."""

import math
from functools import lru_cache
from itertools import combinations, pairwise

import numpy as np
import torch

from sklearn_dpgen.exceptions import PublicValueError
from sklearn_dpgen.tables._joint_codes import Codes, JointCoder

__all__ = ["JointCounts", "cover_tables"]

# Records at a time: their codes stay in the second cache, and PyTorch starts threads of its own
# for more numbers than these.
_ROWS = 1 << 15
# Sums over fewer than 2**36 records of lighter weights do not overflow.
_HEAVIEST = 1 << 27
# For fewer records, counting table by table takes no more time than planning joint tables.
_MANY = 1 << 16
# Cells of a joint table, whose counts then stay in the first cache, and the cells that all joint
# tables may have beyond those of the tables themselves: 32 MiB.
_JOINT_CELLS, _EXTRA_CELLS = 1 << 13, 1 << 22


class JointCounts:
    """Exact counts of records in the cells of tables of few columns.

    Parameters
    ----------
    sizes : sequence of int
        The number of categories of each column, at least 1.
    tables : sequence of tuple of int
        The columns of each table: one to three distinct ones, ascending.
    n_rows : int or None, default=None
        About how many records will be counted; None for many. The tables that are returned do not
        depend on it.

    Attributes
    ----------
    blocks : tuple of tuple of int
        The columns of the joint tables that are counted: a function of the parameters.
    vector : ndarray of int64
        The counts in all cells of these. Vectors of disjoint sets of records add up to that of
        all records, in any order.

    Raises
    ------
    ValueError
        Sizes below 1, or tables of other columns.

    Notes
    -----
    A record adds its weight to one cell of each table asked for, and to nothing else. One counter
    serves one thread at a time; counters of several threads are merged.

    Most of the time of counting is that of incrementing, for each table and record. Where there
    are many records, several tables are therefore counted as one over all their columns, as long
    as its cells stay in the first cache, and are sums of it in the end. Batches of tens of
    thousands of records are best: a call takes some 10 microseconds for each joint table, however
    few there are.
    """

    def __init__(self, sizes, tables, n_rows=None):
        self.sizes = tuple(int(size) for size in sizes)
        self.tables = tuple(tuple(int(j) for j in table) for table in tables)
        _check_tables(self.sizes, self.tables)
        self._holders = {table: table for table in self.tables}
        if n_rows is None or n_rows >= _MANY:
            self._holders = cover_tables(self.sizes, self.tables)
        # Neighbours begin with the same columns, and share their codes.
        self.blocks = tuple(sorted({*self._holders.values()}))
        stops = np.cumsum([0, *(math.prod(self._shape(block)) for block in self.blocks)]).tolist()
        self.vector = np.zeros(stops[-1], dtype=np.int64)
        self._spans = list(pairwise(stops))
        self._coder = JointCoder(self.sizes, self.blocks)
        self._scratch = None

    def __getstate__(self):
        return self.__dict__ | {"_scratch": None}

    def add(self, codes, weights=None):
        """Count records.

        Parameters
        ----------
        codes : sequence of ndarray of unsigned int of shape (n,)
            The category of each record in each column; of columns in no table whatever.
        weights : ndarray of int of shape (n,) or None, default=None
            What each record adds in place of one: from 0 to below 2**27.

        Returns
        -------
        self

        Raises
        ------
        ValueError
            Codes that are no category of their column, arrays of other shapes or dtypes, or
            weights outside of this range. Nothing is counted then.
        """
        columns = _check_codes(codes, self.sizes, self._coder.columns)
        n_rows = len(columns[0]) if columns else 0
        if weights is not None and columns:
            _check_weights(weights, n_rows)
        # Parts of one length: a short one takes nearly as long.
        bounds = np.linspace(0, n_rows, -(-n_rows // _ROWS) + 1).astype(np.int64).tolist()
        for start, stop in pairwise(bounds):
            self._add_rows(
                [column[start:stop] for column in columns],
                None if weights is None else weights[start:stop],
            )
        return self

    def merge(self, other):
        """Add the counts of another counter of the same tables.

        Parameters
        ----------
        other : JointCounts

        Returns
        -------
        self

        Raises
        ------
        ValueError
            Other sizes or tables.
        """
        if (self.sizes, self.blocks) != (other.sizes, other.blocks):
            raise PublicValueError("Only counters of the same tables can be merged.")
        self.vector += other.vector
        return self

    def finish(self):
        """Return the tables.

        Returns
        -------
        list of ndarray of int64
            Of each table, an axis a column.
        """
        counts = {
            block: self.vector[start:stop].reshape(self._shape(block))
            for block, (start, stop) in zip(self.blocks, self._spans, strict=True)
        }
        return [self._table(counts, table) for table in self.tables]

    def _table(self, counts, table):
        block = self._holders[table]
        return counts[block].sum(axis=tuple(k for k, j in enumerate(block) if j not in table))

    def _shape(self, columns):
        return tuple(self.sizes[j] for j in columns)

    def _add_rows(self, columns, weights):
        n_rows = len(columns[0])
        adder = None
        for codes, (start, stop) in zip(self._coder.codes(columns), self._spans, strict=True):
            n_cells, total = stop - start, self.vector[start:stop]
            if weights is None and 2 * n_cells <= n_rows:
                total += torch.bincount(codes.tensor, minlength=n_cells).numpy()
            else:
                adder = adder or self._adder_of(n_rows, weights)
                adder(codes.array, total)

    def _adder_of(self, n_rows, weights):
        if self._scratch is None or len(self._scratch[0].array) != n_rows:
            self._scratch = tuple(Codes(n_rows, is_short=False) for _ in range(2))
        index, added = self._scratch
        added.array[:] = 1 if weights is None else weights

        def add(codes, total):
            # In integers, and in place: a table of many cells is not filled anew for each part.
            np.copyto(index.array, codes)
            torch.from_numpy(total).scatter_add_(0, index.tensor, added.tensor)

        return add


@lru_cache(maxsize=32)
def cover_tables(sizes, tables):
    """Return a joint table that holds each of many tables: they are sums of it.

    Parameters
    ----------
    sizes : tuple of int
        The number of categories of each column.
    tables : tuple of tuple of int
        One to three distinct columns each, ascending.

    Returns
    -------
    dict of tuple of int to tuple of int
        For each table the columns of its joint table, ascending. A function of the arguments alone,
        so that counts of several workers add up.

    Notes
    -----
    Greedy: the largest table without a joint one begins the next. This grows by the column that
    completes most tables for the digits that it adds to a code, until its cells are too many.
    """
    n_cells = {table: math.prod(sizes[j] for j in table) for table in tables}
    digits = [max(1, (size - 1).bit_length()) for size in sizes]
    room, holders = _EXTRA_CELLS, {}
    # Of each column, the tables without a joint one.
    waiting: list[set] = [{t for t in n_cells if j in t} for j in range(len(sizes))]
    for table in sorted(n_cells, key=lambda t: (-n_cells[t], t)):
        if table in holders:
            continue
        most = max(n_cells[table], min(_JOINT_CELLS, n_cells[table] + room))
        columns, cells, following = set(), 1, list(table)
        # How many tables each further column completes.
        gains: dict[int, int] = {}
        while following:
            column = following.pop()
            columns.add(column)
            cells *= sizes[column]
            gains.pop(column, None)
            for other in waiting[column]:
                missing = [j for j in other if j not in columns]
                if len(missing) == 1:
                    gains[missing[0]] = gains.get(missing[0], 0) + 1
            fits = [j for j in gains if cells * sizes[j] <= most]
            if fits and not following:
                following = [max(fits, key=lambda j: (gains[j] / digits[j], -j))]
        room -= cells - n_cells[table]
        block = tuple(sorted(columns))
        for held in (t for k in (1, 2, 3) for t in combinations(block, k)):
            if held in n_cells and held not in holders:
                holders[held] = block
                for j in held:
                    waiting[j].remove(held)
    return holders


def _check_tables(sizes, tables):
    if any(size < 1 for size in sizes):
        raise PublicValueError("sizes must be at least 1.")
    for table in tables:
        is_known = all(0 <= j < len(sizes) for j in table)
        if not is_known or not 1 <= len(table) <= 3 or list(table) != sorted({*table}):
            raise PublicValueError(
                f"tables must hold one to three distinct columns, ascending: {table}."
            )


def _check_codes(codes, sizes, used):
    """Return the columns that are used, once they hold categories alone."""
    columns = [codes[j] for j in used]
    for j, column in zip(used, columns, strict=True):
        if not isinstance(column, np.ndarray) or column.dtype.kind != "u" or column.ndim != 1:
            raise PublicValueError(f"codes of column {j} must be an array of unsigned integers.")
        if len(column) != len(columns[0]):
            raise PublicValueError(f"codes of column {j} must be as many as those of the others.")
        if len(column) and column.max() >= sizes[j]:
            raise PublicValueError(f"codes of column {j} must be below {sizes[j]}.")
    return columns


def _check_weights(weights, n_rows):
    if not isinstance(weights, np.ndarray) or weights.dtype.kind not in "iu":
        raise PublicValueError("weights must be an array of integers.")
    if weights.shape != (n_rows,):
        raise PublicValueError("weights must be one a record.")
    if n_rows and not 0 <= weights.min() <= weights.max() < _HEAVIEST:
        raise PublicValueError(f"weights must be from 0 to below {_HEAVIEST}.")
