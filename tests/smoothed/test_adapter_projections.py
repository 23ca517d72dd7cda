"""What the adapter lets out of its target step by step: noisy projections, on fresh directions."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose, assert_array_equal

from sklearn_dpgen.accounting import Bound, Event, ProjectionLaw, epsilon_spent
from sklearn_dpgen.mechanisms._sampled import StratifiedGaussianRun
from sklearn_dpgen.smoothed import SmoothedSlicedWassersteinAdapter, _features
from sklearn_dpgen.smoothed._adapter import ProjectedFeatures
from sklearn_dpgen.utils._random import NoiseSource

N_SOURCE, N_TARGET, N_STEPS = 40, 30, 7


def tiny(**options):
    small = {
        "release__kind": "projections",
        "training__hidden_layer_sizes": (6,),
        "feature_dim": 4,
        "release__batch_size": 6,
        "source_batch_size": 8,
        "source_iter": 5,
        "training__max_iter": N_STEPS,
        "training__learning_rate": 0.05,
        "random_state": 0,
    }
    return SmoothedSlicedWassersteinAdapter().set_params(**small | options)


@pytest.fixture
def table():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(N_SOURCE + N_TARGET, 3))
    domain = np.repeat([1, -2], [N_SOURCE, N_TARGET])
    return SimpleNamespace(X=X, y=(X[:, 0] > 0).astype(int), domain=domain)


def fitted(adapter, table):
    return adapter.fit(table.X, table.y, sample_domain=table.domain)


def with_target(table, change):
    X = table.X.copy()
    X[N_SOURCE:] = change(X[N_SOURCE:])
    return SimpleNamespace(X=X, y=table.y, domain=table.domain)


def weights(adapter):
    return torch.cat([p.detach().flatten() for p in adapter.module_.parameters()]).numpy()


@pytest.fixture
def releases(monkeypatch):
    """Return a list that collects, of each release, what went in and what came out."""
    seen = []
    release = StratifiedGaussianRun.release

    def watch(self, value):
        seen.append((value.copy(), release(self, value)))
        return seen[-1][1]

    monkeypatch.setattr(StratifiedGaussianRun, "release", watch)
    return seen


@pytest.fixture
def directions(monkeypatch):
    """Return a list that collects the directions of each step."""
    seen = []
    draw = ProjectionLaw.draw

    def watch(self, noise):
        seen.append(draw(self, noise))
        return seen[-1]

    monkeypatch.setattr(ProjectionLaw, "draw", watch)
    return seen


def forced(patch, seen=None):
    """Make all releases and directions the same whatever the target, and the batches too."""
    rng = np.random.default_rng(3)
    batches = [rng.permutation(N_TARGET)[:6] for _ in range(N_STEPS)]
    answers = iter(0.3 * rng.normal(size=(2 * N_STEPS, 24)))
    blocks = iter([np.linalg.qr(rng.normal(size=(4, 4)))[0] for _ in batches])
    order = iter(batches)

    def draw(self, n_releases=None):
        return [next(order)]

    def release(self, value):
        if seen is not None:
            seen.append(value.copy())
        return next(answers)[: value.size].copy()

    patch.setattr(StratifiedGaussianRun, "draw", draw)
    patch.setattr(StratifiedGaussianRun, "release", release)
    patch.setattr(ProjectionLaw, "draw", lambda self, noise: next(blocks))
    return batches


# Releases are all that depends on the target.


def is_told_by_releases_alone(table, monkeypatch):
    """Whether two targets with the same releases, whatever they are, give the same model."""
    other = with_target(table, lambda X: 5 + 3 * X[::-1])
    models = []
    for one in (table, other):
        with monkeypatch.context() as patch:
            forced(patch)
            models.append(fitted(tiny(), one))
    first, second = models
    return (
        np.array_equal(weights(first), weights(second))
        and first.loss_curve_ == second.loss_curve_
        and first.privacy_ == second.privacy_
    )


def test_targets_with_equal_releases_give_equal_models(table, monkeypatch):
    assert is_told_by_releases_alone(table, monkeypatch)
    # Without forcing them, the target does matter.
    other = with_target(table, lambda X: 5 + 3 * X[::-1])
    assert not np.array_equal(weights(fitted(tiny(), table)), weights(fitted(tiny(), other)))


def test_what_passes_by_the_release_is_caught(table, monkeypatch):
    call = ProjectedFeatures.__call__

    class ByTheJacobian(torch.autograd.Function):
        """Zero, with the gradient of the target's features."""

        @staticmethod
        def forward(ctx, features):
            ctx.shape = features.shape
            return features.new_zeros(())

        @staticmethod
        def backward(ctx, gradient):
            return gradient.expand(ctx.shape)

    class Leaking:
        def __init__(self, laws, extra):
            self.laws, self.extra = laws, extra

        def distance(self, points, generator):
            return self.laws.distance(points, generator) + self.extra

    def jacobian(self, module):
        return Leaking(call(self, module), ByTheJacobian.apply(module.features(self._X)))

    def private_scale(self, module):
        laws = call(self, module)
        largest = float(module.body(self._X).detach().norm(dim=1).max())
        return type(laws)(laws.lines, laws.directions / (2 * largest))

    for leak in (jacobian, private_scale):
        with monkeypatch.context() as patch:
            patch.setattr(ProjectedFeatures, "__call__", leak)
            assert not is_told_by_releases_alone(table, monkeypatch)


