"""Three newcomers on the command line, from their files to a signed release, and every surprise.

Each newcomer has made-up files as they come out of real systems, and writes a schema from public
knowledge. What they would expect after each command is a line of the table; one that does not hold
is a surprise::

    python benchmarks/bench_newcomers.py

hospital
    One export with several stays of a patient: semicolons, Windows-1252, dates of the day and the
    minute, euros with decimal commas, ages that are missing in four spellings, ICD-10 codes, notes
    with quotes and line breaks.
survey
    2000 people, 120 answers from 1 to 5 with codes 8 and 9, a weight, and a year of birth.
visits
    A folder with a table of patients and one of their visits, with decimals and dates.
"""

import argparse
import csv
import json
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pandas as pd
from _common import record

CODES = [f"{letter}{number:02d}" for letter in "EIJ" for number in range(20)]
NULLS = ["", "-999", "unbekannt", "."]
HOSPITAL = """\
unit: Patient-ID
delimiter: ";"
encoding: cp1252
rules:
  - Aufnahme <= Entlassung
columns:
  Patient-ID: {type: identifier}
  Aufnahme:
    {type: datetime, low: 2020-01-01, high: 2024-12-31, resolution: min, format: "%d.%m.%Y %H:%M"}
  Entlassung:
    {type: datetime, low: 2020-01-01, high: 2025-03-31, resolution: min, format: "%d.%m.%Y %H:%M"}
  Alter: {type: numeric, low: 0, high: 110, integer: true, missing: [-999, unbekannt, "."]}
  Diagnose: {type: categorical, categories_from: icd10.txt, hierarchy: [1]}
  Kosten:
    {type: numeric, low: 0, high: 20000, step: 0.01, decimal: ",", thousands: ".", currency: 1 €}
  Station: {type: categorical, categories: ["Innere", "Chirurgie", "Gynäkologie", "NO"]}
"""
VISITS = """\
tables:
  patients:
    columns:
      sex: {type: categorical, categories: [f, m]}
      born: {type: datetime, low: 1930-01-01, high: 2006-12-31, resolution: D}
    primary_key: patient
  visits:
    columns:
      start: {type: datetime, low: 2023-01-01, high: 2023-12-31, resolution: D}
      end: {type: datetime, low: 2023-01-01, high: 2024-03-31, resolution: D}
      dose: {type: numeric, low: 0, high: 20, step: 0.5}
    foreign_key: {patient: patients}
    sequence_index: start
    max_rows: 4
    rules:
      - start <= end
"""


class Newcomer:
    """The commands of one newcomer, and what they expected."""

    def __init__(self, name, folder):
        self.name, self.folder, self.rows = name, folder, []
        self.start = time.monotonic()

    def run(self, *arguments):
        """Return the finished command."""
        command = [sys.executable, "-m", "sklearn_dpgen", *map(str, arguments)]
        return subprocess.run(command, cwd=self.folder, capture_output=True, text=True)

    def expect(self, step, what, holds, detail=""):
        """Note whether an expectation holds."""
        row = {"newcomer": self.name, "step": step, "expected": what, "holds": bool(holds)}
        self.rows.append(row)
        if not holds:
            print(f"SURPRISE {self.name}, {step}: {what}\n{detail}", flush=True)

    def succeed(self, step, *arguments, code=0):
        """Run a command, and expect its exit code."""
        done = self.run(*arguments)
        text = f"{' '.join(map(str, arguments))}\n{done.stdout}\n{done.stderr}"
        self.expect(step, f"exit code {code}", done.returncode == code, text)
        self.expect(step, "no traceback", "Traceback" not in done.stderr, text)
        return done.stdout + done.stderr

    def release(self, *table, schema, secrets, unit=None, arguments=()):
        """From a completed schema to a signed folder, as every newcomer goes."""
        text = self.succeed("check the schema", "check", schema)
        self.expect("check the schema", "valid", "valid schema" in text, text)
        checked = self.succeed("check the table", "check", schema, *table)
        self.expect("check the table", "marked as private", "PRIVATE" in checked)
        self.expect("check the table", "fits", re.search("fits? the schema", checked), checked)
        budget = ("--epsilon", 2, "--delta", 1e-6)
        self.succeed("plan", "plan", "--schema", schema, "--rows", 1000, *budget)
        ledger = ("ledger", "init", "all.ledger", "--dataset", self.name, *budget)
        self.succeed("ledger", *ledger, *(() if unit is None else ("--unit", unit)))
        made = ("synthesize", *table, "--schema", schema, *budget, "--ledger", "all.ledger")
        made = (*made, "--signing-key", "key.pem", *arguments)
        out = self.succeed("synthesize", *made, "--out", "release", "--not-private-report")
        warned = [line for line in out.splitlines() if line.startswith("warning: ")]
        # That the comparison with the private rows is private, is wanted.
        others = [line for line in warned if "NOT-PRIVATE" not in line]
        self.expect("synthesize", "no other warning", not others, others)
        self.expect("synthesize", "says what the rows are fit for", "Fit for:" in out, out)
        self.succeed("verify", "verify", "release", "--public-key", "public.pem")
        refused = self.succeed("again", *made, "--out", "again", code=1)
        self.expect("again", "refused by the ledger", "ledger" in refused, refused)
        published = [file for file in (self.folder / "release").rglob("*") if file.is_file()]
        texts = b"\n".join(file.read_bytes() for file in published)
        told = [secret for secret in secrets if secret.encode() in texts]
        self.expect("publish", "no private text in any file", not told, told)
        names = [file.name for file in published]
        private = [name for name in names if "NOT-PRIVATE" in name]
        self.expect("publish", "no private file in the folder", not private, names)
        return {file.name: file for file in published}


