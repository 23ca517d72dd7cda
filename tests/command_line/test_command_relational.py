"""plan, synthesize, sample and inspect of tables with keys: one file for each table."""

import functools
import hashlib
import json
import os
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import sklearn_dpgen
from sklearn_dpgen import auditing
from sklearn_dpgen.accounting import PrivacyReport
from sklearn_dpgen.command_line import _fit
from sklearn_dpgen.ledger import PrivacyLedger
from sklearn_dpgen.schema import RelationalSchema
from sklearn_dpgen.tables import RelationalSampler, _person_rows

HOSPITAL = """\
tables:
  patients:
    columns:
      sex: {type: categorical, categories: [f, m]}
    primary_key: patient
  visits:
    columns:
      cost: {type: numeric, low: 0, high: 50}
    foreign_key: {patient: patients}
    max_rows: 3
"""
WARDS = """\
  wards:
    columns:
      beds: {type: numeric, low: 0, high: 100}
    primary_key: ward
    public: true
"""
PANEL = """\
tables:
  survey:
    columns:
      sex: {type: categorical, categories: [f, m]}
      year: {type: numeric, low: 2010, high: 2020, integer: true}
    primary_key: person
    sequence_index: year
    max_rows: 3
    static: [sex]
"""
N = 60
CSV = ("--table", "patients=patients.csv", "--table", "visits=visits.csv")
FIT = ("--schema", "hospital.yaml", "--epsilon", "5", "--out", "out")


@pytest.fixture(autouse=True)
def quick(monkeypatch, request):
    """Fits of few steps; pages take half of the time, and have a test of their own."""
    made = _fit.make_sampler

    def make(*args, **options):
        sampler = made(*args, **options)
        return sampler.set_params(population_size=50, max_iter=1)

    monkeypatch.setattr(_fit, "make_sampler", make)
    if "pages" not in request.fixturenames:
        monkeypatch.setattr(_fit, "_publish", lambda *args: None)


@pytest.fixture
def pages():
    """Asks for the pages."""


@pytest.fixture
def hospital(folder):
    """Two tables in two formats, and a panel."""
    rng = np.random.default_rng(0)
    sexes, owners = rng.choice(["f", "m"], N), np.repeat(np.arange(N), np.arange(N) % 3)
    tables = {
        "patients": pd.DataFrame({"patient": np.arange(N), "sex": sexes}),
        "visits": pd.DataFrame({"patient": owners, "cost": rng.uniform(0, 50, len(owners))}),
        "survey": pd.DataFrame(
            {"person": owners, "sex": sexes[owners], "year": 2010 + np.arange(len(owners)) % 11}
        ),
    }
    for name, table in tables.items():
        table.assign(note="secret").to_csv(f"{name}.csv", index=False)
        table.assign(note="secret").to_parquet(f"{name}.parquet", index=False)
    (folder / "hospital.yaml").write_text(HOSPITAL)
    (folder / "survey.yaml").write_text(PANEL)
    return folder


PUBLIC = ("--public", "patients=known.csv", "--public", "visits=known.parquet")


@pytest.fixture
def known(hospital):
    """Public tables beside those of the hospital, with keys and weights."""
    pd.read_csv("patients.csv")[:30].assign(w=1.5).to_csv("known.csv", index=False)
    pd.read_parquet("visits.parquet")[:20].to_parquet("known.parquet", index=False)
    return {
        f"public {name}": hashlib.sha256(Path(file).read_bytes()).hexdigest()
        for name, file in (("patients", "known.csv"), ("visits", "known.parquet"))
    }


