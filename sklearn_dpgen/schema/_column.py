"""What every column of a schema offers."""

from abc import ABC, abstractmethod

import numpy as np
import pandas as pd
from pandas.api import types


class Column(ABC):
    """A declared column: its domain, and the way from a series to that domain and back."""

    @property
    @abstractmethod
    def domain(self):
        """The public set that an encoded value lies in, a Domain."""

    @abstractmethod
    def feature_names(self, name):
        """Return the names of the encoded features of a column called ``name``."""

    @abstractmethod
    def decoded_dtype(self, dtype=None, *, name=None):
        """Return the dtype that `decode` gives for a container.

        Parameters
        ----------
        dtype : dtype, optional
            The dtype of the series that values come from, taken as public; by default the
            declaration alone decides.
        name : str, optional
            Named in errors.

        Returns
        -------
        dtype
            Never dependent on the categories that occur, nor on whether a null occurs in a
            nullable column held in a NumPy container.

        Raises
        ------
        ValueError
            If such a container cannot hold the declared values.
        """

    @abstractmethod
    def _encode(self, series, null):
        """Encode a series with the mask of its nulls."""

    @abstractmethod
    def _decode(self, array, dtype, rng):
        """Return decoded values, a series of ``dtype``."""

    def encode(self, series):
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
            If values are missing in a column not declared nullable, are of another type, or
            fall outside the declared categories. Numbers and dates out of bounds are clipped.
        """
        return self._encode(*self._with_nulls(series))

    def decode(self, array, *, dtype=None, name=None, index=None, rng=None):
        """Decode points into values of the column, clipped and rounded as declared.

        Parameters
        ----------
        array : ndarray of shape (n, domain.n_features)
            Finite; not necessarily in the domain.
        dtype : dtype, optional
            The container, as in `decoded_dtype`.
        name, index : optional
            Of the returned series.
        rng : numpy.random.Generator or NoiseSource, optional
            Places values uniformly within public bins; by default they are in the middle.

        Returns
        -------
        Series of shape (n,)
        """
        series = self._decode(array, self.decoded_dtype(dtype, name=name), rng)
        series.name = name
        if index is not None:
            series.index = index
        return series

    def _with_nulls(self, series):
        """Return values as a series that can hold them, and the mask of its nulls."""
        series = series if isinstance(series, pd.Series) else pd.Series(series)
        self.decoded_dtype(series.dtype, name=series.name)
        null = series.isna().to_numpy(dtype=bool)
        if types.is_float_dtype(series.dtype):
            # A masked array may hold NaN beside its nulls.
            null = null | np.isnan(series.to_numpy(dtype=np.float64, na_value=np.nan))
        if null.any() and not self.nullable:
            raise ValueError(f"Column {series.name!r} has missing values but is not nullable.")
        return series, null


class CategoryColumn(Column):
    """A column encoded as one of finitely many categories, one-hot; null is the last."""

    @abstractmethod
    def _codes(self, series, null):
        """Return the category of each value of a series with the mask of its nulls."""

    def codes(self, series):
        """Return the category of each value: where `encode` puts its one.

        Parameters
        ----------
        series : Series of shape (n,)

        Returns
        -------
        ndarray of int64 of shape (n,)
            Each at least 0 and below ``domain.n_features``.

        Raises
        ------
        ValueError
            As `encode`.
        """
        return self._codes(*self._with_nulls(series)).astype(np.int64, copy=False)

    def _encode(self, series, null):
        codes = self._codes(series, null)
        encoded = np.zeros((len(codes), self.domain.n_features))
        encoded[np.arange(len(codes)), codes] = 1
        return encoded


def container_error(name, declared, dtype):
    """Return the error of a container that cannot hold the declared values."""
    return ValueError(f"Column {name!r} is declared {declared}, which dtype {dtype} cannot hold.")


def check_flags(column, *names):
    """Check that the named fields are bools."""
    for name in names:
        if not isinstance(getattr(column, name), bool):
            raise ValueError(f"{name} must be True or False.")
