"""Budgets: the protected unit, the price of a fit, and ledgers over several fits."""

from sklearn_dpgen.ledger._ledger import PrivacyLedger
from sklearn_dpgen.ledger._ledger_report import Charge, LedgerReport

__all__ = ["Charge", "LedgerReport", "PrivacyLedger"]
