"""Reference values, the safe side, and the one convention for the sensitivity."""

import math

import pytest
from dp_accounting import GaussianDpEvent
from dp_accounting.pld import PLDAccountant
from dp_accounting.privacy_accountant import NeighboringRelation
from dp_accounting.rdp import RdpAccountant
from hypothesis import given, settings
from hypothesis import strategies as st

from sklearn_dpgen.accounting import (
    GaussianProfile,
    ProjectionLaw,
    _calibration,
    calibrate_noise_multiplier,
    compose_epsilon,
    epsilon_spent,
    gaussian_sigma,
)
from sklearn_dpgen.accounting._calibration import laplace_scale
from sklearn_dpgen.accounting._profiles import sampled_without_replacement
from sklearn_dpgen.mechanisms import StratifiedGaussianMechanism, Stratum, _sampled

# rate, steps, delta, epsilon; multipliers: exact profile, RDP, Poisson (wrong for this sampler).
SAMPLED = [
    (0.2, 500, 0.1 / 30000, 1.0, 18.10, 39.15, 17.85),
    (0.2, 1000, 0.1 / 30000, 1.0, 25.47, 55.08, 25.21),
    (0.2, 500, 0.1 / 30000, 5.0, 4.50, 9.11, 4.29),
    (0.01, 1000, 1e-5, 1.0, 1.589, 2.708, 1.416),
    (1 / 600, 60000, 1e-5, 10.0, 0.615, 0.661, 0.570),
]


def check_private(multiplier, rate, n_steps, delta, epsilon):
    """Recompute on the coarse grid of the reference table, with its precision as the slack."""
    releases = [(sampled_without_replacement(GaussianProfile(1 / multiplier), rate), n_steps)]
    assert compose_epsilon(releases, delta, discretization=2e-4) <= epsilon * (1 + 2e-3)


def check_reference(multiplier, reference):
    assert multiplier == pytest.approx(reference, rel=1.2e-3)


@pytest.mark.parametrize(
    ("rate", "n_steps", "delta", "epsilon", "exact", "rdp", "poisson"), SAMPLED
)
class TestSampledReferenceValues:
    def test_profile(self, rate, n_steps, delta, epsilon, exact, rdp, poisson):
        plan = {"sampling_rate": rate, "n_steps": n_steps}
        multiplier = calibrate_noise_multiplier(epsilon, delta, **plan)
        check_reference(multiplier, exact)
        check_private(multiplier, rate, n_steps, delta, epsilon)
        assert 0.9999 * epsilon < epsilon_spent(multiplier, delta, **plan) <= epsilon
        for broken in (poisson, 0.95 * multiplier):
            with pytest.raises(AssertionError):
                check_reference(broken, exact)
            with pytest.raises(AssertionError):
                check_private(broken, rate, n_steps, delta, epsilon)

    def test_table_was_made_with_a_grid_of_a_thousandth(
        self, rate, n_steps, delta, epsilon, exact, rdp, poisson
    ):
        half = 0.005 if exact > 2 else 0.0005  # of the last printed digit
        for multiplier, is_enough in ((exact - half, False), (exact + half, True)):
            profile = sampled_without_replacement(GaussianProfile(1 / multiplier), rate)
            spent = compose_epsilon([(profile, n_steps)], delta, discretization=1e-3)
            assert (spent <= epsilon) is is_enough

    def test_renyi(self, rate, n_steps, delta, epsilon, exact, rdp, poisson):
        plan = {"sampling_rate": rate, "n_steps": n_steps, "accountant": "rdp"}
        assert epsilon_spent(rdp, delta, **plan) == pytest.approx(epsilon, rel=2e-3)


def test_renyi_calibration_is_on_the_safe_side():
    plan = {"n_steps": 40, "accountant": "rdp"}
    multiplier = calibrate_noise_multiplier(2.0, 1e-5, **plan)
    assert 0.999 * 2 < epsilon_spent(multiplier, 1e-5, **plan) <= 2


@pytest.mark.parametrize("rate", [1.0, 0.1, 1e-3])
@pytest.mark.parametrize(("multiplier", "n_steps"), [(0.7, 1), (3.0, 300), (0.9, 5000)])
@pytest.mark.parametrize("delta", [1e-4, 1e-9])
def test_renyi_is_never_below_the_profile(rate, multiplier, n_steps, delta):
    plan = {"sampling_rate": rate, "n_steps": n_steps}
    profile = epsilon_spent(multiplier, delta, **plan)
    assert profile <= epsilon_spent(multiplier, delta, accountant="rdp", **plan)


