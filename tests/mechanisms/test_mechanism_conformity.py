"""scikit-learn conventions, and the way of a mechanism through estimators around it."""

import pickle
from functools import partial

import numpy as np
import pandas as pd
import pytest
from any_width import SchemaOfX
from conformity import parametrize_with_checks
from local_privacy import TruncatedLaplace
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV
from sklearn.neighbors import KernelDensity
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer

from sklearn_dpgen.deconvolution import EntropicDeconvGAN
from sklearn_dpgen.domains import Box, OneHot
from sklearn_dpgen.mechanisms import (
    GaussianMechanism,
    JointRandomizedResponse,
    LaplaceMechanism,
    RandomizedResponse,
    TabularMechanism,
)
from sklearn_dpgen.nn import Training
from sklearn_dpgen.schema import Categorical, Numeric, Schema

ANY_WIDTH = partial(Box, -5.0, 5.0)
TINY = {
    "training": Training(hidden_layer_sizes=(8,), max_iter=3, device="cpu"),
    "batch_size": 20,
}
SCHEMA = Schema({"age": Numeric(0, 100), "sex": Categorical(["f", "m"])})


class AnyCategories:
    """The categories of as many features as the data has, of which one alone is none."""

    def __call__(self, n_features):
        if n_features == 1:
            raise ValueError("n_features=1: a category needs two.")
        return OneHot(n_features)

    def __repr__(self):
        # Names of tests must be the same in every process.
        return "AnyCategories()"


class AnyWidthTabular(TabularMechanism):
    """As many bounded numbers as the data has columns: what generic checks can feed."""

    def __init__(self, bound=1e3, n_bins=None, noise="laplace", random_state=None):
        self.bound = bound
        self.n_bins = n_bins
        self.noise = noise
        self.random_state = random_state

    _parameter_constraints = {
        "bound": [float],
        **{name: TabularMechanism._parameter_constraints[name] for name in ("n_bins", "noise")},
        "random_state": ["random_state"],
    }
    epsilon, split, delta = 1.0, "uniform", 1e-5
    index = "keep"

    @property
    def schema(self):
        return Schema({n: Numeric(-self.bound, self.bound, nullable=True) for n in self.names_})

    def fit(self, X, y=None):
        shape = np.asarray(X).shape
        n_columns = shape[1] if len(shape) == 2 else 1
        self.names_ = list(getattr(X, "columns", [f"x{i}" for i in range(n_columns)])) or ["x0"]
        return super().fit(X)


class AnyWidthJoint(SchemaOfX, JointRandomizedResponse):
    """Joint answers on as many bounded numbers as the data has columns, without the texts.

    Generic checks subtract what transform returns.
    """

    epsilon, n_bins, n_asked, always, weights = 1.0, "auto", "auto", (), None
    index = "keep"

    def __init__(self, random_state=None):
        self.random_state = random_state

    _parameter_constraints = {"random_state": ["random_state"]}

    def transform(self, X):
        return super().transform(X)[self.get_feature_names_out()]

    def get_feature_names_out(self, input_features=None):
        return super().get_feature_names_out()[1:4]


def infinity_is_moved(estimator):
    if isinstance(estimator, TabularMechanism | JointRandomizedResponse):
        return {}
    return {"check_estimators_nan_inf": "infinity lies outside of the domain, as any large number"}


def expected_failures(estimator):
    joint = "the noise of a batch is drawn jointly: a part of it is another release"
    return infinity_is_moved(estimator) | {
        "check_methods_sample_order_invariance": joint,
        "check_methods_subset_invariance": joint,
    }


@parametrize_with_checks(
    [
        # Generic checks want data frames with the index of the records.
        LaplaceMechanism(domain=ANY_WIDTH, random_state=0, index="keep"),
        GaussianMechanism(domain=ANY_WIDTH, random_state=0, index="keep"),
        RandomizedResponse(domain=AnyCategories(), random_state=0, index="keep"),
        AnyWidthTabular(random_state=0),
        AnyWidthJoint(random_state=0),
    ],
    variants=[
        AnyWidthTabular(n_bins=4, random_state=0),
        AnyWidthTabular(noise="gaussian", random_state=0),
        EntropicDeconvGAN(AnyWidthTabular(random_state=0), privatize=True, random_state=0, **TINY),
    ],
    expected_failed_checks=expected_failures,
)
def test_scikit_learn_conformity(estimator, check):
    check(estimator)


