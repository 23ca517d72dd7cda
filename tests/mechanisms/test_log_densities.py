import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from local_privacy import log_likelihood
from scipy import stats

from sklearn_dpgen.domains import Ball, Box, OneHot
from sklearn_dpgen.mechanisms import GaussianMechanism, LaplaceMechanism, RandomizedResponse
from sklearn_dpgen.mechanisms._base import (
    discrete_log_likelihood,
    gaussian_log_likelihood,
    laplace_log_likelihood,
    log_weight,
)

reproducibly = settings(deadline=None, max_examples=40, derandomize=True)


def laplace_logpdf(z):
    return -abs(z) - math.log(2)


PAIRS = [(laplace_log_likelihood, laplace_logpdf), (gaussian_log_likelihood, stats.norm.logpdf)]


def direct(logpdf, X, Y, scale):
    """The sum over features, without a trick, in float64."""
    X, Y, scale = (np.asarray(Z, dtype=np.float64) for Z in (X, Y, scale))
    return (logpdf((Y[None] - X[:, None]) / scale) - np.log(scale)).sum(axis=2)


@pytest.mark.parametrize(("density", "logpdf"), PAIRS)
@reproducibly
@given(
    st.integers(1, 4),
    st.integers(1, 4),
    st.integers(1, 5),
    st.booleans(),
    st.floats(1e-3, 1e3),
    st.integers(0, 2**32 - 1),
)
def test_densities_against_direct_sums(density, logpdf, n_x, n_y, d, per_feature, scale, seed):
    rng = np.random.default_rng(seed)
    X, Y = (10.0 ** rng.integers(-3, 3) * rng.normal(size=(n, d)) for n in (n_x, n_y))
    scales = scale * rng.uniform(0.5, 2, size=d) if per_feature else np.array(scale)
    log_p = density(*(torch.tensor(Z) for Z in (X, Y, scales))).numpy()
    expected = direct(logpdf, X, Y, scales)
    assert log_p.shape == (n_x, n_y)
    # What cancels are squares of the largest standardized values.
    size = 1 + max(abs(Z / scales).max() for Z in (X - Y.mean(0), Y - Y.mean(0))) ** 2 * d
    np.testing.assert_allclose(log_p, expected, rtol=1e-12, atol=1e-14 * size)


def naive_gaussian(X, Y, scale):
    """The expansion of the square around the origin."""
    X, Y = X / scale, Y / scale
    square = X.square().sum(1)[:, None] + Y.square().sum(1)[None] - 2 * X @ Y.T
    return -square / 2 - X.shape[1] * torch.log(scale * math.sqrt(2 * math.pi))


def naive_laplace(X, Y, scale):
    return -torch.cdist(X / scale, Y / scale, p=1) - X.shape[1] * torch.log(2 * scale)


def single_precision_error(density, logpdf, X, Y, scale):
    X, Y, scale = (torch.tensor(Z, dtype=torch.float32) for Z in (X, Y, scale))
    return abs(density(X, Y, scale).numpy() - direct(logpdf, X, Y, scale.numpy())).max()


@pytest.mark.parametrize(
    ("d", "scale", "spread", "origin"),
    [
        (2, 0.4, 1.0, 0.0),
        (784, 9.0, 1.0, 0.0),
        (784, 0.1, 1.0, 0.0),
        (2, 0.01, 0.05, 1e3),
        (20, 1e-3, 1e-2, -5.0),
        (3, 1e4, 1e4, 1e6),
    ],
)
def test_single_precision_is_enough(d, scale, spread, origin):
    rng = np.random.default_rng(0)
    X = origin + spread * rng.uniform(-1, 1, size=(20, d))
    Y = X + scale * rng.normal(size=(20, d))
    eps = np.finfo(np.float32).eps
    # The squares that the product of matrices sums, in units of the noise.
    largest = d * ((2 * spread / scale) ** 2 + 4)
    error = single_precision_error(gaussian_log_likelihood, stats.norm.logpdf, X, Y, scale)
    assert error < 4 * eps * largest + 8 * eps * d * abs(math.log(scale))
    error = single_precision_error(laplace_log_likelihood, laplace_logpdf, X, Y, scale)
    assert error < 16 * eps * d * (2 * spread / scale + 4 + abs(math.log(scale)))


