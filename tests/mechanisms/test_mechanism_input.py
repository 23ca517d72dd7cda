import math

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from sklearn_dpgen.accounting import Bound
from sklearn_dpgen.domains import Ball, Box, OneHot
from sklearn_dpgen.mechanisms import (
    GaussianMechanism,
    LaplaceMechanism,
    RandomizedResponse,
    TabularMechanism,
)
from sklearn_dpgen.schema import Categorical, Schema

reproducibly = settings(deadline=None, max_examples=40, derandomize=True)
ADDITIVE = [LaplaceMechanism, GaussianMechanism]
SECRET = 7.7725
X = np.array([[0.25, 0.5], [0.75, 1.0]])


def square(kind=LaplaceMechanism, **options):
    return kind(domain=Box(0, 1, n_features=2), **options)


@pytest.mark.parametrize("kind", ADDITIVE)
@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"epsilon": 0.0}, ValueError, "'epsilon' parameter"),
        ({"epsilon": -1.0}, ValueError, "'epsilon' parameter"),
        ({"epsilon": math.nan}, ValueError, "'epsilon' parameter"),
        ({"epsilon": -math.inf}, ValueError, "'epsilon' parameter"),
        ({"epsilon": "1"}, ValueError, "'epsilon' parameter"),
        ({"epsilon": None}, ValueError, "'epsilon' parameter"),
        ({"epsilon": True}, TypeError, "epsilon must be a real number"),
        ({"domain": None}, ValueError, "'domain' parameter"),
        ({"domain": (0, 1)}, ValueError, "'domain' parameter"),
        ({"domain": Box(0, 1)}, ValueError, "domain has 1 features, X has 2"),
        ({"domain": lambda n_features: Box(0, 1)}, ValueError, "domain has 1 features"),
        ({"domain": lambda n_features: (0, 1)}, TypeError, "domain must return a Domain"),
        ({"random_state": "seed"}, ValueError, "'random_state' parameter"),
        ({"random_state": -1}, ValueError, "'random_state' parameter"),
    ],
)
def test_bad_parameters(kind, options, error, message):
    with pytest.raises(error, match=message):
        kind(**{"domain": Box(0, 1, n_features=2), **options}).fit(X)


@pytest.mark.parametrize("delta", [0.0, 1.0, -1e-5, math.nan, math.inf, "small"])
def test_bad_delta(delta):
    with pytest.raises(ValueError, match="'delta' parameter"):
        square(GaussianMechanism, delta=delta).fit()


def test_bad_calibration():
    with pytest.raises(ValueError, match="'calibration' parameter"):
        square(GaussianMechanism, calibration="classic").fit()
    with pytest.raises(ValueError, match="delta must be below 1/2"):
        square(GaussianMechanism, calibration="closed_form", delta=0.7).fit()


@pytest.mark.parametrize("domain", [Box(0, 1, n_features=2), Ball(1, n_features=2)])
def test_randomized_response_takes_categories(domain):
    with pytest.raises(TypeError, match="domain must be a OneHot"):
        RandomizedResponse(domain=domain).fit()
    with pytest.raises(TypeError, match="domain must be a OneHot"):
        RandomizedResponse(domain=lambda n_features: domain).fit(X)


def test_a_domain_by_width_needs_data():
    with pytest.raises(ValueError, match="X must be given if domain is a function"):
        LaplaceMechanism(domain=OneHot).fit()
    by_width = LaplaceMechanism(domain=lambda n_features: Box(0, 1, n_features=n_features)).fit(X)
    assert by_width.domain_ == Box(0, 1, n_features=2)


@pytest.mark.parametrize(
    ("records", "message"),
    [
        ([[SECRET]], "X has 1 features, but LaplaceMechanism is expecting 2"),
        (np.empty((0, 2)), r"0 sample\(s\)"),
        ([[SECRET, math.nan]], r"NaN: columns \[1\]"),
        (pd.DataFrame({"a": [SECRET], "b": [None]}), r"NaN: columns \['b'\]"),
        ([[SECRET, f"{SECRET}x"]], "could not convert"),
        (np.array([[SECRET, f"{SECRET}x"]], dtype=object), r"columns \[1\] do not"),
        ([SECRET, SECRET], "Expected 2D array"),
        ([[SECRET, 10**400]], r"columns \[1\] do not"),
        (np.array([[SECRET, 10**400]], dtype=object), r"columns \[1\] do not"),
        (
            pd.DataFrame({"a": [SECRET], "b": [10**400]}, dtype=object),
            r"columns that do not: \['b'\]",
        ),
        (np.array([[SECRET + 1j, 0]]), "Complex data"),
        ([[[SECRET, SECRET]]], "dim 3"),
        (pd.DataFrame({"a": [SECRET], "b": [f"{SECRET}x"]}), r"columns that do not: \['b'\]"),
    ],
)
@pytest.mark.filterwarnings("ignore:X has feature names")
def test_bad_records(records, message):
    mechanism = square().fit()
    with pytest.raises(ValueError, match=message) as caught:
        mechanism.transform(records)
    assert str(SECRET) not in str(caught.value)
    with pytest.raises(ValueError, match=message.partition(":")[0]) as caught:
        mechanism.encode_release(records)
    assert str(SECRET) not in str(caught.value)


