"""Marginals of tables of categories: which there are, their weights, and their counts."""

import math
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np

from sklearn_dpgen.exceptions import PublicValueError
from sklearn_dpgen.schema import Numeric, Ordinal
from sklearn_dpgen.schema._binned import Binned
from sklearn_dpgen.utils._validation import Real

__all__ = [
    "MAX_BLOCKS",
    "ColumnBlocks",
    "Marginal",
    "all_pairs",
    "balanced_shape",
    "check_memory",
    "expand_marginals",
    "group_categories",
    "group_sums",
    "marginal_counts",
    "marginal_weight",
    "target_columns",
]

# Groups of a column at most: more is not told apart by tables of two columns.
MAX_BLOCKS = 96


def group_categories(shares, n_groups, *, is_ordered, edge=0):
    """Group the categories of a column so that groups have about equal shares.

    Parameters
    ----------
    shares : ndarray of shape (n,)
        Not negative, of sum 1.
    n_groups : int
        At least 1.
    is_ordered : bool
        Whether groups are to be of neighbours. Of others, those with more than an even share have
        groups of their own, and the rest is grouped as listed.
    edge : int, default=0
        Of an ordered column, a category that a group begins with, such as zero among numbers of
        both signs; 0 for none.

    Returns
    -------
    ndarray of int of shape (n,)
        From 0, at most ``n_groups`` of them.
    """
    n_groups = min(n_groups, len(shares))
    if n_groups == len(shares):
        return np.arange(len(shares))
    if is_ordered and edge and n_groups > 1:
        below = n_groups * shares[:edge].sum() / shares.sum()
        # No group of its own for a side with hardly a record.
        if 0.25 < below < n_groups - 0.25:
            n_below = int(np.clip(np.rint(below), 1, n_groups - 1))
            first, second = _cut(shares[:edge], n_below), _cut(shares[edge:], n_groups - n_below)
            return np.append(first, second + first[-1] + 1)
    if is_ordered:
        return _cut(shares, n_groups)
    order = np.argsort(-shares, kind="stable")
    n_heavy, left = 0, shares.sum()
    while n_heavy < n_groups - 1 and shares[order[n_heavy]] * (n_groups - n_heavy) >= left:
        left -= shares[order[n_heavy]]
        n_heavy += 1
    groups = np.empty(len(shares), dtype=np.int64)
    groups[order[:n_heavy]] = np.arange(n_heavy)
    rest = np.sort(order[n_heavy:])
    groups[rest] = n_heavy + _cut(shares[rest], n_groups - n_heavy)
    return groups


def _cut(shares, n_groups):
    """Return the groups of neighbours: each ends where it comes nearest to an even share."""
    groups, group, held, left = np.empty(len(shares), dtype=np.int64), 0, 0.0, shares.sum()
    for i, share in enumerate(shares.tolist()):
        even = left / (n_groups - group)
        if i and group < n_groups - 1 and (held + share / 2 > even or share >= even > 0):
            left -= held
            group, held = group + 1, 0.0
        groups[i] = group
        held += share
    return groups


def group_sums(shares, groups):
    """Return the sums of the groups."""
    return np.bincount(groups, weights=shares)


def balanced_shape(sizes, n_cells):
    """Return how many groups of each column make a table of at most so many cells, or of two each.

    Parameters
    ----------
    sizes : sequence of int
        Categories of each column.
    n_cells : float

    Returns
    -------
    tuple of int
        Small columns are kept whole, and the others share alike in what is left.
    """
    shape, left, n_left = {}, max(float(n_cells), 1.0), len(sizes)
    for column in sorted(range(len(sizes)), key=lambda i: sizes[i]):
        even = max(2, math.floor(left ** (1 / n_left) + 1e-9))
        shape[column] = min(int(sizes[column]), even)
        left, n_left = left / shape[column], n_left - 1
    return tuple(shape[column] for column in range(len(sizes)))


# Records that are counted at a time: what is held beside the counts is small.
_BLOCK = 1 << 16
_MEMORY = 1 << 30
# Products of three weights, and their squares, must stay finite and above zero.
_LIGHTEST = 1e-6
# On the unit scale.
_ROUNDING = 1e-9


@dataclass(frozen=True, eq=False)
class Marginal:
    """A table to count.

    Parameters
    ----------
    columns : tuple of int
        Ascending.
    groups : tuple of ndarray of int
        For each column the group of each of its blocks: an entry of the axis.
    """

    columns: tuple[int, ...]
    groups: tuple[np.ndarray, ...]

    @property
    def shape(self):
        """The number of groups of each column."""
        return tuple(int(groups.max()) + 1 for groups in self.groups)

    @property
    def n_cells(self):
        """The number of cells."""
        return math.prod(self.shape)


