"""The auditor on mechanisms of known cost, intact and broken, and its bounds beside other ones."""

import math
from types import SimpleNamespace

import numpy as np
import pytest
from audit_cases import Sums
from scipy.stats import binom, chi2, norm

from sklearn_dpgen.accounting import GaussianProfile, compose_epsilon
from sklearn_dpgen.accounting._profiles import sampled_without_replacement
from sklearn_dpgen.auditing import _transcript, audit
from sklearn_dpgen.auditing._bounds import (
    DiscretePair,
    GaussianPair,
    LaplacePair,
    SampledGaussianPair,
    SampledReplacementPair,
    clopper_pearson,
    epsilon_of_guesses,
    epsilon_of_rates,
    equivalent_mu,
    least_epsilon,
    mu_of_guesses,
    mu_of_rates,
)
from sklearn_dpgen.auditing._transcript import Transcript, noise_findings, scale_bounds
from sklearn_dpgen.auditing._white_box import _batch_pairs
from sklearn_dpgen.domains import Box, OneHot
from sklearn_dpgen.mechanisms import LaplaceMechanism, RandomizedResponse
from sklearn_dpgen.utils._random import NoiseSource, observed_noise

X = np.linspace(0, 1, 40)[:, None]
KINDS = {
    "gaussian": Sums(),
    "four gaussians": Sums(n_releases=4),
    "laplace": Sums("laplace"),
    "selection": Sums("gumbel"),
    "sampled gaussian": Sums(batch=4),
}


def audited(estimator, X=X, **settings):
    return audit(
        estimator, X, **({"n_trials": 12, "random_state": 0, "confidence": 1 - 1e-6} | settings)
    )


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_what_is_known_is_approached_from_below(kind):
    result = audited(KINDS[kind])
    assert not result.is_violation, result.to_text()
    assert 0.97 < result.ratio <= 1


@pytest.mark.slow
@pytest.mark.parametrize("fault", ["half noise", "no clip", "twice", "seed"])
def test_what_is_broken_is_a_violation(fault):
    result = audited(Sums(n_releases=2, fault=fault))
    assert result.is_violation
    if fault == "seed":
        assert any("share their noise" in finding for finding in result.findings)
    else:
        assert result.ratio > 1.5


@pytest.mark.slow
def test_batches_with_replacement_are_found(monkeypatch):
    monkeypatch.setattr(NoiseSource, "_choice", lambda self, n, size: self.integers(n, size))
    result = audited(Sums(batch=20))
    assert "a record is twice in one batch" in result.findings


@pytest.mark.slow
def test_noise_that_is_less_than_it_is_said_to_be_is_found(monkeypatch):
    intact = NoiseSource._noisy

    def quiet(self, values, scale, kind):
        return values + (intact(self, values, scale, kind) - values) / 2

    monkeypatch.setattr(NoiseSource, "_noisy", quiet)
    result = audited(Sums())
    assert result.ratio == pytest.approx(2, rel=0.05)
    assert any("gaussian noise has at most 0.5" in finding for finding in result.findings)


@pytest.mark.slow
def test_few_residuals_are_no_finding():
    # A low confidence makes bounds of few residuals small, which is no fault of the noise.
    fitted = Transcript()
    with observed_noise(fitted):
        noisy = NoiseSource(0).add(np.zeros(8), 2.0, "gaussian")
    fitted.residuals[0] = noisy / noisy.std() * 0.45
    assert scale_bounds([fitted], 0.95)["gaussian"] < 0.98
    assert noise_findings([fitted]) == []


@pytest.mark.slow
@pytest.mark.parametrize(
    ("mechanism", "records"),
    [
        (LaplaceMechanism(1.0, domain=Box(0, 1)), X),
        (RandomizedResponse(1.0, domain=OneHot(3)), np.eye(3)[np.arange(30) % 3]),
    ],
)
def test_local_mechanisms_are_approached_from_below(mechanism, records):
    result = audited(mechanism, records, n_draws=2**17)
    assert not result.is_violation
    assert 0.9 < result.ratio <= 1


