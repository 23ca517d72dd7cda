"""Blocks of records as categories: of every type of Arrow and pandas, as each value by itself."""

import datetime
import pickle
from decimal import Decimal

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_array_equal

from sklearn_dpgen.preprocessing._coder import RecordCoder
from sklearn_dpgen.schema import Categorical, Datetime, Identifier, Numeric, Ordinal
from sklearn_dpgen.schema._binned import bin_column

pa = pytest.importorskip("pyarrow")
quick = settings(deadline=None, max_examples=60, derandomize=True)

NUMBERS = {
    "integers": bin_column("x", Numeric(0, 100, integer=True), 8),
    "integers or null": bin_column("x", Numeric(-40, 300, integer=True, nullable=True), 100),
    "edges": bin_column("x", Numeric(-1.5, 4.25), [-1.5, -1, 0.5, 3, 4.25]),
    "half": bin_column("x", Numeric(0, 10, step=0.5, nullable=True), 21),
    "wide": bin_column("x", Numeric(-1e12, 1e12), 64),
    "huge": bin_column("x", Numeric(0.0, 1e300, nullable=True), 5),
    "labels": Ordinal([1, 2, 127, 300], nullable=True),
    "halves": Categorical([0.5, 1.0, 2, -3]),
    "large labels": Categorical([2**53 + 1, 2**63, 0, -(2**62)], nullable=True),
    "mixed": Categorical([1, "1", 2.5, "two"], nullable=True),
    "truths": Categorical([False, True], nullable=True),
    "one": Categorical([7]),
    "keys": Identifier(),
}
INTEGERS = {
    name: (getattr(pa, name)(), np.iinfo(name))
    for name in ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")
}


def oracle(column, values):
    """Return the category of each value by itself, or the error."""
    try:
        return column.codes(pd.Series(values, dtype=object, name="x"))
    except ValueError as error:
        return str(error)


def found(column, array, coder=None):
    coder = RecordCoder({"x": column}) if coder is None else coder
    block = array
    if isinstance(array, pa.Array):
        block = pa.RecordBatch.from_arrays([array], names=["x"])
    fault = None
    try:
        (codes,) = coder.codes(block)
    except ValueError as error:
        fault = error
    if fault is not None:
        assert fault.__cause__ is fault.__context__ is None
        return str(fault)
    assert codes.dtype == coder.dtypes[0] == np.min_scalar_type(column.n_categories - 1)
    assert codes.shape == (len(array),)
    return codes


def check(column, array, values=None, coder=None):
    """Compare with each value by itself, and each record with it alone."""
    values = array.to_pylist() if values is None else values
    expected = oracle(column, values)
    ours = found(column, array, coder)
    if isinstance(expected, str) or isinstance(ours, str):
        assert ours == expected
    else:
        assert_array_equal(ours, expected)


def columns(*names):
    return st.sampled_from(list(names or NUMBERS)).map(NUMBERS.get)


# Numbers.


@pytest.mark.slow
@quick
@given(columns(), st.sampled_from(list(INTEGERS)), st.data())
def test_integers_of_any_width(column, kind, data):
    arrow, limits = INTEGERS[kind]
    near = st.integers(-50, 310).filter(lambda v: limits.min <= v <= limits.max)
    value = st.one_of(
        near,
        st.sampled_from([limits.min, limits.max, 0, 1, 2]),
        st.integers(limits.min, limits.max),
    )
    given = data.draw(st.lists(st.one_of(value, st.none()), max_size=8))
    array = pa.array(given, type=arrow)
    check(column, array)
    check(column, array[1:])
    dense = [v for v in given if v is not None]
    check(column, pd.DataFrame({"x": np.array(dense, dtype=kind)}), dense)
    nullable = pd.array(given, dtype=kind.replace("uint", "UInt").replace("int", "Int"))
    check(column, pd.DataFrame({"x": nullable}), given)


@pytest.mark.slow
@pytest.mark.parametrize("name", NUMBERS)
def test_integers_one_by_one(name):
    """Those beside the bounds, and where no float is exact."""
    edge = [0, 1, 2, 7, 99, 100, 101, 127, 128, 255, 300, 301, 2**31, 2**52, 2**53, 2**53 + 1]
    edge += [2**62, 2**63 - 1]
    for value in [*edge, *(-v for v in edge), -(2**63), 2**63, 2**64 - 1]:
        for kind, (arrow, limits) in INTEGERS.items():
            if limits.min <= value <= limits.max:
                check(NUMBERS[name], pa.array([value], type=arrow))
                check(NUMBERS[name], pd.DataFrame({"x": np.array([value], dtype=kind)}), [value])


