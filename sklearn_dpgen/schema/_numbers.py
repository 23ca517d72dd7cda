"""Columns on a bounded interval: numbers and dates."""

import datetime
import math
from abc import abstractmethod
from dataclasses import KW_ONLY, dataclass
from decimal import Decimal
from numbers import Real

import numpy as np
import pandas as pd
from pandas.api import types

from sklearn_dpgen.domains import Box, OneHot, Product
from sklearn_dpgen.schema._column import Column, check_flags, container_error

_EXACT_INTEGERS = 2**53
# A step of more digits, such as 1 / 3, is no decimal.
_MOST_DIGITS = 12
_EPOCH = datetime.datetime(1970, 1, 1)
_MICROSECOND = datetime.timedelta(microseconds=1)
_RESOLUTIONS = {
    "D": 86_400_000_000,
    "h": 3_600_000_000,
    "m": 60_000_000,
    "s": 1_000_000,
    "ms": 1_000,
    "us": 1,
}


class _Interval(Column):
    """Values on a float axis, mapped affinely from the public bounds to [-1, 1].

    A nullable column is encoded as [value, present, null], with the mid-range as the value of a
    null.
    """

    @property
    @abstractmethod
    def _bounds(self):
        """The bounds on the axis, two numbers of which the difference is exact."""

    @property
    @abstractmethod
    def n_steps(self):
        """The number of steps of the declared grid between the bounds; None without a grid."""

    @property
    def domain(self):
        value = Box(-1, 1)
        return Product([value, OneHot(2)]) if self.nullable else value

    def feature_names(self, name):
        return [name, f"{name}=<present>", f"{name}=<null>"] if self.nullable else [name]

    def _unit(self, offset):
        low, high = self._bounds
        return 2 * (offset / (high - low)) - 1

    def _offset(self, unit):
        """Return the distance from the lower bound, on the axis."""
        low, high = self._bounds
        return (unit + 1) / 2 * (high - low)

    def _block(self, unit, null):
        value = np.where(null, 0.0, np.clip(unit, -1, 1))
        return np.column_stack([value, ~null, null] if self.nullable else [value])

    def _split(self, array):
        """Return where values lie between the bounds, in [0, 1], and the mask of nulls."""
        array = np.asarray(array, dtype=np.float64)
        null = array[:, 2] > array[:, 1] if self.nullable else np.zeros(len(array), dtype=bool)
        return (np.clip(array[:, 0], -1, 1) + 1) / 2, null


