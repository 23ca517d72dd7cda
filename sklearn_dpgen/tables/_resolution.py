"""How fine tables may be, and how many, for their noise: from public quantities."""

import math

__all__ = ["CELLS", "affordable_cells", "affordable_slices"]

# The records of an even cell over the standard deviation of their number that are asked for.
_CLEAR = 5.0
# Cells that a table of two and of three columns should have.
CELLS = {2: 8.0, 3: 27.0}


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
        K with n / K = 5 √(σ² + n / K): the records of an even cell, against how they vary.
    """
    n = max(n_records, 1.0)
    return 2 * n / (_CLEAR**2 + math.sqrt(_CLEAR**4 + 4 * (_CLEAR * noise_scale) ** 2))


def affordable_slices(n_records, noise_scale, n_cells):
    """Return how many tables of so many cells can be measured in one vector.

    Parameters
    ----------
    n_records : float
    noise_scale : float
        Of a vector that is one table.
    n_cells : float

    Returns
    -------
    int
    """
    even = max(n_records, 1.0) / n_cells
    variance = max((even / _CLEAR) ** 2 - even, 0)
    return math.floor(min(variance / max(noise_scale, 1e-12) ** 2, 1 << 30))
