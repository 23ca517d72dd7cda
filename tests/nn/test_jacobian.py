"""Gram matrices, ghost norms and weighted sums equal those of materialized Jacobians."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from sklearn_dpgen.domains import Ball, Box, OneHot, Product
from sklearn_dpgen.nn import linearize
from sklearn_dpgen.nn._generators import DomainHead
from sklearn_dpgen.nn._jacobian import _FunctionalLinearization, _StackLinearization
from sklearn_dpgen.utils._torch import seeded_initialization

HEADS = {
    "none": lambda d: nn.Identity(),
    "box": lambda d: DomainHead(Box(-2, 1, n_features=d)),
    "ball": lambda d: DomainHead(Ball(2.0, n_features=d)),
    "product": lambda d: DomainHead(Product([Box(0, 3, n_features=d), OneHot(2)])),
    "softmax": lambda d: nn.Softmax(dim=-1),
    "nested": lambda d: nn.Sequential(nn.Flatten(), nn.Sequential(nn.Softmax(dim=1), nn.Tanh())),
}
ACTIVATIONS = (
    [nn.ReLU, nn.SiLU, nn.Tanh, nn.Sigmoid, nn.GELU, nn.Softplus, nn.LeakyReLU, nn.ELU]
    + [nn.Identity]
    + [lambda: nn.ReLU(inplace=True), lambda: nn.GELU(approximate="tanh")]
)


def trainable(module):
    return [p for p in module.parameters() if p.requires_grad]


def materialized(module, X):
    """Return outputs (n, d) and Jacobians (n, d, p), by plain autograd on one sample at a time."""
    parameters = trainable(module)
    outputs, jacobians = [], []
    for x in X:
        (output,) = module(x[None])
        rows = [torch.autograd.grad(o, parameters, retain_graph=True) for o in output]
        jacobians.append(torch.stack([torch.cat([g.flatten() for g in row]) for row in rows]))
        outputs.append(output.detach())
    return torch.stack(outputs), torch.stack(jacobians)


def flatten(gradients):
    return torch.cat([gradient.flatten() for gradient in gradients])


def assert_matches(module, X, **options):
    """Check every product against materialized Jacobians; return the linearization."""
    outputs, J = materialized(module, X)
    W = torch.randn(outputs.shape, generator=torch.Generator().manual_seed(1)).to(X.dtype)
    W[0] = 0
    jacobians = linearize(module, X, **options)
    expected = torch.einsum("ndp,nd->p", J, W)
    close = {"rtol": 1e-10, "atol": 1e-10 * (1 + J.abs().max().item() ** 2)}
    torch.testing.assert_close(jacobians.outputs, outputs, **close)
    norms = torch.einsum("ndp,nd->np", J, W).square().sum(1)
    torch.testing.assert_close(jacobians.squared_norms(W), norms, **close)
    # Before and after the rows of the Gram matrix are there to be used again.
    torch.testing.assert_close(flatten(jacobians.weighted_sum(W)), expected, **close)
    torch.testing.assert_close(jacobians.gram(), J @ J.mT, **close)
    gradients = jacobians.weighted_sum(W)
    torch.testing.assert_close(flatten(gradients), expected, **close)
    assert [g.shape for g in gradients] == [p.shape for p in trainable(module)]
    assert not any(t.requires_grad for t in (jacobians.outputs, jacobians.gram(), *gradients))
    return jacobians


def stack(widths, activation=nn.Tanh, head="none", bias=True, seed=0):
    with seeded_initialization(seed):
        layers = []
        for n_in, n_out in zip(widths[:-1], widths[1:], strict=True):
            layers += [nn.Linear(n_in, n_out, bias=bias), activation()]
        if head == "product":
            layers += [nn.Linear(widths[-1], widths[-1] + 2)]
        return nn.Sequential(*layers, HEADS[head](widths[-1])).double()


def batch(*shape, seed=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


@pytest.mark.slow
@settings(max_examples=80, deadline=None)
@given(st.data())
def test_stacks_match_materialized_jacobians(data):
    widths = data.draw(st.lists(st.integers(1, 5), min_size=2, max_size=4))
    module = stack(
        widths,
        data.draw(st.sampled_from(ACTIVATIONS)),
        data.draw(st.sampled_from(sorted(HEADS))),
        data.draw(st.booleans()),
        data.draw(st.integers(0, 100)),
    )
    parameters = list(module.parameters())
    for parameter in parameters:
        parameter.requires_grad_(data.draw(st.booleans()))
    parameters[data.draw(st.integers(0, len(parameters) - 1))].requires_grad_()
    X = batch(data.draw(st.integers(1, 4)), widths[0])
    assert isinstance(assert_matches(module, X), _StackLinearization)


def test_a_bare_linear_layer():
    layer = nn.Linear(3, 2).double()
    X = batch(4, 3)
    jacobians = assert_matches(layer, X)
    assert isinstance(jacobians, _StackLinearization)
    expected = (X.square().sum(1) + 1)[:, None, None] * torch.eye(2, dtype=X.dtype)
    torch.testing.assert_close(jacobians.gram(), expected)


def test_images_are_flattened_first():
    module = nn.Sequential(nn.Flatten(), nn.Linear(12, 3), nn.ReLU(), nn.Linear(3, 2)).double()
    assert isinstance(assert_matches(module, batch(5, 3, 2, 2)), _StackLinearization)


class Scaled(nn.Linear):
    """A linear layer by name only."""

    def forward(self, A):
        return 3 * super().forward(A)


def convolutional():
    layers = [nn.Conv2d(1, 3, 3), nn.GroupNorm(1, 3), nn.SiLU(), nn.MaxPool2d(2)]
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(12, 2))


def shared_layer():
    layer = nn.Linear(3, 3)
    return nn.Sequential(layer, nn.Tanh(), layer, nn.Linear(3, 2))


def shared_weight():
    layers = nn.Linear(3, 3), nn.Linear(3, 3)
    layers[1].weight = layers[0].weight
    return nn.Sequential(layers[0], nn.Tanh(), layers[1])


def hooked():
    layer = nn.Linear(3, 2)
    layer.register_forward_hook(lambda module, inputs, output: output.sin())
    return nn.Sequential(layer, nn.Tanh())


def parametrized():
    layer = nn.Linear(3, 2)
    nn.utils.parametrize.register_parametrization(layer, "weight", nn.Tanh())
    return layer


def partly_frozen():
    module = nn.Sequential(nn.Linear(3, 4), nn.LayerNorm(4), nn.Linear(4, 2))
    module[0].weight.requires_grad_(False)
    module[2].bias.requires_grad_(False)
    return module


FALLBACKS = {
    "convolutional": (convolutional, (1, 6, 6)),
    "shared layer": (shared_layer, (3,)),
    "shared weight": (shared_weight, (3,)),
    "subclass": (lambda: nn.Sequential(Scaled(3, 2), nn.Tanh()), (3,)),
    "hook": (hooked, (3,)),
    "parametrized": (parametrized, (3,)),
    "partly frozen": (partly_frozen, (3,)),
    "sequence": (lambda: nn.Sequential(nn.Linear(3, 2), nn.Flatten()), (4, 3)),
    "other activation": (lambda: nn.Sequential(nn.Linear(3, 2), nn.LogSigmoid()), (3,)),
}


@pytest.mark.parametrize("chunk_size", [1, 3, 256])
@pytest.mark.parametrize("name", FALLBACKS)
def test_other_modules_match_materialized_jacobians(name, chunk_size):
    build, shape = FALLBACKS[name]
    with seeded_initialization(0):
        module = build().double()
    jacobians = assert_matches(module, batch(5, *shape), chunk_size=chunk_size)
    assert isinstance(jacobians, _FunctionalLinearization)
    held = [len(row) for rows in jacobians._rows(jacobians.outputs[:, None]) for row in rows]
    assert max(held) == min(chunk_size, 5)


class Centered(nn.Module):
    """Mixes the samples of a batch, unknown to torch."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(3, 2)

    def forward(self, X):
        return self.layer(X - 0.9 * X.mean(0))


