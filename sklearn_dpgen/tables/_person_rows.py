"""The rows of persons in tables with keys, as codes: linked, in a canonical order, and weighted.

Rows are linked by keys. A *person* is a key of the root, and the rows of a person are the rows of
the root with this key, and the rows of other tables that descend from these.

What a person contributes to :class:`TableRows` (codes, their order, weights) is a function of that
person's own rows alone, and not of positions in files. Each step is one:

* The codes of a row depend on the row and on the public encoder alone, and its parent row on the
  two keys. A row without a key that is needed, or without a parent row, has no person, and it is
  dropped with its descendants.
* Of the rows of one parent row with the same primary key, or of the root with the same key, the one
  with the smallest hash of codes is kept. Where rows of several parent rows have the same primary
  key, their descendants are dropped, since they would belong to several: such rows are rows of each
  of these persons, and of the part of none. So are the descendants of all rows with the primary key
  of a row that is dropped for this reason, as otherwise they would be counted for one of the
  persons only as long as another one is not there.
* The *tree* of a row is a hash of its codes and of the multisets of the trees of its children. The
  rows of a parent row are ordered by the code of the sequence index and then by a public
  pseudo-random number: a function of the tree of the row, its rank among equal trees, and the
  number of the parent row, which for a person is the tree. Rows of equal trees differ in nothing
  but keys. If two rows of one parent row with different trees had the same 64 bits, their order
  would be the one in which they are read, which other persons do not change.
* The weights are functions of the numbers of rows that remain, of the parent row and of the rows
  above it.

Other persons determine only where the rows of a person are in the arrays, and thus the numbers in
``parent``. Rows of a parent row beyond ``max_rows`` are kept: the bound is one of the model, and
the weight of a person does not depend on it.
"""

from collections.abc import Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial

import numpy as np
import pandas as pd

from sklearn_dpgen.engines._tables import is_engine_table
from sklearn_dpgen.exceptions import PublicError, PublicTypeError, PublicValueError
from sklearn_dpgen.ledger._unit import as_objects, check_alike, joined_ids, told_apart
from sklearn_dpgen.preprocessing._coder import RecordCoder
from sklearn_dpgen.preprocessing._reader import (
    NO_RECORDS,
    ColumnsError,
    check_columns,
    column_of,
    has_no_names,
    map_blocks,
)
from sklearn_dpgen.preprocessing._tabular import check_categories
from sklearn_dpgen.schema import Categorical, Identifier, RelationalSchema, Table
from sklearn_dpgen.schema._column import Column, given_as
from sklearn_dpgen.schema._relational import ALIKE, as_integers
from sklearn_dpgen.tables._table_counter import WHOLE
from sklearn_dpgen.utils._frames import as_pandas_or_arrow
from sklearn_dpgen.utils._validation import check_is_fitted

__all__ = [
    "Stage",
    "TableRows",
    "checked_tables",
    "linked_rows",
    "named_table",
    "persons_of_rows",
    "read_person_rows",
    "stages_of",
]


# What a column is, for errors.
_KEY = "Key {!r}"
# In place of the row or the person that has a key: none has it, or several have.
_NONE, _SEVERAL = -1, -2


@dataclass(frozen=True)
class Stage:
    """The public declaration of one stage of the model: the rows of a table given their parents.

    Parameters
    ----------
    name : str
        Name of the table. A panel has two stages, its persons and its rows.
    columns : dict of str to Column
        The modelled columns: those of the schema without identifiers, and for each foreign key to
        a public table its keys as categories. The persons of a panel have the static ones, and
        may have none.
    parent : int or None, default=None
        Position of the parent stage.
    index : str or None, default=None
        The sequence index.
    max_rows : int or None, default=None
        Public bound of the rows of a parent row that are modelled; None for the root.
    ties : bool, default=True
        Whether two rows of a parent row may have the same index.
    primary_key, foreign_key : str or None, default=None
        Columns of the keys of the rows, and of their private parents.
    public_keys : dict of str to Table, default={}
        The public table of each foreign key to one.
    unread : tuple of str, default=()
        Further columns of the table, identifiers that are no keys.
    aggregates : tuple of str, default=()
        Columns that are aggregated over the rows of a parent row.
    """

    name: str
    columns: dict[str, Column]
    parent: int | None = None
    index: str | None = None
    max_rows: int | None = None
    ties: bool = True
    primary_key: str | None = None
    foreign_key: str | None = None
    public_keys: dict[str, Table] = field(default_factory=dict)
    unread: tuple[str, ...] = ()
    aggregates: tuple[str, ...] = ()


