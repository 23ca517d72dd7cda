"""Files of tables, as data sets of pyarrow: read as declared, never as their values suggest."""

import glob
import os
from collections.abc import Mapping
from importlib import import_module

from sklearn_dpgen.exceptions import PublicFileNotFoundError, PublicImportError, PublicValueError
from sklearn_dpgen.preprocessing._csv import CsvFiles
from sklearn_dpgen.utils._validation import call_quietly

__all__ = ["check_files", "open_files", "read_quietly", "require"]

_FORMATS = {
    ".parquet": "parquet",
    ".pq": "parquet",
    ".csv": "csv",
    ".csv.gz": "csv",
    ".csv.bz2": "csv",
    ".feather": "feather",
    ".arrow": "ipc",
    ".ipc": "ipc",
}
_ENGINES = ("pyarrow", "polars", "duckdb", "_duckdb")


def open_files(paths, columns):
    """Return a data set of files of one format.

    Parameters
    ----------
    paths : list of str or path
        Files, with wildcards or not, or a folder of files of Parquet. A file is read once, however
        often it is named: by a link, or as of a folder that wildcards name beside its files.
    columns : mapping of str to Column, list of str or None
        The declared columns, as for :class:`~sklearn_dpgen.preprocessing._csv.CsvFiles`. Of a list
        texts stay as they are.

    Returns
    -------
    pyarrow.dataset.Dataset or CsvFiles

    Raises
    ------
    ValueError
        Formats that are not known, or different ones.
    FileNotFoundError
        Files that are not there.
    ImportError
        Without pyarrow.
    """
    pyarrow = require("pyarrow.dataset")
    paths = [call_quietly("X must be the path of a table.", os.fspath, path) for path in paths]
    formats = {_format(path) for path in paths}
    if len(formats) > 1 or None in formats:
        raise PublicValueError(
            "X is a text: it must be the path of a table, or paths of one format, with an ending "
            f"of {', '.join(_FORMATS)}."
        )
    (form,) = formats
    found = [file for path in paths for match in _matches(path) for file in _files(match, form)]
    if not found:
        raise PublicFileNotFoundError("A folder must hold Parquet files, and that of X has none.")
    # Records that are read twice count twice, by whatever names and links.
    found = list({_identity(file): file for file in reversed(found)}.values())[::-1]
    if form == "csv":
        is_text = columns is not None and not isinstance(columns, Mapping)
        return CsvFiles(found, dict.fromkeys(columns) if is_text else columns)
    return read_quietly(pyarrow.dataset.dataset, found, format=form)


def check_files(files, names):
    """Refuse files that lack a column the first one has: Arrow would read nulls in its place.

    Parameters
    ----------
    files : pyarrow.dataset.FileSystemDataset
    names : list of str
    """
    for fragment in files.get_fragments():
        given = read_quietly(lambda fragment=fragment: fragment.physical_schema.names)
        missing = [name for name in names if name not in given]
        if missing:
            raise PublicValueError(
                f"Each file must have all declared columns: one lacks {missing}."
            )


def _identity(file):
    status = os.stat(file)
    return status.st_dev, status.st_ino


def _matches(path):
    matches = [path] if os.path.exists(path) else sorted(glob.glob(path, recursive=True))
    if not matches:
        raise PublicFileNotFoundError(f"X names files that are not there: {path!r}.")
    return matches


def _files(path, form):
    """Return the files of a folder, or the path of one."""
    if not os.path.isdir(path):
        return [path]
    import pyarrow.dataset

    return read_quietly(pyarrow.dataset.dataset, path, format=form).files


def read_quietly(function, *args, **options):
    """Return what a function of an engine returns; its errors, which may show values, show none.

    Raises
    ------
    ValueError
        In place of errors of Arrow, DuckDB and Polars, of files and of texts in no UTF-8. Others
        are as they are: they are of what the caller wrote.
    """
    try:
        return function(*args, **options)
    except Exception as error:
        package = type(error).__module__.partition(".")[0]
        if package not in _ENGINES and not isinstance(error, OSError | UnicodeError):
            raise
    # Outside of the handler, or the context of the error would show values.
    raise PublicValueError(
        "The table could not be read: a value is not of its type, or a file is cut off."
    )


def require(module):
    """Return pyarrow with one of its modules, or say how to install it."""
    try:
        import_module(module)
    except ImportError as error:
        raise PublicImportError(
            "Files, and tables of other libraries than pandas, need pyarrow: "
            "pip install 'sklearn-dpgen[arrow]'"
        ) from error
    return import_module("pyarrow")


def _format(path):
    if os.path.isdir(path):
        return "parquet"
    name = os.path.basename(path).lower()
    return next((form for ending, form in _FORMATS.items() if name.endswith(ending)), None)
