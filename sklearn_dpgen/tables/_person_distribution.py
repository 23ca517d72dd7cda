"""Fitted distribution of persons and their rows: log-linear conditionals, drawn row after row."""

from dataclasses import dataclass, field

import numpy as np

from sklearn_dpgen.persistence._declarations import (
    Array,
    Maybe,
    demand,
    is_distribution,
    list_of,
    saved,
)
from sklearn_dpgen.tables._distributions import (
    LogLinearConditional,
    LogLinearTerm,
    check_term,
    draw_weighted,
    resampled,
)
from sklearn_dpgen.tables._person_layout import SLOTS

__all__ = ["PersonDistribution", "PersonSimulator", "PublicStageRows", "StageRows", "has_bins"]

_ONLY, _FIRST, _MIDDLE, _LAST = range(len(SLOTS))
# The logit of an impossible block.
_IMPOSSIBLE = -30.0
# Most draws of a gap that exceeds its room.
_GAP_DRAWS = 8


@saved
@dataclass(frozen=True, eq=False)
class PublicStageRows:
    """Public rows of one table, one of which each synthetic row copies in part.

    Parameters
    ----------
    variables : tuple of int
        The variables that are known.
    codes : ndarray of int of shape (n, n_variables)
        The block of each cell, -1 where it is not known.
    weights : ndarray of shape (n,)
        Of sum 1, by which rows are drawn; empty if they are those of the public row above.
    starts : ndarray of int of shape (n_parents + 1,)
        The first row of each public parent row, and the number of rows; empty with weights.
    """

    _saved_state = {
        "variables": tuple[int, ...],
        "codes": Array("i", 2, low=-1),
        "weights": Array("f", 1, low=0),
        "starts": Array("i", 1, low=0),
    }

    variables: tuple[int, ...]
    codes: np.ndarray
    weights: np.ndarray
    starts: np.ndarray

    def _check_saved_state(self):
        n, width = self.codes.shape
        demand(width == len(self.variables), "Public rows have other variables.")
        if len(self.starts):
            steps = np.diff(self.starts)
            is_whole = self.starts[0] == 0 and self.starts[-1] == n and (steps >= 0).all()
            demand(is_whole and not len(self.weights), "Public rows have other parents.")
        else:
            fits = len(self.weights) == n and is_distribution(self.weights)
            demand(fits, "Public rows have other weights.")

    def draw(self, turns, above, rng):
        """Draw a row for each synthetic row.

        Parameters
        ----------
        turns : ndarray of int of shape (m,)
            The position of each row among those of its parent.
        above : ndarray of int of shape (m,)
            The public row of its parent row, -1 for none.
        rng : numpy.random.Generator

        Returns
        -------
        ndarray of int of shape (m,)
            The row at the same position, or drawn by weight. -1 if there is no such row.
        """
        if not len(self.starts):
            return resampled(self.weights, len(turns), rng)
        places = self.starts[above] + turns
        return np.where((above >= 0) & (places < self.starts[above + 1]), places, -1)

    def block(self, place, rows, lacking):
        """Return the block of a variable in some rows, ``lacking`` where it is not known."""
        blocks = np.append(self.codes[:, place], -1)[rows]
        return np.where(blocks < 0, lacking, blocks)


