"""RelationalSampler: synthesis of persons with many rows, in tables with keys."""

import itertools
import math
import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, Self

import numpy as np
import pandas as pd

from sklearn_dpgen.accounting import PrivacyReport
from sklearn_dpgen.exceptions import MaxRowsWarning, PublicValueError
from sklearn_dpgen.ledger._base import Plan, PrivateEstimator
from sklearn_dpgen.ledger._ledger import LedgerLike
from sklearn_dpgen.persistence._declarations import Maybe, demand, list_of
from sklearn_dpgen.preprocessing import TabularEncoder
from sklearn_dpgen.preprocessing._public_table import PUBLIC_TABLE, check_other_files
from sklearn_dpgen.preprocessing._tabular import check_categories
from sklearn_dpgen.schema import RelationalSchema, Table
from sklearn_dpgen.schema._csv import in_format
from sklearn_dpgen.schema._file import DeclaredParameter, declared_rules
from sklearn_dpgen.schema._rules import Rule
from sklearn_dpgen.tables._conditional_sampling import AcceptanceRateMixin
from sklearn_dpgen.tables._marginals import Marginal
from sklearn_dpgen.tables._person_counts import PersonRecords
from sklearn_dpgen.tables._person_distribution import PersonDistribution
from sklearn_dpgen.tables._person_layout import PersonLayout
from sklearn_dpgen.tables._person_plan import PersonPlan
from sklearn_dpgen.tables._person_rows import read_person_rows, stages_of
from sklearn_dpgen.tables._person_rules import (
    RuledSimulator,
    conditions_of_stages,
    rules_of_stages,
)
from sklearn_dpgen.tables._privacy_plan import CHANGED_CELLS
from sklearn_dpgen.tables._public_persons import read_public_tables
from sklearn_dpgen.tables._releases import NoisyMarginal, scores
from sklearn_dpgen.utils._frames import FramesMixin, frame_kind
from sklearn_dpgen.utils._random import split_random_state
from sklearn_dpgen.utils._validation import (
    BUDGET,
    DEVICE,
    Integral,
    Interval,
    Real,
    StrOptions,
    check_is_fitted,
    check_n_samples,
    fit_context,
    warn_user,
)

if TYPE_CHECKING:
    import torch

__all__ = ["RelationalSampler"]

# Persons drawn for a score, and ranges of numbers and dates.
_SCORED, _CELLS = 10_000, 20
# The least share of parent rows at max_rows that is warned of.
_CUT_SHARE = 0.01


