"""One file that declares a table: commands and estimators take its rules, unit, format, public."""

import hashlib
import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import sklearn_dpgen
from sklearn_dpgen.command_line import _fit
from sklearn_dpgen.schema import Inequality, read_schema
from sklearn_dpgen.tables import TableSampler

COLUMNS = """\
  Patient: {type: identifier}
  Aufnahme: {type: datetime, low: 2020-01-01, high: 2020-12-31, resolution: D}
  Entlassung: {type: datetime, low: 2020-01-01, high: 2020-12-31, resolution: D}
  Alter: {type: numeric, low: 0, high: 120, integer: true}
  Station: {type: categorical, categories: [Süd, Nord]}
  Arzt €: {type: numeric, low: 0, high: 50, integer: true}
  Summe: {type: numeric, low: 0, high: 100, integer: true}
"""
RULES = """\
rules:
  - Aufnahme <= Entlassung
  - Alter < 18 => Station == 'Süd'
  - Summe == `Arzt €` + Alter
"""
FORM = 'delimiter: ";"\nencoding: cp1252\n'
# 150 persons of one to three rows each.
N, N_ROWS = 150, 300
FIT = ("--epsilon", "4", "--schema")


def unlearned(text):
    """Return a schema without the sum, whose bounds exclude ages over 50."""
    return text.replace("high: 120", "high: 50")


WHOLE = unlearned(f"unit: Patient\n{RULES}{FORM}public: census.csv\ncolumns:\n{COLUMNS}")


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    made = _fit.make_sampler

    def make(*args, **options):
        return made(*args, **options).set_params(population_size=200, max_iter=2)

    monkeypatch.setattr(_fit, "make_sampler", make)


@pytest.fixture
def hospital(folder):
    """Stays in a file of Windows, a public table, and schemas."""
    rng = np.random.default_rng(0)
    owners = np.repeat(np.arange(N), np.arange(N) % 3 + 1)
    day, age, doctor = (rng.integers(0, most, N_ROWS) for most in (300, 51, 50))
    start = pd.Timestamp("2020-01-01")
    dates = [
        (start + pd.to_timedelta(days, unit="D")).strftime("%Y-%m-%d")
        for days in (day, day + rng.integers(0, 30, N_ROWS))
    ]
    table = pd.DataFrame(
        {
            "Patient": [f"p{i}" for i in owners],
            "Aufnahme": dates[0],
            "Entlassung": dates[1],
            "Alter": age,
            "Station": np.where(age < 18, "Süd", rng.choice(["Süd", "Nord"], N_ROWS)),
            "Arzt €": doctor,
            "Summe": doctor + age,
        }
    )
    form = {"sep": ";", "encoding": "cp1252", "index": False}
    table.to_csv("stays.csv", **form)
    table[["Alter", "Station"]][::2].to_csv("census.csv", **form)
    table[["Alter"]].to_csv("other.csv", **form)
    (folder / "whole.yaml").write_text(WHOLE, encoding="utf-8")
    (folder / "plain.yaml").write_text(unlearned(f"{FORM}columns:\n{COLUMNS}"), encoding="utf-8")
    return folder


def sha256(path):
    return hashlib.sha256(Path(path).read_bytes()).hexdigest()


def broken(path):
    """Return the share of rows that break each rule."""
    rows = pd.read_csv(path, sep=";", encoding="cp1252")
    return [
        (rows["Aufnahme"] > rows["Entlassung"]).mean(),
        ((rows["Alter"] < 18) & (rows["Station"] != "Süd")).mean(),
        (rows["Summe"] != rows["Arzt €"] + rows["Alter"]).mean(),
    ]


@pytest.mark.slow
def test_a_file_is_all_that_a_release_needs(run, hospital):
    done = run("check", "whole.yaml", "stays.csv", "--json")
    assert done.code == 0, done.all
    assert done.json["n_rows"] == N_ROWS
    assert done.json["public"]["sha256"] == sha256("census.csv")
    done = run("synthesize", "stays.csv", *FIT, "whole.yaml", "--out", "out", "--json")
    assert done.code == 0, done.err
    assert "each row is protected" not in done.err.casefold()
    assert broken("out/synthetic.csv") == [0, 0, 0]
    # Persons are protected: in the report, the plan, the card, the list and the model.
    report = done.json["report"]
    assert report["unit"] == "Patient"
    assert report["public_tables"] == {"public": sha256("census.csv")}
    listed = json.loads(Path("out/release.json").read_text(encoding="utf-8"))
    assert listed["privacy"]["unit"] == "Patient"
    assert "Patient" in Path("out/card.md").read_text(encoding="utf-8")
    model = sklearn_dpgen.load("out/model.safetensors")
    assert (model.unit, model.privacy_.unit) == ("Patient", "Patient")
    assert len(model.constraints) == 3
    plan = run("plan", "--rows", str(N), *FIT, "whole.yaml", "--json").json["report"]
    same = ("unit", "noise_scale", "noise_multiplier", "epsilon", "delta", "releases", "public")
    assert {k: plan[k] for k in same} == {k: report[k] for k in same}
    # The schema that is published reads the table that is published, without the public table.
    published = read_schema("out/schema.yaml")
    assert published == read_schema("whole.yaml")._with(public=())
    done = run("check", "out/schema.yaml", "out/synthetic.csv", "--json")
    assert done.code == 0, done.all
    assert run("verify", "out").code == 0


