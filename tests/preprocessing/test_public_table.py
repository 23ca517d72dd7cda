"""Public tables: aligned by a schema, from every source, and as private records where they fit."""

import copy
import hashlib
import pickle
import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_array_equal
from sklearn.base import BaseEstimator, clone
from source_tables import FRAME, HALVES, NAMES, TABLE, WIDE, dataset, duck, polars, written

from sklearn_dpgen.exceptions import (
    PublicFileNotFoundError,
    PublicTypeError,
    PublicValueError,
    UnusedPublicTableWarning,
)
from sklearn_dpgen.persistence._files import SavedEstimator, load
from sklearn_dpgen.preprocessing import PublicTable, TabularEncoder, _public_table, _reader
from sklearn_dpgen.preprocessing._coder import RecordCoder
from sklearn_dpgen.preprocessing._public_table import PUBLIC_TABLE, as_public_table
from sklearn_dpgen.schema import Categorical, Datetime, Identifier, Numeric, Ordinal, Schema
from sklearn_dpgen.utils._validation import ParametersMixin

pa = pytest.importorskip("pyarrow")
pl = pytest.importorskip("polars")
quick = settings(deadline=None, max_examples=50, derandomize=True)

SCHEMA = Schema(
    {
        "age": Numeric(0, 100, integer=True),
        "pay": Numeric(0, 10, nullable=True),
        "job": Categorical(["nurse", "NA", "baker"], nullable=True),
        "level": Ordinal([1, 2, 3]),
        "smoker": Categorical([False, True]),
        "day": Datetime("2020-01-01", "2020-12-31", resolution="D"),
        "person": Identifier(),
    }
)
DAYS = {"day": SCHEMA["day"], "late": Datetime("2020-01-01", "2020-12-31", nullable=True)}


def encoder(schema=SCHEMA, n_bins=7):
    return TabularEncoder(schema, n_bins=n_bins).fit()


def private_codes(frame, fitted):
    """Return the categories of private records with all columns of a schema."""
    return np.column_stack(RecordCoder(fitted.columns_).codes(frame[list(fitted.schema)]))


def numbers(texts, column, **others):
    """Return the values of a numeric or datetime column that was given otherwise."""
    return PublicTable(pd.DataFrame({"x": texts, **others})).read(Schema({"x": column})).frame["x"]


# ---------------------------------------------------------------- as private records


@st.composite
def tables(draw):
    """Draw a table that fits SCHEMA, with values beyond the bounds too."""
    n = draw(st.integers(1, 12))
    days = st.dates(pd.Timestamp("2019-06-01").date(), pd.Timestamp("2021-06-01").date())
    values = {
        "age": st.integers(-20, 130),
        "pay": st.none() | st.floats(-5, 15) | st.sampled_from([np.inf, -np.inf]),
        "job": st.sampled_from(["nurse", "NA", "baker", None]),
        "level": st.integers(1, 3),
        "smoker": st.booleans(),
        "day": days,
    }
    found = {k: draw(st.lists(v, min_size=n, max_size=n)) for k, v in values.items()}
    frame = pd.DataFrame(found).astype({"pay": float, "job": object})
    return frame.assign(day=pd.to_datetime(frame["day"]), person=range(n))


# Other forms of the same values, by column.
FORMS = {
    "age": ["f8", "O", "str", "Int64", "category", "f4", lambda s: s.map("{}.0".format)],
    "pay": ["O", "Float64", "category", lambda s: s.astype(object).map(repr).where(s.notna())],
    "job": ["O", "category", lambda s: " " + s + " "],
    "level": ["f8", "O", "str", "UInt8", "category", lambda s: s.map("0{}".format)],
    "smoker": ["i8", "f8", "O", "str", "boolean", lambda s: s.map({False: "0", True: "true"})],
    "day": ["M8[s]", "M8[ns]", "O", "str", lambda s: s.dt.date, lambda s: s.dt.tz_localize("UTC")],
    "person": ["str"],
}


