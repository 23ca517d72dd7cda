"""The estimators of private sliced Wasserstein gradients as scikit-learn estimators."""

import io
import pickle
from functools import partial

import numpy as np
import pandas as pd
import pytest
import sklearn
import torch
from conformity import parametrize_with_checks
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import clone
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV, cross_validate
from sklearn.pipeline import Pipeline

from sklearn_dpgen.domains import Ball, Box
from sklearn_dpgen.domains._ball import enclosing_ball
from sklearn_dpgen.preprocessing import TabularEncoder
from sklearn_dpgen.schema import Categorical, Numeric, Schema
from sklearn_dpgen.sliced import (
    DPSlicedWassersteinFairClassifier,
    DPSlicedWassersteinFairEncoder,
    DPSlicedWassersteinFairRegressor,
    DPSlicedWassersteinGenerator,
)

FAIR = ["regressor", "classifier", "encoder"]
KINDS = [*FAIR, "generator"]

ABSENT = "ignore:sensitive_features is absent:UserWarning"


def checked(epsilon, alpha):
    quick = {
        "epsilon": epsilon,
        "training__hidden_layer_sizes": (4,),
        "gradient__n_projections": 3,
        "gradient__batch_fraction": 1.0,
        "training__max_iter": 2,
        "random_state": 0,
    }
    # Some checks of predictors without noise ask for a score.
    learning = {**quick, "training__hidden_layer_sizes": ()}
    if np.isinf(epsilon):
        learning = {**quick, "training__max_iter": 25, "training__learning_rate": 0.3}
    near, wide = partial(Box, -3, 3), partial(Box, -1000, 1000)
    return [
        DPSlicedWassersteinFairRegressor(alpha, y_domain=near).set_params(**learning),
        DPSlicedWassersteinFairClassifier(alpha).set_params(**learning),
        DPSlicedWassersteinFairEncoder(alpha).set_params(**quick),
        DPSlicedWassersteinGenerator(domain=wide).set_params(**quick),
    ]


def expected_failures(estimator):
    """Return the checks that cannot pass, with the reason."""
    if isinstance(estimator, DPSlicedWassersteinFairEncoder | DPSlicedWassersteinGenerator):
        return {}
    once = "a record counts once at most: weights are clipped to [0, 1], and repeats are records"
    private = "weights are private: an error would tell that all of them are zero"
    return {
        "check_sample_weight_equivalence_on_dense_data": once,
        "check_all_zero_sample_weights_error": private,
    }


@pytest.mark.filterwarnings(ABSENT)
@parametrize_with_checks(
    checked(np.inf, 0.0), checked(1.0, 0.5), expected_failed_checks=expected_failures
)
def test_scikit_learn_checks(estimator, check):
    check(estimator)


# Parameters, copies, input types.


@pytest.mark.parametrize("kind", KINDS)
def test_clone_and_parameters(tiny, table, kind):
    estimator = tiny(kind, epsilon=3.0)
    before = repr(estimator.get_params())
    table.train(estimator)
    assert repr(estimator.get_params()) == before
    copy = clone(estimator).set_params(epsilon=5.0, training__max_iter=2)
    assert not hasattr(copy, "privacy_")
    table.train(copy)
    assert (copy.privacy_.epsilon, copy.n_iter_) == (5.0, 2)
    assert (estimator.privacy_.epsilon, estimator.n_iter_) == (3.0, 3)


@pytest.mark.parametrize("fitted", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_pickle(tiny, table, parameters_of, kind, fitted):
    estimator = tiny(kind)
    if fitted:
        table.train(estimator)
    copy = pickle.loads(pickle.dumps(estimator))
    if not fitted:
        table.train(estimator)
        table.train(copy)
    assert_array_equal(parameters_of(copy), parameters_of(estimator))
    assert copy.privacy_ == estimator.privacy_
    if kind == "generator":
        assert_array_equal(copy.sample(3, random_state=0), estimator.sample(3, random_state=0))
    elif kind == "encoder":
        assert_array_equal(copy.transform(table.X), estimator.transform(table.X))
    else:
        assert_array_equal(copy.predict(table.X), estimator.predict(table.X))


def test_weights_can_be_saved_by_torch(tiny, table, parameters_of):
    classifier, other = (table.train(tiny("classifier", random_state=seed)) for seed in (0, 1))
    file = io.BytesIO()
    torch.save(classifier.module_.state_dict(), file)
    file.seek(0)
    assert not np.array_equal(parameters_of(other), parameters_of(classifier))
    other.module_.load_state_dict(torch.load(file, weights_only=True))
    assert_array_equal(other.predict_proba(table.X), classifier.predict_proba(table.X))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    "as_given", [np.ndarray.tolist, np.asfortranarray, pd.DataFrame, lambda X: X.astype(np.int64)]
)
def test_types_of_records(tiny, table, parameters_of, kind, as_given):
    table.X = np.round(3 * table.X) + 0.0
    expected = parameters_of(table.train(tiny(kind)))
    table.X = as_given(table.X)
    if isinstance(table.X, pd.DataFrame):
        table.X.columns = ["a", "b", "c"]
        table.X.index = range(100, 141)
    estimator = table.train(tiny(kind))
    assert_array_equal(parameters_of(estimator), expected)
    assert hasattr(estimator, "feature_names_in_") == isinstance(table.X, pd.DataFrame)


