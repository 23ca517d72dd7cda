"""The fairness metrics as scorers of a search, and in fairlearn's MetricFrame."""

import numpy as np
import pytest
import sklearn
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import make_scorer
from sklearn.model_selection import GridSearchCV, KFold, cross_validate

from sklearn_dpgen.datasets import make_biased_labels
from sklearn_dpgen.metrics import (
    disparate_impact,
    equalized_odds_ratios,
    group_wasserstein_distance,
    over_diagonal_rates,
)

DATA = make_biased_labels(600, random_state=0)
MODEL = LogisticRegression().fit(DATA.X, DATA.y)
SCORERS = {
    "impact": (disparate_impact, "predict", 1),
    "distance": (group_wasserstein_distance, "predict_proba", -1),
}


@pytest.fixture
def routed():
    with sklearn.config_context(enable_metadata_routing=True):
        yield


def scorer_of(name):
    metric, method, sign = SCORERS[name]
    scorer = make_scorer(metric, response_method=method, greater_is_better=sign > 0)
    return scorer.set_score_request(sensitive_features=True)


@pytest.mark.usefixtures("routed")
@pytest.mark.parametrize("name", SCORERS)
def test_a_scorer_reads_the_groups_of_its_fold(name):
    metric, method, sign = SCORERS[name]
    folds = KFold(3)
    scores = cross_validate(
        LogisticRegression(),
        DATA.X,
        DATA.y,
        cv=folds,
        scoring=scorer_of(name),
        params={"sensitive_features": DATA.sensitive},
        error_score="raise",
        return_estimator=True,
    )
    parts = [test for _, test in folds.split(DATA.X)]
    expected = []
    for part, model in zip(parts, scores["estimator"], strict=True):
        output = getattr(model, method)(DATA.X[part])
        output = output[:, 1] if output.ndim == 2 else output
        groups = DATA.sensitive[part]
        expected.append(sign * metric(DATA.y[part], output, sensitive_features=groups))
    np.testing.assert_allclose(scores["test_score"], expected)
    assert len(set(expected)) == 3


@pytest.mark.usefixtures("routed")
def test_a_search_looks_for_the_smaller_distance():
    # With hardly a weight all probabilities are alike.
    models = {"C": [1e-9, 1.0]}
    scorer = scorer_of("distance")
    search = GridSearchCV(LogisticRegression(), models, scoring=scorer, error_score="raise", cv=2)
    search.fit(DATA.X, DATA.y, sensitive_features=DATA.sensitive)
    weak, strong = search.cv_results_["mean_test_score"]
    assert strong < weak < 0
    assert search.best_params_ == {"C": 1e-9}


def test_frames_of_fairlearn_take_the_metrics():
    fairlearn = pytest.importorskip("fairlearn.metrics")
    region = np.arange(600) % 3
    predicted = MODEL.predict(DATA.X)
    frame = fairlearn.MetricFrame(
        metrics={"impact": disparate_impact, "distance": group_wasserstein_distance},
        y_true=DATA.y,
        y_pred=predicted,
        sensitive_features=region,
        sample_params={
            name: {"sensitive_features": DATA.sensitive} for name in ("impact", "distance")
        },
    )
    whole = {"sensitive_features": DATA.sensitive}
    assert frame.overall["impact"] == disparate_impact(DATA.y, predicted, **whole)
    for part in range(3):
        rows = region == part
        groups = DATA.sensitive[rows]
        row = frame.by_group.loc[part]
        expected = disparate_impact(DATA.y[rows], predicted[rows], sensitive_features=groups)
        assert row["impact"] == pytest.approx(expected)
        expected = fairlearn.demographic_parity_ratio(
            DATA.y[rows], predicted[rows], sensitive_features=groups
        )
        assert min(row["impact"], 1 / row["impact"]) == pytest.approx(expected)
        # Of decisions 0 and 1, W_2^2 is the difference of the rates.
        expected = fairlearn.demographic_parity_difference(
            DATA.y[rows], predicted[rows], sensitive_features=groups
        )
        assert row["distance"] ** 2 == pytest.approx(expected)
        odds = equalized_odds_ratios(DATA.y[rows], predicted[rows], sensitive_features=groups)
        assert np.minimum(odds, 1 / odds).min() == pytest.approx(
            fairlearn.equalized_odds_ratio(DATA.y[rows], predicted[rows], sensitive_features=groups)
        )


@pytest.mark.parametrize("metric", [disparate_impact, group_wasserstein_distance])
def test_a_truth_that_is_not_used_does_not_matter(metric):
    predicted = MODEL.predict(DATA.X)
    groups = {"sensitive_features": DATA.sensitive}
    # Sums of the same numbers differ in the last digits, by where they lie in memory.
    expected = pytest.approx(metric(None, predicted, **groups), rel=1e-12)
    assert metric(DATA.y, predicted, **groups) == expected
    outputs = np.column_stack([DATA.X[:, 0], predicted])
    pair = (over_diagonal_rates(truth, outputs, **groups) for truth in (None, DATA.y))
    np.testing.assert_array_equal(*pair)
