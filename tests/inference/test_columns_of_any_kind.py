"""Estimates of tables in any order, with rules, constants, dates and identifiers."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from sklearn_dpgen.evolution import PrivateEvolutionSampler
from sklearn_dpgen.inference import (
    estimate_means,
    estimate_regression,
    estimate_shares,
    sample_tables,
)
from sklearn_dpgen.inference._calibration import Calibration
from sklearn_dpgen.schema import (
    Categorical,
    Datetime,
    Identifier,
    Inequality,
    Numeric,
    Ordinal,
    Schema,
    Sum,
)
from sklearn_dpgen.tables import TableSampler

SCHEMA = Schema(
    {
        "key": Identifier(),
        "site": Categorical(["a", "b"]),
        "unit": Categorical(["kg"]),
        "year": Ordinal([2024]),
        "low": Numeric(0, 9, integer=True),
        "high": Numeric(0, 9, integer=True, nullable=True),
        "total": Numeric(0, 18, integer=True, nullable=True),
        "day": Datetime("2024-01-01", "2024-12-31", resolution="D", zone="Europe/Berlin"),
    }
)
RULES = [Sum("total", ["low", "high"]), Inequality("low", "high")]
N_ROWS = {"n_rows": 500}


def records(n=1500):
    rng = np.random.default_rng(0)
    low = rng.binomial(9, 0.3, n)
    high = np.where(rng.uniform(size=n) < 0.1, np.nan, np.minimum(low + rng.integers(0, 4, n), 9))
    days = pd.Timestamp("2024-01-01", tz="Europe/Berlin") + pd.to_timedelta(
        24 * rng.integers(1, 365, n), unit="h"
    )
    return pd.DataFrame(
        {
            "key": np.arange(n),
            "site": rng.choice(["a", "b"], n, p=[0.8, 0.2]),
            "unit": "kg",
            "year": 2024,
            "low": low,
            "high": high,
            "total": low + high,
            "day": days.normalize(),
        }
    )


def fitted(frame, epsilon=2.0):
    options = {"constraints": RULES, "population_size": 1000, "random_state": 0}
    return TableSampler(epsilon, schema=SCHEMA, **options).fit(frame)


@pytest.fixture(scope="module")
def frame():
    return records()


@pytest.fixture(scope="module")
def sampler(frame):
    return fitted(frame)


def test_columns_of_the_records_are_in_any_order(frame):
    turned = fitted(frame[list(SCHEMA)[::-1]], np.inf)
    found = estimate_shares(turned, "site", conditions={"low": 2}, **N_ROWS)["estimate"]
    here = frame.loc[frame["low"] == 2, "site"]
    assert_allclose(found, [(here == "a").mean(), (here == "b").mean()], atol=0.01)
    assert_allclose(estimate_means(turned, "low", **N_ROWS)["estimate"], frame["low"].mean(), 0.01)


def test_the_order_of_names_changes_nothing(sampler):
    """Which is that of hashes where they are of a set: another one in each process."""
    names = ["low", "high", "day"]
    first, second = (
        Calibration(sampler, n, random_state=0, **N_ROWS) for n in (names, names[::-1])
    )
    assert (first._law == 0).any()
    assert_array_equal(first.weights(), second.weights())
    pd.testing.assert_frame_equal(first.frame, second.frame)


def n_broken(tables):
    return sum(int((table["low"] > table["high"]).sum()) for table in tables)


def test_several_tables_fulfil_the_rules(sampler, monkeypatch):
    tables = list(sample_tables(sampler, 3, random_state=0, **N_ROWS))
    assert list(tables[0].columns) == ["site", "unit", "year", "low", "high", "day"]
    assert n_broken(tables) == 0
    # What noise may hide is put in for all that.
    start = Calibration.__init__

    def careless(self, *args, **options):
        start(self, *args, **options)
        self.kept = True

    monkeypatch.setattr(Calibration, "__init__", careless)
    assert n_broken(sample_tables(sampler, 3, random_state=0, **N_ROWS)) > 0


@pytest.mark.parametrize("zone", [None, "UTC", "Europe/Berlin"])
def test_dates_with_a_zone_are_conditions(frame, sampler, zone):
    """Naive ones are in UTC, as those of samples."""
    ends = [pd.Timestamp(day, tz="UTC") for day in ("2024-03-01", "2024-09-01")]
    left, right = (e.tz_convert(zone) if zone else e.tz_localize(None) for e in ends)
    found = estimate_shares(sampler, [{"day": pd.Interval(left, right)}], **N_ROWS)
    inside = (frame["day"] > ends[0]) & (frame["day"] <= ends[1])
    assert abs(found["estimate"].item() - inside.mean()) < 4 * found["std_error"].item()
    assert found["std_error"].item() < 0.2


def test_counts_of_many_records_can_be_solved_for(frame):
    """Without noise, the sums of tables agree to rounding."""
    many, factor = fitted(frame, np.inf), 1e7
    expected = estimate_means(many, "low", conditions={"site": "a"}, **N_ROWS)
    many.n_records_ *= factor
    for name in ("one_way_marginals_", "marginals_"):
        tables = [replace(part, counts=factor * part.counts) for part in getattr(many, name)]
        setattr(many, name, tables)
    found = estimate_means(many, "low", conditions={"site": "a"}, **N_ROWS)
    assert_allclose(found["estimate"], expected["estimate"], rtol=1e-3)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda s: estimate_means(s, "year"),
            r"must be measured, got the constants .*year",
        ),
        (
            lambda s: estimate_shares(s, "unit"),
            r"must be measured, got the constants .*unit",
        ),
        (
            lambda s: sample_tables(s, columns=["unit"]),
            r"must be measured, got the constants .*unit",
        ),
        (lambda s: estimate_means(s, "key"), "columns must be numeric, got.*key"),
        (lambda s: estimate_shares(s, [{"key": 1}]), "must be measured, got .*key.* computed"),
        (lambda s: estimate_means(s, "total"), "must be measured, got .*total.* computed"),
        (
            lambda s: estimate_means(s, "low", conditions={"total": 3}),
            "must be measured, got .*total.* computed",
        ),
        (lambda s: estimate_regression(s, "low", "day"), "features must be numeric.*day"),
        (
            lambda s: estimate_regression(s, "low", "high", conditions={"high": None}),
            "conditions must leave rows .* for low",
        ),
        (lambda s: estimate_means(s, 5), "columns must be columns of the schema"),
        (lambda s: estimate_means(s, None), "columns must be columns of the schema"),
        (lambda s: estimate_means(s, [["low"]]), "columns must be columns of the schema"),
        (lambda s: sample_tables(s, columns=5), "columns must be columns of the schema"),
        (lambda s: estimate_regression(s, ["low"], "high"), "target must be columns of the schema"),
        (lambda s: estimate_means(s, "low", conditions=5), "conditions must map"),
        (lambda s: estimate_means(s, "low", conditions=["high"]), "conditions must map"),
        (lambda s: estimate_shares(s, 5), "events must be"),
        (lambda s: estimate_shares(s, [5]), "events must be"),
        (lambda s: estimate_shares(s, ["low"]), "events must be"),
    ],
)
def test_errors_name_the_parameter(sampler, call, message):
    with pytest.raises(ValueError, match=message):
        call(sampler)


def test_constants_are_conditions(sampler):
    plain, given = (
        estimate_means(sampler, "low", conditions=conditions, **N_ROWS)
        for conditions in (None, {"unit": "kg", "year": 2024})
    )
    pd.testing.assert_frame_equal(plain, given)


def test_a_sampler_must_tell_what_it_released(frame):
    schema = Schema({"low": SCHEMA["low"]})
    options = {"n_samples": 20, "n_iter": 1, "device": "cpu", "random_state": 0}
    other = PrivateEvolutionSampler(100.0, schema=schema, **options).fit(frame[["low"]])
    for call in (lambda: estimate_means(other, "low"), lambda: sample_tables(other)):
        with pytest.raises(TypeError, match="sampler must be a TableSampler"):
            call()
