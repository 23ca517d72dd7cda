"""Moments of raw records, estimated from privatized ones: whatever the noise, without bias."""

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone

from sklearn_dpgen.domains import Ball, Box, OneHot, Product
from sklearn_dpgen.mechanisms import (
    GaussianMechanism,
    JointRandomizedResponse,
    LaplaceMechanism,
    RandomizedResponse,
    TabularMechanism,
)
from sklearn_dpgen.mechanisms._release import moment_score
from sklearn_dpgen.schema import Categorical, Numeric, Ordinal, Schema

N, N_REPEATS = 4000, 24
RNG = np.random.default_rng(0)
# A number of which bins of a quarter tell the middle, missing for some, and what depends on it.
MIDDLE = RNG.choice([-0.75, -0.25, 0.25, 0.75], size=N, p=[0.4, 0.3, 0.2, 0.1])
LEVEL = np.where(RNG.uniform(size=N) < 0.6, (MIDDLE > 0) * 3, RNG.integers(0, 4, N))
IS_NULL = RNG.uniform(size=N) < 0.3 - 0.2 * MIDDLE
SCHEMA = Schema(
    {
        "x": Numeric(0, 8, nullable=True),
        "level": Ordinal(["a", "b", "c", "d"]),
        "kind": Categorical(["p", "q"]),
    }
)
TABLE = pd.DataFrame(
    {
        "x": np.where(IS_NULL, np.nan, 4 + 4 * MIDDLE),
        "level": np.array(["a", "b", "c", "d"])[LEVEL],
        "kind": np.where(LEVEL > 1, "p", "q"),
    }
)
BOX = Box([0, -1], [10, 3])
POINTS = np.column_stack([5 + 5 * MIDDLE, LEVEL - 0.5])
CODES = np.eye(4)[LEVEL]


def by_hand(columns):
    """Return the moments of columns, each a number or a list of categories, or both."""
    features = np.hstack([np.column_stack(column) for column in columns])
    owner = np.repeat(np.arange(len(columns)), [len(column) for column in columns])
    second = features.T @ features / len(features)
    is_number = np.array([set(np.unique(f)) - {0, 1} != set() for f in features.T])
    unknown = owner[:, None] == owner
    unknown[np.diag_indices(len(owner))] = ~is_number
    return features.mean(axis=0), np.where(unknown, np.nan, second)


def indicators(codes, size):
    return [codes == i for i in range(size)]


# A number in the middle of its range, 0, is what a null is encoded as.
TABLE_MOMENTS = by_hand(
    [
        [np.where(IS_NULL, 0.0, MIDDLE), ~IS_NULL, IS_NULL],
        indicators(LEVEL, 4),
        indicators(LEVEL <= 1, 2),
    ]
)
POINT_MOMENTS = by_hand([[MIDDLE], [(LEVEL - 1.5) / 2]])
MIXED = Product([BOX, OneHot(4)])
CASES = {
    "laplace": (LaplaceMechanism(3.0, domain=BOX), POINTS, POINT_MOMENTS),
    "gaussian": (GaussianMechanism(3.0, 1e-3, domain=BOX), POINTS, POINT_MOMENTS),
    "ball": (
        LaplaceMechanism(3.0, domain=Ball(4, center=[0, 1], n_features=2)),
        np.column_stack([MIDDLE, LEVEL - 1]),
        by_hand([[MIDDLE / 4], [(LEVEL - 2) / 4]]),
    ),
    "response": (RandomizedResponse(1.0, domain=OneHot(4)), CODES, by_hand([indicators(LEVEL, 4)])),
    "product": (
        LaplaceMechanism(30.0, domain=MIXED),
        np.hstack([POINTS, CODES]),
        by_hand([[MIDDLE], [(LEVEL - 1.5) / 2], indicators(LEVEL, 4)]),
    ),
    "table": (TabularMechanism(6.0, schema=SCHEMA), TABLE, TABLE_MOMENTS),
    "gaussian table": (
        TabularMechanism(6.0, schema=SCHEMA, noise="gaussian", delta=1e-3),
        TABLE,
        TABLE_MOMENTS,
    ),
    "bins": (TabularMechanism(6.0, schema=SCHEMA, n_bins=4), TABLE, TABLE_MOMENTS),
    "answers": (JointRandomizedResponse(1.0, schema=SCHEMA, n_bins=4), TABLE, TABLE_MOMENTS),
    "three": (
        JointRandomizedResponse(1.0, schema=SCHEMA, n_bins=4, n_asked=3),
        TABLE,
        TABLE_MOMENTS,
    ),
    "sharp": (JointRandomizedResponse(5.0, schema=SCHEMA, n_bins=8, n_asked=2), TABLE, None),
}


