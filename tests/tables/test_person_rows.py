"""Rows of persons in tables with keys: each person's part is a function of the own rows alone."""

import datetime

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sklearn_dpgen.preprocessing import TabularEncoder, _reader
from sklearn_dpgen.schema import (
    Categorical,
    Identifier,
    Numeric,
    RelationalSchema,
    Schema,
    Table,
)
from sklearn_dpgen.tables import _person_rows
from sklearn_dpgen.tables._person_rows import read_person_rows, stages_of
from sklearn_dpgen.tables._table_counter import WHOLE

N_PERSONS = 4
DAY = Numeric(0, 3, integer=True)
ITEM = {"item": Categorical(["a", "b", "c"]), "paid": Categorical([False, True])}
SCHEMA = RelationalSchema(
    {
        "lines": Table(Schema(ITEM), foreign_key={"visit": "visits"}, max_rows=2),
        "visits": Table(
            Schema({"kind": Categorical(["x", "y"]), "day": DAY}),
            primary_key="visit",
            foreign_key={"person": "persons"},
            sequence_index="day",
            max_rows=2,
        ),
        "persons": Table(
            Schema({"who": Categorical(list(range(N_PERSONS))), "sex": Categorical(["f", "m"])}),
            primary_key="person",
        ),
    }
)
PANEL = RelationalSchema(
    {
        "rows": Table(
            Schema(
                {
                    "day": DAY,
                    "who": Categorical(list(range(N_PERSONS))),
                    **ITEM,
                    "sex": Categorical(["f", "m"]),
                }
            ),
            primary_key="person",
            sequence_index="day",
            max_rows=3,
            static=["who", "sex"],
        )
    }
)
LINES = st.lists(st.tuples(st.sampled_from("abc"), st.booleans()), max_size=4)
VISITS = st.lists(st.tuples(st.sampled_from("xy"), st.integers(0, 3), LINES), max_size=4)
PERSON = st.tuples(st.sampled_from("fm"), VISITS)
PERSONS = st.lists(PERSON, min_size=1, max_size=N_PERSONS)
SEEDS = st.integers(0, 1000)

# A person whose rows have ties, duplicates and no order of their own, and another one. Two visits
# are equal but for their lines.
NASTY = ("f", [("x", 1, [*"abcabcaa"]), ("y", 1, [*"cba"]), ("x", 0, []), ("x", 1, [*"ab"])])
NASTY = (NASTY[0], [(k, d, [(item, item == "a") for item in items]) for k, d, items in NASTY[1]])
OTHER = ("m", [("y", 2, [("b", False)] * 3)])


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch):
    monkeypatch.setattr(_reader, "_BLOCK", 3)


def encoders(stages):
    """Return an encoder for each stage."""
    found = []
    for stage in stages:
        bins = {"day": 4} if "day" in stage.columns else {}
        columns = stage.columns
        found.append(TabularEncoder(Schema(columns), n_bins=bins).fit() if columns else None)
    return found


def read(tables, schema=SCHEMA):
    stages = stages_of(schema)
    return read_person_rows(tables, stages, encoders(stages))


def frames(persons, seed=None):
    """Return the tables of a dict of persons, with their rows shuffled."""
    rows = {"persons": [], "visits": [], "lines": []}
    for who, (sex, visits) in persons.items():
        rows["persons"].append((100 + who, who, sex))
        for kind, day, lines in visits:
            visit = len(rows["visits"])
            rows["visits"].append((visit, 100 + who, kind, day))
            rows["lines"] += [(visit, item, paid) for item, paid in lines]
    names = {
        "persons": {"person": "int64", "who": "int64", "sex": object},
        "visits": {"visit": "int64", "person": "int64", "kind": object, "day": "int64"},
        "lines": {"visit": "int64", "item": object, "paid": bool},
    }
    tables = {n: pd.DataFrame(rows[n], columns=list(c)).astype(c) for n, c in names.items()}
    return tables if seed is None else shuffled(tables, seed)


def shuffled(tables, seed):
    return {
        name: table.sample(frac=1, random_state=seed + i, ignore_index=True)
        for i, (name, table) in enumerate(tables.items())
    }


