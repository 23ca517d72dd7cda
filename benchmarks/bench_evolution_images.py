"""MNIST by class from a generator of public digits, by private evolution of its latents.

The public generator: a variational autoencoder of scikit-learn's 1797 digits of 8 by 8 pixels. Its
images are enlarged to the 20 by 20 box in the middle of an MNIST image, with slant, stroke width
and proportions as four more latents. It has never seen MNIST, nor labels. The 60000 private images
vote for its images, class by class; neighbours differ in an image and its label. Then classifiers
are trained on 10000 synthetic images and tested on the 10000 real test images, beside the same
classifiers trained on the public digits, enlarged likewise, with their labels. Settings are the
defaults; the ranges of slant and stroke width are guesses.
"""

import argparse
import time
import warnings
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import torch
import torch.nn.functional as F
from _common import record
from sklearn.datasets import load_digits
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression
from sklearn.neural_network import MLPClassifier
from torch import nn

from sklearn_dpgen.datasets import fetch_mnist
from sklearn_dpgen.domains import Box
from sklearn_dpgen.evolution import LatentVariation, PrivateEvolutionSampler

IMAGES = Path(__file__).parents[1] / "doc" / "images"
LATENT = 10
STYLES = 4


class PublicDigits(nn.Module):
    """From latents to images of 28 by 28 pixels: a decoder of 8 by 8 ones, then style."""

    def __init__(self, width=200):
        super().__init__()
        self.decoder = nn.Sequential(
            nn.Linear(LATENT, width), nn.SiLU(), nn.Linear(width, width), nn.SiLU(),
            nn.Linear(width, 64),
        )  # fmt: skip

    def forward(self, Z):
        small = torch.sigmoid(self.decoder(Z[:, :LATENT]))
        return enlarge(small, Z[:, LATENT:])


def enlarge(small, style):
    """Return MNIST-sized images of 8 by 8 ones, slanted, stretched and thickened by normals."""
    images = F.interpolate(small.reshape(-1, 1, 8, 8), size=20, mode="bicubic").clamp(0, 1)
    images = F.pad(images, (4, 4, 4, 4))
    slant, wide, tall, thick = style.T
    maps = torch.zeros(len(small), 2, 3)
    maps[:, 0, 0] = torch.exp(0.3 * wide)
    maps[:, 1, 1] = torch.exp(0.15 * tall)
    maps[:, 0, 1] = 0.35 * slant
    grid = F.affine_grid(maps, images.shape, align_corners=False)
    images = F.grid_sample(images, grid, align_corners=False)
    # A threshold that moves makes strokes thick or thin.
    level = (0.5 - 0.2 * torch.tanh(thick))[:, None, None, None]
    return torch.sigmoid(12 * (images - level)).flatten(1)


def train_public(seed, epochs):
    """Return PublicDigits trained on scikit-learn's digits."""
    X = torch.tensor(load_digits().data / 16.0, dtype=torch.float32)
    torch.manual_seed(seed)
    model = PublicDigits()
    encoder = nn.Sequential(nn.Linear(64, 200), nn.SiLU(), nn.Linear(200, 2 * LATENT))
    optimizer = torch.optim.Adam([*model.parameters(), *encoder.parameters()], lr=1e-3)
    for _ in range(epochs):
        for batch in X[torch.randperm(len(X))].split(128):
            mean, log_std = encoder(batch).chunk(2, dim=1)
            Z = mean + log_std.exp() * torch.randn_like(mean)
            loss = (
                F.binary_cross_entropy_with_logits(model.decoder(Z), batch, reduction="sum")
                - (0.5 + log_std - (mean**2 + (2 * log_std).exp()) / 2).sum()
            )
            optimizer.zero_grad()
            (loss / len(batch)).backward()
            optimizer.step()
    return model


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
    digits = load_digits()
    with torch.no_grad():
        public = enlarge(
            torch.tensor(digits.data / 16.0, dtype=torch.float32), torch.zeros(1797, 4)
        )
    rows = [{"epsilon": 0.0} | accuracies(public.numpy(), digits.target, X_test, y_test)]
    print("public digits", rows[0], flush=True)
    generator = train_public(0, args.epochs)
    interface = LatentVariation(generator, LATENT + STYLES, domain=Box(0.0, 1.0, n_features=784))
    labels = np.repeat(np.arange(10), 1000)
    grids = {}
    for epsilon in args.epsilons:
        for seed in range(args.runs):
            sampler = PrivateEvolutionSampler(
                epsilon,
                1e-5,
                interface=interface,
                labels="private",
                classes=np.arange(10),
                embedding=blurred if args.blur else None,
                n_iter=args.iter or "auto",
                n_samples=args.n_samples or "auto",
                smoothing=args.smoothing,
                random_state=seed,
            )
            start = time.perf_counter()
            sampler.fit(X, y)
            seconds = time.perf_counter() - start
            S = sampler.sample(len(labels), y=labels, random_state=seed)
            found = accuracies(S, labels, X_test, y_test)
            rows.append({"epsilon": epsilon, "seed": seed} | found | {"seconds": seconds})
            print(rows[-1], sampler.n_iter_, len(sampler.weights_[0]), flush=True)
            if seed == 0:
                grids[epsilon] = S.reshape(10, 1000, 28, 28)[:, :10]
    with torch.no_grad():
        Z = torch.randn(100, LATENT + STYLES, generator=torch.Generator().manual_seed(0))
        start = generator(Z).numpy().reshape(10, 10, 28, 28)
    picture({"public generator": start} | {f"ε = {e:g}": grid for e, grid in grids.items()})
    if not args.validate:
        record("evolution_images", rows, vars(args))


def picture(grids):
    figure, axes = plt.subplots(1, len(grids), figsize=(4 * len(grids), 4.2))
    for ax, (name, grid) in zip(np.atleast_1d(axes), grids.items(), strict=True):
        ax.imshow(np.block([list(row) for row in grid]), cmap="gray_r", vmin=0, vmax=1)
        ax.set(title=name, xticks=[], yticks=[])
    figure.tight_layout()
    figure.savefig(IMAGES / "evolution_mnist.png", dpi=80)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--epsilons", type=float, nargs="+", default=[1.0, 10.0])
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--epochs", type=int, default=150)
    parser.add_argument("--iter", type=int, default=0, help="steps, 0 for the default")
    parser.add_argument("--n-samples", type=int, default=0, help="population, 0 for the default")
    parser.add_argument("--smoothing", type=float, default=1.0)
    parser.add_argument("--blur", type=int, default=1)
    parser.add_argument("--validate", action="store_true", help="on training images, no record")
    main(parser.parse_args())
