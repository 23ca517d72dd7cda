"""Tables with keys: persons with many rows, in parent and child tables or in one long table."""

import datetime
import json
import re
from collections.abc import Mapping, Sequence
from contextlib import contextmanager
from dataclasses import KW_ONLY, dataclass, field, fields, replace
from numbers import Number
from pathlib import Path
from typing import Any, Self

import numpy as np
import pandas as pd

from sklearn_dpgen.exceptions import PublicError, PublicTypeError, PublicValueError
from sklearn_dpgen.persistence._declarations import Maybe, fits, saved, tuple_of
from sklearn_dpgen.schema._column import Identifier, check_flags, given_as
from sklearn_dpgen.schema._dates import Datetime
from sklearn_dpgen.schema._expressions import Scope
from sklearn_dpgen.schema._labels import Ordinal
from sklearn_dpgen.schema._numbers import Numeric
from sklearn_dpgen.schema._rule_entries import entries_of_rules, read_rules
from sklearn_dpgen.schema._rules import Rule
from sklearn_dpgen.schema._schema import Schema, is_long
from sklearn_dpgen.schema._shown import column_rows, indented
from sklearn_dpgen.schema._texts import dump_yaml, offered, read_json, read_yaml
from sklearn_dpgen.utils._checks import call_quietly
from sklearn_dpgen.utils._frames import as_pandas
from sklearn_dpgen.utils._html import notebook

__all__ = ["ALIKE", "RelationalSchema", "Table", "as_integers", "is_relational"]

# Remedy for keys of two types, the end of a message.
ALIKE = (
    "or one of them integers, and the other their texts without leading zeros. CSV files have "
    "texts as keys: store the keys of both tables as texts."
)
_INTEGER = re.compile("0|-?[1-9][0-9]{0,18}")
_ROW_FAULTS = ("repeated", "orphan", "tied", "over_max_rows", "changing")


