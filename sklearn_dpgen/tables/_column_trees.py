"""Counts of single columns on a tree of intervals, and the bins that they tell of."""

import heapq
import math
from functools import cached_property

import numpy as np

__all__ = ["MAX_BINS", "MAX_LEAVES", "ColumnTree"]

# Values that are told apart at most, and bins that come of them at most.
MAX_LEAVES = 1 << 17
MAX_BINS = 32
_BRANCHES = 8
# A column of so few values has one level.
_FLAT = 32
# Pieces that intervals are split into before neighbours are merged.
_MAX_PIECES = 16 * MAX_BINS
# Standard errors beyond the largest of as many draws of noise, for a split.
_SLACK = 0.5
# Standard errors by which two densities must differ to be kept apart, and below which a count may
# be that of no records: two such neighbours have nothing to keep apart.
_APART, _EMPTY = 2.0, 1.5
# Relative to all records, rounding is below this.
_ROUNDING = 1e-9


class ColumnTree:
    """The values of one column in order, and intervals of them, each 8 times those below.

    Parameters
    ----------
    n_values : int
        The finest cells, the leaves: values in order, or narrow bins.
    nullable : bool, default=False
        Whether there is one more category after them, which belongs to no interval.
    is_flat : bool, default=False
        Whether there are no intervals: of categories, or of bins that are given.
    """

    def __init__(self, n_values, *, nullable=False, is_flat=False):
        self.n_values, self.nullable, self.is_flat = n_values, nullable, is_flat
        self.levels = [np.arange(n_values)]
        if n_values > _FLAT and not is_flat:
            while len(self.levels[-1]) > 4 * _BRANCHES:
                self.levels.append(self.levels[-1][::_BRANCHES])

    @property
    def n_levels(self):
        """How often a record is counted."""
        return len(self.levels)

    @cached_property
    def widths(self):
        """The number of leaves of each node of each level."""
        return [np.diff(np.append(starts, self.n_values)) for starts in self.levels]

    @cached_property
    def parents(self):
        """For each level but the last the node above, of each node."""
        return [np.arange(len(starts)) // _BRANCHES for starts in self.levels[:-1]]

    @property
    def n_bins(self):
        """The number of bins, and of nulls, that :meth:`bins` gives at most."""
        return (self.n_values if self.is_flat else min(self.n_values, MAX_BINS)) + self.nullable

    @property
    def n_cells(self):
        """Entries of :meth:`counts`."""
        return sum(map(len, self.levels)) + self.nullable * self.n_levels

    def counts(self, codes):
        """Count records in all nodes, level by level.

        Parameters
        ----------
        codes : ndarray of int of shape (n,)
            The leaf of each record; ``n_values`` for null.

        Returns
        -------
        ndarray of float64 of shape (n_cells,)
            A record adds one to one cell a level, be it a node or the null: a vector of l2 norm
            √n_levels.

        Raises
        ------
        ValueError
            Codes that are no leaf.
        """
        n_codes = self.n_values + self.nullable
        if codes.size and not 0 <= codes.min() <= codes.max() < n_codes:
            raise ValueError("codes must be among the leaves.")
        leaves = np.bincount(codes, minlength=n_codes).astype(np.float64)
        nulls = leaves[self.n_values :]
        leaves = leaves[: self.n_values]
        sums = [np.append(np.add.reduceat(leaves, starts), nulls) for starts in self.levels]
        return np.concatenate(sums)

    def bin_codes(self, codes, starts):
        """Return the bin of each record, from its leaf and the first leaf of each bin."""
        widths = np.diff(np.append(starts, self.n_values))
        bins = np.repeat(np.arange(len(starts)), widths)
        bins = np.append(bins, np.full(int(self.nullable), len(starts)))
        return bins.astype(np.min_scalar_type(len(starts)))[codes]

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

    def bins(self, noisy, noise_scale):
        """Return intervals on which the records may lie evenly, for all that the noise lets see.

        A flat column has a bin for each leaf.

        Parameters
        ----------
        noisy : ndarray of shape (n_cells,)
        noise_scale : float
            Standard deviation of the noise of a cell.

        Returns
        -------
        starts : ndarray of int of shape (n_bins,)
            The first leaf of each; at most 32, and at least two.
        counts : ndarray of shape (n_bins + nullable,)
            Of the bins, then of null.
        variances : ndarray of shape (n_bins + nullable,)
            Of the counts, over ``noise_scale``²: for fixed bins at most, and about, these.
        """
        if self.is_flat:
            return self.levels[0], noisy, np.ones(self.n_cells)
        best, nulls, _ = self.estimate(noisy)
        pieces = self._pieces(self._split(noisy), best, noise_scale)
        starts, counts, variances = self._merged(*pieces, noise_scale)
        variances = np.append(variances, np.full(len(nulls), 1 / self.n_levels))
        return starts, np.append(counts, nulls), variances

    def _split(self, noisy):
        stops = np.cumsum([len(starts) + self.nullable for starts in self.levels])
        return np.split(noisy, stops[:-1])

    def _pieces(self, given, best, noise_scale):
        """Return the starts and counts of nodes that show no structure, the plainest split first.

        A node is split where a node at any depth below it, from its share of the width, has a
        count that differs by more than noise and chance do.
        """
        rounding = _ROUNDING * (1 + abs(best[-1].sum()))
        odd, gains = [np.zeros(self.n_values, dtype=bool)], [np.zeros(self.n_values)]
        for level, parents in enumerate(self.parents):
            n_nodes = len(self.levels[level])
            shares = self.widths[level] / self.widths[level + 1][parents]
            even = best[level + 1][parents] * shares
            # Records are a sample too: an even law has counts that vary by their root.
            errors = np.sqrt(noise_scale**2 + np.maximum(even, 0))
            limits = (math.sqrt(2 * math.log(n_nodes)) + _SLACK) * errors + rounding
            is_odd = (np.abs(given[level][:n_nodes] - even) > limits) | odd[-1]
            odd.append(np.bincount(parents, weights=is_odd) > 0)
            gains.append(np.bincount(parents, weights=np.abs(best[level] - even)))
        pieces, queue = {}, []

        def add(level, node):
            pieces[int(self.levels[level][node])] = float(best[level][node])
            if odd[level][node]:
                heapq.heappush(queue, (-gains[level][node], level, node))

        top = self.n_levels - 1
        for node in range(len(self.levels[top])):
            add(top, node)
        while queue and len(pieces) + _BRANCHES <= _MAX_PIECES:
            _, level, node = heapq.heappop(queue)
            for child in range(node * _BRANCHES, (node + 1) * _BRANCHES):
                if child < len(self.levels[level - 1]):
                    add(level - 1, child)
        starts = np.array(sorted(pieces))
        return starts, np.array([pieces[start] for start in starts.tolist()])

    def _merged(self, starts, counts, noise_scale):
        """Merge neighbours of like density, then those that cost least in total variation."""
        widths = np.diff(np.append(starts, self.n_values)).astype(np.float64)
        variances = np.ones(len(starts))
        rounding = _ROUNDING * (1 + abs(counts.sum()))
        while len(starts) > 2:
            left, right = widths[:-1], widths[1:]
            gaps = np.abs(counts[:-1] * right - counts[1:] * left)
            noise = right**2 * variances[:-1] + left**2 * variances[1:]
            sampling = np.maximum(counts[:-1] + counts[1:], 0) * left * right
            errors = np.sqrt(noise * noise_scale**2 + sampling) + rounding * (left + right)
            ratios = gaps / errors
            empty = counts < _EMPTY * np.sqrt(variances) * noise_scale
            ratios[empty[:-1] & empty[1:]] = 0
            i = int(np.argmin(ratios))
            if ratios[i] >= _APART:
                if len(starts) <= MAX_BINS:
                    break
                i = int(np.argmin(gaps / (left + right)))
            for values in (widths, counts, variances):
                values[i] += values[i + 1]
            starts = np.delete(starts, i + 1)
            widths, counts, variances = (
                np.delete(values, i + 1) for values in (widths, counts, variances)
            )
        return starts, counts, variances
