"""The samplers of tables as scikit-learn has its estimators, and as objects that hold a fit."""

from functools import partial

import numpy as np
import pytest
from any_width import ClassesOfY, SchemaOfX
from sampler_tables import SCHEMA, hasten, make, table
from sklearn.exceptions import NotFittedError
from sklearn.utils.estimator_checks import parametrize_with_checks

from sklearn_dpgen.mechanisms import JointRandomizedResponse
from sklearn_dpgen.tables import (
    LocalTableSampler,
    PrivateMixtureSampler,
    TableSampler,
    _mixture_evolution,
    _pair_distances,
)

hasten = pytest.fixture(autouse=True)(hasten)
X = table()
Y = np.repeat(["a", "b"], 300)


def make_mixture(**options):
    small = {"schema": SCHEMA, "bins": 4, "n_candidates": 12, "n_cells": 2, "classes": ["a", "b"]}
    return PrivateMixtureSampler(**(small | {"random_state": 0, "device": "cpu"} | options))


MAKE = {"marginals": make, "mixture": make_mixture}
samplers = pytest.mark.parametrize("name", list(MAKE))


@pytest.fixture(autouse=True)
def few_draws(monkeypatch):
    monkeypatch.setattr(_mixture_evolution, "_POOL", 300)


class Small:
    """A sampler with two parameters; the others are fixed."""

    def __init__(self, epsilon=100.0, random_state=0):
        self.epsilon = epsilon
        self.random_state = random_state

    _parameter_constraints = {"epsilon": [float], "random_state": ["random_state"]}
    delta, device, verbose = 1e-5, "cpu", 0


class AnyMarginals(SchemaOfX, Small, TableSampler):
    marginals, target, n_bins, workload = "auto", None, 3, None
    population_size, max_iter, neighbours, constraints = 10, 2, "replace_one", None
    unit_weights, max_rows, store, n_jobs = "equal", None, "auto", None


class AnyFoundBins(AnyMarginals):
    n_bins, neighbours, store = "auto", "add_or_remove", "none"


class AnyMixture(ClassesOfY, SchemaOfX, Small, PrivateMixtureSampler):
    bins, label_proportions, n_candidates, n_iter, n_cells = 3, None, 10, 1, 2


class AnyQuestions(SchemaOfX, JointRandomizedResponse):
    """The mechanism of a table of any width, with two parameters."""

    def __init__(self, epsilon=4.0, random_state=0):
        self.epsilon = epsilon
        self.random_state = random_state

    _parameter_constraints = {"epsilon": [float], "random_state": ["random_state"]}
    bins, n_asked, always, weights, index = 3, "auto", (), None, "reset"


ANSWERS = LocalTableSampler(
    AnyQuestions(),
    privatize=True,
    population_size=10,
    max_iter=2,
    random_state=0,
    device="cpu",
)
FRESH = "a score with privatize=True is a fresh release of the records it is given"


def expected_failures(estimator):
    if not isinstance(estimator, LocalTableSampler):
        return {}
    return {
        "check_methods_sample_order_invariance": FRESH,
        "check_methods_subset_invariance": FRESH,
    }


@parametrize_with_checks(
    [AnyMarginals(), AnyFoundBins(), AnyMixture(), ANSWERS],
    expected_failed_checks=expected_failures,
)
def test_scikit_learn_checks(estimator, check):
    check(estimator)


def same(first, second):
    return first.sample(200, random_state=0).equals(second.sample(200, random_state=0))


@samplers
def test_infinite_numbers_are_clipped_and_nulls_are_refused(name):
    """Where the schema has no nulls, a null is refused, by the name of its column."""
    fit = partial(MAKE[name], epsilon=np.inf)
    frame = X.assign(age=X["age"].astype(float))
    low, high = frame.copy(), frame.copy()
    low.loc[3, "age"], high.loc[3, "age"] = 0.0, 100.0
    for bound, clipped in ((-np.inf, low), (np.inf, high)):
        frame.loc[3, "age"] = bound
        assert same(fit().fit(frame), fit().fit(clipped))
    assert not same(fit().fit(low), fit().fit(high))
    frame.loc[3, "age"] = np.nan
    with pytest.raises(ValueError, match="'age'"):
        fit().fit(frame)


def fitted_attributes(sampler):
    return {name for name in vars(sampler) if name.endswith("_")}


@samplers
def test_a_fit_that_fails_leaves_nothing_of_the_one_before(name):
    sampler = MAKE[name]().fit(X, Y)
    assert {"privacy_", "encoder_", "noise_multiplier_"} <= fitted_attributes(sampler)
    with pytest.raises(ValueError, match="'pay'"):
        sampler.fit(X.drop(columns="pay"))
    assert not fitted_attributes(sampler)
    with pytest.raises(NotFittedError):
        sampler.sample()


@samplers
def test_parameters_set_after_fit_do_not_matter(monkeypatch, name):
    monkeypatch.setattr(_pair_distances, "_MOST", 4096)
    sampler = MAKE[name]().fit(X, Y)
    first = sampler.sample(5, random_state=0)
    score = sampler.score(X) if name == "marginals" else sampler.sample_labels(5, random_state=0)
    for parameter in sampler.get_params(deep=False):
        sampler.set_params(**{parameter: -1})
        assert sampler.sample(5, random_state=0).equals(first)
        again = (
            sampler.score(X) if name == "marginals" else sampler.sample_labels(5, random_state=0)
        )
        assert np.array_equal(again, score)


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("marginals", {"n_bins": 10**9}, "'n_bins' parameter"),
        ("marginals", {"target": "z"}, "target"),
    ]
    + [("marginals", {"population_size": 10**12}, "GiB")]
    + [("mixture", {"bins": 10**9}, "'bins' parameter"), ("mixture", {"bins": 131_072}, "GiB")]
    + [("mixture", {"n_candidates": 10**12}, "n_candidates=10{12} .* GiB")]
    + [("mixture", {"n_cells": 10**12}, "n_cells=10{12} .* GiB")]
    + [("mixture", {"n_iter": 10**9}, "'n_iter' parameter")]
    + [(n, {"epsilon": e}, "'epsilon' parameter .* {inf}") for n in MAKE for e in (1e308, 1e7)],
    ids=str,
)
def test_what_is_refused_before_it_is_allocated(released, monkeypatch, name, options, message):
    # What a table of 131072 bins takes does not fit here, whatever the machine.
    monkeypatch.setattr("sklearn_dpgen.utils._validation._memory", lambda: 2**28)
    with pytest.raises(ValueError, match=message):
        MAKE[name](**options).fit(X, Y)
    assert not released


@samplers
def test_samples_that_do_not_fit_in_memory_are_refused(name):
    sampler = MAKE[name]().fit(X, Y)
    with pytest.raises(ValueError, match=r"n_samples=10{12} .* GiB"):
        sampler.sample(10**12)