# Sensitivity.


def largest_shift(table, monkeypatch):
    """Return by how much one record in the place of another moves a release, at most."""
    far = np.array([500.0, -400.0, 300.0])

    def released(record):
        def change(X):
            # All others alike: what moves them, moves all of them.
            X = np.broadcast_to([30.0, 20.0, 10.0], X.shape).copy()
            X[row] = record
            return X

        with monkeypatch.context() as patch:
            seen = []
            row = forced(patch, seen)[2][0]
            fitted(tiny(training__hidden_layer_sizes=()), with_target(table, change))
        return np.array(seen)

    first, opposite, near = (released(record) for record in (far, -far, 1e-3 * far))
    return max(np.linalg.norm(first - one, axis=1).max() for one in (opposite, near))


@pytest.mark.slow
def test_a_record_moves_a_release_by_the_diameter_at_most(table, monkeypatch):
    assert 0.95 < largest_shift(table, monkeypatch) <= 1 + 1e-9

    def unclipped(Z, radius=0.5):
        return Z

    def by_private_maximum(Z, radius=0.5):
        return radius * Z / Z.detach().norm(dim=1).max().clamp_min(1e-30)

    def of_radius_one(Z, radius=0.5):
        return clip_rows(Z, 1.0)

    clip_rows = _features.clip_rows
    for broken in (unclipped, by_private_maximum, of_radius_one):
        with monkeypatch.context() as patch:
            patch.setattr(_features, "clip_rows", broken)
            assert largest_shift(table, monkeypatch) > 1.01


def test_huge_records_are_released_finite(table, releases):
    adapter = fitted(tiny(), with_target(table, lambda X: 1e305 * X))
    for value, released in releases:
        assert np.isfinite(released).all()
        assert (np.linalg.norm(value.reshape(-1, 4), axis=1) <= 0.5 + 1e-9).all()
    assert np.isfinite(adapter.predict_proba(table.X)).all()


# Directions, noise, price.


@pytest.mark.slow
def test_directions_are_drawn_anew_for_each_release(table, directions):
    fitted(tiny(), table)
    assert len(directions) == N_STEPS
    assert len({U.tobytes() for U in directions}) == N_STEPS
    for U in directions:
        assert_allclose(U @ U.T, np.eye(4), atol=1e-12)
    directions.clear()
    fitted(tiny(release__n_projections=3, release__directions="independent"), table)
    assert all(U.shape == (3, 4) for U in directions)
    assert abs(directions[0] @ directions[0].T - np.eye(3)).max() > 1e-3


def test_directions_are_those_of_a_fit(table, directions):
    """A seeded fit of other records has others: releases that share them compose otherwise."""
    fitted(tiny(), table)
    first = directions[0].copy()
    directions.clear()
    fitted(tiny(), table)
    assert_array_equal(directions[0], first)
    directions.clear()
    fitted(tiny(), with_target(table, lambda X: X + 1e-9))
    assert abs(directions[0] - first).max() > 1e-3


class Halved(NoiseSource):
    def normal(self, size):
        return super().normal(size) / 2


def noise_of(adapter, table, releases):
    releases.clear()
    fitted(adapter, table)
    values, released = (np.array(column) for column in zip(*releases, strict=True))
    return (released - values) / adapter.privacy_.noise_scale


