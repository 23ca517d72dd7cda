"""Fitted estimators as kinds: their parameters, and the state that they sample and predict from."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial

from sklearn_dpgen.ledger._base import PrivateEstimator
from sklearn_dpgen.persistence._hints import check_fields
from sklearn_dpgen.persistence._kinds import Kind

__all__ = ["State", "estimator_kind"]

# Parameters of a fit that tell of who fitted, and where: they are saved as None.
NOT_SAVED = {
    "random_state": "A seed voids the guarantee for whoever knows it.",
    "ledger": "It is a file of whoever has the records, or the path of one.",
}


@dataclass(frozen=True)
class State:
    """What is saved of a fitted estimator besides its parameters.

    Parameters
    ----------
    hints : mapping of str to hint
        What each attribute must be.
    check : callable or None
        Raises InvalidFileError for an estimator whose attributes do not fit each other. It may
        set those that follow from others.
    left_out : mapping of str to str
        Attributes of a fit that are not saved, and why not.
    """

    hints: Mapping
    check: Callable | None = None
    left_out: Mapping[str, str] = field(default_factory=dict)


def estimator_kind(kind: type[PrivateEstimator], state: State) -> Kind:
    """Return the kind of an estimator, fitted or not."""
    return Kind(kind, partial(_describe, state), partial(_build, kind, state))


def _describe(state, estimator):
    parameters = estimator.get_params(deep=False)
    parameters |= dict.fromkeys(NOT_SAVED.keys() & parameters.keys())
    held = vars(estimator)
    return parameters | {name: held[name] for name in state.hints if name in held}


def _build(kind, state, found):
    names = kind._get_param_names()
    estimator = kind(**{name: found.pop(name) for name in names if name in found})
    estimator.set_params(**dict.fromkeys(NOT_SAVED.keys() & set(names)))
    estimator._validate_params()
    if found:
        check_fields(found, state.hints, kind.__name__)
        vars(estimator).update(found)
        if state.check is not None:
            state.check(estimator)
    return estimator
