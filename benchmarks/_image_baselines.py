"""Deconvolution of images without a network: what a server can do with y = x + noise in seconds.

``Y`` holds privatized vectors, ``variance`` the known variance of the noise of each coordinate.
All but the wavelets learn a law of the raw vectors and draw from it, as a generator does:

- normals: the mean and the covariance of Y, less that of the noise, without what is negative;
- low rank: the same, of the eigenvectors alone that stand out of the noise;
- particles: a law on points of the subspace of "low rank", by EM, which is maximum likelihood for
  Gaussian noise;
- mixture: a mixture of normals fitted to Y in that subspace, the covariance of the noise taken off
  each (extreme deconvolution, where no covariance becomes negative).

In a subspace Laplace noise is a sum of many terms, near enough to Gaussian of the same variance.
"""

import warnings
from importlib import import_module
from typing import NamedTuple

import numpy as np
from sklearn.exceptions import ConvergenceWarning
from sklearn.mixture import GaussianMixture

__all__ = ["CHEAP", "denoised", "moments"]

_MOST_DIRECTIONS = 30
_MOST_RECORDS = 30_000


class Moments(NamedTuple):
    """Mean of raw vectors, eigenvectors and roots of the eigenvalues of their covariance.

    Of ``coordinates``, of some privatized vectors in the leading directions, ``k`` stand out of the
    noise.
    """

    mean: np.ndarray
    vectors: np.ndarray
    spread: np.ndarray
    coordinates: np.ndarray
    variance: float

    @property
    def k(self):
        return self.coordinates.shape[1]


def moments(Y, variance):
    """Take the known noise off the mean and the covariance of privatized vectors."""
    mean = Y.mean(0)
    values, vectors = np.linalg.eigh(np.cov(Y, rowvar=False))
    values, vectors = values[::-1], vectors[:, ::-1]
    edge = variance * (1 + np.sqrt(Y.shape[1] / len(Y))) ** 2
    k = int(min(max(1, (values > edge).sum()), _MOST_DIRECTIONS))
    coordinates = ((Y[:_MOST_RECORDS] - mean) @ vectors[:, :k]).astype(np.float32)
    spread = np.sqrt(np.maximum(values - variance, 0))
    return Moments(mean, vectors, spread, coordinates, variance)


def normals(moments, rng):
    """Return a function of n that draws from the normal law with deconvolved moments."""
    mean, vectors, spread, *_ = moments
    return lambda n: mean + rng.normal(size=(n, len(spread))) * spread @ vectors.T


def low_rank(moments, rng):
    """The same, on the directions that stand out of the noise."""
    mean, vectors, spread = (
        moments.mean,
        moments.vectors[:, : moments.k],
        moments.spread[: moments.k],
    )
    return lambda n: mean + rng.normal(size=(n, len(spread))) * spread @ vectors.T


def particles(moments, rng, n_points=1000, n_iter=15):
    """EM for a law on points: each becomes the mean of what it may have made."""
    mean, vectors, _, C, variance = moments
    points = C[rng.choice(len(C), n_points, replace=False)]
    weights = np.full(n_points, 1 / n_points)
    for _ in range(n_iter):
        sums, counts = np.zeros_like(points), np.zeros(n_points)
        for part in np.array_split(C, max(1, len(C) // 4000)):
            log = part @ points.T - (points**2).sum(1) / 2
            log = (log / variance + np.log(weights + 1e-30)).astype(np.float32)
            log = np.exp(log - log.max(1, keepdims=True))
            log /= log.sum(1, keepdims=True)
            sums += log.T @ part
            counts += log.sum(0)
        points = sums / np.maximum(counts, 1e-9)[:, None].astype(np.float32)
        weights = counts / counts.sum()
    return lambda n: mean + points[rng.choice(n_points, n, p=weights)] @ vectors[:, : moments.k].T


def mixture(moments, rng, n_components=40, n_iter=15):
    """A mixture of normals in the subspace, the noise taken off its covariances."""
    mean, vectors, _, C, variance = moments
    vectors = vectors[:, : moments.k]
    model = GaussianMixture(
        n_components,
        max_iter=n_iter,
        init_params="k-means++",
        reg_covar=1e-3,
        random_state=int(rng.integers(2**31)),
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        model.fit(C)
    factors = []
    for covariance in model.covariances_:
        values, axes = np.linalg.eigh(covariance)
        factors.append(axes * np.sqrt(np.maximum(values - variance, 0)))

    def draw(n):
        chosen = rng.choice(n_components, n, p=model.weights_)
        noise = rng.normal(size=(n, vectors.shape[1]))
        C = model.means_[chosen] + np.einsum("nij,nj->ni", np.array(factors)[chosen], noise)
        return mean + C @ vectors.T

    return draw


CHEAP = {"normals": normals, "low rank": low_rank, "particles": particles, "mixture": mixture}


def denoised(images, raw, scale, wavelets=("haar", "db2", "sym4"), levels=(1, 2)):
    """Denoise privatized images one by one, by soft thresholds on their wavelet coefficients.

    As in the paper, the wavelet, its level and the threshold are those that come nearest to the
    raw images, which nobody could know.
    """
    multiples = scale * np.array([0.5, 1, 1.5, 2, 3, 4, 6])
    options = [(w, level, t) for w in wavelets for level in levels for t in multiples]
    few = slice(200)
    best = min(options, key=lambda option: np.mean((_soft(images[few], *option) - raw[few]) ** 2))
    return _soft(images, *best), best


def _soft(images, wavelet, level, threshold):
    pywt = import_module("pywt")  # Of wavelets alone: other methods do without.
    tree = pywt.wavedec2(
        images.reshape(-1, 28, 28), wavelet, mode="periodization", level=level, axes=(1, 2)
    )
    kept = [tree[0]] + [
        tuple(pywt.threshold(d, threshold, "soft") for d in details) for details in tree[1:]
    ]
    out = pywt.waverec2(kept, wavelet, mode="periodization", axes=(1, 2))
    return out[:, :28, :28].reshape(len(images), -1).clip(-1, 1)
