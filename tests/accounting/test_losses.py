"""Composed losses are between their bounds, which hold for exact sums and are close together."""

import math
from functools import cache

import mpmath
import numpy as np
import pytest
from dp_accounting import GaussianDpEvent, SampledWithoutReplacementDpEvent
from dp_accounting.privacy_accountant import NeighboringRelation
from dp_accounting.rdp import RdpAccountant
from hypothesis import given, settings
from hypothesis import strategies as st

from sklearn_dpgen.accounting import GaussianProfile, _losses, epsilon_spent
from sklearn_dpgen.accounting._losses import ComposedLosses, LossDistribution
from sklearn_dpgen.accounting._projection import _gaussian_centered, _sampled
from sklearn_dpgen.auditing._bounds import (
    DiscretePair,
    LaplacePair,
    SampledGaussianPair,
    SampledReplacementPair,
    least_epsilon,
)

STEP = 2.0**-10


@pytest.fixture(autouse=True)
def digits():
    with mpmath.workdps(50):
        yield


def sums(part, times):
    """Return the probabilities of the places of a sum, in long arithmetic."""
    found = {0: mpmath.mpf(1)}
    terms = [
        (int(place), mpmath.exp(mpmath.mpf(float(log))))
        for place, log in zip(part.places, part.log_probabilities, strict=True)
    ]
    for _ in range(times):
        total = {}
        for place, p in found.items():
            for other, q in terms:
                total[place + other] = total.get(place + other, 0) + p * q
        found = total
    return found


@cache
def response_sums(n_places, times):
    """Return the same for a response, by the binomial law."""
    part = response(n_places)
    p, q = (mpmath.exp(mpmath.mpf(float(log))) for log in part.log_probabilities)
    found, term = {}, q**times
    for k in range(times + 1):
        found[(times - 2 * k) * n_places] = term
        term *= p / q * (times - k) / (k + 1)
    return found


def exact_delta(probabilities, epsilon, step=STEP):
    return mpmath.fsum(
        p * -mpmath.expm1(epsilon - place * mpmath.mpf(step))
        for place, p in probabilities.items()
        if place * step > epsilon
    )


def response(n_places):
    p = 1 / (1 + math.exp(-n_places * STEP))
    return LossDistribution(np.array([-n_places, n_places]), np.log([1 - p, p]))


def bounds_at(composed, epsilon):
    return composed._bounds(composed._tilt_at(epsilon))(epsilon)


def check_between(composed, probabilities, epsilon, width=1e-7):
    low, high = bounds_at(composed, epsilon)
    exact = exact_delta(probabilities, epsilon)
    assert low <= exact <= high
    assert high - low <= width * exact


PLANS = [(512, 1, 0.3), (512, 7, 2.0), (64, 300, 4.0), (64, 300, 12.0), (4, 5000, 2.0)]


@pytest.mark.parametrize(("n_places", "times", "epsilon"), PLANS)
def test_responses_have_binomial_sums(n_places, times, epsilon):
    part = response(n_places)
    composed = ComposedLosses(STEP, (part,), (times,))
    check_between(composed, response_sums(n_places, times), epsilon)


def moved(part, places):
    return LossDistribution(part.places + places, part.log_probabilities)


@pytest.mark.parametrize(("n_places", "times", "epsilon"), PLANS)
@pytest.mark.parametrize("places", [-1, 1])
def test_losses_that_are_rounded_wrongly_are_outside(n_places, times, epsilon, places):
    part = response(n_places)
    composed = ComposedLosses(STEP, (moved(part, places),), (times,))
    with pytest.raises(AssertionError):
        check_between(composed, response_sums(n_places, times), epsilon)


def test_what_a_window_leaves_out_is_counted(monkeypatch):
    n_places, times, epsilon = 4, 5000, 1.0
    composed = ComposedLosses(STEP, (response(n_places),), (times,))
    probabilities = response_sums(n_places, times)
    window = ComposedLosses._window
    # 1 percent of the mass, which then is far outside of the bounds.
    monkeypatch.setattr(_losses, "_WINDOW_MASS", 0.01)
    monkeypatch.setattr(_losses, "_CHERNOFF", np.array([3.0]))
    check_between(composed, probabilities, epsilon, width=1.0)

    def narrow(self, *args):
        first, n_places, _ = window(self, *args)
        return first + n_places // 4, n_places // 4, 0.0

    monkeypatch.setattr(ComposedLosses, "_window", narrow)
    with pytest.raises(AssertionError):
        check_between(composed, probabilities, epsilon, width=1.0)


