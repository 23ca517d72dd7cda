"""The one place that touches scikit-learn's private helpers."""

import functools
import math
import os
import re
import sys
import warnings
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
import sklearn.utils.multiclass
import sklearn.utils.validation
from sklearn.base import _fit_context as fit_context
from sklearn.utils._param_validation import (
    HasMethods,
    Interval,
    InvalidParameterError,
    Options,
    StrOptions,
)
from sklearn.utils._set_output import _get_output_config
from sklearn.utils.validation import check_is_fitted

from sklearn_dpgen.utils._typing import EstimatorMixin

if TYPE_CHECKING:
    # To type checkers no int is an Integral, and no float a Real.
    Integral = int
    Real = float
else:
    from numbers import Integral, Real

__all__ = [
    "BUDGET",
    "DEVICE",
    "HasMethods",
    "Integral",
    "Interval",
    "InvalidParameterError",
    "ParametersMixin",
    "Real",
    "StrOptions",
    "as_frame",
    "assert_all_finite",
    "call_quietly",
    "check_array",
    "check_classification_targets",
    "check_consistent_length",
    "check_delta",
    "check_epsilon",
    "check_fits",
    "check_is_fitted",
    "check_n_samples",
    "check_positive",
    "check_weights",
    "check_widths",
    "column_or_1d",
    "fit_context",
    "num_samples",
    "output_kind",
    "validate_data",
    "warn_user",
]

# A parameter constraint: beyond it a finite budget protects nobody, or leaves nothing.
BUDGET = [Interval(Real, 1e-50, 1e5, closed="both"), Options(Real, {math.inf})]


class _DeviceType(type):
    def __instancecheck__(cls, value):
        return isinstance(value, getattr(sys.modules.get("torch"), "device", ()))


class _Device(metaclass=_DeviceType):
    """What ``torch.device`` is to constraints, without importing PyTorch."""

    __module__, __qualname__ = "torch", "device"


# A parameter constraint: a device by its name, or as PyTorch has it.
DEVICE = [str, _Device]

# What scikit-learn, NumPy and pandas say that holds no value: names of classes, shapes and counts.
# Nothing else that they say is shown, nor what an object says that is converted.
_TOLD = re.compile(
    r"Input (\w+ )?contains (NaN|infinity or a value too large for dtype\('\w+'\))\.|"
    r"Found array with \d+ (sample|feature)\(s\) \(shape=\([\d, ]*\)\) while a minimum of \d+ is "
    r"required( by \w+)?\.|"
    r"Found array with dim \d+(\. \w+ expected <= 2|, while dim <= 2 is required( by \w+)?)\.|"
    r"Found input variables with inconsistent numbers of samples: \[[\d, ]*\]|"
    r"Expected 2D input, got input with shape \([\d, ]*\)\.|"
    r"Expected a 2-dimensional container but got <class '[\w.]+'> instead\.|"
    r"Expected sequence or array-like, got <class '[\w.]+'>|"
    r"Sparse data was passed( for \w+)?, but dense data is required\. Use '\.toarray\(\)' to "
    r"convert to a dense numpy array\.|"
    r"np\.matrix is not supported\. Please convert to a numpy array with np\.asarray\.|"
    r"(\w+|This \w+ estimator) requires y to be passed, but the target y is None|"
    r"y cannot be None|"
    r"y should be a 1d array, got an array of shape \([\d, ]*\) instead\.|"
    r"X has \d+ features, but \w+ is expecting \d+ features as input\.?|"
    r"X (has|does not have valid) feature names, but \w+ was fitted with(out)? feature names|"
    r"Feature names are only supported if all input features have string names, but your input "
    r"has \[['\w, ]*\] as feature name / column name types\.|"
    r"Unable to find the number of features from X of type [\w.]+|"
    r"A column-vector y was passed when a 1d array was expected\.|"
    r"setting an array element with a sequence\.( The requested array has an inhomogeneous shape "
    r"after \d+ dimensions\. The detected shape was \([\d, ]*\) \+ inhomogeneous part\.)?|"
    r"float\(\) argument must be a string or a (real )?number, not '[\w.]+'|"
    r"Unknown label type: [\w-]+|"
    r"(invalid value|overflow) encountered in \w+",
    re.ASCII,
)
# The beginnings of others, which go on with values of an array.
_BEGUN = re.compile(
    r"could not convert string to float|Complex data not supported|int too large to convert to "
    r"float|Expected 2D array, got (\w+) array instead|dtype='numeric' is not compatible with "
    r"arrays of bytes/strings",
    re.ASCII,
)
_NAMES_DIFFER = "The feature names should match those that were passed during fit"


