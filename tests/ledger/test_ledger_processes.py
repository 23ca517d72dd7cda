"""Several processes on one ledger, and processes that are killed."""

import os
import signal
import subprocess
import sys
import time

import pytest
from joblib import Parallel, delayed
from ledger_cases import gaussian_plan, rows

from sklearn_dpgen.exceptions import BudgetExceededError
from sklearn_dpgen.ledger import PrivacyLedger

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


@pytest.mark.skipif(os.name == "nt", reason="no SIGKILL")
def test_a_killed_process_never_drew_more_than_is_booked(tmp_path):
    for turn, seconds in enumerate((0.0, 0.0134, 0.0271)):
        drawn, booked = drawn_and_booked(tmp_path / str(turn), _DRAW, seconds)
        assert 3 <= drawn <= booked <= drawn + 1


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
