"""Metadata of CSV on the Web, as tables to draft from."""

import re
from collections.abc import Mapping
from urllib.parse import unquote

from sklearn_dpgen.exceptions import PublicValueError
from sklearn_dpgen.schema._codebook import GAP
from sklearn_dpgen.schema._imported import (
    Imported,
    identifier,
    is_identifier,
    mapping,
    mappings,
    new_row,
    resolution_of,
    set_bounds,
    set_file,
    set_notes,
    set_primary_key,
    texts,
    unused,
    words_of,
)

__all__ = ["is_csvw", "read_csvw", "tr35_of"]

_CSVW = "http://www.w3.org/ns/csvw"
_CSVW_TYPES = {
    "integer": "integer long int short byte nonNegativeInteger positiveInteger unsignedLong "
    "unsignedInt unsignedShort unsignedByte nonPositiveInteger negativeInteger gYear",
    "number": "number decimal double float",
    "boolean": "boolean",
    "date": "date",
    "datetime": "dateTime datetime dateTimeStamp",
    "string": "string normalizedString token language Name NMTOKEN anyURI any anyAtomicType",
}
_CSVW_KINDS = {word: kind for kind, words in _CSVW_TYPES.items() for word in words.split()}
_INHERITED = ("null", "datatype", "separator", "required", "propertyUrl")
_CSVW_COLUMN = (
    "@id @type name titles null datatype separator required propertyUrl dc:title dc:description "
    # How cells become statements of RDF, and how they are shown.
    "aboutUrl valueUrl lang textDirection suppressOutput ordered"
)
_CSVW_DATATYPE = (
    "@id @type base format minimum maximum minInclusive maxInclusive minExclusive maxExclusive "
    "name dc:title dc:description"
)
_CSVW_DIALECT = (
    "@type delimiter encoding header headerRowCount doubleQuote lineTerminators quoteChar"
)
# Fields of dates and times in patterns of Unicode TR 35, as in strptime.
_TR35 = {
    "yyyy": "%Y",
    "MM": "%m",
    "M": "%m",
    "dd": "%d",
    "d": "%d",
    "HH": "%H",
    "mm": "%M",
    "ss": "%S",
}


def is_csvw(document: Mapping) -> bool:
    """Return whether a mapping is metadata of CSV on the Web."""
    context = document.get("@context")
    contexts = context if isinstance(context, list) else [context]
    tables = document.get("tables")
    return (
        _CSVW in contexts
        or "tableSchema" in document
        or (isinstance(tables, list) and all(isinstance(t, Mapping) for t in tables))
    )


def read_csvw(document: Mapping) -> dict[str, Imported]:
    """Return the tables of metadata of CSV on the Web, by the names of their files."""
    group = mappings(document["tables"], "tables") if "tables" in document else [document]
    found: dict[str, Mapping] = {}
    by_url: dict[str, str] = {}
    for item in group:
        url = item.get("url")
        if not isinstance(url, str):
            raise PublicValueError("Each table must have the url of its file.")
        stem = unquote(re.sub(r"\.[^./]*$", "", re.split("[?#]", url)[0]).rpartition("/")[2])
        name = stem or "table"
        while name in found:
            name += "_"
        by_url[url] = name
        found[name] = item
    tables: dict[str, Imported] = {}
    titles: dict[str, dict[str, str]] = {}
    for name, item in found.items():
        tables[name], titles[name] = _csvw_table(item, document)
    for name, item in found.items():
        schema = item.get("tableSchema", document.get("tableSchema", {}))
        for key in mappings(schema.get("foreignKeys", []), "foreignKeys"):
            reference = mapping(key.get("reference"), "The reference of a foreign key")
            resource = str(reference.get("resource"))
            parent = by_url.get(resource, resource)
            own = [titles[name].get(n, n) for n in texts(key.get("columnReference"))]
            others = texts(reference.get("columnReference"))
            others = [titles.get(parent, {}).get(n, n) for n in others]
            tables[name].references.append((own, parent, others))
    return tables


def _csvw_table(item, group):
    """Return a table, and the names of its columns in the file by those in the metadata."""
    schema = mapping(item.get("tableSchema", group.get("tableSchema")), "tableSchema")
    rows, titles, remarks = [], {}, []
    inherited = {
        word: holder[word]
        for holder in (group, item, schema)
        for word in _INHERITED
        if word in holder
    }
    for column in mappings(schema.get("columns", []), "columns"):
        name = _csvw_name(column)
        if column.get("virtual") is True:
            remarks.append(f"The virtual column {name!r} is not in the file.")
            continue
        titles[str(column.get("name", name))] = name
        rows.append(_csvw_row(name, inherited | dict(column)))
    table = Imported(rows, remarks=remarks)
    set_notes(table, item.get("notes"), "dc:subject", "dc:description")
    set_primary_key(table, [titles.get(n, n) for n in texts(schema.get("primaryKey"))])
    dialect = item.get("dialect", group.get("dialect", {}))
    if not isinstance(dialect, Mapping):
        table.remarks.append("The dialect, in another file, is not read.")
        return table, titles
    set_file(table, dialect, dialect.get("encoding"))
    table.remarks += [f"In the dialect, {note}." for note in unused(dialect, _CSVW_DIALECT)]
    if dialect.get("header") is False or dialect.get("headerRowCount", 1) != 1:
        table.remarks.append("The file has no header of one line, and needs one.")
    return table, titles


