"""What the estimators share whose predictions are moved to a Wasserstein barycentre."""

import math

import numpy as np
from sklearn.base import MetaEstimatorMixin, clone
from sklearn.frozen import FrozenEstimator
from sklearn.model_selection import train_test_split
from sklearn.utils import get_tags

from sklearn_dpgen.exceptions import SmallGroupWarning
from sklearn_dpgen.ledger._base import PrivateEstimator
from sklearn_dpgen.ledger._unit import split_unit
from sklearn_dpgen.predictors._barycenter_plan import (
    SMALL_GROUPS,
    BarycenterPlanMixin,
    check_n_groups,
)
from sklearn_dpgen.predictors._fit_cost import differs, fit_cost
from sklearn_dpgen.predictors._group_laws import (
    count_halves,
    group_sizes,
    maps_of_halves,
    maps_of_scores,
)
from sklearn_dpgen.predictors._group_means import mean_intervals, outcome_sums
from sklearn_dpgen.utils._frames import as_pandas
from sklearn_dpgen.utils._groups import check_sensitive_features
from sklearn_dpgen.utils._random import split_random_state
from sklearn_dpgen.utils._validation import (
    BUDGET,
    HasMethods,
    Integral,
    Interval,
    Real,
    StrOptions,
    call_quietly,
    check_is_fitted,
    column_or_1d,
    num_samples,
    warn_user,
)

__all__ = ["BarycenterEstimator"]


