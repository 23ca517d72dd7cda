import math
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import torch
from local_privacy import (
    gaussian_delta,
    gaussian_mu,
    is_pure,
    log_likelihood,
    outputs,
    privacy_loss,
    vertices,
)
from scipy.integrate import cumulative_trapezoid
from tabular_records import BINS, FULL, NO_NULL, SCHEMA, records

from sklearn_dpgen.domains import OneHot
from sklearn_dpgen.mechanisms import TabularMechanism
from sklearn_dpgen.mechanisms._randomizers import response_table
from sklearn_dpgen.schema import Numeric, Schema


class Tampered(TabularMechanism):
    """Changes the plan of one column after the budget was stated."""

    def _calibrate(self):
        report = super()._calibrate()
        changed = [self.tamper(part) if part.name == self.column else part for part in self._parts]
        self._parts = tuple(changed)
        return report


def tampered(column, change, epsilon=2.0, schema=SCHEMA, **options):
    mechanism = Tampered(epsilon, schema=schema, n_bins=BINS, **options)
    mechanism.column, mechanism.tamper = column, lambda part: replace(part, **change(part))
    return mechanism.fit()


@pytest.mark.parametrize("epsilon", [0.2, 2.0, 12.0])
def test_a_whole_record_is_private(epsilon):
    mechanism = TabularMechanism(epsilon, schema=SCHEMA, n_bins=BINS).fit()
    assert is_pure(mechanism)
    X, Y = vertices(mechanism.domain_), outputs(mechanism.domain_)
    # A null is half as far from a value as two values are, so the budget is not used up.
    assert privacy_loss(mechanism, X, Y) > 0.9 * epsilon


def test_without_nulls_the_whole_budget_is_used():
    for epsilon in (0.2, 2.0, 12.0):
        mechanism = TabularMechanism(epsilon, schema=NO_NULL).fit()
        assert is_pure(mechanism)
        X, Y = vertices(mechanism.domain_), outputs(mechanism.domain_)
        assert privacy_loss(mechanism, X, Y) == pytest.approx(epsilon, rel=1e-6)


@pytest.mark.parametrize(
    ("column", "change"),
    [
        ("age", lambda part: {"scale": part.scale / 2}),
        ("visits", lambda part: {"scale": part.scale / 3}),
        ("age", lambda part: {"scale": part.scale / len(SCHEMA)}),
        ("visits", lambda part: {"table": response_table(2.0, 2)}),
        ("region", lambda part: {"table": response_table(2.0, 3)}),
        ("income", lambda part: {"table": response_table(0.7, 4)}),
    ],
)
def test_a_broken_column_is_caught(column, change):
    assert is_pure(tampered(column, lambda part: {}))
    assert not is_pure(tampered(column, change))


class FarNull(TabularMechanism):
    """A null released as present carries noise around a value outside of the bounds."""

    center = 3.0

    def _nullable_log_likelihood(self, part, X, Y):
        null = X[:, part.block.stop - 1, None] == 1
        shifted = Y.clone()
        shifted[:, part.value] -= self.center
        present = super()._nullable_log_likelihood(part, X, Y)
        return torch.where(null, super()._nullable_log_likelihood(part, X, shifted), present)

    def _randomize(self, X, noise):
        X = X.copy()
        for part in self._parts:
            if part.value is not None and part.block is not None:
                X[:, part.value] += self.center * X[:, part.block.stop - 1]
        return super()._randomize(X, noise)


def test_a_null_that_leaks_is_caught():
    schema = Schema({"visits": SCHEMA["visits"]})
    assert is_pure(TabularMechanism(2.0, schema=schema).fit())
    assert not is_pure(FarNull(2.0, schema=schema).fit())


def test_the_gaussian_values_of_a_record_are_private_together():
    schema = Schema({"a": Numeric(0, 1), "b": Numeric(5, 6), "day": FULL["day"]})
    mechanism = TabularMechanism(1.0, schema=schema, noise="gaussian", delta=1e-6).fit()
    assert gaussian_delta(gaussian_mu(mechanism), 1.0) == pytest.approx(1e-6, rel=1e-6)
    broken = tampered(
        "b",
        lambda part: {"scale": part.scale / 1.05},
        epsilon=1.0,
        schema=Schema({**schema, "income": SCHEMA["income"]}),
        noise="gaussian",
        delta=1e-6,
    )
    total = sum(broken.epsilon_[name] for name in schema)
    values = [2 / part.scale for part in broken._parts if part.value is not None]
    assert gaussian_delta(math.hypot(*values), total) > 1e-6 * (1 + 1e-6)


def nullable_z_score(kind, value, noise, n=20_000):
    """Deviation of released nullable values from the likelihood, in standard deviations."""
    options = {"schema": Schema({"visits": SCHEMA["visits"]}), "noise": noise}
    accounted = TabularMechanism(4.0, **options).fit()
    mechanism = kind(4.0, **options, random_state=0).fit()
    x = accounted.encoder_.transform(pd.DataFrame({"visits": [value]}))
    Y = mechanism.encode_release(mechanism.transform(pd.DataFrame({"visits": [value] * n})))

    edges = np.linspace(-6, 6, 13)
    grid = np.linspace(-60, 60, 120_001)
    points = np.column_stack([grid, np.ones_like(grid), np.zeros_like(grid)])
    density = np.exp(log_likelihood(accounted, x, points)[0])
    cdf = cumulative_trapezoid(density, grid, initial=0.0)
    p_null = math.exp(log_likelihood(accounted, x, [[0.0, 0.0, 1.0]])[0, 0])
    assert cdf[-1] + p_null == pytest.approx(1, abs=1e-6)
    p = np.append(np.interp(edges, grid, cdf), p_null)
    present = Y[:, 1] == 1
    below = (present[:, None] & (Y[:, :1] <= edges)).mean(axis=0)
    shares = np.append(below, 1 - present.mean())
    return (abs(shares - p) / np.sqrt(p * (1 - p) / n)).max()


