"""The thresholded Laplace mechanism: its proof in numbers, an audit, its noise, its count."""

import math
from dataclasses import FrozenInstanceError
from functools import cache, partial

import numpy as np
import pytest
from dp_accounting import LaplaceDpEvent
from dp_accounting.pld import PLDAccountant
from dp_accounting.privacy_accountant import NeighboringRelation
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import laplace

from sklearn_dpgen.accounting import PrivacyReport
from sklearn_dpgen.accounting._composition import ComposedProfile
from sklearn_dpgen.accounting._profiles import CatastrophicFailureProfile
from sklearn_dpgen.mechanisms import ThresholdedLaplaceMechanism
from sklearn_dpgen.mechanisms._sequence import ThresholdedLaplaceRun
from sklearn_dpgen.utils._random import NoiseSource, noise_source, on_grid

BUDGETS = [(1.0, 1e-5, 1), (1.0, 1e-5, 3), (0.5, 0.1, 1), (0.5, 0.1, 3), (4.0, 0.01, 3)]


@cache
def mechanism_of(epsilon, delta, n_releases):
    return ThresholdedLaplaceMechanism(epsilon, delta, n_releases)


# The divergence of neighbours, from the law of a release.


def cell(count, other, scale, threshold, n_bins=12):
    """Return the law of a cell under two counts that differ by 1 or less, by outcomes.

    Outcomes are "zero" and ranges above the threshold. To merge outcomes only lowers a divergence,
    and it does not where the ratio of the densities is constant: all but between the counts.
    """
    middle = np.linspace(min(count, other), max(count, other), n_bins + 1)
    edges = np.unique([threshold, *middle[middle > threshold], np.inf])

    def law(k):
        if k == 0:
            return np.append(1.0, np.zeros(len(edges) - 1))
        survival = laplace.sf(edges - k, scale=scale)
        return np.append(laplace.cdf(threshold - k, scale=scale), -np.diff(survival))

    return law(count), law(other)


def product(laws):
    """Return the joint law of independent outcomes, with outcomes of one ratio merged."""
    joint = np.ones((1, 2))
    for p, q in laws:
        joint = (joint[:, None] * np.column_stack([p, q])).reshape(-1, 2)
        joint = joint[joint.sum(axis=1) > 1e-18]
        with np.errstate(divide="ignore"):
            ratio = np.log(joint[:, 0]) - np.log(joint[:, 1])
        _, group = np.unique(np.round(ratio, 10), return_inverse=True)
        joint = np.column_stack([np.bincount(group, column) for column in joint.T])
    return joint.T


def divergence(epsilon, p, q):
    """Return the larger hockey-stick divergence of the two directions."""
    return max(np.clip(a - math.exp(epsilon) * b, 0, None).sum() for a, b in ((p, q), (q, p)))


def worst_delta(epsilon, scale, threshold, n_releases):
    """Return the largest δ at ε over pairs of counts that one replaced record can be between."""
    near = math.ceil(threshold)
    far = near + math.ceil(40 * scale)
    largest = 0.0
    for losing in (1, 2, near, far):
        for gaining in (0, 1, near - 1, near, far):
            laws = [
                cell(losing, losing - 1, scale, threshold),
                cell(gaining, gaining + 1, scale, threshold),
            ]
            largest = max(largest, divergence(epsilon, *product(laws * n_releases)))
    return largest


def keeps_to_the_budget(epsilon, delta, n_releases, scale=None, threshold=None):
    stated = mechanism_of(epsilon, delta, n_releases)
    scale = stated.noise_scale if scale is None else scale
    threshold = stated.threshold if threshold is None else threshold
    return worst_delta(epsilon, scale, threshold, n_releases) <= delta


@pytest.mark.parametrize(("epsilon", "delta", "n_releases"), BUDGETS)
def test_neighbours_are_within_the_budget(epsilon, delta, n_releases):
    check = partial(keeps_to_the_budget, epsilon, delta, n_releases)
    stated = mechanism_of(epsilon, delta, n_releases)
    assert check()
    # Less noise, or no threshold, is not enough.
    assert not check(scale=stated.noise_scale / 2)
    assert not check(threshold=0.5)
    assert not check(threshold=1.0)
    if n_releases > 1:
        assert not check(scale=mechanism_of(epsilon, delta, 1).noise_scale)


