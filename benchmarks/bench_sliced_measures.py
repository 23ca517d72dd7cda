"""Sliced private measures: what led to the defaults, and how time and memory grow.

`--ablations` changes one setting at a time. The tables are a survey of marriages (statsmodels'
`fair`, 6366 records), MNIST as a table of 49 coarse pixels and the digit, and splits of the
training records of Adult and RAND health other than those of the reported figures: epsilon 2,
delta 1e-5, neighbours by adding or removing a record. The distances and scores are those of
`bench_tables.py`.

`--scale` times the fit of simulated tables with one thread, each in a process of its own for its
peak of memory: rows from 1e4 to 1e7, read in chunks of 1e6, and columns from 5 to 100. `fit` is
what follows releases, and sees no record; `counts` is the rest.
"""

import argparse
import itertools
import json
import resource
import subprocess
import sys
import time
from contextlib import ExitStack, contextmanager
from unittest import mock

import numpy as np
import pandas as pd
import torch
from _common import record
from _tables import DELTA, TABLES, TWO, Table, scores, split, summarize
from sklearn.model_selection import train_test_split

from sklearn_dpgen.datasets import fetch_mnist
from sklearn_dpgen.schema import Categorical, Numeric, Ordinal, Schema
from sklearn_dpgen.tables import (
    SlicedMeasureSampler,
    _privacy_plan,
    _resolution,
)
from sklearn_dpgen.tables._chain_fit import ChainFit

EPSILON = 2.0


def marriages():
    from statsmodels.datasets import fair

    schema = {
        "rate_marriage": Ordinal([1.0, 2.0, 3.0, 4.0, 5.0]),
        "age": Numeric(17, 42),
        "yrs_married": Numeric(0, 23),
        "children": Numeric(0, 5.5),
        "religious": Ordinal([1.0, 2.0, 3.0, 4.0]),
        "educ": Numeric(9, 20),
        "occupation": Ordinal([1.0, 2.0, 3.0, 4.0, 5.0, 6.0]),
        "occupation_husb": Ordinal([1.0, 2.0, 3.0, 4.0, 5.0, 6.0]),
        "affairs": Numeric(0, 60),
    }
    frame = fair.load_pandas().data
    return Table(frame, Schema(schema), {}, "affairs", lambda hours: np.asarray(hours) > 0)


