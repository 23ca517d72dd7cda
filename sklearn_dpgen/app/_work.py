"""The state of one piece of work, and the commands that it runs; a page only shows it."""

import asyncio
import contextlib
import copy
import hashlib
import io
import json
import os
import re
import secrets
import shlex
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from sklearn_dpgen.app._columns import LEFT_OUT, entry_as, notes_of, schema_text, tables_of
from sklearn_dpgen.command_line._console import CommandError, Console, describe
from sklearn_dpgen.command_line._files import in_folder, parse, read_text, write_text
from sklearn_dpgen.command_line._main import build_parser, execute
from sklearn_dpgen.exceptions import PublicError
from sklearn_dpgen.schema._file import gaps_of

__all__ = ["Answer", "Job", "Work", "answer"]

_VALUES = {
    "file": "", "more": "", "codebook": "", "encoding": "", "folder": "", "table": "",
    "target": "", "unit": "", "public": "", "ledger": "", "cap": "3", "epsilon": "1",
    "delta": "1e-6", "rows": "", "neighbours": "replace_one", "title": "", "author": "",
    "signing-key": "", "public-key": "", "name": "release", "column": "", "second": "",
    "browsed": "",
}  # fmt: skip
# What the plan depends on.
_PLANNED = {"target", "unit", "public", "ledger", "epsilon", "delta", "rows", "neighbours", "more"}
# On Windows a process in a group of its own is interrupted by another signal.
_BREAK = (
    "import signal, sys; signal.signal(signal.SIGBREAK, signal.default_int_handler); "
    "from sklearn_dpgen.command_line import main; sys.exit(main())"
)
_MAIN = ("-c", _BREAK) if sys.platform == "win32" else ("-m", "sklearn_dpgen")
# The filters of warnings are those of the process.
_ONE = threading.Lock()


class Answer(Console):
    """What a command says, for the page instead of a terminal."""

    def __init__(self) -> None:
        super().__init__("app", quiet=True)
        self.document: dict[str, Any] = {}
        self.text, self.ok = "", False
        self.field: str | None = None

    def warn(self, text: str) -> None:
        """Keep a warning."""
        if text not in self.warnings:
            self.warnings.append(text)

    def fail(self, text: str, code: int) -> int:
        """Keep an error, and the field of the page that it is about."""
        self.text, self.ok = re.sub(r"^argument (--[a-z-]+): ", "", text), False
        found = re.search(r"(?:argument )?--([a-z-]+)\b", text)
        word = {"out": "folder", "table": "more"}.get(found[1], found[1]) if found else None
        self.field = word if word in _VALUES else None
        return code

    def _result(self, text, document, ok):
        self.text, self.document, self.ok = text, document, ok


def answer(*argv: str) -> Answer:
    """Run a command of the command line in this process."""
    found, fault = Answer(), io.StringIO()
    with _ONE:
        try:
            with contextlib.redirect_stderr(fault):
                arguments = build_parser().parse_args(argv)
        except SystemExit:
            found.fail(fault.getvalue().rpartition("error: ")[2].strip(), 2)
            return found
        execute(arguments, found)
    return found


def refused(text: str, field: str | None = None) -> Answer:
    """Return an answer that is no, and the field that it is about."""
    found = Answer()
    found.fail(text, 2)
    found.field = field or found.field
    return found


def _facts(document):
    """Return the least shares above the noise, and what an attacker gains, of a plan."""
    from sklearn_dpgen.accounting import PrivacyReport
    from sklearn_dpgen.reporting._model_card import risk_facts

    report = PrivacyReport.from_dict(document["report"])
    precision = []
    for what, words in report.precision.items():
        share = re.search(r"distinguishable from zero above [^(;]*\(([\d.e+-]+) percent", words)
        precision.append((what, words, float(share[1]) / 100 if share else None))
    return {"facts": risk_facts(report), "precision": precision}


