"""Private evolution from networks, from interfaces of one's own, and of tables."""

import pickle

import numpy as np
import pandas as pd
import pytest
import torch
from evolution_laws import w1
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import clone

from sklearn_dpgen.domains import Box
from sklearn_dpgen.evolution import (
    LatentVariation,
    PrivateEvolutionSampler,
    TabularVariation,
)
from sklearn_dpgen.schema import Categorical, Datetime, Numeric, Ordinal, Schema

# Interfaces.


def test_latents_of_a_network(sampler_of):
    torch.manual_seed(0)
    network = torch.nn.Sequential(torch.nn.Linear(2, 16), torch.nn.Tanh(), torch.nn.Linear(16, 3))
    interface = LatentVariation(network, 2, device="cpu")
    # Records that the network can make, of one corner of its latents.
    rng = np.random.default_rng(0)
    X = interface.decode(rng.normal(1.0, 0.3, size=(2000, 2)))
    sampler = PrivateEvolutionSampler(5.0, interface=interface, random_state=0, device="cpu").fit(X)
    assert sampler.candidates_[0].shape[1] == 2
    made = sampler.sample(1000, random_state=0)
    assert made.shape == (1000, 3)
    assert not hasattr(sampler, "domain_")
    assert w1(made, X[:1000]) < 0.3 * w1(interface.decode(rng.normal(size=(1000, 2))), X[:1000])
    assert_array_equal(made, pickle.loads(pickle.dumps(sampler)).sample(1000, random_state=0))


class Squares:
    """Candidates are edge lengths, records are areas; compared on a logarithmic scale."""

    def random(self, n, rng):
        return rng.uniform(0.1, 10, size=(n, 1))

    def vary(self, X, rng, degree):
        return np.clip(X * np.exp(degree * rng.normal(size=X.shape)), 0.1, 10)

    def decode(self, X):
        return np.hstack([X**2, 4 * X])

    def embed(self, X):
        return np.log(X)


def test_an_interface_of_ones_own(sampler_of):
    edges = np.random.default_rng(0).uniform(2, 4, size=(1000, 1))
    X = Squares().decode(edges)
    sampler = PrivateEvolutionSampler(5.0, interface=Squares(), random_state=0, device="cpu").fit(X)
    made = sampler.sample(500, random_state=0)
    assert made.shape == (500, 2)
    assert_allclose(made[:, 1] ** 2, 16 * made[:, 0])
    assert abs(np.median(made[:, 1]) - 12) < 1
    # The embedding that is given goes before that of the interface.
    seen = []

    def watch(points):
        seen.append(points.shape)
        return points

    clone(sampler).set_params(embedding=watch).fit(X)
    assert {shape[1] for shape in seen} == {2}


# Tables.

SCHEMA = Schema(
    {
        "age": Numeric(0, 100),
        "children": Numeric(0, 9, integer=True),
        "income": Numeric(0, 1e5, nullable=True),
        "job": Categorical(["baker", "nurse", "pilot"]),
        "grade": Ordinal(["low", "high"]),
        "day": Datetime("2020-01-01", "2020-12-31"),
    }
)


@pytest.fixture
def people():
    rng = np.random.default_rng(0)
    n = 2000
    days = pd.Timestamp("2020-01-01") + pd.to_timedelta(rng.integers(0, 365, n), unit="D")
    income = rng.uniform(1e4, 3e4, size=n)
    income[rng.uniform(size=n) < 0.5] = np.nan
    return pd.DataFrame(
        {
            "age": rng.uniform(70, 80, size=n),
            "children": rng.integers(0, 3, size=n),
            "income": income,
            "job": rng.choice(["baker", "pilot"], size=n, p=[0.2, 0.8]),
            "grade": pd.Categorical(
                rng.choice(["low", "high"], size=n), categories=["low", "high"], ordered=True
            ),
            "day": days,
        }
    )


@pytest.mark.parametrize("epsilon", [np.inf, 10.0])
def test_tables_come_back_as_they_were(people, epsilon):
    sampler = PrivateEvolutionSampler(epsilon, schema=SCHEMA, random_state=0, device="cpu")
    sampler.fit(people)
    made = sampler.sample(1000, random_state=0)
    assert list(made.columns) == list(people.columns)
    assert made.dtypes.to_dict() == {name: SCHEMA[name].dtype for name in people}
    assert made["children"].dtype == np.int64
    assert made["children"].between(0, 9).all()
    assert set(made["job"]) <= {"baker", "nurse", "pilot"}
    assert made["day"].between("2020-01-01", "2020-12-31").all()
    assert isinstance(sampler.interface_, TabularVariation)
    assert sampler.n_features_in_ == 6
    # It is the records' law that is drawn.
    assert abs(made["age"].mean() - 75) < 10
    assert (made["job"] == "pilot").mean() > 0.6
    assert 0.2 < made["income"].isna().mean() < 0.8
    pd.testing.assert_frame_equal(made, sampler.sample(1000, random_state=0))
    assert not made.equals(sampler.sample(1000, random_state=1))


def test_tables_with_labels_and_an_interface_with_options(people):
    interface = TabularVariation(SCHEMA, n_columns=2, categorical_weight=1.0)
    sampler = PrivateEvolutionSampler(
        20.0,
        schema=SCHEMA,
        interface=interface,
        labels="private",
        classes=["baker", "nurse", "pilot"],
        n_iter=3,
        n_samples=50,
        random_state=0,
        device="cpu",
    ).fit(people, people["job"])
    assert sampler.interface_ is interface
    made = sampler.sample(300, y="baker", random_state=0)
    assert (made["job"] == "baker").mean() > 0.6
    assert_allclose(sampler.label_proportions_, [0.2, 0.0, 0.8], atol=0.1)
    smooth = sampler.set_params(smoothing=1.0).sample(300, y="baker", random_state=0)
    assert smooth.dtypes.to_dict() == {name: SCHEMA[name].dtype for name in people}
    # Columns in another order are the same records.
    turned = people[list(people.columns[::-1])]
    other = clone(sampler).set_params(smoothing=0.0).fit(turned, people["job"])
    assert_array_equal(other.weights_[0], sampler.weights_[0])


def test_another_kind_of_records_in_the_next_fit(sampler_of, labelled, people):
    sampler = sampler_of("evolution", schema=SCHEMA, domain=None).fit(people, people["job"])
    assert isinstance(sampler.sample(2, y="pilot"), pd.DataFrame)
    sampler.set_params(schema=None, domain=Box(-2, 2, n_features=3)).fit(labelled.X)
    assert isinstance(sampler.sample(2), np.ndarray)
    assert not hasattr(sampler, "encoder_")
    assert sampler.n_features_in_ == 3
