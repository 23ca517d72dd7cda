"""Checks of parameters and arrays, with those of numbers; alone uses scikit-learn's internals."""

import math
import sys
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import pandas as pd
import scipy.sparse
import sklearn.utils.multiclass
import sklearn.utils.validation
from sklearn.base import BaseEstimator
from sklearn.base import _fit_context as fit_context
from sklearn.exceptions import DataConversionWarning
from sklearn.utils import _safe_indexing as take_rows
from sklearn.utils import get_tags
from sklearn.utils._param_validation import (
    HasMethods,
    Interval,
    InvalidParameterError,
    Options,
    StrOptions,
)
from sklearn.utils._set_output import _get_output_config
from sklearn.utils.validation import check_is_fitted

from sklearn_dpgen.exceptions import PublicError, PublicTypeError, PublicValueError
from sklearn_dpgen.utils._checks import (
    EPSILONS,
    Integral,
    Real,
    attempt,
    call_quietly,
    check_budget,
    check_choice,
    check_count,
    check_delta,
    check_epsilon,
    check_fits,
    check_n_samples,
    check_positive,
    check_rate,
    check_widths,
    set_fields,
    warn_user,
)

if TYPE_CHECKING:
    # A mixin uses the parameters and fitted attributes of the estimator.
    from sklearn.base import BaseEstimator as EstimatorMixin
else:
    EstimatorMixin = object

__all__ = [
    "BUDGET",
    "DEVICE",
    "EstimatorMixin",
    "HasMethods",
    "Integral",
    "Interval",
    "InvalidParameterError",
    "ParametersMixin",
    "Real",
    "Sampler",
    "Settings",
    "StrOptions",
    "Transformer",
    "as_frame",
    "assert_all_finite",
    "call_quietly",
    "check_array",
    "check_budget",
    "check_choice",
    "check_classification_targets",
    "check_consistent_length",
    "check_count",
    "check_delta",
    "check_epsilon",
    "check_fits",
    "check_is_fitted",
    "check_n_samples",
    "check_positive",
    "check_rate",
    "check_settings",
    "check_weights",
    "check_widths",
    "column_or_1d",
    "completed",
    "fit_context",
    "named_parameters",
    "num_samples",
    "object_array",
    "outermost_parameters",
    "output_kind",
    "set_fields",
    "take_rows",
    "validate_data",
    "warn_user",
]

# A parameter constraint.
BUDGET = [Interval(Real, *EPSILONS, closed="both"), Options(Real, {math.inf})]


class _DeviceType(type):
    def __instancecheck__(cls, value):
        return isinstance(value, getattr(sys.modules.get("torch"), "device", ()))


class _Device(metaclass=_DeviceType):
    """A stand-in for ``torch.device`` in constraints, without importing PyTorch."""

    __module__, __qualname__ = "torch", "device"


# A parameter constraint: a device by name, or as a ``torch.device``.
DEVICE = [str, _Device]


def check_array(X, *, dtype="numeric", **options):
    """Return scikit-learn's ``check_array``; errors name columns and rules, but show no value."""
    function = sklearn.utils.validation.check_array
    return _checked(partial(function, X), None, X, "no_validation", dtype, options)


def validate_data(estimator, X, y="no_validation", *, dtype="numeric", **options):
    """Return scikit-learn's ``validate_data``; errors name columns and rules, but show no value."""
    function = partial(sklearn.utils.validation.validate_data, estimator, X, y)
    return _checked(function, estimator, X, y, dtype, options)


def _checked(function, estimator, X, y, dtype, options):
    is_real = dtype is np.float64
    if isinstance(X, pd.DataFrame):
        _check_columns(X, is_real)
    if is_real and isinstance(X, np.ndarray) and X.dtype.kind in "mM":
        raise PublicValueError("X must hold real numbers; convert dates or pass a schema.")
    result, error = attempt(function, dtype=dtype, **options)
    if error is None:
        return result
    if issubclass(error[0], MemoryError):
        raise MemoryError("X does not fit in memory.")
    # The message of scikit-learn may quote values, so the rule that failed is found again.
    fault, _ = attempt(_fault, estimator, X, y, is_real, options)
    name = options.get("input_name") or "X"
    raise fault or PublicValueError(
        f"could not convert {name} to numbers: {name} must hold real numbers in two dimensions. "
        "Reshape your data with reshape(-1, 1) if it has a single feature."
    )


