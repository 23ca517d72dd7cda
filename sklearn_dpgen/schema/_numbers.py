"""Columns of numbers between public bounds."""

import math
from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass
from decimal import Decimal
from numbers import Real
from typing import TYPE_CHECKING, TypeVar

import numpy as np
import pandas as pd
from pandas.api import types

from sklearn_dpgen.exceptions import PublicValueError
from sklearn_dpgen.persistence._declarations import Maybe, saved
from sklearn_dpgen.schema._column import (
    IntervalColumn,
    check_flags,
    check_missing,
    codes_field,
    given_as,
    read_each,
)

if TYPE_CHECKING:
    import torch

_Values = TypeVar("_Values", float, np.ndarray, "torch.Tensor")

_EXACT_INTEGERS = 2**53
# A step with more digits, such as 1 / 3, is not a decimal.
_MOST_DIGITS = 12
# Kinds of Python objects whose values are converted together as each is alone.
_NUMBERS = ("integer", "floating", "mixed-integer-float", "empty")


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

    Notes
    -----
    Decoded values are float64, or int64 in an integer column that is not nullable.

    Examples
    --------
    >>> from sklearn_dpgen.schema import Numeric
    >>> Numeric(0, 100).to_unit(25.0)
    -0.5
    """

    _rule = "is declared Numeric, and must hold real numbers."

    low: float
    high: float
    _: KW_ONLY
    step: float | None = None
    integer: bool = False
    nullable: bool = False
    missing: Sequence = codes_field()

    _saved_state = {
        "low": object,
        "high": object,
        "step": object,
        "integer": object,
        "nullable": object,
        "missing": Maybe(tuple),
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
        return read_each(_as_float, series, null, np.float64)

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
