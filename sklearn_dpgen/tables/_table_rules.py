"""Constraints between columns: validation, consistency, and enforcement in samples."""

import math
from copy import copy
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter
from itertools import chain, product

import numpy as np
import pandas as pd
from pandas.api.types import is_list_like

from sklearn_dpgen.exceptions import PublicError, PublicValueError
from sklearn_dpgen.persistence._declarations import saved
from sklearn_dpgen.preprocessing import TabularEncoder
from sklearn_dpgen.schema import (
    Datetime,
    FunctionalDependency,
    Implication,
    Inequality,
    Numeric,
    Ordinal,
    Schema,
    Sum,
)
from sklearn_dpgen.schema._binned import Binned
from sklearn_dpgen.schema._column import Derived, MadeUpColumn
from sklearn_dpgen.schema._expression_advice import undeclared_in
from sklearn_dpgen.schema._rules import Rule, columns_of
from sklearn_dpgen.tables._conditional_sampling import checked_interval, read_conditions
from sklearn_dpgen.tables._distributions import LogLinearTerm

__all__ = [
    "TableRules",
    "ValueSet",
    "barred_pairs",
    "barred_term",
    "broken",
    "check_measured",
    "is_number",
    "possible_cells",
]


@dataclass(frozen=True, eq=False)
class ValueSet:
    """Set of values of a column: listed values and intervals.

    Parameters
    ----------
    listed : Series of shape (n_values,)
        Values in the units of the column, null included if it is listed.
    intervals : list of pandas.Interval
        Intervals of floats, or of dates in UTC.
    """

    listed: pd.Series
    intervals: list

    @classmethod
    def read(cls, encoder, name, given):
        """Return the set for a condition, with the errors of :func:`read_conditions`."""
        condition = read_conditions(encoder, {name: given})[name]
        column, given = encoder.columns_[name], list(given) if is_list_like(given) else [given]
        listed = [value for value in given if not isinstance(value, pd.Interval)]
        if listed:
            condition = read_conditions(encoder, {name: listed})[name]
        intervals = [checked_interval(name, column, v) for v in given if isinstance(v, pd.Interval)]
        return cls(condition.values.iloc[: len(listed)], intervals)

    def holds(self, series):
        """Return the mask of the values that are in the set."""
        mask = series.isin(self.listed).to_numpy(dtype=bool)
        if self.intervals:
            values = _comparable(series)
            for interval in self.intervals:
                mask = mask | _inside(values, interval)
        return mask

    def may_hold(self, series):
        """Return the mask of the values that are in the set or unknown, which are nulls."""
        if self.listed.isna().any():
            # Null is a listed value, so membership is known for all values.
            return self.holds(series)
        return self.holds(series) | series.isna().to_numpy(dtype=bool)

    def categories(self, column):
        """Return the masks of the categories that are inside the set, and that may overlap it.

        Parameters
        ----------
        column : CategoryColumn

        Returns
        -------
        whole, some : ndarray of bool of shape (n_categories,)
            Conservative: ``whole`` may be False, and ``some`` True, for further categories.
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
    """Return two series: the lowest and the highest value of each category of a column."""
    if isinstance(column, Binned):
        return column.ends()
    values = column.decode_codes(np.arange(column.n_categories))
    return values, values


def as_numbers(series):
    """Return numeric values, with labels of mixed types as floats."""
    return series.astype(np.float64) if series.dtype == object else series


def fulfils(frame, given, then):
    """Return the mask of the records that satisfy an implication.

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
    """Return values that compare with intervals: floats, or dates in UTC."""
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


# The most combinations of values that are enumerated to find contradictions.
_MOST = 1 << 18


def check_conflicts(rules, schema):
    """Raise ValueError for contradictory rules, or rules that no declared values satisfy.

    Parameters
    ----------
    rules : TableRules
    schema : Schema

    Notes
    -----
    Inequalities are followed transitively, and sums are compared with their bounds. For
    implications, all combinations of representative values are enumerated, unless there are more
    than 2^18. An inequality that only nulls satisfy is refused.
    """
    _check_sums(rules, schema)
    _check_inequalities(rules)
    _check_implications(rules)


def _check_sums(rules, schema):
    """Raise ValueError for a total whose bounds no sum attains."""
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
    """Return the declared lower and upper bound of a numeric column."""
    if isinstance(column, Ordinal):
        return min(column.labels), max(column.labels)
    return column.low, column.high


