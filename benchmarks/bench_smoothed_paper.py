"""Table 2 and the samples of the smoothed sliced Wasserstein paper: the method as it is printed.

Equation 8 with Algorithm 1 at each step (``release="projections"``): 100 records of MNIST, ten of a
class, on random directions of R^784, the generator of Table 3, Adam. Records are images less a
constant grey .1307, in a ball of radius 8.5 near their norms, so that Delta is 17 and not the 1 of
the paper. Labels are public: one distance a class. epsilon = 10, delta = 1e-5.

- swd: without noise; exact: with the noise of the exact price; bernstein: at the smaller epsilon
  at which the exact price asks for the noise of the paper's bound on its own directions.
- merf: DP-MERF (``_merf.py``), private labels.

By default it is 5 epochs of the paper's 100, with ten times the rate of Adam, and 100 orthonormal
directions of the paper's 1000 independent ones: a step takes some 25 ms of a core, and 60 ms with
those. Fewer directions have less noise each, and as much is learned from them in all.
``--steps 60100 --directions 1000 --rate 1e-4`` is the paper's run.
Synthetic images of ``--samples`` train scikit-learn's classifiers, which are tested on the 10000
real test images. Data other than MNIST are read from ``NAME.npz`` in SKLEARN_DPGEN_DATA, with the
arrays of ``mnist.npz``: ``--data fashion_mnist`` for the other half of Table 2, and Figure 5.

Rows are added to ``results/smoothed_paper.json``, and samples kept in ``--cache``, of which
``--part picture`` draws Figure 4.
"""

import argparse
import json
import time
import warnings
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import torch
from _common import record
from _merf import Merf
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression
from sklearn.neural_network import MLPClassifier

from sklearn_dpgen.accounting import ProjectionLaw, calibrate_noise_multiplier, epsilon_spent
from sklearn_dpgen.datasets import fetch_mnist
from sklearn_dpgen.datasets._fetch import get_data_home
from sklearn_dpgen.domains import Ball, Box
from sklearn_dpgen.moments import MomentImageSampler
from sklearn_dpgen.nn import Training
from sklearn_dpgen.smoothed import NoisyRelease, SmoothedSlicedWassersteinGenerator

ROOT = Path(__file__).parents[1]
GREY, RADIUS, DELTA = 0.1307, 8.5, 1e-5
BATCH = 100
N_SHOWN = 5
# Directions up to the dimension are orthonormal; more of them are the paper's, independent.
PAPER_DIRECTIONS = 1000
SETTINGS = ("data", "epsilon", "steps", "directions", "rate", "features", "merf_steps", "samples")
METHODS = ("swd", "exact", "bernstein", "merf")
TITLES = {
    "swd": "as printed, no noise",
    "exact": "as printed, ε = 10",
    "bernstein": "Bernstein noise",
    "merf": "DP-MERF, ε = 10",
}


def load(name):
    """Return images in [0, 1] and labels, of training and of test."""
    if name == "mnist":
        data = fetch_mnist()
    else:
        with np.load(get_data_home() / f"{name}.npz") as file:
            data = {key: file[key] for key in ("X_train", "y_train", "X_test", "y_test")}
    images = (np.reshape(data[key], (-1, 784)) / 255.0 for key in ("X_train", "X_test"))
    return *images, np.asarray(data["y_train"]), np.asarray(data["y_test"])


def bernstein_epsilon(epsilon, y, n_steps):
    """Return the exact epsilon of the noise that the paper's bound asks for."""
    plan = {
        # Of the class that is drawn from most: 10 or 11 of its records in a step.
        "sampling_rate": max(round(BATCH * n / len(y)) / n for n in np.bincount(y)),
        "n_steps": n_steps,
        "projections": ProjectionLaw(784, PAPER_DIRECTIONS, "independent"),
    }
    multiplier = calibrate_noise_multiplier(epsilon, DELTA, accountant="bernstein", **plan)
    return epsilon_spent(multiplier, DELTA, **plan)


def make(method, args, seed, y):
    if method == "merf":
        return Merf(args.epsilon, DELTA, seed, n_features=args.features, n_steps=args.merf_steps)
    epsilon = np.inf if method == "swd" else args.epsilon
    if method == "bernstein":
        epsilon = bernstein_epsilon(epsilon, y, args.steps)
    return SmoothedSlicedWassersteinGenerator(
        epsilon,
        DELTA,
        domain=Ball(RADIUS, center=np.full(784, GREY)),
        output_domain=Box(0.0, 1.0, n_features=784),
        labels="public",
        release=NoisyRelease(
            "projections",
            n_projections=args.directions,
            directions="orthogonal" if args.directions <= 784 else "independent",
            batch_size=BATCH,
        ),
        n_generated=BATCH // 10,
        generator="upsampling",
        training=Training(learning_rate=args.rate, max_iter=args.steps, averaging=0.0),
        random_state=seed,
    )


