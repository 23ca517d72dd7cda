"""Exact draws have their laws, as OpenDP's have, and the same checks catch broken ones."""

import itertools
import math

import numpy as np
import pytest
from scipy.special import softmax
from scipy.stats import chi2_contingency, chisquare

from sklearn_dpgen.utils import _exact_draws as module
from sklearn_dpgen.utils._exact_draws import (
    bernoulli_exp,
    discrete_gaussian,
    discrete_laplace,
    exponential_choices,
    uniform_integers,
)

N = 150_000


def weight(kind, k, scale):
    return (
        math.exp(-abs(k) / scale) if kind is discrete_laplace else math.exp(-((k / scale) ** 2) / 2)
    )


def p_value(kind, drawn, scale):
    """Of draws against the law, whose weights are added up here."""
    reach = 60 * scale
    support = np.arange(-reach, reach + 1)
    law = np.array([weight(kind, int(k), scale) for k in support])
    expected = law / law.sum() * len(drawn)
    observed = np.bincount(np.clip(drawn, -reach, reach) + reach, minlength=len(support))
    often = expected > 10
    observed = np.append(observed[often], observed[~often].sum())
    expected = np.append(expected[often], expected[~often].sum())
    return chisquare(observed, expected).pvalue


@pytest.mark.parametrize("kind", [discrete_laplace, discrete_gaussian])
@pytest.mark.parametrize("n_bits", [1, 3])
def test_draws_have_their_law(kind, n_bits):
    assert p_value(kind, kind(N, n_bits), 1 << n_bits) > 1e-6


def two_zeros(count, n_bits):
    """A broken variant: of the two zeros none is drawn anew."""
    size = np.abs(discrete_laplace(4 * count, n_bits))
    is_positive = np.random.default_rng(0).integers(2, size=len(size)) == 1
    # Of the sizes as they are before signs, zero has twice the weight.
    zeros = np.zeros((size == 0).sum(), dtype=np.int64)
    return np.concatenate([np.where(is_positive, size, -size), zeros])[-count - len(zeros) :]


def rounded_normal(count, n_bits):
    """A broken variant: noise in floating point, and then rounded, that is a little narrower."""
    return np.rint(np.random.default_rng(0).normal(0, 2**n_bits * 0.97, count)).astype(np.int64)


@pytest.mark.parametrize(
    ("kind", "broken"), [(discrete_laplace, two_zeros), (discrete_gaussian, rounded_normal)]
)
def test_draws_of_another_law_are_caught(kind, broken):
    assert p_value(kind, broken(N, 2), 4) < 1e-6


@pytest.mark.parametrize("kind", [discrete_laplace, discrete_gaussian])
def test_wrong_chances_are_caught(kind, monkeypatch):
    rng = np.random.default_rng(0)
    coins = lambda part, n_bits: rng.integers(2, size=len(part)) == 1  # noqa: E731
    monkeypatch.setattr(module, "_bernoulli_exp_part", coins)
    assert p_value(kind, kind(20_000, 2), 4) < 1e-6


@pytest.mark.slow
@pytest.mark.parametrize("kind", [discrete_laplace, discrete_gaussian])
def test_draws_have_the_law_of_opendp(kind):
    dp = pytest.importorskip("opendp.prelude")
    dp.enable_features("contrib")
    integers = dp.vector_domain(dp.atom_domain(T="i64"))
    make, distance = dp.m.make_laplace, dp.l1_distance(T="i64")
    if kind is discrete_gaussian:
        make, distance = dp.m.make_gaussian, dp.l2_distance(T="f64")
    theirs = np.array(make(integers, distance, scale=4.0)([0] * 20_000))
    ours = kind(60_000, 2)
    assert same_law(ours, theirs) > 1e-6
    assert same_law(kind(60_000, 3), theirs) < 1e-6


def same_law(ours, theirs):
    edges = np.quantile(theirs, np.linspace(0.02, 0.98, 25))
    edges = np.unique(np.rint(edges)) + 0.5
    table = [
        np.bincount(np.digitize(part, edges), minlength=len(edges) + 1) for part in (ours, theirs)
    ]
    return chi2_contingency(table).pvalue


