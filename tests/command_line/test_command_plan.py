"""plan: what a fit will cost, from public quantities alone."""

import os

from sklearn_dpgen.accounting import PrivacyReport
from sklearn_dpgen.schema import Schema
from sklearn_dpgen.tables import TableSampler

PLAN = ("plan", "--schema", "schema.yaml", "--rows", "5000", "--epsilon", "1")


def test_the_plan_is_that_of_the_estimator(run, folder):
    os.remove("table.csv")
    os.remove("table.parquet")
    done = run(*PLAN, "--json")
    assert done.code == 0
    schema = Schema.from_yaml((folder / "schema.yaml").read_text())
    expected = TableSampler(1.0, 1e-5, schema=schema).plan(5000)
    assert PrivacyReport.from_dict(done.json["report"]) == expected
    risk = done.json["attack_risk"]
    assert risk["true_positive_rates"]["0.01"] == expected.attack_risk().true_positive_rate(0.01)
    assert 0 < risk["advantage"] < 1
    assert expected.to_text() in run(*PLAN).out


def test_targets_and_persons(run):
    done = run(*PLAN, "--target", "grade", "--target", "smoker", "--unit", "who", "--json")
    assert done.json["report"]["unit"] == "who"
    done = run(*PLAN, "--unit", "who", "--max-rows", "3", "--json")
    assert done.code == 0


def test_a_number_of_rows_that_is_public_is_needed(run):
    plan = ("plan", "--schema", "schema.yaml", "--epsilon", "1")
    assert run(*plan).code == 2
    done = run(*plan, "--neighbours", "add_or_remove", "--json")
    assert done.code == 0
    assert done.json["report"]["neighbours"] == "add_or_remove"


def test_whether_so_much_is_left(run):
    made = run("ledger", "init", "l.db", "--dataset", "d", "--epsilon", "1", "--delta", "1e-5")
    assert made.code == 0
    done = run(*PLAN, "--ledger", "l.db", "--json")
    assert done.code == 0
    assert done.json["refused"] is None
    done = run(*PLAN, "--epsilon", "1.1", "--ledger", "l.db", "--json")
    assert done.code == 1
    assert done.json["report"]["epsilon"] == 1.1
    assert "of its cap left" in done.json["refused"]
    # Nothing is charged.
    assert run("ledger", "show", "l.db", "--json").json["charges"] == []
    done = run(*PLAN, "--neighbours", "add_or_remove", "--ledger", "l.db")
    assert done.code == 2
    assert "do not add up" in done.err


def test_noise_that_drowns_a_table_is_warned_of(run):
    done = run(*PLAN, "--rows", "30", "--epsilon", "0.05", "--delta", "1e-6", "--json")
    assert done.code == 0
    assert done.json["warnings"]
    assert "warning: " in done.err
