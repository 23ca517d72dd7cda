"""Tables learned from local answers, beside honest baselines, on the protocol of `bench_tables.py`.

Each person randomizes a record before it leaves. `LocalTableSampler` and the least squares learn
from the same joint answers, by JointRandomizedResponse; "target always" asks everybody about the
target. The split budget is TabularMechanism's, randomized response with an equal share for each
column: its response tables are inverted (`_local_baselines.py`), or EntropicDeconvGAN learns from
it. "least squares of pairs" estimates all pairs that were asked without bias, and lets a population
fit them by their precisions. The last is there at the same epsilon with
central privacy (delta 1e-5, replacing a record): somebody sees the records. Estimators have their
defaults; bins of numbers are the public ones, but for the central sampler, "equal bins", which are
the default of the mechanism, and "found bins", by the answers of the first fifth of the people,
whose records do nothing else.

"large" is simulated, from a known law: a TableSampler without noise is fitted to all of
Adult in the public bins, and 1,430,000 records are drawn. Of its test part 50,000 count, and models
make 100,000 records.

`--growth` fits the first 1e4 to 1e6 training records of "large", and compares categories, so that
bins play no part: total variation of the population's law from the training records, mean over
columns, pairs, and the pairs that were asked together; root mean square error of a cell of these.
"expected" is the mean of `expected_variation` over the same pairs, each at most 1; "formula" the
error of a cell by sqrt(pairs / (n s (s - 1) / 2)) 2 exp(epsilon / 2) / (exp(epsilon) - 1), of
pairs that are asked and s asked columns. Then seconds and peaks of memory of 1e6 people, in
processes of their own that read records in chunks: "large", and 100 columns of 10 categories.

`--mechanism` and `--sampler` are options as JSON, for ablations.
"""

import argparse
import functools
import itertools
import json
import math
import subprocess
import sys
import tempfile
import time
from functools import partial
from pathlib import Path

import joblib
import numpy as np
import pandas as pd
import torch
from _common import record
from _local_baselines import draw, independent_columns, naive_bayes, pair_population
from _tables import DELTA, TABLES, TWO, Table, scores, split, summarize
from bench_tables import guarantee
from threadpoolctl import threadpool_limits

from sklearn_dpgen.deconvolution import EntropicDeconvGAN
from sklearn_dpgen.mechanisms import JointRandomizedResponse, TabularMechanism
from sklearn_dpgen.nn import Training
from sklearn_dpgen.schema import Categorical, Schema
from sklearn_dpgen.tables import LocalTableSampler, TableSampler

N_LARGE, N_TEST, N_MADE = 1_430_000, 50_000, 100_000


@functools.cache
def adult_law():
    """Return the table of Adult, and a sampler that was fitted to it without noise."""
    table = TABLES["adult"]()
    options = {"schema": table.schema, "n_bins": table.bins, "random_state": 0}
    return table, TableSampler(np.inf, DELTA, **options).fit(table.frame)


@functools.cache
def large():
    table, sampler = adult_law()
    frame = sampler.sample(N_LARGE, random_state=0)
    return Table(frame, table.schema, table.bins, table.target, table.is_positive)


EVERY = {name: TABLES[name] for name in TWO} | {"large": large}


def joint_response(table, epsilon, seed, options, **defaults):
    options = (
        {"schema": table.schema, "n_bins": table.bins, "random_state": seed} | defaults | options
    )
    return JointRandomizedResponse(epsilon, **options).fit()


def always(table):
    return {"always": [table.target]}


def nothing(table):
    return {}


def local_sampler(train, table, epsilon, seed, n, args, asked=nothing):
    mechanism = joint_response(table, epsilon, seed, args.mechanism, **asked(table))
    sampler = LocalTableSampler(mechanism, **{"random_state": seed} | args.sampler)
    return drawn(sampler, mechanism.transform(train), seed, n)


