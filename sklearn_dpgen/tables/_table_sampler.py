"""TableSampler: maximum-entropy synthesis of tables from noisy low-order marginals."""

import math
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Self

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike

from sklearn_dpgen.exceptions import PublicValueError
from sklearn_dpgen.ledger._base import Plan, PrivateEstimator
from sklearn_dpgen.ledger._ledger import LedgerLike
from sklearn_dpgen.persistence._declarations import Maybe, demand
from sklearn_dpgen.preprocessing._records import check_saved_encoder
from sklearn_dpgen.preprocessing._tabular import TabularEncoder, check_categories
from sklearn_dpgen.schema import Schema
from sklearn_dpgen.schema._binned import Binned
from sklearn_dpgen.schema._rules import Rule
from sklearn_dpgen.tables._column_trees import MAX_LEAVES
from sklearn_dpgen.tables._conditional_sampling import ConditionalSamplerMixin
from sklearn_dpgen.tables._marginals import ColumnBlocks, Marginal, all_pairs, marginal_counts
from sklearn_dpgen.tables._privacy_plan import CHANGED_CELLS
from sklearn_dpgen.tables._records import encode_codes, fit_columns, open_records, with_bins
from sklearn_dpgen.tables._releases import (
    Measurements,
    NoisyMarginal,
    measure_columns,
    measure_rounds,
)
from sklearn_dpgen.tables._sampler_plan import SamplerPlan, SamplerPlanMixin, declared_table
from sklearn_dpgen.tables._table_rules import barred_pairs
from sklearn_dpgen.utils._frames import as_pandas
from sklearn_dpgen.utils._validation import (
    BUDGET,
    DEVICE,
    EstimatorMixin,
    Integral,
    Interval,
    Real,
    StrOptions,
    check_is_fitted,
    fit_context,
)

if TYPE_CHECKING:
    import torch

__all__ = ["BaseTableSampler", "TableSampler", "pair_distances"]


class BaseTableSampler(PrivateEstimator):
    """Base of the samplers of tables with a schema."""

    _parameter_constraints: dict = {
        "epsilon": BUDGET,
        "schema": [Schema],
        "random_state": ["random_state"],
        "device": DEVICE,
    }

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.non_deterministic = self.random_state is None
        # The schema says of each column which labels it has, and whether it has nulls.
        tags.input_tags.categorical = True
        tags.input_tags.string = True
        tags.input_tags.allow_nan = True
        return tags


# Records that are drawn at a time for a score.
_BLOCK = 1 << 16


class TableLawMixin(EstimatorMixin):
    """Scores, and laws of targets, of a sampler with a ``law_``."""

    def score(
        self, X: ArrayLike | pd.DataFrame | Iterable[pd.DataFrame], y: object = None
    ) -> float:
        """Return minus the mean total variation between the pairs of columns of records and law.

        Parameters
        ----------
        X : data frame, array-like, iterable of data frames or dask DataFrame
            Records, of which the score tells: if they are private, it is not.
        y : ignored

        Returns
        -------
        float
            From -1 to 0, and larger is better. The cells are the declared labels, and 20 equal bins
            of numbers and dates, so that fits with other marginals and bins can be compared.

        Warns
        -----
        UnpaidScoreWarning
            After a private fit: nothing is paid for the score.
        """
        check_is_fitted(self)
        self._warn_of_score()
        X = self._without_unit(X)
        if self._rules_ is None:
            return -float(pair_distances(X, self.law_, self.encoder_).mean())
        draw = partial(self._rows(None).sample, most=_BLOCK)
        return -float(pair_distances(X, self.law_, self._rules_.encoder, draw).mean())

    def target_law(self, X: pd.DataFrame) -> pd.DataFrame:
        """Return the law of the target of each record, given its other columns.

        It is that of the records that :meth:`sample` draws, in closed form, at no cost of privacy.

        Parameters
        ----------
        X : data frame of shape (n, n_columns)
            Records. A column of the target need not be there, and is not looked at.

        Returns
        -------
        DataFrame of shape (n, n_values)
            Probabilities, with the index of ``X``. Its columns are the labels of the target, or the
            middles of its bins; a null is the last.

        Raises
        ------
        ValueError
            The fit had no target or several, or constraints, under which there is no closed form;
            or records that do not fit the schema.
        """
        check_is_fitted(self)
        targets = [self.target] if isinstance(self.target, str) else list(self.target or ())
        last = list(self.encoder_.columns_)[self.law_.conditionals[-1].column]
        if targets != [last] or self._rules_ is not None:
            raise PublicValueError(
                "A law of the target needs a fit with one target and without constraints, got "
                f"target={self.target!r}."
            )
        column = self.encoder_.columns_[last]
        values = column.decode_codes(np.arange(column.n_categories), name=last)
        X = as_pandas(self._without_unit(X))
        records = encode_codes(X.assign(**{last: [values[0]] * len(X)}), self.encoder_)
        law = self.law_.last_given_others(records.columns)
        return pd.DataFrame(law, index=X.index, columns=pd.Index(values, name=last))

    def acceptance_rate(self, conditions: Mapping | None = None) -> float:
        """Return the share of drawn records that fulfil the constraints, and are kept.

        What breaks one is first drawn again up to eight times, in the blocks of its values; what
        then still does is replaced by another record.

        Parameters
        ----------
        conditions : mapping or None, default=None
            As for :meth:`sample`: the share is of records that fulfil those on columns that are
            drawn, and conditions on columns that rules compute count as constraints.

        Returns
        -------
        float
            Of 20000 records, always the same ones. 1 without constraints. It is post-processing,
            and tells no more of the private records than the law does.

        Raises
        ------
        ValueError
            As :meth:`sample`, but for constraints that are hardly ever fulfilled.
        """
        check_is_fitted(self)
        return self._rows(conditions).acceptance_rate()

    @property
    def bins_(self) -> dict[str, np.ndarray]:
        """Edges of the bins of numbers and dates, in the units of each column."""
        check_is_fitted(self)
        return {
            name: column.column.from_unit(np.array(column.edges))
            for name, column in self.encoder_.columns_.items()
            if isinstance(column, Binned)
        }


