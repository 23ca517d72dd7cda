"""Clipped sums: the bound holds, is attained, and no sample escapes it."""

import copy
import math
from functools import partial

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from sklearn_dpgen.domains import Box
from sklearn_dpgen.nn import linearize
from sklearn_dpgen.nn._generators import DomainHead
from sklearn_dpgen.nn._jacobian import (
    ClippedJacobianSum,
    clip_weights,
    norm_clip_factors,
    spectral_clip_factors,
)
from sklearn_dpgen.utils._torch import seeded_initialization

CLIPPINGS = ["spectral", "componentwise"]


def normal(*shape, seed=0, dtype=torch.float64):
    return torch.tensor(np.random.default_rng(seed).standard_normal(shape), dtype=dtype)


def flatten(gradients):
    return torch.cat([gradient.flatten() for gradient in gradients])


def mlp(widths=(3, 6, 2), activation=nn.Tanh, bias=True, seed=0, scale=1.0):
    layers = []
    with seeded_initialization(seed):
        for n_in, n_out in zip(widths[:-1], widths[1:], strict=True):
            layers += [nn.Linear(n_in, n_out, bias=bias), activation()]
    with torch.no_grad():
        for layer in layers[::2]:
            layer.weight.mul_(scale)
    return nn.Sequential(*layers[:-1])


# Factors


@settings(max_examples=100, deadline=None)
@given(
    st.integers(1, 5),
    st.integers(1, 6),
    st.sampled_from([1e-120, 1e-30, 1e-3, 1.0, 1e3, 1e30, 1e120]),
    st.sampled_from([1e-3, 1.0, 50.0]),
    st.integers(0, 2**16),
)
def test_spectral_factors_are_exact(d, p, scale, bound, seed):
    J = scale * normal(4, d, p, seed=seed)
    J[1] = 0
    J[2, 1:] = J[2, :1]  # rank one
    factors = spectral_clip_factors(J @ J.mT, bound)
    norms = torch.linalg.matrix_norm(J, ord=2)
    assert (factors * norms <= bound * (1 + 1e-12)).all()
    expected = (bound / norms).clamp_max(1)
    expected[expected < 1e-30] = 0
    torch.testing.assert_close(factors, expected, rtol=1e-12, atol=1e-30)


@pytest.mark.parametrize("d", [1, 2, 3])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_gram_matrix_that_is_not_finite_gives_zero(d, dtype):
    bad = [math.nan, math.inf, torch.finfo(torch.float64).max]
    gram = torch.eye(d, dtype=torch.float64).repeat(2 * len(bad) + 1, 1, 1)
    for k, value in enumerate(bad):
        gram[k] = value
        gram[len(bad) + k, d - 1, d - 1] = value
    factors = spectral_clip_factors(gram.to(dtype), 0.5)
    assert not factors.isnan().any()
    assert (factors[: 2 * len(bad)] == 0).all()
    assert factors[-1] == 0.5


@pytest.mark.parametrize("d", [1, 2, 3])
def test_zero_and_rounded_gram_matrices_need_no_clipping(d):
    gram = torch.stack([torch.zeros(d, d), -1e-9 * torch.eye(d)])
    assert (spectral_clip_factors(gram, 0.5) == 1).all()


def test_norm_factors():
    squared = torch.tensor([0.0, 0.25, 1.0, 4.0, 1e38, math.inf, math.nan, -1e-12])
    expected = torch.tensor([1, 1, 1, 0.5, 1e-19, 0, 0, 1], dtype=torch.float64)
    torch.testing.assert_close(norm_clip_factors(squared, 1.0), expected, rtol=1e-6, atol=0)
    assert norm_clip_factors(torch.tensor(1e64).double(), 1.0) == 0
    assert norm_clip_factors(torch.ones(2, 3), 2).shape == (2, 3)


# Weights


def clipped_jacobians(J, bound, clipping):
    """Return materialized clipped Jacobians."""
    if clipping == "spectral":
        norms = torch.linalg.matrix_norm(J, ord=2)[:, None, None]
    else:
        norms = math.sqrt(J.shape[1]) * torch.linalg.vector_norm(J, dim=2, keepdim=True)
    return J * (bound / norms).clamp_max(1)


