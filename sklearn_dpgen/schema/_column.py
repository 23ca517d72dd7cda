"""What every column of a schema offers."""

from abc import ABC, abstractmethod
from collections.abc import Hashable
from decimal import Decimal
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
from pandas.api import types

from sklearn_dpgen.domains import Domain, OneHot
from sklearn_dpgen.exceptions import PublicValueError
from sklearn_dpgen.utils._random import NoiseSource
from sklearn_dpgen.utils._validation import call_quietly


class Column(ABC):
    """A declared column: its domain, and the way from a series to that domain and back.

    Every value is encoded by itself: whether it is accepted, and what it becomes, depends on it
    and on the declaration, never on the other values or on the dtype that holds them.
    """

    if TYPE_CHECKING:
        # Fields in some columns, properties in others.
        @property
        @abstractmethod
        def nullable(self) -> bool: ...

        # The end of the error about a value that cannot be read.
        @property
        @abstractmethod
        def _rule(self) -> str: ...

    @property
    @abstractmethod
    def domain(self) -> Domain:
        """The public set that an encoded value lies in, a Domain."""

    @property
    def is_constant(self) -> bool:
        """Whether there is a single category."""
        return self.domain == OneHot(1)

    @property
    @abstractmethod
    def dtype(self) -> np.dtype | pd.api.extensions.ExtensionDtype:
        """The dtype of decoded values: the declaration alone decides."""

    @abstractmethod
    def feature_names(self, name: str) -> list[str]:
        """Return the names of the encoded features of a column called ``name``."""

    @abstractmethod
    def _read(self, series, null):
        """Return what values are read as, and the mask of those that cannot be read.

        At a null, of which the mask is given, the first is anything and the second False.
        """

    @abstractmethod
    def _encode(self, values, null):
        """Encode values that were read."""

    @abstractmethod
    def _decode(self, array, rng):
        """Return decoded values, a series of ``dtype``."""

    def encode(self, series: pd.Series) -> np.ndarray:
        """Encode values into the domain.

        Parameters
        ----------
        series : Series of shape (n,)

        Returns
        -------
        ndarray of shape (n, domain.n_features), float64

        Raises
        ------
        ValueError
            If a value is missing in a column not declared nullable, is of another type, or
            falls outside the declared categories. Numbers and dates out of bounds are clipped.
        """
        return self._encode(*self._checked(series))

    def decode(
        self,
        array: np.ndarray,
        *,
        name: Hashable | None = None,
        rng: np.random.Generator | NoiseSource | None = None,
    ) -> pd.Series:
        """Decode points into values of the column, clipped and rounded as declared.

        Parameters
        ----------
        array : ndarray of shape (n, domain.n_features)
            Finite; not necessarily in the domain.
        name : optional
            Of the returned series.
        rng : numpy.random.Generator or NoiseSource, optional
            Places values uniformly within public bins; by default they are in the middle.

        Returns
        -------
        Series of shape (n,), of ``dtype``
        """
        return self._decode(array, rng).rename(name)

    def _checked(self, series):
        """Return values as they are read, and the mask of their nulls."""
        series = series if isinstance(series, pd.Series) else pd.Series(series, dtype=object)
        values, bad, null = self._read_quietly(series)
        if null.any() and not self.nullable:
            raise PublicValueError(
                f"Column {series.name!r} has missing values but is not nullable."
            )
        if bad.any():
            raise PublicValueError(f"Column {series.name!r} {self._rule}")
        return values, null

    def _read_quietly(self, series):
        """Return what `_read` does, and the mask of the nulls; an error shows no value."""

        def read():
            null = find_nulls(series)
            return *self._read(series, null), null

        return call_quietly(f"Column {series.name!r} {self._rule}", read)


