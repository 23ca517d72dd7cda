"""The distance of records to the result: its sensitivity, its price and its confidence bounds."""

import itertools
import math

import numpy as np
import ot
import pytest
from scipy.stats import norm, wasserstein_distance

import sklearn_dpgen
from sklearn_dpgen.accounting import Bound
from sklearn_dpgen.domains import Ball, Box
from sklearn_dpgen.evolution import (
    PrivateEvolutionSampler,
    PrivateSignedMeasureSampler,
    _record_distance,
    _voting_sampler,
)
from sklearn_dpgen.evolution._record_distance import record_distance
from sklearn_dpgen.mechanisms._sequence import GaussianSequenceRun

DISC = Ball(1.0, n_features=2)
KINDS = ["none", "public"]
every_kind = pytest.mark.parametrize("kind", KINDS)
pytestmark = pytest.mark.filterwarnings("ignore:The noise on the votes:UserWarning")


def fit(kind, X, y=None, **options):
    given = {"domain": DISC, "n_samples": 20, "n_iter": 2, "random_state": 0, "device": "cpu"}
    given |= {"votes__distance_share": 0.1, "delta": 1e-3} | options
    sampler = PrivateEvolutionSampler().set_params(**given)
    return sampler.fit(X) if kind == "none" else sampler.set_params(labels=kind).fit(X, y)


def exact_w1(X, points, weights):
    """Return W1 by another formula, or by POT on all atoms."""
    if X.shape[1] == 1:
        return wasserstein_distance(X[:, 0], points[:, 0], v_weights=weights)
    costs = np.sqrt(((X[:, None] - points[None]) ** 2).sum(-1))
    return ot.emd2(np.full(len(X), 1 / len(X)), weights / weights.sum(), costs, numItermax=10**6)


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


# The total and its sensitivity.


def extreme_change(domain, ends, n=7, factor=1.0):
    """Return the largest change of a total by one record, over the sensitivity it states."""
    rng, largest = np.random.default_rng(0), 0.0
    places = [*ends, 0.505 * ends[0] + 0.495 * ends[1], *domain.sample(3, rng)]
    others = [np.tile(ends[0], (n, 1)), np.tile(ends[1], (n, 1)), domain.sample(n, rng)]
    supports = [ends[:1], 0.99 * ends + 0.01 * ends[::-1], domain.sample(4, rng)]
    for points, X in itertools.product(supports, others):
        for weights in (np.eye(len(points))[0], rng.dirichlet(np.ones(len(points)))):
            # A point without weight gets votes only if it is told apart from no point at all.
            weights = (weights + 1e-9) / (1 + 1e-9 * len(points))
            found = []
            for place in places:
                Z = X.copy()
                Z[0] = factor * place
                found.append(record_distance(Z, points, weights, domain))
            totals, (stated, *again) = zip(*found, strict=True)
            assert set(again) == {stated}
            largest = max(largest, (max(totals) - min(totals)) / stated)
    return largest


@pytest.mark.parametrize("is_exact", [True, False], ids=["exact", "by votes"])
@pytest.mark.parametrize(
    ("domain", "ends"),
    [
        (DISC, np.array([[-1.0, 0.0], [1.0, 0.0]])),
        (Box([0, 0, 0], [1, 2, 3]), np.array([[0.0, 0, 0], [1, 2, 3]])),
        (Box(-1, 3), np.array([[-1.0], [3.0]])),
    ],
    ids=["ball", "box", "line"],
)
def test_one_record_moves_the_total_by_at_most_the_sensitivity(monkeypatch, domain, ends, is_exact):
    if not is_exact:
        monkeypatch.setattr(_record_distance, "_MOST_PAIRS", 0)
    largest = extreme_change(domain, ends)
    # By votes 1.5 D of at most D + R = 2 D are attained.
    is_sharp = is_exact or domain.n_features == 1
    assert (0.999 if is_sharp else 0.7) < largest <= 1
    # Negative twin: records that are not projected on the domain.
    assert extreme_change(domain, ends, factor=9.0) > 1


