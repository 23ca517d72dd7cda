"""The pairs of a table counted by other packages, as their users would, and through engines.

Each function counts the table of `_large_tables.py`, in files of Parquet or in memory, with one
thread unless it is an engine, and returns a function that gives the vector of ``TableCounter``.
"""

import math
import os

import numpy as np
from _large_tables import N_BINS, NAMES, PAIRS, SCHEMA, encoder

from sklearn_dpgen.schema import Datetime, Numeric
from sklearn_dpgen.tables import TableCounter
from sklearn_dpgen.tables._records import open_records

__all__ = ["ENGINES", "PEERS"]

COLUMNS = {name: SCHEMA[name] for name in NAMES}
SIZES = {name: column.n_categories for name, column in encoder().columns_.items()}
FIRST_DAY = 14610  # 2010-01-01
N_SECONDS = 3651 * 86400 + 1


def in_vector(counts):
    """Return one vector of the counts of all pairs: of each, two lists of values and one of n."""
    tables = []
    for pair, (*values, n) in zip(PAIRS, counts, strict=True):
        table = np.zeros([SIZES[name] for name in pair], dtype=np.int64)
        codes = [[_code(name, v) for v in part] for name, part in zip(pair, values, strict=True)]
        table[tuple(codes)] = n
        tables.append(table.ravel())
    return np.concatenate(tables)


def _code(name, value):
    column = COLUMNS[name]
    if isinstance(column, Numeric | Datetime):
        is_null = value is None or (isinstance(value, float) and math.isnan(value))
        return SIZES[name] - 1 if is_null else int(value)
    return list(column.labels).index(value)


def sql_bins(name):
    """Return the category of a column in SQL: a label, or the place of a bin."""
    column = COLUMNS[name]
    if isinstance(column, Datetime):
        days = f"(date_diff('day', DATE '1970-01-01', {name}) - {FIRST_DAY})"
        return f"({N_BINS} * 86400 * {days}::BIGINT // {N_SECONDS})::UTINYINT"
    if not isinstance(column, Numeric):
        return name
    clipped = f"least(greatest({name}, {column.low}), {column.high})"
    if column.integer:
        return f"({clipped} * {N_BINS} // {column.high + 1})::UTINYINT"
    place = f"floor(({clipped} - {column.low}) / {column.high - column.low} * {N_BINS})"
    # In SQL the least of a null and a number is the number.
    return f"CASE WHEN {name} IS NOT NULL THEN least({place}, {N_BINS - 1})::UTINYINT END"