def keys(folder):
    """Make a pair of keys, as `openssl genpkey` does."""
    for command in (
        ["openssl", "genpkey", "-algorithm", "ed25519", "-out", "key.pem"],
        ["openssl", "pkey", "-in", "key.pem", "-pubout", "-out", "public.pem"],
    ):
        subprocess.run(command, cwd=folder, check=True, capture_output=True)


def euros(cents):
    """Return an amount as a German export writes it."""
    whole, rest = divmod(int(cents), 100)
    return f"{f'{whole:,}'.replace(',', '.')},{rest:02d} €"


def write_stays(path, rng):
    """Write the export of the hospital, and return its private texts."""
    rows, secrets = [], []
    for patient in range(900):
        age = int(rng.integers(18, 95))
        for _ in range(1 + rng.poisson(1.0)):
            start = pd.Timestamp("2020-01-01") + pd.Timedelta(
                minutes=int(rng.integers(1826 * 1440))
            )
            end = start + pd.Timedelta(minutes=int(rng.exponential(4 * 1440)))
            secret = f"Befund {rng.integers(10**9):09d}"
            secrets.append(secret)
            rows.append(
                {
                    "Patient-ID": f"P{patient:05d}",
                    "Aufnahme": start.strftime("%d.%m.%Y %H:%M"),
                    "Entlassung": end.strftime("%d.%m.%Y %H:%M"),
                    "Alter": rng.choice(NULLS) if rng.random() < 0.1 else str(age),
                    "Diagnose": str(rng.choice(CODES, p=_zipf(len(CODES)))),
                    "Kosten": euros(rng.gamma(2.0, 120000)) if rng.random() > 0.01 else "0,00 €",
                    "Station": str(rng.choice(["Innere", "Chirurgie", "Gynäkologie", "NO"])),
                    "Notiz": f'{secret}; "stabil",\nweiter wie bisher',
                }
            )
    frame = pd.DataFrame(rows)
    frame.to_csv(path, sep=";", encoding="cp1252", index=False, quoting=csv.QUOTE_MINIMAL)
    return frame, secrets


def _zipf(n):
    weights = 1 / np.arange(1, n + 1)
    return weights / weights.sum()


