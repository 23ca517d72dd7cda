"""What the adapter lets out of its target records: noisy projections, and nothing else."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch
from numpy.testing import assert_array_equal

from sklearn_dpgen.accounting import epsilon_spent
from sklearn_dpgen.mechanisms import StratifiedGaussianMechanism, Stratum
from sklearn_dpgen.mechanisms._sampled import StratifiedGaussianRun
from sklearn_dpgen.ot import random_directions
from sklearn_dpgen.smoothed import SmoothedSlicedWassersteinAdapter, _adapter, _domains
from sklearn_dpgen.utils._random import NoiseSource

MODULE = "sklearn_dpgen.smoothed._adapter"
N_SOURCE, N_TARGET = 40, 30


def tiny(**options):
    small = {
        "hidden_layer_sizes": (6,),
        "feature_dim": 4,
        "batch_size": 6,
        "source_batch_size": 8,
        "source_iter": 5,
        "max_iter": 6,
        "learning_rate": 0.01,
        "random_state": 0,
    }
    return SmoothedSlicedWassersteinAdapter(**{**small, **options})


@pytest.fixture
def table():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(N_SOURCE + N_TARGET, 3))
    domain = np.repeat([1, -2], [N_SOURCE, N_TARGET])
    y = (X[:, 0] > 0).astype(int)
    return SimpleNamespace(X=X, y=y, domain=domain)


def fitted(adapter, table):
    return adapter.fit(table.X, table.y, sample_domain=table.domain)


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


# Releases are all that depends on the target.


def other_target(table):
    X = table.X.copy()
    X[N_SOURCE:] = 5 + 3 * X[N_SOURCE:][::-1]
    return SimpleNamespace(X=X, y=table.y, domain=table.domain)


def is_told_by_releases_alone(table, monkeypatch):
    """Whether two targets with the same releases, whatever they are, give the same model."""
    drawn = np.random.default_rng(3).normal(size=(6, 24))

    def forced(self, value):
        self._is_drawn = False
        return drawn[self._n_drawn - 1].copy()

    with monkeypatch.context() as patch:
        patch.setattr(StratifiedGaussianRun, "release", forced)
        first, second = (fitted(tiny(), one) for one in (table, other_target(table)))
    return (
        np.array_equal(weights(first), weights(second))
        and first.loss_curve_ == second.loss_curve_
        and first.privacy_ == second.privacy_
    )


def bypass(table, monkeypatch, leak):
    """Patch the release by one that returns what the mechanism gave, changed by the private."""
    release = _adapter.release_projections

    def leaking(Z, directions, run):
        return leak(Z, directions, release(Z, directions, run))

    monkeypatch.setattr(f"{MODULE}.release_projections", leaking)


def test_targets_with_equal_releases_give_equal_models(table, monkeypatch):
    assert is_told_by_releases_alone(table, monkeypatch)
    # Without forcing them, the target does matter.
    assert not np.array_equal(
        weights(fitted(tiny(), table)), weights(fitted(tiny(), other_target(table)))
    )


@pytest.mark.parametrize(
    "leak",
    [
        lambda Z, directions, released: released / Z.square().mean(),
        lambda Z, directions, released: released + (Z @ directions.t()).mean(dim=0),
    ],
    ids=["scale of the target", "mean of the target"],
)
def test_what_passes_by_the_release_is_caught(table, monkeypatch, leak):
    bypass(table, monkeypatch, leak)
    assert not is_told_by_releases_alone(table, monkeypatch)


def test_features_do_not_depend_on_the_target(table):
    first, second = (fitted(tiny(), one).module_ for one in (table, other_target(table)))
    for name, value in first.body.state_dict().items():
        assert_array_equal(value, second.body.state_dict()[name])


def test_a_gradient_through_the_target_is_caught(table, monkeypatch):
    def carries_no_gradient():
        gradients = []
        release = _adapter.release_projections

        def watch(Z, directions, run):
            released = release(Z, directions, run)
            gradients.append(released.requires_grad)
            return released

        with monkeypatch.context() as patch:
            patch.setattr(f"{MODULE}.release_projections", watch)
            fitted(tiny(), table)
        return len(gradients) == 6 and not any(gradients)

    assert carries_no_gradient()
    release = _adapter.release_projections

    def passes_gradient(Z, directions, run):
        released = release(Z, directions, run)
        (weight,) = torch.ones(1, dtype=Z.dtype).requires_grad_()
        return released + 0 * weight

    monkeypatch.setattr(f"{MODULE}.release_projections", passes_gradient)
    assert not carries_no_gradient()


def test_labels_of_the_target_are_not_read(table):
    expected = weights(fitted(tiny(), table))
    for label in (-1, 0, 1, 99):
        y = table.y.copy()
        y[N_SOURCE:] = label
        adapter = fitted(tiny(), SimpleNamespace(X=table.X, y=y, domain=table.domain))
        assert_array_equal(weights(adapter), expected)
        assert list(adapter.classes_) == [0, 1]
    y = table.y.astype(float)
    y[N_SOURCE:] = np.nan
    adapter = fitted(tiny(), SimpleNamespace(X=table.X, y=y, domain=table.domain))
    assert_array_equal(weights(adapter), expected)
    # One of the source matters.
    y = table.y.copy()
    y[0] = 1 - y[0]
    changed = fitted(tiny(), SimpleNamespace(X=table.X, y=y, domain=table.domain))
    assert not np.array_equal(weights(changed), expected)


# Sensitivity.


class Exact:
    """A run that draws every row, and releases without noise."""

    def __init__(self, n):
        self.n = n

    def draw(self):
        return [np.arange(self.n)]

    def release(self, value):
        assert np.isfinite(value).all()
        return value


def worst_shift(n_trials=40):
    """Return the largest shift of a release over its bound, when a row is replaced."""
    generator = torch.Generator().manual_seed(0)
    worst, others = 0.0, 0.0
    for trial in range(n_trials):
        size = 10.0 ** (trial % 8 - 2)
        Z = size * torch.randn(9, 4, generator=generator, dtype=torch.float64)
        W = Z.clone()
        # Opposite points are a diameter apart.
        W[4] = -Z[4] * 10.0 ** (trial % 3)
        directions = random_directions(8, 4, generator=generator, dtype=torch.float64)
        first, second = (_adapter.release_projections(P, directions, Exact(9)) for P in (Z, W))
        moved = (first - second).norm(dim=1)
        worst = max(worst, float(moved[4]) / np.sqrt(2))
        others = max(others, float(moved[torch.arange(9) != 4].max()))
    return worst, others


def test_a_record_moves_its_own_row_by_the_bound_at_most(monkeypatch):
    worst, others = worst_shift()
    assert 1 - 1e-12 < worst < 1 + 1e-12
    assert others == 0

    clip_rows = _domains.clip_rows

    def by_batch(Z, radius=0.5):
        return Z * radius / Z.norm(dim=1).max()

    def unclipped(Z, radius=0.5):
        return Z

    def standardized(Z, radius=0.5):
        return clip_rows((Z - Z.mean(dim=0)) / Z.std(dim=0), radius)

    for broken in (by_batch, unclipped, standardized):
        monkeypatch.setattr(_domains, "clip_rows", broken)
        worst, others = worst_shift()
        assert worst > 1.001 or others > 0


@pytest.mark.parametrize("value", [1e3, 1e160, 1e308, np.inf, -np.inf, np.nan])
def test_huge_features_are_clipped(value):
    Z = torch.tensor([[value, 1.0, -value], [0.1, 0.2, 0.0]], dtype=torch.float64)
    clipped = _domains.clip_rows(Z)
    assert torch.isfinite(clipped).all()
    assert (clipped.norm(dim=1) <= 0.5 + 1e-15).all()
    assert_array_equal(clipped[1], Z[1])


def test_huge_records_are_released_finite(table, releases):
    table.X[N_SOURCE:] *= 1e305
    adapter = fitted(tiny(batch_size=N_TARGET), table)
    for value, released in releases:
        assert np.isfinite(released).all()
        # Orthonormal directions keep norms.
        assert (np.linalg.norm(value.reshape(N_TARGET, 4), axis=1) <= 0.5 + 1e-12).all()
    assert np.isfinite(adapter.predict_proba(table.X)).all()


# Noise, report.


def noise_of(adapter, table, releases):
    releases.clear()
    fitted(adapter, table)
    values, released = (np.array(column) for column in zip(*releases, strict=True))
    return (released - values) / adapter.privacy_.noise_scale


class Halved(NoiseSource):
    def normal(self, size):
        return super().normal(size) / 2


def standard(noise):
    n = noise.size
    return abs(noise.mean()) * np.sqrt(n) < 5 and abs((noise**2).mean() - 1) * np.sqrt(n / 2) < 5


@pytest.mark.parametrize("directions", ["orthogonal", "independent"])
def test_the_noise_is_what_the_report_states(table, releases, monkeypatch, directions):
    options = {"max_iter": 30, "directions": directions}
    noise = noise_of(tiny(**options), table, releases)
    assert noise.shape == (30, 24)
    assert standard(noise)
    correlations = np.corrcoef(noise) - np.eye(30)
    assert abs(correlations).max() * np.sqrt(24) < 5
    monkeypatch.setattr("sklearn_dpgen.utils._base.noise_source", lambda *a, **k: Halved())
    assert not standard(noise_of(tiny(**options, random_state=1), table, releases))


def test_both_sides_are_smoothed_alike(table, releases, monkeypatch):
    seen = []
    excess = _adapter.excess_distance

    def watch(projected, released, own):
        assert own.shape == (60, 4)
        assert not own.requires_grad
        seen.append(torch.cat([projected, own]).detach().numpy())
        return excess(projected, released, own)

    monkeypatch.setattr(f"{MODULE}.excess_distance", watch)
    adapter = fitted(tiny(epsilon=0.1, max_iter=20, source_batch_size=60), table)
    # Features are far smaller than the noise.
    scale = adapter.privacy_.noise_scale
    assert scale > 10
    noise = np.array(seen) / scale
    assert standard(noise)
    assert not standard(noise / 1.1)


def test_the_report_prices_the_releases(table, releases):
    adapter = fitted(tiny(epsilon=2.0, directions="independent", n_projections=5), table)
    report = adapter.privacy_
    assert len(releases) == report.n_releases == adapter.max_iter
    assert all(value.size == 6 * 5 for value, _ in releases)
    assert (report.epsilon, report.delta) == (2.0, 0.1 / N_TARGET)
    assert (report.sensitivity, report.sampling_rate) == (1.0, 6 / N_TARGET)
    assert report.noise_scale == pytest.approx(adapter.noise_multiplier_)
    assert "replace one target record" in report.neighbouring
    assert "source records and their labels" in report.public
    assert "void" in report.noise_source
    assert fitted(tiny(random_state=None), table).privacy_.noise_source.startswith("operating")


def test_the_report_agrees_with_the_gaussian_mechanism(table):
    # Whole orthonormal blocks: one record moves a release by sqrt(2), whatever the directions.
    report = fitted(tiny(epsilon=2.0, n_projections=8), table).privacy_
    spent = epsilon_spent(
        report.noise_multiplier / np.sqrt(2), report.delta, sampling_rate=0.2, n_steps=6
    )
    assert 1.98 < spent < 2.0 + 1e-9
    plain = StratifiedGaussianMechanism(
        [Stratum(N_TARGET, 6, np.sqrt(2))], epsilon=2.0, delta=report.delta, n_releases=6
    )
    assert report.noise_scale == pytest.approx(plain.noise_scale, rel=1e-3)


def test_the_cost_is_known_before_a_record_is_read(table, monkeypatch):
    reports = []

    def refuse(self, *args, **kwargs):
        reports.append(self.privacy_)
        raise PermissionError

    monkeypatch.setattr(SmoothedSlicedWassersteinAdapter, "_train_on_source", refuse)
    adapter = tiny(epsilon=3.0)
    with pytest.raises(PermissionError):
        fitted(adapter, table)
    assert reports[0].n_releases == 6
    assert not hasattr(adapter, "module_")


def test_no_noise_and_no_release(table, releases):
    adapter = fitted(tiny(epsilon=np.inf), table)
    assert all(np.array_equal(value, released) for value, released in releases)
    assert (adapter.noise_multiplier_, adapter.privacy_.epsilon) == (0, np.inf)
    releases.clear()
    adapter = fitted(tiny(adaptation_weight=0.0), table)
    assert not releases
    assert (adapter.privacy_.epsilon, adapter.privacy_.n_releases) == (0, 0)
    assert_array_equal(
        weights(adapter), weights(fitted(tiny(adaptation_weight=0.0), other_target(table)))
    )


def test_a_seed_gives_other_records_other_noise(table, releases):
    def correlation(change):
        noise = noise_of(tiny(max_iter=30, **change), table, releases)
        return abs(np.corrcoef(first.ravel(), noise.ravel())[0, 1]) * np.sqrt(noise.size)

    first = noise_of(tiny(max_iter=30), table, releases)
    assert_array_equal(noise_of(tiny(max_iter=30), table, releases), first)
    assert correlation({"epsilon": 2.0}) < 5
    assert correlation({"random_state": 1}) < 5
    table.X[-1, 0] += 1e-9
    assert correlation({}) < 5
