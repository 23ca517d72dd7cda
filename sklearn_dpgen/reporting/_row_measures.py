"""Reading of tables with keys, and comparisons of the rows of persons."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from sklearn.utils import check_random_state

from sklearn_dpgen.exceptions import PublicTypeError, PublicValueError
from sklearn_dpgen.metrics import row_distances
from sklearn_dpgen.metrics._rows import PersonRows
from sklearn_dpgen.reporting._columns import (
    cell_codes,
    check_table,
    column_shares,
    compared,
    read_table,
)
from sklearn_dpgen.reporting._measures import broken_shares, rule_words
from sklearn_dpgen.reporting._released import compare_counts, synthetic_correlations
from sklearn_dpgen.reporting._verdict import predictability
from sklearn_dpgen.schema import Datetime, Numeric, RelationalSchema, Schema, Table
from sklearn_dpgen.schema._expressions import Scope
from sklearn_dpgen.tables._person_rows import stages_of
from sklearn_dpgen.tables._table_rules import columns_of

__all__ = [
    "as_relational",
    "measure_released_tables",
    "measure_rows",
    "read_tables",
    "row_view",
    "sample_persons",
]

# Columns with transitions and trajectories, and persons in a figure of trajectories.
_MOST_COLUMNS, _PERSONS = 4, 5
# Prefix of the columns of the row before in rules.
_PREVIOUS = "previous."
# A person with more rows makes a figure that nobody can read.
_MOST_ROWS = 60


@dataclass(frozen=True, eq=False)
class View:
    """Long tables of the rows of a child table, with the columns of the parent row.

    Parameters
    ----------
    frames : dict of str to DataFrame
        By "real" and "synthetic", or by the second alone.
    schema : Schema
    person : str
        The column with the key of the parent row.
    index : str or None
    static : list of str
        The columns of the parent row.
    """

    frames: dict
    schema: Schema
    person: str
    index: str | None
    static: list


def as_relational(schema):
    """Return a schema of tables with keys, with a panel as its only table."""
    return RelationalSchema({"rows": schema}) if isinstance(schema, Table) else schema


def read_tables(tables, relational, label):
    """Return the private tables as pandas frames, or raise an error that names the table.

    Parameters
    ----------
    tables : mapping of str to data frame, or data frame for a single table
    relational : RelationalSchema
    label : str
        "real" or "synthetic".

    Returns
    -------
    dict of str to DataFrame
    """
    if not isinstance(tables, Mapping):
        if len(relational.order) > 1:
            raise PublicTypeError(
                f"{label} must be a mapping of names to data frames, got {type(tables).__name__}."
            )
        tables = {relational.root: tables}
    missing = [name for name in relational.order if name not in tables]
    if missing:
        raise PublicValueError(f"{label} lacks the tables {missing}.")
    found = {}
    for name in relational.order:
        what = f"Table {name!r} of {label}"
        frame = read_table(tables[name], what)
        lost = [key for key in relational[name].keys if key not in frame.columns]
        if lost:
            raise PublicValueError(f"{what} lacks the keys {lost}.")
        check_table(frame, relational[name].schema, what)
        found[name] = frame
    return found


def sample_persons(tables, relational, most, random_state):
    """Return the rows of random persons, in the order of persons, and the persons of the rows.

    Parameters
    ----------
    tables : dict of str to DataFrame
    relational : RelationalSchema
    most : int
        Largest number of rows of each table, unless a person has more.
    random_state : int

    Returns
    -------
    frames : dict of str to DataFrame
        Without rows whose person is not in the root table.
    persons : dict of str to ndarray of int
        The number of the person of each row.
    """
    root = relational.root
    keys = tables[root][relational[root].primary_key or []]
    keys = keys.drop_duplicates().dropna() if keys.ndim == 1 else keys.index.to_series()
    order = check_random_state(random_state).permutation(len(keys))
    numbers, most_persons = {}, len(keys)
    maps = {}
    for name in relational.order:
        table, frame = relational[name], tables[name]
        parent = relational.parent(name)
        if parent is None:
            maps[name] = pd.Series(order, index=keys.to_numpy())
            of = frame.index if table.primary_key is None else frame[table.primary_key]
            found = pd.Series(of).map(maps[name]).to_numpy(dtype=float)
        else:
            found = frame[relational.parent_key(name)].map(maps[parent]).to_numpy(dtype=float)
            if table.primary_key is not None:
                own = pd.Series(found, index=frame[table.primary_key].to_numpy())
                maps[name] = own[~own.index.duplicated() & own.index.notna()]
        numbers[name] = found
        sizes = np.bincount(found[~np.isnan(found)].astype(int), minlength=len(keys))
        most_persons = min(most_persons, max(int(np.sum(np.cumsum(sizes) <= most)), 2))
    frames, persons = {}, {}
    for name, found in numbers.items():
        kept = np.flatnonzero(found < most_persons)
        kept = kept[np.argsort(found[kept], kind="stable")]
        frames[name] = tables[name].iloc[kept].reset_index(drop=True)
        persons[name] = found[kept].astype(int)
    return frames, persons


def row_view(frames, relational, name):
    """Return the View of a child table or a panel, or None for a table with one row per person.

    Parameters
    ----------
    frames : dict of str to dict of str to DataFrame
        The tables by name, by "real" and "synthetic".
    relational : RelationalSchema
    name : str
    """
    table, parent = relational[name], relational.parent(name)
    own = dict(compared(table.schema))
    if parent is None:
        if table.max_rows is None:
            return None
        joined = {label: tables[name] for label, tables in frames.items()}
        static = [n for n in table.static if n in own]
        return View(joined, Schema(own), table.primary_key, table.sequence_index, static)
    above, key = relational[parent], f"key of {parent}"
    columns = compared(above.schema)
    names = [f"{parent}.{n}" for n in columns]
    joined = {}
    for label, tables in frames.items():
        left = tables[parent][[above.primary_key, *columns]].set_axis([key, *names], axis=1)
        left = left.dropna(subset=key).drop_duplicates(key)
        right = tables[name][[relational.parent_key(name), *own]].set_axis([key, *own], axis=1)
        # With an index, a parent without rows has a row in which it is null.
        how = "inner" if table.sequence_index is None else "left"
        joined[label] = left.merge(right, how=how, on=key)
    schema = Schema(dict(zip(names, columns.values(), strict=True)) | own)
    return View(joined, schema, key, table.sequence_index, names)


def measure_rows(view, random_state):
    """Return the figures of the rows of persons, as plain containers and arrays.

    Parameters
    ----------
    view : View
    random_state : int

    Returns
    -------
    dict
        ``"sizes"`` and ``"gaps"``, in the form of :func:`column_shares`; ``"transitions"`` and
        ``"trajectories"``, lists by column; and with real rows ``"distances"``, a list of (name,
        distance, distance of two random halves of the persons).
    """
    rows = {
        label: PersonRows(frame, view.schema, view.person, view.index)
        for label, frame in view.frames.items()
    }
    for table in rows.values():
        table.sort([])
    measures: dict[str, Any] = {"index": view.index}
    if "real" in rows:
        measures["distances"] = _distances(view, random_state)
    measures["sizes"] = _integer_shares({label: t.sizes for label, t in rows.items()})
    if view.index is None or not all(len(table.order) for table in rows.values()):
        return measures
    gaps = {label: table.gaps() for label, table in rows.items()}
    if all(map(len, gaps.values())):
        measures["gaps"] = _integer_shares(gaps)
    names = [n for n in view.schema if n not in (view.index, *view.static)][:_MOST_COLUMNS]
    measures["transitions"] = [_transitions(rows, n, view.schema[n]) for n in names]
    measures["trajectories"] = [_trajectories(rows, n, view, random_state) for n in names]
    return measures


def _distances(view, random_state):
    real, synthetic = view.frames["real"], view.frames["synthetic"]
    options = {"person": view.person, "index": view.index, "static": view.static}
    found = row_distances(real, synthetic, view.schema, **options)
    keys = real[view.person].drop_duplicates()
    is_first = real[view.person].isin(keys.sample(frac=0.5, random_state=random_state))
    floor = row_distances(real[is_first], real[~is_first], view.schema, **options)
    return [(name, float(found[name]), float(floor[name])) for name in found.index]


def _integer_shares(values):
    """Return the shares of integers in bins that make a readable figure."""
    high = max(float(part.max()) for part in values.values())
    column = Numeric(
        0, max(high, 1.0), integer=all((v == np.rint(v)).all() for v in values.values())
    )
    series = [pd.Series(part, dtype=float) for part in values.values()]
    shares = column_shares(series[0], series[-1], column)
    if len(series) == 1:
        del shares["real"]
    return shares


def _transitions(rows, name, column):
    """Return the conditional shares of the value in the next row, given that in a row."""
    values = {label: table.frame[name].iloc[table.order] for label, table in rows.items()}
    codes, labels = cell_codes(list(values.values()), column)
    found: dict[str, Any] = {"name": name, "names": labels}
    k = len(labels)
    for (label, table), own in zip(rows.items(), codes, strict=True):
        start, end = table.lagged(1)
        counts = np.bincount(own[start] * k + own[end], minlength=k * k).reshape(k, k)
        sums = counts.sum(axis=1, keepdims=True)
        found[label] = np.divide(counts, sums, where=sums > 0, out=np.full((k, k), np.nan))
    return found


def _trajectories(rows, name, view, random_state):
    """Return the indices and values of a few random persons, with at least two rows if any has."""
    column = view.schema[name]
    found: dict[str, Any] = {
        "name": name,
        "labels": list(map(str, column.labels)) if hasattr(column, "labels") else None,
        "index": view.index,
    }
    for label, table in rows.items():
        numbers = table.numbers(name, column)
        index = table.frame[view.index].iloc[table.order]
        if isinstance(view.schema[view.index], Datetime):
            index = pd.to_datetime(index).dt.tz_localize(None).to_numpy()
        else:
            index = index.to_numpy(dtype=float)
        chosen = np.flatnonzero((table.sizes > 1) & (table.sizes <= _MOST_ROWS))
        if not len(chosen):
            chosen = np.flatnonzero(table.sizes > 0)
        chosen = check_random_state(random_state).permutation(chosen)[:_PERSONS]
        found[label] = [(index[table.person == p], numbers[table.person == p]) for p in chosen]
    return found


def measure_released_tables(view, n_samples, random_state):
    """Return the figures of a report on released counts and samples of tables with keys.

    Parameters
    ----------
    view : Released
    n_samples : int
        Number of persons.
    random_state : int

    Returns
    -------
    dict
    """
    relational = as_relational(view.schema)
    drawn = view.draw_tables(n_samples, random_state)
    frames = read_tables(drawn, relational, "synthetic")
    return {
        "tables": {name: _released_table(view, relational, frames, name, random_state)
                   for name in relational.order}
    }  # fmt: skip


def _released_table(view, relational, frames, name, random_state):
    part = compared(relational[name].schema)
    frame, weights, encoded = _weighted_rows(view, relational, frames, name)
    measures: dict[str, Any] = {
        "n_samples": len(frames[name]),
        "counted": "persons",
        "left_out": [n for n in relational[name].schema if n not in part],
        "columns": [],
        "n_columns": len(part),
    }
    own = {f"{name}.{n}": n for n in part}
    singles = [p for p in view.one_way_marginals_ if p.columns[0] in own]
    if singles and len(frame):
        pairs = [
            p
            for p in view.marginals_
            if len(p.columns) == 2 and encoded.keys() >= {*p.columns} and own.keys() & {*p.columns}
        ]
        # In a child table, the number of persons with rows is known from noisy counts alone.
        coarsest = {p.columns: float(p.counts.sum()) for p in singles}
        is_root = name == relational.root
        n_records = view.n_records_ if is_root else max(np.mean([*coarsest.values()]), 1.0)
        found = compare_counts(singles, pairs, encoded, n_records, frame, weights)
        columns = [column | {"name": own[column["name"]]} for column in found["columns"]]
        pairs_found = [
            pair | {"columns": tuple(own.get(n, n) for n in pair["columns"])}
            for pair in found["associations"]
        ]
        measures |= found | {"columns": columns, "associations": pairs_found}
        measures |= _targets(view, relational, frame, name, random_state)
    rules = _rules_of(view, relational, name)
    if rules and len(frame):
        scope = Scope(relational, name)
        measures["rules"] = [
            {"rule": rule_words(rule, scope), "synthetic": _broken(rule, relational, frame, name)}
            for rule in rules
        ]
    if len(part) > 1 and len(frames[name]):
        measures["correlations"] = synthetic_correlations(frames[name], part)
    rows = row_view({"synthetic": frames}, relational, name)
    if rows is not None:
        measures["persons"] = measure_rows(rows, random_state)
    return measures


def _line(relational, name):
    """Return a table and the tables above it, with the prefixes of their columns for a row."""
    found = {name: ""}
    while (above := relational.parent(name)) is not None:
        found[above] = f"{above}."
        name = above
    return found


def _known_columns(relational, name, are_compared=False):
    """Return the declared columns of a row and of the rows above it."""
    return {
        f"{prefix}{n}": column
        for table, prefix in _line(relational, name).items()
        for n, column in (
            compared(relational[table].schema) if are_compared else relational[table].schema
        ).items()
    }


def _person_of(relational, frame, name):
    """Return the key of the person of each row with the columns of the tables above it."""
    key = relational[relational.root].primary_key
    is_row = key is None or (name == relational.root and not relational.is_panel)
    return frame.index.to_numpy() if is_row else frame[f"{relational.root}.{key}"].to_numpy()


def _targets(view, relational, frame, name, random_state):
    """Return the targets of a table, and how well models of rows of some persons predict others."""
    targets = getattr(view, "target", None)
    targets = [targets] if isinstance(targets, str) else targets or []
    if not relational.is_panel:
        targets = [t.removeprefix(f"{name}.") for t in targets if t.startswith(f"{name}.")]
    part = Schema(_known_columns(relational, name, are_compared=True))
    targets = [target for target in targets if target in part]
    rows = frame.rename(columns=lambda n: n.removeprefix(f"{name}."))
    persons = _person_of(relational, frame, name)
    found = (predictability(rows, part, n, random_state, persons) for n in targets)
    return {"targets": targets, "predictability": [f for f in found if f is not None]}


def _rules_of(view, relational, name):
    """Return the declared rules of a table."""
    rules = getattr(view, "constraints", None) or {}
    return rules.get(name, ()) if isinstance(rules, Mapping) else rules


def _broken(rule, relational, frame, name):
    """Return the share of the rows of a table that break a rule; first rows have none before."""
    columns, index = _known_columns(relational, name), relational[name].sequence_index
    rows = frame.rename(columns=lambda n: n.removeprefix(f"{name}."))
    before = [n for n in columns_of(rule) if n.startswith(_PREVIOUS) and n not in columns]
    if before:
        parent = relational.parent_key(name) or relational[name].primary_key
        rows = rows.sort_values([parent, index], kind="stable")
        own = [n.removeprefix(_PREVIOUS) for n in before]
        shifted = rows.groupby(parent)[own].shift().set_axis(before, axis=1)
        rows = rows.join(shifted)[rows[parent].duplicated()]
        rows = rows.astype({b: rows[n].dtype for b, n in zip(before, own, strict=True)})
        columns |= {b: columns[n] for b, n in zip(before, own, strict=True)}
    schema = Schema({n: columns[n] for n in columns_of(rule)})
    (found,) = broken_shares({"synthetic": rows[[*schema]]}, [rule], schema)
    return found["synthetic"] * len(rows) / len(frame)


def _weighted_rows(view, relational, frames, name):
    """Return the rows of a table with the columns of its ancestors, their weights and encoders.

    A row weighs one over the product of the numbers of rows on its path, as in released counts.
    """
    stages = stages_of(relational)
    encoded: dict[str, Any] = {}
    for stage, encoder in zip(stages, view.encoders_, strict=True):
        columns = {} if encoder is None else encoder.columns_
        encoded |= {f"{stage.name}.{n}": (stage.name, column) for n, column in columns.items()}
    frame = frames[name].add_prefix(f"{name}.")
    weights, at = np.ones(len(frame)), name
    if relational.is_panel:
        key = frame[f"{name}.{relational[name].primary_key}"]
        weights = 1 / key.map(key.value_counts()).to_numpy(dtype=float)
    above = [name]
    while (parent := relational.parent(at)) is not None:
        key = frame[f"{at}.{relational.parent_key(at)}"]
        counts = frames[at][relational.parent_key(at)].value_counts()
        weights = weights / key.map(counts).to_numpy(dtype=float)
        right = frames[parent].add_prefix(f"{parent}.")
        frame = frame.merge(
            right,
            how="left",
            left_on=key.name,
            right_on=f"{parent}.{relational[parent].primary_key}",
        )
        above.append(parent)
        at = parent
    return frame, weights, {n: c for n, (table, c) in encoded.items() if table in above}
