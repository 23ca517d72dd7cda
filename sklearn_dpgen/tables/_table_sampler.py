"""TableSampler: maximum-entropy synthesis of tables from noisy low-order marginals."""

import math
import os
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Self

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike

from sklearn_dpgen.accounting import PrivacyReport
from sklearn_dpgen.exceptions import PublicValueError
from sklearn_dpgen.ledger._base import Plan, PrivateEstimator
from sklearn_dpgen.ledger._ledger import LedgerLike
from sklearn_dpgen.persistence._declarations import Maybe, demand, list_of
from sklearn_dpgen.preprocessing._public_table import (
    PUBLIC_TABLE,
    check_other_files,
    declared_public,
)
from sklearn_dpgen.preprocessing._records import check_saved_encoder
from sklearn_dpgen.preprocessing._tabular import TabularEncoder, check_categories
from sklearn_dpgen.schema import Schema
from sklearn_dpgen.schema._binned import Binned
from sklearn_dpgen.schema._file import DeclaredParameter, declared_rules
from sklearn_dpgen.schema._rules import Rule
from sklearn_dpgen.tables._column_trees import MAX_LEAVES
from sklearn_dpgen.tables._conditional_sampling import AcceptanceRateMixin, ConditionalSamplerMixin
from sklearn_dpgen.tables._marginals import ColumnBlocks, Marginal, all_pairs, marginal_counts
from sklearn_dpgen.tables._privacy_plan import CHANGED_CELLS
from sklearn_dpgen.tables._public_columns import public_blocks, public_leaves
from sklearn_dpgen.tables._records import encode_codes, fit_columns, open_records, with_bins
from sklearn_dpgen.tables._releases import (
    Measurements,
    NoisyMarginal,
    measure_columns,
    measure_rounds,
    with_label_counts,
)
from sklearn_dpgen.tables._sampler_plan import SamplerPlan, declared_table
from sklearn_dpgen.tables._table_rules import barred_pairs
from sklearn_dpgen.utils._frames import as_pandas
from sklearn_dpgen.utils._validation import (
    BUDGET,
    DEVICE,
    Integral,
    Interval,
    Real,
    StrOptions,
    check_is_fitted,
    fit_context,
)

if TYPE_CHECKING:
    import torch

__all__ = ["TableSampler", "pair_distances"]

# Records drawn per batch for a score.
_BLOCK = 1 << 16


