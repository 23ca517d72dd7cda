"""Neighbouring tables, the search for the worst of them, and the privacy loss of their fits."""

import itertools
import warnings
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd
from sklearn.base import clone
from sklearn.utils import _safe_indexing, check_random_state

from sklearn_dpgen.accounting import Public
from sklearn_dpgen.accounting._guarantee import Shared
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
from sklearn_dpgen.auditing._transcript import DivergedError, Transcript
from sklearn_dpgen.exceptions import PublicValueError
from sklearn_dpgen.utils._random import observed_noise

__all__ = [
    "Neighbours",
    "Pool",
    "Table",
    "WhiteBox",
    "extreme_records",
    "one_run",
    "release_pairs",
    "repeated",
]

_OUTSIDE = 1e3
_MOST_CORNERS = 12


@dataclass(frozen=True, eq=False)
class Table:
    """A table: indices into the rows, the labels and the sensitive features of a pool."""

    rows: np.ndarray
    labels: np.ndarray
    sides: np.ndarray

    def replaced(self, position: int, row: int, label: int, side: int) -> "Table":
        """Return the table with another record at one position."""
        arrays = [array.copy() for array in (self.rows, self.labels, self.sides)]
        for array, index in zip(arrays, (row, label, side), strict=True):
            array[position] = index
        return Table(*arrays)

    def without(self, position: int) -> "Table":
        """Return the table without one record."""
        arrays = (self.rows, self.labels, self.sides)
        return Table(*(np.delete(array, position) for array in arrays))


class Pool:
    """Records of which tables consist: the given ones, then candidates.

    Parameters
    ----------
    X : array-like
    y, sides : array-like or None
        Labels and sensitive features of the given table.
    candidates : like X
        Records that may replace given ones.
    """

    def __init__(self, X: Any, y: Any, sides: Any, candidates: Any) -> None:
        self.n = len(X)
        self.X = X
        self.candidates = self._append(candidates)
        self.y, self.sides = y, sides

    def _append(self, records):
        if isinstance(self.X, pd.DataFrame):
            self.X = pd.concat([self.X, records], ignore_index=True)
        else:
            self.X = np.concatenate([self.X, np.asarray(records, dtype=self.X.dtype)])
        return np.arange(len(self.X) - len(records), len(self.X))

    def varied(self, row: int, rng: np.random.RandomState) -> int:
        """Add a record with some values changed to the pool, and return its index."""
        record = _safe_indexing(self.X, [row]).copy()
        is_frame = isinstance(record, pd.DataFrame)
        width = record.shape[1]
        changed = rng.uniform(size=width) < max(0.3, 1 / width)
        changed[rng.randint(width)] = True
        for j in np.flatnonzero(changed):
            column = self.X.iloc[: self.n, j] if is_frame else pd.Series(self.X[: self.n, j])
            value = _any_value(column, rng)
            if is_frame:
                record.isetitem(j, pd.Series([value], index=record.index).astype(column.dtype))
            else:
                record[0, j] = value
        return int(self._append(record)[0])

    def given(self) -> Table:
        """Return the given table."""
        return Table(*[np.arange(self.n)] * 3)

    def arrays(self, table: Table) -> tuple:
        """Return X, y and the sensitive features of a table."""
        X = _safe_indexing(self.X, table.rows)
        if isinstance(X, pd.DataFrame):
            X = X.reset_index(drop=True)
        return X, _taken(self.y, table.labels), _taken(self.sides, table.sides)


def _taken(values, indices):
    if values is None:
        return None
    values = _safe_indexing(values, indices)
    return values.reset_index(drop=True) if isinstance(values, pd.Series) else values