def test_the_divergence_of_one_cell_is_the_known_one():
    """Far above the threshold two cells are two Laplace mechanisms: the check of the check."""
    scale, epsilon = 2.0, 0.3
    p, q = product([cell(500, 499, scale, 20.0, n_bins=200)])
    assert divergence(epsilon, p, q) == pytest.approx(1 - math.exp((epsilon - 1 / scale) / 2))
    # A cell that loses its only vote is told by anything but zero.
    p, q = product([cell(1, 0, scale, 20.0)])
    assert divergence(epsilon, p, q) == pytest.approx(math.exp(-19 / scale) / 2)


@pytest.mark.parametrize("n_releases", [1, 3, 30])
def test_a_lone_vote_stays_below_the_threshold(n_releases):
    def seen_once(threshold, scale):
        """Return how likely any of the releases shows a cell that is empty in a neighbour."""
        return -math.expm1(n_releases * math.log1p(-laplace.sf(threshold - 1, scale=scale)))

    stated = mechanism_of(1.0, 1e-3, n_releases)
    assert stated.threshold == 1 + stated.noise_scale * math.log(2 * n_releases / 1e-3)
    assert seen_once(stated.threshold, stated.noise_scale) == pytest.approx(1e-3 / 4, rel=1e-2)
    if n_releases == 30:
        once = 1 + stated.noise_scale * math.log(2 / 1e-3)
        assert seen_once(once, stated.noise_scale) > 1e-3


@pytest.mark.parametrize(("epsilon", "delta", "n_releases"), [*BUDGETS, (1.0, 1e-5, 40)])
def test_the_noise_against_another_accountant(epsilon, delta, n_releases):
    scale = mechanism_of(epsilon, delta, n_releases).noise_scale
    accountant = PLDAccountant(NeighboringRelation.ADD_OR_REMOVE_ONE, 1e-4)
    accountant.compose(LaplaceDpEvent(scale), 2 * n_releases)
    assert accountant.get_epsilon(delta / 2) == pytest.approx(epsilon, rel=2e-3)
    assert scale <= 2 * n_releases / epsilon


@pytest.mark.slow
@settings(deadline=None, derandomize=True, max_examples=4)
@given(st.floats(0.01, 20), st.floats(1e-10, 0.5), st.integers(1, 20))
def test_calibration_is_monotone(epsilon, delta, n_releases):
    mechanism = ThresholdedLaplaceMechanism(epsilon, delta, n_releases)
    assert 0 < mechanism.noise_scale <= 2 * n_releases / epsilon
    assert mechanism.threshold > 1
    slack = 1 + 2e-5
    more = ThresholdedLaplaceMechanism(epsilon, delta, n_releases + 1)
    assert more.noise_scale * slack >= mechanism.noise_scale
    richer = ThresholdedLaplaceMechanism(2 * epsilon, delta, n_releases)
    assert richer.noise_scale <= mechanism.noise_scale * slack


# An audit of what is released.


class WithoutThreshold(ThresholdedLaplaceRun):
    def release(self, counts, noise):
        scale = self._mechanism.noise_scale
        return np.where(counts > 0, on_grid(counts + scale * noise.laplace(counts.shape), scale), 0)


class WithoutNoise(ThresholdedLaplaceRun):
    def release(self, counts, noise):
        return np.where(counts > self._mechanism.threshold, counts, 0.0)


class AsIfOnce(ThresholdedLaplaceRun):
    """The noise of one release, at each of them."""

    def __init__(self, mechanism):
        once = mechanism_of(mechanism.epsilon, mechanism.delta, 1)
        super().__init__(mechanism)
        self._once = once

    def release(self, counts, noise):
        return ThresholdedLaplaceRun(self._once).release(counts, noise)


AUDITED = (1.0, 0.02, 3)


