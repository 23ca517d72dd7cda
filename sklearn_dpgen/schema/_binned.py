"""A numeric or datetime column seen through public bins."""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from sklearn_dpgen.domains import OneHot
from sklearn_dpgen.schema._column import CategoryColumn
from sklearn_dpgen.schema._numbers import Datetime, Numeric


@dataclass(frozen=True)
class Binned(CategoryColumn):
    """An interval column encoded as one of its bins; a nullable column puts null last.

    Parameters
    ----------
    column : Numeric or Datetime
        The declared column.
    edges : tuple of float
        Ascending from -1 to 1, on the column's unit scale. A bin holds its lower edge; the last
        one holds both.
    """

    column: Numeric | Datetime
    edges: tuple

    @property
    def nullable(self):
        """Whether the declared column is."""
        return self.column.nullable

    @property
    def n_bins(self):
        """The number of bins, the null apart."""
        return len(self.edges) - 1

    @property
    def domain(self):
        return OneHot(self.n_bins + self.nullable)

    def feature_names(self, name):
        names = [f"{name}=<bin {i}>" for i in range(self.n_bins)]
        return [*names, f"{name}=<null>"] if self.nullable else names

    def decoded_dtype(self, dtype=None, *, name=None):
        return self.column.decoded_dtype(dtype, name=name)

    def _codes(self, series, null):
        unit = self.column._encode(series, null)[:, 0]
        # Where bins are equal this is it, up to rounding, without a search.
        codes = np.minimum(((unit + 1) * (self.n_bins / 2)).astype(np.int64), self.n_bins - 1)
        starts = self._starts
        missed = np.flatnonzero((unit < starts[codes]) | (unit >= starts[codes + 1]))
        codes[missed] = np.searchsorted(starts, unit[missed], side="right") - 1
        codes[null] = self.n_bins
        return codes

    @cached_property
    def _starts(self):
        """The lower edges, and infinity: the last bin holds its upper edge too."""
        return np.append(self.edges[:-1], np.inf)

    def _decode(self, array, dtype, rng):
        codes = np.argmax(array, axis=1)
        null = codes == self.n_bins
        codes = np.where(null, 0, codes)
        share = np.full(len(codes), 0.5) if rng is None else rng.uniform(size=len(codes))
        block = self._place(codes, share)[:, None]
        if self.nullable:
            block = np.column_stack([block, ~null, null])
        return self.column._decode(block, dtype, rng)

    def _place(self, codes, share):
        """Return the point at a share of each bin: of its grid points where there is a grid."""
        edges = np.asarray(self.edges)
        n_steps = self.column.n_steps
        if n_steps is None:
            return edges[codes] + share * (edges[codes + 1] - edges[codes])
        first, stop = self._grid_range(codes)
        k = np.minimum(first + np.floor(share * (stop - first)), stop - 1)
        return 2 * k / n_steps - 1

    def _grid_range(self, codes):
        grid = _grid(self.column.n_steps)
        starts = np.searchsorted(grid, self.edges[:-1], side="left")
        starts = np.append(starts, len(grid))
        return starts[codes], starts[codes + 1]


def bin_column(name, column, bins):
    """Return a column seen through bins, or itself where bins do not apply.

    Parameters
    ----------
    name : str
        Named in errors.
    column : Column
    bins : None, int or sequence
        A number of equal bins, or their edges in the column's units, from its lower to its upper
        bound. None leaves the column as it is. A grid of fewer values than bins gets one bin a
        value.

    Returns
    -------
    Column
    """
    if bins is None:
        return column
    if not isinstance(column, Numeric | Datetime):
        raise ValueError(f"Column {name!r} has categories and takes no bins.")
    if isinstance(bins, Iterable):
        edges = np.asarray(column.to_unit(np.asarray(list(bins))), dtype=np.float64)
        if len(edges) < 3 or not (np.diff(edges) > 0).all():
            raise ValueError(f"Column {name!r}: bin edges must ascend, at least three of them.")
        if edges[0] != -1 or edges[-1] != 1:
            raise ValueError(f"Column {name!r}: the outer bin edges must be the declared bounds.")
    else:
        if isinstance(bins, bool) or int(bins) != bins or bins < 2:
            raise ValueError(f"Column {name!r}: bins must be edges or an integer of at least 2.")
        edges = _equal_edges(column.n_steps, int(bins))
    if column.n_steps is not None:
        counts = np.histogram(_grid(column.n_steps), bins=edges)[0]
        if not counts.all():
            raise ValueError(f"Column {name!r}: every bin must hold a value of the declared grid.")
    return Binned(column, tuple(edges.tolist()))


def _grid(n_steps):
    return 2 * np.arange(n_steps + 1) / n_steps - 1


def _equal_edges(n_steps, n_bins):
    if n_steps is None:
        return np.linspace(-1, 1, n_bins + 1)
    n_bins = min(n_bins, n_steps + 1)
    starts = np.ceil(np.arange(1, n_bins) * (n_steps + 1) / n_bins)
    return np.concatenate([[-1.0], 2 * (starts - 0.5) / n_steps - 1, [1.0]])