@pytest.mark.slow
@given(tables(), st.data(), st.integers(2, 40))
@quick
def test_a_table_that_fits_has_the_codes_of_private_records(frame, data, n_bins):
    fitted = encoder(n_bins=n_bins)
    expected = private_codes(frame, fitted)[:, :-1]
    names = data.draw(st.permutations([*frame, "other"]))
    public = frame.assign(other="x")[names]
    for name, forms in FORMS.items():
        form = data.draw(st.sampled_from([None, *forms]))
        if form is not None:
            public[name] = form(public[name]) if callable(form) else public[name].astype(form)
    public.index = data.draw(st.lists(st.integers(0, 3), min_size=len(frame), max_size=len(frame)))
    rows = PublicTable(public).read(SCHEMA)
    assert rows.names == list(SCHEMA)[:-1]
    assert rows.known.all()
    codes = rows.codes(fitted)
    assert codes.dtype == np.int64
    assert_array_equal(codes[:, :-1], expected)
    assert (codes[:, -1] == -1).all()
    # All but the identifier, which is the last column.
    fitted = TabularEncoder(SCHEMA).fit()
    points = rows.encode(fitted)
    assert_array_equal(points[:, :-1], fitted.transform(frame)[:, :-1])
    assert np.isnan(points[:, -1]).all()
    # The frame has the dtypes of the schema, and fits it.
    assert dict(rows.frame.dtypes) == {name: SCHEMA[name].dtype for name in rows.names}
    again = private_codes(rows.frame.assign(person=0), encoder(n_bins=n_bins))
    assert_array_equal(again[:, :-1], expected)


@pytest.mark.slow
@given(tables())
@quick
def test_finer_and_coarser_bins_are_those_of_private_records(frame):
    rows = PublicTable(frame).read(SCHEMA)
    for bins in (2, 400, {"age": [0, 18, 65, 100], "pay": [0, 0.5, 10], "day": 366}):
        fitted = encoder(n_bins=bins)
        assert_array_equal(rows.codes(fitted)[:, :-1], private_codes(frame, fitted)[:, :-1])


SOURCES = {
    "pandas": lambda folder: WIDE,
    "polars": lambda folder: polars(WIDE),
    "lazy": lambda folder: polars(WIDE).lazy(),
    "arrow": lambda folder: pa.Table.from_pandas(WIDE, preserve_index=False),
    "dataset": lambda folder: dataset.dataset(TABLE),
    "duckdb": lambda folder: duck(WIDE),
    "chunks": lambda folder: HALVES,
    "parquet": lambda folder: written(folder),
    "folder": lambda folder: written(folder)[0].parent,
    "csv": lambda folder: [str(path) for path in written(folder, ending="csv")],
    "csv.gz": lambda folder: written(folder, ending="csv.gz"),
}


@pytest.mark.parametrize("kind", SOURCES)
def test_every_source_has_the_same_rows(kind, tmp_path):
    source = SOURCES[kind](tmp_path)
    fitted = encoder()
    rows = PublicTable(source).read(SCHEMA)
    assert rows.known.all()
    assert_array_equal(
        rows.codes(fitted)[:, :-1], private_codes(FRAME.assign(person=0), fitted)[:, :-1]
    )
    assert_array_equal(rows.weights, np.ones(len(FRAME)))
    # It can be read again, and is the same.
    assert PublicTable(source).read(SCHEMA).sha256 == rows.sha256


# ---------------------------------------------------------------- in part


