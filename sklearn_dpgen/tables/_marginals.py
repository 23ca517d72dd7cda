"""Marginals of categorical tables: their columns, groups of categories, weights and counts."""

import math
from dataclasses import dataclass
from itertools import combinations
from types import MappingProxyType
from typing import Any

import numpy as np

from sklearn_dpgen.exceptions import PublicValueError
from sklearn_dpgen.schema import Numeric, Ordinal
from sklearn_dpgen.schema._binned import Binned
from sklearn_dpgen.utils._validation import Real

__all__ = [
    "MAX_BLOCKS",
    "MAX_TABLE_CELLS",
    "MAX_COLUMNS",
    "ColumnBlocks",
    "Marginal",
    "all_pairs",
    "balanced_shape",
    "check_memory",
    "expand_marginals",
    "group_categories",
    "group_hierarchy",
    "group_sums",
    "marginal_counts",
    "marginal_weight",
    "target_columns",
]

# The most blocks of a column; two-way marginals do not resolve more.
MAX_BLOCKS = 96
# The most columns of a marginal, and cells of one: those of three columns at full resolution.
MAX_COLUMNS, MAX_TABLE_CELLS = 7, MAX_BLOCKS**3
# The groups of an ordered column that are left to it beside those of a hierarchy.
_FEW = 5


def group_categories(shares, n_groups, *, is_ordered, edge=0):
    """Group categories of a column into groups of nearly equal shares.

    Parameters
    ----------
    shares : ndarray of shape (n,)
        Not negative, of sum 1.
    n_groups : int
        At least 1.
    is_ordered : bool
        Whether groups must be contiguous. Otherwise, categories with more than an equal share have
        groups of their own, and the others are grouped in the order given.
    edge : int, default=0
        A category of an ordered column at which a group must start, such as zero among numbers of
        both signs; 0 for none.

    Returns
    -------
    ndarray of int of shape (n,)
        The group of each category, from 0; at most ``n_groups`` groups.
    """
    n_groups = min(n_groups, len(shares))
    if n_groups == len(shares):
        return np.arange(len(shares))
    if is_ordered and edge and n_groups > 1:
        below = n_groups * shares[:edge].sum() / shares.sum()
        # A side with less than a quarter of an equal share gets no group of its own.
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
    """Return contiguous groups, each of which ends nearest to an equal share."""
    groups, group, held, left = np.empty(len(shares), dtype=np.int64), 0, 0.0, shares.sum()
    for i, share in enumerate(shares.tolist()):
        even = left / (n_groups - group)
        if i and group < n_groups - 1 and (held + share / 2 > even or share >= even > 0):
            left -= held
            group, held = group + 1, 0.0
        groups[i] = group
        held += share
    return groups


def _group_parts(shares, parts, n_groups):
    """Group the categories of each part of an unordered column, all in at most ``n_groups``."""
    groups, n_found = np.empty(len(shares), dtype=np.int64), 0
    n_parts = int(parts.max()) + 1
    for part in range(n_parts):
        inside = parts == part
        groups[inside] = n_found + group_categories(
            shares[inside], n_groups // n_parts, is_ordered=False
        )
        n_found = int(groups[inside].max()) + 1
    return groups


