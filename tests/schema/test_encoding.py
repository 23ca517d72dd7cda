"""From values to points of a domain, and back."""

import datetime

import numpy as np
import pandas as pd
import pytest
from declared_columns import labels, numerics, reproducibly, stamps
from hypothesis import given
from hypothesis import strategies as st

from sklearn_dpgen.schema import Categorical, Datetime, Numeric, Ordinal
from sklearn_dpgen.schema._binned import bin_column


def test_numbers_are_scaled_by_their_bounds_and_clipped():
    column = Numeric(0, 10)
    values = pd.Series([0, 5, 10, -1, np.inf, -np.inf])
    np.testing.assert_array_equal(column.encode(values), [[-1], [0], [1], [-1], [1], [-1]])
    nullable = Numeric(0, 10, nullable=True)
    np.testing.assert_array_equal(nullable.encode(pd.Series([10, None])), [[1, 1, 0], [0, 0, 1]])


@reproducibly
@given(numerics(), st.lists(st.floats(0, 1), min_size=1, max_size=5), st.data())
def test_numbers_round_trip(column, fractions, data):
    values = column.low + np.array(fractions) * (column.high - column.low)
    values = pd.Series(np.rint(values) if column.integer else values).clip(column.low, column.high)
    if column.nullable:
        values[data.draw(st.integers(0, len(values) - 1))] = np.nan
    encoded = column.encode(values)
    assert column.domain.contains(encoded, tol=0).all()
    decoded = column.decode(encoded)
    tolerance = 0 if column.integer else 1e-14 * max(abs(column.low), abs(column.high))
    np.testing.assert_allclose(decoded, values, rtol=0, atol=tolerance)


def test_decoding_rounds_to_the_grid_and_stays_in_bounds():
    tenths = np.arange(-50, 51) / 10
    column = Numeric(-5, 5, step=0.1)
    assert column.decode(column.encode(pd.Series(tenths))).tolist() == tenths.tolist()
    noisy = np.linspace(-3, 3, 1001)[:, None]
    assert set(column.decode(noisy)) == set(tenths)
    assert set(Numeric(0, 9, step=3, integer=True).decode(noisy)) == {0, 3, 6, 9}
    assert Numeric(0, 1).decode(np.array([[2.0], [-2.0]])).tolist() == [1, 0]


def test_the_affine_pair_neither_clips_nor_rounds():
    column = Numeric(10, 20, integer=True)
    assert column.to_unit(np.array([10, 15.5, 40])).tolist() == pytest.approx([-1, 0.1, 5])
    assert column.from_unit(np.array([-1, 0.1, 5])).tolist() == pytest.approx([10, 15.5, 40])
    dates = Datetime("2020-01-01", "2020-01-03")
    assert dates.from_unit([-1, 0, 3]).tolist() == [
        datetime.datetime(2020, 1, day) for day in (1, 2, 5)
    ]
    units = np.array([-7, 0.123456, 12])
    np.testing.assert_allclose(dates.to_unit(dates.from_unit(units)), units, atol=1e-10)
    assert np.isnat(dates.from_unit([1e30, -np.inf, np.nan])).tolist() == [False, False, True]
    assert np.isnan(dates.to_unit(np.array(["NaT"], dtype="datetime64[s]"))).all()


@pytest.mark.parametrize("dtype", ["datetime64[s]", "datetime64[us]", "datetime64[ns]", object])
def test_dates_round_trip(dtype):
    column = Datetime("1950-01-01", "2024-12-31", resolution="h", nullable=True)
    values = stamps("1950-01-01", "1999-05-17T13:00", "2024-12-31", "NaT")
    decoded = column.decode(column.encode(values.astype(dtype)))
    assert decoded.dtype == "datetime64[us]"
    assert decoded.tolist() == values.tolist()
    late = stamps("2030-01-01", "2000-01-01T00:31")
    expected = stamps("2024-12-31", "2000-01-01T01:00")
    assert column.decode(column.encode(late)).tolist() == expected.tolist()