def _csvw_name(column):
    """Return the name of a column in the header: its name, if that is a title, or its title."""
    given = column.get("titles")
    by_language = given.values() if isinstance(given, Mapping) else [given]
    titles = [text for found in by_language for text in texts(found)]
    name = column.get("name")
    if isinstance(name, str) and not titles:
        return unquote(name)
    return name if name in titles else next(iter(titles), None)


def _csvw_row(name, column):
    """Return a column of CSVW metadata as a row of a data dictionary."""
    datatype = column.get("datatype", "string")
    datatype = {"base": datatype} if isinstance(datatype, str) else mapping(datatype, "datatype")
    base = str(datatype.get("base", "string"))
    kind = _CSVW_KINDS.get(base)
    pattern = datatype.get("format")
    described = [" ".join(texts(column.get(f"dc:{word}"))) for word in ("title", "description")]
    row = new_row(name, kind or GAP, label=described[0], description=described[1])
    notes, words = row["notes"], row["words"]
    if is_identifier(column.get("propertyUrl")):
        return identifier(row, "an identifier: never learned")
    if column.get("separator") is not None:
        notes.append(f"cells hold lists, separated by {column['separator']!r}: no counterpart")
        return row | {"type": GAP}
    if kind is None:
        notes.append(f"the datatype {base!r} has no counterpart")
        return row
    row["required"] = column.get("required", False)
    row["missing"] = [code for code in texts(column.get("null")) if code] or None
    bounds = {}
    for end, word in (("low", "min"), ("high", "max")):
        given = [datatype.get(f"{word}{more}") for more in ("imum", "Inclusive", "Exclusive")]
        bounds[end] = next((value for value in given if value is not None), None)
        if given[2] is not None:
            notes.append(f"{end} itself is excluded")
    if kind in ("number", "integer"):
        words |= _csvw_marks(pattern, notes)
    elif kind in ("date", "datetime") and isinstance(pattern, str):
        converted = _strptime_of(pattern)
        if converted is None:
            notes.append(f"dates are written as {pattern!r} of Unicode TR 35")
        elif converted not in ("%Y-%m-%d", "%Y-%m-%dT%H:%M:%S"):
            words["format"] = converted
        if converted is not None and kind == "datetime":
            row["resolution"] = resolution_of(converted)
    elif kind == "boolean" and isinstance(pattern, str):
        row |= {"type": "string", "values": pattern.split("|")[::-1]}
    elif kind == "string" and isinstance(pattern, str):
        row["values"] = _alternatives(pattern)
        if row["values"] is None:
            notes.append(f"texts match {pattern!r}")
    set_bounds(row, bounds)
    notes += unused(column, _CSVW_COLUMN) + unused(datatype, _CSVW_DATATYPE)
    return row


def _csvw_marks(pattern, notes):
    """Return the marks of numbers that the format of a datatype declares."""
    given = pattern if isinstance(pattern, Mapping) else {"pattern": pattern}
    marks = {"decimal": given.get("decimalChar"), "thousands": given.get("groupChar")}
    text = given.get("pattern")
    if isinstance(text, str):
        marks["thousands"] = marks["thousands"] or ("," if "," in text else None)
        if re.search(r"[^#0.,;+-]", text):
            notes.append(f"numbers are written as {text!r}")
    return words_of(marks)


def _strptime_of(pattern: str) -> str | None:
    """Return a pattern of Unicode TR 35 as one of strptime, or None if it has another field."""
    text = ""
    for found in re.finditer(r"([A-Za-z])\1*|[^A-Za-z]+", pattern):
        word = found[0]
        if not word[0].isalpha() or word == "T":
            text += word.replace("%", "%%")
        elif set(word) <= {"S"}:
            text += "%f"
        elif word[0] in "Xx":
            text += "%z"
        elif word in _TR35:
            text += _TR35[word]
        else:
            return None
    return text


def tr35_of(pattern: str) -> str | None:
    """Return a pattern of strptime as one of Unicode TR 35, or None if it has no counterpart."""
    fields = {directive: field for field, directive in _TR35.items() if len(field) > 1}
    text = ""
    for directive, other in re.findall(r"(%.)|([^%]+)", pattern):
        # Other letters are fields there.
        if (directive and directive not in fields) or re.search(r"[A-SU-Za-z]", other):
            return None
        text += fields[directive] if directive else other
    return text


def _alternatives(pattern: str) -> list[str] | None:
    """Return the texts that a regular expression lists, or None if it is another one."""
    inner = pattern.removeprefix("^").removesuffix("$") if pattern[:1] == "^" else pattern
    if inner.startswith("(?:") and inner.endswith(")"):
        inner = inner[3:-1]
    elif inner.startswith("(") and inner.endswith(")"):
        inner = inner[1:-1]
    labels, text = [], ""
    marks = iter(inner)
    for mark in marks:
        if mark == "\\":
            mark = next(marks, "")
            if not mark or mark.isalnum():
                return None
            text += mark
        elif mark == "|":
            labels.append(text)
            text = ""
        elif mark in r"^$.*+?()[]{}":
            return None
        else:
            text += mark
    return [*labels, text]
