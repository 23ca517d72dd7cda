"""Every privacy profile honours one contract, and equals the divergence of an explicit pair."""

import math

import numpy as np
import pytest
from dp_accounting.pld import privacy_loss_distribution
from hypothesis import given
from hypothesis import strategies as st
from scipy.integrate import quad
from scipy.stats import laplace, norm

from sklearn_dpgen.accounting import ApproximateProfile, GaussianProfile, LaplaceProfile
from sklearn_dpgen.accounting._composition import compose_delta
from sklearn_dpgen.accounting._profiles import (
    MixtureProfile,
    RandomizedResponseProfile,
    sampled_without_replacement,
)

EPSILONS = np.concatenate([-np.geomspace(8, 1e-3, 40), [0.0], np.geomspace(1e-3, 8, 40)])


def check_contract(delta):
    """Assert what makes a function the profile of a symmetric dominating pair."""
    values = delta(EPSILONS)
    assert np.all((values >= 0) & (values <= 1))
    assert np.all(np.diff(values) <= 1e-15)
    slopes = np.diff(values) / np.diff(np.exp(EPSILONS))
    assert np.all(np.diff(slopes) >= -1e-9)
    positive = EPSILONS[EPSILONS > 0]
    mirrored = -np.expm1(-positive) + np.exp(-positive) * delta(positive)
    np.testing.assert_allclose(delta(-positive), mirrored, rtol=1e-13)
    np.testing.assert_allclose(delta(np.array([-math.inf])), 1.0)
    assert delta(np.array([math.inf]))[0] <= values[-1]


def check_pair(delta, hockey_stick):
    for epsilon in (0.0, 0.3, 1.0, 2.5):
        np.testing.assert_allclose(delta(epsilon), hockey_stick(epsilon), rtol=1e-6)


def integrate_hockey_stick(p, q, epsilon):
    x = (np.arange(400_000) + 0.5) * 1e-4 - 20
    return np.maximum(p(x) - math.exp(epsilon) * q(x), 0).sum() * 1e-4


def sum_hockey_stick(p, q, epsilon):
    return np.maximum(np.asarray(p) - math.exp(epsilon) * np.asarray(q), 0).sum()


class ProfileContract:
    """Inherited by one class for each profile."""

    profile = None

    def hockey_stick(self, epsilon):
        raise NotImplementedError

    def test_contract(self):
        check_contract(self.profile.delta)

    def test_is_attained_by_a_pair(self):
        check_pair(self.profile.delta, self.hockey_stick)

    def test_epsilon_inverts_delta_on_the_safe_side(self):
        for delta in (1e-2, 1e-5):
            epsilon = self.profile.epsilon(delta)
            if math.isfinite(epsilon):
                assert self.profile.delta(epsilon) <= delta
                assert epsilon == 0 or self.profile.delta(epsilon * (1 - 1e-9)) > delta
            else:
                assert self.profile.delta(1e3) > delta

    def test_shapes(self):
        assert isinstance(self.profile.delta(1.0), float)
        assert self.profile.delta(np.ones((2, 3))).shape == (2, 3)
        with pytest.raises(ValueError, match="NaN"):
            self.profile.delta([0.0, np.nan])

    def test_composition_of_one_with_nothing_known_in_closed_form_stays_above(self):
        # A weak second release keeps the numerical path; the composition is never cheaper.
        epsilon = 0.7
        composed = compose_delta([(self.profile, 1), (LaplaceProfile(1e-3), 1)], epsilon)
        assert self.profile.delta(epsilon) <= composed
        assert composed <= self.profile.delta(epsilon - 1e-3) * (1 + 1e-3)


