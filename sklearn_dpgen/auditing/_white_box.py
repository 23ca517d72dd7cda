"""The white-box audit: releases on two neighbouring tables with one transcript."""

import itertools
import warnings
from dataclasses import dataclass, replace

import numpy as np
from sklearn.base import clone
from sklearn.utils import check_random_state

from sklearn_dpgen.auditing._neighbours import Pool, Table, extreme_records
from sklearn_dpgen.auditing._pairs import (
    DiscretePair,
    GaussianPair,
    LaplacePair,
    SampledGaussianPair,
    SampledReplacementPair,
)
from sklearn_dpgen.auditing._transcript import DivergedError, Transcript
from sklearn_dpgen.exceptions import PublicValueError
from sklearn_dpgen.utils._random import observed_noise

__all__ = ["Neighbours", "WhiteBox", "release_pairs"]

# Weights of batches are compared before their losses are composed, which takes long.
_MU_DIGITS = 1e5
_N_CONFIRMED = 3
_REFUSALS = (ValueError, ArithmeticError, DivergedError)


@dataclass(frozen=True)
class Neighbours:
    """Two tables and how they differ."""

    first: Table
    second: Table
    words: str
    seed: int
    # Without the record that differs, where batches are secret; and the place of its batch.
    base: Table | None = None
    place: int = 0


def release_pairs(
    first: Transcript,
    second: Transcript,
    bounds: dict,
    *,
    base: Transcript | None = None,
    place: int = 0,
) -> list:
    """Return the pairs of laws of all releases of one transcript, on two neighbours.

    Parameters
    ----------
    first, second : Transcript
        Of one transcript: with the same batches and outcomes.
    bounds : dict of str to float
        Of the noise scales over what they are said to be.
    base : Transcript or None, default=None
        Where batches are secret, what is released of one without the record that differs: all
        other records of its stratum are alike. In the other two it is in every batch.
    place : int, default=0
        Which of the batches of a release the record is in.
    """
    pairs = []
    for i, (a, b) in enumerate(zip(first.releases, second.releases, strict=True)):
        scale = a.scale * bounds.get(a.kind, 1.0)
        if a.kind == "gumbel":
            pairs += _selection_pairs(a.values / scale, b.values / scale, a.outcome)
        elif a.kind == "laplace":
            shift = np.abs(a.values - b.values).ravel() / scale
            pairs += [LaplacePair(float(s)) for s in shift[shift > 0]]
        elif base is None or place >= len(a.batches):
            pairs.append(GaussianPair(float(np.linalg.norm(a.values - b.values) / scale)))
        else:
            n, batches = a.batches[place]
            rows = np.atleast_2d(batches)
            without = base.releases[i].values
            with_a, with_b = (((r.values - without) / scale).reshape(len(rows), -1) for r in (a, b))
            pairs += _batch_pairs(with_a, with_b, rows.shape[1] / n)
    return pairs


def _batch_pairs(first, second, rate):
    """Return one pair a batch, from what the record moves in it on either neighbour."""
    if rate >= 1:
        return [GaussianPair(float(np.linalg.norm(first - second)))]
    norms = [np.linalg.norm(moves, axis=1) for moves in (first, second)]
    if min(n.max() for n in norms) == 0:
        mus = np.floor(np.maximum(*norms) * _MU_DIGITS) / _MU_DIGITS
        return [SampledGaussianPair(float(mu), rate) for mu in mus]
    products = (first * second).sum(axis=1)
    # Of directions that nothing moves along, nothing is learnt.
    rounded = (np.round(part, 9) for part in (*norms, products))
    return [
        SampledReplacementPair((float(a), float(b)), float(c), rate)
        for a, b, c in zip(*rounded, strict=True)
        if a > 0
    ]


def _selection_pairs(first, second, chosen):
    pairs, is_left = [], np.ones(len(first), dtype=bool)
    for index in chosen:
        pairs.append(DiscretePair.of_scores(first[is_left], second[is_left]))
        is_left[index] = False
    return pairs


def _weight(pairs):
    """Return about the variance of the privacy loss of all releases, to compare neighbours."""
    total = 0.0
    for pair in pairs:
        if isinstance(pair, SampledReplacementPair):
            squares = sum(np.expm1(min(norm**2, 100.0)) for norm in pair.norms)
            total += pair.rate**2 * (squares - 2 * np.expm1(min(pair.product, 100.0)))
        elif isinstance(pair, SampledGaussianPair):
            total += pair.rate**2 * np.expm1(min(pair.mu**2, 100.0))
        else:
            loss = pair.mu if isinstance(pair, GaussianPair) else pair.largest_loss
            total += loss**2
    return total


