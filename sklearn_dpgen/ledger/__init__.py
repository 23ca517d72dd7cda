"""The base class of private estimators, the unit of protection, and privacy ledgers."""

from sklearn_dpgen.ledger._base import Plan, PrivateEstimator
from sklearn_dpgen.ledger._ledger import PrivacyLedger
from sklearn_dpgen.ledger._ledger_report import Charge, LedgerReport

__all__ = ["Charge", "LedgerReport", "Plan", "PrivacyLedger", "PrivateEstimator"]
