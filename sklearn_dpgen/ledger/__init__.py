"""The base class of private estimators, the unit of protection, and privacy ledgers."""

from typing import TYPE_CHECKING

from sklearn_dpgen.utils._lazy import lazy_names

__all__ = ["Plan", "PrivacyLedger", "PrivateEstimator"]

if TYPE_CHECKING:
    from sklearn_dpgen.ledger._base import Plan, PrivateEstimator
    from sklearn_dpgen.ledger._ledger import PrivacyLedger
else:
    __getattr__, __dir__ = lazy_names(
        __name__,
        {
            "sklearn_dpgen.ledger._base": ["Plan", "PrivateEstimator"],
            "sklearn_dpgen.ledger._ledger": ["PrivacyLedger"],
        },
    )
