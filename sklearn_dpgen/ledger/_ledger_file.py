"""The file of a ledger: its cap, and a row for each charge, which is never changed."""

import os
import secrets
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path

from sklearn_dpgen.exceptions import PublicFileNotFoundError, PublicOSError, PublicValueError

__all__ = ["LedgerFile", "add_release", "last_number", "read_releases"]

# "dpgl", and the version of the tables.
_APPLICATION_ID, _VERSION = 0x6470676C, 1
# Other processes hold the file only for milliseconds.
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
# Another process must not get what this one holds: within one process, SQLite keeps locks itself.
_LOCK = """
import sqlite3, sys
db = sqlite3.connect(sys.argv[1], timeout=0, isolation_level=None)
try:
    db.execute("BEGIN IMMEDIATE")
    print("free")
except sqlite3.OperationalError:
    print("locked")
db.close()
"""
# The file systems, by device, whose locks this process has seen to work.
_LOCKING: set[int] = set()
# Made when the first release is recorded: a file without it has none, whatever version wrote it.
_RELEASES = """
CREATE TABLE IF NOT EXISTS releases (
    sha256 TEXT PRIMARY KEY, charge INTEGER NOT NULL, time TEXT NOT NULL
) STRICT
"""


class _LedgerExistsError(PublicOSError, FileExistsError):
    pass


class _LedgerReadOnlyError(PublicOSError, PermissionError):
    pass


class _NoLocksError(PublicOSError):
    pass


class _LedgerLockedError(PublicOSError, TimeoutError):
    pass


class LedgerFile:
    """An SQLite file, opened anew for each use, so that processes can share it.

    Parameters
    ----------
    path : str or path-like
    """

    def __init__(self, path: "str | os.PathLike") -> None:
        self.path = Path(os.path.abspath(path))

    def create(self, created: str, settings: str) -> None:
        """Create the file, which must not exist."""
        _uri(self.path, "rw")
        _check_locks(self.path.parent)
        try:
            # Of several processes only one succeeds.
            os.close(os.open(self.path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o666))
        except FileExistsError:
            raise _LedgerExistsError(
                f"{self.path} must not exist to create a ledger; PrivacyLedger(path) opens an "
                "existing one."
            ) from None
        except FileNotFoundError:
            raise PublicFileNotFoundError(
                f"The folder of the ledger must exist, got {self.path.parent}."
            ) from None
        try:
            with self._errors(), closing(_connect(self.path, "rw")) as db, _writing(db):
                for statement in _TABLES.split(";")[:-1]:
                    db.execute(statement)
                db.execute("INSERT INTO ledger VALUES (1, ?, ?)", (created, settings))
                db.execute(f"PRAGMA application_id = {_APPLICATION_ID}")
                db.execute(f"PRAGMA user_version = {_VERSION}")
            # A device, such as NUL of Windows, keeps nothing.
            with self.reading():
                pass
        except BaseException:
            self.path.unlink(missing_ok=True)
            raise

    @contextmanager
    def reading(self) -> Iterator[sqlite3.Connection]:
        """Yield a connection with a consistent view of the file."""
        # Writable if possible, to roll back a transaction that a killed process left.
        with self._errors(), closing(_connect(self.path, "rw")) as db:
            db.execute("BEGIN")
            self._check(db)
            yield db

    @contextmanager
    def writing(self) -> Iterator[sqlite3.Connection]:
        """Yield an exclusive connection, and make its changes durable."""
        # SQLite locks the file that a link leads to.
        path = Path(os.path.realpath(self.path)) if self.path.is_symlink() else self.path
        _check_locks(path.parent)
        with self._errors(), closing(_connect(self.path, "rw")) as db, _writing(db):
            self._check(db)
            yield db

    def _check(self, db):
        if db.execute("SELECT count(*) FROM sqlite_schema").fetchone()[0] == 0:
            raise PublicValueError(
                f"{self.path} is empty and not a ledger: its content was lost, or its creation was "
                "interrupted. Restore it from a backup; remove it only if no fit ever charged it."
            )
        if _pragma(db, "application_id") != _APPLICATION_ID:
            raise PublicValueError(f"{self.path} is a database, but not a ledger.")
        # SQLite reads the missing end of a last page as zeros.
        if os.path.getsize(self.path) < _pragma(db, "page_count") * _pragma(db, "page_size"):
            raise PublicValueError(f"{self.path} is not a ledger, or damaged: its end is missing.")
        version = _pragma(db, "user_version")
        if version > _VERSION:
            raise PublicValueError(
                f"{self.path} is a ledger of a newer version, {version}, and must be at most "
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
                    f"{self.path} is read-only, and cannot be charged."
                ) from None
            if "locked" in text:
                raise _LedgerLockedError(
                    f"{self.path} was locked by another process for {_PATIENCE_S:g} s."
                ) from None
            if not self.path.exists():
                raise PublicFileNotFoundError(
                    f"There is no ledger at {self.path}: create one with PrivacyLedger.create, if "
                    "nothing was released of the data set yet."
                ) from None
            fault = "its disk is full" if "disk is full" in text else "SQLite failed"
            raise PublicOSError(
                f"{self.path} cannot be used: {fault}. Nothing was charged."
            ) from None
        except sqlite3.DatabaseError:
            raise PublicValueError(f"{self.path} is not a ledger, or damaged.") from None


