"""The release of a private distance: what one record moves, its noise, its price, its seeds."""

import math

import numpy as np
import pytest
import torch
from distance_cases import BALL, has_the_stated_noise, private, sample

from sklearn_dpgen.accounting import (
    Bound,
    PrivacyReport,
    ProjectionLaw,
    calibrate_noise_multiplier,
    epsilon_spent,
)
from sklearn_dpgen.domains import Ball, Box
from sklearn_dpgen.ot import sliced_wasserstein
from sklearn_dpgen.smoothed import _distance
from sklearn_dpgen.utils._random import noise_source


@pytest.mark.parametrize("p", [1, 1.5, 2])
@pytest.mark.parametrize("sizes", [(30, 30), (30, 17), (1, 8)])
def test_without_noise_it_is_the_sliced_distance(sizes, p):
    X, Y = sample(sizes[0]), sample(sizes[1], 0.3, seed=1)
    result = private(X, Y, epsilon=math.inf, p=p)
    inside = [torch.tensor(BALL.project(Z)) for Z in (X, Y)]
    theta = torch.tensor(result.directions)
    expected = sliced_wasserstein(*inside, directions=theta, p=p).item() ** (1 / p)
    assert result.distance == pytest.approx(expected)
    assert result.distance_to(Y) == pytest.approx(expected)
    assert private(X, Y, epsilon=math.inf, p=p, n_repeats=3).distance == pytest.approx(expected)
    np.testing.assert_allclose(result.projections, BALL.project(X) @ result.directions.T)
    assert result.noise_scale == 0
    assert result.privacy.delta == 0


@pytest.mark.parametrize("kind", ["orthogonal", "independent"])
@pytest.mark.parametrize("k", ["auto", 1, 3, 8, 9])
def test_the_noise_is_calibrated_to_the_law_of_the_projections(k, kind):
    X, Y = sample(200), sample(100, seed=1)
    result = private(X, Y, n_projections=k, directions=kind)
    k = 4 if k == "auto" else k
    law = ProjectionLaw(4, k, kind)
    multiplier = calibrate_noise_multiplier(5.0, 0.1 / 200, projections=law)
    assert result.noise_scale == pytest.approx(3.0 * multiplier)
    assert result.directions.shape == (k, 4)
    assert result.projections.shape == (200, k)
    np.testing.assert_allclose(np.linalg.norm(result.directions, axis=1), 1)
    if kind == "orthogonal" and k >= 4:
        np.testing.assert_allclose(
            result.directions[:4] @ result.directions[:4].T, np.eye(4), atol=1e-12
        )
    stated = result.privacy
    spent = epsilon_spent(stated.noise_multiplier, stated.delta, projections=law)
    assert 4.99 < spent <= 5
    assert epsilon_spent(stated.noise_multiplier / 2, stated.delta, projections=law) > 5


def test_the_release_has_the_stated_noise():
    X, Y = 3 * sample(5000), sample(10, seed=1)
    result = private(X, Y, n_projections=8)
    errors = result.projections - BALL.project(X) @ result.directions.T
    assert has_the_stated_noise(errors, result.noise_scale)
    for broken in (errors / 2, 1.1 * errors, np.repeat(errors[:, :1], 8, axis=1), np.sign(errors)):
        assert not has_the_stated_noise(broken, result.noise_scale)
    # As sums of a record and noise are released, their low bits are rounded away.
    step = 2.0 ** (math.frexp(result.noise_scale)[1] - 11)
    np.testing.assert_array_equal(np.rint(result.projections / step) * step, result.projections)


class Unprojected(Ball):
    """States a diameter that it does not enforce."""

    def project(self, X):
        return X


@pytest.fixture
def fixed_directions(monkeypatch):
    """Give all releases the same directions, by a seed of the test's choice."""
    draw = ProjectionLaw.draw

    def fix(seed):
        monkeypatch.setattr(ProjectionLaw, "draw", lambda law, _: draw(law, noise_source(seed)))

    fix(0)
    return fix


