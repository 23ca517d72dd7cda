"""The price of selections: attained by exponential mechanisms, never exceeded, and composed."""

import math
from math import comb

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import softmax
from scipy.stats import norm
from test_accounting_profiles import ProfileContract, check_contract

from sklearn_dpgen.accounting import (
    ApproximateProfile,
    GaussianProfile,
    compose_epsilon,
    gaussian_sigma,
)
from sklearn_dpgen.accounting._composition import compose_delta
from sklearn_dpgen.accounting._selection import BoundedRangeProfile, calibrate_releases

EPSILONS = np.linspace(-3, 3, 61)


def binary(epsilon0, t):
    """Return the laws of two outputs whose losses are t and t − ε₀."""
    q = math.expm1(t - epsilon0) / math.expm1(-epsilon0)
    return np.array([q, 1 - q]), np.array([q * math.exp(-t), (1 - q) * math.exp(epsilon0 - t)])


def exponential_mechanism(scores, sensitivity, epsilon0):
    return softmax(epsilon0 * np.asarray(scores) / (2 * sensitivity))


def hockey_stick(p, q, epsilon):
    return np.maximum(np.asarray(p) - np.exp(epsilon) * np.asarray(q), 0).sum()


def fixed_pair_delta(epsilon, epsilon0, n, mu=0.0):
    """Return the largest divergence of n equal binary pairs and one Gaussian release, over t.

    The mechanisms are real ones, chosen in advance, so this is a lower bound.
    """
    i = np.arange(n + 1)
    weights = np.array([comb(n, int(j)) for j in i], dtype=float)
    best = 0.0
    for t in np.linspace(0, epsilon0, 201)[1:-1]:
        p, _ = binary(epsilon0, t)
        law = weights * p[0] ** (n - i) * p[1] ** i
        rest = epsilon - (n * t - i * epsilon0)
        divergence = GaussianProfile(mu).delta(rest) if mu else np.maximum(-np.expm1(rest), 0)
        best = max(best, float(law @ divergence))
    return best


# One selection.


class TestOneSelection(ProfileContract):
    profile = BoundedRangeProfile(3.0)

    def hockey_stick(self, epsilon):
        # The pair depends on epsilon: no single one attains the whole profile.
        return hockey_stick(*binary(3.0, (3.0 + epsilon) / 2), epsilon)


class TestManySelections(ProfileContract):
    profile = BoundedRangeProfile(0.9, 4)

    def test_is_attained_by_a_pair(self):
        # Fixed choices attain nearly all of it, and adaptive ones, below, the rest.
        for epsilon in (0.0, 0.3, 1.0, 2.5):
            attained = fixed_pair_delta(epsilon, 0.9, 4)
            assert attained <= self.profile.delta(epsilon) <= 1.08 * attained


@pytest.mark.parametrize("epsilon0", [1e-4, 0.1, 1.0, 6.0, 60.0])
def test_one_selection_is_the_worst_binary_pair(epsilon0):
    """The closed form against a search over t, at both signs of epsilon."""
    profile = BoundedRangeProfile(epsilon0)
    for epsilon in epsilon0 * np.array([-1.2, -0.7, -0.1, 0.0, 0.2, 0.6, 0.99, 1.3]):
        pairs = [binary(epsilon0, t) for t in np.linspace(0, epsilon0, 2001)]
        worst = max(hockey_stick(*pair, epsilon) for pair in pairs)
        assert profile.delta(epsilon) == pytest.approx(worst, rel=1e-5, abs=1e-12)
        assert profile.delta(epsilon) >= worst * (1 - 1e-9) - 1e-15
        # The closed form needs no mirror.
        if abs(epsilon) <= epsilon0:
            exact = math.expm1((epsilon - epsilon0) / 2) ** 2 / -math.expm1(-epsilon0)
            assert profile.delta(epsilon) == pytest.approx(exact, rel=1e-9, abs=1e-12)


