"""What measured slices cost, from public quantities alone."""

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from sklearn_dpgen.accounting import PrivacyReport
from sklearn_dpgen.accounting._report import FLOATING_POINT
from sklearn_dpgen.mechanisms import GaussianSequenceMechanism

__all__ = ["RELATIONS", "SlicesPlan", "plan_rounds"]

# Neighbouring tables, and how many cells of a table differ between them.
RELATIONS = {
    "replace_one": ("replace one record; the number of records is public", 2),
    "add_or_remove": (
        "add or remove one record of at least two; the number of records is not public",
        1,
    ),
}
# Share of the budget for single columns, and of the rest for selections.
_SINGLES = 0.2
_SELECTIONS = 0.2
# Pairs that are measured adaptively: so many, or twice the columns.
_FEW = 120
_ROUNDS = 10


def plan_rounds(n_candidates, n_columns, *, is_adaptive, n_slices="auto", n_rounds="auto"):
    """Return how many slices each round measures.

    Parameters
    ----------
    n_candidates : int
        Slices of more than one column that there are.
    n_columns : int
    is_adaptive : bool
        Whether slices are selected; else there is one round for all.
    n_slices : "auto" or int
        How many are measured in all: 120, or twice the columns if these are more.
    n_rounds : "auto" or int
        10, if there are as many slices; one where no choice is to be made.

    Returns
    -------
    tuple of int
        One round where all are measured, none without candidates.

    Raises
    ------
    ValueError
        More rounds than slices.
    """
    wanted = max(_FEW, 2 * n_columns) if n_slices == "auto" else n_slices
    if n_rounds == "auto":
        n_rounds = min(_ROUNDS, wanted)
    if n_rounds > wanted:
        raise ValueError(f"n_rounds must be at most the {wanted} slices to measure.")
    if n_candidates == 0:
        return ()
    if not is_adaptive or wanted >= n_candidates:
        return (n_candidates,)
    return tuple(len(part) for part in np.array_split(np.arange(wanted), n_rounds))


@dataclass(frozen=True)
class SlicesPlan:
    """Counts of single columns, then rounds of selections and tables of the selected slices.

    Every release is a vector to which a record adds one of l2 norm 1 at most. So it changes by at
    most 1 if a record is added or removed, by √2 if one is replaced. A score is the l2 distance
    of an exact table from one that is known, times at most 1, and changes by as much.

    Parameters
    ----------
    epsilon, delta : float
        The whole budget.
    neighbours : {"replace_one", "add_or_remove"}
    n_candidates : int
        Slices that selections are made from.
    rounds : tuple of int
        How many slices each measures. Without rounds the single columns have the whole budget.
    """

    epsilon: float
    delta: float
    neighbours: str
    n_candidates: int
    rounds: tuple[int, ...]

    @property
    def n_selections(self):
        """How many slices are selected; there is no choice where all that are left are measured."""
        n_all = sum(self.rounds)
        return n_all - self.rounds[-1] if n_all == self.n_candidates and self.rounds else n_all

    @cached_property
    def mechanism(self):
        """The mechanism of all releases and selections, which prices what it runs."""
        sensitivity = math.sqrt(RELATIONS[self.neighbours][1])
        shares, selections = (1.0,), {}
        if self.rounds:
            rest = 1 - _SINGLES
            if self.n_selections:
                selections = {
                    "n_selections": self.n_selections,
                    "selection_share": rest * _SELECTIONS,
                    "score_range": 2 * sensitivity,
                }
                rest *= 1 - _SELECTIONS
            # As much noise in one round as in another.
            shares = (_SINGLES, *(rest * count / sum(self.rounds) for count in self.rounds))
        return GaussianSequenceMechanism(
            sensitivity, shares, self.epsilon, self.delta, **selections
        )

    def _words(self):
        if not self.rounds:
            return "counts of single columns"
        n_all = sum(self.rounds)
        if not self.n_selections:
            return f"counts of single columns, then of {n_all} slices"
        return (
            f"counts of single columns, then of {n_all} of {self.n_candidates} slices, selected in "
            f"{len(self.rounds)} rounds"
        )

    def report(self, **words):
        """Return the PrivacyReport.

        Parameters
        ----------
        **words
            Its fields that the plan does not answer for.
        """
        source = "l2; weighted tables, in each of which a record counts once, of norm 1 together"
        if self.n_selections:
            source += "; scores are l2 distances of tables"
        return PrivacyReport(
            mechanism=f"noisy {self._words()}",
            epsilon=self.epsilon,
            delta=self.delta if math.isfinite(self.epsilon) else 0.0,
            neighbouring=RELATIONS[self.neighbours][0],
            sensitivity_source=source,
            caveats=(FLOATING_POINT,),
            **self.mechanism.report_fields(),
            **words,
        )
