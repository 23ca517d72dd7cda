"""Figures that compare a synthetic table with the real one."""

import math
from functools import partial

import numpy as np
from sklearn.dummy import DummyClassifier, DummyRegressor
from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.metrics import roc_auc_score
from sklearn.model_selection import (
    GroupShuffleSplit,
    StratifiedGroupKFold,
    StratifiedKFold,
    cross_val_predict,
    train_test_split,
)
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, StandardScaler
from sklearn.utils import check_random_state

from sklearn_dpgen.metrics import (
    marginal_total_variation,
    propensity_mse_ratio,
    sliced_wasserstein_distance,
    train_synthetic_test_real,
)
from sklearn_dpgen.metrics._marginals import column_correlations, find_cells
from sklearn_dpgen.reporting._columns import measure_column
from sklearn_dpgen.schema import (
    Categorical,
    FunctionalDependency,
    Implication,
    Inequality,
    Numeric,
    OpenCategorical,
    Schema,
)
from sklearn_dpgen.schema._expressions import Scope, shown_rule
from sklearn_dpgen.tables._table_rules import TableRules, broken
from sklearn_dpgen.utils._html import clean

__all__ = ["broken_shares", "detection_auc", "downstream_scores", "measure_tables"]

_BINS = 20
# Pairs or triples to compare, columns of a heat map, and the largest distances to list.
_MOST_GROUPS, _MOST_MAPPED, _MOST_WORST = 1000, 60, 8
# Records for slow measures, and features of a column for which these are defined.
_MOST_FEW, _MOST_LABELS = 10_000, 50


def measure_tables(
    real, synthetic, schema, *, target, constraints, declared, random_state, persons=None
):
    """Return all figures of a report on two tables, as plain containers and arrays.

    Parameters
    ----------
    real, synthetic : DataFrame
        Tables that fit the schema.
    schema : Schema
        The columns to compare.
    target : str or None
        The column that models predict.
    constraints : sequence of Rule or None
    declared : Schema
        The whole schema, with all columns that rules name.
    random_state : int
    persons : tuple of two ndarrays of int, default=None
        The person of each row of both tables, if a person has several rows: all of them are in one
        half of the real table, and in one fold of a classifier.

    Returns
    -------
    dict
    """
    halves = _halves(real, random_state, None if persons is None else persons[0])
    orders = {
        order: _marginals(real, synthetic, halves, schema, order, random_state)
        for order in (1, 2, 3)
        if len(schema) >= order
    }
    singles = orders[1]["distances"]
    columns = [
        {"name": name, "total_variation": singles[name]}
        | measure_column(real[name], synthetic[name], column)
        for name, column in schema.items()
    ]
    measures = {"columns": columns, "marginals": orders}
    if len(schema) > 1:
        measures["correlations"] = _correlations(real, synthetic, schema, singles)
    measures["distances"] = _distances(real, synthetic, halves, schema, random_state)
    measures["detection"] = {
        "auc": detection_auc(
            real, synthetic, schema, most=_MOST_FEW, random_state=random_state, persons=persons
        ),
        # The ratio is relative to that of independent rows.
        "pmse_ratio": _propensity(real, synthetic, schema) if persons is None else None,
        "n": min(len(real), len(synthetic), _MOST_FEW),
    }
    if target is not None:
        measures["downstream"] = downstream_scores(
            real, synthetic, schema, target, random_state=random_state, persons=persons
        )
    if constraints:
        tables = {"real": real, "synthetic": synthetic}
        measures["rules"] = broken_shares(tables, constraints, declared)
    return measures