@pytest.mark.parametrize("kind", KINDS)
def test_single_precision(tiny, table, parameters_of, kind):
    expected = parameters_of(table.train(tiny(kind, epsilon=np.inf)))
    table.X = table.X.astype(np.float32)
    estimator = table.train(tiny(kind, epsilon=np.inf))
    assert_allclose(parameters_of(estimator), expected, rtol=1e-4, atol=1e-6)
    assert next(estimator.module_.parameters()).dtype == torch.float64


@pytest.mark.parametrize("kind", FAIR)
def test_types_of_sensitive_features(tiny, table, parameters_of, kind):
    groups = table.groups
    expected = parameters_of(table.train(tiny(kind)))
    for same in (
        groups.tolist(),
        (groups == "b").astype(float),
        groups == "b",
        pd.Series(groups, index=range(41, 82)),
        pd.DataFrame({"g": groups}, dtype="category"),
        groups[:, None],
    ):
        assert_array_equal(
            parameters_of(table.train(tiny(kind), sensitive_features=same)), expected
        )
    two = pd.DataFrame({"g": groups, "parity": np.arange(41) % 2})
    estimator = table.train(tiny(kind), sensitive_features=two)
    assert estimator.groups_ == [("a", 0), ("a", 1), ("b", 0), ("b", 1)]


def test_feature_names(tiny, table):
    frame = pd.DataFrame(table.X, columns=["a", "b", "c"])
    encoder = tiny("encoder").fit(frame, sensitive_features=table.groups)
    assert list(encoder.feature_names_in_) == ["a", "b", "c"]
    with pytest.raises(ValueError, match="same order"):
        encoder.transform(frame[["b", "a", "c"]])


def test_names_and_frames_of_codes(tiny, table):
    encoder = table.train(tiny("encoder", n_components=3))
    names = [f"dpslicedwassersteinfairencoder{i}" for i in range(3)]
    assert list(encoder.get_feature_names_out()) == names
    codes = encoder.set_output(transform="pandas").transform(table.X)
    assert list(codes.columns) == names
    assert codes.shape == (41, 3)


# Predictions.


@pytest.mark.parametrize(
    "domain",
    [
        Box([-1.0, 0.0], [0.5, 0.3]),
        Ball(0.4, center=[0.1, -2.0]),
        Ball(0.4, p=1, center=[0.1, -2.0]),
        partial(Box, -0.5, 0.5),
        partial(Ball, 0.7),
    ],
    ids=str,
)
def test_predictions_lie_in_the_domain(tiny, table, domain):
    regressor = tiny("regressor", y_domain=domain, epsilon=np.inf, training__learning_rate=20.0)
    regressor.fit(table.X, table.Y, sensitive_features=table.groups)
    predicted = regressor.predict(50 * table.X)
    domain = regressor.y_domain_
    assert predicted.shape == table.Y.shape
    assert domain.contains(predicted, tol=1e-12).all()
    # The learning rate brought some to the boundary, where rounding would show.
    center = enclosing_ball(domain).center
    assert not domain.contains(center + 1.001 * (predicted - center)).all()


@pytest.mark.parametrize("shape", [(41,), (41, 1), (41, 2)])
def test_predictions_have_the_shape_of_targets(tiny, table, shape):
    y = table.Y[:, : shape[-1]].reshape(shape) if len(shape) == 2 else table.y
    regressor = tiny("regressor").fit(table.X, y, sensitive_features=table.groups)
    assert regressor.predict(table.X[:7]).shape == (7, *shape[1:])


