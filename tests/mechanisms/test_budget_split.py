import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sklearn_dpgen.accounting import gaussian_sigma
from sklearn_dpgen.mechanisms import TabularMechanism
from sklearn_dpgen.mechanisms._tabular import split_budget
from sklearn_dpgen.schema import Categorical, Datetime, Numeric, Ordinal, Schema

reproducibly = settings(deadline=None, max_examples=60, derandomize=True)
COLUMNS = {
    "number": Numeric(0, 1),
    "nullable": Numeric(0, 1, nullable=True),
    "day": Datetime("2020-01-01", "2021-01-01"),
    "nullable_day": Datetime("2020-01-01", "2021-01-01", nullable=True),
    "binned": Numeric(0, 9, integer=True, nullable=True),
    "label": Categorical(["a", "b", "c"], nullable=True),
    "level": Ordinal([1, 2]),
}
SCHEMA = Schema(COLUMNS)
EPSILONS = st.floats(1e-3, 50)


def schema_of(n):
    return Schema({f"c{i}": Numeric(0, 1) for i in range(n)})


def exceeds(shares, epsilon):
    return sum(map(Fraction, shares)) > Fraction(epsilon)


@reproducibly
@given(EPSILONS, st.lists(st.floats(1e-6, 1e6), min_size=1, max_size=12))
def test_shares_sum_to_at_most_epsilon_exactly(epsilon, weights):
    schema = schema_of(len(weights))
    shares = split_budget(epsilon, schema, dict(zip(schema, weights, strict=True)))
    assert list(shares) == list(schema)
    assert not exceeds(shares.values(), epsilon)
    assert math.fsum(shares.values()) == pytest.approx(epsilon, rel=1e-12)
    ratios = np.array(list(shares.values())) / np.array(weights)
    np.testing.assert_allclose(ratios, ratios[0], rtol=1e-9)


def test_naive_shares_exceed_epsilon():
    # A tenth is rounded up, and so is the sum, which hides it from a comparison of floats.
    assert exceeds([1.0 / 10] * 10, 1.0)
    assert math.fsum([1.0 / 10] * 10) == 1.0
    assert not exceeds(split_budget(1.0, schema_of(10), "uniform").values(), 1.0)


def test_ways_to_split():
    schema = Schema({"a": Numeric(0, 1), "b": Categorical(["x", "y"])})
    assert split_budget(3.0, schema, "uniform") == {"a": 1.5, "b": 1.5}
    assert split_budget(3.0, schema, {"b": 2, "a": 1}) == {"a": 1.0, "b": 2.0}
    by_type = split_budget(4.0, schema, lambda s: {n: 1 + 2 * (n == "b") for n in s})
    assert by_type == {"a": 1.0, "b": 3.0}
    assert split_budget(math.inf, schema, "uniform") == {"a": math.inf, "b": math.inf}


@pytest.mark.parametrize(
    ("split", "error", "message"),
    [
        ({"a": 1.0}, ValueError, r"split .*missing \['b'\], unknown \[\]"),
        ({"a": 1.0, "b": 1.0, "c": 1.0}, ValueError, r"missing \[\], unknown \['c'\]"),
        (lambda schema: {}, ValueError, r"missing \['a', 'b'\]"),
        ({"a": 1.0, "b": 0.0}, ValueError, r"split\['b'\] must be positive"),
        ({"a": -1.0, "b": 1.0}, ValueError, r"split\['a'\] must be positive"),
        ({"a": math.nan, "b": 1.0}, ValueError, r"split\['a'\] must be positive"),
        ({"a": 1.0, "b": math.inf}, ValueError, r"split\['b'\] must be positive and finite"),
        ({"a": 1.0, "b": "much"}, TypeError, r"split\['b'\] must be a real number"),
        ("equal", ValueError, "'split' parameter"),
        (None, ValueError, "'split' parameter"),
    ],
)
def test_bad_splits(split, error, message):
    schema = Schema({"a": Numeric(0, 1), "b": Categorical(["x", "y"])})
    with pytest.raises(error, match=message):
        TabularMechanism(schema=schema, split=split).fit()


