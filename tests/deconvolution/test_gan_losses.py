"""The losses of EntropicDeconvGAN in the units of the paper."""

import math

import numpy as np
import ot
import pytest
import torch

from sklearn_dpgen.deconvolution._training import LOSSES, make_loss
from sklearn_dpgen.domains import Box, OneHot
from sklearn_dpgen.mechanisms import GaussianMechanism, LaplaceMechanism, RandomizedResponse
from sklearn_dpgen.ot import sinkhorn
from sklearn_dpgen.ot._problem import pairwise_cost
from sklearn_dpgen.utils._random import noise_source

BOX = Box(-1, 1, n_features=2)
MECHANISMS = {
    1: LaplaceMechanism(10.0, domain=BOX, random_state=0).fit(),
    2: GaussianMechanism(20.0, domain=BOX, random_state=0).fit(),
}
# What turns the cost ||x - y||_p^p into that of the mechanism: b, or twice the variance.
LAMBDA = {1: MECHANISMS[1].scale_, 2: 2 * MECHANISMS[2].scale_ ** 2}


def points(n, seed):
    return torch.tensor(np.random.default_rng(seed).uniform(-1, 1, size=(n, 2)))


def loss(name, p, **options):
    defaults = {"n_sinkhorn": 20_000, "tol": 1e-9, "noise": noise_source(0)}
    return make_loss(name, MECHANISMS[p], **{**defaults, **options})


def log_constant(p):
    """Return the -log-density of no noise in two dimensions."""
    return 2 * math.log(2 * LAMBDA[p]) if p == 1 else math.log(math.pi * LAMBDA[p])


@pytest.mark.parametrize("p", [1, 2])
@pytest.mark.parametrize("reg_scale", [1.0, 0.3, 4.0])
def test_entropic_loss_is_regularized_transport_in_units_of_the_noise(p, reg_scale):
    X, Y = points(5, 0), points(7, 1)
    value = sinkhorn(
        pairwise_cost(X, Y, p), reg=reg_scale * LAMBDA[p], n_iter=20_000, tol=1e-9
    ).value

    def in_units_of_the_data(p, reg_scale):
        computed = loss("entropic", p, reg_scale=reg_scale)(X, Y).item()
        return LAMBDA[p] * (computed - log_constant(p))

    assert in_units_of_the_data(p, reg_scale) == pytest.approx(value, rel=1e-6)
    # The other exponent, or a factor of two in the regularization, would be seen.
    assert in_units_of_the_data(3 - p, reg_scale) != pytest.approx(value, rel=0.01)
    assert in_units_of_the_data(p, 2 * reg_scale) != pytest.approx(value, rel=0.01)


@pytest.mark.parametrize("p", [1, 2])
def test_likelihood_bounds_the_entropic_loss_and_follows_its_scale(p):
    X, Y = points(6, 0), points(9, 1)
    for reg_scale in (0.2, 1.0, 5.0):
        balanced = loss("entropic", p, reg_scale=reg_scale)(X, Y).item()
        likelihood = loss("likelihood", p, reg_scale=reg_scale)(X, Y).item()
        assert likelihood <= balanced
        density = np.exp(MECHANISMS[p].log_likelihood(X, Y).numpy() / reg_scale)
        expected = -reg_scale * np.log(density.mean(axis=0)).mean()
        assert likelihood == pytest.approx(expected)
    # Both go to the mean cost as the regularization grows, to transport as it vanishes.
    mean_cost = -MECHANISMS[p].log_likelihood(X, Y).mean().item()
    for name in ("entropic", "likelihood"):
        value = loss(name, p, reg_scale=1e4)(X, Y).item()
        assert value == pytest.approx(mean_cost, rel=1e-3)


@pytest.mark.parametrize("p", [1, 2])
def test_wasserstein_is_the_power_of_the_distance(p):
    X, Y = points(8, 0), points(8, 1)
    metric = "cityblock" if p == 1 else "sqeuclidean"
    expected = ot.emd2([], [], ot.dist(X.numpy(), Y.numpy(), metric=metric))
    assert loss("wasserstein", p)(X, Y).item() == pytest.approx(expected)
    assert loss("wasserstein", p)(X, X).item() == pytest.approx(0, abs=1e-12)


@pytest.mark.parametrize("p", [1, 2])
def test_noisy_wasserstein_compares_with_fresh_noise(p):
    X = torch.zeros(400, 2, dtype=torch.float64)
    released = torch.tensor(MECHANISMS[p].transform(X.numpy()))
    draw = loss("noisy_wasserstein", p)
    first, second = draw(X, released).item(), draw(X, released).item()
    assert first != second
    # At the raw points it is nearly zero, where the noiseless one is the size of the noise.
    noise_size = 2 * LAMBDA[p] if p == 1 else LAMBDA[p]
    assert loss("wasserstein", p)(X, released).item() == pytest.approx(noise_size, rel=0.2)
    assert max(first, second) < 0.3 * noise_size


@pytest.mark.parametrize("p", [1, 2])
@pytest.mark.parametrize("reg_scale", [1.0, 0.5])
def test_debiased_divergence_has_the_matched_regularization(p, reg_scale):
    X, Y = points(6, 0), points(6, 1) + 1

    def transport(A, B):
        reg = reg_scale * LAMBDA[p]
        return sinkhorn(pairwise_cost(A, B, p), reg=reg, n_iter=20_000, tol=1e-9).value

    expected = transport(X, Y) - transport(X, X) / 2 - transport(Y, Y) / 2
    computed = loss("sinkhorn_divergence", p, reg_scale=reg_scale)(X, Y).item()
    assert computed == pytest.approx(expected, rel=0.02)


@pytest.mark.parametrize("name", LOSSES)
@pytest.mark.parametrize("p", [1, 2])
def test_gradients_reach_the_generated_points(name, p):
    X = points(6, 0).requires_grad_()
    loss(name, p)(X, points(6, 1)).backward()
    assert X.grad.isfinite().all()
    assert (X.grad.abs().sum(dim=1) > 0).all()


@pytest.mark.parametrize("name", ["wasserstein", "noisy_wasserstein", "sinkhorn_divergence"])
def test_baselines_name_the_mechanism_that_they_cannot_use(name):
    mechanism = RandomizedResponse(1.0, domain=OneHot(3)).fit()
    with pytest.raises(ValueError, match=f"loss='{name}' needs .* RandomizedResponse has none"):
        make_loss(name, mechanism, n_sinkhorn=1, tol=1, noise=noise_source(0))
