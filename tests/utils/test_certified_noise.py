"""Certified noise rounds before, never draws in floating point, and rounds odds down."""

import importlib.util
import math
from decimal import Decimal, localcontext
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sklearn_dpgen.utils._exact_draws import discrete_gaussian, grid_integers, odds
from sklearn_dpgen.utils._random import (
    CertifiedNoise,
    NoiseObserver,
    NoiseSource,
    observed_noise,
)

pytest.importorskip("opendp")

STEPS = 2**26


class NoiseBeforeRounding(CertifiedNoise):
    """A broken variant: the low bits of a sum tell what the noise was added to."""

    def _noisy(self, values, scale, kind):
        noise = discrete_gaussian(values.size, 26) * math.ldexp(scale, -26)
        return values + noise.reshape(values.shape)


def is_on_its_grid(source, kind):
    """Whether what is released of some values are the same floats as of their neighbours."""
    scale = 0.7
    values = np.random.default_rng(0).uniform(-5, 5, 500)
    noisy = source.add(values, scale, kind)
    multiples = np.rint(noisy / scale * STEPS)
    return np.array_equal(noisy, multiples * math.ldexp(scale, -26))


@pytest.mark.parametrize("kind", ["gaussian", "laplace"])
def test_what_is_released_is_on_the_grid(kind):
    assert is_on_its_grid(CertifiedNoise(), kind)
    assert not is_on_its_grid(NoiseBeforeRounding(), kind)
    assert not is_on_its_grid(NoiseSource(), kind)


@pytest.mark.parametrize("kind", ["gaussian", "laplace"])
def test_noise_has_its_scale(kind):
    spread = 0.7 * (math.sqrt(2) if kind == "laplace" else 1)
    values = np.full((200, 100), 3.0)
    noise = CertifiedNoise().add(values, 0.7, kind) - values
    assert noise.std() == pytest.approx(spread, rel=0.05)
    assert abs(noise.mean()) < 5 * spread / math.sqrt(noise.size)
    kept = CertifiedNoise().add(values, 0.0, kind)
    np.testing.assert_array_equal(kept, values)


@settings(deadline=None, max_examples=200)
@given(st.floats(-1e5, 1e5), st.floats(0.01, 100.0))
def test_values_are_rounded_by_less_than_a_step(value, scale):
    (rounded,) = grid_integers(np.array([value]), scale).tolist()
    exact = Fraction(value) / Fraction(scale) * STEPS
    assert abs(rounded - exact) <= Fraction(5, 8)


def test_far_values_are_moved_to_the_edge():
    far = grid_integers(np.array([np.inf, -np.inf, 1e300, 5.0]), 1e-9)
    assert far.tolist()[:3] == [2**50, -(2**50), 2**50]
    assert abs(CertifiedNoise().add(np.array([1e300]), 1.0, "laplace")[0]) < 2.0**25
    with pytest.raises(ValueError, match="NaN"):
        grid_integers(np.array([np.nan]), 1.0)
    with pytest.raises(ValueError, match="scale"):
        grid_integers(np.array([1.0]), 1e-300)


def is_at_most(high, low, epsilon):
    """Whether high / low is at most e^epsilon, in 80 digits."""
    with localcontext() as context:
        context.prec = 80
        return Decimal(high) / Decimal(low) <= Decimal(epsilon).exp()


@pytest.mark.slow
@settings(deadline=None, max_examples=200)
@given(st.floats(1e-9, 40.0))
def test_odds_are_rounded_down(epsilon):
    high, low = odds(epsilon)
    assert high >= low
    assert is_at_most(high, low, epsilon)
    assert epsilon > 34 or high / low == pytest.approx(math.exp(epsilon), rel=2e-7)
    # Rounded to the nearest or up, they would be too large.
    assert not is_at_most(high + 1, low, epsilon) or high == 2**50


def test_odds_of_large_budgets():
    for epsilon in (40.0, 64.0, 65.0, 1e6):
        high, low = odds(epsilon)
        assert (high, low) == (2**50, 1)


