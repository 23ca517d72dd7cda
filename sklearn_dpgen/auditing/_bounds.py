"""Lower bounds on epsilon and mu, from distributions of releases and from counts of guesses."""

import math
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from scipy.optimize import brentq
from scipy.special import betaincinv, expit, logsumexp, ndtr, ndtri
from scipy.stats import binom

from sklearn_dpgen.accounting import GaussianProfile
from sklearn_dpgen.accounting._losses import ComposedLosses, LossDistribution

__all__ = [
    "DiscretePair",
    "GaussianPair",
    "LaplacePair",
    "Pair",
    "SampledGaussianPair",
    "SampledReplacementPair",
    "clopper_pearson",
    "epsilon_of_guesses",
    "epsilon_of_rates",
    "equivalent_mu",
    "least_epsilon",
    "mu_of_guesses",
    "mu_of_rates",
    "rate_bounds",
]


def clopper_pearson(count: int, n: int, alpha: float) -> tuple[float, float]:
    """Return a lower and an upper bound of a probability, each with confidence 1 − alpha.

    Parameters
    ----------
    count, n : int
        Number of occurrences of an event, and number of trials.
    alpha : float
        One minus the confidence of each bound.

    Returns
    -------
    tuple of two float
    """
    low = 0.0 if count == 0 else float(betaincinv(count, n - count + 1, alpha))
    high = 1.0 if count == n else float(betaincinv(count + 1, n - count, 1 - alpha))
    return low, high


def epsilon_of_rates(at_least: float, at_most: float, delta: float) -> float:
    """Return the ε at δ, in nats, that the two probabilities of an event imply."""
    if at_least <= delta + at_most:
        return 0.0
    return math.inf if at_most == 0 else math.log((at_least - delta) / at_most)


def mu_of_rates(at_least: float, at_most: float) -> float:
    """Return the μ of the Gaussian trade-off that the two probabilities of an event imply."""
    return max(float(ndtri(at_least) - ndtri(at_most)), 0.0)


