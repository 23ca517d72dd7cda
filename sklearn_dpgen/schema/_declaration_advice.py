"""What to write in place of the usual mistakes in declarations of tables and columns."""

from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from typing import Any

from sklearn_dpgen.schema._codebook import _KIND_OF, _SYNONYMS
from sklearn_dpgen.schema._column import given_as
from sklearn_dpgen.schema._texts import offered

__all__ = ["misplaced_fault", "type_fault", "unknown_fault"]

# The words of declarations by the fields of codebooks, where they differ, and further synonyms.
_WORD_OF = {"values": "categories", "label": "description"}
_WORDS = {"labels": "categories", "from": "low", "to": "high", "optional": "nullable"}
_DECLARED_AS = {
    "number": "type: numeric",
    "integer": "type: numeric, with integer: true",
    "string": "type: categorical for listed labels, or open_categorical",
    "labels": "type: categorical",
    "ordinal": "type: ordinal",
    "open": "type: open_categorical",
    "boolean": "type: categorical, with categories: [false, true]",
    "date": "type: datetime, with resolution: D",
    "datetime": "type: datetime",
    "identifier": "type: identifier",
}


def unknown_fault(unknown: Iterable[Any], words: Iterable[str]) -> str:
    """Return :func:`offered` with the words that have the meaning of unknown ones."""
    words = list(words)
    meant = {}
    for key in unknown:
        word = str(key).strip().lower()
        field = _SYNONYMS.get(word, "")
        own = _WORDS.get(word, _WORD_OF.get(field, field))
        if own in words:
            meant[key] = own
    return offered(list(unknown), words, meant)


def type_fault(kind: Any, given: Mapping, types: Iterable[str]) -> str:
    """Return what is wrong with the type of a column.

    Parameters
    ----------
    kind : object
        What is given as the type, or None.
    given : mapping
        The other words of the declaration.
    types : iterable of str
    """
    types = list(types)
    if kind is None:
        near = [str(key) for key in given if get_close_matches(str(key).lower(), ["type"])]
        if near:
            return f"unknown {near[:1]}: did you mean 'type'?"
        return f"type must be one of {types}, and is missing."
    text = kind.strip().lower() if isinstance(kind, str) else ""
    near = get_close_matches(text, types, n=1)
    advice = f": did you mean {near[0]!r}?" if near else "."
    meant = _DECLARED_AS.get(_KIND_OF.get(text, ""))
    advice = advice if meant is None else f": write {meant}."
    return f"type must be one of {types}, got {given_as(kind)}{advice}"


def misplaced_fault(declaration: Mapping, words: Iterable[str]) -> str | None:
    """Return what is wrong with a declaration of columns that has words of a table, or None."""
    tables = declaration.get("tables")
    if isinstance(tables, Mapping) and not isinstance(tables.get("type"), str):
        others = [key for key in declaration if key != "tables"]
        advice = {
            "unit": "tables declare their persons by primary_key",
            "rules": "give rules to the table of their rows",
        }
        hints = [advice.get(key, "give it to each of the tables") for key in others[:1]]
        return f"{', '.join(map(str, others))} must not stand beside tables: {''.join(hints)}."
    columns = declaration.get("columns")
    if "columns" in declaration and not isinstance(columns, Mapping):
        return f"columns must map names to declarations, got {given_as(columns)}."
    for word in words:
        if word in declaration and not isinstance(declaration[word], Mapping):
            return f"{word} is a word of the table: put the columns under 'columns'."
    return None
