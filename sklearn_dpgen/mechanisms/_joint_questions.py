"""Questions on several columns: public keys group categories, and answers cover sets of cells.

A question is a set of columns and a key. The key groups the categories of each column; the
combinations of groups are cells, and a record is in one cell. An answer stands for a set of cells.
All of this follows from public numbers.
"""

import math
from dataclasses import dataclass

import numpy as np

from sklearn_dpgen.exceptions import PublicValueError
from sklearn_dpgen.utils._random import noise_source
from sklearn_dpgen.utils._validation import Real

__all__ = [
    "Covered",
    "MOST_CELLS",
    "Questions",
    "best_coverage",
    "check_n_asked",
    "choose_n_asked",
    "draw_columns",
    "expected_variances",
    "group_counts",
    "information",
    "most_asked",
    "most_cells",
    "column_weights",
    "respond",
    "same_group",
]

# Largest number of cells of a question, distinguishable in float32 and in 52-bit draws.
MOST_CELLS = 2**20
# Factor on the number of cells at which randomized response is best, and smallest limit.
_SPARE, _FEWEST = 2, 16
# Streams of a key besides those of the columns.
_OFFSETS, _ORDERS = 2**31, 2**32


def most_cells(epsilon):
    """Return the largest number of cells of a question: twice e^ε + 1, within [16, 2^20]."""
    return int(min(max(_SPARE * (math.exp(min(epsilon, 20.0)) + 1), _FEWEST), MOST_CELLS))


def best_coverage(n_cells, epsilon):
    """Return the best number of cells for an answer to cover, from 1 to less than all.

    The information of an answer on the shares of the cells, at equal shares, is
    f (1 - f) (e^ε - 1)² / (1 + f (e^ε - 1))² for a coverage of f, and largest at 1 / (e^ε + 1).
    """
    gain = math.expm1(min(epsilon, 300.0))
    below = max(1, int(n_cells / (gain + 2)))
    return max((below, below + 1), key=lambda m: _information(m / n_cells, gain))


def _information(share, gain):
    """Return the information of an answer that covers a share of the cells; 0 for all cells."""
    return max(share * (1 - share), 0.0) * (gain / (1 + share * gain)) ** 2


def information(n_cells, epsilon):
    """Return the information of an answer on the shares of the cells, at equal shares."""
    gain = math.expm1(min(epsilon, 300.0))
    return _information(best_coverage(n_cells, epsilon) / n_cells, gain)


def group_counts(sizes, limit):
    """Return the number of groups of the categories of each asked column.

    Parameters
    ----------
    sizes : ndarray of int of shape (s,)
        Number of categories; 1 for a column that is not asked.
    limit : int
        Largest product of the numbers of groups.

    Returns
    -------
    ndarray of int of shape (s,)
        The sizes, if their product is within the limit; otherwise the larger ones are reduced to
        one number, of at least 2.
    """
    low, high = min(2, max(sizes)), max(sizes)
    while low < high:
        middle = (low + high + 1) // 2
        fits = math.prod(int(min(size, middle)) for size in sizes) <= limit
        low, high = (middle, high) if fits else (low, middle - 1)
    return np.minimum(sizes, low)


@dataclass(frozen=True)
class Covered:
    """Sets of records that answers cover, as unions of disjoint boxes.

    A box is a set of categories for each asked column.

    Parameters
    ----------
    n_answers : int
    answer : ndarray of int of shape (n_boxes,)
        Answer of each box.
    n_slots : int
        Largest number of columns of a box.
    blocks : list of (int, ndarray of int of shape (n,), ndarray of bool of shape (n, size))
        For each column, the indices in (box, slot) order that name it, and the categories there.
    coverage : ndarray of int of shape (n_answers,)
        Number of cells that each answer covers.
    n_cells : ndarray of int of shape (n_answers,)
        Number of cells of its question.
    """

    n_answers: int
    answer: np.ndarray
    n_slots: int
    blocks: list
    coverage: np.ndarray
    n_cells: np.ndarray


