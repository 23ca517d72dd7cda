"""Privacy amplification by shuffling: the central guarantee of shuffled local releases."""

import math

import numpy as np
from scipy.stats import binom

from sklearn_dpgen.accounting._checks import check_choice, check_count, smallest_passing
from sklearn_dpgen.exceptions import PublicValueError
from sklearn_dpgen.utils._validation import check_delta, check_epsilon

__all__ = ["shuffled_epsilon"]

_MAX_BLOCKS = 4096
_TAIL_MASS = 1e-20


def shuffled_epsilon(
    epsilon0: float, n: int, delta: float, *, method: str = "closed_form"
) -> float:
    """Return the central ε of n shuffled records, each released with pure local privacy.

    Neighbours differ in one replaced record; n is public. Every person uses a randomizer of at
    most ``epsilon0``, once, and the server sees the multiset of the outputs.

    Parameters
    ----------
    epsilon0 : float
        Pure local budget, in nats.
    n : int
        Number of records.
    delta : float
        Central δ, in (0, 1).
    method : {"closed_form", "numerical"}
        ``"closed_form"`` is ε = log(1 + (e^{ε₀} − 1)(4√(2 ln(4/δ)) / √((e^{ε₀} + 1) n) + 4/n)),
        for ε₀ ≤ ln(n / (8 ln(2/δ)) − 1). ``"numerical"`` evaluates the divergence of the clone
        construction, for every ε₀, and is usually smaller.

    Returns
    -------
    float
        An upper bound, at most ``epsilon0``.

    Raises
    ------
    PublicValueError
        ``epsilon0`` is too large for the closed form.

    References
    ----------
    Feldman, McMillan and Talwar, "Stronger privacy amplification by shuffling for Rényi and
    approximate differential privacy", SODA 2023, Theorem 3.2 (closed form); "Hiding among the
    clones", FOCS 2021, Theorem 3.1 (numerical).
    """
    epsilon0 = check_epsilon(epsilon0, "epsilon0", allow_infinite=False)
    n = check_count(n, "n")
    delta = check_delta(delta)
    check_choice(method, "method", ("closed_form", "numerical"))
    if method == "numerical":
        return _numerical(epsilon0, n, delta)
    room = n / (8 * math.log(2 / delta)) - 1
    largest = math.log(room) if room > 0 else -math.inf
    if epsilon0 > largest:
        raise PublicValueError(
            f"epsilon0 must be at most log(n / (8 log(2 / delta)) - 1) = {largest:.6g} for the "
            f'closed form, got {epsilon0}; method="numerical" has no such limit.'
        )
    spread = 4 * math.sqrt(2 * math.log(4 / delta))
    # (e^a - 1) / sqrt(e^a + 1), without overflow.
    growth = -math.expm1(-epsilon0) * math.exp(epsilon0 / 2) / math.sqrt(1 + math.exp(-epsilon0))
    excess = growth * spread / math.sqrt(n) + math.expm1(epsilon0) * 4 / n
    return min(math.log1p(excess), epsilon0)


def _numerical(epsilon0, n, delta):
    """Invert the divergence of the clones.

    Two outputs, with distributions Q0 and Q1, generate the differing person's release: the true one
    with probability e^ε₀ / (e^ε₀ + 1). Any other person's distribution is at least
    e^−ε₀ (Q0 + Q1) / 2, so each of the n − 1 is a fair coin between Q0 and Q1 with probability
    e^−ε₀. The number of coins is binomial; given it, the count of Q0 is sufficient to distinguish
    the neighbours.
    """
    counts, weights, lost = _clone_counts(n - 1, math.exp(-epsilon0))

    def is_private(epsilon):
        if epsilon >= epsilon0:
            return True
        return weights @ _clone_divergence(epsilon, epsilon0, counts) + lost <= delta

    if is_private(0.0):
        return 0.0
    return min(smallest_passing(is_private, epsilon0, rtol=1e-9), epsilon0)


def _clone_counts(n_others, probability):
    """Return numbers of clones, rounded down in blocks, their weights, and the omitted mass.

    One more clone is post-processing of one less, so rounding down is safe.
    """
    law = binom(n_others, probability)
    first, last = int(law.ppf(_TAIL_MASS)), int(law.isf(_TAIL_MASS))
    edges = np.unique(np.linspace(first, last + 1, _MAX_BLOCKS + 1).astype(np.int64))
    below, above = law.cdf(edges - 1), law.sf(edges - 1)
    lost, above[-1] = below[0], 0.0
    weights = np.where(below[1:] < 0.5, np.diff(below), -np.diff(above))
    return edges[:-1], weights, lost


def _clone_divergence(epsilon, epsilon0, counts):
    """Return the hockey-stick divergence at e^ε given the number of clones."""
    truth = 1 / (1 + math.exp(-epsilon0))
    # The loss grows with the share of Q0 among the counts + 1 outputs, and crosses ε here.
    share = -math.expm1(-epsilon - epsilon0) / (-math.expm1(-epsilon0) * (1 + math.exp(-epsilon)))
    threshold = np.floor(share * (counts + 1))
    own, other = binom.sf(threshold - 1, counts, 0.5), binom.sf(threshold, counts, 0.5)
    gain = truth - math.exp(epsilon) * (1 - truth)
    loss = (1 - truth) - math.exp(epsilon) * truth
    return np.maximum(gain * own + loss * other, 0.0)
