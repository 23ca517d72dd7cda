"""The energy score: its value, and laws that it ranks where the likelihood of points does not."""

import numpy as np
import pandas as pd
import pytest
import torch
from scipy.spatial.distance import cdist
from sklearn.base import BaseEstimator
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV

from sklearn_dpgen.deconvolution import DeconvolutionEM, EntropicDeconvGAN, energy_score
from sklearn_dpgen.deconvolution._model import mixture_log_likelihood
from sklearn_dpgen.domains import Box
from sklearn_dpgen.mechanisms import JointRandomizedResponse, LaplaceMechanism, TabularMechanism
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


def test_it_is_the_scoring_of_a_search(tiny):
    box = Box(-1, 1, n_features=2)
    mechanism = LaplaceMechanism(5.0, domain=box, random_state=0)
    raw = box.sample(60, np.random.default_rng(0))
    for gan, X in (
        (tiny(), mechanism.fit_transform(raw)),
        (tiny(privatize=True), raw),
        (tiny(output_domain=Box(-3, 3, n_features=2)), mechanism.fit_transform(raw)),
    ):
        search = GridSearchCV(gan, {"max_iter": [1, 3]}, scoring=energy_score, cv=2).fit(X)
        assert np.isfinite(search.cv_results_["mean_test_score"]).all()


def test_tables():
    schema = Schema({"a": Numeric(0, 1), "b": Categorical(["x", "y"])})
    raw = pd.DataFrame({"a": [0.1, 0.9] * 20, "b": ["x", "y"] * 20})
    mechanism = TabularMechanism(8.0, schema=schema, random_state=0)
    Y = mechanism.fit_transform(raw)
    assert np.isfinite(energy_score(DeconvolutionEM(mechanism, n_points=20).fit(Y), Y))


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
    with pytest.raises(ValueError, match="of JointRandomizedResponse name questions"):
        energy_score(DeconvolutionEM(joint, n_points=4).fit(answers), answers)
    other = LaplaceMechanism(4.0, domain=Box(-1, 1)).fit_transform(np.zeros((9, 1)))
    with pytest.raises(ValueError, match="released by LaplaceMechanism"):
        energy_score(em, other)
