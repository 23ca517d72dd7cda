"""Records of any table in blocks, with the declared columns in their order."""

import operator
from collections.abc import Iterable
from functools import partial

import numpy as np
import pandas as pd

from sklearn_dpgen.engines._tables import engine_columns, is_engine_table, map_reduce
from sklearn_dpgen.exceptions import PublicTypeError, PublicValueError
from sklearn_dpgen.preprocessing._files import open_files
from sklearn_dpgen.preprocessing._sources import open_named, open_source
from sklearn_dpgen.schema._texts import near_names
from sklearn_dpgen.utils._checks import call_quietly

__all__ = [
    "NO_RECORDS",
    "ColumnsError",
    "as_matrix",
    "column_names",
    "column_of",
    "has_no_names",
    "map_blocks",
    "map_frames",
    "numbered_frames",
    "pieces",
    "read_blocks",
    "to_pandas",
]

NO_RECORDS = "Found array with 0 sample(s) while a minimum of 1 is required."
# Records per block, which fit in the cache of a processor.
_BLOCK = 1 << 16


class ColumnsError(PublicValueError):
    """Columns are missing, unknown or repeated; ``faults`` is the end of the message."""

    faults = ""


def read_blocks(source, names):
    """Yield the records of a table in blocks of at most 65536.

    Parameters
    ----------
    source : Source
    names : list of str
        The declared columns.

    Yields
    ------
    DataFrame or pyarrow.RecordBatch
        With these columns, in this order, and at least one record.

    Raises
    ------
    PublicValueError
        Columns are missing, unknown or repeated, or a value is invalid for its Arrow type.
    """
    if source.is_projected:
        check_columns(source.names, names, is_projected=True)
    for part in source.parts(names):
        if isinstance(part, np.ndarray):
            from sklearn_dpgen.utils._validation import as_frame

            for start in range(0, len(part), _BLOCK):
                yield as_frame(part[start : start + _BLOCK], names)
            continue
        if len(part) == 0:
            continue
        is_frame = isinstance(part, pd.DataFrame)
        given = list(part.columns) if is_frame else part.schema.names
        check_columns(given, names)
        if is_frame:
            part = part if given == names else part[names]
            for start in range(0, len(part), _BLOCK):
                yield part.iloc[start : start + _BLOCK]
        else:
            part = part if given == names else part.select(names)
            for start in range(0, part.num_rows, _BLOCK):
                yield part.slice(start, _BLOCK)


def check_columns(given, names, *, is_projected=False):
    """Check that the columns are the declared ones, each once, and no others."""
    missing = [name for name in names if name not in given]
    unknown = [] if is_projected else [name for name in given if name not in names]
    twice = [name for name in dict.fromkeys(given) if list(given).count(name) > 1]
    if missing and is_projected:
        # The names of a file without a header may be values of its first record.
        twice = [name for name in twice if name in names]
    faults = {"missing": missing, "unknown": unknown, "more than once": twice}
    if any(faults.values()):
        words = ", ".join(f"{fault} {found}" for fault, found in faults.items() if found)
        hint = " Select them: X[list(schema)]." if unknown and not missing else ""
        hint += near_names(missing, given)
        error = ColumnsError(f"The columns must be those of the schema, each once: {words}.{hint}")
        error.faults = words
        raise error


def to_pandas(block):
    """Return a block as a pandas data frame with the same values."""
    if isinstance(block, pd.DataFrame):
        return block
        # Floats would change large integers beside a null; Python's dates end in the year 9999.
    options = {"integer_object_nulls": True, "date_as_object": False}
    # Metadata written by pandas would turn some columns into an index.
    block = block.replace_schema_metadata()
    try:
        return block.to_pandas(**options)
    except MemoryError:
        raise
    except Exception:  # A value may raise any class.
        pass
    # Columns are tried one by one to name the first invalid one, outside of the handler, whose
    # context would show values.
    rule = "holds a value that is invalid for its Arrow type, such as a text that is not UTF-8."
    for name, column in zip(block.schema.names, block.columns, strict=True):
        call_quietly(f"Column {name!r} {rule}", partial(column.to_pandas, **options))
    raise PublicValueError(f"A column of X {rule}")


def column_of(block, name):
    """Return a column of a block as a pandas series."""
    return block[name] if isinstance(block, pd.DataFrame) else to_pandas(block.select([name]))[name]


def as_matrix(part):
    """Return a part of an engine's table as an array or a frame of numbers."""
    return to_pandas(part) if hasattr(part, "to_pandas") else part


def map_frames(function, X, columns):
    """Apply a function to all records, block by block, as :func:`map_blocks`.

    Parameters
    ----------
    function : callable
        Function of a pandas data frame.
    X, columns : as for `map_blocks`
    """
    return map_blocks(partial(_of_frame, function), X, columns)


