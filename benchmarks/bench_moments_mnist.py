"""MNIST from released moments, private labels, delta 1e-5: accuracy of what can be trained.

60000 synthetic images with their labels train a classifier, which is tested on the 10000 real test
images: logistic regression and a perceptron of scikit-learn, and a small convolutional network of
our own. The protocol of DPImageBench, which has others, is bench_image_protocol.py. Settings were
chosen on the last 10000 training images, with fits on the others (``--validate``); epsilon does not
pay for that.

"images" is MomentImageSampler as it comes, "no deformation" the same without random deformations,
"vectors" the cheapest thing: MomentSampler on the cosine coefficients, and what it draws cut to the
range of the pixels. The Fréchet distance is taken in the last hidden layer of a classifier of raw
images, as in bench_mnist.py.
"""

import argparse
import time
import warnings
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import torch
from _common import record
from bench_mnist import classifier_features
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression
from sklearn.neural_network import MLPClassifier
from torch import nn

from sklearn_dpgen.datasets import fetch_mnist
from sklearn_dpgen.domains import Ball
from sklearn_dpgen.metrics import frechet_distance
from sklearn_dpgen.moments import MomentImageSampler, MomentSampler
from sklearn_dpgen.preprocessing import DCTTransformer

IMAGE = Path(__file__).parents[1] / "doc" / "images" / "moments_mnist.png"
PRIVACY = {"labels": "private", "classes": list(range(10))}


class CosineNormals:
    """MomentSampler on the 10 x 10 lowest cosines of images, cut to the range of the pixels."""

    def __init__(self, epsilon, seed):
        mask = np.zeros((28, 28), dtype=bool)
        mask[:10, :10] = True
        self.dct = DCTTransformer((28, 28), mask=mask).fit(np.zeros((1, 784)))
        grey = self.dct.transform(np.full((1, 784), 0.5))[0]
        self.sampler = MomentSampler(
            epsilon, 1e-5, domain=Ball(14.0, center=grey), random_state=seed, **PRIVACY
        )

    def fit(self, X, y):
        self.sampler.fit(self.dct.transform(X), y)
        self.sample_labels = self.sampler.sample_labels
        return self

    def sample(self, n, *, y, random_state):
        C = self.sampler.sample(n, y=y, random_state=random_state)
        return self.dct.inverse_transform(C).clip(0, 1).astype(np.float32)


def images(epsilon, seed, **options):
    return MomentImageSampler(
        epsilon,
        1e-5,
        shape=(28, 28),
        pixel_range=(0, 1),
        random_state=seed,
        **PRIVACY,
        **options,
    )


METHODS = {
    "images": images,
    "no deformation": lambda epsilon, seed: images(epsilon, seed, deformation=0.0),
    "vectors": CosineNormals,
}


def convolutional(S, labels, seed, n_epochs=4):
    """Train a small convolutional network; return it as a function to labels."""
    torch.manual_seed(seed)
    net = nn.Sequential(
        nn.Unflatten(1, (1, 28, 28)),
        nn.Conv2d(1, 32, 5, stride=2),
        nn.ReLU(),
        nn.Conv2d(32, 64, 5, stride=2),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(1024, 128),
        nn.ReLU(),
        nn.Linear(128, 10),
    )
    S, labels = torch.tensor(S, dtype=torch.float32), torch.tensor(labels.astype(np.int64))
    n_steps = n_epochs * -(-len(S) // 128)
    optimizer = torch.optim.Adam(net.parameters(), 2e-3)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 2e-3, total_steps=n_steps)
    for _ in range(n_epochs):
        for rows in torch.randperm(len(S)).split(128):
            optimizer.zero_grad()
            nn.functional.cross_entropy(net(S[rows]), labels[rows]).backward()
            optimizer.step()
            schedule.step()

    @torch.no_grad()
    def predict(X):
        parts = torch.tensor(X, dtype=torch.float32).split(2000)
        return torch.cat([net(part) for part in parts]).argmax(1).numpy()

    return predict


def accuracies(S, labels, X, y, seed):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        logistic = LogisticRegression(max_iter=100).fit(S, labels)
        perceptron = MLPClassifier(max_iter=12, random_state=seed).fit(S, labels)
    found = {"LogReg": logistic.score(X, y), "MLP": perceptron.score(X, y)}
    start = time.process_time()
    predict = convolutional(S, labels, seed)
    found["seconds of convolutional"] = time.process_time() - start
    found["convolutional"] = float(np.mean(predict(X) == y))
    return found


def picture(grids):
    figure, axes = plt.subplots(1, len(grids), figsize=(2.5 * len(grids), 3.8))
    for ax, (title, X) in zip(axes, grids.items(), strict=True):
        tiles = X.reshape(10, 7, 28, 28).transpose(0, 2, 1, 3).reshape(280, 196)
        ax.imshow(tiles, cmap="gray_r", vmin=0, vmax=1)
        ax.set_title(title, fontsize=10)
        ax.axis("off")
    figure.tight_layout()
    figure.savefig(IMAGE, dpi=90)


def main(args):
    torch.set_num_threads(1)
    data = fetch_mnist()
    features, _ = classifier_features(data)
    X, y = data.X_train / 255.0, data.y_train
    X_test, y_test = data.X_test / 255.0, data.y_test
    if args.validate:
        X, X_test, y, y_test = X[:50000], X[50000:], y[:50000], y[50000:]

    def distance(S):
        return frechet_distance(2 * S - 1, 2 * X_test - 1, feature_extractor=features)

    real = np.vstack([X[y == code][:7] for code in range(10)])
    rows, grids = [], {"real": real}
    if args.real:
        rows.append({"method": "real images", "epsilon": np.inf, "run": 0, "fit seconds": 0.0})
        rows[0] |= {"Frechet": distance(X[:10000])} | accuracies(X, y, X_test, y_test, 0)
    for seed in range(args.runs):
        for epsilon in args.epsilon:
            for method in args.methods:
                start = time.process_time()
                sampler = METHODS[method](epsilon, seed).fit(X, y)
                row = {"method": method, "epsilon": epsilon, "run": seed}
                row["fit seconds"] = time.process_time() - start
                labels = sampler.sample_labels(args.samples, random_state=seed)
                S = sampler.sample(args.samples, y=labels, random_state=seed)
                row["Frechet"] = distance(S[:10000])
                row |= accuracies(S, labels, X_test, y_test, seed)
                rows.append(row)
                print(row, flush=True)
                record("moments_mnist" + "_validation" * args.validate, rows, vars(args))
                if seed == 0:
                    kinds = np.repeat(np.arange(10), 7)
                    grids[f"{method}, ε = {epsilon:g}"] = sampler.sample(
                        70, y=kinds, random_state=0
                    )
    if not args.validate:
        picture(grids)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epsilon", type=float, nargs="+", default=[1.0, 10.0])
    parser.add_argument("--methods", nargs="+", default=list(METHODS))
    parser.add_argument("--samples", type=int, default=60000)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--real", action="store_true", help="classifiers of real images too")
    parser.add_argument("--validate", action="store_true", help="on training images")
    main(parser.parse_args())
