"""A numeric or datetime column encoded by public bins."""

import operator
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

import numpy as np
import pandas as pd

from sklearn_dpgen.exceptions import PublicValueError
from sklearn_dpgen.persistence._declarations import demand, saved
from sklearn_dpgen.schema._column import CategoryColumn
from sklearn_dpgen.schema._dates import Datetime
from sklearn_dpgen.schema._numbers import Numeric

# With more steps, neighbouring values of a grid are equal in float64, and bins are intervals.
_MOST_STEPS = 2**53
# About 100 MB of edges; finer bins gain almost nothing over a column without bins.
_MOST_BINS = 2**20

# On the unit scale, a bin narrower than this is a point.
_POINT = 1e-4


@saved
@dataclass(frozen=True)
class Binned(CategoryColumn):
    """An interval column encoded as one of its bins; a nullable column puts null last.

    Parameters
    ----------
    column : Numeric or Datetime
        The declared column.
    edges : tuple of float
        Ascending from -1 to 1, on the column's unit scale. A bin includes its lower edge; the last
        bin includes both.
    """

    _saved_state = {"column": Numeric | Datetime, "edges": tuple[float, ...]}

    column: Numeric | Datetime
    edges: tuple

    def _check_saved_state(self):
        ascend = all(low < high for low, high in pairwise(self.edges))
        spans = len(self.edges) >= 2 and self.edges[0] == -1 and self.edges[-1] == 1
        demand(ascend and spans, "The edges of bins must ascend from -1 to 1.")
        # Each bin must hold a value of the grid.
        demand((np.diff(self._grid_starts) > 0).all(), "A bin must hold a value of its column.")

    @property
    def nullable(self):
        """Whether the declared column is nullable."""
        return self.column.nullable

    @property
    def missing(self):
        """The declared codes of missing values."""
        return self.column.missing

    def _is_code(self, series):
        return self.column._is_code(series)

    @property
    def n_bins(self):
        """The number of bins, without the null."""
        return len(self.edges) - 1

    @property
    def n_categories(self):
        return self.n_bins + self.nullable

    def feature_names(self, name):
        names = [f"{name}=<bin {i}>" for i in range(self.n_bins)]
        return [*names, f"{name}=<null>"] if self.nullable else names

    @property
    def dtype(self):
        return self.column.dtype

    @property
    def _rule(self):
        return self.column._rule

    def _read(self, series, null):
        return self.column._read(series, null)

    def _codes(self, values, null):
        unit = self.column._clipped_unit(values)
        codes = self._as_equal(unit)
        if not self._is_equal:
            # Other index types would be converted in each of the two look-ups.
            codes, starts = codes.astype(np.intp), self._starts
            missed = np.flatnonzero((unit < starts[codes]) | (unit >= starts[1:][codes]))
            codes[missed] = np.searchsorted(starts, unit[missed], side="right") - 1
        if null.any():
            codes[null] = self.n_bins
        return codes

    def _as_equal(self, unit):
        """Return the bins of values, up to rounding, if all bins had equal widths."""
        places = unit + 1
        places *= self.n_bins / 2
        # A null has an arbitrary number too.
        np.fmin(places, self.n_bins - 1, out=places)
        return places.astype(np.min_scalar_type(self.n_bins))

    @cached_property
    def _is_equal(self):
        """Return whether bins are equal and division finds them without rounding errors.

        Both ways to find a bin are monotone in the value, so they agree if they agree on the first
        value of each bin and on the value before it. Values 2 q - 1 with q in [0, 1] are multiples
        of 2**-52, or of 2**-53 if negative.
        """
        starts, bins = self._edges[1:-1], np.arange(1, self.n_bins)
        per_unit = np.where(starts > 0, 2.0**52, 2.0**53)
        places = np.ceil(starts * per_unit)
        first, last = places / per_unit, (places - 1) / per_unit
        return bool((self._as_equal(first) == bins).all() and (self._as_equal(last) < bins).all())

    @cached_property
    def _edges(self):
        """The edges as an array."""
        return np.array(self.edges)

    @cached_property
    def _starts(self):
        """The lower edges, and infinity: the last bin includes its upper edge too."""
        return np.append(self._edges[:-1], np.inf)

    @cached_property
    def _grid_starts(self):
        """The first grid position of each bin, and the number of positions."""
        n_steps = _grid_steps(self.column) or _MOST_STEPS
        return np.append(_first_at_or_above(n_steps, self._edges[:-1]), n_steps + 1)

    @property
    def n_places(self):
        """The number of grid values; without a grid, 2**53 + 1 equidistant positions."""
        return int(self._grid_starts[-1])

    @property
    def widths(self):
        """The number of grid values of each bin, an ndarray of shape (n_bins,)."""
        return np.diff(self._grid_starts)

    def merged(self, starts):
        """Return the column with neighbouring bins merged.

        Parameters
        ----------
        starts : array-like of int of shape (n,)
            First bin of each merged one, ascending from 0. Null stays separate.

        Returns
        -------
        Binned

        Raises
        ------
        PublicValueError
            ``starts`` does not ascend from 0 to below ``n_bins``.
        """
        starts = np.asarray(starts)
        valid = starts.ndim == 1 and starts.size > 0 and starts.dtype.kind in "iu"
        if not valid or starts[0] != 0 or starts[-1] >= self.n_bins:
            raise PublicValueError("starts must be integers from 0 to below the number of bins.")
        if not (starts[1:] > starts[:-1]).all():
            raise PublicValueError("starts must ascend.")
        return Binned(self.column, (*self._edges[starts].tolist(), self.edges[-1]))

    @cached_property
    def _points(self):
        """Return the value of each bin that is narrower than a point; NaN for other bins."""
        points = np.full(self.n_bins, np.nan)
        if isinstance(self.column, Numeric):
            is_single = _grid_steps(self.column) is not None and np.diff(self._grid_starts) == 1
            for i in np.flatnonzero((np.diff(self._edges) < _POINT) & np.logical_not(is_single)):
                points[i] = self._roundest(i)
        return points

    @cached_property
    def _point_units(self):
        """Return `_points` on the unit scale, on the grid if there is one."""
        units, n_steps = self.column.to_unit(self._points), _grid_steps(self.column)
        return units if n_steps is None else _grid(n_steps, np.rint((units + 1) / 2 * n_steps))

    def _roundest(self, i):
        """Return the number with the fewest decimals in a bin, or its middle if there are many."""
        low, high = self.column.from_unit(self._edges[i : i + 2])
        # Rounding may have raised the value above a given edge.
        lowest = low - 1e-9 * (high - low)
        for decimals in range(-int(np.ceil(np.log10(max(abs(low), abs(high))))) - 1, 18):
            for k in np.ceil(lowest * 10.0**decimals) + (0, 1):
                number = round(float(k / 10.0**decimals), max(decimals, 0))
                unit = self._unit_of(number)
                if number <= self.column._bounds[1] and self.edges[i] <= unit < self._starts[i + 1]:
                    return number + 0.0  # Turns a negative zero into zero.
        return (low + high) / 2

    def _unit_of(self, number):
        """Return a number on the unit scale, exact if it is on the grid; NaN otherwise."""
        unit, n_steps = self.column.to_unit(number), _grid_steps(self.column)
        if n_steps is None:
            return unit
        nearest = _grid(n_steps, np.rint((unit + 1) / 2 * n_steps))
        return nearest if abs(unit - nearest) < 1e-6 / n_steps else np.nan

    def _values(self, codes, rng):
        null = codes == self.n_bins
        codes = np.where(null, 0, codes)
        share = np.full(len(codes), 0.5) if rng is None else rng.uniform(size=len(codes))
        return self._placed(codes, self._place(codes, share), null)

    def decode_places(self, places):
        """Decode positions on the grid.

        Parameters
        ----------
        places : ndarray of int of shape (n,)
            From 0 to below ``n_places``.

        Returns
        -------
        Series of shape (n,)
            Monotone in the positions; constant in a bin that is a point.
        """
        codes = np.searchsorted(self._grid_starts, places, side="right") - 1
        unit = _grid(_grid_steps(self.column) or _MOST_STEPS, places)
        return self._placed(codes, unit, np.zeros(len(codes), dtype=bool))

    def ends(self):
        """Return the lowest and the highest value of each category, two series of ``dtype``."""
        first, last = self._grid_starts[:-1], self._grid_starts[1:] - 1
        found = (self.decode_places(places) for places in (first, last))
        null = self.decode_codes(np.arange(self.n_bins, self.n_categories))
        return tuple(pd.concat([v, null], ignore_index=True) if len(null) else v for v in found)

    def interval_places(self, intervals):
        """Return the ranges of positions that decode to values in intervals.

        Parameters
        ----------
        intervals : list of pandas.Interval
            With ends from :func:`comparable`.

        Returns
        -------
        starts, stops : ndarray of int of shape (n,)
            First position in each interval, and the one after the last; not larger if the
            interval is empty.

        Notes
        -----
        Found by bisection on decoded values, so that rounding is the same as in records.
        """
        tests = []
        for interval in intervals:
            tests.append((operator.ge if interval.closed_left else operator.gt, interval.left))
            tests.append((operator.gt if interval.closed_right else operator.ge, interval.right))
        low = np.zeros(len(tests), dtype=np.int64)
        high = np.full(len(tests), self.n_places)
        while (is_open := low < high).any():
            middle = (low + high) // 2
            places = np.minimum(middle, self.n_places - 1)
            values = comparable(self.column, self.decode_places(places))
            passes = [test(v, end) for v, (test, end) in zip(values, tests, strict=True)]
            high = np.where(is_open & passes, middle, high)
            low = np.where(is_open & np.logical_not(passes), middle + 1, low)
        return low.reshape(-1, 2).T

    def split_places(self, starts, stops):
        """Split the union of ranges of positions into parts of bins.

        Parameters
        ----------
        starts, stops : ndarray of int of shape (n,)
            First position of each range, and the one after its last.

        Returns
        -------
        codes : ndarray of int of shape (m,)
            The bin of each part.
        starts, stops : ndarray of int of shape (m,)
            Ranges of the parts, which are disjoint.
        shares : ndarray of float64 of shape (m,)
            Share of the positions of the bin, in (0, 1].
        """
        cuts = np.unique(np.concatenate([starts, stops, self._grid_starts]))
        begun, ended = (
            np.searchsorted(np.sort(ends), cuts, side="right") for ends in (starts, stops)
        )
        (inside,) = np.nonzero(begun > ended)
        starts, stops = cuts[inside], cuts[inside + 1]
        codes = np.searchsorted(self._grid_starts, starts, side="right") - 1
        return codes, starts, stops, (stops - starts) / np.diff(self._grid_starts)[codes]

    def _placed(self, codes, unit, null):
        """Decode positions in bins, on the unit scale."""
        points = self._points[codes]
        is_point = ~np.isnan(points) & ~null
        block = np.where(is_point, self._point_units[codes], unit)[:, None]
        if self.nullable:
            block = np.column_stack([block, ~null, null])
        values = self.column._decode(block, None)
        if is_point.any() and _grid_steps(self.column) is None:
            # Decoding would round the number.
            values = values.mask(is_point, pd.Series(points))
        return values

    def _place(self, codes, share):
        """Return the value at a share of each bin, among its grid values if there is a grid."""
        n_steps = _grid_steps(self.column)
        if n_steps is None:
            edges = self._edges
            return edges[codes] + share * (edges[codes + 1] - edges[codes])
        first, stop = self._grid_starts[codes], self._grid_starts[codes + 1]
        return _grid(n_steps, np.minimum(first + np.floor(share * (stop - first)), stop - 1))


