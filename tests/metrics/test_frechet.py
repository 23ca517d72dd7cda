import numpy as np
import pytest
from scipy.linalg import sqrtm

from sklearn_dpgen.metrics import frechet_distance


def with_moments(n, mean, covariance, seed=0):
    """A sample whose mean and unbiased covariance are exact."""
    Z = np.random.RandomState(seed).randn(n, len(mean))
    Z -= Z.mean(axis=0)
    Z = np.linalg.solve(np.linalg.cholesky(np.cov(Z.T)), Z.T).T
    return mean + Z @ np.linalg.cholesky(covariance).T


def random_covariance(d, seed):
    A = np.random.RandomState(seed).randn(d, d)
    return A @ A.T + 0.1 * np.eye(d)


def test_commuting_gaussians():
    X = with_moments(50, np.zeros(3), np.diag([1.0, 4.0, 9.0]))
    Y = with_moments(70, np.array([1.0, 2.0, 2.0]), np.diag([4.0, 4.0, 1.0]), seed=1)
    np.testing.assert_allclose(frechet_distance(X, Y), 9 + (1 + 0 + 4))


def test_general_gaussians_agree_with_the_printed_formula():
    C, D = random_covariance(4, 0), random_covariance(4, 1)
    X, Y = with_moments(40, np.zeros(4), C), with_moments(60, np.ones(4), D, seed=1)
    expected = 4 + np.trace(C + D - 2 * sqrtm(C @ D).real)
    np.testing.assert_allclose(frechet_distance(X, Y), expected)
    np.testing.assert_allclose(frechet_distance(Y, X), expected)


@pytest.mark.parametrize("n", [2, 5, 100])
def test_translation_even_where_the_covariance_is_singular(n):
    X = np.random.RandomState(0).randn(n, 30)
    X[:, 0] = 3.0
    np.testing.assert_allclose(frechet_distance(X, X + 0.5), 30 * 0.25)
    assert frechet_distance(X, X) < 1e-10


def test_constant_features_differ_by_their_means():
    np.testing.assert_allclose(frechet_distance(np.zeros((4, 2)), np.ones((6, 2))), 2.0)


def test_feature_extractor_sees_the_raw_input():
    images = np.random.RandomState(0).rand(20, 5, 5)
    value = frechet_distance(
        images, images + 1, feature_extractor=lambda batch: batch.mean(axis=(1, 2))[:, None]
    )
    np.testing.assert_allclose(value, 1.0)


def test_errors():
    with pytest.raises(ValueError, match="minimum of 2"):
        frechet_distance(np.zeros((1, 2)), np.zeros((5, 2)))
    with pytest.raises(ValueError, match="must have equal numbers of features, got 3 and 2"):
        frechet_distance(np.zeros((5, 3)), np.zeros((5, 2)))
