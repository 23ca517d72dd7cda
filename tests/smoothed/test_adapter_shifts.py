"""What the adapter takes released moments for: other shares of classes, a map, or neither."""

import warnings
from functools import partial

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose, assert_array_equal
from scipy import stats

from sklearn_dpgen.domains import Ball
from sklearn_dpgen.mechanisms._class_moments import MomentPlan
from sklearn_dpgen.mechanisms._sequence import GaussianSequenceRun
from sklearn_dpgen.smoothed import SmoothedSlicedWassersteinAdapter, _adapter, _shifts
from sklearn_dpgen.smoothed._shifts import explain

CENTERS = 1.5 * np.array([[0.0, 0, 0], [1, 0, 0], [0, 1, 0]])
EVEN, OTHER = np.full(3, 1 / 3), np.array([0.1, 0.2, 0.7])


def draw(n, shares, move=0.0, seed=0):
    rng = np.random.default_rng(seed)
    y = rng.choice(3, size=n, p=shares)
    return CENTERS[y] + rng.normal(size=(n, 3)) + move, y


def both(shares, move=0.0, seed=0):
    """Return records of 3000 source and 3000 target rows, all labels, and domains."""
    (X, y), (Z, labels) = draw(3000, EVEN, seed=seed), draw(3000, shares, move, seed=seed + 1)
    return np.vstack([X, Z]), np.append(y, labels), np.repeat([1, -2], 3000)


def made(**options):
    small = {
        "training__hidden_layer_sizes": (16,),
        "feature_dim": 4,
        "source_batch_size": 128,
        "source_iter": 200,
        "source_learning_rate": 0.01,
        "training__max_iter": 150,
        "training__learning_rate": 0.01,
        "random_state": 0,
    }
    return SmoothedSlicedWassersteinAdapter().set_params(**small | options)


def fitted(adapter, X, y, domain):
    return adapter.fit(X, np.where(domain < 0, -1, y), sample_domain=domain)


def accuracy(adapter, X, y, domain):
    return np.mean(adapter.predict(X[domain < 0]) == y[domain < 0])


# The explanation.


@pytest.mark.parametrize("spread", [0.0, 0.02])
def test_other_shares_explain_a_mean(spread):
    X, y = draw(3000, EVEN)
    rng = np.random.default_rng(3)
    for seed in range(5):
        Z, _ = draw(3000, OTHER, seed=seed + 10)
        shift = explain(X, y, 3, Z.mean(axis=0) + spread * rng.normal(size=3), spread, 3000)
        assert shift.kind == "labels"
        assert_allclose(shift.shares, OTHER, atol=0.06 + spread)
        assert shift.shares.sum() == pytest.approx(1)


def test_shares_that_have_not_changed_are_kept():
    X, y = draw(3000, EVEN)
    prior = np.bincount(y) / len(y)
    changes = []
    for seed in range(20):
        Z, _ = draw(3000, EVEN, seed=seed + 10)
        shift = explain(X, y, 3, Z.mean(axis=0), 0.0, 3000)
        changes.append(abs(shift.shares - prior).max())
        assert shift.kind == "labels"
    assert np.median(changes) == 0
    assert max(changes) < 0.05
    # Noise that hides all leaves them too.
    hidden = explain(X, y, 3, Z.mean(axis=0) + [3.0, -3.0, 3.0], 5.0, 3000)
    assert_allclose(hidden.shares, prior)


def test_moved_records_are_not_other_shares():
    X, y = draw(3000, EVEN)
    prior = np.bincount(y) / len(y)
    for move, kind in ((0.5, "none"), (3.0, "map")):
        Z, _ = draw(3000, EVEN, move=move * np.array([0, 0, 1.0]), seed=1)
        shift = explain(X, y, 3, Z.mean(axis=0), 0.0, 3000)
        assert shift.kind == kind
        assert_array_equal(shift.shares, prior)
        # The squared distance in standard deviations; a column counts for a twentieth more.
        assert shift.residual == pytest.approx(move**2 / 1.05, rel=0.15)


