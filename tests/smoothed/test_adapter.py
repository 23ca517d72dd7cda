"""The adapter as a scikit-learn estimator, and what it learns."""

import pickle
from functools import partial

import numpy as np
import pandas as pd
import pytest
import sklearn
import torch
from conformity import parametrize_with_checks
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import ClassifierMixin, clone
from sklearn.exceptions import UnsetMetadataPassedError
from sklearn.model_selection import GridSearchCV, StratifiedKFold
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer

from sklearn_dpgen.domains import Box
from sklearn_dpgen.exceptions import TrainingDivergedError
from sklearn_dpgen.nn import Training
from sklearn_dpgen.smoothed import SmoothedSlicedWassersteinAdapter
from sklearn_dpgen.smoothed._features import AdaptedNetwork, clip_rows
from sklearn_dpgen.utils._source_and_target import source_mask

BOX = partial(Box, -9, 9)
ABSENT = "ignore:sample_domain is absent:UserWarning"


def tiny(**options):
    """Return an adapter of a few steps: to run through, not to learn."""
    small = {
        "training__hidden_layer_sizes": (4,),
        "feature_dim": 3,
        "release__kind": "records",
        "release__batch_size": 5,
        "source_batch_size": 8,
        "source_iter": 3,
        "release__n_epochs": 1,
        "release__n_projections": 12,
        "training__max_iter": 3,
        "random_state": 0,
    }
    return SmoothedSlicedWassersteinAdapter().set_params(**small | options)


@pytest.fixture
def table():
    """Return records, masked labels, and domains: 30 source rows, 25 target rows, interleaved."""
    rng = np.random.default_rng(0)
    domain = rng.permutation([1] * 30 + [-2] * 25)
    y = rng.integers(3, size=55)
    X = rng.normal(size=(55, 4))
    X[:, 0] += 3 * y + (domain < 0)
    return X, np.where(domain > 0, y, -1), domain


@pytest.fixture
def shifted():
    """Return a source and a target that lies elsewhere."""
    rng = np.random.default_rng(1)
    centers = 3 * np.array([[0, 0], [1.0, 0], [0, 1.0]])
    y = rng.integers(3, size=6000)
    X = centers[y] + 0.4 * rng.normal(size=(6000, 2))
    domain = np.repeat([1, -2], [2000, 4000])
    X[domain < 0] += [1.2, 0.6]
    return X, y, domain


@pytest.mark.filterwarnings(ABSENT)
@parametrize_with_checks(
    [tiny(source_iter=160, source_learning_rate=0.03)],
    variants=[
        tiny(source_iter=160, source_learning_rate=0.03, release__kind="projections"),
        tiny(source_iter=160, source_learning_rate=0.03, release__kind="moments", domain=BOX),
    ],
    expected_failed_checks=lambda estimator: {
        "check_classifiers_classes": "a label of -1 masks a row of the target, as in skada"
    },
)
def test_scikit_learn_checks(estimator, check):
    # One check wants accuracy; to the others any network of the source is as good.
    if check.func.__name__ != "check_classifiers_train":
        estimator = clone(estimator).set_params(source_iter=3)
    check(estimator)


def learned(adapter, X, y, domain):
    adapter.fit(X, np.where(domain < 0, -1, y), sample_domain=domain)
    return np.mean(adapter.predict(X[domain < 0]) == y[domain < 0])


@pytest.mark.slow
def test_adapts_to_the_target(shifted):
    options = {
        "training__hidden_layer_sizes": (32,),
        "feature_dim": 4,
        "training__max_iter": 300,
        "training__learning_rate": 0.01,
        "source_iter": 200,
        "random_state": 28,
    }
    adapter = SmoothedSlicedWassersteinAdapter().set_params(**options)
    alone = learned(clone(adapter).set_params(adaptation_weight=0.0), *shifted)
    free = learned(clone(adapter).set_params(epsilon=np.inf), *shifted)
    private = learned(clone(adapter).set_params(epsilon=10.0), *shifted)
    assert alone < 0.85
    assert free > 0.93
    assert private > 0.93


