"""What is priced is drawn from the operating system's entropy, through the source of the noise.

Noise, secret batches, the directions that a price averages over and the number of runs of a search
are random, and a price rests on their distribution. Other random numbers may come from a generator
of 32 bits: initial weights, latents, candidates.
"""

import os
import random
import sys

import numpy as np
import pytest
import torch
from contract_cases import BOX, BUDGET, CASES, FRAME, LEARNER, SCHEMA, SIDE
from sklearn.base import clone

from sklearn_dpgen.accounting import PoissonRuns, ProjectionLaw
from sklearn_dpgen.accounting._selection import RandomRuns
from sklearn_dpgen.domains import OneHot
from sklearn_dpgen.mechanisms import (
    GaussianMechanism,
    JointRandomizedResponse,
    LaplaceMechanism,
    RandomizedResponse,
    StratifiedGaussianMechanism,
    TabularMechanism,
)
from sklearn_dpgen.model_selection import PrivateSearchCV
from sklearn_dpgen.ot import random_directions
from sklearn_dpgen.smoothed import private_sliced_wasserstein, smoothed_sliced_wasserstein
from sklearn_dpgen.utils import _random
from sklearn_dpgen.utils._random import NoiseObserver, NoiseSource, observed_noise, torch_generator

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")

RECORDS = FRAME.to_numpy()
# Of one draw, on other values: releases are rounded to a grid below a thousandth of the noise.
ROUNDED = 2e-3


def _fit(case):
    return lambda: case.fit(FRAME, SIDE, clone(case.estimator))


def _distance(**options):
    return lambda: smoothed_sliced_wasserstein(
        RECORDS, RECORDS[:9], domain=BOX, **BUDGET, **options
    )


def _histograms():
    return private_sliced_wasserstein(RECORDS, RECORDS[:9], domain=BOX, **BUDGET, level=None)


CENTRAL = {name: _fit(case) for name, case in CASES.items()} | {
    "distance": _distance(),
    "histograms": _histograms,
    "distance on one direction": _distance(n_projections=1),
    "distance on independent directions": _distance(n_projections=3, directions="independent"),
}
# Their fits take seconds, and release what the samplers within them do.
LEARNERS = ("synthetic classifier", "barycenter classifier")
NAMES = [
    pytest.param(name, marks=pytest.mark.slow) if name in LEARNERS else name for name in CENTRAL
]
# Those that draw secret batches; the others read every record in every release.
BATCHED = {
    "protected groups",
    *("sliced generator", "fair classifier", "fair regressor", "fair encoder", "sliced adapter"),
    *("smoothed generator", "smoothed adapter"),
    *("smoothed projections", "smoothed projections on one direction"),
}
LOCAL = {
    "Laplace": (LaplaceMechanism(2.0, domain=BOX), RECORDS),
    "Gaussian": (GaussianMechanism(2.0, 1e-4, domain=BOX), RECORDS),
    "response": (
        RandomizedResponse(2.0, domain=OneHot(2)),
        np.eye(2)[FRAME["b"].astype(int)],
    ),
    "table": (TabularMechanism(2.0, schema=SCHEMA), FRAME),
    "joint response": (JointRandomizedResponse(2.0, schema=SCHEMA), FRAME),
}


class Entropy:
    """The operating system's entropy: by itself for the source of the noise, and for all others.

    Parameters
    ----------
    noise, others : int or None
        Where the stream of each starts; None leaves it to the operating system. With a number for
        the others, generators of NumPy and PyTorch start there whatever their seed.
    """

    def __init__(self, monkeypatch, noise=None, others=None):
        self.streams = {True: noise, False: others}
        self.streams = {
            key: None if seed is None else np.random.default_rng(seed)
            for key, seed in self.streams.items()
        }
        urandom, default_rng = os.urandom, np.random.default_rng

        def read(n):
            stream = self.streams[isinstance(sys._getframe(1).f_locals.get("self"), NoiseSource)]
            return urandom(n) if stream is None else stream.bytes(n)

        monkeypatch.setattr(os, "urandom", read)
        if others is not None:
            np.random.seed(others)  # noqa: NPY002  # the global state, which is pinned
            random.seed(others)
            torch.manual_seed(others)
            # A seed that comes from the source of the noise is one of 2**32: it counts for nothing.
            monkeypatch.setattr(np.random, "default_rng", lambda seed=None: default_rng(others))
            for name, module in list(sys.modules.items()):
                if name.startswith("sklearn_dpgen") and hasattr(module, "torch_generator"):
                    monkeypatch.setattr(
                        module,
                        "torch_generator",
                        lambda seed, device="cpu": torch_generator(others, device),
                    )


