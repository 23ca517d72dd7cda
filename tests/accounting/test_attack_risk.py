"""What an attacker can do: closed forms, optimal tests of explicit pairs, and riskcal."""

import itertools
import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.integrate import quad
from scipy.stats import laplace, norm

from sklearn_dpgen.accounting import (
    ApproximateProfile,
    AttackRisk,
    GaussianProfile,
    LaplaceProfile,
    PrivacyReport,
    gaussian_sigma,
)
from sklearn_dpgen.accounting._attack_risk import _least_rates
from sklearn_dpgen.accounting._composition import ComposedProfile
from sklearn_dpgen.accounting._profiles import (
    MixtureProfile,
    RandomizedResponseProfile,
    sampled_without_replacement,
)

RATES = np.array([0.0, 1e-9, 1e-3, 1e-2, 0.1, 0.25, 0.5, 0.9, 1.0])


def rates_of_laplace(epsilon, fpr):
    """True positive rates of the likelihood ratio test between two laws that differ by epsilon."""
    return laplace.sf(laplace.isf(fpr) - epsilon)


def rates_of_pure(epsilon, fpr):
    return np.minimum(np.exp(epsilon) * fpr, 1 - np.exp(-epsilon) * (1 - fpr))


def rates_of_sampled(mu, rate, fpr):
    """Of an explicit pair that attains the profile in one order, the mixture against the normal.

    The dominating pair is symmetric: its curve is the larger one of the test and of its mirror.
    """
    cuts = np.linspace(-12, 12, 480_001)
    false = norm.sf(cuts)
    true = (1 - rate) * norm.sf(cuts) + rate * norm.sf(cuts - mu)
    forward = np.interp(fpr, false[::-1], true[::-1])
    backward = np.interp(fpr, (1 - true), (1 - false))
    return forward, backward


def check_rates(profile, expected, rtol=1e-6):
    np.testing.assert_allclose(
        AttackRisk(profile).true_positive_rate(RATES), expected(RATES), rtol=rtol, atol=1e-12
    )


@pytest.mark.parametrize("mu", [0.01, 0.268, 1.0, 5.0])
def test_gaussian(mu):
    check_rates(GaussianProfile(mu), lambda fpr: norm.sf(norm.isf(fpr) - mu))


@pytest.mark.parametrize("epsilon", [0.1, 1.7, 8.0])
def test_laplace(epsilon):
    check_rates(LaplaceProfile(epsilon), lambda fpr: rates_of_laplace(epsilon, fpr))


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 8.0])
def test_pure(epsilon):
    check_rates(ApproximateProfile(epsilon), lambda fpr: rates_of_pure(epsilon, fpr))


def test_sampled_gaussian():
    profile = sampled_without_replacement(GaussianProfile(1.3), 0.2)
    found = AttackRisk(profile).true_positive_rate(RATES)
    forward, backward = rates_of_sampled(1.3, 0.2, RATES)
    larger = np.maximum(forward, backward)
    assert np.all(found >= larger - 1e-9)
    # The symmetric pair allows what is between the two as well: the least concave curve above.
    x = np.linspace(0, 1, 20_001)
    curve = np.maximum(*rates_of_sampled(1.3, 0.2, x))
    assert np.interp(0.5, x, curve) <= AttackRisk(profile).true_positive_rate(0.5) <= 0.75


@pytest.mark.parametrize(
    "wrong",
    [
        lambda fpr: rates_of_pure(0.9, fpr),
        lambda fpr: np.minimum(np.exp(1.0) * fpr, 1.0),
        lambda fpr: norm.sf(norm.isf(fpr) - 1.0),
    ],
    ids=["smaller epsilon", "one half of the curve", "gaussian"],
)
def test_the_check_of_rates_catches_another_curve(wrong):
    with pytest.raises(AssertionError):
        check_rates(ApproximateProfile(1.0), wrong)


