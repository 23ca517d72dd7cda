"""The watch that the tests of the page rely on finds what it is there to find."""

import os
import socket
import subprocess
import sys

import pytest
from app_cases import tracebacks
from app_watch import LOOPBACK, bound, listening, reached, records, tree, watched, written

_PLANTED = """
import contextlib, os, socket, sqlite3, subprocess, sys
from pathlib import Path
if len(sys.argv) == 1:
    subprocess.run([sys.executable, __file__, "child"], check=True)
    raise SystemExit
for host in ("127.0.0.1", "192.0.2.1"):
    with socket.socket() as one, contextlib.suppress(OSError):
        one.setblocking(False)
        one.connect((host, 9))
with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as one, contextlib.suppress(OSError):
    one.sendto(b"", ("192.0.2.2", 9))
with contextlib.suppress(OSError):
    socket.getaddrinfo("name.invalid", 80)
Path("inside").write_text("a")
Path(os.environ["HOME"], "outside").write_text("a")
Path(os.environ["TMPDIR"], "folder").mkdir()
os.rename("inside", Path(os.environ["HOME"], "moved"))
Path(__file__).read_text()
sqlite3.connect("file:" + os.environ["HOME"] + "/a.db?mode=rwc", uri=True).close()
"""


def test_planted_requests_and_files_are_found_in_a_child(tmp_path):
    environment, record = watched(tmp_path)
    chosen = tmp_path / "chosen"
    chosen.mkdir()
    script = tmp_path / "planted.py"
    script.write_text(_PLANTED, encoding="utf-8")
    subprocess.run([sys.executable, str(script)], cwd=chosen, env=environment, check=True)
    found = records(record)
    assert len({process for process, _, _ in found}) == 2
    assert {event for event, _ in reached(found)} == {
        "socket.connect",
        "socket.sendto",
        "socket.getaddrinfo",
    }
    assert sorted(p for _, p in reached(found) if p.startswith("(")) == [
        "('192.0.2.1', 9)",
        "('192.0.2.2', 9)",
    ]
    home, temporary = environment["HOME"], environment["TMPDIR"]
    assert written(found, chosen) == sorted(
        [f"{home}/a.db", f"{home}/moved", f"{home}/outside", f"{temporary}/folder"]
    )
    assert set(tree(tmp_path / "home")) == {"a.db", "moved", "outside"}


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="needs the tables of Linux")
def test_a_listener_on_all_addresses_is_found():
    for host, others in (("127.0.0.1", set()), ("0.0.0.0", {"00000000"})):
        with socket.socket() as one:
            one.bind((host, 0))
            one.listen()
            assert listening(os.getpid()) - {LOOPBACK} == others


def test_what_is_listened_on_is_recorded(tmp_path):
    environment, record = watched(tmp_path)
    code = "import socket; socket.socket().bind(('127.0.0.1', 0))"
    subprocess.run([sys.executable, "-c", code], env=environment, check=True)
    assert bound(records(record)) == ["('127.0.0.1', 0)"]


def test_the_traceback_of_an_end_is_none():
    lines = "Traceback (most recent call last):\n  File x\n    await fut\n"
    end = lines + "asyncio.exceptions.CancelledError\n"
    assert tracebacks(end + "error: Interrupted.\n") == ""
    for error in (
        lines + "ValueError: x\n",
        lines + "ValueError: x\n" + end,
        end + lines + "KeyError\n",
    ):
        assert "Error" in tracebacks(error).replace("CancelledError", "")
