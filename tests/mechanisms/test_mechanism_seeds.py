"""What a seed repeats, and that noise is never used twice."""

import pickle
from functools import partial

import numpy as np
import pandas as pd
import pytest
from local_privacy import NaiveSeed
from scipy.stats import rankdata
from sklearn.base import clone

from sklearn_dpgen.domains import Ball, Box, OneHot
from sklearn_dpgen.mechanisms import (
    GaussianMechanism,
    LaplaceMechanism,
    RandomizedResponse,
    TabularMechanism,
)
from sklearn_dpgen.schema import Numeric, Schema

N_RECORDS = 2_000
BOX = Box(-1, 1)


class NaiveLaplace(NaiveSeed, LaplaceMechanism):
    pass


class NaiveGaussian(NaiveSeed, GaussianMechanism):
    pass


class Abbreviated:
    """Mix in: the noise knows the domain as it is printed."""

    def _release_settings(self):
        return (repr(self.domain_),)


class AbbreviatedLaplace(Abbreviated, LaplaceMechanism):
    pass


class AbbreviatedTable(Abbreviated, TabularMechanism):
    pass


class OtherLaplace(LaplaceMechanism):
    """Another class with the same calibration."""


def records(seed=0):
    return np.random.default_rng(seed).uniform(-1, 1, size=(N_RECORDS, 1))


def noise_of(mechanism, X):
    """Standardized noise, one value a record."""
    X = np.asarray(X)
    return ((mechanism.transform(X) - X) / mechanism.scale_).ravel()


def shares_noise(noise, other):
    """Whether two releases have correlated noise, by values, sizes or ranks."""
    n = min(len(noise), len(other))
    pairs = [(f(noise[:n]), f(other[:n])) for f in (np.asarray, abs, rankdata)]
    return max(abs(np.corrcoef(*pair)[0, 1]) for pair in pairs) > 5 / np.sqrt(n)


def variants(laplace, gaussian):
    """One release, and what differs from it in one thing each."""
    X, seed = records(), {"random_state": 0}
    base = noise_of(laplace(1.0, domain=BOX, **seed).fit(), X)
    X_changed = X.copy()
    X_changed[7] += 1e-9
    X_last = X.copy()
    X_last[-1] += 1e-9
    others = {
        "records": noise_of(laplace(1.0, domain=BOX, **seed).fit(), records(1)),
        "one record": noise_of(laplace(1.0, domain=BOX, **seed).fit(), X_changed),
        "the last record": noise_of(laplace(1.0, domain=BOX, **seed).fit(), X_last),
        "a part of the records": noise_of(laplace(1.0, domain=BOX, **seed).fit(), X[:-1]),
        "epsilon": noise_of(laplace(2.0, domain=BOX, **seed).fit(), X),
        "domain": noise_of(laplace(1.0, domain=Box(-1, 2), **seed).fit(), X),
        "equal diameter": noise_of(laplace(1.0, domain=Ball(1, n_features=1), **seed).fit(), X),
        "mechanism": noise_of(gaussian(1.0, domain=BOX, **seed).fit(), X),
        "shape": noise_of(
            laplace(1.0, domain=Box(-1, 1, n_features=2), **seed).fit(), X.reshape(-1, 2)
        ),
        "seed": noise_of(laplace(1.0, domain=BOX, random_state=1).fit(), X),
    }
    return base, others


def test_any_difference_gives_independent_noise():
    base, others = variants(LaplaceMechanism, GaussianMechanism)
    shared = [name for name, noise in others.items() if shares_noise(base, noise)]
    assert shared == []
    # Negative twin: a source that the seed alone decides repeats its draws everywhere.
    base, others = variants(NaiveLaplace, NaiveGaussian)
    shared = [name for name, noise in others.items() if shares_noise(base, noise)]
    assert set(shared) == set(others) - {"seed"}


def test_delta_and_class_are_a_difference_too():
    X, options = records(), {"domain": BOX, "random_state": 0}
    noise = noise_of(GaussianMechanism(1.0, 1e-5, **options).fit(), X)
    assert not shares_noise(noise, noise_of(GaussianMechanism(1.0, 1e-6, **options).fit(), X))
    noise = noise_of(LaplaceMechanism(1.0, **options).fit(), X)
    assert not shares_noise(noise, noise_of(OtherLaplace(1.0, **options).fit(), X))


def wide(feature):
    """A box that is wider in one of its features."""
    high = np.ones(10)
    high[feature] = 2
    return Box(-high, high)


def vector_noise(kind, feature):
    mechanism = kind(domain=wide(feature), random_state=0).fit()
    return noise_of(mechanism, np.zeros((N_RECORDS, 10)))


def table_noise(kind, high, bins=None):
    """Noise of records at the lower bound, on the scale from -1 to 1."""
    schema = Schema({"x": Numeric(0, high)})
    mechanism = kind(schema=schema, n_bins=bins, random_state=0)
    released = mechanism.fit_transform(pd.DataFrame({"x": np.zeros(N_RECORDS)}))
    return released["x"].to_numpy() / high


