"""What a TableSampler does, from its parameters and public numbers alone."""

import math
from dataclasses import dataclass

import numpy as np

from sklearn_dpgen.accounting import PrivacyReport
from sklearn_dpgen.accounting._calibration import check_delta_size
from sklearn_dpgen.accounting._wording import count_words, number_words
from sklearn_dpgen.exceptions import PublicValueError
from sklearn_dpgen.tables._marginals import (
    MAX_BLOCKS,
    check_memory,
    expand_marginals,
    marginal_weight,
    target_columns,
)
from sklearn_dpgen.tables._privacy_plan import (
    CHANGED_CELLS,
    MarginalsPlan,
    affordable_cells,
    is_drowned,
    plan_rounds,
    warn_of_noise,
)
from sklearn_dpgen.tables._releases import column_trees, fine_encoder, noise_factors
from sklearn_dpgen.tables._table_rules import TableRules, check_measured
from sklearn_dpgen.utils._random import ROUNDING
from sklearn_dpgen.utils._validation import EstimatorMixin, check_count, check_delta, fit_context

__all__ = ["SamplerPlan", "SamplerPlanMixin", "declared_table"]


def release_sizes(trees, rounds, neighbours, *, unit, n_records, noise_scale):
    """Return bounds on the sizes of the releases of a plan, from public quantities.

    Parameters
    ----------
    trees : list of ColumnTree
        Of all columns.
    rounds : tuple of Round
    neighbours : {"replace_one", "add_or_remove"}
    unit : str or None
        Of what persons have several rows, any number of cells may change.
    n_records : float or None
        None where it is not public.
    noise_scale : float
        Of one vector that has the whole budget: no table has less noise.

    Returns
    -------
    n_values, n_changed : list of int
        Of the vector of single columns, then of each round.
    """
    told, most = [tree for tree in trees if tree.n_cells > 1], math.inf
    if n_records is not None:
        most = affordable_cells(n_records, noise_scale)
    sizes = [min(tree.n_cells, MAX_BLOCKS) if tree.is_flat else MAX_BLOCKS for tree in trees]

    def n_cells(columns):
        # Of two groups in each column, if that is more than are wanted.
        whole = math.prod(sizes[j] for j in columns)
        return min(whole, max(2 ** len(columns), math.floor(min(most, whole))))

    values = [part.n_tables * max(map(n_cells, part.candidates)) for part in rounds]
    tables = [part.n_tables for part in rounds]
    # Where records turn out to be few, a round measures once more what the first one did.
    values = [max(n, values[0]) for n in values]
    tables = [max(n, tables[0]) for n in tables]
    values = [max(1, sum(tree.n_cells for tree in told)), *values]
    if unit is not None:
        return values, values
    cells = CHANGED_CELLS[neighbours]
    changed = [cells * n for n in (max(1, sum(tree.n_levels for tree in told)), *tables)]
    return values, [min(pair) for pair in zip(changed, values, strict=True)]


_DECLARED = ("target", "workload", "constraints", "max_rows")
_OF = {"pairs": "cell of a pair", "triples": "cell of a triple"}


@dataclass(frozen=True, eq=False)
class DeclaredTable:
    """The columns of a table and what is to be counted of them, as declared.

    Parameters
    ----------
    rules : TableRules or None
    names : list of str
        Of the columns that are read.
    constants, targets : list of int
        Places of columns.
    marginals : str or list of tuple of int
    weight : callable
        The public positive weight of a tuple of columns.
    encoder : TabularEncoder
        Into the finest cells, fitted to the columns in the order of the schema.
    trees : list of ColumnTree
    """

    rules: object
    names: list
    constants: list
    targets: list
    marginals: object
    weight: object
    encoder: object
    trees: list


def declared_table(sampler):
    """Return what a sampler declares, or say what is wrong with it, before a record is read.

    Parameters
    ----------
    sampler : TableSampler

    Returns
    -------
    DeclaredTable
    """
    sampler._check_unit()
    if sampler.unit is None and (sampler.max_rows, sampler.unit_weights) != (None, "equal"):
        raise PublicValueError("max_rows and unit_weights are of persons: they need unit.")
    if (sampler.unit_weights == "rows") != (sampler.max_rows is not None):
        raise PublicValueError(
            "unit_weights='rows' needs max_rows: what a person counts for is bounded. With 'equal' "
            "a person counts once, with all rows, and max_rows must be None."
        )
    rules = TableRules(sampler.constraints, sampler.schema) if sampler.constraints else None
    schema = sampler.schema if rules is None else rules.schema
    check_measured(schema, sampler)
    names = list(schema)
    constants = [j for j, column in enumerate(schema.values()) if column.is_constant]
    encoder, found = fine_encoder(schema, sampler.n_bins)
    trees = column_trees(encoder.fit(), found)
    check_memory(names, trees, sampler.population_size)
    return DeclaredTable(
        rules,
        names,
        constants,
        [j for j in target_columns(sampler.target, names) if j not in constants],
        expand_marginals(sampler.marginals, names, constants),
        marginal_weight(names, sampler.workload),
        encoder,
        trees,
    )


