"""Rounds, noise scales and privacy of the released marginals, from public quantities alone."""

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
from sklearn_dpgen.tables._marginals import MAX_COLUMNS
from sklearn_dpgen.utils._validation import warn_user

__all__ = [
    "CHANGED_CELLS",
    "FINER",
    "MarginalsPlan",
    "Round",
    "affordable_cells",
    "affordable_interactions",
    "affordable_pairs",
    "are_interactions_few",
    "is_below_noise",
    "plan_rounds",
    "target_share",
    "warn_of_noise",
]

# The wanted signal-to-noise ratio: records of an average cell over their standard deviation.
_SIGNAL_TO_NOISE = 6.0
# The least useful number of cells of a two-way marginal, and of one of more columns; the cells of
# the least marginal of three columns, and how many of these are released where records are few.
_PAIR_CELLS, _INTERACTION_CELLS = 12.0, 32.0
_LEAST_CELLS, _FEW = 8.0, 3
# Times as many groups of each column of a pair of ordered ones: the noise of neighbouring cells
# averages out, and ridges damp the high frequencies, in which it is above the signal.
FINER = 1.6


def affordable_cells(n_records, noise_scale):
    """Return the largest number of cells of a table at a signal-to-noise ratio of 6.

    Parameters
    ----------
    n_records : float
    noise_scale : float
        Standard deviation of the noise of a count.

    Returns
    -------
    float
        K with n / K = 6 √(σ² + n / K): the records of an average cell, against their standard
        deviation by noise and sampling.
    """
    n = max(n_records, 1.0)
    root = math.sqrt(_SIGNAL_TO_NOISE**4 + 4 * (_SIGNAL_TO_NOISE * noise_scale) ** 2)
    return 2 * n / (_SIGNAL_TO_NOISE**2 + root)


def affordable_marginals(n_records, noise_scale, n_cells):
    """Return how many tables can be released as one vector at a signal-to-noise ratio of 6.

    Parameters
    ----------
    n_records : float
    noise_scale : float
        Noise of a vector of one table.
    n_cells : float
        Cells of each table.

    Returns
    -------
    int
    """
    average = max(n_records, 1.0) / n_cells
    variance = max((average / _SIGNAL_TO_NOISE) ** 2 - average, 0)
    return math.floor(min(variance / max(noise_scale, 1e-12) ** 2, 1 << 30))


def affordable_pairs(n_records, noise_scale):
    """Return how many useful two-way marginals can be released as one vector."""
    return affordable_marginals(n_records, noise_scale, _PAIR_CELLS)


def affordable_interactions(n_records, noise_scale):
    """Return how many useful marginals of three and more columns can be released as one vector.

    Where none of 32 cells is affordable, a few with the least number of cells still are useful:
    they have two groups of each column, which suffices for a plain interaction. They have half of
    the budget of their round.
    """
    if are_interactions_few(n_records, noise_scale):
        least = affordable_marginals(n_records, math.sqrt(2) * noise_scale, _LEAST_CELLS)
        return min(_FEW, least)
    return affordable_marginals(n_records, noise_scale, _INTERACTION_CELLS)


def are_interactions_few(n_records, noise_scale):
    """Return whether no marginal of three and more columns is affordable in 32 cells."""
    return not affordable_marginals(n_records, noise_scale, _INTERACTION_CELLS)


def is_below_noise(n_records, noise_scale):
    """Return whether a table of two cells has a signal-to-noise ratio below 6, by noise alone."""
    return max(n_records, 1.0) < 2 * _SIGNAL_TO_NOISE * noise_scale


def warn_of_noise(n_records, column_scale, table_scale, *, epsilon, unit="records"):
    """Warn if counts of single columns or of other marginals are below the noise.

    Parameters
    ----------
    n_records : float
        The public number, or an estimate.
    column_scale : float
        Standard deviation of the noise of a count of a single column.
    table_scale : float or None
        Standard deviation of the noise of a count of a pair; None without pairs.
    epsilon : float
        The budget, for the message.
    unit : str, default="records"
        The noun for what is counted.
    """
    for scale, effect in (
        (column_scale, f"Samples hardly depend on the {unit}"),
        (table_scale, "Samples show hardly any dependence between columns"),
    ):
        if scale is not None and is_below_noise(n_records, scale):
            warn_user(
                f"With epsilon={epsilon:g} and about {n_records:.0f} {unit}, a count has noise of "
                f"standard deviation {scale:.0f}. {effect}: use more {unit}, fewer columns, or a "
                "larger epsilon.",
                NoisyCountsWarning,
            )
            return


