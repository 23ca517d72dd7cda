"""The distance between a private and a public sample: its size, its law, its errors."""

import math
from dataclasses import FrozenInstanceError, replace

import numpy as np
import pytest
from distance_cases import private, sample
from scipy import stats

from sklearn_dpgen.accounting import (
    calibrate_noise_multiplier,
)
from sklearn_dpgen.domains import Ball, Box
from sklearn_dpgen.smoothed import PrivateDistance, _distance
from sklearn_dpgen.utils._torch import as_tensor


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


@pytest.mark.slow
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


@pytest.mark.slow
def test_null_distances_have_the_law_of_the_distance(monkeypatch):
    def null_of(result, Y, seed):
        return result.null_distances(Y, n_draws=19, random_state=1000 + seed)

    def chi_square(n_tests):
        ranks = (20 * p_values(n_tests, null_of)).round().astype(int)
        return stats.chisquare(np.bincount(ranks, minlength=21)[1:]).pvalue

    assert chi_square(80) > 1e-4
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


def test_the_device(released, monkeypatch):
    X, Y = sample(50), sample(60, seed=1)
    expected = private(X, Y)
    result = private(X, Y, device="cpu")
    assert (expected.device, result.device) == ("auto", "cpu")
    assert_same_release(result, expected)
    assert result.distance == expected.distance
    seen = []

    def watch(values, *, device, dtype):
        seen.append(str(device))
        return as_tensor(values, device="cpu", dtype=dtype)

    # Not there, but asked for: the release is made before, and asks for none.
    monkeypatch.setattr(_distance, "as_tensor", watch)
    monkeypatch.setattr(_distance, "resolve_device", lambda device: device)
    result = private(X, Y, device="cuda:7")
    assert_same_release(result, expected)
    result.distance_to(Y)
    result.null_distances(Y, n_draws=1)
    replace(result, device="cuda:8").distance_to(Y)
    assert seen == 6 * ["cuda:7"] + 2 * ["cuda:8"]
    assert len(released) == 3


def test_a_device_that_is_not_there_is_refused_before_a_release(released):
    for wrong in ("nowhere", "cuda:99", 3.5, None):
        with pytest.raises(ValueError, match="is not a device of this machine"):
            private(sample(5), sample(6), device=wrong)
    assert not released
    result = private(sample(5), sample(6))
    with pytest.raises(ValueError, match="device='nowhere'"):
        replace(result, device="nowhere").distance_to(sample(6))


def assert_same_release(result, expected):
    np.testing.assert_array_equal(result.directions, expected.directions)
    np.testing.assert_array_equal(result.projections, expected.projections)


@pytest.mark.gpu
def test_a_gpu_finds_the_same_distances():
    X, Y = sample(50), sample(60, seed=1)
    on_gpu, expected = private(X, Y, device="cuda"), private(X, Y, device="cpu")
    assert_same_release(on_gpu, expected)
    assert on_gpu.distance == pytest.approx(expected.distance)
    for find in (
        lambda result: result.distance_to(Y + 1, random_state=0),
        lambda result: result.null_distances(Y, n_draws=3, random_state=0),
    ):
        np.testing.assert_allclose(find(on_gpu), find(expected))


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
        (strings, "must hold real numbers"),
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
