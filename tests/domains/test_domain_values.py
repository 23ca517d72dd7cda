"""Domains as values: samples, members, copies, text and refusals."""

import copy
import pickle
import subprocess
import sys

import numpy as np
import pytest
import torch
from domain_cases import ANY, ORDERS, reproducibly
from hypothesis import given

from sklearn_dpgen.domains import Ball, Box, OneHot, Product


@pytest.mark.parametrize("p", ORDERS)
@pytest.mark.parametrize("d", [1, 3])
def test_ball_sampling_is_uniform(p, d):
    # Uniform on a ball: the radial part is (||x||_p / r)^d ~ U(0, 1), and the signs are fair.
    n, ball = 4000, Ball(2.0, p, np.arange(float(d)))

    def radial_gap(X):
        radial = np.sort((np.linalg.norm(X - ball.center, p, axis=1) / ball.radius) ** d)
        return abs(radial - (np.arange(n) + 0.5) / n).max()

    X = ball.sample(n, np.random.default_rng(0))
    assert X.shape == (n, d)
    bound = 2 / np.sqrt(n)
    assert radial_gap(X) < bound
    assert abs((ball.center < X).mean(axis=0) - 0.5).max() < 5 * 0.5 / np.sqrt(n)
    # Negative twin: points pulled to the centre by 5 % are not uniform.
    assert radial_gap(ball.center + 0.95 * (X - ball.center)) > bound


def test_l1_and_l2_sampling_directions():
    # E|x_1| is r / (d + 1) on the l1 ball and r * (3/8) on the l2 ball of R^3.
    n, rng = 20000, np.random.default_rng(1)
    for p, mean in ((1, 1 / 4), (2, 3 / 8)):
        first = abs(Ball(1, p, n_features=3).sample(n, rng)[:, 0])
        assert abs(first.mean() - mean) < 5 * first.std() / np.sqrt(n)
    # Negative twin: the two laws are told apart by the same test.
    assert abs(first.mean() - 1 / 4) > 5 * first.std() / np.sqrt(n)


@reproducibly
@given(ANY)
def test_samples_are_members(domain):
    assert domain.contains(domain.sample(100, np.random.default_rng(0)), tol=1e-12).all()


def test_contains_refuses_outside_and_non_finite_rows():
    X = [[0.5, 0.5], [1.1, 0.0], [np.nan, 0.0], [np.inf, 0.0]]
    assert Ball(1, n_features=2).contains(X).tolist() == [True, False, False, False]
    assert Box(-1, 1, 2).contains(torch.tensor(X)).tolist() == [True, False, False, False]
    soft = [[0, 1], [0.5, 0.5], [1, 1]]
    assert OneHot(2).contains(soft).tolist() == [True, False, False]
    assert Box(0, 1).contains([[1.05]], tol=0.1).tolist() == [True]


@reproducibly
@given(ANY)
def test_value_semantics(domain):
    for other in (copy.deepcopy(domain), pickle.loads(pickle.dumps(domain))):
        assert other == domain
        assert hash(other) == hash(domain)
        assert repr(other) == repr(domain)
    assert domain != Product([domain])
    with pytest.raises(AttributeError):
        domain.n_features = 3


def test_arrays_of_a_copy_stay_read_only():
    box = pickle.loads(pickle.dumps(Box([0, 1], [2, 3])))
    with pytest.raises(ValueError, match="read-only"):
        box.low[0] = -5


def test_repr_can_be_read():
    assert repr(Box(-1, 1)) == "Box(low=-1.0, high=1.0)"
    assert repr(Box(-1, 1, 784)) == "Box(low=-1.0, high=1.0, n_features=784)"
    assert repr(Ball(1, n_features=2)) == "Ball(radius=1.0, p=2, n_features=2)"
    assert repr(Product([OneHot(3)])) == "Product(domains=(OneHot(n_categories=3),))"
    assert len(repr(Box(np.zeros(784), np.arange(1, 785)))) < 120


def test_scalar_bounds_take_the_width_of_the_other():
    assert Box(-1, [1, 2]) == Box([-1, -1], [1, 2])
    assert Box(-0.0, 1) == Box(0, 1)
    assert Ball(1, n_features=2) == Ball(1.0, 2.0, [0, 0])
    assert Product([Box(0, 1), OneHot(2)]).slices == [slice(0, 1), slice(1, 3)]


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: Box(1, 1), "low must be smaller"),
        (lambda: Box(-1e308, 1e308), "finite amount"),
        (lambda: Box(0, np.inf), "high must be finite"),
        (lambda: Box([0, 0], [1, 1, 1]), "low must have 3 features, got 2"),
        (lambda: Box([[0]], [[1]]), "scalar or a vector"),
        (lambda: Box(0, 1, 0), "n_features must be an integer"),
        (lambda: Ball(1), "n_features must be given"),
        (lambda: Ball(0, n_features=1), "radius must be positive"),
        (lambda: Ball(1, 3, n_features=1), "p must be 1, 2"),
        (lambda: Ball(1, center=[0, 0], n_features=3), "center must have 3 features, got 2"),
        (lambda: OneHot(0), "n_categories must be"),
        (lambda: OneHot(True), "n_categories must be"),
        (lambda: Product([]), "non-empty sequence"),
        (lambda: Product([1]), "non-empty sequence"),
        (lambda: Box(0, 1).diameter(3), "p must be 1, 2"),
        (lambda: Box(0, 1, 3).project(np.zeros((2, 4))), "domain has 3 features, X has 4"),
        (lambda: Box(0, 1).project(np.zeros(2)), "of shape"),
        (lambda: Box(0, 1).project(np.array([["secret"]])), "X must be numeric"),
        (lambda: OneHot(2).project([[np.nan, 1.0]]), "must not contain NaN"),
        (lambda: Ball(1, n_features=1).project(torch.tensor([[np.nan]])), "must not contain NaN"),
    ],
)
def test_errors_name_the_rule(build, message):
    with pytest.raises(ValueError, match=message):
        build()


def test_import_does_not_load_torch():
    code = "import sys, sklearn_dpgen.domains; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0
