"""Fit of the distribution of persons and their rows to noisy marginals."""

import math
from dataclasses import replace

import numpy as np
from tqdm import tqdm

from sklearn_dpgen.schema._binned import Binned
from sklearn_dpgen.tables._column_trees import ColumnCells
from sklearn_dpgen.tables._distributions import joint_codes
from sklearn_dpgen.tables._log_linear_fit import CopiedColumn, NoisyTable, fit_conditional
from sklearn_dpgen.tables._marginals import ColumnBlocks, Marginal, _zero_edge, group_sums
from sklearn_dpgen.tables._person_distribution import PersonDistribution, PersonSimulator, has_bins
from sklearn_dpgen.tables._person_layout import change_cells, ratio_cells
from sklearn_dpgen.tables._person_prior import PersonPrior, change_ridges
from sklearn_dpgen.tables._person_rules import barred_terms
from sklearn_dpgen.tables._privacy_plan import affordable_cells
from sklearn_dpgen.tables._public_columns import public_cells
from sklearn_dpgen.tables._public_persons import public_leaves_of
from sklearn_dpgen.tables._records import with_bins
from sklearn_dpgen.tables._releases import (
    Measurements,
    NoisyMarginal,
    noise_factors,
    release_marginals,
    release_singles,
    total_records,
)
from sklearn_dpgen.tables._table_rules import possible_cells
from sklearn_dpgen.utils._devices import device_name

__all__ = ["PersonFit", "PersonMeasurements"]

# Sparse tables of the index are counted in so many times more cells than others: a year without
# rows, or a largest gap, is seen in the fine table only.
_FINER = 10
# The least groups of each column of a pair, and the labels that are told apart: dependence that few
# groups do not show is neither released again nor fitted.
_LEAST_GROUPS, _LEAST_LABELS = 4, 5


