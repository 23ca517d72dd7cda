"""Columns of declared labels: unordered and ordered categories."""

import math
from abc import abstractmethod
from collections.abc import Iterable
from dataclasses import KW_ONLY, dataclass

import numpy as np
import pandas as pd
from pandas.api import types

from sklearn_dpgen.domains import OneHot
from sklearn_dpgen.schema._column import CategoryColumn, check_flags, container_error

_KIND_NAMES = {bool: "boolean", float: "number", str: "string", object: "mixed"}


class _Labels(CategoryColumn):
    """One of a declared list of labels, encoded one-hot; a nullable column puts null last."""

    @property
    @abstractmethod
    def labels(self):
        """The declared labels, a tuple of bools, numbers or strings in the order of the code."""

    @property
    @abstractmethod
    def _ordered(self):
        """Whether the order of the labels means something."""

    @property
    def domain(self):
        return OneHot(len(self.labels) + self.nullable)

    def feature_names(self, name):
        labels = [*self.labels, "<null>"] if self.nullable else self.labels
        return [f"{name}={label}" for label in labels]

    @property
    def _kind(self):
        """The common type of the labels: bool, float (any number), str, or object if mixed."""
        kinds = {float if type(label) is int else type(label) for label in self.labels}
        return kinds.pop() if len(kinds) == 1 else object

    @property
    def _whole(self):
        return self._kind in (bool, float) and all(float(v).is_integer() for v in self.labels)

    @property
    def _default_dtype(self):
        if self._kind is str:
            return pd.Series(["label"]).dtype
        if self._kind is float:
            whole = not self.nullable and all(type(label) is int for label in self.labels)
            return np.dtype(np.int64 if whole else np.float64)
        return np.dtype(bool if self._kind is bool and not self.nullable else object)

    def decoded_dtype(self, dtype=None, *, name=None):
        default = self._default_dtype
        if dtype is None:
            return default
        if isinstance(dtype, pd.CategoricalDtype):
            # The categories of the container came from the records; these are declared.
            return pd.CategoricalDtype(list(self.labels), ordered=self._ordered)
        if types.is_object_dtype(dtype):
            return default if self.nullable and self._kind is float else dtype
        if types.is_string_dtype(dtype):
            holds, keeps = self._kind is not float and self._kind is not bool, self._kind is str
        elif types.is_bool_dtype(dtype):
            holds = self._kind is not str
            keeps = self._whole and set(self.labels) <= {0, 1}
        elif types.is_integer_dtype(dtype):
            holds, keeps = self._kind is not str, self._whole and self._fits(dtype)
        else:
            # A chunk of nulls alone is held as floats.
            holds = types.is_float_dtype(dtype) and (self.nullable or self._kind is not str)
            keeps = self._kind in (bool, float)
        if not holds:
            raise container_error(name, f"with {_KIND_NAMES[self._kind]} labels", dtype)
        # NumPy changes the dtype of a column when a null occurs, and so does a rarer label of
        # another type: the declaration alone decides where the container could tell.
        nullable_numpy = self.nullable and not types.is_extension_array_dtype(dtype)
        return dtype if keeps and not nullable_numpy else default

    def _fits(self, dtype):
        info = np.iinfo(getattr(dtype, "numpy_dtype", dtype))
        return info.min <= min(self.labels) and max(self.labels) <= info.max

    def _codes(self, series, null):
        places, values = _distinct(series)
        labels = pd.Index(self.labels, dtype=object)
        codes = labels.get_indexer(pd.Index(values.astype(object), dtype=object))
        if places is not None:
            codes = np.append(codes, -1)[places]
        codes[null] = len(self.labels)
        if (codes < 0).any():
            raise ValueError(f"Column {series.name!r} holds a value outside those declared.")
        return codes

    def _decode(self, array, dtype, rng):
        labels = np.array([*self.labels, None], dtype=object)
        return pd.Series(labels[np.argmax(array, axis=1)], dtype=dtype)


@dataclass(frozen=True)
class Categorical(_Labels):
    """A column of unordered categories.

    Parameters
    ----------
    categories : sequence of bool, int, float or str
        All the values that can occur, public and distinct: as in Python, True equals 1. At
        least 2, counting the null.
    nullable : bool, default=False
        A null is one more category, the last.

    Examples
    --------
    >>> from sklearn_dpgen.schema import Categorical
    >>> Categorical(["no", "yes"]).domain
    OneHot(n_categories=2)
    """

    categories: tuple
    _: KW_ONLY
    nullable: bool = False

    def __post_init__(self):
        check_flags(self, "nullable")
        labels = _as_labels(self.categories, "categories", self.nullable)
        object.__setattr__(self, "categories", labels)

    @property
    def labels(self):
        return self.categories

    @property
    def _ordered(self):
        return False


@dataclass(frozen=True)
class Ordinal(_Labels):
    """A column of ordered values, numbers or labels.

    Parameters
    ----------
    values : sequence of bool, int, float or str
        All the values that can occur, public and distinct, from first to last. At least 2,
        counting the null.
    nullable : bool, default=False
        A null is one more category, the last, outside the order.
    """

    values: tuple
    _: KW_ONLY
    nullable: bool = False

    def __post_init__(self):
        check_flags(self, "nullable")
        object.__setattr__(self, "values", _as_labels(self.values, "values", self.nullable))

    @property
    def labels(self):
        return self.values

    @property
    def _ordered(self):
        return True


def _distinct(series):
    """Return the distinct values, and the place of each value among them, -1 for a null.

    Python objects stay as they are, without places: to tell them apart is to look each up. So do
    long doubles, which pandas tells apart as doubles.
    """
    dtype = series.dtype
    if isinstance(dtype, pd.CategoricalDtype):
        return series.cat.codes.to_numpy(), series.cat.categories
    are_objects = types.is_object_dtype(dtype) or getattr(dtype, "storage", None) == "python"
    if are_objects or getattr(dtype, "itemsize", 0) > 8:
        return None, series
    return series.array.factorize()


def _as_labels(labels, field, nullable):
    if isinstance(labels, str) or not isinstance(labels, Iterable):
        raise ValueError(f"{field} must be a sequence of labels.")
    labels = tuple(v.item() if isinstance(v, np.generic) else v for v in labels)
    for label in labels:
        if type(label) not in (bool, int, float, str):
            raise ValueError(f"{field} must be bools, numbers or strings, got {label!r}.")
        if isinstance(label, float) and not math.isfinite(label):
            raise ValueError(f"{field} must be finite; declare the column nullable for a null.")
    if len(set(labels)) < len(labels):
        raise ValueError(f"{field} must be distinct (True equals 1, and 1 equals 1.0).")
    if len(labels) < (1 if nullable else 2):
        raise ValueError(f"{field} must offer at least 2 choices, counting the null.")
    return labels
