"""Records in two parts: those that train, and those that score.

The parts are drawn at random, once for all runs, apart from what is in the records; all rows of a
person are in one part. For neighbours, pair up the draws in which the record that is replaced, or
the person, is in the same part in both. What is shown for each pair of draws bounds the divergence
of what both draws of the parts make on average, which is convex in the two laws together.
"""

import numpy as np
from sklearn.utils import _safe_indexing

from sklearn_dpgen.ledger._unit import Persons, split_unit
from sklearn_dpgen.utils._validation import call_quietly, num_samples

__all__ = ["Records"]


class Records:
    """Private records of which each unit, a row or a person, is in one part.

    Parameters
    ----------
    X : data frame or array-like of shape (n_rows, n_columns)
    y : array-like of shape (n_rows,) or None
    unit : str or None
        The column of X that says which rows are of one person.
    schema : Schema or None, default=None
        Of the records: they keep a column of the unit that it declares.

    Attributes
    ----------
    n_units : int
        Number of rows, or of persons.
    n_features : int
        Number of columns, without that of the unit unless the schema has it.
    beside : str or None
        The column of the unit, unless the schema has it.

    Raises
    ------
    TypeError
        X has rows without positions, as chunks have, or is no frame where there is a unit.
    ValueError
        It lacks the column of the unit.
    """

    def __init__(self, X, y, unit=None, schema=None):
        if not hasattr(X, "__len__"):
            raise TypeError("X must be a data frame or an array, whose rows have positions.")
        n_rows = num_samples(X)
        if y is not None and num_samples(y) != n_rows:
            raise ValueError(
                f"y must have a value for each of {n_rows} rows, got {num_samples(y)}."
            )
        self._X, self._y = X, y
        self.beside = None if unit in (schema or ()) else unit
        self._persons = np.arange(n_rows) if unit is None else split_unit(X, unit)[1].codes
        self.n_units = int(self._persons.max()) + 1 if n_rows else 0
        rule = "X must be a table, or rows of one length."
        shape = getattr(X, "shape", None) or call_quietly(rule, np.shape, X)
        self.n_features = shape[1] - (self.beside is not None) if len(shape) == 2 else 1

    def split(self, n_scored, noise):
        """Return the records that train, those that score, and what the rows of the latter weigh.

        Parameters
        ----------
        n_scored : int
            How many units score.
        noise : NoiseSource

        Returns
        -------
        training, scored : tuple of X and y
            The first with the column of the unit, the second without it.
        weights : ndarray
            Of scored rows: one over the rows of its unit, and over the number of units.
        """
        is_scored = np.zeros(self.n_units, dtype=bool)
        is_scored[noise.choice(self.n_units, n_scored)] = True
        rows = is_scored[self._persons]
        training, scored = self._rows(np.flatnonzero(~rows)), self._rows(np.flatnonzero(rows))
        if self.beside is not None:
            scored = (scored[0].drop(columns=self.beside), scored[1])
        weights = np.empty(0)
        if n_scored:
            weights = 1 / (Persons(self._persons[rows]).n_rows * n_scored)
        return training, scored, weights

    def _rows(self, positions):
        return tuple(
            part if part is None else _safe_indexing(part, positions) for part in (self._X, self._y)
        )
