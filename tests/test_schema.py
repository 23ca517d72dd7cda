import copy
import datetime
import math
import pickle
import tracemalloc
from decimal import Decimal
from fractions import Fraction
from itertools import pairwise

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import kstest

from sklearn_dpgen.domains import Box, OneHot, Product
from sklearn_dpgen.schema import Categorical, Datetime, Numeric, Ordinal, Schema, _binned
from sklearn_dpgen.schema._binned import bin_column

reproducibly = settings(deadline=None, max_examples=60, derandomize=True)

SCHEMA = Schema(
    {
        "age": Numeric(0, 120, integer=True),
        "income": Numeric(-10.0, 1e6, step=0.5, nullable=True),
        "sex": Categorical(["f", "m", "yes", "1e5", "é\n"]),
        "flag": Categorical([False, True], nullable=True),
        "code": Categorical([1, 2.5, "a", False]),
        "level": Ordinal([1, 2, 3]),
        "day": Datetime("2020-01-01", "2024-12-31", resolution="D", nullable=True),
        "moment": Datetime("2020-01-01T00:00:00.25", "2021-01-01", resolution="ms"),
    }
)


def stamps(*dates):
    return pd.Series(np.array(dates, dtype="datetime64[us]"))


def labels():
    label = st.one_of(
        st.booleans(), st.integers(), st.floats(allow_nan=False, allow_infinity=False), st.text()
    )
    return st.lists(label, min_size=2, max_size=5, unique=True)


def numerics():
    whole = st.tuples(st.integers(-(2**40), 2**40), st.integers(1, 2**40)).map(
        lambda pair: Numeric(pair[0], sum(pair), integer=True)
    )
    real = st.builds(
        lambda low, width, null: Numeric(low, low + width, nullable=null),
        st.floats(-1e6, 1e6),
        st.floats(1e-3, 1e6),
        st.booleans(),
    )
    return st.one_of(whole, real)


def columns():
    return st.one_of(
        numerics(),
        st.builds(Categorical, labels(), nullable=st.booleans()),
        st.builds(Ordinal, labels(), nullable=st.booleans()),
    )


@reproducibly
@given(st.dictionaries(st.text(), columns(), min_size=1, max_size=4))
def test_files_are_lossless(declared):
    schema = Schema(declared)
    for copied in (
        Schema.from_dict(schema.to_dict()),
        Schema.from_json(schema.to_json()),
        Schema.from_yaml(schema.to_yaml()),
        copy.deepcopy(schema),
        pickle.loads(pickle.dumps(schema)),
    ):
        # The representation tells True, 1 and 1.0 apart, which compare equal.
        assert repr(copied) == repr(schema)
        assert copied == schema
        assert hash(copied) == hash(schema)


def test_files_keep_dates():
    for copied in (Schema.from_json(SCHEMA.to_json()), Schema.from_yaml(SCHEMA.to_yaml())):
        assert repr(copied) == repr(SCHEMA)
    bare = "day: {type: datetime, low: 2020-01-01, high: 2024-12-31, resolution: D, nullable: true}"
    assert Schema.from_yaml(bare)["day"] == SCHEMA["day"]


def test_a_schema_is_an_ordered_mapping():
    assert list(SCHEMA)[:3] == ["age", "income", "sex"]
    assert len(SCHEMA) == 8
    assert SCHEMA["age"] == Numeric(0, 120, integer=True)
    assert dict(SCHEMA) == dict(SCHEMA.items())
    a, b = Numeric(0, 1), Numeric(0, 2)
    assert Schema({"a": a, "b": b}) != Schema({"b": b, "a": a})
    assert Schema({"a": a}) != {"a": a}


def test_the_domain_is_the_product_of_the_columns():
    interval = Box(-1, 1)
    assert SCHEMA["age"].domain == interval
    assert SCHEMA["income"].domain == Product([interval, OneHot(2)])
    assert SCHEMA["sex"].domain == OneHot(5)
    assert SCHEMA["flag"].domain == OneHot(3)
    assert SCHEMA.domain == Product([column.domain for column in SCHEMA.values()])
    assert SCHEMA.blocks["flag"] == slice(9, 12)
    assert len(SCHEMA.feature_names) == SCHEMA.domain.n_features
    assert SCHEMA.feature_names[:5] == [
        "age",
        "income",
        "income=<present>",
        "income=<null>",
        "sex=f",
    ]


def test_numbers_are_scaled_by_their_bounds_and_clipped():
    column = Numeric(0, 10)
    values = pd.Series([0, 5, 10, -1, np.inf, -np.inf])
    np.testing.assert_array_equal(column.encode(values), [[-1], [0], [1], [-1], [1], [-1]])
    nullable = Numeric(0, 10, nullable=True)
    np.testing.assert_array_equal(nullable.encode(pd.Series([10, None])), [[1, 1, 0], [0, 0, 1]])


@reproducibly
@given(numerics(), st.lists(st.floats(0, 1), min_size=1, max_size=5), st.data())
def test_numbers_round_trip(column, fractions, data):
    values = column.low + np.array(fractions) * (column.high - column.low)
    values = pd.Series(np.rint(values) if column.integer else values).clip(column.low, column.high)
    if column.nullable:
        values[data.draw(st.integers(0, len(values) - 1))] = np.nan
    encoded = column.encode(values)
    assert column.domain.contains(encoded, tol=0).all()
    decoded = column.decode(encoded)
    tolerance = 0 if column.integer else 1e-14 * max(abs(column.low), abs(column.high))
    np.testing.assert_allclose(decoded, values, rtol=0, atol=tolerance)


