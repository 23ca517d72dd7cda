"""Means of an outcome by group, from noisy sums, with intervals for noise and for sampling."""

import numpy as np
import pandas as pd
from scipy.special import ndtri

__all__ = ["mean_intervals", "outcome_sums"]

_CANDIDATES = np.linspace(0, 1, 2001)


def outcome_sums(outcomes, codes, n_groups):
    """Return the sums of an outcome z in [0, 1] and of 1 - z, by group.

    Parameters
    ----------
    outcomes : ndarray of shape (n,)
        What is beyond 0 and 1 is moved there, and what is no number to 0.
    codes : ndarray of int of shape (n,)
    n_groups : int

    Returns
    -------
    ndarray of shape (2 * n_groups,)
        First the sums of z. A row adds (z, 1 - z) to one group, of l2 norm 1 at most and without a
        negative entry: the l2 sensitivity is 1 where it is added or removed, and √2 where it is
        replaced by another of any group.
    """
    outcomes = np.clip(np.nan_to_num(outcomes, nan=0.0), 0.0, 1.0)
    sums = [np.bincount(codes, weights=z, minlength=n_groups) for z in (outcomes, 1 - outcomes)]
    return np.concatenate(sums)


def mean_intervals(sums, noise_scale, groups, level=0.95):
    """Return the mean of each group, with an interval for that of the population.

    An r is in the interval if the noisy (1 - r) Σ z - r Σ (1 - z), whose mean is 0 for the mean
    of the population, is no larger than normal noise and the largest variance r (1 - r) of an
    outcome explain.

    Parameters
    ----------
    sums : ndarray of shape (2 * n_groups,)
        As of :func:`outcome_sums`, released.
    noise_scale : float
    groups : list
    level : float, default=0.95

    Returns
    -------
    DataFrame
        Indexed by group: "mean" in [0, 1], "low", "high", and "n_rows", the noisy size.
    """
    ones, zeros = sums.reshape(2, -1)
    sizes = ones + zeros
    means = np.clip(ones / np.maximum(sizes, 1.0), 0.0, 1.0)
    r = _CANDIDATES[:, None]
    spread = noise_scale**2 * ((1 - r) ** 2 + r**2) + np.maximum(sizes, 0.0) * r * (1 - r)
    reach = ndtri((1 + level) / 2) * np.sqrt(spread) + 1e-9
    inside = np.abs((1 - r) * ones - r * zeros) <= reach
    rows = [_CANDIDATES[column] if column.any() else _CANDIDATES for column in inside.T]
    return pd.DataFrame(
        {
            "mean": means,
            "low": np.minimum([found.min() for found in rows], means),
            "high": np.maximum([found.max() for found in rows], means),
            "n_rows": sizes,
        },
        index=pd.Index(groups, name="group", tupleize_cols=False),
    )
