"""Plan of a RelationalSampler, from its parameters and public numbers alone."""

import math

import numpy as np

from sklearn_dpgen.accounting._calibration import check_delta_size
from sklearn_dpgen.accounting._wording import count_words
from sklearn_dpgen.exceptions import PublicValueError
from sklearn_dpgen.schema import Table
from sklearn_dpgen.tables._marginals import target_columns
from sklearn_dpgen.tables._privacy_plan import MarginalsPlan, Round, warn_of_noise
from sklearn_dpgen.tables._public_persons import public_stages
from sklearn_dpgen.tables._releases import column_factors, noise_factors
from sklearn_dpgen.utils._random import ROUNDING
from sklearn_dpgen.utils._validation import check_count, check_delta

__all__ = ["PersonPlan"]

# Share of the budget of single variables, and the weights of marginals that sequences need, and of
# those that hold a target.
_SINGLES, _SEQUENCES, _TARGETS = 0.2, 2.0, 2.0
# The most two-way marginals that are released without a selection.
_MOST_PAIRS = 200
# Share of the pairs that are released again, as the most dependent ones, and their share of the
# budget of pairs.
_AGAIN, _AGAIN_SHARE = 0.15, 0.5


def _targets(sampler, layout):
    """Return the variables of the targets; an error if one is not a column of the schema."""
    is_panel = isinstance(sampler.schema, Table)
    names: dict[str, int] = {}
    for stage, own in zip(layout.declared, layout.stages, strict=True):
        prefix = "" if is_panel else f"{stage.name}."
        names |= {f"{prefix}{name}": j for name, j in zip(stage.columns, own.columns, strict=True)}
    form = "" if is_panel else ' as "table.column"'
    found = target_columns(sampler.target, list(names), f"name columns of the schema{form}")
    return {[*names.values()][i] for i in found}