PROFILES = [
    GaussianProfile(0.01),
    GaussianProfile(1.0),
    GaussianProfile(30.0),
    LaplaceProfile(1.0),
    ApproximateProfile(1.0, 1e-5),
    RandomizedResponseProfile(1.0, 7),
    MixtureProfile([GaussianProfile(0.5), GaussianProfile(2.0)], [0.75, 0.25]),
    sampled_without_replacement(GaussianProfile(2.0), 0.01),
]
NAMES = [f"{type(profile).__name__}-{i}" for i, profile in enumerate(PROFILES)]


@pytest.mark.parametrize("profile", PROFILES, ids=NAMES)
def test_the_search_finds_what_a_fine_grid_finds_and_never_less(profile):
    fpr = np.array([1e-6, 1e-3, 1e-2, 0.1, 0.5, 0.99])
    epsilon = np.concatenate([np.linspace(-30, 30, 600_001), np.linspace(-1, 1, 600_001)])
    delta = profile.delta(epsilon)
    fine = [float(np.min(delta + np.exp(epsilon) * rate)) for rate in fpr]
    found = _least_rates(profile, tuple(fpr))
    np.testing.assert_allclose(found, fine, rtol=1e-6)
    if isinstance(profile, GaussianProfile):
        exact = AttackRisk(profile).true_positive_rate(fpr)
        assert np.all(found >= exact * (1 - 1e-12))


@given(st.floats(1e-6, 1), st.floats(1e-6, 1), st.sampled_from(PROFILES))
def test_the_curve_is_that_of_a_test(first, second, profile):
    risk = AttackRisk(profile)
    low, high = sorted([first, second])
    at_low, at_high, middle = risk.true_positive_rate([low, high, (low + high) / 2])
    assert low - 1e-12 <= at_low <= at_high * (1 + 1e-9) <= 1 + 1e-9
    # Whoever tosses a coin between two tests is between them.
    assert middle >= (at_low + at_high) / 2 * (1 - 1e-6)
    assert at_low - low <= risk.advantage + 1e-9
    assert risk.trade_off(low) == pytest.approx(1 - at_low, abs=1e-15)


def test_values_of_the_theory():
    risk = AttackRisk(GaussianProfile(1 / gaussian_sigma(1.0, 1e-5)))
    assert risk.mu == pytest.approx(0.268, abs=5e-4)
    assert risk.rho == risk.mu**2 / 2
    assert risk.true_positive_rates[0.01] == pytest.approx(0.0198, abs=5e-5)
    pure = AttackRisk(ApproximateProfile(1.0))
    assert pure.true_positive_rates[0.01] == pytest.approx(0.0272, abs=5e-5)
    assert pure.mu is None
    assert pure.rho is None
    assert list(risk.true_positive_rates) == [1e-3, 1e-2, 0.1]


# riskcal 1.5.1: get_beta_from_pld, get_advantage_from_pld, get_bayes_risk_from_pld with prior 0.2,
# of dp_accounting's Laplace mechanism with a grid of 1e-4, and their like for Gaussian privacy.
REFERENCES = [
    ("laplace", LaplaceProfile(1.7), [0.99452605, 0.94526053, 0.45670881], 0.572585, 0.1709660),
    ("gaussian", GaussianProfile(1.3), [0.96329171, 0.84763618, 0.49264056], 0.4843078, 0.1667238),
]


@pytest.mark.parametrize(
    ("profile", "betas", "advantage", "bayes_risk"),
    [reference[1:] for reference in REFERENCES],
    ids=[reference[0] for reference in REFERENCES],
)
def test_values_of_riskcal(profile, betas, advantage, bayes_risk):
    risk = AttackRisk(profile)
    # A grid of the loss is above the profile, by as much as its step.
    np.testing.assert_allclose(risk.trade_off([1e-3, 1e-2, 0.1]), betas, rtol=1e-4)
    assert risk.advantage == pytest.approx(advantage, rel=2e-4)
    assert 1 - risk.posterior(0.2) == pytest.approx(bayes_risk, rel=2e-4)
    assert risk.posterior() == 0.5 + risk.advantage / 2


