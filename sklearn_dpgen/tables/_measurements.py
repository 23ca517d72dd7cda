"""What was released of a table so far, and how far a law is from it."""

from dataclasses import dataclass

import numpy as np

from sklearn_dpgen.tables._population import SliceLoss

__all__ = ["MeasuredSlice", "Measurements"]


@dataclass(frozen=True)
class MeasuredSlice:
    """A table that was released.

    Attributes
    ----------
    columns : tuple of str
        An axis each.
    counts : ndarray
        Noisy numbers of records in the cells, which may be negative. Categories are in the order
        of the schema, then bins, then null.
    noise_scale : float or ndarray
        Standard deviation of the noise of each cell, 0 without noise; an array of one a cell, of
        a column whose bins were found privately.
    """

    columns: tuple[str, ...]
    counts: np.ndarray
    noise_scale: float | np.ndarray


class Measurements:
    """What was released of a table so far.

    Parameters
    ----------
    names : list of str
        Of all columns.
    sizes : list of int
        Categories of each column.
    n_records : float
        Number of records, or an estimate of it.
    """

    def __init__(self, names, sizes, n_records):
        self._names, self.sizes, self.n_records = names, sizes, n_records
        self.columns, self._shares, self._precisions = [], [], []
        self.slices = []

    def add(self, columns, tables, spreads, noise_scale):
        """Add tables.

        Parameters
        ----------
        columns : list of tuple of int
            An axis each.
        tables : list of ndarray
            Noisy counts.
        spreads : list of float or ndarray
            Of each table the noise of a cell, over ``noise_scale``.
        noise_scale : float
            0 without noise; the tables then count by their spreads.
        """
        for part, table, spread in zip(columns, tables, spreads, strict=True):
            names = tuple(self._names[column] for column in part)
            self.slices.append(MeasuredSlice(names, table, noise_scale * spread))
            self._shares.append(table / self.n_records)
            self._precisions.append((self.n_records / ((noise_scale or 1.0) * spread)) ** 2)
        self.columns += columns

    @property
    def singles(self):
        """The shares of the categories of each column."""
        return self._shares[: len(self._names)]

    @property
    def n_cells(self):
        """The number of cells of all tables."""
        return sum(table.size for table in self._shares)

    def loss(self, device):
        """Return the squared distance from all tables, in variances, over the number of cells."""
        precisions = [precision / self.n_cells for precision in self._precisions]
        return SliceLoss(self.sizes, self.columns, self._shares, precisions, device)