@pytest.mark.slow
def test_exponential_mechanisms_attain_it():
    """Two candidates whose scores change by the sensitivity, in opposite directions."""
    epsilon0, sensitivity = 1.3, 2.5
    profile = BoundedRangeProfile(epsilon0)
    for epsilon in (-0.8, 0.0, 0.5, 1.2):
        gaps = np.linspace(-40, 40, 8001)
        found = 0.0
        for gap in gaps:
            p = exponential_mechanism([gap + sensitivity, 0], sensitivity, epsilon0)
            q = exponential_mechanism([gap, sensitivity], sensitivity, epsilon0)
            found = max(found, hockey_stick(p, q, epsilon))
        assert found == pytest.approx(profile.delta(epsilon), rel=1e-5)


def dominates(delta, p, q):
    """Whether a profile is nowhere below the divergence of a pair, in either order."""
    slack = 1e-12
    return all(
        hockey_stick(a, b, e) <= delta(e) + slack for a, b in ((p, q), (q, p)) for e in EPSILONS
    )


SCORES = st.lists(
    st.tuples(st.floats(-30, 30), st.floats(-1, 1) | st.sampled_from([-1.0, 1.0])),
    min_size=2,
    max_size=8,
)


@pytest.mark.slow
@settings(deadline=None, derandomize=True, max_examples=150)
@given(SCORES, st.floats(0.01, 6), st.floats(0.01, 100))
def test_no_exponential_mechanism_exceeds_it(scores, epsilon0, sensitivity):
    u, change = sensitivity * np.array(scores).T
    p = exponential_mechanism(u, sensitivity, epsilon0)
    q = exponential_mechanism(u + change, sensitivity, epsilon0)
    assert dominates(BoundedRangeProfile(epsilon0).delta, p, q)
    # Scores that change in one direction need no factor 2.
    p = softmax(epsilon0 * u / sensitivity)
    q = softmax(epsilon0 * (u + np.abs(change)) / sensitivity)
    assert dominates(BoundedRangeProfile(epsilon0).delta, p, q)


def test_the_check_catches_half_of_the_range_and_the_wrong_convention():
    p, q = (exponential_mechanism(u, 1.0, 1.0) for u in ([1.0, 0.0], [0.0, 1.0]))
    assert dominates(BoundedRangeProfile(1.0).delta, p, q)
    assert not dominates(BoundedRangeProfile(0.5).delta, p, q)
    # Weights of one-sided changes, with scores that change in both directions.
    p, q = softmax([1.0, 0.0]), softmax([0.0, 1.0])
    assert not dominates(BoundedRangeProfile(1.0).delta, p, q)
    assert dominates(BoundedRangeProfile(2.0).delta, p, q)


@given(st.floats(1e-3, 20), st.floats(-25, 25))
def test_never_above_pure_differential_privacy(epsilon0, epsilon):
    selection, pure = BoundedRangeProfile(epsilon0), ApproximateProfile(epsilon0)
    assert selection.delta(epsilon) <= pure.delta(epsilon) + 1e-15
    assert selection.delta(0.0) == pytest.approx(math.tanh(epsilon0 / 4), rel=1e-9)


def test_a_pair_of_pure_differential_privacy_may_exceed_it():
    p = np.array([math.e, 1]) / (math.e + 1)
    assert dominates(ApproximateProfile(1.0).delta, p, p[::-1])
    assert not dominates(BoundedRangeProfile(1.0).delta, p, p[::-1])


# Several selections.


def searched(epsilon0, n):
    """Return the profile of adaptive selections by a search over t at each, as a function of ε."""
    losses = n * epsilon0 * np.linspace(-1, 1, 3001)
    t = np.linspace(0, epsilon0, 301)[:, None]
    q = np.expm1(t - epsilon0) / math.expm1(-epsilon0)
    delta = BoundedRangeProfile(epsilon0).delta
    for _ in range(n - 1):
        values = (q * delta(losses - t) + (1 - q) * delta(losses + epsilon0 - t)).max(axis=0)

        def delta(epsilon, values=values):
            # Beyond the grid every loss is on the same side of epsilon.
            far = np.maximum(-np.expm1(np.minimum(epsilon, 0.0)), 0.0)
            inside = np.interp(epsilon, losses, values)
            return np.where(np.abs(epsilon) > losses[-1], far, inside)

    return delta


