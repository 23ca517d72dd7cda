"""Public supports: what a grid covers, and centers of public samples."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from scipy.spatial.distance import cdist

from sklearn_dpgen.domains import Ball, Box, OneHot, Product
from sklearn_dpgen.evolution._signed_measure_sampler import grid_support

reproducibly = settings(deadline=None, max_examples=60, derandomize=True)
DOMAINS = st.one_of(
    st.lists(st.floats(0.1, 10), min_size=1, max_size=4).map(lambda high: Box(-1, high)),
    st.builds(
        Ball,
        st.floats(0.1, 10),
        st.sampled_from([1, 2, np.inf]),
        st.lists(st.floats(-5, 5), min_size=1, max_size=4),
    ),
)


def test_grids_by_hand():
    assert_allclose(grid_support(Box(0, 1), 4), [[0.125], [0.375], [0.625], [0.875]])
    assert_allclose(grid_support(Box(0, [2, 1]), 2), [[0.5, 0.5], [1.5, 0.5]])
    assert_allclose(grid_support(Ball(1, n_features=2), 1), [[0, 0]])
    assert len(grid_support(Box(0, 1, n_features=2), 100)) == 100
    assert 90 < len(grid_support(Ball(1, n_features=2), 100)) <= 100
    assert len(grid_support(Box(0, 1, n_features=784), 100)) == 64


@pytest.mark.slow
@reproducibly
@given(DOMAINS, st.integers(1, 300))
def test_grid_is_inside_and_distinct(domain, n_points):
    points = grid_support(domain, n_points)
    assert 1 <= len(points) <= n_points
    assert points.shape[1] == domain.n_features
    assert domain.contains(points).all()
    assert len(np.unique(points, axis=0)) == len(points)
    assert_array_equal(points, grid_support(domain, n_points))


def farthest_record(domain, points):
    return cdist(domain.sample(2000, np.random.default_rng(0)), points).min(axis=1).max()


def test_grid_covers_a_ball():
    disc = Ball(1, n_features=2)
    points = grid_support(disc, 100)
    # 98 cells of 11 times 10 meet the disc.
    assert len(points) == 98
    reach = np.hypot(1 / 11, 1 / 10)
    assert farthest_record(disc, points) <= reach
    # Not so if the cells whose center is outside are left out.
    inside = points[np.linalg.norm(points, axis=1) < 1 - 1e-9]
    assert farthest_record(disc, inside) > 1.2 * reach


@pytest.mark.parametrize("domain", [OneHot(3), Product([Box(0, 1), OneHot(3)])])
def test_no_grid_over_categories(domain):
    with pytest.raises(TypeError, match="needs a Box or a Ball"):
        grid_support(domain, 10)


@pytest.mark.parametrize("n_points", [0, 2.0, True])
def test_number_of_points(n_points):
    with pytest.raises(ValueError, match="n_points must be an integer"):
        grid_support(Box(0, 1), n_points)