def accuracies(S, labels, X, y, seed):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        logistic = LogisticRegression(max_iter=100).fit(S, labels)
        perceptron = MLPClassifier(max_iter=30, random_state=seed).fit(S, labels)
    return {"LogReg": logistic.score(X, y), "MLP": perceptron.score(X, y)}


def rerun(args):
    """Fit each method with each seed that has no row yet, test it, and store the row."""
    X, X_test, y, y_test = load(args.data)
    name = "smoothed_paper" + ("" if args.data == "mnist" else f"_{args.data}")
    path = ROOT / "benchmarks" / "results" / f"{name}.json"
    rows = json.loads(path.read_text())["rows"] if path.exists() else []
    for seed in args.seeds:
        for method in args.methods:
            if any((row["method"], row["run"]) == (method, seed) for row in rows):
                continue
            start = time.process_time()
            model = make(method, args, seed, y).fit(X, y)
            row = {"method": method, "run": seed, "seconds": time.process_time() - start}
            if method == "merf":
                row |= {"epsilon": args.epsilon, "noise scale": model.noise_scale}
                row |= {"noise multiplier": model.noise_scale * len(X) / 2}
            else:
                report = model.privacy_
                row |= {"epsilon": report.epsilon, "noise scale": report.noise_scale}
                row |= {"noise multiplier": report.noise_multiplier}
            row["steps"] = args.merf_steps if method == "merf" else args.steps
            labels = np.repeat(np.arange(10), args.samples // 10)
            S = model.sample(len(labels), y=labels, random_state=seed).astype(np.float32)
            rows.append(row | accuracies(S, labels, X_test, y_test, seed))
            print(rows[-1], flush=True)
            record(name, rows, {key: getattr(args, key) for key in SETTINGS})
            kept = S.reshape(10, -1, 784)[:, :N_SHOWN]
            np.save(Path(args.cache) / f"{args.data}_{method}_{seed}.npy", kept)


def picture(args):
    """Draw the kept samples of the first seed beside real images and those of moments."""
    X, _, y, _ = load(args.data)
    grids = {"real": np.stack([X[y == code][:N_SHOWN] for code in range(10)])}
    for method in METHODS:
        path = Path(args.cache) / f"{args.data}_{method}_{args.seeds[0]}.npy"
        if path.exists():
            grids[TITLES[method]] = np.load(path)[:, :N_SHOWN]
    options = {"labels": "private", "classes": list(range(10)), "random_state": 0}
    moments = MomentImageSampler(10.0, DELTA, shape=(28, 28), pixel_range=(0, 1), **options)
    kinds = np.repeat(np.arange(10), N_SHOWN)
    drawn = moments.fit(X, y).sample(len(kinds), y=kinds, random_state=0)
    grids["moments, ε = 10"] = drawn.reshape(10, N_SHOWN, 784)
    figure, axes = plt.subplots(1, len(grids), figsize=(1.8 * len(grids), 3.8))
    for ax, (title, images) in zip(axes, grids.items(), strict=True):
        tiles = images.reshape(10, N_SHOWN, 28, 28).transpose(0, 2, 1, 3).reshape(280, -1)
        ax.imshow(tiles, cmap="gray_r", vmin=0, vmax=1)
        ax.set_title(title, fontsize=9)
        ax.axis("off")
    figure.tight_layout()
    figure.savefig(ROOT / "doc" / "images" / f"smoothed_paper_{args.data}.png", dpi=60)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--part", choices=["table", "picture"], default="table")
    parser.add_argument("--methods", nargs="+", default=list(METHODS), choices=METHODS)
    parser.add_argument("--data", default="mnist")
    parser.add_argument("--epsilon", type=float, default=10.0)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--steps", type=int, default=3005)
    parser.add_argument("--directions", type=int, default=100)
    parser.add_argument("--rate", type=float, default=1e-3)
    parser.add_argument("--features", type=int, default=4000, help="of DP-MERF")
    parser.add_argument("--merf-steps", type=int, default=600)
    parser.add_argument("--samples", type=int, default=20000)
    parser.add_argument("--cache", default=".", help="folder for samples")
    options = parser.parse_args()
    torch.set_num_threads(1)
    {"table": rerun, "picture": picture}[options.part](options)
