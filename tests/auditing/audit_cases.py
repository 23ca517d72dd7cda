"""Mechanisms of known cost to audit, and ways to break estimators."""

import numpy as np
import pandas as pd
from sklearn.base import BaseEstimator

from sklearn_dpgen.accounting import GaussianProfile, PrivacyReport
from sklearn_dpgen.accounting._profiles import sampled_without_replacement
from sklearn_dpgen.ledger._unit import Persons
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


class PersonCounts(BaseEstimator):
    """Noisy counts of cells 0 to 7, released in two parts, in which each person counts once.

    Rows are those of a frame, or of several frames by name, with the columns "who" and "cell". With
    ``how="weights"`` each of m rows counts 1/m; with "draw" one row of each person does.

    The faults break it: "rows" (each row counts once), "tables" (a person counts once in each
    table), "parts" (a row is drawn for each part).
    """

    def __init__(
        self, how="weights", neighbours="replace_one", fault=None, noise="float", random_state=None
    ):
        self.how = how
        self.neighbours = neighbours
        self.fault = fault
        self.noise = noise
        self.random_state = random_state

    def fit(self, X, y=None):
        tables = [X] if isinstance(X, pd.DataFrame) else list(X.values())
        rows = pd.concat(tables, ignore_index=True)
        persons, cells = Persons(rows["who"]), rows["cell"].fillna(0).to_numpy(int)
        noise = noise_source(self.random_state, persons.codes, certified=self.noise == "certified")
        weights = 1 / persons.n_rows
        if self.fault == "rows":
            weights = np.ones(len(rows))
        if self.fault == "tables":
            weights = np.concatenate([1 / Persons(table["who"]).n_rows for table in tables])
        scale, released = 2.0, []
        drawn = persons.draw(noise)
        for part in (range(4), range(4, 8)):
            if self.how == "draw":
                weights = np.bincount(drawn, minlength=len(rows))
            values = np.bincount(cells, weights, minlength=8)[part]
            released.append(noise.add(values, scale, "gaussian"))
            if self.fault == "parts":
                drawn = persons.draw(noise)
        profile = GaussianProfile((2**0.5 if self.neighbours == "replace_one" else 1) / scale)
        self.privacy_ = PrivacyReport(
            name="counts",
            events=(),
            epsilon=profile.epsilon(1e-4),
            delta=1e-4,
            neighbours=self.neighbours,
            releases=((profile, 1),),
        ).for_persons("who")
        return self