def numbered_frames(paths, columns):
    """Yield the records of files as frames, with the place of each record in its file.

    Parameters
    ----------
    paths : list of str
        As for :func:`~sklearn_dpgen.preprocessing._files.open_files`.
    columns : mapping of str to Column or None
        The columns to read, as for :class:`~sklearn_dpgen.preprocessing._files.CsvFiles`.

    Yields
    ------
    path : str
    places : ndarray of int of shape (n,)
        The line where each record begins in a file of text, or else its row, from 1.
    frame : DataFrame of shape (n, n_columns)

    Raises
    ------
    PublicValueError
        As for :func:`read_blocks`.
    """
    names = list(columns)
    files = open_files(list(paths), columns)
    if hasattr(files, "read_numbered"):
        check_columns(files.names, names, is_projected=True)
        for path, places, table in files.read_numbered(names):
            if len(table):
                yield path, places, to_pandas(table)
        return
    for path in files.files:
        n_rows = 0
        for block in read_blocks(open_source([path], columns), names):
            yield path, np.arange(n_rows + 1, n_rows + len(block) + 1), to_pandas(block)
            n_rows += len(block)


def _of_frame(function, block):
    return function(to_pandas(block))


def map_blocks(function, X, columns, *, is_ordered=True):
    """Apply a function to all records, block by block.

    Parameters
    ----------
    function : callable
        Function of a non-empty pandas data frame or Arrow record batch with the columns, in their
        order. The workers of an engine apply it, and must be able to unpickle it.
    X : object
        Any table for :func:`~sklearn_dpgen.preprocessing._sources.open_source`, or a dask
        DataFrame; also a table of Spark or Ray if ``is_ordered`` is False.
    columns : mapping of str to Column, or list of str
        The declared columns.
    is_ordered : bool, default=True
        Whether the order of the results matters.

    Yields
    ------
    object
        The results of the function, in the order of the records unless X is of Spark or Ray.

    Raises
    ------
    PublicValueError
        Columns are missing, unknown or repeated, or an array has another number of columns.
    PublicTypeError
        X is not a table, or is another collection of dask.
    """
    names = list(columns)
    if is_engine_table(X):
        given = _check_engine_frame(X)
        if is_ordered and not hasattr(X, "to_delayed"):
            raise PublicTypeError(
                f"X must be in memory, or be read in order; a {type(X).__name__} of Spark or Ray "
                "has no order."
            )
        if given is not None:
            check_columns(given, names, is_projected=True)
        yield from map_reduce(partial(_listed, function, names), operator.add, X, names)
        return
    for block in read_blocks(open_source(X, columns), names):
        yield function(block)


def column_names(X, columns, unit=None):
    """Return the names of the declared columns in the order of a source, without reading values.

    Parameters
    ----------
    X, columns : as for `map_frames`
    unit : str or None, default=None
        A further column that must be present, declared or not.

    Returns
    -------
    list of str
        In the declared order if the source does not know its columns before it is read.

    Raises
    ------
    PublicValueError
        Columns are missing, unknown or repeated, or there are no records.
    """
    names = list(dict.fromkeys([*columns, *([] if unit is None else [unit])]))
    if is_engine_table(X):
        given, is_projected, n_rows = _check_engine_frame(X), True, None
    else:
        source = open_source(X, columns)
        given, is_projected, n_rows = source.names, source.is_projected, source.n_rows
    if n_rows == 0:
        raise PublicValueError(NO_RECORDS)
    if given is None:
        return names
    if unit is not None and unit not in columns and unit not in given:
        raise PublicValueError(f"unit must be a column of X, got {unit!r}.")
    check_columns(given, names, is_projected=is_projected)
    return [name for name in given if name in names]


def has_no_names(X):
    """Return whether a table is an array or rows, without names of columns."""
    return not is_engine_table(X) and open_named(X, []) is None


def _check_engine_frame(X):
    """Return the names of the columns of an engine's table, or None if they are not known yet."""
    names = engine_columns(X)
    if names is None and hasattr(X, "to_dask_dataframe"):
        raise PublicTypeError(f"X must be a data frame if it is of dask, got {type(X).__name__}.")
    return names


def _listed(function, names, parts):
    """Return the results of a function on the blocks of the parts of a dask partition."""
    return [
        function(block) for part in parts for block in read_blocks(open_source(part, names), names)
    ]


def pieces(X, n_rows):
    """Yield parts of at most ``n_rows`` records of a table, or of the tables of an iterable."""
    if hasattr(X, "shape"):
        if len(X.shape) == 0:
            raise PublicValueError("X must have two dimensions.")
        get = X.iloc if hasattr(X, "iloc") else X
        # A sparse matrix is passed on, and refused later.
        n = X.shape[0] if hasattr(X, "__array__") else 0
        for start in range(0, max(n, 1), n_rows):
            yield get[start : start + n_rows] if n > n_rows else X
    elif isinstance(X, list | tuple) and X and not all(hasattr(part, "shape") for part in X):
        yield from pieces(_as_array(X), n_rows)
    elif isinstance(X, Iterable) and not isinstance(X, str | bytes | dict):
        for part in X:
            yield from pieces(part if hasattr(part, "shape") else _as_array(part), n_rows)
    else:
        raise PublicTypeError(
            f"X must be a table, an iterable of tables or a dask array, got {type(X).__name__}."
        )


def _as_array(X):
    from sklearn_dpgen.utils._validation import check_array

    return check_array(X, dtype=np.float64, ensure_min_samples=0, ensure_all_finite=False)
