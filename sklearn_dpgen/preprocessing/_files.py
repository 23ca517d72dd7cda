"""Files of tables, as data sets of pyarrow, with declared types that are never inferred.

No record influences how another one is read. Types are declared; a file is split only at line
breaks outside of quotes; and quotes that readers interpret differently are refused, as an unclosed
one would merge the following records into a field.
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
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from importlib import import_module
from typing import Any

import numpy as np

from sklearn_dpgen.exceptions import PublicFileNotFoundError, PublicImportError, PublicValueError
from sklearn_dpgen.preprocessing._databases import DatabaseTable
from sklearn_dpgen.schema import Datetime, Numeric
from sklearn_dpgen.schema._binned import Binned
from sklearn_dpgen.schema._column import MadeUpColumn
from sklearn_dpgen.schema._csv import DELIMITERS, CsvFile, CsvFormat
from sklearn_dpgen.schema._texts import near_names
from sklearn_dpgen.utils._checks import call_quietly
from sklearn_dpgen.utils._urls import is_url

__all__ = [
    "CsvFiles",
    "check_files",
    "open_binary",
    "open_files",
    "read_binary",
    "read_quietly",
    "require",
    "text_type",
]

_EXACT_INTEGERS = 2**53
# Texts that stand for null in CSV files, unless they are declared labels.
_NULLS = ("", "NA", "N/A", "NaN", "nan", "null", "NULL", "None", "#N/A", "<NA>")
# Bytes per read.
_BLOCK = 1 << 22
_LONGEST = 1 << 26
_QUOTE, _LINE, _RETURN = b'"\n\r'
_KINDS = {"double": "numbers", "int64": "integers", "bool": "truth values"}
# Longer marks first, as one is a prefix of another.
_MARKS = {
    codecs.BOM_UTF32_LE: "UTF-32",
    codecs.BOM_UTF32_BE: "UTF-32",
    codecs.BOM_UTF16_LE: "UTF-16",
    codecs.BOM_UTF16_BE: "UTF-16",
}


class CsvFiles:
    """CSV files with a header.

    Parameters
    ----------
    paths : list of str
        Plain files, or compressed with gzip or bzip2, by their extension.
    columns : mapping of str to Column or None, or None
        The declared columns, whose texts are read as numbers or labels. None instead of a column
        keeps its texts. None if nothing is declared yet.
    form : CsvFormat or None, default=None
        By default fields are separated by commas, and characters are in UTF-8.

    Attributes
    ----------
    files : list of str
        The paths.
    names : list of str
        Columns of the first file, without those that share a name and are not declared.
    place : str
        What the places of `read_numbered` are numbers of.
    """

    place = "line"

    def __init__(self, paths: list[str], columns, form: CsvFormat | None = None) -> None:
        self.files, self._columns = paths, columns
        self._form = CsvFormat() if form is None else form
        names = self._header(paths[0])[0]
        # Spreadsheets may leave unnamed columns, which are not requested.
        asked = {*names} if columns is None else {*columns}
        self.names = [name for name in names if name in asked or names.count(name) == 1]

    def read(self, names: list[str]) -> Iterator:
        """Yield record batches of Arrow with the given columns.

        Raises
        ------
        PublicValueError
            A file is malformed, and in which line, or a text is invalid for the type of a column.
            No text of a field is shown.
        """
        for path in self.files:
            given = self._header(path)[0]
            missing = [name for name in names if name not in given]
            if missing:
                raise PublicValueError(
                    f"Each file must have all declared columns: one lacks {missing}."
                    f"{near_names(missing, given)}"
                )
        for path in self.files:
            for _, _, table in self._tables(path, names):
                yield from table.to_batches()

    def read_numbered(self, names: list[str]) -> Iterator[tuple[str, np.ndarray, Any]]:
        """Yield the records of each file as tables of Arrow, with the lines where they begin.

        Parameters
        ----------
        names : list of str

        Yields
        ------
        path : str
        lines : ndarray of int
            The line of each record in the file, from 1; fields in quotes may have several lines.
        table : pyarrow.Table
        """
        for path in self.files:
            for line, block, table in self._tables(path, names):
                yield path, line + _record_lines(block), table

    def _tables(self, path, names):
        given, start = self._header(path)
        for line, block in _blocks(path, start, self._form):
            yield line, block, self._table(path, given, names, line, block)

    def _table(self, path, given, names, line, block):
        """Return whole records as a table; Arrow reads them as one block, which it cannot split."""
        import pyarrow.csv

        # Arrow has the same nulls for all columns that it reads together.
        alike: dict[tuple, list] = {}
        for name in names:
            alike.setdefault(_nulls_of(self._columns.get(name)), []).append(name)
        tables = []
        try:
            for (nulls, can_be_quoted), own in alike.items():
                # By position, as columns that are not requested may share a name.
                places = [str(given.index(name)) for name in own]
                kinds = [text_type(self._columns.get(name)) for name in own]
                table = pyarrow.csv.read_csv(
                    # Arrow would remove a leading byte order mark, which here is a value.
                    pyarrow.BufferReader(b"\n" + block),
                    read_options=pyarrow.csv.ReadOptions(
                        column_names=[str(i) for i in range(len(given))], block_size=len(block) + 2
                    ),
                    parse_options=pyarrow.csv.ParseOptions(
                        delimiter=self._form.delimiter, newlines_in_values=True
                    ),
                    convert_options=pyarrow.csv.ConvertOptions(
                        include_columns=places,
                        column_types=dict(zip(places, kinds, strict=True)),
                        null_values=[*nulls],
                        strings_can_be_null=True,
                        quoted_strings_can_be_null=can_be_quoted,
                    ),
                )
                tables.append(table.rename_columns(own))
        except pyarrow.ArrowException as error:
            place = re.match(r"In CSV column #(\d+)", str(error))
        else:
            found = {name: table[name] for table in tables for name in table.column_names}
            return pyarrow.table({name: found[name] for name in names})
        # Outside of the handler, or the context of the error would show values.
        name = given[int(place[1])] if place else None
        kind = _KINDS.get(str(text_type(self._columns.get(name))))
        if kind is not None:
            raise PublicValueError(
                f"Column {name!r} must hold {kind}, got another text in {path!r}."
            )
        _check_widths(path, line, block, len(given), self._form.delimiter)
        _decoded(path, line, block)
        raise PublicValueError(f"{path!r} is not a valid CSV file.")

    def _header(self, path):
        """Return the names of the columns of a file, and the start of its records."""
        data, more = b"", None
        with _open(path, self._form) as file:
            while more != b"" and not (end := _header_end(data)) and len(data) < _LONGEST:
                more = read_binary(file, path, 1 << 16)
                data += more
        start = len(codecs.BOM_UTF8) if data.startswith(codecs.BOM_UTF8) else 0
        mark = next((name for mark, name in _MARKS.items() if data.startswith(mark)), None)
        head = data[start : end or len(data)]
        if mark is None and b"\0" in head:
            mark = "UTF-16"
        if mark is not None:
            raise PublicValueError(
                f"A CSV file must be in UTF-8: {path!r} is in {mark}. {_recode(mark)}"
            )
        if not head.strip():
            raise PublicValueError(
                f"A CSV file must have a header: the first line of {path!r} is empty."
            )
        text = _decoded(path, 1, head)
        names = _names(text, self._form.delimiter)
        self._check_delimiter(path, text, names)
        _check_quotes(path, 1, head, self._form.delimiter)
        return names, start + len(head)

    def _check_delimiter(self, path, text, names):
        """Refuse a header that has another delimiter, and lacks that of the format."""
        declared = None if self._columns is None else {*self._columns}
        lacks = declared is None or declared - {*names}
        for delimiter, word in DELIMITERS.items():
            other = _names(text, delimiter)
            if not lacks or len(other) == 1 or delimiter == self._form.delimiter:
                continue
            if len(names) == 1 or (declared is not None and not declared - {*other}):
                raise PublicValueError(
                    f"A CSV file must separate fields by {DELIMITERS[self._form.delimiter]}: those "
                    f"of {path!r} have {word}. Declare delimiter: {_quoted(delimiter)} in the "
                    f"schema, with the columns under 'columns', or, in Python, give "
                    f"CsvFile({path!r}, delimiter={delimiter!r})."
                )


def _quoted(delimiter):
    return repr(delimiter).replace("'", '"')


def open_binary(path):
    """Open a file for reading, decompressed by its extension."""
    openers: dict[str, Any] = {".gz": gzip.open, ".bz2": bz2.open}
    return openers.get(os.path.splitext(path)[1].lower(), open)(path, "rb")


def _open(path, form):
    """Open a file for reading, decompressed by its extension, in UTF-8."""
    file = open_binary(path)
    return file if form.is_utf8 else _Recoded(file, path, form.encoding)


class _Recoded:
    """A file whose bytes are given in UTF-8."""

    def __init__(self, file, path, encoding):
        self._file, self._path, self._encoding = file, path, encoding
        self._decoder = codecs.getincrementaldecoder(encoding)()
        self._line = 1

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._file.close()

    def read(self, n):
        """Return the next bytes, about n of the file; none at its end."""
        while True:
            data = self._file.read(n)
            try:
                text = self._decoder.decode(data, final=not data)
            except UnicodeDecodeError as error:
                start = error.start
            else:
                self._line += text.count("\n")
                # A part of a character gives no text yet.
                if text or not data:
                    return text.encode()
                continue
            # Outside of the handler, or the context of the error would show values.
            line = self._line + data[:start].count(b"\n")
            raise PublicValueError(
                f"A CSV file must be in the declared encoding {self._encoding!r}: line {line} of "
                f"{self._path!r} is not."
            )


def read_binary(file, path, n):
    """Return the next bytes of a file; raise PublicValueError if it is truncated or damaged."""
    try:
        return file.read(n)
    except EOFError:
        fault = "is truncated: its compressed data end early"
    except (OSError, zlib.error) as error:
        if getattr(error, "errno", None):
            raise
        fault = "cannot be decompressed: it is damaged, or its extension does not fit its content"
    raise PublicValueError(f"A file must be complete: {path!r} {fault}.")


def _blocks(path, start, form):
    """Yield blocks of whole records, each with the number of its first line."""
    with _open(path, form) as file:
        # Recoded bytes are not as many as are asked for.
        head = read_binary(file, path, start)
        while len(head) < start and (more := read_binary(file, path, start - len(head))):
            head += more
        head, rest = head[:start], head[start:]
        line, is_more = 1 + _n_lines(head), True
        while is_more:
            # Larger reads for a long record, as it is searched anew each time.
            more = read_binary(file, path, max(_BLOCK, len(rest)))
            is_more, data = bool(more), rest + more
            end = _records_end(data) if is_more else len(data)
            block, rest = data[:end], data[end:]
            _check_quotes(path, line, block, form.delimiter)
            if len(rest) > _LONGEST:
                _refuse_quotes(path, line + _n_lines(block))
            if block.strip(b"\r\n"):
                yield line, block
            line += _n_lines(block)


def _n_lines(data):
    """Count the line breaks of Unix, Windows and old Macs."""
    alone = data.count(b"\r") - data.count(b"\r\n") if b"\r" in data else 0
    return data.count(b"\n") + alone


def _line_ends(data, is_within=False):
    """Return the positions of line breaks that end a record, outside of quotes.

    ``is_within`` states that the data begin in quotes.
    """
    array = np.frombuffer(data, np.uint8)
    is_end = array == _LINE
    # Old Macs have a lone carriage return; whether a last one is lone is not known yet.
    is_end[:-1] |= (array[:-1] == _RETURN) & (array[1:] != _LINE)
    return _outside(array, np.flatnonzero(is_end), is_within)


def _record_lines(data):
    """Return the number of line breaks before each record that is not an empty line."""
    array = np.frombuffer(data, np.uint8)
    ends = _line_ends(data)
    starts = np.concatenate([[0], ends + 1])
    stops = np.concatenate([ends, [len(array)]])
    # A record ends with "\r\n", whose first byte is none of the record.
    stops = stops - ((stops > starts) & (array[np.maximum(stops, 1) - 1] == _RETURN))
    is_break = array == _LINE
    is_break[:-1] |= (array[:-1] == _RETURN) & (array[1:] != _LINE)
    return np.searchsorted(np.flatnonzero(is_break), starts[stops > starts])


def _outside(array, places, is_within=False):
    """Return a mask of the positions of a text that are outside of quotes."""
    return places[np.searchsorted(np.flatnonzero(array == _QUOTE), places) % 2 == is_within]


def _records_end(data):
    """Return the end of the last whole record."""
    # It is usually near the end, after an even or an odd number of quotes.
    start = max(len(data) - (1 << 16), 0)
    is_within = data.count(b'"', 0, start) % 2 == 1
    ends = start + _line_ends(data[start:], is_within)
    ends = ends if len(ends) else _line_ends(data)
    return int(ends[-1]) + 1 if len(ends) else 0


def _header_end(data):
    """Return the end of the first record that is not an empty line; 0 if it is not complete."""
    ends = _line_ends(data) + 1
    return next((int(end) for end in ends if data[:end].strip(b"\r\n\xef\xbb\xbf")), 0)


def _names(text, delimiter):
    """Return the fields of the first record that is not an empty line."""
    try:
        return next(csv.reader(io.StringIO(text.lstrip("\r\n"), newline=""), delimiter=delimiter))
    except csv.Error:  # For example, a field that does not end.
        return [text]


def _check_quotes(path, line, block, delimiter):
    """Refuse quotes that do not enclose a whole field, and single quotes within one.

    Every second quote opens a field or is the second of a pair, and the others close a field or are
    the first of a pair.
    """
    # With a line break on both sides, as in a file.
    array = np.frombuffer(b"\n%b\n" % block, np.uint8)
    quotes = np.flatnonzero(array == _QUOTE)
    is_side = np.isin(np.arange(256), [_QUOTE, ord(delimiter), _LINE, _RETURN])
    opening, closing = quotes[::2], quotes[1::2]
    bad = [*opening[~is_side[array[opening - 1]]], *closing[~is_side[array[closing + 1]]]]
    bad += [quotes[-1]] if len(quotes) % 2 else []
    if bad:
        # The last quote before that opens a field, and is not the second of a pair.
        opening = opening[(opening <= min(bad)) & ~np.isin(opening - 1, closing)]
        _refuse_quotes(path, line + _n_lines(block[: opening[-1] - 1]))


def _refuse_quotes(path, line):
    raise PublicValueError(
        "A CSV file must quote a field that holds a quote, with that quote written twice: a field "
        f"in line {line} of {path!r} is not so, or its quote is never closed."
    )


def _check_widths(path, line, block, n_fields, delimiter):
    """Refuse a record whose number of fields differs from the header's."""
    array, comma = np.frombuffer(block, np.uint8), ord(delimiter)
    marks = _outside(array, np.flatnonzero(np.isin(array, [comma, _LINE, _RETURN])))
    start, n = 0, 1
    for mark in [*marks, len(block)]:
        if mark < len(block) and array[mark] == comma:
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
    """Return UTF-8 bytes as text."""
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        line += _n_lines(data[: error.start])
    raise PublicValueError(
        f"A CSV file must be in UTF-8: line {line} of {path!r} is not, and may be in Latin-1 or "
        f"Windows-1252. {_recode('cp1252')}"
    )