class TestGaussian(ProfileContract):
    profile = GaussianProfile(1.3)

    def hockey_stick(self, epsilon):
        return integrate_hockey_stick(norm(1.3).pdf, norm.pdf, epsilon)

    @pytest.mark.slow
    def test_agrees_with_dp_accounting(self):
        pld = privacy_loss_distribution.from_gaussian_mechanism(
            1 / 1.3, value_discretization_interval=1e-4
        )
        for epsilon in (0.0, 0.5, 2.0):
            assert self.profile.delta(epsilon) == pytest.approx(
                pld.get_delta_for_epsilon(epsilon), rel=1e-5
            )

    @pytest.mark.parametrize("mu", [1e-6, 1e-3, 60.0])
    def test_extreme_scales(self, mu):
        profile = GaussianProfile(mu)
        for n_deviations in (1.0, 6.0, 30.0):
            epsilon = mu * (n_deviations + mu / 2)
            tail = norm.logsf(n_deviations)
            exact = quad(
                lambda u, e=n_deviations, t=tail: (
                    -math.expm1(-mu * u) * math.exp(norm.logpdf(e + u) - t)
                ),
                0,
                40,
                points=[0.05, 0.5],
                epsabs=0,
                limit=200,
            )[0]
            assert math.log(profile.delta(epsilon)) == pytest.approx(
                math.log(exact) + tail, rel=1e-9
            )


class TestLaplace(ProfileContract):
    profile = LaplaceProfile(1.7)

    def hockey_stick(self, epsilon):
        return integrate_hockey_stick(laplace(1.7).pdf, laplace.pdf, epsilon)

    def test_agrees_with_dp_accounting(self):
        pld = privacy_loss_distribution.from_laplace_mechanism(
            1 / 1.7, value_discretization_interval=1e-4
        )
        for epsilon in (0.0, 0.5, 1.2):
            assert self.profile.delta(epsilon) == pytest.approx(
                pld.get_delta_for_epsilon(epsilon), rel=1e-5
            )

    def test_one_coordinate_is_the_worst_direction(self):
        for epsilon in (0.0, 0.4, 1.0, 1.6):
            split = [(LaplaceProfile(0.9), 1), (LaplaceProfile(0.8), 1)]
            assert compose_delta(split, max(epsilon, 1e-9)) <= self.profile.delta(epsilon) + 1e-6


class TestRandomizedResponse(ProfileContract):
    profile = RandomizedResponseProfile(1.1, 5)

    def hockey_stick(self, epsilon):
        p = np.array([math.exp(1.1), 1, 1, 1, 1]) / (math.exp(1.1) + 4)
        return sum_hockey_stick(p, p[[1, 0, 2, 3, 4]], epsilon)


class TestPure(ProfileContract):
    profile = ApproximateProfile(0.9)

    def hockey_stick(self, epsilon):
        p = np.array([math.exp(0.9), 1]) / (math.exp(0.9) + 1)
        return sum_hockey_stick(p, p[::-1], epsilon)

    def test_dominates_the_mechanisms_with_the_same_epsilon(self):
        for other in (LaplaceProfile(0.9), RandomizedResponseProfile(0.9, 3)):
            assert np.all(other.delta(EPSILONS) <= self.profile.delta(EPSILONS))


class TestApproximate(ProfileContract):
    profile = ApproximateProfile(0.9, 1e-3)

    def hockey_stick(self, epsilon):
        p = 0.999 * np.array([math.exp(0.9), 1]) / (math.exp(0.9) + 1)
        return sum_hockey_stick([1e-3, 0, *p], [0, 1e-3, *p[::-1]], epsilon)


class TestMixture(ProfileContract):
    profile = MixtureProfile([GaussianProfile(0.5), GaussianProfile(2.0)], [0.75, 0.25])

    def hockey_stick(self, epsilon):
        pairs = ((0.75, norm(0.5)), (0.25, norm(2.0)))
        return sum(w * integrate_hockey_stick(p.pdf, norm.pdf, epsilon) for w, p in pairs)


