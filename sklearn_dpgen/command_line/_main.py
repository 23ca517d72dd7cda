"""Reading of arguments, and what becomes of errors."""

import os
import sys
import traceback
from collections.abc import Sequence

from sklearn_dpgen.command_line._console import Console
from sklearn_dpgen.command_line._errors import describe
from sklearn_dpgen.command_line._parser import build_parser
from sklearn_dpgen.exceptions import BudgetExceededError

__all__ = ["main"]

_TRACEBACK = "SKLEARN_DPGEN_TRACEBACK"
# As shells count commands that a signal ends: SIGINT is 2, SIGPIPE is 13.
_INTERRUPTED, _BROKEN_PIPE = 130, 141


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command.

    Parameters
    ----------
    argv : sequence of str or None, default=None
        The arguments; None takes those of the process.

    Returns
    -------
    int
        0 for success, 1 where the answer is no, 2 for wrong use or an error, 130 after an
        interrupt, 141 where nobody reads the result any more.
    """
    for stream in (sys.stdout, sys.stderr):
        # A console that cannot show a letter is no reason to lose a result.
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")
    try:
        code = _run(argv)
        sys.stdout.flush()
    except BrokenPipeError:
        _close_stdout()
        return _BROKEN_PIPE
    return code


def _run(argv):
    try:
        arguments = build_parser().parse_args(argv)
    except SystemExit as stop:
        return stop.code or 0
    command = " ".join(filter(None, (arguments.command, getattr(arguments, "part", None))))
    console = Console(command, quiet=arguments.quiet, as_json=arguments.json)
    try:
        with console.watching_warnings():
            return arguments.run(arguments, console)
    except BrokenPipeError:
        raise
    except KeyboardInterrupt:
        return console.fail("Interrupted.", _INTERRUPTED)
    except Exception as error:
        if arguments.traceback or os.environ.get(_TRACEBACK):
            traceback.print_exc()
        return console.fail(describe(error), 1 if isinstance(error, BudgetExceededError) else 2)


def _close_stdout():
    """Send to nowhere what Python would still write at its end."""
    try:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
    except (OSError, ValueError):
        pass
