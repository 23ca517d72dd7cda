"""Rules that no record can fulfil: found from the schema alone."""

import math
from itertools import product

import numpy as np
import pandas as pd

from sklearn_dpgen.exceptions import PublicValueError
from sklearn_dpgen.schema import Ordinal
from sklearn_dpgen.schema._binned import Binned
from sklearn_dpgen.tables._value_sets import category_ends, fulfils

__all__ = ["check_conflicts", "number_bounds"]

# Combinations of values that are gone through at most.
_MOST = 1 << 18


def check_conflicts(rules, schema):
    """Raise ValueError for rules that contradict one another, or that no declared values fulfil.

    Parameters
    ----------
    rules : TableRules
    schema : Schema

    Notes
    -----
    Inequalities are followed from column to column, and sums compared with their bounds. Of
    implications the values that they tell apart are tried together, unless there are more than
    2^18 combinations. Nulls do not count as a way out of an inequality.
    """
    _check_sums(rules, schema)
    _check_inequalities(rules)
    _check_implications(rules)


def _check_sums(rules, schema):
    for name, (_, parts, label) in rules.derived.items():
        if not label.endswith("Sum"):
            continue
        lows, highs = zip(*(number_bounds(schema[part]) for part in parts), strict=True)
        low, high = number_bounds(schema[name])
        if math.fsum(lows) > high or math.fsum(highs) < low:
            raise PublicValueError(
                f"{label}: no sum of {list(parts)} is within the bounds of column {name!r}."
            )


def number_bounds(column):
    """Return the lowest and the highest value that a column of numbers declares."""
    if isinstance(column, Ordinal):
        return min(column.labels), max(column.labels)
    return column.low, column.high


def _check_inequalities(rules):
    """Follow inequalities from a column to all that are larger."""
    larger: dict = {}
    for rule, label in rules.inequalities:
        larger.setdefault(rule.low, []).append((rule.high, rule.strict, label))
    for first in larger:
        # Columns that are not smaller, and whether they are surely larger.
        reached: dict[str, bool] = {}
        queue: list[tuple] = [(first, False, None)]
        while queue:
            name, is_strict, label = queue.pop()
            if label is not None and reached.get(name, -1) >= is_strict:
                continue
            if label is not None:
                reached[name] = is_strict
                _check_pair(rules.encoder, first, name, is_strict, label)
            queue += [(n, is_strict or s, text) for n, s, text in larger.get(name, ())]


def _check_pair(encoder, low, high, is_strict, label):
    (lowest, _), (_, highest) = (_extremes(encoder.columns_[name]) for name in (low, high))
    if low == high and is_strict:
        raise PublicValueError(
            f"{label}: by the other inequalities column {low!r} is below itself."
        )
    if low != high and (lowest >= highest if is_strict else lowest > highest):
        raise PublicValueError(
            f"{label}: column {low!r} must be below {high!r}, and is declared to be above it."
        )


def _extremes(column):
    low, high = category_ends(column)
    return low.dropna().min(), high.dropna().max()


def _check_implications(rules):
    """Try the values that implications tell apart, of columns that they join."""
    left = [({*given, *then}, (given, then), label) for given, then, label in rules.implications]
    while left:
        columns, *_ = left[0]
        group = [left.pop(0)]
        while joined := [part for part in left if columns & part[0]]:
            columns = columns.union(*(part[0] for part in joined))
            group += joined
            left = [part for part in left if part not in joined]
        names = sorted(columns)
        values = [_told_apart(rules.encoder, name, group) for name in names]
        if math.prod(map(len, values)) > _MOST:
            continue
        grid = np.array(list(product(*map(range, map(len, values)))))
        drawn = [part.iloc[places] for part, places in zip(values, grid.T, strict=True)]
        frame = pd.DataFrame({n: part.array for n, part in zip(names, drawn, strict=True)})
        kept = np.ones(len(frame), dtype=bool)
        for _, sides, label in group:
            kept &= fulfils(frame, *sides)
            if not kept.any():
                raise PublicValueError(
                    f"{label}: with the implications before it, no values of {names} are left."
                )


def _told_apart(encoder, name, group):
    """Return values of a column, one at least of each kind that the rules tell apart."""
    column = encoder.columns_[name]
    if not isinstance(column, Binned):
        return column.decode_codes(np.arange(column.n_categories))
    sets = [side[name] for _, sides, _ in group for side in sides if name in side]
    listed = pd.concat([one.listed for one in sets], ignore_index=True).dropna()
    intervals = [interval for one in sets for interval in one.intervals]
    intervals += [pd.Interval(v, v, closed="both") for v in as_ends(listed)]
    starts, stops = column.interval_places(intervals) if intervals else ((), ())
    places = np.unique(np.concatenate([[0], starts, stops])).astype(np.int64)
    values = column.decode_places(places[places < column.n_places])
    nulls = column.decode_codes(np.arange(column.n_bins, column.n_categories))
    parts = [part for part in (values, listed, nulls) if len(part)]
    return pd.concat(parts, ignore_index=True).drop_duplicates()


def as_ends(values):
    """Return numbers as floats, dates in UTC: ends of intervals."""
    if pd.api.types.is_datetime64_any_dtype(values.dtype):
        return list(pd.to_datetime(values, utc=True))
    return [float(value) for value in values]
