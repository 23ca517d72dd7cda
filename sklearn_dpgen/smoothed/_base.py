"""What the estimators that release noisy records have in common."""

from sklearn_dpgen.nn._generators import ACTIVATIONS
from sklearn_dpgen.utils._validation import Integral, Interval, Real, StrOptions

__all__ = ["RELEASE_CONSTRAINTS"]

RELEASE_CONSTRAINTS = {
    "activation": [StrOptions(set(ACTIVATIONS))],
    "n_projections": [StrOptions({"auto"}), Interval(Integral, 1, None, closed="left")],
    "directions": [StrOptions({"orthogonal", "independent"})],
    "shape_weight": [StrOptions({"auto"}), Interval(Real, 0, None, closed="neither")],
    "n_epochs": [Interval(Real, 0, None, closed="neither")],
}
