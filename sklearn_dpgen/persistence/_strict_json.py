"""JSON from untrusted sources: its size, depth and numbers are bounded before it is read."""

import json
import re

from sklearn_dpgen.exceptions import InvalidFileError

__all__ = ["count_marks", "parse_json"]

_MOST_DEPTH = 64
# Integers of 64 bits have 20 digits; labels may be longer, but not much.
_MOST_DIGITS = 40

# Possessive: no string is tried in two ways.
_STRINGS = re.compile(rb'"(?:[^"\\]++|\\.)*+"', re.DOTALL)
_BRACKETS = re.compile(rb"[\[\]{}]")
_MARKS = (b"[", b"{", b",", b":")


def count_marks(text: bytes) -> int:
    """Return an upper bound of the number of values in a JSON text, without reading it."""
    bare = _STRINGS.sub(b"", text)
    return sum(map(bare.count, _MARKS)) + 1


def parse_json(text: bytes, what: str) -> object:
    """Return what a JSON text holds, if it is strict and not deep.

    Parameters
    ----------
    text : bytes
        ASCII. Its size, and by `count_marks` its number of values, were checked.
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
        raise InvalidFileError(f"{what} is not valid JSON.") from None


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
