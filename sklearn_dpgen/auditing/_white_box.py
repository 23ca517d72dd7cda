"""Neighbouring tables, the search for the worst of them, and the privacy loss of their fits."""

import itertools
import warnings
from dataclasses import dataclass, replace

import numpy as np
from sklearn.base import clone
from sklearn.utils import check_random_state

from sklearn_dpgen.accounting import Public
from sklearn_dpgen.accounting._guarantee import Neighbours as Relation
from sklearn_dpgen.accounting._guarantee import Shared
from sklearn_dpgen.accounting._profiles import MixtureProfile
from sklearn_dpgen.auditing._bounds import (
    DiscretePair,
    GaussianPair,
    LaplacePair,
    SampledGaussianPair,
    SampledReplacementPair,
    epsilon_of_guesses,
    epsilon_of_rates,
    mu_of_guesses,
    mu_of_rates,
    rate_bounds,
)
from sklearn_dpgen.auditing._pools import (
    LinkedTables,
    PersonPool,
    Pool,
    Table,
    extreme_records,
    nasty_persons,
)
from sklearn_dpgen.auditing._transcript import DivergedError, Transcript
from sklearn_dpgen.exceptions import PublicValueError
from sklearn_dpgen.utils._random import observed_noise
from sklearn_dpgen.utils._source_and_target import known_labels

__all__ = [
    "Neighbours",
    "WhiteBox",
    "one_run",
    "release_pairs",
    "repeated",
]

# Composition takes long, so that shifts are rounded and equal ones are composed together.
_MU_DIGITS = 1e5
_N_CONFIRMED = 3
# Number of rows of the largest person.
_N_ROWS = 500
_REFUSALS = (ValueError, ArithmeticError, DivergedError)


@dataclass(frozen=True)
class Neighbours:
    """Two tables and how they differ."""

    first: Table
    second: Table
    words: str
    seed: int
    # If batches are secret: the table without the differing record, and the position of its batch.
    base: Table | None = None
    position: int = 0


def release_pairs(
    first: Transcript,
    second: Transcript,
    bounds: dict,
    *,
    base: Transcript | None = None,
    position: int = 0,
) -> list:
    """Return the pairs of distributions of all releases on two neighbours.

    Parameters
    ----------
    first, second : Transcript
        Transcripts with the same batches and outcomes.
    bounds : dict of str to float
        Bounds of the noise scales relative to the claimed scales.
    base : Transcript or None, default=None
        If batches are secret, the transcript of the table without the differing record, in which
        all other records of its stratum are equal. In ``first`` and ``second`` every batch contains
        the record.
    position : int, default=0
        Position of the batch that contains the record, among the batches of a release.
    """
    pairs = []
    for i, (a, b) in enumerate(zip(first.releases, second.releases, strict=True)):
        scale = a.scale * bounds.get(a.kind, 1.0)
        if a.kind == "gumbel":
            pairs += _selection_pairs(a.values / scale, b.values / scale, a.outcome)
        elif a.kind == "laplace":
            shift = np.abs(a.values - b.values).ravel() / scale
            pairs += [LaplacePair(float(s)) for s in shift[shift > 0]]
        elif base is None or position >= len(a.batches):
            pairs.append(GaussianPair(float(np.linalg.norm(a.values - b.values) / scale)))
        else:
            n, batches = a.batches[position]
            rows = np.atleast_2d(batches)
            without = base.releases[i].values
            with_a, with_b = (((r.values - without) / scale).reshape(len(rows), -1) for r in (a, b))
            pairs += _batch_pairs(with_a, with_b, rows.shape[1] / n)
    return pairs


def _batch_pairs(first, second, rate):
    """Return a pair for each batch from the shifts by the record on either neighbour."""
    if rate >= 1:
        return [GaussianPair(float(np.linalg.norm(first - second)))]
    norms = [np.linalg.norm(moves, axis=1) for moves in (first, second)]
    if min(n.max() for n in norms) == 0:
        mus = np.floor(np.maximum(*norms) * _MU_DIGITS) / _MU_DIGITS
        is_first = bool(norms[0].max() > 0)
        return [SampledGaussianPair(float(mu), rate, is_first) for mu in mus]
    products = (first * second).sum(axis=1)
    # A batch that the record does not shift reveals nothing.
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
    """Return the approximate variance of the privacy loss, to compare neighbours."""
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
    """Specification of two neighbours: the records that differ, and the value of all others."""

    row: int
    first: int
    second: int
    others: int | None
    label: bool
    side: bool
    position: int | None
    # The seed of public draws, such as the initial weights of a network.
    seed: int


