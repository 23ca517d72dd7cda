"""Tables of SQL databases, named by a URL. No message shows the URL, which may hold a password."""

import os
import re
import sqlite3
import urllib.parse
from collections.abc import Iterator
from contextlib import closing, contextmanager

import numpy as np
import pandas as pd

from sklearn_dpgen.exceptions import (
    PublicError,
    PublicFileNotFoundError,
    PublicImportError,
    PublicValueError,
)

__all__ = ["DatabaseTable", "database_file"]

_BLOCK = 1 << 16
_FILES = ("sqlite", "duckdb")
# A user and a password up to the last @, if any; a host, or an address in brackets; and a port.
_SERVER = r"([^?]*@)?(\[[^]?@]*\]|[^/:?@]*)(:[0-9]+)?(/[^?@]*)?"
# Errors whose messages are public, or are no fault of a database.
_PASSED_ON = (PublicError, MemoryError)


def database_file(url: str) -> str | None:
    """Return the path of the file of a SQLite or DuckDB database; None for a server."""
    scheme, location, _ = _parts(url)
    return location if scheme in _FILES else None


class DatabaseTable:
    """A table or view of a SQL database.

    Parameters
    ----------
    url : str
        ``sqlite:///FILE::TABLE`` or ``duckdb:///FILE::TABLE``, where three slashes precede a
        relative path and four an absolute one; or another URL of SQLAlchemy, followed by
        ``::TABLE`` or ``::SCHEMA.TABLE``. It has no parameters after a question mark.

    Attributes
    ----------
    names : list of str
        The columns.
    place : str
        What the places of `read_numbered` are numbers of.

    Raises
    ------
    PublicValueError
        The URL is not of this form, or the database has no such table or cannot be read. A message
        has the kind of the database and the name of the table alone.
    PublicFileNotFoundError
        There is no such file.
    PublicImportError
        The package for the database is not installed.
    """

    place = "row"

    def __init__(self, url: str) -> None:
        self._url = url
        scheme, location, table = _parts(url)
        self._what = f"table {table!r} of the {scheme} database"
        self._scheme, self._location, self._table = scheme, location, table
        if scheme in _FILES and not os.path.isfile(location):
            raise PublicFileNotFoundError(f"X names a file that is not there: {location!r}.")
        fault = None
        try:
            with self._query("*", "WHERE 1 = 0") as (names, _):
                self.names = names
        except _PASSED_ON:
            raise
        except Exception as error:
            fault = type(error).__name__
        self._refuse(fault)

    def __repr__(self) -> str:
        return f"<{self._what}>"

    def read(self, names: list[str]) -> Iterator[pd.DataFrame]:
        """Yield frames with the given columns; raise PublicValueError as `read_numbered` does."""
        for _, _, frame in self.read_numbered(names):
            yield frame

    def read_numbered(self, names: list[str]) -> Iterator[tuple[str, np.ndarray, pd.DataFrame]]:
        """Yield frames of objects in the order of the database, and the numbers of their rows.

        Parameters
        ----------
        names : list of str

        Yields
        ------
        table : str
            The name of the table.
        rows : ndarray of int
        frame : DataFrame

        Raises
        ------
        PublicValueError
            The database cannot be read.
        """
        n, fault = 1, None
        try:
            with self._query(names, "") as (_, blocks):
                for rows in blocks:
                    yield self._table, np.arange(n, n + len(rows)), _frame(rows, names)
                    n += len(rows)
        except _PASSED_ON:
            raise
        except Exception as error:
            fault = type(error).__name__
        self._refuse(fault)

    def _refuse(self, fault):
        # Called outside of handlers, or the context of the error would show values or the URL.
        if fault is not None:
            raise PublicValueError(
                f"The {self._what} must exist and be readable: the database raised {fault}."
            )

    @contextmanager
    def _query(self, names, where):
        """Yield the names of the columns of a query, and blocks of its rows."""
        opener = {"sqlite": _open_sqlite, "duckdb": _open_duckdb}.get(self._scheme, _open_server)
        target = self._location if self._scheme in _FILES else self._url.rpartition("::")[0]
        with opener(target) as (quote, execute):
            columns = names if names == "*" else ", ".join(map(quote, names)) or "1"
            table = ".".join(map(quote, self._table.split(".")))
            yield execute(f"SELECT {columns} FROM {table} {where}")


@contextmanager
def _open_sqlite(path):
    # Read-only, so that no journal is written beside the file.
    source = f"file:{urllib.parse.quote(os.path.abspath(path))}?mode=ro"
    with closing(sqlite3.connect(source, uri=True)) as connection:

        def execute(query):
            cursor = connection.execute(query)
            return [column[0] for column in cursor.description], _fetched(cursor)

        yield _quoted, execute


@contextmanager
def _open_duckdb(path):
    try:
        import duckdb
    except ImportError as error:
        raise PublicImportError(
            "duckdb:// needs DuckDB: pip install 'sklearn-dpgen[duckdb]'"
        ) from error
    with closing(duckdb.connect(path, read_only=True)) as connection:

        def execute(query):
            cursor = connection.execute(query)
            return [column[0] for column in cursor.description], _fetched(cursor)

        yield _quoted, execute


@contextmanager
def _open_server(url):
    try:
        import sqlalchemy
    except ImportError as error:
        raise PublicImportError(
            "The URL of a database other than SQLite and DuckDB needs SQLAlchemy and the driver of "
            "the database: pip install 'sklearn-dpgen[sql]'"
        ) from error
    # Parameters of a query, which are values, are never shown.
    engine = sqlalchemy.create_engine(url, hide_parameters=True)
    try:
        with engine.connect().execution_options(stream_results=True) as connection:

            def execute(query):
                result = connection.execute(sqlalchemy.text(query.replace(":", "\\:")))
                return list(result.keys()), _fetched(result)

            yield engine.dialect.identifier_preparer.quote_identifier, execute
    finally:
        engine.dispose()


def _frame(rows, names):
    """Return rows of a database as a frame of objects, whose types are those of the values."""
    cells = zip(*rows, strict=True) if names else ()
    series = {
        name: pd.Series(list(values), dtype=object)
        for name, values in zip(names, cells, strict=True)
    }
    return pd.DataFrame(series, columns=names, index=range(len(rows)))


def _fetched(cursor):
    while rows := cursor.fetchmany(_BLOCK):
        yield rows


def _quoted(name):
    return '"' + name.replace('"', '""') + '"'


def _parts(url):
    """Return the kind of a database, its path if it is a file, and the name of a table."""
    location, _, table = url.rpartition("::")
    scheme, slashes, path = location.partition("://")
    kind = scheme.lower().partition("+")[0]
    # Without a table, what follows the mark may be the end of a password: after a user, or after a
    # parameter.
    is_place = slashes and re.fullmatch(r"/[^?]+" if kind in _FILES else _SERVER, path)
    if not is_place or not re.fullmatch(r"[^@/:?]+", table):
        raise PublicValueError(
            "The URL of a table must be DATABASE::TABLE, such as sqlite:///patients.db::visits, "
            "without parameters after a question mark."
        )
    # Three slashes precede a relative path, and four an absolute one.
    return (kind, path[1:], table) if kind in _FILES else (kind, None, table)
