"""Methods that a search passes on to its best candidate."""

from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike
from sklearn.base import MetaEstimatorMixin
from sklearn.utils import get_tags
from sklearn.utils.metaestimators import available_if

from sklearn_dpgen.utils._validation import check_is_fitted

__all__ = ["BestEstimatorMixin"]


def _best_has(method):
    """Return a check that the estimator, fitted or not, has a method."""

    def has(self):
        getattr(getattr(self, "best_estimator_", self.estimator), method)
        return True

    return has


class BestEstimatorMixin(MetaEstimatorMixin):
    """Methods of ``best_estimator_``, where it, or ``estimator`` before a fit, has them."""

    @available_if(_best_has("predict"))
    def predict(self, X: ArrayLike | pd.DataFrame) -> np.ndarray:
        """Predict, as the best candidate does.

        Parameters
        ----------
        X : data frame or array-like of shape (n_rows, n_features)

        Returns
        -------
        ndarray of shape (n_rows,)
        """
        check_is_fitted(self)
        return self.best_estimator_.predict(X)

    @available_if(_best_has("predict_proba"))
    def predict_proba(self, X: ArrayLike | pd.DataFrame) -> np.ndarray:
        """Predict probabilities, as the best candidate does.

        Parameters
        ----------
        X : data frame or array-like of shape (n_rows, n_features)

        Returns
        -------
        ndarray of shape (n_rows, n_classes)
        """
        check_is_fitted(self)
        return self.best_estimator_.predict_proba(X)

    @available_if(_best_has("decision_function"))
    def decision_function(self, X: ArrayLike | pd.DataFrame) -> np.ndarray:
        """Return the decision function of the best candidate.

        Parameters
        ----------
        X : data frame or array-like of shape (n_rows, n_features)

        Returns
        -------
        ndarray of shape (n_rows,) or (n_rows, n_classes)
        """
        check_is_fitted(self)
        return self.best_estimator_.decision_function(X)

    @available_if(_best_has("transform"))
    def transform(self, X: ArrayLike | pd.DataFrame) -> Any:
        """Transform, as the best candidate does.

        Parameters
        ----------
        X : data frame or array-like of shape (n_rows, n_features)

        Returns
        -------
        ndarray or data frame
        """
        check_is_fitted(self)
        return self.best_estimator_.transform(X)

    @available_if(_best_has("sample"))
    def sample(self, *args: Any, **kwargs: Any) -> Any:
        """Draw synthetic records of the best candidate, at no cost in privacy.

        Parameters
        ----------
        *args, **kwargs
            Of its own ``sample``.

        Returns
        -------
        data frame or ndarray
        """
        check_is_fitted(self)
        return self.best_estimator_.sample(*args, **kwargs)

    @available_if(_best_has("score"))
    def score(self, X: ArrayLike | pd.DataFrame, y: ArrayLike | None = None) -> float:
        """Return the score of the best candidate's own method.

        Parameters
        ----------
        X : data frame or array-like of shape (n_rows, n_features)
            If they are private, the score is not.
        y : array-like of shape (n_rows,) or None, default=None

        Returns
        -------
        float
        """
        check_is_fitted(self)
        return self.best_estimator_.score(X, y)

    @property
    def classes_(self) -> np.ndarray:
        """Labels of the best candidate."""
        return self.best_estimator_.classes_

    def __sklearn_is_fitted__(self):
        return hasattr(self, "best_estimator_")

    def __sklearn_tags__(self):
        tags, own = super().__sklearn_tags__(), get_tags(self.estimator)
        tags.estimator_type = own.estimator_type
        tags.classifier_tags, tags.regressor_tags = own.classifier_tags, own.regressor_tags
        tags.input_tags, tags.target_tags = own.input_tags, own.target_tags
        tags.non_deterministic = self.random_state is None
        return tags