@saved
@dataclass(frozen=True)
class Table:
    """The public declaration of a table with keys: its columns, and how its rows belong together.

    Three kinds of tables are declared. A *child* has a ``foreign_key`` to a private parent. A
    *panel* is one long table whose rows belong to persons: it has no private parent, and
    ``max_rows``. A *public* table has a ``frame``. Any other table has one row per person.

    Parameters
    ----------
    schema : Schema
        The modelled columns, and the format of CSV files. A key is no modelled column: it is
        outside of the schema, or an Identifier in it.
    primary_key : str, optional
        Column that identifies a row; in a panel it identifies a person, and repeats. Required for
        a parent, a panel and a public table.
    foreign_key : mapping of str to str, optional
        For each column that holds keys of another table the name of that table. At most one of
        these tables is private.
    sequence_index : str, optional
        Column of the schema that orders the rows of a parent row: Numeric with ``integer=True``,
        Datetime, or Ordinal with increasing numbers; not nullable. Without it, rows of a parent
        row are exchangeable.
    max_rows : int, optional
        Public bound of the number of rows of a parent row that is modelled. Required for a child
        and a panel.
    static : sequence of str, default=()
        For a panel, the columns of the schema that are the same in all rows of a person.
    ties : bool, default=True
        Whether two rows of a parent row may have the same index.
    aggregates : sequence of str, default=()
        For a child or a panel, columns whose aggregate over the rows of a parent row is modelled as
        a variable of the parent row, which links its rows, also those of several child tables: the
        mean of a Numeric, Datetime or Ordinal column, the most frequent label of a Categorical one.
    rules : sequence of Rule or str, default=()
        Public rules of the rows, which every synthetic row fulfils, such as
        ``"admitted <= discharged"``; see :ref:`rules_persons` for columns of the row before and of
        rows above. They are the default of ``constraints`` of
        :class:`~sklearn_dpgen.tables.RelationalSampler`. Those of a child may be texts until it is
        in a RelationalSchema.
    frame : DataFrame, optional
        The rows of a public table, with its key and the columns of the schema; they are not
        protected. Rows of other tables with its keys may depend on these columns. Stored as a
        pandas frame, in the dtypes of the schema.

    Raises
    ------
    PublicTypeError, PublicValueError
        A parameter is invalid, or contradicts another.

    Examples
    --------
    >>> from sklearn_dpgen.schema import Categorical, Numeric, Schema, Table
    >>> columns = Schema({
    ...     "sex": Categorical(["f", "m"]),
    ...     "year": Numeric(1984, 1995, integer=True),
    ...     "income": Numeric(0, 20_000),
    ... })
    >>> panel = Table(
    ...     columns, primary_key="id", sequence_index="year", max_rows=12, static=["sex"]
    ... )
    >>> panel.static
    ('sex',)
    """

    _saved_state = {
        "schema": Schema,
        "primary_key": (None, str),
        "foreign_key": dict[str, str],
        "sequence_index": (None, str),
        "max_rows": (None, int),
        "static": tuple[str, ...],
        "ties": bool,
        "aggregates": tuple[str, ...],
        "rules": Maybe(tuple_of((str, "Rule"))),
        "frame": (None, dict[str, list]),
    }

    schema: Schema
    _: KW_ONLY
    primary_key: str | None = None
    foreign_key: Mapping[str, str] | None = None
    sequence_index: str | None = None
    max_rows: int | None = None
    static: Sequence[str] = ()
    ties: bool = True
    aggregates: Sequence[str] = ()
    rules: Sequence[Rule | str | Mapping] = ()
    frame: Any = field(default=None, repr=False)

    def __repr__(self):
        lines = indented(f"{self.schema!r},")
        for item in fields(self):
            value = getattr(self, item.name)
            if item.name not in ("schema", "frame") and value not in (item.default, {}):
                lines += f"    {item.name}={value!r},\n"
        if self.frame is not None:
            lines += "    frame=...,\n"
        return f"Table(\n{lines})"

    def _repr_html_(self) -> str:
        return _tables_html(f"Table of {len(self.schema)} columns", {"": self})

    def __post_init__(self):
        if not isinstance(self.schema, Schema):
            raise PublicTypeError(f"schema must be a Schema, got {given_as(self.schema)}.")
        for word in ("unit", "rules", "public"):
            if getattr(self.schema, word):
                hint = "give rules to the Table" if word == "rules" else "the keys declare persons"
                raise PublicValueError(f"schema must have no {word} in a Table: {hint}.")
        self._check_keys()
        self._check_index()
        self._check_static()
        self._check_aggregates()
        if self.frame is not None:
            object.__setattr__(self, "frame", self._public_rows())
        elif not self.foreign_key:
            _check_root(self)
        if self.frame is not None and self.rules:
            raise PublicValueError("rules must be empty for a public table, which is not drawn.")
        if self.foreign_key and isinstance(self.rules, Sequence):
            # They may name columns of tables that only the RelationalSchema has.
            rules = (self.rules,) if isinstance(self.rules, str) else tuple(self.rules)
            object.__setattr__(self, "rules", rules)
        else:
            scope = Scope({"rows": self.schema}, "rows")
            object.__setattr__(self, "rules", read_rules(self.rules, scope))

    def _check_keys(self):
        foreign = {} if self.foreign_key is None else self.foreign_key
        if not isinstance(foreign, Mapping):
            raise PublicTypeError(
                "foreign_key must map columns to names of tables, such as {'patient': 'patients'}, "
                f"got {given_as(foreign)}."
            )
        object.__setattr__(self, "foreign_key", dict(foreign))
        if self.primary_key is not None:
            _check_name("primary_key", self.primary_key)
        for column, parent in foreign.items():
            _check_name("foreign_key", column)
            _check_name("a parent in foreign_key", parent, "the name of a table")
        if self.primary_key in foreign:
            raise PublicValueError(
                f"primary_key must be another column than foreign_key, got {self.primary_key!r}: "
                "join a table with one row per parent row to its parent."
            )
        for key in self.keys:
            if key in self.schema and not isinstance(self.schema[key], Identifier):
                raise PublicValueError(
                    f"A key must be no modelled column, got {key!r}: remove it from the schema, or "
                    "declare it as Identifier."
                )

    def _check_index(self):
        check_flags(self, "ties")
        if self.max_rows is not None:
            if not fits(self.max_rows, int) or self.max_rows < 1:
                raise PublicValueError(
                    f"max_rows must be an integer of at least 1, got {given_as(self.max_rows)}."
                )
            object.__setattr__(self, "max_rows", int(self.max_rows))
        index = self.sequence_index
        if index is None:
            if not self.ties:
                raise PublicValueError("ties=False requires sequence_index.")
            return
        _check_name("sequence_index", index)
        if index not in self.schema:
            raise PublicValueError(
                f"sequence_index must be a column of the schema, got {index!r}; the columns are "
                f"{[*self.schema]}."
            )
        n_values = _n_index_values(index, self.schema[index])
        if not self.ties and self.max_rows is not None and self.max_rows > n_values:
            raise PublicValueError(
                f"max_rows must be at most {n_values}, the number of values of the index {index!r} "
                f"that ties=False allows, got {self.max_rows}."
            )

    def _check_columns(self, parameter):
        """Check that a parameter is a list of columns of the schema, and store it as a tuple."""
        given = getattr(self, parameter)
        if isinstance(given, str) or not isinstance(given, Sequence):
            raise PublicTypeError(
                f"{parameter} must be a list of columns of the schema, got {given_as(given)}."
            )
        object.__setattr__(self, parameter, tuple(given))
        for name in given:
            _check_name(parameter, name)
            if name not in self.schema:
                raise PublicValueError(f"{parameter} must be columns of the schema, got {name!r}.")

    def _check_aggregates(self):
        self._check_columns("aggregates")
        for name in self.aggregates:
            others = (self.sequence_index, *self.keys, *self.static)
            is_key = isinstance(self.schema[name], Identifier)
            if self.aggregates.count(name) > 1 or name in others or is_key:
                raise PublicValueError(
                    "aggregates must be distinct columns other than keys, sequence_index and "
                    f"static columns, got {name!r}."
                )

    def _check_static(self):
        self._check_columns("static")
        for name in self.static:
            if self.static.count(name) > 1 or name in (self.sequence_index, *self.keys):
                raise PublicValueError(
                    "static must be distinct columns other than keys and sequence_index, got "
                    f"{name!r}."
                )
        varying = [column for name, column in self.schema.items() if name not in self.static]
        if all(column.is_constant for column in varying):
            raise PublicValueError(
                "static must leave a column that varies between the rows of a person, got "
                f"{[*self.static]}."
            )

    def _public_rows(self):
        """Return the public rows, with their key, in the dtypes of the schema."""
        given = [
            name
            for name in ("foreign_key", "sequence_index", "max_rows", "static", "aggregates")
            if getattr(self, name)
        ]
        if given or self.primary_key is None:
            fault = f"and no {given[0]}" if given else "got None"
            raise PublicValueError(f"A public table, with a frame, must have primary_key, {fault}.")
        key, frame = self.primary_key, as_pandas(self.frame)
        counts = self.schema.check(frame)
        if key not in frame.columns:
            raise PublicValueError(f"frame must have the column {key!r}, the primary_key.")
        for name, faults in counts.iterrows():
            if faults.any():
                raise PublicValueError(
                    f"frame must fit its schema: column {name!r} has {faults.sum()} values that do "
                    f"not, {[*faults.index[faults > 0]]}."
                )
        keys = frame[key].tolist()
        if {*map(type, keys)} not in ({int}, {str}) or len({*keys}) < len(keys):
            raise PublicValueError(
                f"frame must have distinct integers or texts in its primary_key {key!r}."
            )
        columns = {name: _as_declared(self.schema[name], frame[name]) for name in self.schema}
        return pd.DataFrame({key: keys} | {n: c for n, c in columns.items() if n != key})

    @property
    def keys(self) -> list[str]:
        """The columns of keys, a list: the primary key and the foreign ones."""
        own = [] if self.primary_key is None else [self.primary_key]
        return own + [*(self.foreign_key or ())]

    def __eq__(self, other):
        if not isinstance(other, Table):
            return NotImplemented
        if self._declared() != other._declared():
            return False
        return self.frame is other.frame or bool(
            self.frame is not None and other.frame is not None and self.frame.equals(other.frame)
        )

    def __hash__(self):
        links = frozenset((self.foreign_key or {}).items())
        return hash((self.schema, self.primary_key, links, self.max_rows))

    def _declared(self):
        return [getattr(self, name) for name in self._saved_state if name != "frame"]

    def _to_saved(self):
        state = dict(zip(self._saved_state, [*self._declared(), self.frame], strict=True))
        if not self.rules:
            del state["rules"]
        if self.frame is not None:
            state["frame"] = {name: _plain(self.frame[name]) for name in self.frame}
        return state

    @classmethod
    def _from_saved(cls, found):
        frame = found["frame"]
        return cls(**found | {"frame": None if frame is None else _loaded(frame, found["schema"])})


