"""The samplers of tables as scikit-learn has its estimators, and as objects that hold a fit."""

from functools import partial

import numpy as np
import pytest
from any_width import SchemaOfX
from conformity import parametrize_with_checks
from sampler_tables import hasten, make, table
from sklearn.exceptions import NotFittedError

from sklearn_dpgen.mechanisms import JointRandomizedResponse
from sklearn_dpgen.tables import LocalTableSampler, TableSampler, _table_sampler

hasten = pytest.fixture(autouse=True)(hasten)
X = table()


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
    unit_weights, max_rows, store, n_jobs, public = "equal", None, "auto", None, None


class AnyFoundBins(AnyMarginals):
    n_bins, neighbours, store = "auto", "add_or_remove", "none"


class AnyQuestions(SchemaOfX, JointRandomizedResponse):
    """The mechanism of a table of any width, with two parameters."""

    def __init__(self, epsilon=4.0, random_state=0):
        self.epsilon = epsilon
        self.random_state = random_state

    _parameter_constraints = {"epsilon": [float], "random_state": ["random_state"]}
    n_bins, n_asked, always, weights, index = 3, "auto", (), None, "reset"


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
    [AnyMarginals(), ANSWERS],
    variants=[AnyFoundBins()],
    expected_failed_checks=expected_failures,
)
def test_scikit_learn_checks(estimator, check):
    check(estimator)


def same(first, second):
    return first.sample(200, random_state=0).equals(second.sample(200, random_state=0))


def test_infinite_numbers_are_clipped_and_nulls_are_refused():
    """Where the schema has no nulls, a null is refused, by the name of its column."""
    fit = partial(make, epsilon=np.inf)
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


def test_a_fit_that_fails_leaves_nothing_of_the_one_before():
    sampler = make().fit(X)
    assert {"privacy_", "encoder_", "noise_multiplier_"} <= fitted_attributes(sampler)
    with pytest.raises(ValueError, match="'pay'"):
        sampler.fit(X.drop(columns="pay"))
    assert not fitted_attributes(sampler)
    with pytest.raises(NotFittedError):
        sampler.sample()


@pytest.mark.slow
def test_parameters_set_after_fit_do_not_matter(monkeypatch):
    monkeypatch.setattr(_table_sampler, "_MOST", 4096)
    sampler = make().fit(X)
    first = sampler.sample(5, random_state=0)
    score = sampler.score(X)
    for parameter in sampler.get_params(deep=False):
        sampler.set_params(**{parameter: -1})
        assert sampler.sample(5, random_state=0).equals(first)
        assert sampler.score(X) == score


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"n_bins": 10**9}, "'n_bins' parameter"),
        ({"target": "z"}, "target"),
        ({"population_size": 10**12}, "GiB"),
        ({"epsilon": 1e308}, "'epsilon' parameter .* {inf}"),
        ({"epsilon": 1e7}, "'epsilon' parameter .* {inf}"),
    ],
    ids=str,
)
def test_what_is_refused_before_it_is_allocated(released, options, message):
    with pytest.raises(ValueError, match=message):
        make(**options).fit(X)
    assert not released


def test_samples_that_do_not_fit_in_memory_are_refused():
    sampler = make().fit(X)
    with pytest.raises(ValueError, match=r"n_samples=10{12} .* GiB"):
        sampler.sample(10**12)
