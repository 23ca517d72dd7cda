"""Budgets: who is protected, what a fit will cost, and what fits have spent of a cap."""

from sklearn_dpgen.budget._ledger import PrivacyLedger
from sklearn_dpgen.budget._ledger_report import Charge, LedgerReport

__all__ = ["Charge", "LedgerReport", "PrivacyLedger"]
