"""Networks, clipped per-sample Jacobians, and the training loop."""

from typing import TYPE_CHECKING

from sklearn_dpgen.utils._lazy import lazy_names

__all__ = [
    "Training",
    "color_dcgan_generator",
    "dcgan_generator",
    "linearize",
    "mlp_generator",
    "upsampling_generator",
]

if TYPE_CHECKING:
    from sklearn_dpgen.nn._generators import (
        color_dcgan_generator,
        dcgan_generator,
        mlp_generator,
        upsampling_generator,
    )
    from sklearn_dpgen.nn._jacobian import linearize
    from sklearn_dpgen.nn._training import Training
else:
    __getattr__, __dir__ = lazy_names(
        __name__,
        {
            "sklearn_dpgen.nn._generators": [
                "color_dcgan_generator",
                "dcgan_generator",
                "mlp_generator",
                "upsampling_generator",
            ],
            "sklearn_dpgen.nn._jacobian": ["linearize"],
            "sklearn_dpgen.nn._training": ["Training"],
        },
    )
