"""Columns of numbers between public bounds."""

import math
import re
from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass
from decimal import Decimal
from functools import lru_cache
from numbers import Real
from typing import TYPE_CHECKING, TypeVar

import numpy as np
import pandas as pd
from pandas.api import types

from sklearn_dpgen.exceptions import PublicValueError
from sklearn_dpgen.persistence._declarations import Maybe, saved
from sklearn_dpgen.schema._column import (
    IntervalColumn,
    check_description,
    check_flags,
    check_missing,
    code_key,
    codes_field,
    description_field,
    distinct,
    given_as,
    read_each,
    word_field,
)

if TYPE_CHECKING:
    import torch

_Values = TypeVar("_Values", float, np.ndarray, "torch.Tensor")

_EXACT_INTEGERS = 2**53
# A step with more digits, such as 1 / 3, is not a decimal.
_MOST_DIGITS = 12
# Kinds of Python objects whose values are converted together as each is alone.
_NUMBERS = ("integer", "floating", "mixed-integer-float", "empty")
# Characters that are read as the same mark between thousands.
_BLANKS, _APOSTROPHES = " \u00a0\u2007\u2009\u202f", "'\u2019"
_SIGNS = "+-\u2212"
# Longer texts are no numbers.
_LONGEST, _LONGEST_CURRENCY = 500, 20


