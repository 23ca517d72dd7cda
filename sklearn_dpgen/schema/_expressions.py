"""Conditions and rules as texts, such as "age >= 65 and ward == 'B'", which are never evaluated."""

import ast
import datetime
import keyword
import math
from collections.abc import Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from pandas.api.types import is_list_like

from sklearn_dpgen.exceptions import PublicError, PublicValueError
from sklearn_dpgen.schema._column import Column
from sklearn_dpgen.schema._dates import Datetime, iso_stamp
from sklearn_dpgen.schema._expression_advice import (
    QUOTED,
    advice_on,
    name_advice,
    undeclared_in,
)
from sklearn_dpgen.schema._labels import Ordinal
from sklearn_dpgen.schema._rules import Implication, Inequality, Rule, Sum

if TYPE_CHECKING:
    from sklearn_dpgen.schema import RelationalSchema, Schema

__all__ = ["Scope", "read_named_rule", "read_rule", "read_where", "rule_text", "shown_rule"]

_MOST_CHARACTERS = 10_000
_ORDER: dict[type, str] = {ast.Lt: "<", ast.LtE: "<=", ast.Gt: ">", ast.GtE: ">="}
_MIRRORED = {"<": ">", "<=": ">=", ">": "<", ">=": "<="}
_FORMS = (
    "comparisons of a column with a value (==, !=, <, <=, >, >=, in, not in), joined by 'and', or "
    "by 'or' where they are of one column"
)

_UNQUOTED = "write numbers without quotes"
_NO_DATE = ("has a date in another form", "dates are in ISO 8601: write '2019-02-01', in quotes")


def read_where(text: str, schema: "Schema | RelationalSchema", what: str = "--where") -> dict:
    """Return the conditions of ``sample`` that a text states.

    Parameters
    ----------
    text : str
        Comparisons of columns with values, joined by ``and``, or by ``or`` for one column. A
        column of tables with keys is ``table.column``; names with spaces stand in backticks.
    schema : Schema or RelationalSchema
    what : str, default="--where"
        What the text is, for errors.

    Returns
    -------
    dict
        ``{column: list of values and intervals}``, or ``{table: {column: ...}}``.

    Raises
    ------
    PublicValueError
        The text is not of this form, or names an unknown column.
    """
    reader = _Reader(text, what, Scope(schema))
    sets = reader.conjunction(reader.tree)
    if not hasattr(schema, "order"):
        return {name: values for (_, name), values in sets.items()}
    found: dict[str, dict] = {}
    for (table, name), values in sets.items():
        found.setdefault(table, {})[name] = values
    return found


def read_rule(text: str, scope: "Scope", what: str = "rules") -> Rule:
    """Return the rule that a text states.

    Parameters
    ----------
    text : str
        ``a <= b`` or ``a < b`` for two columns, ``total == a + b``, or ``condition => condition``,
        each as in :func:`read_where`.
    scope : Scope
        The columns, of one table.
    what : str, default="rules"
        What the text is, for errors.

    Returns
    -------
    Rule

    Raises
    ------
    PublicValueError
        The text is not of this form, or names an unknown column.
    """
    given, arrow, then = _split_arrow(text)
    fault = None
    try:
        if arrow:
            sides = [_Reader(side.strip(), what, scope) for side in (given, then)]
            if any(
                isinstance(side.tree, ast.Name | ast.Attribute | ast.Constant) for side in sides
            ):
                raise PublicValueError(
                    "both sides of => must be conditions; write >= for 'at least'."
                )
            sets = [side.conjunction(side.tree) for side in sides]
            return Implication(*({scope.name(c): v for c, v in own.items()} for own in sets))
        reader = _Reader(text, what, scope)
        tree = reader.tree
        if isinstance(tree, ast.Compare) and len(tree.ops) == 1:
            names = [reader.sum_of(side) for side in (tree.left, tree.comparators[0])]
            sign = _ORDER.get(type(tree.ops[0]))
            if all(names) and sign and all(len(own) == 1 for own in names):
                (low,), (high,) = names if sign.startswith("<") else names[::-1]
                return Inequality(low, high, strict=len(sign) == 1)
            if all(names) and isinstance(tree.ops[0], ast.Eq):
                total, parts = sorted(names, key=len)
                if len(total) == 1 < len(parts):
                    return Sum(total[0], parts)
    except PublicError as error:
        fault = str(error)
    if fault is not None:
        raise PublicValueError(fault if fault.startswith(what) else f"{what} {text!r}: {fault}")
    raise PublicValueError(
        f"{what} must be 'a <= b', 'a < b', 'total == a + b' or 'condition => condition', got "
        f"{text!r}."
    )