def group_hierarchy(shares, levels, n_groups):
    """Group the categories of a hierarchy into its nodes, or several nodes of one parent.

    Parameters
    ----------
    shares : ndarray of shape (n,)
        Not negative.
    levels : sequence of ndarray of int of shape (n,)
        The node of each category at each level, from the widest down; nested.
    n_groups : int
        At least 1.

    Returns
    -------
    ndarray of int of shape (n,)
        The group of each category, from 0; at most ``n_groups`` groups. Each widest node has a
        group if there are enough, and those of the largest shares are split further.
    """
    if n_groups >= len(shares):
        return np.arange(len(shares))
    if not levels or n_groups == 1:
        return group_categories(shares, n_groups, is_ordered=False)
    nodes = np.unique(levels[0], return_inverse=True)[1]
    sums, sizes = group_sums(shares, nodes), np.bincount(nodes)
    if n_groups <= len(sums):
        return group_categories(sums, n_groups, is_ordered=False)[nodes]
    numbers = np.ones(len(sums), dtype=np.int64)
    for _ in range(n_groups - len(sums)):
        numbers[np.argmax(np.where(numbers < sizes, sums / numbers, -1))] += 1
    groups, n_found = np.empty(len(shares), dtype=np.int64), 0
    for node, number in enumerate(numbers.tolist()):
        (inside,) = np.nonzero(nodes == node)
        own = group_hierarchy(shares[inside], [level[inside] for level in levels[1:]], number)
        groups[inside] = n_found + own
        n_found += int(own.max()) + 1
    return groups


def _levels_of_groups(levels, groups):
    """Return the node of each group at each level; a group of several nodes is one of its own."""
    n_groups, found = int(groups.max()) + 1, []
    for level in levels:
        first, last = np.full(n_groups, len(level)), np.zeros(n_groups, dtype=np.int64)
        np.minimum.at(first, groups, level)
        np.maximum.at(last, groups, level)
        found.append(np.where(first == last, first, len(level) + np.arange(n_groups)))
    return found


def group_sums(shares, groups):
    """Return the sum of the shares in each group."""
    return np.bincount(groups, weights=shares)


def balanced_shape(sizes, n_cells):
    """Return the shape of a table of at most ``n_cells`` cells, with at least two groups a column.

    Parameters
    ----------
    sizes : sequence of int
        Categories of each column.
    n_cells : float

    Returns
    -------
    tuple of int
        Small columns keep all categories; the others have nearly equal numbers of groups.
    """
    shape, left, n_left = {}, max(float(n_cells), 1.0), len(sizes)
    for column in sorted(range(len(sizes)), key=lambda i: sizes[i]):
        even = max(2, math.floor(left ** (1 / n_left) + 1e-9))
        shape[column] = min(int(sizes[column]), even)
        left, n_left = left / shape[column], n_left - 1
    return tuple(shape[column] for column in range(len(sizes)))


# Records counted per chunk.
_BLOCK = 1 << 16
# The most bytes of counts and population.
_MEMORY = 1 << 30
# The least weight: squares of products of seven weights must not underflow or overflow.
_LIGHTEST = 1e-6
# Tolerance of bin edges on the unit scale.
_ROUNDING = 1e-9