def with_orphans(tables):
    """Return tables with rows that belong to nobody: orphans, null keys, and what descends."""
    more = {
        "persons": [{"person": np.nan, "who": 0, "sex": "m"}],
        "visits": [
            {"visit": 900, "person": 999, "kind": "x", "day": 1},
            {"visit": 901, "person": np.nan, "kind": "y", "day": 0},
        ],
        "lines": [{"visit": key, "item": "c", "paid": True} for key in (900, 901, 999, np.nan)],
    }
    return {
        name: pd.concat(
            [table.astype(dict.fromkeys(table.columns, object)), pd.DataFrame(more[name])]
        )
        for name, table in tables.items()
    }


def long(tables):
    """Return one long table of persons with their visits and lines."""
    rows = tables["persons"].merge(tables["visits"]).merge(tables["lines"])
    return rows.drop(columns=["visit", "kind"])


def part_of(who, found):
    """Return the part of one person: codes, weights and children, in their order."""
    columns = [*stages_of(SCHEMA)[0].columns]
    (root,) = np.flatnonzero(found[0].codes[columns.index("who")] == who)
    return below(found, 0, [root])


def below(found, place, rows):
    """Return codes and weights of rows of a stage, with those of their children."""
    children = found[place + 1] if place + 1 < len(found) else None
    part = []
    for row in rows:
        own = [int(codes[row]) for codes in found[place].codes], int(found[place].weights[row])
        inner = [] if children is None else np.flatnonzero(children.parent == row)
        part.append((own, below(found, place + 1, inner)))
    return part


def persons_of(found):
    """Return the person of each row of each stage."""
    owners = [np.arange(len(found[0].weights))]
    for rows in found[1:]:
        owners.append(owners[-1][rows.parent])
    return owners


def equal(first, second):
    for a, b in zip(first, second, strict=True):
        assert [c.dtype for c in a.codes] == [c.dtype for c in b.codes]
        for one, other in zip(
            [*a.codes, a.weights, a.parent], [*b.codes, b.weights, b.parent], strict=True
        ):
            np.testing.assert_array_equal(one, other)


# A person's part is a function of the own rows alone.


def check_own_rows(persons, who, seed):
    """Compare the part of a person among others, somewhere, with the part of that person alone."""
    alone = part_of(who, read(frames({who: persons[who]})))
    tables = frames(persons, seed)
    assert part_of(who, read(tables)) == alone
    parts = {name: [t[:2], t[2:3], t[3:3], t[3:]] for name, t in tables.items()}
    assert part_of(who, read(parts)) == alone
    more = shuffled(with_orphans(tables), seed)
    assert part_of(who, read(more)) == alone


def check_own_rows_of_panel(persons, who, seed):
    def part(persons, seed=None):
        rows = long(frames(persons, seed))
        stages = read(rows, PANEL)
        (root,) = np.flatnonzero(stages[0].codes[0] == who)
        return below(stages, 0, [root])

    if any(lines for _, _, lines in persons[who][1]):
        assert part(persons, seed) == part({who: persons[who]})


def check_all(checks=(check_own_rows, check_own_rows_of_panel)):
    for check in checks:
        for seed in range(5):
            check({0: OTHER, 1: NASTY, 3: OTHER}, 1, seed)


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@given(PERSONS, st.data(), SEEDS)
# pandas 2.2 says that empty parts will count.
@pytest.mark.filterwarnings("ignore:The behavior of (array|DataFrame) concatenation:FutureWarning")
def test_other_persons_and_places_change_nothing_of_a_person(persons, data, seed):
    who = data.draw(st.integers(0, len(persons) - 1))
    persons = dict(enumerate(persons))
    check_own_rows(persons, who, seed)
    check_own_rows_of_panel(persons, who, seed)


def by_position(parent, index, tree, number):
    """Order rows of a parent row as they are in the file."""
    group = parent if index is None else parent * 4 + index
    return np.argsort(group, kind="stable"), np.zeros(len(tree), dtype=np.uint64)


def by_rows_of_all(parent, path):
    return np.full(len(parent), max(len(parent), 1))


@pytest.mark.slow
@pytest.mark.parametrize(("name", "twin"), [("_ordered", by_position), ("_path", by_rows_of_all)])
@pytest.mark.parametrize("check", [check_own_rows, check_own_rows_of_panel])
def test_what_depends_on_places_or_on_others_is_caught(name, twin, check, monkeypatch):
    check_all([check])
    monkeypatch.setattr(_person_rows, name, twin)
    with pytest.raises(AssertionError):
        check_all([check])