def _fault(estimator, X, y, is_real, options):
    """Return an error for the first rule of scikit-learn that the data break, or None."""
    if estimator is not None:
        # The messages of this function have only names and types of columns.
        _, error = attempt(
            sklearn.utils.validation._check_feature_names,
            estimator,
            X,
            reset=options.get("reset", True),
        )
        if error is not None:
            kind, text = error
            public = PublicTypeError if issubclass(kind, TypeError) else PublicValueError
            return (kind if issubclass(kind, Warning) else public)(text)
        if y is None and get_tags(estimator).target_tags.required:
            return PublicValueError(
                f"This {type(estimator).__name__} estimator requires y to be passed, but the "
                "target y is None."
            )
    if options.get("skip_check_array"):
        return _width_fault(estimator, X)
    fault = _array_fault(X, options.get("input_name") or "X", is_real, options)
    if fault is not None:
        return fault
    if y is not None and not isinstance(y, str):
        y = np.asarray(y)
        if not options.get("multi_output") and y.shape not in [(len(y),), (len(y), 1)]:
            return PublicValueError(f"y should be a 1d array, got an array of shape {y.shape}.")
        fault = _array_fault(y, "y", False, {"ensure_2d": False})
        if fault is not None:
            return fault
        if len(y) != np.shape(X)[0]:
            return _inconsistent([np.shape(X)[0], len(y)])
    return _width_fault(estimator, X)


def _width_fault(estimator, X):
    width = getattr(estimator, "n_features_in_", None)
    shape = np.shape(X)
    if width is None or len(shape) != 2 or shape[1] == width:
        return None
    return PublicValueError(
        f"X has {shape[1]} features, but {type(estimator).__name__} is expecting {width} features "
        "as input."
    )


def _array_fault(X, name, is_real, options):
    """Return an error for the first rule of ``check_array`` that an array breaks, or None."""
    if scipy.sparse.issparse(X):
        return PublicTypeError(f"{name} must be dense, got sparse data. Use toarray().")
    array = np.asarray(X)
    if array.dtype.kind == "c":
        return PublicValueError(f"Complex data not supported: {name} must hold real numbers.")
    is_2d = options.get("ensure_2d", True)
    if is_2d and array.ndim < 2:
        given = ("scalar", "1D")[array.ndim]
        return PublicValueError(
            f"Expected 2D array, got {given} array instead: {name} must hold real numbers in two "
            "dimensions. Reshape your data with reshape(-1, 1) if it has a single feature, and "
            "with reshape(1, -1) if it has a single sample."
        )
    if array.ndim > 2:
        return PublicValueError(
            f"Found array with dim {array.ndim}: {name} must have two dimensions."
        )
    kinds = ("sample", "feature")[: 1 + is_2d]
    for kind, n in zip(kinds, array.shape, strict=False):
        least = options.get(f"ensure_min_{kind}s", 1)
        if n < least:
            return PublicValueError(
                f"Found array with {n} {kind}(s) (shape={array.shape}) while a minimum of {least} "
                "is required."
            )
    if array.ndim == 2:
        frame = X if isinstance(X, pd.DataFrame) else as_frame(array)
        columns = _not_real(frame)
        if columns and is_real and frame is X:
            return PublicValueError(f"X must hold real numbers; columns that do not: {columns}.")
        if columns:
            problem = (
                f"could not convert {name} to numbers: {name} must hold real numbers, and columns "
                f"{columns} do not"
            )
            kinds = {type(value) for value in frame[columns].to_numpy(dtype=object).ravel()}
            others = [kind for kind in kinds if not issubclass(kind, str | bytes | Real)]
            if others:
                return PublicTypeError(
                    f"{problem}; the argument must be a string or a real number, not "
                    f"'{others[0].__name__}'."
                )
            return PublicValueError(f"{problem}.")
    if options.get("ensure_all_finite", True) is True:
        return _infinite(array.astype(np.float64), name)
    return None


