"""Fair predictors, by post-processing of what any private estimator predicts."""

from sklearn_dpgen.predictors._barycenter_classifier import BarycenterClassifier
from sklearn_dpgen.predictors._barycenter_regressor import BarycenterRegressor

__all__ = [
    "BarycenterClassifier",
    "BarycenterRegressor",
]
