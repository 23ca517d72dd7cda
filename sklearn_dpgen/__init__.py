"""Synthetic tables, generators and fair predictors learned from private records."""

from typing import TYPE_CHECKING

from sklearn_dpgen._version import __version__

if TYPE_CHECKING:
    import os

    from sklearn.base import BaseEstimator

__all__ = ["__version__", "load"]


def load(path: "str | os.PathLike") -> "BaseEstimator":
    """Read a fitted estimator from a file that its ``save`` wrote.

    Parameters
    ----------
    path : str or path-like

    Returns
    -------
    estimator : estimator
        It samples, predicts and transforms as the one that was saved, and has its report. It has no
        ``random_state`` and no ``ledger``. A new fit is a new release, and costs what its plan
        says: set the ledger of the records first.

    Raises
    ------
    InvalidFileError
        If the file is damaged, has a newer format, or was made by other software or by hand.
    OSError
        If the file does not exist, or cannot be read.

    Notes
    -----
    Nothing of a file is run, and nothing is imported by a name from it: what it may hold is a
    closed list of classes. Its content is checked before it takes memory, at most twice the size of
    the file and some 16 MiB. A file can still lie: its report is that of whoever wrote it. See
    :ref:`saving`.

    Examples
    --------
    >>> import sklearn_dpgen
    >>> sampler = sklearn_dpgen.load("health.safetensors")  # doctest: +SKIP
    """
    # It imports NumPy, which `sklearn-dpgen --help` does without.
    from sklearn_dpgen.persistence._files import load as load_file

    return load_file(path)
