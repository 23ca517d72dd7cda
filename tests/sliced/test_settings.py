"""Nested settings: what is refused, searches, and seeded noise."""

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV

from sklearn_dpgen.ledger._base import PrivateEstimator
from sklearn_dpgen.model_selection import PrivateSearchCV
from sklearn_dpgen.nn import Training
from sklearn_dpgen.reporting import model_card
from sklearn_dpgen.sliced import (
    DPSlicedWassersteinAdapter,
    DPSlicedWassersteinFairClassifier,
    DPSlicedWassersteinFairEncoder,
    DPSlicedWassersteinFairRegressor,
    DPSlicedWassersteinGenerator,
)

ESTIMATORS = [
    DPSlicedWassersteinAdapter(),
    DPSlicedWassersteinFairClassifier(),
    DPSlicedWassersteinFairEncoder(),
    DPSlicedWassersteinFairRegressor(y_domain=(-2, 2)),
    DPSlicedWassersteinGenerator(domain=lambda n_features: None),
]
KINDS = ["regressor", "classifier", "encoder", "generator"]


@pytest.mark.parametrize(
    ("estimator", "lacking"),
    [
        (ESTIMATORS[0], {"gradient__jacobian_clipping": "spectral"}),
        (ESTIMATORS[0], {"gradient__released_clip": 1.0}),
        (ESTIMATORS[1], {"gradient__released_clip": 1.0}),
        (ESTIMATORS[2], {"gradient__released_clip": 1.0}),
        (ESTIMATORS[3], {"gradient__released_clip": 1.0}),
        (ESTIMATORS[4], {"gradient__task_clip": 1.0}),
        (ESTIMATORS[4], {"gradient__output_bound": 1.0}),
    ],
    ids=lambda case: "-".join(case) if isinstance(case, dict) else type(case).__name__,
)
def test_what_an_estimator_lacks_is_refused_by_name(estimator, lacking):
    (name,) = (key.removeprefix("gradient__") for key in lacking)
    owner = type(estimator).__name__
    message = f"The '{name}' parameter of ClippedGradient must be None: {owner} does not have it."
    with pytest.raises(ValueError, match=message):
        clone(estimator).set_params(**lacking).plan(100, 3)


def test_setting_one_starts_from_the_defaults():
    classifier = DPSlicedWassersteinFairClassifier()
    copied = clone(classifier).set_params(training__learning_rate=0.1, alpha=0.0)
    assert copied.training.get_params() == Training(learning_rate=0.1).get_params()
    assert classifier.training is None
    given = Training(max_iter=7)
    replaced = classifier.set_params(training=given, training__solver="sgd")
    assert replaced.training.get_params() == Training(max_iter=7, solver="sgd").get_params()
    emptied = replaced.set_params(training=None, training__solver="adam")
    assert emptied.training.get_params() == Training(solver="adam").get_params()
    with pytest.raises(ValueError, match="Invalid parameter 'rate'"):
        classifier.set_params(training__rate=0.1)


def parameters_after_a_fit(table, estimator):
    fitted = table.train(estimator)
    return np.concatenate([p.detach().numpy().ravel() for p in fitted.module_.parameters()])


@pytest.mark.parametrize("kind", KINDS)
def test_a_default_that_is_given_changes_nothing(tiny, table, kind):
    """Seeded noise is bound to the values of settings, be they given or not."""
    estimator = tiny(kind)
    given = clone(estimator)
    for name, defaults in estimator._setting_defaults.items():
        own = {key: value for key, value in defaults.items() if value != "auto"}
        held = {k: v for k, v in getattr(estimator, name).get_params().items() if v is not None}
        given.set_params(**{name: type(getattr(estimator, name))(**own | held)})
    assert np.array_equal(
        parameters_after_a_fit(table, estimator), parameters_after_a_fit(table, given)
    )


def first_noise(table, estimator, monkeypatch):
    """Return the noise of the first step of a seeded fit, in units of its scale."""
    seen = []
    with monkeypatch.context() as patched:
        patched.setattr(
            "sklearn_dpgen.utils._random.NoiseSource._noisy",
            lambda self, values, scale, kind: seen.append(self.normal(values.shape)) or values,
        )
        table.train(estimator)
    return seen[0]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    "changes",
    [
        {"training__learning_rate": 0.7},
        {"training__schedule": "constant"},
        {"training__averaging": 0.5},
        {"training": Training(hidden_layer_sizes=(4,), max_iter=3, solver="sgd")},
    ],
    ids=lambda case: "-".join(case) if isinstance(case, dict) else type(case).__name__,
)
def test_seeded_noise_is_bound_to_nested_settings(tiny, table, kind, changes, monkeypatch):
    """None of these changes the first gradient or its price, which noise is bound to as well."""

    def noises():
        other = tiny(kind).set_params(**changes)
        return [first_noise(table, e, monkeypatch) for e in (tiny(kind), other)]

    first, second = noises()
    assert np.array_equal(first, noises()[0])
    assert not np.isclose(first, second).any()
    # Twin: settings are left out of what noise is bound to.
    monkeypatch.setattr(PrivateEstimator, "_all_parameters", lambda self: {})
    assert np.array_equal(*noises())


def test_searches_reach_nested_settings(table, monkeypatch):
    classifier = DPSlicedWassersteinFairClassifier(
        alpha=0.0, delta=1e-4, classes=[0, 1], training=Training(max_iter=2), random_state=0
    )
    grid = {"training__learning_rate": [0.1, 0.2], "gradient__batch_fraction": [0.5, 1.0]}
    found = GridSearchCV(classifier, grid, cv=2, error_score="raise").fit(table.X, table.labels)
    assert len(found.cv_results_["params"]) == 4
    chosen = found.best_estimator_
    assert chosen.training.learning_rate == found.best_params_["training__learning_rate"]
    assert chosen.training.max_iter == 2
    assert (classifier.training.learning_rate, classifier.gradient) == (None, None)


@pytest.mark.slow
def test_a_private_search_reaches_nested_settings(table):
    learning_rates = [0.1, 0.2]
    classifier = DPSlicedWassersteinFairClassifier(
        alpha=0.0,
        classes=[0, 1],
        training=Training(max_iter=2, callback=print, verbose=1),
        random_state=0,
    )
    search = PrivateSearchCV(
        classifier, {"training__learning_rate": learning_rates}, delta=1e-3, random_state=0
    )
    chosen = search.fit(table.X, table.labels).best_estimator_
    assert chosen.training.learning_rate in learning_rates
    assert chosen.training.learning_rate == search.best_params_["training__learning_rate"]
    # What would show the candidates is taken away, also where it is nested.
    assert (chosen.training.callback, chosen.training.verbose) == (None, 0)
    assert search.plan(41, 3).epsilon == search.privacy_.epsilon


def test_a_card_shows_the_settings_that_an_estimator_has(tiny, table):
    generator = table.train(tiny("generator", training__learning_rate=0.3))
    shown = model_card(generator).to_dict()["estimator"]["parameters"]
    assert (shown["learning_rate"], shown["jacobian_clip"], shown["max_iter"]) == (0.3, 1.0, 3)
    assert "task_clip" not in shown
