"""Pictures with matplotlib, in scikit-learn's style.

What predictions are worth, and how alike they treat groups, is shown of the rows that are given,
without noise: a picture of private rows is not private. What a guarantee allows an attacker tells
nothing of a row.
"""

from sklearn_dpgen.inspection._fairness_curve_display import FairnessCurveDisplay
from sklearn_dpgen.inspection._fairness_display import FairnessDisplay
from sklearn_dpgen.inspection._privacy_utility_display import PrivacyUtilityDisplay
from sklearn_dpgen.inspection._trade_off_display import TradeOffDisplay

__all__ = ["FairnessCurveDisplay", "FairnessDisplay", "PrivacyUtilityDisplay", "TradeOffDisplay"]
