"""Whatever a private value is, no error about it shows it, nor does what the error came from."""

import datetime
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pandas as pd
import pytest

from sklearn_dpgen.domains import Box
from sklearn_dpgen.exceptions import PublicError
from sklearn_dpgen.mechanisms import LaplaceMechanism, TabularMechanism, _tabular
from sklearn_dpgen.preprocessing import TabularEncoder
from sklearn_dpgen.schema import Categorical, Datetime, Numeric, Schema
from sklearn_dpgen.schema._column import Column

COLUMNS = {
    "number": Numeric(0, 1, nullable=True),
    "label": Categorical(["a", "b"]),
    "date": Datetime("2000-01-01", "2030-01-01", nullable=True),
}
SECRET = "S3CRETXYZ"
NUMBER = 918273645


class Loud:
    """A value that shows itself in an error of its own."""

    def __float__(self):
        raise LookupError(SECRET)


VALUES = [
    SECRET,
    f"{SECRET}\ud800",
    SECRET.encode(),
    np.void(SECRET.encode()),
    Decimal(f"sNaN{NUMBER}"),
    NUMBER * 10**400,
    Fraction(NUMBER * 10**400, 7),
    complex(NUMBER, 1),
    {SECRET: 1},
    (NUMBER, SECRET),
    Loud(),
]
IDS = [type(value).__name__ + str(i) for i, value in enumerate(VALUES)]


def reveals(error):
    """Return whether an error, or one that it came from, shows the secret, in any attribute."""
    seen, found = [error], False
    for shown in seen:
        parts = [str(shown), repr(shown), *map(repr, vars(shown).values())]
        parts += [repr(getattr(shown, "object", None))]
        found |= any(secret in part for part in parts for secret in (SECRET, str(NUMBER)))
        seen += [other for other in (shown.__context__, shown.__cause__) if other is not None]
    return found


def is_quiet(function, *args):
    """Return whether a call gives a result, or a public error that shows no value."""
    error = None
    try:
        function(*args)
    except Exception as caught:  # of any kind
        error = caught
    if error is None:
        return True
    is_bare = error.__context__ is None and error.__cause__ is None
    return isinstance(error, PublicError) and is_bare and not reveals(error)


def objects(value, name="x"):
    series = pd.Series([None, None], dtype=object, name=name)
    series.iat[0] = value
    return series


def bad_text():
    """Return a text of Arrow that is not in UTF-8."""
    pa = pytest.importorskip("pyarrow")
    data = SECRET.encode() + b"\xff"
    offsets = np.array([0, len(data)], dtype=np.int32)
    return pa.StringArray.from_buffers(1, pa.py_buffer(offsets), pa.py_buffer(data))


def test_the_check_sees_what_is_shown():
    def chained(value):
        try:
            float(value)
        except ValueError:
            raise ValueError("No number.") from None

    def bare(value):
        try:
            value.encode()
        except UnicodeEncodeError as error:
            raise UnicodeError("No text.") from error

    assert not is_quiet(chained, SECRET)
    assert not is_quiet(bare, f"{SECRET}\ud800")
    assert not is_quiet(float, Loud())
    assert not is_quiet(np.asarray, [[np.void(SECRET.encode())]], np.float64)
    assert is_quiet(float, 1)


@pytest.mark.parametrize("column", COLUMNS.values(), ids=COLUMNS)
@pytest.mark.parametrize("value", VALUES, ids=IDS)
def test_a_column(column, value):
    assert is_quiet(column.encode, objects(value))
    assert is_quiet(column.encode, [value])


@pytest.mark.parametrize("column", COLUMNS.values(), ids=COLUMNS)
def test_a_text_of_arrow_that_is_no_text(column, monkeypatch):
    array = bad_text()
    series = pd.Series(pd.arrays.ArrowExtensionArray(array), name="x")
    with pytest.raises(ValueError, match="^Column 'x' ") as caught:
        column.encode(series)
    assert not reveals(caught.value)
    encoder = TabularEncoder(Schema({"x": column})).fit()
    for source in (array_table(array), array_table(as_lists(array)), series.to_frame()):
        assert is_quiet(encoder.transform, source)
        with pytest.raises(ValueError, match="^Column 'x' "):
            encoder.transform(source)

    def read(self, series):
        return *self._read(series, series.isna().to_numpy()), series.isna().to_numpy()

    monkeypatch.setattr(Column, "_read_quietly", read)
    assert not is_quiet(column.encode, series)


def test_a_column_of_arrow_that_makes_no_frame():
    lists = as_lists(bad_text())
    assert not is_quiet(lists.to_pandas)
    encoder = TabularEncoder(Schema({"x": COLUMNS["label"]})).fit()
    assert is_quiet(encoder.transform, array_table(lists))
    with pytest.raises(ValueError, match="^Column 'x' holds a value .* invalid for its Arrow type"):
        encoder.transform(array_table(lists))


