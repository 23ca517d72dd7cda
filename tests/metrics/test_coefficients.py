import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import norm

from sklearn_dpgen.metrics import coefficient_agreement
from sklearn_dpgen.schema import Categorical, Numeric, Ordinal, Schema

Z = norm.ppf(0.975)
SCHEMA = Schema(
    {
        "age": Numeric(0, 100),
        "visits": Numeric(0, 10, integer=True, nullable=True),
        "plan": Categorical(["free", "shared", "none"]),
        "bought": Categorical(["no", "yes"]),
    }
)
TWO = Schema({"x": Categorical([0, 1]), "y": Categorical([0, 1])})


def table(n=200, seed=0):
    rng = np.random.RandomState(seed)
    age = rng.uniform(0, 100, n)
    return pd.DataFrame(
        {
            "age": age,
            "visits": np.where(rng.rand(n) < 0.2, np.nan, rng.randint(0, 11, n)),
            "plan": rng.choice(["free", "shared", "none"], n),
            "bought": np.where(rng.rand(n) < age / 100, "yes", "no"),
        }
    )


def counted(a, b, c, d):
    """Return a records (0, 0), b (0, 1), c (1, 0), and d (1, 1)."""
    return pd.DataFrame(
        {"x": [0] * (a + b) + [1] * (c + d), "y": [0] * a + [1] * b + [0] * c + [1] * d}
    )


def log_odds(a, b, c, d):
    """Return the log odds ratio and its standard error."""
    return np.log(a * d / (b * c)), np.sqrt(1 / a + 1 / b + 1 / c + 1 / d)


def overlap(first, second):
    """Return the overlap of Karr et al. (2006) of two estimates with their standard errors."""
    (b, error), (c, other) = first, second
    shared = max(min(b + Z * error, c + Z * other) - max(b - Z * error, c - Z * other), 0)
    return (shared / (2 * Z * error) + shared / (2 * Z * other)) / 2


@pytest.mark.parametrize(
    "other",
    [(300, 200, 210, 290), (250, 250, 240, 260), (100, 80, 60, 160), (200, 300, 300, 200)],
)
def test_a_logistic_coefficient_is_the_log_odds_ratio(other):
    cells = (300, 200, 200, 300)
    first, second = log_odds(*cells), log_odds(*other)
    result = coefficient_agreement(counted(*cells), counted(*other), TWO, target="y")
    assert result["n_coefficients"] == 1
    assert result["standardized_difference"] == pytest.approx(
        abs(first[0] - second[0]) / first[1], rel=1e-5, abs=1e-5
    )
    assert result["interval_overlap"] == pytest.approx(overlap(first, second), abs=1e-5)
    assert result["sign_agreement"] == (second[0] > 0)
    assert result["significance_agreement"] == (second[0] > Z * second[1])


def test_a_linear_coefficient_is_that_of_least_squares():
    schema = Schema({name: Numeric(-10, 10) for name in "xwy"})

    def draw(n, seed):
        rng = np.random.RandomState(seed)
        x, w = rng.randn(2, n)
        return pd.DataFrame({"x": x, "w": x + w, "y": x - 0.2 * w + rng.randn(n)})

    def least_squares(frame):
        X = np.column_stack([np.ones(len(frame)), frame["x"], frame["w"]])
        b, rss, *_ = np.linalg.lstsq(X, frame["y"], rcond=None)
        covariance = rss[0] / (len(frame) - 3) * np.linalg.inv(X.T @ X)
        return list(zip(b, np.sqrt(np.diag(covariance)), strict=True))[1:]

    real, synthetic = draw(200, 0), draw(150, 1)
    pairs = list(zip(least_squares(real), least_squares(synthetic), strict=True))
    result = coefficient_agreement(real, synthetic, schema, target="y")
    expected = np.mean([overlap(*pair) for pair in pairs])
    assert result["interval_overlap"] == pytest.approx(expected, abs=1e-5)
    expected = np.mean([abs(b[0] - c[0]) / b[1] for b, c in pairs])
    assert result["standardized_difference"] == pytest.approx(expected, rel=1e-5)
    assert result["n_coefficients"] == 2


