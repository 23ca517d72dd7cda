"""Learning from noisy projections: the smoothed sliced Wasserstein distance."""

from sklearn_dpgen.smoothed._adapter import SmoothedSlicedWassersteinAdapter
from sklearn_dpgen.smoothed._distance import (
    PrivateDistance,
    private_sliced_wasserstein,
    smoothed_sliced_wasserstein,
)
from sklearn_dpgen.smoothed._generator import SmoothedSlicedWassersteinGenerator
from sklearn_dpgen.smoothed._releases import NoisyRelease

__all__ = [
    "NoisyRelease",
    "PrivateDistance",
    "SmoothedSlicedWassersteinAdapter",
    "SmoothedSlicedWassersteinGenerator",
    "private_sliced_wasserstein",
    "smoothed_sliced_wasserstein",
]
