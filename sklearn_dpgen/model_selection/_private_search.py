"""PrivateSearchCV: hyperparameter search on private records that accounts for the selection."""

import math
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Self

import joblib
import numpy as np
import pandas as pd
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator, MetaEstimatorMixin, is_regressor
from sklearn.metrics import check_scoring
from sklearn.pipeline import Pipeline
from sklearn.utils import get_tags
from sklearn.utils.metaestimators import available_if

from sklearn_dpgen.accounting import Bound, Event, PoissonRuns, PrivacyReport
from sklearn_dpgen.accounting._calibration import check_delta_size
from sklearn_dpgen.accounting._selection import RandomRuns, calibrate_runs
from sklearn_dpgen.exceptions import PublicRuntimeError, PublicValueError
from sklearn_dpgen.ledger._base import PrivateEstimator
from sklearn_dpgen.ledger._ledger import LedgerLike
from sklearn_dpgen.model_selection._candidates import (
    calibrated,
    check_declared_groups,
    check_distributions,
    check_groups_are_given,
    check_neighbours,
    check_relation,
    check_units,
    draw_parameters,
    estimator_plan,
    fitted,
    is_as_planned,
    protected_unit,
    seeded,
    state_price,
)
from sklearn_dpgen.model_selection._group_scorer import GroupScorer
from sklearn_dpgen.model_selection._records import Parts, PersonTables, Records, as_rows
from sklearn_dpgen.model_selection._row_values import (
    bounded_values,
    group_gap,
    outcomes,
    released_score,
    row_values,
)
from sklearn_dpgen.model_selection._utility_scorer import UtilityScorer
from sklearn_dpgen.tables import RelationalSampler
from sklearn_dpgen.utils._groups import check_sensitive_features, last_step, with_groups
from sklearn_dpgen.utils._random import split_random_state
from sklearn_dpgen.utils._validation import (
    BUDGET,
    HasMethods,
    Interval,
    Real,
    check_is_fitted,
    fit_context,
    named_parameters,
    num_samples,
)

__all__ = ["PrivateSearchCV"]

_CAVEATS = ("best_run_alone", "rowwise_scores", "failing_fits", "floating_point")


def by_group(values):
    """Return a score of an estimator and rows that predicts by the groups of the rows, if given."""

    def of_groups(candidate, X, y, groups=None):
        return values(with_groups(candidate, groups), X, y)

    return of_groups


def _best_has(method):
    """Return a check that the estimator, fitted or not, has a method."""

    def has(self):
        getattr(getattr(self, "best_estimator_", self.estimator), method)
        return True

    return has


