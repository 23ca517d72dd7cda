"""A table of every kind of column, and intervals on it."""

import pandas as pd
import pytest

from sklearn_dpgen.preprocessing import TabularEncoder
from sklearn_dpgen.schema import Categorical, Datetime, Numeric, Ordinal, Schema

CLOSED = ["left", "right", "both", "neither"]
every_closed = pytest.mark.parametrize("closed", CLOSED)
few = pytest.mark.filterwarnings("ignore:Conditions on")


def between(left, right, closed="both"):
    return pd.Interval(left, right, closed=closed)


SCHEMA = Schema(
    {
        "age": Numeric(0, 100, integer=True),
        "pay": Numeric(0, 1, nullable=True),
        "job": Categorical(["baker", "nurse"]),
        "level": Ordinal([4, 1, 2.5], nullable=True),
        "grade": Ordinal(["low", "high"]),
        "day": Datetime("2020-01-01", "2020-12-31", resolution="D"),
    }
)


ENCODER = TabularEncoder(SCHEMA, n_bins=4).fit()


DAY = pd.Timestamp("2020-02-29")
