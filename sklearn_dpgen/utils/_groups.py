"""Groups of records, by the values of one or several sensitive attributes."""

import inspect
from functools import wraps

import numpy as np
import pandas as pd
import sklearn
from scipy.special import ndtri
from sklearn.pipeline import Pipeline
from sklearn.utils import get_tags

from sklearn_dpgen.exceptions import PublicTypeError, PublicValueError

__all__ = [
    "check_groups",
    "check_sensitive_features",
    "encode_rows",
    "last_step",
    "mean_intervals",
    "takes_groups",
    "with_groups",
]

# Grid on which the ends of an interval are searched.
_CANDIDATES = np.linspace(0, 1, 2001)
_BY_GROUP = ("predict", "predict_proba", "predict_log_proba", "decision_function", "score")


def encode_rows(values, name, *, allow_missing=False):
    """Number the distinct rows of a table in sorted order.

    Parameters
    ----------
    values : array-like or DataFrame of shape (n,) or (n, n_columns)
        Booleans, numbers, strings or categories; an index is ignored. Categories are compared by
        their values, not by their declared order.
    name : str
        Name of ``values`` in errors.
    allow_missing : bool, default=False
        Whether missing values (None, NaN) are one more value, the last, with the label None.

    Returns
    -------
    codes : ndarray of int64, shape (n,)
        Positions in ``labels``.
    labels : list
        The distinct rows that occur, sorted: plain values for one column, tuples for several.

    Raises
    ------
    PublicTypeError
        The values of a column have no common order, for instance numbers and strings.
    PublicValueError
        There are not one or two dimensions, or a value is missing without ``allow_missing``. No
        message shows a value.
    """
    frame = _as_frame(values, name)
    missing = [column for column, series in frame.items() if series.isna().any()]
    if missing and not allow_missing:
        raise PublicValueError(
            f"{name} must have no missing values, got some in columns {missing}."
        )

    codes, labels = np.zeros(len(frame), dtype=np.int64), [()]
    for column, series in frame.items():
        numbers, ordered = _encode_column(series, f"{name}, column {column!r},")
        cells, codes = np.unique(codes * len(ordered) + numbers, return_inverse=True)
        cells = [divmod(cell, len(ordered)) for cell in cells.tolist()]
        labels = [(*labels[row], ordered[position]) for row, position in cells]
    if frame.shape[1] == 1:
        labels = [label for (label,) in labels]
    return codes, labels


def check_groups(groups):
    """Return declared groups in sorted order: plain values, or tuples for several columns.

    A missing value is the group None, which is last.

    Parameters
    ----------
    groups : array-like or DataFrame of shape (n_groups,) or (n_groups, n_features)

    Returns
    -------
    list

    Raises
    ------
    PublicTypeError
        The values of a column have no common order.
    PublicValueError
        There are not one or two dimensions, a group is repeated, or there are fewer than two.
    """
    codes, declared = encode_rows(groups, "groups", allow_missing=True)
    if len(declared) != len(codes):
        raise PublicValueError("groups must be distinct.")
    if len(declared) < 2:
        raise PublicValueError(f"groups must be at least two, got {len(declared)}.")
    return declared


def check_sensitive_features(sensitive_features, n_samples, groups=None):
    """Return the group of each sample, and the groups.

    Parameters
    ----------
    sensitive_features : array-like or DataFrame of shape (n_samples,) or (n_samples, n_features)
        Samples with the same values in all columns form a group; missing values are the value
        None. An index is ignored.
    n_samples : int
    groups : array-like or DataFrame of shape (n_groups,) or (n_groups, n_features), optional
        The declared groups, which may have no samples. None takes the groups that occur.

    Returns
    -------
    codes : ndarray of int64, shape (n_samples,)
        Positions in the groups.
    groups : list
        The declared groups or those that occur, at least two, sorted with None last: plain values
        for one column, tuples for several.

    Raises
    ------
    PublicTypeError
        The values of a column have no common order, for instance numbers and strings.
    PublicValueError
        There are not one or two dimensions, the length differs, there are fewer than two groups, or
        a group is not declared. No message shows a value.
    """
    declared = None if groups is None else check_groups(groups)
    codes, found = encode_rows(sensitive_features, "sensitive_features", allow_missing=True)
    if len(codes) != n_samples:
        raise PublicValueError(f"sensitive_features has {len(codes)} rows for {n_samples} samples.")
    if declared is None:
        if len(found) < 2:
            raise PublicValueError(
                f"sensitive_features must have at least two groups, got {len(found)}."
            )
        return codes, found
    positions = {group: position for position, group in enumerate(declared)}
    if not positions.keys() >= set(found):
        raise PublicValueError(
            "sensitive_features holds a group that is not among the declared groups."
        )
    return np.array([positions[group] for group in found], dtype=np.int64)[codes], declared