def test_against_riskcal():
    analysis = pytest.importorskip("riskcal.analysis")
    from dp_accounting.pld import privacy_loss_distribution as distributions

    fpr = np.array([1e-3, 1e-2, 0.1, 0.5, 0.9])
    step = {"value_discretization_interval": 1e-4}
    pairs = [
        (LaplaceProfile(1.7), distributions.from_laplace_mechanism(1 / 1.7, **step)),
        (GaussianProfile(1.3), distributions.from_gaussian_mechanism(1 / 1.3, **step)),
        (ApproximateProfile(0.9, 1e-3), distributions.from_privacy_parameters(_parameters())),
    ]
    for profile, law in pairs:
        risk = AttackRisk(profile)
        beta = analysis.get_beta_from_pld(law, fpr)
        np.testing.assert_allclose(risk.trade_off(fpr), beta, rtol=1e-3)
        assert risk.advantage == pytest.approx(analysis.get_advantage_from_pld(law), rel=1e-3)
        for prior in (0.05, 0.5, 0.8):
            bayes = analysis.get_bayes_risk_from_pld(law, prior)
            assert 1 - risk.posterior(prior) == pytest.approx(bayes, rel=1e-3)
        with pytest.raises(AssertionError):
            np.testing.assert_allclose(
                AttackRisk(GaussianProfile(2.0)).trade_off(fpr), beta, rtol=1e-3
            )


def _parameters():
    from dp_accounting.pld.common import DifferentialPrivacyParameters

    return DifferentialPrivacyParameters(0.9, 1e-3)


def test_without_a_guarantee():
    risk = AttackRisk(None)
    assert list(risk.true_positive_rates.values()) == [1.0, 1.0, 1.0]
    assert risk.advantage == risk.posterior() == risk.posterior(0.01) == 1.0
    assert risk.mu is None
    assert risk.rho is None
    assert str(risk).endswith("no guarantee.")


def test_text_rounds_up():
    text = AttackRisk(GaussianProfile(0.268)).to_text()
    assert "0.1 percent false alarms finds at most 0.24 percent" in text
    assert "1 percent false alarms finds at most 1.98 percent" in text
    assert "10 percent false alarms finds at most 15.54 percent" in text
    assert "mu = 0.268" in text
    assert "rho = 0.03591" in text
    assert "Gaussian" not in AttackRisk(LaplaceProfile(1.0)).to_text()


@pytest.mark.slow
def test_a_report_has_the_risk_of_its_releases():
    half, third = GaussianProfile(0.5), LaplaceProfile(0.3)
    common = {"name": "two releases", "events": (), "epsilon": 2.0, "delta": 1e-5}
    report = PrivacyReport(**common, releases=((half, 4),))
    assert report.attack_risk().mu == 1.0
    mixed = PrivacyReport(**common, releases=((half, 1), (third, 1))).attack_risk()
    one = AttackRisk(half).true_positive_rate(RATES)
    assert np.all(mixed.true_positive_rate(RATES) >= one * (1 - 1e-9))
    assert mixed.true_positive_rate(0.1) > 1.1 * one[RATES == 0.1]
    # Of (ε, δ) alone less is known.
    unknown = PrivacyReport(**common).attack_risk()
    assert unknown.true_positive_rate(0.01) == pytest.approx(1e-5 + math.exp(2) / 100, rel=1e-4)
    nothing = PrivacyReport(name="none", events=(), epsilon=math.inf, delta=0.0).attack_risk()
    assert nothing.profile is None


def test_shapes_and_bad_rates():
    risk = AttackRisk(LaplaceProfile(1.0))
    assert isinstance(risk.true_positive_rate(0.1), float)
    assert risk.trade_off(np.full((2, 3), 0.1)).shape == (2, 3)
    for fpr in (-0.1, 1.1, math.nan):
        with pytest.raises(ValueError, match="fpr"):
            risk.true_positive_rate(fpr)
    for prior in (0.0, 1.0, math.nan):
        with pytest.raises(ValueError, match="prior"):
            risk.posterior(prior)


