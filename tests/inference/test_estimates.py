"""Estimates from released tables: right without noise, and as uncertain as they say with it."""

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose
from scipy.stats import norm
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LinearRegression, LogisticRegression

from sklearn_dpgen.inference import (
    _calibration,
    estimate_means,
    estimate_regression,
    estimate_shares,
)
from sklearn_dpgen.schema import Categorical, Datetime, Numeric, Ordinal, Schema
from sklearn_dpgen.tables import TableSampler

SCHEMA = Schema(
    {
        "site": Categorical(["a", "b", "c"]),
        "dose": Ordinal([0, 1, 2]),
        "age": Numeric(0, 9, integer=True, nullable=True),
        "ill": Categorical([False, True]),
    }
)


def records(n, seed=0):
    rng = np.random.default_rng(seed)
    site = rng.choice(["a", "b", "c"], p=[0.5, 0.3, 0.2], size=n)
    dose = rng.binomial(2, np.where(site == "a", 0.3, 0.6))
    age = np.clip(rng.poisson(2 + dose), 0, 9).astype(float)
    logits = -1.5 + 0.5 * dose + 0.2 * age - 0.8 * (site == "c")
    ill = rng.uniform(size=n) < 1 / (1 + np.exp(-logits))
    age[rng.uniform(size=n) < 0.1] = np.nan
    return pd.DataFrame({"site": site, "dose": dose, "age": age, "ill": ill})


def fitted(frame, epsilon=1.0, seed=0, **options):
    options = {"marginals": "pairs", "target": "ill", "population_size": 4000} | options
    return TableSampler(epsilon, 1e-6, schema=SCHEMA, random_state=seed, **options).fit(frame)


@pytest.fixture(scope="module")
def frame():
    return records(20_000)


@pytest.fixture(scope="module")
def exact(frame):
    return fitted(frame, np.inf)


def test_means_without_noise_are_those_of_the_records(frame, exact):
    found = estimate_means(exact, ["dose", "age"])
    assert_allclose(found["estimate"], [frame["dose"].mean(), frame["age"].mean()], rtol=1e-3)
    n = frame[["dose", "age"]].count()
    assert_allclose(found["std_error"], frame[["dose", "age"]].std() / np.sqrt(n), rtol=0.03)
    assert (found["measured"] > 0.99).all()
    assert found["promised"].all()


def test_shares_without_noise_are_those_of_the_records(frame, exact):
    found = estimate_shares(exact, "site", conditions={"ill": True})
    shares = frame.loc[frame["ill"], "site"].value_counts(normalize=True).sort_index()
    assert_allclose(found["estimate"], shares, rtol=1e-3)
    n = frame["ill"].sum()
    assert_allclose(found["std_error"], np.sqrt(shares * (1 - shares) / n), rtol=0.03)
    young = estimate_shares(exact, [{"age": pd.Interval(0, 2, closed="both")}, {"age": None}])
    ages = frame["age"]
    assert_allclose(young["estimate"], [(ages <= 2).mean(), ages.isna().mean()], rtol=1e-3)
    assert young.index[0].startswith("{'age': Interval(0, 2")


def matrix(frame):
    complete = frame.dropna()
    X = np.column_stack(
        [complete["dose"], complete["age"], complete["site"] == "b", complete["site"] == "c"]
    )
    return X.astype(float), complete


def test_regressions_without_noise_are_those_of_the_records(frame, exact):
    X, complete = matrix(frame)
    options = {"positive": True, "n_rows": 40_000}
    found = estimate_regression(exact, "ill", ["dose", "age", "site"], **options)
    assert found.index.tolist() == ["intercept", "dose", "age", "site=b", "site=c"]
    model = LogisticRegression(C=1e9, max_iter=1000).fit(X, complete["ill"])
    expected = np.append(model.intercept_, model.coef_)
    p = model.predict_proba(X)[:, 1]
    design = np.column_stack([np.ones(len(X)), X])
    errors = np.sqrt(np.diag(np.linalg.inv(design.T @ (design * (p * (1 - p))[:, None]))))
    # What pairs do not tell of is small beside the error of the records, and is allowed for.
    assert_allclose(found["estimate"], expected, atol=errors.max())
    assert (found["std_error"] < 6 * errors).all()
    assert (found["std_error"] > 0.9 * errors).all()

    found = estimate_regression(exact, "dose", ["age", "ill"], n_rows=40_000)
    X = np.column_stack([complete["age"], complete["ill"]]).astype(float)
    model = LinearRegression().fit(X, complete["dose"])
    assert_allclose(found["estimate"], np.append(model.intercept_, model.coef_), atol=0.02)