@pytest.mark.parametrize(("epsilon0", "n"), [(1e-3, 2), (0.5, 2), (5.0, 2), (0.3, 4), (2.0, 6)])
def test_several_selections_against_a_search(epsilon0, n):
    profile, exact = BoundedRangeProfile(epsilon0, n), searched(epsilon0, n)
    for epsilon in n * epsilon0 * np.array([-0.7, -0.2, 0.0, 0.2, 0.6, 0.8]):
        assert profile.delta(epsilon) == pytest.approx(exact(epsilon), rel=5e-3)
    # Fixed choices attain less: adaptivity has a price, and it is in the profile.
    epsilon = 0.2 * n * epsilon0
    assert exact(epsilon) > 1.002 * fixed_pair_delta(epsilon, epsilon0, n)


def adaptive_laws(scores, changes, epsilon0):
    """Return the laws of two outputs in turn, the second from scores that depend on the first."""
    laws = []
    for moved in (0.0, 1.0):
        u = scores + moved * changes
        first = exponential_mechanism(u[0], 1.0, epsilon0)
        second = [exponential_mechanism(row, 1.0, epsilon0) for row in u[1:]]
        laws.append(np.concatenate([w * law for w, law in zip(first, second, strict=True)]))
    return laws


@pytest.mark.slow
@settings(deadline=None, derandomize=True, max_examples=60)
@given(st.integers(0, 2**32 - 1), st.floats(0.05, 3))
def test_no_adaptive_selections_exceed_it(seed, epsilon0):
    rng = np.random.default_rng(seed)
    scores = rng.normal(scale=rng.choice([0.3, 3.0]), size=(4, 3))
    changes = rng.choice([-1.0, 1.0], size=(4, 3))
    p, q = adaptive_laws(scores, changes, epsilon0)
    assert dominates(BoundedRangeProfile(epsilon0, 2).delta, p, q)


def test_the_check_catches_a_selection_that_is_not_counted():
    scores, changes = np.zeros((3, 2)), np.array([[1.0, -1.0]] * 3)
    p, q = adaptive_laws(scores, changes, 1.0)
    assert dominates(BoundedRangeProfile(1.0, 2).delta, p, q)
    assert not dominates(BoundedRangeProfile(1.0, 1).delta, p, q)
    assert not dominates(BoundedRangeProfile(0.5, 2).delta, p, q)


@pytest.mark.parametrize(
    ("epsilon0", "n", "delta"),
    [(0.1, 30, 1e-6), (0.3, 30, 1e-9), (0.05, 100, 1e-5), (1.0, 5, 1e-6)],
)
def test_many_selections_lie_between_fixed_choices_and_concentrated_privacy(epsilon0, n, delta):
    profile = BoundedRangeProfile(epsilon0, n)
    epsilon = compose_epsilon([(profile, 1)], delta)
    # The optimum over fixed choices, which are real mechanisms, is just below.
    assert fixed_pair_delta(epsilon, epsilon0, n) <= delta
    assert fixed_pair_delta(0.985 * epsilon, epsilon0, n) > delta
    # ε₀²/8-zCDP a selection, by the conversion of Canonne, Kamath and Steinke, 2020.
    rho, orders = n * epsilon0**2 / 8, 1 + np.geomspace(1e-2, 1e4, 4000)
    concentrated = rho * orders + np.log1p(-1 / orders) - np.log(delta * orders) / (orders - 1)
    assert epsilon < 0.95 * concentrated.min()
    pure = compose_epsilon([(ApproximateProfile(epsilon0), n)], delta)
    one_at_a_time = compose_epsilon([(BoundedRangeProfile(epsilon0), n)], delta)
    assert epsilon < one_at_a_time < pure <= n * epsilon0 * (1 + 1e-3)


def test_many_selections_cost_what_their_variance_says():
    """Many small selections tend to a Gaussian of μ² = n ε₀²/4; of a single profile, n ε₀²/3."""
    epsilon0, n, delta = 0.02, 300, 1e-5
    limit = GaussianProfile(math.sqrt(n) * epsilon0 / 2).epsilon(delta)
    assert BoundedRangeProfile(epsilon0, n).epsilon(delta) == pytest.approx(limit, rel=5e-3)
    single = GaussianProfile(math.sqrt(n / 3) * epsilon0).epsilon(delta)
    found = compose_epsilon([(BoundedRangeProfile(epsilon0), n)], delta)
    assert found == pytest.approx(single, rel=5e-3)


