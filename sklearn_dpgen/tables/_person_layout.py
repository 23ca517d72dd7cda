"""Public layout of persons and their rows: the variables that are counted, and the tables."""

from dataclasses import dataclass, field
from itertools import combinations

import numpy as np

from sklearn_dpgen.exceptions import PublicValueError
from sklearn_dpgen.schema import Identifier, Ordinal, Schema
from sklearn_dpgen.schema._binned import Binned
from sklearn_dpgen.tables._column_trees import MAX_LEAVES, ColumnTree
from sklearn_dpgen.tables._marginals import MAX_BLOCKS, ColumnBlocks
from sklearn_dpgen.tables._releases import column_trees, fine_encoder

__all__ = [
    "SLOTS",
    "PersonLayout",
    "StageVariables",
    "Variable",
    "aggregate_steps",
    "change_cells",
    "ratio_cells",
]

# Positions of a row among the rows of its parent: the only one, the first, a later one, the last.
SLOTS = ("only", "first", "middle", "last")
# Kinds with a noisy count of their own; slots, rooms and memories follow from other variables.
_RELEASED = frozenset({"value", "index", "joined", "count", "first", "aggregate", "gap"})
# The means of few values have about so many bins.
_MEANS = 64
# The most bins of the room that is left for later rows, which is public.
_ROOMS = 64


@dataclass(frozen=True, eq=False)
class Variable:
    """A variable of the rows of a table.

    Parameters
    ----------
    name : str
    stage : int
        The table whose rows have this variable.
    kind : str
        "value" and "index" are columns. "joined" is a column of the public table that has
        ``source`` as a key. "count" is the number of rows of a child table, and "first" the index
        of the first of them; "aggregate" is the mean of ``source`` over them, or its most frequent
        label. "gap" is the index less that of the row before,
        "slot" the position of a row, "room" the largest possible gap, and "pace" the room over the
        number of rows that are left. "memory" is the value of
        ``source`` in the row before, and "change" the change of ``source`` since then. "ratio" is
        the ratio of two variables of time.
    tree : ColumnTree or None
        None for memories, changes and ratios, whose categories follow from those of the source.
    is_ordered : bool
    n_nulls : int
        Number of last categories without a value: null, and for a memory also "no row before".
    source : int or None
    """

    name: str
    stage: int
    kind: str
    tree: ColumnTree | None
    is_ordered: bool
    n_nulls: int = 0
    source: int | None = None

    @property
    def is_released(self):
        """Whether counts of this variable alone are released."""
        return self.kind in _RELEASED and not self.is_constant

    @property
    def is_constant(self):
        """Whether the variable has a single category."""
        return self.tree is not None and self.tree.n_cells == 1


@dataclass
class StageVariables:
    """Indices of the variables of one table, by kind.

    Attributes
    ----------
    own : list of int
        Columns and derived variables that are drawn with a row, in the order of drawing: values of
        columns, then for each child table its number of rows, its first index and its aggregates.
    values : list of int
        Columns, without the sequence index and constant columns.
    joined : list of int
        Columns of public tables. They are groups of a key, which is drawn in their place.
    index, count, first, gap, room, pace, slot : int or None
        Variables of the sequence of rows; ``count`` and ``first`` are variables of the parent.
    aggregates : dict of int to int
        The aggregate of each value that has one, a variable of the parent.
    memories, changes : dict of int to int
        The memory of each value and joined column, and the change of each value.
    ratios : dict of int to (int, int)
        For each ratio the variable that it is relative to, and the variable: a gap relative to the
        pace, and a first index relative to that of rows at equal distances.
    columns : list of int or None
        The variable of each declared column.
    """

    parent: int | None
    ties: bool
    own: list = field(default_factory=list)
    values: list = field(default_factory=list)
    joined: list = field(default_factory=list)
    index: int | None = None
    count: int | None = None
    first: int | None = None
    gap: int | None = None
    room: int | None = None
    pace: int | None = None
    slot: int | None = None
    aggregates: dict = field(default_factory=dict)
    memories: dict = field(default_factory=dict)
    changes: dict = field(default_factory=dict)
    ratios: dict = field(default_factory=dict)
    columns: list = field(default_factory=list)

    @property
    def least_gap(self):
        """The smallest gap of two rows, in steps of the index."""
        return 0 if self.ties else 1


