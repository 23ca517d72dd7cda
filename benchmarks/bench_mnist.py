"""Digits from privatized images: Fréchet distance and sample grids for three losses.

Two local mechanisms on MNIST in [-1, 1], after paper 1: Laplace noise of scale 3 on the discrete
cosine coefficients that are large in public digits, projected on the l1 ball of radius 140;
Gaussian noise on the pixels, projected on the l2 ball of radius 20. Generated images go through
the same public map before the loss, and those of the first setting keep the released coefficients
alone. The distance is taken in the last hidden layer of a small convolutional classifier that is
trained on raw MNIST for this purpose.
"""

import argparse
import ast
import time

import matplotlib.pyplot as plt
import numpy as np
import torch
from _common import record
from scipy.ndimage import zoom
from sklearn.datasets import load_digits
from torch import nn

from sklearn_dpgen.datasets import fetch_mnist
from sklearn_dpgen.deconvolution import EntropicDeconvGAN
from sklearn_dpgen.domains import Ball, Box
from sklearn_dpgen.mechanisms import GaussianMechanism, LaplaceMechanism
from sklearn_dpgen.metrics import frechet_distance
from sklearn_dpgen.preprocessing import DCTTransformer

PIXELS = Box(-1.0, 1.0, n_features=784)
LOSSES = ("entropic", "noisy_wasserstein", "wasserstein")


def public_mask():
    """Keep the largest fifth of the coefficients, on average over public digits of 8x8 pixels."""
    digits = np.stack([zoom(image / 8 - 1, 3.5, order=3) for image in load_digits().images[:500]])
    coefficients = DCTTransformer((28, 28)).fit_transform(digits.reshape(-1, 784))
    size = abs(coefficients).mean(axis=0).reshape(28, 28)
    return size > np.quantile(size, 0.8)


def settings():
    """Return for each setting the public transform, the mechanism and the network's options."""
    dct = DCTTransformer((28, 28), mask=public_mask())
    dct.fit(np.zeros((1, 784)))
    n_kept = int(dct.mask_.sum())
    laplace = LaplaceMechanism(280 / 3, domain=Ball(140, p=1, n_features=n_kept), random_state=0)
    gaussian = GaussianMechanism(35.0, 1e-4, domain=Ball(20, n_features=784), random_state=0)
    return {"Laplace b=3, cosines": (dct, laplace), "Gaussian eps=35, pixels": (None, gaussian)}


def classifier_features(mnist, n_epochs=2):
    """Train a small classifier on raw images; return its last hidden layer and its accuracy."""
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
    X, y = scaled(mnist.X_train), torch.tensor(mnist.y_train.astype(np.int64))
    optimizer = torch.optim.Adam(net.parameters(), 1e-3)
    for _ in range(n_epochs):
        for rows in torch.randperm(len(X)).split(128):
            optimizer.zero_grad()
            nn.functional.cross_entropy(net(X[rows]), y[rows]).backward()
            optimizer.step()

    @torch.no_grad()
    def features(images):
        return net[:-1](torch.as_tensor(np.asarray(images), dtype=torch.float32)).numpy()

    with torch.no_grad():
        guess = net(scaled(mnist.X_test)).argmax(1).numpy()
    return features, (guess == mnist.y_test.astype(np.int64)).mean()


def scaled(X):
    """Return images as a tensor in [-1, 1]."""
    return torch.tensor(X, dtype=torch.float32) / 127.5 - 1


def kept(transform, X):
    """Return images without the coefficients that were never released, nor learned."""
    if transform is None:
        return X
    return np.clip(transform.inverse_transform(transform.transform(X)), -1, 1)


def main():
    """Train every setting and loss; print and store the table, draw the grids."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--settings", nargs="*", default=list(settings()))
    parser.add_argument("--losses", nargs="*", default=list(LOSSES))
    parser.add_argument("--max-iter", type=int, default=3000)
    parser.add_argument("--baseline-iter", type=int, default=600)
    parser.add_argument("--options", default="{}", help="options of EntropicDeconvGAN, a dict")
    parser.add_argument("--figure", default="doc/images/mnist.png")
    args = parser.parse_args()
    torch.set_num_threads(1)
    mnist = fetch_mnist()
    raw, test = scaled(mnist.X_train).numpy(), scaled(mnist.X_test).numpy()
    features, accuracy = classifier_features(mnist)
    rows, grids = [], {}
    base = frechet_distance(raw[:10_000], test, feature_extractor=features)
    print(f"classifier {accuracy:.4f}; raw against raw {base:.3f}", flush=True)
    for setting in args.settings:
        transform, mechanism = settings()[setting]
        floor = frechet_distance(kept(transform, raw[:10_000]), test, feature_extractor=features)
        print(f"{setting}: raw images through the public map against raw {floor:.3f}", flush=True)
        Y = mechanism.fit_transform(raw if transform is None else transform.transform(raw))
        for loss in args.losses:
            options = {
                "generator": "dcgan",
                "latent_dim": 32,
                "batch_size": 1000,
                "n_generated": 500,
                "learning_rate": 1e-3,
                "max_iter": args.max_iter if loss == "entropic" else args.baseline_iter,
            }
            gan = EntropicDeconvGAN(
                mechanism,
                output_domain=PIXELS,
                output_transform=transform,
                loss=loss,
                random_state=0,
                verbose=1,
                **options | ast.literal_eval(args.options),
            )
            start = time.perf_counter()
            gan.fit(Y)
            seconds = time.perf_counter() - start
            X = kept(transform, gan.sample(10_000, random_state=0))
            distance = frechet_distance(X, test, feature_extractor=features)
            rows.append(
                {
                    "setting": setting,
                    "scale": round(mechanism.scale_, 3),
                    "epsilon": round(mechanism.epsilon, 1),
                    "loss": loss,
                    "Frechet": round(distance, 2),
                    "raw through the map": round(floor, 2),
                    "steps": gan.n_iter_,
                    "seconds": round(seconds),
                }
            )
            print(rows[-1], flush=True)
            grids[f"{setting}, {loss}\nFréchet {distance:.0f}"] = X[:64]
    record("mnist", rows, meta={"raw against raw": base, "classifier accuracy": accuracy})
    draw(grids, args.figure)


def draw(grids, path):
    """Draw one grid of 8 x 8 samples for each setting."""
    figure, axes = plt.subplots(
        -(-len(grids) // 3), 3, figsize=(9, 3.4 * -(-len(grids) // 3)), squeeze=False
    )
    for ax in axes.flat:
        ax.axis("off")
    for ax, (title, images) in zip(axes.flat, grids.items(), strict=False):
        tiles = images.reshape(8, 8, 28, 28).transpose(0, 2, 1, 3).reshape(224, 224)
        ax.imshow(tiles, cmap="gray_r", vmin=-1, vmax=1)
        ax.set_title(title, fontsize=9)
    figure.tight_layout()
    figure.savefig(path, dpi=110)


if __name__ == "__main__":
    main()
