"""Two trends of paper 1 on the half circle: W2 to the raw data against the noise, and against n.

Against the noise: entropic, unregularized and debiased losses, Gaussian mechanism. Against n: the
entropic loss, Laplace mechanism at epsilon 5; the distance to the raw records behind the privatized
ones that it was trained on, and to fresh ones. Medians over seeds.
"""

import argparse
from statistics import median

import matplotlib.pyplot as plt
import numpy as np
import torch
from _common import record

from sklearn_dpgen.datasets import make_half_circle
from sklearn_dpgen.deconvolution import EntropicDeconvGAN
from sklearn_dpgen.domains import Ball
from sklearn_dpgen.mechanisms import GaussianMechanism, LaplaceMechanism
from sklearn_dpgen.metrics import wasserstein_distance

DISC = Ball(1.0, n_features=2)
EPSILONS = (60.0, 25.0, 12.0, 7.0, 4.0)
SIZES = (1_000, 4_000, 16_000, 64_000, 256_000)
LOSSES = {
    "entropic": {"max_iter": 800, "n_init": 2},
    "wasserstein": {"max_iter": 300, "batch_size": 500},
    "sinkhorn_divergence": {"max_iter": 300, "batch_size": 500},
}
N_COMPARED = 2_000


def fit(mechanism, n_samples, options, seed):
    """Return W2 of the generator to the raw records it never saw, and to fresh ones."""
    X = make_half_circle(n_samples, random_state=seed)
    Y = mechanism.set_params(random_state=seed).fit_transform(X)
    gan = EntropicDeconvGAN(mechanism, random_state=seed, **options).fit(Y)
    samples = gan.sample(N_COMPARED, random_state=seed)
    fresh = make_half_circle(N_COMPARED, random_state=1_000 + seed)
    return wasserstein_distance(samples, X[:N_COMPARED]), wasserstein_distance(samples, fresh)


def against_noise(seeds):
    """Return one row for each noise scale and loss."""
    rows = []
    for epsilon in EPSILONS:
        mechanism = GaussianMechanism(epsilon, 1e-4, domain=DISC)
        for loss, options in LOSSES.items():
            runs = [fit(mechanism, 100_000, {"loss": loss, **options}, s)[1] for s in seeds]
            sigma = round(mechanism.scale_, 3)
            rows.append({"sigma": sigma, "epsilon": epsilon, "loss": loss, "W2": median(runs)})
            print(rows[-1], flush=True)
    return rows


def against_n(seeds):
    """Return one row for each number of records."""
    rows = []
    for n_samples in SIZES:
        mechanism = LaplaceMechanism(5.0, domain=DISC)
        runs = [fit(mechanism, n_samples, LOSSES["entropic"], s) for s in seeds]
        train, test = (median(column) for column in zip(*runs, strict=True))
        rows.append({"n": n_samples, "W2 to its raw records": train, "W2 to fresh": test})
        print(rows[-1], flush=True)
    return rows


def draw(noise, sizes, path):
    """Draw both trends."""
    figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3.6))
    for loss in LOSSES:
        line = [(r["sigma"], r["W2"]) for r in noise if r["loss"] == loss]
        left.plot(*zip(*line, strict=True), "o-", label=loss.replace("_", " "))
    left.set(xlabel="σ of the Gaussian noise", ylabel="W2 to raw data", ylim=(0, None))
    left.legend(frameon=False)
    n = np.array([r["n"] for r in sizes])
    for name in ("W2 to its raw records", "W2 to fresh"):
        right.loglog(n, [r[name] for r in sizes], "o-", label=name)
    first = sizes[0]["W2 to fresh"]
    right.loglog(n, first * np.sqrt(n[0] / n), ":", color="grey", label="1/√n")
    right.set(xlabel="n, Laplace, ε = 5")
    right.legend(frameon=False)
    for ax in (left, right):
        ax.spines[["top", "right"]].set_visible(False)
    figure.tight_layout()
    figure.savefig(path, dpi=110)


def main():
    """Run both trends; print and store the tables, draw the figure."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--figure", default="doc/images/trends.png")
    args = parser.parse_args()
    torch.set_num_threads(1)
    noise, sizes = against_noise(range(args.seeds)), against_n(range(args.seeds))
    slopes = {}
    for loss in LOSSES:
        line = [(r["sigma"], r["W2"]) for r in noise if r["loss"] == loss]
        slopes[loss] = round(float(np.polyfit(*zip(*line, strict=True), 1)[0]), 3)
    exponent = np.polyfit(*np.log([(r["n"], r["W2 to fresh"]) for r in sizes]).T, 1)[0]
    meta = {"slopes of W2 in sigma": slopes, "exponent of n": round(float(exponent), 3)}
    print(meta)
    record("trends", noise + sizes, meta=meta)
    draw(noise, sizes, args.figure)


if __name__ == "__main__":
    main()
