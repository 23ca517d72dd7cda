import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sklearn_dpgen.metrics import propensity_mse_ratio
from sklearn_dpgen.schema import Categorical, Numeric, Schema

SCHEMA = Schema({"x": Numeric(-10, 10, nullable=True), "y": Categorical(["a", "b", "c"])})


def table(n, seed):
    rng = np.random.RandomState(seed)
    x = np.where(rng.rand(n) < 0.2, np.nan, rng.randn(n))
    return pd.DataFrame({"x": x, "y": rng.choice(list("abc"), n)})


@pytest.mark.parametrize(("a", "b", "n"), [(30, 50, 100), (10, 80, 100), (20, 30, 60)])
def test_one_binary_column_has_a_closed_form(a, b, n):
    # The fitted propensity of a label is its share of synthetic records.
    schema = Schema({"y": Categorical([0, 1])})
    real, synthetic = (
        pd.DataFrame({"y": [1] * ones + [0] * (size - ones)}) for ones, size in ((a, 100), (b, n))
    )
    size, share = 100 + n, n / (100 + n)
    squares = (a + b) * (b / (a + b) - share) ** 2
    squares += (size - a - b) * ((n - b) / (size - a - b) - share) ** 2
    expected = squares / ((1 - share) ** 2 * share)
    assert propensity_mse_ratio(real, synthetic, schema) == pytest.approx(expected, rel=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("m", [400, 800])
def test_two_samples_of_one_distribution_are_at_the_documented_ratio(m):
    ratios = [
        propensity_mse_ratio(table(400, 2 * i), table(m, 2 * i + 1), SCHEMA) for i in range(60)
    ]
    # A chi-squared variable of 4 degrees of freedom by 4, times 1 / (1 - c).
    expected = (400 + m) / 400
    assert abs(np.mean(ratios) / expected - 1) < 5 * np.sqrt(2 / 4 / 60)


def test_records_redrawn_from_the_real_ones_are_at_one():
    real = table(400, 0)
    ratios = [
        propensity_mse_ratio(real, real.sample(400, replace=True, random_state=i), SCHEMA)
        for i in range(60)
    ]
    assert abs(np.mean(ratios) - 1) < 5 * np.sqrt(2 / 4 / 60)


@settings(max_examples=20, deadline=None)
@given(n=st.integers(5, 40), m=st.integers(1, 40), seed=st.integers(0, 99))
def test_zero_for_itself_and_finite(n, m, seed):
    real = table(n, seed)
    assert propensity_mse_ratio(real, real, SCHEMA) == pytest.approx(0, abs=1e-6)
    assert 0 <= propensity_mse_ratio(real, table(m, seed + 1), SCHEMA) < np.inf


def test_tables_that_are_separated_are_at_the_largest_ratio():
    real, synthetic = (table(100, seed).assign(y=label) for seed, label in ((0, "a"), (1, "b")))
    # All propensities are 0 or 1: the mean square is 1/4, of three regressors at c = 1/2.
    ratio = propensity_mse_ratio(real, synthetic, SCHEMA)
    assert ratio == pytest.approx(0.25 / (3 * 0.125 / 200), rel=0.01)


def test_a_column_of_nulls_alone_may_have_any_dtype():
    real = table(100, 0)
    ratios = [
        propensity_mse_ratio(real, real.assign(x=pd.Series([null] * 100, dtype=dtype)), SCHEMA)
        for null, dtype in ((np.nan, "float64"), (None, object), (pd.NA, "Float64"))
    ]
    assert ratios[0] > 2
    assert ratios == ratios[:1] * 3


def test_errors():
    real = table(10, 0)
    with pytest.raises(ValueError, match="synthetic must have the columns of the schema, lacks"):
        propensity_mse_ratio(real, real.drop(columns="y"), SCHEMA)
    constant = real.assign(x=1.0, y="a")
    with pytest.raises(ValueError, match="must have a column that is not constant"):
        propensity_mse_ratio(constant, constant, SCHEMA)