class ColumnBlocks:
    """The categories of columns in blocks, which tables group further: post-processing.

    Parameters
    ----------
    shares : list of ndarray
        Estimates of the shares of the categories of each column.
    is_ordered : sequence of bool
        Whether blocks are of neighbours, of each column.
    n_nulls : sequence of int
        Whether the last category is null, which has a block of its own.
    edges : sequence of int
        The category that begins at zero, among numbers of both signs; else 0.
    """

    def __init__(self, shares, is_ordered, n_nulls, edges):
        self._is_ordered, self._n_nulls, self._edges = is_ordered, n_nulls, list(edges)
        self._groups = {}
        self.blocks = [
            self._group(j, part, min(len(part), MAX_BLOCKS)) for j, part in enumerate(shares)
        ]
        self._shares = [group_sums(s, b) for s, b in zip(shares, self.blocks, strict=True)]
        self.sizes = [len(part) for part in self._shares]
        self._edges = [part[edge] for part, edge in zip(self.blocks, self._edges, strict=True)]

    @classmethod
    def of(cls, encoder, shares):
        """Return the blocks of the columns of a fitted encoder."""
        columns = encoder.columns_.values()
        is_ordered = [isinstance(column, Binned | Ordinal) for column in columns]
        edges = [_zero_edge(column) for column in columns]
        return cls(shares, is_ordered, [column.nullable for column in columns], edges)

    def marginal(self, columns, n_cells):
        """Return the marginal of some columns in at most so many cells, or in two groups each."""
        shape = balanced_shape([self.sizes[j] for j in columns], n_cells)
        groups = (self._groups_of(j, k) for j, k in zip(columns, shape, strict=True))
        return Marginal(tuple(columns), tuple(groups))

    def frequencies(self, part):
        """Return how often each cosine of an axis of a marginal turns, of each axis.

        0 of the constant. Where groups are in no order there is no slow and no fast: 1 of others.
        """
        most = [
            size if self._is_ordered[j] else 1
            for j, size in zip(part.columns, part.shape, strict=True)
        ]
        return tuple(np.minimum(np.arange(n), m) for n, m in zip(part.shape, most, strict=True))

    def _groups_of(self, column, n_groups):
        key = column, n_groups
        if key not in self._groups:
            self._groups[key] = self._group(column, self._shares[column], n_groups)
        return self._groups[key]

    def _group(self, column, shares, n_groups):
        null, n_values = self._n_nulls[column], len(shares) - self._n_nulls[column]
        options = {"is_ordered": self._is_ordered[column], "edge": int(self._edges[column])}
        if not null or n_groups < 3 or n_groups >= len(shares):
            return group_categories(shares, n_groups, **options)
        groups = group_categories(shares[:n_values], n_groups - 1, **options)
        return np.append(groups, groups.max() + 1)


def _zero_edge(column):
    """Return the bin that begins at zero inside of the bounds, or 0."""
    if not isinstance(column, Binned) or not isinstance(column.column, Numeric):
        return 0
    places = np.abs(np.array(column.edges) - column.column.to_unit(0.0)) < _ROUNDING
    return int(np.argmax(places[:-1]))


def expand_marginals(marginals, names, constants=()):
    """Return the marginals to count beside single columns: their columns, ascending.

    Parameters
    ----------
    marginals : "auto", "pairs" or sequence of tuple of str
    names : list of str
        Of all columns.
    constants : collection of int, default=()
        Columns of one category: a table with one says what it says without.

    Returns
    -------
    str or list of tuple of int
        A string as given.

    Raises
    ------
    ValueError
        A marginal twice, of other than one to three distinct columns, or of unknown ones; "pairs"
        of a single column.
    """
    if isinstance(marginals, str):
        if marginals == "pairs" and len(names) < 2:
            raise PublicValueError("marginals='pairs' needs a schema of at least two columns.")
        return marginals
    wanted = {}
    for columns in marginals:
        if not isinstance(columns, tuple) or not 1 <= len(columns) <= 3:
            raise PublicValueError(
                f"marginals must hold tuples of one to three columns, got {columns!r}."
            )
        unknown = [name for name in columns if name not in names]
        if unknown:
            raise PublicValueError(f"marginals name columns that the schema does not: {unknown}.")
        if frozenset(columns) in wanted or len({*columns}) < len(columns):
            raise PublicValueError(f"marginals must be distinct, and so their columns: {columns}.")
        places = sorted(map(names.index, columns))
        wanted[frozenset(columns)] = tuple(j for j in places if j not in constants)
    return [columns for columns in dict.fromkeys(wanted.values()) if len(columns) > 1]


def target_columns(target, names):
    """Return the places of the targets.

    Raises
    ------
    ValueError
        Names that are no columns, or one twice.
    """
    wanted = [target] if isinstance(target, str) else list(target or ())
    unknown = [name for name in wanted if name not in names]
    if unknown:
        raise PublicValueError(f"target names columns that the schema does not: {unknown}.")
    if len({*wanted}) < len(wanted):
        raise PublicValueError(f"target must name distinct columns: {wanted}.")
    return [names.index(name) for name in wanted]


