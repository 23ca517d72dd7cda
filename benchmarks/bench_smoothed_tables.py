"""Tables from noisy records: Adult and RAND health, epsilon 1, 10 and infinity, delta 1e-5.

Smoothed sliced Wasserstein generators beside what the same budget buys in counts: independent
columns, drawn from noisy one-way counts, of each class or of all records. `public` and `private`
labels are the income, or more than two visits to a physician; with `none` the label is a column
like the others. All columns are cut into public bins. `drawn` is the estimator with its defaults,
whose network draws categories; `mlp` has soft blocks of them.

Distances of one-way and two-way marginals to held-out records (total variation, mean over columns
and pairs), and the AUC on them of classifiers that were trained on as many synthetic records as
there are private ones. 70/30 split; mean and standard deviation over seeds. Settings were chosen
on a split of the training records.
"""

import argparse
import itertools
import time

import numpy as np
import pandas as pd
import torch
from _common import record
from _tables import DELTA, TABLES, TWO, independent, measures, split, summarize

from sklearn_dpgen.nn import Training
from sklearn_dpgen.preprocessing import TabularEncoder
from sklearn_dpgen.schema import Schema
from sklearn_dpgen.smoothed import NoisyRelease, SmoothedSlicedWassersteinGenerator

EPSILONS = (1.0, 10.0, np.inf)
# Model, labels, budgets.
CASES = (
    ("drawn", "public", EPSILONS),
    ("marginals", "public", EPSILONS),
    ("mlp", "public", (1.0, 10.0)),
    ("drawn", "private", (1.0, 10.0)),
    ("marginals", "private", (1.0, 10.0)),
    ("drawn", "none", (1.0, 10.0)),
    ("marginals", "none", (1.0, 10.0)),
)


def generated(model, labels, epsilon, X, y, domain, seed, args):
    """Return hard one-hot records and labels, as many as were given."""
    generator = SmoothedSlicedWassersteinGenerator(
        epsilon,
        DELTA,
        domain=domain,
        labels=None if labels == "none" else labels,
        classes=None if labels == "none" else [0, 1],
        release=NoisyRelease(
            # A record with a private label has a slot in each class, and takes as long as two.
            n_epochs=args.epochs / 2 if labels == "private" else args.epochs,
            n_projections=args.projections,
        ),
        training=Training(max_iter=args.steps),
        generator="auto" if model == "drawn" else "mlp",
        random_state=seed,
    )
    generator.fit(X, None if labels == "none" else y)
    if labels == "none":
        return generator.sample(len(X), random_state=seed), y
    codes = generator.sample_labels(len(X), random_state=seed)
    return generator.sample(len(X), y=codes, random_state=seed), codes


def synthetic(model, labels, epsilon, frame, table, seed, args):
    """Return a synthetic table of the length of a private one."""
    _, schema, bins, target, is_positive = table
    y = is_positive(frame[target]).astype(int)
    # The label says what a column of two categories holds, and leaves it out.
    is_label = labels != "none" and target not in bins
    columns = {name: column for name, column in schema.items() if not (is_label and name == target)}
    encoder = TabularEncoder(
        Schema(columns), n_bins={k: v for k, v in bins.items() if k in columns}
    )
    X = encoder.fit_transform(frame[list(columns)])
    if model == "marginals":
        S, codes = independent(labels, epsilon, X, y, encoder.blocks_, seed)
    else:
        S, codes = generated(model, labels, epsilon, X, y, encoder.domain_, seed, args)
    made = encoder.inverse_transform(S, rng=np.random.default_rng(seed))
    if is_label:
        made[target] = np.where(codes == 1, ">50K", "<=50K")
    return made[list(frame.columns)]


def run(name, args):
    """Return a row for each case and seed of one table."""
    table = TABLES[name]()
    train, test = split(table.frame, validate=args.validate)
    key = {"table": name, "model": "real", "labels": "", "epsilon": np.inf}
    rows = [key | {"seed": 0} | measures(train, test, table) | {"cpu seconds": 0.0}]
    print(rows[-1], flush=True)
    for seed, (model, labels, epsilons) in itertools.product(range(args.seeds), CASES):
        for epsilon in epsilons:
            start = time.process_time()
            made = synthetic(model, labels, epsilon, train, table, seed, args)
            seconds = time.process_time() - start
            key = {"table": name, "model": model, "labels": labels, "epsilon": epsilon}
            found = measures(made, test, table)
            rows.append(key | {"seed": seed} | found | {"cpu seconds": seconds})
            print(rows[-1], flush=True)
    return rows


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--epochs", type=float, default=20)
    parser.add_argument("--projections", type=int, default=500)
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--tables", nargs="+", default=TWO, choices=list(TABLES))
    parser.add_argument("--validate", action="store_true", help="on training records, no results")
    args = parser.parse_args()
    torch.set_num_threads(1)
    rows = summarize([row for name in args.tables for row in run(name, args)])
    if args.validate:
        print(pd.DataFrame(rows).to_string())
    else:
        record("smoothed_tables", rows, vars(args) | {"delta": DELTA, "test share": 0.3})


if __name__ == "__main__":
    main()
