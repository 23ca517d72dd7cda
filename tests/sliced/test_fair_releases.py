"""What is released of a fit: noisy gradients of secret batches."""

import types

import numpy as np
import pytest
import torch
from scipy.stats import chi2

from sklearn_dpgen.mechanisms._sampled import StratifiedGaussianRun
from sklearn_dpgen.sliced import _fair
from sklearn_dpgen.utils._random import NoiseSource

KINDS = ["regressor", "classifier", "encoder", "generator"]

# Noise.


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


def standard_normal(noise):
    """Whether a table of noise has the moments of independent standard normals, to 5 sigma."""
    n_steps, n = noise.shape
    between_steps = (np.corrcoef(noise) - np.eye(n_steps)) * np.sqrt(n)
    between_coordinates = (noise[:, :-1] * noise[:, 1:]).mean() * np.sqrt(n_steps * (n - 1))
    return bool(
        abs(noise.mean()) * np.sqrt(noise.size) < 5
        and abs((noise**2).mean() - 1) * np.sqrt(noise.size / 2) < 5
        and abs((noise**4).mean() - 3) * np.sqrt(noise.size / 96) < 5
        and abs(between_steps).max() < 5
        and abs(between_coordinates) < 5
        and chi2.ppf(1e-9, n_steps) < (noise**2).sum(axis=0).min()
        and (noise**2).sum(axis=0).max() < chi2.isf(1e-9, n_steps)
    )


def noise_of(estimator, releases):
    values, released = (np.array(column) for column in zip(*releases, strict=True))
    releases.clear()
    return (released - values) / estimator.privacy_.noise_scale


class Halved(NoiseSource):
    def normal(self, size):
        return super().normal(size) / 2


class Repeated(NoiseSource):
    def normal(self, size):
        if not hasattr(self, "first"):
            self.first = super().normal(size)
        return self.first


class Partial(NoiseSource):
    def normal(self, size):
        draws = super().normal(size)
        draws[-5:] = 0
        return draws


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_the_noise_is_what_the_report_states(tiny, table, releases, monkeypatch, kind):
    options = {"training__hidden_layer_sizes": (40,), "training__max_iter": 20}
    noise = noise_of(table.train(tiny(kind, **options)), releases)
    n_parameters = noise.shape[1]
    assert noise.shape[0] == 20
    assert n_parameters > 160
    assert standard_normal(noise)
    for broken in (Halved, Repeated, Partial):
        monkeypatch.setattr(
            "sklearn_dpgen.ledger._base.noise_source", lambda *a, b=broken, **k: b()
        )
        assert not standard_normal(noise_of(table.train(tiny(kind, **options)), releases))


def test_noise_without_a_seed(tiny, table, releases):
    options = {
        "training__hidden_layer_sizes": (40,),
        "training__max_iter": 20,
        "random_state": None,
    }
    first, second = (noise_of(table.train(tiny("classifier", **options)), releases) for _ in "ab")
    # Not repeatable, so with room for what is seen once in 10^12 runs.
    for noise in (first, second, (first + second) / np.sqrt(2)):
        assert abs((noise**2).mean() - 1) * np.sqrt(noise.size / 2) < 7


@pytest.mark.parametrize("kind", KINDS)
def test_without_a_budget_there_is_no_noise(tiny, table, releases, kind):
    estimator = table.train(tiny(kind, epsilon=np.inf))
    assert all(np.array_equal(value, released) for value, released in releases)
    assert (estimator.noise_multiplier_, estimator.privacy_.noise_scale) == (0, 0)
    assert (estimator.privacy_.epsilon, estimator.privacy_.delta) == (np.inf, 0)


def descends_what_was_released(estimator, table, releases, monkeypatch):
    """Whether what the optimizer follows is the releases, one a step."""
    followed = []

    def descend(module, gradient_fn, *, max_iter, **options):
        for step in range(max_iter):
            loss, gradients = gradient_fn(step)
            followed.append((loss, torch.cat([g.flatten() for g in gradients]).numpy()))
            for parameter, gradient in zip(module.parameters(), gradients, strict=True):
                assert gradient.shape == parameter.shape
        return types.SimpleNamespace(n_iter=max_iter)

    monkeypatch.setattr("sklearn_dpgen.sliced._base.descend", descend)
    table.train(estimator)
    return len(followed) == len(releases) and all(
        loss is None and np.array_equal(gradient, released)
        for (loss, gradient), (_, released) in zip(followed, releases, strict=True)
    )


@pytest.mark.parametrize("kind", KINDS)
def test_training_follows_the_releases_alone(tiny, table, releases, monkeypatch, kind):
    estimator = tiny(kind)
    assert descends_what_was_released(estimator, table, releases, monkeypatch)
    releases.clear()
    release = StratifiedGaussianRun.release

    def leak(self, value):
        release(self, value)
        return value

    monkeypatch.setattr(StratifiedGaussianRun, "release", leak)
    assert not descends_what_was_released(estimator, table, releases, monkeypatch)


# Batches.


@pytest.fixture
def batches(monkeypatch):
    """Return a list that collects the batches that are drawn."""
    seen = []
    draw = StratifiedGaussianRun.draw

    def watch(self):
        seen.append(draw(self))
        return seen[-1]

    monkeypatch.setattr(StratifiedGaussianRun, "draw", watch)
    return seen


def drawn_under_global_seed(estimator, table, batches):
    batches.clear()
    torch.manual_seed(3)
    np.random.mtrand._rand.seed(3)
    table.train(estimator)
    return [np.concatenate(batch).tolist() for batch in batches]


@pytest.mark.parametrize("kind", KINDS)
def test_batches_are_as_declared_and_secret(tiny, table, batches, monkeypatch, kind):
    estimator = tiny(
        kind, gradient__batch_fraction=0.3, training__max_iter=6, delta=1e-2, random_state=None
    )
    drawn = drawn_under_global_seed(estimator, table, batches)
    declared = [12] if kind == "generator" else [5, 7]
    sizes = [41] if kind == "generator" else [17, 24]
    assert len(batches) == estimator.n_iter_ == estimator.privacy_.n_releases == 6
    for batch in batches:
        for rows, size, n in zip(batch, sizes, declared, strict=True):
            assert len(set(rows.tolist())) == len(rows) == n
            assert set(rows.tolist()) <= set(range(size))
    assert len(set(map(tuple, drawn))) == 6
    assert drawn_under_global_seed(estimator, table, batches) != drawn
    # A source that follows torch's global stream is caught.
    monkeypatch.setattr(
        NoiseSource, "choice", lambda self, n, size: torch.randperm(n)[:size].numpy()
    )
    drawn = drawn_under_global_seed(estimator, table, batches)
    assert drawn_under_global_seed(estimator, table, batches) == drawn


def test_a_batch_holds_the_rows_that_were_drawn(tiny, table, batches, monkeypatch):
    used = []
    gradient = _fair.fair_gradient

    def watch(objective, backbone, head, residuals, X, batch, directions, weights):
        used.append((X.numpy(), weights.numpy(), batch))
        return gradient(objective, backbone, head, residuals, X, batch, directions, weights)

    monkeypatch.setattr(_fair, "fair_gradient", watch)
    own = np.linspace(0, 1, 41)
    table.train(tiny("classifier", gradient__batch_fraction=0.3, delta=1e-2), sample_weight=own)
    for (X, weights, parts), drawn in zip(used, batches, strict=True):
        for part, group, rows in zip(parts, "ab", drawn, strict=True):
            np.testing.assert_array_equal(X[part], table.X[table.groups == group][rows])
            np.testing.assert_array_equal(weights[part], own[table.groups == group][rows])