@pytest.mark.slow
@pytest.mark.parametrize(
    "release",
    [
        {
            "release__kind": "projections",
            "release__batch_size": 512,
            "training__learning_rate": 0.03,
        },
        {"release__kind": "moments", "domain": BOX, "training__learning_rate": 0.01},
    ],
    ids=["projections", "moments"],
)
def test_adapts_to_the_target_by_a_map_of_records(shifted, release):
    options = {
        "training__hidden_layer_sizes": (32,),
        "feature_dim": 4,
        "training__max_iter": 300,
        "source_iter": 200,
        "epsilon": 10.0,
        "random_state": 0,
    }
    adapter = SmoothedSlicedWassersteinAdapter().set_params(**options, **release)
    assert learned(adapter, *shifted) > 0.93


# Domains and labels.


def test_domains_follow_skada():
    y = np.array([0, 1, -1, 1])
    assert_array_equal(source_mask(y, None), [True, True, False, True])
    assert_array_equal(source_mask(np.array([0.0, np.nan, 1.0]), None), [True, False, True])
    assert_array_equal(source_mask(y, [2, -1, 0, -3]), [True, False, True, False])
    with pytest.warns(UserWarning, match="sample_domain is absent"):
        assert source_mask(np.array(["a", "b"]), None).all()


@pytest.mark.parametrize(
    "y", [[-1, 0, 1, -1], [np.nan, 0, 1, np.nan], np.array([None, "a", "b", None], dtype=object)]
)
def test_a_masked_label_in_the_source_is_no_class(y):
    adapter = SmoothedSlicedWassersteinAdapter(source_iter=1, training=Training(max_iter=1))
    with pytest.raises(ValueError, match="needs the label of each row of the source"):
        adapter.fit(np.eye(4), y, sample_domain=[1, 1, 1, -2])


@pytest.mark.parametrize(
    ("domain", "match"),
    [
        ([1, 1, 1], "no target sample"),
        ([-1, -1, -1], "no source sample"),
        ([1, -1], "3 integers"),
        ([[1], [-1], [1]], "3 integers"),
        ([1.5, -1.0, 1.0], "3 integers"),
        (["s", "t", "s"], "3 integers"),
        ([1, np.nan, -1], "NaN"),
    ],
)
def test_domains_that_cannot_be(domain, match):
    with pytest.raises(ValueError, match=match):
        source_mask(np.array([0, 1, 1]), domain)
    with pytest.raises(ValueError, match="no source sample"):
        source_mask(np.array([-1, -1]), None)


def parameters_of(adapter):
    return torch.cat([p.detach().flatten() for p in adapter.module_.parameters()]).numpy()


def test_masked_labels_stand_for_domains(table):
    X, y, domain = table
    expected = parameters_of(tiny().fit(X, y, sample_domain=domain))
    assert_array_equal(parameters_of(tiny().fit(X, y)), expected)
    missing = np.where(domain < 0, np.nan, y)
    assert_array_equal(parameters_of(tiny().fit(X, missing)), expected)


def test_labels_of_the_source(table):
    X, y, domain = table
    names = np.array(["x", "y", "z", "masked"], dtype=object)[y]
    adapter = tiny().fit(X, names, sample_domain=domain)
    assert list(adapter.classes_) == ["x", "y", "z"]
    assert set(adapter.predict(X)) <= {"x", "y", "z"}
    assert_allclose(adapter.predict_proba(X).sum(axis=1), 1)
    codes = tiny().fit(X, y, sample_domain=domain)
    assert_array_equal(adapter.classes_[codes.predict(X)], adapter.predict(X))
    with pytest.raises(ValueError, match="two classes in the source"):
        tiny().fit(X, np.where(domain < 0, y, 1), sample_domain=domain)
    with pytest.raises(ValueError, match="NaN"):
        tiny().fit(
            X,
            np.where(np.arange(55) == np.flatnonzero(domain > 0)[2], np.nan, 1.0 * y),
            sample_domain=domain,
        )


# The estimator.


def test_clone_pickle_and_frames(table):
    X, y, domain = table
    adapter = tiny(epsilon=3.0)
    before = repr(adapter.get_params())
    adapter.fit(X, y, sample_domain=domain)
    assert repr(adapter.get_params()) == before
    assert not hasattr(clone(adapter), "module_")
    copy = pickle.loads(pickle.dumps(adapter))
    assert_array_equal(copy.predict_proba(X), adapter.predict_proba(X))
    assert copy.privacy_ == adapter.privacy_
    frame = pd.DataFrame(X, columns=list("abcd"), index=range(100, 155))
    other = tiny(epsilon=3.0).fit(frame, pd.Series(y), sample_domain=pd.Series(domain))
    assert_array_equal(parameters_of(other), parameters_of(adapter))
    assert list(other.feature_names_in_) == list("abcd")
    again = tiny(epsilon=3.0).fit(X, y, sample_domain=domain)
    assert_array_equal(parameters_of(again), parameters_of(adapter))


