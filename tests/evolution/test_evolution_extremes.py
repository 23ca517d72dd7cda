"""The evolution samplers with few votes, few records, much noise, and huge or tiny numbers."""

from functools import partial

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from sklearn_dpgen.domains import Ball, Box
from sklearn_dpgen.evolution import (
    EuclideanVariation,
    PrivateEvolutionSampler,
)

SAMPLERS = ["evolution", "measure"]
samplers = pytest.mark.parametrize("name", SAMPLERS)
BOX = Box(-2, 2, n_features=3)


class Watched(EuclideanVariation):
    """An interface that keeps the populations that it varies."""

    def __init__(self, domain):
        super().__init__(domain)
        self.populations = []

    def vary(self, X, rng, degree):
        self.populations.append(X)
        return super().vary(X, rng, degree)


def rows(X):
    return sorted(map(tuple, X))


def warn_of_nothing_left():
    return pytest.warns(UserWarning, match="No candidate kept any votes")


@pytest.mark.parametrize("schedule", ["annealed", "theory"])
@pytest.mark.parametrize("variant", ["practical", "theory"])
def test_where_no_votes_are_left_the_population_stays(sampler_of, labelled, schedule, variant):
    interface = Watched(BOX)
    sampler = sampler_of(
        "evolution",
        interface=interface,
        schedule=schedule,
        votes__variant=variant,
        votes__postprocess="threshold",
        votes__threshold=0.99,
    )
    with warn_of_nothing_left():
        sampler.fit(labelled.X)
    first, *others = interface.populations
    for population in others:
        assert rows(population) == rows(first)
    (candidates,), (weights,) = sampler.candidates_, sampler.weights_
    assert rows(candidates[weights > 0]) == rows(first)
    assert_allclose(weights[weights > 0], 1 / len(first))
    assert BOX.contains(sampler.sample(20)).all()


@samplers
def test_a_table_of_small_counts_leaves_nothing(sampler_of, labelled, name):
    sampler = sampler_of(name, votes__histogram="laplace_threshold")
    before = partial(pytest.warns, UserWarning, match="at most [02] of all candidates do")
    with before(), warn_of_nothing_left() as caught:
        sampler.fit(labelled.X)
    for warning in caught:
        for number in ("epsilon", "threshold"):
            assert number in str(warning.message)
    assert np.isfinite(sampler.sample(5)).all()
    # It says of which class.
    with before(), pytest.warns(UserWarning, match="of class [01]"):
        sampler.fit(labelled.X, labelled.y)


def test_noise_that_drowns_the_votes_is_said_with_the_numbers_to_change():
    X = Ball(1.0, n_features=2).sample(50, np.random.default_rng(0))
    domain = {"domain": Ball(1.0, n_features=2), "device": "cpu", "random_state": 0}
    with pytest.warns(UserWarning, match="of all votes") as caught:
        PrivateEvolutionSampler(0.05, n_iter=4, n_samples=20, **domain).fit(X)
    for number in ("epsilon=0.05", "n_iter=4", "n_samples=20", "50 records", "Increase epsilon"):
        assert number in str(caught[0].message)
    with pytest.warns(UserWarning, match="times the mean share"):
        PrivateEvolutionSampler(1.0, n_iter=4, n_samples=200, **domain).fit(X)
    # Where it does not, nothing is said; nor where there is no noise.
    many = Ball(1.0, n_features=2).sample(5000, np.random.default_rng(0))
    PrivateEvolutionSampler(1.0, **domain).fit(many)
    PrivateEvolutionSampler(np.inf, n_iter=4, n_samples=200, **domain).fit(X)


def test_noise_on_one_class_is_said():
    rng = np.random.default_rng(0)
    X = Ball(1.0, n_features=2).sample(5000, rng)
    y = np.where(np.arange(5000) < 5, "few", "many")
    sampler = PrivateEvolutionSampler(
        1.0, domain=Ball(1.0, n_features=2), labels="public", device="cpu", random_state=0
    )
    with pytest.warns(UserWarning, match="5 records"):
        sampler.fit(X, y)


@samplers
@pytest.mark.parametrize("epsilon", [1.0, np.inf])
def test_one_record(sampler_of, name, epsilon):
    sampler = sampler_of(name, epsilon=epsilon).fit(np.full((1, 3), 0.5))
    assert sampler.sample(4).shape == (4, 3)
    # One of each class.
    sampler.fit(np.zeros((2, 3)), [0, 1])
    assert_allclose(sampler.label_proportions_, [0.5, 0.5])
    options = {"n_samples": "auto", "n_iter": "auto"} if name == "evolution" else {}
    sampler_of(name, epsilon=epsilon, **options).fit(np.zeros((1, 3)))


@samplers
@pytest.mark.parametrize("epsilon", [1e-9, 1e-3, 1e3])
@pytest.mark.parametrize("histogram", ["gaussian", "laplace_threshold"])
@pytest.mark.filterwarnings("ignore:No candidate")
def test_extreme_budgets(sampler_of, labelled, name, epsilon, histogram):
    sampler = sampler_of(name, epsilon=epsilon, votes__histogram=histogram).fit(
        labelled.X, labelled.y
    )
    assert 0 < sampler.noise_multiplier_ < np.inf
    assert np.isfinite(sampler.sample(3)).all()
    assert sampler.label_proportions_.sum() == pytest.approx(1)


@samplers
def test_all_records_outside_of_the_domain_or_equal(sampler_of, name):
    for X in (np.full((50, 3), 1e300), np.zeros((50, 3))):
        sampler = sampler_of(name, epsilon=np.inf).fit(X)
        made = sampler.sample(50, random_state=0)
        nearest = sampler.candidates_[0][sampler.weights_[0].argmax()]
        assert_array_equal(made[0], nearest)


@samplers
@pytest.mark.parametrize("scale", [2.0**-60, 2.0**60])
def test_the_unit_of_the_records_does_not_matter(sampler_of, labelled, name, scale):
    plain = sampler_of(name, epsilon=np.inf).fit(labelled.X)
    domain = Box(-2 * scale, 2 * scale, n_features=3)
    scaled = sampler_of(name, epsilon=np.inf, domain=domain).fit(scale * labelled.X)
    assert_allclose(scaled.candidates_[0] / scale, plain.candidates_[0], rtol=1e-9, atol=1e-9)
    assert_allclose(scaled.weights_[0], plain.weights_[0], atol=1e-9)
