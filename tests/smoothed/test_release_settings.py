"""Nested settings of the smoothed estimators decide their price, and bind seeded noise."""

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV

from sklearn_dpgen.ledger._base import PrivateEstimator
from sklearn_dpgen.smoothed import NoisyRelease, SmoothedSlicedWassersteinAdapter

SOURCE = np.repeat([1, -2], [16, 24])


@pytest.fixture(params=["generator", "adapter"])
def make(request, tiny_generator, labelled):
    """Return a function of settings that fits an estimator on records of two columns."""

    def fit(**options):
        if request.param == "generator":
            return tiny_generator(**options).fit(labelled.X)
        adapter = SmoothedSlicedWassersteinAdapter(source_iter=2, feature_dim=3, random_state=0)
        adapter.set_params(
            training__hidden_layer_sizes=(4,),
            training__max_iter=3,
            release__kind="records",
            release__n_epochs=1.0,
        )
        adapter.set_params(**options)
        return adapter.fit(labelled.X, np.arange(40) % 2, sample_domain=SOURCE)

    return fit


def first_noise(fit, options, monkeypatch):
    """Return the first noise of a seeded fit, in units of its scale."""
    seen = []
    with monkeypatch.context() as patched:
        patched.setattr(
            "sklearn_dpgen.utils._random.NoiseSource._noisy",
            lambda self, values, scale, kind: seen.append(self.normal(values.shape)) or values,
        )
        fit(**options)
    return seen[0]


CHANGES = [
    {"release__shape_weight": 3.0},
    {"release__n_projections": 7},
    {"release__directions": "independent"},
    {"training__learning_rate": 0.7},
    {"training__averaging": 0.5},
]


@pytest.mark.parametrize("changes", CHANGES, ids=str)
def test_seeded_noise_is_bound_to_nested_settings(make, changes, monkeypatch):
    """None of these changes the records that are released first, or their price."""

    def noises():
        return [first_noise(make, options, monkeypatch) for options in ({}, changes)]

    first, second = noises()
    assert np.array_equal(first, noises()[0])
    assert first.shape == second.shape
    assert not np.isclose(first, second).any()
    # Twin: settings are left out of what noise is bound to.
    monkeypatch.setattr(PrivateEstimator, "_all_parameters", lambda self: {})
    assert np.array_equal(*noises())


def test_a_default_that_is_given_changes_nothing(tiny_generator, labelled, weights_of):
    given = tiny_generator(release__n_projections="auto", release__n_epochs=20.0)
    plain = clone(given).set_params(release=None)
    assert given.release.get_params() == NoisyRelease().get_params()
    fits = [estimator.fit(labelled.X) for estimator in (given, plain)]
    assert np.array_equal(*map(weights_of, fits))


@pytest.mark.parametrize(
    "changes",
    [
        {"release__kind": "moments"},
        {"release__kind": "projections"},
        {"release__batch_size": 7},
        {"release__n_epochs": 5.0},
    ],
    ids=str,
)
def test_a_release_decides_the_price(tiny_generator, changes):
    plain, other = tiny_generator(), tiny_generator(**changes)
    assert plain.plan(40, 3).releases != other.plan(40, 3).releases


@pytest.mark.slow
def test_searches_reach_nested_settings(tiny_generator, labelled):
    grid = {"training__learning_rate": [0.1, 0.2], "release__kind": ["records", "moments"]}
    generator = tiny_generator(epsilon=np.inf)
    found = GridSearchCV(generator, grid, cv=2, error_score="raise").fit(labelled.X)
    assert len(found.cv_results_["params"]) == 4
    chosen = found.best_estimator_
    assert chosen.release.kind == found.best_params_["release__kind"]
    assert chosen.training.learning_rate == found.best_params_["training__learning_rate"]
    assert (generator.release.kind, generator.training.learning_rate) == (None, None)
