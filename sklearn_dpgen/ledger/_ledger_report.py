"""What a ledger shows: its charges, and three ways to add them up."""

import math
from dataclasses import dataclass
from functools import cached_property

import pandas as pd

from sklearn_dpgen.accounting import ComposedProfile, PrivacyProfile, PrivacyReport
from sklearn_dpgen.ledger._filters import PrivacyFilter
from sklearn_dpgen.utils._html import notebook

__all__ = ["Charge", "LedgerReport"]


@dataclass(frozen=True)
class Charge:
    """One row of a ledger.

    Parameters
    ----------
    number : int
    time : str
        In UTC, by ISO 8601.
    user : str
        Name of the account.
    what : str
    amount : float
        What the filter booked, in its units.
    delta : float
        The booked probability of an open failure.
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
    """The charges of a ledger, and what they add up to.

    Parameters
    ----------
    dataset : str
    filter : PrivacyFilter
        The cap, and how charges add up.
    charges : tuple of Charge
    spent : float
        ε of what the filter booked, at the δ of the cap: this holds, however fits were chosen.
    remaining : float
        ε of the largest Gaussian fit that is left, at the δ of the cap.
    """

    dataset: str
    filter: PrivacyFilter
    charges: tuple[Charge, ...]
    spent: float
    remaining: float

    @cached_property
    def composed(self) -> float:
        """ε of the exact composition at the δ of the cap, as if all had been planned beforehand."""
        releases = [release for charge in self.charges for release in charge.report.composable()]
        return ComposedProfile(_merged(releases)).epsilon(self.filter.delta) if releases else 0.0

    @property
    def summed(self) -> tuple[float, float]:
        """The plain sums of the ε and of the δ of all charges."""
        reports = [charge.report for charge in self.charges]
        return math.fsum(r.epsilon for r in reports), math.fsum(r.delta for r in reports)

    @property
    def pure(self) -> float:
        """The sum of the ε of all charges where all are pure, which then holds too; else inf."""
        return math.fsum(
            c.report.epsilon if c.report.delta == 0 else math.inf for c in self.charges
        )

    def to_frame(self) -> pd.DataFrame:
        """Return a data frame of one row a charge.

        Returns
        -------
        DataFrame
            With the number of the charge as index; what was booked is also a share of the cap.
        """
        rows = [
            {
                "time": charge.time,
                "user": charge.user,
                "what": charge.what,
                "epsilon": charge.report.epsilon,
                "delta": charge.report.delta,
                "booked": charge.amount,
                "open_delta": charge.delta,
                "share": charge.amount / self.filter.cap,
                "neighbours": charge.report.neighbouring,
            }
            for charge in self.charges
        ]
        index = pd.Index([charge.number for charge in self.charges], name="charge")
        names = ["time", "user", "what", "epsilon", "delta", "booked", "open_delta", "share"]
        frame = pd.DataFrame(rows, index=index, columns=[*names, "neighbours"])
        return frame.assign(time=pd.to_datetime(frame["time"], utc=True))

    def to_text(self) -> str:
        """Return the totals, and a line a charge."""
        lines = [f"{name:<42}{value}" for name, value in self._totals()]
        if self.charges:
            shown = self.to_frame().drop(columns=["open_delta", "neighbours"])
            lines += ["", shown.to_string(float_format="{:.4g}".format)]
        return "\n".join(lines)

    def __str__(self):
        return self.to_text()

    def _repr_html_(self) -> str:
        shown = self.to_frame().drop(columns=["open_delta", "neighbours"]).reset_index()
        rows = [[_words(value) for value in row] for row in shown.itertuples(index=False)]
        return notebook(
            f"{self.spent:.4g} of ε = {self.filter.epsilon:g} is spent",
            share=self.spent / self.filter.epsilon,
            rows=list(self._totals()),
            table=(list(shown), rows) if rows else None,
        )

    def _totals(self):
        cap, (epsilons, deltas) = self.filter, self.summed
        yield "data set", repr(self.dataset)
        yield "cap", f"epsilon {cap.epsilon:g} at delta {cap.delta:g}, {cap.kind} filter"
        yield "charges", str(len(self.charges))
        yield "spent, whatever was chosen after what", f"epsilon {self.spent:.4g}"
        yield "exact, if all had been planned together", f"epsilon {self.composed:.4g}"
        yield "plain sum", f"epsilon {epsilons:.4g} at delta {deltas:.3g}"
        yield "largest fit that is left", f"epsilon {self.remaining:.4g}"
        if self.pure < self.filter.epsilon:
            yield "largest pure fit that is left", f"epsilon {cap.epsilon - self.pure:.4g}"
        for relation in dict.fromkeys(charge.report.neighbouring for charge in self.charges):
            yield "neighbours", relation


def _words(value):
    if isinstance(value, pd.Timestamp):
        return f"{value:%Y-%m-%d %H:%M}"
    return f"{value:.4g}" if isinstance(value, float) else value


def _merged(releases):
    """Return equal profiles once, with how often they are used in all."""
    times: dict[PrivacyProfile, int] = {}
    for profile, count in releases:
        times[profile] = times.get(profile, 0) + count
    return list(times.items())
