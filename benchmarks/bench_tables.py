"""All estimators that make tables, on one protocol: Adult and RAND health, delta 1e-5.

Each learns from the training part of a 70/30 split and makes as many records; the label (income,
or more than two visits to a physician) is a column like the others. On the test part: AUC and
accuracy of classifiers that learned from the synthetic records, gradient boosting with its defaults
and declared categories, and logistic regression on encoded columns; mean total variation of columns
and of pairs, numbers in 20 equal bins; sliced W1 over 200 directions, of one-hot labels and of
numbers scaled to [0, 1]. Seconds are of one core, of fit and sample. Mean and standard deviation
over seeds.

Guarantees differ in kind, and the rows say which: central, with neighbours by replacing a record or
by adding or removing one, or local, for each record by itself. `real` are the training records,
`independent` columns drawn from noisy one-way counts.

Estimators have their defaults. Public bins of numbers are given to those that need them or do much
better in them: `independent`, PrivateMixtureSampler, SmoothedSlicedWassersteinGenerator and
EntropicDeconvGAN. The last learns from records that TabularMechanism privatized by randomized
response: epsilon is for a record, in equal shares for its columns.

PrivateSignedMeasureSampler is left out: it takes no schema, and needs public points that are near
to any record, which for records of ten columns or more nobody has. The other estimators fit
predictors and encoders, and make no records.

`--options` is for ablations of SlicedMeasureSampler; "public" as its "n_bins" are the public bins.
"""

import argparse
import itertools
import json
import time

import numpy as np
import pandas as pd
import torch
from _common import record
from _tables import DELTA, TABLES, TWO, independent, scores, split, summarize
from threadpoolctl import threadpool_limits

from sklearn_dpgen.deconvolution import EntropicDeconvGAN
from sklearn_dpgen.evolution import PrivateEvolutionSampler
from sklearn_dpgen.mechanisms import TabularMechanism
from sklearn_dpgen.preprocessing import TabularEncoder
from sklearn_dpgen.sliced import DPSlicedWassersteinGenerator
from sklearn_dpgen.smoothed import SmoothedSlicedWassersteinGenerator
from sklearn_dpgen.tables import PrivateMixtureSampler, SlicedMeasureSampler

RELATIONS = ("replace_one", "add_or_remove")
SLICED = "SlicedMeasureSampler"


def sliced_measures(train, table, epsilon, seed, options):
    if options.get("n_bins") == "public":
        options = options | {"n_bins": table.bins}
    if isinstance(options.get("slices"), list):
        options = options | {"slices": [tuple(columns) for columns in options["slices"]]}
    fixed = {"schema": table.schema, "target": table.target, "random_state": seed}
    options = fixed | options
    return drawn(SlicedMeasureSampler(epsilon, DELTA, **options), train, seed)


def mixture(train, table, epsilon, seed):
    options = {"schema": table.schema, "bins": table.bins, "random_state": seed}
    return drawn(PrivateMixtureSampler(epsilon, DELTA, **options), train, seed)


def evolution(train, table, epsilon, seed):
    options = {"schema": table.schema, "random_state": seed}
    return drawn(PrivateEvolutionSampler(epsilon, DELTA, **options), train, seed)


def sliced_gradients(train, table, epsilon, seed):
    options = {"schema": table.schema, "random_state": seed}
    return drawn(DPSlicedWassersteinGenerator(epsilon, DELTA, **options), train, seed)


def smoothed(train, table, epsilon, seed):
    encoder = TabularEncoder(table.schema, bins=table.bins).fit(train)
    options = {"domain": encoder.domain_, "random_state": seed}
    generator = SmoothedSlicedWassersteinGenerator(epsilon, DELTA, **options)
    made, report = drawn(generator, encoder.transform(train), seed)
    return encoder.inverse_transform(made, rng=np.random.default_rng(seed)), report


