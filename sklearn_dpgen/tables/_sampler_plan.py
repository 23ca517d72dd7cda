"""Plans of a TableSampler, from its parameters and public numbers alone."""

import math
from dataclasses import dataclass

import numpy as np

from sklearn_dpgen.accounting._calibration import check_delta_size
from sklearn_dpgen.accounting._wording import count_words, number_words
from sklearn_dpgen.exceptions import PublicValueError
from sklearn_dpgen.preprocessing._public_table import as_public_table
from sklearn_dpgen.schema._rules import Rule, columns_of
from sklearn_dpgen.tables._column_trees import ColumnTree
from sklearn_dpgen.tables._marginals import (
    MAX_BLOCKS,
    MAX_TABLE_CELLS,
    check_memory,
    expand_marginals,
    marginal_weight,
    target_columns,
)
from sklearn_dpgen.tables._privacy_plan import (
    CHANGED_CELLS,
    FINER,
    MarginalsPlan,
    affordable_cells,
    are_interactions_few,
    is_below_noise,
    plan_rounds,
    warn_of_noise,
)
from sklearn_dpgen.tables._releases import column_factors, column_trees, fine_encoder, noise_factors
from sklearn_dpgen.tables._table_rules import TableRules, check_measured
from sklearn_dpgen.utils._random import ROUNDING
from sklearn_dpgen.utils._validation import check_count, check_delta

__all__ = ["SamplerPlan", "declared_table"]


def release_sizes(trees, rounds, neighbours, *, unit, n_records, noise_scale):
    """Return bounds on the sizes of the releases, from public quantities.

    Parameters
    ----------
    trees : list of ColumnTree
        Trees of all columns.
    rounds : tuple of Round
    neighbours : {"replace_one", "add_or_remove"}
    unit : str or None
        With a unit, a person has several rows, which can change any number of cells.
    n_records : float or None
        The public number of records, or None.
    noise_scale : float
        Noise of a single vector with the whole budget, the least noise of any table.

    Returns
    -------
    n_values, n_changed : list of int
        Values, and values that differ between neighbours: of single columns, then of each round.
    """
    counted, most = [tree for tree in trees if tree.n_cells > 1], float(MAX_TABLE_CELLS)
    if n_records is not None:
        most = min(most, affordable_cells(n_records, noise_scale))
    sizes = [min(tree.n_values, MAX_BLOCKS) if tree.is_flat else MAX_BLOCKS for tree in trees]

    def n_cells(columns):
        # A marginal has at least two groups in each column, even where that is too fine.
        whole = math.prod(sizes[j] for j in columns)
        finer = FINER**2 if len(columns) == 2 else 1.0
        return min(whole, math.floor(finer * max(2 ** len(columns), min(most, whole))))

    values = [one.n_tables * max(map(n_cells, one.candidates)) for one in rounds]
    tables = [one.n_tables for one in rounds]
    # Any later round may repeat the marginals of the first round beside its own.
    values = [n + values[0] * bool(i) for i, n in enumerate(values)]
    tables = [n + tables[0] * bool(i) for i, n in enumerate(tables)]
    values = [max(1, sum(tree.n_cells for tree in counted)), *values]
    if unit is not None:
        return values, values
    cells = CHANGED_CELLS[neighbours]
    changed = [cells * n for n in (max(1, sum(tree.n_levels for tree in counted)), *tables)]
    return values, [min(pair) for pair in zip(changed, values, strict=True)]


_DECLARED = ("target", "workload", "constraints", "max_rows", "public")
_CELL_NAMES = {"pairs": "cell of a pair", "interactions": "cell of an interaction"}


@dataclass(frozen=True, eq=False)
class DeclaredTable:
    """Declaration of a table: its columns, and the marginals to count.

    Parameters
    ----------
    rules : TableRules or None
    names : list of str
        Names of all columns of the schema.
    constants, targets : list of int
        Indices of columns.
    marginals : str or list of tuple of int
    weight : callable
        The public positive weight of a tuple of columns.
    encoder : TabularEncoder
        Encoder with the finest bins, fitted to the columns in the order of the schema.
    trees : list of ColumnTree
    public : PublicRows or None
    opened : list of int
        Indices of the columns whose labels are discovered.
    """

    rules: object
    names: list
    constants: list
    targets: list
    marginals: object
    weight: object
    encoder: object
    trees: list
    public: object
    opened: list


