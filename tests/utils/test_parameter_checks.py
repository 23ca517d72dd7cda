import math

import numpy as np
import pandas as pd
import pytest
import sklearn.utils.validation
from sklearn.base import BaseEstimator

from sklearn_dpgen.ledger._base import PrivateEstimator
from sklearn_dpgen.utils import _checks
from sklearn_dpgen.utils._validation import (
    check_array,
    check_delta,
    check_epsilon,
    check_n_samples,
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

    with pytest.raises(TypeError, match="abstract method '?plan"):
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


def test_number_of_samples():
    for value in (1, 7, np.int32(5)):
        assert type(check_n_samples(value)) is int
    for value in (0, -1, 2.0, True, "3", None):
        with pytest.raises(ValueError, match="n_samples must be an integer of at least 1"):
            check_n_samples(value)


def test_more_samples_than_memory(monkeypatch):
    with pytest.raises(ValueError, match="n_samples=10{15} records of 3 numbers need .* GiB"):
        check_n_samples(10**15, width=3)
    monkeypatch.setattr(_checks, "_memory", lambda: 8 * 600)
    assert check_n_samples(200, width=3) == 200
    assert check_n_samples(600) == 600
    for n_samples, width in ((201, 3), (601, 1), (1, 601)):
        with pytest.raises(ValueError, match="sample in parts"):
            check_n_samples(n_samples, width)


@pytest.mark.parametrize(
    "column",
    [
        ["7.5x", "1", "2"],
        [{}, {}, {}],
        np.array([1j, 2, 3]),
        pd.to_datetime(["2020-01-01"] * 3),
        pd.Categorical(["7.5x", "a", "b"]),
        pd.to_timedelta([1, 2, 3]),
        np.array([7.5, "7.5x", None], dtype=object),
    ],
    ids=lambda column: type(column).__name__,
)
@pytest.mark.parametrize("validate", [validate_data, lambda _, X, **o: check_array(X, **o)])
def test_errors_of_columns_name_them(column, validate):
    frame = pd.DataFrame({"fine": [1.0, 2, 3], "truth": [True, False, True]}).assign(strange=column)
    with pytest.raises(ValueError, match=r"real numbers; columns that do not: \['strange'\]") as e:
        validate(Anything(), frame, dtype=np.float64)
    assert "7.5" not in str(e.value)
    assert e.value.__context__ is None
    # Numbers among objects are numbers.
    for fine in (np.array([1, 2.5, True], dtype=object), pd.Categorical([3, 4, 3])):
        fine = frame.assign(strange=fine)
        assert validate(Anything(), fine, dtype=np.float64).shape == (3, 3)


def test_columns_of_one_name_are_refused():
    frame = pd.DataFrame(np.zeros((3, 4)), columns=list("abab"))
    with pytest.raises(ValueError, match=r"more than one column of the name: \['a', 'b'\]"):
        validate_data(Anything(), frame)
