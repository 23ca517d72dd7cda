"""Checks of parameters, and the one-sided search of the calibrations."""

import math
import warnings

from sklearn_dpgen.exceptions import (
    LargeDeltaWarning,
    PublicOverflowError,
    PublicTypeError,
    PublicValueError,
)
from sklearn_dpgen.utils._validation import Integral, check_delta, check_positive

__all__ = ["check_choice", "check_count", "check_delta_size", "check_rate", "smallest_passing"]


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


def smallest_passing(passes, guess, *, rtol):
    """Return the smallest x > 0 that passes a monotone test, up to a factor 1 + ``rtol`` above.

    Parameters
    ----------
    passes : callable
        False below some positive value and True above it.
    guess : float
        Starting value.
    rtol : float
        Relative width of the final bracket.

    Returns
    -------
    float
        A value that passed the test itself, so that rounding and the tolerance are on the safe
        side.
    """
    low = high = float(guess)
    step = 1.1
    if passes(high):
        while (low := low / step) > 0 and passes(low):
            high, step = low, step * step
    else:
        while not passes(high := high * step):
            low, step = high, step * step
            if math.isinf(step):
                raise PublicOverflowError("No finite value reaches the target.")
    while high > low * (1 + rtol):
        middle = math.sqrt(low) * math.sqrt(high)
        if not low < middle < high:
            break
        if passes(middle):
            high = middle
        else:
            low = middle
    return high


def check_delta_size(delta: float, n_samples: int, *, sampling_rate: float = 1.0) -> float:
    """Return delta; raise an error if it would allow to publish a batch without noise.

    Parameters
    ----------
    delta : float
        In (0, 1).
    n_samples : int
        Public number of records. If the number is not public, delta must not be checked.
    sampling_rate : float, default=1.0
        Probability that a record is in the batch of one release, in (0, 1].

    Returns
    -------
    float

    Raises
    ------
    PublicValueError
        ``delta`` is at least the sampling rate q. Publishing a secret batch is (0, q)-private, so
        that no noise would be needed at any epsilon.

    Warns
    -----
    LargeDeltaWarning
        ``delta`` is above 1 / n_samples: publishing one record at random is
        (0, 1 / n_samples)-private.
    """
    delta, rate = check_delta(delta), check_rate(sampling_rate)
    n_samples = check_count(n_samples, "n_samples")
    if rate < 1 and delta >= rate:
        raise PublicValueError(
            f"delta must be below the sampling rate {rate:.3g}, got {delta:.3g}: batches published "
            "without noise would keep to it."
        )
    if delta * n_samples > 1:
        # Without the value of delta, so that the parts of one budget warn only once.
        warnings.warn(
            f"delta is above 1 / n_samples = {1 / n_samples:.3g}: to publish a whole record, "
            "picked at random, would keep to it. Choose a smaller one, such as 0.1 / n_samples.",
            LargeDeltaWarning,
            stacklevel=1,
        )
    return delta