def _check_inequalities(rules):
    """Raise ValueError for inequalities that contradict one another or the declared bounds."""
    larger: dict = {}
    for rule, label in rules.inequalities:
        larger.setdefault(rule.low, []).append((rule.high, rule.strict, label))
    for first in larger:
        # Columns that are at least as large, and whether they are strictly larger.
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
    """Raise ValueError if column ``low`` cannot be below column ``high``."""
    (lowest, _), (_, highest) = (_extremes(encoder.columns_[name]) for name in (low, high))
    if low == high and is_strict:
        raise PublicValueError(
            f"{label}: by the other inequalities column {low!r} is below itself."
        )
    if low != high and (lowest >= highest if is_strict else lowest > highest):
        raise PublicValueError(
            f"{label}: column {low!r} must be below {high!r}, got bounds above it."
        )


def _extremes(column):
    """Return the least and the greatest value of a column."""
    low, high = category_ends(column)
    return low.dropna().min(), high.dropna().max()


def _check_implications(rules):
    """Raise ValueError for implications without a common solution, by groups of columns."""
    left = [({*given, *then}, (given, then), label) for given, then, label in rules.implications]
    while left:
        columns, *_ = left[0]
        group = [left.pop(0)]
        # Implications that share columns, directly or through others, are solved together.
        while joined := [rule for rule in left if columns & rule[0]]:
            columns = columns.union(*(rule[0] for rule in joined))
            group += joined
            left = [rule for rule in left if rule not in joined]
        names = sorted(columns)
        values = [_representatives(rules.encoder, name, group) for name in names]
        if math.prod(map(len, values)) > _MOST:
            continue
        grid = np.array(list(product(*map(range, map(len, values)))))
        chosen = [own.iloc[indices] for own, indices in zip(values, grid.T, strict=True)]
        frame = pd.DataFrame({n: own.array for n, own in zip(names, chosen, strict=True)})
        kept = np.ones(len(frame), dtype=bool)
        for _, sides, label in group:
            kept &= fulfils(frame, *sides)
            if not kept.any():
                raise PublicValueError(
                    f"{label}: with the implications before it, no values of {names} are left."
                )


def _representatives(encoder, name, group):
    """Return values of a column, at least one of each equivalence class under the rules."""
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
    nonempty = [series for series in (values, listed, nulls) if len(series)]
    return pd.concat(nonempty, ignore_index=True).drop_duplicates()


def as_ends(values):
    """Return values as ends of intervals: floats, or dates in UTC."""
    if pd.api.types.is_datetime64_any_dtype(values.dtype):
        return list(pd.to_datetime(values, utc=True))
    return [float(value) for value in values]


