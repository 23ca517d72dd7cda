"""Declarations of what a file may hold: type hints, and the closed registry of classes.

A class enters the registry when it is defined: a private estimator by declaring ``_saved_state``,
any other class by the decorator ``saved``. A file names classes by their ``__name__`` alone.
"""

import importlib
import inspect
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, is_dataclass
from functools import partial
from numbers import Integral, Real
from types import GenericAlias, NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin

import numpy as np

from sklearn_dpgen.exceptions import InvalidFileError, PublicTypeError

__all__ = [
    "Array",
    "Maybe",
    "SavedClass",
    "check_fields",
    "class_of_type",
    "demand",
    "find_class",
    "fits",
    "is_distribution",
    "list_of",
    "register",
    "saved",
    "saved_as_json",
    "tuple_of",
]

# Where to find the classes that a file may name before anything else has imported them. The table
# is static: no part of a module's name ever comes from a file.
_MODULES = {
    "tables": ["LocalTableSampler", "RelationalSampler", "TableSampler"],
    "evolution": ["NoisyVotes", "PrivateEvolutionSampler", "PrivateSignedMeasureSampler"],
    "moments": ["MomentImageSampler", "MomentSampler"],
    "moments._image_laws": ["ImageModel"],
    "nn": ["Training"],
    "sliced": [
        "ClippedGradient",
        "DPSlicedWassersteinAdapter",
        "DPSlicedWassersteinFairClassifier",
        "DPSlicedWassersteinFairEncoder",
        "DPSlicedWassersteinFairRegressor",
        "DPSlicedWassersteinGenerator",
    ],
    "smoothed": [
        "NoisyRelease",
        "SmoothedSlicedWassersteinAdapter",
        "SmoothedSlicedWassersteinGenerator",
    ],
    "deconvolution": ["DeconvolutionEM", "EntropicDeconvGAN"],
    "mechanisms": [
        "GaussianMechanism",
        "JointRandomizedResponse",
        "LaplaceMechanism",
        "RandomizedResponse",
        "TabularMechanism",
    ],
}
_MODULE_OF = {name: module for module, names in _MODULES.items() for name in names}


def demand(condition: object, message: str) -> None:
    """Raise InvalidFileError with a message unless a condition holds."""
    if not condition:
        raise InvalidFileError(message)


def is_distribution(shares: np.ndarray) -> bool:
    """Return whether a vector holds probabilities that sum to 1, as drawing requires."""
    return shares.ndim == 1 and bool((shares >= 0).all()) and abs(shares.sum() - 1) < 1e-8


@dataclass(frozen=True)
class Array:
    """Hint for an array of numbers or labels.

    Parameters
    ----------
    kinds : str
        Allowed kinds of the dtype, by NumPy's letters.
    ndim : int or None, default=None
        Number of dimensions; None allows any.
    low, high : float or None, default=None
        Bounds of the entries. Numbers must be finite, unless a bound is infinite.
    """

    kinds: str
    ndim: int | None = None
    low: float | None = None
    high: float | None = None

    def holds(self, value: object) -> bool:
        """Return whether a value is such an array."""
        if not isinstance(value, np.ndarray) or value.dtype.kind not in self.kinds:
            return False
        if self.ndim not in (None, value.ndim):
            return False
        if value.dtype.kind not in "iuf" or not value.size:
            return True
        low = np.finfo(np.float64).min if self.low is None else self.low
        high = np.finfo(np.float64).max if self.high is None else self.high
        # NaN compares as False, and is refused.
        return bool((value >= low).all() and (value <= high).all())


@dataclass(frozen=True)
class Maybe:
    """Hint for an attribute that an object may lack.

    Parameters
    ----------
    hint : object
        Hint for the attribute if it is there.
    """

    hint: object

    def holds(self, value: object) -> bool:
        """Return whether a value that is there is as it must be."""
        return fits(value, self.hint)


def list_of(hint: object) -> GenericAlias:
    """Return ``list[hint]`` for a hint that is not a type."""
    return GenericAlias(list, (hint,))


def tuple_of(hint: object) -> GenericAlias:
    """Return ``tuple[hint, ...]`` for a hint that is not a type."""
    return GenericAlias(tuple, (hint, ...))


def fits(value: object, hint: Any) -> bool:
    """Return whether a value, with its items, has the type that a hint states.

    Parameters
    ----------
    value : object
    hint : object
        A type; the name of a class, where its module is imported late; a union; a tuple of
        alternative hints; ``list[...]``, ``tuple[..., ...]``, ``dict[..., ...]`` or
        ``frozenset[...]`` of hints; a ``Literal``; an :class:`Array`. A float may be an integer;
        a bool is neither.
    """
    if hint is Any or hint is object:
        return True
    if hasattr(hint, "holds"):
        return hint.holds(value)
    if isinstance(hint, str):
        # Only classes of the registry are ever built, so a name stands for one of them.
        return any(kind.__name__ == hint for kind in type(value).__mro__)
    if isinstance(hint, tuple):
        return any(fits(value, part) for part in hint)
    origin = get_origin(hint)
    if origin in (Union, UnionType):
        return any(fits(value, part) for part in get_args(hint))
    if origin is Literal:
        return isinstance(value, str) and value in get_args(hint)
    if origin is not None:
        return _fits_items(value, origin, get_args(hint))
    if hint in (None, NoneType):
        return value is None
    if hint in (int, float):
        number = Integral if hint is int else Real
        return isinstance(value, number) and not isinstance(value, bool | np.bool_)
    return isinstance(value, hint)