@pytest.mark.parametrize("clipping", CLIPPINGS)
@pytest.mark.parametrize("d", [1, 2, 3, 7])
def test_clipped_weights_clip_the_jacobians(d, clipping):
    J = normal(50, d, 9) * torch.logspace(-2, 2, 50).double()[:, None, None]
    W = normal(50, d, seed=1)
    bound = 1.5
    clipped = clipped_jacobians(J, bound, clipping)
    assert (torch.linalg.matrix_norm(clipped, ord=2) <= bound * (1 + 1e-12)).all()
    W_clipped = clip_weights(J @ J.mT, W, bound, clipping=clipping)
    torch.testing.assert_close(
        torch.einsum("ndp,nd->np", J, W_clipped), torch.einsum("ndp,nd->np", clipped, W)
    )


@pytest.mark.parametrize("d", [1, 2, 5])
def test_componentwise_loses_up_to_the_root_of_d(d):
    gram, W = 100 * torch.eye(d)[None], torch.ones(1, d)
    spectral, componentwise = (clip_weights(gram, W, 1.0, clipping=c) for c in CLIPPINGS)
    torch.testing.assert_close(spectral, componentwise * math.sqrt(d))
    gram = 100 * torch.ones(1, d, d)
    spectral, componentwise = (clip_weights(gram, W, 1.0, clipping=c) for c in CLIPPINGS)
    torch.testing.assert_close(spectral, componentwise)


@pytest.mark.parametrize("clipping", CLIPPINGS)
@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_rows_that_are_not_finite_become_zero(clipping, bad):
    gram, W = torch.eye(3).repeat(4, 1, 1), torch.ones(4, 3)
    gram[1, 2, 2] = bad
    W[2, 0] = bad
    clipped = clip_weights(gram, W, 10.0, clipping=clipping)
    assert clipped.dtype == W.dtype
    assert clipped.tolist() == [[1] * 3, [0] * 3, [0] * 3, [1] * 3]


def test_arguments_are_checked():
    gram, W = torch.eye(2)[None], torch.ones(1, 2)
    with pytest.raises(ValueError, match="clipping must be 'spectral' or 'componentwise'"):
        clip_weights(gram, W, 1.0, clipping="global")
    for bound in (0, -1.0, math.nan, math.inf):
        for use in (
            lambda bound: spectral_clip_factors(gram, bound),
            lambda bound: norm_clip_factors(W, bound),
            lambda bound: clip_weights(gram, W, bound, clipping="componentwise"),
            lambda bound: ClippedJacobianSum(mlp(), bound),
        ):
            with pytest.raises(ValueError, match=f"bound must be positive and finite, got {bound}"):
                use(bound)
    with pytest.raises(ValueError, match="weight_bound must be positive"):
        ClippedJacobianSum(mlp(), 1.0).sensitivity(0)
    with pytest.raises(ValueError, match=r"shape \(4, 2\).* got \(4, 3\)"):
        ClippedJacobianSum(mlp().double(), 1.0)(normal(4, 3), normal(4, 3))
    with pytest.raises(ValueError, match="shorter"):
        ClippedJacobianSum(mlp().double(), 1.0)(normal(2048, 3), normal(1024, 2))


# The sum


@pytest.mark.parametrize("clipping", CLIPPINGS)
def test_sum_of_clipped_jacobians(clipping):
    module = mlp((3, 5, 4, 3), nn.SiLU).double()
    X, W = normal(40, 3) * torch.logspace(-1, 2, 40).double()[:, None], normal(40, 3, seed=1)
    J = torch.func.vmap(torch.func.jacrev(partial(torch.func.functional_call, module)), (None, 0))(
        dict(module.named_parameters()), X
    )
    J = torch.cat([part.detach().flatten(2) for part in J.values()], 2)
    bound = torch.linalg.matrix_norm(J, ord=2).median().item()
    expected = torch.einsum("ndp,nd->p", clipped_jacobians(J, bound, clipping), W)
    gradients = ClippedJacobianSum(module, bound, clipping=clipping)(X, W)
    torch.testing.assert_close(flatten(gradients), expected, rtol=1e-10, atol=1e-10)


def test_many_samples_go_in_blocks():
    module = mlp((2, 4, 2)).double()
    X, W = normal(2500, 2), normal(2500, 2, seed=1)
    jacobians = linearize(module, X)
    expected = jacobians.weighted_sum(clip_weights(jacobians.gram(), W, 1.0))
    torch.testing.assert_close(ClippedJacobianSum(module, 1.0)(X, W), expected)


# Sensitivity


