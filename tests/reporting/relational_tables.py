"""Two small tables with keys: patients and their visits."""

import warnings

import numpy as np
import pandas as pd

from sklearn_dpgen.exceptions import MaxRowsWarning
from sklearn_dpgen.schema import Categorical, Datetime, Numeric, RelationalSchema, Schema, Table
from sklearn_dpgen.tables import RelationalSampler

SCHEMA = RelationalSchema(
    {
        "patients": Table(
            Schema({"age": Numeric(18, 100, integer=True), "sex": Categorical(["f", "m"])}),
            primary_key="id",
        ),
        "visits": Table(
            Schema(
                {
                    "day": Datetime("2020-01-01", "2022-12-31", resolution="D"),
                    "ward": Categorical(["a", "b"]),
                    "pressure": Numeric(60, 220, integer=True, nullable=True),
                }
            ),
            foreign_key={"patient": "patients"},
            sequence_index="day",
            max_rows=8,
        ),
    }
)


def tables(n=200, seed=0):
    """Return patients and their visits, of whom some have none; wards mostly stay."""
    rng = np.random.default_rng(seed)
    age = rng.integers(20, 80, n)
    patients = pd.DataFrame({"id": np.arange(n), "age": age, "sex": rng.choice(["f", "m"], n)})
    who = np.repeat(np.arange(n), rng.integers(0, 7, n))
    home = rng.integers(2, size=n)[who]
    ward = np.where(rng.uniform(size=len(who)) < 0.9, home, 1 - home)
    pressure = np.clip(np.rint(rng.normal(100 + age[who] / 2, 10)), 60, 220)
    pressure[rng.uniform(size=len(who)) < 0.1] = np.nan
    days = pd.to_timedelta(rng.integers(0, 1000, len(who)), "D")
    visits = pd.DataFrame(
        {
            "patient": who,
            "day": pd.Timestamp("2020-01-01") + days,
            "ward": np.array(["a", "b"])[ward],
            "pressure": pressure,
        }
    )
    return {"patients": patients, "visits": visits}


def shuffled(given, seed=1):
    """Return tables in which the visits are given to other patients."""
    visits = given["visits"]
    order = np.random.default_rng(seed).permutation(len(visits))
    moved = visits[["ward", "pressure"]].iloc[order].reset_index(drop=True)
    return given | {"visits": visits.assign(ward=moved["ward"], pressure=moved["pressure"])}


def fitted(given=None, **options):
    options = {"epsilon": 20.0, "schema": SCHEMA, "population_size": 300, "max_iter": 3} | options
    with warnings.catch_warnings():
        # Noise alone exceeds three standard deviations in a fit of about a thousand.
        warnings.simplefilter("ignore", MaxRowsWarning)
        return RelationalSampler(**options).fit(tables() if given is None else given)
