"""Checks of numbers and names, and calls and warnings that quote no record.

They do without scikit-learn, so that schemas, domains and accounting load without it.
"""

import math
import os
import sys
import warnings
from typing import TYPE_CHECKING

from sklearn_dpgen.exceptions import PublicTypeError, PublicValueError

if TYPE_CHECKING:
    # Type checkers take no int as an Integral, and no float as a Real.
    Integral = int
    Real = float
else:
    from numbers import Integral, Real

__all__ = [
    "EPSILONS",
    "Integral",
    "Real",
    "attempt",
    "call_quietly",
    "check_budget",
    "check_choice",
    "check_count",
    "check_delta",
    "check_epsilon",
    "check_fits",
    "check_n_samples",
    "check_positive",
    "check_rate",
    "check_widths",
    "set_fields",
    "warn_user",
]

# Finite budgets beyond these protect nobody, or leave nothing. Within them, privacy profiles are
# computed without overflow.
EPSILONS = 1e-50, 1e5


def attempt(function, *args, **kwargs):
    """Return the result of a function and None, or None and the class and text of its error.

    Errors are raised outside of the handler, or their context would show values.
    """
    try:
        return function(*args, **kwargs), None
    except Exception as error:  # Private values may raise any class.
        try:
            return None, (type(error), str(error))
        except Exception:  # Converting the error to text may raise as well.
            return None, (type(error), "")


def call_quietly(message, function, *args):
    """Return the result of a function of private values, or raise a PublicValueError.

    The error has only the given message, as the original one may show a value.
    """
    result, error = attempt(function, *args)
    if error is None:
        return result
    if issubclass(error[0], MemoryError):
        raise MemoryError("X does not fit in memory.")
    raise PublicValueError(message)


# Packages whose frames are skipped to find the line of the user for a warning.
_BETWEEN = ("joblib", "sklearn", "sklearn_dpgen")


def warn_user(message, category=UserWarning):
    """Warn at the line of user code that called this package."""
    level, frame = 2, sys._getframe(1)
    while frame.f_back is not None and _is_between(frame):
        level, frame = level + 1, frame.f_back
    warnings.warn(message, category, stacklevel=level)


def _is_between(frame):
    return frame.f_globals.get("__name__", "").partition(".")[0] in _BETWEEN


def set_fields(instance, **values):
    """Set fields of a frozen dataclass, in its ``__post_init__``."""
    for name, value in values.items():
        object.__setattr__(instance, name, value)


def check_positive(value, name, *, allow_infinite=False):
    """Return ``value`` as a float, or raise an error if it is not a positive number."""
    if isinstance(value, bool) or not isinstance(value, Real):
        raise PublicTypeError(f"{name} must be a real number, got {type(value).__name__}.")
    value = float(value)
    if not value > 0 or (math.isinf(value) and not allow_infinite):
        rule = "positive" if allow_infinite else "positive and finite"
        raise PublicValueError(f"{name} must be {rule}, got {value}.")
    return value


def check_epsilon(epsilon, name="epsilon", *, allow_infinite=True):
    """Return the privacy budget in nats as a float; ``np.inf`` is no noise."""
    return check_positive(epsilon, name, allow_infinite=allow_infinite)


def check_budget(epsilon):
    """Return the budget of a call as a float, in the range of those of estimators or ``np.inf``."""
    epsilon = check_epsilon(epsilon)
    if math.isfinite(epsilon) and not EPSILONS[0] <= epsilon <= EPSILONS[1]:
        raise PublicValueError(
            f"epsilon must be from {EPSILONS[0]:g} to {EPSILONS[1]:g}, or np.inf for no noise, "
            f"got {epsilon:g}."
        )
    return epsilon


def check_delta(delta, name="delta"):
    """Return delta as a float strictly between 0 and 1."""
    delta = check_positive(delta, name)
    if delta >= 1:
        raise PublicValueError(f"{name} must be strictly between 0 and 1, got {delta}.")
    return delta


def check_rate(rate, name="sampling_rate"):
    """Return a sampling rate as a float in (0, 1]."""
    rate = check_positive(rate, name)
    if rate > 1:
        raise PublicValueError(f"{name} must be in (0, 1], got {rate}.")
    return rate


def check_count(count, name):
    """Return a count as an int of at least 1."""
    if isinstance(count, bool) or not isinstance(count, Integral):
        raise PublicTypeError(f"{name} must be an integer, got {type(count).__name__}.")
    if count < 1:
        raise PublicValueError(f"{name} must be at least 1, got {count}.")
    return int(count)


def check_choice(value, name, choices):
    """Return ``value`` if it is one of ``choices``."""
    if value not in choices:
        raise PublicValueError(f"{name} must be one of {list(choices)}, got {value!r}.")
    return value


def check_n_samples(n_samples, width=1):
    """Return a number of records to sample, at least 1, as an int.

    Parameters
    ----------
    n_samples : int
    width : int, default=1
        Numbers per record during sampling, latents and one-hot blocks included.

    Raises
    ------
    PublicValueError
        The number is invalid, or the records do not fit in memory, with 8 bytes per number.
    """
    if isinstance(n_samples, bool) or not isinstance(n_samples, Integral) or n_samples < 1:
        raise PublicValueError(f"n_samples must be an integer of at least 1, got {n_samples!r}.")
    needed, there = 8 * int(n_samples) * width, _memory()
    if needed > there:
        raise PublicValueError(
            f"n_samples={n_samples} records of {width} numbers need {needed / 2**30:.0f} GiB of "
            f"memory, of which there are {there / 2**30:.0f} GiB: sample in parts."
        )
    return int(n_samples)


def check_fits(n_bytes, subject):
    """Check that a number of bytes fits in the memory of the machine."""
    there = _memory()
    if n_bytes > there:
        raise PublicValueError(
            f"{subject} would take {n_bytes / 2**30:.0f} GiB of memory, of which there are "
            f"{there / 2**30:.0f} GiB."
        )


def _memory():
    """Return the bytes of the machine's memory, or 64 GiB if unknown."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, OSError, ValueError):
        return 2**36


def check_widths(widths, name="hidden_layer_sizes"):
    """Return the widths of layers as a tuple of positive integers."""
    widths = tuple(widths)
    if not all(isinstance(width, Integral) and int(width) > 0 for width in widths):
        raise PublicValueError(f"{name} must hold positive integers, got {widths}.")
    return tuple(int(width) for width in widths)
