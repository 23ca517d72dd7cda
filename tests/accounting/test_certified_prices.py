"""What discrete noise on rounded values costs: theorems at scales where sums can be taken."""

import math
from fractions import Fraction

import mpmath
import numpy as np
import pytest

from sklearn_dpgen.accounting import LaplaceProfile
from sklearn_dpgen.accounting._certified import (
    certified_failure,
    certified_gaussian_scale,
    certified_gaussian_sigma,
    certified_laplace_epsilon,
    certified_laplace_scale,
    certified_mu,
    certified_range,
    certified_score_scale,
    check_certified,
    remaining_delta,
)
from sklearn_dpgen.accounting._profiles import FailingGaussianProfile

STEPS = 2**26


def model_sigma(s, corrected=True):
    """Return σ with s² = σ² / (1 − 1/(12 σ²)): 12 σ⁴ = s² (12 σ² − 1)."""
    if not corrected:
        return mpmath.mpf(s)
    square = mpmath.findroot(lambda v: 12 * v**2 - s**2 * (12 * v - 1), mpmath.mpf(s) ** 2)
    return mpmath.sqrt(square)


def weight(k, s):
    """Of k under the discrete Gaussian law."""
    return mpmath.exp(-(mpmath.mpf(k) ** 2) / (2 * s**2))


def mass(s):
    return mpmath.fsum(weight(k, s) for k in range(-20 * s, 20 * s + 1))


def least_ratio(s, sigma):
    """Return the least of P(discrete) / P(rounded continuous) over the multiples of s to 20 s."""
    with mpmath.workdps(150):
        total = mpmath.fsum(
            mpmath.exp(-(mpmath.mpf(k) ** 2) / (2 * s**2)) for k in range(-20 * s, 20 * s + 1)
        )
        least = mpmath.inf
        for k in range(0, 20 * s, s):
            ours = mpmath.exp(-(mpmath.mpf(k) ** 2) / (2 * s**2)) / total
            root = sigma * mpmath.sqrt(2)
            ends = [mpmath.erfc((k + side) / root) for side in (-0.5, 0.5)]
            least = min(least, ours / ((ends[0] - ends[1]) / 2))
        return least


@pytest.mark.parametrize("s", [1, 2, 4])
def test_discrete_noise_is_nearly_all_rounded_gaussian_noise(s):
    with mpmath.workdps(60):
        sigma = model_sigma(s)
        assert s**2 - mpmath.mpf(1) / 5 < sigma**2 < s**2
    excess = 3 * math.exp(-2 * math.pi**2 * s**2)
    assert least_ratio(s, sigma) >= 1 - 1 / (12 * float(sigma) ** 2) - excess
    # Noise of the same parameter has heavier tails once it is rounded: there is no such bound.
    assert least_ratio(s, model_sigma(s, corrected=False)) < 0.9


def test_the_failure_of_the_grid_in_use():
    exact = Fraction(1) / (12 * (Fraction(STEPS) ** 2 - Fraction(1, 5)))
    assert exact < Fraction(certified_failure(1)) < exact * Fraction(12, 10)
    assert certified_failure(1000) == pytest.approx(1000 * certified_failure(1))


def discrete_laplace_delta(shift, t, epsilon):
    """Return the hockey-stick divergence of two discrete Laplace laws on the integers."""
    k = np.arange(-80 * t, 80 * t + shift)
    law = np.exp(-abs(k) / t) * np.tanh(1 / (2 * t))
    other = np.exp(-abs(k - shift) / t) * np.tanh(1 / (2 * t))
    return np.maximum(law - np.exp(epsilon) * other, 0).sum()


@pytest.mark.parametrize(("shift", "t"), [(1, 1), (1, 4), (3, 2), (8, 4), (16, 8)])
def test_discrete_laplace_noise_has_the_profile_of_a_quarter_step_more(shift, t):
    epsilons = np.linspace(0, 1.2 * shift / t, 25)
    exact = np.array([discrete_laplace_delta(shift, t, e) for e in epsilons])
    assert (exact <= LaplaceProfile((shift + 1 / (4 * t)) / t).delta(epsilons) + 1e-12).all()
    # That of no more is too small.
    assert (exact > LaplaceProfile(shift / t).delta(epsilons) + 1e-4).any() or t > 4


