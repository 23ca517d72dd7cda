"""Checks of δ: whether it is so large that records could be published without noise."""

import warnings

from sklearn_dpgen.accounting._checks import check_count, check_rate
from sklearn_dpgen.exceptions import LargeDeltaWarning, PublicValueError
from sklearn_dpgen.utils._validation import check_delta

__all__ = ["check_delta_size"]


def check_delta_size(delta: float, n_samples: int, *, sampling_rate: float = 1.0) -> float:
    """Return delta, or raise if it would allow a batch to be published without noise.

    Parameters
    ----------
    delta : float
        In (0, 1).
    n_samples : int
        Number of records, where it is public. Where it is not, delta must not be checked.
    sampling_rate : float, default=1.0
        Probability that a record is in the batch of one release, in (0, 1].

    Returns
    -------
    float

    Raises
    ------
    ValueError
        ``delta`` is at least the sampling rate. To publish a secret batch as it is (0, q)-private
        at sampling rate q, whatever epsilon is: nothing would be left to calibrate.

    Warns
    -----
    LargeDeltaWarning
        ``delta`` is above 1 / n_samples: to publish one record, picked at random, is
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
        # Without the value of delta, so that the parts of one budget warn once.
        warnings.warn(
            f"delta is above 1 / n_samples = {1 / n_samples:.3g}: to publish a whole record, "
            "picked at random, would keep to it. Choose a smaller one, such as 0.1 / n_samples.",
            LargeDeltaWarning,
            stacklevel=1,
        )
    return delta