def test_the_order_is_that_of_the_files_if_all_hashes_collide(monkeypatch):
    """Then it is still one of the person's own rows, whatever other persons do."""
    tables = frames({0: OTHER, 1: NASTY, 2: OTHER, 3: NASTY})
    tables = {name: pd.concat([t[1::2], t[::2]]) for name, t in tables.items()}
    own = tables["visits"]["visit"][tables["visits"]["person"] == 101]
    alone = {
        name: t[t["person"] == 101] if "person" in t else t[t["visit"].isin(own)]
        for name, t in tables.items()
    }
    assert part_of(1, read(tables)) == part_of(1, read(alone))
    monkeypatch.setattr(_person_rows, "_mixed", np.zeros_like)
    assert part_of(1, read(tables)) == part_of(1, read(alone))
    with pytest.raises(AssertionError):
        check_all()


@pytest.mark.slow
def test_equal_rows_are_ordered_by_their_descendants(monkeypatch):
    monkeypatch.setattr(
        _person_rows,
        "_trees",
        lambda stages, reads, linked: [
            read.hashes(own.rows) for read, own in zip(reads, linked, strict=True)
        ],
    )
    check_all([check_own_rows_of_panel])
    with pytest.raises(AssertionError):
        check_all([check_own_rows])


def test_all_columns_decide_on_the_order():
    columns = {f"c{i}": Categorical(list(range(10))) for i in range(40)}
    schema = RelationalSchema({"t": Table(Schema(columns), primary_key="id", max_rows=2)})
    rng = np.random.default_rng(0)
    rows = np.repeat(rng.integers(0, 10, (1, 40)), 30, axis=0)
    rows[:, [0, 19, 39]] = rng.integers(0, 2, (30, 3))
    frame = pd.DataFrame(rows, columns=list(columns)).assign(id=1)
    found = read(frame, schema)
    for seed in range(5):
        equal(read(frame.sample(frac=1, random_state=seed), schema), found)
    got = sorted(map(tuple, np.column_stack(found[1].codes).tolist()))
    assert got == sorted(map(tuple, rows.tolist()))


# Weights.


def check_weights(persons):
    for found in (read(frames(persons)), read(long(frames(persons)), PANEL)):
        for rows, owner in zip(found, persons_of(found), strict=True):
            assert rows.weights.dtype == np.int64
            assert (np.bincount(owner, rows.weights) <= WHOLE).all()


@pytest.mark.slow
@settings(max_examples=15, deadline=None)
@given(PERSONS.filter(lambda persons: any(lines for _, v in persons for *_, lines in v)))
def test_the_rows_of_a_person_weigh_at_most_one_in_each_stage(persons):
    check_weights(dict(enumerate(persons)))


def test_rows_that_weigh_one_each_are_caught(monkeypatch):
    check_weights({0: NASTY, 1: OTHER})
    monkeypatch.setattr(_person_rows, "_path", lambda parent, path: np.ones_like(parent))
    with pytest.raises(AssertionError):
        check_weights({0: NASTY, 1: OTHER})