def found_bins(train, table, epsilon, seed, n, args):
    first, rest = train[: len(train) // 5], train[len(train) // 5 :]
    asked = joint_response(table, epsilon, seed, {}, n_bins=64, n_asked=1)
    finder = LocalTableSampler(asked, **{"random_state": seed} | args.sampler)
    bins = finder.fit(asked.transform(first)).find_bins()
    return local_sampler(rest, table, epsilon, seed, n, args, asked=lambda table: {"n_bins": bins})


def least_squares(train, table, epsilon, seed, n, args, asked=nothing):
    mechanism = joint_response(table, epsilon, seed, args.mechanism, **asked(table))
    law = pair_population(mechanism, mechanism.transform(train), seed)
    return pd.concat(draw(law, mechanism.encoder_, n, seed)), mechanism.privacy_


def split_budget(table, epsilon, seed):
    options = {"schema": table.schema, "n_bins": table.bins, "random_state": seed}
    return TabularMechanism(epsilon, **options).fit()


def inverted(train, table, epsilon, seed, n, args, learn):
    mechanism = split_budget(table, epsilon, seed)
    law = learn(mechanism, mechanism.transform(train), table)
    return pd.concat(draw(law, mechanism.encoder_, n, seed)), mechanism.privacy_


def split_network(train, table, epsilon, seed, n, args):
    mechanism = split_budget(table, epsilon, seed)
    gan = EntropicDeconvGAN(mechanism, random_state=seed)
    return drawn(gan, mechanism.transform(train), seed, n)


def joint_network(train, table, epsilon, seed, n, args):
    mechanism = joint_response(table, epsilon, seed, args.mechanism, **always(table))
    gan = EntropicDeconvGAN(mechanism, training=Training(activation="silu"), random_state=seed)
    return drawn(gan, mechanism.transform(train), seed, n)


def central(train, table, epsilon, seed, n, args):
    options = {"schema": table.schema, "target": table.target, "random_state": seed}
    return drawn(TableSampler(epsilon, DELTA, **options), train, seed, n)


def drawn(sampler, records, seed, n):
    """Return n synthetic records, and the guarantee."""
    sampler.fit(records)
    return sampler.sample(n, random_state=seed), sampler.privacy_


MODELS = {
    "real": lambda train, table, epsilon, seed, n, args: (train[:n], None),
    "LocalTableSampler, target always": partial(local_sampler, asked=always),
    "LocalTableSampler": local_sampler,
    "LocalTableSampler, found bins": found_bins,
    "LocalTableSampler, equal bins": partial(local_sampler, asked=lambda table: {"n_bins": "auto"}),
    "least squares of pairs, target always": partial(least_squares, asked=always),
    "least squares of pairs": least_squares,
    "least squares of pairs, equal bins": partial(
        least_squares, asked=lambda t: {"n_bins": "auto"}
    ),
    "split budget, naive Bayes": partial(
        inverted, learn=lambda mechanism, Y, table: naive_bayes(mechanism, Y, table.target)
    ),
    "split budget, independent columns": partial(
        inverted, learn=lambda mechanism, Y, table: independent_columns(mechanism, Y)
    ),
    "EntropicDeconvGAN, split budget": split_network,
    "EntropicDeconvGAN, joint answers": joint_network,
    "TableSampler": central,
}


def cases(args):
    """Yield models, their budgets and seeds."""
    for model in args.models:
        if model == "real":
            yield model, np.inf, 0
        else:
            for epsilon, seed in itertools.product(args.epsilons, range(args.seeds)):
                yield model, epsilon, seed


def compare(name, args):
    """Return a row for each case of one table."""
    table = EVERY[name]()
    train, test = split(table.frame, validate=args.validate)
    train, test = train[: args.rows], test[:N_TEST]
    n = min(len(train), N_MADE)
    rows = []
    for model, epsilon, seed in cases(args):
        start = time.process_time()
        made, report = MODELS[model](train, table, epsilon, seed, n, args)
        seconds = time.process_time() - start
        key = {"table": name, "model": model, "epsilon": epsilon} | guarantee(model, report)
        found = scores(made[list(train.columns)], test, table)
        rows.append(key | {"seed": seed} | found | {"cpu seconds": seconds})
        print(rows[-1], flush=True)
    return rows


def growth(args):
    """Return a row for each number of people, budget, seed, and way to ask."""
    table = large()
    train, _ = split(table.frame)
    sizes = [n for n in (10_000, 30_000, 100_000, 300_000, 1_000_000) if n <= (args.rows or n)]
    rows = []
    for asked, epsilon, n, seed in itertools.product(
        ([], [table.target]), (1.0, 4.0), sizes, range(args.seeds)
    ):
        mechanism = joint_response(table, epsilon, seed, args.mechanism, always=asked)
        answers = mechanism.transform(train[:n])
        start = time.process_time()
        sampler = LocalTableSampler(mechanism, **{"random_state": seed} | args.sampler)
        sampler.fit(answers)
        seconds = time.process_time() - start
        key = {"always": ", ".join(asked), "epsilon": epsilon, "n": n, "seed": seed}
        found = errors(sampler, train[:n]) | expected(mechanism, n)
        rows.append(key | found | {"cpu seconds": seconds})
        print(rows[-1], flush=True)
    return summarize(rows, ("always", "epsilon", "n"))


def errors(sampler, records):
    """Return how far the categories of a sampler's law are from those of records."""
    mechanism, columns = sampler.mechanism_, sampler.encoder_.columns_
    codes = [column.codes(records[name]) for name, column in columns.items()]
    sizes = [column.domain.n_features for column in columns.values()]
    singles = [(i,) for i in range(len(sizes))]
    pairs = list(itertools.combinations(range(len(sizes)), 2))
    errors = []
    rows = np.split(sampler.law_.probabilities, np.cumsum(sizes)[:-1], axis=1)
    for part in singles + pairs:
        first, *others = (rows[i] for i in part)
        shares = first.T @ others[0] / len(first) if others else first.mean(axis=0)
        cells = np.ravel_multi_index([codes[i] for i in part], shares.shape)
        counts = np.bincount(cells, minlength=shares.size).reshape(shares.shape)
        errors.append(shares - counts / len(records))
    variation = np.array([abs(error).sum() / 2 for error in errors])
    asked = asked_together(mechanism, pairs)
    cells = np.concatenate([errors[len(sizes) + i].ravel() for i in asked])
    return {
        "1-way TV": variation[: len(sizes)].mean(),
        "2-way TV": variation[len(sizes) :].mean(),
        "asked 2-way TV": variation[len(sizes) :][asked].mean(),
        "cell error": np.sqrt((cells**2).mean()),
    }


def expected(mechanism, n):
    """Return what was to be expected, by the mechanism and by the formula for a cell."""
    variation = mechanism.expected_variation(n).to_numpy()
    pairs = list(itertools.combinations(range(len(variation)), 2))
    pairs = [pairs[i] for i in asked_together(mechanism, pairs)]
    capped = np.minimum(variation, 1.0)
    n_pairs, epsilon = mechanism.n_asked_ * (mechanism.n_asked_ - 1) / 2, mechanism.epsilon
    return {
        "expected 1-way": np.diag(capped).mean(),
        "expected 2-way": np.mean([capped[pair] for pair in pairs]),
        "formula": math.sqrt(len(pairs) / (n * n_pairs)) / math.sinh(epsilon / 2),
    }


def asked_together(mechanism, pairs):
    """Return the positions of the pairs of columns that some people are asked both of."""
    variation = mechanism.expected_variation(1).to_numpy()
    return [i for i, pair in enumerate(pairs) if np.isfinite(variation[pair])]


def wide(n, chunk):
    """Yield chunks of 100 columns of 10 categories, which have a hidden number in common."""
    rng = np.random.default_rng(0)
    for start in range(0, n, chunk):
        hidden = rng.standard_normal((min(chunk, n - start), 1), dtype=np.float32)
        values = hidden + rng.standard_normal((len(hidden), 100), dtype=np.float32)
        codes = np.clip(np.floor(2 * values + 5), 0, 9).astype(np.int8)
        yield pd.DataFrame(codes, columns=[f"x{i}" for i in range(100)])


def scale_case(name, path, n, epsilon, chunk=50_000):
    """Return seconds and peaks of memory of this process, which reads records in chunks."""
    torch.set_num_threads(1)
    if name == "large":
        law, schema, bins = joblib.load(path)
        starts = range(0, n, chunk)
        chunks = (law.sample(min(chunk, n - i), random_state=i) for i in starts)
    else:
        schema = Schema({f"x{i}": Categorical(range(10)) for i in range(100)})
        bins, chunks = {}, wide(n, chunk)
    mechanism = JointRandomizedResponse(epsilon, schema=schema, n_bins=bins, random_state=0).fit()
    made = 0.0

    def timed(chunks):
        nonlocal made
        while True:
            start = time.process_time()
            records = next(chunks, None)
            made += time.process_time() - start
            if records is None:
                return
            yield records

    peaks, start = [peak()], time.process_time()
    answers = mechanism.transform(timed(chunks))
    asking, start = time.process_time() - start - made, time.process_time()
    peaks.append(peak())
    sampler = LocalTableSampler(mechanism, random_state=0).fit(answers)
    return {
        "table": name,
        "people": n,
        "columns": len(schema),
        "epsilon": epsilon,
        "transform, s": asking,
        "fit, s": time.process_time() - start,
        "steps": sampler.n_iter_,
        "start, MiB": peaks[0],
        "transform, MiB": peaks[1],
        "fit, MiB": peak(),
    }


def peak():
    """Return the peak of memory since this program started: `getrusage` has its parent's in it."""
    status = Path("/proc/self/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0]) / 1024


def scale(args):
    """Return a row for each table, from a process of its own."""
    rows = []
    table, sampler = adult_law()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "law.joblib"
        joblib.dump((sampler, table.schema, table.bins), path)
        for name in ("large", "wide"):
            case = [name, str(path), str(args.rows or 1_000_000), "4"]
            command = [sys.executable, __file__, "--one", *case]
            found = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
            rows.append(json.loads(found.splitlines()[-1]))
            print(rows[-1], flush=True)
    return rows


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--models", nargs="+", default=list(MODELS), choices=list(MODELS))
    parser.add_argument("--tables", nargs="+", default=list(EVERY), choices=list(EVERY))
    parser.add_argument("--epsilons", nargs="+", type=float, default=[1.0, 2.0, 4.0, 6.0, 10.0])
    parser.add_argument("--seeds", type=int, help="default 5, and 3 with --growth")
    parser.add_argument("--growth", action="store_true")
    parser.add_argument("--one", nargs=4, help=argparse.SUPPRESS)
    parser.add_argument("--mechanism", type=json.loads, default={}, help="JSON; no results")
    parser.add_argument("--sampler", type=json.loads, default={}, help="JSON; no results")
    parser.add_argument("--rows", type=int, help="training records, at most; no results")
    parser.add_argument("--name", help="of the results")
    parser.add_argument("--validate", action="store_true", help="on training records, no results")
    args = parser.parse_args()
    if args.one:
        name, path, n, epsilon = args.one
        print(json.dumps(scale_case(name, path, int(n), float(epsilon))))
        return
    args.seeds = args.seeds or (3 if args.growth else 5)
    args.name = args.name or ("local_tables_growth" if args.growth else "local_tables")
    torch.set_num_threads(1)
    with threadpool_limits(1):
        if args.growth:
            rows = growth(args) + scale(args)
        else:
            rows = [row for name in args.tables for row in compare(name, args)]
            rows = summarize(rows, ("table", "model", "guarantee", "epsilon", "delta"))
    if args.validate or args.rows or args.mechanism or args.sampler:
        print(pd.DataFrame(rows).to_string())
    else:
        record(args.name, rows, vars(args) | {"test share": 0.3})


if __name__ == "__main__":
    main()
