"""Fits that a forecast is compared with: the parts of bench_forecast.py that train on gradients."""

import numpy as np
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression

from sklearn_dpgen.domains import Ball
from sklearn_dpgen.predictors import BarycenterClassifier
from sklearn_dpgen.sliced import (
    DPSlicedWassersteinAdapter,
    DPSlicedWassersteinFairClassifier,
    DPSlicedWassersteinFairEncoder,
    DPSlicedWassersteinFairRegressor,
    DPSlicedWassersteinGenerator,
)
from sklearn_dpgen.smoothed import (
    SmoothedSlicedWassersteinAdapter,
    SmoothedSlicedWassersteinGenerator,
)

# Below what an accountant warns of, for all sizes.
_DELTA = 1e-7


def fair():
    """Yield names of fits, a function that fits, and a function that plans the same."""
    rng = np.random.default_rng(0)
    cases = (
        ("classifier", 2_000, 5, (), 60),
        ("classifier", 20_000, 16, (), 500),
        ("classifier", 20_000, 100, (64,), 100),
        ("regressor", 5_000, 10, (32,), 200),
        ("encoder", 2_000, 5, (64,), 200),
        ("encoder", 20_000, 30, (64,), 100),
    )
    for kind, n, d, widths, n_steps in cases:
        options = {"hidden_layer_sizes": widths, "max_iter": n_steps, "delta": _DELTA}
        X, groups = rng.normal(size=(n, d)), rng.integers(2, size=n)
        targets = (rng.integers(2, size=n),)
        if kind == "classifier":
            model = DPSlicedWassersteinFairClassifier(**options)
        elif kind == "regressor":
            model = DPSlicedWassersteinFairRegressor(y_domain=(0, 1), **options)
        else:
            model, targets = DPSlicedWassersteinFairEncoder(**options), ()
        yield (
            f"{kind}, {n} x {d}, {widths}, {n_steps} steps",
            lambda m=model, X=X, t=targets, g=groups: m.fit(X, *t, sensitive_features=g),
            lambda m=model, n=n, d=d, g=groups: m.plan(n, d, group_sizes=np.bincount(g)),
        )


def generator():
    """Yield, as :func:`fair`, fits of generators and adapters of sliced gradients."""
    rng = np.random.default_rng(0)
    for n, d, widths, n_steps in (
        (2_000, 2, (128, 64, 64), 300),
        (20_000, 30, (128, 64, 64), 30),
        (5_000, 100, (256, 256), 10),
    ):
        X = rng.normal(size=(n, d))
        model = DPSlicedWassersteinGenerator(
            domain=Ball(3.0, n_features=d),
            hidden_layer_sizes=widths,
            max_iter=n_steps,
            delta=_DELTA,
        )
        yield (
            f"generator, {n} x {d}, {widths}, {n_steps} steps",
            lambda m=model, X=X: m.fit(X),
            lambda m=model, n=n: m.plan(n),
        )
    for n, d, private in ((2_000, 5, "target"), (20_000, 30, "both")):
        X, y = rng.normal(size=(n, d)), rng.integers(2, size=n)
        domain = np.where(np.arange(n) < n // 2, 1, -1)
        model = DPSlicedWassersteinAdapter(private=private, max_iter=50, delta=_DELTA)
        n_private = n if private == "both" else n // 2
        yield (
            f"adapter, {n} x {d}, private {private}",
            lambda m=model, X=X, y=y, s=domain: m.fit(X, y, s),
            lambda m=model, n=n, d=d, p=n_private: m.plan(p, d, n_source=n // 2),
        )


def smoothed():
    """Yield, as :func:`fair`, fits of generators and adapters on noisy releases."""
    rng = np.random.default_rng(0)
    for release, n, d, n_steps in (
        ("records", 2_000, 2, 1000),
        ("records", 20_000, 10, 200),
        ("records", 20_000, 30, 200),
        ("moments", 5_000, 100, 500),
        ("projections", 20_000, 50, 500),
    ):
        X = rng.normal(size=(n, d))
        model = SmoothedSlicedWassersteinGenerator(
            release=release, domain=Ball(3.0, n_features=d), max_iter=n_steps, delta=_DELTA
        )
        yield (
            f"smoothed generator of {release}, {n} x {d}, {n_steps} steps",
            lambda m=model, X=X: m.fit(X),
            lambda m=model, n=n: m.plan(n),
        )
    for release, n, d in (
        ("features", 10_000, 20),
        ("projections", 10_000, 20),
        ("moments", 10_000, 60),
    ):
        X, y = rng.normal(size=(n, d)), rng.integers(2, size=n)
        domain = np.where(np.arange(n) < n // 2, 1, -1)
        model = SmoothedSlicedWassersteinAdapter(
            release=release,
            domain=Ball(6.0, n_features=d),
            source_iter=1000,
            max_iter=200,
            delta=_DELTA,
        )
        yield (
            f"smoothed adapter by {release}, {n} x {d}",
            lambda m=model, X=X, y=y, s=domain: m.fit(X, y, s),
            lambda m=model, n=n, d=d: m.plan(n - n // 2, d),
        )


def predictors():
    """Yield, as :func:`fair`, fits of barycentres: of frozen classifiers, and of private ones."""
    rng = np.random.default_rng(0)
    for n, n_groups in ((10_000, 2), (100_000, 2), (100_000, 20)):
        X, groups = rng.normal(size=(n, 5)), np.arange(n) % n_groups
        y = (X[:, 0] > 0).astype(int)
        model = LogisticRegression().fit(X[:1000], y[:1000])
        model = BarycenterClassifier(FrozenEstimator(model), delta=_DELTA)
        yield (
            f"barycentre, frozen, {n} x 5, {n_groups} groups",
            lambda m=model, X=X, y=y, g=groups: m.fit(X, y, sensitive_features=g),
            lambda m=model, n=n, g=n_groups: m.plan(n, n_groups=g),
        )
    n = 20_000
    X, groups = rng.normal(size=(n, 10)), rng.integers(2, size=n)
    y = (X[:, 0] > 0).astype(int)
    learner = DPSlicedWassersteinFairClassifier(0.0, epsilon=0.5, delta=_DELTA / 10)
    model = BarycenterClassifier(learner, delta=_DELTA)
    yield (
        f"barycentre of a private classifier, {n} x 10",
        lambda: model.fit(X, y, sensitive_features=groups),
        lambda: model.plan(n, 10),
    )