@pytest.mark.slow
def test_intervals_of_two_samples_overlap_as_often_as_they_should():
    # Two estimates with one standard error differ by N(0, 2) of them.
    results = [
        coefficient_agreement(table(500, 2 * i), table(500, 2 * i + 1), SCHEMA, target="bought")
        for i in range(40)
    ]
    found = np.mean([result["standardized_difference"] for result in results])
    expected, sd = 2 / np.sqrt(np.pi), np.sqrt(2 - 4 / np.pi)
    assert abs(found - expected) < 5 * sd / np.sqrt(40 * 5)


@pytest.mark.parametrize("target", ["bought", "age"])
@settings(max_examples=15, deadline=None)
@given(n=st.integers(10, 60), m=st.integers(1, 60), seed=st.integers(0, 99))
def test_one_for_itself_and_bounded(target, n, m, seed):
    real, synthetic = table(n, seed), table(m, seed + 1)
    itself = coefficient_agreement(real, real, SCHEMA, target=target)
    assert itself["sign_agreement"] == itself["significance_agreement"] == 1
    assert itself["interval_overlap"] == pytest.approx(1, abs=1e-6)
    assert itself["standardized_difference"] == pytest.approx(0, abs=1e-6)
    result = coefficient_agreement(real, synthetic, SCHEMA, target=target)
    shares = result[["sign_agreement", "significance_agreement", "interval_overlap"]]
    assert shares.between(0, 1).all()
    assert np.isfinite(result["standardized_difference"])
    assert result["n_coefficients"] <= 5


def test_a_higher_level_has_longer_intervals_that_overlap_more():
    real, synthetic = table(500, 0), table(500, 1)
    overlaps = [
        coefficient_agreement(real, synthetic, SCHEMA, target="bought", level=level)[
            "interval_overlap"
        ]
        for level in (0.5, 0.9, 0.99)
    ]
    assert overlaps == sorted(overlaps)
    assert overlaps[0] < overlaps[2]


def test_bounds_order_of_columns_and_of_labels_do_not_matter():
    real, synthetic = table(300, 0), table(300, 1)
    other = Schema(
        {
            "plan": Ordinal(["none", "free", "shared"]),
            "bought": Categorical(["yes", "no"]),
            "visits": Numeric(0, 30, integer=True, nullable=True),
            "age": Numeric(-500, 700),
        }
    )
    result = coefficient_agreement(real, synthetic, SCHEMA, target="bought")
    assert result["n_coefficients"] == 5
    np.testing.assert_allclose(
        coefficient_agreement(real, synthetic, other, target="bought"), result, rtol=1e-5
    )


def test_a_transform_makes_the_classes():
    real, synthetic = table(300, 0), table(300, 1)
    rest = Schema({name: SCHEMA[name] for name in ("age", "plan", "bought")})
    result = coefficient_agreement(
        real, synthetic, rest, target="age", target_transform=lambda age: age > 50
    )
    older = [frame.assign(age=frame["age"] > 50) for frame in (real, synthetic)]
    schema = Schema(
        {name: rest[name] for name in ("plan", "bought")} | {"age": Categorical([False, True])}
    )
    np.testing.assert_allclose(
        result, coefficient_agreement(*older, schema, target="age"), rtol=1e-6
    )


def test_separated_classes_have_wide_intervals_and_no_significance():
    separated = counted(30, 0, 0, 30)
    result = coefficient_agreement(separated, separated, TWO, target="y")
    assert result["sign_agreement"] == 1
    assert result["interval_overlap"] == pytest.approx(1, abs=1e-6)
    mixed = counted(25, 5, 5, 25)
    result = coefficient_agreement(mixed, separated, TWO, target="y")
    # The interval of log(25) ± .7 lies in the far wider one.
    assert result["sign_agreement"] == 1
    assert result["significance_agreement"] == 0
    assert 0.5 < result["interval_overlap"] < 0.6


def test_collinear_columns_and_more_coefficients_than_records_are_finite():
    real, synthetic = table(300, 0), table(300, 1)
    twice = Schema(dict(SCHEMA.items()) | {"again": Numeric(0, 200)})
    frames = [frame.assign(again=2 * frame["age"]) for frame in (real, synthetic)]
    result = coefficient_agreement(*frames, twice, target="bought")
    assert np.isfinite(result).all()
    assert result["n_coefficients"] == 6
    few = [frame[:4] for frame in (real, synthetic)]
    assert np.isfinite(coefficient_agreement(*few, SCHEMA, target="age")).all()


