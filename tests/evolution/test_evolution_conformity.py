"""The evolution samplers as scikit-learn has its estimators, and as objects that hold a fit."""

import pickle
from functools import partial

import numpy as np
import pandas as pd
import pytest
from any_width import ClassesOfY, SchemaOfX
from conformity import parametrize_with_checks
from numpy.testing import assert_array_equal
from sklearn.base import clone
from sklearn.exceptions import NotFittedError

from sklearn_dpgen.domains import Box
from sklearn_dpgen.evolution import NoisyVotes, PrivateEvolutionSampler, PrivateSignedMeasureSampler
from sklearn_dpgen.schema import Categorical, Numeric, Schema

samplers = pytest.mark.parametrize("name", ["evolution", "measure"])
ANY_WIDTH = {"domain": partial(Box, -1000, 1000), "random_state": 0, "device": "cpu"}


class Small:
    """A sampler with two parameters; the others are fixed."""

    def __init__(self, epsilon=1e4, random_state=0):
        self.epsilon = epsilon
        self.random_state = random_state

    _parameter_constraints = {"epsilon": [float], "random_state": ["random_state"]}
    delta, domain, classes, label_proportions, labels = 1e-5, None, None, None, "public"
    votes, metric = NoisyVotes(postprocess="simplex"), "l2"
    interface, embedding, n_samples, n_iter, verbose = None, None, 5, 2, 0
    schedule, smoothing, device = "annealed", 0.0, "cpu"
    start, public = "public", None


class AnyTable(SchemaOfX, Small, PrivateEvolutionSampler):
    pass


class AnyTableWithPrivateLabels(ClassesOfY, AnyTable):
    labels = "private"


class PrivateLabels(ClassesOfY, Small, PrivateEvolutionSampler):
    domain, schema, labels = staticmethod(ANY_WIDTH["domain"]), None, "private"


class PrivateLabelsOfOneVote(ClassesOfY, Small, PrivateSignedMeasureSampler):
    domain, labels = staticmethod(ANY_WIDTH["domain"]), "private"
    support, n_points = "grid", 5


@parametrize_with_checks(
    [
        PrivateEvolutionSampler(np.inf, labels="public", n_samples=5, n_iter=2, **ANY_WIDTH),
        PrivateSignedMeasureSampler(labels="public", n_points=5, **ANY_WIDTH),
    ],
    variants=[
        PrivateLabels(),
        PrivateLabelsOfOneVote(),
        AnyTable(),
        AnyTableWithPrivateLabels(),
    ],
)
def test_scikit_learn_checks(estimator, check):
    check(estimator)


@samplers
def test_clone_and_parameters(sampler_of, labelled, same, name):
    sampler = sampler_of(name, epsilon=3.0)
    before = repr(sampler.get_params())
    sampler.fit(labelled.X, labelled.y)
    assert repr(sampler.get_params()) == before
    copy = clone(sampler)
    assert not hasattr(copy, "privacy_")
    assert same(copy.fit(labelled.X, labelled.y), sampler)
    copy.set_params(epsilon=5.0).fit(labelled.X, labelled.y)
    assert (copy.privacy_.epsilon, sampler.privacy_.epsilon) == (5.0, 3.0)
    assert not same(copy, sampler)


@samplers
def test_pickle(sampler_of, labelled, same, name):
    sampler = sampler_of(name).fit(labelled.X, labelled.y)
    copy = pickle.loads(pickle.dumps(sampler))
    assert copy.privacy_ == sampler.privacy_
    assert same(copy, sampler)
    assert_array_equal(copy.sample(7, random_state=0), sampler.sample(7, random_state=0))


SCHEMA = Schema({"age": Numeric(0, 100), "job": Categorical(["baker", "nurse"])})
PEOPLE = pd.DataFrame({"age": [1.0, 2.0, 90.0], "job": ["baker", "nurse", "nurse"]})


def test_names_of_features(sampler_of, labelled):
    sampler = sampler_of("evolution", schema=SCHEMA, domain=None).fit(PEOPLE)
    assert_array_equal(sampler.feature_names_in_, ["age", "job"])
    assert sampler.n_features_in_ == 2
    sampler.set_params(schema=None, domain=Box(-2, 2, n_features=3)).fit(labelled.X)
    assert not hasattr(sampler, "feature_names_in_")