def _recode(encoding):
    return (
        f"Declare encoding: {encoding.lower()} in the schema, with the columns under 'columns', "
        f"or, in Python, give CsvFile(..., encoding={encoding.lower()!r})."
    )


def _nulls_of(column):
    """Return the texts that are null in a column, and whether they are so in quotes too.

    A declared label is none. Codes of missing values are nulls whatever the type of a column, so
    among texts they are left to it, and among numbers and truth values they are texts of a file.
    """
    labels = {*getattr(column, "labels", ())} if getattr(column, "is_known", True) else {}
    nulls = tuple(text for text in _NULLS if text not in labels)
    if str(text_type(column)) != "string":
        return (*nulls, *map(str, getattr(column, "missing", ()))), True
    # In quotes a label may be empty, and a date or a number cannot.
    column = column.column if isinstance(column, Binned) else column
    return nulls, isinstance(column, Numeric | Datetime)


def text_type(column):
    """Return the Arrow type in which the texts of a column are read.

    Dates, and numbers that are declared to be written in another way, are parsed later.
    """
    import pyarrow

    column = column.column if isinstance(column, Binned) else column
    if isinstance(column, Numeric):
        return pyarrow.string() if column.has_words else pyarrow.float64()
    # What is made up, or computed by a rule, is not read.
    if column is None or isinstance(column, (Datetime, MadeUpColumn)):
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
    ".tsv": "tsv",
    ".tsv.gz": "tsv",
    ".tsv.bz2": "tsv",
    ".jsonl": "jsonl",
    ".jsonl.gz": "jsonl",
    ".jsonl.bz2": "jsonl",
    ".ndjson": "jsonl",
    ".xlsx": "xlsx",
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
        Files, possibly with wildcards, or a folder of Parquet files. A file is read once, even if
        several paths, links or wildcards name it. A :class:`CsvFile` states its format. Or the URL
        of a table, as for :class:`~sklearn_dpgen.preprocessing._databases.DatabaseTable`.
    columns : mapping of str to Column, list of str or None
        The declared columns, as for :class:`CsvFiles`. With a list, texts are kept.

    Returns
    -------
    pyarrow.dataset.Dataset, CsvFiles, JsonLines, Workbooks or DatabaseTable

    Raises
    ------
    PublicValueError
        The formats are unknown or differ.
    PublicFileNotFoundError
        A file does not exist.
    PublicImportError
        pyarrow is not installed.
    """
    pyarrow = require("pyarrow.dataset")
    dialects = {_dialect(path) for path in paths}
    paths = [call_quietly("X must be the path of a table.", os.fspath, path) for path in paths]
    if any(map(is_url, paths)):
        if len(paths) > 1:
            raise PublicValueError("X must be one table of a database, or files without any.")
        return DatabaseTable(paths[0])
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
    # A file that is named twice must not count twice.
    found = list({_identity(file): file for file in reversed(found)}.values())[::-1]
    if form in ("csv", "tsv"):
        is_text = columns is not None and not isinstance(columns, Mapping)
        if len(dialects) > 1:
            raise PublicValueError("The CSV files of X must have one delimiter and one encoding.")
        (dialect,) = dialects
        if form == "tsv" and dialect.delimiter == ",":
            dialect = replace(dialect, delimiter="\t")
        return CsvFiles(found, dict.fromkeys(columns) if is_text else columns, dialect)
    if form == "jsonl":
        from sklearn_dpgen.preprocessing._json_lines import JsonLines

        return JsonLines(found, columns)
    if form == "xlsx":
        from sklearn_dpgen.preprocessing._workbooks import Workbooks

        return Workbooks(found)
    return read_quietly(pyarrow.dataset.dataset, found, format=form)


def check_files(files, names):
    """Refuse files that lack a column of the first one, for which Arrow would read nulls.

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


