"""Base of the predictors whose scores are mapped to a Wasserstein barycentre of the groups."""

import inspect
import math
from dataclasses import dataclass

import numpy as np
from sklearn.base import MetaEstimatorMixin, clone
from sklearn.frozen import FrozenEstimator
from sklearn.model_selection import train_test_split
from sklearn.utils import get_tags

from sklearn_dpgen.accounting import (
    Bound,
    Event,
    GaussianProfile,
    PrivacyReport,
    Public,
    calibrate_noise_multiplier,
)
from sklearn_dpgen.accounting._calibration import calibrate_remainder, check_delta_size
from sklearn_dpgen.accounting._guarantee import common_guarantee
from sklearn_dpgen.exceptions import PublicRuntimeError, PublicValueError, SmallGroupWarning
from sklearn_dpgen.ledger._base import Plan, PrivateEstimator, effective_parameters
from sklearn_dpgen.ledger._unit import split_unit
from sklearn_dpgen.mechanisms import GaussianSequenceMechanism
from sklearn_dpgen.predictors._group_counts import (
    count_halves,
    first_split_noise,
    group_sizes,
    maps_of_halves,
    maps_of_scores,
    outcome_sums,
)
from sklearn_dpgen.preprocessing._steps import check_steps, plan_cost, private_parameters, steps_of
from sklearn_dpgen.utils._frames import as_pandas
from sklearn_dpgen.utils._groups import check_groups, check_sensitive_features, mean_intervals
from sklearn_dpgen.utils._random import ROUNDING
from sklearn_dpgen.utils._validation import (
    BUDGET,
    HasMethods,
    Integral,
    Interval,
    Real,
    StrOptions,
    call_quietly,
    check_count,
    check_is_fitted,
    column_or_1d,
    fit_context,
    num_samples,
    warn_user,
)

__all__ = ["BarycenterEstimator"]

_SMALL_GROUPS = (
    "In a small group, noise hides how predictions differ from those for all rows, and they may "
    "be mapped as all are. Raise epsilon, lower epsilon_share, or merge groups."
)

# A record adds a vector of norm 1 with no negative entry. Replacing a record subtracts one such
# vector and adds another.
_SENSITIVITIES = {"replace_one": math.sqrt(2), "add_or_remove": 1.0}
# Shares of the budget left by the nested fits: counts for the maps, and means.
_SHARES = (0.85, 0.15)
# Largest standard deviation of the noise on the share of scores above 1/2, in a group that counts
# as large enough.
_TOLERATED_NOISE = 0.1
# Distances are computed for all pairs of groups.
_MOST_GROUPS = 200
# Size of the group for which a report states the precision.
_EXAMPLE = 1000


@dataclass(frozen=True)
class BarycenterDetails:
    """Details of the plan of a fit.

    Parameters
    ----------
    estimators : tuple of estimator
        Estimators to fit: of the target, then of the groups.
    costs : tuple of PrivacyReport
        Plans of their fits; empty without noise.
    mechanism : GaussianSequenceMechanism or None
        Mechanism of the counts and of the means; None without noise.
    n_groups : int
    """

    estimators: tuple
    costs: tuple[PrivacyReport, ...]
    mechanism: GaussianSequenceMechanism | None
    n_groups: int