@parametrize_with_checks(
    [],
    variants=[LaplaceMechanism(np.inf, domain=ANY_WIDTH, random_state=0, index="keep")],
    expected_failed_checks=infinity_is_moved,
)
def test_scikit_learn_conformity_without_noise(estimator, check):
    # The other failures above are those of noise alone.
    check(estimator)


def frame():
    return pd.DataFrame({"b": [0.1, 0.9, 0.4], "a": [0.2, 0.7, 0.5]}, index=[7, 5, 3])


FITTED = [
    (LaplaceMechanism(2.0, domain=Box(0, 1, n_features=2), random_state=0), frame()),
    (GaussianMechanism(2.0, domain=Box(0, 1, n_features=2), random_state=0), frame()),
    (RandomizedResponse(2.0, domain=OneHot(2), random_state=0), frame()),
    (
        TabularMechanism(2.0, schema=SCHEMA, random_state=0),
        pd.DataFrame({"sex": ["f", "m"], "age": [10.0, 60.0]}, index=[2, 1]),
    ),
]


@pytest.mark.parametrize(("mechanism", "X"), FITTED, ids=lambda value: type(value).__name__)
def test_clone_pickle_and_pipeline(mechanism, X):
    fitted = clone(mechanism).fit(X)
    Y = fitted.transform(X)
    for copy in (clone(fitted).fit(X), pickle.loads(pickle.dumps(fitted))):
        np.testing.assert_array_equal(copy.transform(X), Y)
        assert copy.privacy_ == fitted.privacy_
    assert not hasattr(clone(fitted), "privacy_")
    pipeline = make_pipeline(clone(mechanism), FunctionTransformer()).fit(X)
    np.testing.assert_array_equal(pipeline.transform(X), Y)
    assert pipeline[0].privacy_.epsilon == 2.0
    with pytest.raises(ValueError, match="is not fitted"):
        clone(fitted).transform(X)


@pytest.mark.parametrize(("mechanism", "X"), FITTED, ids=lambda value: type(value).__name__)
def test_set_output(mechanism, X):
    Y = clone(mechanism).fit_transform(X)
    framed = clone(mechanism).set_output(transform="pandas").fit_transform(X)
    assert list(framed.columns) == list(X.columns)
    np.testing.assert_array_equal(framed, Y)


def releases_an_index(mechanism, X):
    Y = clone(mechanism).set_output(transform="pandas").fit_transform(X)
    return not Y.index.equals(pd.RangeIndex(len(X)))


@pytest.mark.parametrize(("mechanism", "X"), FITTED, ids=lambda value: type(value).__name__)
def test_the_index_is_released_on_request_only(mechanism, X):
    keeping = clone(mechanism).set_params(index="keep")
    assert not releases_an_index(mechanism, X)
    assert releases_an_index(keeping, X)
    assert keeping.set_output(transform="pandas").fit_transform(X).index.equals(X.index)
    reports = [clone(m).fit(X).privacy_.public[-1] for m in (mechanism, keeping)]
    assert reports == ["order", "order_and_index"]
    with pytest.raises(ValueError, match="'index' parameter"):
        clone(mechanism).set_params(index="drop").fit(X)


def late(mechanism):
    """Return a broken variant, which reads its parameter at the release."""
    kind = type(mechanism)
    index = property(lambda self: self.index, lambda self, value: None)
    return type("Late", (kind,), {"_index": index, "__init__": kind.__init__})(
        **mechanism.get_params()
    )


@pytest.mark.parametrize(("mechanism", "X"), FITTED, ids=lambda value: type(value).__name__)
def test_an_index_that_the_report_does_not_state_is_not_released(mechanism, X):
    def releases_it_later(mechanism):
        fitted = mechanism.set_output(transform="pandas").fit(X).set_params(index="keep")
        assert fitted.privacy_.public[-1] == "order"
        return fitted.transform(X).index.equals(X.index)

    assert not releases_it_later(clone(mechanism))
    assert releases_it_later(late(mechanism))


