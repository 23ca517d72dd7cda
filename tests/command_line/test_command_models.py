"""What synthesize publishes, and what is done with it: sample, inspect, verify, audit."""

import hashlib
import html
import json
import os
import shutil
from pathlib import Path

import pandas as pd
import pytest
from command_cases import SCHEMA, made_up

import sklearn_dpgen
from sklearn_dpgen import auditing
from sklearn_dpgen.command_line import _fit, main
from sklearn_dpgen.ledger import PrivacyLedger
from sklearn_dpgen.reporting import QualityReport
from sklearn_dpgen.reporting._quality_report import report_on_rows

FIT = ("--schema", "schema.yaml", "--epsilon", "1", "--delta", "1e-6")
PUBLIC = [
    "card.html",
    "card.json",
    "card.md",
    "model.safetensors",
    "release.json",
    "report.html",
    "schema.yaml",
    "synthetic.csv",
]


def write_keys(name):
    serialization = pytest.importorskip("cryptography.hazmat.primitives.serialization")
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    key = Ed25519PrivateKey.generate()
    pem, plain = serialization.Encoding.PEM, serialization.NoEncryption()
    Path(f"{name}.pem").write_bytes(
        key.private_bytes(pem, serialization.PrivateFormat.PKCS8, plain)
    )
    public = key.public_key().public_bytes(pem, serialization.PublicFormat.SubjectPublicKeyInfo)
    Path(f"{name}.public.pem").write_bytes(public)


@pytest.fixture(scope="module")
def signed(tmp_path_factory):
    """What one signed run writes."""
    folder = tmp_path_factory.mktemp("signed")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        made_up().to_csv("table.csv", index=False)
        Path("schema.yaml").write_text(SCHEMA, encoding="utf-8")
        write_keys("mine")
        write_keys("other")
        options = ("--signing-key", "mine.pem", "--title", "A <title>", "--author", "Ada")
        assert main(["synthesize", "table.csv", *FIT, *options, "--out", "out", "--quiet"]) == 0
    return folder


@pytest.fixture
def out(signed, folder):
    """A copy of it, in the folder to work in."""
    for path in signed.iterdir():
        if path.is_dir():
            shutil.copytree(path, folder / path.name)
        else:
            shutil.copyfile(path, folder / path.name)
    return folder / "out"


@pytest.mark.slow
def test_all_of_it_is_made_of_what_was_paid_for(run, monkeypatch):
    def never(*args, **options):
        raise AssertionError("the private table is compared with")

    # Only the page that is not private is given the table.
    monkeypatch.setattr(QualityReport, "__init__", never)
    monkeypatch.setattr(_fit, "read_frame", never)
    done = run("synthesize", "table.csv", *FIT, "--out", "out", "--json")
    assert done.code == 0, done.err
    assert sorted(os.listdir("out")) == sorted(done.json["files"]) == PUBLIC
    # The twin: where it is asked for, it would be read.
    asked = run("synthesize", "table.csv", *FIT, "--out", "new", "--not-private-report")
    assert asked.code == 2
    assert "budget was already spent" in asked.err
    assert not os.path.exists("new-NOT-PRIVATE.html")
    assert "model.safetensors" in os.listdir("new")


@pytest.mark.slow
def test_a_page_that_is_not_private_is_named_so(run):
    fit = ("synthesize", "table.csv", *FIT, "--out", "out")
    done = run(*fit, "--not-private-report")
    assert done.code == 0, done.err
    assert "Do not publish it" in done.err
    page = Path("out-NOT-PRIVATE.html").read_text(encoding="utf-8")
    assert "not private" in page
    # All that is in the folder may be published.
    assert sorted(os.listdir("out")) == PUBLIC
    assert run("verify", "out").code == 0
    # That of an earlier run is not replaced unless it is asked for, and goes with its rows.
    again = run(*fit[:-1], "out/", "--not-private-report")
    assert again.code == 2
    assert "out-NOT-PRIVATE.html exists already" in again.err
    assert "spent" not in again.err
    assert run(*fit, "--overwrite").code == 0
    assert not os.path.exists("out-NOT-PRIVATE.html")


