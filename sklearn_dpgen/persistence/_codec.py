"""Values as plain JSON and arrays, and back. Objects are those of the registry of classes."""

import datetime
import math
import sys
from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd

from sklearn_dpgen.exceptions import InvalidFileError, PublicTypeError
from sklearn_dpgen.persistence._container import Arrays
from sklearn_dpgen.persistence._declarations import class_of_type, find_class

__all__ = ["Decoder", "Encoder"]

# Lists of numbers from here on are stored as tensors.
_LONG = 16
_SEQUENCES = {"tuple": tuple, "list": list, "frozenset": frozenset}
_TENSORS = {
    f"torch.{name}" for name in ("float16", "float32", "float64", "int32", "int64", "uint8", "bool")
}
_SIDES = ("left", "right", "both", "neither")
_UNITS = ("s", "ms", "us", "ns")


class Encoder:
    """Writes values as JSON, and collects their arrays.

    Attributes
    ----------
    arrays : dict of str to ndarray
    """

    def __init__(self) -> None:
        self.arrays: dict[str, np.ndarray] = {}

    def encode(self, value: object, place: str) -> object:
        """Return a value as plain JSON.

        Parameters
        ----------
        value : object
        place : str
            The path of the value, which names its array and is the subject of errors.

        Raises
        ------
        TypeError
            A function, a network of the user, or another object of no class of the registry.
        """
        if value is None or type(value) in (bool, int, str):
            return value
        if type(value) is float:
            return value if math.isfinite(value) else {"float": repr(value)}
        if type(value) is list and not _is_long(value):
            return [self.encode(item, f"{place}.{i}") for i, item in enumerate(value)]
        if type(value) in _SEQUENCES.values():
            return {type(value).__name__: self._items(value, place)}
        entry = class_of_type(type(value))
        if entry is not None:
            fields = entry.describe(value)
            if not entry.is_json:
                # Settings within an estimator have the names by which its set_params knows them.
                is_nested = hasattr(value, "set_params") and not hasattr(value, "fit")
                prefix = f"{place}{'__' if is_nested else '.'}" if place else ""
                fields = {key: self.encode(part, f"{prefix}{key}") for key, part in fields.items()}
            return {"object": entry.type.__name__, "fields": fields}
        if isinstance(value, Mapping):
            pairs = enumerate(value.items())
            return {"dict": [self._pair(pair, f"{place}.{i}") for i, pair in pairs]}
        if isinstance(value, np.ndarray):
            return self._array(value, place)
        # Whoever holds a tensor has imported PyTorch; a file without any does not need it.
        torch = sys.modules.get("torch")
        if torch is not None and isinstance(value, torch.device):
            return str(value)
        if torch is not None and isinstance(value, torch.Tensor) and str(value.dtype) in _TENSORS:
            return self._tensor(value.detach().cpu(), place, torch)
        if isinstance(value, np.generic) and value.dtype.kind in "biuf":
            return {"scalar": [value.dtype.name, self.encode(value.item(), place)]}
        return self._other(value, place)

    def _pair(self, pair, place):
        return [self.encode(part, f"{place}.{i}") for i, part in enumerate(pair)]

    def _items(self, value, place):
        if _is_long(value):
            return {"array": self._kept(np.array(value), place)}
        # A set has no order; sorted, the same set makes the same file.
        items = sorted(value, key=repr) if isinstance(value, frozenset) else value
        return [self.encode(item, f"{place}.{i}") for i, item in enumerate(items)]

    def _array(self, value, place):
        if value.dtype.kind in "biuf" and value.dtype.itemsize <= 8:
            value = np.asarray(value, value.dtype.newbyteorder("<"))
            # Matrix products may round differently in another order of memory.
            if value.ndim > 1 and value.flags.f_contiguous and not value.flags.c_contiguous:
                return {"array": self._kept(value.T, place), "order": "F"}
            return {"array": self._kept(value, place)}
        if value.dtype.kind in "UO" and value.ndim == 1:
            items = [self.encode(item, place) for item in value.tolist()]
            return {"labels": items, "dtype": value.dtype.str[1:]}
        raise PublicTypeError(f"{place} is an array of {value.dtype}, which cannot be saved.")

    def _tensor(self, value, place, torch):
        # The layout of the filters of some networks: another one rounds differently.
        is_last = value.ndim == 4 and value.is_contiguous(memory_format=torch.channels_last)
        if is_last and not value.is_contiguous():
            array = value.permute(0, 2, 3, 1).numpy()
            return {"tensor": self._kept(array, place), "order": "channels_last"}
        return {"tensor": self._kept(value.numpy(), place)}

    def _kept(self, array, place):
        self.arrays[place] = array
        return place

    def _other(self, value, place):
        if isinstance(value, pd.Series | pd.Index):
            return self._array(value.to_numpy(), place)
        if isinstance(value, pd.Interval):
            ends = (self.encode(end, place) for end in (value.left, value.right))
            return {"interval": [*ends, value.closed]}
        if isinstance(value, pd.Timestamp) and value.tz is None:
            return {"timestamp": [value.value, value.unit]}
        if isinstance(value, np.datetime64):
            value = value.item()
        if type(value) in (datetime.date, datetime.datetime) and not getattr(value, "tzinfo", None):
            return {type(value).__name__: value.isoformat()}
        subject = place.partition(".")[0]
        raise PublicTypeError(
            f"{place} holds a {type(value).__name__}, which cannot be saved: a file holds no code, "
            "and only objects of this package. Where sampling and predicting do without it, "
            f"set_params({subject}=...) to None or to a plain value before."
        )


