"""Privacy mechanisms, each of which states its cost.

Local randomizers are scikit-learn transformers with a likelihood. Central mechanisms release
vectors computed on secret batches (stratified Gaussian) or on all records (Gaussian sequence), sums
of bounded features by class, sparse counts (thresholded Laplace), and the indices of the largest
scores (selection).
"""

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
