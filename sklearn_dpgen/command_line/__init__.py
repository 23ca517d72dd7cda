"""The command line: synthetic tables, plans, checks and ledgers without Python code."""

from sklearn_dpgen.command_line._main import main

__all__ = ["main"]
