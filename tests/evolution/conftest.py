"""Samplers of a few steps, a table with labels, and a look at what is released."""

import copy
from functools import cache
from types import SimpleNamespace

import numpy as np
import pytest

from sklearn_dpgen.domains import Box
from sklearn_dpgen.evolution import PrivateEvolutionSampler, PrivateSignedMeasureSampler
from sklearn_dpgen.mechanisms import _sequence

# Calibration takes longer than such a fit.
LAPLACE_SCALE = cache(_sequence._laplace_scale)
PLAN = "sklearn_dpgen.evolution._evolution_sampler"
SMALL = {"domain": Box(-2, 2, n_features=3), "random_state": 0, "device": "cpu"}


def make_sampler(kind, **options):
    """Return a sampler, "evolution" or "measure", that runs through in milliseconds."""
    options = {"labels": "public", **options}
    if kind == "evolution":
        sampler = PrivateEvolutionSampler(n_samples=12, n_iter=3, **SMALL)
    else:
        sampler = PrivateSignedMeasureSampler(n_points=27, **SMALL)
    return sampler.set_params(**options)


@pytest.fixture
def sampler_of(monkeypatch):
    """Return :func:`make_sampler`."""
    monkeypatch.setattr("sklearn_dpgen.mechanisms._sequence._laplace_scale", LAPLACE_SCALE)
    # Noise drowns the votes of so few records, and it is said.
    monkeypatch.setattr(f"{PLAN}.warn_of_noise", lambda *args: None)
    return make_sampler


@pytest.fixture
def labelled():
    """Return 60 records of two classes, 20 and 40."""
    rng = np.random.default_rng(0)
    y = rng.permutation(["a"] * 20 + ["b"] * 40)
    return SimpleNamespace(X=rng.uniform(-2, 2, size=(60, 3)), y=y)


@pytest.fixture
def fitted_of():
    """Return a function from a fitted sampler to all that came of its records."""

    def collect(sampler):
        parts = [*sampler.candidates_, *sampler.weights_]
        for step in sampler.history_:
            for votes in step:
                parts += [votes.candidates, votes.votes, votes.weights]
        parts += [getattr(sampler, "label_proportions_", np.ones(1))]
        return parts

    return collect


@pytest.fixture
def same(fitted_of):
    """Return whether two fitted samplers are the same, to the last bit."""

    def compare(first, second):
        pairs = list(zip(fitted_of(first), fitted_of(second), strict=False))
        return len(fitted_of(first)) == len(fitted_of(second)) and all(
            np.array_equal(one, other) for one, other in pairs
        )

    return compare


@pytest.fixture
def unlike():
    """Return another table of the same public quantities; with private labels, other labels too."""

    def change(table, kind):
        other = copy.copy(table)
        other.X = 1.9 * np.cos(5 * table.X[::-1])
        if kind == "private":
            other.y = np.random.default_rng(7).choice(["a", "b"], size=len(table.y), p=[0.8, 0.2])
        return other

    return change