class Job:
    """The command synthesize, in a process that can be stopped."""

    def __init__(
        self, argv: list[str], changed: Callable[[], None], ended: Callable[["Job"], None]
    ):
        self.argv, self.lines = argv, ["Starting."]
        self.document: dict[str, Any] = {}
        self.running, self.stopped = True, False
        self._changed, self._ended = changed, ended
        # The interrupt of the terminal reaches the page, which then stops the process once.
        own: dict[str, Any] = {"start_new_session": True}
        if sys.platform == "win32":
            own = {"creationflags": subprocess.CREATE_NEW_PROCESS_GROUP}
        pipe = subprocess.PIPE
        self._process: Any = subprocess.Popen(
            [sys.executable, *_MAIN, *argv, "--json"],
            stdin=subprocess.DEVNULL, stdout=pipe, stderr=pipe, text=True, encoding="utf-8",
            errors="replace", **own,
        )  # fmt: skip
        self._threads = [
            threading.Thread(target=run, daemon=True) for run in (self._listen, self._wait)
        ]
        for thread in self._threads:
            thread.start()

    def _listen(self):
        for line in self._process.stderr:
            self.lines.append(line.rstrip())
            self._changed()

    def _wait(self):
        out = self._process.stdout.read()
        self._process.wait()
        self._threads[0].join(5)
        try:
            self.document = json.loads(out)
        except ValueError:
            self.document = {"ok": False, "error": "The fit ended before its result."}
            # A process that was killed says nothing, and no release is worth a wrong promise.
            if any(line.startswith("Fitting") for line in self.lines):
                self.document["spent"] = "Take the budget as spent: the process did not say."
        self.running = False
        self._ended(self)

    def stop(self, *, within: float = 0) -> None:
        """Interrupt the command, which then says what was spent, and wait some seconds for it."""
        if self.running:
            self.stopped = True
            interrupt = signal.SIGINT
            if sys.platform == "win32":
                interrupt = signal.CTRL_BREAK_EVENT
            with contextlib.suppress(OSError):
                self._process.send_signal(interrupt)
        self._threads[1].join(within)


