"""Codes of missing values, and nulls, are of one column and not of its neighbours."""

import datetime

import numpy as np
import pandas as pd
import pytest

from sklearn_dpgen.persistence._declarations import find_class
from sklearn_dpgen.preprocessing._coder import RecordCoder
from sklearn_dpgen.preprocessing._reader import map_frames
from sklearn_dpgen.schema import Categorical, Datetime, Numeric, OpenCategorical, Ordinal, Schema
from sklearn_dpgen.schema._binned import bin_column

CODES = [-999, "unknown", "."]
COLUMNS = {
    "age": Numeric(0, 99, integer=True, missing=CODES),
    "smoker": Categorical(["no", "yes"], missing=CODES),
    "grade": Ordinal([1, 2, 3], missing=CODES),
    "open": OpenCategorical(["a"], missing=CODES),
    "day": Datetime("2020-01-01", "2020-12-31", resolution="D", missing=[*CODES, "1900-01-01"]),
    "flag": Categorical([False, True], missing=CODES),
}
VALID = {"age": 7, "smoker": "no", "grade": 2, "open": "a", "day": "2020-02-01", "flag": True}


def nulls(column, values):
    """Return which of the values are encoded as null, by the public encoding alone."""
    encoded = column.encode(pd.Series(values, dtype=object))
    return (encoded[:, -1] == 1).tolist()


@pytest.mark.parametrize("name", COLUMNS)
def test_a_code_is_null(name):
    values = [VALID[name], -999, -999.0, np.int64(-999), "unknown", ".", " unknown ", "-999", None]
    assert nulls(COLUMNS[name], values) == [False] + [True] * 8
    assert COLUMNS[name].nullable


@pytest.mark.parametrize("name", COLUMNS)
def test_what_is_no_code_is_not_null(name):
    column = COLUMNS[name]
    for value in ("Unknown", "-9990", "", np.timedelta64(-999, "ns")):
        series = pd.Series([value], dtype=object)
        _, _, null = column._read_quietly(series)
        assert not null.any()


@pytest.mark.parametrize(
    "dtype", ["int64", "float64", "Int64", "Float64", "float32", "int64[pyarrow]"]
)
def test_a_code_is_null_in_any_dtype(dtype):
    values = pd.Series([5, -999, 20], dtype=dtype)
    for column in (COLUMNS["age"], Ordinal([5, 20], missing=[-999])):
        assert (column.encode(values)[:, -1] == 1).tolist() == [False, True, False]
    texts = pd.Series(["no", "unknown", None, "-999"], dtype="str")
    for series in (texts, texts.astype("category"), texts.astype("string[pyarrow]")):
        null = COLUMNS["smoker"].encode(series)[:, -1] == 1
        assert null.tolist() == [False, True, True, True]


def test_a_date_may_be_a_code():
    column = COLUMNS["day"]
    days = pd.to_datetime(pd.Series(["2020-02-01", "1900-01-01"]))
    for series in (days, days.dt.tz_localize("UTC"), days.astype(object)):
        assert (column.encode(series)[:, -1] == 1).tolist() == [False, True]
    assert nulls(column, [datetime.date(1900, 1, 1), "1900-01-01T00:00"]) == [True, True]
    texts = pd.Series(["1900-01-01T00:00", "2020-02-01"], dtype="str")
    assert (column.encode(texts)[:, -1] == 1).tolist() == [True, False]
    # Without the code it is clipped, as any date out of bounds.
    plain = Datetime("2020-01-01", "2020-12-31", resolution="D", nullable=True)
    assert nulls(plain, [datetime.date(1900, 1, 1)]) == [False]


@pytest.mark.parametrize("name", ["age", "grade", "flag", "day"])
def test_blocks_of_all_kinds_agree(name, tmp_path):
    """The fast ways of the coder, by tables of integers and dates, must see the codes too."""
    pa = pytest.importorskip("pyarrow")
    column = COLUMNS[name]
    binned = bin_column(name, column, 4) if name in ("age", "day") else column
    coder = RecordCoder({name: binned})
    if name == "day":
        values = pd.Series(["2020-02-01", "1900-01-01", None], dtype=object)
        arrays = [pa.array([datetime.date(2020, 2, 1), datetime.date(1900, 1, 1), None])]
    elif name == "flag":
        values = pd.Series([True, "unknown", None], dtype=object)
        arrays = []
    else:
        values = pd.Series([2, -999, None], dtype=object)
        arrays = [pa.array([2, -999, None], type=kind) for kind in (pa.int16(), pa.float64())]
        arrays += [pa.array([2, -999, None]).dictionary_encode()]
    expected = coder.codes(pd.DataFrame({name: values}))[0].tolist()
    assert expected[1:] == [binned.n_categories - 1] * 2
    assert expected[0] < binned.n_categories - 1
    for array in arrays:
        batch = pa.RecordBatch.from_arrays([array], names=[name])
        assert coder.codes(batch)[0].tolist() == expected