def test_metadata_routing(table):
    X, y, domain = table
    with sklearn.config_context(enable_metadata_routing=True):
        inner = tiny().set_fit_request(sample_domain=True)
        pipe = make_pipeline(FunctionTransformer(), inner).fit(X, y, sample_domain=domain)
        assert pipe[-1].privacy_.n_releases == 5
        full = np.abs(y)
        search = GridSearchCV(inner, {"training__max_iter": [2]}, cv=2)
        with pytest.raises(UnsetMetadataPassedError, match="set_score_request"):
            search.fit(X, full, sample_domain=domain)
        inner.set_score_request(sample_domain=True)
        search.fit(X, full, sample_domain=domain)
        assert search.best_estimator_.n_iter_ == 5


# The score.


class CountsMasks(SmoothedSlicedWassersteinAdapter):
    """Scores as any classifier does: masked rows are wrong, source rows count."""

    def score(self, X, y, sample_weight=None, sample_domain=None):
        return ClassifierMixin.score(self, X, y, sample_weight)


def is_scored_by_known_target_labels(adapter, X, y, domain):
    """Whether scores are those counted by hand, whatever is masked and however."""
    rng = np.random.default_rng(2)
    weight = rng.uniform(size=len(y))
    target = domain < 0
    hidden = rng.uniform(size=len(y)) < 0.5
    known = target & ~hidden
    correct = adapter.predict(X) == y
    by_hand = correct[known].mean()
    weighted = np.average(correct[known], weights=weight[known])
    masked, missing = np.where(hidden, -1, y), np.where(hidden, np.nan, y)
    return bool(
        np.isclose(adapter.score(X, masked, sample_domain=domain), by_hand)
        and np.isclose(adapter.score(X, missing, sample_domain=list(domain)), by_hand)
        and np.isclose(adapter.score(X, masked, weight, domain), weighted)
        and np.isclose(adapter.score(X[target], y[target]), correct[target].mean())
    )


@pytest.mark.slow
def test_score_counts_known_labels_of_the_target(shifted):
    X, y, domain = shifted
    options = {"source_iter": 100, "adaptation_weight": 0.0, "training__hidden_layer_sizes": (16,)}
    masked = np.where(domain < 0, -1, y)
    for make, expected in ((tiny, True), (CountsMasks, False)):
        adapter = make().set_params(**options, random_state=0).fit(X, masked, sample_domain=domain)
        assert is_scored_by_known_target_labels(adapter, X, y, domain) == expected
    adapter = tiny(**options).fit(X, masked, sample_domain=domain)
    with pytest.warns(UserWarning, match="may all be of the source"):
        on_source = adapter.score(X, masked)
    assert on_source == adapter.score(X[domain > 0], y[domain > 0])
    with pytest.raises(ValueError, match="rows of the target with known labels"):
        adapter.score(X, masked, sample_domain=domain)
    with pytest.raises(ValueError, match="sample_domain must hold 6000 integers"):
        adapter.score(X, y, sample_domain=domain[1:])


def test_score_of_names(table):
    X, y, domain = table
    names = np.array(["x", "y", "z", None], dtype=object)[y]
    adapter = tiny().fit(X, names, sample_domain=domain)
    truth = np.array(["x", "y", "z"], dtype=object)[np.abs(y)]
    expected = np.mean(adapter.predict(X[domain < 0]) == truth[domain < 0])
    assert adapter.score(X, truth, sample_domain=domain) == expected
    with pytest.raises(ValueError, match="known labels"):
        adapter.score(X, names, sample_domain=domain)


