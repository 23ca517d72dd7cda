"""MomentSampler as a scikit-learn estimator, and the laws it makes."""

import pickle
from functools import partial

import numpy as np
import pandas as pd
import pytest
from any_width import ClassesOfY, SchemaOfX
from conformity import parametrize_with_checks
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import clone
from sklearn.exceptions import NotFittedError

from sklearn_dpgen.domains import Ball, Box
from sklearn_dpgen.moments import MomentSampler
from sklearn_dpgen.schema import Categorical, Numeric, Schema

BALL = Ball(4.0, center=[1.0, 0.0, 0.0])
MEANS = np.array([[0.0, 0.0, 0.0], [2.0, 1.0, 0.0]])
SPREADS = np.array([[1.0, 0.3, 0.1], [0.3, 0.8, 0.1]])


@pytest.fixture(scope="module")
def labelled():
    """Return 20000 records of two normal classes, with a quarter and three quarters of them."""
    rng = np.random.default_rng(0)
    codes = (rng.uniform(size=20_000) < 0.75).astype(int)
    X = MEANS[codes] + SPREADS[codes] * rng.normal(size=(20_000, 3))
    return X, np.array(["a", "b"])[codes]


def sampler(**options):
    return MomentSampler(**({"domain": BALL, "labels": "public", "random_state": 0} | options))


class Small:
    """A sampler with two parameters; the others are fixed."""

    def __init__(self, epsilon=1e4, random_state=0):
        self.epsilon = epsilon
        self.random_state = random_state

    _parameter_constraints = {"epsilon": [float], "random_state": ["random_state"]}
    delta, domain, schema = 1e-5, staticmethod(partial(Box, -1000, 1000)), None
    classes, label_proportions, labels = None, None, "public"
    second_order_weight, public = 1.5, None


class PrivateLabels(ClassesOfY, Small, MomentSampler):
    labels = "private"


class AnyTable(SchemaOfX, Small, MomentSampler):
    domain = None


@pytest.mark.filterwarnings("ignore:The noise on the mean:UserWarning")
@parametrize_with_checks(
    [MomentSampler(np.inf, domain=partial(Box, -1000, 1000), labels="public", random_state=0)],
    variants=[PrivateLabels(), AnyTable()],
)
def test_scikit_learn_checks(estimator, check):
    check(estimator)


@pytest.mark.parametrize("labels", ["public", "private"])
def test_the_laws_are_those_of_the_classes(labelled, labels):
    # Twenty standard errors of a mean in a class of 5000.
    fit = sampler(epsilon=10.0, labels=labels, classes=["a", "b"]).fit(*labelled)
    assert_allclose(fit.means_, MEANS, atol=0.1)
    expected = [np.diag(s**2) for s in SPREADS]
    assert_allclose(fit.covariances_, expected, atol=0.15)
    assert_allclose(fit.label_proportions_, [0.25, 0.75], atol=0.02)
    assert_array_equal(fit.classes_, ["a", "b"])
    S = fit.sample(20_000, y="b", random_state=0)
    assert_allclose(S.mean(axis=0), MEANS[1], atol=0.1)
    assert_allclose(np.cov(S.T), expected[1], atol=0.15)
    assert np.mean(fit.sample_labels(10_000, random_state=0) == "b") == pytest.approx(
        0.75, abs=0.03
    )


def test_without_noise_moments_are_those_of_the_records(labelled):
    X, _ = labelled
    inside = X[np.linalg.norm(X - BALL.center, axis=1) < 4]
    fit = sampler(epsilon=np.inf).fit(inside)
    assert_allclose(fit.means_, [inside.mean(axis=0)], atol=1e-6)
    assert_allclose(fit.covariances_, [np.cov(inside.T, bias=True)], atol=1e-5)


def test_one_class_is_not_the_law_of_another(labelled):
    fit = sampler(epsilon=10.0).fit(*labelled)
    S = fit.sample(3000, y=np.repeat(["a", "b", "a"], 1000), random_state=0)
    distances = np.linalg.norm(S[:, None] - fit.means_, axis=2)
    nearest = distances.argmin(axis=1).reshape(3, 1000)
    assert (nearest == [[0], [1], [0]]).mean() > 0.8


def test_samples_are_in_the_domain(labelled):
    box = Box([0, 0, 0], [1, 2, 1])
    fit = sampler(domain=box).fit(labelled[0])
    S = fit.sample(500, random_state=0)
    assert box.contains(S, tol=0).all()
    assert (S == [1, 2, 1]).any()
    assert_array_equal(S, fit.sample(500, random_state=0))
    assert not np.array_equal(fit.sample(5), fit.sample(5))


def test_the_score_prefers_the_records_to_others(labelled):
    X, y = labelled
    fit = sampler(epsilon=10.0).fit(X[:15_000], y[:15_000])
    held_out = X[15_000:]
    assert fit.score(held_out) > fit.score(held_out[:, ::-1]) + 1
    assert fit.score(held_out) > sampler(epsilon=0.05).fit(X[:15_000]).score(held_out)


def test_the_score_in_closed_form():
    X = np.random.default_rng(0).normal(size=(5000, 1)) / 10
    fit = sampler(epsilon=np.inf, domain=Ball(1.0, n_features=1)).fit(X)
    assert fit.score(X) == pytest.approx(-0.5 * np.log(2 * np.pi * np.e * X.var()), abs=1e-4)


