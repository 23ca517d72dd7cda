"""What a curator is told about how records fit a schema."""

import datetime
from decimal import Decimal

import numpy as np
import pandas as pd
import pytest

from sklearn_dpgen.preprocessing import TabularEncoder
from sklearn_dpgen.schema import Categorical, Datetime, Numeric, Schema

SCHEMA = Schema(
    {
        "age": Numeric(0, 120, integer=True),
        "income": Numeric(0, 1000, nullable=True),
        "sex": Categorical(["f", "m"]),
        "day": Datetime("2020-01-01", "2024-12-31"),
    }
)
FAULTS = ["outside_bounds", "undeclared", "null", "not_integer", "unreadable"]


def records():
    return pd.DataFrame(
        {
            "note": ["secret"] * 6,
            "day": [
                datetime.date(2020, 1, 1),
                datetime.date(1999, 1, 1),
                5,
                None,
                "secret",
                pd.NaT,
            ],
            "sex": ["f", "m", "secret", None, [1], "x"],
            "income": [None, -1.0, np.inf, 1000.0, 0.0, 999.5],
            "age": pd.Series([17, 120.5, Decimal("3.5"), 10**400, "secret", None], dtype=object),
        }
    )


def test_each_fault_is_counted_once():
    found = SCHEMA.check(records())
    assert found.columns.tolist() == FAULTS
    assert found.index.tolist() == list(SCHEMA)
    assert found.loc["age"].tolist() == [2, 0, 1, 2, 1]
    assert found.loc["income"].tolist() == [2, 0, 0, 0, 0]
    assert found.loc["sex"].tolist() == [0, 3, 1, 0, 0]
    assert found.loc["day"].tolist() == [1, 0, 2, 0, 2]
    assert (found.dtypes == "int64").all()


def test_counts_alone_are_shown():
    text = SCHEMA.check(records()).to_string()
    assert "secret" not in text
    assert "120.5" not in text


def test_records_that_fit_have_no_faults():
    rng = np.random.default_rng(0)
    frame = TabularEncoder(SCHEMA).fit().inverse_transform(SCHEMA.domain.sample(50, rng))
    assert not SCHEMA.check(frame).to_numpy().any()


def test_what_is_refused_is_counted_and_what_is_counted_as_null_or_unreadable_is_refused():
    frame = records()
    refusals = ["undeclared", "null", "unreadable"]
    for name, column in SCHEMA.items():
        for i in range(len(frame)):
            row = frame.iloc[[i]]
            schema = Schema({name: column})
            counted = schema.check(row)[refusals].to_numpy().any()
            if counted:
                with pytest.raises(ValueError, match=repr(name)):
                    column.encode(row[name])
            else:
                column.encode(row[name])


def test_columns_must_be_there_once():
    with pytest.raises(ValueError, match=r"missing \['age'\], more than once \['sex'\]"):
        SCHEMA.check(records()[["day", "sex", "sex", "income"]])
