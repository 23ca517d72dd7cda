"""Records of a table as the category of each in each column, in as little memory as that takes."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import chain

import numpy as np
import pandas as pd
from pandas.api import types

from sklearn_dpgen.preprocessing._tabular import TabularEncoder
from sklearn_dpgen.schema._column import CategoryColumn
from sklearn_dpgen.utils._validation import check_is_fitted

__all__ = ["RecordCodes", "encode_codes", "fit_encoder", "with_bins"]

# Records that are encoded at a time: what is held beside the codes is small.
_BLOCK = 1 << 16
_NO_RECORDS = "Found array with 0 sample(s) while a minimum of 1 is required."


@dataclass(frozen=True, eq=False)
class RecordCodes:
    """Records, each with exactly one category in each column.

    Parameters
    ----------
    columns : list of ndarray of shape (n_records,)
        The category of each record, in the order of the schema. Contiguous, and of the smallest
        unsigned dtype that holds all categories of the column.
    sizes : list of int
        The number of categories of each column.
    """

    columns: list
    sizes: list

    @property
    def n_records(self):
        """The number of records."""
        return len(self.columns[0])


def encode_codes(X, encoder):
    """Return the category of each record in each column.

    A record always gets exactly one category in each column, whatever it holds and whatever the
    other records hold; else it is refused. The sensitivity of counts rests on it: a record adds
    one to a single cell of each table.

    Parameters
    ----------
    X : data frame, array-like of shape (n, n_columns), iterable of data frames or dask DataFrame
        Private records. An iterable is read once, chunk by chunk; each chunk has the columns of
        the schema in any order, in dtypes of its own, and may be empty. A list or tuple is one of
        chunks if it begins with a data frame, else one of rows. A dask frame is encoded by the
        workers, partition by partition: codes alone come back.
    encoder : TabularEncoder
        Fitted, with bins for all numbers and dates.

    Returns
    -------
    RecordCodes
        With the records in the order given.

    Raises
    ------
    ValueError
        No records at all, or a column that is missing, unknown or without bins, that has nulls
        without being nullable, or holds a value outside the declared ones. Never with the value.
    TypeError
        A chunk that is no data frame, or another collection of dask.

    Notes
    -----
    Beside the codes, an eighth of them and a block of 65536 records are held; of dask's, the codes
    twice. An array-like of rows that is neither an ndarray nor a frame is first made one. Dask
    makes texts of Python objects such as None and True, unless ``dataframe.convert-string`` of its
    configuration is False.
    """
    check_is_fitted(encoder)
    bare = [name for name, c in encoder.columns_.items() if not isinstance(c, CategoryColumn)]
    if bare:
        raise ValueError(f"Columns without categories need bins: {bare}.")
    parts = _dask_codes(X, encoder) if _is_dask(X) else _codes_of(_tables(X, encoder), encoder)
    columns = _joined(parts, encoder)
    if len(columns[0]) == 0:
        raise ValueError(_NO_RECORDS)
    return RecordCodes(columns, [c.domain.n_features for c in encoder.columns_.values()])


def fit_encoder(X, encoder):
    """Fit an encoder on the names and dtypes of records that may come in chunks.

    Parameters
    ----------
    X : data frame, array-like, iterable of data frames or dask DataFrame
        As for :func:`encode_codes`. Of an iterable, the dtypes of the first chunk count as public,
        as those of a frame do.
    encoder : TabularEncoder

    Returns
    -------
    X : data frame, array-like, iterable of data frames or dask DataFrame
        With all the records: it takes the place of the argument, from which an iterator has lost
        a chunk.
    encoder : TabularEncoder
        Fitted.

    Raises
    ------
    ValueError, TypeError
        As for :func:`encode_codes`.
    """
    if _is_dask(X):
        return X, encoder.fit(_one_row(X._meta.dtypes))
    if not _is_chunked(X):
        return X, encoder.fit(X)
    chunks = _frames(X)
    first = next(chunks, None)
    if first is None:
        raise ValueError(_NO_RECORDS)
    # Of the first, be it empty: which chunks have records is not public.
    encoder.fit(_one_row(first.dtypes))
    return (X if isinstance(X, list | tuple) else chain([first], chunks)), encoder


def _is_chunked(X):
    if isinstance(X, list | tuple):
        return len(X) == 0 or isinstance(X[0], pd.DataFrame)
    is_table = hasattr(X, "shape") or hasattr(X, "__array__")
    return isinstance(X, Iterable) and not is_table and not isinstance(X, str | bytes | Mapping)


def _frames(chunks):
    for chunk in chunks:
        if not isinstance(chunk, pd.DataFrame):
            raise TypeError(f"Chunks of X must be data frames, got {type(chunk).__name__}.")
        yield chunk


def _tables(X, encoder):
    """Return an iterable of tables, of which rows can be sliced."""
    if _is_chunked(X):
        return _frames(X)
    if isinstance(X, pd.DataFrame) or (isinstance(X, np.ndarray) and X.ndim == 2):
        return [X]
    return [encoder._as_frame(X)]


def _codes_of(tables, encoder):
    """Yield a list of the codes of each column for each block of records."""
    for table in tables:
        rows = table.iloc if isinstance(table, pd.DataFrame) else table
        for start in range(0, len(table), _BLOCK):
            frame = encoder._as_frame(rows[start : start + _BLOCK])
            yield [column.codes(frame[name]) for name, column in encoder.columns_.items()]


def _joined(parts, encoder):
    """Return the codes of all parts, one array a column."""
    dtypes = [np.min_scalar_type(c.domain.n_features - 1) for c in encoder.columns_.values()]
    # They grow in place, where a list of parts would be copied in the end.
    buffers = [bytearray() for _ in dtypes]
    for part in parts:
        for buffer, codes, dtype in zip(buffers, part, dtypes, strict=True):
            buffer += codes.astype(dtype, copy=False).data
    return [np.frombuffer(b, dtype=dtype) for b, dtype in zip(buffers, dtypes, strict=True)]


def _is_dask(X):
    # dask_expr was a package of its own before 2025.
    if type(X).__module__.partition(".")[0] not in ("dask", "dask_expr"):
        return False
    if not isinstance(getattr(X, "_meta", None), pd.DataFrame):
        raise TypeError(f"X must be a data frame if it is of dask, got {type(X).__name__}.")
    return True


def with_bins(encoder, bins):
    """Return a fitted encoder of the same columns and dtypes with other bins.

    Parameters
    ----------
    encoder : TabularEncoder
        Fitted.
    bins : mapping
        As of :class:`TabularEncoder`.

    Returns
    -------
    TabularEncoder
    """
    return TabularEncoder(encoder.schema, bins=bins).fit(_one_row(encoder.dtypes_))


def _one_row(dtypes):
    """Return a frame of these names and dtypes, of which an encoder wants a row."""
    return pd.DataFrame(
        {
            name: pd.array([None], dtype=dtype)
            if types.is_extension_array_dtype(dtype)
            else np.zeros(1, dtype=dtype)
            for name, dtype in dtypes.items()
        }
    )


def _dask_codes(X, encoder):
    import dask

    encode = dask.delayed(_partition_codes, pure=False)
    # Delayed, the encoder is in the graph once.
    shared = dask.delayed(encoder, pure=False, traverse=False)
    return dask.compute(*(encode(part, shared) for part in X.to_delayed()))


def _partition_codes(frame, encoder):
    return _joined(_codes_of([frame], encoder), encoder)
