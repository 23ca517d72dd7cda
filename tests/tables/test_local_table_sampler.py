"""LocalTableSampler: what it learns from, how it is searched and sampled, what it says."""

import pickle
import tracemalloc
import warnings

import numpy as np
import pandas as pd
import pytest
import torch
from answer_tables import make, mixture_log_likelihood
from numpy.testing import assert_allclose, assert_array_equal
from sampler_tables import SCHEMA, table
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import Pipeline

from sklearn_dpgen.deconvolution import likelihood_score
from sklearn_dpgen.mechanisms import JointRandomizedResponse
from sklearn_dpgen.schema import Categorical, Schema
from sklearn_dpgen.tables import LocalTableSampler
from sklearn_dpgen.utils._random import split_random_state

X = table(200)
MECHANISM = JointRandomizedResponse(3.0, schema=SCHEMA, n_bins=4, random_state=0).fit()
Y = MECHANISM.transform(X)


def same(first, second):
    return np.array_equal(first.law_.probabilities, second.law_.probabilities)


# Raw records.


def test_raw_frame_in_and_synthetic_frame_out():
    sampler = make(privatize=True).fit(X)
    answers = sampler.mechanism_.transform(X)
    assert same(sampler, make(sampler.mechanism_).fit(answers))
    assert list(sampler.feature_names_in_) == list(SCHEMA)
    assert sampler.n_features_in_ == 5
    drawn = sampler.sample(7)
    assert list(drawn.columns) == list(SCHEMA)
    assert not same(sampler, make(privatize=True).fit(X[::-1]))


def test_noise_is_fresh_without_a_seed():
    mechanism = clone(MECHANISM).set_params(random_state=None)
    fits = [make(mechanism, privatize=True, random_state=None).fit(X) for _ in range(2)]
    assert fits[0].score(X) != fits[0].score(X)
    assert not same(*fits)
    # A seed of the estimator is one of its noise, where the mechanism has none.
    seeded = [make(mechanism, privatize=True).fit(X) for _ in range(2)]
    assert same(*seeded)
    assert seeded[0].score(X) == seeded[1].score(X)
    assert not same(seeded[0], make(mechanism, privatize=True, random_state=1).fit(X))


def test_the_seed_of_the_noise_serves_nothing_else(monkeypatch):
    """A population starts from a seed that may be found by trying: that of the noise may not."""
    module = "sklearn_dpgen.tables._local_table_sampler.split_random_state"

    def fit(*seeds):
        def split(state, n):
            return list(seeds) if n == 3 else split_random_state(state, n)

        monkeypatch.setattr(module, split)
        return make(n_init=2).fit(Y)

    assert same(fit(1, 2, 3), fit(9, 2, 3))
    assert not same(fit(1, 2, 3), fit(1, 9, 3))


def test_no_more_than_answers_is_kept(monkeypatch):
    """Whatever the records are, the same answers give the same object."""

    def state(sampler_of):
        with monkeypatch.context() as patch:
            patch.setattr(JointRandomizedResponse, "transform", lambda self, X: Y)
            pair = [sampler_of(privatize=True).fit(records) for records in (X, X[::-1][:150])]
        return [pickle.dumps(vars(sampler)) for sampler in pair]

    assert len(set(state(make))) == 1

    class Peeks(LocalTableSampler):
        """A broken variant: it counts the records that it privatizes."""

        def fit(self, X, y=None):
            super().fit(X)
            self.n_records_ = len(X)
            return self

    def peeks(**options):
        return Peeks(**(make().get_params(deep=False) | options))

    assert len(set(state(peeks))) == 2


# Searches.


def test_a_pipeline_of_both():
    pipeline = Pipeline([("answer", clone(MECHANISM)), ("learn", make(MECHANISM))]).fit(X)
    assert same(pipeline[-1], make().fit(Y))
    assert pipeline.score(X) == pipeline[-1].score(Y)
    assert pipeline[-1].sample(2).shape == (2, 5)


