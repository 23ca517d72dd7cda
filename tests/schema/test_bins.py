"""Bins of numbers and dates, and the grid values that they hold."""

import tracemalloc
from itertools import pairwise

import numpy as np
import pandas as pd
import pytest
from declared_columns import FINE, reproducibly
from hypothesis import given
from hypothesis import strategies as st

from sklearn_dpgen.domains import OneHot
from sklearn_dpgen.schema import Datetime, Numeric, _binned
from sklearn_dpgen.schema._binned import bin_column


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


def around(values, n):
    """Return numbers and the n before and after each, as float64 has them."""
    found = [values]
    for end in (-np.inf, np.inf):
        at = values
        for _ in range(n):
            at = np.nextafter(at, end)
            found.append(at)
    return np.concatenate(found)


@reproducibly
@given(
    st.floats(-1e6, 1e6),
    st.floats(1e-3, 1e6),
    st.sampled_from([2, 3, 4, 6, 10, 16, 20, 32, 64, 192, 256, 257, 1024]),
    st.booleans(),
)
def test_numbers_beside_an_edge_are_in_the_bin_of_their_place(low, width, bins, nullable):
    if not low < low + width:
        return
    column = bin_column("x", Numeric(low, low + width, nullable=nullable), bins)
    values = around(column.column.from_unit(np.asarray(column.edges)), 20)
    starts = column.edges[:-1]
    expected = np.searchsorted(starts, column.column.encode(values)[:, 0], side="right") - 1
    np.testing.assert_array_equal(column.codes(values), expected)
    if nullable:
        mixed = column.codes(pd.Series([np.nan, *values, np.nan]))
        np.testing.assert_array_equal(mixed, [bins, *expected, bins])


def test_equal_bins_need_no_search_where_rounding_allows():
    found = {n: bin_column("x", Numeric(0, 7), n)._is_equal for n in (2, 10, 32, 64, 131072)}
    assert found == {2: True, 10: False, 32: True, 64: True, 131072: True}
    assert not bin_column("x", Numeric(0, 4), [0, 1, 3, 4])._is_equal


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


@pytest.mark.slow
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
    with pytest.raises(ValueError, match="each bin must contain"):
        decimal_edges_hold()


def test_bins_of_an_equal_column_are_taken():
    def month(**params):
        return Datetime("2020-01-01", "2020-02-01", resolution="D", **params)

    binned = bin_column("day", month(nullable=True), 2**17).merged([0, 3, 4])
    assert bin_column("day", month(nullable=True), binned) is binned
    for other in (month(), Numeric(0, 1)):
        with pytest.raises(ValueError, match="'day': bins must be those of an equal column"):
            bin_column("day", other, binned)


@pytest.mark.parametrize("n_bins", [2**20 + 1, 10**9, 10**30])
def test_too_many_bins_are_refused_before_they_are_made(n_bins):
    for column in (Numeric(0, 1), Numeric(0, 10**12, integer=True), FINE["microseconds"]):
        tracemalloc.start()
        with pytest.raises(
            ValueError, match=f"bins must be at most .*, got {min(n_bins, _places(column))}"
        ):
            bin_column("x", column, n_bins)
        assert tracemalloc.get_traced_memory()[1] < 1e5
        tracemalloc.stop()
    # A grid has no more bins than values.
    assert bin_column("x", Numeric(0, 9, integer=True), n_bins).n_bins == 10


def _places(column):
    return 10**40 if column.n_steps is None else column.n_steps + 1
