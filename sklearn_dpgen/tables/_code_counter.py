"""Exact counts of records that are given by their categories, over any parts of them."""

import copy
from typing import Self

import numpy as np

from sklearn_dpgen.tables._count_layout import CountLayout

__all__ = ["CodeCounter"]


class CodeCounter:
    """Exact counts of codes in tables.

    Parameters
    ----------
    layout : CountLayout
    n_persons : int, default=0
        Of whom the rows are counted too, where rows have weights.
    n_expected : int or None, default=None
        About how many rows will be counted, as of :class:`JointCounts`.

    Attributes
    ----------
    n_rows : int
        How many were counted.
    rows_seen : ndarray of int64 of shape (n_persons,)
        How many of each person.
    """

    def __init__(
        self, layout: CountLayout, n_persons: int = 0, n_expected: int | None = None
    ) -> None:
        self._layout, self._n_expected = layout, n_expected
        self._start(n_persons)

    def _start(self, n_persons):
        from sklearn_dpgen.tables._joint_counts import JointCounts

        self._counts = JointCounts(*self._layout.counted, self._n_expected)
        self.n_rows, self.rows_seen = 0, np.zeros(n_persons, dtype=np.int64)

    def count_codes(self, codes: list[np.ndarray], weights: np.ndarray | None = None) -> Self:
        """Count records by their categories.

        Parameters
        ----------
        codes : list of ndarray of unsigned int of shape (n,)
            One a column of the layout.
        weights : ndarray of int64 of shape (n,) or None, default=None
            What each adds; None for 1.

        Returns
        -------
        self
        """
        self._counts.add(self._layout.mapped(codes), weights)
        self.n_rows += len(codes[0])
        return self

    def fresh(self) -> Self:
        """Return a counter of the same tables that has counted nothing."""
        other = copy.copy(self)
        other._start(len(self.rows_seen))
        return other

    def state(self) -> np.ndarray:
        """Return all that was counted as one vector of int64: states of parts are to be added."""
        return np.concatenate([[np.int64(self.n_rows)], self.rows_seen, self._counts.vector])

    def add_state(self, state: np.ndarray) -> Self:
        """Add the state of another counter of the same tables, or a sum of such."""
        stop = 1 + len(self.rows_seen)
        self.n_rows += int(state[0])
        self.rows_seen += state[1:stop]
        self._counts.vector += state[stop:]
        return self

    def tables(self) -> list[np.ndarray]:
        """Return the counts of each table, an axis a column, as ndarrays of int64."""
        return self._layout.tables(self._counts.finish())