def deconvolution(train, table, epsilon, seed):
    options = {"schema": table.schema, "bins": table.bins, "random_state": seed}
    mechanism = TabularMechanism(epsilon, **options).fit(train)
    gan = EntropicDeconvGAN(mechanism, random_state=seed)
    return drawn(gan, mechanism.transform(train), seed)


def drawn(sampler, records, seed):
    """Return as many synthetic records as there are, and the guarantee."""
    sampler.fit(records)
    return sampler.sample(len(records), random_state=seed), sampler.privacy_


def columns_alone(train, table, epsilon, seed):
    encoder = TabularEncoder(table.schema, bins=table.bins).fit(train)
    made, _ = independent("none", epsilon, encoder.transform(train), None, encoder.blocks_, seed)
    return encoder.inverse_transform(made, rng=np.random.default_rng(seed)), None


MODELS = {
    "real": lambda train, table, epsilon, seed: (train, None),
    "independent": columns_alone,
    SLICED: sliced_measures,
    "PrivateMixtureSampler": mixture,
    "PrivateEvolutionSampler": evolution,
    "SmoothedSlicedWassersteinGenerator": smoothed,
    "DPSlicedWassersteinGenerator": sliced_gradients,
    "EntropicDeconvGAN": deconvolution,
}


def guarantee(model, report):
    """Return the kind of the guarantee, and its delta."""
    if model == "real":
        return {"guarantee": "none", "delta": 0.0}
    if model == "independent":
        return {"guarantee": "central, replace one record", "delta": DELTA}
    relation = report.neighbouring.partition(";")[0]
    kind = "local" if relation.startswith("local model:") else f"central, {relation}"
    return {"guarantee": kind, "delta": report.delta}


def cases(args):
    """Return models, their budgets, seeds and further arguments."""
    for model, epsilon in itertools.product(args.models, args.epsilons):
        if model == "real":
            if epsilon == args.epsilons[0]:
                yield model, np.inf, 0, {}
            continue
        further = [{}]
        if model == SLICED:
            further = [{"options": args.options | {"neighbours": n}} for n in args.neighbours]
        for seed, arguments in itertools.product(range(args.seeds), further):
            yield model, epsilon, seed, arguments


def run(name, args):
    """Return a row for each case of one table."""
    table = TABLES[name]()
    train, test = split(table.frame, validate=args.validate)
    train = train[: args.rows]
    rows = []
    for model, epsilon, seed, arguments in cases(args):
        start = time.process_time()
        made, report = MODELS[model](train, table, epsilon, seed, **arguments)
        seconds = time.process_time() - start
        key = {"table": name, "model": model, "epsilon": epsilon} | guarantee(model, report)
        found = scores(made[list(train.columns)], test, table)
        rows.append(key | {"seed": seed} | found | {"cpu seconds": seconds})
        print(rows[-1], flush=True)
    return rows


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--models", nargs="+", default=list(MODELS), choices=list(MODELS))
    parser.add_argument("--tables", nargs="+", default=TWO, choices=list(TABLES))
    parser.add_argument("--epsilons", nargs="+", type=float, default=[1.0])
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--neighbours", nargs="+", default=list(RELATIONS), choices=RELATIONS)
    parser.add_argument("--options", type=json.loads, default={}, help=f"JSON, of {SLICED}")
    parser.add_argument("--rows", type=int, help="training records, at most; no results")
    parser.add_argument("--name", default="tables", help="of the results")
    parser.add_argument("--validate", action="store_true", help="on training records, no results")
    args = parser.parse_args()
    torch.set_num_threads(1)
    with threadpool_limits(1):
        rows = [row for name in args.tables for row in run(name, args)]
    rows = summarize(rows, ("table", "model", "guarantee", "epsilon", "delta"))
    if args.validate or args.rows:
        print(pd.DataFrame(rows).to_string())
    else:
        record(args.name, rows, vars(args) | {"test share": 0.3})


if __name__ == "__main__":
    main()