FLOATS = st.one_of(
    st.floats(width=32),
    st.floats(-50, 50, width=32),
    st.sampled_from([0.5, 1.0, 2.0, -3.0, 7.0, 127.0, 300.0, 0.0, -0.0]),
    st.none(),
)


@pytest.mark.slow
@quick
@given(columns(), st.sampled_from(["float32", "float64"]), st.lists(FLOATS, max_size=8))
def test_floats(column, kind, values):
    array = pa.array(values, type=getattr(pa, kind)())
    check(column, array)
    nan = pa.array([float("nan") if v is None else v for v in values], type=array.type)
    check(column, nan)
    check(column, pd.DataFrame({"x": np.array(nan.to_pylist(), dtype=kind)}), nan.to_pylist())


@quick
@given(
    st.one_of(st.integers(2, 300), st.sampled_from([1000, 4096, 1 << 17])),
    st.sampled_from([(0, 1), (-1, 1), (0, 100), (-1e-9, 3e5), (0.1, 0.7), (-1e6, -3), (0, 1e300)]),
    st.sampled_from([None, 1]),
    st.integers(0, 2**32 - 1),
)
def test_bins_hold_what_is_between_their_edges(n_bins, ends, step, seed):
    """To the last bit, beside each edge too: a search tells."""
    is_grid = step is not None and all(float(end).is_integer() and end < 1e9 for end in ends)
    numbers = Numeric(*ends, step=step if is_grid else None)
    column, rng = bin_column("x", numbers, n_bins), np.random.default_rng(seed)
    edges = numbers.from_unit(rng.choice(column._edges, 50))
    values = np.concatenate([edges, *(np.nextafter(edges, far) for far in (-np.inf, np.inf))])
    values = np.append(values, rng.uniform(*ends, 50))
    unit = numbers.encode(pd.Series(values))[:, 0]
    expected = np.searchsorted(column._starts, unit, side="right") - 1
    assert_array_equal(column.codes(pd.Series(values)), expected)
    assert_array_equal(found(column, pa.array(values)), expected)


def test_floats_of_two_bytes():
    # Before 21, pyarrow takes only scalars of NumPy.
    half, one, two = np.array([0.5, 1, 2], dtype=np.float16)
    for column in NUMBERS.values():
        check(column, pa.array([half, two, one, None], type=pa.float16()))
        check(column, pa.array([one, two], type=pa.float16()))


@pytest.mark.slow
@quick
@given(columns(), st.lists(st.decimals(-300, 300, places=2) | st.none(), max_size=6))
def test_decimals(column, values):
    check(column, pa.array(values, type=pa.decimal128(7, 2)))


def test_decimals_of_labels():
    for column in NUMBERS.values():
        check(column, pa.array([Decimal("1.00"), Decimal("2.00")], type=pa.decimal128(5, 2)))
        check(column, pa.array([Decimal(1), None], type=pa.decimal256(60, 0)))


@pytest.mark.slow
@quick
@given(columns(), st.lists(st.booleans() | st.none(), max_size=6))
def test_truths(column, values):
    check(column, pa.array(values, type=pa.bool_()))
    check(column, pd.DataFrame({"x": pd.array(values, dtype="boolean")}), values)


def test_nulls_alone():
    for column in [*NUMBERS.values(), *TEXTS.values(), *DATES.values()]:
        for kind in (pa.null(), pa.int8(), pa.uint64(), pa.float32(), pa.string(), pa.bool_()):
            check(column, pa.nulls(3, kind))
            check(column, pa.nulls(0, kind))


# Texts.

TEXTS = {
    "labels": Categorical(["a", "b", "", "é"]),
    "labels or null": Categorical(["b", "a", "NA"], nullable=True),
    "mixed": NUMBERS["mixed"],
    "numbers": NUMBERS["integers"],
    "many": Categorical([f"label {i}" for i in range(300)], nullable=True),
    "keys": Identifier("k"),
}
KINDS = {
    "string": pa.string(),
    "large_string": pa.large_string(),
    "string_view": pa.string_view(),
    "dictionary": pa.dictionary(pa.int8(), pa.string()),
    "large dictionary": pa.dictionary(pa.uint16(), pa.large_string()),
}


def typed(values, kind):
    return pa.array(values, type=pa.string()).cast(KINDS[kind])


