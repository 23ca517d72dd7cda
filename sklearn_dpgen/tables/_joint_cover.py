"""Few joint tables that hold many small ones: each is a sum over axes of one of them."""

import math
from functools import lru_cache
from itertools import combinations, pairwise, product

__all__ = ["cover_tables", "count_cost"]

# Picoseconds a record: of a table of so many cells, between these in proportion. Tables of 8192
# cells stay in the first cache, those of 65536 in the second. Whole numbers, and the same on all
# machines: what one of them counted adds to what another did.
_COSTS = (
    (1, 650),
    (1 << 12, 700),
    (1 << 13, 800),
    (1 << 14, 1200),
    (1 << 15, 1800),
    (1 << 16, 2100),
    (1 << 18, 3000),
    (1 << 20, 5000),
    (1 << 32, 20000),
)
# Of a column more in the joint code.
_STEP = 90
# Most cells of tables that nobody asked for: their codes fit in 16 bits.
_LIMITS = tuple(1 << k for k in range(16, 11, -1))
# Joint tables may take so many cells more than the tables themselves: 32 MiB.
_CELLS = 1 << 22
# Of more tables, one cover is tried instead of several: the plan itself takes seconds.
_FEW = 512
_SEEDS = 2048


def count_cost(shape):
    """Return the estimated time of counting a record in a table, in picoseconds."""
    n_cells = math.prod(shape)
    for (low, first), (high, last) in pairwise(_COSTS):
        if n_cells <= high:
            counting = first + (last - first) * (n_cells - low) // (high - low)
            return counting + _STEP * (len(shape) - 1)
    return _COSTS[-1][1] + _STEP * (len(shape) - 1)


@lru_cache(maxsize=32)
def cover_tables(sizes, tables):
    """Return the columns of joint tables that hold all the tables asked for.

    Parameters
    ----------
    sizes : tuple of int
        The number of categories of each column.
    tables : tuple of tuple of int
        Of one to three distinct columns each, ascending.

    Returns
    -------
    tuple of tuple of int
        Ascending, so that neighbours begin with the same columns. A function of the arguments
        alone.

    Notes
    -----
    A greedy weighted set cover: of joint tables that grow column by column from some of the
    tables still open, the one that replaces most time for its own. The best is kept of covers
    with different bounds on the cells. Each table is held by one at least.
    """
    tables = tuple(dict.fromkeys(tables))
    most = _CELLS + sum(_n_cells(sizes, t) for t in tables)
    best = tuple(sorted(tables))
    least = _total(sizes, best)
    is_many = len(tables) > _FEW
    for limit, is_full in product(_LIMITS, (False,) if is_many else (False, True)):
        found = _greedy(sizes, tables, limit, is_full)
        if sum(_n_cells(sizes, t) for t in found) > most:
            continue
        if _total(sizes, found) < least:
            best, least = found, _total(sizes, found)
        if is_many:
            break
    return best


def _n_cells(sizes, columns):
    return math.prod(sizes[j] for j in columns)


def _cost(sizes, columns):
    return count_cost([sizes[j] for j in columns])


def _total(sizes, tables):
    return sum(_cost(sizes, t) for t in tables)


def _greedy(sizes, tables, limit, is_full):
    """Return joint tables of at most so many cells, but for tables that have more themselves."""
    still = _OpenTables(sizes, tables)
    found = []
    while still.values:
        seeds = list(still.values)
        n_seeds = max(4, _SEEDS // len(tables))
        seeds = seeds[:: -(-len(seeds) // n_seeds)]
        grown = (_grow(sizes, still, seed, limit, is_full) for seed in seeds)
        columns = max(grown, key=lambda part: part[0])[1]
        still.close(columns)
        found.append(columns)
    return tuple(sorted(found))


class _OpenTables:
    """The tables that no joint table holds so far, by column; the value of each is its time."""

    def __init__(self, sizes, tables):
        values = {t: _cost(sizes, t) for t in tables}
        self.values = dict(sorted(values.items(), key=lambda item: (-item[1], item[0])))
        self.of_column: list[dict] = [{} for _ in sizes]
        for t in self.values:
            for j in t:
                self.of_column[j][t] = self.values[t]

    def close(self, columns):
        for k in (1, 2, 3):
            for t in combinations(columns, k):
                if self.values.pop(t, None) is not None:
                    for j in t:
                        del self.of_column[j][t]

    def value(self, columns):
        parts = (t for k in (1, 2, 3) for t in combinations(sorted(columns), k))
        return sum(self.values.get(t, 0) for t in parts)


def _grow(sizes, still, seed, limit, is_full):
    """Return the value of a joint table by its time, and its columns."""
    columns: set[int] = set()
    n_cells = 1
    # What each column would save, and what it takes of the cells, which multiply.
    gains: dict = {}
    room = [max(1, (size - 1).bit_length()) for size in sizes]
    for j in seed:
        _take(j, columns, still, gains)
        n_cells *= sizes[j]
    value = still.value(columns)
    best = value / _cost(sizes, columns), tuple(sorted(columns))
    while True:
        fits = [j for j in gains if n_cells * sizes[j] <= limit]
        if not fits:
            return best
        j = max(fits, key=lambda j: (gains[j] / room[j], -j))
        value += gains[j]
        _take(j, columns, still, gains)
        n_cells *= sizes[j]
        ratio = value / _cost(sizes, columns)
        if is_full or ratio > best[0]:
            best = ratio, tuple(sorted(columns))


def _take(column, columns, still, gains):
    columns.add(column)
    gains.pop(column, None)
    for t, value in still.of_column[column].items():
        rest = [j for j in t if j not in columns]
        if len(rest) == 1:
            gains[rest[0]] = gains.get(rest[0], 0) + value
