"""Predictors of synthetic rows within scikit-learn's tools, and its tools within them."""

import numpy as np
import pandas as pd
import pytest
from fixed_samplers import LABELS, fixed, records
from sklearn.base import BaseEstimator, ClassifierMixin, clone
from sklearn.calibration import CalibratedClassifierCV
from sklearn.compose import make_column_transformer
from sklearn.ensemble import RandomForestClassifier
from sklearn.exceptions import NotFittedError
from sklearn.frozen import FrozenEstimator
from sklearn.inspection import permutation_importance
from sklearn.linear_model import LogisticRegression, Perceptron, Ridge
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, StandardScaler
from sklearn.tree import DecisionTreeClassifier

from sklearn_dpgen.ledger import PrivacyLedger
from sklearn_dpgen.schema import Categorical, Datetime, Numeric, Ordinal
from sklearn_dpgen.tables import SyntheticDataClassifier, SyntheticDataRegressor

X, Y = records()


class Votes(ClassifierMixin, BaseEstimator):
    """A classifier without probabilities and decisions: a threshold for each of three labels."""

    def fit(self, X, y):
        self.ends_ = [np.max(X[y == label, 0]) for label in LABELS[:2]]
        return self

    def predict(self, X):
        return np.array(LABELS)[np.searchsorted(self.ends_, X[:, 0])]


def model(estimator=None, sampler=None, **params):
    given = {"n_samples": 200, "n_draws": 2, "random_state": 0} | params
    estimator = LogisticRegression() if estimator is None else estimator
    return SyntheticDataClassifier(sampler or fixed(), estimator, **given)


@pytest.mark.parametrize(
    "estimator",
    [
        make_pipeline(StandardScaler(), LogisticRegression()),
        GridSearchCV(LogisticRegression(), {"C": [0.1, 10.0]}, cv=2),
        CalibratedClassifierCV(Perceptron(), cv=2),
        RandomForestClassifier(5),
        Perceptron(),
        Votes(),
    ],
    ids=lambda estimator: type(estimator).__name__,
)
def test_any_classifier_within(estimator):
    fitted = model(estimator, n_samples=400).fit(X, Y)
    assert fitted.score(X, Y) > 0.6
    assert fitted.classes_.tolist() == list(LABELS)
    assert hasattr(fitted, "predict_proba") == hasattr(estimator, "predict_proba")
    if hasattr(fitted, "predict_proba"):
        laws = fitted.predict_proba(X)
        np.testing.assert_allclose(laws.sum(axis=1), 1)
        expected = np.mean(
            [e.predict_proba(2 * X.to_numpy() - 1) for e in fitted.estimators_], axis=0
        )
        np.testing.assert_allclose(laws, expected)
        np.testing.assert_array_equal(fitted.predict(X), fitted.classes_[laws.argmax(axis=1)])


def test_a_pipeline_within_may_have_the_frame_as_it_is():
    columns = make_column_transformer((StandardScaler(), ["x"]))
    fitted = model(make_pipeline(columns, LogisticRegression()), encode=False).fit(X, Y)
    assert fitted.score(X, Y) > 0.7


def test_at_the_end_of_a_pipeline():
    public = FunctionTransformer(lambda frame: frame.clip(0, 1))
    fitted = make_pipeline(public, model()).fit(X, Y)
    np.testing.assert_array_equal(fitted.predict(X), model().fit(X, Y).predict(X))
    assert fitted[-1].privacy_.epsilon == 1.0


def test_searches_reach_the_sampler_and_the_estimator():
    grid = {"sampler__budget": [0.5, 2.0], "estimator__C": [0.1, 10.0], "n_draws": [1]}
    search = GridSearchCV(model(), grid, cv=2).fit(X, Y)
    best = search.best_estimator_
    assert best.privacy_.epsilon == search.best_params_["sampler__budget"]
    assert search.best_params_["estimator__C"] == best.estimators_[0].C
    assert cross_val_score(model(), X, Y, cv=2, scoring="roc_auc_ovr").mean() > 0.8


def test_calibration_and_importance_of_what_is_fitted():
    fitted = model().fit(X, Y)
    calibrated = CalibratedClassifierCV(FrozenEstimator(fitted)).fit(X, Y)
    np.testing.assert_allclose(calibrated.predict_proba(X).sum(axis=1), 1)
    found = permutation_importance(fitted, X, Y, n_repeats=2, random_state=0).importances_mean
    assert found[0] > 10 * abs(found[1])


def test_parameters_are_nested_and_cloned():
    made = model(Ridge()).set_params(sampler__rare=0.1, estimator__alpha=3.0)
    again = clone(made)
    assert again.get_params()["sampler__rare"] == 0.1
    assert again.get_params()["estimator__alpha"] == 3.0
    assert again.sampler is not made.sampler