def hospital(folder, rng):
    """Play the newcomer with one messy export."""
    newcomer = Newcomer("hospital", folder)
    real, secrets = write_stays(folder / "stays.csv", rng)
    (folder / "icd10.txt").write_text("\n".join(CODES) + "\n", encoding="utf-8")
    (folder / "schema.yaml").write_text(HOSPITAL, encoding="utf-8")
    newcomer.succeed("draft", "draft-schema", "stays.csv", "--out", "draft.yaml")
    draft = (folder / "draft.yaml").read_text(encoding="utf-8")
    newcomer.expect("draft", "finds the delimiter", "delimiter: ;" in draft, draft)
    newcomer.expect("draft", "names the identifier", "type: identifier" in draft, draft)
    # A newcomer does not know yet that the file is not in UTF-8.
    (folder / "first.yaml").write_text(HOSPITAL.replace("encoding: cp1252\n", ""), encoding="utf-8")
    told = newcomer.succeed("first check", "check", "first.yaml", "stays.csv", code=1)
    newcomer.expect("first check", "names the encoding", "encoding: cp1252" in told, told)
    files = newcomer.release(
        "stays.csv",
        schema="schema.yaml",
        secrets=[*secrets, "stabil"],
        unit="Patient-ID",
        arguments=["--rows", 900],
    )
    path = files.get("synthetic.csv")
    newcomer.expect("publish", "a CSV file, like the input", path is not None, [*files])
    if path is None:
        return newcomer
    text = path.read_bytes().decode("cp1252", errors="replace")
    made = pd.read_csv(path, sep=";", encoding="cp1252", dtype=str, keep_default_na=False)
    said = f"\n{text[:600]}"
    newcomer.expect("values", "columns of the schema", [*made] == [*real][:-1], said)
    newcomer.expect("values", "umlauts", set(made["Station"]) <= set(real["Station"]), said)
    for name in ("Aufnahme", "Entlassung"):
        is_date = made[name].str.fullmatch(r"\d\d\.\d\d\.20\d\d \d\d:\d\d")
        newcomer.expect("values", f"{name} in its format", is_date.all(), said)
    money = made["Kosten"].str.fullmatch(r"\d{1,3}(\.\d{3})*,\d\d €")
    newcomer.expect("values", "euros as in the input", money.all(), said)
    age = made["Alter"].str.fullmatch(r"\d{1,3}|")
    newcomer.expect("values", "ages are integers or empty", age.all(), said)
    newcomer.expect("values", "labels of the list", set(made["Diagnose"]) <= {*CODES}, said)
    start, end = (
        pd.to_datetime(made[name], format="%d.%m.%Y %H:%M", errors="coerce")
        for name in ("Aufnahme", "Entlassung")
    )
    newcomer.expect("values", "no stay ends before it begins", (start <= end).all(), said)
    # One row more fits the same schema: what was published is read as it was written.
    newcomer.succeed("read back", "check", "schema.yaml", path)
    listed = json.loads(files["release.json"].read_text(encoding="utf-8"))
    unit = json.dumps(listed["privacy"])
    newcomer.expect("report", "patients are protected", re.search("person|Patient-ID", unit), unit)
    more = ("sample", files["model.safetensors"], "--rows", 50, "--where", "Alter >= 65")
    newcomer.succeed("sample", *more, "--out", "old.csv")
    return newcomer


def survey(folder, rng):
    """Play the newcomer with many answers of few people."""
    newcomer = Newcomer("survey", folder)
    n, questions = 2000, [f"q{i:03d}" for i in range(120)]
    mood = rng.normal(size=n)
    columns: dict[str, object] = {"id": [f"{i:06d}" for i in range(n)]}
    columns["year of birth"] = rng.integers(1930, 2006, n)
    columns["weight"] = np.round(rng.gamma(4, 0.25, n), 3)
    for i, name in enumerate(questions):
        answer = np.round(3 + 0.8 * mood * (i % 3 - 1) + rng.normal(size=n)).clip(1, 5).astype(int)
        columns[name] = np.where(rng.random(n) < 0.05, rng.choice([8, 9], n), answer)
    frame = pd.DataFrame(columns)
    frame.to_csv(folder / "survey.csv", index=False)
    text = newcomer.succeed("draft", "draft-schema", "survey.csv", "--out", "draft.yaml")
    newcomer.expect(
        "draft",
        "names the identifier",
        "identifier" in (folder / "draft.yaml").read_text().split("\n\n", 1)[-1],
        text,
    )
    lines = [
        "id: {type: identifier}",
        "year of birth: {type: numeric, low: 1900, high: 2010, integer: true}",
    ]
    lines += ["weight: {type: numeric, low: 0, high: 5, step: 0.001}"]
    lines += [
        f"{q}: {{type: ordinal, categories: [1, 2, 3, 4, 5], missing: [8, 9]}}" for q in questions
    ]
    (folder / "schema.yaml").write_text("\n".join(lines) + "\n")
    files = newcomer.release("survey.csv", schema="schema.yaml", secrets=[])
    made = pd.read_csv(files["synthetic.csv"], dtype=str, keep_default_na=False)
    said = f"\n{made.iloc[:5, :8]}"
    newcomer.expect("values", "columns in order", [*made] == [*frame], said)
    newcomer.expect("values", "as many rows", len(made) == n, said)
    answers = made[questions].isin([*"12345", ""]).all(axis=None)
    newcomer.expect("values", "answers are integers or empty", answers, said)
    newcomer.expect(
        "values", "years are integers", made["year of birth"].str.fullmatch(r"\d{4}").all(), said
    )
    newcomer.expect(
        "values",
        "weights have three decimals at most",
        made["weight"].str.fullmatch(r"\d(\.\d{1,3})?").all(),
        said,
    )
    newcomer.succeed("read back", "check", "schema.yaml", files["synthetic.csv"])
    return newcomer


