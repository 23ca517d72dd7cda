"""Fair classification beside others: accuracy against the ratio of the groups' rates.

Parts: ``peers`` (fairlearn, not private, and private learners of others), ``gradients`` (the
penalty of this package), ``barycentres`` (synthetic rows, and maps to the barycentre), all on Adult
by sex and by race; ``small`` (all of these on three small tables); ``noise`` (other private
learners without a penalty); ``settings`` (what the peers' settings were chosen by); ``write``
(tables of what is in the cache, and the figure). What is done is kept in ``--cache``, and not done
again. 70 percent of the rows are for training; nothing is chosen on the others.
"""

import argparse
import itertools
import json
import time
import warnings
from functools import partial
from importlib.metadata import version
from pathlib import Path

import _fair_peers as peers
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import torch
from _common import record
from _fair_summaries import FAIRLEARN, distances, summarize
from _fair_tables import TASKS, chance_ratio, measure, split, with_target
from _linear_trials import TRIALS
from scipy.special import expit
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline

from sklearn_dpgen.nn import Training
from sklearn_dpgen.predictors import BarycenterClassifier
from sklearn_dpgen.preprocessing import TabularEncoder
from sklearn_dpgen.schema import Categorical, Schema
from sklearn_dpgen.sliced import ClippedGradient, DPSlicedWassersteinFairClassifier
from sklearn_dpgen.tables import SyntheticDataClassifier, TableSampler

IMAGES = Path(__file__).parents[1] / "doc" / "images"
EPSILONS = (0.5, 1.0, 3.0, np.inf)
ALPHAS = (0.0, 0.2, 0.4, 0.6, 0.75, 0.9)
RATIOS = (0.0, 0.5, 0.65, 0.8, 0.9, 1.0)
WEIGHTS = (0.0, 1.0, 2.5, 5.0, 10.0, 20.0)
# Of epsilon, for the synthetic rows: with large groups, and with small ones.
SHARE, SHARE_OF_SMALL = 0.95, 0.7
ADULT = ("Adult by sex", "Adult by race")
SMALL = ("fair by occupation", "wage by race", "hmda by race")


# Ours


def gradients(data, epsilon, seed, group_weights="size"):
    """Yield the gradient penalty, for several weights."""
    for alpha in ALPHAS:
        model = DPSlicedWassersteinFairClassifier(
            alpha,
            epsilon=epsilon,
            training=Training(hidden_layer_sizes=(), learning_rate=0.05),
            gradient=ClippedGradient(group_weights=group_weights),
            classes=[0, 1],
            delta=data.task.delta,
            random_state=seed,
        ).fit(data.X, data.y, sensitive_features=data.a)
        scores = model.predict_proba(data.X_test)[:, 1]
        yield alpha, scores, scores > 0.5


def barycentres(data, epsilon, seed, share=SHARE):
    """Yield boosted trees of synthetic rows, mapped to the barycentre, for several least ratios."""
    frame, schema = with_target(data)
    sampler = TableSampler(schema=schema, target="label", random_state=seed)
    model = BarycenterClassifier(
        SyntheticDataClassifier(sampler, random_state=seed),
        epsilon=epsilon,
        delta=data.task.delta,
        epsilon_share=share,
        groups=data.groups,
        random_state=seed,
    ).fit(data.frame, frame["label"], sensitive_features=data.a)
    return _dial(model, data, sensitive_features=data.a_test)


def blind_barycentres(data, epsilon, seed):
    """Yield the same where the group is not known at prediction, all of it from synthetic rows."""
    frame, schema = with_target(data)
    schema = Schema({**schema, "group": Categorical(data.groups.tolist())})
    sampler = TableSampler(
        epsilon, data.task.delta, schema=schema, target=["label", "group"], random_state=seed
    )
    rows = sampler.fit(frame.assign(group=data.a)).sample(100_000, random_state=seed)
    model = BarycenterClassifier(
        _trees(data, seed), group_estimator=_trees(data, seed), epsilon=np.inf, random_state=seed
    ).fit(rows[list(data.frame)], rows["label"], sensitive_features=rows["group"])
    return _dial(model, data)