def read_named_rule(
    text: str, schema: "RelationalSchema", what: str = "--rule"
) -> tuple[str, Rule]:
    """Return the table and the rule that a text states, with columns named ``table.column``.

    Parameters
    ----------
    text : str
        As for :func:`read_rule`. The rule is of the rows of the lowest table that it names.
    schema : RelationalSchema
    what : str, default="--rule"
        What the text is, for errors.

    Raises
    ------
    PublicValueError
        The text is not of this form, or names an unknown column.
    """
    whole, tables = Scope(schema), set()
    before: set[str] = set()
    for side in filter(None, _split_arrow(text)[::2]):
        reader = _Reader(side, what, whole)
        inner = {id(n.value) for n in ast.walk(reader.tree) if isinstance(n, ast.Attribute)}
        for node in ast.walk(reader.tree):
            if isinstance(node, ast.Attribute) and reader.prefix(node) == "previous":
                before.add(reader.named(node.attr))
            elif isinstance(node, ast.Attribute | ast.Name) and id(node) not in inner:
                column = reader.column(node)
                tables |= set() if column is None else {column[0]}
    if not tables:
        tables = {t for t in schema.order if before and before <= {*schema[t].schema}}
        tables = tables if len(tables) == 1 else set()
    lowest = max(tables, key=lambda name: len(_above(schema, name)), default=None)
    if lowest is None or not tables <= {*_above(schema, lowest)}:
        raise PublicValueError(
            f"{what} {text!r} must name columns of one table, as table.column, and of tables above "
            "it."
        )
    return lowest, read_rule(text, Scope(schema, lowest), what)


def rule_text(rule: Rule, scope: "Scope") -> str | None:
    """Return a text that :func:`read_rule` reads as an equal rule, or None if there is none."""
    text = None
    with suppress(PublicError, TypeError, KeyError):
        text = _text_of(rule, scope)
        if text is not None and read_rule(text, scope) != rule:
            text = None
    return text


def shown_rule(rule: Implication, scope: "Scope") -> str:
    """Return the text of an implication for readers, whatever its values are."""
    sides = [
        {name: [_plain(value) for value in (values if is_list_like(values) else [values])]
         for name, values in side.items()}
        for side in (rule.given, rule.then)
    ]  # fmt: skip
    with suppress(PublicError, TypeError, KeyError):
        return _text_of(Implication(*sides), scope)
    return " => ".join(
        " and ".join(f"{name} in [{', '.join(map(str, own))}]" for name, own in side.items())
        for side in sides
    )


def _plain(value):
    """Return a value of NumPy as one of Python, and a date as a timestamp."""
    if isinstance(value, datetime.date | np.datetime64):
        return pd.Timestamp(value)
    if value is pd.NA or value is pd.NaT or (isinstance(value, float) and value != value):
        return None
    return value.item() if isinstance(value, np.generic) else value


def _text_of(rule, scope):
    if isinstance(rule, Inequality):
        return (
            f"{scope.written(rule.low)} {'<' if rule.strict else '<='} {scope.written(rule.high)}"
        )
    if isinstance(rule, Sum):
        return f"{scope.written(rule.total)} == {' + '.join(map(scope.written, rule.parts))}"
    if not isinstance(rule, Implication):
        return None
    sides = [
        " and ".join(_condition(name, values, scope) for name, values in side.items())
        for side in (rule.given, rule.then)
    ]
    return " => ".join(sides)


def _condition(name, values, scope):
    """Return the text of the values of a column."""
    written, declared = scope.written(name), scope.declared(name)
    if not isinstance(values, list):
        raise TypeError
    intervals = [value for value in values if isinstance(value, pd.Interval)]
    if not intervals:
        texts = [_constant(value) for value in values]
        return (
            f"{written} == {texts[0]}" if len(texts) == 1 else f"{written} in [{', '.join(texts)}]"
        )
    parts = [
        _interval(written, value, declared)
        if isinstance(value, pd.Interval)
        else f"{written} == {_constant(value)}"
        for value in values
    ]
    return parts[0] if len(parts) == 1 else f"({' or '.join(parts)})"


def _interval(written, interval, declared):
    low, high = _bounds(declared)
    marks = [
        "<=" if is_closed else "<" for is_closed in (interval.closed_left, interval.closed_right)
    ]
    left, right = (_constant(_plain(end)) for end in (interval.left, interval.right))
    has_right = interval.right == math.inf or (interval.right == high and interval.closed_right)
    if interval.left == -math.inf or (interval.left == low and interval.closed_left):
        return f"{written} {marks[1]} {right}"
    if has_right:
        return f"{written} {'>=' if interval.closed_left else '>'} {left}"
    return f"{left} {marks[0]} {written} {marks[1]} {right}"


