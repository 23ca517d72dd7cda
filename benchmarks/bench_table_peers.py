"""AIM and MST of OpenDP on the tables of `REPORT`, epsilon 1 and delta 1e-5, scored as our own.

The peers are ``opendp[mbi]``, at their defaults (AIM: interactions of up to three columns, at most
80 MB), in an environment of their own::

    python -m venv peers && peers/bin/pip install "opendp[mbi]" pandas
    python benchmarks/bench_table_peers.py --python peers/bin/python

Neighbours differ by adding or removing a record. The budget is the most rho of which rho-zCDP is
(epsilon, delta)-DP. The public labels are the keys of a column. OpenDP gives each a null beside
them; where it makes one of a column that has none, a value of the column is drawn. Numbers are
given in the public bins of `_tables.py`, and drawn evenly within them, as for `independent`. There
are as many records as were given. Seconds are of one core, of fit and sample, without imports. A
fit that takes more than ten minutes is a failure, and is not tried again. MST has its rounding
mended, without which it refuses most budgets.

The protocol is that of `bench_tables.py`. The noise takes no seed: seeds are repetitions.
"""

import argparse
import itertools
import json
import os
import resource
import subprocess
import tempfile
import time
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from _common import record
from _tables import DELTA, REPORT, TABLES, scores, split, summarize
from threadpoolctl import threadpool_limits

from sklearn_dpgen.preprocessing import TabularEncoder

MODELS = ("AIM", "MST")
ONE_CORE = {
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "POLARS_MAX_THREADS": "1",
    "JAX_PLATFORMS": "cpu",
    "XLA_FLAGS": "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1",
}


def fit(model, train, table, seed, args):
    """Return synthetic records and seconds, or None and why there are none."""
    encoder = TabularEncoder(table.schema, bins=table.bins).fit(train)
    columns = {f"c{i}": column for i, column in enumerate(encoder.columns_.values())}
    codes = [column.codes(train[name]) for name, column in encoder.columns_.items()]
    with tempfile.TemporaryDirectory() as folder:
        task = {
            "model": model,
            "epsilon": args.epsilon,
            "delta": DELTA,
            "seed": seed,
            "sizes": {name: (c.domain.n_features, c.nullable) for name, c in columns.items()},
            "records": f"{folder}/records.csv",
            "made": f"{folder}/made.csv",
        }
        pd.DataFrame(dict(zip(columns, codes, strict=True))).to_csv(task["records"], index=False)
        result, failure = _run(task, args)
        if failure:
            return None, failure
        made = pd.read_csv(task["made"])[list(columns)]
    rng = np.random.default_rng(seed)
    blocks = [_one_hot(made[name], column, rng) for name, column in columns.items()]
    return encoder.inverse_transform(np.hstack(blocks), rng=rng), result["cpu seconds"]


def _run(task, args):
    command = [args.python, str(Path(__file__).with_name("_peer_fit.py")), json.dumps(task)]
    limit = (resource.RLIMIT_CPU, (args.limit, args.limit + 5))
    done = subprocess.run(
        command,
        env=os.environ | ONE_CORE,
        capture_output=True,
        text=True,
        preexec_fn=lambda: resource.setrlimit(*limit),
    )
    if done.returncode == 0:
        return json.loads(done.stdout.splitlines()[-1]), None
    if done.returncode < 0:
        return None, f"ended by signal {-done.returncode}, limit {args.limit} CPU seconds"
    lines = [
        line.strip() for line in done.stderr.splitlines() if "Error" in line or "Failed" in line
    ]
    return None, (lines or ["no message"])[-1]


def _one_hot(codes, column, rng):
    """Return codes one-hot; a null is the last, or drawn from the others where there is none."""
    n = column.domain.n_features
    null = codes.isna().to_numpy()
    codes = codes.fillna(n - 1).to_numpy(dtype=np.int64)
    if null.any() and not column.nullable:
        others = codes[~null] if not null.all() else np.arange(n)
        codes[null] = rng.choice(others, null.sum())
    return np.eye(n)[codes]


def run(case, args):
    name, model, seed = case
    table = TABLES[name]()
    train, test = split(table.frame)
    made, result = fit(model, train, table, seed, args)
    key = {"table": name, "model": model, "epsilon": args.epsilon, "seed": seed}
    if made is None:
        return key | {"failure": result}
    return key | scores(made[list(train.columns)], test, table) | {"cpu seconds": result}


def tables(most):
    """Return the names of tables with at most so many training records, the quick ones first."""
    sizes = {name: split(TABLES[name]().frame)[0].shape for name in REPORT}
    names = [name for name, (n, _) in sizes.items() if n <= most]
    return sorted(names, key=lambda name: sizes[name][0] * sizes[name][1] ** 2)


def summary(rows):
    """Return means over seeds, and what failed, of cases that may be in a former record."""
    made = [row for row in rows if "failure" not in row]
    failed = [row for row in rows if "failure" in row]
    keys = ("table", "model", "epsilon")
    return (summarize(made, keys) if made else []) + failed


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--python", required=True, help="of the environment of the peers")
    parser.add_argument("--models", nargs="+", default=list(MODELS), choices=MODELS)
    parser.add_argument("--tables", nargs="+", choices=list(TABLES))
    parser.add_argument(
        "--most", type=int, default=30_000, help="training records, of tables not named"
    )
    parser.add_argument("--epsilon", type=float, default=1.0)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--limit", type=int, default=600, help="CPU seconds of a fit")
    parser.add_argument("--name", default="table_peers", help="of the results")
    args = parser.parse_args()
    torch.set_num_threads(1)
    cases = itertools.product(range(args.seeds), args.tables or tables(args.most), args.models)
    rows, failed = [], set()
    with threadpool_limits(1):
        for seed, name, model in cases:
            if (name, model) in failed:
                continue
            start = time.perf_counter()
            rows.append(run((name, model, seed), args))
            print(rows[-1], f"{time.perf_counter() - start:.0f} s", flush=True)
            if "failure" in rows[-1]:
                failed.add((name, model))
            record(args.name, summary(rows), vars(args) | {"python": "opendp[mbi]", "rows": rows})


if __name__ == "__main__":
    main()
