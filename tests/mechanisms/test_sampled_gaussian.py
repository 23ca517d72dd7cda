"""The stratified Gaussian mechanism: its price, its noise, its batches, its count of releases."""

import math
import sys
from dataclasses import FrozenInstanceError
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sklearn_dpgen.accounting import (
    GaussianProfile,
    PrivacyReport,
    ProjectionLaw,
    calibrate_noise_multiplier,
    epsilon_spent,
    gaussian_sigma,
)
from sklearn_dpgen.accounting._composition import ComposedProfile, compose_delta
from sklearn_dpgen.accounting._profiles import sampled_without_replacement
from sklearn_dpgen.mechanisms import StratifiedGaussianMechanism, Stratum
from sklearn_dpgen.mechanisms._sampled import StratifiedGaussianRun
from sklearn_dpgen.utils._random import NoiseSource, noise_source, on_grid

BUDGET = {"epsilon": 1.0, "delta": 1e-5, "n_releases": 40}


def spent(noise_scale, stratum, delta, n_releases):
    multiplier = noise_scale / stratum.sensitivity
    # From the sizes, which are what batches are drawn by.
    rate = stratum.batch_size / stratum.size
    return epsilon_spent(multiplier, delta, sampling_rate=rate, n_steps=n_releases)


def is_private(mechanism, noise_scale):
    """Whether every stratum keeps to the budget, and the worst one spends it."""
    costs = {
        stratum: spent(noise_scale, stratum, mechanism.delta, mechanism.n_releases)
        for stratum in mechanism.strata
    }
    return max(costs.values()) <= mechanism.epsilon and (
        costs[mechanism.worst] >= mechanism.epsilon * (1 - 1e-3)
    )


# rate as batch and size, releases, delta, epsilon; the exact multiplier to four digits.
@pytest.mark.parametrize(
    ("batch_size", "size", "n_releases", "delta", "epsilon", "multiplier"),
    [
        (3000, 15000, 500, 0.1 / 30000, 1.0, 18.10),
        (3000, 15000, 500, 0.1 / 30000, 5.0, 4.50),
        (100, 10000, 1000, 1e-5, 1.0, 1.589),
    ],
)
def test_one_stratum_is_plain_sampling(batch_size, size, n_releases, delta, epsilon, multiplier):
    stratum = Stratum(size, batch_size, 0.25)
    mechanism = StratifiedGaussianMechanism(
        [stratum], epsilon=epsilon, delta=delta, n_releases=n_releases
    )
    assert mechanism.noise_multiplier == pytest.approx(multiplier, rel=1.2e-3)
    exact = calibrate_noise_multiplier(
        epsilon, delta, sampling_rate=batch_size / size, n_steps=n_releases
    )
    assert exact <= mechanism.noise_multiplier <= exact * (1 + 1e-12)
    assert mechanism.noise_scale == pytest.approx(0.25 * multiplier, rel=1.2e-3)
    assert is_private(mechanism, mechanism.noise_scale)
    for factor in (0.5, 0.99, 1.01):
        assert not is_private(mechanism, factor * mechanism.noise_scale)


@pytest.mark.parametrize(("batch_size", "size"), [(1, 3), (37, 300), (157, 1234), (1, 7000)])
def test_the_rate_is_that_of_the_integers(batch_size, size):
    stratum = Stratum(size, batch_size, 2.0)
    mechanism = StratifiedGaussianMechanism([stratum], epsilon=1.0, delta=1e-5, n_releases=3)
    rate = Fraction(batch_size, size)

    def is_priced(rate):
        multiplier = mechanism.noise_scale / 2
        cost = epsilon_spent(multiplier, 1e-5, sampling_rate=float(rate), n_steps=3)
        return 1 - 1e-4 < cost <= 1

    assert is_priced(rate)
    assert float(rate) == stratum.rate == mechanism.report_fields()["sampling_rate"]
    # Negative twin: the next two-digit numbers, of which the larger one would cost more.
    for digits in (math.floor(100 * rate), math.ceil(100 * rate)):
        assert not is_priced(max(digits, 1e-9) / 100)


def test_the_product_of_multiplier_and_sensitivity_is_rounded_up():
    exact = calibrate_noise_multiplier(1.0, 1e-5, sampling_rate=0.5, n_steps=40)
    sensitivities = np.random.default_rng(0).uniform(0.1, 3, 100)
    for sensitivity in sensitivities:
        mechanism = StratifiedGaussianMechanism([Stratum(100, 50, sensitivity)], **BUDGET)
        assert mechanism.noise_scale / sensitivity >= exact
    # Negative twin: of the products as they come some are too small.
    assert (exact * sensitivities / sensitivities).min() < exact