@pytest.mark.parametrize("sensitivity", [1e-6, 1.0, math.sqrt(2), 1e9])
@pytest.mark.parametrize("n", [1, 7, 10_000])
def test_scales_cost_what_was_to_be_spent(sensitivity, n):
    for epsilon in (0.01, 1.0, 20.0):
        scale = certified_laplace_scale(epsilon, sensitivity, n)
        spent = certified_laplace_epsilon(sensitivity, scale, n)
        least = sensitivity / scale + (2 * n) / STEPS
        assert least <= spent <= epsilon
        assert spent == pytest.approx(epsilon, rel=1e-5)
        check_certified("laplace", sensitivity, scale, n, spent)
        scale = certified_gaussian_scale(epsilon, sensitivity, n)
        mu = certified_mu(sensitivity, scale, n)
        assert sensitivity / scale + 2 * math.sqrt(n) / STEPS <= mu <= epsilon
        assert mu == pytest.approx(epsilon, rel=1e-5)
        check_certified("gaussian", sensitivity, scale, n, mu)
        scale = certified_score_scale(epsilon, sensitivity)
        assert sensitivity / scale + 4 / STEPS <= certified_range(sensitivity, scale) <= epsilon


@pytest.mark.parametrize("kind", ["gaussian", "laplace"])
def test_opendp_refuses_what_is_priced_too_low(kind):
    scale = 1.3
    price = certified_mu if kind == "gaussian" else certified_laplace_epsilon
    claimed = price(1.0, scale, 3)
    check_certified(kind, 1.0, scale, 3, claimed)
    for broken in (
        {"claimed": 1.0 / scale},  # rounding is not paid for
        {"scale": scale * (1 - 1e-6)},  # too little noise
        {"sensitivity": 1.000001},
        {"n_changed": 4},
    ):
        asked = {"sensitivity": 1.0, "scale": scale, "n_changed": 3, "claimed": claimed} | broken
        with pytest.raises(ArithmeticError, match="OpenDP"):
            check_certified(kind, **asked)


def discrete_gaussian_delta(shift, s, epsilon):
    """Return δ(ε) of the discrete Gaussian mechanism, by Theorem 7 of Canonne et al."""
    with mpmath.workdps(40):
        lowest = mpmath.ceil(epsilon * s**2 / shift - shift / mpmath.mpf(2))
        k = range(int(lowest) - 1, 20 * s)
        total = mpmath.fsum(
            mpmath.exp(-(mpmath.mpf(i) ** 2) / (2 * s**2)) for i in range(-40 * s, 40 * s)
        )
        found = mpmath.fsum(
            max(
                mpmath.exp(-(mpmath.mpf(i) ** 2) / (2 * s**2))
                - mpmath.exp(epsilon - mpmath.mpf(i + shift) ** 2 / (2 * s**2)),
                0,
            )
            for i in k
        )
        return float(found / total)


@pytest.mark.parametrize(("shift", "s"), [(1, 2), (4, 8), (10, 4)])
def test_gaussian_profiles_hold_for_discrete_noise(shift, s):
    sigma = float(model_sigma(s))
    failure = 1 / (12 * sigma**2) + 3 * math.exp(-2 * math.pi**2 * s**2)
    profile = FailingGaussianProfile(shift / sigma, failure)
    for epsilon in (0.1, 0.5, 1.0, 3.0, 6.0):
        assert discrete_gaussian_delta(shift, s, epsilon) <= profile.delta(epsilon)
        # As of a shift that is half as large it would not be.
        smaller = FailingGaussianProfile(shift / sigma / 2, failure).delta(epsilon)
        assert epsilon > 2 or discrete_gaussian_delta(shift, s, epsilon) > smaller or s == 2


def test_a_budget_that_rounding_takes_is_refused():
    with pytest.raises(ValueError, match="rounds values before noise"):
        certified_laplace_scale(1e-7, 1.0, 10)
    with pytest.raises(ValueError, match="rounds values before noise"):
        certified_gaussian_scale(1e-7, 1.0, 100)
    with pytest.raises(ValueError, match="more than half"):
        remaining_delta(1e-14, 10_000)
    assert certified_laplace_scale(math.inf, 1.0, 3) == 0.0
    assert certified_gaussian_sigma(math.inf, 1e-5, 1.0, 3) == 0.0


def test_the_parts_of_delta_add_up():
    for delta in (1e-3, 1e-6, 1e-9):
        rest, failure = remaining_delta(delta, 500), certified_failure(500)
        assert Fraction(failure) + (1 - Fraction(failure)) * Fraction(rest) <= Fraction(delta)