def test_unknown_modules_see_one_sample_at_a_time():
    module = Centered().double()
    X = batch(4, 3)
    changed = X.clone()
    changed[0] = 100.0
    grams = [linearize(module, Z).gram()[1:] for Z in (X, changed)]
    torch.testing.assert_close(*grams, rtol=0, atol=0)
    W = batch(4, 2)
    W[0] = 0
    sums = [flatten(linearize(module, Z).weighted_sum(W)) for Z in (X, changed)]
    torch.testing.assert_close(*sums, rtol=0, atol=0)
    assert not torch.allclose(module(X)[1:], module(changed)[1:])


def poisonous():
    deep = stack((3, 4, 2), nn.SiLU, "ball").float()
    image = nn.Sequential(nn.Unflatten(1, (1, 3)), nn.Conv1d(1, 2, 2), nn.Flatten())
    return [deep, nn.Sequential(image, nn.SiLU(), nn.Linear(4, 2))]


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf, 3e38])
@pytest.mark.parametrize("module", poisonous(), ids=["stack", "functional"])
@pytest.mark.parametrize("with_gram", [False, True])
def test_a_zero_weight_silences_a_bad_sample(module, bad, with_gram):
    X = batch(5, 3).float()
    W = batch(5, 2).float()
    W[1] = 0
    rest = [0, 2, 3, 4]
    expected = flatten(linearize(module, X[rest]).weighted_sum(W[rest]))
    X[1, 2] = bad
    X[1, :2] = -bad
    jacobians = linearize(module, X)
    if with_gram:
        gram = jacobians.gram()
        assert not gram[1].isfinite().any()
        torch.testing.assert_close(gram[rest], linearize(module, X[rest]).gram())
    torch.testing.assert_close(flatten(jacobians.weighted_sum(W)), expected)
    norms = jacobians.squared_norms(W)
    assert norms[1] == 0
    assert norms.isfinite().all()
    assert not jacobians.squared_norms(torch.ones_like(W))[1].isfinite()
    # Plain back-propagation is poisoned by the sample that it weighs with zero.
    if not math.isfinite(bad):
        plain = torch.autograd.grad((module(X) * W).sum(), trainable(module))
        assert not flatten(plain).isfinite().all()


