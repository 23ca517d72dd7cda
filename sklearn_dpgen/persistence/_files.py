"""Saved estimators: files that hold no code, no seed and no record."""

import os
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sklearn_dpgen._version import __version__
from sklearn_dpgen.exceptions import InvalidFileError, PublicTypeError, PublicValueError
from sklearn_dpgen.persistence._codec import Decoder, Encoder
from sklearn_dpgen.persistence._container import read_file, write_file
from sklearn_dpgen.persistence._declarations import (
    SavedClass,
    check_fields,
    class_of_type,
    register,
)

if TYPE_CHECKING:
    from sklearn.base import BaseEstimator

__all__ = ["FORMAT", "SavedEstimator", "declared", "load"]

# Raised with every change that earlier releases could not read.
FORMAT = 1

_DISTRIBUTIONS = ("numpy", "pandas", "scikit-learn", "torch", "safetensors")


class SavedEstimator:
    """Mixin of estimators that can be saved: they declare what a file holds of a fit.

    A class can be saved if it declares ``_saved_state`` itself. Bases and mixins declare their
    parts, which are put together. Constructor parameters are always saved, those in ``_not_saved``
    as None.

    ``_saved_state`` : dict of str to hint
        Attributes of a fit, with what a file may hold as their values: a type, an
        :class:`~sklearn_dpgen.persistence.Array`, or another hint of
        :func:`~sklearn_dpgen.persistence._declarations.fits`. Each must be there unless its hint is
        a :class:`~sklearn_dpgen.persistence.Maybe`.
    ``_not_saved`` : dict of str to str
        Attributes and parameters that are left out, and why.
    ``_check_saved_state()``
        Raises an InvalidFileError for attributes that fit their hints, but not each other. It may
        set attributes that follow from others.
    ``_of_former(found)``
        Returns the fields of a file of an earlier release as those of this one.
    """

    _saved_state: Mapping[str, Any] = {}
    _not_saved: Mapping[str, str] = {}

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if "_saved_state" in vars(cls):
            register(SavedClass(cls, _describe, lambda found: _build(cls, found)))

    def _check_saved_state(self) -> None:
        """Check attributes against each other; bases have nothing to check."""

    @classmethod
    def _of_former(cls, found: dict) -> dict:
        """Return the fields of a file as those of this release."""
        return found

    def save(self, path: str | os.PathLike) -> None:
        """Write the fitted estimator to a file, for :func:`sklearn_dpgen.load` to read.

        Parameters
        ----------
        path : str or path-like
            The file, in the safetensors format, usually with the suffix ``.safetensors``. An
            existing file is replaced once the new one is complete.

        Raises
        ------
        NotFittedError
            If the estimator is not fitted.
        TypeError
            If a parameter is a function, a network or another object from outside of this package,
            or if the estimator holds a learner of another package.
        ValueError
            If the declarations are too many to be read back in little memory.

        Notes
        -----
        The file holds parameters, declarations, the report and the releases: as much as anybody
        knows who holds the estimator. It holds no record, no seed, no ledger and no code. Whoever
        has the file samples and predicts as the estimator does, at no cost in privacy. See
        :ref:`saving`.
        """
        from sklearn.utils.validation import check_is_fitted

        if class_of_type(type(self)) is None:
            raise PublicTypeError(f"{type(self).__name__} cannot be saved. {_advice(self)}")
        check_is_fitted(self)
        encoder = Encoder()
        document = {
            "format": FORMAT,
            "versions": {"sklearn_dpgen": __version__}
            | {name: metadata.version(name) for name in _DISTRIBUTIONS},
            "model": encoder.encode(self, ""),
        }
        write_file(path, document, encoder.arrays, _check_written)


def declared(kind: type, name: str) -> dict:
    """Return a declaration of a class put together with those of its bases, which come first."""
    found: dict = {}
    for base in reversed(kind.__mro__):
        found |= vars(base).get(name, {})
    return found


def _describe(estimator):
    kind, held = type(estimator), vars(estimator)
    # With what the schema declares, in the place of None.
    parameters = {name: getattr(estimator, name) for name in estimator.get_params(deep=False)}
    parameters |= dict.fromkeys(declared(kind, "_not_saved").keys() & parameters.keys())
    return parameters | {n: held[n] for n in declared(kind, "_saved_state") if n in held}


def _build(kind, found):
    names, found = kind._get_param_names(), kind._of_former(dict(found))
    estimator = kind(**{name: found.pop(name) for name in names if name in found})
    estimator.set_params(**dict.fromkeys(declared(kind, "_not_saved").keys() & set(names)))
    estimator._validate_params()
    if found:
        check_fields(found, declared(kind, "_saved_state"), kind.__name__)
        vars(estimator).update(found)
        estimator._check_saved_state()
    return estimator


def _check_written(path):
    """Raise ValueError if a new file cannot be loaded, before it replaces an older one."""
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
    return "Its class does not declare _saved_state, which says what a file holds."


def load(path: "str | os.PathLike") -> "BaseEstimator":
    """Read a fitted estimator from a file: see :func:`sklearn_dpgen.load`."""
    document, arrays = read_file(path)
    version = document.get("format")
    if type(version) is not int or version < 1:
        raise InvalidFileError(f"The file has an unknown format: {version!r}.")
    if version > FORMAT:
        raise InvalidFileError(
            f"The file has format {version}, and this release, {__version__}, reads formats up to "
            f"{FORMAT}: install a newer one. {_origin(document)}"
        )
    try:
        estimator = Decoder(arrays).decode(document.get("model"))
        if not isinstance(estimator, SavedEstimator):
            raise InvalidFileError("The file holds no estimator.")
        # The state has no attribute that a fit might lack but those declared so.
        if not any(name in vars(estimator) for name in declared(type(estimator), "_saved_state")):
            raise InvalidFileError("The estimator is not fitted.")
        arrays.check_empty()
    except MemoryError:
        raise
    except Exception as error:  # of any type, depending on what a file holds
        # Any message may be quoted: it is about the file of a model, which holds no record.
        fault = InvalidFileError(f"{Path(path).name}: {error} {_origin(document)}".rstrip())
        raise fault from error
    return estimator


def _origin(document):
    """Return which release wrote a file, as the file states it."""
    versions = document.get("versions")
    version = versions.get("sklearn_dpgen") if isinstance(versions, dict) else None
    return f"It was written by release {version}." if isinstance(version, str) else ""