def largest_change(function, module, weight_bound, *, n=3, trials=100, seed=0):
    """Search for neighbours between which a sum moves most: replace sample 0 and its weight.

    Samples at all scales, and weights along the strongest direction of their Jacobian, with both
    signs.
    """
    rng = np.random.default_rng(seed)
    width, d = module[0].in_features, module[-1].out_features

    def draw(rows):
        scale = 10 ** rng.uniform(-3, 3, (rows, 1))
        return torch.tensor(scale * rng.standard_normal((rows, width)))

    def strongest(X):
        directions = torch.linalg.eigh(linearize(module, X).gram()).eigenvectors[:, :, -1]
        return weight_bound * directions * torch.tensor(rng.choice([-1, 1], (len(X), 1)))

    largest = 0.0
    for _ in range(trials):
        X, W = draw(n), torch.tensor(rng.standard_normal((n, d)))
        X_new, W_new = X.clone(), W.clone()
        X_new[0] = rng.choice([-1, 1]) * X[0] if rng.random() < 0.5 else draw(1)[0]
        W[0], W_new[0] = strongest(X[:1])[0], strongest(X_new[:1])[0]
        change = flatten(function(X, W)) - flatten(function(X_new, W_new))
        largest = max(largest, change.norm().item())
    return largest


def assert_sensitivity(function, module, sensitivity):
    """Check that a claimed sensitivity for weights of norm 0.7 holds, and that it is attained."""
    largest = largest_change(function, module, 0.7)
    assert largest <= sensitivity * (1 + 1e-9)
    assert largest >= sensitivity * (1 - 1e-6)


MODULES = {
    "linear": lambda: nn.Sequential(nn.Linear(3, 2)),
    "no bias": lambda: nn.Sequential(nn.Linear(4, 1, bias=False)),
    "one output": lambda: mlp((2, 5, 1), nn.ReLU),
    "deep": lambda: mlp((3, 6, 4, 3), nn.SiLU),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", MODULES)
def test_sensitivity_holds_and_is_attained(name):
    module = MODULES[name]().double()
    clipped_sum = ClippedJacobianSum(module, 1.3)
    sensitivity = clipped_sum.sensitivity(0.7)
    assert sensitivity == pytest.approx(2 * 1.3 * 0.7)
    assert_sensitivity(clipped_sum, module, sensitivity)
    # A clip that is 5 % looser or tighter than claimed, and no clip at all, are caught.
    for bound in (1.3 / 0.95, 1.3 * 0.95):
        with pytest.raises(AssertionError):
            assert_sensitivity(ClippedJacobianSum(module, bound), module, sensitivity)
    with pytest.raises(AssertionError):
        assert_sensitivity(lambda X, W: linearize(module, X).weighted_sum(W), module, sensitivity)


@pytest.mark.parametrize("name", MODULES)
def test_componentwise_sensitivity_holds(name):
    module = MODULES[name]().double()
    clipped_sum = ClippedJacobianSum(module, 1.3, clipping="componentwise")
    assert largest_change(clipped_sum, module, 0.7) <= clipped_sum.sensitivity(0.7) * (1 + 1e-9)


def test_opposite_samples_attain_the_sensitivity():
    """The crafted pair: opposite features, same weight, a linear layer."""
    layer = nn.Linear(2, 2, bias=False).double()
    X, W = torch.tensor([[30.0, 40.0], [1.0, 2.0]]).double(), torch.ones(2, 2).double()
    opposite = X * torch.tensor([[-1.0], [1.0]])
    clipped_sum = ClippedJacobianSum(layer, 1.0)
    change = flatten(clipped_sum(X, W)) - flatten(clipped_sum(opposite, W))
    assert change.norm().item() == pytest.approx(clipped_sum.sensitivity(math.sqrt(2)), rel=1e-12)


# Hostile records


def image_net():
    with seeded_initialization(0):
        image = nn.Sequential(nn.Unflatten(1, (1, 3)), nn.Conv1d(1, 2, 2), nn.Flatten())
        return nn.Sequential(image, nn.ReLU(), nn.Linear(4, 2))


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf, 3e38, 1e25, 1e12, 1e5])
@pytest.mark.parametrize("clipping", CLIPPINGS)
@pytest.mark.parametrize("build", [lambda: mlp(activation=nn.ReLU), image_net])
def test_one_record_has_bounded_influence(build, bad, clipping):
    module = build()
    X, W = normal(5, 3, dtype=torch.float32), normal(5, 2, seed=1, dtype=torch.float32)
    rest = [0, 1, 3, 4]
    clipped_sum = ClippedJacobianSum(module, 1.0, clipping=clipping)
    others = flatten(clipped_sum(X[rest], W[rest]))
    X[2] = torch.tensor([bad, -bad, 1.0])

    def influence(gradients):
        return (flatten(gradients) - others).norm()

    limit = W[2].norm() * (1 + 1e-5)
    assert influence(clipped_sum(X, W)) <= (limit if abs(bad) < 1e19 else 1e-5)
    assert not influence(linearize(module, X).weighted_sum(W)) <= limit


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_a_bad_weight_counts_as_zero(bad):
    module = mlp()
    X, W = normal(5, 3, dtype=torch.float32), normal(5, 2, seed=1, dtype=torch.float32)
    W[2, 1] = bad
    rest = [0, 1, 3, 4]
    clipped_sum = ClippedJacobianSum(module, 1.0)
    torch.testing.assert_close(clipped_sum(X, W), clipped_sum(X[rest], W[rest]))


