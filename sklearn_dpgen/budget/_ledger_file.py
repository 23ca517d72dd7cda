"""The one file of a ledger: its caps, and a row for each charge, never changed afterwards."""

import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

__all__ = ["LedgerFile"]

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


class LedgerFile:
    """An SQLite file, opened anew for each use, so that it may be shared by processes.

    Parameters
    ----------
    path : str or path-like
    """

    def __init__(self, path: "str | os.PathLike") -> None:
        self.path = Path(os.path.abspath(path))

    def is_empty(self) -> bool:
        """Return whether there is no file, or nothing in it: who made it was stopped."""
        return not self.path.exists() or self.path.stat().st_size == 0

    def create(self, created: str, settings: str) -> None:
        """Make the file, unless another process was faster."""
        if not self.path.parent.is_dir():
            raise FileNotFoundError(f"The folder of the ledger is not there: {self.path.parent}.")
        with self._errors(), closing(self._connect("rwc")) as db, _writing(db):
            if _pragma(db, "application_id") == _APPLICATION_ID:
                return
            if db.execute("SELECT count(*) FROM sqlite_schema").fetchone()[0]:
                raise ValueError(f"{self.path} is a database, and no ledger.")
            for statement in _TABLES.split(";")[:-1]:
                db.execute(statement)
            db.execute("INSERT INTO ledger VALUES (1, ?, ?)", (created, settings))
            db.execute(f"PRAGMA application_id = {_APPLICATION_ID}")
            db.execute(f"PRAGMA user_version = {_VERSION}")

    @contextmanager
    def reading(self) -> Iterator[sqlite3.Connection]:
        """Give a connection that sees one state of the file."""
        # Writable where it may be: what a killed process left half done is first undone.
        with self._errors(), closing(self._connect("rw")) as db:
            self._check(db)
            db.execute("BEGIN")
            yield db

    @contextmanager
    def writing(self) -> Iterator[sqlite3.Connection]:
        """Give a connection that no other process writes beside, and make its changes durable."""
        with self._errors(), closing(self._connect("rw")) as db:
            self._check(db)
            with _writing(db):
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
        if _pragma(db, "application_id") != _APPLICATION_ID:
            raise ValueError(f"{self.path} is a database, and no ledger.")
        version = _pragma(db, "user_version")
        if version > _VERSION:
            raise ValueError(
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
                raise PermissionError(
                    f"{self.path} is read-only, and nothing can be booked."
                ) from None
            if "locked" in text:
                raise TimeoutError(
                    f"{self.path} was locked by another process for {_PATIENCE_S:g} s."
                ) from None
            if not self.path.exists():
                raise FileNotFoundError(f"There is no ledger at {self.path}.") from None
            raise OSError(f"{self.path} cannot be used: {text}.") from None
        except sqlite3.DatabaseError as error:
            raise ValueError(f"{self.path} is no ledger, or a damaged one: {error}.") from None


@contextmanager
def _writing(db):
    db.execute("BEGIN IMMEDIATE")
    try:
        yield
    except BaseException:
        db.execute("ROLLBACK")
        raise
    db.execute("COMMIT")


def _pragma(db, name):
    return db.execute(f"PRAGMA {name}").fetchone()[0]