def _attempt(function, *args, **kwargs):
    """Return what a function returns and None, or None and the type and the text of its error.

    They are shown outside of the handler, or the context of the error would show values.
    """
    try:
        return function(*args, **kwargs), None
    except Exception as error:  # of any kind, by what a value is
        try:
            return None, (type(error), str(error))
        except Exception:  # which the text of an error may raise as well
            return None, (type(error), "")


def _told(kind, text):
    """Return an error of a library as far as its message holds no value, or None."""
    if issubclass(kind, MemoryError):
        return MemoryError("X does not fit in memory.")
    message = _TOLD.match(text) or _BEGUN.match(text)
    if message is None:
        return None
    is_known = kind.__module__.partition(".")[0] in ("builtins", "numpy", "sklearn")
    is_shown = is_known and issubclass(kind, Warning | TypeError)
    return (kind if is_shown else ValueError)(message[0])


def _explaining(function):
    """Return a function of scikit-learn whose errors name columns, and show no value."""

    @functools.wraps(function)
    def wrapped(*args, dtype="numeric", **kwargs):
        frame = next((arg for arg in args if isinstance(arg, pd.DataFrame)), None)
        is_real = dtype is np.float64
        if frame is not None:
            _check_columns(frame, is_real)
        if is_real and any(isinstance(arg, np.ndarray) and arg.dtype.kind in "mM" for arg in args):
            raise ValueError("X must hold real numbers, and dates are none: declare a schema.")
        result, error = _attempt(function, *args, dtype=dtype, **kwargs)
        if error is None:
            return result
        names = [] if frame is None or not is_real else _not_real(frame)
        if names:
            raise ValueError(f"X must hold real numbers; columns that do not: {names}.")
        if error[1].startswith(_NAMES_DIFFER) and len(args) > 1:
            # Of the names alone, which are public.
            sklearn.utils.validation._check_feature_names(*args[:2], reset=False)
        begun = _BEGUN.match(error[1])
        if begun is None and (told := _told(*error)) is not None:
            raise told
        name = kwargs.get("input_name") or "X"
        problem = f"could not convert {name} to numbers" if begun is None else begun[0]
        raise ValueError(
            f"{problem}{_place_of_text(args)}. {name} must hold real numbers in two dimensions. "
            "Reshape your data with reshape(-1, 1) if it has a single feature."
        )

    return wrapped


def _check_columns(frame, is_real):
    """Refuse columns of one name, and those that a cast would cut, or count in a unit of theirs."""
    if not frame.columns.is_unique:
        names = frame.columns[frame.columns.duplicated()].unique().tolist()
        raise ValueError(f"X has more than one column of the name: {names}.")
    names = [n for n, dtype in frame.dtypes.items() if _is_cast(dtype)]
    if is_real and names:
        raise ValueError(f"X must hold real numbers; columns that do not: {names}.")


def _is_cast(dtype):
    """Return whether numbers of a dtype are others: of dates, the unit is read off all of them."""
    return getattr(dtype, "kind", "O") in "cmM"


def _not_real(frame):
    """Return the names of the columns that are not of real numbers."""
    names = []
    for name, column in frame.items():
        if pd.api.types.is_numeric_dtype(column.dtype):
            continue
        try:
            values = np.asarray(column)
            is_real = values.dtype.kind not in "mM" and values.astype(np.float64) is not None
        except MemoryError:
            raise
        except Exception:  # of any kind, by what a value is
            is_real = False
        if not is_real:
            names.append(name)
    return names


def _place_of_text(args):
    """Return which columns of an array among the arguments are no real numbers, for an error."""
    X = next((arg for arg in args if hasattr(arg, "__array__") and np.ndim(arg) == 2), None)
    columns = [] if X is None else _not_real(X if isinstance(X, pd.DataFrame) else as_frame(X))
    return f" in columns {columns}" if columns else ""


def as_frame(array, columns=None):
    """Return an array as a frame; texts stay objects, as pandas has no other for some of them."""
    array = np.asarray(array)
    dtype = None if array.dtype.kind in "biufcmM" else object
    return pd.DataFrame(array, columns=columns, dtype=dtype)


def call_quietly(message, function, *args):
    """Return what a function of private values returns, or raise a ValueError with the message.

    Nothing of the error that it replaces is kept, as that may show a value.
    """
    result, error = _attempt(function, *args)
    if error is None:
        return result
    if issubclass(error[0], MemoryError):
        raise MemoryError("X does not fit in memory.")
    raise ValueError(message)


def output_kind(estimator):
    """Return what ``set_output`` or the global configuration asks for, "default" if nothing."""
    return _get_output_config("transform", estimator)["dense"]