@pytest.mark.parametrize("domain", [Box(0, 1, n_features=2), Ball(1.0, n_features=2)], ids=str)
@pytest.mark.parametrize("kind", ADDITIVE)
def test_infinity_is_moved_to_the_domain(kind, domain):
    rows = np.array([[0.2, 0.3], [math.inf, 0.0], [-math.inf, math.inf]])
    exact = kind(np.inf, domain=domain).fit(rows)
    assert domain.contains(exact.transform(rows)).all()
    noisy = kind(1.0, domain=domain, random_state=0).fit(rows)
    expected = noisy.transform(domain.project(rows))
    np.testing.assert_array_equal(noisy.transform(rows), expected)
    with pytest.raises(ValueError, match="infinity"):
        noisy.encode_release(rows[:2])


def test_tables_of_probabilities_are_refused_before_they_are_made():
    with pytest.raises(ValueError, match="30000 takes a table of 6.7 GiB"):
        RandomizedResponse(domain=OneHot(30_000)).fit()
    schema = Schema({"town": Categorical(range(200_000))})
    with pytest.raises(ValueError, match="Column 'town'.* fewer categories: .* 200000 .* 298.0"):
        TabularMechanism(schema=schema).fit()
    assert RandomizedResponse(domain=OneHot(1000)).fit().table_.shape == (1000, 1000)


@pytest.mark.parametrize("kind", [*ADDITIVE, RandomizedResponse])
def test_likelihood_shapes(kind):
    mechanism = kind(domain=OneHot(3)).fit()
    good, narrow, flat = torch.eye(3), torch.eye(2), torch.zeros(3)
    assert mechanism.log_likelihood(good, good[:2]).shape == (3, 2)
    assert mechanism.log_likelihood(good[:0], good).shape == (0, 3)
    for bad in (narrow, flat):
        with pytest.raises(ValueError, match=r"X must have shape \(n, 3\)"):
            mechanism.log_likelihood(bad, good)
        with pytest.raises(ValueError, match=r"Y must have shape \(n, 3\)"):
            mechanism.log_likelihood(good, bad)
    with pytest.raises(ValueError, match="is not fitted"):
        kind(domain=OneHot(3)).log_likelihood(good, good)


@pytest.mark.parametrize("kind", [*ADDITIVE, RandomizedResponse])
def test_no_noise(kind):
    domain = OneHot(2) if kind is RandomizedResponse else Box(0, 1, n_features=2)
    mechanism = kind(np.inf, domain=domain).fit()
    outside = np.array([[-3.0, 0.5], [2.0, 9.0]])
    np.testing.assert_array_equal(mechanism.transform(outside), domain.project(outside))
    assert mechanism.scale_ == 0
    assert mechanism.privacy_.epsilon == np.inf
    with pytest.raises(ValueError, match="epsilon must be finite, got inf"):
        mechanism.log_likelihood(torch.zeros(1, 2), torch.zeros(1, 2))


@pytest.mark.slow
@reproducibly
@given(
    st.sampled_from(ADDITIVE),
    st.integers(1, 4),
    st.integers(1, 5),
    st.floats(1e-3, 1e5),
    st.floats(1e-6, 1e6),
    st.sampled_from([np.float64, np.float32, np.int64, bool]),
)
def test_any_shape_scale_and_dtype(kind, n, d, epsilon, width, dtype):
    mechanism = kind(epsilon, domain=Box(-width, width, n_features=d), random_state=0).fit()
    records = np.ones((n, d), dtype=dtype)
    Y = mechanism.transform(records)
    assert Y.shape == (n, d)
    assert Y.dtype == np.float64
    assert np.isfinite(Y).all()
    np.testing.assert_array_equal(mechanism.transform(records.astype(np.float64)), Y)
    np.testing.assert_array_equal(mechanism.encode_release(Y), Y)


def test_the_input_is_left_alone():
    for epsilon in (1.0, np.inf):
        records = np.array([[-5.0, 0.5]])
        square(epsilon=epsilon).fit_transform(records)
        np.testing.assert_array_equal(records, [[-5.0, 0.5]])


@pytest.mark.parametrize("kind", ADDITIVE)
def test_the_report(kind):
    mechanism = square(kind, epsilon=2.0).fit(X)
    report = mechanism.privacy_
    p = 1 if kind is LaplaceMechanism else 2
    assert report.epsilon == 2.0
    assert report.delta == (0.0 if p == 1 else 1e-5)
    assert report.sensitivity == mechanism.domain_.diameter(p)
    assert report.noise_scale == mechanism.scale_
    assert report.noise_multiplier == pytest.approx(mechanism.scale_ / report.sensitivity)
    assert report.bounds == (Bound(f"l{p}_diameter", report.sensitivity),)
    assert report.is_local
    assert set(report.public) == {
        "domain",
        "n_samples",
        "column_names",
        "order",
    }
    assert report.caveats == ("each_call", "local_floating_point")
