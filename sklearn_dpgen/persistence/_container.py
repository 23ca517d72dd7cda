"""One safetensors file: a strict JSON document in its metadata, arrays as its tensors.

Sizes, depth and numbers are bounded before anything is parsed or takes memory.
"""

import hashlib
import json
import math
import os
import re
import secrets
import stat
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import safetensors.numpy

from sklearn_dpgen.exceptions import InvalidFileError

__all__ = ["Arrays", "read_file", "write_file"]

# The key of the metadata that holds the document.
_KEY = "sklearn_dpgen"
_BLANK = "0" * 64
# How the document begins, so that what it is sealed by is found without reading it.
_SEAL = '{"sha256": "'

# Public bounds. A text is held a few times while it is read, and a value of it, as an object of
# Python, takes some hundred bytes: beyond what a small file may cost, both go with the file.
_HEADER_BYTES = 1 << 20
_VALUE_COST, _ITEM_COST, _FREE_COST = 128, 32, 1 << 23

_DTYPES = {
    "BOOL": "|b1",
    "U8": "|u1",
    "I8": "|i1",
    "U16": "<u2",
    "I16": "<i2",
    "U32": "<u4",
    "I32": "<i4",
    "U64": "<u8",
    "I64": "<i8",
    "F16": "<f2",
    "F32": "<f4",
    "F64": "<f8",
}
_MOST_DIMENSIONS = 32

_MOST_DEPTH = 64
# Integers of 64 bits have 20 digits; labels may be longer, but not much.
_MOST_DIGITS = 40

# Possessive: no string is tried in two ways.
_STRINGS = re.compile(rb'"(?:[^"\\]++|\\.)*+"', re.DOTALL)
_BRACKETS = re.compile(rb"[\[\]{}]")
_MARKS = (b"[", b"{", b",", b":")


class Arrays:
    """Arrays of a file by name, of which each is taken once, and an allowance of Python objects.

    Parameters
    ----------
    arrays : mapping of str to ndarray
    left : int
        Bytes that objects may take.
    """

    def __init__(self, arrays: Mapping[str, np.ndarray], left: int) -> None:
        self._arrays, self._left = dict(arrays), left

    def take(self, name: str) -> np.ndarray:
        """Return an array, which is then in the hands of whoever took it alone."""
        if not isinstance(name, str) or name not in self._arrays:
            raise InvalidFileError(f"There is no tensor {name!r}, or it is used twice.")
        return self._arrays.pop(name)

    def take_list(self, name: str) -> list:
        """Return a vector as a list of Python numbers."""
        array = self.take(name)
        if array.ndim != 1:
            raise InvalidFileError(f"The tensor {name!r} is no list.")
        self.spend(array.size * _ITEM_COST)
        return array.tolist()

    def spend(self, n_bytes: int) -> None:
        """Count what objects are about to take, or raise InvalidFileError if it is too much."""
        self._left -= n_bytes
        if self._left < 0:
            raise InvalidFileError("The file holds objects that take far more memory than it has.")

    def check_empty(self) -> None:
        """Raise InvalidFileError if an array was not taken."""
        if self._arrays:
            raise InvalidFileError(f"Tensors are not used: {sorted(self._arrays)[:5]}.")


