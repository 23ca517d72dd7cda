"""Bins that the answers of a first group of people tell of."""

import numpy as np
import pandas as pd
import pytest

from sklearn_dpgen.mechanisms import JointRandomizedResponse
from sklearn_dpgen.schema import Categorical, Datetime, Numeric, Schema
from sklearn_dpgen.tables import LocalTableSampler

SCHEMA = Schema(
    {
        "pay": Numeric(0, 1000, nullable=True),
        "age": Numeric(0, 99, integer=True),
        "day": Datetime("2020-01-01", "2021-01-01"),
        "sex": Categorical(["f", "m"]),
    }
)


def records(n, seed=0):
    """Half of the pay is nothing and a tenth is missing, the rest is skewed; ages are even."""
    rng = np.random.default_rng(seed)
    pay = np.clip(rng.lognormal(3, 1, n), 0, 1000)
    pay[rng.random(n) < 0.5] = 0.0
    pay[rng.random(n) < 0.1] = np.nan
    days = pd.Timestamp("2020-01-01") + pd.to_timedelta(rng.integers(0, 366, n), unit="D")
    return pd.DataFrame(
        {"pay": pay, "age": rng.integers(0, 100, n), "day": days, "sex": rng.choice(["f", "m"], n)}
    )


@pytest.fixture(scope="module")
def finder():
    asked = JointRandomizedResponse(8.0, schema=SCHEMA, n_bins=64, n_asked=1, random_state=0).fit()
    sampler = LocalTableSampler(
        asked, population_size=20, max_iter=150, random_state=0, device="cpu"
    )
    return sampler.fit(asked.transform(records(20_000)))


def counts(found, name, table):
    values = table[name].dropna()
    edges = found[name]
    if name == "day":
        values, edges = (pd.Series(pd.to_datetime(v)).astype("int64") for v in (values, edges))
    return np.histogram(values, edges)[0] / len(values)


def test_bins_hold_even_shares_and_heaps_stay_narrow(finder):
    found, table = finder.find_bins(8), records(20_000, seed=1)
    assert list(found) == ["pay", "age", "day"]
    for name in ("age", "day"):
        assert 7 <= len(found[name]) - 1 <= 8
        assert counts(found, name, table).max() < 0.2
        # Equal bins of the skewed column would put nearly everybody in the first one.
    pay = counts(found, "pay", table)
    assert np.histogram(table["pay"].dropna(), 8)[0][0] / table["pay"].notna().sum() > 0.9
    assert found["pay"][1] == pytest.approx(1000 / 64)
    assert pay[1:].max() < 0.25
    assert len(pay) > 3


def test_edges_are_those_of_the_fine_bins_and_make_a_mechanism(finder):
    found = finder.find_bins(6)
    assert found["pay"][[0, -1]].tolist() == [0.0, 1000.0]
    fine = np.linspace(0, 1000, 65)
    assert np.abs(found["pay"][:, None] - fine).min(axis=1).max() < 1e-9
    second = JointRandomizedResponse(4.0, schema=SCHEMA, n_bins=found, random_state=0).fit()
    sizes = {name: part.stop - part.start for name, part in second.encoder_.blocks_.items()}
    # The null of the pay is one more.
    assert sizes == {name: len(edges) - 1 + (name == "pay") for name, edges in found.items()} | {
        "sex": 2
    }
    second.transform(records(50))


def test_fewest_bins(finder):
    assert all(len(edges) == 3 for edges in finder.find_bins(2).values())
    for n_bins in (1, 0, -3, 2.5, "auto", None):
        with pytest.raises(ValueError, match="n_bins must be an integer of at least 2"):
            finder.find_bins(n_bins)


@pytest.mark.slow
def test_a_law_that_holds_one_bin_alone():
    asked = JointRandomizedResponse(10.0, schema=SCHEMA, n_bins=4, n_asked=1, random_state=0).fit()
    table = records(2000).assign(age=0, pay=999.0)
    sampler = LocalTableSampler(asked, population_size=5, random_state=0, device="cpu")
    found = sampler.fit(asked.transform(table)).find_bins(3)
    JointRandomizedResponse(1.0, schema=SCHEMA, n_bins=found).fit()