def largest_change(domain, shared):
    """Return how far replacing one record moves a release, over √(max H) times the diameter."""
    X, far = shared.copy(), np.full(shared.shape[1], 1e15)
    X[2] = -far
    neighbour = X.copy()
    neighbour[2] = far
    released = [
        private(Z, shared, epsilon=math.inf, domain=domain, n_projections=8).projections
        for Z in (X, neighbour)
    ]
    change = released[1] - released[0]
    assert not np.delete(change, 2, axis=0).any()
    return np.linalg.norm(change) / (math.sqrt(ProjectionLaw(4, 8).maximum) * domain.diameter(2))


@pytest.mark.usefixtures("fixed_directions")
def test_a_record_moves_a_release_by_the_diameter_at_most():
    domains = [Ball(1.5, n_features=4), Box([0, -1, 0, 0], [1, 1, 2, 0.1])]
    for domain in domains:
        assert 0.99 < largest_change(domain, sample(6)) <= 1 + 1e-12
    assert largest_change(Unprojected(1.5, n_features=4), sample(6)) > 1e5


FAR = 1e12


def at_the_origin(domain):
    return Ball(domain.diameter(2) / 2, n_features=domain.n_features)


def test_far_from_the_origin_too(fixed_directions, monkeypatch):
    domain = Box(FAR, FAR + 1, n_features=4)

    def changes():
        for seed in range(5):
            fixed_directions(seed)
            yield largest_change(domain, FAR + sample(6))

    assert all(0.99 < change <= 1 + 1e-12 for change in changes())
    monkeypatch.setattr(_distance, "enclosing_ball", at_the_origin)
    assert max(changes()) > 1 + 1e-6


@pytest.mark.usefixtures("fixed_directions")
def test_every_distance_is_that_of_centered_records(monkeypatch):
    # On a grid of 2**-12, which survives the shift.
    X, Y = np.random.default_rng(0).integers(0, 2**12, size=(2, 50, 4)) / 2**12

    def distances(origin):
        domain = Box(origin, origin + 1, n_features=4)
        result = private(X + origin, Y + origin, epsilon=math.inf, domain=domain)
        others = (
            result.distance_to(Y[:9] + origin),
            *result.null_distances(Y + origin, n_draws=3, random_state=0),
        )
        return np.array([result.distance, *others])

    np.testing.assert_allclose(distances(FAR), distances(0.0), rtol=1e-9)
    monkeypatch.setattr(_distance, "enclosing_ball", at_the_origin)
    assert (abs(distances(FAR) / distances(0.0) - 1) > 1e-7).all()


def test_public_records_are_brought_into_the_domain_too():
    X, Y = sample(40), sample(40, seed=1)
    outside = 50 * Y
    inside = BALL.project(outside)
    result = private(X, outside)
    assert result.distance == private(X, inside).distance
    assert result.distance_to(outside, random_state=1) == result.distance_to(inside, random_state=1)
    assert (
        result.null_distances(outside, n_draws=3, random_state=1)
        == result.null_distances(inside, n_draws=3, random_state=1)
    ).all()


def test_the_report():
    X, Y = sample(50), sample(20, seed=1)
    report = private(X, Y, delta=1e-3).privacy
    assert isinstance(report, PrivacyReport)
    assert (report.epsilon, report.delta) == (5.0, 1e-3)
    assert report.neighbouring == "replace one record; the number of records is public"
    assert report.sensitivity == BALL.diameter(2) == 3.0
    assert Bound("l2_diameter", 3.0) in report.bounds
    assert (report.sampling_rate, report.n_releases) == (1.0, 1)
    assert report.batches == ()
    assert Bound("directions_averaged") in report.bounds
    assert "void" in report.noise_source
    assert "n_samples" in report.public
    assert {"free_distances", "earlier_fits", "compared_samples"} < set(report.caveats)
    assert PrivacyReport.from_dict(report.to_dict()) == report
    unseeded = private(X, Y, random_state=None).privacy
    assert unseeded.noise_source == "operating system entropy"
    assert unseeded.delta == 0.1 / 50
    without = private(X, Y, epsilon=math.inf).privacy
    assert (without.epsilon, without.noise_scale) == (math.inf, 0)
    assert without.releases == ()