@saved
class RelationalSchema(Mapping):
    """The public declaration of tables with keys: a tree of private tables, and public tables.

    The person is a row of the *root*, the only private table without a private parent, or the
    rows with one key if the root is a panel. A guarantee for a person covers all rows that descend
    from it.

    Parameters
    ----------
    tables : mapping of str to Table

    Raises
    ------
    PublicTypeError, PublicValueError
        A table contradicts another: unknown parents or parents without a primary key, a cycle, two
        private parents of one table, none or several roots, a panel with children, a child
        without ``max_rows``.

    Examples
    --------
    >>> from sklearn_dpgen.schema import Categorical, Datetime, Numeric
    >>> from sklearn_dpgen.schema import RelationalSchema, Schema, Table
    >>> visit = Schema({
    ...     "date": Datetime("2020-01-01", "2024-12-31", resolution="D"),
    ...     "cost": Numeric(0, 5000),
    ... })
    >>> schema = RelationalSchema({
    ...     "patients": Table(Schema({"sex": Categorical(["f", "m"])}), primary_key="patient"),
    ...     "visits": Table(
    ...         visit, foreign_key={"patient": "patients"}, sequence_index="date", max_rows=50
    ...     ),
    ... })
    >>> schema.root, schema.parent("visits"), schema.order
    ('patients', 'patients', ['patients', 'visits'])
    """

    _saved_state = {"tables": dict[str, Table]}

    def __init__(self, tables: Mapping[str, Table]) -> None:
        if not isinstance(tables, Mapping) or not tables:
            raise PublicValueError("tables must be a non-empty mapping of names to tables.")
        for name, table in tables.items():
            if not isinstance(name, str) or not name:
                raise PublicValueError(f"Names of tables must be texts, got {given_as(name)}.")
            if not isinstance(table, Table):
                raise PublicTypeError(f"Table {name!r} must be a Table, got {given_as(table)}.")
        self._tables = dict(tables)
        for name in tables:
            self._check_parents(name)
        roots = [name for name in self._private if self.parent(name) is None]
        self._order = self._descendants(roots)
        rest = [name for name in self._private if name not in self._order]
        if rest:
            raise PublicValueError(
                f"Tables must form a tree, got a cycle of foreign keys in {rest}: remove one."
            )
        if len(roots) != 1:
            raise PublicValueError(
                "Tables must have exactly one root, a private table without a private parent, got "
                f"{roots}. Link the others to it by a foreign_key, or fit them apart."
            )
        for name in self._private:
            self._check_rows(name)
            if self[name].rules:
                with _named(name):
                    rules = read_rules(self[name].rules, Scope(self, name))
                    self._tables[name] = replace(self[name], rules=rules)

    def _check_parents(self, name):
        for column, parent in self[name].foreign_key.items():
            where = f"Table {name!r}: foreign_key {column!r}"
            if parent not in self:
                raise PublicValueError(
                    f"{where} must name a table of the schema, got {parent!r}; they are {[*self]}."
                )
            if self[parent].primary_key is None:
                raise PublicValueError(f"{where}: table {parent!r} must have a primary_key.")
        private = {c: p for c, p in self[name].foreign_key.items() if p in self._private}
        if len(private) > 1:
            raise PublicValueError(
                f"Table {name!r} must have at most one private parent, got {private}: a row would "
                "belong to two persons, and the guarantee protects one person with all rows. "
                "Declare a parent whose rows are public by frame, or drop one of the keys."
            )

    def _check_rows(self, name):
        table, parent = self[name], self.parent(name)
        with _named(name):
            if parent is None:
                _check_root(table)
            elif parent == self.root and self.is_panel:
                raise PublicValueError(
                    f"foreign_key must not name the panel {parent!r}: split it into a table of "
                    "persons and a table of rows."
                )
            elif table.max_rows is None:
                raise PublicValueError(
                    "max_rows must be given, the public bound of the rows of a parent row that are "
                    "modelled."
                )
            elif table.static:
                raise PublicValueError(
                    f"static must be empty for a child, got {[*table.static]}: declare these "
                    "columns in the parent."
                )

    def _descendants(self, names):
        found = [*names]
        for name in found:
            found += self.children(name)
        return found

    @property
    def rules(self) -> dict[str, tuple[Rule, ...]]:
        """The rules of each table that has some, by name."""
        return {name: table.rules for name, table in self.items() if table.rules}

    def _to_saved(self):
        return {"tables": self._tables}

    def __getitem__(self, name):
        return self._tables[name]

    def __iter__(self):
        return iter(self._tables)

    def __len__(self):
        return len(self._tables)

    def __eq__(self, other):
        if not isinstance(other, RelationalSchema):
            return NotImplemented
        return list(self.items()) == list(other.items())

    def __hash__(self):
        return hash(tuple(self.items()))

    def __repr__(self):
        tables = (f"{name!r}: {table!r}" for name, table in self.items())
        lines = "".join(indented(f"{text},") for text in tables)
        return f"RelationalSchema({{\n{lines}}})"

    def _repr_html_(self) -> str:
        return _tables_html(f"Schema of {len(self)} tables", self)

    @property
    def _private(self):
        return [name for name, table in self.items() if table.frame is None]

    @property
    def root(self) -> str:
        """The table of the persons, a str."""
        return self._order[0]

    @property
    def is_panel(self) -> bool:
        """Whether the root is a panel, a long table with several rows of a person."""
        return self[self.root].max_rows is not None

    @property
    def order(self) -> list[str]:
        """The private tables, parents before their children."""
        return [*self._order]

    def parent(self, name: str) -> str | None:
        """Return the private parent of a table; None for the root and for public tables."""
        column = self.parent_key(name)
        return None if column is None else self[name].foreign_key[column]

    def parent_key(self, name: str) -> str | None:
        """Return the column of a table that holds the key of its private parent, or None."""
        keys = [c for c, parent in self[name].foreign_key.items() if self[parent].frame is None]
        return keys[0] if keys else None

    def children(self, name: str) -> list[str]:
        """Return the children of a private table, in the order of declaration."""
        return [child for child in self if self.parent(child) == name]

    def check(self, tables: Mapping[str, pd.DataFrame]) -> dict[str, pd.DataFrame]:
        """Count the values, keys and rows of each private table that do not fit the declaration.

        .. warning::
            Not private: for the curator only. The counts are computed from private records without
            noise. Do not publish them, and do not show them with a release. A bound such as
            ``max_rows`` that is changed because of them is not public.

        Parameters
        ----------
        tables : mapping of str to DataFrame
            The private tables, with the columns of their schemas and their keys; further columns
            are ignored.

        Returns
        -------
        dict of str to DataFrame of int
            For each private table, counts for the columns of the schema and then for keys outside
            of it. The counts are those of :meth:`Schema.check`, where "null" counts missing keys,
            and the numbers of "repeated" values of a primary key, in rows that share them with
            others; of keys that are "orphan", without a row in the parent; of "tied" values of the
            index where ``ties`` is False, in rows that share them with others of their parent; of
            parent rows "over_max_rows"; and of persons with a "changing" static column.

        Raises
        ------
        PublicTypeError, PublicValueError
            A table or column is missing or repeated, or keys cannot be compared, such as texts
            in one table and numbers in another.
        """
        if not isinstance(tables, Mapping):
            raise PublicTypeError(
                f"tables must be a mapping of names to data frames, got {given_as(tables)}."
            )
        missing = [name for name in self._private if name not in tables]
        unknown = [name for name in tables if name not in self._private]
        if missing or unknown:
            fault = f"missing {missing}" if missing else f"unknown {unknown}"
            raise PublicValueError(f"tables must be the private tables {self.order}: {fault}.")
        frames: dict[str, Any] = {name: as_pandas(tables[name]) for name in self._private}
        counts = {name: self._check_columns(name, frames[name]) for name in self._private}
        for name in self._private:
            links = {c: self._linked_keys(name, c, frames) for c in self[name].foreign_key}
            rule = f"Table {name!r}: keys must be numbers or texts."
            call_quietly(rule, self._count_rows, name, frames[name], links, counts[name])
        return counts

    def _check_columns(self, name, frame):
        """Count the faults of the columns of a table, and return zeros for those of its rows."""
        table = self[name]
        with _named(name):
            counts = table.schema.check(frame)
            for key in table.keys:
                if list(frame.columns).count(key) != 1:
                    raise PublicValueError(f"frame must have the key {key!r} once.")
        # An Identifier of the schema is a key, but as a column it is never read.
        counts = counts.reindex([*counts.index, *(k for k in table.keys if k not in counts.index)])
        counts = counts.reindex(columns=[*counts, *_ROW_FAULTS]).fillna(0).astype(np.int64)
        for key in table.keys:
            counts.loc[key, "null"] = frame[key].isna().sum()
        return counts

    def _keys_of(self, parent, frames):
        """Return the primary key of a private or public table."""
        public = self[parent].frame
        return (frames[parent] if public is None else public)[self[parent].primary_key]

    def _linked_keys(self, name, column, frames):
        """Return a foreign key and the primary key of its table, without nulls, as one type."""
        parent = self[name].foreign_key[column]
        pair = (frames[name][column].dropna(), self._keys_of(parent, frames).dropna())
        kinds = [pd.api.types.infer_dtype(keys.astype(object)) for keys in pair]
        if "empty" in kinds or (kinds[0] == "string") == (kinds[1] == "string"):
            return pair
        keys = [as_integers(keys) for keys in pair]
        if any(own is None for own in keys):
            raise PublicValueError(
                f"Table {name!r}: foreign_key {column!r} must be of the type of the primary key of "
                f"table {parent!r}, {ALIKE}"
            )
        return keys

    def _count_rows(self, name, frame, links, counts):
        """Fill in the counts of keys and rows of a table."""
        table = self[name]
        for column, (keys, parents) in links.items():
            counts.loc[column, "orphan"] = (~keys.isin(set(parents))).sum()
        is_panel = self.is_panel and name == self.root
        if table.primary_key is not None and not is_panel:
            keys = frame[table.primary_key].dropna()
            counts.loc[table.primary_key, "repeated"] = keys.duplicated(keep=False).sum()
        person = table.primary_key if is_panel else self.parent_key(name)
        if person is None:
            return
        sizes = frame[person].value_counts(sort=False)
        counts.loc[person, "over_max_rows"] = (sizes > table.max_rows).sum()
        if not table.ties:
            index = _readable(table, table.sequence_index, frame)
            pairs = pd.DataFrame({"person": frame[person], "index": index}).dropna()
            counts.loc[table.sequence_index, "tied"] = pairs.duplicated(keep=False).sum()
        for column in table.static:
            values = _readable(table, column, frame)
            differ = values.groupby(frame[person], sort=False).nunique(dropna=False) > 1
            counts.loc[column, "changing"] = differ.sum()

    def to_dict(self) -> dict[str, dict]:
        """Return the schema as plain dicts, lists, strings and numbers.

        Returns
        -------
        dict
            Under ``"tables"`` for each table its ``columns``, as :meth:`Schema.to_dict`, and the
            other parameters of :class:`Table` that differ from their defaults. The rows of a
            public table are replaced by ``public: true``.
        """
        return {"tables": {name: _table_to_dict(self, name) for name in self}}

    @classmethod
    def from_dict(
        cls,
        declaration: Mapping[str, Mapping],
        *,
        frames: Mapping[str, pd.DataFrame] | None = None,
        folder: str | Path | None = None,
    ) -> Self:
        """Build a schema from the result of `to_dict`.

        Parameters
        ----------
        declaration : mapping of str to mapping
        frames : mapping of str to DataFrame, optional
            The rows of the public tables.
        folder : str or Path, optional
            As for :meth:`Schema.from_dict`.

        Raises
        ------
        PublicTypeError, PublicValueError
            The declaration of a table is invalid, or the rows of a public table are missing; the
            message names the table.
        """
        if not is_relational(declaration):
            raise PublicValueError(
                "A relational schema must be a mapping with the one key 'tables', which maps names "
                "of tables to declarations."
            )
        frames = {} if frames is None else dict(frames)
        tables = {
            name: _table_from_dict(name, entry, frames.pop(name, None), folder)
            for name, entry in declaration["tables"].items()
        }
        if frames:
            raise PublicValueError(f"frames must be those of public tables, got {[*frames]}.")
        return cls(tables)

    def to_json(self) -> str:
        """Return the schema as JSON."""
        return json.dumps(self.to_dict(), indent=2, allow_nan=False)

    @classmethod
    def from_json(
        cls,
        text: str,
        *,
        frames: Mapping[str, pd.DataFrame] | None = None,
        folder: str | Path | None = None,
    ) -> Self:
        """Build a schema from JSON; see `from_dict`."""
        return cls.from_dict(read_json(text), frames=frames, folder=folder)

    def to_yaml(self) -> str:
        """Return the schema as YAML."""
        return dump_yaml(self.to_dict())

    @classmethod
    def from_yaml(
        cls,
        text: str,
        *,
        frames: Mapping[str, pd.DataFrame] | None = None,
        folder: str | Path | None = None,
    ) -> Self:
        """Build a schema from YAML; see `from_dict`."""
        return cls.from_dict(read_yaml(text), frames=frames, folder=folder)


