"""Sources of records, read in parts: the one place that knows chunks, dask and Arrow."""

from collections.abc import Iterable, Mapping
from functools import partial

import numpy as np
import pandas as pd

from sklearn_dpgen.utils._validation import as_frame, call_quietly, check_array

__all__ = [
    "NO_RECORDS",
    "add_up",
    "column_names",
    "has_no_names",
    "is_dask_array",
    "map_frames",
    "pieces",
]

NO_RECORDS = "Found array with 0 sample(s) while a minimum of 1 is required."
# Records that are read at a time: what is held beside the result is small.
_BLOCK = 1 << 16


def map_frames(function, X, names):
    """Apply a function to all the records, part by part.

    Parameters
    ----------
    function : callable
        Of a data frame with the columns ``names``, in this order, and at least one record. The
        workers of dask apply it, and must be able to unpickle it.
    X : data frame, array-like of shape (n, n_columns), Arrow stream, dask DataFrame, or iterable
        Any of pandas, of what offers ``__arrow_c_stream__`` (such as Polars and pyarrow, which is
        needed), of rows, or an iterable of frames, read once. Frames have the columns in any order
        and in dtypes of their own, and may be empty. A list or tuple is one of frames if it begins
        with one, else one of rows.
    names : list of str

    Yields
    ------
    object
        What the function returns, in the order of the records.

    Raises
    ------
    ValueError
        Columns that are missing, unknown or there twice, or an array of another width.
    TypeError
        A chunk that is no data frame, or another collection of dask.
    """
    if _is_dask(X):
        yield from _map_partitions(function, X, names)
        return
    for table in _tables(X, names):
        yield from _map_blocks(function, table, names)


def column_names(X, names):
    """Return the names of the columns of a source, in its order, without reading a value.

    Parameters
    ----------
    X : as for `map_frames`
    names : list of str
        The declared ones. Of what cannot tell its own before it is read they are returned.

    Returns
    -------
    list of str
    """
    if _is_dask(X):
        X = X._meta
    elif _is_chunked(X) or _is_stream(X):
        return names
    elif len(X := _table(X, names)) == 0:
        raise ValueError(NO_RECORDS)
    if not isinstance(X, pd.DataFrame):
        return names
    _select(X, names)
    return list(X.columns)


def has_no_names(X):
    """Return whether a source, as of `map_frames`, is an array or rows, without names of columns.

    What an iterable yields is not looked at: `map_frames` takes frames alone from it.
    """
    is_frame = isinstance(X, pd.DataFrame) or _is_dask(X)
    return not (is_frame or _is_stream(X) or _is_chunked(X))


def _map_blocks(function, table, names):
    rows = table.iloc if isinstance(table, pd.DataFrame) else table
    for start in range(0, len(table), _BLOCK):
        block = rows[start : start + _BLOCK]
        is_frame = isinstance(block, pd.DataFrame)
        yield function(_select(block, names) if is_frame else as_frame(block, names))


def _tables(X, names):
    """Yield frames, or arrays of the right width."""
    if _is_stream(X):
        yield from _arrow_frames(X)
    elif not _is_chunked(X):
        yield _table(X, names)
    else:
        for chunk in X:
            if isinstance(chunk, pd.DataFrame):
                yield chunk
            elif _is_stream(chunk):
                yield from _arrow_frames(chunk)
            else:
                raise TypeError(f"Chunks of X must be data frames, got {type(chunk).__name__}.")


def _table(X, names):
    """Return a frame as it is, and anything else as an array of the right width."""
    if isinstance(X, pd.DataFrame):
        return X
    dtype = None if hasattr(X, "dtype") else object
    X = check_array(X, dtype=dtype, ensure_all_finite=False, estimator="TabularEncoder")
    if X.shape[1] != len(names):
        raise ValueError(
            f"X has {X.shape[1]} features, but TabularEncoder is expecting {len(names)} features "
            "as input, the columns of the schema."
        )
    return X


def _select(frame, names):
    """Return the columns ``names`` of a frame that has them, each once, and no others."""
    missing = [name for name in names if name not in frame.columns]
    unknown = [name for name in frame.columns if name not in names]
    twice = list(frame.columns[frame.columns.duplicated()].unique())
    if missing or unknown or twice:
        raise ValueError(
            "The columns must be those of the schema, each once: "
            f"missing {missing}, unknown {unknown}, more than once {twice}."
        )
    return frame[names]