@pytest.mark.slow
def test_a_search_sees_the_target(shifted):
    """With weight 0 a model suits the source, where the target is elsewhere."""
    X, y, domain = (rows[::4] for rows in shifted)
    options = {
        "epsilon": np.inf,
        "release__kind": "records",
        "training__hidden_layer_sizes": (32,),
        "feature_dim": 4,
        "training__max_iter": 200,
        "training__learning_rate": 0.01,
        "source_iter": 100,
        "random_state": 4,
    }

    # A third of the target's labels are known.
    given = np.where((domain < 0) & (np.arange(len(y)) % 3 > 0), -1, y)

    def found(make):
        with sklearn.config_context(enable_metadata_routing=True):
            adapter = make().set_params(**options).set_fit_request(sample_domain=True)
            return GridSearchCV(
                adapter.set_score_request(sample_domain=True),
                {"adaptation_weight": [0.0, 3.0]},
                cv=StratifiedKFold(2, shuffle=True, random_state=0),
                error_score="raise",
            ).fit(X, given, sample_domain=domain)

    search = found(SmoothedSlicedWassersteinAdapter)
    assert search.best_params_ == {"adaptation_weight": 3.0}
    alone, adapted = search.cv_results_["mean_test_score"]
    assert alone < 0.85
    assert adapted > 0.93
    # Masked rows counted as wrong leave no score near the truth.
    assert found(CountsMasks).cv_results_["mean_test_score"].max() < 0.8


@pytest.mark.parametrize(
    "options",
    [
        {"release__directions": "independent", "release__n_projections": 5},
        {"release__n_projections": 2},
        {"release__n_projections": 7},
        {"feature_dim": 1},
        {"release__batch_size": 25},
        {"release__batch_size": 1},
        {"release__n_epochs": 0.01},
        {"release__n_projections": "auto"},
        {"release__shape_weight": 2.0},
        {"training__hidden_layer_sizes": ()},
        {"training__solver": "sgd"},
        {"epsilon": np.inf},
        {"release__kind": "projections"},
        {
            "release__kind": "projections",
            "release__directions": "independent",
            "release__n_projections": 5,
        },
        {"release__kind": "projections", "release__shape_weight": 2.0, "epsilon": np.inf},
        {
            "release__kind": "projections",
            "release__batch_size": "auto",
            "feature_dim": 1,
            "release__n_projections": 1,
        },
        {
            "release__kind": "moments",
            "domain": Box(-9, 9, n_features=4),
            "adaptation_weight": 1.0,
        },
    ],
    ids=lambda options: ", ".join(map(str, options.values())),
)
@pytest.mark.filterwarnings("ignore:The noise on the mean:UserWarning")
def test_options(table, options):
    X, y, domain = table
    adapter = tiny(**options).fit(X, y, sample_domain=domain)
    assert len(adapter.loss_curve_) == adapter.n_iter_ - 3 == 3
    assert adapter.predict_proba(X).shape == (55, 3)


def test_callback_and_divergence(table):
    X, y, domain = table
    seen = []
    adapter = tiny(training__callback=lambda step, module: seen.append((step, module)))
    adapter.fit(X, y, sample_domain=domain)
    assert seen == [(step, adapter.module_) for step in range(3)]
    with pytest.raises(TrainingDivergedError):
        adapter.set_params(training__solver="sgd", training__learning_rate=1e200).fit(
            X, y, sample_domain=domain
        )
    assert not hasattr(adapter, "module_")


def test_batches_larger_than_the_target(table):
    X, y, domain = table
    with pytest.raises(ValueError, match="batch_size must be at most .* 25, got 26"):
        tiny(release__batch_size=26).fit(X, y, sample_domain=domain)


# The network.


def test_clipped_rows():
    Z = torch.tensor([[0.3, 0.4], [3.0, 4.0], [0.0, 0.0], [0.1, 0.0]], dtype=torch.float64)
    expected = [[0.3, 0.4], [0.3, 0.4], [0.0, 0.0], [0.1, 0.0]]
    assert_allclose(clip_rows(Z), expected, rtol=1e-15)
    inside = torch.tensor([[0.1, -0.2], [1.0, 3.0], [40.0, 1e-3]], dtype=torch.float64)
    torch.autograd.gradcheck(clip_rows, inside.requires_grad_())
    Z = torch.zeros(1, 2, dtype=torch.float64, requires_grad=True)
    clip_rows(Z).sum().backward()
    assert torch.isfinite(Z.grad).all()


def test_the_map_starts_as_the_identity():
    network = AdaptedNetwork(4, (5,), 3, 2, "relu").double()
    Z = network.features(torch.randn(7, 4, dtype=torch.float64))
    assert_allclose(network.move(Z).detach(), Z.detach(), atol=1e-15)