class PersonMeasurements:
    """Noisy marginals of the variables of persons and their rows.

    Parameters
    ----------
    layout : PersonLayout
    leaves : mapping of int to ndarray
        Exact counts of the categories of each released variable.
    weights : mapping of int to float
        Public weights of the variables.
    noise_scale : float
        Standard deviation of the noise of the released vector.
    release : callable
        Mechanism, as for :func:`~sklearn_dpgen.tables._releases.release_singles`.
    n_records : int or None
        The number of persons if it is public; None estimates it.
    public : dict of int to PublicStage, default={}
        Public rows of some tables, as a prior.

    Attributes
    ----------
    n_records : list of float
        For each table the number of persons with rows in it.
    encoders : list of TabularEncoder or None
        Encoders with the final bins.
    singles : list of NoisyMarginal
    prior : PersonPrior or None
    """

    def __init__(self, layout, leaves, weights, noise_scale, release, n_records, public=None):
        self.layout, self.prior = layout, None
        # The shares of each released pair, and their noise.
        self._pairs: dict = {}
        variables, released = layout.variables, sorted(leaves)
        trees = [variables[j].tree for j in released]
        own_weights = np.array([weights[j] for j in released])
        counts, factors = release_singles(
            [leaves[j] for j in released], trees, own_weights, release
        )
        self.n_records = []
        for stage in range(len(layout.stages)):
            used = [i for i, j in enumerate(released) if variables[j].stage == stage]
            if stage == 0 and n_records is not None:
                self.n_records.append(float(n_records))
            elif used:
                picked = [counts[i] for i in used], [trees[i] for i in used], factors[used]
                self.n_records.append(total_records(*picked))
            else:
                self.n_records.append(self.n_records[layout.stages[stage].parent])
        public_leaves = public_leaves_of(public, layout) if public else {}
        self._set_cells(released, trees, counts, noise_scale * factors, public_leaves)
        self.encoders = [
            self._final_encoder(stage, encoder) for stage, encoder in enumerate(layout.encoders)
        ]
        self._set_blocks()
        if public:
            self.prior = PersonPrior(layout, public, self._bins(), self.measured)

    def _set_cells(self, released, trees, counts, scales, public):
        """Estimate the cells of all variables that have a tree."""
        layout = self.layout
        self.cells, self.singles = {}, []
        for j, tree, noisy, scale in zip(released, trees, counts, scales, strict=True):
            stage = layout.variables[j].stage
            own = noisy, scale, self.n_records[stage]
            cells = public_cells(tree, *own, public[j]) if j in public else None
            self.cells[j] = cells = cells or tree.cells(*own)
            self.singles += [
                NoisyMarginal((layout.variables[j].name,), (groups,), sums, scale * np.sqrt(sizes))
                for groups, sums, sizes in tree.tables(noisy, cells.starts)
            ]
        for j, variable in enumerate(layout.variables):
            if variable.tree is None or j in self.cells:
                continue
            starts = np.arange(variable.tree.n_values)
            if variable.kind in ("room", "pace"):
                starts = layout.room_starts(j)
            n = len(starts) + variable.tree.nullable
            self.cells[j] = ColumnCells(starts, np.full(n, 1 / n), np.zeros(n))

    def _final_encoder(self, stage, encoder):
        if encoder is None:
            return None
        columns = self.layout.stages[stage].columns
        edges = {
            name: column.merged(self.cells[j].starts)
            for (name, column), j in zip(encoder.columns_.items(), columns, strict=True)
            if isinstance(column, Binned) and not self.layout.variables[j].tree.is_flat
        }
        return with_bins(encoder, edges)

    def _set_blocks(self):
        """Group the cells of each variable into blocks, and add memories."""
        layout, variables = self.layout, self.layout.variables
        edges, levels = dict.fromkeys(range(len(variables)), 0), {}
        for own, encoder in zip(layout.stages, self.encoders, strict=True):
            if encoder is not None:
                for j, column in zip(own.columns, encoder.columns_.values(), strict=True):
                    edges[j] = _zero_edge(column)
                    if column.groups:
                        levels[j] = column.groups
        # Variables without a tree come last in their stage, so they are added in a second pass.
        order = [j for j, v in enumerate(variables) if v.tree is not None]
        blocks = ColumnBlocks(
            [self.cells[j].shares for j in order],
            [variables[j].is_ordered for j in order],
            [variables[j].n_nulls for j in order],
            [edges[j] for j in order],
            {order.index(key): parts for key, parts in layout.parts.items()},
            {order.index(j): groups for j, groups in levels.items()},
        )
        places = {j: i for i, j in enumerate(order)}
        for own in layout.stages:
            for source, memory in own.memories.items():
                first = self._share_of_first(own)
                shares = group_sums(self.cells[source].shares, blocks.blocks[places[source]])
                shares = np.append((1 - first) * shares, first)
                v = variables[memory]
                places[memory] = blocks.add(shares, is_ordered=v.is_ordered, n_nulls=v.n_nulls)
                self.cells[memory] = ColumnCells(
                    np.arange(len(shares)), shares, np.zeros(len(shares))
                )
        # The two variables of each change or ratio, and the cell of each pair of their blocks.
        self.changes, self.ratios = {}, {}
        for own in layout.stages:
            for source, change in own.changes.items():
                cells = change_cells(variables[source], blocks.sizes[places[source]])
                self.changes[change] = source, own.memories[source], cells
            for ratio, (relative_to, variable) in own.ratios.items():
                first, second = (
                    self._block_means(j, blocks.blocks[places[j]]) for j in (relative_to, variable)
                )
                if variables[relative_to].kind == "count":
                    # The first of some rows at equal distances.
                    first[first == 0] = np.nan
                    first = variables[variable].tree.n_values / (first + 1)
                cells = ratio_cells(first, second)
                self.changes[ratio] = variable, relative_to, cells
                self.ratios[ratio] = relative_to, variable, cells
        for change, (_, _, pattern) in self.changes.items():
            size = int(pattern.max()) + 1
            shares = np.full(size, 1 / size)
            places[change] = blocks.add(shares, is_ordered=True, n_nulls=0)
            self.cells[change] = ColumnCells(np.arange(size), shares, np.zeros(size))
        self.blocks = _Renumbered(blocks, places)
        names = [variable.name for variable in variables]
        cells = [self.cells[j] for j in range(len(variables))]
        self.measured = Measurements(names, cells, self.n_records[0], self.blocks)
        self._set_keys()

    def _set_keys(self):
        """Relate joined columns to their keys, in whose place the key is drawn."""
        # For each joined column and its memory, those of the key, and the group of each block.
        self._keys = {}
        for own in self.layout.stages:
            for j in own.joined:
                key, groups = self.layout.variables[j].source, self.layout.joined[j]
                of_block = np.zeros(self.blocks.sizes[key], dtype=np.int64)
                of_block[self.blocks.blocks[key]] = groups
                self._keys[j] = key, of_block
                if j in own.memories:
                    with_start = np.append(of_block, self.blocks.sizes[j])
                    self._keys[own.memories[j]] = own.memories[key], with_start
                self.measured.learn(key, groups, self.cells[j].shares, self.cells[j].variances)

    def _of_keys(self, marginal):
        """Return a marginal of joined columns as one of their keys, with the same cells."""
        found = {}
        for j, groups in zip(marginal.columns, marginal.groups, strict=True):
            key, of_block = self._keys.get(j, (j, slice(None)))
            found[key] = groups[of_block]
        columns = tuple(sorted(found))
        return Marginal(columns, tuple(found[j] for j in columns))

    def _block_means(self, variable, blocks):
        """Return the mean leaf of each block, a half more for other variables than counts."""
        tree, cells = self.layout.variables[variable].tree, self.cells[variable]
        stops = np.append(cells.starts[1:], tree.n_values)
        middles = (cells.starts + stops - 1) / 2
        if self.layout.variables[variable].kind != "count":
            middles = middles + 0.5
        middles = np.append(middles, np.full(len(blocks) - len(middles), np.nan))
        sizes = np.bincount(blocks)
        return np.bincount(blocks, middles) / sizes

    def _share_of_first(self, own):
        """Return the mean of one over the number of rows, for parents with rows."""
        shares = self.cells[own.count].shares
        if len(shares) < 2 or shares[1:].sum() <= 0:
            return 0.5
        starts = self.cells[own.count].starts
        numbers = np.maximum((starts + np.append(starts[1:], starts[-1] + 1) - 1) / 2, 1)
        return float(shares[1:] @ (1 / numbers[1:]) / shares[1:].sum())

    def count_maps(self):
        """Return the block of each leaf of the variables that records are counted by."""
        return {j: self.blocks.blocks[j][bins] for j, bins in self._bins().items()}

    def _bins(self):
        """Return the category of each leaf of the same variables."""
        trees = {j: v.tree for j, v in enumerate(self.layout.variables) if v.tree is not None}
        return {j: tree.bins(self.cells[j].starts) for j, tree in trees.items()}

    def agreements(self):
        """Return the agreement of public tables with the released marginals, one of each."""
        # Of the levels of a variable, the widest intervals, which come last.
        widest = {marginal.columns: marginal for marginal in self.singles}
        stages = {variable.name: variable.stage for variable in self.layout.variables}
        totals = [self.n_records[stages[name]] for (name,) in widest]
        measured = self.measured
        marginals = [*widest.values(), *measured.marginals]
        if self.prior is None:
            return []
        return self.prior.agreements(marginals, totals + measured.totals)

    def marginals_of(self, candidates, spreads):
        """Return the marginals of some tables, as fine as the noise supports, or the least ones."""
        marginals = []
        for columns, spread in zip(candidates, spreads, strict=True):
            if columns[0] in self.changes:
                cells = self.changes[columns[0]][2]
                marginals.append(Marginal(columns, (np.arange(int(cells.max()) + 1),)))
                continue
            n_cells = affordable_cells(self._total(columns), spread)
            n_cells = max(n_cells, self._least_cells(columns))
            kinds = {self.layout.variables[j].kind for j in columns}
            if kinds & {"gap", "first"}:
                n_cells *= _FINER
            marginals.append(self._of_keys(self.blocks.marginal(columns, n_cells)))
        return marginals

    def _least_cells(self, columns):
        """Return the least number of cells of a pair."""
        variables = self.layout.variables
        labels = [self.blocks.sizes[j] for j in columns if not variables[j].is_ordered]
        return max(_LEAST_GROUPS, min(max(labels, default=0), _LEAST_LABELS)) ** len(columns)

    def strongest(self, candidates, preferences, count):
        """Return the most dependent of some pairs, by the released marginals.

        With public tables, those of which the dependence differs most from what is copied.

        Parameters
        ----------
        candidates : sequence of tuple of int
        preferences : ndarray of shape (n_candidates,)
            Factors of the dependence.
        count : int

        Returns
        -------
        list of tuple of int
        """
        strengths = dict.fromkeys(candidates, 0.0)
        for columns in strengths:
            shares, scale, marginal = self._pairs[columns]
            total = max(float(shares.sum()), 1e-9)
            mean = np.outer(shares.sum(axis=1), shares.sum(axis=0)) / total
            if self.prior is not None:
                mean = mean + self.prior.expected(marginal)
            noise = shares.size * scale**2
            excess = max(float(((shares - mean) ** 2).sum()) - noise, 0.0)
            strengths[columns] = math.sqrt(excess * shares.size)
        factors = dict(zip(candidates, preferences, strict=True))
        order = sorted(candidates, key=lambda pair: -factors[pair] * strengths[pair])
        # Pairs of joined columns, or keys, of the same two keys are mostly one dependence.
        key_of = {j: key for j, (key, _) in self._keys.items()}
        key_of |= {key: key for key in key_of.values()}
        keys = [
            tuple(key_of[j] for j in pair) if key_of.keys() >= {*pair} else pair for pair in order
        ]
        strongest = {*dict(zip(reversed(keys), reversed(order), strict=True)).values()}
        order.sort(key=strongest.__contains__, reverse=True)
        return order[:count]

    def _total(self, columns):
        return self.n_records[self.layout.stage_of(columns)]

    def expected(self, marginals):
        """Return the expected counts of marginals if variables only depend as they are copied."""
        return [
            self._expected_pair(m)
            if m.columns[0] not in self.changes
            else self._expected_changes(m.columns[0])
            for m in marginals
        ]

    def _expected_pair(self, marginal):
        n = self._total(marginal.columns)
        (expected,) = self.measured.independent([marginal], n)
        return expected if self.prior is None else expected + n * self.prior.expected(marginal)

    def _expected_changes(self, change):
        source, memory, cells = self.changes[change]
        shares = [self.measured.block_shares(j) for j in (memory, source)]
        joint = np.multiply.outer(*shares).ravel()
        return self._total((source,)) * np.bincount(cells.ravel(), joint)

    def release(self, candidates, counts, weights, noise_scale, release):
        """Release marginals as one vector, and add them.

        Parameters
        ----------
        candidates : list of tuple of int
        counts : callable
            Returns the exact counts of marginals.
        weights : ndarray
            Public weight of each marginal.
        noise_scale : float
        release : callable
        """
        spreads = noise_scale * noise_factors(weights)
        marginals = self.marginals_of(candidates, spreads)
        expected = self.expected(marginals)
        tables, _ = release_marginals(counts(marginals), weights, release)
        parts = zip(candidates, marginals, tables, spreads, expected, strict=True)
        for columns, marginal, table, spread, mean in parts:
            n = self._total(marginal.columns)
            if marginal.columns[0] in self.changes:
                self._add_change(marginal, table, spread, mean)
                continue
            stage = self.layout.stage_of(marginal.columns)
            learned = {
                j
                for j in marginal.columns
                if self.layout.variables[j].stage == stage and self.layout.variables[j].is_released
            }
            self.measured.add(marginal, table, spread, mean, n_records=n, learned=learned)
            self._pairs[columns] = table / n, spread / n, marginal
        if self.prior is not None:
            self.prior.relate(self.measured)

    def _add_change(self, marginal, counts, noise_scale, expected):
        (change,) = marginal.columns
        source, memory, cells = self.changes[change]
        n = self._total(marginal.columns)
        shares = counts / n
        ridges = change_ridges(shares - expected / n, noise_scale / n, n)
        names = (self.layout.variables[change].name,)
        self.measured.marginals.append(NoisyMarginal(names, marginal.groups, counts, noise_scale))
        self.measured.expected.append(expected / n)
        self.measured.totals.append(n)
        groups = tuple(np.arange(size) for size in cells.shape)
        self.measured.tables.append(
            NoisyTable((memory, source), groups, shares, ridges, None, cells)
        )


