"""The unit of protection: a person with all of their rows instead of one row."""

from datetime import datetime
from numbers import Number
from typing import Any

import numpy as np
import pandas as pd

from sklearn_dpgen.exceptions import PublicTypeError, PublicValueError
from sklearn_dpgen.utils._checks import call_quietly
from sklearn_dpgen.utils._frames import as_pandas
from sklearn_dpgen.utils._random import NoiseSource

__all__ = [
    "Persons",
    "as_objects",
    "check_alike",
    "check_precision",
    "drop_unit",
    "joined_ids",
    "split_unit",
    "told_apart",
]

# Names of dtypes of NumPy, pandas and Arrow, in lower case.
_SHORT_FLOATS = {"float16", "float32", "halffloat[pyarrow]", "float[pyarrow]"}
_UNIT = "Column {!r} of unit"


class Persons:
    """The assignment of rows to persons; secret except for the number of persons.

    Parameters
    ----------
    ids : array-like of shape (n_rows,)
        Equal for the rows of a person. The values are not stored.
    name : str
        Name of their column, for errors.

    Attributes
    ----------
    codes : ndarray of int of shape (n_rows,)
        The person of each row, from 0.
    n_persons : int
    """

    def __init__(self, ids, name="unit"):
        codes, _ = told_apart(ids, name)
        self.codes = codes.astype(np.int64)
        self.n_persons = int(codes.max()) + 1
        self._sizes = np.bincount(self.codes)
        self._order = np.argsort(self.codes, kind="stable")
        self._starts = np.cumsum(self._sizes) - self._sizes

    @property
    def n_rows(self) -> np.ndarray:
        """The number of rows of the person of each row."""
        return self._sizes[self.codes]

    def shared(self, values: np.ndarray, name: str) -> np.ndarray:
        """Return the common value of the rows of each person.

        Parameters
        ----------
        values : ndarray of shape (n_rows,)
        name : str
            Name of the values, for the error.

        Returns
        -------
        ndarray of shape (n_persons,)

        Raises
        ------
        PublicValueError
            Rows of one person differ.
        """
        first = values[self._order[self._starts]]
        if not np.array_equal(first[self.codes], values):
            raise PublicValueError(
                f"With unit all rows of a person must be of one {name}, as the number of persons "
                "of each is public."
            )
        return first

    def draw(self, noise: NoiseSource, persons: np.ndarray | None = None) -> np.ndarray:
        """Return one row of each person, drawn uniformly.

        Parameters
        ----------
        noise : NoiseSource
            Source of the secret draw.
        persons : ndarray of int, optional
            The persons to draw for; None is all, in order.

        Returns
        -------
        ndarray of int
            Positions of rows. Replacing a person changes one of them, so each person is one record
            for a mechanism.
        """
        persons = np.arange(self.n_persons) if persons is None else persons
        turns = noise.integers(self._sizes[persons], len(persons))
        return self._order[self._starts[persons] + turns]


def told_apart(ids, name="unit", what=_UNIT):
    """Return the codes of ids and the distinct ids.

    Parameters
    ----------
    ids : array-like of shape (n_rows,)
    name : str
        Name of their column, for errors.
    what : str, default="Column {!r} of unit"
        What the column is, for errors.

    Returns
    -------
    codes : ndarray of int of shape (n_rows,)
    found : Index or ndarray

    Raises
    ------
    PublicTypeError
        Ids are not distinguishable, such as numbers of half or single precision.
    PublicValueError
        There are no ids, one is missing, or texts are mixed with other values.
    """
    check_precision(ids, name, what)
    ids = ids if hasattr(ids, "isna") else np.asarray(ids)
    try:
        codes, found = pd.factorize(as_objects(ids) if ids.dtype == object else ids)
    except TypeError:
        found = None
    if found is None:
        # Outside of the handler, whose error could show a value.
        raise PublicTypeError(f"{what.format(name)} must hold texts or numbers.")
    if len(codes) == 0 or codes.min() < 0:
        raise PublicValueError(f"{what.format(name)} must name a person in every row.")
    check_alike(found, name, what)
    return codes, found


