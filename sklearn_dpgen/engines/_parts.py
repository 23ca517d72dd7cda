"""Results of the partitions of a table, merged, with a check that each is in it once."""

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

# Errors of a worker whose message is public and kept. Others may quote records.
_PUBLIC = {kind.__name__: kind for kind in (PublicValueError, PublicTypeError)}


def count_part(function: Callable, part: Any, pieces: Iterable) -> bytes:
    """Apply a function to the pieces of a partition.

    Parameters
    ----------
    function : callable
        Function of an iterator over the non-empty pieces.
    part : int or (str, int)
        Number of the partition: unique, and the same if the engine computes it again.
    pieces : iterable of tables

    Returns
    -------
    bytes
        The number, and the result of the function or its public error.
    """
    value, error = _attempt(function, (piece for piece in pieces if len(piece)))
    return _pack([part], value, None if error is None else (part, error))


def merge_parts(merge: Callable, packed: Iterable[bytes]) -> bytes:
    """Merge the results of partitions one after another.

    Parameters
    ----------
    merge : callable
        Function of two results; it may change them, as both are copies.
    packed : iterable of bytes
        Results of `count_part` or of this function. The error of the first partition is kept.

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
    """Return the merged results of all partitions, or raise the error of the first that failed.

    Parameters
    ----------
    function, merge : callable
        As above. For a table without partitions the function is applied to an empty iterator.
    packed : iterable of bytes
        Results of `merge_parts` that together have each partition once.
    n_parts : int or None, default=None
        Number of partitions, if known.

    Returns
    -------
    object

    Raises
    ------
    PublicValueError, PublicTypeError
        The error of a partition, without its context, which could show records.
    PublicRuntimeError
        A partition is missing or repeated.
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
    """Check that a table has each of the columns exactly once."""
    wrong = [name for name in columns if names.count(name) != 1]
    if wrong:
        raise PublicValueError(f"X must have each of these columns once: {wrong}.")


def require(module: str, extra: str) -> Any:
    """Import a module, or raise an error that names the extra to install."""
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
    """Check that partitions are numbered consecutively, overall or within each task."""
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
            "The engine must give each part of X exactly once, and did not: nothing was released. "
            "X must give the same records whenever it is computed again."
        )
