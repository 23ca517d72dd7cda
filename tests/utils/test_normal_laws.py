"""Normal laws from noisy moments: shrinkage, draws and densities."""

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.stats import multivariate_normal

from sklearn_dpgen.utils._normal_laws import (
    denoised_covariances,
    draw_normals,
    mixture_log_densities,
)


def symmetric_noise(d, spread, rng):
    noise = rng.normal(size=(d, d)) * spread
    return (noise + noise.T) / np.sqrt(2)


def noisy(truths, spreads, rng):
    d = truths.shape[1]
    noise = [symmetric_noise(d, spread, rng) for spread in spreads]
    return truths + np.array(noise)


def laws_of_classes(d):
    """Four covariances with one wide direction; the second class has another beside it."""
    variances = 0.05**2 * np.ones((4, d))
    variances[:, 0] = 0.09
    variances[1, 1] = 0.09
    turn = np.linalg.qr(np.random.default_rng(1).normal(size=(d, d)))[0]
    return np.array([turn @ np.diag(v) @ turn.T for v in variances]), turn


def test_laws_are_nearer_than_the_moments():
    rng = np.random.default_rng(0)
    truths, turn = laws_of_classes(60)
    spreads = np.full(4, 0.005)
    seen = noisy(truths, spreads, rng)
    found = denoised_covariances(seen, spreads)
    assert np.linalg.norm(found - truths) < 0.2 * np.linalg.norm(seen - truths)
    # The classes differ where their moments say so.
    assert turn[:, 1] @ found[1] @ turn[:, 1] > 2 * turn[:, 1] @ found[0] @ turn[:, 1]
    assert (np.linalg.eigvalsh(found) > 0).all()
    # Twin: noise of another scale than is stated.
    for factor in (0.1, 10):
        wrong = denoised_covariances(seen, factor * spreads)
        assert np.linalg.norm(wrong - truths) > 0.25 * np.linalg.norm(seen - truths)


def test_a_class_that_is_seen_better_counts_for_more():
    rng = np.random.default_rng(0)
    truths = np.array([np.eye(40), np.eye(40)])
    spreads = np.array([0.01, 10.0])
    found = denoised_covariances(noisy(truths, spreads, rng), spreads)
    assert np.linalg.norm(found[1] - np.eye(40)) < 0.05 * 10 * 40


def test_without_noise_nothing_is_taken():
    truths, _ = laws_of_classes(5)
    assert_allclose(denoised_covariances(truths, np.zeros(4)), truths)


@pytest.mark.parametrize("d", [1, 2])
def test_few_columns(d):
    truths = np.array([np.eye(d), 4 * np.eye(d)])
    spreads = np.full(2, 1e-3)
    found = denoised_covariances(noisy(truths, spreads, np.random.default_rng(0)), spreads)
    assert_allclose(found, truths, atol=0.02)


def test_noise_that_leaves_nothing():
    rng = np.random.default_rng(0)
    truths = np.zeros((2, 6, 6))
    found = denoised_covariances(noisy(truths, np.array([1e6, 1.0]), rng), np.array([1e6, 1.0]))
    assert np.isfinite(found).all()
    assert (np.linalg.eigvalsh(found) > 0).all()


def test_draws_and_densities():
    rng = np.random.default_rng(0)
    A = rng.normal(size=(2, 3, 3))
    means, covariances = rng.normal(size=(2, 3)), A @ A.transpose(0, 2, 1)
    codes = np.repeat([0, 1, 0], 10_000)
    points = draw_normals(means, covariances, codes, rng)
    for code in (0, 1):
        own = points[codes == code]
        assert_allclose(own.mean(axis=0), means[code], atol=0.15)
        assert_allclose(np.cov(own.T), covariances[code], rtol=0.1, atol=0.15)
    laws = [multivariate_normal(m, C) for m, C in zip(means, covariances, strict=True)]
    expected = np.log(0.3 * laws[0].pdf(points[:50]) + 0.7 * laws[1].pdf(points[:50]))
    found = mixture_log_densities(points[:50], means, covariances, [0.3, 0.7])
    assert_allclose(found, expected)
