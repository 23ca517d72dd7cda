"""Deltas that would pay for a whole record, in the estimators that take them."""

import warnings

import numpy as np
import pandas as pd
import pytest

from sklearn_dpgen.domains import Box
from sklearn_dpgen.evolution import PrivateEvolutionSampler, PrivateSignedMeasureSampler
from sklearn_dpgen.exceptions import LargeDeltaWarning
from sklearn_dpgen.moments import MomentSampler
from sklearn_dpgen.schema import Categorical, Numeric, Schema
from sklearn_dpgen.tables import TableSampler

SCHEMA = Schema({"a": Numeric(0, 1), "b": Categorical(["x", "y"])})
BOX = Box(0, 1, n_features=2)
RARE = ["x"] * 10 + ["y"] * 90


def sliced(**options):
    small = {"schema": SCHEMA, "n_bins": 2, "population_size": 5, "max_iter": 2}
    return TableSampler(**small, **options)


def evolution(**options):
    return PrivateEvolutionSampler(n_samples=5, n_iter=1, domain=BOX, **options)


def measure(**options):
    return PrivateSignedMeasureSampler(n_points=9, domain=BOX, **options)


def moments(**options):
    return MomentSampler(domain=BOX, **options)


def warns(sampler, y=None):
    rng = np.random.default_rng(0)
    is_table = hasattr(sampler, "schema") and sampler.schema is not None
    X = pd.DataFrame({"a": rng.uniform(size=100), "b": RARE}) if is_table else BOX.sample(100, rng)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        sampler.fit(X, y)
    return any(issubclass(warning.category, LargeDeltaWarning) for warning in caught)


@pytest.mark.parametrize("make", [sliced, evolution, measure, moments])
def test_a_delta_above_one_record_is_warned_of(make):
    assert warns(make(epsilon=1.0, delta=0.0101))
    assert not warns(make(epsilon=1.0, delta=0.0099))
    # Without noise delta pays for nothing.
    assert not warns(make(epsilon=np.inf, delta=0.0101))


def test_where_the_number_of_records_is_private_nothing_tells_of_it():
    assert not warns(sliced(epsilon=1.0, delta=0.5, neighbours="add_or_remove"))


@pytest.mark.parametrize("make", [evolution, measure, moments])
@pytest.mark.parametrize("labels", ["public", "private"])
def test_a_record_at_random_is_one_of_all_classes(make, labels):
    options = {"epsilon": 1.0, "classes": ["x", "y"], "labels": labels}
    assert warns(make(**options, delta=0.0101), RARE)
    assert not warns(make(**options, delta=0.0099), RARE)