def joined_ids(parts):
    """Return the ids of several parts as one index, in which ids that differ stay apart.

    Parameters
    ----------
    parts : list of Series or Index

    Returns
    -------
    Index
        Of the common dtype of all parts, or else of objects: pandas would make integers beside
        floats, also those of a part of objects, floats, which merges integers above 2^53.
    """
    kinds = {part.dtype for part in parts}
    if len(kinds) == 1 and kinds != {np.dtype(object)}:
        first, *others = map(pd.Index, parts)
        return first.append(others)
    return pd.Index(np.concatenate([np.zeros(0, object), *map(as_objects, parts)]), dtype=object)


def as_objects(ids):
    """Return ids as an array of Python objects, whose comparisons round no number."""
    array = np.asarray(ids, dtype=object)
    # Python compares an integer to a float by its value, but NumPy as floats.
    if any(issubclass(kind, np.integer | np.floating) for kind in {*map(type, array.flat)}):
        is_number = [isinstance(value, np.integer | np.floating) for value in array]
        array = array.copy()
        array[is_number] = [value.item() for value in array[is_number]]
    return array


def check_precision(ids, name, what=_UNIT):
    """Refuse floats in which different long ids may be equal, also across chunks."""
    if str(getattr(ids, "dtype", "")).lower() in _SHORT_FLOATS:
        raise PublicTypeError(
            f"{what.format(name)} must hold integers or texts, got floats of less than double "
            "precision, in which different ids can be equal."
        )


def check_alike(ids, name, what=_UNIT):
    """Refuse mixed types of ids, such as texts and numbers, or numbers and dates.

    Chunks of a file may have types of their own: 5 and "5" may be one person, and so may "a" and
    its bytes.
    """
    message = f"{what.format(name)} holds a value that is invalid for its type."
    values = call_quietly(message, np.asarray, ids, object)
    kinds = {_family(kind) for kind in {*map(type, values)}}
    if datetime in kinds:
        # A moment with a time zone is not equal to the same moment without.
        kinds |= {value.tzinfo is None for value in values if isinstance(value, datetime)}
    if len(kinds) > 1 + (datetime in kinds):
        raise PublicValueError(
            f"{what.format(name)} mixes texts with other values, or other types, so that one "
            "person may have two ids: give it one dtype."
        )


def _family(kind):
    """Return the representative of the types whose equal values compare equal."""
    other = Number if issubclass(kind, Number | np.bool_) else kind
    return next((base for base in (str, bytes, datetime) if issubclass(kind, base)), other)


def split_unit(X, unit: str, schema=None):
    """Return records without the column of the unit, and their persons.

    Parameters
    ----------
    X : data frame
    unit : str
        Name of the column.
    schema : Schema or None, default=None
        Schema of the records, which keep a column that it declares as an identifier.

    Returns
    -------
    X : data frame
    persons : Persons

    Raises
    ------
    PublicTypeError
        X is not a data frame.
    PublicValueError
        The column is missing or has missing values.
    """
    X = as_pandas(X)
    if not isinstance(X, pd.DataFrame):
        raise PublicTypeError(f"X must be a data frame, as unit={unit!r} names a column.")
    if unit not in X.columns:
        raise PublicValueError(f"unit must be a column of X, got {unit!r}.")
    ids: Any = X[unit]
    if isinstance(ids, pd.DataFrame):
        raise PublicValueError(f"unit must name one column of X, got {unit!r} for several columns.")
    is_kept = schema is not None and unit in schema
    return X if is_kept else X.drop(columns=unit), Persons(ids, unit)


def drop_unit(X, unit: str):
    """Return records to predict without the column of the unit, if it is there."""
    frame = as_pandas(X)
    if isinstance(frame, pd.DataFrame) and unit in frame.columns:
        return frame.drop(columns=unit)
    return X