@pytest.mark.slow
@settings(deadline=None, derandomize=True, max_examples=25)
@given(st.floats(1e-5, 30), st.integers(2, 40))
def test_the_contract_holds_whatever_the_scale(epsilon0, n):
    profile = BoundedRangeProfile(epsilon0, n)
    check_contract(profile.delta)
    epsilons = epsilon0 * n * np.linspace(-1, 1, 81)
    values = profile.delta(epsilons)
    assert np.all(values <= BoundedRangeProfile(epsilon0, n + 1).delta(epsilons) * (1 + 2e-3))
    assert profile.delta(n * epsilon0) <= 1e-14
    # The interpolation is convex in e^ε: in local coordinates, so that nothing overflows.
    gap = epsilons[1] - epsilons[0]
    share = 1 / (1 + math.exp(gap))
    chord = (1 - share) * values[:-2] + share * values[2:]
    assert np.all(values[1:-1] <= chord * (1 + 1e-9) + 1e-12)


# With Gaussian releases.


def test_next_to_a_gaussian_release():
    mu, epsilon0, n = 0.4, 0.2, 12
    gaussian, selections = GaussianProfile(mu), BoundedRangeProfile(epsilon0, n)
    losses = mu * norm.ppf((np.arange(200_000) + 0.5) / 200_000) + mu * mu / 2
    for epsilon in (0.3, 1.0, 1.5):
        composed = compose_delta([(gaussian, 1), (selections, 1)], epsilon)
        exact = selections.delta(epsilon - losses).mean()
        assert exact * (1 - 1e-5) <= composed <= exact * (1 + 5e-3)
        attained = fixed_pair_delta(epsilon, epsilon0, n, mu)
        assert attained <= composed <= 1.2 * attained
        # What is not counted, or counted at half its range, is caught.
        for wrong in ((epsilon0, 1), (epsilon0 / 2, n)):
            cheap = compose_delta([(gaussian, 1), (BoundedRangeProfile(*wrong), 1)], epsilon)
            assert cheap < attained


def test_a_gaussian_release_between_two_selections_is_cheaper_than_before_them():
    """The order that compose_delta evaluates is the worst: brute force over both choices of t."""
    mu, epsilon0, epsilon = 0.8, 1.0, 0.7
    one = BoundedRangeProfile(epsilon0)
    draws = norm.ppf((np.arange(4000) + 0.5) / 4000)
    losses = mu * draws + mu * mu / 2

    def last(rest):  # a Gaussian release, then one selection
        return one.delta(rest - losses).mean()

    between = 0.0
    for t in np.linspace(0, epsilon0, 101):
        p, _ = binary(epsilon0, t)
        between = max(between, p[0] * last(epsilon - t) + p[1] * last(epsilon + epsilon0 - t))
    composed = compose_delta(
        [(BoundedRangeProfile(epsilon0, 2), 1), (GaussianProfile(mu), 1)], epsilon
    )
    assert 0.98 * composed < between < composed


def test_a_composition_is_near_that_of_its_parts():
    releases = [(GaussianProfile(0.2), 1), (BoundedRangeProfile(0.0512, 30), 1)]
    joint = compose_epsilon(releases, 1e-5)
    pure = compose_epsilon([releases[0], (ApproximateProfile(0.0512), 30)], 1e-5)
    limit = GaussianProfile(math.sqrt(0.04 + 30 * 0.0512**2 / 4)).epsilon(1e-5)
    assert joint == pytest.approx(limit, rel=5e-3)
    assert joint < 0.72 * pure


# Calibration.


def spent(mus, epsilon0, n, delta):
    selections = [(BoundedRangeProfile(epsilon0, n), 1)] if n else []
    return compose_epsilon([(GaussianProfile(mu), 1) for mu in mus] + selections, delta)


