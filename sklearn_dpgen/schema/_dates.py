"""Columns of dates and times between public bounds."""

import datetime
import re
from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass
from functools import cache
from numbers import Real
from zoneinfo import available_timezones

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike

from sklearn_dpgen.exceptions import PublicValueError
from sklearn_dpgen.persistence._declarations import Maybe, saved
from sklearn_dpgen.schema._column import (
    IntervalColumn,
    check_description,
    check_flags,
    check_missing,
    codes_field,
    description_field,
    given_as,
    read_each,
    word_field,
)

_EPOCH = datetime.datetime(1970, 1, 1)
_MICROSECOND = datetime.timedelta(microseconds=1)
_NO_TIME = datetime.timedelta()
# In microseconds, about 146 000 years.
_FARTHEST = 2**62
_NAT = -(2**63)
_OFFSET = re.compile(r"UTC|(UTC)?[+-][0-9]{2}:[0-9]{2}")
_FINER = ("ns", "ps", "fs", "as")
_PER_SECOND = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}
RESOLUTIONS = {
    "D": 86_400_000_000,
    "h": 3_600_000_000,
    "m": 60_000_000,
    "s": 1_000_000,
    "ms": 1_000,
    "us": 1,
}
# The resolution of the finest directive of a format, from fine to coarse.
_FINEST = {"f": "us", "S": "s", "M": "m", "H": "h", "I": "h"}
# Directives whose texts depend on no system, but for the names of months and days of the week.
_DIRECTIVES = {*"YymdjHIMSfpbBaAz%"}
_FORMATTED = {*"YymdjHIMSfbB"}
_LONGEST_FORMAT = 100


class _InstalledZone:
    """Constraint that names an installed time zone; other names could open files."""

    def holds(self, value):
        if not isinstance(value, str):
            return False
        return bool(_OFFSET.fullmatch(value)) or value in available_timezones()