def test_cells_that_do_not_fit_are_not_known():
    public = pd.DataFrame(
        {
            "level": ["1", "4", None, "3.0", "two"],
            "smoker": ["True", 1, 0, "maybe", None],
            "pay": [-1, "20", None, "much", [1]],
            "job": ["NA", "NURSE", None, "baker", 7],
            "age": [1.5, "120", None, "-3", "x"],
        }
    )
    rows = PublicTable(public).read(SCHEMA)
    assert rows.names == ["age", "pay", "job", "level", "smoker"]
    expected = [[1, 1, 1, 1, 1], [1, 1, 0, 0, 1], [0, 1, 1, 0, 1], [1, 0, 1, 1, 0]]
    assert_array_equal(rows.known, np.array(expected, dtype=bool))
    assert_array_equal(rows.frame["age"], [2, 100, np.nan, 0])
    assert_array_equal(rows.frame["pay"], [0, 10, np.nan, np.nan])
    assert_array_equal(rows.frame["level"], [1, np.nan, np.nan, 3])
    assert rows.frame["smoker"].tolist()[:3] == [True, True, False]
    assert rows.frame["job"].tolist()[::3] == ["NA", "baker"]
    codes = rows.codes(encoder(n_bins=5))
    assert_array_equal(codes[:, 1], [0, 4, 5, -1])
    assert_array_equal(codes[:, 2], [1, -1, 3, 2])
    assert_array_equal(codes[:, 3], [0, -1, -1, 2])
    assert (codes[:, 5:] == -1).all()
    fitted = TabularEncoder(SCHEMA).fit()
    points = rows.encode(fitted)
    for name, block in fitted.blocks_.items():
        known = rows.known[:, rows.names.index(name)] if name in rows.names else np.zeros(4, bool)
        assert_array_equal(np.isfinite(points[:, block]).T, [known] * points[:, block].shape[1])
    assert_array_equal(points[:2, fitted.blocks_["pay"]], [[-1, 1, 0], [1, 1, 0]])


def test_equal_texts_of_two_labels_stand_for_neither():
    schema = Schema({"x": Categorical(["1", "01", "b"]), "y": Categorical([1, 2])})
    rows = PublicTable(pd.DataFrame({"x": ["01", "1", 1, " 1"], "y": 1})).read(schema)
    assert_array_equal(rows.codes(encoder(schema))[:, 0], [1, 0, -1, -1])


def test_a_label_that_reads_as_null_is_one_of_a_file(tmp_path):
    FRAME[["job", "level"]].to_csv(tmp_path / "a.csv", index=False)
    rows = PublicTable(tmp_path / "a.csv").read(SCHEMA)
    assert_array_equal(rows.frame["job"].isna(), FRAME["job"].isna())


def test_rows_without_a_known_cell_are_dropped():
    public = pd.DataFrame({"level": [1, 7, 8, 2], "smoker": [None, None, True, None]})
    rows = PublicTable(public).read(SCHEMA)
    assert_array_equal(rows.known, [[True, False], [False, True], [True, False]])


@pytest.mark.parametrize(
    ("column", "values", "rule"),
    [
        ("job", ["a", "b"], "it holds a value outside those declared."),
        ("level", [None, None], "it is missing but not nullable."),
        ("day", ["a", None], "it is declared Datetime, and must hold dates"),
        ("age", ["old", "young"], "it is declared Numeric, and must hold real numbers."),
    ],
)
def test_a_column_without_known_cells_counts_as_lacking(column, values, rule):
    public = pd.DataFrame({column: values, "smoker": True})
    message = f"Column '{column}' of the public table has no known cell, and is left out: {rule}"
    with pytest.warns(UserWarning, match=re.escape(message)) as caught:
        rows = PublicTable(public).read(SCHEMA)
    assert caught[0].filename == __file__
    assert rows.names == ["smoker"]
    assert (rows.codes(encoder())[:, list(SCHEMA).index(column)] == -1).all()


def test_bins_of_other_declarations_are_refused():
    rows = PublicTable(FRAME).read(SCHEMA)
    other = Schema({**SCHEMA, "age": Numeric(0, 90, integer=True)})
    with pytest.raises(PublicValueError, match="must declare column 'age' as the schema"):
        rows.codes(encoder(other))
    with pytest.raises(PublicValueError, match="need bins: \\['age', 'pay', 'day'\\]"):
        rows.codes(TabularEncoder(SCHEMA).fit())


