"""A search over the budget: what learns has the mechanism that released, or is refused."""

import warnings

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.decomposition import PCA
from sklearn.model_selection import GridSearchCV, ParameterGrid, cross_val_score
from sklearn.pipeline import Pipeline, make_pipeline

from sklearn_dpgen import load
from sklearn_dpgen.datasets import make_half_circle
from sklearn_dpgen.deconvolution import DeconvolutionEM, EntropicDeconvGAN, likelihood_score
from sklearn_dpgen.domains import Ball, Box
from sklearn_dpgen.ledger import PrivacyLedger
from sklearn_dpgen.mechanisms import GaussianMechanism, LaplaceMechanism, TabularMechanism
from sklearn_dpgen.nn import Training
from sklearn_dpgen.schema import Categorical, Numeric, Schema

BOX = Box(-1, 1, n_features=2)
X = BOX.sample(60, np.random.default_rng(0))
SCHEMA = Schema({"age": Numeric(0, 100), "sex": Categorical(["f", "m"])})
TABLE = pd.DataFrame({"age": np.linspace(0, 100, 60), "sex": ["f", "m"] * 30})


class Unchecked(LaplaceMechanism):
    """A broken variant: it never asks who released what is learned from."""

    def encode_release(self, Y, *, reset=False, estimator=None):
        return super().encode_release(np.asarray(Y), reset=reset, estimator=estimator)


MECHANISMS = {
    "array": (LaplaceMechanism(5.0, domain=BOX), X),
    "frame": (LaplaceMechanism(5.0, domain=BOX).set_output(transform="pandas"), X),
    "table": (TabularMechanism(5.0, schema=SCHEMA), TABLE),
}
each = pytest.mark.parametrize("name", MECHANISMS)


def pairing(tiny, mechanism):
    """Return the pipeline of which `clone` parts the two mechanisms."""
    return Pipeline([("privatize", mechanism), ("generate", tiny(mechanism))])


def search(estimator, parameter, records):
    grid = {parameter: [5.0, 20.0]}
    return GridSearchCV(estimator, grid, cv=2, error_score="raise").fit(records)


def reports_what_was_released(tiny, mechanism, records):
    """Return whether each candidate of a search is refused or reports its own budget."""
    for candidate in ParameterGrid({"privatize__epsilon": [5.0, 20.0]}):
        pipeline = clone(pairing(tiny, mechanism)).set_params(**candidate)
        try:
            pipeline.fit(records)
        except ValueError:
            continue
        released, learned = pipeline[0].privacy_, pipeline[-1].privacy_
        if learned.epsilon != released.epsilon:
            return False
    return True


@each
def test_a_search_that_parts_the_mechanisms_is_refused(tiny, name):
    mechanism, records = MECHANISMS[name]
    with pytest.raises(ValueError, match="epsilon=20, .* epsilon=5, .* Leave mechanism out"):
        search(pairing(tiny, mechanism), "privatize__epsilon", records)


@each
def test_no_candidate_reports_another_budget_than_was_released(tiny, name):
    assert reports_what_was_released(tiny, *MECHANISMS[name])


def test_a_mechanism_that_does_not_ask_is_caught():
    def tiny(mechanism):
        return EntropicDeconvGAN(
            mechanism, training=Training(max_iter=2, hidden_layer_sizes=(4,)), n_generated=8
        )

    assert not reports_what_was_released(tiny, Unchecked(5.0, domain=BOX), X)


# A pipeline, in which the release carries the mechanism.


@each
def test_a_pipeline_has_one_mechanism(tiny, name):
    mechanism, records = MECHANISMS[name]
    pipeline = make_pipeline(mechanism, tiny().set_params(mechanism=None)).fit(records)
    assert pipeline[-1].privacy_.epsilon == 5.0
    assert pipeline[-1].privacy_.noise_source == "operating system entropy"
    sample = pipeline[-1].sample(3)
    assert type(sample) is (pd.DataFrame if name == "table" else np.ndarray)
    assert sample.shape == (3, 2)
    assert np.isfinite(pipeline.score(records))
    seeded = clone(pipeline)
    seeded[0].set_params(random_state=0)
    assert seeded.fit(records)[-1].privacy_.is_seeded
    assert seeded[-1].mechanism_.random_state is None


def test_what_a_pipeline_learned_is_saved_with_its_mechanism(tiny, tmp_path):
    mechanism = LaplaceMechanism(5.0, domain=BOX, random_state=0)
    gan = make_pipeline(mechanism, tiny().set_params(mechanism=None)).fit(X)[-1]
    gan.save(tmp_path / "gan.safetensors")
    loaded = load(tmp_path / "gan.safetensors")
    assert loaded.mechanism is None
    assert loaded.privacy_ == gan.privacy_
    assert loaded.privacy_.is_seeded
    released = clone(mechanism).fit_transform(X)
    assert loaded.score(released) == gan.score(released)