@pytest.mark.parametrize("d", [1, 2, 3])
def test_the_total_is_w1_or_no_less(monkeypatch, d):
    rng, box = np.random.default_rng(d), Box(0, 1, n_features=d)
    for _ in range(10):
        X, points = box.sample(60, rng), box.sample(12, rng)
        weights = rng.dirichlet(np.ones(12)) * (rng.uniform(size=12) < 0.8)
        weights /= weights.sum()
        expected = exact_w1(X, points, weights)
        monkeypatch.setattr(_record_distance, "_MOST_PAIRS", 10**7)
        assert record_distance(X, points, weights, box)[0] == pytest.approx(60 * expected)
        monkeypatch.setattr(_record_distance, "_MOST_PAIRS", 0)
        coarse, sensitivity = record_distance(X, points, weights, box)
        # By the triangle inequality it is at most two distances to the nearest point more.
        kept = points[weights > 0]
        nearest = np.sqrt(((X[:, None] - kept[None]) ** 2).sum(-1)).min(axis=1).mean()
        assert 60 * expected - 1e-9 <= coarse <= 60 * (expected + 2 * nearest) + 1e-9
        assert box.diameter(2) <= sensitivity <= 2.00001 * box.diameter(2)
    # Records on the points, with their weights, are at no distance.
    total, _ = record_distance(points, points, np.full(12, 1 / 12), box)
    assert total == pytest.approx(0, abs=1e-9)


def test_no_record_of_the_domain_is_farther_than_the_covering_radius():
    rng = np.random.default_rng(0)
    for domain in (DISC, Box([0, 0], [1, 5])):
        for m in (1, 3, 30):
            points = domain.sample(m, rng)
            X = domain.sample(500, rng)
            farthest = np.sqrt(((X[:, None] - points[None]) ** 2).sum(-1)).min(axis=1).max()
            bound = _record_distance._largest_distance(points, domain)
            assert farthest <= bound <= domain.diameter(2) * (1 + 1e-12)


# The release within a fit.


def changes_of_a_fit(kind, monkeypatch):
    """Return the largest l2 change of the last release by one record, all others held fixed."""
    seen, fixed = [], np.random.default_rng(1).normal(size=2000)

    def forced(self, value, noise):
        seen.append(value.copy())
        return np.where(np.arange(len(value)) == 0, 1e6, 0) + 1e-3 * fixed[: len(value)]

    monkeypatch.setattr(GaussianSequenceRun, "release", forced)
    y, largest = np.array([0, 0, 0, 1, 1, 1]), 0.0
    for angle in np.linspace(0, 2 * np.pi, 25):
        end = np.array([math.cos(angle), math.sin(angle)])
        X = np.tile(-end, (6, 1))
        Z = X.copy()
        Z[0] = 5 * end  # outside: it is projected
        values = []
        for records in (X, Z):
            seen.clear()
            fit(kind, records, y, epsilon=100.0, n_iter=1)
            values.append(seen[-1])
        largest = max(largest, np.linalg.norm(values[0] - values[1]))
    return largest


@pytest.mark.slow
@every_kind
def test_a_record_moves_the_distance_at_most_as_far_as_the_votes(kind, monkeypatch):
    largest = changes_of_a_fit(kind, monkeypatch)
    assert 0.8 * math.sqrt(2) < largest <= math.sqrt(2)
    # Negative twin: half of the sensitivity is stated.
    found = _voting_sampler.record_distance

    def halved(*args):
        total, sensitivity = found(*args)
        return total, sensitivity / 2

    monkeypatch.setattr(_voting_sampler, "record_distance", halved)
    assert changes_of_a_fit(kind, monkeypatch) > 1.5 * math.sqrt(2)


def spent(noises, delta, epsilon):
    """Whether Gaussian releases of sensitivity √2 keep to a budget, by their joint profile."""
    mu = math.sqrt(sum(2 / noise**2 for noise in noises))
    a, b = mu / 2, epsilon / mu
    return norm.cdf(a - b) - math.exp(epsilon) * norm.cdf(-a - b) <= delta * (1 + 1e-9)


