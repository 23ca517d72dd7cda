"""Estimates by refits: an identity of the bootstrap, and errors as large as they say."""

import warnings

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose
from scipy.stats import t as student

from sklearn_dpgen.exceptions import NoisyCountsWarning
from sklearn_dpgen.inference import estimate_by_refits
from sklearn_dpgen.ledger import PrivacyLedger
from sklearn_dpgen.schema import Categorical, Numeric, Schema, Table
from sklearn_dpgen.tables import RelationalSampler, TableSampler

PANEL = Table(
    Schema(
        {
            "sex": Categorical(["f", "m"]),
            "year": Numeric(1, 4, integer=True),
            "ill": Categorical([0, 1]),
            "visits": Numeric(0, 9, integer=True),
        }
    ),
    primary_key="id",
    sequence_index="year",
    max_rows=4,
    static=["sex"],
    ties=False,
)


def records(n, seed=0):
    """Return persons of 2 to 4 years who are often ill in all of them."""
    rng = np.random.default_rng(seed)
    sex, level = rng.integers(2, size=n), rng.normal(size=n)
    who = np.repeat(np.arange(n), rng.integers(2, 5, n))
    year = pd.Series(who).groupby(who).cumcount().to_numpy() + 1
    ill = rng.uniform(size=len(who)) < 1 / (1 + np.exp(1 - 2 * level[who] - sex[who]))
    visits = np.minimum(rng.poisson(1 + 2 * ill), 9)
    return pd.DataFrame(
        {
            "id": who,
            "sex": np.where(sex == 1, "m", "f")[who],
            "year": year,
            "ill": ill.astype(int),
            "visits": visits,
        }
    )


def fitted(n=500, epsilon=8.0, seed=0, **options):
    options = {"random_state": seed, "population_size": 400, "max_iter": 5} | options
    return RelationalSampler(epsilon, schema=PANEL, **options).fit(records(n, seed))


def statistic(rows):
    """Return a mean, a share and the slope of a regression."""
    ill, visits = (rows[name].to_numpy(dtype=float) for name in ("ill", "visits"))
    slope = np.cov(ill, visits)[0, 1] / ill.var(ddof=1)
    return pd.Series({"visits": visits.mean(), "ill": ill.mean(), "slope": slope})


@pytest.fixture(scope="module")
def sampler():
    return fitted()


@pytest.mark.slow
def test_estimates_are_those_of_the_bootstrap(sampler):
    seen = []

    def watched(rows):
        seen.append((rows["id"].nunique(), statistic(rows)))
        return seen[-1][1]

    found = estimate_by_refits(sampler, watched, n_refits=3, n_samples=700, confidence_level=0.9)
    # A person without rows is not in a panel.
    assert all(690 < n <= 700 for n, _ in seen)
    own, *refits = (result.to_numpy() for _, result in seen)
    mean, variance = np.mean(refits, axis=0), np.var(refits, axis=0, ddof=1)
    assert found.index.tolist() == ["visits", "ill", "slope"]
    assert_allclose(found["estimate"], 2 * own - mean)
    assert_allclose(found["bias"], mean - own)
    assert_allclose(found["std_error"], np.sqrt(4 / 3 * variance))
    half = student.ppf(0.95, 2) * found["std_error"]
    assert_allclose(found["high"] - found["estimate"], half)
    assert_allclose(found["estimate"] - found["low"], half)


@pytest.mark.slow
def test_refits_charge_nothing_and_leave_the_sampler_alone(tmp_path):
    cap = {"dataset": "panel", "epsilon": 9, "delta": 1e-3, "unit": "id"}
    ledger = PrivacyLedger.create(tmp_path / "ledger.json", **cap)
    sampler = fitted(ledger=ledger)
    spent, before = ledger.spent(), vars(sampler).copy()
    first, again = (estimate_by_refits(sampler, statistic, n_refits=2) for _ in range(2))
    pd.testing.assert_frame_equal(first, again)
    assert ledger.spent() == spent
    assert vars(sampler) == before


@pytest.mark.slow
def test_numbers_and_arrays_have_positions(sampler):
    options = {"n_refits": 2, "n_samples": 50}
    assert estimate_by_refits(sampler, len, **options).index.tolist() == [0]
    found = estimate_by_refits(sampler, lambda rows: np.arange(2), **options)
    assert found["estimate"].tolist() == [0, 1]
    assert found["std_error"].tolist() == [0, 0]


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"sampler": TableSampler(schema=Schema({"x": Numeric(0, 1)}))}, TypeError, "Relational"),
        ({"n_refits": 1}, ValueError, "n_refits"),
        ({"n_samples": 0}, ValueError, "n_samples"),
        ({"confidence_level": 1.0}, ValueError, "confidence_level"),
        ({"statistic": lambda rows: np.nan}, ValueError, "finite numbers"),
        ({"statistic": lambda rows: rows["visits"].tolist()}, ValueError, "one length"),
    ],
)
def test_errors_name_what_is_wrong(sampler, options, error, message):
    options = {"sampler": sampler, "statistic": statistic, "n_refits": 2, "n_samples": 50} | options
    with pytest.raises(error, match=message):
        estimate_by_refits(**options)


def naive(sampler, n):
    """Return what takes synthetic rows for independent records: the broken twin."""
    rows = sampler.sample(n, random_state=0)
    table = pd.DataFrame({"estimate": statistic(rows)[["visits", "ill"]]})
    part = rows[["visits", "ill"]].astype(float)
    table["std_error"] = part.std() / np.sqrt(len(rows))
    return table


@pytest.mark.slow
def test_errors_are_as_large_as_they_say():
    """Of 12 samples of 3000 persons; those that take rows for records are too small."""
    truth = statistic(records(300_000, seed=99))
    scores, others = [], []
    for seed in range(12):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", NoisyCountsWarning)
            sampler = fitted(3000, 1.0, seed, population_size=1000)
        found = estimate_by_refits(sampler, statistic, n_refits=8, n_samples=3000)
        scores.append((found["estimate"] - truth) / found["std_error"])
        simple = naive(sampler, 3000)
        others.append((simple["estimate"] - truth[["visits", "ill"]]) / simple["std_error"])
    # The variance of Student's t with 7 degrees of freedom is 7 / 5, and the mean of 12 squares has
    # a standard deviation of 0.9.
    assert (np.mean(np.square(scores), axis=0) < 4).all()
    assert np.mean(np.square(others)) > 3
