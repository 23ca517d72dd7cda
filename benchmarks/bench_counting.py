"""Counting the 105 pairs of 15 mixed columns: to a billion rows, through engines, beside peers.

Each line is measured in a process of its own: wall seconds, CPU seconds of that process and all
that it starts, and the peak of memory above what is held once everything is imported. Counts are
compared bit for bit. Parts (--part): ``billion``, of batches that are made from a seed; ``fit``, of
the sampler on these; ``engines`` and ``peers``, of files of Parquet, which are written to --folder;
``passes``, what a pass over such files is spent on.

OpenDP needs a polars of its own, ``pip install --target FOLDER --no-deps polars==1.36.1
polars-runtime-32==1.36.1``, and finds it with ``--opendp FOLDER``. Threads of Polars are limited by
``POLARS_MAX_THREADS=1``.
"""

import argparse
import hashlib
import importlib
import json
import os
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
from _common import record
from _large_tables import BATCH, NAMES, PAIRS, SCHEMA, Batches, Meter, encoder, write_files

SIZES = [10**6, 10**7, 10**8, 10**9]


def digest(vector):
    """Return what tells whether two vectors of counts are equal."""
    return hashlib.sha256(np.ascontiguousarray(vector, dtype=np.int64)).hexdigest()[:16]


def generated(n_rows):
    """Make all batches, and look at none."""
    import pyarrow  # noqa: F401

    with Meter() as meter:
        for _ in Batches(n_rows):
            pass
    return meter.row


def one_thread(n_rows):
    """Count with ``TableCounter``."""
    import pyarrow  # noqa: F401

    from sklearn_dpgen.tables import TableCounter

    with Meter() as meter:
        counter = TableCounter(encoder(), PAIRS).count(Batches(n_rows))
    return meter.row | {"counts": digest(counter.finish())}


def two_threads(n_rows):
    """Count as the sampler does, with two threads."""
    import pyarrow  # noqa: F401

    from sklearn_dpgen.tables._records import StreamedRecords

    tables = [tuple(map(NAMES.index, pair)) for pair in PAIRS]
    with Meter() as meter:
        records = StreamedRecords(Batches(n_rows), encoder(), n_jobs=2)
        counts = records.counts(tables)
    return meter.row | {"counts": digest(np.concatenate([table.ravel() for table in counts]))}


def fitted(n_rows):
    """Fit the sampler on all pairs, with two threads; tell passes from the rest."""
    import pyarrow  # noqa: F401

    from sklearn_dpgen.tables import TableSampler, _records

    spent = []

    class Timed(_records.StreamedRecords):
        def _counted(self, *args):
            start = time.perf_counter(), time.process_time()
            counter = super()._counted(*args)
            spent.append((time.perf_counter() - start[0], time.process_time() - start[1]))
            return counter

    _records.StreamedRecords = Timed
    sampler = TableSampler(schema=SCHEMA, marginals="pairs", store="none", n_jobs=2, random_state=0)
    with Meter() as meter:
        sampler.fit(Batches(n_rows))
    wall, cpu = np.sum(spent, axis=0).tolist()
    return meter.row | {
        "passes": len(spent),
        "passes wall s": round(wall, 2),
        "passes cpu s": round(cpu, 2),
        "after wall s": round(meter.wall - wall, 2),
        "after cpu s": round(meter.cpu - cpu, 2),
        "tables": len(sampler.marginals_),
        "cells": int(sum(part.counts.size for part in sampler.marginals_)),
    }


def peer(name, paths, source):
    """Count with another package, files or what is in memory."""
    from _counting_peers import PEERS, arrow_table

    warm_up(name)
    table = paths if source == "files" else arrow_table(paths)
    with Meter(is_tree=False) as meter:
        vector = PEERS[name](table)
    return meter.row | {"counts": digest(vector())}


def engine(name, paths):
    """Count files that an engine reads, with two threads or processes."""
    from _counting_peers import ENGINES

    warm_up(name)
    with Meter(is_tree=True) as meter:
        vector = ENGINES[name](paths)
    return meter.row | {"counts": digest(vector())}


def passed(paths, stage):
    """Read files, read and code, or read, code and count them; tell the bytes that go in."""
    from pyarrow.parquet import read_metadata

    from sklearn_dpgen.preprocessing._reader import read_blocks
    from sklearn_dpgen.preprocessing._sources import open_source
    from sklearn_dpgen.tables import TableCounter

    warm_up("ours")
    codes = coded = read = n_rows = 0
    with Meter() as meter:
        counter = TableCounter(encoder(), PAIRS)
        for block in read_blocks(open_source(paths, counter.columns), counter.names):
            n_rows += len(block)
            read += block.nbytes
            if stage != "read":
                codes = counter._coder.codes(block)
                coded += sum(part.nbytes for part in codes)
            if stage == "count":
                counter.count_codes(codes)
    row = meter.row | {"cpu ns a row": round(meter.cpu / n_rows * 1e9, 1)}
    stored = sum(read_metadata(path).serialized_size for path in paths)
    stored = sum(os.path.getsize(path) for path in paths) - stored
    of = {"stored": stored, "read": read, "codes": coded}
    return row | {f"{name} bytes a row": round(n / n_rows, 1) for name, n in of.items()}


