"""Sliced private measures of tables: Adult and RAND health, epsilon 1, delta 1e-5.

All pairs of columns, neighbours by adding or removing a record; the label is a column like the
others. Numbers are in 32 equal bins, or in the `public` ones of the other benchmarks of tables.
Beside it real training records, and the same through the bins, without privacy.

Distances of one-way and two-way marginals to held-out records (total variation, mean over columns
and pairs), and the AUC on them of classifiers that were trained on as many synthetic records as
there are private ones. 70/30 split; mean and standard deviation over seeds; seconds of one core, of
fit and sample. Settings were chosen on a split of the training records.

`--speed` measures a step of the population instead, and the share of it that the two products of
matrices take.
"""

import argparse
import itertools
import time

import numpy as np
import pandas as pd
import torch
from _common import record, timed
from _tables import DELTA, TABLES, measures, split, summarize

from sklearn_dpgen.evolution import SlicedMeasureSampler
from sklearn_dpgen.evolution._population import Population, SliceLoss
from sklearn_dpgen.evolution._slices import expand_slices
from sklearn_dpgen.preprocessing import TabularEncoder

BINS = 32


def run(name, args):
    """Return a row for each budget and seed of one table."""
    table = TABLES[name]()
    _, schema, public, *_ = table
    train, test = split(table.frame, validate=args.validate)
    rows = []

    def add(model, epsilon, seed, make):
        start = time.process_time()
        made = make()
        seconds = time.process_time() - start
        key = {"table": name, "model": model, "labels": "none", "epsilon": epsilon, "seed": seed}
        rows.append(key | measures(made, test, table) | {"cpu seconds": seconds})
        print(rows[-1], flush=True)

    def binned(bins):
        encoder = TabularEncoder(schema, bins=bins).fit(train)
        return encoder.inverse_transform(encoder.transform(train), rng=np.random.default_rng(0))

    def drawn(epsilon, bins, seed):
        options = {"n_bins": bins, "neighbours": args.neighbours, "random_state": seed}
        sampler = SlicedMeasureSampler(epsilon, DELTA, schema=schema, **options).fit(train)
        return sampler.sample(len(train), random_state=seed)

    add("real", np.inf, 0, lambda: train)
    for words, bins in (("", BINS), (", public bins", public)):
        add(f"real{words or ', binned'}", np.inf, 0, lambda bins=bins: binned(bins))
        for epsilon, seed in itertools.product(args.epsilons, range(args.seeds)):
            add(
                f"all pairs{words}",
                epsilon,
                seed,
                lambda epsilon=epsilon, bins=bins, seed=seed: drawn(epsilon, bins, seed),
            )
    return rows


def speed(sizes, n_rows=2000, steps=20):
    """Return the milliseconds of a step with all pairs, and of its products of matrices alone."""
    slices = expand_slices("pairs", [str(i) for i in range(len(sizes))])
    tables = [np.full([sizes[i] for i in part], 20.0 ** -len(part)) for part in slices]
    loss = SliceLoss(sizes, slices, tables, [1.0] * len(slices), torch.device("cpu"))
    generator = torch.Generator().manual_seed(0)
    population = Population(tables[: len(sizes)], n_rows, generator, torch.device("cpu"))
    P = population().detach()
    gram = P @ P.T
    whole = timed(lambda: population.fit(loss, max_iter=steps, learning_rate=0.1), repeat=3)
    products = timed(lambda: (P @ P.T, gram @ P), repeat=20)
    return {
        "columns": len(sizes),
        "categories": sum(sizes),
        "rows": n_rows,
        "ms a step": 1e3 * whole / steps,
        "ms of products": 1e3 * products,
        "share": products * steps / whole,
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--epsilons", nargs="+", type=float, default=[1.0])
    parser.add_argument("--neighbours", default="add_or_remove")
    parser.add_argument("--tables", nargs="+", default=list(TABLES), choices=list(TABLES))
    parser.add_argument("--validate", action="store_true", help="on training records, no results")
    parser.add_argument("--speed", action="store_true")
    args = parser.parse_args()
    torch.set_num_threads(1)
    if args.speed:
        record("sliced_measures_speed", [speed([20] * n) for n in (14, 50)])
        return
    rows = summarize([row for name in args.tables for row in run(name, args)])
    if args.validate:
        print(pd.DataFrame(rows).to_string())
    else:
        record("sliced_measures", rows, vars(args) | {"delta": DELTA, "test share": 0.3})


if __name__ == "__main__":
    main()
