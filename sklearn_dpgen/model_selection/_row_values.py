"""Scores of a fitted estimator on single rows, in [0, 1]; each depends on its own row only.

A mean of n such values changes by at most 1/n if one row is replaced; the largest difference of the
means of two groups by at most 1/n_a if a row of group a is replaced by another of the group.
"""

import numpy as np
import pandas as pd
from sklearn.base import is_classifier, is_regressor

from sklearn_dpgen.exceptions import PublicValueError

__all__ = [
    "bounded_values",
    "closeness",
    "closeness_of_labels",
    "group_gap",
    "hits",
    "outcomes",
    "released_score",
    "row_values",
]


def hits(estimator, X, y):
    """Return which labels are predicted."""
    predicted = np.asarray(estimator.predict(X), dtype=object)
    return np.array([_equal(*pair) for pair in zip(predicted, _labels(y), strict=True)])


def closeness_of_labels(estimator, X, y):
    """Return 1 − Σ_k (p_k − [y = k])² / 2 of predicted probabilities: one minus the Brier score.

    A label that the estimator does not know has probability 0.
    """
    probabilities = np.asarray(estimator.predict_proba(X), dtype=np.float64)
    classes = np.asarray(estimator.classes_, dtype=object)
    is_class = np.array([[_equal(label, each) for each in classes] for label in _labels(y)])
    known = is_class.any(axis=1)
    return 1 - (np.square(probabilities - is_class).sum(axis=1) + ~known) / 2


def closeness(estimator, X, y, target_range):
    """Return 1 − |prediction − value| / width of the declared range, to which both are clipped."""
    low, high = target_range
    predicted = np.clip(np.asarray(estimator.predict(X), dtype=np.float64), low, high)
    return 1 - np.abs(predicted - np.clip(_numbers(y), low, high)) / (high - low)


def row_values(scoring, estimator, target_range):
    """Return the named function of (estimator, X, y); None is the default of the estimator."""
    if scoring is None:
        if not (is_classifier(estimator) or is_regressor(estimator)):
            raise PublicValueError(
                "scoring must be given unless estimator is a classifier or a regressor. Use "
                "utility_scorer(target) for a generator."
            )
        scoring = "accuracy" if is_classifier(estimator) else "absolute_error"
    if scoring == "accuracy":
        return hits
    if scoring == "brier":
        return closeness_of_labels
    if target_range is None:
        raise PublicValueError(
            "target_range must be given for absolute errors: the public (lowest, highest) value "
            "of the target."
        )
    target_range = check_target_range(target_range)
    return lambda estimator, X, y: closeness(estimator, X, y, target_range)


def outcomes(estimator, X, target_range):
    """Return the outcome of each row: whether its label is the last, or its place in the range."""
    predicted = estimator.predict(X)
    if is_classifier(estimator):
        positive = estimator.classes_[-1]
        return np.array([_equal(label, positive) for label in np.asarray(predicted, dtype=object)])
    low, high = check_target_range(target_range)
    return (np.clip(np.asarray(predicted, dtype=np.float64), low, high) - low) / (high - low)


def group_gap(values, codes, weights):
    """Return the largest difference of the weighted means of two groups, at least 0.

    Parameters
    ----------
    values : ndarray of shape (n_rows,)
        In [0, 1].
    codes : ndarray of int of shape (n_rows,)
        The group of each row. Groups without rows are left out.
    weights : ndarray of shape (n_rows,)
        Positive weights of the rows; equal for all units of a group.
    """
    totals = np.bincount(codes, weights)
    present = totals > 0
    return float(np.ptp(np.bincount(codes, weights * values)[present] / totals[present]))


def check_target_range(target_range):
    """Return two finite numbers in increasing order."""
    low, high = (float(bound) for bound in target_range)
    if not (np.isfinite([low, high]).all() and low < high):
        raise PublicValueError(
            f"target_range must be two increasing finite numbers, got {low}, {high}."
        )
    return low, high


def _labels(y):
    """Return labels as objects, as one text among numbers would make an array of texts."""
    labels = np.array(y, dtype=object)
    labels[pd.isna(labels)] = None
    return labels


def _equal(one, other):
    """Return whether two labels are equal; labels that cannot be compared are not."""
    try:
        return bool(one == other)
    except Exception:  # A label may raise any class.
        return False


def _numbers(y):
    """Return values as floats one by one, so that only those that are no numbers become NaN."""
    labels = _labels(y)
    # The shape is that of the labels: np.shape of a list fails if one of them is a sequence.
    return np.array([_number(value) for value in labels.ravel()]).reshape(labels.shape)


def _number(value):
    try:
        return np.nan if isinstance(value, str) else float(value)
    except Exception:  # A value may raise any class.
        return np.nan


def bounded_values(values, n_rows):
    """Return one value in [0, 1] for each row; NaN counts as 0.

    Raises
    ------
    PublicValueError
        The number of values differs from the number of rows.
    """
    values = np.asarray(values, dtype=np.float64)
    if values.shape != (n_rows,):
        raise PublicValueError("scoring must return one value for each row.")
    return np.clip(np.nan_to_num(values, nan=0.0), 0.0, 1.0)


def released_score(score, scale, noise):
    """Return a mean of values with noise, on a grid; unchanged at scale 0 or if a fit failed.

    Parameters
    ----------
    score : float
    scale : float
        Standard deviation of the noise.
    noise : NoiseSource
    """
    return float(noise.add(np.array([score]), scale, "gaussian")[0])
