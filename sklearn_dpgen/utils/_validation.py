"""The one place that touches scikit-learn's private helpers."""

import functools
import math
import re
from numbers import Integral, Real

import numpy as np
import pandas as pd
import sklearn.utils.validation
from sklearn.base import _fit_context as fit_context
from sklearn.utils._param_validation import (
    HasMethods,
    Interval,
    InvalidParameterError,
    StrOptions,
)
from sklearn.utils._set_output import _get_output_config
from sklearn.utils.validation import check_is_fitted

__all__ = [
    "HasMethods",
    "Integral",
    "Interval",
    "InvalidParameterError",
    "Real",
    "StrOptions",
    "check_array",
    "check_delta",
    "check_epsilon",
    "check_is_fitted",
    "check_n_samples",
    "check_positive",
    "check_widths",
    "fit_context",
    "gives_pandas",
    "num_samples",
    "validate_data",
]

# How the errors begin of which the rest would show values of an array.
_REVEALING = re.compile(
    "could not convert string to float|Complex data not supported|Expected 2D array, got .* instead"
)


def _without_values(function):
    """Return a function of scikit-learn whose errors show no value of its arrays."""

    @functools.wraps(function)
    def wrapped(*args, **kwargs):
        try:
            return function(*args, **kwargs)
        except ValueError as error:
            message = _REVEALING.match(str(error))
            if message is None:
                raise
        # Outside of the handler, or the context of the error would show them.
        raise ValueError(
            f"{message[0]}{_place_of_text(args)}. X must hold real numbers in two dimensions. "
            "Reshape your data with reshape(-1, 1) if it has a single feature."
        )

    return wrapped


def _place_of_text(args):
    """Return which columns of the array among the arguments are no numbers, for an error."""
    X = next((arg for arg in args if hasattr(arg, "__array__") and np.ndim(arg) == 2), None)
    if X is None:
        return ""
    frame = X if isinstance(X, pd.DataFrame) else pd.DataFrame(X)
    columns = [name for i, name in enumerate(frame.columns) if not _is_real(frame.iloc[:, i])]
    return f" in columns {columns}" if columns else ""


def _is_real(series):
    if series.dtype.kind == "c":
        return False
    try:
        series.to_numpy(dtype=np.float64, na_value=np.nan)
    except (TypeError, ValueError):
        return False
    return True


def gives_pandas(estimator):
    """Return whether ``transform`` gives data frames of pandas, by ``set_output``."""
    return _get_output_config("transform", estimator)["dense"] == "pandas"


num_samples = sklearn.utils.validation._num_samples
check_array = _without_values(sklearn.utils.validation.check_array)
validate_data = _without_values(sklearn.utils.validation.validate_data)


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


def check_n_samples(n_samples):
    """Return a number of records to sample as an int, if it is one of at least 1."""
    if not isinstance(n_samples, Integral) or isinstance(n_samples, bool) or n_samples < 1:
        raise ValueError(f"n_samples must be an integer of at least 1, got {n_samples!r}.")
    return int(n_samples)


def check_widths(widths, name="hidden_layer_sizes"):
    """Return the widths of layers as a tuple of positive integers."""
    widths = tuple(widths)
    if not all(isinstance(width, Integral) and width > 0 for width in widths):
        raise ValueError(f"{name} must hold positive integers, got {widths}.")
    return tuple(int(width) for width in widths)
