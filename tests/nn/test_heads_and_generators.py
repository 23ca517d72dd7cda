"""Generators end inside their domain whatever they are fed, and let gradients through."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from sklearn_dpgen.domains import Ball, Box, OneHot, Product
from sklearn_dpgen.nn import (
    color_dcgan_generator,
    dcgan_generator,
    mlp_generator,
    upsampling_generator,
)
from sklearn_dpgen.nn._generators import (
    ACTIVATIONS,
    DomainHead,
    DrawnGenerator,
    DrawnHead,
    GeneratorMixture,
)

sizes = st.sampled_from([1e-30, 1e-3, 1.0, 30.0, 1e4, 1e30])
scales = st.sampled_from([1e-3, 1.0, 1e4])


@st.composite
def boxes(draw):
    d = draw(st.integers(1, 4))
    low = np.array(draw(st.lists(st.floats(-100, 100), min_size=d, max_size=d)))
    return Box(low, low + np.array(draw(st.lists(st.floats(0.01, 50), min_size=d, max_size=d))))


@st.composite
def balls(draw):
    center = draw(st.lists(st.floats(-3, 3), min_size=1, max_size=4))
    return Ball(draw(scales), p=draw(st.sampled_from([1, 2, np.inf])), center=center)


factors = boxes() | balls() | st.builds(OneHot, st.integers(2, 5))
domains = factors | st.builds(Product, st.lists(factors, min_size=1, max_size=3))


def violation(domain, P):
    """Return how far points are from a domain, soft one-hot blocks being allowed."""
    if isinstance(domain, Product):
        parts = zip(domain.domains, domain.slices, strict=True)
        return max(violation(factor, P[:, part]) for factor, part in parts)
    if isinstance(domain, OneHot):
        return max(-P.min().item(), (P.sum(1) - 1).abs().max().item())
    scale = 1 + P.abs().max().item()
    return (P - domain.project(P)).abs().max().item() / scale


@pytest.mark.slow
@settings(max_examples=100, deadline=None)
@given(domains, st.integers(1, 6), sizes, st.integers(0, 2**16))
def test_head_ends_inside_the_domain_with_finite_gradients(domain, n, size, seed):
    rng = np.random.default_rng(seed)
    A = torch.tensor(size * rng.standard_normal((n, domain.n_features)), dtype=torch.float32)
    A[0] = 0
    A.requires_grad_()
    P = DomainHead(domain)(A)
    assert P.shape == (n, domain.n_features)
    assert violation(domain, P.detach()) < 1e-5
    P.square().sum().backward()
    assert A.grad.isfinite().all()


@pytest.mark.parametrize(
    "domain",
    [Box([-1, 2], [1, 5]), Ball(2.0, n_features=3), Ball(2.0, p=np.inf, n_features=3), OneHot(3)],
)
def test_outside_points_are_seen(domain):
    P = DomainHead(domain)(torch.zeros(4, domain.n_features))
    assert violation(domain, P) < 1e-6
    assert violation(domain, 3 * P + 8) > 0.1


@pytest.mark.parametrize(
    "domain",
    [
        Box([-1, 2], [1, 5]),
        Ball(2.0, center=[1.0, -1.0]),
        Ball(2.0, p=1, center=[1.0, -1.0]),
        Ball(2.0, p=np.inf, center=[1.0, -1.0]),
        OneHot(3),
        Product([Box(0, 1), OneHot(2), Ball(1.0, n_features=2)]),
    ],
)
def test_heads_are_smooth(domain):
    A = torch.tensor(np.random.default_rng(0).normal(size=(3, domain.n_features)))
    A.requires_grad_()
    head = DomainHead(domain).double()
    assert torch.autograd.gradcheck(head, (A,))
    # A nudge inside the domain moves the output: no activation is dead.
    gradient = torch.autograd.functional.jacobian(lambda B: head(B).sum(0), A)
    assert (gradient.abs().amax(dim=(0, 1)) > 0).all()


@pytest.mark.parametrize("p", [1, 2, np.inf])
@pytest.mark.parametrize("radius", [1e-3, 1.0, 1e3])
def test_ball_head_is_in_units_of_the_radius_around_the_center(p, radius):
    domain = Ball(radius, p=p, center=[100.0, -100.0])
    normal = np.random.default_rng(0).standard_normal((1000, 2))
    A = torch.tensor(normal, requires_grad=True)
    P = DomainHead(domain).double()(A)
    norm = np.linalg.norm(P.detach().numpy() - domain.center, p, axis=1) / radius
    assert np.quantile(norm, 0.05) < 0.5 < 0.9 < np.quantile(norm, 0.95)
    # From a center far away, too, nearly every activation still moves the output.
    P[:, 0].sum().backward()
    assert (A.grad.abs() > 0.01 * radius).any(dim=1).double().mean() > 0.9


def test_product_keeps_the_order_of_its_factors():
    domain = Product([Box(10, 11), OneHot(2), Box([20, 30], [21, 31])])
    P = DomainHead(domain)(torch.zeros(1, 5))
    torch.testing.assert_close(P, torch.tensor([[10.5, 0.5, 0.5, 20.5, 30.5]]))


def test_head_follows_its_module():
    head = DomainHead(Product([Box(0, 1), Ball(1.0, n_features=2)])).double()
    assert head(torch.zeros(1, 3, dtype=torch.float64)).dtype == torch.float64
    state = head.state_dict()
    DomainHead(Product([Box(4, 6), Ball(1.0, n_features=2)])).load_state_dict(state)


@pytest.mark.parametrize("activation", sorted(ACTIVATIONS))
@pytest.mark.parametrize("hidden", [(), (5,), [4, 3], (6, 6, 6)])
def test_mlp_has_the_declared_layers(hidden, activation):
    domain = Product([Box(-1, 1), OneHot(3)])
    module = mlp_generator(2, domain, hidden, activation)
    linear = [m for m in module.modules() if isinstance(m, torch.nn.Linear)]
    widths = [2, *hidden, 4]
    shapes = list(zip(widths[:-1], widths[1:], strict=True))
    assert [(m.in_features, m.out_features) for m in linear] == shapes
    assert sum(isinstance(m, ACTIVATIONS[activation]) for m in module.modules()) == len(hidden)
    assert violation(domain, module(torch.randn(7, 2)).detach()) < 1e-6


@pytest.mark.parametrize("build", [dcgan_generator, upsampling_generator])
@pytest.mark.parametrize("side", [4, 8, 28])
def test_convolutional_networks_make_images(build, side):
    domain = Box(-1, 1, n_features=side * side)
    module = build(5, domain, n_channels=4)
    P = module(torch.randn(3, 5))
    assert P.shape == (3, side * side)
    assert P.abs().max() <= 1
    P.square().sum().backward()
    assert all(p.grad.isfinite().all() for p in module.parameters())
    # Neighbouring pixels come from neighbouring features of a row-major image.
    image = module.eval()(torch.randn(200, 5)).detach().reshape(-1, side, side)
    assert image.std() > 0


@pytest.mark.parametrize(
    ("build", "name"), [(dcgan_generator, "dcgan"), (upsampling_generator, "upsampling")]
)
@pytest.mark.parametrize("width", [2, 9, 36, 100, 784 + 1])
def test_convolutional_networks_name_the_rule(build, name, width):
    rule = f"generator='{name}' .* multiple of 4; the domain has {width} features"
    with pytest.raises(ValueError, match=rule):
        build(2, Box(-1, 1, n_features=width))


@pytest.mark.parametrize("kernel_size", [3, 4, 5, 6])
@pytest.mark.parametrize("normalize", [True, False])
def test_dcgan_doubles_the_side_twice(kernel_size, normalize):
    options = {"n_hidden": 6, "kernel_size": kernel_size, "normalize": normalize}
    module = dcgan_generator(5, Box(-1, 1, n_features=64), n_channels=2, **options)
    assert module(torch.randn(3, 5)).shape == (3, 64)
    batch_norms = torch.nn.BatchNorm1d, torch.nn.BatchNorm2d
    assert sum(isinstance(m, batch_norms) for m in module.modules()) == 3 * normalize


def test_dcgan_of_the_paper_has_its_layers():
    options = {"n_channels": 64, "n_hidden": 1024, "kernel_size": 5}
    module = dcgan_generator(100, Box(-1, 1, n_features=784), **options)
    weights = [tuple(p.shape) for p in module.parameters() if p.ndim > 1]
    assert weights == [(1024, 100), (6272, 1024), (128, 64, 5, 5), (64, 1, 5, 5)]
    # Twin: the default is far smaller.
    count = [
        sum(p.numel() for p in m.parameters())
        for m in (module, dcgan_generator(100, Box(-1, 1, n_features=784)))
    ]
    assert count[0] == pytest.approx(6.76e6, rel=0.01)
    assert count[1] < 0.1 * count[0]


def test_upsampling_is_the_network_of_the_paper():
    module = upsampling_generator(20, Box(0, 1, n_features=784))
    linear = [m for m in module.modules() if isinstance(m, torch.nn.Linear)]
    assert [(m.in_features, m.out_features) for m in linear] == [(20, 200), (200, 784)]
    convolutions = [m for m in module.modules() if isinstance(m, torch.nn.Conv2d)]
    assert all(m.kernel_size == (5, 5) for m in convolutions)
    assert len(convolutions) == 2
    assert [(m.in_channels, m.out_channels) for m in convolutions] == [(16, 8), (8, 1)]
    # "Approximately 180K parameters" there: of dense layers with their norms, and of convolutions.
    dense = 21 * 200 + 2 * 200 + 201 * 784 + 2 * 784
    assert sum(p.numel() for p in module.parameters()) == dense + (16 * 25 + 1) * 8 + 8 * 25 + 1


def test_color_images_are_those_of_the_paper():
    module = color_dcgan_generator(32, Box(-1, 1, n_features=3 * 64 * 64))
    layers = [m for m in module.modules() if isinstance(m, torch.nn.ConvTranspose2d)]
    assert [m.in_channels for m in layers] == [32, 512, 256, 128, 64]
    assert all(m.kernel_size == (4, 4) for m in layers)
    images = module(torch.randn(2, 32))
    assert images.shape == (2, 3 * 64 * 64)
    assert images.abs().max() <= 1
    # Colour by colour: the bias of one colour moves a third of the pixels.
    before = module.eval()(torch.zeros(1, 32))
    with torch.no_grad():
        layers[-1].bias[1] += 1
    moved = (module(torch.zeros(1, 32)) != before).view(3, -1)
    assert moved.all(dim=1).tolist() == [False, True, False]
    assert moved.any(dim=1).tolist() == [False, True, False]
    small = color_dcgan_generator(2, Box(0, 1, n_features=64), n_channels=3, n_colors=1)
    assert small(torch.randn(5, 2)).shape == (5, 64)


@pytest.mark.parametrize("width", [3 * 4 * 4, 3 * 12 * 12, 64, 3 * 64 * 64 + 1])
def test_color_images_name_the_rule(width):
    with pytest.raises(ValueError, match=f"power of 2, at least 8; the domain has {width} feat"):
        color_dcgan_generator(2, Box(-1, 1, n_features=width))


def test_upsampling_keeps_the_order_of_pixels():
    """What changes one cell of the first image changes the pixels about it alone."""
    module = upsampling_generator(2, Box(-1, 1, n_features=400), n_channels=3).eval()
    cells = torch.randn(1, 3 * 5 * 5, generator=torch.Generator().manual_seed(0))
    changed = cells.clone()
    changed[0, 2] += 5
    rest = module[6:]
    moved = (rest(changed) != rest(cells)).view(20, 20)
    assert moved.any()
    rows, columns = moved.nonzero().T
    # Two upsamplings reach one cell on, two convolutions two: 2 + 4 + 1 + 2 pixels.
    assert rows.max() <= 3 + 9
    assert columns.max() <= 11 + 9
    assert not moved[13:].any()


@pytest.mark.parametrize(
    "domain",
    [Box(1e9 - 3, 1e9 + 3, n_features=2), Ball(3.0, center=[1e9, 1e9])],
    ids=["box", "ball"],
)
def test_a_domain_far_from_zero_keeps_its_width(domain):
    A = torch.randn(500, 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    outputs = DomainHead(domain).to(torch.float64)(5 * A)
    assert domain.contains(outputs, tol=1e-12).all()
    assert (outputs.std(dim=0) > 1).all()
    # The head does not change the precision of what goes through it.
    assert DomainHead(domain)(A.float()).dtype == torch.float32


def test_drawn_categories_follow_the_softmax():
    domain = Product([OneHot(3), Box(-1.0, 2.0, n_features=2), OneHot(2)])
    head = DrawnHead(domain)
    assert head.n_noise == 5
    generator = torch.Generator().manual_seed(0)
    n = 20000
    A = torch.tensor([[0.5, -1.0, 1.0, 0.3, -0.2, 2.0, 1.0]]).repeat(n, 1).requires_grad_()
    N = torch.randn(n, 5, generator=generator)
    points = head(A, N)
    made = points.detach()
    assert torch.isin(made[:, [0, 1, 2, 5, 6]].round(decimals=5), torch.tensor([0.0, 1.0])).all()
    torch.testing.assert_close(made[:, :3].sum(1), torch.ones(n))
    for block in (slice(0, 3), slice(5, 7)):
        expected = torch.softmax(A[0, block].detach(), 0)
        error = (made[:, block].mean(0) - expected).abs() / (expected * (1 - expected) / n).sqrt()
        assert error.max() < 5
    # Without the noise it is one vertex for all.
    assert (
        head(A, torch.zeros_like(N)).detach()[:, :3].mean(0) - made[:, :3].mean(0)
    ).abs().max() > 0.1
    torch.testing.assert_close(made[:, 3:5], DomainHead(domain.domains[1])(A[:, 3:5]).detach())
    points[:, 0].sum().backward()
    assert (A.grad[:, 0] > 0).float().mean() > 0.5
    assert (A.grad[:, 3:] == 0).all()


def test_drawn_generator_without_categories_needs_no_noise():
    network = DrawnGenerator(3, Ball(1.0, n_features=4), (5,))
    assert network.n_noise == 0
    assert network(torch.randn(6, 3)).shape == (6, 4)


def test_a_mixture_takes_its_members_in_equal_shares():
    members = [DrawnGenerator(3, OneHot(4), (5,)) for _ in range(3)]
    mixture = GeneratorMixture(members)
    assert mixture.n_noise == 5
    n = 9000
    Z = torch.randn(n, 8, generator=torch.Generator().manual_seed(0))
    made = mixture(Z)
    alone = torch.stack([member(Z[:, 1:]) for member in members])
    assert (made == alone).all(dim=2).any(dim=0).all()
    third = Z[:, 0] < torch.special.ndtri(torch.tensor(1 / 3))
    assert (made[third] == alone[0][third]).all()
    assert abs(third.float().mean() - 1 / 3) < 5 * (2 / 9 / n) ** 0.5
    assert not (made[~third] == alone[0][~third]).all()