@dataclass(frozen=True)
class Choice:
    """Which record is in the place of which, and what all others are; None as given."""

    row: int
    first: int
    second: int
    others: int | None
    label: bool
    side: bool
    place: int | None
    # Of the public draws, such as the weights that a network starts from.
    seed: int


class WhiteBox:
    """Search for neighbours, and the bound that the worst of them give.

    Parameters
    ----------
    estimator : estimator
    X, y, sensitive_features : array-like
    claim : PrivacyReport
    candidates : like X, or None
    n_trials : int
    random_state : None, int or RandomState
    """

    def __init__(
        self,
        estimator,
        X,
        y,
        sensitive_features,
        *,
        claim,
        replaceable=None,
        candidates=None,
        n_trials=40,
        random_state=None,
    ) -> None:
        self.estimator, self.claim = estimator, claim
        self.rng = check_random_state(random_state)
        if candidates is None:
            candidates = extreme_records(X, self.rng)
        self.pool = Pool(X, y, sensitive_features, candidates)
        self.n_trials = n_trials
        self.replaceable = (
            np.ones(self.pool.n, dtype=bool) if replaceable is None else np.asarray(replaceable)
        )

    def fit(self, table: Table, transcript: Transcript, seed: int | None) -> Transcript:
        """Fit a clone on a table, and return its transcript."""
        X, y, sides = self.pool.parts(table)
        estimator = clone(self.estimator)
        names = estimator.get_params(deep=True)
        settings = {n: seed for n in names if n.split("__")[-1] == "random_state"}
        settings |= {n: None for n in names if n.split("__")[-1] == "ledger"}
        estimator.set_params(**settings)
        beside = {} if sides is None else {"sensitive_features": sides}
        with warnings.catch_warnings(), observed_noise(transcript):
            warnings.simplefilter("ignore")
            estimator.fit(X, *([] if y is None else [y]), **beside)
        transcript.finish()
        return transcript

    def pairs(self, neighbours: Neighbours, bounds: dict) -> list:
        """Return the pairs of laws of the releases, on one fresh transcript."""
        seed = neighbours.seed
        base, place = neighbours.base, neighbours.place
        member = None if base is None else (place, 0)
        second = self.fit(neighbours.second, Transcript(member=member, is_fresh=True), seed)
        first = self.fit(neighbours.first, Transcript(second), seed)
        if base is not None:
            is_same = base is neighbours.second
            base = second if is_same else self.fit(base, Transcript(second), seed)
        return release_pairs(first, second, bounds, base=base, place=place)

    def unaltered(self, count: int = 2) -> list[Transcript]:
        """Return the transcripts of fits as a user has them."""
        given = self.pool.given()
        return [self.fit(given, Transcript(), None) for _ in range(count)]

    def batch_places(self, transcript: Transcript) -> list[int | None]:
        """Return the places of secret batches in a release, or None alone without any."""
        batches = [batch for release in transcript.releases for batch in release.batches]
        if all(np.atleast_2d(indices).shape[1] >= n for n, indices in batches):
            return [None]
        return list(range(max(len(release.batches) for release in transcript.releases)))

    def seed(self) -> int:
        """Return a seed for a fit and its replay."""
        return int(self.rng.randint(2**31))

    def search(self, places: list[int | None], unit_bounds: dict) -> Neighbours:
        """Return the worst neighbours found.

        Parameters
        ----------
        places : list
            Of the batches of a release, in which the record may be; None where there are none.

        Raises
        ------
        ValueError
            If no two neighbours could be compared.
        """
        best, refused = (0.0, None), []
        starts = self._starts(places)
        for trial in range(self.n_trials):
            # At first extreme records, then the worst ones so far, varied.
            is_start = best[1] is None or trial < self.n_trials // 3
            spec = next(starts, None) if is_start else self._varied(best[1])
            if spec is None:
                break
            try:
                neighbours = self._made(spec)
                weight = _weight(self.pairs(neighbours, unit_bounds))
                for _ in range(_N_CONFIRMED):
                    # Not what is worse by chance, on one transcript alone.
                    if weight > best[0]:
                        weight = min(weight, _weight(self.pairs(neighbours, unit_bounds)))
            except _REFUSALS as error:
                refused.append(str(error))
                continue
            if weight > best[0]:
                best = weight, spec
        if best[1] is None:
            raise PublicValueError(
                "No two neighbours could be told apart: give candidates that the estimator takes. "
                f"The last was refused: {refused[-1] if refused else 'none'}."
            )
        return self._made(best[1])

    def _starts(self, places):
        """Yield neighbours, the extreme ones first."""
        labels, sides = self._free_parts()
        is_secret = places[0] is not None
        choices = itertools.product(
            self._ordered_pairs(),
            [True] if is_secret else [False, True],
            places,
            self._first_rows(),
            labels,
            sides,
        )
        for (c, d), are_alike, place, row, label, side in choices:
            others = d if self.rng.uniform() < 0.5 else self.rng.choice(self.pool.candidates)
            yield Choice(row, c, d, others if are_alike else None, label, side, place, self.seed())

    def _varied(self, choice):
        """Return a choice with one of its records, or several, changed."""
        records = [choice.first, choice.second, choice.others]
        if self.rng.uniform() < 0.2:
            records[2] = self.rng.choice([*records[:2], *self.pool.candidates])
        for i, record in enumerate(records):
            if record is not None and self.rng.uniform() < 0.5:
                records[i] = self.pool.varied(record, self.rng)
        first, second, others = records
        seed = self.seed() if self.rng.uniform() < 0.3 else choice.seed
        return replace(choice, first=first, second=second, others=others, seed=seed)

    def _made(self, choice):
        """Return the two tables of a choice."""
        table, row = self.pool.given(), choice.row
        kind = "the table as given"
        if choice.others is not None:
            table, kind = self._constant(table, choice.others), "all other records alike"
        label = self._other(self.pool.y, row) if choice.label else table.labels[row]
        side = self._other(self.pool.sides, row) if choice.side else table.sides[row]
        first = table.replaced(row, choice.first, label, side)
        if self.claim.neighbours == "add_or_remove":
            return Neighbours(
                first, table.without(row), f"{kind}, one of them removed", choice.seed
            )
        words = f"{kind}, one replaced"
        second = table
        if choice.second != choice.others:
            second = table.replaced(row, choice.second, table.labels[row], table.sides[row])
        if choice.place is None:
            return Neighbours(first, second, words, choice.seed)
        return Neighbours(first, second, words, choice.seed, table, choice.place)

    def _free_parts(self):
        """Return whether a record may come with another label, and with another side."""
        public = " ".join(self.claim.public)
        is_fixed = "class sizes" in public or "source records and their labels" in public
        with_y = self.pool.y is not None and not is_fixed
        with_sides = self.pool.sides is not None and not self._has_groups()
        return range(with_y, -1, -1), range(with_sides, -1, -1)

    def _ordered_pairs(self):
        """Return pairs of candidates, opposite ones first, then at random."""
        candidates = self.pool.candidates
        pairs = list(itertools.permutations(candidates, 2))
        self.rng.shuffle(pairs)
        ends = [tuple(candidates[[0, -1]]), tuple(candidates[[-1, 0]])]
        return [*ends, *(tuple(pair) for pair in pairs)]

    def _first_rows(self):
        """Return the first row of each stratum that records may be replaced in."""
        strata = self.pool.sides if self._has_groups() else None
        if strata is None:
            return [int(np.flatnonzero(self.replaceable)[0])]
        strata = np.asarray(strata)
        return [
            int(np.flatnonzero(self.replaceable & (strata == value))[0])
            for value in dict.fromkeys(strata[self.replaceable])
        ]

    def _has_groups(self):
        return self.pool.sides is not None and "sizes of the groups" in self.claim.public

    @staticmethod
    def _other(values, row):
        values = np.asarray(values)
        others = np.flatnonzero(values != values[row])
        return int(others[0]) if len(others) else row

    def _constant(self, table, row):
        """Return a table in which all records that may be replaced are one."""
        rows, labels = table.rows.copy(), table.labels.copy()
        rows[self.replaceable] = row
        if self._has_groups() and self.pool.y is not None:
            sides = np.asarray(self.pool.sides)
            y = np.asarray(self.pool.y)
            values = list(dict.fromkeys(y))
            for i, side in enumerate(dict.fromkeys(sides)):
                labels[sides == side] = np.flatnonzero(y == values[i % len(values)])[0]
        return Table(rows, labels, table.sides)
