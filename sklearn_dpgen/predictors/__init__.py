"""Predictors by post-processing: what any private estimator predicts, made fair."""

from sklearn_dpgen.predictors._barycenter_classifier import BarycenterClassifier
from sklearn_dpgen.predictors._barycenter_regressor import BarycenterRegressor

__all__ = [
    "BarycenterClassifier",
    "BarycenterRegressor",
]
