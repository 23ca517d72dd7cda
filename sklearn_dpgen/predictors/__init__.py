"""Fair predictors, by post-processing the predictions of any private estimator."""

from sklearn_dpgen.predictors._barycenter_classifier import BarycenterClassifier
from sklearn_dpgen.predictors._barycenter_regressor import BarycenterRegressor

__all__ = [
    "BarycenterClassifier",
    "BarycenterRegressor",
]