def bin_column(name, column, bins):
    """Return a column encoded by bins, or the column itself without bins.

    Parameters
    ----------
    name : str
        Used in errors.
    column : Column
    bins : None, int, sequence or Binned
        A number of equal bins; edges in the column's units, from its lower to its upper bound; or
        a Binned of an equal column, which is returned. None leaves the column as it is. A grid
        with fewer values than bins gets one bin per value.

    Returns
    -------
    Column

    Notes
    -----
    Time and memory are proportional to the number of bins.
    """
    if bins is None:
        return column
    if not isinstance(column, Numeric | Datetime):
        raise PublicValueError(f"Column {name!r} must be numeric or datetime to have bins.")
    if isinstance(bins, Binned):
        if bins.column != column:
            raise PublicValueError(f"Column {name!r}: bins must be those of an equal column.")
        return bins
    n_steps = _grid_steps(column)
    if isinstance(bins, Iterable):
        edges = np.asarray(column.to_unit(np.asarray(list(bins))), dtype=np.float64)
        if len(edges) < 3 or not (np.diff(edges) > 0).all():
            raise PublicValueError(f"Column {name!r}: bins must be at least three ascending edges.")
        if edges[0] != -1 or edges[-1] != 1:
            raise PublicValueError(
                f"Column {name!r}: the outer bin edges must be the declared bounds."
            )
        if n_steps is not None:
            edges[1:-1] = _below_rounding(column, edges[1:-1])
    else:
        if isinstance(bins, bool) or int(bins) != bins or bins < 2:
            raise PublicValueError(
                f"Column {name!r}: bins must be edges or an integer of at least 2."
            )
        n_bins = int(bins) if n_steps is None else min(int(bins), n_steps + 1)
        if n_bins > _MOST_BINS:
            raise PublicValueError(
                f"Column {name!r}: bins must be at most {_MOST_BINS}, got {n_bins}."
            )
        edges = _equal_edges(n_steps, n_bins)
    binned = Binned(column, tuple(edges.tolist()))
    if n_steps is not None and not (np.diff(binned._grid_starts) > 0).all():
        raise PublicValueError(
            f"Column {name!r}: each bin must contain a value of the declared grid."
        )
    return binned