def test_a_class_does_not_vanish():
    X, y = draw(3000, EVEN)
    Z, _ = draw(3000, [0.0, 0.0, 1.0], seed=1)
    shift = explain(X, y, 3, Z.mean(axis=0), 0.0, 3000)
    assert shift.kind == "labels"
    assert (shift.shares[:2] > 0.01).all()


def test_columns_without_variance():
    X, y = draw(500, EVEN)
    X = np.column_stack([X, np.zeros(500)])
    shift = explain(X, y, 3, X.mean(axis=0), 0.0, 500)
    assert (shift.kind, shift.residual < 0.01) == ("labels", True)


@pytest.mark.slow
@pytest.mark.parametrize(("n_source", "n_target"), [(400, 400), (400, 4000), (150, 400)])
def test_few_records_of_many_columns_are_not_a_shift(monkeypatch, n_source, n_target):
    d, n_draws = 100, 60

    def rows(n, rng, move=0.0):
        y = rng.integers(2, size=n)
        return rng.normal(size=(n, d)) + y[:, None] * np.eye(d)[0] + move, y

    def of_draws(move=0.0):
        found = []
        for seed in range(n_draws):
            rng = np.random.default_rng(seed)
            X, y = rows(n_source, rng)
            Z, _ = rows(n_target, rng, move)
            found.append(explain(X, y, 2, Z.mean(axis=0), 0.0, n_target))
        others = sum(shift.kind != "labels" for shift in found)
        return others, np.array([shift.residual for shift in found])

    others, residuals = of_draws()
    # Three standard deviations: more than four of sixty at a level of .01 has a chance of 3e-4.
    assert others <= 4
    assert abs(residuals.mean()) < 5 * stats.sem(residuals) + 0.01
    # A fifth of a standard deviation in each column has a squared length of 4.
    assert of_draws(move=0.2)[0] > n_draws / 2
    # Twin: the covariance of the records taken for the true one.
    monkeypatch.setattr(_shifts, "_optimism", lambda *args: 1.0)
    others, residuals = of_draws()
    assert others > 4
    assert residuals.mean() > 5 * stats.sem(residuals) + 0.01


# What follows from it.


@pytest.mark.slow
def test_other_shares_correct_the_network():
    data = both(OTHER)
    alone = accuracy(fitted(made(adaptation_weight=0.0), *data), *data)
    adapter = fitted(made(), *data)
    assert adapter.shift_ == "labels"
    assert_allclose(adapter.class_shares_, OTHER, atol=0.1)
    assert (adapter.n_iter_, adapter.loss_curve_) == (200, [])
    assert accuracy(adapter, *data) > alone + 0.05
    # Twin: a map does harm, and is warned of.
    with pytest.warns(UserWarning, match="Other shares of the classes explain"):
        mapped = fitted(made(adaptation_weight=1.0), *data)
    assert (mapped.shift_, mapped.n_iter_) == ("map", 350)
    assert accuracy(mapped, *data) < alone


@pytest.mark.slow
def test_a_target_that_lies_elsewhere_is_mapped():
    # Along the difference of two classes, and across.
    data = both(EVEN, move=np.array([-1.5, -1.5, 2.0]))
    alone = accuracy(fitted(made(adaptation_weight=0.0), *data), *data)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        adapter = fitted(made(), *data)
    assert adapter.shift_ == "map"
    assert_allclose(adapter.class_shares_, np.bincount(data[1][:3000]) / 3000)
    assert accuracy(adapter, *data) > alone + 0.1


@pytest.mark.slow
def test_a_target_that_tells_no_shift_is_left_alone():
    data = both(EVEN, move=np.array([0, 0, 0.5]))
    alone = fitted(made(adaptation_weight=0.0), *data)
    with pytest.warns(UserWarning, match="the network of the source is kept"):
        adapter = fitted(made(), *data)
    assert (alone.shift_, adapter.shift_) == ("none", "none")
    X = data[0][:9]
    assert_array_equal(adapter.predict_proba(X), alone.predict_proba(X))