@every_kind
@pytest.mark.parametrize("start", ["public", 0.3])
def test_all_releases_are_within_the_budget(released, kind, start):
    X, y = DISC.sample(300, np.random.default_rng(0)), np.arange(300) % 2
    sampler = fit(kind, X, y, start=start, epsilon=1.5)
    report, n_moments = sampler.privacy_, 0 if start == "public" else 2
    noises = list(report.noise_scale.values())
    assert len(released) == report.n_releases == len(noises) == 3 + n_moments
    assert spent(noises, 1e-3, 1.5)
    assert not spent([0.99 * noise for noise in noises], 1e-3, 1.5)
    # Negative twin: a distance that nobody paid for.
    assert not spent([*noises[:-1], noises[-1] / 2], 1e-3, 1.5)
    precisions = np.array(noises) ** -2.0
    share = 0.3 if n_moments else 0.0
    votes = (1 - share - 0.1) * np.array([1, 2]) / 3
    np.testing.assert_allclose(precisions[n_moments:] / precisions.sum(), [*votes, 0.1])
    assert report.split["distance"] == 0.1
    assert math.fsum(report.split.values()) == pytest.approx(1)
    assert [event.what for event in report.events][-2:] == ["votes", "distance"]
    assert Bound("l2_diameter", 2.0) in report.bounds
    n_classes = 1 if kind == "none" else 2
    assert len(released[-1][0]) == len(sampler.distances_) == n_classes
    sizes = {"class_sizes": [150, 150]} if kind == "public" else {}
    assert sampler.plan(300, 2, **sizes) == report


@every_kind
def test_what_is_stored_follows_from_the_releases(kind, monkeypatch):
    fixed = np.random.default_rng(0).normal(size=2000)

    def tells_nothing(release):
        monkeypatch.setattr(GaussianSequenceRun, "release", release)
        found = []
        for seed in (1, 2):
            X = DISC.sample(60, np.random.default_rng(seed))
            sampler = fit(kind, X, np.arange(60) % 2)
            found.append([*sampler.distances_, *sampler.distance_errors_])
        return found[0] == found[1]

    assert tells_nothing(lambda self, value, noise: fixed[: len(value)].copy())
    assert not tells_nothing(lambda self, value, noise: value.copy())


# Confidence bounds.


def evolved(run):
    given = {"domain": DISC, "n_samples": 8, "n_iter": 1, "device": "cpu", "random_state": run}
    sampler = PrivateEvolutionSampler(20.0, 1e-3, **given)
    return sampler.set_params(votes__distance_share=0.1)


def on_grid(run):
    sampler = PrivateSignedMeasureSampler(20.0, 1e-3, domain=DISC, n_points=16, random_state=run)
    return sampler.set_params(votes__distance_share=0.1, votes__postprocess="simplex")


def fits(make, n_runs):
    """Return fits of the same records, and the distances of the records to their results."""
    X, found = 0.3 * abs(DISC.sample(80, np.random.default_rng(0))), []
    for run in range(n_runs):
        sampler = make(run).fit(X)
        (points,), (weights,) = sampler.candidates_, sampler.weights_
        found.append((sampler, exact_w1(X, points, weights)))
    return found


def covered(found, level):
    """Return how often a bound is at least the distance, in standard errors above the level."""
    hits = sum(sampler.distance_bound(level) >= distance for sampler, distance in found)
    n = len(found)
    return (hits - n * level) / math.sqrt(n * level * (1 - level))


@pytest.mark.slow
@pytest.mark.parametrize("make", [evolved, on_grid])
def test_bounds_hold_as_often_as_they_say(make):
    found = fits(make, 200)
    levels = (0.5, 0.75, 0.9)
    assert all(abs(covered(found, level)) < 4 for level in levels)
    # Negative twins: half of the margin, and distances to less than the result.
    errors = [sampler.distance_errors_ for sampler, _ in found]
    for (sampler, _), error in zip(found, errors, strict=True):
        sampler.distance_errors_ = error / 2
    assert covered(found, 0.9) < -4
    for (sampler, _), error in zip(found, errors, strict=True):
        sampler.distances_, sampler.distance_errors_ = sampler.distances_ - error, error
    assert covered(found, 0.75) < -4


@pytest.mark.slow
def test_bounds_by_votes_hold_more_often(monkeypatch):
    monkeypatch.setattr(_record_distance, "_MOST_PAIRS", 0)
    assert covered(fits(evolved, 60), 0.75) > 0