@pytest.mark.slow
def test_public_tables_stand_beside_those_of_their_name(run, known):
    options = (*PUBLIC, "--public-weights", "w")
    done = run("check", "hospital.yaml", *options, "--json")
    assert done.code == 0, done.err
    found = {name: own["unknown"] for name, own in done.json["public"].items()}
    assert found == {"patients": {"sex": 0}, "visits": {"cost": 0}}
    assert "private" not in done.json
    done = run("check", "hospital.yaml", *CSV, *options)
    assert f"Public table of 'visits': 20 rows, SHA-256 {known['public visits']}." in done.out
    done = run("plan", "--schema", "hospital.yaml", "--epsilon", "5", "--rows", "60", *options)
    assert all(sha256 in done.out for sha256 in known.values())
    done = run("synthesize", *CSV, *FIT, *options, "--json")
    assert done.code == 0, done.err
    assert done.json["report"]["public_tables"] == known
    text = " ".join(run("inspect", "out/model.safetensors").out.split())
    assert f"public visits (SHA-256 {known['public visits']}): claimed to be public" in text


def test_public_tables_of_no_use(run, known):
    plan = ("plan", "--schema", "hospital.yaml", "--epsilon", "5", "--rows", "60")
    for options, said in (
        (("--public", "known.csv"), "--public must be NAME=FILE for private tables"),
        (("--public", "wards=known.csv"), "--public must be NAME=FILE for private tables"),
        (("--public", "patients=none.csv"), "There is no table none.csv"),
        ((*PUBLIC[2:], "--public-weights", "w"), "--public-weights needs --public patients=FILE"),
        ((*PUBLIC[:1], "visits=known.csv"), "public must have a column of the schema"),
    ):
        done = run(*plan, *options)
        assert done.code == 2
        assert said in done.err
    done = run("check", "hospital.yaml", "--public", "visits=known.csv")
    assert done.code == 1
    assert "A fit cannot use the public table of 'visits'." in done.out
    # Keys of one table are texts, and those of the other numbers.
    visits = pd.read_parquet("known.parquet")
    visits.assign(patient="p" + visits["patient"].astype(str)).to_parquet("known.parquet")
    pd.read_csv("known.csv").to_parquet("known-patients.parquet")
    public = ("--public", "patients=known-patients.parquet", *PUBLIC[2:])
    for private in ((), CSV):
        done = run("check", "hospital.yaml", *private, *public)
        assert done.code == 1
        assert "The public tables cannot be linked by keys: Table 'visits': foreign_key" in done.out
    done = run("check", "hospital.yaml", "--public", "patients=known.csv", *PUBLIC[2:])
    assert done.code == 0
    assert "20 of 20 public rows belong to no public person" in done.err
    done = run("synthesize", *CSV, *FIT, "--public", "visits=visits.csv")
    assert done.code == 2
    assert "--public must be another file than the private table" in done.err


def test_the_plan_is_that_of_the_estimator(run, hospital):
    plan = ("plan", "--schema", "hospital.yaml", "--epsilon", "1")
    done = run(*plan, "--rows", "5000", "--json")
    assert done.code == 0, done.err
    expected = RelationalSampler(schema=RelationalSchema.from_yaml(HOSPITAL)).plan(5000)
    assert PrivacyReport.from_dict(done.json["report"]) == expected
    assert "one person" in run(*plan, "--rows", "5000").out
    assert run(*plan).code == 2
    assert run(*plan, "--neighbours", "add_or_remove").code == 0
    done = run(*plan, "--rows", "5000", "--target", "visits.cost", "--json")
    sampler = RelationalSampler(schema=RelationalSchema.from_yaml(HOSPITAL), target="visits.cost")
    assert PrivacyReport.from_dict(done.json["report"]) == sampler.plan(5000) != expected
    done = run(*plan, "--rows", "5000", *CSV[:2])
    assert done.code == 2
    assert "--table must name public tables, as no other is read, got ['patients']" in done.err