@saved
@dataclass(frozen=True)
class Numeric(IntervalColumn):
    """A column of numbers with public bounds.

    Parameters
    ----------
    low, high : float
        Public bounds; values outside are clipped, silently.
    step : float, optional
        Decoded values are rounded to ``low + k * step``. Must divide ``high - low``.
    integer : bool, default=False
        The values are integers; the step is then 1 unless given.
    nullable : bool, default=False
    missing : sequence of int, float or str, default=()
        Codes that mean null in records, such as -999 or "unknown"; the column is then nullable.
    decimal : str, default="."
        The decimal mark of texts.
    thousands : str, optional
        The mark between groups of three digits in texts, which they may have or not.
    currency : str, optional
        A currency or unit that texts may have before or after the number, such as "EUR". A 1 is the
        place of the number in texts that are written: "1 EUR", "$1" or "1%"; by default it follows
        after a blank.
    description : str, optional
        What the column holds, a public text.

    Notes
    -----
    Decoded values are float64, or int64 in an integer column that is not nullable.

    Texts are read as numbers if ``decimal``, ``thousands`` or ``currency`` is declared, and then
    only in this way. All kinds of blanks are the same. `to_texts` has as many decimals as ``step``;
    without a step two with a currency, and otherwise those of a millionth of the bounds' distance,
    at least two, and so many that a small number has three digits.

    Examples
    --------
    >>> import pandas as pd
    >>> from sklearn_dpgen.schema import Numeric
    >>> Numeric(0, 100).to_unit(25.0)
    -0.5
    >>> price = Numeric(0, 5000, step=0.01, decimal=",", thousands=".", currency="EUR")
    >>> price.to_texts(pd.Series([1234.5])).tolist()
    ['EUR 1.234,50']
    """

    low: float
    high: float
    _: KW_ONLY
    step: float | None = None
    integer: bool = False
    nullable: bool = False
    missing: Sequence = codes_field()
    decimal: str = word_field(".")
    thousands: str | None = word_field()
    currency: str | None = word_field()
    description: str | None = description_field()

    _saved_state = {
        "low": object,
        "high": object,
        "step": object,
        "integer": object,
        "nullable": object,
        "missing": Maybe(tuple),
        "decimal": Maybe(str),
        "thousands": Maybe(str),
        "currency": Maybe(str),
        "description": Maybe(str),
    }

    def __post_init__(self):
        for field in ("low", "high", "step"):
            value = getattr(self, field)
            value = value.item() if isinstance(value, np.generic) else value
            object.__setattr__(self, field, value)
            if value is None and field == "step":
                continue
            if type(value) not in (int, float) or not math.isfinite(_as_float(value)):
                raise PublicValueError(
                    f"{field} must be a finite number, got {given_as(value)}{_hint(value)}."
                )
        check_flags(self, "integer", "nullable")
        check_description(self)
        _check_marks(self.decimal, self.thousands, self.currency)
        check_missing(self)
        if self.low == self.high:
            raise PublicValueError(
                f"low must be smaller than high; declare a constant as Categorical([{self.low!r}])."
            )
        if not self.low < self.high or not math.isfinite(self.high - self.low):
            raise PublicValueError("low must be smaller than high, by a finite difference.")
        if self.step is not None and not self.step > 0:
            raise PublicValueError("step must be positive.")
        if self.integer:
            for field in ("low", "high", "step"):
                value = getattr(self, field)
                if value is not None and not float(value).is_integer():
                    raise PublicValueError(f"{field} must be an integer in an integer column.")
            if max(abs(self.low), abs(self.high)) > _EXACT_INTEGERS:
                raise PublicValueError(
                    "an integer column must have bounds within 2**53, exact in float64."
                )
        if self.step is not None:
            steps = (self.high - self.low) / self.step
            if round(steps) < 1 or not math.isclose(steps, round(steps), rel_tol=1e-9):
                raise PublicValueError("step must divide high - low.")

    @property
    def _bounds(self):
        return float(self.low), float(self.high)

    @property
    def n_steps(self) -> int | None:
        """The number of steps of the declared grid between the bounds; None without a grid."""
        if self.step is None and not self.integer:
            return None
        return round((self.high - self.low) / (self.step or 1))

    @property
    def _n_digits(self):
        """Decimals of the grid values; None if float64 cannot hold such decimals."""
        ends = (float(self.low), float(self.step or 1))
        exponents = [Decimal(repr(value)).normalize().as_tuple().exponent for value in ends]
        digits = max(0, -min(map(int, exponents)))
        largest = max(abs(self.low), abs(self.high))
        fits = digits <= _MOST_DIGITS and largest * 10**digits <= _EXACT_INTEGERS
        return digits if fits else None

    def to_unit(self, values: _Values) -> _Values:
        """Map the bounds to [-1, 1], affinely, without clipping.

        Parameters
        ----------
        values : float, ndarray or tensor

        Returns
        -------
        float, ndarray or tensor
        """
        return self._unit(values - self._bounds[0])

    def from_unit(self, values: _Values) -> _Values:
        """Invert `to_unit`, without clipping or rounding, also for noisy values.

        Parameters
        ----------
        values : float, ndarray or tensor

        Returns
        -------
        float, ndarray or tensor
        """
        return self._bounds[0] + self._offset(values)

    @property
    def dtype(self) -> np.dtype:
        return np.dtype(np.int64 if self.integer and not self.nullable else np.float64)

    @property
    def has_integers_beside_nulls(self) -> bool:
        """Whether values are integers or null, which are floats in ``dtype``."""
        return self.integer and self.nullable

    @property
    def _rule(self):
        if not self.has_words:
            return "is declared Numeric, and must hold real numbers."
        text = self.to_texts(pd.Series([float(self.high)]))[0]
        return f"is declared Numeric, and must hold numbers, or texts such as {text!r}."

    @property
    def has_words(self) -> bool:
        """Whether texts are read as numbers, in the declared way."""
        return (self.decimal, self.thousands, self.currency) != (".", None, None)

    def _number_of(self, text):
        """Return the number of a text in the declared way, or None."""
        text = " ".join(text.split())
        pattern = _pattern_of(self.decimal, self.thousands, self.currency)
        found = pattern.fullmatch(text) if len(text) <= _LONGEST else None
        if found is None or found["outer"] and found["inner"] or found["before"] and found["after"]:
            return None
        whole, part = re.sub("[^0-9]", "", found["whole"]), found["part"] or ""
        if not whole + part:
            return None
        number = float(f"{whole}.{part or 0}{found['power'] or ''}")
        return number if (found["outer"] or found["inner"]) in ("", "+") else -number

    def _code_key(self, value):
        number = self._number_of(value) if self.has_words and isinstance(value, str) else None
        return code_key(value) if number is None else number

    @property
    def _n_written(self):
        """The decimals of written numbers, and whether all numbers have as many."""
        if self.integer:
            return 0, True
        if self.step is not None and self._n_digits is not None:
            return self._n_digits, True
        # Rounded numbers are within bounds that have no more decimals.
        least = max(2, *(min(_n_decimals(bound), _MOST_DIGITS) for bound in self._bounds))
        if self.currency is not None:
            return least, True
        return max(least, 6 - math.ceil(math.log10(self.high - self.low))), False

    def to_texts(self, values: pd.Series) -> pd.Series:
        values = values.astype(np.float64)
        null = values.isna().to_numpy()
        numbers, (decimals, is_fixed) = values.to_numpy()[~null], self._n_written
        digits = np.full(len(numbers), decimals)
        if not is_fixed:
            magnitudes = np.floor(np.log10(np.abs(np.where(numbers == 0, 1, numbers))))
            digits = np.maximum(digits, 2 - magnitudes.astype(np.int64))
        found = np.full(len(values), None, dtype=object)
        pairs = zip(numbers.tolist(), digits.tolist(), strict=True)
        if is_fixed or self.has_words:
            found[~null] = [self._text_of(round(number, n), n, is_fixed) for number, n in pairs]
            return pd.Series(found, index=values.index, name=values.name, dtype=object)
        rounded = [round(number, n) + 0.0 for number, n in pairs]
        return values.where(null, pd.Series(rounded, index=values.index[~null], dtype=np.float64))

    def _text_of(self, number, decimals, is_fixed):
        text = f"{abs(number):,.{decimals}f}"
        if not is_fixed:
            text = text.rstrip("0").removesuffix(".")
        marks = {",": self.thousands or "", ".": self.decimal}
        text = "".join(marks.get(mark, mark) for mark in text)
        sign = "-" if number < 0 else ""
        before, _, after = _parts_of(self.currency) if self.currency else ("", "", "")
        # As in "-$5", but "EUR -5".
        before = before + sign if before[-1:].isspace() else sign + before
        return f"{before}{text}{after}"

    # A number beyond float64 becomes infinite, and is clipped as any other.
    @np.errstate(over="ignore")
    def _read(self, series, null):
        dtype = series.dtype
        if types.is_integer_dtype(dtype) or types.is_float_dtype(dtype):
            return series.to_numpy(dtype=np.float64, na_value=np.nan), np.zeros_like(null)
        if types.infer_dtype(series[~null].astype(object)) in _NUMBERS:
            try:
                numbers = series.astype(object).where(~null, 0)
                return numbers.to_numpy(dtype=np.float64), np.zeros_like(null)
            except OverflowError:
                pass
        if not self.has_words:
            return read_each(_as_float, series, null, np.float64)

        def read(value):
            return self._number_of(value) if isinstance(value, str) else _as_float(value)

        places, values = distinct(series)
        if places is None:
            return read_each(read, series, null, np.float64)
        found = [read(value) for value in values.astype(object)]
        bad = np.array([*(number is None for number in found), False])
        numbers = np.array([*(0.0 if number is None else number for number in found), 0.0])
        return numbers[places], bad[places] & ~null

    def _find_faults(self, values):
        low, high = self._bounds
        faults = {"outside_bounds": (values < low) | (values > high)}
        if self.integer:
            faults["not_integer"] = np.isfinite(values) & (values != np.rint(values))
        return faults

    def _decode(self, array, rng):
        fraction, null = self._split(array)
        low, high = self._bounds
        if self.n_steps is None:
            values = np.clip(low + fraction * (high - low), low, high)
        else:
            n = self.n_steps
            k = np.rint(fraction * n)
            values = (low * (n - k) + high * k) / n
            if self._n_digits is not None:
                # Decimal steps decode to exact decimals: 0.3, not 0.30000000000000004.
                values = np.round(values, self._n_digits)
        if self.integer:
            values = np.clip(np.rint(values), self.low, self.high)
        return pd.Series(np.where(null, np.nan, values)).astype(self.dtype)