def marginal_weight(names, workload):
    """Return the public weight of marginals, a function of their columns.

    Parameters
    ----------
    names : list of str
        Of all columns.
    workload : mapping or None
        Weights of columns, and of tuples of two or three, from 1e-6 to 1e6. A marginal has that of
        its tuple, or the product of those of its columns; 1 where not named.

    Returns
    -------
    callable
        From a tuple of int to a positive number.

    Raises
    ------
    ValueError
        Weights outside of this range, or of what is no column and no marginal.
    """
    given = {}
    for key, weight in (workload or {}).items():
        columns = frozenset(key if isinstance(key, tuple) else [key])
        if not columns <= {*names} or not 1 <= len(columns) <= 3:
            raise PublicValueError(
                f"workload must name columns of the schema, one to three: {key!r}."
            )
        columns = frozenset(names.index(name) for name in columns)
        if columns in given:
            raise PublicValueError(f"workload must name columns of the schema, each once: {key!r}.")
        is_real = isinstance(weight, Real) and not isinstance(weight, bool)
        if not is_real or not _LIGHTEST <= weight <= 1 / _LIGHTEST:
            raise PublicValueError(
                f"workload must hold positive numbers, from 1e-6 to 1e6, not that of {key!r}."
            )
        given[columns] = float(weight)

    def weight_of(columns):
        product = math.prod(given.get(frozenset([j]), 1.0) for j in columns)
        return given.get(frozenset(columns), product)

    return weight_of


def check_memory(names, trees, n_rows):
    """Raise ValueError if counts of columns and rows of a law would not fit in 1 GiB.

    Parameters
    ----------
    names : sequence of str
    trees : sequence of ColumnTree
        Of the columns.
    n_rows : int
        Of the law.
    """
    needed, sizes = needed_bytes(trees, n_rows), [tree.n_cells for tree in trees]
    if needed > _MEMORY:
        widest = int(np.argmax(sizes))
        raise PublicValueError(
            f"The counts and the population would take {needed / 2**30:.1f} GiB of memory, more "
            f"than 1 GiB: declare fewer categories or bins, or take a smaller population. Column "
            f"{names[widest]!r} is counted in the most cells, {sizes[widest]}."
        )


def needed_bytes(trees, n_rows):
    """Return the memory of the counts of columns and the rows of a law, but for the records."""
    # The counts with and without noise; the rows, and the blocks of one column.
    return 24 * sum(tree.n_cells for tree in trees) + n_rows * (8 * len(trees) + 16 * MAX_BLOCKS)


def all_pairs(n_columns):
    """Return all pairs of columns, as tuples in ascending order."""
    return list(combinations(range(n_columns), 2))


def marginal_counts(codes, marginals):
    """Count the records in the cells of marginals.

    Parameters
    ----------
    codes : sequence of ndarray of int of shape (n,)
        Of each of the p columns: the block of each record, from 0.
    marginals : sequence of Marginal
        One to three distinct columns each.

    Returns
    -------
    list of ndarray of float64
        The table of each marginal, an axis a column. Tables of disjoint sets of records add up to
        those of all records, exactly. A record adds one to one cell of each: to m tables a vector
        of l2 norm √m, so replacing it changes them by at most √(2m).

    Raises
    ------
    ValueError
        Codes that are no block of their column, or marginals of other than one to three distinct
        columns.

    Notes
    -----
    The time is proportional to n times the number of marginals, and to the cells once a block of
    65536 records.
    """
    n_blocks: dict = {}
    for part in marginals:
        if not 1 <= len(part.columns) <= 3 or len({*part.columns}) < len(part.columns):
            raise PublicValueError("A marginal must have one to three distinct columns.")
        for column, groups in zip(part.columns, part.groups, strict=True):
            n_blocks[column] = min(len(groups), n_blocks.get(column, len(groups)))
    for column, size in n_blocks.items():
        if len(codes[column]) and not 0 <= codes[column].min() <= codes[column].max() < size:
            raise PublicValueError("codes must be among the blocks of their column.")
    tables = [np.zeros(part.n_cells) for part in marginals]
    shapes = [part.shape for part in marginals]
    for start in range(0, len(codes[0]), _BLOCK):
        block, grouped = [column[start : start + _BLOCK] for column in codes], {}
        for table, part, shape in zip(tables, marginals, shapes, strict=True):
            cells: Any = None
            for column, groups, size in zip(part.columns, part.groups, shape, strict=True):
                key = column, id(groups)
                if key not in grouped:
                    grouped[key] = groups[block[column]]
                cells = grouped[key] if cells is None else cells * size + grouped[key]
            table += np.bincount(cells, minlength=len(table))
    return [table.reshape(shape) for table, shape in zip(tables, shapes, strict=True)]
