"""Results of the parts of a table, merged, with a check that each part is in it once."""

import pickle
from collections import defaultdict
from collections.abc import Callable, Iterable
from importlib import import_module
from typing import Any

from sklearn_dpgen.exceptions import (
    PublicImportError,
    PublicRuntimeError,
    PublicTypeError,
    PublicValueError,
)

__all__ = ["check_columns", "count_part", "finish", "merge_parts", "require"]

# The errors of a part that keep their message, which is public. Others may quote records.
_PUBLIC = {kind.__name__: kind for kind in (PublicValueError, PublicTypeError)}


def count_part(function: Callable, part: Any, pieces: Iterable) -> bytes:
    """Apply a function to the pieces of a part of a table.

    Parameters
    ----------
    function : callable
        Of an iterator over the pieces that have a record.
    part : int or (str, int)
        Which part it is: the same if the engine counts it again, and no other's.
    pieces : iterable of tables

    Returns
    -------
    bytes
        Of the part, and what the function returns, or the ValueError or TypeError it raises.
    """
    value, error = _attempt(function, (piece for piece in pieces if len(piece)))
    return _pack([part], value, None if error is None else (part, error))


def merge_parts(merge: Callable, packed: Iterable[bytes]) -> bytes:
    """Merge what parts give, one after another, to what they give together.

    Parameters
    ----------
    merge : callable
        Of two values that the function returned. It may change them, as both are copies.
    packed : iterable of bytes
        From `count_part` or from here. Of an error, that of the first part is kept.

    Returns
    -------
    bytes
    """
    parts: list[int] = []
    total, first = None, None
    for item in packed:
        more, value, error = pickle.loads(item)
        if not more:
            continue
        if first is None and error is None and parts:
            value, raised = _attempt(merge, total, value)
            error = None if raised is None else (more[0], raised)
        total = value
        first = min(filter(None, (first, error)), default=None)
        parts += more
    return _pack(parts, total, first)


def finish(
    function: Callable, merge: Callable, packed: Iterable[bytes], n_parts: int | None = None
) -> Any:
    """Return what all parts give together, or raise what was raised of the first that failed.

    Parameters
    ----------
    function, merge : callable
        As above. Of a table without parts the function is applied to none, here.
    packed : iterable of bytes
        From `merge_parts`: each part of the table in one of them, and once.
    n_parts : int or None, default=None
        How many parts the table has, where that is known.

    Returns
    -------
    object

    Raises
    ------
    ValueError, TypeError
        Of a part. It has no context, as that would show what a worker had read.
    RuntimeError
        A part is in it twice, or not at all.
    """
    parts, value, error = pickle.loads(merge_parts(merge, packed))
    _check_once(parts, n_parts)
    if not parts:
        _, value, error = pickle.loads(count_part(function, 0, ()))
    if error is not None:
        _, (kind, text) = error
        raise _PUBLIC[kind](text)
    return value


def check_columns(names: list[str], columns: list[str]) -> None:
    """Refuse columns that a table has not, or more than once."""
    wrong = [name for name in columns if names.count(name) != 1]
    if wrong:
        raise PublicValueError(f"X must have each of these columns once: {wrong}.")


def require(module: str, extra: str) -> Any:
    """Return a module, or say which extra brings it."""
    try:
        return import_module(module)
    except ImportError:
        name = module.partition(".")[0]
    raise PublicImportError(
        f"A table of {extra} needs {name}, where it is read and where it is counted: "
        f"pip install 'sklearn-dpgen[{extra}]'"
    )


def _attempt(function: Callable, *args: Any) -> tuple[Any, tuple[str, str] | None]:
    try:
        return function(*args), None
    except (ValueError, TypeError) as error:
        for name, kind in _PUBLIC.items():
            if isinstance(error, kind):
                return None, (name, str(error))
        return None, ("PublicValueError", f"A part of X cannot be read: {type(error).__name__}.")


def _pack(parts, value, error) -> bytes:
    return pickle.dumps((parts, value, error), protocol=5)


def _check_once(parts: list, n_parts: int | None) -> None:
    """Refuse parts that are not numbered one after another, by themselves or for each task."""
    numbers = defaultdict(list)
    for part in parts:
        task, number = part if isinstance(part, tuple) else (None, part)
        numbers[task].append(number)
    each_once = all(
        sorted(found) == list(range(min(found), min(found) + len(found)))
        for found in numbers.values()
    )
    if not each_once or (n_parts is not None and len(parts) != n_parts):
        raise PublicRuntimeError(
            "The engine gave a part of X more than once, or not at all: nothing was released. "
            "X must give the same records whenever it is computed again."
        )
