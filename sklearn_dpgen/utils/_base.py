"""The spine of every private estimator: what a fit costs is known before a record is read."""

from abc import ABC, abstractmethod

from sklearn.base import BaseEstimator

__all__ = ["PrivateEstimator"]


class PrivateEstimator(BaseEstimator, ABC):
    """Base of the estimators and mechanisms that state a privacy guarantee.

    ``fit`` validates, then plans with ``_plan_privacy``, then reads records exactly as planned,
    then stores the plan as ``privacy_``.
    """

    @abstractmethod
    def _plan_privacy(self, n_samples):
        """Return the complete PrivacyReport of a fit, from public quantities alone."""