def test_names_of_columns_go_through_a_pipeline(tiny):
    frame = pd.DataFrame(X, columns=["a", "b"])
    pipeline = make_pipeline(LaplaceMechanism(5.0, domain=BOX), DeconvolutionEM(n_points=9))
    assert list(pipeline.fit(frame)[-1].sample(3).columns) == ["a", "b"]


def test_what_is_between_must_not_change_the_release(tiny):
    pipeline = make_pipeline(LaplaceMechanism(5.0, domain=BOX), PCA(), DeconvolutionEM(n_points=9))
    with pytest.raises(ValueError, match="carry none, .* the step before must be the mechanism"):
        pipeline.fit(X)


def test_a_fold_of_a_release_carries_the_mechanism(tiny):
    gan = tiny().set_params(mechanism=None)
    released = LaplaceMechanism(7.0, domain=BOX).fit_transform(X)
    found = GridSearchCV(gan, {"reg_scale": [0.5, 1.0]}, cv=2, error_score="raise").fit(released)
    assert found.best_estimator_.privacy_.epsilon == 7.0
    # Beside it another mechanism is refused.
    for other in (LaplaceMechanism(5.0, domain=BOX), GaussianMechanism(7.0, domain=BOX)):
        with pytest.raises(ValueError, match="Leave mechanism out"):
            clone(gan).set_params(mechanism=other).fit(released)


DISC = Ball(1.0, n_features=2)
CIRCLE = make_half_circle(1000, radius=0.7, random_state=0)


@pytest.mark.slow
def test_a_search_moves_the_mechanism_and_the_learner():
    pipeline = make_pipeline(
        LaplaceMechanism(domain=DISC, random_state=0),
        EntropicDeconvGAN(
            training=Training(hidden_layer_sizes=(32,), max_iter=40, learning_rate=1e-2),
            batch_size=250,
            n_generated=64,
            random_state=0,
        ),
    )
    grid = {
        "laplacemechanism__epsilon": [1.0, 5.0, 25.0],
        "entropicdeconvgan__reg_scale": [0.5, 1.0, 3.0],
    }
    search = GridSearchCV(pipeline, grid, cv=2, error_score="raise").fit(CIRCLE)
    results = pd.DataFrame(search.cv_results_["params"])
    results["score"] = search.cv_results_["mean_test_score"]
    assert np.isfinite(results["score"]).all()
    # A larger budget is no worse at any regularization, and at last better by far.
    by_budget = results.pivot(
        index="entropicdeconvgan__reg_scale", columns="laplacemechanism__epsilon", values="score"
    )
    assert (np.diff(by_budget, axis=1) > -0.005).all()
    assert (by_budget[25.0] > by_budget[1.0] + 0.1).all()

    best, epsilon = search.best_estimator_, search.best_params_["laplacemechanism__epsilon"]
    assert epsilon > 1.0
    assert best[0].privacy_.epsilon == best[-1].privacy_.epsilon == epsilon
    # The noise of the chosen pipeline by hand: the l1 diameter of the disc is 2 √2.
    scale = 2 * np.sqrt(2) / epsilon
    noise = abs(best[:-1].transform(CIRCLE) - CIRCLE)
    assert best[-1].mechanism_.scale_ == pytest.approx(scale)
    assert abs(noise.mean() - scale) < 5 * scale / np.sqrt(noise.size)
    assert best[-1].sample(3).shape == (3, 2)
    assert search.score(CIRCLE) == best.score(CIRCLE)


def test_a_search_over_the_step_itself():
    pipeline = Pipeline([("privatize", None), ("learn", DeconvolutionEM(n_points=100))])
    mechanisms = [
        LaplaceMechanism(5.0, domain=DISC, random_state=0),
        GaussianMechanism(5.0, domain=DISC, random_state=0),
        LaplaceMechanism(25.0, domain=DISC, random_state=0),
    ]
    search = GridSearchCV(pipeline, {"privatize": mechanisms}, cv=2, error_score="raise")
    scores = search.fit(CIRCLE).cv_results_["mean_test_score"]
    # Gaussian noise of this budget is 2.2 times as large as Laplace noise.
    assert np.argsort(scores).tolist() == [1, 0, 2]
    assert type(search.best_estimator_[-1].mechanism_) is LaplaceMechanism
    assert search.best_estimator_[-1].privacy_.epsilon == 25.0


def test_a_search_over_the_mechanism_pays_for_each_fit_and_each_score(tmp_path):
    path = tmp_path / "people.ledger"
    PrivacyLedger.create(path, dataset="people", epsilon=100.0, delta=1e-5, filter="renyi")
    pipeline = make_pipeline(
        LaplaceMechanism(1.0, domain=DISC, ledger=path), DeconvolutionEM(n_points=9)
    )
    grid = {"laplacemechanism__epsilon": [1.0, 2.0]}
    GridSearchCV(pipeline, grid, cv=3, refit=False).fit(CIRCLE)
    booked = [charge.report.epsilon for charge in PrivacyLedger(path).report().charges]
    # In each of three folds one release to fit, and one to score.
    assert booked == [1.0] * 6 + [2.0] * 6
    # On records that were privatized once a search costs nothing.
    released = LaplaceMechanism(1.0, domain=DISC).fit_transform(CIRCLE)
    GridSearchCV(DeconvolutionEM(), {"n_points": [5, 9]}, cv=3).fit(released)
    assert len(PrivacyLedger(path).report().charges) == 12


