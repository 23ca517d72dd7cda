"""Networks, clipped per-sample Jacobians, and the training loop."""

from sklearn_dpgen.nn._generators import (
    color_dcgan_generator,
    dcgan_generator,
    mlp_generator,
    upsampling_generator,
)
from sklearn_dpgen.nn._jacobian import linearize
from sklearn_dpgen.nn._training import Training

__all__ = [
    "Training",
    "color_dcgan_generator",
    "dcgan_generator",
    "linearize",
    "mlp_generator",
    "upsampling_generator",
]
