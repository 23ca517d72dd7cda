"""The two releases of moments: what the ball of the residuals takes off is given back."""

import numpy as np
import pytest
from numpy.testing import assert_allclose

from sklearn_dpgen.domains import Ball
from sklearn_dpgen.mechanisms import _class_moments
from sklearn_dpgen.moments import MomentSampler


def second_moments(epsilon):
    """Return the mean square of a law over that of the records, of which half are far out."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(4000, 48)) * np.geomspace(1, 0.1, 48)
    X /= np.linalg.norm(X, axis=1, keepdims=True)
    X *= rng.choice([0.2, 1.0], p=[0.5, 0.5], size=(4000, 1))
    ball = Ball(1.0, n_features=48)
    laws = [
        MomentSampler(epsilon, 1e-5, domain=ball, random_state=seed).fit(X) for seed in range(5)
    ]
    found = [np.trace(law.covariances_[0]) + (law.means_[0] ** 2).sum() for law in laws]
    return np.mean(found) / (X**2).sum(axis=1).mean()


@pytest.mark.parametrize("epsilon", [1.0, 5.0, 30.0, np.inf])
def test_no_spread_is_lost(epsilon):
    assert_allclose(second_moments(epsilon), 1, atol=0.05)


def test_spread_that_is_cut_and_not_given_back_is_seen(monkeypatch):
    monkeypatch.setattr(_class_moments, "_LARGEST_GAIN", 1.0)
    assert second_moments(1.0) < 0.9
