"""Estimators take the path of a schema file, and errors offer the names that were meant."""

import json
from pathlib import Path

import pandas as pd
import pytest
from sklearn.base import clone

from sklearn_dpgen.evolution import PrivateEvolutionSampler, PrivateSignedMeasureSampler
from sklearn_dpgen.exceptions import PublicFileNotFoundError, PublicValueError
from sklearn_dpgen.ledger import PrivacyLedger
from sklearn_dpgen.mechanisms import TabularMechanism
from sklearn_dpgen.preprocessing import TabularEncoder
from sklearn_dpgen.schema import (
    Categorical,
    Numeric,
    RelationalSchema,
    Schema,
    Table,
    export_schema,
    read_schema,
)
from sklearn_dpgen.tables import RelationalSampler, TableSampler

SCHEMA = Schema({"age": Numeric(0, 99), "land": Categorical(["NO", "SE"])})
TABLES = RelationalSchema({"people": Table(SCHEMA)})


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "one.yaml").write_text(SCHEMA.to_yaml())
    (tmp_path / "one.json").write_text("﻿" + SCHEMA.to_json())
    (tmp_path / "all.yml").write_text(TABLES.to_yaml())
    return tmp_path


@pytest.mark.parametrize("path", ["one.yaml", "one.json", Path("one.yaml")])
@pytest.mark.parametrize(
    "kind", [TableSampler, TabularMechanism, TabularEncoder, PrivateEvolutionSampler]
)
def test_an_estimator_takes_a_path(folder, path, kind):
    estimator = kind(schema=path)
    assert estimator.schema == SCHEMA
    # What becomes of the file has no effect on the estimator, nor on its clone.
    (folder / path).unlink()
    assert clone(estimator).schema == SCHEMA
    assert estimator.get_params()["schema"] == SCHEMA


def test_evolution_plans_by_a_path(folder):
    plans = [PrivateEvolutionSampler(1.0, schema=s).plan(400) for s in ("one.yaml", SCHEMA)]
    assert plans[0] == plans[1]
    # A sampler of a domain has no schema.
    assert PrivateSignedMeasureSampler().schema is None


def test_the_public_table_is_another_file_than_the_private_one(folder):
    frame = pd.DataFrame({"age": range(40), "land": ["NO", "SE"] * 20})
    for name in ("private.csv", "other.csv"):
        frame.to_csv(name, index=False)
    (folder / "link.csv").symlink_to(folder / "private.csv")
    ledger = PrivacyLedger.create("a.ledger", dataset="a", epsilon=300.0, delta=1e-3)
    given = {"epsilon": 200.0, "population_size": 20, "max_iter": 1, "ledger": ledger}
    for public in ("private.csv", "link.csv", "p*.csv", ["other.csv", "private.csv"]):
        for declared in (
            {"schema": Schema(SCHEMA, public=public)},
            {"schema": SCHEMA, "public": public},
        ):
            for X in ("private.csv", [folder / "private.csv"]):
                with pytest.raises(PublicValueError, match="public must be another file"):
                    TableSampler(**given, **declared).fit(X)
    tables = RelationalSchema({"people": Table(SCHEMA)})
    for public in ("link.csv", {"people": "link.csv"}):
        with pytest.raises(PublicValueError, match="public must be another file"):
            RelationalSampler(2.0, schema=tables, public=public).fit({"people": "private.csv"})
    assert ledger.spent() == 0
    fitted = TableSampler(**given, schema=Schema(SCHEMA, public="other.csv")).fit("private.csv")
    assert fitted.privacy_.public_tables.keys() == {"public"}
    # The path stays with the curator.
    assert fitted.schema_ == SCHEMA
    for form in ("frictionless", "csvw"):
        assert "other.csv" not in json.dumps(export_schema(fitted.schema, form))


def test_set_params_takes_a_path(folder):
    assert TableSampler(schema=TABLES).set_params(schema="one.yaml").schema == SCHEMA
    assert RelationalSampler(schema="all.yml").schema == TABLES


def test_a_fit_by_a_path(folder):
    frame = pd.DataFrame({"age": range(40), "land": ["NO", "SE"] * 20})
    given = {"epsilon": 200.0, "random_state": 0}
    sampler = TableSampler(schema="one.yaml", **given).fit(frame)
    assert set(sampler.sample(5)["land"]) <= {"NO", "SE"}


@pytest.mark.parametrize(
    ("path", "text", "error", "message"),
    [
        ("none.yaml", None, PublicFileNotFoundError, "an existing file, got 'none.yaml'"),
        ("schema.txt", "", PublicValueError, "one of the endings .yaml"),
        ("bytes.yaml", b"\xff\xfea", PublicValueError, "in UTF-8"),
        ("draft.yaml", "a: {type: numeric, low: '...', high: 1}", PublicValueError, "is a draft"),
        ("bad.yaml", "a: [", PublicValueError, "bad.yaml must be valid YAML: see line 1"),
    ],
)
def test_files_that_are_no_schema(folder, path, text, error, message):
    if text is not None:
        (folder / path).write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(error, match=message) as caught:
        read_schema(path)
    assert caught.value.__context__ is None
    if path == "schema.txt":
        # As scikit-learn asks, a wrong value is refused where it is used.
        sampler = TableSampler(schema=path)
        with pytest.raises(ValueError, match="schema.* must be an instance of .*Schema"):
            sampler.fit(pd.DataFrame({"a": [1]}))
        return
    with pytest.raises(error, match=message):
        TableSampler(schema=path)


def test_files_of_a_schema_are_in_its_folder(folder):
    (folder / "codes.txt").write_text("NO\nSE\n")
    (folder / "two.yaml").write_text("land: {type: categorical, categories_from: codes.txt}")
    assert read_schema("two.yaml") == Schema({"land": SCHEMA["land"]})


@pytest.mark.parametrize("name", ["AGE", " age", "Age ", "a-ge"])
def test_names_in_other_letters_are_offered(folder, name):
    frame = pd.DataFrame({name: [1], "land": ["NO"]})
    frame.to_csv("table.csv", index=False)
    offer = f"The table has 'age' as {name!r}"
    with pytest.raises(ValueError, match=offer):
        SCHEMA.check(frame)
    for table in (frame, "table.csv"):
        with pytest.raises(ValueError, match=offer):
            TableSampler(schema=SCHEMA).fit(table)


def test_records_in_place_of_names_are_not_shown(folder):
    # The first record of a file without a header is read as names.
    Path("table.csv").write_text("secret 7,NO\n3,SE\n")
    with pytest.raises(ValueError, match="age") as caught:
        TableSampler(schema=SCHEMA).fit("table.csv")
    assert "secret" not in str(caught.value)