@pytest.mark.slow
def test_without_these_words_rows_are_protected_and_rules_break(run, hospital):
    """The twin of the test above."""
    done = run("synthesize", "stays.csv", *FIT, "plain.yaml", "--out", "out", "--json")
    assert done.code == 0, done.err
    assert done.json["report"]["unit"] is None
    assert min(broken("out/synthetic.csv")) > 0.01


@pytest.mark.slow
def test_options_add_rules_and_replace_the_unit_and_the_public_table(run, hospital):
    rule = ("--rule", "Alter <= Summe", "--public", "other.csv")
    done = run("synthesize", "stays.csv", *FIT, "whole.yaml", *rule, "--out", "out", "--json")
    assert done.code == 0, done.err
    assert done.json["report"]["public_tables"] == {"public": sha256("other.csv")}
    published = read_schema("out/schema.yaml")
    assert published.rules[:3] == read_schema("whole.yaml").rules
    assert published.rules[3:] == (Inequality("Alter", "Summe"),)
    rows = pd.read_csv("stays.csv", sep=";", encoding="cp1252").assign(Haushalt="a")
    rows.to_csv("stays.csv", sep=";", encoding="cp1252", index=False)
    unit = ("--unit", "Haushalt", "--rows", "100")
    done = run("plan", *FIT, "whole.yaml", *unit, "--json")
    assert done.json["report"]["unit"] == "Haushalt"
    bound = run("plan", *FIT, "whole.yaml", "--rows", "100", "--max-rows", "3", "--json")
    assert bound.json["report"]["max_rows"] == 3


def test_a_table_in_another_format_than_declared_is_refused(run, hospital):
    table = pd.read_csv("stays.csv", sep=";", encoding="cp1252")
    table.to_csv("commas.csv", index=False)
    done = run("synthesize", "commas.csv", *FIT, "whole.yaml", "--out", "out")
    assert done.code == 2
    assert "must separate fields by semicolons" in done.err
    assert "spent" not in done.err
    # The twin of the plain format: the message says what to declare.
    (hospital / "flat.yaml").write_text(f"columns:\n{COLUMNS}", encoding="utf-8")
    done = run("check", "flat.yaml", "stays.csv")
    assert done.code == 1
    assert "encoding: cp1252" in done.out


def test_rules_are_checked_before_a_record_is_read(run, hospital):
    text = WHOLE.replace("rules:\n", "rules:\n  - Entlassung < Aufnahme\n")
    (hospital / "wrong.yaml").write_text(text, encoding="utf-8")
    done = run("check", "wrong.yaml", "--json")
    assert done.code == 1
    assert "The rules are not valid" in done.json["fault"]
    text = WHOLE.replace("Aufnahme <=", "Ankunft <=")
    (hospital / "wrong.yaml").write_text(text, encoding="utf-8")
    done = run("synthesize", "stays.csv", *FIT, "wrong.yaml", "--out", "out")
    assert done.code == 2
    fault = "rules[0] (the first rule) 'Ankunft <= Entlassung': 'Ankunft' is no column"
    assert fault in done.err


@pytest.mark.slow
def test_an_audit_is_of_persons(run, hospital):
    done = run("audit", *FIT, "whole.yaml", "--rows", "60", "--json")
    assert done.code == 0, done.err
    assert "one person" in done.json["audit"]["neighbours"]
    assert done.json["audit"]["ratio"] > 0.3


@pytest.mark.parametrize("name", ["Patient", "beside"])
def test_a_made_up_table_has_persons_with_two_rows(hospital, name):
    schema = read_schema("whole.yaml")._with(unit=name)
    made = _fit.made_up_table(schema, 30)
    assert len(made) == 30
    assert set(made[name].value_counts()) == {1, 2}
    assert "beside" not in _fit.made_up_table(schema._with(unit=None), 30)


@pytest.mark.slow
def test_an_estimator_takes_the_same_file(hospital):
    options = {"epsilon": 4.0, "population_size": 200, "max_iter": 2}
    sampler = TableSampler(schema="whole.yaml", **options).fit("stays.csv")
    assert sampler.privacy_.unit == "Patient"
    assert sampler.privacy_.public_tables == {"public": sha256("census.csv")}
    drawn = sampler.sample(200)
    assert (drawn["Aufnahme"] <= drawn["Entlassung"]).all()
    # An explicit value replaces what the file declares.
    free = TableSampler(schema="whole.yaml", constraints=[], **options).fit("stays.csv")
    assert (free.sample(200)["Summe"] != free.sample(200)["Arzt €"]).any()
    assert free.constraints == []