# Rounding


def largest_contribution(module, X, bound, clipping="spectral"):
    """Return the largest contribution of one sample as computed, over its weight's norm."""
    jacobians = linearize(module, X)
    gram = jacobians.gram()
    W = torch.linalg.eigh(gram.nan_to_num(posinf=0)).eigenvectors[:, :, -1].float()
    clipped = clip_weights(gram, W, bound, clipping=clipping)
    largest = 0.0
    for i in range(len(X)):
        alone = torch.zeros_like(clipped)
        alone[i] = clipped[i]
        contribution = flatten([g.double() for g in jacobians.weighted_sum(alone)])
        largest = max(largest, (contribution.norm() / W[i].double().norm()).item())
    return largest


def samples(width):
    scales = torch.logspace(-25, 18, 12)
    return scales[:, None] * normal(12, width, dtype=torch.float32)


@pytest.mark.parametrize("activation", [nn.ReLU, nn.Tanh, nn.Softplus])
@pytest.mark.parametrize("widths", [(2, 1), (8, 64, 3), (100, 512, 2), (16, 512, 64, 5)])
@pytest.mark.parametrize("scale", [1e-12, 1e-3, 1.0, 1e3, 1e12])
def test_float32_keeps_to_the_bound(activation, widths, scale):
    X = samples(widths[0])
    for bias in (True, False):
        module = mlp(widths, activation, bias=bias, scale=scale)
        for bound in (1e-3, 1.0):
            assert largest_contribution(module, X, bound) <= bound * (1 + 1e-5)


def test_float32_keeps_to_the_bound_behind_a_head_and_in_any_module():
    module = nn.Sequential(mlp((8, 64, 3)), DomainHead(Box(0, 5, n_features=3)))
    assert largest_contribution(module, samples(8), 1.0) <= 1 + 1e-5
    assert largest_contribution(module, samples(8), 1.0001) > 1 + 1e-5
    for clipping in CLIPPINGS:
        assert largest_contribution(image_net(), samples(3), 1.0, clipping) <= 1 + 1e-5


def test_rounding_is_seen():
    """A float32 Gram matrix, whose squares underflow, would let a sample through unclipped."""
    module = nn.Sequential(nn.Linear(1, 1, bias=False), nn.Linear(1, 1, bias=False))
    with torch.no_grad():
        module[0].weight.fill_(1.0)
        module[1].weight.fill_(1e28)
    X = torch.tensor([[1e-24]])
    assert largest_contribution(module, X, 1.0) == pytest.approx(1.0, rel=1e-5)
    squares = X.square() * (module[1].weight.double() ** 2 + 1)
    assert spectral_clip_factors(squares[:, None], 1.0) == 1


def test_factors_match_those_of_float64():
    module = mlp((20, 128, 64, 4), nn.SiLU)
    X = normal(30, 20, dtype=torch.float32)
    exact = linearize(copy.deepcopy(module).double(), X.double()).gram()
    norms = torch.linalg.matrix_norm(exact, ord=2).sqrt()
    bound = norms.median().item()
    clipped = spectral_clip_factors(linearize(module, X).gram(), bound) * norms
    assert (clipped <= bound * (1 + 1e-5)).all()
    assert (clipped[norms > bound] >= bound * (1 - 1e-5)).all()
