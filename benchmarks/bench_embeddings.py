"""Classifiers of embeddings: of noisy moments, of records drawn by them, and privately trained.

Unit vectors of 256 to 768 columns with private labels, epsilon .5, 1, 3 and 10, delta 1e-5;
accuracy on test rows, mean and standard deviation of the runs. `_embeddings` says what the data are
and how to get them, `_noisy_moments` what is released, `_private_linear` what the peers are.

Neighbours differ in one record and its label, which are replaced. In the rows with "remove" they
are there or not, as DP-SGD is mostly reported: epsilons of the two relations do not compare.

Settings of the moments and of "DP-SGD" are the same for all data and budgets, and were chosen on a
fifth of the training rows of `CHOOSE`; how eigenvalues are shrunk also on those of two others.
What is "tuned" is tuned for each data set and budget by a fifth of its training rows, and epsilon
does not pay for that: a bound of what can be had.

A data set that the record has already is left alone, unless it is named.
"""

import argparse
import json
import time
import warnings
from pathlib import Path

import numpy as np
from _common import record
from _embeddings import CHOOSE, REPORT, load
from _noisy_moments import fit_normals, nearest_mean, release, ridge
from _private_linear import dp_sgd, objective_perturbation
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.exceptions import ConvergenceWarning
from sklearn.kernel_approximation import Nystroem
from sklearn.linear_model import LogisticRegression
from sklearn.metrics.pairwise import rbf_kernel
from sklearn.neighbors import NearestNeighbors
from sklearn.pipeline import make_pipeline
from sklearn.svm import LinearSVC

from sklearn_dpgen.domains import Ball
from sklearn_dpgen.moments import MomentSampler
from sklearn_dpgen.nn import Training
from sklearn_dpgen.smoothed import NoisyRelease, SmoothedSlicedWassersteinGenerator

DELTA = 1e-5
BUDGETS = (0.5, 1.0, 3.0, 10.0)
RESULTS = Path(__file__).parent / "results"
SGD = {"rate": 1.0, "n_steps": 20, "learning_rate": 32.0, "clip": 0.3}
SGD_GRID = [
    {"rate": rate, "n_steps": n_steps, "learning_rate": learning_rate, "clip": clip}
    for rate, n_steps, learning_rate, clip in (
        (1.0, 20, 8.0, 0.3),
        (1.0, 20, 32.0, 0.3),
        (1.0, 60, 8.0, 0.3),
        (1.0, 60, 32.0, 0.3),
        (1.0, 60, 32.0, 1.0),
        (0.1, 200, 2.0, 0.3),
        (0.1, 200, 8.0, 0.3),
        (0.1, 200, 32.0, 0.3),
    )
]
REGULARIZATIONS = (3.0, 10.0, 30.0, 100.0, 300.0)
SAMPLES_OF_NEIGHBOURS = 10000
N_NEIGHBOURS = 10


def classifiers():
    kernel = Nystroem(gamma=0.5, n_components=300, random_state=0)
    return {
        "LogisticRegression": LogisticRegression(max_iter=60),
        "LinearSVC": LinearSVC(C=0.1),
        "kernel": make_pipeline(kernel, LogisticRegression(C=10, max_iter=40)),
    }


def accuracy(scores, data):
    return float(np.mean(scores.argmax(axis=1) == data.y_test))


def fitted_accuracy(model, S, labels, data):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        return float(model.fit(S, labels).score(data.X_test, data.y_test))


def moment_sampler(data, epsilon, seed):
    return MomentSampler(
        epsilon,
        DELTA,
        domain=Ball(1.0, n_features=data.X.shape[1]),
        labels="private",
        classes=list(range(data.n_classes)),
        random_state=seed,
    ).fit(data.X.astype(float), data.y)


def draw(sampler, n, seed):
    labels = sampler.sample_labels(n, random_state=seed)
    return sampler.sample(n, y=labels, random_state=seed), labels


def of_moments(data, epsilon, seed, n_samples, relation="replace"):
    """Return accuracies of all that one release gives, and by samples, if any are asked for."""
    rng = np.random.default_rng(seed)
    moments = release(data, epsilon, DELTA, rng, relation=relation)
    normals = fit_normals(moments)
    found = {
        "nearest class mean": accuracy(data.X_test @ nearest_mean(moments), data),
        "ridge": accuracy(data.X_test @ ridge(moments), data),
        "discriminants": accuracy(normals.scores(data.X_test), data),
    }
    if not n_samples:
        return found
    S, labels = normals.sample(n_samples, rng)
    for name, model in classifiers().items():
        found[f"samples, {name}"] = fitted_accuracy(model, S, labels, data)
    return found


