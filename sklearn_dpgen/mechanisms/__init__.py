"""Privacy mechanisms, each of which states its cost.

Local randomizers are scikit-learn transformers with a likelihood. Central mechanisms release
vectors computed on secret batches (stratified Gaussian) or on all records (Gaussian sequence), sums
of bounded features by class, sparse counts (thresholded Laplace), and the indices of the largest
scores (selection).
"""

from typing import TYPE_CHECKING

from sklearn_dpgen.utils._lazy import lazy_names

__all__ = [
    "BallMeans",
    "BallMoments",
    "ClassSumMechanism",
    "ClassSums",
    "GaussianMechanism",
    "GaussianSequenceMechanism",
    "JointRandomizedResponse",
    "LaplaceMechanism",
    "Mechanism",
    "RandomizedResponse",
    "StratifiedGaussianMechanism",
    "Stratum",
    "TabularMechanism",
    "ThresholdedLaplaceMechanism",
    "release_of",
]

if TYPE_CHECKING:
    from sklearn_dpgen.mechanisms._base import Mechanism
    from sklearn_dpgen.mechanisms._class_sums import (
        BallMeans,
        BallMoments,
        ClassSumMechanism,
        ClassSums,
    )
    from sklearn_dpgen.mechanisms._joint_response import JointRandomizedResponse
    from sklearn_dpgen.mechanisms._randomizers import (
        GaussianMechanism,
        LaplaceMechanism,
        RandomizedResponse,
    )
    from sklearn_dpgen.mechanisms._release import release_of
    from sklearn_dpgen.mechanisms._sampled import StratifiedGaussianMechanism, Stratum
    from sklearn_dpgen.mechanisms._sequence import (
        GaussianSequenceMechanism,
        ThresholdedLaplaceMechanism,
    )
    from sklearn_dpgen.mechanisms._tabular import TabularMechanism
else:
    __getattr__, __dir__ = lazy_names(
        __name__,
        {
            "sklearn_dpgen.mechanisms._base": ["Mechanism"],
            "sklearn_dpgen.mechanisms._class_sums": [
                "BallMeans",
                "BallMoments",
                "ClassSumMechanism",
                "ClassSums",
            ],
            "sklearn_dpgen.mechanisms._joint_response": ["JointRandomizedResponse"],
            "sklearn_dpgen.mechanisms._randomizers": [
                "GaussianMechanism",
                "LaplaceMechanism",
                "RandomizedResponse",
            ],
            "sklearn_dpgen.mechanisms._release": ["release_of"],
            "sklearn_dpgen.mechanisms._sampled": ["StratifiedGaussianMechanism", "Stratum"],
            "sklearn_dpgen.mechanisms._sequence": [
                "GaussianSequenceMechanism",
                "ThresholdedLaplaceMechanism",
            ],
            "sklearn_dpgen.mechanisms._tabular": ["TabularMechanism"],
        },
    )
