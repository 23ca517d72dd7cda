"""Rules as entries of a file of a schema: texts, or mappings for what has no text."""

from collections.abc import Mapping, Sequence
from dataclasses import MISSING, fields
from typing import Any

import pandas as pd

from sklearn_dpgen.exceptions import PublicError, PublicTypeError, PublicValueError
from sklearn_dpgen.schema._column import given_as
from sklearn_dpgen.schema._dates import Datetime, iso_stamp
from sklearn_dpgen.schema._expression_advice import undeclared_in
from sklearn_dpgen.schema._expressions import Scope, read_rule, rule_text
from sklearn_dpgen.schema._rules import (
    FunctionalDependency,
    Implication,
    Inequality,
    Rule,
    Sum,
    columns_of,
)
from sklearn_dpgen.schema._texts import offered

__all__ = ["RULES", "entries_of_rules", "read_rules", "rules_hash"]

RULES: dict[str, type[Any]] = {
    "inequality": Inequality,
    "implication": Implication,
    "sum": Sum,
    "functional_dependency": FunctionalDependency,
}
_NAMES = {rule: name for name, rule in RULES.items()}
_ORDINALS = ("first", "second", "third", "fourth", "fifth", "sixth", "seventh", "eighth", "ninth")
_INTERVAL = {"low", "high", "closed"}


def read_rules(rules: Any, scope: Scope) -> tuple[Rule, ...]:
    """Return rules of which some may be texts or mappings, as in a file.

    Parameters
    ----------
    rules : sequence of Rule, str or mapping
    scope : Scope
        The columns that they may name.

    Raises
    ------
    PublicTypeError, PublicValueError
        A rule cannot be read, or names an unknown column.
    """
    if isinstance(rules, str | Mapping) or not isinstance(rules, Sequence):
        raise PublicTypeError(f"rules must be a list of rules, got {given_as(rules)}.")
    return tuple(
        _read(rule, scope, f"rules[{i}]{_place(i) if len(rules) > 1 else ''}")
        for i, rule in enumerate(rules)
    )


def _place(i):
    """Return the place of a rule for readers, who count from one."""
    return f" (the {_ORDINALS[i]} rule)" if i < len(_ORDINALS) else f" (rule {i + 1})"


def _read(given, scope, what):
    if isinstance(given, str):
        return read_rule(given, scope, what)
    if isinstance(given, Mapping):
        given = _from_entry(given, scope, what)
    if not isinstance(given, Rule):
        raise PublicTypeError(f"{what} must be a rule, or the text of one, got {given_as(given)}.")
    fault = None
    for name in columns_of(given):
        try:
            scope.place(name)
        except PublicError as error:
            fault = fault or str(error)
    if fault is None and isinstance(given, Implication):
        fault = next(
            (
                found
                for name, values in (*given.given.items(), *given.then.items())
                if (found := undeclared_in(name, scope.declared(name), values)) is not None
            ),
            None,
        )
    if fault is not None:
        raise PublicValueError(f"{what}: {fault}{'' if fault.endswith('?') else '.'}")
    return given


def _from_entry(entry, scope, what):
    given = dict(entry)
    kind = given.pop("type", None)
    if not isinstance(kind, str) or kind not in RULES:
        raise PublicValueError(f"{what}: type must be one of {[*RULES]}, got {given_as(kind)}.")
    known = fields(RULES[kind])
    words = [field.name for field in known]
    unknown = [key for key in given if key not in words]
    missing = [f.name for f in known if f.default is MISSING and f.name not in given]
    if unknown or missing:
        fault = offered(unknown, ["type", *words]) if unknown else f"missing {missing}"
        raise PublicValueError(f"{what}: {fault} in a rule of type {kind}.")
    try:
        if kind == "functional_dependency":
            given["mapping"] = _read_pairs(given["mapping"])
        elif kind == "implication":
            given |= {side: _read_sides(given[side], scope) for side in ("given", "then")}
        return RULES[kind](**given)
    except PublicError as error:
        fault = str(error)
    raise PublicValueError(f"{what}: {fault}")


def _read_pairs(mapping):
    """Return the mapping of a functional dependency, which may be a list of pairs."""
    if not isinstance(mapping, list):
        return mapping
    if not all(isinstance(pair, list) and len(pair) == 2 for pair in mapping):
        raise PublicValueError("mapping must have pairs of a value, or list of values, and a value")
    pairs = [(tuple(key) if isinstance(key, list) else key, value) for key, value in mapping]
    if len(dict(pairs)) < len(pairs):
        raise PublicValueError("mapping must have distinct keys.")
    return dict(pairs)


def _read_sides(side, scope):
    if not isinstance(side, Mapping):
        raise PublicValueError("given and then must map columns to values.")
    return {name: _read_values(values, name, scope) for name, values in side.items()}


def _read_values(values, name, scope):
    if isinstance(values, list):
        return [_read_values(value, name, scope) for value in values]
    is_date = isinstance(scope.declared(name), Datetime) if isinstance(name, str) else False
    if not isinstance(values, Mapping):
        return values
    if not {"low", "high"} <= {*values} <= _INTERVAL:
        raise PublicValueError(
            f"the interval of {name!r} must have low and high, and closed if it is not both."
        )
    low, high = values["low"], values["high"]
    fault = f"the interval of {name!r} must be of numbers, or dates in ISO 8601 such as 2020-01-31."
    try:
        low, high = (iso_stamp(end) if is_date else end for end in (low, high))
        return pd.Interval(low, high, closed=values.get("closed", "both"))
    except (ValueError, TypeError):
        pass
    raise PublicValueError(fault)


def entries_of_rules(rules: Sequence[Rule], scope: Scope) -> list[str | dict]:
    """Return the entries by which :func:`read_rules` reads equal rules."""
    return [rule_text(rule, scope) or _entry(rule) for rule in rules]


def _entry(rule):
    entry = {"type": _NAMES[type(rule)]}
    for field in fields(rule):
        value = getattr(rule, field.name)
        if value == field.default:
            continue
        if field.name == "mapping":
            is_plain = all(isinstance(key, str) for key in value)
            value = value if is_plain else [[_plain(k), _plain(v)] for k, v in value.items()]
        elif isinstance(value, Mapping):
            value = {name: _plain(values) for name, values in value.items()}
        entry[field.name] = _plain(value)
    return entry


def _plain(value):
    """Return a value in lists, mappings, texts and numbers."""
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, Mapping):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, pd.Interval):
        found = {"low": _plain(value.left), "high": _plain(value.right)}
        return found if value.closed == "both" else found | {"closed": value.closed}
    if isinstance(value, pd.Timestamp):
        return value.isoformat()
    # Numbers of NumPy are written as plain ones.
    return value.item() if hasattr(value, "item") else value


def rules_hash(rules: Sequence[Rule]) -> int:
    """Return a hash that equal rules share; their values may not be hashable."""
    return hash(tuple((type(rule).__name__, frozenset(columns_of(rule))) for rule in rules))
