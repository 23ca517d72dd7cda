"""A warning before the fit where all that is released will say nothing of the records."""

import warnings

import numpy as np
import pytest

from sklearn_dpgen.accounting import ProjectionLaw
from sklearn_dpgen.nn import Training
from sklearn_dpgen.smoothed import NoisyRelease, SmoothedSlicedWassersteinAdapter
from sklearn_dpgen.smoothed._plan import plan_projections, plan_releases


def said(make):
    """Return whether something warns that releases leave noise alone."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        make()
    return any("All releases together" in str(warning.message) for warning in caught)


@pytest.mark.parametrize("release", ["records", "projections"])
@pytest.mark.parametrize(("epsilon", "drowned"), [(0.001, True), (10.0, False), (np.inf, False)])
def test_a_generator_warns_where_noise_leaves_nothing(tiny_generator, release, epsilon, drowned):
    X = np.random.default_rng(0).uniform(-3, 3, (500, 2))
    generator = tiny_generator(
        release__kind=release,
        epsilon=epsilon,
        training__max_iter=30,
        release__batch_size=50,
        release__n_epochs=5.0,
    )
    assert said(lambda: generator.fit(X)) == drowned


@pytest.mark.parametrize("release", ["records", "projections"])
@pytest.mark.parametrize(("epsilon", "drowned"), [(0.001, True), (10.0, False)])
def test_an_adapter_warns_where_noise_leaves_nothing(release, epsilon, drowned):
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(600, 2)), rng.integers(2, size=600)
    adapter = SmoothedSlicedWassersteinAdapter(
        release=NoisyRelease(release),
        epsilon=epsilon,
        training=Training(hidden_layer_sizes=(4,), max_iter=20),
        feature_dim=2,
        source_iter=2,
        random_state=0,
    )
    domain = np.repeat([1, -1], 300)
    assert said(lambda: adapter.fit(X, y, sample_domain=domain)) == drowned


@pytest.mark.parametrize(("n_samples", "drowned"), [(500, True), (20_000, False)])
def test_the_warning_is_of_the_mean_of_the_smallest_class(n_samples, drowned):
    # One release of all, in one column: the mean has noise 2 sigma / n in units of the radius.
    budget = {"epsilon": 0.1, "delta": 1e-6, "n_epochs": 1.0}

    def plan():
        sizes = [n_samples, 5 * n_samples]
        return plan_releases(sizes, 2.0, 1, batch_size=sum(sizes), **budget)

    noise = plan().records.noise_scale / np.sqrt(n_samples)
    assert (noise > 1) == drowned
    assert said(plan) == drowned


def test_few_directions_of_many_columns_tell_less():
    def plan(n_projections, n_features=100):
        law = ProjectionLaw(n_features, n_projections, "orthogonal")
        return plan_projections(
            [300], 2.0, law, epsilon=2.0, delta=1e-4, batch_size=300, n_releases=1
        )

    # As much is told of each of the directions, and fewer of them need less noise.
    noise = [plan(k).records.noise_scale * np.sqrt(100 / (300 * k / 100)) for k in (1, 100)]
    assert noise[0] > noise[1] > 1
    assert said(lambda: plan(1))
    assert said(lambda: plan(100))
    assert not said(lambda: plan(2, n_features=2))
