"""Quality reports, signed model cards, and matplotlib displays in scikit-learn's style.

Each figure of a report states whether it is private. Displays of private rows, and of predictions
for them, are computed without noise and are not private.
"""

from typing import TYPE_CHECKING

from sklearn_dpgen.utils._lazy import lazy_names

__all__ = [
    "FairnessCurveDisplay",
    "FairnessDisplay",
    "MarginalDisplay",
    "PairDisplay",
    "PublicTableDisplay",
    "QualityReport",
    "TradeOffDisplay",
    "model_card",
    "verify_model_card",
]

if TYPE_CHECKING:
    from sklearn_dpgen.reporting._fairness_displays import FairnessCurveDisplay, FairnessDisplay
    from sklearn_dpgen.reporting._marginal_displays import (
        MarginalDisplay,
        PairDisplay,
        PublicTableDisplay,
    )
    from sklearn_dpgen.reporting._model_card import model_card, verify_model_card
    from sklearn_dpgen.reporting._privacy_displays import TradeOffDisplay
    from sklearn_dpgen.reporting._quality_report import QualityReport
else:
    __getattr__, __dir__ = lazy_names(
        __name__,
        {
            "sklearn_dpgen.reporting._fairness_displays": [
                "FairnessCurveDisplay",
                "FairnessDisplay",
            ],
            "sklearn_dpgen.reporting._marginal_displays": [
                "MarginalDisplay",
                "PairDisplay",
                "PublicTableDisplay",
            ],
            "sklearn_dpgen.reporting._model_card": ["model_card", "verify_model_card"],
            "sklearn_dpgen.reporting._privacy_displays": ["TradeOffDisplay"],
            "sklearn_dpgen.reporting._quality_report": ["QualityReport"],
        },
    )