def test_check_tells_the_curator_what_is_outside(labelled):
    X, _ = labelled
    share = np.mean(np.linalg.norm(X - BALL.center, axis=1) > 4 + 1e-5)
    assert 0.0005 < share < 0.1
    assert sampler().check(X) == pytest.approx(share, abs=1e-4)
    assert sampler(domain=partial(Box, -50, 50)).check(X) == 0
    assert sampler(domain=partial(Box, 50, 51)).check(X) == 1
    with pytest.raises(ValueError, match="check needs a domain"):
        sampler(domain=None).check(X)


def test_a_table_goes_in_and_comes_out():
    rng = np.random.default_rng(0)
    schema = Schema({"age": Numeric(0, 100), "job": Categorical(["baker", "nurse"])})
    job = rng.choice(["baker", "nurse"], size=5000, p=[0.2, 0.8])
    table = pd.DataFrame({"age": rng.normal(40, 10, 5000) + 20 * (job == "baker"), "job": job})
    fit = sampler(domain=None, schema=schema, epsilon=5.0).fit(table)
    S = fit.sample(5000, random_state=0)
    assert list(S) == ["age", "job"]
    assert S["age"].between(0, 100).all()
    assert (S["job"] == "nurse").mean() == pytest.approx(0.8, abs=0.05)
    ages = S.groupby("job")["age"].mean()
    assert 10 < ages["baker"] - ages["nurse"] < 30
    assert np.isfinite(fit.score(table))


def test_a_frame_of_a_domain_goes_in_and_comes_out(labelled):
    X, y = labelled
    frame = pd.DataFrame(X, columns=["a", "b", "c"])
    fit, plain = sampler().fit(frame, y), sampler().fit(X, y)
    S = fit.sample(5, random_state=0)
    assert list(S) == ["a", "b", "c"]
    assert_array_equal(S, plain.sample(5, random_state=0))
    assert fit.score(frame) == plain.score(X)
    assert fit.check(frame) == plain.check(X)


def test_clone_pickle_and_refits(labelled):
    fit = sampler(epsilon=3.0).fit(*labelled)
    copy = clone(fit)
    assert not hasattr(copy, "privacy_")
    assert_array_equal(copy.fit(*labelled).means_, fit.means_)
    loaded = pickle.loads(pickle.dumps(fit))
    assert loaded.privacy_ == fit.privacy_
    assert_array_equal(loaded.sample(4, random_state=0), fit.sample(4, random_state=0))
    before = fit.sample(4, random_state=0)
    fit.set_params(domain=Box(0, 1), classes=[1, 2], second_order_weight=9.0)
    assert_array_equal(fit.sample(4, random_state=0), before)
    fit.set_params(domain=BALL, classes=None).fit(labelled[0])
    assert not hasattr(fit, "classes_")
    assert fit.means_.shape == (1, 3)
    with pytest.raises(ValueError, match="needs a fit with labels"):
        fit.sample_labels()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"epsilon": 0}, "'epsilon' parameter"),
        ({"second_order_weight": 0}, "'second_order_weight' parameter"),
        ({"labels": "secret"}, "'labels' parameter"),
        ({"labels": "private"}, "Private labels need classes"),
        ({"domain": None}, "either schema or domain"),
        ({"domain": Box(0, 1, n_features=4)}, "domain has 4 features, X has 3 features"),
        ({"classes": ["a", "b", "c"]}, "classes must each have a record if labels are public"),
        ({"classes": ["a", "c"]}, "y holds labels that are missing or not among the classes"),
        ({"label_proportions": [0.5, 0.6]}, "sum to 1"),
    ],
    ids=str,
)
def test_errors_of_parameters(labelled, options, message):
    fit = sampler(**options)
    with pytest.raises(ValueError, match=message):
        fit.fit(*labelled)
    with pytest.raises(NotFittedError):
        fit.sample()


def test_columns_that_do_not_fit_in_memory():
    X = np.zeros((2, 400_000))
    with pytest.raises(ValueError, match="Moments of 400000 columns would take"):
        sampler(domain=partial(Box, 0, 1)).fit(X)


def test_few_records():
    for X, y in ((np.zeros((1, 3)), None), (np.zeros((2, 3)), ["a", "b"])):
        with pytest.warns(UserWarning, match="The noise on the mean of a class is"):
            fit = sampler(delta=1e-3).fit(X, y)
        assert BALL.contains(fit.means_).all()
        assert np.isfinite(fit.sample(5, random_state=0)).all()
        assert np.isfinite(fit.score(X))
        assert (np.linalg.eigvalsh(fit.covariances_) > 0).all()


def test_noise_is_warned_of_by_public_quantities(labelled, recwarn):
    X, y = labelled
    sampler(epsilon=1.0).fit(X, y)
    assert not recwarn
    # Of 5000 and 15000 records; where labels are private the smaller class is not known.
    with pytest.warns(UserWarning, match=f"and {(y == 'a').sum()} records in the smallest"):
        sampler(epsilon=1e-3).fit(X, y)
    options = {"epsilon": 5e-4, "labels": "private", "classes": ["a", "b"]}
    with pytest.warns(UserWarning, match="and 10000 records in the smallest"):
        sampler(**options).fit(X, y)
    with pytest.warns(UserWarning, match="and 2000 records in the smallest"):
        sampler(label_proportions=[0.1, 0.9], **options).fit(X, y)
