"""Whose row a row is: keys that several persons have, and keys that are nearly equal."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from sklearn_dpgen.schema import Categorical, RelationalSchema, Schema, Table
from sklearn_dpgen.tables import _person_rows
from sklearn_dpgen.tables._person_layout import PersonLayout
from sklearn_dpgen.tables._person_rows import persons_of_rows, read_person_rows, stages_of
from sklearn_dpgen.utils._frames import as_pandas

# Four tables, each with the number of the row as its only column, so that it is seen which count.
MOST = 12
NUMBER = Schema({"row": Categorical(list(range(MOST)))})
SCHEMA = RelationalSchema(
    {
        "persons": Table(NUMBER, primary_key="person"),
        "stays": Table(NUMBER, primary_key="stay", foreign_key={"person": "persons"}, max_rows=3),
        "drugs": Table(NUMBER, primary_key="drug", foreign_key={"stay": "stays"}, max_rows=3),
        "doses": Table(NUMBER, foreign_key={"drug": "drugs"}, max_rows=3),
    }
)
STAGES = stages_of(SCHEMA)

# Few keys, so that many are shared; some rows have none, or one that is nowhere.
KEYS = st.sampled_from([1, 2, 3, 4, None])
LINKS = st.lists(st.tuples(KEYS, KEYS), max_size=MOST)
TANGLED = st.tuples(
    st.lists(KEYS, max_size=3).map(lambda more: [1, 2, *more]),
    LINKS,
    LINKS,
    st.lists(KEYS, max_size=MOST),
)
# The first person has the stay 1 as the second has, and the drug 1 in the stay 2, which is the drug
# of a row below the stay 1 too.
SHARED = ([1, 2], [(1, 1), (2, 1), (1, 2)], [(1, 1), (1, 2)], [1, 1])


def tables_of(keys):
    """Return tables of the keys of persons, stays, drugs and doses."""
    persons, stays, drugs, doses = keys
    parts = {
        "persons": {"person": persons},
        "stays": {"stay": [own for own, _ in stays], "person": [up for _, up in stays]},
        "drugs": {"drug": [own for own, _ in drugs], "stay": [up for _, up in drugs]},
        "doses": {"drug": doses},
    }
    return {
        name: pd.DataFrame({key: pd.Series(v, dtype="Int64") for key, v in own.items()}).assign(
            row=lambda frame: np.arange(len(frame))
        )
        for name, own in parts.items()
    }


def owners_of(tables):
    """Return the set of persons of each row, by following all keys."""
    found, above = {}, None
    for stage in STAGES:
        table = tables[stage.name].astype(object)
        if above is None:
            own = [set() if key is pd.NA else {key} for key in table["person"]]
        else:
            own = [above.get(key, set()) for key in table[stage.foreign_key]]
        found[stage.name], above = own, {}
        if stage.primary_key is not None:
            for key, who in zip(table[stage.primary_key], own, strict=True):
                if key is not pd.NA:
                    above[key] = above.get(key, set()) | who
    return found


def without(tables, person):
    """Return the tables without all rows of a person."""
    owners = owners_of(tables)
    return {n: t[[person not in who for who in owners[n]]] for n, t in tables.items()}


def counted(tables):
    """Return the weight of each row that counts, by its table and number."""
    layout = PersonLayout(STAGES)
    read = read_person_rows(tables, layout.declared, layout.encoders)
    return {
        (stage.name, int(row)): int(weight)
        for stage, rows in zip(STAGES, read, strict=True)
        for row, weight in zip(rows.codes[0], rows.weights, strict=True)
    }


def changes_others(tables):
    """Return whether a person who is removed with all rows changes what others count for."""
    owners, whole = owners_of(tables), counted(tables)
    for person in {1, 2}:
        kept = {at: w for at, w in whole.items() if owners[at[0]][at[1]] != {person}}
        if counted(without(tables, person)) != kept:
            return True
    return False


@pytest.mark.slow
@settings(max_examples=100, deadline=None)
@given(TANGLED)
@example(SHARED)
def test_a_person_with_all_rows_changes_nothing_of_others(keys):
    tables = tables_of(keys)
    assert not changes_others(tables)
    owners = owners_of(tables)
    assert all(len(owners[name][row]) == 1 for name, row in counted(tables))


@pytest.mark.slow
@settings(max_examples=100, deadline=None)
@given(TANGLED)
@example(SHARED)
def test_a_row_is_of_the_part_of_its_only_person(keys):
    tables = tables_of(keys)
    _, persons = persons_of_rows(tables, STAGES)
    known = pd.factorize(tables["persons"]["person"])[1]
    owners = owners_of(tables)
    for name, found in persons.items():
        who = [{known[i]} if i >= 0 else set() for i in found]
        assert who == [own if len(own) == 1 else set() for own in owners[name]]


@pytest.mark.parametrize("kind", ["polars", "pyarrow"])
def test_large_keys_beside_a_null_stay_apart(kind, monkeypatch):
    """As floats, these persons would be one."""
    frames = pytest.importorskip(kind)
    first, second = 2**53, 2**53 + 1
    made = tables_of(([first, None, second], [(first, second), (None, first)], [(1, second)], []))
    tables = {
        name: getattr(frames, "from_pandas" if kind == "polars" else "table")(
            table if kind == "polars" else table.to_dict("list")
        )
        for name, table in made.items()
    }
    expected = {"persons": [0, -1, 1], "stays": [1, 0], "drugs": [-1], "doses": []}
    n_persons, persons = persons_of_rows(tables, STAGES)
    assert n_persons == 2
    assert {name: own.tolist() for name, own in persons.items()} == expected
    monkeypatch.setattr(_person_rows, "as_pandas_or_arrow", as_pandas)
    assert persons_of_rows(tables, STAGES)[0] == 1


def test_keys_that_are_forgotten_with_their_rows_are_caught(monkeypatch):
    """A row that is dropped for a key of several persons leaves its own key to another row."""
    children = _person_rows._children

    def forgetful(stage, read, above, upper, *, is_parent):
        above = replace(above, row_of=np.maximum(above.row_of, _person_rows._NONE))
        return children(stage, read, above, upper, is_parent=is_parent)

    monkeypatch.setattr(_person_rows, "_children", forgetful)
    assert changes_others(tables_of(SHARED))


def test_owners_that_are_forgotten_are_caught(monkeypatch):
    owners = _person_rows._owners
    monkeypatch.setattr(
        _person_rows, "_owners", lambda keys, who, n: np.maximum(owners(keys, who, n), -1)
    )
    with pytest.raises(AssertionError):
        test_a_row_is_of_the_part_of_its_only_person.hypothesis.inner_test(SHARED)
