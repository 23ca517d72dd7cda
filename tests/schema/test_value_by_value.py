"""Every value is encoded by itself, whatever stands beside it and whatever holds it."""

import datetime
from decimal import Decimal
from fractions import Fraction
from functools import cache
from zoneinfo import ZoneInfo

import numpy as np
import pandas as pd
import pytest
from declared_columns import reproducibly
from hypothesis import given, settings
from hypothesis import strategies as st

from sklearn_dpgen.schema import Categorical, Datetime, Numeric, Ordinal
from sklearn_dpgen.schema._binned import bin_column

PARIS = ZoneInfo("Europe/Paris")
COLUMNS = {
    "number": Numeric(-3, 1e6),
    "nullable number": Numeric(0.25, 2, nullable=True),
    "integer": Numeric(-5, 40, integer=True, nullable=True),
    "bins": bin_column("x", Numeric(0, 9, nullable=True), 5),
    "labels": Categorical(["a", "b", ""]),
    "mixed": Categorical([1, 2.5, "a", False], nullable=True),
    "levels": Ordinal([0, 1, 2**53 + 1], nullable=True),
    "date": Datetime("1990-01-01", "2030-01-01"),
    "nullable date": Datetime("0900-01-01", "9990-01-01", resolution="D", nullable=True),
    "binned date": bin_column("x", Datetime("2000-01-01", "2030-01-01", nullable=True), 7),
}
NULLS = [None, np.nan, pd.NA, pd.NaT, np.float32("nan"), np.datetime64("NaT", "ns")]
NULLS += [Decimal("NaN"), Decimal("sNaN"), np.timedelta64("NaT", "ns")]
NUMBERS = [0, 1, 2, -7, 0.5, 2.5, 1e308, np.inf, -np.inf, -0.0, 2**53 + 1, 2**63, -(2**70)]
NUMBERS += [10**400, -(10**400), Decimal("1e999"), Decimal("-Infinity"), Decimal("0.5"), Decimal(1)]
NUMBERS += [Fraction(1, 3), Fraction(10**400, 3), np.float32(0.3), np.int8(1), np.uint64(2**64 - 1)]
NUMBERS += [np.longdouble("1e4000"), np.longdouble(2), np.float16(1)]
DATES = [
    datetime.date(2000, 2, 29),
    datetime.date(1, 1, 1),
    datetime.datetime(9999, 12, 31, 23, tzinfo=datetime.timezone(datetime.timedelta(hours=-5))),
    datetime.datetime(1, 1, 1, tzinfo=datetime.timezone(datetime.timedelta(hours=5))),
    datetime.datetime(2010, 7, 1, 12, 30, 0, 7),
    datetime.datetime(2010, 7, 1, 12, tzinfo=PARIS),
    pd.Timestamp("2001-01-01", tz="Asia/Tokyo"),
    pd.Timestamp("1960-01-01T00:00:00.000000999"),
    pd.Timestamp(np.datetime64(10**15, "s")),
    pd.Timestamp(np.datetime64(-(10**15), "s")),
    np.datetime64("2012-12-12", "D"),
    np.datetime64(10**17, "Y"),
    np.datetime64(-(10**17), "M"),
    np.datetime64(2**63 - 1, "us"),
    np.datetime64(-5, "as"),
]
OTHERS = [True, np.False_, "a", "b", "", "secret", b"a", 1j, [1], {"a": 1}, (1,), object(), 0 * 1j]
OTHERS += [
    np.timedelta64(1, "s"),
    pd.Timedelta(1),
    pd.Period("2020"),
    np.array([1, 2]),
    np.str_("a"),
]
VALUES = [*NULLS, *NUMBERS, *DATES, *OTHERS]

REFUSED = "refused"


def objects(values):
    held = np.empty(len(values), dtype=object)
    for i, value in enumerate(values):
        held[i] = value
    return pd.Series(held, dtype=object, name="x")


def encoded(column, series):
    """Return what a series is encoded as, a list of rows, or that it is refused."""
    error = None
    try:
        return column.encode(series).tolist()
    except ValueError as caught:
        error = caught
    assert "'x'" in str(error)
    assert "secret" not in str(error)
    assert error.__cause__ is None
    return REFUSED


@cache
def accepted(name):
    """Return the values that a column encodes, each alone."""
    column = COLUMNS[name]
    return [value for value in VALUES if encoded(column, objects([value])) != REFUSED]


