"""The base classes of columns, and the columns whose records are never read."""

import re
from abc import ABC, abstractmethod
from collections.abc import Hashable, Sequence
from dataclasses import KW_ONLY, dataclass, field, fields, replace
from decimal import Decimal
from functools import cached_property
from numbers import Real
from typing import TYPE_CHECKING, Any, Self, cast

import numpy as np
import pandas as pd
from pandas.api import types

from sklearn_dpgen.domains import Box, Domain, OneHot, Product
from sklearn_dpgen.exceptions import PublicValueError
from sklearn_dpgen.persistence._declarations import Maybe, saved
from sklearn_dpgen.utils._checks import call_quietly
from sklearn_dpgen.utils._random import NoiseSource

# From here on, different integers are equal in float64.
_MOST_CODE = 2**53
# Numbers that are written in one way only, of so few digits that they are exact.
_NUMBER = re.compile(r"-?(0|[1-9][0-9]{0,14})(\.[0-9]{1,6})?")
# Characters of the description of a column.
MOST_DESCRIPTION = 1000


class Column(ABC):
    """A declared column: its domain, and the encoding of a series into the domain and back.

    Each value is encoded independently: whether it is accepted, and its code, depend on it and on
    the declaration, never on other values or on the dtype of the series.
    """

    if TYPE_CHECKING:
        # Codes that mean null; fields in most columns.
        @property
        def missing(self) -> Sequence: ...

        # A field in some columns, a property in others.
        @property
        @abstractmethod
        def nullable(self) -> bool: ...

        # The end of the error message for a value that cannot be read.
        @property
        @abstractmethod
        def _rule(self) -> str: ...
    else:
        missing = ()

    @property
    @abstractmethod
    def domain(self) -> Domain:
        """The public set of encoded values, a Domain."""

    @property
    def is_constant(self) -> bool:
        """Whether there is a single category."""
        return self.domain == OneHot(1)

    @property
    @abstractmethod
    def dtype(self) -> np.dtype | pd.api.extensions.ExtensionDtype:
        """The dtype of decoded values, determined by the declaration."""

    @property
    def has_integers_beside_nulls(self) -> bool:
        """Whether values are integers or null, which are floats or objects in ``dtype``."""
        return False

    @abstractmethod
    def feature_names(self, name: str) -> list[str]:
        """Return the names of the encoded features of a column called ``name``."""

    @abstractmethod
    def _read(self, series, null):
        """Return the values as they are read, and a mask of those that cannot be read.

        At the nulls of the given mask, the value is arbitrary and the mask False.
        """

    @abstractmethod
    def _encode(self, values, null):
        """Encode values that were read by `_read`."""

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
        PublicValueError
            If a value is missing in a column that is not nullable, has another type, or is not a
            declared category. Numbers and dates out of bounds are clipped.
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
            Finite; projected on the domain if outside.
        name : optional
            Name of the returned series.
        rng : numpy.random.Generator or NoiseSource, optional
            Draws values uniformly within public bins; by default values are the middles.

        Returns
        -------
        Series of shape (n,), of ``dtype``
        """
        return self._decode(array, rng).rename(name)

    def to_texts(self, values: pd.Series) -> pd.Series:
        """Return decoded values as a text file such as CSV is to hold them.

        Parameters
        ----------
        values : Series of shape (n,)
            Values of the column, such as those of `decode`.

        Returns
        -------
        Series of shape (n,)
            Texts, or numbers and dates whose usual text is as declared; nulls stay null.
        """
        return values

    def __getstate__(self):
        # A seed is bound to the state of a schema, and its noise must not change by words that are
        # not used. They are attributes of the class then.
        words = [item for item in fields(cast("Any", self)) if "is_of_texts" in item.metadata]
        unused = {item.name for item in words if getattr(self, item.name) == item.default}
        return {name: value for name, value in vars(self).items() if name not in unused}

    def _to_saved(self):
        # Earlier releases can read the files of columns that do not use later words.
        hints = getattr(self, "_saved_state", {})
        found = {}
        for item in fields(cast("Any", self)):
            value = getattr(self, item.name)
            if not (isinstance(hints.get(item.name), Maybe) and value == item.default):
                found[item.name] = value
        return found

    def _nulls(self, series):
        """Return the mask of the nulls of a series, and of codes of missing values."""
        null = find_nulls(series)
        return null | self._is_code(series) if self.missing else null

    def _is_code(self, series):
        """Return the mask of the values that are a declared code, by each value alone."""
        dtype = series.dtype
        if isinstance(dtype, np.dtype) and dtype.kind in "iuf":
            return np.isin(series.to_numpy(), [k for k in self._code_keys if type(k) is float])
        places, values = distinct(series)
        found = [self._code_key(value) in self._code_keys for value in values.astype(object)]
        found = np.array([*found, False], dtype=bool)
        return found[:-1] if places is None else found[places]

    @cached_property
    def _code_keys(self):
        return {self._code_key(code) for code in self.missing}

    def _code_key(self, value):
        return code_key(value)

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
        """Return the result of `_read`, and the mask of the nulls; an error shows no value."""

        def read():
            null = self._nulls(series)
            return *self._read(series, null), null

        return call_quietly(f"Column {series.name!r} {self._rule}", read)


class CategoryColumn(Column):
    """A column encoded as one of finitely many categories, one-hot; null is the last."""

    @property
    def groups(self) -> tuple[np.ndarray, ...]:
        """The group of each category at each level of a declared hierarchy, if there is one."""
        return ()

    @property
    @abstractmethod
    def n_categories(self) -> int:
        """The number of categories, the null included."""

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
        """Return the category of each value, the index of the one in `encode`.

        Parameters
        ----------
        series : Series of shape (n,)

        Returns
        -------
        ndarray of int64 of shape (n,)
            Each at least 0 and below ``n_categories``.

        Raises
        ------
        PublicValueError
            As in `encode`.
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
            Name of the returned series.
        rng : numpy.random.Generator or NoiseSource, optional
            As in `decode`.

        Returns
        -------
        Series of shape (n,), of ``dtype``

        Raises
        ------
        PublicValueError
            A code is not a category.
        """
        codes = np.asarray(codes)
        is_integer = codes.ndim == 1 and codes.dtype.kind in "iu"
        if not is_integer or len(codes) and not 0 <= codes.min() <= codes.max() < self.n_categories:
            raise PublicValueError(
                f"codes of column {name!r} must be integers from 0 to {self.n_categories - 1}, the "
                "categories."
            )
        return self._values(codes, rng).rename(name)

    def _decode(self, array, rng):
        return self._values(np.argmax(array, axis=1), rng)

    def _encode(self, values, null):
        codes = self._codes(values, null)
        encoded = np.zeros((len(codes), self.domain.n_features))
        encoded[np.arange(len(codes)), codes] = 1
        return encoded


def codes_field() -> Any:
    """Return the field of the codes of missing values, which do not matter once they are null."""
    return field(default=(), metadata={"in_likelihood": False})


def word_field(default: str | None = None, *, is_of_texts: bool = True) -> Any:
    """Return the field of a word about texts, which does not matter once values are read."""
    return field(default=default, metadata={"in_likelihood": False, "is_of_texts": is_of_texts})


def description_field() -> Any:
    """Return the field of a public text about a column."""
    return word_field(is_of_texts=False)


def check_description(column):
    """Check the declared description, a public text or None."""
    text = column.description
    if text is not None and not (isinstance(text, str) and 0 < len(text) <= MOST_DESCRIPTION):
        raise PublicValueError(
            f"description must be a text of 1 to {MOST_DESCRIPTION} characters, got "
            f"{given_as(text)}."
        )


def check_missing(column):
    """Check the declared codes of missing values, which make a column nullable."""
    given = column.missing
    codes = [given] if isinstance(given, str | int | float) else given
    if not isinstance(codes, Sequence):
        raise PublicValueError(f"missing must be a list of codes, got {given_as(given)}.")
    codes = tuple(v.item() if isinstance(v, np.generic) else v for v in codes)
    for code in codes:
        if isinstance(code, int | float):
            is_code = type(code) is not bool and -_MOST_CODE < code < _MOST_CODE
        else:
            is_code = isinstance(code, str)
        if not is_code:
            raise PublicValueError(
                f"missing must list texts or numbers within 2**53, got {given_as(code)}."
            )
    object.__setattr__(column, "missing", codes)
    if codes:
        object.__setattr__(column, "nullable", True)


def code_key(value):
    """Return what equal codes share: a float, as of texts of numbers, or a text; or None."""
    if isinstance(value, str):
        text = str(value).strip()
        return float(text) if _NUMBER.fullmatch(text) else text
    if isinstance(value, bool | np.bool_ | np.timedelta64):
        return None
    if not isinstance(value, Real | Decimal):
        return None
    try:
        return float(value)
    except (OverflowError, ValueError):
        return None


def distinct(series):
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


def find_nulls(series):
    """Return the mask of the missing values of a series."""
    if isinstance(series.dtype, np.dtype) and series.dtype.kind == "f":
        return np.isnan(series.to_numpy())
    try:
        null = series.isna().to_numpy(dtype=bool)
    except ArithmeticError:
        # Comparing a signaling NaN raises.
        return np.array([_is_null(value) for value in series], dtype=bool)
    if types.is_float_dtype(series.dtype):
        # A masked array may hold NaN in addition to its nulls.
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
        Function from an object to its value, or to None if it cannot be read.
    series : Series of shape (n,)
    null : ndarray of bool of shape (n,)
        Mask of objects that are not read.
    dtype : dtype
        Dtype of the values.

    Returns
    -------
    values : ndarray of shape (n,)
        Zero for objects that are not read.
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
    """Return a text for a declared value: only its type, if it could hold records."""
    if isinstance(value, str):
        return f"the text {value!r}" if len(value) <= 50 else "a long text"
    if value is Ellipsis:
        return "..., which must be declared"
    if value is None or isinstance(value, bool | float):
        return repr(value)
    if type(value) is int:
        return repr(value) if abs(value) < 10**50 else "an integer of many digits"
    return f"a {type(value).__name__}"


def check_flags(column, *names):
    """Check that the named fields are bools."""
    for name in names:
        if not isinstance(getattr(column, name), bool):
            raise PublicValueError(
                f"{name} must be True or False, got {given_as(getattr(column, name))}."
            )


class IntervalColumn(Column):
    """Values on a float axis, mapped affinely from the public bounds to [-1, 1].

    A nullable column is encoded as [value, present, null], with the mid-range as the value of a
    null.
    """

    @property
    def plain(self) -> Self:
        """The column without words about texts, by which code states its values."""
        words = [item for item in fields(cast("Any", self)) if item.metadata.get("is_of_texts")]
        return replace(cast("Any", self), **{item.name: item.default for item in words})

    @property
    @abstractmethod
    def _bounds(self):
        """The bounds on the axis, two numbers whose difference is exact."""

    @property
    @abstractmethod
    def n_steps(self) -> int | None:
        """The number of steps of the declared grid between the bounds; None without a grid."""

    @property
    def domain(self) -> Domain:
        value = Box(-1, 1)
        return Product([value, OneHot(2)]) if self.nullable else value

    @abstractmethod
    def _find_faults(self, values):
        """Return the mask of the read values that break each public rule, a dict."""

    def _encode(self, values, null):
        value = np.where(null, 0.0, self._clipped_unit(values))
        return np.column_stack([value, ~null, null] if self.nullable else [value])

    def feature_names(self, name: str) -> list[str]:
        return [name, f"{name}=<present>", f"{name}=<null>"] if self.nullable else [name]

    def _clipped_unit(self, values):
        """Return values clipped to the bounds and mapped to [-1, 1]; NaN stays NaN."""
        low, high = self._bounds
        offset = np.clip(values, low, high)
        offset -= low
        unit = offset / (high - low)
        # The same as `_unit`, but in place, as it is applied to each record.
        unit *= 2
        unit -= 1
        return unit

    def _unit(self, offset):
        low, high = self._bounds
        return 2 * (offset / (high - low)) - 1

    def _offset(self, unit):
        """Return the distance from the lower bound, on the axis."""
        low, high = self._bounds
        return (unit + 1) / 2 * (high - low)

    def _split(self, array):
        """Return the share of the way between the bounds, in [0, 1], and the mask of nulls."""
        array = np.asarray(array, dtype=np.float64)
        null = array[:, 2] > array[:, 1] if self.nullable else np.zeros(len(array), dtype=bool)
        return (np.clip(array[:, 0], -1, 1) + 1) / 2, null


class MadeUpColumn(CategoryColumn):
    """A column whose values are never read: a constant for estimators, made up in samples."""

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
    """A column of keys, such as names of persons, that is never read and is made up in samples.

    Parameters
    ----------
    prefix : str or None, default=None
        Keys are the numbers 0, 1, 2, ..., or strings of the prefix and the number.
    description : str, optional
        What the column holds, a public text.

    Examples
    --------
    >>> from sklearn_dpgen.schema import Identifier
    >>> Identifier("patient ").made_up(2).tolist()
    ['patient 0', 'patient 1']
    """

    prefix: str | None = None
    _: KW_ONLY
    description: str | None = description_field()

    _saved_state = {"prefix": object, "description": Maybe(str)}

    def __post_init__(self):
        check_description(self)
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
    """A column that a rule computes from others; a constant before that.

    Parameters
    ----------
    column : Column
        Its declaration.
    """

    _saved_state = {"column": Column}

    column: Column

    @property
    def dtype(self):
        return self.column.dtype

    def made_up(self, n: int) -> pd.Series:
        return self.column.decode(np.zeros((n, self.column.domain.n_features)))
