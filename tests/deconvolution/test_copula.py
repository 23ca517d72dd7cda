"""Columns that are learned one by one, and the copula that joins them."""

import numpy as np
import pandas as pd
import pytest
from scipy.special import ndtr
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import Pipeline, make_pipeline

import sklearn_dpgen
from sklearn_dpgen.datasets import make_half_circle
from sklearn_dpgen.deconvolution import DeconvolutionEM, energy_score
from sklearn_dpgen.deconvolution._copula import (
    ReleasedColumn,
    column_covariances,
    copula_correlation,
    draw_copula,
    released_columns,
)
from sklearn_dpgen.domains import Ball, Box, OneHot
from sklearn_dpgen.mechanisms import (
    GaussianMechanism,
    LaplaceMechanism,
    RandomizedResponse,
    TabularMechanism,
)
from sklearn_dpgen.metrics import wasserstein_distance
from sklearn_dpgen.schema import Categorical, Numeric, Ordinal, Schema

UNIFORM = ReleasedColumn(slice(0, 1), (np.arange(200) + 0.5) / 200, 1 / 200, 1.0, "laplace")
COIN = ReleasedColumn(slice(1, 3), np.arange(2.0), table=np.eye(2))
EVEN = {id(UNIFORM): np.full(200, 1 / 200), id(COIN): np.full(2, 0.5)}


def normal_records(n, correlation, seed=0):
    """Four columns in (0, 1) with a normal copula, where each pair has one correlation."""
    cov = np.full((4, 4), correlation) + (1 - correlation) * np.eye(4)
    Z = np.random.default_rng(seed).multivariate_normal(np.zeros(4), cov, size=n)
    return ndtr(Z) ** [1, 2, 3, 0.5]


# The copula.


@pytest.mark.parametrize("r", [-0.8, -0.3, 0.0, 0.1, 0.6, 0.9])
@pytest.mark.parametrize(
    ("column", "scale"), [(UNIFORM, 2.0), (COIN, 1.0)], ids=["uniform", "coin"]
)
def test_the_correlation_has_the_closed_form_of_uniform_and_binary_columns(column, scale, r):
    # cov(U, V) = asin(r / 2) / 2π of uniform ones, asin(r) / 2π of fair coins.
    covariance = np.full((2, 2), np.arcsin(r / scale) / (2 * np.pi))
    columns, weights = [column] * 2, [EVEN[id(column)]] * 2
    found = copula_correlation(columns, weights, covariance)
    assert found[0, 1] == pytest.approx(r, abs=0.01)
    # Twin: the correlation of the columns themselves is another number.
    plain = covariance[0, 1] / (1 / 12 if column is UNIFORM else 1 / 4)
    assert r == 0 or abs(plain - r) > 1e-3


def test_draws_have_the_marginals_and_the_covariance():
    rng = np.random.default_rng(0)
    weights = [rng.dirichlet(np.ones(200)), np.array([0.2, 0.8])]
    correlation = np.array([[1, 0.5], [0.5, 1]])
    columns = [UNIFORM, COIN]
    X = draw_copula(columns, weights, correlation, rng.normal(size=(100_000, 2)), rng)
    shares = np.histogram(X[:, 0], 200, (0, 1))[0] / len(X)
    assert abs(shares - weights[0]).max() < 5 * np.sqrt(weights[0].max() / len(X))
    assert X[:, 2].mean() == pytest.approx(0.8, abs=0.01)
    np.testing.assert_array_equal(X[:, 1] + X[:, 2], 1)
    covariance = np.cov(X[:, 0], X[:, 2])
    found = copula_correlation(columns, weights, covariance)
    assert found[0, 1] == pytest.approx(0.5, abs=0.03)


def test_correlations_that_no_records_have_are_moved_to_some_that_have():
    covariance = np.array([[1, 1, -1], [1, 1, 1], [-1, 1, 1]]) / 12
    found = copula_correlation([UNIFORM] * 3, [EVEN[id(UNIFORM)]] * 3, covariance)
    np.testing.assert_allclose(np.diag(found), 1)
    assert np.linalg.eigvalsh(found).min() > 0
    assert found[0, 1] > 0.4 > -0.4 > found[0, 2]


