"""Tables from many sources, and what a fit counts of them."""

import itertools

import numpy as np
import pytest
from numpy.testing import assert_array_equal
from sampler_tables import SCHEMA, table

from sklearn_dpgen.preprocessing import TabularEncoder, _reader
from sklearn_dpgen.tables import _records
from sklearn_dpgen.tables._marginals import Marginal
from sklearn_dpgen.tables._records import StoredRecords, encode_codes

FRAME = table(500)
PERSONS = FRAME.assign(who=[f"secret-{i * i % 397}" for i in range(500)])
ENCODER = TabularEncoder(SCHEMA, n_bins={"age": 30, "pay": 40, "day": 300}).fit()
SIZES = [column.n_categories for column in ENCODER.columns_.values()]
PAIRS = list(itertools.combinations(range(5), 2))
# Maps of categories to blocks, and marginals of groups of these.
MAPS = [np.arange(size) // 3 for size in SIZES]
N_BLOCKS = [int(part.max()) + 1 for part in MAPS]
SLICES = [
    Marginal(columns, tuple(np.arange(N_BLOCKS[j]) // (1 + i % 3) for j in columns))
    for i, columns in enumerate([*PAIRS, (0,), (0, 2, 4), (3,)])
]
UNITS = [(None, None), ("who", None), ("who", 2)]
units = pytest.mark.parametrize(("unit", "most"), UNITS, ids=["rows", "equal", "two rows"])


def small_blocks(monkeypatch):
    monkeypatch.setattr(_reader, "_BLOCK", 37)
    monkeypatch.setattr(_records, "_BLOCK", 41)


def frame_of(unit):
    return FRAME if unit is None else PERSONS


def chunks_of(frame):
    return [frame[:7], frame[7:7], frame[7:300], frame[300:]]


def arrow(frame):
    return pytest.importorskip("pyarrow").Table.from_pandas(frame, preserve_index=False)


def lazy(frame):
    return pytest.importorskip("polars").from_arrow(arrow(frame)).lazy()


def duck(frame):
    return pytest.importorskip("duckdb").connect().from_arrow(arrow(frame))


def parquet(frame, folder):
    path = folder / "table.parquet"
    pytest.importorskip("pyarrow.parquet").write_table(arrow(frame), path)
    return path


def csv(frame, folder):
    pytest.importorskip("pyarrow")
    frame.to_csv(folder / "table.csv", index=False)
    return folder / "table.csv"


SOURCES = {
    "pandas": lambda frame, _: frame,
    "chunks": lambda frame, _: chunks_of(frame),
    "arrow": lambda frame, _: arrow(frame),
    "parquet": parquet,
    "csv": csv,
    "polars": lambda frame, _: lazy(frame),
    "duckdb": lambda frame, _: duck(frame),
}
ONCE = {
    "generator": lambda frame, _: (chunk for chunk in chunks_of(frame)),
    "reader": lambda frame, _: arrow(frame).to_reader(90),
    "list with a reader": lambda frame, _: [frame[:9], arrow(frame[9:]).to_reader()],
}


def counts(records):
    """Return all that a fit asks for, one pass after another."""
    found = [records.counts([(j,) for j in range(5)]), records.counts(PAIRS)]
    records.check_rereadable()
    records.use_blocks(MAPS)
    return [*found, records.marginal_counts(SLICES), records.marginal_counts(SLICES[:2])]


def assert_same(found, expected):
    for ours, theirs in zip(found, expected, strict=True):
        for one, two in zip(ours, theirs, strict=True):
            assert one.dtype == two.dtype == np.float64
            assert_array_equal(one, two)


def stored(unit=None, most=None, **options):
    return StoredRecords(encode_codes(frame_of(unit), ENCODER, unit), most, **options)


class Stream:
    """A table that is read anew each time, as a function of which time it is."""

    def __init__(self, parts):
        self.parts, self.n_read = parts, 0

    def __iter__(self):
        self.n_read += 1
        yield from self.parts(self.n_read)


def as_they_come(frame):
    """Yield chunks of other dtypes, other orders of columns, and none of records."""
    yield frame[:0]
    yield frame[:100]
    yield frame[100:150][frame.columns[::-1]]
    yield frame[150:200].astype({"age": "float32", "level": "Int8", "job": "category"})
    yield frame[200:230].astype(object)
    yield frame[230:230]
    part = arrow(frame[230:300])
    yield part
    yield part.slice(0, 0)
    yield lazy(frame[300:400]).collect()
    job = frame.columns.get_loc("job")
    part = arrow(frame[400:450])
    yield part.set_column(job, "job", part.column("job").dictionary_encode())
    part = arrow(frame[450:])
    labels = pytest.importorskip("pyarrow").array(["unused", "nurse", "baker", "pilot"])
    codes = [labels.to_pylist().index(label) for label in frame["job"][450:]]
    dictionary = type(part.column("job").dictionary_encode().chunk(0)).from_arrays(codes, labels)
    yield part.set_column(job, "job", dictionary)