def public_barycentres(data, epsilon, seed):
    """Yield the same of the records themselves, without noise."""
    model = BarycenterClassifier(_trees(data, seed), epsilon=np.inf, random_state=seed)
    labels = np.where(data.y == 1, "yes", "no")
    model.fit(data.frame, labels, sensitive_features=data.a)
    return _dial(model, data, sensitive_features=data.a_test)


def _trees(data, seed):
    encoder = TabularEncoder(data.task.schema)
    return make_pipeline(encoder, HistGradientBoostingClassifier(random_state=seed))


def _dial(model, data, **asked):
    for ratio in RATIOS:
        # How far to go is post-processing of the same counts: one fit is all that is paid for.
        model.set_params(min_ratio=ratio)
        model.strength_ = model._strength(model.maps_)
        scores = model.predict_proba(data.test_frame, **asked)[:, 1]
        yield ratio, scores, model.predict(data.test_frame, **asked) == "yes"


def synthetic(data, epsilon, seed):
    """Yield learners of synthetic rows, for the whole budget."""
    frame, schema = with_target(data)
    for name, estimator in (
        ("default", None),
        ("boosting", HistGradientBoostingClassifier(random_state=seed)),
        ("logistic", LogisticRegression(max_iter=2000)),
    ):
        sampler = TableSampler(
            epsilon, data.task.delta, schema=schema, target="label", random_state=seed
        )
        model = SyntheticDataClassifier(sampler, estimator, random_state=seed)
        scores = model.fit(data.frame, frame["label"]).predict_proba(data.test_frame)[:, 1]
        yield name, scores, scores > 0.5


# What is run


def methods(part, environments):
    """Return the methods of a part, each with the budgets that it is run with."""
    if part == "gradients":
        equal = partial(gradients, group_weights="equal")
        return {
            "gradient penalty": (gradients, EPSILONS),
            "gradient penalty, equal weights": (equal, EPSILONS),
        }
    if part == "barycentres":
        return {
            "synthetic rows, barycentre": (barycentres, EPSILONS),
            "synthetic rows, barycentre, more for counts": (
                partial(barycentres, share=SHARE_OF_SMALL),
                (0.5, 1.0, 3.0),
            ),
            "synthetic rows, barycentre, groups unknown": (blind_barycentres, (1.0,)),
            "boosting, barycentre": (public_barycentres, (np.inf,)),
        }

    def diffprivlib(data, epsilon, seed):
        return peers.diffprivlib_scores(data, epsilon, seed, environments)

    def fermi(data, epsilon, seed):
        return peers.dp_fermi(data, epsilon, seed, WEIGHTS, **peers.FERMI)

    opacus = partial(peers.opacus_scores, **peers.OPACUS)
    public = {
        "logistic": partial(peers.plain, "logistic"),
        "boosting": partial(peers.plain, "boosting"),
        "logistic, thresholds by fairlearn": partial(peers.threshold_optimizer, "logistic"),
        "boosting, thresholds by fairlearn": partial(peers.threshold_optimizer, "boosting"),
        "logistic, reduction by fairlearn": partial(peers.exponentiated_gradient, "logistic"),
    }
    private = {
        "diffprivlib": partial(peers.postprocessed, diffprivlib),
        "opacus": partial(peers.postprocessed, opacus),
        "DP-FERMI": fermi,
    }
    found = {name: (method, (np.inf,)) for name, method in public.items()}
    return found | {name: (method, EPSILONS[:3]) for name, method in private.items()}


def run(methods, tables, seeds, epsilons, cache):
    """Do what is not in the cache."""
    tasks = {}
    every = itertools.product(tables, seeds, methods.items())
    for table, seed, (name, (method, budgets)) in every:
        for epsilon in [epsilon for epsilon in budgets if epsilon in epsilons]:
            path = cache / f"{table}, {name}, {epsilon:g}, {seed}.json"
            if path.exists():
                continue
            if table not in tasks:
                tasks[table] = TASKS[table]()
            data = split(tasks[table], seed)
            rows = []
            start = time.process_time()
            for setting, scores, decided in method(data, epsilon, seed):
                key = {"table": table, "method": name, "epsilon": epsilon, "setting": setting}
                rows.append(key | {"seed": seed} | measure(data, scores, np.asarray(decided, int)))
            path.write_text(json.dumps(rows))
            print(f"{path.stem}: {time.process_time() - start:.1f} s")
            print("   ", *(f"{r['accuracy']:.4f}@{r['DI']:.2f}" for r in rows), flush=True)


