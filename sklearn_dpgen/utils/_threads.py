"""One thread for fits and samples, as more threads only slow down their many small steps."""

import functools
import os
import sys
import threading
from contextlib import ExitStack, contextmanager

from threadpoolctl import ThreadpoolController

from sklearn_dpgen.exceptions import PublicValueError

__all__ = [
    "MANY_VALUES",
    "limit_new_libraries",
    "one_thread",
    "threads_for",
]

# Threads wait for the slowest at the end of each step, which takes milliseconds if another process
# has its core. A step over fewer values takes less than that in a single thread.
MANY_VALUES = 2**22

_VARIABLE = "SKLEARN_DPGEN_THREADS"


@contextmanager
def one_thread():
    """Limit PyTorch, BLAS and OpenMP to one thread, and restore their limits at exit.

    It is reentrant, also from several Python threads. PyTorch and OpenMP have a limit for each of
    these, and the others keep theirs. BLAS has one limit for the process, set by the first Python
    thread that enters, until it leaves. Nothing happens with ``SKLEARN_DPGEN_THREADS=all`` in the
    environment.

    Raises
    ------
    PublicValueError
        The variable is neither "one", its default, nor "all".
    """
    if not _own.depth and _keeps_threads():
        yield
        return
    _own.enter()
    try:
        yield
    finally:
        _own.leave()


@contextmanager
def threads_for(n_values):
    """Limit threads as :func:`one_thread`, or restore them for a large step.

    Parameters
    ----------
    n_values : int
        Number of values of a step; from ``MANY_VALUES`` on, PyTorch and OpenMP have as many
        threads as outside.
    """
    if n_values < MANY_VALUES:
        with one_thread():
            yield
    else:
        with _own.lifted():
            yield


def limit_new_libraries():
    """Limit libraries that were loaded since this thread entered :func:`one_thread`, if it did."""
    if _own.depth:
        _own.limit()


def _keeps_threads():
    value = os.environ.get(_VARIABLE, "one")
    if value not in ("one", "all"):
        raise PublicValueError(f"The environment variable {_VARIABLE} must be 'one' or 'all'.")
    return value == "all"


class _OwnLimits(threading.local):
    """The limits of one Python thread."""

    def __init__(self):
        self.depth = 0
        self._is_lifted = False
        self._n_modules = 0
        self._limits_torch = False
        self._limits_blas = False
        self._undo, self._undo_blas = ExitStack(), ExitStack()

    def enter(self):
        if not self.depth:
            self._limits_blas = _blas.acquire(blocking=False)
        self.depth += 1
        self.limit()

    def leave(self):
        self.depth -= 1
        if not self.depth:
            self._restore()
            self._undo_blas.close()
            if self._limits_blas:
                _blas.release()

    def limit(self):
        """Limit the libraries that are loaded by now, as they come with modules."""
        if self._is_lifted or self._n_modules == len(sys.modules):
            return
        self._n_modules = len(sys.modules)
        openmp, blas = _libraries(self._n_modules)
        torch = sys.modules.get("torch")
        if hasattr(torch, "get_num_threads") and not self._limits_torch:
            self._undo.enter_context(_limited_torch(torch))
            self._limits_torch = True
        self._undo.enter_context(openmp.limit(limits=1))
        if self._limits_blas:
            self._undo_blas.enter_context(blas.limit(limits=1))

    def _restore(self):
        self._undo.close()
        self._limits_torch, self._n_modules = False, 0

    @contextmanager
    def lifted(self):
        """Restore all limits except that of BLAS, which is common to the process."""
        if not self.depth or self._is_lifted:
            yield
            return
        self._restore()
        self._is_lifted = True
        try:
            yield
        finally:
            self._is_lifted = False
            self.limit()


_own = _OwnLimits()
# Held by the Python thread that limits BLAS, and restores it.
_blas = threading.Lock()
_torch = threading.Lock()


@functools.lru_cache(maxsize=1)
def _libraries(n_modules):
    """Return the controllers of OpenMP and of BLAS for a number of loaded modules."""
    controller = ThreadpoolController()
    blas = [each for each in controller.lib_controllers if each.user_api == "blas"]
    # An OpenBLAS with OpenMP threads is limited by OpenMP, and would restore the limit.
    blas = [each.filepath for each in blas if getattr(each, "threading_layer", "") != "openmp"]
    return controller.select(user_api="openmp"), controller.select(filepath=blas)


@contextmanager
def _limited_torch(torch):
    with _torch:
        n_threads = torch.get_num_threads()
        if n_threads > 1:
            torch.set_num_threads(1)
            if threading.active_count() > 1:
                # New Python threads would start with a limit of one in PyTorch. The limit that they
                # start with is the last one set, so another thread sets it, and ends.
                other = threading.Thread(target=torch.set_num_threads, args=(n_threads,))
                other.start()
                other.join()
    try:
        yield
    finally:
        if n_threads > 1:
            torch.set_num_threads(n_threads)
