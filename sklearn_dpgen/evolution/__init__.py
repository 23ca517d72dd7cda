"""Private evolution: synthetic records from public candidates and private votes."""

from sklearn_dpgen.evolution._diffusion_variation import DiffusionVariation
from sklearn_dpgen.evolution._evolution_sampler import PrivateEvolutionSampler
from sklearn_dpgen.evolution._latent_variation import LatentVariation
from sklearn_dpgen.evolution._schedules import (
    annealed_parameters,
    theory_parameters,
)
from sklearn_dpgen.evolution._signed_measure_sampler import (
    PrivateSignedMeasureSampler,
)
from sklearn_dpgen.evolution._tabular_variation import TabularVariation
from sklearn_dpgen.evolution._theory import variation_contraction
from sklearn_dpgen.evolution._variation_interface import EuclideanVariation, VariationInterface
from sklearn_dpgen.evolution._votes import VoteCounter, nearest_neighbor_votes
from sklearn_dpgen.evolution._voting_sampler import NoisyVotes

__all__ = [
    "DiffusionVariation",
    "EuclideanVariation",
    "LatentVariation",
    "NoisyVotes",
    "PrivateEvolutionSampler",
    "PrivateSignedMeasureSampler",
    "TabularVariation",
    "VariationInterface",
    "annealed_parameters",
    "VoteCounter",
    "nearest_neighbor_votes",
    "theory_parameters",
    "variation_contraction",
]
