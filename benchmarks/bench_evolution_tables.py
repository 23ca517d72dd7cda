"""Private evolution of tables: Adult and RAND health, epsilon 1 and 10, delta 1e-5.

`records` is private evolution as it is: records of the schema, varied and voted for. `marginals` is
the trivial baseline: independent columns from noisy one-way counts, of each class or of all
records. Both pay for everything out of one budget. `private` labels are the income, or more than
two visits to a physician, each of which evolves by itself; with `none` the label is a column like
the others.

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

from sklearn_dpgen.evolution import PrivateEvolutionSampler
from sklearn_dpgen.preprocessing import TabularEncoder
from sklearn_dpgen.schema import Schema

EPSILONS = (1.0, 10.0)
MODELS = ("marginals", "records")
LABELS = ("none", "private")


def drawn(labels, epsilon, frame, y, schema, seed):
    """Return a frame of records and labels, as many as were given."""
    options = {"schema": schema, "random_state": seed}
    if labels == "private":
        options["classes"] = [0, 1]
    sampler = PrivateEvolutionSampler(epsilon, DELTA, labels="private", **options)
    sampler.fit(frame, None if labels == "none" else y)
    codes = y
    if labels != "none":
        codes = sampler.sample_labels(len(frame), random_state=seed)
    wanted = None if labels == "none" else codes
    return sampler.sample(len(frame), y=wanted, random_state=seed), codes


def synthetic(model, labels, epsilon, frame, table, seed):
    """Return a synthetic table of the length of a private one."""
    _, schema, bins, target, is_positive = table
    y = is_positive(frame[target]).astype(int)
    # The label says what a column of two categories holds, and leaves it out.
    is_label = labels != "none" and target not in bins
    columns = {name: column for name, column in schema.items() if not (is_label and name == target)}
    bins = {name: edges for name, edges in bins.items() if name in columns}
    rest, kept = frame[list(columns)], Schema(columns)
    if model == "marginals":
        encoder = TabularEncoder(kept, n_bins=bins)
        X = encoder.fit_transform(rest)
        S, codes = independent(labels, epsilon, X, y, encoder.blocks_, seed)
        made = encoder.inverse_transform(S, rng=np.random.default_rng(seed))
    else:
        made, codes = drawn(labels, epsilon, rest, y, kept, seed)
    if is_label:
        made[target] = np.where(codes == 1, ">50K", "<=50K")
    return made[list(frame.columns)]


def run(name, args):
    """Return a row for each case and seed of one table."""
    table = TABLES[name]()
    train, test = split(table.frame, validate=args.validate)
    key = {"table": name, "model": "real", "labels": "", "epsilon": np.inf}
    rows = [key | {"seed": 0} | measures(train, test, table) | {"cpu seconds": 0.0}]
    for case in itertools.product(EPSILONS, args.models, LABELS, range(args.seeds)):
        epsilon, model, labels, seed = case
        start = time.process_time()
        made = synthetic(model, labels, epsilon, train, table, seed)
        seconds = time.process_time() - start
        key = {"table": name, "model": model, "labels": labels, "epsilon": epsilon}
        found = measures(made, test, table)
        rows.append(key | {"seed": seed} | found | {"cpu seconds": seconds})
        print(rows[-1], flush=True)
    return rows


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--tables", nargs="+", default=TWO, choices=list(TABLES))
    parser.add_argument("--models", nargs="+", default=list(MODELS), choices=list(MODELS))
    parser.add_argument("--validate", action="store_true", help="on training records, no results")
    args = parser.parse_args()
    torch.set_num_threads(1)
    rows = summarize([row for name in args.tables for row in run(name, args)])
    if args.validate:
        print(pd.DataFrame(rows).to_string())
    else:
        record("evolution_tables", rows, vars(args) | {"delta": DELTA, "test share": 0.3})


if __name__ == "__main__":
    main()
