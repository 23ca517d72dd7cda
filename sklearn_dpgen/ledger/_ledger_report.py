"""The report of a ledger, and the privacy filters that add up its charges.

The cap is stated as (ε, δ). A part of δ is reserved for catastrophic failures. The rest is
converted to a cap on amounts of one kind, which add up under adaptive choices.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, ClassVar

import pandas as pd

from sklearn_dpgen.accounting import GaussianProfile, PrivacyReport, gaussian_sigma
from sklearn_dpgen.accounting._composition import (
    ComposedProfile,
    DominatingCost,
    dominating_gaussian,
    dominating_renyi,
)
from sklearn_dpgen.accounting._profiles import PrivacyProfile
from sklearn_dpgen.accounting._wording import mixed_units_texts
from sklearn_dpgen.exceptions import PublicValueError
from sklearn_dpgen.utils._html import notebook, shorten

__all__ = [
    "Charge",
    "FILTERS",
    "GaussianFilter",
    "LedgerReport",
    "PrivacyFilter",
    "RenyiFilter",
    "by_unit",
]

# Share of δ that is reserved for catastrophic failures, and largest share of that for one charge
# that no finite amount dominates.
_OPEN_PART, _PART_OF_CHARGE = 0.1, 1e-3
# Charges with a bar of their own in a notebook.
_MOST_BARS = 12


@dataclass(frozen=True)
class PrivacyFilter(ABC):
    """A cap on amounts that add up under adaptive composition.

    Parameters
    ----------
    epsilon, delta : float
        The cap, as (ε, δ).
    order : float or None
        Order α, for filters that have one.
    """

    kind: ClassVar[str]
    epsilon: float
    delta: float
    order: float | None = None

    @property
    def open_delta(self) -> float:
        """The part of δ that is reserved for catastrophic failures."""
        return _OPEN_PART * self.delta

    def whole_fit(self, delta: float) -> float:
        """Return the ε at δ of a single Gaussian release that takes the whole cap."""
        return GaussianProfile(1 / gaussian_sigma(self.epsilon, self.delta)).epsilon(delta)

    @property
    @abstractmethod
    def cap(self) -> float:
        """The largest sum of amounts."""

    @abstractmethod
    def cost(self, releases: Sequence[tuple[PrivacyProfile, int]]) -> DominatingCost:
        """Return the charge of releases that were planned together."""

    @abstractmethod
    def spent(self, amount: float, delta: float) -> float:
        """Return the ε at δ of a sum of amounts."""

    @abstractmethod
    def largest_fit(self, amount: float, delta: float) -> float:
        """Return the ε at δ of the largest Gaussian release that costs an amount."""


@dataclass(frozen=True)
class GaussianFilter(PrivacyFilter):
    """Gaussian privacy filter: Σ μ² ≤ μ_cap².

    Notes
    -----
    Each charge is dominated by a Gaussian mechanism of its μ with a catastrophic failure of
    probability δ₀. Gaussian mechanisms whose μ are chosen adaptively, with Σ μ² ≤ μ_cap², are as
    private as one of μ_cap [1]_ [2]_. As Σ δ₀ ≤ δ_open for any choices, the probability of a
    failure is at most δ_open, and in total δ ≤ δ_open + (1 − δ_open) δ_Gauss(ε).

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
    """Rényi filter at one order α, at which divergences add up.

    Notes
    -----
    Sums of divergences at a fixed order are a filter [1]_. From D at order α,
    ε = D + log((α − 1)/α) − (log δ + log α)/(α − 1) [2]_. The order maximizes the cap over α, and
    so leaves the most for Gaussian releases.

    References
    ----------
    .. [1] V. Feldman and T. Zrnic, "Individual privacy accounting via a Rényi filter", NeurIPS
       2021, Theorem 3.1.
    .. [2] C. Canonne, G. Kamath and T. Steinke, "The discrete Gaussian for differential privacy",
       NeurIPS 2020, Proposition 12.
    """

    kind: ClassVar[str] = "renyi"
    # A float after None is replaced.
    order: Any = None

    def __post_init__(self):
        if self.order is None:
            orders = [1 + 10 ** (k / 50) for k in range(-100, 251)]
            best = max(orders, key=lambda order: self._cap(order) / order)
            object.__setattr__(self, "order", best)
        if self.cap <= 0:
            raise PublicValueError(
                f"epsilon must be larger for the Rényi filter at delta = {self.delta:g}, got "
                f"{self.epsilon:g}. Use the Gaussian filter."
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
    """Return the difference of ε and the divergence."""
    return math.log1p(-1 / order) - (math.log(delta) + math.log(order)) / (order - 1)


FILTERS = {kind.kind: kind for kind in (GaussianFilter, RenyiFilter)}


@dataclass(frozen=True)
class Charge:
    """One row of a ledger.

    Parameters
    ----------
    number : int
    time : str
        In UTC, in ISO 8601.
    user : str
        Name of the account.
    what : str
        Purpose of the fit.
    amount : float
        Charged amount, in the units of the filter.
    delta : float
        Charged probability of a catastrophic failure.
    report : PrivacyReport
        The plan of the fit.
    """

    number: int
    time: str
    user: str
    what: str
    amount: float
    delta: float
    report: PrivacyReport


@dataclass(frozen=True)
class LedgerReport:
    """The charges of a ledger and their totals.

    Parameters
    ----------
    dataset : str
    filter : PrivacyFilter
        The cap, and how charges add up.
    charges : tuple of Charge
    spent : float
        ε of the charges by the filter, at the δ of the cap; it holds for adaptive choices.
    remaining : float
        ε of the largest Gaussian fit that is left, at the δ of the cap.
    releases : dict of str to int
        The numbers of the charges of recorded releases, by SHA-256.
    unit : str or None, default=None
        Column of the persons that each charge protects; None if charges may protect single rows.
    """

    dataset: str
    filter: PrivacyFilter
    charges: tuple[Charge, ...]
    spent: float
    remaining: float
    releases: dict[str, int] = field(default_factory=dict)
    unit: str | None = None

    @cached_property
    def composed(self) -> float:
        """ε of the exact composition at the δ of the cap, for fits that are planned in advance."""
        releases = [release for charge in self.charges for release in charge.report.composable()]
        return ComposedProfile(_merged(releases)).epsilon(self.filter.delta) if releases else 0.0

    @property
    def summed(self) -> tuple[float, float]:
        """The sums of the ε and of the δ of all charges."""
        reports = [charge.report for charge in self.charges]
        return math.fsum(r.epsilon for r in reports), math.fsum(r.delta for r in reports)

    @property
    def pure(self) -> float:
        """The sum of the ε of all charges if all are pure, which then holds too; else inf."""
        return math.fsum(
            c.report.epsilon if c.report.delta == 0 else math.inf for c in self.charges
        )

    def to_frame(self) -> pd.DataFrame:
        """Return a data frame with one row per charge.

        Returns
        -------
        DataFrame
            Indexed by the number of the charge; the charged amount is also a share of the cap. The
            unit is the column of the protected persons, and None for single rows.
        """
        rows = [
            {
                "time": charge.time,
                "user": charge.user,
                "what": charge.what,
                "epsilon": charge.report.epsilon,
                "delta": charge.report.delta,
                "charged": charge.amount,
                "open_delta": charge.delta,
                "share": charge.amount / self.filter.cap,
                "neighbours": charge.report.neighbouring,
            }
            for charge in self.charges
        ]
        index = pd.Index([charge.number for charge in self.charges], name="charge")
        names = ["time", "user", "what", "epsilon", "delta", "charged", "open_delta", "share"]
        frame = pd.DataFrame(rows, index=index, columns=[*names, "neighbours"])
        # Text and None, which a column of another type would turn into NaN.
        units = pd.Series([charge.report.unit for charge in self.charges], index, dtype=object)
        return frame.assign(time=pd.to_datetime(frame["time"], utc=True), unit=units)

    def to_text(self) -> str:
        """Return the totals, and one line per charge."""
        lines = [f"{name:<42}{value}" for name, value in self._totals()]
        if self.charges:
            shown = self._shown()
            lines += ["", shown.to_string(float_format="{:.4g}".format)]
        return "\n".join(lines)

    def __str__(self):
        return self.to_text()

    def __repr__(self):
        n = len(self.charges)
        return (
            f"<LedgerReport of {self.dataset!r}: epsilon {self.spent:.4g} of "
            f"{self.filter.epsilon:g} spent by {n} {'charge' if n == 1 else 'charges'}>"
        )

    def _repr_html_(self) -> str:
        shown = self._shown().reset_index()
        rows = [[_words(value) for value in row] for row in shown.itertuples(index=False)]
        return notebook(
            f"{self.spent:.4g} of ε = {self.filter.epsilon:g} is spent",
            share=self.spent / self.filter.epsilon,
            lines=self._bars(),
            rows=list(self._totals()),
            table=(list(shown), rows) if rows else None,
        )

    def _shown(self):
        """Return the charges as they are shown, with their units only where these differ."""
        hidden = ["open_delta", "neighbours"] + ["unit"] * (len(by_unit(self.charges)) < 2)
        frame = self.to_frame().drop(columns=hidden)
        if "unit" in frame:
            frame["unit"] = ["one row" if u is None else u for u in frame["unit"].tolist()]
        return frame

    def _bars(self):
        """Return a line with a bar for each of the last charges, as shares of the cap."""
        cap, last = self.filter.cap, self.charges[-_MOST_BARS:]
        lines = [(f"charge {c.number}: {shorten(c.what, 60)}", c.amount / cap) for c in last]
        if len(last) < len(self.charges):
            others = self.charges[: -len(last)]
            earlier = math.fsum(charge.amount for charge in others) / cap
            lines.insert(0, (f"{len(others)} earlier charges", earlier))
        return lines

    def _totals(self):
        cap, (epsilons, deltas) = self.filter, self.summed
        yield "data set", repr(self.dataset)
        yield "cap", f"epsilon {cap.epsilon:g} at delta {cap.delta:g}, {cap.kind} filter"
        yield "charges", str(len(self.charges))
        yield "spent, for adaptively chosen fits", f"epsilon {self.spent:.4g}"
        yield "exact, for fits planned in advance", f"epsilon {self.composed:.4g}"
        yield "plain sum", f"epsilon {epsilons:.4g} at delta {deltas:.3g}"
        yield "largest fit that is left", f"epsilon {self.remaining:.4g}"
        if self.pure < self.filter.epsilon:
            yield "largest pure fit that is left", f"epsilon {cap.epsilon - self.pure:.4g}"
        if self.unit is not None:
            yield "unit", f"a person: all rows with one value in column {self.unit!r}"
        if self.charges:
            guarantee = self.charges[0].report
            holds, exceptions = mixed_units_texts(by_unit(self.charges), guarantee.neighbours)
            if holds:
                yield "totals hold for", "; ".join([holds, *exceptions])
        for relation in dict.fromkeys(charge.report.neighbouring for charge in self.charges):
            yield "neighbours", relation
        for sha256, number in self.releases.items():
            yield f"released file of charge {number}", f"SHA-256 {sha256}"


def by_unit(charges: Sequence[Charge]) -> dict[str | None, list[int]]:
    """Return the numbers of charges by the column of the persons that they protect."""
    found: dict[str | None, list[int]] = {}
    for charge in charges:
        found.setdefault(charge.report.unit, []).append(charge.number)
    return found


def _words(value):
    if isinstance(value, pd.Timestamp):
        return f"{value:%Y-%m-%d %H:%M}"
    return f"{value:.4g}" if isinstance(value, float) else value


def _merged(releases):
    """Return distinct profiles with their total multiplicities."""
    times: dict[PrivacyProfile, int] = {}
    for profile, count in releases:
        times[profile] = times.get(profile, 0) + count
    return list(times.items())
