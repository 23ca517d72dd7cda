"""Exact counts of many small tables, made of few larger ones."""

import math
from itertools import pairwise

import numpy as np
import torch

from sklearn_dpgen.tables._joint_codes import Codes, JointCoder
from sklearn_dpgen.tables._joint_cover import cover_tables

__all__ = ["JointCounts"]

# Records at a time: their codes stay in the second cache, and PyTorch starts threads of its own
# for more numbers than these.
_ROWS = 1 << 15
# Sums over fewer than 2**36 records of lighter weights do not overflow.
_HEAVIEST = 1 << 27


class JointCounts:
    """Exact counts of records in the cells of tables of few columns.

    Parameters
    ----------
    sizes : sequence of int
        The number of categories of each column, at least 1.
    tables : sequence of tuple of int
        The columns of each table: one to three distinct ones, ascending.

    Attributes
    ----------
    blocks : tuple of tuple of int
        The columns of the joint tables that are counted: a function of ``sizes`` and ``tables``.
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

    Most of the time of counting is that of incrementing, for each table and record. Several
    tables are therefore counted as one over all their columns, as long as its cells stay in the
    second cache, and are sums of it in the end. Batches of tens of thousands of records are best:
    a call takes some 10 microseconds for each joint table, however few there are.
    """

    def __init__(self, sizes, tables):
        self.sizes = tuple(int(size) for size in sizes)
        self.tables = tuple(tuple(int(j) for j in table) for table in tables)
        _check_tables(self.sizes, self.tables)
        self.blocks = cover_tables(self.sizes, self.tables)
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
            raise ValueError("Only counters of the same tables can be merged.")
        self.vector += other.vector
        return self

    def finish(self):
        """Return the tables.

        Returns
        -------
        list of ndarray of int64
            Of each table, an axis a column.
        """
        counts = [
            self.vector[start:stop].reshape(self._shape(block))
            for block, (start, stop) in zip(self.blocks, self._spans, strict=True)
        ]
        return [self._table(counts, table) for table in self.tables]

    def _table(self, counts, table):
        holders = [i for i, block in enumerate(self.blocks) if {*table} <= {*block}]
        place = min(holders, key=lambda i: counts[i].size)
        others = tuple(k for k, j in enumerate(self.blocks[place]) if j not in table)
        return counts[place].sum(axis=others)

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


def _check_tables(sizes, tables):
    if any(size < 1 for size in sizes):
        raise ValueError("sizes must be at least 1.")
    for table in tables:
        is_known = all(0 <= j < len(sizes) for j in table)
        if not is_known or not 1 <= len(table) <= 3 or list(table) != sorted({*table}):
            raise ValueError(f"tables must hold one to three distinct columns, ascending: {table}.")


def _check_codes(codes, sizes, used):
    """Return the columns that are used, once they hold categories alone."""
    columns = [codes[j] for j in used]
    for j, column in zip(used, columns, strict=True):
        if not isinstance(column, np.ndarray) or column.dtype.kind != "u" or column.ndim != 1:
            raise ValueError(f"codes of column {j} must be an array of unsigned integers.")
        if len(column) != len(columns[0]):
            raise ValueError(f"codes of column {j} must be as many as those of the others.")
        if len(column) and column.max() >= sizes[j]:
            raise ValueError(f"codes of column {j} must be below {sizes[j]}.")
    return columns


def _check_weights(weights, n_rows):
    if not isinstance(weights, np.ndarray) or weights.dtype.kind not in "iu":
        raise ValueError("weights must be an array of integers.")
    if weights.shape != (n_rows,):
        raise ValueError("weights must be one a record.")
    if n_rows and not 0 <= weights.min() <= weights.max() < _HEAVIEST:
        raise ValueError(f"weights must be from 0 to below {_HEAVIEST}.")