class CategoryColumn(Column):
    """A column encoded as one of finitely many categories, one-hot; null is the last."""

    @property
    @abstractmethod
    def n_categories(self) -> int:
        """The number of categories, the null among them."""

    @abstractmethod
    def _codes(self, values, null):
        """Return the category of each value that was read."""

    @abstractmethod
    def _values(self, codes, rng):
        """Return a value of each category, a series of ``dtype``."""

    @property
    def domain(self) -> OneHot:
        return OneHot(self.n_categories)

    def codes(self, series: pd.Series) -> np.ndarray:
        """Return the category of each value: where `encode` puts its one.

        Parameters
        ----------
        series : Series of shape (n,)

        Returns
        -------
        ndarray of int64 of shape (n,)
            Each at least 0 and below ``n_categories``.

        Raises
        ------
        ValueError
            As `encode`.
        """
        return self._codes(*self._checked(series)).astype(np.int64, copy=False)

    def decode_codes(
        self,
        codes: np.ndarray,
        *,
        name: Hashable | None = None,
        rng: np.random.Generator | NoiseSource | None = None,
    ) -> pd.Series:
        """Decode categories into values of the column.

        Parameters
        ----------
        codes : ndarray of int of shape (n,)
            Each at least 0 and below ``n_categories``.
        name : optional
            Of the returned series.
        rng : numpy.random.Generator or NoiseSource, optional
            As for `decode`.

        Returns
        -------
        Series of shape (n,), of ``dtype``

        Raises
        ------
        ValueError
            Codes that are no category.
        """
        codes = np.asarray(codes)
        is_integer = codes.ndim == 1 and codes.dtype.kind in "iu"
        if not is_integer or len(codes) and not 0 <= codes.min() <= codes.max() < self.n_categories:
            raise PublicValueError(
                f"Column {name!r} has the categories 0 to {self.n_categories - 1}: codes must be "
                "integers among them."
            )
        return self._values(codes, rng).rename(name)

    def _decode(self, array, rng):
        return self._values(np.argmax(array, axis=1), rng)

    def _encode(self, values, null):
        codes = self._codes(values, null)
        encoded = np.zeros((len(codes), self.domain.n_features))
        encoded[np.arange(len(codes)), codes] = 1
        return encoded


def find_nulls(series):
    """Return the mask of the missing values of a series."""
    if isinstance(series.dtype, np.dtype) and series.dtype.kind == "f":
        return np.isnan(series.to_numpy())
    try:
        null = series.isna().to_numpy(dtype=bool)
    except ArithmeticError:
        # A signaling NaN does not let itself be compared.
        return np.array([_is_null(value) for value in series], dtype=bool)
    if types.is_float_dtype(series.dtype):
        # A masked array may hold NaN beside its nulls.
        null = null | np.isnan(series.to_numpy(dtype=np.float64, na_value=np.nan))
    return null


def _is_null(value):
    if isinstance(value, Decimal):
        return value.is_nan()
    return types.is_scalar(value) and bool(pd.isna(value))


def read_each(read, series, null, dtype):
    """Read Python objects one by one.

    Parameters
    ----------
    read : callable
        From an object to what it is read as, None if it cannot be.
    series : Series of shape (n,)
    null : ndarray of bool of shape (n,)
        Where objects are not read.
    dtype : dtype
        Of what is read.

    Returns
    -------
    values : ndarray of shape (n,)
        Zero where nothing is read.
    bad : ndarray of bool of shape (n,)
    """
    found = list(map(read, series[~null].to_numpy(dtype=object)))
    bad = np.zeros(len(null), dtype=bool)
    if None in found:
        bad[~null] = [value is None for value in found]
        found = [0 if value is None else value for value in found]
    values = np.zeros(len(null), dtype=dtype)
    values[~null] = found
    return values, bad


def given_as(value):
    """Return how a declared value is shown: by its type, where it could hold records."""
    if isinstance(value, str):
        return f"the text {value!r}" if len(value) <= 50 else "a long text"
    if value is Ellipsis:
        return "..., which is to be declared"
    if value is None or isinstance(value, bool | float):
        return repr(value)
    if type(value) is int:
        return repr(value) if abs(value) < 10**50 else "an integer of many digits"
    return f"a {type(value).__name__}"


def check_flags(column, *names):
    """Check that the named fields are bools."""
    for name in names:
        if not isinstance(getattr(column, name), bool):
            raise PublicValueError(f"{name} must be True or False.")