def digits(n=30_000, side=7, levels=8):
    data = fetch_mnist(as_images=True)
    coarse = data.X_train[:n].reshape(n, side, 28 // side, side, 28 // side).mean(axis=(2, 4))
    frame = pd.DataFrame(
        np.minimum(coarse.reshape(n, -1) * levels // 255, levels - 1).astype(int),
        columns=[f"pixel {i}" for i in range(side**2)],
    )
    schema = {name: Ordinal(range(levels)) for name in frame}
    frame["digit"] = data.y_train[:n].astype(int)
    schema["digit"] = Categorical(range(10))
    return Table(frame, Schema(schema), {}, "digit", lambda digit: np.asarray(digit) > 4)


OTHERS = {"marriages": marriages, "digits": digits}


def parts(name):
    """Return a table, its training and its validation records."""
    if name in OTHERS:
        table = OTHERS[name]()
        halves = train_test_split(table.frame, test_size=0.3, random_state=0)
    else:
        table = TABLES[name]()
        halves = train_test_split(split(table.frame)[0], test_size=0.3, random_state=7)
    return table, *(half.reset_index(drop=True) for half in halves)


@contextmanager
def constants(values):
    """Patch constants of modules, {(module, name): value}."""
    with ExitStack() as stack:
        for (module, name), value in values.items():
            stack.enter_context(mock.patch.object(module, name, value))
        yield


# Name: parameters of the sampler, and constants that are none.
CASES = {
    "default": ({}, {}),
    "32 equal bins": ({"n_bins": 32}, {}),
    "columns 30 % of the budget": ({}, {(_privacy_plan, "_SINGLES"): 0.3}),
    "selections 40 %": ({}, {(_privacy_plan, "_SELECTIONS"): 0.4}),
    "no triples": ({}, {(_privacy_plan, "_MOST_TRIPLES"): 0}),
    "one round": ({}, {(_privacy_plan, "_ROUNDS"): 1}),
    "tables half as fine": ({}, {(_resolution, "_CLEAR"): 12.0}),
    "population 5000": ({"population_size": 5000}, {}),
    "population 80000": ({"population_size": 80_000}, {}),
    "50 steps": ({"max_iter": 50}, {}),
    "all pairs": ({"slices": "pairs"}, {}),
    "target": ("target", {}),
    "target weighs 3": ("weight", {}),
    "pairs, and triples with the target": ("triples", {}),
}


def options_of(given, table):
    """Return parameters of the sampler."""
    if given == "target":
        return {"target": table.target}
    if given == "weight":
        return {"workload": {table.target: 3.0}}
    if given == "triples":
        rest = [name for name in table.schema if name != table.target]
        triples = [(table.target, *pair) for pair in itertools.combinations(rest, 2)]
        return {"slices": [*itertools.combinations(table.schema, 2), *triples]}
    return given


def ablations(args):
    """Return a row for each table, case and seed."""
    rows = []
    for name in args.tables:
        table, train, test = parts(name)
        for case, seed in itertools.product(args.cases, range(100, 100 + args.seeds)):
            given, values = CASES[case]
            options = options_of(given, table) | {"neighbours": "add_or_remove"}
            start = time.process_time()
            with constants(values):
                sampler = SlicedMeasureSampler(
                    EPSILON, DELTA, schema=table.schema, random_state=seed, **options
                ).fit(train)
            made = sampler.sample(len(train), random_state=seed)
            seconds = time.process_time() - start
            key = {"table": name, "case": case, "seed": seed}
            rows.append(key | scores(made, test, table) | {"cpu seconds": seconds})
            print(rows[-1], flush=True)
    return summarize(rows, ("table", "case"))


def simulated(n_rows, n_columns, chunk=1_000_000):
    """Yield chunks of a table: half of the columns are numbers, the others have 20 categories."""
    rng = np.random.default_rng(0)
    for start in range(0, n_rows, chunk):
        size = min(chunk, n_rows - start)
        hidden = rng.standard_normal(size)
        columns = {}
        for i in range(n_columns):
            values = hidden + rng.standard_normal(size)
            if i % 2:
                columns[f"x{i}"] = np.clip(np.floor(2 * values + 10), 0, 19).astype(np.int8)
            else:
                columns[f"x{i}"] = values
        yield pd.DataFrame(columns)


def scale_case(n_rows, n_columns):
    """Return the seconds of one fit and the peak of memory of this process."""
    torch.set_num_threads(1)
    schema = Schema(
        {f"x{i}": Categorical(range(20)) if i % 2 else Numeric(-8, 8) for i in range(n_columns)}
    )
    made = 0.0

    def chunks():
        nonlocal made
        source = simulated(n_rows, n_columns)
        while True:
            start = time.process_time()
            chunk = next(source, None)
            made += time.process_time() - start
            if chunk is None:
                return
            yield chunk

    fitted = []

    def timed(method):
        def run(self, *args):
            start = time.process_time()
            found = method(self, *args)
            fitted.append(time.process_time() - start)
            return found

        return run

    sampler = SlicedMeasureSampler(1.0, DELTA, schema=schema, random_state=0)
    start = time.process_time()
    with (
        mock.patch.object(ChainFit, "predict", timed(ChainFit.predict)),
        mock.patch.object(ChainFit, "law", timed(ChainFit.law)),
    ):
        sampler.fit(chunks())
    whole = time.process_time() - start - made
    return {
        "rows": n_rows,
        "columns": n_columns,
        "slices": len(sampler.slices_),
        "categories": sampler.encoder_.domain_.n_features,
        "counts, s": whole - sum(fitted),
        "fit, s": sum(fitted),
        "peak, MiB": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
    }


def scale(args):
    """Return a row for each size, from a process of its own."""
    rows = []
    for n_rows, n_columns in args.sizes:
        command = [sys.executable, __file__, "--one", str(n_rows), str(n_columns)]
        found = subprocess.run(command, check=True, capture_output=True, text=True).stdout
        rows.append(json.loads(found.splitlines()[-1]))
        print(rows[-1], flush=True)
    return rows


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--ablations", action="store_true")
    parser.add_argument("--scale", action="store_true")
    parser.add_argument("--one", nargs=2, type=int, help=argparse.SUPPRESS)
    parser.add_argument("--seeds", type=int, default=3)
    every = [*TWO, *OTHERS]
    parser.add_argument("--tables", nargs="+", default=every, choices=every)
    parser.add_argument("--cases", nargs="+", default=list(CASES), choices=list(CASES))
    parser.add_argument("--name", default="sliced_measures_ablations", help="of the results")
    parser.add_argument("--no-record", action="store_true")
    args = parser.parse_args()
    if args.one:
        print(json.dumps(scale_case(*args.one)))
        return
    torch.set_num_threads(1)
    if args.ablations:
        rows = ablations(args)
        if args.no_record:
            print(pd.DataFrame(rows).to_string())
        else:
            meta = {"epsilon": EPSILON, "delta": DELTA, "seeds": args.seeds}
            record(args.name, rows, meta)
    if args.scale:
        args.sizes = [(n, 15) for n in (10_000, 100_000, 1_000_000, 10_000_000)]
        args.sizes += [(100_000, p) for p in (5, 30, 50, 100)]
        record("sliced_measures_scale", scale(args), {"epsilon": 1.0, "delta": DELTA})


if __name__ == "__main__":
    main()
