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
from scipy.special import log_ndtr, ndtri

from sklearn_dpgen.accounting import PrivacyReport, gaussian_sigma
from sklearn_dpgen.mechanisms import GaussianSequenceMechanism, SelectionMechanism, on_grid
from sklearn_dpgen.mechanisms._selection import SelectionRun
from sklearn_dpgen.mechanisms._sequence import GaussianSequenceRun
from sklearn_dpgen.utils._random import NoiseSource, noise_source

SHARES = (1.0, 2.0, 4.0)
ROOT = math.sqrt(2)


def together(scales):
    """Return the noise of one release that is as private as all of them."""
    return 1 / math.sqrt(sum(1 / scale**2 for scale in scales))


def exact_delta(epsilon, scales, sensitivity):
    """Return the profile of the composition at a budget, by the textbook formula."""
    mu = sensitivity / together(scales)
    upper = log_ndtr(-epsilon / mu + mu / 2)
    lower = epsilon + log_ndtr(-epsilon / mu - mu / 2)
    return math.exp(upper) * -math.expm1(lower - upper)


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


class KnownDraws(NoiseSource):
    """A noise source whose normals the test knows."""

    def __init__(self, draws):
        super().__init__(np.random.default_rng(0))
        self.draws = draws

    def normal(self, size):
        assert size == self.draws.shape
        return self.draws


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
        assert not has_the_stated_spread(mechanism, broken(np.random.default_rng(1)))


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
    assert "no noise" in fields["accountant"]


# The report.


