"""The noise on the votes of the evolution samplers: its law, its budget, its seeds."""

import math
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from evolution_fits import (
    kinds,
    samplers,
    train,
)
from numpy.testing import assert_array_equal

from sklearn_dpgen.accounting import gaussian_sigma
from sklearn_dpgen.domains import Box
from sklearn_dpgen.evolution import EuclideanVariation, _voting_sampler
from sklearn_dpgen.utils._random import NoiseSource, noise_source

# Noise, and where it is made.
NOISE = "sklearn_dpgen.ledger._base.noise_source"


def standard(noise):
    """Whether values have the moments of independent standard normals, to 5 sigma."""
    n = noise.size
    return bool(
        abs(noise.mean()) * math.sqrt(n) < 5
        and abs((noise**2).mean() - 1) * math.sqrt(n / 2) < 5
        and abs((noise**4).mean() - 3) * math.sqrt(n / 96) < 5
        and abs((noise[:-1] * noise[1:]).mean()) * math.sqrt(n) < 5
    )


def noise_of(sampler, table, kind, released):
    """Return the noise on the votes in units of what the report states for each release."""
    released.clear()
    train(sampler, table, kind)
    stated = sampler.privacy_.noise_scale
    scales = list(stated.values()) if isinstance(stated, dict) else [stated] * len(released)
    return np.concatenate(
        [(r.out - r.value) / scale for r, scale in zip(released, scales, strict=True)]
    )


class Halved(NoiseSource):
    def normal(self, size):
        return super().normal(size) / 2


class Repeated(NoiseSource):
    def normal(self, size):
        return np.full(size, super().normal(1))


MANY = {"evolution": {"n_samples": 400}, "measure": {"n_points": 3000}}


@samplers
@kinds
def test_the_noise_is_what_the_report_states(
    sampler_of, labelled, released, monkeypatch, name, kind
):
    options = MANY[name] | {"votes__postprocess": "simplex"}
    noise = noise_of(sampler_of(name, **options), labelled, kind, released)
    assert noise.size > 2000
    assert standard(noise)
    for broken in (Halved, Repeated):
        monkeypatch.setattr(NOISE, lambda *a, b=broken, **k: b())
        assert not standard(noise_of(sampler_of(name, **options), labelled, kind, released))


@samplers
def test_what_is_stated_keeps_to_the_budget(sampler_of, labelled, name):
    for options in ({}, {"schedule": "theory"})[: 2 if name == "evolution" else 1]:
        sampler = sampler_of(name, epsilon=0.7, delta=1e-4, **options).fit(labelled.X)
        stated = sampler.privacy_
        scale = stated.noise_scale
        scales = list(scale.values()) if isinstance(scale, dict) else [scale] * stated.n_releases
        together = 1 / math.sqrt(sum(1 / s**2 for s in scales))
        assert together == pytest.approx(gaussian_sigma(0.7, 1e-4, math.sqrt(2)), rel=1e-8)
        assert sampler.noise_multiplier_ == pytest.approx(together / math.sqrt(2))
        assert len(scales) == (3 if name == "evolution" else 1)


@samplers
@pytest.mark.parametrize("histogram", ["gaussian", "laplace_threshold"])
@kinds
def test_without_a_budget_there_is_no_noise(sampler_of, labelled, released, name, histogram, kind):
    sampler = train(sampler_of(name, epsilon=np.inf, votes__histogram=histogram), labelled, kind)
    assert all(np.array_equal(r.value, r.out) for r in released)
    assert (sampler.noise_multiplier_, sampler.privacy_.noise_scale) == (0, 0)
    assert (sampler.privacy_.epsilon, sampler.privacy_.delta) == (np.inf, 0)
    if kind != "none":
        np.testing.assert_allclose(sampler.label_proportions_, [1 / 3, 2 / 3])


@samplers
def test_a_release_too_many_is_refused(sampler_of, labelled, monkeypatch, name):
    count = _voting_sampler.VotingSampler._count

    def twice(self, *args):
        count(self, *args)
        return count(self, *args)

    for histogram in ("gaussian", "laplace_threshold"):
        sampler_of(name, votes__histogram=histogram, epsilon=50.0).fit(labelled.X)
        with monkeypatch.context() as patch:
            patch.setattr(_voting_sampler.VotingSampler, "_count", twice)
            with pytest.raises(RuntimeError, match="budget paid for"):
                sampler_of(name, votes__histogram=histogram, epsilon=50.0).fit(labelled.X)


# Seeds.