@pytest.mark.parametrize("n_values", [2, 3, 10, 1000])
@pytest.mark.parametrize("epsilon", [0.01, 0.3, 2.0])
def test_the_best_guess_under_randomized_response_is_its_true_answer(epsilon, n_values):
    expected = np.exp(epsilon) / (np.exp(epsilon) + n_values - 1)
    risk = AttackRisk(ApproximateProfile(epsilon))
    assert expected - 1e-12 <= risk.guess_among(n_values) <= expected * (1 + 1e-6)
    # Each value is one step from the data without the record, which favours no value: the best
    # mechanism adds as much to the probability of its own value as one step may add to 1 / k.
    twice = AttackRisk(ApproximateProfile(epsilon), neighbours="add_or_remove")
    expected = rates_of_pure(epsilon, 1 / n_values)
    assert expected - 1e-9 <= twice.guess_among(n_values) <= expected * (1 + 1e-4)
    assert twice.guess_among(n_values) > risk.guess_among(n_values)


@pytest.mark.parametrize("mu", [0.1, 1.0, 3.0])
def test_the_best_guess_of_two_is_the_posterior(mu):
    risk = AttackRisk(GaussianProfile(mu))
    np.testing.assert_allclose(risk.guess_among(2), risk.posterior(), rtol=1e-9)
    # A record that is absent or at one of two opposite points is two steps from the other one.
    twice = AttackRisk(GaussianProfile(mu), neighbours="add_or_remove")
    np.testing.assert_allclose(twice.guess_among(2), norm.cdf(mu), rtol=1e-6)


@pytest.mark.parametrize("n_persons", [2, 5, 10])
@pytest.mark.parametrize("epsilon", [0.3, np.log(9), 4.0])
def test_persons_who_answer_themselves_are_linked_as_all_answers_allow(epsilon, n_persons):
    # One of k persons has the value 1, and each answers by randomized response: all 2^k answers.
    answers = np.array(list(itertools.product([0, 1], repeat=n_persons)))
    true = np.exp(epsilon) / (1 + np.exp(epsilon))
    chances = [
        np.where(answers == values, true, 1 - true).prod(axis=1)
        for values in np.eye(n_persons, dtype=int)
    ]
    exact = np.max(chances, axis=0).sum() / n_persons
    risk = AttackRisk(ApproximateProfile(epsilon), is_local=True)
    assert exact <= risk.guess_among(n_persons, "record") <= 1.005 * exact
    # The twin: with a curator one record is replaced by another, and one step bounds too little.
    if n_persons > 2:
        assert exact > AttackRisk(ApproximateProfile(epsilon)).guess_among(n_persons, "record")


@pytest.mark.parametrize("n_persons", [2, 10, 100])
@pytest.mark.parametrize("mu", [0.1, 1.0, 3.0])
def test_the_best_link_under_gaussian_noise_is_the_largest_answer(mu, n_persons):
    exact = quad(lambda x: norm.pdf(x - mu) * norm.cdf(x) ** (n_persons - 1), -10, 14)[0]
    found = AttackRisk(GaussianProfile(mu), is_local=True).guess_among(n_persons, "record")
    assert exact <= found <= 1.0005 * exact
    # Of a composition of releases of each person, too.
    parts = ComposedProfile([(GaussianProfile(mu / 2), 3), (GaussianProfile(mu / 2), 1)])
    again = AttackRisk(parts, is_local=True).guess_among(n_persons, "record")
    np.testing.assert_allclose(again, found, rtol=1e-9)


def test_no_guess_of_an_explicit_mechanism_is_better():
    # Ten values on a circle of radius r: pairs differ by at most 2 r, so their profile is Gaussian.
    rng, n_values, radius = np.random.default_rng(0), 10, 0.6
    angles = 2 * np.pi * np.arange(n_values) / n_values
    points = radius * np.column_stack([np.cos(angles), np.sin(angles)])
    truth = rng.integers(n_values, size=100_000)
    seen = points[truth] + rng.standard_normal((100_000, 2))
    guesses = (seen @ points.T).argmax(axis=1)
    right, bound = (guesses == truth).mean(), AttackRisk(GaussianProfile(2 * radius))
    assert right < bound.guess_among(n_values)
    # The twin: the bound of a fifth of the distance is broken.
    assert right > AttackRisk(GaussianProfile(2 * radius / 5)).guess_among(n_values)


