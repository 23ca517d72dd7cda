"""The commands and their help."""

import argparse

from sklearn_dpgen._version import __version__
from sklearn_dpgen.command_line import (
    _audit,
    _check,
    _draft,
    _ledger,
    _models,
    _plan,
    _synthesize,
)

__all__ = ["build_parser"]

_DESCRIPTION = """\
Synthetic tables from private ones, with differential privacy, and what goes with them.

A first session:

  1. sklearn-dpgen draft-schema patients.csv --out schema.yaml
     Open schema.yaml. Write the bounds and categories in, from what is publicly known.
  2. sklearn-dpgen check schema.yaml patients.csv
  3. sklearn-dpgen plan --schema schema.yaml --rows 5000 --epsilon 1 --delta 1e-6
  4. sklearn-dpgen ledger init patients.ledger --dataset patients --epsilon 3 --delta 1e-6
  5. sklearn-dpgen synthesize patients.csv --schema schema.yaml --epsilon 1 --delta 1e-6 \\
       --ledger patients.ledger --out synthetic

Each command has its own help: sklearn-dpgen COMMAND --help.
"""
_EPILOG = """\
exit codes:
  0  success
  1  the answer is no: a check failed, a guarantee was violated, a budget is exceeded
  2  wrong use, or an error
  130 after an interrupt; 141 where the reader of a pipe went away

Results are written to stdout, all else to stderr. With --json, stdout has one document of JSON.

There is no option for a seed: noise of a known or guessed seed can be taken away again, and with
it the guarantee.
"""


def build_parser() -> argparse.ArgumentParser:
    """Return the parser of all commands, without the libraries that they need."""
    parser = argparse.ArgumentParser(
        prog="sklearn-dpgen",
        description=_DESCRIPTION,
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=f"sklearn-dpgen {__version__}")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    for module in (_draft, _check, _plan, _audit, _ledger, _synthesize, _models):
        module.add_to(commands)
    return parser
