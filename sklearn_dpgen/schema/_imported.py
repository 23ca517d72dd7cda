"""Tables as other formats declare them, from which schemas are drafted.

What a format says and a schema cannot is a note on a column or a remark on its table; what a schema
needs and a format does not say is a gap.
"""

import datetime
import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, fields
from typing import Any

from sklearn_dpgen.exceptions import PublicValueError
from sklearn_dpgen.schema._codebook import read_rows, without_blanks
from sklearn_dpgen.schema._dates import Datetime
from sklearn_dpgen.schema._numbers import Numeric

__all__ = [
    "TABLE_WORDS",
    "Imported",
    "columns_of",
    "identifier",
    "is_identifier",
    "mapping",
    "mappings",
    "new_row",
    "resolution_of",
    "set_bounds",
    "set_file",
    "set_notes",
    "set_primary_key",
    "texts",
    "unused",
    "words_of",
]

# The words of columns that depend on how a file is written, and what a note says where a column
# takes no such word.
_COLUMN_WORDS = {
    "format": "dates are written as {!r}",
    "decimal": "the decimal mark is {!r}",
    "thousands": "digits are grouped by {!r}",
}
_TAKEN = {
    "numeric": {item.name for item in fields(Numeric)},
    "datetime": {item.name for item in fields(Datetime)},
}
# The same for tables.
TABLE_WORDS = {
    "delimiter": "Fields of the file are separated by {0!r}.",
    "encoding": "The file is encoded as {0!r}.",
    "unit": "Rows belong to the persons of {0!r}: protect each by unit={0!r}, or declare a "
    "relational schema.",
}
# The directives of strptime that need a resolution, the finest first.
_FINEST = {"us": "f", "s": "STXcsr", "min": "MR", "h": "HIp"}


@dataclass
class Imported:
    """A table as another format declares it.

    Attributes
    ----------
    rows : list of dict
        The columns as rows of a data dictionary, with ``notes`` and ``words`` of the file.
    keys : dict
        Words of `Table`: ``primary_key``, ``foreign_key``, ``sequence_index`` and ``max_rows``.
    words : dict
        Words of a file: ``delimiter``, ``encoding`` and ``unit``.
    remarks : list of str
        What concerns the table as a whole.
    references : list of tuple
        For each foreign key its columns, its table and the columns of that.
    """

    rows: list[dict]
    keys: dict[str, Any] = field(default_factory=dict)
    words: dict[str, Any] = field(default_factory=dict)
    remarks: list[str] = field(default_factory=list)
    references: list[tuple] = field(default_factory=list)


def columns_of(table: Imported, check_column: Callable) -> tuple[dict, dict]:
    """Return the declarations of the columns of a table, with gaps, and notes on them.

    Parameters
    ----------
    table : Imported
    check_column : callable
        As for `read_codebook`.
    """
    if not table.rows:
        return {}, {}
    rows, notes = [], []
    for given in table.rows:
        row = without_blanks({k: v for k, v in given.items() if k not in ("notes", "words")})
        rows.append(row)
        notes.append(given.get("notes", []))
    places = [f"column {row.get('name')!r}" for row in rows]
    declaration = read_rows(places, rows, check_column)
    found: dict[str, str] = {}
    for given, (name, entry), own in zip(table.rows, declaration.items(), notes, strict=True):
        taken = _TAKEN.get(entry["type"], ())
        for word, value in given.get("words", {}).items():
            if word in taken:
                entry[word] = value
            else:
                own.append(_COLUMN_WORDS[word].format(value))
        found |= {name: "; ".join(filter(None, [found.get(name), *own]))} if own else {}
    return declaration, found


def new_row(name: Any, kind: str, **fields: Any) -> dict[str, Any]:
    """Return a row of a data dictionary, with notes on it and words of the file."""
    if not isinstance(name, str):
        raise PublicValueError(f"The name of column {name!r} must be a string.")
    return {"name": name, "type": kind, "notes": [], "words": {}, **fields}


def identifier(row: Mapping, why: str) -> dict[str, Any]:
    """Return a row as that of an identifier, with a note on the reason."""
    labels = {word: row[word] for word in ("label", "description") if word in row}
    return new_row(row["name"], "identifier", **labels) | {"notes": [*row["notes"], why]}


def mapping(value: Any, what: str) -> Mapping:
    """Return a value that must be a mapping."""
    if not isinstance(value, Mapping):
        raise PublicValueError(f"{what} must be a mapping, in the file itself.")
    return value


