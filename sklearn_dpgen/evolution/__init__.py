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
from sklearn_dpgen.evolution._theory import (
    closeness_lower_bound,
    contraction_rate,
    convergence_bound,
    gaussian_complexity_bound,
    lipschitz_complexity_bound,
    sampling_bound,
    signed_measure_bound,
    step_error_bound,
    thresholded_laplace_bound,
    variation_contraction,
)
from sklearn_dpgen.evolution._variation_interface import (
    EuclideanVariation,
    VariationInterface,
    paper_degrees,
)
from sklearn_dpgen.evolution._votes import VoteCounter, nearest_neighbor_votes
from sklearn_dpgen.evolution._voting_sampler import ClassVotes
from sklearn_dpgen.evolution._weight_projections import (
    project_bounded_lipschitz,
    project_simplex,
)

__all__ = [
    "ClassVotes",
    "DiffusionVariation",
    "EuclideanVariation",
    "LatentVariation",
    "PrivateEvolutionSampler",
    "PrivateSignedMeasureSampler",
    "TabularVariation",
    "VariationInterface",
    "annealed_parameters",
    "closeness_lower_bound",
    "contraction_rate",
    "convergence_bound",
    "gaussian_complexity_bound",
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
    "thresholded_laplace_bound",
    "variation_contraction",
]
