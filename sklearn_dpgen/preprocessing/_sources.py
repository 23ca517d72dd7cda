"""Tables of any kind as parts that are read one after another."""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import narwhals.stable.v2 as nw
import numpy as np
import pandas as pd

from sklearn_dpgen.exceptions import PublicImportError, PublicTypeError, PublicValueError
from sklearn_dpgen.preprocessing._files import (
    check_files,
    open_files,
    read_quietly,
    require,
)
from sklearn_dpgen.schema._csv import is_path

__all__ = ["Source", "is_paths", "open_named", "open_source"]

# Records per batch of an engine, small compared with the result.
_BATCH = 1 << 17
# Older versions lose the last batches of a query that fails, and print its values.
_POLARS = "1.37.1"


@dataclass(frozen=True, eq=False)
class Source:
    """A table that is read in parts.

    Parameters
    ----------
    read : callable
        Function from names of columns to an iterator of parts: pandas data frames, Arrow record
        batches or tables, or arrays of shape (n, n_columns), in the sizes of the source.
    names : list of str or None, default=None
        The columns, in their order, if they are known before a record is read.
    has_names : bool, default=True
        Whether columns have names; those of an array have positions.
    is_once : bool, default=False
        Whether the source can be read only once.
    is_projected : bool, default=False
        Whether only the requested columns are read.
    n_rows : int or None, default=None
        Number of records, if it is known before one is read.
    count : callable or None, default=None
        Returns the number of records, if that takes a query.
    """

    read: Callable[[list[str]], Iterator[Any]]
    names: list[str] | None = None
    has_names: bool = True
    is_once: bool = False
    is_projected: bool = False
    n_rows: int | None = None
    count: Callable[[], int] | None = None

    def parts(self, names: list[str]) -> Iterator[Any]:
        """Yield the parts of `read`, and compare the number of records with the expected one.

        Raises
        ------
        PublicValueError
            The numbers differ, as an engine may lose a part of a query that fails.
        """
        n_rows = 0
        for part in self.read(names):
            n_rows += len(part)
            yield part
        promised = self.n_rows if self.count is None else self.count()
        if promised is not None and n_rows != promised:
            raise PublicValueError(
                "X must give as many records as it states, and gave another number: its engine "
                "failed, or it was changed. Nothing of it is released."
            )


def open_source(X, columns):
    """Open a table of any kind, without reading a record.

    Parameters
    ----------
    X : object
        A pandas or Polars data frame, eager or lazy; an object with ``__arrow_c_stream__``, such as
        tables and readers of pyarrow and relations of DuckDB and ibis; a data set of pyarrow; a
        path of Parquet, CSV, TSV, JSON lines, Excel or Arrow files, possibly with wildcards, or a
        list of paths; the URL of a table of a database; an iterable of tables; or an array-like of
        shape (n, n_columns).
    columns : mapping of str to Column, or list of str
        The declared columns, by which texts of a file are read.

    Returns
    -------
    Source

    Raises
    ------
    PublicTypeError
        X is not a table of these kinds.
    PublicValueError
        There are no files, their formats are unknown or differ, or an array has another number of
        columns.
    """
    source = open_named(X, columns)
    if source is None:
        X = _array(X, len(columns))
        source = Source(lambda names: iter([X]), has_names=False, n_rows=len(X))
    return source


def open_named(X, columns):
    """Open a table with named columns; return None for rows, and for other objects.

    Parameters
    ----------
    X, columns : as for :func:`open_source`

    Returns
    -------
    Source or None
    """
    X = nw.to_native(X, pass_through=True)
    if isinstance(X, pd.DataFrame):
        return Source(lambda names: iter([X]), list(X.columns), n_rows=len(X))
    if is_paths(X):
        files = open_files([X] if is_path(X) else X, columns)
        if hasattr(files, "names"):
            return Source(files.read, files.names, is_projected=True)
        return _dataset(files, check=partial(check_files, files))
    package = type(X).__module__.partition(".")[0]
    if package == "pyarrow" and hasattr(X, "scanner") and hasattr(X, "schema"):
        return _dataset(X)
    if package == "polars" and hasattr(X, "collect"):
        return _lazy_frame(X)
    if package == "polars" and hasattr(X, "iter_slices"):
        return Source(lambda names: _stream(X), X.columns, n_rows=len(X))
    if package in ("duckdb", "_duckdb") and hasattr(X, "to_arrow_reader"):
        return _relation(X)
    if hasattr(X, "__arrow_c_stream__") and not isinstance(X, pd.Series):
        return Source(
            lambda names: _stream(X),
            _names(X),
            is_once=hasattr(X, "read_next_batch") or _is_iterator(X),
            n_rows=getattr(X, "num_rows", None),
        )
    if _is_chunked(X):
        held = X if isinstance(X, list | tuple) else []
        sources = [source for source in (_chunk(part, columns) for part in held) if source]
        return Source(
            lambda names: _chunks(X, columns, names),
            is_once=_is_iterator(X) or any(source.is_once for source in sources),
        )
    return None


