"""The distance between a private and a public sample: what is released, its price, its size."""

import math
from dataclasses import FrozenInstanceError

import numpy as np
import pytest
import torch
from scipy import stats

from sklearn_dpgen.accounting import (
    PrivacyReport,
    ProjectionLaw,
    calibrate_noise_multiplier,
    epsilon_spent,
)
from sklearn_dpgen.domains import Ball, Box
from sklearn_dpgen.ot import sliced_wasserstein
from sklearn_dpgen.smoothed import PrivateDistance, _distance, smoothed_sliced_wasserstein

BALL = Ball(1.5, n_features=4)


def sample(n, shift=0.0, seed=0, d=4):
    return np.random.default_rng(seed).normal(shift, 0.4, size=(n, d))


def private(X, Y, **changes):
    return smoothed_sliced_wasserstein(
        X, Y, **{"epsilon": 5.0, "domain": BALL, "random_state": 0} | changes
    )


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


def has_the_stated_noise(errors, scale):
    """Whether errors are independent normals of this scale, row by row and column by column."""
    z = errors / scale
    n, k = z.shape
    between = np.corrcoef(z.T)[np.triu_indices(k, 1)]
    return (
        abs((z**2).mean() - 1) < 5 * math.sqrt(2 / z.size)
        and abs(z.mean()) < 5 / math.sqrt(z.size)
        and abs(between).max() < 5 / math.sqrt(n)
        and abs((z[1:] * z[:-1]).mean()) < 5 / math.sqrt(z.size)
        and stats.kstest(z.ravel(), "norm").pvalue > 1e-5
    )


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
    directions = _distance._directions

    def fix(seed):
        monkeypatch.setattr(_distance, "_directions", lambda law, _: directions(law, seed))

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
    assert repr(BALL) in report.sensitivity_source
    assert (report.sampling_rate, report.n_releases) == (1.0, 1)
    assert report.sampler == "every record, in every release"
    assert "law of 4 orthogonal directions" in report.accountant
    assert "void" in report.noise_source
    assert "n_samples" in report.public
    for words in ("one more release", "such as a scaler", "not protected"):
        assert any(words in caveat for caveat in report.caveats)
    assert PrivacyReport.from_dict(report.to_dict()) == report
    unseeded = private(X, Y, random_state=None).privacy
    assert unseeded.noise_source == "operating system entropy"
    assert unseeded.delta == 0.1 / 50
    without = private(X, Y, epsilon=math.inf).privacy
    assert (without.epsilon, without.noise_scale) == (math.inf, 0)
    assert without.accountant == "none: there is no noise"


def noise_of(result, X, domain=BALL):
    return (result.projections - domain.project(X) @ result.directions.T) / result.noise_scale


def test_seeded_noise_is_keyed_by_what_is_released():
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


def largest_correlation_across_domains():
    """Return that of the noise of releases of the same records, inside each of three balls."""
    X, Y = BALL.project(sample(500)) / 2, sample(30, seed=1)
    balls = [Ball(radius, n_features=4) for radius in (1.0, 1.5, 3.0)]
    draws = [noise_of(private(X, Y, domain=ball), X, ball).ravel() for ball in balls]
    return abs(np.corrcoef(draws) - np.eye(3)).max()


def test_seeded_noise_is_keyed_by_the_domain(monkeypatch):
    assert largest_correlation_across_domains() < 5 / math.sqrt(2000)
    randomness = _distance._randomness

    def without_domain(seed, X, domain, mechanism):
        return randomness(seed, X, BALL, mechanism)

    monkeypatch.setattr(_distance, "_randomness", without_domain)
    assert largest_correlation_across_domains() > 0.99


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


def test_seeded_directions_are_keyed_by_what_is_released(monkeypatch):
    X, Y = sample(40), sample(30, seed=1)
    first = private(X, Y)
    for other in (private(X, Y), private(X, Y[:20] + 0.1, p=1, n_repeats=2)):
        np.testing.assert_array_equal(other.directions, first.directions)
    assert not directions_are_shared()
    randomness = _distance._randomness

    def by_seed_alone(seed, *plan):
        return randomness(seed, *plan)[0], seed % 2**32

    def without_records(seed, X, *plan):
        return randomness(seed, X, *plan)[0], randomness(seed, 0 * X, *plan)[1]

    for broken in (by_seed_alone, without_records):
        monkeypatch.setattr(_distance, "_randomness", broken)
        assert directions_are_shared()