MANY = [
    # A larger rate against a larger sensitivity: either can be the worst.
    [Stratum(1000, 200, 1.0), Stratum(5000, 200, 2.0)],
    [Stratum(1000, 200, 1.0), Stratum(5000, 200, 9.0)],
    [Stratum(1000, 200, 1.0), Stratum(1000, 200, 0.5), Stratum(300, 300, 1e-3)],
    [Stratum(10, 2, 1.0), Stratum(100, 20, 1.0)],
]


@pytest.mark.parametrize("strata", MANY)
def test_every_stratum_keeps_to_the_budget(strata):
    mechanism = StratifiedGaussianMechanism(strata, **BUDGET)
    assert is_private(mechanism, mechanism.noise_scale)
    assert not is_private(mechanism, mechanism.noise_scale / 2)
    assert mechanism.noise_multiplier == mechanism.noise_scale / mechanism.sensitivity
    assert mechanism.sensitivity == mechanism.worst.sensitivity
    alone = {s: StratifiedGaussianMechanism([s], **BUDGET).noise_scale for s in strata}
    assert mechanism.noise_scale == max(alone.values()) == alone[mechanism.worst]
    # The noise of a stratum that is not the worst is not enough.
    assert all(
        is_private(mechanism, scale) == (scale == mechanism.noise_scale) for scale in alone.values()
    )


def test_either_the_rate_or_the_sensitivity_can_decide():
    worst = [StratifiedGaussianMechanism(strata, **BUDGET).worst for strata in MANY[:2]]
    assert worst == [MANY[0][0], MANY[1][1]]


def test_a_plan_is_calibrated_for_the_maximal_strata_alone(monkeypatch):
    from sklearn_dpgen.mechanisms import _sampled

    asked = []

    def stub(epsilon, delta, *, sampling_rate, n_steps, projections):
        assert projections is None
        asked.append(sampling_rate)
        return 1.0

    monkeypatch.setattr(_sampled, "calibrate_noise_multiplier", stub)
    _sampled._noise_multiplier.cache_clear()
    strata = [Stratum(100, b, s) for b, s in ((50, 1), (50, 2), (40, 2), (40, 1), (20, 3), (10, 2))]
    for _ in range(2):
        mechanism = StratifiedGaussianMechanism(strata, **BUDGET)
        assert mechanism.worst == Stratum(100, 20, 3)
    assert asked == [0.5, 0.2]
    _sampled._noise_multiplier.cache_clear()


def test_without_sampling_the_noise_is_that_of_a_gaussian():
    mechanism = StratifiedGaussianMechanism([Stratum(7, 7, 0.3)], **BUDGET)
    sigma = gaussian_sigma(1.0, 1e-5, 0.3 * math.sqrt(40))
    assert sigma <= mechanism.noise_scale <= sigma * (1 + 1e-8)


class KnownDraws(NoiseSource):
    """A noise source whose normals the test knows."""

    def __init__(self, draws):
        super().__init__(0)
        self.draws = draws

    def normal(self, size):
        assert size == self.draws.shape
        return self.draws


class TooQuiet(StratifiedGaussianRun):
    def release(self, value):
        super().release(value)
        scale = self._mechanism.noise_scale
        return on_grid(value + scale / 2 * self._noise.normal(value.shape), scale)


class OffGrid(StratifiedGaussianRun):
    def release(self, value):
        super().release(value)
        return value + self._mechanism.noise_scale * self._noise.normal(value.shape)


def releases_what_it_states(kind):
    """Whether the release is the vector plus noise_scale times the draw, rounded to the grid."""
    mechanism = StratifiedGaussianMechanism(MANY[0], **BUDGET)
    rng = np.random.default_rng(0)
    value, draws = rng.normal(size=50), rng.normal(size=50)
    run = kind(mechanism, KnownDraws(draws))
    run.draw()
    expected = on_grid(value + mechanism.noise_scale * draws, mechanism.noise_scale)
    return np.array_equal(run.release(value), expected)


def test_the_noise_is_the_stated_noise():
    assert releases_what_it_states(StratifiedGaussianRun)
    assert not releases_what_it_states(TooQuiet)
    assert not releases_what_it_states(OffGrid)


