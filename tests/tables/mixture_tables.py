"""A table with labels, and quick samplers of it."""

import numpy as np
import pandas as pd
import pytest

from sklearn_dpgen.schema import Categorical, Datetime, Numeric, Ordinal, Schema
from sklearn_dpgen.tables import PrivateMixtureSampler, _mixture_evolution

JOBS = ["baker", "nurse", "pilot"]
SCHEMA = Schema(
    {
        "age": Numeric(0, 100, integer=True),
        "pay": Numeric(0, 10, nullable=True),
        "job": Categorical(JOBS),
        "level": Ordinal([1, 2, 3]),
        "day": Datetime("2020-01-01", "2020-12-31", resolution="D"),
    }
)
PAIR = Schema({name: Categorical(list("wxyz")) for name in "ab"})
kinds = pytest.mark.parametrize("kind", ["none", "private"])


def quick(monkeypatch):
    """Few public draws, and reports that are quickly made."""
    monkeypatch.setattr(_mixture_evolution, "_POOL", 300)
    monkeypatch.setattr("sklearn_dpgen.accounting._report.metadata.version", lambda name: "0")


def make(epsilon=1.0, **options):
    small = {"bins": 4, "n_candidates": 12, "n_cells": 2, "random_state": 0, "device": "cpu"}
    small |= {"schema": SCHEMA, "classes": ["a", "b"]}
    return PrivateMixtureSampler(epsilon, **(small | options))


def table(n=60, seed=0):
    """Return records with nulls, and labels of which a third is "a"."""
    rng = np.random.default_rng(seed)
    columns = {
        "age": rng.integers(10, 60, size=n),
        "pay": np.where(rng.uniform(size=n) < 0.3, np.nan, rng.uniform(0, 7, size=n)),
        "job": rng.choice(JOBS[:2], size=n).astype(object),
        "level": rng.choice([1, 2], size=n),
        "day": pd.Timestamp("2020-02-01") + pd.to_timedelta(rng.integers(200, size=n), "D"),
    }
    return pd.DataFrame(columns), rng.permutation(np.repeat(["a", "b"], [n // 3, n - n // 3]))


X, Y = table()
FAR = [99, 9.9, "pilot", 3, pd.Timestamp("2020-12-31")]


def train(sampler, kind, frame=X, y=Y):
    return sampler.fit(frame) if kind == "none" else sampler.fit(frame, y)


def parts(sampler):
    """Return all that came of the records."""
    laws = [part for law in sampler.laws_ for part in (law.shares, law.probabilities)]
    return [*laws, getattr(sampler, "label_proportions_", np.ones(1))]


def same(first, second):
    return all(map(np.array_equal, parts(first), parts(second)))