class BestEstimatorMixin(MetaEstimatorMixin):
    """Methods of ``best_estimator_``, or of ``estimator`` before a fit."""

    @available_if(_best_has("predict"))
    def predict(
        self, X: ArrayLike | pd.DataFrame, *, sensitive_features: ArrayLike | None = None
    ) -> np.ndarray:
        """Predict with the best candidate.

        Parameters
        ----------
        X : data frame or array-like of shape (n_rows, n_features)
        sensitive_features : array-like of shape (n_rows,) or (n_rows, n_columns), or None
            Groups of the rows, for an estimator that predicts by group.

        Returns
        -------
        ndarray of shape (n_rows,)
        """
        check_is_fitted(self)
        return with_groups(self.best_estimator_, sensitive_features).predict(X)

    @available_if(_best_has("predict_proba"))
    def predict_proba(
        self, X: ArrayLike | pd.DataFrame, *, sensitive_features: ArrayLike | None = None
    ) -> np.ndarray:
        """Predict probabilities with the best candidate.

        Parameters
        ----------
        X : data frame or array-like of shape (n_rows, n_features)
        sensitive_features : array-like of shape (n_rows,) or (n_rows, n_columns), or None
            Groups of the rows, for an estimator that predicts by group.

        Returns
        -------
        ndarray of shape (n_rows, n_classes)
        """
        check_is_fitted(self)
        return with_groups(self.best_estimator_, sensitive_features).predict_proba(X)

    @available_if(_best_has("decision_function"))
    def decision_function(
        self, X: ArrayLike | pd.DataFrame, *, sensitive_features: ArrayLike | None = None
    ) -> np.ndarray:
        """Return the decision function of the best candidate.

        Parameters
        ----------
        X : data frame or array-like of shape (n_rows, n_features)
        sensitive_features : array-like of shape (n_rows,) or (n_rows, n_columns), or None
            Groups of the rows, for an estimator that predicts by group.

        Returns
        -------
        ndarray of shape (n_rows,) or (n_rows, n_classes)
        """
        check_is_fitted(self)
        return with_groups(self.best_estimator_, sensitive_features).decision_function(X)

    @available_if(_best_has("transform"))
    def transform(self, X: ArrayLike | pd.DataFrame) -> Any:
        """Transform with the best candidate.

        Parameters
        ----------
        X : data frame or array-like of shape (n_rows, n_features)

        Returns
        -------
        ndarray or data frame
        """
        check_is_fitted(self)
        return self.best_estimator_.transform(X)

    @available_if(_best_has("sample"))
    def sample(self, *args: Any, **kwargs: Any) -> Any:
        """Draw synthetic records of the best candidate, at no cost in privacy.

        Parameters
        ----------
        *args, **kwargs
            Arguments of ``best_estimator_.sample``.

        Returns
        -------
        data frame or ndarray
        """
        check_is_fitted(self)
        return self.best_estimator_.sample(*args, **kwargs)

    @available_if(_best_has("score"))
    def score(
        self,
        X: ArrayLike | pd.DataFrame,
        y: ArrayLike | None = None,
        *,
        sensitive_features: ArrayLike | None = None,
    ) -> float:
        """Return ``best_estimator_.score``.

        Parameters
        ----------
        X : data frame or array-like of shape (n_rows, n_features)
            Rows to score; the score of private rows is not private.
        y : array-like of shape (n_rows,) or None, default=None
        sensitive_features : array-like of shape (n_rows,) or (n_rows, n_columns), or None
            Groups of the rows, for an estimator that predicts by group.

        Returns
        -------
        float
        """
        check_is_fitted(self)
        return with_groups(self.best_estimator_, sensitive_features).score(X, y)

    @property
    def classes_(self) -> np.ndarray:
        """Labels of the best candidate."""
        return self.best_estimator_.classes_

    def __sklearn_is_fitted__(self):
        return hasattr(self, "best_estimator_")

    def __sklearn_tags__(self):
        tags, own = super().__sklearn_tags__(), get_tags(self.estimator)
        tags.estimator_type = own.estimator_type
        tags.classifier_tags, tags.regressor_tags = own.classifier_tags, own.regressor_tags
        tags.input_tags, tags.target_tags = own.input_tags, own.target_tags
        tags.non_deterministic = self.random_state is None
        return tags