def has_the_calibrated_spread(run, mechanism, n_entries=20_000):
    value = np.linspace(-1, 1, n_entries)
    run.draw()
    error = run.release(value) - value
    spread = math.sqrt(2 / n_entries)
    return (
        abs(np.mean(error**2) / mechanism.noise_scale**2 - 1) < 5 * spread
        and abs(np.mean(error)) < 5 * mechanism.noise_scale / math.sqrt(n_entries)
        and abs(np.corrcoef(error[1:], error[:-1])[0, 1]) < 5 / math.sqrt(n_entries)
    )


def test_the_noise_has_the_calibrated_spread():
    mechanism = StratifiedGaussianMechanism(MANY[0], **BUDGET)
    assert has_the_calibrated_spread(mechanism.run(noise_source(1)), mechanism)
    assert not has_the_calibrated_spread(TooQuiet(mechanism, noise_source(1)), mechanism)


class WithReplacement(NoiseSource):
    def choice(self, n, size):
        return np.sort(self.integers(n, size))


class FixedBatch(NoiseSource):
    def choice(self, n, size):
        return np.arange(size)


class OneStartForAll(NoiseSource):
    """Uniform on its own, but the strata share one draw."""

    def __init__(self, generator):
        super().__init__(generator)
        self.starts = []

    def choice(self, n, size):
        if len(self.starts) % 2 == 0:
            self.starts.append(self.uniform(()))
        else:
            self.starts.append(self.starts[-1])
        return np.sort((int(self.starts[-1] * n) + np.arange(size)) % n)


def samples_as_stated(noise):
    """Whether batches are distinct, uniform, and independent between releases and strata."""
    strata, n_releases = [Stratum(20, 5, 1.0), Stratum(12, 6, 1.0)], 4000
    budget = {**BUDGET, "epsilon": math.inf, "n_releases": n_releases}
    run = StratifiedGaussianMechanism(strata, **budget).run(noise)
    drawn = np.zeros((n_releases, 32))
    for row in drawn:
        batches = run.draw()
        run.release(np.zeros(1))
        for stratum, batch, first in zip(strata, batches, (0, 20), strict=True):
            if len(set(batch)) != stratum.batch_size:
                return False
            row[first + batch] = 1
    rates = np.repeat([5 / 20, 6 / 12], [20, 12])
    z = (drawn - rates) / np.sqrt(rates * (1 - rates))
    between = z[:, :20].T @ z[:, 20:]
    successive = z[1:].T @ z[:-1]
    deviations = [z.sum(0), between.ravel(), successive.ravel()]
    return abs(np.concatenate(deviations)).max() < 5 * math.sqrt(n_releases)


@pytest.mark.slow
def test_batches_are_drawn_as_priced():
    assert samples_as_stated(noise_source(3))
    for broken in (WithReplacement, FixedBatch, OneStartForAll):
        assert not samples_as_stated(broken(0))


def test_each_release_is_paid_for_and_has_a_batch_of_its_own():
    mechanism = StratifiedGaussianMechanism(MANY[3], epsilon=2.0, delta=1e-5, n_releases=2)
    run, value = mechanism.run(noise_source(0)), np.zeros(3)
    with pytest.raises(RuntimeError, match="draw"):
        run.release(value)
    for _ in range(2):
        first, second = run.draw()
        assert len(first) == 2
        assert len(second) == 20
        with pytest.raises(RuntimeError, match="release of the batch"):
            run.draw()
        assert run.release(value).shape == (3,)
        with pytest.raises(RuntimeError, match="draw"):
            run.release(value)
    with pytest.raises(RuntimeError, match=r"paid for 2 release\(s\)"):
        run.draw()
    # Another run is another mechanism: it starts from the beginning.
    assert len(mechanism.run(noise_source(1)).draw()) == 2


def test_a_run_is_fresh_each_time():
    mechanism = StratifiedGaussianMechanism(MANY[0], **BUDGET)
    runs = [mechanism.run(noise_source()) for _ in range(2)]
    batches = [run.draw() for run in runs]
    assert not np.array_equal(batches[0][0], batches[1][0])
    first, second = (run.release(np.zeros(4)) for run in runs)
    assert (first != second).all()


