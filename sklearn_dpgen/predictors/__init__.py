"""Fair predictors, by post-processing the predictions of any private estimator."""

from typing import TYPE_CHECKING

from sklearn_dpgen.utils._lazy import lazy_names

__all__ = [
    "BarycenterClassifier",
    "BarycenterRegressor",
]

if TYPE_CHECKING:
    from sklearn_dpgen.predictors._barycenter_classifier import BarycenterClassifier
    from sklearn_dpgen.predictors._barycenter_regressor import BarycenterRegressor
else:
    __getattr__, __dir__ = lazy_names(
        __name__,
        {
            "sklearn_dpgen.predictors._barycenter_classifier": ["BarycenterClassifier"],
            "sklearn_dpgen.predictors._barycenter_regressor": ["BarycenterRegressor"],
        },
    )