def _halves(real, random_state, persons):
    """Return two random halves of the real records, whose distance is that of equals."""
    if persons is not None:
        order = check_random_state(random_state).permutation(persons.max() + 1)
        is_first = order[persons] < len(order) / 2
        if 0 < is_first.sum() < len(real):
            return [real[mask].reset_index(drop=True) for mask in (is_first, ~is_first)]
    rows = check_random_state(random_state).permutation(len(real))
    middle = max(len(rows) // 2, 1)
    parts = rows[:middle], rows[middle:] if len(rows) > 1 else rows
    return [real.iloc[part].reset_index(drop=True) for part in parts]


def _marginals(real, synthetic, halves, schema, order, random_state):
    options = {"order": order, "n_bins": _BINS, "random_state": random_state}
    if order > 1:
        options["max_groups"] = _MOST_GROUPS
    distances = marginal_total_variation(real, synthetic, schema, **options)
    first, second = halves
    floor = marginal_total_variation(first, second, schema, **options)
    worst = distances.nlargest(_MOST_WORST)
    names = [name if isinstance(name, tuple) else (name,) for name in worst.index]
    measures = {
        "mean": float(distances.mean()),
        "floor": float(floor.mean()),
        "n": len(distances),
        "n_all": math.comb(len(schema), order),
        "worst": list(zip(names, map(float, worst), strict=True)),
    }
    if order == 1:
        measures["distances"] = {name: float(value) for name, value in distances.items()}
    return measures


def _correlations(real, synthetic, schema, singles):
    names = list(schema)
    if len(names) > _MOST_MAPPED:
        farthest = set(sorted(names, key=lambda name: -singles[name])[:_MOST_MAPPED])
        names = [name for name in names if name in farthest]
    part = Schema({name: schema[name] for name in names})
    k, tables = len(names), {}
    for label, frame in (("real", real), ("synthetic", synthetic)):
        matrix = np.full((k, k), np.nan)
        upper = np.triu_indices(k, 1)
        matrix[upper] = column_correlations(frame, part, _BINS)
        matrix.T[upper] = matrix[upper]
        tables[label] = matrix
    gaps = np.abs(tables["real"] - tables["synthetic"])
    return {"names": names, **tables, "mean": float(np.nanmean(gaps)), "n_columns": len(schema)}


def _distances(real, synthetic, halves, schema, random_state):
    """Return sliced Wasserstein distances of encoded records, of the tables and of the halves."""
    # A column of hundreds of labels would be most of the encoded features.
    kept = [c for c in schema.items() if c[1].domain.n_features <= _MOST_LABELS]
    if not kept:
        return None

    def cloud(frame):
        part = frame.iloc[:_MOST_FEW]
        return np.hstack([column.encode(part[name]) for name, column in kept])

    def distance(pair):
        clouds = map(cloud, pair)
        return sliced_wasserstein_distance(*clouds, p=2, random_state=random_state)

    return {"sliced": distance((real, synthetic)), "floor": distance(halves)}


def _propensity(real, synthetic, schema):
    few = {n: c for n, c in schema.items() if c.domain.n_features <= _MOST_LABELS}
    varies = any(
        real[name].nunique(dropna=False) > 1 or synthetic[name].nunique(dropna=False) > 1
        for name in few
    )
    if not varies:
        return None
    n = min(len(real), len(synthetic), _MOST_FEW)
    return propensity_mse_ratio(real.iloc[:n], synthetic.iloc[:n], Schema(few))


# Categories of a column that gradient boosting supports.
_MOST_CATEGORIES = 255
_TEST_SHARE = 0.3
_SCORES = {"roc_auc": "area under the ROC curve", "accuracy": "accuracy", "r2": "R²"}


def _codes(frame, schema):
    """Return the category of each value, or its bin out of 255."""
    cells = [find_cells(frame[name], column, _MOST_CATEGORIES) for name, column in schema.items()]
    return np.column_stack(cells).astype(np.float64)


def _encoded(frame, schema):
    return np.hstack([column.encode(frame[name]) for name, column in schema.items()])


def _is_category(schema):
    kinds = Categorical | OpenCategorical
    return [
        isinstance(column, kinds) and column.n_categories <= _MOST_CATEGORIES
        for column in schema.values()
    ]


def detection_auc(real, synthetic, schema, *, most, random_state, persons=None):
    """Return the cross-validated AUC of gradient boosting on real against synthetic records.

    Parameters
    ----------
    real, synthetic : DataFrame
    schema : Schema
    most : int
        Largest number of rows of each table.
    random_state : int
    persons : tuple of two ndarrays of int, default=None
        The person of each row, whose rows are in one fold.

    Returns
    -------
    float
        The area under the ROC curve; 0.5 by guessing.
    """
    n = min(len(real), len(synthetic), most)
    X = np.vstack([_codes(frame.iloc[:n], schema) for frame in (real, synthetic)])
    y = np.repeat([0, 1], n)
    model = HistGradientBoostingClassifier(
        max_iter=60, categorical_features=_is_category(schema), random_state=random_state
    )
    split, groups = StratifiedKFold, None
    if persons is not None:
        split = StratifiedGroupKFold
        groups = np.concatenate([persons[0][:n], persons[1][:n] + persons[0].max() + 1])
    folds = split(3, shuffle=True, random_state=random_state)
    scores = cross_val_predict(model, X, y, cv=folds, groups=groups, method="predict_proba")[:, 1]
    return float(roc_auc_score(y, scores))


def downstream_scores(real, synthetic, schema, target, *, random_state, persons=None):
    """Train on synthetic and on real records, and test on other real ones.

    Parameters
    ----------
    real, synthetic : DataFrame
    schema : Schema
    target : str
    random_state : int
        Seed of the split of the real records.
    persons : tuple of two ndarrays of int, default=None
        The person of each row; all rows of a person are in one part.

    Returns
    -------
    dict or None
        ``"score"``, its name; ``"models"``, a list of (name, score of training on synthetic, on
        real records); ``"constant"``, the score of a constant prediction; and numbers of records.
        None if there are too few records or target values.
    """
    column = schema[target]
    features = {name: c for name, c in schema.items() if name != target}
    frames = [f.loc[f[target].notna(), list(schema)] for f in (real, synthetic)]
    if not features or min(map(len, frames)) < 10:
        return None
    if persons is None:
        train, test = train_test_split(frames[0], test_size=_TEST_SHARE, random_state=random_state)
    else:
        split = GroupShuffleSplit(1, test_size=_TEST_SHARE, random_state=random_state)
        groups = persons[0][real[target].notna().to_numpy()]
        if len(np.unique(groups)) < 2:
            return None
        train, test = (frames[0].iloc[part] for part in next(split.split(groups, groups=groups)))
    is_number = isinstance(column, Numeric)
    if min(part[target].nunique() for part in ([test] if is_number else [train, test])) < 2:
        return None
    # A rare label may be in one part alone, and the area is that of two classes.
    n_labels = len({label for frame in frames for label in frame[target].unique()})
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


def broken_shares(frames, constraints, schema):
    """Return the share of the records of each table that break each rule.

    Parameters
    ----------
    frames : dict of str to DataFrame
        Tables that fit the schema.
    constraints : sequence of Rule
    schema : Schema

    Returns
    -------
    list of dict
        For each rule its ``"rule"`` in words, and the share by the name of the table.
    """
    measures = []
    for rule in constraints:
        rules = TableRules([rule], schema)
        shares = {name: float(broken(rules, frame).mean()) for name, frame in frames.items()}
        measures.append({"rule": rule_words(rule, Scope(schema))} | shares)
    return measures


def rule_words(rule, scope):
    """Return a rule in words; the scope knows its columns."""
    if isinstance(rule, Inequality):
        return clean(f"{rule.low} {'<' if rule.strict else '≤'} {rule.high}")
    if isinstance(rule, Implication):
        return clean(shown_rule(rule, scope))
    if isinstance(rule, FunctionalDependency):
        return clean(f"{rule.column} is looked up by {', '.join(rule.given)}")
    return clean(f"{rule.total} = {' + '.join(rule.parts)}")