def _is_stream(X):
    return hasattr(X, "__arrow_c_stream__") and not isinstance(X, pd.DataFrame | pd.Series)


def _arrow_frames(X):
    import pyarrow

    for batch in pyarrow.RecordBatchReader.from_stream(X):
        yield _frame_of_batch(batch)


def _frame_of_batch(batch):
    # As floats, integers beside a null would be others; dates of Python end with year 9999.
    options = {"integer_object_nulls": True, "date_as_object": False}
    try:
        return batch.to_pandas(**options)
    except MemoryError:
        raise
    except Exception:  # of any kind, by what a value is
        pass
    # One by one, to name the first at fault; outside of the handler, or its context would show it.
    rule = "holds what is no value of its Arrow type, such as a text that is not in UTF-8."
    for name, column in zip(batch.schema.names, batch.columns, strict=True):
        call_quietly(f"Column {name!r} {rule}", partial(column.to_pandas, **options))
    raise ValueError(f"A column of X {rule}")


def _is_chunked(X):
    if isinstance(X, list | tuple):
        return len(X) == 0 or isinstance(X[0], pd.DataFrame) or _is_stream(X[0])
    is_table = hasattr(X, "shape") or hasattr(X, "__array__")
    return isinstance(X, Iterable) and not is_table and not isinstance(X, str | bytes | Mapping)


def _of_dask(X):
    # dask_expr was a package of its own before 2025.
    return type(X).__module__.partition(".")[0] in ("dask", "dask_expr")


def _is_dask(X):
    if _of_dask(X) and not isinstance(getattr(X, "_meta", None), pd.DataFrame):
        raise TypeError(f"X must be a data frame if it is of dask, got {type(X).__name__}.")
    return _of_dask(X)


def is_dask_array(X):
    """Return whether X is an array of dask, and not an array in memory.

    Raises
    ------
    TypeError
        Another collection of dask.
    """
    if _of_dask(X) and not type(X).__module__.startswith("dask.array"):
        raise TypeError(
            f"X must be an array if it is of dask, got {type(X).__name__}: see to_dask_array."
        )
    return _of_dask(X)


def _map_partitions(function, X, names):
    import dask

    apply = dask.delayed(_partition, pure=False)
    # Delayed, the function is in the graph once.
    shared = dask.delayed(function, pure=False, traverse=False)
    for results in dask.compute(*(apply(part, shared, names) for part in X.to_delayed())):
        yield from results


def _partition(frame, function, names):
    return list(_map_blocks(function, frame, names))


def pieces(X, n_rows):
    """Yield parts of at most ``n_rows`` records of a table, or of each table of an iterable."""
    if hasattr(X, "shape"):
        if len(X.shape) == 0:
            raise ValueError("X must have two dimensions.")
        get = X.iloc if hasattr(X, "iloc") else X
        # A sparse matrix goes on as it is, to be turned down.
        n = X.shape[0] if hasattr(X, "__array__") else 0
        for start in range(0, max(n, 1), n_rows):
            yield get[start : start + n_rows] if n > n_rows else X
    elif isinstance(X, list | tuple) and X and not all(hasattr(part, "shape") for part in X):
        yield from pieces(_as_array(X), n_rows)
    elif isinstance(X, Iterable) and not isinstance(X, str | bytes | dict):
        for part in X:
            yield from pieces(part if hasattr(part, "shape") else _as_array(part), n_rows)
    else:
        raise TypeError(
            f"X must be a table, an iterable of tables or a dask array, got {type(X).__name__}."
        )


def _as_array(X):
    return check_array(X, dtype=np.float64, ensure_min_samples=0, ensure_all_finite=False)


def add_up(count, X, n_counts):
    """Return the sum of ``count(part)`` over the parts of the records.

    Parameters
    ----------
    count : callable
        From records to an ndarray of int64 of shape (n_counts,). It is sent to the workers of a
        dask array, one task a block.
    X : array-like, iterable of array-likes or dask array
    n_counts : int
    """
    if not is_dask_array(X):
        return count(X)
    import dask

    if X.ndim != 2:
        raise ValueError("X must have two dimensions.")
    X = X.rechunk({1: -1})
    votes = X.map_blocks(
        _count_block,
        # Delayed, the candidates are in the graph once.
        dask.delayed(count, pure=False),
        chunks=((1,) * X.numblocks[0], (n_counts,)),
        meta=np.empty((0, 0), np.int64),
    )
    return votes.sum(axis=0).compute()


def _count_block(block, count):
    return count(block)[None]
