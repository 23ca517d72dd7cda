"""Values come back as they came: integers beside nulls, codes, labels, dates, money, decimals."""

import re
import shutil
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

from sklearn_dpgen.command_line import main
from sklearn_dpgen.command_line._files import write_table
from sklearn_dpgen.schema import Inequality, Numeric, Schema

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


@pytest.mark.slow
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


HOSPITAL = """\
admitted:
  type: datetime
  low: 2021-01-01
  high: 2024-12-31
  format: "%d/%m/%Y %H:%M"
  description: time of | admission
cost: {type: numeric, low: 0, high: 10000, step: 0.01, decimal: ",", thousands: ".", currency: €}
owed: {type: numeric, low: -5000, high: 5000, decimal: ",", thousands: " ", currency: 1 kr}
fever: {type: numeric, low: 34, high: 42, step: 0.1, nullable: true}
dose: {type: numeric, low: 0, high: 500}
"""
PATTERNS = {
    "admitted": r"\d{2}/\d{2}/202[1-4] \d{2}:\d{2}",
    "cost": r"€ (\d{1,2}\.)?\d{1,3},\d{2}",
    "owed": r"-?(\d )?\d{1,3},\d{2} kr",
    "fever": r"(\d{2}\.\d)?",
    "dose": r"\d+\.\d{1,5}",
}


@pytest.fixture(scope="module")
def stays(tmp_path_factory):
    """A folder with a messy table, its schema and the results of a fit."""
    folder, rng, n = tmp_path_factory.mktemp("stays"), np.random.default_rng(0), 300
    costs, owed = rng.gamma(2, 600, n).clip(0, 9999), rng.normal(0, 900, n).clip(-4999, 4999)
    times = pd.Timestamp("2021-01-01") + pd.to_timedelta(rng.integers(0, 2 * 10**6, n), unit="min")
    table = pd.DataFrame(
        {
            "admitted": times.strftime("%d/%m/%Y %H:%M"),
            "cost": [f"€ {v:,.2f}".translate(str.maketrans(",.", ".,")) for v in costs],
            "owed": [f"{v:,.2f}\u00a0kr".translate(str.maketrans(",.", "\u00a0,")) for v in owed],
            "fever": [f"{v:.1f}" if v < 39 else "" for v in rng.normal(37, 1, n).clip(35, 41)],
            "dose": rng.uniform(0, 500, n).round(3),
        }
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        table.to_csv("stays.csv", index=False)
        Path("stays.yaml").write_text(HOSPITAL, encoding="utf-8")
        fit = ("synthesize", "stays.csv", "--schema", "stays.yaml", "--epsilon", "5")
        assert main([*fit, "--out", "made", "--not-private-report", "--quiet"]) == 0
    return folder


def strays(path):
    """Return the texts of a table that are not written as declared."""
    table = pd.read_csv(path, dtype=str, keep_default_na=False)
    return {
        name: [text for text in table[name] if not re.fullmatch(pattern, text)]
        for name, pattern in PATTERNS.items()
    }


@pytest.mark.slow
def test_dates_money_and_decimals_come_back_as_they_came(run, folder, stays):
    shutil.copytree(stays, folder, dirs_exist_ok=True)
    assert run("check", "stays.yaml", "stays.csv", "--json").json["faults"] == {}
    model, more = "made/model.safetensors", "more.csv.gz"
    assert run("sample", model, "--rows", "100", "--out", more).code == 0
    for path in ("made/synthetic.csv", more):
        assert not any(strays(path).values())
        assert run("check", "stays.yaml", path, "--json").json["faults"] == {}
    # The pattern finds what pandas would write.
    table = pd.read_csv("made/synthetic.csv")
    table.assign(admitted=pd.to_datetime(table["admitted"], dayfirst=True)).to_csv("plain.csv")
    assert len(strays("plain.csv")["admitted"]) == len(table)
    public = run("check", "stays.yaml", "--public", "made/synthetic.csv", "--json").json["public"]
    assert set(public["unknown"].values()) == {0}
    assert r"time of \| admission" in Path("made/card.md").read_text(encoding="utf-8")


def test_conditions_are_in_iso_dates_and_plain_numbers(run, folder, stays):
    shutil.copytree(stays, folder, dirs_exist_ok=True)
    sample = ("sample", "made/model.safetensors", "--rows", "50", "--out", "late.csv", "--where")
    assert run(*sample, "admitted >= '2023-01-15' and cost <= 999.5").code == 0
    table = pd.read_csv("late.csv", dtype=str)
    days = pd.to_datetime(table["admitted"], format="%d/%m/%Y %H:%M")
    assert days.min() >= pd.Timestamp("2023-01-15")
    assert table["cost"].str.len().max() == len("€ 999,50")


def test_other_formats_keep_types(run, folder, stays):
    pq = pytest.importorskip("pyarrow.parquet")
    shutil.copytree(stays, folder, dirs_exist_ok=True)
    sample = ("sample", "made/model.safetensors", "--rows", "50", "--out", "more.parquet")
    assert run(*sample).code == 0
    types = [str(field.type) for field in pq.read_schema("more.parquet")]
    assert types == ["timestamp[us]", "double", "double", "double", "double"]
    assert run("check", "stays.yaml", "more.parquet", "--json").json["faults"] == {}


SECRET = "4711,5 secret"


@pytest.mark.parametrize("name", ["admitted", "cost"])
def test_what_does_not_parse_is_counted_and_never_shown(run, folder, stays, name):
    shutil.copytree(stays, folder, dirs_exist_ok=True)
    table = pd.read_csv("stays.csv", dtype=str, keep_default_na=False)
    table.loc[3, name] = SECRET
    table.to_csv("bad.csv", index=False)
    done = run("check", "stays.yaml", "bad.csv", "--json")
    assert done.json["faults"] == {name: {"unreadable": 1}}
    fit = ("synthesize", "bad.csv", "--schema", "stays.yaml", "--epsilon", "5", "--out", "bad")
    failed = run(*fit)
    assert failed.code != 0
    assert f"Column {name!r} is declared" in failed.all
    assert "4711" not in done.all + failed.all


def test_numbers_of_rules_are_not_rounded(tmp_path):
    schema = Schema({"a": Numeric(0, 10), "b": Numeric(0, 5000), "c": Numeric(0, 10, step=0.1)})
    frame = pd.DataFrame({"a": [1.23456789], "b": [1.23456788], "c": [0.1 + 0.2]})
    ruled = SimpleNamespace(schema=schema, constraints=[Inequality("b", "a")])
    written = {}
    for name, model in {"ruled": ruled, "free": SimpleNamespace(schema=schema)}.items():
        write_table(frame, tmp_path / name, ".csv", model)
        written[name] = pd.read_csv(tmp_path / name).loc[0].tolist()
    assert written["ruled"] == [1.23456789, 1.23456788, 0.3]
    # Each by its own bounds, so that the order is lost.
    assert written["free"] == [1.23457, 1.23, 0.3]
