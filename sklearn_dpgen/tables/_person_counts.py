"""Exact counts of persons with rows, to which one person adds vectors of norm at most 1."""

import numpy as np

from sklearn_dpgen.tables._person_layout import SLOTS, aggregate_steps, change_cells
from sklearn_dpgen.tables._table_counter import WHOLE, CodeCounter, CountLayout

__all__ = ["PersonRecords"]

# Rows per block, which fit in the cache of a processor.
_BLOCK = 1 << 16
_ONLY, _FIRST, _MIDDLE, _LAST = range(len(SLOTS))


class PersonRecords:
    """Encoded rows of persons in all tables, with the variables derived from them.

    Every variable of a row is a function of the rows of the same person. A person's rows in one
    table have total weight at most 1, so that a person adds a non-negative vector of l1 norm, and
    hence of l2 norm, at most 1 to each marginal.

    Parameters
    ----------
    layout : PersonLayout
    rows : list of TableRows
        From :func:`~sklearn_dpgen.tables._person_rows.read_person_rows`, parents first.

    Attributes
    ----------
    n_records : int
        Number of persons.
    """

    def __init__(self, layout, rows):
        self._layout = layout
        self._parents = [table.parent for table in rows]
        self._weights = [table.weights for table in rows]
        self.n_records = len(rows[0].weights)
        self._codes: dict = {}
        self._sizes: dict = {}
        for own, table in zip(layout.stages, rows, strict=True):
            self._codes.update(zip(own.columns, table.codes, strict=True))
        for j, groups in layout.joined.items():
            keys = self._codes[layout.variables[j].source]
            # Public rows may have keys that are not known, in a further group.
            most = groups.max() + 1
            self._codes[j] = _small(np.append(groups, most), most)[keys]
        for own, table in zip(layout.stages, rows, strict=True):
            if own.parent is not None:
                self._derive(own, table.parent, len(rows[own.parent].weights))
        for j in self._codes:
            tree = layout.variables[j].tree
            self._sizes[j] = tree.n_values + tree.nullable

    def _derive(self, own, parent, n_parents):
        """Add the number of rows of each parent row, and the variables of sequences."""
        layout, n_rows = self._layout, np.bincount(parent, minlength=n_parents)
        starts = np.cumsum(n_rows) - n_rows
        turn, sizes = np.arange(len(parent)) - starts[parent], n_rows[parent]
        is_first, is_last = turn == 0, turn == sizes - 1
        slots = np.full(len(parent), _MIDDLE, dtype=np.uint8)
        slots[is_last], slots[is_first] = _LAST, _FIRST
        slots[sizes == 1] = _ONLY
        self._codes[own.slot] = slots
        most = layout.variables[own.count].tree.n_values - 1
        self._codes[own.count] = _small(np.minimum(n_rows, most), most)
        for source, aggregate in own.aggregates.items():
            self._codes[aggregate] = self._aggregated(source, aggregate, parent, n_parents)
        if own.index is None:
            return
        index = self._codes[own.index].astype(np.int64)
        null = layout.variables[own.index].tree.n_values
        first = np.full(n_parents, null)
        first[parent[is_first]] = index[is_first]
        self._codes[own.first] = _small(first, null)
        before = np.append(0, index[:-1])
        gaps = np.where(is_first, null, index - before)
        # The largest gap that leaves room for the rows after this one.
        left = own.least_gap * (sizes - 1 - turn)
        rooms = np.where(is_first, null, np.clip(null - 1 - before - left, 0, null - 1))
        paces = np.where(is_first, null, rooms // np.maximum(sizes - turn, 1))
        self._codes[own.pace] = _small(paces, null)
        self._codes[own.gap], self._codes[own.room] = _small(gaps, null), _small(rooms, null)

    def _aggregated(self, source, aggregate, parent, n_parents):
        """Return the mean or the most frequent label of a variable for each parent row."""
        variable = self._layout.variables[source]
        null, steps = self._layout.variables[aggregate].tree.n_values, aggregate_steps(variable)
        codes = self._codes[source].astype(np.int64)
        # The code of a null is beyond those of values.
        known = codes <= (null - 1) // steps
        parent, codes = parent[known], codes[known]
        if variable.is_ordered:
            n_rows = np.bincount(parent, minlength=n_parents)
            sums = np.zeros(n_parents, dtype=np.int64)
            np.add.at(sums, parent, codes * steps)
            # Means are rounded to the nearest leaf, in exact integers.
            means = (2 * sums + n_rows) // np.maximum(2 * n_rows, 1)
            return _small(np.where(n_rows > 0, means, null), null)
        pairs, sizes = np.unique(parent * null + codes, return_counts=True)
        parents, labels = np.divmod(pairs, null)
        # Of several most frequent labels of a parent row, the one declared first.
        order = np.lexsort((labels, -sizes, parents))
        parents, first = np.unique(parents[order], return_index=True)
        found = np.full(n_parents, null)
        found[parents] = labels[order][first]
        return _small(found, null)

    def leaves(self, variable):
        """Return the exact counts of the categories of a variable."""
        stage = self._layout.variables[variable].stage
        codes = self._codes[variable]
        # Sums of integers below 2^53 are exact in doubles.
        counts = np.bincount(
            codes, self._weights[stage].astype(np.float64), minlength=self._sizes[variable]
        )
        return counts / WHOLE

    def use_blocks(self, maps, ratios=None):
        """Replace categories by blocks, and add memories, changes and ratios.

        Parameters
        ----------
        maps : mapping of int to ndarray of int
            The block of each category of each variable with a tree.
        ratios : mapping of int to (int, int, ndarray of int) or None, default=None
            For each ratio its two variables, and the cell of each pair of their blocks.
        """
        for j, blocks in maps.items():
            self._sizes[j] = int(blocks.max()) + 1
            self._codes[j] = _small(blocks, self._sizes[j])[self._codes[j]]
        for own, parent in zip(self._layout.stages, self._parents, strict=True):
            if own.parent is None:
                continue
            is_first = np.diff(parent, prepend=-1) > 0
            for source, memory in own.memories.items():
                size = self._sizes[source]
                before = np.append(0, self._codes[source][:-1]) if len(is_first) else is_first
                before = np.where(is_first, size, before)
                self._codes[memory], self._sizes[memory] = _small(before, size), size + 1
            for source, change in own.changes.items():
                cells = change_cells(self._layout.variables[source], self._sizes[source])
                pair = self._codes[own.memories[source]], self._codes[source]
                self._codes[change] = _small(cells, cells.max())[pair]
                self._sizes[change] = int(cells.max()) + 1
        for ratio, (first, second, cells) in (ratios or {}).items():
            pair = self._codes[first], self._codes[second]
            self._codes[ratio] = _small(cells, cells.max())[pair]
            self._sizes[ratio] = int(cells.max()) + 1

    def marginal_counts(self, marginals):
        """Return the exact counts of marginals of blocks, after :meth:`use_blocks`.

        Parameters
        ----------
        marginals : list of Marginal
            Over variables of one table and its ancestors.

        Returns
        -------
        list of ndarray of float64
            Multiples of 2^-23. A person adds a vector of norm at most 1 to each.
        """
        counts: list = [None] * len(marginals)
        by_stage: dict = {}
        for i, marginal in enumerate(marginals):
            by_stage.setdefault(self._layout.stage_of(marginal.columns), []).append(i)
        for stage, positions in by_stage.items():
            used = sorted({j for i in positions for j in marginals[i].columns})
            codes = [self.at(stage, j) for j in used]
            layout = CountLayout(
                [self._sizes[j] for j in used],
                [tuple(map(used.index, marginals[i].columns)) for i in positions],
                [marginals[i].groups for i in positions],
                len(codes[0]),
            )
            counter = CodeCounter(layout)
            for start in range(0, len(codes[0]), _BLOCK):
                chunk = slice(start, start + _BLOCK)
                counter.count_codes([c[chunk] for c in codes], self._weights[stage][chunk])
            for i, table in zip(positions, counter.tables(), strict=True):
                counts[i] = table / WHOLE
        return counts

    def at(self, stage, variable):
        """Return a variable of a table or of an ancestor for each row of the table."""
        path, codes = self._layout.path(stage), self._codes[variable]
        above = path[: path.index(self._layout.variables[variable].stage)]
        for below in reversed(above):
            codes = codes[self._parents[below]]
        return codes


def _small(values, largest):
    """Return non-negative integers in the smallest unsigned dtype."""
    return np.asarray(values).astype(np.min_scalar_type(int(largest)))
