"""Files of tables, as data sets of pyarrow: read as declared, never as their values suggest.

A record of such a file decides nothing about another one. Types are declared, never guessed; a
file is cut after line breaks that are in no quotes; and quotes that readers take differently are
refused, because one that is never closed would take the records after it into a field.
"""

import bz2
import codecs
import csv
import glob
import gzip
import io
import os
import re
import zlib
from collections.abc import Iterator, Mapping
from importlib import import_module
from typing import Any

import numpy as np

from sklearn_dpgen.exceptions import PublicFileNotFoundError, PublicImportError, PublicValueError
from sklearn_dpgen.schema import Datetime, Identifier, Numeric
from sklearn_dpgen.schema._binned import Binned
from sklearn_dpgen.utils._validation import call_quietly

__all__ = ["CsvFiles", "check_files", "open_files", "read_quietly", "require", "text_type"]

_EXACT_INTEGERS = 2**53
# What stands for no value in a file of texts, unless it is a declared label.
_NULLS = ("", "NA", "N/A", "NaN", "nan", "null", "NULL", "None", "#N/A", "<NA>")
# Bytes that are read at a time, and of the longest record that is waited for.
_BLOCK = 1 << 22
_LONGEST = 1 << 26
_QUOTE, _COMMA, _LINE, _RETURN = b'",\n\r'
_KINDS = {"double": "numbers", "int64": "integers", "bool": "truth values"}
_DELIMITERS = {";": "semicolons", "\t": "tabs", "|": "vertical bars"}
# The longer ones first, as two begin alike.
_MARKS = {
    codecs.BOM_UTF32_LE: "UTF-32",
    codecs.BOM_UTF32_BE: "UTF-32",
    codecs.BOM_UTF16_LE: "UTF-16",
    codecs.BOM_UTF16_BE: "UTF-16",
}


