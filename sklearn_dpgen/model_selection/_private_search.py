"""PrivateSearchCV: parameters chosen on private records, at a price that counts the choice."""

import math
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Self

import joblib
import numpy as np
import pandas as pd
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator
from sklearn.metrics import check_scoring

from sklearn_dpgen.accounting import (
    Bound,
    Event,
    PoissonRuns,
    PrivacyReport,
    calibrate_runs,
    check_delta_size,
)
from sklearn_dpgen.accounting._random_stopping import RandomRuns
from sklearn_dpgen.ledger._base import PrivateEstimator
from sklearn_dpgen.ledger._ledger import LedgerLike
from sklearn_dpgen.model_selection._best_estimator import BestEstimatorMixin
from sklearn_dpgen.model_selection._candidates import (
    calibrated,
    check_distributions,
    check_relation,
    draw_parameters,
    is_as_planned,
    seeded,
    state_price,
)
from sklearn_dpgen.model_selection._parts import Records
from sklearn_dpgen.model_selection._row_values import bounded_values, released_score, row_values
from sklearn_dpgen.model_selection._utility_scorer import UtilityScorer
from sklearn_dpgen.utils._random import split_random_state
from sklearn_dpgen.utils._validation import (
    BUDGET,
    HasMethods,
    Interval,
    Real,
    fit_context,
    named_parameters,
    num_samples,
)

__all__ = ["PrivateSearchCV"]

_CAVEATS = ("best_run_alone", "rowwise_scores", "failing_fits", "floating_point")