def _tables_html(headline, tables):
    """Return the keys and the columns of tables for a notebook."""
    named = len(tables) > 1 or "" not in tables
    head = ("table",) * named + ("column", "type", "declaration")
    rows = [
        row
        for name, table in tables.items()
        for row in column_rows(table.schema, *([name] if named else []))
    ]
    facts = [(name or "table", text) for name, table in tables.items()
             for text in [_table_words(table)] if text]  # fmt: skip
    return notebook(headline, rows=facts, table=(head, rows))


def _table_words(table):
    """Return the keys and the order of the rows of a table in words."""
    parts = ["public, and not protected"] if table.frame is not None else []
    if table.primary_key is not None:
        parts.append(f"primary key {table.primary_key}")
    parts += [f"foreign key {c} of {parent}" for c, parent in (table.foreign_key or {}).items()]
    if table.sequence_index is not None:
        parts.append(f"ordered by {table.sequence_index}")
    if table.max_rows is not None:
        parts.append(f"at most {table.max_rows} rows modelled for each key")
    if table.static:
        parts.append(f"the same in all rows: {', '.join(table.static)}")
    return "; ".join(parts)


def as_integers(keys):
    """Return keys with texts of integers as these, so that keys of CSV files equal those of others.

    Parameters
    ----------
    keys : Series or Index
        Without nulls, numbers or texts alone.

    Returns
    -------
    Series or Index, or None
        None if they are other texts, or neither numbers nor texts. Distinct texts are distinct
        integers.
    """
    values = keys.tolist()
    if all(isinstance(value, Number) for value in values):
        return keys
    if not all(isinstance(value, str) and _INTEGER.fullmatch(value) for value in values):
        return None
    return pd.Index([int(value) for value in values], dtype=object)


