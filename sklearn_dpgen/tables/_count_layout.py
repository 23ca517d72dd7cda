"""What is counted so that tables in any groups of categories can be made of it."""

import math

import numpy as np

from sklearn_dpgen.exceptions import PublicValueError

__all__ = ["CountLayout"]

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