@pytest.mark.parametrize("sign", [-1, 1])
def test_the_largest_errors_of_a_transform_are_covered(monkeypatch, sign):
    n_places, times, epsilon = 4, 5000, 2.0
    composed = ComposedLosses(STEP, (response(n_places),), (times,))
    probabilities = response_sums(n_places, times)
    transform = _losses.rfft

    def with_errors(units):
        def shifted(values):
            exact = transform(values)
            error = units * _losses._UNIT * math.log2(len(values)) * values.sum()
            return exact + sign * error * exact / np.maximum(np.abs(exact), 1e-300)

        monkeypatch.setattr(_losses, "rfft", shifted)
        check_between(composed, probabilities, epsilon)

    with_errors(_losses._LEVEL - 1)
    with pytest.raises(AssertionError):
        with_errors(20 * _losses._LEVEL)


@st.composite
def parts(draw):
    places = draw(st.lists(st.integers(-900, 1500), min_size=1, max_size=4, unique=True))
    weights = draw(st.lists(st.integers(1, 10**6), min_size=len(places), max_size=len(places)))
    logs = np.log(weights) - math.log(sum(weights))
    return LossDistribution(np.array(places), logs)


@settings(max_examples=40, deadline=None)
@given(st.lists(st.tuples(parts(), st.integers(1, 6)), min_size=1, max_size=2), st.floats(0, 4))
def test_any_sums_are_between_their_bounds(releases, epsilon):
    with mpmath.workdps(50):
        probabilities = {0: mpmath.mpf(1)}
        for part, times in releases:
            total = {}
            for place, p in probabilities.items():
                for other, q in sums(part, times).items():
                    total[place + other] = total.get(place + other, 0) + p * q
            probabilities = total
        composed = ComposedLosses(STEP, *map(tuple, zip(*releases, strict=True)))
        low, high = bounds_at(composed, epsilon)
        assert low <= exact_delta(probabilities, epsilon) <= high


def test_infinite_losses_add_to_delta():
    part = response(512)
    failing = LossDistribution(part.places, part.log_probabilities + math.log1p(-1e-3), 1e-3)
    low, high = bounds_at(ComposedLosses(STEP, (failing,), (3,)), 0.6)
    finite = exact_delta(response_sums(512, 3), 0.6)
    exact = 1 - (1 - mpmath.mpf(1e-3)) ** 3 * (1 - finite)
    assert low <= exact * (1 + 1e-15)
    assert exact * (1 - 1e-15) <= high < exact * (1 + 1e-9)
    assert ComposedLosses(STEP, (failing,), (3,)).epsilon(2e-3) == math.inf
    assert ComposedLosses(STEP, (failing,), (3,)).least_epsilon(2e-3) == math.inf


def test_an_infinite_loss_as_likely_as_delta_is_on_both_sides():
    failing = LossDistribution(np.array([0]), np.log([0.9]), 0.1)
    composed = ComposedLosses(STEP, (failing,), (1,))
    # By rounding, either of the two may be the larger one.
    for delta in (0.1, composed.infinity_mass, math.nextafter(composed.infinity_mass, 0)):
        assert composed.epsilon(delta) == math.inf
        assert composed.least_epsilon(delta) == 0


@pytest.mark.parametrize("delta", [1e-2, 1e-6, 1e-12, 1e-18])
def test_epsilons_are_on_both_sides(delta):
    n_places, times = 64, 300
    composed = ComposedLosses(STEP, (response(n_places),), (times,))
    probabilities = response_sums(n_places, times)
    low, high = composed.least_epsilon(delta), composed.epsilon(delta)
    assert high == pytest.approx(low, rel=1e-7)
    assert exact_delta(probabilities, low) >= delta >= exact_delta(probabilities, high)


