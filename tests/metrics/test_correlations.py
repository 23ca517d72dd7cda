import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from sklearn_dpgen.metrics import correlation_difference
from sklearn_dpgen.schema import Categorical, Datetime, Numeric, Ordinal, Schema

LOW, HIGH = "2020-01-01", "2020-12-31"
SCHEMA = Schema(
    {
        "age": Numeric(0, 100),
        "visits": Numeric(0, 10, integer=True, nullable=True),
        "plan": Categorical(["free", "shared", "none"], nullable=True),
        "rate": Ordinal(["low", "middle", "high"], nullable=True),
        "date": Datetime(LOW, HIGH),
    }
)


def table(n=60, seed=0):
    rng = np.random.RandomState(seed)
    return pd.DataFrame(
        {
            "age": rng.uniform(0, 100, n),
            "visits": np.where(rng.rand(n) < 0.2, np.nan, rng.randint(0, 11, n)),
            "plan": rng.choice(np.array(["free", "shared", "none", None], dtype=object), n),
            "rate": rng.choice(np.array(["low", "middle", "high", None], dtype=object), n),
            "date": pd.Timestamp(LOW) + pd.to_timedelta(rng.randint(0, 366, n), unit="D"),
        }
    )


def test_ordered_columns_have_the_rank_correlation_of_scipy():
    real, synthetic = table(80, 0), table(70, 1)
    result = correlation_difference(real, synthetic, SCHEMA)
    order = {"low": 0, "middle": 1, "high": 2}

    def places(frame, name):
        values = frame[name].map(order) if name == "rate" else frame[name]
        return values.astype("int64") if name == "date" else values

    for pair in (("age", "visits"), ("visits", "rate"), ("age", "date")):
        found = []
        for frame in (real, synthetic):
            both = pd.concat([places(frame, name) for name in pair], axis=1).dropna()
            found.append(stats.spearmanr(both.iloc[:, 0], both.iloc[:, 1]).statistic)
        assert result[pair] == pytest.approx(abs(found[0] - found[1]))


def test_other_pairs_have_the_cramers_v_of_scipy():
    real, synthetic = table(80, 0), table(70, 1)
    result = correlation_difference(real, synthetic, SCHEMA)
    found = [
        stats.contingency.association(
            pd.crosstab(frame["plan"].fillna("null"), frame["rate"].fillna("null"))
        )
        for frame in (real, synthetic)
    ]
    assert result["plan", "rate"] == pytest.approx(abs(found[0] - found[1]))
    found = [
        stats.contingency.association(
            pd.crosstab(frame["plan"].fillna("null"), np.floor(frame["age"] / 25))
        )
        for frame in (real, synthetic)
    ]
    coarse = correlation_difference(real, synthetic, SCHEMA, n_bins=4)
    assert coarse["age", "plan"] == pytest.approx(abs(found[0] - found[1]))
    assert list(result.index)[:2] == [("age", "visits"), ("age", "plan")]
    assert len(result) == 10


def test_signs_of_ranks_count_and_units_do_not():
    schema = Schema({"x": Numeric(0, 1000), "y": Numeric(0, 1000)})
    x = np.arange(10.0)
    real = pd.DataFrame({"x": x, "y": x**2})
    assert correlation_difference(real, real.assign(y=1000 - x), schema).item() == 2
    assert correlation_difference(real, real.assign(y=x**3 / 2), schema).item() == 0


def test_a_label_that_follows_or_does_not_is_one_apart():
    schema = Schema({"x": Categorical([0, 1, 2]), "y": Categorical([0, 1])})
    real = pd.DataFrame({"x": [0, 0, 1, 1], "y": [0, 0, 1, 1]})
    crossed = pd.DataFrame({"x": [0, 0, 1, 1], "y": [0, 1, 0, 1]})
    assert correlation_difference(real, crossed, schema).item() == 1
    # The names of labels do not count.
    assert correlation_difference(real, real.assign(y=[1, 1, 0, 0]), schema).item() == 0


@pytest.mark.parametrize("column", ["age", "plan", "rate", "visits"])
def test_a_constant_correlates_with_nothing(column):
    real = table()
    value = {"age": 3.0, "plan": "free", "rate": None, "visits": np.nan}[column]
    constant = real.assign(**{column: pd.Series([value] * len(real), dtype=real[column].dtype)})
    result = correlation_difference(constant, constant, SCHEMA)
    assert (result == 0).all()
    result = correlation_difference(constant, real, SCHEMA)
    changed = [column in pair for pair in result.index]
    assert (result[~np.array(changed)] == 0).all()
    assert (result[changed] > 0).all()


@pytest.mark.slow
@settings(max_examples=20, deadline=None)
@given(n=st.integers(1, 40), m=st.integers(1, 40), seed=st.integers(0, 99))
def test_is_symmetric_and_bounded_and_zero_for_a_shuffle(n, m, seed):
    real, synthetic = table(n, seed), table(m, seed + 1)
    result = correlation_difference(real, synthetic, SCHEMA)
    assert result.between(0, 2).all()
    np.testing.assert_allclose(result, correlation_difference(synthetic, real, SCHEMA))
    shuffled = real.sample(frac=1, random_state=seed)
    np.testing.assert_allclose(correlation_difference(real, shuffled, SCHEMA), 0, atol=1e-7)


def test_errors():
    real = table()
    with pytest.raises(ValueError, match="at least two columns"):
        correlation_difference(real, real, Schema({"age": Numeric(0, 100)}))
    with pytest.raises(ValueError, match="synthetic must have the columns of the schema, lacks"):
        correlation_difference(real, real.drop(columns="plan"), SCHEMA)
    with pytest.raises(ValueError, match="real must have at least one row"):
        correlation_difference(real[:0], real, SCHEMA)
    with pytest.raises(ValueError, match="n_bins"):
        correlation_difference(real, real, SCHEMA, n_bins=0)
