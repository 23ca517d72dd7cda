"""Small estimators, a small table, and a look at the gradients that a fit would release."""

from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from sklearn_dpgen.domains import Ball, Box
from sklearn_dpgen.sliced import (
    DPSlicedWassersteinFairClassifier,
    DPSlicedWassersteinFairEncoder,
    DPSlicedWassersteinFairRegressor,
    DPSlicedWassersteinGenerator,
)
from sklearn_dpgen.sliced._base import SlicedEstimator


def pytest_collection_modifyitems(items):
    """Let fits pass of tables so small that noise is all there is."""
    ignored = pytest.mark.filterwarnings("ignore::sklearn_dpgen.exceptions.NoisyGradientsWarning")
    for item in items:
        if item.path.parent == Path(__file__).parent:
            item.add_marker(ignored)


_KINDS = {
    "regressor": DPSlicedWassersteinFairRegressor,
    "classifier": DPSlicedWassersteinFairClassifier,
    "encoder": DPSlicedWassersteinFairEncoder,
    "generator": DPSlicedWassersteinGenerator,
}
_DECLARED = {
    # In a ball a fit places no box before its steps (test_target_box.py).
    "regressor": {"y_domain": partial(Ball, 2.0), "alpha": 0.5},
    # The weight that noise allows to so few records is next to nothing (test_default_alpha.py).
    "classifier": {"alpha": 0.5},
    "generator": {"domain": partial(Box, -3, 3)},
}
_TARGETS = {"regressor": ("y",), "classifier": ("labels",), "encoder": (), "generator": ()}


@dataclass
class Table:
    """Features, targets of one and of two columns, labels, two groups."""

    X: np.ndarray
    y: np.ndarray
    Y: np.ndarray
    labels: np.ndarray
    groups: np.ndarray

    def train(self, estimator, **fit_params):
        """Fit an estimator on what its kind takes."""
        kind = next(name for name, base in _KINDS.items() if isinstance(estimator, base))
        if kind != "generator":
            fit_params = {"sensitive_features": self.groups, **fit_params}
        return estimator.fit(
            self.X, *(getattr(self, name) for name in _TARGETS[kind]), **fit_params
        )


@pytest.fixture
def table():
    """Return 41 records with 17 in the smaller group."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(41, 3))
    Y = X[:, :2] + 0.3 * rng.normal(size=(41, 2))
    groups = rng.permutation(["a"] * 17 + ["b"] * 24)
    return Table(X, Y[:, 0], Y, (Y[:, 0] > 0).astype(int), groups)


@pytest.fixture
def tiny():
    """Return a function that makes an estimator of a few steps: to run through, not to learn."""

    def make(kind, **options):
        small = {
            "training__hidden_layer_sizes": (4,),
            "gradient__n_projections": 4,
            "gradient__batch_fraction": 1.0,
            "training__max_iter": 3,
            "random_state": 0,
        }
        return _KINDS[kind](**_DECLARED.get(kind, {})).set_params(**small | options)

    return make


@pytest.fixture
def parameters_of():
    """Return a function from a fitted estimator to its parameters, as one array."""

    def flatten(estimator):
        return torch.cat([p.detach().flatten() for p in estimator.module_.parameters()]).numpy()

    return flatten


@pytest.fixture
def probe(monkeypatch):
    """Return a function that looks at a fit's gradients in place of training.

    On the whole table, or the given positions in each stratum, and for each multiple of the initial
    parameters, it takes the gradient that the fit would hand to the release; with it the mechanism,
    and the module as it was left.
    """
    seen = {}

    def descend(self, module, gradient_fn, run, finish=None):
        start = [parameter.detach().clone() for parameter in module.parameters()]
        rows = seen["rows"] or [np.arange(stratum.size) for stratum in run._mechanism.strata]
        gradients = []
        for scale in seen["scales"]:
            with torch.no_grad():
                for parameter, first in zip(module.parameters(), start, strict=True):
                    parameter.copy_(scale * first)
            gradients.append(torch.cat([g.flatten() for g in gradient_fn(rows)]).numpy())
        seen["result"] = SimpleNamespace(
            gradients=np.array(gradients), mechanism=run._mechanism, module=module
        )
        return run._mechanism.n_releases - 1

    monkeypatch.setattr(SlicedEstimator, "_descend", descend)

    def look(fit, *args, scales=(1.0,), rows=None, **fit_params):
        seen["scales"], seen["rows"] = scales, rows
        fit(*args, **fit_params)
        return seen["result"]

    return look
