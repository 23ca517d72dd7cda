"""Conditions and rules as texts, such as "age >= 65 and ward == 'B'", which are never evaluated."""

import ast
import re
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from sklearn_dpgen.command_line._console import CommandError
from sklearn_dpgen.exceptions import PublicError

if TYPE_CHECKING:
    from sklearn_dpgen.schema import RelationalSchema, Schema
    from sklearn_dpgen.schema._rules import Rule

__all__ = ["read_rule", "read_where"]

_MOST_CHARACTERS = 10_000
# A text in quotes, which stays as it is, or the name of a column in backticks.
_QUOTED = re.compile(r"'(?:\\.|[^'\\])*'|\"(?:\\.|[^\"\\])*\"|`([^`]+)`")
_ORDER: dict[type, str] = {ast.Lt: "<", ast.LtE: "<=", ast.Gt: ">", ast.GtE: ">="}
_MIRRORED = {"<": ">", "<=": ">=", ">": "<", ">=": "<="}
_FORMS = (
    "comparisons of a column with a value (==, !=, <, <=, >, >=, in, not in), joined by 'and', or "
    "by 'or' where they are of one column"
)


def read_where(text: str, schema: "Schema | RelationalSchema") -> dict:
    """Return the conditions of ``sample`` that a text states.

    Parameters
    ----------
    text : str
        Comparisons of columns with values, joined by ``and``, or by ``or`` for one column. A
        column of tables with keys is ``table.column``; names with spaces stand in backticks.
    schema : Schema or RelationalSchema

    Returns
    -------
    dict
        ``{column: list of values and intervals}``, or ``{table: {column: ...}}``.

    Raises
    ------
    CommandError
        The text is not of this form, or names an unknown column.
    """
    reader = _Reader(text, "--where", schema)
    sets = reader.conjunction(reader.tree)
    return reader.nested(sets)


def read_rule(text: str, schema: "Schema") -> "Rule":
    """Return the rule that a text states.

    Parameters
    ----------
    text : str
        ``a <= b`` or ``a < b`` for two columns, ``total == a + b``, or ``condition => condition``,
        each as in :func:`read_where`.
    schema : Schema

    Returns
    -------
    Rule

    Raises
    ------
    CommandError
        The text is not of this form, or names an unknown column.
    """
    from sklearn_dpgen.schema import Implication, Inequality, Sum

    given, arrow, then = _split_arrow(text)
    try:
        if arrow:
            sides = (_Reader(side, "--rule", schema) for side in (given, then))
            return Implication(*(side.nested(side.conjunction(side.tree)) for side in sides))
        reader = _Reader(text, "--rule", schema)
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
        if isinstance(error, CommandError):
            raise
        raise CommandError(f"--rule {text!r}: {error}") from None
    raise CommandError(
        "--rule must be 'a <= b', 'a < b', 'total == a + b' or 'condition => condition', got "
        f"{text!r}."
    )


def _split_arrow(text):
    """Split a text at an arrow outside of quotes."""
    hidden = _QUOTED.sub(lambda match: "_" * len(match[0]), text)
    at = hidden.find("=>")
    return (text, "", "") if at < 0 else (text[:at], "=>", text[at + 2 :])