class PrivateSearchCV(BestEstimatorMixin, PrivateEstimator):
    """Private hyperparameter search: the best of a random number of private fits.

    Each run draws parameters from public distributions, fits them on training records, and scores
    the fit on validation records with noise. The number of runs is random and secret, and only the
    best fit is released. The guarantee accounts for all runs: the best of 40 fits, at the price of
    one, would have no guarantee.

    A search is not always worth its price: with ten runs on average, each has about twice the noise
    of a single fit that has the whole budget. A single fit is better if the defaults are good. A
    search can be better if good parameters, such as learning rates, are unknown and there are
    thousands of records. Scores on public rows are free: pass them if there are any.

    Parameters
    ----------
    estimator : private estimator, or pipeline
        Estimator of this package that protects against the replacement of a record, and whose plan
        needs only the numbers of records and columns; or a pipeline with such a last step. Earlier
        steps must learn nothing from records and map each row by itself: a
        :class:`~sklearn_dpgen.preprocessing.TabularEncoder`, or scikit-learn's ``Normalizer`` or
        ``Binarizer``. The search sets its ``epsilon``, ``delta``,
        ``ledger`` and ``random_state``. Of a :class:`~sklearn_dpgen.tables.RelationalSampler` the
        records are persons with all rows in all tables. One that compares groups must declare its
        ``groups``, and its penalty must be that of demographic parity.
    param_distributions : dict or list of dict
        Lists, or distributions of ``scipy.stats``, of each parameter, as for
        :class:`~sklearn.model_selection.RandomizedSearchCV`. They are public: chosen without
        looking at the records.
    epsilon : float, default=1.0
        Privacy budget of the whole search, in nats; ``np.inf`` searches without noise.
    delta : float, default=1e-5
        In (0, 1).
    n_runs : float, PoissonRuns, NegativeBinomialRuns or BinomialRuns, default=10
        Distribution of the number of runs. A number is the mean of a Poisson distribution,
        conditioned on not being 0.
    scoring : {"accuracy", "brier", "absolute_error"}, UtilityScorer, callable or None, default=None
        Score of a run; larger is better. None is the accuracy, or one minus the mean absolute error
        relative to ``target_range``. "brier" is one minus the Brier score of probabilities.
        :func:`utility_scorer` is for generators. Any other scorer of scikit-learn, or its name,
        needs public rows. For a RelationalSampler None is 1 plus its ``score``, in which persons
        without rows are a cell of each pair; anything else is a callable for public tables.
    gap_weight : float, default=0.0
        Weight, at least 0, of the disparity of groups, which is subtracted from the score: the
        largest difference of two groups' rates of the last label, or of two groups' mean
        predictions relative to ``target_range``. Needs ``sensitive_features``, and an estimator
        that makes the sizes of the groups public, or public rows.
    target_range : (float, float) or None, default=None
        Public bounds of a numeric target, to which values and predictions are clipped.
    validation_fraction : float, default=0.2
        Share of the records, or of the persons, that are scored, in (0, 1). Drawn at random.
    ledger : PrivacyLedger, path or None, default=None
        Ledger that the search charges once, before the first run. None charges no ledger.
    random_state : int, RandomState or None, default=None
        None draws noise from the operating system's entropy. An int repeats the search, and voids
        the guarantee against anybody who knows or guesses it.

    Attributes
    ----------
    best_estimator_ : estimator
        The candidate of the largest noisy score, fitted on the training records.
    best_params_ : dict
        Its drawn parameters.
    best_score_ : float
        Its noisy score. The maximum of several scores overestimates the score on new records.
    privacy_ : PrivacyReport
        The guarantee of the whole search; also set on ``best_estimator_``.
    n_features_in_ : int
        Number of columns.

    Notes
    -----
    **Formal guarantee**

    :Promise: Central (ε, δ)-differential privacy of the best candidate, its parameters and its
        noisy score.
    :Neighbours: Those of ``estimator``, which must replace one record; persons, where it protects
        them.
    :Public: What ``estimator`` takes to be public, such as sizes of the groups;
        ``param_distributions``; X_val and y_val, where they are given.
    :Bounded by: A random split: a record is in the training part, and then changes a fit, or in the
        validation part, and then changes a mean of values in [0, 1] and a difference of groups'
        means, or the frequencies of persons with rows.
    :Noise: That of the fits, Gaussian noise on scores, and a secret random number of runs, in
        floating point, from the operating system's entropy.
    :Priced by: ``RandomStoppingProfile``: the best of a random
        number of runs, each of which costs the larger of a fit and a score.
    :Not covered: What ``estimator`` does not cover, such as what was fitted on the same records
        before. The number of runs, all other candidates, and how long the search took: do not
        publish them. ``predict`` that does not treat each row by itself; fits that fail on account
        of a record; other fits of the same records, which a ``ledger`` adds up; errors of a fit; a
        ``random_state`` that others know or guess.
    :Proof: Notes; :doc:`/ledger`.

    The records are split at random, once for all runs, and a replaced record is in one part, which
    does not depend on its values. In the training part it changes the distribution of a fit, but
    not the validation records; in the validation part it changes the score by at most
    1/n_validation, but no fit. So one run, a fit and its score, costs the larger of the two and not
    the sum: for neighbours, pair the draws in which the replaced record is in the same part. The
    bound of each pair bounds the divergence of their mixture, which is jointly convex. With a
    ``unit`` of the estimator the same holds for persons: all rows of a person are in one part, and
    share the weight of one record. So it does for a RelationalSampler, whose score is 1 minus the
    mean of total variation distances to frequencies of n_validation persons, in which each person
    is a vector of frequencies that sum to 1. Rows of nobody, and rows below a key that several
    persons have, are in no part.

    The candidate's budget is the largest at which its plan is dominated by a Gaussian mechanism of
    sensitivity μ (except for a probability δ₀ = 10⁻³ δ / E[K] of catastrophic failure), and the
    score has normal noise of standard deviation 1/(μ n_validation). A candidate without such a
    budget is refused by its plan, independently of the records. The best of K such runs has the
    ``RandomStoppingProfile``, and μ is the largest at which its
    (ε, δ) is the budget.

    The argument needs identically distributed and independent runs: parameters, seeds and noise of
    each are drawn anew. A failed fit has the score −∞, and is charged. There is no table of
    results and no second fit of the best parameters, each of which would cost more. Warnings,
    callbacks and progress bars of candidates are suppressed, as they would reveal other runs.

    *Groups.* Where the guarantee of ``estimator`` makes the sizes of the groups public, as that of
    :class:`~sklearn_dpgen.sliced.DPSlicedWassersteinFairClassifier` does without
    ``protect_groups``, a record is replaced by another of the same group, and the guarantee of the
    search is for these neighbours too. Records are then split within each group,
    ceil(``validation_fraction`` n_a) of the n_a of a group being scored. The drawn positions follow
    from the groups of all positions, which neighbours share; so do the sizes of the groups in both
    parts, from which candidates are planned. Given the parts, the argument above holds. Estimators
    that protect the group of a record, as with ``protect_groups`` or as
    :class:`~sklearn_dpgen.predictors.BarycenterClassifier`, get a split that does not depend on
    groups, and the group is a value of a record like any other: a replaced record may change it, in
    one part alone. Groups are declared, because the set of those that occur in a part would depend
    on the records. A search without the groups that a candidate compares is refused: its fits would
    have no penalty.

    *Difference of groups.* With ``gap_weight`` λ, the score is U − λ G, where U is the mean of the
    values of all n scored records, and G = max_a r_a − min_a r_a over the groups with scored
    records; r_a is the mean of outcomes in [0, 1] of the n_a scored records of group a. A replaced
    record keeps its group, and n and all n_a are public. It changes U by at most 1/n, one r_a by at
    most t = 1/n_a, and no other. If r_a increases by t, the maximum increases by at most t and the
    minimum does not decrease, so G increases by at most t; the minimum increases by at most t and
    the maximum does not decrease, so G decreases by at most t. The same holds if r_a decreases. So
    the score changes by at most 1/n + λ / min_a n_a, which is attained, and which replaces 1/n in
    the scale of the noise. Were groups private, a record could change its group, and with it two
    rates and two sizes: an estimator that protects groups is refused, unless the scored rows are
    public. One small group makes the score noisy.

    Scores on public rows, ``X_val`` of :meth:`fit`, are free: all records train, and no noise is
    added. Estimators that learn from locally privatized answers cost nothing to search, with
    :class:`~sklearn.model_selection.GridSearchCV`.

    References
    ----------
    N. Papernot, T. Steinke, "Hyperparameter tuning with Rényi differential privacy", ICLR 2022;
    A. Koskela, R. Redberg, Y.-X. Wang, "Privacy profiles for private selection", ICML 2024.

    Examples
    --------
    >>> from sklearn_dpgen.datasets import load_rand_health
    >>> from sklearn_dpgen.model_selection import PrivateSearchCV, utility_scorer
    >>> from sklearn_dpgen.tables import TableSampler
    >>> data = load_rand_health()
    >>> search = PrivateSearchCV(
    ...     TableSampler(schema=data.schema, target="hlthp", population_size=2000),
    ...     {"marginals": ["auto", "pairs"]},
    ...     scoring=utility_scorer("hlthp", n_synthetic=2000),
    ...     n_runs=2,
    ... )
    >>> search.fit(data.frame).sample(3).shape
    (3, 10)
    """

    _parameter_constraints: dict = {
        "estimator": [HasMethods(["fit", "plan"]), Pipeline],
        "param_distributions": [dict, list, tuple],
        "epsilon": BUDGET,
        "delta": [Interval(Real, 0, 1, closed="neither")],
        "n_runs": [Interval(Real, 0, None, closed="neither"), RandomRuns],
        "scoring": [str, callable, None],
        "gap_weight": [Interval(Real, 0, None, closed="left")],
        "target_range": [tuple, list, None],
        "validation_fraction": [Interval(Real, 0, 1, closed="neither")],
        "random_state": ["random_state"],
    }
    _uses_torch = False

    def __init__(
        self,
        estimator: BaseEstimator,
        param_distributions: Mapping | Sequence[Mapping],
        *,
        epsilon: float = 1.0,
        delta: float = 1e-5,
        n_runs: "float | RandomRuns" = 10,
        scoring: str | Callable | None = None,
        gap_weight: float = 0.0,
        target_range: tuple[float, float] | None = None,
        validation_fraction: float = 0.2,
        ledger: LedgerLike = None,
        random_state: int | np.random.RandomState | None = None,
    ) -> None:
        self.estimator = estimator
        self.param_distributions = param_distributions
        self.epsilon = epsilon
        self.delta = delta
        self.n_runs = n_runs
        self.scoring = scoring
        self.gap_weight = gap_weight
        self.target_range = target_range
        self.validation_fraction = validation_fraction
        self.ledger = ledger
        self.random_state = random_state

    def plan(
        self,
        n_samples: int,
        n_features: int | None = None,
        *,
        public_scores: bool = False,
        group_sizes: ArrayLike | None = None,
        columns: list | None = None,
    ) -> PrivacyReport:
        """Return the privacy report of a search, without reading a record.

        Parameters
        ----------
        n_samples : int
            Number of private records, or of persons if the estimator protects them.
        n_features : int or None, default=None
            Number of columns, if the plan of the estimator needs it.
        public_scores : bool, default=False
            Whether public rows are scored.
        group_sizes : array-like of int of shape (n_groups,) or None, default=None
            Numbers of records of each declared group, for an estimator that makes them public, as
            the ones with a penalty do. None is a fit without such groups.
        columns : list of str or None, default=None
            Names of the columns of X, if the estimator has a schema with others too. None takes all
            columns of the schema but the target.

        Returns
        -------
        PrivacyReport
        """
        self._validate_params()
        check_units(self.estimator, self.param_distributions)
        seed = None if self.random_state is None else 0
        if group_sizes is not None:
            if check_declared_groups(self.estimator) is None:
                raise PublicValueError(
                    f"group_sizes must be None: {type(last_step(self.estimator)).__name__} "
                    "protects the sizes of the groups."
                )
            group_sizes = tuple(int(size) for size in np.asarray(group_sizes))
            if sum(group_sizes) != n_samples:
                raise PublicValueError(
                    f"group_sizes must add up to n_samples = {n_samples}, got {sum(group_sizes)}."
                )
        parts = self._parts(n_samples, public_scores, group_sizes)
        return self._price(parts, n_features, seed, columns=columns)[0]

    def _parts(self, n_samples, public_scores, group_sizes=None):
        """Return how many records train and score, in all and of each group of public size."""
        fraction = 0.0 if public_scores else self.validation_fraction
        scored: Any = None
        if group_sizes is None:
            n_scored = math.ceil(fraction * n_samples)
        else:
            # A group keeps a record to train on, so that a fit has the declared groups.
            scored = tuple(min(math.ceil(fraction * n), max(n - 1, 0)) for n in group_sizes)
            n_scored = sum(scored)
        if n_samples - n_scored < 1:
            raise PublicValueError(
                f"n_samples must leave a record to train on, got {n_samples}: use a smaller "
                "validation_fraction, or score public rows, X_val."
            )
        if fraction and not n_scored:
            raise PublicValueError(
                "Each group must have two records, of which one is scored; or score public rows, "
                "X_val."
            )
        return Parts(n_samples - n_scored, n_scored, group_sizes, scored)

    def _price(self, parts, n_features, seed, **given):
        """Return the report, the profile that dominates one run, and the distribution of runs.

        The profile is None without noise.

        Parameters
        ----------
        parts : Parts
        n_features : int or None
        seed : int or None
        **given
            Other public facts of a fit, such as ``columns``.
        """
        n_train, n_scored = parts.n_train, parts.n_scored
        change = self._largest_change(parts) if n_scored else None
        law = self.n_runs if isinstance(self.n_runs, RandomRuns) else PoissonRuns(self.n_runs)
        profile = None
        run: Any = None
        if math.isfinite(self.epsilon):
            check_delta_size(self.delta, n_train + n_scored)
            profile = calibrate_runs(self.epsilon, self.delta, law)
            run = profile.run
        # The estimator with its own parameters determines the relation and the public facts.
        sizes = parts.sizes(n_features) | given
        model, one = calibrated(self.estimator, {}, run, random_state=seed, **sizes)
        # Called for its warnings of noise.
        estimator_plan(model, **sizes)
        caveats = [c for c in _CAVEATS if c != "rowwise_scores" or not self._is_relational]
        public = [*one.public, "param_distributions", *(() if n_scored else ("validation_rows",))]
        report = PrivacyReport(
            name=f"{type(self).__name__}({type(last_step(self.estimator)).__name__})",
            events=(Event("best_of_runs"), *one.events),
            epsilon=self.epsilon,
            delta=0.0 if run is None else self.delta,
            neighbours=one.neighbours,
            protected=one.protected,
            shared=one.shared,
            unit=one.unit,
            max_rows=one.max_rows,
            max_records=one.max_records,
            public=tuple(public),
            public_tables=one.public_tables,
            noise_multiplier=0.0 if run is None else 1 / run.mu,
            noise_source=self._noise_description(),
            # The limits of a fit are limits of the best one too.
            caveats=tuple(dict.fromkeys((*caveats, *one.caveats))),
            releases=() if profile is None else ((profile, 1),),
            split={"best of all runs": 1.0},
            precision={f"{name}, one run": text for name, text in one.precision.items()},
        )
        if change is not None:
            scale = 0.0 if run is None else change / run.mu
            units = "records" if one.unit is None else "persons"
            what, bounds = "a mean over", (Bound("validation_mean"),)
            if self._is_relational:
                what, bounds = "1 minus a distance to", (Bound("validation_frequencies"),)
            less = ""
            if self.gap_weight:
                bounds = (*bounds, Bound("validation_gap", self.gap_weight))
                less = f" minus {self.gap_weight:g} times a difference of groups"
            score = {"score": f"{what} {n_scored} {units}{less}, ± {scale:.2g}"}
            report = replace(
                report,
                sensitivity=change,
                bounds=bounds,
                noise_scale={"score": scale},
                precision=score | report.precision,
            )
        return report, run, law

    def _largest_change(self, parts):
        """Return by how much one scored unit can change a score, before noise."""
        change = 1 / parts.n_scored
        if not self.gap_weight:
            return change
        if parts.scored is None:
            raise PublicValueError(
                "gap_weight must be 0 unless the sizes of the groups are public: give "
                "sensitive_features to an estimator whose guarantee states their sizes, or score "
                "public rows, X_val."
            )
        sizes = [size for size in parts.scored if size]
        if len(sizes) < 2:
            raise PublicValueError("gap_weight must be 0 unless two groups have scored records.")
        return change + self.gap_weight / min(sizes)

    def _codes(self, groups=None):
        """Return the codes of the scored rows in the difference of groups, or None without it."""
        if not self.gap_weight:
            return None
        if self._is_relational or isinstance(self.scoring, UtilityScorer):
            raise PublicValueError("gap_weight must be 0 for a generator, which predicts nothing.")
        if is_regressor(self.estimator) and self.target_range is None:
            raise PublicValueError("target_range must be given with gap_weight for a regressor.")
        if groups is None:
            raise PublicValueError(
                "gap_weight must be 0 without sensitive_features of the scored rows."
            )
        declared = getattr(last_step(self.estimator), "groups", None)
        return check_sensitive_features(groups, num_samples(groups), declared)[0]

    @fit_context(prefer_skip_nested_validation=False)
    def fit(
        self,
        X: ArrayLike | pd.DataFrame | Mapping[str, pd.DataFrame],
        y: ArrayLike | None = None,
        *,
        sensitive_features: ArrayLike | pd.DataFrame | None = None,
        X_val: ArrayLike | pd.DataFrame | Mapping[str, pd.DataFrame] | None = None,
        y_val: ArrayLike | None = None,
        sensitive_features_val: ArrayLike | pd.DataFrame | None = None,
    ) -> Self:
        """Search, and keep the best candidate.

        Parameters
        ----------
        X : data frame, array-like of shape (n_samples, n_features), or mapping of data frames
            Private records; for a RelationalSampler its tables in memory.
        y : array-like of shape (n_samples,) or None, default=None
            Private labels or values.
        sensitive_features : array-like of shape (n_samples,) or (n_samples, n_columns), or None
            Groups of the records, for an estimator whose fit takes them; each run gets those of
            its training records. The estimator must declare its ``groups``.
        X_val : as X, or None, default=None
            Public rows: scores on them are free, and all private records train.
        y_val : array-like of shape (n_rows,) or None, default=None
            Labels or values of the public rows.
        sensitive_features_val : as sensitive_features, or None, default=None
            Groups of the public rows, for an estimator that predicts by group.

        Returns
        -------
        self : object

        Raises
        ------
        BudgetExceededError
            The ledger has less left than the search costs; nothing is released.
        PublicRuntimeError
            No candidate could be fitted and scored. The search is charged, and errors are not
            shown.
        PublicTypeError, PublicValueError
            No budget of a candidate is small enough, a candidate has another neighbouring
            relation, scores need public rows, or the estimator does not take sensitive features,
            or would compare no groups without them. The ledger is not charged.
        """
        # A search does not follow the steps of PrivateEstimator._fit: the secret number of runs
        # and their candidates are drawn between the plan and the charge, so that unsupported
        # parameters are refused before the charge, and the fits of candidates release themselves.
        self._forget()
        by_group = sensitive_features is not None
        fixed = ["schema"] if self._is_relational else []
        if by_group:
            fixed += named_parameters(self.estimator, "groups")
            fixed += named_parameters(self.estimator, "protect_groups")
        check_distributions(self.param_distributions, fixed)
        check_units(self.estimator, self.param_distributions)
        check_neighbours(self.estimator)
        check_groups_are_given(self.estimator, by_group)
        records: Any
        if self._is_relational:
            records = PersonTables(X, y, self.estimator)
        else:
            records = Records(
                X,
                y,
                self._protected_unit(),
                getattr(self.estimator, "schema", None),
                sensitive_features=sensitive_features,
                groups=check_declared_groups(self.estimator) if by_group else None,
            )
        parts = self._parts(records.n_units, X_val is not None, records.group_sizes)
        seed = split_random_state(self.random_state, 1)[0]
        report, run, law = self._price(parts, records.n_features, seed, columns=records.columns)
        values = self._values(public=X_val is not None)
        bound = (X, y) if sensitive_features is None else (X, y, sensitive_features)
        noise = self._noise_source(seed, self.estimator, self.scoring, *bound)
        sizes = parts.sizes(records.n_features) | {"columns": records.columns}
        candidates = self._candidates(law.draw(noise), run, report, sizes, seed, noise)
        for _, candidate, _ in candidates:
            check_groups_are_given(candidate, by_group)
        training, scored, weights = records.split(parts.scored_units, noise)
        if X_val is not None:
            n_rows = 0 if self._is_relational else num_samples(X_val)
            scored, weights = (X_val, y_val), np.full(n_rows, 1 / max(n_rows, 1))
            if sensitive_features_val is not None:
                scored = (*scored, as_rows(sensitive_features_val, n_rows))
        codes = self._codes(*scored[2:])
        # Before this line no values of records are read but groups, whose sizes are public.
        self._charge(report)
        scale, best = report.noise_scale["score"] if parts.n_scored else 0.0, None
        for parameters, candidate, plan in candidates:
            score = self._run(candidate, training, scored, values, weights, codes)
            if score > -math.inf and not is_as_planned(last_step(candidate).privacy_, plan, run):
                kind = type(last_step(candidate)).__name__
                raise PublicRuntimeError(
                    f"The fit of {kind} must cost what it had planned, and protect as much."
                )
            score = released_score(score, scale, noise)
            # Of equal scores the first wins: the order of identically distributed runs is random.
            if best is None or score > best[0]:
                best = score, parameters, candidate
        if best is None or best[0] == -math.inf:
            raise PublicRuntimeError(
                "No candidate could be fitted and scored; the search was charged. The errors may "
                "reveal records and are not shown: fit a candidate on public or synthetic rows to "
                "see them."
            )
        self.best_score_, self.best_params_, self.best_estimator_ = best
        state_price(last_step(self.best_estimator_), self.privacy_)
        self.n_features_in_ = records.n_features
        if isinstance(records, Records) and isinstance(X, pd.DataFrame):
            names = [name for name in X.columns if name != records.beside]
            self.feature_names_in_ = np.array(names, dtype=object)
        return self

    @property
    def _is_relational(self):
        return isinstance(self.estimator, RelationalSampler)

    def _protected_unit(self):
        """Return the name of the column that identifies persons, or None."""
        unit = protected_unit(self.estimator)
        if unit is not None and isinstance(self.estimator, Pipeline):
            raise PublicValueError(
                "unit needs an estimator that reads its column, which a pipeline may remove: give "
                "the last step alone."
            )
        return unit

    def _candidates(self, n_runs, run, report, sizes, seed, noise):
        """Return parameters, an unfitted candidate and its plan, for each run."""
        drawn, known = [], {}
        for _ in range(n_runs):
            parameters = draw_parameters(self.param_distributions, noise)
            own_seed = None if seed is None else int(noise.integers(2**32, 1)[0])
            key = joblib.hash(parameters)
            if key not in known:
                args = (self.estimator, parameters, run)
                known[key] = calibrated(*args, random_state=own_seed, **sizes)
                check_relation(known[key][1], report, parameters)
            candidate, plan = known[key]
            drawn.append((parameters, seeded(candidate, own_seed), plan))
        return drawn

    def _values(self, *, public):
        """Return a function of an estimator and the scored rows: X, y and, if given, their groups.

        It has one value for each row, or one for all rows.
        """
        if self._is_relational:
            return self._values_of_persons(public)
        if isinstance(self.scoring, UtilityScorer):
            return lambda candidate, X, *_: self.scoring.row_values(candidate, X)
        if self.scoring is None or self.scoring in ("accuracy", "brier", "absolute_error"):
            return by_group(row_values(self.scoring, self.estimator, self.target_range))
        if not public:
            raise PublicValueError(
                "scoring must be None, 'accuracy', 'brier', 'absolute_error' or a utility_scorer "
                "for private rows, as their values are bounded for each row. Others need public "
                "rows, X_val."
            )
        if isinstance(self.scoring, GroupScorer):
            return lambda candidate, X, y, groups: self.scoring(
                candidate, X, y, sensitive_features=groups
            )
        return by_group(check_scoring(self.estimator, scoring=self.scoring))

    def _values_of_persons(self, public):
        """Return a function of (sampler, tables, None) with a score, bounded unless public."""
        if self.scoring is None:
            return lambda sampler, tables, y: sampler._bounded_score(tables)
        if not public or isinstance(self.scoring, str | UtilityScorer):
            raise PublicValueError(
                "scoring must be None for a RelationalSampler, or a callable for public tables, "
                f"X_val, got {self.scoring!r}."
            )
        return self.scoring

    def _run(self, candidate, training, scored, values, weights, codes):
        """Fit and score a candidate; return the score without noise, −∞ if anything failed."""
        try:
            with warnings.catch_warnings():
                # Warnings would reveal the candidates and their number.
                warnings.simplefilter("ignore")
                fitted(candidate, *training)
                found = values(candidate, *scored)
                less = 0.0
                if codes is not None:
                    X, _, groups = scored
                    positive = outcomes(with_groups(candidate, groups), X, self.target_range)
                    positive = bounded_values(positive, len(codes))
                    less = self.gap_weight * group_gap(positive, codes, weights)
        except Exception:  # Showing an error of any class would reveal a candidate.
            return -math.inf
        if np.ndim(found) == 0:
            # NaN is replaced, as scores are ordered.
            return -math.inf if np.isnan(found) else float(found) - less
        return float(weights @ bounded_values(found, len(weights))) - less
