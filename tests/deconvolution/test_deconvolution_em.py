"""DeconvolutionEM: the maximum, what it learns, and the estimator around it."""

from functools import partial

import numpy as np
import pandas as pd
import pytest
import torch
from scipy.optimize import minimize
from scipy.stats import norm
from sklearn.utils.estimator_checks import parametrize_with_checks

from sklearn_dpgen.accounting import Caveat
from sklearn_dpgen.datasets import make_half_circle
from sklearn_dpgen.deconvolution import DeconvolutionEM, likelihood_score
from sklearn_dpgen.deconvolution._deconvolution_em import fit_weights, record_cells
from sklearn_dpgen.domains import Ball, Box, OneHot
from sklearn_dpgen.mechanisms import (
    GaussianMechanism,
    LaplaceMechanism,
    RandomizedResponse,
    TabularMechanism,
)
from sklearn_dpgen.metrics import wasserstein_distance
from sklearn_dpgen.schema import Categorical, Numeric, Schema

DISC = Ball(1.0, n_features=2)


@parametrize_with_checks(
    [
        DeconvolutionEM(
            LaplaceMechanism(5.0, domain=partial(Box, -1, 1), random_state=0),
            n_points=20,
            max_iter=5,
            random_state=0,
        )
    ]
)
def test_scikit_learn_checks(estimator, check):
    check(estimator)


# The maximum.


def test_weights_are_the_maximum_of_the_likelihood():
    rng = np.random.default_rng(0)
    likelihood, shares = rng.uniform(0.1, 1, size=(40, 4)), rng.dirichlet(np.ones(40))

    def negative(weights):
        return -shares @ np.log(likelihood @ weights)

    best = minimize(
        negative,
        np.full(4, 0.25),
        bounds=[(0, 1)] * 4,
        constraints={"type": "eq", "fun": lambda weights: weights.sum() - 1},
        options={"ftol": 1e-14},
    )
    options = {"n_samples": 1e6, "max_iter": 5000, "tol": 1e-7}
    weights, n_iter = fit_weights(torch.tensor(likelihood), torch.tensor(shares), **options)
    assert n_iter < 5000
    assert weights.sum().item() == pytest.approx(1)
    np.testing.assert_allclose(weights, best.x, atol=1e-3)
    assert negative(weights.numpy()) <= best.fun + 1e-9
    # Twin: stopped at once, it is not.
    early, _ = fit_weights(torch.tensor(likelihood), torch.tensor(shares), **options | {"tol": 1e9})
    assert abs(early.numpy() - best.x).max() > 1e-3


def test_more_records_are_fitted_longer():
    likelihood = torch.tensor(np.random.default_rng(0).uniform(0.1, 1, size=(40, 9)))
    shares = torch.full((40,), 1 / 40, dtype=torch.float64)
    steps = [
        fit_weights(likelihood, shares, n_samples=n, max_iter=10_000, tol=0.02)[1]
        for n in (40, 4_000, 400_000)
    ]
    assert steps[0] < steps[1] < steps[2]


@pytest.mark.parametrize("mechanism", [LaplaceMechanism(3.0), GaussianMechanism(3.0, 1e-3)])
def test_likelihood_of_a_cell_is_the_mean_over_it(mechanism):
    mechanism.set_params(domain=Box(-1, 1)).fit()
    Y = np.random.default_rng(0).normal(size=(500, 1))
    cells = record_cells(mechanism, Y, 10_000, None)
    points = torch.linspace(-1, 1, 5, dtype=torch.float64)[:, None]
    edges = cells.corners[:, [0]] + np.array([[0, cells.width]])
    if mechanism.cost_norm == 1:
        scaled = (edges[:, None] - points.numpy()) / mechanism.scale_
        below = np.where(scaled < 0, np.exp(-abs(scaled)) / 2, 1 - np.exp(-abs(scaled)) / 2)
    else:
        below = norm.cdf((edges[:, None] - points.numpy()) / mechanism.scale_)
    exact = np.diff(below, axis=2)[..., 0]
    computed = cells.likelihood(mechanism, points).numpy()
    ratio = computed / exact
    np.testing.assert_allclose(ratio / ratio.mean(1, keepdims=True), 1, rtol=2e-3)
    # Twin: the density at the corner is off by more.
    cells.width = 0.0
    ratio = cells.likelihood(mechanism, points).numpy() / exact
    assert abs(ratio / ratio.mean(1, keepdims=True) - 1).max() > 0.02


def test_shares_of_cells_and_of_records():
    mechanism = LaplaceMechanism(3.0, domain=Box(-1, 1)).fit()
    Y = np.repeat([[0.01], [5.0]], [30, 10], axis=0)
    cells = record_cells(mechanism, Y, 10, None)
    np.testing.assert_allclose(cells.shares, [0.75, 0.25])
    rng = np.random.default_rng(0)
    few = record_cells(mechanism, rng.normal(size=(50, 1)), 7, rng)
    assert (few.width, len(few.shares)) == (0, 7)
    answers = RandomizedResponse(1.0, domain=OneHot(3)).fit()
    equal = record_cells(answers, np.eye(3)[[0, 0, 2, 0, 2]], 10, rng)
    np.testing.assert_allclose(sorted(equal.shares), [0.4, 0.6])