def comparable(column, series):
    """Return values of a column as a list of numbers or of dates in UTC."""
    return list(pd.to_datetime(series, utc=True) if isinstance(column, Datetime) else series.array)


def _grid_steps(column):
    """Return the number of steps of a grid, or None if it is too fine for float64 or absent."""
    n_steps = column.n_steps
    return None if n_steps is None or n_steps > _MOST_STEPS else n_steps


def _grid(n_steps, k):
    return 2 * k / n_steps - 1


def _first_at_or_above(n_steps, edges):
    """Return the index of the first grid value in float64 at or above each edge."""
    k = np.ceil((edges + 1) / 2 * n_steps).astype(np.int64)  # up to rounding
    while (late := _grid(n_steps, k - 1) >= edges).any():
        k -= late
    while (early := _grid(n_steps, k) < edges).any():
        k += early
    return k


def _below_rounding(column, edges):
    """Return edges, moved below a grid value that they equal up to rounding.

    A decimal such as 0.3 may differ by rounding as a bound, in a record, and as decoded.
    """
    (low, high), n_steps = column._bounds, _grid_steps(column)
    rounding = 4 * np.finfo(np.float64).eps * max(1, max(abs(low), abs(high)) / (high - low))
    rounding = min(rounding, 1 / n_steps)
    nearest = _grid(n_steps, np.rint((edges + 1) / 2 * n_steps))
    return np.where(np.abs(edges - nearest) <= rounding, nearest - rounding, edges)


def _equal_edges(n_steps, n_bins):
    if n_steps is None:
        return np.linspace(-1, 1, n_bins + 1)
    size, rest = divmod(n_steps + 1, n_bins)
    i = np.arange(1, n_bins)
    starts = i * size - (-i * rest) // n_bins
    return np.concatenate([[-1.0], _grid(n_steps, starts - 0.5), [1.0]])
