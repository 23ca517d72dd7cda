"""From weighted candidates to the next population, and how far it is varied."""

import numpy as np

__all__ = ["copy_shares", "distinct_rows", "draw_systematic", "next_degree"]


def distinct_rows(candidates):
    """Return the first places of distinct rows, ascending: copies would get noise alone."""
    _, first = np.unique(candidates, axis=0, return_index=True)
    return np.sort(first)


def draw_systematic(weights, n, rng):
    """Return n positions: expected numbers as of independent draws, with the least variance."""
    levels = (rng.uniform() + np.arange(n)) / n
    edges = np.cumsum(weights)
    return np.searchsorted(edges / edges[-1], levels, side="right").clip(0, len(weights) - 1)


def copy_shares(shares, n, multiplicity):
    """Return positions, each nint(n share/B) B times: line 9 of Algorithm 1, without chance.

    Parameters
    ----------
    shares : ndarray of shape (m,)
        At least 0; they need not sum to 1.
    n : int
    multiplicity : int
        B.
    """
    copies = np.rint(n * shares / multiplicity).astype(np.int64) * multiplicity
    return np.repeat(np.arange(len(shares)), copies)


def next_degree(degree, moves, is_narrow, weights):
    """Return the scale of the next step: half the last one, or half of the moves that got votes.

    Around a start in the right place most votes are for candidates that moved no farther than
    the scale. Votes for those that moved farther say that the records are farther away.

    Parameters
    ----------
    degree : float
        Of this step, in (0, 1].
    moves : ndarray of shape (m,)
        Distances of candidates to what they are variations of, 0 for the population itself.
    is_narrow : boolean ndarray of shape (m,)
        Which were varied by ``degree``.
    weights : ndarray of shape (m,)
        Probabilities from the votes.

    Returns
    -------
    float
        In (0, 1].
    """
    length = np.sqrt(np.mean(moves[is_narrow] ** 2)) if is_narrow.any() else 0.0
    if not length > 0:
        return degree / 2
    order = np.argsort(moves)
    mass = np.cumsum(weights[order])
    median = moves[order[np.searchsorted(mass, mass[-1] / 2)]]
    return min(1.0, degree * max(1.0, median / length) / 2)
