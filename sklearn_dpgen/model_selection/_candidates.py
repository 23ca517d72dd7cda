"""Candidates of a private search: their parameters, and the budget of each."""

import functools
import inspect
import warnings
from collections.abc import Sequence

import numpy as np
import sklearn
from sklearn.base import clone
from sklearn.model_selection import ParameterSampler
from sklearn.pipeline import Pipeline

from sklearn_dpgen.accounting import GaussianProfile
from sklearn_dpgen.accounting._composition import dominating_gaussian
from sklearn_dpgen.accounting._profiles import smallest_passing
from sklearn_dpgen.exceptions import PublicTypeError, PublicValueError
from sklearn_dpgen.ledger._base import PrivateEstimator, effective_parameters
from sklearn_dpgen.preprocessing._steps import check_steps, plan_cost, private_parameters
from sklearn_dpgen.utils._groups import last_step, takes_groups
from sklearn_dpgen.utils._validation import Real, named_parameters

__all__ = [
    "calibrated",
    "check_declared_groups",
    "check_distributions",
    "check_groups_are_given",
    "check_neighbours",
    "check_relation",
    "check_units",
    "draw_parameters",
    "estimator_plan",
    "fitted",
    "is_as_planned",
    "protected_unit",
    "seeded",
    "state_price",
]

# Parameters that the search sets in every part of a candidate: callbacks and progress bars would
# reveal all candidates and their number.
_TAKEN_AWAY = {"ledger": None, "callback": None, "verbose": False}
_SET_BY_THE_SEARCH = ("epsilon", "delta", "random_state", "neighbours", "unit", *_TAKEN_AWAY)
# Relative tolerance of the calibration of a candidate to the noise of a run.
_RTOL = 2e-3


def draw_parameters(distributions, noise):
    """Return parameters from their public distributions, independent of all earlier draws.

    Each draw has a seed of its own. With a generator shared by several runs, its state would
    reveal which run won, and so the number of runs. Objects with parameters are copied for the
    same reason: a nested parameter that one run sets on them must not remain in another.
    """
    seed = int(noise.integers(2**32, 1)[0])
    drawn = next(iter(ParameterSampler(distributions, 1, random_state=seed)))
    return {name: clone(value, safe=False) for name, value in drawn.items()}


def check_distributions(distributions, fixed=()):
    """Raise an error if the distributions hold parameters that the search sets, or fixed ones."""
    names = {name for space in _spaces(distributions) for name in space}
    taken = sorted(name for name in names if name.rpartition("__")[2] in _SET_BY_THE_SEARCH)
    if taken:
        raise PublicValueError(
            f"param_distributions must not hold what the search sets, got {taken}."
        )
    for name in sorted(names & {*fixed}):
        raise PublicValueError(
            f"param_distributions must not hold {name!r}, by which records are split."
        )
    ParameterSampler(distributions, 1)


def _spaces(distributions):
    return [distributions] if isinstance(distributions, dict) else list(distributions)


def protected_unit(estimator):
    """Return the name of the column that identifies persons, or None.

    The unit may be that of a part of the estimator, such as the sampler of a predictor.
    """
    given = effective_parameters(estimator)
    units = {given[name] for name in named_parameters(estimator, "unit")} - {None}
    if len(units) > 1:
        raise PublicValueError(f"estimator must have one unit, got {sorted(units)}.")
    return max(units, default=None)


def check_units(estimator, distributions):
    """Raise an error if a schema to search over declares another unit than the estimator has."""
    for space in _spaces(distributions):
        names = space.keys() & {*named_parameters(estimator, "schema")}
        # Others are distributions, which have no list of values.
        values = [(n, value) for n in names if isinstance(space[n], Sequence) for value in space[n]]
        for name, schema in values:
            unit = protected_unit(clone(estimator).set_params(**{name: schema}))
            if unit != protected_unit(estimator):
                raise PublicValueError(
                    f"param_distributions must have no {name} with another unit than the "
                    f"estimator, {protected_unit(estimator)!r}, got {unit!r}: records are split "
                    "by it."
                )