class RelationalSampler(AcceptanceRateMixin, FramesMixin, PrivateEstimator):
    """Synthesis of persons with many rows: parent and child tables, panels and sequences.

    Counts of single columns, of the numbers of rows, and of gaps of the sequence index are released
    with Gaussian noise, then two-way marginals of a row, of a row and the person, and of a row and
    the row before it. A person is protected with all rows in all tables. The distribution of
    persons, and that of each row given the person and the row before, are fitted to the releases by
    post-processing.

    Parameters
    ----------
    epsilon : float, default=1.0
        Privacy budget of the whole fit, in nats; ``np.inf`` adds no noise.
    delta : float, default=1e-5
        Failure probability of the guarantee, in (0, 1).
    schema : RelationalSchema, Table, str or path-like
        The public declaration of the tables and their keys; a Table declares a panel.
    target : str, list of str or None, default=None
        Columns to predict from the others, as "table.column", or "column" if the schema is a
        Table. Their two-way marginals, with columns of the same row, of the rows above and of the
        row before, have half the noise of others, and are preferred when the most dependent ones
        are released again.
    constraints : mapping of str to list of rules, list of rules for a panel, or None, default=None
        Public rules of the rows of each table that every synthetic row satisfies; None takes those
        of ``schema``:
        :class:`~sklearn_dpgen.schema.Inequality`, :class:`~sklearn_dpgen.schema.Implication`,
        :class:`~sklearn_dpgen.schema.Sum`, :class:`~sklearn_dpgen.schema.FunctionalDependency`.
        "patients.birth" is a column of the row of table "patients" above a row, "previous.age" that
        of the row before with the same parent row, in the order of ``sequence_index``. First rows
        have none, and fulfil the rules that name it. Static columns of a panel have no prefix.
        Private rows that violate rules are counted as they are.
    population_size : int, default=10000
        Persons, and rows of each table, on which the distributions are fitted.
    max_iter : int, default=30
        Most steps of L-BFGS for each variable.
    neighbours : {"replace_one", "add_or_remove"}, default="replace_one"
        Neighbouring relation: one person with all rows in all tables is replaced, or added or
        removed. The number of persons is public for "replace_one" only; numbers of rows never are.
    ledger : PrivacyLedger, path or None, default=None
        Ledger that a fit charges before it releases anything; BudgetExceededError is raised if the
        remaining budget is too small. None charges no ledger.
    random_state : int, RandomState or None, default=None
        None draws noise from the operating system's entropy. An int makes the fit reproducible,
        and voids the guarantee against anyone who knows or guesses it.
    device : str or torch.device, default="auto"
        "auto" uses a GPU if there is one.
    verbose : int, default=0
        1 shows the progress of the fit.
    noise : {"float", "certified"}, default="float"
        "certified" rounds counts and scores to a fine grid and adds exact discrete noise: see
        :ref:`certified_noise`. It needs OpenDP, and ``random_state=None``.
    public : mapping of str to PublicTable, data frame or path, or None, default=None
        Public tables beside some of the private ones, by their names, as the prior of the fit: see
        :ref:`public_linked_tables` and :class:`~sklearn_dpgen.preprocessing.PublicTable`. If there
        is one private table, a public one may be given itself. With the keys of the schema, also
        dependence between tables and rows is learned. They are not protected, and must not be made
        from the private records, except by releases that are paid for.

    Attributes
    ----------
    one_way_marginals_ : list of NoisyMarginal
        Released counts of single variables.
    marginals_ : list of NoisyMarginal
        Released two-way marginals, and changes of values from a row to the next.
    distribution_ : PersonDistribution
        The fitted distribution.
    n_records_ : float
        Number of persons: the public number, or an estimate from the noisy counts.
    public_agreement_ : list of PublicAgreement
        With public tables: their distance from released marginals in total variation, the limit of
        distances by noise alone, and the share of their dependence that is copied.
    privacy_ : PrivacyReport
        The guarantee of the fit.
    noise_multiplier_ : float
        Standard deviation of the noise over the sensitivity.
    n_features_in_ : int
        Number of columns of all tables.

    Warns
    -----
    NoisyCountsWarning
        Counts of columns or of pairs are below the noise.
    MaxRowsWarning
        The released numbers of rows have a spike at ``max_rows``, where sizes are cut.
    UnusedPublicTableWarning
        A column of a public table has no known cell, or most of its rows belong to no public
        person.

    Notes
    -----
    **Formal guarantee**

    :Promise: Central (ε, δ)-differential privacy of all that ``fit`` stores, and of all that is
        computed from it.
    :Neighbours: Replace one person; the number of persons is public. With
        ``neighbours="add_or_remove"``: add or remove one person of at least two; the number of
        persons is not public. A person comes with all rows in all tables.
    :Public: The number of persons, unless persons are added or removed; names of the columns, and
        of the tables; ``schema`` with ``max_rows`` and public tables; ``target``;
        ``constraints``; the rows of ``public``. Numbers of rows are not.
    :Bounded by: The declared schema: a row has one category in each column, and the rows of a
        person in one table together count once.
    :Noise: Gaussian on counts, by :class:`~sklearn_dpgen.mechanisms.GaussianSequenceMechanism`, and
        Gumbel in selections, by ``SelectionMechanism``, from the operating system's entropy; in
        floating point, or with ``noise="certified"`` exact.
    :Priced by: The privacy profile of the Gaussian mechanism, in closed form, composed with those
        of the selections; no sampling.
    :Not covered: Other fits of the same persons, which a ``ledger`` adds up; errors of a fit; a
        ``random_state`` that others know or guess.
    :Proof: Notes; :ref:`persons`; of certified noise :ref:`certified_noise`.

    All variables of a row are functions of the rows of the same person: its columns, the columns of
    its parent rows, their numbers of rows and their ``aggregates``, its position, and the row
    before it in the order of the index, where ties are broken by a public hash of the rows. Columns
    of a public table are public functions of its key in the row, and are counted as groups of keys.
    A row has as weight one over the product of the numbers of rows on its path from the person, so
    the rows of a person in one table have total weight at most 1, and add to each marginal a
    non-negative vector of l1 norm at most 1. Marginals are multiplied by weights whose squares sum
    to 1 and released as one vector: a person adds a non-negative vector of l2 norm at most 1. If a
    person is replaced, the change is at most √2, as the inner product of two non-negative vectors
    is not negative. Two persons with equal rows each attain this. ``max_rows`` bounds the number of
    rows that is drawn, not the weight of a person. Rows of no person in the root table are dropped.

    Keys of a table with children must be distinct between persons. Rows below a key that several
    persons have belong to all of these persons, who are protected only together; such rows are not
    counted.

    The budget is split in μ², in which Gaussian releases compose additively: 0.2 for single
    variables, the remainder for marginals. Half of it releases all pairs, by whose counts the most
    dependent ones are chosen, which costs nothing; the other half releases these again, at a finer
    resolution. If there are more than 200 pairs, the most dependent ones are selected privately.
    Marginals that hold a target have twice the weight of others in the first half. In the choice
    for the second half, all marginals of which have equal noise, their dependence counts twice. If
    there are more than 200 pairs, those of a target are released without a selection.

    The row before is drawn from the fit without memory, whose distribution is released, rather than
    from simulated sequences, in which errors would add up. Simulated sequences then calibrate the
    frequencies of single columns. Tables are fitted by regularized maximum entropy, as by
    :class:`TableSampler`.

    With ``public`` tables, a synthetic person is given a public one by weight, and each of its rows
    the row of that person at the same position, and copies each variable with a probability that is
    learned from the released pairs, as by :class:`TableSampler`. A row beyond those of the public
    person copies nothing. Without keys, each row is given a row of its own table by weight. Noise,
    number and budgets of the releases are the same as without public tables, which only determine
    what is made of them, and which pairs are released again or selected.

    A row that violates a rule is redrawn up to four times within the blocks of its values, then up
    to 32 times given the same rows above and before. If it still violates a rule, all rows of its
    parent row are redrawn, up to eight times, and then the person is rejected. Totals and
    functionally dependent columns are measured as others are, and then replaced by what rules
    compute.

    Examples
    --------
    >>> import numpy as np
    >>> import pandas as pd
    >>> from sklearn_dpgen.schema import Categorical, Numeric, Schema, Table
    >>> from sklearn_dpgen.tables import RelationalSampler
    >>> panel = Table(
    ...     Schema({
    ...         "sex": Categorical(["f", "m"]),
    ...         "year": Numeric(2001, 2003, integer=True),
    ...         "ill": Categorical(["no", "yes"]),
    ...     }),
    ...     primary_key="id", sequence_index="year", max_rows=3, static=["sex"], ties=False,
    ... )
    >>> rng = np.random.default_rng(0)
    >>> n, ids = 2000, np.arange(2000)
    >>> frame = pd.DataFrame({
    ...     "id": np.repeat(ids, 3),
    ...     "sex": np.repeat(rng.choice(["f", "m"], n), 3),
    ...     "year": np.tile([2001, 2002, 2003], n),
    ...     "ill": np.repeat(rng.choice(["no", "yes"], n), 3),
    ... })
    >>> sampler = RelationalSampler(schema=panel, population_size=2000).fit(frame)
    >>> [*sampler.sample(2)]
    ['id', 'sex', 'year', 'ill']
    """

    # None is what the schema declares.
    constraints = DeclaredParameter(declared_rules)

    _saved_state: dict = {
        "noise_multiplier_": float | None,
        "n_records_": float,
        "encoders_": list[TabularEncoder | None],
        "one_way_marginals_": list[NoisyMarginal],
        "marginals_": list[NoisyMarginal],
        "distribution_": PersonDistribution,
        "_frame_kinds": dict[str, Literal["pandas", "polars", "pyarrow"]],
        "_is_dict": bool,
        "public_agreement_": Maybe(list_of("PublicAgreement")),
    }
    _not_saved: dict = {"public": "It is tables, or their paths; the report has their hashes."}
    # A fit on the CPU computes with NumPy; one on a GPU loads PyTorch itself.
    _uses_torch = False
    _parameter_constraints: dict = {
        "epsilon": BUDGET,
        "delta": [Interval(Real, 0, 1, closed="neither")],
        "schema": [RelationalSchema, Table],
        "target": [str, list, tuple, None],
        "constraints": [Mapping, list, tuple, None],
        "population_size": [Interval(Integral, 2, None, closed="left")],
        "max_iter": [Interval(Integral, 1, None, closed="left")],
        "neighbours": [StrOptions(set(CHANGED_CELLS))],
        "random_state": ["random_state"],
        "device": DEVICE,
        "verbose": ["verbose"],
        "public": [Mapping, *PUBLIC_TABLE],
    }

    def __init__(
        self,
        epsilon: float = 1.0,
        delta: float = 1e-5,
        *,
        schema: RelationalSchema | Table | str | os.PathLike,
        target: str | Sequence[str] | None = None,
        constraints: Mapping[str, Sequence[Rule]] | Sequence[Rule] | None = None,
        population_size: int = 10_000,
        max_iter: int = 30,
        neighbours: str = "replace_one",
        ledger: LedgerLike = None,
        random_state: int | np.random.RandomState | None = None,
        device: "str | torch.device" = "auto",
        verbose: int = 0,
        noise: str = "float",
        public: Any = None,
    ) -> None:
        self.epsilon = epsilon
        self.delta = delta
        self.schema = schema
        self.target = target
        self.constraints = constraints
        self.population_size = population_size
        self.max_iter = max_iter
        self.neighbours = neighbours
        self.ledger = ledger
        self.random_state = random_state
        self.device = device
        self.verbose = verbose
        self.noise = noise
        self.public = public

    @fit_context(prefer_skip_nested_validation=False)
    def fit(self, tables: Mapping[str, Any] | pd.DataFrame, y: object = None) -> Self:
        """Release noisy marginals of persons and their rows, and fit a distribution to them.

        Parameters
        ----------
        tables : mapping of str to table, or a table for a panel
            The private tables by name, each in any form that :meth:`TableSampler.fit` takes. The
            rows of a person may be scattered over chunks and files. Keys are integers, texts or
            dates; texts of integers, as CSV files have them, equal integers of other tables.
        y : ignored

        Returns
        -------
        self : object

        Raises
        ------
        PublicTypeError, PublicValueError
            Tables or keys are missing, keys are of two types, or values do not fit the schema; the
            message names the table, the column and the rule.
        """
        return self._fit(tables)

    @fit_context(prefer_skip_nested_validation=False)
    def plan(self, n_samples: int | None = None, n_features: int | None = None) -> PrivacyReport:
        """Return the privacy report of a fit on ``n_samples`` persons, before any is read.

        Parameters
        ----------
        n_samples : int or None, default=None
            Number of persons. It is not public and not read with neighbours="add_or_remove".
        n_features : int or None, default=None
            Number of columns of all tables; if given, it must be that of the schema.

        Returns
        -------
        PrivacyReport
            Equal to ``privacy_`` of a fit.
        """
        layout = self._layout()
        public = read_public_tables(self.public, layout.declared)
        n_columns = sum(len(own.columns) for own in layout.stages)
        if n_features not in (None, n_columns):
            raise PublicValueError(
                f"n_features must be the {n_columns} columns of the schema, got {n_features}."
            )
        plan = self._plan(layout=layout, public=public, n_samples=n_samples)
        if plan.details.n_records is not None:
            plan.details.warn(plan.details.n_records)
        return plan.report

    @property
    def _relational(self):
        """The schema, with a panel as its only table."""
        if isinstance(self.schema, Table):
            return RelationalSchema({"rows": self.schema})
        return self.schema

    def _tables_in_format(self, tables):
        """Return tables whose files are in the formats that the schema declares."""
        schema = self._relational
        if not isinstance(tables, Mapping):
            return in_format(tables, schema[schema.root].schema.form)
        return {
            name: in_format(table, schema[name].schema.form) if name in schema else table
            for name, table in tables.items()
        }

    def _layout(self):
        return PersonLayout(stages_of(self._relational))

    def _read(self, tables, *, seed):
        layout, schema = self._layout(), self._relational
        public = read_public_tables(self.public, layout.declared)
        self._is_dict = isinstance(tables, Mapping)
        tables = self._tables_in_format(tables)
        given = tables if self._is_dict else {schema.root: tables}
        beside = self.public if isinstance(self.public, Mapping) else {schema.root: self.public}
        for table, source in itertools.product(given.values(), beside.values()):
            check_other_files(source, table)
        rows = read_person_rows(tables, layout.declared, layout.encoders)
        self._frame_kinds = {name: frame_kind(table) for name, table in given.items()}
        records = PersonRecords(layout, rows)
        return records, {"layout": layout, "public": public, "n_samples": records.n_records}

    def _plan(self, layout, public, n_samples):
        self._rules(layout)
        plan = PersonPlan(self, layout, public, n_samples)
        return Plan(plan.report(), plan)

    def _release(self, plan, records, seed):
        from sklearn_dpgen.tables._person_fit import PersonMeasurements

        details, layout = plan.details, plan.details.layout
        mechanism = details.marginals.mechanism
        run, noise = mechanism.run(), self._noise_source(seed)

        def release(vector):
            return run.release(vector, noise)

        released = [j for j, variable in enumerate(layout.variables) if variable.is_released]
        measured = PersonMeasurements(
            layout,
            {j: records.leaves(j) for j in released},
            dict.fromkeys(released, 1.0),
            mechanism.noise_scales[0],
            release,
            details.n_records,
            details.public,
        )
        details.warn(measured.n_records[0])
        records.use_blocks(measured.count_maps(), measured.ratios)
        scales = mechanism.noise_scales[1:]
        for planned, scale in zip(details.rounds, scales, strict=True):
            candidates = planned.candidates
            if planned.n_chosen is not None:
                preferences = details.preferences(candidates)
                candidates = measured.strongest(candidates, preferences, planned.n_chosen)
            if planned.n_selected is not None:
                spread = scale * math.sqrt(planned.n_selected)
                marginals = measured.marginals_of(candidates, [spread] * len(candidates))
                expected = measured.expected(marginals)
                weights = np.ones(len(candidates))
                values = scores(records.marginal_counts(marginals), expected, weights, spread)
                chosen = run.select(values, noise, count=planned.n_selected)
                candidates = [candidates[i] for i in chosen]
            measured.release(
                candidates,
                records.marginal_counts,
                details.weights(planned),
                scale,
                release,
            )
        return measured

    def _learn(self, plan, released, seed):
        from sklearn_dpgen.tables._person_fit import PersonFit

        fit = PersonFit(
            released,
            self.population_size,
            rules=self._rules(plan.details.layout),
            max_iter=self.max_iter,
            device=self.device,
            seed=seed,
            verbose=self.verbose,
        )
        self.noise_multiplier_ = plan.report.noise_multiplier
        self.n_records_ = released.n_records[0]
        self.n_features_in_ = sum(len(own.columns) for own in plan.details.layout.stages)
        self.encoders_, self.one_way_marginals_ = released.encoders, released.singles
        self.marginals_ = released.measured.marginals
        self.distribution_ = fit.distribution()
        if released.prior is not None:
            self.public_agreement_ = released.agreements()
        starts = self.distribution_.starts
        warn_of_cuts(plan.details.layout, self.one_way_marginals_, released.n_records, starts)

    def sample(
        self,
        n_samples: int = 1,
        *,
        conditions: Mapping | None = None,
        random_state: int | np.random.RandomState | None = None,
    ) -> Any:
        """Draw persons with all their rows, which is post-processing and costs no privacy.

        Parameters
        ----------
        n_samples : int, default=1
            Number of persons.
        conditions : mapping or None, default=None
            ``{table: {column: value, pandas.Interval or list of these}}``, as for
            :meth:`TableSampler.sample`. The table is the root, or a child table of the root, where
            conditions hold for the first row of each person, who then has a row. For a panel
            ``{column: ...}``: conditions on static columns hold for the person, others for the
            first row.
        random_state : int, RandomState or None, default=None
            Seed of the draw.

        Returns
        -------
        dict of str to frame, or frame
            The tables by name, or one table if the fit had one. Keys are new numbers that are
            consistent between tables; rows are ordered by person and index.

        Raises
        ------
        PublicValueError
            A condition on an undeclared table, column or value, or on a column that constraints
            compute; impossible conditions; constraints that fewer than one in 1000 drawn persons
            fulfil.

        Warns
        -----
        UserWarning
            The effective size of the conditions is below 10, or fewer than one in 100 drawn
            persons fulfil the constraints.

        Notes
        -----
        Persons and first rows are drawn under the conditions, and persons are resampled by the
        probabilities of the conditions given what was drawn before.
        """
        check_is_fitted(self)
        n_samples = check_n_samples(n_samples, width=self.n_features_in_)
        (seed,) = split_random_state(random_state, 1)
        rng = np.random.default_rng(seed)
        sampler = self._record_sampler(conditions)
        rows = sampler.sample(n_samples, rng)
        frames = framed(self._relational, sampler.layout.declared, rows)
        kinds = self._frame_kinds
        found = {name: self._given_back(frame, kinds[name]) for name, frame in frames.items()}
        return found if self._is_dict else found[self._relational.root]

    def score(self, tables: Mapping[str, Any] | pd.DataFrame, y: object = None) -> float:
        """Return minus the mean total variation distance to persons over pairs of variables.

        The pairs are those of one row, of a row and the rows above it, and of a row and the row
        before it, with numbers of rows, positions and gaps. A person weighs one in each table.

        Parameters
        ----------
        tables : mapping of str to table, or a table for a panel
            Persons to compare with, as in :meth:`fit`. Their score is not private.
        y : ignored

        Returns
        -------
        float
            Score from -1 to 0; larger is better. Cells are declared labels, and 20 equal ranges of
            numbers and dates, so that fits with different bins are comparable.

        Warns
        -----
        UnpaidScoreWarning
            After a private fit, since the score is not charged.
        """
        check_is_fitted(self)
        self._warn_of_score()
        return -float(self._distances(tables).mean())

    def _bounded_score(self, tables):
        """Return a score in [0, 1] that changes by at most 1/n if one of n persons is replaced.

        It is 1 plus :meth:`score`, but that persons without rows are a cell of each pair. A person
        is then a vector of frequencies that sum to 1 in each pair.
        """
        return 1 - float(self._distances(tables, with_absent=True).mean())

    def _distances(self, tables, *, with_absent=False):
        layout = self._layout()
        given, drawn = (
            PersonRecords(layout, read_person_rows(part, layout.declared, layout.encoders))
            for part in (self._tables_in_format(tables), self.sample(_SCORED, random_state=0))
        )
        return pair_distances(given, drawn, layout, with_absent=with_absent)

    def _rules(self, layout):
        """Return the rules of each stage; an error if they do not fit the schema."""
        return rules_of_stages(self.constraints, self.schema, layout.declared)

    def _record_sampler(self, conditions):
        """Return the simulator under the constraints and conditions."""
        layout = self._layout()
        rules = self._rules(layout)
        encoders = self.encoders_
        conditions = conditions_of_stages(conditions, self.schema, layout, encoders, rules)
        return RuledSimulator(layout, self.distribution_, encoders, rules, conditions)

    def __sklearn_is_fitted__(self):
        return hasattr(self, "distribution_")

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.non_deterministic = self.random_state is None
        return tags

    def _check_saved_state(self):
        super()._check_saved_state()
        layout = self._layout()
        n_columns = sum(len(own.columns) for own in layout.stages)
        demand(self.n_features_in_ == n_columns, "There are other columns.")
        demand(
            self._is_dict or len({stage.name for stage in layout.declared}) == 1,
            "There are several tables.",
        )
        demand(len(self.encoders_) == len(layout.stages), "There are other tables.")
        demand({*self._frame_kinds} == {*self._relational.order}, "There are other tables.")
        for own, encoder, fine in zip(layout.stages, self.encoders_, layout.encoders, strict=True):
            demand((encoder is None) == (fine is None), "A table has other columns.")
            if encoder is None:
                continue
            check_categories(encoder)
            demand(encoder.schema == fine.schema, "An encoder is for another table.")
            sizes = [column.n_categories for column in encoder.columns_.values()]
            for j, size in zip(own.columns, sizes, strict=True):
                fits = layout.variables[j].is_constant or size == len(self.distribution_.blocks[j])
                demand(fits, "A column has other categories than the distribution.")
        self.distribution_.check_layout(layout)
        names = {variable.name for variable in layout.variables}
        for marginal in (*self.one_way_marginals_, *self.marginals_):
            demand(set(marginal.columns) <= names, "A marginal has other columns.")