@pytest.mark.parametrize(("first", "second"), [("csv", "csv"), ("parquet", "csv")])
def test_a_table_each_in_its_format(run, hospital, first, second):
    tables = ("--table", f"patients=patients.{first}", "--table", f"visits=visits.{second}")
    done = run("synthesize", *FIT, *tables, "--json")
    assert done.code == 0, done.err
    names = {f"synthetic-patients.{first}", f"synthetic-visits.{second}"}
    assert {*done.json["files"]} == {*os.listdir("out")} >= names
    read = {"csv": pd.read_csv, "parquet": pd.read_parquet}
    patients = read[first](f"out/synthetic-patients.{first}")
    visits = read[second](f"out/synthetic-visits.{second}")
    assert [*patients] == ["patient", "sex"]
    assert [*visits] == ["patient", "cost"]
    assert done.json["persons"] == len(patients) == N
    assert done.json["rows"] == {"patients": N, "visits": len(visits)}
    assert {*visits["patient"]} <= {*patients["patient"]}
    assert visits.groupby("patient").size().max() <= 3
    assert done.json["report"]["unit"] == "patient"
    report = json.loads(Path("out/release.json").read_text())["privacy"]
    assert report == done.json["report"]
    assert "secret" not in done.all


def test_texts_of_persons_and_rows(run, hospital):
    done = run("synthesize", *FIT, *CSV, "--rows", "7")
    assert done.code == 0, done.err
    assert "7 synthetic persons; rows: 7 in 'patients', " in done.out
    assert len(pd.read_csv("out/synthetic-patients.csv")) == 7
    assert "Drawing 7 persons" in done.err


def test_several_files_are_one_table(run, hospital):
    visits = pd.read_csv("visits.csv")
    visits[:20].to_csv("visits-1.csv", index=False)
    visits[20:].to_csv("visits-2.csv", index=False)
    more = ("--table", "visits=visits-1.csv", "--table", "visits=visits-2.csv")
    fits = []

    def fit(self, tables):
        fits.append(tables)
        raise KeyboardInterrupt

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(RelationalSampler, "fit", fit)
        run("synthesize", *FIT, *CSV[:2], *more)
        run("synthesize", *FIT, *CSV[:2], "--table", "visits=visits-*.csv")
    expected = {"patients": ["patients.csv"], "visits": ["visits-1.csv", "visits-2.csv"]}
    assert fits == [expected, expected]
    assert run("synthesize", *FIT, *CSV[:2], *more).code == 0


@pytest.mark.parametrize("arguments", [("survey.csv",), ("--table", "survey=survey.csv")])
def test_a_panel_is_one_plain_file(run, hospital, arguments):
    done = run("synthesize", *arguments, "--schema", "survey.yaml", *FIT[2:], "--json")
    assert done.code == 0, done.err
    frame = pd.read_csv("out/synthetic.csv")
    assert [*frame] == ["person", "sex", "year"]
    assert (frame.groupby("person")["sex"].nunique() == 1).all()
    assert done.json["rows"] == {"survey": len(frame)}
    assert done.json["report"]["unit"] == "person"
    done = run("sample", "out/model.safetensors", "--rows", "9", "--out", "more.csv", "--json")
    assert done.code == 0, done.err
    assert done.json["rows"] == {"survey": len(pd.read_csv("more.csv"))}
    where = ("--rows", "9", "--where", "survey.sex == 'f'", "--out", "women.csv")
    done = run("sample", "out/model.safetensors", *where)
    assert done.code == 0, done.err
    assert {*pd.read_csv("women.csv")["sex"]} == {"f"}


def test_a_wrong_rule_of_tables_is_refused_before_a_budget_is_spent(run, hospital):
    faults = {
        "cost <= costs": "'costs' is no column of the schema",
        "visits.cost <= patients.age": "'patients.age' is no column of the schema",
        "1 == 2": "must name columns of one table",
        "previous.sex == 'f' => cost == 0": "'previous.sex' is no column",
        "cost < 0 => sex == 'f'": "the bounds of 'cost' are 0 to",
        "sex <= cost": "The rules are not valid. Table 'visits': rules[0], Inequality",
    }
    for rule, fault in faults.items():
        done = run("synthesize", *FIT, *CSV, "--rule", rule)
        assert done.code == 2
        assert fault in done.err, rule
        assert "spent" not in done.err


