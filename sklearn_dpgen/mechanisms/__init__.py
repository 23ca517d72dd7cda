"""Mechanisms that know their cost.

Local randomizers are scikit-learn transformers that know their likelihood too; the stratified
Gaussian mechanism releases vectors computed on secret batches.
"""

from sklearn_dpgen.mechanisms._additive import GaussianMechanism, LaplaceMechanism
from sklearn_dpgen.mechanisms._base import Mechanism, on_grid
from sklearn_dpgen.mechanisms._discrete import RandomizedResponse
from sklearn_dpgen.mechanisms._sampled import (
    StratifiedGaussianMechanism,
    StratifiedGaussianRun,
    Stratum,
)
from sklearn_dpgen.mechanisms._tabular import TabularMechanism

__all__ = [
    "GaussianMechanism",
    "LaplaceMechanism",
    "Mechanism",
    "RandomizedResponse",
    "StratifiedGaussianMechanism",
    "StratifiedGaussianRun",
    "Stratum",
    "TabularMechanism",
    "on_grid",
]
