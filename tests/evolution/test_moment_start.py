"""Evolution from released moments: two more releases, scaled to the votes, out of one budget."""

import math

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.stats import norm

from sklearn_dpgen.accounting import Bound
from sklearn_dpgen.domains import Ball, Box, OneHot, Product
from sklearn_dpgen.evolution import EuclideanVariation, PrivateEvolutionSampler, _evolution_sampler
from sklearn_dpgen.mechanisms import ClassSums
from sklearn_dpgen.mechanisms._sequence import GaussianSequenceRun
from sklearn_dpgen.schema import Numeric, Schema

BALL = Ball(2.0, center=[1.0, 0.0])
KINDS = ["none", "public", "private"]
every_kind = pytest.mark.parametrize("kind", KINDS)
pytestmark = pytest.mark.filterwarnings("ignore:The noise on the votes:UserWarning")


def fit(kind, X, y, **options):
    given = {"domain": BALL, "start": "moments", "n_samples": 20, "n_iter": 2, "device": "cpu"}
    sampler = PrivateEvolutionSampler(delta=1e-3, random_state=0).set_params(**given | options)
    if kind == "none":
        return sampler.fit(X)
    return sampler.set_params(labels=kind, classes=[0, 1]).fit(X, y)


@pytest.fixture
def released(monkeypatch):
    """Return a list that collects what went into each release and what came out."""
    seen = []
    release = GaussianSequenceRun.release

    def watch(self, value, noise):
        seen.append((value.copy(), release(self, value, noise)))
        return seen[-1][1]

    monkeypatch.setattr(GaussianSequenceRun, "release", watch)
    return seen


def largest_changes(kind, monkeypatch):
    """Return the largest changes by one record of the first release, and of the second given it.

    Both times the first release comes out the same: classes at the center, as narrow as can be.
    """
    seen = []

    def fixed(self, value, noise):
        seen.append(value.copy())
        if len(seen) > 1:
            return value
        rows = np.zeros((1 if kind == "none" else 2, 3 + (kind == "private")))
        # Three records a class.
        rows[:, 3:] = 3 * math.sqrt(1.5 / math.sqrt(3)) / math.sqrt(1.5 + 1.5 / math.sqrt(3))
        return rows.ravel()

    monkeypatch.setattr(GaussianSequenceRun, "release", fixed)
    rng = np.random.default_rng(0)
    y = np.array([0, 0, 0, 1, 1, 1])
    largest = np.zeros(2)
    for trial in range(24):
        X = BALL.center + rng.normal(size=(6, 2))
        other, labels = X.copy(), y.copy()
        turn = np.pi if trial % 2 else math.acos(-0.5 / 2.0**2)
        angle = rng.uniform(0, 2 * np.pi) + np.array([0, turn])
        X[0], other[0] = BALL.center + 9 * np.column_stack([np.cos(angle), np.sin(angle)])
        if kind == "private" and trial % 3 == 0:
            labels[0] = 1
        values = []
        for records, codes in ((X, y), (other, labels)):
            seen.clear()
            fit(kind, records, codes, epsilon=1000.0, n_iter=1)
            values.append(seen[:2])
        changes = [np.linalg.norm(a - b) for a, b in zip(*values, strict=True)]
        largest = np.maximum(largest, changes)
    return largest


@pytest.mark.slow
@every_kind
def test_a_record_moves_the_moments_as_far_as_the_votes(kind, monkeypatch):
    largest = largest_changes(kind, monkeypatch)
    assert (largest > math.sqrt(2) * (1 - 1e-3)).all()
    assert (largest <= math.sqrt(2)).all()
    # Negative twin: moments as they are.
    vector = ClassSums.vector
    monkeypatch.setattr(ClassSums, "vector", lambda self, X, codes: 1.5 * vector(self, X, codes))
    assert (largest_changes(kind, monkeypatch) > 1.4 * math.sqrt(2)).all()


def spent(noises, delta, epsilon):
    """Whether Gaussian releases of sensitivity √2 keep to a budget, by their joint profile."""
    mu = math.sqrt(sum(2 / noise**2 for noise in noises))
    a, b = mu / 2, epsilon / mu
    return norm.cdf(a - b) - math.exp(epsilon) * norm.cdf(-a - b) <= delta * (1 + 1e-9)


