"""The energy score: its value, and laws that it ranks where the likelihood of points does not."""

import numpy as np
import pandas as pd
import pytest
import torch
from scipy.spatial.distance import cdist
from sklearn.base import BaseEstimator, clone
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV

from sklearn_dpgen.deconvolution import DeconvolutionEM, EntropicDeconvGAN, energy_score
from sklearn_dpgen.deconvolution._model import mixture_log_likelihood
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
from sklearn_dpgen.schema import Categorical, Numeric, Schema

WIDE = Box(-1, 1, n_features=50)
MIXING = np.random.default_rng(1).normal(size=(5, 50)) / 5


class Law(BaseEstimator):
    """An estimator of 50 dependent columns, times a spread."""

    def __init__(self, mechanism, spread):
        self.mechanism, self.spread = mechanism, spread
        self.mechanism_, self.n_features_in_ = mechanism, 50

    def fit(self):
        """Be an estimator to scikit-learn."""

    def sample(self, n_samples, *, random_state):
        rng = np.random.default_rng(random_state)
        values = rng.normal(size=(n_samples, 5)) @ MIXING + rng.normal(0, 0.15, (n_samples, 50))
        return WIDE.project(self.spread * values)

    def __sklearn_is_fitted__(self):
        return True


@pytest.mark.slow
def test_a_shrunk_law_in_fifty_columns():
    mechanism = LaplaceMechanism(1000.0, domain=WIDE, random_state=0).fit()
    laws = {spread: Law(mechanism, spread) for spread in (1.3, 1.0, 0.7)}
    Y = mechanism.transform(laws[1.0].sample(1000, random_state=5))
    scores = {spread: energy_score(law, Y) for spread, law in laws.items()}
    assert scores[1.0] > scores[1.3]
    assert scores[1.0] > scores[0.7]

    # Twin: the likelihood of a mixture of points prefers the shrunk one.
    def likelihood(law):
        points = torch.tensor(law.sample(4096, random_state=6))
        return mixture_log_likelihood(mechanism, points, torch.tensor(np.asarray(Y))).mean()

    assert likelihood(laws[0.7]) > likelihood(laws[1.0]) + 1


def test_value():
    mechanism = LaplaceMechanism(2.0, domain=Box(-1, 1), random_state=0)
    Y = np.asarray(mechanism.fit_transform(np.zeros((40, 1))))
    em = DeconvolutionEM(mechanism, n_points=9, random_state=0).fit(Y)
    em.points_[:] = 0.5
    R = 0.5 + em.mechanism_.scale_ * np.random.default_rng(0).laplace(size=(2000, 1))
    expected = cdist(R, R).sum() / (2000 * 1999) / 2 - cdist(Y, R).mean()
    assert energy_score(em, Y) == pytest.approx(expected, abs=0.05 * em.mechanism_.scale_)
    assert energy_score(em, Y) == energy_score(em, Y)
    assert energy_score(em, Y) != energy_score(em, Y, random_state=1)
    em.points_[:] = 0.0
    assert energy_score(em, Y) > expected


@pytest.mark.slow
def test_it_is_the_scoring_of_a_search(tiny):
    box = Box(-1, 1, n_features=2)
    mechanism = LaplaceMechanism(5.0, domain=box, random_state=0)
    raw = box.sample(60, np.random.default_rng(0))
    for gan, X in (
        (tiny(), mechanism.fit_transform(raw)),
        (tiny(privatize=True), raw),
        (tiny(output_domain=Box(-3, 3, n_features=2)), mechanism.fit_transform(raw)),
    ):
        search = GridSearchCV(gan, {"training__max_iter": [1, 3]}, scoring=energy_score, cv=2).fit(
            X
        )
        assert np.isfinite(search.cv_results_["mean_test_score"]).all()


def test_tables():
    schema = Schema({"a": Numeric(0, 1), "b": Categorical(["x", "y"])})
    raw = pd.DataFrame({"a": [0.1, 0.9] * 20, "b": ["x", "y"] * 20})
    mechanism = TabularMechanism(8.0, schema=schema, random_state=0)
    Y = mechanism.fit_transform(raw)
    assert np.isfinite(energy_score(DeconvolutionEM(mechanism, n_points=20).fit(Y), Y))


# What it costs.

