"""Quality reports, signed model cards, and matplotlib displays in scikit-learn's style.

Each figure of a report states whether it is private. Displays of private rows, and of predictions
for them, are computed without noise and are not private.
"""

from sklearn_dpgen.reporting._fairness_curve_display import FairnessCurveDisplay
from sklearn_dpgen.reporting._fairness_display import FairnessDisplay
from sklearn_dpgen.reporting._marginal_display import MarginalDisplay
from sklearn_dpgen.reporting._model_card import ModelCard, model_card, verify_model_card
from sklearn_dpgen.reporting._pair_display import PairDisplay
from sklearn_dpgen.reporting._privacy_utility_display import PrivacyUtilityDisplay
from sklearn_dpgen.reporting._quality_report import QualityReport
from sklearn_dpgen.reporting._trade_off_display import TradeOffDisplay

__all__ = [
    "FairnessCurveDisplay",
    "FairnessDisplay",
    "MarginalDisplay",
    "ModelCard",
    "PairDisplay",
    "PrivacyUtilityDisplay",
    "QualityReport",
    "TradeOffDisplay",
    "model_card",
    "verify_model_card",
]