# The number of cells of a marginal that differ between neighbouring tables.
CHANGED_CELLS = {"replace_one": 2, "add_or_remove": 1}
# Shares of the budget: of single columns, with a larger share where not all pairs are affordable or
# a public table has all columns, and at least that of a pair, since without precise columns the
# bins of few columns are wrong; of marginals of three and more columns, in the remainder; of pairs
# of targets, at least, in what then remains; and of the selections of a round.
_SINGLES, _SINGLES_OF_FEW, _SINGLES_OF_PUBLIC = 0.15, 0.25, 0.3
_INTERACTIONS, _INTERACTIONS_OF_TARGETS = 0.1, 0.2
_TARGETS, _TARGETS_IF_RARE = 0.3, 0.9
_SELECTIONS = 0.15
# Share of the budget by which the labels of each open column are discovered, and of all of them.
_LABELS, _MOST_LABELS = 0.2, 0.4
# The most pairs without a selection, which is also the most selected pairs, and the most marginals
# of three and more columns.
_MOST_PAIRS, _MOST_INTERACTIONS = 200, 40
# Rounds of selected pairs, candidate triples, and all candidates if some have more columns.
_ROUNDS, _TRIPLES, _CANDIDATES = 3, 4000, 1000
# The most subsets that are enumerated; of more, random ones are drawn.
_ENUMERATED = 1 << 18
# The most records over the noise scale of scores with certified noise. A score sums at most two
# numbers a record with a relative error of at most 45 ulp, which is 3/8 of a step of the grid.
_EXACT_SCORES = 2**19


@dataclass(frozen=True)
class Round:
    """Marginals that are released as one vector.

    Parameters
    ----------
    candidates : tuple of tuple of int
        Columns of each candidate.
    share : float
        Share of the whole budget, selections included.
    n_selected : int or None
        The most marginals to select; None releases all candidates without a selection.
    n_chosen : int or None, default=None
        The number of candidates that are released, chosen by earlier releases alone, which costs
        nothing; None for all.
    """

    candidates: tuple[tuple[int, ...], ...]
    share: float
    n_selected: int | None = None
    n_chosen: int | None = None

    def is_of(self, targets):
        """Return whether each candidate is a pair with one of some columns."""
        return all(len(own) == 2 and {*targets}.intersection(own) for own in self.candidates)

    @property
    def kind(self):
        """Words for the marginals: "pairs", "interactions" or "listed tables"."""
        sizes = {len(columns) for columns in self.candidates}
        if sizes == {2}:
            return "pairs"
        return "interactions" if min(sizes) > 2 else "listed tables"

    @property
    def n_tables(self):
        """The most marginals that are released."""
        numbers = self.n_selected, self.n_chosen, len(self.candidates)
        return next(number for number in numbers if number is not None)