def stages_of(schema: RelationalSchema) -> tuple[Stage, ...]:
    """Return the stages of the model of a schema, parents before their children.

    Parameters
    ----------
    schema : RelationalSchema

    Returns
    -------
    tuple of Stage
        One for each private table, in the order of the schema, or two for a panel.
    """
    if schema.is_panel:
        return _panel_stages(schema)
    order = schema.order
    parents = [schema.parent(name) for name in order]
    return tuple(
        Stage(
            name,
            **_columns(schema, name),
            parent=None if parent is None else order.index(parent),
            index=schema[name].sequence_index,
            max_rows=schema[name].max_rows,
            ties=schema[name].ties,
            primary_key=schema[name].primary_key,
            foreign_key=schema.parent_key(name),
            aggregates=schema[name].aggregates,
        )
        for name, parent in zip(order, parents, strict=True)
    )


def _panel_stages(schema):
    name = schema.root
    table, found = schema[name], _columns(schema, name)
    columns = found.pop("columns")
    static = {n: column for n, column in columns.items() if n in table.static}
    varying = {n: column for n, column in columns.items() if n not in table.static}
    rows = Stage(
        name,
        varying,
        parent=0,
        index=table.sequence_index,
        max_rows=table.max_rows,
        ties=table.ties,
        foreign_key=table.primary_key,
        aggregates=table.aggregates,
        **found,
    )
    return Stage(name, static, primary_key=table.primary_key), rows


def _columns(schema, name):
    """Return the modelled columns of a table, its keys of public tables, and other columns."""
    table = schema[name]
    parents = {column: schema[parent] for column, parent in table.foreign_key.items()}
    public = {column: parent for column, parent in parents.items() if parent.frame is not None}
    columns = {n: c for n, c in table.schema.items() if not isinstance(c, Identifier)}
    for column, parent in public.items():
        columns[column] = Categorical(parent.frame[parent.primary_key].tolist())
    unread = tuple(n for n in table.schema if n not in columns and n not in table.keys)
    return {"columns": columns, "public_keys": public, "unread": unread}


@dataclass(frozen=True, eq=False)
class TableRows:
    """The rows of a stage of all persons; secret.

    Parameters
    ----------
    codes : list of ndarray of shape (n_rows,)
        The category of each row in each column of the stage, as its encoder has them, with the
        smallest unsigned dtypes.
    parent : ndarray of int64 of shape (n_rows,), or None
        The row of the parent stage, ascending; None for the root.
    weights : ndarray of int64 of shape (n_rows,)
        Multiples of 2^-23: ``WHOLE`` divided by the numbers of rows on the path from the person,
        rounded down. In each stage the rows of a person have a total weight of at most
        ``WHOLE``: the rows of one parent row together weigh at most what 1 over the numbers on
        the path to the parent row is, and by induction these add up to at most 1. A weight is 0
        where a person has more than ``WHOLE`` rows.
    """

    codes: list[np.ndarray]
    parent: np.ndarray | None
    weights: np.ndarray


