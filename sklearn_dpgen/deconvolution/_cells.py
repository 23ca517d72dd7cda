"""Privatized records in small cells: few rows of a likelihood, whatever the number of records."""

import numpy as np
import torch
from scipy.stats import qmc

from sklearn_dpgen.utils._torch import as_tensor

__all__ = ["RecordCells", "record_cells"]

# Cells a third of the noise wide: not to know where inside costs a percent of its variance at most.
_CELLS_PER_SCALE = 3
_N_INSIDE = 32


class RecordCells:
    """Cells of privatized records, with the share of the records in each.

    Parameters
    ----------
    corners : ndarray of shape (n_cells, n_features)
    width : float
        Of the cells in every column; 0 for points.
    shares : ndarray of shape (n_cells,)
    """

    def __init__(self, corners, width, shares):
        self.corners, self.width, self.shares = corners, width, shares

    def likelihood(self, mechanism, points):
        """Return the mean density over each cell given each point, up to a factor a cell.

        The law of the cell that a record falls in is a likelihood in its own right: what it
        leaves out is where in the cell. A single place of each cell would be wrong: points at
        those places would be too likely.

        Parameters
        ----------
        mechanism : Mechanism
            Fitted.
        points : tensor of shape (n_points, n_features)
            In float64.

        Returns
        -------
        tensor of shape (n_cells, n_points)
        """
        corners = as_tensor(self.corners, dtype=points.dtype)
        if self.width == 0:
            offsets = corners.new_zeros(1, corners.shape[1])
        else:
            sobol = qmc.Sobol(corners.shape[1], rng=0).random(_N_INSIDE)
            offsets = as_tensor(self.width * sobol, dtype=points.dtype)
        top = mechanism.log_likelihood(points, corners + self.width / 2).amax(0)
        return sum(
            torch.exp(mechanism.log_likelihood(points, corners + offset) - top).T
            for offset in offsets
        )


def record_cells(mechanism, Y, n_max, rng):
    """Count privatized records in cells.

    Parameters
    ----------
    mechanism : Mechanism
        Fitted; additive noise has cells of a third of its scale, any other equal records.
    Y : ndarray of shape (n, n_features)
        Encoded privatized records.
    n_max : int
        Most cells; if there are more, as many records drawn at random take their place.
    rng : numpy.random.Generator

    Returns
    -------
    RecordCells
    """
    width = 0.0 if mechanism.cost_norm is None else mechanism.scale_ / _CELLS_PER_SCALE
    keys = np.floor(Y / width) * width if width else Y
    corners, counts = np.unique(keys, axis=0, return_counts=True)
    # In many columns a cell has one record: then the records themselves say more.
    if len(corners) > n_max or len(corners) > len(Y) / 2:
        rows = rng.permutation(len(Y))[:n_max]
        return RecordCells(Y[rows], 0.0, np.full(len(rows), 1 / len(rows)))
    return RecordCells(corners, width, counts / len(Y))