def pair_distances(records, drawn, layout, *, with_absent=False):
    """Return the total variation distances of two-way marginals of persons and drawn persons.

    Parameters
    ----------
    records, drawn : PersonRecords
        Their categories are replaced by cells.
    layout : PersonLayout
    with_absent : bool, default=False
        Whether the frequencies are those of all persons, with a cell for what is missing to a
        person's weight of 1, instead of those of the persons with rows.

    Returns
    -------
    ndarray of shape (n_pairs,)
        1 where only one of them has rows, unless ``with_absent``.
    """
    cells = {}
    for j, variable in enumerate(layout.variables):
        tree = variable.tree
        if tree is not None:
            n_cells = tree.n_values if tree.is_flat else min(tree.n_values, _CELLS)
            cells[j] = np.arange(tree.n_values + tree.nullable) * n_cells // tree.n_values
    sizes = {j: int(blocks.max()) + 1 for j, blocks in cells.items()}
    for own in layout.stages:
        sizes |= {memory: sizes[source] + 1 for source, memory in own.memories.items()}
    pairs = [columns for columns in layout.pairs() + layout.sequences() if len(columns) == 2]
    marginals = [Marginal(pair, tuple(np.arange(sizes[j]) for j in pair)) for pair in pairs]
    found = []
    for persons in (records, drawn):
        persons.use_blocks(cells)
        tables = persons.marginal_counts(marginals)
        if with_absent:
            tables = [np.append(table, persons.n_records - table.sum()) for table in tables]
        found.append([table / max(table.sum(), 1e-9) for table in tables])
    # Two tables without rows agree, and one without rows has the distance 1 from any other.
    return np.array(
        [
            np.abs(a - b).sum() / 2 if a.any() == b.any() else 1.0
            for a, b in zip(*found, strict=True)
        ]
    )


