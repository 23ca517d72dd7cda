"""The sensitivities of doc/sensitivity.rst: attained, never exceeded."""

import itertools
import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.func import functional_call, jacrev, vmap

from sklearn_dpgen.ot import random_directions, sliced_wasserstein2_gradient
from sklearn_dpgen.ot._sliced import wasserstein2_gradient, wasserstein_lines
from sklearn_dpgen.sliced._objective import (
    parity_penalty_sensitivity,
    projection_spread,
    transport_gradient_sensitivity,
)

RADIUS = 0.7
CLIPS = [(1.0, 1.0), (0.3, 1.0), (1.0, 0.3), (0.0, 1.0), (1.0, 0.0), (2.0, 2.5)]
TOLERANCE = 1e-9


def never_exceeds(changes, bound):
    return bool((changes <= bound * (1 + TOLERANCE)).all())


def is_sharp(changes, bound, *, rel=TOLERANCE):
    return bool(abs(changes.max() / bound - 1) <= rel) and never_exceeds(changes, bound)


def worst_change(before, after, replaced, clip, other_clip):
    """Return the largest l2 change of the gradient over all Jacobians of spectral norm <= clip.

    ``before`` and ``after`` are the gradients in the outputs of both sides, of shape (..., n, d).
    The gradient in the parameters is the sum of J_i^T c_i. All the Jacobians are free, so each
    of them can have rank one and send the change of its c_i to the same unit vector, and the
    replaced record has two of them.
    """
    norm = torch.linalg.vector_norm
    own = norm(before[0] - after[0], dim=-1)
    own[..., replaced] = norm(before[0], dim=-1)[..., replaced]
    own[..., replaced] += norm(after[0], dim=-1)[..., replaced]
    other = norm(before[1] - after[1], dim=-1)
    return clip * own.sum(-1) + other_clip * other.sum(-1)


def line_changes(n, m, clip, other_clip, *, swap, rng, gradient=wasserstein2_gradient):
    """Yield the worst changes of many neighbours on the line: vertices, ties, and the inside."""
    vertices = list(itertools.product((-RADIUS, 0.0, RADIUS), repeat=n + m + 1))
    grid = torch.tensor(vertices, dtype=torch.float64)
    inside = torch.from_numpy(rng.uniform(-RADIUS, RADIUS, (2000, n + m + 1)))
    values = torch.cat([grid, inside])
    V = values[:, n + 1 :]
    for replaced in range(n):
        U, W = values[:, :n], values[:, :n].clone()
        W[:, replaced] = values[:, n]
        pairs = [(V, X) if swap else (X, V) for X in (U, W)]
        before, after = ([g[..., None] for g in gradient(*pair)] for pair in pairs)
        if swap:
            before, after = before[::-1], after[::-1]
        yield worst_change(before, after, replaced, clip, other_clip)


@pytest.mark.parametrize(("clip", "other_clip"), CLIPS)
@pytest.mark.parametrize(("n", "m"), [(1, 1), (1, 3), (2, 3), (3, 2), (4, 3), (3, 4)])
@pytest.mark.parametrize("swap", [False, True])
def test_the_bound_on_the_line_is_exact(n, m, clip, other_clip, swap):
    rng = np.random.default_rng(n + 10 * m)
    changes = torch.cat(list(line_changes(n, m, clip, other_clip, swap=swap, rng=rng)))
    bound = transport_gradient_sensitivity(n, radius=RADIUS, clip=clip, other_clip=other_clip)
    assert is_sharp(changes, bound)
    assert not never_exceeds(changes, 0.95 * bound)
    assert not is_sharp(changes, 1.05 * bound)
    # The size of the other side takes no part, and the paper's bound is nowhere reached but where
    # this side has no Jacobian.
    paper = 4 * RADIUS * (3 * clip + other_clip) / n
    assert is_sharp(changes, paper) == (clip == 0)


def gradient_of_power(U, V, p):
    """Return the gradients of W_p^p for samples in rows."""
    lines = [W.t().clone().requires_grad_() for W in (U, V)]
    (len(U) * wasserstein_lines(*lines, p=p)).backward()
    return [line.grad.t() for line in lines]


@pytest.mark.parametrize(("clip", "other_clip"), [(1.0, 1.0), (0.3, 1.0), (0.0, 1.0), (1.0, 0.3)])
@pytest.mark.parametrize(("n", "m"), [(2, 3), (3, 2), (4, 3)])
@pytest.mark.parametrize("p", [1.5, 2, 2.5, 4])
def test_the_bound_of_powers_is_exact_from_two_on(n, m, clip, other_clip, p):
    rng = np.random.default_rng(n + 10 * m)
    options = {"swap": False, "rng": rng, "gradient": lambda U, V: gradient_of_power(U, V, p)}
    changes = torch.cat(list(line_changes(n, m, clip, other_clip, **options)))
    bound = p * (2 * RADIUS) ** (p - 1) * max(2 * clip, clip + other_clip) / n
    assert is_sharp(changes, bound) == (p >= 2)
    # Below two a record moves the others by more.
    assert never_exceeds(changes, bound) == (p >= 2)


