"""Compositions are pessimistic, tight, and agree with closed forms and with dp_accounting."""

import math
from dataclasses import dataclass

import numpy as np
import pytest
from dp_accounting.pld import pld_pmf
from scipy.stats import binom

from sklearn_dpgen.accounting import (
    ApproximateProfile,
    GaussianProfile,
    LaplaceProfile,
    _composition,
    compose_epsilon,
    gaussian_sigma,
)
from sklearn_dpgen.accounting._composition import (
    ComposedProfile,
    compose_delta,
    default_discretization,
)
from sklearn_dpgen.accounting._profiles import (
    MixtureProfile,
    PrivacyProfile,
    RandomizedResponseProfile,
    sampled_without_replacement,
)


def on_the_grid(profile):
    """Return an equal profile that composition cannot recognize as Gaussian."""
    return MixtureProfile([profile], [1.0])


def composed_by_dp_accounting(profile, n_steps, step, reach):
    """Compose with the library's own Connect-the-Dots and convolution."""
    n_positive = math.ceil(reach / step)
    grid = np.arange(-n_positive, n_positive + 1)
    pmf = pld_pmf.create_pmf_pessimistic_connect_dots(step, grid, profile.delta(grid * step))
    return pmf.self_compose(n_steps)


def check_pessimistic(composed, exact, excess):
    assert exact <= composed <= exact * (1 + excess)


@pytest.mark.parametrize("n_steps", [2, 100, 60000])
@pytest.mark.parametrize("epsilon", [0.01, 1.0, 50.0])
@pytest.mark.parametrize("delta", [1e-3, 1e-5, 1e-12])
def test_gaussian_steps_against_the_exact_composition(n_steps, epsilon, delta):
    mu = 1 / gaussian_sigma(epsilon, delta, math.sqrt(n_steps))
    exact = compose_epsilon([(GaussianProfile(mu), n_steps)], delta)
    assert exact == pytest.approx(epsilon, rel=1e-9)
    releases = [(on_the_grid(GaussianProfile(mu)), n_steps)]
    check_pessimistic(compose_epsilon(releases, delta), exact, 1e-3)
    exact_delta = GaussianProfile(mu * math.sqrt(n_steps)).delta(epsilon)
    check_pessimistic(compose_delta(releases, epsilon), exact_delta, 2e-2)


def test_an_untilted_transform_is_too_optimistic_in_far_tails():
    n_steps, delta = 60000, 1e-12
    mu = 1 / gaussian_sigma(50.0, delta, math.sqrt(n_steps))
    plain = composed_by_dp_accounting(GaussianProfile(mu), n_steps, 1e-3, 20 * mu)
    with pytest.raises(AssertionError):
        check_pessimistic(plain.get_epsilon_for_delta(delta), 50.0, 1e-3)


@pytest.mark.parametrize("delta", [1e-3, 1e-6])
@pytest.mark.parametrize(
    ("profile", "n_steps", "reach"),
    [
        (sampled_without_replacement(GaussianProfile(0.8), 0.05), 200, 4.0),
        (LaplaceProfile(0.3), 50, 0.301),
        (RandomizedResponseProfile(0.5, 4), 30, 0.501),
    ],
)
def test_agrees_with_dp_accounting_on_the_same_grid(profile, n_steps, reach, delta):
    library = composed_by_dp_accounting(profile, n_steps, 1e-3, reach)
    ours = compose_epsilon([(profile, n_steps)], delta, discretization=1e-3)
    assert ours == pytest.approx(library.get_epsilon_for_delta(delta), rel=1e-6)
    epsilon = max(ours, 1e-3)
    assert compose_delta([(profile, n_steps)], epsilon, discretization=1e-3) == pytest.approx(
        library.get_delta_for_epsilon(epsilon), rel=1e-5
    )


def test_randomized_response_has_a_binomial_closed_form():
    epsilon0, n_steps = 0.4, 25
    counts = np.arange(n_steps + 1)
    truth = 1 / (1 + math.exp(-epsilon0))
    losses = epsilon0 * (2 * counts - n_steps)
    probabilities = binom.pmf(counts, n_steps, truth)
    for epsilon in (0.5, 2.0, 5.0):
        above = losses > epsilon
        exact = -np.expm1(epsilon - losses[above]) @ probabilities[above]
        composed = compose_delta([(RandomizedResponseProfile(epsilon0), n_steps)], epsilon)
        check_pessimistic(composed, exact, 5e-3)


@dataclass(frozen=True)
class RoundedDown(PrivacyProfile):
    """A profile whose values are too small by as much as rounding may make them."""

    profile: PrivacyProfile
    rounding: float

    def _delta(self, epsilon):
        return self.profile._delta(epsilon) * (1 - self.rounding)


def test_the_rounding_of_a_profile_is_covered(monkeypatch):
    # The losses are on the grid, so that nothing else is rounded up.
    step, n_steps = 1 / 16, 8
    epsilon0 = 4 * step
    profile = RoundedDown(RandomizedResponseProfile(epsilon0), 9e-11)
    counts = np.arange(n_steps + 1)
    losses = epsilon0 * (2 * counts - n_steps)
    probabilities = binom.pmf(counts, n_steps, 1 / (1 + math.exp(-epsilon0)))

    def is_covered(epsilon):
        above = losses > epsilon
        exact = -np.expm1(epsilon - losses[above]) @ probabilities[above]
        composed = compose_delta([(profile, n_steps)], epsilon, discretization=step)
        check_pessimistic(composed, exact * (1 - 1e-13), 1e-8)
        return True

    for epsilon in (0.1, 0.6, 1.2, 1.9):
        assert is_covered(epsilon)
    with monkeypatch.context() as patch:
        patch.setattr(_composition, "_PROFILE_ROUNDING", 0.0)
        _composition._composed.cache_clear()
        with pytest.raises(AssertionError):
            is_covered(0.6)
    _composition._composed.cache_clear()