class PersonPlan:
    """The releases of a fit, with their noise scales and privacy report.

    Parameters
    ----------
    sampler : RelationalSampler
    layout : PersonLayout
    public : dict of str to PublicRows
        The public tables.
    n_samples : int or None
        Number of persons; not read if it is not public.

    Attributes
    ----------
    public : dict of int to PublicStage
        The public rows of each stage.
    """

    def __init__(self, sampler, layout, public, n_samples):
        self._sampler, self.layout, self._public = sampler, layout, public
        self.public = public_stages(layout, public)
        delta, self.n_records = check_delta(sampler.delta), None
        if sampler.neighbours == "replace_one":
            self.n_records = check_count(n_samples, "n_samples")
            if math.isfinite(sampler.epsilon):
                check_delta_size(delta, self.n_records)
        self._sequences = {*layout.sequences()}
        self._targets = _targets(sampler, layout)
        self.rounds = self._planned_rounds()
        self.marginals = MarginalsPlan(
            sampler.epsilon,
            delta,
            sampler.neighbours,
            self.rounds,
            1,
            (self._sizes, self._sizes) if sampler._is_certified else None,
        )
        if self.n_records is not None and self.n_records > self.marginals.most_records:
            raise PublicValueError(
                f"n_samples must be at most {self.marginals.most_records} for selections with "
                f"noise='certified' at this budget, got {self.n_records}: use a smaller epsilon, "
                "or a schema of fewer columns."
            )

    def _planned_rounds(self):
        sequences, pairs = self.layout.sequences(), self.layout.pairs()
        rest = 1 - _SINGLES
        if len(pairs) <= _MOST_PAIRS:
            tables = (*sequences, *pairs)
            if not pairs:
                return (Round(tables, rest),) if tables else ()
            again = max(1, round(_AGAIN * len(pairs)))
            last = Round(tuple(pairs), rest * _AGAIN_SHARE, n_chosen=again)
            return (Round(tables, rest * (1 - _AGAIN_SHARE)), last)
        # Pairs of targets are not selected, and each counts as several others in their shares.
        given = [pair for pair in pairs if self._holds_target(pair)]
        others = [pair for pair in pairs if not self._holds_target(pair)]
        n_selected = _MOST_PAIRS if len(others) > _MOST_PAIRS else None
        kinds = [
            (sequences, len(sequences), None),
            (given, _TARGETS**2 * len(given), None),
            (others, n_selected or len(others), n_selected),
        ]
        total = sum(size for _, size, _ in kinds)
        return tuple(
            Round(tuple(tables), rest * size / total, n) for tables, size, n in kinds if tables
        )

    def _holds_target(self, columns):
        """Return whether a marginal holds a target, or its value in the row before."""
        sources = {self.layout.variables[j].source for j in columns}
        return not self._targets.isdisjoint(sources.union(columns))

    def preferences(self, candidates):
        """Return the public factors by which some marginals are preferred to others."""
        return np.array([_TARGETS if self._holds_target(c) else 1.0 for c in candidates])

    def weights(self, planned):
        """Return the public weights of the marginals of a round."""
        if planned.n_tables < len(planned.candidates):
            # Marginals that are chosen have equal noise, which is therefore known before.
            return np.ones(planned.n_tables)
        sequences = [_SEQUENCES if c in self._sequences else 1.0 for c in planned.candidates]
        return np.array(sequences) * self.preferences(planned.candidates)

    @property
    def _sizes(self):
        """Bounds on the number of values of each release."""
        trees = [v.tree for v in self.layout.variables if v.is_released]
        tables = [
            sum(sorted(map(self._most_cells, one.candidates))[-one.n_tables :])
            for one in self.rounds
        ]
        return [max(1, sum(tree.n_cells for tree in trees)), *tables]

    def _most_cells(self, columns):
        return math.prod(map(self.layout.most_blocks, columns))

    @property
    def _single_scales(self):
        trees = [v.tree for v in self.layout.variables if v.is_released]
        factors = column_factors(np.ones(len(trees)), trees)
        factors /= np.array([tree.weights[0] for tree in trees])
        return self.marginals.mechanism.noise_scales[0] * factors

    def _table_scales(self):
        scales = self.marginals.mechanism.noise_scales[1:]
        pairs = zip(scales, map(self.weights, self.rounds), strict=True)
        found = [scale * noise_factors(weights) for scale, weights in pairs]
        return np.concatenate(found or [np.zeros(0)])

    def warn(self, n_records):
        """Warn if counts of so many persons are below the noise."""
        tables = self._table_scales()
        warn_of_noise(
            n_records,
            float(np.median(self._single_scales)),
            float(np.median(tables)) if len(tables) else None,
            epsilon=self._sampler.epsilon,
            unit="persons",
        )

    def report(self):
        """Return the PrivacyReport of the fit."""
        sampler, schema = self._sampler, self._sampler._relational
        public = ["column_names", "schema"]
        public += [
            n for n in ("target", "constraints", "public") if getattr(sampler, n) is not None
        ]
        if sampler.neighbours == "replace_one":
            public.insert(0, "n_samples")
        rounding = 0.0
        if not sampler._is_certified and not math.isinf(sampler.epsilon):
            candidates = sum((one.n_selected or 0) * len(one.candidates) for one in self.rounds)
            rounding = (sum(self._sizes) + candidates) * ROUNDING
        kinds = {"cell of one column": self._single_scales, "cell of a pair": self._table_scales()}
        is_single = len(schema.order) == 1
        hashes = {
            "public" if is_single else f"public {name}": rows.sha256
            for name, rows in self._public.items()
        }
        report = self.marginals.report(
            type(sampler).__name__,
            public=tuple(public),
            public_tables=hashes,
            noise_source=sampler._noise_description(),
            precision={
                name: count_words(scales, self.n_records, "persons")
                for name, scales in kinds.items()
                if len(scales)
            },
            rounding=rounding,
        )
        return report.for_persons(schema[schema.root].primary_key or schema.root)
