"""Private distances between two samples: power of their tests, and errors of W1 and W2.

Power: n private and n public rows of a table, all different. The private ones are changed: each
column is shifted, or scaled about zero, in units of its standard deviation, or the first column is
permuted in a share of the rows, which changes correlations alone. All methods have the same
guarantee: replace one record, delta = 0.1 / n, in a ball of radius 2 sqrt(d) around the mean of Y,
in units of the public standard deviations. `private_sliced_wasserstein` rejects by its own p-value,
from the release and the public rows. The thresholds of all others are the 95 percent quantile of
their statistic over three times as many trials without a change, which nobody has in practice.

- noisy mean: all of the budget, Mahalanobis distance with sampling error and noise;
- noisy moments: the same with second moments, combined as here;
- histograms of three projections: 8 or 16 cells, nine of ten of equal public shares, combined as
  here;
- `smoothed_sliced_wasserstein`: the distance, defaults.

Errors: of the distance between the private and the public rows in the ball, on many directions.

Settings were chosen on CPS1988 and NMES1988 (`--part choice`); flights and PSID7682 are reported.
"""

import argparse
import itertools
import json
import math

import numpy as np
import torch
from _common import RESULTS, record
from _registry import REGISTRY

from sklearn_dpgen.domains import Ball
from sklearn_dpgen.mechanisms import GaussianSequenceMechanism
from sklearn_dpgen.ot import random_directions, sliced_wasserstein
from sklearn_dpgen.smoothed import (
    _distance,
    private_sliced_wasserstein,
    smoothed_sliced_wasserstein,
)

FLIGHTS = (
    *("air_time", "distance", "dep_delay", "sched_dep_time", "sched_arr_time"),
    *("flight", "hour", "month", "day", "minute"),
)
CHANGES = (
    *(("none", 0.0), ("shift", 0.05), ("shift", 0.1), ("scale", 0.05), ("scale", 0.1)),
    *(("correlation", 0.05), ("correlation", 0.2)),
)
# Table, columns, records, budgets.
POWER = (
    ("flights", 3, 2000, 1.0),
    ("flights", 3, 2000, 5.0),
    ("flights", 3, 2000, 0.3),
    ("psid7682", 4, 2000, 1.0),
    ("flights", 10, 2000, 1.0),
    ("flights", 3, 500, 1.0),
)
CHOICE = (("cps1988", 3, 2000, 0.5), ("nmes1988", 10, 2000, 0.5))
# Shares of the moments, almost none for histograms alone, and numbers of cells.
CHOICE_SETTINGS = (
    *((1e-6, 8), (1e-6, 16), (0.2, 8), (0.2, 16), (0.35, 8), (0.35, 16), (0.5, 8), (0.5, 16)),
)
ACCURACY = (2, 3, 5, 10)
FEW_ROWS = (1, 100, 3000), (2, 100, 2000), (2, 320, 2000), (5, 300, 3000)
LEVELS = 0.05, 0.1
ACCURACY_CHANGES = (
    *(("none", 0.0), ("shift", 0.1), ("shift", 0.5), ("scale", 0.2), ("correlation", 0.2)),
    ("normal records", 0.2),
)
N_ACCURACY, EPSILONS = 10_000, (0.3, 1.0, 5.0)
OURS = "private_sliced_wasserstein"
SMOOTHED = "smoothed_sliced_wasserstein"
HISTOGRAMS = {n_cells: f"three histograms of {n_cells} cells" for n_cells in (8, 16)}
OTHERS = ("noisy mean", "noisy moments", *HISTOGRAMS.values(), SMOOTHED)
LEVEL, N_DIRECTIONS = 0.05, 300


def load(name, d):
    """Return the rows of a table without missing values, in d numeric columns."""
    frame = REGISTRY[name]().frame
    numeric = [c for c in frame if frame[c].dtype.kind in "fiu" and frame[c].nunique() > 2]
    columns = FLIGHTS[:d] if name == "flights" else numeric[:d]
    return frame[list(columns)].dropna().to_numpy(np.float64)


def samples(table, n, change, size, seed):
    """Return private and public rows, in units of the public ones."""
    rng = np.random.default_rng(seed)
    rows = table[rng.choice(len(table), 2 * n, replace=False)]
    public = rows[n:]
    rows = (rows - public.mean(axis=0)) / public.std(axis=0)
    return changed(rows[:n], change, size, rng), rows[n:]


def changed(X, change, size, rng):
    if change == "shift":
        return X + size
    if change == "scale":
        return X * (1 + size)
    X, taken = X.copy(), rng.random(len(X)) < size
    if change == "correlation":
        X[taken, 0] = rng.permutation(X[taken, 0])
    elif change == "normal records":
        X[taken] = rng.standard_normal((taken.sum(), X.shape[1]))
    return X


def ball_of(d):
    return Ball(2 * math.sqrt(d), n_features=d)


def delta_of(n):
    return 0.1 / n


# ---- statistics ----