@saved
@dataclass(frozen=True, eq=False)
class PersonDistribution:
    """Distribution of persons and their rows in all tables.

    Parameters
    ----------
    blocks : list of ndarray of int
        For each variable of the layout, the block of each category; empty for memories and changes.
    shares : list of ndarray
        The shares of the categories within their blocks.
    starts : list of ndarray of int
        The first leaf of each category of a variable with bins; empty for others.
    conditionals : dict of int to LogLinearConditional
        For each variable that is drawn.
    public : dict of int to PublicStageRows, default={}
        For each table the public rows, one of which each row copies in part. Their variables are
        parents too: those of index p + j for variable j of p, with a further block where they are
        not known.

    Notes
    -----
    A person is drawn first, with the numbers of their rows. The rows of a child table are drawn
    one after another: the index, as the index before plus a gap that leaves room for the rows
    after it, then each value given the person, the position of the row, the row before, and earlier
    values.
    """

    _saved_state = {
        "blocks": list_of(Array("i", 1, low=0)),
        "shares": list_of(Array("f", 1, low=0)),
        "starts": list_of(Array("i", 1, low=0)),
        "conditionals": dict[int, LogLinearConditional],
        # Absent in files of earlier releases.
        "public": Maybe(dict[int, PublicStageRows]),
    }

    blocks: list[np.ndarray]
    shares: list[np.ndarray]
    starts: list[np.ndarray]
    conditionals: dict[int, LogLinearConditional]
    public: dict[int, PublicStageRows] = field(default_factory=dict)

    def _check_saved_state(self):
        n = len(self.blocks)
        demand(n == len(self.shares) == len(self.starts), "A distribution has other variables.")
        for column, conditional in self.conditionals.items():
            demand(0 <= column == conditional.column < n, "A distribution draws other variables.")

    def check_layout(self, layout):
        """Raise InvalidFileError unless all that a layout declares can be drawn.

        Parameters
        ----------
        layout : PersonLayout
        """
        variables, n = layout.variables, len(layout.variables)
        demand(len(self.blocks) == n, "A distribution has other variables.")
        parts = zip(variables, self.blocks, self.shares, self.starts, strict=True)
        sizes = [_checked_size(*part) for part in parts]
        for own in layout.stages:
            for source, memory in own.memories.items():
                sizes[memory] = sizes[source] + 1
        drawn = {j for own in layout.stages for j in own.own if not variables[j].is_constant}
        drawn |= {own.gap for own in layout.stages if own.gap is not None}
        demand(set(self.conditionals) == drawn, "A distribution does not draw all variables.")
        counted = {j for j, size in enumerate(sizes) if size}
        self._check_public(layout, sizes)
        # A further block of each public variable is for cells that are not known.
        counted |= {n + j for rows in self.public.values() for j in rows.variables}
        sizes = [*sizes, *(size + 1 for size in sizes)]
        for column, conditional in self.conditionals.items():
            demand(len(conditional.base) == sizes[column], "A variable has other blocks.")
            for term in conditional.terms:
                check_term(term, column, counted, sizes)

    def _check_public(self, layout, sizes):
        for place, rows in self.public.items():
            demand(0 <= place < len(layout.stages), "Public rows are of another table.")
            own = layout.stages[place]
            demand(set(rows.variables) <= {*own.own}, "Public rows have other variables.")
            fits = (rows.codes < [sizes[j] for j in rows.variables]).all()
            demand(fits, "Public rows have other blocks.")
            if len(rows.starts):
                above = self.public.get(own.parent)
                fits = above is not None and len(above.codes) == len(rows.starts) - 1
                demand(fits, "Public rows have other parents.")


def _checked_size(variable, blocks, shares, starts):
    """Return the number of blocks of a variable of a loaded distribution, 0 for memories."""
    demand(len(blocks) == len(shares), "A variable has shares of other categories.")
    tree = variable.tree
    if tree is None:
        demand(not len(blocks) and not len(starts), "A memory has categories of its own.")
        return 0
    n_categories = tree.n_values
    if has_bins(tree):
        is_ascending = len(starts) and starts[0] == 0 and (np.diff(starts) > 0).all()
        demand(is_ascending and starts[-1] < tree.n_values, "A variable has other bins.")
        n_categories = len(starts) + tree.nullable
    else:
        demand(not len(starts), "A variable without bins has bins.")
    demand(len(blocks) == n_categories, "A variable has other categories.")
    size = int(blocks.max()) + 1
    demand(size <= n_categories, "A variable has more blocks than categories.")
    # Each block must have a category to draw.
    demand((np.bincount(blocks, shares, minlength=size) > 0).all(), "A block has no category.")
    return size


def has_bins(tree):
    """Return whether the categories of a variable are intervals of leaves, and null."""
    return not tree.is_flat or tree.nullable


@dataclass(frozen=True, eq=False)
class StageRows:
    """Drawn rows of one table.

    Parameters
    ----------
    codes : ndarray of int of shape (n, n_variables)
        Blocks of the variables of the table and its ancestors.
    parent : ndarray of int of shape (n,) or None
        The row of the parent; None for the root.
    starts, turns, sizes : ndarray of int
        For each parent row its first row; for each row its position among the rows of its parent,
        and their number. None for the root.
    index : ndarray of int of shape (n,) or None
        The leaf of the sequence index.
    """

    codes: np.ndarray
    parent: np.ndarray | None = None
    starts: np.ndarray | None = None
    turns: np.ndarray | None = None
    sizes: np.ndarray | None = None
    index: np.ndarray | None = None

    @property
    def previous(self):
        """The position of the row before each row, which may belong to another parent row."""
        return np.maximum(np.arange(len(self.codes)) - 1, 0)

    def at(self, rows):
        """Return a copy of the codes of some rows."""
        return np.asfortranarray(self.codes[rows])