def settings(environments):
    """Return grids of the peers' settings, for simulated records."""

    def diffprivlib(data, epsilon, seed):
        for C in (0.001, 0.01, 0.05, 0.2, 1.0):
            scores = peers.diffprivlib_scores(data, epsilon, seed, environments, C)[1]
            yield f"C {C:g}", scores, scores > 0.5

    def opacus(data, epsilon, seed):
        for epochs, rate, clip in itertools.product((5, 20), (1.0, 4.0, 16.0), (0.3, 1.0)):
            changed = {"epochs": epochs, "learning_rate": rate, "clip": clip}
            scores = peers.opacus_scores(data, epsilon, seed, **peers.OPACUS | changed)[1]
            yield f"{epochs} epochs, rate {rate:g}, clip {clip:g}", scores, scores > 0.5

    def fermi(data, epsilon, seed):
        for rate, clip in itertools.product((8.0, 32.0), (1.0, 5.0)):
            changed = peers.FERMI | {"learning_rate": rate, "ascent_clip": clip}
            for weight, *found in peers.dp_fermi(data, epsilon, seed, (0.0, 5.0), **changed):
                yield f"rate {rate:g}, clip {clip:g}, weight {weight:g}", *found

    found = {"diffprivlib": diffprivlib, "opacus": opacus, "DP-FERMI": fermi}
    return {f"{name}, settings": (method, (1.0,)) for name, method in found.items()}


def trials():
    """Return private learners without a penalty, for epsilon = 1."""

    def decided(trial, data, epsilon, seed):
        for setting, scores in trial(data, epsilon, seed):
            yield setting, expit(scores), scores > 0

    found = {name: partial(decided, trial) for name, trial in TRIALS.items()}
    found["synthetic rows"] = synthetic
    return {name: (method, (1.0,)) for name, method in found.items()}


def write(name, cache, tables, seeds, without=(), only=None):
    paths = sorted(cache.glob("*.json"))
    rows = [row for path in paths for row in json.loads(path.read_text())]
    rows = [row for row in rows if row["table"] in tables and row["method"] not in without]
    rows = [row for row in rows if only is None or row["method"] in only]
    summary = summarize(rows)
    meta = {"test share": 0.3, "seeds": seeds, "delta": "1e-5 for Adult, else 0.1 / n"}
    meta["versions of peers"] = {p: version(p) for p in ("fairlearn", "opacus")}
    for table in tables:
        task = TASKS[table]()
        every = [split(task, seed) for seed in range(seeds)]
        draws = np.random.default_rng(0)
        meta[table] = {
            "sizes of training groups": pd.Series(every[0].a).value_counts().to_dict(),
            "constant predictor": [max(d.y_test.mean(), 1 - d.y_test.mean()) for d in every],
            "mean DI of decisions by chance": chance_ratio(every[0], task.y.mean(), draws),
        }
    if name in {"fair_frontier", "fair_small"}:
        meta["below fairlearn"] = [row for table in tables for row in distances(summary, table)]
        meta["most below fairlearn by seed"] = _by_seed(rows, tables)
    record(name, summary, meta)
    return summary


def _by_seed(rows, tables):
    found = {}
    for table, seed in itertools.product(tables, sorted({row["seed"] for row in rows})):
        part = [row for row in rows if row["seed"] == seed and row["table"] == table]
        for row in distances(part, table):
            if row["method"] not in FAIRLEARN:
                key = f"{table}, {row['method']}, {row['epsilon']:g}"
                found.setdefault(key, []).append(round(row["most below logistic"], 4))
    return found


