"""Private evolution of few images: the Fréchet distance against their number and against the steps.

The setting of figures 3 and 4 of "Private evolution converges", epsilon 5 and delta 1e-4, on what
can be had here: private images are of two digits of MNIST, in the place of two classes of CIFAR-10,
and candidates come from the autoencoder of scikit-learn's digits (``_public_digits.py``), in the
place of a diffusion model. Distances, those of votes and those between Gaussians, are of 7 by 7
mean pixels in the place of Inception features. Parts:

n      against the number of private images, T = ln(n epsilon) and n_s of Theorem 4.1
T      against the steps, 300 private images; T = ln(n epsilon) is marked

As in the paper a population is varied by several degrees at every step, and truncated votes are
drawn from ("theory"). Beside it the default ("annealed"), with this generator and with a renderer
of fonts; one histogram over 200 images of the generator; and, without privacy, other images of the
same digits. The result is compared with all test images of the two digits.
"""

import argparse
import math
import time
import warnings
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from _common import record
from _digit_renderer import DigitVariation
from _public_digits import N_LATENTS, train_public

from sklearn_dpgen.datasets import fetch_mnist
from sklearn_dpgen.domains import Box
from sklearn_dpgen.evolution import (
    LatentVariation,
    PrivateEvolutionSampler,
    PrivateSignedMeasureSampler,
)
from sklearn_dpgen.metrics import frechet_distance

IMAGES = Path(__file__).parents[1] / "doc" / "images"
EPSILON, DELTA = 5.0, 1e-4
DIGITS = (4, 7)
SIZES = (100, 200, 300, 400, 500, 600)
STEPS = (1, 2, 4, 7, 8, 12, 16, 20)
N_DRAWN = 1000
PIXELS = Box(0.0, 1.0, n_features=784)


def blurred(X):
    """Return 7 by 7 mean pixels."""
    return X.reshape(-1, 7, 4, 7, 4).mean(axis=(2, 4)).reshape(-1, 49)


class SeveralDegrees:
    """Varies by degrees between 0.1 and 0.8, whatever is asked."""

    def __init__(self, inner):
        self.random, self.decode, self.inner = inner.random, inner.decode, inner

    def vary(self, X, rng, degree):
        """Draw one variation of each row."""
        varied = np.empty_like(X)
        groups = rng.integers(4, size=len(X))
        for group in range(4):
            rows = groups == group
            varied[rows] = self.inner.vary(X[rows], rng, 0.1 * 2.0**group)
        return varied


def evolution(interface, **params):
    """Return the sampler of both parts."""
    shared = {"epsilon": EPSILON, "delta": DELTA, "domain": PIXELS, "embedding": blurred}
    sampler = PrivateEvolutionSampler(interface=interface, **shared)
    return sampler.set_params(**params)


def theory(interface, n_iter):
    """Return the sampler at the paper's settings."""
    params = {"schedule": "theory", "votes__postprocess": "threshold", "n_iter": n_iter}
    return evolution(SeveralDegrees(interface), **params)


def one_histogram(interface, seed):
    """Return the sampler of one histogram over images of the generator."""
    places = blurred(interface.decode(interface.random(200, np.random.default_rng(seed))))
    params = {"support": places, "domain": Box(0.0, 1.0, n_features=49)}
    return PrivateSignedMeasureSampler(EPSILON, DELTA, **params)


def distances(methods, images, test, runs, **labels):
    """Return a row for each method: the Fréchet distance to the test images, mean of the runs."""
    rows = []
    for name, make in methods.items():
        found, start = [], time.process_time()
        for seed in range(runs):
            rng = np.random.default_rng(seed)
            X = images[rng.permutation(len(images))[: labels["n"]]]
            found.append(frechet_distance(blurred(make(X, seed)), blurred(test)))
        error = float(np.std(found, ddof=1) / math.sqrt(runs))
        seconds = (time.process_time() - start) / runs
        row = {"method": name, "Frechet": float(np.mean(found)), "error": error, "runs": runs}
        rows.append(labels | row | {"seconds": seconds})
        print(rows[-1], flush=True)
    return rows