# ---------------------------------------------------------------- intervals

AGES = {
    "[30, 34)": [30, 31, 32, 33],
    "(30,34]": [31, 32, 33, 34],
    "(30.0; 34.0)": [31, 32, 33],
    "[30, 34]": range(30, 35),
    "30-34": range(30, 35),
    "30 – 34": range(30, 35),
    "30 to 34": range(30, 35),
    "-5--1": [0],
    "-5-1": [0, 1],
    "[-inf, 2]": [0, 1, 2],
    "<2": [0, 1],
    "<= 2": [0, 1, 2],
    "≤2": [0, 1, 2],
    "under 2": [0, 1],
    "Under 2": [0, 1],
    ">98": [99, 100],
    ">=98": [98, 99, 100],
    "98+": [98, 99, 100],
    "98 and over": [98, 99, 100],
    "98 or more": [98, 99, 100],
    "[98, 200)": [98, 99, 100],
    "120+": [100],
    "[1e1, 12.5]": [10, 11, 12],
}


@pytest.mark.parametrize("text", AGES)
def test_texts_of_intervals_of_numbers(text):
    values = list(AGES[text])
    found = numbers([text] * (3 * len(values)), SCHEMA["age"])
    assert sorted(found) == sorted(values * 3)


DATES = {
    "2020-02": ("2020-02-01", "2020-02-29"),
    "2020": ("2020-01-01", "2020-12-31"),
    "2020.0": ("2020-01-01", "2020-12-31"),
    "2019": ("2020-01-01", "2020-01-01"),
    "2020Q2": ("2020-04-01", "2020-06-30"),
    "2020-Q2": ("2020-04-01", "2020-06-30"),
    "2020-02/2020-03": ("2020-02-01", "2020-03-31"),
    "2020-02-03 to 2020-02-05": ("2020-02-03", "2020-02-05"),
    "2020-02-03 - 2020-02-05": ("2020-02-03", "2020-02-05"),
    "[2020-02-03, 2020-02-05)": ("2020-02-03", "2020-02-04"),
    "(2020-02-03 00:00:00, 2020-02-05 00:00:00]": ("2020-02-04", "2020-02-05"),
    ">2020-12-29": ("2020-12-30", "2020-12-31"),
    "<2020-01-03": ("2020-01-01", "2020-01-02"),
    "(-inf, 2020-01-03]": ("2020-01-01", "2020-01-03"),
}


@pytest.mark.parametrize("text", DATES)
def test_texts_of_intervals_of_dates(text):
    expected = pd.date_range(*DATES[text]).as_unit("us")
    assert sorted(numbers([text] * len(expected), SCHEMA["day"])) == list(expected)


@pytest.mark.parametrize("text", ["34-30", "a-b", "[1, x)", "(30, 31)", "[30.2, 30.8]", "+", "[,]"])
def test_other_texts_are_not_known(text):
    rows = PublicTable(pd.DataFrame({"age": [text, "1"]})).read(SCHEMA)
    assert rows.frame["age"].tolist() == [1]


@pytest.mark.parametrize("text", ["30-34", "2020-13", "today", "[now, 2021)", "12", "1577836800"])
def test_other_texts_of_dates_are_not_known(text):
    rows = PublicTable(pd.DataFrame({"day": [text, "2020-01-02"]})).read(SCHEMA)
    assert rows.frame["day"].tolist() == [pd.Timestamp("2020-01-02")]


