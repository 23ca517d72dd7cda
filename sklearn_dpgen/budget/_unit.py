"""Who is protected: a person with all of their rows, in place of one row."""

import numpy as np
import pandas as pd

from sklearn_dpgen.utils._random import NoiseSource

__all__ = ["Persons", "drop_unit", "split_unit"]


class Persons:
    """Which rows are of which person. What is asked of it is secret, but for the number of persons.

    Parameters
    ----------
    ids : array-like of shape (n_rows,)
        Equal for the rows of one person. The values are not kept.
    name : str
        Of their column, for errors.

    Attributes
    ----------
    codes : ndarray of int of shape (n_rows,)
        The person of each row, from 0.
    n_persons : int
    """

    def __init__(self, ids, name="unit"):
        try:
            codes, found = pd.factorize(np.asarray(ids) if not hasattr(ids, "isna") else ids)
        except TypeError:
            found = None
        if found is None:
            # Outside of the handler, whose error could show a value.
            raise TypeError(f"Column {name!r} of unit must hold texts or numbers.")
        if len(codes) == 0 or codes.min() < 0:
            raise ValueError(f"Column {name!r} of unit must name a person in every row.")
        # As of a file whose chunks are read with types of their own: 5 and "5" may be one person.
        if len({isinstance(value, str | bytes) for value in np.asarray(found, dtype=object)}) > 1:
            raise ValueError(
                f"Column {name!r} of unit mixes texts with other values, by which one person may "
                "be two: give it one dtype."
            )
        self.codes = codes.astype(np.int64)
        self.n_persons = int(codes.max()) + 1
        self._sizes = np.bincount(self.codes)
        self._order = np.argsort(self.codes, kind="stable")
        self._starts = np.cumsum(self._sizes) - self._sizes

    @property
    def shares(self) -> np.ndarray:
        """One over the number of rows of its person, for each row."""
        return 1 / self._sizes[self.codes]

    def shared(self, values: np.ndarray, name: str) -> np.ndarray:
        """Return what all rows of a person have in common, for each person.

        Parameters
        ----------
        values : ndarray of shape (n_rows,)
        name : str
            What they are, for the error.

        Returns
        -------
        ndarray of shape (n_persons,)

        Raises
        ------
        ValueError
            Rows of one person differ.
        """
        first = values[self._order[self._starts]]
        if not np.array_equal(first[self.codes], values):
            raise ValueError(
                f"With unit all rows of a person must be of one {name}, as the number of persons "
                "of each is public."
            )
        return first

    def draw(self, noise: NoiseSource, persons: np.ndarray | None = None) -> np.ndarray:
        """Return one row of each person, drawn uniformly.

        Parameters
        ----------
        noise : NoiseSource
            The draw is secret.
        persons : ndarray of int, optional
            Of which persons; None for each of all, in order.

        Returns
        -------
        ndarray of int
            Positions of rows. A person who is replaced moves one of them, and no other: to a
            mechanism each person is one record.
        """
        persons = np.arange(self.n_persons) if persons is None else persons
        turns = (noise.uniform(persons.shape) * self._sizes[persons]).astype(np.int64)
        return self._order[self._starts[persons] + turns]

    def limited(self, most: int, noise: NoiseSource) -> np.ndarray:
        """Return at most so many rows of each person, drawn uniformly without replacement.

        Parameters
        ----------
        most : int
        noise : NoiseSource

        Returns
        -------
        ndarray of int
            Positions of rows, increasing. To be drawn once: draws anew for several passes would
            show more rows of a person.
        """
        keys = noise.uniform(len(self.codes))
        ranked = np.lexsort((keys, self.codes))
        rank = np.arange(len(ranked)) - np.repeat(self._starts, self._sizes)
        return np.sort(ranked[rank < most])


def split_unit(X, unit: str):
    """Return records without the column of the unit, and who they are of.

    Parameters
    ----------
    X : data frame
    unit : str
        Name of the column.

    Returns
    -------
    X : data frame
    persons : Persons

    Raises
    ------
    TypeError
        X is no data frame.
    ValueError
        It lacks the column, or a row has no value in it.
    """
    if not isinstance(X, pd.DataFrame):
        raise TypeError(f"unit={unit!r} names a column: X must be a data frame.")
    if unit not in X.columns:
        raise ValueError(f"X lacks the column {unit!r} that unit names.")
    ids = X[unit]
    if isinstance(ids, pd.DataFrame):
        raise ValueError(f"X has several columns {unit!r}: unit must name one.")
    return X.drop(columns=unit), Persons(ids, unit)


def drop_unit(X, unit: str):
    """Return records to predict without the column of the unit, if it is there."""
    return X.drop(columns=unit) if isinstance(X, pd.DataFrame) and unit in X.columns else X
