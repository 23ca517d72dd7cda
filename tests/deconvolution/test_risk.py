"""The excess risk bound: the paper's formulas, its symmetries, and what it refuses."""

import math
from itertools import product

import numpy as np
import pytest
import torch

from sklearn_dpgen.deconvolution import excess_risk_bound
from sklearn_dpgen.domains import Ball, Box, OneHot, Product
from sklearn_dpgen.mechanisms import (
    GaussianMechanism,
    LaplaceMechanism,
    RandomizedResponse,
    TabularMechanism,
)
from sklearn_dpgen.schema import Categorical, Numeric, Ordinal, Schema


def laplace(domain, epsilon=1.0):
    return LaplaceMechanism(epsilon, domain=domain).fit()


def table(columns=(), **options):
    plain = {"pay": Numeric(0, 9), "job": Categorical(["a", "b", "c"]), "rank": Ordinal([1, 2])}
    return TabularMechanism(3.0, schema=Schema(plain | dict(columns)), **options).fit()


def paper(b, d, D, n):
    """Corollary 4 as it is printed."""
    return 4 * b * math.exp(4 * d * D / b) / math.sqrt(n)


@pytest.mark.parametrize(
    ("domain", "D"),
    [
        (Box(-2, 2, n_features=3), 2.0),
        (Box(5, 9, n_features=3), 2.0),
        (Ball(2.0, n_features=3), 2.0),
        (Ball(2.0, p=1, center=[1.0, -7.0, 0.0]), 2.0),
        (Ball(2.0, p=np.inf, n_features=3), 2.0),
        (OneHot(3), 0.5),
        (Product([Ball(2.0, n_features=2), Box(-2, 2)]), 2.0),
    ],
)
def test_corollaries_4_and_5(domain, D):
    mechanism = laplace(domain, epsilon=0.5)
    b = mechanism.scale_
    expected = paper(b, 3, D, 500)
    assert excess_risk_bound(mechanism, 500, risk="wasserstein") == pytest.approx(expected)
    assert excess_risk_bound(mechanism, 500) == pytest.approx(expected / b)


@pytest.mark.parametrize("low", [0.0, -30.0])
def test_widths_add_up_where_they_differ(low):
    mechanism = laplace(Box([low, 0.0], [low + 1.0, 100.0]), epsilon=0.7)
    assert excess_risk_bound(mechanism, 100) == pytest.approx(4 * math.exp(1.4) / 10)


def test_units_and_rate():
    unit, scaled = laplace(Box(0, 1, n_features=2)), laplace(Box(0, 3, n_features=2))
    assert excess_risk_bound(unit, 40) == pytest.approx(excess_risk_bound(scaled, 40))
    ratio = [excess_risk_bound(m, 40, risk="wasserstein") for m in (unit, scaled)]
    assert ratio[1] == pytest.approx(3 * ratio[0])
    assert excess_risk_bound(unit, 400) == pytest.approx(excess_risk_bound(unit, 4) / 10)


def test_exponent_is_twice_the_range_of_the_cost_for_laplace_noise():
    low, high = np.array([-1.0, 0.0, 2.0]), np.array([1.0, 0.5, 5.0])
    mechanism = laplace(Box(low, high), epsilon=2.0)
    X = torch.tensor(list(product(*zip(low, high, strict=True))))
    Y = torch.tensor(np.random.default_rng(0).normal(0, 6, size=(200, 3)))
    spread = np.ptp(-mechanism.log_likelihood(X, torch.cat([X, Y])).numpy(), axis=0)
    exponent = excess_risk_bound(mechanism, 16, log=True) / 2
    assert spread.max() == pytest.approx(exponent)


def test_exponent_is_twice_the_range_of_the_cost_for_randomized_response():
    mechanism = RandomizedResponse(1.7, domain=OneHot(4)).fit()
    vertices = torch.eye(4, dtype=torch.float64)
    mixtures = torch.tensor(np.random.default_rng(0).dirichlet(np.ones(4), size=50))
    cost = -mechanism.log_likelihood(torch.cat([vertices, mixtures]), vertices).numpy()
    assert np.ptp(cost, axis=0).max() == pytest.approx(1.7)
    assert np.linalg.eigvalsh(mechanism.table_).min() >= 0
    assert excess_risk_bound(mechanism, 16) == pytest.approx(math.exp(3.4))


@pytest.mark.slow
@pytest.mark.parametrize("bins", [None, 4])
def test_exponent_is_twice_the_range_of_the_cost_for_a_table(bins):
    mechanism = table(n_bins=bins)
    rng = np.random.default_rng(0)
    X = torch.tensor(mechanism.domain_.sample(4000, rng))
    if bins is None:
        X[:, 0] = X[:, 0].sign()
    Y = X.clone()
    cost = -mechanism.log_likelihood(X, Y).numpy()
    assert np.ptp(cost, axis=0).max() == pytest.approx(3.0)
    # On the records the density is a positive semidefinite kernel; the null flag would break it.
    kernel = np.exp(-cost[:60, :60])
    np.testing.assert_allclose(kernel, kernel.T)
    assert np.linalg.eigvalsh(kernel).min() > -1e-12
    assert excess_risk_bound(mechanism, 16) == pytest.approx(math.exp(6.0))


def test_overflow_is_inf_and_its_logarithm_is_not():
    mechanism = laplace(Box(-1, 1, n_features=784), epsilon=3000.0)
    assert excess_risk_bound(mechanism, 100) == math.inf
    assert excess_risk_bound(mechanism, 100, log=True) == pytest.approx(6000 + math.log(0.4))
    tiny = laplace(Box(0, 1), epsilon=1e-9)
    assert excess_risk_bound(tiny, 16, log=True) == pytest.approx(2e-9, rel=1e-4)


@pytest.mark.parametrize(
    ("mechanism", "options", "message"),
    [
        (GaussianMechanism(1.0, domain=Box(0, 1)).fit(), {}, r"only the rate n\^\(-1/2\)"),
        (table(noise="gaussian"), {}, "Gaussian noise, as in column 'pay'"),
        (table({"age": Numeric(0, 9, nullable=True)}), {}, "nullable number .* 'age': give it n_b"),
        (table(), {"risk": "wasserstein"}, "needs Laplace noise"),
        (laplace(Box([0, 0], [1, 9])), {"risk": "wasserstein"}, "noise of one scale"),
        ("laplace", {}, "not for str"),
        (laplace(Box(0, 1), math.inf), {}, "epsilon must be finite, got inf"),
        (laplace(Box(0, 1)), {"risk": "w2"}, "risk must be 'kl' or 'wasserstein'"),
        (laplace(Box(0, 1)), {"n_samples": 0}, "n_samples"),
        (RandomizedResponse(1.0, domain=OneHot(2)).fit(), {"risk": "wasserstein"}, "Laplace"),
        (LaplaceMechanism(1.0, domain=Box(0, 1)), {}, "not fitted"),
    ],
)
def test_bad_input(mechanism, options, message):
    with pytest.raises(ValueError, match=message):
        excess_risk_bound(mechanism, **{"n_samples": 10, **options})
