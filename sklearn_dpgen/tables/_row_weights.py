"""Weights of the rows of each person: integers, so that their sums are exact."""

import numpy as np
import pandas as pd

from sklearn_dpgen.exceptions import PublicValueError
from sklearn_dpgen.ledger._unit import check_alike, told_apart
from sklearn_dpgen.preprocessing._reader import column_of

__all__ = ["WHOLE", "PersonRows", "RowWeights", "weights_of"]

# What weighs 1. Sums over 2^30 persons are exact in doubles.
WHOLE = 1 << 23
# Rows of a person, at most: in units of 1 over 2^23 they fit in 64 bits.
_MOST = 1 << 39
# Distinct ids that are held before they are added up.
_PENDING = 1 << 20


def weights_of(n_rows, most=None):
    """Return what each row of a person weighs, in units of 1 over 2^23, rounded down.

    Parameters
    ----------
    n_rows : ndarray of int
        The number of rows of the person.
    most : int or None, default=None
        What the rows of a person weigh at most, each of them 1 at most. None: 1 together.

    Returns
    -------
    ndarray of int64
        All rows of a person weigh ``most`` together at most, or 1.
    """
    n_rows = np.asarray(n_rows, dtype=np.int64)
    most = 1 if most is None else min(most, _MOST)
    return np.minimum(most * WHOLE // n_rows, WHOLE)


class PersonRows:
    """The number of rows of each person, counted over any parts of a table.

    Parameters
    ----------
    unit : str
        Name of the column that tells whose row each is.
    """

    def __init__(self, unit):
        self.unit = unit
        self._parts, self._n_pending = [], 0

    def count_block(self, block):
        """Count a block of records with the column of the unit."""
        codes, found = told_apart(column_of(block, self.unit), self.unit)
        return self.add(pd.Series(np.bincount(codes), index=pd.Index(found)))

    def add(self, rows):
        """Add numbers of rows, a series of them by the ids of persons."""
        if len(rows) == 0:
            return self
        self._parts.append(rows)
        self._n_pending += len(rows)
        if self._n_pending > max(_PENDING, 2 * len(self._parts[0])):
            self.rows()
        return self

    def rows(self):
        """Return the number of rows of each person, a series by their ids."""
        if len(self._parts) > 1:
            for part in self._parts[1:]:
                check_alike([self._parts[0].index[0], part.index[0]], self.unit)
            self._parts = [pd.concat(self._parts).groupby(level=0, sort=False, observed=True).sum()]
            self._n_pending = 0
        return self._parts[0] if self._parts else pd.Series(dtype=np.int64)


class RowWeights:
    """The weight of each row of a table, by the number of rows of its person.

    Parameters
    ----------
    unit : str
        Name of the column that tells whose row each is.
    rows : Series of int
        By the ids of all persons.
    most : int or None
        As of :func:`weights_of`.

    Attributes
    ----------
    values : ndarray of int64 of shape (n_persons,)
        What each row of a person weighs.
    """

    def __init__(self, unit, rows, most=None):
        self.unit = unit
        self._ids, self.values = rows.index, weights_of(rows.to_numpy(), most)
        self._index()

    def __setstate__(self, state):
        vars(self).update(state)
        self._index()

    def _index(self):
        """Look up a first id, by which pandas makes what threads then share."""
        self._ids.get_indexer(self._ids[:1])

    @property
    def n_persons(self):
        """The number of persons."""
        return len(self._ids)

    def is_like(self, other):
        """Return whether others are of the same persons, in the same order."""
        is_same = self.unit == other.unit and np.array_equal(self.values, other.values)
        return is_same and self._ids.equals(other._ids)

    def persons(self, block):
        """Return the place of the person of each row of a block."""
        places = self._ids.get_indexer(pd.Index(column_of(block, self.unit)))
        if (places < 0).any():
            raise PublicValueError(
                f"X has changed: column {self.unit!r} names persons that were not there before."
            )
        return places
