"""Thresholds of fairlearn after a private classifier, chosen on synthetic rows."""

import numpy as np
import pandas as pd
import pytest
from sklearn.pipeline import Pipeline

from sklearn_dpgen.metrics import disparate_impact
from sklearn_dpgen.nn import Training
from sklearn_dpgen.preprocessing import TabularEncoder
from sklearn_dpgen.reporting import FairnessCurveDisplay
from sklearn_dpgen.schema import Categorical, Numeric, Schema
from sklearn_dpgen.sliced import DPSlicedWassersteinFairClassifier
from sklearn_dpgen.tables import TableSampler

fairlearn = pytest.importorskip("fairlearn.postprocessing")

FEATURES = ["income", "years"]
SCHEMA = Schema(
    {
        "income": Numeric(0, 100),
        "years": Numeric(0, 50, integer=True),
        "region": Categorical(["north", "south"]),
        "approved": Categorical([0, 1]),
    }
)


def draw(n, seed):
    rng = np.random.default_rng(seed)
    south = rng.uniform(size=n) < 0.5
    income = rng.normal(35 + 20 * south, 15).clip(0, 100)
    years = rng.integers(0, 50, size=n)
    return pd.DataFrame(
        {
            "income": income,
            "years": years,
            "region": np.where(south, "south", "north"),
            "approved": (income + years + rng.normal(0, 10, size=n) > 70).astype(int),
        }
    )


@pytest.fixture(scope="module")
def records():
    return draw(4000, seed=0), draw(4000, seed=1)


@pytest.fixture(scope="module")
def classifier(records):
    train, _ = records
    schema = Schema({name: SCHEMA[name] for name in FEATURES})
    steps = [
        ("encode", TabularEncoder(schema)),
        (
            "classify",
            DPSlicedWassersteinFairClassifier(
                0.0,
                epsilon=1.0,
                classes=[0, 1],
                training=Training(hidden_layer_sizes=(), learning_rate=0.1, max_iter=100),
                random_state=0,
            ),
        ),
    ]
    return Pipeline(steps).fit(train[FEATURES], train["approved"])


@pytest.fixture(scope="module")
def synthetic(records):
    sampler = TableSampler(1.0, schema=SCHEMA, target="approved", random_state=0)
    return sampler.fit(records[0]).sample(4000, random_state=0)


def fit_thresholds(classifier, rows, **options):
    optimizer = fairlearn.ThresholdOptimizer(estimator=classifier, prefit=True, **options)
    return optimizer.fit(rows[FEATURES], rows["approved"], sensitive_features=rows["region"])


def folded(ratio):
    return min(ratio, 1 / ratio)


@pytest.mark.parametrize("method", ["predict_proba", "predict"])
def test_thresholds_of_synthetic_rows_serve_real_ones(records, classifier, synthetic, method):
    _, test = records
    optimizer = fit_thresholds(classifier, synthetic, predict_method=method)
    assert optimizer.estimator_ is classifier
    region = test["region"]
    before = classifier.predict(test[FEATURES])
    after = optimizer.predict(test[FEATURES], sensitive_features=region, random_state=0)
    assert folded(disparate_impact(None, before, sensitive_features=region)) < 0.7
    assert folded(disparate_impact(None, after, sensitive_features=region)) > 0.85
    truth = test["approved"]
    assert np.mean(after == truth) > np.mean(before == truth) - 0.12


def test_the_curve_shows_them_beside_ours(records, classifier, synthetic):
    pyplot = pytest.importorskip("matplotlib.pyplot")
    pyplot.switch_backend("agg")
    _, test = records
    models = {
        "private": classifier,
        "with thresholds": fit_thresholds(classifier, synthetic, predict_method="predict_proba"),
    }
    display = FairnessCurveDisplay.from_estimators(
        models, test[FEATURES], test["approved"], sensitive_features=test["region"]
    )
    pyplot.close(display.figure_)
    before, after = display.fairness
    assert before < 0.7
    assert after > 0.85
