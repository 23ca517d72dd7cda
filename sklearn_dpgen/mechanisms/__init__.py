"""Privacy mechanisms, each of which states its cost.

Local randomizers are scikit-learn transformers with a likelihood. Central mechanisms release
vectors computed on secret batches (stratified Gaussian) or on all records (Gaussian sequence), sums
of bounded features by class, sparse counts (thresholded Laplace), and the indices of the largest
scores (selection).
"""

from sklearn_dpgen.mechanisms._additive import GaussianMechanism, LaplaceMechanism
from sklearn_dpgen.mechanisms._base import Mechanism
from sklearn_dpgen.mechanisms._bounded_features import (
    BallMeans,
    BallMoments,
    BoundedFeatures,
)
from sklearn_dpgen.mechanisms._class_sums import ClassSumMechanism, ClassSumRun, ClassSums
from sklearn_dpgen.mechanisms._discrete import RandomizedResponse
from sklearn_dpgen.mechanisms._joint_response import JointRandomizedResponse
from sklearn_dpgen.mechanisms._release import release_of
from sklearn_dpgen.mechanisms._sampled import (
    StratifiedGaussianMechanism,
    StratifiedGaussianRun,
    Stratum,
)
from sklearn_dpgen.mechanisms._selection import SelectionMechanism, SelectionRun
from sklearn_dpgen.mechanisms._sequence import GaussianSequenceMechanism, GaussianSequenceRun
from sklearn_dpgen.mechanisms._tabular import TabularMechanism
from sklearn_dpgen.mechanisms._votes import ThresholdedLaplaceMechanism, ThresholdedLaplaceRun

__all__ = [
    "BallMeans",
    "BallMoments",
    "BoundedFeatures",
    "ClassSumMechanism",
    "ClassSumRun",
    "ClassSums",
    "GaussianMechanism",
    "GaussianSequenceMechanism",
    "GaussianSequenceRun",
    "JointRandomizedResponse",
    "LaplaceMechanism",
    "Mechanism",
    "RandomizedResponse",
    "SelectionMechanism",
    "SelectionRun",
    "StratifiedGaussianMechanism",
    "StratifiedGaussianRun",
    "Stratum",
    "TabularMechanism",
    "ThresholdedLaplaceMechanism",
    "ThresholdedLaplaceRun",
    "release_of",
]