@pytest.mark.parametrize("factor", [1.5, 3.0, 10.0])
def test_odds_exceed_a_factor_no_more_often_than_is_said(factor):
    mu = 0.8
    # The privacy loss of a Gaussian pair is normal with mean mu²/2 and standard deviation mu.
    exact = norm.sf((np.log(factor) - mu**2 / 2) / mu)
    bound = AttackRisk(GaussianProfile(mu)).odds_exceed(factor)
    assert exact <= bound <= min(1.0, 8 * exact)
    # The twin: less noise breaks the bound.
    assert norm.sf((np.log(factor) - 18) / 6) > bound
    assert AttackRisk(ApproximateProfile(np.log(factor) / 2)).odds_exceed(factor) <= 1e-12
    assert AttackRisk(None).odds_exceed(factor) == AttackRisk(None).guess_among(3) == 1.0
    assert AttackRisk(None, is_local=True).guess_among(3, "record") == 1.0


@pytest.mark.parametrize("factor", [3.0, 10.0])
@pytest.mark.parametrize("mu", [0.2, 0.65, 1.0])
def test_odds_of_a_value_grow_by_a_removal_and_an_addition(mu, factor):
    # The sum of a record at mu or at -mu, and of the others, with noise of standard deviation 1.
    exact = norm.sf((np.log(factor) - (2 * mu) ** 2 / 2) / (2 * mu))
    risk = AttackRisk(GaussianProfile(mu), neighbours="add_or_remove")
    assert exact <= risk.odds_exceed(factor) <= min(1.0, 8 * exact)
    # The bound of two Gaussian steps is that of one which is twice as long.
    far = AttackRisk(GaussianProfile(2 * mu)).odds_exceed(factor)
    assert risk.odds_exceed(factor) <= far + 1e-9
    np.testing.assert_allclose(risk.odds_exceed(factor), far, rtol=0.05)
    # The twin: presence is one step, and its bound does not hold for a value.
    presence = risk.odds_exceed(factor, "presence")
    assert presence >= norm.sf((np.log(factor) - mu**2 / 2) / mu)
    assert presence == AttackRisk(GaussianProfile(mu)).odds_exceed(factor)
    assert presence < exact


@pytest.mark.parametrize("epsilon", [0.3, 1.0])
def test_odds_of_a_value_grow_by_two_pure_steps(epsilon):
    risk = AttackRisk(ApproximateProfile(epsilon), neighbours="add_or_remove")
    assert risk.odds_exceed(np.exp(2.01 * epsilon)) <= 1e-9
    # Answers of which each value is e^epsilon from absence, in opposite directions.
    assert risk.odds_exceed(np.exp(1.99 * epsilon)) >= np.exp(epsilon) / (1 + np.exp(epsilon))
    assert risk.odds_exceed(np.exp(1.01 * epsilon), "presence") <= 1e-9


def test_errors_of_guesses():
    risk = AttackRisk(GaussianProfile(1.0))
    with pytest.raises(ValueError, match="n_values must be at least 2"):
        risk.guess_among(1)
    with pytest.raises(ValueError, match="factor must be larger than 1"):
        risk.odds_exceed(1.0)
    with pytest.raises(ValueError, match="what must be 'value' or 'record'"):
        risk.guess_among(2, "presence")
    with pytest.raises(ValueError, match="what must be 'value' or 'presence'"):
        risk.odds_exceed(2.0, "record")


def test_a_report_hands_its_relation_to_its_risk():
    report = PrivacyReport(
        name="Fit",
        events=(),
        epsilon=1.0,
        delta=1e-5,
        neighbours="add_or_remove",
        releases=((GaussianProfile(0.5), 1),),
    )
    assert report.attack_risk().guess_among(2) > AttackRisk(GaussianProfile(0.5)).guess_among(2)
    local = replace(report, neighbours="replace_one", protected="own_record").attack_risk()
    assert local.guess_among(10, "record") > local.guess_among(10)