@saved
class TableRules:
    """Validated public rules, and their application to decoded records.

    Parameters
    ----------
    rules : sequence of Rule
    schema : Schema

    Attributes
    ----------
    rules : list of Rule
    declared : Schema
        The schema as given.
    derived : dict of str to (function, columns, label)
        Computed columns in topological order.
    schema : Schema
        The schema with computed columns marked as Derived.

    Raises
    ------
    ValueError
        Rules that do not fit the schema or contradict one another.
    """

    _saved_state = {"rules": list[Rule], "schema": Schema}

    def __init__(self, rules, schema):
        self.encoder = TabularEncoder(schema, n_bins=2).fit()
        self.rules, self.declared, self.derived = list(rules), schema, {}
        self.inequalities, self.implications = [], []
        for i, rule in enumerate(rules):
            if not isinstance(rule, Rule):
                raise PublicValueError(
                    f"constraints[{i}] must be a rule, got {type(rule).__name__}."
                )
            label = f"constraints[{i}], {type(rule).__name__}"
            _check_columns(rule, schema, label)
            try:
                self._add(rule, label)
            except PublicError as error:
                raise PublicValueError(f"{label}: {error}") from error
        self.derived = self._in_order()
        check_conflicts(self, schema)
        self.schema = Schema({n: Derived(c) if n in self.derived else c for n, c in schema.items()})

    def _to_saved(self):
        return {"rules": self.rules, "schema": self.declared}

    def _add(self, rule, label):
        """Validate a rule by its type, and add it."""
        schema = self.declared
        if isinstance(rule, Inequality):
            _check_comparable(rule, schema)
            self.inequalities.append((rule, label))
        elif isinstance(rule, Implication):
            for name, values in (*rule.given.items(), *rule.then.items()):
                fault = undeclared_in(name, schema[name], values)
                if fault is not None:
                    raise PublicValueError(fault)
            sides = (self.value_sets(side) for side in (rule.given, rule.then))
            self.implications.append((*sides, label))
        elif isinstance(rule, Sum):
            _check_sum(rule, schema)
            compute = _Total(rule, schema[rule.total])
            self._derive(rule.total, compute, rule.parts, label)
        elif isinstance(rule, FunctionalDependency):
            self._derive(rule.column, _Lookup(rule, self.encoder), rule.given, label)

    def _derive(self, name, compute, parents, label):
        """Add a computed column."""
        if name in self.derived:
            raise PublicValueError(
                f"column {name!r} is computed by {self.derived[name][2]} already."
            )
        self.derived[name] = compute, parents, label

    def _in_order(self):
        """Return the computed columns in topological order; ValueError for a cycle."""
        graph = {name: parents for name, (_, parents, _) in self.derived.items()}
        try:
            order = list(TopologicalSorter(graph).static_order())
        except CycleError as error:
            cycle = error.args[1]
        else:
            return {name: self.derived[name] for name in order if name in self.derived}
        raise PublicValueError(
            f"constraints must not compute columns from one another in a cycle, got {cycle}."
        )

    def value_sets(self, conditions):
        """Return the ValueSet of each condition."""
        return {n: ValueSet.read(self.encoder, n, given) for n, given in conditions.items()}

    def premises(self, wanted):
        """Return the conditions on keys that follow from conditions on looked-up columns.

        Parameters
        ----------
        wanted : dict of str to ValueSet

        Returns
        -------
        dict of str to list
            Keys of categorical columns that determine another column alone. They make rejections
            rare.
        """
        conditions: dict[str, list] = {}
        for name, values in wanted.items():
            compute, given, _ = self.derived[name]
            is_lookup = isinstance(compute, _Lookup) and len(given) == 1
            is_computed = given[0] in self.derived
            is_binned = isinstance(self.encoder.columns_[given[0]], Binned)
            if is_lookup and not is_computed and not is_binned:
                keys = compute.keys_of(values)
                if keys:
                    conditions.setdefault(given[0], keys)
        return conditions

    def among(self, columns):
        """Return the rules that have no other columns than these, a collection of names."""
        found, known = copy(self), {*columns}
        found.rules = [rule for rule in self.rules if known.issuperset(columns_of(rule))]
        found.inequalities = [
            (rule, label) for rule, label in self.inequalities if {rule.low, rule.high} <= known
        ]
        found.implications = [
            (given, then, label)
            for given, then, label in self.implications
            if {*given, *then} <= known
        ]
        found.derived = {
            name: own for name, own in self.derived.items() if {name, *own[1]} <= known
        }
        return found

    def project(self, frame):
        """Compute the derived columns of records, and return the mask of valid records.

        Parameters
        ----------
        frame : data frame
            Decoded records; derived columns are replaced.

        Returns
        -------
        kept : ndarray of bool of shape (n,)
        """
        kept = np.ones(len(frame), dtype=bool)
        for name, (compute, *_) in self.derived.items():
            frame[name], is_declared = compute(frame)
            kept &= is_declared
        for rule, _ in self.inequalities:
            low, high = as_numbers(frame[rule.low]), as_numbers(frame[rule.high])
            kept &= ~(low >= high if rule.strict else low > high).to_numpy(dtype=bool)
        for given, then, _ in self.implications:
            kept &= fulfils(frame, given, then)
        return kept


# Relative rounding of floats that were written to a file and read again.
_ROUNDING = 1e-9


def broken(rules, frame):
    """Return the mask of the records that break rules, also those of computed columns."""
    computed = frame.copy()
    kept = rules.project(computed)
    for name in rules.derived:
        kept &= _are_equal(computed[name], frame[name])
    return ~kept


