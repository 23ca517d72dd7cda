"""Columns of labels that are not known: what commands write of the labels that a fit discovers."""

import json
from pathlib import Path

import pandas as pd
import pytest

from sklearn_dpgen.command_line import _fit
from sklearn_dpgen.schema import OpenCategorical, Schema

COLUMNS = """\
  town: {type: open_categorical, nullable: true}
  age: {type: numeric, low: 0, high: 100, integer: true, nullable: true}
"""
TOWNS = ("Łódź", "Paris; Texas", "Bergen")
FIT = ("--epsilon", 8, "--schema")


@pytest.fixture
def towns(folder, monkeypatch):
    """A table with towns in each format, and schemas of one table with them."""
    made = _fit.make_sampler

    def make(*args, **options):
        return made(*args, **options).set_params(population_size=200, max_iter=2)

    monkeypatch.setattr(_fit, "make_sampler", make)
    columns = {"town": [*TOWNS] * 200, "age": [None, *range(2, 101)] * 6}
    table = pd.DataFrame(columns).astype({"age": "Int64"})
    table.to_csv("towns.csv", index=False)
    table.to_csv("towns.tsv", sep="\t", index=False)
    table.to_parquet("towns.parquet", index=False)
    table.to_json("towns.jsonl", orient="records", lines=True)
    Path("towns.yaml").write_text(f"columns:\n{COLUMNS}", encoding="utf-8")
    form = f'delimiter: ";"\nencoding: cp1252\ncolumns:\n{COLUMNS}'
    Path("windows.yaml").write_text(form, encoding="utf-8")
    return folder


READ = {
    ".csv": pd.read_csv,
    ".tsv": lambda path: pd.read_csv(path, sep="\t"),
    ".jsonl": lambda path: pd.DataFrame(
        map(json.loads, Path(path).read_text(encoding="utf-8").splitlines())
    ),
    ".parquet": pd.read_parquet,
}


@pytest.mark.slow
@pytest.mark.parametrize("ending", READ)
def test_rows_with_discovered_labels_are_written(run, towns, ending):
    done = run("synthesize", f"towns{ending}", *FIT, "towns.yaml", "--out", "out")
    assert done.code == 0, done.err
    assert {*READ[ending](f"out/synthetic{ending}")["town"].dropna()} - {"other"} == {*TOWNS}
    drawn = run("sample", "out/model.safetensors", "--rows", 100, "--out", f"more{ending}")
    assert drawn.code == 0, drawn.err
    assert {*READ[ending](f"more{ending}")["town"].dropna()} - {"other"} == {*TOWNS}


@pytest.mark.slow
def test_labels_that_the_encoding_lacks_are_escaped(run, towns):
    done = run("synthesize", "towns.parquet", *FIT, "windows.yaml", "--out", "out")
    assert done.code == 0, done.err
    drawn = run("sample", "out/model.safetensors", "--rows", 100, "--out", "more.csv")
    assert drawn.code == 0, drawn.err
    # References of XML would have semicolons, outside of quotes.
    found = pd.read_csv("more.csv", sep=";", encoding="cp1252")
    assert [*found] == ["town", "age"]
    assert {*found["town"].dropna()} - {"other"} == {r"\u0141ód\u017a", "Paris; Texas", "Bergen"}


def test_tables_with_keys_refuse_open_columns_before_they_spend(run, towns):
    table = "tables:\n  people:\n    columns:\n" + "".join(
        f"    {line}\n" for line in COLUMNS.splitlines()
    )
    keys = "    primary_key: person\n    max_rows: 2\n    sequence_index: age\n"
    text = (table + keys).replace("integer: true, nullable: true", "integer: true")
    Path("keys.yaml").write_text(text, encoding="utf-8")
    frame = pd.read_parquet("towns.parquet")
    frame.assign(person=[i // 2 for i in range(600)], age=[1, 2] * 300).to_csv("keys.csv")
    made = run("ledger", "init", "budget.db", "--dataset", "d", "--epsilon", 10, "--delta", 1e-5)
    assert made.code == 0
    before = run("ledger", "show", "budget.db", "--json").json
    done = run("synthesize", "keys.csv", *FIT, "keys.yaml", "--ledger", "budget.db", "--out", "o")
    assert done.code == 2
    assert "['town'] must have known categories" in done.err
    assert run("ledger", "show", "budget.db", "--json").json == before


def test_only_declared_names_and_labels_must_fit_the_encoding():
    schema = Schema({"town": OpenCategorical()}, encoding="cp1252")
    assert schema.with_labels({"town": ["Łódź"]})["town"].categories == ("Łódź",)
    with pytest.raises(ValueError, match="encoding must have all characters"):
        Schema({"town": OpenCategorical(other="żadne")}, encoding="cp1252")