class _Reader:
    """The syntax tree of a text, of which a few forms are read and the others are refused."""

    def __init__(self, text, option, schema):
        self.text, self.option, self.schema = text, option, schema
        self._quoted = {}
        if len(text) > _MOST_CHARACTERS:
            raise CommandError(f"{option} must have at most {_MOST_CHARACTERS} characters.")
        tree: ast.expr | None = None
        with suppress(SyntaxError, ValueError, RecursionError, MemoryError):
            tree = ast.parse(_QUOTED.sub(self._hide, text).strip(), mode="eval").body
        if tree is None:
            raise self.fault("cannot be read")
        self.tree: ast.expr = tree

    def _hide(self, match):
        if match[1] is None:
            return match[0]
        name = f"_column_{len(self._quoted)}_"
        self._quoted[name] = match[1]
        return name

    def fault(self, what):
        """Return the error that says what is wrong."""
        return CommandError(f"{self.option} {self.text!r} {what}: it must be {_FORMS}.")

    def nested(self, sets):
        """Return conditions by column, or by table and column."""
        if not hasattr(self.schema, "order"):
            return {name: values for (_, name), values in sets.items()}
        found: dict[str, dict] = {}
        for (table, name), values in sets.items():
            found.setdefault(table, {})[name] = values
        return found

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
        if isinstance(node, ast.Name):
            name = self._quoted.get(node.id, node.id)
            if not hasattr(self.schema, "order"):
                tables = [None] if name in self.schema else []
            else:
                order = self.schema.order
                tables = [table for table in order if name in self.schema[table].schema]
            if len(tables) != 1:
                what = "is in several tables" if tables else "is no column of the schema"
                raise CommandError(f"{self.option} {self.text!r}: {name!r} {what}.")
            return tables[0], name
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            table, name = (self._quoted.get(n, n) for n in (node.value.id, node.attr))
            if table in getattr(self.schema, "order", ()) and name in self.schema[table].schema:
                return table, name
            raise CommandError(
                f"{self.option} {self.text!r}: '{table}.{name}' is no column of the schema."
            )
        return None

    def declared(self, column):
        """Return the declaration of a column."""
        table, name = column
        return self.schema[name] if table is None else self.schema[table].schema[name]

    def values(self, column, sign, node, *, is_mirrored):
        """Return the values and intervals that compare with a constant."""
        import pandas as pd

        declared = self.declared(column)
        if isinstance(sign, ast.In | ast.NotIn):
            if is_mirrored or not isinstance(node, ast.List | ast.Tuple | ast.Set):
                raise self.fault("needs a list after 'in'")
            given = [self.constant(item, declared) for item in node.elts]
        else:
            given = [self.constant(node, declared)]
        if isinstance(sign, ast.In | ast.Eq | ast.Is):
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
        if value is None or isinstance(value, str | bool) or not hasattr(declared, "low"):
            raise self.fault("orders what has no order")
        low, high = _bounds(declared)
        ends = (low, value) if mark.startswith("<") else (value, high)
        if ends[0] > ends[1]:
            raise self.fault("leaves no value")
        sides: dict[str, Any] = {"<": "left", "<=": "both", ">": "right", ">=": "both"}
        return [pd.Interval(*ends, closed=sides[mark])]

    def others(self, declared, given):
        """Return the declared values but for some; nulls are neither."""
        import pandas as pd

        labels = _labels(declared)
        if labels is not None:
            return [label for label in labels if label not in given]
        if any(isinstance(value, str | bool) for value in given):
            raise self.fault("compares a number with a text")
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
            raise CommandError(f"{self.option} {self.text!r} leaves no value of {column[1]!r}.")
        return found

    def constant(self, node, declared):
        """Return the value of a constant in the type of a column."""
        import pandas as pd

        sign = 1
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
            sign, node = -1, node.operand
        if not isinstance(node, ast.Constant) or not isinstance(
            node.value, str | int | float | None
        ):
            raise self.fault("compares with what is no value")
        value = node.value
        if sign < 0:
            if isinstance(value, bool) or not isinstance(value, int | float):
                raise self.fault("has a sign before what is no number")
            return -value
        if _is_date(declared) and value is not None:
            try:
                value = pd.Timestamp(value if isinstance(value, str) else "")
            except ValueError:
                value = pd.NaT
            if value is pd.NaT:
                raise self.fault("needs a date in quotes, such as '2020-01-31'")
        return value

    def sum_of(self, node):
        """Return the columns that a node adds, or an empty list for another node."""
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
            parts = [self.sum_of(side) for side in (node.left, node.right)]
            return parts[0] + parts[1] if all(parts) else []
        column = self.column(node)
        return [] if column is None else [column[1]]


def _labels(declared):
    """Return the labels of a column in their order, or None for numbers and dates."""
    labels = getattr(declared, "categories", None)
    return None if labels is None else list(labels)


def _is_ordered(declared):
    from sklearn_dpgen.schema import Ordinal

    return isinstance(declared, Ordinal)


def _bounds(declared):
    """Return the declared bounds of numbers or dates."""
    import pandas as pd

    ends = declared.low, declared.high
    return tuple(pd.Timestamp(end) if _is_date(declared) else float(end) for end in ends)


def _is_date(declared):
    from sklearn_dpgen.schema import Datetime

    return isinstance(declared, Datetime)


def _common(a, b):
    """Return the common part of two values or intervals, or None."""
    import pandas as pd

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
