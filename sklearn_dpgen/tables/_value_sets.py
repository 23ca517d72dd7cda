"""Which values a condition holds: of decoded records, and of the categories that they come from."""

from dataclasses import dataclass

import numpy as np
import pandas as pd
from pandas.api.types import is_list_like

from sklearn_dpgen.schema._binned import Binned
from sklearn_dpgen.tables._conditional_sampling import checked_interval, read_conditions

__all__ = ["ValueSet", "as_numbers", "category_ends", "fulfils"]


@dataclass(frozen=True, eq=False)
class ValueSet:
    """Listed values and intervals of a column, as decoded records are compared with them.

    Parameters
    ----------
    listed : Series of shape (n_values,)
        As records hold them; null is one where it is listed.
    intervals : list of pandas.Interval
        Of floats, or of dates in UTC.
    """

    listed: pd.Series
    intervals: list

    @classmethod
    def read(cls, encoder, name, given):
        """Return the set that a condition on a column means; errors are those of conditions."""
        found = read_conditions(encoder, {name: given})[name]
        column, given = encoder.columns_[name], list(given) if is_list_like(given) else [given]
        listed = [value for value in given if not isinstance(value, pd.Interval)]
        if listed:
            found = read_conditions(encoder, {name: listed})[name]
        intervals = [checked_interval(name, column, v) for v in given if isinstance(v, pd.Interval)]
        return cls(found.values.iloc[: len(listed)], intervals)

    def holds(self, series):
        """Return the mask of the values that are in the set."""
        found = series.isin(self.listed).to_numpy(dtype=bool)
        if self.intervals:
            values = _comparable(series)
            for interval in self.intervals:
                found = found | _inside(values, interval)
        return found

    def may_hold(self, series):
        """Return the mask of the values that are in the set, or of which it is unknown: nulls."""
        if self.listed.isna().any():
            # Whether a value is null is known.
            return self.holds(series)
        return self.holds(series) | series.isna().to_numpy(dtype=bool)

    def categories(self, column):
        """Return of which categories all values are in the set, and of which some may be.

        Parameters
        ----------
        column : CategoryColumn

        Returns
        -------
        whole, some : ndarray of bool of shape (n_categories,)
            On the safe side: ``whole`` is False and ``some`` True where it is not clear.
        """
        low, high = category_ends(column)
        whole, some = self.holds(low) & self.holds(high), self.may_hold(low) | self.may_hold(high)
        if isinstance(column, Binned):
            first, last = _comparable(low), _comparable(high)
            is_single = first == last
            whole = self.holds(low) & is_single
            for interval in self.intervals:
                whole |= _inside(first, interval) & _inside(last, interval)
                some |= _above(last, interval) & _below(first, interval)
            for value in _comparable(self.listed):
                some |= np.asarray((first <= value) & (last >= value))
        null = low.isna().to_numpy(dtype=bool)
        whole[null] = self.listed.isna().any()
        return whole, some


def category_ends(column):
    """Return the lowest and the highest value of each category, two series.

    Parameters
    ----------
    column : CategoryColumn
    """
    if isinstance(column, Binned):
        return column.ends()
    values = column.decode_codes(np.arange(column.n_categories))
    return values, values


def as_numbers(series):
    """Return numbers as they are compared: labels of several types as floats."""
    return series.astype(np.float64) if series.dtype == object else series


def fulfils(frame, given, then):
    """Return the mask of the records that an implication allows.

    Parameters
    ----------
    frame : data frame
    given, then : dict of str to ValueSet
    """
    applies, broken = np.ones(len(frame), dtype=bool), np.zeros(len(frame), dtype=bool)
    for name, values in given.items():
        applies &= values.holds(frame[name])
    for name, values in then.items():
        broken |= ~values.may_hold(frame[name])
    return ~(applies & broken)


def _comparable(series):
    """Return numbers as floats, dates in UTC."""
    if pd.api.types.is_datetime64_any_dtype(series.dtype):
        return pd.Series(pd.to_datetime(series, utc=True).array)
    return series.to_numpy(dtype=np.float64, na_value=np.nan)


def _inside(values, interval):
    return _above(values, interval) & _below(values, interval)


def _above(values, interval):
    return np.asarray(
        values >= interval.left if interval.closed_left else values > interval.left, dtype=bool
    )


def _below(values, interval):
    return np.asarray(
        values <= interval.right if interval.closed_right else values < interval.right, dtype=bool
    )