def test_units_of_the_targets_do_not_matter(tiny, table, parameters_of):
    options = {"epsilon": np.inf, "training__max_iter": 10}
    one = tiny("regressor", y_domain=Box(-2, 2), **options)
    other = tiny("regressor", y_domain=Box(96, 104), **options)
    one.fit(table.X, table.y, sensitive_features=table.groups)
    other.fit(table.X, 100 + 2 * table.y, sensitive_features=table.groups)
    assert_allclose(parameters_of(other), parameters_of(one), rtol=1e-6)
    assert_allclose(other.predict(table.X), 100 + 2 * one.predict(table.X), rtol=1e-9)


@pytest.mark.parametrize(
    "labels",
    [["no", "yes"], [False, True], [-1, 5], [0.0, 2.0], ["high", "low", "middle"], range(5)],
    ids=str,
)
@pytest.mark.parametrize("declared", [False, True])
def test_labels(tiny, table, labels, declared):
    y = np.array(labels)[np.arange(41) % len(labels)]
    classes = list(labels)[::-1] if declared else None
    classifier = tiny("classifier", classes=classes)
    classifier.fit(table.X, y, sensitive_features=table.groups)
    assert classifier.classes_.tolist() == sorted(labels)
    assert classifier.classes_.dtype.kind == y.dtype.kind
    probabilities = classifier.predict_proba(table.X)
    assert probabilities.shape == (41, len(labels))
    assert (probabilities >= 0).all()
    assert_allclose(probabilities.sum(axis=1), 1, rtol=1e-12)
    assert_array_equal(classifier.predict(table.X), np.array(labels)[probabilities.argmax(1)])


def test_a_declared_class_may_be_absent(tiny, table):
    classifier = tiny("classifier", classes=[0, 1, 7])
    probabilities = table.train(classifier).predict_proba(table.X)
    assert probabilities.shape == (41, 3)
    assert "labels" not in " ".join(classifier.privacy_.public)


def test_codes_lie_in_their_ball_and_come_back(tiny, table):
    encoder = table.train(tiny("encoder", gradient__output_bound=0.3))
    codes = encoder.transform(1e3 * table.X)
    assert (np.linalg.norm(codes, axis=1) <= 0.3 + 1e-12).all()
    assert encoder.inverse_transform(codes).shape == table.X.shape


# Randomness.


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_seeds(tiny, table, parameters_of, kind):
    def fit(random_state):
        options = {"random_state": random_state, "gradient__batch_fraction": 0.5}
        return parameters_of(table.train(tiny(kind, **options))).tolist()

    assert fit(0) == fit(0)
    assert fit(0) == fit(np.int64(0))
    fits = [fit(seed) for seed in (0, 1, None, None)]
    assert all(a != b for i, a in enumerate(fits) for b in fits[:i])
    state = np.random.RandomState(0)
    advanced = [fit(state), fit(state)]
    assert advanced[0] != advanced[1]
    state = np.random.RandomState(0)
    assert [fit(state), fit(state)] == advanced


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_shown_does_not_change_a_seeded_fit(tiny, table, parameters_of, kind, capfd):
    expected = parameters_of(table.train(tiny(kind)))
    watched = tiny(kind, training__verbose=1, training__callback=lambda step, module: None)
    assert_array_equal(parameters_of(table.train(watched)), expected)


def global_draws():
    """Return what the global streams of each library give next, and leave them as they are."""
    stream = np.random.mtrand._rand
    states = stream.get_state(), torch.get_rng_state()
    values = stream.uniform(size=3).tolist(), torch.rand(3).tolist()
    stream.set_state(states[0])
    torch.set_rng_state(states[1])
    return values


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("seed", [0, None])
def test_global_random_state_is_left_alone(tiny, table, kind, seed):
    before = global_draws()
    estimator = table.train(tiny(kind, random_state=seed, gradient__batch_fraction=0.5))
    if kind == "generator":
        estimator.sample(3)
    assert global_draws() == before
    torch.rand(1)
    assert global_draws() != before


def test_progress_on_request(trained_quietly_and_loudly):
    quiet, loud = trained_quietly_and_loudly
    assert quiet == ("", "")
    assert "DPSlicedWassersteinFairClassifier: 100%" in loud.err


@pytest.fixture
def trained_quietly_and_loudly(tiny, table, capfd):
    table.train(tiny("classifier"))
    quiet = capfd.readouterr()
    table.train(tiny("classifier", training__verbose=1))
    return quiet, capfd.readouterr()