@pytest.mark.slow
@quick
@given(
    st.sampled_from(list(TEXTS)).map(TEXTS.get),
    st.sampled_from(list(KINDS)),
    st.lists(st.sampled_from(["a", "b", "", "é", "NA", "1", "two", "x", None]), max_size=8),
)
def test_texts_of_any_type(column, kind, values):
    array = typed(values, kind)
    check(column, array, values)
    check(column, array[1:], values[1:])
    # None is the dtype that pandas finds, which is "str" from 3 on.
    for dtype in ("string", None, object, "category"):
        check(column, pd.DataFrame({"x": pd.Series(values, dtype=dtype)}), values)


@pytest.mark.slow
@quick
@given(
    st.lists(st.sampled_from(["a", "b", "NA", "unknown", None]), min_size=1, max_size=5),
    st.data(),
)
def test_dictionaries_of_any_kind(dictionary, data):
    """With labels that no record has, declared or not, twice or null, and null codes."""
    index = st.one_of(st.integers(0, len(dictionary) - 1), st.none())
    places = data.draw(st.lists(index, max_size=6))
    values = [None if i is None else dictionary[i] for i in places]
    for kind in (pa.int8(), pa.uint8(), pa.int64()):
        array = pa.DictionaryArray.from_arrays(
            pa.array(places, type=kind), pa.array(dictionary, type=pa.string())
        )
        for column in TEXTS.values():
            check(column, array, values)


@pytest.mark.parametrize("is_null", [False, True])
@pytest.mark.parametrize(("kind", "size"), [("int8", 128), ("uint8", 256), ("int8", 127)])
def test_dictionaries_as_long_as_their_codes_reach(kind, size, is_null):
    labels = [f"label {i}" for i in range(size)]
    places = [0, size - 1, *([None] if is_null else [])]
    array = pa.DictionaryArray.from_arrays(pa.array(places, type=getattr(pa, kind)()), labels)
    codes = found(TEXTS["many"], array)
    assert codes.tolist() == [0, size - 1, *([300] if is_null else [])]


def test_dictionaries_of_other_values():
    for column, values, kind in (
        (NUMBERS["integers"], [5, 99, None, 5], pa.int32()),
        (NUMBERS["labels"], [1, 300, None, 1], pa.int64()),
        (NUMBERS["halves"], [0.5, -3.0], pa.float64()),
        (NUMBERS["truths"], [True, False, None], pa.bool_()),
        (DATES["days"], [datetime.date(2020, 5, 1), datetime.date(1999, 1, 1)], pa.date32()),
    ):
        check(column, pa.array(values, type=kind).dictionary_encode(), values)


def test_a_dictionary_that_changes_between_blocks():
    column = TEXTS["labels or null"]
    coder = RecordCoder({"x": column})
    for labels in (["a", "b"], ["b", "a"], ["b", "a"], ["NA", "unused", "a"], ["a"], ["b"]):
        values = [label for label in labels if label != "unused"]
        array = pa.DictionaryArray.from_arrays([labels.index(v) for v in values], labels)
        check(column, array, values, coder)
    # What was looked up is not what was kept.
    assert oracle(column, ["unused"]) == found(column, pa.array(["unused"]), coder)
    check(column, pa.array(["a", None]), coder=coder)


# Dates.

DATES = {
    "days": bin_column("x", Datetime("2020-01-01", "2024-12-31", resolution="D"), 12),
    "days or null": bin_column(
        "x", Datetime("2020-01-01", "2020-03-31", resolution="D", nullable=True), 91
    ),
    "hours": bin_column("x", Datetime("2020-01-01", "2020-01-03", resolution="h"), 5),
    "labels": Categorical(["2020-01-01", "2020-01-02"]),
    "keys": Identifier(),
}
DAYS = st.dates(datetime.date(1600, 1, 1), datetime.date(2400, 1, 1))
NEAR = st.dates(datetime.date(2019, 12, 30), datetime.date(2020, 4, 2))


@pytest.mark.slow
@quick
@given(
    st.sampled_from(list(DATES)).map(DATES.get),
    st.lists(st.one_of(DAYS, NEAR, st.none()), max_size=6),
)
def test_days(column, values):
    for kind in (pa.date32(), pa.date64()):
        check(column, pa.array(values, type=kind))


@pytest.mark.slow
def test_days_of_centuries():
    column = bin_column("x", Datetime("1700-01-01", "2262-01-01"), 50)
    coder = RecordCoder({"x": column})
    days = [-(2**31), -98_616, -98_615, -98_614, 0, 106_650, 106_751, 2**31 - 1, None]
    check(column, pa.array(days[1:-2], type=pa.date32()), coder=coder)
    codes = found(column, pa.array(days[:-1], type=pa.int32()).cast(pa.date32()), coder)
    assert (codes[0], codes[-1]) == (0, 49)