def read_person_rows(tables, stages, encoders):
    """Return the rows of all persons in each stage of a model.

    Rows without a parent row, such as orphans and rows with a null key, are dropped, and so are
    their descendants. A repeated primary key is no error: of the rows with one key of a parent
    row, one is kept, and a key that rows of several parent rows share has no children. See the
    module for the order of rows, and why the part of a person is a function of the own rows alone.

    Parameters
    ----------
    tables : mapping of str to table, or table
        Exactly the private tables, in any form that
        :func:`~sklearn_dpgen.preprocessing._reader.map_blocks` reads, also of Spark or Ray, with
        the columns of the schema and the keys. If there is one private table, it may be given
        itself.
    stages : tuple of Stage
        From :func:`stages_of`.
    encoders : list of TabularEncoder or None
        For each stage, fitted to its columns, with bins for all numbers and dates; None for a
        stage without columns.

    Returns
    -------
    list of TableRows

    Raises
    ------
    PublicValueError
        Tables or columns are missing or unknown, there is no person, values are not declared, or
        keys have several types. Messages name the table and the column, and show no values.
    PublicTypeError
        A table is none, or has no names, or keys cannot be distinguished.

    Notes
    -----
    Memory is twice the codes and about 100 bytes a row. Keys of CSV files are texts, and
    equal integers of other tables. Rows of the
    root are in the order in which they are read, which for Spark and Ray may differ between runs.
    """
    names = list(dict.fromkeys(stage.name for stage in stages))
    tables = checked_tables(tables, names)
    if len(names) < len(stages):
        with named_table(names[0]):
            return _read_panel(tables[names[0]], stages, encoders)
    reads: list[_Read] = []
    linked: list[_Linked] = []
    for stage, encoder in zip(stages, encoders, strict=True):
        with named_table(stage.name):
            reads.append(_read(tables[stage.name], [stage], [encoder]))
            linked.append(_link(stages, reads[-1], linked))
    found = _in_order(stages, reads, linked)
    return [
        TableRows([read.codes[name][rows] for name in stage.columns], parent, weights)
        for stage, read, (rows, parent, weights) in zip(stages, reads, found, strict=True)
    ]


def linked_rows(stages, codes, keys):
    """Return the rows of each stage that belong to persons, of tables that are read already.

    Parameters
    ----------
    stages : tuple of Stage
        Two of a panel, or others.
    codes : list of dict of str to ndarray of unsigned int
        The category of each row of the table of a stage, for each of its columns.
    keys : list of dict of str to Series
        Those of the stage, for each row.

    Returns
    -------
    list of (ndarray of int, ndarray of int or None)
        Positions of rows in the table, and the row of the parent stage of each, in the canonical
        order. Of the persons of a panel the position is that of their first row.

    Raises
    ------
    PublicValueError
        There is no person, or keys have several types.
    """
    reads: list[_Read] = []
    linked: list[_Linked] = []
    for stage, own, given in zip(stages, codes, keys, strict=True):
        with named_table(stage.name):
            found = {name: _merged([_keys(part, name)], name) for name, part in given.items()}
            reads.append(_Read(own, found, len(next(iter(given.values())))))
    if len({stage.name for stage in stages}) < len(stages):
        with named_table(stages[0].name):
            first, rows, parent, _ = _panel_rows(stages, reads[1])
        return [(first, None), (rows, parent)]
    for stage, read in zip(stages, reads, strict=True):
        with named_table(stage.name):
            linked.append(_link(stages, read, linked))
    return [(rows, parent) for rows, parent, _ in _in_order(stages, reads, linked)]


