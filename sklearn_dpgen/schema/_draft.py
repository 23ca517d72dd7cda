"""A schema in which something may still be missing, as code and as YAML."""

from collections.abc import Mapping

import yaml

from sklearn_dpgen.exceptions import PublicValueError
from sklearn_dpgen.schema._schema import _TYPES, Schema

# What is not known: in Python and in YAML alike, and no column accepts it.
GAP = "..."


class SchemaDraft:
    """A schema in which bounds or categories may still be missing; made by `Schema.draft`.

    ``str(draft)`` is `to_code`.

    Parameters
    ----------
    declaration : mapping of str to mapping
        As `Schema.to_dict` has it, with ``"..."`` for what is missing.
    notes : mapping of str to str, optional
        A comment for some of the columns.
    """

    def __init__(self, declaration: Mapping, notes: Mapping | None = None) -> None:
        self.declaration = declaration
        self.notes = {} if notes is None else notes

    def __str__(self):
        return self.to_code()

    def __repr__(self):
        return f"<SchemaDraft of {len(self.declaration)} columns, missing={self.missing!r}>"

    @property
    def missing(self) -> dict:
        """What is still to be declared: for each such column a tuple of its fields."""
        gaps = {
            name: tuple(field for field, value in entry.items() if value == GAP)
            for name, entry in self.declaration.items()
        }
        return {name: fields for name, fields in gaps.items() if fields}

    def to_schema(self) -> Schema:
        """Return the schema.

        Raises
        ------
        ValueError
            Naming the columns of which something is missing.
        """
        if self.missing:
            gaps = ", ".join(f"{name!r} ({', '.join(f)})" for name, f in self.missing.items())
            raise PublicValueError(f"The draft lacks public declarations of columns {gaps}.")
        return Schema.from_dict(self.declaration)

    def to_code(self) -> str:
        """Return Python code to paste, which raises as long as a ``...`` is left."""
        types = {entry["type"] for entry in self.declaration.values()} - {GAP}
        kinds = {_TYPES[kind].__name__ for kind in types}
        lines = [f"from sklearn_dpgen.schema import {', '.join(sorted({*kinds, 'Schema'}))}", ""]
        lines.append("schema = Schema({")
        for name, entry in self.declaration.items():
            lines += [f"    # {self.notes[name]}"] if name in self.notes else []
            todo = f"  # declare {' and '.join(self.missing[name])}" if name in self.missing else ""
            lines.append(f"    {_literal(name)}: {_call(entry)},{todo}")
        return "\n".join([*lines, "})"])

    def to_yaml(self) -> str:
        """Return YAML, which `Schema.from_yaml` refuses as long as a ``...`` is left."""
        blocks = []
        for name, entry in self.declaration.items():
            note = f"# {self.notes[name]}\n" if name in self.notes else ""
            blocks.append(note + yaml.safe_dump({name: entry}, sort_keys=False))
        return "".join(blocks)


def _call(entry):
    """Return the code of one column."""
    if entry["type"] == GAP:
        return GAP
    fields = {key: "..." if v == GAP else _literal(v) for key, v in entry.items() if key != "type"}
    bare = () if GAP in entry.values() else ("low", "high", "categories", "values")
    arguments = [text if key in bare else f"{key}={text}" for key, text in fields.items()]
    return f"{_TYPES[entry['type']].__name__}({', '.join(arguments)})"


def _literal(value):
    """Return the code of a value; strings get double quotes, as Python code mostly has them."""
    if isinstance(value, list):
        return f"[{', '.join(map(_literal, value))}]"
    text = repr(value)
    return f'"{text[1:-1]}"' if text[0] == "'" and '"' not in text else text


def one_line(text):
    """Return text that is safe in a comment."""
    return " ".join("".join(c if c.isprintable() else " " for c in text).split())
