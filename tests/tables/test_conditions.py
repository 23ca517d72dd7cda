"""Conditions on records: what values and intervals mean, and the law that is left."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from condition_tables import CLOSED, DAY, ENCODER, SCHEMA, between, every_closed
from numpy.testing import assert_allclose, assert_array_equal
from scipy.stats import chisquare

from sklearn_dpgen.domains import OneHot, Product
from sklearn_dpgen.exceptions import PublicValueError
from sklearn_dpgen.preprocessing import TabularEncoder
from sklearn_dpgen.schema import Datetime, Numeric, Schema
from sklearn_dpgen.schema._binned import bin_column
from sklearn_dpgen.tables._conditional_sampling import read_conditions
from sklearn_dpgen.tables._distributions import ProductMixture

# The law of a condition.

LAW = ProductMixture(
    Product([OneHot(2), OneHot(3)]),
    np.array([0.25, 0.75]),
    np.array([[0.5, 0.5, 0.2, 0.8, 0.0], [0.9, 0.1, 0.0, 0.5, 0.5]]),
)


def joint(law):
    return np.einsum("n,na,nb->ab", law.shares, law.probabilities[:, :2], law.probabilities[:, 2:])


@pytest.mark.parametrize(
    ("rows", "columns"),
    [([0, 1], [1, 1, 1]), ([1, 1], [0, 0, 1]), ([1, 0], [1, 0, 1]), ([0, 1], [1, 0, 0])]
    + [([0.5, 1], [1, 0.25, 0]), ([0.1, 0], [0.2, 0.2, 0.2])],
    ids=str,
)
def test_a_condition_is_that_of_the_joint_law(rows, columns):
    rows, columns = np.array(rows, dtype=float), np.array(columns, dtype=float)
    law = LAW.restricted({0: rows, 1: columns})
    expected = joint(LAW) * rows[:, None] * columns
    assert_allclose(joint(law), expected / expected.sum())
    assert law.shares.sum() == pytest.approx(1)
    assert_allclose(law.probabilities[:, 2:].sum(axis=1), 1)


def test_without_a_condition_the_law_stays():
    assert_allclose(joint(LAW.restricted({})), joint(LAW))


def test_an_impossible_condition_has_no_law():
    law = ProductMixture(LAW.domain, np.ones(1), np.array([[1.0, 0.0, 1e-10, 0.5, 0.5 - 1e-10]]))
    assert law.restricted({0: np.array([0, 1])}) is None
    assert law.restricted({1: np.array([1, 0, 0])}) is None
    assert law.restricted({1: np.array([0, 1e-10, 0])}) is None
    assert law.restricted({0: np.array([1, 0])}) is not None


# Listed values.


def test_values_of_conditions():
    given = {"age": [30, np.int64(99)], "pay": [0.3, None], "job": "nurse", "day": [DAY]}
    found = read_conditions(ENCODER, given)
    assert {name: list(condition.codes) for name, condition in found.items()} == {
        "age": [1, 3],
        "pay": [1, 4],
        "job": [1],
        "day": [0],
    }
    for name, condition in found.items():
        assert condition.values.dtype == ENCODER.dtypes_[name]
        assert_array_equal(condition.weights, 1)
    assert list(found["age"].values) == [30, 99]
    assert_allclose(found["pay"].values, [0.3, np.nan])
    assert list(found["day"].values) == [DAY]
    aware = read_conditions(ENCODER, {"day": DAY.tz_localize("UTC")})
    assert list(aware["day"].values) == [DAY]
    assert read_conditions(ENCODER, None) == read_conditions(ENCODER, {}) == {}


@pytest.mark.parametrize(
    ("conditions", "message"),
    [
        ({"salary": 3}, "'salary'"),
        ({"age": 101}, "'age' must hold declared values"),
        ({"age": -1}, "'age'"),
    ]
    + [({"age": 30.5}, "'age'"), ({"age": "old"}, "'age'"), ({"age": None}, "'age'")]
    + [
        ({"job": "pilot"}, "'job'"),
        ({"job": []}, "'job' must list at least one value"),
        ({"age": [3, 101]}, "'age'"),
        ({"age": [between(0, 9), 101]}, "'age' must hold declared values"),
    ]
    # A range to some, two values to others.
    + [
        ({"age": (20, 50)}, r"'age' must not be a tuple.*pandas\.Interval"),
        ({"job": ("nurse",)}, "tuple"),
    ]
    + [
        ({"day": DAY + pd.Timedelta(12, "h")}, "'day'"),
        ({"day": pd.Timestamp("2031-01-01")}, "'day'"),
    ]
    + [({"pay": np.inf}, "'pay'"), (["job"], "map columns to values")],
    ids=str,
)
def test_conditions_that_nothing_declares(conditions, message):
    with pytest.raises(ValueError, match=message):
        read_conditions(ENCODER, conditions)


# Intervals: which values are inside.


def encoder_of(column, bins):
    return TabularEncoder(Schema({"x": column}), n_bins={"x": bins}).fit()


def condition(encoder, given):
    return read_conditions(encoder, {"x": given})["x"]


def decoded(encoder, places):
    return encoder.columns_["x"].decode_places(np.asarray(places))


def inside(found):
    """All values in the parts of a condition."""
    places = [np.arange(*ends) for ends in zip(found.starts, found.stops, strict=True)]
    return found.column.decode_places(np.concatenate(places))


ENDS = [-np.inf, -1, 0, 0.5, 3, 4, 7.5, 9, 11, np.inf]


@every_closed
def test_integers_in_intervals(closed):
    encoder = encoder_of(Numeric(0, 9, integer=True), [0, 1, 4, 9])
    sizes, codes = np.array([1, 3, 6]), np.repeat([0, 1, 2], [1, 3, 6])
    n_found = 0
    for left in ENDS:
        for right in ENDS[ENDS.index(left) :]:
            interval = between(left, right, closed)
            expected = [value for value in range(10) if value in interval]
            if not expected:
                with pytest.raises(ValueError, match="'x' must hold intervals that contain"):
                    condition(encoder, interval)
                continue
            found = condition(encoder, interval)
            assert inside(found).tolist() == expected
            n_inside = np.bincount(codes[expected], minlength=3)
            assert_allclose(found.shares(), n_inside / sizes, rtol=1e-15)
            n_found += 1
    assert n_found > 20


def dense(encoder, code, n=4001):
    """Values of a bin as they are drawn without a condition, at even shares."""

    class Shares:
        def uniform(self, size):
            return (np.arange(size) + 0.5) / size

    block = np.zeros((n, encoder.domain_.n_features))
    block[:, code] = 1
    return encoder.inverse_transform(block, rng=Shares())["x"]


LONG = Datetime("0500-01-01", "2500-01-01", resolution="us")
LEAVES = bin_column("x", Numeric(0, 10), 2**17)
POINTS = LEAVES.merged([0, 32768, 32769, 65536, 65537])


def stamps(*texts, tz=None):
    return tuple(pd.Timestamp(text, tz=tz) for text in texts)


CASES = {
    "floats": (Numeric(0, 1), 4, (0.1, 0.6)),
    "with nulls": (Numeric(-2, 1, nullable=True), 4, (-0.3, np.inf)),
    "decimals": (Numeric(0, 1, step=0.1), 3, (0.3, 0.7)),
    "nullable integers": (Numeric(0, 20, integer=True, nullable=True), 4, (2, 5)),
    "points": (Numeric(0, 10), POINTS, (2.5, 5)),
    "days": (SCHEMA["day"], 4, stamps("2020-02-01", "2020-08-01")),
    "aware ends": (SCHEMA["day"], 4, stamps("2020-02-01", "2020-08-01", tz="Asia/Tokyo")),
    "aware days": (replace(SCHEMA["day"], zone="Asia/Tokyo"), 4, stamps("2020-02-01", "2020-03")),
    "seconds": (Datetime("2020-01-01", "2020-01-02"), 4, stamps("1999", "2020-01-01 07:00")),
    "a grid beyond float64": (LONG, 4, stamps("0700", "2020")),
    "a fine grid": (Numeric(0, 2**53, integer=True), 3, (2**50, 2.0**52)),
    "tiny numbers": (Numeric(0, 1e-300), 4, (1e-301, np.inf)),
    "huge numbers": (Numeric(-8e307, 8e307), 4, (-np.inf, 1e307)),
}


@every_closed
@pytest.mark.parametrize("name", CASES)
def test_shares_are_those_of_the_values_that_are_drawn(name, closed):
    column, bins, ends = CASES[name]
    encoder = encoder_of(column, bins)
    binned, interval = encoder.columns_["x"], between(*ends, closed)
    found = condition(encoder, interval)
    aware = isinstance(column, Datetime)
    if aware:
        interval = between(
            *(pd.Timestamp(e) if e.tz else e.tz_localize("UTC") for e in ends), closed
        )

    def is_in(series):
        series = pd.to_datetime(series, utc=True) if aware else series
        return np.array([value in interval for value in series.array])

    shares = [is_in(dense(encoder, code)).mean() for code in range(binned.n_bins)]
    assert_allclose(found.shares()[: binned.n_bins], shares, atol=5e-3)
    # To the last place.
    for start, stop in zip(found.starts, found.stops, strict=True):
        assert is_in(decoded(encoder, [start, stop - 1])).all()
    edges = [p for p in (found.starts[0] - 1, found.stops[-1]) if 0 <= p < binned.n_places]
    assert len(edges) == 0 or not is_in(decoded(encoder, edges)).any()
    drawn = found.draw(np.resize(found.codes, 500), np.random.default_rng(0))
    assert drawn.dtype == encoder.dtypes_["x"]
    assert is_in(drawn).all()


@every_closed
def test_points_are_in_or_out(closed):
    encoder = encoder_of(Numeric(0, 10), POINTS)
    for left, right in ((2.5, 5), (2.5, 2.5), (5, 10), (2.4, 5), (2.50001, 5.00001)):
        interval = between(left, right, closed)
        if interval.is_empty:
            continue
        shares = condition(encoder, interval).shares()
        assert_array_equal(shares[[1, 3]], [2.5 in interval, 5.0 in interval])
    only = condition(encoder, between(2.5, 2.5))
    assert set(only.draw(np.ones(9, dtype=int), np.random.default_rng(0))) == {2.5}
    # An interval in a point bin, beside the point.
    with pytest.raises(ValueError, match="'x' must hold intervals that contain"):
        condition(encoder, between(2.50001, 2.50005))


@pytest.mark.slow
def test_many_intervals_on_any_column():
    """Bisection ends, and draws stay inside."""
    rng = np.random.default_rng(0)
    n_found = 0
    for name, (column, bins, _) in CASES.items():
        if isinstance(column, Datetime):
            continue
        encoder = encoder_of(column, bins)
        low, high = float(column.low), float(column.high)
        ends = low + rng.uniform(-0.1, 1.1, size=(20, 2)) * (high - low)
        ends = np.sort(np.where(rng.uniform(size=(20, 2)) < 0.3, np.round(ends), ends), axis=1)
        for left, right in ends.tolist():
            interval = between(left, right, CLOSED[rng.integers(4)])
            try:
                found = condition(encoder, interval)
            except ValueError as error:
                assert "contain a declared value" in str(error)  # noqa: PT017
                continue
            drawn = found.draw(np.resize(found.codes, 50), rng)
            assert all(value in interval for value in drawn.array), name
            n_found += 1
    assert n_found > 100


# Intervals and values together.

COUNTS = encoder_of(Numeric(0, 9, integer=True, nullable=True), [0, 1, 4, 9])


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        # By value, in the shares of its bin: {0}, {1, 2, 3}, {4, ..., 9}, null.
        ([between(2, 5)], {2: 1 / 3, 3: 1 / 3, 4: 1 / 6, 5: 1 / 6}),
        ([between(2, 4), between(3, 5)], {2: 1 / 3, 3: 1 / 3, 4: 1 / 6, 5: 1 / 6}),
        ([between(8, 9), between(0, 0), between(2, 9, "neither")], {0: 1, 3: 1 / 3}),
        ([between(2, 5), between(3, 4), 3, 4], {2: 1 / 3, 3: 1 / 3, 4: 1 / 6, 5: 1 / 6}),
        # A value outside stands for what is left of its bin, and two share it.
        ([between(2, 5), 1], {2: 1 / 3, 3: 1 / 3, 1: 1 / 3, 4: 1 / 6, 5: 1 / 6}),
        ([between(5, 9), 2, 3, 0], {2: 1 / 2, 3: 1 / 2, 0: 1}),
        ([between(8, 9), 4, 5], {4: 1 / 3, 5: 1 / 3, 8: 1 / 6, 9: 1 / 6}),
        ([between(8, 9), None, 2], {-1: 1, 2: 1, 8: 1 / 6, 9: 1 / 6}),
        ([3, 3, 2, None], {3: 2 / 3, 2: 1 / 3, -1: 1}),
    ],
    ids=str,
)
def test_unions(given, expected):
    expected = dict(expected)
    for value in range(4, 10):
        if any(isinstance(v, pd.Interval) and value in v for v in given):
            expected[value] = 1 / 6
    found = condition(COUNTS, given)
    bins = [[0], [1, 2, 3], [4, 5, 6, 7, 8, 9], [-1]]
    shares = found.shares()
    assert_allclose(shares, [sum(expected.get(v, 0) for v in part) for part in bins], atol=1e-15)
    wanted = np.flatnonzero(shares)
    drawn = found.draw(np.repeat(wanted, 3000), np.random.default_rng(0)).fillna(-1)
    for code, values in zip(wanted, drawn.to_numpy().reshape(-1, 3000), strict=True):
        law = {v: p / shares[code] for v, p in expected.items() if v in bins[code]}
        assert set(values) == set(law)
        counts = [(values == v).sum() for v in law]
        assert len(law) == 1 or chisquare(counts, 3000 * np.array(list(law.values()))).pvalue > 1e-3


def test_a_value_in_a_bin_of_numbers_beside_an_interval():
    found = condition(encoder_of(Numeric(0, 1), 4), [between(0.1, 0.2), 0.01, 0.6])
    assert_allclose(found.shares(), [1, 0, 1, 0])
    drawn = found.draw(np.zeros(8000, dtype=int), np.random.default_rng(0))
    assert set(drawn[(drawn < 0.1) | (drawn > 0.2)]) == {0.01}
    # 0.1 of 0.25 is inside.
    assert abs((drawn == 0.01).mean() - 0.6) < 5 * np.sqrt(0.24 / 8000)


def test_null_is_in_no_interval():
    for given, null in (([between(-np.inf, np.inf)], 0), ([between(0, 1), np.nan], 1)):
        found = read_conditions(ENCODER, {"pay": given})["pay"]
        assert_array_equal(found.shares(), [1, 1, 1, 1, null])
        drawn = found.draw(np.resize(np.arange(4 + null), 500), np.random.default_rng(0))
        assert drawn.isna().sum() == null * 100
    aware = Datetime("2020-01-01", "2020-12-31", resolution="D", nullable=True)
    found = condition(encoder_of(aware, 4), [between(DAY, DAY), None])
    assert list(found.draw(np.array([0, 4]), np.random.default_rng(0))) == [DAY, pd.NaT]


def test_intervals_of_ordinals():
    for interval, labels in (
        (between(1, 4, "left"), [1, 2.5]),
        (between(1, np.inf, "neither"), [4, 2.5]),
        (pd.arrays.IntervalArray.from_tuples([(0, 1), (2, 2.6)]), [1, 2.5]),
        ([between(3, 5), 1, None], [1, None, 4]),
    ):
        found = read_conditions(ENCODER, {"level": interval})["level"]
        assert_array_equal(found.values.astype(float), np.array(labels, dtype=float))
        codes = [{4: 0, 1: 1, 2.5: 2, None: 3}[label] for label in labels]
        assert_array_equal(found.codes, codes)
        assert_array_equal(np.flatnonzero(found.shares()), np.sort(codes))


MISSED = "must hold intervals that contain a declared value"


@pytest.mark.parametrize(
    ("name", "given", "message"),
    [("age", between(101, np.inf), MISSED), ("age", between(3.1, 3.9), MISSED)]
    + [("age", between(5, 5, "left"), MISSED), ("age", [3, between(-9, 0, "left")], MISSED)]
    + [("pay", between(-1, -1e-9), MISSED), ("pay", between(0.5, 0.5, "neither"), MISSED)]
    + [("level", between(1, 2.5, "neither"), MISSED), ("level", between(5, 9), MISSED)]
    + [("day", between(*stamps("2021", "2022")), MISSED)]
    + [
        ("job", between(0, 1), "must list categories, got an interval"),
        ("grade", between(0, 1), "must list categories, got an interval"),
    ]
    + [("age", between(*stamps("2020", "2021")), "must hold intervals of numbers")]
    + [("level", between(*stamps("2020", "2021")), "must hold intervals of numbers")]
    + [("age", between(pd.Timedelta(0), pd.Timedelta(9)), "must hold intervals of numbers")]
    + [("day", between(0, 1), "must hold intervals of dates")]
    + [("day", between(pd.Timedelta(0), pd.Timedelta(9)), "must hold intervals of dates")],
    ids=str,
)
def test_intervals_that_cannot_be(name, given, message):
    with pytest.raises(ValueError, match=f"conditions on '{name}' .*{message}"):
        read_conditions(ENCODER, {name: given})


def test_code_states_dates_and_numbers_whatever_the_format_of_files():
    day = Datetime("2020-01-01", "2024-12-31", format="%d/%m/%Y")
    cost = Numeric(0, 5000, step=0.5, decimal=",", currency="€")
    encoder, plain = (
        SimpleNamespace(columns_={"day": bin_column("day", d, 5), "cost": bin_column("cost", c, 5)})
        for d, c in ((day, cost), (day.plain, cost.plain))
    )
    given = {"day": ["2020-03-02", pd.Timestamp("2024-01-01")], "cost": [12.5]}
    for name, found in read_conditions(encoder, given).items():
        expected = read_conditions(plain, given)[name]
        assert_array_equal(found.codes, expected.codes)
        assert found.values.tolist() == expected.values.tolist()
    for wrong in ({"day": "02/03/2020"}, {"cost": "€ 12,50"}):
        with pytest.raises(PublicValueError, match=next(iter(wrong))):
            read_conditions(encoder, wrong)
