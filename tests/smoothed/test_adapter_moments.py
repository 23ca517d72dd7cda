"""What the adapter releases of its target as two moments, and the map that follows from them."""

from functools import partial
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose, assert_array_equal

from sklearn_dpgen.accounting import GaussianProfile, compose_epsilon
from sklearn_dpgen.domains import Ball, Box
from sklearn_dpgen.mechanisms._sequence import GaussianSequenceRun
from sklearn_dpgen.smoothed import SmoothedSlicedWassersteinAdapter, _adapter
from sklearn_dpgen.smoothed._features import AffineMove, normal_map
from sklearn_dpgen.utils._random import NoiseSource

N_SOURCE, N_TARGET, WIDTH = 50, 400, 20
# So few records of the source, in so many columns, do not tell what the shift is.
FEW = pytest.mark.filterwarnings("ignore:Other shares of the classes:UserWarning")


def tiny(**options):
    small = {
        "release__kind": "moments",
        "domain": partial(Ball, 5.0),
        "adaptation_weight": 1.0,
        "training__hidden_layer_sizes": (6,),
        "feature_dim": 4,
        "source_batch_size": 8,
        "source_iter": 5,
        "training__max_iter": 6,
        "random_state": 0,
    }
    return SmoothedSlicedWassersteinAdapter().set_params(**small | options)


@pytest.fixture
def table():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(N_SOURCE + N_TARGET, WIDTH)) / 3
    domain = np.repeat([1, -2], [N_SOURCE, N_TARGET])
    return SimpleNamespace(X=X, y=(X[:, 0] > 0).astype(int), domain=domain)


def fitted(adapter, table):
    return adapter.fit(table.X, table.y, sample_domain=table.domain)


def other_target(table):
    X = table.X.copy()
    X[N_SOURCE:] = 0.5 - 0.3 * X[N_SOURCE:][::-1]
    return SimpleNamespace(X=X, y=table.y, domain=table.domain)


def weights(adapter):
    return torch.cat([p.detach().flatten() for p in adapter.module_.parameters()]).numpy()


# The releases.


def is_told_by_releases_alone(table, monkeypatch):
    """Whether two targets with the same releases, whatever they are, give the same model."""

    def forced(self, value, noise):
        return 5.0 + np.random.default_rng(value.size).normal(size=value.size)

    with monkeypatch.context() as patch:
        patch.setattr(GaussianSequenceRun, "release", forced)
        first, second = (fitted(tiny(), one) for one in (table, other_target(table)))
    return (
        np.array_equal(weights(first), weights(second))
        and first.loss_curve_ == second.loss_curve_
        and first.privacy_ == second.privacy_
    )


def test_targets_with_equal_releases_give_equal_models(table, monkeypatch):
    assert is_told_by_releases_alone(table, monkeypatch)
    assert not np.array_equal(
        weights(fitted(tiny(), table)), weights(fitted(tiny(), other_target(table)))
    )


def test_what_passes_by_the_release_is_caught(table, monkeypatch):
    adapt = _adapter.adapt_to_moved
    seen = []

    def leaking(module, *args, **options):
        module.transport.linear.bias.data += seen[-1]
        return adapt(module, *args, **options)

    class Spying(SmoothedSlicedWassersteinAdapter):
        def _release(self, plan, records, seed):
            target = records[2]
            seen.append(torch.from_numpy(target.mean(axis=0)))
            return super()._release(plan, records, seed)

    monkeypatch.setattr(f"{__name__}.SmoothedSlicedWassersteinAdapter", Spying)
    assert is_told_by_releases_alone(table, monkeypatch)
    monkeypatch.setattr(_adapter, "adapt_to_moved", leaking)
    assert not is_told_by_releases_alone(table, monkeypatch)


class Halved(NoiseSource):
    def normal(self, size):
        return super().normal(size) / 2


def test_the_noise_is_what_was_paid_for(table, monkeypatch):
    """Of each release over the change that one record makes, as the curator sees it."""
    seen = []
    release = GaussianSequenceRun.release

    def watch(self, value, noise):
        seen.append((value.copy(), release(self, value, noise)))
        return seen[-1][1]

    monkeypatch.setattr(GaussianSequenceRun, "release", watch)

    def noise_costs_no_more(seed):
        seen.clear()
        report = fitted(tiny(epsilon=2.0, random_state=seed), table).privacy_
        assert (len(seen), report.n_releases) == (2, 2)
        scales = [np.sqrt(np.mean((released - value) ** 2)) for value, released in seen]
        # The first has 21 entries; the second, 210, has nine tenths of the budget.
        spent = compose_epsilon([(GaussianProfile(1 / s), 1) for s in scales], report.delta)
        return spent < 2.0 * 1.35

    assert noise_costs_no_more(0)
    monkeypatch.setattr(
        "sklearn_dpgen.ledger._base.noise_source", lambda *args, **options: Halved()
    )
    assert not noise_costs_no_more(1)


