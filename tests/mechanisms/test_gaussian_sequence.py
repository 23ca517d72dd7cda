"""The Gaussian sequence mechanism: its price, its shares, its noise, its count of releases."""

import math
from dataclasses import FrozenInstanceError

import numpy as np
import pytest
from dp_accounting import GaussianDpEvent
from dp_accounting.pld import PLDAccountant
from dp_accounting.privacy_accountant import NeighboringRelation
from hypothesis import given, settings
from hypothesis import strategies as st
from sequence_cases import ROOT, SHARES, KnownDraws, exact_delta, together

from sklearn_dpgen.accounting import PrivacyReport, gaussian_sigma
from sklearn_dpgen.mechanisms import GaussianSequenceMechanism
from sklearn_dpgen.mechanisms._sequence import GaussianSequenceRun
from sklearn_dpgen.utils._random import NoiseSource, noise_source, on_grid


def dp_accounting_epsilon(scales, sensitivity, delta):
    # Adding one record, so that the accountant does not double the sensitivity.
    accountant = PLDAccountant(NeighboringRelation.ADD_OR_REMOVE_ONE, 1e-3)
    for scale in scales:
        accountant.compose(GaussianDpEvent(scale / sensitivity))
    return accountant.get_epsilon(delta)


@pytest.mark.parametrize("shares", [(1.0,), (1.0,) * 14, SHARES, (0.001, 7.0)], ids=str)
@pytest.mark.parametrize(("epsilon", "delta"), [(0.1, 1e-4), (1.0, 1e-5), (25.0, 1e-9)])
def test_all_releases_spend_the_budget(shares, epsilon, delta):
    scales = GaussianSequenceMechanism(ROOT, shares, epsilon, delta).noise_scales
    sigma = gaussian_sigma(epsilon, delta, ROOT)
    assert sigma * (1 - 1e-12) <= together(scales) <= sigma * (1 + 1e-9)
    assert exact_delta(epsilon, scales, ROOT) == pytest.approx(delta, rel=1e-6)
    assert dp_accounting_epsilon(scales, ROOT, delta) == pytest.approx(epsilon, rel=5e-3)
    # Any of them with the noise of a release of its own would overspend.
    for t in range(len(scales) * (len(scales) > 1)):
        alone = [*scales[:t], sigma, *scales[t + 1 :]]
        assert exact_delta(epsilon, alone, ROOT) > (1 + 1e-4) * delta


def test_reference_values():
    """Analytic noise at δ = 1e-4, to the digits that are printed."""
    for epsilon, sigma in ((1.0, 3.1857), (5.0, 0.7959), (25.0, 0.2294), (41.0, 0.1626)):
        (scale,) = GaussianSequenceMechanism(1.0, (1,), epsilon, 1e-4).noise_scales
        assert scale == pytest.approx(sigma, abs=6e-5)
        halved = GaussianSequenceMechanism(1.0, (1, 1), epsilon, 1e-4).noise_scales
        assert halved == pytest.approx((ROOT * scale,) * 2, rel=1e-9)


def test_shares_are_of_the_inverse_variance():
    mechanism = GaussianSequenceMechanism(ROOT, SHARES, 1.0, 1e-5)
    precision = 1 / np.square(mechanism.noise_scales)
    np.testing.assert_allclose(precision / precision.sum(), np.array(SHARES) / 7, rtol=1e-12)
    np.testing.assert_allclose(mechanism.shares, np.array(SHARES) / 7, rtol=1e-15)
    many = GaussianSequenceMechanism(ROOT, [100 * s for s in SHARES], 1.0, 1e-5)
    np.testing.assert_allclose(many.noise_scales, mechanism.noise_scales, rtol=1e-12)
    assert mechanism.n_releases == 3


