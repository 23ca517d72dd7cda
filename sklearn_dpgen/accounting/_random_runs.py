"""Laws of a random number of runs, of which the best one is published."""

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from scipy.stats import binom, poisson

from sklearn_dpgen.accounting._checks import check_count
from sklearn_dpgen.exceptions import PublicTypeError, PublicValueError
from sklearn_dpgen.utils._random import NoiseSource
from sklearn_dpgen.utils._validation import Real, check_positive

__all__ = ["BinomialRuns", "NegativeBinomialRuns", "PoissonRuns", "RandomRuns"]

# What a uniform number of 52 bits does not resolve.
TAIL = 2.0**-53


class RandomRuns(ABC):
    """Law of the number of runs, K ≥ 1, with the generating function φ; a dataclass."""

    if TYPE_CHECKING:
        __dataclass_fields__: ClassVar[dict[str, Any]]

    @property
    @abstractmethod
    def mean(self) -> float:
        """E[K] = φ'(1)."""

    @abstractmethod
    def log_weight(self, above: np.ndarray) -> np.ndarray:
        """Return log(φ'(1 − G) / φ'(1)).

        Parameters
        ----------
        above : ndarray
            G, the probability that one run gives a better output.

        Returns
        -------
        ndarray of the same shape
        """

    @abstractmethod
    def probabilities(self) -> np.ndarray:
        """Return P(K = k) for k = 1, 2, ..., as far as 1 − 2^-53 of the mass.

        Returns
        -------
        ndarray of shape (n_counts,)
        """

    def draw(self, noise: NoiseSource) -> int:
        """Draw K.

        Parameters
        ----------
        noise : NoiseSource

        Returns
        -------
        int
            To be kept secret.
        """
        below = np.cumsum(self.probabilities())[:-1]
        return 1 + int(np.searchsorted(below, noise.uniform(1)[0], side="right"))


@dataclass(frozen=True)
class PoissonRuns(RandomRuns):
    """Poisson number K of runs, given that it is not 0: φ'(z) is proportional to e^{λz}.

    Parameters
    ----------
    rate : float
        λ, the mean of the law with 0.
    """

    rate: float

    def __post_init__(self):
        object.__setattr__(self, "rate", check_positive(self.rate, "rate"))

    @property
    def mean(self) -> float:
        """λ / (1 − e^{−λ})."""
        return self.rate / -math.expm1(-self.rate)

    def log_weight(self, above: np.ndarray) -> np.ndarray:
        """Return −λ G."""
        return -self.rate * above

    def probabilities(self) -> np.ndarray:
        """Return the law of K, as ``RandomRuns`` has it."""
        law = poisson(self.rate)
        counts = np.arange(1, int(law.isf(TAIL)) + 2)
        return law.pmf(counts) / -math.expm1(-self.rate)


@dataclass(frozen=True)
class NegativeBinomialRuns(RandomRuns):
    """Truncated negative binomial number K of runs: geometric for η = 1, logarithmic for η = 0.

    P(K = k) is proportional to (1 − γ)^k Π_{l<k} (l + η)/(l + 1), and φ'(z) to
    (1 − (1 − γ) z)^{−η−1}.

    Parameters
    ----------
    gamma : float
        In (0, 1); the smaller, the more runs.
    eta : float, default=1.0
        Above -1.
    """

    gamma: float
    eta: float = 1.0

    def __post_init__(self):
        object.__setattr__(self, "gamma", _check_share(self.gamma, "gamma"))
        if isinstance(self.eta, bool) or not isinstance(self.eta, Real):
            raise PublicTypeError(f"eta must be a real number, got {type(self.eta).__name__}.")
        if not -1 < self.eta < math.inf:
            raise PublicValueError(f"eta must be finite and above -1, got {self.eta}.")
        object.__setattr__(self, "eta", float(self.eta))

    @property
    def mean(self) -> float:
        """η (1 − γ) / (γ (1 − γ^η)), or its limit for η = 0."""
        odds, exponent = (1 - self.gamma) / self.gamma, self.eta * math.log(self.gamma)
        if abs(exponent) < 1e-12:
            return odds / -math.log(self.gamma)
        return odds * self.eta / -math.expm1(exponent)

    def log_weight(self, above: np.ndarray) -> np.ndarray:
        """Return −(1 + η) log(1 + G (1 − γ)/γ)."""
        return -(1 + self.eta) * np.log1p(above * (1 - self.gamma) / self.gamma)

    def probabilities(self) -> np.ndarray:
        """Return the law of K, as ``RandomRuns`` has it."""
        log_keep = math.log1p(-self.gamma)
        # The ratio of neighbours tends to 1 − γ, from above where η > 1.
        size = 2 * math.ceil((40 + 4 * max(self.eta, 0.0)) / -log_keep)
        k = np.arange(1, size)
        steps = np.log((k + self.eta) / (k + 1)) + log_keep
        logs = np.concatenate([[0.0], np.cumsum(steps)])
        law = np.exp(logs - logs.max())
        law /= law.sum()
        return law[: np.searchsorted(np.cumsum(law), 1 - TAIL) + 1]


@dataclass(frozen=True)
class BinomialRuns(RandomRuns):
    """Binomial number K of runs, given that it is not 0: φ'(z) ∝ (1 − p + p z)^{n−1}.

    Parameters
    ----------
    n : int
        The largest number of runs, at least 1.
    p : float
        In (0, 1).
    """

    n: int
    p: float

    def __post_init__(self):
        object.__setattr__(self, "n", check_count(self.n, "n"))
        object.__setattr__(self, "p", _check_share(self.p, "p"))

    @property
    def mean(self) -> float:
        """n p / (1 − (1 − p)^n)."""
        return self.n * self.p / -math.expm1(self.n * math.log1p(-self.p))

    def log_weight(self, above: np.ndarray) -> np.ndarray:
        """Return (n − 1) log(1 − p G)."""
        return (self.n - 1) * np.log1p(-self.p * above)

    def probabilities(self) -> np.ndarray:
        """Return the law of K, as ``RandomRuns`` has it."""
        law = binom(self.n, self.p).pmf(np.arange(1, self.n + 1))
        return law / law.sum()


def _check_share(value, name):
    value = check_positive(value, name)
    if value >= 1:
        raise PublicValueError(f"{name} must be strictly between 0 and 1, got {value}.")
    return value
