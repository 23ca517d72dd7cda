"""Domain adaptation with a private target: accuracy on nine tasks, over budgets, and on tables.

``_domains.py`` tells the tasks, and which are for choosing settings: those of `SETTINGS` were
chosen by ``--part choice``, on tasks that are not reported, with labels of their test rows. The
budget is that of the paper, epsilon 10 and delta 1e-5, unless said otherwise. All methods have the
same network, and those of ``_dann.py`` start from the same training on the source.

``--part tables`` has ten tables with four kinds of shift, of ``_shifted_tables.py``, at epsilon 1.
The rules of the default were chosen by ``--part tables_choice``, on seven other tables.

    python bench_adaptation.py --part tasks --seeds 3
"""

import argparse
import copy
import json
import time
import warnings
from itertools import product
from pathlib import Path

import numpy as np
import torch
from _common import record
from _dann import algorithm_2, dann, private_dann, recentered
from _domains import CHOICE_TASKS, PAPER_TASKS, REPORTED_TASKS, load_task
from _shifted_tables import CHOOSE, KINDS, REPORT, load_shifted

from sklearn_dpgen.smoothed import SmoothedSlicedWassersteinAdapter

IMAGES = Path(__file__).parents[1] / "doc" / "images"
RESULTS = Path(__file__).parent / "results"
EPSILON, DELTA = 10.0, 1e-5
# Of the curves, beside that.
EPSILONS = (1.0, 3.0)
# On tables.
TABLE_EPSILON = 1.0
ADAPTERS = ("default", "features", "projections", "moments")
CURVES = ("MNIST-digits", "background", "scale")
NETWORK = {
    "training__hidden_layer_sizes": (64,),
    "feature_dim": 16,
    "source_batch_size": 128,
    "source_iter": 400,
    "source_learning_rate": 0.005,
}
TRAINING = {"n_iter": 300, "batch_size": 128}
SETTINGS = {
    "source only": {},
    "default": {"training__max_iter": 300, "training__learning_rate": 0.003},
    "features": {
        "release__kind": "records",
        "release__n_epochs": 2.0,
        "adaptation_weight": 3.0,
        "training__max_iter": 300,
        "training__learning_rate": 0.003,
    },
    "projections": {
        "release__kind": "projections",
        "release__batch_size": 512,
        "release__shape_weight": 20.0,
        "adaptation_weight": 3.0,
        "training__max_iter": 300,
        "training__learning_rate": 0.01,
    },
    "moments": {
        "release__kind": "moments",
        "training__max_iter": 300,
        "training__learning_rate": 0.003,
        "adaptation_weight": 1.0,
    },
    "DANN": {"weight": 0.3, "learning_rate": 0.0005},
    "private DANN": {"weight": 0.03, "clip": 0.1, "learning_rate": 0.002},
    "two sides, not private": {"weight": 1.0, "learning_rate": 0.003},
    "Algorithm 2": {"weight": 0.03, "learning_rate": 0.003},
    "recentered": {"learning_rate": 0.003},
}
# What was tried for choosing, beside the settings above.
CHANGES = {
    "projections": [
        {"training__learning_rate": 0.03},
        {"adaptation_weight": 10.0},
        {"release__shape_weight": 5.0},
    ],
    "moments": [{"adaptation_weight": 0.3}, {"adaptation_weight": 3.0}],
    "DANN": [{"weight": 0.03}, {"learning_rate": 0.002}],
    "private DANN": [{"weight": 0.3}, {"learning_rate": 0.0005}],
    "two sides, not private": [{"weight": 0.1}],
    "Algorithm 2": [{"weight": 1.0}],
}

# Seen without noise too, on the tasks for choosing: what of it is not the noise's fault.
FREE = ("Algorithm 2", "projections", "moments")


def accuracy(method, task, start, epsilon, seed, **changes):
    """Return the accuracy of a method on the test rows of a task.

    Parameters
    ----------
    method : str
    task : Task
    start : torch.nn.Module
        Trained on the source alone.
    epsilon : float
    seed : int
    **changes
        Of the method's settings.

    Returns
    -------
    float
    """
    options = SETTINGS[method] | changes
    if method == "source only":
        with torch.no_grad():
            found = start(torch.as_tensor(task.test[0])).argmax(dim=1).numpy()
        return float((found == task.test[1]).mean())
    if method in ADAPTERS:
        if "release__batch_size" in options:
            n_target = len(task.target)
            options["release__batch_size"] = min(options["release__batch_size"], n_target)
        domain = None if method == "default" else task.domain
        adapter = adapted(task, domain, epsilon=epsilon, seed=seed, **options)
        return adapter.score(*task.test)
    options |= TRAINING | {"seed": seed}
    budget = {"epsilon": epsilon, "delta": DELTA}
    if method == "DANN":
        return dann(start, task, **options)
    if method == "private DANN":
        return private_dann(start, task, **options, **budget)
    if method == "recentered":
        return recentered(start, task, **options, **budget)
    if method == "two sides, not private":
        return algorithm_2(start, task, sides=2, **options, epsilon=np.inf, delta=DELTA)
    return algorithm_2(start, task, **options, **budget)


