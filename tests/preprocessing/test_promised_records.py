"""An engine that loses a part of a table, and says nothing, is seen: all records came, or none."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from source_tables import COLUMNS, FRAME, N, pa, parquet, polars, records

import sklearn_dpgen
from sklearn_dpgen.preprocessing import TabularEncoder
from sklearn_dpgen.preprocessing import _sources as sources
from sklearn_dpgen.preprocessing._reader import read_blocks
from sklearn_dpgen.preprocessing._sources import Source, open_source
from sklearn_dpgen.schema import Numeric, Schema
from sklearn_dpgen.tables import TableSampler

LOST = "X must give as many records as it states"


def without_last(function):
    """Return a function of an engine, of whose batches the last is lost."""

    def call(*args, **kwargs):
        yield from list(function(*args, **kwargs))[:-1]

    return call


def lazy(folder, patch):
    pl = pytest.importorskip("polars")
    patch.setattr(pl.LazyFrame, "collect_batches", without_last(pl.LazyFrame.collect_batches))
    return polars().lazy()


def in_memory(folder, patch):
    pl = pytest.importorskip("polars")
    patch.setattr(sources, "_stream", without_last(sources._stream))
    return pl.concat([polars(FRAME[:90]), polars(FRAME[90:])], rechunk=False)


def chunks(folder, patch):
    return [in_memory(folder, patch), polars()]


def stream(folder, patch):
    patch.setattr(sources, "_stream", without_last(sources._stream))
    return pa.Table.from_pandas(FRAME, preserve_index=False)


def files(folder, patch):
    parquet.write_table(pa.Table.from_pandas(FRAME), folder / "t.parquet", row_group_size=50)
    patch.setattr(sources, "_quiet", without_last(sources._quiet))
    return folder / "t.parquet"


ENGINES = [lazy, in_memory, chunks, stream, files]


def n_read(X):
    return sum(map(len, read_blocks(open_source(X, COLUMNS), list(COLUMNS))))


@pytest.mark.parametrize("make", ENGINES, ids=lambda make: make.__name__)
def test_a_lost_batch_is_seen(tmp_path, monkeypatch, make):
    monkeypatch.setattr(sources, "_BATCH", 64)
    X = make(tmp_path, monkeypatch)
    with pytest.raises(ValueError, match=LOST):
        n_read(X)
    # Negative twin: without the comparison it is read in part.
    monkeypatch.setattr(Source, "parts", lambda self, names: self.read(names))
    assert n_read(X) < N * (2 if make is chunks else 1)


SCHEMA = Schema({"age": Numeric(0, 100, integer=True), "level": Numeric(0, 5)})


@pytest.mark.parametrize("store", ["codes", "none"])
def test_a_table_in_part_is_not_fitted(monkeypatch, store):
    monkeypatch.setattr(sources, "_BATCH", 64)
    X = lazy(None, monkeypatch).select("age", "level")
    sampler = TableSampler(5.0, 1e-5, schema=SCHEMA, store=store, random_state=0)
    with pytest.raises(ValueError, match=LOST):
        sampler.fit(X)
    with pytest.raises(ValueError, match=LOST):
        TabularEncoder(SCHEMA).fit(X).transform(X)
    monkeypatch.setattr(Source, "parts", lambda self, names: self.read(names))
    assert sampler.fit(X).n_records_ < N


def test_a_query_that_gives_more_is_refused_too():
    frame = pd.DataFrame({name: FRAME[name] for name in COLUMNS})
    whole = Source(lambda names: iter([frame, frame]), list(frame), n_rows=N)
    with pytest.raises(ValueError, match=LOST):
        list(whole.parts(list(frame)))
    assert len(list(Source(lambda names: iter([frame]), list(frame)).parts(list(frame)))) == 1


def test_a_query_that_fails_late(monkeypatch):
    """As Polars before 1.37.1 gave a part of."""
    pl = pytest.importorskip("polars")
    table = records(30_000).assign(t="1")
    table.loc[29_999, "t"] = "secret-7"
    query = polars(table).lazy().with_columns(age=pl.col("t").cast(pl.Int64)).drop("t")
    with pytest.raises(ValueError, match="The table could not be read") as caught:
        n_read(query)
    assert "secret" not in str(caught.value)
    assert caught.value.__context__ is None


@pytest.mark.parametrize("version", ["1.33.1", "1.34.0", "1.36.1", "1.37.0"])
def test_versions_that_lose_batches_are_refused(monkeypatch, version):
    pl = pytest.importorskip("polars")
    monkeypatch.setattr(pl, "__version__", version)
    with pytest.raises(ImportError, match=f"Polars 1.37.1 or newer, got {version}.*pip install"):
        open_source(polars().lazy(), COLUMNS)
    # What is in memory needs no query.
    assert n_read(polars()) == N


@pytest.mark.parametrize("version", ["1.37.1", "1.38.0rc1", "2.0", "10.1.0"])
def test_later_versions_are_not(monkeypatch, version):
    pl = pytest.importorskip("polars")
    monkeypatch.setattr(pl, "__version__", version)
    assert n_read(polars().lazy()) == N


def test_the_bound_is_one():
    root = Path(sklearn_dpgen.__file__).parents[1]
    if not (root / "setup.cfg").exists():
        pytest.skip("needs a checkout, not a wheel")
    texts = [(root / name).read_text() for name in ("setup.cfg", "constraints-minimum.txt")]
    bounds = {line for line in " ".join(texts).split() if line.startswith(("polars>", "polars=="))}
    assert bounds == {f"polars>={sources._POLARS}", f"polars=={sources._POLARS}"}
    np.testing.assert_array_equal(sources._numbers_of(sources._POLARS), [1, 37, 1])
