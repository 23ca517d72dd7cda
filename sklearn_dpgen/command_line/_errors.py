"""Which errors may be shown: messages of this package, which hold no value of a table."""

import dis
import os
import re
from pathlib import Path

__all__ = ["CommandError", "describe", "is_own"]

_PACKAGE = Path(__file__).resolve().parents[1]
_RAISE = dis.opmap["RAISE_VARARGS"]


class CommandError(Exception):
    """Wrong use, or what stops a command, in words that may be shown."""


def describe(error: BaseException) -> str:
    """Return what may be said of an error.

    Parameters
    ----------
    error : Exception

    Returns
    -------
    str
        Its message, where this package raised it. Of an error of the operating system its kind
        and the path. Of others the type and the place alone: their messages may hold values.
    """
    if isinstance(error, CommandError) or is_own(error):
        # What a fit calls X is the table here.
        return re.sub(r"^X\b", "The table", str(error))
    if isinstance(error, OSError) and isinstance(error.errno, int) and error.errno > 0:
        path = f": {os.fspath(error.filename)}" if _is_path(error.filename) else ""
        return f"{os.strerror(error.errno)}{path}"
    if isinstance(error, MemoryError):
        return "There is not enough memory."
    place = _place(error)
    return (
        f"{type(error).__name__}{f' in {place}' if place else ''}. Its message is not shown, for "
        "it may hold values of a table: --traceback shows it."
    )


def is_own(error: BaseException) -> bool:
    """Return whether an error was raised by a statement of this package.

    What a library or a built-in function raises is not its own, even if the package called it.
    """
    last = _last(error)
    if last is None or not _is_ours(last.tb_frame.f_code):
        return False
    return last.tb_frame.f_code.co_code[last.tb_lasti] == _RAISE


def _last(error):
    last = error.__traceback__
    while last is not None and last.tb_next is not None:
        last = last.tb_next
    return last


def _is_ours(code):
    return _PACKAGE in Path(code.co_filename).resolve().parents


def _is_path(name):
    return isinstance(name, str | bytes | os.PathLike)


def _place(error):
    """Return the innermost line of this package, and the module that raised."""
    step, ours = error.__traceback__, None
    while step is not None:
        if _is_ours(step.tb_frame.f_code):
            ours = f"{step.tb_frame.f_globals.get('__name__')}, line {step.tb_lineno}"
        step = step.tb_next
    last = _last(error)
    module = last.tb_frame.f_globals.get("__name__") if last else None
    names = [module] if module and not _is_ours(last.tb_frame.f_code) else []
    return ", called by ".join([*names, *([ours] if ours else [])])