def declared_table(sampler, labels=None):
    """Validate the parameters of a sampler, and return its declared table.

    Parameters
    ----------
    sampler : TableSampler
    labels : mapping of str to sequence of str or None, default=None
        The discovered labels of each open column. Before they are known, all records have the
        label ``other``, and the trees have as many categories as may be discovered.

    Returns
    -------
    DeclaredTable
    """
    sampler._check_unit()
    if sampler.unit is None and (sampler.max_rows, sampler.unit_weights) != (None, "equal"):
        raise PublicValueError("unit must be given with max_rows or unit_weights='rows'.")
    if (sampler.unit_weights == "rows") != (sampler.max_rows is not None):
        raise PublicValueError(
            "max_rows must bound the rows of a person with unit_weights='rows'. With 'equal', "
            "max_rows must be None, since each person counts once."
        )
    schema, opened = sampler.schema, sampler.schema.open_columns
    if opened:
        rules = [rule for rule in sampler.constraints or () if isinstance(rule, Rule)]
        named = {name for rule in rules for name in columns_of(rule)}
        if not named.isdisjoint(opened):
            raise PublicValueError(
                f"constraints must not name open columns, got {sorted(named.intersection(opened))}."
            )
        schema = schema.with_labels(dict.fromkeys(opened, ()) if labels is None else labels)
    rules = TableRules(sampler.constraints, schema) if sampler.constraints else None
    schema = schema if rules is None else rules.schema
    check_measured(schema, sampler)
    names = list(schema)
    constants = [j for j, column in enumerate(schema.values()) if column.is_constant]
    encoder, binned = fine_encoder(schema, sampler.n_bins)
    trees = column_trees(encoder.fit(), binned)
    if labels is None:
        for name, column in opened.items():
            n_categories = column.max_labels + 1 + column.nullable
            trees[names.index(name)] = ColumnTree(n_categories, is_flat=True)
    check_memory(names, trees, sampler.population_size)
    public = as_public_table(sampler.public)
    return DeclaredTable(
        rules,
        names,
        constants,
        [j for j in target_columns(sampler.target, names) if j not in constants],
        expand_marginals(sampler.marginals, names, constants),
        marginal_weight(names, sampler.workload),
        encoder,
        trees,
        None if public is None else public.read(schema),
        [names.index(name) for name in opened],
    )


