"""Learning from noisy projections: the smoothed sliced Wasserstein distance."""

from typing import TYPE_CHECKING

from sklearn_dpgen.utils._lazy import lazy_names

__all__ = [
    "NoisyRelease",
    "PrivateDistance",
    "SmoothedSlicedWassersteinAdapter",
    "SmoothedSlicedWassersteinGenerator",
    "private_sliced_wasserstein",
    "smoothed_sliced_wasserstein",
]

if TYPE_CHECKING:
    from sklearn_dpgen.smoothed._adapter import SmoothedSlicedWassersteinAdapter
    from sklearn_dpgen.smoothed._distance import (
        PrivateDistance,
        private_sliced_wasserstein,
        smoothed_sliced_wasserstein,
    )
    from sklearn_dpgen.smoothed._generator import SmoothedSlicedWassersteinGenerator
    from sklearn_dpgen.smoothed._releases import NoisyRelease
else:
    __getattr__, __dir__ = lazy_names(
        __name__,
        {
            "sklearn_dpgen.smoothed._adapter": ["SmoothedSlicedWassersteinAdapter"],
            "sklearn_dpgen.smoothed._distance": [
                "PrivateDistance",
                "private_sliced_wasserstein",
                "smoothed_sliced_wasserstein",
            ],
            "sklearn_dpgen.smoothed._generator": ["SmoothedSlicedWassersteinGenerator"],
            "sklearn_dpgen.smoothed._releases": ["NoisyRelease"],
        },
    )