def _check_locks(folder: Path) -> None:
    """Raise PublicOSError if two processes can write to one file of a folder at once.

    A process tests each file system once, on a file of its own. What cannot be tested, such as a
    folder that is read-only, is left to SQLite, and is tested again by the next charge.
    """
    try:
        device = os.stat(folder).st_dev
    except (FileNotFoundError, NotADirectoryError):
        return
    if device in _LOCKING:
        return
    answer = _answer_of_another(folder)
    if answer == "free":
        raise _NoLocksError(
            f"The file system of {folder} has no locks that work, so that processes could "
            "overspend a ledger there. Keep the ledger on a local disk. Nothing was charged."
        )
    if answer == "locked":
        _LOCKING.add(device)


def _answer_of_another(folder):
    """Return what another process finds a file that this one has locked, or "" if there is none."""
    path = folder / f".lock-{secrets.token_hex(8)}"
    answer = ""
    try:
        # There may be no other process, or no new file in the folder.
        with (
            suppress(OSError, sqlite3.Error, subprocess.SubprocessError),
            closing(_connect(path, "rwc")) as db,
        ):
            db.execute("BEGIN IMMEDIATE")
            # -I and -S: neither settings nor packages of this environment are read.
            answer = subprocess.run(
                [sys.executable or "", "-I", "-S", "-c", _LOCK, str(path)],
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                timeout=_PATIENCE_S,
            ).stdout
    finally:
        with suppress(OSError):
            path.unlink()
    return answer.strip()


def _connect(path, mode):
    db = sqlite3.connect(_uri(path, mode), uri=True, timeout=_PATIENCE_S, isolation_level=None)
    try:
        # A charge must be on disk before the fit goes on, even if the power fails. macOS writes to
        # the disk itself only when it is asked to.
        db.execute("PRAGMA synchronous = EXTRA")
        db.execute("PRAGMA fullfsync = ON")
    except sqlite3.Error:
        db.close()
        raise
    return db


def _uri(path, mode):
    uri = path.as_uri()
    if not uri.startswith("file:///"):
        raise PublicValueError(
            f"The ledger must be on a drive with a letter, got the network path {path}."
        )
    return f"{uri}?mode={mode}"


@contextmanager
def _writing(db):
    db.execute("BEGIN IMMEDIATE")
    try:
        yield
        db.execute("COMMIT")
    except BaseException:
        # A full disk may have ended the transaction already, so that none is rolled back. If the
        # disk fails, the transaction is rolled back when the file is opened next.
        with suppress(sqlite3.OperationalError):
            db.execute("ROLLBACK")
        raise


def last_number(db: sqlite3.Connection) -> int:
    """Return the number of the last charge, even if its row was deleted."""
    row = db.execute("SELECT seq FROM sqlite_sequence WHERE name = 'charges'").fetchone()
    return 0 if row is None else row[0]


def read_releases(db: sqlite3.Connection) -> dict[str, int]:
    """Return the numbers of the charges of all recorded releases, by SHA-256."""
    if not db.execute("SELECT count(*) FROM sqlite_schema WHERE name = 'releases'").fetchone()[0]:
        return {}
    return dict(db.execute("SELECT sha256, charge FROM releases ORDER BY charge, sha256"))


def add_release(db: sqlite3.Connection, sha256: str, charge: int, time: str) -> None:
    """Record a release that is not yet recorded."""
    db.execute(_RELEASES)
    db.execute("INSERT INTO releases VALUES (?, ?, ?)", (sha256, charge, time))


def _pragma(db, name):
    return db.execute(f"PRAGMA {name}").fetchone()[0]
