import numpy as np
import ot
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from sklearn_dpgen.metrics import sliced_wasserstein_distance, wasserstein_distance

DISTANCES = [wasserstein_distance, sliced_wasserstein_distance]
coordinates = st.floats(-1e3, 1e3, width=32)


def clouds(n=60, m=40, d=3, seed=0):
    rng = np.random.RandomState(seed)
    return rng.randn(n, d), rng.rand(m, d)


@pytest.mark.parametrize("p", [1, 1.5, 2, 3])
@pytest.mark.parametrize("metric", ["euclidean", "cityblock"])
def test_translation_is_the_norm_of_the_shift(p, metric):
    X, _ = clouds()
    shift = np.array([3.0, -4.0, 0.0])
    expected = 5.0 if metric == "euclidean" else 7.0
    Y = np.random.RandomState(1).permutation(X + shift)
    np.testing.assert_allclose(wasserstein_distance(X, Y, p=p, metric=metric), expected)


@pytest.mark.parametrize("p", [1, 2, 3])
@pytest.mark.parametrize("distance", DISTANCES)
def test_one_dimension_equals_the_sorted_formula(distance, p):
    X, Y = clouds(d=1)
    expected = ot.wasserstein_1d(X[:, 0], Y[:, 0], p=p) ** (1 / p)
    np.testing.assert_allclose(distance(X, Y, p=p), expected)


def test_unequal_sizes_split_mass():
    # Half of the single atom's mass goes to each side: W_2^2 = (1 + 9) / 2.
    X, Y = [[0.0]], [[-1.0], [3.0]]
    np.testing.assert_allclose(wasserstein_distance(X, Y), np.sqrt(5))
    np.testing.assert_allclose(wasserstein_distance(X, Y, p=1), 2.0)


@pytest.mark.slow
def test_gaussian_samples_approach_the_closed_form():
    # N(0, I) to N(0, 4 I) in the plane: W_2 = sqrt(2) * (2 - 1).
    rng = np.random.RandomState(0)
    X, Y = rng.randn(1500, 2), 2 * rng.randn(1500, 2)
    # The rate of empirical measures in the plane is sqrt(log n / n) on W_2.
    assert abs(wasserstein_distance(X, Y) - np.sqrt(2)) < 2 * np.sqrt(np.log(1500) / 1500)


def test_sliced_translation_for_the_drawn_directions():
    X, _ = clouds()
    shift = np.array([1.0, 2.0, -0.5])
    directions = ot.sliced.get_random_projections(3, 50, np.random.RandomState(7))
    for p in (1, 2):
        expected = np.mean(np.abs(shift @ directions) ** p) ** (1 / p)
        value = sliced_wasserstein_distance(X, X + shift, p=p, n_projections=50, random_state=7)
        np.testing.assert_allclose(value, expected)


def test_sliced_translation_over_all_directions():
    # E <c, theta>^2 = |c|^2 / d; in three dimensions <c, theta> / |c| is uniform on [-1, 1], so
    # the variance of its square is 1/5 - 1/9.
    X, _ = clouds()
    n_projections = 4000
    value = sliced_wasserstein_distance(
        X, X + [0, 0, 1], n_projections=n_projections, random_state=0
    )
    assert abs(value**2 - 1 / 3) < 5 * np.sqrt((1 / 5 - 1 / 9) / n_projections)


def test_sliced_random_state():
    X, Y = clouds()
    first, same, other = (sliced_wasserstein_distance(X, Y, random_state=s) for s in (0, 0, 1))
    assert first == same != other
    state = np.random.RandomState(0)
    assert first == sliced_wasserstein_distance(X, Y, random_state=state)
    assert first != sliced_wasserstein_distance(X, Y, random_state=state)


@settings(max_examples=40, deadline=None)
@given(
    X=arrays(np.float64, st.tuples(st.integers(1, 6), st.just(2)), elements=coordinates),
    Y=arrays(np.float64, st.tuples(st.integers(1, 6), st.just(2)), elements=coordinates),
    p=st.sampled_from([1, 2]),
)
def test_metric_axioms_on_degenerate_clouds(X, Y, p):
    assert wasserstein_distance(X, X, p=p) == pytest.approx(0, abs=1e-9)
    value = wasserstein_distance(X, Y, p=p)
    assert value == pytest.approx(wasserstein_distance(Y, X, p=p), rel=1e-6)
    assert value >= np.linalg.norm(X.mean(axis=0) - Y.mean(axis=0)) * (1 - 1e-6)
    assert sliced_wasserstein_distance(X, Y, p=p, n_projections=5, random_state=0) <= value + 1e-6


@pytest.mark.parametrize("scale", [1e-15, 1e15])
def test_scale_equivariance(scale):
    X, Y = clouds()
    np.testing.assert_allclose(
        wasserstein_distance(scale * X, scale * Y, p=3), scale * wasserstein_distance(X, Y, p=3)
    )


@pytest.mark.parametrize("distance", DISTANCES)
def test_errors_name_the_parameter(distance):
    X, Y = clouds()
    with pytest.raises(ValueError, match="p must be at least 1"):
        distance(X, Y, p=0.5)
    with pytest.raises(ValueError, match="X and Y must have equal numbers of features"):
        distance(X, Y[:, :2])
    with pytest.raises(ValueError, match="Y contains NaN"):
        distance(X, np.full((2, 3), np.nan))
    with pytest.raises(ValueError, match="Expected 2D array"):
        distance(X[0], Y)


def test_n_projections_is_checked():
    X, Y = clouds()
    with pytest.raises(ValueError, match="n_projections"):
        sliced_wasserstein_distance(X, Y, n_projections=0)
