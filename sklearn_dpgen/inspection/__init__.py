"""Audits, quality reports, model cards, and pictures with matplotlib in scikit-learn's style.

An audit bounds from below what a fit tells of a record. It is not private.
What predictions are worth, and how alike they treat groups, is shown of the rows that are given,
without noise: a picture of private rows is not private. What a guarantee allows an attacker tells
nothing of a row.
"""

from sklearn_dpgen._reports import ModelCard, QualityReport, model_card, verify_model_card
from sklearn_dpgen.inspection._audit import audit
from sklearn_dpgen.inspection._audit_result import AuditResult
from sklearn_dpgen.inspection._fairness_curve_display import FairnessCurveDisplay
from sklearn_dpgen.inspection._fairness_display import FairnessDisplay
from sklearn_dpgen.inspection._marginal_display import MarginalDisplay
from sklearn_dpgen.inspection._pair_display import PairDisplay
from sklearn_dpgen.inspection._privacy_utility_display import PrivacyUtilityDisplay
from sklearn_dpgen.inspection._trade_off_display import TradeOffDisplay

__all__ = [
    "AuditResult",
    "FairnessCurveDisplay",
    "FairnessDisplay",
    "MarginalDisplay",
    "ModelCard",
    "PairDisplay",
    "PrivacyUtilityDisplay",
    "QualityReport",
    "TradeOffDisplay",
    "audit",
    "model_card",
    "verify_model_card",
]