def _constant(value):
    if isinstance(value, pd.Timestamp):
        whole = value == value.normalize()
        return repr(value.strftime("%Y-%m-%d") if whole else value.isoformat())
    if isinstance(value, float) and value.is_integer() and abs(value) < 2**53:
        return repr(int(value))
    if value is not None and not isinstance(value, str | int | float):
        raise TypeError
    return repr(value)


class Scope:
    """The columns that a text may name.

    Parameters
    ----------
    schema : Schema, RelationalSchema, or mapping of tables to mappings of str to Column
    table : str or None, default=None
        A table of several: a name is then a column of it, ``previous.name`` one of the
        row before, and ``table.name`` one of a row above. None is all tables.
    """

    def __init__(self, schema: Any, table: str | None = None) -> None:
        self.schema, self.table = schema, table
        self._tables: dict[Any, Mapping[str, Column]]
        if not hasattr(schema, "order"):
            self._tables = {None: schema} if table is None else dict(schema)
        elif table is None:
            self._tables = {name: schema[name].schema for name in schema.order}
        else:
            self._tables = {name: schema[name].schema for name in _above(schema, table)}

    @property
    def columns(self) -> list[tuple[str, Column]]:
        """The names and declarations of all columns, of all tables."""
        return [item for columns in self._tables.values() for item in columns.items()]

    def find(self, prefix: str | None, name: str) -> tuple[Any, str]:
        """Return the table and the name of a column; an error says why there is none.

        Raises
        ------
        PublicValueError
            The message is a part of a sentence.
        """
        own = self._tables.get(self.table)
        if prefix == "previous" and self.table is not None and own is not None and name in own:
            return prefix, name
        if prefix is not None:
            if prefix in self._tables and name in self._tables[prefix]:
                return prefix, name
            raise PublicValueError(f"'{prefix}.{name}' is no column of the schema")
        if own is not None and name in own:
            return self.table, name
        tables = [table for table, columns in self._tables.items() if name in columns]
        if len(tables) != 1:
            what = "is in several tables" if tables else "is no column of the schema"
            raise PublicValueError(f"{name!r} {what}")
        return tables[0], name

    def column(self, found: tuple[Any, str]) -> Column:
        """Return the declaration of a column by its table and name."""
        table, name = found
        return self._tables[self.table if table == "previous" else table][name]

    def name(self, found: tuple[Any, str]) -> str:
        """Return the name of a column in a rule."""
        table, name = found
        return name if table == self.table else f"{table}.{name}"

    def place(self, name: str) -> tuple[Any, str]:
        """Return the table and the column of a name in a rule."""
        own = self._tables[self.table]
        if name not in own and self.table is not None:
            for table in ("previous", *self._tables):
                rest = name.removeprefix(f"{table}.")
                if rest != name and rest in (own if table == "previous" else self._tables[table]):
                    return table, rest
        return self.find(None, name)

    def declared(self, name: str) -> Column:
        """Return the declaration of a name in a rule."""
        return self.column(self.place(name))

    def written(self, name: str) -> str:
        """Return a name in a rule as a text has it."""
        table, column = self.place(name)
        parts = [column] if table == self.table else [table, column]
        return ".".join(part if _is_plain(part) else f"`{part}`" for part in parts)


def _above(schema, table):
    """Return a table and those above it."""
    found = []
    while table is not None:
        found.append(table)
        table = schema.parent(table)
    return found


def _is_plain(name):
    is_word = name.isascii() and name.isidentifier() and not keyword.iskeyword(name)
    return is_word and not name.startswith("_column_")


def _split_arrow(text):
    """Split a text at an arrow outside of quotes."""
    hidden = QUOTED.sub(lambda match: "_" * len(match[0]), text)
    at = hidden.find("=>")
    return (text, "", "") if at < 0 else (text[:at], "=>", text[at + 2 :])


