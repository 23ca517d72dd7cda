"""Laws of scores by group: what is drawn is what was counted."""

import sys

import numpy as np
import pandas as pd
import pytest
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import LinearSVC

from sklearn_dpgen.datasets import make_biased_labels
from sklearn_dpgen.metrics import disparate_impact, group_wasserstein_distance
from sklearn_dpgen.reporting import FairnessCurveDisplay, FairnessDisplay

pyplot = pytest.importorskip("matplotlib.pyplot")

DATA = make_biased_labels(800, random_state=0)
GROUPS = {"sensitive_features": DATA.sensitive}
MODEL = LogisticRegression().fit(DATA.X, DATA.y)
PROBABILITY = MODEL.predict_proba(DATA.X)[:, 1]


class Shifted(ClassifierMixin, BaseEstimator):
    """Probabilities that are moved by group: without groups there are none."""

    def fit(self, X, y):
        self.classes_ = np.array([0, 1])
        return self

    def predict_proba(self, X, *, sensitive_features):
        positive = np.clip(X[:, 0], 0.2, 0.5) + 0.3 * np.asarray(sensitive_features)
        return np.column_stack([1 - positive, positive])

    def predict(self, X, *, sensitive_features):
        positive = self.predict_proba(X, sensitive_features=sensitive_features)[:, 1]
        return (positive > 0.5).astype(int)


@pytest.fixture(autouse=True)
def figures():
    pyplot.switch_backend("agg")
    yield
    pyplot.close("all")


def area(line):
    """Return the area under a line of horizontal and vertical pieces."""
    x, y = line.get_data()
    return float(np.sum(np.diff(x) * y[1:]))


def test_densities_are_those_of_the_groups():
    display = FairnessDisplay.from_predictions(DATA.y, PROBABILITY, **GROUPS, bins=20)
    assert len(display.lines_) == 2
    for code, line in enumerate(display.lines_):
        x, y = line.get_data()
        heights, edges = np.histogram(
            PROBABILITY[DATA.sensitive == code], np.linspace(0, 1, 21), density=True
        )
        np.testing.assert_allclose(x, np.repeat(edges, 2))
        np.testing.assert_allclose(y[1:-1:2], heights)
        np.testing.assert_allclose(y[[0, -1]], 0)
        assert area(line) == pytest.approx(1)


def test_rates_are_marked_and_are_those_of_the_metric():
    display = FairnessDisplay.from_predictions(DATA.y, PROBABILITY, **GROUPS)
    decided = (PROBABILITY > 0.5).astype(int)
    expected = [decided[DATA.sensitive == code].mean() for code in range(2)]
    assert display.rates.to_dict() == pytest.approx(dict(enumerate(expected)))
    ratio = display.rates[0] / display.rates[1]
    assert ratio == pytest.approx(disparate_impact(DATA.y, decided, **GROUPS))
    texts = [text.get_text() for text in display.ax_.get_legend().get_texts()]
    assert texts == [f"{code}: {rate:.1%}" for code, rate in enumerate(expected)]
    # What is filled is the part of the law above the threshold.
    for filled, line in zip(display.ax_.collections, display.lines_, strict=True):
        points = filled.get_paths()[0].vertices
        assert points[:, 0].min() == 0.5
        assert points[:, 1].max() == line.get_ydata()[line.get_xdata() > 0.5].max()


@pytest.mark.parametrize(("threshold", "width"), [(-1.0, 1.0), (0.41, 0.59), (2.0, 0.0)])
def test_a_threshold_within_a_bin_or_beyond_all(threshold, width):
    display = FairnessDisplay(
        [np.array([0.5, 0.7]), np.array([0.5])], ["a", "b"], threshold=threshold
    )
    display.plot(bins=[0.0, 1.0])
    for filled, rate in zip(display.ax_.collections, display.rates, strict=True):
        boxes = [path.get_extents() for path in filled.get_paths() if len(path.vertices)]
        assert sum(box.width * box.height for box in boxes) == pytest.approx(width)
        assert rate == (threshold < 0.5)


