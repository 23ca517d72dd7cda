"""Columns of declared labels: unordered and ordered categories."""

import math
from abc import abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import KW_ONLY, dataclass

import numpy as np
import pandas as pd

from sklearn_dpgen.exceptions import PublicValueError
from sklearn_dpgen.persistence._declarations import saved
from sklearn_dpgen.schema._column import CategoryColumn, check_flags, read_each

_EXACT_INTEGERS = 2**53
# Types whose hash is known to be cheap and safe.
_HASHABLE = {bool, int, float, str, type(None), type(pd.NA), type(pd.NaT)}


class _Labels(CategoryColumn):
    """One of a declared list of labels, encoded one-hot; null is the last category."""

    _rule = "holds a value outside those declared."

    @property
    @abstractmethod
    def labels(self) -> tuple:
        """The declared labels, a tuple of bools, numbers or strings in the order of the code."""

    @property
    def n_categories(self) -> int:
        return len(self.labels) + self.nullable

    def feature_names(self, name: str) -> list[str]:
        labels = [*self.labels, "<null>"] if self.nullable else self.labels
        return [f"{name}={label}" for label in labels]

    @property
    def _kind(self):
        """The common type of the labels: bool, float (any number), str, or object if mixed."""
        kinds = {float if type(label) is int else type(label) for label in self.labels}
        return kinds.pop() if len(kinds) == 1 else object

    @property
    def dtype(self) -> np.dtype | pd.api.extensions.ExtensionDtype:
        kind, labels = self._kind, self.labels
        if kind is str:
            return pd.Series(["label"]).dtype
        if kind is bool and not self.nullable:
            return np.dtype(bool)
        if kind is float:
            if not self.nullable and all(type(v) is int and -(2**63) <= v < 2**63 for v in labels):
                return np.dtype(np.int64)
            if all(abs(v) <= _EXACT_INTEGERS or type(v) is float for v in labels):
                return np.dtype(np.float64)
        return np.dtype(object)

    def _read(self, series, null):
        known = {label: i for i, label in enumerate(self.labels)}

        def read(value):
            # A timedelta equals its number.
            if isinstance(value, np.timedelta64):
                return None
            try:
                return known.get(value)
            except TypeError:  # The value is unhashable.
                return None

        places, values = _distinct(series)
        if places is None:
            plain = set(map(type, series)) <= _HASHABLE
            return read_each(known.get if plain else read, series, null, np.int64)
        found = [read(value) for value in values.astype(object)]
        codes = np.array([-1 if code is None else code for code in [*found, None]])[places]
        return codes, (codes < 0) & ~null

    def _codes(self, values, null):
        return np.where(null, len(self.labels), values)

    def _values(self, codes, rng):
        labels = np.array([*self.labels, None], dtype=object)
        return pd.Series(labels[codes], dtype=self.dtype)


@saved
@dataclass(frozen=True)
class Categorical(_Labels):
    """A column of unordered categories.

    Parameters
    ----------
    categories : sequence of bool, int, float or str
        All possible values, public and distinct: as in Python, True equals 1. A single one
        declares a constant. Not a set, which has no fixed order.
    nullable : bool, default=False
        Adds null as the last category.

    Examples
    --------
    >>> from sklearn_dpgen.schema import Categorical
    >>> Categorical(["no", "yes"]).domain
    OneHot(n_categories=2)
    """

    categories: Sequence
    _: KW_ONLY
    nullable: bool = False

    def __post_init__(self):
        check_flags(self, "nullable")
        labels = _as_labels(self.categories, "categories")
        object.__setattr__(self, "categories", labels)

    @property
    def labels(self) -> tuple:
        return tuple(self.categories)


@saved
@dataclass(frozen=True)
class Ordinal(_Labels):
    """A column of ordered values, numbers or labels.

    Parameters
    ----------
    values : sequence of bool, int, float or str
        All possible values, public and distinct, from first to last. A single one declares a
        constant.
    nullable : bool, default=False
        Adds null as the last category, outside the order.
    """

    values: Sequence
    _: KW_ONLY
    nullable: bool = False

    def __post_init__(self):
        check_flags(self, "nullable")
        object.__setattr__(self, "values", _as_labels(self.values, "values"))

    @property
    def labels(self) -> tuple:
        return tuple(self.values)


def _distinct(series):
    """Return the distinct values, and the index of each value among them, -1 for a null.

    Values that are looked up as fast as they are made distinct are returned without indices. So
    are long doubles, which pandas would compare as doubles.
    """
    dtype = series.dtype
    if isinstance(dtype, pd.CategoricalDtype):
        return series.cat.codes.to_numpy(), series.cat.categories
    is_text = isinstance(dtype, pd.StringDtype) and dtype.storage != "python"
    kind = getattr(dtype, "numpy_dtype", dtype)
    is_number = isinstance(kind, np.dtype) and kind.kind in "biuf" and kind.itemsize <= 8
    return series.array.factorize() if is_text or is_number else (None, series)


def _as_labels(labels, field):
    if isinstance(labels, str) or not isinstance(labels, Iterable):
        raise PublicValueError(f"{field} must be a sequence of labels.")
    if isinstance(labels, set | frozenset):
        # The order of strings in a set differs between processes.
        raise PublicValueError(f"{field} must be in a fixed order, got a set: pass a list.")
    labels = tuple(v.item() if isinstance(v, np.generic) else v for v in labels)
    for label in labels:
        if type(label) not in (bool, int, float, str):
            raise PublicValueError(f"{field} must be bools, numbers or strings, got {label!r}.")
        if isinstance(label, float) and not math.isfinite(label):
            raise PublicValueError(
                f"{field} must be finite; declare the column nullable for nulls."
            )
    if len(set(labels)) < len(labels):
        raise PublicValueError(f"{field} must be distinct (True equals 1, and 1 equals 1.0).")
    if not labels:
        raise PublicValueError(f"{field} must have at least one label.")
    return labels