def is_relational(declaration):
    """Return whether a declaration is one of tables; a column may be called "tables" too."""
    if not isinstance(declaration, Mapping) or [*declaration] != ["tables"]:
        return False
    tables = declaration["tables"]
    return isinstance(tables, Mapping) and not isinstance(tables.get("type"), str)


# The words of a table that are those of its schema.
_FORMAT = ("delimiter", "encoding")


def _table_to_dict(schema, name):
    table = schema[name]
    columns = table.schema.to_dict()
    entry = columns if is_long(columns) else {"columns": columns}
    for item in fields(table):
        value = getattr(table, item.name)
        if item.name == "rules" and value:
            value = entries_of_rules(value, Scope(schema, name))
        if item.name not in ("schema", "frame") and value not in (item.default, {}):
            entry[item.name] = [*value] if isinstance(value, tuple) else value
    return entry | ({} if table.frame is None else {"public": True})


def _table_from_dict(name, entry, frame, folder=None):
    if not isinstance(entry, Mapping):
        raise PublicValueError(f"Table {name!r}: a declaration must be a mapping.")
    given = dict(entry)
    columns, is_public = given.pop("columns", None), given.pop("public", False)
    form = {word: given.pop(word) for word in _FORMAT if word in given}
    known = {item.name for item in fields(Table)} - {"schema", "frame"}
    unknown = [key for key in given if key not in known]
    with _named(name):
        if unknown or columns is None:
            words = ["columns", *sorted(known), *_FORMAT, "public"]
            fault = offered(unknown, words) if unknown else "missing ['columns']"
            raise PublicValueError(f"{fault} in the declaration of a table.")
        if not isinstance(is_public, bool):
            raise PublicValueError("public must be True or False.")
        if is_public and frame is None:
            raise PublicValueError(
                f"frames must have the rows of a public table: pass frames={{{name!r}: ...}}."
            )
        if frame is not None and not is_public:
            raise PublicValueError("frames must be those of tables with public: true.")
        columns = Schema.from_dict(form | {"columns": columns} if form else columns, folder=folder)
        return Table(columns, frame=frame, **given)