def adapted(task, domain, *, epsilon, seed, **options):
    """Return a fitted adapter."""
    X, y = task.source
    adapter = SmoothedSlicedWassersteinAdapter(
        epsilon=epsilon, delta=DELTA, domain=domain, random_state=seed
    )
    return adapter.set_params(**NETWORK, **options).fit(
        np.concatenate([X, task.target]),
        np.concatenate([y, np.full(len(task.target), -1)]),
        sample_domain=np.repeat([1, -2], [len(X), len(task.target)]),
    )


def source_network(task, seed):
    """Return the network of the source alone."""
    return adapted(task, None, epsilon=1.0, seed=seed, adaptation_weight=0.0).module_


def on_tables(names, methods, n_seeds):
    """Measure the default, and other methods, on tables with every kind of shift.

    Parameters
    ----------
    names, methods : sequence of str
        Methods beside the default.
    n_seeds : int

    Yields
    ------
    list of dict
        After every pass over the tables a row for each table, kind and method: mean accuracy in
        percent so far, its gain over the source alone and the lowest gain of a seed, in points, and
        by what the default adapted, for each seed.
    """
    found = {}
    # Ten tasks at a time, of all kinds.
    passes = [
        [(name, KINDS[(i + offset) % len(KINDS)]) for i, name in enumerate(names)]
        for offset in range(len(KINDS))
    ]
    options = {"epsilon": TABLE_EPSILON} | SETTINGS["default"]
    for seed, pairs in product(range(n_seeds), passes):
        for name, kind in pairs:
            task = load_shifted(name, kind, seed)
            adapter = adapted(task, None, seed=seed, **options)
            start = (
                source_network(task, seed) if adapter.shift_ == "map" else source_of(adapter, task)
            )
            alone = 100 * accuracy("source only", task, start, TABLE_EPSILON, seed)
            values = {"default": 100 * adapter.score(*task.test)}
            for method in methods:
                values[method] = 100 * accuracy(method, task, start, TABLE_EPSILON, seed)
            for method, value in values.items():
                shift = adapter.shift_ if method == "default" else "-"
                found.setdefault((name, kind, method), []).append((value, value - alone, shift))
            print(seed, name, kind, adapter.shift_, round(alone, 1), values, flush=True)
        rows = []
        for (name, kind, method), cases in found.items():
            accuracies, gains, shifts = zip(*cases, strict=True)
            rows.append(
                {
                    "table": name,
                    "kind": kind,
                    "method": method,
                    "epsilon": TABLE_EPSILON,
                    "seeds": len(cases),
                    "accuracy": round(float(np.mean(accuracies)), 1),
                    "gain": round(float(np.mean(gains)), 2),
                    "lowest gain": round(float(np.min(gains)), 2),
                    "adapted by": ", ".join(shifts),
                }
            )
        yield rows


def source_of(adapter, task):
    """Return the network of the source of an adapter without a map: its corrections undone."""
    module = copy.deepcopy(adapter.module_)
    prior = np.bincount(task.source[1]) / len(task.source[1])
    with torch.no_grad():
        module.classifier.bias -= torch.as_tensor(np.log(adapter.class_shares_ / prior))
    return module


def over_seeds(settings, n_seeds):
    """Measure settings, every seed in turn.

    Parameters
    ----------
    settings : list of (task, method, epsilon, changes)
    n_seeds : int

    Yields
    ------
    list of dict
        After every seed a row for each setting: mean, lowest and highest accuracy in percent so
        far, seconds of processor time a fit.
    """
    found = [[] for _ in settings]
    for seed in range(n_seeds):
        previous = None
        for (name, method, epsilon, changes), values in zip(settings, found, strict=True):
            if name != previous:
                previous, task = name, load_task(name)
                start = source_network(task, seed)
            begin = time.process_time()
            value = 100 * accuracy(method, task, start, epsilon, seed, **changes)
            values.append((value, time.process_time() - begin))
            words = (seed, name, method, epsilon, changes)
            print(*words, *(f"{v:.1f}" for v in values[-1]), flush=True)
        yield [
            {
                "task": name,
                "method": method,
                "change": ", ".join(f"{key} {v:g}" for key, v in changes.items()) or "-",
                "epsilon": epsilon if np.isfinite(epsilon) else "inf",
                "accuracy": round(float(np.mean([value for value, _ in values])), 1),
                "lowest": round(min(values)[0], 1),
                "highest": round(max(values)[0], 1),
                "seconds": round(float(np.median([seconds for _, seconds in values])), 1),
            }
            for (name, method, epsilon, changes), values in zip(settings, found, strict=True)
        ]