def test_squares_of_float32_neither_overflow_nor_underflow():
    module = nn.Sequential(nn.Linear(1, 1, bias=False), nn.Linear(1, 1, bias=False))
    with torch.no_grad():
        module[0].weight.fill_(1e-20)
        module[1].weight.fill_(1e25)
    X = torch.tensor([[1e-24], [1e15]])
    assert X[0].square() == 0
    expected = X.double() ** 2 * (1e25**2 + 1e-20**2)
    torch.testing.assert_close(linearize(module, X).gram()[:, 0], expected, rtol=1e-6, atol=0)


@pytest.mark.parametrize("build", [lambda: stack((3, 4, 2)), shared_layer])
def test_the_module_is_left_alone_with_or_without_gradients(build):
    module = build().double().train()
    X = batch(4, 3)
    with torch.no_grad():
        quiet = linearize(module, X.clone().requires_grad_())
        gram, total = quiet.gram(), quiet.weighted_sum(quiet.outputs)
    jacobians = linearize(module, X)
    torch.testing.assert_close(gram, jacobians.gram())
    torch.testing.assert_close(flatten(total), flatten(jacobians.weighted_sum(jacobians.outputs)))
    assert module.training
    assert all(p.requires_grad and p.grad is None for p in module.parameters())


@pytest.mark.parametrize("training", [True, False])
def test_batch_normalization_is_refused(training):
    norm = nn.BatchNorm1d(4)
    module = nn.Sequential(nn.Linear(3, 4), nn.Sequential(norm)).train(training)
    with pytest.raises(ValueError, match=r"BatchNorm1d \(module '1.0'\) mixes .* does not exist"):
        linearize(module, batch(5, 3).float())


def test_dropout_is_refused_in_training_mode_only():
    module = nn.Sequential(nn.Linear(3, 2), nn.Dropout(0.5)).double()
    with pytest.raises(ValueError, match=r"Dropout \(module '1'\) draws at random"):
        linearize(module, batch(5, 3))
    assert_matches(module.eval(), batch(5, 3))
    module[1].p = 0
    assert_matches(module.train(), batch(5, 3))


def test_arguments_are_checked():
    X = batch(5, 3)
    module = nn.Linear(3, 2).double()
    for chunk_size in (0, -1, 2.0):
        with pytest.raises(ValueError, match="chunk_size must be an integer of at least 1"):
            linearize(module, X, chunk_size=chunk_size)
    for use in (linearize(module, X).weighted_sum, linearize(module, X).squared_norms):
        with pytest.raises(ValueError, match=r"shape \(5, 2\).*, got \(5, 1\)"):
            use(batch(5, 1))
    with pytest.raises(ValueError, match=r"module must return shape \(n, d\), got \(5, 4, 2\)"):
        linearize(module, batch(5, 4, 3))
    with pytest.raises(ValueError, match="X must hold at least one sample"):
        linearize(module, X[:0])
    with pytest.raises(ValueError, match="no parameter that requires grad"):
        linearize(module.requires_grad_(False), X)
