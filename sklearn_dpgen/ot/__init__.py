"""Optimal transport on tensors: solvers, losses with envelope gradients, baselines."""

from sklearn_dpgen.ot._barycenter import BarycenterMaps, LineLaw
from sklearn_dpgen.ot._blockwise import entropic_loss_blockwise, sinkhorn_blockwise
from sklearn_dpgen.ot._lines import LineGrid, SmoothedLines
from sklearn_dpgen.ot._losses import (
    entropic_loss,
    likelihood_loss,
    sinkhorn_divergence,
    wasserstein_loss,
)
from sklearn_dpgen.ot._problem import DualPotentials, pairwise_cost
from sklearn_dpgen.ot._sinkhorn import SinkhornResult, sinkhorn
from sklearn_dpgen.ot._sliced import (
    noisy_projected_wasserstein,
    random_directions,
    sliced_wasserstein,
    sliced_wasserstein2_gradient,
    wasserstein2_gradient,
    wasserstein_lines,
)

__all__ = [
    "BarycenterMaps",
    "DualPotentials",
    "LineGrid",
    "LineLaw",
    "SinkhornResult",
    "SmoothedLines",
    "entropic_loss",
    "entropic_loss_blockwise",
    "likelihood_loss",
    "pairwise_cost",
    "random_directions",
    "sinkhorn",
    "sinkhorn_blockwise",
    "sinkhorn_divergence",
    "sliced_wasserstein",
    "sliced_wasserstein2_gradient",
    "noisy_projected_wasserstein",
    "wasserstein2_gradient",
    "wasserstein_lines",
    "wasserstein_loss",
]
