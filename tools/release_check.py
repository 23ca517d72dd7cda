"""Run the checks of a release, and write their results to ``doc/release.rst``.

Nobody else writes the table of that page. Each of its lines is a command, with its result, when and
at which commit it ran. ``--only`` runs some of the commands, and keeps the lines of the others;
``--state`` is one of the commands, and checks the files themselves.
"""

import argparse
import csv
import datetime
import io
import json
import re
import subprocess
import sys
import time
from pathlib import Path

from addresses import is_known, read_addresses

__all__ = ["COLUMNS", "COMMANDS", "read_lines", "run_check", "state_faults", "write_lines"]

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "doc" / "release.rst"
COMMANDS = (
    "python tools/release_check.py --state",
    "make lint",
    "make types",
    "make test",
    "make test-slow",
    "make doctest",
    "make linkcheck",
    "make demo",
    "make wheel-test",
    "make test-minimum",
    "make test-newest",
    "make test-pythons",
    "make first-hour",
)
COLUMNS = ("Command", "Result", "Minutes", "Commit", "Date")
NOT_RUN = "not run"
_BLOCK = re.compile(r"(?<=\.\. begin checks\n\n).*?(?=\n\.\. end checks\n)", re.S)
_HEAD = ".. csv-table::\n   :header-rows: 1\n   :widths: 34 36 8 12 10\n\n"
_UNRELEASED = ("README.rst", "SECURITY.md", "doc/index.rst")


def state_faults(root=ROOT, today=None):
    """Return what the files of a release must not say, as sentences."""
    faults = [
        f"setup.cfg: the address of the {name.lower()} is a placeholder (tools/addresses.py)"
        for name, url in read_addresses(root).items()
        if not is_known(url)
    ]

    def read(name):
        return (root / name).read_text(encoding="utf-8")

    (version,) = re.findall(r'"(.*)"', read("sklearn_dpgen/_version.py"))
    if not re.fullmatch(r"\d+\.\d+\.\d+", version):
        faults.append(f"sklearn_dpgen/_version.py: {version} is no release")
    if list((root / "changes").glob("*.*.rst")):
        faults.append("changes: fragments remain (make release-notes)")
    date = re.search(r'^date-released: "(.*)"$', read("CITATION.cff"), flags=re.M)
    if date is None or date[1] != (today or datetime.date.today()).isoformat():
        faults.append("CITATION.cff: date-released is not today")
    entries = json.loads(read("doc/_static/switcher.json"))
    if not any(entry.get("preferred") and entry["version"] == version for entry in entries):
        faults.append("doc/_static/switcher.json: the version is not the preferred one")
    for name in _UNRELEASED:
        if re.search(r"not(hing was)? released yet", read(name), flags=re.I):
            faults.append(f"{name}: says that nothing is released")
    return faults


def read_lines(text):
    """Return the lines of the table of a page by command."""
    (block,) = _BLOCK.findall(text)
    table = block.removeprefix(_HEAD).splitlines()
    rows = csv.DictReader(io.StringIO("\n".join(line.strip() for line in table)))
    return {row["Command"].strip("`"): row for row in rows}


def write_lines(text, lines):
    """Return a page with the lines of all commands; those without one were not run."""
    out = io.StringIO()
    table = csv.DictWriter(out, COLUMNS, lineterminator="\n")
    table.writeheader()
    for command in COMMANDS:
        empty = dict.fromkeys(COLUMNS, "") | {"Result": NOT_RUN}
        table.writerow(lines.get(command, empty) | {"Command": f"``{command}``"})
    block = _HEAD + "".join(f"   {line}\n" for line in out.getvalue().splitlines())
    return _BLOCK.sub(lambda _: block, text)


def run_check(command):
    """Run a command in the checkout, show what it prints, and return its line."""
    start = time.perf_counter()
    words = command.split()
    words[0] = sys.executable if words[0] == "python" else words[0]
    printed = []
    with subprocess.Popen(
        words, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as process:
        for line in process.stdout:
            print(line, end="", flush=True)
            printed.append(line)
    result = f"failed ({process.returncode})" if process.returncode else "passed"
    return {
        "Command": command,
        "Result": "; ".join([result, *read_counts("".join(printed))]),
        "Minutes": f"{(time.perf_counter() - start) / 60:.1f}",
        "Commit": _commit(),
        "Date": datetime.date.today().isoformat(),
    }


def read_counts(printed):
    """Return what each run of pytest counted, such as "12 passed, 1 skipped"."""
    return re.findall(r"^=* ?(\d+ \w+(?:, \d+ \w+)*) in [\d.]+s", printed, flags=re.M)


def _commit():
    """Return the commit of the checkout, with a plus if more than the page was changed since."""
    commit = _git("rev-parse", "--short=8", "HEAD")
    changed = _git("status", "--porcelain", "--", ".", f":(exclude){PAGE.relative_to(ROOT)}")
    return commit + ("+" if changed else "")


def _git(*arguments):
    done = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True)
    return done.stdout.strip()


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--state", action="store_true", help="check the files, and write nothing")
    parser.add_argument("--only", nargs="+", choices=COMMANDS, metavar="COMMAND")
    options = parser.parse_args()
    if options.state:
        faults = state_faults()
        raise SystemExit("\n".join(faults) if faults else 0)
    for command in options.only or COMMANDS:
        print(command, flush=True)
        line = run_check(command)
        text = PAGE.read_text(encoding="utf-8")
        lines = read_lines(text) | {command: line}
        PAGE.write_text(write_lines(text, lines), encoding="utf-8", newline="\n")
    lines = read_lines(PAGE.read_text(encoding="utf-8"))
    missing = [c for c in COMMANDS if not lines[c]["Result"].startswith("passed")]
    if missing:
        raise SystemExit("Not passed: " + ", ".join(missing))


if __name__ == "__main__":
    main()
