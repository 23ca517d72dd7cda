"""synthesize: what it writes, what it refuses, and what it says of a budget that is spent."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pandas as pd
import pytest
from command_cases import made_up

from sklearn_dpgen.accounting import PrivacyReport
from sklearn_dpgen.command_line import _fit
from sklearn_dpgen.ledger import PrivacyLedger
from sklearn_dpgen.tables import TableSampler

FIT = ("--schema", "schema.yaml", "--epsilon", "1", "--delta", "1e-6", "--out", "out")


@pytest.fixture(autouse=True)
def no_pages(monkeypatch):
    """Pages take half of the time, and have tests of their own."""
    monkeypatch.setattr(_fit, "_publish", lambda *args: None)


@pytest.fixture
def ledger(run):
    made = run("ledger", "init", "l.db", "--dataset", "d", "--epsilon", "2", "--delta", "1e-5")
    assert made.code == 0
    return PrivacyLedger("l.db")


@pytest.mark.slow
@pytest.mark.parametrize("form", ["csv", "parquet"])
def test_a_table_of_the_same_format_with_its_report(run, form):
    done = run("synthesize", f"table.{form}", *FIT, "--json")
    assert done.code == 0, done.err
    read = pd.read_csv if form == "csv" else pd.read_parquet
    synthetic = read(f"out/synthetic.{form}")
    assert list(synthetic.columns) == ["age", "smoker", "grade"]
    assert len(synthetic) == done.json["rows"] == 200
    assert synthetic["age"].between(18, 100).all()
    assert set(synthetic["grade"]) <= {1, 2, 3}
    assert set(os.listdir("out")) == set(done.json["files"])
    listed = json.loads(Path("out/release.json").read_bytes())
    report = PrivacyReport.from_dict(listed["privacy"])
    assert (report.epsilon, report.delta) == (1, 1e-6)
    assert not report.is_seeded
    assert report.noise_source == "operating system entropy"
    assert listed["rows"] == {"synthetic": 200}
    assert {file["name"] for file in listed["files"]} == {*os.listdir("out")} - {"release.json"}


@pytest.mark.slow
def test_two_runs_differ(run):
    for out in "ab":
        assert run("synthesize", "table.csv", *FIT[:-1], out).code == 0
    assert Path("a/synthetic.csv").read_bytes() != Path("b/synthetic.csv").read_bytes()


@pytest.mark.slow
def test_the_number_of_rows(run):
    assert run("synthesize", "table.csv", *FIT, "--rows", "7").code == 0
    assert len(pd.read_csv("out/synthetic.csv")) == 7


@pytest.mark.slow
def test_a_private_number_of_rows_is_a_noisy_one(run):
    pd.read_csv("table.csv")[:187].to_csv("table.csv", index=False)
    options = "--epsilon", "0.1", "--neighbours", "add_or_remove", "--json"
    said = [run("synthesize", "table.csv", *FIT[:-1], out, *options) for out in "ab"]
    assert all(done.code == 0 for done in said)
    # Noise of a hundred rows leaves the number as it is in one of some hundred releases.
    noisy = [done for done in said if done.json["rows"] != 187]
    assert noisy
    assert "187" not in "".join(done.err for done in noisy)


@pytest.mark.slow
def test_several_files_are_one_table(run, folder):
    table = pd.read_csv("table.csv")
    table[:50].to_csv("part-1.csv", index=False)
    table[50:].to_csv("part-2.csv", index=False)
    assert run("synthesize", "part-*.csv", *FIT, "--json").json["rows"] == 200


@pytest.mark.slow
def test_persons_are_protected(run):
    table = pd.read_csv("table.csv").assign(who=[f"p{i // 4}" for i in range(200)])
    table.to_csv("table.csv", index=False)
    done = run("synthesize", "table.csv", *FIT, "--unit", "who", "--json")
    assert done.json["report"]["unit"] == "who"
    assert done.json["rows"] == 50
    again = run("synthesize", "table.csv", *FIT, "--unit", "who", "--overwrite")
    assert "50 synthetic rows. One for each person; --rows draws more." in again.out
    more = run("synthesize", "table.csv", *FIT, "--unit", "who", "--overwrite", "--rows", "70")
    assert "70 synthetic rows." in more.out
    assert "One for each person" not in more.out
    assert "who" not in pd.read_csv("out/synthetic.csv").columns


@pytest.mark.slow
def test_the_ledger_is_charged(run, ledger):
    before = ledger.remaining()
    done = run("synthesize", "table.csv", *FIT, "--ledger", "l.db", "--json")
    (charge,) = ledger.report().charges
    assert charge.report.epsilon == 1
    assert done.json["ledger"]["remaining"] == ledger.remaining() < before


def test_a_fit_beyond_the_budget_is_refused(run, ledger):
    done = run("synthesize", "table.csv", *FIT, "--ledger", "l.db", "--epsilon", "2.5", "--json")
    assert done.code == 1
    assert done.json["exit_code"] == 1
    assert "spent" not in done.json
    assert "of its cap left" in done.err
    assert ledger.report().charges == ()
    assert not os.path.exists("out")


@pytest.mark.parametrize("error", [OSError(28, "full"), KeyboardInterrupt(), ZeroDivisionError()])
def test_what_fails_after_the_budget_was_spent_says_so(run, ledger, monkeypatch, error):
    def fail(*args):
        raise error

    monkeypatch.setattr(_fit, "write_table", fail)
    done = run("synthesize", "table.csv", *FIT, "--ledger", "l.db")
    assert done.code == (130 if isinstance(error, KeyboardInterrupt) else 2)
    assert "epsilon 1 at delta 1e-06. It was charged to the ledger l.db" in done.err
    assert len(ledger.report().charges) == 1
    assert "synthetic.csv" not in os.listdir("out")
    assert not [name for name in os.listdir("out") if name.startswith(".")]


def test_a_fit_that_stops_half_way_says_so(run, ledger, monkeypatch):
    def fit(self, X):
        self._charge(self.plan(200))
        raise KeyboardInterrupt

    monkeypatch.setattr(TableSampler, "fit", fit)
    done = run("synthesize", "table.csv", *FIT, "--ledger", "l.db")
    assert done.code == 130
    assert "It was charged to the ledger" in done.err
    assert not os.path.exists("out")
    done = run("synthesize", "table.csv", *FIT)
    assert "No ledger was given" in done.err


def test_what_fails_before_says_nothing_of_a_budget(run, ledger, monkeypatch):
    def fit(self, X):
        raise KeyboardInterrupt

    monkeypatch.setattr(TableSampler, "fit", fit)
    done = run("synthesize", "table.csv", *FIT, "--ledger", "l.db")
    assert done.code == 130
    assert "spent" not in done.err


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--out", "full"), "must be empty or new"),
        (("--out", "table.csv"), "must be a folder, got the file"),
        (("--unit", "whom"), "--unit must be a column of the table, got 'whom'"),
        (("--unit", "age"), "must be an identifier of the schema"),
        (("--schema", "none.yaml"), "No such file"),
        (("--schema", "table.csv"), "one of the endings .yaml"),
        (("--ledger", "none.db"), "There is no ledger none.db"),
        (("--target", "nobody"), "--target must be a column of the schema, got 'nobody'"),
        (("--max-rows", "2"), "--max-rows needs --unit"),
    ],
)
def test_wrong_use_is_refused_before_a_budget_is_spent(run, folder, arguments, said):
    (folder / "full").mkdir()
    (folder / "full" / "mine.txt").write_text("mine")
    done = run("synthesize", "table.csv", *FIT, *arguments)
    assert done.code == 2
    assert said in done.err
    assert "spent" not in done.err
    assert not os.path.exists("out")
    assert os.listdir("full") == ["mine.txt"]


@pytest.mark.parametrize(
    "arguments",
    [
        ("--epsilon", "0"),
        ("--epsilon", "inf"),
        ("--epsilon", "x"),
        ("--delta", "1"),
        ("--seed", "1"),
        ("--random-state", "1"),
        ("--rows", "0"),
        ("--noise", "none"),
        ("--neighbours", "none"),
    ],
)
def test_wrong_options_are_refused_by_the_parser(run, arguments):
    done = run("synthesize", "table.csv", *FIT, *arguments)
    assert done.code == 2
    assert done.out == ""
    assert not os.path.exists("out")


def test_without_matplotlib_nothing_is_spent(run, ledger, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.pyplot", None)
    done = run("synthesize", "table.csv", *FIT, "--ledger", "l.db")
    assert done.code == 2
    assert "The quality report requires matplotlib" in done.err
    assert not ledger.report().charges
    assert not Path("out").exists()


@pytest.mark.slow
def test_files_of_an_earlier_run_go_and_others_stay(run, folder):
    assert run("synthesize", "table.parquet", *FIT).code == 0
    (folder / "out" / "mine.txt").write_text("mine")
    assert run("synthesize", "table.csv", *FIT).code == 2
    assert run("synthesize", "table.csv", *FIT, "--overwrite").code == 0
    names = os.listdir("out")
    assert "synthetic.csv" in names
    assert "mine.txt" in names
    assert "synthetic.parquet" not in names


def test_an_input_is_never_replaced(run, folder):
    (folder / "out").mkdir()
    os.replace("table.csv", "out/synthetic.csv")
    before = Path("out/synthetic.csv").read_bytes()
    done = run("synthesize", "out/synthetic.csv", *FIT, "--overwrite")
    assert done.code == 2
    assert "would replace the input" in done.err
    assert Path("out/synthetic.csv").read_bytes() == before


def test_names_and_labels_in_any_script(run, folder):
    (folder / "schéma 表.yaml").write_text(
        "größe: {type: numeric, low: 0, high: 9}\n"
        "城市: {type: categorical, categories: [北京, Köln]}\n",
        encoding="utf-8",
    )
    (folder / "täble.csv").write_text("größe,城市\n" + "1,北京\n2,Köln\n" * 50, encoding="utf-8")
    done = run(
        "synthesize", "täble.csv", "--schema", "schéma 表.yaml", "--epsilon", "1", "--out", "öut"
    )
    assert done.code == 0, done.err
    synthetic = pd.read_csv("öut/synthetic.csv")
    assert list(synthetic.columns) == ["größe", "城市"]
    assert set(synthetic["城市"]) <= {"北京", "Köln"}


def test_the_folder_of_the_table_is_not_written_to(run, folder):
    (folder / "parts").mkdir()
    part = folder / "parts" / "synthetic.parquet"
    made_up().to_parquet(part)
    content = part.read_bytes()
    for out in ("parts", "parts/new/deep"):
        fit = ("--schema", "schema.yaml", "--epsilon", "1", "--out", out, "--overwrite")
        done = run("synthesize", "parts", *fit)
        assert done.code == 2
        assert "must be outside the folder of the table" in done.err
    assert list((folder / "parts").iterdir()) == [part]
    assert part.read_bytes() == content


_WAITS = """
import sys, time
from pathlib import Path
from sklearn_dpgen.command_line import main
from sklearn_dpgen.tables import TableSampler
fit = TableSampler.fit
def wait(self, X):
    Path("fitting").touch()
    while not Path("go").exists():
        time.sleep(0.01)
    return fit(self, X)
