"""Private records in pieces: tables, iterables of tables, dask arrays."""

from collections.abc import Iterable

import numpy as np

from sklearn_dpgen.utils._validation import check_array

__all__ = ["add_up", "checked", "pieces"]


def checked(X, name, *, width=None, n_rows=None):
    """Return an array-like as finite float64 of shape (n, width), or say what is wrong with it."""
    X = check_array(X, dtype=np.float64, ensure_min_samples=0, ensure_all_finite=False)
    # That of scikit-learn takes a sum first, which warns where it overflows.
    if not np.isfinite(X).all():
        raise ValueError(f"{name} contains NaN or infinity.")
    if width is not None and X.shape[1] != width:
        raise ValueError(f"{name} has {X.shape[1]} features, V has {width} features.")
    if n_rows is not None and len(X) != n_rows:
        raise ValueError(f"{name} has {len(X)} rows for {n_rows} records.")
    return X


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
        yield from pieces(np.asarray(checked(X, "X")), n_rows)
    elif isinstance(X, Iterable) and not isinstance(X, str | bytes | dict):
        for part in X:
            yield from pieces(part if hasattr(part, "shape") else checked(part, "X"), n_rows)
    else:
        raise TypeError(
            f"X must be a table, an iterable of tables or a dask array, got {type(X).__name__}."
        )


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
    if type(X).__module__.partition(".")[0] == "dask":
        return _add_up_blocks(count, X, n_counts)
    return count(X)


def _add_up_blocks(count, X, n_counts):
    import dask
    import dask.array

    if not isinstance(X, dask.array.Array):
        raise TypeError(
            f"X must be an array if it is of dask, got {type(X).__name__}: see to_dask_array."
        )
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