INTERVALS = {
    "numbers": ("age", lambda: pd.cut(pd.Series([31, 45, None]), [30, 40, 50])),
    "integers": ("age", lambda: pd.Series(pd.arrays.IntervalArray.from_tuples([(30, 40), None]))),
    "categories as texts": ("age", lambda: pd.cut(pd.Series([31, 45]), [30, 40, 50]).astype(str)),
    "dates": ("day", lambda: pd.Series(pd.interval_range(pd.Timestamp("2020-03-01"), periods=3))),
    "months": ("day", lambda: pd.Series(pd.period_range("2020-01", periods=3, freq="M"))),
    "years": ("day", lambda: pd.Series([2020, 2020])),
    "years and null": ("late", lambda: pd.Series([2020, None])),
}


@pytest.mark.parametrize("kind", INTERVALS)
@pytest.mark.parametrize("form", ["pandas", "parquet", "csv"])
def test_intervals_of_pandas(kind, form, tmp_path):
    name, make = INTERVALS[kind]
    source = public = pd.DataFrame({name: make(), "other": 1})
    if form == "parquet":
        source = tmp_path / "a.parquet"
        # Parquet has no categories of intervals.
        is_cut = isinstance(public[name].dtype, pd.CategoricalDtype)
        public.astype({name: "interval[float]"} if is_cut else {}).to_parquet(source)
    elif form == "csv":
        source = tmp_path / "a.csv"
        public.to_csv(source, index=False)
    rows = PublicTable(source).read(Schema({**SCHEMA, **DAYS}))
    null = public[name].isna().to_numpy()
    is_nullable = name == "late"
    assert len(rows.frame) == (len(null) if is_nullable else (~null).sum())
    assert (rows.frame[name].isna() == (null if is_nullable else False)).all()
    for value, interval in zip(rows.frame[name], public[name][~null], strict=False):
        if isinstance(interval, pd.Period):
            assert interval.start_time <= value <= interval.end_time
        elif isinstance(interval, pd.Interval):
            assert value in interval
        elif isinstance(interval, str):
            low, high = map(int, interval[1:-1].split(", "))
            assert low < value <= high
        else:
            assert value.year == interval


@pytest.mark.slow
@given(
    st.lists(
        st.tuples(st.integers(-20, 120), st.integers(0, 60), st.sampled_from(["both", "left"])),
        min_size=1,
        max_size=5,
    ),
    st.integers(1, 50),
)
@quick
def test_rows_of_an_interval_are_spread_evenly(ends, n):
    intervals = [pd.Interval(low, low + width, closed) for low, width, closed in ends]
    public = pd.DataFrame({"age": pd.Series(intervals * n, dtype=object), "smoker": True})
    rows = PublicTable(public).read(SCHEMA)
    assert_array_equal(rows.codes(encoder()), PublicTable(public).read(SCHEMA).codes(encoder()))
    for interval in set(intervals):
        given = (public["age"] == interval).to_numpy()
        values = [value for value in range(101) if value in interval]
        is_beyond = interval.right < 0 or (interval.right == 0 and not interval.closed_right)
        values = values or [0] * is_beyond or [100] * (interval.left > 100)
        if not values:
            assert not rows.known[given, 0].any()
            continue
        assert rows.known[given, 0].all()
        found = rows.frame["age"][given].value_counts()
        assert {*found.index} <= {*values}
        counts = found.reindex(values, fill_value=0)
        assert counts.max() - counts.min() <= 1


def test_rows_of_an_interval_are_spread_evenly_without_a_grid():
    n = 1000
    found = numbers(["[2, 6)"] * n, SCHEMA["pay"])
    np.testing.assert_allclose(np.sort(found), 2 + 4 * (np.arange(n) + 0.5) / n, rtol=1e-12)


def test_two_columns_are_spread_independently():
    schema = Schema({name: Numeric(0, 1) for name in "ab"})
    public = pd.DataFrame({"a": ["[0, 1]"] * 2000, "b": ["[0, 1]"] * 2000})
    frame = PublicTable(public).read(schema).frame
    # The seed is fixed, so this is no matter of luck.
    assert abs(frame["a"].corr(frame["b"])) < 0.1
    assert abs(np.corrcoef(frame["a"], np.arange(2000))[0, 1]) < 0.1


