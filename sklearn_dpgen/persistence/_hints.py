"""What is expected of a value that was read: its type, and the dtype and shape of an array."""

from collections.abc import Mapping
from dataclasses import dataclass
from numbers import Integral, Real
from types import GenericAlias, NoneType, UnionType
from typing import Any, Literal, get_args, get_origin

import numpy as np
import torch

from sklearn_dpgen.exceptions import InvalidFileError

__all__ = ["Array", "Maybe", "OneOf", "check_fields", "fits", "list_of", "tuple_of"]


@dataclass(frozen=True)
class Array:
    """An array of numbers, or of labels.

    Parameters
    ----------
    kinds : str
        Kinds of its dtype, as NumPy names them.
    ndim : int or None, default=None
        None for any.
    low, high : float or None, default=None
        Bounds of the entries. Numbers are finite, but for an end that is infinite.
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
        # False for NaN.
        return bool((value >= low).all() and (value <= high).all())


@dataclass(frozen=True)
class OneOf:
    """A value that fits one of several hints."""

    hints: tuple

    def holds(self, value: object) -> bool:
        """Return whether it does."""
        return any(fits(value, hint) for hint in self.hints)


@dataclass(frozen=True)
class Maybe:
    """A field that need not be there."""

    hint: object

    def holds(self, value: object) -> bool:
        """Return whether a value is as it must be if it is there."""
        return fits(value, self.hint)


def list_of(hint: object) -> GenericAlias:
    """Return ``list[hint]``, of a hint that need not be a type."""
    return GenericAlias(list, (hint,))


def tuple_of(hint: object) -> GenericAlias:
    """Return ``tuple[hint, ...]``, of a hint that need not be a type."""
    return GenericAlias(tuple, (hint, ...))


def fits(value: object, hint: Any) -> bool:
    """Return whether a value is of a type, with what is in it.

    Parameters
    ----------
    value : object
    hint : object
        A type; a union; ``list[...]``, ``tuple[..., ...]``, ``dict[..., ...]`` or
        ``frozenset[...]`` of hints; a ``Literal``; an :class:`Array`. As usual a float may be an
        integer; a bool is neither.
    """
    if hasattr(hint, "holds"):
        return hint.holds(value)
    if isinstance(hint, UnionType):
        return any(fits(value, part) for part in get_args(hint))
    if get_origin(hint) is Literal:
        return isinstance(value, str) and value in get_args(hint)
    if isinstance(hint, GenericAlias):
        return _fits_items(value, get_origin(hint), get_args(hint))
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
    """Raise InvalidFileError unless fields are those that are expected.

    Parameters
    ----------
    found : mapping of str to object
    hints : mapping of str to hint
    what : str
        Named in errors.
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
            kind = value.dtype if isinstance(value, np.ndarray | torch.Tensor) else type(value)
            raise InvalidFileError(f"{name!r} of {what} is not as expected: {kind}.")
