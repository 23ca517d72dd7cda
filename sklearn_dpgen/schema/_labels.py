"""Columns of labels: unordered and ordered categories, and open sets of labels."""

import math
from abc import abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field, replace
from functools import cached_property
from itertools import pairwise
from typing import Self

import numpy as np
import pandas as pd

from sklearn_dpgen.exceptions import PublicValueError
from sklearn_dpgen.persistence._declarations import Maybe, saved
from sklearn_dpgen.schema._column import (
    CategoryColumn,
    check_description,
    check_flags,
    check_missing,
    code_key,
    codes_field,
    description_field,
    distinct,
    given_as,
    read_each,
)
from sklearn_dpgen.utils._checks import Integral, Real, call_quietly

_EXACT_INTEGERS = 2**53
_MOST_SHOWN = 5
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

    @property
    def has_integers_beside_nulls(self) -> bool:
        """Whether values are integers of 64 bits or null, which are others in ``dtype``."""
        fits = all(type(v) is int and -(2**63) <= v < 2**63 for v in self.labels)
        return self.nullable and fits

    def _check_codes(self, labels):
        both = [label for label in labels if code_key(label) in self._code_keys]
        if both:
            raise PublicValueError(f"missing must not list categories, got {both[:5]}.")

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

        places, values = distinct(series)
        if places is None:
            plain = set(map(type, series)) <= _HASHABLE
            return read_each(known.get if plain else read, series, null, np.int64)
        found = [read(value) for value in values.astype(object)]
        codes = np.array([-1 if code is None else code for code in [*found, None]])[places]
        return codes, (codes < 0) & ~null

    def _codes(self, values, null):
        return np.where(null, len(self.labels), values)

    def to_texts(self, values: pd.Series) -> pd.Series:
        if self._kind is not float or values.dtype.kind != "f":
            return values.astype("Int64") if self.has_integers_beside_nulls else values
        # Nulls and fractions turn integers into floats.
        labels = {float(label): label for label in self.labels}
        found = [labels.get(value, value) for value in values]
        return pd.Series(found, index=values.index, name=values.name, dtype=object)

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
    missing : sequence of int, float or str, default=()
        Codes that mean null in records, such as -999 or "unknown"; the column is then nullable.
    hierarchy : sequence of int, or mapping of label to sequence of str, or None, default=None
        Public groups of labels in one or several levels, such as the chapters of a classification.
        Ascending lengths of prefixes that name groups, as ``[1, 3]`` for "K52.9" in "K52" in "K";
        or for each label the names of its groups, from the widest down, as many as it has. The same
        sequences in the order of ``categories`` are accepted too.
    description : str, optional
        What the column holds, a public text.

    Attributes
    ----------
    categories : tuple
        With a hierarchy they are reordered, so that each group is contiguous: groups are in the
        order in which they first occur, and so are the labels in a group.
    hierarchy : tuple of int, tuple of tuple of str, or None
        The names of the groups of each label, in the order of ``categories``.

    Notes
    -----
    :class:`~sklearn_dpgen.tables.TableSampler` counts a hierarchy from the widest groups down, as
    far as the noise allows. Other estimators use the labels alone.

    Examples
    --------
    >>> from sklearn_dpgen.schema import Categorical
    >>> Categorical(["no", "yes"]).domain
    OneHot(n_categories=2)
    >>> codes = Categorical(["A01", "B20", "A02", "A15"], hierarchy=[1, 2])
    >>> codes.categories
    ('A01', 'A02', 'A15', 'B20')
    >>> [groups.tolist() for groups in codes.groups]
    [[0, 0, 0, 1], [0, 0, 1, 2]]
    """

    # Files of earlier releases have no hierarchies.
    _saved_state = {
        "categories": tuple,
        "nullable": bool,
        "missing": Maybe(tuple),
        "hierarchy": Maybe(tuple | None),
        "description": Maybe(str),
    }

    categories: Sequence
    _: KW_ONLY
    nullable: bool = False
    missing: Sequence = codes_field()
    # The meaning of local answers depends on the order of the labels alone.
    hierarchy: Sequence | Mapping | None = field(default=None, metadata={"in_likelihood": False})
    description: str | None = description_field()

    def __post_init__(self):
        check_flags(self, "nullable")
        check_description(self)
        check_missing(self)
        labels = _as_labels(self.categories, "categories")
        self._check_codes(labels)
        hierarchy = self.hierarchy
        if hierarchy is not None:
            labels, hierarchy = _grouped(labels, _as_hierarchy(hierarchy, labels))
        object.__setattr__(self, "categories", labels)
        object.__setattr__(self, "hierarchy", hierarchy)

    @property
    def labels(self) -> tuple:
        return tuple(self.categories)

    @cached_property
    def groups(self) -> tuple[np.ndarray, ...]:
        """The group of each category at each level of the hierarchy, from the widest down.

        Groups are contiguous and numbered in order. A label without a group at a level, and null,
        is a group of its own. Levels that separate all labels, none, or the same as the level
        above are left out.
        """
        if self.hierarchy is None:
            return ()
        levels: list[np.ndarray] = []
        paths = _paths(self.categories, self.hierarchy)
        for depth in range(1, max(map(len, paths), default=0) + 1):
            names = [tuple(path[:depth]) for path in paths]
            # A shorter path ends in the label alone.
            is_new = [
                i == 0 or names[i] != names[i - 1] or len(names[i]) < depth
                for i in range(len(names))
            ]
            groups = np.cumsum(is_new) - 1
            n_above = levels[-1].max() + 1 if levels else 1
            if n_above < groups[-1] + 1 < len(groups):
                levels.append(groups)
        return tuple(np.append(g, [g[-1] + 1] * self.nullable).astype(np.int64) for g in levels)


@saved
@dataclass(frozen=True)
class Ordinal(_Labels):
    """A column of ordered values, numbers or labels.

    Parameters
    ----------
    categories : sequence of bool, int, float or str
        All possible values, public and distinct, from first to last. A single one declares a
        constant.
    nullable : bool, default=False
        Adds null as the last category, outside the order.
    missing : sequence of int, float or str, default=()
        Codes that mean null in records, such as -999 or "unknown"; the column is then nullable.
    description : str, optional
        What the column holds, a public text.
    """

    # The word of all releases for the categories, so that each reads the files of the others.
    _saved_state = {
        "values": tuple,
        "nullable": bool,
        "missing": Maybe(tuple),
        "description": Maybe(str),
    }

    categories: Sequence
    _: KW_ONLY
    nullable: bool = False
    missing: Sequence = codes_field()
    description: str | None = description_field()

    def __post_init__(self):
        check_flags(self, "nullable")
        check_description(self)
        check_missing(self)
        labels = _as_labels(self.categories, "categories")
        self._check_codes(labels)
        object.__setattr__(self, "categories", labels)

    def _to_saved(self):
        found = super()._to_saved()
        return {"values": found.pop("categories"), **found}

    @classmethod
    def _from_saved(cls, found):
        return cls(found["values"], **{k: v for k, v in found.items() if k != "values"})

    @property
    def labels(self) -> tuple:
        return tuple(self.categories)


# The largest values of max_length and max_labels.
_MOST_LENGTH, _MOST_LABELS = 10_000, 100_000


@saved
@dataclass(frozen=True)
class OpenCategorical(_Labels):
    """A column of unordered labels that are not known beforehand, such as towns or products.

    :class:`~sklearn_dpgen.tables.TableSampler` discovers the labels of many records privately; a
    single label replaces all others. Labels are texts: numbers are converted, 5.0 to ``"5"``.

    Parameters
    ----------
    categories : sequence of str or None, default=None
        The labels that are known. None lets ``TableSampler`` discover them, and other estimators
        refuse the column. A list, possibly empty, declares them; all estimators accept it.
    other : str, default="other"
        The label of all records whose label is not known. Records that have it are among them.
    max_length : int, default=100
        The most characters of a label; longer ones are not discovered.
    max_labels : int, default=1000
        The most labels to discover: those with the largest noisy counts.
    nullable : bool, default=False
        Adds null as the last category.
    missing : sequence of int, float or str, default=()
        Codes that mean null in records, such as -999 or "unknown"; the column is then nullable.
    description : str, optional
        What the column holds, a public text.

    Notes
    -----
    See :ref:`open_labels` for the discovery, its threshold and its guarantee.

    Examples
    --------
    >>> import pandas as pd
    >>> from sklearn_dpgen.schema import OpenCategorical
    >>> towns = OpenCategorical(["Oslo", "Paris"])
    >>> towns.labels
    ('Oslo', 'Paris', 'other')
    >>> towns.codes(pd.Series(["Paris", "Rome", "Oslo"])).tolist()
    [1, 2, 0]
    """

    categories: Sequence | None = None
    _: KW_ONLY
    other: str = "other"
    max_length: int = 100
    max_labels: int = 1000
    nullable: bool = False
    missing: Sequence = codes_field()
    description: str | None = description_field()

    _saved_state = {
        "categories": object,
        "other": object,
        "max_length": object,
        "max_labels": object,
        "nullable": object,
        "missing": Maybe(tuple),
        "description": Maybe(str),
    }
    _rule = "must hold texts or finite numbers."
    # Even without a known label, as labels may be discovered.
    is_constant = False

    def __post_init__(self):
        check_flags(self, "nullable")
        check_description(self)
        check_missing(self)
        if not isinstance(self.other, str):
            raise PublicValueError(f"other must be a string, got {given_as(self.other)}.")
        for name, most in (("max_length", _MOST_LENGTH), ("max_labels", _MOST_LABELS)):
            value = getattr(self, name)
            if type(value) is not int or not 1 <= value <= most:
                raise PublicValueError(
                    f"{name} must be an integer from 1 to {most}, got {given_as(value)}."
                )
        if len(self.other) > self.max_length:
            raise PublicValueError(f"other must have at most {self.max_length} characters.")
        if self.categories is not None:
            labels = _as_labels(self.categories, "categories", can_be_empty=True)
            if not all(type(v) is str and len(v) <= self.max_length for v in labels):
                raise PublicValueError(
                    f"categories must be strings of at most {self.max_length} characters."
                )
            if self.other in labels:
                raise PublicValueError(f"categories must not hold other, {self.other!r}.")
            self._check_codes(labels)
            object.__setattr__(self, "categories", labels)

    @property
    def is_known(self) -> bool:
        """Whether labels are declared, or were discovered."""
        return self.categories is not None

    @property
    def labels(self) -> tuple:
        if self.categories is None:
            raise PublicValueError(
                "categories of an open column must be known here: TableSampler discovers them "
                "privately, and its schema_ declares them."
            )
        return (*self.categories, self.other)

    @property
    def dtype(self) -> np.dtype | pd.api.extensions.ExtensionDtype:
        return pd.Series(["label"]).dtype

    def with_labels(self, labels: Iterable[str]) -> Self:
        """Return the column with known labels, in alphabetical order."""
        return replace(self, categories=sorted(labels))

    def read_labels(self, series: pd.Series) -> tuple[np.ndarray, tuple[str, ...]]:
        """Read all labels of records, known or not; they are private.

        Parameters
        ----------
        series : Series of shape (n,)

        Returns
        -------
        codes : ndarray of int64 of shape (n,)
            The index of each label; ``len(labels)`` for null.
        labels : tuple of str
            The labels in alphabetical order, then ``other``. Some may have no record.

        Raises
        ------
        PublicValueError
            A value is neither a text nor a finite number, or is missing in a column that is not
            nullable.
        """

        def read():
            values = distinct(series)[1]
            return {self._text(value) for value in values[~self._nulls(pd.Series(values))]}

        found = call_quietly(f"Column {series.name!r} {self._rule}", read)
        column = self.with_labels(found - {None, self.other})
        return column.codes(series), column.labels

    def _read(self, series, null):
        known = {label: i for i, label in enumerate(self.labels)}

        def read(value):
            text = self._text(value)
            return None if text is None else known.get(text, len(known) - 1)

        places, values = distinct(series)
        if places is None:
            return read_each(read, series, null, np.int64)
        found = [read(value) for value in values.astype(object)]
        codes = np.array([-1 if code is None else code for code in [*found, None]])[places]
        return codes, (codes < 0) & ~null

    def _text(self, value):
        """Return the text of a value, ``other`` for one that is too long, None for no label."""
        if isinstance(value, str):
            text = str(value)
        elif isinstance(value, bool | np.bool_):
            text = str(bool(value))
        elif isinstance(value, Integral):
            text = str(int(value))
        elif isinstance(value, Real) and math.isfinite(value):
            # Nulls turn a column of integers into one of floats, which must not change the labels.
            text = str(int(value)) if float(value).is_integer() else repr(float(value))
        else:
            return None
        return text if len(text) <= self.max_length and _is_unicode(text) else self.other


def _is_unicode(text):
    """Return whether a text can be written to a file, without surrogates on their own."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _as_hierarchy(hierarchy, labels):
    """Return a declared hierarchy as lengths of prefixes, or as the groups of each label."""
    if isinstance(hierarchy, Mapping):
        if set(hierarchy) != set(labels):
            raise PublicValueError("hierarchy must map each of the categories to its groups.")
        hierarchy = [hierarchy[label] for label in labels]
    if isinstance(hierarchy, str) or not isinstance(hierarchy, Sequence) or not hierarchy:
        raise PublicValueError(
            "hierarchy must be lengths of prefixes, or map each label to its groups."
        )
    if all(type(length) is int for length in hierarchy):
        if any(a >= b for a, b in pairwise([0, *hierarchy])):
            raise PublicValueError("hierarchy must be positive ascending lengths of prefixes.")
        if not all(isinstance(label, str) for label in labels):
            raise PublicValueError("hierarchy must map labels to groups if they are not texts.")
        return tuple(hierarchy)
    for path in hierarchy:
        is_path = isinstance(path, Sequence) and not isinstance(path, str)
        if not is_path or not all(isinstance(name, str) for name in path):
            raise PublicValueError("hierarchy must give the groups of a label as a list of texts.")
    if len(hierarchy) != len(labels):
        raise PublicValueError("hierarchy must give the groups of each of the categories.")
    return tuple(map(tuple, hierarchy))


