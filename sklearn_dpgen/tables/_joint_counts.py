"""Exact counts of many marginals, computed from few joint tables for large data."""

import math
import sys
from functools import lru_cache
from itertools import combinations, pairwise

import numpy as np

from sklearn_dpgen.exceptions import PublicValueError
from sklearn_dpgen.tables._marginals import MAX_COLUMNS
from sklearn_dpgen.tables._table_counter import MANY_ROWS
from sklearn_dpgen.utils._threads import limit_new_libraries

__all__ = ["JointCoder", "JointCounts", "cover_tables"]

# Codes below this fit in 16 bits.
_SHORT = 1 << 16
# Bytes of a cache line.
_ALIGNMENT = 64
# From so many rows on, PyTorch saves more time than its import takes.
_MANY_FOR_TORCH = 1 << 25


class Codes:
    """Buffer of codes: an array of uint16 or int64, and a tensor that shares its memory.

    Parameters
    ----------
    n_rows : int
    is_short : bool
        Whether codes have 16 bits instead of 64.
    torch : module or None
        PyTorch, which counts in two thirds of the time, or None for no tensor.
    """

    def __init__(self, n_rows, is_short, torch):
        dtype = np.dtype(np.uint16 if is_short else np.int64)
        # On aligned memory, sums take half the time.
        memory = np.empty(n_rows * dtype.itemsize + _ALIGNMENT, dtype=np.uint8)
        start = -memory.ctypes.data % _ALIGNMENT
        self.array = memory[start : start + n_rows * dtype.itemsize].view(dtype)
        self.torch, self.tensor = torch, None
        if torch is not None:
            self.tensor = torch.from_numpy(self.array.view(np.int16) if is_short else self.array)
        self.is_short = is_short


def _loaded_torch(n_rows):
    """Return PyTorch if it is loaded, or worth a second to load for so many rows; else None.

    The counts are integers, and the same without it.
    """
    if n_rows is None or n_rows >= _MANY_FOR_TORCH:
        import torch

        limit_new_libraries()
        return torch
    found = sys.modules.get("torch")
    return found if hasattr(found, "bincount") else None


class JointCoder:
    """Cell indices of records in joint tables, with common prefixes computed once.

    Parameters
    ----------
    sizes : sequence of int
        The number of categories of each column.
    blocks : sequence of tuple of int
        The columns of each joint table, in row-major order.
    n_rows : int or None, default=None
        Approximate number of records; None for many.

    Attributes
    ----------
    columns : list of int
        The columns of all tables, ascending.
    """

    def __init__(self, sizes, blocks, n_rows=None):
        self._expected = n_rows
        self.columns = sorted({j for block in blocks for j in block})
        # Buffers of single columns come first, then those of joint codes.
        self._is_short = [sizes[j] <= _SHORT for j in self.columns]
        self._plan = []
        self._n_rows, self._buffers = None, []
        # Columns of one category do not change a code.
        paths: list[tuple[int, ...]] = [
            tuple(j for j in b if sizes[j] > 1) or b[:1] for b in blocks
        ]
        # The buffer and depth of the codes of each prefix.
        buffers: dict[tuple[int, ...], tuple[int, int]]
        buffers = {(j,): (i, 0) for i, j in enumerate(self.columns)}
        numbers: dict = {}
        for path, following in pairwise([*paths, ()]):
            steps, n_cells = [], sizes[path[0]]
            for k in range(1, len(path)):
                before, joint, size = path[:k], path[: k + 1], sizes[path[k]]
                n_cells *= size
                if joint in buffers:
                    continue
                source, depth = buffers[before]
                # Codes that are not needed again are overwritten to save cache.
                if k == 1 or before == following[:k]:
                    depth = k
                number = self._number(numbers, (depth, n_cells <= _SHORT))
                steps.append((source, buffers[path[k : k + 1]][0], number, size))
                buffers[joint] = number, depth
            self._plan.append((steps, buffers[path][0]))
            for joint in [p for p in buffers if len(p) > 1 and p != following[: len(p)]]:
                del buffers[joint]

    def _number(self, numbers, key):
        """Return the index of the buffer of a depth and width, a new one if needed."""
        if key not in numbers:
            numbers[key] = len(self._is_short)
            self._is_short.append(key[1])
        return numbers[key]

    def __getstate__(self):
        return self.__dict__ | {"_n_rows": None, "_buffers": []}

    def codes(self, columns):
        """Yield the codes of records in each joint table; each is valid until the next.

        Parameters
        ----------
        columns : list of ndarray of unsigned int of shape (n_rows,)
            Codes of each of :attr:`columns`, below their sizes.

        Yields
        ------
        Codes
        """
        self._allocate(len(columns[0]))
        buffers = self._buffers
        for codes, column in zip(buffers, columns, strict=False):
            np.copyto(codes.array, column)
        for steps, result in self._plan:
            for first, last, joint, size in steps:
                _join(buffers[first], buffers[last], size, buffers[joint])
            yield buffers[result]

    def _allocate(self, n_rows):
        if self._n_rows != n_rows:
            torch = _loaded_torch(self._expected)
            self._buffers = [Codes(n_rows, is_short, torch) for is_short in self._is_short]
            self._n_rows = n_rows