def _n_decimals(number):
    """Return the number of decimals of the shortest text of a float."""
    exponent = Decimal(repr(number)).normalize().as_tuple().exponent
    return max(0, -exponent) if isinstance(exponent, int) else 0


def _alike(mark):
    """Return the characters that are read as the same mark."""
    return next((alike for alike in (_BLANKS, _APOSTROPHES) if mark in alike), mark)


def _parts_of(currency):
    """Return the text of a currency before a number, its symbol, and the text after a number."""
    before, place, after = currency.partition("1")
    symbol = (before + after).strip()
    return (before, symbol, after) if place else (f"{symbol} ", symbol, "")


@lru_cache
def _pattern_of(decimal, thousands, currency):
    """Return the pattern of texts of numbers, whose blanks are single ones."""
    sign, symbol, whole = f"[{re.escape(_SIGNS)}]?", "(?!)", "[0-9]*"
    if currency is not None:
        symbol = re.escape(" ".join(_parts_of(currency)[1].split()))
    if thousands is not None:
        whole = f"[0-9]{{1,3}}(?:[{re.escape(_alike(thousands))}][0-9]{{3}})+|{whole}"
    return re.compile(
        f"(?P<outer>{sign}) ?(?P<before>{symbol})? ?(?P<inner>{sign}) ?"
        f"(?P<whole>{whole})(?:{re.escape(decimal)}(?P<part>[0-9]*))?"
        f"(?P<power>[eE][+-]?[0-9]{{1,3}})? ?(?P<after>{symbol})?"
    )


