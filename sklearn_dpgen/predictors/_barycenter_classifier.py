"""BarycenterClassifier: decisions that are alike between groups, after any classifier."""

from typing import Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.metrics import accuracy_score

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
    """Decisions that are alike between groups, by mapping a classifier's probabilities.

    The predicted probabilities of each group are moved, by a monotone map of its own, towards the
    2-Wasserstein barycentre of the groups' laws: where all of the way is gone every group has the
    same law of probabilities, and so the same rate of positive decisions at every threshold
    (demographic parity). Within a group the order stays, and of all common laws the barycentre is
    nearest to what the classifier said [1]_. A part of the way keeps to a wanted ratio of rates.
    The laws are noisy counts of the private records, and what is reached is measured, with noise
    as well.

    Parameters
    ----------
    estimator : classifier
        Of two classes, with ``predict_proba``, that predicts each record by itself. A private one,
        such as :class:`SyntheticDataClassifier`, or a pipeline of a TabularEncoder and one: it is
        cloned and fitted on the same records. Or a fitted one in a
        :class:`~sklearn.frozen.FrozenEstimator`, which is taken as it is. With ``epsilon=np.inf``
        any classifier.
    min_ratio : float, default=1.0
        The smallest ratio of two groups' rates of positive decisions, in [0, 1]: as little is moved
        as the counts say it takes. 0.8 is the four-fifths rule; 1 asks for parity.
    max_gap : float or None, default=None
        The largest 2-Wasserstein distance between the laws of probabilities of two groups, from 0,
        which is parity at every threshold. None asks for none.
    epsilon : float, default=1.0
        Privacy budget of everything, the fit of the estimator included, in nats: what the estimator
        leaves of it is spent on the counts, so its own must be smaller. 0.95 of 1, at one delta,
        leaves counts as exact as about 0.27 alone would; a smaller delta of its own leaves more.
        ``np.inf`` reads all rows without noise: for public ones.
    delta : float or "auto", default="auto"
        Failure probability, in (0, 1). "auto" is 0.1 / n_samples.
    groups : array-like of shape (n_groups,) or (n_groups, n_columns), or None, default=None
        The public groups, at least two: values of ``sensitive_features``, or rows of them. None
        takes those that occur, which are then public.
    group_estimator : classifier or None, default=None
        Predicts the group, of one sensitive feature, where it is not known at prediction: then
        probabilities are moved by the mean of the groups' maps, with its probabilities. It is
        fitted and paid for, or frozen, as ``estimator`` is. None needs the groups to predict.
    n_levels : int, default=5
        Probabilities are counted in halves of [0, 1], in halves of these, and so on: on the last
        level in ``2 ** n_levels`` bins.
    calibration_fraction : float, default=0.3
        With ``epsilon=np.inf``, rows that are left out of the fit of the estimator, for the maps.
    ledger : PrivacyLedger, path or None, default=None
        Where a fit books what all of it will cost, that of the estimators within it included, once
        and before any of them: it raises BudgetExceededError where less is left. None books
        nowhere. Estimators within it must have none.
    unit : str or None, default=None
        Column of X, a data frame, that says whose row each is. A person is then protected with all
        of their rows, by the estimators within too, and has one of them, drawn at random, in the
        counts and means. None protects each row by itself.
    random_state : int, RandomState or None, default=None
        None draws noise from the operating system's entropy. An int repeats the fit, and voids the
        guarantee for whoever knows or guesses it.

    Attributes
    ----------
    estimator_ : classifier
        Fitted.
    group_estimator_ : classifier
        Fitted, if there is one.
    maps_ : BarycenterMaps
        Of the probability of the second class, for each group.
    strength_ : float
        Part of the way to the barycentre that probabilities are moved, in [0, 1].
    rates_ : DataFrame
        By group, the rate of positive decisions: "mean", "low" and "high", a 95 percent interval
        for the rate among people like those of the fit, and "n_rows", the noisy size of the group.
    groups_ : list or None
        The groups, in order.
    classes_ : ndarray of shape (2,)
        The labels; the second is the positive one.
    privacy_ : PrivacyReport
        The guarantee of the fit, with the estimator's.

    Warns
    -----
    SmallGroupWarning
        Where noise hides how predictions for a group differ.

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

    The part of the way is chosen by counts with noise, and the rates in ``rates_`` are measured
    after that, apart: their interval covers the noise and the sampling of the records.

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
    >>> sampler = TableSampler(0.95, 1e-6, schema=data.schema, target="hlthp")
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
        """Fit the classifier where it is not frozen, then the maps, and measure the rates.

        Parameters
        ----------
        X : array-like or data frame of shape (n_samples, n_features)
            Features, as the estimator takes them.
        y : array-like of shape (n_samples,) or None, default=None
            Labels. With a frozen classifier they are not read, and need not be there.
        sensitive_features : array-like or data frame of shape (n_samples,) or (n_samples, k)
            What decisions are to be independent of; of several columns each combination is a
            group. None moves nothing, and warns unless ``min_ratio`` is 0.

        Returns
        -------
        self : object

        Raises
        ------
        ValueError
            An estimator without a price, with one that takes all of ``epsilon``, or with other than
            two classes.
        """
        self._forget()
        self.rates_ = self._fit_maps(X, y, sensitive_features)
        return self

    def predict_proba(
        self, X: ArrayLike, *, sensitive_features: ArrayLike | None = None
    ) -> np.ndarray:
        """Return the moved probabilities of both classes.

        Parameters
        ----------
        X : array-like or data frame of shape (n_samples, n_features)
        sensitive_features : array-like or data frame of shape (n_samples,) or (n_samples, k)
            The groups, each one of ``groups_``. With a ``group_estimator`` they are not looked at.

        Returns
        -------
        ndarray of shape (n_samples, 2)
        """
        positive = self._mapped(X, sensitive_features)
        return np.column_stack([1 - positive, positive])

    def predict(self, X: ArrayLike, *, sensitive_features: ArrayLike | None = None) -> np.ndarray:
        """Return the label whose moved probability is larger.

        Parameters
        ----------
        X, sensitive_features
            As of :meth:`predict_proba`.

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
        """Return the accuracy, without noise: of private records it is not private.

        Parameters
        ----------
        X, sensitive_features
            As of :meth:`predict_proba`.
        y : array-like of shape (n_samples,)
        sample_weight : array-like of shape (n_samples,) or None, default=None

        Returns
        -------
        float

        Warns
        -----
        UnpaidScoreWarning
            After a private fit: nothing is paid for the score.
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
            raise ValueError(
                "Only binary classification is supported. The type of the target is multiclass: "
                f"estimator has {len(self.classes_)} classes."
            )

    def _asks_for_parity(self):
        return self.min_ratio > 0 or self.max_gap is not None

    def _strength(self):
        """Return the shortest way after which rates are as near as wanted, or all of it."""
        first = 0.0 if self.max_gap is None else self._strength_by_gap(self.max_gap)
        for strength in [first, *_STRENGTHS[first < _STRENGTHS]]:
            rates = self.maps_.rates_above(0.5, strength)
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
    """Return what is no probability as the nearest one, or as 0."""
    return np.clip(np.nan_to_num(scores, nan=0.0), 0.0, 1.0)