class CsvFiles:
    """Files of CSV with a header, in UTF-8 and separated by commas.

    Parameters
    ----------
    paths : list of str
        Plain ones, or packed with gzip or bzip2, as the ending says.
    columns : mapping of str to Column or None, or None
        The declared columns: their texts are read as numbers or as labels. None in the place of a
        column leaves its texts as they are. None where nothing is declared yet.

    Attributes
    ----------
    names : list of str
        Of the columns of the first file, without those that share a name and are not declared.
    """

    def __init__(self, paths: list[str], columns) -> None:
        self._paths, self._columns = paths, columns
        names = self._header(paths[0])[0]
        # Spreadsheets leave columns without a name, which nobody asks for.
        asked = {*names} if columns is None else {*columns}
        self.names = [name for name in names if name in asked or names.count(name) == 1]

    def read(self, names: list[str]) -> Iterator:
        """Yield record batches of Arrow with some of the columns.

        Raises
        ------
        ValueError
            What is wrong with the form of a file, and in which line, or the column in which a text
            is no value of its type. No text of a field is shown.
        """
        for path in self._paths:
            given = self._header(path)[0]
            missing = [name for name in names if name not in given]
            if missing:
                raise PublicValueError(
                    f"Each file must have all declared columns: one lacks {missing}."
                )
        for path in self._paths:
            given, start = self._header(path)
            for line, block in _blocks(path, start):
                yield from self._table(path, given, names, line, block).to_batches()

    def _table(self, path, given, names, line, block):
        """Return whole records as a table; Arrow sees them in one block, which it cannot cut."""
        import pyarrow.csv

        # By their places, as columns that are not asked for may have one name.
        places = [str(given.index(name)) for name in names]
        declared = [self._columns.get(name) for name in names]
        held = self._columns.values()
        labels = {label for column in held for label in getattr(column, "labels", ())}
        try:
            table = pyarrow.csv.read_csv(
                # Of what it is given Arrow takes a byte order mark away, which here is a value.
                pyarrow.BufferReader(b"\n" + block),
                read_options=pyarrow.csv.ReadOptions(
                    column_names=[str(i) for i in range(len(given))], block_size=len(block) + 2
                ),
                parse_options=pyarrow.csv.ParseOptions(newlines_in_values=True),
                convert_options=pyarrow.csv.ConvertOptions(
                    include_columns=places,
                    column_types={i: text_type(c) for i, c in zip(places, declared, strict=True)},
                    null_values=[text for text in _NULLS if text not in labels],
                    strings_can_be_null=True,
                    quoted_strings_can_be_null=False,
                ),
            )
        except pyarrow.ArrowException as error:
            place = re.match(r"In CSV column #(\d+)", str(error))
        else:
            return table.rename_columns(names)
        # Outside of the handler, or the context of the error would show values.
        name = given[int(place[1])] if place else None
        kind = _KINDS.get(str(text_type(self._columns.get(name))))
        if kind is not None:
            raise PublicValueError(
                f"Column {name!r} must hold {kind}, got another text in {path!r}."
            )
        _check_widths(path, line, block, len(given))
        _decoded(path, line, block)
        raise PublicValueError(f"{path!r} is not a valid CSV file.")

    def _header(self, path):
        """Return the names of the columns of a file, and where its records begin."""
        data, more = b"", None
        with _open(path) as file:
            while more != b"" and not (end := _header_end(data)) and len(data) < _LONGEST:
                more = _read(file, path, 1 << 16)
                data += more
        start = len(codecs.BOM_UTF8) if data.startswith(codecs.BOM_UTF8) else 0
        mark = next((name for mark, name in _MARKS.items() if data.startswith(mark)), None)
        head = data[start : end or len(data)]
        if mark is None and b"\0" in head:
            mark = "UTF-16"
        if mark is not None:
            raise PublicValueError(
                f"A CSV file must be in UTF-8: {path!r} is in {mark}. {_recode(path, mark)}"
            )
        if not head.strip():
            raise PublicValueError(
                f"A CSV file must have a header: the first line of {path!r} is empty."
            )
        text = _decoded(path, 1, head)
        names = _names(text, ",")
        self._check_delimiter(path, text, names)
        _check_quotes(path, 1, head)
        return names, start + len(head)

    def _check_delimiter(self, path, text, names):
        """Refuse a header that another delimiter explains, and commas do not."""
        declared = None if self._columns is None else {*self._columns}
        lacks = declared is None or declared - {*names}
        for delimiter, word in _DELIMITERS.items():
            other = _names(text, delimiter)
            if not lacks or len(other) == 1:
                continue
            if len(names) == 1 or (declared is not None and not declared - {*other}):
                raise PublicValueError(
                    f"A CSV file must separate fields by commas: those of {path!r} have {word}. "
                    f"Store it with commas, or, in Python, give what "
                    f"pandas.read_csv({path!r}, sep={delimiter!r}) returns."
                )


def _open(path):
    """Open a file to be read, unpacked as its ending says."""
    openers: dict[str, Any] = {".gz": gzip.open, ".bz2": bz2.open}
    return openers.get(os.path.splitext(path)[1].lower(), open)(path, "rb")


def _read(file, path, n):
    """Return the next bytes of a file; what is cut off or damaged is a ValueError."""
    try:
        return file.read(n)
    except EOFError:
        fault = "is cut off: its packed data end early"
    except (OSError, zlib.error) as error:
        if getattr(error, "errno", None):
            raise
        fault = "cannot be unpacked: it is damaged, or packed in another way than its name says"
    raise PublicValueError(f"A file must be complete: {path!r} {fault}.")


def _blocks(path, start):
    """Yield the records of a file in blocks of whole ones, each with the line where it begins."""
    with _open(path) as file:
        head = _read(file, path, start)
        line, rest, is_more = 1 + _n_lines(head), b"", True
        while is_more:
            # More at a time where a record is long, which is looked at anew each time.
            more = _read(file, path, max(_BLOCK, len(rest)))
            is_more, data = bool(more), rest + more
            end = _records_end(data) if is_more else len(data)
            block, rest = data[:end], data[end:]
            _check_quotes(path, line, block)
            if len(rest) > _LONGEST:
                _refuse_quotes(path, line + _n_lines(block))
            if block.strip(b"\r\n"):
                yield line, block
            line += _n_lines(block)


def _n_lines(data):
    """Count the line breaks: those of Unix, Windows and old Macs."""
    alone = data.count(b"\r") - data.count(b"\r\n") if b"\r" in data else 0
    return data.count(b"\n") + alone