# Whose lines lie between a warning and the line of a user.
_BETWEEN = ("joblib", "sklearn", "sklearn_dpgen")


def warn_user(message, category=UserWarning):
    """Warn at the line of code that called this package, whatever lies between."""
    level, frame = 2, sys._getframe(1)
    while frame.f_back is not None and _is_between(frame):
        level, frame = level + 1, frame.f_back
    warnings.warn(message, category, stacklevel=level)


def _is_between(frame):
    return frame.f_globals.get("__name__", "").partition(".")[0] in _BETWEEN


def _telling(function, message):
    """Return a function of scikit-learn whose errors show no value: the message, where they may."""

    @functools.wraps(function)
    def wrapped(*args, **kwargs):
        result, error = _attempt(function, *args, **kwargs)
        if error is None:
            return result
        raise _told(*error) or ValueError(message)

    return wrapped


num_samples = _telling(sklearn.utils.validation._num_samples, "X must have rows.")
check_consistent_length = _telling(
    sklearn.utils.validation.check_consistent_length, "X and y must have as many rows."
)
assert_all_finite = _telling(
    sklearn.utils.validation.assert_all_finite, "X must hold finite numbers."
)
check_classification_targets = _telling(
    sklearn.utils.multiclass.check_classification_targets,
    "y holds labels that are not of one type.",
)
check_array = _explaining(sklearn.utils.validation.check_array)
validate_data = _explaining(sklearn.utils.validation.validate_data)


class ParametersMixin(EstimatorMixin):
    """Mixin of estimators whose errors about parameters show no value that could hold records."""

    def _validate_params(self):
        try:
            super()._validate_params()
        except InvalidParameterError as error:
            message = str(error)
        else:
            return
        # Of "The 'name' parameter of ...".
        name = message.split("'")[1]
        value = getattr(self, name)
        if not isinstance(value, str | Real | None):
            message = f"{message.partition(' Got ')[0]} Got an object of {type(value).__name__}."
        # Outside of the handler, or the context of the error would show it.
        raise InvalidParameterError(message)


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


def check_n_samples(n_samples, width=1):
    """Return a number of records to sample as an int, if it is one of at least 1.

    Parameters
    ----------
    n_samples : int
    width : int, default=1
        Numbers that a record takes while it is made, latents and one-hot blocks included.

    Raises
    ------
    ValueError
        No such number, or more records than fit in the memory of the machine, at 8 bytes a number.
    """
    if isinstance(n_samples, bool) or not isinstance(n_samples, Integral) or n_samples < 1:
        raise ValueError(f"n_samples must be an integer of at least 1, got {n_samples!r}.")
    needed, there = 8 * int(n_samples) * width, _memory()
    if needed > there:
        raise ValueError(
            f"n_samples={n_samples} records of {width} numbers need {needed / 2**30:.0f} GiB of "
            f"memory, of which there are {there / 2**30:.0f} GiB: sample in parts."
        )
    return int(n_samples)


def check_fits(n_bytes, subject):
    """Raise ValueError if what a parameter asks for does not fit in the memory of the machine."""
    there = _memory()
    if n_bytes > there:
        raise ValueError(
            f"{subject} would take {n_bytes / 2**30:.0f} GiB of memory, of which there are "
            f"{there / 2**30:.0f} GiB."
        )


def _memory():
    """Return the bytes of the machine's memory, or 64 GiB where it does not tell."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, OSError, ValueError):
        return 2**36


def check_weights(sample_weight, n_samples):
    """Return the weights of records as an array of finite numbers."""
    weights = check_array(
        sample_weight, dtype=np.float64, ensure_2d=False, input_name="sample_weight"
    )
    if weights.shape != (n_samples,):
        raise ValueError(f"sample_weight must have the shape ({n_samples},), got {weights.shape}.")
    return weights


def check_widths(widths, name="hidden_layer_sizes"):
    """Return the widths of layers as a tuple of positive integers."""
    widths = tuple(widths)
    if not all(isinstance(width, Integral) and int(width) > 0 for width in widths):
        raise ValueError(f"{name} must hold positive integers, got {widths}.")
    return tuple(int(width) for width in widths)


def column_or_1d(y, warn=False):
    """Return labels as an array of one dimension; any frame of several columns is a ValueError.

    scikit-learn's own raises TypeError where the columns have no common type.
    """
    y = y.to_numpy() if isinstance(y, pd.DataFrame) else y
    if isinstance(y, list | tuple) and len({isinstance(label, str) for label in y}) > 1:
        # As an array, one text would make texts of all the numbers.
        y = pd.Series(y, dtype=object)
    message = "y must hold one label a row, in one dimension."
    return _telling(sklearn.utils.validation.column_or_1d, message)(y, warn=warn)
