"""What the fit of a barycentre estimator costs, with the fits within it, before any of them."""

import math
from dataclasses import dataclass

from sklearn.frozen import FrozenEstimator

from sklearn_dpgen.accounting import (
    Bound,
    Event,
    GaussianProfile,
    PrivacyReport,
    Public,
    calibrate_noise_multiplier,
    calibrate_remainder,
    check_delta_size,
)
from sklearn_dpgen.accounting._checks import check_count
from sklearn_dpgen.accounting._guarantee import common_guarantee
from sklearn_dpgen.exceptions import SmallGroupWarning
from sklearn_dpgen.mechanisms import GaussianSequenceMechanism
from sklearn_dpgen.predictors._fit_cost import plan_cost, within
from sklearn_dpgen.predictors._group_laws import first_split_noise
from sklearn_dpgen.utils._groups import check_groups
from sklearn_dpgen.utils._random import ROUNDING
from sklearn_dpgen.utils._validation import EstimatorMixin, fit_context, warn_user

__all__ = ["SMALL_GROUPS", "BarycenterPlan", "BarycenterPlanMixin", "check_n_groups"]

SMALL_GROUPS = (
    "Below that, noise hides how predictions for a group differ from those for all, and they may "
    "be moved as all are. Raise epsilon, leave more of it to the counts, or merge groups."
)

# What a record adds to a vector has norm 1 and no negative entry. A record that is replaced takes
# one such vector away and adds another.
_SENSITIVITIES = {"replace_one": math.sqrt(2), "add_or_remove": 1.0}
# Of what the estimator leaves of the budget: of the counts for the maps, and of the means.
_SHARES = (0.85, 0.15)
# In the rate of a group, of the noise in how many of its scores are above 1/2.
_TOLERATED_NOISE = 0.1
# Distances are of all pairs.
_MOST_GROUPS = 200
# Of a group that precision is told for.
_EXAMPLE = 1000


@dataclass(frozen=True)
class BarycenterPlan:
    """What a fit will do: the estimators that it fits, its own releases, and what all of it costs.

    Parameters
    ----------
    estimators : tuple of estimator
        Clones, to be fitted; of the target, then of the groups.
    costs : tuple of PrivacyReport
        Of their fits; none without noise.
    mechanism : GaussianSequenceMechanism or None
        Of the counts, then of the means; None without noise.
    report : PrivacyReport
    """

    estimators: tuple
    costs: tuple[PrivacyReport, ...]
    mechanism: GaussianSequenceMechanism | None
    report: PrivacyReport


