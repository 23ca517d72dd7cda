"""Ablations of TableSampler, and the growth of its time and memory.

`--ablations` removes one component or changes one setting, on splits of the training sets of the
tables on which settings are chosen. Distances and scores are those of `bench_tables.py`.

`--rules` measures dependence that pairs in wide bins cannot represent, such as the exclusive or:
the share of synthetic records that follow the rule of a simulated table, beside that of its
records.

`--scale` times fits of simulated tables with one thread, each in its own process for the peak of
memory: rows from 1e4 to 1e7, read in chunks of 1e6, and columns from 5 to 100. `fit` is the
post-processing of releases; `counts` is the rest.
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
from _tables import CHOOSE, DELTA, REPORT, TABLES, scores, shapes, split, summarize
from threadpoolctl import threadpool_limits

from sklearn_dpgen.schema import Categorical, Numeric, Schema
from sklearn_dpgen.tables import (
    TableSampler,
    _marginals,
    _privacy_plan,
    _releases,
)
from sklearn_dpgen.tables._log_linear_fit import ChainFit
from sklearn_dpgen.tables._releases import Measurements

EPSILON = 1.0
RELATIONS = ("add_or_remove", "replace_one")
# Small tables.
QUICK = ("hmda",)
# Ridges that do not depend on the released marginals.
RIDGES = (0.1, 1.0, 10.0)


def fixed_ridge(value):
    """Return a function in place of ``_ridges`` that depends on the number of cells alone."""
    return lambda residuals, frequencies, noise, information: value * information


def with_noise(tables, expected, weights, noise_scale):
    """Return the distances of tables without subtracting their mean under noise."""
    distances = [np.abs(t - e).sum() for t, e in zip(tables, expected, strict=True)]
    return weights * np.array(distances)


def no_learning(self, column, groups, sums, variance):
    """Do not update the shares of a column by later marginals."""


# For each case, parameters of the sampler, and replacements {(module or class, name): value}.
CASES = {
    "default": ({}, {}),
    "no target": ({"target": None}, {}),
    "no interactions": ({}, {(_privacy_plan, "_MOST_INTERACTIONS"): 0}),
    "no target, no interactions": ({"target": None}, {(_privacy_plan, "_MOST_INTERACTIONS"): 0}),
    "pairs alone": ({"marginals": "pairs"}, {}),
    "columns alone": ({"marginals": []}, {}),
    "16 equal bins": ({"n_bins": 16}, {}),
    "equal shares of the budget": ({}, {(_privacy_plan, "_TARGETS"): 0.0}),
    "columns 10 % of the budget": (
        {},
        {(_privacy_plan, "_SINGLES"): 0.1, (_privacy_plan, "_SINGLES_OF_FEW"): 0.1},
    ),
    "columns 40 % of the budget": (
        {},
        {(_privacy_plan, "_SINGLES"): 0.4, (_privacy_plan, "_SINGLES_OF_FEW"): 0.4},
    ),
    "columns do not learn of pairs": ({}, {(Measurements, "_learn"): no_learning}),
    "zero is no edge": ({}, {(_marginals, "_zero_edge"): lambda column: 0}),
    "tables finer": ({}, {(_privacy_plan, "_SIGNAL_TO_NOISE"): 3.0}),
    "tables coarser": ({}, {(_privacy_plan, "_SIGNAL_TO_NOISE"): 12.0}),
    "scores with their noise": ({}, {(_releases, "scores"): with_noise}),
    "5 steps": ({"max_iter": 5}, {}),
    "50 steps": ({"max_iter": 50}, {}),
    "5000 rows": ({"population_size": 5000}, {}),
    "80000 rows": ({"population_size": 80_000}, {}),
} | {f"ridge {r:g}": ({}, {(_releases, "_ridges"): fixed_ridge(r)}) for r in RIDGES}


@contextmanager
def replaced(replacements):
    """Replace attributes, {(module or class, name): value}."""
    with ExitStack() as stack:
        for (owner, name), value in replacements.items():
            stack.enter_context(mock.patch.object(owner, name, value))
        yield


def drawn(frame, case, n, *, seed, **options):
    """Return synthetic records of one case."""
    given, replacements = CASES[case]
    options = options | given
    with replaced(replacements):
        sampler = TableSampler(EPSILON, DELTA, random_state=seed, **options).fit(frame)
    return sampler.sample(n, random_state=seed), len(sampler.marginals_)


def ablations(args):
    """Return a row for each table, case and seed."""
    rows = []
    for name in args.tables:
        table = TABLES[name]()
        train, test = split(table.frame, validate=True)
        options = {"schema": table.schema, "target": table.target}
        for case, seed in itertools.product(args.cases, range(100, 100 + args.seeds)):
            start = time.process_time()
            made, n_marginals = drawn(
                train, case, len(train), seed=seed, neighbours="add_or_remove", **options
            )
            seconds = time.process_time() - start
            key = {"table": name, "case": case, "seed": seed}
            measured = scores(made, test, table) | shapes(made, test, table)
            rows.append(key | measured | {"marginals": n_marginals, "cpu seconds": seconds})
            print(rows[-1], flush=True)
    return summarize(rows, ("table", "case"))


def rules(seed, n=30_000):
    """Yield simulated tables: a name, records, the schema, the target, and the rule."""
    rng = np.random.default_rng(seed)

    def coins(k=2):
        return rng.integers(k, size=n)

    def labels(frame):
        return Schema({name: Categorical(range(frame[name].max() + 1)) for name in frame})

    def exclusive(frame):
        return frame["y"] == frame["a"] ^ frame["b"]

    a, b = coins(), coins()
    frame = pd.DataFrame({"a": a, "b": b, "y": a ^ b})
    yield "xor", frame, labels(frame), "y", exclusive
    flipped = frame.assign(y=frame["y"] ^ (rng.random(n) < 0.1))
    yield "xor, 10 % flipped", flipped, labels(frame), "y", exclusive
    wide = frame.assign(**{f"z{i}": coins() for i in range(10)})
    yield "xor among 10 others", wide, labels(wide), "y", exclusive
    a, b = coins(4), coins(4)
    frame = pd.DataFrame({"a": a, "b": b, "y": (a + b) % 4} | {f"z{i}": coins(3) for i in range(4)})
    yield "sum modulo 4", frame, labels(frame), "y", lambda d: (d["a"] + d["b"]) % 4 == d["y"]
    u, v = rng.uniform(-1, 1, (2, n))
    frame = pd.DataFrame({"u": u, "v": v, "y": (u * v > 0).astype(int), "w": rng.normal(size=n)})
    kinds = {"u": Numeric(-1, 1), "v": Numeric(-1, 1), "y": Categorical([0, 1])}
    schema = Schema(kinds | {"w": Numeric(-4, 4)})
    yield "sign of a product", frame, schema, "y", lambda d: (d["u"] * d["v"] > 0) == (d["y"] == 1)
    x = rng.uniform(size=200_000)
    frame = pd.DataFrame({"x": x, "y": (np.sin(20 * x) > 0).astype(int)})
    schema = Schema({"x": Numeric(0, 1), "y": Categorical([0, 1])})
    yield "sin 20x > 0", frame, schema, "y", lambda d: (np.sin(20 * d["x"]) > 0) == (d["y"] == 1)


RULE_CASES = ("default", "no target", "no interactions", "16 equal bins")


def rule_rows(args):
    """Return the share of records that follow each rule, given and synthetic."""
    rows = []
    for seed in range(args.seeds):
        for name, frame, schema, target, rule in rules(seed):
            for case, relation in itertools.product(RULE_CASES, RELATIONS):
                start = time.process_time()
                made, n_marginals = drawn(
                    frame, case, 30_000, seed=seed, schema=schema, target=target,
                    neighbours=relation,
                )  # fmt: skip
                seconds = time.process_time() - start
                key = {"table": name, "case": case, "relation": relation, "seed": seed}
                shares = {"given": rule(frame).mean(), "synthetic": rule(made).mean()}
                rows.append(key | shares | {"marginals": n_marginals, "cpu seconds": seconds})
                print(rows[-1], flush=True)
    return summarize(rows, ("table", "case", "relation"))


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
            result = method(self, *args)
            fitted.append(time.process_time() - start)
            return result

        return run

    options = {"schema": schema, "target": "x1", "neighbours": "add_or_remove"}
    sampler = TableSampler(EPSILON, DELTA, random_state=0, **options)
    start = time.process_time()
    names = ("predict", "distribution")
    with replaced({(ChainFit, name): timed(getattr(ChainFit, name)) for name in names}):
        sampler.fit(chunks())
    whole = time.process_time() - start - made
    return {
        "rows": n_rows,
        "columns": n_columns,
        "pairs": sum(len(m.columns) == 2 for m in sampler.marginals_),
        "triples": sum(len(m.columns) == 3 for m in sampler.marginals_),
        "cells": sum(m.counts.size for m in sampler.marginals_),
        "counts, s": whole - sum(fitted),
        "fit, s": sum(fitted),
        "peak, MiB": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
    }


def scale(args):
    """Return a row for each size, from a process of its own."""
    sizes = [(n, 15) for n in (10_000, 100_000, 1_000_000, 10_000_000)]
    sizes += [(100_000, p) for p in (5, 30, 50, 100)]
    rows = []
    for n_rows, n_columns in sizes[:2] if args.quick else sizes:
        command = [sys.executable, __file__, "--one", str(n_rows), str(n_columns)]
        output = subprocess.run(command, check=True, capture_output=True, text=True).stdout
        rows.append(json.loads(output.splitlines()[-1]))
        print(rows[-1], flush=True)
    return rows


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--ablations", action="store_true")
    parser.add_argument("--rules", action="store_true")
    parser.add_argument("--scale", action="store_true")
    parser.add_argument("--one", nargs=2, type=int, help=argparse.SUPPRESS)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--quick", action="store_true", help="one seed, small tables, no results")
    known = [name for name in TABLES if name not in REPORT]
    parser.add_argument("--tables", nargs="+", default=CHOOSE, choices=known)
    parser.add_argument("--cases", nargs="+", default=list(CASES), choices=list(CASES))
    args = parser.parse_args()
    if args.one:
        print(json.dumps(scale_case(*args.one)))
        return
    if args.quick:
        args.seeds, args.tables = 1, QUICK
    meta = {"epsilon": EPSILON, "delta": DELTA, "seeds": args.seeds}
    torch.set_num_threads(1)
    with threadpool_limits(1):
        for kind, run in (("ablations", ablations), ("rules", rule_rows), ("scale", scale)):
            if not getattr(args, kind):
                continue
            rows = run(args)
            if args.quick:
                print(pd.DataFrame(rows).to_string())
            else:
                record(f"table_sampler_{kind}", rows, meta)


if __name__ == "__main__":
    main()