class Watch(NoiseObserver):
    """Sees what a fit draws; with an earlier one it repeats its batches and what it released."""

    def __init__(self, earlier=None):
        self.values, self.noise, self.batches, self.uniforms = [], [], [], []
        self.repeated, self.earlier, self.has_directions = [], earlier, False

    def added(self, values, scale, kind, noisy):
        self.values.append(values.copy())
        self.noise.append((noisy - values) / scale)
        return self._repeat(noisy)

    def selected(self, scores, scale, indices):
        self.values.append(scores.copy())
        return self._repeat(indices)

    def drawn(self, n, indices):
        if indices.shape[-1] < n:
            self.batches.append(indices)
        return self._repeat(indices)

    def uniform(self, draws):
        self.uniforms.append(draws)
        return draws

    def _repeat(self, fresh):
        if self.earlier is not None:
            fresh = self.earlier.repeated[len(self.repeated)]
        self.repeated.append(fresh)
        return fresh


def watched(fit, earlier=None):
    """Fit under a Watch, which also says whether a price averages over directions."""
    watch, run = Watch(earlier), StratifiedGaussianMechanism.run

    def start(self, noise):
        watch.has_directions |= self.projections is not None
        return run(self, noise)

    with pytest.MonkeyPatch.context() as patch, observed_noise(watch):
        patch.setattr(StratifiedGaussianMechanism, "run", start)
        fit()
    return watch


def same(first, second, atol=0.0):
    """Return for each array whether it is the one of the other list."""
    return [
        a.shape == b.shape and np.allclose(a, b, rtol=0, atol=atol)
        for a, b in zip(first, second, strict=True)
    ]


def shares_what_is_priced(fit):
    """Return what two fits share of priced draws where only the source of the noise is fresh.

    The second repeats batches and outcomes of the first: whatever else it releases is another
    vector exactly where it comes of other directions.
    """
    with pytest.MonkeyPatch.context() as patch:
        Entropy(patch, others=7)
        first = watched(fit)
    with pytest.MonkeyPatch.context() as patch:
        Entropy(patch, others=7)
        second = watched(fit, first)
    assert first.values
    shared = set()
    if any(same(first.noise, second.noise, atol=ROUNDED)):
        shared.add("noise")
    # Of two batches in small strata some agree by chance.
    if first.batches and all(same(first.batches, second.batches)):
        shared.add("batches")
    moves = [not is_same for is_same in same(first.values, second.values)]
    if first.has_directions:
        if not all(moves):
            shared.add("directions")
    elif any(moves):
        # Not a price, but then this comparison would prove nothing of it.
        shared.add("something random that no price is known of")
    return shared


@pytest.mark.parametrize("name", NAMES)
def test_priced_draws_are_fresh_whatever_other_generators_give(name):
    assert shares_what_is_priced(CENTRAL[name]) == set()


@pytest.mark.parametrize("name", NAMES)
def test_priced_draws_come_from_the_source_of_the_noise_alone(name):
    """They repeat where its entropy does, though weights and latents are others."""
    # How many values are released depends on candidates, which are of another generator.
    others = 7 if "evolution" in name else None
    fits = []
    for _ in range(2):
        with pytest.MonkeyPatch.context() as patch:
            Entropy(patch, noise=7, others=others)
            fits.append(watched(CENTRAL[name]))
    first, second = fits
    assert all(same(first.batches, second.batches))
    assert all(same(first.uniforms, second.uniforms))
    assert all(same(first.noise, second.noise, atol=ROUNDED))
    assert bool(first.batches) == (name in BATCHED)
    assert first.has_directions == ("projections" in name or "distance" in name)