def test_a_fitted_sampler_is_not_fitted_again(tmp_path):
    sampler = fixed().fit(X)
    frozen = model(sampler=FrozenEstimator(sampler))
    again = clone(frozen).fit(X.to_numpy() + np.nan, Y)  # not even read
    assert again.sampler_ is sampler
    assert again.privacy_ is sampler.privacy_ is frozen.plan()
    book = PrivacyLedger.create(tmp_path / "book", dataset="one", epsilon=1.0, delta=1e-3)
    with pytest.raises(ValueError, match="ledger must be None for a frozen sampler"):
        frozen.set_params(ledger=book).fit(X, Y)
    with pytest.raises(NotFittedError):
        model(sampler=FrozenEstimator(fixed())).fit(X, Y)


# What is given, and what comes back.


def test_frames_arrays_and_targets_by_name_are_one():
    expected = model().fit(X, Y).predict_proba(X)
    for given in ((X.to_numpy(), Y), (X.to_numpy().tolist(), Y.tolist()), (X.assign(y=Y),)):
        fitted = model().fit(*given)
        np.testing.assert_array_equal(fitted.predict_proba(X), expected)
        np.testing.assert_array_equal(fitted.predict_proba(X.to_numpy()), expected)
        assert fitted.n_features_in_ == 2
        assert hasattr(fitted, "feature_names_in_") == isinstance(given[0], pd.DataFrame)
    turned = X[["z", "x"]]
    fitted = model().fit(turned, Y)
    assert fitted.feature_names_in_.tolist() == ["z", "x"]
    np.testing.assert_allclose(fitted.predict_proba(X), fitted.predict_proba(turned.to_numpy()))


def test_a_draw_that_lacks_a_label_is_lent_one():
    sampler = fixed(rare=0.004)
    fitted = model(DecisionTreeClassifier(), sampler, n_samples=60, n_draws=8).fit(X, Y)
    missing = ["top" not in set(sampler.sample(60, random_state=seed)["y"]) for seed in range(50)]
    assert 0 < sum(missing) < len(missing)
    assert fitted.classes_.tolist() == list(LABELS)
    assert all(each.classes_.tolist() == list(LABELS) for each in fitted.estimators_)
    assert fitted.predict_proba(X).shape == (len(X), 3)


@pytest.mark.parametrize(("n_records", "expected"), [(100, 5000), (7000, 7000), (80_000, 50_000)])
def test_draws_are_as_large_as_the_table_within_bounds(n_records, expected):
    class Counting(Votes):
        def fit(self, X, y):
            self.n_ = len(X)
            return super().fit(X, y)

    frame = X.iloc[np.arange(n_records) % len(X)]
    fitted = model(Counting(), n_samples="auto").fit(frame, np.resize(Y, n_records))
    assert [each.n_ for each in fitted.estimators_] == [expected, expected]


def test_draws_differ_and_seeds_repeat_them():
    forest = RandomForestClassifier(3)
    first, again, other = (
        model(forest, random_state=seed).fit(X, Y).predict_proba(X) for seed in (0, 0, 1)
    )
    np.testing.assert_array_equal(first, again)
    assert np.abs(first - other).max() > 0
    fitted = model(forest).fit(X, Y)
    assert len({each.random_state for each in fitted.estimators_}) == 2
    assert forest.random_state is None
    kept = model(RandomForestClassifier(3, random_state=7)).fit(X, Y)
    assert {each.random_state for each in kept.estimators_} == {7}


@pytest.mark.parametrize(
    ("kind", "column", "match"),
    [
        (SyntheticDataClassifier, Numeric(0, 1), "labels or whole numbers.*Numeric"),
        (SyntheticDataClassifier, Datetime("2020-01-01", "2021-01-01"), "Datetime"),
        (SyntheticDataClassifier, Categorical([1, "a"]), "labels of one type"),
        (SyntheticDataRegressor, Categorical(["a", "b"]), "numbers for a regressor"),
        (SyntheticDataRegressor, Datetime("2020-01-01", "2021-01-01"), "Datetime"),
    ],
)
def test_a_target_that_cannot_be_learned_is_refused_before_it_is_paid_for(kind, column, match):
    made = kind(fixed(column))
    with pytest.raises(ValueError, match=f"'y' must have .*{match}|{match}"):
        made.fit(X, Y)
    assert not hasattr(made, "sampler_")
    with pytest.raises(ValueError, match=match):
        made.plan(10)
    SyntheticDataRegressor(fixed(Ordinal([1, 2])))._check_target("y", Ordinal([1, 2]))


def test_a_learner_of_the_other_kind_is_refused():
    made = SyntheticDataClassifier(fixed(Categorical([0, 1])), make_pipeline(Ridge()))
    with pytest.raises(ValueError, match="must be a classifier, got the regressor Pipeline"):
        made.plan(10)
    made = SyntheticDataRegressor(fixed(Numeric(0, 1)), LogisticRegression())
    with pytest.raises(ValueError, match="must be a regressor, got the classifier LogisticRegr"):
        made.plan(10)


def test_the_target_is_given_once():
    with pytest.raises(ValueError, match="y must be given, or X must have the target 'y'"):
        model().fit(X)
    with pytest.raises(ValueError, match="if y is given, got 'y'"):
        model().fit(X.assign(y=Y), Y)
    with pytest.raises(TypeError, match="two dimensions"):
        model().fit("records.csv", Y)
