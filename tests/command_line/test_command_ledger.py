"""ledger: a cap that is made once, shown, and computed anew."""

import sqlite3

import pytest
from command_cases import SCHEMA

from sklearn_dpgen.ledger import PrivacyLedger
from sklearn_dpgen.schema import Schema
from sklearn_dpgen.tables import TableSampler

INIT = ("ledger", "init", "l.db", "--dataset", "d", "--epsilon", "2", "--delta", "1e-5")
PLAN = TableSampler(0.5, 1e-7, schema=Schema.from_yaml(SCHEMA)).plan(20_000)


def change(statement):
    db = sqlite3.connect("l.db")
    with db:
        assert db.execute(statement).rowcount
    db.close()


@pytest.fixture
def charged(run):
    assert run(*INIT).code == 0
    for what in "ab":
        PrivacyLedger("l.db").reserve(PLAN, what=what)
    return "l.db"


def test_a_ledger_is_made_once(run):
    done = run(*INIT, "--json")
    assert done.code == 0
    assert done.json["cap"] == {"epsilon": 2, "delta": 1e-5}
    assert done.json["command"] == "ledger init"
    again = run(*INIT)
    assert again.code == 2
    assert "must not exist to create a ledger" in again.err


def test_what_was_spent_and_what_is_left(run, charged):
    done = run("ledger", "show", charged, "--json")
    assert done.code == 0
    assert [charge["epsilon"] for charge in done.json["charges"]] == [0.5, 0.5]
    assert 0.5 < done.json["spent"] < 1
    assert 0 < done.json["remaining"] < 2
    assert "largest fit that is left" in run("ledger", "show", charged).out


def test_a_ledger_adds_up(run, charged):
    done = run("ledger", "verify", charged, "--json")
    assert done.code == 0
    assert done.json["n_charges"] == 2
    assert done.json["faults"] == []


def test_a_first_fit_may_have_all_of_it(run):
    assert run(*INIT).code == 0
    plan = TableSampler(2.0, 1e-5, schema=Schema.from_yaml(SCHEMA)).plan(20_000)
    PrivacyLedger("l.db").reserve(plan, what="all")
    assert run("ledger", "verify", "l.db").code == 0
    done = run("ledger", "show", "l.db", "--json")
    assert done.json["charges"][0]["share"] == 1
    assert done.json["remaining"] == 0


@pytest.mark.parametrize(
    ("statement", "fault"),
    [
        ("UPDATE charges SET amount = amount / 2 WHERE id = 1", "Charge 1 differs from the cost"),
        ("UPDATE charges SET total_amount = 0 WHERE id = 2", "The total after charge 2"),
        ("DELETE FROM charges WHERE id = 1", "Charges are missing"),
        ("UPDATE charges SET report = substr(report, 9) WHERE id = 1", "A charge cannot be read"),
        ("UPDATE charges SET amount = 9, total_amount = 9 WHERE id = 2", "More was spent"),
        (
            "UPDATE charges SET report = replace(report, 'replace_one', 'add_or_remove')",
            "for other neighbours",
        ),
    ],
)
def test_a_ledger_that_was_changed_does_not(run, charged, statement, fault):
    change(statement)
    done = run("ledger", "verify", charged, "--json")
    assert done.code == 1
    assert any(fault in text for text in done.json["faults"])


@pytest.mark.parametrize("part", ["show", "verify"])
def test_what_is_no_ledger(run, folder, part):
    assert "There is no ledger none.db" in run("ledger", part, "none.db").err
    assert not (folder / "none.db").exists()
    done = run("ledger", part, "table.csv", "--json")
    assert done.code == 2
    assert done.json["ok"] is False
    assert "table.csv is not a ledger" in done.json["error"]


def test_the_last_charge_is_missed_and_an_empty_file_is_no_ledger(run, folder, charged):
    change("DELETE FROM charges WHERE id = 2")
    done = run("ledger", "verify", charged, "--json")
    assert done.code == 1
    assert done.json["faults"] == ["Charges are missing: 2 were made, and 1 are left."]
    assert "2 charges were made" in run("ledger", "show", charged).err
    (folder / "l.db").write_bytes(b"")
    for part in ("show", "verify"):
        assert "is empty and not a ledger" in run("ledger", part, charged).err
    assert "must not exist to create a ledger" in run(*INIT).err
    assert (folder / "l.db").stat().st_size == 0