def statistics(X, Y, epsilon, seed):
    """Return the statistics of the other methods, those of a combined test as vectors."""
    d, domain = X.shape[1], ball_of(X.shape[1])
    found = {"noisy mean": noisy_mean(X, Y, epsilon, seed)}
    parts = released_statistics(X, Y, epsilon, seed, (1 - 1e-6, 1e-6), d, 8)
    found["noisy moments"] = parts[:2]
    for n_cells, method in HISTOGRAMS.items():
        parts = released_statistics(X, Y, epsilon, seed, (1e-6, 1 - 1e-6), min(3, d), n_cells)
        found[method] = parts[2:]
    result = smoothed_sliced_wasserstein(X, Y, epsilon=epsilon, domain=domain, random_state=seed)
    found[SMOOTHED] = [result.distance]
    return found


def noisy_mean(X, Y, epsilon, seed):
    n, domain = len(X), ball_of(X.shape[1])
    X, Y = domain.project(X), domain.project(Y)
    mechanism = GaussianSequenceMechanism(1.0, [1.0], epsilon, delta_of(n))
    scale = mechanism.noise_scales[0] * domain.diameter(2) / n
    noise = scale * np.random.default_rng(seed).standard_normal(X.shape[1])
    difference = X.mean(axis=0) + noise - Y.mean(axis=0)
    covariance = np.cov(Y.T) * (1 / n + 1 / len(Y)) + scale**2 * np.eye(len(difference))
    return [difference @ np.linalg.solve(covariance, difference)]


def released_statistics(X, Y, epsilon, seed, shares, k, n_cells):
    """Return the four statistics of a release with other shares of the budget."""
    kept, _distance._SHARES = _distance._SHARES, shares
    try:
        options = {"n_projections": k, "n_cells": n_cells, "n_draws": 1, "level": None}
        result = ours(X, Y, epsilon, seed, **options)
    finally:
        _distance._SHARES = kept
    released = result.histograms
    sample = result._sample(Y)
    moments = (released.moments - sample.moments)[None]
    return released.statistics(sample, moments, (released.shares - sample.shares)[None], True)[0]


def ours(X, Y, epsilon, seed, **options):
    return private_sliced_wasserstein(
        X, Y, epsilon=epsilon, domain=ball_of(X.shape[1]), random_state=seed, **options
    )


# ---- power ----


def power_rows(cases, repeat, changes):
    """Return the share of rejections of each method."""
    rows = []
    for name, d, n, epsilon in cases:
        rows += powers(name, load(name, d), n, epsilon, repeat, changes)
    return rows


def powers(name, table, n, epsilon, repeat, changes):
    case = {"table": name, "d": table.shape[1], "n": n, "epsilon": epsilon}
    rows, null = [], None
    # Thresholds come from trials of their own.
    for change, size in (("none", 0.0), *changes):
        found = {method: [] for method in OTHERS}
        rejected = []
        for trial in range(3 * repeat if null is None else repeat):
            seed = trial if null is None else 10_000 + trial
            X, Y = samples(table, n, change, size, seed)
            for method, values in statistics(X, Y, epsilon, seed).items():
                found[method].append(np.cbrt(values))
            if null is not None:
                options = {"n_draws": 99, "level": None}
                rejected.append(ours(X, Y, epsilon, seed, **options).pvalue <= LEVEL)
        found = {method: np.array(values) for method, values in found.items()}
        if null is None:
            null = found
            continue
        row = {**case, "change": change, "size": size, "trials": repeat}
        row[OURS] = float(np.mean(rejected))
        row |= {method: rejections(null[method], found[method]) for method in OTHERS}
        rows.append(row)
        print(list(row.values()), flush=True)
    return rows


def rejections(null, found):
    """Return the share above the 95 percent quantile of trials without a change."""
    mean, spread = null.mean(axis=0), null.std(axis=0)
    scores = [(((v - mean) / spread).clip(0) ** 2).sum(axis=1) for v in (null, found)]
    if null.shape[1] == 1:
        scores = [null[:, 0], found[:, 0]]
    return float((scores[1] > np.quantile(scores[0], 1 - LEVEL)).mean())


def choice_rows(repeat):
    """Return the power on tables of choice, by share of the moments and number of cells."""
    rows = []
    sizes = (("none", 0.0), ("shift", 0.05), ("scale", 0.1), ("correlation", 0.3))
    for (name, d, n, epsilon), (change, size) in itertools.product(CHOICE, sizes):
        table = load(name, d)
        for share, n_cells in CHOICE_SETTINGS:
            kept, _distance._SHARES = _distance._SHARES, (share, 1 - share)
            options, found = {"n_draws": 99, "level": None, "n_cells": n_cells}, []
            for seed in range(repeat):
                X, Y = samples(table, n, change, size, seed)
                found.append(ours(X, Y, epsilon, seed, **options).pvalue <= LEVEL)
            _distance._SHARES = kept
            row = {"table": name, "d": d, "n": n, "epsilon": epsilon, "change": change}
            row |= {"size": size, "share of moments": share, "n_cells": n_cells, "trials": repeat}
            rows.append({**row, "power": float(np.mean(found))})
            print(list(rows[-1].values()), flush=True)
    return rows