def test_the_noise_of_a_share_is_that_of_its_cell():
    """One table, of three even columns: the law is right, and the error is known in closed form."""
    rng, n = np.random.default_rng(0), 5000
    labels = [0, 1, 2, 3]
    schema = Schema({name: Categorical(labels) for name in "ab"})
    frame = pd.DataFrame({name: rng.integers(4, size=n) for name in "ab"})
    options = {"schema": schema, "marginals": [("a", "b")], "random_state": 0}
    sampler = TableSampler(0.5, 1e-6, **options).fit(frame)
    (table,) = sampler.marginals_
    assert table.counts.shape == (4, 4)
    found = estimate_shares(sampler, [{"a": 1, "b": 2}])
    # Replace one; μ of the profile at (0.5, 1e-6) by its definition; single columns have 0.15.
    mu = gaussian_mu(0.5, 1e-6)
    noise = np.sqrt(2) / (mu * np.sqrt(0.85))
    single = np.sqrt(2) * np.sqrt(2) / (mu * np.sqrt(0.15))
    assert table.noise_scale == pytest.approx(noise, rel=1e-3)
    chance = np.sqrt(n / 16 * 15 / 16)
    alone = np.hypot(noise, chance) / n
    # The sums that single columns tell of take off at most their share.
    assert 0.7 * alone < found["std_error"].item() < 1.02 * alone
    row = estimate_shares(sampler, [{"a": 1}])["std_error"].item()
    best = 1 / np.sqrt(1 / single**2 + 1 / (4 * noise**2))
    assert row == pytest.approx(np.hypot(best, np.sqrt(n * 3 / 16)) / n, rel=0.1)


def gaussian_mu(epsilon, delta):
    from scipy.optimize import brentq

    def excess(mu):
        low = np.exp(epsilon) * norm.cdf(-epsilon / mu - mu / 2)
        return norm.cdf(-epsilon / mu + mu / 2) - low - delta

    return brentq(excess, 1e-3, 10)


def naive(sampler, n):
    """Return what takes synthetic rows for records: the broken twin."""
    rows = sampler.sample(n, random_state=0)
    table = pd.DataFrame({"estimate": [rows["age"].mean(), rows["ill"].mean()]})
    table["std_error"] = [rows["age"].std() / np.sqrt(n), rows["ill"].std() / np.sqrt(n)]
    return table


@pytest.mark.slow
def test_errors_are_as_large_as_they_say():
    """Of 60 samples of 3000; those that take synthetic rows for records are too small."""
    big = records(1_000_000, seed=99)
    truth = np.array(
        [big["age"].mean(), big["ill"].mean(), (big["ill"] & (big["dose"] == 2)).mean()]
    )
    scores, others = [], []
    for seed in range(100, 160):
        sampler = fitted(records(3000, seed), 0.5, seed)
        means = estimate_means(sampler, "age", n_rows=5000)
        shares = estimate_shares(sampler, [{"ill": True}, {"ill": True, "dose": 2}], n_rows=5000)
        both = pd.concat([means, shares])
        scores.append((both["estimate"] - truth) / both["std_error"])
        simple = naive(sampler, 3000)
        others.append((simple["estimate"] - truth[:2]) / simple["std_error"])
    squares = np.mean(np.square(scores), axis=0)
    # Of 60 squares of standard normal variables the mean is in [0.3, 1.7] almost always.
    assert ((squares > 0.3) & (squares < 1.7)).all()
    assert np.mean(np.square(others)) > 2.5


def test_an_interval_has_its_level(exact):
    wide, narrow = (estimate_means(exact, "dose", confidence_level=level) for level in (0.99, 0.5))
    for found, level in ((wide, 0.99), (narrow, 0.5)):
        half = norm.ppf((1 + level) / 2) * found["std_error"]
        assert_allclose(found["high"] - found["estimate"], half)
        assert_allclose(found["estimate"] - found["low"], half)


def test_estimates_are_repeated_and_leave_the_sampler_alone(exact):
    before = vars(exact).copy()
    first, again = (estimate_means(exact, "age") for _ in range(2))
    pd.testing.assert_frame_equal(first, again)
    assert vars(exact) == before
    other = estimate_means(exact, "age", random_state=7)
    assert 0 < abs(other["estimate"] - first["estimate"]).item() < 0.2 * first["std_error"].item()


