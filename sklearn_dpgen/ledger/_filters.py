"""Privacy filters: caps over fits that are chosen adaptively, one after another.

A cap is stated once, as (ε, δ). A part of δ is kept for open failures; the rest is turned into a
cap on the amounts of one kind, which add up whatever the choices were.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from sklearn_dpgen.accounting import (
    DominatingCost,
    GaussianProfile,
    PrivacyProfile,
    dominating_gaussian,
    dominating_renyi,
    gaussian_sigma,
)
from sklearn_dpgen.exceptions import PublicValueError

__all__ = ["FILTERS", "GaussianFilter", "PrivacyFilter", "RenyiFilter"]

# Of δ: the part that is kept for open failures, and of that the most of one charge that needs
# one because no finite amount dominates it.
_OPEN_PART, _PART_OF_CHARGE = 0.1, 1e-3


@dataclass(frozen=True)
class PrivacyFilter(ABC):
    """A cap on amounts that add up.

    Parameters
    ----------
    epsilon, delta : float
        The cap, as (ε, δ).
    order : float or None
        α, of the kinds that have one.
    """

    kind: ClassVar[str]
    epsilon: float
    delta: float
    order: float | None = None

    @property
    def open_delta(self) -> float:
        """The part of δ that is kept for open failures."""
        return _OPEN_PART * self.delta

    def whole_fit(self, delta: float) -> float:
        """Return the ε at δ of a Gaussian release that takes all of the cap, as the only one."""
        return GaussianProfile(1 / gaussian_sigma(self.epsilon, self.delta)).epsilon(delta)

    @property
    @abstractmethod
    def cap(self) -> float:
        """The largest sum of amounts."""

    @abstractmethod
    def cost(self, releases: Sequence[tuple[PrivacyProfile, int]]) -> DominatingCost:
        """Return what is booked for releases that were planned together."""

    @abstractmethod
    def spent(self, amount: float, delta: float) -> float:
        """Return the ε at δ of a sum of amounts."""

    @abstractmethod
    def largest_fit(self, amount: float, delta: float) -> float:
        """Return the ε at δ of the largest Gaussian release of an amount."""


@dataclass(frozen=True)
class GaussianFilter(PrivacyFilter):
    """Gaussian privacy: Σ μ² ≤ μ_cap².

    Notes
    -----
    Each charge is dominated by a Gaussian mechanism of its μ that fails openly with its δ₀.
    Gaussian mechanisms whose μ follow from earlier outputs, with Σ μ² ≤ μ_cap², are as private as
    one of μ_cap [1]_ [2]_. As Σ δ₀ ≤ δ_open whatever the choices, any of them fails openly with
    probability δ_open at most, and in total δ ≤ δ_open + (1 − δ_open) δ_Gauss(ε).

    References
    ----------
    .. [1] A. Koskela, M. Tobaben and A. Honkela, "Individual privacy accounting with Gaussian
       differential privacy", ICLR 2023, arXiv:2209.15596.
    .. [2] A. Smith and A. Thakurta, "Fully adaptive composition for Gaussian differential
       privacy", 2022, arXiv:2210.17520.
    """

    kind: ClassVar[str] = "gaussian"

    @property
    def cap(self) -> float:
        """μ_cap²."""
        return gaussian_sigma(self.epsilon, self.delta - self.open_delta) ** -2

    def cost(self, releases: Sequence[tuple[PrivacyProfile, int]]) -> DominatingCost:
        """Return μ² and δ₀."""
        return dominating_gaussian(releases, _PART_OF_CHARGE * self.open_delta)

    def spent(self, amount: float, delta: float) -> float:
        """Return the ε at δ of Gaussian mechanisms."""
        return GaussianProfile(math.sqrt(amount)).epsilon(delta) if amount > 0 else 0.0

    def largest_fit(self, amount: float, delta: float) -> float:
        """Return the ε at δ of a Gaussian release of μ²."""
        return self.spent(amount, delta)


@dataclass(frozen=True)
class RenyiFilter(PrivacyFilter):
    """Rényi differential privacy at one order α: the divergences add up.

    Notes
    -----
    Sums of divergences at a fixed order are a filter [1]_. From D at order α,
    ε = D + log((α − 1)/α) − (log δ + log α)/(α − 1) [2]_. The order is that which leaves the most
    for Gaussian releases, the largest cap over α.

    References
    ----------
    .. [1] V. Feldman and T. Zrnic, "Individual privacy accounting via a Rényi filter", NeurIPS
       2021, Theorem 3.1.
    .. [2] C. Canonne, G. Kamath and T. Steinke, "The discrete Gaussian for differential privacy",
       NeurIPS 2020, Proposition 12.
    """

    kind: ClassVar[str] = "renyi"
    # A float once None is replaced.
    order: Any = None

    def __post_init__(self):
        if self.order is None:
            orders = [1 + 10 ** (k / 50) for k in range(-100, 251)]
            best = max(orders, key=lambda order: self._cap(order) / order)
            object.__setattr__(self, "order", best)
        if self.cap <= 0:
            raise PublicValueError(
                f"epsilon must be larger: at delta = {self.delta:g} Rényi privacy leaves nothing "
                f"of {self.epsilon:g}. The Gaussian filter does."
            )

    @property
    def cap(self) -> float:
        """The largest divergence, in nats."""
        return self._cap(self.order)

    def _cap(self, order):
        return self.epsilon - _conversion(order, self.delta - self.open_delta)

    def cost(self, releases: Sequence[tuple[PrivacyProfile, int]]) -> DominatingCost:
        """Return the divergence and δ₀."""
        return dominating_renyi(releases, self.order, _PART_OF_CHARGE * self.open_delta)

    def spent(self, amount: float, delta: float) -> float:
        """Return the ε at δ of a divergence."""
        return max(amount + _conversion(self.order, delta), 0.0) if amount > 0 else 0.0

    def largest_fit(self, amount: float, delta: float) -> float:
        """Return the ε at δ of a Gaussian release of a divergence."""
        if amount <= 0:
            return 0.0
        return GaussianProfile(math.sqrt(2 * amount / self.order)).epsilon(delta)


def _conversion(order, delta):
    """Return ε less the divergence."""
    return math.log1p(-1 / order) - (math.log(delta) + math.log(order)) / (order - 1)


FILTERS = {kind.kind: kind for kind in (GaussianFilter, RenyiFilter)}