def _dialect(path):
    is_stated = isinstance(path, CsvFile)
    return CsvFormat(path.delimiter, path.encoding) if is_stated else CsvFormat()


def have_common_file(paths: Iterable, others: Iterable) -> bool:
    """Return whether two tables, each of paths of files, wildcards or folders, have a common file.

    Another link to a file is the same file. Paths of no file have none, and nothing is read.
    """
    return not _identities(paths).isdisjoint(_identities(others))


def _identities(paths):
    found = [os.fspath(path) for path in paths]
    found = [file for p in found for file in ([p] if os.path.exists(p) else glob.iglob(p))]
    folders = [os.walk(path) for path in found if os.path.isdir(path)]
    within = [os.path.join(top, n) for own in folders for top, _, names in own for n in names]
    return {_identity(file) for file in (*found, *within) if os.path.isfile(file)}


def _identity(file):
    status = os.stat(file)
    return status.st_dev, status.st_ino


def _matches(path):
    matches = [path] if os.path.exists(path) else sorted(glob.glob(path, recursive=True))
    if not matches:
        raise PublicFileNotFoundError(f"X names files that are not there: {path!r}.")
    return matches


def _files(path, form):
    """Return the files of a folder, or the path of a file."""
    if not os.path.isdir(path):
        return [path]
    import pyarrow.dataset

    return read_quietly(pyarrow.dataset.dataset, path, format=form).files


def read_quietly(function, *args, **options):
    """Return the result of a function of an engine; its errors do not show values.

    Raises
    ------
    PublicValueError
        Replaces errors of Arrow, DuckDB and Polars, of files, and of texts that are not UTF-8.
        Others, which concern the caller's code, are raised unchanged.
    """
    try:
        return function(*args, **options)
    except Exception as error:
        package = type(error).__module__.partition(".")[0]
        if package not in _ENGINES and not isinstance(error, OSError | UnicodeError):
            raise
    # Outside of the handler, or the context of the error would show values.
    raise PublicValueError(
        "The table could not be read: a value is invalid for its type, or a file is truncated."
    )


def require(module):
    """Import pyarrow and one of its modules, or raise an error that says how to install it."""
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
