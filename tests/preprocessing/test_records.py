"""Records of an estimator with a schema or a domain: into the public set and back."""

from functools import partial

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_array_equal
from sklearn.base import BaseEstimator

from sklearn_dpgen.domains import Ball, Box, Domain, OneHot, Product
from sklearn_dpgen.preprocessing import TabularEncoder
from sklearn_dpgen.preprocessing._records import (
    decode_records,
    encode_records,
    read_records,
)
from sklearn_dpgen.schema import Categorical, Numeric, Schema
from sklearn_dpgen.utils._frames import FramesMixin

SCHEMA = Schema({"age": Numeric(0, 100), "job": Categorical(["baker", "nurse"])})


class Holder(FramesMixin, BaseEstimator):
    """An estimator with no more than the two parameters."""

    def __init__(self, schema=None, domain=None):
        self.schema = schema
        self.domain = domain


@pytest.fixture
def people():
    return pd.DataFrame({"age": [50.0, 250.0, 3.0], "job": ["nurse", "baker", "nurse"]})


@pytest.mark.parametrize(
    "domain", [Box(-1, 1, n_features=2), Ball(2.0, n_features=2), OneHot(2)], ids=str
)
def test_records_are_projected_on_the_domain(domain, monkeypatch):
    X = np.array([[0.5, 0.5], [7.0, -3.0]])
    holder = Holder(domain=domain)
    encoded = encode_records(holder, X)
    assert_array_equal(encoded, domain.project(X))
    assert domain.contains(encoded).all()
    assert (holder.domain_, holder.n_features_in_) == (domain, 2)
    assert not hasattr(holder, "encoder_")
    assert_array_equal(X, [[0.5, 0.5], [7.0, -3.0]])
    monkeypatch.setattr(Domain, "project", lambda self, X: X)
    assert not domain.contains(encode_records(Holder(domain=domain), X)).all()


def test_a_function_of_the_width(people):
    holder = Holder(domain=partial(Box, 0, 1))
    frame = pd.DataFrame(np.full((3, 2), 9.0), columns=["a", "b"])
    assert_array_equal(encode_records(holder, frame), np.ones((3, 2)))
    assert holder.domain_ == Box(0, 1, n_features=2)
    assert holder.feature_names_in_.tolist() == ["a", "b"]


def test_a_table_goes_in_and_out(people):
    holder = Holder(schema=SCHEMA)
    encoded = encode_records(holder, people)
    assert holder.n_features_in_ == 2
    assert encoded.shape == (3, holder.domain_.n_features)
    assert holder.domain_.contains(encoded).all()
    assert_array_equal(encoded, TabularEncoder(SCHEMA).fit(people).transform(people))
    decoded = decode_records(holder, encoded, np.random.default_rng(0))
    pd.testing.assert_frame_equal(decoded, people.assign(age=[50.0, 100.0, 3.0]))


@pytest.mark.slow
@settings(max_examples=10, deadline=None)
@given(
    names=st.lists(st.text(min_size=1, max_size=5), min_size=1, max_size=6, unique=True),
    n_samples=st.integers(1, 5),
    dtype=st.sampled_from([np.float64, np.float32, np.int64]),
)
def test_a_frame_comes_back_with_its_columns(names, n_samples, dtype):
    holder = Holder(domain=partial(Box, 0, 1))
    frame = pd.DataFrame(np.ones((3, len(names)), dtype=dtype), columns=names)
    encode_records(holder, frame)
    points = np.random.default_rng(0).uniform(size=(n_samples, len(names)))
    decoded = decode_records(holder, points, None)
    pd.testing.assert_frame_equal(decoded, pd.DataFrame(points, columns=names))
    assert_array_equal(read_records(holder, decoded), points)
    # An array has no names, nor has a frame with numbers for them.
    for unnamed in (frame.to_numpy(), frame.set_axis(range(len(names)), axis=1)):
        encode_records(holder, unnamed)
        assert isinstance(decode_records(holder, points, None), np.ndarray)


def test_further_records_have_the_columns_of_the_fit(people):
    frame = pd.DataFrame(np.full((3, 2), 9.0), columns=["a", "b"])
    holder = Holder(domain=Box(0, 1, n_features=2))
    encode_records(holder, frame)
    # They stay where they are.
    assert_array_equal(read_records(holder, frame), frame)
    for wrong in (frame[["a"]], frame[["b", "a"]], frame.rename(columns={"a": "z"})):
        with pytest.raises(ValueError, match="feature names"):
            read_records(holder, wrong)
    assert holder.feature_names_in_.tolist() == ["a", "b"]
    holder = Holder(schema=SCHEMA)
    encoded = encode_records(holder, people)
    assert_array_equal(read_records(holder, people[["job", "age"]]), encoded)
    with pytest.raises(ValueError, match=r"missing \['age'\]"):
        read_records(holder, people[["job"]])


def test_a_fit_without_a_schema_forgets_the_encoder(people):
    holder = Holder(schema=SCHEMA)
    encode_records(holder, people)
    holder.set_params(schema=None, domain=Box(0, 1, n_features=3))
    encode_records(holder, np.zeros((2, 3)))
    assert not hasattr(holder, "encoder_")
    assert holder.n_features_in_ == 3
    assert isinstance(decode_records(holder, np.zeros((2, 3)), None), np.ndarray)


def test_categories_are_drawn_or_the_likeliest():
    holder = Holder()
    holder.domain_ = Product([Box(0, 1), OneHot(2)])
    soft = np.tile([0.5, 0.7, 0.3], (2000, 1))
    drawn = decode_records(holder, soft, np.random.default_rng(0))
    assert holder.domain_.contains(drawn).all()
    assert abs(drawn[:, 1].mean() - 0.7) < 5 * np.sqrt(0.21 / 2000)
    again = decode_records(holder, soft, np.random.default_rng(0))
    assert_array_equal(drawn, again)
    assert_array_equal(decode_records(holder, soft, None), soft)
    # In another domain than that of the records there may be other blocks.
    other = decode_records(
        holder, soft, np.random.default_rng(0), domain=Product([Box(0, 1), Box(0, 1), Box(0, 1)])
    )
    assert_array_equal(other, soft)


def test_errors(people):
    for schema, domain in ((None, None), (SCHEMA, Box(0, 1))):
        with pytest.raises(ValueError, match="Declare either schema or domain"):
            encode_records(Holder(schema, domain), people)
    with pytest.raises(ValueError, match="domain has 4 features, X has 2 features"):
        encode_records(Holder(domain=Box(0, 1, n_features=4)), np.zeros((3, 2)))
    # What a function returns is checked as well.
    with pytest.raises(ValueError, match="domain has 5 features, X has 2 features"):
        encode_records(Holder(domain=lambda n_features: OneHot(5)), np.zeros((3, 2)))
    for wrong in ([[np.nan, 1.0]], [1.0, 2.0], [["secret", 1.0]]):
        with pytest.raises(ValueError, match="NaN|2D array|numeric|convert") as raised:
            encode_records(Holder(domain=Box(0, 1, n_features=2)), wrong)
        assert "secret" not in str(raised.value)