@pytest.mark.parametrize(
    "value",
    [[1.0], np.zeros(2, dtype=np.float32), np.zeros((2, 1)), np.float64(1), np.ones(1, int)],
)
def test_a_value_of_another_type_is_refused(value):
    run = StratifiedGaussianMechanism(MANY[0], **BUDGET).run(noise_source(0))
    run.draw()
    with pytest.raises(TypeError, match="float64 with one dimension"):
        run.release(value)
    assert run.release(np.zeros(2)).shape == (2,)


def test_an_error_would_tell_of_a_record_so_no_value_is_refused():
    run = StratifiedGaussianMechanism(MANY[0], **BUDGET).run(noise_source(0))
    run.draw()
    assert np.isnan(run.release(np.array([np.nan, 1.0]))).tolist() == [True, False]


def test_without_noise():
    mechanism = StratifiedGaussianMechanism(MANY[0], **{**BUDGET, "epsilon": math.inf})
    assert mechanism.noise_scale == mechanism.noise_multiplier == 0
    run, value = mechanism.run(noise_source(0)), np.array([0.1, 1e-9])
    run.draw()
    released = run.release(value)
    np.testing.assert_array_equal(released, value)
    assert released is not value
    fields = mechanism.report_fields()
    assert (fields["noise_scale"], fields["noise_multiplier"]) == (0.0, 0.0)
    assert fields["releases"] == ()


def report(mechanism):
    return PrivacyReport(
        name="gradients",
        events=(),
        epsilon=mechanism.epsilon,
        delta=mechanism.delta,
        **mechanism.report_fields(),
    )


def test_the_report_is_of_the_worst_stratum():
    mechanism = StratifiedGaussianMechanism(MANY[1], **BUDGET)
    stated = report(mechanism)
    assert stated.noise_scale == mechanism.noise_scale
    assert stated.noise_multiplier == mechanism.noise_multiplier
    assert (stated.sensitivity, stated.sampling_rate) == (9.0, 0.04)
    assert stated.n_releases == 40
    assert 0 < stated.discretization <= 1e-3
    assert stated.batches == tuple((s.batch_size, s.size) for s in MANY[1])
    assert {(200, 1000), (200, 5000)} <= set(stated.batches)
    assert "200 of 1000, 200 of 5000" in str(stated)
    assert "sampling without replacement" in " ".join(str(stated).split())
    # What it states is enough to recompute the budget.
    again = epsilon_spent(
        stated.noise_multiplier,
        stated.delta,
        sampling_rate=stated.sampling_rate,
        n_steps=stated.n_releases,
    )
    assert 0.999 < again <= 1

    alone = report(StratifiedGaussianMechanism([Stratum(1000, 200, 1.0)], **BUDGET))
    assert alone.batches == ((200, 1000),)
    whole = report(StratifiedGaussianMechanism([Stratum(9, 9, 1.0)] * 2, **BUDGET))
    assert whole.batches == ()
    assert whole.discretization is None


def test_a_mechanism_cannot_be_changed():
    strata = list(MANY[0])
    mechanism = StratifiedGaussianMechanism(strata, **BUDGET)
    strata.clear()
    assert mechanism.strata == tuple(MANY[0])
    for name in ("noise_scale", "n_releases", "sensitivity", "noise_multiplier", "strata"):
        with pytest.raises((FrozenInstanceError, AttributeError)):
            setattr(mechanism, name, 0)
    with pytest.raises(FrozenInstanceError):
        mechanism.worst.sensitivity = 0


@settings(deadline=None, derandomize=True, max_examples=25)
@given(st.data(), st.integers(1, 10**6))
def test_rates_are_in_the_unit_interval(data, size):
    batch_size = data.draw(st.integers(1, size))
    assert 0 < Stratum(size, batch_size, 1.0).rate <= 1
    with pytest.raises(ValueError, match="batch_size must be at most"):
        Stratum(size, size + 1, 1.0)


def test_refusals():
    for size, batch_size, sensitivity, error in (
        (0, 1, 1.0, "size must be at least 1"),
        (5, 0, 1.0, "batch_size must be at least 1"),
        (5, 2, 0.0, "sensitivity must be positive"),
        (5, 2, math.inf, "sensitivity must be positive and finite"),
        (5, 2, math.nan, "sensitivity must be positive and finite"),
    ):
        with pytest.raises(ValueError, match=error):
            Stratum(size, batch_size, sensitivity)
    with pytest.raises(TypeError, match="batch_size"):
        Stratum(5, 2.0, 1.0)
    with pytest.raises(ValueError, match="at least one Stratum"):
        StratifiedGaussianMechanism([], **BUDGET)
    for name, value in (("epsilon", 0), ("delta", 1), ("n_releases", 0)):
        with pytest.raises(ValueError, match=name):
            StratifiedGaussianMechanism(MANY[0], **{**BUDGET, name: value})