class PersonSimulator:
    """Draws of persons and rows from a distribution that may still be fitted.

    Parameters
    ----------
    layout : PersonLayout
    distribution : PersonDistribution
    """

    def __init__(self, layout, distribution):
        self.layout, self.distribution = layout, distribution
        self.conditionals = distribution.conditionals
        self._leaf_blocks = {}
        self._n_blocks = [int(b.max()) + 1 if len(b) else 0 for b in distribution.blocks]
        for own in layout.stages:
            for source, memory in own.memories.items():
                self._n_blocks[memory] = self._n_blocks[source] + 1

    def n_blocks(self, variable):
        """Return the number of blocks of a variable."""
        return self._n_blocks[variable]

    def leaves(self, variable, blocks, rng):
        """Draw a leaf in each of some blocks; null is the leaf after the last one."""
        categories = self.categories(variable, blocks, rng)
        starts, tree = self.distribution.starts[variable], self.layout.variables[variable].tree
        if not len(starts):
            return categories
        edges = np.append(starts, tree.n_values)
        inside = np.minimum(categories, len(starts) - 1)
        widths = edges[inside + 1] - edges[inside]
        drawn = edges[inside] + (rng.uniform(size=len(inside)) * widths).astype(np.int64)
        return np.where(categories < len(starts), drawn, tree.n_values)

    def categories(self, variable, blocks, rng):
        """Draw a category in each of some blocks."""
        of_block, shares = self.distribution.blocks[variable], self.distribution.shares[variable]
        return draw_weighted(of_block, shares, blocks, rng)

    def block_of(self, variable, leaves):
        """Return the blocks of leaves."""
        if variable not in self._leaf_blocks:
            starts, tree = self.distribution.starts[variable], self.layout.variables[variable].tree
            blocks = self.distribution.blocks[variable]
            self._leaf_blocks[variable] = blocks[tree.bins(starts)] if len(starts) else blocks
        return self._leaf_blocks[variable][leaves]

    def persons(self, n, rng):
        """Draw the blocks of persons, without rows."""
        codes = self.blank(n, rng)
        self.draw(self.layout.stages[0].own, codes, rng)
        return StageRows(codes)

    def blank(self, n, rng):
        """Return the codes of persons before any variable is drawn, with their public rows."""
        n_variables, public = len(self.layout.variables), self.distribution.public
        # For each variable and that of the public row, and the place of this row in each table.
        width = 2 * n_variables + len(self.layout.stages) if public else n_variables
        codes = np.zeros((n, width), dtype=np.int32, order="F")
        self._give(0, codes, np.zeros(n, dtype=np.int64), rng)
        return codes

    def _give(self, stage, codes, turns, rng):
        """Give each of some rows a public row of its table, in place."""
        if stage not in self.distribution.public:
            return
        public, n = self.distribution.public[stage], len(self.layout.variables)
        above = codes[:, 2 * n + (self.layout.stages[stage].parent or 0)]
        found = public.draw(turns, above, rng)
        codes[:, 2 * n + stage] = found
        for place, j in enumerate(public.variables):
            codes[:, n + j] = public.block(place, found, self.n_blocks(j))

    def draw(self, variables, codes, rng, allowed=None):
        """Draw variables in their order, those that have a conditional, in place.

        ``allowed`` has the allowed fraction of each block of variables with a condition; the
        probabilities of these conditions are returned.
        """
        chances = np.ones(len(codes))
        for j in variables:
            if j in self.conditionals:
                kept = (allowed or {}).get(j)
                codes[:, j], chance = self.conditionals[j].draw(codes, rng, kept)
                if kept is not None:
                    codes[chance == 0, j] = np.argmax(kept)
                    chances *= chance
        return chances

    def numbers(self, stage, parents, rng):
        """Draw the number of rows of each parent row."""
        count = self.layout.stages[stage].count
        return self.leaves(count, parents[:, count], rng)

    def positions(self, stage, parents, sizes, rng):
        """Draw rows with their positions and indices, and without values.

        Parameters
        ----------
        stage : int
        parents : ndarray of int of shape (n, n_variables)
            Codes of the parent rows.
        sizes : ndarray of int of shape (n,)
            The number of rows of each.
        rng : numpy.random.Generator

        Returns
        -------
        StageRows
        """
        own = self.layout.stages[stage]
        parent = np.repeat(np.arange(len(parents)), sizes)
        starts = np.cumsum(sizes) - sizes
        turns, n_rows = np.arange(len(parent)) - starts[parent], sizes[parent]
        codes = np.asfortranarray(parents[parent])
        self._give(stage, codes, turns, rng)
        codes[:, own.slot] = np.where(
            n_rows == 1,
            _ONLY,
            np.where(turns == 0, _FIRST, np.where(turns == n_rows - 1, _LAST, _MIDDLE)),
        )
        index = None
        if own.index is not None:
            index = self._indices(own, codes, starts, turns, n_rows, sizes, parents, rng)
        return StageRows(codes, parent, starts, turns, n_rows, index)

    def _indices(self, own, codes, starts, turns, n_rows, sizes, parents, rng):
        """Draw the index of each row in turn, and write its variables into the codes."""
        last = self.layout.variables[own.index].tree.n_values - 1
        null = last + 1
        first = self.leaves(own.first, parents[:, own.first], rng)
        first = np.minimum(first, last - own.least_gap * np.maximum(sizes - 1, 0))
        index = np.empty(len(codes), dtype=np.int64)
        is_first = turns == 0
        index[starts[sizes > 0]] = np.maximum(first[sizes > 0], 0)
        codes[is_first, own.gap] = self.block_of(own.gap, null)
        codes[is_first, own.room] = self.block_of(own.room, null)
        codes[is_first, own.pace] = self.block_of(own.pace, null)
        codes[is_first, own.memories[own.index]] = self.n_blocks(own.index)
        codes[is_first, own.memories[own.gap]] = self.n_blocks(own.gap)
        for turn in range(1, int(sizes.max(initial=0))):
            rows = starts[sizes > turn] + turn
            before = index[rows - 1]
            room = last - before - own.least_gap * (n_rows[rows] - 1 - turn)
            part = np.asfortranarray(codes[rows])
            part[:, own.room] = self.block_of(own.room, np.clip(room, 0, last))
            paces = np.clip(room, 0, last) // (n_rows[rows] - turn)
            part[:, own.pace] = self.block_of(own.pace, paces)
            part[:, own.memories[own.index]] = self.block_of(own.index, before)
            part[:, own.memories[own.gap]] = codes[rows - 1, own.gap]
            gaps = self._gaps(own, part, room, rng)
            index[rows] = before + gaps
            part[:, own.gap] = self.block_of(own.gap, gaps)
            columns = [own.room, own.pace, own.gap, own.memories[own.index], own.memories[own.gap]]
            for j in columns:
                codes[rows, j] = part[:, j]
        codes[:, own.index] = self.block_of(own.index, index)
        return index

    def _gaps(self, own, part, room, rng):
        """Draw gaps, given that none exceeds its room."""
        gaps = np.full(len(part), np.iinfo(np.int64).max)
        for _ in range(_GAP_DRAWS):
            over = np.flatnonzero(gaps > room)
            if not len(over):
                break
            drawn, _ = self.conditionals[own.gap].draw(part[over], rng)
            gaps[over] = self.leaves(own.gap, drawn, rng)
        # Gaps cut at the room would all end at the bound of the index, with all later rows.
        over = gaps > room
        widths = np.maximum(room[over] - own.least_gap, 0) + 1
        gaps[over] = own.least_gap + (rng.uniform(size=over.sum()) * widths).astype(np.int64)
        return np.maximum(gaps, own.least_gap)

    def values(self, stage, rows, rng, draw=None):
        """Draw the values of all rows in turn, in place.

        ``draw(now, part)`` replaces the draw of the codes ``part`` of the rows ``now`` of a turn.
        """
        own = self.layout.stages[stage]
        columns = own.own
        draw = draw or (lambda now, part: self.draw(columns, part, rng))
        memories = {s: m for s, m in own.memories.items() if s in own.values}
        now = np.flatnonzero(rows.turns == 0)
        for turn in range(int(rows.sizes.max(initial=0))):
            if turn:
                now = now[rows.sizes[now] > turn] + 1
            part = rows.at(now)
            for source, memory in memories.items():
                before = self.n_blocks(source) if turn == 0 else rows.codes[now - 1, source]
                part[:, memory] = before
            draw(now, part)
            for j in (*memories.values(), *columns):
                rows.codes[now, j] = part[:, j]

    def first_rules(self, own):
        """Return the term that excludes impossible first indices.

        They are null if and only if there are no rows, and leave room for the rows after them.
        """
        least, most = self._ranges(own.count)
        low, _ = self._ranges(own.first)
        last = self.layout.variables[own.index].tree.n_values - 1
        null = int(self.distribution.blocks[own.first][-1])
        room = last - own.least_gap * np.maximum(least - 1, 0)
        table = np.where(low[None] > room[:, None], _IMPOSSIBLE, 0.0)
        table[most == 0], table[:, null] = _IMPOSSIBLE, np.where(least > 0, _IMPOSSIBLE, 0.0)
        return LogLinearTerm((own.count,), tuple(np.arange(n) for n in table.shape), table)

    def aggregate_rules(self, aggregate):
        """Return the term that excludes aggregates of no rows, and null if values have no null."""
        source = self.layout.variables[self.layout.variables[aggregate].source]
        own = self.layout.stages[source.stage]
        least, most = self._ranges(own.count)
        null = int(self.distribution.blocks[aggregate][-1])
        table = np.zeros((len(least), self.n_blocks(aggregate)))
        table[most == 0] = _IMPOSSIBLE
        table[:, null] = 0.0 if source.n_nulls else np.where(least > 0, _IMPOSSIBLE, 0.0)
        return LogLinearTerm((own.count,), tuple(np.arange(n) for n in table.shape), table)

    def _ranges(self, variable):
        """Return the smallest and the largest leaf of each block."""
        leaves = np.arange(self.layout.variables[variable].tree.n_values)
        blocks, size = self.block_of(variable, leaves), self.n_blocks(variable)
        least, most = np.full(size, len(leaves)), np.full(size, -1)
        np.minimum.at(least, blocks, leaves)
        np.maximum.at(most, blocks, leaves)
        return least, most

    def gap_rules(self, own):
        """Return the terms that exclude impossible gaps: in first rows, and beyond the room."""
        gaps, rooms = self.distribution.blocks[own.gap], self.distribution.blocks[own.room]
        n_gaps, n_rooms = self.n_blocks(own.gap), self.n_blocks(own.room)
        null = int(gaps[-1])
        slots = np.zeros((len(SLOTS), n_gaps))
        slots[:_MIDDLE] = _IMPOSSIBLE
        slots[:_MIDDLE, null], slots[_MIDDLE:, null] = 0, _IMPOSSIBLE
        # The smallest gap of a block, and the largest room of a block.
        least, most = np.full(n_gaps, np.iinfo(np.int64).max), np.zeros(n_rooms)
        starts = self.distribution.starts[own.gap]
        np.minimum.at(least, gaps[: len(starts)], starts)
        starts = self.distribution.starts[own.room]
        stops = np.append(starts[1:], self.layout.variables[own.room].tree.n_values)
        np.maximum.at(most, rooms[: len(starts)], stops - 1)
        least[null], most[int(rooms[-1])] = 0, np.inf
        inside = np.where(least[None] > most[:, None], _IMPOSSIBLE, 0.0)
        whole = [np.arange(self.n_blocks(j)) for j in (own.slot, own.room, own.gap)]
        return (
            LogLinearTerm((own.slot,), (whole[0], whole[2]), slots),
            LogLinearTerm((own.room,), (whole[1], whole[2]), inside),
        )

    def calendar_term(self, own, logits):
        """Return the term of gaps that adds a logit for each block of the index that is reached."""
        last = self.layout.variables[own.index].tree.n_values - 1
        middles = [self._middles(j) for j in (own.index, own.gap)]
        reached = np.minimum(middles[0][:, None] + middles[1][None], last)
        table = logits[self.block_of(own.index, reached)]
        table[:, int(self.distribution.blocks[own.gap][-1])] = 0
        table = np.vstack([table, np.zeros(table.shape[1])])
        whole = np.arange(len(table)), np.arange(table.shape[1])
        return LogLinearTerm((own.memories[own.index],), whole, table)

    def _middles(self, variable):
        """Return the mean leaf of each block."""
        n = self.layout.variables[variable].tree.n_values
        blocks = self.block_of(variable, np.arange(n))
        size = self.n_blocks(variable)
        counts = np.bincount(blocks, minlength=size)
        sums = np.bincount(blocks, np.arange(n), minlength=size)
        return (sums / np.maximum(counts, 1)).astype(np.int64)