def polars_bins(name):
    """Return the same as an expression of Polars."""
    import polars as pl

    column, values = COLUMNS[name], pl.col(name)
    if isinstance(column, Datetime):
        days = values.cast(pl.Int32).cast(pl.Int64) - FIRST_DAY
        return (days * 86400 * N_BINS // N_SECONDS).cast(pl.UInt8).alias(name)
    if not isinstance(column, Numeric):
        return values
    values = values.clip(column.low, column.high)
    if column.integer:
        return (values * N_BINS // (column.high + 1)).cast(pl.UInt8).alias(name)
    places = ((values - column.low) / (column.high - column.low) * N_BINS).floor()
    return places.clip(0, N_BINS - 1).cast(pl.UInt8).alias(name)


def numpy_codes(name, series):
    """Return the category of each value of a series of pandas, in one byte."""
    column = COLUMNS[name]
    if isinstance(column, Datetime):
        days = series.to_numpy().astype("datetime64[D]").astype(np.int64) - FIRST_DAY
        return (days * 86400 * N_BINS // N_SECONDS).astype(np.uint8)
    if not isinstance(column, Numeric):
        if series.dtype == "category":
            return series.cat.set_categories(column.labels).cat.codes.to_numpy().astype(np.uint8)
        return series.to_numpy().astype(np.uint8)
    values = np.clip(series.to_numpy(), column.low, column.high)
    if column.integer:
        return (values * N_BINS // (column.high + 1)).astype(np.uint8)
    places = np.floor((values - column.low) / (column.high - column.low) * N_BINS)
    places = np.minimum(places, N_BINS - 1)
    return np.where(np.isnan(places), SIZES[name] - 1, places).astype(np.uint8)


def arrow_table(paths):
    import pyarrow.dataset

    return pyarrow.dataset.dataset(paths).to_table()


def ours(source, n_jobs=1):
    """``TableCounter``."""
    if n_jobs > 1:
        return streamed(source, n_jobs)
    return TableCounter(encoder(), PAIRS).count(source).finish


def streamed(source, n_jobs=2):
    """As the sampler counts what it does not hold."""
    records = open_records(source, encoder(), store="none", n_jobs=n_jobs)
    tables = records.counts([tuple(map(NAMES.index, pair)) for pair in PAIRS])
    return lambda: np.concatenate([table.ravel() for table in tables]).astype(np.int64)


def duckdb_relation(source, n_threads):
    import duckdb

    connection = duckdb.connect()
    connection.execute(f"SET threads = {n_threads}")
    if isinstance(source, list):
        return connection, connection.read_parquet(source)
    return connection, connection.from_arrow(source)


def duckdb_sets(source):
    """DuckDB: one query with 105 grouping sets."""
    connection, table = duckdb_relation(source, 1)
    binned = table.project(", ".join(f"{sql_bins(name)} AS {name}" for name in NAMES))
    sets = ", ".join(f"({a}, {b})" for a, b in PAIRS)
    names = ", ".join(NAMES)
    rows = binned.query(
        "binned",
        f"SELECT {names}, GROUPING({names}) AS which, count(*) AS n FROM binned "
        f"GROUP BY GROUPING SETS ({sets})",
    ).fetchall()
    places = {name: i for i, name in enumerate(NAMES)}
    # The last column is the lowest bit; a bit is set where a column is not grouped by.
    every = (1 << len(NAMES)) - 1
    bits = [every - sum(1 << (len(NAMES) - 1 - places[name]) for name in pair) for pair in PAIRS]

    def counts():
        of = {bit: [] for bit in bits}
        for row in rows:
            of[row[-2]].append(row)
        for pair, bit in zip(PAIRS, bits, strict=True):
            a, b = (places[name] for name in pair)
            yield zip(*[(row[a], row[b], row[-1]) for row in of[bit]], strict=True)

    return lambda: in_vector(counts())


def duckdb_stream(source):
    """DuckDB scans and bins, ``TableCounter`` counts what comes as a stream of Arrow."""
    from sklearn_dpgen.preprocessing import TabularEncoder
    from sklearn_dpgen.schema import Categorical, Schema

    _, table = duckdb_relation(source, 1)
    binned = table.project(", ".join(f"{sql_bins(name)} AS {name}" for name in NAMES))
    codes = {
        name: Categorical(list(range(N_BINS)), nullable=column.nullable)
        if isinstance(column, Numeric | Datetime)
        else column
        for name, column in COLUMNS.items()
    }
    return TableCounter(TabularEncoder(Schema(codes)).fit(), PAIRS).count(binned).finish


def polars_groups(source):
    """Polars: lazy, streaming, a group-by each, collected together."""
    import polars as pl

    lazy = pl.scan_parquet(source) if isinstance(source, list) else pl.from_arrow(source).lazy()
    binned = lazy.select(polars_bins(name) for name in NAMES)
    queries = [binned.group_by(pair).len() for pair in PAIRS]
    groups = pl.collect_all(queries, engine="streaming")
    return lambda: in_vector(group.to_dict(as_series=False).values() for group in groups)


def _codes(source):
    """Return a frame of categories in one byte each."""
    import pandas as pd

    frame = pd.read_parquet(source) if isinstance(source, list) else source.to_pandas()
    return pd.DataFrame({name: numpy_codes(name, frame.pop(name)) for name in NAMES})


def _dense(tables):
    return np.concatenate([np.asarray(table).ravel() for table in tables]).astype(np.int64)


def pandas_groups(source):
    """pandas: categories by NumPy, then ``groupby(pair).size()`` one by one."""
    frame = _codes(source)
    groups = [frame.groupby(list(pair)).size() for pair in PAIRS]

    def vector():
        tables = [np.zeros([SIZES[name] for name in pair], dtype=np.int64) for pair in PAIRS]
        for table, group in zip(tables, groups, strict=True):
            table[tuple(group.index.get_level_values(i) for i in (0, 1))] = group
        return _dense(tables)

    return vector


def mbi_projections(source):
    """mbi: categories by NumPy, then ``Dataset.project`` one by one."""
    import mbi

    domain = mbi.Domain(NAMES, [SIZES[name] for name in NAMES])
    data = mbi.Dataset(_codes(source).to_dict("series"), domain)
    factors = [data.project(pair).datavector() for pair in PAIRS]
    return lambda: _dense(factors)


def opendp_marginals(source):
    """OpenDP: what its contingency tables count with, on categories by Polars."""
    import opendp.prelude as dp
    import polars as pl
    from opendp.extras.mbi._utilities import make_stable_marginals

    dp.enable_features("contrib")
    lazy = pl.scan_parquet(source) if isinstance(source, list) else pl.from_arrow(source).lazy()
    labels = {
        name: list(COLUMNS[name].labels)
        for name in NAMES
        if not isinstance(COLUMNS[name], Numeric | Datetime)
    }
    binned = lazy.select(
        polars_bins(name).fill_null(SIZES[name] - 1).cast(pl.UInt32)
        if name not in labels
        else pl.col(name).replace_strict(labels[name], range(SIZES[name]), return_dtype=pl.UInt32)
        for name in NAMES
    )
    domain = dp.lazyframe_domain(
        [
            dp.series_domain(name, dp.atom_domain(T="u32", bounds=(0, SIZES[name] - 1)))
            for name in NAMES
        ]
    )
    metric = dp.frame_distance(dp.symmetric_distance())
    count = make_stable_marginals(domain, metric, dp.l2_distance(T="u32"), list(PAIRS))
    tables = count(binned)
    return lambda: _dense(tables[pair] for pair in PAIRS)


def through_pyarrow(paths):
    """A data set of pyarrow."""
    import pyarrow.dataset

    return streamed(pyarrow.dataset.dataset(paths))


def through_duckdb(paths):
    """A relation of DuckDB."""
    _connection, table = duckdb_relation(paths, 2)
    return streamed(table)


def through_polars(paths):
    """A lazy frame of Polars."""
    import polars as pl

    return streamed(pl.scan_parquet(paths))


def through_dask(paths):
    """A frame of dask, on two processes."""
    import dask.dataframe
    from distributed import Client, LocalCluster

    options = {"n_workers": 2, "threads_per_worker": 1, "dashboard_address": None}
    with LocalCluster(**options, memory_limit=0) as cluster, Client(cluster):
        return streamed(dask.dataframe.read_parquet(paths, split_row_groups=True))


def through_spark(paths):
    """A frame of Spark, on two cores."""
    from pyspark.sql import SparkSession

    settings = {
        "spark.driver.memory": "4g",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.log.level": "OFF",
    }
    session = SparkSession.builder.master("local[2]").config(map=settings).getOrCreate()
    try:
        return streamed(session.read.parquet(*paths))
    finally:
        session.stop()


def through_ray(paths):
    """A dataset of Ray, on two cores."""
    import ray

    context = {"num_cpus": 2, "include_dashboard": False, "log_to_driver": False}
    ray.init(**context, object_store_memory=2**30, runtime_env={"env_vars": dict(PYTHON)})
    try:
        return streamed(ray.data.read_parquet(paths))
    finally:
        ray.shutdown()


PYTHON = {"PYTHONPATH": os.environ.get("PYTHONPATH", "")}
PEERS = {
    peer.__name__: peer
    for peer in (
        ours,
        duckdb_stream,
        duckdb_sets,
        polars_groups,
        pandas_groups,
        mbi_projections,
        opendp_marginals,
    )
}
ENGINES = {
    engine.__name__: engine
    for engine in (
        through_pyarrow,
        through_duckdb,
        through_polars,
        through_dask,
        through_spark,
        through_ray,
    )
}
