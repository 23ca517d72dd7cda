"""The entry point: parsing of arguments, and exit codes of errors."""

import argparse
import os
import sys
import traceback
from collections.abc import Sequence

from sklearn_dpgen._version import __version__
from sklearn_dpgen.command_line import _app, _check, _fit, _ledger, _models, _schema
from sklearn_dpgen.command_line._console import Console, describe, without_credentials
from sklearn_dpgen.exceptions import BudgetExceededError

__all__ = ["build_parser", "execute", "main"]

_DESCRIPTION = """\
Make differentially private synthetic tables, and check, plan, audit and publish them.

A first session:

  1. sklearn-dpgen draft-schema patients.csv --out schema.yaml
     Complete schema.yaml: bounds and categories from public knowledge, never from the table.
  2. sklearn-dpgen check schema.yaml patients.csv
  3. sklearn-dpgen plan --schema schema.yaml --rows 5000 --epsilon 1 --delta 1e-6
  4. sklearn-dpgen ledger init patients.ledger --dataset patients --epsilon 3 --delta 1e-6
  5. sklearn-dpgen synthesize patients.csv --schema schema.yaml --epsilon 1 --delta 1e-6 \\
       --ledger patients.ledger --out synthetic

For the help of a command: sklearn-dpgen COMMAND --help.
"""
_EPILOG = """\
exit codes:
  0    success
  1    the answer is no: a check failed, a guarantee is violated, or a budget is exceeded
  2    wrong use, or an error
  130  interrupted
  141  the reader of the output closed the pipe

Results go to stdout, everything else to stderr. With --json, stdout holds one JSON document; after
an error it has the keys "error" and "exit_code", and "spent" if a budget was already spent.

There is no option for a seed: whoever knows or guesses the seed can subtract the noise.
"""
_TRACEBACK = "SKLEARN_DPGEN_TRACEBACK"
# As shells report commands that a signal ended: SIGINT is 2, SIGPIPE is 13.
_INTERRUPTED, _BROKEN_PIPE = 130, 141


def build_parser() -> argparse.ArgumentParser:
    """Return the parser of all commands, without importing the libraries that they need."""
    parser = _Parser(
        prog="sklearn-dpgen",
        description=_DESCRIPTION,
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=f"sklearn-dpgen {__version__}")
    commands = parser.add_subparsers(
        title="commands", dest="command", metavar="COMMAND", required=True
    )
    for module in (_schema, _check, _fit, _ledger, _models, _app):
        module.add_to(commands)
    return parser


class _Parser(argparse.ArgumentParser):
    """A parser whose errors do not repeat the password of a URL."""

    def error(self, message):
        super().error(without_credentials(message))


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command.

    Parameters
    ----------
    argv : sequence of str or None, default=None
        The arguments; None takes those of the process.

    Returns
    -------
    int
        The exit code: 0 for success, 1 if the answer is no, 2 for wrong use or an error, 130 after
        an interrupt, 141 if the reader of the output closed the pipe.
    """
    for stream in (sys.stdout, sys.stderr):
        # A character that the console cannot encode must not lose the result.
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
    command = " ".join(filter(None, (arguments.command, getattr(arguments, "subcommand", None))))
    return execute(arguments, Console(command, quiet=arguments.quiet, as_json=arguments.json))


def execute(arguments: argparse.Namespace, console: Console) -> int:
    """Run a command whose arguments are parsed, and return its exit code."""
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
    """Redirect stdout to the null device, because Python flushes it when it exits."""
    try:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
    except (OSError, ValueError):
        pass