def test_infinite_numbers_of_a_table_are_clipped_to_the_declared_bounds(sampler_of, same):
    sampler = partial(sampler_of, "evolution", schema=SCHEMA, domain=None)
    clipped = sampler().fit(PEOPLE.assign(age=[0.0, 2.0, 100.0]))
    assert same(sampler().fit(PEOPLE.assign(age=[-np.inf, 2.0, np.inf])), clipped)
    assert not same(sampler().fit(PEOPLE.assign(age=[-np.inf, 2.0, -np.inf])), clipped)
    with pytest.raises(ValueError, match="age"):
        sampler().fit(PEOPLE.assign(age=[np.nan, 2.0, 3.0]))


def fitted_attributes(sampler):
    return {name for name in vars(sampler) if name.endswith("_")}


@samplers
def test_a_fit_that_fails_leaves_nothing_of_the_one_before(sampler_of, labelled, name):
    sampler = sampler_of(name).fit(labelled.X, labelled.y)
    assert {"privacy_", "history_", "noise_multiplier_"} <= fitted_attributes(sampler)
    with pytest.raises(ValueError, match="width|features"):
        sampler.fit(labelled.X[:, :2])
    assert fitted_attributes(sampler) <= {"n_features_in_"}
    with pytest.raises(NotFittedError):
        sampler.sample()


@samplers
def test_a_fit_that_is_interrupted_has_a_report_of_its_own(sampler_of, labelled, name, monkeypatch):
    sampler = sampler_of(name, epsilon=0.5).fit(labelled.X)

    def interrupt(*args):
        raise KeyboardInterrupt

    monkeypatch.setattr(type(sampler), "_count", interrupt)
    with pytest.raises(KeyboardInterrupt):
        sampler.set_params(epsilon=7.0).fit(labelled.X)
    assert sampler.privacy_.epsilon == 7.0
    assert not hasattr(sampler, "weights_")


@samplers
def test_parameters_set_after_fit_do_not_matter(sampler_of, labelled, name):
    sampler = sampler_of(name).fit(labelled.X, labelled.y)
    first, labels = sampler.sample(5, random_state=0), sampler.sample_labels(5, random_state=0)
    # How far a sample is smoothed is chosen when it is drawn.
    for parameter in set(sampler.get_params(deep=False)) - {"smoothing"}:
        sampler.set_params(**{parameter: -1})
        assert_array_equal(sampler.sample(5, random_state=0), first)
        assert_array_equal(sampler.sample_labels(5, random_state=0), labels)


# Sizes.


@samplers
def test_more_than_fits_in_memory_is_refused(sampler_of, labelled, released, name):
    size = "n_samples" if name == "evolution" else "n_points"
    with pytest.raises(ValueError, match=rf"{size}: votes for \d+ candidates would take \d+ GiB"):
        sampler_of(name, **{size: 10**12}).fit(labelled.X)
    with pytest.raises(ValueError, match=f"{size}: votes .* GiB"):
        sampler_of(name, votes__postprocess="bounded_lipschitz", **{size: 10**6}).fit(labelled.X)
    if name == "evolution":
        with pytest.raises(ValueError, match="'n_iter' parameter"):
            sampler_of(name, n_iter=10**9).fit(labelled.X)
    assert not released
    sampler = sampler_of(name).fit(labelled.X, labelled.y)
    for draw in (sampler.sample, sampler.sample_labels):
        with pytest.raises(ValueError, match=r"n_samples=10{12} .* GiB"):
            draw(10**12)


@samplers
@pytest.mark.parametrize("epsilon", [1e308, 1e7])
def test_a_budget_that_is_none_is_one_error(sampler_of, labelled, name, epsilon):
    for histogram in ("gaussian", "laplace_threshold"):
        with pytest.raises(ValueError, match="'epsilon' parameter .* or a float among {inf}"):
            sampler_of(name, epsilon=epsilon, votes__histogram=histogram).fit(labelled.X)