def test_different_releases_compose_like_their_product():
    # Two binary responses of different strength, summed over the four outcomes.
    strong, weak = 1.2, 0.5
    p, q = 1 / (1 + math.exp(-strong)), 1 / (1 + math.exp(-weak))
    losses = np.array([strong + weak, strong - weak, weak - strong, -strong - weak])
    probabilities = np.array([p * q, p * (1 - q), (1 - p) * q, (1 - p) * (1 - q)])
    releases = [(RandomizedResponseProfile(strong), 1), (RandomizedResponseProfile(weak), 1)]
    for epsilon in (0.2, 0.9, 1.5):
        exact = probabilities @ np.maximum(-np.expm1(epsilon - losses), 0)
        check_pessimistic(compose_delta(releases, epsilon), exact, 2e-3)


def test_gaussian_releases_add_their_squared_multipliers():
    releases = [(GaussianProfile(0.3), 4), (GaussianProfile(0.8), 1)]
    assert compose_epsilon(releases, 1e-5) == GaussianProfile(1.0).epsilon(1e-5)
    assert default_discretization(releases) is None


def test_selections_and_noise_together():
    selections = (ApproximateProfile(0.1), 20)
    noise = (GaussianProfile(0.5), 3)
    both = compose_epsilon([selections, noise], 1e-6)
    alone = [compose_epsilon([release], 1e-6) for release in (selections, noise)]
    assert max(alone) < both < compose_epsilon([noise], 1e-6) + 20 * 0.1


def test_pure_composition_never_exceeds_the_sum():
    assert compose_epsilon([(LaplaceProfile(0.5), 4)], 1e-12) <= 2.0 * (1 + 1e-3)


def test_failure_probabilities_add():
    release = ApproximateProfile(0.1, 1e-4)
    assert compose_epsilon([(release, 5)], 4e-4) == math.inf
    assert compose_epsilon([(release, 5)], 6e-4) <= 0.5 * (1 + 1e-3)
    check_pessimistic(compose_delta([(release, 5)], 0.6), 1 - (1 - 1e-4) ** 5, 1e-6)


def test_large_delta_needs_no_epsilon():
    assert compose_epsilon([(LaplaceProfile(0.1), 2)], 0.5) == 0.0


def test_a_finer_grid_is_tighter_and_every_grid_is_valid():
    mu, n_steps = 0.01, 2500
    exact = GaussianProfile(0.5).epsilon(1e-6)
    found = [
        compose_epsilon([(on_the_grid(GaussianProfile(mu)), n_steps)], 1e-6, discretization=step)
        for step in (1e-2, 1e-3, 1e-4)
    ]
    assert found[0] > found[1] > found[2] >= exact
    assert found[0] > 1.05 * exact


def test_default_grid_follows_tiny_losses_and_spares_huge_ones():
    def step(mu, n_steps):
        return default_discretization([(on_the_grid(GaussianProfile(mu)), n_steps)])

    assert step(1.0, 10) == 1e-3
    assert step(1e-5, 1000) < 1e-6
    assert step(100.0, 2) > 1e-3


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: compose_epsilon([], 1e-5), ValueError, "at least one"),
        (lambda: compose_epsilon([(LaplaceProfile(1.0), 0)], 1e-5), ValueError, "at least 1"),
        (lambda: compose_epsilon([(LaplaceProfile(1.0), 1.5)], 1e-5), TypeError, "integer"),
        (lambda: compose_epsilon([(1.0, 1)], 1e-5), TypeError, "PrivacyProfile"),
        (lambda: compose_epsilon([(LaplaceProfile(1.0), 2)], 0.0), ValueError, "delta"),
        (lambda: compose_delta([(LaplaceProfile(1.0), 2)], math.inf), ValueError, "epsilon"),
        (
            lambda: compose_epsilon([(LaplaceProfile(1.0), 2)], 1e-5, discretization=0.0),
            ValueError,
            "discretization",
        ),
        (
            lambda: compose_delta([(LaplaceProfile(1.0), 2)], 1.0, discretization=[0.1]),
            TypeError,
            "discretization",
        ),
    ],
)
def test_bad_arguments(call, error, message):
    with pytest.raises(error, match=message):
        call()


@pytest.mark.parametrize("largest", [8.0, 2e6])
def test_many_values_of_a_composition_are_upper_bounds(largest):
    epsilon0, n_steps = 1.0, 8
    counts = np.arange(n_steps + 1)
    losses = epsilon0 * (2 * counts - n_steps)
    probabilities = binom.pmf(counts, n_steps, 1 / (1 + math.exp(-epsilon0)))
    epsilons = np.unique([*np.linspace(0, 8, 400), *np.linspace(8, largest, 5000)])
    gaps = np.minimum(epsilons[:, None] - losses, 0.0)
    exact = -np.expm1(gaps) @ probabilities
    values = ComposedProfile([(RandomizedResponseProfile(epsilon0), n_steps)]).delta(epsilons)
    assert (values >= exact * (1 - 1e-12)).all()