@FEW
def test_the_report_prices_the_releases(table):
    report = fitted(tiny(epsilon=2.0), table).privacy_
    assert (report.epsilon, report.delta) == (2.0, 0.1 / N_TARGET)
    assert "replace one target record" in report.neighbouring
    assert {"domain", "source"} <= set(report.public)
    assert "void" in report.noise_source
    free = fitted(tiny(epsilon=np.inf), table)
    assert (free.privacy_.epsilon, free.noise_multiplier_) == (np.inf, 0)
    unused = fitted(tiny(adaptation_weight=0.0, domain=None), table)
    assert (unused.privacy_.epsilon, unused.privacy_.n_releases) == (0, 0)


@FEW
def test_records_are_moved_into_the_domain(table, monkeypatch):
    """A record beyond it counts as its nearest point."""
    far = SimpleNamespace(X=table.X.copy(), y=table.y, domain=table.domain)
    far.X[-1] = 1e9
    at_the_edge = SimpleNamespace(X=far.X.copy(), y=table.y, domain=table.domain)
    at_the_edge.X[-1] = 5 / np.sqrt(WIDTH)

    def apart():
        first, second = (weights(fitted(tiny(epsilon=np.inf), one)) for one in (far, at_the_edge))
        return abs(first - second).max()

    assert apart() < 1e-6
    monkeypatch.setattr(Ball, "project", lambda self, X: X)
    assert apart() > 1e-3


@FEW
def test_it_is_the_domain_that_they_are_moved_into(table, monkeypatch):
    """And not the ball around it, which the price is for."""
    options = {"epsilon": np.inf, "domain": partial(Box, -1, 1)}
    far = SimpleNamespace(X=table.X.clip(-1, 1), y=table.y, domain=table.domain)
    at_the_edge = SimpleNamespace(X=far.X.copy(), y=table.y, domain=table.domain)
    far.X[-1, 0], at_the_edge.X[-1, 0] = 1e9, 1

    def apart():
        first, second = (weights(fitted(tiny(**options), one)) for one in (far, at_the_edge))
        return abs(first - second).max()

    assert apart() < 1e-12
    monkeypatch.setattr(Box, "project", lambda self, X: X)
    assert apart() > 1e-6


def test_a_domain_has_the_width_of_the_records(table):
    with pytest.raises(ValueError, match="domain has 3 features, X has 20 features"):
        fitted(tiny(domain=Ball(1.0, n_features=3)), table)


# The map.


def test_the_map_takes_one_covariance_to_another():
    rng = np.random.default_rng(0)
    A, B = (M @ M.T for M in rng.normal(size=(2, 5, 5)))
    T = normal_map(A, B)
    ridge = 0.02 * np.trace(A) / 5 * np.eye(5)
    assert_allclose(T @ (A + ridge) @ T, B + ridge, atol=1e-9)
    assert_allclose(T, T.T, atol=1e-9)
    assert np.linalg.eigvalsh(T).min() > 0
    assert_allclose(normal_map(A, A), np.eye(5), atol=1e-9)
    a, b = np.diag([1.0, 4.0]), np.diag([9.0, 1.0])
    assert_allclose(
        normal_map(a, b), np.diag([np.sqrt(9.05 / 1.05), np.sqrt(1.05 / 4.05)]), atol=1e-12
    )


def test_directions_without_variance_have_no_map():
    A = np.diag([1.0, 0.0])
    assert_allclose(normal_map(A, A), np.eye(2), atol=1e-12)
    assert np.isfinite(normal_map(np.zeros((2, 2)), A)).all()


def test_a_map_of_records_becomes_what_it_is_set_to():
    rng = np.random.default_rng(0)
    X = rng.normal(2.0, 3.0, size=(30, 4))
    move = AffineMove.of_records(X).double()
    Z = torch.from_numpy(X)
    assert_allclose(move(Z).detach(), X, atol=1e-12)
    T, mean = rng.normal(size=(4, 4)), rng.normal(size=4)
    move.set_to(T, mean)
    assert_allclose(move(Z).detach(), (X - X.mean(axis=0)) @ T.T + mean, atol=1e-12)
    constant = AffineMove.of_records(np.ones((3, 2)))
    assert constant.scale == 1.0


def test_the_source_is_moved_to_the_moments_of_the_target(table):
    """Without noise, and with a domain that holds all."""
    table.X[N_SOURCE:] = 0.7 + 0.5 * table.X[N_SOURCE:]
    adapter = fitted(tiny(epsilon=np.inf, domain=partial(Box, -9, 9)), table)
    source, target = table.X[:N_SOURCE], table.X[N_SOURCE:]
    moved = adapter.module_.move(torch.from_numpy(source)).detach().numpy()
    assert_allclose(moved.mean(axis=0), target.mean(axis=0), atol=1e-5)  # of a grid for exact sums
    gaps = [np.linalg.norm(np.cov(Z.T) - np.cov(target.T)) for Z in (source, moved)]
    assert gaps[1] < 0.25 * gaps[0]
    assert_array_equal(adapter.domain_.low, -9)
