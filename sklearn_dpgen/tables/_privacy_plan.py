"""The rounds, noise scales and privacy of measured marginals, from public quantities alone."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations
from typing import Any

import numpy as np

from sklearn_dpgen.accounting import Bound, Event, PrivacyReport
from sklearn_dpgen.exceptions import NoisyCountsWarning
from sklearn_dpgen.mechanisms import GaussianSequenceMechanism
from sklearn_dpgen.utils._validation import warn_user

__all__ = [
    "CELLS",
    "CHANGED_CELLS",
    "MarginalsPlan",
    "Round",
    "affordable_cells",
    "affordable_marginals",
    "is_drowned",
    "plan_rounds",
    "warn_of_noise",
]

# The records of an even cell over the standard deviation of their number that are asked for.
_CLEAR = 6.0
# Cells that a table of two and of three columns should have.
CELLS = {2: 12.0, 3: 64.0}


def affordable_cells(n_records, noise_scale):
    """Return the cells of a table that noise and chance leave visible.

    Parameters
    ----------
    n_records : float
    noise_scale : float
        Standard deviation of the noise of a count.

    Returns
    -------
    float
        K with n / K = 6 √(σ² + n / K): the records of an even cell, against how they vary.
    """
    n = max(n_records, 1.0)
    return 2 * n / (_CLEAR**2 + math.sqrt(_CLEAR**4 + 4 * (_CLEAR * noise_scale) ** 2))


def affordable_marginals(n_records, noise_scale, n_cells):
    """Return how many tables of so many cells can be measured in one vector.

    Parameters
    ----------
    n_records : float
    noise_scale : float
        Of a vector that is one table.
    n_cells : float

    Returns
    -------
    int
    """
    even = max(n_records, 1.0) / n_cells
    variance = max((even / _CLEAR) ** 2 - even, 0)
    return math.floor(min(variance / max(noise_scale, 1e-12) ** 2, 1 << 30))


def is_drowned(n_records, noise_scale):
    """Return whether noise leaves nothing of counts: half the records are near that of a number."""
    # Chance alone is no noise.
    return max(n_records, 1.0) < 2 * _CLEAR * noise_scale


def warn_of_noise(n_records, column_scale, table_scale, *, epsilon, unit="records"):
    """Warn if the counts of columns, or of pairs of columns, are below their noise.

    Parameters
    ----------
    n_records : float
        Public, or an estimate.
    column_scale : float
        Standard deviation of the noise of a count of a single column.
    table_scale : float or None
        Of a count of a pair; None without pairs.
    epsilon : float
        Named in the warning.
    unit : str, default="records"
        The noun for what is counted.
    """
    cure = f"use more {unit}, fewer columns, or a larger epsilon."
    for scale, what in (
        (column_scale, f"Samples hardly depend on the {unit}"),
        (table_scale, "Samples show hardly any dependence between columns"),
    ):
        if scale is not None and is_drowned(n_records, scale):
            warn_user(
                f"With epsilon={epsilon:g} and about {n_records:.0f} {unit}, a count has noise of "
                f"standard deviation {scale:.0f}. {what}: {cure}",
                NoisyCountsWarning,
            )
            return


# How many cells of a table differ between neighbouring tables.
CHANGED_CELLS = {"replace_one": 2, "add_or_remove": 1}
# Parts of the budget: of single columns, the larger one where not all pairs can be measured; of the
# rest, of triples, if there are any; of what is then left, at least, of the pairs of a target; and
# of a round with a choice, of the selections.
_SINGLES, _SINGLES_OF_FEW = 0.15, 0.25
_TRIPLES, _TRIPLES_OF_TARGETS = 0.1, 0.2
_TARGETS = 0.3
_SELECTIONS = 0.15
# Tables that are measured at most: pairs, beyond which they are selected, and triples.
_MOST_PAIRS, _MOST_TRIPLES = 200, 40
# Rounds of selected pairs, and triples that are looked at.
_ROUNDS, _CANDIDATES = 3, 4000
# Records over the scale of the noise: a score is the sum of two numbers a record, at most, and is
# computed with a relative error of at most 45 ulp, which is then 3/8 of a step of the grid.
_EXACT_SCORES = 2**19


@dataclass(frozen=True)
class Round:
    """Tables that are released as one vector.

    Parameters
    ----------
    candidates : tuple of tuple of int
        Columns of each.
    share : float
        Of the whole budget, selections included.
    n_selected : int or None
        How many are measured at most; None for all candidates, without a choice.
    """

    candidates: tuple[tuple[int, ...], ...]
    share: float
    n_selected: int | None = None

    @property
    def kind(self):
        """What its tables are of, in words."""
        sizes = tuple({len(columns) for columns in self.candidates})
        return "pairs" if sizes == (2,) else "triples" if sizes == (3,) else "listed tables"

    @property
    def n_tables(self):
        """How many tables are measured at most."""
        return len(self.candidates) if self.n_selected is None else self.n_selected


def plan_rounds(n_columns, *, marginals, targets, n_records, noise_scale, constants=()):
    """Return the rounds in which tables of two and three columns are measured.

    Parameters
    ----------
    n_columns : int
    marginals : "auto", "pairs" or list of tuple of int
        "auto" measures the pairs of the targets, then the others, or those of them that are
        selected, then selected triples, as far as noise leaves them anything to tell.
    targets : sequence of int
    n_records : int or None
        None where it is not public: rounds are then those of many records.
    noise_scale : float
        Of one vector that has the whole budget.
    constants : collection of int, default=()
        Columns of one category: a table with one says what it says without.

    Returns
    -------
    tuple of Round
        Whose shares, and that of single columns, are 1 together; none where there are no tables.
    """
    rest = 1 - _SINGLES
    if not isinstance(marginals, str):
        return (Round(tuple(marginals), rest),) if marginals else ()
    columns = [j for j in range(n_columns) if j not in constants]
    pairs = tuple(combinations(columns, 2))
    if not pairs:
        return ()
    if marginals == "pairs":
        return (Round(pairs, rest),)

    def affordable(share, n_cells):
        if n_records is None:
            return 1 << 30
        return affordable_marginals(n_records, noise_scale / math.sqrt(share), n_cells)

    if affordable(rest, CELLS[2]) < len(pairs):
        rest = 1 - _SINGLES_OF_FEW
    wanted = set(targets)
    triples = _triples(columns, wanted)
    share = rest * (_TRIPLES_OF_TARGETS if wanted else _TRIPLES)
    n_triples = min(len(triples), _MOST_TRIPLES, affordable(share, CELLS[3]))
    is_choice = n_records is None or n_triples < len(triples)
    n_chosen = n_triples if is_choice else None
    last = (Round(triples, share, n_chosen),) if n_triples else ()
    rest -= share * bool(last)
    first = tuple(pair for pair in pairs if wanted.intersection(pair))
    others = tuple(pair for pair in pairs if not wanted.intersection(pair))
    count = min(len(others), max(affordable(rest, CELLS[2]) - len(first), 0))
    if not first:
        count = min(len(others), max(count, len(columns) // 2))
    if not count:
        return (Round(first, rest), *last)
    share = rest * min(1 - _TARGETS, count / (count + len(first))) if first else rest
    given = (Round(first, rest - share),) if first else ()
    if len(others) <= count and len(others) <= _MOST_PAIRS:
        return (*given, Round(others, share), *last)
    parts = np.array_split(np.arange(min(count, _MOST_PAIRS)), _ROUNDS)
    sizes = [len(part) for part in parts if len(part)]
    chosen = (Round(others, share * size / sum(sizes), size) for size in sizes)
    return (*given, *chosen, *last)


def _triples(columns, targets):
    """Return the triples to choose from: of targets, if there are any, and a public sample."""
    n_all = math.comb(len(columns), 3)
    if targets:
        found = {
            tuple(sorted((target, *pair)))
            for target in targets
            for pair in combinations([j for j in columns if j != target], 2)
        }
        found = sorted(found)
    elif n_all <= 10 * _CANDIDATES:
        found = list(combinations(columns, 3))
    else:
        rng = np.random.default_rng(0)
        drawn = np.sort(rng.choice(columns, size=(2 * _CANDIDATES, 3)), axis=1)
        found = sorted({tuple(row) for row in drawn.tolist() if len({*row}) == 3})
    if len(found) > _CANDIDATES:
        chosen = np.random.default_rng(0).choice(len(found), _CANDIDATES, replace=False)
        found = [found[i] for i in np.sort(chosen)]
    return tuple(found)


@dataclass(frozen=True)
class MarginalsPlan:
    """Counts of single columns, then rounds of selections and tables of the selected marginals.

    Every release is a vector to which a record of weight w adds one of l2 norm w at most, with no
    negative entry. So a person whose rows weigh k together changes it by at most k if they are
    added or removed, and by √2 k if they are replaced, as the product of two such vectors is not
    negative; k equal rows do so. A score is the l1 distance of an exact table from one that is
    known, times at most 1, less a known number: it changes by at most k, or 2 k.

    Parameters
    ----------
    epsilon, delta : float
        The whole budget.
    neighbours : {"replace_one", "add_or_remove"}
    rounds : tuple of Round
        Without any the single columns have the whole budget.
    most : int, default=1
        What a record weighs in a count, or a person with all of their rows, at most.
    sizes : pair of lists of int or None, default=None
        Of certified noise, as of :func:`release_sizes`; None is noise in floating point.
    """

    epsilon: float
    delta: float
    neighbours: str
    rounds: tuple[Round, ...]
    most: int = 1
    sizes: tuple[Sequence[int], Sequence[int]] | None = None

    @property
    def sensitivity(self):
        """The largest l2 change of a release."""
        return self.most * math.sqrt(CHANGED_CELLS[self.neighbours])

    @cached_property
    def noise_scale(self):
        """The noise of one vector that has the whole budget."""
        mechanism = GaussianSequenceMechanism(self.sensitivity, (1.0,), self.epsilon, self.delta)
        return mechanism.noise_scales[0]

    @property
    def n_selections(self):
        """How many marginals are selected at most."""
        return sum(part.n_selected or 0 for part in self.rounds)

    @cached_property
    def mechanism(self):
        """The mechanism of all releases and selections, which prices what it runs."""
        shares, selected = self._shares
        selections: dict[str, Any] = {}
        if self.n_selections:
            selections = {
                "n_selections": self.n_selections,
                "selection_share": selected,
                "score_range": 2 * self.most * CHANGED_CELLS[self.neighbours],
            }
        if self.sizes is not None:
            selections["n_values"], selections["n_changed"] = self.sizes
        return GaussianSequenceMechanism(
            self.sensitivity, shares, self.epsilon, self.delta, **selections
        )

    @property
    def most_records(self):
        """The records of which scores are as precise as certified noise takes them to be."""
        selection = self.mechanism.selection
        if self.sizes is None or selection is None or selection.noise_scale == 0:
            return math.inf
        return math.floor(_EXACT_SCORES * selection.noise_scale / self.most)

    @property
    def _shares(self):
        """Of the budget: of each release, and of all selections."""
        tables, selected = [], 0.0
        for part in self.rounds:
            taken = part.share * _SELECTIONS * (part.n_selected is not None)
            tables.append(part.share - taken)
            selected += taken
        return (1 - sum(part.share for part in self.rounds), *tables), selected

    @property
    def split(self):
        """Parts of the budget by what they are spent on, of sum 1."""
        (singles, *tables), selected = self._shares
        found = {"single columns": singles}
        for part, share in zip(self.rounds, tables, strict=True):
            found[part.kind] = found.get(part.kind, 0.0) + share
        return found | ({"selections": selected} if selected else {})

    def _events(self):
        yield Event("column_counts")
        for part in self.rounds:
            n = len(part.candidates)
            if part.n_selected is None:
                yield Event("marginal_counts", n)
            else:
                yield Event("marginal_counts", part.n_selected, n)

    def report(self, name, **fields):
        """Return the PrivacyReport.

        Parameters
        ----------
        name : str
            Name of the estimator.
        **fields
            Fields of the report that the plan does not determine.
        """
        bounds = [Bound("one_cell")]
        if self.most > 1:
            bounds.append(Bound("rows_of_person", self.most))
        if self.n_selections:
            bounds.append(Bound("score_range"))
        caveats, max_records = ["floating_point" if self.sizes is None else "certified_noise"], None
        if self.sizes is not None and math.isfinite(self.most_records):
            max_records = self.most_records
            caveats.append("most_records")
        return PrivacyReport(
            name=name,
            events=tuple(self._events()),
            epsilon=self.epsilon,
            delta=self.delta if math.isfinite(self.epsilon) else 0.0,
            neighbours=self.neighbours,
            norm="l2",
            bounds=tuple(bounds),
            max_records=max_records,
            caveats=tuple(caveats),
            split=self.split,
            **self.mechanism.report_fields(),
            **fields,
        )