class PrivateSearchCV(BestEstimatorMixin, PrivateEstimator):
    """The best of a random number of private fits, at a price that counts all of them.

    Parameters are drawn from public distributions, each time for a fit on training records and for
    a noisy score on validation records, as often as a secret random number says. Only the best fit
    is shown. Whoever shows the best of 40 fits has, at the price of one, no such guarantee.

    A search is not always worth its price: with ten runs on average, each has about twice the noise
    of a single fit that has the whole budget. Where defaults are good, one fit is better; where
    nothing is known of good parameters, as of learning rates, a search can be, with thousands of
    records. Where scores are free, as on public rows, give these.

    Parameters
    ----------
    estimator : private estimator
        Of this package, with a plan that needs the numbers of records and of columns alone, for
        records of which one is replaced. The search sets its ``epsilon``, ``delta``, ``ledger`` and
        ``random_state``.
    param_distributions : dict or list of dict
        As for :class:`~sklearn.model_selection.RandomizedSearchCV`: lists, or distributions of
        ``scipy.stats``, of each parameter. They are public: chosen without a look at the records.
    epsilon : float, default=1.0
        Privacy budget of the whole search, in nats; ``np.inf`` searches without noise.
    delta : float, default=1e-5
        In (0, 1).
    n_runs : float, PoissonRuns, NegativeBinomialRuns or BinomialRuns, default=10
        The law of the number of runs. A number is the mean of a Poisson law, given that it is not
        0.
    scoring : {"accuracy", "brier", "absolute_error"}, UtilityScorer, callable or None, default=None
        Larger is better. None is the share of labels that are predicted, or one minus the mean
        absolute error over ``target_range``. "brier" is one minus Brier's score of probabilities.
        :func:`utility_scorer` is for generators. Any other scorer of scikit-learn, or its name, can
        be used with public rows only.
    target_range : (float, float) or None, default=None
        Public bounds of a number that is predicted, to which values and predictions are clipped.
    validation_fraction : float, default=0.2
        Share of the records, or of the persons, that score, in (0, 1); which is drawn at random.
    ledger : PrivacyLedger, path or None, default=None
        Where the search is booked, as one charge, before the first run.
    random_state : int, RandomState or None, default=None
        None draws noise from the operating system's entropy. An int repeats the search, and voids
        the guarantee for whoever knows or guesses it.

    Attributes
    ----------
    best_estimator_ : estimator
        The candidate of the largest noisy score, fitted on the training records.
    best_params_ : dict
        Its drawn parameters.
    best_score_ : float
        Its noisy score. As the largest one it is above what to expect of new records.
    privacy_ : PrivacyReport
        Of the whole search; also of ``best_estimator_``.
    n_features_in_ : int
        Number of columns.

    Notes
    -----
    **Formal guarantee**

    :Promise: Central (ε, δ)-differential privacy of the best candidate, its parameters and its
        noisy score.
    :Neighbours: Those of ``estimator``, which must replace one record; persons, where it protects
        them.
    :Public: What ``estimator`` takes to be public; ``param_distributions``; X_val and y_val, where
        they are given.
    :Bounded by: A random split: a record is in the training part, and then changes a fit, or in the
        validation part, and then changes a mean of values in [0, 1].
    :Noise: That of the fits, Gaussian noise on scores, and a secret random number of runs, in
        floating point, from the operating system's entropy.
    :Priced by: :class:`~sklearn_dpgen.accounting.RandomStoppingProfile`: the best of a random
        number of runs, each of which costs the larger of a fit and a score.
    :Not covered: The number of runs, all other candidates, and how long the search took: do not
        publish them. ``predict`` that does not treat each row by itself; fits that fail on account
        of a record; other fits of the same records, which a ``ledger`` adds up; errors of a fit; a
        ``random_state`` that others know or guess.
    :Proof: Notes; :doc:`/ledger`.

    The records are split at random, once for all runs, and a replaced record is in one part: which
    one does not depend on what is in it. In the training part it changes the law of a fit, and the
    score is computed from what was fitted and from validation records that are the same; in the
    validation part it changes the score by 1/n_validation at most, and no fit. So one run, with the
    fit and its score, costs the larger of the two, not the sum. Where the estimator has a ``unit``,
    all of this holds of persons: the rows of one are in one part, and have the weight of one.

    The candidate's budget is the largest at which its plan is dominated by a Gaussian mechanism of
    sensitivity μ (but for a probability δ₀ = 10⁻³ δ / E[K] of an open failure), and the score has
    normal noise of standard deviation 1/(μ n_validation). A candidate that cannot be made so is
    refused by its plan, whatever the records are. The best of K such runs has the
    :class:`~sklearn_dpgen.accounting.RandomStoppingProfile`, and μ is the largest at which its
    (ε, δ) is the budget.

    The argument needs that runs are alike and independent: parameters, seeds and noise of each are
    drawn anew. A fit that fails has the score −∞, and is paid for. There is no table of results and
    no second fit of the best parameters, which would each cost more. Warnings of candidates are
    not shown, for the same reason as their scores, and a ``callback`` and ``verbose`` are taken
    from them.

    Scores on public rows, ``X_val`` of :meth:`fit`, are free: all records train, and no noise is
    added. Estimators that learn from answers that were privatized before, and their scores, cost
    nothing: search with :class:`~sklearn.model_selection.GridSearchCV`.

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
        "estimator": [HasMethods(["fit", "plan"])],
        "param_distributions": [dict, list, tuple],
        "epsilon": BUDGET,
        "delta": [Interval(Real, 0, 1, closed="neither")],
        "n_runs": [Interval(Real, 0, None, closed="neither"), RandomRuns],
        "scoring": [str, callable, None],
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
        self.target_range = target_range
        self.validation_fraction = validation_fraction
        self.ledger = ledger
        self.random_state = random_state

    def plan(
        self, n_samples: int, n_features: int | None = None, *, public_scores: bool = False
    ) -> PrivacyReport:
        """Return the complete report of a search, without records.

        Parameters
        ----------
        n_samples : int
            Number of private records, or of persons where the estimator has a ``unit``.
        n_features : int or None, default=None
            Number of columns, where the plan of the estimator needs it.
        public_scores : bool, default=False
            Whether scores are on public rows.

        Returns
        -------
        PrivacyReport
        """
        self._validate_params()
        seed = None if self.random_state is None else 0
        return self._price(self._parts(n_samples, public_scores), n_features, seed)[0]

    def _parts(self, n_samples, public_scores):
        """Return the numbers of records that train and that score."""
        n_scored = 0 if public_scores else math.ceil(self.validation_fraction * n_samples)
        if n_samples - n_scored < 1:
            raise ValueError(
                f"n_samples={n_samples} leaves no record to train on: take a smaller "
                "validation_fraction, or score public rows, X_val."
            )
        return n_samples - n_scored, n_scored

    def _price(self, parts, n_features, seed):
        """Return the report, and what dominates one run, None without noise."""
        n_train, n_scored = parts
        law = self.n_runs if isinstance(self.n_runs, RandomRuns) else PoissonRuns(self.n_runs)
        profile = None
        run: Any = None
        if math.isfinite(self.epsilon):
            check_delta_size(self.delta, n_train + n_scored)
            profile = calibrate_runs(self.epsilon, self.delta, law)
            run = profile.run
        # Of the estimator as it is: whom it protects, and what it takes to be public.
        sizes = {"n_samples": n_train, "n_features": n_features}
        model, one = calibrated(self.estimator, {}, run, random_state=seed, **sizes)
        # For its warnings of noise.
        model.plan(**sizes)
        public = [*one.public, "param_distributions", *(() if n_scored else ("validation_rows",))]
        report = PrivacyReport(
            name=f"{type(self).__name__}({type(self.estimator).__name__})",
            events=(Event("best_of_runs"), *one.events),
            epsilon=self.epsilon,
            delta=0.0 if run is None else self.delta,
            neighbours=one.neighbours,
            protected=one.protected,
            shared=one.shared,
            unit=one.unit,
            max_rows=one.max_rows,
            public=tuple(public),
            noise_multiplier=0.0 if run is None else 1 / run.mu,
            noise_source=self._noise_description(),
            caveats=_CAVEATS,
            releases=() if profile is None else ((profile, 1),),
            split={"best of all runs": 1.0},
            precision={f"{name}, one run": text for name, text in one.precision.items()},
        )
        if n_scored:
            scale = 0.0 if run is None else 1 / (run.mu * n_scored)
            units = "records" if one.unit is None else "persons"
            score = {"score": f"a mean over {n_scored} {units}, ± {scale:.2g}"}
            report = replace(
                report,
                sensitivity=1 / n_scored,
                bounds=(Bound("validation_mean"),),
                noise_scale={"score": scale},
                precision=score | report.precision,
            )
        return report, run, law

    @fit_context(prefer_skip_nested_validation=False)
    def fit(
        self,
        X: ArrayLike | pd.DataFrame,
        y: ArrayLike | None = None,
        *,
        X_val: ArrayLike | pd.DataFrame | None = None,
        y_val: ArrayLike | None = None,
    ) -> Self:
        """Search, and keep the best candidate.

        Parameters
        ----------
        X : data frame or array-like of shape (n_samples, n_features)
            Private records.
        y : array-like of shape (n_samples,) or None, default=None
            Private labels or values.
        X_val : data frame or array-like of shape (n_rows, n_features) or None, default=None
            Public rows: scores on them are free, and all private records train.
        y_val : array-like of shape (n_rows,) or None, default=None
            Of the public rows.

        Returns
        -------
        self : object

        Raises
        ------
        BudgetExceededError
            The ledger has less left than the search takes: nothing is released.
        RuntimeError
            No candidate could be fitted and scored. The search is paid for, and what failed is not
            shown.
        ValueError
            Before anything of a record is released: a candidate of which no budget is small enough,
            or that protects other neighbours; scores that need public rows.
        """
        self._forget()
        check_distributions(self.param_distributions)
        records = Records(X, y, self._protected_unit(), getattr(self.estimator, "schema", None))
        parts = self._parts(records.n_units, X_val is not None)
        seed = split_random_state(self.random_state, 1)[0]
        report, run, law = self._price(parts, records.n_features, seed)
        values = self._values(public=X_val is not None)
        noise = self._noise_source(seed, self.estimator, self.scoring, X, y)
        sizes = {"n_samples": parts[0], "n_features": records.n_features}
        candidates = self._candidates(law.draw(noise), run, report, sizes, seed, noise)
        training, scored, weights = records.split(parts[1], noise)
        if X_val is not None:
            n_rows = num_samples(X_val)
            scored, weights = (X_val, y_val), np.full(n_rows, 1 / n_rows)
        # From here on records are read.
        self._charge(report)
        scale, best = report.noise_scale["score"] if parts[1] else 0.0, None
        for parameters, candidate, plan in candidates:
            score = self._run(candidate, training, scored, values, weights)
            if score > -math.inf and not is_as_planned(candidate.privacy_, plan, run):
                kind = type(candidate).__name__
                raise RuntimeError(
                    f"The fit of {kind} cost more than its plan, or protects less than it says."
                )
            score = released_score(score, scale, noise)
            # The first of equal ones: runs are alike, so that their order is a random one.
            if best is None or score > best[0]:
                best = score, parameters, candidate
        if best is None or best[0] == -math.inf:
            raise RuntimeError(
                "No candidate could be fitted and scored. The search is paid for, and what failed "
                "is not shown, as it may tell of the records: fit a candidate on public or "
                "synthetic rows to see it."
            )
        self.best_score_, self.best_params_, self.best_estimator_ = best
        state_price(self.best_estimator_, self.privacy_)
        self.n_features_in_ = records.n_features
        if isinstance(X, pd.DataFrame):
            names = [name for name in X.columns if name != records.beside]
            self.feature_names_in_ = np.array(names, dtype=object)
        return self

    def _protected_unit(self):
        """Return the column that says which rows are of one person, or None.

        It may be given to what the estimator holds, such as the sampler of a predictor.
        """
        given = self.estimator.get_params()
        units = {given[name] for name in named_parameters(self.estimator, "unit")} - {None}
        if len(units) > 1:
            raise ValueError(f"estimator must have one unit, got {sorted(units)}.")
        return max(units, default=None)

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
        """Return the function of (estimator, X, y) that gives one value a row, or one for all."""
        if isinstance(self.scoring, UtilityScorer):
            return lambda candidate, X, y: self.scoring.row_values(candidate, X)
        if self.scoring is None or self.scoring in ("accuracy", "brier", "absolute_error"):
            return row_values(self.scoring, self.estimator, self.target_range)
        if not public:
            raise ValueError(
                "scoring must be None, 'accuracy', 'brier', 'absolute_error' or a utility_scorer, "
                "whose values are bounded for each row, where the rows are private. Others need "
                "public rows, X_val."
            )
        return check_scoring(self.estimator, scoring=self.scoring)

    def _run(self, candidate, training, scored, values, weights):
        """Fit and score a candidate; return the score without noise, −∞ if anything failed."""
        try:
            with warnings.catch_warnings():
                # They would tell of a candidate, and how many there were.
                warnings.simplefilter("ignore")
                candidate.fit(*(part for part in training if part is not None))
                found = values(candidate, *scored)
        except Exception:  # of any kind, and not to be told
            return -math.inf
        if np.ndim(found) == 0:
            # Outputs need an order, in which what is no number is the last.
            return -math.inf if np.isnan(found) else float(found)
        return float(weights @ bounded_values(found, len(weights)))
