"""Files of tables, as data sets of pyarrow: read as declared, never as their values suggest."""

import glob
import os
import re
from collections.abc import Mapping
from importlib import import_module

from sklearn_dpgen.schema import Datetime, Identifier, Numeric
from sklearn_dpgen.schema._binned import Binned

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
_EXACT_INTEGERS = 2**53
_ENGINES = ("pyarrow", "polars", "duckdb", "_duckdb")
# What stands for no value in a file of texts, unless it is a declared label.
_NULLS = ("", "NA", "N/A", "NaN", "nan", "null", "NULL", "None", "#N/A", "<NA>")


def open_files(paths, columns):
    """Return a data set of pyarrow of files of one format.

    Parameters
    ----------
    paths : list of str or path
        Files, with wildcards or not, or a folder of files of Parquet. A file is read once, however
        often it is named: by a link, or as of a folder that wildcards name beside its files.
    columns : mapping of str to Column, or list of str
        The declared columns: of them texts of a file of CSV are read as numbers or as labels. None
        in the place of a column leaves its texts as they are.

    Returns
    -------
    pyarrow.dataset.Dataset

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
    paths = [os.fspath(path) for path in paths]
    formats = {_format(path) for path in paths}
    if len(formats) > 1 or None in formats:
        raise ValueError(
            "X is a text: it must be the path of a table, or paths of one format, with an ending "
            f"of {', '.join(_FORMATS)}."
        )
    (form,) = formats
    if form == "csv":
        form = _csv(columns if isinstance(columns, Mapping) else {})
    found = [file for path in paths for match in _matches(path) for file in _files(match, form)]
    if not found:
        raise FileNotFoundError("X names folders without files of Parquet.")
    # Records that are read twice count twice, by whatever names and links.
    found = list({_identity(file): file for file in reversed(found)}.values())[::-1]
    # Of texts, the first are read.
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
            raise ValueError(f"The columns must be in each file: one of X lacks {missing}.")


def _identity(file):
    status = os.stat(file)
    return status.st_dev, status.st_ino


def _matches(path):
    matches = [path] if os.path.exists(path) else sorted(glob.glob(path, recursive=True))
    if not matches:
        raise FileNotFoundError(f"X names files that are not there: {path!r}.")
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
        column = _column_of(str(error))
    # Outside of the handler, or the context of the error would show values.
    raise ValueError(
        f"X could not be read{column}: it holds what is no value of its type, or is cut off."
    )


def _column_of(message):
    """Return which column of a file an error of Arrow is about, where it tells."""
    place = re.search(r"CSV column #(\d+)", message)
    return f" in column {place[1]} of a file, from 0" if place else ""


def require(module):
    """Return pyarrow with one of its modules, or say how to install it."""
    try:
        import_module(module)
    except ImportError as error:
        raise ImportError(
            "Files, and tables of other libraries than pandas, need pyarrow: "
            "pip install 'sklearn-dpgen[arrow]'"
        ) from error
    return import_module("pyarrow")


def _format(path):
    if os.path.isdir(path):
        return "parquet"
    name = os.path.basename(path).lower()
    return next((form for ending, form in _FORMATS.items() if name.endswith(ending)), None)


def _csv(columns):
    import pyarrow.csv
    import pyarrow.dataset

    labels = {label for column in columns.values() for label in getattr(column, "labels", ())}
    options = pyarrow.csv.ConvertOptions(
        column_types={name: _type(column) for name, column in columns.items()},
        null_values=[text for text in _NULLS if text not in labels],
        strings_can_be_null=True,
        quoted_strings_can_be_null=False,
    )
    return pyarrow.dataset.CsvFileFormat(convert_options=options)


def _type(column):
    """Return the type that texts are read as: of dates they stay texts, which are read in turn."""
    import pyarrow

    column = column.column if isinstance(column, Binned) else column
    if isinstance(column, Numeric):
        return pyarrow.float64()
    if column is None or isinstance(column, (Datetime, Identifier)):
        return pyarrow.string()
    kinds = {type(label) for label in column.labels}
    if kinds == {bool}:
        return pyarrow.bool_()
    if kinds <= {int, float}:
        if all(abs(label) <= _EXACT_INTEGERS for label in column.labels):
            return pyarrow.float64()
        if kinds == {int}:
            return pyarrow.int64()
    return pyarrow.string()
