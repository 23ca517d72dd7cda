"""How close synthetic records come to real ones, and how alike predictions treat groups.

These functions read real records and add no noise: what they return is not private.
"""

from sklearn_dpgen.metrics._fairness import (
    disparate_impact,
    equalized_odds_ratios,
    group_wasserstein_distance,
    over_diagonal_rates,
)
from sklearn_dpgen.metrics._frechet import frechet_distance
from sklearn_dpgen.metrics._marginals import marginal_total_variation
from sklearn_dpgen.metrics._predictive import train_synthetic_test_real
from sklearn_dpgen.metrics._transport import sliced_wasserstein_distance, wasserstein_distance

__all__ = [
    "disparate_impact",
    "equalized_odds_ratios",
    "frechet_distance",
    "group_wasserstein_distance",
    "marginal_total_variation",
    "over_diagonal_rates",
    "sliced_wasserstein_distance",
    "train_synthetic_test_real",
    "wasserstein_distance",
]
