"""How fine tables may be, and how many, for their noise: from public quantities."""

import math

from sklearn_dpgen.exceptions import NoisyCountsWarning
from sklearn_dpgen.utils._validation import warn_user

__all__ = ["CELLS", "affordable_cells", "affordable_marginals", "is_drowned", "warn_of_noise"]

# The records of an even cell over the standard deviation of their number that are asked for.
_CLEAR = 6.0
# Cells that a table of two and of three columns should have.
CELLS = {2: 12.0, 3: 64.0}


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
        K with n / K = 6 √(σ² + n / K): the records of an even cell, against how they vary.
    """
    n = max(n_records, 1.0)
    return 2 * n / (_CLEAR**2 + math.sqrt(_CLEAR**4 + 4 * (_CLEAR * noise_scale) ** 2))


def affordable_marginals(n_records, noise_scale, n_cells):
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


def is_drowned(n_records, noise_scale):
    """Return whether noise leaves nothing of counts: half the records are near that of a number."""
    # Chance alone is no noise.
    return max(n_records, 1.0) < 2 * _CLEAR * noise_scale


def warn_of_noise(n_records, column_scale, table_scale, *, epsilon, unit="records"):
    """Warn if the counts of columns, or of pairs of columns, are below their noise.

    Parameters
    ----------
    n_records : float
        Public, or an estimate.
    column_scale : float
        Standard deviation of the noise of a count of a single column.
    table_scale : float or None
        Of a count of a pair; None without pairs.
    epsilon : float
        Named in the warning.
    unit : str, default="records"
        The noun for what is counted.
    """
    cure = f"use more {unit}, fewer columns, or a larger epsilon."
    for scale, what in (
        (column_scale, f"Samples hardly depend on the {unit}"),
        (table_scale, "Samples show hardly any dependence between columns"),
    ):
        if scale is not None and is_drowned(n_records, scale):
            warn_user(
                f"With epsilon={epsilon:g} and about {n_records:.0f} {unit}, a count has noise of "
                f"standard deviation {scale:.0f}. {what}: {cure}",
                NoisyCountsWarning,
            )
            return