def _are_equal(first, second):
    equal = (first == second).to_numpy(dtype=bool, na_value=False)
    if pd.api.types.is_float_dtype(first.dtype) and pd.api.types.is_numeric_dtype(second.dtype):
        a, b = (part.to_numpy(dtype=np.float64, na_value=np.nan) for part in (first, second))
        equal = equal | np.isclose(a, b, rtol=_ROUNDING, atol=_ROUNDING)
    return equal | (first.isna() & second.isna()).to_numpy(dtype=bool)


def check_measured(schema, sampler):
    """Raise ValueError if parameters name identifiers or computed columns.

    Parameters
    ----------
    schema : Schema
        The schema of :class:`TableRules`.
    sampler : TableSampler
    """
    unmeasured = [name for name, column in schema.items() if isinstance(column, MadeUpColumn)]
    target, marginals, n_bins = sampler.target, sampler.marginals, sampler.n_bins
    named = {
        "target": [target] if isinstance(target, str) else target or (),
        "marginals": [] if isinstance(marginals, str) else chain(*filter(_is_tuple, marginals)),
        "n_bins": n_bins if isinstance(n_bins, dict) else (),
        "workload": chain(*(k if _is_tuple(k) else [k] for k in sampler.workload or ())),
    }
    for parameter, names in named.items():
        for name in names:
            if name in unmeasured:
                raise PublicValueError(
                    f"{parameter} must name measured columns, got {name!r}, which is an identifier "
                    "or computed by constraints."
                )


def _is_tuple(value):
    return isinstance(value, tuple)


class _Total:
    """Computes the total of a Sum."""

    def __init__(self, rule, column):
        self._parts, self._column = rule.parts, column

    def __call__(self, frame):
        total = as_numbers(frame[self._parts[0]])
        for name in self._parts[1:]:
            total = total + as_numbers(frame[name])
        allowed = _declares(self._column, total)
        # Totals that are not allowed are rejected later, and might not fit the dtype.
        return total.where(allowed, 0).astype(self._column.dtype), allowed.to_numpy(dtype=bool)


class _Lookup:
    """Computes the column of a FunctionalDependency."""

    def __init__(self, rule, encoder):
        self._given, self._column = rule.given, encoder.columns_[rule.column]
        keys = [key if len(rule.given) > 1 else (key,) for key in rule.mapping]
        self._keys = [
            _read(encoder, name, list(values))
            for name, values in zip(rule.given, zip(*keys, strict=True), strict=True)
        ]
        for name in rule.given:
            if getattr(encoder.schema[name], "n_steps", 0) is None:
                raise PublicValueError(f"column {name!r} has no grid: its values cannot be listed.")
        self._values: pd.Series = _read(encoder, rule.column, list(rule.mapping.values()))
        if self._column.nullable:
            # Keys that are not found get index -1, which is this null.
            null = self._column.decode_codes(np.array([self._column.n_categories - 1]))
            self._values = pd.concat([self._values, null], ignore_index=True)
        if len({*self._key_codes(None)[0]}) < len(keys):
            raise PublicValueError("mapping must not have two keys for one value.")
        nullable = [name for name in rule.given if encoder.schema[name].nullable]
        if nullable and not self._column.nullable:
            self._check_nulls(rule, nullable)

    def _check_nulls(self, rule, nullable):
        """Raise ValueError if a null of a key column would give an undeclared null."""
        for name, keys in zip(rule.given, self._keys, strict=True):
            if name in nullable and (len(rule.given) > 1 or not keys.isna().any()):
                raise PublicValueError(
                    f"column {rule.column!r} must be nullable, as {name!r} is: it is null where "
                    f"{name!r} is null."
                )

    def keys_of(self, values):
        """Return the keys whose value is in a set; empty if null is in the set."""
        if values.listed.isna().any():
            return []
        held = values.holds(self._values)[: len(self._keys[0])]
        return self._keys[0][held].tolist()

    def _key_codes(self, frame):
        """Return integer codes of the keys, and of the key columns of a frame."""
        n, rows = len(self._keys[0]), 0 if frame is None else len(frame)
        codes = np.zeros(n + rows, dtype=np.int64)
        for name, keys in zip(self._given, self._keys, strict=True):
            series = [keys] if frame is None else [keys, frame[name]]
            both = pd.concat(series, ignore_index=True)
            own, _ = pd.factorize(both, use_na_sentinel=False)
            # Codes are renumbered for each column, so that products of sizes do not overflow.
            _, codes = np.unique(codes * (own.max() + 1) + own, return_inverse=True)
        return codes[:n], codes[n:]

    def __call__(self, frame):
        keys, rows = self._key_codes(frame)
        indices = pd.Index(keys).get_indexer(rows)
        null = np.zeros(len(frame), dtype=bool)
        for name in self._given:
            null |= frame[name].isna().to_numpy(dtype=bool)
        values = self._values.take(indices).set_axis(frame.index)
        return values, (indices >= 0) | (null & self._column.nullable)


