"""Local mechanisms and who learns from them: raw records are charged, privatized ones are not."""

import numpy as np
import pandas as pd
import pytest
from ledger_cases import rows
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer

from sklearn_dpgen.deconvolution import DeconvolutionEM, EntropicDeconvGAN
from sklearn_dpgen.domains import Box, OneHot
from sklearn_dpgen.exceptions import BudgetExceededError
from sklearn_dpgen.ledger import PrivacyLedger
from sklearn_dpgen.mechanisms import (
    GaussianMechanism,
    JointRandomizedResponse,
    LaplaceMechanism,
    RandomizedResponse,
    TabularMechanism,
)
from sklearn_dpgen.nn import Training
from sklearn_dpgen.schema import Categorical, Numeric, Schema
from sklearn_dpgen.tables import LocalTableSampler
from sklearn_dpgen.utils._random import NoiseSource

SCHEMA = Schema({"a": Numeric(0, 1, nullable=True), "b": Categorical(["x", "y"])})
TABLE = pd.DataFrame({"a": np.linspace(0, 1, 40), "b": ["x", "y"] * 20})
X = np.random.default_rng(0).uniform(size=(40, 2))
MECHANISMS = {
    "Laplace": (LaplaceMechanism(0.5, domain=Box(0, 1, n_features=2)), X),
    "Gaussian": (GaussianMechanism(0.5, delta=1e-8, domain=Box(0, 1, n_features=2)), X),
    "answers": (RandomizedResponse(0.5, domain=OneHot(2)), np.eye(2)[np.arange(40) % 2]),
    "table": (TabularMechanism(0.5, schema=SCHEMA), TABLE),
    "Gaussian table": (TabularMechanism(0.5, schema=SCHEMA, noise="gaussian", delta=1e-8), TABLE),
    "joint answers": (JointRandomizedResponse(0.5, schema=SCHEMA), TABLE),
}


@pytest.fixture
def ledger(tmp_path):
    # A pure release costs a Gaussian filter much: Rényi divergences hold what is here.
    cap = {"dataset": "people", "epsilon": 2.0, "delta": 1e-5, "filter": "renyi"}
    return PrivacyLedger.create(tmp_path / "people.ledger", **cap)


@pytest.mark.parametrize("name", MECHANISMS)
def test_each_release_of_raw_records_is_charged_before_noise_is_drawn(name, ledger, monkeypatch):
    mechanism, records = MECHANISMS[name]
    mechanism = type(mechanism)(**mechanism.get_params()).set_params(ledger=ledger)
    mechanism.fit(records)
    assert rows(ledger.path) == []
    uniform, seen = NoiseSource._uniform, []

    def watched(self, size):
        seen.append(len(rows(ledger.path)))
        return uniform(self, size)

    monkeypatch.setattr(NoiseSource, "_uniform", watched)
    mechanism.transform(records)
    assert set(seen) == {1}
    mechanism.transform(records)
    assert rows(ledger.path) == [type(mechanism).__name__] * 2
    assert ledger.report().charges[0].report == mechanism.privacy_ == mechanism.plan()
    refused = False
    while not refused:
        seen.clear()
        try:
            mechanism.transform(records)
        except BudgetExceededError:
            refused = True
    assert seen == []


@pytest.mark.parametrize("name", MECHANISMS)
def test_the_profile_of_a_mechanism_has_its_price(name):
    mechanism, records = MECHANISMS[name]
    report = mechanism.plan()
    assert report.releases
    delta = report.delta or 1e-9
    assert 0.9 * report.epsilon < report.profile().epsilon(delta) <= report.epsilon * (1 + 1e-9)
    assert mechanism.set_params(ledger=None).fit(records).privacy_ == report


def test_a_mechanism_without_a_schema_plans_for_a_width():
    def domain(n_features):
        return Box(0, 1, n_features=n_features)

    mechanism = LaplaceMechanism(1.0, domain=domain)
    assert mechanism.plan(n_features=3) == mechanism.fit(np.zeros((2, 3))).privacy_
    with pytest.raises(ValueError, match="X must be given if domain is a function"):
        mechanism.plan()


NETWORK = {"training": Training(hidden_layer_sizes=(4,), max_iter=2), "batch_size": 20}


def test_learners_charge_for_raw_records_alone(ledger):
    mechanism, records = MECHANISMS["Laplace"]
    released = mechanism.set_params(ledger=None).fit(records).transform(records)
    gan = EntropicDeconvGAN(mechanism, ledger=ledger, **NETWORK)
    assert gan.fit(released).privacy_ == gan.plan()
    assert "charges no ledger" in str(gan.privacy_)
    DeconvolutionEM(mechanism).fit(released)
    assert rows(ledger.path) == []
    gan = EntropicDeconvGAN(mechanism, privatize=True, ledger=ledger, **NETWORK)
    assert gan.fit(records).privacy_ == gan.plan()
    gan.sample(5)
    assert rows(ledger.path) == ["LaplaceMechanism"]
    # A score of raw records is one more release of them.
    gan.score(records)
    assert rows(ledger.path) == ["LaplaceMechanism"] * 2
    assert mechanism.ledger is None


def test_a_local_table_sampler_books_once(ledger):
    mechanism = JointRandomizedResponse(0.5, schema=SCHEMA)
    sampler = LocalTableSampler(mechanism, privatize=True, ledger=ledger, max_iter=2)
    assert sampler.fit(TABLE).privacy_ == sampler.plan()
    assert rows(ledger.path) == ["JointRandomizedResponse"]
    own = LocalTableSampler(mechanism.set_params(ledger=ledger), privatize=True, max_iter=2)
    own.fit(TABLE)
    assert len(rows(ledger.path)) == 2
    # Of two ledgers one would book nothing.
    with pytest.raises(ValueError, match="a ledger too"):
        own.set_params(ledger=ledger.path).fit(TABLE)
    assert len(rows(ledger.path)) == 2
    seeded = LocalTableSampler(
        JointRandomizedResponse(0.5, schema=SCHEMA), privatize=True, max_iter=2, random_state=0
    )
    assert seeded.fit(TABLE).privacy_ == seeded.plan()
    assert seeded.privacy_.is_seeded


def test_a_pipeline_books_where_records_are_privatized(ledger):
    mechanism = LaplaceMechanism(0.5, domain=Box(0, 1, n_features=2), ledger=ledger)
    pipeline = make_pipeline(FunctionTransformer(), mechanism)
    pipeline.fit_transform(X)
    assert rows(ledger.path) == ["LaplaceMechanism"]


def test_without_noise_nothing_is_booked(ledger):
    mechanism = LaplaceMechanism(np.inf, domain=Box(0, 1, n_features=2), ledger=ledger).fit(X)
    with pytest.raises(ValueError, match="must have a guarantee to charge a ledger"):
        mechanism.transform(X)
