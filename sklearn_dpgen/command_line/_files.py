"""Files that are there whole or not at all, and the schema that a file holds."""

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sklearn_dpgen.command_line._errors import CommandError, describe

if TYPE_CHECKING:
    from sklearn_dpgen.schema import Schema

__all__ = [
    "OutputFolder",
    "check_new_file",
    "parse",
    "read_schema",
    "read_text",
    "replacing",
    "write_text",
]

_SCHEMA_ENDINGS = (".yaml", ".yml", ".json")


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
    if not path.lower().endswith(_SCHEMA_ENDINGS):
        raise CommandError(
            f"The schema {path} must be a file with an ending of {', '.join(_SCHEMA_ENDINGS)}."
        )
    from sklearn_dpgen.schema import Schema, SchemaDraft

    declaration = parse(read_text(path, "schema"), path)
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
    """A folder for results: made, and known to be writable, before a budget is spent.

    Parameters
    ----------
    path : str
    overwrite : bool
        Whether files of an earlier run may be replaced.
    inputs : iterable of str
        Files that are never replaced.
    """

    def __init__(self, path: str, *, overwrite: bool, inputs: tuple = ()) -> None:
        self.path = Path(path)
        self._inputs = [os.path.realpath(name) for name in inputs]
        self.written: list[str] = []
        if self.path.exists() and not self.path.is_dir():
            raise CommandError(f"--out {path} is a file: name a folder.")
        self._is_new = not self.path.exists()
        # Of a table in a folder all files are parts of it, whatever their names.
        real = Path(os.path.realpath(path))
        if any(str(folder) in self._inputs for folder in (real, *real.parents)):
            raise CommandError(f"--out {path} is in the folder of the table: name another one.")
        if not overwrite and not self._is_new and any(self.path.iterdir()):
            raise CommandError(
                f"--out {path} is not empty: name a new folder, or replace the files of an earlier "
                "run by --overwrite."
            )
        self.path.mkdir(parents=True, exist_ok=True)
        with replacing(self.path / "probe") as part:
            part.touch()
        (self.path / "probe").unlink()

    def drop_if_new(self) -> None:
        """Take an empty folder away again that was made for nothing."""
        if self._is_new:
            with suppress(OSError):
                self.path.rmdir()

    def check_names(self, names: list[str]) -> None:
        """Refuse to replace an input."""
        for name in names:
            if os.path.realpath(self.path / name) in self._inputs:
                raise CommandError(f"--out {self.path} would replace the input {name}.")

    def drop_old(self, names: list[str]) -> None:
        """Take away what an earlier run left, so that the files are all of one run."""
        for name in names:
            (self.path / name).unlink(missing_ok=True)

    @contextmanager
    def file(self, name: str) -> Iterator[Path]:
        """Give a path to write a file at."""
        with replacing(self.path / name) as part:
            yield part
        self.written.append(name)

    def text(self, name: str, text: str) -> None:
        """Write a text."""
        write_text(self.path / name, text)
        self.written.append(name)
