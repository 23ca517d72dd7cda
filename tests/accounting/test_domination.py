"""What a budget adds up dominates what it is booked for, and is hardly more."""

import math

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.stats import norm

from sklearn_dpgen.accounting import (
    ApproximateProfile,
    GaussianProfile,
    LaplaceProfile,
    compose_epsilon,
)
from sklearn_dpgen.accounting._composition import (
    ComposedProfile,
    dominating_gaussian,
    dominating_renyi,
)
from sklearn_dpgen.accounting._profiles import (
    CatastrophicFailureProfile,
    MaximumProfile,
    MixtureProfile,
    PrivacyProfile,
    RandomizedResponseProfile,
    SampledProfile,
)
from sklearn_dpgen.accounting._selection import BoundedRangeProfile

OPEN = 1e-9
RELEASES = {
    "Laplace": [(LaplaceProfile(0.7), 1)],
    "many Laplace": [(LaplaceProfile(0.1), 20)],
    "answers of five": [(RandomizedResponseProfile(1.5, 5), 3)],
    "batches": [(SampledProfile(GaussianProfile(1.0), 0.02), 300)],
    "large batches": [(SampledProfile(GaussianProfile(0.3), 0.5), 40)],
    "counts and selections": [(GaussianProfile(0.2), 1), (BoundedRangeProfile(0.05, 10), 1)],
    "thresholds": [(LaplaceProfile(0.3), 2), (CatastrophicFailureProfile(1e-7), 1)],
    "strata": [
        (
            MaximumProfile(
                (
                    ComposedProfile(((SampledProfile(GaussianProfile(2.0), 0.01), 50),)),
                    ComposedProfile(((SampledProfile(GaussianProfile(0.5), 0.1), 50),)),
                )
            ),
            1,
        )
    ],
}


def gaussian_delta(epsilon, mu):
    """Return δ(ε) of a Gaussian mechanism, as printed by Balle and Wang."""
    return norm.cdf(mu / 2 - epsilon / mu) - np.exp(epsilon) * norm.cdf(-mu / 2 - epsilon / mu)


def is_dominated(releases, mu, open_delta, rtol=1e-7):
    """Compare the profiles where a search has not looked, at ε of either sign."""
    epsilons = np.unique(np.concatenate([np.linspace(-12, 12, 601), np.geomspace(1e-6, 12, 200)]))
    bound = open_delta + (1 - open_delta) * gaussian_delta(epsilons, mu)
    return bool((ComposedProfile(releases).delta(epsilons) <= bound * (1 + rtol) + 1e-14).all())


@pytest.mark.parametrize("name", RELEASES)
def test_a_gaussian_mechanism_dominates_and_hardly_less_would(name):
    cost = dominating_gaussian(RELEASES[name], OPEN)
    assert is_dominated(RELEASES[name], math.sqrt(cost.amount), cost.delta)
    assert not is_dominated(RELEASES[name], 0.99 * math.sqrt(cost.amount), cost.delta)


def test_gaussian_releases_lose_nothing():
    cost = dominating_gaussian([(GaussianProfile(0.3), 4), (GaussianProfile(0.1), 1)], OPEN)
    assert cost.amount == pytest.approx(4 * 0.3**2 + 0.1**2, rel=1e-12)
    assert cost.delta == 0


def test_of_a_pure_release_it_is_the_sign_of_a_normal_variable():
    epsilon = 1.3
    cost = dominating_gaussian([(ApproximateProfile(epsilon, 1e-6), 1)], OPEN)
    mu = math.sqrt(cost.amount)
    assert norm.cdf(mu / 2) / norm.cdf(-mu / 2) == pytest.approx(math.exp(epsilon), rel=1e-6)
    assert norm.cdf(mu / 2) / norm.cdf(-mu / 2) >= math.exp(epsilon)
    assert cost.delta == 1e-6
    releases = [(ApproximateProfile(epsilon, 1e-6), 1)]
    assert is_dominated(releases, mu, cost.delta)
    assert not is_dominated(releases, 0.99 * mu, cost.delta)
    assert not is_dominated(releases, mu, 0.0)


def laplace_renyi(epsilon, order):
    """Return the divergence of Laplace noise, by Mironov's closed form."""
    a = order
    moment = a / (2 * a - 1) * math.exp(epsilon * (a - 1))
    return math.log(moment + (a - 1) / (2 * a - 1) * math.exp(-epsilon * a)) / (a - 1)