def test_the_area_between_curves_of_rates_is_the_distance():
    display = FairnessDisplay.from_predictions(DATA.y, PROBABILITY, **GROUPS, kind="rate")
    x = display.lines_[0].get_xdata()
    first, second = (line.get_ydata() for line in display.lines_)
    between = np.trapezoid(np.abs(first - second), x)
    expected = group_wasserstein_distance(None, PROBABILITY, **GROUPS, p=1)
    assert between == pytest.approx(expected, abs=2e-3)
    # The points at the threshold.
    points = [line.get_data() for line in display.ax_.lines if line.get_marker() == "o"]
    assert [float(y[0]) for _, y in points] == pytest.approx(display.rates.tolist())
    assert all(x[0] == 0.5 for x, _ in points)


def test_rates_given_the_true_label():
    options = GROUPS | {"true_label": 1}
    display = FairnessDisplay.from_predictions(DATA.y, PROBABILITY, **options)
    rows = DATA.y == 1
    expected = [np.mean(PROBABILITY[rows & (DATA.sensitive == code)] > 0.5) for code in range(2)]
    assert display.rates.tolist() == pytest.approx(expected)
    whole = FairnessDisplay.from_predictions(None, PROBABILITY, **GROUPS)
    assert whole.rates.tolist() != pytest.approx(expected)


def test_what_an_estimator_is_asked():
    same = FairnessDisplay.from_predictions(DATA.y, PROBABILITY, **GROUPS)
    display = FairnessDisplay.from_estimator(MODEL, DATA.X, DATA.y, **GROUPS)
    assert display.rates.equals(same.rates)
    assert display.ax_.get_xlabel() == "probability of 1"
    other = FairnessDisplay.from_estimator(MODEL, DATA.X, **GROUPS, pos_label=0)
    np.testing.assert_allclose(other.scores[0], np.sort(1 - same.scores[0]))
    svm = LinearSVC(dual=False).fit(DATA.X, DATA.y)
    display = FairnessDisplay.from_estimator(svm, DATA.X, **GROUPS)
    assert display.threshold == 0
    assert display.ax_.get_xlabel() == "decision function of 1"
    zeros = FairnessDisplay.from_estimator(svm, DATA.X, **GROUPS, pos_label=0)
    assert (zeros.rates + display.rates).tolist() == pytest.approx([1, 1])
    display = FairnessDisplay.from_estimator(MODEL, DATA.X, **GROUPS, response_method="predict")
    assert [part.mean() for part in display.scores] == pytest.approx(same.rates.tolist())
    assert display.rates is None
    regressor = LinearRegression().fit(DATA.X, DATA.X[:, 0])
    display = FairnessDisplay.from_estimator(regressor, DATA.X, **GROUPS)
    assert (display.rates, display.ax_.get_xlabel()) == (None, "prediction")
    assert area(display.lines_[0]) == pytest.approx(1)
    display = FairnessDisplay.from_estimator(regressor, DATA.X, **GROUPS, threshold=0.25)
    assert display.rates[0] == np.mean(regressor.predict(DATA.X)[DATA.sensitive == 0] > 0.25)


@pytest.mark.parametrize(
    "wrap",
    [
        lambda model: model,
        FrozenEstimator,
        lambda model: make_pipeline("passthrough", model).fit(DATA.X, DATA.y),
    ],
    ids=["itself", "frozen", "pipeline"],
)
def test_an_estimator_that_takes_groups_gets_them(wrap):
    model = wrap(Shifted().fit(DATA.X, DATA.y))
    display = FairnessDisplay.from_estimator(model, DATA.X, **GROUPS, bins=50)
    assert display.scores[0].max() <= 0.5
    assert display.scores[1].min() >= 0.5
    assert display.rates[0] == 0