def _infinite(array, name):
    if np.isnan(array).any():
        return PublicValueError(f"Input {name} contains NaN.")
    if np.isinf(array).any():
        return PublicValueError(
            f"Input {name} contains infinity or a value too large for dtype('float64')."
        )
    return None


def _inconsistent(lengths):
    return PublicValueError(
        f"Found input variables with inconsistent numbers of samples: {lengths}"
    )


def _check_columns(frame, is_real):
    """Refuse repeated names, and dates and complex numbers, which a cast would change."""
    if not frame.columns.is_unique:
        names = frame.columns[frame.columns.duplicated()].unique().tolist()
        raise PublicValueError(f"X has more than one column of the name: {names}.")
    names = [n for n, dtype in frame.dtypes.items() if _is_cast(dtype)]
    if is_real and names:
        raise PublicValueError(f"X must hold real numbers; columns that do not: {names}.")


def _is_cast(dtype):
    """Return whether a dtype is cast by its values: the unit of dates depends on all of them."""
    return getattr(dtype, "kind", "O") in "cmM"


def _not_real(frame):
    """Return the names of the columns without real numbers."""
    names = []
    for name, column in frame.items():
        if pd.api.types.is_numeric_dtype(column.dtype):
            continue
        try:
            values = np.asarray(column)
            is_real = values.dtype.kind not in "mM" and values.astype(np.float64) is not None
        except MemoryError:
            raise
        except Exception:  # A value may raise any class.
            is_real = False
        if not is_real:
            names.append(name)
    return names


def as_frame(array, columns=None):
    """Return an array as a frame; texts stay objects, as pandas cannot convert some of them."""
    array = np.asarray(array)
    dtype = None if array.dtype.kind in "biufcmM" else object
    return pd.DataFrame(array, columns=columns, dtype=dtype)


def output_kind(estimator):
    """Return the output kind of ``set_output`` or the global configuration, else "default"."""
    return _get_output_config("transform", estimator)["dense"]


def num_samples(X):
    """Return the number of rows of an array-like."""
    n, error = attempt(sklearn.utils.validation._num_samples, X)
    if error is not None:
        raise PublicTypeError(f"X must be array-like with rows, got {type(X).__name__}.")
    return n


def check_consistent_length(*arrays):
    """Check that arrays have equal numbers of rows; None is ignored."""
    lengths = [num_samples(array) for array in arrays if array is not None]
    if len(set(lengths)) > 1:
        raise _inconsistent(lengths)


def assert_all_finite(X, *, input_name="X"):
    """Check that an array has no NaN or infinity."""
    _, error = attempt(sklearn.utils.validation.assert_all_finite, X)
    if error is not None:
        raise PublicValueError(f"Input {input_name} contains NaN or infinity.")


def check_classification_targets(y):
    """Check that labels are those of a classification."""
    _, error = attempt(sklearn.utils.multiclass.check_classification_targets, y)
    if error is None:
        return
    kind, error = attempt(sklearn.utils.multiclass.type_of_target, y)
    if error is not None:
        raise PublicValueError("y holds labels that are not of one type.")
    raise PublicValueError(
        f"Unknown label type: {kind}. A classifier needs discrete labels; continuous ones need a "
        "regressor."
    )


class _PublicParameterError(PublicError, InvalidParameterError):
    pass


class ParametersMixin(EstimatorMixin):
    """Mixin of estimators whose errors about parameters show no value that may hold records."""

    def _validate_params(self):
        try:
            super()._validate_params()
        except InvalidParameterError as error:
            message = str(error)
        else:
            return
        # The message begins with "The 'name' parameter of ...".
        name = message.split("'")[1]
        value = getattr(self, name)
        if not isinstance(value, str | Real | None):
            message = f"{message.partition(' Got ')[0]} Got an object of {type(value).__name__}."
        # Outside of the handler, or the context of the error would show the value.
        raise _PublicParameterError(message)