class PersonLayout:
    """Variables of all tables with keys, and the encoders of their columns.

    Parameters
    ----------
    stages : sequence of Stage
        Public declarations of the tables, parents first.

    Attributes
    ----------
    encoders : list of TabularEncoder or None
        Fitted encoders with the finest bins; None for a table without columns.
    variables : list of Variable
    stages : list of StageVariables
    joined : dict of int to ndarray of int
        The group of each key, for each joined column.
    parts : dict of int to ndarray of int
        For each key of joined columns, the combination of groups of each category.
    """

    def __init__(self, stages):
        self.declared = tuple(stages)
        self.encoders, self.variables, self.stages = [], [], []
        self.joined, self.parts = {}, {}
        for position, stage in enumerate(self.declared):
            self._add_columns(position, stage)
            self._add_joined(position, stage)
        for position, stage in enumerate(self.declared):
            if stage.parent is not None:
                self._add_sequence(position, stage)

    def _add(self, *args, **kwargs):
        self.variables.append(Variable(*args, **kwargs))
        return len(self.variables) - 1

    def _add_columns(self, position, stage):
        own = StageVariables(stage.parent, stage.ties)
        self.stages.append(own)
        if not stage.columns:
            self.encoders.append(None)
            return
        encoder, binned = fine_encoder(Schema(stage.columns), "auto")
        self.encoders.append(encoder.fit())
        trees = column_trees(encoder, binned)
        for (name, column), tree in zip(encoder.columns_.items(), trees, strict=True):
            kind = "index" if name == stage.index else "value"
            is_ordered = isinstance(column, Binned | Ordinal)
            n_nulls = int(getattr(column, "nullable", False))
            added = self._add(f"{stage.name}.{name}", position, kind, tree, is_ordered, n_nulls)
            own.columns.append(added)
            if kind == "index":
                own.index = added
            elif not self.variables[added].is_constant:
                own.values.append(added)
        own.own += own.values

    def _add_joined(self, position, stage):
        own = self.stages[position]
        for key, table in stage.public_keys.items():
            source = own.columns[[*stage.columns].index(key)]
            found, parts = joined_columns(table)
            for name, (groups, is_ordered, n_nulls) in found.items():
                tree = ColumnTree(int(groups.max()) + 1, is_flat=True)
                full = f"{stage.name}.{key}.{name}"
                added = self._add(full, position, "joined", tree, is_ordered, n_nulls, source)
                own.joined.append(added)
                self.joined[added] = groups
            if found:
                self.parts[source] = parts

    def _add_sequence(self, position, stage):
        own, parent = self.stages[position], self.stages[stage.parent]
        name = stage.name
        if stage.max_rows >= MAX_LEAVES:
            raise PublicValueError(
                f"max_rows of table {name!r} must be less than {MAX_LEAVES}, got {stage.max_rows}. "
                "Persons with more rows count, but as many are not drawn."
            )
        sizes = ColumnTree(stage.max_rows + 1)
        own.count = self._add(f"number of {name}", stage.parent, "count", sizes, True)
        parent.own.append(own.count)
        own.slot = self._add(
            f"position in {name}", position, "slot", ColumnTree(len(SLOTS), is_flat=True), False
        )
        if own.index is not None:
            tree = self.variables[own.index].tree
            first = ColumnTree(
                tree.n_values, nullable=True, is_flat=tree.is_flat, anchor=tree.anchor
            )
            own.first = self._add(f"first of {name}", stage.parent, "first", first, True, 1)
            parent.own.append(own.first)
            steps = ColumnTree(tree.n_values, nullable=True)
            own.gap = self._add(f"gap in {name}", position, "gap", steps, True, 1)
            own.room = self._add(f"room in {name}", position, "room", steps, True, 1)
            own.pace = self._add(f"pace in {name}", position, "pace", steps, True, 1)
            ratio = self._add(f"relative gap in {name}", position, "ratio", None, True)
            own.ratios[ratio] = own.pace, own.gap
            ratio = self._add(f"relative first of {name}", stage.parent, "ratio", None, True)
            parent.ratios[ratio] = own.count, own.first
        for column, source in zip(stage.columns, own.columns, strict=True):
            variable = self.variables[source]
            if column in stage.aggregates and not variable.is_constant:
                own.aggregates[source] = self._add(
                    f"aggregate of {variable.name}",
                    stage.parent,
                    "aggregate",
                    _aggregate_tree(variable),
                    variable.is_ordered,
                    1,
                    source,
                )
        parent.own += own.aggregates.values()
        sources = own.values + own.joined + [v for v in (own.index, own.gap) if v is not None]
        for source in sources:
            variable = self.variables[source]
            own.memories[source] = self._add(
                f"previous {variable.name}",
                position,
                "memory",
                None,
                variable.is_ordered,
                variable.n_nulls + 1,
                source,
            )
        for source in own.values:
            own.changes[source] = self._add(
                f"change of {self.variables[source].name}",
                position,
                "change",
                None,
                True,
                0,
                source,
            )

    def variable(self, stage, name):
        """Return the variable of a column of a stage."""
        return self.stages[stage].columns[list(self.declared[stage].columns).index(name)]

    def most_blocks(self, variable):
        """Return a bound on the number of blocks of a variable."""
        own = self.variables[variable]
        if own.kind == "memory":
            return self.most_blocks(own.source) + 1
        if own.kind == "ratio":
            return len(_RATIOS) + 2
        if own.kind == "change":
            cells = change_cells(self.variables[own.source], self.most_blocks(own.source))
            return int(cells.max()) + 1
        return min(own.tree.n_values + own.tree.nullable, MAX_BLOCKS)

    def path(self, stage):
        """Return the stage and its ancestors, from the stage to the root."""
        found = []
        while stage is not None:
            found.append(stage)
            stage = self.stages[stage].parent
        return found

    def stage_of(self, columns):
        """Return the deepest stage of some variables."""
        return max((self.variables[j].stage for j in columns), key=lambda s: len(self.path(s)))

    def room_starts(self, variable):
        """Return the first leaf of each bin of a room: single steps, then growing intervals."""
        n = self.variables[variable].tree.n_values
        starts = np.append(np.arange(min(n, _ROOMS)), np.geomspace(1, max(n - 1, 1), _ROOMS))
        return np.unique(starts.astype(np.int64))

    def sequences(self):
        """Return the marginals without which sequences cannot be drawn.

        They are the changes of values, and for tables with an index those of gaps.
        """
        tables: list[tuple] = []
        for own in self.stages:
            tables += [(variable,) for variable in (*own.changes.values(), *own.ratios)]
            if own.index is None:
                continue
            known = [own.pace, own.memories[own.index], own.count, own.memories[own.gap]]
            tables += [(j, own.gap) for j in known] + [(own.count, own.first)]
        return [tuple(sorted(columns)) for columns in tables]

    def pairs(self):
        """Return all other two-way marginals, of the same row or of a row and its ancestors."""
        tables: list[tuple] = []
        for position, own in enumerate(self.stages):
            # Columns of one public table, and its key, depend on each other in a public way.
            tables += [
                (a, b)
                for a, b in combinations(own.own + own.joined, 2)
                if self._key_of(a) != self._key_of(b)
            ]
            if own.parent is None:
                continue
            ancestors = [
                j
                for above in self.path(position)[1:]
                for j in self.stages[above].own + self.stages[above].joined
                if self.variables[j].kind != "first"
            ]
            tables += [(a, c) for a in ancestors for c in own.own + own.joined]
            for c in own.values + own.joined:
                tables += [(own.slot, c), (own.memories[c], c)]
                if own.index is not None:
                    tables.append((own.index, c))
            if own.index is not None:
                above = [j for j in ancestors if self.variables[j].kind == "value"]
                tables += [(j, own.gap) for j in (own.slot, *above)]
        known = set(self.sequences())
        sorted_tables = dict.fromkeys(tuple(sorted(columns)) for columns in tables)
        return [columns for columns in sorted_tables if columns not in known]

    def _key_of(self, variable):
        return self.variables[variable].source if variable in self.joined else variable


