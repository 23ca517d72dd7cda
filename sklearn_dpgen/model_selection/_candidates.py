"""Candidates of a private search: their parameters, and the budget of each."""

import warnings

import numpy as np
from sklearn.base import clone
from sklearn.model_selection import ParameterSampler

from sklearn_dpgen.accounting import GaussianProfile
from sklearn_dpgen.accounting._composition import dominating_gaussian
from sklearn_dpgen.accounting._profiles import smallest_passing
from sklearn_dpgen.exceptions import PublicTypeError, PublicValueError
from sklearn_dpgen.ledger._base import PrivateEstimator
from sklearn_dpgen.utils._validation import named_parameters, outermost_parameters

__all__ = [
    "calibrated",
    "check_distributions",
    "check_neighbours",
    "check_relation",
    "draw_parameters",
    "is_as_planned",
    "seeded",
    "state_price",
]

# Parameters that the search sets in every part of a candidate: callbacks and progress bars would
# reveal all candidates and their number.
_TAKEN_AWAY = {"ledger": None, "callback": None, "verbose": 0}
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
    spaces = [distributions] if isinstance(distributions, dict) else list(distributions)
    names = {name for space in spaces for name in space}
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


def check_neighbours(estimator):
    """Raise an error if an estimator takes the number of records to be private, before it is read.

    The plan of an estimator has the same check, but it follows from the number.
    """
    given = estimator.get_params()
    for name in named_parameters(estimator, "neighbours"):
        if given[name] == "add_or_remove":
            raise _wrong_neighbours(estimator, given[name])


def _wrong_neighbours(estimator, neighbours):
    return PublicValueError(
        "estimator must protect against the replacement of a record, as the number of scored "
        f"records is public, got {type(estimator).__name__} with '{neighbours}'."
    )


def calibrated(estimator, parameters, run, n_samples, n_features, *, random_state):
    """Return a candidate with the largest budget that the Gaussian mechanism of a run dominates.

    Parameters
    ----------
    estimator : private estimator
    parameters : dict
    run : FailingGaussianProfile or None
        Profile that dominates one run; None gives candidates without noise.
    n_samples, n_features : int
        Public numbers of records and columns of a fit.
    random_state : int or None
        Seed of the candidate.

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
    for name, value in _TAKEN_AWAY.items():
        candidate.set_params(**dict.fromkeys(named_parameters(candidate, name), value))
    budgets = outermost_parameters(candidate, "epsilon")
    if not budgets:
        raise PublicValueError(f"estimator must have an epsilon, got {type(candidate).__name__}.")

    def plan(epsilon):
        candidate.set_params(**dict.fromkeys(budgets, epsilon))
        with warnings.catch_warnings():
            # Warnings would concern budgets that are only tried, and reveal the number of runs.
            warnings.simplefilter("ignore")
            return estimator_plan(candidate, n_samples, n_features)

    if run is None:
        return candidate, plan(np.inf)
    delta = run.delta0 / 2
    candidate.set_params(**dict.fromkeys(outermost_parameters(candidate, "delta"), delta))
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
    cost = dominating_gaussian(report.composable(), run.delta0)
    share = np.sqrt(cost.amount) / run.mu
    return bool(cost.delta <= run.delta0 and at_least <= share <= 1)


def state_price(estimator, report):
    """Set the report of the search on an estimator and its parts, which had the one of a run."""
    estimator.privacy_ = report
    for part in vars(estimator).values():
        if isinstance(part, PrivateEstimator) and hasattr(part, "privacy_"):
            state_price(part, report)


def estimator_plan(candidate, n_samples, n_features):
    """Return the plan of a fit, if the search can account for it.

    Raises
    ------
    PublicTypeError
        The estimator is not private.
    PublicValueError
        Its neighbouring relation is not the replacement of a record.
    """
    if not isinstance(candidate, PrivateEstimator):
        raise PublicTypeError(
            f"estimator must be private, with a plan, got {type(candidate).__name__}. Wrap it in "
            "SyntheticDataClassifier or SyntheticDataRegressor."
        )
    report = candidate.plan(n_samples=n_samples, n_features=n_features)
    if report.neighbours != "replace_one":
        raise _wrong_neighbours(candidate, report.neighbours)
    return report