def sampled_renyi(mu, rate, order):
    """Return the divergence of a pair with the profile of one normal shift on a batch.

    By the integral of the profile, which Balle, Barthe and Gaboardi print.
    """

    def integrand(epsilon):
        delta = rate * gaussian_delta(math.log1p(math.expm1(epsilon) / rate), mu)
        return delta * (math.exp((order - 1) * epsilon) + math.exp(-order * epsilon))

    return math.log1p(order * (order - 1) * quad(integrand, 0, 6, limit=400)[0]) / (order - 1)


@pytest.mark.parametrize("order", [1.5, 4.0])
def test_renyi_divergences_are_bounded_from_above_and_closely(order):
    for releases, exact in (
        ([(GaussianProfile(0.4), 3)], 3 * order * 0.4**2 / 2),
        ([(LaplaceProfile(0.7), 2)], 2 * laplace_renyi(0.7, order)),
        ([(SampledProfile(GaussianProfile(1.0), 0.1), 1)], sampled_renyi(1.0, 0.1, order)),
    ):
        cost = dominating_renyi(releases, order, 1e-12)
        # Where a tail is paid by an open failure the rest may be a little less.
        assert 0.99 * exact <= cost.amount <= 1.02 * exact + 1e-9
        assert cost.delta <= 1e-12


def test_what_cannot_be_dominated_is_an_open_failure():
    cost = dominating_gaussian([(CatastrophicFailureProfile(1e-3), 1)], OPEN)
    assert cost.delta == pytest.approx(1e-3 + OPEN, rel=1e-3)
    assert cost.amount < 1e-6


@pytest.mark.parametrize("name", RELEASES)
def test_profiles_are_kept_as_plain_values(name):
    for profile, _ in RELEASES[name]:
        content = profile.to_dict()
        restored = PrivacyProfile.from_dict(content)
        assert restored == profile
        assert restored.delta(0.3) == profile.delta(0.3)
    with pytest.raises(ValueError, match="must be a known kind"):
        PrivacyProfile.from_dict({"profile": "Nobody", "parameters": {}})


@pytest.mark.parametrize("name", RELEASES)
def test_a_composed_profile_prices_as_the_composition(name):
    composed = ComposedProfile(RELEASES[name])
    assert composed.epsilon(1e-5) == pytest.approx(compose_epsilon(RELEASES[name], 1e-5), rel=1e-6)
    many = composed.delta(np.linspace(0, 2, 5000))
    few = composed.delta(np.array([0.0, 0.5, 2.0]))
    assert many[0] >= few[0] * (1 - 1e-9)
    assert np.interp(0.5, np.linspace(0, 2, 5000), many) == pytest.approx(few[1], rel=1e-3)
    assert (np.diff(many) <= 1e-15).all()


def test_the_largest_profile_is_that_of_a_mixture_of_neighbours():
    """A mechanism with one profile or another for different neighbours, and their average."""
    pair = GaussianProfile(0.5), LaplaceProfile(0.4)
    epsilons = np.linspace(-1, 2, 31)
    largest = MaximumProfile(pair).delta(epsilons)
    assert (largest >= [max(p.delta(e) for p in pair) for e in epsilons]).all()
    assert (MixtureProfile(pair, (0.5, 0.5)).delta(epsilons) <= largest + 1e-15).all()


@pytest.mark.parametrize("epsilon", [100.0, 710.0, 3000.0])
def test_large_budgets_are_not_capped(epsilon):
    """The least μ of a pure release has log(Φ(μ/2) / Φ(−μ/2)) = ε."""
    cost = dominating_gaussian([(ApproximateProfile(epsilon), 1)], OPEN)
    assert -norm.logcdf(-math.sqrt(cost.amount) / 2) == pytest.approx(epsilon, rel=1e-6)
    renyi = dominating_renyi([(ApproximateProfile(epsilon), 1)], 5000.0, OPEN)
    assert 0.99 * epsilon <= renyi.amount <= 1.1 * epsilon


@pytest.mark.parametrize("order", [1.5, 4.0, 30.0])
@pytest.mark.parametrize("epsilon", [0.05, 0.7, 3.0])
def test_a_divergence_is_never_below_that_of_laplace_noise(epsilon, order):
    """A cell of the grid counts by its larger end; what is off is a part of a thousand."""
    exact = laplace_renyi(epsilon, order)
    amount = dominating_renyi([(LaplaceProfile(epsilon), 1)], order, 1e-12).amount
    assert exact * (1 - 1e-7) <= amount <= 1.01 * exact


def test_the_largest_profile_has_the_largest_epsilon_in_whatever_order():
    small, large = GaussianProfile(0.2), GaussianProfile(0.5)
    for profiles in ((small, large), (large, small)):
        assert MaximumProfile(profiles).epsilon(1e-6) == large.epsilon(1e-6) > small.epsilon(1e-6)
