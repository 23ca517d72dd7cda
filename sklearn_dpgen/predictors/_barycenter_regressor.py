"""BarycenterRegressor: demographic parity by moving the predictions of any regressor."""

from typing import Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.metrics import r2_score

from sklearn_dpgen.exceptions import PublicValueError
from sklearn_dpgen.ledger._ledger import LedgerLike
from sklearn_dpgen.predictors._barycenter import BarycenterEstimator
from sklearn_dpgen.utils._validation import HasMethods, StrOptions, fit_context

__all__ = ["BarycenterRegressor"]


class BarycenterRegressor(RegressorMixin, BarycenterEstimator):
    """Regressor with demographic parity, by moving predictions group by group, or all of them.

    Like :class:`BarycenterClassifier`, in the units of the target.

    Parameters
    ----------
    estimator : regressor
        Regressor with one output, as in :class:`BarycenterClassifier`.
    y_domain : (float, float)
        Public bounds of the target. Predictions are clipped to them.
    max_gap : float, default=0.0
        Largest 2-Wasserstein distance between the distributions of two groups' predictions, in the
        units of the target. The least strength that reaches it, by the noisy counts, is used; 0 is
        parity, at strength 1.
    method : {"barycenter", "shrink"}, default="barycenter"
        "barycenter" moves predictions by the map of their group. "shrink" moves all of them
        towards one mean, which needs no group at prediction and can make no two groups less alike.
        Maps cost less accuracy where groups have thousands of records:
        :ref:`comparison <shrunk_predictions>`.
    epsilon, delta, epsilon_share, groups, group_estimator, n_levels, calibration_fraction
        As in :class:`BarycenterClassifier`.
    ledger, unit, random_state
        As in :class:`BarycenterClassifier`.

    Attributes
    ----------
    estimator_ : regressor
        The fitted regressor.
    group_estimator_ : classifier
        The fitted group classifier, if there is one.
    maps_ : BarycenterMaps
        Maps of predictions, scaled from ``y_domain`` to [0, 1], for each group.
    strength_ : float
        Fraction of the way to the barycentre, or to the mean, by which predictions are moved, in
        [0, 1]; 0 also if the counts show no difference between groups.
    means_ : DataFrame
        Mean prediction by group: "mean"; "low" and "high", a 95 % confidence interval of the
        population mean; and "n_rows", the noisy size of the group.
    groups_ : list or None
        The groups, in order.
    privacy_ : PrivacyReport
        The guarantee of the fit, nested fits included.

    Warns
    -----
    SmallGroupWarning
        If noise hides how predictions for a group differ.

    See Also
    --------
    SyntheticDataRegressor : Any regressor, privately.
    DPSlicedWassersteinFairRegressor : A penalty in training, for several outputs at once.

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

    A strength t multiplies every distance between two groups by 1 - t, exactly, so ``max_gap``
    needs no search. What the noise of the counts explains moves nothing, as in
    :class:`BarycenterClassifier`. The second release holds the sums of predictions.

    References
    ----------
    E. Chzhen, C. Denis, M. Hebiri, L. Oneto, M. Pontil, "Fair regression with Wasserstein
    barycenters", NeurIPS 2020; E. Chzhen, N. Schreuder, "A minimax framework for quantifying
    risk-fairness trade-off in regression", Annals of Statistics 2022, for a part of the way.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.linear_model import LinearRegression
    >>> from sklearn_dpgen.datasets import make_biased_labels
    >>> from sklearn_dpgen.metrics import group_wasserstein_distance
    >>> from sklearn_dpgen.predictors import BarycenterRegressor
    >>> data = make_biased_labels(2000, random_state=0)  # public rows
    >>> model = BarycenterRegressor(LinearRegression(), y_domain=(0, 1), epsilon=np.inf)
    >>> y = data.y_continuous[:, 1]
    >>> model = model.fit(data.X, y, sensitive_features=data.sensitive)
    >>> predicted = model.predict(data.X, sensitive_features=data.sensitive)
    >>> group_wasserstein_distance(y, predicted, sensitive_features=data.sensitive) < 0.06
    True
    """

    _parameter_constraints: dict = BarycenterEstimator._parameter_constraints | {
        "estimator": [HasMethods(["fit", "predict"])],
        "y_domain": ["array-like"],
        "max_gap": BarycenterEstimator._parameter_constraints["max_gap"][:1],
        "method": [StrOptions({"barycenter", "shrink"})],
    }

    def __init__(
        self,
        estimator: BaseEstimator,
        *,
        y_domain: tuple[float, float],
        max_gap: float = 0.0,
        method: str = "barycenter",
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
        self.y_domain = y_domain
        self.max_gap = max_gap
        self.method = method
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
        """Fit the regressor unless it is frozen, fit the maps, and measure the means.

        Parameters
        ----------
        X : array-like or data frame of shape (n_samples, n_features)
            Features, as the estimator takes them.
        y : array-like of shape (n_samples,) or None, default=None
            Targets. Optional with a frozen regressor, which does not read them.
        sensitive_features : array-like or data frame of shape (n_samples,) or (n_samples, k)
            Features on which predictions shall not depend; each combination of several columns is
            a group. None changes no prediction, and warns.

        Returns
        -------
        self : object

        Raises
        ------
        PublicValueError
            The bounds are invalid, or the estimator is not private or has a budget of its own.
        """
        return self._fit(X, y, sensitive_features)

    def _read(self, X, y, sensitive_features, *, seed):
        self._bounds()
        return super()._read(X, y, sensitive_features, seed=seed)

    def _set_means(self, means):
        low, high = self._bounds()
        values = ["mean", "low", "high"]
        means[values] = low + (high - low) * means[values]
        self.means_ = means

    def predict(self, X: ArrayLike, *, sensitive_features: ArrayLike | None = None) -> np.ndarray:
        """Return the mapped predictions.

        Parameters
        ----------
        X : array-like or data frame of shape (n_samples, n_features)
        sensitive_features : array-like or data frame of shape (n_samples,) or (n_samples, k)
            The groups, each one of ``groups_``. Not read with a ``group_estimator``, nor by
            ``method="shrink"``.

        Returns
        -------
        ndarray of shape (n_samples,)
        """
        low, high = self._bounds()
        return low + (high - low) * self._mapped(X, sensitive_features)

    def score(
        self,
        X: ArrayLike,
        y: ArrayLike,
        sample_weight: ArrayLike | None = None,
        *,
        sensitive_features: ArrayLike | None = None,
    ) -> float:
        """Return R², without noise: on private records it is not private.

        Parameters
        ----------
        X, sensitive_features
            As in :meth:`predict`.
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
        return float(r2_score(y, predicted, sample_weight=sample_weight))

    def _bounds(self):
        try:
            low, high = (float(bound) for bound in self.y_domain)
        except (TypeError, ValueError):
            low, high = np.nan, np.nan
        if not (np.isfinite([low, high, high - low]).all() and low < high):
            raise PublicValueError(
                f"y_domain must be a lower and an upper bound of the target, got {self.y_domain!r}."
            )
        return low, high

    def _strata(self, y):
        return None

    def _check_estimator(self):
        pass

    def _asks_for_parity(self):
        return True

    def _plan(self, n_samples, n_groups, **sizes):
        if self.method == "shrink" and self.group_estimator is not None:
            raise PublicValueError(
                "group_estimator must be None with method='shrink', which reads no group."
            )
        return super()._plan(n_samples, n_groups, **sizes)

    @property
    def _reads_groups(self):
        return self.method != "shrink"

    def _moved(self, maps, scores, codes, weights, strength):
        if self._reads_groups:
            return super()._moved(maps, scores, codes, weights, strength)
        return maps.shrink(scores, strength)

    def _strength(self, maps):
        low, high = self._bounds()
        return self._strength_by_gap(maps, self.max_gap / (high - low))

    def _scores(self, X):
        low, high = self._bounds()
        predicted = np.asarray(self.estimator_.predict(X), dtype=np.float64)
        predicted = predicted.reshape(len(predicted), -1).squeeze(axis=1)
        return (np.clip(np.nan_to_num(predicted, nan=low), low, high) - low) / (high - low)

    def _outcomes(self, moved):
        return moved
