"""A generator of a few steps, a table with labels, and a look at what is released."""

from functools import partial
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from sklearn_dpgen.domains import Box
from sklearn_dpgen.mechanisms._sampled import StratifiedGaussianRun
from sklearn_dpgen.smoothed import SmoothedSlicedWassersteinGenerator


def pytest_collection_modifyitems(items):
    """Ignore that tables of some rows are drowned in noise; the tests of the warning look at it."""
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.filterwarnings("ignore:All releases together"))


@pytest.fixture
def tiny_generator():
    """Return a function that makes a generator to run through, not to learn."""

    def make(**options):
        small = {
            "domain": partial(Box, -3, 3),
            "labels": "public",
            "training__hidden_layer_sizes": (4,),
            "latent_dim": 2,
            "release__n_projections": 4,
            "n_generated": 4,
            "release__n_epochs": 2.0,
            "training__max_iter": 3,
            "random_state": 0,
        }
        return SmoothedSlicedWassersteinGenerator().set_params(**small | options)

    return make


@pytest.fixture
def labelled():
    """Return 40 records, of two classes with 16 and 24."""
    rng = np.random.default_rng(0)
    y = rng.permutation(["a"] * 16 + ["b"] * 24)
    return SimpleNamespace(X=rng.normal(size=(40, 3)), y=y)


@pytest.fixture
def weights_of():
    """Return a function from a fitted generator to its parameters, as one array."""

    def flatten(generator):
        parameters = generator.generator_.parameters()
        return torch.cat([p.detach().flatten() for p in parameters]).numpy()

    return flatten


@pytest.fixture
def released(monkeypatch):
    """Return a list that collects, of each call, what went in and what came out."""
    seen = []
    release = StratifiedGaussianRun.release

    def watch(self, value):
        seen.append((value.copy(), release(self, value)))
        return seen[-1][1]

    monkeypatch.setattr(StratifiedGaussianRun, "release", watch)
    return seen


@pytest.fixture
def drawn(monkeypatch):
    """Return a list that collects, of each call, the mechanism and the batches."""
    seen = []
    draw = StratifiedGaussianRun.draw

    def watch(self, n_releases=None):
        seen.append((self._mechanism, draw(self, n_releases)))
        return seen[-1][1]

    monkeypatch.setattr(StratifiedGaussianRun, "draw", watch)
    return seen
