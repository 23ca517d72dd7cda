"""Tables that engines read from a file of CSV with line breaks in quotes, as the pages say."""

import csv

import numpy as np
import pytest

from sklearn_dpgen.engines._tables import map_reduce
from sklearn_dpgen.preprocessing import TabularEncoder
from sklearn_dpgen.schema import Categorical, Numeric, Schema
from sklearn_dpgen.tables._records import StreamedRecords

SCHEMA = Schema({"age": Numeric(0, 100, integer=True), "job": Categorical(["nurse", "baker"])})
NAMES = ["age", "job", "note"]
N = 40_000


@pytest.fixture(scope="module")
def records():
    rng = np.random.default_rng(0)
    notes = np.array(["x", "a\nb" * 30, '"\n1,nurse,x\n"', ",", "\n" * 40])
    return list(
        zip(
            rng.integers(0, 101, N).tolist(),
            rng.choice(["nurse", "baker"], N).tolist(),
            rng.choice(notes, N).tolist(),
            strict=True,
        )
    )


@pytest.fixture(scope="module")
def path(records, tmp_path_factory):
    path = tmp_path_factory.mktemp("csv") / "table.csv"
    with open(path, "w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([NAMES, *records])
    assert path.stat().st_size > 1 << 20
    return str(path)


def of_file(path, request):
    return path


def of_dask(path, request):
    return request.getfixturevalue("dask_frames").read_csv(path, blocksize=None)


def of_spark(path, request):
    read = request.getfixturevalue("spark").read
    types = "age long, job string, note string"
    return read.csv(path, schema=types, header=True, multiLine=True, escape='"')


def of_ray(path, request):
    parse = pytest.importorskip("pyarrow.csv").ParseOptions(newlines_in_values=True)
    return request.getfixturevalue("ray").data.read_csv(path, parse_options=parse)


@pytest.fixture
def dask_frames():
    return pytest.importorskip("dask.dataframe")


@pytest.mark.slow
@pytest.mark.parametrize("make", [of_file, of_dask, of_spark, of_ray])
def test_counts_are_those_of_the_records(records, path, make, request):
    X = make(path, request)
    encoder = TabularEncoder(SCHEMA, n_bins=101).fit()
    (table,) = StreamedRecords(X, encoder).counts([(0, 1)])
    expected = np.zeros((101, 2))
    for age, job, _ in records:
        expected[age, ["nurse", "baker"].index(job)] += 1
    np.testing.assert_array_equal(table, expected)


@pytest.mark.slow
def test_a_reader_that_cuts_at_any_line_break_is_seen(path, dask_frames):
    """The negative twin, and why the pages say so."""
    X = dask_frames.read_csv(path, blocksize=1 << 16, dtype=str)
    try:
        n = map_reduce(_count, int.__add__, X, ["age"])
    except Exception:  # of pandas, by where a block begins
        n = None
    assert n != N


def _count(parts):
    return sum(map(len, parts))