def audited_delta(kind, n=40_000):
    """Return the largest δ that samples show, and three standard errors of it.

    Many cells of one count are as many independent releases of it.
    """
    mechanism = mechanism_of(*AUDITED)
    far = math.ceil(mechanism.threshold) + 60
    largest = (0.0, 0.0)
    for losing, gaining in ((1, far), (far, far), (far, 0)):
        statistics = []
        for seed, (first, second) in enumerate(
            ((losing, gaining), (losing - 1, gaining + 1)), start=1
        ):
            run, noise = kind(mechanism), NoiseSource(seed)
            total, told = np.zeros(n), np.zeros(n, dtype=bool)
            for _ in range(mechanism.n_releases):
                counts = np.repeat([float(first), float(second)], n)
                left, right = run.release(counts, noise).reshape(2, n)
                told |= (left != 0) if losing == 1 else (right != 0) & (gaining == 0)
                total += np.clip(left - losing + 0.5, -0.5, 0.5)
                total -= np.clip(right - gaining - 0.5, -0.5, 0.5)
            statistics.append((told, total))
        (told_p, total_p), (told_q, total_q) = statistics
        events = [(told_p, told_q)]
        events += [(total_p > level, total_q > level) for level in np.linspace(0, 2.5, 6)]
        events += [(~p, ~q) for p, q in events]
        for p, q in events:
            for a, b in ((p.mean(), q.mean()), (q.mean(), p.mean())):
                factor = math.exp(mechanism.epsilon)
                error = 3 * math.sqrt((a * (1 - a) + factor**2 * b * (1 - b)) / n)
                largest = max(largest, (a - factor * b, error))
    return largest


def test_an_audit_finds_no_more_than_delta():
    delta, error = audited_delta(ThresholdedLaplaceRun)
    assert delta <= AUDITED[1] + error
    for broken in (WithoutThreshold, WithoutNoise, AsIfOnce):
        delta, error = audited_delta(broken)
        assert delta - error > AUDITED[1]


# Releases.


class KnownDraws(NoiseSource):
    """A noise source whose Laplace draws the test knows."""

    def __init__(self, draws):
        super().__init__(0)
        self.draws = draws

    def laplace(self, size):
        assert size == self.draws.shape
        return self.draws


class FillsEmptyCells(ThresholdedLaplaceRun):
    def release(self, counts, noise):
        return super().release(np.maximum(counts, 1e-9), noise)


class OffGrid(ThresholdedLaplaceRun):
    def release(self, counts, noise):
        noisy = counts + self._mechanism.noise_scale * noise.laplace(counts.shape)
        return np.where((counts > 0) & (noisy > self._mechanism.threshold), noisy, 0.0)


def releases_what_it_states(kind):
    mechanism = mechanism_of(1.0, 1e-5, 2)
    scale, rng, run = mechanism.noise_scale, np.random.default_rng(0), kind(mechanism)
    for _ in range(2):
        counts = rng.integers(0, 3, size=300) * rng.integers(0, 60, size=300).astype(float)
        draws = 4 * rng.laplace(size=300)
        noisy = on_grid(counts + scale * draws, scale)
        expected = np.where(noisy >= mechanism.threshold + scale / 1024, noisy, 0.0)
        expected[counts == 0] = 0.0
        if not np.array_equal(run.release(counts, KnownDraws(draws)), expected):
            return False
        assert 30 < (expected > 0).sum() < 200
    return True


def test_the_noise_is_the_stated_noise():
    assert releases_what_it_states(ThresholdedLaplaceRun)
    for broken in (WithoutThreshold, FillsEmptyCells, OffGrid):
        assert not releases_what_it_states(broken)


def test_empty_cells_stay_empty():
    run = mechanism_of(0.5, 0.1, 3).run()
    for _ in range(3):
        assert not run.release(np.zeros(20_000), noise_source(0)).any()


def test_full_cells_have_the_stated_spread():
    mechanism, n = mechanism_of(1.0, 1e-5, 1), 20_000
    counts = np.full(n, 1e4)
    error = (mechanism.run().release(counts, noise_source(0)) - counts) / mechanism.noise_scale
    assert abs(np.mean(abs(error)) - 1) < 5 / math.sqrt(n)
    assert abs(np.mean(error)) < 5 * math.sqrt(2 / n)
    assert abs(np.mean(error > math.log(2)) - 0.25) < 5 * math.sqrt(0.1875 / n)


def test_each_release_is_paid_for():
    mechanism = mechanism_of(1.0, 1e-5, 3)
    run = mechanism.run()
    for _ in range(3):
        assert run.release(np.zeros(3), noise_source(0)).shape == (3,)
    with pytest.raises(RuntimeError, match=r"paid for 3 release\(s\)"):
        run.release(np.zeros(3), noise_source(0))
    assert mechanism.run().release(np.zeros(3), noise_source(0)).shape == (3,)


