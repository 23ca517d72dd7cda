"""Optimal transport on tensors: solvers, losses with envelope gradients, baselines."""

from ._baselines import sinkhorn_divergence, wasserstein_loss
from ._blockwise import entropic_loss_blockwise, sinkhorn_blockwise
from ._costs import pairwise_cost
from ._losses import entropic_loss, likelihood_loss
from ._problem import DualPotentials
from ._sinkhorn import SinkhornResult, sinkhorn

__all__ = [
    "DualPotentials",
    "SinkhornResult",
    "entropic_loss",
    "entropic_loss_blockwise",
    "likelihood_loss",
    "pairwise_cost",
    "sinkhorn",
    "sinkhorn_blockwise",
    "sinkhorn_divergence",
    "wasserstein_loss",
]
