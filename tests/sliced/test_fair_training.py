"""How the releases are descended: rates, averages, and what is drawn anew for each step."""

import math

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose

from sklearn_dpgen.accounting import Bound
from sklearn_dpgen.domains import Ball
from sklearn_dpgen.mechanisms._sampled import StratifiedGaussianRun
from sklearn_dpgen.sliced import _generator, _objective
from sklearn_dpgen.sliced._base import SlicedEstimator

FAIR = ["regressor", "classifier", "encoder"]
KINDS = [*FAIR, "generator"]


@pytest.fixture
def path(table, monkeypatch):
    """Return a function that fits and tells the iterates and the releases, one row a step."""

    def follow(estimator):
        iterates, released = [], []
        release = StratifiedGaussianRun.release

        def watch(self, value):
            released.append(release(self, value))
            return released[-1]

        def look(step, module):
            parts = [p.detach().flatten().clone() for p in module.parameters()]
            iterates.append(torch.cat(parts).numpy())

        with monkeypatch.context() as patch:
            patch.setattr(StratifiedGaussianRun, "release", watch)
            table.train(estimator.set_params(training__callback=look))
        return np.array(iterates), np.array(released)

    return follow


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("averaging", "n_averaged"), [(0.0, 1), (0.25, 3), (0.5, 6)])
def test_the_last_iterates_are_averaged(tiny, path, parameters_of, kind, averaging, n_averaged):
    estimator = tiny(kind, training__max_iter=12, training__averaging=averaging)
    iterates, _ = path(estimator)
    assert_allclose(parameters_of(estimator), iterates[-n_averaged:].mean(axis=0), rtol=1e-12)
    for other in {1, 3, 6} - {n_averaged}:
        assert not np.allclose(parameters_of(estimator), iterates[-other:].mean(axis=0), rtol=1e-9)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("max_iter", [8, 60])
def test_plain_descent_warms_up_and_decays(tiny, path, kind, max_iter):
    rate = 0.03
    estimator = tiny(
        kind,
        training__max_iter=max_iter,
        training__solver="sgd",
        training__learning_rate=rate,
        epsilon=50.0,
    )
    iterates, released = path(estimator)
    warm = [min(1.0, (step + 1) / min(50, max_iter)) for step in range(1, max_iter)]
    decay = [(1 + math.cos(math.pi * step / max_iter)) / 2 for step in range(1, max_iter)]
    moves = iterates[:-1] - iterates[1:]
    expected = rate * np.multiply(warm, decay)[:, None] * released[1:]
    assert_allclose(moves, expected, rtol=1e-6, atol=1e-12)
    # Without the warm-up, or the decay, the steps are others.
    assert not np.allclose(moves, expected / np.array(warm)[:, None], rtol=1e-2, atol=1e-12)
    assert not np.allclose(moves, expected / np.array(decay)[:, None], rtol=1e-2, atol=1e-12)


@pytest.mark.parametrize("kind", KINDS)
def test_a_constant_rate_neither_warms_up_nor_decays(tiny, path, kind):
    options = {
        "training__max_iter": 8,
        "training__solver": "sgd",
        "training__learning_rate": 0.03,
        "epsilon": 50.0,
    }

    def moves_by_the_rate(schedule):
        iterates, released = path(tiny(kind, training__schedule=schedule, **options))
        return np.allclose(iterates[:-1] - iterates[1:], 0.03 * released[1:], rtol=1e-6)

    assert moves_by_the_rate("constant")
    assert not moves_by_the_rate("cosine")


@pytest.mark.parametrize("bound", [1e-3, 0.5, 1e9])
def test_noisy_gradients_are_clipped_once_more(tiny, path, bound):
    options = {
        "training__max_iter": 8,
        "training__solver": "sgd",
        "training__learning_rate": 0.03,
        "training__schedule": "constant",
    }
    iterates, released = path(tiny("generator", gradient__released_clip=bound, **options))
    # The norm of a whole step, noise included.
    norms = np.linalg.norm(released, axis=1)
    expected = released * np.minimum(1, bound / norms)[:, None]
    assert_allclose(iterates[:-1] - iterates[1:], 0.03 * expected[1:], rtol=1e-6, atol=1e-12)
    assert (norms > bound).any() == (bound < 1e9)


@pytest.mark.parametrize("kind", KINDS)
def test_adam_is_what_it_says(tiny, path, kind):
    rate = 0.03
    iterates, released = path(tiny(kind, training__max_iter=8, training__learning_rate=rate))
    first, second = np.zeros_like(released[0]), np.zeros_like(released[0])
    for step, gradient in enumerate(released):
        first = 0.9 * first + 0.1 * gradient
        second = 0.999 * second + 0.001 * gradient**2
        mean, square = first / (1 - 0.9 ** (step + 1)), second / (1 - 0.999 ** (step + 1))
        pace = rate * (step + 1) / 8 * (1 + math.cos(math.pi * step / 8)) / 2
        if step:
            moved = iterates[step] - iterates[step - 1]
            assert_allclose(moved, -pace * mean / (np.sqrt(square) + 1e-8), rtol=1e-6, atol=1e-12)


# What is drawn anew.


def all_differ(draws):
    return len({np.asarray(draw).tobytes() for draw in draws}) == len(draws)


