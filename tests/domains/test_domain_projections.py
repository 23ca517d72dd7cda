"""Projections: nearest, differentiable, the same for arrays and tensors."""

import numpy as np
import pytest
import torch
from domain_cases import ANY, CONVEX, ORDERS, members, points_around, reproducibly
from hypothesis import given
from hypothesis import strategies as st

from sklearn_dpgen.domains import Ball, Box, OneHot


@reproducibly
@given(ANY, st.integers(0, 100))
def test_projection_lands_in_the_domain_and_is_idempotent(domain, seed):
    projected = domain.project(points_around(domain, 20, seed))
    assert domain.contains(projected, tol=1e-9).all()
    np.testing.assert_allclose(domain.project(projected), projected, rtol=1e-12, atol=1e-12)
    inside = domain.sample(20, np.random.default_rng(seed))
    np.testing.assert_allclose(domain.project(inside), inside, rtol=1e-12, atol=1e-12)


@reproducibly
@given(ANY, st.integers(0, 100))
def test_projection_is_nearest(domain, seed):
    X = points_around(domain, 20, seed)
    others = members(domain)
    best = np.linalg.norm(X - domain.project(X), axis=1)
    rivals = np.linalg.norm(X[:, None] - others[None], axis=2).min(axis=1)
    assert (best <= rivals * (1 + 1e-9) + 1e-9).all()


@reproducibly
@given(CONVEX, st.integers(0, 100))
def test_convex_projection_is_the_variational_one(domain, seed):
    # <x - Px, z - Px> <= 0 for every z characterizes the projection on a convex set.
    X = points_around(domain, 20, seed)
    P = domain.project(X)
    Z = members(domain)
    products = np.einsum("nd,nmd->nm", X - P, Z[None] - P[:, None])
    scale = np.linalg.norm(X - P, axis=1, keepdims=True) * domain.diameter(2) + 1
    assert (products <= 1e-9 * scale).all()


@reproducibly
@given(CONVEX, st.integers(0, 100))
def test_convex_projection_is_non_expansive(domain, seed):
    X, Y = points_around(domain, 20, seed), points_around(domain, 20, seed + 1)
    moved = np.linalg.norm(domain.project(X) - domain.project(Y), axis=1)
    assert (moved <= np.linalg.norm(X - Y, axis=1) * (1 + 1e-9) + 1e-9).all()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@reproducibly
@given(domain=ANY, seed=st.integers(0, 100))
def test_tensors_and_arrays_agree(dtype, domain, seed):
    tensor = torch.tensor(points_around(domain, 10, seed), dtype=dtype)
    array = tensor.numpy()
    from_tensor, from_array = domain.project(tensor), domain.project(array)
    assert isinstance(from_tensor, torch.Tensor)
    assert from_tensor.dtype is dtype
    assert from_array.dtype == array.dtype
    np.testing.assert_allclose(from_tensor.numpy(), from_array, rtol=1e-4, atol=1e-3)
    assert domain.contains(from_array).all()
    assert domain.contains(from_tensor).all()


@pytest.mark.slow
@reproducibly
@given(CONVEX, st.integers(0, 100))
def test_projection_has_the_right_gradient(domain, seed):
    rng = np.random.default_rng(seed)
    X = domain.sample(4, rng) + domain.diameter(2) * rng.normal(size=(4, domain.n_features))
    X = torch.tensor(X, requires_grad=True)
    assert torch.autograd.gradcheck(domain.project, (X,), eps=1e-7, atol=1e-4)


@pytest.mark.parametrize("p", ORDERS)
def test_gradient_is_finite_at_the_centre_and_in_ties(p):
    X = torch.tensor([[0.0, 0.0], [3.0, 3.0], [np.inf, 0.0]], requires_grad=True)
    Ball(1, p, n_features=2).project(X).sum().backward()
    assert torch.isfinite(X.grad).all()
    np.testing.assert_array_equal(X.grad[0], [1, 1])


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize(
    ("domain", "expected"),
    [
        (Box([-2, -2], [3, 3]), [[3, 0], [-2, 3], [3, 0]]),
        (Ball(1e-3, 2, n_features=2), np.array([[1, 0], [-(0.5**0.5), 0.5**0.5], [1, 0]]) * 1e-3),
        (Ball(1e-3, 1, n_features=2), np.array([[1, 0], [-0.5, 0.5], [1, 0]]) * 1e-3),
        (Ball(1, np.inf, [1, 0]), [[2, 0], [0, 1], [2, 0]]),
        (OneHot(2), [[1, 0], [0, 1], [1, 0]]),
    ],
)
def test_infinite_and_huge_entries_are_clipped(dtype, domain, expected):
    huge = np.sqrt(np.finfo(dtype).max)
    X = np.array([[np.inf, 0], [-np.inf, np.inf], [huge, 0]], dtype=dtype)
    np.testing.assert_allclose(domain.project(X), expected, rtol=1e-5)
    np.testing.assert_allclose(domain.project(torch.tensor(X)), expected, rtol=1e-5)


def test_one_hot_takes_the_first_of_a_tie():
    X = np.array([[1.0, 3.0, 3.0], [0.0, 0.0, 0.0], [-np.inf, -np.inf, -np.inf]])
    expected = [[0, 1, 0], [1, 0, 0], [1, 0, 0]]
    np.testing.assert_array_equal(OneHot(3).project(X), expected)
    np.testing.assert_array_equal(OneHot(3).project(torch.tensor(X)), expected)


def test_integers_become_float64():
    X = np.array([[2], [-2]])
    assert Box(-0.5, 0.5).project(X).tolist() == [[0.5], [-0.5]]
    assert Box(-0.5, 0.5).project(torch.tensor(X)).dtype is torch.float64


@reproducibly
@given(ANY)
def test_no_rows_are_fine(domain):
    empty = np.empty((0, domain.n_features))
    assert domain.project(empty).shape == empty.shape
    assert domain.project(torch.tensor(empty)).shape == empty.shape
    assert domain.contains(empty).shape == (0,)
