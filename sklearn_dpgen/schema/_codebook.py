"""Draft declarations from codebooks: data dictionaries, table schemas, dtypes."""

import datetime
import math
import re
from collections.abc import Mapping

import numpy as np
import pandas as pd
from pandas.api import types
from pandas.api.extensions import ExtensionDtype

from sklearn_dpgen.exceptions import PublicError, PublicValueError
from sklearn_dpgen.schema._column import MOST_DESCRIPTION

# Marks a missing declaration in Python and in YAML; no column accepts it.
GAP = "..."

_FIELDS = {
    "name": "name column variable field",
    "type": "type dtype data_type",
    "low": "low min minimum",
    "high": "high max maximum",
    "values": "values categories codes choices levels enum",
    "ordered": "ordered",
    "nullable": "nullable",
    "required": "required",
    "missing": "missing missing_codes missing_values",
    "step": "step",
    "decimal": "decimal decimal_char",
    "thousands": "thousands group_char",
    "currency": "currency",
    "format": "format",
    "resolution": "resolution",
    "label": "label title",
    "description": "description",
    "unit": "unit units",
}
_SYNONYMS = {word: field for field, words in _FIELDS.items() for word in words.split()}

_KINDS = {
    "number": "number numeric float double real decimal",
    "integer": "integer int uint tinyint smallint bigint year",
    "string": "string large_string str text char character varchar",
    "labels": "categorical category nominal factor enum dictionary object any",
    "ordinal": "ordinal",
    "open": "open open_categorical",
    "boolean": "boolean bool logical",
    "date": "date",
    "datetime": "datetime timestamp timestamptz",
    "identifier": "identifier id uuid",
}
_KIND_OF = {word: kind for kind, words in _KINDS.items() for word in words.split()}


def read_codebook(codebook, check_column):
    """Read the declarations of a codebook; see `Schema.draft`.

    Parameters
    ----------
    codebook : mapping or sequence
        In one of the forms of `Schema.draft`.
    check_column : callable
        Called with the name and the complete declaration of a column; raises if it is invalid.

    Returns
    -------
    declaration : dict of str to dict
        As from `Schema.to_dict`, with ``"..."`` for missing declarations.
    """
    places, rows = _rows(codebook)
    return read_rows(places, rows, check_column)


def read_rows(places, rows, check_column):
    """Read the rows of a data dictionary with known fields; the result is that of `read_codebook`.

    Parameters
    ----------
    places : list of str
        How errors name the rows.
    rows : list of dict
        Keys are those of ``_FIELDS``; the rows are used up.
    check_column : callable
        As for `read_codebook`.
    """
    if not rows:
        raise PublicValueError("The codebook has no columns.")
    kinds = [_kind(row) for row in rows]
    unknown = [place for place, kind in zip(places, kinds, strict=True) if kind is None]
    if unknown:
        # The type is not shown, as it is a private value if the codebook is a table of records.
        some = ", ".join(unknown[:5]) + (", ..." if len(unknown) > 5 else "")
        raise PublicValueError(f"The type of {some} must be one of {sorted(_KIND_OF)}.")
    declaration = {}
    for place, row, kind in zip(places, rows, kinds, strict=True):
        if not isinstance(row.get("name"), str):
            raise PublicValueError(f"The name of {place} must be a string.")
        name = str(row.pop("name"))
        if name in declaration:
            raise PublicValueError(f"Column names must be distinct, got {name!r} twice.")
        note = [str(row.pop(field)) for field in ("label", "description", "unit") if field in row]
        try:
            codes = _labels(row.pop("missing"), "missing") if "missing" in row else []
            declaration[name] = _entry(row, kind, codes)
        except PublicError as error:
            raise PublicValueError(f"Column {name!r}: {error}") from None
        description = one_line(", ".join(note))[:MOST_DESCRIPTION]
        if description not in ("", GAP):
            declaration[name]["description"] = description
        if GAP not in declaration[name].values():
            check_column(name, declaration[name])
    return declaration


def one_line(text):
    """Return text as one line."""
    return " ".join("".join(c if c.isprintable() else " " for c in text).split())