@samplers
@kinds
def test_records_with_the_same_votes_give_the_same_fit(sampler_of, labelled, same, name, kind):
    """A fit knows of a record but its votes: neither its place in the table nor its digits."""
    first = train(sampler_of(name), labelled, kind)
    order = np.random.default_rng(5).permutation(60)
    moved, other = labelled.X.copy(), labelled.X.copy()
    moved[7] += 1e-9
    other[7] *= -1
    y = labelled.y
    assert same(
        first, train(sampler_of(name), SimpleNamespace(X=labelled.X[order], y=y[order]), kind)
    )
    assert same(first, train(sampler_of(name), SimpleNamespace(X=moved, y=y), kind))
    assert not same(first, train(sampler_of(name), SimpleNamespace(X=other, y=y), kind))


POINTS = np.linspace(-1.9, 1.9, 1000)[:, None]


def same_counts_new_noise(sampler_of, released, *fits):
    """Whether two fits of the same budget and seed, and the same counts, have other noise."""
    noise, counts = [], []
    for support, X, y in fits:
        options = {"support": support, "votes__postprocess": "simplex", "domain": Box(-2, 20)}
        sampler = sampler_of("measure", **options)
        kind = "none" if y is None else "private"
        noise.append(noise_of(sampler, SimpleNamespace(X=X, y=y), kind, released))
        counts.append(released[0].value)
    assert_array_equal(*counts)
    return abs(np.corrcoef(*noise)[0, 1]) < 5 / math.sqrt(noise[0].size)


def test_noise_is_for_one_set_of_candidates(sampler_of, released):
    """Equal noise on equal counts would tell that counts of other candidates are equal."""
    X = POINTS[::20]
    fit = (POINTS, X, None)
    assert not same_counts_new_noise(sampler_of, released, fit, fit)
    assert same_counts_new_noise(sampler_of, released, fit, (POINTS + 1e-6, X, None))


def test_noise_is_for_one_layout(sampler_of, released):
    """Records without labels, and in two private classes, share counts but not noise."""
    first, second = POINTS[::20], POINTS[::25]
    slots = (POINTS, np.vstack([first, second]), np.repeat(["a", "b"], [50, 40]))
    plain = (np.vstack([POINTS, POINTS + 10]), np.vstack([first, second + 10]), None)
    assert not same_counts_new_noise(sampler_of, released, plain, plain)
    assert same_counts_new_noise(sampler_of, released, plain, slots)


class Given(EuclideanVariation):
    """First candidates that are fixed but for an offset."""

    def __init__(self, domain, offset):
        super().__init__(domain)
        self.offset = offset

    def random(self, n, rng):
        return np.resize(POINTS, (n, POINTS.shape[1])) + self.offset

    def vary(self, X, rng, degree):
        return X


def test_noise_is_for_the_candidates_of_an_interface(sampler_of, released):
    """An interface is no setting that the source is given; what it returns is."""
    X, counts = SimpleNamespace(X=POINTS[::20]), []

    def noise_with(offset):
        interface = Given(Box(-20, 20, n_features=POINTS.shape[1]), offset)
        options = MANY["evolution"] | {"interface": interface, "domain": interface.domain}
        found = noise_of(sampler_of("evolution", n_iter=1, **options), X, "none", released)
        counts.append(released[0].value)
        return found

    noise = [noise_with(offset) for offset in (0.0, 0.0, 1e-6)]
    assert_array_equal(counts[0], counts[2])
    assert_array_equal(noise[0], noise[1])
    assert abs(np.corrcoef(noise[0], noise[2])[0, 1]) < 5 / math.sqrt(noise[0].size)


@samplers
def test_noise_without_a_seed_is_never_repeated(sampler_of, labelled, released, name):
    options = MANY[name] | {"random_state": None, "votes__postprocess": "simplex"}
    first, second = (
        noise_of(sampler_of(name, **options), labelled, "none", released) for _ in "ab"
    )
    n = min(first.size, second.size)
    assert abs(np.corrcoef(first[:n], second[:n])[0, 1]) < 7 / math.sqrt(n)


@samplers
def test_noise_and_candidates_have_streams_of_their_own(sampler_of, labelled, monkeypatch, name):
    """Noise is drawn from a NoiseSource alone, and no global stream is read."""
    np.random.seed(0)  # noqa: NPY002
    torch.manual_seed(0)
    before = np.random.get_state()[1].copy()  # noqa: NPY002
    seen = []

    def watch(seed=None, *bound, **options):
        seen.append((seed, len(bound)))
        return noise_source(seed, *bound, **options)

    monkeypatch.setattr(NOISE, watch)
    sampler_of(name, random_state=None).fit(labelled.X).sample(4)
    assert {seed for seed, _ in seen} == {None}
    seen.clear()
    sampler_of(name, random_state=3).fit(labelled.X)
    assert None not in {seed for seed, _ in seen}
    assert_array_equal(before, np.random.get_state()[1])  # noqa: NPY002
