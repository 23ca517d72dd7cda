"""Joint answers as a table of five columns, which any file keeps, and back."""

import json

import numpy as np
import pandas as pd

from sklearn_dpgen.exceptions import PublicValueError
from sklearn_dpgen.preprocessing._reader import has_no_names

__all__ = [
    "KEY_BITS",
    "RELEASE_COLUMNS",
    "check_is_release",
    "check_origin",
    "count_repeated",
    "is_release",
    "join_keys",
    "read_asked",
    "read_integers",
    "split_keys",
    "write_release",
]

RELEASE_COLUMNS = ["asked", "grouping", "answer", "epsilon", "design"]
# Keys have so many bits, 15 digits, which any spreadsheet keeps; in parts that float32 keeps.
KEY_BITS, _PART_BITS = 48, 16


def write_release(names, asked, keys, answers, epsilon, design):
    """Return answers as a data frame with the columns ``RELEASE_COLUMNS``.

    Parameters
    ----------
    names : list of str
        Of the columns of the schema.
    asked : ndarray of int of shape (n, s)
    keys, answers : ndarray of int of shape (n,)
    epsilon : float
    design : str
    """
    kinds, kind = np.unique(asked, axis=0, return_inverse=True)
    texts = [json.dumps([names[j] for j in row], ensure_ascii=False) for row in kinds]
    return pd.DataFrame(
        {
            "asked": np.array(texts, dtype=object)[kind.ravel()],
            "grouping": keys,
            "answer": answers,
            "epsilon": epsilon,
            "design": design,
        }
    )


def is_release(X):
    """Return whether a frame, of pandas or dask, has the columns of answers, and maybe others."""
    columns = _columns(X)
    return columns is not None and set(RELEASE_COLUMNS) <= columns


def _columns(X):
    """Return the columns of a frame of pandas or dask; None of others, which would compute them."""
    columns = X.columns if hasattr(type(X), "iloc") else None
    return set(columns) if isinstance(columns, pd.Index) else None


def check_is_release(Y):
    """Refuse what has not the columns of answers, such as an array: it may hold records."""
    columns = _columns(Y)
    if has_no_names(Y) or (columns is not None and not set(RELEASE_COLUMNS) & columns):
        raise PublicValueError(
            f"Answers have the columns {RELEASE_COLUMNS}, and X has none of them. Raw records are "
            "for transform, or for an estimator with privatize=True."
        )
    if columns is not None and columns != set(RELEASE_COLUMNS):
        missing = [name for name in RELEASE_COLUMNS if name not in columns]
        lacks = f" X lacks {missing}." if missing else ""
        raise PublicValueError(
            f"Answers have the columns {RELEASE_COLUMNS} and no others, such as an index that was "
            f"written to a file.{lacks}"
        )


def check_origin(frame, epsilon, design):
    """Refuse missing entries, and answers under another budget or design, naming both."""
    for name in RELEASE_COLUMNS:
        if frame[name].isna().any():
            raise PublicValueError(f"Column {name!r} of the answers has missing values.")
    given = _numbers(frame["epsilon"])
    if np.isnan(given).any():
        raise PublicValueError("Column 'epsilon' of the answers must hold numbers.")
    # What a text file keeps of a float may differ in the last digit.
    other = ~np.isclose(given, epsilon, rtol=1e-9, atol=0)
    if other.any():
        raise PublicValueError(
            f"Answers were given with epsilon={given[other][0]:g}, but mechanism has epsilon="
            f"{epsilon:g}: take the mechanism that asked. To learn from both, fit each by itself."
        )
    other = (frame["design"].astype(str) != design).to_numpy()
    if other.any():
        raise PublicValueError(
            f"Answers are of the design {frame['design'][other].iloc[0]!r}, but mechanism is of "
            f"{design!r}: its schema or bins are not those of the mechanism that asked."
        )


def read_asked(texts, names, most):
    """Return the numbers of the columns that were asked, padded with -1.

    Parameters
    ----------
    texts : Series of str of shape (n,)
    names : list of str
        Of the columns of the schema.
    most : int
        Columns of a question.

    Returns
    -------
    ndarray of int64 of shape (n, s)
    """
    places = {name: j for j, name in enumerate(names)}
    codes, kinds = pd.factorize(texts.astype(str))
    asked = []
    for text in kinds:
        found = _names_of(text)
        if not found or len(set(found)) < len(found):
            raise PublicValueError(
                "Column 'asked' of the answers must hold JSON lists of distinct columns."
            )
        unknown = [name for name in found if name not in places]
        if unknown:
            raise PublicValueError(
                f"Column 'asked' of the answers names columns that the schema does not: {unknown}."
            )
        if len(found) > most:
            raise PublicValueError(
                f"Column 'asked' of the answers names {len(found)} columns at once, and the budget "
                f"has an answer on at most {most}."
            )
        asked.append([places[name] for name in found])
    width = max(map(len, asked))
    padded = np.array([row + [-1] * (width - len(row)) for row in asked], dtype=np.int64)
    return padded[codes]


def _names_of(text):
    """Return the names in a JSON list, or an empty list where it is none."""
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return []
    is_list = isinstance(found, list) and all(isinstance(name, str) for name in found)
    return found if is_list else []


def read_integers(frame, name, stop):
    """Return a column of integers from 0 to below ``stop``, as they may come from a file."""
    values = _numbers(frame[name])
    if not ((values == np.floor(values)) & (values >= 0) & (values < stop)).all():
        raise PublicValueError(
            f"Column {name!r} of the answers must hold integers from 0 to below what was asked."
        )
    return values.astype(np.int64)


def _numbers(values):
    """Return a column as floats; NaN for what is no number, in text."""
    if values.dtype == object:
        # Of objects numpy takes truth values and complex numbers too, and not all integers.
        values = values.astype(str)
    return pd.to_numeric(values, errors="coerce").to_numpy(dtype=np.float64)


def split_keys(keys):
    """Return keys as three numbers, of 16 bits each."""
    return [(keys >> (_PART_BITS * i)) % 2**_PART_BITS for i in range(3)]


def join_keys(encoded):
    """Return the keys of encoded answers."""
    parts = encoded[:, 1:4].astype(np.int64)
    return parts[:, 0] | parts[:, 1] << _PART_BITS | parts[:, 2] << 2 * _PART_BITS


def count_repeated(encoded):
    """Return how many encoded answers are another one again: alike in all, with the key."""
    _, place, counts = np.unique(join_keys(encoded), return_inverse=True, return_counts=True)
    # Among many millions two people may have one key.
    alike = encoded[counts[place] > 1]
    return len(alike) - len(np.unique(alike, axis=0))