def is_value_by_value(column, values):
    alone = [encoded(column, objects([value])) for value in values]
    expected = REFUSED if REFUSED in alone else [row for rows in alone for row in rows]
    return encoded(column, objects(values)) == expected


@pytest.mark.parametrize("name", COLUMNS)
def test_every_value_alone_is_encoded_or_refused(name):
    column, taken = COLUMNS[name], accepted(name)
    declared = getattr(column, "column", column)
    for value in NULLS:
        assert any(value is other for other in taken) == column.nullable
    if isinstance(declared, Numeric):
        assert len(taken) == len(NUMBERS) + column.nullable * len(NULLS)
    if isinstance(declared, Datetime):
        assert len(taken) == len(DATES) + column.nullable * len(NULLS)
    # All that is taken is taken together.
    assert is_value_by_value(column, taken)
    for value in taken:
        assert column.domain.contains(np.array(encoded(column, objects([value]))), tol=0).all()


class Microseconds(datetime.timedelta):
    """A duration that equals its number, as one of NumPy does."""

    def __eq__(self, other):
        return self / datetime.timedelta(microseconds=1) == other

    __hash__ = datetime.timedelta.__hash__


def test_a_duration_is_no_label():
    class LooksUp(Ordinal):
        def _read(self, series, null):
            codes = [self.labels.index(value) for value in series]
            return np.array(codes), np.zeros_like(null)

    for duration in (np.timedelta64(1, "s"), pd.Timedelta(1), Microseconds(0, 0, 1)):
        for values in ([duration], [1, duration]):
            assert encoded(Ordinal([0, 1, 2]), objects(values)) == REFUSED
    # It equals the number.
    assert encoded(LooksUp([0, 1, 2]), objects([Microseconds(0, 0, 1)])) == [[0, 1, 0]]


@reproducibly
@given(st.sampled_from(list(COLUMNS)), st.lists(st.sampled_from(VALUES), min_size=1, max_size=6))
def test_a_column_of_objects_is_its_values(name, values):
    assert is_value_by_value(COLUMNS[name], values)


@reproducibly
@given(st.sampled_from(list(COLUMNS)), st.data())
def test_accepted_objects_are_encoded_as_alone(name, data):
    column = COLUMNS[name]
    values = data.draw(st.lists(st.sampled_from(accepted(name)), min_size=1, max_size=8))
    assert is_value_by_value(column, values)
    assert encoded(column, objects(values)) != REFUSED


NUMERIC_DTYPES = ["int8", "int64", "uint64", "float32", "float64", "longdouble", "Int64", "UInt8"]
NUMERIC_DTYPES += ["Float64", "bool", "boolean", "category", "Sparse[float]", "complex128"]
DATE_DTYPES = [f"datetime64[{unit}]" for unit in ("s", "ms", "us", "ns")]
DATE_DTYPES += ["datetime64[s, UTC]", "datetime64[ns, Europe/Paris]", "category", "Period[D]"]
TEXT_DTYPES = ["str", "string", "category"]


def series_of(dtype):
    """Return a strategy of series of a dtype, extreme values and nulls included."""
    if dtype in TEXT_DTYPES[:2]:
        values = st.sampled_from(["a", "b", "", "secret", None])
    elif "datetime64" in dtype or dtype == "Period[D]":
        days = ["2001-02-03", "1999-12-31T23:59:59", "2029-12-31", None, 0, 2**62, -(2**62)]
        unit = dtype.partition("[")[2][:2].strip(",]").strip("[") if "datetime" in dtype else "ns"

        def moment(day):
            if isinstance(day, int) and dtype != "Period[D]":
                return np.datetime64(day, unit)
            return np.datetime64("NaT" if day is None or isinstance(day, int) else day, "ns")

        return st.lists(st.sampled_from(days).map(moment), min_size=1, max_size=6).map(
            lambda moments: dated(moments, dtype, unit)
        )
    else:
        values = st.sampled_from([0, 1, 2, 100, None, 2.5, np.inf, -5, 2**53 + 1, 2**63 - 1])
    return st.lists(values, min_size=1, max_size=6).map(lambda found: held(found, dtype))