@pytest.mark.slow
def test_a_search_on_answers():
    grid = {"prior": [0.0, 30.0], "population_size": [4, 12]}
    found = GridSearchCV(make(), grid, cv=2, error_score="raise").fit(Y)
    scores = found.cv_results_["mean_test_score"]
    assert np.isfinite(scores).all()
    assert len(set(scores)) == 4
    assert len(found.best_estimator_.law_.shares) == found.best_params_["population_size"]
    assert found.best_estimator_.privacy_.epsilon == 3.0
    assert found.score(Y) == found.best_estimator_.score(Y)


@pytest.mark.slow
def test_a_search_over_the_budget():
    grid = {"mechanism__epsilon": [1.0, 5.0]}
    search = GridSearchCV(make(privatize=True), grid, cv=2, error_score="raise").fit(X)
    best = search.best_estimator_
    budget = search.best_params_["mechanism__epsilon"]
    assert best.privacy_.epsilon == best.mechanism_.privacy_.epsilon == budget
    assert MECHANISM.epsilon == 3.0
    # A pipeline in which both have one parts them, and is refused.
    pipeline = Pipeline([("answer", MECHANISM), ("learn", make(MECHANISM))])
    with pytest.raises(ValueError, match="epsilon=1, .* epsilon=3: take the mechanism that asked"):
        GridSearchCV(pipeline, {"answer__epsilon": [1.0]}, cv=2, error_score="raise").fit(X)


@pytest.mark.slow
def test_a_pipeline_has_one_mechanism():
    grid = {
        "ask": [clone(MECHANISM), JointRandomizedResponse(3.0, schema=SCHEMA, always=["job"])],
        "ask__epsilon": [1.0, 5.0],
        "learn__prior": [1.0, 100.0],
    }
    pipeline = Pipeline([("ask", MECHANISM), ("learn", make().set_params(mechanism=None))])
    search = GridSearchCV(pipeline, grid, cv=2, error_score="raise").fit(X)
    assert np.isfinite(search.cv_results_["mean_test_score"]).all()
    best = search.best_estimator_
    assert best[-1].privacy_.epsilon == best[0].epsilon == search.best_params_["ask__epsilon"]
    assert best[-1].mechanism_._always == best[0]._always
    assert list(best[-1].sample(4).columns) == list(SCHEMA)
    assert best[-1].mechanism_.random_state is None


def test_folds_of_answers():
    assert np.isfinite(cross_val_score(make(), Y, cv=3, error_score="raise")).all()


# Scores.


@pytest.mark.parametrize("n_asked", [1, 2, 3])
def test_likelihoods_are_those_of_answers(n_asked):
    mechanism = clone(MECHANISM).set_params(n_asked=n_asked).fit()
    answers = mechanism.transform(X)
    sampler = make(mechanism).fit(answers)
    P = torch.tensor(sampler.law_.probabilities.T)
    encoded = mechanism.encode_release(answers)
    expected = mixture_log_likelihood(mechanism, encoded, P).numpy()
    found = sampler.score_samples(answers)
    assert found.dtype == np.float64
    assert_allclose(found, expected, atol=1e-5)
    assert likelihood_score(sampler, answers) == pytest.approx(expected.mean(), abs=1e-5)
    # Of each answer by itself, in their order.
    assert_allclose(sampler.score_samples(answers[::-1]), found[::-1], atol=1e-6)
    assert_allclose(sampler.score_samples(answers[:1]), found[:1], atol=1e-6)


def test_a_raw_score_is_that_of_its_answers():
    sampler = make(privatize=True).fit(X)
    answers = sampler.mechanism_.transform(X)
    expected = make(sampler.mechanism_).fit(answers).score_samples(answers)
    assert_array_equal(sampler.score_samples(X), expected)


# Samples.


@pytest.fixture(scope="module")
def fitted():
    return make(max_iter=30).fit(Y)


