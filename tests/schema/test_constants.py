"""Columns of one label: declared, encoded and decoded."""

import numpy as np
import pandas as pd
import pytest

from sklearn_dpgen.domains import OneHot
from sklearn_dpgen.preprocessing import TabularEncoder
from sklearn_dpgen.schema import Categorical, Datetime, Numeric, Ordinal, Schema

SCHEMA = Schema(
    {
        "unit": Categorical(["kg"]),
        "year": Ordinal([2020]),
        "on": Categorical([True]),
        "weight": Numeric(0, 10),
        "site": Ordinal(["a"], nullable=True),
    }
)
FRAME = pd.DataFrame(
    {
        "unit": ["kg", "kg"],
        "year": [2020, 2020],
        "on": [True, True],
        "weight": [2.5, 10.0],
        "site": ["a", None],
    }
)


def test_what_is_constant():
    names = [name for name, column in SCHEMA.items() if column.is_constant]
    assert names == ["unit", "year", "on"]
    assert SCHEMA["unit"].domain == OneHot(1)
    # A null is another category, and a number and a date have bounds that differ.
    assert SCHEMA["site"].domain == OneHot(2)
    assert not Datetime("2020-01-01", "2020-01-02", resolution="D").is_constant


def test_constants_round_trip():
    encoder = TabularEncoder(SCHEMA).fit(FRAME)
    X = encoder.transform(FRAME)
    np.testing.assert_array_equal(X, [[1, 1, 1, -0.5, 1, 0], [1, 1, 1, 1, 0, 1]])
    np.testing.assert_array_equal(encoder.domain_.project(0.2 * X)[:, :3], 1)
    # A block of one entry has no other one, whatever it holds.
    pd.testing.assert_frame_equal(encoder.inverse_transform(X * [-1, 0, 1, 1, 1, 1]), FRAME)
    assert Schema.from_yaml(SCHEMA.to_yaml()) == SCHEMA


@pytest.mark.parametrize(("name", "value"), [("unit", "lb"), ("year", 2021), ("on", None)])
def test_another_value_than_the_constant_is_refused(name, value):
    other = FRAME.astype({name: object})
    other.loc[1, name] = value
    with pytest.raises(ValueError, match=f"Column '{name}' ") as caught:
        TabularEncoder(SCHEMA).fit_transform(other)
    assert "lb" not in str(caught.value)
    assert SCHEMA.check(other).loc[name, ["undeclared", "null"]].sum() == 1