def _is_long(value):
    """Return whether a sequence is of so many numbers of one type that it is an array."""
    if len(value) < _LONG or isinstance(value, frozenset):
        return False
    kind = type(value[0])
    if kind not in (int, float) or any(type(item) is not kind for item in value):
        return False
    return kind is float or all(-(2**63) <= item < 2**63 for item in value)


class Decoder:
    """Reads values that an :class:`Encoder` wrote down, and nothing else.

    Parameters
    ----------
    arrays : Arrays
    """

    def __init__(self, arrays: Arrays) -> None:
        self._arrays = arrays

    def decode(self, node: object) -> Any:
        """Return the value of a node of JSON.

        Raises
        ------
        InvalidFileError
            A node of no known form.
        """
        if isinstance(node, list):
            return [self.decode(item) for item in node]
        if not isinstance(node, dict):
            return node
        form = next(iter(node), None)
        allowed = _FORMS.get(form, (form,))
        method = getattr(self, f"_{form}", None) if form in _READ else None
        if method is None or not {*node} <= {*allowed}:
            raise InvalidFileError(f"The document has an entry of no known form: {[*node][:3]}.")
        return method(**node)

    def _float(self, float):
        if float not in ("inf", "-inf", "nan"):
            raise InvalidFileError("The document has a float of no known form.")
        return _NUMBERS[float]

    def _sequence(self, kind, items):
        if isinstance(items, dict) and [*items] == ["array"]:
            return kind(self._arrays.take_list(items["array"]))
        if not isinstance(items, list):
            raise InvalidFileError("The document has a sequence of no known form.")
        return kind(map(self.decode, items))

    def _tuple(self, tuple):
        return self._sequence(_SEQUENCES["tuple"], tuple)

    def _list(self, list):
        return self._sequence(_SEQUENCES["list"], list)

    def _frozenset(self, frozenset):
        return self._sequence(_SEQUENCES["frozenset"], frozenset)

    def _dict(self, dict):
        return {self.decode(key): self.decode(value) for key, value in dict}

    def _array(self, array, order="C"):
        if order not in ("C", "F"):
            raise InvalidFileError("An array has no known order.")
        found = self._arrays.take(array)
        return found if order == "C" else found.T

    def _tensor(self, tensor, order="C"):
        import torch  # which files without tensors do without

        found = torch.from_numpy(self._arrays.take(tensor))
        if order not in ("C", "channels_last") or (order != "C" and found.ndim != 4):
            raise InvalidFileError("A tensor has no known order.")
        return found if order == "C" else found.permute(0, 3, 1, 2)

    def _scalar(self, scalar):
        name, value = scalar
        dtype = np.dtype(name) if name in _SCALARS else None
        value = self.decode(value)
        if dtype is None or not isinstance(value, bool | int | float):
            raise InvalidFileError("The document has a number of no known type.")
        return dtype.type(value)

    def _labels(self, labels, dtype):
        values = self.decode(labels)
        if dtype == "O":
            if not all(isinstance(value, bool | int | float | str | None) for value in values):
                raise InvalidFileError("The document has a label of no known type.")
            found = np.empty(len(values), dtype=object)
            found[:] = values
            return found
        found = np.array(values, dtype=str)
        # The width must be that of the longest label, or a file could ask for much memory.
        if found.ndim != 1 or not all(isinstance(value, str) for value in values):
            raise InvalidFileError("The document has labels of no known type.")
        if found.dtype.str[1:] != dtype:
            raise InvalidFileError("The document has labels of another width than it says.")
        return found

    def _interval(self, interval):
        left, right, closed = interval
        if closed not in _SIDES:
            raise InvalidFileError("The document has an interval of no known form.")
        return pd.Interval(self.decode(left), self.decode(right), closed=closed)

    def _timestamp(self, timestamp):
        nanoseconds, unit = timestamp
        if type(nanoseconds) is not int or unit not in _UNITS:
            raise InvalidFileError("The document has a date of no known form.")
        return pd.Timestamp(nanoseconds, unit="ns").as_unit(unit)

    def _date(self, date):
        return datetime.date.fromisoformat(date)

    def _datetime(self, datetime):
        return _from_iso(datetime)

    def _object(self, object, fields):
        entry = find_class(object)
        if entry is None or not isinstance(fields, dict):
            raise InvalidFileError("The document has an object of no known class.")
        self._arrays.spend(entry.n_bytes)
        if not entry.is_json:
            fields = {name: self.decode(node) for name, node in fields.items()}
        return entry.build(fields)


_from_iso = datetime.datetime.fromisoformat
_NUMBERS = {"inf": math.inf, "-inf": -math.inf, "nan": math.nan}
_SCALARS = {"bool", *(f"{k}{n}" for k in ("int", "uint", "float") for n in (8, 16, 32, 64))} - {
    "float8"
}
_FORMS: dict[Any, tuple] = {
    "array": ("array", "order"),
    "tensor": ("tensor", "order"),
    "labels": ("labels", "dtype"),
    "object": ("object", "fields"),
}
_READ = {"float", *_SEQUENCES, "dict", "array", "tensor", "scalar", "labels"} | {
    "interval",
    "timestamp",
    "date",
    "datetime",
    "object",
}
