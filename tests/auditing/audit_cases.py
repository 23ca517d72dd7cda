"""Mechanisms of known cost to audit, and ways to break estimators."""

import numpy as np
from sklearn.base import BaseEstimator

from sklearn_dpgen.accounting import GaussianProfile, PrivacyReport
from sklearn_dpgen.accounting._profiles import sampled_without_replacement
from sklearn_dpgen.utils._random import NoiseSource, noise_source


class Sums(BaseEstimator):
    """Noisy sums of numbers from 0 to 1, released in one of the ways of the package.

    The faults break it: "half noise", "no clip", "twice", "seed".
    """

    def __init__(self, kind="gaussian", n_releases=1, batch=None, fault=None, random_state=None):
        self.kind = kind
        self.n_releases = n_releases
        self.batch = batch
        self.fault = fault
        self.random_state = random_state

    def fit(self, X, y=None):
        X = np.asarray(X, dtype=np.float64)
        if self.fault != "no clip":
            X = X.clip(0, 1)
        scale, self.privacy_ = 2.0, claim(self.kind, self.n_releases, self.batch, len(X))
        noise = noise_source(self.random_state, X)
        for _ in range(self.n_releases):
            rows = X
            if self.batch is not None:
                rows = X[noise.choice(len(X), self.batch)]
            vector = np.concatenate([rows[:, 0].sum(keepdims=True), np.zeros(7)])
            if self.fault == "twice":
                vector = vector + vector * (np.arange(8) == 0)
            if self.fault == "seed":
                noise = NoiseSource(0)
            if self.kind == "gumbel":
                noise.largest(vector[:2], scale, 1)
            else:
                noise.add(vector, scale / 2 if self.fault == "half noise" else scale, self.kind)
        return self


def claim(kind, n_releases, batch, n):
    """Return the report of intact sums, from the definition."""
    delta = 1e-4
    if kind in ("laplace", "gumbel"):
        epsilon, delta = n_releases / 2, 0.0
    elif batch is None:
        epsilon = GaussianProfile(np.sqrt(n_releases) / 2).epsilon(delta)
    else:
        epsilon = sampled_without_replacement(GaussianProfile(0.5), batch / n).epsilon(delta)
    return PrivacyReport(name="sums", events=(), epsilon=epsilon, delta=delta)
