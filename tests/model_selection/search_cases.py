"""Small private estimators for searches: each says what it saw, and costs what it says."""

import functools
import warnings
from dataclasses import replace
from typing import ClassVar

import numpy as np
import pandas as pd
from sklearn.base import ClassifierMixin, RegressorMixin

from sklearn_dpgen.accounting import (
    ApproximateProfile,
    GaussianProfile,
    PrivacyReport,
    gaussian_sigma,
)
from sklearn_dpgen.accounting._profiles import sampled_without_replacement
from sklearn_dpgen.exceptions import NoisyCountsWarning
from sklearn_dpgen.ledger._base import PrivateEstimator
from sklearn_dpgen.utils._random import noise_source

gaussian_sigma = functools.cache(gaussian_sigma)


class NoisyThreshold(ClassifierMixin, PrivateEstimator):
    """Predicts 1 where x is above ``cut``; releases the noisy mean of x in [0, 1]."""

    fits: ClassVar[list] = []

    def __init__(self, cut=0.5, *, epsilon=1.0, delta=1e-5, ledger=None, random_state=None):
        self.cut = cut
        self.epsilon = epsilon
        self.delta = delta
        self.ledger = ledger
        self.random_state = random_state

    def plan(self, n_samples, n_features=None):
        if n_samples < 3 * gaussian_sigma(self.epsilon, self.delta):
            warnings.warn("noise drowns the mean", NoisyCountsWarning, stacklevel=2)
        sigma = gaussian_sigma(self.epsilon, self.delta)
        return PrivacyReport(
            name="noisy mean",
            events=(),
            epsilon=self.epsilon,
            delta=self.delta,
            releases=self._releases(sigma),
            noise_source=noise_source(self.random_state).description,
        )

    def _releases(self, sigma):
        return ((GaussianProfile(1 / sigma), 1),) if sigma else ()

    def fit(self, X, y):
        X = np.asarray(X)
        report = self.plan(len(X))
        self._charge(report)
        noise = noise_source(self.random_state, X)
        scale = gaussian_sigma(self.epsilon, self.delta) / len(X)
        self.mean_ = np.clip(X, 0, 1).mean() + scale * noise.normal(1)[0]
        self.classes_ = np.array([0, 1])
        type(self).fits.append(self)
        return self

    def predict(self, X):
        return (np.asarray(X)[:, 0] > self.cut).astype(int)

    def predict_proba(self, X):
        above = self.predict(X)
        return np.column_stack([1 - 0.8 * above - 0.1, 0.8 * above + 0.1])


class Failing(NoisyThreshold):
    """Fails where the cut is above 1/2, with the records in its message, and warns of them."""

    def fit(self, X, y):
        super().fit(X, y)
        warnings.warn(f"the records are {np.asarray(X).tolist()}", UserWarning, stacklevel=2)
        if self.cut > 0.5:
            raise ValueError(f"the records are {np.asarray(X).tolist()}")
        return self


class OpenlyFailing(NoisyThreshold):
    """Of which (ε, δ) is known, and no more, with a δ of its own."""

    def _releases(self, sigma):
        return ((ApproximateProfile(self.epsilon, 1e-4), 1),)


class Sampled(NoisyThreshold):
    """Says that it releases on batches, so that its ε is not that of one Gaussian release."""

    def _releases(self, sigma):
        return ((sampled_without_replacement(GaussianProfile(1 / sigma), 0.3), 4),)


class Understating(NoisyThreshold):
    """Fits at twice the price of its plan."""

    def fit(self, X, y):
        super().fit(X, y)
        self.privacy_ = PrivacyReport(
            name="more",
            events=(),
            epsilon=2 * self.epsilon,
            delta=self.delta,
            releases=((GaussianProfile(2 / gaussian_sigma(self.epsilon, self.delta)), 1),),
        )
        return self


class Narrow(NoisyThreshold):
    """Protects less where the cut is large."""

    def plan(self, n_samples, n_features=None):
        report = super().plan(n_samples)
        return replace(report, shared=("class",) if self.cut > 0.5 else ())


class AddOrRemove(NoisyThreshold):
    def plan(self, n_samples, n_features=None):
        report = super().plan(n_samples)
        return replace(report, epsilon=1.0, delta=1e-5, neighbours="add_or_remove")


class Constant(RegressorMixin, NoisyThreshold):
    """Predicts ``cut``."""

    def predict(self, X):
        return np.full(len(X), float(self.cut))


class TwoColumns(NoisyThreshold):
    """Draws rows of a label and a feature that agrees with it, the more the smaller ``cut``."""

    def fit(self, X, y=None):
        return super().fit(X[["x"]].to_numpy(dtype=float), None)

    def sample(self, n_samples=1, random_state=None):
        rng = np.random.default_rng(random_state)
        x = rng.uniform(size=n_samples)
        label = np.where(rng.uniform(size=n_samples) < self.cut, rng.uniform(size=n_samples), x)
        return pd.DataFrame({"x": x, "label": np.where(label > 0.5, "high", "low")})


def labelled(n=400, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.uniform(size=(n, 1))
    return X, (X[:, 0] > 0.3).astype(int)


def table(n=400, seed=0):
    X, _ = labelled(n, seed)
    return pd.DataFrame({"x": X[:, 0], "label": np.where(X[:, 0] > 0.5, "high", "low")})