def test_a_local_response_that_lies_too_rarely_is_a_violation(monkeypatch):
    respond = NoiseSource.respond

    def honest(self, codes, table, epsilon):
        return respond(self, codes, (table + np.eye(len(table))) / 2, epsilon)

    monkeypatch.setattr(NoiseSource, "respond", honest)
    records = np.eye(3)[np.arange(30) % 3]
    assert audited(RandomizedResponse(1.0, domain=OneHot(3)), records, n_draws=2**15).is_violation


@pytest.mark.slow
@pytest.mark.parametrize("method", ["repeated", "one_run"])
def test_black_box_audits_stay_below_and_see_no_noise_at_all(method):
    settings = {"method": method, "confidence": 0.999, "n_draws": 60, "n_canaries": 30}
    assert not audited(Sums(), **settings).is_violation
    if method == "repeated":
        bare = audited(Sums(fault="no clip"), **settings)
        assert bare.is_violation
        assert bare.ratio > 2


@pytest.mark.parametrize("method", ["white_box", "repeated"])
def test_an_unlikely_draw_of_the_noise_is_no_violation(monkeypatch, method):
    # Squares of noise that are too small with a probability of 1/2000, and then of 1e-9.
    def drawn(probability):
        def redrawn(source, kind, scales):
            n = 2**20
            return np.full(n, np.sqrt(chi2.ppf(probability, n) / n))

        monkeypatch.setattr(_transcript, "_redrawn", redrawn)
        monkeypatch.setattr(_transcript, "kstest", lambda *_: SimpleNamespace(pvalue=1.0))
        settings = {"method": method, "confidence": 0.9, "n_draws": 2}
        return audited(Sums(), **settings).is_violation

    assert not drawn(1 / 2000)
    assert drawn(1e-9)


@pytest.mark.slow
def test_composed_pairs_are_below_the_accountant_and_near():
    delta = 1e-5
    sampled = sampled_without_replacement(GaussianProfile(1.0), 0.1)
    above = sampled.epsilon(delta)
    assert 0.995 * above < least_epsilon([SampledGaussianPair(1.0, 0.1)], delta) <= above
    as_cells = least_epsilon([SampledReplacementPair((1.0, 1e-9), 0.0, 0.1)], delta)
    assert 0.99 * above < as_cells <= above
    assert least_epsilon([GaussianPair(0.3)] * 4, delta) == pytest.approx(
        GaussianProfile(0.6).epsilon(delta)
    )
    both = [(GaussianProfile(1.0), 1), (sampled, 1)]
    found = least_epsilon([GaussianPair(1.0), SampledGaussianPair(1.0, 0.1)], delta)
    assert 0.97 * compose_epsilon(both, delta) < found <= compose_epsilon(both, delta)
    assert least_epsilon([LaplacePair(0.5), LaplacePair(0.25)], 0.0) == pytest.approx(0.75)
    response = DiscretePair.of_event(math.e / (1 + math.e), 1 / (1 + math.e))
    assert least_epsilon([response, response], 0.0) == pytest.approx(2.0)


def test_largest_losses_add_up_in_one_direction():
    first, second = DiscretePair.of_event(0.3, 0.001), DiscretePair.of_event(0.999, 0.7)
    # All outcomes of both releases, of which each loses most in another direction.
    p, q = (np.outer([a, 1 - a], [b, 1 - b]) for a, b in [(0.3, 0.999), (0.001, 0.7)])
    exact = np.abs(np.log(p / q)).max()
    assert least_epsilon([first, second], 0.0) == pytest.approx(exact)
    assert least_epsilon([first, first], 0.0) == pytest.approx(2 * math.log(300))
    apart = DiscretePair((0.0, -math.inf), (math.log(0.5), math.log(0.5)))
    assert least_epsilon([first, apart], 0.0) == math.inf


