"""MNIST by class from public digits: private evolution of latents and of a renderer's parameters.

Two sources of candidates that have never seen MNIST:

autoencoder  a variational autoencoder of scikit-learn's 1797 digits of 8 by 8 pixels, enlarged to
             the 20 by 20 box in the middle of an MNIST image, with slant, stroke width and
             proportions as four more latents; it knows no labels
renderer     digits and letters of six fonts that come with matplotlib, turned, slanted, bent and
             thickened (``_digit_renderer.py``); nothing is trained

The 60000 private images vote for their images, class by class; neighbours differ in an image and
its label. Then classifiers are trained on 10000 synthetic images and tested on the 10000 real test
images. Beside them, at no cost in privacy: the same classifiers trained on the public digits,
enlarged likewise, with their labels, and on what the renderer draws of the ten digits. Settings of
the autoencoder are the defaults. For the renderer the steps, the size of a population and the
smoothing were chosen on the first 10000 training images (``--validate``). The ranges of its
parameters, of slant and of stroke width are guesses.
"""

import argparse
import time
import warnings
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import torch
from _common import record
from _digit_renderer import DigitVariation
from _public_digits import N_LATENTS, enlarge, train_public
from PIL import Image
from sklearn.datasets import load_digits
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression
from sklearn.neural_network import MLPClassifier

from sklearn_dpgen.datasets import fetch_mnist
from sklearn_dpgen.domains import Box
from sklearn_dpgen.evolution import LatentVariation, PrivateEvolutionSampler

IMAGES = Path(__file__).parents[1] / "doc" / "images"
PIXELS = Box(0.0, 1.0, n_features=784)
# Of which the one with many categories asks for more candidates.
SETTINGS = {
    "autoencoder": {"smoothing": 1.0},
    "renderer": {"n_iter": 3, "n_samples": 600, "smoothing": 0.5},
}


def make_interface(name, epochs):
    if name == "renderer":
        return DigitVariation()
    return LatentVariation(train_public(0, epochs), N_LATENTS, domain=PIXELS)


def public_sets(rng):
    """Return labelled images that cost nothing: of public digits, and of the renderer."""
    digits = load_digits()
    small = torch.tensor(digits.data / 16.0, dtype=torch.float32)
    large = enlarge(small, torch.zeros(len(small), 4)).numpy()
    interface = make_interface("renderer", 0)
    X = interface.random(17_000, rng)
    glyphs = interface.encoder.inverse_transform(X)["glyph"].astype(str)
    is_digit = glyphs.str.isdigit().to_numpy()
    drawn = interface.decode(X[is_digit])
    return {
        "public digits": (large, digits.target),
        "renderer": (drawn, glyphs[is_digit].astype(int).to_numpy()),
    }


def blurred(X):
    """Return 7 by 7 mean pixels, in which small shifts of a stroke count little."""
    return X.reshape(-1, 7, 4, 7, 4).mean(axis=(2, 4)).reshape(-1, 49)


def accuracies(S, labels, X, y):
    warnings.simplefilter("ignore", ConvergenceWarning)
    return {
        "LogReg": LogisticRegression(max_iter=200).fit(S, labels).score(X, y),
        "MLP": MLPClassifier(max_iter=60, random_state=0).fit(S, labels).score(X, y),
    }


def main(args):
    data = fetch_mnist()
    X, y = np.asarray(data["X_train"]).reshape(-1, 784) / 255.0, np.asarray(data["y_train"])
    X_test, y_test = np.asarray(data["X_test"]).reshape(-1, 784) / 255.0, np.asarray(data["y_test"])
    if args.validate:
        X, y, X_test, y_test = X[10000:], y[10000:], X[:10000], y[:10000]
    public = []
    for name, (S, labels) in public_sets(np.random.default_rng(0)).items():
        row = {"public": name, "images": len(S)} | accuracies(S, labels, X_test, y_test)
        public.append(row)
        print(row, flush=True)
    labels = np.repeat(np.arange(10), 1000)
    for name in args.interfaces:
        interface = make_interface(name, args.epochs)
        first = interface.decode(interface.random(100, np.random.default_rng(0)))
        rows, grids = list(public), {f"public {name}": first.reshape(10, 10, 28, 28)}
        for epsilon in args.epsilons:
            for seed in range(args.runs):
                sampler = PrivateEvolutionSampler(
                    epsilon,
                    1e-5,
                    interface=interface,
                    labels="private",
                    classes=np.arange(10),
                    embedding=blurred,
                    random_state=seed,
                    **SETTINGS[name],
                )
                start = time.process_time()
                sampler.fit(X, y)
                seconds = time.process_time() - start
                S = sampler.sample(len(labels), y=labels, random_state=seed)
                row = {"interface": name, "epsilon": epsilon, "seed": seed}
                row |= accuracies(S, labels, X_test, y_test) | {"cpu seconds": seconds}
                rows.append(row)
                print(row, sampler.n_iter_, len(sampler.weights_[0]), flush=True)
                if seed == 0:
                    grids[f"ε = {epsilon:g}"] = S.reshape(10, 1000, 28, 28)[:, :10]
                if not args.validate:
                    record(f"evolution_images_{name}", rows, vars(args) | SETTINGS[name])
        if not args.validate:
            picture(grids, f"evolution_{name}.png")


def picture(grids, name):
    figure, axes = plt.subplots(1, len(grids), figsize=(4 * len(grids), 4.2), squeeze=False)
    for ax, (title, grid) in zip(axes[0], grids.items(), strict=True):
        ax.imshow(np.block([list(row) for row in grid]), cmap="gray_r", vmin=0, vmax=1)
        ax.set(title=title, xticks=[], yticks=[])
    figure.tight_layout()
    # Grey in 16 levels is enough, and a quarter of the size.
    figure.savefig(IMAGES / name, dpi=80)
    Image.open(IMAGES / name).convert("L").quantize(16).save(IMAGES / name, optimize=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--epsilons", type=float, nargs="+", default=[1.0, 10.0])
    parser.add_argument("--interfaces", nargs="+", choices=tuple(SETTINGS), default=list(SETTINGS))
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--epochs", type=int, default=150)
    parser.add_argument("--validate", action="store_true", help="on training images, no record")
    main(parser.parse_args())