def deviation(mechanism, records, expected):
    """Return the largest bias of the estimates, in its standard errors over repeated releases."""
    fitted, estimates = clone(mechanism).fit(records), []
    for seed in range(N_REPEATS):
        Y = fitted._for_public_records(seed).transform(records)
        found = fitted._raw_moments(fitted.encode_release(Y))
        estimates.append(np.concatenate([found.mean, found.second.ravel()]))
    known = np.concatenate([expected[0], expected[1].ravel()])
    estimates = np.array(estimates)
    assert (np.isnan(estimates) == np.isnan(known)).all()
    bias = estimates.mean(axis=0) - known
    error = estimates.std(axis=0, ddof=1) / np.sqrt(N_REPEATS)
    # Sums of shares that are 1 have no error.
    return np.nanmax(abs(bias) / np.maximum(error, 1e-9))


def biased(mechanism):
    """Return a broken variant: moments are those of the privatized records."""
    if isinstance(mechanism, JointRandomizedResponse):

        class Biased(type(mechanism)):
            def _unbiased_shares(self, Y, columns):
                self.epsilon_, epsilon = 1.5 * self.epsilon_, self.epsilon_
                found = super()._unbiased_shares(Y, columns)
                self.epsilon_ = epsilon
                return found
    else:

        class Biased(type(mechanism)):
            def _unbiased(self, Y):
                return Y, Y**2

    return Biased(**mechanism.get_params())


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in CASES if name != "sharp"])
def test_moments_are_estimated_without_bias(name):
    mechanism, records, expected = CASES[name]
    # A t variable of 23 degrees of freedom is beyond 6 with a probability of 4e-6.
    assert deviation(mechanism, records, expected) < 6
    assert deviation(biased(mechanism), records, expected) > 6


def test_moments_of_the_records_themselves_have_the_best_score():
    for name in ("laplace", "table", "answers", "sharp"):
        mechanism, records, _ = CASES[name]
        fitted = clone(mechanism).set_params(random_state=0).fit(records)
        Y = fitted.encode_release(fitted.transform(records))
        encoded = fitted.encoder_.transform(records) if records is TABLE else records
        weights = np.full(N, 1 / N)
        best = moment_score(fitted, Y, encoded, weights)
        worse = weights * np.linspace(0, 2, N)[np.argsort(np.argsort(MIDDLE))]
        assert moment_score(fitted, Y, encoded, worse) < best < 0


def test_a_soft_point_is_a_law_of_its_categories():
    mechanism = TabularMechanism(6.0, schema=SCHEMA, random_state=0).fit()
    Y = mechanism.encode_release(mechanism.transform(TABLE))
    # One point that is null with a probability of a quarter, and the records that it stands for.
    soft = np.array([[0.5, 0.75, 0.25, 0.5, 0.5, 0, 0, 1, 0]])
    hard = np.array(
        [
            [0.0 if null else 0.5, not null, null, level == 0, level == 1, 0, 0, 1, 0]
            for null in (False, False, False, True)
            for level in (0, 1)
        ],
        dtype=float,
    )
    found = moment_score(mechanism, Y, soft, np.ones(1))
    assert found == pytest.approx(moment_score(mechanism, Y, hard, np.full(8, 1 / 8)))
