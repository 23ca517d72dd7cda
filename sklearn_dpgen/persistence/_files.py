"""Saved estimators: files that hold no code, no seed and no record."""

import os
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING

from sklearn.utils.validation import check_is_fitted

from sklearn_dpgen._version import __version__
from sklearn_dpgen.exceptions import (
    InvalidFileError,
    PublicTypeError,
    PublicValueError,
)
from sklearn_dpgen.persistence._container import read_file, write_file
from sklearn_dpgen.persistence._registry import ALL_KINDS, STATES
from sklearn_dpgen.persistence._values import Decoder, Encoder

if TYPE_CHECKING:
    from sklearn_dpgen.ledger._base import PrivateEstimator

__all__ = ["FORMAT", "load", "save"]

# Raised whenever a file of it could not be read by the releases before.
FORMAT = 1

_DISTRIBUTIONS = ("numpy", "pandas", "scikit-learn", "torch", "safetensors")


def save(estimator: "PrivateEstimator", path: str | os.PathLike) -> None:
    """Write a fitted estimator to a file: see :meth:`PrivateEstimator.save`."""
    kind = type(estimator)
    if kind not in STATES:
        raise PublicTypeError(f"{kind.__name__} cannot be saved. {_advice(estimator)}")
    check_is_fitted(estimator)
    encoder = Encoder(ALL_KINDS)
    document = {
        "format": FORMAT,
        "versions": {"sklearn_dpgen": __version__}
        | {name: metadata.version(name) for name in _DISTRIBUTIONS},
        "model": encoder.encode(estimator, ""),
    }
    write_file(path, document, encoder.arrays, _check_written)


def _check_written(path):
    """Raise ValueError if a file could not be loaded, before it is the file that was asked for."""
    try:
        load(path)
    except InvalidFileError as error:
        raise PublicValueError(f"The estimator cannot be saved: {error}") from error


def _advice(estimator):
    """Return what of an estimator can be saved instead."""
    for name, what in {
        "sampler_": "the sampler: another learner can be trained on its records at no cost",
        "best_estimator_": "the estimator that was chosen",
    }.items():
        if hasattr(estimator, name):
            return f"Save {name}, {what}."
    if hasattr(getattr(estimator, "estimator_", None), "sampler_"):
        return "Save estimator_.sampler_: another learner can be trained on its records at no cost."
    return "A file holds estimators of this package, and no others."


def load(path: str | os.PathLike) -> "PrivateEstimator":
    """Read a fitted estimator from a file: see :func:`sklearn_dpgen.load`."""
    document, arrays = read_file(path)
    version = document.get("format")
    if type(version) is not int or version < 1:
        raise InvalidFileError(f"The file is of no known format: {version!r}.")
    if version > FORMAT:
        raise InvalidFileError(
            f"The file is of format {version}, and this release, {__version__}, reads formats up "
            f"to {FORMAT}: install a newer one. {_origin(document)}"
        )
    try:
        estimator = Decoder(ALL_KINDS, arrays).decode(document.get("model"))
        if type(estimator) not in STATES:
            raise InvalidFileError("The file holds no estimator.")
        check_is_fitted(estimator)
        arrays.check_empty()
    except MemoryError:
        raise
    except Exception as error:  # of any kind, by what a file holds
        # Any message may be quoted: it is about a file of a model, which holds no record.
        fault = InvalidFileError(f"{Path(path).name}: {error} {_origin(document)}".rstrip())
        raise fault from error
    return estimator


def _origin(document):
    """Return which release wrote a file, by what it says."""
    versions = document.get("versions")
    version = versions.get("sklearn_dpgen") if isinstance(versions, dict) else None
    return f"It was written by release {version}." if isinstance(version, str) else ""