class TableSampler(AcceptanceRateMixin, ConditionalSamplerMixin, PrivateEstimator):
    """Maximum-entropy synthesis of tables from noisy low-order marginals.

    Counts of single columns are released with Gaussian noise, and determine the bins of numbers
    and dates. Marginals of two to seven columns are then released at the finest resolution the
    noise supports; if there are too many, they are selected privately. A chain of log-linear
    conditional distributions, one for each column given earlier ones, is fitted to all releases by
    post-processing, and synthetic records are drawn from it.

    Parameters
    ----------
    epsilon : float, default=1.0
        Privacy budget of the whole fit, in nats; ``np.inf`` adds no noise.
    delta : float, default=1e-5
        Failure probability of the guarantee, in (0, 1).
    schema : Schema, str or path-like
        The public declaration of the columns. Labels of an ``OpenCategorical`` are discovered.
    target : str, list of str or None, default=None
        Columns to predict from the others. Their pairs are released first, and alone if records
        are few; all larger marginals contain a target; targets are drawn last.
    marginals : "auto", "pairs" or list of tuple of str, default="auto"
        Marginals to release besides all single columns. "auto" plans them from the budget and the
        number of records: pairs of the targets, the other pairs or at most 200 privately selected
        ones, then up to 40 selected marginals of three to seven columns. "pairs" is all pairs. A
        list has tuples of one to seven columns.
    n_bins : "auto", int or mapping, default="auto"
        Bins of numbers and dates. "auto" derives at most 192 bins of a column from its noisy
        counts: wide bins where records are few, and bins of one value for frequent values. Public
        bins are a number of equal bins for each column, at most 131072, or
        ``{column: number or edges}``, as ``n_bins`` of
        :class:`~sklearn_dpgen.preprocessing.TabularEncoder`; columns not named are as for "auto".
    workload : mapping or None, default=None
        Public weights ``{column or tuple of columns: weight}``, from 1e-6 to 1e6; the default is
        1. Within a release, the standard deviation of the noise of a marginal of weight w is
        proportional to 1/w; selections multiply the distance by w. The weight of a marginal is
        that of its tuple, or the product of the weights of its columns. A single column of k labels
        has (k/32)^(1/3) times its weight, at least 1 and at most 3 times.
    constraints : list of rules or None, default=None
        Public rules that every synthetic record satisfies; None takes those of ``schema``:
        :class:`~sklearn_dpgen.schema.Inequality`, :class:`~sklearn_dpgen.schema.Implication`,
        :class:`~sklearn_dpgen.schema.Sum`, :class:`~sklearn_dpgen.schema.FunctionalDependency`.
        Private records that violate them are counted as they are. Totals and functionally
        dependent columns are computed, not measured, and cost no privacy.
    population_size : int, default=20000
        Rows drawn from the distribution of earlier columns, on which the next conditional is
        fitted.
    max_iter : int, default=30
        Most steps of L-BFGS for each column. Fits between selections take a fifth of them, and
        each fit starts from the previous one.
    neighbours : {"replace_one", "add_or_remove"}, default="replace_one"
        Neighbouring relation: one record is replaced, or added or removed. The number of records
        is public for "replace_one" only.
    ledger : PrivacyLedger, path or None, default=None
        Ledger that a fit charges before it releases anything; BudgetExceededError is raised if the
        remaining budget is too small. None charges no ledger.
    unit : str or None, default=None
        Name of the column of X with the person of each row. The guarantee then protects persons
        with all of their rows. The column must be outside the schema or an Identifier in it, and
        is not modelled. None takes that of ``schema``, and protects rows if it has none.
    unit_weights : {"equal", "rows"}, default="equal"
        Weights of rows with ``unit``. "equal": each of the m rows of a person has weight 1/m, so
        that persons count once and the noise is that of one row each; the fit estimates the
        distribution of a random row of a random person. "rows": each row has weight 1, and the
        noise is ``max_rows`` times larger; the fit estimates the distribution of rows, whose
        number is not public.
    max_rows : int or None, default=None
        Bound on the rows of a person, required with unit_weights="rows". If a person has m rows
        and m is larger, each has weight max_rows / m.
    store : {"auto", "codes", "none"}, default="auto"
        "codes" reads a table once and stores the category of each value in one to four bytes.
        "none" stores counts only, and reads the table again for each round, up to eight times.
        Releases are equal, bit for bit, if ``X`` has the same records whenever it is read, as the
        sensitivity requires. "auto" is "none" for tables of dask, Spark and Ray, and for
        re-readable tables of more than 1 GiB of codes, else "codes".
    n_jobs : int or None, default=None
        Number of threads that count; None is 1, and -1 one per core. Engines use their workers.
    random_state : int, RandomState or None, default=None
        None draws noise from the operating system's entropy. An int makes the fit reproducible,
        and voids the guarantee against anyone who knows or guesses it.
    device : str or torch.device, default="auto"
        "auto" uses a GPU if there is one.
    verbose : int, default=0
        1 shows the exact number of rows counted, which is private, and the progress of each fit.
    noise : {"float", "certified"}, default="float"
        "certified" rounds counts and scores to a fine grid and adds exact discrete noise: see
        :ref:`certified_noise`. It needs OpenDP, and ``random_state=None``.
    public : PublicTable, data frame, path or None, default=None
        A public table with some of the columns, as the prior of the fit; None takes that of
        ``schema``. See :ref:`prior_of_public_tables` and
        :class:`~sklearn_dpgen.preprocessing.PublicTable`. It is not protected, and must not be made
        from the private records, except by releases that are paid for.

    Attributes
    ----------
    one_way_marginals_ : list of NoisyMarginal
        Released counts of single columns, a marginal for each level of each column.
    marginals_ : list of NoisyMarginal
        Released marginals of two and more columns, in the order of release.
    law_ : LogLinearChain
        Fitted distribution: the conditional distributions of the columns, in the order in which
        they are drawn.
    n_records_ : float
        Number of records, or of persons or rows with ``unit``: the public number, or an estimate
        from the noisy counts.
    bins_ : dict of str to ndarray
        Edges of the bins of numbers and dates, in the units of each column.
    encoder_ : TabularEncoder
        Encoder of records with the final bins, without computed columns.
    public_agreement_ : list of PublicAgreement
        With a public table: its distance from each released marginal in total variation, the limit
        of distances by noise alone, and the share of its dependence that is copied.
    privacy_ : PrivacyReport
        The guarantee of the fit.
    noise_multiplier_ : float
        Standard deviation of the noise over the sensitivity.
    n_features_in_ : int
        Number of columns.
    feature_names_in_ : ndarray of str
        Their names.

    Warns
    -----
    NoisyCountsWarning
        Counts of columns or of pairs are below the noise.

    Notes
    -----
    **Formal guarantee**

    :Promise: Central (ε, δ)-differential privacy of all that ``fit`` stores, and of all that is
        computed from it.
    :Neighbours: Replace one record; the number of records is public. With
        ``neighbours="add_or_remove"``: add or remove one record of at least two; the number of
        records is not public. With ``unit``: a person with all their rows in place of a record.
    :Public: ``n_samples``, unless records are added or removed; names of the columns; ``schema``,
        ``n_bins``, ``marginals``, ``target``, ``workload``, ``constraints``, ``max_rows`` and the
        rows of ``public``. With ``unit``: numbers of persons, and not those of their rows.
    :Bounded by: The declared schema: a record has one category in each column, and so adds one to
        one cell of each table, and to one label of each open column. The rows of a person together
        count once, or ``max_rows`` times.
    :Noise: Gaussian on counts, by :class:`~sklearn_dpgen.mechanisms.GaussianSequenceMechanism`, and
        Gumbel in selections, by ``SelectionMechanism``, from the operating system's entropy; in
        floating point, or with ``noise="certified"`` exact.
    :Priced by: The privacy profile of the Gaussian mechanism, in closed form, composed with those
        of the selections; no sampling.
    :Not covered: Other fits of the same records, which a ``ledger`` adds up; errors of a fit; a
        ``random_state`` that others know or guess. ``verbose`` shows exact numbers of rows.
    :Proof: Notes; :ref:`tables`; of persons :ref:`budget_persons`; of certified noise
        :ref:`certified_noise`.

    A record adds one to one cell of each marginal. Marginals are multiplied by weights whose
    squares sum to 1 and released as one vector. Its l2 sensitivity is 1 if a record is added or
    removed, and √2 if one is replaced, which changes two cells of each marginal. The budget is
    split in μ², in which Gaussian releases compose additively: 0.15 for single columns, or 0.25 if
    not all pairs are affordable, and at least 1/(m + 1) beside m pairs; of the remainder a fifth
    for larger marginals with targets, or a tenth for others; of what then remains at least 0.3 for
    pairs of targets; and 0.15 of each round with a selection for the selection. The plan depends
    on public quantities alone. If the number of records is not public, its noisy estimate
    determines the resolution of marginals, and which rounds repeat the marginals of the first
    round. Where a value of a target is rare by the noisy counts, rounds of other pairs release the
    pairs of targets again; the stated ``precision`` of a pair is that of targets whose values are
    about equally frequent.

    Labels of open columns are discovered before: a fifth of the budget for each, at most two
    fifths, releases the counts of all labels that occur, without those below a threshold that a
    label of one record passes with a probability of at most 0.049 δ; other labels become ``other``.
    With a ``unit`` one row of each person is drawn for it. See :ref:`open_labels`.

    With a ``unit``, a row adds a non-negative vector of norm 1 times its weight. The rows of a
    person have total weight k at most, with k = 1 or ``max_rows``, and so add a vector of norm at
    most k, by the triangle inequality. If a person is replaced, a vector a is replaced by a vector
    b, and ‖a − b‖² = ‖a‖² + ‖b‖² − 2 a·b ≤ 2 k², as a·b ≥ 0. So the sensitivity is k, or √2 k,
    which k equal rows attain; scores change by at most k, or 2 k. Weights are rounded down to
    multiples of 2⁻²³, so that their sums are exact up to 2³⁰ persons.

    For n records and noise of standard deviation σ, a marginal has K cells with
    n / K = 6 √(σ² + n / K). In pairs of ordered columns, such as numbers, each then has 1.6 times
    as many groups, since ridges damp the noise of high frequencies. A selection takes the marginal
    with the largest l1 distance from its expected counts, less the mean distance under noise, plus
    Gumbel noise. Its privacy profile of bounded range is composed with the Gaussian one.

    This is the signed measure mechanism [1]_ on low-order marginals, with selections as in [2]_.
    In place of a linear program, the conditional distribution of each column is fitted by
    regularized maximum entropy [3]_. Ridges are the ratio of the noise of a marginal to its
    signal, which is estimated from the marginal, separately for low and high frequencies along
    its axes.

    With a ``public`` table, the prior of a record is a weighted row of it: the record copies each
    column with probability κ_j, and else has a random value. Shares of single columns are the
    posterior of a Kalman step for each level of their counts, public rows are weighted to these
    shares, and conditional distributions have maximum entropy relative to the copies. κ_j is
    learned from the released pairs, by their correlation with the dependence in the public table.
    All of this is post-processing, so that the guarantee is the same for any table that does not
    depend on the records; only the budget of single columns, 0.3 in place of 0.15, and selections
    differ.

    The time after the counts does not depend on the number of records. These are stored as codes
    of one to four bytes per value.

    References
    ----------
    .. [1] Y. He, R. Vershynin, Y. Zhu, "Algorithmically effective differentially private
       synthetic data", COLT 2023.
    .. [2] R. McKenna et al., "AIM: an adaptive and iterative mechanism for differentially private
       synthetic data", VLDB 2022.
    .. [3] M. Dudík, S. Phillips, R. Schapire, "Maximum entropy density estimation with generalized
       regularization and an application to species distribution modeling", JMLR 2007.

    Examples
    --------
    >>> from sklearn_dpgen.datasets import load_rand_health
    >>> from sklearn_dpgen.tables import TableSampler
    >>> data = load_rand_health()
    >>> sampler = TableSampler(schema=data.schema, target="mdvis", population_size=2000)
    >>> sampler.fit(data.frame).sample(3, conditions={"idp": 1})["idp"].tolist()
    [1, 1, 1]
    """

    # None is what the schema declares.
    constraints = DeclaredParameter(declared_rules)
    public = DeclaredParameter(declared_public)

    _saved_state: dict = {
        "noise_multiplier_": float | None,
        "n_records_": float,
        "encoder_": TabularEncoder,
        "one_way_marginals_": list[NoisyMarginal],
        "marginals_": list[NoisyMarginal],
        "law_": "LogLinearChain",
        "_rules_": Maybe("TableRules"),
        "public_agreement_": Maybe(list_of("PublicAgreement")),
    }
    _not_saved: dict = {"public": "It is a table, or the path of one; the report has its hash."}
    # A fit on the CPU computes with NumPy; one on a GPU loads PyTorch itself.
    _uses_torch = False
    _parameter_constraints: dict = {
        "epsilon": BUDGET,
        "schema": [Schema],
        "random_state": ["random_state"],
        "device": DEVICE,
        "delta": [Interval(Real, 0, 1, closed="neither")],
        "target": [str, list, tuple, None],
        "marginals": [StrOptions({"auto", "pairs"}), list, tuple],
        "n_bins": [StrOptions({"auto"}), Interval(Integral, 2, MAX_LEAVES, closed="both"), dict],
        "workload": [dict, None],
        "constraints": [list, tuple, None],
        "population_size": [Interval(Integral, 2, None, closed="left")],
        "max_iter": [Interval(Integral, 1, None, closed="left")],
        "neighbours": [StrOptions(set(CHANGED_CELLS))],
        "unit_weights": [StrOptions({"equal", "rows"})],
        "max_rows": [Interval(Integral, 1, None, closed="left"), None],
        "store": [StrOptions({"auto", "codes", "none"})],
        "n_jobs": [Integral, None],
        "public": PUBLIC_TABLE,
        "verbose": ["verbose"],
    }

    def __init__(
        self,
        epsilon: float = 1.0,
        delta: float = 1e-5,
        *,
        schema: Schema | str | os.PathLike,
        target: str | Sequence[str] | None = None,
        marginals: str | Sequence[tuple[str, ...]] = "auto",
        n_bins: int | str | Mapping = "auto",
        workload: Mapping | None = None,
        constraints: Sequence[Rule] | None = None,
        population_size: int = 20_000,
        max_iter: int = 30,
        neighbours: str = "replace_one",
        ledger: LedgerLike = None,
        unit: str | None = None,
        unit_weights: str = "equal",
        max_rows: int | None = None,
        store: str = "auto",
        n_jobs: int | None = None,
        random_state: int | np.random.RandomState | None = None,
        device: "str | torch.device" = "auto",
        verbose: int = 0,
        noise: str = "float",
        public: object = None,
    ) -> None:
        self.epsilon = epsilon
        self.delta = delta
        self.schema = schema
        self.target = target
        self.marginals = marginals
        self.n_bins = n_bins
        self.workload = workload
        self.constraints = constraints
        self.population_size = population_size
        self.max_iter = max_iter
        self.neighbours = neighbours
        self.ledger = ledger
        self.unit = unit
        self.unit_weights = unit_weights
        self.max_rows = max_rows
        self.store = store
        self.n_jobs = n_jobs
        self.random_state = random_state
        self.device = device
        self.verbose = verbose
        self.noise = noise
        self.public = public

    @fit_context(prefer_skip_nested_validation=False)
    def fit(self, X: ArrayLike | pd.DataFrame | Iterable[pd.DataFrame], y: object = None) -> Self:
        """Release noisy marginals of the records, and fit a distribution to them.

        Parameters
        ----------
        X : data frame, array-like, files, query, stream, iterable of frames, or table of an engine
            Private records, of shape (n_samples, n_features): a pandas or Polars frame, eager or
            lazy; an object with ``__arrow_c_stream__``, such as a pyarrow table; a pyarrow data
            set; a DuckDB relation; paths or wildcards of Parquet, CSV or Arrow files; an iterable
            of frames; a table of dask, Spark or Ray, which is counted on the workers; or rows. All
            give the same counts. See :ref:`large_tables`.
        y : ignored
            A label is a column of the schema: see ``target``.

        Returns
        -------
        self : object

        Raises
        ------
        ValueError
            Marginals, targets or a workload with columns outside the schema; columns that need too
            much memory; constraints that do not fit the schema or contradict one another. These
            are raised before a record is read. Records that do not fit the schema.
        """
        return self._fit(X, y)

    @fit_context(prefer_skip_nested_validation=False)
    def plan(self, n_samples: int | None = None, n_features: int | None = None) -> PrivacyReport:
        """Return the privacy report of a fit on ``n_samples`` records, before any is read.

        Parameters
        ----------
        n_samples : int or None, default=None
            Number of private records, or of persons with ``unit``. It is not public and not read
            with neighbours="add_or_remove".
        n_features : int or None, default=None
            Number of columns; if given, it must be that of the schema.

        Returns
        -------
        PrivacyReport
            Equal to ``privacy_`` of a fit. Its ``precision`` is in records, persons or rows; its
            ``split`` is in μ², in which Gaussian releases compose additively.

        Raises
        ------
        ValueError
            Invalid parameters, as in ``fit``, or no ``n_samples`` where it is public.

        Warns
        -----
        NoisyCountsWarning
            The counts of so many records are below the noise.
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

    def _read(self, X, y, *, seed):
        """Open the records and count single columns, so that a source can fail uncharged."""
        check_other_files(self.public, X)
        table = declared_table(self)
        fit_columns(table.encoder, X, self.unit, y)
        self._learn_kind(X)
        self.n_features_in_ = table.encoder.n_features_in_
        self.feature_names_in_ = table.encoder.feature_names_in_
        records = open_records(
            X,
            table.encoder,
            store=self.store,
            unit=self.unit,
            most=self.max_rows,
            opened=self.schema.open_columns,
            n_jobs=self.n_jobs,
            verbose=self.verbose,
        )
        # Constant columns are public, so they are neither counted nor charged.
        counted = [j for j, tree in enumerate(table.trees) if tree.n_cells > 1]
        # Open columns are counted when their labels are known.
        counted = [j for j in counted if j not in table.opened]
        leaves = dict(zip(counted, records.counts([(j,) for j in counted]), strict=True))
        records.check_rereadable()
        return (records, leaves), {"table": table, "n_samples": records.n_records}

    def _plan(self, table, n_samples):
        """Return the plan of a fit; its details are the SamplerPlan and the DeclaredTable.

        Parameters
        ----------
        table : DeclaredTable
        n_samples : int or None
            Not read if it is not public.
        """
        plan = SamplerPlan(self, table, n_samples)
        return Plan(plan.report(), (plan, table))

    def _release(self, plan, records, seed):
        """Return the table, the encoder, marginals of single columns, and the fit to the others.

        The fit is post-processing between releases: later marginals are selected by their distance
        from what earlier ones predict.
        """
        from sklearn_dpgen.tables._log_linear_fit import ChainFit
        from sklearn_dpgen.tables._public_prior import PublicPrior

        ((plan, table), (records, leaves)) = plan.details, records
        n_columns = len(table.names)
        if plan.n_records is not None:
            plan.warn(plan.n_records)
        run, noise = plan.marginals.mechanism.run(), self._noise_source(seed)
        if table.opened:
            found = self._discovered(plan, table, records, run, noise, seed)
            table = declared_table(self, found)
            leaves |= records.use_labels(table.encoder)
            # If nothing was discovered and no other column varies, the records are still counted.
            leaves = {j: own for j, own in leaves.items() if len(own) > 1} or leaves
        # Noisy counts of single columns determine the bins and the resolution of marginals.
        cells, n_records, encoder, bins, singles = measure_columns(
            leaves,
            table.encoder,
            table.trees,
            np.array([table.weight((column,)) for column in range(n_columns)]),
            plan.marginals.count_scales[0],
            lambda vector: run.release(vector, noise),
            n_records=plan.n_records,
            public=table.public and public_leaves(table.public, table.encoder),
        )
        if plan.n_records is None:
            plan.warn(n_records)
        scale = plan.marginals.label_scale
        if table.opened and scale > 0 and self.unit is None:
            for j in table.opened:
                noisy = np.array(list(found[table.names[j]].values()))
                if len(noisy):
                    threshold = plan.marginals.label_threshold()
                    cells[j] = with_label_counts(cells[j], noisy, scale, threshold, n_records)
        blocks = ColumnBlocks.of(encoder, [own.shares for own in cells])
        measured = Measurements(table.names, cells, n_records, blocks)
        public = None
        if table.public is not None:
            own = public_blocks(table.public, encoder, blocks.blocks)
            public = PublicPrior(own, table.public.weights, measured)
        records.use_blocks([b[c] for b, c in zip(blocks.blocks, bins, strict=True)])
        fit = ChainFit(
            measured,
            [j for j in range(n_columns) if j not in table.targets] + table.targets,
            self.population_size,
            max_iter=self.max_iter,
            device=self.device,
            verbose=self.verbose,
            name=type(self).__name__,
            barred=table.rules and barred_pairs(table.rules, encoder, blocks.blocks),
            public=public,
        )
        measure_rounds(
            records.marginal_counts,
            plan.marginals,
            table.weight,
            measured,
            predict=fit.predict,
            run=run,
            noise=noise,
            targets=table.targets,
            public=public,
        )
        return table, encoder, singles, fit, public

    def _discovered(self, plan, table, records, run, noise, seed):
        """Return the labels of open columns whose noisy counts pass the threshold, and these.

        Of each column these are at most ``max_labels``, those with the largest noisy counts.
        """
        counts = records.label_counts(self._noise_source(seed))
        # In an order that does not depend on how the records are read.
        pairs = [(j, label) for j in table.opened for label in sorted(counts[j])]
        exact = np.array([counts[j][label] for j, label in pairs], dtype=np.float64)
        factor = plan.marginals.label_factor
        noise.name(pairs)
        kept, noisy = run.release_open(exact / factor, 1 / factor, noise)
        labels = {}
        for j in table.opened:
            name = table.names[j]
            own = [(-n, pairs[i][1]) for i, n in zip(kept, noisy, strict=True) if pairs[i][0] == j]
            largest = sorted(own)[: self.schema[name].max_labels]
            labels[name] = {label: -n * factor for n, label in sorted(largest, key=lambda p: p[1])}
        return labels

    def _learn(self, plan, released, seed):
        """Fit the distribution to all released marginals."""
        table, encoder, singles, fit, public = released
        distribution = fit.distribution(encoder.domain_, seed)
        self.noise_multiplier_ = plan.report.noise_multiplier
        self.encoder_, self.one_way_marginals_ = encoder, singles
        self.n_records_, self.marginals_ = fit.measured.n_records, fit.measured.marginals
        if table.rules is not None:
            self._rules_ = table.rules
        self.law_ = distribution
        if public is not None:
            self.public_agreement_ = self._agreements(table, public)

    def _agreements(self, table, public):
        """Return the agreement of the public table with the released marginals."""
        from sklearn_dpgen.tables._public_prior import public_agreements

        # Of the levels of a column, the widest intervals, which come last.
        widest = {marginal.columns: marginal for marginal in self.one_way_marginals_}
        return public_agreements(
            [*widest.values(), *self.marginals_],
            table.names,
            table.public.codes(self.encoder_),
            table.public.weights,
            self.n_records_,
            public.kept,
        )

    def score(
        self, X: ArrayLike | pd.DataFrame | Iterable[pd.DataFrame], y: object = None
    ) -> float:
        """Return minus the mean total variation distance to records over pairs of columns.

        Parameters
        ----------
        X : data frame, array-like, iterable of data frames or dask DataFrame
            Records to compare with. The score of private records is not private.
        y : ignored

        Returns
        -------
        float
            Score from -1 to 0; larger is better. Cells are declared labels, and 20 equal bins of
            numbers and dates, so that fits with different marginals and bins are comparable.

        Warns
        -----
        UnpaidScoreWarning
            After a private fit, since the score is not charged.
        """
        check_is_fitted(self)
        self._warn_of_score()
        (X,) = self._in_format(self._without_unit(X))
        if self._rules_ is None:
            return -float(pair_distances(X, self.law_, self.encoder_).mean())
        draw = partial(self._record_sampler(None).sample, most=_BLOCK)
        return -float(pair_distances(X, self.law_, self._rules_.encoder, draw).mean())

    def target_law(self, X: pd.DataFrame) -> pd.DataFrame:
        """Return the conditional distribution of the target given the other columns.

        It is the distribution of :meth:`sample` in closed form, and costs no privacy.

        Parameters
        ----------
        X : data frame of shape (n, n_columns)
            Records; the column of the target is optional and ignored.

        Returns
        -------
        DataFrame of shape (n, n_values)
            Probabilities, with the index of ``X``. Columns are the labels of the target, or the
            midpoints of its bins, then null.

        Raises
        ------
        ValueError
            The fit has no target, several targets, or constraints, for which there is no closed
            form; or records do not fit the schema.
        """
        check_is_fitted(self)
        targets = [self.target] if isinstance(self.target, str) else list(self.target or ())
        last = list(self.encoder_.columns_)[self.law_.conditionals[-1].column]
        if targets != [last] or self._rules_ is not None:
            raise PublicValueError(
                "target_law requires a fit with one target and without constraints, got "
                f"target={self.target!r}."
            )
        column = self.encoder_.columns_[last]
        values = column.decode_codes(np.arange(column.n_categories), name=last)
        X = as_pandas(self._without_unit(X))
        records = encode_codes(X.assign(**{last: [values[0]] * len(X)}), self.encoder_)
        probabilities = self.law_.last_given_others(records.columns)
        return pd.DataFrame(probabilities, index=X.index, columns=pd.Index(values, name=last))

    @property
    def schema_(self) -> Schema:
        """The schema, with the discovered labels of open columns; it may be published.

        The paths of a public table are left out.
        """
        check_is_fitted(self)
        fitted = self.encoder_.schema
        return self.schema._with(
            {n: fitted[n] if n in self.schema.open_columns else c for n, c in self.schema.items()},
            public=(),
        )

    @property
    def bins_(self) -> dict[str, np.ndarray]:
        """Edges of the bins of numbers and dates, in the units of each column."""
        check_is_fitted(self)
        return {
            name: column.column.from_unit(np.array(column.edges))
            for name, column in self.encoder_.columns_.items()
            if isinstance(column, Binned)
        }

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.non_deterministic = self.random_state is None
        # The schema declares labels and nulls of each column.
        tags.input_tags.categorical = True
        tags.input_tags.string = True
        tags.input_tags.allow_nan = True
        return tags

    def _check_saved_state(self):
        super()._check_saved_state()
        check_categories(self.encoder_)
        check_saved_encoder(self)
        demand(self.law_.domain == self.encoder_.domain_, "The distribution has other columns.")
        names = set(self.encoder_.columns_)
        for marginal in (*self.one_way_marginals_, *self.marginals_):
            demand(set(marginal.columns) <= names, "A marginal has other columns.")
        fits = self._rules_ is None or self._rules_.schema == self.encoder_.schema
        demand(fits, "The rules are for another schema.")


# The number of equal bins of numbers and dates.
_BINS = 20
# The sampling error of a distance, and the most records drawn for it.
_ERROR = 0.01
_MOST = 1 << 20


def pair_distances(X, distribution, encoder, draw=None):
    """Return the total variation distances of two-way marginals of records and a distribution.

    Parameters
    ----------
    X : data frame, array-like, iterable of data frames or dask DataFrame
    distribution : ProductMixture or LogLinearChain
        Distribution of encoded records.
    encoder : TabularEncoder
        Fitted, with bins for numbers and dates.
    draw : callable or None, default=None
        ``draw(n, rng)`` returns decoded records, for a distribution with constraints.

    Returns
    -------
    ndarray of shape (p (p - 1) / 2,)
        Distances in cells of declared labels and of 20 equal bins, for all pairs of columns that
        are not constant; for p = 1 the distance of this column.

    Notes
    -----
    The distribution is estimated from n records drawn with a fixed seed. A table of K cells then
    has a mean error of at most √(K / 2πn) in total variation, so n is chosen for an error of 0.01
    in the largest table. It is at most 2^20, which suffices for 658 cells.
    """
    ordered = [name for name, c in encoder.columns_.items() if isinstance(c, Binned)]
    fixed = with_bins(encoder, dict.fromkeys(ordered, _BINS))
    records = encode_codes(X, fixed)
    every = [np.arange(size) for size in records.sizes]
    varied = [j for j, size in enumerate(records.sizes) if size > 1]
    pairs: list[tuple[int, ...]]
    pairs = [(varied[i], varied[j]) for i, j in all_pairs(len(varied))] or [(varied[0],)]
    marginals = [Marginal(columns, tuple(every[j] for j in columns)) for columns in pairs]
    n_cells = max(marginal.n_cells for marginal in marginals)
    n_drawn = min(math.ceil(n_cells / (2 * math.pi * _ERROR**2)), _MOST)
    rng = np.random.default_rng(0)
    if draw is None:
        frame = encoder.decode_codes(distribution.sample(n_drawn, rng), rng=rng)
    else:
        frame = draw(n_drawn, rng)
    drawn = encode_codes(frame, fixed)
    counts, expected = (marginal_counts(r.columns, marginals) for r in (records, drawn))
    return np.array(
        [
            np.abs(count / records.n_records - table / n_drawn).sum() / 2
            for count, table in zip(counts, expected, strict=True)
        ]
    )
