"""The state of one piece of work, and the commands that it runs; a page only shows it."""

import asyncio
import contextlib
import io
import json
import secrets
import shlex
import signal
import sys
import threading
from pathlib import Path
from typing import Any

from sklearn_dpgen.command_line._console import Console
from sklearn_dpgen.command_line._main import build_parser, execute

__all__ = ["Answer", "Job", "Work", "answer"]

GAP = "..."
# The filters of warnings are those of the process.
_ONE = threading.Lock()


class Answer(Console):
    """What a command says, for the page instead of a terminal."""

    def __init__(self) -> None:
        super().__init__("app")
        self.lines: list[str] = []
        self.document: dict[str, Any] = {}
        self.text, self.ok = "", False

    def say(self, text: str) -> None:
        """Keep a remark."""
        self.lines.append(text)

    def warn(self, text: str) -> None:
        """Keep a warning."""
        self.warnings.append(text)

    def fail(self, text: str, code: int) -> int:
        """Keep an error."""
        self.text, self.ok = text, False
        return code

    def _result(self, text, document, ok):
        self.text, self.document, self.ok = text, document, ok


def answer(*argv: str) -> Answer:
    """Run a command of the command line in this process."""
    found = Answer()
    with _ONE:
        fault = io.StringIO()
        try:
            with contextlib.redirect_stderr(fault):
                arguments = build_parser().parse_args(argv)
        except SystemExit:
            found.fail(fault.getvalue().rpartition("error: ")[2].strip(), 2)
            return found
        execute(arguments, found)
    return found


class Job:
    """The command synthesize, in a process that can be stopped."""

    def __init__(self, argv: list[str]) -> None:
        self.argv, self.lines = argv, ["Starting."]
        self.document: dict[str, Any] = {}
        self.running, self.stopped = True, False
        self._process: Any = None
        self._task = asyncio.create_task(self._run())

    async def _run(self):
        pipe = asyncio.subprocess.PIPE
        self._process = process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "sklearn_dpgen", *self.argv, "--json",
            stdout=pipe, stderr=pipe, stdin=asyncio.subprocess.DEVNULL,
        )  # fmt: skip
        out = asyncio.create_task(process.stdout.read())
        async for line in process.stderr:
            self.lines.append(line.decode("utf-8", "replace").rstrip())
        try:
            self.document = json.loads(await out)
        except ValueError:
            spent = "nothing was spent." if self.stopped else "see the ledger for what was spent."
            self.document = {"ok": False, "error": f"Ended before its result; {spent}"}
        await process.wait()
        self.running = False

    def stop(self) -> None:
        """Interrupt the command, which then says what was spent."""
        if self.running and self._process is not None:
            self.stopped = True
            self._process.send_signal(signal.SIGINT)


class Work:
    """One piece of work: it outlives the connection of a page, so that a reload loses nothing."""

    def __init__(self) -> None:
        self.name = secrets.token_hex(4)
        self.values: dict[str, Any] = {}
        self.columns: dict[str, dict] = {}
        self.words: dict[str, Any] = {}
        self.notes: dict[str, str] = {}
        self.drafted = 0
        self.job: Job | None = None
        self.checked: Answer | None = None

    @property
    def folder(self) -> Path:
        """The chosen folder, in which all is written."""
        return Path(self.values.get("folder") or ".")

    @property
    def schema(self) -> Path:
        """The file of the schema."""
        return self.folder / "schema.yaml"

    def draft(self, file: str, folder: str) -> Answer:
        """Draft a schema from names and declared types."""
        from sklearn_dpgen.command_line._files import parse, read_text

        self.values |= {"file": file, "folder": folder}
        if not self.schema.is_file():
            with contextlib.suppress(OSError):
                self.folder.mkdir(parents=True, exist_ok=True)
            found = answer("draft-schema", file, "--out", str(self.schema))
            if not found.ok:
                return found
        else:
            found = Answer()
            found.result(f"Took the schema that is in {self.schema}.", {})
        declared = parse(read_text(self.schema, "schema"), str(self.schema))
        self.columns = declared.get("columns", declared)
        self.words = (
            {k: v for k, v in declared.items() if k != "columns"} if "columns" in declared else {}
        )
        self.drafted += 1
        return found

    def save(self) -> None:
        """Write the schema."""
        from sklearn_dpgen.command_line._files import write_text
        from sklearn_dpgen.schema._texts import dump_yaml

        kept = {n: e for n, e in self.columns.items() if e.get("type") != "leave out"}
        write_text(self.schema, dump_yaml(self.words | {"columns": kept}))

    def budget(self) -> list[str]:
        """Return the options of a plan and of a fit."""
        get = self.values.get
        options = ["--schema", str(self.schema), "--epsilon", f"{get('epsilon', 1):g}"]
        options += ["--delta", str(get("delta", "1e-6"))]
        for word in ("unit", "target", "ledger"):
            options += [f"--{word}", str(get(word))] if get(word) else []
        return options

    def synthesize(self) -> list[str]:
        """Return the arguments of the fit."""
        return ["synthesize", self.values.get("file", ""), *self.budget(), "--out", self.release]

    @property
    def release(self) -> str:
        """The folder of the release."""
        return str(self.folder / "release")

    def start(self) -> str | None:
        """Start the fit, or return why not: one click is one charge."""
        if self.job is not None and self.job.running:
            return "A fit is running."
        if (Path(self.release) / "release.json").exists():
            return f"{self.release} has a release already; nothing is charged again."
        self.job = Job(self.synthesize())
        return None

    def lines(self) -> str:
        """Return the command lines that do the same."""
        own = [["check", str(self.schema), self.values.get("file", "")]]
        own += [["plan", *self.budget(), "--rows", str(self.values.get("rows") or "N")]]
        return "\n".join(shlex.join(["sklearn-dpgen", *argv]) for argv in [*own, self.synthesize()])

    def python(self) -> str:
        """Return the Python code that does the same."""
        get = self.values.get
        ledger = f"PrivacyLedger({get('ledger')!r})" if get("ledger") else "None"
        return (
            "import sklearn_dpgen\n"
            "from sklearn_dpgen.ledger import PrivacyLedger\n"
            "from sklearn_dpgen.reporting import model_card\n"
            "from sklearn_dpgen.tables import TableSampler\n\n"
            f"sampler = TableSampler({get('epsilon', 1):g}, {get('delta', '1e-6')}, "
            f"schema={str(self.schema)!r}, target={get('target') or None!r}, ledger={ledger})\n"
            f"sampler.fit({get('file', '')!r})\n"
            "synthetic = sampler.sample(round(sampler.n_records_))\n"
            "card = model_card(sampler)\n"
        )
