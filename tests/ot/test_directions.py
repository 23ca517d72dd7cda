"""Random directions: what a block promises, and that it is Haar distributed."""

import math

import hypothesis.strategies as st
import pytest
import torch
from hypothesis import given, settings

from sklearn_dpgen.ot import random_directions

KINDS = ["orthogonal", "independent"]


def seeded(seed=0):
    return torch.Generator().manual_seed(seed)


def draw(k, d, seed=0, **options):
    return random_directions(k, d, generator=seeded(seed), dtype=torch.float64, **options)


@settings(max_examples=40, deadline=None)
@given(k=st.integers(1, 40), d=st.integers(1, 12), kind=st.sampled_from(KINDS))
def test_unit_rows(k, d, kind):
    directions = draw(k, d, kind=kind)
    assert directions.shape == (k, d)
    torch.testing.assert_close(directions.norm(dim=1), torch.ones(k, dtype=torch.float64))


@pytest.mark.slow
@settings(max_examples=40, deadline=None)
@given(k=st.integers(1, 40), d=st.integers(1, 12))
def test_blocks_are_orthonormal_and_bound_the_mean_square(k, d):
    directions = draw(k, d)
    for block in directions.split(d):
        torch.testing.assert_close(block @ block.T, torch.eye(len(block), dtype=torch.float64))
    norm = torch.linalg.matrix_norm(directions.T @ directions / k, ord=2)
    assert norm <= math.ceil(k / d) / k * (1 + 1e-12)


def test_independent_directions_exceed_the_bound():
    directions = draw(8, 4, kind="independent")
    assert torch.linalg.matrix_norm(directions.T @ directions / 8, ord=2) > 1.2 / 4


def moments_in_sigmas(first, second):
    """Return how far sample moments of pairs of directions are from those of Haar frames.

    The pairs are two different columns of one uniform orthogonal matrix, in many matrices.
    """
    n, d = first.shape
    powers = torch.stack(
        [
            first[:, 0],
            second[:, 1],
            first[:, 0].square() - 1 / d,
            first[:, 0].pow(4) - 3 / (d * (d + 2)),
            first[:, 0] * first[:, 1],
            first[:, 0] * second[:, 1],
            (first[:, 0] * second[:, 0]).square() - 1 / (d * (d + 2)),
        ]
    )
    return (powers.mean(1).abs() / (powers.std(1) / math.sqrt(n))).max()


@pytest.mark.parametrize("d", [2, 5])
def test_orthogonal_blocks_are_haar(d):
    n = 20000
    directions = draw(n * d, d).view(n, d, d)
    assert moments_in_sigmas(directions[:, 0], directions[:, 1]) < 5
    # Nothing but the signs of the triangle is missing here.
    raw = torch.linalg.qr(torch.randn(n, d, d, generator=seeded(), dtype=torch.float64)).Q
    assert moments_in_sigmas(raw[:, :, 0], raw[:, :, 1]) > 50


def test_a_cut_block_is_uniform():
    first = torch.cat([draw(2, 3, seed) for seed in range(2000)])
    assert moments_in_sigmas(first[::2], first[1::2]) < 5


def test_independent_directions_are_uniform_and_independent():
    n, d = 20000, 3
    directions = draw(2 * n, d, kind="independent")
    first, second = directions[::2], directions[1::2]
    inner = (first * second).sum(1)
    assert abs(inner.mean()) < 5 * math.sqrt(1 / d / n)
    assert inner.square().mean() == pytest.approx(1 / d, abs=5 / math.sqrt(n))
    assert first.mean(0).abs().max() < 5 * math.sqrt(1 / d / n)


@pytest.mark.parametrize("kind", KINDS)
def test_seeds_reproduce_and_the_global_generator_is_untouched(kind):
    before = torch.get_rng_state()
    first, same, other = (draw(6, 3, seed, kind=kind) for seed in (0, 0, 1))
    fresh = [random_directions(6, 3, kind=kind) for _ in range(2)]
    assert torch.equal(first, same)
    assert not torch.equal(first, other)
    assert not torch.equal(*fresh)
    assert torch.equal(torch.get_rng_state(), before)


def test_dtype_and_device():
    assert random_directions(3, 2).dtype == torch.float32
    single = random_directions(70, 50, generator=seeded(), device=torch.device("cpu"))
    assert torch.equal(single, draw(70, 50).float())
    assert ((single.norm(dim=1) - 1).abs() < 1e-6).all()


def test_invalid_arguments():
    for bad in (0, -1, 2.0, True, "3"):
        with pytest.raises(ValueError, match="n_projections must be a positive integer"):
            random_directions(bad, 3)
        with pytest.raises(ValueError, match="n_features must be a positive integer"):
            random_directions(3, bad)
    with pytest.raises(ValueError, match="kind must be one of"):
        random_directions(3, 3, kind="sobol")


@pytest.mark.gpu
def test_gpu_gets_the_same_directions():
    on_gpu = random_directions(7, 3, generator=seeded(), device="cuda")
    assert on_gpu.is_cuda
    assert torch.equal(on_gpu.cpu(), random_directions(7, 3, generator=seeded()))
    generator = torch.Generator("cuda").manual_seed(0)
    assert random_directions(7, 3, generator=generator, device="cuda").is_cuda
