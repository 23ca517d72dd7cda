"""BarycenterClassifier: demographic parity by mapping the probabilities of any classifier."""

from typing import Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.metrics import accuracy_score

from sklearn_dpgen.exceptions import PublicValueError
from sklearn_dpgen.ledger._ledger import LedgerLike
from sklearn_dpgen.predictors._barycenter import BarycenterEstimator
from sklearn_dpgen.utils._validation import (
    HasMethods,
    Interval,
    Real,
    assert_all_finite,
    check_classification_targets,
    fit_context,
)

__all__ = ["BarycenterClassifier"]

_STRENGTHS = np.linspace(0, 1, 201)


class BarycenterClassifier(ClassifierMixin, BarycenterEstimator):
    """Classifier with demographic parity, by mapping predicted probabilities group by group.

    A monotone map for each group moves the predicted probabilities towards the 2-Wasserstein
    barycentre of the distributions of all groups. At strength 1 every group has the same
    distribution of probabilities, and so the same rate of positive decisions at every threshold
    (demographic parity). The order within a group is kept, and the barycentre is the common
    distribution that is nearest to the predictions [1]_. A smaller strength reaches a wanted ratio
    of rates. The distributions come from noisy counts of the private records; the resulting rates
    are measured, with noise as well.

    Parameters
    ----------
    estimator : classifier
        Classifier of two classes, with ``predict_proba``, that predicts each record by itself.
        A private one, such as :class:`SyntheticDataClassifier`, or a pipeline of a TabularEncoder
        and a private one, is cloned and fitted on the same records. A fitted one in a
        :class:`~sklearn.frozen.FrozenEstimator` is used as it is. ``epsilon=np.inf`` takes any
        classifier.
    min_ratio : float, default=1.0
        Smallest ratio of two groups' rates of positive decisions, in [0, 1]. The least strength
        that reaches it, by the noisy counts, is used. 0.8 is the four-fifths rule; 1 is parity.
    max_gap : float or None, default=None
        Largest 2-Wasserstein distance between the distributions of probabilities of two groups;
        0 is parity at every threshold. None sets no limit.
    epsilon : float, default=1.0
        Privacy budget of the whole fit, the fit of the estimator included, in nats. ``np.inf``
        reads all rows without noise, for public rows.
    delta : float or "auto", default="auto"
        Failure probability of the whole fit, in (0, 1). "auto" is 0.1 / n_samples.
    epsilon_share : float, default=0.95
        Share of ``epsilon``, and of ``delta``, that the fit of the estimator may spend, in (0, 1);
        with a ``group_estimator`` each of the two fits may spend 1/√2 of this share of ``epsilon``,
        and half of it of ``delta``. It sets the budgets of both, which must be left unset, and so
        must those of a sampler within. The counts spend what all profiles together leave: 0.95 of
        1 leaves them the precision of 0.28 alone. Frozen estimators have no share.
    groups : array-like of shape (n_groups,) or (n_groups, n_columns), or None, default=None
        The public groups, at least two: values of ``sensitive_features``, or rows of them. None
        takes the groups that occur, which are then public.
    group_estimator : classifier or None, default=None
        Classifier of the group, for one sensitive feature that is unknown at prediction.
        Probabilities are then mapped by the mean of the groups' maps, weighted by its predicted
        probabilities. It is fitted and charged, or frozen, as ``estimator`` is. None requires the
        groups at prediction.
    n_levels : int, default=5
        Number of levels on which [0, 1] is halved for the counts; the last one has
        ``2 ** n_levels`` bins.
    calibration_fraction : float, default=0.3
        With ``epsilon=np.inf``, the share of rows that are held out from the fit of the estimator
        for the maps.
    ledger : PrivacyLedger, path or None, default=None
        Ledger that a fit charges once, nested fits included, before any of them.
        BudgetExceededError is raised if too little is left. None charges no ledger. Nested
        estimators must have no ledger.
    unit : str or None, default=None
        Name of the column of X, a data frame, that identifies the person of a row. The guarantee,
        also of the nested estimators, then protects a person with all their rows;
        counts and means use one row of each person, drawn at random. None protects single rows.
    random_state : int, RandomState or None, default=None
        None draws noise from the operating system's entropy. An int repeats the fit, and voids the
        guarantee against anybody who knows or guesses it.

    Attributes
    ----------
    estimator_ : classifier
        The fitted classifier.
    group_estimator_ : classifier
        The fitted group classifier, if there is one.
    maps_ : BarycenterMaps
        Maps of the probability of the second class, for each group.
    strength_ : float
        Fraction of the way to the barycentre by which probabilities are moved, in [0, 1]; 0 also if
        the counts show no difference between groups.
    rates_ : DataFrame
        Rate of positive decisions by group: "mean"; "low" and "high", a 95 % confidence interval
        of the population rate; and "n_rows", the noisy size of the group.
    groups_ : list or None
        The groups, in order.
    classes_ : ndarray of shape (2,)
        The labels; the second is the positive one.
    privacy_ : PrivacyReport
        The guarantee of the fit, nested fits included.

    Warns
    -----
    SmallGroupWarning
        If noise hides how predictions for a group differ.

    See Also
    --------
    SyntheticDataClassifier : Any classifier, privately.
    DPSlicedWassersteinFairClassifier : A penalty in training, which needs no group to predict.

    Notes
    -----
    **Formal guarantee**

    :Promise: Central (ε, δ)-differential privacy of all that ``fit`` stores, the fits of the
        estimators within included. With ``epsilon=np.inf``, for public rows, none.
    :Neighbours: Those of ``estimator`` and ``group_estimator``. With frozen ones: replace one
        record; the number of records is public. With ``unit``: a person with all
        their rows in place of a record.
    :Public: What the estimators take to be public; ``n_samples``, unless theirs is not; ``groups``,
        or values of the sensitive features; the fitted estimator, where it is frozen. With
        ``unit``: numbers of persons, and not those of their rows.
    :Bounded by: One count a record: on each level of its group, with weights whose squares sum to
        1, and after that a share of at most 1 in the sums of its group. Two vectors of l2
        sensitivity √2 where a record is replaced, and 1 where it is added or removed.
    :Noise: Gaussian, by :class:`~sklearn_dpgen.mechanisms.GaussianSequenceMechanism`, in floating
        point, from the operating system's entropy.
    :Priced by: The privacy profiles of the fits and of both releases, composed: their noise is the
        least that stays within (ε, δ).
    :Not covered: An estimator that does not predict each record by itself; what a frozen estimator
        was fitted on; other fits of the same records, which a ``ledger`` adds up; errors of a fit;
        a ``random_state`` that others know or guess.
    :Proof: :doc:`/fair_predictions`.

    Maps are made of the noisy counts alone, and follow a difference of groups only as far as these
    support it: what their noise explains moves nothing. The strength is chosen from the same counts
    and is 0 if no difference is found. The rates in ``rates_`` are measured by a second
    release; their interval covers its noise and the sampling of the records.

    A scorer of scikit-learn, such as "accuracy", predicts without groups, so that a search with it
    has scores of NaN. Leave ``scoring`` None after ``set_score_request(sensitive_features=True)``,
    or use :func:`~sklearn_dpgen.model_selection.group_scorer`.

    References
    ----------
    .. [1] E. Chzhen, C. Denis, M. Hebiri, L. Oneto, M. Pontil, "Fair regression with Wasserstein
       barycenters", NeurIPS 2020; S. Gaucher, N. Schreuder, E. Chzhen, "Fair learning with
       Wasserstein barycenters for non-decomposable performance measures", AISTATS 2023.

    Examples
    --------
    >>> from sklearn_dpgen.datasets import load_rand_health
    >>> from sklearn_dpgen.predictors import BarycenterClassifier
    >>> from sklearn_dpgen.tables import SyntheticDataClassifier
    >>> from sklearn_dpgen.tables import TableSampler
    >>> data = load_rand_health()
    >>> X, plan = data.frame[["mdvis", "disea", "hlthp"]], data.frame["idp"]
    >>> sampler = TableSampler(schema=data.schema, target="hlthp")
    >>> learner = SyntheticDataClassifier(sampler, n_samples=2000, n_draws=1)
    >>> model = BarycenterClassifier(learner, min_ratio=0.8, epsilon=1.0, groups=[0, 1])
    >>> model = model.fit(X[["mdvis", "disea"]], X["hlthp"], sensitive_features=plan)
    >>> model.rates_.columns.tolist()
    ['mean', 'low', 'high', 'n_rows']
    """

    _parameter_constraints: dict = BarycenterEstimator._parameter_constraints | {
        "estimator": [HasMethods(["fit", "predict_proba"])],
        "min_ratio": [Interval(Real, 0, 1, closed="both")],
    }

    def __init__(
        self,
        estimator: BaseEstimator,
        *,
        min_ratio: float = 1.0,
        max_gap: float | None = None,
        epsilon: float = 1.0,
        delta: float | str = "auto",
        epsilon_share: float = 0.95,
        groups: ArrayLike | None = None,
        group_estimator: BaseEstimator | None = None,
        n_levels: int = 5,
        calibration_fraction: float = 0.3,
        ledger: LedgerLike = None,
        unit: str | None = None,
        random_state: int | np.random.RandomState | None = None,
    ) -> None:
        self.estimator = estimator
        self.min_ratio = min_ratio
        self.max_gap = max_gap
        self.epsilon = epsilon
        self.delta = delta
        self.epsilon_share = epsilon_share
        self.groups = groups
        self.group_estimator = group_estimator
        self.n_levels = n_levels
        self.calibration_fraction = calibration_fraction
        self.ledger = ledger
        self.unit = unit
        self.random_state = random_state

    @fit_context(prefer_skip_nested_validation=False)
    def fit(
        self,
        X: ArrayLike,
        y: ArrayLike | None = None,
        *,
        sensitive_features: ArrayLike | None = None,
    ) -> Self:
        """Fit the classifier unless it is frozen, fit the maps, and measure the rates.

        Parameters
        ----------
        X : array-like or data frame of shape (n_samples, n_features)
            Features, as the estimator takes them.
        y : array-like of shape (n_samples,) or None, default=None
            Labels. Optional with a frozen classifier, which does not read them.
        sensitive_features : array-like or data frame of shape (n_samples,) or (n_samples, k)
            Features on which decisions shall not depend; each combination of several columns is a
            group. None changes no prediction, and warns unless ``min_ratio`` is 0.

        Returns
        -------
        self : object

        Raises
        ------
        PublicValueError
            The estimator is not private, has a budget of its own, or does not have two classes.
        """
        return self._fit(X, y, sensitive_features)

    def predict_proba(
        self, X: ArrayLike, *, sensitive_features: ArrayLike | None = None
    ) -> np.ndarray:
        """Return the moved probabilities of both classes.

        Parameters
        ----------
        X : array-like or data frame of shape (n_samples, n_features)
        sensitive_features : array-like or data frame of shape (n_samples,) or (n_samples, k)
            The groups, each one of ``groups_``. Not read with a ``group_estimator``.

        Returns
        -------
        ndarray of shape (n_samples, 2)
        """
        positive = self._mapped(X, sensitive_features)
        return np.column_stack([1 - positive, positive])

    def predict(self, X: ArrayLike, *, sensitive_features: ArrayLike | None = None) -> np.ndarray:
        """Return the label with the larger mapped probability.

        Parameters
        ----------
        X, sensitive_features
            As in :meth:`predict_proba`.

        Returns
        -------
        ndarray of shape (n_samples,)
        """
        decided = self._outcomes(self._mapped(X, sensitive_features))
        return self.classes_[decided.astype(np.int64)]

    def score(
        self,
        X: ArrayLike,
        y: ArrayLike,
        sample_weight: ArrayLike | None = None,
        *,
        sensitive_features: ArrayLike | None = None,
    ) -> float:
        """Return the accuracy, without noise: on private records it is not private.

        Parameters
        ----------
        X, sensitive_features
            As in :meth:`predict_proba`.
        y : array-like of shape (n_samples,)
        sample_weight : array-like of shape (n_samples,) or None, default=None

        Returns
        -------
        float

        Warns
        -----
        UnpaidScoreWarning
            After a private fit, as the score charges no ledger.
        """
        predicted = self.predict(X, sensitive_features=sensitive_features)
        self._warn_of_score()
        return float(accuracy_score(y, predicted, sample_weight=sample_weight))

    @property
    def classes_(self) -> np.ndarray:
        """The labels; the second is the positive one."""
        return self.estimator_.classes_

    def _strata(self, y):
        if y.dtype.kind == "f":
            assert_all_finite(y, input_name="y")
        check_classification_targets(y)
        return y

    def _check_estimator(self):
        if len(self.classes_) != 2:
            raise PublicValueError(
                "Only binary classification is supported. The type of the target is multiclass: "
                f"estimator has {len(self.classes_)} classes."
            )

    def _asks_for_parity(self):
        return self.min_ratio > 0 or self.max_gap is not None

    def _set_means(self, means):
        self.rates_ = means

    def _strength(self, maps):
        """Return the least strength at which the ratio of rates is ``min_ratio``, or 1."""
        first = 0.0 if self.max_gap is None else self._strength_by_gap(maps, self.max_gap)
        for strength in [first, *_STRENGTHS[first < _STRENGTHS]]:
            rates = maps.rates_above(0.5, strength)
            if rates.min() >= self.min_ratio * rates.max():
                return float(strength)
        return 1.0

    def _scores(self, X):
        return _unit(np.asarray(self.estimator_.predict_proba(X), dtype=np.float64)[:, 1])

    def _outcomes(self, moved):
        return (moved > 0.5).astype(np.float64)

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_class = False
        return tags


def _unit(scores):
    """Return scores clipped to [0, 1], with 0 for NaN."""
    return np.clip(np.nan_to_num(scores, nan=0.0), 0.0, 1.0)
