"""Public tables: what aligns, what report and ledger say of them, and what is refused."""

import hashlib
import json
import os
from pathlib import Path

import pandas as pd
import pytest
from command_cases import SCHEMA, made_up

import sklearn_dpgen
from sklearn_dpgen.accounting import PrivacyReport
from sklearn_dpgen.command_line import _fit
from sklearn_dpgen.ledger import PrivacyLedger

FIT = ("--schema", "schema.yaml", "--epsilon", "1", "--delta", "1e-6", "--out", "out")
PLAN = ("plan", "--schema", "schema.yaml", "--rows", "5000", "--epsilon", "1")
INIT = ("ledger", "init", "l.db", "--dataset", "d", "--epsilon", "4", "--delta", "1e-5")


def sha256(path):
    return hashlib.sha256(Path(path).read_bytes()).hexdigest()


@pytest.fixture(autouse=True)
def no_pages(monkeypatch):
    """Pages take half of the time, and have tests of their own."""
    monkeypatch.setattr(_fit, "_publish", lambda *args: None)


@pytest.fixture
def public(folder):
    """A public table with columns in another order, labels that are not declared, and weights."""
    table = made_up(60)[["smoker", "age"]].assign(w=2.0, region="north")
    table.loc[:6, "smoker"] = "sometimes"
    table.to_csv("public.csv", index=False)
    return "public.csv"


def test_check_says_what_aligns(run, public):
    done = run("check", "schema.yaml", "--public", public, "--json")
    assert done.code == 0
    assert done.json["public"] == {
        "fault": None,
        "sha256": sha256(public),
        "n_rows": 60,
        "unknown": {"age": 0, "smoker": 7},
        "unread": [],
        "lacking": ["grade"],
    }
    assert "private" not in done.json
    text = run("check", "schema.yaml", "table.csv", "--public", public).out
    assert text.startswith("PRIVATE: ")
    for line in (
        f"Public table: 60 rows, SHA-256 {sha256(public)}.",
        "'smoker': aligned; cells not known: 7",
        "'grade': not in the public table",
    ):
        assert line in text.splitlines()
    # Negative twin: without the option nothing is said of it.
    assert "public" not in run("check", "schema.yaml", "table.csv", "--json").json


def test_check_says_which_column_is_not_used(run, public):
    pd.read_csv(public).assign(grade="A").to_csv(public, index=False)
    done = run("check", "schema.yaml", "--public", public, "--json")
    assert done.code == 0
    assert (done.json["public"]["unread"], done.json["public"]["lacking"]) == (["grade"], [])
    said = run("check", "schema.yaml", "--public", public).out
    assert "'grade': no cell is known, so it is not used" in said


def test_check_takes_weights_and_several_files(run, public):
    table = pd.read_csv(public)
    table.loc[:9, "w"] = 0
    table[:30].to_csv("part-1.csv", index=False)
    table[30:].to_csv("part-2.csv", index=False)
    for files in (["part-*.csv"], ["part-1.csv", "--public", "part-2.csv"]):
        done = run(*("check", "schema.yaml", "--public", *files, "--public-weights", "w", "--json"))
        assert done.json["public"]["n_rows"] == 50
        assert done.json["public"]["unknown"] == {"age": 0, "smoker": 0}


@pytest.mark.parametrize(
    ("table", "options", "said"),
    [
        ({"region": ["north"]}, (), "public must have a column of the schema"),
        ({"grade": ["A"]}, (), "public must have a cell that the schema declares"),
        ({"grade": [1]}, ("--public-weights", "w"), "weights must be a column"),
        ({"grade": [1], "w": [-1.0]}, ("--public-weights", "w"), "must hold weights"),
    ],
)
def test_a_public_table_that_is_of_no_use(run, table, options, said):
    pd.DataFrame(table).to_csv("public.csv", index=False)
    done = run("check", "schema.yaml", "--public", "public.csv", *options, "--json")
    assert done.code == 1
    assert said in done.json["public"]["fault"]
    done = run("check", "schema.yaml", "--public", "public.csv", *options)
    assert said in done.out
    assert "A fit cannot use the public table." in done.out
    done = run(*PLAN, "--public", "public.csv", *options)
    assert done.code == 2
    assert said in done.err


def test_the_plan_names_the_table(run, public):
    done = run(*PLAN, "--public", public, "--json")
    assert done.code == 0, done.err
    assert done.json["report"]["public_tables"] == {"public": sha256(public)}
    assert done.json["report"]["epsilon"] == 1
    assert sha256(public) in run(*PLAN, "--public", public).out
    assert run(*PLAN, "--json").json["report"]["public_tables"] == {}


@pytest.mark.slow
def test_model_and_reports_name_the_table(run, public):
    done = run(
        *("synthesize", "table.csv", *FIT, "--public", public, "--public-weights", "w", "--json")
    )
    assert done.code == 0, done.err
    stated = {"public": sha256(public)}
    assert done.json["report"]["public_tables"] == stated
    report = PrivacyReport.from_dict(json.loads(Path("out/release.json").read_bytes())["privacy"])
    assert report.public_tables == stated
    assert sklearn_dpgen.load("out/model.safetensors").privacy_.public_tables == stated
    text = " ".join(run("inspect", "out/model.safetensors").out.split())
    assert f"public (SHA-256 {sha256(public)}): claimed to be public" in text
    # Columns of the public table that are not declared are not learned.
    assert list(pd.read_csv("out/synthetic.csv").columns) == ["age", "smoker", "grade"]


