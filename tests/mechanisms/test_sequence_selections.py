"""Selections next to Gaussian releases: their price, their noise, their count, what is stated."""

import math
from dataclasses import FrozenInstanceError

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import ndtri
from sequence_cases import (
    PAID,
    ROOT,
    SHARES,
    KnownDraws,
    exact_delta,
    together,
    with_selections,
)

from sklearn_dpgen.accounting import GaussianProfile, PrivacyReport, compose_epsilon
from sklearn_dpgen.accounting._selection import BoundedRangeProfile
from sklearn_dpgen.mechanisms import GaussianSequenceMechanism
from sklearn_dpgen.mechanisms._sequence import GaussianSequenceRun, SelectionMechanism, SelectionRun
from sklearn_dpgen.utils._random import NoiseSource, noise_source


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

    def _uniform(self, size):
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


@pytest.mark.slow
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
    assert fields["releases"] == ()
    assert fields["n_releases"] == 6


@pytest.mark.parametrize("shares", [SHARES, (1.0,) * 3, (1.0,)], ids=str)
def test_the_report_states_the_selections(shares):
    mechanism = with_selections(shares=shares)
    fields = mechanism.report_fields()
    stated = PrivacyReport(name="slices", events=(), epsilon=1.0, delta=1e-5, **fields)
    assert stated.to_json()
    assert stated.n_releases == len(shares) + 3
    assert stated.sensitivity == ROOT
    assert {type(p) for p, _ in stated.releases} == {GaussianProfile, BoundedRangeProfile}
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


def recomputed_epsilon(stated, n_selections, discretization):
    """Return the ε that follows from the numbers of a report, composed on a grid."""
    scales = dict(stated.noise_scale)
    gumbel = scales.pop(f"each of {n_selections} selections")
    releases = [(GaussianProfile(ROOT / scale), 1) for scale in scales.values()]
    releases.append((BoundedRangeProfile(PAID["score_range"] / gumbel, n_selections), 1))
    return compose_epsilon(releases, 1e-5, discretization=discretization)


def test_the_report_states_the_grid_of_the_composition():
    mechanism = with_selections()
    stated = PrivacyReport(
        name="slices", events=(), epsilon=1.0, delta=1e-5, **mechanism.report_fields()
    )
    assert f"numerically (grid {stated.discretization:.3g})" in str(stated)
    # On the grid that is stated the budget is met to the last place; on coarser ones it is not.
    assert recomputed_epsilon(stated, 3, stated.discretization) == pytest.approx(
        recomputed_epsilon(stated, 3, None), rel=1e-15
    )
    assert recomputed_epsilon(stated, 3, 64 * stated.discretization) > 1.0
    # There is no grid where all is in closed form, nor where there is no noise.
    for gridless in (GaussianSequenceMechanism(ROOT, SHARES, 1.0, 1e-5), with_selections(math.inf)):
        assert gridless.report_fields()["discretization"] is None


@pytest.mark.slow
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