def _fits_items(value, kind, hints):
    if not isinstance(value, kind):
        return False
    if isinstance(value, Mapping):
        return all(fits(k, hints[0]) and fits(v, hints[1]) for k, v in value.items())
    if kind is tuple and hints[-1] is not Ellipsis:
        pairs = zip(value, hints, strict=False)
        return len(value) == len(hints) and all(fits(item, hint) for item, hint in pairs)
    return all(fits(item, hints[0]) for item in value)


def check_fields(found: Mapping, hints: Mapping, what: str) -> None:
    """Raise InvalidFileError unless fields are complete, known, and fit their hints.

    Parameters
    ----------
    found : mapping of str to object
    hints : mapping of str to hint
    what : str
        The object, for errors.
    """
    unknown = sorted(found.keys() - hints.keys())
    missing = [
        name for name, hint in hints.items() if name not in found and not isinstance(hint, Maybe)
    ]
    if unknown or missing:
        fault = f"has unknown {unknown}" if unknown else f"lacks {missing}"
        raise InvalidFileError(f"{what} {fault}.")
    for name, value in found.items():
        if not fits(value, hints[name]):
            kind = getattr(value, "dtype", type(value))
            raise InvalidFileError(f"{name!r} of {what} is not as expected: {kind}.")


@dataclass(frozen=True)
class SavedClass:
    """A class that a file may hold: how an instance is described, and built again.

    Parameters
    ----------
    type : type
    describe : callable
        From an instance to a dict of its fields.
    build : callable
        From such a dict to an instance, or an InvalidFileError.
    n_bytes : int, default=512
        Rough memory of an instance besides its fields.
    is_json : bool, default=False
        Whether the fields are plain JSON, which is stored and read as it is.
    """

    type: type
    describe: Callable
    build: Callable
    n_bytes: int = 512
    is_json: bool = False


_REGISTRY: dict[str, SavedClass] = {}


def register(entry: SavedClass) -> None:
    """Add a class to those that a file may name.

    Raises
    ------
    TypeError
        A class from outside of the package that has the name of one of its classes.
    """
    name = entry.type.__name__
    old = _REGISTRY.get(name)
    is_ours = name in _MODULE_OF or (old is not None and not _is_outside(old.type))
    if is_ours and _is_outside(entry.type):
        raise PublicTypeError(
            f"{entry.type.__module__}.{name} declares _saved_state, but files know another class "
            f"of sklearn_dpgen by the name {name}: rename it."
        )
    # A class that is defined again, as in a notebook, takes the place of its older version.
    _REGISTRY[name] = entry


def _is_outside(kind):
    return kind.__module__.partition(".")[0] not in ("sklearn_dpgen", "torch")


def find_class(name: object) -> SavedClass | None:
    """Return the class that a file names, or None if there is none.

    A module is imported only where the static table of this module says so.
    """
    if not isinstance(name, str):
        return None
    if name not in _REGISTRY and name in _MODULE_OF:
        # A package imports the module of a class when its name is read.
        getattr(importlib.import_module(f"sklearn_dpgen.{_MODULE_OF[name]}"), name)
    entry = _REGISTRY.get(name)
    return entry if entry is not None and _is_complete(entry.type) else None


def class_of_type(kind: type) -> SavedClass | None:
    """Return the entry of exactly this type, or None if it has none."""
    entry = _REGISTRY.get(kind.__name__)
    return entry if entry is not None and entry.type is kind and _is_complete(kind) else None


def _is_complete(kind):
    """Return whether a class is more than a base that declares the state of its subclasses."""
    is_base = inspect.isabstract(kind) or (hasattr(kind, "save") and not hasattr(kind, "fit"))
    return not is_base


def saved(kind: type) -> Any:
    """Declare a class whose instances a file may hold: a class decorator.

    Parameters
    ----------
    kind : type
        ``_saved_state`` maps its attributes, which are the arguments of its constructor too, to
        hints. A dataclass whose constructor checks its fields needs none. Optional:
        ``_to_saved(self)`` and the class method ``_from_saved(cls, fields)``, where attributes and
        arguments differ; ``_check_saved_state(self)``, which raises an InvalidFileError, by
        :func:`demand`, for fields that do not fit each other; ``_saved_bytes``, the rough memory of
        an instance besides its fields.

    Returns
    -------
    type
        The same class.
    """
    hints = getattr(kind, "_saved_state", None)
    if hints is None:
        hints = {field.name: object for field in fields(kind) if field.init}
    describe = getattr(kind, "_to_saved", partial(_attributes, hints))
    n_bytes = getattr(kind, "_saved_bytes", 512)
    register(SavedClass(kind, describe, partial(_build, kind, hints), n_bytes))
    return kind


def _attributes(hints, value):
    return {name: getattr(value, name) for name in hints}


def _build(kind, hints, found):
    check_fields(found, hints, kind.__name__)
    value = kind._from_saved(found) if hasattr(kind, "_from_saved") else kind(**found)
    if hasattr(value, "_check_saved_state"):
        value._check_saved_state()
    return value


def saved_as_json(kind: Any) -> Any:
    """Declare a dataclass that is saved as the JSON of its own ``to_json``: a class decorator.

    Anybody can read it in the file. It is built by ``from_dict``, and its fields must then be as
    they are annotated.
    """

    def describe(value):
        return json.loads(value.to_json())

    def build(found):
        value = kind.from_dict(found)
        _check_annotations(value)
        return value

    register(SavedClass(kind, describe, build, is_json=True))
    return kind


def _check_annotations(value):
    """Check the fields of a dataclass, and of those that it holds, by their annotations."""
    name = type(value).__name__
    # A quoted class is compared by its name: nothing is evaluated.
    hints = {field.name: field.type for field in fields(value)}
    found = {field: getattr(value, field) for field in hints}
    check_fields(found, hints, name)
    for part in found.values():
        for item in part if isinstance(part, tuple) else [part]:
            if is_dataclass(item):
                _check_annotations(item)