def persons_of_rows(tables, stages):
    """Return the number of persons, and the person of each row of each table.

    Parameters
    ----------
    tables : mapping of str to data frame, or data frame
        Exactly the private tables, as for :func:`read_person_rows`, but in memory.
    stages : tuple of Stage
        From :func:`stages_of`.

    Returns
    -------
    n_persons : int
    persons : dict of str to ndarray of int64 of shape (n_rows,)
        From 0, and -1 for rows that :func:`read_person_rows` drops, as they belong to no person, or
        to several.

    Raises
    ------
    PublicValueError, PublicTypeError
        As :func:`read_person_rows`, or a table is not in memory.
    """
    names = list(dict.fromkeys(stage.name for stage in stages))
    given = checked_tables(tables, names)
    frames = {name: as_pandas_or_arrow(table) for name, table in given.items()}
    found: dict = {}
    # For each stage its distinct primary keys, and the person of each.
    owners: list = []
    for stage in stages:
        with named_table(stage.name):
            frame = frames[stage.name]
            if frame is None:
                got = given_as(given[stage.name])
                raise PublicTypeError(f"A table must be a data frame, got {got}.")
            columns = frame.columns if isinstance(frame, pd.DataFrame) else frame.column_names
            _check_names([*columns], [own for own in stages if own.name == stage.name])
            own, keys = np.arange(len(frame)), pd.RangeIndex(len(frame))
            if stage.primary_key is not None:
                own, keys = _keys(column_of(frame, stage.primary_key), stage.primary_key)
            if stage.parent is None:
                persons, n_persons = own.astype(np.int64), len(keys)
            else:
                codes, foreign = _keys(column_of(frame, stage.foreign_key), stage.foreign_key)
                above, person = owners[stage.parent]
                places = _places(stage, foreign, stages[stage.parent], above)
                # The last entries are for keys that are not in the parent table, and for nulls.
                persons = np.append(np.append(person, _NONE)[places], _NONE)[codes]
        owners.append((keys, _owners(own, persons, len(keys))))
        found[stage.name] = np.maximum(persons, -1)
    return n_persons, found


def _owners(keys, persons, n_keys):
    """Return the person of each key; a row of several persons makes its key one of several."""
    rows = (keys >= 0) & (persons != _NONE)
    keys, persons = keys[rows], persons[rows]
    owner = np.full(n_keys, _NONE)
    owner[keys] = persons
    owner[keys[owner[keys] != persons]] = _SEVERAL
    return owner


def checked_tables(tables, names):
    """Return the private tables by name."""
    if not isinstance(tables, Mapping):
        if len(names) > 1:
            raise PublicTypeError(
                f"tables must be a mapping of the names {names} to tables, got {given_as(tables)}."
            )
        return {names[0]: tables}
    missing = [name for name in names if name not in tables]
    unknown = [name for name in tables if name not in names]
    if missing or unknown:
        fault = f"missing {missing}" if missing else f"unknown {unknown}"
        hint = " The rows of a public table are those of its frame in the schema."
        raise PublicValueError(
            f"tables must be the private tables {names}: {fault}.{hint * (not missing)}"
        )
    return tables


@contextmanager
def named_table(name):
    """Prefix the message of a public error with the name of a table."""
    try:
        yield
    except PublicError as error:
        raise type(error)(f"Table {name!r}: {error}") from error


@dataclass(frozen=True, eq=False)
class _Read:
    """A table as it was read: codes by column, and keys.

    A key has the position of the key of each row among the distinct ones, -1 for null, and these.
    """

    codes: dict[str, np.ndarray]
    keys: dict[str, tuple[np.ndarray, pd.Index]]
    n_rows: int

    def hashes(self, rows):
        """Return a hash of all codes of each of some rows, of shape (n,) and dtype uint64."""
        hashes = np.zeros(len(rows), dtype=np.uint64)
        for codes in self.codes.values():
            hashes = _mixed(hashes ^ codes[rows].astype(np.uint64))
        return hashes


