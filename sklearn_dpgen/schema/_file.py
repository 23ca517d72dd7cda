"""Files of schemas, in YAML or JSON, and estimators that take their paths."""

import os
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import pandas as pd

from sklearn_dpgen.exceptions import PublicFileNotFoundError, PublicValueError
from sklearn_dpgen.schema._codebook import GAP
from sklearn_dpgen.schema._relational import RelationalSchema, Table, is_relational
from sklearn_dpgen.schema._schema import TABLE_WORDS, Schema, SchemaDraft, is_long
from sklearn_dpgen.schema._texts import read_declaration

__all__ = [
    "DeclaredParameter",
    "SchemaParameter",
    "declared_rules",
    "declared_unit",
    "gaps_of",
    "read_schema",
]

_ENDINGS = (".yaml", ".yml", ".json")


def read_schema(
    path: str | os.PathLike, *, frames: Mapping[str, pd.DataFrame] | None = None
) -> Schema | RelationalSchema:
    """Read the schema of one table, or of tables with keys, from a file.

    Parameters
    ----------
    path : str or path-like
        A file in YAML or JSON, with the ending .yaml, .yml or .json. Files that it names, such as
        ``categories_from``, must be in its folder.
    frames : mapping of str to DataFrame, optional
        The rows of the public tables of a relational schema.

    Returns
    -------
    Schema or RelationalSchema

    Raises
    ------
    PublicFileNotFoundError
        There is no such file.
    PublicValueError
        The file is not a schema, or is a draft.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> from sklearn_dpgen.schema import read_schema
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder) / "people.yaml"
    ...     _ = path.write_text("country: {type: categorical, categories: [NO, SE]}")
    ...     read_schema(path)["country"].categories
    ('NO', 'SE')
    """
    path = os.fspath(path)
    if not str(path).lower().endswith(_ENDINGS):
        raise PublicValueError(
            f"schema must be a file with one of the endings {', '.join(_ENDINGS)}, got {path!r}."
        )
    if not os.path.isfile(path):
        raise PublicFileNotFoundError(f"schema must be an existing file, got {path!r}.")
    text = None
    with suppress(UnicodeDecodeError):
        text = Path(path).read_text(encoding="utf-8-sig")
    if text is None:
        raise PublicValueError(f"schema must be a file in UTF-8, got {path!r}.")
    declaration = read_declaration(text, path, path)
    gaps = gaps_of(declaration)
    if gaps:
        raise PublicValueError(f"{path} is a draft: declare {', '.join(gaps)}.")
    folder = Path(path).parent
    if is_relational(declaration):
        return RelationalSchema.from_dict(declaration, frames=frames, folder=folder)
    return Schema.from_dict(declaration, folder=folder)


def gaps_of(declaration: Any, prefix: str = "") -> list[str]:
    """Return texts of what a draft leaves to declare."""
    if not prefix and is_relational(declaration):
        gaps = []
        for name, entry in declaration["tables"].items():
            if isinstance(entry, dict):
                own = [field for field, value in entry.items() if value == GAP]
                gaps += [f"{name!r} ({', '.join(own)})"] if own else []
                gaps += gaps_of(entry.get("columns"), f"{name}.")
        return gaps
    if not prefix and is_long(declaration):
        own = [word for word in TABLE_WORDS if declaration.get(word) == GAP]
        return own + gaps_of(declaration["columns"])
    entries = declaration.values() if isinstance(declaration, dict) else [None]
    if not all(isinstance(entry, dict) for entry in entries):
        return []
    missing = SchemaDraft(declaration).missing
    return [f"{f'{prefix}{name}'!r} ({', '.join(f)})" for name, f in missing.items()]


class SchemaParameter:
    """The parameter ``schema`` of an estimator: the path of a file is read when it is set.

    The estimator holds the schema and not the path, so that its plan, its fits and its clones have
    the same declarations, whatever becomes of the file.
    """

    def __get__(self, estimator: Any, owner: type | None = None) -> Any:
        if estimator is None:
            return self
        try:
            return vars(estimator)["schema"]
        except KeyError:
            pass
        raise AttributeError(f"{type(estimator).__name__} has no schema.")

    def __set__(self, estimator: Any, schema: Any) -> None:
        # Other texts are no path: like any wrong value, they are refused by the plan or the fit.
        is_path = isinstance(schema, os.PathLike) or (
            isinstance(schema, str) and schema.lower().endswith(_ENDINGS)
        )
        vars(estimator)["schema"] = read_schema(schema) if is_path else schema


class DeclaredParameter:
    """A parameter of an estimator of which None stands for a declaration of the schema.

    Whoever reads the attribute gets the declaration: a plan, a fit, a report, a search. So no part
    of a fit can protect another unit than the others. ``get_params`` returns what was given, None,
    so that a clone with another schema follows that one.

    Parameters
    ----------
    read : callable
        From a schema to its declaration, or None.
    """

    def __init__(self, read: Callable[[Any], Any]) -> None:
        self._read = read

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    def __get__(self, estimator: Any, owner: type | None = None) -> Any:
        if estimator is None:
            return None
        given = vars(estimator).get(self._name)
        return self._read(vars(estimator).get("schema")) if given is None else given

    def __set__(self, estimator: Any, value: Any) -> None:
        vars(estimator)[self._name] = value


def declared_unit(schema: Any) -> str | None:
    """Return the unit that a schema of one table declares."""
    return schema.unit if isinstance(schema, Schema) else None


def declared_rules(schema: Any) -> Any:
    """Return the rules of a schema, of several tables by name, or None if there are none."""
    is_declared = isinstance(schema, Schema | Table | RelationalSchema)
    return (schema.rules if is_declared else None) or None
