"""The command line: synthetic tables, plans, checks and ledgers, without a line of Python."""

from sklearn_dpgen.command_line._main import main

__all__ = ["main"]
