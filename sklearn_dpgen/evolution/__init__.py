"""Private evolution: synthetic records from public candidates and private votes."""

from sklearn_dpgen.evolution._contraction import VariationContraction, variation_contraction
from sklearn_dpgen.evolution._diffusion_variation import DiffusionVariation
from sklearn_dpgen.evolution._evolution_sampler import PrivateEvolutionSampler
from sklearn_dpgen.evolution._latent_variation import LatentVariation
from sklearn_dpgen.evolution._public_supports import grid_support, kmeans_support
from sklearn_dpgen.evolution._rates import (
    closeness_lower_bound,
    contraction_rate,
    convergence_bound,
    gaussian_complexity_bound,
    lipschitz_complexity_bound,
    sampling_bound,
    signed_measure_bound,
    step_error_bound,
    thresholded_laplace_bound,
)
from sklearn_dpgen.evolution._schedules import (
    AnnealedParameters,
    TheoryParameters,
    annealed_parameters,
    theory_parameters,
)
from sklearn_dpgen.evolution._signed_measure_sampler import PrivateSignedMeasureSampler
from sklearn_dpgen.evolution._tabular_variation import TabularVariation
from sklearn_dpgen.evolution._variation_interface import (
    EuclideanVariation,
    VariationInterface,
    paper_degrees,
)
from sklearn_dpgen.evolution._votes import VoteCounter, nearest_neighbor_votes
from sklearn_dpgen.evolution._voting_sampler import ClassVotes
from sklearn_dpgen.evolution._weight_projections import (
    bounded_lipschitz_distance,
    project_bounded_lipschitz,
    project_simplex,
    threshold_weights,
)

__all__ = [
    "AnnealedParameters",
    "ClassVotes",
    "DiffusionVariation",
    "EuclideanVariation",
    "LatentVariation",
    "PrivateEvolutionSampler",
    "PrivateSignedMeasureSampler",
    "TabularVariation",
    "TheoryParameters",
    "VariationContraction",
    "VariationInterface",
    "annealed_parameters",
    "bounded_lipschitz_distance",
    "closeness_lower_bound",
    "contraction_rate",
    "convergence_bound",
    "gaussian_complexity_bound",
    "grid_support",
    "kmeans_support",
    "lipschitz_complexity_bound",
    "VoteCounter",
    "nearest_neighbor_votes",
    "paper_degrees",
    "project_bounded_lipschitz",
    "project_simplex",
    "sampling_bound",
    "signed_measure_bound",
    "step_error_bound",
    "theory_parameters",
    "threshold_weights",
    "thresholded_laplace_bound",
    "variation_contraction",
]