TableSampler.fit = wait
sys.exit(main(sys.argv[1:]))
"""


@pytest.fixture
def other(ledger):
    """Another process that has begun to fit for the same folder, under the same ledger."""
    command = [sys.executable, "-c", _WAITS, "synthesize", "table.csv", *FIT, "--ledger", "l.db"]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    give_up = time.monotonic() + 600
    while not os.path.exists("fitting") and time.monotonic() < give_up:
        time.sleep(0.01)
    yield process
    process.kill()
    process.wait()


@pytest.mark.slow
def test_of_two_processes_that_are_given_one_folder_one_is_refused(run, ledger, other):
    for more in ((), ("--overwrite",)):
        done = run("synthesize", "table.csv", *FIT, "--ledger", "l.db", *more)
        assert done.code == 2
        assert "--out out is in use by another run" in done.err
        assert "already spent" not in done.err
    assert ledger.report().charges == ()
    Path("go").touch()
    assert other.wait(timeout=600) == 0
    assert len(ledger.report().charges) == 1
    pages = {"card.html", "card.json", "card.md", "report.html", "schema.yaml"}
    names = {"model.safetensors", "release.json", "synthetic.csv"}
    assert set(os.listdir("out")) == names | pages
    # It is free again once the first has ended.
    assert "must be empty or new" in run("synthesize", "table.csv", *FIT, "--ledger", "l.db").err
    assert run("synthesize", "table.csv", *FIT, "--overwrite").code == 0


@pytest.mark.slow
def test_a_claim_that_any_process_can_make_loses_a_release(run, ledger, other, monkeypatch):
    """The negative twin: both are charged, and there is one model."""
    mkdir = Path.mkdir
    monkeypatch.setattr(
        Path, "mkdir", lambda self, parents=False, exist_ok=False: mkdir(self, 0o777, parents, True)
    )
    done = run("synthesize", "table.csv", *FIT, "--ledger", "l.db", "--overwrite")
    assert done.code == 0
    mkdir(Path("out/.sklearn-dpgen-unfinished"))
    Path("go").touch()
    assert other.wait(timeout=600) == 0
    assert len(ledger.report().charges) == 2
    assert os.listdir("out").count("model.safetensors") == 1


@pytest.mark.slow
@pytest.mark.skipif(os.name == "nt", reason="no SIGKILL")
def test_a_run_that_was_killed_is_explained_and_its_claim_can_be_removed(run, ledger, other):
    other.send_signal(signal.SIGKILL)
    other.wait()
    claim = Path("out/.sklearn-dpgen-unfinished")
    done = run("synthesize", "table.csv", *FIT, "--ledger", "l.db")
    assert done.code == 2
    assert f"look into {claim} and remove it" in done.err
    claim.rmdir()
    assert run("synthesize", "table.csv", *FIT, "--ledger", "l.db").code == 0
    assert len(ledger.report().charges) == 1


@pytest.mark.slow
def test_files_appear_once_all_are_complete(run, folder, monkeypatch):
    """An earlier release stays as it is until then, and also after a fit that fails."""
    assert run("synthesize", "table.csv", *FIT).code == 0
    before = {path.name: path.read_bytes() for path in Path("out").iterdir()}
    seen = []

    def look(*args):
        seen.append({path.name: path.read_bytes() for path in Path("out").glob("[!.]*")})

    monkeypatch.setattr(_fit, "_publish", look)
    assert run("synthesize", "table.csv", *FIT, "--overwrite").code == 0
    assert seen == [before]
    after = {path.name: path.read_bytes() for path in Path("out").iterdir()}
    assert after.keys() == before.keys()
    assert after != before

    def fail(self, X):
        raise KeyboardInterrupt

    monkeypatch.setattr(TableSampler, "fit", fail)
    assert run("synthesize", "table.csv", *FIT, "--overwrite").code == 130
    assert {path.name: path.read_bytes() for path in Path("out").iterdir()} == after
