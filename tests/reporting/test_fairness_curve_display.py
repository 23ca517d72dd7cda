"""Scores against fairness: the points are what scikit-learn and fairlearn say."""

import numpy as np
import pytest
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.linear_model import LinearRegression, LogisticRegression, Ridge
from sklearn.metrics import accuracy_score, make_scorer, r2_score, roc_auc_score

from sklearn_dpgen.datasets import make_biased_labels
from sklearn_dpgen.metrics import disparate_impact, group_wasserstein_distance
from sklearn_dpgen.reporting import FairnessCurveDisplay

pyplot = pytest.importorskip("matplotlib.pyplot")

DATA = make_biased_labels(800, random_state=0)
GROUPS = {"sensitive_features": DATA.sensitive}
MODELS = {f"C={C:g}": LogisticRegression(C=C).fit(DATA.X, DATA.y) for C in (1e-4, 1e-3, 1.0)}


class Thresholds(ClassifierMixin, BaseEstimator):
    """A threshold for each group, as post-processing has."""

    def __init__(self, model, gap):
        self.model = model
        self.gap = gap
        self.classes_ = model.classes_

    def predict(self, X, *, sensitive_features):
        favoured = np.asarray(sensitive_features) == 1
        return (self.model.predict_proba(X)[:, 1] > 0.5 + self.gap * favoured).astype(int)


@pytest.fixture(autouse=True)
def figures():
    pyplot.switch_backend("agg")
    yield
    pyplot.close("all")


def points_of(display):
    (line,) = display.lines_
    return np.transpose(line.get_data())


def test_a_point_an_estimator_in_the_order_given():
    display = FairnessCurveDisplay.from_estimators(MODELS, DATA.X, DATA.y, **GROUPS, name="a dial")
    expected = []
    for model in MODELS.values():
        decided = model.predict(DATA.X)
        ratio = disparate_impact(None, decided, **GROUPS)
        expected.append([min(ratio, 1 / ratio), accuracy_score(DATA.y, decided)])
    np.testing.assert_allclose(points_of(display), expected)
    assert [text.get_text() for text in display.texts_] == list(MODELS)
    assert display.ax_.get_ylabel() == "accuracy"
    assert display.ax_.get_legend().get_texts()[0].get_text() == "a dial"


def test_other_metrics_and_scorers():
    fairlearn = pytest.importorskip("fairlearn.metrics")
    display = FairnessCurveDisplay.from_estimators(
        list(MODELS.values()),
        DATA.X,
        DATA.y,
        **GROUPS,
        fairness_metric=fairlearn.demographic_parity_difference,
        scoring="roc_auc",
    )
    expected = [
        [
            fairlearn.demographic_parity_difference(DATA.y, model.predict(DATA.X), **GROUPS),
            roc_auc_score(DATA.y, model.predict_proba(DATA.X)[:, 1]),
        ]
        for model in MODELS.values()
    ]
    np.testing.assert_allclose(points_of(display), expected)
    assert display.ax_.get_xlabel() == "demographic parity difference"
    assert display.ax_.get_ylabel() == "roc auc"
    assert display.ax_.get_legend() is None


def test_probabilities_are_compared_by_their_distance():
    display = FairnessCurveDisplay.from_estimators(
        MODELS, DATA.X, DATA.y, **GROUPS, response_method="predict_proba"
    )
    expected = [
        group_wasserstein_distance(None, model.predict_proba(DATA.X)[:, 1], **GROUPS)
        for model in MODELS.values()
    ]
    np.testing.assert_allclose(points_of(display)[:, 0], expected)


def test_estimators_that_take_groups_get_them():
    model = MODELS["C=1"]
    dial = [Thresholds(model, gap) for gap in (0.0, 0.2, 0.4)]
    display = FairnessCurveDisplay.from_estimators(dial, DATA.X, DATA.y, **GROUPS)
    expected = []
    for stop in dial:
        decided = stop.predict(DATA.X, **GROUPS)
        rates = [decided[DATA.sensitive == code].mean() for code in (0, 1)]
        expected.append([min(rates) / max(rates), accuracy_score(DATA.y, decided)])
    np.testing.assert_allclose(points_of(display), expected)
    assert points_of(display)[2, 0] > points_of(display)[0, 0]


def test_regressors():
    y = DATA.X[:, 0] + DATA.sensitive
    models = [LinearRegression().fit(DATA.X, y), Ridge(1e4).fit(DATA.X, y)]
    display = FairnessCurveDisplay.from_estimators(models, DATA.X, y, **GROUPS)
    expected = [
        [
            group_wasserstein_distance(None, model.predict(DATA.X), **GROUPS),
            r2_score(y, model.predict(DATA.X)),
        ]
        for model in models
    ]
    np.testing.assert_allclose(points_of(display), expected)
    assert display.ax_.get_ylabel() == "r2"


def test_text_labels_and_no_positive_decision():
    words = np.array(["no", "yes"])[DATA.y]
    model = LogisticRegression().fit(DATA.X, words)
    options = GROUPS | {"scoring": make_scorer(accuracy_score)}
    display = FairnessCurveDisplay.from_estimators([model], DATA.X, words, **options)
    same = FairnessCurveDisplay.from_estimators([MODELS["C=1"]], DATA.X, DATA.y, **options)
    np.testing.assert_allclose(points_of(display), points_of(same))
    assert display.ax_.get_ylabel() == "score"
    other = FairnessCurveDisplay.from_estimators([model], DATA.X, words, **options, pos_label="no")
    assert points_of(other)[0, 0] != points_of(display)[0, 0]
    never = Thresholds(MODELS["C=1"], 0.0)
    nobody = FairnessCurveDisplay.from_estimators(
        [never], DATA.X - 100 * MODELS["C=1"].coef_, DATA.y, **GROUPS
    )
    assert np.isnan(nobody.fairness[0])


def test_numbers_and_curves_on_the_same_axes():
    axis = pyplot.subplots()[1]
    first = FairnessCurveDisplay(
        [0.4, 0.8], [0.9, 0.85], point_labels=["a", "b"], name="one", score_name="accuracy"
    ).plot(axis)
    second = FairnessCurveDisplay([0.5, 0.9], [0.8, 0.79], name="two").plot(
        axis, linestyle="--", marker="s"
    )
    assert first.ax_ is second.ax_ is axis
    assert first.figure_ is axis.figure
    assert [line.get_linestyle() for line in axis.lines] == ["-", "--"]
    assert [text.get_text() for text in axis.get_legend().get_texts()] == ["one", "two"]
    assert first.texts_[1].xy == (0.8, 0.85)
    with pytest.raises(ValueError, match="zip"):
        FairnessCurveDisplay([0.5, 0.9], [0.8, 0.79], point_labels=["a"]).plot()


def test_errors():
    with pytest.raises(ValueError, match="estimators must not be empty"):
        FairnessCurveDisplay.from_estimators([], DATA.X, DATA.y, **GROUPS)
    with pytest.raises(ValueError, match="at least two groups"):
        FairnessCurveDisplay.from_estimators(
            MODELS, DATA.X, DATA.y, sensitive_features=np.zeros(800)
        )
