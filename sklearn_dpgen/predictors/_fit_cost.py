"""What the fit of an estimator within another one costs, known before."""

import inspect

from sklearn.base import clone
from sklearn.pipeline import Pipeline

from sklearn_dpgen.ledger._base import PrivateEstimator
from sklearn_dpgen.preprocessing import TabularEncoder

__all__ = ["differs", "fit_cost", "plan_cost", "within"]


def within(estimator, epsilon, *, unit=None):
    """Return a clone to be fitted within another estimator, or refuse one that is not paid for.

    Parameters
    ----------
    estimator : estimator
        Private, or a pipeline of TabularEncoders and a private one.
    epsilon : float
        The whole budget.
    unit : str or None
        Who is protected by the whole, and so by this one.

    Returns
    -------
    estimator

    Raises
    ------
    ValueError
    """
    estimator = clone(estimator)
    *before, last = _steps(estimator)
    unpaid = [
        type(step).__name__
        for step in before
        if step != "passthrough" and not isinstance(step, TabularEncoder)
    ]
    if unpaid:
        raise ValueError(
            f"estimator has steps that may learn from private records, unpaid: {unpaid}. Scale by "
            "public bounds, with a TabularEncoder."
        )
    if not isinstance(last, PrivateEstimator):
        raise ValueError(
            f"estimator must be private, with a report privacy_: {type(last).__name__} is not. "
            "Wrap it in SyntheticDataClassifier or SyntheticDataRegressor; or fit it on public "
            "rows and wrap it in sklearn.frozen.FrozenEstimator; or take epsilon=np.inf for "
            "public rows."
        )
    params = last.get_params()
    own = params.get("epsilon", params.get("sampler__epsilon", 0.0))
    if own >= epsilon:
        raise ValueError(
            f"epsilon must be more than the {own:g} that {type(last).__name__} takes of it, got "
            f"{epsilon:g}."
        )
    booked = [k for k, v in params.items() if k.split("__")[-1] == "ledger" and v is not None]
    if booked:
        raise ValueError(
            f"{type(last).__name__} has a ledger of its own, {booked}, which would not see what "
            "the whole releases besides. Give it to the outer estimator alone."
        )
    units = {v for k, v in params.items() if k.split("__")[-1] == "unit" and v is not None}
    if units - {unit}:
        raise ValueError(
            f"{type(last).__name__} protects unit {sorted(units)[0]!r}, and the whole would not: "
            "give unit to the outer estimator."
        )
    if unit is not None:
        if before:
            raise ValueError(
                "unit needs an estimator that reads its column, and a pipeline takes it away: give "
                "the last step alone."
            )
        if not units:
            last.set_params(unit=unit)
    return estimator


def plan_cost(estimator, n_samples, **sizes):
    """Return the PrivacyReport that the fit of an estimator will have.

    Parameters
    ----------
    estimator : estimator
        As of :func:`within`.
    n_samples : int
        Number of records.
    **sizes
        What is public beside, of which a plan takes what it asks for; None is not known.

    Returns
    -------
    PrivacyReport
    """
    *before, last = _steps(estimator)
    for step in before:
        if step != "passthrough":
            sizes |= {"n_features": clone(step).fit().domain_.n_features, "columns": None}
    wanted = inspect.signature(last.plan).parameters
    given = {k: v for k, v in sizes.items() if k in wanted and v is not None}
    return last.plan(n_samples, **given)


def fit_cost(estimator):
    """Return the PrivacyReport of a fit."""
    return _steps(estimator)[-1].privacy_


def differs(plan, report):
    """Return whether a fit cost other than what was planned."""
    names = ("epsilon", "delta", "neighbours", "unit", "releases")
    return any(getattr(plan, name) != getattr(report, name) for name in names)


def _steps(estimator):
    if isinstance(estimator, Pipeline):
        return [step for _, step in estimator.steps]
    return [estimator]