class SamplerPlan:
    """The releases of a fit: what ``fit`` does, and what its report says.

    Parameters
    ----------
    sampler : TableSampler
    table : DeclaredTable
    n_samples : int or None
        Number of records, or of persons; not read where it is not public.

    Attributes
    ----------
    marginals : MarginalsPlan
    n_records : int or None
        What counts add up to, where that is public: rows of persons are not.
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
        noise_scale = MarginalsPlan(*budget, (), most).noise_scale
        rounds = plan_rounds(
            len(table.names),
            marginals=table.marginals,
            targets=table.targets,
            # Of rows there are as many as persons, at least.
            n_records=n_public,
            noise_scale=noise_scale,
            constants=table.constants,
        )
        sizes = release_sizes(
            table.trees,
            rounds,
            sampler.neighbours,
            unit=sampler.unit,
            n_records=self.n_records,
            noise_scale=noise_scale,
        )
        self._n_values = sum(sizes[0])
        self.marginals = MarginalsPlan(
            *budget, rounds, most, sizes if sampler._is_certified else None
        )
        if n_public is not None and n_public > self.marginals.most_records:
            raise PublicValueError(
                f"noise='certified' selects tables of at most {self.marginals.most_records} "
                f"records at this budget, got {n_public}: take a smaller epsilon, or list the "
                "marginals."
            )

    @property
    def _single_scales(self):
        measured = [j for j, tree in enumerate(self._table.trees) if tree.n_cells > 1]
        weights = np.array([self._table.weight((j,)) for j in measured])
        factors = noise_factors(weights, [self._table.trees[j].n_levels for j in measured])
        return self.marginals.mechanism.noise_scales[0] * factors

    def _table_scales(self):
        """Yield the kind of tables of each round, and the noise of their cells."""
        scales = self.marginals.mechanism.noise_scales[1:]
        for part, scale in zip(self.marginals.rounds, scales, strict=True):
            if part.n_selected is None:
                weights = np.array([self._table.weight(columns) for columns in part.candidates])
                yield part.kind, scale * noise_factors(weights)
            else:
                # Which ones are selected is not known: as of equal weights.
                yield part.kind, scale * noise_factors(np.ones(part.n_tables))

    def warn(self, n_records):
        """Warn where noise leaves nothing of a number of records: a public one, or an estimate."""
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
        """The noun for what a count is of."""
        if self._sampler.unit is None:
            return "records"
        return "rows" if self._sampler.unit_weights == "rows" else "persons"

    def precision(self):
        """Return what noise leaves of a cell of each kind of tables, in words."""
        n, unit = self.n_records, self._counted
        found = {"cell of one column": self._single_scales}
        for kind, scales in self._table_scales():
            name = _OF.get(kind, "cell of a listed table")
            found[name] = np.append(found.get(name, ()), scales)
        words = {name: count_words(scales, n, unit) for name, scales in found.items()}
        if n is None or self.marginals.noise_scale == 0:
            return words
        for name, scales in found.items():
            scale = float(np.median(scales))
            if is_drowned(n, scale):
                words[name] += "; drowned: hardly anything is told"
            elif name != "cell of one column":
                cells = number_words(affordable_cells(n, scale))
                words[name] += f"; clear in tables of up to {cells} even cells"
        return words

    def _rounding(self):
        """Return how far all noisy values and scores are from exact draws, in total variation."""
        if self._sampler._is_certified or math.isinf(self.marginals.epsilon):
            return 0.0
        scores = sum(
            (part.n_selected or 0) * len(part.candidates) for part in self.marginals.rounds
        )
        return (self._n_values + scores) * ROUNDING

    def report(self):
        """Return the PrivacyReport of the fit."""
        sampler = self._sampler
        public = ["column_names", "schema", "n_bins", "marginals"]
        public += [name for name in _DECLARED if getattr(sampler, name) is not None]
        if sampler.neighbours == "replace_one":
            public.insert(0, "n_samples")
        report = self.marginals.report(
            type(sampler).__name__,
            public=tuple(public),
            noise_source=sampler._noise_description(),
            precision=self.precision(),
            rounding=self._rounding(),
        )
        if sampler.unit_weights == "equal":
            return sampler._protected(report)
        return report.for_persons(sampler.unit, max_rows=sampler.max_rows)


class SamplerPlanMixin(EstimatorMixin):
    """The plan of a sampler without a record."""

    @fit_context(prefer_skip_nested_validation=False)
    def plan(self, n_samples: int | None = None, n_features: int | None = None) -> PrivacyReport:
        """Return what ``fit`` will release and what it costs, without a record.

        Parameters
        ----------
        n_samples : int or None, default=None
            Number of private records, or of persons where there is a ``unit``. With
            neighbours="add_or_remove" it is not public, and nothing depends on it.
        n_features : int or None, default=None
            The number of columns of the schema, if given.

        Returns
        -------
        PrivacyReport
            Equal to ``privacy_`` of a fit of so many records. Its ``precision`` is in records,
            persons, or rows of them; its ``split`` is in the scale in which Gaussian releases add
            up.

        Raises
        ------
        ValueError
            As ``fit`` for parameters, or no number of records where it is public.

        Warns
        -----
        NoisyCountsWarning
            Where the noise of counts leaves next to nothing of so many records.
        """
        if n_features not in (None, len(self.schema)):
            raise PublicValueError(
                f"n_features must be the {len(self.schema)} columns of the schema, got "
                f"{n_features}."
            )
        plan = self._plan(table=declared_table(self), n_samples=n_samples)
        details, _ = plan.details
        if details.n_records is not None:
            details.warn(details.n_records)
        return plan.report