def test_a_pipeline_without_groups_is_not_given_them():
    pipeline = make_pipeline(StandardScaler(), LogisticRegression()).fit(DATA.X, DATA.y)
    display = FairnessDisplay.from_estimator(pipeline, DATA.X, **GROUPS)
    assert display.rates.between(0, 1).all()


def test_several_columns_and_classes():
    three = (DATA.X[:, 0] > 0).astype(int) + (DATA.X[:, 0] > 0.7)
    model = LogisticRegression().fit(DATA.X, np.array(["a", "b", "c"])[three])
    groups = pd.DataFrame({"group": DATA.sensitive, "half": np.arange(800) // 400})
    display = FairnessDisplay.from_estimator(
        model, DATA.X, sensitive_features=groups, pos_label="b", threshold=0.4
    )
    inside = (DATA.sensitive == 1) & (np.arange(800) >= 400)
    assert display.rates[1, 1] == np.mean(model.predict_proba(DATA.X)[inside, 1] > 0.4)
    assert display.ax_.get_legend().get_texts()[3].get_text().startswith("1, 1: ")
    with pytest.raises(ValueError, match="pos_label must be given for 3 classes"):
        FairnessDisplay.from_estimator(model, DATA.X, sensitive_features=groups)


def test_it_is_drawn_where_one_wants():
    figure, axis = pyplot.subplots()
    display = FairnessDisplay.from_estimator(
        MODEL, DATA.X, **GROUPS, ax=axis, linewidth=3, kind="rate", score_name="risk"
    )
    assert display.ax_ is axis
    assert display.figure_ is figure
    assert axis.get_xlabel() == "threshold of risk"
    assert {line.get_linewidth() for line in display.lines_} == {3}
    again = display.plot()
    assert again is display
    assert display.ax_ is not axis


def test_shared_axes_show_all_of_both():
    _, axes = pyplot.subplots(1, 2, sharey=True)
    for axis, scale in zip(axes, (1.0, 0.01), strict=True):
        display = FairnessDisplay([scale * PROBABILITY], ["all"]).plot(axis)
    assert display.lines_[0].get_ydata().max() == pytest.approx(30)
    assert axes[0].get_ylim()[0] == 0
    assert axes[0].get_ylim()[1] > 30


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"scores": [0.1, np.nan, 0.3, 0.4]}, "scores must hold finite real numbers"),
        ({"scores": np.ones((4, 2))}, "one dimension"),
        ({"sensitive_features": [0, 0, 0, 0]}, "at least two groups"),
        ({"sensitive_features": [0, 1]}, "2 rows for 4 samples"),
        ({"true_label": 1}, "true_label must occur in each group"),
        ({"true_label": 1, "y_true": None}, "requires the true labels"),
        ({"true_label": 1, "y_true": [0, 1]}, "y_true must have shape"),
        ({"kind": "bars"}, "kind must be 'density' or 'rate'"),
    ],
)
def test_errors(options, message):
    given = {
        "y_true": [1, 1, 0, 0],
        "scores": [0.1, 0.2, 0.3, 0.4],
        "sensitive_features": [0, 0, 1, 1],
    }
    with pytest.raises(ValueError, match=message):
        FairnessDisplay.from_predictions(**given | options)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"response_method": "transform"}, "response_method must be"),
        ({"pos_label": 7}, "pos_label must be one of the classes, got 7"),
    ],
)
def test_errors_about_an_estimator(options, message):
    with pytest.raises(ValueError, match=message):
        FairnessDisplay.from_estimator(MODEL, DATA.X, **GROUPS, **options)


def test_without_matplotlib_it_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.pyplot", None)
    message = r"requires matplotlib: pip install 'sklearn-dpgen\[reports\]'"
    with pytest.raises(ImportError, match=f"FairnessDisplay.plot {message}"):
        FairnessDisplay.from_predictions(DATA.y, PROBABILITY, **GROUPS)
    with pytest.raises(ImportError, match=f"FairnessCurveDisplay.plot {message}"):
        FairnessCurveDisplay([0.5], [0.8]).plot()
