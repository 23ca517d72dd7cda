"""The selection mechanism: its law, its price, its count of selections."""

import itertools
import math
from dataclasses import FrozenInstanceError

import numpy as np
import pytest
from scipy.special import softmax

from sklearn_dpgen.accounting import compose_epsilon
from sklearn_dpgen.accounting._selection import BoundedRangeProfile
from sklearn_dpgen.mechanisms._sequence import SelectionMechanism, SelectionRun
from sklearn_dpgen.utils._random import NoiseSource, noise_source

SCORES = np.array([3.0, -1.0, 2.5, 0.0])
N_DRAWS = 2000


class DoubledScale(SelectionRun):
    def __init__(self, mechanism):
        super().__init__(mechanism)
        self._scale *= 2


class HalvedScale(SelectionRun):
    def __init__(self, mechanism):
        super().__init__(mechanism)
        self._scale /= 2


class MirroredGumbel(SelectionRun):
    """Noise whose other tail is the heavy one: no exponential mechanism."""

    def release(self, scores, noise, *, count=1):
        noisy = scores + self._scale * np.log(-np.log(noise.uniform(scores.shape)))
        return np.argsort(-noisy)[:count]


def exact_law(scores, scale, count):
    """Return the probability of each sequence of exponential mechanisms without replacement."""
    law = {}
    for sequence in itertools.permutations(range(len(scores)), count):
        probability, left = 1.0, list(range(len(scores)))
        for index in sequence:
            probability *= softmax(scores[left] / scale)[left.index(index)]
            left.remove(index)
        law[sequence] = probability
    return law


def has_the_stated_law(kind, count):
    mechanism = SelectionMechanism(2.0, 1.5, count * N_DRAWS)
    run, source = kind(mechanism), noise_source(0)
    drawn = [tuple(run.release(SCORES, source, count=count).tolist()) for _ in range(N_DRAWS)]
    law = exact_law(SCORES, 2.0 / 1.5, count)
    assert sum(law.values()) == pytest.approx(1)
    assert set(drawn) <= set(law)
    return all(
        abs(drawn.count(s) / N_DRAWS - p) < 5 * math.sqrt(p * (1 - p) / N_DRAWS)
        for s, p in law.items()
    )


@pytest.mark.slow
@pytest.mark.parametrize("count", [1, 2])
def test_it_is_the_exponential_mechanism_one_draw_for_several(count):
    assert has_the_stated_law(SelectionRun, count)
    for broken in (DoubledScale, HalvedScale, MirroredGumbel):
        assert not has_the_stated_law(broken, count)


def is_paid_for(run, score_range, cost):
    """Whether the odds of two candidates move by at most the stated range between neighbours.

    The noise of both is known, so the scale can be read from where the choice changes.
    """
    uniforms = np.array([math.exp(-1.0), 0.5])

    class Known(NoiseSource):
        def _uniform(self, size):
            return uniforms

    # Gumbel noise of 0 and 0.3665: the first wins from a lead of 0.3665 scales on.
    low, high = 0.0, 100.0 * score_range
    for _ in range(60):
        middle = (low + high) / 2
        won = run.release(np.array([middle, 0.0]), Known())[0] == 0
        low, high = (low, middle) if won else (middle, high)
    scale = high / -math.log(math.log(2))
    return score_range / scale <= cost.epsilon0 * (1 + 1e-9)


@pytest.mark.parametrize("score_range", [1.0, 4.0])
def test_the_noise_is_what_the_cost_says(score_range):
    mechanism = SelectionMechanism(score_range, 0.3, 100)
    profile, times = mechanism.cost
    assert (profile, times) == (BoundedRangeProfile(0.3, 100), 1)
    assert compose_epsilon([mechanism.cost], 1e-5) == profile.epsilon(1e-5)
    assert mechanism.noise_scale == score_range / 0.3
    assert is_paid_for(mechanism.run(), score_range, profile)
    assert is_paid_for(DoubledScale(mechanism), score_range, profile)
    assert not is_paid_for(HalvedScale(mechanism), score_range, profile)
    assert not is_paid_for(mechanism.run(), score_range, BoundedRangeProfile(0.15, 100))