@pytest.mark.slow
def test_a_model_has_the_report_and_neither_path_nor_seed(run):
    made = run("ledger", "init", "secret.db", "--dataset", "d", "--epsilon", "2", "--delta", "1e-5")
    assert made.code == 0
    fit = ("--ledger", "secret.db", "--out", "out")
    assert run("synthesize", "table.csv", *FIT, *fit).code == 0
    model = sklearn_dpgen.load("out/model.safetensors")
    report = json.loads(Path("out/release.json").read_text(encoding="utf-8"))["privacy"]
    assert json.loads(model.privacy_.to_json()) == report
    for name in os.listdir("out"):
        assert b"secret.db" not in Path("out", name).read_bytes()


@pytest.mark.parametrize("name", ["more.csv", "more.parquet", "more.feather", "more.csv.gz"])
def test_more_rows_of_a_model(run, out, name):
    done = run("sample", "out/model.safetensors", "--rows", "30", "--out", name, "--json")
    assert done.code == 0, done.err
    read = {"parquet": pd.read_parquet, "feather": pd.read_feather}.get(
        name.rpartition(".")[2], pd.read_csv
    )
    frame = read(name)
    assert list(frame.columns) == ["age", "smoker", "grade"]
    assert len(frame) == done.json["rows"] == 30
    again = ("sample", "out/model.safetensors", "--rows", "30", "--out", name)
    assert run(*again).code == 2
    assert run(*again, "--overwrite").code == 0
    assert not read(name).equals(frame)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("sample", "none.safetensors", "--rows", "3", "--out", "a.csv"), "There is no model"),
        (("sample", "table.csv", "--rows", "3", "--out", "a.csv"), "table.csv"),
        (("sample", "out/model.safetensors", "--rows", "3", "--out", "a.txt"), "of the endings"),
        (("inspect", "schema.yaml"), "schema.yaml"),
        (("verify", "out/card.md", "--public-key", "mine.public.pem"), "must be a JSON file"),
        (("verify", "out/card.json", "--public-key", "mine.pem"), "a public Ed25519 key"),
        (("verify", "out/card.json", "--public-key", "table.csv"), "a public Ed25519 key"),
        (("verify", "out/card.json", "--public-key", "none.pem"), "No such file"),
        (("verify", "none.json", "--public-key", "mine.public.pem"), "No such file"),
    ],
)
def test_wrong_use(run, out, arguments, said):
    done = run(*arguments)
    assert done.code == 2
    assert said in done.err
    assert "not shown" not in done.err
    assert not os.path.exists("a.csv")


@pytest.mark.parametrize("key", ["mine.public.pem", "table.csv", "none.pem"])
def test_a_key_that_cannot_sign_is_refused_before_a_budget_is_spent(run, out, key):
    done = run("synthesize", "table.csv", *FIT, "--out", "new", "--signing-key", key)
    assert done.code == 2
    assert key in done.err
    assert "spent" not in done.err
    assert not os.path.exists("new")


@pytest.mark.slow
def test_a_model_is_shown(run, out):
    done = run("inspect", "out/model.safetensors", "--json")
    assert done.code == 0
    assert done.json["class"] == "TableSampler"
    assert done.json["columns"] == ["age", "smoker", "grade"]
    assert done.json["report"]["epsilon"] == 1
    assert "sklearn_dpgen" in done.json["report"]["versions"]
    text = run("inspect", "out/model.safetensors").out
    assert "The best attacker" in text


VERIFY = ("verify", "out/card.json", "--public-key", "mine.public.pem")
FILE = ("--file", "out/model.safetensors")


def test_a_signed_card_is_verified(run, out):
    done = run(*VERIFY, *FILE, "--json")
    assert done.code == 0, done.err
    assert done.json["title"] == "A <title>"
    assert done.json["privacy"]["epsilon"] == 1
    assert "no model was checked" in run(*VERIFY).out


def changed(text):
    content = json.loads(text)
    content["privacy"]["epsilon"] = 0.1
    return json.dumps(content)