def choices():
    """Return every setting that was tried, on the tasks for choosing, and some without noise."""
    return [
        (name, method, epsilon, change)
        for name in CHOICE_TASKS
        for method in SETTINGS
        for epsilon in ((EPSILON, np.inf) if method in FREE else (EPSILON,))
        for change in ({}, *(CHANGES.get(method, []) if epsilon == EPSILON else []))
    ]


def comparisons(names=REPORTED_TASKS):
    """Return every task with every method at the budget of the paper."""
    return [(name, method, EPSILON, {}) for name in names for method in SETTINGS]


def defaults():
    """Return three tasks with the default, beside Algorithm 2 as printed."""
    methods = ("source only", "default", "Algorithm 2")
    return [(name, method, EPSILON, {}) for name in CURVES for method in methods]


def default_others():
    """Return the other six tasks with the default, beside Algorithm 2 as printed."""
    methods = ("source only", "default", "Algorithm 2")
    others = [name for name in REPORTED_TASKS if name not in CURVES]
    return [(name, method, EPSILON, {}) for name in others for method in methods]


def budgets():
    """Return every task, method and smaller budget of the curves."""
    methods = ("private DANN", "projections", "moments")
    return [
        (name, method, epsilon, {}) for name in CURVES for method in methods for epsilon in EPSILONS
    ]


def draw_curves(rows, path=IMAGES / "adaptation_budgets.png"):
    """Draw accuracy over epsilon for each task of the curves; the part tasks has the last point."""
    from matplotlib.figure import Figure

    methods = dict.fromkeys(row["method"] for row in rows)
    rows = rows + json.loads((RESULTS / "adaptation.json").read_text())["rows"]
    figure = Figure(figsize=(9.5, 3.2), layout="constrained")
    for axes, name in zip(figure.subplots(1, len(CURVES)), CURVES, strict=True):
        for i, method in enumerate(("source only", *methods)):
            own = [row for row in rows if (row["task"], row["method"]) == (name, method)]
            if method == "source only":
                axes.axhline(own[0]["accuracy"], color="0.6", ls=":", label=method)
                continue
            budgets, values, low, high = (
                [row[key] for row in own] for key in ("epsilon", "accuracy", "lowest", "highest")
            )
            axes.plot(budgets, values, "o-", ms=3, lw=1.2, color=f"C{i}", label=method)
            axes.fill_between(budgets, low, high, color=f"C{i}", alpha=0.2, lw=0)
        axes.set(xscale="log", xlabel=r"$\varepsilon$", title=name)
        axes.set_xticks(budgets, [f"{epsilon:g}" for epsilon in budgets])
        axes.minorticks_off()
    figure.axes[0].set_ylabel("accuracy on the target, percent")
    figure.axes[-1].legend(fontsize=7)
    figure.savefig(path, dpi=110)


TABLE_PARTS = {
    "tables": (REPORT, (), "adaptation_tables"),
    "tables_choice": (CHOOSE, ("moments", "recentered"), "adaptation_tables_choice"),
}
PARTS = {
    "choice": (choices, "adaptation_choice"),
    "tasks": (comparisons, "adaptation"),
    "budgets": (budgets, "adaptation_budgets"),
    "default": (defaults, "adaptation_default"),
    "default_others": (default_others, "adaptation_default_others"),
}


def main():
    """Run a part; print and store its table, and draw the curves."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--part", choices=[*PARTS, *TABLE_PARTS], default="tasks")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument(
        "--tasks", nargs="+", choices=PAPER_TASKS, help="of the paper, where their files are"
    )
    args = parser.parse_args()
    torch.set_num_threads(1)
    if args.part in TABLE_PARTS:
        # Of the noise on few records of wide tables, and of tables that are left as they are.
        warnings.simplefilter("ignore", UserWarning)
        names, methods, file = TABLE_PARTS[args.part]
        for rows in on_tables(names, methods, args.seeds):
            record(file, rows, meta={"delta": DELTA})
        return
    settings, name = PARTS[args.part]
    settings = settings()
    if args.tasks:
        settings, name = comparisons(args.tasks), "adaptation_paper"
    for seed, rows in enumerate(over_seeds(settings, args.seeds), start=1):
        record(name, rows, meta={"seeds": seed, "delta": DELTA})
    if args.part == "budgets":
        draw_curves(rows)


if __name__ == "__main__":
    main()
