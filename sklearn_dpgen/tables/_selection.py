"""Which tables are measured and how finely: from public quantities, and selected privately."""

import math

import numpy as np

from sklearn_dpgen.tables._releases import release_slices

__all__ = ["affordable_cells", "affordable_slices", "measure_rounds", "scores"]

# The signal of an even cell over the standard deviation of its noise that a table is to have.
_CLEAR = 5.0
# Tables of fewer cells tell little of a dependence.
_LEAST_CELLS = 8.0


def affordable_cells(n_records, noise_scale):
    """Return the cells of a table that noise and chance leave visible.

    Parameters
    ----------
    n_records : float
    noise_scale : float
        Standard deviation of the noise of a count.

    Returns
    -------
    float
        K with n / K = 5 √(σ² + n / K): the records of an even cell against how they vary.
    """
    n = max(n_records, 1.0)
    return 2 * n / (_CLEAR**2 + math.sqrt(_CLEAR**4 + 4 * (_CLEAR * noise_scale) ** 2))


def affordable_slices(n_records, noise_scale):
    """Return how many tables of some cells can be measured at once.

    Parameters
    ----------
    n_records : float
    noise_scale : float
        Of a count of a single table that has all of the budget of a round.

    Returns
    -------
    int
        At least one.
    """
    even = max(n_records, 1.0) / _LEAST_CELLS
    left = (even / _CLEAR) ** 2 - even
    return max(1, math.floor(left / noise_scale**2)) if noise_scale > 0 else 1 << 30


def measure_rounds(codes, rounds, noise_scales, measured, *, predict, run, noise):
    """Select and release tables, round by round, and add them to what was measured.

    Parameters
    ----------
    codes : list of ndarray of int of shape (n,)
        The block of each private record in each column.
    rounds : list of Round
    noise_scales : sequence of float
        Of the vector that each releases.
    measured : Measurements
    predict : callable
        From slices to their expected counts, by all that was measured so far.
    run : GaussianSequenceRun
        After its first release.
    noise : callable
        From arrays that tell what it is for to a NoiseSource.
    """
    for number, (part, scale) in enumerate(zip(rounds, noise_scales, strict=True)):
        
        pass