def _line_ends(data, is_within=False):
    """Return where line breaks are that end a record, being in no quotes.

    ``is_within`` says that the data begin in quotes.
    """
    array = np.frombuffer(data, np.uint8)
    is_end = array == _LINE
    # Old Macs have a carriage return alone; of a last one it is not known yet.
    is_end[:-1] |= (array[:-1] == _RETURN) & (array[1:] != _LINE)
    return _outside(array, np.flatnonzero(is_end), is_within)


def _outside(array, places, is_within=False):
    """Return which places of a text are in no quotes."""
    return places[np.searchsorted(np.flatnonzero(array == _QUOTE), places) % 2 == is_within]


def _records_end(data):
    """Return where the last whole record ends."""
    # Mostly it is near the end, after an even or an odd number of quotes.
    start = max(len(data) - (1 << 16), 0)
    is_within = data.count(b'"', 0, start) % 2 == 1
    ends = start + _line_ends(data[start:], is_within)
    ends = ends if len(ends) else _line_ends(data)
    return int(ends[-1]) + 1 if len(ends) else 0


def _header_end(data):
    """Return where the first record ends that is not an empty line, 0 if it does not yet."""
    ends = _line_ends(data) + 1
    return next((int(end) for end in ends if data[:end].strip(b"\r\n\xef\xbb\xbf")), 0)


def _names(text, delimiter):
    """Return the fields of the first record that is not an empty line."""
    try:
        return next(csv.reader(io.StringIO(text.lstrip("\r\n"), newline=""), delimiter=delimiter))
    except csv.Error:  # as of one field that never ends
        return [text]


def _check_quotes(path, line, block):
    """Refuse quotes that are not around a whole field, or not written twice within one.

    Every second quote opens a field or is the second of a pair, and those between close one or are
    the first of a pair.
    """
    # With an end on both sides, as a file has.
    array = np.frombuffer(b"\n%b\n" % block, np.uint8)
    quotes = np.flatnonzero(array == _QUOTE)
    is_side = np.isin(np.arange(256), [_QUOTE, _COMMA, _LINE, _RETURN])
    opening, closing = quotes[::2], quotes[1::2]
    bad = [*opening[~is_side[array[opening - 1]]], *closing[~is_side[array[closing + 1]]]]
    bad += [quotes[-1]] if len(quotes) % 2 else []
    if bad:
        # The field began where a quote opened it that is not the second of a pair.
        opening = opening[(opening <= min(bad)) & ~np.isin(opening - 1, closing)]
        _refuse_quotes(path, line + _n_lines(block[: opening[-1] - 1]))


def _refuse_quotes(path, line):
    raise PublicValueError(
        "A CSV file must quote a field that holds a quote, with that quote written twice: a "
        f"field in line {line} of {path!r} has not, or its quote is never closed."
    )


def _check_widths(path, line, block, n_fields):
    """Refuse a record of another number of fields than the header."""
    array = np.frombuffer(block, np.uint8)
    marks = _outside(array, np.flatnonzero(np.isin(array, [_COMMA, _LINE, _RETURN])))
    start, n = 0, 1
    for mark in [*marks, len(block)]:
        if mark < len(block) and array[mark] == _COMMA:
            n += 1
            continue
        if block[start:mark].strip(b"\r\n") and n != n_fields:
            raise PublicValueError(
                "A CSV file must have as many fields in each record as in the header: the record "
                f"in line {line + _n_lines(block[:start])} of {path!r} has {n}, and the header "
                f"{n_fields}."
            )
        start, n = mark + 1, 1


def _decoded(path, line, data):
    """Return bytes in UTF-8 as text."""
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        line += _n_lines(data[: error.start])
    raise PublicValueError(
        f"A CSV file must be in UTF-8: line {line} of {path!r} is not, and may be in Latin-1 or "
        f"Windows-1252. {_recode(path, 'Latin-1')}"
    )


def _recode(path, encoding):
    return (
        "Store it in UTF-8, or, in Python, give what "
        f"pandas.read_csv({path!r}, encoding={encoding.lower()!r}) returns."
    )


def text_type(column):
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
        The declared columns, as for :class:`CsvFiles`. Of a list
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