def warm_up(name):
    """Import what is needed, so that it does not count."""
    for package in IMPORTS.get(name, ()):
        importlib.import_module(package)


IMPORTS = {
    "ours": ["pyarrow.dataset"],
    "duckdb_stream": ["pyarrow.dataset", "duckdb"],
    "duckdb_sets": ["pyarrow.dataset", "duckdb"],
    "polars_groups": ["pyarrow.dataset", "polars"],
    "pandas_groups": ["pyarrow.dataset"],
    "mbi_projections": ["pyarrow.dataset", "mbi"],
    "opendp_marginals": ["pyarrow.dataset", "polars", "opendp.prelude", "opendp.extras.mbi"],
    "through_pyarrow": ["pyarrow.dataset"],
    "through_duckdb": ["duckdb", "pyarrow"],
    "through_polars": ["polars", "pyarrow"],
    "through_dask": ["dask.dataframe", "distributed", "pyarrow.dataset"],
    "through_spark": ["pyspark.sql", "pyarrow"],
    "through_ray": ["ray.data", "pyarrow"],
}
CASES = {
    case.__name__: case
    for case in (generated, one_thread, two_threads, fitted, peer, engine, passed)
}


def run(case, path="", **options):
    """Return what a case measures, in a process of its own; of one that fails, how."""
    command = [sys.executable, __file__, "--case", json.dumps([case, options])]
    paths = [path, *os.environ.get("PYTHONPATH", "").split(os.pathsep)]
    env = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, paths))}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=env)
    lines = done.stdout.splitlines()
    if done.returncode or not lines:
        return {"failure": (done.stderr.strip().splitlines() or ["killed"])[-1][-200:]}
    return json.loads(lines[-1])


def check_equal(rows):
    """Raise AssertionError unless all that was counted is the same."""
    counts = {row["counts"] for row in rows if "counts" in row}
    assert len(counts) <= 1, f"counts differ: {rows}"


def billion(options):
    """Generation alone, one thread, two threads."""
    for n_rows in options.rows or SIZES:
        rows = [
            {"part": "billion", "rows": n_rows, "case": case} | run(case, n_rows=n_rows)
            for case in ("generated", "one_thread", "two_threads")
        ]
        check_equal(rows)
        yield from rows


def fit(options):
    """The sampler."""
    for n_rows in options.rows or SIZES[:3]:
        yield {"part": "fit", "rows": n_rows} | run("fitted", n_rows=n_rows)


def engines(options):
    """The same files through each engine."""
    yield from _of_files("engine", ENGINES, options, (options.rows or [10**8])[0], [{}])


def peers(options):
    """The same table by each package, from files and from memory."""
    sources = [{"source": "files"}, {"source": "memory"}]
    yield from _of_files("peer", PEERS, options, (options.rows or [5 * 10**6])[0], sources)


def passes(options):
    """What a pass over files is spent on, by leaving its later stages out."""
    n_rows = (options.rows or [5 * 10**6])[0]
    paths = write_files(options.folder, n_rows)
    for stage in ("read", "code", "count"):
        yield {"part": "passes", "rows": n_rows, "until": stage} | run(
            "passed", paths=paths, stage=stage
        )


def _of_files(case, names, options, n_rows, settings):
    paths, rows = write_files(options.folder, n_rows), []
    for setting in settings:
        for name in options.only or names:
            path = options.opendp if name == "opendp_marginals" else ""
            found = run(case, path, name=name, paths=paths, **setting)
            rows.append({"part": f"{case}s", "rows": n_rows, case: name} | setting | found)
            yield rows[-1]
    check_equal(rows)


ENGINES = [name for name in IMPORTS if name.startswith("through")]
PEERS = [name for name in IMPORTS if not name.startswith("through")]
PARTS = {part.__name__: part for part in (billion, fit, engines, peers, passes)}


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--part", nargs="+", choices=[*PARTS], default=[*PARTS])
    parser.add_argument("--rows", type=lambda text: int(float(text)), nargs="+")
    parser.add_argument("--only", nargs="+", help="engines or peers")
    parser.add_argument("--opendp", default="", help="folder of the polars that opendp needs")
    parser.add_argument("--folder", type=Path, default=Path("large_tables"))
    parser.add_argument("--case", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.case:
        name, given = json.loads(options.case)
        print(json.dumps(CASES[name](**given)))
        return
    for part in options.part:
        rows = []
        for row in PARTS[part](options):
            print(row, flush=True)
            rows.append(row)
        meta = {"columns": len(NAMES), "tables": len(PAIRS), "batch": BATCH}
        record(f"counting_{part}", rows, meta)


if __name__ == "__main__":
    main()
