"""Record what a Python process and its children open, reach and start, by an audit hook."""

import json
import os
import sys
from pathlib import Path

# Imported as `sitecustomize` by each process of the environment, before any other code runs.
_HOOK = """
import json, os, sys, urllib.parse

def _install():
    record = os.open(RECORD, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    writing = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
    kept = {
        "socket.connect": lambda a: repr(a[1]), "socket.sendto": lambda a: repr(a[1]),
        "socket.bind": lambda a: repr(a[1]), "socket.getaddrinfo": lambda a: repr(a[0]),
        "socket.gethostbyname": lambda a: repr(a[0]), "subprocess.Popen": lambda a: repr(a[1]),
        "os.mkdir": lambda a: a[0], "os.rename": lambda a: a[1], "os.link": lambda a: a[1],
        "os.symlink": lambda a: a[1], "os.remove": lambda a: a[0], "os.rmdir": lambda a: a[0],
        "os.truncate": lambda a: a[0], "shutil.copyfile": lambda a: a[1],
        "sqlite3.connect": lambda a: a[0],
    }

    def keep(event, what):
        if isinstance(what, bytes):
            what = os.fsdecode(what)
        if isinstance(what, int):
            return
        path = str(what)
        if event == "sqlite3.connect" and path.startswith("file:"):
            path, _, words = path[5:].partition("?")
            if "mode=ro" in words:
                return
            path = urllib.parse.unquote(path)
        if event.startswith(("os.", "open", "shutil.", "sqlite3")) and path != ":memory:":
            path = os.path.abspath(path)
        os.write(record, (json.dumps([os.getpid(), event, path]) + "\\n").encode())

    def hook(event, args):
        if event == "open":
            path, mode, flags = args
            if path is not None and (flags or 0) & writing or set(mode or "") & set("wax+"):
                keep("open", path)
        elif event in kept:
            keep(event, kept[event](args))

    keep("start", " ".join(sys.orig_argv))
    sys.addaudithook(hook)

_install()
"""


def watched(folder, **more):
    """Return an environment whose Python processes are recorded, and the file of the record.

    The home and the temporary folder of the environment are new and empty ones.
    """
    hooks = folder / "hooks"
    hooks.mkdir()
    record = folder / "record.jsonl"
    text = _HOOK.replace("RECORD", repr(str(record)))
    (hooks / "sitecustomize.py").write_text(text, encoding="utf-8")
    paths = [str(hooks), *filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))]
    # Caches of bytecode are those of the interpreter.
    own = {"PYTHONPATH": os.pathsep.join(paths), "PYTHONDONTWRITEBYTECODE": "1"}
    for name in ("HOME", "TMPDIR"):
        own[name] = str(folder / name.lower())
        Path(own[name]).mkdir()
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("XDG_", "MPL"))}
    return kept | own | more, record


def records(record):
    """Return what was recorded: process, event, and place."""
    lines = record.read_text(encoding="utf-8").splitlines()
    return [tuple(json.loads(line)) for line in lines]


def reached(found):
    """Return the addresses outside of this machine that were asked for."""
    events = ("socket.connect", "socket.sendto", "socket.getaddrinfo", "socket.gethostbyname")
    near = ("('127.0.0.1',", "'127.0.0.1'", "b'127.0.0.1'", "None")
    return [(e, p) for _, e, p in found if e in events and not p.startswith(near)]


def bound(found):
    """Return the addresses that were listened on."""
    return [place for _, event, place in found if event == "socket.bind"]


def written(found, *allowed):
    """Return the files and folders that were written outside some folders."""
    events = ("open", "os.", "shutil.", "sqlite3")
    places = {place for _, event, place in found if event.startswith(events)}
    allowed = [os.path.realpath(path) for path in (*allowed, "/dev/null", "/dev/tty", ":memory:")]
    return sorted(
        place
        for place in places
        if not any(
            os.path.realpath(place) == path or os.path.realpath(place).startswith(path + os.sep)
            for path in allowed
        )
    )


def tree(folder):
    """Return the files of a folder with their contents, which other code than Python writes too."""
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def listening(process):
    """Return the addresses that a process of Linux listens on, as the kernel states them."""
    inodes = set()
    for link in Path(f"/proc/{process}/fd").iterdir():
        try:
            inodes.add(os.readlink(link))
        except OSError:
            continue
    found = set()
    for name in ("tcp", "tcp6"):
        table = Path(f"/proc/{process}/net/{name}")
        for line in table.read_text().splitlines()[1:] if table.exists() else ():
            part = line.split()
            if part[3] == "0A" and f"socket:[{part[9]}]" in inodes:
                found.add(part[1].partition(":")[0])
    return found


LOOPBACK = "0100007F" if sys.byteorder == "little" else "7F000001"
