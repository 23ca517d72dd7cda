"""Public tables beside those of persons: read, and linked by their keys."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pandas as pd

from sklearn_dpgen.exceptions import (
    PublicError,
    PublicTypeError,
    PublicValueError,
    UnusedPublicTableWarning,
)
from sklearn_dpgen.preprocessing._public_table import as_public_table
from sklearn_dpgen.schema import Schema
from sklearn_dpgen.schema._column import given_as
from sklearn_dpgen.tables._person_counts import PersonRecords
from sklearn_dpgen.tables._person_rows import TableRows, linked_rows, named_table
from sklearn_dpgen.utils._validation import warn_user

__all__ = [
    "PublicStage",
    "public_leaves_of",
    "public_stages",
    "read_public_tables",
]

# Rows of a table that are kept, of evenly spaced persons.
_MOST_ROWS = 50_000


def read_public_tables(public, stages):
    """Read the public tables that stand beside those of persons.

    Parameters
    ----------
    public : mapping of str to PublicTable or source, PublicTable, source or None
        The tables by name. If there is one private table, it may be given itself.
    stages : tuple of Stage

    Returns
    -------
    dict of str to PublicRows
        With the keys that a table has.

    Raises
    ------
    PublicTypeError, PublicValueError
        There is no such private table, it has no columns, or a public table cannot be read.
    """
    if public is None:
        return {}
    columns: dict[str, dict] = {}
    keys: dict[str, list] = {}
    for stage in stages:
        columns.setdefault(stage.name, {}).update(stage.columns)
        own = (stage.primary_key, stage.foreign_key)
        keys.setdefault(stage.name, []).extend(key for key in own if key is not None)
    names = [*columns]
    if not isinstance(public, Mapping):
        if len(names) > 1:
            raise PublicTypeError(
                f"public must be a mapping of some of the names {names} to public tables, got "
                f"{given_as(public)}."
            )
        public = {names[0]: public}
    unknown = [name for name in public if name not in names]
    if unknown or not public:
        given = unknown or "none"
        raise PublicValueError(
            f"public must map names of the private tables {names} to public tables, got {given}."
        )
    found = {}
    for name, source in public.items():
        with named_table(name):
            table = as_public_table(source)
            if table is None or not columns[name]:
                rule = "have columns" if table is not None else "be a table or its path, got None"
                raise PublicValueError(f"public must {rule}.")
            found[name] = table._read(Schema(columns[name]), list(dict.fromkeys(keys[name])))
    return found


@dataclass(frozen=True, eq=False)
class PublicStage:
    """Public rows of one stage.

    Parameters
    ----------
    codes : dict of int to ndarray of shape (n,)
        For each variable of the stage that is known, the category of each row; its number of
        categories where the cell is not known.
    weights : ndarray of shape (n,)
        Positive, of sum 1 or less: those of the rows of a person sum to the weight of the person.
    parent : ndarray of int of shape (n,) or None
        The row of the parent stage, ascending. None for the root, and for rows without keys.
    size : float
        Effective number of independent rows.
    """

    codes: dict[int, np.ndarray]
    weights: np.ndarray
    parent: np.ndarray | None
    size: float


def public_stages(layout, tables):
    """Return the public rows of each stage, linked by keys where these are known.

    Parameters
    ----------
    layout : PersonLayout
    tables : dict of str to PublicRows
        From :func:`read_public_tables`.

    Returns
    -------
    dict of int to PublicStage

    Raises
    ------
    PublicValueError
        Keys of two tables have other types, or no row has a key of a person.

    Warns
    -----
    UnusedPublicTableWarning
        Most rows of a table belong to no person.
    """
    linked = _linked_places(layout.declared, tables)
    found = _linked_stages(layout, tables, linked) if linked else {}
    for place, (stage, encoder) in enumerate(zip(layout.declared, layout.encoders, strict=True)):
        if stage.name not in tables or encoder is None or place in linked:
            continue
        rows = tables[stage.name]
        weights = rows.weights / rows.weights.sum()
        cells = zip(layout.stages[place].columns, _codes(rows, encoder).values(), strict=True)
        # Of an index alone, without the gaps of rows, the calendar and the gaps would disagree.
        known = {*_known(layout, place, rows)} - {layout.stages[place].index}
        codes = {j: column for j, column in cells if j in known}
        if codes:
            found[place] = PublicStage(codes, weights, None, 1 / (weights**2).sum())
    return found


def _linked_places(stages, tables):
    """Return the stages whose public rows have all keys from the root on."""
    linked: set = set()
    for place, stage in enumerate(stages):
        rows = tables.get(stage.name)
        keys = () if rows is None else rows.keys
        if stage.parent is None:
            if stage.primary_key in keys:
                linked.add(place)
            continue
        # Without the index, the order of the rows is not known.
        has_order = stage.index is None or stage.index in getattr(rows, "names", ())
        needed = [stage.foreign_key]
        if any(other.parent == place for other in stages):
            needed.append(stage.primary_key)
        if stage.parent in linked and has_order and all(key in keys for key in needed):
            linked.add(place)
    is_panel = len({stage.name for stage in stages}) < len(stages)
    # The persons of a panel are found by its rows.
    return set() if is_panel and len(linked) < len(stages) else linked


def _known(layout, place, rows):
    """Return the variables that columns of a public table give, those of a key among them."""
    stage, own = layout.declared[place], layout.stages[place]
    known = [j for n, j in zip(stage.columns, own.columns, strict=True) if n in rows.names]
    return known + [j for j in own.joined if layout.variables[j].source in known]


def _cells(layout, name, rows):
    """Return the category of each cell of a table by column, of both stages of a panel."""
    cells: dict = {}
    for stage, encoder in zip(layout.declared, layout.encoders, strict=True):
        if stage.name == name and encoder is not None:
            cells |= _codes(rows, encoder)
    return cells


def _codes(rows, encoder):
    """Return the category of each cell by column, the number of categories where not known."""
    columns = encoder.columns_
    sizes = np.array([column.n_categories for column in columns.values()])
    codes = rows.codes(encoder)
    codes = np.where(codes < 0, sizes, codes).astype(np.min_scalar_type(int(sizes.max())))
    return dict(zip(columns, codes.T, strict=True))


def _linked_stages(layout, tables, linked):
    """Return the stages with keys, linked and derived as private rows are."""
    codes, keys, weights = [], [], []
    for place, stage in enumerate(layout.declared):
        own = [key for key in (stage.primary_key, stage.foreign_key) if key is not None]
        if place not in linked:
            # Rows that are not linked are left out, and so is what is derived from them.
            codes.append({name: np.zeros(0, dtype=np.uint8) for name in stage.columns})
            keys.append({key: pd.Series(dtype=object) for key in own})
            weights.append(np.zeros(0))
            continue
        rows = tables[stage.name]
        cells = _cells(layout, stage.name, rows)
        kept = np.ones(len(rows.weights), dtype=bool)
        for other, encoder in zip(layout.declared, layout.encoders, strict=True):
            if other.name == stage.name and other.index is not None:
                kept = cells[other.index] < encoder.columns_[other.index].n_categories
        codes.append({name: column[kept] for name, column in cells.items()})
        keys.append({key: rows.keys[key][kept] for key in own if key in rows.keys})
        weights.append(rows.weights[kept])
    try:
        found = linked_rows(layout.declared, codes, keys)
    except PublicError as error:
        # The subject of these errors is a private table.
        raise type(error)(f"The public tables cannot be linked by keys: {error}") from error
    _warn_of_unlinked(layout.declared, weights, found)
    totals: list = []
    for stage, own, (rows, parent) in zip(layout.declared, weights, found, strict=True):
        own = own[rows]
        if parent is not None:
            above = totals[stage.parent]
            own = own / np.bincount(parent, own, minlength=len(above))[parent] * above[parent]
        totals.append(own)
    parts = [
        TableRows([columns[name][rows] for name in stage.columns], parent, own)
        for stage, columns, (rows, parent), own in zip(
            layout.declared, codes, found, totals, strict=True
        )
    ]
    parts = _thinned(layout.declared, parts)
    records, total = PersonRecords(layout, parts), parts[0].weights.sum()
    size = total**2 / (parts[0].weights ** 2).sum()
    stages = {}
    for place in sorted(linked):
        known, own = (
            _known(layout, place, tables[layout.declared[place].name]),
            layout.stages[place],
        )
        known += [j for j in (own.slot, own.gap, own.room, own.pace) if j is not None]
        for below, child in enumerate(layout.stages):
            if child.parent == place and below in linked:
                known += [j for j in (child.count, child.first) if j is not None]
                of_child = _known(layout, below, tables[layout.declared[below].name])
                known += [a for source, a in child.aggregates.items() if source in of_child]
        cells = {j: records.at(place, j) for j in known}
        part = parts[place]
        stages[place] = PublicStage(cells, part.weights / total, part.parent, size)
    return stages


def _warn_of_unlinked(stages, weights, found):
    """Warn of each public table of which most rows belong to no public person."""
    for stage, own, (rows, parent) in zip(stages, weights, found, strict=True):
        if parent is not None and 2 * len(rows) < len(own):
            warn_user(
                f"Table {stage.name!r}: {len(own) - len(rows)} of {len(own)} public rows belong to "
                "no public person, and are left out: keys of public tables must agree.",
                UnusedPublicTableWarning,
            )


def _thinned(stages, parts):
    """Keep the rows of evenly spaced persons, so that no table has too many."""
    step = -(-max(len(part.weights) for part in parts) // _MOST_ROWS)
    if step == 1:
        return parts
    found: list[TableRows] = []
    masks: list[np.ndarray] = []
    for stage, part in zip(stages, parts, strict=True):
        parent = part.parent
        if parent is None:
            kept = np.arange(len(part.weights)) % step == 0
        else:
            kept = masks[stage.parent][parent]
            parent = (np.cumsum(masks[stage.parent]) - 1)[parent[kept]]
        masks.append(kept)
        found.append(TableRows([c[kept] for c in part.codes], parent, part.weights[kept]))
    return found


def public_leaves_of(stages, layout):
    """Return the counts of the leaves of each variable in public tables.

    Parameters
    ----------
    stages : dict of int to PublicStage
    layout : PersonLayout

    Returns
    -------
    dict of int to ndarray
        They sum to the effective number of persons with known rows, or of rows without keys.
    """
    found = {}
    for stage in stages.values():
        for j, codes in stage.codes.items():
            tree = layout.variables[j].tree
            size = tree.n_values + tree.nullable
            known = codes < size
            counts = np.bincount(codes[known], stage.weights[known], minlength=size)
            found[j] = stage.size * counts
    return found