def test_without_a_seed_everything_is_fresh():
    X, Y = sample(30), sample(30, seed=1)
    results = [private(X, Y, random_state=None) for _ in range(2)]
    assert not np.isclose(results[0].directions, results[1].directions).any()
    assert results[0].distance_to(Y) != results[0].distance_to(Y)
    assert results[0].distance_to(Y, random_state=3) == results[0].distance_to(Y, random_state=3)


def test_one_release_serves_many_comparisons():
    X, Y = sample(4000), sample(3000, seed=1)
    result = private(X, Y, epsilon=20.0)
    shifted = [result.distance_to(Y + shift, random_state=1) for shift in (0.0, 0.3, 0.6, 0.9)]
    assert (np.diff(shifted) > 0).all()
    # A shift inside the domain is left as it is by the smoothing: c in every coordinate is a mean
    # square of c² along orthonormal directions.
    wide = Ball(6.0, n_features=4)
    result = private(X, Y, epsilon=200.0, domain=wide)
    assert result.distance_to(Y + 1.0, random_state=1) == pytest.approx(1.0, abs=0.1)


def test_the_noise_is_on_both_sides(monkeypatch):
    X, Y = sample(4000), sample(4000, seed=1)
    assert private(X, Y).distance < 0.1 * private(X, Y).noise_scale
    monkeypatch.setattr(_distance, "_with_noise", lambda projected, *_: projected)
    assert private(X, Y).distance > 0.5 * private(X, Y).noise_scale


def test_more_copies_of_public_noise_lower_the_bias():
    X, Y = sample(300), sample(300, seed=1)

    def mean_power(n_repeats):
        result = private(X, Y)
        values = [result.distance_to(Y, n_repeats=n_repeats, random_state=s) for s in range(30)]
        return np.mean(np.square(values)), np.std(np.square(values)) / math.sqrt(30)

    (single, error), (many, _) = mean_power(1), mean_power(8)
    assert many < single - 5 * error


def p_values(n_tests, null_of):
    """Return the ranks of releases of draws from the rows of Y among simulated ones."""
    rng, Y, found = np.random.default_rng(5), sample(25, seed=1), []
    for seed in range(n_tests):
        X = Y[rng.integers(25, size=15)]
        result = private(X, Y, epsilon=30.0, random_state=seed)
        null = null_of(result, Y, seed)
        assert null.shape == (19,)
        found.append((1 + (null >= result.distance).sum()) / 20)
    return np.array(found)


def test_null_distances_have_the_law_of_the_distance(monkeypatch):
    def null_of(result, Y, seed):
        return result.null_distances(Y, n_draws=19, random_state=1000 + seed)

    def chi_square(n_tests):
        ranks = (20 * p_values(n_tests, null_of)).round().astype(int)
        return stats.chisquare(np.bincount(ranks, minlength=21)[1:]).pvalue

    assert chi_square(200) > 1e-4
    with_noise = _distance._with_noise

    def quieter(projected, scale, generator):
        return with_noise(projected, 0.7 * scale, generator)

    def one_sided(projected, scale, generator):
        return projected if len(projected) == 15 else with_noise(projected, scale, generator)

    for broken in (quieter, one_sided):
        monkeypatch.setattr(_distance, "_with_noise", broken)
        assert chi_square(80) < 1e-9


def test_null_distances_tell_a_shift():
    X, Y = sample(2000), sample(2000, seed=1)
    result = private(X, Y, random_state=1)
    null = result.null_distances(Y, n_draws=30, random_state=2)
    assert null.min() < result.distance < null.max()
    away = Y + 0.5
    assert result.distance_to(away) > result.null_distances(away, n_draws=30, random_state=2).max()