STAYS = """\
tables:
  patients:
    columns:
      born: {type: numeric, low: 0, high: 30, integer: true}
    primary_key: patient
  stays:
    delimiter: ";"
    columns:
      admitted: {type: numeric, low: 0, high: 40, integer: true}
      discharged: {type: numeric, low: 0, high: 40, integer: true}
    foreign_key: {patient: patients}
    sequence_index: admitted
    max_rows: 3
"""
RULES = ("admitted <= discharged", "previous.discharged <= admitted", "patients.born <= admitted")


@pytest.fixture
def stays(folder):
    """A folder of two tables, in which stays follow one another, after a birth."""
    rng = np.random.default_rng(0)
    born = rng.integers(0, 31, N)
    owners = np.repeat(np.arange(N), np.arange(N) % 4)
    steps = pd.DataFrame({"patient": owners, "a": rng.integers(0, 4, len(owners))})
    ends = born[owners] + steps.groupby("patient")["a"].cumsum()
    table = pd.DataFrame({"patient": owners, "admitted": ends - steps["a"], "discharged": ends})
    os.mkdir("tables")
    pd.DataFrame({"patient": np.arange(N), "born": born}).to_csv("tables/patients.csv", index=False)
    table.to_csv("tables/stays.csv", index=False, sep=";")
    (folder / "plain.yaml").write_text(STAYS)
    rules = "".join(f"      - {rule}\n" for rule in RULES)
    (folder / "ruled.yaml").write_text(
        STAYS.replace('delimiter: ";"\n', f'delimiter: ";"\n    rules:\n{rules}')
    )
    return folder


def broken(path):
    """Return the shares of stays that end before they begin, overlap, and precede a birth."""
    rows = pd.read_csv(f"{path}/synthetic-stays.csv", sep=";")
    born = pd.read_csv(f"{path}/synthetic-patients.csv").set_index("patient")["born"]
    before = rows.groupby("patient")["discharged"].shift()
    return [
        (rows["discharged"] < rows["admitted"]).mean(),
        (before > rows["admitted"]).mean(),
        (rows["patient"].map(born) > rows["admitted"]).mean(),
    ]


@pytest.mark.slow
def test_rules_of_a_file_hold_in_every_synthetic_stay(run, stays):
    fit = ("--epsilon", "5", "--rows", "300")
    done = run("synthesize", "tables", "--schema", "ruled.yaml", *fit, "--out", "ruled")
    assert done.code == 0, done.err
    assert broken("ruled") == [0, 0, 0]
    # Those of options are the same, and are in the schema of the release.
    options = (
        "--rule",
        "stays.admitted <= discharged",
        "--rule",
        "previous.discharged <= admitted",
    )
    options += ("--rule", "patients.born <= stays.admitted")
    done = run("synthesize", "tables", "--schema", "plain.yaml", *fit, "--out", "options", *options)
    assert done.code == 0, done.err
    assert broken("options") == [0, 0, 0]
    models = [sklearn_dpgen.load(f"{out}/model.safetensors") for out in ("ruled", "options")]
    assert models[0].constraints == models[1].constraints
    assert "constraints" in models[0].privacy_.public
    # The twin without rules: about half of the stays then end before they begin.
    done = run("synthesize", "tables", "--schema", "plain.yaml", *fit, "--out", "plain")
    assert done.code == 0, done.err
    # Fresh noise decides which of the rules is broken more often.
    ends, overlaps, births = broken("plain")
    assert ends > 0.02
    assert ends + overlaps + births > 0.2


