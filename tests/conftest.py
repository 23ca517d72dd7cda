"""A look at the releases of a fit, and garbage collection that leaves out what stays."""

import gc
from types import SimpleNamespace

import numpy as np
import pytest

from sklearn_dpgen.mechanisms._sequence import GaussianSequenceRun, ThresholdedLaplaceRun


@pytest.hookimpl(hookwrapper=True)
def pytest_collection():
    """Keep modules and collected tests out of garbage collection.

    They stay to the end, and each full collection would go through all of them.
    """
    gc.disable()
    yield
    gc.enable()
    gc.collect()
    gc.freeze()


@pytest.fixture
def released(monkeypatch):
    """Return a list that collects, of each release, its scale, what went in and what came out."""
    seen = []

    def watched(run, scale_of):
        release = run.release

        def watch(self, value, noise):
            scale = scale_of(self)
            seen.append(SimpleNamespace(scale=scale, value=value.copy()))
            seen[-1].out = release(self, value, noise)
            return seen[-1].out

        monkeypatch.setattr(run, "release", watch)

    watched(GaussianSequenceRun, lambda run: run._scales[0])
    watched(ThresholdedLaplaceRun, lambda run: run._mechanism.noise_scale)
    return seen


@pytest.fixture
def forced(monkeypatch):
    """Return a list of the counts that went in, where what comes out is no matter of theirs."""
    seen = []

    def force(self, value, noise):
        seen.append(value.copy())
        # Public draws that look like votes: of the size, of the place in the sequence.
        rng = np.random.default_rng([len(seen), value.size])
        return 60 * rng.dirichlet(np.full(value.size, 0.2)) + rng.normal(size=value.size)

    for run in (GaussianSequenceRun, ThresholdedLaplaceRun):
        monkeypatch.setattr(run, "release", force)
    return seen