class Settings(ParametersMixin, BaseEstimator):
    """Base of settings that several estimators take as one parameter.

    They are cloned, searched and saved as an estimator is, and cannot be fitted. A setting that is
    None is the estimator's own.
    """

    def __init_subclass__(cls, **kwargs):
        super().__init_subclass__(**kwargs)
        # A file is checked by the constraints of the parameters.
        cls._saved_state = dict.fromkeys(cls._get_param_names(), object)

    def _check_saved_state(self):
        self._validate_params()


def completed(settings, defaults):
    """Return settings without None, where an estimator has a value of its own.

    Parameters
    ----------
    settings : Settings
    defaults : dict of str to object
        The estimator's own values, of every setting that it has.

    Returns
    -------
    Settings
    """
    given = settings.get_params(deep=False).items()
    return type(settings)(**{k: defaults.get(k) if v is None else v for k, v in given})


def check_settings(settings, defaults, owner):
    """Raise an InvalidParameterError for a setting that is wrong, or that an estimator lacks.

    Parameters
    ----------
    settings : Settings
    defaults : dict of str to object
        The estimator's own values, of every setting that it has.
    owner : str
        Name of the class of the estimator.
    """
    settings._validate_params()
    for name, value in settings.get_params(deep=False).items():
        if value is not None and name not in defaults:
            raise _PublicParameterError(
                f"The {name!r} parameter of {type(settings).__name__} must be None: {owner} does "
                "not have it."
            )


def check_weights(sample_weight, n_samples):
    """Return the weights of records as an array of finite numbers."""
    weights = check_array(
        sample_weight, dtype=np.float64, ensure_2d=False, input_name="sample_weight"
    )
    if weights.shape != (n_samples,):
        raise PublicValueError(
            f"sample_weight must have the shape ({n_samples},), got {weights.shape}."
        )
    return weights


def object_array(values):
    """Return a list or tuple as objects; no number beside texts turns into a text."""
    # np.array, and pd.Series with pandas 2, would ask each object whether it is an array.
    return np.fromiter(values, dtype=object, count=len(values))


def column_or_1d(y, warn=False):
    """Return labels as a one-dimensional array; a frame with several columns is a ValueError.

    scikit-learn raises TypeError if the columns have no common type.
    """
    y = y.to_numpy() if isinstance(y, pd.DataFrame) else y
    if isinstance(y, list | tuple) and len({isinstance(label, str) for label in y}) > 1:
        y = object_array(y)
    labels, error = attempt(sklearn.utils.validation.column_or_1d, y, warn=warn)
    if error is None:
        return labels
    if issubclass(error[0], DataConversionWarning):
        raise DataConversionWarning("A column-vector y was passed when a 1d array was expected.")
    array, _ = attempt(np.asarray, y)
    if array is not None and array.dtype.kind == "c":
        raise PublicValueError("Complex data not supported: y must hold real labels.")
    shape, _ = attempt(np.shape, y)
    if shape is not None and len(shape) != 1:
        raise PublicValueError(f"y should be a 1d array, got an array of shape {shape} instead.")
    raise PublicValueError("y must hold one label a row, in one dimension.")


class Transformer(Protocol):
    """An object that maps records to records, row by row."""

    def transform(self, X: Any, /) -> Any: ...


class Sampler(Protocol):
    """An object that draws a number of records."""

    def sample(self, n_samples: int, /, *, random_state: int | None = None) -> Any: ...


def named_parameters(estimator, name):
    """Return the names of all parameters that end in a name, at any depth, as sampler__epsilon.

    Parameters
    ----------
    estimator : estimator
    name : str

    Returns
    -------
    list of str
    """
    return [key for key in estimator.get_params() if key.rpartition("__")[2] == name]


def outermost_parameters(estimator, name, kind=object):
    """Return the named parameters of the least depth, of parts of a kind.

    Parameters
    ----------
    estimator : estimator
    name : str
    kind : type, default=object
        Class of the parts whose parameters are returned.

    Returns
    -------
    list of str
    """
    parts = {"": estimator} | estimator.get_params()
    names = named_parameters(estimator, name)
    names = [key for key in names if isinstance(parts[key.rpartition("__")[0]], kind)]
    depth = min((key.count("__") for key in names), default=0)
    return [key for key in names if key.count("__") == depth]