# What a score means.


class Fixed(DeconvolutionEM):
    """The same law whatever it learns from: the points of a smaller half circle."""

    def fit(self, X, y=None):
        super().fit(X)
        self.points_ = make_half_circle(100, radius=0.4, random_state=1)
        self.weights_ = np.full(100, 0.01)
        return self


def test_a_score_means_the_same_at_every_budget():
    raw = make_half_circle(40_000, radius=0.7, random_state=0)
    mechanisms = [
        LaplaceMechanism(4.0, domain=DISC, random_state=0),
        LaplaceMechanism(40.0, domain=DISC, random_state=0),
        GaussianMechanism(40.0, domain=DISC, random_state=0),
    ]
    scores, likelihoods = [], []
    for mechanism in mechanisms:
        Y = mechanism.fit_transform(raw)
        law = Fixed(n_points=3).fit(Y)
        scores.append(law.score(Y))
        likelihoods.append(likelihood_score(law, Y))
    # By hand: mean squared differences of means, and of products of pairs.
    points = make_half_circle(100, radius=0.4, random_state=1)
    means = points.mean(axis=0) - raw.mean(axis=0)
    products = points.T @ points / 100 - raw.T @ raw / len(raw)
    np.testing.assert_allclose(scores, -np.mean(means**2) - np.mean(products**2), rtol=0.1)
    # Twin: the likelihood of one law differs by more than one nat a record.
    assert np.ptp(likelihoods) > 1


@pytest.mark.slow
def test_likelihoods_of_what_each_candidate_privatizes_are_warned_of(tiny):
    mechanism = LaplaceMechanism(5.0, domain=BOX)
    for raw in (
        make_pipeline(mechanism, DeconvolutionEM(n_points=9)),
        tiny(mechanism, privatize=True),
    ):
        (name,) = (n for n in raw.get_params() if n.endswith("mechanism__epsilon"))
        grid = {name: [2.0, 5.0]}
        with pytest.warns(UserWarning, match="compare candidates on one release"):
            GridSearchCV(raw, grid, scoring=likelihood_score, cv=2).fit(X)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        search = GridSearchCV(DeconvolutionEM(), {"n_points": [5, 9]}, scoring=likelihood_score)
        search.fit(mechanism.fit_transform(X))
        assert np.isfinite(search.cv_results_["mean_test_score"]).all()


@each
def test_one_estimator_searches_the_budget(tiny, name):
    mechanism, records = MECHANISMS[name]
    found = search(tiny(mechanism, privatize=True), "mechanism__epsilon", records)
    best = found.best_estimator_
    assert best.privacy_.epsilon == found.best_params_["mechanism__epsilon"]
    assert best.mechanism_.privacy_.epsilon == best.privacy_.epsilon


@each
def test_folds_of_released_records_keep_their_name(tiny, name):
    mechanism, records = MECHANISMS[name]
    released = clone(mechanism).fit_transform(records)
    scores = cross_val_score(tiny(clone(mechanism)), released, cv=3, error_score="raise")
    assert np.isfinite(scores).all()
    other = clone(mechanism).set_params(epsilon=7.0)
    with pytest.raises(ValueError, match="epsilon=5, .* epsilon=7, "):
        cross_val_score(tiny(other), released, cv=3, error_score="raise")


def test_a_score_asks_as_well(tiny):
    mechanism, other = (LaplaceMechanism(e, domain=BOX) for e in (5.0, 7.0))
    gan = tiny(mechanism).fit(mechanism.fit_transform(X))
    with pytest.raises(ValueError, match="epsilon=7, .* epsilon=5, "):
        gan.score(other.fit_transform(X))


@each
def test_a_release_is_not_privatized_again(tiny, name):
    mechanism, records = MECHANISMS[name]
    released = clone(mechanism).fit_transform(records)
    gan = tiny(mechanism, privatize=True)
    with pytest.raises(ValueError, match="released these records with epsilon=5 already"):
        gan.fit(released)
    gan.fit(records)
    with pytest.raises(ValueError, match="takes raw ones"):
        gan.score(released)


@each
def test_records_without_a_name_are_taken_on_trust(tiny, name):
    mechanism, records = MECHANISMS[name]
    released = clone(mechanism).fit_transform(records)
    bare = released.copy() if isinstance(released, pd.DataFrame) else np.asarray(released)
    if isinstance(bare, pd.DataFrame):
        bare.attrs.clear()
    other = clone(mechanism).set_params(epsilon=7.0)
    assert tiny(other).fit(bare).privacy_.epsilon == 7.0
