"""Distances of generated records from held-out ones."""

import math

import torch

from sklearn_dpgen.ot import sliced_wasserstein
from sklearn_dpgen.utils._random import torch_generator
from sklearn_dpgen.utils._torch import as_tensor

__all__ = ["held_out_distance"]

# Of the directions: it is public, and the same for all that is compared.
_SEED = 0
_FEWEST_DIRECTIONS = 256


def held_out_distance(groups, *, device="cpu"):
    r"""Return the sliced Wasserstein distance of order 2 between records and generated ones.

    .. math:: \Big(\sum_c \frac{n_c}{n} SW_2^2(X_c, G_c)\Big)^{1/2}

    Parameters
    ----------
    groups : list of (ndarray of shape (n_c, d), ndarray of shape (m_c, d))
        Held-out records and generated ones, class by class.
    device : torch.device or str, default="cpu"

    Returns
    -------
    float
        In the units of the records. The directions come in whole orthonormal blocks, so that of
        two laws that differ by a shift it is exact.
    """
    d = groups[0][0].shape[1]
    n_projections = d * math.ceil(_FEWEST_DIRECTIONS / d)
    powers = [
        len(records)
        * sliced_wasserstein(
            as_tensor(records, device=device, dtype=torch.float64),
            as_tensor(generated, device=device, dtype=torch.float64),
            n_projections=n_projections,
            generator=torch_generator(_SEED),
        ).item()
        for records, generated in groups
    ]
    return math.sqrt(sum(powers) / sum(len(records) for records, _ in groups))