@pytest.mark.parametrize("kind", [LaplaceMechanism, GaussianMechanism])
def test_covariances_are_those_of_raw_records(kind):
    X = normal_records(200_000, 0.7) * [1, 10, 1, 1]
    mechanism = kind(20.0, domain=Box(0, [1, 10, 1, 1]), random_state=0)
    Y = np.asarray(mechanism.fit_transform(X))
    columns = released_columns(mechanism)
    found, raw = column_covariances(columns, mechanism._unbiased(Y)[0]), np.cov(X.T)
    pairs = np.triu_indices(4, 1)
    np.testing.assert_allclose(found[pairs], raw[pairs], rtol=0.1)
    # Twin: the correlation of privatized records is not that of raw ones.
    assert (np.corrcoef(Y.T)[pairs] < 0.7 * np.corrcoef(X.T)[pairs]).all()


def test_noise_is_not_taken_for_dependence():
    X = np.random.default_rng(0).uniform(size=(2000, 8))
    mechanism = LaplaceMechanism(2.0, domain=Box(0, 1, n_features=8), random_state=0)
    Y = np.asarray(mechanism.fit_transform(X))
    pairs = np.triu_indices(8, 1)
    found = column_covariances(released_columns(mechanism), Y)[pairs]
    plain = np.cov(Y.T)[pairs]
    assert (found == 0).mean() > 0.5
    assert (found**2).sum() < (plain**2).sum() / 2


# The estimator.


def distances(mechanism, X, fresh, **options):
    Y = mechanism.fit_transform(X)
    return {
        dependence: wasserstein_distance(
            DeconvolutionEM(dependence=dependence, random_state=0, **options)
            .fit(Y)
            .sample(len(fresh), random_state=0),
            fresh,
        )
        for dependence in ("auto", "joint")
    }


@pytest.mark.slow
@pytest.mark.parametrize("kind", [LaplaceMechanism, GaussianMechanism])
def test_it_is_better_than_joint_points_in_four_columns(kind):
    X, fresh = normal_records(4000, 0.8), normal_records(500, 0.8, seed=1)
    mechanism = kind(20.0, domain=Box(0, 1, n_features=4), random_state=0)
    found = distances(mechanism, X, fresh)
    assert found["auto"] < 0.8 * found["joint"]
    # Twin: without dependence it is worse.
    em = DeconvolutionEM(random_state=0).fit(mechanism.transform(X))
    em.correlation_ = np.eye(4)
    assert wasserstein_distance(em.sample(500, random_state=0), fresh) > 1.3 * found["auto"]


@pytest.mark.slow
def test_a_curve_needs_joint_points():
    # The free score says so, and the search is one that scikit-learn has.
    X, fresh = make_half_circle(10_000, random_state=0), make_half_circle(500, random_state=1)
    mechanism = LaplaceMechanism(8.0, domain=Box(-1, 1, n_features=2), random_state=0)
    found = distances(mechanism, X, fresh)
    assert found["joint"] < found["auto"]
    search = GridSearchCV(
        Pipeline([("learn", DeconvolutionEM(random_state=0))]),
        {"learn": [DeconvolutionEM(dependence=d, random_state=0) for d in ("copula", "joint")]},
        scoring=energy_score,
        cv=2,
    ).fit(mechanism.transform(X))
    assert search.best_params_["learn"].dependence == "joint"
    assert energy_score(search.best_estimator_, mechanism.transform(X)) < 0
    pipeline = make_pipeline(mechanism, DeconvolutionEM()).fit(X)
    with pytest.raises(TypeError, match="got Pipeline"):
        energy_score(pipeline, X)


