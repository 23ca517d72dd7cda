"""What the adapter lets out of its target records: noisy features, and nothing else."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch
from numpy.testing import assert_array_equal

from sklearn_dpgen.accounting import epsilon_spent
from sklearn_dpgen.mechanisms._sampled import StratifiedGaussianRun
from sklearn_dpgen.smoothed import SmoothedSlicedWassersteinAdapter, _adapter, _features, _releases
from sklearn_dpgen.utils._random import NoiseSource

N_SOURCE, N_TARGET = 40, 30


def tiny(**options):
    small = {
        "training__hidden_layer_sizes": (6,),
        "feature_dim": 4,
        "release__kind": "records",
        "release__batch_size": 6,
        "release__n_epochs": 1.2,
        "release__n_projections": 12,
        "source_batch_size": 8,
        "source_iter": 5,
        "training__max_iter": 6,
        "training__learning_rate": 0.01,
        "random_state": 0,
    }
    return SmoothedSlicedWassersteinAdapter().set_params(**small | options)


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
    forced_values = np.random.default_rng(3).normal(size=6 * 24)

    def forced(self, value):
        self._is_drawn = False
        return forced_values.copy()

    with monkeypatch.context() as patch:
        patch.setattr(StratifiedGaussianRun, "release", forced)
        first, second = (fitted(tiny(), one) for one in (table, other_target(table)))
    return (
        np.array_equal(weights(first), weights(second))
        and first.loss_curve_ == second.loss_curve_
        and first.privacy_ == second.privacy_
    )


def test_targets_with_equal_releases_give_equal_models(table, monkeypatch):
    assert is_told_by_releases_alone(table, monkeypatch)
    # Without forcing them, the target does matter.
    assert not np.array_equal(
        weights(fitted(tiny(), table)), weights(fitted(tiny(), other_target(table)))
    )


@pytest.mark.parametrize(
    "leak",
    [
        lambda Z: Z.std(),
        lambda Z: abs(Z.mean()),
    ],
    ids=["scale of the target", "mean of the target"],
)
def test_what_passes_by_the_release_is_caught(table, monkeypatch, leak):
    count = _releases.count_releases

    def leaking(mechanism, noise, records, *args, **options):
        counts = count(mechanism, noise, records, *args, **options)
        counts[..., :128] *= 1 + leak(records.records)
        return counts

    monkeypatch.setattr(_releases, "count_releases", leaking)
    assert not is_told_by_releases_alone(table, monkeypatch)


def test_features_do_not_depend_on_the_target(table):
    first, second = (fitted(tiny(), one).module_ for one in (table, other_target(table)))
    for name, value in first.body.state_dict().items():
        assert_array_equal(value, second.body.state_dict()[name])


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


def worst_shift(n_trials=40):
    """Return the largest change of a record over its bound, and that of others."""
    torch.manual_seed(0)
    worst, others = 0.0, 0.0
    for trial in range(n_trials):
        module = _features.AdaptedNetwork(4, (), 4, 2, "relu").double()
        with torch.no_grad():
            module.body[0].weight.copy_(torch.eye(4))
            module.body[0].bias.zero_()
        Z = 10.0 ** (trial % 8 - 2) * torch.randn(9, 4, dtype=torch.float64)
        W = Z.clone()
        # Opposite points are a diameter apart.
        W[4] = -Z[4] * 10.0 ** (trial % 3)
        first, second = (_features.feature_records(module, P).records for P in (Z, W))
        moved = np.linalg.norm(first - second, axis=1)
        worst = max(worst, moved[4])
        others = max(others, np.delete(moved, 4).max())
    return worst, others


def test_a_record_moves_its_own_row_by_the_bound_at_most(monkeypatch):
    worst, others = worst_shift()
    assert 1 - 1e-12 < worst < 1 + 1e-12
    assert others == 0

    clip_rows = _features.clip_rows

    def by_batch(Z, radius=0.5):
        return Z * radius / Z.norm(dim=1).max()

    def unclipped(Z, radius=0.5):
        return Z

    def standardized(Z, radius=0.5):
        return clip_rows((Z - Z.mean(dim=0)) / Z.std(dim=0), radius)

    for broken in (by_batch, unclipped, standardized):
        monkeypatch.setattr(_features, "clip_rows", broken)
        worst, others = worst_shift()
        assert worst > 1.001 or others > 0


@pytest.mark.parametrize("value", [1e3, 1e160, 1e308, np.inf, -np.inf, np.nan])
def test_huge_features_are_clipped(value):
    Z = torch.tensor([[value, 1.0, -value], [0.1, 0.2, 0.0]], dtype=torch.float64)
    clipped = _features.clip_rows(Z)
    assert torch.isfinite(clipped).all()
    assert (clipped.norm(dim=1) <= 0.5 + 1e-15).all()
    assert_array_equal(clipped[1], Z[1])


def test_huge_records_are_released_finite(table, releases):
    table.X[N_SOURCE:] *= 1e305
    adapter = fitted(tiny(release__batch_size=N_TARGET), table)
    for value, released in releases:
        assert np.isfinite(released).all()
        assert (np.linalg.norm(value.reshape(-1, 4), axis=1) <= 0.5 + 1e-12).all()
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


def test_the_noise_is_what_the_report_states(table, releases, monkeypatch):
    noise = noise_of(tiny(release__n_epochs=6), table, releases).reshape(30, 24)
    assert standard(noise)
    correlations = np.corrcoef(noise) - np.eye(30)
    assert abs(correlations).max() * np.sqrt(24) < 5
    monkeypatch.setattr("sklearn_dpgen.ledger._base.noise_source", lambda *a, **k: Halved())
    assert not standard(noise_of(tiny(release__n_epochs=6, random_state=1), table, releases))


def test_a_release_holds_features_of_a_secret_batch(table, releases):
    """The rows that were drawn, each from the target, in random order, and drawn anew."""

    def batches(adapter):
        releases.clear()
        fitted(adapter, table)
        with torch.no_grad():
            features = adapter.module_.features(torch.from_numpy(table.X[N_SOURCE:])).numpy()
        values = np.concatenate([value for value, _ in releases]).reshape(-1, 4)
        distances = abs(values[:, None] - features).sum(axis=-1)
        assert distances.min(axis=1).max() < 1e-12
        return distances.argmin(axis=1).reshape(-1, 6)

    rows = batches(tiny(release__n_epochs=40))
    assert len(rows) == 200
    assert all(len(set(row)) == 6 for row in rows)
    assert abs((np.diff(rows, axis=1) > 0).mean() - 0.5) < 5 * 0.5 / np.sqrt(200)
    counts = np.bincount(rows.ravel(), minlength=N_TARGET)
    assert abs(counts - 40).max() < 5 * np.sqrt(40)


def test_the_guarantee_is_recomputed(table):
    report = fitted(tiny(epsilon=2.0), table).privacy_
    spent = epsilon_spent(report.noise_multiplier, report.delta, sampling_rate=0.2, n_steps=6)
    assert 1.98 < spent <= 2.0
    less = epsilon_spent(0.8 * report.noise_multiplier, report.delta, sampling_rate=0.2, n_steps=6)
    assert less > 2.0


def test_the_report_prices_the_releases(table, releases):
    adapter = fitted(tiny(epsilon=2.0), table)
    report = adapter.privacy_
    assert report.n_releases == 6
    assert sum(value.size for value, _ in releases) == 6 * 6 * 4
    assert (report.epsilon, report.delta) == (2.0, 0.1 / N_TARGET)
    assert (report.sensitivity, report.sampling_rate) == (1.0, 6 / N_TARGET)
    assert report.noise_scale == pytest.approx(adapter.noise_multiplier_)
    assert "replace one target record" in report.neighbouring
    assert "source" in report.public
    assert "void" in report.noise_source
    assert fitted(tiny(random_state=None), table).privacy_.noise_source.startswith("operating")


def test_the_cost_is_known_before_a_record_is_read(table, monkeypatch):
    reports = []

    def refuse(*args, **kwargs):
        reports.append(adapter.privacy_)
        raise PermissionError

    monkeypatch.setattr(_adapter, "train_on_source", refuse)
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