def rate_bounds(
    first: np.ndarray, second: np.ndarray, objective, alpha: float
) -> tuple[float, float]:
    """Bound the probabilities of {score ≥ t} under two distributions, the second from above.

    The first half of the scores chooses the threshold, and the other half counts the event.

    Parameters
    ----------
    first, second : ndarray of shape (n,)
        Scores of independent runs on either neighbour, larger on the first.
    objective : callable
        Function of the two bounds that the threshold maximizes.
    alpha : float
        One minus the confidence of both bounds together.

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
    """Return the ε that guesses of many records in one run imply.

    Parameters
    ----------
    m : int
        Number of canaries, each in the table or not by a fair coin.
    r : int
        Number of guesses.
    v : int
        Number of correct guesses.
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
    """Return the μ of the Gaussian trade-off that guesses of all canaries in one run imply.

    Parameters
    ----------
    m : int
        Number of canaries, each in the table or not by a fair coin, all guessed.
    v : int
        Number of correct guesses.
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


# Grid steps of the privacy loss, in nats. Each loss is rounded down to a multiple, so that their
# composition stays a lower bound; so does it without tails.
_FINEST, _COARSEST, _TOTAL_ROUNDING = 5e-6, 1e-4, 4e-3
_LEAST_MU = 1e-9
_N_CELLS, _REACH, _FAR_REACH = 400, 9.0, 10.0


def _masses(edges, center):
    """Return the probabilities of N(center, 1) between edges; by the complement in upper tails."""
    left, right = edges[:-1] - center, edges[1:] - center
    return np.where(left > 0, ndtr(-left) - ndtr(-right), ndtr(right) - ndtr(left))


def _laws_of_cells(log_p, log_q, step):
    """Return the rounded losses of two distributions on one finite set, in both directions."""
    both = (log_p > -np.inf) & (log_q > -np.inf)
    losses = (log_p[both] - log_q[both]) / step
    return tuple(
        LossDistribution.of(
            np.floor(loss).astype(np.int64),
            np.exp(one[both]),
            min(float(np.exp(one[other == -np.inf]).sum()), 1.0),
        )
        for loss, one, other in ((losses, log_p, log_q), (-losses, log_q, log_p))
    )


@dataclass(frozen=True)
class GaussianPair:
    """N(0, 1) and N(μ, 1)."""

    mu: float

    @property
    def largest_loss(self) -> float:
        """Largest privacy loss, in nats."""
        return math.inf if self.mu > 0 else 0.0

    def _laws(self, step):
        return SampledGaussianPair(self.mu, 1.0)._laws(step)


@dataclass(frozen=True)
class SampledGaussianPair:
    """N(0, 1), and its mixture with N(μ, 1) of weight ``rate``.

    Parameters
    ----------
    mu, rate : float
    is_first : bool, default=True
        Whether the mixture is of the first neighbour.
    """

    mu: float
    rate: float
    is_first: bool = True

    largest_loss = math.inf

    def _laws(self, step):
        # The loss of the mixture grows with the value: log(1 − γ + γ e^{μx − μ²/2}).
        rate, mu = self.rate, self.mu
        ends = mu * np.array([-_FAR_REACH, mu + _FAR_REACH]) - mu**2 / 2
        low, high = np.logaddexp(np.log1p(-rate), np.log(rate) + ends) if rate < 1 else ends
        places = np.arange(math.floor(low / step), math.ceil(high / step) + 1)
        edges = (self._shift_of(places * step) + mu**2 / 2) / mu
        p, moved = _masses(edges, 0.0), _masses(edges, mu)
        mixture = LossDistribution.of(places[:-1], (1 - rate) * p + rate * moved)
        # In the other direction the cell of [k, k + 1) is that of (−k − 1, −k].
        plain = LossDistribution.of(-places[1:], p)
        return (mixture, plain) if self.is_first else (plain, mixture)

    def _shift_of(self, losses):
        """Return log((e^loss − 1 + γ) / γ), −∞ where no value has so small a loss."""
        if self.rate == 1:
            return losses
        capped = np.maximum(losses, 1.0)
        large = capped - math.log(self.rate) + np.log1p((self.rate - 1) * np.exp(-capped))
        with np.errstate(divide="ignore"):
            small = np.log(np.maximum(1 + np.expm1(np.minimum(losses, 1.0)) / self.rate, 0.0))
        return np.where(losses < 1, small, large)


@dataclass(frozen=True)
class SampledReplacementPair:
    """Mixtures of N(0, I) with N(a, I), and with N(b, I), each of weight ``rate``.

    Parameters
    ----------
    norms : (float, float)
        ‖a‖ and ‖b‖.
    product : float
        ⟨a, b⟩.
    rate : float
    """

    norms: tuple[float, float]
    product: float
    rate: float

    largest_loss = math.inf

    def _laws(self, step):
        # Rounding the plane of a and b to cells is post-processing, which gives a lower bound.
        first, second = self.norms
        along = self.product / first
        across = math.sqrt(max(second**2 - along**2, 0.0))
        p = self._cells(first, 0.0, first, along, across)
        q = self._cells(along, across, first, along, across)
        # A cell that underflows is left out: its loss is not infinite.
        kept = (p > 1e-300) & (q > 1e-300)
        return _laws_of_cells(np.log(p[kept]), np.log(q[kept]), step)

    def _cells(self, x, y, first, along, across):
        def masses(center, low, high):
            inner = np.linspace(low, high, _N_CELLS - 1)
            return _masses(np.concatenate([[-np.inf], inner, [np.inf]]), center)

        wide = min(0.0, along) - _REACH, max(first, along) + _REACH
        high = -_REACH, across + _REACH
        base = np.outer(masses(0.0, *wide), masses(0.0, *high))
        moved = np.outer(masses(x, *wide), masses(y, *high))
        return ((1 - self.rate) * base + self.rate * moved).ravel()


@dataclass(frozen=True)
class LaplacePair:
    """Laplace variables of scale 1 about 0 and ``shift``."""

    shift: float

    @property
    def largest_loss(self) -> float:
        """Largest privacy loss, in nats."""
        return self.shift

    def _laws(self, step):
        # Under the first, a loss above −shift is below l with probability e^{(l − shift)/2} / 2.
        places = np.arange(math.floor(-self.shift / step), math.floor(self.shift / step) + 1)
        below = np.exp((places[1:] * step - self.shift) / 2) / 2
        law = LossDistribution.of(places, np.diff(below, prepend=0.0, append=1.0))
        return law, law


@dataclass(frozen=True)
class DiscretePair:
    """Two distributions on one finite set, by the logarithms of their probabilities."""

    log_p: tuple[float, ...]
    log_q: tuple[float, ...]

    @classmethod
    def of_scores(cls, first: np.ndarray, second: np.ndarray) -> "DiscretePair":
        """Return the pair of the exponential mechanism, from scores over their noise scale."""
        distributions = (tuple(scores - logsumexp(scores)) for scores in (first, second))
        return cls(*distributions)

    @classmethod
    def of_event(cls, at_least: float, at_most: float) -> "DiscretePair":
        """Return the pair of an event and its complement, from its two probabilities."""
        at_most = min(at_most, at_least)
        if not 0 < at_most < 1:
            return cls((0.0,), (0.0,))
        return cls(
            (math.log(at_least), math.log1p(-at_least) if at_least < 1 else -math.inf),
            (math.log(at_most), math.log1p(-at_most)),
        )

    @property
    def largest_losses(self) -> tuple[float, float]:
        """Largest privacy losses, in nats, in each direction."""
        p, q = np.array(self.log_p), np.array(self.log_q)
        is_possible = (p > -np.inf) | (q > -np.inf)
        losses = p[is_possible] - q[is_possible]
        return float(losses.max()), float(-losses.min())

    @property
    def largest_loss(self) -> float:
        """Largest privacy loss, in nats, in either direction."""
        return max(self.largest_losses)

    def _laws(self, step):
        return _laws_of_cells(np.array(self.log_p), np.array(self.log_q), step)


Pair = GaussianPair | SampledGaussianPair | SampledReplacementPair | LaplacePair | DiscretePair


def least_epsilon(pairs: Iterable[Pair], delta: float) -> float:
    """Return a lower bound of ε for the composition of pairs of distributions.

    Parameters
    ----------
    pairs : iterable of pairs
        One pair for each release, with the neighbours in the same order.
    delta : float
        In [0, 1); 0 for the largest loss.

    Returns
    -------
    float
        In nats. Numerically composed losses are rounded down.
    """
    pairs = list(pairs)
    squared = math.fsum(p.mu**2 for p in pairs if isinstance(p, GaussianPair))
    others: Counter[Pair] = Counter(
        p for p in pairs if not isinstance(p, GaussianPair) and _tells(p)
    )
    if delta == 0:
        # Releases reach their largest losses together in one direction, not each in its own.
        losses = [
            [count * loss for loss in getattr(p, "largest_losses", 2 * [p.largest_loss])]
            for p, count in others.items()
        ]
        totals = map(math.fsum, zip(*losses, strict=True))
        return math.inf if squared > 0 else max(totals, default=0.0)
    mu = math.sqrt(squared)
    if not others:
        return GaussianProfile(mu).epsilon(delta) if mu > _LEAST_MU else 0.0
    step = min(max(_TOTAL_ROUNDING / others.total(), _FINEST), _COARSEST)
    if mu > _LEAST_MU:
        others[GaussianPair(mu)] = 1
    directions = zip(*(p._laws(step) for p in others), strict=True)
    times = tuple(others.values())
    return max(ComposedLosses(step, laws, times).least_epsilon(delta) for laws in directions)


def _tells(pair):
    return getattr(pair, "mu", pair.largest_loss) > _LEAST_MU


def equivalent_mu(epsilon: float, delta: float) -> float:
    """Return the μ of the Gaussian mechanism that has ε at δ.

    For a pure guarantee, the μ whose trade-off curve has the same point of equal errors.

    Parameters
    ----------
    epsilon : float
        In nats, at least 0.
    delta : float
        In [0, 1).

    Returns
    -------
    float
        ``inf`` without a guarantee.
    """
    if math.isinf(epsilon) or epsilon == 0:
        return float(epsilon)
    if delta == 0:
        return float(-2 * ndtri(expit(-epsilon)))

    def excess(log_mu):
        return GaussianProfile(math.exp(log_mu)).delta(epsilon) - delta

    low, high = math.log(1e-12), math.log(10 + 10 * epsilon)
    return 0.0 if excess(low) >= 0 else math.exp(brentq(excess, low, high, xtol=1e-12))