def test_a_table_of_ordered_columns():
    schema = Schema(
        {
            "rank": Ordinal(["low", "middle", "high"]),
            "size": Numeric(0, 10, integer=True),
            "pair": Categorical(["no", "yes"]),
            "flat": Numeric(0, 4),
        }
    )
    rng = np.random.default_rng(0)
    Z = rng.multivariate_normal([0, 0, 0], np.full((3, 3), 0.9) + 0.1 * np.eye(3), size=6000)
    raw = pd.DataFrame(
        {
            "rank": np.array(["low", "middle", "high"])[(Z[:, [0]] > [-0.5, 1]).sum(axis=1)],
            "size": np.round(10 * ndtr(Z[:, 1])),
            "pair": np.where(Z[:, 2] > 0.8, "yes", "no"),
            "flat": rng.uniform(0, 4, 6000),
        }
    )
    mechanism = TabularMechanism(40.0, schema=schema, n_bins={"flat": 4}, random_state=0)
    em = DeconvolutionEM().fit(mechanism.fit_transform(raw))
    assert em.correlation_.shape == (4, 4)
    assert em.correlation_[0, 2] == pytest.approx(0.9, abs=0.05)
    drawn = em.sample(4000, random_state=0)
    assert list(drawn.columns) == list(schema)
    assert set(drawn["rank"]) == {"low", "middle", "high"}
    for column in ("rank", "pair"):
        gap = drawn[column].value_counts(normalize=True) - raw[column].value_counts(normalize=True)
        assert abs(gap).max() < 0.05
    means = drawn.groupby("pair")["size"].mean()
    assert means["yes"] > means["no"] + 2


@pytest.mark.parametrize(
    ("mechanism", "dependence"),
    [
        (LaplaceMechanism(5.0, domain=Box(0, 1)), "joint"),
        (LaplaceMechanism(5.0, domain=Box(0, 1, n_features=2)), "copula"),
        (LaplaceMechanism(5.0, domain=Ball(1, n_features=2)), "joint"),
    ],
)
def test_auto_takes_columns_for_columns(mechanism, dependence):
    Y = mechanism.fit_transform(np.zeros((20, mechanism.domain.n_features)))
    em = DeconvolutionEM(n_points=7).fit(Y)
    assert (len(em.marginals_) > 0) == (dependence == "copula")
    assert len(em.points_) == {"joint": 7, "copula": 4096}[dependence]


def test_a_ball_takes_a_copula_that_is_asked_for():
    mechanism = GaussianMechanism(8.0, domain=Ball(1, n_features=3), random_state=0)
    Y = mechanism.fit_transform(np.random.default_rng(0).normal(size=(500, 3)))
    em = DeconvolutionEM(dependence="copula").fit(Y)
    assert mechanism.domain_.contains(em.sample(200, random_state=0)).all()
    assert mechanism.domain_.contains(em.points_).all()


def test_columns_without_an_order():
    colours = Categorical(["red", "green", "blue"])
    frame = pd.DataFrame({"a": [1.0, 2.0] * 5, "b": ["red", "blue"] * 5})
    for schema in (
        Schema({"a": Numeric(0, 3), "b": colours}),
        Schema({"a": Numeric(0, 3, nullable=True)}),
    ):
        mechanism = TabularMechanism(5.0, schema=schema, random_state=0)
        Y = mechanism.fit_transform(frame[list(schema)])
        assert DeconvolutionEM(n_points=9).fit(Y).marginals_ == []
        with pytest.raises(ValueError, match=f"column '{[*schema][-1]}' is not one. Use depen"):
            DeconvolutionEM(dependence="copula").fit(Y)
    response = RandomizedResponse(1.0, domain=OneHot(3), random_state=0)
    with pytest.raises(ValueError, match=r"RandomizedResponse on OneHot"):
        DeconvolutionEM(dependence="copula").fit(response.fit_transform(np.eye(3)))


@pytest.mark.parametrize("center", [0.0, 2.0**31])
def test_a_saved_copula_draws_the_same(center, tmp_path):
    mechanism = LaplaceMechanism(20.0, domain=Box(center, [center + 1, center + 9]), random_state=0)
    Y = mechanism.fit_transform(mechanism.domain.sample(500, np.random.default_rng(0)))
    em = DeconvolutionEM().fit(Y)
    em.save(tmp_path / "em.safetensors")
    loaded = sklearn_dpgen.load(tmp_path / "em.safetensors")
    drawn = em.sample(50, random_state=0)
    np.testing.assert_array_equal(loaded.sample(50, random_state=0), drawn)
    assert drawn.std(axis=0).min() > 0.1
    np.testing.assert_array_equal(loaded.score_samples(Y), em.score_samples(Y))