@pytest.mark.slow
@settings(deadline=None, derandomize=True, max_examples=60)
@given(
    st.lists(st.floats(1e-6, 1e6), min_size=1, max_size=30),
    st.floats(1e-3, 100),
    st.floats(1e-12, 0.3),
    st.floats(1e-6, 1e6),
)
def test_the_budget_is_kept_whatever_the_shares(shares, epsilon, delta, sensitivity):
    mechanism = GaussianSequenceMechanism(sensitivity, shares, epsilon, delta)
    assert mechanism.n_releases == len(mechanism.noise_scales) == len(shares)
    assert math.fsum(mechanism.shares) == pytest.approx(1)
    assert exact_delta(epsilon, mechanism.noise_scales, sensitivity) <= delta * (1 + 1e-6)
    sigma = gaussian_sigma(epsilon, delta, sensitivity)
    assert together(mechanism.noise_scales) <= sigma * (1 + 1e-8)
    order = np.argsort(shares)
    assert (np.diff(np.array(mechanism.noise_scales)[order]) <= 0).all()


# Releases.


class FirstScaleForAll(GaussianSequenceRun):
    def __init__(self, mechanism):
        super().__init__(mechanism)
        self._scales = [mechanism.noise_scales[0]] * mechanism.n_releases


class Backwards(GaussianSequenceRun):
    def __init__(self, mechanism):
        super().__init__(mechanism)
        self._scales.reverse()


class OffGrid(GaussianSequenceRun):
    def release(self, value, noise):
        return value + self._scales.pop(0) * noise.normal(value.shape)


def releases_what_it_states(kind):
    """Whether each release is the vector plus its own scale times the draw, on the grid."""
    mechanism = GaussianSequenceMechanism(ROOT, SHARES, 1.0, 1e-5)
    rng, run = np.random.default_rng(0), kind(mechanism)
    for scale in mechanism.noise_scales:
        value, draws = rng.normal(size=40), rng.normal(size=40)
        expected = on_grid(value + scale * draws, scale)
        if not np.array_equal(run.release(value, KnownDraws(draws)), expected):
            return False
    return True


def test_each_release_has_its_own_noise_in_order():
    assert releases_what_it_states(GaussianSequenceRun)
    for broken in (FirstScaleForAll, Backwards, OffGrid):
        assert not releases_what_it_states(broken)


def has_the_stated_spread(mechanism, source, n_entries=20_000):
    value, spread = np.linspace(-1, 1, n_entries), math.sqrt(2 / n_entries)
    run = mechanism.run()
    errors = [(run.release(value, source) - value) / s for s in mechanism.noise_scales]
    return all(abs(np.mean(e**2) - 1) < 5 * spread for e in errors) and all(
        abs(np.mean(e * f)) < 5 / math.sqrt(n_entries)
        for e, f in zip(errors, errors[1:], strict=False)
    )


class Quiet(NoiseSource):
    def normal(self, size):
        return 0.9 * super().normal(size)


class Repeating(NoiseSource):
    def normal(self, size):
        return np.random.default_rng(0).normal(size=size)


def test_the_noise_has_the_stated_spread_and_is_new():
    mechanism = GaussianSequenceMechanism(ROOT, SHARES, 1.0, 1e-5)
    assert has_the_stated_spread(mechanism, noise_source(1))
    for broken in (Quiet, Repeating):
        assert not has_the_stated_spread(mechanism, broken(1))


def test_values_are_released_on_a_grid_of_a_power_of_two():
    mechanism = GaussianSequenceMechanism(ROOT, SHARES, 1.0, 1e-5)
    run = mechanism.run()
    for scale in mechanism.noise_scales:
        released = run.release(np.full(50, 1 / 3), noise_source())
        step = 2.0 ** (math.floor(math.log2(scale)) - 10)
        assert step <= scale / 1000
        np.testing.assert_array_equal(released / step, np.rint(released / step))


def test_each_release_is_paid_for():
    mechanism = GaussianSequenceMechanism(ROOT, (1, 1), 1.0, 1e-5)
    run = mechanism.run()
    for _ in range(2):
        assert run.release(np.zeros(3), noise_source(0)).shape == (3,)
    with pytest.raises(RuntimeError, match="no more"):
        run.release(np.zeros(3), noise_source(0))
    # Another run is another mechanism: it starts from the beginning.
    assert mechanism.run().release(np.zeros(3), noise_source(0)).shape == (3,)