def as_lists(array):
    """Return an array of lists of one value: pandas makes Python objects of them at once."""
    import pyarrow as pa

    return pa.ListArray.from_arrays(pa.array(range(len(array) + 1), pa.int32()), array)


def array_table(array):
    import pyarrow as pa

    return pa.table({"x": array})


@pytest.mark.parametrize("column", COLUMNS.values(), ids=COLUMNS)
@pytest.mark.parametrize("value", VALUES, ids=IDS)
def test_the_rows_of_an_encoder(column, value):
    encoder = TabularEncoder(Schema({"x": column})).fit()
    array = objects(value).to_numpy()[:, None]
    for X in (array, [[value], [None]], objects(value).to_frame()):
        assert is_quiet(encoder.transform, X)


def test_texts_of_rows_stay_what_they_are():
    encoder = TabularEncoder(Schema({"x": Categorical(["a\ud800", "2020-01-01"])})).fit()
    rows = [["a\ud800"], ["2020-01-01"]]
    for X in (rows, np.array(rows), np.array(rows, dtype=object)):
        np.testing.assert_array_equal(encoder.transform(X), np.eye(2))


@pytest.mark.parametrize("value", VALUES, ids=IDS)
def test_an_array_of_numbers(value):
    mechanism = LaplaceMechanism(1.0, domain=Box(-1, 1, n_features=2))
    array = np.full((2, 2), 0.5, dtype=object)
    array[0, 0] = value
    for X in (array, [[value, 0.5]], pd.DataFrame(array, columns=["a", "b"], dtype=object)):
        rule = "real number|an array element with a sequence|signaling NaN"
        with pytest.raises((TypeError, ValueError), match=rule):
            mechanism.fit(X)
        assert is_quiet(mechanism.fit, X)


@pytest.mark.parametrize("name", COLUMNS)
@pytest.mark.parametrize("value", VALUES, ids=IDS)
def test_a_table_that_was_to_be_privatized(name, value):
    frame = pd.DataFrame({"number": [0.5, 0.1], "label": ["a", "b"]})
    frame["date"] = pd.Timestamp("2020-01-01")
    mechanism = TabularMechanism(1.0, schema=Schema(COLUMNS)).fit(frame)
    frame[name] = objects(value)
    assert is_quiet(mechanism.encode_release, frame)
    if name == "number" and isinstance(value, Decimal):
        # A null.
        return
    with pytest.raises(ValueError, match=f"^Column '{name}' "):
        mechanism.encode_release(frame)


def test_a_guard_is_what_keeps_a_table_from_showing(monkeypatch):
    frame = pd.DataFrame({"date": [SECRET]})
    mechanism = TabularMechanism(1.0, schema=Schema({"date": COLUMNS["date"]})).fit()
    assert is_quiet(mechanism.encode_release, frame)
    monkeypatch.setattr(_tabular, "call_quietly", lambda message, function, *args: function(*args))
    assert not is_quiet(mechanism.encode_release, frame)


@pytest.mark.parametrize("kind", ["date32", "date64"])
def test_a_date_of_arrow_after_that_of_python_is_clipped(kind):
    pa = pytest.importorskip("pyarrow")
    column = Datetime("1600-01-01", "2030-01-01", resolution="D", nullable=True)
    low, day = -135_140, 11_000
    days = pa.array([2**31 - 1 if kind == "date32" else 2**36, -(2**31), low, day, None])
    days = days.cast(pa.int64())
    if kind == "date32":
        array = days.cast(pa.int32()).cast(pa.date32())
    else:
        array = pa.array([None if d is None else d * 86_400_000 for d in days.to_pylist()])
        array = array.cast(pa.date64())
    series = pd.Series(pd.arrays.ArrowExtensionArray(array), name="x")
    last, first = datetime.date(2030, 1, 1), datetime.date(1600, 1, 1)
    dates = [datetime.date(1970, 1, 1) + datetime.timedelta(days=d) for d in (low, day)]
    expected = column.encode(pd.Series([last, first, *dates, None], dtype=object))
    np.testing.assert_array_equal(column.encode(series), expected)
    # Where Python has no such date, its objects cannot be what is read.
    with pytest.raises((OverflowError, ValueError)):
        series.to_numpy(dtype=object)


def test_a_date_of_arrow_is_that_of_python():
    pa = pytest.importorskip("pyarrow")
    column = Datetime("1600-01-01", "2030-01-01", resolution="ms")
    # Milliseconds within a day are not of the date.
    array = pa.array([-5, 86_400_005, -86_400_001, 0], pa.int64()).view(pa.date64())
    series = pd.Series(pd.arrays.ArrowExtensionArray(array), name="x")
    objects = pd.Series(series.to_numpy(dtype=object), dtype=object)
    np.testing.assert_array_equal(column.encode(series), column.encode(objects))
