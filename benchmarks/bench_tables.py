"""All estimators that make tables, on one protocol: Adult and RAND health, delta 1e-5.

Each learns from the training part of a 70/30 split and makes as many records; the label (income,
or more than two visits to a physician) is a column like the others. They are compared with the test
part:

- AUC and accuracy of classifiers that learned from the synthetic records, gradient boosting with
  its defaults and declared categories, and logistic regression on encoded columns;
- mean total variation of columns, of pairs, and its largest, and of triples, 2000 of them where
  there are more, numbers in 20 equal bins; NIST's k-marginal score of pairs, of at most 1000; mean
  difference of correlations;
- sliced W1 over 200 directions, of one-hot labels and of numbers scaled to [0, 1];
- of numbers, in standard deviations of the test part: the difference of means, its largest, W1,
  how far standard deviations are apart, and quantiles at 1 and 99 %;
- of labels below 1 %: how far their shares are off, the natural logarithm of their ratio;
- of a logistic regression of the label on up to 12 columns: the shares of coefficients of the same
  sign and of the same conclusion, and the mean overlap of intervals, nominal .95 and without the
  noise.

Mean and standard deviation over seeds, and each seed of three of them. Each fit has a process of
its own: seconds are of one core, of fit and sample, and the peak of memory is of the process, so
that that of `real` is what the libraries and the table take.

The record is written after each table. A table that is in it is not done again if the settings are
the same; if they are not, the record is another's and is left alone. After a change of the code,
remove it.

Guarantees differ in kind, and the rows say which: central, with neighbours by replacing a record or
by adding or removing one, or local, for each record by itself. `real` are the training records,
`independent` columns drawn from noisy one-way counts, and `pairs with the target` columns that are
independent given the target, drawn from noisy counts of each with it. "without a target" is
TableSampler that is not told which column will be predicted.

Estimators have their defaults. Public bins of numbers are given to those that need them or do much
better in them: `independent`, `pairs with the target`,
SmoothedSlicedWassersteinGenerator and EntropicDeconvGAN. The last learns from records that
TabularMechanism privatized by randomized response: epsilon is for a record, in equal shares for its
columns.

PrivateSignedMeasureSampler is left out: it takes no schema, and needs public points that are near
to any record, which for records of ten columns or more nobody has. The other estimators fit
predictors and encoders, and make no records.

`--options` is for ablations of TableSampler; "public" as its "n_bins" are the public bins.
"""

import argparse
import itertools
import json
import resource
import time
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from _common import record
from _tables import DELTA, TABLES, TWO, independent, scores, split, summarize
from threadpoolctl import threadpool_limits

from sklearn_dpgen.accounting import calibrate_noise_multiplier
from sklearn_dpgen.deconvolution import EntropicDeconvGAN
from sklearn_dpgen.evolution import PrivateEvolutionSampler
from sklearn_dpgen.mechanisms import TabularMechanism
from sklearn_dpgen.preprocessing import TabularEncoder
from sklearn_dpgen.sliced import DPSlicedWassersteinGenerator
from sklearn_dpgen.smoothed import SmoothedSlicedWassersteinGenerator
from sklearn_dpgen.tables import TableSampler

RELATIONS = ("replace_one", "add_or_remove")
SLICED = "TableSampler"
NO_TARGET = "TableSampler, without a target"
WITH_TARGET = "pairs with the target"
# The models that have a parameter for the relation.
OF_EITHER = (SLICED, NO_TARGET, WITH_TARGET)


def table_sampler(train, table, epsilon, seed, options):
    if options.get("n_bins") == "public":
        options = options | {"n_bins": table.bins}
    if isinstance(options.get("marginals"), list):
        options = options | {"marginals": [tuple(columns) for columns in options["marginals"]]}
    fixed = {"schema": table.schema, "target": table.target, "random_state": seed}
    options = fixed | options
    return drawn(TableSampler(epsilon, DELTA, **options), train, seed)


def without_target(train, table, epsilon, seed, options):
    return table_sampler(train, table, epsilon, seed, options | {"target": None})


def evolution(train, table, epsilon, seed):
    options = {"schema": table.schema, "random_state": seed}
    return drawn(PrivateEvolutionSampler(epsilon, DELTA, **options), train, seed)


def sliced_gradients(train, table, epsilon, seed):
    options = {"schema": table.schema, "random_state": seed}
    return drawn(DPSlicedWassersteinGenerator(epsilon, DELTA, **options), train, seed)


def smoothed(train, table, epsilon, seed):
    encoder = TabularEncoder(table.schema, n_bins=table.bins).fit(train)
    options = {"domain": encoder.domain_, "random_state": seed}
    generator = SmoothedSlicedWassersteinGenerator(epsilon, DELTA, **options)
    made, report = drawn(generator, encoder.transform(train), seed)
    return encoder.inverse_transform(made, rng=np.random.default_rng(seed)), report


def deconvolution(train, table, epsilon, seed):
    options = {"schema": table.schema, "n_bins": table.bins, "random_state": seed}
    mechanism = TabularMechanism(epsilon, **options).fit(train)
    gan = EntropicDeconvGAN(mechanism, random_state=seed)
    return drawn(gan, mechanism.transform(train), seed)


def drawn(sampler, records, seed):
    """Return as many synthetic records as there are, and the guarantee."""
    sampler.fit(records)
    return sampler.sample(len(records), random_state=seed), sampler.privacy_


