"""Private mechanisms, each of which states its privacy cost.

Local randomizers are scikit-learn transformers that know their likelihood too; the stratified
Gaussian mechanism releases vectors computed on secret batches, the Gaussian sequence vectors of all
records with shares of one budget, the class sum mechanism sums of bounded features by class, the
thresholded Laplace mechanism counts of which most are zero, and the selection mechanism which
scores are the largest.
"""

from sklearn_dpgen.mechanisms._additive import GaussianMechanism, LaplaceMechanism
from sklearn_dpgen.mechanisms._base import Mechanism
from sklearn_dpgen.mechanisms._bounded_features import BallMeans, BallMoments
from sklearn_dpgen.mechanisms._class_sums import ClassSumMechanism, ClassSums
from sklearn_dpgen.mechanisms._discrete import RandomizedResponse
from sklearn_dpgen.mechanisms._joint_response import JointRandomizedResponse
from sklearn_dpgen.mechanisms._release import release_of
from sklearn_dpgen.mechanisms._sampled import StratifiedGaussianMechanism, Stratum
from sklearn_dpgen.mechanisms._sequence import GaussianSequenceMechanism
from sklearn_dpgen.mechanisms._tabular import TabularMechanism
from sklearn_dpgen.mechanisms._votes import ThresholdedLaplaceMechanism

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
