"""Fields of the columns of a schema: their texts on the page, and their values in a file."""

import functools
import json
import re
from typing import Any

from sklearn_dpgen.command_line._files import parse
from sklearn_dpgen.exceptions import PublicError
from sklearn_dpgen.schema import json_schema
from sklearn_dpgen.schema._drafts import RelationalDraft
from sklearn_dpgen.schema._schema import SchemaDraft
from sklearn_dpgen.schema._texts import dump_yaml

__all__ = [
    "FIELDS", "GAP", "LEFT_OUT", "TYPES", "entry_as", "fields_of", "notes_of", "schema_text",
    "tables_of", "text_of",
]  # fmt: skip

# Items between commas, of which some are in quotes.
_PARTS = re.compile(r"""\s*(?:"[^"]*"|'[^']*')\s*(?=,|$)|[^,]+""")
GAP, LEFT_OUT = "...", "leave out"
TYPES = ("numeric", "datetime", "categorical", "ordinal", "open_categorical", "identifier")
# Words of the page for the fields of the library; those after the empty name are shown on demand.
FIELDS = {
    "low": "low", "high": "high", "integer": "whole numbers", "resolution": "resolution",
    "categories": "labels, with commas", "nullable": "may be missing", "missing": "missing codes",
    "": "",
    "step": "step", "format": "format", "decimal": "decimal mark", "thousands": "thousands mark",
    "currency": "currency", "zone": "time zone", "hierarchy": "hierarchy",
    "categories_from": "file of labels", "other": "label of the rest",
    "max_length": "longest label", "max_labels": "most labels", "prefix": "prefix",
    "description": "description",
}  # fmt: skip


@functools.cache
def fields_of(kind: str) -> dict[str, dict]:
    """Return what the library says of each field of a type of columns."""
    entry = json_schema()["$defs"].get(kind, {})
    words = {name: dict(word) for name, word in entry.get("properties", {}).items()}
    required = [*entry.get("required", ()), *(["categories"] if "oneOf" in entry else ())]
    for name, word in words.items():
        word["required"] = name in required
        kinds = word.get("type")
        word["kinds"] = {kinds} if isinstance(kinds, str) else {*(kinds or ())}
    return words


def tables_of(declaration: dict) -> dict[str, dict]:
    """Return the columns of each table; a single table without keys has an empty name."""
    if "tables" in declaration:
        tables = declaration["tables"]
        tables = tables if isinstance(tables, dict) else {}
        return {name: own.setdefault("columns", {}) for name, own in tables.items()
                if isinstance(own, dict)}  # fmt: skip
    columns = declaration.get("columns", {})
    return {"": columns} if isinstance(columns, dict) and declaration else {}


def entry_as(entry: dict, field: str, text: str) -> dict:
    """Return the declaration of a column after a change of a field."""
    if field == "type":
        words = fields_of(text)
        found = {"type": text}
        found |= {n: v for n, v in entry.items() if n in words and n != "type" and v != GAP}
        gaps = [n for n, word in words.items() if word["required"] and n != "type"]
        if "categories_from" in found:
            gaps = [name for name in gaps if name != "categories"]
        return found | {name: GAP for name in gaps if name not in found}
    word = fields_of(entry["type"])[field]
    value = _value(text.strip(), word["kinds"])
    kept = {name: own for name, own in entry.items() if name != field}
    if value is None and not word["required"]:
        return kept
    # The order of the fields stays.
    new = {field: GAP if value is None else value}
    found = {name: new.get(name, own) for name, own in entry.items()} | new
    if field == "categories_from":
        found.pop("categories", None)
    return found


def _value(text, kinds):
    if not text:
        return None
    if "boolean" in kinds:
        return {"yes": True, "no": False}.get(text)
    if kinds & {"array", "object"}:
        try:
            found = parse(f"value: [{text}]", "field.yaml")["value"]
        except PublicError:
            found = [None]
        # NULL and #N/A are labels here; in a file they are nothing, and a comment.
        is_odd = None in found or "#" in text
        is_odd |= "object" not in kinds and any(isinstance(own, dict) for own in found)
        parts = _PARTS.findall(text) if is_odd else []
        return [_scalar(part.strip()) for part in parts if part.strip()] if is_odd else found
    return text if "string" in kinds and "number" not in kinds else _scalar(text)


def _scalar(text):
    try:
        found = parse(f"value: {text}", "field.yaml")["value"]
    except PublicError:
        return text
    is_cut = "#" in text and text[:1] not in "'\""
    return text if is_cut or found is None or isinstance(found, dict | list) else found


def text_of(value: Any) -> str:
    """Return the text of a value of a field; of a declaration that is a mapping, none."""
    if value in (None, GAP) or isinstance(value, dict):
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if not isinstance(value, list):
        return str(value)
    return ", ".join(map(_plain, value))


def _plain(item):
    """Return a text that YAML reads as the item in a list."""
    if not isinstance(item, str):
        return dump_yaml({"v": item}).partition(": ")[2].strip() or str(item)
    is_plain = item == item.strip() and not set(item) & set(",:[]{}#\"'\n")
    return item if is_plain and _scalar(item) == item else json.dumps(item, ensure_ascii=False)


def notes_of(text: str) -> dict[tuple[str, str], str]:
    """Return the comments above the columns of a draft, by table and column."""
    found, table, notes, has_tables = {}, "", [], "\ntables:\n" in f"\n{text}"
    for line in text.splitlines():
        bare, depth = line.strip(), len(line) - len(line.lstrip())
        if bare.startswith("#"):
            notes.append(bare[1:].strip())
            continue
        if bare.endswith(":") or "{" in bare:
            name = bare.split(": ")[0].removesuffix(":")
            name = _scalar(name) if name[:1] in "'\"" else name
            if has_tables and depth == 2:
                table = name
            elif notes and name != "columns":
                found[table, name] = " ".join(notes)
        notes = []
    return found


def schema_text(declaration: dict, notes: dict, head: str = "") -> str:
    """Return the YAML of a declaration, with the comments on its columns."""
    own = {table: {c: note for (t, c), note in notes.items() if t == table}
           for table in ("", *declaration.get("tables", ()))}  # fmt: skip
    if "tables" not in declaration:
        words = {word: value for word, value in declaration.items() if word != "columns"}
        text = SchemaDraft(declaration["columns"], own[""], words=words).to_yaml()
        return f"{head}\n\n{text}" if head else text
    drafts, keys = {}, {}
    for name, entry in declaration["tables"].items():
        words = {word: entry[word] for word in ("delimiter", "encoding") if word in entry}
        drafts[name] = SchemaDraft(entry["columns"], own[name], words=words)
        keys[name] = {w: v for w, v in entry.items() if w not in {"columns", *words}}
    text = RelationalDraft(drafts, keys).to_yaml()
    return f"{head}\n\n{text}" if head else text