def standard(noise):
    n = noise.size
    return abs(noise.mean()) * np.sqrt(n) < 5 and abs((noise**2).mean() - 1) * np.sqrt(n / 2) < 5


@pytest.mark.slow
def test_the_noise_is_what_the_report_states(table, releases, monkeypatch):
    noise = noise_of(tiny(training__max_iter=30), table, releases)
    assert noise.shape == (30, 24)
    assert standard(noise)
    assert abs(np.corrcoef(noise) - np.eye(30)).max() * np.sqrt(24) < 5
    monkeypatch.setattr("sklearn_dpgen.ledger._base.noise_source", lambda *a, **k: Halved())
    assert not standard(noise_of(tiny(training__max_iter=30, random_state=1), table, releases))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("options", "law"),
    [
        ({}, ProjectionLaw(4, 4)),
        ({"release__n_projections": 2}, ProjectionLaw(4, 2)),
        (
            {"release__n_projections": 6, "release__directions": "independent"},
            ProjectionLaw(4, 6, "independent"),
        ),
    ],
    ids=["a whole basis", "two of a basis", "independent"],
)
def test_the_guarantee_is_recomputed(table, options, law):
    report = fitted(tiny(epsilon=2.0, **options), table).privacy_

    def spent(share):
        return epsilon_spent(
            share * report.noise_multiplier,
            report.delta,
            sampling_rate=6 / N_TARGET,
            n_steps=N_STEPS,
            projections=law,
        )

    assert 1.96 < spent(1.0) <= 2.0
    # Half the noise would cost more.
    assert spent(0.5) > 2.0


@pytest.mark.slow
def test_the_report_prices_the_releases(table, releases):
    adapter = fitted(tiny(epsilon=2.0, release__n_projections=3), table)
    report = adapter.privacy_
    assert report.n_releases == len(releases) == N_STEPS == adapter.n_iter_ - 5
    assert all(value.shape == (6 * 3,) for value, _ in releases)
    assert (report.epsilon, report.delta) == (2.0, 0.1 / N_TARGET)
    assert (report.sensitivity, report.sampling_rate) == (1.0, 6 / N_TARGET)
    assert report.events == (Event("target_projections"),)
    assert Bound("directions_averaged") in report.bounds
    assert report.protected == "target_record"
    assert "source" in report.public
    assert "void" in report.noise_source
    assert fitted(tiny(random_state=None), table).privacy_.noise_source.startswith("operating")


def test_the_features_are_trained_throughout(table, releases):
    bodies = []
    adapter = tiny(
        training__callback=lambda step, module: bodies.append(module.body[0].weight.clone())
    )
    fitted(adapter, table)
    assert len(torch.stack(bodies).flatten(1).unique(dim=0)) == N_STEPS
    # What is released is of the features of that step, not of the last one.
    module = adapter.module_
    norms = np.sort(np.linalg.norm(releases[0][0].reshape(6, 4), axis=1))
    final = module.features(torch.from_numpy(table.X[N_SOURCE:])).detach().norm(dim=1).numpy()
    assert abs(norms[:, None] - final).min(axis=1).max() > 1e-9


def test_the_distance_trains_the_map_alone():
    """Features that followed it on one side would run away from those of the other."""
    X = np.random.default_rng(0).normal(size=(8, 3))
    move = _features.AffineMove.of_records(X)
    network = _features.AdaptedNetwork(3, (5,), 4, 2, "tanh", move).double()
    Z = torch.from_numpy(X)

    def trained_by(features):
        network.zero_grad()
        features(network.move(Z)).square().sum().backward()
        parts = (network.transport, network.body)
        return [
            any(p.grad is not None and p.grad.any() for p in part.parameters()) for part in parts
        ]

    assert_array_equal(network.fixed_features(Z).detach(), network.features(Z).detach())
    assert trained_by(network.fixed_features) == [True, False]
    assert trained_by(network.features) == [True, True]


def test_batches_larger_than_the_target(table):
    with pytest.raises(ValueError, match="batch_size must be at most .* 30, got 31"):
        fitted(tiny(release__batch_size=31), table)
    assert fitted(tiny(release__batch_size="auto"), table).privacy_.sampling_rate == 1.0