def test_without_noise_the_distance_is_exact():
    X, y = DISC.sample(60, np.random.default_rng(0)), np.arange(60) % 2
    sampler = fit("public", X, y, epsilon=np.inf)
    assert (sampler.distance_errors_ == 0).all()
    for code, found in enumerate(sampler.distance_bound(0.9)):
        members = X[y == code], sampler.candidates_[code], sampler.weights_[code]
        assert found == pytest.approx(exact_w1(*members), rel=1e-6)


# What is refused.


@pytest.mark.parametrize(
    "options",
    [
        {"votes__histogram": "laplace_threshold"},
        {"noise": "certified"},
        {"start": 0.95},
    ],
    ids=["histogram", "certified", "shares"],
)
def test_what_has_no_distance_is_refused(released, options):
    X = np.ones((50, 2)) / 2
    if options.get("noise") == "certified":
        pytest.importorskip("opendp")
        options = options | {"random_state": None}
    with pytest.raises(ValueError, match="distance_share"):
        fit("none", X, **options)
    assert not released


def test_private_classes_have_no_distance(released):
    X, y = DISC.sample(50, np.random.default_rng(0)), np.arange(50) % 2
    with pytest.raises(ValueError, match="labels that are not private"):
        fit("private", X, y, classes=[0, 1])
    assert not released


def test_a_bound_needs_a_release():
    X = DISC.sample(50, np.random.default_rng(0))
    sampler = fit("none", X, votes__distance_share=0.0)
    assert not hasattr(sampler, "distances_")
    with pytest.raises(ValueError, match="distance_share must be positive"):
        sampler.distance_bound()
    sampler = fit("none", X)
    for level in (0, 1, 2):
        with pytest.raises(ValueError, match="confidence_level"):
            sampler.distance_bound(level)


def test_files_keep_the_distance(tmp_path):
    sampler = fit("none", DISC.sample(50, np.random.default_rng(0)))
    sampler.save(tmp_path / "file")
    loaded = sklearn_dpgen.load(tmp_path / "file")
    assert loaded.distance_bound(0.9) == sampler.distance_bound(0.9)


def _far_change(points):
    """Return how far one record moves the total by votes, in units of its sensitivity."""
    low = 1e6
    domain = Box(low, low + 1, n_features=2)
    X = np.tile([low, low + 1.0], (20, 1))
    weights = np.array([1 / 20, 1e-9, 1 - 1 / 20 - 2e-9, 1e-9])
    totals = []
    for step in (-0.01, 0.01):
        X[0] = low + np.array([0.55, 0.45]) + step
        total, sensitivity = record_distance(X, low + points, weights, domain)
        totals.append(total)
    return abs(np.diff(totals)).item() / sensitivity


def test_candidates_outside_of_a_domain_far_from_0_are_projected(monkeypatch):
    """The test of membership allows 1e-6 of the coordinates, which is more than the width here."""
    monkeypatch.setattr(_record_distance, "_MOST_PAIRS", 0)
    outside = np.array([[-0.9, -0.9], [1.9, 1.9], [-0.9, 1.9], [-0.9, 1.89]])
    assert Box(1e6, 1e6 + 1, n_features=2).contains(1e6 + outside).all()
    assert _far_change(outside) <= 1
    # Negative twin: without the projection.
    monkeypatch.setattr(Box, "project", lambda self, values: values)
    assert _far_change(outside) > 1.2


def test_many_records_are_measured_by_votes(monkeypatch):
    def stop(*args):
        raise AssertionError("an exact transport")

    rng, box = np.random.default_rng(0), Box(0, 1, n_features=2)
    points, weights = box.sample(5, rng), np.full(5, 0.2)
    monkeypatch.setattr(_record_distance, "cdist", stop)
    with pytest.raises(AssertionError, match="an exact transport"):
        record_distance(box.sample(10_000, rng), points, weights, box)
    monkeypatch.undo()
    shapes = []
    transport = _record_distance._transport
    monkeypatch.setattr(
        _record_distance, "_transport", lambda *a: shapes.append(a[2].shape) or transport(*a)
    )
    record_distance(box.sample(10_001, rng), points, weights, box)
    assert max(map(max, shapes)) <= 5
