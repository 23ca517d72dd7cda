"""Schemas and records that the tests of the tabular mechanism share."""

import numpy as np
import pandas as pd

from sklearn_dpgen.schema import Categorical, Datetime, Numeric, Ordinal, Schema

SCHEMA = Schema(
    {
        "age": Numeric(0, 100, integer=True),
        "visits": Numeric(0, 9, integer=True, nullable=True),
        "income": Numeric(0, 1000),
        "region": Categorical(["north", "south"], nullable=True),
    }
)
BINS = {"income": 4}
NO_NULL = Schema({"age": SCHEMA["age"], "score": Numeric(-1, 1), "sex": Categorical(["f", "m"])})
FULL = Schema(
    {
        **SCHEMA,
        "level": Ordinal(["low", "mid", "high"]),
        "day": Datetime("2020-01-01", "2024-12-31", resolution="D"),
        "left": Datetime("2020-01-01", "2024-12-31", nullable=True),
        "smoker": Categorical([False, True], nullable=True),
    }
)


def records(null=False):
    return pd.DataFrame(
        {
            "region": pd.Categorical(["south", "south", None if null else "north"]),
            "age": [17, 42, 99],
            "visits": [0, 9, None if null else 3],
            "income": [0.5, 1000.0, 12.5],
            "level": ["low", "low", "high"],
            "day": np.array(["2020-02-03", "2024-12-31", "2021-01-01"], "M8[us]"),
            "left": np.array(
                ["2020-02-03", "2024-12-31", "NaT" if null else "2021-01-01"], "M8[us]"
            ),
            "smoker": [True, False, None if null else True],
        },
        index=[5, 3, 1],
    )
