"""How far noise in floating point is from exact noise: its whole law, cell by cell, against mpmath.

What is released is a monotone function of the random bits of a draw, so the number of bit patterns
that end in each cell of the grid is found by bisection, through the code that is run.
"""

import math

import mpmath
import numpy as np
import pytest
from scipy.special import ndtri

from sklearn_dpgen.utils._random import ROUNDING, NoiseSource, on_grid

N_BITS = 52
BOUND = 2.0**-36
# Nearly two thousand cells a scale: as many as there are.
SCALE = 1.99


class Scripted(NoiseSource):
    """Draws the uniforms that it is given."""

    def __init__(self, *draws):
        super().__init__()
        self.draws = list(draws)

    def _uniform(self, size):
        return np.broadcast_to(self.draws.pop(0), size)


class Summed(Scripted):
    """The negative twin: adds noise to a large value, and rounds the sum."""

    def _noisy(self, values, scale, kind):
        draw = {"gaussian": self.normal, "laplace": self.laplace}[kind]
        return on_grid(values + scale * draw(values.shape), scale)


def uniform(pattern):
    return (pattern + 0.5) * 2.0**-N_BITS


def patterns_below(is_below, n):
    """Return for each of n boundaries how many bit patterns give something below it."""
    low, high = np.zeros(n, dtype=np.int64), np.full(n, 2**N_BITS, dtype=np.int64)
    for _ in range(N_BITS + 1):
        middle = np.minimum((low + high) // 2, 2**N_BITS - 1)
        below = is_below(uniform(middle)) & (low < high)
        low, high = np.where(below, middle + 1, low), np.where(below, high, middle)
    return low


def variation(kind, value, reach, exact, *later, source=Scripted, every=1):
    """Return the total variation of the law of a release from the exact one, rounded alike.

    Parameters
    ----------
    value : float
    reach : (float, float)
        Of the noise, over its scale.
    exact : callable
        The distribution function of the noise, of scale 1.
    *later : float
        Draws after the first one.
    every : int
        Which of the boundaries of cells are compared: more of them give no less. Halves are
        rounded to even cells, so an odd number sees both kinds of boundaries.
    """
    step = 2.0 ** (math.frexp(SCALE)[1] - 11)
    first, last = (math.floor((value + SCALE * z) / step) for z in reach)
    cells = np.arange(first, last + 1, every)

    def is_below(u):
        noisy = source(u, *later).add(np.full(len(u), value), SCALE, kind)
        return np.rint(noisy / step).astype(np.int64) <= cells

    counts = patterns_below(is_below, len(cells))
    with mpmath.workdps(40):
        expected = [exact(((mpmath.mpf(int(c)) + 0.5) * step - value) / SCALE) for c in cells]
        off = [
            mpmath.mpf(int(count)) / 2**N_BITS - share
            for count, share in zip(counts, expected, strict=True)
        ]
        changes = [after - before for before, after in zip([0, *off], [*off, 0], strict=True)]
        return float(sum(abs(change) for change in changes) / 2)


GAUSSIAN = ((-8.4, 8.4), mpmath.ncdf)


def test_the_bound_is_that_of_the_reports():
    assert ROUNDING == BOUND


@pytest.mark.slow
@pytest.mark.parametrize("value", [1e6 + 0.3, 0.3, -3e11])
def test_gaussian_noise_is_within_the_bound(value):
    assert 0 < variation("gaussian", value, *GAUSSIAN) < BOUND / 2


@pytest.mark.slow
def test_noise_that_is_added_to_large_values_is_caught():
    assert variation("gaussian", 1e6 + 0.3, *GAUSSIAN, source=Summed, every=7) > 20 * BOUND
    # Where a value is no larger than noise, it makes no difference.
    assert variation("gaussian", 0.3, *GAUSSIAN, source=Summed, every=7) < BOUND / 2


@pytest.mark.slow
@pytest.mark.parametrize("later", [0.5, 2.0**-40, 1 - 2.0**-53])
def test_laplace_noise_is_within_the_bound_whatever_its_second_draw(later):
    def exact(z):
        return min(later * mpmath.exp(z), mpmath.mpf(1))

    shift = -math.log(later)
    reach = (shift - 36.5, shift + 0.01)
    assert 0 < variation("laplace", 1e6 + 0.3, reach, exact, later) < 0.8 * BOUND


def test_normal_quantiles_are_as_accurate_as_the_proof_takes_them_to_be():
    rng = np.random.default_rng(0)
    patterns = [*(int(2**k) for k in range(N_BITS)), *rng.integers(2**N_BITS, size=300).tolist()]
    patterns += [2 ** (N_BITS - 1) + shift for shift in (-1, 0, 1, 1000)]
    with mpmath.workdps(40):
        for pattern in patterns:
            u = (mpmath.mpf(int(pattern)) + 0.5) / 2**N_BITS
            z = mpmath.mpf(float(ndtri(uniform(np.int64(pattern)))))
            # One step of Newton from z doubles its digits.
            off = (mpmath.ncdf(z) - u) / mpmath.npdf(z)
            assert abs(off) <= 2.0**-50 * abs(z)


def share_chosen(scores, later, source=Scripted):
    """Return how far the probability that the first of two is chosen is from the exact one."""

    def is_second(u):
        draws = [np.array([one, later]) for one in u]
        return np.array([source(draw).largest(scores, 1.0, 1)[0] == 1 for draw in draws])

    (count,) = patterns_below(is_second, 1)
    with mpmath.workdps(40):
        ratio = mpmath.exp(mpmath.mpf(scores[0]) - mpmath.mpf(scores[1]))
        exact = mpmath.exp(mpmath.log(later) * ratio)
        return float(abs(mpmath.mpf(int(count)) / 2**N_BITS - exact))


class Unshifted(Scripted):
    """The negative twin: adds noise to large scores."""

    def _selected(self, scores, scale, count):
        keys = scale * np.log(-np.log(self._uniform(scores.shape))) - scores
        return np.argsort(keys, kind="stable")[:count]


@pytest.mark.parametrize("later", [0.5, 1e-6, 1 - 1e-9])
@pytest.mark.parametrize("scores", [[0.0, 0.7], [1e9 + 0.5, 1e9], [-1e12, 3.0 - 1e12]])
def test_selections_are_within_the_bound(scores, later):
    assert share_chosen(np.array(scores), later) < 2.0**-47


def test_selections_by_large_noisy_scores_are_caught():
    assert share_chosen(np.array([1e9 + 0.5, 1e9]), 0.5, source=Unshifted) > 100 * BOUND