class _Reader:
    """The syntax tree of a text, of which a few forms are read and the others are refused."""

    def __init__(self, text, what, scope):
        self.text, self.what, self.scope = text, what, scope
        self._quoted = {}
        if len(text) > _MOST_CHARACTERS:
            raise PublicValueError(f"{what} must have at most {_MOST_CHARACTERS} characters.")
        tree: ast.expr | None = None
        with suppress(SyntaxError, ValueError, RecursionError, MemoryError):
            tree = ast.parse(QUOTED.sub(self._hide, text).strip(), mode="eval").body
        if tree is None:
            raise self.fault("cannot be read")
        self.tree: ast.expr = tree

    def _hide(self, match):
        if match[1] is None:
            return match[0]
        name = f"_column_{len(self._quoted)}_"
        self._quoted[name] = match[1]
        return name

    def fault(self, what, advice=None):
        """Return the error that says what is wrong, and what to write."""
        names = [name for name, _ in self.scope.columns]
        advice = advice or advice_on(self.text, names) or f"it must be {_FORMS}"
        return PublicValueError(_ended(f"{self.what} {self.text!r} {what}: {advice}"))

    def named(self, name):
        """Return a name as it is written in backticks."""
        return self._quoted.get(name, name)

    def prefix(self, node):
        """Return what stands before the dot of a node, or None."""
        return self.named(node.value.id) if isinstance(node.value, ast.Name) else None

    def conjunction(self, node):
        """Return the values of each column under a node."""
        if isinstance(node, ast.BoolOp) and isinstance(node.op, ast.And):
            found: dict = {}
            for part in node.values:
                for column, values in self.conjunction(part).items():
                    old = found.get(column)
                    found[column] = values if old is None else self.both(column, old, values)
            return found
        if isinstance(node, ast.BoolOp):
            parts = [self.conjunction(part) for part in node.values]
            columns = {column for part in parts for column in part}
            if len(columns) > 1 or any(len(part) != 1 for part in parts):
                raise self.fault("joins several columns by 'or'")
            (column,) = columns
            return {column: [value for part in parts for value in part[column]]}
        if isinstance(node, ast.Compare):
            return self.comparison(node)
        raise self.fault("has another form")

    def comparison(self, node):
        """Return the values of the column of a comparison, which may have two signs."""
        sides = [node.left, *node.comparators]
        found: dict = {}
        for left, sign, right in zip(sides, node.ops, sides[1:], strict=False):
            column = self.column(left)
            is_mirrored = column is None
            if is_mirrored:
                column, right = self.column(right), left
            if column is None:
                raise self.fault("compares no column")
            values = self.values(column, sign, right, is_mirrored=is_mirrored)
            found[column] = (
                values if column not in found else self.both(column, found[column], values)
            )
        return found

    def column(self, node):
        """Return the table and the name of a column, or None for another node."""
        parts = None
        if isinstance(node, ast.Name):
            parts = None, self.named(node.id)
        elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            parts = self.prefix(node), self.named(node.attr)
        if parts is None:
            return None
        try:
            return self.scope.find(*parts)
        except PublicValueError as error:
            fault = str(error)
        if parts[0] is None and fault.endswith("of the schema"):
            names = [name for name, _ in self.scope.columns]
            fault += f": {advice_on(self.text, names) or name_advice(parts[1], self.scope.columns)}"
        raise PublicValueError(_ended(f"{self.what} {self.text!r}: {fault}"))

    def values(self, column, sign, node, *, is_mirrored):
        """Return the values and intervals that compare with a constant."""
        declared = self.scope.column(column)
        if isinstance(sign, ast.In | ast.NotIn):
            if is_mirrored or not isinstance(node, ast.List | ast.Tuple | ast.Set):
                raise self.fault("needs a list after 'in'")
            given = [self.constant(item, declared) for item in node.elts]
        else:
            given = [self.constant(node, declared)]
        fault = undeclared_in(column[1], declared, given)
        if fault is not None:
            raise PublicValueError(_ended(f"{self.what} {self.text!r}: {fault}"))
        if isinstance(sign, ast.In | ast.Eq | ast.Is):
            if hasattr(declared, "low") and not all(_is_inside(v, declared) for v in given):
                raise self.beyond(column, declared)
            return given
        if isinstance(sign, ast.NotIn | ast.NotEq | ast.IsNot):
            return self.others(declared, given)
        mark = _ORDER.get(type(sign))
        if mark is None:
            raise self.fault("has another sign")
        mark, value = (_MIRRORED[mark] if is_mirrored else mark), given[0]
        labels = _labels(declared)
        if labels is not None:
            if value not in labels or not _is_ordered(declared):
                raise self.fault("orders labels that have no order")
            at = labels.index(value)
            kept = {"<": labels[:at], "<=": labels[: at + 1], ">": labels[at + 1 :]}
            return list(kept.get(mark, labels[at:]))
        if isinstance(value, str) and hasattr(declared, "low"):
            raise self.fault("compares a number with a text", _UNQUOTED)
        if value is None or isinstance(value, str | bool) or not hasattr(declared, "low"):
            raise self.fault("orders what has no order")
        low, high = _bounds(declared)
        ends = (low, value) if mark.startswith("<") else (value, high)
        if ends[0] > ends[1] or (ends[0] == ends[1] and len(mark) == 1):
            raise self.beyond(column, declared)
        sides: dict[str, Any] = {"<": "left", "<=": "both", ">": "right", ">=": "both"}
        return [pd.Interval(*ends, closed=sides[mark])]

    def beyond(self, column, declared):
        """Return the error that says the bounds of a column."""
        low, high = (_constant(end).strip("'") for end in _bounds(declared))
        return self.fault("leaves no value", f"the bounds of {column[1]!r} are {low} to {high}")

    def others(self, declared, given):
        """Return the declared values but for some; nulls are neither."""
        labels = _labels(declared)
        if labels is not None:
            return [label for label in labels if label not in given]
        if any(isinstance(value, str | bool) for value in given):
            raise self.fault("compares a number with a text", _UNQUOTED)
        low, high = _bounds(declared)
        rest = [pd.Interval(low, high, closed="both")]
        for value in given:
            if value is None:
                continue
            sides: list[Any] = [(low, value, "left"), (value, high, "right")]
            parts = [pd.Interval(a, b, closed=side) for a, b, side in sides if a <= b]
            rest = [kept for a in rest for b in parts if (kept := _common(a, b)) is not None]
        return rest

    def both(self, column, first, second):
        """Return what is in both of two lists of values and intervals."""
        found = []
        for a in first:
            for b in second:
                kept = _common(a, b)
                if kept is not None and kept not in found:
                    found.append(kept)
        if not found:
            raise PublicValueError(f"{self.what} {self.text!r} leaves no value of {column[1]!r}.")
        return found

    def constant(self, node, declared):
        """Return the value of a constant in the type of a column."""
        sign = 1
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
            sign, node = -1, node.operand
        if not isinstance(node, ast.Constant) or not isinstance(
            node.value, str | int | float | None
        ):
            name = node.id if isinstance(node, ast.Name) else None
            advice = None if name is None else self.value_advice(self.named(name))
            raise self.fault("compares with what is no value", advice)
        value = node.value
        if sign < 0:
            if isinstance(value, bool) or not isinstance(value, int | float):
                raise self.fault("has a sign before what is no number")
            return -value
        if _is_date(declared) and value is not None:
            stamp = iso_stamp(value) if isinstance(value, str) else None
            if stamp is None:
                raise self.fault(*_NO_DATE)
            value = stamp
        return value

    def value_advice(self, name):
        """Return what to write in place of a name that stands where a value is expected."""
        if any(name == own for own, _ in self.scope.columns):
            return f"a condition compares a column with a value, and {name!r} is a column"
        own = advice_on(self.text, [own for own, _ in self.scope.columns])
        # Without columns, as a name that is near to one is a text here all the same.
        return own or name_advice(name, [])

    def sum_of(self, node):
        """Return the columns that a node adds, or an empty list for another node."""
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
            parts = [self.sum_of(side) for side in (node.left, node.right)]
            return parts[0] + parts[1] if all(parts) else []
        column = self.column(node)
        return [] if column is None else [self.scope.name(column)]


