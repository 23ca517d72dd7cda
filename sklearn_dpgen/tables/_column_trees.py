"""Counts of single columns on a tree of intervals, and the cells that they tell of."""

import itertools
from functools import cached_property
from typing import NamedTuple

import numpy as np

from sklearn_dpgen.tables._column_cells import MAX_CELLS, ordered_cells
from sklearn_dpgen.tables._column_counts import posterior_counts

__all__ = ["MAX_LEAVES", "ColumnCells", "ColumnTree"]

# Values that are told apart at most.
MAX_LEAVES = 1 << 17
# A column of so few values has one level.
_FLAT = 32
# Intervals of the top level at most, and of each of them in the next.
_TOP, _BRANCHES = 24, 16
# Without another level below, intervals of the top level are no wider.
_WIDEST = 128


class ColumnCells(NamedTuple):
    """What is known of a single column.

    Attributes
    ----------
    starts : ndarray of int of shape (n_cells,)
        The first leaf of each cell, ascending from 0; in a cell, all leaves are alike.
    shares : ndarray of shape (n_cells + nullable,)
        Of the records in the cells, then in null: not negative, of sum 1.
    variances : ndarray of shape (n_cells + nullable,)
        Of the shares, about.
    """

    starts: np.ndarray
    shares: np.ndarray
    variances: np.ndarray


