"""Quality of synthetic records, and fairness between groups.

These functions compare with real records without noise, so their results are not private.
"""

from typing import TYPE_CHECKING

from sklearn_dpgen.utils._lazy import lazy_names

__all__ = [
    "coefficient_agreement",
    "correlation_difference",
    "disparate_impact",
    "equalized_odds_ratios",
    "frechet_distance",
    "group_wasserstein_distance",
    "k_marginal_score",
    "marginal_total_variation",
    "next_row_score",
    "over_diagonal_rates",
    "propensity_mse_ratio",
    "row_distances",
    "sliced_wasserstein_distance",
    "train_synthetic_test_real",
    "wasserstein_distance",
]

if TYPE_CHECKING:
    from sklearn_dpgen.metrics._coefficients import coefficient_agreement, propensity_mse_ratio
    from sklearn_dpgen.metrics._fairness import (
        disparate_impact,
        equalized_odds_ratios,
        group_wasserstein_distance,
        over_diagonal_rates,
    )
    from sklearn_dpgen.metrics._marginals import (
        correlation_difference,
        k_marginal_score,
        marginal_total_variation,
    )
    from sklearn_dpgen.metrics._predictive import train_synthetic_test_real
    from sklearn_dpgen.metrics._rows import next_row_score, row_distances
    from sklearn_dpgen.metrics._transport import (
        frechet_distance,
        sliced_wasserstein_distance,
        wasserstein_distance,
    )
else:
    __getattr__, __dir__ = lazy_names(
        __name__,
        {
            "sklearn_dpgen.metrics._coefficients": [
                "coefficient_agreement",
                "propensity_mse_ratio",
            ],
            "sklearn_dpgen.metrics._fairness": [
                "disparate_impact",
                "equalized_odds_ratios",
                "group_wasserstein_distance",
                "over_diagonal_rates",
            ],
            "sklearn_dpgen.metrics._marginals": [
                "correlation_difference",
                "k_marginal_score",
                "marginal_total_variation",
            ],
            "sklearn_dpgen.metrics._predictive": ["train_synthetic_test_real"],
            "sklearn_dpgen.metrics._rows": ["next_row_score", "row_distances"],
            "sklearn_dpgen.metrics._transport": [
                "frechet_distance",
                "sliced_wasserstein_distance",
                "wasserstein_distance",
            ],
        },
    )