def _read(encoder, name, values):
    """Return a series of declared values in the units of a column."""
    if any(isinstance(value, pd.Interval) for value in values):
        raise PublicValueError(f"mapping must not have intervals, got one of column {name!r}.")
    return ValueSet.read(encoder, name, values).listed.reset_index(drop=True)


def _declares(column, values):
    """Return the mask of the values that a numeric column declares."""
    null = values.isna()
    if isinstance(column, Ordinal):
        return values.isin(list(column.labels)) | (null & column.nullable)
    inside = (values >= column.low) & (values <= column.high)
    if column.n_steps is not None:
        steps = (values - column.low) / ((column.high - column.low) / column.n_steps)
        inside &= (steps - steps.round()).abs() < _ROUNDING
    return inside | (null & column.nullable)


# Tolerance in steps of a grid.
_ROUNDING = 1e-6


def _check_columns(rule, schema, label):
    """Raise ValueError unless a rule names measured columns of the schema."""
    for name in columns_of(rule):
        if name not in schema:
            raise PublicValueError(f"{label} must name columns of the schema, got {name!r}.")
        if isinstance(schema[name], MadeUpColumn):
            raise PublicValueError(
                f"{label} must name measured columns, got the identifier {name!r}."
            )


def is_number(column):
    """Return whether a column is numeric, or ordinal with numeric labels."""
    if isinstance(column, Ordinal):
        return all(type(label) in (int, float) for label in column.labels)
    return isinstance(column, Numeric)


def _check_comparable(rule, schema):
    """Raise ValueError unless the columns of an inequality can be compared."""
    low, high = schema[rule.low], schema[rule.high]
    if isinstance(low, Datetime) and isinstance(high, Datetime):
        if (low.zone is None) != (high.zone is None):
            raise PublicValueError(
                f"{rule.low!r} and {rule.high!r} must both have a time zone, or neither."
            )
    elif not (is_number(low) and is_number(high)):
        raise PublicValueError(
            f"{rule.low!r} and {rule.high!r} must both be numeric, or both be dates."
        )


def _is_integer(column):
    """Return whether a numeric column has integer values only."""
    if isinstance(column, Ordinal):
        return all(type(label) is int for label in column.labels)
    return column.integer


def _check_sum(rule, schema):
    """Raise ValueError unless the total of a Sum can be computed exactly."""
    total = schema[rule.total]
    for name in (rule.total, *rule.parts):
        if not is_number(schema[name]):
            raise PublicValueError(f"column {name!r} must be numeric.")
    integers = [schema[name] for name in rule.parts if _is_integer(schema[name])]
    if sum(max(map(abs, map(int, number_bounds(column)))) for column in integers) >= 2**63:
        raise PublicValueError(f"sums of {list(rule.parts)} must fit in integers of 64 bits.")
    for name in rule.parts:
        if schema[name].nullable and not total.nullable:
            raise PublicValueError(
                f"column {rule.total!r} must be nullable, as {name!r} is: the total is null where "
                f"{name!r} is null."
            )
        if (_is_integer(total) or isinstance(total, Ordinal)) and not _is_integer(schema[name]):
            raise PublicValueError(
                f"column {rule.total!r} has listed values or integers, so part {name!r} must be of "
                "integers: other sums are rounded."
            )
        has_grid = getattr(schema[name], "n_steps", 0) is not None
        if not has_grid and getattr(total, "n_steps", 0) is not None:
            raise PublicValueError(
                f"column {rule.total!r} has a grid and part {name!r} has none: sums would not be "
                "on the grid."
            )


# A logit far below all others. It is finite, so that a block is drawn even if all are barred.
_BARRED = -1e9


