"""Private (sliced) Wasserstein gradients: fair predictors, codes, generators, adaptation."""

from typing import TYPE_CHECKING

from sklearn_dpgen.utils._lazy import lazy_names

__all__ = [
    "ClippedGradient",
    "DPSlicedWassersteinAdapter",
    "DPSlicedWassersteinFairClassifier",
    "DPSlicedWassersteinFairEncoder",
    "DPSlicedWassersteinFairRegressor",
    "DPSlicedWassersteinGenerator",
    "parity_penalty_sensitivity",
    "projection_spread",
    "transport_gradient_sensitivity",
]

if TYPE_CHECKING:
    from sklearn_dpgen.sliced._adapter import DPSlicedWassersteinAdapter
    from sklearn_dpgen.sliced._base import ClippedGradient
    from sklearn_dpgen.sliced._classifier import DPSlicedWassersteinFairClassifier
    from sklearn_dpgen.sliced._encoder import DPSlicedWassersteinFairEncoder
    from sklearn_dpgen.sliced._generator import DPSlicedWassersteinGenerator
    from sklearn_dpgen.sliced._objective import (
        parity_penalty_sensitivity,
        projection_spread,
        transport_gradient_sensitivity,
    )
    from sklearn_dpgen.sliced._regressor import DPSlicedWassersteinFairRegressor
else:
    __getattr__, __dir__ = lazy_names(
        __name__,
        {
            "sklearn_dpgen.sliced._adapter": ["DPSlicedWassersteinAdapter"],
            "sklearn_dpgen.sliced._base": ["ClippedGradient"],
            "sklearn_dpgen.sliced._classifier": ["DPSlicedWassersteinFairClassifier"],
            "sklearn_dpgen.sliced._encoder": ["DPSlicedWassersteinFairEncoder"],
            "sklearn_dpgen.sliced._generator": ["DPSlicedWassersteinGenerator"],
            "sklearn_dpgen.sliced._objective": [
                "parity_penalty_sensitivity",
                "projection_spread",
                "transport_gradient_sensitivity",
            ],
            "sklearn_dpgen.sliced._regressor": ["DPSlicedWassersteinFairRegressor"],
        },
    )
