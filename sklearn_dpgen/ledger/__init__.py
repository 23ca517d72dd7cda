"""The base of private estimators, the protected unit, and ledgers over several fits."""

from sklearn_dpgen.ledger._base import Plan, PrivateEstimator
from sklearn_dpgen.ledger._ledger import PrivacyLedger

__all__ = ["Plan", "PrivacyLedger", "PrivateEstimator"]