def barred_pairs(rules, encoder, blocks):
    """Return the pairs of blocks that rules of two columns make impossible.

    Parameters
    ----------
    rules : TableRules
    encoder : TabularEncoder
        Fitted, with bins.
    blocks : list of ndarray of int
        The block of each category of each column.

    Returns
    -------
    dict of (int, int) to ndarray of bool
        For ascending pairs of columns, the mask of the impossible pairs of blocks. It may miss
        some.
    """
    names = list(encoder.columns_)
    pairs: dict = {}
    for rule, _ in rules.inequalities:
        if not {rule.low, rule.high} & rules.derived.keys():
            low, high = names.index(rule.low), names.index(rule.high)
            lowest, _ = _block_ends(encoder.columns_[rule.low], blocks[low])
            _, highest = _block_ends(encoder.columns_[rule.high], blocks[high])
            compare = np.greater_equal if rule.strict else np.greater
            _add(pairs, low, high, compare.outer(lowest, highest))
    for given, then, _ in rules.implications:
        if len(given) == len(then) == 1 and not {*given, *then} & rules.derived.keys():
            ((first, premise),), ((second, conclusion),) = given.items(), then.items()
            columns = names.index(first), names.index(second)
            whole, _ = premise.categories(encoder.columns_[first])
            _, some = conclusion.categories(encoder.columns_[second])
            n_whole = np.bincount(blocks[columns[0]], weights=~whole)
            n_some = np.bincount(blocks[columns[1]], weights=some)
            _add(pairs, *columns, np.logical_and.outer(n_whole == 0, n_some == 0))
    return {columns: barred for columns, barred in pairs.items() if barred.any()}


def _add(pairs, first, second, barred):
    """Add barred pairs of blocks, with the columns in ascending order."""
    key, barred = ((first, second), barred) if first < second else ((second, first), barred.T)
    pairs[key] = pairs.get(key, False) | barred


def _block_ends(column, blocks):
    """Return the lowest and the highest value of each block, infinite if it contains null."""
    low, high = (_as_floats(series) for series in category_ends(column))
    lowest, highest = np.full(blocks.max() + 1, np.inf), np.full(blocks.max() + 1, -np.inf)
    # A null violates no inequality.
    np.minimum.at(lowest, blocks, np.where(np.isnan(low), -np.inf, low))
    np.maximum.at(highest, blocks, np.where(np.isnan(high), np.inf, high))
    return lowest, highest


def _as_floats(series):
    """Return numbers, or dates in microseconds, which are exact in float64 for 285 years."""
    if series.dtype.kind != "M":
        return series.to_numpy(dtype=np.float64, na_value=np.nan)
    moments = series.dt.tz_convert(None) if series.dt.tz is not None else series
    counts = moments.to_numpy(dtype="datetime64[us]").astype(np.int64).astype(np.float64)
    return np.where(series.isna(), np.nan, counts)


def barred_term(barred, columns, column):
    """Return the log-linear term that excludes barred pairs of blocks.

    Parameters
    ----------
    barred : ndarray of bool
    columns : tuple of int
        The columns of its axes.
    column : int
        The later one of these columns.

    Returns
    -------
    LogLinearTerm
    """
    (parent,) = (other for other in columns if other != column)
    table = barred if columns[1] == column else barred.T
    groups = tuple(np.arange(size) for size in table.shape)
    return LogLinearTerm((parent,), groups, np.where(table, _BARRED, 0.0))


def possible_cells(columns, groups, terms):
    """Return the mask of the possible cells of a table, or None if all are possible.

    Parameters
    ----------
    columns : tuple of int
        Columns of the table; the last one is the column of the terms.
    groups : tuple of ndarray of int
        The group of each block of each column.
    terms : sequence of LogLinearTerm
        Terms from :func:`barred_term`.
    """
    shape = tuple(int(g.max()) + 1 for g in groups)
    mask = np.ones(shape, dtype=bool)
    for term in terms:
        (parent,) = term.parents
        if parent in columns:
            axis = columns.index(parent)
            allowed = np.zeros((shape[axis], shape[-1]), dtype=bool)
            rows, cells = np.nonzero(term.logits == 0)
            allowed[groups[axis][rows], groups[-1][cells]] = True
            spread = [1] * len(shape)
            spread[axis], spread[-1] = allowed.shape
            mask &= allowed.reshape(spread)
    return None if mask.all() else mask