def unsigned(text):
    content = json.loads(text)
    del content["signature"]
    return json.dumps(content)


@pytest.mark.parametrize("change", [changed, unsigned, lambda text: "{}", lambda text: "[1]"])
def test_another_card_is_not(run, out, change):
    path = out / "card.json"
    path.write_text(change(path.read_text(encoding="utf-8")), encoding="utf-8")
    done = run(*VERIFY, *FILE, "--json")
    assert done.code == 1
    assert done.json["ok"] is False
    assert run(*VERIFY).out.startswith("NOT VERIFIED. ")


def test_another_key_or_model_is_not(run, out):
    assert run(*VERIFY[:-1], "other.public.pem", *FILE).code == 1
    with open("out/model.safetensors", "ab") as file:
        file.write(b"x")
    done = run(*VERIFY, *FILE)
    assert done.code == 1
    assert "another" in done.out or "not the one" in done.out


RELEASE = ("verify", "out")
KEY = ("--public-key", "mine.public.pem")


def test_a_release_is_verified_with_all_its_files(run, out):
    done = run(*RELEASE, *KEY, "--json")
    assert done.code == 0, done.out
    assert done.json["faults"] == []
    assert done.json["signature_checked"] is True
    listed = json.loads((out / "release.json").read_text(encoding="utf-8"))
    assert {facts["name"] for facts in listed["files"]} == {*PUBLIC} - {"release.json"}
    for facts in listed["files"]:
        content = (out / facts["name"]).read_bytes()
        assert facts["sha256"] == hashlib.sha256(content).hexdigest()
    assert "no signature was checked" in run(*RELEASE).out
    # The signature of a card is not valid for a list, nor that of a list for a card.
    card = json.loads((out / "card.json").read_text(encoding="utf-8"))
    assert card["signature"]["value"] != listed["signature"]["value"]


def another_row(out):
    with open(out / "synthetic.csv", "a", encoding="utf-8") as file:
        file.write("18,no,1\n")
    return "synthetic.csv: is not the file of the list."


def another_page(out):
    (out / "report.html").unlink()
    return "report.html: is missing."


def another_file(out):
    (out / "notes.txt").write_text("x", encoding="utf-8")
    return "notes.txt: is not in the list."


def a_private_page(out):
    (out / "out-NOT-PRIVATE.html").write_text("x", encoding="utf-8")
    return "out-NOT-PRIVATE.html: shows private records; remove it before you publish."


@pytest.mark.parametrize("change", [another_row, another_page, another_file, a_private_page])
def test_a_release_that_was_changed_is_not(run, out, change):
    fault = change(out)
    done = run(*RELEASE, "--json")
    assert done.code == 1
    assert done.json["faults"] == [fault]


def other_digest(content):
    content["files"][0]["sha256"] = "0" * 64


def other_budget(content):
    content["privacy"]["epsilon"] = 0.1


def no_signature(content):
    del content["signature"]


def path_outside(content):
    content["files"][0]["name"] = "../table.csv"


@pytest.mark.parametrize("change", [other_digest, other_budget, no_signature, path_outside])
def test_a_list_that_was_changed_is_not(run, out, change):
    path = out / "release.json"
    content = json.loads(path.read_text(encoding="utf-8"))
    change(content)
    path.write_text(json.dumps(content), encoding="utf-8")
    assert run(*RELEASE, *KEY).code == 1
    # Digests alone show no change of what they do not cover.
    assert run(*RELEASE).code == (1 if change in (other_digest, path_outside) else 0)


def test_what_is_no_release_is_an_error(run, out):
    assert "There is no" in run("verify", ".").err
    (out / "release.json").write_text("[1]", encoding="utf-8")
    assert "must be the list of a release" in run(*RELEASE).err
    assert "--file must be left out" in run(*RELEASE, *FILE).err


