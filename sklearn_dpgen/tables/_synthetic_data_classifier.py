"""SyntheticDataClassifier: any classifier of scikit-learn, trained on synthetic rows."""

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike
from sklearn.base import ClassifierMixin
from sklearn.ensemble import HistGradientBoostingClassifier, VotingClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.utils.metaestimators import available_if

from sklearn_dpgen.exceptions import PublicValueError
from sklearn_dpgen.ledger._base import UnpaidScoreMixin
from sklearn_dpgen.schema import Categorical, Numeric, Ordinal
from sklearn_dpgen.tables._synthetic_data import SyntheticDataPredictor, estimator_has

__all__ = ["SyntheticDataClassifier"]


class SyntheticDataClassifier(UnpaidScoreMixin, ClassifierMixin, SyntheticDataPredictor):
    """Any classifier, trained on rows that a private sampler draws.

    Parameters
    ----------
    sampler : TableSampler
        With a schema and one target in it, or another sampler that has both. The budget is its
        own. In a :class:`~sklearn.frozen.FrozenEstimator`, it was fitted before, and nothing more
        is paid.
    estimator : classifier or None, default=None
        Of scikit-learn, or of the same form: a pipeline, a search, a calibrated one. None is the
        mean of the probabilities of a logistic regression and of boosted trees of four leaves.
    n_samples : "auto" or int, default="auto"
        Rows of a draw. "auto" takes as many as there are records, as far as that is public or was
        released, at least 5000 and at most 50000.
    n_draws : int, default=5
        How many draws there are, with an estimator for each. Their mean is predicted. It costs
        time, and no privacy.
    encode : bool, default=True
        Whether ``estimator`` gets features as numbers from -1 to 1 and one-hot labels, by a
        TabularEncoder, or a data frame as it is drawn.
    ledger : PrivacyLedger, path or None, default=None
        Where the fit of the sampler is booked, before anything of a record is released: it raises
        BudgetExceededError where less is left. None is the sampler's own, if it has one.
    unit : str or None, default=None
        Column of X that says whose row each is: the sampler protects a person with all of their
        rows. The column is beside the schema or an Identifier of it, and nothing is learned from
        it. None is the sampler's own, if it has one, or protects rows.
    random_state : int, RandomState or None, default=None
        Of the drawn rows, and of estimators that have none; the sampler has one for its noise.

    Attributes
    ----------
    sampler_ : estimator
        Fitted on private records.
    estimators_ : list of classifiers
        Fitted on synthetic rows, one for each draw.
    encoder_ : TabularEncoder
        Of the features, in their order.
    classes_ : ndarray of shape (n_classes,)
        The labels of synthetic rows, sorted. A draw that lacks one is lent a row of another.
    privacy_ : PrivacyReport
        That of the sampler: all that follows is post-processing.
    n_features_in_ : int
        Number of features.
    feature_names_in_ : ndarray of str
        Their names, in the order of the fit.

    See Also
    --------
    SyntheticDataRegressor : The same for numbers.
    sklearn_dpgen.predictors.BarycenterClassifier : Makes decisions alike between groups after this.

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

    ``predict`` gives the label of the largest mean probability; of the largest mean decision where
    the estimator has no probabilities, and of most votes where it has neither.

    Scores of private rows are not private, nor is what a search chooses by them, nor a calibration
    on them: :class:`~sklearn_dpgen.model_selection.PrivateSearchCV` pays for a choice. Searches and
    calibrations *within*, as ``estimator``, see synthetic rows alone, and are free. So is whatever
    is before the classifier in a pipeline that is the ``estimator``; steps before this object in a
    pipeline read private records, and have to be public, as a TabularEncoder is.

    Examples
    --------
    >>> from sklearn.ensemble import HistGradientBoostingClassifier
    >>> from sklearn_dpgen.datasets import load_rand_health
    >>> from sklearn_dpgen.tables import TableSampler, SyntheticDataClassifier
    >>> data = load_rand_health()
    >>> sampler = TableSampler(epsilon=1.0, schema=data.schema, target="hlthp")
    >>> model = SyntheticDataClassifier(sampler, HistGradientBoostingClassifier(), n_draws=2)
    >>> X = data.frame[["mdvis", "disea", "idp"]]
    >>> model.fit(X, data.frame["hlthp"]).predict(X[:3]).shape
    (3,)
    >>> model.privacy_.epsilon
    1.0
    """

    def _default(self):
        # Trees of few leaves: deep ones learn the noise of the counts.
        trees = HistGradientBoostingClassifier(max_leaf_nodes=4)
        members = [("linear", LogisticRegression(max_iter=300)), ("trees", trees)]
        return VotingClassifier(members, voting="soft")

    def _check_target(self, name, column):
        if isinstance(column, Numeric) and column.integer:
            return
        if not isinstance(column, Categorical | Ordinal):
            raise PublicValueError(
                f"target {name!r} must have labels or whole numbers for a classifier, its column "
                f"is {type(column).__name__}."
            )
        kinds = {float if type(label) is int else type(label) for label in column.labels}
        if len(kinds) > 1:
            raise PublicValueError(
                f"target {name!r} must have labels of one type for a classifier."
            )

    def _prepared(self, draws, target):
        """Return draws that have all labels: one row of each that a draw lacks is lent to it."""
        rows = pd.concat(draws, ignore_index=True).drop_duplicates(target)
        if len(rows) < 2:
            raise PublicValueError(
                f"All of {sum(map(len, draws))} synthetic rows have one {target!r}: raise "
                "n_samples, or look at sampler_, which is fitted."
            )
        self.classes_ = np.unique(rows[target].tolist())
        return [pd.concat([draw, rows[~rows[target].isin(draw[target])]]) for draw in draws]

    def predict(self, X: ArrayLike | pd.DataFrame) -> np.ndarray:
        """Predict the label of records.

        Parameters
        ----------
        X : data frame or array-like of shape (n_samples, n_features)

        Returns
        -------
        ndarray of shape (n_samples,)
        """
        if hasattr(self, "predict_proba"):
            scores = self.predict_proba(X)
        elif hasattr(self, "decision_function"):
            scores = self.decision_function(X)
        else:
            given = self._features_of(X)
            votes = [each.predict(given) for each in self.estimators_]
            scores = np.mean([np.equal.outer(vote, self.classes_) for vote in votes], axis=0)
        places = (scores > 0).astype(int) if scores.ndim == 1 else scores.argmax(axis=1)
        return self.classes_[places]

    @available_if(estimator_has("predict_proba"))
    def predict_proba(self, X: ArrayLike | pd.DataFrame) -> np.ndarray:
        """Predict the probability of each class: the mean over draws.

        Parameters
        ----------
        X : data frame or array-like of shape (n_samples, n_features)

        Returns
        -------
        ndarray of shape (n_samples, n_classes)
            In the order of ``classes_``.
        """
        return self._mean("predict_proba", X)

    @available_if(estimator_has("decision_function"))
    def decision_function(self, X: ArrayLike | pd.DataFrame) -> np.ndarray:
        """Return the mean of the estimators' decision functions.

        Parameters
        ----------
        X : data frame or array-like of shape (n_samples, n_features)

        Returns
        -------
        ndarray of shape (n_samples,) or (n_samples, n_classes)
        """
        return self._mean("decision_function", X)
