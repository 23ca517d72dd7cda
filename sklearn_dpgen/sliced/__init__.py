"""Private (sliced) Wasserstein gradients: fair predictors, codes, generators, adaptation."""

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