# ---- errors ----


def exact(X, Y, p):
    d = X.shape[1]
    generator = torch.Generator().manual_seed(1)
    k = d * math.ceil(N_DIRECTIONS / d)
    theta = random_directions(k, d, generator=generator, dtype=torch.float64)
    X, Y = map(torch.tensor, (X, Y))
    return sliced_wasserstein(X, Y, directions=theta, p=p).item() ** (1 / p)


def accuracy_rows(widths, repeat):
    """Return errors of W1 and W2, and how often the interval of W2 holds the distance."""
    rows = []
    for d in widths:
        table, domain = load("flights", d), ball_of(d)
        for change, size in ACCURACY_CHANGES:
            found = {epsilon: [] for epsilon in EPSILONS}
            for seed in range(repeat):
                X, Y = samples(table, N_ACCURACY, change, size, seed)
                X, Y = domain.project(X), domain.project(Y)
                true = [exact(X, Y, p) for p in (1, 2)]
                for epsilon in EPSILONS:
                    found[epsilon].append(true + errors(X, Y, epsilon, seed, true))
            for epsilon, values in found.items():
                rows.append(summary(d, change, size, epsilon, np.array(values)))
                print(list(rows[-1].values()), flush=True)
    return rows


def errors(X, Y, epsilon, seed, true):
    """Return errors of W1, W2 and the smoothed W2, and whether the interval holds the distance."""
    result = ours(X, Y, epsilon, seed, n_draws=1, level=0.95 if epsilon == 1 else None)
    low, high = result.interval or (0.0, math.inf)
    first = result.histograms.distance(result._sample(Y), 1)
    smoothed = smoothed_sliced_wasserstein(
        X, Y, epsilon=epsilon, domain=ball_of(X.shape[1]), random_state=seed
    )
    return [
        first - true[0],
        result.distance - true[1],
        smoothed.distance - true[1],
        float(low <= true[1] <= high),
        high - low,
    ]


def null_rows(repeat):
    """Return how often tests of equal normal samples reject, with few public rows."""
    rows = []
    for d, m, n in FEW_ROWS:
        pvalues = []
        for seed in range(repeat):
            rng = np.random.default_rng(seed)
            X, Y = rng.normal(size=(n, d)), rng.normal(size=(m, d))
            pvalues.append(ours(X, Y, 5, seed, n_draws=39, level=None).pvalue)
        rates = {
            f"rejected at {level:g}": float(np.mean(np.array(pvalues) <= level)) for level in LEVELS
        }
        rows.append({"d": d, "public rows": m, "n": n, "epsilon": 5, "trials": repeat} | rates)
    return rows


def summary(d, change, size, epsilon, values):
    row = {"table": "flights", "d": d, "n": N_ACCURACY, "epsilon": epsilon}
    row |= {"change": change, "size": size, "seeds": len(values)}
    mean, worst = values.mean(axis=0), np.abs(values).max(axis=0)
    row |= {"W1": mean[0], "W2": mean[1], "error W1": mean[2], "error W2": mean[3]}
    row |= {"worst W1": worst[2], "worst W2": worst[3], "worst W2 smoothed": worst[4]}
    if epsilon == 1:
        row |= {"covered": mean[5], "width": mean[6]}
    return {key: float(v) if isinstance(v, np.floating) else v for key, v in row.items()}


def main():
    """Run one part, or all, and store the tables."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--part", choices=("choice", "power", "accuracy", "null"), default=None)
    parser.add_argument("--case", type=int, default=None, help="a single case of power or errors")
    parser.add_argument("--repeat", type=int, default=60, help="trials of a power")
    parser.add_argument("--seeds", type=int, default=4, help="samples of an error")
    args = parser.parse_args()
    torch.set_num_threads(1)
    if args.part in (None, "choice"):
        record("private_distance_choice", choice_rows(args.repeat))
    if args.part in (None, "power"):
        cases = POWER if args.case is None else [POWER[args.case]]
        stored("private_distance_power", power_rows(cases, args.repeat, CHANGES))
    if args.part in (None, "null"):
        record("private_distance_null", null_rows(args.repeat))
    if args.part in (None, "accuracy"):
        widths = ACCURACY if args.case is None else [ACCURACY[args.case]]
        stored("private_distance_accuracy", accuracy_rows(widths, args.seeds))


def stored(name, rows):
    """Store rows beside those of other cases."""
    path, keys = RESULTS / f"{name}.json", ("table", "d", "n", "epsilon")
    new = {tuple(row[key] for key in keys) for row in rows}
    old = json.loads(path.read_text())["rows"] if path.exists() else []
    kept = [row for row in old if tuple(row[key] for key in keys) not in new]
    record(name, sorted(kept + rows, key=lambda row: [row[key] for key in keys]))


if __name__ == "__main__":
    main()