class Boundary(CertifiedNoise):
    """Integers that are the first ones, or the last ones, of what they are drawn from."""

    def __init__(self, drawn):
        super().__init__()
        self.drawn, self.bounds = drawn, []

    def integers(self, high, size):
        self.bounds.append(np.broadcast_to(high, size))
        return np.broadcast_to(self.drawn, size)


@pytest.mark.parametrize(("inside", "outside", "epsilon"), [(1, 1, 0.5), (3, 40, 2.0), (1, 9, 9.0)])
def test_answers_have_exact_probabilities(inside, outside, epsilon):
    high, low = odds(epsilon)
    m, o = np.array([inside]), np.array([outside])
    for drawn, expected in ((0, True), (inside * high - 1, True), (inside * high, False)):
        source = Boundary(drawn)
        assert source.covers(m, o, epsilon).tolist() == [expected]
        assert source.bounds[0].tolist() == [inside * high + outside * low]


def test_categories_are_kept_and_changed_evenly():
    codes = np.repeat(np.arange(4), 20_000)
    released = CertifiedNoise().respond(codes, np.empty((4, 4)), 1.0)
    kept = math.e / (math.e + 3)
    for true in range(4):
        shares = np.bincount(released[codes == true], minlength=4) / 20_000
        expected = np.full(4, (1 - kept) / 3)
        expected[true] = kept
        assert abs(shares - expected).max() < 0.02
    assert CertifiedNoise().respond(np.zeros(3, int), np.empty((1, 1)), 1.0).tolist() == [0] * 3
    np.testing.assert_array_equal(CertifiedNoise().respond(codes, np.empty((4, 4)), np.inf), codes)
    with pytest.raises(OverflowError, match="62 bits"):
        CertifiedNoise().covers(np.array([2**20]), np.array([1]), 60.0)


@pytest.mark.parametrize("name", ["uniform", "normal", "laplace"])
def test_there_are_no_draws_in_floating_point(name):
    with pytest.raises(TypeError, match="no draws in floating point"):
        getattr(CertifiedNoise(), name)(3)
    # What is drawn after a release may be a float.
    assert getattr(CertifiedNoise().public, name)(3).shape == (3,)


def test_subsets_are_of_integers():
    source = CertifiedNoise()
    for n, size in ((5, 0), (5, 3), (5, 5), (1000, 3)):
        drawn = source.choice(n, size)
        assert len(set(drawn.tolist())) == size
    assert source.choices(7, 3, 4).shape == (4, 3)
    firsts = np.bincount([source.choice(3, 2)[0] for _ in range(600)], minlength=3)
    assert abs(firsts - 200).max() < 60
    with pytest.raises(ValueError, match="size"):
        source.choice(3, 4)


def test_an_observer_sees_what_was_not_rounded():
    class Seen(NoiseObserver):
        def added(self, values, scale, kind, noisy):
            self.values = values
            return noisy

        def selected(self, scores, scale, indices):
            self.scores = scores
            return indices

    values = np.array([0.1, 1 / 3])
    with observed_noise(Seen()) as seen:
        CertifiedNoise().add(values, 1.0, "gaussian")
        CertifiedNoise().largest(values, 1.0, 1)
    assert seen.values is values
    assert seen.scores is values


def test_selections_of_scores():
    scores = np.array([0.0, 1000.0, 2000.0])
    assert CertifiedNoise().largest(scores, 1.0, 2).tolist() == [2, 1]
    assert CertifiedNoise().largest(scores, 0.0, 2).tolist() == [2, 1]
    drawn = [CertifiedNoise().largest(np.array([0.0, 1.0]), 1.0, 1)[0] for _ in range(2000)]
    assert np.mean(drawn) == pytest.approx(math.e / (1 + math.e), abs=0.06)


def test_it_says_how_to_install_opendp(monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ImportError, match=r"pip install 'sklearn-dpgen\[opendp\]'"):
        CertifiedNoise()
