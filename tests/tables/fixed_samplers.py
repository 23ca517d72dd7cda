"""A sampler of a public law, which reads nothing: for tests of what learns from its draws."""

import numpy as np
import pandas as pd
from sklearn.base import BaseEstimator

from sklearn_dpgen.accounting import PrivacyReport
from sklearn_dpgen.schema import Categorical, Numeric, Schema

LABELS = ("low", "mid", "top")


class FixedSampler(BaseEstimator):
    """Draws x and z, uniform, and a label or number that follows x.

    Parameters
    ----------
    schema : Schema
        Of x, z and y.
    target : str
    rare : float
        Probability of the label "top"; it is of the largest x.
    budget : float
        What the report states.
    """

    def __init__(self, schema=None, target="y", rare=0.3, budget=1.0):
        self.schema = schema
        self.target = target
        self.rare = rare
        self.budget = budget

    def plan(self, n_samples=None, n_features=None):
        """Return the report of a fit."""
        return PrivacyReport(name="a public law", events=(), epsilon=self.budget, delta=0.0)

    def fit(self, X, y=None):
        """Read nothing but the number of rows."""
        self.n_records_ = len(X)
        self.privacy_ = self.plan()
        return self

    def sample(self, n_samples=1, *, random_state=None):
        """Draw rows."""
        rng = np.random.default_rng(random_state)
        x, z = rng.uniform(size=(2, n_samples))
        y = x
        if isinstance(self.schema["y"], Categorical):
            y = np.array(LABELS)[(x > 0.4).astype(int) + (x > 1 - self.rare)]
        return pd.DataFrame({"x": x, "z": z, "y": y})[list(self.schema)]


def fixed(y=None, **params):
    """Return a FixedSampler of labels, or of what the column says."""
    columns = {"x": Numeric(0, 1), "z": Numeric(0, 1), "y": y or Categorical(LABELS)}
    return FixedSampler(Schema(columns), **params)


def records(n=300, seed=1):
    """Return features and labels of the same law."""
    rows = fixed().sample(n, random_state=seed)
    return rows[["x", "z"]], rows["y"].to_numpy()