def last_step(estimator):
    """Return the last step of a pipeline, or the estimator."""
    return estimator.steps[-1][1] if isinstance(estimator, Pipeline) else estimator


def takes_groups(estimator, method):
    """Return whether a method of an estimator, or of the last step of a pipeline, takes groups."""
    found = getattr(last_step(estimator), method, None)
    return found is not None and "sensitive_features" in inspect.signature(found).parameters


def with_groups(estimator, sensitive_features):
    """Return an estimator whose predictions get the groups of the rows, if its methods take them.

    Parameters
    ----------
    estimator : estimator
        Fitted.
    sensitive_features : array-like or None
        Groups of the rows to predict. None returns the estimator.
    """
    return estimator if sensitive_features is None else _WithGroups(estimator, sensitive_features)


class _WithGroups:
    """An estimator that predicts rows of known groups, for code that calls ``predict(X)``."""

    def __init__(self, estimator, sensitive_features):
        self._estimator = estimator
        self._sensitive_features = sensitive_features

    def __getattr__(self, name):
        found = getattr(self._estimator, name)
        if name not in _BY_GROUP or not takes_groups(self._estimator, name):
            return found

        @wraps(found)
        def predicted(*args):
            # Without routing a pipeline passes parameters to its last step, whatever it requests.
            with sklearn.config_context(enable_metadata_routing=False):
                return found(*args, sensitive_features=self._sensitive_features)

        return predicted

    def __sklearn_tags__(self):
        return get_tags(self._estimator)


def _as_frame(values, name):
    """Return a data frame with columns 0, 1, ... or those that ``values`` names."""
    if isinstance(values, list | tuple):
        # As objects, or numbers beside missing values would turn into strings, or be rounded.
        values = np.array(values, dtype=object) if values else np.empty((0, 0))
    elif hasattr(values, "__array__") and not isinstance(values, pd.DataFrame | pd.Series):
        values = np.asanyarray(values)
    try:
        # pandas 2.2 warns where the constructor finds a type for the objects of a series.
        frame = values.to_frame() if isinstance(values, pd.Series) else pd.DataFrame(values)
    except (TypeError, ValueError):
        frame = None
    if frame is None or values is None or frame.shape[1] == 0:
        raise PublicValueError(f"{name} must be an array or a data frame of one or two dimensions.")
    return frame


def _encode_column(series, name):
    try:
        codes, uniques = pd.factorize(series)
        labels = uniques.tolist()
        order = sorted(range(len(labels)), key=labels.__getitem__)
    except TypeError:
        order = None
    if order is None:
        raise PublicTypeError(f"{name} must hold values of one type that has an order.")
    ordered = [labels[i] for i in order]
    if (codes < 0).any():
        # Missing values have the code -1, the last position.
        return np.append(np.argsort(order), len(order))[codes].astype(np.int64), [*ordered, None]
    return np.argsort(order)[codes], ordered


def mean_intervals(sums, noise_scale, groups, level=0.95):
    """Return the mean of each group, with a confidence interval for the population mean.

    The interval holds each r for which the noisy (1 - r) Σ z - r Σ (1 - z), of mean 0 at the
    population mean, is within the quantile of its normal noise and of sampling with the largest
    variance of an outcome, r (1 - r).

    Parameters
    ----------
    sums : ndarray of shape (2 * n_groups,)
        Released sums of outcomes z in [0, 1] by group, then those of 1 - z.
    noise_scale : float
        Standard deviation of the noise on each sum.
    groups : list
    level : float, default=0.95
        Confidence level.

    Returns
    -------
    DataFrame
        Indexed by group: "mean" in [0, 1], "low", "high", and "n_rows", the noisy size.
    """
    ones, zeros = sums.reshape(2, -1)
    sizes = ones + zeros
    means = np.clip(ones / np.maximum(sizes, 1.0), 0.0, 1.0)
    r = _CANDIDATES[:, None]
    spread = noise_scale**2 * ((1 - r) ** 2 + r**2) + np.maximum(sizes, 0.0) * r * (1 - r)
    reach = ndtri((1 + level) / 2) * np.sqrt(spread) + 1e-9
    inside = np.abs((1 - r) * ones - r * zeros) <= reach
    rows = [_CANDIDATES[column] if column.any() else _CANDIDATES for column in inside.T]
    return pd.DataFrame(
        {
            "mean": means,
            "low": np.minimum([found.min() for found in rows], means),
            "high": np.maximum([found.max() for found in rows], means),
            "n_rows": sizes,
        },
        index=pd.Index(groups, name="group", tupleize_cols=False),
    )
