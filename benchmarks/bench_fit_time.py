"""Processor time of default fits, beside that of an earlier commit, and what they are worth.

Each fit has a process of its own with one thread, which alternates between the two versions of the
package: both meet the same machine. Times are of the process, of ``fit`` alone; ``ratio`` is the
median of before over after, fit by fit. Tables are fitted twice in a process, as a first fit
imports what it needs. Simulated tables have 18000 records that follow from a few hidden factors, a
quarter of the columns numbers, the others of 2, 6 and 15 categories; ``2-way TV`` is the mean total
variation of pairs, of those records. Adult and RAND health are split as in ``bench_tables.py``,
with its AUC of boosting. ``images`` are 6000 of 28 by 28 pixels in 3 classes.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
import warnings
from pathlib import Path

import numpy as np
import pandas as pd
from _common import record
from _tables import DELTA, TABLES, measures, split
from sklearn.base import clone

from sklearn_dpgen.moments import MomentImageSampler
from sklearn_dpgen.schema import Categorical, Numeric, Schema
from sklearn_dpgen.tables import TableSampler

ROOT = Path(__file__).parents[1]
# The commit before joint tables were grouped greedily and fits went on from one another.
BEFORE = "ce510dc"
N_RECORDS, N_IMAGES = 18_000, 6_000
REAL = {"adult": "adult", "rand": "rand health"}
RELATIONS = ("add_or_remove", "replace_one")
CASES = {str(p): (p, "replace_one") for p in (13, 30, 60)}
CASES |= {f"{name} {relation}": (name, relation) for name in REAL for relation in RELATIONS}
CASES |= {"images": ("images", None)}


def simulated(n_columns):
    """Return records of a few hidden factors, and their schema."""
    rng = np.random.default_rng(0)
    n_factors = max(2, n_columns // 6)
    hidden = rng.standard_normal((N_RECORDS, n_factors))
    columns, kinds = {}, {}
    for i in range(n_columns):
        loadings = np.zeros(n_factors)
        loadings[rng.integers(n_factors)] = rng.choice([0.3, 1, 2])
        loadings[rng.integers(n_factors)] += rng.choice([0, 0.5, 1])
        values = hidden @ loadings + rng.standard_normal(N_RECORDS)
        values /= values.std()
        name, kind = f"x{i}", i % 4
        if kind == 0:
            columns[name], kinds[name] = values, Numeric(-8, 8)
            continue
        n_labels = (2, 6, 15)[kind - 1]
        columns[name] = np.searchsorted(np.sort(rng.normal(size=n_labels - 1)), values)
        kinds[name] = Categorical(range(n_labels))
    return pd.DataFrame(columns), Schema(kinds)


def fit_table(name, relation, seed):
    if name in REAL:
        table = TABLES[REAL[name]]()
        train, test = split(table.frame)
        schema, target = table.schema, table.target
    else:
        train, schema = simulated(name)
        target = "x1"
    sampler = TableSampler(
        1.0, DELTA, schema=schema, target=target, neighbours=relation, random_state=seed
    )
    start = time.process_time()
    sampler.fit(train)
    middle = time.process_time()
    # What a first fit imports and compiles, it has then.
    clone(sampler).fit(train)
    seconds, again = middle - start, time.process_time() - middle
    if name in REAL:
        found = measures(sampler.sample(len(train), random_state=seed), test, table)
        worth = {key: found[key] for key in ("AUC boosting", "2-way TV")}
    else:
        worth = {"2-way TV": -sampler.score(train)}
    return {"seconds": seconds, "again": again, "tables": len(sampler.marginals_)} | worth


def fit_images(seed):
    rng = np.random.default_rng(0)
    X, y = rng.integers(256, size=(N_IMAGES, 28 * 28)), rng.integers(3, size=N_IMAGES)
    options = {"shape": (28, 28), "pixel_range": (0, 255), "labels": "public"}
    sampler = MomentImageSampler(random_state=seed, **options)
    start = time.process_time()
    sampler.fit(X, y)
    return {"seconds": time.process_time() - start}


def one(case, seed):
    """Print what one fit of this process took, and what its records are worth."""
    warnings.simplefilter("ignore")
    name, relation = CASES[case]
    found = fit_images(seed) if name == "images" else fit_table(name, relation, seed)
    print(json.dumps(found))


def run(case, seed, root):
    """Return what :func:`one` prints, with the package of a folder."""
    command = [sys.executable, __file__, "--one", case, str(seed)]
    single = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
    environment = os.environ | single | {"PYTHONPATH": str(root)}
    out = subprocess.run(command, env=environment, check=True, capture_output=True, text=True)
    return json.loads(out.stdout.splitlines()[-1])


def compare(case, seeds, roots):
    """Return a row for each version: medians of times, means and deviations of the rest."""
    found: dict = {version: [] for version in roots}
    for seed in range(seeds):
        for version, root in roots.items():
            found[version].append(run(case, seed, root))
            print(case, seed, version, found[version][-1], flush=True)
    pairs = list(zip(found["before"], found["after"], strict=True))
    times = {"cpu seconds": "seconds", "cpu seconds of a second fit": "again"}
    for version, rows in found.items():
        row = {"case": case, "version": version, "fits": seeds}
        for name, key in times.items():
            if key in rows[0]:
                row[name] = statistics.median(part[key] for part in rows)
                ratios = [old[key] / new[key] for old, new in pairs]
                row[name.replace("cpu seconds", "ratio")] = (
                    1.0 if version == "before" else statistics.median(ratios)
                )
        for key in ("tables", "2-way TV", "AUC boosting"):
            values = [part[key] for part in rows if key in part]
            row[key] = float(np.mean(values)) if values else None
            row[f"sd of {key}"] = float(np.std(values, ddof=1)) if len(values) > 1 else None
        yield row


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--one", nargs=2, help=argparse.SUPPRESS)
    parser.add_argument("--before", default=BEFORE, help="a commit")
    parser.add_argument("--cases", nargs="+", default=list(CASES), choices=list(CASES))
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--name", default="fit_time")
    options = parser.parse_args()
    if options.one:
        one(options.one[0], int(options.one[1]))
        return
    with tempfile.TemporaryDirectory() as folder:
        archive = ["git", "archive", options.before, "sklearn_dpgen"]
        files = subprocess.run(archive, cwd=ROOT, check=True, capture_output=True).stdout
        subprocess.run(["tar", "-x", "-C", folder], input=files, check=True)
        roots = {"before": folder, "after": ROOT}
        rows = [row for case in options.cases for row in compare(case, options.seeds, roots)]
    meta = {"before": options.before, "epsilon": 1.0, "delta": DELTA, "records": N_RECORDS}
    record(options.name, rows, meta)


if __name__ == "__main__":
    main()
