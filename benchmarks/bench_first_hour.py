"""A stranger's first hour, from the wheel alone: its installation, first tables and first report.

A wheel is installed with the constraints in an empty environment, outside of the checkout. What is
run there is what the pages show: the snippets of the README, as the index shows it, and of
``doc/persons.rst``; each in a process of its own, so that imports count. The steps of one Python
replace those of the same Python in ``results/first_hour.json``; ``make first-hour
PYTHON=python3.13`` builds the wheel first.
"""

import argparse
import json
import os
import re
import subprocess
import sys
import textwrap
import time
from email import message_from_string
from pathlib import Path
from tempfile import TemporaryDirectory
from zipfile import ZipFile

from _common import RESULTS, record

ROOT = Path(__file__).parents[1]
EXTRAS = "arrow,examples"
# The README's table is one of patients; these rows are made up.
PATIENTS = """
import random
random.seed(0)
with open("patients.csv", "w") as file:
    file.write("patient,age,bmi,admitted,discharged,smoker\\n")
    for i in range(5000):
        day, stay = random.randint(1, 20), random.randint(0, 8)
        file.write(f"P{i // 2},{random.randint(18, 90)},{random.randint(180, 400) / 10},")
        file.write(f"{day:02}/03/2022,{day + stay:02}/03/2022,{random.choice(['no', 'yes'])}\\n")
"""
SYNTHESIZE = "synthesize patients.csv --schema schema.yaml --epsilon 1 --delta 1e-6 --out synthetic"


def blocks(page, directive):
    """Return the blocks of a directive on a page."""
    found = re.findall(rf"^\.\. {directive}\n((?:\n|[ ]+.*\n)+)", page + "\n", flags=re.M)
    return [textwrap.dedent(block).strip() + "\n" for block in found]


def read_readme(wheel):
    """Return the page that an index shows."""
    with ZipFile(wheel) as archive:
        (name,) = (n for n in archive.namelist() if n.endswith(".dist-info/METADATA"))
        return message_from_string(archive.read(name).decode()).get_payload()


def first_persons(page):
    """Return the code of the first section of the page on persons, to the first synthetic rows."""
    section = page.partition("\nFrom two files to two synthetic files\n")[2]
    code = ""
    for block in blocks(section, "testcode::"):
        code += block
        if ".sample(" in block:
            return code
    raise ValueError("the page on persons has no sample")


def run(command, folder):
    """Run a command outside of the checkout; return its wall time in seconds."""
    hidden = ("PYTHONPATH", "VIRTUAL_ENV")
    environment = {name: value for name, value in os.environ.items() if name not in hidden}
    start = time.perf_counter()
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)
    seconds = time.perf_counter() - start
    if done.returncode:
        raise SystemExit(f"{command}\n{done.stdout}\n{done.stderr}")
    return seconds


def size(folder):
    """Return the size of the files below a folder in MB."""
    return sum(path.lstat().st_size for path in folder.rglob("*")) / 1e6


def measure(python, wheel, folder):
    """Yield step, seconds and MB that it adds to the disk."""
    binaries = folder / "venv" / ("Scripts" if os.name == "nt" else "bin")
    seconds = run([python, "-m", "venv", "venv"], folder)
    before = size(folder)
    yield "an empty environment", seconds, before
    install = [binaries / "python", "-m", "pip", "install", "--quiet"]
    install += ["--constraint", ROOT / "constraints.txt", f"{wheel}[{EXTRAS}]"]
    seconds = run(install, folder)
    yield f"pip install sklearn-dpgen[{EXTRAS}]", seconds, size(folder) - before

    readme = read_readme(wheel)
    table, *_, report = blocks(readme, "code-block:: python")
    persons = first_persons((ROOT / "doc" / "persons.rst").read_text(encoding="utf-8"))
    (folder / "schema.yaml").write_text(blocks(readme, "code-block:: yaml")[0], encoding="utf-8")
    yield "sklearn-dpgen --help", run([binaries / "sklearn-dpgen", "--help"], folder), 0.0
    for step, code in (
        ("first table", table),
        ("first relational table", persons),
        ("first report", report),
    ):
        yield step, run([binaries / "python", "-c", code], folder), 0.0
    run([binaries / "python", "-c", PATIENTS], folder)
    seconds = run([binaries / "sklearn-dpgen", *SYNTHESIZE.split()], folder)
    if not (folder / "synthetic" / "report.html").exists():
        raise SystemExit("synthesize wrote no report")
    yield "first CSV file, with its report", seconds, 0.0


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("wheel", type=Path)
    parser.add_argument("--python", default=sys.executable, help="the Python of the stranger")
    options = parser.parse_args()
    python, wheel = options.python, options.wheel.resolve(strict=True)
    version = subprocess.run(
        [python, "-c", "import platform; print(platform.python_version())"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout.strip()
    rows = []
    with TemporaryDirectory() as name:
        for step, seconds, added in measure(python, wheel, Path(name)):
            rows.append({"python": version, "step": step, "seconds": seconds, "MB": added})
            print(f"{step}: {seconds:.1f} s, {added:.0f} MB", flush=True)
    path = RESULTS / "first_hour.json"
    others = json.loads(path.read_text())["rows"] if path.exists() else []
    minor = version.rpartition(".")[0]
    rows += [row for row in others if row["python"].rpartition(".")[0] != minor]
    rows.sort(key=lambda row: int(row["python"].split(".")[1]))
    # Of a busy machine, seconds are those of its load.
    record("first_hour", rows, {"extras": EXTRAS, "load": os.getloadavg()[0]})


if __name__ == "__main__":
    main()
