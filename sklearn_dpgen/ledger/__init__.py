"""The base class of private estimators, the unit of protection, and privacy ledgers."""

from sklearn_dpgen.ledger._base import Plan, PrivateEstimator
from sklearn_dpgen.ledger._ledger import PrivacyLedger

__all__ = ["Plan", "PrivacyLedger", "PrivateEstimator"]