@pytest.mark.slow
def test_the_schema_of_a_release_has_its_rules(run, stays, pages):
    rule = ("--rule", "admitted <= discharged")
    out = ("--epsilon", "5", "--out", "out")
    done = run("synthesize", "tables", "--schema", "plain.yaml", *out, *rule)
    assert done.code == 0, done.err
    text = Path("out/schema.yaml").read_text(encoding="utf-8")
    schema = RelationalSchema.from_yaml(text)
    assert [rule.high for rule in schema.rules["stays"]] == ["discharged"]
    # The tables of a release are written as its schema declares.
    done = run(
        "check",
        "out/schema.yaml",
        "--table",
        "patients=out/synthetic-patients.csv",
        "--table",
        "stays=out/synthetic-stays.csv",
    )
    assert done.code == 0, done.err


def test_tables_of_a_folder(run, stays):
    done = run("check", "ruled.yaml", "tables", "--json")
    assert done.code == 0, done.err
    assert [own["n_rows"] for own in done.json["tables"].values()] == [N, 90]
    fit = ("synthesize", "tables", "--schema", "plain.yaml", "--epsilon", "5", "--out", "out")
    # Two files of a name, or none, are no guess.
    os.mkdir("tables/empty")
    (stays / "tables/stays.parquet").write_text("")
    for command in (fit, ("check", "plain.yaml", "tables")):
        done = run(*command)
        assert done.code > 0
        assert "one file stays.* for the table 'stays': it has stays.csv, stays.parquet" in done.all
    done = run(*fit, "--table", "stays=tables/stays.csv")
    assert done.code == 0, done.err
    (stays / "tables/patients.csv").rename("tables/people.csv")
    done = run("check", "plain.yaml", "tables")
    assert "for the table 'patients': it has none" in done.all


@pytest.mark.slow
def test_public_tables_are_given_by_files(run, hospital):
    """Their keys are integers in any file."""
    text = HOSPITAL.replace("{patient: patients}", "{patient: patients, ward: wards}")
    (hospital / "hospital.yaml").write_text(text + WARDS)
    (hospital / "wards.csv").write_text("ward,beds\n3,10\n5,20\n")
    visits = pd.read_csv("visits.csv")
    visits = visits.assign(ward=np.where(visits.index % 2, 3, 5))
    visits.to_csv("visits.csv", index=False)
    visits.to_parquet("visits.parquet", index=False)
    plan = ("plan", "--schema", "hospital.yaml", "--epsilon", "1", "--rows", "60")
    assert "--table wards=FILE must give the rows of the public table" in run(*plan).err
    public = ("--table", "wards=wards.csv")
    assert run(*plan, *public).code == 0
    done = run("synthesize", *FIT, *public)
    assert done.code == 2
    assert "--table must give each private table: ['patients', 'visits']" in done.err
    for form in ("csv", "parquet"):
        tables = [*CSV[:2], "--table", f"visits=visits.{form}", *public]
        done = run("synthesize", *FIT, *tables, "--overwrite")
        assert done.code == 0, done.err
        read = pd.read_csv if form == "csv" else pd.read_parquet
        assert {*read(f"out/synthetic-visits.{form}")["ward"]} == {3, 5}
    assert not [name for name in os.listdir("out") if "wards" in name]
    assert "synthetic-visits.csv" not in os.listdir("out")


def test_the_ledger_is_charged(run, hospital):
    made = run("ledger", "init", "l.db", "--dataset", "d", "--epsilon", "6", "--delta", "1e-4")
    assert made.code == 0
    done = run("synthesize", *FIT, *CSV, "--ledger", "l.db", "--json")
    assert done.code == 0, done.err
    (charge,) = PrivacyLedger("l.db").report().charges
    assert charge.report.epsilon == 5
    assert done.json["ledger"]["remaining"] == PrivacyLedger("l.db").remaining() < 6
    done = run("synthesize", *FIT, *CSV, "--ledger", "l.db", "--overwrite")
    assert done.code == 1
    assert len(PrivacyLedger("l.db").report().charges) == 1