def test_declarations_that_look_alike_have_noise_of_their_own():
    # What is clipped by one of them, and not by the other, would be told from equal noise.
    def shared(vector, table):
        middle = (vector_noise(vector, feature) for feature in (4, 5))
        bounds = (table_noise(table, high) for high in (10, 20))
        edges = (table_noise(table, 10, {"x": [0, edge, 10]}) for edge in (4, 5))
        return [shares_noise(*pair) for pair in (middle, bounds, edges)]

    assert shared(LaplaceMechanism, TabularMechanism) == [False] * 3
    assert shared(AbbreviatedLaplace, AbbreviatedTable) == [True] * 3


def test_equal_records_of_a_batch_get_noise_of_their_own():
    noise = noise_of(LaplaceMechanism(domain=BOX, random_state=0).fit(), np.zeros((N_RECORDS, 1)))
    assert len(np.unique(noise)) > N_RECORDS / 4
    assert not shares_noise(noise[::2], noise[1::2])


@pytest.mark.parametrize("kind", [LaplaceMechanism, GaussianMechanism])
def test_a_seed_repeats_the_release(kind):
    X = records()[:50]
    mechanism = kind(domain=BOX, random_state=3).fit(X)
    Y = mechanism.transform(X)
    repeats = [
        mechanism.transform(X),
        mechanism.transform(np.asfortranarray(X)),
        mechanism.transform(X.tolist()),
        clone(mechanism).fit_transform(X),
        pickle.loads(pickle.dumps(mechanism)).transform(X),
        # Fitted without data, or by a function of the width.
        kind(domain=BOX, random_state=3).fit().transform(X),
        kind(domain=partial(Box, -1, 1), random_state=np.int64(3)).fit(X).transform(X),
    ]
    for repeat in repeats:
        np.testing.assert_array_equal(repeat, Y)
    assert "void" in mechanism.privacy_.noise_source
    assert "void" in mechanism.privacy_.to_text()


def test_the_versions_of_libraries_do_not_change_the_noise(monkeypatch):
    X = records()[:50]
    Y = LaplaceMechanism(domain=BOX, random_state=3).fit_transform(X)
    monkeypatch.setattr("sklearn_dpgen.accounting._report._version_of", lambda name: "999")
    mechanism = LaplaceMechanism(domain=BOX, random_state=3).fit(X)
    assert mechanism.privacy_.versions["numpy"] == "999"
    np.testing.assert_array_equal(mechanism.transform(X), Y)


@pytest.mark.parametrize(
    ("mechanism", "X"),
    [
        (LaplaceMechanism(domain=BOX), records()),
        (GaussianMechanism(domain=BOX), records()),
        (RandomizedResponse(domain=OneHot(4)), np.eye(4)[np.arange(100) % 4]),
    ],
)
def test_without_a_seed_no_release_repeats(mechanism, X):
    fitted = clone(mechanism).fit(X)
    first, second = fitted.transform(X), fitted.transform(X)
    assert not np.array_equal(first, second)
    if fitted.cost_norm is not None:
        assert not shares_noise(*((Y - X).ravel() for Y in (first, second)))
    assert fitted.privacy_.noise_source == "operating system entropy"


def test_a_random_state_gives_every_fit_noise_of_its_own():
    X, rng = records(), np.random.RandomState(0)
    mechanism = LaplaceMechanism(domain=BOX, random_state=rng)
    first, second = (noise_of(mechanism.fit(X), X) for _ in range(2))
    assert not shares_noise(first, second)
    assert "void" in mechanism.privacy_.noise_source
    again = LaplaceMechanism(domain=BOX, random_state=np.random.RandomState(0)).fit(X)
    np.testing.assert_array_equal(noise_of(again, X), first)


def test_parameters_set_after_fit_do_not_change_what_was_stated():
    X = records()
    mechanism = LaplaceMechanism(1.0, domain=BOX).fit(X)
    mechanism.set_params(epsilon=np.inf, domain=Box(-50, 50), random_state=0)
    noise = noise_of(mechanism, X)
    assert abs(noise).max() > 1
    assert not shares_noise(noise, noise_of(mechanism, X))
    assert abs(mechanism.transform(np.full((N_RECORDS, 1), 40.0)).mean() - 1) < 1
    mechanism.fit(X)
    assert mechanism.privacy_.epsilon == np.inf
    np.testing.assert_array_equal(mechanism.transform(X), X)


def test_no_release_touches_a_global_stream():
    stream = np.random.mtrand._rand
    for random_state in (None, 0):
        before = stream.get_state()[1:3]
        LaplaceMechanism(domain=BOX, random_state=random_state).fit_transform(records())
        after = stream.get_state()[1:3]
        np.testing.assert_array_equal(after[0], before[0])
        assert after[1] == before[1]