def _read(table, stages, encoders):
    """Read a table once, for one stage, or for both of a panel."""
    columns: dict = {}
    for encoder in encoders:
        if encoder is not None:
            check_is_fitted(encoder)
            check_categories(encoder)
            columns |= encoder.columns_
    coder = RecordCoder(columns)
    keys = _keys_of(stages)
    names = columns | dict.fromkeys([*keys, *stages[-1].unread])
    if not is_engine_table(table) and has_no_names(table):
        raise PublicTypeError(f"A table must have names of columns, got {type(table).__name__}.")
    # Byte arrays grow in place, whereas a list of arrays would be copied in the end.
    buffers, n_rows = [bytearray() for _ in columns], 0
    parts: list[list] = [[] for _ in keys]
    function = partial(_read_block, coder, keys)
    try:
        for n, codes, found in map_blocks(function, table, names, is_ordered=False):
            n_rows += n
            for buffer, code in zip(buffers, codes, strict=True):
                buffer += code.data
            for part, key in zip(parts, found, strict=True):
                part.append(key)
    except ColumnsError as error:
        raise _columns_error(keys, error) from error
    arrays = [np.frombuffer(b, dtype=kind) for b, kind in zip(buffers, coder.dtypes, strict=True)]
    return _Read(
        dict(zip(columns, arrays, strict=True)),
        {key: _merged(part, key) for key, part in zip(keys, parts, strict=True)},
        n_rows,
    )


def _keys_of(stages):
    given = [key for stage in stages for key in (stage.primary_key, stage.foreign_key)]
    return [key for key in dict.fromkeys(given) if key is not None]


def _check_names(given, stages):
    """Check the names of the columns of a table, as a read of it does."""
    keys = _keys_of(stages)
    columns = [name for stage in stages for name in stage.columns]
    try:
        check_columns(given, list(dict.fromkeys([*columns, *keys, *stages[-1].unread])))
    except ColumnsError as error:
        raise _columns_error(keys, error) from error


def _columns_error(keys, error):
    return PublicValueError(
        f"The columns must be those of the schema and the keys {keys}, each once: {error.faults}."
        + ("" if "missing" in error.faults else " Drop the others.")
    )


def _read_block(coder, keys, block):
    """Return the number of rows, the codes and the keys of a block."""
    return len(block), coder.codes(block), [_keys(column_of(block, key), key) for key in keys]


def _keys(values, name):
    """Return the position of each key among distinct ones, -1 for null, and these."""
    codes, known = np.full(len(values), -1, dtype=np.int32), values.notna().to_numpy()
    if not known.any():
        return codes, pd.Index([], dtype=object)
    codes[known], found = told_apart(values[known], name, _KEY)
    if isinstance(found, pd.CategoricalIndex):
        # The precision to check is that of the categories, and chunks have categories of their own.
        _, found = told_apart(found.astype(found.categories.dtype), name, _KEY)
    return codes, found


def _merged(parts, name):
    """Return the keys of all blocks as those of one."""
    if not parts:
        return np.zeros(0, dtype=np.int64), pd.Index([], dtype=object)
    places, found = pd.factorize(joined_ids([keys for _, keys in parts if len(keys)]))
    check_alike(found, name, _KEY)
    ends = np.cumsum([len(keys) for _, keys in parts])
    codes = [
        # The last entry is for nulls.
        np.append(places[end - len(keys) : end], -1)[own]
        for (own, keys), end in zip(parts, ends, strict=True)
    ]
    return np.concatenate(codes), found


@dataclass(frozen=True, eq=False)
class _Linked:
    """The rows of a stage that belong to persons, and what their children refer to.

    ``rows`` are positions in the table, and ``parent`` those in the ``rows`` of the parent stage,
    None for the root. ``row_of`` has the position in ``rows`` of each of the ``keys``, or
    ``_NONE``, or ``_SEVERAL``, also where a row is dropped for a key of several above it.
    """

    rows: np.ndarray
    parent: np.ndarray | None
    keys: pd.Index
    row_of: np.ndarray


def _link(stages, read, linked):
    """Return the rows of the next stage, after those that are linked."""
    place = len(linked)
    stage = stages[place]
    if stage.parent is None:
        return _persons(stage, read)
    is_parent = any(place == other.parent for other in stages)
    upper = stages[stage.parent]
    return _children(stage, read, linked[stage.parent], upper, is_parent=is_parent)