def test_weights_are_divided_by_the_rows_on_the_path():
    _, visits, lines = read(frames({0: NASTY}))
    assert visits.weights.tolist() == [WHOLE // 4] * 4
    n_lines = np.bincount(lines.parent, minlength=4)
    assert sorted(n_lines) == [0, 2, 3, 8]
    np.testing.assert_array_equal(lines.weights, WHOLE // (4 * n_lines[lines.parent]))
    # A person with two visits of two lines each weighs exactly one in each stage.
    even = ("f", [("x", 0, [("a", True), ("b", True)]), ("x", 1, [("a", True), ("a", True)])])
    assert [rows.weights.sum() for rows in read(frames({0: even}))] == [WHOLE] * 3


def test_persons_with_too_many_rows_have_no_weight(monkeypatch):
    monkeypatch.setattr(_person_rows, "WHOLE", 5)
    many = ("f", [("x", 1, [("a", True)] * 40)] * 6)
    persons, visits, lines = read(frames({0: many, 1: OTHER}))
    assert persons.weights.tolist() == [5, 5]
    assert visits.weights.tolist() == [0] * 6 + [5]
    assert lines.weights.tolist() == [0] * 240 + [5 // 3] * 3


def test_products_of_numbers_of_rows_do_not_overflow():
    path = np.array([1, WHOLE + 1, 3])
    parent = np.repeat([0, 1, 2], [2, 100_000, 1])
    found = _person_rows._path(parent, path)
    assert found[[0, 2, -1]].tolist() == [2, WHOLE + 1, 3]
    assert found.max() == WHOLE + 1


# Order.


def test_rows_are_by_parent_and_index_and_stay_more_than_max_rows():
    _, visits, lines = read(frames({0: OTHER, 1: NASTY, 2: NASTY}, 0))
    columns = [*stages_of(SCHEMA)[1].columns]
    days = visits.codes[columns.index("day")]
    np.testing.assert_array_equal(np.lexsort((days, visits.parent)), np.arange(9))
    assert sorted(np.bincount(visits.parent)) == [1, 4, 4]
    assert (np.diff(lines.parent) >= 0).all()
    assert len(lines.parent) == 3 + 13 + 13


def persons_with(items, n):
    """Return a schema and tables of n persons with the same rows."""
    who = Categorical(list(range(n + 1)))
    schema = RelationalSchema(
        {
            "p": Table(Schema({"who": who}), primary_key="k"),
            "c": Table(Schema({"item": ITEM["item"]}), foreign_key={"k": "p"}, max_rows=3),
        }
    )
    keys = np.arange(n)
    child = pd.DataFrame({"k": np.repeat(keys, len(items)), "item": [*items] * n})
    return schema, {"p": pd.DataFrame({"k": keys, "who": keys}), "c": child}


def test_equal_rows_are_not_clumped():
    schema, tables = persons_with("a" * 100 + "b" * 100, 1)
    _, rows = read(tables, schema)
    n_changes = np.count_nonzero(np.diff(rows.codes[0].astype(int)))
    # Of 199 neighbours of a random order half differ; 5 standard deviations are 36.
    assert abs(n_changes - 100) < 36


def test_persons_with_the_same_rows_have_orders_of_their_own(monkeypatch):
    """Each row is as often the first one, so that an order does not make rows differ."""
    monkeypatch.setattr(_reader, "_BLOCK", 1 << 16)
    n = 3000
    schema, tables = persons_with("aab", n)

    def places():
        _, rows = read(tables, schema)
        return rows.codes[0].reshape(n, 3).argmax(axis=1)

    counts = np.bincount(places(), minlength=3)
    assert (np.abs(counts - n / 3) < 5 * np.sqrt(n * 2 / 9)).all()
    ordered = _person_rows._ordered
    monkeypatch.setattr(
        _person_rows, "_ordered", lambda *args: ordered(*args[:3], args[3] * np.uint64(0))
    )
    assert len(set(places())) == 1


# Keys.


def test_orphans_and_what_descends_from_them_are_dropped():
    tables = frames({0: NASTY, 1: OTHER})
    equal(read(with_orphans(tables)), read(tables))


def test_rows_of_a_parent_table_without_a_key_are_dropped_with_their_weight():
    tables = frames({0: NASTY})
    tables["visits"]["visit"] = tables["visits"]["visit"].where(tables["visits"]["visit"] > 0)
    _, visits, lines = read(tables)
    assert visits.weights.tolist() == [WHOLE // 3] * 3
    assert len(lines.parent) == 5


def test_of_a_repeated_key_one_row_is_kept_wherever_it_is():
    tables = frames({0: NASTY, 1: OTHER})
    again = tables["persons"].assign(sex=["m", "f"])
    visits = tables["visits"].assign(kind="y", day=[0, 0, 3, 0, 0])
    more = {
        "persons": pd.concat([tables["persons"], again, again]),
        "visits": pd.concat([tables["visits"], visits]),
        "lines": tables["lines"],
    }
    found = read(more)
    assert [len(rows.weights) for rows in found] == [2, 5, 16]
    for seed in range(5):
        for who in (0, 1):
            assert part_of(who, read(shuffled(more, seed))) == part_of(who, found)
    given = {(row.kind, row.day) for row in more["visits"].itertuples()}
    kept = zip(*(codes.tolist() for codes in found[1].codes), strict=True)
    assert {("xy"[kind], day) for kind, day in kept} <= given


def test_rows_that_descend_from_two_persons_belong_to_none():
    tables = frames({0: NASTY, 1: OTHER})
    shared = tables["visits"][:1].assign(person=101)
    tables["visits"] = pd.concat([tables["visits"], shared])
    _, visits, lines = read(tables)
    assert len(visits.weights) == 6
    assert len(lines.weights) == 16 - 8
    # Without the other person and the shared lines, the part of the first is the same.
    own = {name: table.copy() for name, table in frames({0: NASTY}).items()}
    own["lines"] = own["lines"][own["lines"]["visit"] != 0]
    assert part_of(0, read(own)) == part_of(0, read(tables))


def test_a_key_of_two_parent_rows_of_one_person_has_no_children():
    columns = Schema({"c": Categorical([0, 1, 2])})
    schema = RelationalSchema(
        {
            "p": Table(columns, primary_key="p"),
            "v": Table(columns, primary_key="v", foreign_key={"p": "p"}, max_rows=2),
            "l": Table(columns, primary_key="l", foreign_key={"v": "v"}, max_rows=2),
            "n": Table(columns, foreign_key={"l": "l"}, max_rows=2),
        }
    )
    tables = {
        "p": pd.DataFrame({"p": [1], "c": 0}),
        "v": pd.DataFrame({"v": [1, 2], "p": 1, "c": 0}),
        # The key 7 is one of both visits, and the key 8 is twice in one.
        "l": pd.DataFrame({"l": [7, 7, 8, 8, 9], "v": [1, 2, 1, 1, 2], "c": [0, 0, 1, 2, 1]}),
        "n": pd.DataFrame({"l": [7, 8, 9, 9], "c": [0, 1, 2, 1]}),
    }
    expected = below(read(tables, schema), 0, [0])
    assert [len(rows.weights) for rows in read(tables, schema)] == [1, 2, 4, 3]
    for seed in range(8):
        assert below(read(shuffled(tables, seed), schema), 0, [0]) == expected


def dates(keys):
    return keys.map(lambda key: pd.Timestamp("2020-01-01") + pd.Timedelta(days=int(key)))


@pytest.mark.parametrize(
    "kind",
    [
        "float64",
        "Int64",
        "uint16",
        "int64[pyarrow]",
        "string",
        "string[pyarrow]",
        "category",
        object,
        lambda keys: keys.astype(str).astype(object),
        lambda keys: keys.astype(str).astype("category"),
        lambda keys: keys.astype(str).map(str.encode),
        lambda keys: keys + 2**60,
        dates,
        lambda keys: dates(keys).dt.tz_localize("UTC"),
        lambda keys: dates(keys).dt.date,
    ],
)
def test_keys_of_any_type_link_the_same_rows(kind):
    tables = frames({0: NASTY, 1: OTHER, 2: NASTY}, 0)
    expected = read(tables)
    for name, table in tables.items():
        for key in {"person", "visit"} & {*table.columns}:
            values = table[key]
            table[key] = (
                kind(values) if callable(kind) and kind is not object else values.astype(kind)
            )
        tables[name] = table
    equal(read(tables), expected)


def test_numbers_of_several_dtypes_are_one_key():
    tables = frames({0: NASTY, 1: OTHER})
    expected = read(tables)
    tables["visits"]["person"] = tables["visits"]["person"].astype("float64")
    lines = tables["lines"]
    tables["lines"] = [lines[:5].astype({"visit": "uint8"}), lines[5:].astype({"visit": "Int32"})]
    equal(read(tables), expected)


def test_large_integers_beside_floats_stay_apart():
    tables = frames({0: NASTY, 1: OTHER})
    keys = {100: 2**53, 101: 2**53 + 1}
    tables["persons"]["person"] = tables["persons"]["person"].map(keys)
    expected = read(tables | {"visits": tables["visits"].assign(person=2**53)})
    visits = tables["visits"].assign(person=2**53)
    tables["visits"] = [visits[:2].astype({"person": "float64"}), visits[2:]]
    equal(read(tables), expected)
    assert len(expected[0].weights) == 2


# Sources.


def tables_of(kind, tables, folder):
    """Return tables as another library holds them."""
    if kind == "chunks":
        return {name: iter([t[:2], t[2:]]) for name, t in tables.items()}
    if kind == "csv":
        found = {}
        for name, table in tables.items():
            table[:4].to_csv(folder / f"{name}-0.csv", index=False)
            table[4:].to_csv(folder / f"{name}-1.csv", index=False)
            found[name] = str(folder / f"{name}-*.csv")
        return found
    if kind == "dask":
        dd = pytest.importorskip("dask.dataframe")
        return {name: dd.from_pandas(t, npartitions=3) for name, t in tables.items()}
    pyarrow = pytest.importorskip("pyarrow")
    arrow = {name: pyarrow.Table.from_pandas(t) for name, t in tables.items()}
    if kind == "arrow":
        return arrow
    if kind == "parquet":
        parquet = pytest.importorskip("pyarrow.parquet")
        for name, table in arrow.items():
            parquet.write_table(table, folder / f"{name}.parquet")
        return {name: folder / f"{name}.parquet" for name in tables}
    if kind == "duckdb":
        duckdb = pytest.importorskip("duckdb")
        return {name: duckdb.from_arrow(table) for name, table in arrow.items()}
    polars = pytest.importorskip("polars")
    found = {name: polars.from_arrow(table) for name, table in arrow.items()}
    return {name: t.lazy() for name, t in found.items()} if kind == "lazy" else found


KINDS = ["chunks", "csv", "arrow", "parquet", "duckdb", "polars", "lazy", "dask"]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("is_panel", [False, True])
def test_all_sources_give_the_same_rows(kind, is_panel, tmp_path):
    tables, schema = frames({0: NASTY, 1: OTHER, 3: NASTY}, 1), SCHEMA
    if is_panel:
        tables, schema = {"rows": long(tables)}, PANEL
    equal(read(tables_of(kind, tables, tmp_path), schema), read(tables, schema))


# Panels.


def test_a_panel_has_persons_and_rows():
    frame = pd.DataFrame(
        {
            "person": ["p", "q", "p", None, "p"],
            "day": [3, 2, 0, 0, 1],
            "item": list("abcab"),
            "paid": True,
            "sex": list("fmmff"),
            "who": [0, 1, 0, 2, 0],
        }
    )
    persons, rows = stages_of(PANEL)
    assert [*persons.columns] == ["who", "sex"]
    assert [*rows.columns] == ["day", "item", "paid"]
    assert (persons.name, rows.name, persons.parent, rows.parent) == ("rows", "rows", None, 0)
    assert (rows.index, rows.max_rows, rows.ties) == ("day", 3, True)
    found = read(frame, PANEL)
    equal(read({"rows": frame}, PANEL), found)
    # The static codes are those of the first row by index.
    assert [codes.tolist() for codes in found[0].codes] == [[0, 1], [1, 1]]
    assert found[0].weights.tolist() == [WHOLE] * 2
    assert found[1].parent.tolist() == [0, 0, 0, 1]
    assert [codes.tolist() for codes in found[1].codes[:2]] == [[0, 1, 3, 2], [2, 1, 0, 1]]
    assert found[1].weights.tolist() == [WHOLE // 3] * 3 + [WHOLE]


def test_a_panel_without_static_columns_has_persons_without_columns():
    table = Table(Schema({"day": DAY}), primary_key="person", sequence_index="day", max_rows=3)
    schema = RelationalSchema({"rows": table})
    frame = pd.DataFrame({"person": [1, 2, 1], "day": [3, 2, 0]})
    assert stages_of(schema)[0].columns == {}
    persons, rows = read(frame, schema)
    assert persons.codes == []
    assert persons.weights.tolist() == [WHOLE] * 2
    assert rows.codes[0].tolist() == [0, 3, 2]


# Public tables, identifiers, and a root alone.


def test_keys_of_public_tables_are_categories_and_identifiers_are_not_read():
    towns = pd.DataFrame({"town": ["Ulm", "Bern"], "size": [1.0, 2.0]})
    schema = RelationalSchema(
        {
            "towns": Table(Schema({"size": Numeric(0, 9)}), primary_key="town", frame=towns),
            "p": Table(
                Schema({"sex": Categorical(["f", "m"]), "name": Identifier(), "k": Identifier()}),
                primary_key="k",
                foreign_key={"lives": "towns"},
            ),
        }
    )
    (stage,) = stages_of(schema)
    assert [*stage.columns] == ["sex", "lives"]
    assert stage.public_keys == {"lives": schema["towns"]}
    frame = pd.DataFrame(
        {"k": [5, 6], "lives": ["Bern", "Ulm"], "sex": ["f", "m"], "name": ["secret", "other"]}
    )
    (found,) = read(frame, schema)
    assert [codes.tolist() for codes in found.codes] == [[0, 1], [1, 0]]
    assert found.parent is None
    with pytest.raises(ValueError, match="Table 'p': Column 'lives' holds a value outside"):
        read(frame.assign(lives="secret"), schema)


def test_without_a_primary_key_each_row_of_a_root_is_a_person():
    schema = RelationalSchema({"p": Table(Schema({"sex": Categorical(["f", "m"])}))})
    (found,) = read(pd.DataFrame({"sex": list("ffm")}), schema)
    assert sorted(found.codes[0]) == [0, 0, 1]
    assert found.weights.tolist() == [WHOLE] * 3


@pytest.mark.parametrize("empty", [["lines"], ["visits"], ["visits", "lines"]])
def test_children_may_have_no_rows(empty):
    tables = frames({0: NASTY, 1: OTHER})
    found = read(tables | {name: tables[name][:0] for name in empty})
    assert len(found[0].weights) == 2
    assert [len(c) for c in found[2].codes] == [0, 0]
    assert found[2].parent.dtype == found[2].weights.dtype == np.int64


# Errors.

SECRET = "secret"


@pytest.mark.parametrize(
    ("name", "change", "error", "message"),
    [
        ("persons", lambda t: t[:0], ValueError, "Table 'persons': Found array with 0 sample"),
        ("persons", lambda t: t.assign(person=None), ValueError, "Found array with 0 sample"),
        (
            "visits",
            lambda t: t.assign(person=SECRET),
            ValueError,
            "Table 'visits': foreign_key 'person' must be of the type of the primary key 'person' "
            "of table 'persons'",
        ),
        (
            "visits",
            lambda t: t.assign(person=[datetime.date(2020, 1, 1)] * len(t)),
            ValueError,
            "foreign_key 'person' must be of the type",
        ),
        (
            "visits",
            lambda t: t.assign(person=[SECRET, *t["person"][1:]]),
            ValueError,
            "Table 'visits': Key 'person' mixes texts",
        ),
        (
            "visits",
            lambda t: [t[:3], t[3:].assign(person=SECRET)],
            ValueError,
            "Table 'visits': Key 'person' mixes texts",
        ),
        *(
            (
                "lines",
                lambda t, kind=kind: t.astype({"visit": "float32"}).astype({"visit": kind}),
                TypeError,
                "Table 'lines': Key 'visit' must hold integers or texts",
            )
            for kind in ("float16", "float32", "category")
        ),
        (
            "persons",
            lambda t: t.assign(person=[[SECRET]] * len(t)),
            TypeError,
            "Table 'persons': Key 'person' must hold texts or numbers",
        ),
        (
            "lines",
            lambda t: t.drop(columns="visit"),
            ValueError,
            r"Table 'lines': .* of the schema and the keys \['visit'\], .* missing \['visit'\]",
        ),
        (
            "lines",
            lambda t: t.assign(a=1),
            ValueError,
            r"Table 'lines': .* unknown \['a'\]\. Drop the others\.$",
        ),
        (
            "lines",
            lambda t: t.assign(item=SECRET),
            ValueError,
            "Table 'lines': Column 'item' holds a value outside those declared",
        ),
        ("lines", lambda t: t.to_numpy(), TypeError, "Table 'lines': .* got ndarray"),
        ("lines", lambda t: 5, TypeError, "Table 'lines': .* got int"),
    ],
)
def test_faults_name_table_column_and_rule(name, change, error, message):
    tables = frames({0: NASTY, 1: OTHER})
    with pytest.raises(error, match=message) as caught:
        read(tables | {name: change(tables[name])})
    assert SECRET not in str(caught.value)


def test_tables_are_exactly_the_private_ones():
    tables = frames({0: NASTY})
    with pytest.raises(ValueError, match=r"tables must be the private .*: unknown \['towns'\]"):
        read(tables | {"towns": tables["persons"]})
    with pytest.raises(ValueError, match=r"missing \['lines'\]"):
        read({name: tables[name] for name in ("persons", "visits")})
    with pytest.raises(TypeError, match="tables must be a mapping"):
        read(tables["persons"])