def plot(rows):
    figure, axes = plt.subplots(1, 2, figsize=(12.5, 5.8), constrained_layout=True, sharey=True)
    for axis, table in zip(axes, ADULT, strict=True):
        for method, (label, style) in STYLES.items():
            epsilon = np.inf if method in FAIRLEARN else 1.0
            key = {"table": table, "method": method, "epsilon": epsilon}
            found = [row for row in rows if key.items() <= row.items()]
            found = [row for row in found if row["setting"] != "none"]
            x, y, spread = (
                [row[name] for row in found] for name in ("DI", "accuracy", "sd of accuracy")
            )
            axis.errorbar(x, y, yerr=spread, label=label, elinewidth=0.8, **style)
        axis.set(xlabel="ratio of the groups' rates (1: parity)", title=f"{table}, ε = 1")
        axis.set(ylim=(0.74, 0.88), xlim=(0, 1.03))
        axis.grid(alpha=0.3)
    axes[0].set(ylabel="accuracy")
    handles, labels = axes[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=4, fontsize=9)
    figure.savefig(IMAGES / "fair_frontier.png", dpi=100)


STYLES = {
    "boosting": ("trees", {"color": "0.55", "marker": "*", "ls": "", "ms": 10}),
    "boosting, thresholds by fairlearn": (
        "trees, fairlearn's thresholds",
        {"color": "0.55", "marker": ".", "ls": "--"},
    ),
    "logistic": ("logistic", {"color": "k", "marker": "*", "ls": "", "ms": 10}),
    "logistic, thresholds by fairlearn": (
        "logistic, fairlearn's thresholds",
        {"color": "k", "marker": ".", "ls": ":"},
    ),
    "logistic, reduction by fairlearn": (
        "logistic, fairlearn's reduction",
        {"color": "k", "marker": "x", "ls": "--"},
    ),
    "synthetic rows, barycentre": (
        "private: synthetic rows, barycentre",
        {"color": "C3", "marker": "o", "ls": "-", "lw": 2},
    ),
    "synthetic rows, barycentre, more for counts": (
        "private: the same, .3 of ε for counts",
        {"color": "C6", "marker": "o", "ls": "-", "ms": 4},
    ),
    "synthetic rows, barycentre, groups unknown": (
        "private: the first, groups unknown",
        {"color": "C3", "marker": "o", "ls": "--", "ms": 4},
    ),
    "gradient penalty": ("private: gradient penalty", {"color": "C0", "marker": "s", "ms": 4}),
    "opacus": ("private: opacus, decoupled", {"color": "C1", "marker": "^", "ms": 5}),
    "diffprivlib": ("private: diffprivlib, decoupled", {"color": "C2", "marker": "v", "ms": 5}),
    "DP-FERMI": ("private: DP-FERMI", {"color": "C4", "marker": "d", "ms": 5}),
}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parts = ("peers", "gradients", "barycentres", "small", "noise", "settings", "write")
    parser.add_argument("--part", required=True, choices=parts)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--epsilons", type=float, nargs="+", default=EPSILONS)
    parser.add_argument("--environments", default="environments")
    parser.add_argument("--cache", type=Path, default=Path("fair_cache"))
    args = parser.parse_args()
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    args.cache.mkdir(parents=True, exist_ok=True)
    seeds = range(args.seeds)
    if args.part == "write":
        of_noise = [*trials()]
        plot(write("fair_frontier", args.cache, ADULT, args.seeds, of_noise))
        write("fair_small", args.cache, SMALL, args.seeds)
        write("fair_noise", args.cache, ADULT[:1], args.seeds, only=of_noise)
        write("fair_settings", args.cache, ("simulated",), 1)
    elif args.part == "small":
        for part in ("barycentres", "peers", "gradients"):
            run(methods(part, args.environments), SMALL, seeds, args.epsilons, args.cache)
    elif args.part == "noise":
        run(trials(), ADULT[:1], seeds, args.epsilons, args.cache)
    elif args.part == "settings":
        run(settings(args.environments), ("simulated",), (0,), EPSILONS, args.cache)
    else:
        run(methods(args.part, args.environments), ADULT, seeds, args.epsilons, args.cache)


if __name__ == "__main__":
    main()