def test_more_persons_of_a_model(run, hospital):
    assert run("synthesize", *FIT, *CSV).code == 0
    sample = ("sample", "out/model.safetensors", "--rows", "30", "--out", "more.parquet")
    done = run(*sample, "--json")
    assert done.code == 0, done.err
    files = {"patients": "more-patients.parquet", "visits": "more-visits.parquet"}
    assert done.json["out"] == files
    frames = {name: pd.read_parquet(path) for name, path in files.items()}
    assert done.json["rows"] == {name: len(frame) for name, frame in frames.items()}
    assert done.json["persons"] == len(frames["patients"]) == 30
    assert {*frames["visits"]["patient"]} <= {*frames["patients"]["patient"]}
    os.remove("more-patients.parquet")
    done = run(*sample)
    assert done.code == 2
    assert "--out more-visits.parquet exists already" in done.err
    assert "more-patients.parquet" not in os.listdir()
    done = run(*sample, "--overwrite")
    assert "30 synthetic persons; rows: 30 in 'patients', " in done.out


def test_of_tables_that_cannot_all_be_written_none_is(run, hospital, monkeypatch):
    assert run("synthesize", *FIT, *CSV).code == 0
    write = sklearn_dpgen.command_line._models.write_table

    def fail(frame, path, ending):
        if "cost" in frame:
            raise OSError(28, "full")
        write(frame, path, ending)

    before = os.listdir()
    sample = ("sample", "out/model.safetensors", "--rows", "5", "--out", "more.csv")
    with monkeypatch.context() as patch:
        patch.setattr(sklearn_dpgen.command_line._models, "write_table", fail)
        assert run(*sample).code == 2
    assert os.listdir() == before
    assert run(*sample).code == 0
    assert len(os.listdir()) == len(before) + 2


def test_a_model_is_shown(run, hospital):
    assert run("synthesize", *FIT, *CSV).code == 0
    done = run("inspect", "out/model.safetensors", "--json")
    assert done.json["class"] == "RelationalSampler"
    assert done.json["columns"] == {"patients": ["sex"], "visits": ["cost"]}
    text = run("inspect", "out/model.safetensors").out
    assert "columns of 'patients': 'sex'\ncolumns of 'visits': 'cost'\n" in text


@pytest.mark.slow
def test_pages_of_tables(run, hospital, pages):
    options = ("--not-private-report", "--title", "Visits", "--target", "visits.cost")
    done = run("synthesize", *FIT, *CSV, *options, "--json")
    assert done.code == 0, done.err
    pages = ["card.html", "report.html", "../out-NOT-PRIVATE.html"]
    assert {"card.html", "report.html", "card.json"} <= {*os.listdir("out")}
    assert done.json["not_private_report"] == "out-NOT-PRIVATE.html"
    card = json.loads(Path("out/card.json").read_text(encoding="utf-8"))
    assert [table["name"] for table in card["tables"]] == ["patients", "visits"]
    for page in pages[1:]:
        text = Path("out", page).read_text(encoding="utf-8")
        assert "patients" in text
        assert "visits" in text
        assert ("not private" in text) == ("NOT" in page)
        assert "secret" not in text


@pytest.mark.slow
def test_files_of_an_earlier_run_go(run, hospital):
    assert run("synthesize", "table.csv", "--schema", "schema.yaml", *FIT[2:]).code == 0
    assert run("synthesize", *FIT, *CSV, "--overwrite").code == 0
    tables = ["synthetic-patients.csv", "synthetic-visits.csv"]
    assert sorted(name for name in os.listdir("out") if name.startswith("synthetic")) == tables
    Path("out/synthetic-notes.txt").write_text("mine")
    overwrite = ("--schema", "schema.yaml", *FIT[2:], "--overwrite")
    assert run("synthesize", "table.csv", *overwrite).code == 0
    left = sorted(name for name in os.listdir("out") if name.startswith("synthetic"))
    assert left == ["synthetic-notes.txt", "synthetic.csv"]