# What it learns.


@pytest.mark.slow
@pytest.mark.parametrize(
    ("mechanism", "most"),
    [
        (LaplaceMechanism(5.0, domain=DISC, random_state=0), 0.15),
        (GaussianMechanism(5.0, 1e-4, domain=DISC, random_state=0), 0.3),
    ],
    ids=["Laplace", "Gaussian"],
)
def test_a_half_circle_inside_the_disc(mechanism, most):
    Y = mechanism.fit_transform(make_half_circle(40_000, radius=0.6, random_state=0))
    em = DeconvolutionEM(mechanism, n_points=500, random_state=0).fit(Y)
    fresh = make_half_circle(1000, radius=0.6, random_state=1)
    assert wasserstein_distance(em.sample(1000, random_state=0), fresh) < most
    # Twin: with equal weights, as before the fit, it is no half circle.
    em.weights_ = np.full(500, 1 / 500)
    assert wasserstein_distance(em.sample(1000, random_state=0), fresh) > most


def test_shares_of_categories():
    domain = OneHot(3)
    mechanism = RandomizedResponse(1.0, domain=domain, random_state=0)
    raw = np.eye(3)[np.random.default_rng(0).choice(3, 20_000, p=[0.7, 0.2, 0.1])]
    Y = mechanism.fit_transform(raw)
    em = DeconvolutionEM(mechanism, n_points=50, tol=1e-4, random_state=0).fit(Y)
    assert abs(em.weights_ @ em.points_ - [0.7, 0.2, 0.1]).max() < 0.03
    assert abs(np.mean(Y, axis=0) - [0.7, 0.2, 0.1]).max() > 0.1


def test_a_small_table():
    schema = Schema({"a": Numeric(0, 10), "b": Categorical(["x", "y"])})
    rng = np.random.default_rng(0)
    b = rng.choice(["x", "y"], 4000, p=[0.2, 0.8])
    raw = pd.DataFrame({"a": np.where(b == "x", 1.0, 8.0), "b": b})
    mechanism = TabularMechanism(12.0, schema=schema, random_state=0)
    em = DeconvolutionEM(mechanism, random_state=0).fit(mechanism.fit_transform(raw))
    drawn = em.sample(2000, random_state=0)
    assert list(drawn.columns) == ["a", "b"]
    assert (drawn["b"] == "x").mean() == pytest.approx(0.2, abs=0.05)
    assert drawn["a"][drawn["b"] == "x"].mean() < 4 < drawn["a"][drawn["b"] == "y"].mean()


# The score.


def test_score_is_the_likelihood_of_the_mixture():
    mechanism = GaussianMechanism(5.0, 1e-4, domain=Box(-1, 1), random_state=0)
    Y = mechanism.fit_transform(np.zeros((50, 1)))
    em = DeconvolutionEM(mechanism, n_points=7, random_state=0).fit(Y)
    density = norm.pdf(np.asarray(Y) - em.points_.T, scale=em.mechanism_.scale_) @ em.weights_
    np.testing.assert_allclose(em.score_samples(Y), np.log(density), rtol=1e-6)
    assert likelihood_score(em, Y) == pytest.approx(np.log(density).mean())


def test_the_same_seed_repeats_fit_and_draw():
    mechanism = LaplaceMechanism(5.0, domain=DISC, random_state=0)
    Y = mechanism.fit_transform(make_half_circle(500, random_state=0))
    first, second = (DeconvolutionEM(mechanism, n_points=30, random_state=3).fit(Y) for _ in "ab")
    np.testing.assert_array_equal(first.weights_, second.weights_)
    np.testing.assert_array_equal(first.sample(9, random_state=1), second.sample(9, random_state=1))
    other = DeconvolutionEM(mechanism, n_points=30, random_state=4).fit(Y)
    assert not np.array_equal(first.points_, other.points_)


# Privacy.


def test_it_takes_no_records_of_another_mechanism_and_states_the_price_of_these():
    mechanism = LaplaceMechanism(5.0, domain=DISC, random_state=0)
    Y = mechanism.fit_transform(make_half_circle(50, random_state=0))
    em = DeconvolutionEM(mechanism, n_points=5).fit(Y)
    assert em.privacy_.epsilon == 5.0
    assert em.privacy_.caveats[-1] is Caveat.NOTHING_PRIVATIZED
    with pytest.raises(ValueError, match="released by LaplaceMechanism with epsilon=5"):
        DeconvolutionEM(LaplaceMechanism(4.0, domain=DISC), n_points=5).fit(Y)