def spent(mechanism):
    """What each column's randomization costs, from its scale and table alone."""
    flags, values = {}, {}
    for part in mechanism._parts:
        if part.table is not None:
            flags[part.name] = np.log(part.table.max(axis=0) / part.table.min(axis=0)).max()
        if part.value is not None:
            values[part.name] = 2 / part.scale
    return flags, values


@settings(reproducibly, max_examples=20)
@given(EPSILONS, st.lists(st.floats(0.1, 10), min_size=7, max_size=7))
def test_laplace_columns_spend_their_shares(epsilon, weights):
    split = dict(zip(SCHEMA, weights, strict=True))
    mechanism = TabularMechanism(epsilon, schema=SCHEMA, n_bins={"binned": 5}, split=split).fit()
    flags, values = spent(mechanism)
    for name, share in mechanism.epsilon_.items():
        flag, value = flags.get(name, 0.0), values.get(name, 0.0)
        # Two values differ by the whole range; a value and a null by the flag and half of it.
        nullable = name in flags and name in values
        costs = [value, flag + value / 2] if nullable else [flag + value]
        assert costs == pytest.approx([share] * len(costs), rel=1e-9, abs=1e-12)
    assert set(values) == {"number", "nullable", "day", "nullable_day"}
    assert set(flags) == {"nullable", "nullable_day", "binned", "label", "level"}
    for name in ("nullable", "nullable_day"):
        assert flags[name] == pytest.approx(values[name] / 2, rel=1e-9, abs=1e-12)
    assert mechanism.privacy_.delta == 0


def joint_mu(scales):
    """Distance of the farthest records in units of the noise, for a joint Gaussian release."""
    return math.sqrt(sum((2 / scale) ** 2 for scale in scales))


@settings(reproducibly, max_examples=10)
@given(EPSILONS, st.floats(1e-9, 0.1), st.lists(st.floats(0.1, 10), min_size=7, max_size=7))
def test_gaussian_columns_are_one_release(epsilon, delta, weights):
    split = dict(zip(SCHEMA, weights, strict=True))
    mechanism = TabularMechanism(
        epsilon, schema=SCHEMA, n_bins={"binned": 5}, split=split, noise="gaussian", delta=delta
    ).fit()
    shares = mechanism.epsilon_
    joint = [shares["number"], shares["nullable"] / 2, shares["day"], shares["nullable_day"] / 2]
    scales = {part.name: part.scale for part in mechanism._parts if part.value is not None}
    mu = 2 / gaussian_sigma(math.fsum(joint), delta, 2.0)
    assert joint_mu(scales.values()) == pytest.approx(mu, rel=1e-12)
    # A larger share gets less noise: (2/σ)² is proportional to it.
    np.testing.assert_allclose(
        [scale**-2 for scale in scales.values()], np.array(joint) / sum(joint) * mu**2 / 4
    )
    flags, _ = spent(mechanism)
    assert math.fsum([*flags.values(), *joint]) <= epsilon * (1 + 1e-9) + 1e-11
    assert mechanism.privacy_.delta == delta
    # Negative twin: the noise that one column needs is not enough for each of several.
    alone = [gaussian_sigma(math.fsum(joint), delta, 2.0)] * len(joint)
    assert joint_mu(alone) > mu * (1 + 1e-9)


def test_the_report_of_a_column_is_what_it_costs_alone():
    mechanism = TabularMechanism(4.0, schema=SCHEMA, noise="gaussian", delta=1e-5).fit()
    report = mechanism.privacy_
    assert (report.epsilon, report.delta) == (4.0, 1e-5)
    parts = {part.name: part for part in report.parts}
    assert list(parts) == list(SCHEMA)
    for name, part in parts.items():
        has_noise = isinstance(SCHEMA[name], Numeric | Datetime)
        assert part.delta == (1e-5 if has_noise else 0)
        assert part.noise_scale == mechanism.scale_[name]
        # At the delta of the whole record one column of a joint release costs more than its
        # share, and less than everything.
        share = mechanism.epsilon_[name]
        assert share < part.epsilon < 4 if has_noise else part.epsilon == share
    only_labels = Schema({"label": COLUMNS["label"]})
    labels = TabularMechanism(1.0, schema=only_labels, noise="gaussian").fit()
    assert labels.privacy_.delta == 0
