"""Synthetic records and images by class, from released means and covariances."""

from sklearn_dpgen.moments._image_sampler import MomentImageSampler
from sklearn_dpgen.moments._moment_sampler import MomentSampler
from sklearn_dpgen.moments._noisy_moments import (
    MOMENT_SHARES,
    NoisyMoments,
    moment_queries,
    release_moments,
)
from sklearn_dpgen.moments._normal_laws import denoised_covariances, draw_normals
from sklearn_dpgen.moments._plan import MomentPlan, price_moments

__all__ = [
    "MOMENT_SHARES",
    "MomentImageSampler",
    "MomentPlan",
    "MomentSampler",
    "NoisyMoments",
    "denoised_covariances",
    "draw_normals",
    "moment_queries",
    "price_moments",
    "release_moments",
]
