"""Files of Excel: the rows of one sheet, whose cells have the types of the spreadsheet."""

import os
from collections.abc import Iterator
from itertools import islice

import numpy as np
import pandas as pd

from sklearn_dpgen.exceptions import PublicImportError, PublicValueError
from sklearn_dpgen.schema._texts import near_names

__all__ = ["MOST_ROWS", "Workbooks", "import_openpyxl"]

# Rows of a sheet, the header included.
MOST_ROWS = 1 << 20
_BLOCK = 1 << 14


class Workbooks:
    """Files of Excel with one sheet, whose first row has the names of the columns.

    A cell is read as the spreadsheet stores it: a text, a number, a truth value or a date. A code
    that it stored as a number has lost its leading zeros, and a date without a format of dates is a
    number. Formulas have the values that were saved last. Rows without a value are skipped.

    Parameters
    ----------
    paths : list of str
    columns : mapping of str to Column or None, list of str, or None
        Not used: cells have types of their own.

    Attributes
    ----------
    files : list of str
        The paths.
    names : list of str
        Columns of the first file.
    place : str
        What the places of `read_numbered` are numbers of.

    Raises
    ------
    PublicImportError
        openpyxl is not installed.
    PublicValueError
        A file is no workbook of Excel, or has several sheets or no names of columns.
    """

    place = "row"

    def __init__(self, paths: list[str], columns=None) -> None:
        import_openpyxl()
        self.files = paths
        with _Sheet(paths[0]) as rows:
            self.names = _header(rows, paths[0])

    def read(self, names: list[str]) -> Iterator[pd.DataFrame]:
        """Yield frames with the given columns; raise PublicValueError as `read_numbered` does."""
        for _, _, frame in self.read_numbered(names):
            yield frame

    def read_numbered(self, names: list[str]) -> Iterator[tuple[str, np.ndarray, pd.DataFrame]]:
        """Yield the records of each file as frames of objects, with their rows in the sheet.

        Parameters
        ----------
        names : list of str

        Yields
        ------
        path : str
        rows : ndarray of int
        frame : DataFrame

        Raises
        ------
        PublicValueError
            A file lacks one of the columns, has one of them twice, or is damaged.
        """
        for path in self.files:
            with _Sheet(path) as rows:
                given = _header(rows, path)
                missing = [name for name in names if name not in given]
                if missing:
                    raise PublicValueError(
                        f"Each file must have all declared columns: one lacks {missing}."
                        f"{near_names(missing, given)}"
                    )
                places = [given.index(name) for name in names]
                number = 2
                while block := list(islice(rows, _BLOCK)):
                    kept = [i for i, row in enumerate(block) if any(v is not None for v in row)]
                    cells = [
                        pd.Series([_cell(block[i], place) for i in kept], dtype=object)
                        for place in places
                    ]
                    frame = pd.DataFrame(dict(zip(names, cells, strict=True)), columns=names)
                    yield path, number + np.array(kept, dtype=np.int64), frame
                    number += len(block)


def import_openpyxl():
    """Return openpyxl, or raise an error that says how to install it."""
    try:
        import openpyxl
    except ImportError as error:
        raise PublicImportError(
            "Files of Excel need openpyxl: pip install 'sklearn-dpgen[excel]'"
        ) from error
    return openpyxl


class _Sheet:
    """The rows of the only sheet of a workbook, as tuples of values."""

    def __init__(self, path):
        self._path = path

    def __enter__(self):
        openpyxl = import_openpyxl()
        fault, self._book = "is none, or is damaged", None
        try:
            self._book = openpyxl.load_workbook(self._path, read_only=True, data_only=True)
            sheets = self._book.worksheets
            if len(sheets) == 1:
                return _quiet(sheets[0].iter_rows(values_only=True), self._path)
            fault = f"has {len(sheets)}: save that of the table in a file of its own"
        except MemoryError:
            raise
        except Exception as error:  # Of the archive, its XML, or its numbers.
            if getattr(error, "errno", None):
                raise
        self.__exit__()
        # Outside of the handler, or the context of the error could show values.
        raise PublicValueError(
            f"A file of Excel must be a workbook with one sheet: {os.fspath(self._path)!r} {fault}."
        )

    def __exit__(self, *_):
        if self._book is not None:
            self._book.close()


def _quiet(rows, path):
    """Yield rows; an error of the file shows no value."""
    while True:
        try:
            row = next(rows, None)
        except MemoryError:
            raise
        except Exception:
            break
        if row is None:
            return
        yield row
    raise PublicValueError(f"A file must be complete: {path!r} is damaged.")


def _header(rows, path):
    """Return the names of the columns; unnamed ones have none."""
    names = ["" if value is None else str(value) for value in next(rows, ())]
    while names and not names[-1]:
        names.pop()
    if not names:
        raise PublicValueError(
            "A file of Excel must have the names of the columns in its first row: that of "
            f"{path!r} is empty."
        )
    return names


def _cell(row, place):
    # Rows end with their last cell.
    return row[place] if place < len(row) else None
