"""The one place that touches scikit-learn's private helpers."""

import math
from numbers import Integral, Real

from sklearn.base import _fit_context as fit_context
from sklearn.utils._param_validation import (
    HasMethods,
    Interval,
    InvalidParameterError,
    StrOptions,
)
from sklearn.utils.validation import check_is_fitted, validate_data

__all__ = [
    "HasMethods",
    "Integral",
    "Interval",
    "InvalidParameterError",
    "Real",
    "StrOptions",
    "check_delta",
    "check_epsilon",
    "check_is_fitted",
    "check_positive",
    "fit_context",
    "validate_data",
]


def check_positive(value, name, *, allow_infinite=False):
    """Return ``value`` as a float, or say why it is not a positive number."""
    if isinstance(value, bool) or not isinstance(value, Real):
        raise TypeError(f"{name} must be a real number, got {type(value).__name__}.")
    value = float(value)
    if not value > 0 or (math.isinf(value) and not allow_infinite):
        rule = "positive" if allow_infinite else "positive and finite"
        raise ValueError(f"{name} must be {rule}, got {value}.")
    return value


def check_epsilon(epsilon, name="epsilon", *, allow_infinite=True):
    """Return the privacy budget in nats as a float; ``np.inf`` means no noise."""
    return check_positive(epsilon, name, allow_infinite=allow_infinite)


def check_delta(delta, name="delta"):
    """Return delta as a float strictly between 0 and 1."""
    delta = check_positive(delta, name)
    if delta >= 1:
        raise ValueError(f"{name} must be strictly between 0 and 1, got {delta}.")
    return delta
