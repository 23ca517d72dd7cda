"""Columns of which no record is read: what they hold is made up when records are drawn."""

from abc import abstractmethod
from dataclasses import dataclass

import numpy as np
import pandas as pd

from sklearn_dpgen.exceptions import PublicValueError
from sklearn_dpgen.persistence._declarations import saved
from sklearn_dpgen.schema._column import CategoryColumn, Column


class MadeUpColumn(CategoryColumn):
    """A column whose values are never looked at: to what reads records, a constant."""

    nullable = False
    _rule = "is made up."

    @property
    def n_categories(self) -> int:
        return 1

    def feature_names(self, name: str) -> list[str]:
        return [f"{name}=<made up>"]

    @abstractmethod
    def made_up(self, n: int) -> pd.Series:
        """Return ``n`` values, a series of ``dtype``."""

    def _read_quietly(self, series):
        values = np.zeros(len(series), dtype=np.int64)
        return values, np.zeros(len(series), dtype=bool), np.zeros(len(series), dtype=bool)

    def _read(self, series, null):
        raise NotImplementedError("Its values are never read.")

    def _codes(self, values, null):
        return values

    def _values(self, codes, rng):
        return self.made_up(len(codes))


@saved
@dataclass(frozen=True)
class Identifier(MadeUpColumn):
    """A column of keys, such as names of persons: never read, and made up in samples.

    Parameters
    ----------
    prefix : str or None, default=None
        Keys are the numbers 0, 1, 2, ..., or texts: this, then the number.

    Examples
    --------
    >>> from sklearn_dpgen.schema import Identifier
    >>> Identifier("patient ").made_up(2).tolist()
    ['patient 0', 'patient 1']
    """

    prefix: str | None = None

    def __post_init__(self):
        if self.prefix is not None and not isinstance(self.prefix, str):
            raise PublicValueError("prefix must be a string or None.")

    @property
    def dtype(self) -> np.dtype | pd.api.extensions.ExtensionDtype:
        return np.dtype(np.int64) if self.prefix is None else pd.Series([self.prefix]).dtype

    def made_up(self, n: int) -> pd.Series:
        """Return the first keys.

        Parameters
        ----------
        n : int

        Returns
        -------
        Series of shape (n,)
        """
        numbers = range(n)
        keys = numbers if self.prefix is None else [f"{self.prefix}{i}" for i in numbers]
        return pd.Series(keys, dtype=self.dtype)


@saved
@dataclass(frozen=True)
class Derived(MadeUpColumn):
    """A column that a rule makes of others; until it does, a value that says nothing.

    Parameters
    ----------
    column : Column
        As it is declared.
    """

    _saved_state = {"column": Column}

    column: Column

    @property
    def dtype(self):
        return self.column.dtype

    def made_up(self, n: int) -> pd.Series:
        return self.column.decode(np.zeros((n, self.column.domain.n_features)))