@pytest.mark.slow
def test_an_earlier_release_of_the_ledger_is_allowed(run, public):
    assert run(*INIT).code == 0
    assert run("synthesize", "table.csv", *FIT[:-1], "one", "--ledger", "l.db").code == 0
    ledger, release = PrivacyLedger("l.db"), "one/synthetic.csv"
    assert ledger.recorded_releases() == {sha256(release): 1}
    shown = run("ledger", "show", "l.db", "--json").json
    assert shown["releases"] == [{"sha256": sha256(release), "charge": 1}]
    before = ledger.spent()
    again = ("synthesize", "table.csv", *FIT[:-1])
    done = run(*again, "two", "--ledger", "l.db", "--public", release)
    assert done.code == 0, done.err
    assert f"public (SHA-256 {sha256(release)}): release of charge 1 of the ledger" in done.out
    report = PrivacyReport.from_dict(json.loads(Path("two/release.json").read_bytes())["privacy"])
    assert report.ledger["public_tables"] == {"public": 1}
    assert report.ledger["epsilon"] == ledger.spent() > before
    # Negative twins: another table, and the same one without its ledger.
    done = run(*again, "three", "--ledger", "l.db", "--public", public)
    assert f"public (SHA-256 {sha256(public)}): claimed to be public" in done.out
    done = run(*again, "four", "--public", release)
    assert f"public (SHA-256 {sha256(release)}): claimed to be public" in done.out


@pytest.mark.slow
def test_further_rows_are_recorded_by_hand(run):
    assert run(*INIT).code == 0
    assert run("synthesize", "table.csv", *FIT, "--ledger", "l.db").code == 0
    assert run("sample", "out/model.safetensors", "--rows", "9", "--out", "more.csv").code == 0
    record = ("ledger", "record", "l.db", "more.csv", "--charge")
    done = run(*record, "1", "--json")
    assert done.code == 0
    assert (done.json["sha256"], done.json["charge"]) == (sha256("more.csv"), 1)
    assert PrivacyLedger("l.db").recorded_releases()[sha256("more.csv")] == 1
    assert run("ledger", "verify", "l.db").code == 0
    done = run(*record, "2")
    assert done.code == 2
    assert "charge must be that of a fit, at most 1, got 2" in done.err


@pytest.mark.parametrize(
    "command", [("synthesize", "table.csv", *FIT), PLAN, ("check", "schema.yaml")]
)
def test_options_that_do_not_fit(run, public, command):
    done = run(*command, "--public-weights", "w")
    assert done.code == 2
    assert "--public-weights needs --public." in done.err
    done = run(*command, "--public", "none.csv")
    assert done.code == 2
    assert "There is no table none.csv" in done.err
    assert not os.path.exists("out")


def test_the_private_table_is_not_public(run, folder):
    (folder / "link.csv").symlink_to(folder / "table.csv")
    # One file by two names, as Table.csv is on Windows and macOS.
    (folder / "other.csv").hardlink_to(folder / "table.csv")
    for name in ("table.csv", "link.csv", "other.csv"):
        done = run("synthesize", "table.csv", *FIT, "--public", name)
        assert done.code == 2
        assert "--public must be another file than the private table" in done.err
    assert not os.path.exists("out")


def test_a_public_table_is_never_replaced(run, public):
    os.mkdir("out")
    os.rename(public, "out/synthetic.csv")
    done = run("synthesize", "table.csv", *FIT, "--overwrite", "--public", "out/synthetic.csv")
    assert done.code == 2
    assert "would replace the input synthetic.csv" in done.err
    os.rename("out/synthetic.csv", "known.csv")
    os.link("known.csv", "out/synthetic.csv")
    done = run("synthesize", "table.csv", *FIT, "--overwrite", "--public", "known.csv")
    assert (done.code, "would replace the input synthetic.csv" in done.err) == (2, True)


def test_a_table_with_keys_takes_one(run, folder, public):
    columns = "".join(f"      {line}\n" for line in SCHEMA.splitlines())
    keys = "tables:\n  persons:\n    primary_key: who\n    max_rows: 3\n    columns:\n"
    (folder / "keys.yaml").write_text(keys + columns, encoding="utf-8")
    for name in (public, f"persons={public}"):
        done = run("check", "keys.yaml", "--public", name, "--public-weights", "w", "--json")
        assert done.code == 0, done.err
        assert done.json["public"]["persons"]["unknown"] == {"age": 0, "smoker": 7}
        plan = ("plan", "--schema", "keys.yaml", "--rows", "5000", "--epsilon", "1", "--json")
        done = run(*plan, "--public", name)
        assert done.json["report"]["public_tables"] == {"public": sha256(public)}
    done = run(*PLAN, "--public", f"persons={public}")
    assert done.code == 2
    assert "--public must be FILE: the schema is that of one table." in done.err