# Privacy.


def is_told_by_releases_alone(monkeypatch, value):
    """Whether two targets with the same releases, whatever they are, give the same model."""

    def forced(self, exact, noise):
        return value + np.random.default_rng(exact.size).normal(size=exact.size)

    with monkeypatch.context() as patch:
        patch.setattr(GaussianSequenceRun, "release", forced)
        models = [
            fitted(made(source_iter=3, training__max_iter=3), *both(OTHER, move))
            for move in (0.0, 2.0)
        ]
    flat = [torch.cat([p.flatten() for p in m.module_.parameters()]) for m in models]
    return (
        torch.equal(*flat)
        and models[0].shift_ == models[1].shift_
        and np.array_equal(models[0].class_shares_, models[1].class_shares_)
    )


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("value", [0.0, 3000.0])
def test_targets_with_equal_releases_give_equal_models(monkeypatch, value):
    assert is_told_by_releases_alone(monkeypatch, value)


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_an_explanation_of_the_records_is_caught(monkeypatch):
    seen, measure = [], MomentPlan.measure

    def watch(self, X, codes, noise):
        seen.append(X.mean(axis=0))
        return measure(self, X, codes, noise)

    def leaking(own, labels, n_classes, mean, *args):
        return explain(own, labels, n_classes, seen[-1], *args)

    monkeypatch.setattr(MomentPlan, "measure", watch)
    assert is_told_by_releases_alone(monkeypatch, 0.0)
    monkeypatch.setattr(_adapter, "explain", leaking)
    assert not is_told_by_releases_alone(monkeypatch, 0.0)


def released_rows(adapter, X, y, domain, monkeypatch):
    """Return the target's rows as the mechanism gets them, and its domain."""
    seen, measure = [], MomentPlan.measure

    def watch(self, X, codes, noise):
        seen.append(X)
        return measure(self, X, codes, noise)

    with monkeypatch.context() as patch:
        patch.setattr(MomentPlan, "measure", watch)
        adapter = fitted(adapter, X, y, domain)
    return seen[0], adapter.domain_


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_without_a_domain_units_are_those_of_the_source(monkeypatch):
    tiny = partial(made, source_iter=2, training__max_iter=2)
    X, y, domain = both(EVEN)
    X[:, 2] /= 10
    far = X.copy()
    far[-1] = [1e6, -1e6, 0.0]

    def other_rows_move():
        (rows, ball), (others, _) = (
            released_rows(tiny(), Z, y, domain, monkeypatch) for Z in (X, far)
        )
        assert ball == Ball(2 * np.sqrt(3), n_features=3)
        assert max(map(np.linalg.norm, (*rows, *others))) <= ball.radius * (1 + 1e-12)
        return abs(rows[:-1] - others[:-1]).max()

    assert other_rows_move() == 0
    rows, _ = released_rows(tiny(), X, y, domain, monkeypatch)
    source = X[:3000]
    spreads = source.std(axis=0)
    units = np.maximum(spreads, np.sqrt(np.mean(spreads**2)))
    inside = np.linalg.norm((X[3000:] - source.mean(axis=0)) / units, axis=1) < 2 * np.sqrt(3)
    assert_allclose(rows[inside], ((X[3000:] - source.mean(axis=0)) / units)[inside])
    # Twin: units of the target, which one record may change.
    of_rows = SmoothedSlicedWassersteinAdapter._in_domain
    monkeypatch.setattr(
        SmoothedSlicedWassersteinAdapter,
        "_in_domain",
        lambda self, Z, source, ball: of_rows(self, Z, Z, ball),
    )
    assert other_rows_move() > 0.01


def test_the_report_names_a_domain_only_if_there_is_one():
    for given, named in ((None, False), (Ball(5.0, n_features=3), True)):
        report = made(domain=given).plan(3000, 3)
        assert ("domain" in report.public) == named
