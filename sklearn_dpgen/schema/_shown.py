"""How declarations are shown: a line of a column, and tables of a notebook."""

import datetime
from collections.abc import Iterator, Mapping
from dataclasses import fields

__all__ = ["column_rows", "column_text", "indented", "schema_text"]

# Letters of a schema on one line, values of one field that are shown, and rows of a table.
_WIDTH, _MOST_VALUES, _MOST_ROWS = 88, 6, 500
# Letters of one value.
_LONGEST = 48
# Fields without which every column of the type has the same declaration.
_BARE = ("low", "high", "categories")


def column_text(column) -> str:
    """Return the declaration of a column as code, without defaults and with a few of many values.

    Parameters
    ----------
    column : Column

    Returns
    -------
    str
    """
    return f"{type(column).__name__}({_arguments(column)})"


def _arguments(column):
    given = (
        (field.name, value)
        for field in fields(column)
        for value in [getattr(column, field.name)]
        if value != field.default
    )
    return ", ".join(
        _value_text(value) if name in _BARE else f"{name}={_value_text(value)}"
        for name, value in given
    )


def _value_text(value):
    if isinstance(value, datetime.datetime):
        return repr(value.isoformat().removesuffix("T00:00:00"))
    items = _items(value)
    if items is None:
        text = repr(value)
        return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 2]}…{text[-1]}"
    shown = items[:_MOST_VALUES]
    if len(items) > _MOST_VALUES + 1:
        shown.append(f"… {len(items)} in all")
    else:
        shown = items
    left, right = "{}" if isinstance(value, Mapping) else "[]"
    return f"{left}{', '.join(shown)}{right}"


def _items(value):
    """Return the texts of the items of a sequence or mapping, None for other values."""
    if isinstance(value, Mapping):
        return [f"{key!r}: {_value_text(item)}" for key, item in value.items()]
    if isinstance(value, list | tuple):
        return [_value_text(item) for item in value]
    return None


def schema_text(schema, words: Mapping) -> str:
    """Return the declaration of all columns, each on a line of its own.

    Parameters
    ----------
    schema : Schema
    words : mapping of str to object
        What is declared of the table beside its columns.

    Returns
    -------
    str
        On one line if it is short.
    """
    entries = [f"{name!r}: {column_text(column)}" for name, column in schema.items()]
    more = "".join(f", {name}={_value_text(value)}" for name, value in words.items())
    text = f"Schema({{{', '.join(entries)}}}{more})"
    if len(text) <= _WIDTH:
        return text
    return "Schema({\n" + "".join(f"    {entry},\n" for entry in entries) + f"}}{more})"


def indented(text: str) -> str:
    """Return lines within a pair of brackets."""
    return "".join(f"    {line}\n" for line in text.splitlines())


def column_rows(schema, *before: str) -> Iterator[tuple[str, ...]]:
    """Yield a row of a table for each column: its name, type and declaration.

    Parameters
    ----------
    schema : Schema
    *before : str
        First cells of each row.
    """
    for name, column in list(schema.items())[:_MOST_ROWS]:
        yield *before, str(name), type(column).__name__, _arguments(column) or "no bounds"
    if len(schema) > _MOST_ROWS:
        yield *before, f"and {len(schema) - _MOST_ROWS} more columns", "", ""
