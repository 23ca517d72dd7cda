"""Fits of the evolution samplers in all their settings, to see what they let out."""

import numpy as np
import pytest
import torch

from sklearn_dpgen.domains import Box
from sklearn_dpgen.evolution import (
    LatentVariation,
)

SAMPLERS = ["evolution", "measure"]
KINDS = ["none", "public", "private"]
BASE = "sklearn_dpgen.evolution._voting_sampler"


def train(sampler, table, kind):
    """Fit with the labels that its kind takes."""
    if kind == "none":
        return sampler.fit(table.X)
    sampler.set_params(labels=kind)
    if kind == "private" and sampler.classes is None:
        sampler.set_params(classes=["a", "b"])
    return sampler.fit(table.X, table.y)


def squares(X, V):
    return ((X[:, None] - V[None]) ** 2).sum(axis=-1)


def folded(X):
    return np.hstack([abs(X), X[:, :1] ** 2])


class Rotation:
    def transform(self, X):
        return X @ np.array([[0.6, 0.8, 0], [-0.8, 0.6, 0], [0, 0, 3.0]])


def latents():
    torch.manual_seed(0)
    network = torch.nn.Sequential(torch.nn.Linear(2, 8), torch.nn.Tanh(), torch.nn.Linear(8, 3))
    return LatentVariation(network, 2, domain=Box(-2, 2, n_features=3), device="cpu")


EVOLUTION = [
    {},
    {"schedule": "theory", "votes__variant": "theory"},
    {"votes__histogram": "laplace_threshold", "votes__postprocess": "threshold"},
    {"votes__postprocess": "bounded_lipschitz", "metric": "l1"},
    {"embedding": folded, "metric": "cosine"},
    {"embedding": Rotation()},
    {"metric": squares, "smoothing": 1.0},
    {"interface": latents(), "classes": ["a", "b"]},
    {"label_proportions": [0.5, 0.5]},
]
MEASURE = [
    {},
    {"metric": "l1", "votes__postprocess": "simplex"},
    {"votes__histogram": "laplace_threshold", "votes__postprocess": "threshold"},
    {"support": 2 * np.random.default_rng(3).uniform(-1, 1, size=(40, 3)), "metric": squares}
    | {"votes__postprocess": "simplex"},
]
SETTINGS = [*(("evolution", o) for o in EVOLUTION), *(("measure", o) for o in MEASURE)]
IDS = [f"{name}-{'-'.join(options) or 'default'}" for name, options in SETTINGS]
settings = pytest.mark.parametrize(("name", "options"), SETTINGS, ids=IDS)
kinds = pytest.mark.parametrize("kind", KINDS)
samplers = pytest.mark.parametrize("name", SAMPLERS)