@pytest.mark.parametrize("delta", [1e-2, 1e-6, 1e-12])
def test_lower_bounds_of_pairs_are_below_closed_forms(delta):
    def check(pairs, exact):
        assert exact - 5e-3 <= least_epsilon(pairs, delta) <= exact

    gaussians = [SampledGaussianPair(0.3, 1.0)] * 16
    check(gaussians, GaussianProfile(1.2).epsilon(delta))
    check([LaplacePair(0.8)], 0.8 + 2 * math.log1p(-delta))
    with pytest.raises(AssertionError):
        check([SampledGaussianPair(0.301, 1.0)] * 16, GaussianProfile(1.2).epsilon(delta))


def test_losses_are_infinite_only_where_they_are():
    far = DiscretePair((0.0, -900.0), (-900.0, 0.0))
    assert least_epsilon([far], 1e-6) == pytest.approx(900, abs=0.1)
    apart = DiscretePair((0.0, -math.inf), (-math.inf, 0.0))
    assert least_epsilon([apart], 1e-6) == math.inf
    # Cells of far records, whose probabilities underflow.
    laws = SampledReplacementPair((60.0, 60.0), -3600.0, 0.5)._laws(0.1)
    assert [law.infinity_mass for law in laws] == [0.0, 0.0]


@pytest.mark.parametrize(
    ("rate", "multiplier"), [(0.5, 30.0), (0.5, 0.5), (1e-3, 10.0), (0.2, 4.0)]
)
def test_moments_of_batches_are_those_of_the_theorem(rate, multiplier):
    # Theorem 27 of Wang, Balle and Kasiviswanathan, with the differences of e^{cj(j − 1)}.
    largest, orders = 41, np.array([2, 3, 9, 40])
    mpmath.mp.dps = 200
    c, gamma = 1 / (2 * mpmath.mpf(multiplier) ** 2), mpmath.mpf(rate)

    def moment(j):
        return mpmath.exp(c * j * (j - 1))

    differences = [
        mpmath.fsum((-1) ** (n - j) * mpmath.binomial(n, j) * moment(j) for j in range(n + 1))
        for n in range(largest)
    ]

    def exact(order):
        terms = (
            min(2 * moment(j), 4 * mpmath.sqrt(differences[j - j % 2] * differences[j + j % 2]))
            * mpmath.binomial(order, j)
            * gamma**j
            for j in range(2, order + 1)
        )
        return mpmath.log1p(mpmath.fsum(terms))

    plain = np.array([j * (j - 1) / (2 * multiplier**2) * (1 + 1e-11) for j in range(257)])
    mu = math.sqrt(1 + 1e-11) / multiplier
    bounds = _sampled(plain, _gaussian_centered(mu), rate, orders)
    for order, bound in zip(orders.tolist(), bounds, strict=True):
        assert exact(order) <= bound <= exact(order) * (1 + 1e-10)
    narrow = _sampled(plain * (1 - 1e-9), _gaussian_centered(mu * (1 - 1e-9)), rate, orders)
    assert narrow[0] < exact(2)


@pytest.mark.parametrize(
    ("rate", "n_steps", "multiplier"),
    [(0.2, 500, 18.1), (0.01, 1000, 1.589), (1 / 600, 60000, 0.615), (1.0, 10, 5.0), (1.0, 1, 1e3)],
)
def test_renyi_epsilons_are_those_of_dp_accounting(rate, n_steps, multiplier):
    event = GaussianDpEvent(multiplier)
    if rate < 1:
        event = SampledWithoutReplacementDpEvent(10**15, math.ceil(rate * 10**15), event)
    accountant = RdpAccountant(neighboring_relation=NeighboringRelation.REPLACE_ONE)
    library = accountant.compose(event, n_steps).get_epsilon(1e-5)
    plan = {"sampling_rate": rate, "n_steps": n_steps, "accountant": "rdp"}
    assert epsilon_spent(multiplier, 1e-5, **plan) == pytest.approx(library, rel=1e-9)


def test_a_large_multiplier_in_batches_spends_less_than_in_dp_accounting():
    # The library bounds high orders without the centered moments.
    event = SampledWithoutReplacementDpEvent(2, 1, GaussianDpEvent(300.0))
    accountant = RdpAccountant(neighboring_relation=NeighboringRelation.REPLACE_ONE)
    plan = {"sampling_rate": 0.5, "n_steps": 3}
    renyi = epsilon_spent(300.0, 1e-5, accountant="rdp", **plan)
    assert epsilon_spent(300.0, 1e-5, **plan) < renyi
    assert renyi < 0.5 * accountant.compose(event, 3).get_epsilon(1e-5)
