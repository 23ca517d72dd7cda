"""Optimal transport on tensors: solvers, losses with envelope gradients, baselines."""

from sklearn_dpgen.ot._losses import entropic_loss, sinkhorn_divergence
from sklearn_dpgen.ot._sinkhorn import sinkhorn
from sklearn_dpgen.ot._sliced import (
    noisy_projected_wasserstein,
    random_directions,
    sliced_wasserstein,
    sliced_wasserstein2_gradient,
)

__all__ = [
    "entropic_loss",
    "random_directions",
    "sinkhorn",
    "sinkhorn_divergence",
    "sliced_wasserstein",
    "sliced_wasserstein2_gradient",
    "noisy_projected_wasserstein",
]