# ---------------------------------------------------------------- weights and numbers of rows


def test_weights_have_mean_one_and_zeros_are_dropped():
    public = pd.DataFrame({"level": [1, 2, 3, 9], "w": ["1", "0", "3", "5"]})
    rows = PublicTable(public, weights="w").read(SCHEMA)
    assert rows.frame["level"].tolist() == [1, 3]
    assert_array_equal(rows.weights, [0.5, 1.5])


def test_a_column_that_only_rows_of_weight_zero_know_counts_as_lacking():
    public = pd.DataFrame({"level": [1, 7], "job": ["x", "baker"], "w": [1, 0]})
    with pytest.warns(
        UnusedPublicTableWarning, match="'job' of the public table has no known cell"
    ):
        assert PublicTable(public, weights="w").read(SCHEMA).names == ["level"]


def test_large_weights_do_not_overflow():
    public = pd.DataFrame({"level": [1, 2], "w": [1e308, 1e308]})
    assert_array_equal(PublicTable(public, weights="w").read(SCHEMA).weights, [1, 1])


def test_a_column_may_be_both_a_weight_and_modelled():
    rows = PublicTable(FRAME, weights="age").read(SCHEMA)
    assert "age" in rows.names
    ages = FRAME["age"][FRAME["age"] > 0]
    np.testing.assert_allclose(rows.weights, ages / ages.mean(), rtol=1e-12)


@pytest.mark.parametrize(
    ("weight", "shown"),
    [(-1.0, "-1.0"), (None, "nan"), (np.inf, "inf"), ("many", "'many'")],
)
def test_weights_that_are_none_are_refused(weight, shown):
    public = pd.DataFrame({"level": [1, 2], "w": [1.0, weight]})
    message = f"Column 'w' must hold weights, finite and not negative, got {shown}."
    with pytest.raises(PublicValueError, match=re.escape(message)):
        PublicTable(public, weights="w").read(SCHEMA)


def test_some_weight_must_be_positive():
    public = pd.DataFrame({"level": [1, 2], "w": 0})
    with pytest.raises(PublicValueError, match="'w' must hold weights, and one of them must be"):
        PublicTable(public, weights="w").read(SCHEMA)


@pytest.mark.parametrize("n_rows", [1, 9, 10, 11, 20, 21, 57, 200])
def test_of_many_rows_every_second_is_kept(n_rows, monkeypatch):
    monkeypatch.setattr(_public_table, "_MOST_ROWS", 10)
    monkeypatch.setattr(_reader, "_BLOCK", 7)
    public = pd.DataFrame({"x": range(n_rows), "w": np.arange(n_rows) + 1})
    rows = PublicTable(public, weights="w").read(Schema({"x": Numeric(0, 1000, integer=True)}))
    stride = next(2**k for k in range(9) if len(range(0, n_rows, 2**k)) <= 10)
    assert rows.frame["x"].tolist() == [*range(0, n_rows, stride)]
    expected = rows.frame["x"] + 1
    np.testing.assert_allclose(rows.weights, expected / expected.mean(), rtol=1e-12)


# ---------------------------------------------------------------- what is no public table


@pytest.mark.parametrize(
    ("source", "message"),
    [
        (FRAME[[]], "public must have a column of the schema"),
        (FRAME[["age"]].rename(columns={"age": "Age"}), "'day'\\], got \\['Age'\\]"),
        (pd.DataFrame({"person": [1]}), "public must have a column of the schema"),
        (FRAME[:0], "public must have rows, got none"),
        ([FRAME[:0]], "public must have rows, got none"),
        (pd.concat([FRAME, FRAME[["job"]]], axis=1), "each column once, got several \\['job'\\]"),
        (pd.DataFrame({"level": [8], "job": "x"}), "none is in the columns \\['job', 'level'\\]"),
    ],
)
def test_tables_without_use_are_refused(source, message):
    with pytest.raises(PublicValueError, match=message):
        PublicTable(source).read(SCHEMA)