class BarycenterEstimator(MetaEstimatorMixin, PrivateEstimator):
    """Base of the estimators whose scores, in [0, 1], are mapped group by group."""

    _parameter_constraints: dict = {
        "max_gap": [Interval(Real, 0, None, closed="left"), None],
        "epsilon": BUDGET,
        "delta": [StrOptions({"auto"}), Interval(Real, 0, 1, closed="neither")],
        "epsilon_share": [Interval(Real, 0, 1, closed="neither")],
        "groups": ["array-like", None],
        "group_estimator": [HasMethods(["fit", "predict_proba"]), None],
        "n_levels": [Interval(Integral, 1, 12, closed="both")],
        "calibration_fraction": [Interval(Real, 0, 1, closed="neither")],
        "random_state": ["random_state"],
    }

    @property
    def _reads_groups(self):
        """Whether predictions depend on the group."""
        return True

    @fit_context(prefer_skip_nested_validation=False)
    def plan(
        self,
        n_samples: int,
        n_features: int | None = None,
        *,
        n_groups: int | None = None,
        columns: list | None = None,
    ) -> PrivacyReport:
        """Return the privacy report of a fit, without reading a record.

        Parameters
        ----------
        n_samples : int
            Number of records, or of persons with a ``unit``.
        n_features : int or None, default=None
            Number of features, if the plan of the estimator needs it.
        n_groups : int or None, default=None
            Number of groups; 1 plans a fit without sensitive features. None takes the number of
            ``groups``, or 2.
        columns : list of str or None, default=None
            Names of the columns of X, if the estimator has a schema. None takes all columns of the
            schema but the target.

        Returns
        -------
        PrivacyReport
            Equal to ``privacy_`` of a fit; it includes the nested fits.

        Raises
        ------
        PublicValueError
            The estimator is not private, has a budget of its own, or leaves nothing to the counts.

        Warns
        -----
        SmallGroupWarning
            If groups of equal sizes would be too small.
        """
        n_samples = check_count(n_samples, "n_samples")
        if n_groups is None:
            n_groups = 2 if self.groups is None else len(check_groups(self.groups))
        n_groups = check_count(n_groups, "n_groups")
        plan = self._plan(n_samples, n_groups, n_features=n_features, columns=columns)
        mechanism = plan.details.mechanism
        if mechanism is not None and n_groups > 1:
            least = self._least_size(mechanism)
            if n_samples < n_groups * least:
                warn_user(
                    f"At least one of {n_groups} groups has fewer records than about {least:.0f}. "
                    f"{_SMALL_GROUPS}",
                    SmallGroupWarning,
                )
        return plan.report

    def _read(self, X, y, sensitive_features, *, seed):
        X = as_pandas(X)
        n_samples, sizes = num_samples(X), {}
        codes = self._group_codes(sensitive_features, n_samples)
        if math.isfinite(self.epsilon):
            sizes = _widths(self._without_unit(X))
            if self.unit is not None:
                n_samples = split_unit(X, self.unit)[1].n_persons
        facts = {"n_samples": n_samples, "n_groups": len(self.groups_ or [None])}
        return (X, y, codes), facts | sizes

    def _plan(self, n_samples, n_groups, **sizes):
        """Return the plan of a fit and of the nested fits, which are one charge.

        Parameters
        ----------
        n_samples : int
        n_groups : int
        **sizes
            Public facts that the plans of the nested fits may need.
        """
        check_n_groups(n_groups)
        fitted = {"estimator": self.estimator}
        if n_groups > 1 and self.group_estimator is not None:
            fitted["group_estimator"] = self.group_estimator
        if math.isinf(self.epsilon):
            exact = tuple(
                estimator
                if isinstance(estimator, FrozenEstimator)
                else with_budget(estimator, self.epsilon_share, epsilon=self.epsilon)
                for estimator in fitted.values()
            )
            details = BarycenterDetails(exact, (), None, n_groups)
            return Plan(self._public_report(), details)
        budget = self._nested_budget(n_samples, fitted.values())
        estimators, costs = [], []
        for name, estimator in fitted.items():
            if isinstance(estimator, FrozenEstimator):
                estimators.append(estimator)
                continue
            estimator = within(estimator, self.epsilon_share, unit=self.unit, **budget)
            n_classes = 2 if name == "estimator" else n_groups
            cost = plan_cost(estimator, n_samples, n_classes=n_classes, **sizes)
            check_within(estimator, cost, **budget)
            estimators.append(estimator)
            costs.append(cost)
        mechanism = self._plan_mechanism(n_samples, costs)
        report = self._protected(self._counts_report(n_samples, n_groups, mechanism, costs))
        if costs:
            report = self._whole_report((*costs, report), mechanism)
        details = BarycenterDetails(tuple(estimators), tuple(costs), mechanism, n_groups)
        return Plan(report, details)

    def _release(self, plan, records, seed):
        """Return the maps, their strength, the sums of outcomes by group, and their noise scale.

        The nested fits release ``estimator_`` and ``group_estimator_``, whose scores are counted.
        The maps are post-processing of the counts; mapped outcomes are summed in a second release.
        """
        (X, y, codes), details = records, plan.details
        mechanism, n_groups = details.mechanism, details.n_groups
        if mechanism is None:
            X_fit, y_fit, codes_fit, X, codes = self._held_out(X, y, codes, seed)
        else:
            X_fit, y_fit, codes_fit = X, y, codes
        self._fit_within(details, X_fit, y_fit, codes_fit)
        if mechanism is not None:
            X, codes = self._one_row_each(X, codes, seed=seed)
        scores = self._fit_scores(X, len(codes))
        weights = self._quietly(self._group_weights, X)
        if mechanism is None:
            maps = maps_of_scores(scores, codes, n_groups)
        else:
            run, noise = mechanism.run(), self._noise_source(seed)
            counts = run.release(count_halves(scores, codes, n_groups, self.n_levels), noise)
            sizes = group_sizes(counts, n_groups, self.n_levels)
            self._warn_of_noise(sizes, self._least_size(mechanism))
            maps = maps_of_halves(counts, n_groups, self.n_levels, mechanism.noise_scales[0])
        strength = self._strength(maps)
        outcomes = self._outcomes(self._moved(maps, scores, codes, weights, strength))
        sums = outcome_sums(outcomes, codes, n_groups)
        if mechanism is None:
            return maps, strength, sums, 0.0
        return maps, strength, run.release(sums, noise), mechanism.noise_scales[1]

    def _learn(self, plan, released, seed):
        """Set the maps, and the mean outcome of each group with its interval."""
        self.maps_, self.strength_, sums, noise_scale = released
        for name in ("n_features_in_", "feature_names_in_"):
            if hasattr(self.estimator_, name):
                setattr(self, name, getattr(self.estimator_, name))
        self._set_means(mean_intervals(sums, noise_scale, self.groups_ or ["all"]))

    def _held_out(self, X, y, codes, seed):
        """Split public rows into those to fit, and the records and groups for the maps."""
        X = self._without_unit(X)
        if not self._has_unfrozen():
            return X, y, codes, X, codes
        # The scores of an overfitted estimator differ between training rows and new rows.
        is_read = not isinstance(self.estimator, FrozenEstimator)
        y = column_or_1d(y, warn=True) if is_read else np.zeros(len(codes))
        X_fit, X, y_fit, _, codes_fit, codes = train_test_split(
            X,
            y,
            codes,
            test_size=self.calibration_fraction,
            random_state=seed,
            stratify=self._strata(y),
        )
        return X_fit, y_fit, codes_fit, X, codes

    def _least_size(self, mechanism):
        """Return the group size below which noise hides the difference to other groups."""
        return first_split_noise(mechanism.noise_scales[0], self.n_levels) / _TOLERATED_NOISE

    def _nested_budget(self, n_samples, fitted):
        """Return the epsilon and the delta of each nested fit.

        Those of Gaussian noise add up in squares, so each of two fits gets 1/√2 of the share. The
        failure probabilities add up as they are.
        """
        n_fits = sum(not isinstance(estimator, FrozenEstimator) for estimator in fitted)
        return {
            "epsilon": self.epsilon_share * self.epsilon / math.sqrt(max(n_fits, 1)),
            "delta": self.epsilon_share * self._delta(n_samples) / max(n_fits, 1),
        }

    def _plan_mechanism(self, n_samples, costs):
        """Return the mechanism of counts and means, calibrated to the budget that is left."""
        if not _is_n_public(costs) and self.delta == "auto":
            raise PublicValueError(
                "delta must be a number, got 'auto': the estimator protects the number of records."
            )
        delta = self._delta(n_samples)
        if _is_n_public(costs):
            check_delta_size(delta, n_samples)
        left = self.epsilon
        if costs:
            common_guarantee(costs)
            releases = [release for cost in costs for release in cost.composable()]
            # The margin covers the rounding of the searches.
            mu = (1 - 1e-9) * self._remainder(delta, releases)
            left = GaussianProfile(mu).epsilon(delta)
        return GaussianSequenceMechanism(_SENSITIVITIES[_neighbours(costs)], _SHARES, left, delta)

    def _remainder(self, delta, releases):
        """Return the sensitivity over the noise that the nested fits leave to the counts."""
        try:
            return calibrate_remainder(self.epsilon, delta, releases)
        except PublicValueError as error:
            reason = str(error)
        raise PublicValueError(
            "epsilon_share must leave a part of epsilon and delta to the counts, got "
            f"{self.epsilon_share:g}: {reason}"
        )

    def _public_report(self):
        return PrivacyReport(
            name=type(self).__name__,
            events=(Event("exact"),),
            epsilon=math.inf,
            delta=0.0,
            noise_source="none",
            rounding=0.0,
        )

    def _counts_report(self, n_samples, n_groups, mechanism, costs):
        """Return the report of the releases of counts and means."""
        public = ["groups" if self.groups is not None else "group_set"]
        caveats = ["rowwise_estimator", "floating_point"]
        if any(isinstance(e, FrozenEstimator) for e in (self.estimator, self.group_estimator)):
            public.append("fitted_estimator")
            caveats.insert(1, "frozen_estimator")
        relation = {"neighbours": _neighbours(costs)}
        if _is_n_public(costs):
            public.insert(0, "n_samples")
        else:
            relation |= common_guarantee(costs)
        return PrivacyReport(
            name=type(self).__name__,
            events=(Event("group_counts"), Event("group_sums")),
            epsilon=mechanism.epsilon,
            delta=mechanism.delta,
            public=tuple(public),
            norm="l2",
            bounds=(Bound("one_bin"),),
            noise_source=self._noise_description(),
            caveats=tuple(caveats),
            split=dict(zip(("counts", "means by group"), _SHARES, strict=True)),
            precision=self._precision(mechanism),
            # There are counts of 2, 4, 8, ... cells in each group, and two sums.
            rounding=n_groups * 2 ** (self.n_levels + 1) * ROUNDING,
            **relation,
            **mechanism.report_fields(),
        )

    def _precision(self, mechanism):
        """Return the precision of the map and of the mean of a group, in words."""
        # If half of the outcomes are 1, the error of the mean is √½ times the noise of both sums.
        off = mechanism.noise_scales[1] * math.sqrt(0.5)
        return {
            "mean outcome of a group": f"± {off:.2g} records: ± {off / _EXAMPLE:.2g} of its range "
            f"in a group of {_EXAMPLE}, ± {10 * off / _EXAMPLE:.2g} in one of {_EXAMPLE // 10}",
            "map of a group": f"its own above about {self._least_size(mechanism):.0f} records; "
            "below that it is close to the map of all",
        }

    def _whole_report(self, parts, mechanism):
        """Return the report of the nested fits and of the releases of counts and means."""
        *fits, counts = parts
        whole = 1 / calibrate_noise_multiplier(self.epsilon, mechanism.delta)
        own = min(1.0, (1 / (counts.noise_multiplier * whole)) ** 2)
        split = {"fits of estimators": 1 - own}
        split |= {name: share * own for name, share in counts.split.items()}
        known = all(part.releases for part in parts)
        rounding = [part.rounding for part in parts]
        seeded = [part.noise_source for part in parts if part.is_seeded]
        return PrivacyReport(
            name=type(self).__name__,
            events=(Event("fits", len(fits)), *counts.events),
            epsilon=self.epsilon,
            delta=mechanism.delta,
            unit=counts.unit,
            public=_union(*(part.public for part in parts)),
            n_releases=sum(part.n_releases for part in parts),
            noise_source=[*seeded, counts.noise_source][0],
            caveats=_union(*(part.caveats for part in parts)),
            parts=parts,
            releases=tuple(release for part in parts for release in part.releases) if known else (),
            split=split,
            precision=counts.precision,
            rounding=None if None in rounding else sum(rounding),
            **common_guarantee(parts),
        )

    def _has_unfrozen(self):
        """Return whether a fit includes an estimator that is not frozen."""
        estimators = [e for e in (self.estimator, self.group_estimator) if e is not None]
        return not all(isinstance(estimator, FrozenEstimator) for estimator in estimators)

    def _fit_within(self, details, X, y, codes):
        """Set the estimators of a plan, fitted unless they are frozen, at the planned cost."""
        fitted, costs = [clone(estimator) for estimator in details.estimators], iter(details.costs)
        for estimator, is_of_groups in zip(fitted, (False, True), strict=False):
            if isinstance(estimator, FrozenEstimator):
                continue
            labels = np.array(self.groups_)[codes] if is_of_groups else y
            estimator.fit(X, column_or_1d(labels, warn=True))
            if details.mechanism is not None and differs(next(costs), fit_cost(estimator)):
                raise PublicRuntimeError(
                    f"{type(estimator).__name__} must cost what it had planned, and its fit did "
                    "not: the stated guarantee does not hold."
                )
        self.estimator_, *others = fitted
        self._check_estimator()
        if others:
            (self.group_estimator_,) = others
            self._group_columns(self.groups_ or ())

    def _group_columns(self, groups):
        """Return the group of each column of the predictions of ``group_estimator_``."""
        positions = {group: code for code, group in enumerate(groups)}
        classes = self.group_estimator_.classes_.tolist()
        if not positions.keys() >= set(classes):
            raise PublicValueError(f"The classes of group_estimator must be groups, got {classes}.")
        return [positions[label] for label in classes]

    def _group_weights(self, X):
        """Return the probability of each group for each record, or None without an estimator."""
        if not hasattr(self, "group_estimator_") or self.groups_ is None:
            return None
        predicted = np.asarray(self.group_estimator_.predict_proba(X), dtype=np.float64)
        weights = np.zeros((len(predicted), len(self.groups_)))
        weights[:, self._group_columns(self.groups_)] = predicted
        return weights

    def _quietly(self, function, X):
        """Return predictions for the records of a fit, without showing private values in errors."""
        try:
            return function(X)
        except Exception as error:  # An estimator may raise any class.
            if not math.isfinite(self.epsilon):
                raise
            kind = type(error).__name__
        raise PublicValueError(f"estimator must predict the records; it raised {kind}.")

    def _fit_scores(self, X, n_samples):
        """Return the scores of the records of a fit."""
        scores = self._quietly(self._scores, X)
        if scores.shape != (n_samples,):
            raise PublicValueError(
                f"estimator must predict one number for each record, got an array of {scores.ndim} "
                "dimensions, or of another length."
            )
        return scores

    def _group_codes(self, sensitive_features, n_samples):
        if sensitive_features is None:
            self.groups_ = None
            if self._asks_for_parity():
                warn_user(
                    "sensitive_features is absent: no prediction is changed. In a pipeline or a "
                    "search, enable metadata routing and call "
                    "set_fit_request(sensitive_features=True).",
                    UserWarning,
                )
            return np.zeros(n_samples, dtype=np.int64)
        codes, groups = check_sensitive_features(sensitive_features, n_samples, self.groups)
        check_n_groups(len(groups))
        if self.group_estimator is not None and isinstance(groups[0], tuple):
            raise PublicValueError("group_estimator needs sensitive_features of a single column.")
        self.groups_ = groups
        return codes

    def _warn_of_noise(self, sizes, least):
        """Warn of the groups that are too small, by their released sizes."""
        if self.groups_ is None:
            return
        small = [group for group, size in zip(self.groups_, sizes, strict=True) if size < least]
        if small:
            warn_user(
                f"Groups {small} have fewer records than about {least:.0f}. {_SMALL_GROUPS}",
                SmallGroupWarning,
            )

    def _strength_by_gap(self, maps, max_gap):
        """Return the least strength at which no distance of two groups exceeds ``max_gap``.

        Distances are proportional to one minus the strength.
        """
        gap = maps.largest_distance()
        return 0.0 if gap <= max_gap else 1 - max_gap / gap

    def _mapped(self, X, sensitive_features):
        check_is_fitted(self)
        X = self._without_unit(X)
        scores = self._scores(X)
        if self.groups_ is None:
            return scores
        codes, weights = None, self._group_weights(X)
        if weights is None and self._reads_groups:
            codes = self._predicted_codes(sensitive_features, len(scores))
        return self._moved(self.maps_, scores, codes, weights, self.strength_)

    def _predicted_codes(self, sensitive_features, n_samples):
        """Return the groups of records to predict."""
        if sensitive_features is None:
            raise PublicValueError(
                "sensitive_features must be given, as each group has its own map. If groups are "
                "unknown at prediction, fit with a group_estimator. A scorer of scikit-learn "
                "predicts without groups: in a search, score by "
                "sklearn_dpgen.model_selection.group_scorer, or leave scoring=None and call "
                "set_score_request(sensitive_features=True)."
            )
        return check_sensitive_features(sensitive_features, n_samples, self.groups_)[0]

    def _moved(self, maps, scores, codes, weights, strength):
        """Return scores moved by the map of their group, or by maps weighted by probabilities."""
        if weights is None:
            return maps.transport(scores, codes, strength)
        return maps.transport_mixed(scores, weights, strength)

    def __sklearn_is_fitted__(self):
        return hasattr(self, "strength_")

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.non_deterministic = self.random_state is None
        tags.input_tags = get_tags(self.estimator).input_tags
        return tags


