"""Declared columns that the tests of schemas share."""

import numpy as np
import pandas as pd
from hypothesis import settings
from hypothesis import strategies as st

from sklearn_dpgen.schema import Categorical, Datetime, Numeric, Ordinal, Schema

reproducibly = settings(deadline=None, max_examples=60, derandomize=True)


SCHEMA = Schema(
    {
        "age": Numeric(0, 120, integer=True),
        "income": Numeric(-10.0, 1e6, step=0.5, nullable=True),
        "sex": Categorical(["f", "m", "yes", "1e5", "é\n"]),
        "flag": Categorical([False, True], nullable=True),
        "code": Categorical([1, 2.5, "a", False]),
        "level": Ordinal([1, 2, 3]),
        "day": Datetime("2020-01-01", "2024-12-31", resolution="D", nullable=True),
        "moment": Datetime("2020-01-01T00:00:00.25", "2021-01-01", resolution="ms"),
    }
)


def stamps(*dates):
    return pd.Series(np.array(dates, dtype="datetime64[us]"))


def labels():
    label = st.one_of(
        st.booleans(), st.integers(), st.floats(allow_nan=False, allow_infinity=False), st.text()
    )
    return st.lists(label, min_size=2, max_size=5, unique=True)


def numerics():
    whole = st.tuples(st.integers(-(2**40), 2**40), st.integers(1, 2**40)).map(
        lambda pair: Numeric(pair[0], sum(pair), integer=True)
    )
    real = st.builds(
        lambda low, width, null: Numeric(low, low + width, nullable=null),
        st.floats(-1e6, 1e6),
        st.floats(1e-3, 1e6),
        st.booleans(),
    )
    return st.one_of(whole, real)


def columns():
    return st.one_of(
        numerics(),
        st.builds(Categorical, labels(), nullable=st.booleans()),
        st.builds(Ordinal, labels(), nullable=st.booleans()),
    )


FINE = {
    "interval": Numeric(-3, 11),
    "integers": Numeric(0, 10**9, integer=True),
    "few integers": Numeric(-(2**16), 2**16 - 1, integer=True),
    "decimals": Numeric(-5000, 5000, step=0.1, nullable=True),
    "seconds": Datetime("1924-01-01", "2024-01-01", resolution="s"),
    "microseconds": Datetime("2023-01-01", "2024-01-01", resolution="us", nullable=True),
    "finer than floats": Datetime("0800-01-01", "2024-01-01", resolution="us"),
}
