"""What a command says: results on stdout, all else on stderr."""

import json
import math
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from sklearn_dpgen import exceptions

__all__ = ["Console"]

_OWN_WARNINGS = tuple(
    kind
    for kind in (getattr(exceptions, name) for name in exceptions.__all__)
    if issubclass(kind, Warning)
)


class Console:
    """The two streams of a command.

    Parameters
    ----------
    command : str
    quiet : bool, default=False
        Without progress and remarks; warnings and errors are shown.
    as_json : bool, default=False
        The result is one document of JSON.

    Attributes
    ----------
    spent : str or None
        What the command has spent so far, in words.
    warnings : list of str
    """

    def __init__(self, command: str, *, quiet: bool = False, as_json: bool = False) -> None:
        self.command, self.quiet, self.as_json = command, quiet, as_json
        self.spent: str | None = None
        self.warnings: list[str] = []
        self._written = False

    def say(self, text: str) -> None:
        """Show a remark or a step."""
        if not self.quiet:
            _remark(text)

    def warn(self, text: str) -> None:
        """Show a warning, and keep it for the result."""
        if text not in self.warnings:
            self.warnings.append(text)
            _remark(f"warning: {text}")

    def result(self, text: str, document: dict, *, ok: bool = True) -> int:
        """Write the one result, and return the exit code: 0 for yes, 1 for no."""
        self._result(text, document, ok=ok)
        return 0 if ok else 1

    def fail(self, text: str, code: int) -> int:
        """Show an error with what was spent, and return the exit code."""
        _remark(f"error: {text}")
        if self.spent is not None:
            _remark(self.spent)
        if self.as_json and not self._written:
            self._result("", {"error": text, "exit_code": code, "spent": self.spent}, ok=False)
        return code

    def _result(self, text, document, ok):
        head = {"command": self.command, "ok": ok}
        if self.as_json:
            document = head | document | {"warnings": self.warnings}
            text = json.dumps(_plain(document), indent=2, allow_nan=False)
        if text:
            print(text, flush=True)
        self._written = True

    @contextmanager
    def watching_warnings(self) -> Iterator[None]:
        """Show the warnings of this package; those of libraries may hold values."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            for kind in _OWN_WARNINGS:
                warnings.simplefilter("always", kind)
            warnings.showwarning = lambda message, *args, **options: self.warn(str(message))
            yield


def _remark(text):
    # That nobody reads remarks must not stop what a budget was spent on.
    with suppress(OSError):
        print(text, file=sys.stderr, flush=True)


def _plain(value):
    """Return what JSON has a form for; an infinite number becomes text."""
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value