@pytest.mark.parametrize("noise", ["laplace", "gaussian"])
@pytest.mark.parametrize("value", [0.0, 7.0, None])
def test_nullable_values_follow_the_likelihood(noise, value):
    assert nullable_z_score(TabularMechanism, value, noise) < 5
    if value is None:
        assert nullable_z_score(FarNull, value, noise) > 5


def released_shares(mechanism, record, name, n=20_000):
    frame = pd.DataFrame([record] * n).astype({"age": float})
    Y = mechanism.encode_release(mechanism.transform(frame))
    block = mechanism.encoder_.blocks_[name]
    return Y[:, block].mean(axis=0)


@pytest.mark.parametrize("name", ["income", "region"])
def test_released_categories_follow_the_likelihood(name):
    record = {"age": 3.0, "visits": 2.0, "income": 400.0, "region": "south"}

    def z_score(mechanism, table):
        # The record is in the second bin and in the second category.
        p = table[1]
        shares = released_shares(mechanism, record, name)
        return (abs(shares - p) / np.sqrt(p * (1 - p) / 20_000)).max()

    options = {"random_state": 0}
    mechanism = TabularMechanism(4.0, schema=SCHEMA, n_bins=BINS, **options).fit()
    table = next(part.table for part in mechanism._parts if part.name == name)
    assert z_score(mechanism, table) < 5
    wrong = {"table": response_table(1.3, len(table))}
    assert z_score(tampered(name, lambda part: wrong, epsilon=4.0, **options), table) > 5


def test_the_columns_are_randomized_independently():
    mechanism = TabularMechanism(2.0, schema=SCHEMA, n_bins=BINS, random_state=0).fit()
    frame = pd.DataFrame({"age": [50] * 20_000, "visits": 4.5, "income": 1.0, "region": "north"})
    Y = mechanism.encode_release(mechanism.transform(frame))
    first = [Y[:, mechanism.encoder_.blocks_[name]] for name in SCHEMA]
    for i, block in enumerate(first):
        for other in first[:i]:
            for f in (np.asarray, abs):
                pairs = np.corrcoef(f(block).T, f(other).T)[: block.shape[1], block.shape[1] :]
                assert np.nanmax(abs(pairs)) < 5 / math.sqrt(20_000)


def brute_force(mechanism, x, y):
    """log p(y|x) by enumerating the vertices of every soft block of a record."""
    soft = []
    position = 0
    for domain in mechanism.domain_.domains:
        factors = getattr(domain, "domains", (domain,))
        for factor in factors:
            block = slice(position, position + factor.n_features)
            if isinstance(factor, OneHot):
                soft.append(block)
            position += factor.n_features
    points, weights = [x], [1.0]
    for block in soft:
        expanded = []
        for point, weight in zip(points, weights, strict=True):
            for c, w in enumerate(x[block]):
                vertex = point.copy()
                vertex[block] = np.eye(block.stop - block.start)[c]
                expanded.append((vertex, weight * w))
        points, weights = zip(*expanded, strict=True)
    p = np.exp(log_likelihood(mechanism, points, [y])[:, 0])
    return math.log(np.dot(weights, p))


@pytest.mark.slow
@pytest.mark.parametrize("noise", ["laplace", "gaussian"])
def test_a_soft_record_is_the_mixture_of_its_vertices(noise):
    mechanism = TabularMechanism(3.0, schema=SCHEMA, n_bins=BINS, noise=noise).fit()
    rng = np.random.default_rng(0)
    X = mechanism.domain_.sample(6, rng)
    start = 0
    for domain in mechanism.domain_.domains:
        for factor in getattr(domain, "domains", (domain,)):
            if isinstance(factor, OneHot):
                k = factor.n_features
                X[:, start : start + k] = rng.dirichlet(np.ones(k), size=6)
            start += factor.n_features
    Y = mechanism.encode_release(mechanism.transform(records()[list(SCHEMA)]))
    Y = np.concatenate([Y, outputs(mechanism.domain_)[::97]])
    log_p = log_likelihood(mechanism, X, Y)
    for i, x in enumerate(X):
        expected = [brute_force(mechanism, x, y) for y in Y]
        np.testing.assert_allclose(log_p[i], expected, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("noise", ["laplace", "gaussian"])
def test_gradients_of_a_record(noise):
    mechanism = TabularMechanism(3.0, schema=SCHEMA, n_bins=BINS, noise=noise).fit()
    rng = np.random.default_rng(0)
    X = torch.tensor(0.05 + 0.9 * rng.uniform(size=(3, 11)), requires_grad=True)
    assert X.shape[1] == mechanism.domain_.n_features
    Y = torch.tensor(outputs(mechanism.domain_)[::211])
    assert torch.autograd.gradcheck(lambda X: mechanism.log_likelihood(X, Y), (X,))


@pytest.mark.parametrize("epsilon", [0.1, 10.0, 400.0, 1e5])
def test_values_and_gradients_are_finite_at_the_vertices(epsilon):
    # Where a softmax saturates in single precision a flag is exactly zero.
    mechanism = TabularMechanism(epsilon, schema=SCHEMA, n_bins=BINS).fit()
    X = torch.tensor(vertices(mechanism.domain_), dtype=torch.float32, requires_grad=True)
    Y = torch.tensor(outputs(mechanism.domain_), dtype=torch.float32)
    log_p = mechanism.log_likelihood(X, Y)
    log_p.mean().backward()
    assert torch.isfinite(log_p).all()
    assert torch.isfinite(X.grad).all()
