"""Exact counts of many small tables, which are grouped into few joint ones for many records."""

import math
from functools import lru_cache
from itertools import combinations, pairwise

import numpy as np
import torch

from sklearn_dpgen.exceptions import PublicValueError

__all__ = ["JointCoder", "JointCounts", "cover_tables"]

# Codes below it fit in 16 bits.
_SHORT = 1 << 16


class Codes:
    """Codes of records, as an array of unsigned or long integers and a tensor of the same bits.

    Parameters
    ----------
    n_rows : int
    is_short : bool
        Whether in 16 bits instead of 64.
    """

    def __init__(self, n_rows, is_short):
        # PyTorch aligns what it allocates: sums take half the time.
        dtype = torch.int16 if is_short else torch.int64
        self.tensor = torch.empty(n_rows, dtype=dtype, device="cpu")
        self.array = self.tensor.numpy().view(np.uint16 if is_short else np.int64)
        self.is_short = is_short


class JointCoder:
    """Codes of records in joint tables: neighbours that begin with the same columns share them.

    Parameters
    ----------
    sizes : sequence of int
        The number of categories of each column.
    blocks : sequence of tuple of int
        The columns of each joint table, the last one running fastest.

    Attributes
    ----------
    columns : list of int
        Those of any table, ascending.
    """

    def __init__(self, sizes, blocks):
        self.columns = sorted({j for block in blocks for j in block})
        # Buffers are numbered: first those of single columns, then those of joint codes.
        self._is_short = [sizes[j] <= _SHORT for j in self.columns]
        self._plan = []
        self._n_rows, self._buffers = None, []
        # A column of one category adds nothing to a code.
        paths: list[tuple[int, ...]] = [
            tuple(j for j in b if sizes[j] > 1) or b[:1] for b in blocks
        ]
        # Where the codes of the columns so far are, and at what depth joint ones were written.
        places: dict[tuple[int, ...], tuple[int, int]]
        places = {(j,): (i, 0) for i, j in enumerate(self.columns)}
        numbers: dict = {}
        for path, following in pairwise([*paths, ()]):
            steps, n_cells = [], sizes[path[0]]
            for k in range(1, len(path)):
                before, joint, size = path[:k], path[: k + 1], sizes[path[k]]
                n_cells *= size
                if joint in places:
                    continue
                place, depth = places[before]
                # In place, where nobody asks again: fewer buffers stay in the cache.
                if k == 1 or before == following[:k]:
                    depth = k
                number = self._number(numbers, (depth, n_cells <= _SHORT))
                steps.append((place, places[path[k : k + 1]][0], number, size))
                places[joint] = number, depth
            self._plan.append((steps, places[path][0]))
            for joint in [p for p in places if len(p) > 1 and p != following[: len(p)]]:
                del places[joint]

    def _number(self, numbers, key):
        if key not in numbers:
            numbers[key] = len(self._is_short)
            self._is_short.append(key[1])
        return numbers[key]

    def __getstate__(self):
        return self.__dict__ | {"_n_rows": None, "_buffers": []}

    def codes(self, columns):
        """Yield the codes of records in each joint table, to be used before the next.

        Parameters
        ----------
        columns : list of ndarray of unsigned int of shape (n_rows,)
            Codes below the sizes, of each of :attr:`columns`.

        Yields
        ------
        Codes
        """
        self._allocate(len(columns[0]))
        buffers = self._buffers
        for codes, column in zip(buffers, columns, strict=False):
            np.copyto(codes.array, column)
        for steps, place in self._plan:
            for first, last, joint, size in steps:
                _join(buffers[first], buffers[last], size, buffers[joint])
            yield buffers[place]

    def _allocate(self, n_rows):
        if self._n_rows != n_rows:
            self._buffers = [Codes(n_rows, is_short) for is_short in self._is_short]
            self._n_rows = n_rows


def _join(first, last, size, joint):
    """Write ``first * size + last``, which fits; to a buffer that ``first`` may be."""
    if joint.is_short:
        # In 16 bits, whatever their sign.
        factor = size if size < _SHORT // 2 else size - _SHORT
        torch.add(last.tensor, first.tensor, alpha=factor, out=joint.tensor)
    else:
        np.multiply(first.array, size, out=joint.array, dtype=np.int64)
        np.add(joint.array, last.array, out=joint.array)


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
