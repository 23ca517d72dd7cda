"""A table as objects and files of many kinds, and the categories of its records."""

import gzip
from itertools import pairwise

import numpy as np
import pandas as pd
import pytest

from sklearn_dpgen.preprocessing import _reader, _sources
from sklearn_dpgen.preprocessing._coder import RecordCoder
from sklearn_dpgen.preprocessing._reader import read_blocks
from sklearn_dpgen.preprocessing._sources import open_source
from sklearn_dpgen.schema import Categorical, Datetime, Numeric, Ordinal
from sklearn_dpgen.schema._binned import bin_column

pa = pytest.importorskip("pyarrow")
feather, parquet = (pytest.importorskip(f"pyarrow.{name}") for name in ("feather", "parquet"))
dataset = pytest.importorskip("pyarrow.dataset")
nw = pytest.importorskip("narwhals.stable.v2")

COLUMNS = {
    "age": bin_column("age", Numeric(0, 100, integer=True), 10),
    "pay": bin_column("pay", Numeric(0, 10, nullable=True), 20),
    "job": Categorical(["nurse", "NA", "baker"], nullable=True),
    "level": Ordinal([1, 2, 3]),
    "smoker": Categorical([False, True]),
    "day": bin_column("day", Datetime("2020-01-01", "2020-12-31", resolution="D"), 12),
}
NAMES = list(COLUMNS)
N = 200


def records(n=N, seed=0):
    rng = np.random.default_rng(seed)
    return pd.DataFrame(
        {
            "age": rng.integers(0, 101, n),
            "pay": np.where(rng.random(n) < 0.2, np.nan, rng.uniform(0, 10, n).round(3)),
            "job": pd.Series(rng.choice(np.array(["nurse", "NA", "baker", None]), n)),
            "level": rng.integers(1, 4, n),
            "smoker": rng.random(n) < 0.5,
            "day": np.datetime64("2020-01-01", "us") + rng.integers(0, 366, n).astype("m8[D]"),
        }
    )


FRAME = records()
# With columns that are not declared, and in another order.
WIDE = FRAME[NAMES[::-1]].assign(secret="secret-7", other=1)
HALVES = [FRAME[:90], FRAME[90:90], FRAME[90:]]
TABLE = pa.Table.from_pandas(FRAME, preserve_index=False)


def small_blocks(monkeypatch):
    monkeypatch.setattr(_reader, "_BLOCK", 37)
    monkeypatch.setattr(_sources, "_BATCH", 64)


def codes_of(X, columns=COLUMNS):
    """Return the categories of all records, after a look at the blocks."""
    coder, found = RecordCoder(columns), []
    for block in read_blocks(open_source(X, columns), list(columns)):
        given = block.columns if isinstance(block, pd.DataFrame) else block.schema.names
        assert list(given) == list(columns)
        assert 1 <= len(block) <= 37
        found.append(np.column_stack(coder.codes(block)))
    return np.concatenate(found) if found else np.zeros((0, len(columns)), dtype=int)


EXPECTED = np.column_stack([column.codes(FRAME[name]) for name, column in COLUMNS.items()])


def rows(codes):
    """Return records as a table is: with no order."""
    return sorted(map(tuple, codes.tolist()))


def written(folder, frame=WIDE, ending="parquet"):
    """Write a frame in two files, and return their paths."""
    paths = []
    for i, (start, stop) in enumerate(pairwise([0, 120, len(frame)])):
        part, path = frame.iloc[start:stop], folder / f"part-{i}.{ending}"
        table = pa.Table.from_pandas(part, preserve_index=False)
        if ending in ("parquet", "pq"):
            parquet.write_table(table, path)
        elif ending in ("feather", "arrow"):
            feather.write_feather(table, path)
        elif ending == "csv.gz":
            path.write_bytes(gzip.compress(part.to_csv(index=False).encode()))
        else:
            part.to_csv(path, index=False)
        paths.append(path)
    return paths


def polars(frame=FRAME):
    pl = pytest.importorskip("polars")
    return pl.from_arrow(pa.Table.from_pandas(frame, preserve_index=False))


def duck(frame=FRAME):
    duckdb = pytest.importorskip("duckdb")
    return duckdb.connect().from_arrow(pa.Table.from_pandas(frame, preserve_index=False))


class Stream:
    """What offers an Arrow stream, and nothing else."""

    def __arrow_c_stream__(self, requested_schema=None):
        return TABLE.__arrow_c_stream__(requested_schema)


def folder(path):
    path.mkdir(parents=True)
    return path