@pytest.mark.parametrize(
    ("epsilon", "delta"),
    [
        (0.01, 1e-5),
        (0.01, 1e-12),
        (1.0, 1e-5),
        pytest.param(50.0, 1e-5, marks=pytest.mark.slow),
        pytest.param(50.0, 1e-12, marks=pytest.mark.slow),
    ],
)
def test_extreme_plans_stay_between_their_bounds(epsilon, delta):
    plan = {"sampling_rate": 1e-4, "n_steps": 60000}
    multiplier = calibrate_noise_multiplier(epsilon, delta, **plan)
    assert epsilon_spent(multiplier, delta, **plan) <= epsilon
    assert epsilon <= epsilon_spent(multiplier, delta, accountant="rdp", **plan)
    assert multiplier < gaussian_sigma(epsilon, delta, math.sqrt(60000))


def test_replacement_sensitivity_is_in_the_multiplier_and_only_there():
    event, delta = GaussianDpEvent(2.0), 1e-5
    replace = NeighboringRelation.REPLACE_ONE
    rdp = RdpAccountant(neighboring_relation=replace).compose(event).get_epsilon(delta)
    pld = PLDAccountant(replace).compose(event).get_epsilon(delta)
    assert (rdp, pld) == (pytest.approx(2.166, abs=1e-3), pytest.approx(4.377, abs=1e-3))
    assert rdp <= epsilon_spent(2.0, delta, accountant="rdp") <= rdp * (1 + 1e-10)
    # The library's PLD doubles the sensitivity itself: it agrees for a multiplier half as large.
    assert epsilon_spent(1.0, delta) == pytest.approx(pld, rel=1e-4)
    assert epsilon_spent(2.0, delta) == GaussianProfile(0.5).epsilon(delta) <= rdp


@pytest.mark.parametrize("n_steps", [1, 7, 60000])
def test_without_sampling_the_answer_is_exact(n_steps):
    multiplier = calibrate_noise_multiplier(3.0, 1e-6, n_steps=n_steps)
    assert multiplier == pytest.approx(gaussian_sigma(3.0, 1e-6, math.sqrt(n_steps)), rel=2e-9)
    spent = epsilon_spent(multiplier, 1e-6, n_steps=n_steps)
    assert 3 * (1 - 3e-9) < spent <= 3


def test_no_noise():
    assert epsilon_spent(0.0, 1e-5) == math.inf
    assert calibrate_noise_multiplier(math.inf, 1e-5, sampling_rate=0.1, n_steps=9) == 0
    assert gaussian_sigma(math.inf, 1e-5) == 0
    assert laplace_scale(math.inf) == 0


@pytest.mark.parametrize(
    ("epsilon", "sigma"), [(1, 3.1857), (5, 0.7959), (25, 0.2294), (35, 0.1812), (41, 0.1626)]
)
def test_analytic_reference_values(epsilon, sigma):
    assert gaussian_sigma(epsilon, 1e-4) == pytest.approx(sigma, abs=5.1e-5)


@pytest.mark.parametrize(
    ("epsilon", "calibration", "sigma"),
    [
        (25, "analytic", 9.174),
        (35, "analytic", 7.247),
        (25, "closed_form", 9.647),
        (35, "closed_form", 7.549),
    ],
)
def test_paper_reference_values(epsilon, calibration, sigma):
    found = gaussian_sigma(epsilon, 1e-4, 40.0, calibration=calibration)
    assert found == pytest.approx(sigma, abs=5.1e-4)


def check_sigma(sigma, epsilon, delta, sensitivity):
    assert GaussianProfile(sensitivity / sigma).delta(epsilon) <= delta


@settings(deadline=None)
@given(st.floats(1e-3, 1568), st.floats(1e-15, 0.4), st.floats(1e-6, 1e6))
def test_gaussian_sigma_is_smallest_on_the_safe_side(epsilon, delta, sensitivity):
    sigma = gaussian_sigma(epsilon, delta, sensitivity)
    check_sigma(sigma, epsilon, delta, sensitivity)
    with pytest.raises(AssertionError):
        check_sigma(0.95 * sigma, epsilon, delta, sensitivity)
    with pytest.raises(AssertionError):
        check_sigma(sigma * (1 - 1e-6), epsilon, delta, sensitivity)
    closed_form = gaussian_sigma(epsilon, delta, sensitivity, calibration="closed_form")
    assert sigma <= closed_form * (1 + 1e-12)


def test_huge_epsilon():
    sigma = gaussian_sigma(1568.0, 1e-4)
    check_sigma(sigma, 1568.0, 1e-4, 1.0)
    # A Gaussian loss has mean μ²/2 and deviation μ; the quantile solves the leading order.
    mu, quantile = 1 / sigma, 3.719
    assert mu * mu / 2 + quantile * mu == pytest.approx(1568, rel=1e-3)


