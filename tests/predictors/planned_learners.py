"""A private classifier of which only the budget is known, and that counts its fits."""

from dataclasses import replace

import numpy as np
from sklearn.base import ClassifierMixin

from sklearn_dpgen.accounting import PrivacyReport
from sklearn_dpgen.ledger._base import PrivateEstimator


class Sign(ClassifierMixin, PrivateEstimator):
    """Predicts by the sign of the first column, and states a budget for it.

    Parameters
    ----------
    epsilon, delta : float
    overspends : float, default=0.0
        By how much a fit costs more than was planned: a broken variant.
    """

    fits: list = []

    def __init__(self, *, epsilon=0.5, delta=1e-6, overspends=0.0, ledger=None, unit=None):
        self.epsilon = epsilon
        self.delta = delta
        self.overspends = overspends
        self.ledger = ledger
        self.unit = unit

    def plan(self, n_samples, n_features=None):
        """Return the report of a fit."""
        return self._protected(
            PrivacyReport(name="Sign: one bit", events=(), epsilon=self.epsilon, delta=self.delta)
        )

    def fit(self, X, y):
        """Read nothing, but for the labels that there are."""
        report = self.plan(len(X))
        if self.overspends:
            report = PrivacyReport(
                name=report.name,
                events=report.events,
                epsilon=self.epsilon + self.overspends,
                delta=self.delta,
            )
        self._charge(report)
        self.fits.append(len(X))
        self.classes_ = np.unique(y)
        return self

    def predict_proba(self, X):
        """Return probabilities of both classes."""
        X = np.asarray(self._without_unit(X))
        above = X[:, 0].astype(float) > 0
        return np.column_stack([~above, above]).astype(float)

    def predict(self, X):
        """Return labels."""
        return self.classes_[self.predict_proba(X).argmax(axis=1)]


class AddedSign(Sign):
    """Protects against one record more or less, whose number is not public."""

    def plan(self, n_samples, n_features=None):
        """Return the report of a fit."""
        return replace(
            super().plan(n_samples),
            neighbours="add_or_remove",
            public=(),
        )