def of_samplers(data, epsilon, seed, n_samples):
    drawn = draw(moment_sampler(data, epsilon, seed), n_samples, seed)
    models = {
        "LogisticRegression": classifiers()["LogisticRegression"],
        "discriminants": LinearDiscriminantAnalysis(),
    }
    return {
        f"MomentSampler, {name}": fitted_accuracy(model, *drawn, data)
        for name, model in models.items()
    }


def of_peers(data, epsilon, seed, settings, relation="replace"):
    rng = np.random.default_rng(seed)
    tuned, regularization = settings
    weights = {
        "DP-SGD": dp_sgd(data, epsilon, DELTA, rng, relation=relation, **SGD),
        "DP-SGD, tuned": dp_sgd(data, epsilon, DELTA, rng, relation=relation, **tuned),
        "objective perturbation, tuned": objective_perturbation(
            data, epsilon, DELTA, rng, relation=relation, **regularization
        ),
    }
    return {name: accuracy(data.X_test @ W, data) for name, W in weights.items()}


def tune(data, epsilon, regularizations):
    """Return the best settings of the peers on a part of the training rows."""
    part = data.split()
    best = []
    objectives = [{"regularization": value} for value in regularizations]
    for method, grid in ((dp_sgd, SGD_GRID), (objective_perturbation, objectives)):
        scores = []
        for setting in grid:
            rng = np.random.default_rng(0)
            W = method(part, epsilon, DELTA, rng, relation="replace", **setting)
            scores.append(accuracy(part.X_test @ W, part))
        best.append(grid[int(np.argmax(scores))])
    return best


def compare(name, data, args):
    """Return a row for each method."""
    found, settings = {}, {}
    start = time.perf_counter()
    for epsilon in BUDGETS:
        settings[epsilon] = tune(data, epsilon, args.regularizations)
        for seed in range(args.runs):
            scores = of_moments(data, epsilon, seed, args.samples)
            scores |= of_samplers(data, epsilon, seed, args.samples)
            scores |= of_peers(data, epsilon, seed, settings[epsilon])
            if args.remove:
                moments = of_moments(data, epsilon, seed, 0, "remove")
                peers = of_peers(data, epsilon, seed, settings[epsilon], "remove")
                scores |= {f"remove: {key}": value for key, value in (moments | peers).items()}
            for method, score in scores.items():
                found.setdefault(method, {}).setdefault(epsilon, []).append(score)
        took = time.perf_counter() - start
        print(name, epsilon, {k: v[epsilon] for k, v in found.items()}, f"{took:.0f} s", flush=True)
    ceiling = max(
        fitted_accuracy(LogisticRegression(C=C, max_iter=200), data.X, data.y, data)
        for C in (1, 10, 100)
    )
    majority = float(np.mean(data.y_test == np.bincount(data.y).argmax()))
    rows = [
        row(name, "the most frequent class", dict.fromkeys(BUDGETS, [majority])),
        *(row(name, method, scores) for method, scores in found.items()),
        row(name, "LogisticRegression, not private", dict.fromkeys(BUDGETS, [ceiling])),
    ]
    return rows, {str(epsilon): setting for epsilon, setting in settings.items()}


def samplers(name, data, args):
    """Return the rows of all methods, those of MomentSampler measured anew."""
    found = {}
    for epsilon in BUDGETS:
        for seed in range(args.runs):
            for method, score in of_samplers(data, epsilon, seed, args.samples).items():
                found.setdefault(method, {}).setdefault(epsilon, []).append(score)
        print(name, epsilon, {k: v[epsilon] for k, v in found.items()}, flush=True)
    kept = [old for old in written("embeddings")["rows"] if old["data"] == name]
    kept = [old for old in kept if not old["method"].startswith("MomentSampler")]
    return kept + [row(name, method, scores) for method, scores in found.items()]


def row(name, method, scores):
    columns = {f"{e:g}": float(np.mean(scores[e])) for e in BUDGETS}
    spreads = {f"sd {e:g}": float(np.std(scores[e], ddof=len(scores[e]) > 1)) for e in BUDGETS}
    return {"data": name, "method": method, **columns, **spreads, "runs": len(scores[BUDGETS[0]])}


