"""What floating point may not do to the bounds, and what the bounds take from the directions."""

import numpy as np
import pytest
import torch
from torch import nn

from sklearn_dpgen.domains import Box
from sklearn_dpgen.nn import linearize
from sklearn_dpgen.nn._generators import DomainHead
from sklearn_dpgen.preprocessing._records import encode_records
from sklearn_dpgen.sliced import _base
from sklearn_dpgen.sliced._base import SlicedEstimator
from sklearn_dpgen.sliced._objective import projection_spread, transport_gradient_sensitivity

# A task gradient whose back-propagated row cancels.


def cancelling_records(scale):
    """Return a network, features and residuals nearly orthogonal to what they are pulled through.

    The features are huge and leave one hidden unit unsaturated; the residual is across that
    unit's weights, up to rounding.
    """
    torch.manual_seed(0)
    network = nn.Sequential(nn.Linear(2, 64), nn.Tanh(), nn.Linear(64, 2)).double()
    first, last = network[0].weight.detach(), network[2].weight.detach()
    rng, X, R = np.random.default_rng(0), [], []
    for unit in range(64):
        across = torch.stack([-first[unit, 1], first[unit, 0]]) / first[unit].norm()
        away = torch.stack([-last[1, unit], last[0, unit]])
        for tilt in [0.0, *10.0 ** rng.uniform(-16, -7, 12)]:
            X.append(scale * across)
            R.append(away + tilt * last[:, unit])
    return network, torch.stack(X), torch.stack(R)


def norms_of_clipped(network, X, R, clip):
    """Return the norm of what each record contributes after ``clip``."""
    norms = []
    for x, r in zip(X, R, strict=True):
        parts = clip(linearize(network, x[None]), r[None])
        norms.append(torch.cat([part.flatten() for part in parts]).norm().item())
    return np.array(norms)


def clip_by_gram(jacobian, R):
    square = torch.einsum("ni,nij,nj->n", R, jacobian.gram(), R).clamp_min(0)
    return jacobian.weighted_sum(R * (1 / square.sqrt()).clamp_max(1)[:, None])


@pytest.mark.slow
@pytest.mark.parametrize("scale", [1.0, 1e8, 1e12, 1e15])
def test_a_gradient_that_cancels_is_clipped(scale):
    network, X, R = cancelling_records(scale)
    norms = norms_of_clipped(network, X, R, lambda jacobian, r: jacobian.clipped_sum(r, 1.0))
    assert norms.max() <= 1 + 1e-12
    if scale > 1e10:
        # By the Gram matrix, whose quadratic form cancels, it is not.
        assert norms_of_clipped(network, X, R, clip_by_gram).max() > 10


@pytest.mark.slow
@pytest.mark.parametrize("convolution", [False, True])
def test_clipped_sum_is_the_sum_of_clipped_gradients(convolution):
    generator = torch.Generator().manual_seed(0)
    if convolution:
        stack = (nn.Unflatten(1, (1, 6)), nn.Conv1d(1, 3, 3), nn.SiLU(), nn.Flatten())
        network = nn.Sequential(*stack, nn.Linear(12, 2)).double()
    else:
        head = DomainHead(Box(-1, 1, n_features=2))
        network = nn.Sequential(nn.Linear(6, 5), nn.Tanh(), nn.Linear(5, 2), head).double()
    X = torch.randn(9, 6, generator=generator, dtype=torch.float64)
    R = (
        torch.randn(9, 2, generator=generator, dtype=torch.float64)
        * torch.logspace(-2, 2, 9)[:, None]
    )
    R[3], R[5, 0] = 0, torch.nan
    expected = 0
    for x, r in zip(X, R.nan_to_num(0) * R.isfinite().all(1)[:, None], strict=True):
        gradient = torch.autograd.grad((network(x[None])[0] * r).sum(), list(network.parameters()))
        flat = torch.cat([part.flatten() for part in gradient])
        expected = expected + flat * min(1.0, 0.7 / max(flat.norm().item(), 1e-300))
    parts = linearize(network, X, chunk_size=4).clipped_sum(R, 0.7)
    actual = torch.cat([part.flatten() for part in parts])
    torch.testing.assert_close(actual, expected, rtol=1e-10, atol=1e-12)
    assert abs(actual).max() > 0.1


# Directions.


@pytest.mark.parametrize(
    ("kind", "options", "d"),
    [
        ("regressor", {}, 3),
        ("classifier", {}, 5),
        ("encoder", {"n_components": 3}, 3),
        ("generator", {}, 3),
    ],
)
@pytest.mark.parametrize("n_projections", [1, 4, 50])
def test_directions_are_those_that_are_paid_for(
    tiny, table, monkeypatch, kind, options, d, n_projections
):
    drawn = []

    def watch(*args, **kwargs):
        drawn.append(random_directions(*args, **kwargs))
        return drawn[-1]

    random_directions = _base.random_directions
    monkeypatch.setattr(_base, "random_directions", watch)
    if kind == "regressor":
        table.y = np.hstack([table.Y, table.Y[:, :1]])
    table.labels = np.arange(41) % 5
    table.train(tiny(kind, gradient__n_projections=n_projections, **options))
    assert len(drawn) == 3

    def spread(theta):
        return torch.linalg.matrix_norm(theta, ord=2).item() / np.sqrt(len(theta))

    for theta in drawn:
        assert len(theta) % d == 0
        assert len(theta) >= n_projections
        torch.testing.assert_close(theta.norm(dim=1), torch.ones(len(theta)).double())
        assert spread(theta) <= projection_spread(len(theta), d) * (1 + 1e-12)
    independent = random_directions(len(theta), d, kind="independent")
    assert spread(independent) > projection_spread(len(theta), d) * (1 + 1e-3)
    assert not torch.equal(drawn[0], drawn[1])


def test_each_sample_of_a_generator_has_its_own_sensitivity(tiny, table):
    generator = tiny("generator", domain=Box(-3, 3, n_features=3), gradient__jacobian_clip=0.5)
    encode_records(generator, table.X)
    spread = projection_spread(6, 3)
    radius = np.sqrt(27)
    expected = [
        transport_gradient_sensitivity(n, radius=radius, clip=a, other_clip=b, spread=spread)
        for n, a, b in ((20, 0.0, 0.5), (30, 0.5, 0.0))
    ]
    np.testing.assert_allclose(
        generator._sensitivities([20, 30], generator.domain_), expected, rtol=1e-12
    )
    assert expected[0] != expected[1]


# Streams.


def seeds_of_a_fit(tiny, table, monkeypatch, seed):
    """Return the seeds of the noise, of the initial weights and of the directions."""
    seeds, source = [], SlicedEstimator._noise_source

    def watch_noise(self, seed, *bound):
        seeds.append(seed)
        return source(self, seed, *bound)

    def watched(function):
        return lambda seed, *args: seeds.append(seed) or function(seed, *args)

    with monkeypatch.context() as patch:
        patch.setattr(SlicedEstimator, "_noise_source", watch_noise)
        for name in ("seeded_initialization", "torch_generator"):
            patch.setattr(_base, name, watched(getattr(_base, name)))
        table.train(tiny("regressor", random_state=seed))
    return seeds


@pytest.mark.parametrize("seed", [0, 7])
def test_streams_are_independent(tiny, table, monkeypatch, seed):
    assert len(set(seeds_of_a_fit(tiny, table, monkeypatch, seed))) == 3
    # The negative twin: one seed for all.
    monkeypatch.setattr(_base, "split_random_state", lambda seed, n: [seed] * n)
    assert len(set(seeds_of_a_fit(tiny, table, monkeypatch, seed))) < 3
