"""Numbers and dates seen through public bins."""

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sklearn_dpgen.preprocessing import TabularEncoder
from sklearn_dpgen.schema import Categorical, Datetime, Numeric, Schema

SCHEMA = Schema(
    {
        "visits": Numeric(0, 24, integer=True),
        "income": Numeric(0.0, 10.0, nullable=True),
        "day": Datetime("2020-01-01", "2020-01-11", resolution="D"),
        "sex": Categorical(["f", "m"]),
    }
)
BINS = {"visits": [0, 1, 3, 6, 24], "income": 4}


def records():
    return pd.DataFrame(
        {
            "visits": [0, 2, 3, 24],
            "income": [0.0, 2.5, np.nan, 10.0],
            "day": pd.to_datetime(["2020-01-01", "2020-01-05", "2020-01-11", "2020-01-02"]),
            "sex": ["f", "m", "m", "f"],
        }
    )


def test_bins_hold_their_lower_edge_and_nulls_come_last():
    encoder = TabularEncoder(SCHEMA, n_bins=BINS).fit()
    encoded = encoder.transform(records())
    codes = {name: encoded[:, block].argmax(1).tolist() for name, block in encoder.blocks_.items()}
    assert codes["visits"] == [0, 1, 2, 3]
    assert codes["income"] == [0, 1, 4, 3]
    assert encoder.domain_.contains(encoded, tol=0).all()
    assert encoder.get_feature_names_out()[encoder.blocks_["income"]][-1] == "income=<null>"


@pytest.mark.parametrize("rng", [None, np.random.default_rng(0)])
def test_decoded_values_stay_in_their_bin_and_on_their_grid(rng):
    encoder = TabularEncoder(SCHEMA, n_bins=12).fit(records())
    encoded = np.repeat(encoder.transform(records()), 200, axis=0)
    decoded = encoder.inverse_transform(encoded, rng=rng)
    np.testing.assert_array_equal(encoder.transform(decoded), encoded)
    assert decoded.dtypes.to_dict() == encoder.dtypes_
    assert decoded["visits"].dtype == np.int64


def test_random_placement_is_uniform_on_the_grid_of_a_bin():
    encoder = TabularEncoder(SCHEMA, n_bins=BINS).fit()
    encoded = np.repeat(encoder.transform(records()), 5000, axis=0)
    decoded = encoder.inverse_transform(encoded, rng=np.random.default_rng(0))
    last = decoded["visits"][-5000:].value_counts()
    assert sorted(last.index) == list(range(6, 25))
    expected = 5000 / 19
    assert (abs(last - expected) < 5 * np.sqrt(expected)).all()
    first = decoded["income"][:5000]
    assert abs(first.mean() - 1.25) < 5 * 2.5 / np.sqrt(12 * 5000)


@given(st.integers(2, 40), st.integers(1, 30))
def test_equal_bins_of_a_grid_are_never_empty(n_bins, high):
    schema = Schema({"k": Numeric(0, high, integer=True)})
    encoder = TabularEncoder(schema, n_bins=n_bins).fit()
    encoded = encoder.transform(pd.DataFrame({"k": np.arange(high + 1)}))
    counts = encoded.sum(axis=0)
    assert encoded.shape[1] == min(n_bins, high + 1)
    assert counts.min() >= 1
    assert counts.max() - counts.min() <= 1


@pytest.mark.parametrize(
    ("bins", "message"),
    [
        ({"unknown": 3}, "must name columns of the schema, got .*unknown"),
        ({"sex": 3}, "'sex' must be numeric or datetime to have bins"),
        ({"visits": 1}, "'visits': bins must be"),
        ({"visits": [0, 3]}, "at least three"),
        ({"visits": [0, 3, 3, 24]}, "ascend"),
        ({"visits": [1, 3, 24]}, "declared bounds"),
        ({"visits": [0, 3.2, 3.8, 24]}, "declared grid"),
    ],
)
def test_bad_bins_name_the_column_and_the_rule(bins, message):
    with pytest.raises(ValueError, match=message):
        TabularEncoder(SCHEMA, n_bins=bins).fit()


@pytest.mark.parametrize("seed", [None, 0])
def test_codes_are_decoded_as_blocks_are(seed):
    # The frame may have another order than the schema, which the codes have.
    frame = records()[["sex", "day", "visits", "income"]]
    encoder = TabularEncoder(SCHEMA, n_bins=BINS | {"day": 3}).fit(frame)
    encoded = np.repeat(encoder.transform(frame), 100, axis=0)
    codes = np.stack([encoded[:, b].argmax(axis=1) for b in encoder.blocks_.values()], axis=1)
    rngs = [None if seed is None else np.random.default_rng(seed) for _ in range(2)]
    decoded = encoder.decode_codes(codes, rng=rngs[0])
    pd.testing.assert_frame_equal(decoded, encoder.inverse_transform(encoded, rng=rngs[1]))
    assert list(decoded) == list(frame)
    assert decoded["income"].isna().sum() == 100
    assert encoder.decode_codes(codes[:0]).dtypes.to_dict() == encoder.dtypes_


@pytest.mark.parametrize(
    ("codes", "message"),
    [
        ([[0, 0, 0]], r"shape \(n, 4\), got \(1, 3\)"),
        ([0, 0, 0, 0], r"shape \(n, 4\), got \(4,\)"),
        ([[0, 5, 0, 0]], "'income' must be integers from 0 to 4"),
        ([[0, 0, 0, -1]], "'sex' must be integers from 0 to 1"),
        ([[0.0, 0.0, 0.0, 0.0]], "'visits' must be integers from 0"),
    ],
    ids=str,
)
def test_codes_that_are_no_categories(codes, message):
    encoder = TabularEncoder(SCHEMA, n_bins=BINS | {"day": 3}).fit()
    encoder.decode_codes([[3, 4, 2, 1]])
    with pytest.raises(ValueError, match=message):
        encoder.decode_codes(codes)


def test_columns_without_bins_have_no_codes():
    with pytest.raises(ValueError, match=r"need bins: \['day'\]"):
        TabularEncoder(SCHEMA, n_bins=BINS).fit().decode_codes(np.zeros((1, 4), dtype=int))