@pytest.mark.parametrize("target", ["bought", "visits"])
def test_a_spread_a_billion_times_larger_or_smaller_is_finite(target):
    schema = Schema(dict(SCHEMA.items()) | {"visits": Numeric(0, 10)})
    real = table(100, 0).assign(visits=lambda frame: frame["visits"].fillna(5.0))
    narrow = real.assign(age=50 + 1e-9 * real["age"])
    for pair in ((real, narrow), (narrow, real)):
        assert np.isfinite(coefficient_agreement(*pair, schema, target=target)).all()


def test_a_perfect_fit_agrees_with_itself_and_with_no_other():
    schema = Schema({name: Numeric(-10, 10) for name in "xy"})
    x = np.linspace(-1, 1, 21)
    real = pd.DataFrame({"x": x, "y": 3 * x})
    result = coefficient_agreement(real, real[::-2], schema, target="y")
    assert result["sign_agreement"] == result["significance_agreement"] == 1
    assert result["interval_overlap"] > 0.5
    result = coefficient_agreement(real, real.assign(y=2.9 * x), schema, target="y")
    assert result["sign_agreement"] == result["significance_agreement"] == 1
    assert result["interval_overlap"] == 0
    even = real.assign(y=x**2)
    result = coefficient_agreement(even, even[::-1], schema, target="y")
    # A slope of 0 has no sign, whatever its rounding.
    assert result["sign_agreement"] == result["significance_agreement"] == 1


def test_what_synthetic_records_lack_is_no_agreement():
    real, synthetic = table(300, 0), table(300, 1)
    lacking = synthetic.assign(plan="free")
    plan = Schema({name: SCHEMA[name] for name in ("plan", "bought")})
    result = coefficient_agreement(real, lacking, plan, target="bought")
    assert result["n_coefficients"] == 2
    assert (result[["sign_agreement", "significance_agreement", "interval_overlap"]] == 0).all()
    # The other coefficients are still compared.
    result = coefficient_agreement(real, lacking, SCHEMA, target="bought")
    assert 1 / 5 <= result["sign_agreement"] <= 3 / 5
    # A label that no real record has is not compared.
    result = coefficient_agreement(lacking, synthetic, SCHEMA, target="bought")
    assert result["n_coefficients"] == 3
    one_class = synthetic.assign(bought="no")
    result = coefficient_agreement(real, one_class, SCHEMA, target="bought")
    assert (result[["sign_agreement", "significance_agreement", "interval_overlap"]] == 0).all()


def test_errors():
    real = table()
    with pytest.raises(ValueError, match="target must be a column of the schema, got 'x'"):
        coefficient_agreement(real, real, SCHEMA, target="x")
    with pytest.raises(ValueError, match="must be numeric or have two labels, got 'plan'"):
        coefficient_agreement(real, real, SCHEMA, target="plan")
    with pytest.raises(
        ValueError, match="must have no nulls, got 'visits': pass a target_transform"
    ):
        coefficient_agreement(real, real, SCHEMA, target="visits")
    with pytest.raises(ValueError, match="target_transform must make two classes"):
        coefficient_agreement(real, real, SCHEMA, target="age", target_transform=np.round)
    with pytest.raises(ValueError, match="target must vary in the real table, got 'bought'"):
        coefficient_agreement(real.assign(bought="no"), real, SCHEMA, target="bought")
    with pytest.raises(ValueError, match="schema must have a column besides the target"):
        coefficient_agreement(real, real, Schema({"bought": SCHEMA["bought"]}), target="bought")
    with pytest.raises(ValueError, match="besides the target that is not constant"):
        coefficient_agreement(counted(3, 3, 0, 0), counted(3, 3, 3, 3), TWO, target="y")
    with pytest.raises(ValueError, match="level"):
        coefficient_agreement(real, real, SCHEMA, target="age", level=1.0)
    with pytest.raises(ValueError, match="synthetic must have the columns of the schema, lacks"):
        coefficient_agreement(real, real.drop(columns="plan"), SCHEMA, target="age")