def _check_marks(decimal, thousands, currency):
    """Check the words about texts of numbers, which must not be ambiguous."""
    for name, mark in (("decimal", decimal), ("thousands", thousands)):
        if mark is None and name == "thousands":
            continue
        is_blank = isinstance(mark, str) and len(mark) == 1 and mark in _BLANKS
        is_mark = isinstance(mark, str) and len(mark) == 1 and mark.isprintable()
        is_mark = is_mark and not (mark.isalnum() or mark.isspace() or mark in _SIGNS + '"\\')
        if not is_mark and not (is_blank and name == "thousands"):
            raise PublicValueError(
                f"{name} must be a single mark, such as ',', and no digit, letter or sign, got "
                f"{given_as(mark)}."
            )
    if thousands is not None and _alike(thousands) == _alike(decimal):
        raise PublicValueError(f"decimal and thousands must be distinct, got {decimal!r} for both.")
    if currency is None:
        return
    is_text = isinstance(currency, str) and len(currency) <= _LONGEST_CURRENCY
    before, symbol, after = _parts_of(currency) if is_text else ("", "", "")
    is_between = bool(before.strip()) and bool(after.strip())
    has_others = any(char.isdecimal() or char in _SIGNS + '"' for char in symbol)
    is_plain = all(char.isprintable() or char in _BLANKS for char in before + after)
    if not symbol or is_between or has_others or not is_plain or symbol in (decimal, thousands):
        raise PublicValueError(
            "currency must be a text that is before or after a number, such as 'EUR' or '1 EUR' "
            f"with a 1 for the number, and no digit, sign or mark, got {given_as(currency)}."
        )


def _hint(value):
    """Return a hint for a text that is a number, such as 1e5, which YAML reads as text."""
    try:
        number = float(value) if isinstance(value, str) else math.nan
    except ValueError:
        return ""
    return f": write {number!r}, which is a number in YAML too" if math.isfinite(number) else ""


def _as_float(value):
    """Return a real number as a float, infinite if it overflows; None for anything else."""
    if isinstance(value, bool | np.bool_ | np.timedelta64):
        return None
    if not isinstance(value, Real | Decimal):
        return None
    try:
        return float(value)
    except OverflowError:
        return -math.inf if value <= 0 else math.inf