def plan_rounds(
    n_columns, *, marginals, targets, n_records, noise_scale, constants=(), public_share=0.0
):
    """Return the rounds in which marginals of two and more columns are released.

    Parameters
    ----------
    n_columns : int
    marginals : "auto", "pairs" or list of tuple of int
        "auto" plans pairs of targets, then all or selected other pairs, then selected marginals of
        three to seven columns, as many as are affordable.
    targets : sequence of int
    n_records : int or None
        The public number of records; None plans for many records.
    noise_scale : float
        Noise of a single vector with the whole budget.
    constants : collection of int, default=()
        Columns of one category, which are left out.
    public_share : float, default=0.0
        Share of the columns that a public table has, of whose dependence it tells.

    Returns
    -------
    tuple of Round
        Their shares and that of single columns sum to 1; empty without marginals.
    """
    rest = 1 - (_SINGLES + (_SINGLES_OF_PUBLIC - _SINGLES) * public_share)
    if not isinstance(marginals, str):
        return (Round(tuple(marginals), rest),) if marginals else ()
    columns = [j for j in range(n_columns) if j not in constants]
    pairs = tuple(combinations(columns, 2))
    if not pairs:
        return ()
    rest = min(rest, len(pairs) / (len(pairs) + 1))
    if marginals == "pairs":
        return (Round(pairs, rest),)

    def affordable(count, share):
        return 1 << 30 if n_records is None else count(n_records, noise_scale / math.sqrt(share))

    if affordable(affordable_pairs, rest) < len(pairs):
        rest = min(rest, 1 - _SINGLES_OF_FEW)
    wanted = set(targets)
    candidates = _interactions(columns, wanted)
    share = rest * (_INTERACTIONS_OF_TARGETS if wanted else _INTERACTIONS)
    number = affordable(affordable_interactions, share * (1 - _SELECTIONS))
    number = min(len(candidates), _MOST_INTERACTIONS, number)
    is_choice = n_records is None or number < len(candidates)
    last = (Round(candidates, share, number if is_choice else None),) if number else ()
    rest -= share * bool(last)
    first = tuple(pair for pair in pairs if wanted.intersection(pair))
    others = tuple(pair for pair in pairs if not wanted.intersection(pair))
    count = min(len(others), max(affordable(affordable_pairs, rest) - len(first), 0))
    if not first:
        count = min(len(others), max(count, len(columns) // 2))
    if not count:
        return (Round(first, rest), *last)
    share = rest * min(1 - _TARGETS, count / (count + len(first))) if first else rest
    given = (Round(first, rest - share),) if first else ()
    if len(others) <= count and len(others) <= _MOST_PAIRS:
        return (*given, Round(others, share), *last)
    splits = np.array_split(np.arange(min(count, _MOST_PAIRS)), _ROUNDS)
    sizes = [len(split) for split in splits if len(split)]
    chosen = (Round(others, share * size / sum(sizes), size) for size in sizes)
    return (*given, *chosen, *last)


def target_share(balance):
    """Return the least share of the budget of pairs for those of the targets.

    Parameters
    ----------
    balance : float
        Gini impurity of a target relative to that of equally frequent values, from 0 to 1.

    Returns
    -------
    float
        The share grows with the rarity of a value, whose cells have few records.
    """
    return _TARGETS + (_TARGETS_IF_RARE - _TARGETS) * (1 - balance)


def _interactions(columns, targets):
    """Return the candidate marginals of three and more columns: those of targets if there are any.

    They are all triples, or 4000 of them at random, and marginals of four to seven columns while
    there are at most 1000: the order for which there is no room has a random part of its marginals.
    """
    rng = np.random.default_rng(0)
    found: list[tuple[int, ...]] = []
    for n_columns in range(3, MAX_COLUMNS + 1):
        room = _TRIPLES if n_columns == 3 else _CANDIDATES - len(found)
        if room <= 0:
            break
        found += _subsets(columns, targets, n_columns, room, rng)
    return tuple(found)


def _subsets(columns, targets, size, most, rng):
    """Return the subsets of a size with a target, if there are any; at most a number at random."""
    if math.comb(len(columns), size) <= _ENUMERATED:
        every = combinations(columns, size)
        subsets = [one for one in every if not targets or targets.intersection(one)]
    else:
        drawn = set()
        for _ in range(2 * most):
            own = rng.choice(sorted(targets), min(len(targets), 1), replace=False).tolist()
            rest = np.setdiff1d(columns, own)
            own += rng.choice(rest, size - len(own), replace=False).tolist()
            drawn.add(tuple(sorted(own)))
        subsets = sorted(drawn)
    if len(subsets) <= most:
        return subsets
    return [subsets[i] for i in np.sort(rng.choice(len(subsets), most, replace=False))]


@dataclass(frozen=True)
class MarginalsPlan:
    """Privacy of noisy counts of single columns, then of rounds of selections and marginals.

    Each release is a vector to which a record of weight w adds a non-negative vector of l2 norm at
    most w. A person whose rows have total weight k therefore changes it by at most k if they are
    added or removed. If they are replaced, the change is at most √2 k, because the inner product
    of two non-negative vectors is not negative; k equal rows attain this. A score is at most 1
    times the l1 distance of an exact marginal from a known one, less a known number, so it changes
    by at most k, or 2 k.

    Parameters
    ----------
    epsilon, delta : float
        The whole budget.
    neighbours : {"replace_one", "add_or_remove"}
    rounds : tuple of Round
        If empty, single columns have the whole budget.
    most : int, default=1
        Bound on the total weight of a record, or of the rows of a person.
    sizes : pair of lists of int or None, default=None
        Sizes for certified noise, from :func:`release_sizes`; None for noise in floating point.
    n_open : int, default=0
        Number of columns whose labels are discovered by the first release. The shares of rounds are
        then those of the rest of the budget.
    """

    epsilon: float
    delta: float
    neighbours: str
    rounds: tuple[Round, ...]
    most: int = 1
    sizes: tuple[Sequence[int], Sequence[int]] | None = None
    n_open: int = 0

    @property
    def sensitivity(self):
        """The l2 sensitivity of a release."""
        return self.most * math.sqrt(CHANGED_CELLS[self.neighbours])

    @cached_property
    def noise_scale(self):
        """The noise of a single vector with the whole budget, after the discovery of labels."""
        mechanism = GaussianSequenceMechanism(self.sensitivity, (1.0,), self.epsilon, self.delta)
        return mechanism.noise_scales[0] / math.sqrt(1 - self._discovery)

    @property
    def _discovery(self):
        """The share of the whole budget by which labels are discovered."""
        return min(_LABELS * self.n_open, _MOST_LABELS)

    @property
    def count_scales(self):
        """The noise of the counts of single columns, then of each round."""
        return self.mechanism.noise_scales[self.n_open > 0 :]

    @property
    def n_selections(self):
        """The most marginals that are selected."""
        return sum(one.n_selected or 0 for one in self.rounds)

    @cached_property
    def mechanism(self):
        """The mechanism of all releases and selections, with its privacy profile."""
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
            self.sensitivity, shares, self.epsilon, self.delta, n_open=self.n_open, **selections
        )

    def label_threshold(self):
        """Return the noisy count of records, or of persons, from which a label is discovered."""
        factor = self.label_factor
        return self.mechanism.threshold(1 / factor) * factor

    @property
    def label_scale(self):
        """The noise of the count of a label."""
        return self.mechanism.noise_scales[0] * self.label_factor

    @property
    def label_factor(self):
        """The count of a label over its value in the released vector.

        Of k open columns a record, or a person, has one label each, and so changes the vector by
        1/√k in each, times the bound on weights.
        """
        return math.sqrt(self.n_open) / self.most

    @property
    def most_records(self):
        """The most records for which scores are precise enough for certified noise."""
        selection = self.mechanism.selection
        if self.sizes is None or selection is None or selection.noise_scale == 0:
            return math.inf
        return math.floor(_EXACT_SCORES * selection.noise_scale / self.most)

    @property
    def _shares(self):
        """The shares of the budget of each release, and of all selections together."""
        tables, selected = [], 0.0
        for one in self.rounds:
            taken = one.share * _SELECTIONS * (one.n_selected is not None)
            tables.append(one.share - taken)
            selected += taken
        counts = 1 - sum(one.share for one in self.rounds), *tables
        if not self.n_open:
            return counts, selected
        rest = 1 - self._discovery
        return (self._discovery, *(rest * share for share in counts)), rest * selected

    @property
    def split(self):
        """Shares of the budget by the kind of release, of sum 1."""
        counts, selected = self._shares
        shares = {"labels": counts[0]} if self.n_open else {}
        singles, *tables = counts[self.n_open > 0 :]
        shares["single columns"] = singles
        for one, share in zip(self.rounds, tables, strict=True):
            shares[one.kind] = shares.get(one.kind, 0.0) + share
        return shares | ({"selections": selected} if selected else {})

    def _events(self):
        if self.n_open:
            yield Event("open_labels", self.n_open)
        yield Event("column_counts")
        for one in self.rounds:
            n = len(one.candidates)
            if one.n_selected is None:
                yield Event("marginal_counts", one.n_tables)
            else:
                yield Event("marginal_counts", one.n_selected, n)

    def report(self, name, **fields):
        """Return the PrivacyReport.

        Parameters
        ----------
        name : str
            Name of the estimator.
        **fields
            Further fields of the report.
        """
        bounds = [Bound("one_cell")]
        if self.n_open:
            bounds.append(Bound("one_open_label"))
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
