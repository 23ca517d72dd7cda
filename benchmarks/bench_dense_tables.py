"""Tables whose target depends on 4 to 6 columns at once: `_dense_tables.py`.

Boosting and a decision tree, of scikit-learn, learn the target from synthetic records, and from
the real ones they were made of; their accuracy on other real records is reported. `TableSampler` is
told the target, or not. With `--environments`, so are AIM and MST of OpenDP (see `peers/`)::

    python benchmarks/bench_dense_tables.py --environments environments --cache fits

Neighbours differ by adding or removing a record, delta is 1e-5, and as many records are made as
were given. A seed makes the table and the noise. `--choose` has the seeds on which settings are
chosen, and writes nothing.
"""

import argparse
import itertools
import time

import numpy as np
import pandas as pd
import torch
from _common import record
from _dense_tables import CHOOSE, NAMES, REPORT, dense_table
from _peers import Fits, budget, fit, versions, whole_codes
from _tables import DELTA, summarize
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.tree import DecisionTreeClassifier
from threadpoolctl import threadpool_limits

from sklearn_dpgen.tables import TableSampler

LEARNERS = {
    "boosting": HistGradientBoostingClassifier(random_state=0),
    "tree": DecisionTreeClassifier(min_samples_leaf=5, random_state=0),
}
OURS = ("TableSampler", "TableSampler, without a target")
PEERS = ("OpenDP MST", "OpenDP AIM, target named", "OpenDP AIM")
REAL = "real"


def made_here(model, dense, epsilon, seed):
    """Return records of this package."""
    sampler = TableSampler(
        epsilon,
        DELTA,
        schema=dense.schema,
        target=dense.target if model == OURS[0] else None,
        neighbours="add_or_remove",
        random_state=seed,
    )
    return sampler.fit(dense.train).sample(len(dense.train), random_state=seed)


def made_by_peer(case, dense, fits, args):
    """Return records of a peer, or None, and what came of the fit."""
    # Labels are their own codes.
    sizes = {name: (len(column.labels), False) for name, column in dense.schema.items()}
    result = fits.result(case)
    if result is not None:
        return None if "failure" in result else whole(fits.made(case), sizes, case), result
    task = {"epsilon": case["epsilon"], "delta": DELTA, "seed": case["seed"]}
    task |= {"sizes": sizes, "target": dense.target}
    task |= budget(case["model"], len(sizes), case["epsilon"], DELTA)
    limits = {name: getattr(args, name) for name in ("environments", "limit", "memory")}
    made, result = fit(case["model"], dense.train, task, **limits)
    fits.keep(case, result, made)
    return None if made is None else whole(made, sizes, case), result


def whole(made, sizes, case):
    """Return the records of a peer without the nulls that it may make."""
    rng = np.random.default_rng(case["seed"])
    codes = {name: whole_codes(made[name], *size, rng) for name, size in sizes.items()}
    return pd.DataFrame(codes)


def accuracies(records, dense):
    """Return the accuracy on test records of classifiers that learned from others."""
    X, y = records.drop(columns=dense.target), records[dense.target]
    if y.nunique() == 1:
        found = (dense.test[dense.target] == y.iloc[0]).mean()
        return dict.fromkeys((f"accuracy {name}" for name in LEARNERS), float(found))
    tested = dense.test.drop(columns=dense.target)[list(X)], dense.test[dense.target]
    return {f"accuracy {name}": model.fit(X, y).score(*tested) for name, model in LEARNERS.items()}


def rows(args):
    """Yield a row for each table, model, epsilon and seed."""
    fits = Fits(args.cache) if args.cache else None
    seeds = (CHOOSE if args.choose else REPORT)[: args.seeds]
    for epsilon, seed, name in itertools.product(args.epsilons, seeds, args.tables):
        dense = dense_table(name, seed=seed)
        for model in args.models:
            case = {"table": name, "model": model, "epsilon": epsilon, "seed": seed}
            start = time.process_time()
            if model == REAL:
                made, seconds = dense.train, 0.0
            elif model in OURS:
                made = made_here(model, dense, epsilon, seed)
                seconds = time.process_time() - start
            else:
                made, result = made_by_peer(case, dense, fits, args)
                if made is None:
                    yield case | result
                    continue
                seconds = result["cpu seconds"]
            yield case | accuracies(made, dense) | {"cpu seconds": seconds}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--environments", help="folder of the environments of the peers")
    parser.add_argument("--cache", help="folder of fits of the peers")
    known = (REAL, *OURS, *PEERS)
    parser.add_argument("--models", nargs="+", default=known, choices=known)
    parser.add_argument("--tables", nargs="+", default=NAMES, choices=NAMES)
    parser.add_argument("--epsilons", nargs="+", type=float, default=[1.0, 10.0])
    parser.add_argument("--seeds", type=int, default=len(REPORT))
    parser.add_argument("--choose", action="store_true", help="seeds for settings, no results")
    parser.add_argument("--limit", type=int, default=900, help="CPU seconds of a fit of a peer")
    parser.add_argument("--memory", type=float, default=8.0, help="GiB of a fit of a peer")
    args = parser.parse_args()
    if args.environments is None:
        args.models = [model for model in args.models if model not in PEERS]
    elif args.cache is None:
        parser.error("--cache is needed for the fits of peers")
    found = versions("opendp", args.environments) if args.environments else None
    torch.set_num_threads(1)
    scored, failures = [], []
    with threadpool_limits(1):
        for row in rows(args):
            print(row, flush=True)
            (failures if "failure" in row else scored).append(row)
    summary = summarize(scored, ("table", "model", "epsilon"))
    if args.choose:
        print(pd.DataFrame(summary).to_string())
        return
    meta = {"delta": DELTA, "neighbours": "add_or_remove", "peers": found, "failures": failures}
    record("dense_tables", summary, meta)


if __name__ == "__main__":
    main()