CSV = """age,smoker,grade,open,day,flag
7,no,2,a,2020-02-01,true
-999,unknown,.,unknown,1900-01-01,unknown
.,".","-999",-999,.,-999
"unknown",NA,NA,"unknown",unknown,"."
"""


def test_codes_of_a_csv_file(tmp_path):
    pytest.importorskip("pyarrow")
    (tmp_path / "t.csv").write_text(CSV)
    (frame,) = map_frames(lambda frame: frame, str(tmp_path / "t.csv"), COLUMNS)
    for name, column in COLUMNS.items():
        assert nulls(column, frame[name]) == [False, True, True, True], name


def test_a_label_that_reads_as_null_is_that_of_its_column_alone(tmp_path):
    """Each column has its own nulls: a declared label NA leaves those of the others as they are."""
    pytest.importorskip("pyarrow")
    (tmp_path / "t.csv").write_text('land,code,age\nNA,NA,NA\nSE,"NA",3\n')
    columns = {
        "land": Categorical(["NA", "SE"], nullable=True),
        "code": Categorical(["x", "y"], nullable=True),
        "age": Numeric(0, 9, nullable=True),
    }
    (frame,) = map_frames(lambda frame: frame, str(tmp_path / "t.csv"), columns)
    assert frame["land"].tolist() == ["NA", "SE"]
    assert pd.isna(frame["code"][0])
    # In quotes it is a text, which the column refuses.
    assert frame["code"][1] == "NA"
    assert pd.isna(frame["age"][0])
    assert list(frame) == ["land", "code", "age"]


def test_a_text_that_is_no_code_is_refused_without_being_shown(tmp_path):
    pytest.importorskip("pyarrow")
    (tmp_path / "t.csv").write_text("age\n7\nsecret\n")
    with pytest.raises(ValueError, match="'age' must hold numbers") as caught:
        [*map_frames(len, str(tmp_path / "t.csv"), {"age": COLUMNS["age"]})]
    assert "secret" not in str(caught.value)


def test_codes_are_written_and_read():
    schema = Schema(COLUMNS)
    for copied in (Schema.from_yaml(schema.to_yaml()), Schema.from_json(schema.to_json())):
        assert copied == schema
    for column in COLUMNS.values():
        saved = find_class(type(column).__name__)
        assert saved.build(saved.describe(column)) == column
    assert Schema.from_yaml("a: {type: numeric, low: 0, high: 1, missing: -9}")["a"].missing == (
        -9,
    )


@pytest.mark.parametrize(
    "column", [Numeric(0, 1), Categorical(["a"]), Ordinal([1]), OpenCategorical()]
)
def test_files_of_columns_without_codes_are_those_of_earlier_releases(column):
    saved = find_class(type(column).__name__)
    assert "missing" not in saved.describe(column)


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: Numeric(0, 1, missing=[None]), "missing must list texts or numbers"),
        (lambda: Numeric(0, 1, missing=[True]), "missing must list texts or numbers"),
        (lambda: Numeric(0, 1, missing=[2**53]), "missing must list texts or numbers"),
        (lambda: Numeric(0, 1, missing=[np.nan]), "missing must list texts or numbers"),
        (lambda: Numeric(0, 1, missing={-9}), "missing must be a list"),
        (lambda: Categorical(["a", "9"], missing=[9]), r"must not list categories, got \['9'\]"),
        (lambda: Ordinal([1, 2], missing=["2"]), r"must not list categories, got \[2\]"),
        (lambda: OpenCategorical(["a"], missing=["a"]), "must not list categories"),
    ],
)
def test_codes_that_are_refused(build, message):
    with pytest.raises(ValueError, match=message):
        build()


def test_open_labels_are_discovered_without_codes():
    found = OpenCategorical(missing=["unknown", -9]).read_labels(
        pd.Series(["x", "unknown", -9, "-9"])
    )
    assert found[1] == ("x", "other")
    assert found[0].tolist() == [0, 2, 2, 2]


def test_check_counts_no_code():
    schema = Schema({"age": COLUMNS["age"], "smoker": COLUMNS["smoker"]})
    frame = pd.DataFrame({"age": [5, -999, 200], "smoker": ["no", "unknown", "?"]}, dtype=object)
    found = schema.check(frame)
    assert found.loc["age"].to_dict() | {"outside_bounds": 1} == found.loc["age"].to_dict()
    assert found.to_numpy().sum() == 2