def test_decoding_rounds_to_the_grid_and_stays_in_bounds():
    tenths = np.arange(-50, 51) / 10
    column = Numeric(-5, 5, step=0.1)
    assert column.decode(column.encode(pd.Series(tenths))).tolist() == tenths.tolist()
    noisy = np.linspace(-3, 3, 1001)[:, None]
    assert set(column.decode(noisy)) == set(tenths)
    assert set(Numeric(0, 9, step=3, integer=True).decode(noisy)) == {0, 3, 6, 9}
    narrow = Numeric(0.5, 2.5).decode(noisy, dtype=np.dtype(np.int8))
    assert set(narrow) == {1, 2}
    assert Numeric(0, 1).decode(np.array([[2.0], [-2.0]])).tolist() == [1, 0]


def test_the_affine_pair_neither_clips_nor_rounds():
    column = Numeric(10, 20, integer=True)
    assert column.to_unit(np.array([10, 15.5, 40])).tolist() == pytest.approx([-1, 0.1, 5])
    assert column.from_unit(np.array([-1, 0.1, 5])).tolist() == pytest.approx([10, 15.5, 40])
    dates = Datetime("2020-01-01", "2020-01-03")
    assert dates.from_unit([-1, 0, 3]).tolist() == [
        datetime.datetime(2020, 1, day) for day in (1, 2, 5)
    ]
    units = np.array([-7, 0.123456, 12])
    np.testing.assert_allclose(dates.to_unit(dates.from_unit(units)), units, atol=1e-10)
    assert np.isnat(dates.from_unit([1e30, -np.inf, np.nan])).tolist() == [False, False, True]
    assert np.isnan(dates.to_unit(np.array(["NaT"], dtype="datetime64[s]"))).all()


@pytest.mark.parametrize("dtype", ["datetime64[s]", "datetime64[us]", "datetime64[ns]", object])
def test_dates_round_trip(dtype):
    column = Datetime("1950-01-01", "2024-12-31", resolution="h", nullable=True)
    values = stamps("1950-01-01", "1999-05-17T13:00", "2024-12-31", "NaT")
    decoded = column.decode(column.encode(values.astype(dtype)))
    assert decoded.dtype == "datetime64[us]"
    assert decoded.tolist() == values.tolist()
    late = stamps("2030-01-01", "2000-01-01T00:31")
    expected = stamps("2024-12-31", "2000-01-01T01:00")
    assert column.decode(column.encode(late)).tolist() == expected.tolist()


def test_dates_with_a_zone_are_compared_in_utc():
    column = Datetime("2020-01-01", "2021-01-01")
    values = stamps("2020-07-01T12:00").dt.tz_localize("Europe/Paris")
    np.testing.assert_array_equal(column.encode(values), column.encode(stamps("2020-07-01T10:00")))
    decoded = column.decode(column.encode(values), dtype=values.dtype)
    assert decoded.dtype == values.dtype
    assert decoded.tolist() == values.tolist()
    shifted = Datetime(pd.Timestamp("2020-01-01T02:00", tz="Etc/GMT-2"), "2021-01-01")
    assert shifted == column


def test_date_objects_are_dates():
    column = Datetime("2020-01-01", "2020-01-31", resolution="D")
    values = pd.Series([datetime.date(2020, 1, 5), datetime.date(2020, 1, 31)], dtype=object)
    decoded = column.decode(column.encode(values), dtype=values.dtype)
    assert decoded.dtype == object
    assert [value.date() for value in decoded] == values.tolist()


@reproducibly
@given(labels(), st.booleans(), st.data())
def test_labels_round_trip(choices, nullable, data):
    column = data.draw(st.sampled_from([Categorical, Ordinal]))(choices, nullable=nullable)
    options = [*choices, None] if nullable else choices
    drawn = data.draw(st.lists(st.sampled_from(options), min_size=1, max_size=6))
    values = pd.Series(drawn, dtype=object)
    encoded = column.encode(values)
    assert column.domain.contains(encoded, tol=0).all()
    np.testing.assert_array_equal(encoded.argmax(axis=1), [options.index(v) for v in drawn])
    decoded = column.decode(encoded)
    assert decoded.isna().tolist() == values.isna().tolist()
    assert decoded[decoded.notna()].tolist() == values[values.notna()].tolist()
    soft = encoded + np.linspace(-0.4, 0.4, encoded.shape[1])
    assert column.decode(soft).isna().tolist() == values.isna().tolist()