def mappings(value: Any, what: str) -> list[Mapping]:
    """Return a value that must be a list of mappings."""
    if not isinstance(value, list) or not all(isinstance(item, Mapping) for item in value):
        raise PublicValueError(f"{what} must be a list of mappings.")
    return value


def texts(value: Any) -> list[str]:
    """Return one text or a list of them as a list."""
    values = [value] if isinstance(value, str) else value
    return [v for v in values if isinstance(v, str)] if isinstance(values, list) else []


def unused(given: Mapping, known: str) -> list[str]:
    """Return a note with the names of fields that are not among the known words."""
    names = [str(name) for name in given if name not in known.split()]
    return [f"not used: {', '.join(names)}"] if names else []


def words_of(marks: Mapping[str, Any]) -> dict[str, str]:
    """Return the marks of numbers that are no default."""
    found = {word: mark for word, mark in marks.items() if isinstance(mark, str) and mark}
    return {word: mark for word, mark in found.items() if (word, mark) != ("decimal", ".")}


def _number_of(value, decimal, thousands):
    if not isinstance(value, str):
        return value
    text = value.replace(thousands, "") if thousands else value
    return text.replace(decimal, ".") if decimal else text


def _moment_of(value, pattern, is_date):
    """Return a bound as ISO 8601, or None if it is written in another way."""
    text = value.isoformat() if isinstance(value, datetime.date) else str(value).strip()
    moment = None
    with suppress(ValueError):
        moment = datetime.datetime.fromisoformat(text)
    if moment is None and pattern:
        with suppress(ValueError):
            moment = datetime.datetime.strptime(text, pattern)
    if moment is None:
        return None
    # As it is written, where that can be read: a zone is a part of the declaration.
    return moment.date().isoformat() if is_date else moment.isoformat()


def set_bounds(row: dict[str, Any], bounds: Mapping[str, Any]) -> None:
    """Set the bounds of a number or a date, as they are written in the file."""
    notes, words = row["notes"], row["words"]
    is_number, is_date = row["type"] in ("number", "integer"), row["type"] in ("date", "datetime")
    for end, value in bounds.items():
        if value is None:
            continue
        if not is_number and not is_date or row.get("values") is not None:
            notes.append(f"{end} is not used: the column has labels")
            continue
        if is_date:
            value = _moment_of(value, words.get("format"), row["type"] == "date")
            if value is None:
                notes.append(f"{end} is written in a way that is not known")
                continue
            fraction = value.partition(".")[2][:6]
            if fraction and row["type"] == "datetime":
                row.setdefault("resolution", "ms")
                if fraction[3:].strip("0"):
                    row["resolution"] = "us"
        else:
            value = _number_of(value, words.get("decimal"), words.get("thousands"))
        row[end] = value


def resolution_of(pattern: str) -> str:
    """Return the finest unit that a pattern of strptime has."""
    found = set(re.findall("%[-#]?([a-zA-Z])", pattern))
    return next((unit for unit, marks in _FINEST.items() if found & {*marks}), "D")


def is_identifier(uri: Any) -> bool:
    """Return whether a term of RDF is that of identifiers, such as schema.org/identifier."""
    return isinstance(uri, str) and bool(re.fullmatch(r".*[/#:]identifier", uri))


def set_primary_key(table: Imported, keys: list[str]) -> None:
    """Set the primary key of a table, if it is one column."""
    if len(keys) == 1:
        table.keys["primary_key"] = keys[0]
    elif keys:
        table.remarks.append(f"The primary key of several columns {keys} is not expressed.")


def set_file(table: Imported, dialect: Mapping, encoding: Any) -> None:
    """Set the words of how the file of a table is written."""
    if dialect.get("delimiter", ",") != ",":
        table.words["delimiter"] = dialect["delimiter"]
    if isinstance(encoding, str) and encoding.lower() not in ("utf-8", "utf8"):
        table.words["encoding"] = encoding


def set_notes(table: Imported, notes: Any, target: str, text: str) -> None:
    """Add the notes of an exported schema to its columns and its table."""
    rows = {row["name"]: row for row in table.rows}
    for note in notes if isinstance(notes, list) else []:
        if not isinstance(note, Mapping) or not isinstance(note.get(text), str):
            table.remarks.append("A note of the document is not read.")
        elif note.get(target) in rows:
            rows[note[target]]["notes"].append(note[text])
        else:
            table.remarks.append(note[text])