class BarycenterPlanMixin(EstimatorMixin):
    """The plan of the estimators whose scores are moved group by group."""

    @fit_context(prefer_skip_nested_validation=False)
    def plan(
        self,
        n_samples: int,
        n_features: int | None = None,
        *,
        n_groups: int | None = None,
        columns: list | None = None,
    ) -> PrivacyReport:
        """Return the privacy report of a fit on a number of records, before any is read.

        Parameters
        ----------
        n_samples : int
            Number of records, or with ``unit`` of persons.
        n_features : int or None, default=None
            Number of features, where the estimator within needs it for its plan.
        n_groups : int or None, default=None
            Number of groups; 1 is a fit without sensitive features. None is that of ``groups``,
            or 2.
        columns : list of str or None, default=None
            Names of the columns of X, where the estimator within reads a schema. None is all of
            the schema but the target.

        Returns
        -------
        PrivacyReport
            Equal to ``privacy_`` of a fit, with the fits within it and what noise leaves of the
            rates.

        Raises
        ------
        ValueError
            What ``fit`` would refuse: an estimator without a price, or one that leaves nothing of
            the budget.

        Warns
        -----
        SmallGroupWarning
            Where even groups of one size would be too small.
        """
        n_samples = check_count(n_samples, "n_samples")
        if n_groups is None:
            n_groups = 2 if self.groups is None else len(check_groups(self.groups))
        n_groups = check_count(n_groups, "n_groups")
        plan = self._planned(n_samples, n_groups, n_features=n_features, columns=columns)
        if plan.mechanism is not None and n_groups > 1:
            least = self._least_size(plan.mechanism)
            if n_samples < n_groups * least:
                warn_user(
                    f"Of {n_groups} groups one at least has fewer records than about {least:.0f}. "
                    f"{SMALL_GROUPS}",
                    SmallGroupWarning,
                )
        return plan.report

    def _planned(self, n_samples, n_groups, **sizes):
        """Plan all that a fit pays for; the sizes are those that plans within ask for."""
        check_n_groups(n_groups)
        fitted = {"estimator": self.estimator}
        if n_groups > 1 and self.group_estimator is not None:
            fitted["group_estimator"] = self.group_estimator
        if math.isinf(self.epsilon):
            return BarycenterPlan(tuple(fitted.values()), (), None, self._public_report())
        estimators, costs = [], []
        for name, estimator in fitted.items():
            if isinstance(estimator, FrozenEstimator):
                estimators.append(estimator)
                continue
            estimator = within(estimator, self.epsilon, unit=self.unit)
            n_classes = 2 if name == "estimator" else n_groups
            estimators.append(estimator)
            costs.append(plan_cost(estimator, n_samples, n_classes=n_classes, **sizes))
        mechanism = self._plan_mechanism(n_samples, costs)
        report = self._protected(self._counts_report(n_samples, n_groups, mechanism, costs))
        if costs:
            report = self._whole_report((*costs, report), mechanism)
        return BarycenterPlan(tuple(estimators), tuple(costs), mechanism, report)

    def _least_size(self, mechanism):
        """Return the number of records of a group below which noise hides how it differs."""
        return first_split_noise(mechanism.noise_scales[0], self.n_levels) / _TOLERATED_NOISE

    def _plan_mechanism(self, n_samples, costs):
        """Spend on counts and on means what the estimators have left of the budget."""
        if not _is_n_public(costs) and self.delta == "auto":
            raise ValueError(
                "delta must be a number where the number of records is not public, as the "
                "estimator has it; got 'auto'."
            )
        delta = self._delta(n_samples)
        if _is_n_public(costs):
            check_delta_size(delta, n_samples)
        left = self.epsilon
        if costs:
            common_guarantee(costs)
            releases = [release for cost in costs for release in cost.composable()]
            # What the searches below round stays within what is left.
            mu = (1 - 1e-9) * calibrate_remainder(left, delta, releases)
            left = GaussianProfile(mu).epsilon(delta)
        return GaussianSequenceMechanism(_SENSITIVITIES[_neighbours(costs)], _SHARES, left, delta)

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
        """Return the report of the releases that are made here."""
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
            # Counts of 2, 4, 8, ... cells a group, and two sums.
            rounding=n_groups * 2 ** (self.n_levels + 1) * ROUNDING,
            **relation,
            **mechanism.report_fields(),
        )

    def _precision(self, mechanism):
        """Return what noise leaves of a group, in words."""
        # Where one half of the outcomes are 1, the mean is off by √½ of the noise on both sums.
        off = mechanism.noise_scales[1] * math.sqrt(0.5)
        return {
            "mean outcome of a group": f"± {off:.2g} records: ± {off / _EXAMPLE:.2g} of its range "
            f"in a group of {_EXAMPLE}, ± {10 * off / _EXAMPLE:.2g} in one of {_EXAMPLE // 10}",
            "map of a group": f"its own above about {self._least_size(mechanism):.0f} records; "
            "below that much as that of all",
        }

    def _whole_report(self, parts, mechanism):
        """Return the report of fits within, then of the releases that are made here."""
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


def check_n_groups(n_groups):
    """Refuse more groups than pairs of them are compared."""
    if n_groups > _MOST_GROUPS:
        raise ValueError(
            f"sensitive_features has {n_groups} groups, more than {_MOST_GROUPS}: bin numbers by "
            "public edges first."
        )


def _union(*sequences):
    """Return what is in any of some sequences, once and in order."""
    return tuple(dict.fromkeys(item for sequence in sequences for item in sequence))


def _is_n_public(costs):
    return all(Public.N_SAMPLES in cost.public for cost in costs)


def _neighbours(costs):
    """Return the kind of neighbours that the fits within, if any, all have."""
    is_added = not _is_n_public(costs) and all(c.neighbours == "add_or_remove" for c in costs)
    return "add_or_remove" if is_added else "replace_one"
