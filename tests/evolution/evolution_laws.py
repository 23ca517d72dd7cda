"""Laws to learn, samplers of points in the unit disc, and distances of what they learned."""

import numpy as np
import ot

from sklearn_dpgen.domains import Ball
from sklearn_dpgen.evolution import (
    PrivateEvolutionSampler,
    PrivateSignedMeasureSampler,
)


def two_clusters(n, seed=0):
    rng = np.random.default_rng(seed)
    y = rng.permutation(np.repeat(["low", "up"], [n // 4, n - n // 4]))
    centers = np.where((y == "up")[:, None], [0.5, 0.4], [-0.5, 0.1])
    return centers + 0.1 * rng.normal(size=(n, 2)), y


DISC = Ball(1.0, n_features=2)


def learner(name, epsilon, **options):
    options = {"domain": DISC, "labels": "public", "random_state": 0, "device": "cpu"} | options
    kind = PrivateEvolutionSampler if name == "evolution" else PrivateSignedMeasureSampler
    return kind(epsilon).set_params(**options)


def w1(X, Y):
    return ot.emd2([], [], ot.dist(X, Y, metric="euclidean"), numItermax=10**6)


def weighted_w1(sampler, X):
    """Return W1 of the weighted candidates and records."""
    (points,), (weights,) = sampler.candidates_, sampler.weights_
    kept = weights > 0
    distances = ot.dist(points[kept], X, metric="euclidean")
    masses = weights[kept] / weights[kept].sum()
    return ot.emd2(masses, np.full(len(X), 1 / len(X)), distances, numItermax=10**6)


def quadrant(n, seed=0):
    return abs(DISC.sample(n, np.random.default_rng(seed)))