def test_records_are_as_declared(fitted):
    drawn = fitted.sample(500, random_state=0)
    assert drawn.dtypes.to_dict() == {name: SCHEMA[name].dtype for name in SCHEMA}
    assert drawn.index.equals(pd.RangeIndex(500))
    assert drawn["age"].between(0, 100).all()
    assert drawn["day"].between("2020-01-01", "2020-12-31").all()
    assert set(drawn["level"]) == {1, 2, 3}
    assert drawn["pay"].isna().any()
    assert not drawn.drop(columns="pay").isna().any().any()
    assert drawn.equals(fitted.sample(500, random_state=0))
    assert not drawn.equals(fitted.sample(500, random_state=1))
    assert not fitted.sample(50).equals(fitted.sample(50))
    assert fitted.sample().shape == (1, 5)


def test_conditions(fitted):
    conditions = {"job": ["nurse", "pilot"], "age": pd.Interval(20, 30)}
    with warnings.catch_warnings():
        # Of twelve rows the conditions may rest on few.
        warnings.filterwarnings("ignore", "Conditions on", UserWarning)
        drawn = fitted.sample(60, conditions=conditions, random_state=0)
    assert set(drawn["job"]) == {"nurse", "pilot"}
    assert drawn["age"].between(20, 30, inclusive="right").all()
    assert 1 <= fitted.effective_size(conditions) <= 12
    assert fitted.effective_size() == pytest.approx(12)
    rare = {"job": "pilot", "level": 3, "pay": np.nan}
    if fitted.effective_size(rare) < 10:
        with pytest.warns(UserWarning, match="have an effective size of"):
            fitted.sample(conditions=rare)
    with pytest.raises(ValueError, match="'salary'"):
        fitted.sample(conditions={"salary": 3})


@pytest.mark.slow
def test_the_answers_are_explained_by_what_is_sampled():
    """Two columns that agree, the same in the sample as in the records."""
    schema = Schema({name: Categorical(list("wxyz")) for name in "abc"})
    rng = np.random.default_rng(0)
    letters = np.array(list("wxyz"))[rng.choice(4, size=6000, p=[0.4, 0.3, 0.2, 0.1])]
    frame = pd.DataFrame({"a": letters, "b": letters, "c": rng.permutation(letters)})
    mechanism = JointRandomizedResponse(4.0, schema=schema, random_state=0)
    options = {"population_size": 30, "prior": 20.0, "max_iter": 200, "privatize": True}
    drawn = make(mechanism, **options).fit(frame).sample(5000, random_state=0)
    assert (drawn["a"] == drawn["b"]).mean() > 0.9
    assert abs((drawn["a"] == drawn["c"]).mean() - 0.3) < 0.06
    assert (
        np.abs(drawn["a"].value_counts(normalize=True)[list("wxyz")] - [0.4, 0.3, 0.2, 0.1]).max()
        < 0.05
    )


# An object.


def test_clone_parameters_and_pickle():
    sampler = make(MECHANISM)
    before = repr(sampler.get_params())
    sampler.fit(Y)
    assert repr(sampler.get_params()) == before
    copy = clone(sampler)
    assert not hasattr(copy, "law_")
    assert not hasattr(copy.mechanism, "privacy_")
    assert same(copy.fit(Y), sampler)
    loaded = pickle.loads(pickle.dumps(sampler))
    assert loaded.privacy_ == sampler.privacy_
    assert loaded.score(Y) == sampler.score(Y)
    assert loaded.sample(9, random_state=0).equals(sampler.sample(9, random_state=0))


def test_the_mechanism_is_left_as_it_is():
    mechanism = JointRandomizedResponse(3.0, schema=SCHEMA, n_bins=4)
    sampler = make(mechanism, privatize=True).fit(X)
    assert not hasattr(mechanism, "privacy_")
    assert mechanism.random_state is None
    assert sampler.mechanism_ is not mechanism
    assert make(MECHANISM).fit(Y).mechanism_ is not MECHANISM


def test_fits_follow_their_seeds():
    assert same(make().fit(Y), make().fit(Y))
    assert not same(make().fit(Y), make(random_state=1).fit(Y))
    assert not same(*(make(random_state=None).fit(Y) for _ in range(2)))
    state = np.random.RandomState(0)  # noqa: NPY002
    assert not same(*(make(random_state=state).fit(Y) for _ in range(2)))


