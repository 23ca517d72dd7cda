"""Figure 6 of paper 1: W2 to raw MNIST, and validation error, against the scale of Gaussian noise.

As there: noise on all pixels, a perceptron with two layers of 500 and a latent of 2, batches of
200, at most 200 Sinkhorn iterations, three losses. W2 is exact, of 1000 generated and 1000 raw test
images; the floor is that of raw training images. The validation error is the entropic transport in
nats between 200 generated and 200 privatized test images, mean of ten pairs, less that of raw
training images in place of generated ones. Medians and ranges over seeds; two methods without a
network are judged beside them.
"""

import argparse
import time

import matplotlib.pyplot as plt
import numpy as np
import torch
from _common import record
from _image_baselines import CHEAP, moments
from _images import PIXELS, load, scaled

from sklearn_dpgen.deconvolution import EntropicDeconvGAN
from sklearn_dpgen.mechanisms import GaussianMechanism
from sklearn_dpgen.metrics import wasserstein_distance
from sklearn_dpgen.nn import Training
from sklearn_dpgen.ot import sinkhorn

SIGMAS = (1.0, 2.0, 4.0)
LOSSES = ("entropic", "wasserstein", "sinkhorn_divergence")
METHODS = (*LOSSES, "low rank", "mixture")
RECIPE = {
    "latent_dim": 2,
    "batch_size": 200,
    "n_generated": 200,
    "n_sinkhorn": 200,
}


def mechanism_of(sigma):
    """Return the mechanism on all pixels that has a scale."""
    unit = GaussianMechanism(1.0, 1e-4, domain=PIXELS, calibration="closed_form").fit()
    low, high = 1e-2, 1e6
    while high / low > 1 + 1e-9:
        middle = np.sqrt(low * high)
        unit.set_params(epsilon=float(middle)).fit()
        low, high = (middle, high) if unit.scale_ > sigma else (low, middle)
    return GaussianMechanism(float(high), 1e-4, domain=PIXELS, calibration="closed_form")


def learned(method, mechanism, Y, seed, max_iter):
    """Return 2000 generated images."""
    if method in CHEAP:
        draws = CHEAP[method](moments(Y, float(mechanism.scale_) ** 2), np.random.default_rng(seed))
        return draws(2_000).clip(-1, 1)
    training = Training(hidden_layer_sizes=(500, 500), learning_rate=1e-3, max_iter=max_iter)
    gan = EntropicDeconvGAN(mechanism, loss=method, training=training, random_state=seed, **RECIPE)
    return gan.fit(Y).sample(2_000, random_state=0)


def validation_error(mechanism, X, Y):
    """Return the mean entropic transport of ten pairs of batches, in nats."""
    X, Y = (torch.as_tensor(np.asarray(A), dtype=torch.float32) for A in (X, Y))
    values = []
    for i in range(10):
        rows = slice(200 * i, 200 * (i + 1))
        cost = -mechanism.log_likelihood(X[rows], Y[rows])
        values.append(sinkhorn(cost, n_iter=200, tol=1e-3).value)
    return float(np.mean(values))


def measure(sigma, seeds, raw, test, max_iter):
    """Return one row a method."""
    runs = {}
    for seed in range(seeds):
        mechanism = mechanism_of(sigma).set_params(random_state=seed).fit()
        Y = np.asarray(mechanism.transform(raw), dtype=np.float32)
        held_out = mechanism.transform(test[:2_000])
        best = validation_error(mechanism, raw[:2_000], held_out)
        for method in METHODS:
            start = time.process_time()
            X = learned(method, mechanism, Y, seed, max_iter)
            seconds = time.process_time() - start
            w2 = wasserstein_distance(X[:1_000], test[:1_000])
            error = validation_error(mechanism, X, held_out) - best
            runs.setdefault(method, []).append((w2, error, seconds))
    for method, found in runs.items():
        found = np.array(found).round(3)
        w2, error, seconds = np.median(found, axis=0)
        yield {
            "sigma": sigma,
            "epsilon": round(mechanism.epsilon, 1),
            "method": method,
            "W2": w2,
            "from": found[:, 0].min(),
            "to": found[:, 0].max(),
            "validation error": error,
            "seconds": seconds,
        }


def picture(rows, floor, path):
    """Draw both quantities against the scale."""
    figure, axes = plt.subplots(1, 2, figsize=(9, 3.6))
    for ax, name in zip(axes, ("W2", "validation error"), strict=True):
        for method in METHODS:
            line = [(r["sigma"], r[name]) for r in rows if r["method"] == method]
            style = "o-" if method in LOSSES else "s--"
            ax.plot(*zip(*line, strict=True), style, label=method.replace("_", " "))
        ax.set(xlabel="σ of the Gaussian noise, MNIST in [-1, 1]")
        ax.spines[["top", "right"]].set_visible(False)
    axes[0].axhline(floor, color="grey", linestyle=":")
    axes[0].set(ylabel="W2 to raw test images")
    axes[1].set(ylabel="validation error, nats", yscale="symlog")
    axes[0].legend(frameon=False)
    figure.tight_layout()
    figure.savefig(path, dpi=90)


def main():
    """Run the scales; print and store the table, draw the figure."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--max-iter", type=int, default=1000)
    parser.add_argument("--figure", default="doc/images/mnist_scales.png")
    args = parser.parse_args()
    torch.set_num_threads(1)
    mnist = load("mnist")
    raw, test = scaled(mnist.X_train).numpy(), scaled(mnist.X_test).numpy()
    floor = wasserstein_distance(raw[:1_000], test[:1_000])
    rows = []
    for sigma in SIGMAS:
        for row in measure(sigma, args.seeds, raw, test, args.max_iter):
            rows.append(row)
            print(row, flush=True)
        slopes = {}
        for method in METHODS if len(rows) > len(METHODS) else ():
            line = [(r["sigma"], r["W2"]) for r in rows if r["method"] == method]
            slopes[method] = round(float(np.polyfit(*zip(*line, strict=True), 1)[0]), 3)
        meta = {"floor of W2": floor, "slopes of W2 in sigma": slopes, "seeds": args.seeds}
        record("mnist_scales", rows, meta=meta)
    picture(rows, floor, args.figure)


if __name__ == "__main__":
    main()
