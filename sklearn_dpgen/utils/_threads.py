"""One thread for fits and samples, whose many small steps more threads would only hold up."""

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

# At the end of each step threads wait for the last of them, beside another process until it has its
# turn again, which takes milliseconds. A step over fewer values takes less in a single thread.
MANY_VALUES = 2**22

_VARIABLE = "SKLEARN_DPGEN_THREADS"


@contextmanager
def one_thread():
    """Limit PyTorch, BLAS and OpenMP to one thread, and restore what they had before.

    It may be entered again inside, and by several threads of Python. PyTorch and OpenMP count
    threads for each of these, and the others keep theirs. BLAS counts for the whole process: the
    first that enters limits it until it leaves. Nothing happens with ``SKLEARN_DPGEN_THREADS=all``
    in the environment.

    Raises
    ------
    ValueError
        If the variable is neither "one", its default, nor "all".
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
    """Limit threads as :func:`one_thread`, or give them back where a step is large.

    Parameters
    ----------
    n_values : int
        Values that a step goes over; from ``MANY_VALUES`` on, PyTorch and OpenMP have the threads
        that they have outside.
    """
    if n_values < MANY_VALUES:
        with one_thread():
            yield
    else:
        with _own.lifted():
            yield


def limit_new_libraries():
    """Limit what has been loaded since this thread entered :func:`one_thread`, if it did."""
    if _own.depth:
        _own.limit()


def _keeps_threads():
    value = os.environ.get(_VARIABLE, "one")
    if value not in ("one", "all"):
        raise PublicValueError(f"The environment variable {_VARIABLE} must be 'one' or 'all'.")
    return value == "all"


class _OwnLimits(threading.local):
    """The limits of one thread of Python, which it enters and leaves by itself."""

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
        """Limit what is loaded by now: libraries come with modules, and are looked for then."""
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
        """Restore all but BLAS, which is of the whole process."""
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
# Held by the one thread of Python that limits BLAS, and restores it.
_blas = threading.Lock()
_torch = threading.Lock()


@functools.lru_cache(maxsize=1)
def _libraries(n_modules):
    """Return what controls OpenMP, and what controls BLAS, beside a number of loaded modules."""
    controller = ThreadpoolController()
    blas = [each for each in controller.lib_controllers if each.user_api == "blas"]
    # An OpenBLAS that has its threads of OpenMP is limited by that, and would restore the limit.
    blas = [each.filepath for each in blas if getattr(each, "threading_layer", "") != "openmp"]
    return controller.select(user_api="openmp"), controller.select(filepath=blas)


@contextmanager
def _limited_torch(torch):
    with _torch:
        n_threads = torch.get_num_threads()
        if n_threads > 1:
            torch.set_num_threads(1)
            if threading.active_count() > 1:
                # Threads of Python that have not called PyTorch yet would begin with one, too,
                # and keep it. Set by another, which ends at once, it is what they begin with.
                other = threading.Thread(target=torch.set_num_threads, args=(n_threads,))
                other.start()
                other.join()
    try:
        yield
    finally:
        if n_threads > 1:
            torch.set_num_threads(n_threads)
