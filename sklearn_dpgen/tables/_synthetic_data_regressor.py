"""SyntheticDataRegressor: any regressor of scikit-learn, trained on synthetic rows."""

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike
from sklearn.base import RegressorMixin
from sklearn.ensemble import HistGradientBoostingRegressor, VotingRegressor
from sklearn.linear_model import Ridge

from sklearn_dpgen.exceptions import PublicValueError
from sklearn_dpgen.ledger._base import UnpaidScoreMixin
from sklearn_dpgen.schema import Categorical, Numeric, Ordinal
from sklearn_dpgen.tables._synthetic_data import SyntheticDataPredictor

__all__ = ["SyntheticDataRegressor"]


class SyntheticDataRegressor(UnpaidScoreMixin, RegressorMixin, SyntheticDataPredictor):
    """Any regressor, trained on rows that a private sampler draws.

    Parameters
    ----------
    sampler, n_samples, n_draws, encode, ledger, unit, random_state
        As of :class:`SyntheticDataClassifier`; the target is a number.
    estimator : regressor or None, default=None
        None is the mean of ridge regression and of boosted trees of four leaves.

    Attributes
    ----------
    sampler_ : estimator
        Fitted on private records.
    estimators_ : list of regressors
        Fitted on synthetic rows, one for each draw.
    encoder_ : TabularEncoder
        Of the features, in their order.
    privacy_ : PrivacyReport
        That of the sampler: all that follows is post-processing.
    n_features_in_ : int
        Number of features.
    feature_names_in_ : ndarray of str
        Their names, in the order of the fit.

    See Also
    --------
    SyntheticDataClassifier : The same for labels.
    sklearn_dpgen.predictors.BarycenterRegressor : Makes predictions alike between groups after
        this.

    Notes
    -----
    **Formal guarantee**

    :Promise: Central (ε, δ)-differential privacy of all that ``fit`` stores, and of all that is
        computed from it.
    :Neighbours: Those of ``sampler``. With ``unit``: a person with all their rows in place of a
        record.
    :Public: What ``sampler`` takes to be public, its target among it.
    :Bounded by: ``sampler``, which alone reads the records. The estimator learns from rows that it
        draws.
    :Noise: That of ``sampler``; nothing is added here.
    :Priced by: ``sampler``: ``privacy_`` is its report. What follows is post-processing.
    :Not covered: Steps before this object in a pipeline, scores of private rows, and calibration on
        them; other fits of the same records, which a ``ledger`` adds up; errors of a fit; a
        ``random_state`` that others know or guess.
    :Proof: That of ``sampler``; :ref:`learners`.

    Examples
    --------
    >>> from sklearn_dpgen.datasets import load_rand_health
    >>> from sklearn_dpgen.tables import TableSampler, SyntheticDataRegressor
    >>> data = load_rand_health()
    >>> sampler = TableSampler(epsilon=1.0, schema=data.schema, target="mdvis")
    >>> model = SyntheticDataRegressor(sampler, n_draws=2)
    >>> X = data.frame[["disea", "idp", "hlthp"]]
    >>> model.fit(X, data.frame["mdvis"]).predict(X[:3]).shape
    (3,)
    """

    def _default(self):
        trees = HistGradientBoostingRegressor(max_leaf_nodes=4)
        return VotingRegressor([("linear", Ridge()), ("trees", trees)])

    def _check_target(self, name, column):
        labels = column.labels if isinstance(column, Categorical | Ordinal) else None
        is_number = isinstance(column, Numeric) or (
            labels is not None and all(type(label) in (int, float) for label in labels)
        )
        if not is_number:
            raise PublicValueError(
                f"target {name!r} must have numbers for a regressor, its column is "
                f"{type(column).__name__}."
            )

    def predict(self, X: ArrayLike | pd.DataFrame) -> np.ndarray:
        """Predict the target of records: the mean over draws.

        Parameters
        ----------
        X : data frame or array-like of shape (n_samples, n_features)

        Returns
        -------
        ndarray of shape (n_samples,)
            In the units of the target.
        """
        return self._mean("predict", X)