@dataclass(frozen=True)
class Numeric(_Interval):
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

    Examples
    --------
    >>> from sklearn_dpgen.schema import Numeric
    >>> Numeric(0, 100).to_unit(25.0)
    -0.5
    """

    low: float
    high: float
    _: KW_ONLY
    step: float | None = None
    integer: bool = False
    nullable: bool = False

    def __post_init__(self):
        for field in ("low", "high", "step"):
            value = getattr(self, field)
            value = value.item() if isinstance(value, np.generic) else value
            object.__setattr__(self, field, value)
            if value is None and field == "step":
                continue
            if type(value) not in (int, float) or not math.isfinite(value):
                raise ValueError(f"{field} must be a finite number, got {value!r}.")
        check_flags(self, "integer", "nullable")
        if not self.low < self.high or not math.isfinite(self.high - self.low):
            raise ValueError("low must be smaller than high, by a finite amount.")
        if self.step is not None and not self.step > 0:
            raise ValueError("step must be positive.")
        if self.integer:
            for field in ("low", "high", "step"):
                value = getattr(self, field)
                if value is not None and not float(value).is_integer():
                    raise ValueError(f"{field} must be an integer in an integer column.")
            if max(abs(self.low), abs(self.high)) > _EXACT_INTEGERS:
                raise ValueError("an integer column needs bounds within 2**53, exact in float64.")
        if self.step is not None:
            steps = (self.high - self.low) / self.step
            if round(steps) < 1 or not math.isclose(steps, round(steps), rel_tol=1e-9):
                raise ValueError("step must divide high - low.")

    @property
    def _bounds(self):
        return float(self.low), float(self.high)

    @property
    def n_steps(self):
        """The number of steps of the declared grid between the bounds; None without a grid."""
        if self.step is None and not self.integer:
            return None
        return round((self.high - self.low) / (self.step or 1))

    @property
    def _n_digits(self):
        """Digits after the point of the grid values; None if float64 holds no such decimals."""
        ends = (float(self.low), float(self.step or 1))
        exponents = [Decimal(repr(value)).normalize().as_tuple().exponent for value in ends]
        digits = max(0, -min(exponents))
        largest = max(abs(self.low), abs(self.high))
        fits = digits <= _MOST_DIGITS and largest * 10**digits <= _EXACT_INTEGERS
        return digits if fits else None

    def to_unit(self, values):
        """Map the bounds to [-1, 1], affinely, without clipping.

        Parameters
        ----------
        values : float, ndarray or tensor

        Returns
        -------
        float, ndarray or tensor
        """
        return self._unit(values - self._bounds[0])

    def from_unit(self, values):
        """Invert `to_unit`, without clipping or rounding: noisy values stay noisy.

        Parameters
        ----------
        values : float, ndarray or tensor

        Returns
        -------
        float, ndarray or tensor
        """
        return self._bounds[0] + self._offset(values)

    def decoded_dtype(self, dtype=None, *, name=None):
        default = np.dtype(np.int64 if self.integer and not self.nullable else np.float64)
        if dtype is None:
            return default
        extension = types.is_extension_array_dtype(dtype)
        if types.is_object_dtype(dtype):
            return default if self.nullable else dtype
        if not types.is_any_real_numeric_dtype(dtype):
            raise container_error(name, "Numeric", dtype)
        if self.nullable and not extension:
            # NumPy holds integers with a null as floats: int64 would tell that none is missing.
            return default
        if types.is_integer_dtype(dtype):
            # A container narrower than the public bounds could not hold every decoded value.
            info = np.iinfo(getattr(dtype, "numpy_dtype", dtype))
            low, high = math.ceil(self.low), math.floor(self.high)
            return dtype if info.min <= low <= high <= info.max else default
        return default if self.integer and not self.nullable else dtype

    def _encode(self, series, null):
        if types.is_object_dtype(series.dtype):
            kinds = ("integer", "floating", "mixed-integer-float", "decimal", "empty")
            if types.infer_dtype(series[~null], skipna=True) not in kinds:
                raise ValueError(f"Column {series.name!r} is declared Numeric; it holds others.")
        low, high = self._bounds
        values = series.to_numpy(dtype=np.float64, na_value=np.nan)
        return self._block(self.to_unit(np.clip(values, low, high)), null)

    def _decode(self, array, dtype, rng):
        fraction, null = self._split(array)
        low, high = self._bounds
        if self.step is None and not self.integer:
            values = np.clip(low + fraction * (high - low), low, high)
        else:
            n = self.n_steps
            k = np.rint(fraction * n)
            values = (low * (n - k) + high * k) / n
            if self._n_digits is not None:
                # Decimal steps decode to decimals, to the last bit: 0.3, not 0.30000000000000004.
                values = np.round(values, self._n_digits)
        if self.integer or types.is_integer_dtype(dtype):
            values = np.clip(np.rint(values), math.ceil(self.low), math.floor(self.high))
        values = pd.Series(np.where(null, np.nan, values))
        if types.is_object_dtype(dtype) and self.integer:
            values = values.astype(np.int64)
        return values.astype(dtype)


@dataclass(frozen=True)
class Datetime(_Interval):
    """A column of dates and times with public bounds.

    Parameters
    ----------
    low, high : str (ISO 8601), datetime, date, Timestamp or datetime64
        Public bounds, multiples of the resolution; naive ones are in UTC, and so are naive
        values compared with them. Values outside are clipped, silently.
    resolution : {"D", "h", "m", "s", "ms", "us"}, default="s"
        Decoded values are rounded to it (NumPy's unit codes: "m" is the minute).
    nullable : bool, default=False
    """

    low: datetime.datetime
    high: datetime.datetime
    _: KW_ONLY
    resolution: str = "s"
    nullable: bool = False

    def __post_init__(self):
        check_flags(self, "nullable")
        if self.resolution not in _RESOLUTIONS:
            raise ValueError(f"resolution must be one of {list(_RESOLUTIONS)}.")
        for field in ("low", "high"):
            value = _as_datetime(getattr(self, field), field)
            object.__setattr__(self, field, value)
            if _microseconds(value) % _RESOLUTIONS[self.resolution]:
                raise ValueError(f"{field} must be a multiple of the resolution.")
        if not self.low < self.high:
            raise ValueError("low must be earlier than high.")

    @property
    def _bounds(self):
        return _microseconds(self.low), _microseconds(self.high)

    @property
    def n_steps(self):
        """The number of steps of the resolution between the bounds."""
        low, high = self._bounds
        return (high - low) // _RESOLUTIONS[self.resolution]

    def to_unit(self, values):
        """Map the bounds to [-1, 1], affinely, without clipping.

        Parameters
        ----------
        values : array-like of datetime64

        Returns
        -------
        ndarray of float64
            NaN for a missing date.
        """
        values = np.asarray(values).astype("datetime64[us]")
        null, low = np.isnat(values), self._bounds[0]
        offset = np.where(null, low, values.astype(np.int64)) - low
        return self._unit(np.where(null, np.nan, offset))

    def from_unit(self, values):
        """Invert `to_unit`, to the microsecond and without clipping: noisy values stay noisy.

        Parameters
        ----------
        values : array-like of float

        Returns
        -------
        ndarray of datetime64[us]
            Saturated at 2**62 microseconds (146 000 years) from the lower bound.
        """
        offset = self._offset(np.asarray(values, dtype=np.float64))
        null = np.isnan(offset)
        offset = np.rint(np.clip(np.where(null, 0, offset), -(2.0**62), 2.0**62)).astype(np.int64)
        dates = np.datetime64(self.low, "us") + offset.astype("timedelta64[us]")
        return np.where(null, np.datetime64("NaT", "us"), dates)

    def decoded_dtype(self, dtype=None, *, name=None):
        default = np.dtype("datetime64[us]")
        if dtype is None:
            return default
        if types.is_object_dtype(dtype):
            return default if self.nullable else dtype
        if not types.is_datetime64_any_dtype(dtype):
            raise container_error(name, "Datetime", dtype)
        zone = getattr(dtype, "tz", None)
        unit = getattr(dtype, "unit", None) or np.datetime_data(dtype)[0]
        day = datetime.timedelta(days=1)
        fits = pd.Timestamp.min + day < self.low and self.high < pd.Timestamp.max - day
        if unit != "ns" or fits:
            return dtype
        return default if zone is None else pd.DatetimeTZDtype("us", zone)

    def _encode(self, series, null):
        if types.is_object_dtype(series.dtype):
            kinds = ("datetime", "datetime64", "date", "empty")
            if types.infer_dtype(series[~null], skipna=True) not in kinds:
                raise ValueError(f"Column {series.name!r} is declared Datetime; it holds others.")
            try:
                series = pd.to_datetime(series.where(~null, None))
            except (ValueError, TypeError):
                # The error of pandas shows the value.
                message = f"Column {series.name!r} holds dates that pandas cannot convert."
                raise ValueError(message) from None
        if getattr(series.dtype, "tz", None) is not None:
            series = series.dt.tz_convert("UTC").dt.tz_localize(None)
        return self._block(self.to_unit(series.to_numpy()), null)

    def _decode(self, array, dtype, rng):
        fraction, null = self._split(array)
        (low, high), resolution = self._bounds, _RESOLUTIONS[self.resolution]
        steps = np.rint(fraction * ((high - low) // resolution)).astype(np.int64)
        values = (low + steps * resolution).view("datetime64[us]")
        values = pd.Series(np.where(null, np.datetime64("NaT", "us"), values))
        if getattr(dtype, "tz", None) is not None:
            return values.dt.tz_localize("UTC").astype(dtype)
        return values.astype(dtype)


def _microseconds(moment):
    return (moment - _EPOCH) // _MICROSECOND


def _as_datetime(value, field):
    try:
        if isinstance(value, Real):
            raise ValueError
        value = datetime.datetime.fromisoformat(value) if isinstance(value, str) else value
        stamp = pd.Timestamp(value).as_unit("us", round_ok=False)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{field} must be a date and time, to the microsecond.") from error
    if stamp is pd.NaT:
        raise ValueError(f"{field} must be a date and time, not a missing one.")
    stamp = stamp if stamp.tz is None else stamp.tz_convert("UTC").tz_localize(None)
    return stamp.to_pydatetime()
