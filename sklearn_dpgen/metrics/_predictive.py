"""Utility of a synthetic table for prediction: train on synthetic, test on real records."""

import warnings
from collections.abc import Callable, Hashable

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator, clone, is_classifier
from sklearn.dummy import DummyClassifier
from sklearn.metrics import check_scoring

from sklearn_dpgen.exceptions import PublicValueError

__all__ = ["train_synthetic_test_real"]


def train_synthetic_test_real(
    estimator: BaseEstimator,
    synthetic: pd.DataFrame,
    real: pd.DataFrame,
    *,
    target: Hashable,
    target_transform: Callable[[pd.Series], ArrayLike] | None = None,
    scoring: str | Callable | list | dict = "roc_auc",
) -> float | dict[str, float]:
    """Return the score on real records of a predictor trained on synthetic ones.

    Parameters
    ----------
    estimator : estimator
        A scikit-learn classifier or regressor, or a pipeline, that takes data frames. A clone
        is fitted.
    synthetic : DataFrame
        Training records.
    real : DataFrame with the same columns, in any order
        Test records, which should be held out from the fit of the generator.
    target : column name
        The column to predict; it is not a feature.
    target_transform : callable or None, default=None
        Function from the target column of either table to labels, for instance
        ``lambda visits: visits > 2``.
    scoring : str, callable, list or dict, default="roc_auc"
        As in :func:`sklearn.metrics.check_scoring`.

    Returns
    -------
    float, or dict of float for several scorers

    Warns
    -----
    UserWarning
        The synthetic target of a classifier has a single class. The score is then that of the
        constant prediction (0.5 for "roc_auc"), so that a benchmark with a failed generator still
        completes.

    Examples
    --------
    >>> import pandas as pd
    >>> from sklearn.linear_model import LogisticRegression
    >>> from sklearn_dpgen.metrics import train_synthetic_test_real
    >>> table = pd.DataFrame({"age": [20, 30, 40, 50], "visits": [0, 1, 4, 6]})
    >>> train_synthetic_test_real(
    ...     LogisticRegression(), table, table, target="visits",
    ...     target_transform=lambda visits: visits > 2,
    ... )
    1.0
    """
    if target not in synthetic.columns:
        raise PublicValueError(f"target must be a column of both tables, got {target!r}.")
    if set(synthetic.columns) != set(real.columns):
        odd = sorted(set(synthetic.columns) ^ set(real.columns), key=str)
        raise PublicValueError(
            f"synthetic and real must have the same columns, got {odd} in one only."
        )
    real = real[list(synthetic.columns)]
    X_train, y_train = _split_target(synthetic, target, target_transform)
    X_test, y_test = _split_target(real, target, target_transform)

    estimator = clone(estimator)
    scorer = check_scoring(estimator, scoring=scoring)
    if is_classifier(estimator) and len(np.unique(y_train)) == 1:
        warnings.warn(
            f"The synthetic target {target!r} has a single class: scoring the constant prediction.",
            UserWarning,
            stacklevel=2,
        )
        estimator = _constant_classifier(y_train, y_test)
    else:
        estimator.fit(X_train, y_train)
    scores = scorer(estimator, X_test, y_test)
    if isinstance(scores, dict):
        return {name: float(score) for name, score in scores.items()}
    return float(scores)


def _split_target(frame, target, transform):
    y = frame[target]
    return frame.drop(columns=target), np.asarray(y if transform is None else transform(y))


def _constant_classifier(y_train, y_test):
    """Return a classifier of the one class of ``y_train`` that knows the classes of ``y_test``."""
    classes = np.unique(np.concatenate([y_train, y_test]))
    dummy = DummyClassifier(strategy="constant", constant=y_train[:1])
    return dummy.fit(np.zeros((len(classes), 1)), classes)
