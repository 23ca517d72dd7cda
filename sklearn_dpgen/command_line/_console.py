"""Output of commands: results on stdout, everything else on stderr, and no private value."""

import json
import math
import os
import re
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from sklearn_dpgen import exceptions

__all__ = ["CommandError", "Console", "describe", "without_credentials"]

_PACKAGE = Path(__file__).resolve().parents[1]
_OWN_WARNINGS = tuple(
    kind
    for kind in (getattr(exceptions, name) for name in exceptions.__all__)
    if issubclass(kind, Warning)
)


class CommandError(exceptions.PublicError):
    """Wrong use of a command, or a condition that stops it."""


def describe(error: BaseException) -> str:
    """Return a public description of an error.

    Parameters
    ----------
    error : Exception

    Returns
    -------
    str
        For a :class:`~sklearn_dpgen.exceptions.PublicError` its message, for an error of the
        operating system its description and the path, and for any other error only its type and
        location, because its message may hold values of the table.
    """
    if isinstance(error, exceptions.PublicError):
        return str(error)
    if isinstance(error, OSError) and isinstance(error.errno, int) and error.errno > 0:
        is_path = isinstance(error.filename, str | bytes | os.PathLike)
        return os.strerror(error.errno) + (f": {os.fspath(error.filename)}" if is_path else "")
    if isinstance(error, MemoryError):
        return "There is not enough memory."
    return (
        f"{type(error).__name__}{_location(error)}. Its message is not shown because it may hold "
        "values of the table; --traceback shows it."
    )


def without_credentials(text: str) -> str:
    """Return a text whose URLs have no user, password or parameters."""
    # One slash is left of two in a path; one letter and a slash are a drive of Windows.
    scheme = r"\b[A-Za-z](?:[A-Za-z0-9+.-]+:|:/)/+"
    text = re.sub(rf"({scheme})[^\s\"]*@", r"\1***@", text)
    return re.sub(rf"({scheme}[^\s\"?]*\?)[^\s\"]*", r"\1***", text)


def _location(error):
    """Return the module that raised an error, and the innermost line of this package."""
    frames, traceback = [], error.__traceback__
    while traceback is not None:
        is_ours = _PACKAGE in Path(traceback.tb_frame.f_code.co_filename).resolve().parents
        frames.append((is_ours, traceback.tb_frame.f_globals.get("__name__"), traceback.tb_lineno))
        traceback = traceback.tb_next
    ours = [f"{name}, line {line}" for is_ours, name, line in frames if is_ours][-1:]
    raised = [name for is_ours, name, _ in frames[-1:] if not is_ours]
    return f" in {', called by '.join([*raised, *ours])}" if frames else ""


class Console:
    """The two output streams of a command.

    Parameters
    ----------
    command : str
    quiet : bool, default=False
        Suppress progress and remarks; warnings and errors are still shown.
    as_json : bool, default=False
        Write the result as one JSON document.

    Attributes
    ----------
    spent : str or None
        The budget that the command has spent so far, as a sentence.
    warnings : list of str
    """

    def __init__(self, command: str, *, quiet: bool = False, as_json: bool = False) -> None:
        self.command, self.quiet, self.as_json = command, quiet, as_json
        self.spent: str | None = None
        self.warnings: list[str] = []
        self._written = False

    def say(self, text: str) -> None:
        """Show a remark or the progress."""
        if not self.quiet:
            _remark(text)

    def warn(self, text: str) -> None:
        """Show a warning, and keep it for the result."""
        if text not in self.warnings:
            self.warnings.append(text)
            _remark(f"warning: {text}")

    def result(self, text: str, document: dict, *, ok: bool = True) -> int:
        """Write the result, and return the exit code: 0 if ``ok``, otherwise 1."""
        self._result(text, document, ok=ok)
        return 0 if ok else 1

    def fail(self, text: str, code: int) -> int:
        """Show an error and the budget that was spent before it, and return the exit code."""
        _remark(f"error: {text}")
        document = {"error": text, "exit_code": code}
        if self.spent is not None:
            _remark(self.spent)
            document["spent"] = self.spent
        if self.as_json and not self._written:
            self._result("", document, ok=False)
        return code

    def _result(self, text, document, ok):
        head = {"command": self.command, "ok": ok}
        if self.as_json:
            document = head | document | {"warnings": self.warnings}
            text = json.dumps(_plain(document), indent=2, allow_nan=False)
        if text:
            print(without_credentials(text), flush=True)
        self._written = True

    @contextmanager
    def watching_warnings(self) -> Iterator[None]:
        """Show the warnings of this package alone; those of libraries may hold values."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            for kind in _OWN_WARNINGS:
                warnings.simplefilter("always", kind)
            warnings.showwarning = lambda message, *args, **options: self.warn(str(message))
            yield


def _remark(text):
    # A closed stderr must not stop a command that has spent a budget.
    with suppress(OSError):
        print(without_credentials(text), file=sys.stderr, flush=True)


def _plain(value):
    """Return a value that JSON can represent; infinite numbers become strings."""
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value