@pytest.mark.parametrize(
    ("source", "message"),
    [
        (FRAME.to_numpy(), "a table with named columns, got ndarray"),
        ({"age": [1]}, "a table with named columns, got dict"),
        ([[1, 2]], "a table with named columns, got list"),
        (5, "a table with named columns, got int"),
        (iter([FRAME]), "by several fits, got a source that can be read once: list_iterator"),
        (TABLE.to_reader(), "by several fits"),
    ],
)
def test_other_objects_are_refused(source, message):
    with pytest.raises(PublicTypeError, match=message):
        PublicTable(source).read(SCHEMA)


def test_errors_of_files_say_which_table(tmp_path):
    with pytest.raises(PublicFileNotFoundError, match="The public table cannot be read: X names"):
        PublicTable(tmp_path / "none.csv").read(SCHEMA)
    (tmp_path / "a.csv").write_text("age,level\n1,2\n3\n")
    with pytest.raises(PublicValueError, match="The public table cannot be read: A CSV file must"):
        PublicTable(tmp_path / "a.csv").read(SCHEMA)


def test_later_chunks_must_have_the_columns_of_the_first():
    with pytest.raises(
        PublicValueError, match="public table cannot be read: .*missing \\['age'\\]"
    ):
        PublicTable([FRAME, FRAME.drop(columns="age")]).read(SCHEMA)


def test_arguments_are_checked():
    with pytest.raises(PublicTypeError, match="weights must be the name of a column or None"):
        PublicTable(FRAME, weights=1)
    for source in (None, PublicTable(FRAME)):
        with pytest.raises(PublicTypeError, match="source must be a table or its path, got"):
            PublicTable(source)
    with pytest.raises(PublicValueError, match="weights must be a column of the public table, got"):
        PublicTable(FRAME, weights="w").read(SCHEMA)
    with pytest.raises(PublicTypeError, match="schema must be a Schema, got dict"):
        PublicTable(FRAME).read(dict(SCHEMA))


# ---------------------------------------------------------------- hashes


def test_the_hash_of_files_is_that_of_their_bytes(tmp_path):
    paths = written(tmp_path, ending="csv")
    first = PublicTable(paths[0]).read(SCHEMA).sha256
    assert first == hashlib.sha256(paths[0].read_bytes()).hexdigest()
    content = b"".join(path.read_bytes() for path in paths)
    assert PublicTable(paths).read(SCHEMA).sha256 == hashlib.sha256(content).hexdigest()


def test_the_hash_of_a_frame_is_of_all_of_its_values():
    frame = WIDE.reset_index(drop=True)
    found = PublicTable(frame).read(SCHEMA).sha256
    assert PublicTable(frame.copy()).read(SCHEMA).sha256 == found
    assert PublicTable([frame[:50], frame[50:]]).read(SCHEMA).sha256 == found
    others = [frame[::-1], frame[:-1], frame[NAMES], frame.rename(columns={"other": "another"})]
    for name in ("secret", "other", "pay", "day", "smoker"):
        changed = frame.copy()
        changed.loc[3, name] = (
            changed[name][changed[name] != changed[name][3]].iloc[0]
            if (changed[name].nunique() > 1)
            else (changed[name][3] * 2)
        )
        others.append(changed)
    hashes = [PublicTable(other).read(SCHEMA).sha256 for other in others]
    assert len({found, *hashes}) == len(others) + 1


@pytest.mark.parametrize("make", [dataset.dataset, lambda table: pl.from_arrow(table).lazy()])
def test_the_hash_is_of_columns_that_the_schema_lacks_too(make):
    tables = [TABLE.append_column("other", pa.array([i] * len(TABLE))) for i in range(2)]
    hashes = {PublicTable(make(table)).read(SCHEMA).sha256 for table in tables}
    assert len(hashes) == 2