def test_what_no_table_tells_of_is_not_promised(frame):
    """Without pairs nothing is known of dependence: the interval is wide, and says so."""
    alone = fitted(frame, marginals=[("site", "age")], target=None)
    found = estimate_regression(alone, "ill", ["dose"], positive=True)
    assert not found.loc["dose", "promised"]
    assert found.loc["dose", "measured"] < 0.5
    told = estimate_regression(fitted(frame), "ill", ["dose"], positive=True)
    assert told.loc["dose", "promised"]
    assert told.loc["dose", "std_error"] < 0.5 * found.loc["dose", "std_error"]


def test_an_indicator_that_no_row_has_is_nan(frame):
    kept = frame[frame["site"] != "c"]
    found = estimate_regression(fitted(kept, np.inf), "ill", ["site"], positive=True)
    assert np.isnan(found.loc["site=c", ["estimate", "low", "high"]].astype(float)).all()
    assert not found.loc["site=c", "promised"]
    assert np.isfinite(found.loc["site=b", "estimate"])


def test_where_weights_have_no_solution_positive_ones_may(frame, monkeypatch):
    sampler = fitted(frame)
    expected = estimate_regression(sampler, "ill", ["dose"], positive=True)
    monkeypatch.setattr(_calibration.Calibration, "weights", lambda rows: 0 * rows._law)
    found = estimate_regression(sampler, "ill", ["dose"], positive=True)
    assert (abs(found["estimate"] - expected["estimate"]) < expected["std_error"]).all()
    monkeypatch.setattr(_calibration.Calibration, "positive_weights", lambda rows: 0 * rows._law)
    with pytest.warns(ConvergenceWarning, match="no solution"):
        found = estimate_regression(sampler, "ill", ["dose"], positive=True)
    assert found["estimate"].isna().all()
    assert not found["promised"].any()


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda s: estimate_means(s, "weight"), r"columns must be columns of the schema.*weight"),
        (lambda s: estimate_means(s, []), "columns must be columns of the schema"),
        (lambda s: estimate_means(s, ["age", "age"]), "each once"),
        (lambda s: estimate_means(s, "site"), r"must be numeric, got.*site"),
        (lambda s: estimate_means(s, "age", conditions={"size": 1}), "size"),
        (lambda s: estimate_means(s, "age", confidence_level=1.0), "confidence_level"),
        (lambda s: estimate_means(s, "age", n_rows=3), "n_rows"),
        (lambda s: estimate_shares(s, "age"), r"a column with labels .*, got 'age'"),
        (lambda s: estimate_shares(s, []), "events must be"),
        (lambda s: estimate_shares(s, {"site": "a"}), "events must be"),
        (lambda s: estimate_shares(s, [{"site": "z"}]), "site"),
        (lambda s: estimate_regression(s, "ill", ["age"]), "positive"),
        (lambda s: estimate_regression(s, "age", ["age"]), "must not include the target"),
        (
            lambda s: estimate_regression(s, "age", ["mood"]),
            "features must be columns of the schema",
        ),
    ],
)
def test_errors_name_what_is_wrong(exact, call, message):
    with pytest.raises(ValueError, match=message):
        call(exact)


def test_too_many_cells_are_refused(exact, monkeypatch):
    monkeypatch.setattr(_calibration, "_MOST_CELLS", 20)
    with pytest.raises(ValueError, match=r"at most 20 cells, got \d+ for 3 columns"):
        estimate_regression(exact, "ill", ["age", "site"], positive=True)


def test_dates_are_conditions_and_no_numbers():
    rng = np.random.default_rng(0)
    days = pd.Timestamp("2024-01-01") + pd.to_timedelta(rng.integers(366, size=2000), "D")
    frame = pd.DataFrame({"day": days, "sold": rng.binomial(1, 0.3, size=2000)})
    schema = Schema(
        {"day": Datetime("2024-01-01", "2024-12-31", resolution="D"), "sold": Categorical([0, 1])}
    )
    sampler = TableSampler(np.inf, schema=schema, random_state=0).fit(frame)
    with pytest.raises(ValueError, match="must be numeric"):
        estimate_means(sampler, "day")
    spring = pd.Interval(pd.Timestamp("2024-03-01"), pd.Timestamp("2024-06-01"), closed="left")
    found = estimate_shares(sampler, [{"day": spring}])
    inside = ((days >= spring.left) & (days < spring.right)).mean()
    assert found["estimate"].item() == pytest.approx(inside, abs=0.02)
