"""A look at the releases of a fit, examples that stay the same, and what tests share besides."""

import gc
import re
from functools import cache
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import HealthCheck, settings

from sklearn_dpgen.mechanisms._sequence import GaussianSequenceRun, ThresholdedLaplaceRun

# No example depends on chance, and no failure on the load of the machine.
_PATIENT = {"deadline": None, "suppress_health_check": [HealthCheck.too_slow]}
settings.register_profile("same", derandomize=True, **_PATIENT)
settings.register_profile("explore", derandomize=False, print_blob=True, **_PATIENT)
settings.load_profile("same")

_PRIVATE = re.compile(
    r"sklearn_dpgen[\w.]*\._[a-z]"
    r"|from sklearn_dpgen[\w.]* import (?:[^(\n]*\b_[a-z]|\([^)]*\b_[a-z])",
    flags=re.IGNORECASE,
)


@cache
def is_whitebox(path):
    """Return whether a module of tests names private modules or objects of the package."""
    return _PRIVATE.search(path.read_text(encoding="utf-8")) is not None


def pytest_itemcollected(item):
    if is_whitebox(item.path):
        item.add_marker(pytest.mark.whitebox)


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