def noise_of(result, X, domain=BALL):
    return (result.projections - domain.project(X) @ result.directions.T) / result.noise_scale


def test_a_seed_repeats_noise_for_the_same_release_alone():
    X, Y = sample(40), sample(30, seed=1)
    first = private(X, Y)
    again = private(X.tolist(), Y)
    assert again.distance == first.distance
    np.testing.assert_array_equal(again.projections, first.projections)
    # Another public sample does not release the records again.
    other = private(X, Y[:20] + 0.1, p=1, n_repeats=2)
    np.testing.assert_array_equal(other.projections, first.projections)
    assert other.distance != first.distance

    neighbour = X.copy()
    neighbour[0, 0] += 0.1
    wide = Ball(1.6, n_features=4)
    draws = [
        noise_of(first, X),
        noise_of(private(neighbour, Y), neighbour),
        noise_of(private(X[::-1], Y), X[::-1]),
        noise_of(private(X, Y, epsilon=4.0), X),
        noise_of(private(X, Y, delta=1e-4), X),
        noise_of(private(X, Y, domain=wide), X, wide),
        noise_of(private(X, Y, directions="independent"), X),
        noise_of(private(X, Y, random_state=1), X),
        noise_of(private(X, Y, random_state=None), X),
        noise_of(private(X, Y, random_state=None), X),
    ]
    correlations = np.corrcoef([draw.ravel() for draw in draws]) - np.eye(len(draws))
    assert abs(correlations).max() < 5 / math.sqrt(X.size)
    # Twin: the same draw on another budget.
    assert abs(np.corrcoef(draws[0].ravel(), noise_of(again, X).ravel())[0, 1]) > 0.99


def directions_are_shared():
    """Whether any two seeded releases that differ have directions in common."""
    X, Y = sample(40), sample(30, seed=1)
    neighbour = X.copy()
    neighbour[0, 0] += 0.1
    changes = [
        {},
        {"X": neighbour},
        {"X": X[::-1]},
        {"epsilon": 4.0},
        {"delta": 1e-4},
        {"domain": Ball(1.6, n_features=4)},
        {"directions": "independent"},
        {"random_state": 1},
    ]
    rows = np.vstack([private(**{"X": X, "Y": Y} | change).directions for change in changes])
    same = np.isclose(rows[:, None], rows).all(axis=2)
    return (same.sum(axis=1) > 1).any()


def test_a_seed_repeats_directions_for_the_same_release_alone(monkeypatch):
    X, Y = sample(40), sample(30, seed=1)
    first = private(X, Y)
    for other in (private(X, Y), private(X, Y[:20] + 0.1, p=1, n_repeats=2)):
        np.testing.assert_array_equal(other.directions, first.directions)
    assert not directions_are_shared()
    # Negative twins: sources that are not bound to anything, or not to the records.
    for broken in (
        lambda seed, *bound: noise_source(seed),
        lambda seed, name, X, *bound: noise_source(seed, name, *bound),
    ):
        monkeypatch.setattr(_distance, "noise_source", broken)
        assert directions_are_shared()


def test_without_a_seed_everything_is_fresh():
    X, Y = sample(30), sample(30, seed=1)
    results = [private(X, Y, random_state=None) for _ in range(2)]
    assert not np.isclose(results[0].directions, results[1].directions).any()
    assert results[0].distance_to(Y) != results[0].distance_to(Y)
    assert results[0].distance_to(Y, random_state=3) == results[0].distance_to(Y, random_state=3)