def joined_columns(table):
    """Return the columns of a public table as groups of its keys.

    Groups have two keys on average or more: finer ones are the key itself. The combinations are at
    most as many as the blocks of a key, and until they are, the column with the most groups gets
    half of them.

    Parameters
    ----------
    table : Table
        With a frame.

    Returns
    -------
    columns : dict of str to (ndarray of int of shape (n_keys,), bool, int)
        The group of each key, whether groups are ordered, and how many of the last ones are null.
        Columns with one group are left out.
    parts : ndarray of int of shape (n_keys,)
        The combination of groups of each key.
    """
    declared = {n: c for n, c in table.schema.items() if not isinstance(c, Identifier)}
    encoder, _ = fine_encoder(Schema(declared), "auto")
    columns = encoder.fit().columns_
    codes, counts = zip(
        *(
            np.unique(column.codes(table.frame[n]), return_inverse=True, return_counts=True)[1:]
            for n, column in columns.items()
        ),
        strict=True,
    )
    is_ordered = [isinstance(column, Binned | Ordinal) for column in columns.values()]
    n_nulls = [int(table.frame[name].isna().any()) for name in columns]
    blocks = ColumnBlocks(counts, is_ordered, n_nulls, [0] * len(codes))
    sizes = [min(size, len(table.frame) // 2) for size in blocks.sizes]
    while True:
        used = [i for i, size in enumerate(sizes) if size > 1]
        groups = [
            blocks.marginal((i,), sizes[i]).groups[0][blocks.blocks[i]][codes[i]] for i in used
        ]
        parts = np.zeros(len(table.frame), dtype=np.int64)
        for own in groups:
            parts = np.unique(parts * MAX_BLOCKS + own, return_inverse=True)[1]
        if parts.max() < MAX_BLOCKS:
            break
        widest = max(used, key=lambda i: (sizes[i], i))
        sizes[widest] = (sizes[widest] + 1) // 2
    names = [*columns]
    return {
        # A group of two may have null and values.
        names[i]: (own, is_ordered[i], int(n_nulls[i] and sizes[i] > 2))
        for i, own in zip(used, groups, strict=True)
    }, parts


def aggregate_steps(variable):
    """Return the number of leaves of an aggregate per leaf of the variable.

    Means of few values need a finer grid than these values.
    """
    n_values = variable.tree.n_values - variable.tree.is_flat * variable.n_nulls
    return max(_MEANS // max(n_values - 1, 1), 1) if variable.is_ordered else 1


def _aggregate_tree(variable):
    """Return the tree of the mean or the most frequent label of a variable, with null."""
    tree = variable.tree
    n_values = tree.n_values - tree.is_flat * variable.n_nulls
    if not variable.is_ordered:
        return ColumnTree(n_values, nullable=True, is_flat=True)
    steps = aggregate_steps(variable)
    return ColumnTree((n_values - 1) * steps + 1, nullable=True, anchor=tree.anchor * steps)


# Edges between the cells of a ratio.
_RATIOS = (0.125, 0.25, 0.5, 0.75, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0, 8.0)


def ratio_cells(first, second):
    """Return the cell of the ratio of two variables, for each pair of blocks.

    Parameters
    ----------
    first, second : ndarray of shape (m,), (n,)
        The mean value of each block of the variables; NaN for null.

    Returns
    -------
    ndarray of int of shape (m, n)
        The cell of ``second / first``; nulls have a cell of their own, the last one.
    """
    ratios = second[None] / first[:, None]
    cells = np.searchsorted(_RATIOS, np.nan_to_num(ratios), side="right")
    return np.where(np.isnan(ratios), len(_RATIOS) + 1, cells)


def change_cells(variable, n_blocks):
    """Return the cell of the change of a value, for each pair of blocks.

    Parameters
    ----------
    variable : Variable
        The value.
    n_blocks : int

    Returns
    -------
    ndarray of int of shape (n_blocks + 1, n_blocks)
        The cell for the block in the row before, the last one of which is "no row before", and the
        block in the row. Ordered values change by 0, 1, 2 or 3, 4 to 7, ... blocks up or down;
        others stay or change. Nulls have cells of their own.
    """
    n_values = n_blocks - variable.n_nulls
    before, after = np.arange(n_blocks + 1)[:, None], np.arange(n_blocks)[None]
    if not variable.is_ordered:
        cells = (before == after).astype(np.int64)
        cells[-1] = 2
        return cells
    steps = after - before
    powers = np.floor(np.log2(np.maximum(np.abs(steps), 1))).astype(np.int64) + 1
    cells = np.where(steps == 0, 0, np.sign(steps) * powers)
    inside = cells[:n_values, :n_values]
    cells = cells - inside.min()
    top = int(cells[:n_values, :n_values].max())
    if variable.n_nulls:
        cells[n_values:n_blocks, :n_values] = top + 1
        cells[:n_values, n_values:] = top + 2
        cells[n_values:n_blocks, n_values:] = top + 3
        top += 3
    cells[-1] = top + 1
    return cells