def _grouped(labels, hierarchy):
    """Return the labels in an order in which each group is contiguous, and their hierarchy."""
    ranks: list[list[int]] = []
    # Groups are numbered by their first label, and named within the groups above.
    known: dict[tuple, int] = {}
    for i, path in enumerate(_paths(labels, hierarchy)):
        nodes = [tuple(path[: depth + 1]) for depth in range(len(path))]
        ranks.append([known.setdefault(node, len(known)) for node in (*nodes, (i,))])
    order = sorted(range(len(labels)), key=ranks.__getitem__)
    if not isinstance(hierarchy[0], int):
        hierarchy = tuple(hierarchy[i] for i in order)
    return tuple(labels[i] for i in order), hierarchy


def _paths(labels, hierarchy):
    """Return the names of the groups of each label, from the widest down."""
    if not isinstance(hierarchy[0], int):
        return hierarchy
    return [[label[:length] for length in hierarchy] for label in labels]


def _as_labels(labels, field, *, can_be_empty=False):
    if isinstance(labels, str) or not isinstance(labels, Iterable):
        raise PublicValueError(f"{field} must be a sequence of labels.")
    if isinstance(labels, Mapping):
        # Their meanings would be dropped in silence.
        shown = ", ".join(map(repr, [*labels][:_MOST_SHOWN])) + ", ..." * (
            len(labels) > _MOST_SHOWN
        )
        raise PublicValueError(
            f"{field} must be a list of labels, got a mapping: write [{shown}], and what they mean "
            "in description."
        )
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
    if not labels and not can_be_empty:
        raise PublicValueError(f"{field} must have at least one label.")
    return labels
