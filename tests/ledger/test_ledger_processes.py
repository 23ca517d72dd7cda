"""Several processes on one ledger, and processes that are killed."""

import os
import signal
import sqlite3
import subprocess
import sys
import time
from pathlib import PureWindowsPath

import pytest
from joblib import Parallel, delayed
from ledger_cases import gaussian_plan, rows

from sklearn_dpgen.exceptions import BudgetExceededError
from sklearn_dpgen.ledger import PrivacyLedger, _ledger_file

CAP = {"dataset": "patients", "epsilon": 1.0, "delta": 1e-6}
PLAN = gaussian_plan(0.04)

_DRAW = """
import os, sys
sys.path.insert(0, sys.argv[2])
from ledger_cases import gaussian_plan
from sklearn_dpgen.ledger import PrivacyLedger
ledger, plan = PrivacyLedger(sys.argv[1] + ".ledger"), gaussian_plan(1e-3)
drawn = os.open(sys.argv[1] + ".drawn", os.O_CREAT | os.O_APPEND | os.O_WRONLY)
while True:
    ledger.reserve(plan, what="a draw")
    os.write(drawn, b"x")
"""
# Draws before it books.
_CARELESS = _DRAW.replace('    ledger.reserve(plan, what="a draw")\n', "") + (
    '    ledger.reserve(plan, what="a draw")\n'
)
# Gives up at once where the ledger is locked.
_IMPATIENT = """
from sklearn_dpgen.ledger import _ledger_file
_ledger_file._PATIENCE_S = 0
"""


def hammer(ledger):
    """Book until refused; return how often it was booked."""
    for booked in range(10_000):
        try:
            ledger.reserve(PLAN, what="a fit")
        except BudgetExceededError:
            return booked
    raise AssertionError("never refused")


@pytest.mark.slow
def test_processes_share_one_cap(tmp_path):
    alone = PrivacyLedger.create(tmp_path / "alone.ledger", **CAP)
    ledger = PrivacyLedger.create(tmp_path / "shared.ledger", **CAP)
    most = hammer(alone)
    booked = Parallel(n_jobs=4)(delayed(hammer)(ledger) for _ in range(4))
    assert sum(booked) == len(rows(ledger.path)) == most
    assert ledger.spent() == alone.spent() <= 1.0


def drawn_and_booked(path, code, seconds):
    """Kill a process that draws, and return what it drew, and what its ledger shows."""
    PrivacyLedger.create(f"{path}.ledger", **CAP)
    with open(f"{path}.drawn", "wb"):
        pass
    process = subprocess.Popen([sys.executable, "-c", code, str(path), os.path.dirname(__file__)])
    give_up = time.monotonic() + 600
    while os.path.getsize(f"{path}.drawn") < 3 and time.monotonic() < give_up:
        time.sleep(0.01)
    time.sleep(seconds)
    process.send_signal(signal.SIGKILL)
    process.wait()
    ledger = PrivacyLedger(f"{path}.ledger")
    assert ledger.report().summed[0] == pytest.approx(1e-3 * len(rows(ledger.path)))
    return os.path.getsize(f"{path}.drawn"), len(rows(ledger.path))


@pytest.mark.slow
@pytest.mark.skipif(os.name == "nt", reason="no SIGKILL")
def test_a_killed_process_never_drew_more_than_is_booked(tmp_path):
    for turn, seconds in enumerate((0.0, 0.0134, 0.0271)):
        drawn, booked = drawn_and_booked(tmp_path / str(turn), _DRAW, seconds)
        assert 3 <= drawn <= booked <= drawn + 1


@pytest.mark.slow
def test_a_process_that_draws_first_would_be_caught(tmp_path):
    """Refused where others wait for a lock, it has drawn what it did not book."""
    import sqlite3

    PrivacyLedger.create(tmp_path / "a.ledger", **CAP)
    lock = sqlite3.connect(tmp_path / "a.ledger", isolation_level=None)
    lock.execute("BEGIN IMMEDIATE")
    for code, n_drawn in ((_DRAW, 0), (_CARELESS, 1)):
        drawn = tmp_path / "a.drawn"
        drawn.unlink(missing_ok=True)
        command = [sys.executable, "-c", _IMPATIENT + code, str(tmp_path / "a")]
        done = subprocess.run(
            [*command, os.path.dirname(__file__)], capture_output=True, text=True, check=False
        )
        assert "was locked by another process" in done.stderr
        assert drawn.stat().st_size == n_drawn
    lock.execute("ROLLBACK")
    lock.close()
    assert rows(tmp_path / "a.ledger") == []


@pytest.fixture
def untested(monkeypatch):
    """No file system was tested by this process yet."""
    monkeypatch.setattr(_ledger_file, "_LOCKING", set())


def without_locks(monkeypatch):
    """Let SQLite take no locks, as on a file system whose locks do nothing."""
    connect = sqlite3.connect
    monkeypatch.setattr(sqlite3, "connect", lambda at, **k: connect(f"{at}&nolock=1", **k))


