"""Predictors trained on one of two tables, and classifiers that tell the two apart."""

from functools import partial

import numpy as np
from sklearn.dummy import DummyClassifier, DummyRegressor
from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.metrics import roc_auc_score
from sklearn.model_selection import StratifiedKFold, cross_val_predict, train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, StandardScaler

from sklearn_dpgen.metrics import train_synthetic_test_real
from sklearn_dpgen.metrics._marginals import find_cells
from sklearn_dpgen.schema import Categorical, Numeric

__all__ = ["detection_auc", "downstream_scores"]

# What gradient boosting takes of a column.
_MOST_LABELS = 255
_TEST_SHARE = 0.3
_SCORES = {"roc_auc": "area under the ROC curve", "accuracy": "accuracy", "r2": "R²"}


def _codes(frame, schema):
    """Return a number for each value: its category, or its cell of 255."""
    cells = [find_cells(frame[name], column, _MOST_LABELS) for name, column in schema.items()]
    return np.column_stack(cells).astype(np.float64)


def _encoded(frame, schema):
    return np.hstack([column.encode(frame[name]) for name, column in schema.items()])


def _is_category(schema):
    return [
        isinstance(column, Categorical) and column.n_categories <= _MOST_LABELS
        for column in schema.values()
    ]


def detection_auc(real, synthetic, schema, *, most, random_state):
    """Return how well gradient boosting tells synthetic records from real ones, cross-validated.

    Parameters
    ----------
    real, synthetic : DataFrame
    schema : Schema
    most : int
        Rows of each table.
    random_state : int

    Returns
    -------
    float
        The area under the ROC curve: 0.5 where they are told apart by chance alone.
    """
    n = min(len(real), len(synthetic), most)
    X = np.vstack([_codes(frame.iloc[:n], schema) for frame in (real, synthetic)])
    y = np.repeat([0, 1], n)
    model = HistGradientBoostingClassifier(
        max_iter=60, categorical_features=_is_category(schema), random_state=random_state
    )
    folds = StratifiedKFold(3, shuffle=True, random_state=random_state)
    scores = cross_val_predict(model, X, y, cv=folds, method="predict_proba")[:, 1]
    return float(roc_auc_score(y, scores))


def downstream_scores(real, synthetic, schema, target, *, random_state):
    """Train on synthetic and on real records, and test on other real ones.

    Parameters
    ----------
    real, synthetic : DataFrame
    schema : Schema
    target : str
    random_state : int
        Of the split of the real records.

    Returns
    -------
    dict
        ``"score"`` in words; ``"models"``, a list of (name, trained on synthetic, trained on real);
        ``"constant"``, the score of what learns nothing; and numbers of records.
    """
    column = schema[target]
    features = {name: c for name, c in schema.items() if name != target}
    frames = [f.loc[f[target].notna(), list(schema)] for f in (real, synthetic)]
    if not features or min(map(len, frames)) < 10:
        return None
    train, test = train_test_split(frames[0], test_size=_TEST_SHARE, random_state=random_state)
    is_number = isinstance(column, Numeric)
    n_labels = 0 if is_number else train[target].nunique()
    if n_labels == 1 or test[target].nunique() < 2:
        return None
    scoring = "r2" if is_number else "roc_auc" if n_labels == 2 else "accuracy"

    def score(model, table):
        return train_synthetic_test_real(model, table, test, target=target, scoring=scoring)

    models = []
    for name, model in _models(features, is_number, random_state).items():
        models.append((name, score(model, frames[1]), score(model, train)))
    dummy = DummyRegressor() if is_number else DummyClassifier()
    return {
        "target": target,
        "score": _SCORES[scoring],
        "models": models,
        "constant": score(dummy, train),
        "n_test": len(test),
        "n_real": len(train),
        "n_synthetic": len(frames[1]),
    }


def _models(features, is_number, random_state):
    boosting = HistGradientBoostingRegressor if is_number else HistGradientBoostingClassifier
    linear = Ridge() if is_number else LogisticRegression(max_iter=200)
    return {
        "gradient boosting": make_pipeline(
            FunctionTransformer(partial(_codes, schema=features)),
            boosting(categorical_features=_is_category(features), random_state=random_state),
        ),
        "ridge regression" if is_number else "logistic regression": make_pipeline(
            FunctionTransformer(partial(_encoded, schema=features)), StandardScaler(), linear
        ),
    }
