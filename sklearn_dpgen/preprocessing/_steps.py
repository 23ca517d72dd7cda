"""Pipelines that end in a private estimator: their free steps, and their price."""

import inspect

from sklearn.base import clone
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import Binarizer, Normalizer

from sklearn_dpgen.exceptions import PublicValueError
from sklearn_dpgen.ledger._base import PrivateEstimator
from sklearn_dpgen.preprocessing._tabular import TabularEncoder
from sklearn_dpgen.utils._validation import outermost_parameters

__all__ = ["check_steps", "plan_cost", "private_parameters", "steps_of"]

# Steps that learn from public declarations or nothing, and map each row by itself.
_FREE_STEPS = (TabularEncoder, Binarizer, Normalizer)


def check_steps(estimator):
    """Raise an error if a step of a pipeline before the last may learn from private records."""
    if not isinstance(estimator, Pipeline):
        return
    unpaid = {
        name: type(step).__name__
        for name, step in estimator.steps[:-1]
        if step not in ("passthrough", None) and type(step) not in _FREE_STEPS
    }
    if unpaid:
        steps = ", ".join(f"{name!r} ({kind})" for name, kind in unpaid.items())
        allowed = ", ".join(kind.__name__ for kind in _FREE_STEPS)
        mixes = " A FunctionTransformer may mix rows." * ("FunctionTransformer" in unpaid.values())
        raise PublicValueError(
            "estimator must have no step that learns from private records without a budget, got "
            f"{steps}.{mixes} Scale by public bounds, with a TabularEncoder; steps may be of "
            f"{allowed}."
        )


def plan_cost(estimator, n_samples, **sizes):
    """Return the PrivacyReport that a fit will have.

    Parameters
    ----------
    estimator : estimator
        A private estimator, or a pipeline of free steps and a private one.
    n_samples : int
        Number of records.
    **sizes
        Other public sizes; the plan gets those among its parameters that are not None.

    Returns
    -------
    PrivacyReport
    """
    *before, last = steps_of(estimator)
    for step in before:
        if step not in ("passthrough", None):
            sizes["columns"] = None
        if isinstance(step, TabularEncoder):
            sizes["n_features"] = clone(step).fit().domain_.n_features
    wanted = inspect.signature(last.plan).parameters
    given = {k: v for k, v in sizes.items() if k in wanted and v is not None}
    return last.plan(n_samples, **given)


def steps_of(estimator):
    """Return the steps of a pipeline, or the estimator alone."""
    if isinstance(estimator, Pipeline):
        return [step for _, step in estimator.steps]
    return [estimator]


def private_parameters(estimator, name):
    """Return the parameters of a name of the outermost private parts, as sampler__epsilon.

    The budget of a private part determines those of the parts within it. A part that is not
    private may have a parameter of the same name, as scikit-learn's HuberRegressor has an epsilon.
    """
    return outermost_parameters(estimator, name, PrivateEstimator)