@pytest.mark.parametrize(
    "value",
    [[1.0], np.zeros(2, dtype=np.float32), np.zeros((2, 1)), np.float64(1), np.ones(1, int)],
)
def test_a_value_of_another_type_is_refused_and_costs_nothing(value):
    run = GaussianSequenceMechanism(ROOT, (1,), 1.0, 1e-5).run()
    with pytest.raises(TypeError, match="float64 with one dimension"):
        run.release(value, noise_source(0))
    assert run.release(np.zeros(2), noise_source(0)).shape == (2,)


def test_an_error_would_tell_of_a_record_so_no_value_is_refused():
    run = GaussianSequenceMechanism(ROOT, (1,), 1.0, 1e-5).run()
    released = run.release(np.array([np.nan, 1.0]), noise_source(0))
    assert np.isnan(released).tolist() == [True, False]


def test_without_noise():
    mechanism = GaussianSequenceMechanism(ROOT, SHARES, math.inf, 1e-5)
    assert mechanism.noise_scales == (0.0,) * 3
    run, value = mechanism.run(), np.array([0.1, 1e-9])
    for _ in SHARES:
        released = run.release(value, noise_source(0))
        np.testing.assert_array_equal(released, value)
        assert released is not value
    with pytest.raises(RuntimeError, match="no more"):
        run.release(value, noise_source(0))
    fields = mechanism.report_fields()
    assert (fields["noise_scale"], fields["noise_multiplier"]) == (0.0, 0.0)
    assert fields["releases"] == ()


# The report.


def test_the_report_is_enough_to_recompute_the_budget():
    for shares in (SHARES, (1,) * 5):
        mechanism = GaussianSequenceMechanism(ROOT, shares, 1.0, 1e-5)
        stated = PrivacyReport(
            name="votes", events=(), epsilon=1.0, delta=1e-5, **mechanism.report_fields()
        )
        assert stated.n_releases == len(shares)
        assert stated.sensitivity == ROOT
        multiplier = stated.noise_multiplier
        assert exact_delta(1.0, [multiplier], 1.0) == pytest.approx(1e-5, rel=1e-6)
        scales = stated.noise_scale
        if shares == SHARES:
            assert list(scales) == ["release 1", "release 2", "release 3"]
            assert tuple(scales.values()) == mechanism.noise_scales
            scales = scales.values()
        else:
            scales = [scales] * 5
        assert together(scales) == pytest.approx(multiplier * ROOT, rel=1e-12)
        assert stated.discretization is None
        assert stated.to_json()


def test_a_mechanism_cannot_be_changed():
    shares = list(SHARES)
    mechanism = GaussianSequenceMechanism(ROOT, shares, 1.0, 1e-5)
    shares.clear()
    assert len(mechanism.shares) == 3
    for name in ("noise_scales", "shares", "epsilon", "n_releases"):
        with pytest.raises((FrozenInstanceError, AttributeError)):
            setattr(mechanism, name, 0)
    # A run takes nothing from the mechanism.
    mechanism.run().release(np.zeros(1), noise_source(0))
    assert len(mechanism.noise_scales) == 3


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"sensitivity": 0.0}, "sensitivity must be positive"),
        ({"shares": ()}, "one positive number per release"),
        ({"shares": (1.0, 0.0)}, "shares must be positive"),
        ({"shares": (1.0, math.nan)}, "shares must be positive"),
        ({"shares": (1.0, math.inf)}, "shares must be positive"),
        ({"epsilon": 0.0}, "epsilon must be positive"),
        ({"delta": 1.0}, "delta must be strictly between"),
    ],
    ids=str,
)
def test_refusals(options, message):
    good = {"sensitivity": ROOT, "shares": SHARES, "epsilon": 1.0, "delta": 1e-5}
    with pytest.raises(ValueError, match=message):
        GaussianSequenceMechanism(**good | options)