def _persons(stage, read):
    """Return the rows of a root, one for each key."""
    person, keys = np.arange(read.n_rows), pd.RangeIndex(read.n_rows)
    if stage.primary_key is not None:
        person, keys = read.keys[stage.primary_key]
    rows = _distinct(read, np.flatnonzero(person >= 0), person, person)
    if len(rows) == 0:
        raise PublicValueError(NO_RECORDS)
    return _Linked(rows, None, keys, _row_of(person[rows], len(keys)))


def _children(stage, read, above, upper, *, is_parent):
    """Return the rows of a table that belong to rows of its parent table."""
    codes, keys = read.keys[stage.foreign_key]
    places = _places(stage, keys, upper, above.keys)
    # The last entries are for keys that are not in the parent table, and for nulls.
    parent = np.append(np.append(above.row_of, _NONE)[places], _NONE)[codes]
    if not is_parent:
        rows = np.flatnonzero(parent >= 0)
        return _Linked(rows, parent[rows], pd.Index([], dtype=object), np.zeros(0, dtype=np.int64))
    own, keys = read.keys[stage.primary_key]
    rows = _distinct(read, np.flatnonzero((parent >= 0) & (own >= 0)), parent, own)
    row_of = _row_of(own[rows], len(keys))
    row_of[own[(parent == _SEVERAL) & (own >= 0)]] = _SEVERAL
    return _Linked(rows, parent[rows], keys, row_of)


def _distinct(read, rows, parent, key):
    """Return rows, of those with the same parent and key the one with the smallest hash."""
    if np.bincount(key[rows], minlength=1).max() < 2:
        return rows
    rows = rows[np.lexsort((read.hashes(rows), key[rows], parent[rows]))]
    return np.sort(rows[_is_first(parent[rows], key[rows])])


def _row_of(keys, n_keys):
    """Return the position of each key, or that none or several have it."""
    positions = np.full(n_keys, _NONE)
    positions[keys] = np.arange(len(keys))
    positions[np.bincount(keys, minlength=n_keys) > 1] = _SEVERAL
    return positions


def _read_panel(table, stages, encoders):
    """Return the persons and the rows of a panel."""
    read = _read(table, stages, encoders)
    first, rows, parent, weights = _panel_rows(stages, read)
    whole = np.full(len(first), WHOLE)
    return [
        TableRows([read.codes[name][first] for name in stages[0].columns], None, whole),
        TableRows([read.codes[name][rows] for name in stages[1].columns], parent, weights),
    ]


def _panel_rows(stages, read):
    """Return the first row of each person, and all rows, as those of a root without columns."""
    person, keys = read.keys[stages[0].primary_key]
    rows = np.flatnonzero(person >= 0)
    if len(rows) == 0:
        raise PublicValueError(NO_RECORDS)
    empty = _Read({}, {}, 0)
    persons = _Linked(np.arange(len(keys)), None, keys, np.arange(len(keys)))
    linked = [persons, _Linked(rows, person[rows], keys[:0], np.zeros(0, dtype=np.int64))]
    _, (rows, parent, weights) = _in_order(stages, [empty, read], linked)
    return rows[_is_first(parent)], rows, parent, weights


def _places(stage, keys, upper, parents):
    """Return the place of each key among those of the parent table, or -1."""
    if len(keys) == 0 or len(parents) == 0:
        return np.full(len(keys), -1)
    if not _are_alike(keys[0], parents[0]):
        keys, parents = as_integers(keys), as_integers(parents)
        if keys is None or parents is None:
            raise PublicValueError(
                f"foreign_key {stage.foreign_key!r} must be of the type of the primary key "
                f"{upper.primary_key!r} of table {upper.name!r}, {ALIKE}"
            )
    keys, parents = pd.Index(keys), pd.Index(parents)
    if keys.dtype != parents.dtype:
        # As objects, since common dtypes are floats, in which integers above 2^53 are equal.
        keys, parents = (pd.Index(as_objects(part), dtype=object) for part in (keys, parents))
    return parents.get_indexer(keys)