def test_an_input_is_never_replaced(run, hospital):
    (hospital / "out").mkdir()
    os.replace("visits.csv", "out/synthetic-visits.csv")
    before = Path("out/synthetic-visits.csv").read_bytes()
    tables = (*CSV[:2], "--table", "visits=out/synthetic-visits.csv")
    done = run("synthesize", *FIT, *tables, "--overwrite")
    assert done.code == 2
    assert "would replace the input" in done.err
    assert Path("out/synthetic-visits.csv").read_bytes() == before


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((), "Give the files of one table, or each table by --table NAME=FILE"),
        (CSV[:2], "--table must give each private table, and ['visits'] are missing"),
        (("visits.csv",), "must name the table of each file: ['patients', 'visits']"),
        ((*CSV, "--table", "x=visits.csv"), "must name tables of the schema"),
        ((*CSV, "--unit", "patient"), "--unit must be left out: a relational schema declares"),
        (
            (*CSV, "--target", "cost"),
            "target must name columns of the schema as \"table.column\", got ['cost']",
        ),
        ((*CSV, "--max-rows", "2"), "A relational schema declares max_rows of each table"),
        ((*CSV, "--schema", "schema.yaml"), "--table must be left out: the schema is that of one"),
        (("--table", "visits=none.csv"), "There is no table none.csv"),
        (
            ("survey.csv", "--table", "survey=survey.csv", "--schema", "survey.yaml"),
            "'survey' must be given as files or by --table, not by both",
        ),
    ],
)
def test_wrong_use_is_refused_before_a_budget_is_spent(run, hospital, arguments, said):
    done = run("synthesize", *FIT, *arguments)
    assert done.code == 2
    assert said in done.err
    assert "spent" not in done.err
    assert not os.path.exists("out")


@pytest.mark.parametrize("name", ["a/b", "a\\b", "a:b", "a\nb", "VISITS"])
def test_tables_must_have_names_of_files(run, hospital, name):
    entry = yaml_of(HOSPITAL)["tables"]
    tables = {name: entry["patients"], "visits": entry["visits"]}
    tables["visits"]["foreign_key"] = {"patient": name}
    (hospital / "hospital.yaml").write_text(json.dumps({"tables": tables}))
    done = run("synthesize", *FIT, "--table", f"{name}=patients.csv", *CSV[2:])
    assert done.code == 2
    assert "Names of tables must be distinct names of files" in done.err
    assert not os.path.exists("out")


def yaml_of(text):
    import yaml

    return yaml.safe_load(text)