@every_kind
@pytest.mark.parametrize("share", [0.1, 0.5])
def test_all_releases_are_within_the_budget(released, kind, share):
    X = BALL.sample(200, np.random.default_rng(0))
    y = np.arange(200) % 2
    sampler = fit(kind, X, y, epsilon=1.5, start=share)
    report = sampler.privacy_
    noises = list(report.noise_scale.values())
    assert (len(released), report.n_releases, len(noises), sampler.n_iter_) == (4, 4, 4, 2)
    assert spent(noises, 1e-3, 1.5)
    assert not spent([0.99 * noise for noise in noises], 1e-3, 1.5)
    # Negative twin: moments that nobody paid for.
    assert not spent([noises[0], noises[1] / 2, *noises[2:]], 1e-3, 1.5)
    precisions = np.array(noises) ** -2.0
    assert_allclose(precisions[:2] / precisions.sum(), [0.1 * share, 0.9 * share])
    errors = np.concatenate(
        [(out - value) / noise for (value, out), noise in zip(released, noises, strict=True)]
    )
    assert abs((errors**2).mean() - 1) < 5 * math.sqrt(2 / len(errors))
    assert [event.what for event in report.events] == ["start_moments", "votes"]
    assert Bound("scaled_moments") in report.bounds


@every_kind
def test_populations_start_near_the_records(kind, monkeypatch):
    rng = np.random.default_rng(0)
    y = rng.integers(0, 2, 5000)
    X = np.array([1.5, 0.5]) + 0.05 * rng.normal(size=(5000, 2)) - 0.8 * y[:, None]
    starts = []
    release = _evolution_sampler.release_populations

    def watch(*args, **options):
        starts.extend(release(*args, **options))
        return starts[-2:] if kind != "none" else starts[-1:]

    monkeypatch.setattr("sklearn_dpgen.evolution._evolution_sampler.release_populations", watch)
    sampler = fit(kind, X, y, epsilon=5.0, delta=1e-5)
    groups = [X] if kind == "none" else [X[y == 0], X[y == 1]]
    for start, group in zip(starts, groups, strict=True):
        assert start.shape == (20, 2)
        assert BALL.contains(start).all()
        assert_allclose(start.mean(axis=0), group.mean(axis=0), atol=0.3)
    again = fit(kind, X, y, epsilon=5.0, delta=1e-5)
    assert_array_equal(again.candidates_[0], sampler.candidates_[0])


def fit_declared(X, y, **options):
    options = {"labels": "private", "classes": [0, 1]} | options
    given = {"domain": BALL, "start": "moments", "n_samples": 20, "n_iter": 2, "device": "cpu"}
    given |= {"label_proportions": [0.5, 0.5], "random_state": 0, "delta": 1e-3}
    return PrivateEvolutionSampler(**(given | options)).fit(X, y)


@pytest.mark.parametrize("kind", [*KINDS, "declared"])
def test_populations_follow_from_the_releases(kind, monkeypatch):
    fixed = np.random.default_rng(0).normal(size=2000)

    def tells_nothing(release):
        monkeypatch.setattr(GaussianSequenceRun, "release", release)
        found = []
        for seed in (1, 2):
            X = BALL.sample(60, np.random.default_rng(seed))
            y = np.arange(60) % 2
            if kind in ("private", "declared"):
                y = (np.arange(60) >= 15 * seed).astype(int)
            sampler = fit_declared(X, y) if kind == "declared" else fit(kind, X, y)
            votes = [(v.candidates, v.votes, v.weights) for step in sampler.history_ for v in step]
            found.append([*sampler.candidates_, *sampler.weights_, *sum(votes, ())])
        return all(np.array_equal(a, b) for a, b in zip(*found, strict=True))

    assert tells_nothing(lambda self, value, noise: fixed[: len(value)].copy())
    assert not tells_nothing(lambda self, value, noise: value.copy())


@every_kind
def test_a_seed_repeats_the_noise_on_the_moments_for_the_same_fit_alone(released, kind):
    X = np.random.default_rng(0).normal(size=(60, 50)) / 9
    y = np.arange(60) % 2

    def noise(X, **options):
        released.clear()
        fit(kind, X, y, **({"domain": Ball(2.0, n_features=50), "n_iter": 1} | options))
        return [out - value for value, out in released[:2]]

    def are_unrelated(a, b):
        n = min(len(a), len(b))
        return abs(np.corrcoef(a[:n], b[:n])[0, 1]) < 5 / math.sqrt(n)

    first = noise(X)
    assert are_unrelated(*first)
    changes = [(X[::-1].copy() * 0.9, {}), (X, {"epsilon": 1.1}), (X, {"start": 0.3})]
    for records, options in [*changes, (X, {"random_state": 1})]:
        for own, other in zip(first, noise(records, **options), strict=True):
            assert are_unrelated(own, other)
    # Negative twin: the same once more.
    for own, other in zip(first, noise(X), strict=True):
        assert not are_unrelated(own, other)


