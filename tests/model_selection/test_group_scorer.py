"""Searches of scikit-learn over estimators that predict by group."""

import numpy as np
import pandas as pd
import pytest
import sklearn
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.metrics import accuracy_score, make_scorer, roc_auc_score
from sklearn.model_selection import GridSearchCV, KFold, cross_validate
from sklearn.pipeline import Pipeline

from sklearn_dpgen.datasets import make_biased_labels
from sklearn_dpgen.metrics import disparate_impact, group_wasserstein_distance
from sklearn_dpgen.model_selection import group_scorer
from sklearn_dpgen.nn import Training
from sklearn_dpgen.predictors import BarycenterClassifier, BarycenterRegressor
from sklearn_dpgen.preprocessing import TabularEncoder
from sklearn_dpgen.schema import Numeric, Schema
from sklearn_dpgen.sliced import (
    DPSlicedWassersteinFairClassifier,
    DPSlicedWassersteinFairRegressor,
)

DATA = make_biased_labels(600, random_state=0)
VALUES = np.clip(0.6 * DATA.y + 0.4 * DATA.X[:, 0], 0, 1)
GROUPS = {"sensitive_features": DATA.sensitive}
SHORT = {"training": Training(max_iter=3), "epsilon": np.inf, "random_state": 0}
NAMES = [f"x{i}" for i in range(DATA.X.shape[1])]
ENCODER = TabularEncoder(Schema({name: Numeric(-5, 5) for name in NAMES}))

# Before 1.8, scikit-learn passed no groups to the score of a pipeline unless a scorer was given.
SCORES_PIPELINES = tuple(map(int, sklearn.__version__.split(".")[:2])) >= (1, 8)

# The estimator, the target, and the parameter of the search.
MODELS = {
    "barycenter": (
        BarycenterClassifier(LogisticRegression(), epsilon=np.inf, random_state=0),
        DATA.y,
        {"min_ratio": [0.2, 1.0]},
    ),
    "barycenter of numbers": (
        BarycenterRegressor(LinearRegression(), y_domain=(0, 1), epsilon=np.inf, random_state=0),
        VALUES,
        {"max_gap": [0.5, 0.0]},
    ),
    "penalty": (DPSlicedWassersteinFairClassifier(**SHORT), DATA.y, {"alpha": [0.0, 0.9]}),
    "penalty of numbers": (
        DPSlicedWassersteinFairRegressor(y_domain=(0, 1), **SHORT),
        VALUES,
        {"alpha": [0.0, 0.9]},
    ),
}


@pytest.fixture
def routed():
    with sklearn.config_context(enable_metadata_routing=True):
        yield


def model_of(name):
    model, y, grid = MODELS[name]
    return sklearn.base.clone(model).set_fit_request(sensitive_features=True), y, grid


@pytest.mark.usefixtures("routed")
@pytest.mark.parametrize("in_pipeline", [False, True])
@pytest.mark.parametrize("name", MODELS)
def test_a_search_over_each_fair_estimator_scores(name, in_pipeline):
    model, y, grid = model_of(name)
    X = DATA.X
    if in_pipeline:
        X = pd.DataFrame(X, columns=NAMES)
        model = Pipeline([("encode", ENCODER), ("fair", model)])
        grid = {f"fair__{key}": values for key, values in grid.items()}
    named = ["accuracy", "roc_auc", "neg_log_loss"] if y is DATA.y else ["r2"]
    scoring = {each: group_scorer(each) for each in named}
    scoring["distance"] = group_scorer(group_wasserstein_distance, greater_is_better=False)
    search = GridSearchCV(model, grid, scoring=scoring, refit=named[0], cv=2, error_score="raise")
    search.fit(X, y, **GROUPS)
    found = {key: search.cv_results_[f"mean_test_{key}"] for key in scoring}
    assert all(np.isfinite(scores).all() for scores in found.values())
    if "barycenter" in name:
        # More parity, by the second value of each grid.
        assert found["distance"][1] > found["distance"][0]
        assert found[named[0]][1] < found[named[0]][0]


@pytest.mark.usefixtures("routed")
def test_the_predictions_of_a_fold_get_its_groups():
    model, y, _ = model_of("barycenter")
    folds = KFold(3)
    scores = cross_validate(
        model,
        DATA.X,
        y,
        cv=folds,
        scoring={
            "accuracy": group_scorer("accuracy"),
            "hits": group_scorer(accuracy_score),
            "auc": group_scorer(roc_auc_score, response_method="predict_proba"),
            "impact": group_scorer(disparate_impact, pos_label=0),
        },
        params=GROUPS,
        error_score="raise",
        return_estimator=True,
    )
    for fold, (_, rows) in enumerate(folds.split(DATA.X)):
        fitted, own = scores["estimator"][fold], {"sensitive_features": DATA.sensitive[rows]}
        decided = fitted.predict(DATA.X[rows], **own)
        expected = {
            "accuracy": accuracy_score(y[rows], decided),
            "hits": accuracy_score(y[rows], decided),
            "auc": roc_auc_score(y[rows], fitted.predict_proba(DATA.X[rows], **own)[:, 1]),
            "impact": disparate_impact(y[rows], decided, pos_label=0, **own),
        }
        for name, value in expected.items():
            assert scores[f"test_{name}"][fold] == pytest.approx(value)


