"""Private evolution: synthetic records from public candidates and private votes."""

from typing import TYPE_CHECKING

from sklearn_dpgen.utils._lazy import lazy_names

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

if TYPE_CHECKING:
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
else:
    __getattr__, __dir__ = lazy_names(
        __name__,
        {
            "sklearn_dpgen.evolution._diffusion_variation": ["DiffusionVariation"],
            "sklearn_dpgen.evolution._evolution_sampler": ["PrivateEvolutionSampler"],
            "sklearn_dpgen.evolution._latent_variation": ["LatentVariation"],
            "sklearn_dpgen.evolution._schedules": ["annealed_parameters", "theory_parameters"],
            "sklearn_dpgen.evolution._signed_measure_sampler": ["PrivateSignedMeasureSampler"],
            "sklearn_dpgen.evolution._tabular_variation": ["TabularVariation"],
            "sklearn_dpgen.evolution._theory": ["variation_contraction"],
            "sklearn_dpgen.evolution._variation_interface": [
                "EuclideanVariation",
                "VariationInterface",
            ],
            "sklearn_dpgen.evolution._votes": ["VoteCounter", "nearest_neighbor_votes"],
            "sklearn_dpgen.evolution._voting_sampler": ["NoisyVotes"],
        },
    )