def _rows(codebook):
    """Return how errors name the columns, and the known fields of each one as a dict."""
    if isinstance(codebook, Mapping):
        rows = [{"name": name, "type": dtype} for name, dtype in codebook.items()]
    elif isinstance(codebook, pd.Series):
        if not all(isinstance(dtype, np.dtype | ExtensionDtype) for dtype in codebook):
            raise PublicValueError("A series must hold dtypes; the values of a column are private.")
        rows = [{"name": name, "type": dtype} for name, dtype in codebook.items()]
    else:
        rows = _dictionary_rows(codebook)
        return [f"row {i}" for i in range(len(rows))], rows
    return [f"column {row.get('name')!r}" for row in rows], [without_blanks(row) for row in rows]


def _dictionary_rows(codebook):
    """Return the rows of a data dictionary; refuse a table of records."""
    if isinstance(codebook, pd.DataFrame):
        if not codebook.columns.is_unique:
            raise PublicValueError("The fields of a codebook must have distinct names.")
        given, rows = list(codebook.columns), codebook.to_dict("records")
    elif isinstance(codebook, list | tuple) and all(isinstance(row, Mapping) for row in codebook):
        given, rows = list(dict.fromkeys(field for row in codebook for field in row)), codebook
    else:
        raise PublicValueError(
            "codebook must be a data frame or a list of dicts with one row a column, a mapping of "
            "columns to dtypes, or a table schema with its fields."
        )
    fields = {
        word: _SYNONYMS.get(re.sub(r"[\s_-]+", "_", str(word).strip().lower())) for word in given
    }
    if rows and not {"name", "type"} <= set(fields.values()):
        raise PublicValueError(
            "codebook must have one row per column, with the fields name and type. A table of "
            "records is refused: a schema is declared, never inferred from private values."
        )
    unknown = [word for word, field in fields.items() if field is None]
    if unknown:
        raise PublicValueError(
            f"codebook must have fields among {list(_SYNONYMS)}, got {unknown}: drop or rename "
            "them."
        )
    for field in _FIELDS:
        words = [word for word in given if fields[word] == field]
        if len(words) > 1:
            raise PublicValueError(f"Fields {words} have the same meaning: keep one.")
    return [without_blanks({fields[word]: row[word] for word in row}) for row in rows]


def without_blanks(row):
    """Return the fields of a row that are not blank."""

    def is_blank(cell):
        text = isinstance(cell, str) and not cell.strip()
        return text or (types.is_scalar(cell) and pd.isna(cell))

    return {field: cell for field, cell in row.items() if not is_blank(cell)}


def _kind(row):
    """Return the kind of a column by the first word of its type; None if it is unknown."""
    dtype = row.pop("type", None)
    if dtype is None:
        return "labels" if "values" in row else None
    if isinstance(dtype, str) and dtype == GAP:
        return GAP
    dtype = dtype.__name__ if isinstance(dtype, type) else dtype
    if not isinstance(dtype, str | np.dtype | ExtensionDtype):
        return None
    # The categories of a dtype are not used: they may be those that occur in the records.
    word = re.match("[a-z_]+", str(dtype).strip().lower())
    return word and _KIND_OF.get(word[0].strip("_"))


def _entry(row, kind, codes):
    """Return the declaration of a column from the fields of its row, with gaps."""
    ordered = _flag("ordered", row.pop("ordered", False))
    if "nullable" in row and "required" in row:
        raise PublicValueError("nullable and required have the same meaning: keep one.")
    nullable = _flag("nullable", row.pop("nullable", False))
    has_required = "required" in row
    is_required = _flag("required", row.pop("required", False))
    if kind in ("identifier", GAP):
        # The values of an identifier are never read, so that nulls need no declaration.
        entry, codes, nullable, is_required = {"type": kind}, [], False, True
    elif kind in ("date", "datetime"):
        entry = {"type": "datetime", **_bounds(row, _moment)}
        if kind == "date" or "resolution" in row:
            entry["resolution"] = str(row.pop("resolution", "D"))
        entry |= _texts(row, "format")
    elif kind in ("number", "integer") and "values" not in row:
        entry = {"type": "numeric", **_bounds(row, _number)}
        if "step" in row:
            entry["step"] = _number(row.pop("step"))
        if kind == "integer":
            entry["integer"] = True
        entry |= _texts(row, "decimal", "thousands", "currency")
        if entry["low"] == entry["high"] != GAP:
            entry = {"type": "categorical", "categories": _labels([entry["low"]], kind)}
    else:
        labels = [False, True] if kind == "boolean" else GAP
        if "values" in row:
            texts = {str(code) for code in codes}
            labels = [v for v in _labels(row.pop("values"), kind) if str(v) not in texts]
        if kind == "open":
            entry = {"type": "open_categorical"} | ({} if labels == GAP else {"categories": labels})
        elif ordered or kind == "ordinal":
            entry = {"type": "ordinal", "categories": labels}
        else:
            entry = {"type": "categorical", "categories": labels}
    if row:
        raise PublicValueError(f"{list(row)} cannot be used for a column declared {entry['type']}.")
    # Codes of a whole table do not occur in columns that are required.
    codes = [] if is_required else codes
    entry |= {"nullable": True} if nullable or codes or (has_required and not is_required) else {}
    return entry | ({"missing": codes} if codes else {})