# Metadata routing.

SCHEMA = Schema({"u": Numeric(-3, 3), "v": Numeric(-3, 3), "c": Categorical(["x", "y"])})


@pytest.fixture
def frame(table):
    frame = pd.DataFrame(table.X[:, :2], columns=["u", "v"]).clip(-3, 3)
    return frame.assign(c=np.where(table.X[:, 2] > 0, "x", "y"))


@pytest.fixture
def routed():
    with sklearn.config_context(enable_metadata_routing=True):
        yield


@pytest.mark.usefixtures("routed")
@pytest.mark.parametrize("kind", FAIR)
def test_groups_go_through_a_pipeline(tiny, table, frame, parameters_of, kind):
    targets = {"regressor": table.y, "classifier": table.labels, "encoder": None}[kind]
    requested = tiny(kind).set_fit_request(sensitive_features=True)
    pipeline = Pipeline([("encode", TabularEncoder(SCHEMA)), ("fair", requested)])
    pipeline.fit(frame, targets, sensitive_features=table.groups)
    assert pipeline["fair"].groups_ == ["a", "b"]
    assert pipeline["fair"].privacy_.batches == ()
    inside = TabularEncoder(SCHEMA).fit_transform(frame)
    alone = tiny(kind).fit(inside, targets, sensitive_features=table.groups)
    assert_array_equal(parameters_of(pipeline["fair"]), parameters_of(alone))
    # Without the request they are refused, and without them there is no penalty: a warning.
    silent = Pipeline([("encode", TabularEncoder(SCHEMA)), ("fair", tiny(kind))])
    with pytest.raises(sklearn.exceptions.UnsetMetadataPassedError, match="sensitive_features"):
        silent.fit(frame, targets, sensitive_features=table.groups)
    with pytest.warns(UserWarning, match=r"set_fit_request\(sensitive_features=True\)"):
        silent.fit(frame, targets)
    assert silent["fair"].groups_ is None
    refused = Pipeline([("fair", tiny(kind).set_fit_request(sensitive_features=False))])
    with pytest.raises(TypeError, match="sensitive_features"):
        refused.fit(inside, targets, sensitive_features=table.groups)


@pytest.mark.usefixtures("routed")
def test_codes_feed_a_classifier(tiny, table, frame):
    pipeline = Pipeline(
        [
            ("encode", TabularEncoder(SCHEMA)),
            ("fair", tiny("encoder").set_fit_request(sensitive_features=True)),
            ("predict", LogisticRegression()),
        ]
    )
    pipeline.fit(frame, table.labels, sensitive_features=table.groups)
    assert pipeline["fair"].groups_ == ["a", "b"]
    assert pipeline["predict"].n_features_in_ == 2
    assert pipeline.predict(frame).shape == (41,)


@pytest.mark.slow
@pytest.mark.usefixtures("routed")
def test_search_and_cross_validation(tiny, table, frame, monkeypatch):
    fair = tiny("classifier", classes=[0, 1]).set_fit_request(sensitive_features=True)
    sizes = []
    plan = type(fair)._plan

    def watch(self, **facts):
        sizes.append((self.alpha, facts["strata"].sizes))
        return plan(self, **facts)

    monkeypatch.setattr(type(fair), "_plan", watch)
    pipeline = Pipeline([("encode", TabularEncoder(SCHEMA)), ("fair", fair)])
    grid = {"fair__alpha": [0.0, 0.5], "fair__epsilon": [1.0, np.inf]}
    search = GridSearchCV(pipeline, grid, cv=2, error_score="raise")
    search.fit(frame, table.labels, sensitive_features=table.groups)
    assert len(search.cv_results_["params"]) == 4
    assert search.best_estimator_["fair"].privacy_.epsilon == search.best_params_["fair__epsilon"]
    # Eight fits on halves with both groups, and the refit.
    assert {alpha for alpha, _ in sizes} == {0.0, 0.5}
    assert len(sizes) == 9
    assert all(len(of) == 2 and sum(of) in (20, 21, 41) for _, of in sizes)

    scores = cross_validate(
        pipeline,
        frame,
        table.labels,
        cv=2,
        params={"sensitive_features": table.groups},
        error_score="raise",
        return_estimator=True,
    )
    assert [fit["fair"].groups_ for fit in scores["estimator"]] == [["a", "b"]] * 2
    assert np.isfinite(scores["test_score"]).all()