def _dataset(X, check=lambda names: None):
    options = {"batch_size": _BATCH, "batch_readahead": 4, "fragment_readahead": 1}
    # The footer of Parquet files has the number of rows.
    is_told = getattr(getattr(X, "format", None), "default_extname", None) == "parquet"
    if is_told:
        import pyarrow.dataset

        # Otherwise the columns of a whole row group are held at once.
        options["fragment_scan_options"] = pyarrow.dataset.ParquetFragmentScanOptions(
            pre_buffer=False
        )

    def read(names):
        check(names)
        return _quiet(lambda: X.scanner(columns=names, **options).to_batches())

    return Source(
        read,
        X.schema.names,
        is_projected=True,
        n_rows=read_quietly(X.count_rows) if is_told else None,
    )


def _lazy_frame(X):
    import polars

    if _numbers_of(polars.__version__) < _numbers_of(_POLARS):
        raise PublicImportError(
            f"Lazy frames need Polars {_POLARS} or newer, got {polars.__version__}, which returns "
            "a part of a query that fails as if it were all: "
            "pip install -U 'sklearn-dpgen[polars]'"
        )
    options = {"chunk_size": _BATCH, "maintain_order": True, "lazy": True}

    def read(names):
        for part in _quiet(lambda: X.select(polars.col(names)).collect_batches(**options)):
            yield from _stream(part)

    def count():
        rows = X.select(polars.len())
        return read_quietly(lambda: rows.collect(engine="streaming").item())

    return Source(read, X.collect_schema().names(), is_projected=True, count=count)


def _numbers_of(version):
    return [int(number) for number in re.findall(r"\d+", version)[:3]]


def _relation(X):
    import duckdb

    def read(names):
        columns = map(duckdb.ColumnExpression, names)
        return _quiet(lambda: X.select(*columns).to_arrow_reader(_BATCH))

    return Source(read, X.columns, is_projected=True)


def _stream(X):
    pyarrow = require("pyarrow")

    # A reader exported as a stream would hide an exception that interrupts it.
    is_reader = isinstance(X, pyarrow.RecordBatchReader)
    return _quiet(lambda: X if is_reader else pyarrow.RecordBatchReader.from_stream(X))


def _quiet(start):
    """Yield the parts of an engine; its errors show no value."""
    parts = read_quietly(lambda: iter(start()))
    while (part := read_quietly(next, parts, None)) is not None:
        yield part


def _names(X):
    """Return the names of the columns of a stream that has them without being read."""
    names: Any = getattr(getattr(X, "schema", None), "names", None)
    names = getattr(X, "columns", None) if names is None else names
    is_told = isinstance(names, list | tuple) and all(isinstance(name, str) for name in names)
    return list(names) if is_told else None


def _chunks(X, columns, names):
    for chunk in X:
        source = _chunk(chunk, columns)
        if source is None:
            raise PublicTypeError(f"Chunks of X must be data frames, got {type(chunk).__name__}.")
        yield from source.parts(names)


def _chunk(X, columns):
    """Open a chunk of a table; return None if it is not one."""
    return None if isinstance(X, list | tuple) or is_path(X) else open_named(X, columns)


def is_paths(X):
    """Return whether a source is a path, or a list of paths."""
    return is_path(X) or (isinstance(X, list | tuple) and len(X) > 0 and all(map(is_path, X)))


def _is_chunked(X):
    if isinstance(X, list | tuple):
        # Only the type is checked, as an element of a list may be a record.
        kind = type(X[0]) if len(X) else pd.DataFrame
        return issubclass(kind, pd.DataFrame) or hasattr(kind, "__arrow_c_stream__")
    is_table = hasattr(X, "shape") or hasattr(X, "__array__")
    return isinstance(X, Iterable) and not is_table and not isinstance(X, bytes | Mapping)


def _is_iterator(X):
    return isinstance(X, Iterator) or (hasattr(X, "__next__") and hasattr(X, "__iter__"))


def _array(X, n_columns):
    if not (isinstance(X, list | tuple) or hasattr(X, "shape") or hasattr(X, "__array__")):
        raise PublicTypeError(f"X must be a table, or a source of one, got {type(X).__name__}.")
    # It imports scikit-learn, which tables in files do without.
    from sklearn_dpgen.utils._validation import check_array

    dtype = None if hasattr(X, "dtype") else object
    X = check_array(X, dtype=dtype, ensure_all_finite=False, estimator="TabularEncoder")
    if X.shape[1] != n_columns:
        raise PublicValueError(
            f"X has {X.shape[1]} features, but TabularEncoder is expecting {n_columns} features "
            "as input, the columns of the schema."
        )
    return np.asarray(X)