def _bounds(row, read):
    return {end: read(row.pop(end)) if end in row else GAP for end in ("low", "high")}


def _texts(row, *words):
    return {word: str(row.pop(word)) for word in words if word in row}


def _flag(field, cell):
    text = str(cell).strip().lower().removesuffix(".0")
    if text not in ("yes", "y", "true", "1", "no", "n", "false", "0"):
        raise PublicValueError(f"{field} must be yes or no.")
    return text in ("yes", "y", "true", "1")


def _moment(cell):
    return cell.isoformat() if isinstance(cell, datetime.date) else str(cell).strip()


def _number(cell):
    """Return a finite number, as an integer if it is whole."""
    cell = cell.item() if isinstance(cell, np.generic) else cell
    try:
        number = math.nan if isinstance(cell, bool) or "_" in str(cell) else float(cell)
    except (TypeError, ValueError, OverflowError):
        number = math.nan
    if not math.isfinite(number):
        raise PublicValueError(f"{cell!r} is not a finite number.")
    if type(cell) is int or (isinstance(cell, str) and re.fullmatch(r"\s*[+-]?\d+\s*", cell)):
        return int(cell)
    return int(number) if number.is_integer() and abs(number) <= 2**53 else number


def _numbers(cells):
    numbers = [_number(cell) for cell in cells]
    return numbers if all(type(n) is int for n in numbers) else [float(n) for n in numbers]


def _labels(given, kind):
    """Return labels as records hold them: of the column's type, or as read from a CSV file."""
    if isinstance(given, str):
        labels = _split(given)
    elif isinstance(given, Mapping | list | tuple):
        labels = [label.item() if isinstance(label, np.generic) else label for label in given]
    elif types.is_number(given):
        labels = _numbers([given])
    else:
        raise PublicValueError("values must be a list, a mapping of codes to meanings, or text.")
    if kind in ("number", "integer"):
        labels = _numbers(labels)
        if kind == "integer" and any(type(label) is float for label in labels):
            raise PublicValueError("the values of an integer column must be integers.")
    elif kind in ("string", "open"):
        if not all(isinstance(label, str) for label in labels):
            raise PublicValueError("the values of a column of strings must be strings: quote them.")
    elif isinstance(given, str):
        try:
            return _numbers(labels)
        except ValueError:
            if all(label.lower() in ("true", "false") for label in labels):
                return [label.lower() == "true" for label in labels]
    return labels


def _split(text):
    """Return the labels of ``a, b``, or the codes of ``1=a; 2=b`` or ``1, a | 2, b``."""
    separator = next((mark for mark in "\n|;" if mark in text), ",")
    items = [item.strip() for item in text.split(separator) if item.strip()]
    for mark, code in {"=": r"[^<>!=]+", ",": r"[+-]?\d+\s*"}.items():
        if any(mark in item for item in items):
            pairs = [re.fullmatch(f"({code}){mark}.*", item) for item in items]
            labels = [pair[1].strip() for pair in pairs if pair]
            if len(labels) < len(items):
                raise PublicValueError(f"the values {one_line(text)!r} are ambiguous: give a list.")
            return labels
    return items