def test_dates_with_a_zone_are_compared_in_utc():
    column = Datetime("2020-01-01", "2021-01-01")
    values = stamps("2020-07-01T12:00").dt.tz_localize("Europe/Paris")
    np.testing.assert_array_equal(column.encode(values), column.encode(stamps("2020-07-01T10:00")))
    zoned = Datetime("2020-01-01", "2021-01-01", zone="Europe/Paris")
    decoded = zoned.decode(zoned.encode(values))
    assert decoded.dtype == values.dtype
    assert decoded.tolist() == values.tolist()
    assert column.decode(column.encode(values)).dtype == "datetime64[us]"


def test_decoded_dates_are_in_the_zone_of_the_bounds():
    bound = pd.Timestamp("2020-01-01T02:00", tz="Etc/GMT-2")
    shifted = Datetime(bound, "2021-01-01")
    assert shifted == Datetime("2020-01-01", "2021-01-01", zone="Etc/GMT-2")
    assert shifted.decode(np.array([[-1.0]]))[0] == bound
    assert shifted.dtype == "datetime64[us, Etc/GMT-2]"
    noisy = shifted.in_zone(shifted.from_unit([-1.5, 0, 1.5]))
    assert noisy.dtype == shifted.dtype
    np.testing.assert_allclose(shifted.to_unit(noisy), [-1.5, 0, 1.5], atol=1e-9)
    fixed = Datetime("2020-01-01T01:00+01:00", "2021-01-01T00:00Z", zone="UTC")
    assert fixed.dtype == "datetime64[us, UTC]"
    assert Datetime("2020-01-01T01:00+01:00", "2021-01-01").zone == "UTC+01:00"


def test_date_objects_are_dates():
    column = Datetime("2020-01-01", "2020-01-31", resolution="D")
    values = pd.Series([datetime.date(2020, 1, 5), datetime.date(2020, 1, 31)], dtype=object)
    decoded = column.decode(column.encode(values))
    assert [value.date() for value in decoded] == values.tolist()


@pytest.mark.slow
@reproducibly
@given(labels(), st.booleans(), st.data())
def test_labels_round_trip(choices, nullable, data):
    column = data.draw(st.sampled_from([Categorical, Ordinal]))(choices, nullable=nullable)
    options = [*choices, None] if nullable else choices
    drawn = data.draw(st.lists(st.sampled_from(options), min_size=1, max_size=6))
    values = pd.Series(drawn, dtype=object)
    encoded = column.encode(values)
    assert column.domain.contains(encoded, tol=0).all()
    np.testing.assert_array_equal(encoded.argmax(axis=1), [options.index(v) for v in drawn])
    decoded = column.decode(encoded)
    assert decoded.isna().tolist() == values.isna().tolist()
    assert decoded[decoded.notna()].tolist() == values[values.notna()].tolist()
    soft = encoded + np.linspace(-0.4, 0.4, encoded.shape[1])
    assert column.decode(soft).isna().tolist() == values.isna().tolist()


@pytest.mark.parametrize(
    ("column", "values", "dtypes", "expected"),
    [
        (Categorical(["b", "a"]), ["a", "b", "a"], [object, "str", "string"], [1, 0, 1]),
        (Categorical(["b", "a"], nullable=True), ["a", None], [object, "str", "category"], [1, 2]),
        (
            Ordinal([2, 0, 1.5]),
            [0, 2],
            ["i1", "u8", "f2", "f4", "f8", "g", object, "Int8", "Float64", "category"],
            [1, 0],
        ),
        (Ordinal([2, 0], nullable=True), [0, None], ["f8", object, "Int8", "category"], [1, 2]),
        (Categorical([True, False]), [0, 1], [bool, "boolean", "i8", "f8", "category"], [1, 0]),
        (Categorical([1, "a", False]), ["a", 1.0, 0, True], [object, "category"], [1, 0, 2, 0]),
        (
            bin_column("x", Numeric(0, 9), [0, 1, 9]),
            [-5, 1, 9, 50],
            ["i8", "f4", "Int8"],
            [0, 1, 1, 1],
        ),
        (
            bin_column("x", Numeric(0, 8, nullable=True), 4),
            [2, None],
            ["f8", "Int8", object],
            [1, 4],
        ),
    ],
)
def test_codes_of_containers(column, values, dtypes, expected):
    for dtype in dtypes:
        series = pd.Series(values, dtype=dtype)
        codes = column.codes(series)
        assert codes.dtype == np.int64
        assert codes.tolist() == expected
        assert column.codes(series[:0]).shape == (0,)
        np.testing.assert_array_equal(
            column.encode(series), np.eye(column.domain.n_features)[codes]
        )


