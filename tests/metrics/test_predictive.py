import numpy as np
import pandas as pd
import pytest
from sklearn.compose import make_column_transformer
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.metrics import roc_auc_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder

from sklearn_dpgen.metrics import train_synthetic_test_real


def table(n=200, seed=0):
    rng = np.random.RandomState(seed)
    age = rng.uniform(20, 80, n)
    visits = rng.poisson(age / 20)
    plan = rng.choice(["free", "shared"], n)
    return pd.DataFrame({"visits": visits, "age": age, "plan": plan})


def busy(visits):
    return visits > 2


def classifier():
    encoder = make_column_transformer((OneHotEncoder(), ["plan"]), remainder="passthrough")
    return make_pipeline(encoder, LogisticRegression(max_iter=1000))


def test_equals_the_explicit_computation():
    synthetic, real = table(seed=0), table(seed=1)
    estimator = classifier()
    value = train_synthetic_test_real(
        estimator,
        synthetic,
        real[["plan", "age", "visits"]],
        target="visits",
        target_transform=busy,
    )
    fitted = classifier().fit(synthetic[["age", "plan"]], synthetic["visits"] > 2)
    expected = roc_auc_score(real["visits"] > 2, fitted.predict_proba(real[["age", "plan"]])[:, 1])
    np.testing.assert_allclose(value, expected)
    assert value > 0.6
    assert not hasattr(estimator[-1], "coef_")


def test_flipped_synthetic_labels_flip_the_ranking_of_real_records():
    synthetic, real = (table(seed=s).assign(visits=lambda t: busy(t["visits"])) for s in (0, 1))
    flipped = synthetic.assign(visits=~synthetic["visits"])
    straight, reverse = (
        train_synthetic_test_real(classifier(), frame, real, target="visits")
        for frame in (synthetic, flipped)
    )
    np.testing.assert_allclose(straight + reverse, 1)
    assert straight > 0.6


def test_regression_and_several_scorers():
    value = train_synthetic_test_real(
        LinearRegression(),
        table()[["age", "visits"]],
        table(seed=1)[["age", "visits"]],
        target="visits",
        scoring=["r2", "neg_mean_absolute_error"],
    )
    assert set(value) == {"r2", "neg_mean_absolute_error"}
    assert 0 < value["r2"] < 1


def test_target_never_is_a_feature():
    class Spy(LinearRegression):
        def fit(self, X, y):
            assert list(X.columns) == ["age"]
            return super().fit(X, y)

    frame = table()[["age", "visits"]]
    train_synthetic_test_real(Spy(), frame, frame, target="visits", scoring="r2")


@pytest.mark.parametrize("transform", [None, lambda income: np.asarray(income) == "high"])
@pytest.mark.parametrize(("scoring", "expected"), [("roc_auc", 0.5), ("accuracy", 0.75)])
def test_one_synthetic_class_scores_the_constant_prediction(scoring, expected, transform):
    synthetic = pd.DataFrame({"age": [20, 30], "income": ["low", "low"]})
    real = pd.DataFrame({"age": [20, 30, 40, 50], "income": ["low", "low", "low", "high"]})
    with pytest.warns(UserWarning, match="'income' has a single class"):
        value = train_synthetic_test_real(
            LogisticRegression(),
            synthetic,
            real,
            target="income",
            scoring=scoring,
            target_transform=transform,
        )
    assert value == expected


def test_errors_name_the_column():
    frame = table()
    with pytest.raises(ValueError, match="target must be a column.*'cost'"):
        train_synthetic_test_real(classifier(), frame, frame, target="cost")
    with pytest.raises(ValueError, match=r"must have the same columns, got \['plan'\] in one only"):
        train_synthetic_test_real(classifier(), frame, frame.drop(columns="plan"), target="visits")
