"""Synthetic records and images by class, from released means and covariances."""

from sklearn_dpgen.moments._image_sampler import MomentImageSampler
from sklearn_dpgen.moments._moment_sampler import MomentSampler

__all__ = ["MomentImageSampler", "MomentSampler"]