SCHEMA = Schema({"a": Numeric(0, 1, nullable=True), "b": Categorical(["x", "y"])})
TABLE = pd.DataFrame({"a": [0.1, None] * 20, "b": ["x", "y"] * 20})
POINTS = np.linspace(-1, 1, 40).reshape(-1, 1)
MECHANISMS = {
    "laplace": (LaplaceMechanism(4.0, domain=Box(-1, 1)), POINTS),
    "gaussian": (GaussianMechanism(4.0, 1e-4, domain=Box(-1, 1)), POINTS),
    "response": (RandomizedResponse(4.0, domain=OneHot(2)), np.eye(2)[np.arange(40) % 2]),
    "table": (TabularMechanism(4.0, schema=SCHEMA), TABLE),
    "bins": (TabularMechanism(4.0, schema=SCHEMA, n_bins=4), TABLE),
}


def make_ledger(path, epsilon):
    PrivacyLedger.create(path, dataset="people", epsilon=epsilon, delta=1e-4, filter="renyi")
    return path


def charges(path):
    return len(PrivacyLedger(path).report().charges)


@pytest.mark.parametrize("noise", ["float", "certified"])
@pytest.mark.parametrize("name", MECHANISMS)
def test_privatized_records_are_scored_at_no_cost(name, noise, tmp_path):
    if noise == "certified":
        pytest.importorskip("opendp")
    mechanism, records = MECHANISMS[name]
    options = {} if noise == "float" else {"noise": noise}
    # The ledger has room for the release of the records, and for nothing more.
    path = make_ledger(tmp_path / "people.ledger", epsilon=4.1)
    mechanism = type(mechanism)(**mechanism.get_params() | options | {"ledger": path})
    Y = mechanism.fit_transform(records)
    assert charges(path) == 1
    em = DeconvolutionEM(mechanism, n_points=9, random_state=0).fit(Y)
    assert np.isfinite(energy_score(em, Y))
    assert energy_score(em, Y) == energy_score(em, Y)
    assert charges(path) == 1
    # Twin: a seeded clone of the mechanism, by which samples were privatized, cannot be had.
    with pytest.raises((BudgetExceededError, ValueError), match="asks for|random_state must be"):
        clone(mechanism).set_params(random_state=0).fit(records).transform(em.sample(5))


class FixedRelease(LaplaceMechanism):
    """Releases the same records whatever the raw ones are."""

    def _randomize(self, X, noise):
        return np.linspace(-2, 2, len(X)).reshape(-1, 1)


def test_raw_records_are_scored_after_they_are_privatized_and_charged(tiny, tmp_path):
    path = make_ledger(tmp_path / "people.ledger", epsilon=9.0)
    gan = tiny(FixedRelease(1.0, domain=Box(-1, 1)), privatize=True, ledger=path).fit(POINTS)
    scores = []
    for n_charges, raw in enumerate((POINTS, -POINTS, POINTS * 0), start=2):
        scores.append(energy_score(gan, raw))
        assert charges(path) == n_charges
    # All of them have one release, and nothing else of a record is read.
    assert len(set(scores)) == 1
    # Twin: a variant that scores raw rows.
    gan._privatizes = False
    assert len({energy_score(gan, raw) for raw in (POINTS, -POINTS, POINTS * 0)}) > 1
    assert charges(path) == 4
    # Once the ledger is empty nothing raw is scored any more.
    gan._privatizes, gan.mechanism_.ledger = True, make_ledger(tmp_path / "less.ledger", 0.1)
    with pytest.raises(BudgetExceededError):
        energy_score(gan, POINTS)


def test_bad_input():
    mechanism = LaplaceMechanism(5.0, domain=Box(-1, 1), random_state=0)
    Y = mechanism.fit_transform(np.zeros((9, 1)))
    with pytest.raises(NotFittedError):
        energy_score(EntropicDeconvGAN(mechanism), Y)
    with pytest.raises(TypeError, match="EntropicDeconvGAN or a DeconvolutionEM, got LaplaceMech"):
        energy_score(mechanism, Y)
    em = DeconvolutionEM(mechanism, n_points=3).fit(Y)
    with pytest.raises(ValueError, match="n_samples"):
        energy_score(em, Y, n_samples=1)
    schema = Schema({"a": Categorical(["x", "y"]), "b": Categorical(["x", "y"])})
    joint = JointRandomizedResponse(3.0, schema=schema, random_state=0)
    answers = joint.fit_transform(pd.DataFrame({"a": ["x", "y"] * 5, "b": ["x", "y"] * 5}))
    with pytest.raises(ValueError, match="got answers to questions of JointRandomizedResponse"):
        energy_score(DeconvolutionEM(joint, n_points=4).fit(answers), answers)
    other = LaplaceMechanism(4.0, domain=Box(-1, 1)).fit_transform(np.zeros((9, 1)))
    with pytest.raises(ValueError, match="released by LaplaceMechanism"):
        energy_score(em, other)