@contextmanager
def _named(name):
    """Prefix the message of an error with the name of a table."""
    try:
        yield
    except PublicTypeError as error:
        raise PublicTypeError(f"Table {name!r}: {error}") from error
    except PublicError as error:
        raise PublicValueError(f"Table {name!r}: {error}") from error


def _check_name(field, name, what="the name of a column"):
    if not isinstance(name, str) or not name:
        raise PublicValueError(f"{field} must be {what}, got {given_as(name)}.")


def _check_root(table):
    """Check a table without a private parent: with any declaration of rows it is a panel."""
    if table.sequence_index is None and table.max_rows is None and not table.static:
        if table.aggregates:
            raise PublicValueError(
                "aggregates must be empty for a table with one row per person, got "
                f"{[*table.aggregates]}."
            )
        return
    for name, meaning in (
        ("primary_key", "the column that identifies its persons"),
        ("max_rows", "the public bound of the rows of a person that are modelled"),
    ):
        if getattr(table, name) is None:
            raise PublicValueError(
                f"{name} must be given for a panel, a table with sequence_index, static or "
                f"max_rows and without a private parent: {meaning}."
            )


def _n_index_values(name, column):
    """Return the number of values of a sequence index, or raise an error if it cannot be one."""
    is_integer = isinstance(column, Numeric) and column.integer
    is_numbers = isinstance(column, Ordinal) and all(type(v) in (int, float) for v in column.labels)
    if is_numbers and list(column.labels) != sorted(column.labels):
        is_numbers = False
    if not (is_integer or is_numbers or isinstance(column, Datetime)):
        raise PublicValueError(
            "sequence_index must be Numeric with integer=True, Datetime, or Ordinal with "
            f"increasing numbers, got the {type(column).__name__} {name!r}."
        )
    if column.nullable:
        raise PublicValueError(f"sequence_index must not be nullable, got {name!r}.")
    return len(column.labels) if isinstance(column, Ordinal) else column.n_steps + 1


def _readable(table, name, frame):
    """Return the values of a column as they are read, null where they cannot be."""
    column = table.schema[name]
    values, bad, null = column._read_quietly(frame[name])
    return pd.Series(values, index=frame.index).mask(null | bad)


def _as_declared(column, series):
    """Return public values in the dtype of a column, numbers without loss."""
    if isinstance(column, Numeric):
        values, null = column._checked(series)
        return pd.Series(np.where(null, np.nan, values), dtype=column.dtype)
    return column.decode(column.encode(series))


def _loaded(frame, schema):
    """Return the frame of a file, whose dates are texts in ISO 8601 whatever is declared."""
    dates = [n for n, c in schema.items() if isinstance(c, Datetime) and n in frame]
    return pd.DataFrame(
        frame | {n: pd.Series(map(_as_date, frame[n]), dtype=object) for n in dates}
    )


def _as_date(value):
    try:
        return datetime.datetime.fromisoformat(value)
    except (TypeError, ValueError):
        # A null, or no date, which is refused.
        return value


def _plain(series):
    """Return values that a file can hold."""
    values = series.tolist()
    return [
        None if pd.isna(v) else v.isoformat() if isinstance(v, pd.Timestamp) else v for v in values
    ]
