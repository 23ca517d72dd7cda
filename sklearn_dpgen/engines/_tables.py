"""Tables of the engines: which is whose, its columns, and a function of all its parts."""

from collections.abc import Callable
from functools import partial
from importlib import import_module
from typing import Any

from sklearn_dpgen.exceptions import PublicTypeError
from sklearn_dpgen.utils._threads import one_thread

__all__ = ["engine_columns", "is_engine_table", "map_reduce"]

# By the package that a class is of. dask_expr was one of its own before 2025.
_ADAPTERS = {"dask": "_dask", "dask_expr": "_dask", "pyspark": "_spark", "ray": "_ray"}


def is_engine_table(X: Any) -> bool:
    """Return whether an object is a table of dask, Spark or Ray, without importing these.

    Parameters
    ----------
    X : object

    Returns
    -------
    bool
        Also of what is theirs and no table. The functions below refuse it, and say what to give.
    """
    return _engine(X) is not None


def engine_columns(X: Any) -> list[str] | None:
    """Return the names of the columns of a table of an engine, without reading a record.

    Parameters
    ----------
    X : dask DataFrame or Array, pyspark.sql.DataFrame, or ray.data.Dataset

    Returns
    -------
    list of str or None
        In the order of the table. None of an array, and of a dataset of Ray whose columns are
        known after it has been computed alone.

    Raises
    ------
    TypeError
        Anything else of these engines.
    ValueError
        An array that has not two dimensions.
    """
    return _adapter(X).columns_of(X)


def map_reduce(
    function: Callable[[Any], Any],
    merge: Callable[[Any, Any], Any],
    X: Any,
    columns: list[str] | None = None,
) -> Any:
    """Apply a function to each part of a table once, and merge the results.

    Parameters
    ----------
    function : callable
        Of an iterator over the records of one partition, in pieces of at least one record: a
        pandas frame of dask, an ndarray of an array of dask, record batches of Arrow of Spark, a
        table of Arrow of Ray. It need not read them all. There is none in an empty partition, and
        of a table without partitions the function is applied to an empty iterator, here. It
        returns what can be pickled, and so can be the function: the workers import its module.
    merge : callable
        Of two values of the function, or of itself: associative and commutative, as engines merge
        what is there first. It may change both. The workers apply it.
    X : dask DataFrame or Array, pyspark.sql.DataFrame, or ray.data.Dataset
        It gives the same records whenever it is computed.
    columns : list of str or None, default=None
        What is read, in this order. None is all; of an array it must be None.

    Returns
    -------
    object
        What all values give together.

    Raises
    ------
    ValueError, TypeError
        What the function raises on a worker, with its message alone and after all parts were
        read: it must show no value. Of a class derived from these the message is left out.
        Columns that are not there, or another object than a table.
    RuntimeError
        The engine gave a part twice, or not at all.
    ImportError
        What the engine needs is not installed; it says which extra brings it.
    """
    return _adapter(X).map_parts(partial(_in_one_thread, function), merge, X, columns)


def _in_one_thread(function, parts):
    """Return what a function returns on a worker, whose limits are its own."""
    with one_thread():
        return function(parts)


def _engine(X):
    packages = (base.__module__.partition(".")[0] for base in type(X).__mro__)
    return next((_ADAPTERS[package] for package in packages if package in _ADAPTERS), None)


def _adapter(X):
    engine = _engine(X)
    if engine is None:
        raise PublicTypeError(f"X must be a table of dask, Spark or Ray, got {type(X).__name__}.")
    return import_module(f"sklearn_dpgen.engines.{engine}")