def fitted(sampler, X, seed):
    """Return draws of a sampler, without the warnings of budgets that are small on purpose."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", category=UserWarning, message="The noise on|No candidate")
        fit = sampler.set_params(random_state=seed, device="cpu").fit(X)
    return fit.sample(N_DRAWN, random_state=seed)


def measure_n(interfaces, images, test, runs):
    """Return rows against the number of private images."""
    generator, renderer = interfaces
    rows = []
    for n in SIZES:
        steps = round(math.log(n * EPSILON))
        methods = {
            "theory": lambda X, s, t=steps: fitted(theory(generator, t), X, s),
            "annealed": lambda X, s: fitted(evolution(generator), X, s),
            "annealed, renderer": lambda X, s: fitted(evolution(renderer), X, s),
            "one histogram": lambda X, s: full(fitted(one_histogram(generator, s), blurred(X), s)),
            "other images": lambda X, s, n=n: images[
                np.random.default_rng(s + 99).permutation(len(images))[:n]
            ],
        }
        rows += distances(methods, images, test, runs, n=n, T=steps)
    for name, source in (("public generator", generator), ("public renderer", renderer)):
        draw = {name: lambda X, s, i=source: i.decode(i.random(1000, np.random.default_rng(s)))}
        rows += distances(draw, images, test, runs, n=0, T=0)
    return rows


def full(small):
    """Return images whose 7 by 7 means are given."""
    return np.kron(small.reshape(-1, 7, 7), np.ones((4, 4))).reshape(len(small), 784)


def measure_steps(interfaces, images, test, runs):
    """Return rows against the number of steps."""
    generator, _ = interfaces
    rows = []
    for steps in STEPS:
        methods = {
            "theory": lambda X, s, t=steps: fitted(theory(generator, t), X, s),
            "annealed": lambda X, s, t=steps: fitted(evolution(generator, n_iter=t), X, s),
        }
        rows += distances(methods, images, test, runs, n=300, T=steps)
    return rows


STYLES = {
    "theory": ("C1", "o-", "paper's settings"),
    "annealed": ("C0", "o-", "annealed (default)"),
    "annealed, renderer": ("C2", "o-", "annealed, renderer"),
    "one histogram": ("C4", "^--", "one histogram"),
    "other images": ("0.5", ":", "other images, no privacy"),
}


def draw(by_n, by_steps):
    """Draw both sweeps."""
    figure, axes = plt.subplots(1, 2, figsize=(8, 3.5))
    for ax, rows, key in ((axes[0], by_n, "n"), (axes[1], by_steps, "T")):
        for method, (color, style, label) in STYLES.items():
            found = [row for row in rows if row["method"] == method]
            if not found:
                continue
            x, y, e = ([row[c] for row in found] for c in (key, "Frechet", "error"))
            options = {"markersize": 4, "capsize": 2, "linewidth": 1.3}
            ax.errorbar(x, y, 2 * np.array(e), fmt=style, color=color, label=label, **options)
        ax.spines[["top", "right"]].set_visible(False)
        ax.set_ylim(0, None)
    axes[1].axvline(math.log(300 * EPSILON), color="k", linestyle=":", linewidth=1)
    axes[0].set(xlabel="private images n; T = ln(nε)", ylabel="Fréchet distance")
    axes[1].set(xlabel="steps T; n = 300 (dotted: ln(nε))")
    axes[0].legend(frameon=False, fontsize=8)
    figure.tight_layout()
    figure.savefig(IMAGES / "evolution_sweeps.png", dpi=110)


def main(args):
    """Run both parts and draw them."""
    data = fetch_mnist()
    X, y = np.asarray(data["X_train"]).reshape(-1, 784) / 255.0, np.asarray(data["y_train"])
    X_test, y_test = np.asarray(data["X_test"]).reshape(-1, 784) / 255.0, np.asarray(data["y_test"])
    images, test = X[np.isin(y, DIGITS)], X_test[np.isin(y_test, DIGITS)]
    generator = LatentVariation(train_public(0, 150), N_LATENTS, domain=PIXELS, device="cpu")
    renderer = DigitVariation()
    found = {}
    for part, measure in {"n": measure_n, "T": measure_steps}.items():
        if part in args.part:
            found[part] = measure((generator, renderer), images, test, args.runs)
            record(f"evolution_sweep_{part}", found[part], vars(args) | {"digits": DIGITS})
    if len(found) == 2:
        draw(found["n"], found["T"])


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--part", nargs="+", choices=("n", "T"), default=["n", "T"])
    parser.add_argument("--runs", type=int, default=10)
    main(parser.parse_args())