class BarycenterEstimator(BarycenterPlanMixin, MetaEstimatorMixin, PrivateEstimator):
    """Base of the estimators whose scores, in [0, 1], are moved group by group."""

    _parameter_constraints: dict = {
        "max_gap": [Interval(Real, 0, None, closed="left"), None],
        "epsilon": BUDGET,
        "delta": [StrOptions({"auto"}), Interval(Real, 0, 1, closed="neither")],
        "groups": ["array-like", None],
        "group_estimator": [HasMethods(["fit", "predict_proba"]), None],
        "n_levels": [Interval(Integral, 1, 12, closed="both")],
        "calibration_fraction": [Interval(Real, 0, 1, closed="neither")],
        "random_state": ["random_state"],
    }

    def _fit_maps(self, X, y, sensitive_features):
        """Fit the estimator, unless it is frozen, then the maps, and measure what they do."""
        X = as_pandas(X)
        n_rows, table = num_samples(X), self._without_unit(X)
        codes = self._group_codes(sensitive_features, n_rows)
        n_groups = len(self.groups_ or [None])
        split_seed, noise_seed = split_random_state(self.random_state, 2)
        private = math.isfinite(self.epsilon)
        n_samples = n_rows
        if private and self.unit is not None:
            n_samples = split_unit(X, self.unit)[1].n_persons
        plan = self._planned(n_samples, n_groups, **(_widths(table) if private else {}))
        self._charge(plan.report)
        X_fit, y_fit, codes_fit = X, y, codes
        if not private:
            X = X_fit = table
            if self._has_unfrozen():
                # Of what overfits, the laws on rows that it saw are not those on others.
                is_read = not isinstance(self.estimator, FrozenEstimator)
                y = column_or_1d(y, warn=True) if is_read else np.zeros(n_samples)
                X_fit, X, y_fit, _, codes_fit, codes = train_test_split(
                    table,
                    y,
                    codes,
                    test_size=self.calibration_fraction,
                    random_state=split_seed,
                    stratify=self._strata(y),
                )
        fitted = self._fit_within(plan, X_fit, y_fit, codes_fit)
        if private:
            X, codes = self._one_row_each(X, codes, seed=noise_seed)
        self.estimator_, *others = fitted
        self._check_estimator()
        if others:
            (self.group_estimator_,) = others
            self._group_columns(self.groups_ or ())
        mechanism = plan.mechanism
        scores = self._fit_scores(X, len(codes))
        weights = self._quietly(self._group_weights, X)
        run, noise = mechanism and mechanism.run(), self._noise_source(noise_seed)

        def released(vector, stage):
            if run is None:
                return vector, 0.0
            scale = mechanism.noise_scales[stage]
            return run.release(vector, noise), scale

        if run is None:
            self.maps_ = maps_of_scores(scores, codes, n_groups)
        else:
            counts, scale = released(count_halves(scores, codes, n_groups, self.n_levels), 0)
            self._warn_of_noise(
                group_sizes(counts, n_groups, self.n_levels), self._least_size(mechanism)
            )
            self.maps_ = maps_of_halves(counts, n_groups, self.n_levels, scale)
        strength = self._strength()
        outcomes = self._outcomes(self._moved(scores, codes, weights, strength))
        sums, scale = released(outcome_sums(outcomes, codes, n_groups), 1)
        for name in ("n_features_in_", "feature_names_in_"):
            if hasattr(self.estimator_, name):
                setattr(self, name, getattr(self.estimator_, name))
        intervals = mean_intervals(sums, scale, self.groups_ or ["all"])
        self.strength_ = strength
        return intervals

    def _has_unfrozen(self):
        """Return whether this fit fits any estimator."""
        estimators = [e for e in (self.estimator, self.group_estimator) if e is not None]
        return not all(isinstance(estimator, FrozenEstimator) for estimator in estimators)

    def _fit_within(self, plan, X, y, codes):
        """Return the estimators of a plan, fitted where they are not frozen, at the price of it."""
        fitted, costs = [clone(estimator) for estimator in plan.estimators], iter(plan.costs)
        for estimator, is_of_groups in zip(fitted, (False, True), strict=False):
            if isinstance(estimator, FrozenEstimator):
                continue
            labels = np.array(self.groups_)[codes] if is_of_groups else y
            estimator.fit(X, column_or_1d(labels, warn=True))
            if plan.mechanism is not None and differs(next(costs), fit_cost(estimator)):
                raise RuntimeError(
                    f"{type(estimator).__name__} was fitted at another cost than it had planned: "
                    "what is stated of the whole does not hold."
                )
        return fitted

    def _group_columns(self, groups):
        """Return the group of each column of what the estimator of groups predicts."""
        positions = {group: code for code, group in enumerate(groups)}
        classes = self.group_estimator_.classes_.tolist()
        if not positions.keys() >= set(classes):
            raise ValueError(f"group_estimator has classes that are no groups: {classes}.")
        return [positions[label] for label in classes]

    def _group_weights(self, X):
        """Return the probability of each group for each record, or None without an estimator."""
        if not hasattr(self, "group_estimator_") or self.groups_ is None:
            return None
        laws = np.asarray(self.group_estimator_.predict_proba(X), dtype=np.float64)
        weights = np.zeros((len(laws), len(self.groups_)))
        weights[:, self._group_columns(self.groups_)] = laws
        return weights

    def _moved(self, scores, codes, weights, strength):
        """Return moved scores: by the maps of their groups, or of what groups they may be of."""
        if weights is None:
            return self.maps_.transport(scores, codes, strength)
        return self.maps_.transport_mixed(scores, weights, strength)

    def _quietly(self, function, X):
        """Return what is predicted of the records of a fit; no error shows a value of theirs."""
        try:
            return function(X)
        except Exception as error:  # of any kind, by what the estimator is
            if not math.isfinite(self.epsilon):
                raise
            kind = type(error).__name__
        raise ValueError(f"estimator does not predict the records: it raised {kind}.")

    def _fit_scores(self, X, n_samples):
        """Return the scores of the records of a fit."""
        scores = self._quietly(self._scores, X)
        if scores.shape != (n_samples,):
            raise ValueError(
                f"estimator must predict one number for each of {n_samples} records, got an array "
                f"of shape {scores.shape}."
            )
        return scores

    def _group_codes(self, sensitive_features, n_samples):
        if sensitive_features is None:
            self.groups_ = None
            if self._asks_for_parity():
                warn_user(
                    "sensitive_features is absent: nothing is moved. In a pipeline or a search, "
                    "enable metadata routing and call set_fit_request(sensitive_features=True).",
                    UserWarning,
                )
            return np.zeros(n_samples, dtype=np.int64)
        codes, groups = check_sensitive_features(sensitive_features, n_samples, self.groups)
        check_n_groups(len(groups))
        if self.group_estimator is not None and isinstance(groups[0], tuple):
            raise ValueError("group_estimator needs sensitive_features of a single column.")
        self.groups_ = groups
        return codes

    def _warn_of_noise(self, sizes, least):
        """Name the groups whose rates noise hides: from what was released."""
        if self.groups_ is None:
            return
        small = [group for group, size in zip(self.groups_, sizes, strict=True) if size < least]
        if small:
            warn_user(
                f"Groups {small} have fewer records than about {least:.0f}. {SMALL_GROUPS}",
                SmallGroupWarning,
            )

    def _strength_by_gap(self, max_gap):
        """Distances shrink in proportion, so that the way to a wanted one is known."""
        gap = self.maps_.largest_distance()
        return 0.0 if gap <= max_gap else 1 - max_gap / gap

    def _mapped(self, X, sensitive_features):
        check_is_fitted(self)
        X = self._without_unit(X)
        scores = self._scores(X)
        if self.groups_ is None:
            return scores
        if hasattr(self, "group_estimator_"):
            return self._moved(scores, None, self._group_weights(X), self.strength_)
        if sensitive_features is None:
            raise ValueError(
                "sensitive_features is needed: each group has a map of its own. Where groups are "
                "not known, fit with a group_estimator."
            )
        codes, _ = check_sensitive_features(sensitive_features, len(scores), self.groups_)
        return self._moved(scores, codes, None, self.strength_)

    def __sklearn_is_fitted__(self):
        return hasattr(self, "strength_")

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.non_deterministic = self.random_state is None
        tags.input_tags = get_tags(self.estimator).input_tags
        return tags


def _widths(X):
    """Return what a plan may ask of records: how many columns, and their names in a frame."""
    rule = "X must be a table, or rows of one length."
    shape = X.shape if hasattr(X, "shape") else call_quietly(rule, np.shape, X)
    names = list(X.columns) if hasattr(X, "columns") else None
    return {"n_features": shape[1] if len(shape) == 2 else None, "columns": names}