FAULTS = {
    "a missing key": (
        lambda t: t.drop(columns="patient"),
        "Table 'visits': The columns must be those of the schema and the keys ['patient'], each "
        "once: missing ['patient']",
    ),
    "other texts": (
        lambda t: t.assign(patient="secret"),
        "Table 'visits': foreign_key 'patient' must be of the type of the primary key 'patient' of "
        "table 'patients'",
    ),
    "a wrong value": (lambda t: t.assign(cost="secret"), "Table 'visits': Column 'cost' must hold"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_faults_name_table_column_and_rule(run, hospital, fault):
    change, said = FAULTS[fault]
    change(pd.read_csv("visits.csv")).to_csv("visits.csv", index=False)
    done = run("synthesize", *FIT, "--table", "patients=patients.parquet", *CSV[2:])
    assert done.code == 2
    assert said in done.err
    assert "'sklearn-dpgen check SCHEMA --table NAME=FILE' lists" in done.err
    assert "secret" not in done.all
    assert not os.path.exists("out")


def test_a_bound_that_cuts_sizes_is_warned_of(run, hospital):
    visits = pd.DataFrame({"patient": np.repeat(np.arange(N), 40), "cost": 7.0})
    visits.to_csv("visits.csv", index=False)
    done = run("synthesize", *FIT, *CSV, "--epsilon", "50", "--json")
    assert done.code == 0, done.err
    (said,) = (text for text in done.json["warnings"] if "max_rows" in text)
    assert "Table 'visits': about " in said


def test_formats_may_be_mixed_in_a_check(run, hospital):
    tables = ("--table", "patients=patients.parquet", *CSV[2:])
    done = run("check", "hospital.yaml", *tables, "--json")
    assert done.code == 0, done.err
    assert done.json["tables"]["visits"]["faults"] == {}
    pd.read_csv("visits.csv").replace({"patient": {1: 999}}).to_csv("visits.csv", index=False)
    done = run("check", "hospital.yaml", *tables, "--json")
    assert done.json["tables"]["visits"]["faults"] == {"patient": {"orphan": 1}}


# Three levels, with distinct dates, texts as keys, and a public table.
DEEP = """\
tables:
  patients:
    columns:
      patient: {type: identifier, prefix: p}
      note: {type: identifier}
      sex: {type: categorical, categories: [f, m], nullable: true}
    primary_key: patient
  stays:
    columns:
      day: {type: datetime, low: 2020-01-01, high: 2020-01-03, resolution: D}
    primary_key: stay
    foreign_key: {patient: patients, ward: wards}
    sequence_index: day
    max_rows: 3
    ties: false
  tests:
    columns:
      result: {type: numeric, low: 0, high: 9, integer: true}
    foreign_key: {stay: stays}
    max_rows: 1
"""
AUDITED = {
    "hospital": (HOSPITAL, ("--epsilon", "2")),
    "survey": (PANEL.replace("2020,", "2012,") + "    ties: false\n", ()),
    "deep": (DEEP + WARDS, ("--table", "wards=wards.csv", "--neighbours", "add_or_remove")),
}


@pytest.mark.parametrize("case", AUDITED)
def test_an_audit_is_of_made_up_tables(run, folder, monkeypatch, case):
    text, options = AUDITED[case]
    (folder / "schema.yaml").write_text(text)
    (folder / "wards.csv").write_text("ward,beds\n3,10\n5,20\n")
    seen = []

    def audit(estimator, X):
        seen.append((estimator, X))
        raise KeyboardInterrupt

    monkeypatch.setattr(auditing, "audit", audit)
    audit = ("audit", "--schema", "schema.yaml", "--epsilon", "1", *options)
    assert run(*audit, "--rows", "50").code == 130
    ((estimator, tables),) = seen
    schema = estimator.schema
    assert isinstance(estimator, RelationalSampler)
    assert [*tables] == schema.order
    # Columns, keys, numbers of rows and ties are as declared.
    assert all((found == 0).all(axis=None) for found in schema.check(tables).values())
    root = tables[schema.root]
    assert root[schema[schema.root].primary_key].nunique() == 50
    assert (len(root) > 50) == schema.is_panel
    assert all(len(table) for table in tables.values())
    # The twin: of rows without their parents.
    tables[schema.root] = root[:0]
    is_broken = any((found != 0).any(axis=None) for found in schema.check(tables).values())
    assert is_broken == (not schema.is_panel)


@pytest.mark.slow
def test_an_audit_of_persons(run, hospital, monkeypatch):
    small = functools.partial(auditing.audit, n_trials=2, n_transcripts=1)
    monkeypatch.setattr(auditing, "audit", small)
    audit = ("audit", "--schema", "hospital.yaml", "--epsilon", "1", "--rows", "30", "--json")
    done = run(*audit)
    assert done.code == 0, done.all
    assert 0 < done.json["audit"]["ratio"] <= 1
    assert "one person replaced" in done.json["audit"]["neighbours"]
    # The twin: each row of a person counts once.
    monkeypatch.setattr(_person_rows, "_path", lambda parent, path: np.ones_like(parent))
    done = run(*audit)
    assert done.code == 1
    assert done.json["audit"]["is_violation"]


def test_an_audit_reads_no_private_table(run, hospital):
    done = run("audit", "--schema", "hospital.yaml", "--epsilon", "1", *CSV[:2])
    assert done.code == 2
    assert "--table must name public tables, as no other is read, got ['patients']" in done.err
