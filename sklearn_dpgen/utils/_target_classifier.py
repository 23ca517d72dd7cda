"""Common methods of classifiers of a target domain: predictions, and accuracy on the target."""

import numpy as np
import torch
from numpy.typing import ArrayLike
from sklearn.base import ClassifierMixin
from sklearn.metrics import accuracy_score

from sklearn_dpgen.persistence._declarations import Array
from sklearn_dpgen.persistence._networks import check_classifier
from sklearn_dpgen.utils._source_and_target import check_labels_of_both, scored_rows
from sklearn_dpgen.utils._torch import as_array, as_tensor
from sklearn_dpgen.utils._validation import (
    check_consistent_length,
    check_is_fitted,
    validate_data,
)

__all__ = ["TargetClassifierMixin"]


class TargetClassifierMixin(ClassifierMixin):
    """Methods of classifiers whose ``module_`` maps records to logits, in double precision."""

    _saved_state: dict = {"classes_": Array("biufUO", 1)}

    def _check_saved_state(self):
        super()._check_saved_state()
        check_classifier(self.module_, self.n_features_in_, len(self.classes_))

    def predict_proba(self, X: ArrayLike) -> np.ndarray:
        """Predict the probability of each class, for records of the target.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)

        Returns
        -------
        ndarray of shape (n_samples, n_classes)
            In the order of ``classes_``.
        """
        check_is_fitted(self)
        X = validate_data(self, self._without_unit(X), reset=False, dtype=np.float64)
        device = next(self.module_.parameters()).device
        with torch.no_grad():
            logits = self.module_(as_tensor(X, device=device, dtype=torch.float64))
            return as_array(torch.softmax(logits, dim=1))

    def predict(self, X: ArrayLike) -> np.ndarray:
        """Predict the most probable label of each record of the target.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)

        Returns
        -------
        ndarray of shape (n_samples,)
        """
        probabilities = self.predict_proba(X)
        return self.classes_[probabilities.argmax(axis=1)]

    def score(
        self,
        X: ArrayLike,
        y: ArrayLike,
        sample_weight: ArrayLike | None = None,
        sample_domain: ArrayLike | None = None,
    ) -> float:
        """Return the accuracy on records of the target with known labels.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Records.
        y : array-like of shape (n_samples,)
            Labels. Rows with masked ones, -1 or NaN, do not count.
        sample_weight : array-like of shape (n_samples,) or None, default=None
            Weights of the rows.
        sample_domain : array-like of int of shape (n_samples,) or None, default=None
            Negative for rows of the target; other rows do not count. None takes all rows as the
            target, and warns if labels are masked.

        Returns
        -------
        float
            In [0, 1]. It is computed from labels, which the guarantee does not protect.

        Raises
        ------
        PublicValueError
            No row of the target has a known label.

        Warns
        -----
        UnpaidScoreWarning
            After a private fit, as the score charges no ledger.
        """
        predicted = self.predict(X)
        self._warn_of_score()
        y = check_labels_of_both(X, y, type(self).__name__)
        rows = scored_rows(y, sample_domain)
        if sample_weight is not None:
            check_consistent_length(y, sample_weight)
            sample_weight = np.asarray(sample_weight)[rows]
        truth = np.asarray(y[rows].tolist())
        return float(accuracy_score(truth, predicted[rows], sample_weight=sample_weight))
