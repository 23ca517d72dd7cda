"""A noisy release of first and second moments of unit vectors by class, and what follows from it.

A record u of class y adds (u in the row of y, w vech(u uᵀ), 1/√2 in the count of y), entries of
vech beside the diagonal times √2. Two unit vectors with inner product t differ by

- 2 - 2t + 2 w² (1 - t²) of the same class, at most 4 for w = 1/√2 (at t = -1);
- 2 + 2 w² (1 - t²) + 1 of two classes, at most 4 for w = 1/√2 (at t = 0),

squared: for w = 1/√2 the sensitivity is 2, that of the class means alone, so that the second moment
and the counts come on top for nothing. A record that is removed changes 1 + w² + 1/2.

``pooled`` adds up the second moments of all classes before noise is added, else each class has its
own: the same sensitivity, but the noise of the pooled covariance has √k times the scale.
"""

import math
from typing import NamedTuple

import numpy as np
from sklearn.isotonic import isotonic_regression

from sklearn_dpgen.accounting import gaussian_sigma

__all__ = ["Moments", "Normals", "fit_normals", "nearest_mean", "release", "ridge", "sensitivity"]

COUNT_WEIGHT = math.sqrt(0.5)
# Least eigenvalue, of their mean; what ridge adds, of the edge of the noise; and how much of a
# squared norm of 1 is expected to be between classes. Chosen on the data sets to choose on.
FLOOR, RIDGE, BETWEEN = 0.6, 0.25, 0.4


class Moments(NamedTuple):
    """Noisy sums of classes, their noisy counts, noisy second moments, and the noise of each."""

    sums: np.ndarray
    counts: np.ndarray
    second: np.ndarray
    scale: float
    weight: float
    n: int

    @property
    def means(self):
        return self.sums / self.counts[:, None]

    @property
    def edge(self):
        """Largest eigenvalue of the noise of the second moments."""
        return self.scale / self.weight * math.sqrt(2 * self.sums.shape[1])


def sensitivity(weight, relation="replace"):
    if relation == "remove":
        return math.sqrt(1 + weight**2 + COUNT_WEIGHT**2)
    of_two_classes = 2 + 2 * weight**2 + 2 * COUNT_WEIGHT**2
    if weight <= COUNT_WEIGHT:
        return math.sqrt(max(4, of_two_classes))
    return math.sqrt(max(2 + 2 * weight**2 + 1 / (2 * weight**2), of_two_classes))


def release(data, epsilon, delta, rng, *, weight=COUNT_WEIGHT, pooled=True, relation="replace"):
    """Return moments under one Gaussian mechanism; the number of records is public."""
    X, y, k = data.X.astype(float), data.y, data.n_classes
    n, d = X.shape
    scale = gaussian_sigma(epsilon, delta, sensitivity(weight, relation))
    sums = np.stack([X[y == label].sum(axis=0) for label in range(k)])
    sums += scale * rng.standard_normal(sums.shape)
    counts = np.bincount(y, minlength=k) + scale / COUNT_WEIGHT * rng.standard_normal(k)
    counts = np.maximum(counts, max(10.0, 2 * scale))
    parts = [X] if pooled else [X[y == label] for label in range(k)]
    second = []
    for part in parts:
        noise = rng.standard_normal((d, d)) * scale / weight
        # Halves of two normals: variance s²/2 beside the diagonal, s² on it.
        second.append(part.T @ part + np.tril(noise, -1) / math.sqrt(2))
        second[-1] += np.tril(noise, -1).T / math.sqrt(2) + np.diag(np.diag(noise))
    return Moments(sums, counts * n / counts.sum(), np.stack(second), scale, weight, n)


def nearest_mean(moments):
    """Return weights of the class mean of the largest cosine."""
    return (moments.means / np.linalg.norm(moments.means, axis=1, keepdims=True)).T


def ridge(moments):
    """Return weights of the regression of class indicators."""
    values, vectors = np.linalg.eigh(moments.second.sum(axis=0))
    strength = RIDGE * moments.edge * math.sqrt(len(moments.second))
    values = np.maximum(values, 0) + strength + 1e-3 * moments.n / len(values)
    return vectors @ (vectors.T @ moments.sums.T / values[:, None])


class Normals(NamedTuple):
    """A normal a class with a covariance that they share, in its eigenbasis."""

    means: np.ndarray
    values: np.ndarray
    vectors: np.ndarray
    counts: np.ndarray

    def scores(self, X):
        """Return those of linear discriminants."""
        means = self.means @ self.vectors
        weights = means / self.values
        squares = (weights * means).sum(axis=1)
        return (X @ self.vectors) @ weights.T - squares / 2 + np.log(self.counts)

    def sample(self, n, rng):
        """Return unit vectors and their labels, as frequent as the counts say."""
        y = np.repeat(np.arange(len(self.means)), _shares(self.counts, n))
        noise = rng.standard_normal((len(y), len(self.values))) * np.sqrt(self.values)
        X = self.means[y] + noise @ self.vectors.T
        return X / np.linalg.norm(X, axis=1, keepdims=True), y


def fit_normals(moments):
    """Return normals: means drawn to that of all, and a covariance of shrunk eigenvalues.

    The mean of a class keeps the share p / (p + s²) of its difference, of noise s a column and
    p = `BETWEEN` / d. The covariance is the second moment less those of the means. An eigenvalue l
    of the sum of a matrix and of noise becomes l - 2 r² Re g(l), where r is half the edge of the
    noise and g the Stieltjes transform of all of them, which is best among estimates that keep
    the eigenvectors (Bun, Allez, Bouchaud and Potters, IEEE Transactions on Information Theory
    2016). Their sum is known, for norms are 1.
    """
    means, counts, n = moments.means, moments.counts, moments.n
    d = means.shape[1]
    mean_noise = moments.scale / counts
    between = (means.T * counts) @ means / n
    between -= np.eye(d) * (counts * mean_noise**2).sum() / n
    total = max(1 - np.trace(between), 0.1)
    values, vectors = np.linalg.eigh(moments.second.sum(axis=0) / n - between)
    half_edge = moments.edge * math.sqrt(len(moments.second)) / 2 / n
    gaps = values[:, None] - values
    width = half_edge / math.sqrt(d)
    transform = (gaps / (gaps**2 + width**2)).mean(axis=1)
    values = isotonic_regression(values - 2 * half_edge**2 * transform)
    values = np.maximum(values, FLOOR * total / d)
    center = moments.sums.sum(axis=0) / n
    kept = (BETWEEN / d) / (BETWEEN / d + mean_noise**2)
    means = center + kept[:, None] * (means - center)
    return Normals(means, values * total / values.sum(), vectors, counts)


def _shares(counts, n):
    ends = np.round(np.cumsum(counts) / counts.sum() * n).astype(int)
    return np.diff(ends, prepend=0)