class Questions:
    """Questions to a number of people.

    Parameters
    ----------
    sizes : ndarray of int of shape (d,)
        Number of categories of each column.
    ordered : ndarray of bool of shape (d,)
        Whether the categories of a column have an order.
    epsilon : float
    limit : int
        Largest number of cells of a question.
    columns : ndarray of int of shape (n, s)
        Distinct columns of each question, padded with -1.
    keys : ndarray of int64 of shape (n,)

    Attributes
    ----------
    n_groups : ndarray of int of shape (n, s)
    n_cells, coverage : ndarray of int of shape (n,)
    """

    def __init__(self, sizes, ordered, epsilon, limit, columns, keys):
        self._sizes, self._ordered, self._columns = sizes, ordered, columns
        self._keys = keys.astype(np.uint64)
        asked = np.where(columns < 0, 1, sizes[columns])
        kinds, kind = np.unique(asked, axis=0, return_inverse=True)
        groups = np.array([group_counts(row, limit) for row in kinds]).reshape(kinds.shape)
        cells = [math.prod(row.tolist()) for row in groups]
        coverage = [1 if n == 1 else best_coverage(n, epsilon) for n in cells]
        kind = kind.ravel()
        self.n_groups = groups[kind]
        self.n_cells, self.coverage = np.array(cells)[kind], np.array(coverage)[kind]

    def cells_of(self, codes):
        """Return the cell of each record, from its categories, of shape (n, d)."""
        rows = np.arange(len(codes))
        cells = np.zeros(len(codes), dtype=np.int64)
        for slot in range(self._columns.shape[1]):
            groups = np.zeros(len(codes), dtype=np.int64)
            for column, asked in self._by_column(slot):
                labels = self._labels(column, asked, self.n_groups[asked, slot])
                groups[asked] = labels[rows[: len(asked)], codes[asked, column]]
            cells = cells * self.n_groups[:, slot] + groups
        return cells

    def offsets(self):
        """Return the cells that answer 0 covers in each question: cell 0, and random others.

        Returns
        -------
        ndarray of int64 of shape (n, largest coverage)
            In ascending order; padded with the number of cells.

        Notes
        -----
        A uniformly random subset by Floyd's algorithm.
        """
        n, most = len(self._keys), max(1, self.coverage.max(initial=1))
        found = np.repeat(self.n_cells[:, None], most, axis=1)
        found[:, 0] = 0
        for i in range(most - 1):
            last = self.n_cells - self.coverage + 1 + i
            drawn = 1 + (_mix(self._keys, _OFFSETS + i) % last.astype(np.uint64)).astype(np.int64)
            taken = (found == drawn[:, None]).any(axis=1)
            value = np.where(taken, last, drawn)
            found[:, i + 1] = np.where(i + 1 < self.coverage, value, self.n_cells)
        return np.sort(found, axis=1) if n else found

    def covered(self, answers):
        """Return the sets of records that answers cover.

        Parameters
        ----------
        answers : ndarray of int of shape (n,)
            From 0 to below ``n_cells``.

        Returns
        -------
        Covered
        """
        offsets = self.offsets()
        n, most = offsets.shape
        n_slots = self._columns.shape[1]
        real = np.arange(most) < self.coverage[:, None]
        cells = (answers[:, None] + offsets) % self.n_cells[:, None]
        groups = np.empty((n, most, n_slots), dtype=np.int64)
        for slot in reversed(range(n_slots)):
            cells, groups[:, :, slot] = np.divmod(cells, self.n_groups[:, slot, None])
        # Cells that differ only in the slot with the most groups are merged to one box.
        merged = self.n_groups.argmax(axis=1)
        rest = np.zeros((n, most), dtype=np.int64)
        for slot in range(n_slots):
            apart = (slot != merged)[:, None]
            rest = np.where(apart, rest * self.n_groups[:, [slot]] + groups[:, :, slot], rest)
        rest[~real] = -1
        same = rest[:, :, None] == rest[:, None, :]
        is_first = (same.argmax(axis=2) == np.arange(most)) & real
        answer, first = np.nonzero(is_first)
        blocks = [
            self._block(slot, column, asked, answer, first, groups, same, merged)
            for slot in range(n_slots)
            for column, asked in self._by_column(slot)
        ]
        return Covered(n, answer, n_slots, blocks, self.coverage, self.n_cells)

    def covered_categories(self, answers):
        """Return the categories of each column in the cells that answers cover.

        The questions must have the same columns.

        Returns
        -------
        list of ndarray of bool of shape (n, m, size)
            One for each slot; m is the coverage.
        """
        cells = (answers[:, None] + self.offsets()) % self.n_cells[:, None]
        masks = []
        for slot in reversed(range(self._columns.shape[1])):
            cells, groups = np.divmod(cells, self.n_groups[:, slot, None])
            for column, asked in self._by_column(slot):
                labels = self._labels(column, asked, self.n_groups[asked, slot])
                masks.append(labels[:, None, :] == groups[:, :, None])
        return masks[::-1]

    def _block(self, slot, column, asked, answer, first, groups, same, merged):
        """Return the indices that name a column in one slot, and the categories there."""
        n_slots = self._columns.shape[1]
        (boxes,) = np.nonzero(np.isin(answer, asked))
        owners = answer[boxes]
        labels = self._labels(column, asked, self.n_groups[asked, slot])
        labels = labels[np.searchsorted(asked, owners)]
        mask = labels == groups[owners, first[boxes], slot][:, None]
        (wide,) = np.nonzero((merged[owners] == slot) & (groups.shape[1] > 1))
        if len(wide):
            inside = same[owners[wide], first[boxes[wide]]]
            there = np.where(inside, groups[owners[wide], :, slot], -1)
            mask[wide] = (labels[wide][:, :, None] == there[:, None, :]).any(axis=2)
        return column, boxes * n_slots + slot, mask

    def _by_column(self, slot):
        """Yield each column and the questions that ask it in a slot, in ascending order."""
        column = self._columns[:, slot]
        order = np.argsort(column, kind="stable")
        cuts = np.flatnonzero(np.diff(column[order])) + 1
        for asked in np.split(order, cuts):
            if len(asked) and column[asked[0]] >= 0:
                yield int(column[asked[0]]), asked

    def _labels(self, column, asked, n_groups):
        """Return the group of each category in each question, of shape (n, size).

        Groups have nearly equal sizes. They are random; for every other question on an ordered
        column they are intervals, cyclic with a random start.
        """
        size, keys = int(self._sizes[column]), self._keys[asked, None]
        categories = np.arange(size)
        if (n_groups == size).all():
            return np.broadcast_to(categories, (len(asked), size))
        hashes = _mix(keys, column, categories)
        ranks = hashes.argsort(axis=1, kind="stable").argsort(axis=1, kind="stable")
        if self._ordered[column]:
            drawn = _mix(keys, _ORDERS + column)
            shift = (drawn >> np.uint64(1)) % np.uint64(size)
            turned = (categories + shift.astype(np.int64)) % size
            ranks = np.where(drawn % np.uint64(2) == 0, turned, ranks)
        n_groups = n_groups[:, None]
        return np.where(n_groups == size, categories, ranks * n_groups // size)


def same_group(size, n_groups, is_ordered):
    """Return the probability over keys that two categories of a column are in the same group.

    Returns
    -------
    ndarray of shape (size, size)
    """
    groups = np.bincount(np.arange(size) * n_groups // size)
    together = (groups * (groups - 1)).sum() / max(size * (size - 1), 1)
    at_random = together + (1 - together) * np.eye(size)
    if not is_ordered:
        return at_random
    turned = (np.arange(size)[:, None] + np.arange(size)) % size * n_groups // size
    intervals = (turned[:, :, None] == turned[:, None, :]).mean(axis=0)
    return (at_random + intervals) / 2


def respond(cells, questions, epsilon, noise):
    """Draw answers to questions.

    Parameters
    ----------
    cells : ndarray of int of shape (n,)
        The true cells.
    questions : Questions
    epsilon : float
    noise : NoiseSource

    Returns
    -------
    ndarray of int64 of shape (n,)
        Answer a stands for the cells a + r modulo the number of cells K, for the m offsets r. Each
        cell is in m of the K sets. Each of these answers has probability e^ε / (m e^ε + K - m), any
        other one 1 / (m e^ε + K - m).
    """
    n, m, K = len(cells), questions.coverage, questions.n_cells
    offsets = questions.offsets()
    others = K - m
    covers = noise.covers(m, others, epsilon)
    inside = offsets[np.arange(n), noise.integers(m, n)]
    outside = noise.integers(np.maximum(others, 1), n)
    for offset in offsets.T:
        # Maps the rank of an offset among those outside the set to its value.
        outside = outside + (outside >= offset)
    return (cells - np.where(covers | (others == 0), inside, outside)) % K


def _mix(keys, *parts):
    """Return uniform 64-bit hashes of keys and further numbers (the mixer of SplitMix64)."""
    with np.errstate(over="ignore"):
        value = np.asarray(keys, dtype=np.uint64)
        for part in (0, *parts):
            value = value + np.asarray(part, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
            value = value + np.uint64(0x9E3779B97F4A7C15)
            value = (value ^ (value >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
            value = (value ^ (value >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
            value = value ^ (value >> np.uint64(31))
    return value


# Number of questions that represent a design, and their common public seed.
_N_DRAWN, _SEED = 2000, 0
# Number of columns that represent all when the number to ask is chosen, and its largest value.
_N_COLUMNS, _MOST_ASKED = 16, 8
# Largest number of random numbers held at once.
_BLOCK = 1 << 22


def draw_columns(n, n_asked, always, weights, noise):
    """Draw the columns of each person's question.

    Parameters
    ----------
    n : int
        Number of people.
    n_asked : int
    always : sequence of int
        Columns that everybody is asked about.
    weights : ndarray of shape (d,)
        Weights of the others in successive draws without replacement; 0 for columns that are not
        asked.
    noise : NoiseSource

    Returns
    -------
    ndarray of int64 of shape (n, n_asked)
        Ascending in each row.

    Notes
    -----
    With equal weights the columns are dealt like cards, and reshuffled when too few are left. In
    each round no column is asked twice, and over many people all are asked about equally often;
    exactly, except in the last round, if ``n_asked`` divides their number.
    """
    others = np.setdiff1d(np.flatnonzero(weights), always)
    n_drawn = n_asked - len(always)
    drawn = np.empty((n, n_drawn), dtype=np.int64)
    dealt = np.ptp(weights[others]) == 0 if n_drawn else False
    n_hands = len(others) // n_drawn if dealt else 1
    size = max(1, _BLOCK // max(1, len(others))) * n_hands
    for start in range(0, n if n_drawn else 0, size):
        stop = min(start + size, n)
        n_rounds = -(-(stop - start) // n_hands)
        # Sorting exponential variables with these rates gives successive weighted draws.
        arrivals = -np.log(noise.uniform((n_rounds, len(others)))) / weights[others]
        hands = arrivals.argsort(axis=1)[:, : n_hands * n_drawn].reshape(-1, n_drawn)
        drawn[start:stop] = others[hands[: stop - start]]
    fixed = np.broadcast_to(np.asarray(always, dtype=np.int64), (n, len(always)))
    return np.sort(np.concatenate([fixed, drawn], axis=1), axis=1)


def most_asked(limit):
    """Return about how many columns can be asked with at least two groups each."""
    return int(math.log2(limit))


def expected_variances(sizes, epsilon, limit, n_asked, always, weights):
    """Return the variances of single columns and pairs, for one record.

    Parameters
    ----------
    sizes : ndarray of int of shape (d,)
    epsilon : float
    limit : int
        Largest number of cells of a question.
    n_asked, always, weights
        As in `draw_columns`.

    Returns
    -------
    singles : ndarray of shape (d,)
    pairs : ndarray of shape (d, d)
        Variances of the shares of the categories, or of the dependence of two columns, relative to
        equal shares and summed; divide by the number of records. Infinite if never asked.

    Notes
    -----
    An answer's information is spread equally over the K - 1 contrasts of its K cells, of which
    Π (g_j - 1) are the dependence of columns with g_j groups. A random grouping of k categories
    keeps (g - 1) of (k - 1) contrasts.
    """
    d = len(sizes)
    stream = noise_source(_SEED)
    columns = draw_columns(max(_N_DRAWN, 20 * d * d), n_asked, always, weights, stream)
    kinds, kind = np.unique(sizes[columns], axis=0, return_inverse=True)
    groups = np.array([group_counts(row, limit) for row in kinds])
    n_cells = [math.prod(row.tolist()) for row in groups]
    each = np.array([information(n, epsilon) / (n - 1) for n in n_cells])[kind.ravel()]
    free = groups[kind.ravel()] - 1
    singles, pairs = np.zeros(d), np.zeros((d, d))
    for i in range(n_asked):
        np.add.at(singles, columns[:, i], each * free[:, i])
        for j in range(n_asked):
            if i != j:
                both = each * free[:, i] * free[:, j]
                np.add.at(pairs, (columns[:, i], columns[:, j]), both)
    contrasts = sizes - 1
    with np.errstate(divide="ignore", invalid="ignore"):
        singles = contrasts**2 / singles * len(columns)
        pairs = np.outer(contrasts, contrasts) ** 2 / pairs * len(columns)
    # A constant has no contrasts to learn.
    singles[contrasts == 0] = 0.0
    pairs[np.outer(contrasts, contrasts) == 0] = 0.0
    np.fill_diagonal(pairs, 0.0)
    return singles, pairs


def choose_n_asked(sizes, epsilon, limit, always, weights):
    """Return the number of columns to ask with the least expected error of pairs.

    The error of a pair is the root of the sum of its variances, times the weights of its columns.
    With ``always``, only pairs with one of these columns are counted. Of many columns, a subset
    evenly spaced by size represents all.
    """
    order = np.argsort(sizes, kind="stable")
    others = np.setdiff1d(order[weights[order] > 0], always, assume_unique=True)
    if len(others) > _N_COLUMNS:
        others = others[np.linspace(0, len(others) - 1, _N_COLUMNS).astype(int)]
    kept = np.array([*always, *others], dtype=np.int64)
    sizes, weights, always = sizes[kept], weights[kept], np.arange(len(always))
    value = np.outer(weights, weights)
    if len(always):
        value[len(always) :, len(always) :] = 0.0
    np.fill_diagonal(value, 0.0)
    most = min(len(sizes), most_asked(limit), _MOST_ASKED)
    fewest = min(max(2, len(always) + 1), len(sizes))
    errors = {}
    for n_asked in range(fewest, max(fewest, most) + 1):
        singles, pairs = expected_variances(sizes, epsilon, limit, n_asked, always, weights)
        variances = (singles[:, None] + singles + pairs)[value > 0]
        errors[n_asked] = float((np.sqrt(variances) * value[value > 0]).sum())
    return min(errors, key=errors.__getitem__)


def column_weights(names, always, weights):
    """Return the indices of the columns that are always asked, and the weights of all columns.

    Parameters
    ----------
    names : list of str
        Names of the columns of the schema.
    always : sequence of str
    weights : mapping of str to float, or None

    Returns
    -------
    always : tuple of int
    weights : ndarray of shape (d,)

    Raises
    ------
    PublicValueError
        A name is not in the schema or is repeated, or a weight is not from 1e-6 to 1e6.
    """
    for parameter, columns in (("always", always), ("weights", weights or ())):
        unknown = [name for name in columns if name not in names]
        if unknown:
            raise PublicValueError(f"{parameter} must name columns of the schema, got {unknown}.")
    if len(set(always)) < len(always):
        raise PublicValueError("always must name distinct columns.")
    weights = dict.fromkeys(names, 1.0) | dict(weights or {})
    bad = [name for name, weight in weights.items() if not _is_weight(weight)]
    if bad:
        raise PublicValueError(f"weights must be between 1e-6 and 1e6, got others for {bad}.")
    return tuple(map(names.index, always)), np.array([*weights.values()], dtype=np.float64)


def check_n_asked(n_asked, sizes, epsilon, limit, always, weights):
    """Return the number of columns to ask; "auto" chooses it.

    Raises
    ------
    PublicValueError
        It exceeds the number of columns, is smaller than the number of ``always``, or is too large
        for the budget.
    """
    n_columns = int(np.count_nonzero(weights))
    most = min(n_columns, most_asked(limit))
    if len(always) > most:
        raise PublicValueError(
            f"always must name at most {most} columns for one joint answer with epsilon="
            f"{epsilon:g}, got {len(always)}."
        )
    if n_asked == "auto":
        return choose_n_asked(sizes, epsilon, limit, always, weights)
    if n_asked > n_columns:
        raise PublicValueError(
            f"n_asked must be at most the {n_columns} columns to ask about, got {n_asked}."
        )
    if n_asked < len(always):
        raise PublicValueError(
            f"n_asked must be at least the {len(always)} columns of always, got {n_asked}."
        )
    if n_asked > most:
        raise PublicValueError(
            f"n_asked must be at most {most} for epsilon={epsilon:g}, with two groups per column, "
            f"got {n_asked}."
        )
    return int(n_asked)


def _is_weight(weight):
    is_number = isinstance(weight, Real) and not isinstance(weight, bool)
    return is_number and 1e-6 <= weight <= 1e6
