"""Privacy accounting: profiles, composition, calibration, guarantees and reports."""

from sklearn_dpgen.accounting._attack_risk import AttackRisk
from sklearn_dpgen.accounting._calibration import (
    accountant_description,
    calibrate_noise_multiplier,
    calibrate_remainder,
    epsilon_spent,
    gaussian_sigma,
    laplace_scale,
)
from sklearn_dpgen.accounting._checks import check_delta_size
from sklearn_dpgen.accounting._composition import (
    ComposedProfile,
    DominatingCost,
    compose_delta,
    compose_epsilon,
    default_discretization,
    dominating_gaussian,
    dominating_renyi,
)
from sklearn_dpgen.accounting._guarantee import (
    Bound,
    BoundKind,
    Caveat,
    Event,
    Guarantee,
    Protected,
    Public,
    Released,
    Shared,
)
from sklearn_dpgen.accounting._profiles import (
    ApproximateProfile,
    CatastrophicFailureProfile,
    GaussianProfile,
    LaplaceProfile,
    MaximumProfile,
    MixtureProfile,
    PrivacyProfile,
    RandomizedResponseProfile,
    SampledProfile,
    sampled_without_replacement,
)
from sklearn_dpgen.accounting._projection import (
    ProjectionLaw,
    projection_bound,
    renyi_epsilon,
)
from sklearn_dpgen.accounting._random_stopping import (
    BinomialRuns,
    FailingGaussianProfile,
    NegativeBinomialRuns,
    PoissonRuns,
    RandomStoppingProfile,
    calibrate_runs,
)
from sklearn_dpgen.accounting._report import PrivacyReport
from sklearn_dpgen.accounting._selection import BoundedRangeProfile, calibrate_releases
from sklearn_dpgen.accounting._shuffling import shuffled_epsilon

__all__ = [
    "ApproximateProfile",
    "AttackRisk",
    "BinomialRuns",
    "Bound",
    "BoundKind",
    "BoundedRangeProfile",
    "CatastrophicFailureProfile",
    "Caveat",
    "ComposedProfile",
    "DominatingCost",
    "Event",
    "FailingGaussianProfile",
    "GaussianProfile",
    "Guarantee",
    "LaplaceProfile",
    "MaximumProfile",
    "MixtureProfile",
    "NegativeBinomialRuns",
    "PoissonRuns",
    "PrivacyProfile",
    "PrivacyReport",
    "ProjectionLaw",
    "Protected",
    "Public",
    "RandomStoppingProfile",
    "RandomizedResponseProfile",
    "Released",
    "SampledProfile",
    "Shared",
    "accountant_description",
    "calibrate_noise_multiplier",
    "calibrate_remainder",
    "calibrate_releases",
    "calibrate_runs",
    "check_delta_size",
    "compose_delta",
    "compose_epsilon",
    "default_discretization",
    "dominating_gaussian",
    "dominating_renyi",
    "epsilon_spent",
    "gaussian_sigma",
    "laplace_scale",
    "projection_bound",
    "renyi_epsilon",
    "sampled_without_replacement",
    "shuffled_epsilon",
]