class _Renumbered:
    """Blocks of variables by their index in the layout."""

    def __init__(self, blocks, places):
        self._blocks, self._places = blocks, places
        order = [places[j] for j in range(len(places))]
        self.blocks = [blocks.blocks[i] for i in order]
        self.sizes = [blocks.sizes[i] for i in order]

    def marginal(self, columns, n_cells):
        found = self._blocks.marginal([self._places[j] for j in columns], n_cells)
        return Marginal(tuple(columns), found.groups)

    def frequencies(self, marginal):
        columns = tuple(self._places[j] for j in marginal.columns)
        return self._blocks.frequencies(Marginal(columns, marginal.groups))


# Fits of gaps to the sequences that they lead to, and steps of the calibration of index and gaps.
_GAP_FITS, _INDEX_STEPS = 4, 8
# Steps of the calibration of values, their damping, and the groups of blocks that are calibrated.
_VALUE_STEPS, _DAMPING, _GROUPS = 4, 0.5, 16
# The least share of a block in a calibration, and the largest correction of a step.
_FLOOR, _STEP = 1e-4, 1.5
# The lowest logit of the calendar: years without rows.
_LOWEST = -10.0
# Sweeps of the fit of a table to the sums of the rows of a fit, and bounds on its factors.
_SWEEPS, _FACTORS = 20, (0.2, 5.0)