class TestSampledGaussian(ProfileContract):
    profile = sampled_without_replacement(GaussianProfile(1.3), 0.2)

    def hockey_stick(self, epsilon):
        # The replaced record moves the batch's value from the one that all others have.
        return integrate_hockey_stick(
            lambda x: 0.8 * norm.pdf(x) + 0.2 * norm.pdf(x - 1.3), norm.pdf, epsilon
        )

    def test_bounds_a_record_moved_between_two_sides(self):
        for epsilon in (0.0, 0.3, 1.0):
            other = integrate_hockey_stick(
                lambda x: 0.8 * norm.pdf(x) + 0.2 * norm.pdf(x - 0.65),
                lambda x: 0.8 * norm.pdf(x) + 0.2 * norm.pdf(x + 0.65),
                epsilon,
            )
            assert other <= self.profile.delta(epsilon) + 1e-9


class TestSampledMixture(ProfileContract):
    profile = sampled_without_replacement(TestMixture.profile, 0.1)

    def hockey_stick(self, epsilon):
        inner = math.log(1 + math.expm1(epsilon) / 0.1)
        return 0.1 * TestMixture().hockey_stick(inner)


def amplified_in_the_wrong_direction(epsilon):
    """δ at log(1 + γ(e^ε − 1)) in place of log(1 + (e^ε − 1)/γ)."""
    return 0.2 * GaussianProfile(1.3).delta(math.log1p(0.2 * math.expm1(epsilon)))


def not_amplified(epsilon):
    return GaussianProfile(1.3).delta(epsilon)


def smaller_noise(epsilon):
    return sampled_without_replacement(GaussianProfile(1.3 / 1.05), 0.2).delta(epsilon)


@pytest.mark.parametrize("delta", [amplified_in_the_wrong_direction, not_amplified, smaller_noise])
def test_pair_check_catches_a_wrong_profile(delta):
    with pytest.raises(AssertionError):
        check_pair(delta, TestSampledGaussian().hockey_stick)


def test_contract_check_catches_a_profile_without_its_mirror():
    profile = GaussianProfile(1.0)
    with pytest.raises(AssertionError):
        check_contract(lambda epsilon: profile.delta(np.abs(epsilon)))


@given(st.floats(1e-3, 20), st.floats(1e-6, 1), st.floats(0, 50))
def test_sampling_never_costs(mu, rate, epsilon):
    profile = GaussianProfile(mu)
    sampled = sampled_without_replacement(profile, rate).delta(epsilon)
    assert 0 <= sampled <= profile.delta(epsilon) * (1 + 1e-9)


def test_sampling_everything_changes_nothing():
    profile = GaussianProfile(0.4)
    assert sampled_without_replacement(profile, 1.0) is profile


@given(st.floats(1e-3, 5), st.floats(0, 8))
def test_binary_randomized_response_is_the_pure_profile(epsilon0, epsilon):
    response = RandomizedResponseProfile(epsilon0).delta(epsilon)
    assert response == ApproximateProfile(epsilon0).delta(epsilon)


@pytest.mark.parametrize(
    ("build", "error", "message"),
    [
        (lambda: GaussianProfile(0.0), ValueError, "mu"),
        (lambda: GaussianProfile(True), TypeError, "mu"),
        (lambda: LaplaceProfile(-1.0), ValueError, "epsilon0"),
        (lambda: LaplaceProfile(math.inf), ValueError, "epsilon0"),
        (lambda: RandomizedResponseProfile(1.0, 1), ValueError, "n_categories"),
        (lambda: ApproximateProfile(1.0, 1.0), ValueError, "delta0"),
        (lambda: MixtureProfile([GaussianProfile(1.0)], [0.9]), ValueError, "sum to 1"),
        (lambda: MixtureProfile([], []), ValueError, "length"),
        (lambda: MixtureProfile([GaussianProfile(1.0)] * 2, [1.5, -0.5]), ValueError, "weights"),
        (lambda: sampled_without_replacement(GaussianProfile(1.0), 1.1), ValueError, "rate"),
        (lambda: sampled_without_replacement(GaussianProfile(1.0), 0.0), ValueError, "rate"),
    ],
)
def test_bad_parameters(build, error, message):
    with pytest.raises(error, match=message):
        build()
