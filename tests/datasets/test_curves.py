import numpy as np
import pytest
from scipy.spatial.distance import pdist
from scipy.stats import kstest

from sklearn_dpgen.datasets import make_half_circle
from sklearn_dpgen.datasets._simulated import make_ellipse, make_rectangle

CURVES = [make_half_circle, make_rectangle, make_ellipse]


@pytest.mark.parametrize("make", CURVES)
def test_default_curves_fill_the_unit_disc(make):
    X = make(3000, random_state=0)
    assert X.shape == (3000, 2)
    assert X.dtype == np.float64
    assert np.linalg.norm(X, axis=1).max() <= 1 + 1e-12
    # The l2 diameter is 2, approached from below by a sample.
    assert 1.99 < pdist(X).max() <= 2 + 1e-12


def test_half_circle_lies_on_the_documented_set():
    X = make_half_circle(3000, radius=3.0, random_state=0)
    np.testing.assert_allclose(np.linalg.norm(X, axis=1), 3.0)
    assert X[:, 1].min() >= 0
    assert kstest(np.arctan2(X[:, 1], X[:, 0]) / np.pi, "uniform").pvalue > 1e-3
    l1_diameter = 3 * (1 + np.sqrt(2))
    assert 0.99 * l1_diameter < pdist(X, "cityblock").max() <= l1_diameter


def test_rectangle_is_uniform_along_its_border():
    X = make_rectangle(6000, width=3.0, height=1.0, random_state=0)
    horizontal = np.isclose(np.abs(X[:, 1]), 0.5)
    vertical = np.isclose(np.abs(X[:, 0]), 1.5)
    assert (horizontal | vertical).all()
    assert np.abs(X).max(axis=0) == pytest.approx([1.5, 0.5])
    share = 3.0 / 4.0
    assert abs(horizontal.mean() - share) < 5 * np.sqrt(share * (1 - share) / 6000)
    assert kstest(X[horizontal, 0] / 3 + 0.5, "uniform").pvalue > 1e-3
    assert np.abs(X.mean(axis=0)).max() < 5 * 1.5 / np.sqrt(6000)


def arc_length_pvalue(X, a, b):
    """Test uniformity in arc length, measured on a polygon of 10**5 sides."""
    grid = np.linspace(-np.pi, np.pi, 10**5)
    sides = np.hypot(*np.diff([a * np.cos(grid), b * np.sin(grid)], axis=1))
    lengths = np.concatenate([[0], np.cumsum(sides)]) / sides.sum()
    angles = np.arctan2(X[:, 1] / b, X[:, 0] / a)
    return kstest(np.interp(angles, grid, lengths), "uniform").pvalue


@pytest.mark.parametrize(("a", "b"), [(1.0, 0.5), (0.3, 2.0), (1.0, 1.0)])
def test_ellipse_is_uniform_in_arc_length(a, b):
    X = make_ellipse(6000, semi_axes=(a, b), random_state=0)
    np.testing.assert_allclose((X[:, 0] / a) ** 2 + (X[:, 1] / b) ** 2, 1.0)
    assert arc_length_pvalue(X, a, b) > 1e-3


def test_arc_length_test_refuses_uniform_angles():
    angles = 2 * np.pi * np.random.RandomState(0).uniform(size=6000)
    assert arc_length_pvalue(np.column_stack([np.cos(angles), 0.5 * np.sin(angles)]), 1, 0.5) < 1e-3


@pytest.mark.parametrize("make", CURVES)
def test_random_state(make):
    np.testing.assert_array_equal(make(5, random_state=3), make(5, random_state=3))
    assert not np.array_equal(make(5, random_state=3), make(5, random_state=4))
    assert make(1).shape == (1, 2)


@pytest.mark.parametrize(
    ("make", "parameter"),
    [
        (make_half_circle, {"radius": 0}),
        (make_rectangle, {"width": -1.0}),
        (make_rectangle, {"height": np.inf}),
        (make_ellipse, {"semi_axes": (1.0, 0.0)}),
        (make_ellipse, {"n_samples": 0}),
    ],
)
def test_errors_name_the_parameter(make, parameter):
    (name,) = parameter
    with pytest.raises(ValueError, match=name):
        make(**parameter)
