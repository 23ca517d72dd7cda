"""Checks of what a domain is declared by, and its distances, rounded up."""

import math
from fractions import Fraction
from numbers import Integral

import numpy as np

from sklearn_dpgen.exceptions import PublicValueError

__all__ = ["check_size", "check_vector", "difference_above", "norm_above", "norm_order", "short"]


def norm_order(p):
    """Return ``p`` as 1, 2 or ``np.inf``."""
    if p not in (1, 2, np.inf):
        raise PublicValueError(f"p must be 1, 2 or np.inf, got {p!r}.")
    return np.inf if p == np.inf else int(p)


def norm_above(values, p):
    """Return a float that is at least the l_p norm of non-negative numbers."""
    if p == np.inf:
        return float(np.max(values))
    with np.errstate(over="ignore"):
        norm = float(np.sum(values)) if p == 1 else math.hypot(*values)
    if math.isinf(norm):
        return norm
    distinct, counts = np.unique(values, return_counts=True)
    pairs = zip(distinct.tolist(), counts.tolist(), strict=True)
    exact = sum(count * Fraction(value) ** p for value, count in pairs)
    while Fraction(norm) ** p < exact:
        norm = math.nextafter(norm, math.inf)
    return norm


def difference_above(high, low):
    """Return floats that are at least ``high - low``, entry by entry."""
    difference = high - low
    # What the subtraction rounded off, exactly (Knuth's two-sum).
    back = difference - high
    lost = (high - (difference - back)) - (low + back)
    return np.where(lost > 0, np.nextafter(difference, np.inf), difference)


def check_vector(values, name, n_features):
    """Return ``values`` as a finite read-only vector; a scalar is repeated ``n_features`` times."""
    vector = np.array(values, dtype=np.float64)
    if vector.ndim > 1:
        raise PublicValueError(
            f"{name} must be a scalar or a vector, got {vector.ndim} dimensions."
        )
    if not np.isfinite(vector).all():
        raise PublicValueError(f"{name} must be finite.")
    if vector.ndim and n_features is not None and len(vector) != n_features:
        raise PublicValueError(
            f"{name} has {len(vector)} features where {n_features} are declared."
        )
    if vector.ndim == 0:
        vector = np.full(1 if n_features is None else n_features, vector)
    vector.flags.writeable = False
    return vector


def check_size(value, name, minimum):
    """Return a number of features or categories as an int, if it is one of at least ``minimum``."""
    if isinstance(value, bool) or not isinstance(value, Integral) or value < minimum:
        raise PublicValueError(f"{name} must be an integer of at least {minimum}, got {value!r}.")
    return int(value)


def short(vector):
    """Return a vector as text of bounded length."""
    if (vector == vector[0]).all():
        return repr(float(vector[0]))
    return np.array2string(vector, threshold=6, edgeitems=2, separator=", ")