clips = st.floats(0, 10)
spreads = st.floats(0.01, 1)


@settings(deadline=None, derandomize=True)
@given(n=st.integers(1, 10**6), clip=clips, other_clip=clips, spread=spreads)
def test_the_bound_as_a_function(n, clip, other_clip, spread):
    def bound(n=n, radius=RADIUS, clip=clip, other_clip=other_clip, spread=spread):
        return transport_gradient_sensitivity(
            n, radius=radius, clip=clip, other_clip=other_clip, spread=spread
        )

    line = 4 * RADIUS / n * max(2 * clip, clip + other_clip)
    assert bound(spread=1.0) == pytest.approx(line)
    assert bound() <= line * (1 + TOLERANCE)
    assert bound() <= 4 * RADIUS * (3 * clip + other_clip) / n * (1 + TOLERANCE)
    assert bound(n=2 * n, radius=2 * RADIUS) == pytest.approx(bound())
    assert bound(clip=2 * clip, other_clip=2 * other_clip) == pytest.approx(2 * bound())
    larger = (
        bound(clip=clip + 0.1),
        bound(other_clip=other_clip + 0.1),
        bound(spread=min(1.0, 1.1 * spread)),
    )
    assert min(larger) >= bound() * (1 - TOLERANCE)


@pytest.mark.parametrize(("k", "d"), [(1, 1), (7, 1), (4, 4), (50, 2), (50, 8), (5, 3), (3, 9)])
def test_spread_is_the_largest_mean_square_of_a_projection(k, d):
    spread = projection_spread(k, d)
    for seed in range(5):
        generator = torch.Generator().manual_seed(seed)
        theta = random_directions(k, d, generator=generator, dtype=torch.float64)
        largest = torch.linalg.eigvalsh(theta.T @ theta / k)[-1]
        assert float(largest) <= spread**2 * (1 + TOLERANCE)
    if k % d == 0 or k < d:
        assert float(largest) == pytest.approx(spread**2)
    # Independent directions can all be close to one.
    if d > 1 < k:
        theta = random_directions(k, d, kind="independent", generator=generator)
        assert torch.linalg.eigvalsh(theta.T @ theta / k)[-1] > 1.02 * spread**2


def sliced_changes(X, replacement, Y, directions, clip, other_clip):
    """Return the worst change when the first record of X is replaced."""
    before, after = (
        sliced_wasserstein2_gradient(torch.cat([first, X[1:]]), Y, directions)[1:]
        for first in (X[:1], replacement)
    )
    return worst_change(before, after, 0, clip, other_clip)


def cross(direction, *, shift=1e-11):
    """Neighbours in R^d that move every projection on the axes past all the others.

    The other records are a tiny cross around zero, and the other side a large one. The first
    record and its replacement are at plus and minus ``direction`` times the radius.
    """
    d = len(direction)
    axes = RADIUS * torch.cat([torch.eye(d), -torch.eye(d)]).double()
    first = RADIUS * (direction / direction.norm())[None]
    X = torch.cat([first, shift / 100 * axes, torch.zeros(1, d)]).double()
    return X, -first, torch.cat([axes, torch.zeros(2, d)]).double()


@pytest.mark.parametrize(("clip", "other_clip"), [(1.0, 1.0), (0.3, 1.0), (0.0, 1.0)])
@pytest.mark.parametrize("d", [4, 7, 16])
def test_the_sliced_bound_is_exact_for_one_block(d, clip, other_clip):
    X, replacement, Y = cross(torch.ones(d).double())
    axes = torch.eye(d).double()
    changes = sliced_changes(X, replacement, Y, axes, clip, other_clip)
    bound = transport_gradient_sensitivity(
        len(X), radius=RADIUS, clip=clip, other_clip=other_clip, spread=projection_spread(d, d)
    )
    assert is_sharp(changes, bound)
    assert not never_exceeds(changes, 0.95 * bound)
    # One direction alone still has the bound of the line, which slicing has made smaller.
    line = transport_gradient_sensitivity(len(X), radius=RADIUS, clip=clip, other_clip=other_clip)
    assert bound < 0.9 * line


def test_in_the_plane_slicing_gains_nothing_for_a_shared_network():
    X, replacement, Y = cross(torch.tensor([1e-11, 1.0]).double())
    changes = sliced_changes(X, replacement, Y, torch.eye(2).double(), 1.0, 1.0)
    for spread in (1.0, projection_spread(50, 2)):
        bound = transport_gradient_sensitivity(
            len(X), radius=RADIUS, clip=1.0, other_clip=1.0, spread=spread
        )
        assert is_sharp(changes, bound)