MOMENTS = st.datetimes(datetime.datetime(1950, 1, 1), datetime.datetime(2100, 1, 1))
HOURS = st.datetimes(datetime.datetime(2019, 12, 31), datetime.datetime(2020, 1, 4))


@quick
@given(
    st.sampled_from(list(DATES)).map(DATES.get),
    st.sampled_from(["s", "ms", "us", "ns"]),
    st.sampled_from([None, "UTC", "Europe/Berlin", "-08:00"]),
    st.lists(st.one_of(MOMENTS, HOURS, st.none()), max_size=6),
)
def test_moments_in_any_zone(column, unit, zone, values):
    values = [value and value.replace(microsecond=0) for value in values]
    array = pa.array(values, type=pa.timestamp(unit, tz=zone))
    check(column, array, [pd.Timestamp(v) if v else None for v in array.to_pylist()])


def test_texts_are_dates_too():
    values = ["2020-01-02", "2021-07-01 12:00", None]
    check(DATES["days or null"], pa.array(values))
    check(DATES["days"], pa.array(["2020-01-02", "tomorrow"]))


# Errors, and what is kept.

SECRETS = {
    "text": (TEXTS["labels"], pa.array(["secret-1", "a"]), "outside those declared"),
    "dictionary": (
        TEXTS["labels"],
        pa.array(["secret-1", "a"]).dictionary_encode(),
        "outside those declared",
    ),
    "number": (NUMBERS["labels"], pa.array([98765]), "outside those declared"),
    "float": (NUMBERS["halves"], pa.array([98765.5]), "outside those declared"),
    "no number": (NUMBERS["integers"], pa.array(["secret-1"]), "must hold real numbers"),
    "no date": (DATES["days"], pa.array(["secret-1"]), "Datetime"),
    "null": (NUMBERS["integers"], pa.array([98765, None]), "missing values"),
    "null text": (TEXTS["labels"], pa.array(["secret-1", None]), "missing values"),
    "list": (TEXTS["labels"], pa.array([["secret-1"]]), "outside those declared"),
    "bytes": (TEXTS["labels"], pa.array([b"secret-1"]), "outside those declared"),
}


@pytest.mark.parametrize("name", SECRETS)
def test_errors_name_the_column_and_the_rule(name):
    column, array, rule = SECRETS[name]
    message = found(column, array)
    assert isinstance(message, str)
    assert message.startswith("Column 'x' ")
    assert rule in message
    assert "secret" not in message
    assert "98765" not in message


@pytest.mark.parametrize("kind", ["string", "large_string", "dictionary"])
def test_what_is_no_text_of_its_type(kind):
    size = 8 if kind == "large_string" else 4
    offsets = pa.py_buffer(np.array([0, 1, 9], dtype=f"i{size}").tobytes())
    broken = pa.large_string() if kind == "large_string" else pa.string()
    array = pa.Array.from_buffers(broken, 2, [None, offsets, pa.py_buffer(b"a\xffsecret1")])
    if kind == "dictionary":
        array = pa.DictionaryArray.from_arrays(pa.array([0, 1, 0]), array, safe=False)
    message = found(TEXTS["labels"], array)
    assert isinstance(message, str)
    assert message.startswith("Column 'x' holds")
    assert "secret" not in message


def test_a_coder_goes_to_workers_without_what_it_has_seen():
    columns = {"x": TEXTS["labels or null"], "n": NUMBERS["integers"], "d": DATES["days"]}
    coder = RecordCoder(columns)
    block = pa.RecordBatch.from_pydict(
        {
            "x": pa.array(["a", None, "NA"]).dictionary_encode(),
            "n": pa.array([1, 200, 50]),
            "d": pa.array([18300, 18301, 99], type=pa.date32()),
        }
    )
    before = coder.codes(block)
    other = pickle.loads(pickle.dumps(coder))
    assert len(pickle.dumps(coder)) == len(pickle.dumps(RecordCoder(columns)))
    assert other.sizes == coder.sizes == [4, 8, 12]
    assert other.dtypes == coder.dtypes
    for one, two in zip(before, other.codes(block), strict=True):
        assert_array_equal(one, two)
    # In pandas the same, with another column after them.
    frame = block.to_pandas().assign(who=3)
    for one, two in zip(before, coder.codes(frame), strict=True):
        assert_array_equal(one, two)
