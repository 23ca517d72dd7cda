"""Bins so narrow that they stand for a single number."""

import math
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pandas as pd
import pytest
from declared_columns import FINE
from scipy.stats import kstest

from sklearn_dpgen.schema import Numeric, _binned
from sklearn_dpgen.schema._binned import bin_column

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
        decoded = binned.decode(binned.encode(given))
        assert decoded.dtype == "float64"
        np.testing.assert_array_equal(decoded.astype(given.dtype), given)
    # A value that nobody would write becomes the number near it that somebody would.
    odd = column.low + (column.high - column.low) / math.pi
    binned = single_leaves(column, [odd])
    found = float(binned.decode(binned.encode(pd.Series([odd])))[0])
    assert 0 < abs(found - odd) < 1e-5 * (column.high - column.low)
    assert len(repr(found)) < len(repr(odd))


def test_bins_that_are_no_points_are_left_alone(monkeypatch):
    column = Numeric(0, 1000)
    binned = bins_with_points(column)
    block = np.eye(binned.n_bins)
    with monkeypatch.context() as patch:
        patch.setattr(_binned, "_POINT", 0.0)
        spread = bins_with_points(column).decode(block, rng=np.random.default_rng(0))
    found = binned.decode(block, rng=np.random.default_rng(0))
    assert (found != spread)[is_point(binned)].mean() > 0.9
    np.testing.assert_array_equal(found[~is_point(binned)], spread[~is_point(binned)])
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
    decoded = binned.decode(binned.encode(values), name="x")
    pd.testing.assert_series_equal(decoded, values.astype("float64").rename("x"))
    nulls = binned.decode(binned.encode(values[[1, 3]]))
    assert nulls.dtype == "float64"
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


@pytest.mark.slow
def test_a_round_lower_edge_stands_for_its_bin():
    missed = []
    for edge in (np.arange(1, 1000) / 10).tolist():
        bins = bin_column("x", Numeric(0, 1000), [0, edge, edge + 0.01, 1000])
        missed += [edge] if bins.decode(np.eye(3))[1] != edge else []
    for low in (np.arange(-3000, 3000) / 1000).tolist():
        bins = bin_column("x", Numeric(low, low + 1), [low, low + 1e-5, low + 1])
        missed += [low] if bins.decode(np.eye(2))[0] != low else []
    assert missed == []
