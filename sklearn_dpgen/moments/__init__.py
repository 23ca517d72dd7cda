"""Synthetic records and images by class, from released means and covariances."""

from typing import TYPE_CHECKING

from sklearn_dpgen.utils._lazy import lazy_names

__all__ = ["MomentImageSampler", "MomentSampler"]

if TYPE_CHECKING:
    from sklearn_dpgen.moments._image_sampler import MomentImageSampler
    from sklearn_dpgen.moments._moment_sampler import MomentSampler
else:
    __getattr__, __dir__ = lazy_names(
        __name__,
        {
            "sklearn_dpgen.moments._image_sampler": ["MomentImageSampler"],
            "sklearn_dpgen.moments._moment_sampler": ["MomentSampler"],
        },
    )
