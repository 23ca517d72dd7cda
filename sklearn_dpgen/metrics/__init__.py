"""How close synthetic records come to real ones.

These functions read real records and add no noise: what they return is not private.
"""

from sklearn_dpgen.metrics._frechet import frechet_distance
from sklearn_dpgen.metrics._marginals import marginal_total_variation
from sklearn_dpgen.metrics._predictive import train_synthetic_test_real
from sklearn_dpgen.metrics._transport import sliced_wasserstein_distance, wasserstein_distance

__all__ = [
    "frechet_distance",
    "marginal_total_variation",
    "sliced_wasserstein_distance",
    "train_synthetic_test_real",
    "wasserstein_distance",
]