@pytest.mark.parametrize("epsilon", [0.2, 1.0, 10.0])
@pytest.mark.parametrize(
    ("shares", "share", "n"), [((1.0, 7.0), 2 / 30, 30), ((), 1.0, 3), ((3.0,), 1.0, 1)]
)
def test_a_calibrated_budget_is_spent_and_not_exceeded(epsilon, shares, share, n):
    delta = 1e-5
    mus, epsilon0 = calibrate_releases(
        epsilon, delta, gaussian_shares=shares, selection_share=share, n_selections=n
    )
    assert 0.999 * epsilon < spent(mus, epsilon0, n, delta) <= epsilon
    # One selection more than was paid for, or a larger one, overspends.
    assert spent(mus, epsilon0, n + 1, delta) > epsilon
    assert spent(mus, 1.1 * epsilon0, n, delta) > epsilon
    squared = np.array([mu**2 for mu in mus] + [epsilon0**2 / 4])
    np.testing.assert_allclose(squared / squared[-1], np.array([*shares, share]) / share)


@pytest.mark.slow
def test_a_larger_budget_buys_more_and_selections_cost():
    shares = {"gaussian_shares": (1.0,), "selection_share": 0.02, "n_selections": 10}
    found = [calibrate_releases(e, 1e-5, **shares) for e in (0.3, 0.6, 1.2, 2.4)]
    assert np.all(np.diff([mus[0] for mus, _ in found]) > 0)
    assert np.all(np.diff([epsilon0 for _, epsilon0 in found]) > 0)
    assert calibrate_releases(0.3, 1e-4, **shares) > found[0]
    more = calibrate_releases(0.3, 1e-5, **shares | {"n_selections": 20})
    assert more[0] < found[0][0]
    assert more[1] < found[0][1]


def test_gaussian_releases_alone():
    mus, epsilon0 = calibrate_releases(1.0, 1e-5, gaussian_shares=(1.0, 3.0))
    assert epsilon0 is None
    assert math.hypot(*mus) == pytest.approx(1 / gaussian_sigma(1.0, 1e-5), rel=1e-9)
    assert spent(mus, None, 0, 1e-5) <= 1.0


def test_without_noise():
    mus, epsilon0 = calibrate_releases(
        math.inf, 1e-5, gaussian_shares=(1.0, 2.0), selection_share=1.0, n_selections=2
    )
    assert mus == (math.inf, math.inf)
    assert epsilon0 == math.inf
    assert calibrate_releases(math.inf, 1e-5, gaussian_shares=(1.0,)) == ((math.inf,), None)


@pytest.mark.parametrize(
    ("build", "error", "message"),
    [
        (lambda: BoundedRangeProfile(0.0), ValueError, "epsilon0"),
        (lambda: BoundedRangeProfile(math.inf), ValueError, "epsilon0"),
        (lambda: BoundedRangeProfile(1.0, 0), ValueError, "n_selections"),
        (lambda: BoundedRangeProfile(1.0, 2.0), TypeError, "n_selections"),
        (lambda: calibrate_releases(1.0, 0.1, gaussian_shares=()), ValueError, "empty"),
        (lambda: calibrate_releases(1.0, 0.1, gaussian_shares=(0.0,)), ValueError, "shares"),
        (lambda: calibrate_releases(0.0, 0.1, gaussian_shares=(1.0,)), ValueError, "epsilon"),
        (lambda: calibrate_releases(1.0, 1.0, gaussian_shares=(1.0,)), ValueError, "delta"),
        (
            lambda: calibrate_releases(1.0, 0.1, gaussian_shares=(1.0,), selection_share=1.0),
            ValueError,
            "None if n_selections is 0",
        ),
        (
            lambda: calibrate_releases(1.0, 0.1, gaussian_shares=(1.0,), n_selections=2),
            TypeError,
            "selection_share",
        ),
        (
            lambda: calibrate_releases(
                1.0, 0.1, gaussian_shares=(), selection_share=1.0, n_selections=-1
            ),
            ValueError,
            "n_selections",
        ),
    ],
)
def test_bad_parameters(build, error, message):
    with pytest.raises(error, match=message):
        build()