@pytest.mark.usefixtures("routed")
@pytest.mark.filterwarnings("ignore:One or more of the test scores are non-finite")
@pytest.mark.parametrize(
    "scoring", ["accuracy", "roc_auc", make_scorer(accuracy_score)], ids=["label", "score", "made"]
)
def test_scorers_of_scikit_learn_say_what_to_use(scoring):
    """The negative twin: they predict without groups, which scikit-learn turns into NaN."""
    model, y, grid = model_of("barycenter")
    search = GridSearchCV(model, grid, scoring=scoring, cv=2, error_score="raise")
    with pytest.raises(ValueError, match=r"model_selection\.group_scorer"):
        search.fit(DATA.X, y, **GROUPS)
    search.set_params(error_score=np.nan)
    with pytest.warns(UserWarning, match=r"model_selection\.group_scorer"):
        search.fit(DATA.X, y, **GROUPS)
    assert np.isnan(search.cv_results_["mean_test_score"]).all()


@pytest.mark.usefixtures("routed")
@pytest.mark.filterwarnings("ignore:One or more of the test scores are non-finite")
def test_a_request_of_a_plain_scorer_reaches_its_metric_alone():
    """The limit of scikit-learn that group_scorer is for: predictions get no metadata."""
    model, y, grid = model_of("barycenter")

    def blind(y_true, y_pred, *, sensitive_features):
        raise AssertionError("rows were predicted without groups")

    scoring = make_scorer(blind).set_score_request(sensitive_features=True)
    search = GridSearchCV(model, grid, scoring=scoring, cv=2)
    with pytest.warns(UserWarning, match=r"(?s)must be given.*set_score_request"):
        search.fit(DATA.X, y, **GROUPS)
    assert np.isnan(search.cv_results_["mean_test_score"]).all()


@pytest.mark.usefixtures("routed")
@pytest.mark.parametrize("in_pipeline", [False, True])
@pytest.mark.parametrize("name", MODELS)
def test_the_score_of_an_estimator_needs_no_scorer(name, in_pipeline):
    model, y, grid = model_of(name)
    X, scorer = DATA.X, group_scorer("accuracy" if y is DATA.y else "r2")
    if in_pipeline:
        model = Pipeline([("same", "passthrough"), ("fair", model)])
        grid = {f"fair__{key}": values for key, values in grid.items()}
    last = model[-1] if in_pipeline else model
    if "barycenter" in name:
        # Without the request a search is refused, at once unless a pipeline is scored.
        refused = GridSearchCV(model, grid, cv=2, **{"error_score": "raise"} if in_pipeline else {})
        with pytest.raises(ValueError, match=r"set_score_request"):
            refused.fit(X, y, **GROUPS)
        last.set_score_request(sensitive_features=True)

    def scores(scoring):
        search = GridSearchCV(model, grid, scoring=scoring, cv=2, error_score="raise")
        return search.fit(X, y, **GROUPS).cv_results_["mean_test_score"]

    second = scores(scorer)
    if in_pipeline and "barycenter" in name and not SCORES_PIPELINES:
        with pytest.raises(ValueError, match="score by sklearn_dpgen.model_selection.group_scorer"):
            scores(None)
        return
    first = scores(None)
    np.testing.assert_array_equal(first, second)
    assert np.isfinite(first).all()


@pytest.mark.usefixtures("routed")
def test_a_fit_without_a_request_is_refused_by_scikit_learn():
    model, y, grid = MODELS["barycenter"]
    search = GridSearchCV(model, grid, scoring=group_scorer("accuracy"), cv=2)
    with pytest.raises(ValueError, match="set_fit_request"):
        search.fit(DATA.X, y, **GROUPS)


def test_without_routing_there_is_no_such_scorer():
    with pytest.raises(RuntimeError, match="enable_metadata_routing=True"):
        group_scorer("accuracy")


@pytest.mark.usefixtures("routed")
@pytest.mark.parametrize(
    ("scoring", "options", "message"),
    [
        ("no such score", {}, "no such score"),
        ("accuracy", {"greater_is_better": False}, "options are for a metric"),
        (3, {}, "scoring must be the name of a scorer or a metric"),
    ],
)
def test_what_is_no_score_is_refused(scoring, options, message):
    with pytest.raises(ValueError, match=message):
        group_scorer(scoring, **options)


@pytest.mark.usefixtures("routed")
def test_a_fold_without_positives_has_the_stated_ratio():
    """Most labels are 0, so that a fold without penalty predicts nobody."""
    y = np.arange(len(DATA.X)) % 60 == 0
    values = {
        value: cross_validate(
            LogisticRegression(C=1e-6),
            DATA.X,
            y.astype(int),
            scoring=group_scorer(disparate_impact, zero_division=value),
            params=GROUPS,
            cv=KFold(2),
            error_score="raise",
        )["test_score"]
        for value in (1.0, 0.0, np.nan)
    }
    for value, scores in values.items():
        np.testing.assert_array_equal(scores, [value, value])