def framed(schema, stages, drawn):
    """Return the tables by name, with new consistent keys."""
    frames, keys = {}, []
    for position, (stage, rows) in enumerate(zip(stages, drawn, strict=True)):
        frame = rows.frame
        keys.append(_new_keys(schema, stage.name, len(frame)))
        table = schema[stage.name]
        if schema.is_panel and position == 0:
            continue
        if schema.is_panel:
            parts = {table.primary_key: keys[0][rows.parent]}
            static = drawn[0].frame.iloc[rows.parent].reset_index(drop=True)
            values = static.to_dict("series") | frame.to_dict("series")
        else:
            parts = {}
            if table.primary_key is not None:
                parts[table.primary_key] = keys[position]
            if stage.parent is not None:
                parts[schema.parent_key(stage.name)] = keys[stage.parent][rows.parent]
            values = frame.to_dict("series")
        values |= {name: table.schema[name].made_up(len(frame)) for name in stage.unread}
        parts |= {name: values[name] for name in stage.public_keys}
        columns = {name: values[name] for name in table.schema if name in values}
        frames[stage.name] = pd.DataFrame(parts | columns)
    return frames


def warn_of_cuts(layout, marginals, n_records, starts):
    """Warn of each table whose released numbers of rows have a spike at the bound of the model.

    Parameters
    ----------
    layout : PersonLayout
    marginals : list of NoisyMarginal
        Released counts of single variables.
    n_records : list of float
        For each table the number of persons with rows in it.
    starts : list of ndarray of int
        For each variable with bins the first leaf of each.
    """
    for stage, own in zip(layout.declared, layout.stages, strict=True):
        most = stage.max_rows
        if own.count is None or most == 1:
            continue
        index = None if own.index is None else layout.variables[own.index].tree
        if index is not None and most >= index.n_values:
            # All values of the index occur, once each.
            continue
        name = layout.variables[own.count].name
        tables = [table for table in marginals if table.columns == (name,)]
        # Many sizes are counted in bins, of which a spike has one of its own.
        bins = starts[own.count] if len(starts[own.count]) else np.arange(most + 1)
        *_, width, left = np.diff(np.append(bins, most + 1))
        if left > 1:
            continue
        last, noise = _cell(tables, len(bins) - 1)
        before, other = (value / width for value in _cell(tables, len(bins) - 2))
        total = max(n_records[own.parent], 1.0)
        if last - before > 3 * math.hypot(noise, other) and last > _CUT_SHARE * total:
            warn_user(
                f"Table {stage.name!r}: about {min(last / total, 1):.0%} of the parent rows have "
                f"max_rows={most} rows or more, and far fewer have {most - 1}. Synthetic ones have "
                "no more: raise max_rows, unless more are impossible.",
                MaxRowsWarning,
            )


def _cell(tables, category):
    """Return the most precise count of a category alone, and its noise; infinite if none is."""
    found = [(np.inf, 0.0)]
    for table in tables:
        group = table.groups[0][category]
        if (table.groups[0] == group).sum() == 1:
            noise = np.broadcast_to(table.noise_scale, table.counts.shape)[group]
            found.append((float(noise), float(table.counts[group])))
    noise, count = min(found)
    return count, noise


def _new_keys(schema, name, n):
    """Return new keys of a table, of the kind that it or a child table declares for them.

    They are the numbers 1, 2, 3, ..., or those of an Identifier.
    """
    table = schema[name]
    holders = [(name, table.primary_key)]
    holders += [(child, schema.parent_key(child)) for child in schema.children(name)]
    declared = (schema[holder].schema.get(key) for holder, key in holders)
    column = next((column for column in declared if column is not None), None)
    return np.arange(1, n + 1) if column is None else column.made_up(n).to_numpy()
