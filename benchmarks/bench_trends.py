"""Two trends of paper 1 in the plane: the distance to the raw law against the noise, and against n.

``noise``: W2 to the raw half circle against the scale of Gaussian noise, of the losses and of the
methods that need no training. Medians over seeds.

``sizes``: a half circle of radius 0.7, inside the disc, epsilon 5, against the number of records.
W2 between samples has a floor, which hid the rate. So four measures without one: the divergence
KL(P_Y || law of M(G)), from likelihoods of test records under the learned points and under evenly
spaced raw ones; the energy distance of the weighted points to those; and the entropic value
S_c = W_{2, 2 sigma^2} / (2 sigma^2) to records of the training and to test records, less that of
the raw points to the same records.
"""

import argparse
import json
from statistics import median

import matplotlib.pyplot as plt
import numpy as np
import torch
from _common import RESULTS, record
from _moment_deconvolution import moment_deconvolution
from scipy.spatial.distance import cdist

from sklearn_dpgen.datasets import make_half_circle
from sklearn_dpgen.deconvolution import DeconvolutionEM, EntropicDeconvGAN
from sklearn_dpgen.deconvolution._model import generate, mixture_log_likelihood, score_latents
from sklearn_dpgen.domains import Ball
from sklearn_dpgen.mechanisms import GaussianMechanism, LaplaceMechanism
from sklearn_dpgen.metrics import wasserstein_distance
from sklearn_dpgen.nn import Training
from sklearn_dpgen.ot import sinkhorn

DISC = Ball(1.0, n_features=2)
EPSILONS = (60.0, 25.0, 12.0, 7.0, 4.0)
SIZES = (1_000, 4_000, 16_000, 64_000, 256_000)
LOSSES = {
    "entropic": {"training__max_iter": 800, "n_init": 2},
    "wasserstein": {"training__max_iter": 300, "batch_size": 500},
    "sinkhorn_divergence": {"training__max_iter": 300, "batch_size": 500},
}
METHODS = (*LOSSES, "expectation maximization", "moments")
N_COMPARED, N_TEST, N_TRANSPORTED = 2_000, 100_000, 5_000
RADIUS = 0.7


def learned_points(method, mechanism, Y, seed):
    """Return samples of the law that a method learns."""
    if method == "moments":
        return moment_deconvolution(mechanism, Y, N_COMPARED, seed)
    if method in LOSSES:
        options = {"loss": method, **LOSSES[method]}
        estimator = EntropicDeconvGAN(mechanism, random_state=seed).set_params(**options)
    else:
        estimator = DeconvolutionEM(mechanism, random_state=seed)
    return estimator.fit(Y).sample(N_COMPARED, random_state=seed)


def against_noise(seeds, methods):
    """Return one row for each noise scale and method; earlier rows of other methods are kept."""
    path = RESULTS / "trends.json"
    earlier = json.loads(path.read_text())["rows"] if path.exists() else []
    rows = [r for r in earlier if r.get("loss") not in (None, *methods)]
    for epsilon in EPSILONS:
        mechanism = GaussianMechanism(epsilon, 1e-4, domain=DISC)
        for method in methods:
            distances = []
            for seed in range(seeds):
                X = make_half_circle(100_000, random_state=seed)
                Y = mechanism.set_params(random_state=seed).fit_transform(X)
                fresh = make_half_circle(N_COMPARED, random_state=1_000 + seed)
                points = learned_points(method, mechanism, Y, seed)
                distances.append(wasserstein_distance(points, fresh))
            sigma, w2 = round(mechanism.scale_, 3), median(distances)
            rows.append({"sigma": sigma, "epsilon": epsilon, "loss": method, "W2": w2})
            print(rows[-1], flush=True)
    return sorted(rows, key=lambda r: (r["sigma"], METHODS.index(r["loss"])))


def weighted_points(method, mechanism, Y, seed):
    """Return the law that a method learns, as points and weights."""
    if method == "expectation maximization":
        em = DeconvolutionEM(mechanism, random_state=seed).fit(Y)
        return em.points_, em.weights_
    gan = EntropicDeconvGAN(mechanism, random_state=seed, training=Training(max_iter=600)).fit(Y)
    points = generate(gan.generator_, score_latents(gan.latent_dim)[:1024]).double().numpy()
    return points, np.full(len(points), 1 / len(points))


def transport_value(mechanism, points, weights, Y):
    """Return the entropic transport value of weighted points to records."""
    kept = weights > 1e-12
    weights = weights[kept] / weights[kept].sum()
    cost = -mechanism.log_likelihood(torch.tensor(points[kept]), Y[:N_TRANSPORTED])
    return sinkhorn(cost, weights, n_iter=2_000, tol=1e-5).value


def measures(mechanism, points, weights, raw, train, test):
    """Return how far weighted points are from evenly spaced raw ones, without sampling them."""
    kept = weights > 0
    of_raw = mixture_log_likelihood(mechanism, torch.tensor(raw), test)
    of_learned = mixture_log_likelihood(
        mechanism, torch.tensor(points[kept]), test, weights=torch.tensor(weights[kept])
    )
    even = np.full(len(raw), 1 / len(raw))
    energy = 2 * weights @ cdist(points, raw) @ even
    energy -= weights @ cdist(points, points) @ weights + even @ cdist(raw, raw) @ even
    row = {"KL": (of_raw - of_learned).mean().item(), "energy": energy}
    for name, Y in (("train", train), ("test", test)):
        value = transport_value(mechanism, points, weights, Y)
        row[name] = value - transport_value(mechanism, raw, even, Y)
    return row


