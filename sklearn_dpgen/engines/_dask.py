"""Frames and arrays of dask: one task per partition, and a tree of tasks that merge."""

from functools import partial

import pandas as pd

from sklearn_dpgen.engines._parts import check_columns, count_part, finish, merge_parts
from sklearn_dpgen.exceptions import PublicTypeError, PublicValueError

__all__ = ["columns_of", "map_parts"]

_FAN_IN = 8


def columns_of(X):
    """Return the names of the columns of a frame; None for an array."""
    if isinstance(getattr(X, "_meta", None), pd.DataFrame):
        return list(X._meta.columns)
    if not any(base.__module__.startswith("dask.array") for base in type(X).__mro__):
        raise PublicTypeError(
            "X must be a data frame of pandas partitions or an array if it is of dask, "
            f"got {type(X).__name__}."
        )
    if X.ndim != 2:
        raise PublicValueError("X must have two dimensions.")
    return None


def map_parts(function, merge, X, columns):
    """Return the merged results of a function on all partitions."""
    import dask

    task = partial(dask.delayed, pure=False)
    # As delayed objects they are in the graph once.
    function_, merge_ = task(function, traverse=False), task(merge, traverse=False)
    partitions = _partitions(X, columns)
    packed = [task(_count)(function_, i, part) for i, part in enumerate(partitions)]
    while len(packed) > 1:
        groups = (packed[i : i + _FAN_IN] for i in range(0, len(packed), _FAN_IN))
        packed = [task(merge_parts)(merge_, group) for group in groups]
    return finish(function, merge, dask.compute(*packed), len(partitions))


def _partitions(X, columns):
    names = columns_of(X)
    if names is None:
        if columns is not None:
            raise PublicValueError("columns must be None for an array of dask, which has no names.")
        return X.rechunk({1: -1}).to_delayed().ravel().tolist()
    if columns is not None:
        check_columns(names, columns)
        X = X[columns]
    return X.to_delayed()


def _count(function, part, partition):
    return count_part(function, part, [partition])
