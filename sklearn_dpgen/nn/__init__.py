"""Networks and the training loop."""

from sklearn_dpgen.nn._generators import ACTIVATIONS, dcgan_generator, mlp_generator
from sklearn_dpgen.nn._heads import DomainHead
from sklearn_dpgen.nn._training import TrainingResult, fit_module

__all__ = [
    "ACTIVATIONS",
    "DomainHead",
    "TrainingResult",
    "dcgan_generator",
    "fit_module",
    "mlp_generator",
]