def write_file(
    path: str | os.PathLike,
    document: dict,
    arrays: Mapping[str, np.ndarray],
    check: Callable[[Path], object],
) -> None:
    """Write a document and arrays, all of it or nothing.

    Parameters
    ----------
    path : path-like
        A file that is there is replaced once the new one is complete.
    document : dict
        Plain JSON.
    arrays : mapping of str to ndarray
        Of numbers.
    check : callable
        Of the path of the new file, before it takes the place of another: what it raises is raised.
    """
    arrays = {name: np.ascontiguousarray(array) for name, array in arrays.items()}
    content = json.dumps({"sha256": _BLANK} | document, allow_nan=False)
    digests = {name: _digest(a.dtype, a.shape, _bytes_of(a)) for name, a in arrays.items()}
    content = content.replace(_BLANK, _seal(content.encode(), digests), 1)
    data = safetensors.numpy.save(arrays, {_KEY: content})
    path = Path(path)
    # Beside it: within one file system a name is replaced in one step.
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
    try:
        with open(temporary, "xb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        check(temporary)
        os.replace(temporary, path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def read_file(path: str | os.PathLike) -> tuple[dict, Arrays]:
    """Read a document and arrays, which take at most twice the memory of the file.

    Parameters
    ----------
    path : path-like

    Returns
    -------
    document : dict
    arrays : Arrays

    Raises
    ------
    InvalidFileError
        What is no such file, or was changed.
    OSError
        What is not there, or cannot be read.
    """
    # A pipe is opened without waiting for whoever writes to it.
    flags = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
    descriptor = os.open(path, flags)
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise InvalidFileError(f"{os.fspath(path)!r} is no file, but a folder or a device.")
        with open(descriptor, "rb", buffering=0, closefd=False) as file:
            return _read(file, status.st_size)
    finally:
        os.close(descriptor)


def _read(file, size):
    n_bytes = int.from_bytes(_read_exactly(file, 8), "little")
    # Of a zip archive or a pickle the first bytes make a number that no file is as large as.
    if not 0 < n_bytes <= min(size - 8, _HEADER_BYTES + size // 8):
        raise InvalidFileError("The header is larger than the file, or too large: no safetensors.")
    header = _read_exactly(file, n_bytes)
    # The document is a string in the header, in which quotes are escaped.
    n_values = _count_marks(header) + _count_marks(header.replace(rb"\"", b'"'))
    if n_values * _VALUE_COST > _FREE_COST + size:
        raise InvalidFileError(f"The header holds some {n_values} values, which are too many.")
    content, specs = _read_header(_parse_json(header, "The header"))
    if 8 + n_bytes + sum(spec.n_bytes for spec in specs) != size:
        raise InvalidFileError("The tensors are not as large as the rest of the file.")
    arrays, digests = {}, {}
    for spec in specs:
        array = arrays[spec.name] = np.empty(spec.shape, spec.dtype)
        data = _bytes_of(array)
        _fill(file, data)
        if spec.dtype == bool and data.nbytes and np.frombuffer(data, np.uint8).max() > 1:
            raise InvalidFileError(f"The tensor {spec.name!r} has truth values besides 0 and 1.")
        digests[spec.name] = _digest(spec.dtype, spec.shape, data)
    if not content.startswith(_SEAL):
        raise InvalidFileError("The file was written by other software: it has no document.")
    stated = content[len(_SEAL) : len(_SEAL) + len(_BLANK)]
    blank = content.replace(stated, _BLANK, 1) if len(stated) == len(_BLANK) else content
    if _seal(blank.encode(), digests) != stated:
        raise InvalidFileError("The file is damaged: its SHA-256 is not the one that it states.")
    document = _parse_json(content.encode(), "The document")
    if not isinstance(document, dict):
        raise InvalidFileError("The document is no object of JSON.")
    return document, Arrays(arrays, _FREE_COST + size)


@dataclass(frozen=True)
class _Spec:
    """Where a tensor is, and what it is like."""

    name: str
    dtype: np.dtype
    shape: tuple[int, ...]
    start: int
    n_bytes: int


def _read_header(header):
    """Return the document as text, and the tensors in the order in which they are stored."""
    if not isinstance(header, dict):
        raise InvalidFileError("The header is no object of JSON.")
    metadata = header.pop("__metadata__", None)
    content = metadata.get(_KEY) if isinstance(metadata, dict) else None
    if not isinstance(content, str):
        raise InvalidFileError("The file was written by other software: it has no document.")
    specs = sorted((_read_spec(*item) for item in header.items()), key=lambda s: s.start)
    end = 0
    for spec in specs:
        if spec.start != end:
            raise InvalidFileError(f"The tensor {spec.name!r} overlaps another, or leaves a gap.")
        end += spec.n_bytes
    return content, specs


def _read_spec(name, entry):
    fault = InvalidFileError(f"The tensor {name!r} is not described as one of safetensors is.")
    if not isinstance(entry, dict) or set(entry) != {"dtype", "shape", "data_offsets"}:
        raise fault
    dtype, shape, offsets = entry["dtype"], entry["shape"], entry["data_offsets"]
    if not (isinstance(shape, list) and isinstance(offsets, list) and len(offsets) == 2):
        raise fault
    if not all(type(n) is int and 0 <= n < 2**63 for n in (*shape, *offsets)):
        raise fault
    if not isinstance(dtype, str) or dtype not in _DTYPES or len(shape) > _MOST_DIMENSIONS:
        raise InvalidFileError(f"The tensor {name!r} is of no dtype or shape that is known.")
    start, stop = offsets
    dtype = np.dtype(_DTYPES[dtype])
    if math.prod(shape) * dtype.itemsize != stop - start:
        raise InvalidFileError(f"The tensor {name!r} is not as large as its shape.")
    return _Spec(name, dtype, tuple(shape), start, stop - start)


def _read_exactly(file, n_bytes):
    data = bytearray(n_bytes)
    _fill(file, memoryview(data))
    return bytes(data)


def _fill(file, data):
    """Read as many bytes as fit."""
    while len(data):
        n_read = file.readinto(data)
        if not n_read:
            raise InvalidFileError("The file ends too early.")
        data = data[n_read:]


def _bytes_of(array):
    return memoryview(array.reshape(-1).view(np.uint8))


def _digest(dtype, shape, data):
    """Return a digest of a tensor: its dtype, its shape and its bytes."""
    return hashlib.sha256(f"{dtype.str} {list(shape)} ".encode() + hashlib.sha256(data).digest())


def _seal(content, digests):
    """Return the SHA-256 of all that a file holds, whatever the order of its tensors."""
    seal = hashlib.sha256(content)
    for name in sorted(digests):
        seal.update(hashlib.sha256(name.encode()).digest() + digests[name].digest())
    return seal.hexdigest()


def _count_marks(text: bytes) -> int:
    """Return an upper bound of the number of values in a JSON text, without reading it."""
    bare = _STRINGS.sub(b"", text)
    return sum(map(bare.count, _MARKS)) + 1


def _parse_json(text: bytes, what: str) -> object:
    """Return what a JSON text holds, if it is strict and not deep.

    Parameters
    ----------
    text : bytes
        ASCII. Its size, and by `_count_marks` its number of values, were checked.
    what : str
        Named in errors.

    Raises
    ------
    InvalidFileError
        Keys that are there twice, NaN or infinity, integers of many digits, many levels, text that
        is not ASCII, or no JSON.
    """
    if not text.isascii():
        raise InvalidFileError(f"{what} must be ASCII.")
    depth = 0
    for bracket in _BRACKETS.finditer(_STRINGS.sub(b"", text)):
        depth += 1 if bracket[0] in b"[{" else -1
        if depth > _MOST_DEPTH:
            raise InvalidFileError(f"{what} has more than {_MOST_DEPTH} levels.")
    try:
        return json.loads(
            text,
            object_pairs_hook=_distinct,
            parse_constant=_no_constant,
            parse_int=_short_integer,
            parse_float=_finite,
        )
    except InvalidFileError:
        raise
    except (ValueError, RecursionError):
        raise InvalidFileError(f"{what} is no JSON.") from None


def _distinct(pairs):
    found = dict(pairs)
    if len(found) < len(pairs):
        raise InvalidFileError("A file has a key twice.")
    return found


def _no_constant(name):
    raise InvalidFileError(f"A file holds {name}, which is no JSON.")


def _short_integer(digits):
    if len(digits) > _MOST_DIGITS:
        raise InvalidFileError(f"A file holds an integer of more than {_MOST_DIGITS} digits.")
    return int(digits)


def _finite(digits):
    number = float(digits)
    if number in (float("inf"), -float("inf")):
        raise InvalidFileError("A file holds a number that no float is as large as.")
    return number
