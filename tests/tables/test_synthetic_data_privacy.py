"""Learners of synthetic rows never meet a record, whatever they are."""

import numpy as np
import pytest
from fixed_samplers import fixed, records
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.neighbors import KNeighborsClassifier

from sklearn_dpgen.schema import Numeric
from sklearn_dpgen.tables import SyntheticDataClassifier, SyntheticDataRegressor


class Peeking(SyntheticDataClassifier):
    """A broken variant, which learns from records once the sampler is fitted."""

    def fit(self, X, y=None):
        super().fit(X, y)
        for estimator in self.estimators_:
            estimator.fit(self._estimator_input(X), y)
        return self


class LearningLabels(SyntheticDataClassifier):
    """A broken variant, which takes its classes from records."""

    def fit(self, X, y=None):
        super().fit(X, y)
        self.classes_ = np.unique(y)
        return self


def outputs(kind, X, y, estimator):
    """Return all that a fit shows, where the sampler's releases owe nothing to the records."""
    model = kind(fixed(), estimator, n_samples=200, n_draws=2, random_state=0).fit(X, y)
    public, _ = records(50, seed=9)
    return (model.classes_.tolist(), model.predict(public).tolist())


def depends_on_records(kind, estimator):
    X, y = records()
    others = [(X, np.roll(y, 7)), (1 - X, y), (X, np.full(len(y), "low"))]
    expected = outputs(kind, X, y, estimator)
    for features, labels in others:
        try:
            if outputs(kind, features, labels, estimator) != expected:
                return True
        except (ValueError, IndexError):  # of records with one label alone
            return True
    return False


LEARNERS = [
    KNeighborsClassifier(1),
    LogisticRegression(),
    HistGradientBoostingClassifier(max_iter=5),
    None,
]


@pytest.mark.parametrize("estimator", LEARNERS)
def test_what_is_learned_is_of_draws_alone(estimator):
    assert not depends_on_records(SyntheticDataClassifier, estimator)


@pytest.mark.parametrize("estimator", LEARNERS[:3])
def test_a_learner_that_peeks_is_caught(estimator):
    assert depends_on_records(Peeking, estimator)


def test_classes_of_records_are_caught():
    assert depends_on_records(LearningLabels, LogisticRegression())


def test_a_regressor_learns_of_draws_alone():
    X, _ = records()
    made = [
        SyntheticDataRegressor(fixed(Numeric(0, 1)), n_samples=100, n_draws=2, random_state=0)
        .fit(features, X["z"])
        .predict(X)
        for features in (X, 1 - X)
    ]
    np.testing.assert_array_equal(*made)


def test_the_report_is_that_of_the_sampler_however_many_draws():
    X, y = records()
    for n_draws in (1, 4):
        model = SyntheticDataClassifier(fixed(budget=0.7), LogisticRegression(), n_draws=n_draws)
        assert model.fit(X, y).privacy_ == model.plan(len(X)) == model.sampler_.privacy_
        assert model.privacy_.epsilon == 0.7


def test_errors_hold_no_value_of_a_record():
    X, y = records()
    y = y.astype(object)
    y[3] = "secret"
    model = SyntheticDataClassifier(fixed())
    for labels in (y[:-1], np.array([y, y]).T):
        with pytest.raises(ValueError, match="inconsistent numbers|should be a 1d array") as raised:
            model.fit(X, labels)
        assert "secret" not in str(raised.value)