def _are_alike(*keys):
    try:
        check_alike(keys, "key", _KEY)
    except PublicValueError:
        return False
    return True


def _path(parent, path):
    """Return the product of the numbers of rows on the path to each row, at most 2^23 + 1."""
    # Each factor is at most 2^23 + 1, so that products fit in 64 bits; beyond, weights are 0.
    n_rows = np.minimum(np.bincount(parent, minlength=len(path)), WHOLE + 1)
    return np.minimum(n_rows * path, WHOLE + 1)[parent]


def _in_order(stages, reads, linked):
    """Return the rows of each stage in the canonical order, with their parents and weights.

    Returns
    -------
    list of (rows, parent, weights)
        ``rows`` are positions in the table, ``parent`` and ``weights`` those of TableRows.
    """
    trees = _trees(stages, reads, linked)
    numbers: list[np.ndarray] = []
    paths: list[np.ndarray] = []
    places: list[np.ndarray] = []
    found = []
    for stage, read, own, tree in zip(stages, reads, linked, trees, strict=True):
        if stage.parent is None:
            order, parent, number = np.arange(len(tree)), None, _mixed(tree)
            path = np.ones(len(tree), dtype=np.int64)
        else:
            parent = places[stage.parent][own.parent]
            index = None if stage.index is None else read.codes[stage.index][own.rows]
            order, number = _ordered(parent, index, tree, numbers[stage.parent])
            parent = parent[order]
            path = _path(parent, paths[stage.parent])
        place = np.empty(len(order), dtype=np.int64)
        place[order] = np.arange(len(order))
        numbers.append(number)
        paths.append(path)
        places.append(place)
        found.append((own.rows[order], parent, WHOLE // path))
    return found


def _trees(stages, reads, linked):
    """Return a hash of each row of each stage with its descendants, without their order."""
    trees = [read.hashes(own.rows) for read, own in zip(reads, linked, strict=True)]
    # Children are hashed before their parents.
    for place in reversed(range(1, len(stages))):
        above = stages[place].parent
        totals = np.full(len(trees[above]), place, dtype=np.uint64)
        np.add.at(totals, linked[place].parent, trees[place])
        trees[above] = _mixed(trees[above] ^ _mixed(totals))
    return trees


def _ordered(parent, index, tree, number):
    """Return the canonical order of rows, and the number of each.

    Parameters
    ----------
    parent : ndarray of int64 of shape (n,)
    index : ndarray of unsigned int of shape (n,), or None
        The code of the sequence index.
    tree : ndarray of uint64 of shape (n,)
    number : ndarray of uint64
        The number of each parent row.

    Returns
    -------
    order : ndarray of int of shape (n,)
        By parent, index and number. Equal rows have distinct ranks, and thus numbers of their own,
        so that they are not clumped. The numbers of parent rows make orders of equal rows differ
        between persons.
    numbers : ndarray of uint64 of shape (n,)
        In this order.
    """
    group = parent
    if index is not None and len(index):
        group = parent * (int(index.max()) + 1) + index
    order = np.lexsort((tree, group))
    tree, group = tree[order], group[order]
    place = np.arange(len(order))
    rank = place - np.maximum.accumulate(np.where(_is_first(group, tree), place, 0))
    numbers = _mixed(_mixed(tree ^ number[parent[order]]) ^ rank.astype(np.uint64))
    again = np.lexsort((numbers, group))
    return order[again], numbers[again]


def _is_first(*columns):
    """Return whether each row differs from the one before in any of the columns."""
    found = np.ones(len(columns[0]), dtype=bool)
    found[1:] = np.logical_or.reduce([column[1:] != column[:-1] for column in columns])
    return found


def _mixed(values):
    """Return a fixed pseudo-random permutation of the integers of 64 bits, SplitMix64."""
    values = values + np.uint64(0x9E3779B97F4A7C15)
    values = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    values = (values ^ (values >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return values ^ (values >> np.uint64(31))