@dataclass(frozen=True, eq=False)
class Marginal:
    """A marginal over grouped columns.

    Parameters
    ----------
    columns : tuple of int
        Ascending.
    groups : tuple of ndarray of int
        For each column, the group of each block: its index along the axis.
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
    """Partition of the categories of each column into blocks, which marginals group further.

    Parameters
    ----------
    shares : list of ndarray
        Noisy shares of the categories of each column.
    is_ordered : sequence of bool
        Whether the blocks of a column are contiguous.
    n_nulls : sequence of int
        Number of last categories without a value, such as null, with a block of their own each.
    edges : sequence of int
        The category that starts at zero in columns with numbers of both signs, else 0.
    parts : mapping of int to ndarray of int, default={}
        For some columns the part of each category, at most 96: no block is in several parts.
    levels : mapping of int to sequence of ndarray of int, default={}
        For columns with a hierarchy the node of each category at each level, from the widest down.
        Their blocks and groups are nodes, or several nodes of one parent.
    """

    def __init__(
        self,
        shares,
        is_ordered,
        n_nulls,
        edges,
        parts=MappingProxyType({}),
        levels=MappingProxyType({}),
    ):
        self._is_ordered, self._n_nulls, self._edges = is_ordered, n_nulls, list(edges)
        self._groups, self._levels = {}, levels
        self.blocks = [
            _group_parts(s, parts[j], MAX_BLOCKS)
            if j in parts
            else self._group(j, s, min(len(s), MAX_BLOCKS))
            for j, s in enumerate(shares)
        ]
        self._levels = {j: _levels_of_groups(own, self.blocks[j]) for j, own in levels.items()}
        self._shares = [group_sums(s, b) for s, b in zip(shares, self.blocks, strict=True)]
        self.sizes = list(map(len, self._shares))
        self._edges = [blocks[e] for blocks, e in zip(self.blocks, self._edges, strict=True)]

    @classmethod
    def of(cls, encoder, shares):
        """Return the blocks of the columns of a fitted encoder."""
        columns = encoder.columns_.values()
        is_ordered = [isinstance(column, Binned | Ordinal) for column in columns]
        edges = [_zero_edge(column) for column in columns]
        levels = {j: column.groups for j, column in enumerate(columns) if column.groups}
        n_nulls = [column.nullable for column in columns]
        return cls(shares, is_ordered, n_nulls, edges, levels=levels)

    def add(self, shares, *, is_ordered, n_nulls):
        """Add a column whose categories are its blocks, and return its index."""
        self._is_ordered, self._n_nulls = [*self._is_ordered, is_ordered], [*self._n_nulls, n_nulls]
        self._edges.append(0)
        self.blocks.append(np.arange(len(shares)))
        self._shares.append(np.asarray(shares, dtype=np.float64))
        self.sizes.append(len(shares))
        return len(self.blocks) - 1

    def marginal(self, columns, n_cells, *, finer=1.0):
        """Return the marginal of columns with at most ``n_cells`` cells, or two groups a column.

        If all columns are ordered, each has ``finer`` times as many groups, up to its blocks.
        """
        shape = self._shape(columns, min(n_cells, MAX_TABLE_CELLS))
        if all(self._is_ordered[j] for j in columns):
            sizes = [self.sizes[j] for j in columns]
            shape = [min(n, math.floor(finer * k)) for n, k in zip(sizes, shape, strict=True)]
        groups = (self._groups_of(j, k) for j, k in zip(columns, shape, strict=True))
        return Marginal(tuple(columns), tuple(groups))

    def _shape(self, columns, n_cells):
        """Return the number of groups of each column.

        Widest groups of a hierarchy have nothing in common once they are joined, whereas few groups
        of ordered columns lose little. So a hierarchy keeps its widest groups, if there is one and
        others of the columns keep all of their categories or five ordered groups.
        """
        sizes = [self.sizes[j] for j in columns]
        shape = balanced_shape(sizes, n_cells)
        own = [axis for axis, j in enumerate(columns) if j in self._levels]
        if len(own) != 1:
            return shape
        rest = [axis for axis in range(len(columns)) if axis != own[0]]
        least = [
            min(sizes[axis], _FEW) if self._is_ordered[columns[axis]] else sizes[axis]
            for axis in rest
        ]
        n_widest = len(np.unique(self._levels[columns[own[0]]][0]))
        most = min(n_widest, int(n_cells / math.prod(least)))
        if most <= shape[own[0]]:
            return shape
        others = balanced_shape([sizes[axis] for axis in rest], n_cells / most)
        groups = dict(zip(rest, others, strict=True)) | {own[0]: most}
        return tuple(groups[axis] for axis in range(len(columns)))

    def frequencies(self, marginal):
        """Return the frequencies of the cosine basis of each axis of a marginal.

        They are 0 for the constant, and 1 for all others of an unordered column.
        """
        most = [
            size if self._is_ordered[j] else 1
            for j, size in zip(marginal.columns, marginal.shape, strict=True)
        ]
        return tuple(np.minimum(np.arange(n), m) for n, m in zip(marginal.shape, most, strict=True))

    def _groups_of(self, column, n_groups):
        """Return the groups of the blocks of a column, from the cache if possible."""
        key = column, n_groups
        if key not in self._groups:
            self._groups[key] = self._group(column, self._shares[column], n_groups)
        return self._groups[key]

    def _group(self, column, shares, n_groups):
        """Group categories or blocks of a column, with nulls on their own if there is room."""
        null, n_values = self._n_nulls[column], len(shares) - self._n_nulls[column]
        if not null or n_groups < null + 2 or n_groups >= len(shares):
            return self._grouped(column, shares, n_groups)
        groups = self._grouped(column, shares[:n_values], n_groups - null)
        return np.append(groups, groups.max() + 1 + np.arange(null))

    def _grouped(self, column, shares, n_groups):
        """Group the first categories or blocks of a column."""
        if column in self._levels:
            levels = [level[: len(shares)] for level in self._levels[column]]
            return group_hierarchy(shares, levels, n_groups)
        options = {"is_ordered": self._is_ordered[column], "edge": int(self._edges[column])}
        return group_categories(shares, n_groups, **options)


def _zero_edge(column):
    """Return the bin that starts at zero inside the bounds, or 0."""
    if not isinstance(column, Binned) or not isinstance(column.column, Numeric):
        return 0
    is_zero = np.abs(np.array(column.edges) - column.column.to_unit(0.0)) < _ROUNDING
    return int(np.argmax(is_zero[:-1]))


def expand_marginals(marginals, names, constants=()):
    """Return the column indices of the listed marginals of two and more columns.

    Parameters
    ----------
    marginals : "auto", "pairs" or sequence of tuple of str
    names : list of str
        Names of all columns.
    constants : collection of int, default=()
        Columns of one category, which are left out of marginals.

    Returns
    -------
    str or list of tuple of int
        Ascending columns of each marginal; a string is returned as it is.

    Raises
    ------
    ValueError
        Duplicate marginals, unknown columns, or other than one to seven distinct columns; "pairs"
        with a single column.
    """
    if isinstance(marginals, str):
        if marginals == "pairs" and len(names) < 2:
            raise PublicValueError(
                "marginals must not be 'pairs' unless the schema has at least two columns."
            )
        return marginals
    wanted = {}
    for columns in marginals:
        if not isinstance(columns, tuple) or not 1 <= len(columns) <= MAX_COLUMNS:
            raise PublicValueError(
                f"marginals must hold tuples of one to seven columns, got {columns!r}."
            )
        unknown = [name for name in columns if name not in names]
        if unknown:
            raise PublicValueError(f"marginals must name columns of the schema, got {unknown}.")
        if frozenset(columns) in wanted or len({*columns}) < len(columns):
            raise PublicValueError(
                f"marginals must be distinct, with distinct columns, got {columns}."
            )
        indices = sorted(map(names.index, columns))
        wanted[frozenset(columns)] = tuple(j for j in indices if j not in constants)
    return [columns for columns in dict.fromkeys(wanted.values()) if len(columns) > 1]


def target_columns(target, names, rule="name columns of the schema"):
    """Return the column indices of the targets.

    Parameters
    ----------
    target : str, sequence of str or None
    names : list of str
        Names of all columns.
    rule : str
        What a target must do, for the message.

    Raises
    ------
    ValueError
        Unknown or duplicate columns.
    """
    wanted = [target] if isinstance(target, str) else list(target or ())
    unknown = [name for name in wanted if name not in names]
    if unknown:
        raise PublicValueError(f"target must {rule}, got {unknown}.")
    if len({*wanted}) < len(wanted):
        raise PublicValueError(f"target must name distinct columns, got {wanted}.")
    return [names.index(name) for name in wanted]


def marginal_weight(names, workload):
    """Return the function that gives the public weight of a marginal.

    Parameters
    ----------
    names : list of str
        Names of all columns.
    workload : mapping or None
        Weights of columns and of tuples of columns, from 1e-6 to 1e6. A marginal has the weight of
        its tuple, or the product of the weights of its columns, which default to 1.

    Returns
    -------
    callable
        Function of a tuple of column indices, with positive values.

    Raises
    ------
    ValueError
        Weights outside this range, or keys that are neither a column nor a marginal.
    """
    given = {}
    for key, weight in (workload or {}).items():
        columns = frozenset(key if isinstance(key, tuple) else [key])
        if not columns <= {*names} or not 1 <= len(columns) <= MAX_COLUMNS:
            raise PublicValueError(
                f"workload must name one to seven columns of the schema, got {key!r}."
            )
        columns = frozenset(names.index(name) for name in columns)
        if columns in given:
            raise PublicValueError(f"workload must name each marginal once, got {key!r} twice.")
        is_real = isinstance(weight, Real) and not isinstance(weight, bool)
        if not is_real or not _LIGHTEST <= weight <= 1 / _LIGHTEST:
            raise PublicValueError(
                f"workload must hold positive numbers from 1e-6 to 1e6, got another for {key!r}."
            )
        given[columns] = float(weight)

    def weight_of(columns):
        product = math.prod(given.get(frozenset([j]), 1.0) for j in columns)
        return given.get(frozenset(columns), product)

    return weight_of


def check_memory(names, trees, n_rows):
    """Raise ValueError if counts of columns and the population would not fit in 1 GiB.

    Parameters
    ----------
    names : sequence of str
    trees : sequence of ColumnTree
    n_rows : int
        Rows of the population.
    """
    sizes = [tree.n_cells for tree in trees]
    # Exact and noisy counts, the rows, and the blocks of one column.
    needed = 24 * sum(sizes) + n_rows * (8 * len(trees) + 16 * MAX_BLOCKS)
    if needed > _MEMORY:
        widest = int(np.argmax(sizes))
        raise PublicValueError(
            f"The counts and the population would take {needed / 2**30:.1f} GiB of memory, more "
            f"than 1 GiB: declare fewer categories or bins, or take a smaller population. Column "
            f"{names[widest]!r} is counted in the most cells, {sizes[widest]}."
        )


def all_pairs(n_columns):
    """Return all pairs of columns, as ascending tuples."""
    return list(combinations(range(n_columns), 2))


def marginal_counts(codes, marginals):
    """Count the records in the cells of marginals.

    Parameters
    ----------
    codes : sequence of ndarray of int of shape (n,)
        The block of each record in each of the p columns, from 0.
    marginals : sequence of Marginal
        Marginals of one to seven distinct columns.

    Returns
    -------
    list of ndarray of float64
        The table of each marginal, with one axis per column. A record adds one to one cell of each
        table: to m tables it adds a vector of l2 norm √m, and replacing it changes them by at most
        √(2m).

    Raises
    ------
    ValueError
        Codes that are not blocks of their column, or marginals of other than one to seven distinct
        columns.

    Notes
    -----
    The time is proportional to n times the number of marginals, and to the cells once a block of
    65536 records.
    """
    n_blocks: dict = {}
    for marginal in marginals:
        if not 1 <= len({*marginal.columns}) == len(marginal.columns) <= MAX_COLUMNS:
            raise PublicValueError("marginals must have one to seven distinct columns.")
        for column, groups in zip(marginal.columns, marginal.groups, strict=True):
            n_blocks[column] = min(len(groups), n_blocks.get(column, len(groups)))
    for column, size in n_blocks.items():
        if len(codes[column]) and not 0 <= codes[column].min() <= codes[column].max() < size:
            raise PublicValueError("codes must be blocks of their column.")
    tables = [np.zeros(marginal.n_cells) for marginal in marginals]
    shapes = [marginal.shape for marginal in marginals]
    for start in range(0, len(codes[0]), _BLOCK):
        block, grouped = [column[start : start + _BLOCK] for column in codes], {}
        for table, marginal, shape in zip(tables, marginals, shapes, strict=True):
            cells: Any = None
            for column, groups, size in zip(marginal.columns, marginal.groups, shape, strict=True):
                key = column, id(groups)
                if key not in grouped:
                    grouped[key] = groups[block[column]]
                cells = grouped[key] if cells is None else cells * size + grouped[key]
            table += np.bincount(cells, minlength=len(table))
    return [table.reshape(shape) for table, shape in zip(tables, shapes, strict=True)]