def test_a_public_start_releases_no_moments(released):
    X = BALL.sample(50, np.random.default_rng(0))
    report = fit("none", X, None, start="public").privacy_
    assert len(released) == report.n_releases == 2
    assert [event.what for event in report.events] == ["votes"]
    assert Bound("scaled_moments") not in report.bounds


@pytest.mark.parametrize(
    "options",
    [
        {"interface": EuclideanVariation(BALL)},
        {"schema": Schema({"a": Numeric(0, 1), "b": Numeric(0, 1)}), "domain": None},
        {"embedding": np.sin},
        {"votes__histogram": "laplace_threshold"},
        {"schedule": "theory"},
    ],
    ids=["interface", "schema", "embedding", "histogram", "schedule"],
)
def test_what_moments_cannot_start_is_refused(released, options):
    with pytest.raises(ValueError, match="start='moments' needs a domain"):
        fit("none", BALL.sample(50, np.random.default_rng(0)), None, **options)
    assert not released
    for share in (0.0, 1.0):
        with pytest.raises(ValueError, match="'start' parameter"):
            fit("none", BALL.sample(50, np.random.default_rng(0)), None, start=share)


def starts(n=2000, d=3, class_sizes=None, epsilon=1.0, **options):
    """Return whether the automatic start releases moments."""
    given = {"delta": 1e-5, "domain": Ball(2.0, n_features=d)} | options
    sampler = PrivateEvolutionSampler(epsilon, **given)
    report = sampler.plan(n, d, class_sizes=class_sizes)
    assert ("first population" in report.split) == (report.events[0].what == "start_moments")
    return "first population" in report.split


def test_the_automatic_start_follows_public_quantities():
    # 2000 votes are 373 times the noise of a count, √2 · 3.78; 1000 are 187 times.
    assert starts()
    assert starts(domain=Box(0, 1, n_features=3))
    assert not starts(1000)
    assert starts(1000, epsilon=3.0)
    assert not starts(500, epsilon=1.0)
    assert not starts(d=2)
    assert starts(d=14)
    assert not starts(d=15)
    # The smallest class decides.
    assert starts(4000, labels="public", class_sizes=[2000, 2000])
    assert not starts(4000, labels="public", class_sizes=[3500, 500])
    classes = {"labels": "private", "classes": [0, 1]}
    assert starts(4000, **classes)
    assert not starts(4000, **classes, label_proportions=[0.9, 0.1])


@pytest.mark.parametrize(
    "options",
    [
        {"interface": EuclideanVariation(Ball(2.0, n_features=3))},
        {"schema": Schema({name: Numeric(0, 1) for name in "abc"}), "domain": None},
        {"public": np.zeros((5, 3))},
        {"embedding": np.sin},
        {"votes__histogram": "laplace_threshold"},
        {"schedule": "theory"},
        {"domain": Product([Box(0, 1), OneHot(3)])},
    ],
    ids=["interface", "schema", "public", "embedding", "histogram", "schedule", "categories"],
)
@pytest.mark.filterwarnings("ignore:No candidate with fewer than:UserWarning")
def test_the_automatic_start_is_public_where_moments_cannot_be_had(options):
    sampler = PrivateEvolutionSampler(delta=1e-5, domain=Ball(2.0, n_features=3))
    width = 4 if "domain" in options and options["domain"] is not None else 3
    report = sampler.set_params(**options).plan(2000, width)
    assert "first population" not in report.split


def test_certified_votes_and_dask_arrays_start_from_the_domain(released):
    X = Ball(2.0, n_features=3).sample(2000, np.random.default_rng(0))
    given = {"start": "auto", "domain": Ball(2.0, n_features=3), "delta": 1e-5}
    assert fit("none", X, None, **given).privacy_.n_releases == 4
    dask_array = pytest.importorskip("dask.array")
    blocks = dask_array.from_array(X, chunks=(500, 3))
    assert fit("none", blocks, None, **given).privacy_.n_releases == 2
    pytest.importorskip("opendp")
    assert not starts(noise="certified")