def given_target(train, table, epsilon, seed, options):
    """Return columns that are independent given the target: noisy counts of each pair with it."""
    encoder = TabularEncoder(table.schema, n_bins=table.bins).fit(train)
    codes = {name: column.codes(train[name]) for name, column in encoder.columns_.items()}
    sizes = {name: column.n_categories for name, column in encoder.columns_.items()}
    target = codes.pop(table.target)
    n_target = sizes[table.target]
    # A record is one count of each table, so that its change is of the root of their number.
    change = np.sqrt(len(codes) * (2 if options["neighbours"] == "replace_one" else 1))
    scale = change * calibrate_noise_multiplier(epsilon, DELTA)
    rng = np.random.default_rng(seed)
    noisy = {}
    for name, values in codes.items():
        counts = np.zeros((n_target, sizes[name]))
        np.add.at(counts, (target, values), 1.0)
        noisy[name] = counts + scale * rng.standard_normal(counts.shape)
    # Each table has the shares of the target: their mean has the least noise.
    shares = np.mean([counts.sum(axis=1) for counts in noisy.values()], axis=0).clip(1, None)
    made = {table.target: rng.choice(n_target, size=len(train), p=shares / shares.sum())}
    for name, counts in noisy.items():
        rows = counts.clip(1e-9, None)
        rows /= rows.sum(axis=1, keepdims=True)
        made[name] = np.empty(len(train), dtype=int)
        for value in range(n_target):
            members = made[table.target] == value
            made[name][members] = rng.choice(sizes[name], size=members.sum(), p=rows[value])
    codes = np.column_stack([made[name] for name in encoder.columns_])
    return encoder.decode_codes(codes, rng=rng), None


def columns_alone(train, table, epsilon, seed):
    encoder = TabularEncoder(table.schema, n_bins=table.bins).fit(train)
    made, _ = independent("none", epsilon, encoder.transform(train), None, encoder.blocks_, seed)
    return encoder.inverse_transform(made, rng=np.random.default_rng(seed)), None


MODELS = {
    "real": lambda train, table, epsilon, seed: (train, None),
    "independent": columns_alone,
    WITH_TARGET: given_target,
    SLICED: table_sampler,
    NO_TARGET: without_target,
    "PrivateEvolutionSampler": evolution,
    "SmoothedSlicedWassersteinGenerator": smoothed,
    "DPSlicedWassersteinGenerator": sliced_gradients,
    "EntropicDeconvGAN": deconvolution,
}


def guarantee(model, report, options=None):
    """Return the kind of the guarantee, and its delta."""
    if model == "real":
        return {"guarantee": "none", "delta": 0.0}
    if report is None:  # of a baseline of this file
        added = (options or {}).get("neighbours") == "add_or_remove"
        relation = "add or remove" if added else "replace"
        return {"guarantee": f"central, {relation} one record", "delta": DELTA}
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
        if model in OF_EITHER:
            further = [{"options": args.options | {"neighbours": n}} for n in args.neighbours]
        for seed, arguments in itertools.product(range(args.seeds), further):
            yield model, epsilon, seed, arguments


def fit(name, case, args):
    """Return synthetic records, the guarantee and the costs of one case, in a process of its own.

    A server forks it, not this process, whose peak it would start from.
    """
    context = get_context("forkserver")
    context.set_forkserver_preload(["sklearn.ensemble", "sklearn_dpgen.deconvolution"])
    with ProcessPoolExecutor(1, mp_context=context) as process:
        return process.submit(_fit, name, case, args).result()


def _fit(name, case, args):
    model, epsilon, seed, arguments = case
    torch.set_num_threads(1)
    table = TABLES[name]()
    train, _ = split(table.frame, validate=args.validate)
    train = train[: args.rows]
    with threadpool_limits(1):
        start = time.process_time()
        made, report = MODELS[model](train, table, epsilon, seed, **arguments)
        seconds = time.process_time() - start
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    costs = {"cpu seconds": seconds, "peak MB": peak}
    promise = guarantee(model, report, arguments.get("options"))
    return made[list(train.columns)], promise, costs


def run(name, args):
    """Return a row for each case of one table."""
    table = TABLES[name]()
    _, test = split(table.frame, validate=args.validate)
    rows = []
    for case in cases(args):
        model, epsilon, seed, _ = case
        made, promise, costs = fit(name, case, args)
        key = {"table": name, "model": model, "epsilon": epsilon} | promise
        rows.append(key | {"seed": seed} | scores(made, test, table) | costs)
        print(rows[-1], flush=True)
    return summarize(rows, ("table", "model", "guarantee", "epsilon", "delta"))


def recorded(name, settings):
    """Return the rows of a record of the same settings, none if there is no record."""
    path = Path(__file__).parent / "results" / f"{name}.json"
    if not path.exists():
        return []
    content = json.loads(path.read_text())
    if content["meta"] != json.loads(json.dumps(settings)):
        raise SystemExit(f"{path} is of other settings: take another --name, or remove it.")
    return content["rows"]


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
    is_trial = args.validate or args.rows
    told = ("models", "epsilons", "seeds", "neighbours", "options")
    settings = {name: getattr(args, name) for name in told} | {"test share": 0.3}
    rows = [] if is_trial else recorded(args.name, settings)
    with threadpool_limits(1):
        for name in args.tables:
            if any(row["table"] == name for row in rows):
                continue
            rows += run(name, args)
            if not is_trial:
                record(args.name, rows, settings)
    if is_trial:
        print(pd.DataFrame(rows).to_string())


if __name__ == "__main__":
    main()
