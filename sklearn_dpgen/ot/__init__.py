"""Optimal transport on tensors: solvers, losses with envelope gradients, baselines."""

from typing import TYPE_CHECKING

from sklearn_dpgen.utils._lazy import lazy_names

__all__ = [
    "entropic_loss",
    "random_directions",
    "sinkhorn",
    "sinkhorn_divergence",
    "sliced_wasserstein",
    "sliced_wasserstein2_gradient",
    "noisy_projected_wasserstein",
]

if TYPE_CHECKING:
    from sklearn_dpgen.ot._losses import entropic_loss, sinkhorn_divergence
    from sklearn_dpgen.ot._sinkhorn import sinkhorn
    from sklearn_dpgen.ot._sliced import (
        noisy_projected_wasserstein,
        random_directions,
        sliced_wasserstein,
        sliced_wasserstein2_gradient,
    )
else:
    __getattr__, __dir__ = lazy_names(
        __name__,
        {
            "sklearn_dpgen.ot._losses": ["entropic_loss", "sinkhorn_divergence"],
            "sklearn_dpgen.ot._sinkhorn": ["sinkhorn"],
            "sklearn_dpgen.ot._sliced": [
                "noisy_projected_wasserstein",
                "random_directions",
                "sliced_wasserstein",
                "sliced_wasserstein2_gradient",
            ],
        },
    )