def check_neighbours(estimator):
    """Raise an error if an estimator takes the number of records to be private, before it is read.

    The plan of an estimator has the same check, but it follows from the number.
    """
    given = estimator.get_params()
    for name in named_parameters(estimator, "neighbours"):
        if given[name] == "add_or_remove":
            raise _wrong_neighbours(estimator, given[name])


def check_groups_are_given(estimator, by_group):
    """Raise an error if an estimator gets groups that it does not take, or lacks those it compares.

    A fit without groups would have no penalty, and its warning would not be shown.
    """
    last = last_step(estimator)
    if by_group and not takes_groups(estimator, "fit"):
        raise PublicValueError(
            f"sensitive_features must be None: the fit of {type(last).__name__} does not take them."
        )
    alpha = getattr(last, "alpha", None)
    has_no_penalty = isinstance(alpha, Real) and alpha == 0
    if not by_group and takes_groups(estimator, "fit") and not has_no_penalty:
        raise PublicValueError(
            f"sensitive_features must be given: {type(last).__name__} compares groups, and a run "
            "without them would have no penalty. In a pipeline or a search, enable metadata "
            "routing and call set_fit_request(sensitive_features=True)."
        )


def protects_groups(estimator):
    """Return whether an estimator, or the last step of a pipeline, protects groups of records."""
    return getattr(last_step(estimator), "_protects_groups", False)


def check_declared_groups(estimator):
    """Return the declared groups of an estimator, or None if it protects their sizes."""
    last = last_step(estimator)
    name = type(last).__name__
    if getattr(last, "groups", None) is None:
        raise PublicValueError(
            f"groups of {name} must be declared for a search with sensitive_features, as a part "
            "of the records may lack a group."
        )
    if protects_groups(last):
        return None
    if getattr(last, "penalty", None) == "equalized_odds":
        raise PublicValueError(
            "penalty must be 'demographic_parity' in a search without protect_groups=True, got "
            "'equalized_odds': records are split within groups, not within groups and labels."
        )
    return last.groups if "group_sizes" in inspect.signature(last.plan).parameters else None


def _wrong_neighbours(estimator, neighbours):
    return PublicValueError(
        "estimator must protect against the replacement of a record, as the number of scored "
        f"records is public, got {type(estimator).__name__} with '{neighbours}'."
    )


def calibrated(estimator, parameters, run, *, random_state, **sizes):
    """Return a candidate with the largest budget that the Gaussian mechanism of a run dominates.

    Parameters
    ----------
    estimator : private estimator
    parameters : dict
    run : FailingGaussianProfile or None
        Profile that dominates one run; None gives candidates without noise.
    random_state : int or None
        Seed of the candidate.
    **sizes
        Public sizes of a fit: ``n_samples``, and others that a plan may need.

    Returns
    -------
    candidate : estimator
        Unfitted.
    plan : PrivacyReport

    Raises
    ------
    PublicTypeError, PublicValueError
        The estimator has no ``epsilon``, or no budget is small enough.
    """
    candidate = seeded(estimator, random_state).set_params(**parameters)
    # Records are split once, so all candidates protect what the estimator protects. Parameters may
    # have replaced a step.
    if getattr(last_step(candidate), "protect_groups", None) == "auto":
        last_step(candidate).set_params(protect_groups=protects_groups(estimator))
    for name, value in _TAKEN_AWAY.items():
        candidate.set_params(**dict.fromkeys(named_parameters(candidate, name), value))
    budgets = private_parameters(candidate, "epsilon")
    if not budgets:
        kind = type(last_step(candidate)).__name__
        raise PublicValueError(f"estimator must be private, with an epsilon, got {kind}.")

    def plan(epsilon):
        candidate.set_params(**dict.fromkeys(budgets, epsilon))
        with warnings.catch_warnings():
            # Warnings would concern budgets that are only tried, and reveal the number of runs.
            warnings.simplefilter("ignore")
            return estimator_plan(candidate, **sizes)

    if run is None:
        return candidate, plan(np.inf)
    delta = run.delta0 / 2
    candidate.set_params(**dict.fromkeys(private_parameters(candidate, "delta"), delta))
    # The largest budget of a fit whose releases are Gaussian.
    whole = GaussianProfile(run.mu * (1 - _RTOL / 2)).epsilon(delta)
    report = plan(whole)
    if not is_dominated(report, run, at_least=1 - _RTOL):
        try:
            factor = smallest_passing(lambda f: is_dominated(plan(whole / f), run), 1.0, rtol=_RTOL)
        except (OverflowError, ValueError):
            factor = None
        if factor is None:
            raise PublicValueError(
                f"{type(candidate).__name__} must have a budget that a run of the search covers; "
                f"none is small enough with {parameters}."
            )
        report = plan(whole / factor)
    return candidate, report