def test_each_selection_is_paid_for():
    mechanism = SelectionMechanism(1.0, 1.0, 3)
    run, source = mechanism.run(), noise_source(0)
    chosen = run.release(SCORES, source, count=2)
    assert chosen.dtype == np.int64
    assert len(set(chosen.tolist())) == 2
    with pytest.raises(RuntimeError, match="1 selection"):
        run.release(SCORES, source, count=2)
    assert run.release(SCORES, source).shape == (1,)
    with pytest.raises(RuntimeError, match="0 selection"):
        run.release(SCORES, source)
    # Another run is another mechanism: it starts from the beginning.
    assert mechanism.run().release(SCORES, source, count=3).shape == (3,)


def test_without_noise_the_largest_scores_are_chosen():
    run = SelectionMechanism(1.0, math.inf, 5).run()
    assert run.release(SCORES, noise_source(0), count=4).tolist() == [0, 2, 3, 1]
    assert run.release(np.zeros(3), noise_source(0)).tolist() == [0]
    with pytest.raises(RuntimeError, match="0 selection"):
        run.release(SCORES, noise_source(0))
    with pytest.raises(ValueError, match="epsilon0"):
        SelectionMechanism(1.0, math.inf, 5).cost  # noqa: B018


def test_scores_keep_their_values_and_noise_is_new():
    scores, source = SCORES.copy(), noise_source(0)
    run = SelectionMechanism(1.0, 0.01, 200).run()
    chosen = {int(run.release(scores, source)[0]) for _ in range(200)}
    assert chosen == {0, 1, 2, 3}
    np.testing.assert_array_equal(scores, SCORES)


@pytest.mark.parametrize(
    ("scores", "count", "error", "message"),
    [
        ([1.0, 2.0], 1, TypeError, "float64 with one dimension"),
        (np.zeros((2, 2)), 1, TypeError, "float64 with one dimension"),
        (np.zeros(2, dtype=np.float32), 1, TypeError, "float64 with one dimension"),
        (np.array([7.25, np.nan]), 1, ValueError, "scores must be finite"),
        (np.array([7.25, -np.inf]), 1, ValueError, "scores must be finite"),
        (np.array([7.25, 1.0]), 3, ValueError, "count must be at most"),
        (np.array([7.25, 1.0]), 0, ValueError, "count must be at least 1"),
        (np.array([7.25, 1.0]), 1.0, TypeError, "count must be an integer"),
        (np.empty(0), 1, ValueError, "count must be at most"),
    ],
)
def test_bad_scores_cost_nothing_and_are_not_shown(scores, count, error, message):
    run = SelectionMechanism(1.0, 1.0, 1).run()
    with pytest.raises(error, match=message) as caught:
        run.release(scores, noise_source(0), count=count)
    assert "7.25" not in str(caught.value)
    assert run.release(SCORES, noise_source(0)).shape == (1,)


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ((0.0, 1.0, 1), "score_range"),
        ((math.inf, 1.0, 1), "score_range"),
        ((1.0, 0.0, 1), "epsilon0"),
        ((1.0, math.nan, 1), "epsilon0"),
        ((1.0, 1.0, 0), "n_selections"),
    ],
)
def test_refusals(parameters, message):
    with pytest.raises(ValueError, match=message):
        SelectionMechanism(*parameters)


def test_a_mechanism_cannot_be_changed():
    mechanism = SelectionMechanism(1.0, 1.0, 1)
    for name in ("score_range", "epsilon0", "n_selections", "noise_scale"):
        with pytest.raises((FrozenInstanceError, AttributeError)):
            setattr(mechanism, name, 2.0)
    assert mechanism == SelectionMechanism(1, 1, 1)