def test_the_hash_of_a_frame_does_not_depend_on_the_process():
    # Found once; it would differ if the hashes of Python's strings were used.
    frame = pd.DataFrame({"age": [1, 2], "pay": [0.5, None], "job": ["NA", None]})
    expected = "04b87651dbc37850864dd526065797a176a118d904fe9949a44b10b42cef8da1"
    assert PublicTable(frame).read(SCHEMA).sha256 == expected


def test_texts_next_to_one_another_are_hashed_apart():
    frames = [pd.DataFrame({"job": texts, "level": 1}) for texts in (["ab", "c"], ["a", "bc"])]
    frames += [pd.DataFrame({"job": texts, "level": 1}) for texts in ([None, "c"], ["null", "c"])]
    with pytest.warns(
        UnusedPublicTableWarning, match="'job' of the public table has no known cell"
    ):
        hashes = {PublicTable(frame).read(SCHEMA).sha256 for frame in frames}
    assert len(hashes) == 4


# ---------------------------------------------------------------- as a parameter


class _Fit(ParametersMixin, BaseEstimator):
    _parameter_constraints: dict = {"public": PUBLIC_TABLE}

    def __init__(self, public=None):
        self.public = public


@pytest.mark.parametrize(
    "public",
    [
        None,
        FRAME,
        TABLE,
        "a.csv",
        ["a.csv", "b.csv"],
        Path("a.csv"),
        HALVES,
        dataset.dataset(TABLE),
        polars().lazy(),
        PublicTable(FRAME, weights="age"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_a_parameter_is_accepted_and_cloned(public):
    estimator = _Fit(public)
    estimator._validate_params()
    assert estimator.get_params()["public"] is public
    repr(estimator)
    if isinstance(public, type(dataset.dataset(TABLE))):
        return
    found = as_public_table(clone(estimator).public)
    assert (found is None) == (public is None)
    if isinstance(public, pd.DataFrame | PublicTable):
        expected = as_public_table(public).read(SCHEMA)
        assert found.read(SCHEMA).sha256 == expected.sha256
    again = pickle.loads(pickle.dumps(estimator)).public
    assert type(again) is type(public)


def test_other_parameters_are_refused_without_a_value():
    for public in (5, 0.5, object()):
        with pytest.raises(ValueError, match="The 'public' parameter"):
            _Fit(public)._validate_params()


def test_copies_share_the_table():
    public = PublicTable(FRAME, weights="age")
    assert as_public_table(public) is public
    assert copy.copy(public) is copy.deepcopy(public) is clone(_Fit(public)).public is public


def test_a_repr_has_no_rows():
    assert repr(PublicTable(FRAME, weights="w")) == "PublicTable(<DataFrame>, weights='w')"
    assert repr(PublicTable("a.csv")) == "PublicTable('a.csv')"
    rows = PublicTable(FRAME).read(SCHEMA)
    assert repr(rows) == f"PublicRows(sha256='{rows.sha256}')"


class _SavedFit(SavedEstimator, _Fit):
    _saved_state: dict = {"sha256_": str}
    _not_saved: dict = {"public": "A file holds no records; the hash says which table it was."}

    def fit(self, X=None, y=None):
        self.sha256_ = as_public_table(self.public).read(SCHEMA).sha256
        return self


@pytest.mark.parametrize("make", [lambda frame: frame, PublicTable])
def test_a_saved_estimator_holds_the_hash_alone(make, tmp_path):
    public = pd.DataFrame({"job": ["nurse", "a-rare-job"], "level": [1, 2]})
    fitted = _SavedFit(make(public)).fit()
    fitted.save(tmp_path / "a.safetensors")
    assert b"rare" not in (tmp_path / "a.safetensors").read_bytes()
    loaded = load(tmp_path / "a.safetensors")
    assert loaded.public is None
    assert loaded.sha256_ == PublicTable(public).read(SCHEMA).sha256