@given(st.floats(1e-6, 1e3), st.floats(1e-6, 1e6))
def test_laplace_scale_is_rounded_up(epsilon, sensitivity):
    scale = laplace_scale(epsilon, sensitivity)
    assert epsilon * (1 - 1e-15) <= sensitivity / scale <= epsilon


@pytest.mark.parametrize(
    ("arguments", "error", "name"),
    [
        ({"epsilon": 0.0}, ValueError, "epsilon"),
        ({"epsilon": -1.0}, ValueError, "epsilon"),
        ({"epsilon": math.nan}, ValueError, "epsilon"),
        ({"epsilon": True}, TypeError, "epsilon"),
        ({"epsilon": "1"}, TypeError, "epsilon"),
        ({"delta": 0.0}, ValueError, "delta"),
        ({"delta": 1.0}, ValueError, "delta"),
        ({"delta": math.nan}, ValueError, "delta"),
        ({"sampling_rate": 0.0}, ValueError, "sampling_rate"),
        ({"sampling_rate": 1.01}, ValueError, "sampling_rate"),
        ({"sampling_rate": True}, TypeError, "sampling_rate"),
        ({"n_steps": 0}, ValueError, "n_steps"),
        ({"n_steps": 2.5}, TypeError, "n_steps"),
        ({"n_steps": True}, TypeError, "n_steps"),
        ({"accountant": "poisson"}, ValueError, "accountant"),
    ],
)
def test_bad_plans(arguments, error, name):
    good = {"epsilon": 1.0, "delta": 1e-5, "sampling_rate": 0.1, "n_steps": 3}
    with pytest.raises(error, match=name):
        calibrate_noise_multiplier(**{**good, **arguments})
    if name != "epsilon":
        rest = {key: value for key, value in {**good, **arguments}.items() if key != "epsilon"}
        with pytest.raises(error, match=name):
            epsilon_spent(1.0, **rest)


@pytest.mark.parametrize(
    ("call", "error", "name"),
    [
        (lambda: epsilon_spent(-1.0, 1e-5), ValueError, "noise_multiplier"),
        (lambda: epsilon_spent(False, 1e-5), TypeError, "noise_multiplier"),
        (lambda: gaussian_sigma(0.0, 1e-5), ValueError, "epsilon"),
        (lambda: gaussian_sigma(1.0, 1.0), ValueError, "delta"),
        (lambda: gaussian_sigma(1.0, 0.6, calibration="closed_form"), ValueError, "delta"),
        (lambda: gaussian_sigma(1.0, 1e-5, 0.0), ValueError, "sensitivity"),
        (lambda: gaussian_sigma(1.0, 1e-5, calibration="classic"), ValueError, "calibration"),
        (lambda: laplace_scale(True), TypeError, "epsilon"),
        (lambda: laplace_scale(1.0, math.inf), ValueError, "sensitivity"),
    ],
)
def test_bad_scales(call, error, name):
    with pytest.raises(error, match=name):
        call()


CALIBRATED = [
    (1.0, 2e-5, 0.02, 100, None),
    (0.1, 1e-6, 0.5, 10, None),
    (100.0, 1e-5, 0.3, 50, None),
    (1.0, 1e-5, 1.0, 3, ProjectionLaw(20, 7, "independent")),
]


@pytest.mark.parametrize(("epsilon", "delta", "rate", "n_steps", "law"), CALIBRATED)
def test_a_calibration_composes_few_times(epsilon, delta, rate, n_steps, law, monkeypatch):
    """Each composition takes most of the time of a small fit; a bisection needs 16 to 20."""
    asked, compose = [], _calibration.compose_delta

    def watch(releases, epsilon):
        asked.append(releases)
        return compose(releases, epsilon)

    monkeypatch.setattr(_calibration, "compose_delta", watch)
    plan = {"sampling_rate": rate, "n_steps": n_steps, "projections": law}
    multiplier = calibrate_noise_multiplier(epsilon, delta, **plan)
    assert 0 < len(asked) <= 14
    # Within the budget, and hardly more noise than that takes.
    assert epsilon_spent(multiplier, delta, **plan) <= epsilon
    assert epsilon_spent(multiplier * (1 - 3e-5), delta, **plan) > epsilon


def test_a_plan_that_is_made_again_calibrates_nothing(monkeypatch):
    asked, compose = [], _calibration.compose_delta

    def watch(releases, epsilon):
        asked.append(releases)
        return compose(releases, epsilon)

    monkeypatch.setattr(_calibration, "compose_delta", watch)

    def composed():
        asked.clear()
        StratifiedGaussianMechanism([Stratum(613, 7, 1.0)], epsilon=0.7, delta=1e-5, n_releases=9)
        return len(asked)

    assert composed() > 0
    assert composed() == 0
    # Negative twin: nothing is kept.
    _sampled._noise_multiplier.cache_clear()
    assert composed() > 0
