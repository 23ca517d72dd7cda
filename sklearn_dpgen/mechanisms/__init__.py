"""Private mechanisms, each of which states its privacy cost.

Local randomizers are scikit-learn transformers that know their likelihood too; the stratified
Gaussian mechanism releases vectors computed on secret batches, the Gaussian sequence vectors of all
records with shares of one budget, the class sum mechanism sums of bounded features by class, the
thresholded Laplace mechanism counts of which most are zero, and the selection mechanism which
scores are the largest.
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
