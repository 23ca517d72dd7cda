"""What the votes of a fit cost, from public quantities alone, and their release."""

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from sklearn_dpgen.accounting import Bound, Event, PrivacyReport
from sklearn_dpgen.mechanisms import GaussianSequenceMechanism, ThresholdedLaplaceMechanism
from sklearn_dpgen.moments import MOMENT_SHARES
from sklearn_dpgen.utils._random import ROUNDING
from sklearn_dpgen.utils._words import count_words, number_words

__all__ = ["HISTOGRAMS", "VotesPlan"]

HISTOGRAMS = ("gaussian", "laplace_threshold")

# Steps that are told apart, at most.
_MOST_NAMED = 10


@dataclass(frozen=True)
class VotesPlan:
    """Noisy histograms of votes, one vote a record in each.

    Neighbouring data sets differ in one record, so a histogram loses one vote in one cell and gains
    one in another: √2 in l2, whatever the candidates, the metric and the labels are.

    Parameters
    ----------
    epsilon, delta : float
        The whole budget.
    shares : sequence of float
        One a histogram, each of which may depend on those before: its share of the budget. The
        Laplace histogram takes equal ones.
    histogram : {"gaussian", "laplace_threshold"}
    start_share : float or None, default=None
        Share of the two releases of moments before them, in (0, 1), of vectors that are scaled to
        the same sensitivity. Gaussian alone, and not with certified noise.
    n_candidates : int or None, default=None
        Of all classes together, at most, of certified noise. None is for noise in floating point.
    n_values : int, default=0
        How many counts and moments all releases together have, at most.
    """

    epsilon: float
    delta: float
    shares: tuple[float, ...]
    histogram: str
    start_share: float | None = None
    n_candidates: int | None = None
    n_values: int = 0

    @cached_property
    def mechanism(self):
        """The mechanism of the histograms, which prices what it runs."""
        if self.histogram == "laplace_threshold":
            return ThresholdedLaplaceMechanism(
                self.epsilon, self.delta, len(self.shares), certified=self.n_candidates is not None
            )
        shares = self.shares
        sizes: dict[str, Any] = {}
        if self.n_candidates is not None:
            if self.start_share is not None:
                raise ValueError("noise='certified' is for votes: it needs start='public'.")
            # A vote is lost and one is gained.
            sizes = {"n_values": [self.n_candidates] * len(shares), "n_changed": [2] * len(shares)}
        if self.start_share is not None:
            rest = (1 - self.start_share) / math.fsum(shares)
            start = (self.start_share * share for share in MOMENT_SHARES)
            shares = (*start, *(rest * share for share in shares))
        return GaussianSequenceMechanism(math.sqrt(2), shares, self.epsilon, self.delta, **sizes)

    @property
    def split(self):
        """Parts of the budget by what they are spent on, of sum 1."""
        start = 0.0 if self.start_share is None else self.start_share
        found, n = {"first population": start} if start else {}, len(self.shares)
        if n > _MOST_NAMED:
            return found | {f"{n} steps": 1 - start}
        rest = (1 - start) / math.fsum(self.shares)
        return found | {f"step {t}": rest * share for t, share in enumerate(self.shares, 1)}

    def precision(self, sizes, n_candidates):
        """Return what noise leaves of the votes for a candidate, in words.

        Parameters
        ----------
        sizes : list of int
            What is publicly known of the sizes of the classes.
        n_candidates : list of int
            Of each class: how many share its votes.
        """
        if self.histogram == "laplace_threshold":
            least = number_words(self.mechanism.threshold)
            # The standard deviation of Laplace noise.
            words = count_words([math.sqrt(2) * self.mechanism.noise_scale], min(sizes), "votes")
            if self.mechanism.noise_scale > 0:
                words += f"; released from {least} on"
        else:
            scales = self.mechanism.noise_scales[-len(self.shares) :]
            words = count_words(scales, min(sizes), "votes")
        mean = min(size / n for size, n in zip(sizes, n_candidates, strict=True))
        of_class = " in the smallest class" if len(sizes) > 1 else ""
        return {"votes for a candidate": f"{words}; the mean is {number_words(mean)}{of_class}"}

    def report(self, **fields):
        """Return the PrivacyReport.

        Parameters
        ----------
        **fields
            Fields of the report that the plan does not determine.
        """
        bounds, events = [Bound("one_vote")], [Event("votes")]
        if self.start_share is not None:
            bounds.append(Bound("scaled_moments"))
            events.insert(0, Event("start_moments"))
        noise = "floating_point" if self.n_candidates is None else "certified_noise"
        is_floating = self.n_candidates is None and math.isfinite(self.epsilon)
        return PrivacyReport(
            epsilon=self.epsilon,
            delta=self.delta if math.isfinite(self.epsilon) else 0.0,
            events=tuple(events),
            norm="l1" if self.histogram == "laplace_threshold" else "l2",
            bounds=tuple(bounds),
            caveats=("candidates_and_embedding", noise),
            split=self.split,
            rounding=self.n_values * ROUNDING if is_floating else 0.0,
            **self.mechanism.report_fields(),
            **fields,
        )

    @property
    def last_noise_scale(self):
        """Scale of the noise on the counts of the last histogram."""
        if self.histogram == "laplace_threshold":
            return self.mechanism.noise_scale
        return self.mechanism.noise_scales[-1]