@saved
@dataclass(frozen=True)
class Datetime(IntervalColumn):
    """A column of dates and times with public bounds.

    Parameters
    ----------
    low, high : str (ISO 8601), datetime, date, Timestamp or datetime64
        Public bounds, multiples of the resolution. Naive bounds and values are in UTC. Values
        outside are clipped, silently. Stored as naive datetimes in UTC.
    resolution : {"D", "h", "min", "s", "ms", "us"}, default="s"
        Decoded values are rounded to it. NumPy's "m" is the minute too. Never finer than what
        ``format`` writes.
    nullable : bool, default=False
    zone : str, optional
        The time zone of decoded values, such as "Europe/Paris"; by default that of the bounds, or
        none if they are naive.
    missing : sequence of int, float or str, default=()
        Codes that mean null in records, such as "unknown" or "1900-01-01"; the column is then
        nullable.
    format : str, optional
        How texts are written, in the directives of :meth:`~datetime.datetime.strptime`, such as
        "%d/%m/%Y %H:%M"; by default ISO 8601. Bounds are in ISO 8601 in any case.
    description : str, optional
        What the column holds, a public text.

    Notes
    -----
    Texts are read as dates, and with a format only in this format. Decoded values are
    datetime64[us], with the time zone if there is one. Bounds in two time zones require ``zone``.
    `to_texts` writes the format, in UTC if it has no "%z", as texts without a zone are read.

    Examples
    --------
    >>> import pandas as pd
    >>> from sklearn_dpgen.schema import Datetime
    >>> day = Datetime("2020-01-01", "2024-12-31", format="%d/%m/%Y")
    >>> day.to_texts(pd.Series([pd.Timestamp("2024-03-31")])).tolist()
    ['31/03/2024']
    """

    _saved_state = {
        "low": datetime.datetime,
        "high": datetime.datetime,
        "resolution": str,
        "nullable": bool,
        "zone": (None, _InstalledZone()),
        "missing": Maybe(tuple),
        "format": Maybe(str),
        "description": Maybe(str),
    }

    low: str | datetime.date | np.datetime64
    high: str | datetime.date | np.datetime64
    _: KW_ONLY
    resolution: str = "s"
    nullable: bool = False
    zone: str | None = None
    missing: Sequence = codes_field()
    format: str | None = word_field()
    description: str | None = description_field()

    def __post_init__(self):
        check_flags(self, "nullable")
        check_description(self)
        check_missing(self)
        if self.resolution == "min":
            object.__setattr__(self, "resolution", "m")
        if not isinstance(self.resolution, str) or self.resolution not in RESOLUTIONS:
            words = ["min" if word == "m" else word for word in RESOLUTIONS]
            raise PublicValueError(
                f"resolution must be one of {words}, got {given_as(self.resolution)}"
                f"{_resolution_advice(self.resolution)}."
            )
        if self.format is not None:
            resolution = _format_resolution(self.format)
            if RESOLUTIONS[resolution] > RESOLUTIONS[self.resolution]:
                object.__setattr__(self, "resolution", resolution)
        zones = set()
        for field in ("low", "high"):
            value, zone = _as_datetime(getattr(self, field), field)
            object.__setattr__(self, field, value)
            zones |= {zone} - {None}
            if _since_epoch(value) % RESOLUTIONS[self.resolution]:
                raise PublicValueError(f"{field} must be a multiple of the resolution.")
        low, high = self._bounds
        if not low < high:
            raise PublicValueError(
                "low must be earlier than high; declare a constant as Categorical, of its text."
            )
        if self.zone is None and len(zones) > 1:
            raise PublicValueError("zone must be given, as low and high are in two time zones.")
        if self.zone is None and zones:
            object.__setattr__(self, "zone", zones.pop())
        if self.zone is not None:
            _check_zone(self.zone)
        if self.format is not None:
            _check_format(self.format, (self.low, self.high))

    @property
    def _bounds(self):
        return _since_epoch(self.low), _since_epoch(self.high)

    @property
    def n_steps(self) -> int:
        """The number of steps of the resolution between the bounds."""
        low, high = self._bounds
        return (high - low) // RESOLUTIONS[self.resolution]

    def to_unit(self, values: ArrayLike | pd.Series) -> np.ndarray:
        """Map the bounds to [-1, 1], affinely, without clipping.

        Parameters
        ----------
        values : array-like of datetime64, or Series
            Naive dates are in UTC. Saturates 2**62 microseconds (146 000 years) from ``low``.

        Returns
        -------
        ndarray of float64
            NaN for a missing date.
        """
        values = _in_utc(values) if isinstance(values, pd.Series) else np.asarray(values)
        if values.dtype.kind != "M":
            values = values.astype("datetime64[us]")
        null, low = np.isnat(values), self._bounds[0]
        offset = _microseconds(values, low - _FARTHEST, low + _FARTHEST) - low
        return self._unit(np.where(null, np.nan, offset))

    def from_unit(self, values: ArrayLike) -> np.ndarray:
        """Invert `to_unit`, to the microsecond and without clipping, also for noisy values.

        Parameters
        ----------
        values : array-like of float

        Returns
        -------
        ndarray of datetime64[us]
            Saturates 2**62 microseconds (146 000 years) from ``low``.
        """
        offset = self._offset(np.asarray(values, dtype=np.float64))
        null = np.isnan(offset)
        offset = np.rint(np.clip(np.where(null, 0, offset), -_FARTHEST, _FARTHEST)).astype(np.int64)
        dates = np.datetime64(self._bounds[0], "us") + offset.astype("timedelta64[us]")
        return np.where(null, np.datetime64("NaT", "us"), dates)

    def in_zone(self, values: ArrayLike | pd.Series) -> pd.Series:
        """Return a datetime64[us] series in UTC as one of ``dtype``."""
        values = pd.Series(values)
        return values if self.zone is None else values.dt.tz_localize("UTC").astype(self.dtype)

    @property
    def dtype(self) -> np.dtype | pd.DatetimeTZDtype:
        if self.zone is None:
            return np.dtype("datetime64[us]")
        return pd.DatetimeTZDtype("us", self.zone)

    @property
    def _rule(self):
        texts = "ISO 8601 texts of dates" if self.format is None else f"texts as {self.format!r}"
        return f"is declared Datetime, and must hold dates or {texts}."

    def to_texts(self, values: pd.Series) -> pd.Series:
        if self.format is None:
            return values
        is_aware, has_zone = isinstance(values.dtype, pd.DatetimeTZDtype), "%z" in self.format
        if is_aware and not has_zone:
            values = values.dt.tz_convert(None)
        elif has_zone and not is_aware:
            values = values.dt.tz_localize("UTC")
        texts = [None if pd.isna(v) else v.strftime(self.format) for v in values]
        return pd.Series(texts, index=values.index, name=values.name, dtype=object)

    def _is_code(self, series):
        moments = [_moment(c, f) for c in self.missing for f in {None, self.format}]
        codes = [moment for moment in moments if moment is not None]
        if _is_fast(series.dtype):
            return np.isin(_microseconds(_in_utc(series), -_FARTHEST, _FARTHEST), codes)
        is_code = super()._is_code(series)
        if codes:
            moments = [_moment(value, self.format) for value in series]
            is_code |= np.array([moment in codes for moment in moments], dtype=bool)
        return is_code

    def _read(self, series, null):
        # One step beyond the bounds is beyond them, and cannot overflow in any unit.
        low, high = (bound + step for bound, step in zip(self._bounds, (-1, 1), strict=True))
        if _is_fast(series.dtype):
            return _microseconds(_in_utc(series), low, high), np.zeros_like(null)

        # Days repeat, and a format takes long.
        @cache
        def of_text(text):
            return _moment(text, self.format)

        def read(value):
            moment = of_text(value) if type(value) is str else _moment(value, self.format)
            return None if moment is None else min(max(moment, low), high)

        return read_each(read, series, null, np.int64)

    def _find_faults(self, values):
        low, high = self._bounds
        return {"outside_bounds": (values < low) | (values > high)}

    def _decode(self, array, rng):
        fraction, null = self._split(array)
        (low, high), resolution = self._bounds, RESOLUTIONS[self.resolution]
        steps = np.rint(fraction * ((high - low) // resolution)).astype(np.int64)
        values = (low + steps * resolution).view("datetime64[us]")
        return self.in_zone(np.where(null, np.datetime64("NaT", "us"), values))


def _is_fast(dtype):
    """Return whether dates of a dtype are read without Python objects."""
    is_datetime64 = isinstance(dtype, np.dtype) and dtype.kind == "M"
    return is_datetime64 or isinstance(dtype, pd.DatetimeTZDtype) or _is_arrow_date(dtype)


def _is_arrow_date(dtype):
    return isinstance(dtype, pd.ArrowDtype) and dtype.type is datetime.date


def _in_utc(series):
    """Return a series of dates as an ndarray of datetime64 in UTC."""
    if isinstance(series.dtype, pd.DatetimeTZDtype):
        series = series.dt.tz_convert(None)
    elif _is_arrow_date(series.dtype):
        # Python's dates end in the year 9999.
        counts = series.astype("timestamp[ms][pyarrow]").astype("int64[pyarrow]")
        times = counts.to_numpy(dtype=np.int64, na_value=_NAT).view("datetime64[ms]")
        return times.astype("datetime64[D]")
    return series.to_numpy()


def _microseconds(values, low, high):
    """Return datetime64 values as microseconds since 1970, rounded down, clipped to [low, high].

    The bounds are so far from the limits of 64 bits that one unit beyond them cannot overflow.
    """
    unit = np.datetime_data(values.dtype)[0]
    if unit in _FINER:
        values = values.astype("datetime64[us]")
    else:
        ends = np.array([low, high]).view("datetime64[us]").astype(values.dtype).astype(np.int64)
        counts = np.clip(values.astype(np.int64), ends[0] - 1, ends[1] + 1)
        values = counts.astype(values.dtype).astype("datetime64[us]")
    return np.clip(values.astype(np.int64), low, high)


def _moment(value, format=None):
    """Return a date as whole microseconds since 1970 in UTC, rounded down; None if not a date.

    Texts are in the format, or in ISO 8601.
    """
    if isinstance(value, pd.Timestamp):
        # The arithmetic of Timestamp overflows.
        count, per_second = int(value.asm8.view(np.int64)), _PER_SECOND[value.unit]
        return count * 1_000_000 // per_second
    if isinstance(value, datetime.datetime):
        return _since_epoch(value)
    if isinstance(value, datetime.date):
        return _since_epoch(datetime.datetime(value.year, value.month, value.day))
    if isinstance(value, str):
        try:
            if format is not None:
                return _since_epoch(datetime.datetime.strptime(value.strip(), format))
            return _since_epoch(datetime.datetime.fromisoformat(value))
        except ValueError:
            return None
    if isinstance(value, np.datetime64):
        return int(_microseconds(np.array([value]), -_FARTHEST, _FARTHEST)[0])
    return None


def _since_epoch(moment):
    """Return a datetime as whole microseconds since 1970; naive ones are in UTC."""
    since = moment.replace(tzinfo=None) - _EPOCH
    return (since - (moment.utcoffset() or _NO_TIME)) // _MICROSECOND


def _as_datetime(value, field):
    """Return a bound as a naive datetime in UTC, and the name of its time zone or None."""
    given, stamp = value, None
    try:
        if isinstance(value, Real):
            raise ValueError
        value = datetime.datetime.fromisoformat(value) if isinstance(value, str) else value
        stamp = pd.Timestamp(value).as_unit("us", round_ok=False)
    except (TypeError, ValueError):
        pass
    if stamp is None:
        raise PublicValueError(
            f"{field} must be a date and time, to the microsecond, such as '2020-01-31', got "
            f"{given_as(given)}."
        )
    if pd.isna(stamp):
        raise PublicValueError(f"{field} must be a date and time, not a missing one.")
    if stamp.tz is None:
        return stamp.to_pydatetime(), None
    return stamp.tz_convert("UTC").tz_localize(None).to_pydatetime(), str(stamp.tz)


def _resolution_advice(word):
    """Return which word stands for one such as "day" or "minutes"."""
    text = word.strip().lower().removesuffix("s") if isinstance(word, str) else ""
    meant = {"d": "D", "day": "D", "daily": "D", "date": "D", "hour": "h", "minute": "min"}
    meant |= {"second": "s", "sec": "s", "millisecond": "ms", "microsecond": "us"}
    return f": write {meant[text]}" if text in meant else ""


def iso_stamp(value):
    """Return a declared date as a timestamp in UTC without a zone, as of a bound; None if none.

    Texts are in ISO 8601: other parsers take 01/02/2019 for January in silence.
    """
    try:
        return pd.Timestamp(_as_datetime(value, "low")[0])
    except PublicValueError:
        return None


def _directives(format):
    return {*re.findall("%(.?)", format, re.DOTALL)}


def _format_resolution(format):
    """Return the resolution of a format, and check its directives."""
    is_text = isinstance(format, str) and len(format) <= _LONGEST_FORMAT and format.isprintable()
    given = _directives(format) if is_text else set()
    unknown = sorted(f"%{letter}" for letter in given - _DIRECTIVES)
    if unknown or not given & _FORMATTED:
        known = " ".join(f"%{letter}" for letter in sorted(_DIRECTIVES))
        raise PublicValueError(
            f"format must be a text such as '%d/%m/%Y', with directives among {known}, got "
            f"{unknown or given_as(format)}."
        )
    return next((found for letter, found in _FINEST.items() if letter in given), "D")


def _check_format(format, bounds):
    """Check that dates near the bounds are read as they are written."""
    given = _directives(format)
    has_date, has_year = given & {*"YymdjbB"}, given & {*"Yy"}
    finest = RESOLUTIONS[_format_resolution(format)] * _MICROSECOND
    is_read = bool(has_year or not has_date)
    for bound in bounds if is_read else ():
        # A time of the day tells formats of 12 hours without AM and PM.
        moment = bound.replace(hour=13, minute=35, second=7, microsecond=123_456)
        text = moment.replace(tzinfo=datetime.UTC).strftime(format)
        try:
            read = datetime.datetime.strptime(text, format).replace(tzinfo=None)
        except ValueError:
            is_read = False
            continue
        is_whole = given & {*"dj"} or not has_date
        moment -= (moment - _EPOCH) % finest
        is_read &= read == moment if is_whole else read.year == moment.year
    if not is_read:
        raise PublicValueError(
            "format must write dates near low and high so that they are read as the same; times "
            f"without a date are of 1900-01-01. Got {format!r}."
        )


def _check_zone(zone):
    try:
        if not isinstance(zone, str):
            raise TypeError
        pd.DatetimeTZDtype("us", zone)
    except Exception as error:  # Invalid names raise different classes.
        raise PublicValueError("zone must be the name of a time zone.") from error