def check_relation(plan, report, parameters):
    """Raise an error if the report of a search does not state the relation of a candidate.

    Nor may a candidate have a public table that the report does not name.
    """
    if plan.relation != report.relation:
        raise PublicValueError(
            f"param_distributions must not change the neighbouring relation, got {parameters} with "
            f"{plan.neighbouring!r}, but {report.neighbouring!r} of the estimator."
        )
    if not plan.public_tables.items() <= report.public_tables.items():
        raise PublicValueError(
            "param_distributions must have no other public table than the estimator: set it there, "
            "and search over it and None."
        )


def seeded(candidate, random_state):
    """Return an unfitted copy; all its parts have a seed of their own, or None."""
    seeds = dict.fromkeys(named_parameters(candidate, "random_state"), random_state)
    return clone(candidate).set_params(**seeds)


def is_as_planned(report, plan, run):
    """Return whether a fit has the relation of its plan, and at most its cost or that of a run.

    The report of a fit may differ from its plan, for example by public labels.
    """
    if run is None:
        return True
    if report.relation != plan.relation:
        return False
    same = report.composable() == plan.composable()
    return same or is_dominated(report, run)


def is_dominated(report, run, *, at_least=0.0):
    """Return whether the profile of a run dominates that of a plan, and at what ratio at least.

    Parameters
    ----------
    report : PrivacyReport
    run : FailingGaussianProfile
    at_least : float, default=0.0
        Smallest allowed ratio of the μ of the plan to the μ of the run.
    """
    cost = _cost(tuple(report.composable()), run.delta0)
    share = np.sqrt(cost.amount) / run.mu
    return bool(cost.delta <= run.delta0 and at_least <= share <= 1)


@functools.lru_cache(maxsize=2048)
def _cost(releases, delta):
    """Compute once for plans with the same releases: parameters of many candidates cost nothing."""
    return dominating_gaussian(releases, delta)


def state_price(estimator, report):
    """Set the report of the search on an estimator and its parts, which had the one of a run."""
    estimator.privacy_ = report
    for part in map(last_step, vars(estimator).values()):
        if isinstance(part, PrivateEstimator) and hasattr(part, "privacy_"):
            state_price(part, report)


def fitted(candidate, X, y, sensitive_features=None):
    """Fit a candidate, or a pipeline whose last step gets the groups, and return it."""
    records = (X,) if y is None else (X, y)
    if sensitive_features is None:
        return candidate.fit(*records)
    name = "sensitive_features"
    if isinstance(candidate, Pipeline):
        name = f"{candidate.steps[-1][0]}__{name}"
    # Without routing a pipeline passes parameters by the name of a step, whatever it requests.
    with sklearn.config_context(enable_metadata_routing=False):
        return candidate.fit(*records, **{name: sensitive_features})


def estimator_plan(candidate, **sizes):
    """Return the plan of a fit, if the search can account for it.

    Parameters
    ----------
    candidate : estimator
    **sizes
        Public sizes of a fit: ``n_samples``, and others that a plan may need.

    Raises
    ------
    PublicTypeError
        The estimator is not private.
    PublicValueError
        Its neighbouring relation is not the replacement of a record, or a step before the last one
        of a pipeline may learn from private records.
    """
    check_steps(candidate)
    if not isinstance(last_step(candidate), PrivateEstimator):
        raise PublicTypeError(
            f"estimator must be private, with a plan, got {type(last_step(candidate)).__name__}. "
            "Wrap it in SyntheticDataClassifier or SyntheticDataRegressor."
        )
    report = plan_cost(candidate, **sizes)
    if report.neighbours != "replace_one":
        raise _wrong_neighbours(candidate, report.neighbours)
    return report