@pytest.mark.parametrize(
    ("column", "values", "dtypes", "expected"),
    [
        (Categorical(["b", "a"]), ["a", "b", "a"], [object, "str", "string"], [1, 0, 1]),
        (Categorical(["b", "a"], nullable=True), ["a", None], [object, "str", "category"], [1, 2]),
        (
            Ordinal([2, 0, 1.5]),
            [0, 2],
            ["i1", "u8", "f2", "f4", "f8", "g", object, "Int8", "Float64", "category"],
            [1, 0],
        ),
        (Ordinal([2, 0], nullable=True), [0, None], ["f8", object, "Int8", "category"], [1, 2]),
        (Categorical([True, False]), [0, 1], [bool, "boolean", "i8", "f8", "category"], [1, 0]),
        (Categorical([1, "a", False]), ["a", 1.0, 0, True], [object, "category"], [1, 0, 2, 0]),
        (
            bin_column("x", Numeric(0, 9), [0, 1, 9]),
            [-5, 1, 9, 50],
            ["i8", "f4", "Int8"],
            [0, 1, 1, 1],
        ),
        (
            bin_column("x", Numeric(0, 8, nullable=True), 4),
            [2, None],
            ["f8", "Int8", object],
            [1, 4],
        ),
    ],
)
def test_codes_of_containers(column, values, dtypes, expected):
    for dtype in dtypes:
        series = pd.Series(values, dtype=dtype)
        codes = column.codes(series)
        assert codes.dtype == np.int64
        assert codes.tolist() == expected
        assert column.codes(series[:0]).shape == (0,)
        np.testing.assert_array_equal(
            column.encode(series), np.eye(column.domain.n_features)[codes]
        )


def test_codes_of_large_numbers_are_exact():
    column = Categorical([2**53, 2**53 + 1])
    for dtype in ("int64", "uint64", "Int64", object, "category"):
        assert column.codes(pd.Series([2**53 + 1, 2**53]).astype(dtype)).tolist() == [1, 0]
    almost = pd.Series(1 + np.array([np.finfo("g").eps], dtype="g"))
    with pytest.raises(ValueError, match="outside"):
        Categorical([0, 1]).codes(almost)


def test_categories_that_do_not_occur_need_not_be_declared():
    column = Ordinal(["low", "mid", "high"])
    dtype = pd.CategoricalDtype(["secret", "high", "low"])
    assert column.codes(pd.Series(["low", "high"], dtype=dtype)).tolist() == [0, 2]
    with pytest.raises(ValueError, match="'x' holds a value outside") as caught:
        column.codes(pd.Series(["low", "secret"], dtype=dtype, name="x"))
    assert "secret" not in str(caught.value)


@reproducibly
@given(
    st.one_of(
        st.integers(2, 2000),
        st.lists(st.floats(0.001, 0.999), min_size=1, max_size=9, unique=True).map(
            lambda inner: [0, *sorted(inner), 1]
        ),
    ),
    st.integers(0, 2**32 - 1),
)
def test_bins_hold_their_lower_edge(bins, seed):
    try:
        column = bin_column("x", Numeric(0, 1), bins)
    except ValueError:  # edges that are one on the unit scale
        return
    edges = np.asarray(column.edges)
    at = (edges + 1) / 2
    random = np.random.default_rng(seed).uniform(-0.1, 1.1, 200)
    values = np.concatenate([at, np.nextafter(at, -1), np.nextafter(at, 2), random])
    unit = column.column.encode(values)[:, 0]
    expected = np.minimum(np.searchsorted(edges, unit, side="right"), column.n_bins) - 1
    np.testing.assert_array_equal(column.codes(values), expected)


def every_grid_value(n_steps):
    return 2 * np.arange(n_steps + 1) / n_steps - 1


@reproducibly
@given(st.integers(1, 3000), st.integers(0, 2**32 - 1))
def test_the_grid_is_found_as_by_search(n_steps, seed):
    rng = np.random.default_rng(seed)
    grid = every_grid_value(n_steps)
    near = np.concatenate([grid, _binned._grid(n_steps, np.arange(1, n_steps + 1) - 0.5)])
    edges = np.concatenate(
        [near, np.nextafter(near, -2), np.nextafter(near, 2), rng.uniform(-1, 1, 200)]
    )
    edges = edges[(edges >= -1) & (edges <= 1)]
    found = _binned._first_at_or_above(n_steps, edges)
    np.testing.assert_array_equal(found, np.searchsorted(grid, edges, side="left"))


@pytest.mark.parametrize("n_steps", [10**6, 31_622_400_000_000, 2**52 + 1, 2**53 - 1, 2**53])
def test_the_finest_grids_are_found(n_steps):
    k = np.random.default_rng(0).integers(1, n_steps, 2000, endpoint=True)
    grid = 2 * k / n_steps - 1
    np.testing.assert_array_equal(_binned._first_at_or_above(n_steps, grid), k)
    below, above = np.nextafter(grid, -2), np.nextafter(grid[k < n_steps], 2)
    np.testing.assert_array_equal(_binned._first_at_or_above(n_steps, below), k)
    np.testing.assert_array_equal(_binned._first_at_or_above(n_steps, above), k[k < n_steps] + 1)
    # Without a look at the neighbours, rounding decides.
    edges = np.concatenate([below, grid, above])
    found = _binned._first_at_or_above(n_steps, edges)
    assert (np.ceil((edges + 1) / 2 * n_steps) != found).any()


