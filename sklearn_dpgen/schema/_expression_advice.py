"""What to write in place of the usual mistakes in conditions and rules, which are public texts."""

import keyword
import re
from collections.abc import Iterable
from difflib import get_close_matches
from typing import Any

import pandas as pd
from pandas.api.types import is_list_like

from sklearn_dpgen.schema._column import Column, given_as

__all__ = ["QUOTED", "advice_on", "name_advice", "undeclared_in"]

# A text in quotes, which stays as it is, or the name of a column in backticks.
QUOTED = re.compile(r"'(?:\\.|[^'\\])*'|\"(?:\\.|[^\"\\])*\"|`([^`]+)`")
_MOST_LABELS = 10
_SIGNS = ("and", "or", "not", "in", "is", "None", "True", "False")
# Patterns in the order in which they are tried, and what to write.
_MISTAKES = [
    (r"[‘’“”„«»]", "write plain quotes, as 'A'"),
    (r"\b[0-9]{4}-[0-9]{1,2}-[0-9]{1,2}", "put dates in quotes, as '2019-02-01'"),
    (
        r"\b[0-9]{1,4}[./][0-9]{1,2}[./][0-9]{1,4}\b",
        "dates are in ISO 8601: write '2019-02-01', in quotes",
    ),
    (r"=<", "write <= in place of =<"),
    (r"=>", "write >= in place of =>"),
    (r"<>", "write != in place of <>"),
    (r"&+", "write 'and' in place of &"),
    (r"\|+", "write 'or' in place of |"),
    (r"(?i)\bis\s+not\s+(null|none)\b", "write != None for values that are not missing"),
    (r"(?i)\bis\s+null\b|\bnull\b", "write == None for missing values"),
    (r"\b(AND|OR|NOT|IN|IS)\b", "write 'and', 'or', 'not in' and 'in' in small letters"),
    (r"(?<![=<>!])=(?!=)", "write == in place of ="),
    (r"\bnot\b(?!\s+in\b)", "write != or 'not in' in place of 'not'"),
]
_CODE = re.compile(r"(?<![\w.])0[0-9]+\b")
_DECIMAL = re.compile(r"\b([0-9]+),([0-9]+)\b")
_BRACKETS = re.compile(r"\[[^\]]*\]|\([^)]*\)|\{[^}]*\}")


def advice_on(text: str, names: Iterable[str]) -> str | None:
    """Return what to write in place of the first usual mistake in a text, or None.

    Parameters
    ----------
    text : str
    names : iterable of str
        The columns that it may name.
    """
    plain = QUOTED.sub(lambda match: "_" * len(match[0]), text)
    for name in sorted(names, key=len, reverse=True):
        is_word = name in _SIGNS or (name.isidentifier() and not keyword.iskeyword(name))
        is_named = re.search(r"[^\W\d]", name) and re.search(
            rf"(?<!\w){re.escape(name)}(?!\w)", plain
        )
        if not is_word and is_named:
            return f"put the name in backticks: `{name}`"
        if re.search(rf"(?<!\w)(['\"]){re.escape(name)}\1(?!\w)\s*[=<>!]", text):
            return f"the name of a column stands without quotes, or in backticks: `{name}`"
    for pattern, advice in _MISTAKES:
        if re.search(pattern, plain):
            return advice
    if found := _CODE.search(plain):
        return f"put codes in quotes: '{found[0]}'"
    if found := _DECIMAL.search(_BRACKETS.sub("_", plain)):
        return f"write numbers with a decimal point: {found[1]}.{found[2]}"
    return None


def name_advice(name: str, columns: Iterable[tuple[str, Column]]) -> str:
    """Return what to write in place of a name that is no column."""
    columns = list(columns)
    if any(name in (getattr(column, "categories", None) or ()) for _, column in columns):
        return f"put the text in quotes: '{name}'"
    if name.lower() in ("null", "none", "nan", "na"):
        return "write None for missing values"
    names = [own for own, _ in columns]
    if near := get_close_matches(name, names, n=1):
        return f"did you mean {near[0]!r}?"
    if not names:
        return f"put texts in quotes, as '{name}'"
    more = ", ..." if len(names) > _MOST_LABELS else ""
    shown = ", ".join(map(repr, names[:_MOST_LABELS])) + more
    return f"it has {shown}; put texts in quotes, as '{name}'"


def undeclared_in(name: str, column: Column, values: Any) -> str | None:
    """Return what is wrong with the first undeclared label of a condition, or None.

    Parameters
    ----------
    name : str
    column : Column
        One without known labels has no such fault.
    values : value, Interval or list of these
        Those of a rule or a condition, which are public, never those of records.
    """
    labels = getattr(column, "categories", None)
    if labels is None:
        return None
    listed = [
        value
        for value in (values if is_list_like(values) else [values])
        if not isinstance(value, pd.Interval)
    ]
    _, bad, null = column._read_quietly(pd.Series(listed, name=name, dtype=object))
    wrong = [value for value, is_bad in zip(listed, bad & ~null, strict=True) if is_bad]
    if not wrong:
        return None
    value = wrong[0]
    texts = {str(label): label for label in labels}
    if str(value) in texts:
        label = texts[str(value)]
        advice = f"quote it: {label!r}" if isinstance(label, str) else f"write {label!r}, unquoted"
    elif near := get_close_matches(str(value), texts, n=1):
        advice = f"did you mean {texts[near[0]]!r}?"
    else:
        more = ", ..." if len(labels) > _MOST_LABELS else ""
        advice = f"it has {', '.join(map(repr, labels[:_MOST_LABELS]))}{more}"
    shown = given_as(value)
    return f"Column {name!r} has no label {shown.removeprefix('the text ')}: {advice}"
