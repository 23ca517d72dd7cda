"""Values come back as they came: integers beside nulls, codes of missing values, labels."""

import shutil
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from sklearn_dpgen.command_line import main

SCHEMA = """\
systolic: {type: numeric, low: 60, high: 220, integer: true, missing: [-999, unknown]}
ward: {type: ordinal, categories: [1, 2, 3], nullable: true}
land: {type: categorical, categories: [NO, NA, 00501]}
"""
FIT = ("synthesize", "raw.csv", "--schema", "raw.yaml", "--epsilon", "5", "--out", "out")


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A folder with a table, its schema and the results of a fit."""
    folder = tmp_path_factory.mktemp("values")
    rng = np.random.default_rng(0)
    table = pd.DataFrame(
        {
            "systolic": rng.choice(["112", "140", "-999", "unknown", ""], 400),
            "ward": rng.choice(["1", "2", ""], 400),
            "land": rng.choice(["NO", "NA", "00501"], 400),
        }
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        table.to_csv("raw.csv", index=False)
        Path("raw.yaml").write_text(SCHEMA, encoding="utf-8")
        assert main([*FIT, "--quiet"]) == 0
    return folder


@pytest.fixture
def files(made, folder):
    shutil.copytree(made, folder, dirs_exist_ok=True)


def test_codes_and_labels_of_a_file_fit(run, files):
    done = run("check", "raw.yaml", "raw.csv", "--json")
    assert done.code == 0
    assert done.json["faults"] == {}


def test_integers_beside_nulls_are_written_as_integers(run, files):
    model = "out/model.safetensors"
    assert run("sample", model, "--rows", "300", "--out", "more.csv").code == 0
    for path in ("out/synthetic.csv", "more.csv"):
        table = pd.read_csv(path, dtype=str, keep_default_na=False)
        for name in ("systolic", "ward"):
            texts = set(table[name])
            assert "" in texts
            assert all(text.isdigit() for text in texts - {""})
        assert set(table["land"]) == {"NO", "NA", "00501"}
        # What was written is read by the same schema.
        assert run("check", "raw.yaml", path, "--json").json["faults"] == {}


def test_integers_beside_nulls_are_integers_of_parquet(run, files):
    pq = pytest.importorskip("pyarrow.parquet")
    model = "out/model.safetensors"
    assert run("sample", model, "--rows", "300", "--out", "more.parquet").code == 0
    table = pq.read_table("more.parquet")
    for name in ("systolic", "ward"):
        assert str(table.schema.field(name).type) == "int64"
        assert table[name].null_count > 0
    assert run("check", "raw.yaml", "more.parquet").code == 0


def test_a_schema_that_repeats_a_column_is_refused(run, folder):
    (folder / "twice.yaml").write_text(SCHEMA + SCHEMA.splitlines()[0], encoding="utf-8")
    done = run("check", "twice.yaml")
    assert done.code == 1
    assert "must not repeat a key: line 4 has that of line 1" in done.out