def _widths(X):
    """Return the number of columns, and their names in a data frame, for the nested plans."""
    rule = "X must be a table, or rows of one length."
    shape = X.shape if hasattr(X, "shape") else call_quietly(rule, np.shape, X)
    names = list(X.columns) if hasattr(X, "columns") else None
    return {"n_features": shape[1] if len(shape) == 2 else None, "columns": names}


def check_n_groups(n_groups):
    """Raise an error if there are too many groups to compare all pairs."""
    if n_groups > _MOST_GROUPS:
        raise PublicValueError(
            f"sensitive_features must have at most {_MOST_GROUPS} groups, got {n_groups}. Bin "
            "numbers by public edges first."
        )


def _union(*sequences):
    """Return the ordered union of the sequences."""
    return tuple(dict.fromkeys(item for sequence in sequences for item in sequence))


def _is_n_public(costs):
    return all(Public.N_SAMPLES in cost.public for cost in costs)


def _neighbours(costs):
    """Return the neighbouring relation that the nested fits share."""
    is_added = not _is_n_public(costs) and all(c.neighbours == "add_or_remove" for c in costs)
    return "add_or_remove" if is_added else "replace_one"


def with_budget(estimator, share, **budget):
    """Return a clone with the budget of a nested fit.

    Parameters
    ----------
    estimator : estimator
    share : float
        The ``epsilon_share`` of the outer estimator, for errors.
    **budget
        The ``epsilon`` of its private part, and its ``delta`` unless ``epsilon`` is infinite.

    Returns
    -------
    estimator

    Raises
    ------
    PublicValueError
        The estimator has a budget of its own, which would not be used.
    """
    estimator = clone(estimator)
    last = steps_of(estimator)[-1]
    for name in ("epsilon", "delta"):
        for key in private_parameters(last, name):
            given = last.get_params()[key]
            unset = default_of(last, key)
            if unset is not inspect.Parameter.empty and given != unset:
                raise PublicValueError(
                    f"{key} of {type(last).__name__} must be left unset within an estimator whose "
                    f"epsilon_share determines it, here {share:g} of epsilon and delta; got "
                    f"{given!r}."
                )
            if name in budget:
                last.set_params(**{key: budget[name]})
    return estimator