def _ended(text):
    return text if text.endswith((".", "?")) else f"{text}."


def _labels(declared):
    """Return the labels of a column in their order, or None for numbers and dates."""
    labels = getattr(declared, "categories", None)
    return None if labels is None else list(labels)


def _is_ordered(declared):
    return isinstance(declared, Ordinal)


def _bounds(declared):
    """Return the declared bounds of numbers or dates."""
    ends = declared.low, declared.high
    return tuple(pd.Timestamp(end) if _is_date(declared) else float(end) for end in ends)


def _is_inside(value, declared):
    """Return whether a number or date is within its bounds; others have other faults."""
    if value is None or isinstance(value, str | bool):
        return True
    low, high = _bounds(declared)
    return low <= value <= high


def _is_date(declared):
    return isinstance(declared, Datetime)


def _common(a, b):
    """Return the common part of two values or intervals, or None."""
    if not isinstance(a, pd.Interval) and not isinstance(b, pd.Interval):
        return a if a == b else None
    if not isinstance(a, pd.Interval):
        return a if a is not None and a in b else None
    if not isinstance(b, pd.Interval):
        return b if b is not None and b in a else None
    left, right = max(a.left, b.left), min(a.right, b.right)
    has_left = all(i.closed_left for i in (a, b) if i.left == left)
    has_right = all(i.closed_right for i in (a, b) if i.right == right)
    if left > right or (left == right and not (has_left and has_right)):
        return None
    closed: Any = {(True, True): "both", (True, False): "left", (False, True): "right"}.get(
        (has_left, has_right), "neither"
    )
    return pd.Interval(left, right, closed=closed)
