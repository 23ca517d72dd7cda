"""Tables of the engines: detection, columns, and map-reduce over partitions."""

from collections.abc import Callable
from functools import partial
from importlib import import_module
from typing import Any

from sklearn_dpgen.exceptions import PublicTypeError
from sklearn_dpgen.utils._threads import one_thread

__all__ = ["engine_columns", "is_engine_table", "map_reduce"]

# Adapters by the top-level package of a class. dask_expr was a separate package before 2025.
_ADAPTERS = {"dask": "_dask", "dask_expr": "_dask", "pyspark": "_spark", "ray": "_ray"}


def is_engine_table(X: Any) -> bool:
    """Return whether an object belongs to dask, Spark or Ray, without importing these.

    Parameters
    ----------
    X : object

    Returns
    -------
    bool
        Also True for their other objects, which the functions below refuse.
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
        In the order of the table. None for an array, and for a dataset of Ray whose columns are
        known only after it is computed.

    Raises
    ------
    PublicTypeError
        The object is not a table.
    PublicValueError
        An array does not have two dimensions.
    """
    return _adapter(X).columns_of(X)


def map_reduce(
    function: Callable[[Any], Any],
    merge: Callable[[Any, Any], Any],
    X: Any,
    columns: list[str] | None = None,
) -> Any:
    """Apply a function to each partition of a table once, and merge the results.

    Parameters
    ----------
    function : callable
        Function of an iterator over the non-empty pieces of one partition: pandas frames (dask
        DataFrame), ndarrays (dask Array), Arrow record batches (Spark) or Arrow tables (Ray). It
        need not read all pieces, and gets an empty iterator if the table has no partitions. The
        function and its result must be picklable; the workers import its module.
    merge : callable
        Function of two results, associative and commutative, as engines merge in any order. It
        may change both arguments. It runs on the workers.
    X : dask DataFrame or Array, pyspark.sql.DataFrame, or ray.data.Dataset
        Must give the same records whenever it is computed.
    columns : list of str or None, default=None
        Columns to read, in this order. None reads all, and is required for an array.

    Returns
    -------
    object
        The merged result.

    Raises
    ------
    PublicValueError, PublicTypeError
        The function raised one of these on a worker; only its message is kept. The message of any
        other class is replaced. Also raised for missing columns, or an object that is not a table.
    PublicRuntimeError
        The engine omitted or repeated a partition.
    PublicImportError
        A dependency of the engine is not installed; the message names the extra.
    """
    return _adapter(X).map_parts(partial(_in_one_thread, function), merge, X, columns)


def _in_one_thread(function, parts):
    """Return the result of a function on a worker, which the engine runs in parallel already."""
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
