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

``--starts choose`` and ``--starts report`` compare the sources of the first population instead, on
the numeric columns of the tables of the registry, scaled from their public bounds to [0, 1]: W1
between 1000 of the private records and the result. ``report`` has what the automatic start takes,
and 2000 rows of `TableSampler` and of `MomentSampler`, whose W1 has the error of these draws.
"""

import argparse
import itertools
import math
import time
import warnings

import numpy as np
import ot
import pandas as pd
import torch
from _common import record
from _registry import CHOOSE, REGISTRY, REPORT
from _tables import DELTA, TABLES, TWO, independent, measures, split, summarize

from sklearn_dpgen.accounting import gaussian_sigma
from sklearn_dpgen.domains import Box
from sklearn_dpgen.evolution import PrivateEvolutionSampler
from sklearn_dpgen.moments import MomentSampler
from sklearn_dpgen.preprocessing import TabularEncoder
from sklearn_dpgen.schema import Numeric, Schema
from sklearn_dpgen.tables import TableSampler

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


# First columns that are taken of a table, and budgets.
WIDTHS, BUDGETS = (1, 2, 3, 4, 6, 9, 14), (0.3, 1.0, 3.0, 10.0)
N_COMPARED, N_DRAWN = 1000, 2000


def numeric_columns(table):
    """Return the numeric columns of more than 20 values, scaled to [0, 1]."""
    columns = {
        name: column
        for name, column in table.schema.items()
        if isinstance(column, Numeric) and not column.nullable and table.frame[name].nunique() > 20
    }
    low, high = (np.array([getattr(c, end) for c in columns.values()]) for end in ("low", "high"))
    return (table.frame[list(columns)].to_numpy(dtype=float) - low) / (high - low)


def distance(X, points, weights=None):
    """Return W1 between records and weighted points."""
    weights = np.full(len(points), 1 / len(points)) if weights is None else weights
    points, weights = points[weights > 0], weights[weights > 0]
    mass = np.full(len(X), 1 / len(X))
    costs = ot.dist(X, points, metric="euclidean")
    return float(ot.emd2(mass, weights / weights.sum(), costs, numItermax=10**9))


def start_errors(X, epsilon, methods, seeds):
    """Return the mean W1 of each method, and its standard deviation over seeds."""
    n, d = X.shape
    found = {}
    for seed in range(seeds):
        compared = X[np.random.default_rng(seed).permutation(n)[:N_COMPARED]]
        options = {"delta": 0.1 / n, "random_state": seed}
        for method in methods:
            if method == "TableSampler":
                schema = Schema({f"x{j}": Numeric(0, 1) for j in range(d)})
                frame = pd.DataFrame(X, columns=list(schema))
                sampler = TableSampler(epsilon, schema=schema, **options).fit(frame)
                result = (sampler.sample(N_DRAWN, random_state=seed).to_numpy(),)
            elif method == "MomentSampler":
                sampler = MomentSampler(epsilon, domain=Box(0, 1, n_features=d), **options).fit(X)
                result = (sampler.sample(N_DRAWN, random_state=seed),)
            else:
                domain = Box(0, 1, n_features=d)
                sampler = PrivateEvolutionSampler(epsilon, domain=domain, start=method, **options)
                sampler.fit(X)
                result = sampler.candidates_[0], sampler.weights_[0]
            found.setdefault(method, []).append(distance(compared, *result))
    return {name: (float(np.mean(v)), float(np.std(v, ddof=1))) for name, v in found.items()}


def automatic_start(n, d, epsilon):
    """Return what start="auto" takes."""
    sampler = PrivateEvolutionSampler(epsilon, 0.1 / n, domain=Box(0, 1, n_features=d))
    return "moments" if "first population" in sampler.plan(n, d).split else "public"


def compare_starts(role, seeds):
    """Return a row for each table, number of columns and budget."""
    rows = []
    is_report = role == "report"
    for name in REPORT if is_report else CHOOSE:
        X = numeric_columns(REGISTRY[name]())
        for n in sorted({min(len(X), 1000), min(len(X), 5000 if is_report else 20_000)}):
            methods = ("public", "moments")
            # The slower methods for the larger number of records.
            if is_report and n > 1000:
                methods += ("TableSampler", "MomentSampler")
            for d in (d for d in WIDTHS if d <= X.shape[1]):
                for epsilon in BUDGETS if role == "choose" else (1.0,):
                    Z = X[np.random.default_rng(0).permutation(len(X))[:n], :d]
                    signal = n / gaussian_sigma(epsilon, 0.1 / n, math.sqrt(2))
                    row = {"table": name, "d": d, "n": n, "epsilon": epsilon, "N": signal}
                    for method, (mean, spread) in start_errors(Z, epsilon, methods, seeds).items():
                        row |= {method: mean, f"{method}, deviation": spread}
                    if is_report:
                        row["auto"] = row[automatic_start(n, d, epsilon)]
                    rows.append(row)
                    print(row, flush=True)
    return rows


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--tables", nargs="+", default=TWO, choices=list(TABLES))
    parser.add_argument("--models", nargs="+", default=list(MODELS), choices=list(MODELS))
    parser.add_argument("--validate", action="store_true", help="on training records, no results")
    parser.add_argument("--starts", choices=["choose", "report"], help="sources of populations")
    args = parser.parse_args()
    torch.set_num_threads(1)
    if args.starts:
        warnings.filterwarnings("ignore")
        rows = compare_starts(args.starts, args.seeds)
        record(f"evolution_starts_{args.starts}", rows, vars(args) | {"delta": "0.1/n"})
        return
    rows = summarize([row for name in args.tables for row in run(name, args)])
    if args.validate:
        print(pd.DataFrame(rows).to_string())
    else:
        record("evolution_tables", rows, vars(args) | {"delta": DELTA, "test share": 0.3})


if __name__ == "__main__":
    main()
