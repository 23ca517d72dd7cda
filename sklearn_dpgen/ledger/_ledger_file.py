"""The one file of a ledger: its caps, and a row for each charge, never changed afterwards."""

import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path

from sklearn_dpgen.exceptions import PublicFileNotFoundError, PublicOSError, PublicValueError

__all__ = ["LedgerFile", "last_number"]

# "dpgl", and the version of the tables.
_APPLICATION_ID, _VERSION = 0x6470676C, 1
# Another process holds the file for milliseconds.
_PATIENCE_S = 60.0
_TABLES = """
CREATE TABLE ledger (
    only INTEGER PRIMARY KEY CHECK (only = 1), created TEXT NOT NULL, settings TEXT NOT NULL
) STRICT;
CREATE TABLE charges (
    id INTEGER PRIMARY KEY AUTOINCREMENT, time TEXT NOT NULL, user TEXT NOT NULL,
    what TEXT NOT NULL, amount REAL NOT NULL, delta REAL NOT NULL,
    total_amount REAL NOT NULL, total_delta REAL NOT NULL, report TEXT NOT NULL
) STRICT;
"""


class _LedgerExistsError(PublicOSError, FileExistsError):
    pass


class _LedgerReadOnlyError(PublicOSError, PermissionError):
    pass


class _LedgerLockedError(PublicOSError, TimeoutError):
    pass


class LedgerFile:
    """An SQLite file, opened anew for each use, so that it may be shared by processes.

    Parameters
    ----------
    path : str or path-like
    """

    def __init__(self, path: "str | os.PathLike") -> None:
        self.path = Path(os.path.abspath(path))

    def create(self, created: str, settings: str) -> None:
        """Make the file where none is."""
        try:
            # Of several processes one makes it.
            os.close(os.open(self.path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o666))
        except FileExistsError:
            raise _LedgerExistsError(
                f"{self.path} is there already: a ledger is made where no file is, and "
                "PrivacyLedger(path) opens one."
            ) from None
        except FileNotFoundError:
            raise PublicFileNotFoundError(
                f"The folder of the ledger is not there: {self.path.parent}."
            ) from None
        try:
            with self._errors(), closing(self._connect("rw")) as db, _writing(db):
                for statement in _TABLES.split(";")[:-1]:
                    db.execute(statement)
                db.execute("INSERT INTO ledger VALUES (1, ?, ?)", (created, settings))
                db.execute(f"PRAGMA application_id = {_APPLICATION_ID}")
                db.execute(f"PRAGMA user_version = {_VERSION}")
        except BaseException:
            self.path.unlink(missing_ok=True)
            raise

    @contextmanager
    def reading(self) -> Iterator[sqlite3.Connection]:
        """Give a connection that sees one state of the file."""
        # Writable where it may be: what a killed process left half done is first undone.
        with self._errors(), closing(self._connect("rw")) as db:
            db.execute("BEGIN")
            self._check(db)
            yield db

    @contextmanager
    def writing(self) -> Iterator[sqlite3.Connection]:
        """Give a connection that no other process writes beside, and make its changes durable."""
        with self._errors(), closing(self._connect("rw")) as db, _writing(db):
            self._check(db)
            yield db

    def _connect(self, mode):
        uri = f"{self.path.as_uri()}?mode={mode}"
        db = sqlite3.connect(uri, uri=True, timeout=_PATIENCE_S, isolation_level=None)
        try:
            # On disk when a charge is said to be booked, even if the power fails.
            db.execute("PRAGMA synchronous = EXTRA")
        except sqlite3.Error:
            db.close()
            raise
        return db

    def _check(self, db):
        if db.execute("SELECT count(*) FROM sqlite_schema").fetchone()[0] == 0:
            raise PublicValueError(
                f"{self.path} is empty, and no ledger: its content was lost, or whatever made it "
                "was stopped. Restore it from a backup; remove it only if no fit ever charged it."
            )
        if _pragma(db, "application_id") != _APPLICATION_ID:
            raise PublicValueError(f"{self.path} is a database, and no ledger.")
        # SQLite takes the missing end of a last page as zeros.
        if os.path.getsize(self.path) < _pragma(db, "page_count") * _pragma(db, "page_size"):
            raise PublicValueError(
                f"{self.path} is no ledger, or a damaged one: its end is cut off."
            )
        version = _pragma(db, "user_version")
        if version > _VERSION:
            raise PublicValueError(
                f"{self.path} is a ledger of a newer version, {version}: this one reads up to "
                f"{_VERSION}. Upgrade sklearn_dpgen."
            )

    @contextmanager
    def _errors(self):
        try:
            yield
        except sqlite3.OperationalError as error:
            text = str(error)
            if "readonly" in text:
                raise _LedgerReadOnlyError(
                    f"{self.path} is read-only, and nothing can be booked."
                ) from None
            if "locked" in text:
                raise _LedgerLockedError(
                    f"{self.path} was locked by another process for {_PATIENCE_S:g} s."
                ) from None
            if not self.path.exists():
                raise PublicFileNotFoundError(
                    f"There is no ledger at {self.path}: PrivacyLedger.create makes one, for a "
                    "data set of which nothing was released yet."
                ) from None
            fault = "its disk is full" if "disk is full" in text else "SQLite failed"
            raise PublicOSError(
                f"{self.path} cannot be used: {fault}. Nothing was charged."
            ) from None
        except sqlite3.DatabaseError:
            raise PublicValueError(f"{self.path} is no ledger, or a damaged one.") from None


@contextmanager
def _writing(db):
    db.execute("BEGIN IMMEDIATE")
    try:
        yield
        db.execute("COMMIT")
    except BaseException:
        # A full disk ends some transactions by itself, and then there is none to be rolled back.
        # What cannot be undone as the disk fails is undone by whoever opens the file next.
        with suppress(sqlite3.OperationalError):
            db.execute("ROLLBACK")
        raise


def last_number(db: sqlite3.Connection) -> int:
    """Return the number of the last charge that was ever booked, even if its row is deleted."""
    row = db.execute("SELECT seq FROM sqlite_sequence WHERE name = 'charges'").fetchone()
    return 0 if row is None else row[0]


def _pragma(db, name):
    return db.execute(f"PRAGMA {name}").fetchone()[0]
