"""Privacy accounting: profiles, composition, calibration, guarantees and reports."""

from sklearn_dpgen.accounting._attack_risk import AttackRisk
from sklearn_dpgen.accounting._calibration import (
    calibrate_noise_multiplier,
    epsilon_spent,
    gaussian_sigma,
    shuffled_epsilon,
)
from sklearn_dpgen.accounting._composition import compose_epsilon
from sklearn_dpgen.accounting._guarantee import (
    Bound,
    BoundKind,
    Caveat,
    Event,
    Guarantee,
    Public,
    Released,
)
from sklearn_dpgen.accounting._profiles import ApproximateProfile, GaussianProfile, LaplaceProfile
from sklearn_dpgen.accounting._projection import ProjectionLaw
from sklearn_dpgen.accounting._report import PrivacyReport
from sklearn_dpgen.accounting._selection import (
    BinomialRuns,
    NegativeBinomialRuns,
    PoissonRuns,
)

__all__ = [
    "ApproximateProfile",
    "AttackRisk",
    "BinomialRuns",
    "Bound",
    "BoundKind",
    "Caveat",
    "Event",
    "GaussianProfile",
    "Guarantee",
    "LaplaceProfile",
    "NegativeBinomialRuns",
    "PoissonRuns",
    "PrivacyReport",
    "ProjectionLaw",
    "Public",
    "Released",
    "calibrate_noise_multiplier",
    "compose_epsilon",
    "epsilon_spent",
    "gaussian_sigma",
    "shuffled_epsilon",
]
