"""Private evolution: synthetic records from public candidates and private votes."""

from sklearn_dpgen.evolution._base import ClassVotes
from sklearn_dpgen.evolution._diffusion import DiffusionVariation
from sklearn_dpgen.evolution._interfaces import (
    EuclideanVariation,
    VariationInterface,
    paper_degrees,
)
from sklearn_dpgen.evolution._latent import LatentVariation, SamplerVariation
from sklearn_dpgen.evolution._projection import (
    bounded_lipschitz_distance,
    project_bounded_lipschitz,
    project_simplex,
    threshold_weights,
)
from sklearn_dpgen.evolution._sampler import PrivateEvolutionSampler
from sklearn_dpgen.evolution._settings import (
    AnnealedParameters,
    TheoryParameters,
    annealed_parameters,
    theory_parameters,
)
from sklearn_dpgen.evolution._signed_measure import PrivateSignedMeasureSampler
from sklearn_dpgen.evolution._supports import grid_support, kmeans_support
from sklearn_dpgen.evolution._tabular import TabularVariation
from sklearn_dpgen.evolution._votes import nearest_neighbor_votes

__all__ = [
    "AnnealedParameters",
    "ClassVotes",
    "DiffusionVariation",
    "EuclideanVariation",
    "LatentVariation",
    "PrivateEvolutionSampler",
    "PrivateSignedMeasureSampler",
    "SamplerVariation",
    "TabularVariation",
    "TheoryParameters",
    "VariationInterface",
    "annealed_parameters",
    "bounded_lipschitz_distance",
    "grid_support",
    "kmeans_support",
    "nearest_neighbor_votes",
    "paper_degrees",
    "project_bounded_lipschitz",
    "project_simplex",
    "theory_parameters",
    "threshold_weights",
]
