"""Learning from noisy projections: the smoothed sliced Wasserstein distance."""

from sklearn_dpgen.smoothed._adapter import SmoothedSlicedWassersteinAdapter
from sklearn_dpgen.smoothed._distance import PrivateDistance, smoothed_sliced_wasserstein
from sklearn_dpgen.smoothed._generator import SmoothedSlicedWassersteinGenerator

__all__ = [
    "PrivateDistance",
    "SmoothedSlicedWassersteinAdapter",
    "SmoothedSlicedWassersteinGenerator",
    "smoothed_sliced_wasserstein",
]
