"""What the interpreter reports while files are loaded: code, imports, processes, writes."""

import os
import sys
import warnings
from contextlib import contextmanager

import sklearn_dpgen

# Events of `sys.addaudithook` by their beginnings.
_WATCHED = (
    "exec",
    "compile",
    "import",
    "marshal.",
    "pickle.",
    "os.system",
    "os.exec",
    "os.fork",
    "os.posix_spawn",
    "os.spawn",
    "os.remove",
    "os.rename",
    "os.mkdir",
    "os.rmdir",
    "os.chmod",
    "os.symlink",
    "os.link",
    "shutil.",
    "subprocess.",
    "socket.",
    "urllib.",
    "ctypes.",
    "open",
)
_WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND


class _Watch:
    """Events that were seen while files were loaded."""

    def __init__(self):
        self.events, self.is_on = [], False

    def __call__(self, event, arguments):
        if not self.is_on or not event.startswith(_WATCHED):
            return
        if event == "open":
            _, mode, flags = arguments
            if not flags & _WRITES and not set(mode or "r") & set("wax+"):
                return
        self.events.append((event, repr(arguments)[:200]))

    @contextmanager
    def loading(self):
        """Watch for as long as the context lasts."""
        self.is_on = True
        try:
            yield
        finally:
            self.is_on = False


@contextmanager
def watched(*valid):
    """Yield a watch, once valid files have loaded whatever the libraries load when first used.

    Each is read twice: threads of the libraries that the first reading loaded are limited in the
    second.
    """
    watch = _Watch()
    sys.addaudithook(watch)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for path in (*valid, *valid):
            sklearn_dpgen.load(path)
        yield watch
    watch.is_on = False