def test_a_common_shift_is_what_makes_single_precision_enough():
    rng = np.random.default_rng(0)
    X = 1e3 + 0.05 * rng.uniform(-1, 1, size=(20, 2))
    Y = X + 0.01 * rng.normal(size=(20, 2))
    assert single_precision_error(gaussian_log_likelihood, stats.norm.logpdf, X, Y, 0.01) < 1e-3
    assert single_precision_error(naive_gaussian, stats.norm.logpdf, X, Y, 0.01) > 10
    assert single_precision_error(laplace_log_likelihood, laplace_logpdf, X, Y, 0.01) < 1e-4
    assert single_precision_error(naive_laplace, laplace_logpdf, X, Y, 0.01) > 1e-3


@reproducibly
@given(st.integers(2, 7), st.floats(0.01, 20), st.integers(0, 2**32 - 1))
def test_a_soft_block_is_the_mixture_of_its_vertices(k, epsilon, seed):
    rng = np.random.default_rng(seed)
    mechanism = RandomizedResponse(epsilon, domain=OneHot(k)).fit()
    S = np.concatenate([rng.dirichlet(np.full(k, 0.5), size=4), np.eye(k)])
    log_p = log_likelihood(mechanism, S, np.eye(k))
    for i, weights in enumerate(S):
        for released in range(k):
            p = sum(weights[c] * mechanism.table_[c, released] for c in range(k))
            assert log_p[i, released] == pytest.approx(math.log(p), rel=1e-12, abs=1e-12)
    # Negative twin: averaging logarithms is no mixture, but agrees at the vertices.
    naive = S @ np.log(mechanism.table_)
    np.testing.assert_allclose(naive[4:], log_p[4:], atol=1e-12)
    assert epsilon < 0.1 or abs(naive[:4] - log_p[:4]).max() > 1e-6


@pytest.mark.parametrize("epsilon", [1e-3, 50.0, 90.0, 200.0, 1e4])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_no_budget_makes_a_likelihood_nan(epsilon, dtype):
    mechanism = RandomizedResponse(epsilon, domain=OneHot(3)).fit()
    S = torch.eye(3, dtype=dtype, requires_grad=True)
    log_p = mechanism.log_likelihood(S, torch.eye(3, dtype=dtype))
    log_p.sum().backward()
    assert torch.isfinite(log_p).all()
    assert (log_p.argmax(dim=1) == torch.arange(3)).all()
    assert torch.isfinite(S.grad).all()
    if epsilon > 90:
        table = torch.tensor(mechanism.table_, dtype=torch.float32)
        assert discrete_log_likelihood(torch.eye(3), torch.eye(3), table).isnan().any()


def test_log_weight():
    weight = torch.tensor([0.0, 0.25, 1.0], requires_grad=True)
    value = log_weight(weight)
    assert value.tolist() == pytest.approx([-math.inf, math.log(0.25), 0.0])
    torch.logaddexp(value, torch.zeros(3)).sum().backward()
    np.testing.assert_allclose(weight.grad, [0.0, 0.8, 0.5])
    naive = torch.tensor([0.0], requires_grad=True)
    torch.logaddexp(naive.log(), torch.zeros(1)).sum().backward()
    assert naive.grad.isnan().any()


@pytest.mark.parametrize(
    "mechanism",
    [
        LaplaceMechanism(2.0, domain=Ball(1, n_features=3)),
        GaussianMechanism(2.0, domain=Box([0, 0, 5], [1, 2, 6])),
        RandomizedResponse(2.0, domain=OneHot(3)),
    ],
    ids=lambda mechanism: type(mechanism).__name__,
)
def test_gradients(mechanism):
    mechanism = mechanism.fit()
    rng = np.random.default_rng(0)
    X = torch.tensor(rng.dirichlet(np.ones(3), size=4), requires_grad=True)
    if isinstance(mechanism, RandomizedResponse):
        Y = torch.eye(3, dtype=torch.float64)
    else:
        Y = torch.tensor(rng.normal(size=(5, 3)))
    assert torch.autograd.gradcheck(lambda X: mechanism.log_likelihood(X, Y), (X,))


def test_perturb_adds_the_same_noise_and_keeps_the_gradient():
    from sklearn_dpgen.utils._random import noise_source

    mechanism = LaplaceMechanism(domain=Box(-1, 1), random_state=0).fit()
    X = torch.zeros(20_000, 1, requires_grad=True)
    Y = mechanism.perturb(X, noise_source(0))
    Y.sum().backward()
    assert (X.grad == 1).all()
    assert Y.dtype == X.dtype
    deviation = abs(Y.detach().numpy()).mean() / mechanism.scale_ - 1
    assert abs(deviation) < 5 / math.sqrt(20_000)