def _join(first, last, size, joint):
    """Write ``first * size + last`` to ``joint``, which may be ``first``."""
    if joint.is_short and joint.tensor is not None:
        # Arithmetic modulo 2^16 gives the right bits for signed numbers too.
        factor = size if size < _SHORT // 2 else size - _SHORT
        joint.torch.add(last.tensor, first.tensor, alpha=factor, out=joint.tensor)
    elif joint.is_short:
        np.multiply(first.array, np.uint16(size % _SHORT), out=joint.array)
        np.add(joint.array, last.array, out=joint.array)
    else:
        np.multiply(first.array, size, out=joint.array, dtype=np.int64)
        np.add(joint.array, last.array, out=joint.array)


# Records per chunk: codes fit in the L2 cache, and PyTorch starts no threads for so few numbers.
_ROWS = 1 << 15
# Weights below this do not overflow in sums over fewer than 2**36 records.
_HEAVIEST = 1 << 27
# Cells of a joint table, whose counts fit in the L1 cache, and the most cells of all joint tables
# beyond those of the tables themselves (32 MiB).
_JOINT_CELLS, _EXTRA_CELLS = 1 << 13, 1 << 22


class JointCounts:
    """Exact counts of records in the cells of one- to seven-way marginals.

    Parameters
    ----------
    sizes : sequence of int
        The number of categories of each column, at least 1.
    tables : sequence of tuple of int
        The columns of each table: one to seven distinct ones, ascending.
    n_rows : int or None, default=None
        Approximate number of records; None for many. It changes the speed, not the counts.

    Attributes
    ----------
    blocks : tuple of tuple of int
        The columns of the joint tables that are counted, determined by the parameters.
    vector : ndarray of int64
        The counts in all their cells. Vectors of disjoint sets of records add up to that of all
        records.

    Raises
    ------
    ValueError
        Sizes below 1, or tables of unknown columns.

    Notes
    -----
    A record adds its weight to one cell of each table. A counter is not thread-safe; counters of
    several threads are merged.

    The time is dominated by one increment for each table and record. For many records, several
    tables are therefore counted as one joint table that fits in the L1 cache, of which they are
    marginal sums. Batches of tens of thousands of records are best, since a call costs about 10
    microseconds for each joint table.
    """

    def __init__(self, sizes, tables, n_rows=None):
        self.sizes = tuple(int(size) for size in sizes)
        self.tables = tuple(tuple(int(j) for j in table) for table in tables)
        _check_tables(self.sizes, self.tables)
        self._holders = {table: table for table in self.tables}
        if n_rows is None or n_rows >= MANY_ROWS:
            self._holders = cover_tables(self.sizes, self.tables)
        # Sorted tables share the codes of their common prefixes.
        self.blocks = tuple(sorted({*self._holders.values()}))
        stops = np.cumsum([0, *(math.prod(self._shape(block)) for block in self.blocks)]).tolist()
        self.vector = np.zeros(stops[-1], dtype=np.int64)
        self._spans = list(pairwise(stops))
        self._coder = JointCoder(self.sizes, self.blocks, n_rows)
        self._scratch = None

    def __getstate__(self):
        return self.__dict__ | {"_scratch": None}

    def add(self, codes, weights=None):
        """Count records.

        Parameters
        ----------
        codes : sequence of ndarray of unsigned int of shape (n,)
            The category of each record in each column; columns in no table are ignored.
        weights : ndarray of int of shape (n,) or None, default=None
            Weights of the records, from 0 to below 2**27; None for 1.

        Returns
        -------
        self

        Raises
        ------
        ValueError
            Codes that are not below the size of their column, arrays of wrong shape or dtype, or
            weights outside this range. Then nothing is counted.
        """
        columns = _check_codes(codes, self.sizes, self._coder.columns)
        n_rows = len(columns[0]) if columns else 0
        if weights is not None and columns:
            _check_weights(weights, n_rows)
        # Chunks have equal lengths, since a short chunk takes nearly as long as a full one.
        bounds = np.linspace(0, n_rows, -(-n_rows // _ROWS) + 1).astype(np.int64).tolist()
        for start, stop in pairwise(bounds):
            self._add_rows(
                [column[start:stop] for column in columns],
                None if weights is None else weights[start:stop],
            )
        return self

    def finish(self):
        """Return the counts of each table, with one axis per column, as ndarrays of int64."""
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
                if codes.tensor is None:
                    total += np.bincount(codes.array, minlength=n_cells)
                else:
                    total += codes.torch.bincount(codes.tensor, minlength=n_cells).numpy()
            else:
                adder = adder or self._adder_of(n_rows, weights, codes.torch)
                adder(codes.array, total)

    def _adder_of(self, n_rows, weights, torch):
        if self._scratch is None or len(self._scratch[0].array) != n_rows:
            self._scratch = tuple(Codes(n_rows, is_short=False, torch=torch) for _ in range(2))
        index, added = self._scratch
        added.array[:] = 1 if weights is None else weights

        def add(codes, total):
            # Integers are added in place, so that large tables are not allocated for each chunk.
            np.copyto(index.array, codes)
            if index.tensor is None:
                np.add.at(total, index.array, added.array)
            else:
                torch.from_numpy(total).scatter_add_(0, index.tensor, added.tensor)

        return add


@lru_cache(maxsize=32)
def cover_tables(sizes, tables):
    """Assign each table to a joint table of which it is a marginal sum.

    Parameters
    ----------
    sizes : tuple of int
        The number of categories of each column.
    tables : tuple of tuple of int
        One to seven distinct columns each, ascending.

    Returns
    -------
    dict of tuple of int to tuple of int
        For each table the columns of its joint table, ascending. They are determined by the
        arguments alone, so that counts of several workers add up.

    Notes
    -----
    The algorithm is greedy. The largest unassigned table starts a joint table, which grows by the
    column that completes the most tables per bit of the code, up to a number of cells.
    """
    n_cells = {table: math.prod(sizes[j] for j in table) for table in tables}
    lengths = sorted({len(table) for table in tables})
    digits = [max(1, (size - 1).bit_length()) for size in sizes]
    room, holders = _EXTRA_CELLS, {}
    # The unassigned tables of each column.
    waiting: list[set] = [{t for t in n_cells if j in t} for j in range(len(sizes))]
    for table in sorted(n_cells, key=lambda t: (-n_cells[t], t)):
        if table in holders:
            continue
        most = max(n_cells[table], min(_JOINT_CELLS, n_cells[table] + room))
        columns, cells, following = set(), 1, list(table)
        # The number of tables that each further column completes.
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
        for held in (t for k in lengths for t in combinations(block, k)):
            if held in n_cells and held not in holders:
                holders[held] = block
                for j in held:
                    waiting[j].remove(held)
    return holders


def _check_tables(sizes, tables):
    """Raise ValueError for sizes or tables that cannot be counted."""
    if any(size < 1 for size in sizes):
        raise PublicValueError("sizes must be at least 1.")
    for table in tables:
        is_known = all(0 <= j < len(sizes) for j in table)
        if not is_known or not 1 <= len(table) <= MAX_COLUMNS or list(table) != sorted({*table}):
            raise PublicValueError(
                f"tables must hold one to seven distinct columns, ascending, got {table}."
            )


def _check_codes(codes, sizes, used):
    """Return the columns that are used, after checking their codes."""
    columns = [codes[j] for j in used]
    for j, column in zip(used, columns, strict=True):
        if not isinstance(column, np.ndarray) or column.dtype.kind != "u" or column.ndim != 1:
            raise PublicValueError(f"codes of column {j} must be an array of unsigned integers.")
        if len(column) != len(columns[0]):
            raise PublicValueError(f"codes of column {j} must be as many as in other columns.")
        if len(column) and column.max() >= sizes[j]:
            raise PublicValueError(f"codes of column {j} must be below {sizes[j]}.")
    return columns


def _check_weights(weights, n_rows):
    """Raise ValueError for weights that cannot be counted."""
    if not isinstance(weights, np.ndarray) or weights.dtype.kind not in "iu":
        raise PublicValueError("weights must be an array of integers.")
    if weights.shape != (n_rows,):
        raise PublicValueError("weights must be one per record.")
    if n_rows and not 0 <= weights.min() <= weights.max() < _HEAVIEST:
        raise PublicValueError(f"weights must be from 0 to below {_HEAVIEST}.")