@pytest.mark.parametrize(
    "counts",
    [[1.0], np.zeros(2, dtype=np.float32), np.zeros((2, 1)), np.float64(1), np.ones(1, int)],
)
def test_counts_of_another_type_are_refused_and_cost_nothing(counts):
    run = mechanism_of(1.0, 1e-5, 1).run()
    with pytest.raises(TypeError, match="float64 with one dimension"):
        run.release(counts, noise_source(0))
    assert run.release(np.zeros(2), noise_source(0)).shape == (2,)


def test_without_noise():
    mechanism = ThresholdedLaplaceMechanism(math.inf, 1e-5, 2)
    assert (mechanism.noise_scale, mechanism.threshold) == (0.0, 0.0)
    run, counts = mechanism.run(), np.array([0.0, 1.0, 7.0])
    for _ in range(2):
        released = run.release(counts, noise_source(0))
        np.testing.assert_array_equal(released, counts)
        assert released is not counts
    with pytest.raises(RuntimeError, match="paid for 2"):
        run.release(counts, noise_source(0))
    fields = mechanism.report_fields()
    assert (fields["noise_scale"], fields["noise_multiplier"]) == (0.0, 0.0)
    assert fields["releases"] == ()


def test_the_report():
    mechanism = mechanism_of(1.0, 1e-5, 3)
    stated = PrivacyReport(
        name="votes", events=(), epsilon=1.0, delta=1e-5, **mechanism.report_fields()
    )
    assert stated.noise_scale == mechanism.noise_scale
    # In l1: one count less, one more.
    assert stated.sensitivity == 2.0
    assert stated.noise_multiplier == mechanism.noise_scale / 2
    assert stated.n_releases == 3
    assert 0 < stated.discretization <= 1e-3
    assert stated.releases[1:] == ((CatastrophicFailureProfile(0.5e-5), 1),)
    assert stated.to_json()


def test_a_mechanism_cannot_be_changed():
    mechanism = mechanism_of(1.0, 1e-5, 1)
    for name in ("noise_scale", "threshold", "epsilon", "n_releases"):
        with pytest.raises(FrozenInstanceError):
            setattr(mechanism, name, 0)


def test_refusals():
    for options, message in (
        ({"epsilon": 0.0}, "epsilon must be positive"),
        ({"delta": 1.0}, "delta must be strictly between"),
        ({"n_releases": 0}, "n_releases must be at least 1"),
    ):
        with pytest.raises(ValueError, match=message):
            ThresholdedLaplaceMechanism(
                **{"epsilon": 1.0, "delta": 1e-5, "n_releases": 2} | options
            )
    with pytest.raises(TypeError, match="n_releases must be an integer"):
        ThresholdedLaplaceMechanism(1.0, 1e-5, 2.0)


@pytest.mark.parametrize("n_releases", [1, 5])
def test_the_profile_of_all_releases_has_noise_and_thresholds(n_releases):
    """A cell of one vote passes with a probability that no noise hides: half of δ, in all."""
    mechanism = ThresholdedLaplaceMechanism(1.0, 1e-4, n_releases)
    scale, threshold = mechanism.noise_scale, mechanism.threshold
    lone = 2 * n_releases * math.exp(-(threshold - 1) / scale) / 2
    profile = ComposedProfile(mechanism.releases)
    assert profile.delta(math.inf) == pytest.approx(lone, rel=1e-9)
    assert lone < profile.delta(1.0) <= 1e-4
    # Two cells change in each release; the worst event of one alone is that of its noise.
    of_cell = 1 - math.exp((0.5 / scale - 1 / scale) / 2)
    assert profile.delta(0.5 / scale) > of_cell
    # The negative twin: the noise alone.
    assert ComposedProfile(mechanism.releases[:1]).delta(math.inf) < 1e-3 * lone


def test_counts_less_than_a_step_above_the_threshold_are_left_out():
    mechanism = mechanism_of(1.0, 1e-5, 1)
    scale = mechanism.noise_scale
    above = np.array([0.6, 0.8, 1.6, 2.0]) * scale / 1024
    draws = (mechanism.threshold + above - 1) / scale
    released = mechanism.run().release(np.ones(4), KnownDraws(draws))
    assert (released > 0).tolist() == [False, False, True, True]
