"""Domains far from 0, where single precision has no digit left for what is within them."""

import numpy as np
import pytest

import sklearn_dpgen
from sklearn_dpgen.deconvolution import DeconvolutionEM, EntropicDeconvGAN, likelihood_score
from sklearn_dpgen.domains import Ball, Box, OneHot, Product
from sklearn_dpgen.mechanisms import GaussianMechanism, LaplaceMechanism
from sklearn_dpgen.nn import Training

# A sum with a power of two is exact on the grid of the noise.
FAR = np.array([2.0**31, 0.0])
LEARNERS = [
    DeconvolutionEM(n_points=50, random_state=0),
    EntropicDeconvGAN(training=Training(max_iter=20), n_init=2, random_state=0),
]
DOMAINS = [
    lambda shift: Box(shift - 1, shift + 1),
    lambda shift: Box(shift - [1, 60], shift + [1, 60]),
    lambda shift: Ball(1.0, center=shift),
    lambda shift: Product([Box(shift[0] - 1, shift[0] + 1), Ball(1.0, center=shift[1:])]),
]


def learned(learner, kind, domain, shift, Y):
    mechanism = kind(5.0, domain=domain(shift))
    fitted = learner.set_params(mechanism=mechanism).fit(Y + shift)
    scores = fitted.score(Y + shift), likelihood_score(fitted, Y + shift)
    return fitted, fitted.sample(40, random_state=0) - shift, scores


@pytest.mark.slow
@pytest.mark.parametrize("domain", DOMAINS)
@pytest.mark.parametrize("kind", [LaplaceMechanism, GaussianMechanism])
@pytest.mark.parametrize("learner", LEARNERS, ids=lambda learner: type(learner).__name__)
def test_a_shift_of_all_records_shifts_what_is_learned(learner, kind, domain, tmp_path):
    rng = np.random.default_rng(0)
    near = np.zeros(2)
    X = domain(near).sample(300, rng) / 2
    Y = np.round(np.asarray(kind(5.0, domain=domain(near), random_state=0).fit_transform(X)), 0)
    _, points, scores = learned(learner, kind, domain, near, Y)
    far, far_points, far_scores = learned(learner, kind, domain, FAR, Y)
    assert points.std(axis=0).min() > 0.01
    np.testing.assert_allclose(far_points, points, atol=1e-5)
    np.testing.assert_allclose(far_scores, scores, rtol=1e-4, atol=1e-6)
    far.save(tmp_path / "far.safetensors")
    loaded = sklearn_dpgen.load(tmp_path / "far.safetensors")
    np.testing.assert_array_equal(loaded.sample(40, random_state=0) - FAR, far_points)
    # In single precision all of these records are the same.
    assert len(np.unique(np.float32(Y[:, 0] + FAR[0]))) == 1


def test_a_category_is_not_moved():
    domain = Product([Box(FAR[0], FAR[0] + 1), OneHot(3)])
    mechanism = LaplaceMechanism(50.0, domain=domain, random_state=0)
    X = domain.sample(200, np.random.default_rng(0))
    points = DeconvolutionEM(n_points=30, random_state=0).fit(mechanism.fit_transform(X)).points_
    assert set(points[:, 1:].ravel()) == {0.0, 1.0}
    assert points[:, 0].std() > 0.1
