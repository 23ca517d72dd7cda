"""Bounds of privacy from counts of right and wrong guesses, with confidence."""

import math

import numpy as np
from scipy.special import betaincinv, ndtr, ndtri
from scipy.stats import binom

__all__ = [
    "clopper_pearson",
    "epsilon_of_guesses",
    "epsilon_of_rates",
    "mu_of_guesses",
    "mu_of_rates",
    "rate_bounds",
]


def clopper_pearson(count: int, n: int, alpha: float) -> tuple[float, float]:
    """Return a lower and an upper bound of a probability, each with confidence 1 − alpha.

    Parameters
    ----------
    count, n : int
        How often an event occurred, of how many times.
    alpha : float

    Returns
    -------
    tuple of two float
    """
    low = 0.0 if count == 0 else float(betaincinv(count, n - count + 1, alpha))
    high = 1.0 if count == n else float(betaincinv(count + 1, n - count, 1 - alpha))
    return low, high


def epsilon_of_rates(at_least: float, at_most: float, delta: float) -> float:
    """Return the ε at δ that an event of two probabilities shows, in nats, at least 0."""
    if at_least <= delta + at_most:
        return 0.0
    return math.inf if at_most == 0 else math.log((at_least - delta) / at_most)


def mu_of_rates(at_least: float, at_most: float) -> float:
    """Return the μ of the Gaussian trade-off that an event of two probabilities shows."""
    return max(float(ndtri(at_least) - ndtri(at_most)), 0.0)


def rate_bounds(
    first: np.ndarray, second: np.ndarray, objective, alpha: float
) -> tuple[float, float]:
    """Bound the probabilities of the event {score ≥ t} under two laws, the second from above.

    The threshold is chosen on the first half of the scores, and the event counted on the other.

    Parameters
    ----------
    first, second : ndarray of shape (n,)
        Scores of independent runs on either neighbour, larger on the first.
    objective : callable
        From the two bounds to what the threshold shall make large.
    alpha : float
        Of both bounds together.

    Returns
    -------
    at_least, at_most : float
    """
    halves = [np.array_split(scores, 2) for scores in (first, second)]
    (train_p, test_p), (train_q, test_q) = halves
    thresholds = np.unique(np.quantile(np.concatenate([train_p, train_q]), np.linspace(0, 1, 200)))

    def bounds(threshold, p, q):
        low = clopper_pearson(int((p >= threshold).sum()), len(p), alpha / 2)[0]
        return low, clopper_pearson(int((q >= threshold).sum()), len(q), alpha / 2)[1]

    best = max(thresholds, key=lambda t: objective(*bounds(t, train_p, train_q)))
    return bounds(best, test_p, test_q)


def epsilon_of_guesses(m: int, r: int, v: int, delta: float, alpha: float) -> float:
    """Return the ε that guesses of many records in one run show.

    Parameters
    ----------
    m : int
        Number of canaries, each in the table or not by a fair coin.
    r : int
        Of how many the coin was guessed.
    v : int
        How many guesses were right.
    delta : float
    alpha : float
        One minus the confidence.

    Returns
    -------
    float
        In nats, at least 0.

    References
    ----------
    T. Steinke, M. Nasr and M. Jagielski, "Privacy auditing with one (1) training run",
    NeurIPS 2023, Theorem 5.2 and appendix D.
    """

    def p_value(epsilon):
        q = 1 / (1 + math.exp(-epsilon))
        below = np.cumsum(binom.pmf(np.arange(v - 1, -1, -1), r, q))
        slope = (below / np.arange(1, v + 1)).max(initial=0.0)
        return binom.sf(v - 1, r, q) + slope * 2 * m * delta

    low, high = 0.0, 1.0
    if p_value(low) > alpha:
        return 0.0
    while p_value(high) <= alpha and high < 100:
        low, high = high, 2 * high
    for _ in range(50):
        middle = (low + high) / 2
        low, high = (middle, high) if p_value(middle) <= alpha else (low, middle)
    return low


def mu_of_guesses(m: int, v: int, alpha: float) -> float:
    """Return the μ of the Gaussian trade-off that guesses of all canaries in one run show.

    Parameters
    ----------
    m : int
        Number of canaries, each in the table or not by a fair coin, all guessed.
    v : int
        How many guesses were right.
    alpha : float
        One minus the confidence.

    Returns
    -------
    float

    References
    ----------
    S. Mahloujifar, L. Melis and K. Chaudhuri, "Auditing f-differential privacy in one run", 2024,
    Algorithm 3.
    """

    def is_refuted(mu):
        tail, hit = alpha * v / m, alpha * (m - v) / m
        for i in range(v - 1, -1, -1):
            grown = max(hit, float(ndtr(ndtri(tail) - mu)))
            tail += i / (m - i) * (grown - hit)
            hit = grown
        return tail + hit > 1

    if v == 0 or not is_refuted(0.0):
        return 0.0
    low, high = 0.0, 1.0
    while is_refuted(high) and high < 100:
        low, high = high, 2 * high
    for _ in range(40):
        middle = (low + high) / 2
        low, high = (middle, high) if is_refuted(middle) else (low, middle)
    return low
