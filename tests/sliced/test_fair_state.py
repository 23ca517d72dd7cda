"""What an estimator knows after a fit, after another, and after one that failed."""

import numpy as np
import pandas as pd
import pytest
from conformity import parametrize_with_checks
from numpy.testing import assert_array_equal
from sklearn.exceptions import NotFittedError

from sklearn_dpgen.exceptions import TrainingDivergedError
from sklearn_dpgen.mechanisms import StratifiedGaussianMechanism
from sklearn_dpgen.nn import Training
from sklearn_dpgen.schema import Numeric, Schema
from sklearn_dpgen.sliced import ClippedGradient, DPSlicedWassersteinGenerator

KINDS = ["regressor", "classifier", "encoder", "generator"]


def use(estimator, X):
    """Return all that a fitted estimator gives."""
    outputs = []
    for name in ("predict", "predict_proba", "transform"):
        if hasattr(estimator, name):
            outputs.append(getattr(estimator, name)(X))
    if hasattr(estimator, "inverse_transform"):
        outputs.append(estimator.inverse_transform(outputs[-1]))
    if hasattr(estimator, "sample"):
        outputs.append(estimator.sample(5, random_state=0))
        outputs.append(estimator.transform_latents(np.ones((3, 2))))
    return outputs


def fitted(estimator):
    return {name for name in vars(estimator) if name.endswith("_")}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("value", [None, "nonsense", -1, 7, (), np.inf], ids=str)
def test_parameters_set_after_fit_change_no_output(tiny, table, kind, value):
    estimator = table.train(tiny(kind))
    before = use(estimator, table.X)
    for name in estimator.get_params(deep=False):
        kept = getattr(estimator, name)
        estimator.set_params(**{name: value})
        for now, then in zip(use(estimator, table.X), before, strict=True):
            assert_array_equal(now, then)
        assert estimator.privacy_.epsilon == 1.0
        estimator.set_params(**{name: kept})


def stopped(*args, **kwargs):
    raise KeyboardInterrupt


@pytest.mark.parametrize("kind", KINDS)
def test_a_refused_fit_leaves_nothing_of_the_last(tiny, table, kind):
    estimator = table.train(tiny(kind))
    assert {"privacy_", "module_", "noise_multiplier_", "n_iter_"} <= fitted(estimator)
    table.X = np.full((41, 3), np.nan)
    with pytest.raises(ValueError, match="NaN"):
        table.train(estimator)
    assert fitted(estimator) <= {"n_features_in_"}
    with pytest.raises(NotFittedError):
        use(estimator, np.zeros((2, 3)))


@pytest.mark.parametrize("kind", KINDS)
def test_a_fit_that_cannot_be_paid_leaves_no_report(tiny, table, kind, monkeypatch):
    estimator = table.train(tiny(kind))
    monkeypatch.setattr(StratifiedGaussianMechanism, "__post_init__", stopped)
    with pytest.raises(KeyboardInterrupt):
        table.train(estimator)
    assert not {"privacy_", "module_", "noise_multiplier_", "n_iter_"} & fitted(estimator)


@pytest.mark.parametrize("kind", KINDS)
def test_a_fit_that_breaks_off_leaves_its_own_report(tiny, table, kind):
    estimator = table.train(tiny(kind)).set_params(
        epsilon=3.0, training__learning_rate=1e308, training__max_iter=60
    )
    with pytest.raises(TrainingDivergedError):
        table.train(estimator)
    # Its iterates were released, and paid for.
    assert (estimator.privacy_.epsilon, estimator.privacy_.n_releases) == (3.0, 60)
    assert not {"module_", "n_iter_"} & fitted(estimator)


@pytest.mark.parametrize("kind", KINDS)
def test_a_device_that_is_not_there_is_refused_before_a_record_is_read(tiny, table, kind):
    estimator = table.train(tiny(kind)).set_params(training__device="nonsense")
    table.X = None
    with pytest.raises((RuntimeError, ValueError), match="nonsense"):
        table.train(estimator)
    assert fitted(estimator) == set()


@pytest.mark.parametrize("kind", KINDS)
def test_names_of_the_features_follow_the_last_fit(tiny, table, kind):
    estimator, X = tiny(kind), table.X
    table.X = pd.DataFrame(X, columns=["a", "b", "c"])
    assert table.train(estimator).feature_names_in_.tolist() == ["a", "b", "c"]
    table.X = X
    assert not hasattr(table.train(estimator), "feature_names_in_")


@pytest.mark.parametrize("kind", ["regressor", "classifier", "encoder"])
def test_groups_and_targets_follow_the_last_fit(tiny, table, kind):
    estimator = table.train(tiny(kind, alpha=0.0))
    assert estimator.groups_ == ["a", "b"]
    assert table.train(estimator, sensitive_features=None).groups_ is None
    if kind == "regressor":
        assert estimator.predict(table.X).shape == (41,)
        table.y = table.Y
        assert table.train(estimator).predict(table.X).shape == (41, 2)


# A generator of tables, checked as scikit-learn checks estimators: the schema is made from what it
# is given, since the checks feed tables of any width.


class OfAnyWidth(DPSlicedWassersteinGenerator):
    """As many bounded numbers as the data has columns."""

    def fit(self, X, y=None):
        shape = np.shape(X)
        width = shape[1] if len(shape) == 2 else 1
        names = list(getattr(X, "columns", [f"x{i}" for i in range(width)])) or ["x0"]
        schema, given = Schema({name: Numeric(-1000, 1000) for name in names}), self.schema
        self.schema = schema
        try:
            return super().fit(X, y)
        finally:
            self.schema = given


def of_any_width(epsilon):
    return OfAnyWidth(
        epsilon,
        training=Training(hidden_layer_sizes=(4,), max_iter=2),
        gradient=ClippedGradient(n_projections=3, batch_fraction=1.0),
        random_state=0,
    )


@parametrize_with_checks(
    [],
    variants=[of_any_width(1.0)],
    expected_failed_checks=lambda estimator: {
        "check_dtype_object": "of a column of words the error names the column and its declaration",
        "check_estimators_nan_inf": "a missing value is refused by a message that names the column "
        "and not NaN; an infinite one is accepted, see the next test",
    },
)
def test_scikit_learn_checks_of_tables(estimator, check):
    check(estimator)


def test_an_infinite_value_of_a_table_is_the_bound(table, parameters_of):
    table.X[:2, 0] = [1000.0, -1000.0]
    expected = parameters_of(of_any_width(np.inf).fit(table.X))
    table.X[:2, 0] = [np.inf, -np.inf]
    assert_array_equal(parameters_of(of_any_width(np.inf).fit(table.X)), expected)
    table.X[:2, 0] = [-1000.0, 1000.0]
    assert not np.array_equal(parameters_of(of_any_width(np.inf).fit(table.X)), expected)
    table.X[0, 0] = np.nan
    with pytest.raises(ValueError, match="Column 'x0' has missing values but is not nullable"):
        of_any_width(np.inf).fit(table.X)
