"""Privacy profiles: the largest hockey-stick divergence of a mechanism over its neighbours.

All profiles are for replace-one neighbours, with the sensitivity of that relation in their
parameters. Replacement is symmetric, so one function describes both orders of a pair, and the
values at negative epsilon follow from those at positive epsilon.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import erfcx, ndtr

from sklearn_dpgen.exceptions import PublicOverflowError, PublicValueError
from sklearn_dpgen.utils._checks import (
    check_count,
    check_delta,
    check_positive,
    check_rate,
    set_fields,
)

__all__ = [
    "ApproximateProfile",
    "CatastrophicFailureProfile",
    "FailingGaussianProfile",
    "GaussianProfile",
    "LaplaceProfile",
    "MaximumProfile",
    "MixtureProfile",
    "PrivacyProfile",
    "RandomizedResponseProfile",
    "SampledProfile",
    "sampled_without_replacement",
    "smallest_passing",
]


def smallest_passing(passes, guess, *, rtol):
    """Return the smallest x > 0 that passes a monotone test, up to a factor 1 + ``rtol`` above.

    Parameters
    ----------
    passes : callable
        False below some positive value and True above it.
    guess : float
        Starting value.
    rtol : float
        Relative width of the final bracket.

    Returns
    -------
    float
        A value that passed the test itself, so that rounding and the tolerance are on the safe
        side.
    """
    low = high = float(guess)
    step = 1.1
    if passes(high):
        while (low := low / step) > 0 and passes(low):
            high, step = low, step * step
    else:
        while not passes(high := high * step):
            low, step = high, step * step
            if math.isinf(step):
                raise PublicOverflowError("No finite value reaches the target.")
    while high > low * (1 + rtol):
        middle = math.sqrt(low) * math.sqrt(high)
        if not low < middle < high:
            break
        if passes(middle):
            high = middle
        else:
            low = middle
    return high


class PrivacyProfile(ABC):
    """The privacy profile δ(ε) of a mechanism, as a function of ε of either sign.

    A subclass implements ``_delta`` for ε ≥ 0: an upper bound on the hockey-stick divergence at e^ε
    over all replace-one neighbours, non-increasing and convex in e^ε, and finite at ε = inf.
    Subclasses are frozen dataclasses of numbers and other profiles.
    """

    _kinds: dict = {}
    # For each number, the check that returns its value.
    _checks: ClassVar[dict[str, Callable]] = {}
    if TYPE_CHECKING:
        __dataclass_fields__: ClassVar[dict[str, Any]]

    def __init_subclass__(cls, **kwargs):
        super().__init_subclass__(**kwargs)
        PrivacyProfile._kinds[cls.__name__] = cls

    def __post_init__(self):
        set_fields(self, **{n: check(getattr(self, n), n) for n, check in self._checks.items()})

    @abstractmethod
    def _delta(self, epsilon):
        """Return δ at an array of ε ≥ 0."""

    def delta(self, epsilon: ArrayLike) -> float | np.ndarray:
        """Return δ(ε).

        Parameters
        ----------
        epsilon : float or array-like
            In nats, of either sign; ``-inf`` and ``inf`` are allowed. Negative values are given by
            symmetry, δ(−ε) = 1 − e^{−ε} + e^{−ε} δ(ε).

        Returns
        -------
        float or ndarray of the same shape
        """
        epsilon = np.asarray(epsilon, dtype=np.float64)
        if np.isnan(epsilon).any():
            raise PublicValueError("epsilon must not be NaN.")
        delta = np.clip(self._delta(np.abs(epsilon)), 0.0, 1.0)
        negative = np.minimum(epsilon, 0.0)
        delta = np.where(epsilon < 0, np.exp(negative) * delta - np.expm1(negative), delta)
        return float(delta) if delta.ndim == 0 else delta

    def epsilon(self, delta: float) -> float:
        """Return an ε ≥ 0 with δ(ε) at most ``delta``, the smallest one up to rounding.

        Parameters
        ----------
        delta : float
            In (0, 1).

        Returns
        -------
        float
            ``inf`` if no finite ε has so small a δ.
        """
        delta = check_delta(delta)
        if self.delta(0.0) <= delta:
            return 0.0
        if self.delta(math.inf) > delta:
            return math.inf
        return smallest_passing(lambda epsilon: self.delta(epsilon) <= delta, 1.0, rtol=1e-12)

    def to_dict(self) -> dict:
        """Return plain Python containers: the kind of the profile, and its parameters."""
        parameters = {f.name: _plain(getattr(self, f.name)) for f in fields(self)}
        return {"profile": type(self).__name__, "parameters": parameters}

    @staticmethod
    def from_dict(content: dict) -> "PrivacyProfile":
        """Build a profile from ``to_dict()``.

        Raises
        ------
        PublicValueError
            The kind is unknown.
        """
        kind = PrivacyProfile._kinds.get(content["profile"])
        if kind is None:
            raise PublicValueError(f"profile must be a known kind, got {content['profile']!r}.")
        return kind(**{name: _parsed(value) for name, value in content["parameters"].items()})


def _plain(value):
    if isinstance(value, PrivacyProfile):
        return value.to_dict()
    return [_plain(item) for item in value] if isinstance(value, tuple) else value


def _parsed(value):
    if isinstance(value, dict):
        return PrivacyProfile.from_dict(value)
    return tuple(_parsed(item) for item in value) if isinstance(value, list) else value


def _check_failure(delta0, name):
    return 0.0 if delta0 == 0 else check_delta(delta0, name)


@dataclass(frozen=True)
class GaussianProfile(PrivacyProfile):
    """Gaussian mechanism, δ(ε) = Φ(−ε/μ + μ/2) − e^ε Φ(−ε/μ − μ/2).

    Parameters
    ----------
    mu : float
        ℓ₂ sensitivity under replacement over the standard deviation of the noise.

    References
    ----------
    Balle and Wang, "Improving the Gaussian mechanism for differential privacy", ICML 2018,
    Theorem 8.
    """

    mu: float
    _checks = {"mu": check_positive}

    def _delta(self, epsilon):
        upper = epsilon / self.mu - self.mu / 2
        lower = epsilon / self.mu + self.mu / 2
        # e^ε φ(lower) = φ(upper); with Mills' ratio no term overflows or cancels to zero.
        density = np.exp(-np.square(np.clip(upper, -1e3, 1e3)) / 2) / math.sqrt(2 * math.pi)
        tail = np.where(upper > 0, density * _mills_ratio(np.maximum(upper, 0)), ndtr(-upper))
        return tail - density * _mills_ratio(lower)


@dataclass(frozen=True)
class LaplaceProfile(PrivacyProfile):
    """Laplace mechanism, δ(ε) = 1 − e^{(ε − ε₀)/2} for 0 ≤ ε ≤ ε₀ and 0 beyond.

    Parameters
    ----------
    epsilon0 : float
        ℓ₁ sensitivity under replacement over the scale of the noise. A shift along one coordinate
        is the worst case in any dimension.

    References
    ----------
    Balle, Barthe and Gaboardi, "Privacy amplification by subsampling", NeurIPS 2018, Theorem 3.
    """

    epsilon0: float
    _checks = {"epsilon0": check_positive}

    def _delta(self, epsilon):
        return -np.expm1(np.minimum(epsilon - self.epsilon0, 0.0) / 2)


@dataclass(frozen=True)
class RandomizedResponseProfile(PrivacyProfile):
    """k-ary randomized response, δ(ε) = (e^{ε₀} − e^ε)₊ / (e^{ε₀} + k − 1).

    Parameters
    ----------
    epsilon0 : float
        Logarithm of the probability of the true category over that of any other one.
    n_categories : int
        k, at least 2.
    """

    epsilon0: float
    n_categories: int = 2
    _checks = {"epsilon0": check_positive, "n_categories": check_count}

    def __post_init__(self):
        super().__post_init__()
        if self.n_categories < 2:
            raise PublicValueError("n_categories must be at least 2, got 1.")

    def _delta(self, epsilon):
        gap = -np.expm1(np.minimum(epsilon - self.epsilon0, 0.0))
        return gap / (1 + (self.n_categories - 1) * math.exp(-self.epsilon0))


@dataclass(frozen=True)
class ApproximateProfile(PrivacyProfile):
    """Any mechanism of which only (ε₀, δ₀)-differential privacy is known.

    With δ₀ = 0 this is pure differential privacy, e.g. one draw of the exponential mechanism.

    Parameters
    ----------
    epsilon0 : float
        In nats.
    delta0 : float
        In [0, 1).

    References
    ----------
    Kairouz, Oh and Viswanath, "The composition theorem for differential privacy", ICML 2015:
    binary randomized response with a catastrophic failure of probability δ₀ dominates.
    """

    epsilon0: float
    delta0: float = 0.0
    _checks = {"epsilon0": check_positive, "delta0": _check_failure}

    def _delta(self, epsilon):
        pure = RandomizedResponseProfile(self.epsilon0)._delta(epsilon)
        return self.delta0 + (1 - self.delta0) * pure


@dataclass(frozen=True)
class CatastrophicFailureProfile(PrivacyProfile):
    """A mechanism that reveals nothing, or everything with probability δ₀: δ(ε) = δ₀.

    Parameters
    ----------
    delta0 : float
        Probability of the failure, in (0, 1).
    """

    delta0: float
    _checks = {"delta0": check_delta}

    def _delta(self, epsilon):
        return np.full(np.shape(epsilon), self.delta0)


@dataclass(frozen=True)
class FailingGaussianProfile(PrivacyProfile):
    """A Gaussian mechanism with a catastrophic failure of probability δ₀: δ₀ + (1 − δ₀) δ(ε).

    It is the result of ``dominating_gaussian`` as a profile, for example of one run.

    Parameters
    ----------
    mu : float
        As in :class:`GaussianProfile`.
    delta0 : float
        Probability of the failure, in (0, 1).
    """

    mu: float
    delta0: float
    _checks = {"mu": check_positive, "delta0": check_delta}

    def _delta(self, epsilon):
        return self.delta0 + (1 - self.delta0) * GaussianProfile(self.mu)._delta(epsilon)


@dataclass(frozen=True)
class MixtureProfile(PrivacyProfile):
    """A mechanism chosen at random, by a published choice that does not depend on the data.

    δ(ε) is the average of the profiles: the choice is a part of the output with the same
    distribution under both neighbours, so the divergence averages over it.

    Parameters
    ----------
    profiles : sequence of PrivacyProfile
    weights : sequence of float
        Probabilities of the profiles, with sum 1.
    """

    profiles: Sequence[PrivacyProfile]
    weights: Sequence[float]

    def __post_init__(self):
        profiles, weights = tuple(self.profiles), tuple(map(float, self.weights))
        if not profiles or len(profiles) != len(weights):
            raise PublicValueError(
                "profiles and weights must have the same length, at least 1, got "
                f"{len(profiles)} and {len(weights)}."
            )
        total = math.fsum(weights)
        if not all(weight >= 0 for weight in weights) or not math.isclose(total, 1, rel_tol=1e-9):
            raise PublicValueError("weights must be non-negative and sum to 1.")
        # Normalized weights are not changed, so that reading returns what was written.
        if abs(total - 1) > len(weights) * 2**-53:
            weights = tuple(weight / total for weight in weights)
        set_fields(self, profiles=profiles, weights=weights)

    def _delta(self, epsilon):
        pairs = zip(self.weights, self.profiles, strict=True)
        return sum(weight * profile._delta(epsilon) for weight, profile in pairs)


@dataclass(frozen=True)
class MaximumProfile(PrivacyProfile):
    """The largest δ(ε) of several profiles, if each pair of neighbours has one of them.

    A pair with the largest profile dominates all of them, so it can be composed.

    Parameters
    ----------
    profiles : sequence of PrivacyProfile
    """

    profiles: Sequence[PrivacyProfile]

    def __post_init__(self):
        profiles = tuple(self.profiles)
        if not profiles:
            raise PublicValueError("profiles must hold at least one profile.")
        set_fields(self, profiles=profiles)

    def _delta(self, epsilon):
        return np.maximum.reduce([profile._delta(epsilon) for profile in self.profiles])

    def epsilon(self, delta: float) -> float:
        """Return the largest ε of all profiles at a δ."""
        return max(profile.epsilon(delta) for profile in self.profiles)


@dataclass(frozen=True)
class SampledProfile(PrivacyProfile):
    """A mechanism on a batch drawn without replacement: γ δ(log(1 + (e^ε − 1)/γ)).

    See ``sampled_without_replacement``.

    Parameters
    ----------
    profile : PrivacyProfile
        Profile of the mechanism on a batch.
    rate : float
        In (0, 1].
    """

    profile: PrivacyProfile
    rate: float

    def _delta(self, epsilon):
        # Two forms of the same logarithm: the first avoids cancellation, the second overflow.
        small = np.log1p(np.expm1(np.minimum(epsilon, 1.0)) / self.rate)
        capped = np.maximum(epsilon, 1.0)
        large = capped - math.log(self.rate) + np.log1p((self.rate - 1) * np.exp(-capped))
        return self.rate * self.profile._delta(np.where(epsilon < 1, small, large))


def sampled_without_replacement(profile: PrivacyProfile, rate: float) -> PrivacyProfile:
    """Return the profile of a mechanism on a secret uniform batch of fixed size.

    Parameters
    ----------
    profile : PrivacyProfile
        Profile of the mechanism on a batch, for batches that differ in one replaced record.
    rate : float
        Batch size over number of records, in (0, 1]; the number of records is public.

    Returns
    -------
    PrivacyProfile
        For data sets that differ in one replaced record: δ'(ε) = γ δ(log(1 + (e^ε − 1)/γ)).

    References
    ----------
    Balle, Barthe and Gaboardi, "Privacy amplification by subsampling", NeurIPS 2018, Theorem 11.
    """
    rate = check_rate(rate, "rate")
    return profile if rate == 1 else SampledProfile(profile, rate)


def _mills_ratio(x):
    return math.sqrt(math.pi / 2) * erfcx(x / math.sqrt(2))