def test_the_report_is_about_the_published_rows(run, out):
    listed = json.loads((out / "release.json").read_text(encoding="utf-8"))
    model = sklearn_dpgen.load(out / "model.safetensors")
    rows = model.sample(**listed["draw"])
    assert rows.to_csv(index=False, lineterminator="\n") == (out / "synthetic.csv").read_text()
    page = (out / "report.html").read_text(encoding="utf-8")
    assert f"{len(rows)} synthetic records" in page
    # The shares on the page are those of these rows, and other rows have others.
    figures = report_on_rows(model, rows, seed=0).to_dict()["figures"]
    other = report_on_rows(model, model.sample(200, random_state=0), seed=0).to_dict()["figures"]
    (share,) = (
        dict(zip(column["labels"], column["synthetic"], strict=True))["yes"]
        for column in figures["columns"]
        if column["name"] == "smoker"
    )
    assert share == pytest.approx((rows["smoker"] == "yes").mean())
    # Of one column alone two draws may have the same shares.
    assert figures["columns"] != other["columns"]
    for line in listed["verdict"]["fit"] + listed["verdict"]["not_fit"]:
        assert line in html.unescape(page)


def test_the_first_page_says_what_was_spent_and_drawn(run, out):
    page = html.unescape((out / "report.html").read_text(encoding="utf-8"))
    spent = json.loads((out / "release.json").read_text(encoding="utf-8"))["spending"]
    assert "epsilon 1 at delta 1e-06" in spent["spent by this release"]
    assert "no ledger was charged" in spent["spent by all releases"]
    assert page.index("What the rows are fit for") < page.index("What was spent")
    for label, text in spent.items():
        assert label in page
        assert text in page


@pytest.mark.slow
def test_the_total_of_the_ledger_is_on_the_first_page(run):
    assert (
        run("ledger", "init", "l.db", "--dataset", "d", "--epsilon", "3", "--delta", "1e-5").code
        == 0
    )
    for out in "ab":
        assert run("synthesize", "table.csv", *FIT, "--ledger", "l.db", "--out", out).code == 0
    spent = PrivacyLedger("l.db").spent()
    page = html.unescape(Path("b/report.html").read_text(encoding="utf-8"))
    assert f"epsilon {spent:.4g} at delta 1e-05: charges 1 to 2 together of the ledger" in page
    assert "the only charge of the ledger" in html.unescape(Path("a/report.html").read_text())


def test_a_damaged_model_is_an_error(run, out):
    content = bytearray((out / "model.safetensors").read_bytes())
    content[len(content) // 2] ^= 1
    (out / "model.safetensors").write_bytes(content)
    done = run("inspect", "out/model.safetensors")
    assert done.code == 2
    assert "not shown" not in done.err


def test_a_model_without_a_guarantee_is_none(run, out, monkeypatch):
    model = sklearn_dpgen.load("out/model.safetensors")
    del model.privacy_
    monkeypatch.setattr(sklearn_dpgen, "load", lambda path: model)
    done = run("inspect", "out/model.safetensors")
    assert "must hold a fitted model with a privacy report" in done.err


@pytest.mark.parametrize("violated", [False, True])
def test_an_audit_is_of_a_made_up_table(run, folder, monkeypatch, violated):
    seen = []

    class Result:
        is_violation = violated

        def to_dict(self):
            return {"ratio": 0.97}

        def to_text(self):
            return "ratio 0.97"

    def audit(estimator, X):
        seen.append((estimator, X))
        return Result()

    monkeypatch.setattr(auditing, "audit", audit)
    os.remove("table.csv")
    done = run("audit", *FIT, "--rows", "50", "--target", "grade", "--json")
    assert done.code == int(violated)
    assert done.json["audit"] == {"ratio": 0.97}
    ((estimator, X),) = seen
    assert estimator.target == "grade"
    assert len(X) == 50
    assert X["age"].between(18, 100).all()
    assert set(X["smoker"].dropna()) == {"no", "yes"}
    # Each column of the made-up table is as declared.
    assert (estimator.schema.check(X) == 0).all(axis=None)


@pytest.mark.slow
def test_an_audit(run):
    done = run("audit", *FIT, "--rows", "100", "--json")
    assert done.code == 0, done.all
    assert 0 < done.json["audit"]["ratio"] <= 1
