"""Local randomizers: scikit-learn transformers that know their likelihood and their cost."""

from sklearn_dpgen.mechanisms._additive import GaussianMechanism, LaplaceMechanism
from sklearn_dpgen.mechanisms._base import Mechanism, on_grid
from sklearn_dpgen.mechanisms._discrete import RandomizedResponse
from sklearn_dpgen.mechanisms._tabular import TabularMechanism

__all__ = [
    "GaussianMechanism",
    "LaplaceMechanism",
    "Mechanism",
    "RandomizedResponse",
    "TabularMechanism",
    "on_grid",
]