@reproducibly
@given(st.integers(1, 2**52), st.integers(2, 300))
def test_equal_bins_share_a_grid_evenly(n_steps, n_bins):
    column = bin_column("x", Numeric(0, n_steps, integer=True), n_bins)
    n_bins = min(n_bins, n_steps + 1)
    expected = [-(-i * (n_steps + 1) // n_bins) for i in range(n_bins + 1)]
    assert column._grid_starts.tolist() == expected
    assert column.codes(pd.Series(expected[:-1])).tolist() == list(range(n_bins))
    assert column.codes(pd.Series(expected[1:]) - 1).tolist() == list(range(n_bins))


FINE = {
    "interval": Numeric(-3, 11),
    "integers": Numeric(0, 10**9, integer=True),
    "few integers": Numeric(-(2**16), 2**16 - 1, integer=True),
    "decimals": Numeric(-5000, 5000, step=0.1, nullable=True),
    "seconds": Datetime("1924-01-01", "2024-01-01", resolution="s"),
    "microseconds": Datetime("2023-01-01", "2024-01-01", resolution="us", nullable=True),
    "finer than floats": Datetime("0800-01-01", "2024-01-01", resolution="us"),
}


@pytest.mark.parametrize("column", FINE.values(), ids=FINE)
def test_many_bins_take_memory_in_proportion(column):
    n_bins = 2**17
    n_values = n_bins if column.n_steps is None else min(n_bins, column.n_steps + 1)
    rng = np.random.default_rng(0)
    values = column.decode(np.column_stack([np.append(rng.uniform(-1, 1, 97), [-1, 1])] * 3))
    tracemalloc.start()
    binned = bin_column("x", column, n_bins)
    codes = binned.codes(values)
    merged = binned.merged([0, *sorted({*codes.tolist()} - {0})])
    decoded = merged.decode(merged.encode(values), rng=rng)
    encoded = binned.encode(values[:2])
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert binned.n_bins == n_values
    assert codes[-2:].tolist() == [0, n_values - 1]
    assert encoded.argmax(axis=1).tolist() == codes[:2].tolist()
    np.testing.assert_array_equal(merged.codes(decoded), merged.codes(values))
    assert peak < 150 * n_bins


class Shares:
    """In the place of a generator: each share once for each of the codes."""

    def __init__(self, shares):
        self.shares = shares

    def uniform(self, size):
        assert size == len(self.shares)
        return self.shares


def grid_values(column):
    """All values of a column on a grid."""
    unit = every_grid_value(column.n_steps)
    return column.decode(np.column_stack([unit, np.ones_like(unit), np.zeros_like(unit)]))


GRIDS = {
    "integers": Numeric(-7, 40, integer=True),
    "decimals": Numeric(-0.7, 4, step=0.1, nullable=True),
    "far decimals": Numeric(1e5, 1e5 + 4.7, step=0.1),
    "days": Datetime("1600-01-01", "1600-02-17", resolution="D", nullable=True),
    "hours": Datetime("2023-12-31T01:00", "2024-01-02", resolution="h"),
}


def values_of_bins(binned):
    """Return what equal shares of each bin decode to, in order: as many as it has grid values."""
    values, n_columns, found = grid_values(binned.column), binned.n_bins + binned.nullable, []
    stops = np.cumsum(np.bincount(binned.codes(values), minlength=binned.n_bins))
    for code, (start, stop) in enumerate(pairwise([0, *stops.tolist()])):
        size = stop - start
        block = np.tile(np.eye(n_columns)[code], (3 * size, 1))
        shares = np.concatenate([np.arange(size) + part for part in (1e-9, 0.5, 1 - 1e-9)])
        found.append(binned.decode(block, rng=Shares(shares / size)).to_numpy().reshape(3, size))
    return np.hstack(found)


@pytest.mark.parametrize("column", GRIDS.values(), ids=GRIDS)
def test_merged_bins_hold_the_values_of_their_bins_evenly(column):
    leaves = bin_column("x", column, 2**17)
    values = grid_values(column)
    assert leaves.n_bins == 48
    np.testing.assert_array_equal(leaves.codes(values), np.arange(48))
    rng = np.random.default_rng(0)
    for starts in ([0], [0, 1], [0, 7, 8, 9, 30, 47], np.arange(48), [0, *range(2, 48, 3)]):
        merged = leaves.merged(starts)
        assert merged.column == column
        assert merged.n_bins == len(starts)
        # An atom too: a bin of a single value decodes to exactly this one.
        np.testing.assert_array_equal(values_of_bins(merged), [values] * 3)
        expected = np.searchsorted(starts, np.arange(48), side="right") - 1
        np.testing.assert_array_equal(merged.codes(values), expected)
        codes = np.repeat(np.arange(len(starts)), 20)
        block = np.eye(merged.n_bins + merged.nullable)[codes]
        np.testing.assert_array_equal(merged.codes(merged.decode(block, rng=rng)), codes)
        np.testing.assert_array_equal(merged.codes(merged.decode(block)), codes)
    again = leaves.merged(range(0, 48, 2)).merged([0, 3, 4])
    assert again == leaves.merged([0, 6, 8])
    if column.nullable:
        assert again.codes(pd.Series([None, values[0]], dtype=values.dtype)).tolist() == [3, 0]
        assert leaves.merged([0]).domain == OneHot(2)


def test_merged_intervals_keep_their_edges():
    leaves = bin_column("x", Numeric(0, 1), 2**17)
    starts = [0, 1, 5000, 2**17 - 1]
    merged = leaves.merged(np.array(starts))
    assert merged.edges == (*(leaves.edges[i] for i in starts), 1.0)
    assert leaves.merged([0]).edges == (-1.0, 1.0)


@pytest.mark.parametrize("starts", [[], [1, 2], [0, 2, 2], [0, 3, 1], [0, 4], [0.0, 1.0], [[0, 1]]])
def test_bad_starts_of_merged_bins(starts):
    with pytest.raises(ValueError, match="starts must"):
        bin_column("x", Numeric(0, 1), 4).merged(starts)


def decimal_edges_hold():
    """Whether decimals come back from the bins of which they are the lower edges."""
    rng = np.random.default_rng(0)
    for low in rng.integers(-100, 1_000_000, 100).tolist():
        bounds = [low / 10, (low + 40) / 10]
        edges = [bounds[0], *(np.arange(low + 1, low + 40) / 10).tolist(), bounds[1]]
        binned = bin_column("x", Numeric(*bounds, step=0.1), edges)
        codes = np.arange(40)
        for share in (0.0, 0.49, 0.5, 0.99):
            decoded = binned.decode(np.eye(40), rng=Shares(np.full(40, share)))
            if not (binned.codes(decoded) == codes).all():
                return False
        if not (binned.codes(pd.Series(edges[:-1])) == codes).all():
            return False
    return True


def test_decimal_edges_hold_the_value_that_they_name():
    assert decimal_edges_hold()


def test_edges_that_rounding_reaches_are_caught(monkeypatch):
    monkeypatch.setattr(_binned, "_below_rounding", lambda column, edges: edges)
    # Below an edge that is rounded up, a bin has none of its values left.
    with pytest.raises(ValueError, match="every bin must hold"):
        decimal_edges_hold()


REALS = {
    "unit": Numeric(0, 1),
    "nullable": Numeric(-7.3, 12.9, nullable=True),
    "large": Numeric(-1e6, 1e9),
    "negative": Numeric(-1e6, -10),
    "up to zero": Numeric(-5, 0),
    "small": Numeric(0, 3e-5),
    "far": Numeric(1e5, 1e5 + 1),
}


def bins_with_points(column, seed=0):
    """Return bins of which every other one or more is a single leaf of 131072."""
    n_leaves = 2**17
    leaves = bin_column("x", column, n_leaves)
    first = np.random.default_rng(seed).integers(1, n_leaves, size=60)
    round_numbers = leaves.codes(pd.Series([column.low, 0.0, 0.3, 1e5, column.high]))
    starts = np.concatenate([first, round_numbers, [n_leaves // 2, n_leaves // 2 - 1]])
    starts = np.unique(np.concatenate([[0], starts, starts + 1]))
    return leaves.merged(starts[starts < n_leaves])


def is_point(binned):
    """Whether each bin is narrower than 1/20000 of the range."""
    return np.diff(binned.edges) < 2 / 20_000


def fewest_decimals(binned, i):
    """Return how many decimals are enough for a number of a bin, by another search."""
    ends = [Fraction(float(end)) for end in binned.column.from_unit(np.array(binned.edges[i:][:2]))]
    for decimals in range(-10, 18):
        scale = Fraction(10) ** decimals
        lowest, highest = math.floor(ends[0] * scale), math.ceil(ends[1] * scale)
        numbers = [float(Fraction(m) / scale) for m in {*range(lowest, lowest + 3), highest}]
        inside = [n for n in numbers if binned.column.low <= n <= binned.column.high]
        if inside and (binned.codes(pd.Series(inside)) == i).any():
            return decimals
    return None


@pytest.mark.parametrize("column", REALS.values(), ids=REALS)
def test_a_narrow_bin_stands_for_its_roundest_number(column):
    binned = bins_with_points(column)
    codes = np.flatnonzero(is_point(binned))
    assert 60 < len(codes) < binned.n_bins
    block = np.eye(binned.n_bins + column.nullable)[codes]
    found = binned.decode(block, rng=np.random.default_rng(1))
    np.testing.assert_array_equal(binned.codes(found), codes)
    # Whatever the draw.
    for rng in (None, np.random.default_rng(2)):
        np.testing.assert_array_equal(binned.decode(block, rng=rng), found)
    for i, value in zip(codes[::3], found[::3], strict=True):
        decimals = fewest_decimals(binned, i)
        rounded = float(round(Decimal(value), decimals))
        assert value == pytest.approx(rounded, rel=1e-15)
        assert decimals <= 0 or value == round(value, decimals)
    assert not (np.signbit(found) & (found == 0)).any()


def single_leaves(column, values):
    """Return bins that hold a leaf of 131072 each, at the values, and what is between."""
    leaves = bin_column("x", column, 2**17)
    codes = leaves.codes(pd.Series(values, dtype=float))
    starts = np.unique(np.concatenate([[0], codes, codes + 1]))
    return leaves.merged(starts[starts < 2**17])


@pytest.mark.parametrize(
    ("column", "values"),
    [
        (Numeric(0, 1), [0, 0.3, 0.25, 0.9999, 1]),
        (Numeric(-5, 5), [-5, -2.5, -0.1, 0, 0.07, 4.2, 5]),
        (Numeric(-3, 0), [-3, -1, 0]),
        (Numeric(-9, -1), [-9, -2.5, -1]),
        (Numeric(0, 1e6), [0, 12_340, 50_000, 999_000, 1e6]),
        (Numeric(0.1, 0.7), [0.1, 0.2, 0.3, 0.6, 0.7]),
        (Numeric(-12.5, 99.9, nullable=True), [-12.5, 0, 1.25, 37.2, 99.9]),
    ],
    ids=str,
)
def test_atoms_come_back_as_they_are_written(column, values):
    binned = single_leaves(column, values)
    for dtype in ("float64", "Float64", "float32"):
        given = pd.Series(values, dtype=float).astype(dtype)
        decoded = binned.decode(binned.encode(given), dtype=given.dtype)
        # A column of floats that may hold nulls is one of float64, unless it is masked.
        is_wide = column.nullable and dtype == "float32"
        assert decoded.dtype == ("float64" if is_wide else dtype)
        np.testing.assert_array_equal(decoded.astype(given.dtype), given)
    # A value that nobody would write becomes the number near it that somebody would.
    odd = column.low + (column.high - column.low) / math.pi
    binned = single_leaves(column, [odd])
    found = float(binned.decode(binned.encode(pd.Series([odd])))[0])
    assert 0 < abs(found - odd) < 1e-5 * (column.high - column.low)
    assert len(repr(found)) < len(repr(odd))


def test_integer_containers_know_no_points(monkeypatch):
    column = Numeric(0, 1000)
    binned = bins_with_points(column)
    block = np.eye(binned.n_bins)
    with monkeypatch.context() as patch:
        patch.setattr(_binned, "_POINT", 0.0)
        bare = bins_with_points(column)
        plain = bare.decode(block, dtype=np.dtype("int64"), rng=np.random.default_rng(0))
        spread = bare.decode(block, rng=np.random.default_rng(0))
    found = binned.decode(block, dtype=np.dtype("int64"), rng=np.random.default_rng(0))
    assert found.dtype == "int64"
    np.testing.assert_array_equal(found, plain)
    # In a container of floats the points differ, and nothing else does.
    floats = binned.decode(block, rng=np.random.default_rng(0))
    assert (floats != spread)[is_point(binned)].mean() > 0.9
    np.testing.assert_array_equal(floats[~is_point(binned)], spread[~is_point(binned)])
    assert np.isnan(bin_column("day", FINE["seconds"], 2**17).merged([0, 1])._points).all()


@pytest.mark.parametrize(
    ("column", "value"),
    [(Numeric(0, 10**6, integer=True), 0), (Numeric(-(10**9), 10**9, integer=True), 50_000)]
    + [(Numeric(0, 1, step=1e-6), 0.3), (Numeric(0.5, 10**6 + 0.5, step=1), 7.5)],
    ids=str,
)
def test_narrow_bins_of_a_fine_grid_stand_for_one_of_its_values(column, value):
    leaves = bin_column("x", column, 2**17)
    (leaf,) = leaves.codes(pd.Series([value], dtype=np.float64))
    binned = leaves.merged(np.unique([0, leaf, leaf + 1]))
    (code,) = binned.codes(pd.Series([value], dtype=np.float64))
    rng, block = np.random.default_rng(0), np.eye(binned.n_bins)
    drawn = binned.decode(np.tile(block[code], (50, 1)), rng=rng)
    assert drawn.nunique() == 1
    assert (binned.codes(drawn) == code).all()
    if column.low != 0.5:
        assert drawn[0] == value
    # A bin of a single value has that one, and a wide one all of its own.
    single = bin_column("x", Numeric(0, 9, integer=True), 10)
    assert np.isnan(single._points).all()
    wide = binned.decode(np.tile(block[-1], (50, 1)), rng=rng)
    assert wide.nunique() > 40


@pytest.mark.parametrize("dtype", ["float64", "Float64"])
def test_nulls_are_kept_beside_points(dtype):
    column = Numeric(-1, 1, nullable=True)
    binned = single_leaves(column, [-1, 0.25])
    values = pd.Series([0.25, None, -1, None, 0.25, None], dtype=dtype)
    decoded = binned.decode(binned.encode(values), dtype=values.dtype, name="x")
    pd.testing.assert_series_equal(decoded, values.rename("x"))
    nulls = binned.decode(binned.encode(values[[1, 3]]), dtype=values.dtype)
    assert nulls.dtype == dtype
    assert nulls.isna().all()


def test_wide_bins_hold_values_evenly():
    binned = single_leaves(Numeric(0, 10), [2.5])
    widths, n_draws = np.diff(binned.edges), 2000
    assert (widths < 1e-4).tolist() == [False, True, False]
    # Just narrow enough to be a point, and just too wide.
    leaves = bin_column("x", Numeric(0, 10), 2**17)
    six, seven = (leaves.merged([0, 50_000, 50_000 + width]) for width in (6, 7))
    for part, code, n_values in ((binned, 0, n_draws), (binned, 2, n_draws), (six, 1, 1)):
        block = np.tile(np.eye(part.n_bins)[code], (n_draws, 1))
        values = part.decode(block, rng=np.random.default_rng(0))
        assert values.nunique() == n_values
        if n_values > 1:
            low, high = part.column.from_unit(np.array(part.edges[code : code + 2]))
            assert kstest(values, "uniform", (low, high - low)).pvalue > 1e-3
    block = np.tile(np.eye(3)[1], (n_draws, 1))
    assert seven.decode(block, rng=np.random.default_rng(0)).nunique() == n_draws


def test_a_round_lower_edge_stands_for_its_bin():
    missed = []
    for edge in (np.arange(1, 1000) / 10).tolist():
        bins = bin_column("x", Numeric(0, 1000), [0, edge, edge + 0.01, 1000])
        missed += [edge] if bins.decode(np.eye(3))[1] != edge else []
    for low in (np.arange(-3000, 3000) / 1000).tolist():
        bins = bin_column("x", Numeric(low, low + 1), [low, low + 1e-5, low + 1])
        missed += [low] if bins.decode(np.eye(2))[0] != low else []
    assert missed == []


def test_bins_of_an_equal_column_are_taken():
    def month(**params):
        return Datetime("2020-01-01", "2020-02-01", resolution="D", **params)

    binned = bin_column("day", month(nullable=True), 2**17).merged([0, 3, 4])
    assert bin_column("day", month(nullable=True), binned) is binned
    for other in (month(), Numeric(0, 1)):
        with pytest.raises(ValueError, match="'day': bins are those of another column"):
            bin_column("day", other, binned)


@pytest.mark.parametrize(
    ("column", "dtypes"),
    [
        (Categorical(["a", "b"]), {object: "object", "category": "category"}),
        (
            Categorical([0, 1]),
            {"int8": "int8", "float64": "float64", "bool": "bool", None: "int64"},
        ),
        (Categorical([0, 300]), {"int8": "int64", "int16": "int16"}),
        (Categorical([1, 2.5]), {"int64": "float64", "float64": "float64", None: "float64"}),
        (Categorical([1, "a"]), {"int64": "object", object: "object", None: "object"}),
        (Categorical([False, True]), {"bool": "bool", "boolean": "boolean", None: "bool"}),
        (
            Categorical([False, True], nullable=True),
            {"bool": "object", object: "object", "boolean": "boolean", None: "object"},
        ),
        (
            Ordinal([1, 2], nullable=True),
            {"int64": "float64", "float64": "float64", object: "float64", "Int64": "Int64"},
        ),
        (
            Numeric(0, 9, integer=True),
            {"int8": "int8", "Int8": "Int8", "float64": "int64", object: "object", None: "int64"},
        ),
        (Numeric(-1, 9, integer=True), {"uint8": "int64"}),
        (Numeric(0, 999, integer=True), {"int8": "int64"}),
        (Numeric(0, 9), {"int32": "int32", "float32": "float32", None: "float64"}),
        (Numeric(0.2, 0.7), {"int32": "float64"}),
        (
            Numeric(0, 9, nullable=True),
            {
                "int64": "float64",
                "float64": "float64",
                "float32": "float64",
                object: "float64",
                "Int64": "Int64",
                "Float64": "Float64",
            },
        ),
        (
            Datetime("2020-01-01", "2021-01-01"),
            {"datetime64[ns]": "datetime64[ns]", "datetime64[s]": "datetime64[s]", object: object},
        ),
        (Datetime("0800-12-25", "2021-01-01"), {"datetime64[ns]": "datetime64[us]"}),
        (Datetime("2020-01-01", "2021-01-01", nullable=True), {object: "datetime64[us]"}),
    ],
)
def test_containers(column, dtypes):
    ends = np.stack([-np.ones(column.domain.n_features), np.ones(column.domain.n_features)])
    for given_dtype, expected in dtypes.items():
        container = None if given_dtype is None else pd.Series([], dtype=given_dtype).dtype
        decoded = column.decode(ends, dtype=container, name="x", index=[7, 9])
        assert decoded.dtype == expected
        assert decoded.dtype == column.decoded_dtype(container)
        assert column.decoded_dtype(decoded.dtype) == decoded.dtype
        assert decoded.name == "x"
        assert decoded.index.tolist() == [7, 9]
        column.encode(decoded)


def test_string_containers_are_kept():
    column = Categorical(["a", "b"], nullable=True)
    default = pd.Series(["a"]).dtype
    for dtype in (pd.StringDtype(), default):
        decoded = column.decode(np.eye(3), dtype=dtype)
        assert decoded.dtype == dtype
        assert decoded.isna().tolist() == [False, False, True]
    assert column.decoded_dtype() == default
    # A chunk of nulls alone is read as floats.
    nulls = pd.Series([np.nan, np.nan], name="x")
    np.testing.assert_array_equal(column.encode(nulls), [[0, 0, 1]] * 2)
    assert column.decoded_dtype(nulls.dtype) == default


def test_masked_nan_is_a_null():
    zero = pd.Series([0.0, 1.0], dtype="Float64")
    values = pd.Series(zero / zero, name="x")
    encoded = Numeric(0, 1, nullable=True).encode(values)
    np.testing.assert_array_equal(encoded, [[0, 0, 1], [1, 1, 0]])


def test_declared_categories_replace_those_of_the_container():
    column = Ordinal(["low", "mid", "high"])
    container = pd.CategoricalDtype(["high", "low"])
    dtype = column.decoded_dtype(container)
    assert list(dtype.categories) == ["low", "mid", "high"]
    assert dtype.ordered
    assert not Categorical(["low", "high"]).decoded_dtype(container).ordered
    decoded = column.decode(np.eye(3), dtype=container)
    assert decoded.dtype == dtype
    assert decoded.max() == "high"


@pytest.mark.parametrize(
    ("column", "values", "message"),
    [
        (Numeric(0, 1), [0.5, None], "'x' has missing values"),
        (Numeric(0, 1), ["secret"], "'x' is declared Numeric"),
        (Numeric(0, 1), pd.Series(["secret", 1], dtype=object), "'x' is declared Numeric"),
        (Numeric(0, 1), [True], "'x' is declared Numeric"),
        (Numeric(0, 1), [1j], "'x' is declared Numeric"),
        (Categorical(["a", "b"]), ["a", "secret"], "'x' holds a value outside"),
        (Categorical(["a", "b"]), ["a", None], "'x' has missing values"),
        (Categorical(["a", "b"]), [1, 2], "'x' is declared with string labels"),
        (Categorical([1, 2]), ["secret"], "'x' (is declared with number labels|holds a value)"),
        (Ordinal([1, 2], nullable=True), [1, 3, None], "'x' holds a value outside"),
        (Datetime("2020-01-01", "2021-01-01"), ["secret"], "'x' is declared Datetime"),
        (Datetime("2020-01-01", "2021-01-01"), [1.5], "'x' is declared Datetime"),
        (
            Datetime("2020-01-01", "2021-01-01"),
            pd.Series([datetime.datetime(2020, 1, 1), "secret"], dtype=object),
            "'x' is declared Datetime",
        ),
    ],
)
def test_encoding_errors_name_the_column_and_not_the_value(column, values, message):
    series = pd.Series(values, name="x")
    with pytest.raises(ValueError, match=message) as caught:
        column.encode(series)
    assert "secret" not in str(caught.value)
    column = column if isinstance(column, Categorical | Ordinal) else bin_column("x", column, 4)
    with pytest.raises(ValueError, match=message) as caught:
        column.codes(series)
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: Numeric(1, 1), "low must be smaller"),
        (lambda: Numeric(0, np.inf), "high must be a finite number"),
        (lambda: Numeric("0", 1), "low must be a finite number"),
        (lambda: Numeric(True, 2), "low must be a finite number"),
        (lambda: Numeric(-1e308, 1e308), "finite amount"),
        (lambda: Numeric(0, 1, step=0), "step must be positive"),
        (lambda: Numeric(0, 1, step=0.3), "step must divide"),
        (lambda: Numeric(0, 1, step=2), "step must divide"),
        (lambda: Numeric(0.5, 2, integer=True), "low must be an integer"),
        (lambda: Numeric(0, 2, integer=True, step=0.5), "step must be an integer"),
        (lambda: Numeric(0, 2**60, integer=True), "within 2"),
        (lambda: Numeric(0, 1, nullable=1), "nullable must be True or False"),
        (lambda: Categorical("abc"), "categories must be a sequence"),
        (lambda: Categorical(["a"]), "at least 2 choices"),
        (lambda: Categorical([], nullable=True), "at least 2 choices"),
        (lambda: Categorical(["a", "a"]), "must be distinct"),
        (lambda: Categorical([1, True]), "must be distinct"),
        (lambda: Categorical(["a", None]), "must be bools, numbers or strings"),
        (lambda: Categorical([1.0, np.nan]), "must be finite"),
        (lambda: Ordinal([1, 1]), "values must be distinct"),
        (lambda: Ordinal([datetime.date(2020, 1, 1), 1]), "values must be bools"),
        (lambda: Datetime("2021-01-01", "2020-01-01"), "low must be earlier"),
        (lambda: Datetime("2020-01-01", "01/02/2020"), "high must be a date"),
        (lambda: Datetime(None, "2020-01-01"), "low must be a date"),
        (lambda: Datetime(0, "2020-01-01"), "low must be a date"),
        (lambda: Datetime("2020-01-01T12:00", "2021-01-01", resolution="D"), "low must be a mult"),
        (lambda: Datetime("2020-01-01", "2021-01-01", resolution="ns"), "resolution must be one"),
        (lambda: Schema({}), "non-empty mapping"),
        (lambda: Schema({1: Numeric(0, 1)}), "names must be strings"),
        (lambda: Schema({"a": (0, 1)}), "Column 'a' must be one of Numeric"),
        (lambda: Schema.from_dict([1]), "must map column names"),
        (lambda: Schema.from_dict({"a": 1}), "Column 'a': a declaration must be a mapping"),
        (lambda: Schema.from_dict({"a": {"type": "num"}}), "Column 'a': type must be one of"),
        (lambda: Schema.from_dict({"a": {"type": "numeric", "low": 0}}), "Column 'a': missing"),
        (
            lambda: Schema.from_dict({"a": {"type": "ordinal", "values": [1, 2], "step": 1}}),
            "Column 'a': unknown",
        ),
        (
            lambda: Schema.from_dict({"a": {"type": "numeric", "low": 1, "high": 0}}),
            "Column 'a': low must be smaller",
        ),
        (
            lambda: Schema.from_yaml("a: {type: categorical, categories: [no, off]}"),
            "Column 'a': categories must be distinct",
        ),
    ],
)
def test_declaration_errors(build, message):
    with pytest.raises(ValueError, match=message):
        build()


def test_numpy_scalars_are_accepted_and_stored_plainly():
    assert repr(Numeric(np.float64(0), np.int64(3))) == repr(Numeric(0.0, 3))
    assert repr(Categorical(np.array([1, 2]))) == repr(Categorical([1, 2]))
    assert Datetime(np.datetime64("2020-01-01"), datetime.date(2021, 1, 1)) == Datetime(
        pd.Timestamp("2020-01-01"), "2021-01-01"
    )
