"""What a display asks for: an estimator that is told the groups, its scores, and axes."""

from functools import wraps
from inspect import signature

import numpy as np
from sklearn.base import is_regressor
from sklearn.pipeline import Pipeline

from sklearn_dpgen.exceptions import PublicImportError, PublicValueError

__all__ = ["GroupAware", "import_pyplot", "scores_of"]

_METHODS = ("predict_proba", "decision_function", "predict")


class GroupAware:
    """A fitted estimator whose methods get the groups where they take them.

    Scorers of scikit-learn call ``predict(X)`` and the like; an estimator with a map or a threshold
    for each group wants ``predict(X, sensitive_features=...)``.

    Parameters
    ----------
    estimator : estimator
        Fitted.
    sensitive_features : array-like or DataFrame
        Of the rows that are to be predicted.
    """

    def __init__(self, estimator, sensitive_features):
        self._estimator = estimator
        self._sensitive_features = sensitive_features

    def __getattr__(self, name):
        value = getattr(self._estimator, name)
        if name not in _METHODS or not _takes_groups(self._estimator, name):
            return value

        # Scorers ask for the name of a method.
        @wraps(value)
        def told(X):
            return value(X, sensitive_features=self._sensitive_features)

        return told


def _takes_groups(estimator, method):
    """Whether a method takes groups; that of a pipeline hands them to its last step."""
    if isinstance(estimator, Pipeline):
        return _takes_groups(estimator[-1], method)
    return "sensitive_features" in signature(getattr(estimator, method)).parameters


def scores_of(estimator, X, *, response_method="auto", pos_label=None):
    """Return what a method of an estimator says for one label, and how to draw it.

    Parameters
    ----------
    estimator : estimator
    X : array-like of shape (n_samples, n_features)
    response_method : {"auto", "predict_proba", "decision_function", "predict"}
        "auto" takes the first of them that there is; of a regressor, "predict".
    pos_label : label or None
        None is the second of two classes.

    Returns
    -------
    scores : ndarray of shape (n_samples,)
    threshold : float or None
        Above which a decision is positive, for two classes.
    name : str
        What the scores are.
    """
    if response_method not in ("auto", *_METHODS):
        raise PublicValueError(f"response_method must be 'auto' or one of {_METHODS}.")
    method = response_method
    if method == "auto":
        there = [name for name in _METHODS if hasattr(estimator, name)]
        method = "predict" if is_regressor(estimator) else there[0]
    scores = np.asarray(getattr(estimator, method)(X))
    if is_regressor(estimator):
        return scores, None, "prediction"
    label = _positive_class(estimator, pos_label)
    if method == "predict":
        return (scores == label).astype(int), None, f"decided {label}"
    place = list(estimator.classes_).index(label)
    if scores.ndim == 2:
        scores = scores[:, place]
    elif place == 0:
        scores = -scores
    if method == "decision_function":
        return scores, 0.0, f"decision function of {label}"
    return scores, 0.5, f"probability of {label}"


def _positive_class(estimator, pos_label=None):
    """Return the positive label: the second of two classes if it is not given."""
    classes = list(getattr(estimator, "classes_", (0, 1)))
    if pos_label is None and len(classes) != 2:
        raise PublicValueError(f"pos_label must be given for {len(classes)} classes.")
    if pos_label is not None and pos_label not in classes:
        raise PublicValueError(f"pos_label must be among the classes, and {pos_label!r} is not.")
    return classes[1] if pos_label is None else pos_label


def import_pyplot(caller):
    """Import matplotlib when something is drawn, or say how it is installed."""
    try:
        import matplotlib.pyplot as plt
    except ImportError as error:
        raise PublicImportError(
            f"{caller} needs matplotlib: pip install 'sklearn-dpgen[examples]'."
        ) from error
    return plt