def default_of(estimator, key):
    """Return the default of a parameter, as ``sampler__epsilon``, of the class that has it."""
    owner, _, name = key.rpartition("__")
    part = estimator.get_params()[owner] if owner else estimator
    return inspect.signature(type(part)).parameters[name].default


def within(estimator, share, *, unit=None, **budget):
    """Return a clone to fit within another estimator, if its fit is private.

    Parameters
    ----------
    estimator : estimator
        A private estimator, or a pipeline of steps that learn nothing and a private one.
    share : float
        The ``epsilon_share`` of the outer estimator, for errors.
    unit : str or None
        Column of the protected persons, in the outer and so in this estimator.
    **budget
        The ``epsilon`` and ``delta`` of the fit of this estimator.

    Returns
    -------
    estimator

    Raises
    ------
    PublicValueError
        The estimator is not private, or has its own budget, ledger or unit.
    """
    check_steps(estimator)
    if not isinstance(steps_of(estimator)[-1], PrivateEstimator):
        raise PublicValueError(
            "estimator must be private, with a report privacy_, got "
            f"{type(steps_of(estimator)[-1]).__name__}. "
            "Wrap it in SyntheticDataClassifier or SyntheticDataRegressor; or fit it on public "
            "rows and wrap it in sklearn.frozen.FrozenEstimator; or use epsilon=np.inf for "
            "public rows."
        )
    estimator = with_budget(estimator, share, **budget)
    *before, last = steps_of(estimator)
    params = effective_parameters(last)
    booked = [k for k, v in params.items() if k.split("__")[-1] == "ledger" and v is not None]
    if booked:
        raise PublicValueError(
            f"{type(last).__name__} must have no ledger, got {booked}: it would not be charged "
            "for the other releases. Give the ledger to the outer estimator alone."
        )
    units = {v for k, v in params.items() if k.split("__")[-1] == "unit" and v is not None}
    if units - {unit}:
        raise PublicValueError(
            f"{type(last).__name__} must have no unit of its own, got {sorted(units)[0]!r}: give "
            "unit to the outer estimator."
        )
    if unit is not None:
        if before:
            raise PublicValueError(
                "unit needs an estimator that reads its column, which a pipeline removes: give "
                "the last step alone."
            )
        if not units:
            last.set_params(unit=unit)
    return estimator


def check_within(estimator, cost, *, epsilon, delta):
    """Raise an error if the plan of a nested fit costs more than its budget."""
    last = steps_of(estimator)[-1]
    if private_parameters(last, "epsilon") and (cost.epsilon > epsilon or cost.delta > delta):
        raise PublicValueError(
            f"{type(last).__name__} must cost at most its share, epsilon {epsilon:g} and delta "
            f"{delta:.3g}; it plans {cost.epsilon:g} and {cost.delta:.3g}."
        )


def fit_cost(estimator):
    """Return the PrivacyReport of a fit."""
    return steps_of(estimator)[-1].privacy_


def differs(plan, report):
    """Return whether the cost of a fit differs from its plan."""
    names = ("epsilon", "delta", "neighbours", "unit", "releases")
    return any(getattr(plan, name) != getattr(report, name) for name in names)
