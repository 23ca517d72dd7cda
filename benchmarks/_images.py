"""What the benchmarks of privatized images share: the public maps, the judge and the pictures."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import torch
from scipy.ndimage import zoom
from scipy.special import softmax
from sklearn.datasets import load_digits
from torch import nn

from sklearn_dpgen.datasets import fetch_fashion_mnist, fetch_mnist
from sklearn_dpgen.domains import Ball, Box
from sklearn_dpgen.mechanisms import GaussianMechanism, LaplaceMechanism
from sklearn_dpgen.metrics import frechet_distance
from sklearn_dpgen.preprocessing import DCTTransformer

__all__ = [
    "PIXELS",
    "Judge",
    "Setting",
    "classifier_features",
    "cosines",
    "draw",
    "gaussian",
    "laplace",
    "load",
    "scaled",
]

PIXELS = Box(-1.0, 1.0, n_features=784)
DELTA = 1e-4


def load(name):
    """Return a data set of images by its name."""
    return {"mnist": fetch_mnist, "fashion_mnist": fetch_fashion_mnist}[name]()


def scaled(X):
    """Return images as a tensor in [-1, 1]."""
    return torch.tensor(X, dtype=torch.float32) / 127.5 - 1


def cosines(quantile=0.8):
    """Keep the largest fifth of the cosines, on average over public digits of 8x8 pixels."""
    digits = np.stack([zoom(image / 8 - 1, 3.5, order=3) for image in load_digits().images[:500]])
    coefficients = DCTTransformer((28, 28)).fit_transform(digits.reshape(-1, 784))
    size = abs(coefficients).mean(axis=0).reshape(28, 28)
    dct = DCTTransformer((28, 28), mask=size > np.quantile(size, quantile))
    return dct.fit(np.zeros((1, 784)))


@dataclass(frozen=True)
class Setting:
    """A public map of images, or None, and the mechanism of what comes of it."""

    name: str
    transform: Any
    mechanism: Any

    def privatize(self, X):
        """Return what the server sees."""
        return self.mechanism.fit_transform(self.mapped(X))

    def mapped(self, X):
        return X if self.transform is None else self.transform.transform(X)

    def shown(self, C):
        """Return vectors of the mechanism's space as images.

        Nearly all images are longer than a radius of 20 in l2, and were scaled down to it. Their
        background is known to be black: it tells by how much.
        """
        X = C if self.transform is None else self.transform.inverse_transform(C)
        domain = self.mechanism.domain_
        if isinstance(domain, Ball) and domain.p == 2 and self.transform is None:
            X = X / np.clip(-np.median(X, axis=1, keepdims=True), 0.5, 1.0)
        return np.clip(X, -1, 1).astype(np.float32)

    def kept(self, X):
        """Return images without the coefficients that are never released, nor learned."""
        return X if self.transform is None else self.shown(self.mapped(X))

    @property
    def variance(self):
        """Variance of the noise of a coordinate."""
        return float(self.mechanism.scale_) ** 2 * (2 if self.mechanism.cost_norm == 1 else 1)


def laplace(epsilon, *, radius=140, transform=None, seed=0):
    """Laplace noise on the l1 ball of a radius; without one on all pixels, which are a box."""
    if radius is None:
        mechanism = LaplaceMechanism(epsilon, domain=PIXELS, random_state=seed)
        return Setting(f"Laplace eps={epsilon:g}, pixels", None, mechanism)
    n_kept = 784 if transform is None else int(transform.mask_.sum())
    ball = Ball(radius, p=1, n_features=n_kept)
    mechanism = LaplaceMechanism(epsilon, domain=ball, random_state=seed)
    what = "pixels" if transform is None else "cosines"
    return Setting(f"Laplace eps={epsilon:g}, {what}, l1 {radius:g}", transform, mechanism)


def gaussian(epsilon, *, radius=20, seed=0):
    """Gaussian noise on the l2 ball of a radius; without one on all pixels, which are a box."""
    domain = PIXELS if radius is None else Ball(radius, n_features=784)
    mechanism = GaussianMechanism(epsilon, DELTA, domain=domain, random_state=seed)
    ball = "" if radius is None else f", l2 {radius:g}"
    return Setting(f"Gaussian eps={epsilon:g}, pixels{ball}", None, mechanism)


class Judge:
    """A small classifier of raw images, kept in a file if one is named."""

    def __init__(self, images, n_epochs=2, path=None):
        if path is None or not Path(path).exists():
            self.net = _classifier(images, n_epochs)
            if path is not None:
                torch.save(self.net, path)
        else:
            self.net = torch.load(path, weights_only=False)
        self.test = scaled(images.X_test).numpy()
        self.accuracy = float((self._logits(self.test).argmax(1) == images.y_test).mean())

    @torch.no_grad()
    def features(self, images):
        """Return the last hidden layer."""
        return self.net[:-1](torch.as_tensor(np.asarray(images), dtype=torch.float32)).numpy()

    @torch.no_grad()
    def _logits(self, images):
        return self.net(torch.as_tensor(np.asarray(images), dtype=torch.float32)).double().numpy()

    def distance(self, images):
        """Return the Fréchet distance of features to those of test images."""
        return frechet_distance(images, self.test, feature_extractor=self.features)

    def score(self, images):
        """Return the score of Inception, with this classifier: 1 to 10, of raw images near 10."""
        p = softmax(self._logits(images), axis=1)
        return float(np.exp(np.sum(p * np.log(p / p.mean(0) + 1e-300), axis=1).mean()))


def classifier_features(images, n_epochs=2):
    """Return the features of a judge and its accuracy."""
    judge = Judge(images, n_epochs)
    return judge.features, judge.accuracy


def _classifier(images, n_epochs):
    torch.manual_seed(0)
    net = nn.Sequential(
        nn.Unflatten(1, (1, 28, 28)),
        nn.Conv2d(1, 16, 5, stride=2),
        nn.ReLU(),
        nn.Conv2d(16, 32, 5, stride=2),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(512, 64),
        nn.ReLU(),
        nn.Linear(64, 10),
    )
    X, y = scaled(images.X_train), torch.tensor(images.y_train.astype(np.int64))
    optimizer = torch.optim.Adam(net.parameters(), 1e-3)
    for _ in range(n_epochs):
        for rows in torch.randperm(len(X)).split(128):
            optimizer.zero_grad()
            nn.functional.cross_entropy(net(X[rows]), y[rows]).backward()
            optimizer.step()
    return net


def draw(grids, path, *, n_columns=4, side=6, width=9.0):
    """Draw one grid of ``side`` x ``side`` images for each title."""
    n_rows = -(-len(grids) // n_columns)
    figure, axes = plt.subplots(
        n_rows, n_columns, figsize=(width, 1.25 * width / n_columns * n_rows), squeeze=False
    )
    for ax in axes.flat:
        ax.axis("off")
    for ax, (title, images) in zip(axes.flat, grids.items(), strict=False):
        tiles = np.asarray(images)[: side * side].reshape(side, side, 28, 28)
        tiles = tiles.transpose(0, 2, 1, 3).reshape(28 * side, 28 * side)
        ax.imshow(tiles, cmap="gray_r", vmin=-1, vmax=1)
        ax.set_title(title, fontsize=6.5)
    figure.tight_layout()
    figure.savefig(path, dpi=75, pil_kwargs={"optimize": True})
    plt.close(figure)
