"""Black-box audits of released vectors: many fits on two tables, or one fit with canaries."""

import numpy as np

from sklearn_dpgen.auditing._bounds import (
    epsilon_of_guesses,
    epsilon_of_rates,
    mu_of_guesses,
    mu_of_rates,
    rate_bounds,
)
from sklearn_dpgen.auditing._transcript import DivergedError, Transcript
from sklearn_dpgen.auditing._white_box import Neighbours, WhiteBox

__all__ = ["one_run", "repeated"]

_SHARES_GUESSED = (1.0, 0.5, 0.25, 0.125)


def repeated(
    search: WhiteBox, neighbours: Neighbours, *, n_runs: int, delta: float, alpha: float
) -> tuple[float, float]:
    """Return ε and μ that many fits on two tables show, told apart by their released vectors.

    The statistic is the logarithm of the likelihood ratio along what the record moves; it may be
    any other one without harm to the bounds.

    Returns
    -------
    epsilon, mu : float
        At ``delta``, and of the Gaussian trade-off, each with confidence 1 − alpha.
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
    """Return ε and μ that guesses of many records in one fit show.

    Each canary is a row of the table, replaced by another record or not by a fair coin. What each
    would move by itself is computed on the table with none replaced, for the same outcomes; guesses
    follow the projections of the released vectors on it.

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