def test_the_report_is_enough_to_recompute_the_budget():
    for shares in (SHARES, (1,) * 5):
        mechanism = GaussianSequenceMechanism(ROOT, shares, 1.0, 1e-5)
        stated = PrivacyReport(
            mechanism="votes", epsilon=1.0, delta=1e-5, **mechanism.report_fields()
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
        assert "closed form" in stated.accountant
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
        ({"shares": ()}, "at least one"),
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


# Selections.

PAID = {"n_selections": 3, "selection_share": 2.0, "score_range": 2 * ROOT}


def with_selections(epsilon=1.0, delta=1e-5, shares=SHARES, **options):
    return GaussianSequenceMechanism(ROOT, shares, epsilon, delta, **PAID | options)


def deltas_of_selections(epsilon0, n, losses):
    """Return δ, at each loss, of adaptive selections: by a search over the worst binary pairs."""
    grid = np.linspace(-n * epsilon0, n * epsilon0, 1501)
    t = np.linspace(0, epsilon0, 151)[:, None]
    q = np.expm1(t - epsilon0) / math.expm1(-epsilon0)
    values = np.maximum(-np.expm1(grid), 0)

    def delta(epsilon):
        inside = np.interp(epsilon, grid, values)
        outside = np.maximum(-np.expm1(np.minimum(epsilon, 0)), 0)
        return np.where(np.abs(epsilon) > grid[-1], outside, inside)

    for _ in range(n):
        values = (q * delta(grid - t) + (1 - q) * delta(grid + epsilon0 - t)).max(axis=0)
    return delta(losses)


def searched_delta(mechanism, n_selections, *, epsilon0=None):
    """Return δ at ε of all releases and some selections, without the package's accounting."""
    mu = mechanism.sensitivity / together(mechanism.noise_scales)
    losses = mu * ndtri((np.arange(100_000) + 0.5) / 100_000) + mu**2 / 2
    epsilon0 = mechanism.selection.epsilon0 if epsilon0 is None else epsilon0
    return deltas_of_selections(epsilon0, n_selections, mechanism.epsilon - losses).mean()


@pytest.mark.parametrize(("epsilon", "delta"), [(0.2, 1e-3), (1.0, 1e-4), (8.0, 1e-4)])
@pytest.mark.parametrize(
    ("n", "share", "shares"), [(1, 2.0, (5.0,)), (3, 2.0, SHARES), (6, 40.0, (1.0, 1.0))]
)
def test_releases_and_selections_spend_the_budget(n, share, shares, epsilon, delta):
    mechanism = with_selections(epsilon, delta, shares, n_selections=n, selection_share=share)
    assert 0.97 * delta < searched_delta(mechanism, n) < 1.01 * delta
    # One selection more than was paid for, or of twice the range, would overspend.
    assert searched_delta(mechanism, n + 1) > 1.02 * delta
    epsilon0 = 2 * mechanism.selection.epsilon0
    assert searched_delta(mechanism, n, epsilon0=epsilon0) > 1.05 * delta
    # The releases alone leave something for the selections.
    assert exact_delta(epsilon, mechanism.noise_scales, ROOT) < 0.97 * delta


def test_selections_have_their_share():
    mechanism = with_selections()
    squared = [*(ROOT / np.array(mechanism.noise_scales)) ** 2]
    squared.append(3 * mechanism.selection.epsilon0**2 / 4)
    expected = np.array([*SHARES, 2.0]) / 9
    np.testing.assert_allclose(np.array(squared) / sum(squared), expected, rtol=1e-6)
    scaled = with_selections(shares=[100 * s for s in SHARES], selection_share=200.0)
    np.testing.assert_allclose(scaled.noise_scales, mechanism.noise_scales, rtol=1e-6)
    assert scaled.selection.epsilon0 == pytest.approx(mechanism.selection.epsilon0, rel=1e-6)
    # The range of the scores is the selections' own, and no matter of price.
    wide = with_selections(score_range=7.0)
    assert wide.noise_scales == mechanism.noise_scales
    assert wide.selection.epsilon0 == mechanism.selection.epsilon0
    assert wide.selection.noise_scale == 7.0 / mechanism.selection.epsilon0
    # And so is the sensitivity that of the releases.
    double = GaussianSequenceMechanism(2 * ROOT, SHARES, 1.0, 1e-5, **PAID)
    np.testing.assert_allclose(double.noise_scales, 2 * np.array(mechanism.noise_scales))
    assert double.selection == mechanism.selection


def test_fields_with_selections():
    mechanism = with_selections()
    selection = SelectionMechanism(2 * ROOT, mechanism.selection.epsilon0, 3)
    assert mechanism.selection == selection
    assert (mechanism.n_selections, mechanism.n_releases) == (3, 6)
    assert len(mechanism.noise_scales) == 3
    assert math.fsum(mechanism.shares) == pytest.approx(1)
    without = GaussianSequenceMechanism(ROOT, SHARES, 1.0, 1e-5)
    assert (without.selection, without.n_selections, without.n_releases) == (None, 0, 3)
    # Selections cost what they cost: the releases have the more noise.
    assert min(np.array(mechanism.noise_scales) / without.noise_scales) > 1.05
    for name in ("selection", "n_selections"):
        with pytest.raises((FrozenInstanceError, AttributeError)):
            setattr(mechanism, name, None)


def unlogged(events, kind=GaussianSequenceRun):
    """Run events in an order, and return what comes of each."""
    mechanism, draws = with_selections(), np.random.default_rng(0)
    run, found = kind(mechanism), {"r": [], "s": []}
    for event in events:
        if event == "r":
            value = np.zeros(5)
            found["r"].append(run.release(value, KnownDraws(np.ones(5)))[0])
        else:
            found["s"].append(int(run.select(draws.normal(size=9), noise_source(1))[0]))
    return found, run


def is_paid_for(kind=GaussianSequenceRun):
    """Whether in any order there are three releases, three selections, and no more."""
    for events in ("rrrsss", "sssrrr", "rsrsrs", "ssrrsr"):
        found, run = unlogged(events, kind)
        scales = with_selections().noise_scales
        if not np.allclose(found["r"], scales, rtol=1e-3):
            return False
        for more in (
            lambda run=run: run.release(np.zeros(2), noise_source(0)),
            lambda run=run: run.select(np.zeros(2), noise_source(0)),
        ):
            try:
                more()
            except RuntimeError:
                continue
            return False
    return True


class SelectsForNothing(GaussianSequenceRun):
    def select(self, scores, noise, *, count=1):
        return self._selection.__class__(with_selections().selection).release(
            scores, noise, count=count
        )


class ReleasesInsteadOfSelecting(GaussianSequenceRun):
    def select(self, scores, noise, *, count=1):
        self._scales.pop()
        return super().select(scores, noise, count=count)


def test_releases_and_selections_come_in_any_order():
    assert is_paid_for()
    first, _ = unlogged("rrrsss")
    for events in ("sssrrr", "rsrsrs"):
        assert unlogged(events)[0] == first
    assert not is_paid_for(SelectsForNothing)
    with pytest.raises((RuntimeError, IndexError)):
        is_paid_for(ReleasesInsteadOfSelecting)


@pytest.mark.parametrize("n_before", [0, 1, 2])
def test_no_order_of_releases_and_selections_overspends(n_before):
    """Two real selections, adaptive, with the releases before, between or after them."""
    epsilon, delta = 1.0, 1e-3
    mechanism = with_selections(epsilon, delta, n_selections=2, selection_share=7.0)
    epsilon0 = mechanism.selection.epsilon0
    mu = ROOT / together(mechanism.noise_scales)
    losses = mu * ndtri((np.arange(1000) + 0.5) / 1000) + mu**2 / 2
    t = np.linspace(0, epsilon0, 61)
    q = np.expm1(t - epsilon0) / math.expm1(-epsilon0)

    def one(last):
        """Return the worst divergence with a selection before what is still to come."""

        def divergence(rest):
            rest = np.asarray(rest)[..., None]
            return (q * last(rest - t) + (1 - q) * last(rest + epsilon0 - t)).max(axis=-1)

        return divergence

    def gaussian(last):
        return lambda rest: last(np.asarray(rest)[..., None] - losses).mean(axis=-1)

    def nothing(rest):
        return np.maximum(-np.expm1(np.minimum(rest, 0)), 0)

    worst = nothing
    for step in [one] * (2 - n_before) + [gaussian] + [one] * n_before:
        worst = step(worst)
    found = float(worst(epsilon))
    assert 0.7 * delta < found < 1.01 * delta


class UniformsOnly(NoiseSource):
    """A noise source whose uniforms the test knows."""

    def __init__(self, uniforms):
        super().__init__()
        self.uniforms = uniforms

    def uniform(self, size):
        assert size == self.uniforms.shape
        return self.uniforms


class HalfTheNoise(GaussianSequenceRun):
    def __init__(self, mechanism):
        super().__init__(mechanism)
        self._selection._scale /= 2


class GaussianNoise(GaussianSequenceRun):
    def select(self, scores, noise, *, count=1):
        return np.argsort(-(scores + self._scales[0] * ndtri(noise.uniform(scores.shape))))[:count]


def selects_what_it_states(kind):
    mechanism, rng = with_selections(n_selections=120), np.random.default_rng(0)
    run, scale = kind(mechanism), 2 * ROOT / mechanism.selection.epsilon0
    for _ in range(40):
        scores, uniforms = scale * rng.normal(size=20), rng.uniform(size=20)
        noisy = scores - scale * np.log(-np.log(uniforms))
        found = run.select(scores, UniformsOnly(uniforms), count=3)
        if not np.array_equal(found, np.argsort(-noisy)[:3]):
            return False
    return True


def test_a_selection_has_the_noise_that_is_stated():
    assert selects_what_it_states(GaussianSequenceRun)
    for broken in (HalfTheNoise, GaussianNoise):
        assert not selects_what_it_states(broken)


def test_each_selection_is_paid_for():
    mechanism = with_selections()
    run = mechanism.run()
    assert isinstance(run._selection, SelectionRun)
    assert run.select(np.zeros(9), noise_source(0), count=2).shape == (2,)
    with pytest.raises(RuntimeError, match="1 selection"):
        run.select(np.zeros(9), noise_source(0), count=2)
    assert run.select(np.zeros(9), noise_source(0)).shape == (1,)
    with pytest.raises(RuntimeError, match="0 selection"):
        run.select(np.zeros(9), noise_source(0))
    # They pay for no release, and another run starts from the beginning.
    assert run.release(np.zeros(2), noise_source(0)).shape == (2,)
    assert mechanism.run().select(np.zeros(9), noise_source(0), count=3).shape == (3,)
    with pytest.raises(RuntimeError, match="no selection"):
        GaussianSequenceMechanism(ROOT, SHARES, 1.0, 1e-5).run().select(
            np.zeros(9), noise_source(0)
        )


def test_bad_scores_are_refused_and_cost_nothing():
    run = with_selections().run()
    for scores, error in (
        ([1.0, 2.0, 3.0], TypeError),
        (np.zeros((3, 1)), TypeError),
        (np.array([0.0, np.nan, 1.0]), ValueError),
        (np.zeros(2), ValueError),
    ):
        with pytest.raises(error):
            run.select(scores, noise_source(0), count=3)
    assert run.select(np.zeros(3), noise_source(0), count=3).shape == (3,)


def test_selections_without_noise():
    mechanism = with_selections(math.inf)
    assert mechanism.noise_scales == (0.0,) * 3
    assert mechanism.selection.noise_scale == 0
    run = mechanism.run()
    found = run.select(np.array([1.0, 3.0, 2.0, 3.0]), noise_source(0), count=3)
    assert found.tolist() == [1, 3, 2]
    with pytest.raises(RuntimeError, match="0 selection"):
        run.select(np.zeros(3), noise_source(0))
    fields = mechanism.report_fields()
    assert fields["noise_multiplier"] == 0
    assert set(fields["noise_scale"].values()) == {0.0}
    assert "no noise" in fields["accountant"]
    assert fields["n_releases"] == 6


@pytest.mark.parametrize("shares", [SHARES, (1.0,) * 3, (1.0,)], ids=str)
def test_the_report_states_the_selections(shares):
    mechanism = with_selections(shares=shares)
    fields = mechanism.report_fields()
    stated = PrivacyReport(mechanism="slices", epsilon=1.0, delta=1e-5, **fields)
    assert stated.to_json()
    assert stated.n_releases == len(shares) + 3
    assert stated.sensitivity == ROOT
    assert "exponential" in stated.accountant
    scales = dict(stated.noise_scale)
    gumbel = scales.pop("each of 3 selections")
    assert gumbel == mechanism.selection.noise_scale
    if shares == SHARES:
        assert list(scales) == ["release 1", "release 2", "release 3"]
        assert tuple(scales.values()) == mechanism.noise_scales
    else:
        assert scales == {"every release": mechanism.noise_scales[0]}
    # The multiplier is of the releases, and with the noise of selections the budget follows.
    multiplier = together(mechanism.noise_scales) / ROOT
    assert stated.noise_multiplier == pytest.approx(multiplier, rel=1e-12)
    epsilon0 = PAID["score_range"] / gumbel
    assert 0.97e-5 < searched_delta(mechanism, 3, epsilon0=epsilon0) < 1.01e-5


@settings(deadline=None, derandomize=True, max_examples=8)
@given(
    st.lists(st.floats(1e-2, 1e2), min_size=1, max_size=8),
    st.floats(1e-2, 1e2),
    st.integers(1, 8),
    st.floats(0.05, 10),
    st.floats(1e-6, 1e-2),
)
def test_the_budget_is_kept_whatever_the_selections(shares, share, n, epsilon, delta):
    mechanism = GaussianSequenceMechanism(
        1.0, shares, epsilon, delta, n_selections=n, selection_share=share, score_range=2.0
    )
    # By Rényi divergences, an independent and a larger price, it is not far above.
    rho = 0.5 / together(mechanism.noise_scales) ** 2 + n * mechanism.selection.epsilon0**2 / 8
    orders = 1 + np.geomspace(1e-3, 1e5, 4000)
    concentrated = rho * orders + np.log1p(-1 / orders) - np.log(delta * orders) / (orders - 1)
    assert epsilon < concentrated.min() < 2.5 * epsilon + 0.2
    assert exact_delta(epsilon, mechanism.noise_scales, 1.0) < delta


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"n_selections": 0}, "must be None without selections"),
        ({"n_selections": 0, "selection_share": None}, "must be None without selections"),
        ({"n_selections": 0, "score_range": None}, "must be None without selections"),
        ({"n_selections": -1}, "n_selections must be"),
        ({"n_selections": 2.5}, "n_selections must be"),
        ({"n_selections": True}, "n_selections must be"),
        ({"selection_share": 0.0}, "selection_share must be positive"),
        ({"selection_share": math.inf}, "selection_share must be positive"),
        ({"selection_share": None}, "selection_share must be"),
        ({"score_range": 0.0}, "score_range must be positive"),
        ({"score_range": math.nan}, "score_range must be positive"),
        ({"score_range": None}, "score_range must be"),
    ],
    ids=str,
)
def test_refusals_of_selections(options, message):
    with pytest.raises((ValueError, TypeError), match=message):
        with_selections(**options)
