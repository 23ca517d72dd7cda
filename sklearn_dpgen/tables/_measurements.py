"""What was released of a table so far, and what it says of each column and of its dependence."""

from dataclasses import dataclass
from functools import reduce

import numpy as np
from sklearn.isotonic import IsotonicRegression

from sklearn_dpgen.persistence._declarations import Array, demand, saved, tuple_of
from sklearn_dpgen.tables._column_groups import group_sums

__all__ = ["NoisyMarginal", "Measurements"]


@saved
@dataclass(frozen=True)
class NoisyMarginal:
    """A released table of noisy counts over a few columns.

    Attributes
    ----------
    columns : tuple of str
        An axis each.
    groups : tuple of ndarray of int
        For each column the group of each of its categories: an entry of the axis.
    counts : ndarray
        Noisy numbers of records in the cells, which may be negative. Categories are in the order
        of the schema, then bins, then null.
    noise_scale : float or ndarray
        Standard deviation of the noise of a cell, 0 without noise.
    """

    _saved_state = {
        "columns": tuple[str, ...],
        "groups": tuple_of(Array("i", 1, low=0)),
        "counts": Array("f"),
        "noise_scale": (float, Array("f", low=0)),
    }

    columns: tuple[str, ...]
    groups: tuple[np.ndarray, ...]
    counts: np.ndarray
    noise_scale: float | np.ndarray

    def _check_saved_state(self):
        shape = self.counts.shape
        n_columns = len(self.columns)
        demand(n_columns == len(self.groups) == len(shape) > 0, "A marginal has other columns.")
        for groups, size in zip(self.groups, shape, strict=True):
            demand(not groups.size or int(groups.max()) < size, "A marginal has other groups.")
        demand(np.shape(self.noise_scale) in ((), shape), "A marginal has noise of another shape.")


# An interaction counts at most by so much more, and at least by so much less, than its noise says.
_LEAST, _MOST = 0.01, 100.0
# No table of columns tells more of their dependence: two even ones of two labels that are equal.
_STRONGEST = 0.25
# Pseudo-records of each term: records are a sample, and rows of a fit are too.
_CHANCE = 0.2


class Measurements:
    """What was released of a table so far.

    Parameters
    ----------
    names : list of str
        Of all columns.
    cells : list of ColumnCells
        What the counts of each column tell.
    n_records : float
        Number of records, or an estimate of it.
    blocks : ColumnBlocks
    """

    def __init__(self, names, cells, n_records, blocks):
        self._names, self.n_records, self.blocks = names, n_records, blocks
        self._shares = [part.shares for part in cells]
        self._variances = [part.variances for part in cells]
        self.marginals, self.tables = [], []

    def shares(self, column):
        """Return the shares of the categories of a column, by all that was released."""
        shares = np.maximum(self._shares[column], 0)
        # Noise may leave nothing of them.
        return shares / shares.sum() if shares.any() else np.full(len(shares), 1 / len(shares))

    def block_shares(self, column):
        """Return the shares of its blocks."""
        return group_sums(self.shares(column), self.blocks.blocks[column])

    def block_variances(self, column):
        """Return about the variances of the shares of its blocks, by noise."""
        return group_sums(self._variances[column], self.blocks.blocks[column])

    def independent(self, marginals):
        """Return the counts of marginals that there would be if columns were independent."""
        shares = [self.block_shares(j) for j in range(len(self._names))]
        return [
            self.n_records
            * reduce(
                np.multiply.outer,
                [group_sums(shares[j], g) for j, g in zip(part.columns, part.groups, strict=True)],
            )
            for part in marginals
        ]

    def add(self, part, counts, noise_scale, expected):
        """Add a table.

        Parameters
        ----------
        part : Marginal
        counts : ndarray
            With noise.
        noise_scale : float
            Standard deviation of the noise of a cell, 0 without noise.
        expected : ndarray
            Counts by what was released before: how far the table is from them, beyond the noise,
            tells how much its terms may say.
        """
        from sklearn_dpgen.tables._log_linear_fit import NoisyTable, cosines

        shares, noise = counts / self.n_records, noise_scale / self.n_records
        names = tuple(self._names[j] for j in part.columns)
        groups = [g[self.blocks.blocks[j]] for j, g in zip(part.columns, part.groups, strict=True)]
        self.marginals.append(NoisyMarginal(names, tuple(groups), counts, noise_scale))
        gaps = cosines(shares - expected / expected.sum())
        ridges = _ridges(gaps, self.blocks.frequencies(part), noise) + _CHANCE / self.n_records
        self.tables.append(NoisyTable(part.columns, part.groups, shares, ridges))
        for axis, (column, cells) in enumerate(zip(part.columns, groups, strict=True)):
            others = tuple(i for i in range(counts.ndim) if i != axis)
            spread = noise**2 * counts.size / counts.shape[axis]
            self._learn(column, cells, shares.sum(axis=others), spread)

    def _learn(self, column, groups, sums, variance):
        """Improve the shares of a column by sums of groups of them, as a Kalman filter does."""
        shares, variances = self._shares[column], self._variances[column]
        known, spread = group_sums(shares, groups), group_sums(variances, groups)
        gain = spread / np.maximum(spread + variance, 1e-300)
        better = np.maximum(known + gain * (sums - known), 0)
        # In proportion: a tail that is known to be empty is not filled by the noise of its group.
        factors = np.divide(better, known, out=np.ones(len(known)), where=known > 0)
        self._shares[column] = shares * factors[groups]
        self._variances[column] = variances * (1 - gain)[groups]


def _ridges(gaps, frequencies, noise):
    """Return the ridges of the logits of a table, by cosines: noise over signal, over its cells.

    Of a cell of probability p whose logit has the prior variance τ², noise of variance s² in its
    share asks for s² / (p τ²); the table tells of p² τ². Dependence is mostly of low frequency, as
    what grows with something else: its squares fall with the product of frequencies, and what is
    left beyond the noise is told apart from it the better.
    """
    # What turns along one axis alone is known from elsewhere.
    is_free = reduce(np.add.outer, [np.minimum(turns, 1) for turns in frequencies]) > 1
    products = reduce(np.multiply.outer, [turns + 1 for turns in frequencies])[is_free]
    if not is_free.any():
        return np.full(gaps.shape, _MOST / gaps.size)
    total = is_free.sum() * noise**2
    squares = IsotonicRegression(increasing=False).fit_transform(products, gaps[is_free] ** 2)
    signal = squares - noise**2
    ratios = np.full(len(squares), _MOST)
    np.divide(noise**2, signal, out=ratios, where=signal > noise**2 / _MOST)
    ridges = np.full(gaps.shape, ratios.min())
    ridges[is_free] = ratios
    return np.maximum(ridges, max(total / _STRONGEST, _LEAST)) / gaps.size
