"""Networks, clipped per-sample Jacobians, and the training loop."""

from sklearn_dpgen.nn._generators import (
    ACTIVATIONS,
    DomainHead,
    DrawnGenerator,
    DrawnHead,
    GeneratorMixture,
    color_dcgan_generator,
    dcgan_generator,
    mlp_generator,
    upsampling_generator,
)
from sklearn_dpgen.nn._jacobian import (
    ClippedJacobianSum,
    Linearization,
    clip_weights,
    linearize,
    norm_clip_factors,
    spectral_clip_factors,
)
from sklearn_dpgen.nn._training import (
    OPTIMIZERS,
    SCHEDULES,
    Training,
    TrainingResult,
    descend,
    fit_module,
)

__all__ = [
    "ACTIVATIONS",
    "OPTIMIZERS",
    "SCHEDULES",
    "ClippedJacobianSum",
    "DomainHead",
    "DrawnGenerator",
    "DrawnHead",
    "GeneratorMixture",
    "Linearization",
    "Training",
    "TrainingResult",
    "clip_weights",
    "color_dcgan_generator",
    "dcgan_generator",
    "descend",
    "fit_module",
    "linearize",
    "mlp_generator",
    "norm_clip_factors",
    "spectral_clip_factors",
    "upsampling_generator",
]