class TableSampler(TableLawMixin, ConditionalSamplerMixin, SamplerPlanMixin, BaseTableSampler):
    """Synthetic tables from noisy counts over few columns at a time, by maximum entropy.

    The counts of single columns are released with Gaussian noise, and tell which bins numbers and
    dates fall into. Then come tables of two and of three columns, those that are selected privately
    where there are too many, each as fine as noise leaves it clear. A law is fitted to them at no
    cost in privacy: columns are drawn one after another, each from a log-linear law given those
    before it.

    Parameters
    ----------
    epsilon : float, default=1.0
        Privacy budget of the whole fit, in nats; ``np.inf`` counts without noise.
    delta : float, default=1e-5
        Failure probability, in (0, 1).
    schema : Schema
        The public declaration of the columns.
    target : str, list of str or None, default=None
        Columns that are to be predicted from the others. Their pairs are measured first, where
        records are few these alone; triples are of them; they are drawn last.
    marginals : "auto", "pairs" or list of tuple of str, default="auto"
        What is counted, besides all single columns. "auto" plans it from the budget and the number
        of records: pairs of the targets, the other pairs or those of them that are selected
        privately, at most 200, then up to 40 selected triples. Or all pairs, or the tables of one
        to three columns that are listed.
    n_bins : "auto", int or mapping, default="auto"
        "auto" finds bins for numbers and dates privately, at most 192 a column: wide ones where
        records are few, and one for a single value that is frequent. Or public bins: a number of
        equal ones for each, at most 131072, or ``{column: number or edges}``, as ``n_bins`` of
        :class:`~sklearn_dpgen.preprocessing.TabularEncoder`; those not named are found.
    workload : mapping or None, default=None
        Public weights, from 1e-6 to 1e6, 1 where not named:
        ``{column or tuple of columns: weight}``. The noise of a table of weight w has a standard
        deviation in proportion to 1/w among the single columns, and among the other tables of a
        round; selections multiply the distance by it. The weight of a table is the product of those
        of its columns, or the one that its tuple has.
    constraints : list of rules or None, default=None
        Public rules that every record fulfils: :class:`~sklearn_dpgen.schema.Inequality`,
        :class:`~sklearn_dpgen.schema.Implication`, :class:`~sklearn_dpgen.schema.Sum`,
        :class:`~sklearn_dpgen.schema.FunctionalDependency`. Every synthetic record fulfils them;
        private records that do not are counted as they are. Totals and columns that depend on
        others are not measured: they cost nothing.
    population_size : int, default=20000
        Rows that are drawn from the law of the first columns, to fit that of the next one on.
    max_iter : int, default=30
        Steps of L-BFGS for each column, at most. Fits that only feed a selection take a fifth of
        them, and each fit goes on from the one before.
    neighbours : {"replace_one", "add_or_remove"}, default="replace_one"
        Whether neighbouring tables differ in the values of one record, or by one record more. The
        number of records is public in the first case only.
    ledger : PrivacyLedger, path or None, default=None
        Where a fit books what it will cost, before anything of a record is released; it is refused
        with BudgetExceededError where less is left. None books nowhere.
    unit : str or None, default=None
        Name of the column of X, a data frame or chunks of one, that says whose row each is. Then a
        person is protected with all of their rows, and not each row by itself. The column is
        beside the schema or an Identifier of it, and nothing of it is fitted or shown. None
        protects rows.
    unit_weights : {"equal", "rows"}, default="equal"
        With ``unit``. "equal": each of the m rows of a person counts 1/m, so that every person
        counts once, and noise is as for one row a person. What is learned is the law of a random
        row of a random person. "rows": each row counts 1, and ``max_rows`` times the noise is
        added. What is learned is the law of rows, and their number is not public.
    max_rows : int or None, default=None
        With unit_weights="rows", which needs it: so many rows a person counts for at most. Of m
        rows, if that is more, each counts max_rows / m.
    store : {"auto", "codes", "none"}, default="auto"
        "codes" reads a table once and holds the category of each value, in one to four bytes.
        "none" holds nothing of it but counts, and reads it again for each round, up to eight times.
        What is released is the same, bit for bit, if ``X`` has the same records whenever it is
        read, each once: the sensitivity rests on it. "auto" leaves tables of dask, Spark and Ray
        where they are, and what can be read again and is known to take more than 1 GiB of codes;
        it holds codes of others.
    n_jobs : int or None, default=None
        Threads that count; None is 1, and -1 one a core. Workers of engines are their own.
    random_state : int, RandomState or None, default=None
        None draws noise from the operating system's entropy. An int repeats the fit, and voids the
        guarantee for whoever knows or guesses it.
    device : str or torch.device, default="auto"
        "auto" takes a GPU where there is one.
    verbose : int, default=0
        1 shows the rows counted, to which no noise was added, and the progress of each fit of the
        law: it is for whoever may see the records.
    noise : {"float", "certified"}, default="float"
        "certified" rounds counts and scores to a fine grid before noise, and draws discrete noise
        without an error: see :ref:`certified_noise`. It needs OpenDP, and ``random_state=None``.

    Attributes
    ----------
    one_way_marginals_ : list of NoisyMarginal
        What was released of single columns, a table for each level at which one was counted.
    marginals_ : list of NoisyMarginal
        What was released of two columns and of three, in the order of their release.
    law_ : LogLinearChain
        Of the records: the order of columns, and the law of each given those before it.
    n_records_ : float
        Number of records, of persons who count once, or of rows of persons: the public one, or an
        estimate from the noisy counts.
    bins_ : dict of str to ndarray
        Edges of the bins of numbers and dates, in the units of each column.
    encoder_ : TabularEncoder
        From the table to blocks of categories and back, with the bins that were found. Columns that
        rules compute are not read by it.
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
        Where the noise of counts leaves next to nothing of columns or of their dependence.

    Notes
    -----
    **Formal guarantee**

    :Promise: Central (ε, δ)-differential privacy of all that ``fit`` stores, and of all that is
        computed from it.
    :Neighbours: Replace one record; the number of records is public. With
        ``neighbours="add_or_remove"``: add or remove one record of at least two; the number of
        records is not public. With ``unit``: a person with all their rows in place of a record.
    :Public: ``n_samples``, unless records are added or removed; names of the columns; ``schema``,
        ``n_bins``, ``marginals``, ``target``, ``workload``, ``constraints`` and ``max_rows``. With
        ``unit``: numbers of persons, and not those of their rows.
    :Bounded by: The declared schema: a record has one category in each column, and so adds one to
        one cell of each table. The rows of a person together count once, or ``max_rows`` times.
    :Noise: Gaussian on counts, by :class:`~sklearn_dpgen.mechanisms.GaussianSequenceMechanism`, and
        Gumbel in selections, by ``SelectionMechanism``, from the
        operating system's entropy; in floating point, or with ``noise="certified"`` exact.
    :Priced by: The privacy profile of the Gaussian mechanism, in closed form, composed with those
        of the selections; no sampling.
    :Not covered: Other fits of the same records, which a ``ledger`` adds up; errors of a fit; a
        ``random_state`` that others know or guess. ``verbose`` shows exact numbers of rows.
    :Proof: Notes; :ref:`tables`; of persons :ref:`budget_persons`; of certified noise
        :ref:`certified_noise`.

    A record adds one to one cell of each table that it is counted in. Tables are multiplied by
    weights whose squares sum to 1 and released as one vector: its l2 sensitivity is 1 if a record
    is added or removed, and √2 if one is replaced, which changes two cells a table. The budget is
    split in the scale μ² in which Gaussian releases add up: 0.15 for single columns, 0.25 where
    not all pairs can be measured; of the rest a fifth for triples of targets, or a tenth for
    others; of what is left at least 0.3 for the targets; and 0.15 of each round with a choice for
    its selections. The plan is made from public quantities, the number of records among them if it
    is public. Where it is not, what noise leaves nothing of is decided by the noisy number: how
    fine tables are, and which rounds measure once more what the first did.

    With a ``unit``, a vector is the sum over the rows of what each adds, of norm 1 and without a
    negative entry, times its weight. The rows of a person weigh k together at most, k = 1 or
    ``max_rows``: they add a vector of norm k at most, by the triangle inequality. If the person is
    replaced, a such vector goes and b comes, ‖a − b‖² = ‖a‖² + ‖b‖² − 2 a·b ≤ 2 k², as a·b ≥ 0. So
    the sensitivity is k, or √2 k, which k equal rows attain; scores move by k, or 2 k.
    Weights are rounded down to multiples of 2⁻²³: sums of them are exact up to 2³⁰ persons.

    A table of K cells of n records with noise of standard deviation σ is as fine as
    n / K = 6 √(σ² + n / K) says. A selection takes the table with the largest l1 distance from what
    is expected of it so far, beyond the noise, plus Gumbel noise. The privacy profile of mechanisms
    of its range is composed with the Gaussian one.

    It is the signed measure mechanism [1]_ on marginals of the records, of dimension one to three,
    with selections as in [2]_. In the place of a linear program, each column has the law of largest
    conditional entropy near the tables of it and the columns before it: regularized maximum
    entropy [3]_, with ridges of the noise of a table over its signal, which is estimated from the
    table itself, apart for what turns slowly along its axes and what turns fast.

    Time after the counts does not depend on the number of records, which are held as codes of one
    to four bytes a value.

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

    _saved_state: dict = {
        "noise_multiplier_": float | None,
        "n_records_": float,
        "encoder_": TabularEncoder,
        "one_way_marginals_": list[NoisyMarginal],
        "marginals_": list[NoisyMarginal],
        "law_": "LogLinearChain",
        "_rules_": Maybe("TableRules"),
    }
    _parameter_constraints: dict = BaseTableSampler._parameter_constraints | {
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
        "verbose": ["verbose"],
    }

    def __init__(
        self,
        epsilon: float = 1.0,
        delta: float = 1e-5,
        *,
        schema: Schema,
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

    @fit_context(prefer_skip_nested_validation=False)
    def fit(self, X: ArrayLike | pd.DataFrame | Iterable[pd.DataFrame], y: object = None) -> Self:
        """Count the records, and fit a law to the noisy counts.

        Parameters
        ----------
        X : data frame, array-like, files, query, stream, iterable of frames, or table of an engine
            Private records, of shape (n_samples, n_features): a frame of pandas or Polars, eager or
            lazy; what offers ``__arrow_c_stream__``, such as a table of pyarrow; a data set of
            pyarrow; a relation of DuckDB; paths of files of Parquet, CSV or Arrow, with wildcards
            or not; an iterable of frames; a table of dask, Spark or Ray, which is counted on the
            workers; or rows. All give the same counts. See :ref:`large_tables`.
        y : ignored
            A label is a column of the schema: see ``target``.

        Returns
        -------
        self : object

        Raises
        ------
        ValueError
            Before a record is read: marginals, targets or a workload that name no columns of the
            schema, or columns that need too much memory; constraints that do not fit the schema,
            that contradict one another, or that nothing fulfils. Or records that do not fit the
            schema.
        """
        return self._fit(X, y)

    def _read(self, X, y, *, seed):
        """Open the records and count single columns: a source that fails does so unpaid."""
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
            n_jobs=self.n_jobs,
            verbose=self.verbose,
        )
        # A constant column is public: it is not counted, and costs nothing.
        counted = [j for j, tree in enumerate(table.trees) if tree.n_cells > 1]
        leaves = dict(zip(counted, records.counts([(j,) for j in counted]), strict=True))
        records.check_again()
        return (records, leaves), {"table": table, "n_samples": records.n_records}

    def _plan(self, table, n_samples):
        """Return the plan of a fit; its details are the SamplerPlan and the DeclaredTable.

        Parameters
        ----------
        table : DeclaredTable
        n_samples : int or None
            Not read where it is not public.
        """
        plan = SamplerPlan(self, table, n_samples)
        return Plan(plan.report(), (plan, table))

    def _release(self, plan, records, seed):
        """Return the encoder, the marginals of single columns, and the fit to the other marginals.

        The fit is post-processing between releases: later marginals are selected by what the
        earlier ones predict.
        """
        from sklearn_dpgen.tables._log_linear_fit import ChainFit

        ((plan, table), (records, leaves)) = plan.details, records
        n_columns = len(table.names)
        if plan.n_records is not None:
            plan.warn(plan.n_records)
        mechanism = plan.marginals.mechanism
        run, noise = mechanism.run(), self._noise_source(seed)
        # Noisy counts of single columns determine the bins, and how fine later marginals can be.
        cells, n_records, encoder, bins, singles = measure_columns(
            leaves,
            table.encoder,
            table.trees,
            np.array([table.weight((column,)) for column in range(n_columns)]),
            mechanism.noise_scales[0],
            lambda vector: run.release(vector, noise),
            n_records=plan.n_records,
        )
        if plan.n_records is None:
            plan.warn(n_records)
        blocks = ColumnBlocks.of(encoder, [part.shares for part in cells])
        measured = Measurements(table.names, cells, n_records, blocks)
        records.in_blocks([part[c] for part, c in zip(blocks.blocks, bins, strict=True)])
        fit = ChainFit(
            measured,
            [j for j in range(n_columns) if j not in table.targets] + table.targets,
            self.population_size,
            max_iter=self.max_iter,
            device=self.device,
            verbose=self.verbose,
            name=type(self).__name__,
            barred=table.rules and barred_pairs(table.rules, encoder, blocks.blocks),
        )
        measure_rounds(
            records.marginal_counts,
            plan.marginals,
            table.weight,
            measured,
            predict=fit.predict,
            run=run,
            noise=noise,
        )
        return encoder, singles, fit

    def _learn(self, plan, released, seed):
        """Fit the distribution to all released marginals."""
        encoder, singles, fit = released
        law = fit.law(encoder.domain_, seed)
        self.noise_multiplier_ = plan.report.noise_multiplier
        self.encoder_, self.one_way_marginals_ = encoder, singles
        self.n_records_, self.marginals_ = fit.measured.n_records, fit.measured.marginals
        _, table = plan.details
        if table.rules is not None:
            self._rules_ = table.rules
        self.law_ = law

    def __sklearn_is_fitted__(self):
        return hasattr(self, "law_")

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


# Equal bins of a number or a date.
_BINS = 20
# What drawn records may add to the distance of a pair, and the most of them.
_NOISE = 0.01
_MOST = 1 << 20


def pair_distances(X, law, encoder, draw=None):
    """Return the total variation between records and a law, for each pair of columns.

    Parameters
    ----------
    X : data frame, array-like, iterable of data frames or dask DataFrame
    law : ProductMixture or LogLinearChain
        Of the records, by the categories that ``encoder`` has for them.
    encoder : TabularEncoder
        Fitted, with bins for numbers and dates.
    draw : callable or None, default=None
        ``draw(n, rng)`` returns records, where they are not decoded from the law alone.

    Returns
    -------
    ndarray of shape (p (p - 1) / 2,)
        In cells of the declared labels, and of 20 equal bins; the column's own for p = 1. Constants
        are left out.

    Notes
    -----
    The law is that of drawn records, always the same. Of n of them a table of K cells has a mean
    total variation of at most √(K / 2πn) from what it is expected to be: n is large enough for 0.01
    in the largest table, and at most 2^20, which is so up to 658 cells.
    """
    ordered = [name for name, c in encoder.columns_.items() if isinstance(c, Binned)]
    fixed = with_bins(encoder, dict.fromkeys(ordered, _BINS))
    records = encode_codes(X, fixed)
    every = [np.arange(size) for size in records.sizes]
    varied = [j for j, size in enumerate(records.sizes) if size > 1]
    pairs: list[tuple[int, ...]]
    pairs = [(varied[i], varied[j]) for i, j in all_pairs(len(varied))] or [(varied[0],)]
    marginals = [Marginal(columns, tuple(every[j] for j in columns)) for columns in pairs]
    n_cells = max(part.n_cells for part in marginals)
    n_drawn = min(math.ceil(n_cells / (2 * math.pi * _NOISE**2)), _MOST)
    rng = np.random.default_rng(0)
    frame = draw(n_drawn, rng) if draw else encoder.decode_codes(law.sample(n_drawn, rng), rng=rng)
    drawn = encode_codes(frame, fixed)
    counts, expected = (marginal_counts(r.columns, marginals) for r in (records, drawn))
    return np.array(
        [
            np.abs(count / records.n_records - table / n_drawn).sum() / 2
            for count, table in zip(counts, expected, strict=True)
        ]
    )