@pytest.mark.parametrize(("mechanism", "X"), FITTED, ids=lambda value: type(value).__name__)
def test_a_fit_that_fails_leaves_nothing_fitted(mechanism, X):
    other = X.iloc[:, :1]
    for before in (clone(mechanism), clone(mechanism).fit(X)):
        with pytest.raises(ValueError, match="features, X has 1 features|missing \\['sex'\\]|age"):
            before.fit(other)
        with pytest.raises(ValueError, match="is not fitted"):
            before.transform(X)
        assert not hasattr(before, "privacy_")


def test_the_order_of_columns_is_checked():
    mechanism = LaplaceMechanism(domain=Box(0, 1, n_features=2)).fit(frame())
    assert list(mechanism.feature_names_in_) == ["b", "a"]
    with pytest.raises(ValueError, match="same order"):
        mechanism.transform(frame()[["a", "b"]])
    with pytest.raises(ValueError, match="same order"):
        mechanism.encode_release(frame()[["a", "b"]])


def test_the_fit_of_a_mechanism_reads_no_value():
    X = frame()
    for mechanism, other in ((FITTED[0][0], X * 0), (FITTED[1][0], X + 9)):
        reference, changed = (vars(clone(mechanism).fit(data)) for data in (X, other))
        assert changed.keys() == reference.keys()
        for name, value in reference.items():
            if name != "feature_names_in_":
                assert changed[name] == value


def test_search_over_the_budget():
    X = np.random.default_rng(0).uniform(size=(60, 1))
    pipeline = make_pipeline(LaplaceMechanism(domain=Box(0, 1), random_state=0), KernelDensity())
    grid = {"laplacemechanism__epsilon": [1.0, 50.0]}
    search = GridSearchCV(pipeline, grid, cv=2).fit(X)
    assert search.best_params_ == {"laplacemechanism__epsilon": 50.0}
    gan = EntropicDeconvGAN(LaplaceMechanism(domain=Box(0, 1)), privatize=True, **TINY)
    assert {"mechanism__epsilon", "mechanism__domain"} <= set(gan.get_params())
    gan.set_params(mechanism__epsilon=3.0)
    assert gan.mechanism.epsilon == 3.0


def test_a_mechanism_of_a_user_is_learned_from():
    mechanism = TruncatedLaplace(4.0, domain=Box([0, -1], [1, 1]), random_state=0)
    X = np.random.default_rng(0).uniform(size=(40, 2))
    Y = mechanism.fit_transform(X)
    assert mechanism.domain_.contains(Y).all()
    report = mechanism.privacy_
    assert "void" in report.noise_source
    assert report.is_local
    assert report.caveats
    gan = EntropicDeconvGAN(mechanism, random_state=0, **TINY).fit(Y)
    assert gan.privacy_.epsilon == 4.0
    assert gan.n_iter_ == 3
    assert np.isfinite(gan.loss_curve_).all()
    assert np.isfinite(gan.score_samples(Y)).all()
    with pytest.raises(ValueError, match="TruncatedLaplace has no method _unbiased"):
        gan.score(Y)
    assert mechanism.domain_.contains(gan.sample(5, random_state=0)).all()


def test_a_generator_trained_on_raw_records_saw_privatized_ones_only():
    X = np.random.default_rng(0).uniform(size=(40, 2))
    mechanism = LaplaceMechanism(2.0, domain=Box(0, 1, n_features=2), random_state=0)
    options = {"random_state": 0, **TINY}
    private = EntropicDeconvGAN(mechanism, privatize=True, **options).fit(X)
    public = EntropicDeconvGAN(mechanism, **options).fit(mechanism.fit_transform(X))
    assert private.loss_curve_ == pytest.approx(public.loss_curve_)
    assert "each_fit_and_score" in private.privacy_.caveats
    # Far outside of the domain nothing more is seen.
    far = EntropicDeconvGAN(mechanism, privatize=True, **options).fit(np.where(X > 0.5, 1e6, -1e6))
    near = EntropicDeconvGAN(mechanism, privatize=True, **options).fit((X > 0.5) * 1.0)
    assert far.loss_curve_ == pytest.approx(near.loss_curve_)