# The negative twins.


def of_a_torch_generator(law, noise):
    """Draw directions as they were once drawn, from 2**32 states."""
    U = random_directions(
        law.n_projections,
        law.n_features,
        kind=law.kind,
        generator=_random.torch_generator(noise.integers(2**32, 1).item()),
    )
    return U.double().numpy()


def of_numpy(law, noise):
    U = np.random.default_rng().normal(size=(law.n_projections, law.n_features))
    return U / np.linalg.norm(U, axis=1, keepdims=True)


@pytest.mark.parametrize("draw", [of_a_torch_generator, of_numpy])
@pytest.mark.parametrize(
    "name",
    [
        "smoothed projections",
        "smoothed projections on one direction",
        "smoothed adapter on projections",
        "distance",
    ],
)
def test_directions_of_other_generators_are_caught(name, draw, monkeypatch):
    monkeypatch.setattr(ProjectionLaw, "draw", draw)
    assert shares_what_is_priced(CENTRAL[name]) == {"directions"}


@pytest.mark.parametrize("name", ["sliced generator", "smoothed projections"])
def test_batches_of_other_generators_are_caught(name, monkeypatch):
    def draw(self, n, size):
        return torch.randperm(n, generator=_random.torch_generator(None)).numpy()[:size]

    monkeypatch.setattr(NoiseSource, "_choice", draw)
    monkeypatch.setattr(
        NoiseSource, "_choices", lambda self, n, size, k: np.array([draw(self, n, size)] * k)
    )
    assert "batches" in shares_what_is_priced(CENTRAL[name])


@pytest.mark.parametrize("name", ["moments", "sliced generator", "distance", "histograms"])
def test_noise_of_other_generators_is_caught(name, monkeypatch):
    def normal(self, size):
        return torch.randn(size, generator=_random.torch_generator(None)).double().numpy()

    monkeypatch.setattr(NoiseSource, "normal", normal)
    assert "noise" in shares_what_is_priced(CENTRAL[name])


# The number of runs of a search, and the answers of the local mechanisms.


class Enough(Exception):
    pass


def numbers_of_runs(n_fits=12, **entropy):
    """Return the numbers of candidates that unseeded searches would fit."""
    search, seen = PrivateSearchCV(LEARNER, {"n_samples": [100]}, n_runs=PoissonRuns(8.0)), []

    def stop(self, n_runs, *others):
        seen.append(n_runs)
        raise Enough

    for _ in range(n_fits):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(PrivateSearchCV, "_candidates", stop)
            Entropy(patch, **entropy)
            with pytest.raises(Enough):
                search.fit(FRAME[["a"]], FRAME["b"])
    return seen


@pytest.mark.slow
def test_numbers_of_runs_are_fresh_and_of_the_source_of_the_noise(monkeypatch):
    # Twelve draws of a Poisson number of mean 8 agree with a probability below 1e-9.
    assert len(set(numbers_of_runs(others=7))) > 1
    assert len(set(numbers_of_runs(noise=7))) == 1

    def of_numpy(self, noise):
        return 1 + int(np.random.default_rng().poisson(8))

    monkeypatch.setattr(RandomRuns, "draw", of_numpy)
    assert len(set(numbers_of_runs(others=7))) == 1


def answers(name, **entropy):
    mechanism, records = LOCAL[name]
    with pytest.MonkeyPatch.context() as patch:
        Entropy(patch, **entropy)
        released = clone(mechanism).fit(records).transform(records)
    return np.asarray(released, dtype=object)


@pytest.mark.parametrize("name", LOCAL)
def test_answers_are_fresh_and_of_the_source_of_the_noise(name, monkeypatch):
    def differ(**entropy):
        return not np.array_equal(answers(name, **entropy), answers(name, **entropy))

    assert differ(others=7)
    assert not differ(noise=7)
    monkeypatch.setattr(
        NoiseSource, "_uniform", lambda self, size: np.random.default_rng().uniform(size=size)
    )
    assert not differ(others=7)
