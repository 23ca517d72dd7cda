"""What reports say of noise in floating point: the number of noisy values, counted as they come."""

import math

import numpy as np
import pandas as pd
import pytest
from contract_cases import CASES, FRAME, SCHEMA, SIDE
from sklearn.base import clone

from sklearn_dpgen.mechanisms._class_moments import MomentPlan
from sklearn_dpgen.schema import Categorical, Schema
from sklearn_dpgen.tables import TableSampler
from sklearn_dpgen.tables._sampler_plan import SamplerPlan
from sklearn_dpgen.utils._random import NoiseObserver, observed_noise

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")

SIZES = tuple(np.bincount(SIDE))
# Of these the number depends on what was released: the report has the largest one.
AT_MOST = ("sliced measures", "panels", "evolution", "classifier")
SLOW = ("synthetic classifier", "barycenter classifier")
# What a value, or a score that is compared, adds: doc/certified_noise.rst.
A_VALUE = 2.0**-36


class Count(NoiseObserver):
    """Counts the values that noise is added to, and the scores that are compared."""

    n_values = 0

    def added(self, values, scale, kind, noisy):
        self.n_values += values.size
        return noisy

    def selected(self, scores, scale, indices):
        self.n_values += scores.size
        return indices


class Scores(Count):
    """Counts the scores apart, too."""

    n_scores = 0

    def selected(self, scores, scale, indices):
        self.n_scores += scores.size
        return super().selected(scores, scale, indices)


def counted(case):
    """Return the noisy values of a fit, and how many its plan says that there are at most."""
    estimator = clone(case.estimator)
    rounding = estimator.plan(**case.sizes(SIZES)).rounding
    assert rounding is not None, "the report must state its rounding"
    stated = rounding / A_VALUE
    with observed_noise(Count()) as count:
        case.fit(FRAME, SIDE, estimator)
    assert estimator.privacy_.rounding == stated * A_VALUE
    return count.n_values, stated


def agree(name, n_values, stated):
    if any(part in name for part in AT_MOST) and "fair" not in name:
        return 0 < n_values <= stated <= 60 * n_values
    return n_values == stated


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=pytest.mark.slow) if name in SLOW else name for name in CASES],
)
def test_every_noisy_value_is_counted(name):
    assert agree(name, *counted(CASES[name]))


def test_values_that_are_not_counted_are_caught(monkeypatch):
    """Negative twin: a fit that releases a vector that its plan does not know of."""
    release = MomentPlan.release

    def more(self, X, codes, noise, public):
        noise.add(X[:1].ravel(), 1.0, "gaussian")
        return release(self, X, codes, noise, public)

    monkeypatch.setattr(MomentPlan, "release", more)
    assert not agree("moments", *counted(CASES["moments"]))


@pytest.mark.parametrize("name", CASES)
def test_without_noise_nothing_is_rounded(name):
    estimator = clone(CASES[name].estimator)
    budgets = [key for key in estimator.get_params() if key.split("__")[-1] == "epsilon"]
    if "classifier" in name and "fair" not in name:
        # Of the learner that is given, whose plan is that of its sampler.
        pytest.skip("its budget is that of what it holds")
    estimator.set_params(**dict.fromkeys(budgets, math.inf))
    assert estimator.plan(**CASES[name].sizes(SIZES)).rounding == 0


def test_certified_noise_is_exact():
    pytest.importorskip("opendp")
    given = {"schema": SCHEMA, "epsilon": 2.0, "delta": 1e-4}
    assert TableSampler(noise="certified", **given).plan(120).rounding == 0
    report = TableSampler(**given).plan(120)
    assert report.rounding > 0
    assert f"{report.rounding:.2g} in total variation" in report.to_text()
    assert report.rounding == type(report).from_dict(report.to_dict()).rounding


def test_scores_that_are_compared_are_counted_too(monkeypatch):
    """In twenty columns of two labels each table of two is a candidate."""
    rng = np.random.default_rng(0)
    X = pd.DataFrame({name: rng.integers(0, 2, 300) for name in "abcdefghijklmnopqrst"})
    schema = Schema({name: Categorical([0, 1]) for name in X})
    sampler = TableSampler(2.0, 1e-4, schema=schema, max_iter=2)
    with observed_noise(Scores()) as seen:
        sampler.fit(X)
    assert seen.n_scores >= 190
    assert seen.n_values <= sampler.privacy_.rounding / A_VALUE
    # The negative twin: without the scores it says less than there are.
    monkeypatch.setattr(SamplerPlan, "_rounding", lambda self: self._n_values * A_VALUE)
    assert seen.n_values > sampler.plan(300).rounding / A_VALUE