@pytest.mark.slow
def test_batches_of_releases_keep_the_order_of_the_neighbours():
    rate, shift, delta = 0.1, np.array([[2.0]]), 1e-4
    first, second = (
        _batch_pairs(*moves, rate) for moves in ((shift, 0 * shift), (0 * shift, shift))
    )
    # The record of one neighbour shifts one release, that of the other neighbour another one.
    x = np.linspace(-9, 11, 4001)
    plain, moved = norm.pdf(x), norm.pdf(x, 2.0)
    mixture = (1 - rate) * plain + rate * moved
    p, q = np.outer(mixture, plain), np.outer(plain, mixture)

    def delta_of(epsilon):
        return np.maximum(p - math.exp(epsilon) * q, 0).sum() * (x[1] - x[0]) ** 2

    assert delta_of(least_epsilon(first + second, delta)) == pytest.approx(delta, rel=1e-2)
    # The twin: neighbours in a wrong order.
    assert delta_of(least_epsilon(first + first, delta)) < 0.5 * delta


@pytest.mark.slow
def test_pairs_agree_with_dp_accounting():
    from dp_accounting.pld import privacy_loss_distribution as pld

    for pair, law in [
        (LaplacePair(0.5), pld.from_laplace_mechanism(2.0)),
        (SampledGaussianPair(1.0, 0.2), pld.from_gaussian_mechanism(1.0, sampling_prob=0.2)),
        (
            DiscretePair.of_event(math.e / (1 + math.e), 1 / (1 + math.e)),
            pld.from_randomized_response(2 / (1 + math.e), 2),
        ),
    ]:
        above = law.self_compose(3).get_epsilon_for_delta(1e-4)
        assert least_epsilon([pair] * 3, 1e-4) == pytest.approx(above, rel=5e-3)
        assert least_epsilon([pair] * 3, 1e-4) <= above


def test_mu_agrees_with_riskcal():
    conversions = pytest.importorskip("riskcal.analysis")
    epsilon = GaussianProfile(0.8).epsilon(1e-5)
    assert equivalent_mu(epsilon, 1e-5) == pytest.approx(0.8, rel=1e-6)
    rate = float(conversions.get_beta_from_gdp(0.8, 0.1))
    assert mu_of_rates(1 - rate, 0.1) == pytest.approx(0.8, rel=1e-3)


def test_bounds_of_counts():
    low, high = clopper_pearson(7, 20, 0.05)
    assert binom.sf(6, 20, low) == pytest.approx(0.05)
    assert binom.cdf(7, 20, high) == pytest.approx(0.05)
    assert clopper_pearson(0, 5, 0.1)[0] == 0
    assert clopper_pearson(5, 5, 0.1)[1] == 1
    assert epsilon_of_rates(0.6, 0.2, 0.1) == pytest.approx(math.log(0.5 / 0.2))
    assert epsilon_of_rates(0.2, 0.2, 0.1) == 0


@pytest.mark.slow
@pytest.mark.parametrize("epsilon", [0.5, 2.0])
def test_guesses_in_one_run_rarely_show_more_than_there_is(epsilon):
    # Of randomized responses, whose coins are right with probability e^ε / (1 + e^ε).
    m, rate = 400, 1 / (1 + math.exp(-epsilon))
    right = np.random.default_rng(0).binomial(m, rate, size=300)
    found = {v: epsilon_of_guesses(m, m, int(v), 0.0, 0.05) for v in set(right)}
    bounds = np.array([found[v] for v in right])
    assert (bounds > epsilon).mean() < 0.09
    assert np.median(bounds) > 0.4 * epsilon
    # Without delta it is the bound by the binomial law.
    v = int(right[0])
    assert binom.sf(v - 1, m, 1 / (1 + math.exp(-found[v]))) == pytest.approx(0.05, rel=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("mu", [0.5, 2.0])
def test_gaussian_guesses_in_one_run_rarely_show_more_than_there_is(mu):
    m = 400
    right = np.random.default_rng(0).binomial(m, norm.cdf(mu / 2), size=300)
    found = {v: mu_of_guesses(m, int(v), 0.05) for v in set(right)}
    bounds = np.array([found[v] for v in right])
    assert (bounds > mu).mean() < 0.09
    assert np.median(bounds) > 0.2 * mu
    # It shows more than guesses alone do at a small delta.
    v, delta = int(np.median(right)), 1e-4
    assert mu_of_guesses(m, v, 0.05) > equivalent_mu(
        epsilon_of_guesses(m, m, v, delta, 0.05), delta
    )