class ColumnTree:
    """The values of one column in order, and intervals of them, the wider the farther from one.

    Parameters
    ----------
    n_values : int
        The finest cells, the leaves: values in order, or narrow bins.
    nullable : bool, default=False
        Whether there is one more category after them, which belongs to no interval.
    is_flat : bool, default=False
        Whether there are no intervals: of categories, or of bins that are given.
    anchor : int, default=0
        The leaf that distances are from, which may be outside. The widths of intervals are in
        proportion to them, so that a scale need not be declared: there are ``base`` of them in a
        power of two, and 16 times as many on a level below, if they are wide.
    """

    def __init__(self, n_values, *, nullable=False, is_flat=False, anchor=0):
        self.n_values, self.nullable, self.is_flat = n_values, nullable, is_flat
        self.anchor, self.base = anchor, 1
        self.levels = [np.arange(n_values)]
        if is_flat or n_values <= _FLAT:
            return
        while len(finer := _intervals(n_values, anchor, 2 * self.base)) <= _TOP:
            if len(finer) == n_values:
                break
            self.base *= 2
        self.levels.append(_intervals(n_values, anchor, self.base))
        if self.widths[-1].max() > _WIDEST:
            self.levels.insert(1, _intervals(n_values, anchor, _BRANCHES * self.base))

    @cached_property
    def sides(self):
        """-1, 0 or 1 for each node of the top level: before, at or after the anchor."""
        starts, stops = self.levels[-1], np.append(self.levels[-1][1:], self.n_values)
        return np.where(stops <= self.anchor, -1, np.where(starts > self.anchor, 1, 0))

    @property
    def n_levels(self):
        """How often a record is counted."""
        return len(self.levels)

    @property
    def widths(self):
        """The number of leaves of each node of each level."""
        return [np.diff(np.append(starts, self.n_values)) for starts in self.levels]

    @cached_property
    def stages(self):
        """The levels from the top, and sums in between where nodes have many children.

        Of each the first leaves, and how many nodes of a level are summed.
        """
        found = [(self.levels[0], np.ones(self.n_values))]
        for below, above in itertools.pairwise(self.levels):
            children = np.diff(np.append(np.searchsorted(below, above), len(below)))
            places = np.arange(len(below)) - np.repeat(np.cumsum(children) - children, children)
            step = _BRANCHES
            while step < children.max():
                (firsts,) = np.nonzero(places % step == 0)
                found.append((below[firsts], np.diff(np.append(firsts, len(below))) * 1.0))
                step *= _BRANCHES
            found.append((above, np.ones(len(above))))
        return found[::-1]

    @cached_property
    def parents(self):
        """For each level but the last the node above, of each node."""
        pairs = itertools.pairwise(self.levels)
        return [np.searchsorted(above, below, side="right") - 1 for below, above in pairs]

    @property
    def n_bins(self):
        """The number of cells, and of nulls, that :meth:`cells` gives at most."""
        most = self.n_values if self.n_levels == 1 else min(self.n_values, MAX_CELLS)
        return most + self.nullable

    @property
    def n_cells(self):
        """Entries of :meth:`counts`."""
        return sum(map(len, self.levels)) + self.nullable * self.n_levels

    def counts(self, leaves):
        """Return the counts of all nodes, level by level.

        Parameters
        ----------
        leaves : ndarray of shape (n_values + nullable,)
            Exact counts of the leaves, then of null.

        Returns
        -------
        ndarray of float64 of shape (n_cells,)
            A record adds one to one cell a level, be it a node or the null: a vector of l2 norm
            √n_levels.
        """
        leaves, nulls = np.split(leaves, [self.n_values])
        sums = [np.append(np.add.reduceat(leaves, starts), nulls) for starts in self.levels]
        return np.concatenate(sums)

    def bins(self, starts):
        """Return the bin of each leaf, then of null, from the first leaf of each bin."""
        widths = np.diff(np.append(starts, self.n_values))
        bins = np.repeat(np.arange(len(starts)), widths)
        return np.append(bins, np.full(int(self.nullable), len(starts)))

    def estimate(self, noisy):
        """Return the counts of least squares that add up over the tree.

        Parameters
        ----------
        noisy : ndarray of shape (n_cells,)
            Counts with independent noise of one variance.

        Returns
        -------
        levels : list of ndarray
            The counts of the nodes of each level.
        nulls : ndarray of shape (1,) or (0,)
        total_variance : float
            Of the sum of all, relative to that of one cell.

        Notes
        -----
        Two sweeps, up and down (Hay, Rastogi, Miklau and Suciu, "Boosting the accuracy of
        differentially private histograms through consistency", 2010).
        """
        given = self._split(noisy)
        nulls = np.stack([part[len(s) :] for part, s in zip(given, self.levels, strict=True)])
        given = [part[: len(s)] for part, s in zip(given, self.levels, strict=True)]
        best, variances = [given[0]], [np.ones(self.n_values)]
        for part, parents in zip(given[1:], self.parents, strict=True):
            below = np.bincount(parents, weights=best[-1])
            spread = np.bincount(parents, weights=variances[-1])
            best.append((part * spread + below) / (spread + 1))
            variances.append(spread / (spread + 1))
        for level in range(self.n_levels - 2, -1, -1):
            parents = self.parents[level]
            gaps = best[level + 1] - np.bincount(parents, weights=best[level])
            spread = np.bincount(parents, weights=variances[level])
            best[level] = best[level] + gaps[parents] * variances[level] / spread[parents]
        total = variances[-1].sum() + nulls.shape[1] / self.n_levels
        return best, nulls.mean(axis=0), float(total)

    def cells(self, noisy, noise_scale, n_records=None):
        """Return cells, and the shares of records in them, for all that the noise lets see.

        A column of one level has a cell for each leaf, and so has any of at most 192; others have
        at most 192 cells. No interval of several leaves has much more than 1/96 of the records.

        Parameters
        ----------
        noisy : ndarray of shape (n_cells,)
        noise_scale : float
            Standard deviation of the noise of a cell.
        n_records : float or None, default=None
            The number of records; None estimates it.

        Returns
        -------
        ColumnCells
        """
        if n_records is None:
            levels, nulls, _ = self.estimate(noisy)
            n_records = max(1.0, float(levels[-1].sum() + nulls.sum()))
        if self.n_levels == 1:
            starts = self.levels[0]
            counts, variances = posterior_counts(noisy, noise_scale, n_records)
        else:
            starts, counts, variances = ordered_cells(self, noisy, noise_scale, n_records)
        return ColumnCells(starts, counts / counts.sum(), variances / n_records**2)

    def tables(self, noisy, starts):
        """Return what the counts of each level tell of cells, one level after another.

        Parameters
        ----------
        noisy : ndarray of shape (n_cells,)
        starts : ndarray of int of shape (n_found,)
            The first leaf of each cell.

        Returns
        -------
        list of tuple of ndarray
            Of each level the group of each cell, then of null, where an edge between groups is one
            of cells and of nodes; the noisy counts of groups; and the number of nodes in them.
        """
        found = []
        for level, given in zip(self.levels, self._split(noisy), strict=True):
            firsts = np.searchsorted(level, starts)
            is_edge = level[np.minimum(firsts, len(level) - 1)] == starts
            edges, firsts = starts[is_edge], firsts[is_edge]
            groups = np.cumsum(is_edge) - 1
            counts = np.add.reduceat(given[: len(level)], firsts)
            sizes = np.diff(np.append(firsts, len(level)))
            if self.nullable:
                groups = np.append(groups, len(edges))
                counts, sizes = np.append(counts, given[-1]), np.append(sizes, 1)
            found.append((groups, counts, sizes))
        return found

    def _split(self, noisy):
        stops = np.cumsum([len(starts) + self.nullable for starts in self.levels])
        return np.split(noisy, stops[:-1])


def _intervals(n_values, anchor, base):
    """Return the first leaves of intervals, so many in each power of two of distances."""
    parts = [np.array([0, anchor])]
    for sign, first, last in (
        (1, -anchor, n_values - 1 - anchor),
        (-1, anchor - n_values + 1, anchor),
    ):
        for power in range(max(last, 0).bit_length()):
            low, step = 1 << power, max((1 << power) // base, 1)
            start = low + max(first - low, 0) // step * step
            distances = np.arange(start, min(2 * low, last + 1), step)
            # Before the anchor, an interval starts where its distances end.
            parts.append(anchor + distances if sign > 0 else anchor + 1 - distances)
    starts = np.unique(np.concatenate(parts))
    return starts[(starts >= 0) & (starts < n_values)]
