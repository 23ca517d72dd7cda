"""How many records of a table break which rule."""

import numpy as np
import pandas as pd

from sklearn_dpgen.schema import FunctionalDependency, Implication, Inequality
from sklearn_dpgen.tables._table_rules import TableRules
from sklearn_dpgen.utils._html import clean

__all__ = ["broken_shares", "rule_words"]

# Relative to the values: floats that were written to a file and read again.
_ROUNDING = 1e-9


def broken_shares(frames, constraints, schema):
    """Return the share of the records of each table that break each rule.

    Parameters
    ----------
    frames : dict of str to DataFrame
        With values as the schema declares them.
    constraints : sequence of Rule
    schema : Schema

    Returns
    -------
    list of dict
        Of each rule its ``"rule"`` in words, and the share by the name of the table.
    """
    found = []
    for rule in constraints:
        rules = TableRules([rule], schema)
        shares = {name: float(_broken(rules, frame).mean()) for name, frame in frames.items()}
        found.append({"rule": rule_words(rule)} | shares)
    return found


def _broken(rules, frame):
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


def rule_words(rule):
    """Return a rule as a person reads it."""
    if isinstance(rule, Inequality):
        return clean(f"{rule.low} {'<' if rule.strict else '≤'} {rule.high}")
    if isinstance(rule, Implication):
        sides = (
            " and ".join(f"{name} = {value!r}" for name, value in side.items())
            for side in (rule.given, rule.then)
        )
        return clean(" ⇒ ".join(sides))
    if isinstance(rule, FunctionalDependency):
        return clean(f"{rule.column} is looked up by {', '.join(rule.given)}")
    return clean(f"{rule.total} = {' + '.join(rule.parts)}")