def test_a_file_system_without_locks_is_refused(tmp_path, monkeypatch, untested):
    path = tmp_path / "patients.ledger"
    ledger = PrivacyLedger.create(path, **CAP)
    ledger.reserve(PLAN, what="a fit")
    content = path.read_bytes()
    monkeypatch.setattr(_ledger_file, "_LOCKING", set())
    with monkeypatch.context() as patched:
        without_locks(patched)
        for _ in range(2):
            with pytest.raises(OSError, match="no locks that work.*Nothing was charged"):
                ledger.reserve(PLAN, what="another")
        with pytest.raises(OSError, match="no locks that work"):
            PrivacyLedger.create(tmp_path / "new.ledger", **CAP)
        # What costs nothing goes on.
        assert len(ledger.report().charges) == 1
    assert path.read_bytes() == content
    assert os.listdir(tmp_path) == [path.name]
    # The twin: with locks the same charge is booked.
    ledger.reserve(PLAN, what="another")
    assert rows(path) == ["a fit", "another"]


def test_the_file_system_that_a_link_leads_to_is_tested(tmp_path, monkeypatch, untested):
    far, near = tmp_path / "far", tmp_path / "near"
    far.mkdir()
    near.mkdir()
    PrivacyLedger.create(far / "patients.ledger", **CAP)
    try:
        (near / "link.ledger").symlink_to(far / "patients.ledger")
    except OSError:
        pytest.skip("This account may not make links.")
    ledger = PrivacyLedger(near / "link.ledger")
    monkeypatch.setattr(_ledger_file, "_LOCKING", set())
    with monkeypatch.context() as patched:
        connect = sqlite3.connect

        def without_locks_if_far(at, **options):
            return connect(f"{at}&nolock=1" if "/far/" in at else at, **options)

        patched.setattr(sqlite3, "connect", without_locks_if_far)
        with pytest.raises(OSError, match="no locks that work"):
            ledger.reserve(PLAN, what="a fit")
    assert rows(far / "patients.ledger") == []
    ledger.reserve(PLAN, what="a fit")
    assert rows(far / "patients.ledger") == ["a fit"]


def test_an_interrupted_test_of_a_file_system_leaves_no_file(tmp_path, monkeypatch, untested):
    def interrupted(*args, **options):
        assert os.listdir(tmp_path)
        raise KeyboardInterrupt

    monkeypatch.setattr(subprocess, "run", interrupted)
    with pytest.raises(KeyboardInterrupt):
        PrivacyLedger.create(tmp_path / "patients.ledger", **CAP)
    assert os.listdir(tmp_path) == []


def test_a_file_system_that_was_not_tested_is_tested_again(tmp_path, monkeypatch, untested):
    ledger = PrivacyLedger.create(tmp_path / "patients.ledger", **CAP)
    monkeypatch.setattr(_ledger_file, "_LOCKING", set())
    with monkeypatch.context() as patched:

        def failing(*args, **options):
            raise BlockingIOError

        patched.setattr(subprocess, "run", failing)
        ledger.reserve(PLAN, what="a fit")
    without_locks(monkeypatch)
    with pytest.raises(OSError, match="no locks that work"):
        ledger.reserve(PLAN, what="another")


def test_a_file_system_is_tested_once(tmp_path, monkeypatch, untested):
    runs, run = [], subprocess.run
    monkeypatch.setattr(subprocess, "run", lambda *a, **k: runs.append(a) or run(*a, **k))
    ledger = PrivacyLedger.create(tmp_path / "patients.ledger", **CAP)
    ledger.reserve(PLAN, what="a fit")
    PrivacyLedger.create(tmp_path / "others.ledger", **CAP)
    assert len(runs) == 1


@pytest.mark.parametrize("executable", ["", None, "no-such-python"])
def test_where_no_process_can_be_started_sqlite_decides(
    tmp_path, monkeypatch, untested, executable
):
    monkeypatch.setattr(sys, "executable", executable)
    ledger = PrivacyLedger.create(tmp_path / "patients.ledger", **CAP)
    ledger.reserve(PLAN, what="a fit")
    assert os.listdir(tmp_path) == ["patients.ledger"]


@pytest.mark.parametrize("path", [PureWindowsPath(r"\\server\share\patients.ledger")])
def test_network_paths_of_windows_are_refused(path):
    with pytest.raises(ValueError, match="a drive with a letter"):
        _ledger_file._uri(path, "rw")
    on_disk = PureWindowsPath(r"C:\the data\patients #1?.ledger")
    uri = "file:///C:/the%20data/patients%20%231%3F.ledger?mode=rw"
    assert _ledger_file._uri(on_disk, "rw") == uri


def test_charges_are_on_the_disk_of_every_system(tmp_path):
    ledger = PrivacyLedger.create(tmp_path / "patients.ledger", **CAP)
    with ledger._file.writing() as db:
        assert db.execute("PRAGMA synchronous").fetchone() == (3,)
        # Without it macOS leaves what was written in the cache of the disk.
        assert db.execute("PRAGMA fullfsync").fetchone() == (1,)


def test_a_device_that_keeps_nothing_is_no_ledger(tmp_path, monkeypatch):
    """As a name that Windows reserves, such as NUL, may be: what is written is gone."""
    connect = sqlite3.connect
    monkeypatch.setattr(sqlite3, "connect", lambda at, **k: connect("file::memory:?mode=rw", **k))
    with pytest.raises(ValueError, match="is empty and not a ledger"):
        PrivacyLedger.create(tmp_path / "nul", **CAP)
    assert os.listdir(tmp_path) == []