def dated(moments, dtype, unit):
    array = np.array([moment.astype(f"M8[{unit}]") for moment in moments])
    series = pd.Series(array, name="x")
    if "," in dtype:
        return series.dt.tz_localize("UTC").astype(dtype)
    return series.dt.to_period("D") if dtype == "Period[D]" else series.astype(dtype)


def held(values, dtype):
    """Return a series of a dtype, with zeros for what it does not hold."""
    kept = []
    for value in values:
        try:
            pd.Series([value], dtype=dtype)
            kept.append(value)
        except (TypeError, ValueError, OverflowError):
            kept.append(0)
    return pd.Series(kept, dtype=dtype, name="x")


@pytest.mark.filterwarnings("ignore:overflow encountered")
@pytest.mark.parametrize("dtype", [*NUMERIC_DTYPES, *DATE_DTYPES, *TEXT_DTYPES[:2]])
@settings(deadline=None, max_examples=20, derandomize=True)
@given(st.sampled_from(list(COLUMNS)), st.data())
def test_a_dtype_changes_nothing(dtype, name, data):
    series = data.draw(series_of(dtype))
    column = COLUMNS[name]
    assert encoded(column, series) == encoded(column, objects(list(series)))
    assert is_value_by_value(column, list(series))


def all_at_once(column):
    """Encode as a pandas user would: everything converted together, or refused together."""

    class Together(type(column)):
        def _read(self, series, null):
            if isinstance(self, Datetime):
                series = pd.to_datetime(series.where(~null, None)).astype("M8[us]")
                return series.to_numpy().astype(np.int64), np.zeros_like(null)
            values = series.where(~null, 0)
            kinds = ("integer", "floating", "mixed-integer-float")
            if pd.api.types.infer_dtype(values) not in kinds:
                raise ValueError("'x' holds other than numbers.")
            return values.to_numpy(dtype=np.float64), np.zeros_like(null)

    return Together(column.low, column.high)


@pytest.mark.parametrize(
    ("column", "values"),
    [
        (Numeric(0, 9), [1, Decimal(2)]),
        (Numeric(0, 9), [1, 10**400]),
        (Datetime("2000-01-01", "2030-01-01"), [datetime.datetime(2010, 1, 1), DATES[5]]),
        (Datetime("2000-01-01", "2030-01-01"), [DATES[5], DATES[6]]),
        (Datetime("2000-01-01", "2030-01-01"), [DATES[4], np.datetime64(10**15, "s")]),
    ],
)
def test_what_is_converted_together_is_caught(column, values):
    assert is_value_by_value(column, values)
    assert encoded(column, objects(values)) != REFUSED
    # A converter of the whole column refuses it for what its values are together.
    with pytest.raises((OverflowError, TypeError, ValueError)):
        all_at_once(column).encode(objects(values))


def test_dates_far_beyond_the_bounds_are_at_the_nearer_one():
    column = Datetime("2000-01-01", "2030-01-01")
    for unit in ("s", "ms", "us", "ns", "D", "Y"):
        far = np.array([2**62, -(2**62)]).astype(f"M8[{unit}]")
        expected = [[1.0], [-1.0]]
        assert column.encode(objects(list(far))).tolist() == expected
        if unit not in ("D", "Y"):
            assert column.encode(pd.Series(far)).tolist() == expected
        # On the scale without clipping, too, they keep their side.
        assert np.sign(column.to_unit(far)).tolist() == [1.0, -1.0]
    # The twin: a conversion in 64 bits wraps around, as that of NumPy does before 2.5.
    wrapped = (np.array([2**62]) * 10**6).view("M8[us]")
    assert column.to_unit(wrapped)[0] < 1


def test_a_chunk_of_nulls_is_nulls_whatever_its_dtype():
    nulls = pd.Series([None, None], dtype=object, name="x")
    for column in COLUMNS.values():
        if not column.nullable:
            continue
        expected = column.encode(nulls).tolist()
        for dtype in ("float64", "Int64", "boolean", "string", "str", "datetime64[ns]", "category"):
            cast = nulls.astype(dtype)
            # Before pandas 3 texts are made of them, and no nulls.
            if cast.isna().all():
                assert column.encode(cast).tolist() == expected
        assert column.encode(nulls.convert_dtypes()).tolist() == expected
        for dtype in ("float64", "datetime64[ns]", "bool", "str", "complex128"):
            assert len(column.encode(nulls[:0].astype(dtype))) == 0