def visits(folder, rng):
    """Play the newcomer with two tables in a folder."""
    newcomer = Newcomer("visits", folder)
    tables = folder / "tables"
    tables.mkdir()
    n = 1500
    keys_of = [f"K{i:04d}" for i in range(n)]
    born = pd.Timestamp("1930-01-01") + pd.to_timedelta(rng.integers(0, 28000, n), unit="D")
    patients = pd.DataFrame({"patient": keys_of, "sex": rng.choice(["f", "m"], n), "born": born})
    patients.to_csv(tables / "patients.csv", index=False)
    owners = np.repeat(np.arange(n), rng.integers(0, 5, n))
    start = pd.Timestamp("2023-01-01") + pd.to_timedelta(
        rng.integers(0, 365, len(owners)), unit="D"
    )
    end = start + pd.to_timedelta(rng.geometric(0.3, len(owners)) - 1, unit="D")
    frame = pd.DataFrame({"patient": np.array(keys_of)[owners], "start": start, "end": end})
    frame["dose"] = rng.integers(0, 41, len(owners)) / 2
    frame.to_csv(tables / "visits.csv", index=False)
    (folder / "hospital.yaml").write_text(VISITS)
    newcomer.succeed("draft", "draft-schema", "tables", "--out", "draft.yaml")
    files = newcomer.release("tables", schema="hospital.yaml", secrets=[], unit="patient")
    made = {
        name: pd.read_csv(files[f"synthetic-{name}.csv"], dtype=str)
        for name in ("patients", "visits")
    }
    said = "\n".join(str(one.head()) for one in made.values())
    newcomer.expect(
        "values",
        "each visit has a patient",
        set(made["visits"]["patient"]) <= set(made["patients"]["patient"]),
        said,
    )
    newcomer.expect(
        "values",
        "no visit ends before it begins",
        (made["visits"]["start"] <= made["visits"]["end"]).all(),
        said,
    )
    newcomer.expect(
        "values",
        "doses are halves",
        made["visits"]["dose"].str.fullmatch(r"\d+(\.[05])?").all(),
        said,
    )
    dates = pd.concat([made["patients"]["born"], made["visits"]["start"]])
    newcomer.expect(
        "values", "dates as in the input", dates.str.fullmatch(r"\d{4}-\d\d-\d\d").all(), said
    )
    return newcomer


NEWCOMERS = {"hospital": hospital, "survey": survey, "visits": visits}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", nargs="+", choices=NEWCOMERS, default=[*NEWCOMERS])
    parser.add_argument("--keep", help="folder that keeps the files")
    args = parser.parse_args()
    rows = []
    with tempfile.TemporaryDirectory() as name:
        for newcomer in args.only:
            folder = Path(args.keep or name).resolve() / newcomer
            folder.mkdir(parents=True)
            keys(folder)
            played = NEWCOMERS[newcomer](folder, np.random.default_rng(0))
            held = sum(row["holds"] for row in played.rows)
            rows.append(
                {
                    "newcomer": newcomer,
                    "expectations": len(played.rows),
                    "surprises": len(played.rows) - held,
                    "seconds": round(time.monotonic() - played.start, 1),
                }
            )
    record("newcomers", rows, {"epsilon": 2.0, "delta": 1e-6})


if __name__ == "__main__":
    main()
