"""How far one record moves a release of the smoothed generator."""

import math
from functools import partial
from types import SimpleNamespace

import numpy as np
import pytest
from generator_cases import KINDS, of_records, train

from sklearn_dpgen.domains import Ball, Box, Domain, OneHot, Product
from sklearn_dpgen.domains._ball import enclosing_ball
from sklearn_dpgen.smoothed import _generator
from sklearn_dpgen.smoothed._plan import plan_releases

DOMAINS = [
    Box(-1.0, 1.0),
    Box([4.0, 5.0], [5.0, 9.0]),
    Ball(2.0, center=[3.0, 1.0, 0.0]),
    Ball(2.0, p=1, center=[3.0, 1.0]),
    Ball(2.0, p=np.inf, center=[3.0, 1.0]),
    OneHot(4),
    Product([Box(3, 4), OneHot(3)]),
]


def opposite(domain, x):
    """Return a point of the domain about as far from x as there is."""
    if isinstance(domain, Product):
        parts = zip(domain.domains, domain.slices, strict=True)
        return np.concatenate([opposite(factor, x[part]) for factor, part in parts])
    center = enclosing_ball(domain).center
    return domain.project((center + 1e6 * (center - x))[None])[0]


def largest_change(tiny_generator, released, domain, kind, n_trials=15):
    """Return the largest change of a release by one record, and the sensitivity that is stated."""
    rng = np.random.default_rng(0)
    largest = 0.0
    for trial in range(n_trials):
        X = domain.sample(6, rng)
        X[0] = domain.project(50 * rng.normal(size=(1, domain.n_features)))[0]
        if trial % 2:
            # Beyond the domain.
            X[0] = enclosing_ball(domain).center + 9 * (X[0] - enclosing_ball(domain).center)
        y = np.array([0, 0, 0, 1, 1, 1])
        X_other, y_other = X.copy(), y.copy()
        X_other[0] = X[0] if trial % 5 == 4 else opposite(domain, domain.project(X[:1])[0])
        if kind == "private" and trial % 3:
            y_other[0] = 1
        values = []
        for one, labels in ((X, y), (X_other, y_other)):
            generator = tiny_generator(
                domain=domain,
                release__batch_size=6,
                release__n_epochs=1.0,
                training__max_iter=1,
                epsilon=np.inf,
            )
            released.clear()
            train(generator, SimpleNamespace(X=one, y=labels), kind)
            ((value, _),) = of_records(released, kind)
            values.append(value)
        largest = max(largest, np.linalg.norm(values[0] - values[1]))
    return largest, generator.privacy_.sensitivity


@pytest.mark.slow
@pytest.mark.parametrize("domain", DOMAINS, ids=str)
@pytest.mark.parametrize("kind", KINDS)
def test_one_record_changes_a_release_by_the_sensitivity(tiny_generator, released, kind, domain):
    change, stated = largest_change(tiny_generator, released, domain, kind)
    assert stated == pytest.approx(domain.diameter(2))
    assert 0.97 * stated < change <= stated * (1 + 1e-12)


@pytest.mark.parametrize("kind", KINDS)
def test_records_that_are_not_projected_are_caught(tiny_generator, released, monkeypatch, kind):
    monkeypatch.setattr(Domain, "project", lambda self, X: X)
    change, stated = largest_change(tiny_generator, released, Ball(1.0, n_features=2), kind)
    assert change > 3 * stated


@pytest.mark.slow
def test_private_labels_without_centering_are_caught(tiny_generator, released, monkeypatch):
    def uncentered(domain):
        return Ball(enclosing_ball(domain).radius, n_features=domain.n_features)

    monkeypatch.setattr(_generator, "enclosing_ball", uncentered)
    domain = Box([4.0, 5.0], [5.0, 9.0])
    for kind in ("none", "public"):
        change, stated = largest_change(tiny_generator, released, domain, kind)
        assert change <= stated * (1 + 1e-12)
    change, stated = largest_change(tiny_generator, released, domain, "private")
    assert change > 1.5 * stated


def test_another_label_takes_two_radii_where_they_are_more():
    # By Jung's theorem sqrt(2) radii of the smallest ball are less than the diameter.
    for domain in DOMAINS:
        assert math.sqrt(2) * enclosing_ball(domain).radius < domain.diameter(2)
    plan = partial(plan_releases, [10], 2.0, 2, epsilon=1.0, delta=1e-2, batch_size=1, n_epochs=1.0)
    assert plan(slot_radius=3.0).records.sensitivity == pytest.approx(3 * math.sqrt(2))
    assert plan().records.sensitivity == 2.0