def test_a_single_feature_takes_a_single_direction():
    line = Box(0.0, 1.0, n_features=1)
    X, Y = np.linspace(0, 1, 50)[:, None], np.linspace(0.2, 0.8, 40)[:, None]
    for k in ("auto", 1, 50):
        result = private(X, Y, domain=line, n_projections=k)
        np.testing.assert_array_equal(result.directions, [[1.0]])
        multiplier = calibrate_noise_multiplier(5.0, 0.1 / 50)
        assert result.noise_scale == pytest.approx(multiplier)
    assert private(X, Y, domain=line, epsilon=math.inf, p=1).distance == pytest.approx(0.1, rel=0.1)


def test_many_features_take_at_most_twenty_directions():
    domain = Ball(1.0, n_features=60)
    result = private(sample(5, d=60), sample(4, d=60), domain=domain)
    assert result.directions.shape == (20, 60)


def test_the_result_is_frozen_and_may_be_shown():
    result = private(sample(20), sample(20, seed=1))
    assert isinstance(result, PrivateDistance)
    with pytest.raises(FrozenInstanceError):
        result.distance = 0.0
    with pytest.raises(ValueError, match="read-only"):
        result.projections[0] = 0
    with pytest.raises(ValueError, match="read-only"):
        result.directions[0] = 0
    assert "array" not in repr(result)


@pytest.mark.parametrize(
    ("changes", "error", "match"),
    [
        ({"epsilon": 0}, ValueError, "epsilon must be positive"),
        ({"epsilon": "1"}, TypeError, "epsilon"),
        ({"delta": 1.0}, ValueError, "delta must be"),
        ({"delta": "none"}, TypeError, "delta"),
        ({"domain": 1.5}, TypeError, "domain must be a Domain, got float"),
        ({"n_projections": 0}, ValueError, "n_projections must be at least 1"),
        ({"n_projections": 2.0}, TypeError, "n_projections"),
        ({"n_projections": "all"}, ValueError, "n_projections must be one of"),
        ({"directions": "sobol"}, ValueError, "directions must be one of"),
        ({"p": 0.5}, ValueError, "p must be at least 1"),
        ({"p": math.inf}, ValueError, "p must be positive and finite"),
        ({"n_repeats": 0}, ValueError, "n_repeats must be at least 1"),
        ({"random_state": "seed"}, ValueError, "seed"),
    ],
)
def test_invalid_parameters(changes, error, match):
    with pytest.raises(error, match=match):
        private(sample(5), sample(6), **changes)
    # The width of one feature does not hide a wrong number of directions.
    if "n_projections" in changes:
        line = Box(0.0, 1.0, n_features=1)
        with pytest.raises(error, match=match):
            private(sample(5, d=1), sample(6, d=1), **changes, domain=line)


def broken_samples():
    with_nan, with_inf = sample(5), sample(5)
    with_nan[3, 1], with_inf[3, 1] = np.nan, np.inf
    strings = sample(5).astype(object)
    strings[2, 2] = "secret"
    return [
        (with_nan, "contains NaN"),
        (with_inf, "contains infinity"),
        (np.empty((0, 4)), "0 sample"),
        (sample(5, d=3), "domain has 4 features, . has 3 features"),
        (sample(5)[0], "Expected 2D array"),
        (strings, "could not convert string to float"),
    ]


@pytest.mark.parametrize("case", range(6))
def test_invalid_samples_are_refused_without_their_values(case):
    broken, match = broken_samples()[case]
    good = sample(5, seed=2)
    result = private(good, good)
    for call in (
        lambda: private(broken, good),
        lambda: private(good, broken),
        lambda: result.distance_to(broken),
        lambda: result.null_distances(broken),
    ):
        with pytest.raises(ValueError, match=match) as caught:
            call()
        shown = f"{caught.value!r} {caught.value.__context__!r}"
        assert "secret" not in shown
        assert not any(str(value)[:6] in shown for value in sample(5).ravel())


def test_comparisons_check_their_counts():
    X = sample(5)
    result = private(X, X)
    with pytest.raises(ValueError, match="n_repeats must be at least 1"):
        result.distance_to(X, n_repeats=0)
    with pytest.raises(ValueError, match="n_draws must be at least 1"):
        result.null_distances(X, n_draws=0)