class SamplerPlan:
    """The releases of a fit, with their noise scales and privacy report.

    Parameters
    ----------
    sampler : TableSampler
    table : DeclaredTable
    n_samples : int or None
        Number of records or persons; not read if it is not public.

    Attributes
    ----------
    marginals : MarginalsPlan
    n_records : int or None
        The public sum of the counts of a column, or None.
    """

    def __init__(self, sampler, table, n_samples):
        self._sampler, self._table = sampler, table
        delta, n_public = check_delta(sampler.delta), None
        if sampler.neighbours == "replace_one":
            n_public = check_count(n_samples, "n_samples")
            if math.isfinite(sampler.epsilon):
                check_delta_size(delta, n_public)
        is_of_rows = sampler.unit_weights == "rows"
        self.n_records = None if is_of_rows else n_public
        budget = sampler.epsilon, delta, sampler.neighbours
        most = sampler.max_rows if is_of_rows else 1
        n_open = len(table.opened)
        noise_scale = MarginalsPlan(*budget, (), most, n_open=n_open).noise_scale
        rounds = plan_rounds(
            len(table.names),
            marginals=table.marginals,
            targets=table.targets,
            # There are at least as many rows as persons.
            n_records=n_public,
            noise_scale=noise_scale,
            constants=table.constants,
            public_share=len(table.public.names) / len(table.names) if table.public else 0.0,
        )
        sizes = release_sizes(
            table.trees,
            rounds,
            sampler.neighbours,
            unit=sampler.unit,
            n_records=self.n_records,
            noise_scale=noise_scale,
        )
        if n_open:
            # Only counts that differ between neighbours are paid for: see release_open.
            changed = CHANGED_CELLS[sampler.neighbours] * n_open
            sizes = [changed, *sizes[0]], [changed, *sizes[1]]
        self._n_values = sum(sizes[0])
        self.marginals = MarginalsPlan(
            *budget, rounds, most, sizes if sampler._is_certified else None, n_open
        )
        if n_public is not None and n_public > self.marginals.most_records:
            raise PublicValueError(
                f"n_samples must be at most {self.marginals.most_records} for selections with "
                f"noise='certified' at this budget, got {n_public}: use a smaller epsilon, or list "
                "the marginals."
            )

    @property
    def _single_scales(self):
        measured = [j for j, tree in enumerate(self._table.trees) if tree.n_cells > 1]
        weights = np.array([self._table.weight((j,)) for j in measured])
        trees = [self._table.trees[j] for j in measured]
        factors = column_factors(weights, trees)
        factors /= np.array([tree.weights[0] for tree in trees])
        return self.marginals.count_scales[0] * factors

    def _table_scales(self):
        """Yield the kind of marginals of each round, and the noise of their cells."""
        scales = self.marginals.count_scales[1:]
        for one, scale in zip(self.marginals.rounds, scales, strict=True):
            if one.n_selected is None:
                weights = np.array([self._table.weight(columns) for columns in one.candidates])
            else:
                # The selected marginals are not known yet: assume equal weights.
                weights = np.ones(one.n_tables)
            n = self.n_records
            if n is not None and one.kind == "interactions" and are_interactions_few(n, scale):
                # Half of the budget of the round is for pairs again.
                scale *= math.sqrt(2)
            yield one.kind, scale * noise_factors(weights)

    def warn(self, n_records):
        """Warn if counts of so many records are below the noise."""
        tables = [scales for _, scales in self._table_scales()]
        warn_of_noise(
            n_records,
            float(np.median(self._single_scales)),
            float(np.median(tables[0])) if tables else None,
            epsilon=self._sampler.epsilon,
            unit=self._counted,
        )

    @property
    def _counted(self):
        """The noun for what is counted."""
        if self._sampler.unit is None:
            return "records"
        return "rows" if self._sampler.unit_weights == "rows" else "persons"

    def precision(self):
        """Return the precision of a count in each kind of marginal, in words."""
        n, unit = self.n_records, self._counted
        noise = {"cell of one column": self._single_scales}
        for kind, scales in self._table_scales():
            name = _CELL_NAMES.get(kind, "cell of a listed table")
            noise[name] = np.append(noise.get(name, ()), scales)
        words = {name: count_words(scales, n, unit) for name, scales in noise.items()}
        if self._table.opened:
            words = {"label of an open column": self._label_words()} | words
        if n is None or self.marginals.noise_scale == 0:
            return words
        for name, scales in noise.items():
            scale = float(np.median(scales))
            if is_below_noise(n, scale):
                words[name] += "; below the noise"
            elif name != "cell of one column":
                cells = number_words(affordable_cells(n, scale))
                words[name] += f"; above the noise in tables of up to {cells} equal cells"
        return words

    def _label_words(self):
        """Return the number of records from which a label is discovered, in words."""
        threshold = self.marginals.label_threshold()
        if threshold == 0:
            return "always discovered: there is no noise"
        unit = "records" if self._sampler.unit is None else "persons"
        return f"with {number_words(threshold)} {unit}, discovered with probability 1/2"

    def _rounding(self):
        """Return the total variation between all noisy values and scores and exact draws."""
        if self._sampler._is_certified or math.isinf(self.marginals.epsilon):
            return 0.0
        scores = sum((one.n_selected or 0) * len(one.candidates) for one in self.marginals.rounds)
        return (self._n_values + scores) * ROUNDING

    def report(self):
        """Return the PrivacyReport of the fit."""
        sampler = self._sampler
        public = ["column_names", "schema", "n_bins", "marginals"]
        public += [name for name in _DECLARED if getattr(sampler, name) is not None]
        if sampler.neighbours == "replace_one":
            public.insert(0, "n_samples")
        table = self._table.public
        report = self.marginals.report(
            type(sampler).__name__,
            public=tuple(public),
            public_tables={} if table is None else {"public": table.sha256},
            noise_source=sampler._noise_description(),
            precision=self.precision(),
            rounding=self._rounding(),
        )
        if sampler.unit_weights == "equal":
            return sampler._protected(report)
        return report.for_persons(sampler.unit, max_rows=sampler.max_rows)