def into_ball(X):
    return X * (RADIUS / X.norm(dim=1, keepdim=True)).clamp(max=1)


def climb(records, change, n_steps, generator):
    """Random search for neighbours with a larger change; return all the changes seen."""
    seen = [change(*records)]
    for step in range(n_steps):
        scale = 10.0 ** -(step % 4)
        trial = [
            into_ball(X + scale * torch.randn(X.shape, generator=generator).double())
            for X in records
        ]
        seen.append(change(*trial))
        if seen[-1] >= max(seen):
            records = trial
    return torch.stack(seen)


@pytest.mark.parametrize(
    "d", [2, 3, *(pytest.param(d, marks=pytest.mark.slow) for d in (5, 8)), 16]
)
@pytest.mark.parametrize(("n_blocks", "extra"), [(1, 0), (2, 0), (1, 1), (3, 1)])
def test_a_search_never_exceeds_the_sliced_bound(d, n_blocks, extra):
    k = n_blocks * d + extra
    generator = torch.Generator().manual_seed(100 * d + k)
    for clip, other_clip in CLIPS:
        directions = random_directions(k, d, generator=generator, dtype=torch.float64)

        def change(X, replacement, Y, clip=clip, other_clip=other_clip, directions=directions):
            return sliced_changes(X, replacement, Y, directions, clip, other_clip)

        X, replacement, Y = (
            into_ball(torch.randn(size, d, generator=generator).double()) for size in (5, 1, 4)
        )
        block = directions[:d]
        starts = [
            (X, replacement, Y),
            tuple(Z @ block for Z in cross(torch.ones(d).double())),
            tuple(Z @ block for Z in cross(torch.eye(d)[0].double() + 0.3)),
        ]
        for records in starts:
            bound = transport_gradient_sensitivity(
                len(records[0]),
                radius=RADIUS,
                clip=clip,
                other_clip=other_clip,
                spread=projection_spread(k, d),
            )
            changes = climb(records, change, 12, generator)
            assert never_exceeds(changes, bound)
            if records is starts[1] and d >= 5 and k == d and clip <= other_clip:
                assert not never_exceeds(changes, 0.8 * bound)


def output_gradients(groups):
    """Gradients, in the outputs of each group, of the mean of W_2^2 over the pairs of groups."""
    pairs = list(itertools.combinations(range(len(groups)), 2))
    gradients = [torch.zeros_like(U) for U in groups]
    for a, b in pairs:
        for group, gradient in zip(
            (a, b), wasserstein2_gradient(groups[a], groups[b]), strict=True
        ):
            gradients[group] += gradient / len(pairs)
    return gradients


@pytest.mark.slow
@pytest.mark.parametrize("n_groups", [2, 3, 5])
def test_the_bound_of_a_parity_penalty_is_exact(n_groups):
    rng = np.random.default_rng(n_groups)
    size, clip, changes = 3, 1.3, []
    for trial in range(300):
        values = rng.uniform(-RADIUS, RADIUS, (n_groups, size))
        groups = [torch.from_numpy(RADIUS * np.sign(v) if trial % 2 else v) for v in values]
        if trial == 0:
            groups = [torch.full((size,), -RADIUS).double() for _ in groups]
            groups[0][0] = RADIUS
        replaced = groups[0].clone()
        if trial > 0:
            replaced[0] = RADIUS * rng.choice([-1, 1])
        before, after = (
            (g[0][:, None], torch.cat(g[1:])[:, None])
            for g in (output_gradients(groups), output_gradients([replaced, *groups[1:]]))
        )
        changes.append(worst_change(before, after, 0, clip, clip))
    changes = torch.stack(changes)
    bound = parity_penalty_sensitivity(size, n_groups, radius=RADIUS, clip=clip)
    assert is_sharp(changes, bound)
    assert not never_exceeds(changes, 0.95 * bound)
    assert bound == pytest.approx(2 / n_groups * 8 * RADIUS * clip / size)
    # Equalized odds: a record is in the pairs of one label, of a mean over the labels.
    odds = parity_penalty_sensitivity(size, n_groups, radius=RADIUS, clip=clip, n_labels=4)
    assert odds == pytest.approx(bound / 4)


def spectral_clip(J, clip):
    return J * (clip / torch.linalg.matrix_norm(J, ord=2)).clamp(max=1)[:, None, None]