def test_a_fit_forgets_the_one_before():
    sampler = make()
    for method in (sampler.sample, sampler.effective_size):
        with pytest.raises(NotFittedError):
            method()
    with pytest.raises(NotFittedError):
        sampler.score(Y)
    sampler.fit(Y).set_params(population_size=5, max_iter=3).fit(Y)
    assert sampler.law_.probabilities.shape == (5, 19)
    assert sampler.n_iter_ == len(sampler.loss_curve_) == 3


def wrong_budget():
    return clone(MECHANISM).set_params(epsilon=2.0).fit().transform(X)


@pytest.mark.parametrize(
    "given", [lambda: X, wrong_budget, lambda: Y[:0], lambda: [], lambda: pd.concat([Y, Y])]
)
def test_a_fit_that_fails_leaves_nothing_of_the_one_before(given):
    sampler = make(max_iter=3).fit(Y)
    with pytest.raises(ValueError, match=r"."):
        sampler.fit(given())
    assert not {"law_", "loss_curve_", "n_iter_"} & set(vars(sampler))
    with pytest.raises(NotFittedError):
        sampler.sample()
    with pytest.raises(NotFittedError):
        sampler.score(Y)


@pytest.mark.parametrize("privatize", [False, True])
def test_parameters_set_after_fit_do_not_matter(privatize):
    given = X if privatize else Y
    sampler = make(privatize=privatize).fit(given)
    first, score = sampler.sample(5, random_state=0), sampler.score(given)
    for parameter in sampler.get_params(deep=False):
        sampler.set_params(**{parameter: -1})
        assert sampler.sample(5, random_state=0).equals(first)
        assert sampler.score(given) == score


# Its report.


def test_reports():
    asked = make().fit(Y).privacy_
    raw = make(privatize=True).fit(X).privacy_
    unseeded = make(
        clone(MECHANISM).set_params(random_state=None), privatize=True, random_state=None
    ).fit(X)
    for report in (asked, raw, unseeded.privacy_):
        assert (report.epsilon, report.delta) == (3.0, 0.0)
        assert report.is_local
        assert [event.what for event in report.events] == ["joint_answer"]
        assert set(MECHANISM.privacy_.caveats) < set(report.caveats)
    assert asked.caveats[-1] == "nothing_privatized"
    assert "privatized" in asked.noise_source
    assert raw.caveats[-1] == "each_fit_and_score"
    assert "seeded" in raw.noise_source
    assert unseeded.privacy_.noise_source == "operating system entropy"


# Wide tables.


def peak_of(n_columns, n=3000):
    """Return the most bytes of a fit to answers on columns of about ten categories, and the fit."""
    schema = Schema({f"c{j}": Categorical(range(9 + j % 3)) for j in range(n_columns)})
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({name: rng.integers(9, size=n) for name in schema})
    answers = JointRandomizedResponse(4.0, schema=schema, random_state=0).fit_transform(frame)
    sampler = make(JointRandomizedResponse(4.0, schema=schema), max_iter=3)
    tracemalloc.start()
    sampler.fit(answers)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert np.isfinite(sampler.score(answers))
    assert sampler.sample(10).shape == (10, n_columns)
    return peak, sampler


@pytest.mark.slow
def test_a_wide_table():
    """What a fit holds of an answer is no matter of how many columns were not asked."""
    make().fit(Y)  # imports what it needs
    narrow, _ = peak_of(10)
    wide, sampler = peak_of(100)
    assert sampler.law_.probabilities.shape == (12, 999)
    # A byte for each category of each answer would be three megabytes more.
    assert wide < narrow + 1.5e6


@pytest.mark.gpu
def test_devices_agree():
    fits = [make(device=device, max_iter=30).fit(Y) for device in ("cpu", "cuda")]
    for first, second in zip(*(fit.loss_curve_ for fit in fits), strict=True):
        assert first == pytest.approx(second, rel=1e-3)
    assert fits[0].score(Y) == pytest.approx(fits[1].score(Y), rel=1e-3)