class Work:
    """One piece of work: it outlives the connection of a page, so that a reload loses nothing."""

    def __init__(self) -> None:
        self.name = secrets.token_hex(8)
        self.values = dict(_VALUES)
        self.declaration: dict[str, Any] = {}
        self.notes: dict[tuple[str, str], str] = {}
        # Former and undone declarations, with what was changed.
        self.past: list[tuple[str, dict]] = []
        self.undone: list[tuple[str, dict]] = []
        self.edits: list[dict[str, Any]] = []
        self.faults: dict[tuple[str, str, str], str] = {}
        self.answers: dict[str, Answer] = {}
        self.busy: set[str] = set()
        # A page looks at these, and shows a part again if its number has changed.
        self.versions: dict[str, int] = {}
        self.pictures: dict[str, Any] = {}
        self.job: Job | None = None
        self.spent = ""
        self._head, self._known = "", ""
        self._wanted: set[str] = set()
        self._tasks: set[asyncio.Task] = set()

    def changed(self, *parts: str) -> None:
        """Mark parts of the page as changed."""
        for part in parts:
            self.versions[part] = self.versions.get(part, 0) + 1

    @property
    def folder(self) -> Path:
        """The chosen folder, in which all is written."""
        return Path(self.values["folder"] or ".")

    @property
    def schema(self) -> Path:
        """The file of the schema."""
        return self.folder / "schema.yaml"

    @property
    def release(self) -> Path:
        """The folder of the release."""
        return self.folder / (self.values["name"] or "release")

    @property
    def tables(self) -> dict[str, dict]:
        """The columns of each table; a single table without keys has an empty name."""
        return tables_of(self.declaration)

    @property
    def identifiers(self) -> list[str]:
        """The columns of a table without keys that may identify persons."""
        return [
            c for c, entry in self.tables.get("", {}).items() if entry.get("type") == "identifier"
        ]

    @property
    def gaps(self) -> list[str]:
        """What is left to declare."""
        return gaps_of(self.written()) if self.declaration else []

    @property
    def is_ready(self) -> bool:
        """Whether the schema is complete, and valid as far as is known."""
        valid = self.answers.get("valid")
        return bool(self.declaration) and not self.gaps and (valid is None or valid.ok)

    def written(self) -> dict:
        """Return the declaration that is written: without the columns that are left out."""
        found = copy.deepcopy(self.declaration)
        for columns in tables_of(found).values():
            for name in [n for n, e in columns.items() if e.get("type") == LEFT_OUT]:
                del columns[name]
        return found

    def refuse(self, part: str, text: str, field: str | None = None) -> None:
        """Say no in a part of the page, about a field of it."""
        self.answers[part] = refused(text, field)
        self.changed(part)

    # Commands, one after another in a thread.

    def run(self, part: str, *argv: str) -> None:
        """Run a command for a part of the page, unless it runs already."""
        if part not in self.busy:
            self.call(part, lambda: answer(*argv))

    def call(self, part: str, function: Callable[[], Answer]) -> None:
        """Call a function in a thread, and keep its answer for a part of the page."""
        self.busy.add(part)
        self.changed(part)

        async def own():
            try:
                self.answers[part] = await asyncio.to_thread(function)
            except Exception as error:
                self.answers[part] = refused(describe(error))
            finally:
                self.busy.discard(part)
                self.changed(part)

        task = asyncio.get_running_loop().create_task(own())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def set(self, word: str, value: str) -> None:
        """Set a value of the page."""
        if word not in _VALUES or self.values[word] == value:
            return
        self.values[word] = value
        self.changed("values", "lines")
        if word == "table":
            self.changed("schema")
        if word in ("file", "folder", "name"):
            self.changed("release")
        if word in _PLANNED:
            self._wanted.add("planned")

    def draft(self) -> None:
        """Draft a schema from names and declared types, or take the one of the folder."""
        file = self.values["file"].strip()
        if not file and not self.values["more"]:
            return self.refuse("drafted", "Give the path of a table.", "file")
        if not self.values["folder"]:
            plain = file.split("::")[0].rstrip("/").replace("*", "")
            # A database is beside the working folder, whatever its URL.
            plain = plain.rpartition("/")[2] if "://" in plain else plain
            name = re.sub(r"(\.[A-Za-z0-9]{1,8})+$", "", plain) or "table"
            self.set("folder", name + "-dpgen")
        return None if "drafted" in self.busy else self.call("drafted", self._draft)

    def _draft(self):
        own, is_new = self.folder / ".draft.yaml", not self.folder.exists()
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            return refused(describe(error), "folder")
        get = self.values.__getitem__
        argv = [get("codebook"), "--codebook"] if get("codebook") else self.inputs()
        argv += ["--encoding", get("encoding")] if get("encoding") else []
        try:
            found = answer("draft-schema", *argv, "--out", str(own), "--overwrite")
            if not found.ok:
                found.field = found.field or ("codebook" if get("codebook") else "file")
                if is_new:
                    self.folder.rmdir()
                    self.set("folder", "")
                return found
            text = read_text(own, "draft")
        finally:
            own.unlink(missing_ok=True)
        drafted = self._read(text)
        notes = notes_of(text)
        if self.schema.is_file():
            found = Answer()
            text = read_text(self.schema, "schema")
            declared = self._read(text)
            for table, columns in tables_of(drafted).items():
                names = tables_of(declared).get(table, {})
                # What an earlier page has left out is not in the file.
                names |= {name: {"type": LEFT_OUT} for name in columns if name not in names}
            notes, drafted = notes | notes_of(text), declared
            found.result(f"Took the schema that is in {self.schema}.", {})
        else:
            lines = found.text.splitlines()
            found.text = f"Drafted {found.document['n_columns']} columns. {lines[1]}"
        self._head = text.split("\n\n")[0] if text.startswith("# ") else ""
        self.notes, self._known = notes, self._digest()
        self.past, self.undone = [], []
        self.declaration = drafted
        self.values["table"] = next(iter(self.tables), "")
        return self._taken(found)

    def _read(self, text):
        declared = parse(text, "schema.yaml")
        if not isinstance(declared, dict):
            raise CommandError("A schema must map names of columns to declarations.")
        found = declared if {"columns", "tables"} & declared.keys() else {"columns": declared}
        columns = [column for table in tables_of(found).values() for column in table.values()]
        if not all(isinstance(c, dict) and isinstance(c.get("type", ""), str) for c in columns):
            raise CommandError("Each column must have a declaration, such as {type: identifier}.")
        return found

    def _taken(self, found):
        """Save and check a new declaration, and return what is said."""
        fault = self.save()
        self.faults = {}
        self.changed("schema", "gaps", "lines")
        self.check_schema()
        return found if fault is None else fault

    def save(self) -> Answer | None:
        """Write the schema, or return why not."""
        if self._digest() != self._known:
            why = f"Not saved: {self.schema} was changed by another page or program."
            return refused(f"{why} Press “Draft a schema” to take it.")
        try:
            write_text(self.schema, schema_text(self.written(), self.notes, self._head))
        except OSError as error:
            return refused(describe(error), "folder")
        self._known = self._digest()
        return None

    def _digest(self):
        with contextlib.suppress(OSError):
            return hashlib.sha256(self.schema.read_bytes()).hexdigest()
        return ""

    def check_schema(self) -> Answer:
        """Check the schema alone: nothing private is read."""
        self.answers.pop("valid", None)
        if not self.gaps:
            self.answers["valid"] = answer("check", str(self.schema), *self._public_tables())
        self._wanted.add("planned")
        self.changed("gaps", "purpose")
        return Answer()

    def edit(self, table: str, column: str, field: str, text: str, who: str) -> None:
        """Change a field of a column, or a word of a table where no column is named."""
        before = copy.deepcopy(self.declaration)
        entries = self.tables[table]
        key = (table, column, field)
        self.faults.pop(key, None)
        try:
            if column:
                entries[column] = entry_as(entries[column], field, text)
            else:
                own = self.declaration.get("tables", {}).get(table, self.declaration)
                self._edit_word(own, field, text)
        except PublicError as error:
            self.faults[key] = describe(error)
        if self.declaration != before:
            what = f"{field} of {column or table or 'the table'}"
            self.past.append((what, before))
            self.undone = []
            self._saved()
        self.edits.append({"table": table, "column": column, "field": field, "who": who})
        self.changed("edits", "gaps", "lines")

    def _edit_word(self, own, field, text):
        if field == "rules":
            found: Any = [line.strip() for line in text.splitlines() if line.strip()]
        else:
            found = parse(f"value: {text or 'none'}", "field.yaml")["value"]
        if found in (None, [], "none"):
            own.pop(field, None)
        else:
            own[field] = found

    def _saved(self):
        fault = self.save()
        self.answers.pop("saved", None)
        if fault is not None:
            self.answers["saved"] = fault
        self.call("validated", self.check_schema)

    def undo(self) -> None:
        """Take back the last change of the schema."""
        self._step(self.past, self.undone, "Undone")

    def redo(self) -> None:
        """Make the last change again that was undone."""
        self._step(self.undone, self.past, "Done again")

    def _step(self, source, other, word):
        found, what = Answer(), "nothing"
        if source:
            what, before = source.pop()
            other.append((what, self.declaration))
            self.declaration, self.faults = before, {}
            self._saved()
            self.changed("schema", "gaps", "lines")
        found.result(f"{word}: {what}.", {})
        self.answers["undone"] = found
        self.changed("undone")

    def take_text(self, text: str) -> None:
        """Take the text of a schema."""
        try:
            declared = self._read(text)
        except PublicError as error:
            return self.refuse("text", describe(error))
        self.past.append(("the file as text", self.declaration))
        self.undone, self.declaration = [], declared
        self.notes = notes_of(text)
        if self.values["table"] not in self.tables:
            self.values["table"] = next(iter(self.tables), "")
        found = Answer()
        found.result("Taken.", {})
        return self.call("text", lambda: self._taken(found))

    # The options of commands.

    def inputs(self) -> list[str]:
        """Return the files of the private tables, as commands take them."""
        file = self.values["file"].strip()
        named = [line.strip() for line in self.values["more"].splitlines() if line.strip()]
        return [*([file] if file else []), *(f"--table={line}" for line in named)]

    def _public_tables(self):
        tables = self.declaration.get("tables", {})
        names = [name for name, own in tables.items() if own.get("public")]
        return [text for text in self.inputs() if text[8:].partition("=")[0] in names]

    def unit(self) -> list[str]:
        """Return the option of the unit: a relational schema declares its persons."""
        unit = "" if "tables" in self.declaration else self.values["unit"]
        return ["--unit", unit] if unit else []

    def budget(self) -> list[str]:
        """Return the options of a plan and of a fit."""
        get = self.values.__getitem__
        options = ["--schema", str(self.schema), "--epsilon", get("epsilon").strip()]
        options += ["--delta", get("delta").strip()]
        if get("neighbours") != "replace_one":
            options += ["--neighbours", get("neighbours")]
        public = get("public").strip()
        ledger = str(self.ledger) if self.ledger else ""
        for word, value in (
            ("target", get("target")), ("public", public), ("ledger", ledger)
        ):  # fmt: skip
            options += [f"--{word}", value] if value else []
        return options + self.unit()

    @property
    def ledger(self) -> Path | None:
        """The file of the ledger; a plain name is in the chosen folder."""
        text = self.values["ledger"].strip()
        if not text:
            return None
        return Path(text) if Path(text).name != text else self.folder / text

    def synthesize(self) -> list[str]:
        """Return the arguments of the fit."""
        options = []
        for word in ("title", "author", "signing-key"):
            options += [f"--{word}", self.values[word]] if self.values[word] else []
        return [
            "synthesize", *self.inputs(), *self.budget(), *options, "--out", str(self.release)
        ]  # fmt: skip

    def plan(self) -> None:
        """Plan the fit: the last wish is planned when the plan before it has ended."""
        if not self.is_ready:
            return None
        if "planned" in self.busy:
            return self._wanted.add("planned")
        rows = self.values["rows"].strip()
        argv = ["plan", *self.budget(), *self._public_tables()]
        if self.ledger is not None and not self.ledger.exists():
            del argv[argv.index("--ledger") : argv.index("--ledger") + 2]
        argv += ["--rows", rows] if rows else []

        def plan():
            found = answer(*argv)
            if "report" in found.document:
                found.document |= _facts(found.document)
            return found

        return self.call("planned", plan)

    def replan(self) -> None:
        """Plan again if something has changed since the last plan began."""
        if "planned" in self._wanted and "planned" not in self.busy:
            self._wanted.discard("planned")
            if self.values["rows"].strip() or self.values["neighbours"] != "replace_one":
                self.plan()

    def open_ledger(self) -> None:
        """Show a ledger, and create it first if there is none."""
        path = self.ledger
        if path is None:
            return self.refuse("ledger", "Give the path of a ledger.", "ledger")
        if path.exists():
            return self.run("ledger", "ledger", "show", str(path))
        if os.path.realpath(path.parent) != os.path.realpath(self.folder):
            why = f"There is no ledger {path}, and a new one is made in {self.folder} alone."
            return self.refuse("ledger", f"{why} Give a plain name.", "ledger")
        get = self.values.__getitem__
        argv = ["--dataset", self.folder.resolve().name, "--epsilon", get("cap")]
        argv += ["--delta", get("delta"), "--neighbours", get("neighbours")]
        unit = get("unit") or self.declaration.get("unit")
        argv += ["--unit", unit] if unit and "tables" not in self.declaration else []

        def create():
            found = answer("ledger", "init", str(path), *argv)
            if found.field == "epsilon":
                found.field = "cap"
            self._wanted.add("planned")
            return answer("ledger", "show", str(path)) if found.ok else found

        return self.call("ledger", create)

    # The fit.

    def start(self) -> None:
        """Start the fit, or say why not: one click is one charge."""
        why = None
        if "fit" in self.busy or (self.job is not None and self.job.running):
            why = "A fit is running already. Nothing is charged again."
        elif self.release.parent != self.folder or self.release.name in ("", ".."):
            why = "The name of the release must be a plain name, of a folder in the chosen one."
        elif (self.release / "release.json").exists():
            why = f"{self.release} has a release already. Nothing is charged again."
        elif not self.is_ready:
            why = "The schema must be complete and valid before a fit."
        elif self._digest() != self._known:
            why = f"{self.schema} was changed by another page: draft the schema to take it."
        elif self.ledger is not None and not self.ledger.exists():
            why = "There is no such ledger: open or create it first."
        if why is None:
            return self.call("fit", self._start)
        return self.refuse("fit", why)

    def _start(self):
        ledger, out, before = self.ledger, str(self.release), 0
        if ledger is not None:
            found = answer("ledger", "show", str(ledger))
            if not found.ok:
                return found
            before = len(found.document["charges"])
        words = "No ledger was given: add up the cost of several fits yourself."
        self.spent = "" if ledger else words
        self.job = Job(
            self.synthesize(),
            lambda: self.changed("progress"),
            lambda job: self._ended(job, ledger, out, before),
        )
        self.changed("progress")
        return Answer()

    def _ended(self, job, ledger, out, before):
        if not job.document.get("ok"):
            self.spent = job.document.get("spent") or "Nothing was spent."
        if ledger is not None:
            found = self.answers["ledger"] = answer("ledger", "show", str(ledger))
            new = [
                f"The ledger has charge {c['number']}: epsilon {c['epsilon']:g} at delta "
                f"{c['delta']:g}. It stays."
                for c in found.document.get("charges", ())[before:]
            ]
            if found.ok:
                self.spent = " ".join(new) or "Nothing was spent: the ledger has no new charge."
        # What a second click was told, and an earlier release, are over.
        for part in ("fit", "look", "real"):
            self.answers.pop(part, None)
        self.changed("fit", "progress", "ledger", "look", "real", "release")
        if job.document.get("ok"):
            self.answers["verified"] = answer("verify", out)
            self.changed("verified")

    def stop(self) -> None:
        """Interrupt the fit."""
        if self.job is not None:
            self.job.stop()
        self.changed("fit")

    def check(self) -> None:
        """Check whether the table fits the schema: the answer is private."""
        if not self.declaration:
            return self.refuse("checked", "Choose a file first, and draft its schema.")
        return self.run("checked", "check", str(self.schema), *self.inputs(), *self.unit())

    def verify(self) -> None:
        """Verify the release folder."""
        if not self.files:
            return self.refuse("verified", f"There is no release in {self.release} yet.")
        key = self.values["public-key"].strip()
        return self.run(
            "verified", "verify", str(self.release), *(["--public-key", key] if key else [])
        )

    @property
    def files(self) -> list[str]:
        """The names in the release folder, once it is complete."""
        if not (self.release / "release.json").is_file():
            return []
        return sorted(entry.name for entry in self.release.iterdir())

    # The same without the page.

    def lines(self) -> str:
        """Return the command lines that do the same."""
        own = [["check", str(self.schema), *self.inputs(), *self.unit()]]
        plan = ["plan", *self.budget(), *self._public_tables()]
        own += [[*plan, "--rows", self.values["rows"].strip() or "N"], self.synthesize()]
        own += [["verify", str(self.release)]]
        return "\n".join(shlex.join(["sklearn-dpgen", *argv]) for argv in own)

    def python(self) -> str:
        """Return the Python code that does the same."""
        get = self.values.__getitem__
        is_relational = "tables" in self.declaration
        name = "RelationalSampler" if is_relational else "TableSampler"
        given = {"schema": str(self.schema), "target": get("target")}
        given |= {} if is_relational else {"unit": get("unit")}
        given |= {} if get("neighbours") == "replace_one" else {"neighbours": get("neighbours")}
        words = [get("epsilon"), get("delta"), *(f"{k}={v!r}" for k, v in given.items() if v)]
        lines = ["from sklearn_dpgen.reporting import model_card"]
        lines += [f"from sklearn_dpgen.tables import {name}"]
        if self.ledger is not None:
            lines += ["from sklearn_dpgen.ledger import PrivacyLedger"]
            words += [f"ledger=PrivacyLedger({str(self.ledger)!r})"]
        if get("public"):
            lines += ["from sklearn_dpgen.preprocessing import PublicTable"]
            table, _, path = get("public").rpartition("=")
            public = f"PublicTable({path!r})"
            words += [f"public={{{table!r}: {public}}}" if table else f"public={public}"]
        private: Any = self.files_of_tables() if is_relational else get("file").strip()
        inner = "".join(f"    {word},\n" for word in words)
        lines += ["", f"sampler = {name}(\n{inner})", f"sampler.fit({private!r})"]
        lines += ["synthetic = sampler.sample(round(sampler.n_records_))"]
        lines += ['model_card(sampler).save("card.html")']
        lines += ["# The release folder, with its report and list, is written by the command line."]
        return "\n".join(lines)

    def files_of_tables(self) -> dict[str, list]:
        """Return the files of each table of a relational schema."""
        given = [text[8:] for text in self.inputs() if text.startswith("--table=")]
        named = dict(text.partition("=")[::2] for text in given)
        found: dict[str, Any] = {name: [path] for name, path in named.items()}
        with contextlib.suppress(Exception):
            found = dict(in_folder(str(self.schema), (self.values["file"].strip(),), found)[1])
        return {name: [*paths] for name, paths in found.items()}