def extreme_records(X: Any, random_state: object = None) -> Any:
    """Return records at the corners of the ranges of X, and far outside of them.

    Parameters
    ----------
    X : data frame or ndarray
    random_state : int, RandomState or None

    Returns
    -------
    like X
    """
    rng = check_random_state(random_state)
    frame = pd.DataFrame(X) if not isinstance(X, pd.DataFrame) else X
    columns = [_extremes(frame[name]) for name in frame]
    corners = _corners([inner for inner, _ in columns], rng)
    middle = tuple(
        column.median() if _is_continuous(column) else column.iloc[0]
        for column in (frame[name] for name in frame)
    )
    outside = _corners([outer for _, outer in columns], rng)
    chosen = list(dict.fromkeys([*corners, middle, *outside]))
    made = pd.DataFrame(
        {
            name: pd.Series([row[j] for row in chosen]).astype(frame[name].dtype)
            for j, name in enumerate(frame)
        }
    )
    return made if isinstance(X, pd.DataFrame) else made.to_numpy()


def _extremes(column):
    """Return the extreme values of a column, and for numbers values far outside of them."""
    if pd.api.types.is_numeric_dtype(column) and not pd.api.types.is_bool_dtype(column):
        low, high = column.min(), column.max()
        width = (high - low) or 1
        far = [low - _OUTSIDE * width, high + _OUTSIDE * width]
        if pd.api.types.is_integer_dtype(column) or column.nunique() <= 2:
            far = [low, high]
        return [low, high], far
    values = list(pd.unique(column))[:4]
    return values, values


def _any_value(column, rng):
    """Return a value of a column, within its range, or a little outside."""
    if rng.uniform() < 0.3 or not _is_continuous(column):
        return column.iloc[rng.randint(len(column))]
    low, high = column.min(), column.max()
    beyond = rng.choice([0.0, 0.25, 1.0]) * (high - low)
    return rng.uniform(low - beyond, high + beyond)


def _is_continuous(column):
    return pd.api.types.is_float_dtype(column) and column.nunique() > 2


def _corners(values, rng):
    total = np.prod([len(v) for v in values], dtype=float)
    if total <= _MOST_CORNERS:
        grid = np.stack(np.meshgrid(*[np.arange(len(v)) for v in values], indexing="ij"), -1)
        picks = grid.reshape(-1, len(values))
    else:
        ends = np.array([[0] * len(values), [len(v) - 1 for v in values]])
        drawn = [rng.randint(len(v), size=_MOST_CORNERS - 2) for v in values]
        picks = np.concatenate([ends, np.stack(drawn, axis=1)])
    return [tuple(v[i] for v, i in zip(values, pick, strict=True)) for pick in picks]


# Composition takes long, so that shifts are rounded and equal ones are composed together.
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
        return [SampledGaussianPair(float(mu), rate) for mu in mus]
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
        X, y, sides = self.pool.arrays(table)
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
        seed = neighbours.seed
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
            try:
                neighbours = self._made(spec)
                weight = _weight(self.pairs(neighbours, unit_bounds))
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

    A fair coin decides of each canary, a row of the table, whether another record replaces it. The
    shift by each canary alone is computed for the same outcomes on the given table, and guesses are
    the signs of the projections of the released vectors on these shifts.

    Returns
    -------
    epsilon, mu : float
    """
    rng, pool = search.rng, search.pool
    rows = rng.permutation(np.flatnonzero(search.replaceable))[:n_canaries]
    others = rng.choice(pool.candidates, size=len(rows))
    coins = rng.uniform(size=len(rows)) < 0.5
    given, seed = pool.given(), search.seed()

    def put(table, row, other):
        return table.replaced(row, other, table.labels[row], table.sides[row])

    mixed = given
    for row, other in zip(rows[coins], others[coins], strict=True):
        mixed = put(mixed, row, other)
    seen = search.fit(mixed, Transcript(is_fresh=True), seed)
    base = _stacked(search.fit(given, Transcript(seen), seed))
    outcome = np.concatenate([r.outcome.ravel() / r.scale for r in seen.releases])
    shifts = []
    for row, other in zip(rows, others, strict=True):
        try:
            moved = search.fit(put(given, row, other), Transcript(seen), seed)
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


def _stacked(transcript):
    return np.concatenate([r.values.ravel() / r.scale for r in transcript.releases])