def test_scale_of_the_grid_in_use():
    for kind, spread in ((discrete_laplace, math.sqrt(2)), (discrete_gaussian, 1.0)):
        drawn = kind(40_000, 26) / 2.0**26
        assert drawn.std() == pytest.approx(spread, rel=0.03)
        assert abs(drawn.mean()) < 5 * spread / 200
        # No bit of a draw is fixed.
        bits = (kind(2000, 26)[:, None] >> np.arange(20)) & 1
        assert (abs(bits.mean(axis=0) - 0.5) < 0.07).all()


@pytest.mark.parametrize(("whole", "part", "n_bits"), [(0, 3, 3), (1, 1, 1), (2, 5, 4), (0, 16, 4)])
def test_chances_of_exponentials(whole, part, n_bits):
    drawn = bernoulli_exp(np.full(N, whole, np.uint64), np.full(N, part, np.uint64), n_bits)
    chance = math.exp(-whole - part / 2**n_bits)
    assert abs(drawn.mean() - chance) < 5 * math.sqrt(chance * (1 - chance) / N)


def test_squares_beyond_64_bits():
    # exp(−2**9), and exp(−1/2) beside it.
    sizes = np.array([1 << 31] * 50 + [1 << 26] * 50)
    drawn = module._bernoulli_exp_square(sizes, 53)
    assert not drawn[:50].any()
    assert drawn[50:].any()


def all_words(n_bits, count):
    """The words of eight bits, each once, then zeros, which are accepted."""
    words = np.zeros(count, dtype=np.uint64)
    words[: min(count, 256)] = np.arange(min(count, 256))
    return words


def drawn_of_all_words(draw, high, monkeypatch):
    """Return how often each number comes of words of eight bits, before any is drawn anew."""
    seen = []

    def bits(n_bits, count):
        seen.append(count)
        return all_words(n_bits, count) if len(seen) == 1 else np.zeros(count, dtype=np.uint64)

    monkeypatch.setattr(module, "_LARGEST", np.uint64(255))
    monkeypatch.setattr(module, "_random_bits", bits)
    counts = np.bincount(draw(high, 256), minlength=high)
    n_again = seen[1] if len(seen) > 1 else 0
    counts[0] -= n_again
    return counts


@pytest.mark.parametrize("high", [1, 3, 7, 100, 200, 255, 256])
def test_integers_have_no_bias(high, monkeypatch):
    counts = drawn_of_all_words(uniform_integers, high, monkeypatch)
    assert set(counts) == {256 // high}


def test_a_bias_is_caught(monkeypatch):
    def biased(high, size):
        return (module._random_bits(64, size) % np.uint64(high)).astype(np.int64)

    assert len(set(drawn_of_all_words(biased, 100, monkeypatch))) > 1


def test_integers_of_many_bounds():
    high = np.array([[1, 2, 3], [10, 2**40, 2**62]])
    drawn = uniform_integers(high, (2, 3))
    assert drawn.shape == (2, 3)
    assert ((drawn >= 0) & (drawn < high)).all()
    assert uniform_integers(5, 0).shape == (0,)


def choices_agree(drawn, scores, count, scale):
    agrees = True
    for sequence in itertools.permutations(range(len(scores)), count):
        p, left = 1.0, list(range(len(scores)))
        for index in sequence:
            p *= softmax(scores[left] / scale)[left.index(index)]
            left.remove(index)
        share = drawn.count(sequence) / len(drawn)
        agrees &= abs(share - p) < 5 * math.sqrt(p * (1 - p) / len(drawn))
    return agrees


@pytest.mark.slow
def test_choices_are_those_of_the_exponential_mechanism():
    scores = np.array([5, -3, 2, 0])
    drawn = [tuple(exponential_choices(scores, 2, 2).tolist()) for _ in range(3000)]
    assert choices_agree(drawn, scores, 2, 4.0)
    # Scores twice as far apart would be told from them, and so would nearer ones.
    assert not choices_agree(drawn, scores, 2, 2.0)
    assert not choices_agree(drawn, scores, 2, 8.0)


def test_choices_at_a_distance():
    scores = np.array([-(2**60), 2**60, 2**60 - 2**50])
    assert exponential_choices(scores, 26, 3).tolist() == [1, 2, 0]