def network_gradient(network, X, Y, directions, clip):
    """The clipped surrogate of a network on both sides, from materialized Jacobians."""
    parameters = {name: p.detach() for name, p in network.named_parameters()}

    def output(parameters, x):
        return functional_call(network, parameters, (x,))

    def side(Z):
        jacobians = vmap(jacrev(output), in_dims=(None, 0))(parameters, Z)
        J = torch.cat([block.flatten(2) for block in jacobians.values()], dim=2)
        return into_ball(network(Z).detach()), spectral_clip(J, clip)

    (U, J), (V, K) = side(X), side(Y)
    _, dU, dV = sliced_wasserstein2_gradient(U, V, directions)
    return torch.einsum("nd,ndp->p", dU, J) + torch.einsum("nd,ndp->p", dV, K)


@pytest.mark.slow
@pytest.mark.parametrize("d", [1, 2, 6])
def test_a_network_stays_within_the_bound(d):
    torch_rng = torch.Generator().manual_seed(d)
    network = nn.Sequential(nn.Linear(3, 5), nn.Tanh(), nn.Linear(5, d)).double()
    for p in network.parameters():
        p.data = 3 * torch.randn(p.shape, generator=torch_rng).double()
    n, m, k, clip = 4, 3, 2 * d, 0.5
    bound = transport_gradient_sensitivity(
        n, radius=RADIUS, clip=clip, other_clip=clip, spread=projection_spread(k, d)
    )
    changes, unclipped = [], []
    for _ in range(25):
        X, Y = (3 * torch.randn(size, 3, generator=torch_rng).double() for size in (n, m))
        replaced = torch.cat([-X[:1], X[1:]])
        directions = random_directions(k, d, generator=torch_rng, dtype=torch.float64)
        for limit, found in ((clip, changes), (math.inf, unclipped)):
            one, other = (network_gradient(network, Z, Y, directions, limit) for Z in (X, replaced))
            found.append((one - other).norm())
    assert never_exceeds(torch.stack(changes), bound)
    assert not never_exceeds(torch.stack(unclipped), bound)


@pytest.mark.slow
def test_a_linear_network_attains_the_bound():
    network = nn.Linear(2, 1, bias=False).double()
    network.weight.data = torch.tensor([[1.0, 0.0]]).double()
    # The output is the first feature and the Jacobian the record, which points along the second.
    X = torch.tensor([[1.0, 1e6], [1.0, 0.0], [-1.0, 0.0]]).double()
    replaced = torch.cat([X[:1] * torch.tensor([1.0, -1.0]), X[1:]])
    Y = torch.tensor([[-1.0, 0.0], [-2.0, 0.0]]).double()
    gradients = [
        network_gradient(network, Z, Y, torch.ones(1, 1).double(), 0.5) for Z in (X, replaced)
    ]
    bound = transport_gradient_sensitivity(3, radius=RADIUS, clip=0.5, other_clip=0.5)
    assert is_sharp((gradients[0] - gradients[1]).norm(), bound)


@pytest.mark.parametrize("n", [2, 10, 1000])
@pytest.mark.parametrize("p", [1, 2, 3])
def test_the_gradient_of_the_distance_itself_does_not_settle(n, p):
    """Appendix D of the paper: X = {i/n}, and one record replaced makes it {(i - 1)/n}."""
    Z = (torch.arange(n).double() + 0.5) / n

    def slope(X, root):
        theta = torch.zeros((), dtype=torch.float64, requires_grad=True)
        power = (X + theta - Z).abs().pow(p).mean()
        return float(torch.autograd.grad(power.pow(1 / p) if root else power, theta)[0])

    X = torch.arange(1, n + 1).double() / n
    torch.testing.assert_close(X[:-1], (X - 1 / n)[1:])
    assert slope(X, root=True) - slope(X - 1 / n, root=True) == pytest.approx(2)
    if p == 2:
        change = slope(X, root=False) - slope(X - 1 / n, root=False)
        assert change == pytest.approx(2 / n)
        assert change <= transport_gradient_sensitivity(n, radius=0.5, clip=1, other_clip=0)


def test_refusals():
    valid = {"radius": 1.0, "clip": 1.0, "other_clip": 1.0}
    for p in (1, 1.5, 3, "2"):
        with pytest.raises(ValueError, match="does not shrink with n"):
            transport_gradient_sensitivity(5, **valid, p=p)
        with pytest.raises(ValueError, match="does not shrink with n"):
            parity_penalty_sensitivity(5, 2, radius=1.0, clip=1.0, p=p)
    for name, value in (
        ("radius", 0),
        ("radius", math.inf),
        ("clip", -1),
        ("other_clip", math.nan),
        ("spread", 0),
        ("spread", 1.1),
    ):
        with pytest.raises(ValueError, match=name):
            transport_gradient_sensitivity(5, **{**valid, name: value})
    with pytest.raises(ValueError, match="n must be at least 1"):
        transport_gradient_sensitivity(0, **valid)
    with pytest.raises(ValueError, match="n_groups"):
        parity_penalty_sensitivity(5, 1, radius=1.0, clip=1.0)
    with pytest.raises(TypeError, match="n_projections"):
        projection_spread(2.0, 3)