def neighbours(name, data, args):
    """Return rows of drawn vectors as those that a query is compared with.

    The share of the ten nearest of a test row that have its label, and the squared kernel distance
    of drawn and test rows, in thousandths.
    """
    rows = []
    part = np.random.default_rng(0).permutation(len(data.X))[:SAMPLES_OF_NEIGHBOURS]
    real = data.X[part], data.y[part]
    for epsilon in BUDGETS:
        rng = np.random.default_rng(0)
        normals = fit_normals(release(data, epsilon, DELTA, rng))
        drawn = normals.sample(SAMPLES_OF_NEIGHBOURS, rng)
        rows.append({"data": name, "vectors": "samples", "epsilon": epsilon, **near(drawn, data)})
        sampler = moment_sampler(data, epsilon, 0)
        drawn = draw(sampler, SAMPLES_OF_NEIGHBOURS, 0)
        rows.append(
            {"data": name, "vectors": "MomentSampler", "epsilon": epsilon, **near(drawn, data)}
        )
    rows.append({"data": name, "vectors": "records", "epsilon": np.inf, **near(real, data)})
    return rows


def near(index, data):
    S, labels = index
    S = S / np.linalg.norm(S, axis=1, keepdims=True)
    asked = np.random.default_rng(1).permutation(len(data.X_test))[:2000]
    queries, y = data.X_test[asked], data.y_test[asked]
    nearest = NearestNeighbors(n_neighbors=N_NEIGHBOURS).fit(S)
    same = labels[nearest.kneighbors(queries, return_distance=False)] == y[:, None]
    part = S[np.random.default_rng(0).permutation(len(S))[:2000]]
    squared = rbf_kernel(part, part, 0.5).mean() + rbf_kernel(queries, queries, 0.5).mean()
    squared -= 2 * rbf_kernel(part, queries, 0.5).mean()
    return {"precision": float(same.mean()), "distance": float(1000 * squared)}


def slices(name, data, args):
    """Return rows of vectors that a network makes, trained on noisy slices: one run."""
    rows = []
    for epsilon in BUDGETS:
        start = time.perf_counter()
        generator = SmoothedSlicedWassersteinGenerator(
            epsilon,
            DELTA,
            domain=Ball(1.0, n_features=data.X.shape[1]),
            labels="private",
            classes=list(range(data.n_classes)),
            release=NoisyRelease(n_epochs=20 / data.n_classes, n_projections=256),
            training=Training(max_iter=1000),
            random_state=0,
        ).fit(data.X.astype(float), data.y)
        drawn = draw(generator, SAMPLES_OF_NEIGHBOURS, 0)
        model = classifiers()["LogisticRegression"]
        score = fitted_accuracy(model, *drawn, data)
        took = time.perf_counter() - start
        rows.append({"data": name, "epsilon": epsilon, "accuracy": score, **near(drawn, data)})
        rows[-1]["seconds"] = took
        print(rows[-1], flush=True)
    return rows


def resumed(title, names, args, measure):
    """Measure the data sets that the record lacks, or that are named, and write it after each."""
    for name in args.data or names:
        if not args.data and any(found["data"] == name for found in written(title)["rows"]):
            continue
        data = load(name, args.texts, args.cache)
        shape = {"n": len(data.X), "columns": data.X.shape[1], "classes": data.n_classes}
        new, about = measure(name, data, args), {}
        if isinstance(new, tuple):
            new, about = new
        former = written(title)
        rows = [found for found in former["rows"] if found["data"] != name] + new
        known = former["meta"].get(name, {})
        about = {name: {**known, **shape, "samples": args.samples, **about}}
        record(title, rows, former["meta"] | {"delta": DELTA} | about)


def written(title):
    path = RESULTS / f"{title}.json"
    return json.loads(path.read_text()) if path.exists() else {"rows": [], "meta": {}}


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--texts", help="folder of the packages with texts and word vectors")
    parser.add_argument("--cache", help="folder for vectors, to make them once")
    parser.add_argument("--data", nargs="+", choices=CHOOSE + REPORT)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--samples", type=int, default=10000)
    parser.add_argument("--regularizations", nargs="+", type=float, default=REGULARIZATIONS)
    parser.add_argument("--remove", action="store_true", help="the other relation too")
    parser.add_argument(
        "--part", choices=("compare", "samplers", "neighbours", "slices"), default="compare"
    )
    args = parser.parse_args()
    if args.part == "compare":
        resumed("embeddings", REPORT, args, compare)
    elif args.part == "samplers":
        resumed("embeddings", REPORT, args, samplers)
    elif args.part == "neighbours":
        resumed("embeddings_neighbours", REPORT, args, neighbours)
    else:
        resumed("embeddings_slices", ("newsgroups", "movies"), args, slices)