@pytest.mark.parametrize("seed", [0, None])
def test_references_of_codes_are_fresh_in_each_step_and_group(tiny, table, monkeypatch, seed):
    seen = []
    sample = Ball.sample

    def watch(self, n, rng):
        seen.append(sample(self, n, rng))
        return seen[-1]

    monkeypatch.setattr(Ball, "sample", watch)
    table.train(tiny("encoder", random_state=seed))
    assert [len(points) for points in seen] == 3 * [17, 24]
    # Nor does a group repeat the beginning of the other's.
    assert all_differ([points[:17] for points in seen])
    assert not all_differ([seen[0], seen[0]])


@pytest.mark.parametrize("seed", [0, None])
def test_latents_are_fresh_in_each_step(tiny, table, monkeypatch, seed):
    seen = []
    gradient = _generator.generator_gradient

    def watch(module, Z, *args, **options):
        seen.append(Z.numpy().copy())
        return gradient(module, Z, *args, **options)

    monkeypatch.setattr(_generator, "generator_gradient", watch)
    table.train(tiny("generator", random_state=seed, training__max_iter=40))
    assert all_differ(seen)
    latents = np.array(seen)
    assert latents.shape == (40, 41, 2)
    # Standard normal and independent between steps, to 5 sigma.
    assert abs(latents.mean()) < 5 / math.sqrt(latents.size)
    assert abs((latents**2).mean() - 1) < 5 * math.sqrt(2 / latents.size)
    products = (latents[1:] * latents[:-1]).mean()
    assert abs(products) < 5 / math.sqrt(latents[1:].size)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("seed", [0, None])
def test_directions_are_fresh_in_each_step(tiny, table, monkeypatch, kind, seed):
    options = {}
    if kind == "classifier":
        table.labels, options = np.arange(41) % 3, {"classes": [0, 1, 2]}
    if kind == "regressor":
        table.y = table.Y
    seen = []
    module = _generator if kind == "generator" else _objective
    gradient = module.sliced_wasserstein2_gradient

    def watch(U, V, directions):
        seen.append(directions.numpy().copy())
        return gradient(U, V, directions)

    monkeypatch.setattr(module, "sliced_wasserstein2_gradient", watch)
    table.train(tiny(kind, random_state=seed, **options))
    # Two groups of codes are compared with references along the same ones.
    seen = seen[::2] if kind == "encoder" else seen
    assert len(seen) == 3
    assert all_differ(seen)
    # In whole orthonormal blocks, which the sensitivity relies on.
    d = seen[0].shape[1]
    assert len(seen[0]) == math.ceil(4 / d) * d
    for block in np.concatenate(seen).reshape(-1, d, d):
        assert_allclose(block @ block.T, np.eye(d), atol=1e-12)


# The ball of the outputs.


@pytest.mark.parametrize("n_classes", [2, 3, 5])
def test_the_ball_of_probabilities_is_the_smallest_that_cuts_nothing(
    tiny, table, monkeypatch, n_classes
):
    balls = []
    project = Ball.project

    def watch(self, X):
        balls.append(self)
        return project(self, X)

    monkeypatch.setattr(Ball, "project", watch)
    labels = np.arange(41) % n_classes
    classifier = tiny("classifier", alpha=1.0, gradient__jacobian_clip=0.5)
    classifier.fit(table.X, labels, sensitive_features=table.groups)
    ball = balls[0]
    corners = np.eye(n_classes) if n_classes > 2 else np.array([[0.0], [1.0]])
    # Each certain prediction lies on the sphere.
    distances = np.linalg.norm(corners - corners.mean(axis=0), axis=1)
    assert_allclose(ball.center, corners.mean(axis=0), rtol=1e-12)
    assert_allclose(ball.radius, distances, rtol=1e-12)
    # And the noise is for that radius: 4 (1 - p) 8 M L / n, less for whole blocks of directions.
    d = corners.shape[1]
    s = 1 / math.sqrt(d)
    psi = 1.0 if d == 1 else min(1.0, s * (2 - s) if s <= 0.5 else 0.5 + s * s)
    expected = 4 * 24 / 41 * 4 * distances[0] * 0.5 * (1 + psi) / 41
    assert classifier.privacy_.sensitivity == pytest.approx(expected, rel=1e-12)
    radii = [bound.value for bound in classifier.privacy_.bounds if bound.kind == "output_radius"]
    assert radii == pytest.approx([distances[0]], rel=1e-12)


def test_a_declared_bound_is_the_radius(tiny, table):
    for kind in FAIR:
        reports = [
            table.train(tiny(kind, alpha=1.0, gradient__output_bound=bound)).privacy_
            for bound in (0.1, 0.3)
        ]
        assert reports[1].sensitivity == pytest.approx(3 * reports[0].sensitivity, rel=1e-12)
        assert Bound("output_radius", 0.1) in reports[0].bounds


def test_the_networks_are_those_that_are_declared(tiny, table):
    for kind in KINDS:
        module = table.train(
            tiny(kind, training__hidden_layer_sizes=(5, 3), training__activation="tanh")
        ).module_
        layers = [m for m in module.modules() if isinstance(m, torch.nn.Linear)]
        widths = [layer.out_features for layer in layers]
        assert widths[:2] == [5, 3]
        assert (widths[2:] == [2, 3, 5, 3]) == (kind == "encoder")
        assert any(isinstance(m, torch.nn.Tanh) for m in module.modules())
        assert not any(isinstance(m, torch.nn.ReLU) for m in module.modules())
    assert issubclass(type(tiny("encoder")), SlicedEstimator)