def test_codes_of_large_numbers_are_exact():
    column = Categorical([2**53, 2**53 + 1])
    for dtype in ("int64", "uint64", "Int64", object, "category"):
        assert column.codes(pd.Series([2**53 + 1, 2**53]).astype(dtype)).tolist() == [1, 0]
    almost = pd.Series(1 + np.array([np.finfo("g").eps], dtype="g"))
    with pytest.raises(ValueError, match="outside"):
        Categorical([0, 1]).codes(almost)


def test_categories_that_do_not_occur_need_not_be_declared():
    column = Ordinal(["low", "mid", "high"])
    dtype = pd.CategoricalDtype(["secret", "high", "low"])
    assert column.codes(pd.Series(["low", "high"], dtype=dtype)).tolist() == [0, 2]
    with pytest.raises(ValueError, match="'x' holds a value outside") as caught:
        column.codes(pd.Series(["low", "secret"], dtype=dtype, name="x"))
    assert "secret" not in str(caught.value)


def test_masked_nan_is_a_null():
    zero = pd.Series([0.0, 1.0], dtype="Float64")
    values = pd.Series(zero / zero, name="x")
    encoded = Numeric(0, 1, nullable=True).encode(values)
    np.testing.assert_array_equal(encoded, [[0, 0, 1], [1, 1, 0]])


@pytest.mark.parametrize(
    ("column", "values", "message"),
    [
        (Numeric(0, 1), [0.5, None], "'x' has missing values"),
        (Numeric(0, 1), ["secret"], "'x' is declared Numeric"),
        (Numeric(0, 1), pd.Series(["secret", 1], dtype=object), "'x' is declared Numeric"),
        (Numeric(0, 1), [True], "'x' is declared Numeric"),
        (Numeric(0, 1), [1j], "'x' is declared Numeric"),
        (Categorical(["a", "b"]), ["a", "secret"], "'x' holds a value outside"),
        (Categorical(["a", "b"]), ["a", None], "'x' has missing values"),
        (Categorical(["a", "b"]), [1, 2], "'x' holds a value outside"),
        (Categorical([1, 2]), ["secret"], "'x' holds a value outside"),
        (Ordinal([1, 2], nullable=True), [1, 3, None], "'x' holds a value outside"),
        (Datetime("2020-01-01", "2021-01-01"), ["secret"], "'x' is declared Datetime"),
        (Datetime("2020-01-01", "2021-01-01"), [1.5], "'x' is declared Datetime"),
        (
            Datetime("2020-01-01", "2021-01-01"),
            pd.Series([datetime.datetime(2020, 1, 1), "secret"], dtype=object),
            "'x' is declared Datetime",
        ),
    ],
)
def test_encoding_errors_name_the_column_and_not_the_value(column, values, message):
    series = pd.Series(values, name="x")
    with pytest.raises(ValueError, match=message) as caught:
        column.encode(series)
    assert "secret" not in str(caught.value)
    column = column if isinstance(column, Categorical | Ordinal) else bin_column("x", column, 4)
    with pytest.raises(ValueError, match=message) as caught:
        column.codes(series)
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize("dtype", [object, "str"])
def test_texts_of_dates_are_dates(dtype):
    """As ``pandas.read_csv`` leaves them."""
    column = Datetime("2020-01-01", "2021-01-01", nullable=True)
    texts = ["2020-05-01", "2020-05-01T12:00:00Z", "2020-05-01 12:00:00+02:00", "1999-01-01", None]
    dates = ["2020-05-01", "2020-05-01 12:00", "2020-05-01 10:00", "2020-01-01", None]
    encoded = column.encode(pd.Series(texts, dtype=dtype))
    np.testing.assert_array_equal(encoded, column.encode(pd.Series(list(map(pd.Timestamp, dates)))))


@pytest.mark.parametrize("text", ["01/02/2020", "2020-13-01", "May", "", "nan"])
def test_other_texts_are_no_dates(text):
    column = Datetime("2020-01-01", "2021-01-01", nullable=True)
    with pytest.raises(ValueError, match="ISO 8601"):
        column.encode(pd.Series(["2020-05-01", text], name="day", dtype=object))