class WhiteBox:
    """Search for the neighbouring tables with the largest privacy loss.

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
        candidates=None,
        n_trials=40,
        random_state=None,
    ) -> None:
        self.estimator, self.claim = estimator, claim
        self.rng = check_random_state(random_state)
        self.links = LinkedTables.of(estimator, X)
        if self.links is not None:
            X = self.links.flatten(X)
            candidates = None if candidates is None else self.links.flatten(candidates)
        self.pool: Pool | PersonPool
        if claim.unit is None:
            if candidates is None:
                candidates = extreme_records(X, self.rng)
            self.pool = Pool(X, y, sensitive_features, candidates)
        else:
            if candidates is None:
                # A person who counts for some rows needs as many of them.
                n_rows = max(_N_ROWS, claim.max_rows or 0)
                candidates = nasty_persons(X, claim.unit, n_rows=n_rows, random_state=self.rng)
                if self.links is not None and isinstance(candidates, dict):
                    candidates = self.links.spread(candidates)
            self.pool = PersonPool(X, y, sensitive_features, candidates, claim.unit)
        self.noun = "record" if claim.unit is None else "person"
        self.n_trials = n_trials
        self.replaceable = np.ones(self.pool.n, dtype=bool)
        if Public.SOURCE in claim.public:
            self.replaceable = ~known_labels(np.asarray(self.pool.y))
        profiles = [getattr(p, "profile", p) for p, _ in claim.releases]
        self.is_averaged = any(isinstance(p, MixtureProfile) for p in profiles)
        # The pairs of the transcript with the largest loss, which need not be confirmed.
        self.worst: list = []

    def fit(self, table: Table, transcript: Transcript, seed: int | None) -> Transcript:
        """Fit a clone on a table, and return its transcript."""
        X, y, sides = self.pool.arrays(table)
        if self.links is not None:
            X = self.links.rebuild(X)
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
        """Return the pairs of distributions of the releases, on one fresh transcript."""
        # Public draws are at their worst, unless the claim averages over them.
        seed = self.seed() if self.is_averaged else neighbours.seed
        base, position = neighbours.base, neighbours.position
        member = None if base is None else (position, 0)
        second = self.fit(neighbours.second, Transcript(member=member, is_fresh=True), seed)
        first = self.fit(neighbours.first, Transcript(second), seed)
        if base is not None:
            is_same = base is neighbours.second
            base = second if is_same else self.fit(base, Transcript(second), seed)
        return release_pairs(first, second, bounds, base=base, position=position)

    def unaltered(self, count: int = 2) -> list[Transcript]:
        """Return transcripts of unmodified fits on the given table."""
        given = self.pool.given()
        return [self.fit(given, Transcript(), None) for _ in range(count)]

    def batch_positions(self, transcript: Transcript) -> list[int | None]:
        """Return the positions of secret batches in a release, or [None] without any."""
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
            Positions of the batches that may contain the record; [None] without batches.

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
            if isinstance(self.pool, PersonPool) and trial % 3 == 2:
                # Draws of rows matter where the rows of a person differ.
                spec = replace(spec, first=self.pool.mixed(self.rng), seed=self.seed())
            try:
                neighbours = self._made(spec)
                pairs = self.pairs(neighbours, unit_bounds)
                weight = _weight(pairs)
                if not self.is_averaged and weight > _weight(self.worst):
                    self.worst = pairs
                for _ in range(_N_CONFIRMED):
                    # On one transcript neighbours may look worse by chance.
                    if weight > best[0]:
                        weight = min(weight, _weight(self.pairs(neighbours, unit_bounds)))
            except _REFUSALS as error:
                refused.append(str(error))
                continue
            if weight > best[0]:
                best = weight, spec
        if best[1] is None:
            raise PublicValueError(
                "No two neighbours could be distinguished: pass candidates that the estimator "
                f"accepts. The last error: {refused[-1] if refused else 'none'}."
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
        for (c, d), are_alike, position, row, label, side in choices:
            others = d if self.rng.uniform() < 0.5 else self.rng.choice(self.pool.candidates)
            yield Choice(
                row, c, d, others if are_alike else None, label, side, position, self.seed()
            )

    def _varied(self, choice):
        """Return a choice with one or several of its records changed."""
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
        """Return the two neighbours of a choice."""
        table, row = self.pool.given(), choice.row
        kind = "the table as given"
        if choice.others is not None:
            table = self._constant(table, choice.others)
            kind = f"all other {self.noun}s alike"
        label = self._other(self.pool.y, row) if choice.label else table.labels[row]
        side = self._other(self.pool.sides, row) if choice.side else table.sides[row]
        first = table.replaced(row, choice.first, label, side)
        if self.claim.neighbours is Relation.ADD_OR_REMOVE:
            words = f"{kind}, one {self.noun} removed"
            return Neighbours(first, table.without(row), words, choice.seed)
        words = f"{kind}, one {self.noun} replaced"
        second = table
        if choice.second != choice.others:
            second = table.replaced(row, choice.second, table.labels[row], table.sides[row])
        if choice.position is None:
            return Neighbours(first, second, words, choice.seed)
        return Neighbours(first, second, words, choice.seed, table, choice.position)

    def _free_parts(self):
        """Return whether a record may have another label, and another sensitive feature."""
        is_fixed = Public.SOURCE in self.claim.public or bool(
            {Shared.CLASS, Shared.LABEL} & set(self.claim.shared)
        )
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
        return self.pool.sides is not None and Shared.GROUP in self.claim.shared

    @staticmethod
    def _other(values, row):
        values = np.asarray(values)
        others = np.flatnonzero(values != values[row])
        return int(others[0]) if len(others) else row

    def _constant(self, table, row):
        """Return a table in which all replaceable records are equal."""
        rows, labels = table.rows.copy(), table.labels.copy()
        rows[self.replaceable] = row
        if self._has_groups() and self.pool.y is not None:
            sides = np.asarray(self.pool.sides)
            y = np.asarray(self.pool.y)
            values = list(dict.fromkeys(y))
            for i, side in enumerate(dict.fromkeys(sides)):
                labels[sides == side] = np.flatnonzero(y == values[i % len(values)])[0]
        return Table(rows, labels, table.sides)


_SHARES_GUESSED = (1.0, 0.5, 0.25, 0.125)


def repeated(
    search: WhiteBox, neighbours: Neighbours, *, n_runs: int, delta: float, alpha: float
) -> tuple[float, float]:
    """Return the ε and the μ that many fits on two tables imply.

    The statistic is the log-likelihood ratio of the released vectors. The bounds hold for any
    statistic.

    Returns
    -------
    epsilon, mu : float
        The bound of ε at ``delta`` and that of the Gaussian trade-off, each with confidence
        1 − alpha.
    """
    scores = []
    for table in (neighbours.first, neighbours.second):
        own = []
        for _ in range(n_runs):
            seen = search.fit(table, Transcript(is_fresh=True), neighbours.seed)
            first, second = (
                search.fit(t, Transcript(seen), neighbours.seed)
                for t in (neighbours.first, neighbours.second)
            )
            own.append(_log_ratio(seen, first, second))
        scores.append(np.array(own))
    first, second = scores
    epsilon = rate_bounds(first, second, lambda p, q: epsilon_of_rates(p, q, delta), alpha)
    mu = rate_bounds(first, second, mu_of_rates, alpha)
    return epsilon_of_rates(*epsilon, delta), mu_of_rates(*mu)


def _log_ratio(seen, first, second):
    total = 0.0
    for outcome, a, b in zip(seen.releases, first.releases, second.releases, strict=True):
        if outcome.kind == "gumbel":
            continue
        power = 2 if outcome.kind == "gaussian" else 1
        far, near = (
            (np.abs((outcome.outcome - r.values) / r.scale) ** power).sum() / power for r in (b, a)
        )
        total += float(far - near)
    return total


def one_run(
    search: WhiteBox, *, n_canaries: int, delta: float, alpha: float
) -> tuple[float, float]:
    """Return the ε and the μ that guesses of many records in one fit imply.

    A fair coin decides of each canary, a record of the table, whether another one replaces it, or
    whether it is removed. The shift by each canary alone is computed for the same outcomes on the
    given table, and guesses are the signs of the projections of the released vectors on these
    shifts.

    Returns
    -------
    epsilon, mu : float
    """
    rng, pool = search.rng, search.pool
    rows = rng.permutation(np.flatnonzero(search.replaceable))[:n_canaries]
    others = rng.choice(pool.candidates, size=len(rows))
    coins = rng.uniform(size=len(rows)) < 0.5
    given, seed = pool.given(), search.seed()

    def changed(chosen):
        if search.claim.neighbours is Relation.ADD_OR_REMOVE:
            return given.without(rows[chosen])
        table = given
        for row, other in zip(rows[chosen], others[chosen], strict=True):
            table = table.replaced(row, other, table.labels[row], table.sides[row])
        return table

    seen = search.fit(changed(coins), Transcript(is_fresh=True), seed)
    base = _stacked(search.fit(given, Transcript(seen), seed))
    outcome = _stacked(seen, "outcome")
    shifts = []
    for i in range(len(rows)):
        try:
            moved = search.fit(changed([i]), Transcript(seen), seed)
            shifts.append(_stacked(moved) - base)
        except DivergedError:
            shifts.append(np.zeros_like(base))
    shifts = np.array(shifts)
    scores = shifts @ (outcome - base - shifts.sum(axis=0) / 2)
    order = np.argsort(-np.abs(scores))
    is_right = ((scores > 0) == coins)[order]
    m, share = len(rows), alpha / (len(_SHARES_GUESSED) + 1)
    epsilons = []
    for part in _SHARES_GUESSED:
        r = max(1, int(part * m))
        epsilons.append(epsilon_of_guesses(m, r, int(is_right[:r].sum()), delta, share))
    return max(epsilons), mu_of_guesses(m, int(is_right.sum()), share)


def _stacked(transcript, part="values"):
    """Return one part of all releases of vectors; a selection has no noisy values to project."""
    vectors = [r for r in transcript.releases if r.kind != "gumbel"]
    return np.concatenate([getattr(r, part).ravel() / r.scale for r in vectors])
