"""The rules of a table, checked against its schema, and what they make of drawn records."""

from graphlib import CycleError, TopologicalSorter
from itertools import chain

import numpy as np
import pandas as pd

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
from sklearn_dpgen.schema._rules import Rule
from sklearn_dpgen.tables._rule_conflicts import check_conflicts, number_bounds
from sklearn_dpgen.tables._value_sets import ValueSet, as_numbers, fulfils

__all__ = ["TableRules", "check_measured", "is_number"]


@saved
class TableRules:
    """Public rules, as they apply to decoded records.

    Parameters
    ----------
    rules : sequence of Rule
    schema : Schema

    Attributes
    ----------
    rules : list of Rule
    declared : Schema
        As given.
    derived : dict of str to (rule, label)
        The columns that are computed, each after those that it is computed of.
    schema : Schema
        With these columns as ones that are made up.

    Raises
    ------
    ValueError
        Rules that do not fit the schema, with the place of the rule, its column and why.
    """

    _saved_state = {"rules": list[Rule], "schema": Schema}

    def __init__(self, rules, schema):
        self.encoder = TabularEncoder(schema, n_bins=2).fit()
        self.rules, self.declared, self.derived = list(rules), schema, {}
        self.inequalities, self.implications = [], []
        for place, rule in enumerate(rules):
            if not isinstance(rule, Rule):
                raise PublicValueError(f"constraints[{place}] is no rule: {type(rule).__name__}.")
            label = f"constraints[{place}], {type(rule).__name__}"
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
        schema = self.declared
        if isinstance(rule, Inequality):
            _check_comparable(rule, schema)
            self.inequalities.append((rule, label))
        elif isinstance(rule, Implication):
            sides = (self.value_sets(side) for side in (rule.given, rule.then))
            self.implications.append((*sides, label))
        elif isinstance(rule, Sum):
            _check_sum(rule, schema)
            self._derive(rule.total, _Total(rule, schema[rule.total]), rule.parts, label)
        elif isinstance(rule, FunctionalDependency):
            found = _Lookup(rule, self.encoder)
            self._derive(rule.column, found, rule.given, label)

    def _derive(self, name, compute, parents, label):
        if name in self.derived:
            raise PublicValueError(
                f"column {name!r} is computed by {self.derived[name][2]} already."
            )
        self.derived[name] = compute, parents, label

    def _in_order(self):
        graph = {name: parents for name, (_, parents, _) in self.derived.items()}
        try:
            order = list(TopologicalSorter(graph).static_order())
        except CycleError as error:
            circle = error.args[1]
        else:
            return {name: self.derived[name] for name in order if name in self.derived}
        raise PublicValueError(
            f"constraints compute columns from one another, in a circle: {circle}."
        )

    def value_sets(self, conditions):
        """Return what conditions on columns hold of decoded records, a dict of ValueSet."""
        return {n: ValueSet.read(self.encoder, n, given) for n, given in conditions.items()}

    def premises(self, wanted):
        """Return conditions on drawn columns that follow from those on columns that are looked up.

        Parameters
        ----------
        wanted : dict of str to ValueSet

        Returns
        -------
        dict of str to list
            Of columns of labels, each of which alone another one is looked up by.
        """
        found: dict[str, list] = {}
        for name, values in wanted.items():
            compute, given, _ = self.derived[name]
            is_lookup = isinstance(compute, _Lookup) and len(given) == 1
            if is_lookup and given[0] not in self.derived and not self._is_binned(given[0]):
                keys = compute.keys_of(values)
                if keys:
                    found.setdefault(given[0], keys)
        return found

    def _is_binned(self, name):
        return isinstance(self.encoder.columns_[name], Binned)

    def project(self, frame):
        """Compute derived columns, and find the records that fulfil all rules.

        Parameters
        ----------
        frame : data frame
            Decoded; its derived columns are replaced.

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


def check_measured(schema, sampler):
    """Raise ValueError where parameters name columns of which no record is read.

    Parameters
    ----------
    schema : Schema
        Of :class:`TableRules`.
    sampler : TableSampler
    """
    made_up = [name for name, column in schema.items() if isinstance(column, MadeUpColumn)]
    target, marginals, n_bins = sampler.target, sampler.marginals, sampler.n_bins
    named = {
        "target": [target] if isinstance(target, str) else target or (),
        "marginals": [] if isinstance(marginals, str) else chain(*filter(_is_tuple, marginals)),
        "n_bins": n_bins if isinstance(n_bins, dict) else (),
        "workload": chain(*(k if _is_tuple(k) else [k] for k in sampler.workload or ())),
    }
    for parameter, names in named.items():
        for name in names:
            if name in made_up:
                raise PublicValueError(
                    f"{parameter} names column {name!r}, which is made up and not measured: it is "
                    "an identifier, or constraints compute it."
                )


def _is_tuple(value):
    return isinstance(value, tuple)


class _Total:
    """Adds up parts."""

    def __init__(self, rule, column):
        self._parts, self._column = rule.parts, column

    def __call__(self, frame):
        total = as_numbers(frame[self._parts[0]])
        for name in self._parts[1:]:
            total = total + as_numbers(frame[name])
        allowed = _declares(self._column, total)
        # What is not allowed is not kept, but need not fit the dtype.
        return total.where(allowed, 0).astype(self._column.dtype), allowed.to_numpy(dtype=bool)


class _Lookup:
    """Looks values up."""

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
            # The last one is that of what is not found.
            null = self._column.decode_codes(np.array([self._column.n_categories - 1]))
            self._values = pd.concat([self._values, null], ignore_index=True)
        if len({*self._places(None)[0]}) < len(keys):
            raise PublicValueError("mapping has two keys that are one value of the columns.")
        nullable = [name for name in rule.given if encoder.schema[name].nullable]
        if nullable and not self._column.nullable:
            self._check_nulls(rule, nullable)

    def _check_nulls(self, rule, nullable):
        for name, keys in zip(rule.given, self._keys, strict=True):
            if name in nullable and (len(rule.given) > 1 or not keys.isna().any()):
                raise PublicValueError(
                    f"column {rule.column!r} must be nullable, as {name!r} is: where that is null, "
                    "it is looked up as null."
                )

    def keys_of(self, values):
        """Return the keys that are looked up as one of some values; none where null is one too."""
        if values.listed.isna().any():
            return []
        held = values.holds(self._values)[: len(self._keys[0])]
        return self._keys[0][held].tolist()

    def _places(self, frame):
        """Return numbers for the keys, and for the rows of a frame: equal where values are."""
        n, rows = len(self._keys[0]), 0 if frame is None else len(frame)
        codes = np.zeros(n + rows, dtype=np.int64)
        for name, keys in zip(self._given, self._keys, strict=True):
            parts = [keys] if frame is None else [keys, frame[name]]
            both = pd.concat(parts, ignore_index=True)
            found, _ = pd.factorize(both, use_na_sentinel=False)
            # Told apart anew at each column, so that no product of sizes overflows.
            _, codes = np.unique(codes * (found.max() + 1) + found, return_inverse=True)
        return codes[:n], codes[n:]

    def __call__(self, frame):
        keys, rows = self._places(frame)
        places = pd.Index(keys).get_indexer(rows)
        null = np.zeros(len(frame), dtype=bool)
        for name in self._given:
            null |= frame[name].isna().to_numpy(dtype=bool)
        found = self._values.take(places).set_axis(frame.index)
        return found, (places >= 0) | (null & self._column.nullable)


def _read(encoder, name, values):
    if any(isinstance(value, pd.Interval) for value in values):
        raise PublicValueError(f"mapping has an interval of column {name!r} where a value must be.")
    return ValueSet.read(encoder, name, values).listed.reset_index(drop=True)


def _declares(column, values):
    """Return the mask of the values that a column of numbers declares."""
    null = values.isna()
    if isinstance(column, Ordinal):
        return values.isin(list(column.labels)) | (null & column.nullable)
    inside = (values >= column.low) & (values <= column.high)
    if column.n_steps is not None:
        steps = (values - column.low) / ((column.high - column.low) / column.n_steps)
        inside &= (steps - steps.round()).abs() < _ROUNDING
    return inside | (null & column.nullable)


# Of a step of a grid.
_ROUNDING = 1e-6


def _columns_of(rule):
    if isinstance(rule, Inequality):
        return rule.low, rule.high
    if isinstance(rule, Implication):
        return *rule.given, *rule.then
    if isinstance(rule, Sum):
        return rule.total, *rule.parts
    return rule.column, *rule.given


def _check_columns(rule, schema, label):
    for name in _columns_of(rule):
        if name not in schema:
            raise PublicValueError(f"{label} names a column that the schema does not: {name!r}.")
        if isinstance(schema[name], MadeUpColumn):
            raise PublicValueError(f"{label} names column {name!r}, of which nothing is read.")


def is_number(column):
    """Return whether a column is of numbers, ordinal ones among them."""
    if isinstance(column, Ordinal):
        return all(type(label) in (int, float) for label in column.labels)
    return isinstance(column, Numeric)


def _check_comparable(rule, schema):
    low, high = schema[rule.low], schema[rule.high]
    if isinstance(low, Datetime) and isinstance(high, Datetime):
        if (low.zone is None) != (high.zone is None):
            raise PublicValueError(f"one of {rule.low!r} and {rule.high!r} has no time zone.")
    elif not (is_number(low) and is_number(high)):
        raise PublicValueError(
            f"{rule.low!r} and {rule.high!r} must be both numbers, or both dates."
        )


def _is_integer(column):
    if isinstance(column, Ordinal):
        return all(type(label) is int for label in column.labels)
    return column.integer


def _check_sum(rule, schema):
    total = schema[rule.total]
    for name in (rule.total, *rule.parts):
        if not is_number(schema[name]):
            raise PublicValueError(f"column {name!r} must be of numbers.")
    integers = [schema[name] for name in rule.parts if _is_integer(schema[name])]
    if sum(max(map(abs, map(int, number_bounds(column)))) for column in integers) >= 2**63:
        raise PublicValueError(f"sums of {list(rule.parts)} may be beyond the integers of 64 bits.")
    for name in rule.parts:
        if schema[name].nullable and not total.nullable:
            raise PublicValueError(
                f"column {rule.total!r} must be nullable, as {name!r} is: where that is null, the "
                "total is."
            )
        if (_is_integer(total) or isinstance(total, Ordinal)) and not _is_integer(schema[name]):
            raise PublicValueError(
                f"column {rule.total!r} has listed values or integers, so part {name!r} must be of "
                "integers: sums of others are rounded."
            )
        has_grid = getattr(schema[name], "n_steps", 0) is not None
        if not has_grid and getattr(total, "n_steps", 0) is not None:
            raise PublicValueError(
                f"column {rule.total!r} has a grid and part {name!r} has none: sums are hardly "
                "ever on it."
            )
