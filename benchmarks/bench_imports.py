"""What imports and commands load: processor time and peak memory, beside an earlier commit.

Each import and command has a process of its own, which alternates between the two versions of the
package: both meet the same machine. Times are of the process, its start and end included, and
medians. ``time ratio`` and ``memory ratio`` are medians of pairs: those of the earlier commit over
those of this one. ``torch`` and ``sklearn`` say whether the last process had loaded them.

``python benchmarks/bench_imports.py`` takes about five minutes.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import median

from _common import record

ROOT = Path(__file__).resolve().parents[1]
# The last commit whose packages imported all of their names at once.
BEFORE = "50c11a7b"
SCHEMA = "age: {type: numeric, low: 0, high: 99}\nsex: {type: categorical, categories: [f, m]}\n"
IMPORTS = (
    "sklearn_dpgen.domains",
    "sklearn_dpgen.schema",
    "sklearn_dpgen.accounting",
    "sklearn_dpgen.ledger:PrivacyLedger",
    "sklearn_dpgen.preprocessing:TabularEncoder",
    "sklearn_dpgen.mechanisms:LaplaceMechanism",
    "sklearn_dpgen.tables:TableSampler",
)
COMMANDS = (
    "--help",
    "json-schema --out schema.json --overwrite",
    "export-schema schema.yaml --to csvw --out csvw.json --overwrite",
    "draft-schema table.csv --out draft.yaml --overwrite",
    "check schema.yaml table.csv",
    "ledger show ledger.db",
    "plan --schema schema.yaml --epsilon 1 --rows 2000",
    "synthesize table.csv --schema schema.yaml --epsilon 1 --out out --overwrite",
)
END = """
import json, os, resource, sys
used = resource.getrusage(resource.RUSAGE_SELF)
# Of this program alone: the maximum of getrusage begins with that of the process that started it.
(peak,) = [line.split()[1] for line in open("/proc/self/status") if line.startswith("VmHWM")]
print(json.dumps({
    "seconds": used.ru_utime + used.ru_stime,
    "MiB": int(peak) / 1024,
    "torch": "torch" in sys.modules,
    "sklearn": "sklearn" in sys.modules,
}))
"""


def code_of(case):
    """Return what a process runs for an import or a command."""
    if case in IMPORTS:
        module, _, name = case.partition(":")
        return f"from {module} import {name}\n" if name else f"import {module}\n"
    return (
        "from sklearn_dpgen.command_line import main\n"
        f"code = main({case.split()!r})\n"
        "assert code == 0, code\n"
    )


def run(case, root, folder):
    """Return what one process took, with the package of a folder."""
    environment = os.environ | {"PYTHONPATH": str(root), "OMP_NUM_THREADS": "1"}
    # Modules are compiled once, as they are where a package is installed.
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    command = [sys.executable, "-c", code_of(case) + END]
    out = subprocess.run(
        command, env=environment, cwd=folder, check=True, capture_output=True, text=True
    )
    return json.loads(out.stdout.splitlines()[-1])


def compare(case, repeat, roots, folder):
    """Return a row for each version."""
    found = {version: [] for version in roots}
    for i in range(repeat + 1):
        for version, root in roots.items():
            part = run(case, root, folder)
            # The first process of a version compiles its modules.
            found[version] += [part] if i else []
    pairs = list(zip(found["before"], found["after"], strict=True))
    for version, parts in found.items():
        row = {"case": case, "version": version, "processes": repeat}
        row |= {key: median(part[key] for part in parts) for key in ("seconds", "MiB")}
        is_after = version == "after"
        for name, key in (("time ratio", "seconds"), ("memory ratio", "MiB")):
            row[name] = median(old[key] / new[key] for old, new in pairs) if is_after else 1.0
        yield row | {key: parts[-1][key] for key in ("torch", "sklearn")}


def prepare(folder, root):
    """Write a table, its schema and a ledger."""
    (folder / "schema.yaml").write_text(SCHEMA, encoding="utf-8")
    lines = ["age,sex", *(f"{i % 90},{'fm'[i % 3 > 0]}" for i in range(2000))]
    (folder / "table.csv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    run("ledger init ledger.db --dataset x --epsilon 9 --delta 1e-5", root, folder)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--before", default=BEFORE, help="a commit")
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--name", default="imports")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as earlier, tempfile.TemporaryDirectory() as folder:
        archive = ["git", "archive", options.before, "sklearn_dpgen"]
        files = subprocess.run(archive, cwd=ROOT, check=True, capture_output=True).stdout
        subprocess.run(["tar", "-x", "-C", earlier], input=files, check=True)
        roots = {"before": earlier, "after": ROOT}
        prepare(Path(folder), ROOT)
        rows = [
            row
            for case in (*IMPORTS, *COMMANDS)
            for row in compare(case, options.repeat, roots, folder)
        ]
    record(options.name, rows, {"before": options.before})


if __name__ == "__main__":
    main()
