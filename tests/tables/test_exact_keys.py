"""Keys of persons are compared exactly, whatever types those of others have.

In double precision half of the keys of PERSONS are equal to others, and pandas makes integers
beside floats floats: one record would then change who the others are.
"""

import json
import sqlite3
from contextlib import closing

import numpy as np
import pandas as pd
import pytest

from sklearn_dpgen.auditing import _pools
from sklearn_dpgen.ledger._unit import Persons, as_objects, joined_ids
from sklearn_dpgen.preprocessing import TabularEncoder, _public_table
from sklearn_dpgen.schema import Categorical, RelationalSchema, Schema, Table
from sklearn_dpgen.tables import _person_rows, _records, _table_counter
from sklearn_dpgen.tables._person_rows import persons_of_rows, read_person_rows, stages_of
from sklearn_dpgen.tables._records import open_records

N = 100
PERSONS = list(range(2**53, 2**53 + N))
COLUMNS = Schema({"a": Categorical(["x", "y"])})
PANEL = RelationalSchema({"t": Table(COLUMNS, primary_key="id", max_rows=2)})
TABLES = RelationalSchema(
    {
        "p": Table(COLUMNS, primary_key="id"),
        "v": Table(COLUMNS, foreign_key={"id": "p"}, max_rows=2),
    }
)
# Of one more person, who is another one in each case.
KEYS = [5, 5.5, 5.0, np.float64(5.5), np.int64(5), float(2**54)]
KINDS = ["objects", "chunks", "chunks of objects", "reversed", "json", "sqlite"]


def source_of(kind, keys, path):
    """Return a table of keys in which the type of the last may be another."""
    frame = pd.DataFrame({"id": pd.Series(keys, dtype=object), "a": "x"})
    if kind == "objects":
        return frame
    if "chunks" in kind or kind == "reversed":
        parts = [frame[:-1], frame[-1:]]
        parts = parts if "objects" in kind else [part.infer_objects() for part in parts]
        return parts[::-1] if kind == "reversed" else parts
    rows = [(getattr(key, "item", lambda key=key: key)(), "x") for key in keys]
    if kind == "json":
        path = path.with_suffix(".jsonl")
        path.write_text("".join(json.dumps({"id": k, "a": a}) + "\n" for k, a in rows))
        return path
    path = path.with_suffix(".db")
    path.unlink(missing_ok=True)
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("CREATE TABLE t (id NUMERIC, a TEXT)")
        connection.executemany("INSERT INTO t VALUES (?, ?)", rows)
    return f"sqlite:///{path}::t"


def n_of_unit(source, store):
    encoder = TabularEncoder(COLUMNS, n_bins={}).fit(pd.DataFrame({"a": ["x"]}))
    records = open_records(source, encoder, store=store, unit="id")
    assert records.counts([(0,)])[0].sum() == records.n_records
    return records.n_records


def read(tables, schema):
    stages = stages_of(schema)
    encoder = TabularEncoder(COLUMNS, n_bins={}).fit(pd.DataFrame({"a": ["x"]}))
    encoders = [encoder if stage.columns else None for stage in stages]
    return [len(rows.weights) for rows in read_person_rows(tables, stages, encoders)]


def check_all(kind, key, folder):
    def source():
        return source_of(kind, [*PERSONS, key], folder / "t")

    for store in ("codes", "none"):
        assert n_of_unit(source(), store) == N + 1
    assert read(source(), PANEL) == [N + 1, N + 1]
    children = source_of("chunks", PERSONS, folder / "v")
    assert read({"p": source(), "v": children}, TABLES) == [N + 1, N]
    parents = source_of("chunks", PERSONS, folder / "p")
    # The key of the child is that of no person.
    assert read({"p": parents, "v": source()}, TABLES) == [N, N]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("key", KEYS, ids=lambda key: f"{type(key).__name__}-{key}")
def test_the_key_of_one_person_does_not_merge_others(kind, key, tmp_path):
    check_all(kind, key, tmp_path)


def joined_by_pandas(parts):
    """Join as pandas does, the types of objects inferred again."""
    return pd.concat([pd.Series(part).infer_objects() for part in parts]).pipe(pd.Index)


@pytest.mark.parametrize("module", [_records, _table_counter, _person_rows])
@pytest.mark.parametrize("kind", ["chunks", "reversed"])
# pandas 2.2 says that empty parts will count.
@pytest.mark.filterwarnings("ignore:The behavior of (array|DataFrame) concatenation:FutureWarning")
def test_keys_that_are_joined_by_pandas_are_caught(module, kind, tmp_path, monkeypatch):
    monkeypatch.setattr(module, "joined_ids", joined_by_pandas)
    check_all(kind, 5, tmp_path)
    with pytest.raises(AssertionError):
        check_all(kind, 5.5, tmp_path)


@pytest.mark.parametrize("store", ["codes", "none"])
@pytest.mark.parametrize("other", [7.0, np.float64(7), np.int32(7)])
def test_equal_numbers_of_several_types_are_one_person(store, other):
    for ids in ([7], [7, 2**53 + 1]):
        parts = [pd.DataFrame({"id": own, "a": "x"}) for own in (ids, [other])]
        for source in (parts, parts[::-1]):
            assert n_of_unit(source, store) == len(ids)
            assert read(source, PANEL) == [len(ids), len(ids) + 1]


def test_scalars_of_numpy_are_compared_exactly():
    ids = pd.Series([np.int64(2**53 + 1), 2.0**53, np.float64(2**53), 2**53], dtype=object)
    assert ids[0] == ids[1]
    assert Persons(ids).codes.tolist() == [0, 1, 1, 1]
    assert {*map(type, as_objects(ids))} == {int, float}
    assert type(ids[0]) is np.int64


def test_joined_ids_keep_a_common_dtype():
    for dtype in ("int64", "Int64", "string", "datetime64[ns]"):
        part = pd.Series([1, 2]).astype(str if dtype == "string" else "int64").astype(dtype)
        assert joined_ids([part, part]).dtype == part.dtype
    assert joined_ids([]).tolist() == []
    assert joined_ids([pd.Index([1]), pd.Index([2], dtype="uint64")]).tolist() == [1, 2]


def keys_of_public(parts):
    encoder = TabularEncoder(COLUMNS, n_bins={}).fit(pd.DataFrame({"a": ["x"]}))
    reader = _public_table._Reader(encoder.columns_, None, ["id"])
    for part in parts:
        reader.read(part)
    return reader.rows(COLUMNS, None).keys["id"]


def test_keys_of_public_tables_stay_apart(monkeypatch, tmp_path):
    parts = source_of("chunks", [*PERSONS, 5.5], tmp_path)
    assert keys_of_public(parts).tolist() == [*PERSONS, 5.5]
    monkeypatch.setattr(_public_table, "joined_ids", joined_by_pandas)
    assert keys_of_public(parts).nunique() < N


def test_persons_of_tables_in_memory_and_of_audits_are_told_apart():
    tables = {
        "p": pd.DataFrame({"id": pd.Series([*PERSONS, 5.5], dtype=object), "a": "x"}),
        "v": pd.DataFrame({"id": PERSONS, "a": "x"}),
    }
    n_persons, persons = persons_of_rows(tables, stages_of(TABLES))
    assert n_persons == N + 1
    assert persons["v"].tolist() == list(range(N))
    others = {"v": tables["v"], "w": pd.DataFrame({"id": [5.5], "a": "x"})}
    assert len(_pools._by_person(others, "id")[1]) == N + 1
