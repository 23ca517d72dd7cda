"""Lemma 1: its proof holds on solvable cases, its printed form does not."""

import math

import numpy as np
import pytest
import torch

from sklearn_dpgen.deconvolution import approximation_bound
from sklearn_dpgen.domains import Ball, Box, OneHot
from sklearn_dpgen.mechanisms import GaussianMechanism, LaplaceMechanism, RandomizedResponse
from sklearn_dpgen.ot import sinkhorn

LINE = Box(-1, 1)
GAUSSIAN = GaussianMechanism(5.0, 1e-3, domain=LINE).fit()
LAPLACE = LaplaceMechanism(5.0, domain=LINE).fit()
GRID = np.linspace(-12, 12, 2001)


def convolved(atoms, weights):
    """Return the law of atoms with normal noise of scale 1, on the grid."""
    density = np.exp(-((GRID[:, None] - np.asarray(atoms)) ** 2) / 2) @ np.asarray(weights)
    return density / density.sum()


def divergence(P, Q):
    return float(np.sum(P * np.log(P / Q)))


def excess(atoms, weights, noisy):
    """Return S_c(P_G, P_Y) - S_c(P_X, P_Y) with noise of scale 1, for P_X a point at zero."""
    cost = torch.tensor((np.asarray(atoms)[:, None] - GRID) ** 2 / 2)
    value = sinkhorn(cost, weights, noisy, n_iter=100_000, tol=1e-10).value
    # A point has one coupling only: the mean cost.
    return value - float(noisy @ (GRID**2 / 2))


@pytest.mark.parametrize("ratio", [0.3, 3.0, 30.0])
def test_normal_records_and_generators_of_one_point(ratio):
    # The best point is the mean, whatever the loss; W_2 to the raw law N(0, s²) is s.
    s = ratio * GAUSSIAN.scale_
    bound = approximation_bound(GAUSSIAN, s)
    assert bound == pytest.approx(ratio**2 / 2)
    assert (ratio**2 - math.log1p(ratio**2)) / 2 <= bound


def test_twin_the_printed_bound_fails_where_the_noise_is_small():
    small = GaussianMechanism(5.0, 1e-3, domain=Ball(0.01, n_features=1)).fit()
    s = 3 * small.scale_
    as_printed = (math.log1p(9) - 9 / 10) / 2
    proved = (9 - math.log1p(9)) / 2
    assert proved <= approximation_bound(small, s)
    # Without the factor neither divergence is bounded.
    assert as_printed > s**2
    assert proved > s**2


@pytest.mark.parametrize("ratio", [0.1, 1.0, 20.0])
def test_one_point_for_another_under_laplace_noise(ratio):
    distance = ratio * LAPLACE.scale_
    proved = ratio + math.exp(-ratio) - 1
    assert proved <= approximation_bound(LAPLACE, distance) == pytest.approx(ratio)
    # No smaller factor would do.
    assert proved > 0.9 * ratio or ratio < 20


def test_twin_the_divergence_as_printed_exceeds_the_bound():
    # The class: a point nearby, and a rare outlier that the entropic loss prefers to it.
    outlier, weights = [0.0, 4.0], [0.97, 0.03]
    noisy, learned = convolved([0.0], [1.0]), convolved(outlier, weights)
    loss = excess(outlier, weights, noisy)
    near = math.sqrt(2.04 * loss)
    assert excess([near], [1.0], noisy) == pytest.approx(1.02 * loss, rel=1e-6)
    distance = min(near, math.sqrt(0.03 * 4.0**2))
    bound = approximation_bound(GAUSSIAN, distance * GAUSSIAN.scale_)
    assert divergence(noisy, learned) <= loss <= bound
    assert divergence(learned, noisy) > bound


@pytest.mark.parametrize("mechanism", [GAUSSIAN, LAPLACE], ids=["Gaussian", "Laplace"])
def test_units(mechanism):
    wide = type(mechanism)(5.0, domain=Box(-3, 3))
    if mechanism is GAUSSIAN:
        wide.set_params(delta=1e-3)
    assert approximation_bound(wide.fit(), 0.6) == pytest.approx(
        approximation_bound(mechanism, 0.2)
    )
    assert approximation_bound(mechanism, 0) == 0


@pytest.mark.parametrize(
    ("mechanism", "distance", "message"),
    [
        (RandomizedResponse(1.0, domain=OneHot(2)).fit(), 0.1, "not for RandomizedResponse"),
        ("laplace", 0.1, "not for str"),
        (LaplaceMechanism(1.0, domain=LINE), 0.1, "not fitted"),
        (LaplaceMechanism(math.inf, domain=LINE).fit(), 0.1, "epsilon must be finite, got inf"),
        (LAPLACE, -0.1, "distance"),
    ],
)
def test_bad_input(mechanism, distance, message):
    with pytest.raises(ValueError, match=message):
        approximation_bound(mechanism, distance)