def against_n(seeds, methods):
    """Return one row for each mechanism, method, number of records and seed."""
    rows = []
    angles = np.pi * (np.arange(1_000) + 0.5) / 1_000
    raw = RADIUS * np.column_stack([np.cos(angles), np.sin(angles)])
    settings = [
        (GaussianMechanism(5.0, 1e-4, domain=DISC), "entropic"),
        (GaussianMechanism(5.0, 1e-4, domain=DISC), "expectation maximization"),
        (LaplaceMechanism(5.0, domain=DISC), "expectation maximization"),
    ]
    for mechanism, method in settings:
        if method not in methods:
            continue
        name = type(mechanism).__name__.removesuffix("Mechanism")
        for n_samples in SIZES:
            for seed in range(seeds):
                mechanism.set_params(random_state=seed).fit()
                X = make_half_circle(n_samples, radius=RADIUS, random_state=seed)
                fresh = make_half_circle(N_TEST, radius=RADIUS, random_state=500 + seed)
                Y, test = mechanism.transform(X), mechanism.transform(fresh)
                points, weights = weighted_points(method, mechanism, Y, seed)
                Y, test = torch.tensor(np.asarray(Y)), torch.tensor(np.asarray(test))
                row = {"mechanism": name, "method": method, "n": n_samples, "seed": seed}
                row |= measures(mechanism, points, weights, raw, Y, test)
                print(row, flush=True)
                rows.append(row)
    return rows


def exponents(rows):
    """Return the slope of the logarithm of each median measure in that of n."""
    found = {}
    for setting in dict.fromkeys((r["mechanism"], r["method"]) for r in rows):
        group = [r for r in rows if (r["mechanism"], r["method"]) == setting]
        for name in ("KL", "energy", "test"):
            line = [median(r[name] for r in group if r["n"] == n) for n in SIZES]
            if min(line) > 0:
                slope = np.polyfit(np.log(SIZES), np.log(line), 1)[0]
                found[", ".join((*setting, name))] = round(float(slope), 2)
    return found


def draw(noise, sizes, path):
    """Draw both trends."""
    figure, axes = plt.subplots(1, 3, figsize=(12, 3.6))
    for method in METHODS:
        line = [(r["sigma"], r["W2"]) for r in noise if r.get("loss") == method]
        axes[0].plot(*zip(*line, strict=True), "o-", label=method.replace("_", " "))
    axes[0].set(xlabel="σ of the Gaussian noise", ylabel="W2 to raw data", ylim=(0, None))
    n = np.array(SIZES)
    for ax, names in zip(axes[1:], (["KL"], ["train", "test"]), strict=True):
        for setting in dict.fromkeys((r["mechanism"], r["method"]) for r in sizes):
            for name in names:
                group = [r for r in sizes if (r["mechanism"], r["method"]) == setting]
                line = [median(r[name] for r in group if r["n"] == k) for k in SIZES]
                ax.plot(n, line, "o-", markersize=3, label=", ".join((*setting, name)))
        ax.set(xlabel="n", xscale="log")
    top = max(r["KL"] for r in sizes)
    axes[1].plot(n, top * np.sqrt(n[0] / n), ":", color="grey", label="1/√n")
    axes[1].plot(n, top * n[0] / n, "--", color="grey", label="1/n")
    axes[1].set(yscale="log", ylabel="KL to the law of privatized records, nats")
    axes[2].set(ylabel="entropic value less that of raw points, nats")
    for ax in axes:
        ax.legend(frameon=False, fontsize=6)
        ax.spines[["top", "right"]].set_visible(False)
    figure.tight_layout()
    figure.savefig(path, dpi=90)


def main():
    """Run the parts; print and store the tables, draw the figure of what is stored."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--part", nargs="*", choices=["noise", "sizes"], default=["noise", "sizes"])
    parser.add_argument("--methods", nargs="*", choices=METHODS, default=list(METHODS))
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--figure", default="doc/images/trends.png")
    args = parser.parse_args()
    torch.set_num_threads(1)
    if "noise" in args.part:
        rows = against_noise(args.seeds, args.methods)
        lines = {m: [(r["sigma"], r["W2"]) for r in rows if r["loss"] == m] for m in METHODS}
        slopes = {
            m: round(float(np.polyfit(*zip(*line, strict=True), 1)[0]), 3)
            for m, line in lines.items()
            if line
        }
        record("trends", rows, meta={"slopes of W2 in sigma": slopes})
    if "sizes" in args.part:
        path = RESULTS / "trends_sizes.json"
        earlier = json.loads(path.read_text())["rows"] if path.exists() else []
        rows = [r for r in earlier if r["method"] not in args.methods]
        rows += against_n(args.seeds, args.methods)
        record("trends_sizes", rows, meta={"exponents of n": exponents(rows)})
    stored = [json.loads((RESULTS / f"{n}.json").read_text()) for n in ("trends", "trends_sizes")]
    draw(stored[0]["rows"], stored[1]["rows"], args.figure)


if __name__ == "__main__":
    main()