# What is spent along the way.


def costs_are_those_of_the_accountant(mechanism):
    """Whether each stratum is charged for what was released of it so far, by sizes alone."""
    return all(
        mechanism.epsilons(count)
        == [spent(mechanism.noise_scale, s, mechanism.delta, count) for s in mechanism.strata]
        for count in (1, 7, 40)
    )


def test_costs_along_the_way(monkeypatch):
    strata = [Stratum(1000, 100, 0.5), Stratum(400, 100, 0.2), Stratum(1000, 100, 1.0)]
    mechanism = StratifiedGaussianMechanism(strata, **BUDGET)
    assert costs_are_those_of_the_accountant(mechanism)
    final = mechanism.epsilons()
    assert final == mechanism.epsilons(40)
    assert max(final) == final[strata.index(mechanism.worst)] <= 1.0
    assert mechanism.epsilons(1) < mechanism.epsilons(7) < final
    with pytest.raises(ValueError, match="n_releases must be at most 40, got 41"):
        mechanism.epsilons(41)
    free = StratifiedGaussianMechanism(strata, **{**BUDGET, "epsilon": math.inf})
    assert free.epsilons(1) == [math.inf] * 3
    # Twin: rates that are taken for another stratum's.
    monkeypatch.setattr(Stratum, "rate", property(lambda self: 0.01))
    assert not costs_are_those_of_the_accountant(mechanism)


@pytest.mark.parametrize("rate", [0.25, 1.0])
def test_a_stratum_that_changes_nothing_costs_nothing(rate):
    """As a group that has no other to be compared with, where alpha is 1."""
    strata = [Stratum(40, round(40 * rate), size) for size in (1.0, sys.float_info.min)]
    mechanism = StratifiedGaussianMechanism(strata, epsilon=1.0, delta=1e-3, n_releases=3)
    assert mechanism.epsilons()[1] == 0.0
    # Twin: the noise of the worst stratum is not to be taken for that of all.
    assert 0.99 < mechanism.epsilons()[0] <= 1.0


@pytest.mark.slow
def test_costs_of_projections_are_by_their_law():
    strata = [Stratum(400, 40, 2.0), Stratum(100, 10, 1.0)]
    plan = {"epsilon": 1.0, "delta": 1e-4, "n_releases": 5}
    mechanism = StratifiedGaussianMechanism(strata, **plan, projections=ProjectionLaw(4, 6))

    def is_by_the_law():
        return mechanism.epsilons(3) == [
            epsilon_spent(
                mechanism.noise_scale / stratum.sensitivity,
                1e-4,
                sampling_rate=0.1,
                n_steps=3,
                projections=ProjectionLaw(4, 6),
            )
            for stratum in strata
        ]

    assert is_by_the_law()
    assert 0.98 < mechanism.epsilons()[0] <= 1.0
    # Twin: six directions of four dimensions that cost as much as the record itself.
    object.__setattr__(mechanism, "projections", None)
    assert not is_by_the_law()
    assert mechanism.epsilons()[0] < 0.98


def test_the_profile_of_strata_is_above_that_of_each():
    """Of a large rate and of a large sensitivity each is the larger one at some ε."""
    strata = [Stratum(1000, 200, 5.0), Stratum(1000, 5, 40.0)]
    mechanism = StratifiedGaussianMechanism(strata, epsilon=1.0, delta=1e-5, n_releases=10)
    profile = ComposedProfile(mechanism.releases)

    def own(stratum, epsilon):
        mu = stratum.sensitivity / mechanism.noise_scale
        sampled = sampled_without_replacement(GaussianProfile(mu), stratum.rate)
        return compose_delta([(sampled, 10)], epsilon)

    epsilons = [0.01, 0.1, 0.5, 1.0, 2.0]
    values = np.array([[own(stratum, epsilon) for epsilon in epsilons] for stratum in strata])
    assert len(set(values.argmax(axis=0))) == 2
    assert (profile.delta(epsilons) >= values.max(axis=0) * (1 - 1e-6)).all()
    # The negative twin: one of them alone.
    for alone in values:
        assert (alone < 0.9 * values.max(axis=0)).any()
