"""Random categories, and positions by weight."""

import numpy as np
import pytest
from numpy.testing import assert_array_equal
from scipy.stats import chisquare

from sklearn_dpgen.tables._distributions import draw_codes, draw_weighted


class Extreme:
    """In the place of a generator: one of the numbers at the ends of its range."""

    def __init__(self, value):
        self.value = value

    def uniform(self, size):
        return np.full(size, self.value)


extremes = pytest.mark.parametrize("value", [0.0, 1 - 2.0**-53])


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_categories_are_drawn_by_their_shares(dtype):
    shares = np.array([[0.1, 0.0, 0.3, 0.6], [5.0, 5.0, 0.0, 0.0]], dtype=dtype)
    for rows in (np.repeat(shares, 20_000, axis=0), np.repeat(shares, 20_000, axis=0).T.copy().T):
        codes = draw_codes(rows, np.random.default_rng(0))
        first, second = (np.bincount(part, minlength=4) for part in np.split(codes, 2))
        assert first[1] == second[2] == second[3] == 0
        assert chisquare(first[[0, 2, 3]], [2000, 6000, 12_000]).pvalue > 1e-3
        assert chisquare(second[:2], [10_000, 10_000]).pvalue > 1e-3
        assert chisquare(first[[0, 2, 3]], [2200, 5800, 12_000]).pvalue < 1e-4


@extremes
def test_what_has_no_share_is_never_drawn(value):
    shares = np.array([[0, 1e-20, 0], [0, 3, 0], [1e30, 0, 0], [0, 0, 0.1]], dtype=np.float32)
    assert_array_equal(draw_codes(shares, Extreme(value)), [1, 1, 0, 2])
    codes = np.array([0, 0, 0, 1, 1, 1, 3, 3])
    weights = np.array([0, 1e-30, 0, 1e30, 0, 0, 0, 0.3])
    drawn = np.array([0, 1, 3, 1])
    assert_array_equal(draw_weighted(codes, weights, drawn, Extreme(value)), [1, 3, 7, 3])


def test_positions_are_drawn_by_their_weights():
    codes, weights = np.array([3, 1, 3, 2, 3]), np.array([0.1, 1e-3, 0.3, 1.0, 0.2])
    drawn = np.repeat([1, 3, 2], [10, 6000, 5])
    places = draw_weighted(codes, weights, drawn, np.random.default_rng(0))
    assert_array_equal(codes[places], drawn)
    counts = np.bincount(places[10:-5], minlength=5)[[0, 2, 4]]
    assert chisquare(counts, [1000, 3000, 2000]).pvalue > 1e-3
    assert chisquare(counts, [2000, 2000, 2000]).pvalue < 1e-9


def test_small_weights_count_beside_large_ones():
    codes, weights = np.repeat([0, 1], 2), np.array([1e20, 1e20, 1e-20, 3e-20])
    places = draw_weighted(codes, weights, np.full(4000, 1), np.random.default_rng(0))
    assert chisquare(np.bincount(places, minlength=4)[2:], [1000, 3000]).pvalue > 1e-3
