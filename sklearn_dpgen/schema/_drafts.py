"""Drafts of several tables, and drafts of the metadata of other formats."""

import textwrap
from collections.abc import Callable, Mapping
from typing import Any

import pandas as pd

from sklearn_dpgen.exceptions import PublicValueError
from sklearn_dpgen.schema._codebook import GAP, one_line
from sklearn_dpgen.schema._exchange import read_exchange
from sklearn_dpgen.schema._imported import columns_of
from sklearn_dpgen.schema._relational import RelationalSchema
from sklearn_dpgen.schema._schema import TYPES, SchemaDraft, _literal
from sklearn_dpgen.schema._texts import dump_yaml

__all__ = ["RelationalDraft", "draft_exchange"]


class RelationalDraft:
    """A relational schema with possibly missing declarations; made by `Schema.draft`.

    ``str(draft)`` is `to_code`.

    Parameters
    ----------
    tables : mapping of str to SchemaDraft
        The modelled columns of each table.
    keys : mapping of str to mapping
        For each table parameters of `Table`, ``"..."`` for those that are missing.
    """

    def __init__(
        self, tables: Mapping[str, SchemaDraft], keys: Mapping[str, Mapping[str, Any]]
    ) -> None:
        self.tables = tables
        self.keys = keys

    def __str__(self):
        return self.to_code()

    def __repr__(self):
        return f"<RelationalDraft of {len(self.tables)} tables, missing={self.missing!r}>"

    @property
    def declaration(self) -> dict:
        """As from `RelationalSchema.to_dict`, with ``"..."`` for missing declarations."""
        return {
            "tables": {
                name: {**table.words, "columns": table.declaration, **self.keys[name]}
                for name, table in self.tables.items()
            }
        }

    @property
    def missing(self) -> dict:
        """The fields to declare, a dict of tuples by table and by ``table.column``."""
        found: dict[str, tuple] = {}
        for name, table in self.tables.items():
            gaps = tuple(word for word, value in self.keys[name].items() if value == GAP)
            found |= {name: gaps} if gaps else {}
            found |= {f"{name}.{column}": fields for column, fields in table.missing.items()}
        return found

    def to_schema(self, frames: Mapping[str, pd.DataFrame] | None = None) -> RelationalSchema:
        """Return the schema.

        Parameters
        ----------
        frames : mapping of str to DataFrame, optional
            The rows of public tables.

        Raises
        ------
        PublicValueError
            Declarations are missing, or the tables are no relational schema.
        """
        if self.missing:
            gaps = ", ".join(f"{name!r} ({', '.join(f)})" for name, f in self.missing.items())
            raise PublicValueError(f"The draft lacks public declarations of {gaps}.")
        return RelationalSchema.from_dict(self.declaration, frames=frames)

    def to_code(self) -> str:
        """Return Python code to paste, which raises as long as it contains a ``...``."""
        used = [e["type"] for t in self.tables.values() for e in t.declaration.values()]
        kinds = {TYPES[kind].__name__ for kind in used if kind != GAP}
        names = sorted({*kinds, "RelationalSchema", "Schema", "Table"})
        lines = [f"from sklearn_dpgen.schema import {', '.join(names)}", ""]
        lines.append("schema = RelationalSchema({")
        for name, table in self.tables.items():
            lines += [f"    # {remark}" for remark in table.remarks]
            lines.append(f"    {_literal(name)}: Table(")
            columns = table.to_code().partition("\nschema = ")[2]
            lines.append(textwrap.indent(f"{columns},", " " * 8))
            for word, value in self.keys[name].items():
                lines.append(f"        {word}={_value(value)},")
            lines.append("    ),")
        return "\n".join([*lines, "})"])

    def to_yaml(self) -> str:
        """Return YAML, which `RelationalSchema.from_yaml` refuses while it contains a ``...``."""
        text = "tables:\n"
        for name, table in self.tables.items():
            remarks = "".join(f"# {remark}\n" for remark in table.remarks)
            plain = SchemaDraft(table.declaration, table.notes)
            columns = textwrap.indent(plain.to_yaml(), "  ")
            head = dump_yaml({name: None}).replace(" null", "") + textwrap.indent(remarks, "  ")
            words, keys = (
                dump_yaml(dict(own)) if own else "" for own in (table.words, self.keys[name])
            )
            body = f"columns:\n{columns}" if columns else "columns: {}\n"
            text += textwrap.indent(head + textwrap.indent(words + body + keys, "  "), "  ")
        return text


def _value(value):
    """Return the code of a parameter of a table."""
    if isinstance(value, Mapping):
        return f"{{{', '.join(f'{_literal(k)}: {_literal(v)}' for k, v in value.items())}}}"
    return "..." if value == GAP else _literal(value)


def draft_exchange(document: Any, check_column: Callable) -> SchemaDraft | RelationalDraft | None:
    """Draft a schema from metadata in another format; None if it is in none that is known.

    Parameters
    ----------
    document : object
    check_column : callable
        As for `read_codebook`.
    """
    found = read_exchange(document)
    if found is None:
        return None
    tables, is_relational = found
    drafts = {}
    for name, table in tables.items():
        columns, notes = columns_of(table, check_column)
        notes = {column: one_line(note) for column, note in notes.items()}
        remarks = [one_line(text) for text in table.remarks]
        drafts[name] = SchemaDraft(columns, notes, remarks, table.words)
    if is_relational:
        return RelationalDraft(drafts, {name: table.keys for name, table in tables.items()})
    (draft,) = drafts.values()
    if not draft.declaration:
        raise PublicValueError("The table of the document has no columns.")
    return draft