class PersonFit:
    """Conditionals of persons and their rows, fitted to noisy marginals.

    Parameters
    ----------
    measurements : PersonMeasurements
    n_rows : int
        Persons and rows on which each conditional is fitted.
    rules : list of StageRules or None
        The rules of each table.
    max_iter : int
        Most steps of L-BFGS of each conditional.
    device : str or torch.device
    seed : int or None
    verbose : int
    """

    def __init__(self, measurements, n_rows, *, rules, max_iter, device, seed, verbose=0):
        self._measurements, self._measured = measurements, measurements.measured
        self._layout, self._n_rows, self._max_iter = measurements.layout, n_rows, max_iter
        self._prior = measurements.prior
        self._device, self._rng = device_name(device), np.random.default_rng(seed)
        self._verbose = verbose
        self._simulator = PersonSimulator(self._layout, self._empty())
        self._barred = barred_terms(self._simulator, measurements.encoders, rules)

    def _empty(self):
        """Return a distribution without conditionals."""
        blocks, shares, starts = [], [], []
        for j, variable in enumerate(self._layout.variables):
            if variable.tree is None:
                blocks.append(np.zeros(0, dtype=np.int64))
                shares.append(np.zeros(0))
                starts.append(np.zeros(0, dtype=np.int64))
                continue
            groups, cells = self._measured.blocks.blocks[j], self._measurements.cells[j]
            estimates = self._measured.shares(j)
            sums = group_sums(estimates, groups)[groups]
            uniform = 1 / np.bincount(groups)[groups]
            blocks.append(groups)
            shares.append(np.divide(estimates, sums, out=uniform, where=sums > 0))
            is_binned = has_bins(variable.tree)
            starts.append(cells.starts if is_binned else np.zeros(0, dtype=np.int64))
        public = {} if self._prior is None else self._prior.rows
        return PersonDistribution(blocks, shares, starts, {}, public)

    def distribution(self):
        """Return the fitted PersonDistribution."""
        simulator, rng = self._simulator, self._rng
        n_steps = sum(len(own.own) + 1 for own in self._layout.stages)
        population = {}
        with tqdm(total=n_steps, desc="persons", disable=not self._verbose) as bar:
            self._bar = bar
            codes = simulator.persons(self._n_rows, rng).codes
            known: set = set()
            self._fit_values(self._layout.stages[0].own, codes, known)
            population[0] = codes, known
            for stage, own in enumerate(self._layout.stages[1:], 1):
                population[stage] = self._fit_stage(stage, own, *population[own.parent])
        return simulator.distribution

    def _fit_stage(self, stage, own, parents, known):
        """Fit the rows of a child table, and return a row of each of some parents."""
        simulator, rng = self._simulator, self._rng
        sizes = simulator.numbers(stage, parents, rng)
        has_rows = np.flatnonzero(sizes > 0)
        known = known | {own.slot}
        if not len(has_rows):
            has_rows, sizes = np.arange(len(sizes)), np.maximum(sizes, 1)
        chosen = rng.choice(has_rows, self._n_rows)
        parents, sizes = np.asfortranarray(parents[chosen]), sizes[chosen]
        if own.index is not None:
            self._fit_gaps(stage, own, parents, sizes, known)
            known = known | {own.index, own.gap, own.room}
            known |= {own.memories[own.index], own.memories[own.gap]}
        rows = simulator.positions(stage, parents, sizes, rng)
        # Without memory: what the row before is drawn from.
        turns = self._turns(sizes)
        codes = rows.at(rows.starts + turns)
        memoryless = self._fit_values(own.own, codes, set(known), keep=False)
        # With memory: the row before is drawn from the memoryless fit, whose marginals are
        # released.
        turns = self._turns(sizes)
        codes, before = (
            rows.at(rows.starts + turns),
            rows.at(rows.starts + np.maximum(turns - 1, 0)),
        )
        for j, conditional in memoryless.items():
            before[:, j], _ = conditional.draw(before, rng)
        known = set(known)
        for source in own.values:
            memory = own.memories[source]
            start = simulator.n_blocks(source)
            codes[:, memory] = np.where(turns == 0, start, before[:, source])
            known.add(memory)
        self._fit_values(own.own, codes, known, starts=memoryless)
        self._calibrate(stage, own, rows)
        known -= {own.room, own.slot, *own.memories.values()}
        return codes, known

    def _turns(self, sizes):
        """Draw one of the rows of each parent row."""
        return (self._rng.uniform(size=len(sizes)) * sizes).astype(np.int64)

    def _fit_values(self, columns, codes, known, *, keep=True, starts=None):
        """Fit variables in their order, draw each, and add it to the known ones."""
        fitted = {}
        for j in columns:
            if self._layout.variables[j].is_constant:
                continue
            fitted[j] = self._conditional(j, codes, known, start=(starts or {}).get(j))
            codes[:, j], _ = fitted[j].draw(codes, self._rng)
            known.add(j)
            self._bar.update(keep)
        if keep:
            self._simulator.conditionals.update(fitted)
        return fitted

    def _conditional(self, column, codes, known, fixed=(), start=None):
        """Fit the conditional of a variable given known ones."""
        barred = self._barred.get(column, ())
        fixed = (*fixed, *(term for term in barred if known.issuperset(term.parents)))
        firsts = [own for own in self._layout.stages if own.first == column]
        fixed += tuple(self._simulator.first_rules(own) for own in firsts)
        if self._layout.variables[column].kind == "aggregate":
            fixed += (self._simulator.aggregate_rules(column),)
        tables = []
        marginal = np.maximum(self._measured.block_shares(column), 1e-6)
        marginal = marginal / marginal.sum()
        for table in self._measured.tables:
            if column not in table.columns or not known.issuperset({*table.columns} - {column}):
                continue
            if table.pattern is not None and table.columns[1] != column:
                continue
            tables.append(self._raked(table.with_last(column), codes, marginal, fixed))
        # A warm start has terms for the first tables: those without memory.
        tables.sort(key=self._has_memory)
        copied = None
        if self._prior is not None and self._prior.kept[column]:
            place = len(self._layout.variables) + column
            copied = CopiedColumn(place, self._prior.kept[column], marginal, codes[:, place])
        return fit_conditional(
            column,
            marginal,
            tables,
            codes,
            max_iter=self._max_iter,
            device=self._device,
            fixed=fixed,
            spread=self._measured.block_variances(column) if fixed else None,
            start=None if fixed or copied is not None else start,
            copied=copied,
        )

    def _has_memory(self, table):
        return any(self._layout.variables[j].kind == "memory" for j in table.columns)

    def _raked(self, table, codes, marginal, fixed):
        """Scale a table to the sums of the rows of a fit, which preserves its odds ratios.

        A shift would change the small cells of a table of lasting values most, and the errors of
        its transitions would add up over the rows of a person.
        """
        if table.pattern is not None:
            return self._with_first_rows(table, codes)
        *before, size = table.shares.shape
        n_before = int(np.prod(before))
        cells = joint_codes(codes, table.columns[:-1], table.groups, before)
        rows = np.bincount(cells, minlength=n_before) / len(codes)
        columns = np.bincount(table.groups[-1], weights=marginal, minlength=size)
        shares = table.shares.reshape(n_before, size)
        positive = np.maximum(shares, 0) + 1e-7
        row_factors, column_factors = np.ones(n_before), np.ones(size)
        for _ in range(_SWEEPS):
            sums = positive @ column_factors
            row_factors = np.clip(rows / np.maximum(sums, 1e-9), *_FACTORS)
            sums = row_factors @ positive
            column_factors = np.clip(columns / np.maximum(sums, 1e-9), *_FACTORS)
        shares = shares * row_factors[:, None] * column_factors
        possible = possible_cells(table.columns, table.groups, fixed) if fixed else None
        shares = shares.reshape(table.shares.shape)
        groups, noise = table.groups, table.noise
        return NoisyTable(table.columns, groups, shares, table.ridges, possible, noise=noise)

    def _with_first_rows(self, table, codes):
        """Scale changes or ratios to the rows of a fit: some have no row before, or no rows."""
        (without,) = np.nonzero((table.pattern == table.pattern[:, :1]).all(axis=1))
        share = float(np.isin(codes[:, table.columns[0]], without).mean())
        shares = table.shares.copy()
        null = table.pattern[without, 0]
        shares[null] = 0
        # Of noise alone, the sum may be near 0.
        shares *= np.clip((1 - share) / max(shares.sum(), 1e-9), *_FACTORS)
        shares[null[:1]] = share
        return NoisyTable(table.columns, table.groups, shares, table.ridges, None, table.pattern)

    def _fit_gaps(self, stage, own, parents, sizes, known):
        """Fit the gaps of the index to the sequences that they lead to."""
        simulator, rng = self._simulator, self._rng
        known = known | {own.room, own.pace, own.memories[own.index], own.memories[own.gap]}
        rules = simulator.gap_rules(own)
        # The first sequences have independent gaps.
        simulator.conditionals[own.gap] = fit_conditional(
            own.gap,
            self._measured.block_shares(own.gap),
            [],
            parents[:2],
            max_iter=1,
            device=self._device,
            fixed=(),
        )
        null = int(simulator.distribution.blocks[own.gap][-1])
        base = simulator.conditionals[own.gap].base.copy()
        base[null] = -30.0
        simulator.conditionals[own.gap] = replace(simulator.conditionals[own.gap], base=base)
        for _ in range(_GAP_FITS):
            rows = simulator.positions(stage, parents, sizes, rng)
            codes = rows.at(rows.starts + self._turns(sizes))
            simulator.conditionals[own.gap] = self._conditional(own.gap, codes, known, rules)
        fitted = simulator.conditionals[own.gap]
        wanted = self._measured.block_shares(own.index)
        gaps = self._measured.block_shares(own.gap)
        calendar = np.zeros(len(wanted))
        for _ in range(_INDEX_STEPS):
            rows = simulator.positions(stage, parents, sizes, rng)
            weights = 1 / rows.sizes
            found = np.bincount(rows.codes[:, own.index], weights, minlength=len(wanted))
            steps = np.bincount(rows.codes[:, own.gap], weights, minlength=len(gaps))
            calendar += _correction(wanted, found)
            calendar = np.maximum(calendar - calendar.max(), _LOWEST)
            later = np.arange(len(gaps)) != null
            base = fitted.base.copy()
            base[later] += _correction(gaps[later], steps[later])
            fitted = replace(fitted, base=base)
            term = simulator.calendar_term(own, calendar)
            simulator.conditionals[own.gap] = replace(fitted, terms=(*fitted.terms, term))
        self._bar.update()

    def _calibrate(self, stage, own, rows):
        """Correct the bases of the values until simulated rows have the released marginals."""
        conditionals, simulator = self._simulator.conditionals, self._simulator
        columns = [j for j in own.values if j in conditionals]
        for _ in range(_VALUE_STEPS if columns else 0):
            simulator.values(stage, rows, self._rng)
            weights = 1 / rows.sizes
            for j in columns:
                wanted = self._measured.block_shares(j)
                found = np.bincount(rows.codes[:, j], weights, minlength=len(wanted))
                groups = self._measured.blocks.marginal((j,), _GROUPS).groups[0]
                step = _correction(group_sums(wanted, groups), group_sums(found, groups))
                base = conditionals[j].base + _DAMPING * step[groups]
                conditionals[j] = replace(conditionals[j], base=base)


def _correction(wanted, found):
    """Return the change of logits from shares that are found to the wanted ones."""
    wanted, found = wanted / max(wanted.sum(), 1e-12), found / max(found.sum(), 1e-12)
    ratios = np.log((wanted + _FLOOR) / (found + _FLOOR))
    return np.clip(ratios, -_STEP, _STEP)
