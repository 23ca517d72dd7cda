"""MNIST from noisy cosine coefficients, epsilon 10 and delta 1e-5: accuracy of what can be trained.

60000 synthetic images, made by class, train scikit-learn's MLPClassifier and LogisticRegression,
which are tested on the 10000 real test images; mean of the runs, with public and with private
labels. Sizes, the weight of the shapes and the grain were chosen on the first 10000 training
images, and the radius near the norms of the training images; epsilon does not pay for that.

Records are the lowest cosine coefficients of the images, around those of an image of constant grey
.1307 (the mean that every tutorial on MNIST prints), in a ball of public radius. The network makes
the same coefficients, and a sigmoid the pixels: `upsampling` is the paper's network instead.

Of the 784 coefficients of an image only the lowest were released. In the images of the network all
others follow from those, and a classifier relies on what it finds there. So the synthetic images
get grain: normal noise of a public law on every pixel, before the sigmoid. Accuracies are given
with and without.
"""

import argparse
import time
import warnings
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import torch
from _common import record
from scipy.special import expit, logit
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression
from sklearn.neural_network import MLPClassifier
from torch import nn

from sklearn_dpgen.datasets import fetch_mnist
from sklearn_dpgen.domains import Ball, Box
from sklearn_dpgen.nn import Training
from sklearn_dpgen.preprocessing import DCTTransformer
from sklearn_dpgen.smoothed import NoisyRelease, SmoothedSlicedWassersteinGenerator

IMAGES = Path(__file__).parents[1] / "doc" / "images"
GREY = 0.1307
PIXELS = Box(0.0, 1.0, n_features=784)


def low_frequencies(side):
    mask = np.zeros((28, 28), dtype=bool)
    mask[:side, :side] = True
    return DCTTransformer((28, 28), mask=mask).fit(np.zeros((1, 784)))


class CosineImages(nn.Module):
    """A perceptron that makes cosine coefficients, then smooth images of them."""

    def __init__(self, n_inputs, dct, width=200):
        super().__init__()
        self.coefficients = nn.Sequential(
            nn.Linear(n_inputs, width),
            nn.ReLU(),
            nn.Linear(width, width),
            nn.ReLU(),
            nn.Linear(width, int(dct.mask_.sum())),
        )
        basis = dct.inverse_transform(np.eye(int(dct.mask_.sum())))
        self.register_buffer("basis", torch.tensor(basis, dtype=torch.float32))

    def forward(self, Z):
        return torch.sigmoid(1.5 * (self.coefficients(Z) @ self.basis) - 1.5)


def make_generator(args, labels, seed):
    dct = low_frequencies(args.side)
    center = dct.transform(np.full((1, 784), GREY))[0]
    network = args.network
    if network == "cosine":

        def network(n_inputs, domain):
            return CosineImages(n_inputs, dct)

    return dct, SmoothedSlicedWassersteinGenerator(
        args.epsilon,
        1e-5,
        domain=Ball(args.radius, center=center),
        labels=labels,
        release=NoisyRelease(
            args.release,
            # A record with a private label has a slot in each class, and takes as long as ten.
            n_epochs=args.epochs if labels == "public" else args.epochs / 10,
            n_projections=args.projections,
            shape_weight=args.shape_weight,
        ),
        classes=list(range(10)),
        output_domain=PIXELS,
        output_transform=dct,
        generator=network,
        training=Training(max_iter=args.steps, learning_rate=args.rate, verbose=args.verbose),
        n_generated=args.generated,
        n_generators=args.generators,
        latent_dim=args.latent,
        random_state=seed,
    )


def with_grain(S, grain, seed):
    """Return images with normal noise on the pixels, before a sigmoid."""
    noise = np.random.default_rng(seed).standard_normal(S.shape)
    return expit(logit(S.clip(1e-6, 1 - 1e-6)) + grain * noise)


def accuracies(generator, X, y, args, seed):
    labels = np.repeat(generator.classes_, args.samples // 10)
    smooth = generator.sample(len(labels), y=labels, random_state=seed)
    scores = {}
    for name, S in (("", with_grain(smooth, args.grain, seed)), (" without grain", smooth)):
        mlp = MLPClassifier(max_iter=args.mlp_iter, random_state=seed)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            logistic = LogisticRegression(max_iter=100).fit(S, labels)
        scores["LogReg" + name] = logistic.score(X, y)
        scores["MLP" + name] = mlp.fit(S, labels).score(X, y)
    return scores


def picture(generator, grain, name):
    smooth = [generator.sample(6, y=label, random_state=0) for label in generator.classes_]
    rows = [np.vstack([S, with_grain(S, grain, 0)]) for S in smooth]
    grid = np.block([[image.reshape(28, 28) for image in row] for row in rows])
    plt.imsave(IMAGES / f"{name}.png", grid, cmap="gray", vmin=0, vmax=1)


def main(args):
    data = fetch_mnist()
    X, y = np.asarray(data["X_train"]).reshape(-1, 784) / 255.0, np.asarray(data["y_train"])
    X_test, y_test = np.asarray(data["X_test"]).reshape(-1, 784) / 255.0, np.asarray(data["y_test"])
    if args.validate:
        X_test, y_test = X[:10000], y[:10000]
    rows = []
    for labels in args.labels:
        for seed in range(args.first_seed, args.first_seed + args.runs):
            dct, generator = make_generator(args, labels, seed)
            start = time.perf_counter()
            generator.fit(dct.transform(X), y)
            fitted = time.perf_counter() - start
            scores = accuracies(generator, X_test, y_test, args, seed)
            rows.append(
                {
                    "labels": labels,
                    "run": seed,
                    **scores,
                    "noise scale": generator.privacy_.noise_scale,
                    "noise multiplier": generator.noise_multiplier_,
                    "seconds": fitted,
                }
            )
            print(rows[-1], f"{time.perf_counter() - start:.0f} s in all", flush=True)
            if args.validate:
                continue
            done = [row for row in rows if row["labels"] == labels]
            record(f"smoothed_mnist_{labels}{args.suffix}", done, vars(args))
            if seed == 0:
                picture(generator, args.grain, f"smoothed_mnist_{labels}")
    for labels in args.labels:
        chosen = [row for row in rows if row["labels"] == labels]
        means = {
            key: np.mean([row[key] for row in chosen])
            for key in chosen[0]
            if key not in ("labels", "run")
        }
        print(labels, means)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epsilon", type=float, default=10.0)
    parser.add_argument("--release", default="records", choices=["records", "moments"])
    parser.add_argument("--side", type=int, default=10)
    parser.add_argument("--radius", type=float, default=7.5)
    parser.add_argument("--network", default="cosine")
    parser.add_argument("--epochs", type=float, default=150)
    parser.add_argument("--projections", type=int, default=2000)
    parser.add_argument("--steps", type=int, default=8000)
    parser.add_argument("--shape-weight", type=float, default=135.0)
    parser.add_argument("--generators", type=int, default=1)
    parser.add_argument("--grain", type=float, default=8.0)
    parser.add_argument("--generated", type=int, default=64)
    parser.add_argument("--latent", type=int, default=10)
    parser.add_argument("--rate", type=float, default=2e-3)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--suffix", default="", help="of the name of the record")
    parser.add_argument("--samples", type=int, default=60000)
    parser.add_argument("--mlp-iter", type=int, default=200)
    parser.add_argument("--labels", nargs="+", default=["public", "private"])
    parser.add_argument("--validate", action="store_true", help="on training images, no record")
    parser.add_argument("--verbose", type=int, default=0)
    args = parser.parse_args()
    main(args)
