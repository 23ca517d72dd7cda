"""Files that are there whole or not at all, and the schema that a file holds."""

import os
import secrets
import shutil
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from sklearn_dpgen.command_line._errors import CommandError, describe

if TYPE_CHECKING:
    from sklearn_dpgen.schema import Schema

__all__ = [
    "OutputFolder",
    "check_files",
    "check_new_file",
    "parse",
    "read_schema",
    "read_text",
    "replacing",
    "write_text",
]

_SCHEMA_ENDINGS = (".yaml", ".yml", ".json")
_CLAIM = ".sklearn-dpgen-unfinished"


def check_files(
    *,
    schema: str | None = None,
    ledger: str | None = None,
    model: str | None = None,
    others: Iterable[str | None] = (),
) -> None:
    """Refuse paths that name no file, before libraries are loaded for what they should hold.

    Raises
    ------
    CommandError, OSError
    """
    if schema is not None and not schema.lower().endswith(_SCHEMA_ENDINGS):
        raise CommandError(
            f"The schema {schema} must be a file with an ending of {', '.join(_SCHEMA_ENDINGS)}."
        )
    if ledger is not None and not Path(ledger).is_file():
        raise CommandError(
            f"There is no ledger {ledger}: ledger init makes one, for a data set of which nothing "
            "was released yet."
        )
    if model is not None and not Path(model).is_file():
        raise CommandError(f"There is no model {model}.")
    for path in (schema, *others):
        if path is not None:
            with open(path, "rb"):
                pass


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Give a name beside a path; what is written there takes its place at the end, at once."""
    part = path.with_name(f".{secrets.token_hex(4)}-{path.name}")
    try:
        yield part
        os.replace(part, path)
    finally:
        with suppress(OSError):
            part.unlink()


def write_text(path: Path, text: str) -> None:
    """Write a text in UTF-8, with the line ends of Unix on every system."""
    with replacing(path) as part, open(part, "w", encoding="utf-8", newline="\n") as file:
        file.write(text if text.endswith("\n") else text + "\n")


def read_text(path: str | Path, what: str) -> str:
    """Read a text in UTF-8.

    Raises
    ------
    CommandError
        What is no text; without the text.
    """
    try:
        return Path(path).read_text(encoding="utf-8-sig")
    except UnicodeDecodeError:
        pass
    raise CommandError(f"The {what} {path} is no text in UTF-8.")


def read_schema(path: str) -> "Schema":
    """Read a schema from a file of YAML or JSON.

    Raises
    ------
    CommandError
        What is no such file, with the place; or what is no schema.
    """
    check_files(schema=path)
    declaration = parse(read_text(path, "schema"), path)
    from sklearn_dpgen.schema import Schema, SchemaDraft

    entries = declaration.values() if isinstance(declaration, dict) else [None]
    if all(isinstance(entry, dict) for entry in entries):
        missing = SchemaDraft(declaration).missing
        if missing:
            gaps = ", ".join(f"{name!r} ({', '.join(f)})" for name, f in missing.items())
            raise CommandError(f"{path} is a draft: declare {gaps}.")
    try:
        return Schema.from_dict(declaration)
    except ValueError as error:
        fault = describe(error)
    raise CommandError(f"{path} is no schema yet. {fault}")


def parse(text: str, path: str) -> Any:
    """Parse YAML or JSON by the ending of its path; errors tell the place alone."""
    import json

    import yaml

    if path.lower().endswith(".json"):
        try:
            return json.loads(text)
        except ValueError as error:
            line, column = getattr(error, "lineno", 0), getattr(error, "colno", 0)
        raise CommandError(f"{path} is no JSON: see line {line}, column {column}.")
    try:
        return yaml.safe_load(text)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
    place = f": see line {mark.line + 1}, column {mark.column + 1}" if mark else ""
    raise CommandError(f"{path} is no YAML{place}.")


def check_new_file(path: str, *, overwrite: bool) -> Path:
    """Return the path of a file that may be written, before anything is done for it."""
    file = Path(path)
    if file.is_dir():
        raise CommandError(f"--out {path} is a folder: name a file.")
    if file.exists() and not overwrite:
        raise CommandError(f"--out {path} is there already: --overwrite replaces it.")
    if not file.parent.is_dir():
        raise CommandError(f"--out {path}: there is no folder {file.parent}.")
    return file


class OutputFolder:
    """A folder for results, which one run claims before it spends a budget.

    The claim is a folder in it, which one process alone can make. Files are written there, and
    moved to their places when the context ends; after an error those that are complete.

    Parameters
    ----------
    path : str
    names : iterable of str
        All that a run may write: files of these names that an earlier one left are replaced, so
        that the files are all of one run.
    overwrite : bool
        Whether there may be such files, or others.
    inputs : iterable of str
        Files that are never replaced.
    """

    def __init__(self, path: str, names: Iterable[str], *, overwrite: bool, inputs: tuple = ()):
        self.path = Path(path)
        self.written: list[str] = []
        self._names = tuple(names)
        inputs = tuple(os.path.realpath(name) for name in inputs)
        if self.path.exists() and not self.path.is_dir():
            raise CommandError(f"--out {path} is a file: name a folder.")
        self._is_new = not self.path.exists()
        # Of a table in a folder all files are parts of it, whatever their names.
        real = Path(os.path.realpath(path))
        if any(str(folder) in inputs for folder in (real, *real.parents)):
            raise CommandError(f"--out {path} is in the folder of the table: name another one.")
        for name in self._names:
            if str(real / name) in inputs:
                raise CommandError(f"--out {path} would replace the input {name}.")
        self.path.mkdir(parents=True, exist_ok=True)
        self.claim = self.path / _CLAIM
        try:
            self.claim.mkdir()
        except FileExistsError:
            raise CommandError(
                f"--out {path} is in use by another run, or by one that was stopped before its "
                f"end: if none runs, see what is in {self.claim}, and remove it. What a stopped "
                "run spent of a ledger stays spent."
            ) from None
        # After the claim, as another run may have ended a moment ago.
        if not overwrite and any(entry != self.claim for entry in self.path.iterdir()):
            self._release()
            raise CommandError(
                f"--out {path} is not empty: name a new folder, or replace the files of an earlier "
                "run by --overwrite."
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_) -> None:
        for name in self._names if self.written else ():
            if name in self.written:
                os.replace(self.claim / name, self.path / name)
            else:
                (self.path / name).unlink(missing_ok=True)
        self._release()

    def _release(self):
        shutil.rmtree(self.claim)
        if self._is_new and not self.written:
            with suppress(OSError):
                self.path.rmdir()

    @contextmanager
    def file(self, name: str) -> Iterator[Path]:
        """Give a path to write a file at."""
        yield self.claim / name
        self.written.append(name)

    def text(self, name: str, text: str) -> None:
        """Write a text."""
        write_text(self.claim / name, text)
        self.written.append(name)
