import math

import numpy as np
import pandas as pd
import pytest
import sklearn.utils.validation
from sklearn.base import BaseEstimator

from sklearn_dpgen.utils._base import PrivateEstimator
from sklearn_dpgen.utils._validation import (
    check_array,
    check_delta,
    check_epsilon,
    check_positive,
    check_widths,
    validate_data,
)

SECRET = 7.7725
REVEALING = [
    [[str(SECRET) + "x"]],
    [SECRET, SECRET],
    SECRET,
    np.array([[SECRET + 1j]]),
    pd.DataFrame({"a": [str(SECRET) + "x"]}),
    pd.DataFrame({"a": pd.Categorical([str(SECRET) + "x"])}),
]


def test_check_positive():
    for value in (1, 0.5, np.float32(0.5), np.int64(3), 1e-300):
        checked = check_positive(value, "a")
        assert type(checked) is float
        assert checked == value
    for value in (0, -1, math.nan, math.inf):
        with pytest.raises(ValueError, match="^a must be positive and finite"):
            check_positive(value, "a")
    for value in (True, "1", None, 1j, np.ones(1)):
        with pytest.raises(TypeError, match="^a must be a real number"):
            check_positive(value, "a")


def test_check_epsilon():
    assert check_epsilon(math.inf) == math.inf
    assert check_epsilon(2) == 2.0
    with pytest.raises(ValueError, match="^epsilon must be positive and finite"):
        check_epsilon(math.inf, allow_infinite=False)
    for value in (0, -1.0, math.nan):
        with pytest.raises(ValueError, match="^epsilon must be positive, got"):
            check_epsilon(value)


def test_check_delta():
    assert check_delta(1e-5) == 1e-5
    for value in (0, -0.1, 1, 1.5, math.nan, math.inf):
        with pytest.raises(ValueError, match="^delta must be"):
            check_delta(value)


class Anything(BaseEstimator):
    pass


def shown(validate, X):
    """All that an error says: its message and that of whatever it came from."""
    with pytest.raises(ValueError) as caught:  # noqa: PT011
        validate(X)
    error, text = caught.value, ""
    while error is not None:
        text, error = text + str(error), error.__cause__ or error.__context__
    return text


@pytest.mark.parametrize("X", REVEALING)
def test_validation_errors_show_no_value(X):
    def validate(X):
        return validate_data(Anything(), X, dtype=np.float64)

    def naive(X):
        return sklearn.utils.validation.validate_data(Anything(), X, dtype=np.float64)

    assert str(SECRET) not in shown(validate, X)
    assert "X must hold real numbers" in shown(validate, X)
    assert str(SECRET) not in shown(lambda X: check_array(X, dtype=np.float64), X)
    assert str(SECRET) in shown(naive, X)


def test_other_validation_is_that_of_scikit_learn():
    estimator = Anything()
    X = validate_data(estimator, [[1, 2]], dtype=np.float64)
    assert X.tolist() == [[1.0, 2.0]]
    assert estimator.n_features_in_ == 2
    with pytest.raises(ValueError, match="X has 1 features, but Anything is expecting 2"):
        validate_data(estimator, [[1]], reset=False)
    with pytest.raises(ValueError, match="Input X contains NaN"):
        validate_data(estimator, [[1, math.nan]], reset=False)
    with pytest.raises(TypeError, match="must be a string or a real number"):
        validate_data(estimator, [[{}, 1]], dtype=np.float64)


def test_a_private_estimator_plans():
    class NoPlan(PrivateEstimator):
        pass

    with pytest.raises(TypeError, match="_plan_privacy"):
        NoPlan()


@pytest.mark.parametrize("widths", [(), (4, 2), [np.int64(5)], np.array([2, 3])])
def test_widths(widths):
    checked = check_widths(widths)
    assert checked == tuple(np.array(widths, dtype=int).tolist())
    assert all(type(width) is int for width in checked)


@pytest.mark.parametrize("widths", [(0,), (-3,), (2.5,), ("a",), (4, None)])
def test_widths_that_are_none(widths):
    with pytest.raises(ValueError, match="hidden_layer_sizes must hold positive integers"):
        check_widths(widths)
